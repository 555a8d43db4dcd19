/* map_location: every form of it, torch's meaning, expressions, the YAML schema, and the messages of what is refused. */
#include "map/expr.h"
#include "map/map.h"
#include "map/rename.h"
#include "../runner.h"
#include <stdio.h>
#include <unistd.h>
#include <sys/stat.h>

static ckpt_error err;
static const ckpt_ranks ranks = {5, 1, 8};

static ckpt_map *parse(const char *text)
{
    ckpt_map *map = NULL;
    memset(&err, 0, sizeof err);
    ckpt_status s = ckpt_map_parse(text, &map, &err);
    ck_assert_msg(s == CKPT_OK, "%s: %s", text ? text : "NULL", err.message);
    return map;
}

static ckpt_map *yaml(const char *text)
{
    ckpt_map *map = NULL;
    memset(&err, 0, sizeof err);
    ckpt_status s = ckpt_map_parse_yaml(text, strlen(text), "m.yaml", &map, &err);
    ck_assert_msg(s == CKPT_OK, "%s: %s", text, err.message);
    return map;
}

static void refuse(const char *text, const char *expected)
{
    ckpt_map *map = (ckpt_map *)&err;
    memset(&err, 0, sizeof err);
    ckpt_status s = ckpt_map_parse(text, &map, &err);
    ck_assert_msg(s == CKPT_E_ARGUMENT, "%s: status %d", text, s);
    ck_assert_ptr_null(map);
    ck_assert_msg(strstr(err.message, expected) != NULL, "%s: '%s' lacks '%s'", text, err.message, expected);
}

static void refuse_yaml(const char *text, const char *expected)
{
    ckpt_map *map = (ckpt_map *)&err;
    memset(&err, 0, sizeof err);
    ckpt_status s = ckpt_map_parse_yaml(text, strlen(text), "m.yaml", &map, &err);
    ck_assert_msg(s == CKPT_E_ARGUMENT, "%s: status %d", text, s);
    ck_assert_ptr_null(map);
    ck_assert_str_eq(err.object, "m.yaml");
    ck_assert_msg(strstr(err.message, expected) != NULL, "%s: '%s' lacks '%s'", text, err.message, expected);
}

static ckpt__target apply(const ckpt_map *map, const char *name, ckpt_role role, const char *tag)
{
    ckpt__subject s = {.name = ckpt__s(name), .role = role, .tag = ckpt__s(tag)};
    ckpt__target t;
    memset(&err, 0, sizeof err);
    ckpt_status status = ckpt__map_apply(map, &s, &ranks, NULL, &t, &err);
    ck_assert_msg(status == CKPT_OK, "%s %s: %s", name, tag, err.message);
    return t;
}

/* Where a map puts a parameter of this tag: "keep" or the device. */
static const char *goes(const ckpt_map *map, const char *tag)
{
    static char buf[CKPT_DEVICE_NAME_MAX];
    ckpt__target t = apply(map, "w", CKPT_ROLE_PARAM, tag);
    return t.device.type == CKPT_DEVICE_NONE ? "keep" : ckpt__target_name(&t, buf);
}

static void check(const char *text, const char *tag, const char *want)
{
    ckpt_map *map = parse(text);
    const char *got = goes(map, tag);
    ck_assert_msg(strcmp(got, want) == 0, "%s: %s goes to %s, want %s", text ? text : "NULL", tag ? tag : "none", got,
                  want);
    ckpt_map_free(map);
}

