/* test_migrate_routes.c - large tensors, however they lie in the source, in blocks of any size and with any number of threads: their
 * elements, what is read for them, and what is said of a damaged byte. */
#include <ckpt/ckpt.h>
#include <unistd.h>

#include "base/strided.h"
#include "codec/crc32.h"
#include "engine/recipe_write.h"
#include "model/nested.h"
#include "given_reader.h"
#include "../counted_reads.h"
#include "../deflated.h"
#include "../scratch.h"

static ckpt_error err;
static ckpt__source *opened;
static ckpt__index *made;

/* ---- the blocks of the writer: the test says how large they are */

static size_t block_size; /* 0: the writer's own */

ckpt_status __real_ckpt__write_recipe(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                                      const ckpt_progress *progress, uint64_t done_before, uint64_t total,
                                      uint32_t *crc, ckpt_error *e);
ckpt_status __wrap_ckpt__write_recipe(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                                      const ckpt_progress *progress, uint64_t done_before, uint64_t total,
                                      uint32_t *crc, ckpt_error *e);
ckpt_status __wrap_ckpt__write_recipe(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                                      const ckpt_progress *progress, uint64_t done_before, uint64_t total,
                                      uint32_t *crc, ckpt_error *e)
{
    ckpt__payload other = *payload;
    other.block = block_size ? block_size : payload->block;
    return __real_ckpt__write_recipe(recipe, &other, sink, progress, done_before, total, crc, e);
}

/* ---- the source */

enum { STORAGES = 7, TENSORS = 8, ROOM = 4 << 20 };

static unsigned char bytes[STORAGES][ROOM];

typedef struct store {
    size_t size;
    bool deflated, crc, record; /* record: what the index knows is a record that has the bytes */
    uint8_t swap;               /* bytes */
} store;

static const store stores[STORAGES] = {
    {.size = 4 * 700001 + 2, .swap = 4},  /* two bytes are behind the last element */
    {.size = 16 * 150001, .crc = true},   /* read from end to end */
    {.size = 8 * 500 * 601, .crc = true}, /* the same, turned */
    {.size = 4 * 500001, .crc = true, .deflated = true},
    {.size = 4 * 600001, .crc = true}, /* of two tensors, side by side */
    {.size = 4 * 200020},              /* its tensor has a CRC */
    {.size = 4 * 600001, .crc = true, .record = true},
};

typedef struct spec {
    const char *name;
    ckpt_dtype dtype;
    uint32_t storage, ndim;
    int64_t shape[2], strides[2], offset;
    ckpt_dtype cast;
} spec;

static const spec specs[TENSORS] = {
    {"swapped", CKPT_F32, 0, 1, {700001}, {1}, 0, CKPT_BF16},
    {"complex", CKPT_C128, 1, 1, {150001}, {1}, 0, CKPT_C64},
    {"turned", CKPT_F64, 2, 2, {500, 601}, {1, 500}, 0, CKPT_F32},
    {"coded", CKPT_F32, 3, 1, {500001}, {1}, 0, CKPT_F16},
    {"half.0", CKPT_F32, 4, 1, {300000}, {1}, 0, CKPT_F64},
    {"half.1", CKPT_F32, 4, 1, {300001}, {1}, 300000, CKPT_I32},
    {"own", CKPT_F32, 5, 1, {200001}, {1}, 5, CKPT_BF16},
    {"record", CKPT_F32, 6, 1, {600001}, {1}, 0, CKPT_BF16},
};

/* The elements one by one, in C order. */
static size_t elements(const spec *s, bool cast, unsigned char *out)
{
    size_t size = ckpt_dtype_size(s->dtype), at = 0;
    ckpt_dtype to = cast ? s->cast : s->dtype;
    for (int64_t i = 0; i < s->shape[0]; i++)
        for (int64_t k = 0; k < (s->ndim > 1 ? s->shape[1] : 1); k++) {
            unsigned char element[16];
            int64_t where = s->offset + i * s->strides[0] + k * s->strides[1];
            memcpy(element, bytes[s->storage] + (size_t)where * size, size);
            if (stores[s->storage].swap)
                ckpt__swap_bytes(element, size, stores[s->storage].swap);
            if (to != s->dtype)
                ckpt__convert(s->dtype, element, to, out + at, 1, NULL);
            else
                memcpy(out + at, element, size);
            at += ckpt_dtype_size(to);
        }
    return at;
}

/* The record is looked into. */
static ckpt__extent in_record;

static ckpt_status look(const ckpt__source *source, const ckpt__extent *e, const char *what, ckpt__nested_place **out,
                        ckpt_error *because)
{
    (void)source;
    (void)e;
    (void)what;
    (void)because;
    ck_assert_ptr_nonnull(*out = calloc(1, sizeof **out));
    (*out)->extent = in_record;
    return CKPT_OK;
}

