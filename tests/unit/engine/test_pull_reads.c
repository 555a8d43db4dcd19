/* What a pull reads, counted at pread: no byte twice that need not be, and small neighbours together. */
#include "engine/pull.h"

#include <stdlib.h>
#include <unistd.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "../counted_reads.h"
#include "../deflated.h"
#include "../runner.h"
#include "../scratch.h"

static ckpt_error err;
static ckpt__source *opened;

enum { FILE_BYTES = 4 << 20, ROW = 4096 };

/* A file of float32, and an index of one storage that is all of it. */
static ckpt__index *counted_index(bool crc)
{
    static char bytes[FILE_BYTES];
    ckpt__index *x = ckpt__index_new(0);
    FILE *f = fopen("counted", "w");
    ck_assert(f && fwrite(bytes, 1, FILE_BYTES, f) == FILE_BYTES && fclose(f) == 0);
    ck_assert_int_eq(ckpt__source_open("counted", &opened, &err), CKPT_OK);
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = s->extent.length = FILE_BYTES;
    s->extent.has_crc = crc;
    s->extent.crc = ckpt__crc32(0, bytes, FILE_BYTES);
    return x;
}

static void counted_tensor(ckpt__index *x, uint32_t n, const int64_t *shape, const int64_t *strides, uint32_t in,
                           int64_t at)
{
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s("t");
    t->info.dtype = CKPT_F32;
    t->info.ndim = n;
    ck_assert_msg(ckpt__index_set_view(x, x->tensor_count - 1, in, shape, strides, at, &err) == CKPT_OK, "%s",
                  err.message);
}

/* Pulls all of the target at once: so many calls and bytes at most. */
static void count_reads(const ckpt__index *from, const ckpt__index *to, size_t bonds, unsigned calls, uint64_t bytes)
{
    char *out = malloc(FILE_BYTES);
    ckpt__bond *list = calloc(bonds, sizeof *list);
    ckpt__op op;
    ckpt__op_want want = {.from = CKPT_F32, .to = CKPT_F32};
    ckpt__plan_want asked = {.from = from, .to = to, .bonds = list, .bond_count = bonds, .ops = &op, .op_count = 1};
    ckpt__plan *plan;
    ckpt__pull *pull;
    for (uint32_t i = 0; i < bonds; i++)
        list[i] = (ckpt__bond){.from = i, .to = i};
    ck_assert(ckpt__op_make(&want, "t", &op, &err) == CKPT_OK && ckpt__plan_new(&asked, &plan, &err) == CKPT_OK &&
              ckpt__pull_new(plan, opened, true, 0, &pull, &err) == CKPT_OK);
    read_calls = 0;
    read_bytes = 0;
    ck_assert(ckpt__pull_bytes(pull, 0, 0, to->storages[0].extent.size, out, NULL, &err) == CKPT_OK);
    ck_assert_msg(read_calls <= calls && read_bytes <= bytes, "%u calls of %u, %llu bytes of %llu", read_calls, calls,
                  (unsigned long long)read_bytes, (unsigned long long)bytes);
    ckpt__pull_free(pull);
    ckpt__plan_free(plan);
    free(list);
    free(out);
}

static ckpt__index *counted_target(uint64_t size)
{
    ckpt__index *x = ckpt__index_new(0);
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = s->extent.length = size;
    return x;
}

static void forget(ckpt__index *from, ckpt__index *to)
{
    ckpt__source_close(opened);
    ckpt__index_free(from);
    ckpt__index_free(to);
}

