/* Checkpoints of DeepSpeed: what every rank has of the masters and the moments is put together by its place, and what is missing, cut off,
 * doubled or of another save is named. Each element says which tensor it is of, and where in it; padding is -1. */
#include <ckpt/doctor.h>
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include <ckpt/summary.h>
#include <ckpt/verify.h>
#include "../reader_checks.h"
#include "../scarce_memory.h"

static const struct {
    const char *name;
    int ndim, a, b, group;
} params[] = {
    {"block.w", 2, 3, 4, 0}, {"embed", 2, 5, 2, 0}, {"block.b", 1, 7, 1, 1}, {"s", 1, 1, 1, 1}, {"norm", 1, 2, 1, 1}};
enum {
    PARAMS = sizeof params / sizeof *params,
    GROUPS = 2,
    WEIGHT = 0,
    MASTER,
    EXP_AVG,
    EXP_AVG_SQ,
    BUFFER,
    FROZEN,
    KINDS
};

static int numel_of(int p)
{
    return params[p].a * params[p].b;
}

static float another_run; /* what its values are more than those of this run */

/* Masters are the weights. */
static float value_of(int kind, int p, int i)
{
    return (float)((kind == MASTER ? WEIGHT : kind) * 10000 + p * 100 + i + 1) + another_run;
}

/* What differs from checkpoint to checkpoint. */
typedef struct layout {
    int stage, ranks, step, align; /* align: elements of padding behind each parameter */
    bool subgroups;                /* stage 3: group 0 lies in two flat tensors */
    bool reversed;                 /* the parameters of a group are laid out from the last on (round_robin_gradients) */
    bool number;                   /* step is an int */
    int of_step;                   /* of the optimizer; 0: step */
    bool bf16;                     /* stage 1: BF16_Optimizer's, whose masters keep their padding */
    const char *version, *added; /* ds_version (NULL: 0.19.8) and data_types.grad_accum_dtype (NULL: it is not there) */
} layout;

static const char *below = "";

static const char *tag_path(const char *format, ...) CKPT__PRINTF(1, 2);
static const char *tag_path(const char *format, ...)
{
    char name[200];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return at("%s%s", below, name);
}

/* ---- what all files have */

static void begin_dict(torch_file *t)
{
    PUT(&t->pickle, "}(");
}

static void end_dict(torch_file *t)
{
    PUT(&t->pickle, "u");
}

static void key(torch_file *t, const char *name)
{
    put_str(&t->pickle, name);
}

static void key_int(torch_file *t, const char *name, int64_t value)
{
    key(t, name);
    put_int(&t->pickle, value);
}

static void put_size(torch_file *t, int ndim, int a, int b)
{
    PUT(&t->pickle, "ctorch\nSize\n((");
    put_int(&t->pickle, a);
    if (ndim == 2)
        put_int(&t->pickle, b);
    PUT(&t->pickle, "ttR");
}

static void put_values(torch_file *t, const float *values, int n)
{
    torch_tensor(t, 1, n, 0, 0);
    memcpy(t->data[t->count - 1], values, (size_t)n * sizeof *values);
}

/* The parameters of a group in the order in which they are laid out. */
static int in_order(const layout *l, int group, int *order)
{
    int n = 0;
    for (int i = 0; i < PARAMS; i++) {
        int p = l->reversed ? PARAMS - 1 - i : i;
        if (params[p].group == group)
            order[n++] = p;
    }
    return n;
}

/* Flat tensors of a rank, and the group of each and its first parameter in the order; stage 3 may have more of them than groups. */
static int flat_count(const layout *l)
{
    return GROUPS + (l->subgroups ? 1 : 0);
}

static void range_of_flat(const layout *l, int which, int *group, int *first, int *count)
{
    int order[PARAMS];
    *group = l->subgroups ? (which < 2 ? 0 : 1) : which;
    *first = l->subgroups && which == 1;
    *count = l->subgroups && which < 2 ? 1 : in_order(l, *group, order);
}

/* A whole group, padded; *end: without the padding at its end. Returns the elements of a rank. */
static int lay_out(const layout *l, int group, int kind, float *all, int *end)
{
    int order[PARAMS], n = in_order(l, group, order), at_element = 0;
    for (int i = 0; i < 512; i++)
        all[i] = -1;
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < numel_of(order[k]); i++)
            all[at_element++] = value_of(kind, order[k], i);
        at_element += l->align;
    }
    *end = at_element;
    const int unit = 2 * l->ranks;
    return (at_element + unit - 1) / unit * unit / l->ranks;
}

/* What a rank has of a flat tensor. */
static int part_of(const layout *l, int which, int kind, int rank, float *out)
{
    float all[512];
    int group, first, count, end, n = 0, order[PARAMS];
    if (l->stage < 3) {
        const int part = lay_out(l, which, kind, all, &end), left = end - rank * part;
        memcpy(out, all + (size_t)rank * (size_t)part, (size_t)part * sizeof *out);
        return kind != MASTER || l->bf16 || left > part ? part : left > 0 ? left : 0;
    }
    range_of_flat(l, which, &group, &first, &count);
    in_order(l, group, order);
    for (int k = first; k < first + count; k++) {
        const int numel = numel_of(order[k]), share = (numel + l->ranks - 1) / l->ranks;
        for (int i = rank * share; i < (rank + 1) * share; i++)
            out[n++] = i < numel ? value_of(kind, order[k], i) : -1;
    }
    return n;
}

/* ---- the optimizer's files */

static void put_flats(torch_file *t, const layout *l, int rank)
{
    float values[512];
    PUT(&t->pickle, "](");
    for (int k = 0; k < flat_count(l); k++) {
        int n = part_of(l, k, MASTER, rank, values);
        put_values(t, values, n);
    }
    PUT(&t->pickle, "e");
}

static void put_states(torch_file *t, const layout *l, int rank)
{
    float values[512];
    begin_dict(t);
    for (int k = 0; k < flat_count(l); k++) {
        put_int(&t->pickle, k);
        begin_dict(t);
        if (l->number) {
            key_int(t, "step", l->of_step ? l->of_step : l->step);
        } else {
            key(t, "step");
            torch_tensor(t, 0, 0, 0, (float)(l->of_step ? l->of_step : l->step));
        }
        key(t, "exp_avg");
        put_values(t, values, part_of(l, k, EXP_AVG, rank, values));
        key(t, "exp_avg_sq");
        put_values(t, values, part_of(l, k, EXP_AVG_SQ, rank, values));
        end_dict(t);
    }
    end_dict(t);
}

static bool amsgrad; /* what the groups say */

static void put_groups(torch_file *t, const layout *l)
{
    int next = 0;
    PUT(&t->pickle, "](");
    for (int g = 0; g < GROUPS; g++) {
        begin_dict(t);
        key(t, "lr");
        torch_float(t, 0.5 + g);
        key(t, "amsgrad");
        put(&t->pickle, amsgrad ? "\x88" : "\x89", 1);
        key(t, "params");
        PUT(&t->pickle, "](");
        put_int(&t->pickle, next++);
        if (l->subgroups && g == 0)
            put_int(&t->pickle, next++);
        PUT(&t->pickle, "e");
        end_dict(t);
    }
    PUT(&t->pickle, "e");
}

