/* What a pull reads, counted at pread: no byte twice that need not be, and small neighbours together. */
#include "engine/pull.h"

#include <stdlib.h>
#include "codec/crc32.h"
#include "../runner.h"
#include "../scratch.h"

static ckpt_error err;
static ckpt__source *opened;
static unsigned read_calls;
static uint64_t read_bytes;

ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    ssize_t got = __real_pread(fd, to, n, at);
    __atomic_add_fetch(&read_calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&read_bytes, got > 0 ? (uint64_t)got : 0, __ATOMIC_RELAXED);
    return got;
}

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

int main(void)
{
    Suite *s = suite_create("pull reads");
    TCase *t = tcase_create("pull reads");
    tcase_add_test(t, reads_are_few);
    suite_add_tcase(s, t);
    return run_suite(s);
}
