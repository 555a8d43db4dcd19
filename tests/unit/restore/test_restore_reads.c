/* What a restore reads, counted at pread: each byte once, in whatever shape, and into however many states. And tensors that lie in
 * pieces: the reader that is opened here splits one. */
#include <ckpt/ckpt.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include "engine/put.h"
#include "io/direct.h"
#include "reader/reader.h"
#include "../counted_reads.h"
#include "../mapped_files.h"
#include "../runner.h"
#include "../scratch.h"

enum { ROWS = 1200, COLUMNS = 1000, N = ROWS * COLUMNS, STATES = 4, SMALL = 300 };

static const int64_t shape[] = {ROWS, COLUMNS}, turned[] = {1, ROWS}, small_shape[] = {16};

/* How a state has the tensor: in its order, turned, converted. */
typedef enum how { LINEAR, TURNED, CAST } how;

static void bind_one(ckpt_state *s, const char *name, ckpt_dtype dtype, uint32_t ndim, const int64_t *sizes,
                     const int64_t *strides, void *data, ckpt_device device)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.role = CKPT_ROLE_PARAM;
    d.dtype = dtype;
    d.ndim = ndim;
    d.shape = sizes;
    d.strides = strides;
    d.data = data;
    d.device = device;
    ck_assert_msg(ckpt_state_tensor(s, &d, &err) == CKPT_OK, "%s", err.message);
}

static const ckpt_device any = {CKPT_DEVICE_NONE, -1};

static ckpt_state *bound(how h, void *data)
{
    ckpt_state *s = ckpt_state_new();
    bind_one(s, "w", h == CAST ? CKPT_F64 : CKPT_F32, 2, shape, h == TURNED ? turned : NULL, data, any);
    return s;
}

static double at(how h, const void *data, size_t i)
{
    if (h == CAST)
        return ((const double *)data)[i];
    return (double)((const float *)data)[h == TURNED ? i / COLUMNS + i % COLUMNS * ROWS : i];
}

/* The header is read, and 4.8 MB of payload, once. */
static void restore_all(const char *path, const how *hows, size_t count, bool no_verify, bool twice)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *states[STATES];
    void *places[STATES];
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    const ckpt_restore_options *options[STATES] = {&o, &o, &o, &o};
    o.allow_cast = true;
    o.no_verify = no_verify;
    o.verify_first = twice;
    for (o.threads = 1; o.threads <= 2; o.threads++) {
        for (size_t i = 0; i < count; i++) {
            places[i] = calloc(N, sizeof(double));
            states[i] = bound(hows[i], places[i]);
        }
        read_calls = 0;
        read_bytes = 0;
        ck_assert_msg(ckpt_restore_many(states, count, path, options, NULL, &err) == CKPT_OK, "%s: %s", err.object,
                      err.message);
        uint64_t most = (uint64_t)(twice ? 2 : 1) * N * sizeof(float) + 64 * 1024;
        ck_assert_msg(read_bytes <= most && read_calls <= 120, "%llu bytes of %llu, %u calls",
                      (unsigned long long)read_bytes, (unsigned long long)most, read_calls);
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < N; k += 97)
                ck_assert(at(hows[i], places[i], k) == (double)k);
            ckpt_state_free(states[i]);
            free(places[i]);
        }
    }
}

START_TEST(each_byte_once)
{
    static const how linear[] = {LINEAR}, shaped[] = {TURNED}, cast[] = {CAST},
                     replicas[] = {LINEAR, LINEAR, LINEAR, LINEAR}, mixed[] = {TURNED, CAST, LINEAR, TURNED};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    float *values = malloc(N * sizeof *values);
    make_scratch();
    for (size_t i = 0; i < N; i++)
        values[i] = (float)i;
    ckpt_state *s = bound(LINEAR, values);
    ck_assert_int_eq(ckpt_save(s, "a.safetensors", NULL, &err), CKPT_OK);
    o.format = "safetensors"; /* which has no CRC */
    o.weights_only = true;
    ck_assert_int_eq(ckpt_save(s, "p.safetensors", &o, &err), CKPT_OK);
    for (int plain = 0; plain < 2; plain++) {
        const char *path = plain ? "p.safetensors" : "a.safetensors";
        restore_all(path, linear, 1, false, false);
        restore_all(path, linear, 1, true, false);
        restore_all(path, linear, 1, false, true);
        restore_all(path, shaped, 1, false, false);
        restore_all(path, cast, 1, false, false);
        restore_all(path, replicas, STATES, false, false);
        restore_all(path, mixed, STATES, false, false);
    }
    ckpt_state_free(s);
    free(values);
    remove_scratch();
}
END_TEST