/* Padding that the masters of this rank lack. */
static void put_paddings(torch_file *t, const layout *l, int rank)
{
    float values[512];
    layout trimmed = *l;
    trimmed.bf16 = false;
    PUT(&t->pickle, "](");
    for (int g = 0; g < GROUPS; g++)
        put_int(&t->pickle, part_of(l, g, EXP_AVG, rank, values) - part_of(&trimmed, g, MASTER, rank, values));
    PUT(&t->pickle, "e");
}

/* In the optimizer's own order, whatever the parameters are laid out in. */
static void put_mappings(torch_file *t, int rank)
{
    PUT(&t->pickle, "](");
    for (int g = 0; g < GROUPS; g++) {
        begin_dict(t);
        for (int p = 0; p < PARAMS; p++)
            if (params[p].group == g && (p % 2 == 0) == (rank == 0))
                key_int(t, params[p].name, 0);
        end_dict(t);
    }
    PUT(&t->pickle, "e");
}

static void put_alignment(torch_file *t, const layout *l)
{
    int order[PARAMS];
    PUT(&t->pickle, "](");
    for (int g = 0; g < GROUPS; g++) {
        PUT(&t->pickle, "](");
        for (int k = 0; k < in_order(l, g, order); k++)
            put_int(&t->pickle, l->align);
        PUT(&t->pickle, "e");
    }
    PUT(&t->pickle, "e");
}

