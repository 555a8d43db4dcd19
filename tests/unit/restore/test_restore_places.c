/* test_restore_places.c - the memory that a restore fills: the library's own, what a bind refuses, ties, and where views of a coded
 * storage go. */
#include "../torch_emit.h"
#include "restore_pair.h"

/* ---- memory of ours and of the caller */

/* Devices that files name and rules may give, but on which this library puts nothing. */
START_TEST(only_cpu_and_cuda_are_places)
{
    static const char *const rules[] = {"mps", "xpu:0", "cpu=npu:{index}", "*==musa:1", "hpu"};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    for (size_t i = 0; i < 5; i++) {
        ckpt_report *r = ckpt_report_new();
        ckpt_state *s = ckpt_state_new();
        bool number = strchr(rules[i], '{');
        bind_tensor(s, "ln", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, NULL);
        o.allow_unexpected = true;
        o.map_location = rules[i];
        ck_assert_int_eq(ckpt_restore(s, in_folder("a.safetensors"), &o, r, &err),
                         number ? CKPT_E_ARGUMENT : CKPT_E_MISMATCH);
        const ckpt_finding *f = ckpt_report_find(r, "no-such-device", "ln");
        ck_assert_msg(number || f, "%s", rules[i]);
        ck_assert(number || strstr(f->message, "places tensors on cpu and cuda only"));
        ck_assert(number || strstr(f->message, i == 3 ? "musa:1" : rules[i]));
        ck_assert_ptr_null(ckpt_state_data(s, "ln"));
        ckpt_state_free(s);
        ckpt_report_free(r);
    }
}
END_TEST

START_TEST(ours_are_made_and_kept)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_unexpected = true;
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, wte_shape, NULL, NULL);
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.dtype = CKPT_F32;
    arena.nbytes = 120;
    arena.role = CKPT_ROLE_EXP_AVG;
    const ckpt_arena_entry entries[] = {{"wte", 0, 2, wte_shape}, {"ln", 96, 1, ln_shape}};
    OK(ckpt_state_arena(s, &arena, entries, 2, &err));
    ck_assert_ptr_null(ckpt_state_data(s, "wte"));
    ck_assert_int_eq(ckpt_save(s, in_folder("x.safetensors"), NULL, &err), CKPT_E_ARGUMENT);
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(memcmp(ckpt_state_data(s, "wte"), a.params, 96) == 0);
    ck_assert(memcmp(ckpt_state_data(s, "optimizer.ln.exp_avg"), a.exp_avg + 24, 24) == 0);
    ck_assert_ptr_eq((char *)ckpt_state_data(s, "optimizer.wte.exp_avg") + 96,
                     ckpt_state_data(s, "optimizer.ln.exp_avg"));
    const void *where = ckpt_state_data(s, "wte");
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert_ptr_eq(where, ckpt_state_data(s, "wte"));
    ckpt_state_free(s);
    s = ckpt_state_new();
    bind_tensor(s, "new.head", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, wte_shape, NULL, NULL);
    OK(ckpt_state_allocate(s, &err));
    ck_assert(*(float *)ckpt_state_data(s, "new.head") == 0);
    ckpt_state_free(s);
}
END_TEST

START_TEST(bind_refuses_what_cannot_be_restored)
{
    ckpt_error err = CKPT_ERROR_INIT;
    float m[64];
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "x", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){16}, NULL, m);
    bind_tensor(s, "y", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){16}, NULL, m + 16);
    bind_tensor(s, "even", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, (int64_t[]){2}, m + 32);
    bind_tensor(s, "odd", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, (int64_t[]){2}, m + 33);
    static const struct {
        const char *name;
        int64_t shape[2], strides[2];
        int at;
        ckpt_status status;
    } cases[] = {
        {"x", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT}, /* twice the name */
        {"z", {1, 4}, {4, 1}, 14, CKPT_E_MISMATCH}, /* into y */
        {"z", {1, 2}, {2, 1}, 33, CKPT_E_MISMATCH}, /* into odd and even */
        {"z", {2, 4}, {0, 1}, 56, CKPT_E_ARGUMENT}, /* stride 0 */
        {"z", {2, 4}, {2, 1}, 56, CKPT_E_ARGUMENT}, /* rows overlap */
        {"z", {-1, 4}, {4, 1}, 56, CKPT_E_ARGUMENT},
        {"z", {2, 4}, {-4, 1}, 56, CKPT_E_ARGUMENT},
        {"ckpt.blob.0", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT},
        {"", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT},
        {"z\xff", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT},
        {"z", {2, 2}, {1, 2}, 60, CKPT_OK}, /* transposed is fine */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = cases[i].name;
        d.role = CKPT_ROLE_PARAM;
        d.dtype = CKPT_F32;
        d.ndim = 2;
        d.shape = cases[i].shape;
        d.strides = cases[i].strides;
        d.data = m + cases[i].at;
        ck_assert_msg(ckpt_state_tensor(s, &d, &err) == cases[i].status, "case %zu: %s: %s", i, err.object,
                      err.message);
    }
    ckpt_state_free(s);
}
END_TEST

