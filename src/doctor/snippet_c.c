/* doctor/snippet_c.c - a resume in C, by ckpt_restore from one checkpoint or by the resume hook from a run
 * directory (ckpt/run.h). */
#include "doctor/text.h"

#include <ctype.h>

static void put(ckpt__buf *b, const char *text)
{
    ckpt__buf_str(b, text);
}

static const char *target_of(const ckpt__patient *p)
{
    return p->gpu.type != CKPT_DEVICE_NONE ? "cuda:0" : "cpu";
}

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

static void put_source(ckpt__buf *b, const ckpt__patient *p)
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
    put(b, "    static const char rules[] = \"map: 1\\n\"");
    if (source.size) {
        ckpt__buf_str(&source, "}\n");
        put(b, "\n                                ");
        ckpt__put_c(b, source.data ? source.data : "");
        put(b, "\n                               ");
    }
    ckpt__buf_printf(b, " \"default: %s\\n\";\n", target_of(p));
    b->failed = b->failed || source.failed;
    ckpt__buf_free(&source);
}

/* The order of the optimizer's parameters, where the program said it, or must. */
static void put_order(ckpt__buf *b, const ckpt__patient *p)
{
    if (!p->options->param_name_count && strcmp(p->index->format, "ckpt") != 0 && p->optimizer_count > 0 && p->group_count > 0 &&
        !ckpt__doctor_named(p))
        put(b, "    /* The file does not tell the order of the optimizer's parameters: name them here, group by group, or give\n"
               "     * --param-names FILE for this snippet. */\n");
    if (!p->options->param_name_count)
        return;
    put(b, "    static const char *const param_names[] = {\n");
    for (size_t i = 0; i < p->options->param_name_count; i++) {
        put(b, "        ");
        ckpt__put_c(b, p->options->param_names[i]);
        put(b, ",\n");
    }
    put(b, "    };\n");
}

static void put_bindings(ckpt__buf *b, const ckpt__patient *p)
{
    char name[300];
    size_t shown = 0;
    put(b, " * Bind before, by these names (ckpt/state.h):\n");
    for (size_t i = 0; p->canon && i < p->canon->count && shown < 12; i++) {
        const ckpt__canon_entry *e = &p->canon->entries[i];
        if (e->outside || !e->is_tensor)
            continue;
        const ckpt_tensor_info *t = &p->index->tensors[e->tensor].info;
        ckpt__escape(name, sizeof name, e->name.data, e->name.size);
        for (char *c = name; *c; c++)
            *c = *c == '*' || *c == '/' ? '?' : *c; /* it stands in a comment */
        ckpt__buf_printf(b, " *     %s  %s\n", name, ckpt_dtype_name(t->dtype));
        shown++;
    }
    put(b, shown == 12 ? " *     ... (ckpt-inspect list --json has all)\n" : "");
    put(b, " * and the groups' numbers with ckpt_state_group, the scaler with ckpt_state_scaler. */\n");
}

static const char *kind_of(const ckpt__patient *p)
{
    static const char *const kinds[] = {"CKPT_OPTIMIZER_DEFAULT", "CKPT_OPTIMIZER_FUSED", "CKPT_OPTIMIZER_CAPTURABLE", "CKPT_OPTIMIZER_FOREACH",
                                        "CKPT_OPTIMIZER_PLAIN"};
    return kinds[p->result->optimizer];
}

