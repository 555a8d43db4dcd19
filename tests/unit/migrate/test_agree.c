/* test_agree.c - what ckpt_restore takes from a fixture is what ckpt_migrate writes of it under the same names. Every fixture is
 * migrated to ckpt. A state that binds all names of the result is then restored from the fixture itself and from the result:
 * both restores must succeed or fail alike and give the same bytes, and what the fixture has beside those names
 * the migration must have reported. A difference that is meant is a line of `meant`. */
#include <ckpt/ckpt.h>
#include <fnmatch.h>
#include <stdarg.h>
#include "../runner.h"
#include "../scratch.h"
#include "anatomy/canon.h"
#include "fixtures.h"
#include "reader/reader.h"

/* ---- what is said to both sides */

typedef struct said {
    const char *way;               /* its name, for messages and for `meant` */
    const char *migrate, *restore; /* maps, as map_location; NULL: none */
    const char *const *param_names;
    size_t param_name_count;
    const char *assume_order;
    const char *strip;  /* of the migration: a prefix that the map of the restore strips */
    const char *rename; /* the same */
    bool groups;        /* the state has groups, with the numbers of each group as its hypers */
} said;

static size_t differences, compared, refused;

/* ---- the differences that are meant: such names are not bound, and need not be in the target */

/* Of a tensor that is not dense a ckpt file has the parts alone, each a dense tensor under a name of its own. Other files have the
 * whole, which a restore refuses. */
#define PARTS "a ckpt file has the parts, the fixture the whole"

static struct {
    const char *fixture, *names; /* globs */
    const char *why;
    bool used;
} meant[] = {
    {"cli/attack.pkl", "value", "the root is an integer and has no name; the root of a ckpt file is a dict", false},
    {"cli/masked.pt", "*._masked_*", PARTS, false},
    {"cli/tensors.pt", "coo*", PARTS, false},
    {"parts/*_rank_?.pt", "weight*", PARTS, false},
    {"torch_write/odd.pt", "sparse*", PARTS, false},
    {"torch_write/odd.pt", "csr*", PARTS, false},
    {"torch_write/odd.pt", "quantized*", PARTS, false},
    {"parts/flat*.pt", "optimizer.param_groups.*", "what flattened groups were stays beside the groups made of it",
     false},
    {"peers/libtorch-optimizer.pt", "param_groups.*",
     "its groups are written as torch.optim has them: the finding 'reordered' says it", false},
    {"peers/libtorch-optimizer.pt", "pytorch_version", "the same", false},
};

static bool is_meant(const char *fixture, const char *name)
{
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        if (fnmatch(meant[i].fixture, fixture, 0) == 0 && fnmatch(meant[i].names, name, 0) == 0)
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

/* ---- a state of all that a checkpoint has names for */

/* One thing that is bound: a tensor's elements, or the variable of a value. Both are told from what was there before. */
typedef struct thing {
    const ckpt__canon_entry *entry;
    char *name;
    unsigned char *data; /* heap */
    size_t size;         /* bytes */
} thing;

typedef struct picture {
    ckpt_reader *reader;
    ckpt__canon *canon;
    ckpt_state *state;
    thing *things;
    size_t count;
    const char **loose; /* names that a state cannot bind here: None, integers of over 64 bits, quantized tensors */
    size_t loose_count;
} picture;

enum { BEFORE = 0x5a };

static bool is_text(ckpt_str s)
{
    return s.size > 0 && strlen(s.data) == s.size;
}

static bool is_bound_tensor(const ckpt__tensor *t)
{
    return ckpt_dtype_size(t->info.dtype) > 0 && !t->info.extra->layout.data && !t->info.extra->quantizer.data &&
           (t->whole || t->info.nbytes == 0 || ckpt__has_no_bytes(t) == false);
}

static size_t size_of(const ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_BOOL:
        return sizeof(bool);
    case CKPT_V_INT:
        return sizeof(int64_t);
    case CKPT_V_FLOAT:
        return sizeof(double);
    case CKPT_V_STR:
        return v->text.size + 1;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return v->text.size;
    default:
        return SIZE_MAX;
    }
}

static ckpt_status bind_value(ckpt_state *state, const char *name, const ckpt_value *v, void *data, size_t size,
                              ckpt_error *err)
{
    switch (v->kind) {
    case CKPT_V_BOOL:
        return ckpt_state_bool(state, name, data, err);
    case CKPT_V_INT:
        return ckpt_state_i64(state, name, data, err);
    case CKPT_V_FLOAT:
        return ckpt_state_f64(state, name, data, err);
    case CKPT_V_STR:
        return ckpt_state_string(state, name, data, size, err);
    default:
        return ckpt_state_bytes(state, name, data, size, err);
    }
}

static ckpt_status bind_tensor(ckpt_state *state, const char *name, const ckpt__canon_entry *e,
                               const ckpt_tensor_info *info, void *data, ckpt_error *err)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.dtype = info->dtype;
    d.ndim = info->ndim;
    d.shape = info->shape;
    d.role = e->outside ? CKPT_ROLE_OTHER : e->role;
    d.param = e->param.data;
    d.state_key = e->state_key.data;
    d.data = data;
    return ckpt_state_tensor(state, &d, err);
}