/* Three hundred tensors of 64 bytes: not three hundred calls. */
START_TEST(small_neighbours_together)
{
    ckpt_error err = CKPT_ERROR_INIT;
    static float values[SMALL][16], back[SMALL][16];
    ckpt_state *from = ckpt_state_new(), *to = ckpt_state_new();
    char name[20];
    make_scratch();
    for (int i = 0; i < SMALL; i++) {
        snprintf(name, sizeof name, "t%d", i);
        values[i][3] = (float)i;
        bind_one(from, name, CKPT_F32, 1, small_shape, NULL, values[i], any);
        bind_one(to, name, CKPT_F32, 1, small_shape, NULL, back[i], any);
    }
    ck_assert_int_eq(ckpt_save(from, "a.safetensors", NULL, &err), CKPT_OK);
    read_calls = 0;
    ck_assert_int_eq(ckpt_restore(to, "a.safetensors", NULL, NULL, &err), CKPT_OK);
    ck_assert_uint_lt(read_calls, 30);
    ck_assert(memcmp(values, back, sizeof values) == 0);
    ckpt_state_free(from);
    ckpt_state_free(to);
    remove_scratch();
}
END_TEST

/* ---- a tensor in pieces */

static const ckpt__piece *splits; /* of the tensor "a", which is "w" then; NULL: nothing is split */

ckpt_status __real_ckpt__reader_nameless(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                         ckpt_error *err);
ckpt_status __wrap_ckpt__reader_nameless(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                         ckpt_error *err);
ckpt_status __wrap_ckpt__reader_nameless(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                         ckpt_error *err)
{
    static const int64_t all[] = {8, 6};
    ckpt_status status = __real_ckpt__reader_nameless(path, options, out, err);
    if (status < 0 || !splits)
        return status;
    ckpt__index *x = (*out)->index;
    size_t i = 0;
    while (i < x->tensor_count && !ckpt__str_is(x->tensors[i].info.name, "a"))
        i++;
    ck_assert_uint_lt(i, x->tensor_count);
    ckpt__tensor *t = &x->tensors[i];
    t->info.name = ckpt__s("w");
    t->whole = t->has_crc = false;
    return ckpt__index_set_pieces(x, i, all, splits, 3, err);
}

static const int64_t split_shape[] = {8, 6}, part_shape[] = {4, 6}, split_turned[] = {1, 8};

/* On the host, turned, converted, on a device of the library's memory: from the same pieces. */
START_TEST(split_tensors)
{
    static const int64_t top[] = {0, 0, 4, 6}, left[] = {4, 0, 4, 2, 6, 1}, right[] = {4, 2, 4, 4, 6, 1};
    ckpt_error err = CKPT_ERROR_INIT;
    float a[24], b[24], w[48], in_columns[48], from_device[48];
    double wide[48];
    make_scratch();
    ckpt_state *s = ckpt_state_new(), *states[5];
    for (int i = 0; i < 24; i++) {
        a[i] = (float)i;
        b[i] = (float)(24 + i);
    }
    bind_one(s, "a", CKPT_F32, 2, part_shape, NULL, a, any);
    bind_one(s, "b", CKPT_F32, 2, part_shape, NULL, b, any);
    ck_assert_int_eq(ckpt_save(s, "a.safetensors", NULL, &err), CKPT_OK);
    ckpt__piece pieces[] = {{.box = top, .storage = 0},
                            {.box = left, .storage = 1, .flags = CKPT__PIECE_STRIDED},
                            {.box = right, .storage = 1, .at = 8, .flags = CKPT__PIECE_STRIDED}};
    splits = pieces;
    for (int broken = 0; broken < 2; broken++) {
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        const ckpt_restore_options *options[] = {&o, &o, &o, &o, &o};
        ckpt_report *reports[5];
        o.allow_cast = o.allow_unexpected = true;
        for (int i = 0; i < 5; i++) {
            states[i] = ckpt_state_new();
            reports[i] = ckpt_report_new();
        }
        memset(w, 0x5a, sizeof w);
        bind_one(states[0], "w", CKPT_F32, 2, split_shape, NULL, w, any);
        bind_one(states[1], "w", CKPT_F32, 2, split_shape, split_turned, in_columns, any);
        bind_one(states[2], "w", CKPT_F64, 2, split_shape, NULL, wide, any);
        bind_one(states[3], "w", CKPT_F32, 2, split_shape, NULL, NULL, ckpt_cuda(1));
        bind_one(states[4], "b", CKPT_F32, 2, part_shape, NULL, b, any);
        if (broken) /* two columns are nowhere: nothing is touched */
            pieces[1] = pieces[0];
        ckpt_status status = ckpt_restore_many(states, 5, "a.safetensors", options, reports, &err);
        ck_assert_msg(status == (broken ? CKPT_E_MISMATCH : CKPT_OK), "%d: %s: %s", (int)status, err.object,
                      err.message);
        ck_assert(!ckpt_state_poisoned(states[0]));
        if (broken) {
            float before;
            memset(&before, 0x5a, sizeof before);
            ck_assert_str_eq(err.object, "w");
            ck_assert(memcmp(w, &before, sizeof before) == 0 && memcmp(&w[47], &before, sizeof before) == 0);
        } else {
            ckpt__lanes lanes = {.count = 0};
            ck_assert_int_eq(ckpt__move_bytes(&lanes, ckpt_cpu(), from_device, ckpt_cuda(1),
                                              ckpt_state_data(states[3], "w"), sizeof from_device, &err),
                             CKPT_OK);
            ck_assert_int_eq(ckpt__lanes_close(&lanes, &err), CKPT_OK);
            for (int i = 0; i < 48; i++)
                ck_assert(w[i] == (float)i && in_columns[i / 6 + i % 6 * 8] == (float)i && wide[i] == i &&
                          from_device[i] == (float)i);
        }
        for (int i = 0; i < 5; i++) {
            const ckpt_finding *f = ckpt_report_find(reports[i], "not-whole", "w");
            ck_assert(!f == !(broken && i < 4));
            ck_assert(!f || (strcmp(f->message, err.message) == 0 && strstr(f->fix, "allow_unexpected")));
            ckpt_state_free(states[i]);
            ckpt_report_free(reports[i]);
        }
    }
    splits = NULL;
    ckpt_state_free(s);
    remove_scratch();
}
END_TEST

