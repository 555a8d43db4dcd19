/* Pushing the ranges of a plan: the cases of plan_cases.h from files as they are, deflated, or in memory, to host memory and to the
 * devices of the stand-in, by one to sixteen threads, in ranges of one byte and up. */
#include "engine/push.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include "../../fakecuda/fakecuda.h"
#include "engine/pull.h"
#include "engine/put.h"
#include "io/cached.h"
#include "io/direct.h"
#include "plan_files.h"
#include "../mapped_files.h"

enum { CASES = 1200, DEVICES = 2 };

/* ---- allocations that fail */

static atomic_long allocations_left; /* 0: all succeed; else the one that brings it to 0 fails */

static bool fails(void)
{
    return atomic_load(&allocations_left) && atomic_fetch_sub(&allocations_left, 1) == 1;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

/* ---- looks at what the page cache has */

static atomic_size_t seen_cached; /* bytes */
const unsigned char *__real_ckpt__cached_look(ckpt__cached *c, uint32_t file, uint64_t offset, size_t n);
const unsigned char *__wrap_ckpt__cached_look(ckpt__cached *c, uint32_t file, uint64_t offset, size_t n);
const unsigned char *__wrap_ckpt__cached_look(ckpt__cached *c, uint32_t file, uint64_t offset, size_t n)
{
    const unsigned char *bytes = __real_ckpt__cached_look(c, file, offset, n);
    atomic_fetch_add(&seen_cached, bytes ? n : 0);
    return bytes;
}

/* ---- reads past the page cache: two of three are done */

static atomic_size_t seen_direct, turn_direct; /* bytes; calls */
const unsigned char *__wrap_ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n);
const unsigned char *__wrap_ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n)
{
    ckpt_error ignored = CKPT_ERROR_INIT;
    void *bytes = d && atomic_fetch_add(&turn_direct, 1) % 3 ? __real_malloc(n) : NULL;
    if (bytes && ckpt__source_read(opened, file, offset, bytes, n, &ignored) < 0) {
        free(bytes);
        return NULL;
    }
    atomic_fetch_add(&seen_direct, bytes ? n : 0);
    return bytes;
}
void __wrap_ckpt__direct_leave(ckpt__direct *d, const unsigned char *bytes);
void __wrap_ckpt__direct_leave(ckpt__direct *d, const unsigned char *bytes)
{
    (void)d;
    free((void *)(uintptr_t)bytes);
}

static bool maps_here(void)
{
    make_scratch();
    put("probe", "x");
    bool is = files_are_mapped("probe");
    remove_scratch();
    return is;
}

/* ---- the places of a target */

static unsigned char (*host)[ROOM], (*seen)[ROOM], untouched[ROOM];
static void *on_device[DEVICES][STORAGES]; /* memory of each device for each storage; NULL: no device is used */
static ckpt__lanes lanes;

static const ckpt__device_ops *cuda_ops(void)
{
    return ckpt__device_ops_of(CKPT_DEVICE_CUDA);
}

static void open_devices(void)
{
    ckpt__lane *lane;
    for (int d = 0; d < DEVICES; d++) {
        ck_assert_msg(ckpt__lanes_get(&lanes, NULL, ckpt_cuda(d), &lane, &err) == CKPT_OK, "%s", err.message);
        for (int s = 0; s < STORAGES; s++)
            ck_assert_int_eq(cuda_ops()->alloc(d, ROOM, &on_device[d][s], &err), CKPT_OK);
    }
}

static void close_devices(void)
{
    ck_assert_int_eq(ckpt__lanes_close(&lanes, &err), CKPT_OK);
    for (int d = 0; d < DEVICES; d++)
        for (int s = 0; s < STORAGES; s++)
            ck_assert_int_eq(cuda_ops()->release(d, on_device[d][s], &err), CKPT_OK);
    memset(on_device, 0, sizeof on_device);
}

static void start(void)
{
    make_scratch();
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    host = malloc(STORAGES * sizeof *host);
    seen = malloc(STORAGES * sizeof *seen);
    memset(untouched, 0x5a, sizeof untouched);
}

static void finish(void)
{
    free(source);
    free(target);
    free(host);
    free(seen);
    remove_scratch();
}

