/* migrate/optimizer_out.c - --no-optimizer: the tensors and groups of every optimizer stay behind. They are taken out of the source's
 * tree before anything is named, so that no step behind asks which parameter a state belongs to. */
#include "anatomy/anatomy.h"
#include "format/table.h"
#include "migrate/rules.h"
#include "migrate/select.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* An example: the optimizer of Lightning, in {'optimizer_states': [O0], 'state_dict': {...}}, leaves 'optimizer_states': [] there:
 * Lightning asks for the key, and gives each of its optimizers a state that is in the list. In {'opt': O0} the entry goes. */
typedef struct remover {
    ckpt__migration *m;
    ckpt__arena *arena;          /* owned: names of the anatomy */
    ckpt__hash *goes;            /* names of optimizers in the tree */
    ckpt__hash *emptied;         /* names of lists that have nothing in them but optimizers */
    ckpt_str *paths;             /* of goes, in the arena */
    size_t count, lists, beside; /* beside: of count, what is no optimizer's dict */
    ckpt_error *err;
} remover;

static bool all_optimizers(const ckpt__anatomy *a, size_t parent)
{
    const ckpt_value *v = a->tree.nodes[parent].value;
    size_t found = 0, at = 0;
    for (const ckpt__organ *o; (o = ckpt__anatomy_next(a, CKPT__OPTIMIZER, &at)) != NULL;)
        found += a->tree.nodes[o->node].parent == parent;
    return v->kind == CKPT_V_LIST && found == v->item_count;
}

static ckpt_status find(remover *r, const ckpt__anatomy *a)
{
    size_t at = 0;
    if (a->unfolded.mixed)
        return ckpt__fail(
            r->err, CKPT_E_UNSUPPORTED, r->m->src,
            "the optimizer's states lie among the model's tensors, in one dict: --no-optimizer cannot tell "
            "its values; --weights-only writes the model alone");
    r->paths = ckpt__arena_array(r->arena, a->count + 2, sizeof *r->paths);
    ckpt_status status = r->paths ? CKPT_OK : ckpt__migration_no_memory(r->err);
    for (const ckpt__organ *o; status == CKPT_OK && (o = ckpt__anatomy_next(a, CKPT__OPTIMIZER, &at)) != NULL;) {
        const ckpt__node *node = &a->tree.nodes[o->node];
        if (o->node == 0)
            return ckpt__fail(r->err, CKPT_E_MISMATCH, r->m->src,
                              "there is nothing but an optimizer: --no-optimizer would leave nothing");
        const bool list = all_optimizers(a, node->parent);
        ckpt_str name = list ? a->tree.nodes[node->parent].name : node->name;
        int put = ckpt__hash_put(list ? r->emptied : r->goes, name.data, name.size, r->count, NULL);
        if (put < 0)
            status = ckpt__migration_no_memory(r->err);
        r->lists += list && put > 0;
        r->paths[r->count++] = node->name;
    }
    return status;
}

static bool is_below(const remover *r, ckpt_str name)
{
    for (size_t k = 0; k < r->count; k++) {
        ckpt_str path = r->paths[k];
        if (name.size > path.size && name.data[path.size] == '.' && ckpt__str_begins_with(name, path))
            return true;
    }
    return false;
}

static int take_value(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    remover *r = ctx;
    if (!spot->parent || visit->cycle || visit->value->kind == CKPT_V_TENSOR)
        return CKPT_OK;
    if (ckpt__hash_get(r->goes, visit->name.data, visit->name.size, NULL)) {
        *to = NULL;
    } else if (ckpt__hash_get(r->emptied, visit->name.data, visit->name.size, NULL)) {
        ckpt_value *copy = ckpt__edits_copy(r->m->edits, visit->value);
        if (!copy)
            return ckpt__migration_no_memory(r->err);
        copy->item_count = 0;
        *to = copy;
    }
    return CKPT_OK;
}