START_TEST(reads_are_few)
{
    static const int64_t small[] = {16}, all[] = {FILE_BYTES / 4}, columns[] = {FILE_BYTES / ROW, 8},
                         pitch[] = {ROW / 4, 1}, turned[] = {ROW / 4, FILE_BYTES / ROW}, turn[] = {1, ROW / 4},
                         rows[] = {0, 0, 8, 16}, two[] = {16, 16}, rest[] = {8, 0, 8, 16};
    make_scratch();
    ckpt__index *from = counted_index(false), *to = counted_target(640000);
    for (int i = 0; i < 10000; i++) { /* ten thousand tensors of 64 bytes */
        counted_tensor(from, 1, small, NULL, 0, 16 * i);
        counted_tensor(to, 1, small, NULL, 0, 16 * i);
    }
    count_reads(from, to, 10000, 1, 640000);
    forget(from, to);
    from = counted_index(true); /* a storage with a CRC that is read from end to end: once */
    to = counted_target(FILE_BYTES);
    counted_tensor(from, 1, all, NULL, 0, 0);
    counted_tensor(to, 1, all, NULL, 0, 0);
    count_reads(from, to, 1, 1, FILE_BYTES);
    forget(from, to);
    from = counted_index(true); /* of which a part is used: once for the CRC, and the part; then the part alone */
    to = counted_target(64);
    counted_tensor(from, 1, small, NULL, 0, 5000);
    counted_tensor(to, 1, small, NULL, 0, 0);
    count_reads(from, to, 1, 20, FILE_BYTES + 64);
    count_reads(from, to, 1, 1, 64);
    forget(from, to);
    from = counted_index(false); /* eight columns: rows are near, and holes read through */
    to = counted_target(FILE_BYTES / ROW * 32);
    counted_tensor(from, 2, columns, pitch, 0, 100);
    counted_tensor(to, 2, columns, NULL, 0, 0);
    count_reads(from, to, 1, 16, FILE_BYTES);
    forget(from, to);
    from = counted_index(false); /* turned: each byte once */
    to = counted_target(FILE_BYTES);
    counted_tensor(from, 2, turned, turn, 0, 0);
    counted_tensor(to, 2, turned, NULL, 0, 0);
    count_reads(from, to, 1, 64, FILE_BYTES);
    forget(from, to);
    from = counted_index(false); /* a piece that is there twice is read once */
    to = counted_target(1024);
    counted_tensor(to, 2, two, NULL, 0, 0);
    ckpt__tensor *t = ckpt__index_add_tensor(from);
    t->info = (ckpt_tensor_info){.name = ckpt__s("t"), .dtype = CKPT_F32, .ndim = 2, .extra = &ckpt__no_extra};
    const ckpt__piece pieces[] = {{.box = rows, .at = 0, .flags = CKPT__PIECE_REPLICA},
                                  {.box = rest, .at = 1 << 20},
                                  {.box = rows, .at = 2 << 20, .flags = CKPT__PIECE_REPLICA}};
    ck_assert(ckpt__index_set_pieces(from, 0, two, pieces, 3, &err) == CKPT_OK);
    count_reads(from, to, 1, 2, 1024);
    forget(from, to);
    remove_scratch();
}
END_TEST

/* ---- what is turned, and more than one question holds */

enum { TALL = 8192, WIDE = 2048, SLICE = 1024 }; /* the target's rows, its columns, and the rows of one question */
static const char zeros[4 * SLICE * WIDE];

/* The target is TALL x WIDE, and its columns lie side by side in the file, which is 64 MiB that nothing was written to. */
static void ask_slices(ckpt_dtype to, unsigned *calls, uint64_t *given)
{
    static const int64_t shape[] = {TALL, WIDE}, turn[] = {1, TALL};
    const ckpt__op_want want = {.from = CKPT_F32, .to = to};
    static char out[4 * SLICE * WIDE];
    uint64_t size = ckpt_dtype_size(to);
    ckpt__index *from = counted_index(false), *target = counted_target(size * TALL * WIDE);
    ck_assert_int_eq(truncate("counted", 4 * TALL * WIDE), 0);
    ckpt__source_close(opened);
    ck_assert_int_eq(ckpt__source_open("counted", &opened, &err), CKPT_OK);
    from->storages[0].extent.size = from->storages[0].extent.length = 4 * TALL * WIDE;
    counted_tensor(from, 2, shape, turn, 0, 0);
    ckpt__index_add_tensor(target)->info =
        (ckpt_tensor_info){.name = ckpt__s("t"), .dtype = to, .ndim = 2, .extra = &ckpt__no_extra};
    ck_assert_int_eq(ckpt__index_set_view(target, 0, 0, shape, NULL, 0, &err), CKPT_OK);
    ckpt__bond bond = {0};
    ckpt__op op;
    ckpt__plan_want asked = {.from = from, .to = target, .bonds = &bond, .bond_count = 1, .ops = &op, .op_count = 1};
    ckpt__plan *plan;
    ckpt__pull *pull;
    ck_assert(ckpt__op_make(&want, "t", &op, &err) == CKPT_OK && ckpt__plan_new(&asked, &plan, &err) == CKPT_OK &&
              ckpt__pull_new(plan, opened, true, 0, &pull, &err) == CKPT_OK);
    read_calls = 0;
    read_bytes = 0;
    for (uint64_t row = 0; row < TALL; row += SLICE) {
        memset(out, 1, sizeof out);
        ck_assert_int_eq(ckpt__pull_bytes(pull, 0, row * WIDE * size, (row + SLICE) * WIDE * size, out, NULL, &err),
                         CKPT_OK);
        ck_assert(memcmp(out, zeros, SLICE * WIDE * size) == 0);
    }
    *calls = read_calls;
    *given = read_bytes;
    ckpt__pull_free(pull);
    ckpt__plan_free(plan);
    forget(from, target);
}

