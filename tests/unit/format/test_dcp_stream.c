/* The two readers of DCP's lists: what the streaming one takes, the graph reads too, and as the same items, chunks and files; and the
 * lists of tests/data/dcp, which are torch's own, it takes. */
#include <stdio.h>
#include "dcp_files.h"
#include "format/dcp/dcp.h"

typedef struct list_bytes {
    char *data;
    size_t size;
} list_bytes;

static ckpt_status read_bytes(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const list_bytes *b = ctx;
    (void)err;
    if (offset > b->size || n > b->size - offset)
        return CKPT_E_SYSTEM;
    memcpy(dst, b->data + offset, n);
    return CKPT_OK;
}

static ckpt__dcp open_list(void)
{
    ckpt__dcp d = {.folder = "",
                   .index = ckpt__index_new(0),
                   .arena = ckpt__arena_new(0),
                   .by_name = ckpt__hash_new(64),
                   .by_file = ckpt__hash_new(64)};
    ck_assert(d.index && d.arena && d.by_name && d.by_file);
    return d;
}

static void close_list(ckpt__dcp *d)
{
    free(d->items);
    free(d->chunks);
    free(d->order);
    free(d->files);
    ckpt__hash_free(d->by_name);
    ckpt__hash_free(d->by_file);
    ckpt__arena_free(d->arena);
    ckpt__index_free(d->index);
}

static list_bytes load(const char *path)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    list_bytes b = {malloc(1 << 16), 0};
    ck_assert_ptr_nonnull(b.data);
    b.size = fread(b.data, 1, 1 << 16, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert(b.size > 0 && b.size < 1 << 16);
    return b;
}

/* ---- comparing */

static void same_item(const ckpt__dcp_item *a, const ckpt__dcp_item *b)
{
    ck_assert(ckpt__str_equal(a->name, b->name));
    ck_assert(a->object == b->object && a->dtype == b->dtype && a->turn == b->turn && a->key_count == b->key_count);
    ck_assert(ckpt__same_shape(a->shape, a->ndim, b->shape, b->ndim));
    ck_assert(!a->keys == !b->keys);
    for (size_t i = 0; a->keys && i < a->key_count; i++) {
        ck_assert(!a->keys[i].text.data == !b->keys[i].text.data);
        if (a->keys[i].text.data)
            ck_assert(ckpt__str_equal(a->keys[i].text, b->keys[i].text));
        else
            ck_assert_int_eq(a->keys[i].number, b->keys[i].number);
    }
}

/* The chunks of an item stand in the same order in both; those of two items may not. */
static const ckpt__dcp_chunk *nth_chunk(const ckpt__dcp *d, uint32_t item, size_t n)
{
    for (size_t i = 0; i < d->chunk_count; i++)
        if (d->chunks[i].item == item && n-- == 0)
            return &d->chunks[i];
    return NULL;
}

static void same_chunks(const ckpt__dcp *a, const ckpt__dcp *b, uint32_t item)
{
    const uint32_t ndim = a->items[item].ndim;
    for (size_t n = 0;; n++) {
        const ckpt__dcp_chunk *x = nth_chunk(a, item, n), *y = nth_chunk(b, item, n);
        ck_assert(!x == !y);
        if (!x)
            return;
        ck_assert(x->offset == y->offset && x->length == y->length && x->zstd == y->zstd);
        ck_assert_str_eq(a->files[x->file].name, b->files[y->file].name);
        ck_assert_uint_eq(a->files[x->file].needs, b->files[y->file].needs);
        if (!a->items[item].object && ndim)
            ck_assert(memcmp(x->box, y->box, 2 * ndim * sizeof *x->box) == 0);
    }
}

static void same_list(const ckpt__dcp *a, const ckpt__dcp *b)
{
    ck_assert_uint_eq(a->item_count, b->item_count);
    ck_assert_uint_eq(a->chunk_count, b->chunk_count);
    ck_assert_uint_eq(a->file_count, b->file_count);
    ck_assert_uint_eq(a->turns, b->turns);
    for (uint32_t i = 0; i < a->item_count; i++) {
        same_item(&a->items[i], &b->items[i]);
        same_chunks(a, b, i);
    }
}

/* Does the streaming reader take it? Then both have read the same. */
static bool is_taken(list_bytes *b)
{
    ckpt__dcp quick = open_list(), graph = open_list();
    const ckpt__pickle_input in = {read_bytes, b, b->size};
    ckpt_error err = CKPT_ERROR_INIT;
    bool taken = false;
    ck_assert_int_eq(ckpt__dcp_stream(&quick, &in, &taken, &err), CKPT_OK);
    if (taken) {
        ckpt_status status = ckpt__dcp_parse(&graph, b->data, b->size, "a list", &err);
        ck_assert_msg(status == CKPT_OK, "the graph says: %s", err.message);
        same_list(&quick, &graph);
    }
    close_list(&quick);
    close_list(&graph);
    return taken;
}

/* ---- tests */

static const char *const lists[] = {
    "bomb/.metadata",       "cut/.metadata",     "large/.metadata",       "torch-2.0/.metadata",
    "torch-2.15/.metadata", "trained/.metadata", "unflattened/.metadata", "zstd/.metadata",
};
enum { LISTS = sizeof lists / sizeof *lists };

START_TEST(lists_of_torch_are_taken)
{
    for (size_t i = 0; i < LISTS; i++) {
        list_bytes b = load(data(lists[i]));
        ck_assert_msg(is_taken(&b), "%s", lists[i]);
        free(b.data);
    }
}
END_TEST

/* Every how many bytes: all, unless it takes too long. */
static size_t step(void)
{
    return getenv("CKPT_TEST_FEW") ? 37 : 1;
}

START_TEST(every_byte_may_be_another)
{
    static const unsigned char changes[] = {0x01, 0x02, 0x10, 0x80, 0xff};
    size_t taken = 0;
    list_bytes b = load(data(lists[_i]));
    for (size_t at = 0; at < b.size; at += step())
        for (size_t k = 0; k < sizeof changes; k++) {
            b.data[at] = (char)(b.data[at] ^ changes[k]);
            taken += is_taken(&b);
            b.data[at] = (char)(b.data[at] ^ changes[k]);
        }
    ck_assert_uint_gt(taken, 0); /* other numbers, names that nobody asks for */
    free(b.data);
}
END_TEST

START_TEST(every_end_is_noticed)
{
    list_bytes b = load(data(lists[_i]));
    while (b.size-- > 0)
        ck_assert(!is_taken(&b));
    free(b.data);
}
END_TEST

/* Two bytes that may belong together: an opcode and its argument, a length and a text. */
START_TEST(bytes_may_be_exchanged)
{
    list_bytes b = load(data(lists[_i]));
    for (size_t at = 0; at + 1 < b.size; at += step()) {
        char was = b.data[at];
        b.data[at] = b.data[at + 1];
        b.data[at + 1] = was;
        (void)is_taken(&b);
        b.data[at + 1] = b.data[at];
        b.data[at] = was;
    }
    free(b.data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dcp_stream");
    TCase *c = tcase_create("dcp_stream");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, lists_of_torch_are_taken);
    tcase_add_loop_test(c, every_byte_may_be_another, 0, LISTS);
    tcase_add_loop_test(c, every_end_is_noticed, 0, LISTS);
    tcase_add_loop_test(c, bytes_may_be_exchanged, 0, LISTS);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
