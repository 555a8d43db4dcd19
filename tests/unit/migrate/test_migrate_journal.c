/* test_migrate_journal.c - migrations that are cancelled again and again end with the same bytes and the same findings as one that is
 * not; and what is wrong with the source is found, though each run reads a part of it. tests/fault/kill_migrate has the kills. */
#include <ckpt/ckpt.h>
#include <fcntl.h>
#include <math.h>

#include "../runner.h"
#include "../scratch.h"

enum { TENSORS = 4, ROWS = 16384, WIDTH = 64 };

static ckpt_error err = CKPT_ERROR_INIT;

/* The last has so many rows, and as many bytes as the others. */
static void save(const char *path, int64_t rows, int64_t last_rows)
{
    const size_t each = (size_t)rows * WIDTH * 4, bytes = TENSORS * each;
    float *memory = malloc(bytes);
    ckpt_arena_entry entries[TENSORS];
    char names[TENSORS][20];
    const int64_t shape[] = {rows, WIDTH}, last[] = {last_rows, rows * WIDTH / last_rows};
    ck_assert_ptr_nonnull(memory);
    for (size_t i = 0; i < bytes / 4; i++)
        memory[i] = (float)i;
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.weight", i);
        entries[i] = (ckpt_arena_entry){names[i], i * each, 2, i + 1 < TENSORS ? shape : last};
    }
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.data = memory;
    arena.nbytes = bytes;
    arena.dtype = CKPT_F32;
    arena.role = CKPT_ROLE_PARAM;
    ckpt_state *s = ckpt_state_new();
    ck_assert_ptr_nonnull(s);
    ck_assert_int_ge(ckpt_state_arena(s, &arena, entries, TENSORS, &err), 0);
    ck_assert_msg(ckpt_save(s, path, NULL, &err) >= 0, "%s", err.message);
    ckpt_state_free(s);
    free(memory);
}

/* Where it stops: when so many hundredths are done; 0: nowhere. */
static int stop_at(void *ctx, uint64_t done, uint64_t total)
{
    const unsigned *percent = ctx;
    return *percent && done * 100 > total * *percent;
}

static ckpt_status migrate(const char *from, const char *to, ckpt_migrate_options *o, unsigned percent, ckpt_report *r)
{
    err = (ckpt_error)CKPT_ERROR_INIT;
    o->no_sync = true;
    o->threads = 1;
    o->progress = (ckpt_progress){stop_at, &percent};
    return ckpt_migrate(from, to, o, r, &err);
}

static ckpt_migrate_options options_of(const char *to, uint32_t world)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = to;
    o.target_world = world;
    return o;
}