/* Runs are as long as a question has rows, converted or not. */
START_TEST(converted_reads_are_as_few)
{
    unsigned plain, converted;
    uint64_t plain_bytes, converted_bytes;
    make_scratch();
    ask_slices(CKPT_F32, &plain, &plain_bytes);
    ask_slices(CKPT_BF16, &converted, &converted_bytes);
    ck_assert_uint_eq(plain_bytes, 4 * TALL * WIDE);
    ck_assert_uint_eq(converted_bytes, plain_bytes);
    ck_assert_msg(converted <= plain + plain / 10, "%u reads, and %u where nothing is converted", converted, plain);
    remove_scratch();
}
END_TEST

/* ---- many questions of one storage */

enum { PART = 100000 };

/* A plan of one tensor on one, all of the file on both sides. */
typedef struct question {
    ckpt__index *from, *to;
    ckpt__bond bond;
    ckpt__op op;
    ckpt__plan *plan;
    ckpt__pull *pull;
    ckpt__crcs *crcs;
} question;

static void open_question(question *q, ckpt__index *from, uint32_t n, const int64_t *shape, const int64_t *strides,
                          bool late)
{
    const ckpt__op_want want = {.from = CKPT_F32, .to = CKPT_F32};
    *q = (question){.from = from, .to = counted_target(FILE_BYTES)};
    if (!from->tensor_count)
        counted_tensor(q->from, n, shape, strides, 0, 0);
    counted_tensor(q->to, n, shape, NULL, 0, 0);
    ckpt__plan_want asked = {
        .from = q->from, .to = q->to, .bonds = &q->bond, .bond_count = 1, .ops = &q->op, .op_count = 1};
    ck_assert(ckpt__op_make(&want, "t", &q->op, &err) == CKPT_OK && ckpt__plan_new(&asked, &q->plan, &err) == CKPT_OK);
    ck_assert(ckpt__pull_new(q->plan, opened, true, 1, &q->pull, &err) == CKPT_OK);
    ck_assert_ptr_nonnull(q->crcs = ckpt__crcs_new(q->plan));
    if (late)
        ckpt__pull_check_late(q->pull, q->crcs);
    read_calls = 0;
    read_bytes = 0;
}

static void close_question(question *q)
{
    ckpt__pull_free(q->pull);
    ckpt__crcs_free(q->crcs);
    ckpt__plan_free(q->plan);
    forget(q->from, q->to);
}

/* Asks for bytes [0, end) in parts: the first status that is not CKPT_OK. */
static ckpt_status ask_parts(question *q, uint64_t end)
{
    static char out[PART];
    ckpt_status status = CKPT_OK;
    for (uint64_t at = 0; status == CKPT_OK && at < end; at += PART)
        status = ckpt__pull_bytes(q->pull, 0, at, at + PART < end ? at + PART : end, out, NULL, &err);
    return status;
}

