/* Snapshots and saves of memory in every shape, on the host and on the devices of the stand-in, against a loop over the elements. */
#include "save/snapshot.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include "../runner.h"

#include "../child.h"
#include "../../fakecuda/fakecuda.h"
#include "state/state.h"

#define FAKE(name) ((__typeof__(name) *)(uintptr_t)driver_function(#name))
static void *driver_function(const char *name)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found = handle ? dlsym(handle, name) : NULL;
    REQUIRE(found);
    return found;
}

/* ---- copies that are counted, and threads */

const ckpt__device_ops *__real_ckpt__device_ops_of(ckpt_device_type type);
const ckpt__device_ops *__wrap_ckpt__device_ops_of(ckpt_device_type type);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);

static ckpt__device_ops counting;           /* the driver's, but for the two below */
static size_t copies, copied, threads_made; /* calls; bytes */

static ckpt_status count_copy(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *e)
{
    copies++;
    copied += n;
    return __real_ckpt__device_ops_of(CKPT_DEVICE_CUDA)->to_host(stream, dst, src, n, e);
}

static ckpt_status count_rows(ckpt__stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t rows, ckpt_error *e)
{
    copies++;
    copied += width * rows;
    return __real_ckpt__device_ops_of(CKPT_DEVICE_CUDA)
        ->to_host_2d(stream, dst, dst_pitch, src, src_pitch, width, rows, e);
}

const ckpt__device_ops *__wrap_ckpt__device_ops_of(ckpt_device_type type)
{
    const ckpt__device_ops *real = __real_ckpt__device_ops_of(type);
    if (type != CKPT_DEVICE_CUDA)
        return real;
    counting = *real;
    counting.to_host = count_copy;
    counting.to_host_2d = count_rows;
    return &counting;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    threads_made++;
    return __real_pthread_create(thread, attributes, start, arg);
}

/* ---- memory with tensors in it */

static uint32_t rng;
static uint32_t draw(uint32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(rng >> 4) * n) >> 28);
}

enum { BLOCKS = 16, TENSORS = 200, DIMS = 5 };

typedef struct memory {
    int device; /* -1: the host */
    size_t size;
    unsigned char *data, *bytes; /* its address, and where the test reads and writes it */
} memory;

typedef struct tensor {
    size_t block, at; /* bytes */
    size_t item;
    uint32_t ndim;
    int64_t shape[DIMS], strides[DIMS];
} tensor;

static memory blocks[BLOCKS];
static tensor tensors[TENSORS];
static size_t block_count, tensor_count;
static ckpt_state *state;

static size_t add_block(int device, size_t size)
{
    memory *m = &blocks[block_count];
    *m = (memory){.device = device, .size = size ? size : 1};
    if (device < 0) {
        m->data = m->bytes = malloc(m->size);
        REQUIRE(m->data);
    } else {
        void *p = NULL;
        REQUIRE_OK(ckpt__device_ops_of(CKPT_DEVICE_CUDA)->alloc(device, m->size, &p, &err));
        m->data = p;
        m->bytes = FAKE(fakecuda_peek)((uint64_t)(uintptr_t)p);
    }
    return block_count++;
}

static void fill_all(void)
{
    for (size_t i = 0; i < block_count; i++)
        for (size_t k = 0; k < blocks[i].size; k++)
            blocks[i].bytes[k] = (unsigned char)draw(256);
}

static ckpt_dtype dtype_of(size_t item)
{
    return item == 1 ? CKPT_U8 : item == 2 ? CKPT_BF16 : item == 4 ? CKPT_F32 : item == 8 ? CKPT_F64 : CKPT_C128;
}

static const char *name_of(size_t i)
{
    static char name[32];
    snprintf(name, sizeof name, "t%zu", i);
    return name;
}

static void bind(const tensor *t)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name_of(tensor_count);
    d.dtype = dtype_of(t->item);
    d.ndim = t->ndim;
    d.shape = t->shape;
    d.strides = t->strides;
    d.role = CKPT_ROLE_PARAM;
    d.data = blocks[t->block].data + t->at;
    REQUIRE_OK(ckpt_state_tensor(state, &d, &err));
    tensors[tensor_count++] = *t;
}

