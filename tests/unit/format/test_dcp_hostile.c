/* Lists of distributed checkpoints that lie: boxes that meet or lie outside, sizes below zero, sums that overflow, paths that climb, files
 * that are none, a million chunks. Each is refused, or found by verify, in little time and memory. */
#include <ckpt/reader.h>
#include <ckpt/verify.h>
#include <sys/resource.h>
#include <time.h>
#define READER_FORMAT "dcp"
#include "../reader_checks.h"

enum { FILE_BYTES = 4096, MOST_CHUNKS = 3, SECONDS = 10, MEGABYTES = 512 };

typedef struct chunk {
    int64_t lo[2], size[2];
    int64_t offset, length; /* of its record */
} chunk;

/* A list of one tensor, "w". */
typedef struct list {
    int ndim;
    int64_t shape[2];
    int count;
    chunk chunks[MOST_CHUNKS];
    const char *file; /* of all records; NULL: "__0_0.distcp" */
} list;

/* What is written: flushed, as a list may be larger than one `bytes`. */
typedef struct writer {
    bytes part;
    FILE *file;
} writer;

static void flush(writer *w)
{
    ck_assert_uint_eq(fwrite(w->part.data, 1, w->part.size, w->file), w->part.size);
    w->part.size = 0;
}

static writer *begin(void)
{
    static writer w;
    mkdir(at("c"), 0700);
    w.part.size = 0;
    ck_assert_ptr_nonnull(w.file = fopen(at("c/.metadata"), "wb"));
    return &w;
}

/* An object of torch.distributed.checkpoint.metadata, whose state, a dict, follows. */
static void object(writer *w, const char *name)
{
    put_global(&w->part, "torch.distributed.checkpoint.metadata", name);
    PUT(&w->part, ")\x81}(");
}

static void end(writer *w)
{
    PUT(&w->part, "ub");
    flush(w);
}

static void put_chunk(writer *w, const chunk *c, int ndim)
{
    object(w, "ChunkStorageMetadata");
    put_str(&w->part, "offsets");
    put_ints(&w->part, c->lo, ndim);
    put_str(&w->part, "sizes");
    put_ints(&w->part, c->size, ndim);
    end(w);
}

static void put_record(writer *w, const chunk *c, int ndim, const char *file)
{
    object(w, "MetadataIndex");
    put_str(&w->part, "fqn");
    put_str(&w->part, "w");
    put_str(&w->part, "offset");
    put_ints(&w->part, c->lo, ndim);
    end(w);
    object(w, "_StorageInfo");
    put_str(&w->part, "relative_path");
    put_str(&w->part, file ? file : "__0_0.distcp");
    put_str(&w->part, "offset");
    put_int(&w->part, c->offset);
    put_str(&w->part, "length");
    put_int(&w->part, c->length);
    end(w);
}

static void begin_tensor(writer *w, const int64_t *shape, int ndim)
{
    PUT(&w->part, "\x80\x02");
    object(w, "Metadata");
    put_str(&w->part, "state_dict_metadata");
    PUT(&w->part, "}(");
    put_str(&w->part, "w");
    object(w, "TensorStorageMetadata");
    put_str(&w->part, "properties");
    object(w, "TensorProperties");
    put_str(&w->part, "dtype");
    put_global(&w->part, "torch", "float32");
    end(w);
    put_str(&w->part, "size");
    put_ints(&w->part, shape, ndim);
    put_str(&w->part, "chunks");
    PUT(&w->part, "](");
}

static void begin_records(writer *w)
{
    PUT(&w->part, "e");
    end(w);
    PUT(&w->part, "u");
    put_str(&w->part, "storage_data");
    PUT(&w->part, "}(");
}

static void finish(writer *w)
{
    static const char zeros[FILE_BYTES];
    PUT(&w->part, "u");
    end(w);
    PUT(&w->part, ".");
    flush(w);
    ck_assert_int_eq(fclose(w->file), 0);
    write_to(at("c/__0_0.distcp"), zeros, sizeof zeros);
}

static void write_list(const list *l)
{
    writer *w = begin();
    begin_tensor(w, l->shape, l->ndim);
    for (int i = 0; i < l->count; i++)
        put_chunk(w, &l->chunks[i], l->ndim);
    begin_records(w);
    for (int i = 0; i < l->count; i++)
        put_record(w, &l->chunks[i], l->ndim, l->file);
    finish(w);
}

/* ---- what it may cost */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long megabytes(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss >> 10;
}

