/* test_plan_rows.c - the rows of a dry run against what the real run writes: each row is applied by hand, with reads of the files and
 * nothing else, and each element of each target must be named once. Random pieces in files, deflated and in memory; and real files. */
#include <ckpt/ckpt.h>
#include <unistd.h>

#include "case_source.h"
#include "short_memory.h"

enum { CASES = 200, MOST = ROOM * 8 };

/* ---- applying rows */

/* What the rows make of one tensor of the target. */
typedef struct result {
    char name[100];
    ckpt_dtype dtype;
    uint64_t numel;
    unsigned char *bytes, *named; /* elements in C order; how often each was named */
    bool shared;
} result;

enum { RESULTS = 64 };
static result results[RESULTS];
static size_t result_count, replicas, boxes, storages;
static const char *from;    /* SRC */
static ckpt_report *report; /* of the dry run */
static ckpt_migrate_totals *totals;
static const ckpt_reader *pieces; /* of the same source; NULL: rows are not compared with the pieces it tells of */
static bool reads_nothing;        /* the bytes are not looked at */

static result *result_of(const ckpt_migrate_source *row)
{
    for (size_t i = 0; i < result_count; i++)
        if (strncmp(results[i].name, row->name.data, sizeof results[i].name - 1) == 0)
            return &results[i];
    ck_assert_uint_lt(result_count, RESULTS);
    result *r = &results[result_count++];
    memset(r, 0, sizeof *r);
    snprintf(r->name, sizeof r->name, "%s", row->name.data);
    r->dtype = row->dtype;
    r->numel = 1;
    for (uint32_t i = 0; i < row->ndim; i++)
        r->numel *= (uint64_t)row->shape[i];
    r->bytes = calloc(r->numel + 1, 16);
    r->named = calloc(r->numel + 1, 1);
    return r;
}

static void forget_results(void)
{
    for (size_t i = 0; i < result_count; i++) {
        free(results[i].bytes);
        free(results[i].named);
    }
    result_count = replicas = boxes = storages = 0;
}

/* Bytes [begin, begin + n) of a file of the source. */
static void read_file(ckpt_str name, uint64_t begin, void *to, size_t n)
{
    char path[1400];
    snprintf(path, sizeof path, "%s%s%s", from, name.data ? "/" : "", name.data ? name.data : "");
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s is not there", path);
    ck_assert_int_eq(fseek(f, (long)begin, SEEK_SET), 0);
    ck_assert_msg(fread(to, 1, n, f) == n, "%s ends before byte %llu", path, (unsigned long long)(begin + n));
    ck_assert_int_eq(fclose(f), 0);
}

/* The bytes that the row is made of, from its first to past its last. */
static unsigned char *bytes_of_row(const ckpt_migrate_source *row)
{
    size_t n = (size_t)(row->from_end - row->from_begin);
    unsigned char *out = malloc(n + 1);
    ck_assert_uint_ge(row->from_end, row->from_begin);
    if (row->place == CKPT_MIGRATE_IN_FILE)
        read_file(row->from_file, row->from_begin, out, n);
    else if (row->place == CKPT_MIGRATE_IN_MEMORY) {
        ck_assert(opened && !row->from_file.data);
        const ckpt__storage *s = &source->index->storages[row->from_storage.data[0] - '0'];
        memcpy(out, (const unsigned char *)s->extent.memory + row->from_begin, n);
    } else {
        size_t coded = (size_t)(row->record_end - row->record_begin);
        unsigned char *in = malloc(coded + 1), *all = malloc((size_t)row->from_end + 1);
        z_stream z;
        memset(&z, 0, sizeof z);
        read_file(row->from_file, row->record_begin, in, coded);
        ck_assert_int_eq(inflateInit2(&z, -15), Z_OK);
        z.next_in = in;
        z.avail_in = (uInt)coded;
        z.next_out = all;
        z.avail_out = (uInt)row->from_end;
        while (z.avail_out && inflate(&z, Z_NO_FLUSH) == Z_OK)
            ;
        ck_assert_uint_eq(z.avail_out, 0);
        inflateEnd(&z);
        memcpy(out, all + row->from_begin, n);
        free(in);
        free(all);
    }
    return out;
}