static void put_optimizer(torch_file *t, const layout *l, int rank)
{
    if (!l->bf16)
        key_int(t, "zero_stage", l->stage);
    key(t, "partition_count");
    if (l->stage == 3) {
        put_int(&t->pickle, l->ranks);
    } else {
        PUT(&t->pickle, "](");
        put_int(&t->pickle, l->ranks);
        put_int(&t->pickle, l->ranks);
        PUT(&t->pickle, "e");
        key(t, "group_paddings");
        put_paddings(t, l, rank);
        key(t, "param_alignment_paddings");
        put_alignment(t, l);
        if (l->reversed && l->ranks == 2) {
            key(t, "param_slice_mappings");
            put_mappings(t, rank);
        }
    }
    key(t, l->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    put_flats(t, l, rank);
    key(t, l->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    begin_dict(t);
    key(t, "state");
    put_states(t, l, rank);
    key(t, "param_groups");
    put_groups(t, l);
    end_dict(t);
    if (l->bf16)
        return;
    key(t, "loss_scaler");
    begin_dict(t);
    key(t, "dynamic");
    PUT(&t->pickle, "\x88");
    key_int(t, "cur_scale", 256);
    key_int(t, "scale_factor", 2);
    key_int(t, "scale_window", 4);
    key_int(t, "cur_iter", 10);
    key_int(t, "last_overflow_iter", 3);
    end_dict(t);
}

static const char *optim_path(int rank)
{
    return tag_path("bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank);
}

static const char *saved_as = "archive"; /* what torch.save called the archive */

static void write_optim(const char *path, layout l, int rank)
{
    torch_file *t = begin_torch();
    begin_dict(t);
    key(t, "optimizer_state_dict");
    begin_dict(t);
    put_optimizer(t, &l, rank);
    end_dict(t);
    key(t, "ds_version");
    key(t, "0.19.8");
    end_dict(t);
    write_torch_as(path, saved_as, t);
}

/* ---- the model's files */

static void put_shapes(torch_file *t, const layout *l)
{
    key(t, "param_shapes");
    PUT(&t->pickle, "](");
    for (int k = 0; k < flat_count(l); k++) {
        int group, first, count, order[PARAMS];
        range_of_flat(l, k, &group, &first, &count);
        in_order(l, group, order);
        PUT(&t->pickle, "ccollections\nOrderedDict\n)R(");
        for (int i = first; i < first + count; i++) {
            key(t, params[order[i]].name);
            put_size(t, params[order[i]].ndim, params[order[i]].a, params[order[i]].b);
        }
        PUT(&t->pickle, "u");
    }
    PUT(&t->pickle, "e");
}

static void put_module(torch_file *t, const layout *l, int rank)
{
    key(t, "module");
    begin_dict(t);
    for (int p = 0; p < PARAMS; p++) {
        key(t, params[p].name);
        torch_tensor(t, l->stage == 3 ? 1 : params[p].ndim, l->stage == 3 ? 0 : params[p].a, params[p].b,
                     value_of(WEIGHT, p, 0));
    }
    key(t, "tied");
    torch_tensor(t, l->stage == 3 ? 1 : 2, l->stage == 3 ? 0 : 5, 2, value_of(WEIGHT, 1, 0));
    key(t, "seen");
    torch_tensor(t, 1, 2, 0, value_of(BUFFER, 0, 0));
    key(t, "pos");
    torch_tensor(t, l->stage == 3 ? 1 : 2, l->stage == 3 ? 0 : 3, 3, value_of(FROZEN, 0, 0));
    end_dict(t);
    key(t, "frozen_param_shapes");
    begin_dict(t);
    key(t, "pos");
    put_size(t, 2, 3, 3);
    end_dict(t);
    if (l->stage == 3) {
        const int share = (9 + l->ranks - 1) / l->ranks;
        key(t, "frozen_param_fragments");
        begin_dict(t);
        key(t, "pos");
        torch_tensor(t, 1, share, 0, value_of(FROZEN, 0, rank * share));
        end_dict(t);
    }
}

static const char *model_path(int stage, int rank)
{
    return stage == 3 ? tag_path("zero_pp_rank_%d_mp_rank_00_model_states.pt", rank)
                      : tag_path("mp_rank_%02d_model_states.pt", rank);
}

static void write_model(const char *path, layout l, int rank)
{
    torch_file *t = begin_torch();
    begin_dict(t);
    put_module(t, &l, rank);
    put_shapes(t, &l);
    key(t, "buffer_names");
    PUT(&t->pickle, "](");
    key(t, "seen");
    PUT(&t->pickle, "e");
    key(t, "shared_params");
    begin_dict(t);
    key(t, "tied");
    key(t, "embed");
    end_dict(t);
    key_int(t, "global_steps", l.step);
    key_int(t, "dp_world_size", l.ranks);
    key(t, "ds_version");
    key(t, l.version ? l.version : "0.19.8");
    key(t, "optimizer");
    PUT(&t->pickle, "N");
    key(t, "s"); /* a client's key that a parameter has too */
    key(t, "corpus");
    key(t, "ds_config");
    begin_dict(t);
    key(t, "zero_optimization");
    begin_dict(t);
    key_int(t, "stage", l.stage);
    key(t, "round_robin_gradients");
    put(&t->pickle, l.reversed ? "\x88" : "\x89", 1);
    end_dict(t);
    if (l.added) {
        key(t, "bf16");
        begin_dict(t);
        key(t, "enabled");
        PUT(&t->pickle, "\x88");
        end_dict(t);
        key(t, "data_types");
        begin_dict(t);
        key(t, "grad_accum_dtype");
        key(t, l.added);
        end_dict(t);
    }
    end_dict(t);
    end_dict(t);
    write_torch_as(path, saved_as, t);
}

static void write_all(layout l)
{
    for (int r = 0; r < (l.stage == 3 ? l.ranks : 1); r++)
        write_model(model_path(l.stage, r), l, r);
    for (int r = 0; r < l.ranks; r++)
        write_optim(optim_path(r), l, r);
}

/* ---- looking */

static void expect_values(const char *name, int kind, int p, int ndim, int a, int b, ckpt_role role)
{
    float values[64];
    size_t number;
    const ckpt_tensor_info *t = tensor_named(name, &number);
    const int n = a * b;
    ck_assert_msg(t->ndim == (uint32_t)ndim && t->shape[0] == a && (ndim == 1 || t->shape[1] == b), "%s: its shape",
                  name);
    ck_assert_int_eq(t->role, role);
    ckpt_status status = ckpt_reader_read(reader, number, values, (size_t)n * 4, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", name, err.message);
    for (int i = 0; i < n; i++)
        ck_assert_msg(values[i] == value_of(kind, p, i), "%s[%d]: %g", name, i, (double)values[i]);
}

static void expect_param(const char *name, int kind, int p, ckpt_role role)
{
    expect_values(name, kind, p, params[p].ndim, params[p].a, params[p].b, role);
}

static void expect_states(int p)
{
    static const struct {
        const char *ending;
        int kind;
        ckpt_role role;
    } kinds[] = {{"fp32", MASTER, CKPT_ROLE_MASTER},
                 {"exp_avg", EXP_AVG, CKPT_ROLE_EXP_AVG},
                 {"exp_avg_sq", EXP_AVG_SQ, CKPT_ROLE_EXP_AVG_SQ}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char name[80];
        snprintf(name, sizeof name, "optimizer.%s.%s", params[p].name, kinds[k].ending);
        expect_param(name, kinds[k].kind, p, kinds[k].role);
    }
}

static void expect_model(void)
{
    for (int p = 0; p < PARAMS; p++)
        expect_param(params[p].name, WEIGHT, p, CKPT_ROLE_PARAM);
    expect_param("tied", WEIGHT, 1, CKPT_ROLE_PARAM);
    expect_values("seen", BUFFER, 0, 1, 2, 1, CKPT_ROLE_BUFFER);
    expect_values("pos", FROZEN, 0, 2, 3, 3, CKPT_ROLE_PARAM);
}

static void expect_all(void)
{
    expect_model();
    for (int p = 0; p < PARAMS; p++)
        expect_states(p);
}

static const ckpt_value *value_at(const char *path)
{
    const ckpt_value *v = NULL;
    ck_assert_msg(ckpt_value_find(ckpt_reader_root(reader), path, &v, &err) == CKPT_OK, "%s: %s", path, err.message);
    return v;
}

/* ---- the tests */

static void begin_here(void)
{
    below = "";
    setup();
}

START_TEST(every_stage_and_world_is_put_together)
{
    for (int stage = 1; stage <= 3; stage++)
        for (int ranks = 1; ranks <= 5; ranks++)
            for (int variant = 0; variant < 4; variant++) {
                const layout l = {.stage = stage,
                                  .ranks = ranks,
                                  .step = 7,
                                  .align = stage < 3 && variant % 2 ? 3 : 0,
                                  .subgroups = stage == 3 && variant % 2,
                                  .reversed = variant / 2};
                ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
                write_all(l);
                opens(folder);
                ck_assert_str_eq(ckpt_reader_format(reader), "deepspeed");
                ck_assert_uint_eq(ckpt_reader_tensor_count(reader), PARAMS * 5 + 3);
                expect_all();
                ck_assert_int_eq(ckpt_verify(folder, NULL, &result, NULL, &err), CKPT_OK);
                ck_assert_msg(result.ok, "stage %d, %d ranks", stage, ranks);
                anew();
            }
}
END_TEST

START_TEST(masters_that_keep_their_padding)
{
    for (int ranks = 1; ranks <= 5; ranks++) {
        ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
        write_all((layout){.stage = 1, .ranks = ranks, .step = 7, .bf16 = true, .added = "fp32"});
        opens(folder);
        expect_all();
        ck_assert_int_eq(ckpt_verify(folder, NULL, &result, NULL, &err), CKPT_OK);
        ck_assert_msg(result.ok, "%d ranks", ranks);
        anew();
    }
}
END_TEST

/* DeepSpeed 0.18.2 with stage 1, bf16 and gradients in float32: there is a model's file, and none of the optimizer. */
START_TEST(a_version_that_wrote_no_optimizer_is_named)
{
    static const struct {
        layout l;
        const char *says;
    } all[] = {
        {{.stage = 1, .ranks = 2, .step = 7, .version = "0.18.2", .added = "fp32"}, "DeepSpeed 0.18.2 writes none"},
        {{.stage = 2, .ranks = 2, .step = 7, .version = "0.18.2", .added = "fp32"}, "Copy them from"},
        {{.stage = 1, .ranks = 2, .step = 7, .version = "0.18.2", .added = "bf16"}, "Copy them from"},
        {{.stage = 1, .ranks = 2, .step = 7, .version = "0.18.2"}, "Copy them from"},
        {{.stage = 1, .ranks = 2, .step = 7, .added = "fp32"}, "Copy them from"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        write_model(model_path(1, 0), all[i].l, 0);
        fails(folder, CKPT_E_DAMAGED, all[i].says);
        anew();
    }
}
END_TEST

START_TEST(values_are_those_of_the_files)
{
    write_all((layout){.stage = 2, .ranks = 2, .step = 7, .number = true});
    opens(folder);
    ck_assert_str_eq(ckpt_reader_layout(reader), "ZeRO stage 2 over 2 data parallel ranks");
    ck_assert_int_eq(value_at("step")->integer, 7);
    ck_assert_int_eq(value_at("optimizer.block.w.step")->integer, 7);
    ck_assert(value_at("optimizer.groups.1.lr")->real == 1.5);
    const ckpt_value *names = value_at("optimizer.groups.0.params");
    ck_assert_uint_eq(names->item_count, 2);
    ck_assert(strcmp(names->items[1]->text.data, "embed") == 0);
    ck_assert(value_at("scaler.scale")->real == 256);
    ck_assert_int_eq(value_at("scaler._growth_tracker")->integer, 2); /* 6 steps since the overflow, of 4 each */
    ck_assert_str_eq(value_at("client_state.s")->text.data, "corpus");
    ck_assert_int_eq(value_at("zero_stage")->integer, 2);
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_str_eq(s.producer, "DeepSpeed");
    ck_assert_int_eq(s.step, 7);
    ckpt_summary_clear(&s);
}
END_TEST

/* What is laid out in another order than the optimizer's has that one in param_slice_mappings, or in no file. */
START_TEST(the_optimizers_order_is_its_own)
{
    write_all((layout){.stage = 2, .ranks = 2, .step = 7, .reversed = true});
    opens(folder);
    const ckpt_value *names = value_at("optimizer.groups.1.params");
    ck_assert_uint_eq(names->item_count, 3);
    ck_assert_str_eq(names->items[0]->text.data, "block.b"); /* rank 0's, then rank 1's */
    ck_assert_str_eq(names->items[1]->text.data, "norm");
    ck_assert_str_eq(names->items[2]->text.data, "s");
    ck_assert(!finding("order-unknown"));
    anew();
    write_all((layout){.stage = 2, .ranks = 3, .step = 7, .reversed = true});
    opens(folder);
    ck_assert(finding("order-unknown"));
}
END_TEST

START_TEST(it_becomes_a_file_of_torch)
{
    for (int stage = 1; stage <= 3; stage++) {
        ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
        char out[300];
        size_t number;
        float step = 0;
        write_all((layout){.stage = stage, .ranks = 3, .step = 7});
        options.to = "torch";
        options.verify = true;
        snprintf(out, sizeof out, "%s.pt", folder); /* never inside the source */
        ckpt_status status = ckpt_migrate(folder, out, &options, NULL, &err);
        ck_assert_msg(status == CKPT_OK, "%s", err.message);
        opens(out);
        unlink(out);
        expect_param("model.embed", WEIGHT, 1, CKPT_ROLE_PARAM);
        expect_param("optimizer.state.2.exp_avg_sq", EXP_AVG_SQ, 2, CKPT_ROLE_EXP_AVG_SQ);
        expect_param("optimizer.state.1.master", MASTER, 1, CKPT_ROLE_MASTER);
        ck_assert_uint_eq(tensor_named("optimizer.state.4.step", &number)->nbytes, 4);
        ck_assert_int_eq(ckpt_reader_read(reader, number, &step, 4, &err), CKPT_OK);
        ck_assert(step == 7);
        const int64_t storage = tensor_named("optimizer.state.4.step", &number)->storage; /* each counts by itself */
        ck_assert_int_ne(tensor_named("optimizer.state.3.step", &number)->storage, storage);
        ck_assert_str_eq(value_at("optimizer.param_groups.0.param_names.1")->text.data, "embed");
        anew();
    }
}
END_TEST

START_TEST(a_rank_without_its_file_is_named)
{
    for (int stage = 2; stage <= 3; stage++)
        for (int rank = 0; rank < 3; rank++) {
            ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
            char word[80];
            size_t number;
            options.leave_damaged = true;
            write_all((layout){.stage = stage, .ranks = 3, .step = 7});
            ck_assert_int_eq(unlink(optim_path(rank)), 0);
            fails(folder, CKPT_E_DAMAGED, "is missing");
            snprintf(word, sizeof word, "zero_pp_rank_%d_", rank);
            ck_assert_ptr_nonnull(strstr(err.object, word));
            ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
            ck_assert(finding("shard-missing"));
            tensor_named("optimizer.block.w.exp_avg", &number);
            if (stage == 2)
                expect_model();
            anew();
        }
}
END_TEST

/* What verify says: no, and why. */
static void finds(const char *code, const char *words)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    ck_assert_ptr_nonnull(report);
    ck_assert_int_eq(ckpt_verify(folder, NULL, &result, report, &err), CKPT_ANSWER_NO);
    ck_assert(!result.ok);
    const ckpt_finding *f = ckpt_report_find(report, code, NULL);
    ck_assert_msg(f && f->severity == CKPT_SEVERITY_ERROR && f->file && strstr(f->message, words), "%s: %s", code,
                  f ? f->message : "not found");
    ckpt_report_free(report);
}

START_TEST(files_of_several_saves_do_not_mix)
{
    static const struct {
        layout other; /* in the place of rank 1 of 2 */
        int rank;
        const char *words;
    } cases[] = {{{.stage = 2, .ranks = 3, .step = 7}, 1, "of a run of 3 ranks"},
                 {{.stage = 1, .ranks = 2, .step = 7}, 1, "of ZeRO stage 1"},
                 {{.stage = 2, .ranks = 2, .step = 8}, 1, "of step 8"},
                 {{.stage = 2, .ranks = 2, .step = 7, .align = 3}, 1, "14 elements, that of rank 0 has 12"},
                 {{.stage = 2, .ranks = 2, .step = 7}, 0, "another rank"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_all((layout){.stage = 2, .ranks = 2, .step = 7});
        write_optim(optim_path(1), cases[i].other, cases[i].rank);
        fails(folder, CKPT_E_MISMATCH, cases[i].words);
        finds("mixed-files", cases[i].words);
        anew();
    }
    write_all((layout){.stage = 3, .ranks = 2, .step = 7});
    write_optim(optim_path(1), (layout){.stage = 3, .ranks = 2, .step = 7}, 0);
    fails(folder, CKPT_E_MISMATCH, "byte for byte those of rank 0");
    anew();
    saved_as =
        "zero_pp_rank_9_mp_rank_00_optim_states"; /* both were exchanged: nothing is left, and the first says why */
    write_optim(optim_path(0), (layout){.stage = 3, .ranks = 2, .step = 7}, 0);
    write_optim(optim_path(1), (layout){.stage = 3, .ranks = 2, .step = 7}, 1);
    saved_as = "archive";
    write_model(model_path(3, 0), (layout){.stage = 3, .ranks = 2, .step = 7}, 0);
    write_model(model_path(3, 1), (layout){.stage = 3, .ranks = 2, .step = 7}, 1);
    finds("mixed-files", "it was saved as zero_pp_rank_9");
    anew();
    write_all((layout){.stage = 3, .ranks = 2, .step = 7});
    write_model(model_path(3, 1), (layout){.stage = 3, .ranks = 2, .step = 6}, 1);
    fails(folder, CKPT_E_MISMATCH, "it is of step 6");
    anew();
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    write_optim(optim_path(2), (layout){.stage = 2, .ranks = 3, .step = 7}, 2); /* one rank too many */
    fails(folder, CKPT_E_MISMATCH, "there is a file of rank 2");
    anew();
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    write_optim(tag_path("zero_pp_rank_1_mp_rank_00_optim_states.pt"), (layout){.stage = 2, .ranks = 2, .step = 7}, 1);
    fails(folder, CKPT_E_MISMATCH, "of the same rank");
    finds("mixed-files", "of the same rank");
}
END_TEST

/* torch.save writes the file's name into the archive, and nothing else in a rank's file says whose it is. */
START_TEST(files_that_were_exchanged_are_named)
{
    const layout two = {.stage = 2, .ranks = 2, .step = 7}, three = {.stage = 3, .ranks = 2, .step = 7};
    write_all(two);
    saved_as = "bf16_zero_pp_rank_0_mp_rank_00_optim_states";
    write_optim(optim_path(0), two, 0);
    opens(folder);
    expect_all();
    write_optim(optim_path(1), two, 0);
    fails(folder, CKPT_E_MISMATCH, "it was saved as bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    ck_assert_ptr_nonnull(strstr(err.object, "zero_pp_rank_1_"));
    anew();
    saved_as = "archive";
    write_all(three);
    saved_as = "zero_pp_rank_0_mp_rank_00_model_states";
    write_model(model_path(3, 1), three, 0); /* with another part of the frozen parameter */
    fails(folder, CKPT_E_MISMATCH, "it was saved as zero_pp_rank_0_mp_rank_00_model_states.pt");
    saved_as = "zero_pp_rank_1_mp_rank_00_model_states";
    write_model(model_path(3, 1), three, 1);
    opens(folder);
    expect_all();
    saved_as = "best"; /* a name of the user's says nothing */
    write_model(model_path(3, 1), three, 1);
    opens(folder);
    saved_as = "archive";
}
END_TEST

/* With stages 1 and 2 the weights are the masters behind each step. */
START_TEST(files_whose_values_are_of_several_saves_are_told)
{
    const layout l = {.stage = 2, .ranks = 2, .step = 7};
    make_directory("global_step7");
    write_text(at("latest"), "global_step7");
    below = "global_step7/";
    write_all(l);
    opens(folder);
    ck_assert(!finding("weights-not-masters"));
    another_run = 0.5F;
    write_optim(optim_path(1), l, 1);
    another_run = 0;
    fails(folder, CKPT_E_MISMATCH, "its masters are not the weights of global_step7/mp_rank_00_model_states.pt");
    ck_assert_ptr_nonnull(strstr(err.object, "zero_pp_rank_1_"));
    write_optim(optim_path(1), l, 1);
    another_run = 0.5F;
    write_model(model_path(2, 0), l, 0);
    another_run = 0;
    opens(folder); /* a program may have put an average in their place */
    ck_assert(finding("weights-not-masters"));
    write_model(model_path(2, 0), (layout){.stage = 2, .ranks = 2, .step = 6}, 0);
    fails(folder, CKPT_E_MISMATCH, "it is of step 6, and the optimizer's files are of step 7");
    fails(at("global_step7"), CKPT_E_MISMATCH, "it is of step 6");
    another_run = 0.5F;
    write_model(model_path(2, 0), (layout){.stage = 2, .ranks = 2, .step = 8}, 0);
    another_run = 0;
    fails(folder, CKPT_E_MISMATCH, "it is of step 8, and the optimizer's files are of step 7");
    write_all((layout){.stage = 2, .ranks = 2, .step = 7, .of_step = 2}); /* an optimizer that began later */
    opens(folder);
    ck_assert(!finding("weights-not-masters"));
    write_all((layout){.stage = 1, .ranks = 2, .step = 7, .align = 3, .reversed = true});
    opens(folder);
    ck_assert(!finding("weights-not-masters"));
}
END_TEST

START_TEST(a_file_that_is_cut_off_is_named)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    options.leave_damaged = true;
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    ck_assert_int_eq(truncate(optim_path(1), 700), 0);
    fails(folder, CKPT_E_DAMAGED, "");
    ck_assert_ptr_nonnull(strstr(err.object, "zero_pp_rank_1_"));
    ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
    expect_model();
    ck_assert_int_eq(unlink(model_path(2, 0)), 0);
    fails(folder, CKPT_E_DAMAGED, "mp_rank_00_model_states.pt is missing");
    write_model(model_path(2, 0), (layout){.stage = 2, .ranks = 2, .step = 7}, 0);
    ck_assert_int_eq(truncate(model_path(2, 0), 0), 0);
    fails(folder, CKPT_E_DAMAGED, "the file is empty");
    anew();
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    unlink(optim_path(0));
    unlink(optim_path(1));
    fails(folder, CKPT_E_DAMAGED, "_optim_states.pt is missing");
    ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
    expect_model();
}
END_TEST

START_TEST(the_tag_that_latest_names_is_read)
{
    make_directory("global_step7");
    make_directory("global_step9");
    below = "global_step7/";
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    below = "global_step9/";
    write_all((layout){.stage = 2, .ranks = 2, .step = 9});
    write_text(at("latest"), "global_step7\n");
    opens(folder);
    ck_assert_int_eq(value_at("step")->integer, 7);
    ck_assert(finding("incomplete-step")); /* 9 has been written, and not to its end */
    write_text(at("latest"), "global_step9");
    make_directory("global_step10"); /* killed before its first file */
    opens(folder);
    ck_assert(finding("incomplete-step"));
    ck_assert_int_eq(rmdir(at("global_step10")), 0);
    opens(folder);
    ck_assert_int_eq(value_at("step")->integer, 9);
    ck_assert(finding("file-ignored") && !finding("incomplete-step"));
    write_text(at("latest"), "global_step11");
    opens(folder);
    ck_assert_int_eq(value_at("step")->integer, 9);
    ck_assert(finding("incomplete-step"));
    ck_assert_int_eq(unlink(at("latest")), 0);
    opens(folder);
    ck_assert_int_eq(value_at("step")->integer, 9);
    ck_assert(finding("incomplete-step"));
    write_text(at("latest"), "../global_step9");
    opens(folder);
    ck_assert(finding("incomplete-step"));
    opens(at("global_step7"));
    ck_assert_int_eq(value_at("step")->integer, 7);
    anew();
    make_directory("global_step5"); /* killed before the first file */
    fails(folder, CKPT_E_DAMAGED, "global_step5 has no files of DeepSpeed");
    write_text(at("latest_universal"), "global_step5_universal");
    fails(folder, CKPT_E_DAMAGED, "latest_universal names global_step5_universal");
}
END_TEST

static void expect_resume(const char *words)
{
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_msg(s.resume.data && strstr(s.resume.data, words), "%s, not %s", s.resume.data, words);
    ckpt_summary_clear(&s);
}

/* A save that died leaves a later tag, of which files are missing. */
START_TEST(the_newest_whole_tag_is_named)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    options.leave_damaged = true;
    for (int step = 5; step <= 9; step += 2) {
        char name[40], path[40];
        snprintf(name, sizeof name, "global_step%d", step);
        snprintf(path, sizeof path, "global_step%d/", step);
        make_directory(name);
        below = path;
        write_all((layout){.stage = 2, .ranks = 2, .step = step});
        if (step == 9)
            ck_assert_int_eq(unlink(optim_path(1)), 0);
    }
    below = "global_step9/";
    opens(folder); /* without latest */
    ck_assert_int_eq(value_at("step")->integer, 7);
    ck_assert(finding("incomplete-step"));
    expect_resume("engine.load_checkpoint(\"{path}\", tag=\"global_step7\")");
    write_text(at("latest"), "global_step11");
    opens(folder);
    ck_assert_int_eq(value_at("step")->integer, 7);
    write_text(at("latest"), "global_step9");
    fails(folder, CKPT_E_DAMAGED, "global_step7 is whole");
    ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
    ck_assert(finding("shard-missing") && finding("incomplete-step"));
    write_text(at("latest"), "global_step5");
    opens(folder);
    ck_assert_int_eq(value_at("step")->integer, 5);
    expect_resume("engine.load_checkpoint(\"{path}\")");
    opens(at("global_step5")); /* the engine looks for latest in what it is given */
    expect_resume("engine.load_checkpoint(\"{path}/..\", tag=\"global_step5\")");
}
END_TEST

/* The Trainer's own files lie beside the tag. */
START_TEST(files_beside_the_tag_go_along)
{
    make_directory("global_step7");
    below = "global_step7/";
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    write_text(at("latest"), "global_step7");
    write_text(at("trainer_state.json"), "{\"global_step\": 7, \"epoch\": 1.5}");
    for (int r = 0; r < 2; r++) {
        torch_file *t = begin_torch();
        begin_dict(t);
        key(t, "cpu");
        torch_tensor(t, 1, 4, 0, (float)r);
        end_dict(t);
        write_torch(at("rng_state_%d.pth", r), t);
    }
    opens(folder);
    expect_all();
    size_t number;
    tensor_named("rng_state_1.pth.cpu", &number);
    ck_assert_int_eq(value_at("trainer_state.json.global_step")->integer, 7);
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_str_eq(s.producer, "the HF Trainer with DeepSpeed");
    ckpt_summary_clear(&s);
    ck_assert_int_eq(unlink(at("trainer_state.json")), 0);
    for (int r = 0; r < 2; r++)
        ck_assert_int_eq(rename(at("rng_state_%d.pth", r), at("random_states_%d.pkl", r)), 0);
    opens(folder);
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_str_eq(s.producer, "accelerate with DeepSpeed");
    ckpt_summary_clear(&s);
}
END_TEST

/* ---- another job */

/* What doctor says of it in a job. code NULL: any. */
static void resumes(ckpt_loader loader, int world, const char *mesh, ckpt_outcome outcome, const char *code)
{
    ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    opens(folder);
    options.loader = loader;
    options.world = world;
    options.mesh = mesh;
    ck_assert_msg(ckpt_doctor(reader, &options, &result, report, &err) == CKPT_OK, "%s", err.message);
    const ckpt_finding *worst = ckpt_report_count(report) ? ckpt_report_get(report, 0) : NULL;
    ck_assert_msg(result.outcome == outcome, "%s for %s in %d ranks, mesh %s: %s", ckpt_outcome_name(result.outcome),
                  ckpt_loader_name(result.loader), world, mesh ? mesh : "not said", worst ? worst->message : "");
    ck_assert_msg(!code || ckpt_report_find(report, code, NULL), "no %s", code);
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}

static void is_no_mesh(const char *mesh, int world, const char *words)
{
    ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    options.world = world;
    options.mesh = mesh;
    ck_assert_int_eq(ckpt_doctor(reader, &options, &result, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_msg(strstr(err.message, words), "no '%s' in: %s", words, err.message);
    ckpt_doctor_result_clear(&result);
}

static void write_random_states(const char *format)
{
    for (int r = 0; r < 2; r++) {
        char name[40];
        snprintf(name, sizeof name, "%s_%d.%s", format, r, strcmp(format, "rng_state") == 0 ? "pth" : "pkl");
        torch_file *t = begin_torch();
        begin_dict(t);
        key_int(t, "seed", r);
        end_dict(t);
        write_torch(at("%s", name), t);
    }
}

START_TEST(ranks_load_their_own_parts)
{
    make_directory("global_step7");
    below = "global_step7/";
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "latest-missing");
    write_text(at("latest"), "global_step7");
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_RESUMES, "resume-needs");
    resumes(CKPT_LOADER_DEEPSPEED, 2, NULL, CKPT_OUTCOME_RESUMES, NULL);
    resumes(CKPT_LOADER_DEEPSPEED, 3, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "world-size");
    resumes(CKPT_LOADER_DEEPSPEED, 0, "dp=1", CKPT_OUTCOME_FAILS_AT_LOAD, "world-size");
    resumes(CKPT_LOADER_DEEPSPEED, 0, "dp_replicate=1,dp_shard=2", CKPT_OUTCOME_RESUMES, NULL);
    resumes(CKPT_LOADER_DEEPSPEED, 4, "dp=2,tp=2", CKPT_OUTCOME_UNKNOWN, "mesh");
    resumes(CKPT_LOADER_UNIVERSAL, 0, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "not-its-format");
    resumes(CKPT_LOADER_DCP, 0, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "not-its-format");
    write_text(at("latest"), "global_step8");
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "latest-missing");
    is_no_mesh("", 0, "an axis has a name and a size");
    is_no_mesh("dp=2,", 0, "an axis has a name and a size");
    is_no_mesh("dp", 0, "an axis has a name and a size");
    is_no_mesh("data=2", 0, "there is no axis \"data\"");
    is_no_mesh("dp=2,dp=1", 0, "this axis stands twice");
    is_no_mesh("dp=0", 0, "a size is a number from 1 on");
    is_no_mesh("dp=1000,tp=1000,pp=2", 0, "at most 1000000 ranks");
    is_no_mesh("dp=2,tp=2", 3, "the product of the mesh is the world");
    is_no_mesh(NULL, -1, "a world of -1 ranks");
}
END_TEST

/* The Trainer writes training_args.bin first and trainer_state.json last; accelerate has a folder of its own. */
START_TEST(a_trainers_save_that_was_cut_short)
{
    make_directory("global_step7");
    below = "global_step7/";
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    write_text(at("latest"), "global_step7");
    torch_file *t = begin_torch();
    begin_dict(t);
    end_dict(t);
    write_torch(at("training_args.bin"), t);
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "trainer-state-missing");
    write_text(at("trainer_state.json"), "{\"global_step\": 7, \"epoch\": 1.5}");
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "optimizer-file-missing"); /* scheduler.pt */
    t = begin_torch();
    begin_dict(t);
    key_int(t, "last_epoch", 7);
    end_dict(t);
    write_torch(at("scheduler.pt"), t);
    write_random_states("rng_state");
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_RESUMES, NULL);
    ck_assert_int_eq(unlink(at("rng_state_1.pth")), 0);
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_RESUMES_DIFFERENTLY, "rank-state-count");
    anew();
    make_directory("pytorch_model");
    below = "pytorch_model/";
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_RESUMES_DIFFERENTLY, "rng-missing");
    write_random_states("random_states");
    resumes(CKPT_LOADER_OWN, 0, NULL, CKPT_OUTCOME_RESUMES, NULL); /* which asks for no latest */
    resumes(CKPT_LOADER_DEEPSPEED, 0, NULL, CKPT_OUTCOME_FAILS_AT_LOAD, "latest-missing");
}
END_TEST

