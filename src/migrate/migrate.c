/* migrate/migrate.c - a checkpoint in another format, with other device tags, names or dtypes: the order of work. */
#include "migrate/migration.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "anatomy/part.h"
#include "base/first_sizes.h"
#include "migrate/out.h"
#include "migrate/rules.h"
#include "migrate/torch.h"
#include "migrate/to_canonical.h"
#include "format/table.h"

ckpt_status ckpt__migration_no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "the target", 0);
}

char *ckpt__migration_escaped(ckpt_str name)
{
    size_t size = 4 * name.size + 1; /* a byte is four characters at most */
    char *text = malloc(size);
    return text ? ckpt__escape(text, size, name.data ? name.data : "", name.size) : NULL;
}

ckpt_status ckpt__migration_note(ckpt__migration *m, ckpt_severity severity, const char *code, ckpt_str name,
                                 ckpt_error *err, const char *format, ...)
{
    char message[900];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    bool added =
        ckpt__report_add(m->report, severity, code, NULL, NULL, "%s", message) && ckpt__report_tensor(m->report, name);
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

void ckpt__migration_note_row(ckpt__migration *m, size_t tensor)
{
    m->ledger.rows[tensor].finding = (uint32_t)ckpt_report_count(m->report);
}

ckpt_status ckpt__migrate_refuse(const ckpt__migration *m, ckpt_error *err)
{
    return ckpt__report_fail(m->report, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, m->src, err);
}

/* ---- the value tree of the target */

static int64_t step_of(const ckpt__canon *canon)
{
    size_t i;
    if (!ckpt__hash_get(canon->by_name, "step", 4, &i))
        return -1;
    const ckpt_value *v = canon->entries[i].value;
    return v && v->kind == CKPT_V_INT && v->integer >= 0 ? v->integer : -1;
}

/* The model's own dict, with its order and its _metadata, where it is one. */
static ckpt_status weights_dict(ckpt__migration *m, const ckpt_value **out, ckpt_error *err)
{
    const ckpt_value *model = m->canon->model_path.data ? ckpt__value_at(m->from->root, m->canon->model_path) : NULL;
    if (ckpt__canon_is_model(m->from, model) && !ckpt__find_entry(model, "__metadata__")) {
        *out = model;
        return CKPT_OK;
    }
    return ckpt__migrate_flat(m, out, err);
}

static ckpt_status torch_root(ckpt__migration *m, ckpt_error *err)
{
    if (m->options.weights_only)
        return weights_dict(m, &m->root, err);
    if (m->remade) {
        const ckpt_value *root;
        ckpt_status status =
            ckpt__migrate_tree(m->from, m->canon, m->edits, true, m->index->arena, m->lost, &root, err);
        if (status < 0)
            return status;
        m->from->root = root;
        return ckpt__migrate_torch_build(m, &m->root, err);
    }
    if (ckpt__format_of(m->from)->canonical)
        return ckpt__migrate_torch_build(m, &m->root, err);
    if (!m->tree)
        return ckpt__migrate_flat(m, &m->root, err);
    if (ckpt__migrate_in_files(m) && !m->same)
        return ckpt__migrate_merge(m, &m->root, err);
    m->root = m->from->root;
    return CKPT_OK;
}

/* Of a plain file: its __metadata__; of several, the first one's. */
static const ckpt_value *plain_metadata(const ckpt__migration *m)
{
    const ckpt_value *root = m->from->root;
    if (!m->reader->source->directory || !root || root->kind != CKPT_V_DICT || ckpt__format_of(m->from)->canonical)
        return root;
    for (size_t i = 0; i < root->entry_count; i++) {
        const ckpt_entry *meta = ckpt__find_entry(root->entries[i].value, "__metadata__");
        ckpt_value *only = meta ? ckpt__value_dict(m->index->arena, meta, 1) : NULL;
        if (only)
            return only;
    }
    return NULL;
}

static ckpt_status canonical_root(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    m->root = m->from->root;
    if (m->options.weights_only || m->hf) {
        m->root = m->tree || ckpt__format_of(m->from)->canonical ? NULL : plain_metadata(m);
        m->index->step = -1;
        return CKPT_OK;
    }
    if (m->tree)
        status = ckpt__migrate_tree(m->from, m->canon, m->edits, m->format->canonical, m->index->arena, m->lost,
                                    &m->root, err);
    else
        m->root = plain_metadata(m);
    if (status == CKPT_OK && m->root && m->kind != CKPT_OPTIMIZER_DEFAULT)
        status = ckpt__migrate_flags(m, err);
    if (m->index->step < 0)
        m->index->step = step_of(m->canon);
    return status;
}

typedef struct left_out {
    const ckpt__migration *m;
    const bool *kept; /* per tensor */
    size_t inside;    /* of those that were asked to go: what an opaque object still looks at */
} left_out;

/* References to tensors that the target does not hold become None. */
static int forget_tensor(void *ctx, const ckpt_visit *visit, const ckpt__spot *place, const ckpt_value **to)
{
    static const ckpt_value none = {.kind = CKPT_V_NONE};
    left_out *f = ctx;
    const ckpt_value *v = visit->value;
    (void)place;
    if (v->kind != CKPT_V_TENSOR || f->kept[v->tensor])
        return 0;
    f->inside += visit->inside && ckpt__stays_behind(f->m, v->tensor);
    *to = &none;
    return 0;
}

static ckpt_status forget_left_out(ckpt__migration *m, ckpt_error *err)
{
    if (m->format != &ckpt__format_native || !m->from->root)
        return CKPT_OK; /* the others have no references */
    bool *kept = calloc(m->from->tensor_count + 1, sizeof *kept);
    if (!kept)
        return ckpt__migration_no_memory(err);
    for (size_t k = 0; k < m->chosen_count; k++)
        kept[m->chosen[k]] = true;
    left_out f = {m, kept, 0};
    ckpt_status status = ckpt__migration_rewrite(m, forget_tensor, &f, err);
    free(kept);
    if (status == CKPT_OK && f.inside && m->tree && !m->options.weights_only &&
        !ckpt__report_add(
            m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL,
            "tensors that were dropped by name and that opaque objects hold too (%zu), as arguments of their "
            "calls, become None there",
            f.inside))
        status = ckpt__migration_no_memory(err);
    return status;
}

/* The canonical tree, and a torch file's own structure beside it: that of the tree as it was edited. */
static ckpt_status native_root(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *kept = NULL;
    m->root = m->from->root;
    ckpt_status status = m->root ? ckpt__migrate_device_objects(m, err) : CKPT_OK;
    if (status == CKPT_OK)
        status = ckpt__migrate_torch_keep(m, &kept, err);
    if (status == CKPT_OK)
        status = forget_left_out(m, err);
    if (status == CKPT_OK)
        status = canonical_root(m, err);
    return status == CKPT_OK ? ckpt__migrate_torch_attach(m, kept, err) : status;
}

/* JSON of a directory that is damaged was left out when it was read. A copy of the directory has it as it is; a salvage and
 * --weights-only say what they leave out themselves. */
static ckpt_status lose_unread(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_report *said = m->from->findings;
    for (size_t i = 0; !m->same && !m->options.salvage && !m->options.weights_only && i < ckpt_report_count(said);
         i++) {
        const ckpt_finding *f = ckpt_report_get(said, i);
        if (strcmp(f->code, "member-damaged") != 0 || (m->hf && ckpt__is_carried(m->from, f->file)))
            continue;
        const char *why = strstr(f->message, ": ");
        if (!ckpt__report_add(m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "all of %s, which cannot be read%s",
                              f->file, why ? why : ""))
            return ckpt__migration_no_memory(err);
    }
    return CKPT_OK;
}

static ckpt_status build_root(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = ckpt__migrate_say_settings(m, err);
    if (status == CKPT_OK)
        status = lose_unread(m, err);
    if (status < 0 || m->format->canonical)
        return status < 0 ? status : native_root(m, err);
    status = forget_left_out(m, err);
    if (status == CKPT_OK)
        status = m->torch ? torch_root(m, err) : canonical_root(m, err);
    if (status == CKPT_OK && m->torch && m->kind != CKPT_OPTIMIZER_DEFAULT)
        status = ckpt__migrate_torch_flags(m, err);
    if (status == CKPT_OK && m->torch && !m->remade)
        status = ckpt__migrate_order(m, err);
    return status == CKPT_OK ? ckpt__migrate_device_objects(m, err) : status;
}

/* ---- before the first byte */

static ckpt_status check_place(const ckpt__migration *m, const char *src, ckpt_error *err)
{
    struct stat a, b;
    memset(&a, 0, sizeof a);
    bool there = stat(m->dst, &b) == 0;
    if (stat(src, &a) == 0 && there && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                          "source and destination are the same: a checkpoint is never rewritten in place");
    size_t n = strlen(m->dst);
    while (n > 1 && m->dst[n - 1] == '/')
        n--;
    errno = 0;
    char *inside = realpath(src, NULL), *parent = NULL, *folder = strndup(m->dst, n);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    bool within = false;
    if (slash)
        slash[slash == folder] = 0;
    if (inside && folder && S_ISDIR(a.st_mode) && (parent = realpath(slash ? folder : ".", NULL))) {
        size_t k = strlen(inside);
        within = strncmp(parent, inside, k) == 0 && (parent[k] == 0 || parent[k] == '/');
    }
    char *target = there ? realpath(m->dst, NULL) : NULL;
    bool short_of_memory = errno == ENOMEM;
    size_t k = target ? strlen(target) : 0;
    bool around = (m->hf || m->same) && inside && target && strncmp(inside, target, k) == 0 && inside[k] == '/';
    free(inside);
    free(parent);
    free(folder);
    free(target);
    if (short_of_memory)
        return ckpt__migration_no_memory(err);
    if (around)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "the source %s lies in it, and would be replaced with it", src);
    return within ? ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                               "it would lie inside the source %s, which is never touched", src)
                  : CKPT_OK;
}