static void hide_in_record(ckpt__extent *e, const spec *s)
{
    ckpt__nested_kind *kind = ckpt__arena_array(made->arena, 1, sizeof *kind);
    ckpt__records *records = made->records ? made->records : ckpt__index_records(made, STORAGES);
    ck_assert(kind && records);
    records->look = look;
    *kind = (ckpt__nested_kind){.records = records, .shape = s->shape, .ndim = 1, .dtype = CKPT_F32};
    const ckpt__nested *n = ckpt__records_add(kind, e->offset);
    ck_assert_ptr_nonnull(n);
    in_record = *e;
    *e = (ckpt__extent){
        .file = e->file, .coding = CKPT__NESTED, .has_crc = true, .length = e->length, .size = e->size, .nested = n};
}

/* damaged: a byte of this storage is another than its CRC is of, STORAGES: none is. The file is longer than what is used of it. */
static void make_source(uint32_t damaged, size_t place)
{
    static unsigned char coded[ROOM], all[ROOM];
    FILE *f = fopen("source", "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(made = ckpt__index_new(0));
    for (uint32_t i = 0; i < STORAGES; i++) {
        uint64_t r = i + 1;
        for (size_t k = 0; k + 4 <= stores[i].size; k += 4) { /* small numbers of either sign, in any of the dtypes */
            r = r * 6364136223846793005u + 1442695040888963407u;
            uint32_t value = 0x3f800000u | (uint32_t)(r >> 33 & 0x803fffffu);
            memcpy(bytes[i] + k, &value, 4);
        }
        if (stores[i].swap)
            ckpt__swap_bytes(bytes[i], stores[i].size - stores[i].size % 4, 4);
        ckpt__storage *s = ckpt__index_add_storage(made);
        ckpt__extent *e = &s->extent;
        e->size = stores[i].size;
        e->has_crc = stores[i].crc;
        e->crc = ckpt__crc32(0, bytes[i], stores[i].size);
        e->big_endian = stores[i].swap > 1;
        s->unit = stores[i].swap ? stores[i].swap : 1;
        if (i == damaged)
            bytes[i][place] ^= 1;
        e->offset = (uint64_t)ftell(f);
        e->coding = stores[i].deflated ? CKPT__DEFLATE : CKPT__STORED;
        e->length = e->coding == CKPT__STORED ? e->size : deflated(bytes[i], stores[i].size, coded, sizeof coded);
        ck_assert_uint_eq(fwrite(e->coding == CKPT__STORED ? bytes[i] : coded, 1, e->length, f), e->length);
        if (stores[i].record)
            hide_in_record(e, &specs[TENSORS - 1]);
    }
    ck_assert_int_eq(fclose(f), 0);
    for (size_t i = 0; i < TENSORS; i++) {
        const spec *s = &specs[i];
        ckpt__tensor *t = ckpt__index_add_tensor(made);
        t->info.name = ckpt__s(s->name);
        t->info.dtype = s->dtype;
        t->info.ndim = s->ndim;
        ck_assert_int_eq(ckpt__index_set_view(made, i, s->storage, s->shape, s->strides, s->offset, &err), CKPT_OK);
    }
    bytes[5][damaged == 5 ? place : 0] ^= damaged == 5;
    made->tensors[6].has_crc = true;
    made->tensors[6].crc = ckpt__crc32(0, all, elements(&specs[6], false, all));
    bytes[5][damaged == 5 ? place : 0] ^= damaged == 5;
    made->format = "safetensors";
    made->kind = "file";
    made->step = -1;
    ck_assert_int_eq(ckpt__index_finish(made, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_open("source", &opened, &err), CKPT_OK);
}

static ckpt_status migrate(const char *to, bool cast, uint32_t threads)
{
    char rules[TENSORS][40];
    const char *casts[TENSORS];
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(rules[i], sizeof rules[i], "%s=%s", specs[i].name, ckpt_dtype_name(specs[i].cast));
        casts[i] = rules[i];
    }
    o.to = to;
    o.lossy = o.force = o.no_sync = true;
    o.threads = threads;
    o.cast = casts;
    o.cast_count = cast ? TENSORS : 0;
    give_reader(opened, made);
    read_bytes = 0;
    return ckpt_migrate("source", "out", &o, NULL, &err);
}

static void compare(bool cast)
{
    static unsigned char want[2 * ROOM], have[2 * ROOM];
    ckpt_reader *r;
    ck_assert_msg(ckpt_reader_open("out", NULL, &r, &err) == CKPT_OK, "%s", err.message);
    for (size_t i = 0; i < TENSORS; i++) {
        size_t at, n = elements(&specs[i], cast, want);
        ck_assert_int_eq(ckpt_reader_find(r, specs[i].name, strlen(specs[i].name), &at, &err), CKPT_OK);
        ck_assert_msg(ckpt_reader_read(r, at, have, n, &err) == CKPT_OK, "%s: %s", err.object, err.message);
        ck_assert_msg(memcmp(have, want, n) == 0, "%s differs", specs[i].name);
    }
    ckpt_reader_close(r);
}

static const char *const targets[] = {"torch", "ckpt"};

START_TEST(any_block)
{
    static const size_t blocks[] = {0, 100003, 700001};
    for (int k = 0; k < 12; k++) {
        bool cast = k % 2;
        block_size = blocks[k / 2 % 3];
        for (uint32_t threads = 1; threads <= 5; threads += 2) {
            make_source(STORAGES, 0);
            ck_assert_msg(migrate(targets[k / 6], cast, threads) == CKPT_OK, "%s: %s", err.object, err.message);
            compare(cast);
        }
    }
    block_size = 0;
}
END_TEST

/* Each stored byte once, also of what has a CRC: it is taken on the way. */
START_TEST(read_once)
{
    for (int k = 0; k < 4; k++) {
        make_source(STORAGES, 0);
        uint64_t stored = 0;
        for (size_t i = 0; i < STORAGES; i++)
            stored += made->storages[i].extent.length;
        ck_assert_int_eq(migrate(targets[k / 2], k % 2, 1), CKPT_OK);
        stored += k % 2 ? stores[5].size : 0; /* a CRC of elements that are converted is compared before */
        ck_assert_msg(read_bytes <= stored + 1000, "%llu bytes of %llu", (unsigned long long)read_bytes,
                      (unsigned long long)stored);
    }
}
END_TEST

/* Of several threads, each reads parts of what lies in a record. One more than the test's own is waited for. */
START_TEST(a_record_has_parts)
{
    static unsigned char want[ROOM], have[ROOM];
    const char *others[TENSORS - 1];
    for (size_t i = 0; i + 1 < TENSORS; i++)
        others[i] = specs[i].name;
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
        ckpt_reader *r;
        make_source(STORAGES, 0);
        o.to = "ckpt";
        o.force = o.no_sync = true;
        o.threads = threads;
        o.drop = others;
        o.drop_count = TENSORS - 1;
        give_reader(opened, made);
        read_threads = 0;
        read_round++;
        read_threads_of = threads > 1 ? 2 : 0;
        ck_assert_msg(ckpt_migrate("source", "out", &o, NULL, &err) == CKPT_OK, "%s: %s", err.object, err.message);
        read_threads_of = 0;
        ck_assert_msg(threads == 1 ? read_threads == 1 : read_threads > 1, "%u of %u threads read", read_threads,
                      threads);
        size_t n = elements(&specs[TENSORS - 1], false, want);
        ck_assert(ckpt_reader_open("out", NULL, &r, &err) == CKPT_OK && ckpt_reader_tensor_count(r) == 1);
        ck_assert(ckpt_reader_read(r, 0, have, n, &err) == CKPT_OK && memcmp(have, want, n) == 0);
        ckpt_reader_close(r);
    }
}
END_TEST