/* ---- universal */

static void write_state_of(int p, const char *kind, int number, bool dict)
{
    torch_file *t = begin_torch();
    if (dict) {
        begin_dict(t);
        key_int(t, "cat_dim", 0);
        key(t, "param");
        torch_tensor(t, params[p].ndim, params[p].a, params[p].b, value_of(number, p, 0));
        end_dict(t);
    } else {
        torch_tensor(t, 1, numel_of(p), 0, value_of(number, p, 0));
    }
    write_torch(tag_path("zero/%s/%s.pt", params[p].name, kind), t);
}

static void write_universal(int stage)
{
    const layout l = {.stage = stage, .ranks = 2, .step = 7};
    make_directory("zero");
    for (int r = 0; r < (stage == 3 ? 2 : 1); r++)
        write_model(model_path(stage, r), l, r);
    for (int p = 0; p < PARAMS; p++) {
        char name[80];
        snprintf(name, sizeof name, "zero/%s", params[p].name);
        make_directory(name);
        write_state_of(p, "fp32", MASTER, stage < 3);
        write_state_of(p, "exp_avg", EXP_AVG, stage < 3);
        write_state_of(p, "exp_avg_sq", EXP_AVG_SQ, stage < 3);
        if (stage < 3) {
            torch_file *t = begin_torch();
            torch_tensor(t, 0, 0, 0, 7);
            write_torch(tag_path("zero/%s/step.pt", params[p].name), t);
        }
    }
    torch_file *t = begin_torch();
    begin_dict(t);
    if (stage < 3) {
        key(t, "param_groups");
        put_groups(t, &l);
        key_int(t, "zero_stage", stage);
    } else {
        put_optimizer(t, &l, 0);
    }
    end_dict(t);
    write_torch(tag_path("zero/optimizer_state.pt"), t);
}

