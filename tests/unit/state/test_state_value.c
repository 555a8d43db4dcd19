/* test_state_value.c - values that the trainer writes and takes itself. */
#include "../run_fixture.h"
#include "../torch_emit.h"

/* A queue that grows: what the hooks write and take. */
typedef struct queue {
    unsigned char data[4096];
    size_t size;
    size_t most; /* check refuses more; 0: any */
    int measured, written, checked, taken;
    ckpt_status fails[4]; /* what measure, write, check, take answer */
    const char *why;      /* and say; NULL: nothing */
    size_t order;         /* when take was called */
} queue;

static size_t calls;

static ckpt_status answer(const queue *a, int which, ckpt_error *err)
{
    ck_assert_ptr_nonnull(err);
    if (a->fails[which] && a->why)
        snprintf(err->message, sizeof err->message, "%s", a->why);
    return a->fails[which];
}

static ckpt_status measure(void *ctx, uint64_t *size, ckpt_error *err)
{
    queue *q = ctx;
    q->measured++;
    *size = q->size;
    return answer(q, 0, err);
}

static ckpt_status write_queue(void *ctx, void *to, size_t size, ckpt_error *err)
{
    queue *q = ctx;
    q->written++;
    ck_assert_uint_eq(size, q->size);
    if (size)
        memcpy(to, q->data, size);
    return answer(q, 1, err);
}

static ckpt_status check(void *ctx, size_t size, ckpt_error *err)
{
    queue *q = ctx;
    q->checked++;
    if (q->most && size > q->most) {
        snprintf(err->message, sizeof err->message, "room for %zu is all that there is", q->most);
        return CKPT_E_LIMIT;
    }
    return answer(q, 2, err);
}

static ckpt_status take(void *ctx, const void *from, size_t size, ckpt_error *err)
{
    queue *q = ctx;
    q->taken++;
    q->order = ++calls;
    ck_assert_ptr_nonnull(from);
    if (q->fails[3])
        return answer(q, 3, err);
    ck_assert_uint_le(size, sizeof q->data);
    memcpy(q->data, from, size);
    q->size = size;
    return CKPT_OK;
}

static void fill_queue(queue *q, size_t size, unsigned seed)
{
    memset(q, 0, sizeof *q);
    q->size = size;
    for (size_t i = 0; i < size; i++)
        q->data[i] = (unsigned char)(i * 13 + seed);
}

static bool holds_queue(const queue *q, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        if (q->data[i] != (unsigned char)(i * 13 + seed))
            return false;
    return q->size == size;
}

static void bind_queue(ckpt_state *s, const char *name, queue *q)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_value_hooks h = CKPT_VALUE_HOOKS_INIT;
    h.ctx = q;
    h.measure = measure;
    h.write = write_queue;
    h.check = check;
    h.take = take;
    OK(ckpt_state_value(s, name, &h, &err));
}

static float w[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static queue q, rng;
static int64_t step;

static ckpt_state *bind_state(void)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, NULL, w);
    bind_queue(s, "loader.order", &q);
    bind_queue(s, "rng.loader", &rng);
    OK(ckpt_state_i64(s, "step", &step, &err));
    return s;
}

static ckpt_status saves(ckpt_state *s, const char *file, bool directory, ckpt_error *err)
{
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    o.directory = directory;
    return ckpt_save(s, in_folder(file), &o, err);
}

static ckpt_status restores(ckpt_state *s, const char *file, ckpt_report *r, ckpt_error *err)
{
    return ckpt_restore(s, in_folder(file), NULL, r, err);
}

