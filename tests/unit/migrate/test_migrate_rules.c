/* Rules that match nothing, weights that stay behind, tags that are no loss, and the size of what is written. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "../migrate_setup.h"
#include "../runner.h"
#include "../torch_emit.h"

static const char *data(const char *name)
{
    static char paths[4][1000];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/tests/data/%s", getenv("srcdir") ? getenv("srcdir") : ".", name);
    return paths[next];
}

/* ---- rules */

typedef enum option { DROP, CAST, RENAME, REPLACE, TENSOR, ROLE, DEVICE } option;

static void give(option which, const char *const *rules, size_t n)
{
    options.drop = options.cast = options.rename = options.replace = options.only_tensor = options.only_role =
        options.only_device = rules;
    options.drop_count = which == DROP ? n : 0;
    options.cast_count = which == CAST ? n : 0;
    options.rename_count = which == RENAME ? n : 0;
    options.replace_count = which == REPLACE ? n : 0;
    options.only_tensor_count = which == TENSOR ? n : 0;
    options.only_role_count = which == ROLE ? n : 0;
    options.only_device_count = which == DEVICE ? n : 0;
}

static const struct {
    option which;
    const char *rule, *said;
} none[] = {
    {DROP, "no.such", "--drop 'no.such' matches nothing"},
    {DROP, "optimizer.stat", "--drop 'optimizer.stat' matches nothing; 'optimizer.state.*' would match 18"},
    {DROP, "Model.0.*", "'model.0.*' would match 2"},
    {DROP, "modle.*", "'model.*' would match 9"},
    {DROP, "epochs", "there is a value 'epoch'"},
    {DROP, "running_mean", "'model.1.running_mean' would match 1"},
    {TENSOR, "*.exp_av", "--tensor '*.exp_av' matches nothing; '*exp_avg' would match 6"},
    {TENSOR, "exp_avg", "would match 1"},
    {REPLACE, "0.weigth", "--replace '0.weigth' matches no tensor of a model; '"},
    {REPLACE, "optimizer.*", "--replace 'optimizer.*' matches no tensor of a model"},
    {CAST, "x.*=bfloat16", "--cast 'x.*=bfloat16' converts nothing: no name matches"},
    {CAST, "model.7=bfloat16", "no name matches; '"},
    {RENAME, "weight=w",
     "--rename 'weight=w' matches nothing; an expression is compared with a whole name of the model, such as '0.weight'"},
    {ROLE, "rng", "--role 'rng' matches nothing; there are param, buffer, step, exp_avg, exp_avg_sq"},
    {DEVICE, "cuda:7", "--device 'cuda:7' matches nothing; there are cuda:0, cpu"},
};

START_TEST(match_nothing)
{
    const char *rule = none[_i].rule;
    give(none[_i].which, &rule, 1);
    ck_assert_int_eq(migrate(data("cli/plain.pt"), "torch", at("x.pt")), CKPT_E_ARGUMENT);
    ck_assert_msg(strstr(err.message, none[_i].said) != NULL, "'%s' is not in '%s'", none[_i].said, err.message);
    ck_assert_ptr_nonnull(strstr(err.message, "--allow-unused"));
    ck_assert_int_ne(access(at("x.pt"), F_OK), 0);
    ck_assert_int_eq(ckpt_report_find(report, "unused-rule", NULL)->severity, CKPT_SEVERITY_ERROR);
    options.dry_run = true;
    ck_assert_int_eq(migrate(data("cli/plain.pt"), "torch", at("x.pt")), CKPT_E_ARGUMENT);
    options.dry_run = false;
    options.allow_unused = true;
    migrates(data("cli/plain.pt"), "torch", at("x.pt"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "unused-rule"), 1);
    ck_assert_int_eq(ckpt_report_find(report, "unused-rule", NULL)->severity, CKPT_SEVERITY_WARNING);
}
END_TEST

