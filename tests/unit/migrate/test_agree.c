/* test_agree.c - what ckpt_restore takes from a fixture is what ckpt_migrate writes of it under the same names. Every fixture is
 * migrated to ckpt. A state that binds all names of the result is then restored from the fixture itself and from the result:
 * both restores must succeed or fail alike and give the same bytes, and what the fixture has beside those names
 * the migration must have reported. A difference that is meant is a line of `meant`. */
#include <ckpt/ckpt.h>
#include <fnmatch.h>
#include <stdarg.h>
#include "agree_files.h"
#include "fixtures.h"
#include "migrate/order.h"
#include "whole_state.h"

/* ---- what is said to both sides */

typedef struct said {
    const char *way;               /* its name, for messages and for `meant` */
    const char *migrate, *restore; /* maps, as map_location; NULL: none */
    const char *const *param_names;
    size_t param_name_count;
    const char *assume_order;
    const char *strip;  /* of the migration: a prefix that the map of the restore strips */
    const char *rename; /* the same */
    bool groups;        /* the state has the optimizer's groups */
    const char *twin;   /* a ckpt file of the fixture that nothing was said of: restored like the fixture; NULL: none */
    const picture
        *from; /* the fixture, whose names say of themselves what those of the target say; NULL: not compared */
} said;

static size_t differences, compared, refused;

/* ---- the differences that are meant: such names are not bound, and need not be in the target */

/* Of a tensor that is not dense a ckpt file has the parts alone, each a dense tensor under a name of its own. Other files have the
 * whole, which a restore refuses. */
#define PARTS "a ckpt file has the parts, the fixture the whole"

static struct {
    const char *fixture, *way, *names; /* globs */
    const char *why;
    bool used;
} meant[] = {
    {"cli/attack.pkl", "*", "value", "the root is an integer and has no name; the root of a ckpt file is a dict",
     false},
    {"cli/masked.pt", "*", "*._masked_*", PARTS, false},
    {"cli/tensors.pt", "*", "coo*", PARTS, false},
    {"dcp/unflattened/", "*", "m.*._local_tensor", PARTS, false},
    {"dcp/unflattened/", "*", "cut", PARTS, false},
    {"dcp/unflattened/", "*", "copies", PARTS, false},
    {"parts/*_rank_?.pt", "*", "weight*", PARTS, false},
    {"ranks/verl/model_*_rank_?.pt", "*", "*._local_tensor", PARTS, false},
    {"ranks/megatron/", "*", "args.*", "one file of all ranks says that they are one: the finding 'one-rank' says it",
     false},
    {"ranks/torch-dist/", "*", "args.*", "the same", false},
    {"torch_write/odd.pt", "*", "sparse*", PARTS, false},
    {"torch_write/odd.pt", "*", "csr*", PARTS, false},
    {"torch_write/odd.pt", "*", "quantized*", PARTS, false},
    {"parts/flat*.pt", "*", "optimizer.param_groups.*", "what flattened groups were stays beside the groups made of it",
     false},
    {"peers/libtorch-optimizer.pt", "*", "param_groups.*",
     "its groups are written as torch.optim has them: the finding 'reordered' says it", false},
    {"peers/libtorch-optimizer.pt", "*", "pytorch_version", "the same", false},
    {"torch-handover/ar-ckpt-*.pth", "rename", "trainer.vae_local.*",
     "--rename is about all models of the file, source.rename about the one that is restored", false},
    {"keras/*", "rename", "*optimizer*",
     "--rename is about the model's tensors, source.rename about all of a file without dicts",
     true}, /* HDF5 may lack */
};

static bool is_meant(const char *fixture, const char *way, const char *name)
{
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        if (fnmatch(meant[i].fixture, fixture, 0) == 0 && fnmatch(meant[i].way, way, 0) == 0 &&
            fnmatch(meant[i].names, name, 0) == 0)
            return meant[i].used = true;
    return false;
}

static void differ(const char *fixture, const char *way, const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("# %s, %s: %s\n", fixture, way, text);
    differences++;
}

/* ---- the comparison */

static ckpt_status migrate_as(const char *path, const said *s, ckpt_report *report, ckpt_error *err)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.lossy = o.no_sync = o.force = o.allow_unused = true;
    o.threads = 1;
    o.map_location = s->migrate;
    o.param_names = s->param_names;
    o.param_name_count = s->param_name_count;
    o.assume_order = s->assume_order;
    o.strip_prefix = &s->strip;
    o.strip_prefix_count = s->strip != NULL;
    o.rename = &s->rename;
    o.rename_count = s->rename != NULL;
    return ckpt_migrate(path, "target", &o, report, err);
}