/* verify finds something, or refuses; words: in the first error, or in what it refuses with. NULL: any. */
static void is_found(const char *words)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    const double began = now();
    const long before = megabytes();
    bool said = false;
    memset(&err, 0, sizeof err);
    ckpt_status status = ckpt_verify(at("c"), NULL, &result, report, &err);
    ck_assert_msg(status != CKPT_OK && !result.ok, "it is whole, where '%s' was expected", words ? words : "an error");
    said = !words || strstr(err.message, words);
    for (size_t i = 0; !said && i < ckpt_report_count(report); i++)
        said = strstr(ckpt_report_get(report, i)->message, words) != NULL;
    ck_assert_msg(said, "no '%s' in: %s, %s", words, err.message,
                  ckpt_report_count(report) ? ckpt_report_get(report, 0)->message : "");
    ck_assert_uint_lt(ckpt_report_count(report), 30000); /* one a record, at most */
    ck_assert_msg(now() - began < SECONDS && megabytes() - before < MEGABYTES, "%s: %g s, %ld MB", words, now() - began,
                  megabytes() - before);
    ckpt_report_free(report);
}

/* Nothing of it is given: it does not open, or its tensor is not read. */
static void is_not_read(void)
{
    float values[64];
    size_t number;
    const double began = now();
    ckpt_status status = open_with(at("c"), NULL);
    if (status == CKPT_OK) {
        const ckpt_tensor_info *t = tensor_named("w", &number);
        if (t->nbytes <= sizeof values)
            ck_assert_int_lt(ckpt_reader_read(reader, number, values, (size_t)t->nbytes, &err), 0);
    }
    ck_assert(now() - began < SECONDS);
}

/* ---- numbers */

START_TEST(numbers_that_lie_are_refused)
{
    static const struct {
        list is;
        const char *words;
    } cases[] = {
        {{2, {-1, 4}, 1, {{{0, 0}, {1, 4}, 0, 64}}, NULL}, "without a size"},
        {{2, {4, INT64_MIN}, 1, {{{0, 0}, {1, 4}, 0, 64}}, NULL}, "without a size"},
        {{2, {4, 4}, 1, {{{0, 0}, {-4, 4}, 0, 64}}, NULL}, "not a box"},
        {{2, {4, 4}, 1, {{{0, -1}, {4, 4}, 0, 64}}, NULL}, NULL},
        {{2, {4, 4}, 1, {{{4, 0}, {4, 4}, 0, 64}}, NULL}, "outside of its shape"},
        {{2, {4, 4}, 1, {{{5, 0}, {1, 4}, 0, 64}}, NULL}, "outside of its shape"},
        {{2, {4, 4}, 1, {{{0, 0}, {5, 4}, 0, 64}}, NULL}, "outside of its shape"},
        {{2, {4, 4}, 1, {{{INT64_MAX, 0}, {INT64_MAX, 4}, 0, 64}}, NULL}, NULL},
        {{2, {4, 4}, 1, {{{1, 1}, {INT64_MAX, INT64_MAX}, 0, 64}}, NULL}, NULL},
        {{2, {(int64_t)1 << 40, (int64_t)1 << 40}, 1, {{{0, 0}, {1, 4}, 0, 64}}, NULL}, "overflows"},
        {{1, {(int64_t)1 << 62, 0}, 1, {{{0, 0}, {(int64_t)1 << 62, 0}, 0, 64}}, NULL}, "overflow"},
        {{2, {4, 4}, 1, {{{0, 0}, {4, 4}, -1, 64}}, NULL}, "without a file, an offset and a length"},
        {{2, {4, 4}, 1, {{{0, 0}, {4, 4}, 0, -64}}, NULL}, "without a file, an offset and a length"},
        {{2, {4, 4}, 1, {{{0, 0}, {4, 4}, INT64_MAX, INT64_MAX}}, NULL}, NULL},
        {{2, {4, 4}, 1, {{{0, 0}, {4, 4}, FILE_BYTES - 8, 64}}, NULL}, NULL},
        {{2, {4, 4}, 1, {{{0, 0}, {4, 4}, (int64_t)1 << 50, 64}}, NULL}, NULL},
        {{1, {1000000000000, 0}, 1, {{{0, 0}, {1000000000000, 0}, 0, 512}}, NULL},
         NULL}, /* four terabytes of nothing */
        {{2, {4, 4}, 2, {{{0, 0}, {3, 4}, 0, 512}, {{1, 0}, {3, 4}, 512, 512}}, NULL}, "the same elements"},
        {{2, {4, 4}, 2, {{{0, 0}, {4, 4}, 0, 512}, {{0, 1}, {4, 3}, 512, 512}}, NULL}, "the same elements"},
        {{2, {4, 4}, 2, {{{0, 0}, {2, 4}, 0, 512}, {{2, 0}, {2, 4}, 100, 512}}, NULL}, "lie on one another"},
        {{2, {4, 4}, 1, {{{0, 0}, {2, 4}, 0, 512}}, NULL}, NULL}, /* less than its tensor */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_list(&cases[i].is);
        is_found(cases[i].words);
        is_not_read();
    }
}
END_TEST