/* One of any shape, its dimensions in any order in memory, with room between them. */
static void bind_one(int device, uint32_t most)
{
    tensor t = {.item = (size_t)1 << draw(5), .ndim = draw(DIMS)};
    uint32_t order[DIMS];
    uint64_t reach = 1, last = 0;
    for (uint32_t i = 0; i < t.ndim; i++) {
        uint32_t k = draw(i + 1);
        t.shape[i] = draw(20) ? 1 + draw(most) : 0;
        order[i] = order[k];
        order[k] = i;
    }
    for (uint32_t i = 0; i < t.ndim; i++) {
        t.strides[order[i]] = (int64_t)reach;
        reach *= (uint64_t)(t.shape[order[i]] ? t.shape[order[i]] : 1);
        reach += draw(3) ? 0 : draw(8) * (draw(4) ? 1 : reach);
    }
    for (uint32_t i = 0; i < t.ndim; i++)
        last += (uint64_t)(t.shape[i] ? (t.shape[i] - 1) * t.strides[i] : 0);
    t.at = t.item * draw(4);
    t.block = add_block(device, t.at + (last + 1) * t.item);
    bind(&t);
}

/* `count` shards of the columns of one matrix. */
static size_t bind_columns(int device, int64_t rows, int64_t width, int64_t count, size_t item)
{
    size_t block = add_block(device, (size_t)(rows * width * count) * item);
    for (int64_t i = 0; i < count; i++)
        bind(&(tensor){block, (size_t)(i * width) * item, item, 2, {rows, width}, {width * count, 1}});
    return block;
}

/* An arena of tensors of `numel` elements, `pitch` bytes apart. */
static size_t bind_arena(int device, size_t count, int64_t numel, size_t pitch)
{
    static char names[TENSORS][32];
    ckpt_arena_entry entries[TENSORS];
    ckpt_arena_desc d = CKPT_ARENA_DESC_INIT;
    size_t block = add_block(device, count * pitch);
    d.data = blocks[block].data;
    d.nbytes = count * pitch;
    d.dtype = CKPT_F32;
    d.role = CKPT_ROLE_PARAM;
    for (size_t i = 0; i < count; i++) {
        tensor *t = &tensors[tensor_count];
        snprintf(names[i], sizeof names[i], "%s", name_of(tensor_count++));
        *t = (tensor){block, i * pitch, 4, 1, {numel}, {1}};
        entries[i] = (ckpt_arena_entry){names[i], i * pitch, 1, t->shape};
    }
    REQUIRE_OK(ckpt_state_arena(state, &d, entries, count, &err));
    return block;
}

/* A tensor that is not in an arena goes to memory of its own, of the same device. */
static void move_one(size_t i)
{
    tensor *t = &tensors[i];
    const memory *m = &blocks[t->block];
    ckpt_error refused = CKPT_ERROR_INIT;
    if (block_count == BLOCKS)
        return;
    size_t block = add_block(m->device, m->size);
    ckpt_status status = ckpt_state_rebind(state, name_of(i), blocks[block].data + t->at, &refused);
    REQUIRE(status == CKPT_OK || strstr(refused.message, "arena"));
    t->block = status == CKPT_OK ? block : t->block;
}

static void begin(void)
{
    block_count = tensor_count = 0;
    state = ckpt_state_new();
    REQUIRE(state);
}

static void end(void)
{
    ckpt_state_free(state);
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].device < 0)
            free(blocks[i].data);
        else
            REQUIRE_OK(ckpt__device_ops_of(CKPT_DEVICE_CUDA)->release(blocks[i].device, blocks[i].data, &err));
}

/* The elements of a tensor in C order, as they are now. */
static size_t elements_of(const tensor *t, unsigned char **out)
{
    size_t n = 1;
    for (uint32_t i = 0; i < t->ndim; i++)
        n *= (size_t)t->shape[i];
    *out = malloc(n * t->item + 1);
    for (size_t e = 0; e < n; e++) {
        size_t rest = e, at = 0;
        for (uint32_t i = t->ndim; i-- > 0; rest /= (size_t)t->shape[i])
            at += rest % (size_t)t->shape[i] * (size_t)t->strides[i];
        memcpy(*out + e * t->item, blocks[t->block].bytes + t->at + at * t->item, t->item);
    }
    return n * t->item;
}

typedef struct wanted {
    unsigned char *bytes[TENSORS];
    size_t size[TENSORS];
} wanted;

static void note(wanted *w)
{
    for (size_t i = 0; i < tensor_count; i++)
        w->size[i] = elements_of(&tensors[i], &w->bytes[i]);
}

static void drop(wanted *w)
{
    for (size_t i = 0; i < tensor_count; i++)
        free(w->bytes[i]);
}