/* One element: as it is in the source to how it is in the target. */
static void take_element(result *r, const ckpt_migrate_source *row, const unsigned char *element, uint64_t number)
{
    unsigned char turned[16];
    size_t size = ckpt_dtype_size(row->from_dtype), to = ckpt_dtype_size(row->dtype);
    ck_assert_uint_lt(number, r->numel);
    for (size_t k = 0; k < size; k++)
        turned[k] = element[row->change & CKPT_MIGRATE_SWAPPED ? size - 1 - k : k];
    if (row->change & CKPT_MIGRATE_CONVERTED)
        ckpt__convert(row->from_dtype, turned, row->dtype, r->bytes + number * to, 1, NULL);
    else
        memcpy(r->bytes + number * to, turned, size);
    r->named[number]++;
}

static void apply(const ckpt_migrate_source *row)
{
    result *r = result_of(row);
    size_t size = ckpt_dtype_size(row->from_dtype);
    uint64_t count = 0;
    int64_t index[64] = {0};
    unsigned char *bytes = bytes_of_row(row);
    r->shared |= row->what == CKPT_MIGRATE_SHARED;
    if (row->flat) {
        for (; count < row->flat_count; count++)
            take_element(r, row, bytes + count * size, row->flat_begin + count);
    } else
        do {
            uint64_t number = 0, at = 0;
            for (uint32_t i = 0; i < row->ndim; i++) {
                number = number * (uint64_t)row->shape[i] + (uint64_t)(row->lo[i] + index[i]);
                at += (uint64_t)(index[i] * row->strides[i]);
            }
            ck_assert_uint_le((at + 1) * size, row->from_end - row->from_begin);
            take_element(r, row, bytes + at * size, number);
            count++;
        } while (next_index(index, row->ndim, row->size));
    ck_assert_uint_eq(row->nbytes, count * ckpt_dtype_size(row->dtype));
    free(bytes);
}

/* The row's box lies in a piece that the reader tells of, at the place that the reader says. */
static void compare_piece(const ckpt_migrate_source *row)
{
    size_t tensor = (size_t)(row->from_name.data[1] - '0'), size = ckpt_dtype_size(row->from_dtype);
    bool found = false;
    for (size_t k = 0; k < ckpt_reader_piece_count(pieces, tensor); k++) {
        ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
        uint64_t at = 0;
        bool has = true;
        int64_t c_order = 1;
        ck_assert_int_eq(ckpt_reader_piece(pieces, tensor, k, &p, &err), CKPT_OK);
        if (p.flat || row->flat)
            return;
        for (uint32_t i = row->ndim; i-- > 0;) {
            has &= row->lo[i] >= p.lo[i] && row->lo[i] + row->size[i] <= p.lo[i] + p.size[i];
            at += (uint64_t)((row->lo[i] - p.lo[i]) * (p.strides ? p.strides[i] : c_order)) * size;
            c_order *= p.size[i];
        }
        if (!has)
            continue;
        found |= row->place == CKPT_MIGRATE_IN_FILE ? (uint64_t)p.file_offset + at == row->from_begin
                                                    : p.file_offset == -1 && p.offset + at == row->from_begin;
        if (row->piece_lo)
            ck_assert(memcmp(row->piece_lo, p.lo, row->ndim * sizeof *p.lo) == 0 &&
                      memcmp(row->piece_size, p.size, row->ndim * sizeof *p.size) == 0);
    }
    ck_assert_msg(found, "a row of %s lies in no piece", row->from_name.data);
}

static ckpt_status take_row(void *ctx, const ckpt_migrate_source *row, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    if (reads_nothing) { /* nor is Check called, which allocates */
        replicas += row->what == CKPT_MIGRATE_REPLICA;
        boxes += row->what == CKPT_MIGRATE_BOX;
        return CKPT_OK;
    }
    ck_assert_uint_eq(row->struct_size, sizeof *row);
    if (totals)
        ck_assert_uint_gt(totals->bytes_out, 0); /* is told before */
    if (row->finding != SIZE_MAX && report) {
        const ckpt_finding *f = ckpt_report_get(report, row->finding);
        ck_assert_ptr_nonnull(f);
        ck_assert(strcmp(f->code, "copy") == 0 || strcmp(f->code, "moved") == 0);
        ck_assert_str_eq(f->tensor, row->name.data);
    }
    replicas += row->what == CKPT_MIGRATE_REPLICA;
    boxes += row->what == CKPT_MIGRATE_BOX;
    storages += row->what == CKPT_MIGRATE_STORAGE;
    if (row->what == CKPT_MIGRATE_BOX && pieces)
        compare_piece(row);
    if (row->what == CKPT_MIGRATE_BOX || row->what == CKPT_MIGRATE_SHARED)
        apply(row);
    return CKPT_OK;
}

