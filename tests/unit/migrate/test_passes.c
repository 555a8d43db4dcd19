/* test_passes.c - the passes over compressed storages that a dry run tells, against those of the real run: each beginning of a
 * deflated or a zstd stream is counted where the decoder is made. */
#include <ckpt/ckpt.h>
#include <unistd.h>

#include "codec/zstd.h"
#include "case_source.h"

static ckpt__index *case_index; /* of the case's reader */
static uint64_t streams;        /* begun so far */

int __real_inflateInit2_(z_streamp z, int bits, const char *version, int size);
int __wrap_inflateInit2_(z_streamp z, int bits, const char *version, int size);
ckpt_status __real_ckpt__zstd_new(const char *what, ckpt__zstd **out, ckpt_error *e);
ckpt_status __wrap_ckpt__zstd_new(const char *what, ckpt__zstd **out, ckpt_error *e);

int __wrap_inflateInit2_(z_streamp z, int bits, const char *version, int size)
{
    streams++;
    return __real_inflateInit2_(z, bits, version, size);
}

ckpt_status __wrap_ckpt__zstd_new(const char *what, ckpt__zstd **out, ckpt_error *e)
{
    streams++;
    return __real_ckpt__zstd_new(what, out, e);
}

/* ---- one migration, told and run */

static uint64_t told_by_rows; /* the largest number of passes that a row says */

static ckpt_status take_row(void *ctx, const ckpt_migrate_source *row, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    told_by_rows = row->passes > told_by_rows ? row->passes : told_by_rows;
    return CKPT_OK;
}

/* Dry and real; what is begun to find the tensors is begun by both. */
static uint64_t compare_passes(void (*again)(void *), void *ctx, const char *src, ckpt_migrate_options *o,
                               const char *what)
{
    ckpt_migrate_totals totals[2] = {CKPT_MIGRATE_TOTALS_INIT, CKPT_MIGRATE_TOTALS_INIT};
    uint64_t begun[2];
    o->plan.fn = take_row;
    told_by_rows = 0;
    for (int dry = 0; dry < 2; dry++) {
        if (again)
            again(ctx);
        give_reader(opened, again ? case_index : NULL);
        o->dry_run = dry;
        o->totals = &totals[dry];
        streams = 0;
        ck_assert_msg(ckpt_migrate(src, "../out", o, NULL, &err) == CKPT_OK, "%s: %s: %s", what, err.object,
                      err.message);
        begun[dry] = streams;
        ck_assert(dry || system("rm -rf ../out") == 0);
    }
    ck_assert_msg(totals[1].coded_passes == begun[0] - begun[1], "%s: %llu passes were told, and %llu were made", what,
                  (unsigned long long)totals[1].coded_passes, (unsigned long long)(begun[0] - begun[1]));
    ck_assert_uint_eq(totals[0].coded_passes, totals[1].coded_passes);
    ck_assert_uint_le(told_by_rows, totals[1].coded_passes);
    ck_assert(totals[1].coded_passes == 0 || told_by_rows > 0);
    return totals[1].coded_passes;
}

/* ---- random pieces, some of them in deflated storages */

static void make_random(void *ctx)
{
    draw_source(*(const uint64_t *)ctx);
    write_source(false);
    case_index = source->index;
}

START_TEST(random_pieces)
{
    uint64_t sum = 0, cases = getenv("CKPT_TEST_FEW") ? 20 : 400;
    begin();
    for (uint64_t seed = 50000; seed < 50000 + cases; seed++) {
        char what[60];
        uint64_t number = seed;
        make_random(&number); /* which draws the dtypes */
        ckpt__index_free(case_index);
        ckpt__source_close(opened);
        ckpt_migrate_options o = case_options(formats[seed % 4], seed % 8 > 3);
        snprintf(what, sizeof what, "seed %llu to %s", (unsigned long long)seed, o.to);
        sum += compare_passes(make_random, &number, ".", &o, what);
    }
    printf("# %llu passes\n", (unsigned long long)sum);
    ck_assert_uint_gt(sum, cases / 2);
    end();
}
END_TEST

/* ---- storages of several megabytes, in windows that are smaller */

enum { ROWS = 1024, COLUMNS = 1536, KINDS = 9, COUNT = 2 };

typedef struct large {
    unsigned kinds; /* a bit for each tensor that is there */
    bool big_endian, crc;
} large;