static int names_in(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

/* Stopped at each tenth, and gone on with each time. */
static void in_steps(const char *from, ckpt_migrate_options *o, ckpt_report *r)
{
    int kept = 0;
    ck_assert_int_eq(mkdir("out", 0777), 0);
    for (unsigned percent = 10; percent < 100; percent += 10) {
        ck_assert_int_eq(migrate(from, "out/x", o, percent, r), CKPT_E_CANCELLED);
        const size_t files = ckpt_report_count_code(r, "journal-kept");
        ck_assert_int_eq(names_in("out"), files ? 2 : 0);
        ck_assert(!files == !strstr(err.message, "finished file"));
        ck_assert_msg(!kept || ckpt_report_count_code(r, "journal-resumed") == 1 || !files, "at %u", percent);
        kept += files > 0;
    }
    ck_assert_int_gt(kept, 3);
    ck_assert_msg(migrate(from, "out/x", o, 0, r) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-resumed"), 1);
    ck_assert_int_eq(names_in("out"), 1);
}

START_TEST(the_bytes_are_the_same)
{
    ckpt_report *r = ckpt_report_new();
    ckpt_migrate_options first = options_of("dcp", 4), o = options_of("dcp", 12);
    save("a.safetensors", ROWS, ROWS);
    ck_assert_int_eq(migrate("a.safetensors", "of4", &first, 0, r), CKPT_OK);
    ck_assert_int_eq(migrate("of4", "whole", &o, 0, r), CKPT_OK);
    in_steps("of4", &o, r);
    ck_assert_int_eq(system("diff -r whole out/x"), 0);
    ckpt_report_free(r);
}
END_TEST

/* What conversions made of values is known of the tensors that earlier runs have read, too. */
START_TEST(the_findings_are_the_same)
{
    static const char *const cast[] = {"*=float16"};
    ckpt_report *whole = ckpt_report_new(), *r = ckpt_report_new();
    ckpt_migrate_options o = options_of("hf", 0);
    o.max_shard_size = 1000;
    o.cast = cast;
    o.cast_count = 1;
    save("a.safetensors", ROWS, ROWS);
    ck_assert_int_eq(migrate("a.safetensors", "whole", &o, 0, whole), CKPT_OK);
    in_steps("a.safetensors", &o, r);
    ck_assert_int_eq(system("diff -r whole out/x"), 0);
    ck_assert_uint_eq(ckpt_report_count_code(whole, "cast-range"), TENSORS);
    ck_assert_uint_eq(ckpt_report_count_code(r, "cast-range"), TENSORS);
    for (size_t i = 0; i < ckpt_report_count(whole); i++) {
        const ckpt_finding *f = ckpt_report_get(whole, i);
        const ckpt_finding *g = strcmp(f->code, "cast-range") == 0 ? ckpt_report_find(r, f->code, f->tensor) : f;
        ck_assert_ptr_nonnull(g);
        ck_assert_str_eq(f->message, g->message);
    }
    ckpt_report_free(whole);
    ckpt_report_free(r);
}
END_TEST

/* Tensors that a cast has in ranges of many files: one that lies as it is, one whose elements lie strided and that is put together whole,
 * and small ones that are read together with others. */
static void save_kinds(const char *path)
{
    enum { SMALL = 6 };
    static const char rules[] = "layout: 1\nsides: [a, b]\nrules:\n- {a: plain, b: straight}\n"
                                "- a: turned\n  b: across\n  steps:\n  - transpose: [1, 0]\n"
                                "- {a: small.<i>, b: few.<i>}\n";
    const int64_t large[] = {1024, 1024}, small[] = {36, 7};
    const int64_t each = large[0] * large[1], count = 2 * each + SMALL * small[0] * small[1];
    float *memory = malloc((size_t)count * sizeof *memory);
    int64_t step = 20;
    ckpt_state *s = ckpt_state_new();
    ck_assert(memory && s && ckpt_state_i64(s, "step", &step, &err) >= 0);
    for (int64_t i = 0; i < count; i++)
        memory[i] = i % 5 == 0 ? 1e6f : i % 7 == 0 ? NAN : (float)(i % 1000);
    for (int i = 0; i < SMALL + 2; i++) {
        char name[20] = "plain";
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        if (i)
            snprintf(name, sizeof name, i > 1 ? "small.%d" : "turned", i - 2);
        d.name = name;
        d.dtype = CKPT_F32;
        d.ndim = 2;
        d.shape = i > 1 ? small : large;
        d.role = CKPT_ROLE_PARAM;
        d.data = memory + (i > 1 ? 2 * each + (i - 2) * small[0] * small[1] : i * each);
        ck_assert_msg(ckpt_state_tensor(s, &d, &err) >= 0, "%s", err.message);
    }
    ck_assert_msg(ckpt_save(s, path, NULL, &err) >= 0, "%s", err.message);
    ckpt_state_free(s);
    free(memory);
    FILE *f = fopen("turn.yaml", "w");
    ck_assert(f && fputs(rules, f) >= 0 && fclose(f) == 0);
}

static void expect_findings(const ckpt_report *r, const ckpt_report *as, const char *code, size_t least)
{
    ck_assert_uint_ge(ckpt_report_count_code(as, code), least);
    ck_assert_uint_eq(ckpt_report_count_code(r, code), ckpt_report_count_code(as, code));
    for (size_t i = 0; i < ckpt_report_count(as); i++) {
        const ckpt_finding *f = ckpt_report_get(as, i);
        const ckpt_finding *g = strcmp(f->code, code) == 0 ? ckpt_report_find(r, code, f->tensor) : f;
        ck_assert_msg(g != NULL, "%s %s", code, f->tensor);
        ck_assert_msg(strcmp(f->message, g->message) == 0, "%s: %s, and %s", f->tensor, f->message, g->message);
    }
}

/* And where each run has another memory, so that what is put together at once differs. */
START_TEST(the_findings_of_ranges_are_the_same)
{
    static const char *const cast[] = {"*=float16"};
    static const char *const targets[] = {"dcp", "dcp", "ckpt-run", "dcp"}, *const all[] = {"*"};
    static const char *const cuts[] = {"*=tp:1,dp:0"};
    save_kinds("a.safetensors");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        ckpt_report *whole = ckpt_report_new(), *r = ckpt_report_new();
        ckpt_migrate_options one = options_of("torch", 0), o = options_of(targets[i], 12);
        one.lossy = o.lossy = true;
        one.cast = o.cast = cast;
        one.cast_count = o.cast_count = 1;
        one.layout = o.layout = "turn.yaml";
        o.mesh = i == 3 ? "dp=4,tp=3" : NULL;
        o.cuts = cuts;
        o.cut_count = i == 3;
        o.target_world = o.mesh ? 0 : 12;
        o.shard = all;
        o.shard_count = strcmp(targets[i], "ckpt-run") == 0;
        ck_assert_msg(migrate("a.safetensors", "one.pt", &one, 0, whole) == CKPT_OK, "%s", err.message);
        ck_assert_msg(migrate("a.safetensors", "whole", &o, 0, r) == CKPT_OK, "%s", err.message);
        expect_findings(r, whole, "cast-range", 8);
        expect_findings(r, whole, "cast-nan", 8);
        ck_assert_int_eq(mkdir("out", 0777), 0);
        for (unsigned percent = 20, taken = 0; percent <= 100; percent += 16) {
            ckpt_report_free(r);
            r = ckpt_report_new();
            o.memory = (i == 1 ? percent % 3 : 0) ? (uint64_t)34 << 20 : 0;
            ckpt_status status = migrate("a.safetensors", "out/x", &o, percent < 100 ? percent : 0, r);
            ck_assert_msg(status == (percent < 100 ? CKPT_E_CANCELLED : CKPT_OK), "%u: %s", percent, err.message);
            taken += (unsigned)ckpt_report_count_code(r, "journal-resumed");
            ck_assert(percent < 100 || taken > 1);
        }
        expect_findings(r, whole, "cast-range", 8);
        expect_findings(r, whole, "cast-nan", 8);
        ck_assert_int_eq(system("diff -r whole out/x -x checkpoint.json && rm -r whole out one.pt"), 0);
        ckpt_report_free(whole);
        ckpt_report_free(r);
    }
}
END_TEST

/* The last tensor goes to the files of eight ranks of twelve, which two runs write: none of them reads its record from end to end. The
 * third reads nothing of it, and finds the byte that is wrong all the same. */
START_TEST(what_was_not_compared_is_compared)
{
    ckpt_report *r = ckpt_report_new();
    ckpt_migrate_options first = options_of("torch", 0), o = options_of("dcp", 12);
    save("a.safetensors", 3 * ROWS, 8);
    first.lossy = true;
    ck_assert_int_eq(migrate("a.safetensors", "a.pt", &first, 0, r), CKPT_OK);
    FILE *f = fopen("a.pt", "r+");
    ck_assert(f && fseek(f, (36 << 20) + (200 << 10), SEEK_SET) == 0);
    int byte = getc(f);
    ck_assert(fseek(f, (36 << 20) + (200 << 10), SEEK_SET) == 0 && putc(byte ^ 0x20, f) != EOF && fclose(f) == 0);
    ck_assert_int_eq(migrate("a.pt", "x", &o, 0, r), CKPT_E_DAMAGED);
    ck_assert_int_eq(mkdir("out", 0777), 0);
    for (unsigned percent = 38; percent < 90; percent += 38) {
        ck_assert_msg(migrate("a.pt", "out/x", &o, percent, r) == CKPT_E_CANCELLED, "%s: %s", err.object, err.message);
        ck_assert_uint_eq(ckpt_report_count_code(r, "journal-kept"), 1);
    }
    ck_assert_int_eq(migrate("a.pt", "out/x", &o, 0, r), CKPT_E_DAMAGED);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-resumed"), 1);
    ck_assert_int_eq(names_in("out"), 0);
    ckpt_report_free(r);
}
END_TEST

/* ---- other options, and other sources */

typedef struct change {
    const char *word; /* that its message has */
    void (*make)(ckpt_migrate_options *o);
} change;

static const char *const half[] = {"*=float16"}, *const long_list[] = {"a.very.long.name.that.no.tensor.has.at.all.1",
                                                                       "a.very.long.name.that.no.tensor.has.at.all.2"};
static void change_cast(ckpt_migrate_options *o)
{
    o->cast = half;
    o->cast_count = 1;
}
static void change_world(ckpt_migrate_options *o)
{
    o->target_world = 5;
}
static void change_target(ckpt_migrate_options *o)
{
    o->to = "dcp-hf";
}
static void change_drop(ckpt_migrate_options *o)
{
    o->drop = long_list;
    o->drop_count = 2;
    o->allow_unused = true;
}
static void change_weights(ckpt_migrate_options *o)
{
    o->weights_only = true;
}
static void change_optimizer(ckpt_migrate_options *o)
{
    o->optimizer = CKPT_OPTIMIZER_FUSED;
}
static void change_prefix(ckpt_migrate_options *o)
{
    o->add_prefix = "net, work.";
}
static void change_many(ckpt_migrate_options *o)
{
    change_cast(o);
    change_world(o);
    change_weights(o);
    change_prefix(o);
}

static void leave_some(ckpt_migrate_options o, ckpt_report *r)
{
    ck_assert_int_eq(system("rm -rf out && mkdir out"), 0);
    ck_assert_int_eq(migrate("a.safetensors", "out/x", &o, 60, r), CKPT_E_CANCELLED);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-kept"), 1);
}

START_TEST(other_options_are_named)
{
    static const change changes[] = {{"--cast (not given then, '*=float16' now)", change_cast},
                                     {"--world ('8' then, '5' now)", change_world},
                                     {"--to ('dcp' then, 'dcp-hf' now)", change_target},
                                     {"--drop (not given then, a long one now)", change_drop},
                                     {"--weights-only (not given then, 'yes' now)", change_weights},
                                     {"--optimizer (not given then, 'fused' now)", change_optimizer},
                                     {"--add-prefix (not given then, 'net, work.' now)", change_prefix},
                                     {"'yes' now) and 1 more", change_many}};
    ckpt_report *r = ckpt_report_new();
    save("a.safetensors", ROWS, ROWS);
    leave_some(options_of("dcp", 8), r);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        ckpt_migrate_options o = options_of("dcp", 8);
        changes[i].make(&o);
        for (int dry = 0; dry < 2; dry++) {
            o.dry_run = dry;
            ck_assert_int_eq(migrate("a.safetensors", "out/x", &o, 0, r), dry ? CKPT_OK : CKPT_E_EXISTS);
            const ckpt_finding *f = ckpt_report_find(r, "journal-other", NULL);
            ck_assert(!dry || (f && f->severity == CKPT_SEVERITY_WARNING));
            const char *said = dry ? f->message : err.message;
            ck_assert_msg(strstr(said, changes[i].word) && strstr(said, "--no-resume") && strstr(said, ".tmp-x."), "%s",
                          said);
            ck_assert_uint_eq(ckpt_report_count_code(r, "journal-stale"), 0);
            ck_assert_int_eq(names_in("out"), 2);
        }
    }
    /* those that change nothing of the target */
    ckpt_migrate_options o = options_of("dcp", 8);
    o.memory = (uint64_t)40 << 20;
    o.verify = o.force = o.lossy = o.allow_unused = true;
    ck_assert_msg(migrate("a.safetensors", "out/x", &o, 0, r) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-resumed"), 1);
    ckpt_report_free(r);
}
END_TEST

/* Options of files: another layout under the same name. A source that has changed starts anew, with whatever options. */
START_TEST(what_they_name_may_change)
{
    static const char rules[] = "layout: 1\nsides: [a, b]\nrules:\n- {a: layers.<i>.weight, b: %s.<i>}\n";
    ckpt_report *r = ckpt_report_new();
    ckpt_migrate_options o = options_of("dcp", 8);
    o.layout = "names.yaml";
    save("a.safetensors", ROWS, ROWS);
    FILE *f = fopen("names.yaml", "w");
    ck_assert(f && fprintf(f, rules, "one") > 0 && fclose(f) == 0);
    leave_some(o, r);
    f = fopen("names.yaml", "w");
    ck_assert(f && fprintf(f, rules, "two") > 0 && fclose(f) == 0);
    ck_assert_int_eq(migrate("a.safetensors", "out/x", &o, 0, r), CKPT_E_EXISTS);
    ck_assert_ptr_nonnull(strstr(err.message, "a file that one of them names"));
    f = fopen("names.yaml", "w");
    ck_assert(f && fprintf(f, rules, "one") > 0 && fclose(f) == 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, "a.safetensors", NULL, 0), 0);
    o.target_world = 3;
    ck_assert_msg(migrate("a.safetensors", "out/x", &o, 0, r) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-stale"), 1);
    ck_assert_int_eq(names_in("out"), 1);
    ckpt_report_free(r);
}
END_TEST

/* A run that was interrupted before a file was finished has nothing to lose. */
START_TEST(nothing_finished_is_no_loss)
{
    ckpt_report *r = ckpt_report_new();
    ckpt_migrate_options o = options_of("dcp", 8);
    save("a.safetensors", ROWS, ROWS);
    leave_some(o, r);
    ck_assert_int_eq(system("sed -i '/ file /d' out/.tmp-x.*.journal && grep -c . out/.tmp-x.*.journal | grep -qx 2"),
                     0);
    o.target_world = 3;
    ck_assert_msg(migrate("a.safetensors", "out/x", &o, 0, r) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-stale"), 1);
    ckpt_report_free(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate journal");
    TCase *t = tcase_create("journal");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_bytes_are_the_same);
    tcase_add_test(t, the_findings_are_the_same);
    tcase_add_test(t, the_findings_of_ranges_are_the_same);
    tcase_add_test(t, what_was_not_compared_is_compared);
    tcase_add_test(t, other_options_are_named);
    tcase_add_test(t, what_they_name_may_change);
    tcase_add_test(t, nothing_finished_is_no_loss);
    suite_add_tcase(s, t);
    return run_suite(s);
}
