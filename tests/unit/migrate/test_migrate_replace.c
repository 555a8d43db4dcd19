/* --replace: what another program has in another shape goes with its optimizer state, and keeps its place in its group. */
#include <stdlib.h>
#include "../migrate_setup.h"
#include "../runner.h"
#include "../torch_emit.h"

#define OK(call) ck_assert_msg((call) >= 0, "%s: %s: %s", #call, err.object, err.message)

static const char *const head[] = {"2.*"}, *const last[] = {"model.2"}, *const nothing[] = {"modle.2.*"};

static const char *plain(void)
{
    static char path[1000];
    snprintf(path, sizeof path, "%s/tests/data/cli/plain.pt", getenv("srcdir") ? getenv("srcdir") : ".");
    return path;
}

static void replacing(const char *const *globs, size_t count)
{
    options.replace = globs;
    options.replace_count = count;
}

static const ckpt_value *optimizer_of(const ckpt_reader *reader)
{
    return ckpt_value_get(ckpt_reader_root(reader), "optimizer");
}

/* params of group g are the numbers from first on. */
static void has_params(const ckpt_value *optimizer, size_t g, int64_t first, size_t count)
{
    const ckpt_value *params = ckpt_value_get(ckpt_value_get(optimizer, "param_groups")->items[g], "params");
    ck_assert_uint_eq(params->item_count, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(params->items[i]->integer, first + (int64_t)i);
}

/* The keys of state are exactly these numbers. */
static void has_states(const ckpt_value *optimizer, const int64_t *ids, size_t count)
{
    const ckpt_value *state = ckpt_value_get(optimizer, "state");
    ck_assert_uint_eq(state->entry_count, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(state->entries[i].key->integer, ids[i]);
}

static uint32_t crc_of(const ckpt_reader *reader, const char *name)
{
    size_t i;
    uint32_t crc = 0;
    OK(ckpt_reader_find(reader, name, strlen(name), &i, &err));
    OK(ckpt_reader_crc32(reader, i, &crc, &err));
    return crc;
}

static void keeps_places(const char *const *globs)
{
    static const int64_t left[] = {0, 1, 2, 3};
    replacing(globs, 1);
    migrates(plain(), "torch", at("a.pt"));
    ckpt_reader *from = opened(plain()), *to = opened(at("a.pt"));
    has_params(optimizer_of(to), 0, 0, 6);
    has_states(optimizer_of(to), left, 4);
    ck_assert_ptr_null(find(to, "model.2.weight"));
    ck_assert_ptr_null(find(to, "model.2.bias"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(to) + 2 + 6, ckpt_reader_tensor_count(from));
    for (size_t i = 0; i < ckpt_reader_tensor_count(to); i++) {
        const char *name = ckpt_reader_tensor(to, i)->name.data;
        ck_assert_uint_eq(crc_of(to, name), crc_of(from, name));
    }
    const ckpt_finding *weight = ckpt_report_find(report, "replaced", "model.2.weight");
    ck_assert_ptr_nonnull(weight);
    ck_assert_ptr_nonnull(strstr(weight->message, "shape [2, 3]"));
    ck_assert_ptr_nonnull(strstr(weight->message, "3 entries of its optimizer state"));
    ck_assert_ptr_nonnull(strstr(weight->message, "params[4] of group 0"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "replaced", "model.2.bias"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "replaced"), 3);
    ckpt_reader_close(from);
    ckpt_reader_close(to);
}

/* As list shows the names, canonical ones, and a dict without wildcards. */
START_TEST(torch_numbers_stay)
{
    static const char *const listed[] = {"model.2.*"};
    keeps_places(head);
    keeps_places(last);
    keeps_places(listed);
}
END_TEST

/* What --drop takes out with its state leaves its group; what is replaced beside it does not. */
START_TEST(with_drop)
{
    static const char *const drop[] = {"model.1.weight", "optimizer.1.weight.*"};
    static const int64_t left[] = {0, 1, 2};
    replacing(head, 1);
    options.drop = drop;
    options.drop_count = 2;
    migrates(plain(), "torch", at("a.pt"));
    ckpt_reader *to = opened(at("a.pt"));
    has_params(optimizer_of(to), 0, 0, 5);
    has_states(optimizer_of(to), left, 3);
    ckpt_reader_close(to);
}
END_TEST

START_TEST(nothing_matches)
{
    replacing(nothing, 1);
    ck_assert_int_eq(migrate(plain(), "torch", at("a.pt")), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(
        strstr(err.message, "--replace 'modle.2.*' matches no tensor of a model; 'model.2.*' would match 2"));
    ck_assert_int_ne(access(at("a.pt"), F_OK), 0);
    ck_assert_int_eq(ckpt_report_find(report, "unused-rule", NULL)->severity, CKPT_SEVERITY_ERROR);
    options.allow_unused = true;
    migrates(plain(), "torch", at("a.pt"));
    ck_assert_int_eq(ckpt_report_find(report, "unused-rule", NULL)->severity, CKPT_SEVERITY_WARNING);
    options.allow_unused = false;
    static const char *const moments[] = {"optimizer.state.0.*"}; /* no tensor of the model */
    replacing(moments, 1);
    ck_assert_int_eq(migrate(plain(), "torch", at("b.pt")), CKPT_E_ARGUMENT);
}
END_TEST

/* Whose state is whose needs the order. */
START_TEST(an_order_that_is_not_known)
{
    static const flat nets[] = {{"A.w", 2, {3, 4}}, {"A.b", 1, {3, 0}}, {"B.w", 2, {3, 4}}, {"B.b", 1, {3, 0}}};
    static const char *const b[] = {"B.*"}, *const order[] = {"B.w", "B.b", "A.w", "A.b"};
    static const int64_t left[] = {2, 3};
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "model");
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < 4; i++) {
        put_str(&t->pickle, nets[i].name);
        torch_tensor(t, nets[i].ndim, nets[i].shape[0], nets[i].shape[1], (float)i);
    }
    PUT(&t->pickle, "u");
    put_str(&t->pickle, "optimizer");
    put_adam(t, nets, 4, 4, 0);
    PUT(&t->pickle, "u");
    write_torch(at("m.pt"), t);
    replacing(b, 1);
    ck_assert_int_eq(migrate(at("m.pt"), "torch", at("x.pt")), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "order-ambiguous"));
    ck_assert_int_ne(access(at("x.pt"), F_OK), 0);
    options.param_names = order;
    options.param_name_count = 4;
    migrates(at("m.pt"), "torch", at("x.pt"));
    ckpt_reader *to = opened(at("x.pt"));
    has_params(optimizer_of(to), 0, 0, 4);
    has_states(optimizer_of(to), left, 2);
    ckpt_reader_close(to);
}
END_TEST

/* ---- native files */

typedef struct trainer {
    float params[3][4], m[3][4], v[3][4], ema[3][4], steps[3];
    int64_t step;
    double lr;
} trainer;
static const char *const names[] = {"body.weight", "head.weight", "last.weight"};

static void bind_one(ckpt_state *s, const char *name, const char *param, ckpt_role role, int64_t n, float *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = CKPT_F32;
    d.ndim = n ? 1 : 0;
    d.shape = &n;
    d.data = data;
    OK(ckpt_state_tensor(s, &d, &err));
}

static ckpt_state *bind(trainer *t, bool head_state, int64_t head_size)
{
    ckpt_state *s = ckpt_state_new();
    const ckpt_hyper lr = {"lr", CKPT_SCALAR_F64, &t->lr};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    g.name = "0";
    g.params = names;
    g.param_count = 3;
    g.hypers = &lr;
    g.hyper_count = 1;
    for (size_t i = 0; i < 3; i++) {
        char ema[40];
        snprintf(ema, sizeof ema, "ema.%s", names[i]);
        int64_t n = i == 1 ? head_size : 4;
        bind_one(s, names[i], NULL, CKPT_ROLE_PARAM, n, t->params[i]);
        if (i != 1 || head_state) {
            bind_one(s, NULL, names[i], CKPT_ROLE_EXP_AVG, n, t->m[i]);
            bind_one(s, NULL, names[i], CKPT_ROLE_EXP_AVG_SQ, n, t->v[i]);
            bind_one(s, NULL, names[i], CKPT_ROLE_STEP, 0, &t->steps[i]);
            bind_one(s, ema, NULL, CKPT_ROLE_EMA, n, t->ema[i]);
        }
    }
    OK(ckpt_state_group(s, &g, &err));
    OK(ckpt_state_i64(s, "step", &t->step, &err));
    return s;
}

static void save(const char *path, trainer *t)
{
    ckpt_save_options save_options = CKPT_SAVE_OPTIONS_INIT;
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < 12; i++) {
        t->params[i / 4][i % 4] = (float)i;
        t->m[i / 4][i % 4] = (float)i + 0.5f;
        t->v[i / 4][i % 4] = (float)i + 0.25f;
        t->ema[i / 4][i % 4] = (float)i + 0.125f;
        t->steps[i / 4] = 7;
    }
    t->step = 7;
    t->lr = 0.5;
    save_options.no_sync = true;
    ckpt_state *s = bind(t, true, 4);
    OK(ckpt_save(s, path, &save_options, &err));
    ckpt_state_free(s);
}