static void put_one(ckpt__buf *b, const ckpt__patient *p)
{
    const char *kind = kind_of(p);
    put(b, "#include <ckpt/ckpt.h>\n#include <stdio.h>\n\n"
           "/* Fills the state; 0, or 1 after saying what is wrong. step goes where the optimizer reads it, states of "
           "random\n"
           " * generators stay on the cpu, and the guard asks the driver where everything lies.\n");
    put_bindings(b, p);
    put(b, "static int resume(ckpt_state *state)\n{\n");
    put_source(b, p);
    put_order(b, p);
    put(b, "    static const char path[] = ");
    ckpt__put_c(b, p->reader->path);
    put(b, ";\n"
           "    ckpt_error err = CKPT_ERROR_INIT;\n"
           "    ckpt_map *map = NULL;\n"
           "    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;\n"
           "    ckpt_status status = ckpt_map_parse_yaml(rules, sizeof rules - 1, \"resume\", &map, &err);\n"
           "    options.map = map;\n");
    ckpt__buf_printf(b, "    options.optimizer = %s;\n", kind);
    if (p->options->param_name_count)
        put(b, "    options.param_names = param_names;\n"
               "    options.param_name_count = sizeof param_names / sizeof *param_names;\n");
    if (p->options->assume_order)
        ckpt__buf_printf(b, "    options.assume_order = \"%s\";\n", p->options->assume_order);
    if (strcmp(p->index->format, "ckpt") != 0)
        put(b, "    options.allow_unexpected = true;    /* another program's file holds more than this state */\n");
    put(b, "    if (status >= 0)\n"
           "        status = ckpt_restore(state, path, &options, NULL, &err);\n"
           "    if (status >= 0)\n");
    ckpt__buf_printf(b, "        status = ckpt_guard(state, %s, NULL, NULL, &err);\n", kind);
    put(b, "    ckpt_map_free(map);\n"
           "    if (status >= 0)\n"
           "        return 0;\n"
           "    fprintf(stderr, \"%s: %s\\n\", err.object, err.message);\n"
           "    return 1;\n}\n");
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

static void put_run(ckpt__buf *b, const ckpt__patient *p)
{
    const char *kind = kind_of(p);
    ckpt__buf path = {NULL, 0, 0, false};
    size_t n = run_of(p->reader->path);
    ckpt__buf_printf(&path, "%.*s", n ? (int)n : 1, n ? p->reader->path : ".");
    put(b, "#include <ckpt/ckpt.h>\n#include <stdio.h>\n\n"
           "/* Opens the run and fills the state from its newest checkpoint that is whole; *done is then its completed\n"
           " * steps. 0, or 1 after saying what is wrong. Then, after each step, ckpt_run_step(*run, ++*done, &err), and\n"
           " * ckpt_run_close(*run, &err) at the end. When to save, what to keep, signals");
    put(b, " and ranks are the caller's options.\n");
    put_bindings(b, p);
    put(b, "static int resume(ckpt_state *state, ckpt_run_options *options, ckpt_run **run, int64_t *done)\n{\n"
           "    static const char path[] = ");
    if (path.data)
        ckpt__put_c(b, path.data);
    b->failed = b->failed || path.failed;
    ckpt__buf_free(&path);
    ckpt__buf_printf(b, ", map_location[] = \"%s\";\n", target_of(p));
    put(b, "    ckpt_error err = CKPT_ERROR_INIT;\n"
           "    ckpt_restore_options restore = CKPT_RESTORE_OPTIONS_INIT;\n");
    ckpt__buf_printf(b, "    restore.optimizer = %s;\n", kind);
    put(b, "    options->restore = &restore;        /* borrowed until the resume is done */\n"
           "    ckpt_status status = ckpt_run_open(run, path, state, options, &err);\n"
           "    if (status >= 0)\n"
           "        status = ckpt_run_resume(*run, map_location, done, NULL, &err);\n"
           "    if (status >= 0)\n");
    ckpt__buf_printf(b, "        status = ckpt_guard(state, %s, NULL, NULL, &err);\n", kind);
    put(b, "    options->restore = NULL;\n"
           "    if (status >= 0)\n"
           "        return 0;\n"
           "    fprintf(stderr, \"%s: %s\\n\", err.object, err.message);\n"
           "    return 1;\n}\n");
}

void ckpt__put_snippet_c(ckpt__buf *b, const ckpt__patient *p, bool run)
{
    if (run)
        put_run(b, p);
    else
        put_one(b, p);
}