/* All of them are listed, whatever their kind. */
START_TEST(each_is_listed)
{
    static const char *const drop[] = {"a", "model.0.weight", "b"}, *const cast[] = {"c=bfloat16"};
    give(DROP, drop, 3);
    options.cast = cast;
    options.cast_count = 1;
    ck_assert_int_eq(migrate(data("cli/plain.pt"), "torch", at("x.pt")), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "3 things are wrong"));
    ck_assert(strstr(err.message, "'a'") && strstr(err.message, "'b'") && strstr(err.message, "'c=bfloat16'"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "unused-rule"), 3);
}
END_TEST

/* Each selects something, and together they select nothing. */
START_TEST(select_nothing_together)
{
    static const char *const tensor[] = {"model.*"}, *const role[] = {"exp_avg"};
    give(TENSOR, tensor, 1);
    options.only_role = role;
    options.only_role_count = 1;
    ck_assert_int_eq(migrate(data("cli/plain.pt"), "torch", at("x.pt")), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "together select none"));
}
END_TEST

/* The first that matches counts, so one behind it that matches nothing else is never used. */
START_TEST(shadowed)
{
    static const char *const casts[] = {"model.*=bfloat16", "model.0.weight=float16"}, *const in_order[] = {
                                                                                           "model.0.weight=float16",
                                                                                           "model.*=bfloat16"};
    give(CAST, casts, 2);
    ck_assert_int_eq(migrate(data("cli/plain.pt"), "torch", at("x.pt")), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "'model.*=bfloat16' before it takes the tensor that it matches (1)"));
    give(CAST, in_order, 2);
    migrates(data("cli/plain.pt"), "torch", at("x.pt"));
}
END_TEST

/* Scripts strip "module." whether or not there is one; a wide cast leaves alone what it may not convert. */
START_TEST(stay_warnings)
{
    static const char *const prefix[] = {"module."}, *const casts[] = {"*.num_batches_tracked*=bfloat16"};
    options.strip_prefix = prefix;
    options.strip_prefix_count = 1;
    give(CAST, casts, 1);
    options.map_location = "cuda:5=cuda:0,cuda:*=cuda:1,cpu=cpu";
    migrates(data("cli/plain.pt"), "torch", at("x.pt"));
    ck_assert_uint_ge(ckpt_report_count_code(report, "unused-rule"), 2);
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        ck_assert_int_ne(ckpt_report_get(report, i)->severity, CKPT_SEVERITY_ERROR);
}
END_TEST

/* ---- --weights-only */

START_TEST(left_behind)
{
    static const char *const drop[] = {"trainer.vae_local.bias"};
    options.weights_only = true;
    const char *const to[] = {"torch", "ckpt", "safetensors"};
    for (size_t i = 0; i < 3; i++) {
        migrates(data("torch-handover/ar-ckpt-mixed.pth"), to[i], at("w"));
        const ckpt_finding *f = ckpt_report_find(report, "left-behind", "trainer.vae_local");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(f->severity, CKPT_SEVERITY_WARNING);
        ck_assert_ptr_nonnull(strstr(f->message, "2 weights are outside of the model ('trainer.var_wo_ddp')"));
        ck_assert_ptr_nonnull(strstr(f->message, "trainer.vae_local.weight, trainer.vae_local.bias"));
        ck_assert_uint_eq(ckpt_report_count_code(report, "left-behind"), 1);
    }
    give(DROP, drop, 1); /* what was asked to go is none of it */
    migrates(data("torch-handover/ar-ckpt-mixed.pth"), "torch", at("w"));
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(report, "left-behind", NULL)->message, "1 weight is outside"));
    give(DROP, NULL, 0);
    migrates(data("cli/plain.pt"), "torch", at("w"));
    ck_assert_ptr_null(ckpt_report_find(report, "left-behind", NULL));
}
END_TEST

/* ---- device tags */