START_TEST(a_refused_bind_leaves_nothing)
{
    ckpt_error err = CKPT_ERROR_INIT;
    double lr = 1;
    ckpt_state *s = ckpt_state_new();
    ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &lr}, {"lr", CKPT_SCALAR_F64, &lr}};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    g.name = "0";
    g.hypers = hypers;
    g.hyper_count = 2;
    static const char *const bad[] = {"lr", "params", "", "\xff", NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hypers[1].key = bad[i];
        ck_assert_int_eq(ckpt_state_group(s, &g, &err), CKPT_E_ARGUMENT);
    }
    g.hyper_count = 1;
    g.struct_size = 100000;
    ck_assert_int_eq(ckpt_state_group(s, &g, &err), CKPT_E_ARGUMENT);
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    g.struct_size = 0;
    OK(ckpt_state_group(s, &g, &err));
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    lr = 0;
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(lr == 1);
    /* Places in an arena of ours are no more shared than the caller's. */
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    const ckpt_arena_entry over[] = {{"p", 0, 1, ln_shape}, {"q", 20, 1, ln_shape}},
                           far[] = {{"r", UINT64_MAX - 3, 1, ln_shape}};
    arena.dtype = CKPT_F32;
    arena.nbytes = 120;
    arena.role = CKPT_ROLE_PARAM;
    ck_assert_int_eq(ckpt_state_arena(s, &arena, over, 2, &err), CKPT_E_MISMATCH);
    arena.data = a.params;
    ck_assert_int_eq(ckpt_state_arena(s, &arena, far, 1, &err), CKPT_E_ARGUMENT);
    arena.struct_size = 100000;
    ck_assert_int_eq(ckpt_state_arena(s, &arena, far, 0, &err), CKPT_E_ARGUMENT);
    static const char *const names[] = {"ckpt.x", "__metadata__", "\xff", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_int_eq(ckpt_state_alias(s, names[i], "p", &err), CKPT_E_ARGUMENT);
    ckpt_state_free(s);
}
END_TEST

START_TEST(many_binds_stay_cheap_and_overlaps_are_seen)
{
    enum { N = 20000 };
    ckpt_error err = CKPT_ERROR_INIT;
    static char m[N * 8];
    char name[16];
    ckpt_state *s = ckpt_state_new();
    for (int i = 0; i < N; i++) {
        int at = (i * 7919) % N;
        snprintf(name, sizeof name, "t%d", at);
        bind_tensor(s, name, NULL, CKPT_ROLE_PARAM, CKPT_U8, 1, (int64_t[]){8}, NULL, m + at * 8);
    }
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = "late";
    d.dtype = CKPT_U8;
    d.ndim = 1;
    d.shape = (int64_t[]){1};
    for (int i = 0; i < 200; i++) {
        d.data = m + (i * 7907) % (N * 8);
        ck_assert_int_eq(ckpt_state_tensor(s, &d, &err), CKPT_E_MISMATCH);
    }
    ckpt_state_free(s);
}
END_TEST

/* ---- memory of two states */

typedef struct bound {
    const char *name;
    ckpt_dtype dtype;
    ckpt_role role;
    uint32_t ndim;
    int64_t shape[2], strides[2];
    int at; /* of the buffer */
} bound;

