/* What a checkpoint is to training: small trees, and the organs that are found in them with their evidence. */
#include "anatomy/anatomy.h"
#include "../made_values.h"
#include "../runner.h"
#include "../scarce_memory.h"

#include <stdio.h>

/* ---- values, written as Python writes them: {}, [], (), numbers, 'text'. T is a tensor of a weight, N one number, R the
 * state of a generator, O(...) an object with these attributes, C the dict that is being made (a cycle). */

static const char *at;
static ckpt_value *cycle_to;

static const ckpt_value *value(void);

static const ckpt_value *text(void)
{
    const char *end = strchr(++at, '\'');
    const ckpt_value *v = ckpt__value_str(ix->arena, at, (size_t)(end - at));
    at = end + 1;
    return v;
}

static const ckpt_value *items(ckpt_kind kind, char close)
{
    enum { MOST = 16 };
    const ckpt_value *list[MOST];
    size_t n = 0;
    while (*at != close && n < MOST) {
        list[n++] = value();
        at += *at == ',';
        at += *at == ' ';
    }
    at++;
    return ckpt__value_list(ix->arena, kind, list, n);
}

static const ckpt_value *entries(void)
{
    enum { MOST = 16 };
    ckpt_entry list[MOST];
    size_t n = 0;
    ckpt_value *dict = ckpt__value_new(ix->arena, CKPT_V_DICT);
    cycle_to = cycle_to ? cycle_to : dict;
    for (; *at != '}' && n < MOST; n++) {
        list[n].key = value();
        at += 2; /* ": " */
        list[n].value = value();
        at += *at == ',';
        at += *at == ' ';
    }
    at++;
    dict->entries = ckpt__value_dict(ix->arena, list, n)->entries;
    dict->entry_count = n;
    return dict;
}

static const ckpt_value *object(void)
{
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_OBJECT);
    at++; /* '(' */
    v->class_name = ckpt__s("trainer.Thing");
    v->state = value();
    at++;
    return v;
}

static const ckpt_value *value(void)
{
    char c = *at;
    if (c == '\'')
        return text();
    if (c != '-' && (c < '0' || c > '9'))
        at++;
    switch (c) {
    case '{':
        return entries();
    case '[':
        return items(CKPT_V_LIST, ']');
    case '(':
        return items(CKPT_V_TUPLE, ')');
    case 'T':
        return tensor_of(2, CKPT_ROLE_PARAM);
    case 'N':
        return tensor_of(0, CKPT_ROLE_STEP);
    case 'R':
        return tensor_of(1, CKPT_ROLE_RNG);
    case 'O':
        return object();
    case 'C':
        return cycle_to;
    default: {
        char *end;
        int64_t n = strtoll(at, &end, 10);
        at = end;
        return number(n);
    }
    }
}

static const ckpt_value *parse(const char *source)
{
    at = source;
    cycle_to = NULL;
    const ckpt_value *v = value();
    ck_assert_msg(*at == '\0', "%s: not understood from here on: %s", source, at);
    return v;
}

/* ---- organs as text: "optimizer opt 7; step step 1" */

static void write_organs(const ckpt__anatomy *a, char *out, size_t size)
{
    static const char *const kinds[] = {"model",   "optimizer", "scheduler", "scaler", "rng",
                                        "counter", "broken",    "samplers",  "loader"},
                             *const forms[] = {"", " flat", " object", " libtorch"};
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < a->count && n < size; i++) {
        const ckpt__organ *o = &a->organs[i];
        ckpt_str path = ckpt__organ_path(a, o);
        n += (size_t)snprintf(out + n, size - n, "%s%s%s '%.*s' %u", i ? "; " : "", kinds[o->kind], forms[o->form],
                              (int)path.size, path.data, o->evidence);
        ck_assert_ptr_eq(ckpt__organ_value(a, o), a->tree.nodes[o->node].value);
    }
}

#define STATE "'state': {0: {'step': N, 'exp_avg': T}}"
#define ADAM "{" STATE ", 'param_groups': [{'lr': 1, 'params': [0, 1]}]}"
#define SCALER "{'scale': 4, 'growth_factor': 2, 'backoff_factor': 1, 'growth_interval': 9, '_growth_tracker': 0}"
#define STEP_LR "{'step_size': 3, 'base_lrs': [1], 'last_epoch': 2, '_step_count': 3, '_last_lr': [1]}"