/* ds_to_universal.py takes other parameters' elements where round_robin_gradients is on. */
START_TEST(a_universal_checkpoint_with_others_masters_is_told)
{
    const layout reversed = {.stage = 2, .ranks = 2, .step = 7, .reversed = true};
    write_universal(2);
    opens(folder);
    ck_assert(!finding("weights-not-masters"));
    another_run = 0.5F;
    write_state_of(1, "fp32", MASTER, true);
    another_run = 0;
    opens(folder);
    ck_assert(finding("weights-not-masters"));
    ck_assert_int_eq(finding("weights-not-masters")->severity, CKPT_SEVERITY_WARNING);
    ck_assert_str_eq(finding("weights-not-masters")->tensor, "embed");
    write_model(model_path(2, 0), reversed, 0);
    opens(folder);
    ck_assert_int_eq(finding("weights-not-masters")->severity, CKPT_SEVERITY_ERROR);
    ck_assert_ptr_nonnull(strstr(finding("weights-not-masters")->message, "of 1 of 5 parameters"));
}
END_TEST

/* ds_to_universal.py takes no max_exp_avg_sq: the first step of AMSGrad misses it. */
START_TEST(a_universal_checkpoint_of_amsgrad_lacks_its_maximum)
{
    for (int i = 0; i < 4; i++) {
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_report *report = ckpt_report_new();
        amsgrad = i % 2;
        write_universal(i < 2 ? 2 : 3);
        amsgrad = false;
        opens(folder);
        ck_assert_int_ge(ckpt_doctor(reader, NULL, &result, report, &err), 0);
        bool said = false;
        for (size_t k = 0; k < ckpt_report_count(report); k++)
            said = said || strstr(ckpt_report_get(report, k)->message, "5 of the parameters have no max_exp_avg_sq");
        ck_assert_int_eq(said, i % 2);
        ck_assert_int_eq(result.outcome == CKPT_OUTCOME_FAILS_AT_STEP, i % 2);
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
        anew();
    }
}
END_TEST

