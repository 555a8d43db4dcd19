/* migrate/root.c - the value tree of the target, when names, places and what goes along are known: the source's own, or its
 * values under other names, with what its format can hold. */
#include "migrate/migration.h"

#include <stdlib.h>
#include "format/table.h"
#include "migrate/out.h"
#include "migrate/to_canonical.h"
#include "migrate/torch.h"

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
    if (ckpt__keeps_megatron(m)) {
        m->root = m->from->root;
        return CKPT_OK;
    }
    if (m->options.weights_only)
        return weights_dict(m, &m->root, err);
    if (m->remade || (m->as && m->tree && !ckpt__keeps_dcp(m) && !ckpt__by_position(m))) {
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
    if (ckpt__migrate_in_files(m) && !m->same && !m->as)
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
    size_t inside; /* of those that were asked to go: what an opaque object still looks at */
} left_out;

/* References to tensors that the target does not hold become None. */
static int forget_tensor(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    static const ckpt_value none = {.kind = CKPT_V_NONE};
    left_out *f = ctx;
    const ckpt_value *v = visit->value;
    (void)spot;
    if (v->kind != CKPT_V_TENSOR || f->m->ledger.rows[v->tensor].fate == CKPT__FATE_GOES)
        return 0;
    f->inside += visit->inside && ckpt__stays_behind(f->m, v->tensor);
    *to = &none;
    return 0;
}

static ckpt_status forget_left_out(ckpt__migration *m, ckpt_error *err)
{
    if (!m->format->canonical || !m->from->root)
        return CKPT_OK; /* the others have no references */
    left_out f = {m, 0};
    ckpt_status status = ckpt__migration_rewrite(m, forget_tensor, &f, err);
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

ckpt_status ckpt__migrate_root(ckpt__migration *m, ckpt_error *err)
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
    if (status == CKPT_OK && m->torch && !m->remade && (!m->as || ckpt__keeps_dcp(m)))
        status = ckpt__migrate_order(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_device_objects(m, err);
    const bool named = (m->as == CKPT__AS_DCP && !ckpt__keeps_dcp(m)) || ckpt__is_fsdps(m);
    return status == CKPT_OK && named ? ckpt__migrate_dcp_root(m, err) : status;
}