static void add_large(ckpt__index *x, unsigned kind)
{
    static const char *const names[KINDS] = {"all",  "turned", "rows",  "columns", "split",
                                             "grid", "other",  "small", "part"};
    static const int64_t all[] = {ROWS, COLUMNS}, turned[] = {COLUMNS, ROWS}, turn[] = {1, COLUMNS},
                         rows[] = {700, COLUMNS}, columns[] = {ROWS, 900}, pitch[] = {COLUMNS, 1}, small[] = {16, 100},
                         split[] = {2 * ROWS, COLUMNS}, part[] = {900, 700};
    static const int64_t upper[] = {0, 0, ROWS, COLUMNS}, lower[] = {ROWS, 0, ROWS, COLUMNS},
                         left[] = {0, 0, ROWS, 800, COLUMNS, 1}, right[] = {0, 800, ROWS, 736, COLUMNS, 1};
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    size_t i = x->tensor_count - 1;
    ckpt_status status = CKPT_OK;
    t->info.name = ckpt__s(names[kind]);
    t->info.dtype = CKPT_F32;
    t->info.ndim = 2;
    const ckpt__piece two[] = {{.box = upper, .storage = 0}, {.box = lower, .storage = 1}},
                      grid[] = {{.box = left, .storage = 1, .flags = CKPT__PIECE_STRIDED},
                                {.box = right, .storage = 0, .at = 3200, .flags = CKPT__PIECE_STRIDED}};
    switch (kind) {
    case 0:
        status = ckpt__index_set_view(x, i, 0, all, NULL, 0, &err);
        break;
    case 1:
        status = ckpt__index_set_view(x, i, 0, turned, turn, 0, &err);
        break;
    case 2:
        status = ckpt__index_set_view(x, i, 0, rows, NULL, 100 * COLUMNS, &err);
        break;
    case 3:
        status = ckpt__index_set_view(x, i, 1, columns, pitch, 55, &err);
        break;
    case 4:
        status = ckpt__index_set_pieces(x, i, split, two, 2, &err);
        break;
    case 5:
        status = ckpt__index_set_pieces(x, i, all, grid, 2, &err);
        break;
    case 6:
        status = ckpt__index_set_view(x, i, 1, all, NULL, 0, &err);
        break;
    case 7:
        status = ckpt__index_set_view(x, i, 1, small, pitch, 9000, &err);
        break;
    default:
        status = ckpt__index_set_view(x, i, 0, part, turn, 3 * COLUMNS, &err);
        break;
    }
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
}

static void make_large(void *ctx)
{
    const large *l = ctx;
    static unsigned char bytes[ROWS * COLUMNS * 4], coded[ROWS * COLUMNS * 4 + 4096];
    FILE *f = fopen("large", "wb");
    ckpt__index *x = case_index = ckpt__index_new(0);
    ck_assert(f && x);
    for (uint32_t i = 0; i < COUNT; i++) {
        ckpt__storage *s = ckpt__index_add_storage(x);
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)((k / 4 * (i + 3)) >> (k % 4 * 3) & 0x3f);
        s->extent = (ckpt__extent){.offset = (uint64_t)ftell(f),
                                   .size = sizeof bytes,
                                   .coding = CKPT__DEFLATE,
                                   .big_endian = l->big_endian,
                                   .has_crc = l->crc,
                                   .crc = ckpt__crc32(0, bytes, sizeof bytes)};
        s->unit = 4;
        s->extent.length = deflated(bytes, sizeof bytes, coded, sizeof coded);
        ck_assert_uint_eq(fwrite(coded, 1, s->extent.length, f), s->extent.length);
    }
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(ckpt__source_open("large", &opened, &err), CKPT_OK);
    for (unsigned i = 0; i < KINDS; i++)
        if (l->kinds >> i & 1)
            add_large(x, i);
    x->format = "safetensors";
    x->kind = "file";
    x->step = -1;
    ck_assert(ckpt__index_finish(x, &err) == CKPT_OK);
}

START_TEST(windows)
{
    static const uint64_t memories[] = {33 << 20, 36 << 20, 44 << 20, 0};
    uint64_t sum = 0, most = 0, cases = getenv("CKPT_TEST_FEW") ? 4 : 40;
    begin();
    random_state = 4711;
    for (uint64_t i = 0; i < cases; i++) {
        char what[120];
        large l = {
            .kinds = i < KINDS ? 1u << i : (unsigned)draw(1u << KINDS), .big_endian = chance(25), .crc = chance(60)};
        const char *cast = "*=bfloat16";
        ckpt_migrate_options o = case_options(formats[i % 4], false);
        if (l.kinds == 0)
            continue;
        o.memory = memories[i % 9 == 0 ? 3 : draw(4)];
        o.cast = &cast;
        o.cast_count = i % 3 == 0;
        snprintf(what, sizeof what, "case %llu: tensors %x to %s, %llu MiB%s%s%s", (unsigned long long)i, l.kinds, o.to,
                 (unsigned long long)o.memory >> 20, o.cast_count ? ", cast" : "", l.big_endian ? ", big-endian" : "",
                 l.crc ? ", with CRCs" : "");
        uint64_t passes = compare_passes(make_large, &l, ".", &o, what);
        sum += passes;
        most = passes > most ? passes : most;
    }
    printf("# %llu passes, at most %llu\n", (unsigned long long)sum, (unsigned long long)most);
    ck_assert_uint_ge(sum, cases);
    end();
}
END_TEST

/* ---- a distributed checkpoint whose tensors are a frame each */

START_TEST(frames)
{
    char path[1200];
    begin();
    snprintf(path, sizeof path, "%s/tests/data/dcp/zstd", getenv("srcdir"));
    for (size_t i = 0; i < 4; i++) {
        const char *cast = "*.weight=float64";
        ckpt_migrate_options o = case_options(formats[i], false);
        o.cast = &cast;
        o.cast_count = i % 2;
        ck_assert_uint_gt(compare_passes(NULL, NULL, path, &o, formats[i]), 0);
    }
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("passes");
    TCase *t = tcase_create("passes");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, random_pieces);
    tcase_add_test(t, windows);
    if (ckpt__zstd_is_there())
        tcase_add_test(t, frames);
    suite_add_tcase(s, t);
    return run_suite(s);
}