START_TEST(a_universal_checkpoint_is_whole)
{
    for (int stage = 1; stage <= 3; stage++) {
        write_universal(stage);
        opens(folder);
        ck_assert_str_eq(ckpt_reader_format(reader), "universal");
        for (int p = 0; p < PARAMS; p++) {
            char name[80];
            size_t number;
            float step = 0;
            expect_param(params[p].name, WEIGHT, p, CKPT_ROLE_PARAM);
            expect_states(p);
            snprintf(name, sizeof name, "optimizer.%s.step", params[p].name);
            tensor_named(name, &number);
            ck_assert_int_eq(ckpt_reader_read(reader, number, &step, 4, &err), CKPT_OK);
            ck_assert(step == 7);
        }
        expect_param("tied", WEIGHT, 1, CKPT_ROLE_PARAM);
        expect_values("pos", FROZEN, 0, 2, 3, 3, CKPT_ROLE_PARAM);
        ck_assert(value_at("optimizer.groups.1.lr")->real == 1.5);
        anew();
    }
    write_universal(2);
    ck_assert_int_eq(unlink(tag_path("zero/embed/fp32.pt")), 0);
    fails(folder, CKPT_E_DAMAGED, "is missing, with the master");
    ck_assert_ptr_nonnull(strstr(err.object, "zero/embed/fp32.pt"));
    write_state_of(2, "fp32", MASTER, true);
    ck_assert_int_eq(rename(at("zero/block.b/fp32.pt"), at("zero/embed/fp32.pt")), 0);
    fails(folder, CKPT_E_MISMATCH, "its shape is [7]");
}
END_TEST