/* Every tensor, asked for in parts of any length, and now and then another one before its end. */
static void compare(const ckpt__payload *payload, const wanted *w)
{
    for (size_t i = 0; i < tensor_count; i++) {
        unsigned char *got = malloc(w->size[i] + 1);
        size_t stop = draw(4) ? w->size[i] : draw((uint32_t)w->size[i] + 1);
        for (size_t at = 0, n; at < stop; at += n) {
            n = 1 + draw((uint32_t)(stop - at));
            REQUIRE_OK(payload->read(payload->ctx, CKPT__PAYLOAD, i, at, got + at, n, &err));
        }
        REQUIRE(memcmp(got, w->bytes[i], stop) == 0);
        free(got);
    }
}

static void compare_live(const wanted *w)
{
    ckpt__state_index saved = {.index = NULL};
    ckpt__live live = {.state = NULL};
    ckpt__payload payload;
    REQUIRE_OK(ckpt__state_index_take(state, false, "test", &saved, &err));
    REQUIRE_OK(ckpt__live_open(&live, state, &saved, &payload, &err));
    compare(&payload, w);
    REQUIRE_OK(ckpt__live_close(&live, &err));
    ckpt__state_index_free(&saved);
}

/* ---- random states */

static void random_states(const void *arg)
{
    ckpt__snapshot snapshot = {.host = NULL};
    for (uint32_t seed = ((const uint32_t *)arg)[0]; seed < ((const uint32_t *)arg)[1]; seed++) {
        wanted w;
        ckpt__payload payload;
        rng = seed * 7919 + 1;
        begin();
        for (uint32_t n = draw(8); n-- > 0;)
            bind_one((int)draw(3) - 1, draw(10) ? 6 : 40);
        if (draw(2))
            bind_columns((int)draw(3) - 1, 1 + draw(40), 1 + draw(9), 1 + draw(8), (size_t)1 << draw(4));
        if (draw(2))
            bind_arena((int)draw(3) - 1, 1 + draw(30), 1 + draw(5), 20 + 4 * draw(300));
        if (draw(2)) /* side by side, on both sides */
            bind_arena((int)draw(3) - 1, 1 + draw(20), 16, 64);
        bool aliased = false;
        int64_t step = 0;
        REQUIRE_OK(ckpt_state_i64(state, "step", &step, &err));
        for (int round = 0; round < 4; round++) {
            step = round;
            fill_all();
            note(&w);
            compare_live(&w);
            REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, draw(5), "test", &err));
            ckpt__snapshot_payload(&snapshot, &payload);
            fill_all(); /* the trainer goes on */
            step = -5;
            REQUIRE(snapshot.saved.step == round && snapshot.saved.root &&
                    snapshot.saved.index->tensor_count == tensor_count + snapshot.saved.aliases);
            REQUIRE(snapshot.saved.aliases == aliased);
            compare(&payload, &w);
            if (snapshot.saved.aliases) { /* the bytes of the first tensor */
                unsigned char *got = malloc(w.size[0] + 1);
                size_t number = snapshot.saved.bindings;
                REQUIRE_OK(payload.read(payload.ctx, CKPT__PAYLOAD, number, 0, got, w.size[0], &err));
                REQUIRE(memcmp(got, w.bytes[0], w.size[0]) == 0);
                free(got);
            }
            drop(&w);
            if (round == 1 && tensor_count && (aliased = true))
                REQUIRE_OK(ckpt_state_alias(state, "alias", "t0", &err));
            if (round == 2 && draw(2))
                bind_one((int)draw(3) - 1, 4); /* the plan of before is none any more */
            if (tensor_count && draw(2))
                move_one(draw((uint32_t)tensor_count)); /* nor is it now */
        }
        end();
    }
    ckpt__snapshot_free(&snapshot);
}

/* ---- large ones: several units, windows and buffers */

static void large(const void *arg)
{
    ckpt__snapshot snapshot = {.host = NULL};
    ckpt__payload payload;
    wanted w;
    unsigned threads = *(const unsigned *)arg;
    rng = 5;
    begin();
    for (int device = -1; device < 2; device += 2) {
        size_t block = add_block(device, 24 << 20);
        bind(&(tensor){block, 0, 4, 2, {3 << 10, 2 << 10}, {1, 3 << 10}}); /* transposed: 24 MiB */
        block = add_block(device, 40 << 20);
        bind(&(tensor){block, 3, 1, 1, {37 << 20}, {1}});
        bind_columns(device, 1 << 10, 1 << 9, 8, 4);
        block = add_block(device, 32 << 20); /* transposed shards: 4 of 8 columns of a row are none of it */
        bind(&(tensor){block, 0, 2, 2, {1 << 9, 4 << 10}, {1, 4 << 10}});
        bind(&(tensor){block, 4 << 10, 2, 3, {4, 1 << 7, 4 << 10}, {1 << 8, 2, 4 << 10}});
        block = add_block(device, 36 << 20); /* a third of its outer dimension spans more than a buffer */
        bind(&(tensor){block, 0, 2, 3, {3, 64, 5000}, {6 << 20, 1, 1 << 10}});
    }
    fill_all();
    note(&w);
    compare_live(&w);
    REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, threads, "test", &err)); /* makes room, by threads of its own */
    size_t made = threads_made;
    REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, threads, "test", &err));
    REQUIRE(threads_made - made == threads - 1);
    fill_all();
    ckpt__snapshot_payload(&snapshot, &payload);
    compare(&payload, &w);
    drop(&w);
    ckpt__snapshot_free(&snapshot);
    end();
}