/* What the system says of the page cache: nothing is there. A file that is open with O_DIRECT is not read so where it is on tmpfs, or on a
 * file system that has no such reads, but it is the same descriptor. */
static bool is_cold;
static uint64_t read_direct; /* bytes */
ssize_t __real_preadv2(int fd, const struct iovec *to, int n, off_t from, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *to, int n, off_t from, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *to, int n, off_t from, int flags)
{
    errno = EAGAIN;
    return is_cold ? -1 : __real_preadv2(fd, to, n, from, flags);
}
long __real_syscall(long number, long a, void *b, void *c, long d, void *e);
long __wrap_syscall(long number, long a, void *b, void *c, long d, void *e);
long __wrap_syscall(long number, long a, void *b, void *c, long d, void *e)
{
    return is_cold && number == 451 ? 0 : __real_syscall(number, a, b, c, d, e); /* cachestat */
}
const unsigned char *__real_ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n);
const unsigned char *__wrap_ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n);
const unsigned char *__wrap_ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n)
{
    const unsigned char *bytes = __real_ckpt__direct_look(d, file, offset, n);
    __atomic_add_fetch(&read_direct, bytes ? n : 0, __ATOMIC_RELAXED);
    return bytes;
}

/* Can this file be read past the page cache? */
static bool is_direct(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECT);
    void *block = aligned_alloc(4096, 4096);
    bool is = fd >= 0 && block && pread(fd, block, 4096, 0) == 4096;
    if (fd >= 0)
        close(fd);
    free(block);
    if (!is)
        printf("# skipped: no file here can be read with O_DIRECT\n");
    return is;
}