/* ---- what is not read */

START_TEST(what_is_not_read_is_refused_by_name)
{
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    write_model(tag_path("mp_rank_01_model_states.pt"), (layout){.stage = 2, .ranks = 2, .step = 7}, 0);
    fails(folder, CKPT_E_UNSUPPORTED, "2 model parallel ranks");
    anew();
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    write_text(tag_path("layer_03-model_00-model_states.pt"), "");
    fails(folder, CKPT_E_UNSUPPORTED, "with a pipeline");
    anew();
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    write_text(tag_path("layer_0_expert_1_mp_rank_00_model_states.pt"), "");
    fails(folder, CKPT_E_UNSUPPORTED, "with experts");
}
END_TEST

/* Without ZeRO one file has all. */
START_TEST(without_zero_it_is_a_file_of_torch)
{
    static const flat shapes[] = {{"w", 2, {3, 4}}};
    torch_file *t = begin_torch();
    begin_dict(t);
    key(t, "module");
    begin_dict(t);
    key(t, "w");
    torch_tensor(t, 2, 3, 4, 1);
    end_dict(t);
    key(t, "optimizer");
    put_adam(t, shapes, 1, 1, 0.1);
    key_int(t, "global_steps", 7);
    end_dict(t);
    make_directory("global_step7");
    below = "global_step7/";
    write_torch(model_path(0, 0), t);
    write_text(at("latest"), "global_step7");
    opens(folder);
    ck_assert_str_eq(ckpt_reader_format(reader), "torch");
    size_t number;
    tensor_named("module.w", &number);
    tensor_named("optimizer.state.0.exp_avg", &number);
    expect_resume("engine.load_checkpoint(\"{path}\")"); /* torch.load reads no directory */
    ckpt_report *report = ckpt_report_new();
    ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ck_assert_int_eq(ckpt_doctor(reader, &options, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(result.loader, CKPT_LOADER_DEEPSPEED);
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_RESUMES);
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
    opens(at("global_step7"));
    expect_resume("engine.load_checkpoint(\"{path}/..\", tag=\"global_step7\")");
    write_text(at("trainer_state.json"), "{\"global_step\": 7}");
    opens(folder);
    expect_resume("resume_from_checkpoint");
}
END_TEST

/* A model's file whose param_shapes are what the function puts. */
static void write_shapes(void (*put_them)(torch_file *t))
{
    torch_file *t = begin_torch();
    begin_dict(t);
    key(t, "module");
    begin_dict(t);
    end_dict(t);
    key_int(t, "global_steps", 7);
    put_them(t);
    end_dict(t);
    write_torch(model_path(2, 0), t);
}

static void no_shapes(torch_file *t)
{
    key_int(t, "x", 1);
}

static void one_shape(torch_file *t, const char *name, int64_t a, int64_t b)
{
    key(t, name);
    PUT(&t->pickle, "ctorch\nSize\n((");
    put_int(&t->pickle, a);
    put_int(&t->pickle, b);
    PUT(&t->pickle, "ttR");
}

static void negative_shapes(torch_file *t)
{
    key(t, "param_shapes");
    PUT(&t->pickle, "](}(");
    one_shape(t, "w", -1, 4);
    PUT(&t->pickle, "ue");
}

static void huge_shapes(torch_file *t)
{
    key(t, "param_shapes");
    PUT(&t->pickle, "](}(");
    one_shape(t, "w", INT64_MAX, INT64_MAX);
    PUT(&t->pickle, "ue");
}

static void large_shapes(torch_file *t)
{
    key(t, "param_shapes");
    PUT(&t->pickle, "](}(");
    one_shape(t, "w", INT64_MAX, 1);
    one_shape(t, "v", INT64_MAX, 1);
    PUT(&t->pickle, "u}(");
    one_shape(t, "u", 1, 1);
    PUT(&t->pickle, "ue");
}

static void twice_shapes(torch_file *t)
{
    key(t, "param_shapes");
    PUT(&t->pickle, "](}(");
    one_shape(t, "w", 1, 4);
    PUT(&t->pickle, "u}(");
    one_shape(t, "w", 1, 4);
    PUT(&t->pickle, "ue");
}

static void other_shapes(torch_file *t)
{
    key(t, "param_shapes");
    PUT(&t->pickle, "](}(");
    one_shape(t, "w", 1, 400);
    PUT(&t->pickle, "u}(");
    one_shape(t, "v", 1, 4);
    PUT(&t->pickle, "ue");
}

static void few_shapes(torch_file *t)
{
    key(t, "param_shapes");
    PUT(&t->pickle, "](}(");
    one_shape(t, "w", 1, 4);
    PUT(&t->pickle, "ue");
}

START_TEST(shapes_of_nonsense_are_refused)
{
    static const struct {
        void (*put)(torch_file *t);
        ckpt_status status;
        const char *words;
    } cases[] = {
        {no_shapes, CKPT_E_UNSUPPORTED, "no param_shapes"},  {negative_shapes, CKPT_E_FORMAT, "no shape for it"},
        {huge_shapes, CKPT_E_FORMAT, "overflows"},           {large_shapes, CKPT_E_FORMAT, "more elements"},
        {twice_shapes, CKPT_E_FORMAT, "has it twice"},       {other_shapes, CKPT_E_MISMATCH, "not of one checkpoint"},
        {few_shapes, CKPT_E_MISMATCH, "2 groups of masters"}};
    write_all((layout){.stage = 2, .ranks = 2, .step = 7});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_shapes(cases[i].put);
        fails(folder, cases[i].status, cases[i].words);
    }
}
END_TEST