static const struct {
    const char *what, *tree, *organs;
    bool in_files;
} table[] = {
    {"nothing", "{}", "", false},
    {"no dict", "[1, 'text', (), {1: 2}]", "", false},
    {"a bare model", "{'a.w': T, 'a.b': T}", "model '' 1", false},
    {"torch's own", "{'net': {'a.w': T}, 'opt': " ADAM ", 'step': 7, 'epoch': 1}",
     "model 'net' 1; optimizer 'opt' 7; counter 'step' 1; counter 'epoch' 1024", false},
    {"several models", "{'netG': {'w': T}, 'netD': {'w': T}, 'optG': " ADAM ", 'optD': " ADAM "}",
     "model 'netG' 1; model 'netD' 1; optimizer 'optG' 7; optimizer 'optD' 7", false},
    {"an average", "{'model': {'w': T}, 'model_ema': {'w': T}}", "model 'model' 1; model 'model_ema' 5", false},
    {"an average beside what is trained", "{'state_dict': {'w': T}, 'current_model_state': {'w': T}}",
     "model 'state_dict' 5; model 'current_model_state' 1", false},
    {"a flattened optimizer", "{'state.a.w.exp_avg': T, 'param_groups.a.w.lr': 1}", "optimizer flat '' 7", false},
    {"one among the weights", "{'a.w': T, 'state.a.w.exp_avg': T, 'param_groups.a.w.lr': 1}",
     "model 'model' 1; optimizer flat 'optimizer' 7", false},
    {"Lightning",
     "{'state_dict': {'a.w': T}, 'optimizer_states': [" ADAM ", " ADAM "], 'lr_schedulers': [" STEP_LR
     "], 'global_step': 4}",
     "model 'state_dict' 1; optimizer 'optimizer_states.0' 7; optimizer 'optimizer_states.1' 7; "
     "scheduler 'lr_schedulers.0' 527; counter 'global_step' 2",
     false},
    {"accelerate",
     "{'model.safetensors': {'a.w': T}, 'optimizer.bin': " ADAM ", 'scheduler.bin': " STEP_LR
     ", 'random_states_0.pkl': {'step': 3, 'torch_manual_seed': R}}",
     "model 'model.safetensors' 1; optimizer 'optimizer.bin' 7; scheduler 'scheduler.bin' 527; "
     "counter 'random_states_0.pkl.step' 1; rng 'random_states_0.pkl.torch_manual_seed' 3",
     true},
    {"8-bit Adam",
     "{'state': {0: {'step': 3, '__bnb_optimizer_quant_state__': {'state1': T, 'qmap1': T}}}, "
     "'param_groups': [{'params': [0]}]}",
     "optimizer '' 7", false},
    {"a scaler, and one that is switched off", "{'s': " SCALER ", 'scaler': {}, 'other': {}}",
     "scaler 's' 31; scaler 'scaler' 32", false},
    {"a scaler without its tracker, and too few keys",
     "{'s': {'scale': 4, 'growth_factor': 2, 'backoff_factor': 1, 'growth_interval': 9}, 't': {'scale': 1, 'growth_factor': 2}}",
     "scaler 's' 15", false},
    {"schedulers",
     "{'a': " STEP_LR ", 'b': {'_schedulers': [" STEP_LR
     "], '_last_lr': [1]}, 'c': {'last_epoch': 1, 'num_bad_epochs': 0}, "
     "'d': {'last_epoch': 1}, 'e': {'_milestones': [3], '_schedulers': ()}}",
     "scheduler 'a' 527; scheduler 'b' 328; scheduler 'b._schedulers.0' 527; scheduler 'c' 33; scheduler 'd' 1; "
     "scheduler 'e' 704",
     false},
    {"generators", "{'rng': {'cpu': R, 'cuda': [R, R]}}",
     "rng 'rng.cpu' 3; rng 'rng.cuda' 12; rng 'rng.cuda.0' 9; rng 'rng.cuda.1' 9", false},
    {"generators of each rank, and lists of other things",
     "{'random': [{'torch': R}, {}], 'other': [{}, {}], 'rng': [], 'rng_state': [1, 2], 'seed': R}",
     "rng 'random' 4; rng 'random.0.torch' 3; rng 'rng_state' 2; rng 'seed' 1", false},
    {"samplers of each rank", "{'sampler_states': [{'seed': 1}, {'seed': 2}], 'sampler': [{}], 'samplers': [1, 2]}",
     "samplers 'sampler_states' 1", false},
    {"loaders of data",
     "{'a': {'_snapshot': {'_main_snapshot': {'_num_workers': 2}}}, 'b': {'_num_yielded': 4, '_sampler_iter_yielded': 8, "
     "'fetcher_state': 0}, 'c': {'_num_yielded': 4}}",
     "loader 'a' 1; loader 'b' 2", false},
    {"counters, and what is none", "{'progress': {'global_step': N}, 'args': {'step': 3}, 'iter': 'x', 'it': 5, 1: 2}",
     "counter 'progress.global_step' 2; counter 'it' 512", false},
    {"an optimizer as an object", "{'opt': O(" ADAM ")}", "optimizer object 'opt' 7", false},
    {"parameters themselves", "{'state': {}, 'param_groups': [{'params': [T], 'x': {'w': T}}]}",
     "optimizer '' 3; model 'param_groups.0.x' 1", false},
    {"a group without parameters", "{'state': {}, 'param_groups': [{'lr': 1}]}", "optimizer '' 1; broken '' 1", false},
    {"no group", "{'state': {}, 'param_groups': []}", "optimizer '' 6", false},
    {"no states", "{'param_groups': [{'params': [0]}]}", "broken '' 2", false},
    {"no groups, and states that nothing calls an optimizer's",
     "{'opt': {'state': {0: {'exp_avg': T}}}, 'x': {'state': {0: {'y': T}}}}", "broken 'opt' 4; model 'x.state.0' 1",
     false},
    {"an optimizer whose groups are apart from the states of each rank",
     "{'model': {'w': T}, 'optimizer': {'param_groups': [{'params': [0]}]}, 'rank_0': {'optimizer': {" STATE "}}}",
     "model 'model' 1; broken 'optimizer' 2; broken 'rank_0.optimizer' 4", false},
    {"weights beside the optimizer that names them",
     "{'step': 3, 'optimizer': {'state.w.exp_avg': T, 'param_groups.w.lr': 1}, 'w': T, 'a.b': T}",
     "counter 'step' 1; optimizer flat 'optimizer' 7; model 'model' 1", false},
    {"tensors beside an optimizer of others",
     "{'optimizer': {'state.w.exp_avg': T, 'param_groups.w.lr': 1}, 'x': T, 'a.b': T}", "optimizer flat 'optimizer' 7",
     false},
    {"a cycle", "{'a': {'b': C}, 'net': {'w': T}}", "model 'net' 1", false},
    {"an optimizer in itself", "{'state': {0: C}, 'param_groups': [{'params': [0]}, C]}", "optimizer '' 1; broken '' 1",
     false},
    {"an optimizer in another's state", "{'state': {0: {'inner': " ADAM "}}, 'param_groups': [{'params': [0]}]}",
     "optimizer '' 7; optimizer 'state.0.inner' 7", false},
};

