/* migrate/naming.c - canonical names for the source, and whose states its optimizer numbers: a target that holds names
 * gets those that are sure, a torch target keeps the numbers. */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>

/* Is the optimizer libtorch's in C++? It is keyed by the addresses of a dead process, and no program in Python loads it. */
static bool has_script_optimizer(const ckpt__migration *m)
{
    const ckpt_value *v =
        m->canon->optimizer_path.data ? ckpt__value_at(m->from->root, m->canon->optimizer_path) : NULL;
    return ckpt__is_scripted(v);
}

/* Is the file libtorch's or TorchScript's? */
static bool is_script(const ckpt__index *x)
{
    return ckpt__is_scripted(x->root);
}

/* What it means for a target that holds names. */
static const char *meaning(const ckpt__migration *m, const char *code)
{
    bool unnamed = strcmp(code, "order-unknown") == 0 || strcmp(code, "source-ambiguous") == 0;
    return unnamed && !m->torch && !m->hf && !m->options.weights_only
               ? "; a state in C binds nothing of it by a parameter's name until that is stated"
               : "";
}

/* by_position: the target keeps the optimizer's numbers, so what is said of their names concerns nobody. */
static ckpt_status build_canon(ckpt__migration *m, const ckpt__canon_hints *hints, bool by_position, ckpt_error *err)
{
    ckpt__canon_free(m->canon);
    m->canon = NULL;
    ckpt_report *said = ckpt_report_new();
    ckpt_status status =
        said ? ckpt__canon_build(m->from, hints, &m->canon, said, err) : ckpt__migration_no_memory(err);
    for (size_t i = 0; said && i < ckpt_report_count(said); i++) {
        const ckpt_finding *f = ckpt_report_get(said, i);
        if (by_position && ckpt__begins(f->code, "order-"))
            continue;
        if (!ckpt__report_add(m->report, f->severity, f->code, f->tensor, f->fix, "%s%s", f->message,
                              meaning(m, f->code)) ||
            !ckpt__report_detail(m->report, f->file, f->from, f->to, f->nbytes))
            status = ckpt__migration_no_memory(err);
    }
    ckpt_report_free(said);
    return status;
}

/* Do both listings show the same bytes? One that is not dense has its parts behind it. */
static bool same_storage(const ckpt__index *x, size_t a, size_t b)
{
    const ckpt__tensor *s = &x->tensors[a], *t = &x->tensors[b];
    size_t parts = s->info.extra->part_count;
    if (parts && parts == t->info.extra->part_count && a + 1 < x->tensor_count && b + 1 < x->tensor_count) {
        s++;
        t++;
    }
    return ckpt__same_storage(s, t);
}

static bool has_listing(const ckpt__migration *m, size_t i)
{
    const ckpt__tensor *t = &m->from->tensors[i];
    return !ckpt__is_flat(m->from, i) && (t->whole || t->info.extra->part_count);
}

/* A tensor that is reached under two names is listed twice, and the tree has the number of the first for both: from now on
 * an entry has that of its own name, so that one name can go and the other stay. */