/* A file of a {1, 2, 3, 4}, b {5, 6, 7, 8} and a number, the step of a. Each state binds one tensor of a buffer of -1. */
static const struct {
    bool refused;
    bound one, two;
    float want[8];
} sharing[] = {
    {true, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {"b", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {0}},
    {true, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 3}, {"b", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {0}},
    {true, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 1}, {0}},
    {true, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {2}, 0}, {0}},
    {true, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {"a", CKPT_I32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {0}},
    {true, {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0}, {"new", CKPT_F32, CKPT_ROLE_PARAM, 1, {2}, {1}, 3}, {0}},
    {false,
     {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0},
     {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0},
     {1, 2, 3, 4, -1, -1, -1, -1}},
    {false,
     {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0},
     {"b", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 4},
     {1, 2, 3, 4, 5, 6, 7, 8}},
    {false,
     {"a", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {2}, 0},
     {"b", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {2}, 1},
     {1, 5, 2, 6, 3, 7, 4, 8}},
    {false,
     {NULL, CKPT_F32, CKPT_ROLE_STEP, 0, {0}, {0}, 2},
     {NULL, CKPT_F32, CKPT_ROLE_STEP, 0, {0}, {0}, 2},
     {-1, -1, 9, -1, -1, -1, -1, -1}},
    {false,
     {"new", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 0},
     {"newer", CKPT_F32, CKPT_ROLE_PARAM, 1, {4}, {1}, 2},
     {-1, -1, -1, -1, -1, -1, -1, -1}},
};

START_TEST(two_states_share_what_is_the_same)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = {.allow_missing = true, .allow_unexpected = true, .allow_cast = true};
    const int64_t four[] = {4};
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, buffer[12];
    double nine = 9;
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "a", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, four, NULL, values);
    bind_tensor(s, "b", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, four, NULL, values + 4);
    OK(ckpt_state_f64(s, "optimizer.a.step", &nine, &err));
    OK(ckpt_save(s, in_folder("two.safetensors"), NULL, &err));
    ckpt_state_free(s);
    for (size_t i = 0; i < sizeof sharing / sizeof *sharing; i++) {
        ckpt_state *states[] = {ckpt_state_new(), ckpt_state_new()};
        ckpt_report *reports[] = {ckpt_report_new(), ckpt_report_new()};
        for (int k = 0; k < 2; k++) {
            const bound *t = k ? &sharing[i].two : &sharing[i].one;
            bind_tensor(states[k], t->name, t->name ? NULL : "a", t->role, t->dtype, t->ndim, t->shape, t->strides,
                        buffer + t->at);
        }
        for (int k = 0; k < 12; k++)
            buffer[k] = -1;
        ckpt_status status = ckpt_restore_many(states, 2, in_folder("two.safetensors"),
                                               (const ckpt_restore_options *[]){&o, &o}, reports, &err);
        const ckpt_finding *f = ckpt_report_find(reports[0], "overlap", sharing[i].one.name),
                           *g = ckpt_report_find(reports[1], "overlap", sharing[i].two.name);
        ck_assert_msg(status == (sharing[i].refused ? CKPT_E_MISMATCH : CKPT_OK), "case %zu: %d %s", i, status,
                      err.message);
        ck_assert_msg(!f == !sharing[i].refused && !g == !f, "case %zu", i);
        ck_assert(!f || (strstr(f->message, "in states[0]") && strstr(f->message, "in states[1]")));
        ck_assert(!f || (strstr(err.message, "in states[0]") && strstr(err.message, sharing[i].two.name)));
        for (int k = 0; k < 8; k++)
            ck_assert_msg(buffer[k] == (f ? -1 : sharing[i].want[k]), "case %zu: %g at %d", i, (double)buffer[k], k);
        for (int k = 0; k < 2; k++) {
            ck_assert(!ckpt_state_poisoned(states[k]));
            ckpt_state_free(states[k]);
            ckpt_report_free(reports[k]);
        }
    }
}
END_TEST

/* ---- tensors of one storage */

