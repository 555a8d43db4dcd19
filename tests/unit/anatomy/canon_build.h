/* canon_build.h - small checkpoints built by hand, for the tests of canonical names. */
#ifndef CANON_BUILD_H
#define CANON_BUILD_H
#include "anatomy/canon.h"
#include "../runner.h"
#include <stdio.h>

static ckpt__index *ix;
static ckpt_report *report;
static ckpt_error err;
static ckpt__canon *canon;

/* ---- building an index */

typedef const ckpt_value *val;

static inline void start(const char *format)
{
    ix = ckpt__index_new(0);
    ix->format = format;
    ix->step = -1;
    report = ckpt_report_new();
    canon = NULL;
    memset(&err, 0, sizeof err);
}

static inline void setup(void)
{
    start("torch");
}

static inline void teardown(void)
{
    ckpt__canon_free(canon);
    ckpt_report_free(report);
    ckpt__index_free(ix);
}

static inline size_t add(const char *name, ckpt_dtype dtype, ckpt_role role, uint32_t ndim, const int64_t *shape)
{
    ckpt__tensor *t = ckpt__index_add_tensor(ix);
    t->info.name = ckpt__arena_str(ix->arena, name, strlen(name));
    t->info.dtype = dtype;
    t->info.role = role;
    t->info.ndim = ndim;
    t->info.shape = (const int64_t *)ckpt__arena_copy(ix->arena, (const char *)shape, ndim * sizeof *shape);
    t->info.storage = (int64_t)ix->tensor_count - 1;
    uint64_t n;
    ckpt__numel(shape, ndim, &n);
    t->info.nbytes = n * ckpt_dtype_size(dtype);
    return ix->tensor_count - 1;
}

static inline val tensor(ckpt_dtype dtype, uint32_t ndim, int64_t a, int64_t b)
{
    int64_t shape[2] = {a, b};
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_TENSOR);
    v->tensor = add("t", dtype, CKPT_ROLE_NONE, ndim, shape);
    return v;
}

static inline val vec(int64_t n)
{
    return tensor(CKPT_F32, 1, n, 0);
}

static inline val mat(int64_t a, int64_t b)
{
    return tensor(CKPT_F32, 2, a, b);
}

static inline val scalar(void)
{
    return tensor(CKPT_F32, 0, 0, 0);
}

/* A dict that grows. */
typedef struct dict {
    ckpt_entry entries[64];
    size_t n;
} dict;

static inline void put(dict *d, const char *key, val v)
{
    ck_assert_uint_lt(d->n, 64);
    d->entries[d->n++] = (ckpt_entry){ckpt__value_str(ix->arena, key, strlen(key)), v};
}

static inline void put_int(dict *d, int64_t key, val v)
{
    ck_assert_uint_lt(d->n, 64);
    d->entries[d->n++] = (ckpt_entry){ckpt__value_int(ix->arena, key), v};
}

static inline val done(const dict *d)
{
    return ckpt__value_dict(ix->arena, d->entries, d->n);
}

static inline val real(double x)
{
    return ckpt__value_float(ix->arena, x);
}

static inline val text(const char *s)
{
    return ckpt__value_str(ix->arena, s, strlen(s));
}

/* A group of `count` ids from `first`. */
static inline val group(int64_t first, int64_t count, double decay, const char *const *names)
{
    dict g = {.n = 0};
    val ids[48], words[48], betas[2] = {real(0.9), real(0.95)};
    for (int64_t i = 0; i < count; i++) {
        ids[i] = ckpt__value_int(ix->arena, first + i);
        if (names)
            words[i] = text(names[i]);
    }
    put(&g, "lr", real(0.001));
    put(&g, "betas", ckpt__value_list(ix->arena, CKPT_V_TUPLE, betas, 2));
    put(&g, "weight_decay", real(decay));
    put(&g, "fused", ckpt__value_bool(ix->arena, true));
    put(&g, "foreach", ckpt__value_new(ix->arena, CKPT_V_NONE));
    put(&g, "capturable", ckpt__value_bool(ix->arena, false));
    put(&g, "params", ckpt__value_list(ix->arena, CKPT_V_LIST, ids, (size_t)count));
    if (names)
        put(&g, "param_names", ckpt__value_list(ix->arena, CKPT_V_LIST, words, (size_t)count));
    return done(&g);
}

static inline val moments(val exp_avg, val exp_avg_sq)
{
    dict d = {.n = 0};
    put(&d, "step", scalar());
    put(&d, "exp_avg", exp_avg);
    put(&d, "exp_avg_sq", exp_avg_sq);
    return done(&d);
}

static inline val state_mat(int64_t a, int64_t b)
{
    return moments(mat(a, b), mat(a, b));
}