static ckpt_status restore_as(picture *p, const char *path, const said *s, ckpt_report *report, ckpt_error *err)
{
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.map_location = s->restore;
    o.param_names = s->param_names;
    o.param_name_count = s->param_name_count;
    o.assume_order = s->assume_order;
    o.allow_unexpected = true;
    o.threads = 1;
    return ckpt_restore(p->state, path, &o, report, err);
}

static void compare(const picture *p, const char *fixture, const char *way)
{
    ckpt_error err = CKPT_ERROR_INIT;
    for (size_t i = 0; i < p->count; i++) {
        const thing *t = &p->things[i];
        unsigned char *want = malloc(t->size + 1);
        ck_assert_ptr_nonnull(want);
        if (t->entry->is_tensor)
            ck_assert_msg(ckpt_reader_read(p->reader, t->entry->tensor, want, t->size, &err) == CKPT_OK, "%s",
                          err.message);
        else
            want_value(t->entry->value, want, t->size);
        if (memcmp(want, t->data, t->size) != 0)
            differ(fixture, way, "'%s' is restored as other bytes than the migration has written", t->name);
        free(want);
        compared++;
    }
}

static bool among(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Did the migration say what became of the name? */
static bool is_told(const ckpt_report *report, const char *name)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (strcmp(f->tensor, name) == 0 && strcmp(f->code, "copy") != 0)
            return true;
        static const char settings[] = "the settings in ";
        if (strncmp(f->message, settings, sizeof settings - 1) != 0)
            continue;
        const char *file = f->message + sizeof settings - 1;
        size_t n = strcspn(file, " ");
        if (strncmp(file, name, n) == 0 && name[n] == '.')
            return true;
    }
    return false;
}

static void check_rest(const picture *p, const char *fixture, const said *s, const ckpt_report *migrated,
                       const ckpt_report *restored)
{
    for (size_t i = 0; i < ckpt_report_count(restored); i++) {
        const ckpt_finding *f = ckpt_report_get(restored, i);
        if (strcmp(f->code, "left-over") != 0 || among(p->loose, p->loose_count, f->tensor) ||
            is_told(migrated, f->tensor) || is_meant(fixture, s->way, f->tensor))
            continue;
        differ(fixture, s->way, "'%s' is in the fixture, and the migration did not write it and did not say so",
               f->tensor);
    }
}

/* ---- one way to say it */

/* Both sides refuse alike. The state has the names of "named", where another way gave that, else of the fixture itself. */
static void refuse(const char *path, const char *fixture, const said *s, ckpt_status status, const ckpt_error *why)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *report = ckpt_report_new();
    picture p = {.state = NULL};
    bool opens = look(&p, (access("named", F_OK) == 0) ? "named" : path, fixture, s->way, &err) == CKPT_OK;
    if (!opens && !p.state)
        p.state = ckpt_state_new();
    ckpt_status other = restore_as(&p, path, s, report, &err);
    /* what is damaged may not be read before names are found missing */
    if (other == CKPT_OK || (status == CKPT_E_MISMATCH && other != status))
        differ(fixture, s->way, "the migration is refused: %s: %s; the restore answers %s: %s",
               ckpt_status_name(status), why->message, ckpt_status_name(other), err.message);
    refused++;
    forget(&p);
    ckpt_report_free(report);
}

/* The target is kept as "named" where it has names for the optimizer's states, and no other way gave some before. */
static void keep_named(const picture *p)
{
    bool named = false;
    for (size_t i = 0; i < p->count; i++)
        named |= !p->things[i].entry->outside && ckpt_role_is_optimizer(p->things[i].entry->role);
    if (named && !(access("named", F_OK) == 0))
        ck_assert_int_eq(system("cp target named"), 0);
}

static const char *text_of(ckpt_str s)
{
    return s.data ? s.data : "-";
}