START_TEST(ties_are_kept_and_broken_ones_seen)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    float one[6] = {1}, two[6] = {2}, tied[6] = {0};
    ckpt_state *untied = ckpt_state_new(), *s = ckpt_state_new();
    bind_tensor(untied, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, one);
    bind_tensor(untied, "head", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, two);
    bind_tensor(s, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, tied);
    OK(ckpt_state_alias(s, "head", "wte", &err));
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    refused(s, &o, "tie-broken", "head");
    two[0] = 1; /* two tensors, but equal: torch wrote them so */
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(tied[0] == 1);
    ckpt_state_free(untied);
    untied = ckpt_state_new(); /* only the second name is there */
    bind_tensor(untied, "head", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, two);
    two[0] = 3;
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(tied[0] == 3);
    ckpt_state_free(untied);
    ckpt_state_free(s);
}
END_TEST

/* The same bytes in another dtype or shape are another tensor. */
START_TEST(a_tie_has_one_dtype_and_shape)
{
    static const struct {
        ckpt_dtype dtype;
        uint32_t ndim;
        int64_t shape[2];
        const char *says;
    } cases[] = {{CKPT_I32, 1, {6}, "holds it as int32 [6], and 'wte' as float32 [6]"},
                 {CKPT_F32, 2, {2, 3}, "holds it as float32 [2, 3], and 'wte' as float32 [6]"}};
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    float one[6] = {1, 2, 3}, two[6] = {1, 2, 3}, tied[6] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_state *untied = ckpt_state_new(), *s = ckpt_state_new();
        bind_tensor(untied, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, one);
        bind_tensor(untied, "head", NULL, CKPT_ROLE_PARAM, cases[i].dtype, cases[i].ndim, cases[i].shape, NULL, two);
        bind_tensor(s, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, tied);
        OK(ckpt_state_alias(s, "head", "wte", &err));
        OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
        refused(s, &o, "tie-broken", "head");
        ck_assert_int_eq(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err), CKPT_E_MISMATCH);
        ck_assert_msg(strstr(err.message, cases[i].says) != NULL, "%s", err.message);
        ckpt_state_free(untied);
        ckpt_state_free(s);
    }
}
END_TEST

/* torch's file of two tensors that share one deflated storage of n floats. */
static void put_torch(const char *path, const float *data, int64_t n, const char *one, const view *v, const char *two,
                      const view *w)
{
    static bytes pickle;
    static archive zip;
    memset(&pickle, 0, sizeof pickle);
    memset(&zip, 0, sizeof zip);
    PUT(&pickle, "\x80\2}(");
    put_str(&pickle, one);
    put_tensor(&pickle, v);
    put_str(&pickle, two);
    put_tensor(&pickle, w);
    PUT(&pickle, "u.");
    add_record(&zip, &(record){.name = "m/data.pkl", .data = pickle.data, .size = pickle.size});
    add_record(&zip, &(record){.name = "m/data/0", .data = data, .size = (size_t)n * 4, .deflate = true});
    add_record(&zip, &(record){.name = "m/version", .data = "3\n", .size = 2});
    put_end64(&zip, 0, 0, 0);
    store(path, zip.file.data, (long)zip.file.size);
}

START_TEST(a_transposed_view_is_no_tie)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const float data[4] = {1, 2, 3, 4};
    const int64_t shape[] = {2, 2};
    view v = {"FloatStorage", "0", "cpu", 4, 0, 2, 2, {2, 2}, {2, 1}}, w = v;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, shape, NULL, b.params);
    OK(ckpt_state_alias(s, "head", "wte", &err));
    put_torch(in_folder("tied.pt"), data, 4, "wte", &v, "head", &w);
    OK(ckpt_restore(s, in_folder("tied.pt"), &o, NULL, &err));
    ck_assert(memcmp(b.params, data, sizeof data) == 0);
    w.strides[0] = 1, w.strides[1] = 2;
    put_torch(in_folder("a.safetensors"), data, 4, "wte", &v, "head", &w);
    refused(s, &o, "tie-broken", "head");
    ckpt_state_free(s);
}
END_TEST

