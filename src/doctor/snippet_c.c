/* doctor/snippet_c.c - a resume in C, by ckpt_restore from one checkpoint or by the resume hook from a run
 * directory (ckpt/run.h): what fills the templates of src/doctor/snippets. */
#include "doctor/text.h"

#include <ctype.h>
#include "doctor/template.h"
#include "format/table.h"

enum { BINDINGS = 12 }; /* names of a state that are listed */

/* A key path as YAML takes it: bare where it can be. */
static void put_yaml(ckpt__buf *b, const char *text)
{
    bool plain = *text != '-';
    for (const char *c = text; *c && plain; c++)
        plain = isalnum((unsigned char)*c) || strchr("_.-", *c);
    ckpt__buf_str(b, plain ? text : "\"");
    for (; *text && !plain; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            ckpt__buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            ckpt__buf_printf(b, "\\x%02x", c);
        else
            ckpt__buf_char(b, *text);
    }
    ckpt__buf_str(b, plain ? "" : "\"");
}

/* The map's line that says where the model, the optimizer and the scaler are; data NULL: nothing to say. */
static ckpt__buf source_of(const ckpt__examination *p)
{
    const struct {
        const char *key;
        ckpt_str path;
    } rows[] = {{"model", p->canon ? p->canon->model_path : (ckpt_str){NULL, 0}},
                {"optimizer", p->canon ? p->canon->optimizer_path : (ckpt_str){NULL, 0}},
                {"scaler", p->canon ? p->canon->scaler_path : (ckpt_str){NULL, 0}}};
    ckpt__buf source = {NULL, 0, 0, false};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].path.data && rows[i].path.size) {
            ckpt__buf_printf(&source, "%s%s: ", source.size ? ", " : "source: {", rows[i].key);
            put_yaml(&source, rows[i].path.data);
        }
    if (source.size)
        ckpt__buf_str(&source, "}\n");
    return source;
}

static const char *kind_of(const ckpt__examination *p)
{
    static const char *const kinds[] = {"CKPT_OPTIMIZER_DEFAULT", "CKPT_OPTIMIZER_FUSED", "CKPT_OPTIMIZER_CAPTURABLE",
                                        "CKPT_OPTIMIZER_FOREACH", "CKPT_OPTIMIZER_PLAIN"};
    return kinds[p->result->optimizer];
}

/* The run directory of a step directory: RUN/step-N, or RUN/rank-R/step-N. Gives how much of the path that is. */
static size_t run_of(const char *path)
{
    static const char rank[] = "rank-";
    size_t end = strlen(path);
    for (int level = 0; level < 2; level++) {
        size_t n = end;
        while (n > 1 && path[n - 1] == '/')
            n--;
        size_t begin = n;
        while (begin > 0 && path[begin - 1] != '/')
            begin--;
        if (level == 1 && (n - begin < sizeof rank || memcmp(path + begin, rank, sizeof rank - 1) != 0))
            break;
        end = begin;
    }
    while (end > 1 && path[end - 1] == '/')
        end--;
    return end;
}

/* ---- the templates */

/* A checkpoint as the C templates see it. */
typedef struct c_source {
    const ckpt__examination *p;
    ckpt__buf source;                            /* owned: source_of() */
    const ckpt__canon_entry *bindings[BINDINGS]; /* names that a state binds, of the canon */
    size_t binding_count;
} c_source;

static void find_bindings(c_source *c)
{
    const ckpt__canon *canon = c->p->canon;
    for (size_t i = 0; canon && i < canon->count && c->binding_count < BINDINGS; i++)
        if (!canon->entries[i].outside && canon->entries[i].is_tensor)
            c->bindings[c->binding_count++] = &canon->entries[i];
}

/* The name as the text of a comment. */
static void put_binding(ckpt__buf *b, ckpt_str text)
{
    char name[300];
    ckpt__escape(name, sizeof name, text.data, text.size);
    for (char *c = name; *c; c++)
        *c = *c == '*' || *c == '/' ? '?' : *c;
    ckpt__buf_str(b, name);
}

static void put_run(ckpt__buf *b, const char *path)
{
    ckpt__buf run = {NULL, 0, 0, false};
    size_t n = run_of(path);
    ckpt__buf_printf(&run, "%.*s", n ? (int)n : 1, n ? path : ".");
    if (run.data)
        ckpt__put_c(b, run.data);
    b->failed = b->failed || run.failed;
    ckpt__buf_free(&run);
}

static void put_hole(ckpt__buf *b, const void *context, int hole, size_t round)
{
    const c_source *c = context;
    const ckpt__examination *p = c->p;
    switch ((ckpt__c_hole)hole) {
    case CKPT__C_PATH:
        ckpt__put_c(b, p->reader->path);
        return;
    case CKPT__C_RUN:
        put_run(b, p->reader->path);
        return;
    case CKPT__C_SOURCE:
        ckpt__put_c(b, c->source.data);
        return;
    case CKPT__C_DEVICE:
        ckpt__buf_str(b, p->gpu.type != CKPT_DEVICE_NONE ? "cuda:0" : "cpu");
        return;
    case CKPT__C_OPTIMIZER:
        ckpt__buf_str(b, kind_of(p));
        return;
    case CKPT__C_ORDER:
        ckpt__buf_str(b, p->options->assume_order);
        return;
    case CKPT__C_PARAM_NAME:
        ckpt__put_c(b, p->options->param_names[round]);
        return;
    case CKPT__C_BINDING:
        put_binding(b, c->bindings[round]->name);
        return;
    case CKPT__C_DTYPE:
        ckpt__buf_str(b, ckpt_dtype_name(p->index->tensors[c->bindings[round]->tensor].info.dtype));
        return;
    }
}

void ckpt__put_snippet_c(ckpt__buf *b, const ckpt__examination *p, bool run)
{
    c_source c = {.p = p, .source = source_of(p)};
    size_t names = p->options->param_name_count;
    bool foreign = !ckpt__format_of(p->index)->canonical;
    find_bindings(&c);
    const size_t counts[CKPT__C_EACH_COUNT] = {
        [CKPT__C_EACH_BINDING] = c.binding_count, [CKPT__C_EACH_PARAM_NAME] = names};
    const bool holds[CKPT__C_IF_COUNT] = {
        [CKPT__C_IF_SOURCE] = c.source.size > 0,
        [CKPT__C_IF_ORDER_UNKNOWN] =
            names == 0 && foreign && p->optimizer_count > 0 && p->group_count > 0 && !ckpt__doctor_named(p),
        [CKPT__C_IF_PARAM_NAMES] = names > 0,
        [CKPT__C_IF_ASSUME_ORDER] = p->options->assume_order != NULL,
        [CKPT__C_IF_FOREIGN] = foreign,
        [CKPT__C_IF_MORE_BINDINGS] = c.binding_count == BINDINGS,
    };
    ckpt__snippet_expand(b, run ? ckpt__snippet_run_c : ckpt__snippet_restore_c,
                         &(ckpt__snippet){holds, counts, put_hole, &c});
    b->failed = b->failed || c.source.failed;
    ckpt__buf_free(&c.source);
}