static void find(size_t row, ckpt__anatomy *a, ckpt__arena *arena, ckpt_status expected)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ix->format = "torch";
    ix->kind = table[row].in_files ? "directory" : "file";
    ix->root = parse(table[row].tree);
    ckpt_status status = ckpt__anatomy_build(ix, arena, a, &err);
    ck_assert_msg(status == expected, "%s: %d: %s", table[row].what, (int)status, err.message);
}

START_TEST(organs)
{
    char found[1000];
    ckpt__anatomy a;
    find((size_t)_i, &a, ix->arena, CKPT_OK);
    write_organs(&a, found, sizeof found);
    ck_assert_msg(strcmp(found, table[_i].organs) == 0, "%s: %s", table[_i].what, found);
    ckpt__anatomy_free(&a);
}
END_TEST

/* ---- the groups of an optimizer */

/* "lr group: 3/5 1/-; " : slots of each group, id and number of things in its state. */
static void write_optimizer(const ckpt__anatomy *a, const ckpt__anatomy_optimizer *o, char *out, size_t size)
{
    size_t n = 0;
    const ckpt__node *nodes = a->tree.nodes;
    for (size_t g = 0; g < o->group_count && n < size; g++) {
        n += (size_t)snprintf(out + n, size - n, "%s%s", g ? " | " : "", o->groups[g].flags.fused == 1 ? "fused" : "");
        for (size_t i = o->groups[g].first; i < o->groups[g].first + o->groups[g].count && n < size; i++) {
            size_t things = 0, state = o->slots[i].state;
            ck_assert_uint_eq(o->slots[i].group, g);
            if (state != SIZE_MAX)
                for
                    CKPT__CHILDREN(&a->tree, c, state)
            things++;
            const ckpt_value *id = nodes[o->slots[i].id].value;
            n += id->kind == CKPT_V_STR
                     ? (size_t)snprintf(out + n, size - n, " %.*s:%zu", (int)id->text.size, id->text.data, things)
                     : (size_t)snprintf(out + n, size - n, " %lld:%zu", (long long)id->integer, things);
        }
    }
    if (n < size)
        snprintf(out + n, size - n, " / %llu %llu %llu%s", (unsigned long long)o->alive, (unsigned long long)o->dead,
                 (unsigned long long)o->repeats, o->twice != SIZE_MAX ? " twice" : "");
}