START_TEST(as_torch_does)
{
    check(NULL, "cuda:3", "keep");
    check("", "cpu", "keep");
    check("cpu", "cuda:3", "cpu");
    check(" cuda:1 ", "cpu", "cuda:1");
    check("cuda:1=cuda:0,cpu=cpu", "cuda:1", "cuda:0");
    check("cuda:1=cuda:0,cpu=cpu", "cpu", "cpu");
    check("cuda:1=cuda:0,cpu=cpu", "cuda:2", "keep"); /* a dict: unmatched tags fall through */
    check("cuda:1=cuda:0", "cuda:11", "keep");        /* keys match exactly */
    check("cuda=cpu", "cuda:0", "keep");
    check("cuda=cpu", "cuda", "cpu");
    check("cuda:0=cuda:1,cuda:1=cuda:0", "cuda:0", "cuda:1"); /* never chained */
    check("cuda:0=cuda:1,cuda:1=cuda:0", "cuda:1", "cuda:0");
    check("cpu=cuda:0", NULL, "keep"); /* a format without tags */
    check("cuda:0", NULL, "cuda:0");
    check("mps=cpu, xpu:1=cuda:1", "xpu:1", "cuda:1");
}
END_TEST

/* Devices that tensors are not put on here, but that files name. */
START_TEST(further_devices)
{
    check("cuda:0=mps", "cuda:0", "mps");
    check("mps=cuda:0", "mps", "cuda:0");
    check("cuda:*=xpu:{index}", "cuda:3", "xpu:3");
    check("npu:*=cpu", "npu:1", "cpu");
    check("npu:*=cpu", "npu", "keep");
    check("xpu:*=npu:{index + 1},npu:*=xpu:{index}", "xpu:1", "npu:2");
    check("hpu", "cuda:0", "hpu");
    check("hpu:1", "cuda:0", "hpu:1");
    check("mtia:{local_rank}", "cpu", "mtia:1");
    check("cuda:*=privateuseone:0", "cuda:1", "privateuseone:0");
    check("cuda:*==musa:{index}", "cuda:4", "musa:4");
    check("musa:*=cuda:{index}", "musa:4", "cuda:4");
    check("cuda:0==foo", "cuda:0", "foo");
    check("cuda:0==xpu:2", "cuda:0", "xpu:2");
}
END_TEST

START_TEST(wildcards_and_expressions)
{
    check("cuda:*=cuda:{rank}", "cuda:0", "cuda:5");
    check("cuda:*=cuda:{rank}", "cpu", "keep");
    check("cuda:*=cuda:{index % 2}", "cuda:7", "cuda:1");
    check("cuda:{local_rank}", "cpu", "cuda:1");
    check("cuda:{ (rank+world)/2*1 - 2 }", "cpu", "cuda:4");
    check("cuda:{2+3*4%5}", "cpu", "cuda:4");
    check("cuda:{8-3-2}", "cpu", "cuda:3");
    check("cuda:{(8)-(3-2)}", "cpu", "cuda:7");
    check("cpu=cuda:{world-1},*=cpu", "cpu", "cuda:7");
    check("cpu=cuda:{world-1},*=cpu", "npu:0", "cpu");
    check("cuda:?=cpu", "cuda:3", "cpu");
    check("cuda:?=cpu", "cuda:33", "keep");
}
END_TEST