/* One byte of a storage is wrong: nothing is written, and the same is said, however it is read. */
START_TEST(one_wrong_byte)
{
    static const size_t places[] = {0, 300001, 1999999}; /* the second lies in the first half, the third in the other */
    char said[1200], one[1200];
    for (uint32_t storage = 1; storage < STORAGES; storage++)
        for (size_t k = 0; k < 6; k++) {
            size_t place = storage == 5 ? 24 + places[k % 3] % 800000 : places[k % 3];
            bool cast = k / 3;
            const char *to =
                targets[storage == 5 || k % 2]; /* torch keeps storages whole: no tensor of it is looked at */
            one[0] = 0;
            for (uint32_t threads = 1; threads <= 8; threads += 3) {
                make_source(storage, place);
                ck_assert_msg(migrate(to, cast, threads) == CKPT_E_DAMAGED, "storage %u to %s%s: %s", storage,
                              targets[k % 2], cast ? ", cast" : "", err.message);
                ck_assert_int_ne(access("out", F_OK), 0);
                snprintf(said, sizeof said, "%s: %s", err.object, err.message);
                if (threads == 1)
                    memcpy(one, said, sizeof one);
                ck_assert_msg(strcmp(one, said) == 0, "%u threads: %s; one: %s", threads, said, one);
            }
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_routes");
    TCase *t = tcase_create("migrate_routes");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 300);
    tcase_add_test(t, any_block);
    tcase_add_test(t, read_once);
    tcase_add_test(t, a_record_has_parts);
    tcase_add_test(t, one_wrong_byte);
    suite_add_tcase(s, t);
    return run_suite(s);
}