/* Behind the '/': states whose id is in a group, states whose id is in none, how often an id with a state is there again. */
static const struct {
    const char *what, *tree, *slots, *slots_as_text; /* NULL: the same */
} optimizers[] = {
    {"torch's own", ADAM, " 0:2 1:0 / 1 0 0", NULL},
    {"two groups, of which one is fused",
     "{'state': {1: {'step': 1}, 0: {}}, 'param_groups': [{'params': [0], 'fused': 1}, {'params': (2, 1)}]}",
     "fused 0:0 |  2:0 1:1 / 2 0 0", NULL},
    {"names", "{'state': {'a.w': {'step': 1}}, 'param_groups': [{'params': ['a.w', 'b']}]}", " a.w:1 b:0 / 1 0 0",
     NULL},
    {"a number as text", "{'state': {'1': {'step': 1}}, 'param_groups': [{'params': [1]}]}", " 1:0 / 0 1 0",
     " 1:1 / 1 0 0"},
    {"a state that is in no group", "{'state': {0: {}, 5: {}}, 'param_groups': [{'params': [0]}]}", " 0:0 / 1 1 0",
     NULL},
    {"an id that stands twice", "{'state': {0: {'step': 1}}, 'param_groups': [{'params': [0, 3, 3]}, {'params': [0]}]}",
     " 0:0 3:0 3:0 |  0:1 / 1 0 1 twice", NULL},
    {"two states of one id", "{'state': {0: {'step': 1}, 0: {}}, 'param_groups': [{'params': [0]}]}", " 0:1 / 1 1 0",
     NULL},
    {"no list", "{'state': {0: {}}, 'param_groups': [{'lr': 1}]}", " / 0 1 0", NULL},
    {"flattened",
     "{'state.a.w.exp_avg': T, 'state.a.b.exp_avg': T, 'param_groups.a.w.lr': 1, 'param_groups.a.b.lr': 2}",
     " a.w:1 |  a.b:1 / 2 0 0", NULL},
    {"an object", "O(" ADAM ")", " 0:2 1:0 / 1 0 0", NULL},
    {"in itself", "{'state': {0: C, 1: {}}, 'param_groups': [{'params': [0, 1]}, C]}", " 0:0 1:0 / 1 0 0", NULL},
};

static void read_first(const char *source, bool as_text, char *out, size_t size)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__anatomy a;
    ckpt__anatomy_optimizer o;
    size_t from = 0;
    ix->format = "torch";
    ix->root = parse(source);
    ck_assert_int_eq(ckpt__anatomy_build(ix, ix->arena, &a, &err), CKPT_OK);
    const ckpt__organ *organ = ckpt__anatomy_next(&a, CKPT__OPTIMIZER, &from);
    ck_assert_ptr_nonnull(organ);
    ck_assert_int_eq(ckpt__anatomy_read_optimizer(&a, organ->node, as_text, &o, &err), CKPT_OK);
    write_optimizer(&a, &o, out, size);
    ckpt__anatomy_free_optimizer(&o);
    ckpt__anatomy_free(&a);
}

START_TEST(groups)
{
    char found[1000];
    for (int as_text = 0; as_text < 2; as_text++) {
        const char *wanted =
            as_text && optimizers[_i].slots_as_text ? optimizers[_i].slots_as_text : optimizers[_i].slots;
        read_first(optimizers[_i].tree, as_text, found, sizeof found);
        ck_assert_msg(strcmp(found, wanted) == 0, "%s: %s", optimizers[_i].what, found);
    }
}
END_TEST