/* A file of more than 64 MiB that is not in the page cache is read past it; the bytes are the same, and so are the errors. */
START_TEST(a_cold_one)
{
    enum { LARGE = 20 << 20 };
    static const int64_t large_shape[] = {LARGE};
    ckpt_error err = CKPT_ERROR_INIT, cut[2] = {CKPT_ERROR_INIT, CKPT_ERROR_INIT};
    float *values = malloc(LARGE * sizeof *values), *back = malloc(LARGE * sizeof *back);
    ckpt_state *from = ckpt_state_new(), *to = ckpt_state_new();
    make_scratch();
    for (size_t i = 0; i < LARGE; i++)
        values[i] = (float)(i * 7 % 16777213);
    bind_one(from, "w", CKPT_F32, 1, large_shape, NULL, values, any);
    bind_one(to, "w", CKPT_F32, 1, large_shape, NULL, back, any);
    ck_assert_int_eq(ckpt_save(from, "a.safetensors", NULL, &err), CKPT_OK);
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    const bool direct = is_direct("a.safetensors");
    is_cold = true;
    for (int i = 0; i < 4; i++) {
        o.avoid = i == 1 ? CKPT_AVOID_DIRECT : 0;
        o.verify_first = i == 2;
        o.threads = i == 3 ? 2 : 0;
        memset(back, 0, LARGE * sizeof *back);
        read_direct = 0;
        ck_assert_msg(ckpt_restore(to, "a.safetensors", &o, NULL, &err) == CKPT_OK, "%s: %s", err.object, err.message);
        ck_assert_int_eq(memcmp(values, back, LARGE * sizeof *back), 0);
        if (i == 1 || i == 3 || !direct)
            ck_assert_uint_eq(read_direct, 0);
        else
            ck_assert_uint_eq(read_direct, (i == 2 ? 2 : 1) * LARGE * sizeof *back);
    }
    int fd = open("a.safetensors", O_RDWR);
    struct stat st;
    char byte;
    ck_assert(fstat(fd, &st) == 0 && pread(fd, &byte, 1, st.st_size - 5) == 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size - 5), 1);
    close(fd);
    for (int i = 0; i < 2; i++) {
        o = (ckpt_restore_options)CKPT_RESTORE_OPTIONS_INIT;
        o.avoid = i ? CKPT_AVOID_DIRECT : 0;
        ck_assert_int_eq(ckpt_restore(to, "a.safetensors", &o, NULL, &cut[i]), CKPT_E_DAMAGED);
    }
    ck_assert_str_eq(cut[0].message, cut[1].message);
    ck_assert_ptr_nonnull(strstr(cut[0].message, "CRC-32"));
    is_cold = false;
    ckpt_state_free(from);
    ckpt_state_free(to);
    free(values);
    free(back);
    remove_scratch();
}
END_TEST

/* A file of more than 64 MiB that is in the page cache is mapped for the most part, where a lease is given on it, and read where nobody
 * wants that; the bytes are the same. */
START_TEST(a_large_one)
{
    enum { LARGE = 20 << 20 };
    static const int64_t large_shape[] = {LARGE};
    static const uint64_t avoid[] = {0, CKPT_AVOID_MAPPING, CKPT_AVOID_STREAMING,
                                     CKPT_AVOID_MAPPING | CKPT_AVOID_STREAMING, CKPT_AVOID_DIRECT};
    ckpt_error err = CKPT_ERROR_INIT;
    float *values = malloc(LARGE * sizeof *values), *back = malloc(LARGE * sizeof *back);
    ckpt_state *from = ckpt_state_new(), *to = ckpt_state_new();
    make_scratch();
    for (size_t i = 0; i < LARGE; i++)
        values[i] = (float)(i * 7 % 16777213);
    bind_one(from, "w", CKPT_F32, 1, large_shape, NULL, values, any);
    bind_one(to, "w", CKPT_F32, 1, large_shape, NULL, back, any);
    ck_assert_int_eq(ckpt_save(from, "a.safetensors", NULL, &err), CKPT_OK);
    bool mapped = files_are_mapped("a.safetensors");
    int fd = open("a.safetensors", O_RDONLY);
    for (size_t block = 0; block < LARGE * sizeof *values; block += N * sizeof *values) /* into the cache */
        ck_assert_int_gt(pread(fd, back, N * sizeof *values, (off_t)block), 0);
    close(fd);
    for (size_t i = 0; i < sizeof avoid / sizeof *avoid; i++) {
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        o.avoid = avoid[i];
        memset(back, 0, LARGE * sizeof *back);
        read_bytes = 0;
        ck_assert_msg(ckpt_restore(to, "a.safetensors", &o, NULL, &err) == CKPT_OK, "%s: %s", err.object, err.message);
        ck_assert_int_eq(memcmp(values, back, LARGE * sizeof *back), 0);
        if (avoid[i] & CKPT_AVOID_MAPPING)
            ck_assert_uint_ge(read_bytes, LARGE * sizeof *back);
        else if (mapped)
            ck_assert_uint_lt(read_bytes, LARGE * sizeof *back);
    }
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.avoid = 0x80;
    ck_assert_int_eq(ckpt_restore(to, "a.safetensors", &o, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "0x80"));
    ckpt_state_free(from);
    ckpt_state_free(to);
    free(values);
    free(back);
    remove_scratch();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore reads");
    TCase *t = tcase_create("restore reads");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, each_byte_once);
    tcase_add_test(t, small_neighbours_together);
    tcase_add_test(t, split_tensors);
    tcase_add_test(t, a_large_one);
    tcase_add_test(t, a_cold_one);
    suite_add_tcase(s, t);
    return run_suite(s);
}
