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

/* ---- a list that is long enough for two threads, as a pickler of protocol 4 writes it: opcodes in frames of 64 KiB */

enum { ROWS = 120000, FRAME = 64 << 10 };

typedef struct emitter {
    ckpt__buf all, frame;
    uint32_t memo; /* entries */
} emitter;

static void end_frame(emitter *e)
{
    const uint64_t n = e->frame.size;
    ckpt__buf_char(&e->all, (char)0x95);
    ckpt__buf_add(&e->all, &n, sizeof n); /* the tests' machines are little-endian, as the fixtures */
    ckpt__buf_add(&e->all, e->frame.data, e->frame.size);
    e->frame.size = 0;
}

/* One opcode with its argument. */
static void op(emitter *e, const void *raw, size_t n)
{
    ckpt__buf_add(&e->frame, raw, n);
    if (e->frame.size >= FRAME)
        end_frame(e);
}

static void op1(emitter *e, unsigned char code)
{
    op(e, &code, 1);
}

static uint32_t memoize(emitter *e)
{
    op1(e, 0x94);
    return e->memo++;
}

static uint32_t text(emitter *e, const char *t)
{
    char raw[260] = {(char)0x8c, (char)strlen(t)};
    memcpy(raw + 2, t, strlen(t));
    op(e, raw, 2 + strlen(t));
    return memoize(e);
}

static void get(emitter *e, uint32_t number)
{
    unsigned char raw[5] = {'j'};
    memcpy(raw + 1, &number, 4);
    op(e, raw, 5);
}

static void number(emitter *e, int32_t value)
{
    unsigned char raw[5] = {'J'};
    memcpy(raw + 1, &value, 4);
    op(e, raw, 5);
}

static uint32_t class_of(emitter *e, const char *module, const char *name)
{
    text(e, module);
    text(e, name);
    op1(e, 0x93);
    return memoize(e);
}

/* An object of the class on the stack, up to its attributes. */
static void object(emitter *e)
{
    op1(e, ')');
    op1(e, 0x81);
    memoize(e);
    op1(e, '}');
    memoize(e);
    op1(e, '(');
}

static void built(emitter *e)
{
    op1(e, 'u');
    op1(e, 'b');
}

/* torch.Size((value,)), whose class is entry `size`. */
static void size_of(emitter *e, uint32_t size, int32_t value)
{
    get(e, size);
    number(e, value);
    for (int i = 0; i < 2; i++) {
        op1(e, 0x85);
        memoize(e);
    }
    op1(e, 'R');
    memoize(e);
}

/* What is named once and fetched for each chunk. */
typedef struct names {
    uint32_t size, chunk, offsets, sizes, index, fqn, offset, info, path, file, length;
} names;

static void emit_chunks(emitter *e, names *n)
{
    for (int32_t i = 0; i < ROWS; i++) {
        if (i % 1000 == 0)
            op1(e, '(');
        if (i == 0)
            n->chunk = class_of(e, "torch.distributed.checkpoint.metadata", "ChunkStorageMetadata");
        else
            get(e, n->chunk);
        object(e);
        if (i == 0)
            n->offsets = text(e, "offsets");
        else
            get(e, n->offsets);
        size_of(e, n->size, 3 * i);
        if (i == 0)
            n->sizes = text(e, "sizes");
        else
            get(e, n->sizes);
        size_of(e, n->size, 3);
        built(e);
        if (i % 1000 == 999)
            op1(e, 'e');
    }
}