static ckpt_status check_paths(ckpt__migration *m, ckpt_error *err)
{
    struct stat b;
    bool there = stat(m->dst, &b) == 0;
    ckpt_status status = check_place(m, m->src, err);
    for (size_t i = 0; status == CKPT_OK && i < m->options.also_count; i++)
        status = check_place(m, m->options.also[i], err);
    if (status < 0)
        return status;
    bool folder = m->hf || m->same;
    if (there && !folder && S_ISDIR(b.st_mode))
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "it is a directory: one file is written, give it a name");
    if (there && folder && !S_ISDIR(b.st_mode))
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "it is a file: a directory is written, give it a name");
    if (there && !m->options.force && !m->options.dry_run)
        return ckpt__fail(err, CKPT_E_EXISTS, m->dst, "it exists; --force replaces it");
    return there && m->options.force ? ckpt__check_replaced(m, err) : CKPT_OK;
}

/* A folder that the root names was read as a distributed checkpoint: it is no file of the checkpoint that could be written again. */
static ckpt_status see_member(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    const ckpt__migration *m = ctx;
    char shown[200];
    (void)root;
    if (!folder || !m->from->root || !ckpt__find_entry(m->from->root, name))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, m->src,
                      "its folder '%s' is a distributed checkpoint of PyTorch (FSDP), which --to same does not write; "
                      "say --to ckpt, torch, safetensors or hf",
                      ckpt__escape(shown, sizeof shown, name, strlen(name)));
}