/* Each storage of the target gets memory, somewhere, in which nothing was written. */
static void place_target(bool devices)
{
    for (int s = 0; s < STORAGES; s++) {
        ckpt__extent *e = &target->index->storages[s].extent;
        uint32_t d = devices ? (uint32_t)draw(DEVICES + 1) : DEVICES;
        e->place = d < DEVICES ? on_device[d][s] : host[s];
        e->device = 0;
        if (d < DEVICES)
            ck_assert(ckpt__index_device(target->index, ckpt_cuda((int)d), &e->device));
        ck_assert(ckpt__move_bytes(&lanes, d < DEVICES ? ckpt_cuda((int)d) : ckpt_cpu(), e->place, ckpt_cpu(),
                                   untouched, ROOM, &err) == CKPT_OK);
    }
}

static void look_at_target(void)
{
    for (int s = 0; s < STORAGES; s++) {
        const ckpt__extent *e = &target->index->storages[s].extent;
        ckpt_device from = e->device ? target->index->devices[e->device] : ckpt_cpu();
        ck_assert(ckpt__move_bytes(&lanes, ckpt_cpu(), seen[s], from, e->place, ROOM, &err) == CKPT_OK);
    }
}

/* ---- one case */

typedef struct one {
    uint64_t seed;
    made tensors[TENSORS];
    expected want;
    size_t count;
    ckpt__bond bonds[TENSORS];
    ckpt__op ops[TENSORS];
    ckpt__plan *plan;
    uint32_t victim;
    bool used; /* the victim is */
} one;