START_TEST(refused_text)
{
    refuse("cuda", "cuda:0");
    refuse("cpu:0", "cpu");
    refuse("cuda:0=cuda", "column 8: 'cuda': ");
    refuse("cuda:0=meta", "column 8");
    refuse("cuda:0=mps:0", "write mps");
    refuse("cuda:0=xpu", "write xpu:0");
    refuse("cuda:0=npu:01", "write npu:1");
    refuse("cuda:0=npu:", "the index is missing; write npu:0");
    refuse("cuda:0=XPU:0", "lower case; write xpu:0");
    refuse("cuda:0=MPS", "lower case; write mps");
    refuse("cuda:0=hpu:-1", "0 or more; write hpu:0");
    refuse("cuda:0=mps:{index}", "write cuda:{rank % 8}");
    refuse("cuda:0=xla:0", "cpu and cuda only");
    refuse("cuda:0=cdua:0", "no device has this name");
    refuse("cuda:0==", "behind '=' stands a device's name");
    refuse("cuda:0==Foo:0", "in lower case");
    refuse("cuda:0==foo:", "a decimal number");
    refuse("cuda:0==foo:00", "without leading zeros");
    refuse("cuda:0==cuda:0", "without '='");
    refuse("cuda:0==cpu", "without '='");
    refuse("cuda:0==a_name_of_21_letters_", "behind '=' stands a device's name");
    refuse("cuda:0==foo:{}", "the expression is empty");
    refuse("cuda:0,cpu", "column 1: a rule is SAVED=TARGET");
    refuse("cuda:0=cpu,", "column 12: a rule is missing");
    refuse("cuda:0=cpu,,cpu=cpu", "a rule is missing");
    refuse("=cpu", "the saved tag is empty");
    refuse("cpu=", "column 5");
    refuse("cpu:0=cuda:0", "the cpu's tag has no index; write cpu");
    refuse("CUDA:0=cpu", "lower case");
    refuse("gpu:0=cpu", "cuda:N");
    refuse("cuda:01=cpu", "leading zeros");
    refuse("cuda:-1=cpu", "leading zeros");
    refuse("cuda:x=cpu", "decimal");
    refuse("cu da=cpu", "a tag is cpu");
    refuse("cuda:{rank}=cpu", "an expression stands in the target");
    refuse("cuda:0=cpu,cuda:0=cuda:1", "column 12: it is never reached");
    refuse("cuda:*=cpu,cuda:0=cuda:1", "put this one first");
    ckpt_map_free(parse("cuda:?=cpu,cuda:*=cuda:1"));
    ckpt_map_free(parse("cuda:0=cuda:1,cuda:*=cpu"));
}
END_TEST

START_TEST(refused_expressions)
{
    refuse("cuda:{}", "column 7: the expression is empty");
    refuse("cuda:{rank", "write cuda:{rank % 8}");
    refuse("{rank}", "write cuda:{rank % 8}");
    refuse("cuda:{rank}1", "write cuda:{rank % 8}");
    refuse("cuda:{{rank}}", "write cuda:{rank % 8}");
    refuse("cuda:{rank +}", "is due here");
    refuse("cuda:{rank 1}", "column 12: an operator");
    refuse("cuda:{-1}", "column 7: numbers are not negative");
    refuse("cuda:{Rank}", "column 7: unknown variable");
    refuse("cuda:{(rank}", "'(' without ')'");
    refuse("cuda:{rank)}", "')' without '('");
    refuse("cuda:{99999999999999999999}", "not a decimal number");
    refuse("cuda:{0x1}", "not a decimal number");
    refuse("cpu=cuda:{ranks}", "column 11: unknown variable");
    char big[400] = "cuda:{1";
    for (int i = 0; i < 64; i++)
        strcat(big, "+1");
    strcat(big, "}");
    refuse(big, "too long");
    strcpy(big, "cuda:{");
    for (int i = 0; i < 70; i++)
        strcat(big, "(");
    strcat(big, "}");
    refuse(big, "nested too deeply");
}
END_TEST

static void fails(const char *text, const char *tag, const char *expected)
{
    ckpt_map *map = parse(text);
    ckpt__subject s = {.name = ckpt__s("blk.0.w"), .role = CKPT_ROLE_PARAM, .tag = ckpt__s(tag)};
    ckpt__target t;
    ck_assert_int_eq(ckpt__map_apply(map, &s, &ranks, NULL, &t, &err), CKPT_E_ARGUMENT);
    ck_assert_msg(strstr(err.message, expected) != NULL, "'%s' lacks '%s'", err.message, expected);
    ck_assert_msg(strstr(err.message, "blk.0.w") != NULL, "'%s' lacks the tensor", err.message);
    ck_assert_msg(strstr(text, err.object) != NULL && err.object[0], "object '%s'", err.object);
    ckpt_map_free(map);
}