START_TEST(parts_are_read_once)
{
    static const int64_t all[] = {FILE_BYTES / 4}, square[] = {1024, 1024}, turn[] = {1, 1024};
    question q;
    make_scratch();
    open_question(&q, counted_index(true), 1, all, NULL, true);
    ck_assert_int_eq(ask_parts(&q, FILE_BYTES), CKPT_OK);
    ck_assert_int_eq(ckpt__crcs_finish(q.crcs, opened, &err), CKPT_OK);
    ck_assert_uint_eq(read_bytes, FILE_BYTES);
    close_question(&q);
    open_question(&q, counted_index(true), 1, all, NULL, false); /* checked before: read twice */
    ck_assert_int_eq(ask_parts(&q, FILE_BYTES), CKPT_OK);
    ck_assert_uint_eq(read_bytes, 2 * FILE_BYTES);
    close_question(&q);
    open_question(&q, counted_index(true), 1, all, NULL, true); /* not all was asked for: the end reads all again */
    ck_assert_int_eq(ask_parts(&q, FILE_BYTES / 2), CKPT_OK);
    ck_assert_uint_eq(read_bytes, FILE_BYTES / 2);
    ck_assert_int_eq(ckpt__crcs_finish(q.crcs, opened, &err), CKPT_OK);
    ck_assert_uint_eq(read_bytes, FILE_BYTES / 2 + FILE_BYTES);
    close_question(&q);
    open_question(&q, counted_index(true), 1, all, NULL, true); /* damaged, and not all was asked for */
    q.from->storages[0].extent.crc ^= 1;
    ck_assert_int_eq(ask_parts(&q, FILE_BYTES / 2), CKPT_OK);
    ck_assert_int_eq(ckpt__crcs_finish(q.crcs, opened, &err), CKPT_E_DAMAGED);
    close_question(&q);
    open_question(&q, counted_index(true), 1, all, NULL, true); /* damaged: with the last byte, and from then on */
    q.from->storages[0].extent.crc ^= 1;
    ck_assert_int_eq(ask_parts(&q, FILE_BYTES - 4), CKPT_OK);
    ck_assert_int_eq(ask_parts(&q, FILE_BYTES), CKPT_E_DAMAGED);
    ck_assert_int_eq(ask_parts(&q, 1), CKPT_E_DAMAGED);
    close_question(&q);
    for (int late = 0; late < 2; late++) { /* turned, and all of it in one question: the CRC is taken on the way */
        char *out = malloc(FILE_BYTES);
        open_question(&q, counted_index(true), 2, square, turn, late);
        ck_assert_int_eq(ckpt__pull_bytes(q.pull, 0, 0, FILE_BYTES, out, NULL, &err), CKPT_OK);
        ck_assert_uint_eq(read_bytes, FILE_BYTES);
        q.from->storages[0].extent.checked = 0;
        q.from->storages[0].extent.crc ^= 1;
        ck_assert_int_eq(ckpt__pull_bytes(q.pull, 0, 0, FILE_BYTES, out, NULL, &err), CKPT_E_DAMAGED);
        close_question(&q);
        free(out);
    }
    remove_scratch();
}
END_TEST

/* The file is a span, and each half of it a storage. `second`: where the second one begins. */
static ckpt__index *spanned_index(uint64_t second)
{
    static const int64_t all[] = {FILE_BYTES / 4}, low[] = {0, FILE_BYTES / 8},
                         high[] = {FILE_BYTES / 8, FILE_BYTES / 8};
    const ckpt__piece pieces[] = {{.box = low, .storage = 0}, {.box = high, .storage = 1}};
    ckpt__index *x = counted_index(true);
    ck_assert(ckpt__index_add_span(x, &x->storages[0].extent, ckpt__s("data/0")));
    ckpt__index_add_storage(x);
    for (size_t i = 0; i < 2; i++)
        x->storages[i].extent =
            (ckpt__extent){.spanned = true, .offset = i ? second : 0, .length = FILE_BYTES / 2, .size = FILE_BYTES / 2};
    ckpt__index_add_tensor(x)->info =
        (ckpt_tensor_info){.name = ckpt__s("t"), .dtype = CKPT_F32, .ndim = 1, .extra = &ckpt__no_extra};
    ck_assert(ckpt__index_set_pieces(x, 0, all, pieces, 2, &err) == CKPT_OK);
    return x;
}