/* "the optimizer stays behind: 6 exp_avg, 6 exp_avg_sq, 6 step (1,234 bytes)", of how many there were. */
static ckpt_status say(remover *r, const size_t *roles, uint64_t nbytes)
{
    char text[600] = "";
    size_t used = 0;
    for (int role = 0; role < ckpt_role_count() && used < sizeof text; role++)
        if (roles[role])
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu %s", used ? ", " : "", roles[role],
                                     ckpt_role_name((ckpt_role)role));
    const size_t count = r->count > r->beside ? r->count - r->beside : 1;
    return ckpt__migration_note(
        r->m, CKPT_SEVERITY_NOTE, "left-out", count == 1 && r->count ? r->paths[0] : (ckpt_str){NULL, 0}, r->err,
        "%zu optimizer%s and %s groups stay behind%s%s: %" PRIu64 " bytes%s", count, count > 1 ? "s" : "",
        count > 1 ? "their" : "its", used ? ", with tensors " : "", text, nbytes,
        r->lists ? "; the list of optimizers is empty, and Lightning then begins with a new one" : "");
}

static ckpt_status remove_all(remover *r)
{
    const ckpt__index *x = r->m->from;
    size_t roles[64] = {0}, left = 0;
    uint64_t nbytes = 0;
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt_tensor_info *t = &x->tensors[i].info;
        if (!is_below(r, t->name) && !ckpt_role_is_optimizer(t->role))
            continue;
        left++;
        roles[(size_t)t->role < 64 ? (size_t)t->role : 0]++;
        nbytes += t->nbytes;
        ckpt__leave_one(r->m, i, CKPT__FATE_DROPPED);
    }
    if (!left && !r->count)
        return ckpt__rule_unused(r->m, "--no-optimizer", "finds no optimizer", NULL, NULL, r->err);
    ckpt_status status = x->root && r->count ? ckpt__migration_rewrite(r->m, take_value, r, r->err) : CKPT_OK;
    return status == CKPT_OK ? say(r, roles, nbytes) : status;
}

/* What is an optimizer's and is not in its dict: a file of ours has its groups in its metadata, {'optimizer': {'groups': {...}}}, and
 * Megatron's distributed optimizer its flat buffers in a file beside, {'distrib_optim': {...}}. */
static ckpt_status take_beside(remover *r)
{
    const ckpt__index *x = r->m->from;
    const bool own = ckpt__format_of(x)->canonical;
    const ckpt_str name = ckpt__s(own ? "optimizer" : "distrib_optim");
    if (!x->root || !ckpt__find_entry(x->root, name.data) || (!own && r->count == 0))
        return CKPT_OK;
    if (ckpt__hash_put(r->goes, name.data, name.size, r->count, NULL) < 0)
        return ckpt__migration_no_memory(r->err);
    r->paths[r->count++] = name;
    r->beside += !own;
    return CKPT_OK;
}

ckpt_status ckpt__migrate_no_optimizer(ckpt__migration *m, ckpt_error *err)
{
    ckpt__anatomy a;
    if (!m->options.no_optimizer)
        return CKPT_OK;
    remover r = {.m = m, .goes = ckpt__hash_new(4), .emptied = ckpt__hash_new(4), .err = err};
    r.arena = ckpt__arena_new(ckpt__anatomy_names_limit(m->from));
    ckpt_status status = r.goes && r.emptied && r.arena ? CKPT_OK : ckpt__migration_no_memory(err);
    if (status == CKPT_OK) {
        status = ckpt__anatomy_build(m->from, r.arena, &a, err);
        if (status == CKPT_OK)
            status = find(&r, &a);
        if (status == CKPT_OK)
            status = take_beside(&r);
        if (status == CKPT_OK)
            status = remove_all(&r);
        ckpt__anatomy_free(&a);
    }
    ckpt__hash_free(r.goes);
    ckpt__hash_free(r.emptied);
    ckpt__arena_free(r.arena);
    return status;
}