/* The first read of a view may be the smaller one: a conversion has room for what comes after it. */
START_TEST(a_view_far_into_a_coded_storage_is_converted)
{
    enum { N = 4 << 20, SKIP = 3 << 19, REST = N - SKIP };
    ckpt_error err = CKPT_ERROR_INIT;
    view v = {"FloatStorage", "0", "cpu", N, SKIP, 1, 1, {REST}, {1}},
         w = {"FloatStorage", "0", "cpu", N, 0, 1, 1, {1}, {1}};
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    float *data = calloc(N, sizeof *data), first = 9;
    double *wide = calloc(REST, sizeof *wide);
    ckpt_state *s = ckpt_state_new();
    for (int i = 0; i < N; i += 65536)
        data[i] = (float)i;
    put_torch(in_folder("v.pt"), data, N, "v", &v, "first", &w);
    bind_tensor(s, "v", NULL, CKPT_ROLE_PARAM, CKPT_F64, 1, (int64_t[]){REST}, NULL, wide);
    bind_tensor(s, "first", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){1}, NULL, &first);
    o.allow_cast = true;
    OK(ckpt_restore(s, in_folder("v.pt"), &o, NULL, &err));
    for (int i = 0; i < REST; i++)
        ck_assert(wide[i] == (double)data[SKIP + i]);
    ck_assert(first == 0);
    ckpt_state_free(s);
    free(data);
    free(wide);
}
END_TEST

/* What is large goes from the decoder straight into its place; no byte of it is taken for right that is not. */
START_TEST(a_coded_storage_is_decoded_into_its_place)
{
    enum { N = 3 << 18 };
    ckpt_error err = CKPT_ERROR_INIT;
    view all = {"FloatStorage", "0", "cpu", N, 0, 1, 1, {N}, {1}},
         none = {"FloatStorage", "0", "cpu", N, 0, 1, 1, {1}, {1}};
    float *data = calloc(N, sizeof *data), *to = calloc(N, sizeof *to);
    for (int i = 0; i < N; i++)
        data[i] = (float)(i % 1009);
    put_torch(in_folder("v.pt"), data, N, "v", &all, "first", &none);
    for (uint32_t threads = 1; threads < 4; threads++) {
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        ckpt_state *s = ckpt_state_new();
        o.threads = threads;
        o.allow_unexpected = true;
        bind_tensor(s, "v", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){N}, NULL, to);
        memset(to, 0, N * sizeof *to);
        OK(ckpt_restore(s, in_folder("v.pt"), &o, NULL, &err));
        ck_assert(memcmp(to, data, N * sizeof *to) == 0);
        ckpt_state_free(s);
    }
    load_image(in_folder("v.pt"));
    for (long at = 600; at < image_size - 400; at += image_size / 7) {
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        ckpt_state *s = ckpt_state_new();
        o.allow_unexpected = true;
        bind_tensor(s, "v", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){N}, NULL, to);
        image[at] ^= 4;
        store(in_folder("bad.pt"), image, image_size);
        image[at] ^= 4;
        ck_assert_int_eq(ckpt_restore(s, in_folder("bad.pt"), &o, NULL, &err), CKPT_E_DAMAGED);
        ck_assert_int_eq(ckpt_save(s, in_folder("no.ckpt"), NULL, &err), CKPT_E_POISONED);
        ckpt_state_free(s);
    }
    free(image);
    free(data);
    free(to);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore places");
    TCase *t = pair_case("restore places");
    tcase_add_test(t, only_cpu_and_cuda_are_places);
    tcase_add_test(t, ours_are_made_and_kept);
    tcase_add_test(t, bind_refuses_what_cannot_be_restored);
    tcase_add_test(t, a_refused_bind_leaves_nothing);
    tcase_add_test(t, many_binds_stay_cheap_and_overlaps_are_seen);
    tcase_add_test(t, two_states_share_what_is_the_same);
    tcase_add_test(t, ties_are_kept_and_broken_ones_seen);
    tcase_add_test(t, a_tie_has_one_dtype_and_shape);
    tcase_add_test(t, a_transposed_view_is_no_tie);
    tcase_add_test(t, a_view_far_into_a_coded_storage_is_converted);
    tcase_add_test(t, a_coded_storage_is_decoded_into_its_place);
    suite_add_tcase(s, t);
    return run_suite(s);
}