static ckpt_status own_listings(ckpt__migration *m, ckpt_error *err)
{
    ckpt__hash *listed = ckpt__listed(m, has_listing);
    for (size_t k = 0; listed && k < m->canon->count; k++) {
        ckpt__canon_entry *e = &m->canon->entries[k];
        size_t i = e->is_tensor ? ckpt__listing(listed, e) : 0;
        if (e->is_tensor && same_storage(m->from, i, e->tensor))
            e->tensor = i;
    }
    ckpt__hash_free(listed);
    return listed ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* For a torch target --param-names is the order that its program wants; but where nothing else says which order the source
 * has, it is the source's, as for all other targets. */
static ckpt_status take_stated_order(ckpt__migration *m, ckpt__canon_hints *hints, ckpt_error *err)
{
    ckpt_error own = CKPT_ERROR_INIT;
    size_t said = ckpt_report_count(m->report);
    ckpt_status status = build_canon(m, hints, false, &own);
    if (status == CKPT_E_MISMATCH && !hints->param_names && m->options.param_name_count) {
        ckpt__report_cut(m->report, said);
        hints->param_names = m->options.param_names;
        hints->param_name_count = m->options.param_name_count;
        m->order_stated = true;
        status = build_canon(m, hints, false, &own);
        if (status == CKPT_OK && ckpt_report_count_code(m->report, "moment-shape"))
            return ckpt__migrate_refuse(m, err);
        if (status == CKPT_OK)
            return ckpt__migration_note(
                m, CKPT_SEVERITY_NOTE, "order-stated", (ckpt_str){NULL, 0}, err,
                "which parameters the optimizer's ids are, --param-names says: it is the order of the source, "
                "and is kept");
    }
    if (status < 0 && err)
        *err = own;
    return status;
}

/* Do names say what is to be done with an optimizer that is written by position? */
static bool goes_by_name(const ckpt__migration *m)
{
    const ckpt_migrate_options *o = &m->options;
    return o->param_name_count || o->drop_count || o->only_tensor_count || o->replace_count ||
           (m->map && ckpt__map_has_names(m->map));
}

/* Are the parameters of the optimizer on one device? Then it does not matter there which of them a state belongs to. */
static bool on_one_device(const ckpt__migration *m)
{
    const ckpt__canon *c = m->canon;
    const ckpt_str *first = NULL;
    for (size_t i = 0; i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        if (!e->is_tensor || e->role != CKPT_ROLE_PARAM || !e->group.data)
            continue;
        const ckpt_str *here = &m->from->tensors[e->tensor].info.device;
        if (first && !ckpt__str_equal(*first, *here))
            return false;
        first = here;
    }
    return true;
}

/* For a torch target the numbers stay, so that of several orders the first does for placement: if it makes no difference. */
static ckpt_status name_by_position(ckpt__migration *m, ckpt__canon_hints *hints, bool asks, ckpt_error *err)
{
    size_t said = ckpt_report_count(m->report);
    hints->tentative_order = !goes_by_name(m);
    ckpt_status status = asks ? take_stated_order(m, hints, err) : build_canon(m, hints, hints->tentative_order, err);
    if (status != CKPT_OK || !hints->tentative_order || !m->canon->order.ambiguous || on_one_device(m))
        return status;
    ckpt__report_cut(m->report, said);
    hints->tentative_order = false;
    return asks ? take_stated_order(m, hints, err) : build_canon(m, hints, false, err);
}

/* A target that holds names: more than one order is an error, unless nothing of the optimizer goes along, which is known after
 * the selection. */
static ckpt_status name_by_name(ckpt__migration *m, ckpt__canon_hints *hints, ckpt_error *err)
{
    size_t said = ckpt_report_count(m->report);
    hints->needs_order = hints->optional_optimizer && !m->options.weights_only && !m->hf;
    ckpt_status status = build_canon(m, hints, false, &m->order_error);
    if (status == CKPT_E_MISMATCH && hints->needs_order && ckpt__selects(m)) {
        ckpt__report_cut(m->report, said);
        hints->needs_order = false;
        return build_canon(m, hints, false, err);
    }
    if (status < 0 && err)
        *err = m->order_error;
    memset(&m->order_error, 0, sizeof m->order_error);
    return status;
}

ckpt_status ckpt__migrate_check_order(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_str path = m->canon->unnamed;
    /* a distributed checkpoint has the states by the names of their parameters; the others that ask for names say so themselves */
    const bool named = m->as == CKPT__AS_DCP && !ckpt__keeps_dcp(m) && !m->options.weights_only;
    if ((m->order_error.status == CKPT_OK && !named) || !path.data)
        return CKPT_OK;
    for (size_t i = 0; i < m->canon->count; i++) {
        const ckpt__canon_entry *e = &m->canon->entries[i];
        if (!e->is_tensor || ckpt__stays_behind(m, e->tensor) || e->own.size <= path.size ||
            !ckpt__str_begins_with(e->own, path))
            continue;
        if (m->order_error.status == CKPT_OK)
            return ckpt__fail(err, CKPT_E_MISMATCH, m->src,
                              "which parameters the states of the optimizer at '%.*s' belong to is not known, and "
                              "'%s' has them by their names: state the names (--param-names FILE, --assume-order), or "
                              "leave the optimizer out (--weights-only, --drop)",
                              (int)path.size, path.data, m->to);
        if (err)
            *err = m->order_error;
        return m->order_error.status;
    }
    return CKPT_OK;
}

ckpt_status ckpt__migrate_find_names(ckpt__migration *m, ckpt_error *err)
{
    ckpt__canon_hints hints = {.map = m->map, .assume_order = m->options.assume_order};
    if (!m->torch || m->options.layout || (m->as && !ckpt__keeps_dcp(m)) || !m->tree || is_script(m->from)) {
        hints.param_names = m->options.param_names;
        hints.param_name_count = m->options.param_name_count;
    }
    if (m->kept_name_count) { /* of the optimizer that the native file names */
        hints.param_names = m->kept_names;
        hints.param_name_count = m->kept_name_count;
    }
    /* whose state it is matters only to those who ask for names or for a placement: torch matches by position, and what
     * has no names keeps its numbers elsewhere */
    bool asks =
        m->options.param_name_count || m->options.replace_count || m->kind != CKPT_OPTIMIZER_DEFAULT || m->place;
    hints.optional_optimizer = !asks || m->options.weights_only || m->hf;
    ckpt_status status =
        ckpt__matches_by_position(m) ? name_by_position(m, &hints, asks, err) : name_by_name(m, &hints, err);
    if (status == CKPT_OK && hints.param_name_count && hints.param_names == m->options.param_names &&
        ckpt_report_count_code(m->report, "moment-shape"))
        return ckpt__migrate_refuse(m, err); /* the stated order is not the source's */
    if (status == CKPT_OK && m->tree && !is_script(m->from))
        status = own_listings(m, err);
    bool script = status == CKPT_OK && !m->options.weights_only && has_script_optimizer(m);
    m->remade = script && m->torch && !m->same;
    m->named_script = script;
    for (size_t i = 0; script && !m->torch && i < m->from->tensor_count; i++) {
        ckpt_str name = m->from->tensors[i].info.name;
        if (ckpt__str_ends_more(name, "/size") && name.size > m->canon->optimizer_path.size &&
            ckpt__str_begins_with(name, m->canon->optimizer_path))
            ckpt__leave_one(m, i, CKPT__FATE_COUNTED);
    }
    return status;
}