/* Both sides say the same of a thing: its role, its parameter and its group. */
static void compare_facts(const picture *target, const picture *from, const char *fixture, const char *way)
{
    for (size_t i = 0; i < target->canon->count; i++) {
        const ckpt__canon_entry *a = &target->canon->entries[i], *b;
        size_t k;
        if (a->outside || !ckpt__hash_get(from->canon->by_name, a->name.data, a->name.size, &k))
            continue;
        b = &from->canon->entries[k];
        if (b->outside || a->is_tensor != b->is_tensor)
            continue;
        if (a->role != b->role || strcmp(text_of(a->param), text_of(b->param)) != 0 ||
            strcmp(text_of(a->state_key), text_of(b->state_key)) != 0 ||
            strcmp(text_of(a->group), text_of(b->group)) != 0)
            differ(fixture, way, "'%s' is %s of '%s' (%s) in group '%s' here and %s of '%s' (%s) in group '%s' there",
                   a->name.data, ckpt_role_name(a->role), text_of(a->param), text_of(a->state_key), text_of(a->group),
                   ckpt_role_name(b->role), text_of(b->param), text_of(b->state_key), text_of(b->group));
    }
}

/* The same state once more, from a ckpt file. */
static void again(picture *p, const char *fixture, const said *s, const char *path, const said *how)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *report = ckpt_report_new();
    clear(p);
    if (restore_as(p, path, how, report, &err) != CKPT_OK)
        differ(fixture, s->way, "%s is not restored: %s", path, err.message);
    else
        compare(p, fixture, s->way);
    ckpt_report_free(report);
}

static void agree(const char *path, const char *fixture, const said *s)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *migrated = ckpt_report_new(), *restored = ckpt_report_new();
    ckpt_status status = migrate_as(path, s, migrated, &err);
    picture p;
    if (status != CKPT_OK) {
        refuse(path, fixture, s, status, &err);
    } else {
        ck_assert_msg(look(&p, "target", fixture, s->way, &err) == CKPT_OK, "%s, %s: %s", fixture, s->way, err.message);
        if (s->groups)
            bind_groups(&p);
        status = restore_as(&p, path, s, restored, &err);
        if (status != CKPT_OK) {
            differ(fixture, s->way, "migrated, and not restored: %s: %s", ckpt_status_name(status), err.message);
        } else {
            compare(&p, fixture, s->way);
            check_rest(&p, fixture, s, migrated, restored);
            again(&p, fixture, s, "target", &(said){.way = s->way});
            if (s->twin)
                again(&p, fixture, s, s->twin, s);
        }
        if (s->from)
            compare_facts(&p, s->from, fixture, s->way);
        keep_named(&p);
        forget(&p);
    }
    ckpt_report_free(migrated);
    ckpt_report_free(restored);
    ck_assert_int_eq(system("rm -rf target"), 0);
}

/* ---- all ways of a fixture */

/* The dicts that could be the model are the model one after the other; what lies in the optimizer is none. */
typedef struct others {
    const picture *p;
    const char *path, *fixture;
    size_t count;
} others;

static int try_model(void *ctx, const ckpt_visit *visit)
{
    static const char *const keys[] = {"model"};
    others *o = ctx;
    char way[600];
    ckpt_str optimizer = o->p->canon->unnamed.data ? o->p->canon->unnamed : o->p->canon->optimizer_path;
    bool below = optimizer.size && visit->name.size > optimizer.size &&
                 memcmp(visit->name.data, optimizer.data, optimizer.size) == 0;
    if (visit->cycle || below || !ckpt__canon_is_model(o->p->reader->index, visit->value) || !is_plain(visit->name) ||
        visit->name.size > 500 || o->count++ >= 4)
        return 0;
    put_map("model.yaml", keys, &visit->name, 1);
    snprintf(way, sizeof way, "model: %s", visit->name.data);
    agree(o->path, o->fixture, &(said){.way = way, .migrate = "model.yaml", .restore = "model.yaml"});
    return 0;
}

static void by_maps(const picture *p, const char *path, const char *fixture)
{
    static const char *const keys[] = {"model", "optimizer", "scaler"};
    const ckpt_str paths[] = {p->canon->model_path, p->canon->optimizer_path, p->canon->scaler_path};
    others o = {p, path, fixture, 0};
    if (paths[0].size || paths[1].size || paths[2].size) {
        put_map("found.yaml", keys, paths, 3);
        agree(path, fixture, &(said){.way = "found", .migrate = "found.yaml", .restore = "found.yaml"});
    }
    if (p->reader->index->root)
        ck_assert_int_eq(ckpt_value_walk(p->reader->index->root, 0, try_model, &o, NULL), 0);
}