START_TEST(it_is_written_and_taken_in_any_size)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const size_t sizes[] = {0, 1, 63, 64, 65, 4000};
    ckpt_state *s = bind_state();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int directory = 0; directory < 2; directory++) {
            ckpt_reader *reader;
            size_t t;
            fill_queue(&q, sizes[i], 5);
            fill_queue(&rng, 44, 6);
            OK(saves(s, directory ? "d" : "f", directory, &err));
            ck_assert(q.measured == 1 && q.written == 1);
            fill_queue(&q, 7, 99);
            fill_queue(&rng, 0, 0);
            OK(restores(s, directory ? "d" : "f", NULL, &err));
            ck_assert(holds_queue(&q, sizes[i], 5) && holds_queue(&rng, 44, 6));
            ck_assert(q.checked == 1 && q.taken == 1);
            OK(ckpt_reader_open(in_folder(directory ? "d" : "f"), NULL, &reader, &err));
            OK(ckpt_reader_find(reader, "loader.order", 12, &t, &err));
            const ckpt_tensor_info *info = ckpt_reader_tensor(reader, t);
            ck_assert(info->dtype == CKPT_U8 && info->ndim == 1 && info->shape[0] == (int64_t)sizes[i] &&
                      info->role == CKPT_ROLE_OTHER);
            ck_assert_str_eq(info->device.data, "cpu");
            OK(ckpt_reader_find(reader, "rng.loader", 10, &t, &err));
            ck_assert_int_eq(ckpt_reader_tensor(reader, t)->role, CKPT_ROLE_RNG);
            ckpt_reader_close(reader);
        }
    ckpt_verify_result v = CKPT_VERIFY_RESULT_INIT;
    OK(ckpt_verify(in_folder("f"), NULL, &v, NULL, &err));
    ckpt_state_free(s);
}
END_TEST

START_TEST(weights_alone_do_not_ask)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    ckpt_reader *reader;
    size_t t;
    ckpt_state *s = bind_state();
    fill_queue(&q, 100, 5);
    fill_queue(&rng, 44, 6);
    o.format = "safetensors";
    o.weights_only = o.lossy = true; /* the device's tag is lost */
    OK(ckpt_save(s, in_folder("weights"), &o, &err));
    ck_assert_int_eq(q.measured, 0);
    o.weights_only = false;
    OK(ckpt_save(s, in_folder("all"), &o, &err));
    OK(ckpt_reader_open(in_folder("all"), NULL, &reader, &err));
    OK(ckpt_reader_find(reader, "loader.order", 12, &t, &err));
    ckpt_reader_close(reader);
    ckpt_state_free(s);
}
END_TEST

START_TEST(a_save_that_a_hook_refuses_publishes_nothing)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = bind_state();
    fill_queue(&q, 10, 1);
    fill_queue(&rng, 10, 1);
    OK(saves(s, "f", false, &err));
    for (int which = 0; which < 2; which++)
        for (int kind = 0; kind < 3; kind++) {
            fill_queue(&q, 20, 2);
            q.fails[which] = kind == 2 ? CKPT_ANSWER_NO : CKPT_E_SYSTEM;
            q.why = kind == 1 ? NULL : "the disk\nof the loader is gone";
            for (int directory = 0; directory < 2; directory++) {
                ck_assert_int_eq(saves(s, directory ? "d" : "f", directory, &err),
                                 kind == 2 ? CKPT_E_ARGUMENT : CKPT_E_SYSTEM);
                ck_assert_str_eq(err.object, "loader.order");
                ck_assert_ptr_nonnull(strstr(err.message, which ? "'write'" : "'measure'"));
                ck_assert(kind == 1 || strstr(err.message, "loader is gone"));
            }
            q.fails[which] = CKPT_OK;
        }
    ck_assert_int_ne(access(in_folder("d"), F_OK), 0);
    OK(restores(s, "f", NULL, &err));
    ck_assert(holds_queue(&q, 10, 1));
    char command[160];
    snprintf(command, sizeof command, "test $(ls -A '%s' | wc -l) = 1", folder);
    ck_assert_int_eq(system(command), 0);
    ckpt_state_free(s);
}
END_TEST