START_TEST(tags)
{
    options.weights_only = true;
    migrates(data("cli/plain.pt"), "safetensors", at("w.safetensors")); /* cuda:0 */
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(report, "tags-dropped", NULL)->message, "9 tensors (cuda:0, ...)"));
    options.map_location = "cpu";
    migrates(data("cli/plain.pt"), "safetensors", at("w.safetensors"));
    ck_assert_ptr_null(ckpt_report_find(report, "tags-dropped", NULL));
    options.weights_only = false;
    ck_assert_int_eq(migrate(data("cli/plain.pt"), "safetensors", at("x.safetensors")), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_null(strstr(err.message, "device tag"));
    options.map_location = NULL;
    ck_assert_int_eq(migrate(data("cli/plain.pt"), "safetensors", at("x.safetensors")), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.message, "the device tags of 21 tensors")); /* the steps are on the cpu */
}
END_TEST

/* ---- names are those of a listing */

START_TEST(names_in_directories)
{
    static const char *const casts[] = {"*=float16"}, *const renames[] = {"(.*)\\.weight=$1.w"};
    options.weights_only = true;
    options.max_shard_size = 60;
    migrates(data("cli/plain.pt"), "hf", at("shards"));
    options.weights_only = false;
    const char *const to[] = {"same", "hf", "torch", "ckpt"};
    for (size_t i = 0; i < 4; i++) {
        give(CAST, casts, 1);
        options.lossy = true;
        migrates(at("shards"), to[i], at("%s", to[i]));
        ck_assert_ptr_nonnull(ckpt_report_find(report, "cast", "0.weight"));
        give(RENAME, renames, 1);
        migrates(at("shards"), to[i], at("%s", to[i]));
        ck_assert_ptr_nonnull(ckpt_report_find(report, "renamed", "0.w"));
        ck_assert_uint_eq(ckpt_report_count_code(report, "renamed"), 3); /* each once */
    }
}
END_TEST

/* ---- the size */

static uint64_t bytes_of(const char *path)
{
    struct stat st;
    uint64_t sum = 0;
    ck_assert_int_eq(stat(path, &st), 0);
    if (!S_ISDIR(st.st_mode))
        return (uint64_t)st.st_size;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char inner[1200];
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            sum += bytes_of(inner);
    }
    closedir(d);
    return sum;
}

/* What a dry run says is what is written, to the byte. */
START_TEST(sizes)
{
    static const char *const sources[] = {
        "cli/plain.pt",     "cli/views.pt",    "torch-handover/ar-ckpt-mixed.pth", "cli/weights.safetensors",
        "peers/hf-sharded", "peers/accelerate"};
    static const char *const to[] = {"torch", "ckpt", "safetensors", "hf", "same"}, *const casts[] = {"*=bfloat16"};
    options.lossy = true;
    options.max_shard_size = 1000;
    size_t done = 0;
    for (size_t s = 0; s < sizeof sources / sizeof *sources; s++)
        for (size_t t = 0; t < 5; t++)
            for (size_t cast = 0; cast < 2; cast++) {
                char dst[32];
                snprintf(dst, sizeof dst, "%zu-%zu-%zu", s, t, cast);
                give(CAST, casts, cast);
                options.dry_run = true;
                if (migrate(data(sources[s]), to[t], at("%s", dst)) != CKPT_OK)
                    continue; /* no such target of it */
                const ckpt_finding *f = ckpt_report_find(report, "size", NULL);
                ck_assert_ptr_nonnull(f);
                uint64_t said = f->nbytes;
                options.dry_run = false;
                migrates(data(sources[s]), to[t], at("%s", dst));
                ck_assert_msg(said == bytes_of(at("%s", dst)), "%s to %s: %llu bytes were said, and it has %llu",
                              sources[s], to[t], (unsigned long long)said, (unsigned long long)bytes_of(at("%s", dst)));
                ck_assert_uint_eq(ckpt_report_find(report, "size", NULL)->nbytes, said);
                done++;
            }
    ck_assert_uint_ge(done, 40);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_rules");
    TCase *t = tcase_create("rules");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, match_nothing, 0, sizeof none / sizeof *none);
    tcase_add_test(t, each_is_listed);
    tcase_add_test(t, select_nothing_together);
    tcase_add_test(t, shadowed);
    tcase_add_test(t, stay_warnings);
    tcase_add_test(t, left_behind);
    tcase_add_test(t, tags);
    tcase_add_test(t, names_in_directories);
    tcase_add_test(t, sizes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