/* ---- what it costs */

/* Eight shards of the columns of one matrix take their own bytes, and not eight times the matrix. */
static void columns(const void *arg)
{
    ckpt__snapshot snapshot = {.host = NULL};
    ckpt__snapshot_need need;
    enum { ROWS = 512, WIDTH = 256, COUNT = 8 };
    const size_t all = (size_t)ROWS * WIDTH * COUNT * 4;
    (void)arg;
    begin();
    bind_columns(1, ROWS, WIDTH, COUNT, 4);
    fill_all();
    REQUIRE(ckpt__snapshot_measure(state, &need) && need.host == 0 && need.pinned == all);
    REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, 1, "test", &err));
    REQUIRE(copies == COUNT && copied == all);
    ckpt__snapshot_free(&snapshot);
    wanted w;
    note(&w);
    copies = copied = 0;
    rng = 1;
    compare_live(&w);
    REQUIRE(copied <= all + all / 8);
    drop(&w);
    end();
}

/* Neighbours in an arena come over together; what lies far apart does not, and what lies in no arena neither. */
static void neighbours(const void *arg)
{
    (void)arg;
    for (int far = 0; far < 2; far++) {
        ckpt__snapshot snapshot = {.host = NULL};
        begin();
        bind_arena(0, 100, 8, far ? 4096 : 256);
        bind_arena(1, 50, 8, far ? 4096 : 256);
        fill_all();
        copies = copied = 0;
        REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, 1, "test", &err));
        REQUIRE(copies == (far ? 150 : 2));
        REQUIRE(copied == (far ? 150 * 32 : 99 * 256 + 32 + 49 * 256 + 32));
        ckpt__snapshot_free(&snapshot);
        end();
    }
    begin();
    size_t block = add_block(0, 4096);
    for (size_t i = 0; i < 4; i++)
        bind(&(tensor){block, i * 64, 4, 1, {16}, {1}});
    ckpt__snapshot snapshot = {.host = NULL};
    fill_all();
    copies = 0;
    REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, 1, "test", &err));
    REQUIRE(copies == 4); /* nobody has said that they are one allocation */
    ckpt__snapshot_free(&snapshot);
    end();
}

/* What is bound and where it lies is known by the state's version: one snapshot is taken of several states, of memory that comes
 * and goes. */
static void moves(const void *arg)
{
    ckpt__snapshot snapshot = {.host = NULL};
    ckpt__payload payload;
    wanted w;
    (void)arg;
    rng = 9;
    for (int round = 0; round < 6; round++) {
        begin();
        bind_arena(-1, 6, 16, 64);
        fill_all();
        note(&w);
        REQUIRE(!ckpt__snapshot_is_ready(&snapshot, state));
        REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, 1, "test", &err));
        REQUIRE(snapshot.copy_count == 1); /* six tensors in one piece */
        REQUIRE(ckpt__snapshot_is_ready(&snapshot, state));
        ckpt__snapshot_payload(&snapshot, &payload);
        compare(&payload, &w);
        drop(&w);
        size_t block = add_block(-1, 64);
        bind(&(tensor){block, 0, 4, 1, {16}, {1}});
        REQUIRE(!ckpt__snapshot_is_ready(&snapshot, state));
        for (int again = 0; again < 3; again++) {
            fill_all();
            note(&w);
            REQUIRE_OK(ckpt__snapshot_take(&snapshot, state, 0, 1, "test", &err));
            REQUIRE(ckpt__snapshot_is_ready(&snapshot, state));
            ckpt__snapshot_payload(&snapshot, &payload);
            compare(&payload, &w);
            drop(&w);
            move_one(6);
        }
        REQUIRE_OK(ckpt_state_rebind(state, "t6", NULL, &err));
        REQUIRE(ckpt__snapshot_take(&snapshot, state, 0, 1, "test", &err) == CKPT_E_ARGUMENT);
        REQUIRE(strstr(err.message, "bound to NULL"));
        end();
    }
    ckpt__snapshot_free(&snapshot);
}