START_TEST(check_speaks_before_the_first_byte)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    ckpt_state *s = bind_state();
    fill_queue(&q, 100, 1);
    fill_queue(&rng, 44, 1);
    step = 4;
    OK(saves(s, "f", false, &err));
    step = 5;
    w[0] = 77;
    fill_queue(&q, 3, 9);
    fill_queue(&rng, 3, 9);
    q.most = 99;
    rng.fails[2] = CKPT_ANSWER_NO; /* neither yes nor an error */
    ck_assert_int_eq(restores(s, "f", r, &err), CKPT_E_MISMATCH);
    const ckpt_finding *f = ckpt_report_find(r, "value-mismatch", "loader.order");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->message, "100 bytes"));
    ck_assert_ptr_nonnull(strstr(f->message, "room for 99 is all"));
    ck_assert_ptr_nonnull(ckpt_report_find(r, "value-mismatch", "rng.loader"));
    ck_assert(q.taken == 0 && rng.taken == 0 && w[0] == 77 && step == 5 && !ckpt_state_poisoned(s));
    q.most = 100;
    rng.fails[2] = CKPT_OK;
    OK(restores(s, "f", r, &err));
    ck_assert(w[0] == 1 && step == 4);
    w[0] = 1;
    ckpt_report_free(r);
    ckpt_state_free(s);
}
END_TEST

START_TEST(a_take_that_fails_poisons)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    ckpt_state *s = bind_state();
    bind_tensor(s, "ours", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, NULL, NULL);
    OK(ckpt_state_allocate(s, &err));
    fill_queue(&q, 100, 1);
    fill_queue(&rng, 44, 1);
    OK(saves(s, "f", false, &err));
    q.fails[3] = CKPT_E_NO_MEMORY;
    q.why = "no room for the order";
    ck_assert_int_eq(restores(s, "f", r, &err), CKPT_E_NO_MEMORY);
    ck_assert_str_eq(err.object, "loader.order");
    ck_assert_ptr_nonnull(strstr(err.message, "no room for the order"));
    ck_assert_ptr_nonnull(ckpt_report_find(r, "not-taken", "loader.order"));
    ck_assert(ckpt_state_poisoned(s));
    ck_assert_int_eq(saves(s, "g", false, &err), CKPT_E_POISONED);
    q.fails[3] = CKPT_STOP;
    q.why = NULL;
    ck_assert_int_eq(restores(s, "f", r, &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "loader.order");
    q.fails[3] = CKPT_OK;
    OK(restores(s, "f", r, &err));
    ck_assert(!ckpt_state_poisoned(s));
    ckpt_report_free(r);
    ckpt_state_free(s);
}
END_TEST

START_TEST(damaged_bytes_are_never_taken)
{
    ckpt_error err = CKPT_ERROR_INIT;
    unsigned char image[1 << 16], want[100];
    ckpt_state *s = bind_state();
    fill_queue(&q, 100, 1);
    fill_queue(&rng, 44, 1);
    memcpy(want, q.data, 100);
    OK(saves(s, "f", false, &err));
    FILE *f = fopen(in_folder("f"), "rb");
    size_t n = fread(image, 1, sizeof image, f), at = 0;
    fclose(f);
    while (at + 100 <= n && memcmp(image + at, want, 100) != 0)
        at++;
    ck_assert_uint_lt(at, n);
    image[at + 50] ^= 1;
    f = fopen(in_folder("f"), "wb");
    ck_assert_uint_eq(fwrite(image, 1, n, f), n);
    fclose(f);
    fill_queue(&q, 5, 5);
    w[0] = 77;
    ck_assert_int_eq(restores(s, "f", NULL, &err), CKPT_E_DAMAGED);
    ck_assert(q.taken == 0 && rng.taken == 0 && w[0] == 77 && !ckpt_state_poisoned(s));
    w[0] = 1;
    ckpt_state_free(s);
}
END_TEST