/* The migration's own options and the map's say the same. */
static void by_names(const picture *p, const char *path, const char *fixture)
{
    const char *first = NULL;
    char prefix[200] = "", text[600], quoted[400];
    for (size_t i = 0; !first && i < p->count; i++)
        if (p->things[i].entry->role == CKPT_ROLE_PARAM && !p->things[i].entry->outside)
            first = p->things[i].name;
    const char *dot = first ? strchr(first, '.') : NULL, *twin = NULL;
    if (!first)
        return;
    if (migrate_as(path, &(said){.way = "twin"}, NULL, NULL) == CKPT_OK && rename("target", "twin") == 0)
        twin = "twin";
    write_text("rename.yaml", "map: 1\nsource: {rename: [{from: '(.*)', to: 'other.$1'}]}\ndefault: cpu\n");
    agree(path, fixture, &(said){.way = "rename", .rename = "(.*)=other.$1", .restore = "rename.yaml", .twin = twin});
    if (!dot || dot - first > 100)
        return;
    snprintf(prefix, sizeof prefix, "%.*s", (int)(dot - first) + 1, first);
    quote(quoted, sizeof quoted, prefix, strlen(prefix));
    snprintf(text, sizeof text, "map: 1\nsource: {strip_prefix: [%s]}\ndefault: cpu\n", quoted);
    write_text("strip.yaml", text);
    agree(path, fixture, &(said){.way = "strip", .strip = prefix, .restore = "strip.yaml", .twin = twin});
}

/* The parameters of the optimizer, as they were found; else the first ones of the model, or names that are made up. */
static names param_names(const picture *p)
{
    names list = {NULL, 0};
    const ckpt__canon *c = p->canon;
    for (size_t g = 0; g < c->group_count; g++)
        for (size_t i = 0; i < c->groups[g].param_count; i++)
            add_name(&list, c->groups[g].params[i].data ? c->groups[g].params[i].data : "?");
    const ckpt_value *optimizer = c->unnamed.data ? ckpt__value_at(p->reader->index->root, c->unnamed) : NULL;
    size_t slots = ckpt__is_torch_optimizer(optimizer) ? ckpt__optimizer_slots(optimizer) : 0;
    for (size_t i = 0; i < c->count && list.count < slots; i++)
        if (c->entries[i].role == CKPT_ROLE_PARAM && c->entries[i].is_tensor && !c->entries[i].outside)
            add_name(&list, c->entries[i].name.data);
    while (list.count < slots) {
        char made[40];
        snprintf(made, sizeof made, "p%zu", list.count);
        add_name(&list, made);
    }
    return list;
}

static void by_order(const picture *p, const char *path, const char *fixture)
{
    names params = param_names(p);
    said s = {.way = "param_names", .param_names = (const char *const *)params.name, .param_name_count = params.count};
    if (params.count)
        agree(path, fixture, &s);
    char *known = strdup(ckpt__order_names()), *rest = NULL;
    ck_assert_ptr_nonnull(known);
    for (char *name = strtok_r(known, ", ", &rest); name && params.count; name = strtok_r(NULL, ", ", &rest))
        agree(path, fixture, &(said){.way = name, .assume_order = name});
    free(known);
    free_names(&params);
}

/* Where a migration without a word gave the optimizer's states no names, a restore does not take them by name either. */
static void check_unnamed(const picture *p, const char *path, const char *fixture)
{
    ckpt_error err = CKPT_ERROR_INIT;
    picture named;
    if (!p->canon->unnamed.data || !(access("named", F_OK) == 0))
        return;
    ckpt_report *report = ckpt_report_new();
    ck_assert(look(&named, "named", fixture, "unnamed", &err) == CKPT_OK);
    ckpt_status status = restore_as(&named, path, &(said){.way = "unnamed"}, report, &err);
    if (status != CKPT_E_MISMATCH)
        differ(fixture, "unnamed", "it is restored by names that the migration does not know");
    refused++;
    forget(&named);
    ckpt_report_free(report);
}

static void agree_in_all_ways(const char *path, const char *fixture)
{
    ckpt_error err = CKPT_ERROR_INIT;
    picture p;
    bool opens = look(&p, path, fixture, "", &err) == CKPT_OK;
    if (opens)
        by_order(&p, path, fixture); /* first: it gives names that the others may not know */
    agree(path, fixture, &(said){.way = "as it is", .from = opens ? &p : NULL});
    if (opens) {
        agree(path, fixture, &(said){.way = "groups", .groups = true});
        by_maps(&p, path, fixture);
        by_names(&p, path, fixture);
        check_unnamed(&p, path, fixture);
    }
    forget(&p);
    unlink("named");
    unlink("twin");
}

static void begin(void)
{
    make_folder();
    ck_assert_int_eq(chdir(folder), 0);
    differences = compared = refused = 0;
}