START_TEST(failing_expressions)
{
    fails("cuda:{rank / (world - 8)}", "cpu", "division by zero");
    fails("cuda:{rank % 0}", "cpu", "division by zero");
    fails("cuda:{rank - 6}", "cpu", "the result is negative");
    fails("cuda:{1 - 2 + 5}", "cpu", "the result is negative");
    fails("cuda:{9223372036854775807 + 1}", "cpu", "too large");
    fails("cuda:{9223372036854775807 * 2}", "cpu", "too large");
    fails("cuda:{70000}", "cpu", "the device index 70000 is too large");
    fails("*=cuda:{index}", "cpu", "the saved tag has no index");
    fails("cpu=cuda:1,*=cuda:{index}", "cuda", "the saved tag has no index");
}
END_TEST

/* The evaluator against the host's own arithmetic, over all short expressions of one shape. */
START_TEST(arithmetic)
{
    static const char ops[] = "+-*/%";
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 4; c++)
                for (int i = 0; i < 25; i++) {
                    char text[32], o = ops[i / 5], p = ops[i % 5];
                    int n = snprintf(text, sizeof text, "%d %c %d%c%d", a, o, b, p, c);
                    bool tight = p == '*' || p == '/' || p == '%', loose = o == '+' || o == '-';
                    int64_t x[3] = {a, b, c}, want = -1;
                    bool ok = true;
                    char order[2] = {tight && loose ? p : o, tight && loose ? o : p};
                    int64_t first = tight && loose ? x[1] : x[0], second = tight && loose ? x[2] : x[1];
                    for (int k = 0; k < 2 && ok; k++) {
                        ok = (order[k] != '/' && order[k] != '%') || second != 0;
                        if (ok)
                            want = order[k] == '+'   ? first + second
                                   : order[k] == '-' ? first - second
                                   : order[k] == '*' ? first * second
                                   : order[k] == '/' ? first / second
                                                     : first % second;
                        ok = ok && want >= 0;
                        first = tight && loose ? x[0] : want;
                        second = tight && loose ? want : x[2];
                    }
                    ckpt__expr e;
                    ckpt__expr_vars vars = {0, 0, 1, -1};
                    size_t at;
                    const char *what = NULL;
                    int64_t got = -1;
                    ck_assert(ckpt__expr_parse(text, (size_t)n, &e, &at, &what));
                    bool done = ckpt__expr_eval(&e, &vars, &got, &what);
                    ck_assert_msg(done == ok && (!ok || got == want), "%s: %d %lld, want %d %lld", text, done,
                                  (long long)got, ok, (long long)want);
                }
}
END_TEST

static ckpt_device odd_device;
static ckpt_device callback(void *ctx, const char *name, ckpt_role role, const char *tag)
{
    ++*(int *)ctx;
    if (strcmp(name, "odd") == 0)
        return odd_device;
    return role == CKPT_ROLE_PARAM && strcmp(tag, "cuda:1") == 0 ? ckpt_cuda(2) : (ckpt_device){CKPT_DEVICE_NONE, -1};
}