/* The rows say what the file has, and each of its tensors with bytes was named. */
static void compare(const char *path, const char *what)
{
    static unsigned char have[MOST];
    ckpt_reader *r;
    size_t with_bytes = 0;
    ck_assert_msg(ckpt_reader_open(path, NULL, &r, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++)
        with_bytes += ckpt_reader_tensor(r, i)->nbytes > 0 && ckpt_reader_tensor(r, i)->extra->layout.data == NULL;
    ck_assert_msg(with_bytes == result_count, "%s: %zu tensors have bytes, and %zu were named", what, with_bytes,
                  result_count);
    for (size_t i = 0; i < result_count; i++) {
        const result *m = &results[i];
        size_t at, n = (size_t)m->numel * ckpt_dtype_size(m->dtype);
        ck_assert_msg(ckpt_reader_find(r, m->name, strlen(m->name), &at, &err) == CKPT_OK, "%s: no %s", what, m->name);
        for (uint64_t k = 0; k < m->numel; k++)
            ck_assert_msg(m->named[k] == 1, "%s: element %llu of %s was named %u times", what, (unsigned long long)k,
                          m->name, m->named[k]);
        ck_assert(ckpt_reader_tensor(r, at)->dtype == m->dtype && n <= MOST);
        ck_assert_msg(ckpt_reader_read(r, at, have, n, &err) == CKPT_OK, "%s", err.message);
        ck_assert_msg(memcmp(have, m->bytes, n) == 0, "%s: %s differs from what its rows say", what, m->name);
    }
    ckpt_reader_close(r);
}

/* ---- random pieces */

static void make_source(uint64_t seed, bool drops)
{
    static char names[STORAGES][2];
    draw_source(seed);
    for (size_t i = 0; drops && i < tensor_count; i++)
        if (tensors[i].from.count > 1)
            tensors[i].from.count--;
    for (int i = 0; i < STORAGES; i++) {
        names[i][0] = (char)('0' + i);
        source->index->storages[i].name = ckpt__s(names[i]);
    }
    write_source(false);
}

static ckpt_status migrate(const char *to, const char *dst, bool cast, bool dry)
{
    ckpt_migrate_totals sums = CKPT_MIGRATE_TOTALS_INIT;
    ckpt_migrate_options o = case_options(to, cast);
    o.dry_run = dry;
    o.plan.fn = take_row;
    o.totals = &sums;
    o.max_shard_size = strcmp(to, "hf") == 0 ? 9000 : 0;
    give_reader(opened, source->index);
    return ckpt_migrate(".", dst, &o, report, &err);
}

static uint64_t cases;

static void begin_rows(void)
{
    cases = getenv("CKPT_TEST_FEW") ? 10 : CASES;
    begin();
    from = ".";
}

START_TEST(random_pieces)
{
    size_t split = 0, all = 0;
    begin_rows();
    report = ckpt_report_new();
    for (uint64_t i = 0; i < 4 * cases; i++) {
        bool cast = i % 8 > 3;
        char dst[40], what[80];
        snprintf(dst, sizeof dst, "../%s", formats[i % 4]);
        snprintf(what, sizeof what, "seed %llu to %s", (unsigned long long)i, formats[i % 4]);
        make_source(60000 + i, false);
        give_reader(opened, source->index);
        ckpt_reader *reader;
        ck_assert_int_eq(ckpt_reader_open(".", NULL, &reader, &err), CKPT_OK);
        make_source(60000 + i, false); /* another one, for a migration closes its own */
        pieces = reader;
        ck_assert_msg(migrate(formats[i % 4], dst, cast, true) == CKPT_OK, "%s: %s: %s", what, err.object, err.message);
        pieces = NULL;
        ckpt_reader_close(reader);
        ck_assert_int_ne(access(dst, F_OK), 0);
        split += boxes > result_count;
        all += result_count;
        make_source(60000 + i, false);
        ck_assert_msg(migrate(formats[i % 4], dst, cast, false) == CKPT_OK, "%s: %s", what, err.message);
        compare(dst, what);
        forget_results();
        ck_assert(system("rm -rf ../safetensors ../torch ../ckpt ../hf") == 0);
    }
    ck_assert_uint_gt(split, cases);
    ck_assert_uint_gt(all, 2 * cases);
    ckpt_report_free(report);
    report = NULL;
    end();
}
END_TEST

/* A dry run refuses what the run does: a piece is missing; too little memory. */
START_TEST(refused_alike)
{
    size_t refused = 0;
    begin_rows();
    reads_nothing = true;
    for (uint64_t i = 0; i < cases; i++) {
        ckpt_status both[2];
        for (int dry = 0; dry < 2; dry++) {
            make_source(61000 + i, true);
            both[dry] = migrate(formats[i % 3], "../out", false, dry);
        }
        ck_assert_int_eq(both[0], both[1]);
        refused += both[0] == CKPT_E_MISMATCH;
    }
    ck_assert_uint_gt(refused, cases / 8);
    for (int dry = 0; dry < 2; dry++) {
        ckpt_migrate_options o =
            (ckpt_migrate_options){.to = "safetensors", .dry_run = dry, .force = true, .memory = 1 << 20};
        make_source(61000, false);
        give_reader(opened, source->index);
        ck_assert_int_eq(ckpt_migrate(".", "../out", &o, NULL, &err), CKPT_E_ARGUMENT);
        ck_assert_msg(strstr(err.message, "at least 33MiB"), "%s", err.message);
    }
    end();
}
END_TEST

START_TEST(no_memory)
{
    begin_rows();
    reads_nothing = true;
    for (size_t k = 0; k < 4; k++) {
        ckpt_status status = CKPT_E_NO_MEMORY;
        long n = 0;
        for (; status != CKPT_OK; n++) {
            ck_assert_int_lt(n, 20000);
            make_source(70002 + 4 * k, false);
            fail_after(n);
            status = migrate(formats[k], "../out", k == 1, true);
            fail_no_more();
            ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "allocation %ld to %s: %d: %s: %s", n,
                          formats[k], (int)status, err.object, err.message);
        }
        ck_assert_int_gt(n, 20);
    }
    end();
}
END_TEST