/* ---- failures */

static void each_call_fails(const void *arg)
{
    bool live = *(const int *)arg;
    rng = 3;
    begin();
    bind_columns(1, 64, 16, 4, 4);
    size_t block = add_block(0, 64 << 10);
    bind(&(tensor){block, 0, 2, 2, {64, 64}, {1, 128}});
    bind(&(tensor){block, 32 << 10, 4, 3, {8, 8, 16}, {1, 512, 16}});
    bind_one(-1, 6);
    bind_arena(0, 20, 3, 32);
    fill_all();
    wanted w;
    note(&w);
    for (uint64_t n = 1;; n++) {
        fakecuda_counts before, after;
        ckpt__snapshot snapshot = {.host = NULL};
        ckpt__state_index saved = {.index = NULL};
        ckpt__live l = {.state = NULL};
        ckpt__payload payload;
        FAKE(fakecuda_live)(&before);
        FAKE(fakecuda_fail_at)(n, 999, 1);
        ckpt_status status;
        if (live) {
            status = ckpt__state_index_take(state, false, "test", &saved, &err);
            if (status == CKPT_OK)
                status = ckpt__live_open(&l, state, &saved, &payload, &err);
            for (size_t i = 0; status == CKPT_OK && i < tensor_count; i++) {
                unsigned char *got = malloc(w.size[i] + 1);
                if (w.size[i])
                    status = payload.read(payload.ctx, CKPT__PAYLOAD, i, 0, got, w.size[i], &err);
                REQUIRE(status < 0 || memcmp(got, w.bytes[i], w.size[i]) == 0);
                free(got);
            }
            ckpt_status closed = ckpt__live_close(&l, status < 0 ? NULL : &err);
            status = status < 0 ? status : closed;
            ckpt__state_index_free(&saved);
        } else {
            status = ckpt__snapshot_take(&snapshot, state, 0, 2, "test", &err);
            ckpt__snapshot_payload(&snapshot, &payload);
            if (status == CKPT_OK)
                compare(&payload, &w);
            ckpt__snapshot_free(&snapshot);
        }
        bool failed = FAKE(fakecuda_failed_call)() != NULL;
        FAKE(fakecuda_fail_at)(0, 0, 1);
        FAKE(fakecuda_live)(&after);
        REQUIRE(failed || status == CKPT_OK);
        REQUIRE(status == CKPT_OK || status == CKPT_E_DEVICE);
        REQUIRE(after.host == before.host && after.streams == before.streams && after.events == before.events);
        REQUIRE(after.pending == 0 && after.pushed == before.pushed);
        if (!failed)
            break;
        REQUIRE(n < 1000);
    }
    drop(&w);
    end();
}

static const char *const two[] = {"FAKECUDA_DEVICES=2", NULL};
static const char *const reversed[] = {"FAKECUDA_DEVICES=2", "FAKECUDA_REVERSE=1", NULL};

START_TEST(every_shape_is_copied_and_read)
{
    for (uint32_t i = 0; i < 4; i++)
        expect_success(random_states, (uint32_t[]){i * 20, i * 20 + 20}, i % 2 ? reversed : two);
}
END_TEST

START_TEST(large_tensors)
{
    for (unsigned threads = 1; threads < 4; threads += 2)
        expect_success(large, &threads, threads == 1 ? two : reversed);
}
END_TEST

START_TEST(column_shards_take_their_own_bytes)
{
    expect_success(columns, NULL, two);
}
END_TEST

START_TEST(neighbours_come_together)
{
    expect_success(neighbours, NULL, two);
}
END_TEST

START_TEST(what_moves_is_seen)
{
    expect_success(moves, NULL, two);
}
END_TEST

START_TEST(each_driver_call_fails_in_turn)
{
    for (int live = 0; live < 2; live++)
        expect_success(each_call_fails, &live, two);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("snapshot");
    TCase *t = tcase_create("snapshot");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_shape_is_copied_and_read);
    tcase_add_test(t, large_tensors);
    tcase_add_test(t, column_shards_take_their_own_bytes);
    tcase_add_test(t, neighbours_come_together);
    tcase_add_test(t, what_moves_is_seen);
    tcase_add_test(t, each_driver_call_fails_in_turn);
    suite_add_tcase(s, t);
    return run_suite(s);
}