START_TEST(spans_are_read_once)
{
    static const int64_t all[] = {FILE_BYTES / 4};
    question q;
    make_scratch();
    for (int late = 0; late < 2; late++) { /* late: on the way; else before */
        open_question(&q, spanned_index(FILE_BYTES / 2), 1, all, NULL, late);
        ck_assert_int_eq(ask_parts(&q, FILE_BYTES), CKPT_OK);
        ck_assert_int_eq(ckpt__crcs_finish(q.crcs, opened, &err), CKPT_OK);
        ck_assert_uint_eq(read_bytes, late ? FILE_BYTES : 2 * FILE_BYTES);
        ck_assert(ckpt__is_sound(&q.from->spans[0].extent));
        ck_assert_int_eq(ask_parts(&q, FILE_BYTES), CKPT_OK); /* and known from then on */
        ck_assert_uint_eq(read_bytes, late ? 2 * FILE_BYTES : 3 * FILE_BYTES);
        close_question(&q);
    }
    open_question(&q, spanned_index(0), 1, all, NULL, true); /* one half twice: the end reads all of it */
    ck_assert_int_eq(ask_parts(&q, FILE_BYTES), CKPT_OK);
    ck_assert_int_eq(ckpt__crcs_finish(q.crcs, opened, &err), CKPT_OK);
    ck_assert_uint_eq(read_bytes, 2 * FILE_BYTES);
    ck_assert(ckpt__is_sound(&q.from->spans[0].extent));
    close_question(&q);
    for (int part = 0; part < 2; part++) { /* damaged: with the last byte, or at the end */
        open_question(&q, spanned_index(FILE_BYTES / 2), 1, all, NULL, true);
        q.from->spans[0].extent.crc ^= 1;
        ck_assert_int_eq(ask_parts(&q, FILE_BYTES - 4), CKPT_OK);
        ck_assert_int_eq(part ? ckpt__crcs_finish(q.crcs, opened, &err) : ask_parts(&q, FILE_BYTES), CKPT_E_DAMAGED);
        ck_assert_ptr_nonnull(strstr(err.message, "it lies in data/0, whose bytes have the CRC-32 "));
        ck_assert_int_eq(ask_parts(&q, 1), CKPT_E_DAMAGED);
        close_question(&q);
    }
    remove_scratch();
}
END_TEST

/* The file, deflated in one piece. */
static void deflate_file(ckpt__index *x)
{
    static unsigned char bytes[FILE_BYTES], coded[FILE_BYTES];
    for (uint32_t i = 0, r = 1; i < FILE_BYTES; i++, r = r * 1664525u + 1013904223u)
        bytes[i] = (unsigned char)(r >> 30);
    ckpt__extent *e = &x->storages[0].extent;
    e->coding = CKPT__DEFLATE;
    e->length = deflated(bytes, FILE_BYTES, coded, sizeof coded);
    e->crc = ckpt__crc32(0, bytes, FILE_BYTES);
    ckpt__source_close(opened);
    FILE *f = fopen("counted", "w");
    ck_assert(f && fwrite(coded, 1, e->length, f) == e->length && fclose(f) == 0);
    ck_assert_int_eq(ckpt__source_open("counted", &opened, &err), CKPT_OK);
}

START_TEST(decoders_go_on)
{
    static const int64_t all[] = {FILE_BYTES / 4}, square[] = {1024, 1024}, turn[] = {1, 1024};
    question q;
    char out[8];
    make_scratch();
    for (int crc = 0; crc < 2; crc++) {
        ckpt__index *x = counted_index(crc);
        deflate_file(x);
        open_question(&q, x, 1, all, NULL, true);
        ck_assert_msg(ask_parts(&q, FILE_BYTES) == CKPT_OK, "%s", err.message);
        ck_assert_int_eq(ckpt__crcs_finish(q.crcs, opened, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt__pull_openings(q.pull), 1);
        ck_assert_uint_eq(read_bytes, x->storages[0].extent.length);
        /* ahead it goes on, back it begins again */
        ck_assert_int_eq(ckpt__pull_bytes(q.pull, 0, 1000, 1008, out, NULL, &err), CKPT_OK);
        ck_assert_int_eq(ckpt__pull_bytes(q.pull, 0, 900000, 900008, out, NULL, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt__pull_openings(q.pull), 2);
        ck_assert_int_eq(ckpt__pull_bytes(q.pull, 0, 1000, 1008, out, NULL, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt__pull_openings(q.pull), 3);
        close_question(&q);
        x = counted_index(crc);
        deflate_file(x);
        char *whole = malloc(FILE_BYTES);
        open_question(&q, x, 2, square, turn, false); /* turned: decoded once */
        ck_assert_int_eq(ckpt__pull_bytes(q.pull, 0, 0, FILE_BYTES, whole, NULL, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt__pull_openings(q.pull), 1);
        ck_assert_uint_eq(read_bytes, x->storages[0].extent.length);
        close_question(&q);
        free(whole);
    }
    remove_scratch();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pull reads");
    TCase *t = tcase_create("pull reads");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, reads_are_few);
    tcase_add_test(t, converted_reads_are_as_few);
    tcase_add_test(t, parts_are_read_once);
    tcase_add_test(t, spans_are_read_once);
    tcase_add_test(t, decoders_go_on);
    suite_add_tcase(s, t);
    return run_suite(s);
}