/* ---- many pieces */

enum { SIDE = 300 };
static size_t at_first_row, at_last_row;

static ckpt_status count_row(void *ctx, const ckpt_migrate_source *row, ckpt_error *e)
{
    (void)row;
    (void)e;
    if ((*(size_t *)ctx)++ == 0)
        at_first_row = allocations;
    at_last_row = allocations;
    return CKPT_OK;
}

/* A tensor in ninety thousand pieces: from the first row to the last nothing is allocated. */
START_TEST(nothing_is_kept)
{
    static ckpt__piece grid[SIDE * SIDE];
    static int64_t corners[SIDE * SIDE][4];
    static const int64_t shape[] = {SIDE, SIDE};
    size_t rows = 0;
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    begin_rows();
    ck_assert_int_eq(ckpt__source_open(".", &opened, &err), CKPT_OK);
    ck_assert_ptr_nonnull(source->index = ckpt__index_new(0));
    ckpt__index *x = source->index;
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = s->extent.length = SIDE * SIDE;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s("w");
    t->info.dtype = CKPT_U8;
    t->info.ndim = 2;
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        memcpy(corners[i], (const int64_t[]){i / SIDE, i % SIDE, 1, 1}, sizeof corners[i]);
        grid[i] = (ckpt__piece){.box = corners[i], .at = (uint64_t)(i * 7919 % (SIDE * SIDE))};
    }
    ck_assert_int_eq(ckpt__index_set_pieces(x, 0, shape, grid, SIDE * SIDE, &err), CKPT_OK);
    x->format = "safetensors";
    x->kind = "file";
    x->step = -1;
    ck_assert(ckpt__index_finish(x, &err) == CKPT_OK);
    o.to = "safetensors";
    o.dry_run = true;
    o.plan = (ckpt_migrate_plan){count_row, &rows};
    give_reader(opened, source->index);
    ck_assert_msg(ckpt_migrate(".", "../out", &o, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(rows, SIDE * SIDE);
    ck_assert_uint_eq(at_first_row, at_last_row);
    end();
}
END_TEST

/* ---- real files */

static const char *fixture(const char *name)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s/tests/data/%s", getenv("srcdir"), name);
    return path;
}