/* A state binds it under this name; false: a state cannot. */
static bool bind(picture *p, const ckpt__canon_entry *e, const char *name)
{
    const ckpt_tensor_info *info = e->is_tensor ? &p->reader->index->tensors[e->tensor].info : NULL;
    size_t size = info ? (size_t)info->nbytes : size_of(e->value);
    if (size == SIZE_MAX || !is_text(e->name) || (info && !is_bound_tensor(&p->reader->index->tensors[e->tensor])))
        return false;
    thing t = {e, strdup(name), malloc(size + 1), size};
    ck_assert(t.name && t.data);
    memset(t.data, BEFORE, size);
    if (e->value && e->value->kind == CKPT_V_BOOL)
        *(bool *)(void *)t.data = false;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = info ? bind_tensor(p->state, t.name, e, info, t.data, &err)
                              : bind_value(p->state, t.name, e->value, t.data, size, &err);
    if (status != CKPT_OK) {
        if (getenv("AGREE_SAY"))
            printf("# not bound: %s: %s\n", name, err.message);
        free(t.name);
        free(t.data);
        return false;
    }
    p->things[p->count++] = t;
    return true;
}

static void bind_all(picture *p, const char *fixture)
{
    for (size_t i = 0; i < p->canon->count; i++) {
        const ckpt__canon_entry *e = &p->canon->entries[i];
        if (is_meant(fixture, e->name.data) || !bind(p, e, e->name.data))
            p->loose[p->loose_count++] = e->name.data;
    }
}

static void forget(picture *p)
{
    ckpt_state_free(p->state);
    for (size_t i = 0; i < p->count; i++) {
        free(p->things[i].name);
        free(p->things[i].data);
    }
    free(p->things);
    free(p->loose);
    ckpt__canon_free(p->canon);
    ckpt_reader_close(p->reader);
    *p = (picture){NULL};
}

static void look(picture *p, const char *path, const char *fixture)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__canon_hints hints = {.optional_optimizer = true};
    *p = (picture){NULL};
    ck_assert_msg(ckpt_reader_open(path, NULL, &p->reader, &err) == CKPT_OK, "%s", err.message);
    ck_assert_msg(ckpt__canon_build(p->reader->index, &hints, &p->canon, NULL, &err) == CKPT_OK, "%s", err.message);
    p->state = ckpt_state_new();
    p->things = calloc(p->canon->count + 1, sizeof *p->things);
    p->loose = calloc(p->canon->count + 1, sizeof *p->loose);
    ck_assert(p->state && p->things && p->loose);
    bind_all(p, fixture);
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

static void clear(picture *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->things[i].entry->is_tensor || p->things[i].entry->value->kind != CKPT_V_BOOL)
            memset(p->things[i].data, BEFORE, p->things[i].size);
}

/* The bytes that the variable of a value has when it was restored. */
static void want_value(const ckpt_value *v, unsigned char *want, size_t size)
{
    memset(want, BEFORE, size);
    if (v->kind == CKPT_V_BOOL)
        memcpy(want, &v->boolean, size);
    else if (v->kind == CKPT_V_INT)
        memcpy(want, &v->integer, size);
    else if (v->kind == CKPT_V_FLOAT)
        memcpy(want, &v->real, size);
    else
        memcpy(want, v->text.data ? v->text.data : "", size);
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
            is_told(migrated, f->tensor) || is_meant(fixture, f->tensor))
            continue;
        differ(fixture, s->way, "'%s' is in the fixture, and the migration did not write it and did not say so",
               f->tensor);
    }
}

static void agree(const char *path, const char *fixture, const said *s)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *migrated = ckpt_report_new(), *restored = ckpt_report_new();
    ckpt_status status = migrate_as(path, s, migrated, &err);
    picture p;
    if (status != CKPT_OK) {
        if (getenv("AGREE_SAY"))
            printf("# %s, %s: refused: %s: %s\n", fixture, s->way, ckpt_status_name(status), err.message);
        refused++;
    } else {
        look(&p, "target", fixture);
        err = (ckpt_error)CKPT_ERROR_INIT;
        status = restore_as(&p, path, s, restored, &err);
        if (status != CKPT_OK) {
            differ(fixture, s->way, "migrated, and not restored: %s: %s", ckpt_status_name(status), err.message);
        } else {
            compare(&p, fixture, s->way);
            check_rest(&p, fixture, s, migrated, restored);
            clear(&p);
            err = (ckpt_error)CKPT_ERROR_INIT;
            status = restore_as(&p, "target", &(said){.way = s->way}, restored, &err);
            if (status != CKPT_OK)
                differ(fixture, s->way, "the target is not restored: %s", err.message);
            else
                compare(&p, fixture, s->way);
        }
        forget(&p);
    }
    ckpt_report_free(migrated);
    ckpt_report_free(restored);
    ck_assert_int_eq(system("rm -rf target"), 0);
}

START_TEST(fixtures)
{
    char data[1024];
    const char *source = getenv("srcdir"), *other = getenv("AGREE");
    ck_assert_msg(source != NULL, "srcdir is not set: run it by make check");
    snprintf(data, sizeof data, "%s/tests/data", source);
    make_scratch();
    names all = everything_below(other ? other : data);
    for (size_t i = 0; i < all.count; i++) {
        char path[2048];
        snprintf(path, sizeof path, "%s/%s", other ? other : data, all.name[i]);
        if (!is_fixture(path, all.name[i]))
            continue;
        agree(path, all.name[i], &(said){.way = "as it is"});
    }
    free_names(&all);
    remove_scratch();
    printf("# %zu things compared, %zu refused, %zu differences\n", compared, refused, differences);
    ck_assert_uint_eq(differences, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agree");
    TCase *tcase = tcase_create("agree");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, fixtures);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