/* The group goes on naming the parameter; a state whose head is new is restored, and the head keeps what it has. */
START_TEST(native_files)
{
    static const char *const globs[] = {"head.*"};
    static trainer saved, t;
    save(at("n.safetensors"), &saved);
    replacing(globs, 1);
    migrates(at("n.safetensors"), "ckpt", at("r.safetensors"));
    ckpt_reader *to = opened(at("r.safetensors"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(to), 10);
    const ckpt_value *group = ckpt_value_get(ckpt_value_get(optimizer_of(to), "groups"), "0");
    ck_assert_uint_eq(ckpt_value_get(group, "params")->item_count, 3);
    ck_assert_ptr_null(find(to, "ema.head.weight"));
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(report, "replaced", "ema.head.weight")->message, "average"));
    ckpt_reader_close(to);
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < 4; i++)
        t.params[1][i] = 100;
    ckpt_state *s = bind(&t, true, 3); /* a head of three, with moments of its own */
    OK(ckpt_state_optional(s, "*head.*", &err));
    OK(ckpt_restore(s, at("r.safetensors"), NULL, report, &err));
    ckpt_state_free(s);
    ck_assert_mem_eq(t.params[0], saved.params[0], 16);
    ck_assert_mem_eq(t.v[2], saved.v[2], 16);
    ck_assert_mem_eq(t.ema[2], saved.ema[2], 16);
    ck_assert(t.params[1][0] == 100 && t.m[1][0] == 0 && t.steps[1] == 0 && t.steps[0] == 7 && t.lr == 0.5);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "kept", "head.weight"));
}
END_TEST