static void plan_of(const char *name, const char *to, const char *dst, bool dry)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    ckpt_migrate_totals sums = CKPT_MIGRATE_TOTALS_INIT;
    from = fixture(name);
    o.to = to;
    o.lossy = o.no_sync = o.force = true;
    o.dry_run = dry;
    o.plan.fn = take_row;
    o.totals = totals = &sums;
    o.map_location = "cpu";
    report = ckpt_report_new();
    ckpt_status status = ckpt_migrate(from, dst, &o, report, &err);
    ckpt_report_free(report);
    report = NULL;
    totals = NULL;
    ck_assert_msg(status == CKPT_OK, "%s to %s: %s: %s", name, to, err.object, err.message);
}

START_TEST(real_files)
{
    static const char *const names[] = {"cli/views.pt",         "cli/shared.pt",           "cli/plain.pt",
                                        "cli/three-devices.pt", "cli/weights.safetensors", "cli/fused-step-cpu.pt"};
    size_t whole = 0, shared = 0;
    make_scratch();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < 4; k++) {
            char what[100];
            snprintf(what, sizeof what, "%s to %s", names[i], formats[k]);
            plan_of(names[i], formats[k], "out", true);
            ck_assert_int_ne(access("out", F_OK), 0);
            whole += storages;
            for (size_t r = 0; r < result_count; r++)
                shared += results[r].shared;
            plan_of(names[i], formats[k], "out", false);
            compare("out", what);
            forget_results();
            ck_assert(system("rm -rf out") == 0);
        }
    ck_assert_uint_gt(whole, 1);
    ck_assert_uint_gt(shared, 4);
    remove_scratch();
}
END_TEST

/* Pieces of two ranks, some of them replicas; compressed records, whose rows say how often each is decoded. */
START_TEST(ranks)
{
    make_scratch();
    reads_nothing = true;
    plan_of("dcp/ranks", "safetensors", "out", true);
    ck_assert_uint_eq(replicas, 3);
    ck_assert_uint_eq(boxes, 9);
    forget_results();
    remove_scratch();
}
END_TEST

static ckpt_status refuse_row(void *ctx, const ckpt_migrate_source *row, ckpt_error *e)
{
    (void)row;
    (void)e;
    return ++*(int *)ctx == 3 ? CKPT_E_CANCELLED : CKPT_OK;
}

START_TEST(the_callers_answer)
{
    int calls = 0;
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    make_scratch();
    o.to = "safetensors";
    o.lossy = o.dry_run = true;
    o.plan = (ckpt_migrate_plan){refuse_row, &calls};
    err = (ckpt_error)CKPT_ERROR_INIT;
    ck_assert_int_eq(ckpt_migrate(fixture("cli/views.pt"), "out", &o, NULL, &err), CKPT_E_CANCELLED);
    ck_assert_int_eq(calls, 3);
    ck_assert_msg(err.status == CKPT_E_CANCELLED && *err.message, "%s", err.message);
    calls = 10;
    o.dry_run = false; /* nobody is asked */
    ck_assert_int_eq(ckpt_migrate(fixture("cli/views.pt"), "out", &o, NULL, &err), CKPT_OK);
    ck_assert_int_eq(calls, 10);
    remove_scratch();
}
END_TEST

/* Without forks the one before has left its marks. */
static void begin_afresh(void)
{
    forget_results();
    reads_nothing = false;
    give_reader(NULL, NULL);
    fail_no_more();
    from = NULL;
    pieces = NULL;
    report = NULL;
    totals = NULL;
    opened = NULL;
}

int main(void)
{
    Suite *s = suite_create("plan_rows");
    TCase *t = tcase_create("plan_rows");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, begin_afresh, NULL);
    tcase_add_test(t, random_pieces);
    tcase_add_test(t, refused_alike);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, nothing_is_kept);
    tcase_add_test(t, real_files);
    tcase_add_test(t, ranks);
    tcase_add_test(t, the_callers_answer);
    suite_add_tcase(s, t);
    return run_suite(s);
}
