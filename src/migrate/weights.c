/* migrate/weights.c - the model's tensors alone: which those are, and which weights stay behind. */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- weights that stay behind: of another model, of an average */

enum { PLACES_MAX = 8, NAMES_SHOWN = 3 };

/* One dict with weights that all stay behind. */
typedef struct place {
    ckpt_str path;
    size_t count, averages, first[NAMES_SHOWN]; /* tensors; averages among them; numbers of the first ones */
} place;

typedef struct places {
    place *items;
    size_t count, capacity;
    ckpt__hash *by_path;
} places;

/* The dict that a tensor lies in; of one that has a name alone, what stands before its last dot. */
static ckpt_str path_of(const ckpt_tensor_info *t)
{
    ckpt_str name = t->name, last = t->path.count ? t->path.keys[t->path.count - 1].text : (ckpt_str){NULL, 0};
    if (last.data && last.size < name.size)
        return (ckpt_str){name.data, name.size - last.size - 1};
    const char *dot = !last.data && name.size ? memrchr(name.data, '.', name.size) : NULL;
    return (ckpt_str){name.data, dot ? (size_t)(dot - name.data) : 0};
}

static bool add_place(places *p, const ckpt__index *x, size_t tensor)
{
    ckpt_str path = path_of(&x->tensors[tensor].info);
    size_t at;
    int put = ckpt__hash_put(p->by_path, path.data ? path.data : "", path.size, p->count, &at);
    if (put < 0 || !ckpt__grow(&p->items, &p->capacity, p->count + 1, sizeof *p->items))
        return false;
    if (put == 1)
        p->items[at = p->count++] = (place){.path = path};
    if (p->items[at].count < NAMES_SHOWN)
        p->items[at].first[p->items[at].count] = tensor;
    p->items[at].count++;
    p->items[at].averages += x->tensors[tensor].info.role == CKPT_ROLE_EMA;
    return true;
}

static ckpt_status say_place(ckpt__migration *m, const place *at, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    char names[700] = "", where[200] = "", model[200] = "", fix[300];
    size_t used = 0, n = at->count < NAMES_SHOWN ? at->count : NAMES_SHOWN;
    for (size_t i = 0; i < n; i++) {
        char shown[200];
        ckpt_str name = x->tensors[at->first[i]].info.name;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 ckpt__escape(shown, sizeof shown, name.data, name.size));
    }
    if (at->path.size)
        ckpt__escape(where, sizeof where, at->path.data, at->path.size);
    if (m->canon->model_path.size)
        ckpt__escape(model, sizeof model, m->canon->model_path.data, m->canon->model_path.size);
    snprintf(fix, sizeof fix, "for those instead: a map file {map: 1, source: {model: '%s'}} (--map-location)", where);
    bool added =
        ckpt__report_add(m->report, CKPT_SEVERITY_WARNING, "left-behind", where, at->path.size ? fix : NULL,
                         "%zu %s outside of the model%s%s%s and %s not written: %s%s", at->count,
                         at->averages == at->count ? at->count == 1 ? "averaged weight is" : "averaged weights are"
                         : at->count == 1          ? "weight is"
                                                   : "weights are",
                         *model ? " ('" : "", model, *model ? "')" : "", at->count == 1 ? "is" : "are", names,
                         at->count > n ? ", ..." : "");
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* Weights as `list` shows them by their roles; what was left out by name was asked for. */
static ckpt_status say_left_behind(ckpt__migration *m, ckpt_error *err)
{
    const ckpt__index *x = m->from;
    places p = {.by_path = ckpt__hash_new(16)};
    ckpt_status status = p.by_path ? CKPT_OK : ckpt__migration_no_memory(err);
    size_t others = 0;
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i = ckpt__tensor_end(x, i)) {
        ckpt_role role = x->tensors[i].info.role;
        bool weight = role == CKPT_ROLE_PARAM || role == CKPT_ROLE_BUFFER || role == CKPT_ROLE_EMA;
        bool left = m->ledger.rows[i].fate == CKPT__FATE_NO_WEIGHT;
        if (left && weight && !x->tensors[i].info.state_key.data && !add_place(&p, x, i))
            status = ckpt__migration_no_memory(err);
    }
    for (size_t i = 0; status == CKPT_OK && i < p.count; i++) {
        if (i < PLACES_MAX)
            status = say_place(m, &p.items[i], err);
        others += i < PLACES_MAX ? 0 : p.items[i].count;
    }
    if (status == CKPT_OK && others)
        status = ckpt__migration_note(m, CKPT_SEVERITY_WARNING, "left-behind", (ckpt_str){NULL, 0}, err,
                                      "%zu weights in %zu more places are outside of the model and are not written",
                                      others, p.count - PLACES_MAX);
    ckpt__hash_free(p.by_path);
    free(p.items);
    return status;
}

/* ---- the model's */

/* With its parts: it goes along, unless it stays behind for another reason. */
static void keep(ckpt__migration *m, size_t tensor)
{
    for (size_t i = tensor, end = ckpt__tensor_end(m->from, i); i < end; i++)
        if (m->ledger.rows[i].fate == CKPT__FATE_NO_WEIGHT)
            m->ledger.rows[i].fate = CKPT__FATE_GOES;
}

ckpt_status ckpt__migrate_weights(ckpt__migration *m, ckpt_error *err)
{
    size_t kept = 0;
    if (!m->options.weights_only && !m->hf)
        return CKPT_OK;
    for (size_t i = 0; i < m->from->tensor_count; i++)
        ckpt__leave_one(m, i, CKPT__FATE_NO_WEIGHT);
    for (size_t i = 0; i < m->canon->count; i++) {
        const ckpt__canon_entry *e = &m->canon->entries[i];
        if (!e->is_tensor || e->outside || e->state_key.data ||
            (e->role != CKPT_ROLE_PARAM && e->role != CKPT_ROLE_BUFFER))
            continue;
        keep(m, e->tensor);
        kept++;
    }
    if (kept)
        return say_left_behind(m, err);
    return ckpt__fail(
        err, CKPT_E_MISMATCH, m->src,
        "it is unknown which of its tensors are the model's weights; name the model in a map file: {map: 1, source: {model: 'PATH'}} "
        "(ckpt-inspect list PATH shows the names)");
}