/* On the way to torch, there and through a native file: the same numbers. */
START_TEST(native_to_torch)
{
    static const char *const globs[] = {"head.*"};
    static const int64_t left[] = {0, 2};
    static trainer saved;
    save(at("n.safetensors"), &saved);
    replacing(globs, 1);
    migrates(at("n.safetensors"), "torch", at("r.pt"));
    migrates(at("n.safetensors"), "ckpt", at("r.safetensors"));
    replacing(NULL, 0);
    migrates(at("r.safetensors"), "torch", at("again.pt"));
    const char *const both[] = {"r.pt", "again.pt"};
    for (size_t i = 0; i < 2; i++) {
        ckpt_reader *to = opened(at("%s", both[i]));
        has_params(optimizer_of(to), 0, 0, 3);
        has_states(optimizer_of(to), left, 2);
        ck_assert_ptr_null(find(to, "ema.head.weight"));
        ckpt_reader_close(to);
    }
}
END_TEST

/* A torch file to a native one, which keeps its structure, and back. */
START_TEST(through_a_native_file)
{
    static const int64_t left[] = {0, 1, 2, 3};
    replacing(head, 1);
    migrates(plain(), "ckpt", at("r.safetensors"));
    replacing(NULL, 0);
    migrates(at("r.safetensors"), "torch", at("r.pt"));
    ckpt_reader *to = opened(at("r.pt"));
    has_params(optimizer_of(to), 0, 0, 6);
    has_states(optimizer_of(to), left, 4);
    ckpt_reader_close(to);
    migrates(plain(), "ckpt", at("n.safetensors"));
    replacing(head, 1);
    migrates(at("n.safetensors"), "torch", at("r.pt"));
    to = opened(at("r.pt"));
    has_params(optimizer_of(to), 0, 0, 6);
    has_states(optimizer_of(to), left, 4);
    ckpt_reader_close(to);
    migrates(at("n.safetensors"), "ckpt", at("r.safetensors"));
    to = opened(at("r.safetensors"));
    ck_assert_ptr_null(find(to, "2.weight"));
    ck_assert_ptr_null(find(to, "optimizer.2.weight.exp_avg"));
    ckpt_reader_close(to);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_replace");
    TCase *t = tcase_create("replace");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, torch_numbers_stay);
    tcase_add_test(t, with_drop);
    tcase_add_test(t, nothing_matches);
    tcase_add_test(t, an_order_that_is_not_known);
    tcase_add_test(t, native_files);
    tcase_add_test(t, native_to_torch);
    tcase_add_test(t, through_a_native_file);
    suite_add_tcase(s, t);
    return run_suite(s);
}