static void emit_records(emitter *e, names *n)
{
    for (int32_t k = 0; k < ROWS; k++) {
        const int32_t i = k % 7 ? k : ROWS / 7 * 7 - k; /* each seventh in another order */
        if (k % 1000 == 0)
            op1(e, '(');
        if (k == 0)
            n->index = class_of(e, "torch.distributed.checkpoint.metadata", "MetadataIndex");
        else
            get(e, n->index);
        object(e);
        if (k == 0)
            n->fqn = text(e, "fqn");
        else
            get(e, n->fqn);
        text(e, "w");
        if (k == 0)
            n->offset = text(e, "offset");
        else
            get(e, n->offset);
        size_of(e, n->size, 3 * i);
        built(e);
        if (k == 0)
            n->info = class_of(e, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
        else
            get(e, n->info);
        object(e);
        if (k == 0) {
            n->path = text(e, "relative_path");
            n->file = text(e, "__0_0.distcp");
        } else {
            get(e, n->path);
            get(e, n->file);
        }
        get(e, n->offset);
        number(e, 1000 * k);
        if (k == 0)
            n->length = text(e, "length");
        else
            get(e, n->length);
        number(e, 999);
        built(e);
        if (k % 1000 == 999)
            op1(e, 'u');
    }
}

static list_bytes emit_list(void)
{
    emitter e = {0};
    names n = {0};
    ckpt__buf_add(&e.all, "\x80\x04", 2);
    class_of(&e, "torch.distributed.checkpoint.metadata", "Metadata");
    object(&e);
    text(&e, "state_dict_metadata");
    op1(&e, '}');
    memoize(&e);
    op1(&e, '(');
    text(&e, "w");
    class_of(&e, "torch.distributed.checkpoint.metadata", "TensorStorageMetadata");
    object(&e);
    text(&e, "properties");
    class_of(&e, "torch.distributed.checkpoint.metadata", "TensorProperties");
    op1(&e, ')');
    op1(&e, 0x81);
    memoize(&e);
    op1(&e, '(');
    class_of(&e, "torch", "float32");
    class_of(&e, "torch.serialization", "_get_layout");
    text(&e, "torch.strided");
    op1(&e, 0x85);
    memoize(&e);
    op1(&e, 'R');
    memoize(&e);
    op1(&e, 0x89);
    op1(&e, 'N');
    op1(&e, 0x89);
    op1(&e, 't');
    memoize(&e);
    op1(&e, 'b');
    text(&e, "size");
    n.size = class_of(&e, "torch", "Size");
    number(&e, 3 * ROWS);
    for (int i = 0; i < 2; i++) {
        op1(&e, 0x85);
        memoize(&e);
    }
    op1(&e, 'R');
    memoize(&e);
    text(&e, "chunks");
    op1(&e, ']');
    memoize(&e);
    emit_chunks(&e, &n);
    built(&e);
    op1(&e, 'u');
    text(&e, "planner_data");
    op1(&e, 'N');
    text(&e, "storage_data");
    op1(&e, '}');
    memoize(&e);
    emit_records(&e, &n);
    built(&e);
    op1(&e, '.');
    end_frame(&e);
    ck_assert(!e.all.failed && !e.frame.failed);
    ckpt__buf_free(&e.frame);
    return (list_bytes){e.all.data, e.all.size};
}

START_TEST(a_list_for_two_threads)
{
    list_bytes b = emit_list();
    ck_assert_uint_gt(b.size, 16 << 20);
    ckpt__dcp quick = open_list(), graph = open_list();
    const ckpt__pickle_input in = {read_bytes, &b, b.size};
    ckpt_error err = CKPT_ERROR_INIT;
    bool taken = false;
    ck_assert_int_eq(ckpt__dcp_stream(&quick, &in, &taken, &err), CKPT_OK);
    ck_assert(taken);
    ck_assert_msg(ckpt__dcp_parse(&graph, b.data, b.size, "a list", &err) == CKPT_OK, "%s", err.message);
    ck_assert(quick.item_count == 1 && quick.chunk_count == ROWS && graph.chunk_count == ROWS);
    same_item(&quick.items[0], &graph.items[0]);
    for (size_t i = 0; i < ROWS; i++) {
        const ckpt__dcp_chunk *x = &quick.chunks[i], *y = &graph.chunks[i];
        ck_assert(x->offset == y->offset && x->length == y->length && x->file == y->file && x->item == y->item);
        ck_assert(x->box[0] == y->box[0] && x->box[1] == y->box[1]);
    }
    /* the frame that the second thread begins with is said to be longer than it is */
    for (size_t at = 2; at < b.size / 2;) {
        uint64_t n;
        memcpy(&n, b.data + at + 1, sizeof n);
        if (at + 9 + n >= b.size / 2) {
            n++;
            memcpy(b.data + at + 1, &n, sizeof n);
            break;
        }
        at += 9 + n;
    }
    close_list(&quick);
    quick = open_list();
    ck_assert_int_eq(ckpt__dcp_stream(&quick, &in, &taken, &err), CKPT_OK);
    ck_assert(!taken);
    close_list(&quick);
    close_list(&graph);
    free(b.data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dcp_stream");
    TCase *c = tcase_create("dcp_stream");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, lists_of_torch_are_taken);
    tcase_add_test(c, a_list_for_two_threads);
    tcase_add_loop_test(c, every_byte_may_be_another, 0, LISTS);
    tcase_add_loop_test(c, every_end_is_noticed, 0, LISTS);
    tcase_add_loop_test(c, bytes_may_be_exchanged, 0, LISTS);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