START_TEST(a_value_that_is_not_there)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_state *s = ckpt_state_new(), *t = bind_state();
    bind_tensor(s, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, NULL, w);
    OK(ckpt_state_i64(s, "step", &step, &err));
    OK(saves(s, "f", false, &err));
    fill_queue(&q, 5, 5);
    ck_assert_int_eq(restores(t, "f", r, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(ckpt_report_find(r, "missing", "loader.order"));
    o.allow_missing = true;
    OK(ckpt_restore(t, in_folder("f"), &o, r, &err));
    OK(ckpt_state_optional(t, "loader.*", &err));
    OK(ckpt_state_optional(t, "rng*", &err));
    OK(restores(t, "f", r, &err));
    ck_assert_ptr_nonnull(ckpt_report_find(r, "kept", "loader.order"));
    ck_assert(q.taken == 0 && holds_queue(&q, 5, 5));
    OK(saves(t, "g", false, &err));
    ck_assert_int_eq(restores(s, "g", r, &err), CKPT_E_MISMATCH); /* nobody takes it */
    ck_assert_ptr_nonnull(ckpt_report_find(r, "unexpected", "loader.order"));
    ckpt_report_free(r);
    ckpt_state_free(s);
    ckpt_state_free(t);
}
END_TEST

/* Fixed bytes and values of hooks read each other's files; tensors of bytes do as well, whatever their shape. */
START_TEST(bytes_and_tensors_are_values_too)
{
    ckpt_error err = CKPT_ERROR_INIT;
    unsigned char fixed[90], shaped[2][45];
    int8_t negative[90];
    for (size_t small = 10; small <= 90; small += 80) {
        ckpt_state *fixed_bytes = ckpt_state_new(), *value = ckpt_state_new();
        OK(ckpt_state_bytes(fixed_bytes, "b", fixed, small, &err));
        bind_queue(value, "b", &q);
        for (size_t i = 0; i < small; i++)
            fixed[i] = (unsigned char)(i * 13 + 3);
        OK(saves(fixed_bytes, "b", false, &err));
        fill_queue(&q, 0, 0);
        OK(restores(value, "b", NULL, &err));
        ck_assert(holds_queue(&q, small, 3));
        fill_queue(&q, small, 8);
        OK(saves(value, "v", false, &err));
        OK(restores(fixed_bytes, "v", NULL, &err));
        ck_assert(memcmp(fixed, q.data, small) == 0);
        q.size--;
        OK(saves(value, "v", false, &err));
        ck_assert_int_eq(restores(fixed_bytes, "v", NULL, &err), CKPT_E_MISMATCH);
        ck_assert_ptr_nonnull(strstr(err.message, "room for"));
        ckpt_state_free(fixed_bytes);
        ckpt_state_free(value);
    }
    ckpt_state *tensors = ckpt_state_new(), *values = ckpt_state_new();
    float f[3] = {0};
    for (size_t i = 0; i < 90; i++) {
        shaped[i / 45][i % 45] = (unsigned char)(i * 13 + 4);
        negative[i] = (int8_t)(unsigned char)(i * 13 + 5);
    }
    bind_tensor(tensors, "a", NULL, CKPT_ROLE_OTHER, CKPT_U8, 2, (int64_t[]){45, 2}, (int64_t[]){1, 45}, shaped);
    bind_tensor(tensors, "b", NULL, CKPT_ROLE_OTHER, CKPT_I8, 1, (int64_t[]){90}, NULL, negative);
    OK(saves(tensors, "t", false, &err));
    bind_queue(values, "a", &q);
    bind_queue(values, "b", &rng);
    OK(restores(values, "t", NULL, &err));
    ck_assert(holds_queue(&rng, 90, 5) && q.size == 90 && q.data[1] == shaped[1][0]); /* in C order */
    bind_tensor(tensors, "c", NULL, CKPT_ROLE_OTHER, CKPT_F32, 1, (int64_t[]){3}, NULL, f);
    OK(ckpt_state_i64(tensors, "d", &step, &err));
    OK(saves(tensors, "t", false, &err));
    bind_queue(values, "c", &q);
    bind_queue(values, "d", &q);
    ckpt_report *r = ckpt_report_new();
    ck_assert_int_eq(restores(values, "t", r, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(ckpt_report_find(r, "kind-mismatch", "c"));
    ck_assert_ptr_nonnull(ckpt_report_find(r, "kind-mismatch", "d"));
    ckpt_report_free(r);
    ckpt_state_free(tensors);
    ckpt_state_free(values);
}
END_TEST

/* torch keeps its generator's state so: a tensor of uint8 in a dict. */
START_TEST(a_torch_file_gives_its_bytes)
{
    static bytes pickle;
    static archive zip;
    ckpt_error err = CKPT_ERROR_INIT;
    unsigned char data[96];
    view v = {"ByteStorage", "0", "cpu", 96, 0, 2, 2, {8, 12}, {12, 1}};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 13 + 2);
    PUT(&pickle, "\x80\2}(");
    put_str(&pickle, "rng_state");
    put_tensor(&pickle, &v);
    PUT(&pickle, "u.");
    add_record(&zip, &(record){.name = "m/data.pkl", .data = pickle.data, .size = pickle.size});
    add_record(&zip, &(record){.name = "m/data/0", .data = data, .size = sizeof data, .deflate = true});
    add_record(&zip, &(record){.name = "m/version", .data = "3\n", .size = 2});
    put_end64(&zip, 0, 0, 0);
    FILE *f = fopen(in_folder("t.pt"), "wb");
    ck_assert_uint_eq(fwrite(zip.file.data, 1, zip.file.size, f), zip.file.size);
    fclose(f);
    ckpt_state *s = ckpt_state_new();
    fill_queue(&q, 0, 0);
    bind_queue(s, "rng_state", &q);
    OK(restores(s, "t.pt", NULL, &err));
    ck_assert(holds_queue(&q, 96, 2));
    ckpt_state_free(s);
}
END_TEST

START_TEST(replicas_all_take_it)
{
    ckpt_error err = CKPT_ERROR_INIT;
    queue one, two;
    ckpt_state *s = bind_state(), *many[2] = {ckpt_state_new(), ckpt_state_new()};
    ckpt_restore_options each[2] = {CKPT_RESTORE_OPTIONS_INIT, CKPT_RESTORE_OPTIONS_INIT};
    const ckpt_restore_options *options[2] = {&each[0], &each[1]};
    fill_queue(&q, 100, 1);
    fill_queue(&rng, 44, 1);
    OK(saves(s, "f", false, &err));
    for (int i = 0; i < 2; i++) {
        fill_queue(i ? &two : &one, 0, 0);
        bind_queue(many[i], "loader.order", i ? &two : &one);
        each[i].allow_unexpected = true;
    }
    OK(ckpt_restore_many(many, 2, in_folder("f"), options, NULL, &err));
    ck_assert(holds_queue(&one, 100, 1) && holds_queue(&two, 100, 1));
    one.fails[3] = CKPT_E_ARGUMENT; /* the second is not asked any more, and has the old value */
    ck_assert_int_eq(ckpt_restore_many(many, 2, in_folder("f"), options, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert(ckpt_state_poisoned(many[0]) && ckpt_state_poisoned(many[1]) && two.taken == 1);
    one.fails[3] = CKPT_OK;
    two.fails[3] = CKPT_E_ARGUMENT;
    ck_assert_int_eq(ckpt_restore_many(many, 2, in_folder("f"), options, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert(!ckpt_state_poisoned(many[0]) && ckpt_state_poisoned(many[1]));
    for (int i = 0; i < 2; i++)
        ckpt_state_free(many[i]);
    ckpt_state_free(s);
}
END_TEST

/* The hooks have been called when an asynchronous save returns; the bytes written are those of then. */
START_TEST(an_asynchronous_save_has_its_own)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    bind_queue(x.state, "queue", &q);
    trainer_start(&x, run);
    for (int i = 1; i <= 3; i++) {
        fill_queue(&q, (size_t)(1000 * i), (unsigned)i);
        set_step(&x.t, i);
        gate_set(true, 0);
        IS_OK(ckpt_run_save(x.run, i, &x.err));
        gate_meet(1);
        ck_assert(q.measured == 1 && q.written == 1);
        fill_queue(&q, 4096, 200);
        gate_set(false, 0);
        IS_OK(ckpt_run_wait(x.run, &x.err));
    }
    for (int i = 1; i <= 3; i++) {
        IS_OK(ckpt_restore(x.state, step_path(run, i), NULL, NULL, &x.err));
        ck_assert(holds_queue(&q, (size_t)(1000 * i), (unsigned)i));
    }
    /* A hook that fails fails the save, and the run goes on. */
    set_step(&x.t, 4);
    q.fails[1] = CKPT_E_SYSTEM;
    ck_assert_int_eq(ckpt_run_save(x.run, 4, &x.err) == CKPT_OK ? ckpt_run_wait(x.run, &x.err) : x.err.status,
                     CKPT_E_SYSTEM);
    ck_assert_str_eq(x.err.object, "queue");
    ck_assert(!is_there(step_path(run, 4)));
    q.fails[1] = CKPT_OK;
    set_step(&x.t, 5);
    IS_OK(ckpt_run_save(x.run, 5, &x.err));
    trainer_end(&x);
}
END_TEST

/* What the value took last counts for the limit of the snapshot: the save is made while the training waits. */
START_TEST(it_counts_for_the_limit)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    bind_queue(x.state, "queue", &q);
    x.o.snapshot_limit = 8 << 20;
    x.o.every_steps = 1;
    trainer_start(&x, run);
    fill_queue(&q, 4096, 1);
    STEPS(&x, 1, 2);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_uint_eq(heard(&x.news, "synchronous"), 0);
    x.state->values[0].last = 9 << 20;
    STEPS(&x, 3, 3);
    ck_assert_uint_eq(heard(&x.news, "synchronous"), 1);
    trainer_end(&x);
}
END_TEST

START_TEST(what_is_no_value)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_value_hooks h = CKPT_VALUE_HOOKS_INIT, whole = {0, &q, measure, write_queue, NULL, take};
    ckpt_state *s = bind_state();
    ck_assert_int_eq(ckpt_state_value(s, "x", &h, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_value(s, "x", NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_value(NULL, "x", &whole, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_value(s, "w", &whole, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_value(s, "ckpt.x", &whole, &err), CKPT_E_ARGUMENT);
    whole.struct_size = 100000;
    ck_assert_int_eq(ckpt_state_value(s, "x", &whole, &err), CKPT_E_ARGUMENT);
    whole.struct_size = sizeof whole;
    OK(ckpt_state_value(s, "x", &whole, &err)); /* without check any size will do */
    ck_assert_int_eq(ckpt_state_bytes(s, "x", w, 4, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_rebind(s, "x", w, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_resize(s, "x", w, 4, &err), CKPT_E_ARGUMENT);
    fill_queue(&q, 100, 1);
    fill_queue(&rng, 44, 1);
    OK(saves(s, "f", false, &err));
    OK(restores(s, "f", NULL, &err));
    q.size = SIZE_MAX; /* more than there can be */
    ck_assert_int_eq(saves(s, "g", false, &err), CKPT_E_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.object, "loader.order"));
    ckpt_state_free(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state value");
    TCase *t = tcase_create("value");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_run_folder, remove_folder);
    tcase_add_test(t, it_is_written_and_taken_in_any_size);
    tcase_add_test(t, weights_alone_do_not_ask);
    tcase_add_test(t, a_save_that_a_hook_refuses_publishes_nothing);
    tcase_add_test(t, check_speaks_before_the_first_byte);
    tcase_add_test(t, a_take_that_fails_poisons);
    tcase_add_test(t, damaged_bytes_are_never_taken);
    tcase_add_test(t, a_value_that_is_not_there);
    tcase_add_test(t, bytes_and_tensors_are_values_too);
    tcase_add_test(t, a_torch_file_gives_its_bytes);
    tcase_add_test(t, replicas_all_take_it);
    tcase_add_test(t, an_asynchronous_save_has_its_own);
    tcase_add_test(t, it_counts_for_the_limit);
    tcase_add_test(t, what_is_no_value);
    suite_add_tcase(s, t);
    return run_suite(s);
}