static inline val state_vec(int64_t n)
{
    return moments(vec(n), vec(n));
}

static inline val optimizer_of(const dict *state, val first, val second)
{
    dict o = {.n = 0};
    val groups[2] = {first, second};
    put(&o, "state", done(state));
    put(&o, "param_groups", ckpt__value_list(ix->arena, CKPT_V_LIST, groups, second ? 2 : 1));
    return done(&o);
}

static inline val scaler_dict(void)
{
    static const char *const keys[] = {"scale", "growth_factor", "backoff_factor", "growth_interval",
                                       "_growth_tracker"};
    dict d = {.n = 0};
    for (size_t i = 0; i < 5; i++)
        put(&d, keys[i], i < 3 ? real(2.0) : (val)ckpt__value_int(ix->arena, 7));
    return done(&d);
}

/* fc1 (8x4), norm (8), fc2 (4x8): every shape but the bias and the norm differ. */
static inline val small_model(const char *prefix)
{
    static const char *const names[] = {"fc1.weight", "fc1.bias", "norm.weight", "norm.bias", "fc2.weight"};
    dict m = {.n = 0};
    for (size_t i = 0; i < 5; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        put(&m, name, i == 0 ? mat(8, 4) : i == 4 ? mat(4, 8) : vec(8));
    }
    return done(&m);
}

/* Its state in the model's order, and split into matrices and vectors. */
static inline void small_state(dict *s)
{
    s->n = 0;
    put_int(s, 0, state_mat(8, 4));
    for (int64_t i = 1; i < 4; i++)
        put_int(s, i, state_vec(8));
    put_int(s, 4, state_mat(4, 8));
}

static inline void split_state(dict *s)
{
    s->n = 0;
    put_int(s, 0, state_mat(8, 4));
    put_int(s, 1, state_mat(4, 8));
    for (int64_t i = 2; i < 5; i++)
        put_int(s, i, state_vec(8));
}

static inline val small_optimizer(void)
{
    dict s;
    small_state(&s);
    return optimizer_of(&s, group(0, 5, 0.1, NULL), NULL);
}

/* ---- asking */

static ckpt__canon_hints hints;

static inline ckpt_status try_build(val root)
{
    ix->root = root;
    return ckpt__canon_build(ix, &hints, &canon, report, &err);
}

static inline void build(val root)
{
    ckpt_status s = try_build(root);
    ck_assert_msg(s == CKPT_OK, "%s: %s", err.object, err.message);
}

/* What a state wants by these names. */
typedef struct wanting {
    const ckpt_str *names;
    size_t count;
} wanting;

static inline bool wants(const void *ctx, ckpt_str name)
{
    const wanting *w = ctx;
    for (size_t i = 0; i < w->count; i++)
        if (ckpt__str_equal(w->names[i], name))
            return true;
    return false;
}

static wanting wanted;

static inline void want(const ckpt_str *names, size_t count)
{
    wanted = (wanting){names, count};
    hints.wants = count ? wants : NULL;
    hints.wants_ctx = &wanted;
}

static const ckpt_str small_names[] = {
    {"fc1.weight", 10}, {"fc1.bias", 8}, {"norm.weight", 11}, {"norm.bias", 9}, {"fc2.weight", 10}};

static inline void no_hints(void)
{
    setup();
    memset(&hints, 0, sizeof hints);
}

static inline const ckpt__canon_entry *get(const char *name)
{
    size_t i;
    ck_assert_msg(ckpt__hash_get(canon->by_name, name, strlen(name), &i), "no entry '%s'", name);
    return &canon->entries[i];
}

static inline bool has(const char *name)
{
    return ckpt__hash_get(canon->by_name, name, strlen(name), NULL);
}

static inline void from(const char *name, const char *own)
{
    ck_assert_str_eq(get(name)->own.data, own);
    ck_assert(!get(name)->outside);
}

static inline void failed(val root, const char *expected)
{
    ckpt_status s = try_build(root);
    ck_assert_int_eq(s, CKPT_E_MISMATCH);
    ck_assert_ptr_null(canon);
    ck_assert_msg(strstr(err.message, expected) != NULL, "'%s' lacks '%s'", err.message, expected);
}

static inline const ckpt_finding *found(const char *code)
{
    const ckpt_finding *f = ckpt_report_find(report, code, NULL);
    ck_assert_msg(f != NULL, "no finding '%s'", code);
    return f;
}

static inline val minimal(val model, val optimizer)
{
    dict r = {.n = 0};
    put(&r, "model", model);
    if (optimizer)
        put(&r, "optimizer", optimizer);
    put(&r, "epoch", ckpt__value_int(ix->arena, 3));
    return done(&r);
}
#endif