START_TEST(callbacks)
{
    int calls = 0;
    ckpt_map *map = NULL;
    ck_assert_int_eq(ckpt_map_callback(callback, &calls, &map, &err), CKPT_OK);
    ckpt__target t = apply(map, "w", CKPT_ROLE_PARAM, "cuda:1");
    ck_assert(ckpt_device_equal(t.device, ckpt_cuda(2)));
    ck_assert_int_eq(t.by, CKPT__BY_CALLBACK);
    t = apply(map, "w", CKPT_ROLE_RNG, NULL);
    ck_assert_int_eq(t.device.type, CKPT_DEVICE_NONE);
    ck_assert_int_eq(t.by, CKPT__BY_NOTHING);
    ck_assert_int_eq(calls, 2);
    ckpt__subject s = {.name = ckpt__s("odd"), .role = CKPT_ROLE_PARAM};
    const ckpt_device odd[] = {
        {CKPT_DEVICE_META, -1}, {CKPT_DEVICE_OTHER, 0}, {CKPT_DEVICE_CUDA, -1}, {CKPT_DEVICE_XPU, 0}};
    for (size_t i = 0; i < 4; i++) {
        odd_device = odd[i];
        ck_assert_int_eq(ckpt__map_apply(map, &s, NULL, NULL, &t, &err), CKPT_E_ARGUMENT);
        ck_assert_ptr_nonnull(strstr(err.message, "odd"));
    }
    ckpt_map_free(map);
    ck_assert_int_eq(ckpt_map_callback(NULL, NULL, &map, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_null(map);
}
END_TEST

static const char sample[] = "map: 1\n"
                             "source:\n"
                             "  model: trainer.var_wo_ddp\n"
                             "  optimizer: trainer.var_opt.optimizer\n"
                             "  scaler: trainer.var_opt.scaler\n"
                             "  strip_prefix: ['module.']\n"
                             "  rename: [{from: 'h.(\\d+).attn.(.*)', to: 'layers.$1.attn.$2'}]\n"
                             "optimizer: fused\n"
                             "rules:\n"
                             "- {name: 'vae.*', to: 'cuda:1'}\n"
                             "- {role: rng, to: cpu}\n"
                             "- {tag: 'cuda:*', to: 'cuda:{rank % 8}'}\n"
                             "- {name: 'head.*', cast: float32}\n"
                             "default: 'cuda:{rank % 8}'\n";

START_TEST(yaml_rules)
{
    ckpt_map *map = yaml(sample);
    ck_assert_uint_eq(ckpt__map_rule_count(map), 4);
    ck_assert_str_eq(ckpt__map_rule_text(map, 2), "{tag: 'cuda:*', to: 'cuda:{rank % 8}'} (line 12)");
    ck_assert_str_eq(ckpt__map_rule_text(map, 3), "{name: 'head.*', cast: float32} (line 13)");
    ck_assert_str_eq(ckpt__map_rule_text(map, 4), "");
    ck_assert_int_eq(ckpt__map_optimizer(map), CKPT_OPTIMIZER_FUSED);
    ckpt__target t = apply(map, "vae.x", CKPT_ROLE_PARAM, "cuda:0");
    ck_assert(ckpt_device_equal(t.device, ckpt_cuda(1)));
    ck_assert_int_eq(t.by, CKPT__BY_NAME);
    ck_assert_uint_eq(t.rule, 0);
    t = apply(map, "rng.torch", CKPT_ROLE_RNG, "cuda:0");
    ck_assert_int_eq(t.by, CKPT__BY_ROLE);
    ck_assert_int_eq(t.device.type, CKPT_DEVICE_CPU);
    /* a rule that only casts does not hide what comes after, nor does a target hide a later cast */
    t = apply(map, "head.w", CKPT_ROLE_PARAM, "cuda:0");
    ck_assert(ckpt_device_equal(t.device, ckpt_cuda(5)));
    ck_assert_int_eq(t.by, CKPT__BY_TAG);
    ck_assert_int_eq(t.cast, CKPT_F32);
    t = apply(map, "head.w", CKPT_ROLE_PARAM, "cpu");
    ck_assert_int_eq(t.by, CKPT__BY_DEFAULT);
    ck_assert_uint_eq(t.rule, SIZE_MAX);
    const ckpt__map_source *source = ckpt__map_source_of(map);
    ck_assert_str_eq(source->model, "trainer.var_wo_ddp");
    ck_assert_str_eq(source->optimizer, "trainer.var_opt.optimizer");
    ck_assert_str_eq(source->scaler, "trainer.var_opt.scaler");
    ck_assert_ptr_null(source->step);
    ck_assert_uint_eq(source->strip_count, 1);
    ckpt_map_free(map);
}
END_TEST

START_TEST(yaml_conditions)
{
    ckpt_map *map =
        yaml("map: 1\nrules:\n- {name: 'a.*', role: exp_avg, tag: cpu, to: 'cuda:3'}\n- {name: 'b\\*', to: cpu}\n"
             "- {name: 'b?', to: 'cuda:1', cast: float16}\n");
    ck_assert(ckpt_device_equal(apply(map, "a.x", CKPT_ROLE_EXP_AVG, "cpu").device, ckpt_cuda(3)));
    ck_assert_int_eq(apply(map, "a.x", CKPT_ROLE_PARAM, "cpu").by, CKPT__BY_NOTHING);
    ck_assert_int_eq(apply(map, "a.x", CKPT_ROLE_EXP_AVG, "cuda:0").by, CKPT__BY_NOTHING);
    ck_assert_int_eq(apply(map, "a.x", CKPT_ROLE_EXP_AVG, NULL).by, CKPT__BY_NOTHING);
    ck_assert_int_eq(apply(map, "b*", CKPT_ROLE_PARAM, "cpu").device.type, CKPT_DEVICE_CPU);
    ck_assert_int_eq(apply(map, "b*", CKPT_ROLE_PARAM, "cpu").cast, CKPT_F16);
    ck_assert(ckpt_device_equal(apply(map, "bc", CKPT_ROLE_PARAM, "cpu").device, ckpt_cuda(1)));
    ck_assert_int_eq(ckpt__map_optimizer(map), CKPT_OPTIMIZER_DEFAULT);
    ckpt_map_free(map);
    map = yaml("map: 1\n");
    ck_assert_str_eq(goes(map, "cuda:1"), "keep");
    ckpt_map_free(map);
}
END_TEST

START_TEST(yaml_refused)
{
    refuse_yaml("rules: []\n", "line 1, column 1: the key 'map' is missing");
    refuse_yaml("[1]\n", "begins with 'map: 1'");
    refuse_yaml("map: one\n", "line 1, column 6: 'map' is the language's version, 1");
    refuse_yaml("map:\n", "'map' has no value");
    refuse_yaml("map: 1\nrule: []\n", "line 2, column 1: there is no key 'rule' here; the keys are map, source");
    refuse_yaml("map: 1\nrules:\n- {name: a, target: cpu}\n", "line 3, column 13: there is no key 'target'");
    refuse_yaml("map: 1\nrules: {name: a}\n", "line 2, column 8: 'rules' takes a list, and this is a map");
    refuse_yaml("map: 1\nrules:\n- a\n", "line 3, column 3: 'rules' takes a map, and this is text");
    refuse_yaml("map: 1\nrules:\n- {to: cpu}\n", "line 3, column 3: a rule says which tensors");
    refuse_yaml("map: 1\nrules:\n- {name: a}\n", "a rule says what to do");
    refuse_yaml("map: 1\nrules:\n- {role: weights, to: cpu}\n",
                "line 3, column 10: there is no role 'weights'; the roles are param, buffer");
    refuse_yaml("map: 1\nrules:\n- {name: a, cast: half}\n", "unknown dtype 'half' (did you mean float16?)");
    refuse_yaml("map: 1\nrules:\n- {name: a, cast: bf16}\n", "unknown dtype 'bf16' (did you mean bfloat16?)");
    refuse_yaml("map: 1\nrules:\n- {name: a, cast: much}\n",
                "unknown dtype 'much'; torch's names are float32, bfloat16, ");
    refuse_yaml("map: 1\nrules:\n- {name: a, to: cuda}\n", "line 3, column 17: 'cuda': ");
    refuse_yaml("map: 1\nrules:\n- {tag: 'cpu:0', to: 'cuda:0'}\n", "line 3, column 9: 'cpu:0' matches no saved tag");
    refuse_yaml("map: 1\nrules:\n- {tag: 'cuda:*', to: cpu}\n- {tag: 'cuda:1', to: 'cuda:1'}\n",
                "line 4, column 3: it is never reached");
    refuse_yaml("map: 1\nrules:\n- {name: '', to: cpu}\n", "'name' has no value");
    refuse_yaml("map: 1\noptimizer: adam\n", "fused, capturable, foreach or plain");
    refuse_yaml("map: 1\noptimizer: default\n", "fused, capturable, foreach or plain");
    refuse_yaml("map: 1\ndefault: {rank}\n", "'default' takes text, and this is a map; quote a value that holds '{'");
    refuse_yaml("map: 1\ndefault: 'cuda:{rnk}'\n", "line 2, column 10: 'cuda:{rnk}': unknown variable");
    refuse_yaml("map: 1\nsource: {modle: x}\n", "line 2, column 10: there is no key 'modle'");
    refuse_yaml("map: 1\nsource: {strip_prefix: module.}\n", "'strip_prefix' takes a list");
    refuse_yaml("map: 1\nsource: {rename: [{from: a}]}\n", "a rename has two keys");
    refuse_yaml("map: 1\nsource: {rename: [{from: '(', to: b}]}\n", "not a regular expression");
    refuse_yaml("map: 1\nsource: {rename: [{from: 'a', to: 'b$1'}]}\n", "there is no group 1");
    refuse_yaml("map: 1\nrules:\n- {name: *.w, to: cpu}\n", "quote it");
    ckpt_map *map = NULL;
    ck_assert_int_eq(ckpt_map_parse_yaml("map: 2\n", 7, "m.yaml", &map, &err), CKPT_E_TOO_NEW);
    ck_assert_int_eq(err.status, CKPT_E_TOO_NEW);
}
END_TEST

START_TEST(files)
{
    char dir[] = "/tmp/ckpt-map-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/m.yaml", dir);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(sample, f);
    fclose(f);
    ckpt_map *map = parse(path);
    ck_assert_uint_eq(ckpt__map_rule_count(map), 4);
    ckpt_map_free(map);
    ck_assert_int_eq(truncate(path, (2 << 20)), 0);
    ck_assert_int_eq(ckpt_map_parse(path, &map, &err), CKPT_E_LIMIT);
    unlink(path);
    ck_assert_int_eq(ckpt_map_parse(path, &map, &err), CKPT_E_SYSTEM);
    ck_assert_str_eq(err.object, path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(ckpt_map_parse(path, &map, &err), CKPT_E_ARGUMENT);
    rmdir(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* must not wait for a writer */
    ck_assert_int_eq(ckpt_map_parse(path, &map, &err), CKPT_E_ARGUMENT);
    unlink(path);
    rmdir(dir);
}
END_TEST

static void renames(const ckpt_map *map, const char *name, const char *want)
{
    ckpt__buf out = {0};
    memset(&err, 0, sizeof err);
    ck_assert_int_eq(ckpt__map_rename(map, name, strlen(name), &out, &err), CKPT_OK);
    ck_assert_str_eq(out.data ? out.data : "", want);
    ckpt__buf_free(&out);
}

START_TEST(renaming)
{
    ckpt_map *map = yaml("map: 1\nsource:\n  strip_prefix: ['module.', '_orig_mod.']\n  rename:\n"
                         "  - {from: 'h.(\\d+).attn.(.*)', to: 'layers.$1.attn.$2'}\n"
                         "  - {from: 'layers\\.(.*)', to: 'L.${1}$$0'}\n  - {from: 'x(y)?z', to: '<$1$0>'}\n");
    renames(map, "module._orig_mod.module.wte", "wte");
    renames(map, "h.12.attn.c_attn.weight", "L.12.attn.c_attn.weight$0"); /* in order, each at most once */
    renames(map, "xh.1.attn.w", "xh.1.attn.w");                           /* anchored at both ends */
    renames(map, "xz", "<xz>");
    renames(map, "xyz", "<yxyz>");
    renames(map, "module.", "module."); /* never to nothing */
    renames(NULL, "module.a", "module.a");
    ckpt_map_free(map);
}
END_TEST

START_TEST(rename_rules)
{
    ckpt__rename *r = NULL;
    static const char *const bad_to[] = {"$", "a$", "$x", "${1", "${}", "${x}"};
    for (size_t i = 0; i < sizeof bad_to / sizeof bad_to[0]; i++) {
        ck_assert_int_eq(ckpt__rename_new("(a)", 3, bad_to[i], strlen(bad_to[i]), &r, &err), CKPT_E_ARGUMENT);
        ck_assert_ptr_null(r);
    }
    ck_assert_int_eq(ckpt__rename_new("(*UTF)a", 7, "b", 1, &r, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt__rename_new("a\0b", 3, "b", 1, &r, &err), CKPT_E_ARGUMENT);
    /* a catastrophic pattern stops at the limit instead of hanging */
    ck_assert_int_eq(ckpt__rename_new("(a+)+[bc]", 9, "c", 1, &r, &err), CKPT_OK);
    char name[64];
    memset(name, 'a', sizeof name);
    bool matched = true;
    ckpt__buf out = {0};
    ck_assert_int_eq(ckpt__rename_apply(r, name, sizeof name, &matched, &out, &err), CKPT_E_LIMIT);
    ck_assert(!matched);
    ck_assert_str_eq(err.object, "(a+)+[bc]");
    ckpt__rename_free(r);
    /* names are bytes: neither broken UTF-8 nor a line end stops a match */
    ck_assert_int_eq(ckpt__rename_new("(.*)w", 5, "$1", 2, &r, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__rename_apply(r, "\xff\n.w", 4, &matched, &out, &err), CKPT_OK);
    ck_assert(matched);
    ck_assert_str_eq(out.data, "\xff\n.");
    ckpt__rename_free(r);
    /* but no character of one that is UTF-8 is cut */
    out.size = 0;
    ck_assert_int_eq(ckpt__rename_new("(.)(.*)", 7, "$2$1", 4, &r, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__rename_apply(r, "\xc3\xbcw", 3, &matched, &out, &err), CKPT_OK);
    ck_assert(matched);
    ck_assert_str_eq(out.data, "w\xc3\xbc");
    ckpt__rename_free(r);
    ckpt__buf_free(&out);
    ckpt__rename_free(NULL);
    ckpt_map_free(NULL);
}
END_TEST

START_TEST(kind_names)
{
    for (int k = CKPT_OPTIMIZER_DEFAULT; k <= CKPT_OPTIMIZER_PLAIN; k++)
        ck_assert_int_eq(ckpt_optimizer_kind_from_name(ckpt_optimizer_kind_name((ckpt_optimizer_kind)k)), k);
    ck_assert_int_eq(ckpt_optimizer_kind_from_name("adam"), CKPT_OPTIMIZER_DEFAULT);
    ck_assert_int_eq(ckpt_optimizer_kind_from_name(NULL), CKPT_OPTIMIZER_DEFAULT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("map");
    TCase *c = tcase_create("map");
    tcase_add_test(c, as_torch_does);
    tcase_add_test(c, further_devices);
    tcase_add_test(c, wildcards_and_expressions);
    tcase_add_test(c, refused_text);
    tcase_add_test(c, refused_expressions);
    tcase_add_test(c, failing_expressions);
    tcase_add_test(c, arithmetic);
    tcase_add_test(c, callbacks);
    tcase_add_test(c, yaml_rules);
    tcase_add_test(c, yaml_conditions);
    tcase_add_test(c, yaml_refused);
    tcase_add_test(c, files);
    tcase_add_test(c, renaming);
    tcase_add_test(c, rename_rules);
    tcase_add_test(c, kind_names);
    suite_add_tcase(s, c);
    return run_suite(s);
}