/* ---- files */

START_TEST(paths_that_climb_are_refused)
{
    static const char *const paths[] = {"../__0_0.distcp",   "/etc/passwd", "a/../../__0_0.distcp", "", "..", ".",
                                        "../c/__0_0.distcp", "a/.."};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const list l = {2, {4, 4}, 1, {{{0, 0}, {4, 4}, 0, 512}}, paths[i]};
        static const char zeros[FILE_BYTES];
        write_list(&l);
        write_to(at("__0_0.distcp"), zeros, sizeof zeros); /* there is one where it leads */
        is_found(NULL);
        is_not_read();
    }
}
END_TEST

/* What is opened is a file of the directory: no pipe that never ends or is never written, no device, no link that leaves it. */
START_TEST(files_that_are_none_are_refused)
{
    static const list l = {2, {4, 4}, 1, {{{0, 0}, {4, 4}, 0, 512}}, NULL};
    static const char zeros[FILE_BYTES];
    for (int kind = 0; kind < 4; kind++) {
        const char *path = at("c/__0_0.distcp");
        write_list(&l);
        ck_assert_int_eq(unlink(path), 0);
        write_to(at("outside"), zeros, sizeof zeros);
        ck_assert_int_eq(kind == 0   ? mkfifo(path, 0600)
                         : kind == 1 ? symlink("/dev/zero", path)
                         : kind == 2 ? symlink("../outside", path)
                                     : mkdir(path, 0700),
                         0);
        is_found(NULL);
        is_not_read();
        ck_assert_int_eq(kind == 3 ? rmdir(path) : unlink(path), 0);
    }
    for (int kind = 0; kind < 2; kind++) { /* the list itself */
        const char *path = at("c/.metadata");
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(kind == 0 ? mkfifo(path, 0600) : symlink("/dev/zero", path), 0);
        ck_assert_int_lt(open_with(at("c"), NULL), 0);
    }
}
END_TEST

/* ---- many */

/* A list of two megabytes that has one chunk a million times, by its memo. */
START_TEST(one_chunk_a_million_times_is_refused)
{
    const int64_t shape[] = {4, 4};
    const chunk one = {{0, 0}, {4, 4}, 0, 512};
    writer *w = begin();
    begin_tensor(w, shape, 2);
    put_chunk(w, &one, 2);
    PUT(&w->part, "q\xC8");
    for (int i = 0; i < 1000000; i++) {
        PUT(&w->part, "h\xC8");
        if (w->part.size > sizeof w->part.data / 2)
            flush(w);
    }
    begin_records(w);
    put_record(w, &one, 2, NULL);
    finish(w);
    is_found(NULL);
    is_not_read();
}
END_TEST

/* Boxes of which each meets a thousand others; their records have no bytes, so that these lie on nothing. */
START_TEST(boxes_that_all_meet_are_refused)
{
    enum { COUNT = 20000 };
    const int64_t shape[] = {COUNT + 1000, 0};
    writer *w = begin();
    begin_tensor(w, shape, 1);
    for (int i = 0; i < COUNT; i++) {
        const chunk c = {.lo = {i}, .size = {1000}};
        put_chunk(w, &c, 1);
    }
    begin_records(w);
    for (int i = 0; i < COUNT; i++) {
        const chunk c = {.lo = {i}};
        put_record(w, &c, 1, NULL);
    }
    finish(w);
    is_found(NULL);
    is_not_read();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dcp_hostile");
    TCase *t = tcase_create("dcp_hostile");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, numbers_that_lie_are_refused);
    tcase_add_test(t, paths_that_climb_are_refused);
    tcase_add_test(t, files_that_are_none_are_refused);
    tcase_add_test(t, one_chunk_a_million_times_is_refused);
    tcase_add_test(t, boxes_that_all_meet_are_refused);
    suite_add_tcase(s, t);
    return run_suite(s);
}