/* Each allocation fails in turn: what comes of it is an error of memory, or the whole checkpoint. */
START_TEST(an_allocation_that_fails_is_said)
{
    for (int what = 0; what < 3; what++) {
        ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
        bool done = false;
        options.format = "deepspeed"; /* which format it is, is another question */
        if (what == 2)
            write_universal(2);
        else
            write_all((layout){.stage = 2 + what, .ranks = 2, .step = 7, .reversed = what == 0, .number = true});
        for (long n = 0; !done; n += n < 200 ? 1 : 7) {
            allocations_left = n;
            ckpt_status status = open_with(folder, &options);
            done = allocations_left >= 0;
            allocations_left = -1;
            ck_assert_msg(status == CKPT_E_NO_MEMORY || status == CKPT_OK, "allocation %ld: %d, %s", n, (int)status,
                          err.message);
            if (status == CKPT_OK)
                expect_states(1);
            ck_assert_int_lt(n, 100000);
        }
        anew();
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("deepspeed");
    TCase *t = tcase_create("deepspeed");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, begin_here, teardown);
    tcase_add_test(t, every_stage_and_world_is_put_together);
    tcase_add_test(t, masters_that_keep_their_padding);
    tcase_add_test(t, a_version_that_wrote_no_optimizer_is_named);
    tcase_add_test(t, values_are_those_of_the_files);
    tcase_add_test(t, the_optimizers_order_is_its_own);
    tcase_add_test(t, it_becomes_a_file_of_torch);
    tcase_add_test(t, a_rank_without_its_file_is_named);
    tcase_add_test(t, files_of_several_saves_do_not_mix);
    tcase_add_test(t, files_that_were_exchanged_are_named);
    tcase_add_test(t, files_whose_values_are_of_several_saves_are_told);
    tcase_add_test(t, a_file_that_is_cut_off_is_named);
    tcase_add_test(t, the_tag_that_latest_names_is_read);
    tcase_add_test(t, the_newest_whole_tag_is_named);
    tcase_add_test(t, files_beside_the_tag_go_along);
    tcase_add_test(t, ranks_load_their_own_parts);
    tcase_add_test(t, a_trainers_save_that_was_cut_short);
    tcase_add_test(t, a_universal_checkpoint_of_amsgrad_lacks_its_maximum);
    tcase_add_test(t, a_universal_checkpoint_is_whole);
    tcase_add_test(t, a_universal_checkpoint_with_others_masters_is_told);
    tcase_add_test(t, what_is_not_read_is_refused_by_name);
    tcase_add_test(t, without_zero_it_is_a_file_of_torch);
    tcase_add_test(t, shapes_of_nonsense_are_refused);
    tcase_add_test(t, an_allocation_that_fails_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
