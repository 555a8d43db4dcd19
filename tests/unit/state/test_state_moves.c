/* test_state_moves.c - memory that moves, values that change their size, integers of every width. */
#include "../run_fixture.h"

static float from[64], to[64];

static void number(float *p, size_t n, float first)
{
    for (size_t i = 0; i < n; i++)
        p[i] = first + (float)i;
}

static ckpt_state *one_tensor(float *data)
{
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){16}, NULL, data);
    return s;
}

static ckpt_status saved_as(ckpt_state *s, const char *file, ckpt_error *err)
{
    return ckpt_save(s, in_folder(file), NULL, err);
}

static void arena_of(ckpt_state *s, const char *name, ckpt_role role, void *data, ckpt_error *e)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_arena_entry entries[] = {{"a", 0, 1, (int64_t[]){4}}, {"b", 16, 2, (int64_t[]){2, 2}}};
    ckpt_arena_desc d = CKPT_ARENA_DESC_INIT;
    (void)e;
    d.name = name;
    d.role = role;
    d.dtype = CKPT_F32;
    d.nbytes = 32;
    d.data = data;
    OK(ckpt_state_arena(s, &d, entries, 2, &err));
}

START_TEST(a_tensor_moves)
{
    ckpt_error err = CKPT_ERROR_INIT;
    number(from, 16, 1);
    number(to, 16, 100);
    ckpt_state *s = one_tensor(from);
    OK(ckpt_state_alias(s, "tied", "w", &err));
    OK(ckpt_state_rebind(s, "w", to, &err));
    ck_assert_ptr_eq(ckpt_state_data(s, "w"), to);
    OK(saved_as(s, "a", &err));
    OK(ckpt_state_rebind(s, "tied", from, &err)); /* an alias's name means its tensor */
    ck_assert_ptr_eq(ckpt_state_data(s, "w"), from);
    OK(ckpt_restore(s, in_folder("a"), NULL, NULL, &err));
    ck_assert(from[0] == 100 && from[15] == 115);
    ck_assert_int_eq(ckpt_state_rebind(s, "nobody", to, &err), CKPT_E_NOT_FOUND);
    ck_assert_str_eq(err.object, "nobody");
    ck_assert_int_eq(ckpt_state_rebind(NULL, "w", to, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_rebind(s, NULL, to, &err), CKPT_E_ARGUMENT);
    ckpt_state_free(s);
}
END_TEST

/* Freed memory cannot be told from memory that is in use, NULL can. */
START_TEST(nothing_is_saved_or_restored_from_null)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options weights = CKPT_SAVE_OPTIONS_INIT;
    double lr = 0.5;
    ckpt_hyper hyper = {"lr", CKPT_SCALAR_F64, &lr};
    const char *const params[] = {"w"};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    number(from, 16, 1);
    ckpt_state *s = one_tensor(from);
    g.name = "0";
    g.params = params;
    g.hypers = &hyper;
    g.param_count = g.hyper_count = 1;
    OK(ckpt_state_group(s, &g, &err));
    OK(saved_as(s, "a", &err));
    OK(ckpt_state_rebind(s, "w", NULL, &err));
    ck_assert_ptr_null(ckpt_state_data(s, "w"));
    ck_assert_int_eq(saved_as(s, "a", &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "w");
    ck_assert_ptr_nonnull(strstr(err.message, "ckpt_state_rebind"));
    ck_assert_int_eq(ckpt_restore(s, in_folder("a"), NULL, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "w");
    ck_assert(!ckpt_state_poisoned(s));
    OK(ckpt_guard(s, CKPT_OPTIMIZER_PLAIN, NULL, NULL, &err));
    OK(ckpt_state_rebind(s, "optimizer.groups.0.lr", NULL, &err));
    ck_assert_int_eq(saved_as(s, "a", &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "1 other"));
    OK(ckpt_state_rebind(s, "w", to, &err));
    ck_assert_int_eq(saved_as(s, "a", &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "optimizer.groups.0.lr");
    weights.weights_only = true; /* no value is in such a file */
    OK(ckpt_save(s, in_folder("weights"), &weights, &err));
    double moved = 0.25;
    OK(ckpt_state_rebind(s, "optimizer.groups.0.lr", &moved, &err));
    OK(ckpt_restore(s, in_folder("a"), NULL, NULL, &err));
    ck_assert(moved == 0.5 && to[3] == 4);
    ckpt_state_free(s);
}
END_TEST

START_TEST(overlaps_are_refused_and_nothing_changes)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = one_tensor(from);
    bind_tensor(s, "x", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){16}, NULL, from + 16);
    bind_tensor(s, "even", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, (int64_t[]){2}, from + 32);
    ck_assert_int_eq(ckpt_state_rebind(s, "w", from + 8, &err), CKPT_E_MISMATCH);
    ck_assert_str_eq(err.object, "w");
    ck_assert_ptr_nonnull(strstr(err.message, "'x'"));
    ck_assert_ptr_eq(ckpt_state_data(s, "w"), from);
    ck_assert_int_eq(ckpt_state_rebind(s, "w", from + 40, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "'even'"));
    ck_assert_int_eq(ckpt_state_rebind(s, "even", from + 10, &err), CKPT_E_MISMATCH);
    OK(ckpt_state_rebind(s, "even", from + 33, &err)); /* over its own old place */
    OK(ckpt_state_rebind(s, "w", from, &err));         /* where it is */
    OK(ckpt_state_rebind(s, "x", to, &err));
    OK(ckpt_state_rebind(s, "w", from + 4, &err)); /* its own old place does not count, and x is gone */
    ck_assert_int_eq(ckpt_state_rebind(s, "x", from + 19, &err), CKPT_E_MISMATCH);
    OK(ckpt_state_rebind(s, "x", from + 48, &err));
    OK(ckpt_state_rebind(s, "w", NULL, &err));
    OK(ckpt_state_rebind(s, "x", from, &err)); /* w has no place now */
    ck_assert_int_eq(ckpt_state_rebind(s, "w", from + 15, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_null(ckpt_state_data(s, "w"));
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = "late";
    d.dtype = CKPT_F32;
    d.ndim = 1;
    d.shape = (int64_t[]){2};
    d.data = from + 15;
    ck_assert_int_eq(ckpt_state_tensor(s, &d, &err), CKPT_E_MISMATCH); /* a bind sees what moved */
    ckpt_state_free(s);
}
END_TEST

START_TEST(an_arena_moves_as_one)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    number(from, 64, 1);
    arena_of(s, "params", CKPT_ROLE_PARAM, from, &err);
    arena_of(s, "moments", CKPT_ROLE_EXP_AVG, from + 8, &err);
    arena_of(s, NULL, CKPT_ROLE_EXP_AVG_SQ, from + 16, &err);
    OK(saved_as(s, "a", &err));
    number(from, 64, 500);
    ck_assert_int_eq(ckpt_state_rebind(s, "params", from + 1, &err),
                     CKPT_E_MISMATCH); /* b would lie over the moments */
    ck_assert_ptr_eq(ckpt_state_data(s, "a"), from);
    ck_assert_ptr_eq(ckpt_state_data(s, "b"), from + 4);
    memmove(from + 25, from, 32);
    OK(ckpt_state_rebind(s, "params", from + 25, &err));
    OK(ckpt_state_rebind(s, "params", from + 27, &err)); /* a shift over itself */
    ck_assert_ptr_eq(ckpt_state_data(s, "a"), from + 27);
    ck_assert_ptr_eq(ckpt_state_data(s, "b"), from + 31);
    OK(ckpt_restore(s, in_folder("a"), NULL, NULL, &err));
    ck_assert(from[27] == 1 && from[34] == 8 && from[8] == 9);
    ck_assert_int_eq(ckpt_state_rebind(s, "b", to, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "'params'"));
    ck_assert_int_eq(ckpt_state_rebind(s, "optimizer.a.exp_avg_sq", to, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "ckpt_arena_desc.name"));
    OK(ckpt_state_rebind(s, "moments", NULL, &err));
    ck_assert_int_eq(saved_as(s, "b", &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "optimizer.a.exp_avg");
    ck_assert_ptr_nonnull(strstr(err.message, "'moments'"));
    OK(ckpt_state_rebind(s, "moments", to, &err));
    OK(saved_as(s, "b", &err));
    /* The name of an arena is a name like another. */
    int64_t n = 0;
    ck_assert_int_eq(ckpt_state_i64(s, "moments", &n, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_alias(s, "late", "moments", &err), CKPT_E_NOT_FOUND);
    ck_assert_ptr_null(ckpt_state_data(s, "moments"));
    ckpt_state_free(s);
}
END_TEST

START_TEST(what_is_ours_does_not_move)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    arena_of(s, "ours", CKPT_ROLE_PARAM, NULL, &err);
    bind_tensor(s, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){4}, NULL, NULL);
    for (int made = 0; made < 2; made++) {
        ck_assert_int_eq(ckpt_state_rebind(s, "w", to, &err), CKPT_E_ARGUMENT);
        ck_assert_int_eq(ckpt_state_rebind(s, "a", to, &err), CKPT_E_ARGUMENT);
        ck_assert_int_eq(ckpt_state_rebind(s, "ours", to, &err), CKPT_E_ARGUMENT);
        ck_assert_str_eq(err.object, "ours");
        OK(ckpt_state_allocate(s, &err));
    }
    ckpt_state_free(s);
}
END_TEST

START_TEST(variables_move)
{
    ckpt_error err = CKPT_ERROR_INIT;
    int64_t step[2] = {3, 70};
    bool flag[2] = {true, false};
    float f[2] = {1.5f, 0};
    ckpt_scaler scaler[2] = {CKPT_SCALER_INIT, CKPT_SCALER_INIT};
    scaler[0].scale = 8;
    ckpt_state *s = ckpt_state_new();
    OK(ckpt_state_i64(s, "step", &step[0], &err));
    OK(ckpt_state_bool(s, "flag", &flag[0], &err));
    OK(ckpt_state_f32(s, "f", &f[0], &err));
    OK(ckpt_state_scaler(s, "amp", &scaler[0], &err));
    OK(saved_as(s, "a", &err));
    OK(ckpt_state_rebind(s, "step", &step[1], &err));
    OK(ckpt_state_rebind(s, "flag", &flag[1], &err));
    OK(ckpt_state_rebind(s, "f", &f[1], &err));
    OK(ckpt_state_rebind(s, "amp.scale", NULL, &err));
    ck_assert_int_eq(saved_as(s, "b", &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "amp.scale");
    OK(ckpt_state_rebind(s, "amp", &scaler[1], &err)); /* the struct moved */
    OK(ckpt_restore(s, in_folder("a"), NULL, NULL, &err));
    ck_assert(step[1] == 3 && flag[1] && f[1] == 1.5f && scaler[1].scale == 8);
    ckpt_state_free(s);
}
END_TEST

START_TEST(bytes_and_strings_change_their_size)
{
    ckpt_error err = CKPT_ERROR_INIT;
    unsigned char order[200];
    char note[40] = "a note of some length", small[4];
    int64_t n = 5;
    memset(order, 7, sizeof order);
    ckpt_state *s = ckpt_state_new();
    OK(ckpt_state_bytes(s, "order", order, 44, &err));
    OK(ckpt_state_string(s, "note", note, sizeof note, &err));
    OK(ckpt_state_i64(s, "n", &n, &err));
    OK(saved_as(s, "a", &err));
    unsigned char *other = malloc(52);
    memset(other, 9, 52);
    OK(ckpt_state_resize(s, "order", other, 52, &err));
    OK(saved_as(s, "b", &err));
    ck_assert_int_eq(ckpt_restore(s, in_folder("a"), NULL, NULL, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "44 bytes"));
    OK(ckpt_state_resize(s, "order", NULL, 52, &err));
    free(other);
    ck_assert_int_eq(saved_as(s, "c", &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "order");
    OK(ckpt_state_rebind(s, "order", order, &err)); /* the size is still 52 */
    OK(ckpt_restore(s, in_folder("b"), NULL, NULL, &err));
    ck_assert(order[51] == 9 && order[52] == 7);
    OK(ckpt_state_resize(s, "note", small, sizeof small, &err));
    ck_assert_int_eq(ckpt_restore(s, in_folder("b"), NULL, NULL, &err), CKPT_E_MISMATCH);
    ck_assert_int_eq(ckpt_state_resize(s, "note", small, 0, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_resize(s, "n", small, 4, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_resize(s, "nobody", small, 4, &err), CKPT_E_NOT_FOUND);
    ck_assert_int_eq(ckpt_state_resize(s, NULL, small, 4, &err), CKPT_E_ARGUMENT);
    ckpt_state_free(s);
}
END_TEST

/* A save that is being written has a copy of its own: the old memory may go. */
START_TEST(old_memory_goes_while_it_is_written)
{
    trainer x;
    enum { N = 1 << 20 };
    float *old = malloc(N * sizeof *old), *fresh = malloc(N * sizeof *fresh);
    unsigned char *order = malloc(300);
    const char *run = in_folder("run");
    trainer_init(&x);
    number(old, N, 1);
    number(fresh, N, 9000);
    memset(order, 3, 300);
    bind_tensor(x.state, "moving", NULL, CKPT_ROLE_BUFFER, CKPT_F32, 1, (int64_t[]){N}, NULL, old);
    IS_OK(ckpt_state_bytes(x.state, "order", order, 300, &x.err));
    trainer_start(&x, run);
    gate_set(true, 0);
    set_step(&x.t, 1);
    IS_OK(ckpt_run_save(x.run, 1, &x.err));
    gate_meet(1);
    IS_OK(ckpt_state_rebind(x.state, "moving", fresh, &x.err));
    IS_OK(ckpt_state_resize(x.state, "order", NULL, 100, &x.err));
    memset(old, 0xee, N * sizeof *old);
    free(old);
    free(order);
    gate_set(false, 0);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    order = calloc(1, 300);
    IS_OK(ckpt_state_resize(x.state, "order", order, 300, &x.err));
    IS_OK(ckpt_restore(x.state, step_path(run, 1), NULL, NULL, &x.err));
    ck_assert(fresh[0] == 1 && fresh[N - 1] == (float)N && order[299] == 3);
    trainer_end(&x);
    free(fresh);
    free(order);
}
END_TEST

START_TEST(integers_are_exact_at_their_ends)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const int32_t i32s[] = {INT32_MIN, -1, 0, INT32_MAX};
    const uint32_t u32s[] = {0, 1, UINT32_MAX - 1, UINT32_MAX};
    const uint64_t u64s[] = {0, (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (int k = 0; k < 4; k++) {
        int32_t i32 = i32s[k];
        uint32_t u32 = u32s[k], hyper32 = u32s[k];
        uint64_t u64 = u64s[k], hyper64 = u64s[3 - k];
        ckpt_hyper hypers[] = {{"a", CKPT_SCALAR_U32, &hyper32}, {"b", CKPT_SCALAR_U64, &hyper64}};
        ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
        ckpt_state *s = ckpt_state_new();
        g.name = "0";
        g.hypers = hypers;
        g.hyper_count = 2;
        OK(ckpt_state_i32(s, "i32", &i32, &err));
        OK(ckpt_state_u32(s, "u32", &u32, &err));
        OK(ckpt_state_u64(s, "u64", &u64, &err));
        OK(ckpt_state_group(s, &g, &err));
        OK(saved_as(s, "a", &err));
        i32 = 77;
        u32 = hyper32 = 77;
        u64 = hyper64 = 77;
        OK(ckpt_restore(s, in_folder("a"), NULL, NULL, &err));
        ck_assert(i32 == i32s[k] && u32 == u32s[k] && u64 == u64s[k] && hyper32 == u32s[k] && hyper64 == u64s[3 - k]);
        ckpt_state_free(s);
    }
}
END_TEST

/* The value n is saved as a u64 or an i64, and taken by a variable of another type. */
static ckpt_status taken(bool is_signed, uint64_t n, ckpt_status (*bind)(ckpt_state *, const char *, void *),
                         void *value, ckpt_error *err)
{
    int64_t i64 = (int64_t)n;
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    ckpt_status status = is_signed ? ckpt_state_i64(s, "n", &i64, err) : ckpt_state_u64(s, "n", &n, err);
    if (status == CKPT_OK)
        status = saved_as(s, "n", err);
    if (status == CKPT_OK)
        status = bind(t, "n", value);
    if (status == CKPT_OK)
        status = ckpt_restore(t, in_folder("n"), NULL, NULL, err);
    ckpt_state_free(s);
    ckpt_state_free(t);
    return status;
}

static ckpt_status as_i32(ckpt_state *s, const char *name, void *v)
{
    return ckpt_state_i32(s, name, v, NULL);
}
static ckpt_status as_u32(ckpt_state *s, const char *name, void *v)
{
    return ckpt_state_u32(s, name, v, NULL);
}
static ckpt_status as_i64(ckpt_state *s, const char *name, void *v)
{
    return ckpt_state_i64(s, name, v, NULL);
}
static ckpt_status as_u64(ckpt_state *s, const char *name, void *v)
{
    return ckpt_state_u64(s, name, v, NULL);
}
static ckpt_status as_f64(ckpt_state *s, const char *name, void *v)
{
    return ckpt_state_f64(s, name, v, NULL);
}
static ckpt_status as_f32(ckpt_state *s, const char *name, void *v)
{
    return ckpt_state_f32(s, name, v, NULL);
}

START_TEST(integers_do_not_wrap)
{
    ckpt_error err = CKPT_ERROR_INIT;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    double f64;
    float f32;
    const struct {
        bool is_signed;
        uint64_t n;
        ckpt_status (*bind)(ckpt_state *, const char *, void *);
        void *value;
        bool fits;
    } cases[] = {
        {false, (uint64_t)INT32_MAX, as_i32, &i32, true},
        {false, (uint64_t)INT32_MAX + 1, as_i32, &i32, false},
        {true, (uint64_t)(int64_t)-1, as_u32, &u32, false},
        {false, (uint64_t)UINT32_MAX + 1, as_u32, &u32, false},
        {false, UINT32_MAX, as_u32, &u32, true},
        {true, (uint64_t)(int64_t)-1, as_u64, &u64, false},
        {true, INT64_MAX, as_u64, &u64, true},
        {false, INT64_MAX, as_i64, &i64, true},
        {false, (uint64_t)INT64_MAX + 1, as_i64, &i64, false},
        {false, (uint64_t)INT64_MAX + 1, as_f64, &f64, true},
        {false, UINT64_MAX, as_f64, &f64, false},
        {false, (uint64_t)1 << 63, as_f32, &f32, true},
        {true, ((uint64_t)1 << 60) + 1, as_f32, &f32, false},
        {false, UINT64_MAX, as_i32, &i32, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_status status = taken(cases[i].is_signed, cases[i].n, cases[i].bind, cases[i].value, &err);
        ck_assert_msg(status == (cases[i].fits ? CKPT_OK : CKPT_E_MISMATCH), "case %zu: %d: %s", i, status,
                      err.message);
    }
    ck_assert_int_eq(taken(false, UINT64_MAX, as_i64, &i64, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "18446744073709551615"));
    /* A tensor of uint64 is a number, too. */
    uint64_t most = UINT64_MAX - 5, back = 0;
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    bind_tensor(s, "seed", NULL, CKPT_ROLE_OTHER, CKPT_U64, 0, NULL, NULL, &most);
    OK(saved_as(s, "t", &err));
    OK(ckpt_state_u64(t, "seed", &back, &err));
    OK(ckpt_restore(t, in_folder("t"), NULL, NULL, &err));
    ck_assert(back == most);
    /* And a number fills one. */
    OK(saved_as(t, "u", &err));
    most = 0;
    OK(ckpt_restore(s, in_folder("u"), NULL, NULL, &err));
    ck_assert(back == most);
    ckpt_state_free(s);
    ckpt_state_free(t);
}
END_TEST

/* Of a variable of any width the file's header has the step, and a run compares it. */
START_TEST(a_step_may_be_of_any_width)
{
    ckpt_error err = CKPT_ERROR_INIT;
    for (int kind = 0; kind < 4; kind++) {
        union {
            int32_t i32;
            uint32_t u32;
            int64_t i64;
            uint64_t u64;
        } step = {.u64 = 0};
        ckpt_state *s = one_tensor(from);
        ckpt_run *run;
        char path[40];
        int64_t done = 0;
        OK(kind == 0   ? ckpt_state_i32(s, "step", &step.i32, &err)
           : kind == 1 ? ckpt_state_u32(s, "step", &step.u32, &err)
           : kind == 2 ? ckpt_state_i64(s, "step", &step.i64, &err)
                       : ckpt_state_u64(s, "step", &step.u64, &err));
        step.u64 = 6;
        snprintf(path, sizeof path, "run%d", kind);
        OK(ckpt_run_open(in_folder(path), s, NULL, &run, &err));
        OK(ckpt_run_resume(run, NULL, &done, NULL, &err));
        ck_assert_int_eq(ckpt_run_save(run, 5, &err), CKPT_E_ARGUMENT);
        ck_assert_ptr_nonnull(strstr(err.message, "'step' is 6"));
        OK(ckpt_run_save(run, 6, &err));
        OK(ckpt_run_wait(run, &err));
        OK(ckpt_state_rebind(s, "step", NULL, &err));
        ck_assert_int_lt(ckpt_run_save(run, 7, &err) == CKPT_OK ? ckpt_run_wait(run, &err) : err.status, 0);
        ck_assert_str_eq(err.object, "step");
        OK(ckpt_run_close(run, &err));
        ckpt_state_free(s);
        s = one_tensor(from);
        OK(saved_as(s, "none", &err));
        /* Bound with another width, and in a file whose tree lacks it, from the header. */
        uint32_t other = 0;
        OK(ckpt_state_u32(s, "step", &other, &err));
        OK(ckpt_restore(s, step_path(in_folder(path), 6), NULL, NULL, &err));
        ck_assert_uint_eq(other, 6);
        ckpt_state_free(s);
    }
}
END_TEST

/* Names of averages are made of the parameters' names, as those of moments are. */
START_TEST(averages_are_named)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader;
    size_t i;
    ckpt_state *s = ckpt_state_new();
    number(from, 64, 1);
    arena_of(s, "params", CKPT_ROLE_PARAM, from, &err);
    arena_of(s, NULL, CKPT_ROLE_EMA, from + 8, &err);
    arena_of(s, "slow", CKPT_ROLE_EMA, from + 16, &err);
    bind_tensor(s, "c", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){2}, NULL, from + 30);
    bind_tensor(s, NULL, "c", CKPT_ROLE_EMA, CKPT_F32, 1, (int64_t[]){2}, NULL, from + 34);
    ck_assert_ptr_eq(ckpt_state_data(s, "ema.a"), from + 8);
    ck_assert_ptr_eq(ckpt_state_data(s, "slow.b"), from + 20);
    ck_assert_ptr_eq(ckpt_state_data(s, "ema.c"), from + 34);
    OK(saved_as(s, "a", &err));
    OK(ckpt_reader_open(in_folder("a"), NULL, &reader, &err));
    OK(ckpt_reader_find(reader, "slow.b", 6, &i, &err));
    ck_assert_int_eq(ckpt_reader_tensor(reader, i)->role, CKPT_ROLE_EMA);
    ck_assert_str_eq(ckpt_reader_tensor(reader, i)->param.data, "b");
    ckpt_reader_close(reader);
    number(from, 64, 900);
    OK(ckpt_restore(s, in_folder("a"), NULL, NULL, &err));
    ck_assert(from[8] == 9 && from[23] == 24 && from[35] == 36);
    OK(ckpt_state_rebind(s, "slow", to, &err));
    ckpt_state_free(s);
}
END_TEST

/* The average of a parameter is renamed with it, follows it to its device, and keeps its name in torch's files. */
START_TEST(averages_follow_their_parameters)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_migrate_options m = CKPT_MIGRATE_OPTIONS_INIT;
    static const char *const prefixed[] = {"module.a", "module.b"};
    const int64_t four[] = {4};
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    number(from, 64, 1);
    for (int i = 0; i < 2; i++) {
        bind_tensor(s, prefixed[i], NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, four, NULL, from + 4 * i);
        bind_tensor(s, NULL, prefixed[i], CKPT_ROLE_EMA, CKPT_F32, 1, four, NULL, from + 8 + 4 * i);
        bind_tensor(t, prefixed[i] + 7, NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, four, NULL, NULL);
        bind_tensor(t, NULL, prefixed[i] + 7, CKPT_ROLE_EMA, CKPT_F32, 1, four, NULL, NULL);
    }
    OK(saved_as(s, "a", &err));
    OK(ckpt_restore(t, in_folder("a"), NULL, NULL, &err));
    ck_assert(((float *)ckpt_state_data(t, "ema.b"))[3] == 16);
    OK(saved_as(t, "b", &err));
    for (int torch = 0; torch < 2; torch++) {
        m.to = torch ? "torch" : "safetensors";
        m.lossy = m.force = true;
        OK(ckpt_migrate(in_folder("b"), in_folder("c"), &m, NULL, &err));
        ckpt_state *u = ckpt_state_new();
        bind_tensor(u, "a", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, four, NULL, to);
        bind_tensor(u, "b", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, four, NULL, to + 4);
        bind_tensor(u, NULL, "a", CKPT_ROLE_EMA, CKPT_F32, 1, four, NULL, to + 8);
        bind_tensor(u, NULL, "b", CKPT_ROLE_EMA, CKPT_F32, 1, four, NULL, to + 12);
        number(to, 16, 700);
        OK(ckpt_restore(u, in_folder("c"), NULL, NULL, &err));
        ck_assert_msg(to[0] == 1 && to[8] == 9 && to[15] == 16, "to %s", m.to);
        ckpt_state_free(u);
    }
    ckpt_state_free(s);
    ckpt_state_free(t);
}
END_TEST

/* Against a map of the bytes: in any order, again under the same name after a refusal, and while some move away. */
START_TEST(overlaps_are_found_in_any_order)
{
    enum { BYTES = 4096, TENSORS = 900 };
    static unsigned char memory[BYTES];
    static short owner[BYTES]; /* 1 + number of the tensor; 0: free */
    static struct {
        size_t at, size;
    } places[TENSORS];
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    uint64_t random = 1;
    size_t bound = 0, refused = 0;
    for (int tries = 0; tries < 20000 && bound < TENSORS; tries++) {
        char name[24];
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t size = 1 + (random >> 33) % 9, at = (random >> 40) % (BYTES - 8), moved = (random >> 20) % TENSORS;
        bool move = tries % 3 == 2 && moved < bound, free_there = true;
        const short self = move ? (short)(moved + 1) : 0;
        if (move)
            size = places[moved].size;
        for (size_t i = at; i < at + size && i < BYTES; i++)
            free_there &= owner[i] == 0 || owner[i] == self;
        if (at + size > BYTES)
            continue;
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        snprintf(name, sizeof name, "t%zu", move ? moved : bound);
        d.name = name;
        d.dtype = CKPT_U8;
        d.ndim = 1;
        d.shape = (int64_t[]){(int64_t)size};
        d.data = memory + at;
        ckpt_status status = move ? ckpt_state_rebind(s, name, memory + at, &err) : ckpt_state_tensor(s, &d, &err);
        ck_assert_int_eq(status, free_there ? CKPT_OK : CKPT_E_MISMATCH);
        refused += !free_there;
        if (!free_there)
            continue;
        size_t number = move ? moved : bound++;
        for (size_t i = 0; move && i < places[number].size; i++)
            owner[places[number].at + i] = 0;
        places[number].at = at;
        places[number].size = size;
        for (size_t i = 0; i < size; i++)
            owner[at + i] = (short)(number + 1);
    }
    ck_assert(bound > 300 && refused > 1000);
    for (size_t i = 0; i < bound; i++) {
        char name[24];
        snprintf(name, sizeof name, "t%zu", i);
        ck_assert_ptr_eq(ckpt_state_data(s, name), memory + places[i].at);
    }
    ckpt_state_free(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state moves");
    TCase *t = tcase_create("moves");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_run_folder, remove_folder);
    tcase_add_test(t, a_tensor_moves);
    tcase_add_test(t, nothing_is_saved_or_restored_from_null);
    tcase_add_test(t, overlaps_are_refused_and_nothing_changes);
    tcase_add_test(t, overlaps_are_found_in_any_order);
    tcase_add_test(t, an_arena_moves_as_one);
    tcase_add_test(t, what_is_ours_does_not_move);
    tcase_add_test(t, variables_move);
    tcase_add_test(t, bytes_and_strings_change_their_size);
    tcase_add_test(t, old_memory_goes_while_it_is_written);
    tcase_add_test(t, integers_are_exact_at_their_ends);
    tcase_add_test(t, integers_do_not_wrap);
    tcase_add_test(t, a_step_may_be_of_any_width);
    tcase_add_test(t, averages_are_named);
    tcase_add_test(t, averages_follow_their_parameters);
    suite_add_tcase(s, t);
    return run_suite(s);
}