/* --to same: what the source is. */
static ckpt_status find_own(ckpt__migration *m, ckpt_error *err)
{
    const ckpt__format *format = ckpt__format_of(m->from);
    if (m->options.weights_only)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst,
                          "--weights-only leaves no such checkpoint: say --to torch, safetensors or hf");
    if (!m->reader->source->directory) {
        m->to = format->rewritten_as ? format->rewritten_as->name : format->name;
        return CKPT_OK;
    }
    m->same = format->family == CKPT__FAMILY_FOLDER;
    if (m->same && ckpt__index_is_directory(m->from) && m->reader->source->dirfd >= 0) {
        m->to = ckpt__format_torch.name;
        return ckpt__source_each(m->reader->source, "", see_member, m, err);
    }
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, m->src,
        "--to same writes one file, or a directory of accelerate, the Hugging Face Trainer, PEFT or transformers; "
        "this is of format %s: say --to ckpt, torch, safetensors or hf",
        format->name);
}

static ckpt_status find_format(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    m->to = m->options.to ? m->options.to : "ckpt";
    if (strcmp(m->to, "same") == 0 && (status = find_own(m, err)) < 0)
        return status;
    m->hf = strcmp(m->to, "hf") == 0;
    m->format = ckpt__format_find(m->hf ? "safetensors" : m->to);
    m->torch = m->format && m->format->family == CKPT__FAMILY_TORCH;
    if (m->format && m->format->write)
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, m->dst,
        m->format ? "format '%s' is read, but this version does not write it; it writes ckpt, safetensors, torch and hf"
                  : "there is no format '%s'; this version writes ckpt, safetensors, torch, hf and same",
        m->to);
}