/* An optimizer of as many groups as a file may have: each is looked at once. */
START_TEST(many_groups)
{
    enum { MANY = 100000 };
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__anatomy a;
    ckpt__anatomy_optimizer o;
    size_t from = 0;
    const ckpt_value **list = calloc(MANY, sizeof *list);
    ckpt_entry *states = calloc(MANY, sizeof *states);
    ck_assert(list && states);
    for (int64_t i = 0; i < MANY; i++) {
        const ckpt_value *id = number(i);
        list[i] = dict_of("params", ckpt__value_list(ix->arena, CKPT_V_LIST, &id, 1), NULL, NULL);
        states[i] = (ckpt_entry){number(MANY - 1 - i), dict_of("step", number(i), NULL, NULL)};
    }
    ix->format = "torch";
    ix->root = dict_of("state", ckpt__value_dict(ix->arena, states, MANY), "param_groups",
                       ckpt__value_list(ix->arena, CKPT_V_LIST, list, MANY));
    ck_assert_int_eq(ckpt__anatomy_build(ix, ix->arena, &a, &err), CKPT_OK);
    ck_assert_uint_eq(a.count, 1);
    ck_assert_int_eq(
        ckpt__anatomy_read_optimizer(&a, ckpt__anatomy_next(&a, CKPT__OPTIMIZER, &from)->node, false, &o, &err),
        CKPT_OK);
    ck_assert(o.group_count == MANY && o.slot_count == MANY && o.alive == MANY && o.dead == 0);
    ck_assert_ptr_null(ckpt__anatomy_next(&a, CKPT__OPTIMIZER, &from));
    ckpt__anatomy_free_optimizer(&o);
    ckpt__anatomy_free(&a);
    free(list);
    free(states);
}
END_TEST

/* Values that are shared over and over: the places are more than anybody could look at. What stands before them is found. */
START_TEST(too_many_places)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__anatomy a;
    const ckpt_value *v = number(1);
    for (int i = 0; i < 40; i++)
        v = dict_of("a", v, "b", v);
    ix->format = "torch";
    ix->root = dict_of("net", parse("{'w': T}"), "z", v);
    ck_assert_int_eq(ckpt__anatomy_build(ix, ix->arena, &a, &err), CKPT_E_LIMIT);
    ck_assert(a.count == 1 && a.organs[0].kind == CKPT__MODEL && a.tree.nodes[0].end == a.tree.count);
    ckpt__anatomy_free(&a);
}
END_TEST

/* ---- memory that runs out */

/* Each allocation fails in turn: the status says so, or nothing has changed, and nothing is lost. */
START_TEST(short_memory)
{
    bool done = false;
    ix->format = "torch";
    ix->root = parse(table[_i].tree);
    for (long n = 0; !done; n++) {
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt__anatomy a;
        ckpt__anatomy_optimizer o = {0};
        size_t from = 0;
        ckpt__arena *arena = ckpt__arena_new(0);
        ck_assert_ptr_nonnull(arena);
        allocations_left = n;
        ckpt_status status = ckpt__anatomy_build(ix, arena, &a, &err);
        const ckpt__organ *organ = status == CKPT_OK ? ckpt__anatomy_next(&a, CKPT__OPTIMIZER, &from) : NULL;
        if (organ && organ->form != CKPT__LIBTORCH)
            status = ckpt__anatomy_read_optimizer(&a, organ->node, true, &o, &err);
        done = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == (done ? CKPT_OK : CKPT_E_NO_MEMORY), "%s: allocation %ld: %d", table[_i].what, n,
                      (int)status);
        ckpt__anatomy_free_optimizer(&o);
        ckpt__anatomy_free(&a);
        ckpt__arena_free(arena);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("anatomy");
    TCase *t = tcase_create("anatomy");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, make_index, free_index);
    tcase_add_loop_test(t, organs, 0, sizeof table / sizeof *table);
    tcase_add_loop_test(t, groups, 0, sizeof optimizers / sizeof *optimizers);
    tcase_add_test(t, many_groups);
    tcase_add_test(t, too_many_places);
    tcase_add_loop_test(t, short_memory, 0, sizeof table / sizeof *table);
    suite_add_tcase(s, t);
    return run_suite(s);
}