static void make_one(one *c, uint64_t seed, bool harms)
{
    c->seed = seed;
    c->count = make_case(seed, c->tensors, &c->want);
    ck_assert(add_case(c->tensors, c->count, &c->want, c->bonds, c->ops));
    c->victim = write_files(harms);
    c->used = false;
    for (size_t i = 0; c->victim < STORAGES && i < ROOM; i++)
        c->used |= c->want.readers[c->victim][i];
    ckpt__plan_want asked = {.from = source->index,
                             .to = target->index,
                             .bonds = c->bonds,
                             .bond_count = c->count,
                             .ops = c->ops,
                             .op_count = c->count,
                             .push = true};
    ck_assert_msg(ckpt__plan_new(&asked, &c->plan, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}

static void free_one(one *c)
{
    ckpt__plan_free(c->plan);
    ckpt__source_close(opened);
    ckpt__index_free(source->index);
    ckpt__index_free(target->index);
}

/* What is complete has its bytes, what is untouched none, and nothing else was written. */
static void compare_done(const one *c, const unsigned char *done)
{
    static expected alone;
    static unsigned char of_bond[STORAGES][ROOM];
    memset(of_bond, 0xff, sizeof of_bond);
    for (size_t i = 0; i < c->count; i++) {
        memset(&alone, 0, sizeof alone);
        add_expected(&alone, &c->tensors[i]);
        for (int s = 0; s < STORAGES; s++)
            for (size_t b = 0; b < ROOM; b++)
                if (alone.writers[s][b])
                    of_bond[s][b] = (unsigned char)i;
    }
    for (int s = 0; s < STORAGES; s++)
        for (size_t b = 0; b < ROOM; b++) {
            unsigned char i = of_bond[s][b], is = seen[s][b];
            bool old = is == 0x5a, new = is == c->want.bytes[s][b];
            if (i == 0xff ? !old : done[i] == CKPT__COMPLETE ? !new : done[i] == CKPT__UNTOUCHED && !old)
                ck_abort_msg("seed %llu, storage %d, byte %zu: %02x, of a bond that is %d", (unsigned long long)c->seed,
                             s, b, is, i == 0xff ? -1 : (int)done[i]);
        }
}

static ckpt_status push_one(const one *c, unsigned threads, uint64_t range, bool look_only, unsigned char *done,
                            ckpt__convert_counts *counts)
{
    ckpt__push_want want = {.plan = c->plan,
                            .source = opened,
                            .lanes = &lanes,
                            .check = true,
                            .look_only = look_only,
                            .threads = threads,
                            .range = range,
                            .cached_from = c->seed % 2, /* every other case maps its files, however small they are */
                            .past_cache = c->seed / 2 % 2,
                            .done = done,
                            .counts = counts};
    memset(done, 0, TENSORS * sizeof *done);
    return ckpt__push(&want, &err);
}

/* What the conversions cost, by pull. */
static void compare_counts(const one *c, const ckpt__convert_counts *counts)
{
    static unsigned char out[ROOM];
    ckpt__convert_counts pulled[TENSORS] = {{0}};
    ckpt__pull *p;
    ck_assert(ckpt__pull_new(c->plan, opened, true, 0, &p, &err) == CKPT_OK);
    for (uint32_t s = 0; s < STORAGES; s++) {
        memset(out, 0x5a, sizeof out);
        ck_assert(ckpt__pull_bytes(p, s, 0, ROOM, out, pulled, &err) == CKPT_OK);
        ck_assert_msg(memcmp(out, seen[s], ROOM) == 0, "seed %llu: push and pull differ", (unsigned long long)c->seed);
    }
    ckpt__pull_free(p);
    for (size_t i = 0; i < c->count; i++)
        ck_assert_msg(memcmp(&pulled[i], &counts[i], sizeof *pulled) == 0, "seed %llu: counts of bond %zu",
                      (unsigned long long)c->seed, i);
}

static void one_case(uint64_t seed, bool harms, bool devices)
{
    static one c;
    unsigned char done[TENSORS];
    ckpt__convert_counts counts[TENSORS] = {{0}};
    make_one(&c, seed, harms);
    place_target(devices);
    uint64_t range = chance(20) ? 0 : 1 + draw(chance(50) ? 20 : 400);
    unsigned threads = (unsigned)draw(chance(50) ? 9 : 17);
    if (chance(20)) {
        ckpt_status looked = push_one(&c, threads, range, true, done, NULL);
        ck_assert_int_eq(looked, c.used ? CKPT_E_DAMAGED : CKPT_OK);
        look_at_target();
        for (int s = 0; s < STORAGES; s++)
            ck_assert(memcmp(seen[s], untouched, ROOM) == 0);
    }
    ckpt_status status = push_one(&c, threads, range, false, done, counts);
    ck_assert_msg(status == (c.used ? CKPT_E_DAMAGED : CKPT_OK), "seed %llu: status %d, %s: %s",
                  (unsigned long long)seed, (int)status, err.object, err.message);
    look_at_target();
    compare_done(&c, done);
    if (status == CKPT_OK) {
        for (size_t i = 0; i < c.count; i++)
            ck_assert_int_eq(done[i], CKPT__COMPLETE);
        compare_counts(&c, counts);
    }
    free_one(&c);
}

static void all_cases(bool harms, bool devices, uint64_t first)
{
    uint64_t count = getenv("CKPT_TEST_FEW") ? 40 : devices ? CASES / 3 : CASES;
    start();
    if (devices)
        open_devices();
    for (uint64_t i = 0; i < count; i++)
        one_case(first + i, harms, devices);
    if (devices)
        close_devices();
    finish();
}

START_TEST(to_the_host)
{
    bool mapped = maps_here();
    const size_t times = getenv("CKPT_TEST_FEW") ? 1 : 100; /* at least so many, by the number of cases */
    atomic_store(&seen_cached, 0);
    atomic_store(&seen_direct, 0);
    all_cases(false, false, 7000);
    printf("# %zu bytes came from the page cache\n", atomic_load(&seen_cached));
    if (mapped)
        ck_assert_uint_gt(atomic_load(&seen_cached), 100 * times);
    printf("# %zu bytes came past the page cache\n", atomic_load(&seen_direct));
    ck_assert_uint_gt(atomic_load(&seen_direct), 50 * times);
}
END_TEST

START_TEST(to_devices)
{
    all_cases(false, true, 17000);
}
END_TEST

START_TEST(damage)
{
    all_cases(true, false, 27000);
}
END_TEST

START_TEST(damage_on_the_way_to_devices)
{
    all_cases(true, true, 37000);
}
END_TEST

/* The status, the error and what became of each bond are the same for any number of threads where the ranges fail one by one. */
START_TEST(the_first_error_counts)
{
    static one c;
    start();
    for (uint64_t seed = 47000; seed < 47200; seed++) {
        ckpt_error first = CKPT_ERROR_INIT;
        unsigned char done[TENSORS];
        make_one(&c, seed, true);
        for (uint32_t i = 0; i < STORAGES; i++) /* further wrong ones */
            if (source->index->storages[i].extent.size && chance(50))
                source->index->storages[i].extent.crc ^= 1;
        uint64_t range = 1 + draw(300);
        for (unsigned threads = 1; threads <= 8; threads++) {
            place_target(false);
            ckpt_status status = push_one(&c, threads, range, false, done, NULL);
            if (threads == 1)
                first = err;
            if (status < 0)
                ck_assert_msg(strcmp(first.object, err.object) == 0 && strcmp(first.message, err.message) == 0,
                              "seed %llu, %u threads: %s: %s, not %s: %s", (unsigned long long)seed, threads,
                              err.object, err.message, first.object, first.message);
        }
        free_one(&c);
    }
    finish();
}
END_TEST

/* ---- more than a slot, a range and a cache have */

static const int64_t cube[] = {3, 1200, 1100}, /* 15.8 MB of float32 */
    in_order[] = {1320000, 1100, 1}, turned[] = {1, 3, 3600}, rows[] = {1320000, 1, 1200},
                     padded[] = {1321200, 1101, 1};

typedef struct large {
    const int64_t *strides;
    ckpt_dtype to;
    int device; /* below 0: the host */
} large;

/* One source, and many places of it, in ways that have slots filled by packing, by rows and by runs. */
static const large places[] = {{in_order, CKPT_F32, -1}, {in_order, CKPT_F32, 0}, {turned, CKPT_F32, 0},
                               {rows, CKPT_F32, 1},      {padded, CKPT_F32, 1},   {in_order, CKPT_F64, 0},
                               {turned, CKPT_F64, 1},    {padded, CKPT_F64, -1},  {turned, CKPT_F32, -1}};
enum { PLACES = sizeof places / sizeof *places, NUMBERS = 3 * 1200 * 1100 };

static void compare_place(const large *l, const void *bytes, const float *values)
{
    size_t n = 0;
    for (int64_t i = 0; i < cube[0]; i++)
        for (int64_t j = 0; j < cube[1]; j++)
            for (int64_t k = 0; k < cube[2]; k++, n++) {
                size_t at = (size_t)(i * l->strides[0] + j * l->strides[1] + k * l->strides[2]);
                double is = l->to == CKPT_F64 ? ((const double *)bytes)[at] : (double)((const float *)bytes)[at];
                if (is != (double)values[n])
                    ck_abort_msg("place %d, element %zu: %f, not %f", (int)(l - places), n, is, (double)values[n]);
            }
}

static void add_large(ckpt__index *x, ckpt_dtype dtype, const int64_t *strides, uint64_t bytes)
{
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = s->extent.length = bytes;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s("large");
    t->info.dtype = dtype;
    t->info.ndim = 3;
    ck_assert_msg(ckpt__index_set_view(x, x->tensor_count - 1, x->storage_count - 1, cube, strides, 0, &err) == CKPT_OK,
                  "%s", err.message);
}

static void push_large(ckpt__index *from, ckpt__index *to, unsigned threads)
{
    ckpt__op ops[2];
    ckpt__bond bonds[PLACES] = {{0}};
    unsigned char done[PLACES] = {CKPT__UNTOUCHED};
    ckpt__plan *plan;
    for (int k = 0; k < 2; k++) {
        ckpt__op_want op = {.from = CKPT_F32, .to = k ? CKPT_F64 : CKPT_F32};
        ck_assert_int_eq(ckpt__op_make(&op, "large", &ops[k], &err), CKPT_OK);
    }
    for (uint32_t i = 0; i < PLACES; i++)
        bonds[i] = (ckpt__bond){.to = i, .op = places[i].to == CKPT_F64};
    ckpt__plan_want asked = {
        .from = from, .to = to, .bonds = bonds, .bond_count = PLACES, .ops = ops, .op_count = 2, .push = true};
    ck_assert_msg(ckpt__plan_new(&asked, &plan, &err) == CKPT_OK, "%s", err.message);
    ckpt__push_want want = {
        .plan = plan, .source = opened, .lanes = &lanes, .check = true, .threads = threads, .done = done};
    ck_assert_msg(ckpt__push(&want, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    for (uint32_t i = 0; i < PLACES; i++)
        ck_assert_int_eq(done[i], CKPT__COMPLETE);
    ckpt__plan_free(plan);
}

START_TEST(large_places)
{
    enum { ROOM_OF_ONE = (3 * 1321200 + 1101) * 8 };
    float *values = malloc(NUMBERS * sizeof *values);
    unsigned char *back = malloc(ROOM_OF_ONE);
    start();
    for (int i = 0; i < NUMBERS; i++)
        values[i] = (float)i;
    FILE *f = fopen("large", "w");
    ck_assert(f && fwrite(values, sizeof *values, NUMBERS, f) == NUMBERS && fclose(f) == 0);
    ck_assert_int_eq(ckpt__source_open("large", &opened, &err), CKPT_OK);
    open_devices();
    for (unsigned threads = 1; threads <= 4; threads += 3) {
        ckpt__index *from = ckpt__index_new(0), *to = ckpt__index_new(0);
        add_large(from, CKPT_F32, NULL, NUMBERS * sizeof *values);
        from->storages[0].extent.has_crc = true;
        from->storages[0].extent.crc = ckpt__crc32(0, values, NUMBERS * sizeof *values);
        for (int i = 0; i < PLACES; i++) {
            add_large(to, places[i].to, places[i].strides, ROOM_OF_ONE);
            ckpt__extent *e = &to->storages[i].extent;
            ckpt_device device = places[i].device < 0 ? ckpt_cpu() : ckpt_cuda(places[i].device);
            ck_assert(ckpt__index_device(to, device, &e->device));
            ck_assert_int_eq(ckpt__device_ops_of(device.type)
                                 ->alloc(device.index < 0 ? 0 : device.index, ROOM_OF_ONE, &e->place, &err),
                             CKPT_OK);
        }
        push_large(from, to, threads);
        for (int i = 0; i < PLACES; i++) {
            ckpt__extent *e = &to->storages[i].extent;
            ckpt_device device = to->devices[e->device];
            ck_assert(ckpt__move_bytes(&lanes, ckpt_cpu(), back, device, e->place, ROOM_OF_ONE, &err) == CKPT_OK);
            compare_place(&places[i], back, values);
            ck_assert_int_eq(
                ckpt__device_ops_of(device.type)->release(device.index < 0 ? 0 : device.index, e->place, &err),
                CKPT_OK);
        }
        ckpt__index_free(from);
        ckpt__index_free(to);
    }
    ckpt__source_close(opened);
    close_devices();
    free(values);
    free(back);
    finish();
}
END_TEST

/* Each allocation fails once: nothing is lost, and what is said to be done is. */
START_TEST(memory_is_short)
{
    static one c;
    start();
    open_devices();
    for (uint64_t seed = 57000; seed < 57040; seed++) {
        unsigned char done[TENSORS];
        make_one(&c, seed, false);
        unsigned threads = 1 + (unsigned)draw(3);
        uint64_t range = chance(50) ? 0 : 1 + draw(300);
        ckpt_status status = CKPT_E_NO_MEMORY;
        for (long n = 1; status != CKPT_OK; n++) {
            ck_assert_int_lt(n, 2000);
            place_target(chance(50));
            atomic_store(&allocations_left, n);
            status = push_one(&c, threads, range, false, done, NULL);
            atomic_store(&allocations_left, 0);
            ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "seed %llu, allocation %ld: %d, %s",
                          (unsigned long long)seed, n, (int)status, err.message);
            look_at_target();
            compare_done(&c, done);
        }
        free_one(&c);
    }
    close_devices();
    finish();
}
END_TEST

/* ---- page-locked memory is short */

static size_t room; /* bytes that one call may lock */

static ckpt_status lock_no_more(size_t size, void **out, ckpt_error *e)
{
    if (size > room)
        return ckpt__fail(e, CKPT_E_NO_MEMORY, "page-locked memory", "%zu bytes are too many", size);
    return cuda_ops()->host_alloc(size, out, e);
}

/* A ring has as many slots as there is memory for, half of them at a time, and one is enough for any number of threads. */
START_TEST(fewer_slots_where_memory_is_short)
{
    enum { WANTED = 24 };
    static const struct {
        size_t room, slots;
    } cases[] = {{WANTED, WANTED}, {WANTED - 1, 12}, {11, 6}, {5, 3}, {2, 1}, {1, 1}, {0, 0}};
    ckpt__device_ops own = *cuda_ops();
    static one c;
    own.host_alloc = lock_no_more;
    start();
    make_one(&c, 77000, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char done[TENSORS];
        size_t slots = 99;
        open_devices();
        lanes.ring_ops = &own;
        room = cases[i].room * CKPT__SLOT;
        ckpt_status status = ckpt__lanes_ring(&lanes, WANTED, &slots, &err);
        ck_assert_int_eq(status, cases[i].slots ? CKPT_OK : CKPT_E_NO_MEMORY);
        ck_assert_uint_eq(slots, cases[i].slots);
        for (size_t k = 0; k < CKPT__RING; k++)
            ck_assert_int_eq(lanes.ring[k].data != NULL, k < slots);
        room = SIZE_MAX; /* what looks at the target has slots of its own */
        place_target(true);
        room = cases[i].room * CKPT__SLOT;
        status = push_one(&c, 6, 0, false, done, NULL);
        ck_assert_msg(status == (slots ? CKPT_OK : CKPT_E_NO_MEMORY), "%zu slots: %d, %s", slots, (int)status,
                      err.message);
        room = SIZE_MAX;
        look_at_target();
        compare_done(&c, done);
        if (slots) { /* fewer are asked for: it is there already */
            void *first = lanes.ring[0].data;
            ck_assert_int_eq(ckpt__lanes_ring(&lanes, 1, &slots, &err), CKPT_OK);
            ck_assert_uint_eq(slots, 1);
            ck_assert_ptr_eq(lanes.ring[0].data, first);
        }
        lanes.ring_ops = cuda_ops();
        close_devices();
    }
    free_one(&c);
    finish();
}
END_TEST

/* ---- the driver fails */

#define FAKE(name) FAKECUDA_SYMBOL(standin, name)

/* The n-th call of the driver fails, once, while the threads make their slots, fill them and queue copies. Bytes are right or the failure
 * is said, whichever thread meets it. Memory that cannot be locked is no failure: the driver then makes its own. */
static const char *push_with_fault(const one *c, void *standin, uint64_t n, int code, unsigned threads, uint64_t range)
{
    unsigned char done[TENSORS];
    static char failed[64];
    open_devices();
    place_target(true);
    ck_assert_int_eq(ckpt__lanes_close(&lanes, &err), CKPT_OK);
    for (int d = 0; d < DEVICES; d++) { /* their ring is not made yet */
        ckpt__lane *lane;
        ck_assert_int_eq(ckpt__lanes_get(&lanes, NULL, ckpt_cuda(d), &lane, &err), CKPT_OK);
    }
    FAKE(fakecuda_fail_at)(n, code, 1);
    ckpt_status status = push_one(c, threads, range, false, done, NULL);
    const char *call = FAKE(fakecuda_failed_call)();
    snprintf(failed, sizeof failed, "%s", call ? call : "");
    FAKE(fakecuda_fail_at)(0, 0, 1);
    ck_assert_msg(status == CKPT_OK || *failed, "call %llu: %d, %s", (unsigned long long)n, (int)status, err.message);
    if (strncmp(failed, "cuMemHostRegister", strlen("cuMemHostRegister")) == 0)
        ck_assert_msg(status == CKPT_OK, "%s with %d: %s", failed, code, err.message);
    look_at_target();
    compare_done(c, done);
    for (size_t i = 0; status == CKPT_OK && i < c->count; i++)
        ck_assert_int_eq(done[i], CKPT__COMPLETE);
    close_devices();
    return failed;
}

START_TEST(driver_calls_fail)
{
    static const int codes[] = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE};
    enum { MOST_CALLS = 20000, FEW_SEEDS = 6 };
    static one c;
    size_t refused = 0, slots = 0;
    void *standin = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    start();
    open_devices();
    close_devices();
    standin = standin ? standin : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(standin);
    for (uint64_t seed = 67000; seed < 67000 + FEW_SEEDS; seed++) {
        make_one(&c, seed, false);
        unsigned threads = 1 + (unsigned)(seed - 67000) * 3; /* 1, 4, ... 16 */
        uint64_t range = 1 + draw(100), n = 1;
        for (; n < MOST_CALLS; n++) {
            const char *failed = push_with_fault(&c, standin, n, codes[n % 3], threads, range);
            refused += strncmp(failed, "cuMemHostRegister", strlen("cuMemHostRegister")) == 0;
            slots += strcmp(failed, "cuMemHostAlloc") == 0;
            if (!*failed)
                break;
        }
        ck_assert_uint_lt(n, MOST_CALLS);
        free_one(&c);
    }
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_eq(slots, 0);
    dlclose(standin);
    finish();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("push");
    TCase *t = tcase_create("push");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, to_the_host);
    tcase_add_test(t, to_devices);
    tcase_add_test(t, damage);
    tcase_add_test(t, damage_on_the_way_to_devices);
    tcase_add_test(t, the_first_error_counts);
    tcase_add_test(t, large_places);
    tcase_add_test(t, memory_is_short);
    tcase_add_test(t, fewer_slots_where_memory_is_short);
    tcase_add_test(t, driver_calls_fail);
    suite_add_tcase(s, t);
    return run_suite(s);
}