static ckpt_status open_source(ckpt__migration *m, ckpt_error *err)
{
    ckpt_reader_options reading = {.struct_size = sizeof reading,
                                   .format = m->options.from,
                                   .also = m->options.also,
                                   .also_count = m->options.also_count,
                                   .salvage = m->options.salvage};
    ckpt_status status = ckpt_reader_open(m->src, &reading, &m->reader, err);
    if (status < 0)
        return status;
    m->from = m->reader->index;
    if (!m->options.to || strcmp(m->options.to, "same") != 0) /* which leaves a shard what it is */
        status = ckpt__part_refuse(m->from, m->src, err);
    if (status < 0)
        return status;
    ckpt__hash_free(m->reader->by_name); /* nobody looks for a name in it */
    m->reader->by_name = NULL;
    /* What reading has left out of the values, no target can have. */
    bool added = ckpt__ledger_reach(&m->ledger, m->from->tensor_count) && ckpt__migration_begin_edits(m);
    for (size_t i = 0; added && i < ckpt_report_count(m->from->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(m->from->findings, i);
        if (strcmp(f->code, "calls-dropped") == 0)
            added = ckpt__report_add(m->report, f->severity, f->code, f->tensor, f->fix, "%s", f->message) &&
                    ckpt__report_detail(m->report, f->file, NULL, NULL, 0);
    }
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

static ckpt_status prepare(ckpt__migration *m, ckpt_error *err)
{
    bool same = m->options.to && strcmp(m->options.to, "same") == 0;
    ckpt_status status = ckpt__migrate_fixes(m, err);
    if (status == CKPT_OK && same)
        status = open_source(m, err); /* it says what is written */
    if (status == CKPT_OK)
        status = find_format(m, err);
    if (status == CKPT_OK)
        status = check_paths(m, err);
    if (status == CKPT_OK && m->options.map_location)
        status = ckpt_map_parse(m->options.map_location, &m->map, err);
    if (status == CKPT_OK && !same)
        status = open_source(m, err);
    if (status < 0)
        return status;
    m->kind = m->options.optimizer != CKPT_OPTIMIZER_DEFAULT ? m->options.optimizer
              : m->map                                       ? ckpt__map_optimizer(m->map)
                                                             : CKPT_OPTIMIZER_DEFAULT;
    status = ckpt__migrate_torch_open(m, err);
    m->tree = ckpt__has_tree(m->from) || m->same;
    if (status == CKPT_OK)
        status = ckpt__migrate_recover(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_plain(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_find_names(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_select(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_check_order(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_weights(m, err);
    if (status == CKPT_OK && m->tree)
        status = ckpt__migrate_second_names(m, err); /* while the tree has the names of the listings */
    if (status == CKPT_OK && m->tree && m->options.cast_count)
        status = ckpt__migrate_find_ties(m, err);
    if (status == CKPT_OK)
        status = ckpt__edits_close_holes(m->edits, m->from->root, &m->from->root, err);
    bool as_torch = status == CKPT_OK && !m->same && (m->torch || ckpt__migrate_torch_keeps(m));
    if (status == CKPT_OK && !m->same &&
        (as_torch || m->options.strip_prefix_count || m->options.rename_count || m->options.add_prefix))
        status = ckpt__migrate_flatten(m, err);
    if (status == CKPT_OK && as_torch && !m->named_script && !m->options.weights_only)
        status = ckpt__migrate_libtorch(m, err);
    if (status == CKPT_OK && m->torch && !m->same && !m->options.weights_only && ckpt__format_of(m->from)->canonical)
        status = ckpt__migrate_groups(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_names(m, err);
    return status;
}

/* What was read back takes its name now, and what was there before goes. What reads back otherwise than it was written is no
 * checkpoint: it never has the name, and what was there before stays. */
static ckpt_status publish(ckpt__migration *m, ckpt_status status, ckpt_error *err)
{
    ckpt__sink *sink = m->sink;
    struct stat st;
    m->sink = NULL;
    if (sink && status == CKPT_OK && m->options.force && stat(m->dst, &st) == 0)
        status = ckpt__check_replaced(m, err); /* once more: reading back takes time */
    if (sink && status == CKPT_OK)
        return ckpt__sink_commit(sink, err);
    ckpt__sink_abort(sink);
    if (sink && (status == CKPT_E_DAMAGED || status == CKPT_E_SYSTEM)) {
        ckpt__error_object(err, m->dst);
        ckpt__error_prefix(err, "what was written %s, and was removed; what was there before is untouched",
                           status == CKPT_E_DAMAGED ? "reads back damaged" : "cannot be read back");
    }
    return status;
}

/* The names were given; what is left of them are texts. Big checkpoints have as many entries as tensors and values. */
static void forget_entries(ckpt__canon *canon)
{
    ckpt__hash_free(canon->by_name);
    free(canon->entries);
    canon->by_name = NULL;
    canon->entries = NULL;
    canon->count = 0;
}

void ckpt__migrate_forget_source(ckpt__migration *m)
{
    ckpt__canon_free(m->canon);
    ckpt__edits_free(m->edits);
    ckpt__index_free(m->index);
    ckpt_reader_close(m->reader);
    m->edits = NULL;
    m->canon = NULL;
    m->index = m->from = NULL;
    m->reader = NULL;
    m->root = NULL;
    ckpt__buf_free(&m->kept);
    ckpt__heap_trim();
}

static ckpt_status migrate(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = prepare(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_place(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_check_rules(m, err);
    ckpt__heap_trim();
    if (status == CKPT_OK)
        status = build_root(m, err);
    if (status == CKPT_OK) {
        forget_entries(m->canon);
        ckpt__heap_trim();
        status = ckpt__migrate_write(m, err);
    }
    if (status == CKPT_OK && m->sink)
        status = ckpt__migrate_read_back(m, err);
    return publish(m, status, err);
}

static void free_mover(ckpt__migration *m)
{
    ckpt_report_free(m->lost);
    ckpt_report_free(m->unused);
    ckpt__placement_free(&m->places);
    ckpt__canon_free(m->canon);
    ckpt__edits_free(m->edits);
    ckpt__index_free(m->index);
    ckpt_reader_close(m->reader);
    ckpt_map_free(m->map);
    ckpt__ledger_free(&m->ledger);
    free(m->kept_names);
    ckpt__ties_free(&m->ties);
    free(m->chosen);
    free(m->beside);
    ckpt__buf_free(&m->kept);
}

ckpt_status ckpt_migrate(const char *src, const char *dst, const ckpt_migrate_options *options, ckpt_report *report,
                         ckpt_error *err)
{
    ckpt__migration m;
    memset(&m, 0, sizeof m);
    m.src = src;
    m.dst = dst;
    if (!src || !*src || !dst || !*dst)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "source and destination are wanted");
    ckpt_status named = CKPT__TAKE_OPTIONS(ckpt_migrate_options, &m.options, options, err);
    if (named == CKPT_OK && m.options.totals)
        named =
            ckpt__check_answer(m.options.totals, ckpt__first_size_of_ckpt_migrate_totals, "ckpt_migrate_totals", err);
    if (named == CKPT_OK)
        named = ckpt__canon_check_names(m.options.param_names, m.options.param_name_count, src, err);
    if (named == CKPT_OK)
        named = ckpt__order_check(m.options.assume_order, src, err);
    if (named < 0)
        return named;
    if (m.options.ranks.world == 0)
        m.options.ranks.world = 1;
    m.report = report ? report : ckpt_report_new();
    m.lost = ckpt_report_new();
    m.unused = ckpt_report_new();
    ckpt_report_clear(m.report);
    ckpt_status status = m.report && m.lost && m.unused ? migrate(&m, err) : ckpt__fail_memory(err, "the report", 0);
    if (status == CKPT_OK && m.options.totals)
        CKPT__GIVE_ANSWER(ckpt_migrate_totals, m.options.totals, &m.totals);
    if (!report)
        ckpt_report_free(m.report);
    free_mover(&m);
    return status;
}