static void end(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    remove_folder();
    printf("# %zu things compared, %zu refused, %zu differences\n", compared, refused, differences);
    fflush(stdout);
}

/* Of what is no fixture for all builds: formats whose libraries this one has. */
static bool opens(const char *path)
{
    ckpt_reader *reader = NULL;
    bool is = ckpt_reader_open(path, NULL, &reader, NULL) == CKPT_OK;
    ckpt_reader_close(reader);
    return is;
}

START_TEST(fixtures)
{
    char data[1024];
    const char *source = getenv("srcdir"), *other = getenv("AGREE"); /* checkpoints of another folder */
    ck_assert_msg(source != NULL, "srcdir is not set: run it by make check");
    snprintf(data, sizeof data, "%s/tests/data", source);
    begin();
    names all = everything_below(other ? other : data);
    bool few = getenv("CKPT_TEST_FEW") != NULL; /* under valgrind: one in eight */
    for (size_t i = 0; i < all.count; i += few ? 8 : 1) {
        char path[2048];
        snprintf(path, sizeof path, "%s/%s", other ? other : data, all.name[i]);
        if (is_fixture(path, all.name[i]) || opens(path))
            agree_in_all_ways(path, all.name[i]);
    }
    free_names(&all);
    end();
    for (size_t i = 0; !other && !few && i < sizeof meant / sizeof *meant; i++)
        ck_assert_msg(meant[i].used, "%s has no such name: %s", meant[i].fixture, meant[i].names);
    ck_assert_uint_eq(differences, 0);
}
END_TEST

/* Two nets of the same shapes: nothing says whose state is whose, so neither side gives names, unless it is told. */
START_TEST(an_order_that_is_not_known)
{
    ckpt_error err = CKPT_ERROR_INIT;
    begin();
    write_pair("nets.pt", nets, 4, put_four);
    ck_assert_int_eq(migrate_as("nets.pt", &(said){.way = "as it is"}, NULL, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "order-ambiguous"));
    agree_in_all_ways("nets.pt", "nets.pt");
    end();
    ck_assert_uint_gt(refused, 1);
    ck_assert_uint_gt(compared, 30);
    ck_assert_uint_eq(differences, 0);
}
END_TEST

/* What a state of w, its first moment and the step gets from the file, and from what is migrated of it. */
static void restore_both(float moments[2][12], int64_t steps[2])
{
    static const int64_t shape[] = {3, 4};
    ckpt_error err = CKPT_ERROR_INIT;
    agree_in_all_ways("net.pt", "net.pt");
    ck_assert_int_eq(migrate_as("net.pt", &(said){.way = "as it is"}, NULL, &err), CKPT_OK);
    for (size_t i = 0; i < 2; i++) {
        ckpt_state *state = ckpt_state_new();
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        float w[12];
        o.allow_unexpected = true;
        d.dtype = CKPT_F32;
        d.ndim = 2;
        d.shape = shape;
        d.role = CKPT_ROLE_PARAM;
        d.name = "w";
        d.data = w;
        ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
        d.role = CKPT_ROLE_EXP_AVG;
        d.param = "w";
        d.name = NULL;
        d.data = moments[i];
        ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_state_i64(state, "step", &steps[i], &err), CKPT_OK);
        ck_assert_msg(ckpt_restore(state, i ? "target" : "net.pt", &o, NULL, &err) == CKPT_OK, "%s", err.message);
        ckpt_state_free(state);
    }
}

/* A state that has the names without a wrapper's prefix finds them in both; and its step, which is each parameter's own: as a
 * tensor, and as an int, whose name goes without the prefix too. */
START_TEST(a_wrapper)
{
    static void (*const optimizers[])(torch_file * t) = {put_two, put_counted};
    for (size_t i = 0; i < 2; i++) {
        float moments[2][12];
        int64_t steps[2] = {0, 0};
        begin();
        write_pair("net.pt", wrapped, 2, optimizers[i]);
        restore_both(moments, steps);
        end();
        ck_assert_int_eq(memcmp(moments[0], moments[1], sizeof moments[0]), 0);
        ck_assert(moments[0][0] == 100);
        ck_assert_int_eq(steps[0], i == 0 ? 3 : 7);
        ck_assert_int_eq(steps[1], steps[0]);
        ck_assert_uint_gt(compared, 30);
        ck_assert_uint_eq(differences, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agree");
    TCase *tcase = tcase_create("agree");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, fixtures);
    tcase_add_test(tcase, an_order_that_is_not_known);
    tcase_add_test(tcase, a_wrapper);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
