/* anatomy/canon_libtorch.c - what libtorch in C++ writes: modules as nested dicts, and optimizers whose states are keyed by
 * the addresses of a process that has ended. Their order is that of the groups:
 *   {"pytorch_version": ..., "state": {"<address>": {"step": 5, "exp_avg": T, ...}},
 *    "param_groups": {"param_groups/size": T, "param_groups/0": {"params/size": T, "params/0": "<address>", ...,
 *                                                                "options": {"lr": ..., ...}}}}
 * and before 1.5, with neither groups nor hyper-parameters, one list for each kind of state, in the parameters' order:
 *   {"step_buffers/size": T, "step_buffers/0": T, ..., "exp_average_buffers/0": T, ...}
 * [torch/csrc/api/include/torch/optim/serialize.h; the load() functions of torch/csrc/api/src/optim] */
#include "anatomy/canon_work.h"

#include <stdlib.h>

static bool is_script(const ckpt__node *node)
{
    return ckpt__is_scripted(node->value);
}

bool ckpt__canon_is_attribute(const ckpt__tree *tree, size_t module, size_t node)
{
    const ckpt__node *n = &tree->nodes[node];
    return n->end > node + 1 && is_script(&tree->nodes[module]) && !is_script(n) && n->value->kind != CKPT_V_TENSOR;
}

/* The number in "<head><number>". */
static bool number_after(const ckpt__node *node, const char *head, int64_t *number)
{
    return !node->integer_key && ckpt__numbered(node->key, head, number);
}

/* The children "<head>0", "<head>1", ... of a node by their numbers. The list is the heap's. */
static ckpt_status numbered(ckpt__builder *b, size_t node, const char *head, size_t **list, size_t *count)
{
    const ckpt__tree *t = &b->tree;
    int64_t number;
    *count = 0;
    for
        CKPT__CHILDREN(t, c, node)
    *count += number_after(&t->nodes[c], head, &number);
    *list = calloc(*count + 1, sizeof **list);
    if (!*list)
        return ckpt__canon_no_memory(b);
    for
        CKPT__CHILDREN(t, c, node)
        {
            if (!number_after(&t->nodes[c], head, &number))
                continue;
            if ((uint64_t)number >= *count || (*list)[number]) {
                char shown[80];
                return ckpt__fail(
                    b->err, CKPT_E_MISMATCH, t->nodes[node].name.data,
                    "the optimizer has %zu entries '%s<number>', and '%s' among them: libtorch numbers them from 0 "
                    "without a hole",
                    *count, head, ckpt__escape(shown, sizeof shown, t->nodes[c].key.data, t->nodes[c].key.size));
            }
            (*list)[number] = c; /* no child is node 0, the root */
        }
    return CKPT_OK;
}

/* ---- lists of the time before 1.5 */

ckpt_status ckpt__canon_read_old(ckpt__builder *b, ckpt__optimizer *o)
{
    const ckpt__tree *t = &b->tree;
    size_t *lists[CKPT__OLD_LISTS] = {NULL}, counts[CKPT__OLD_LISTS] = {0};
    ckpt_status s =
        ckpt__grow(&o->groups, &o->group_capacity, 1, sizeof *o->groups) ? CKPT_OK : ckpt__canon_no_memory(b);
    for (size_t i = 0; i < CKPT__OLD_LISTS && s == CKPT_OK; i++) {
        s = numbered(b, o->node, ckpt__old_lists[i].list, &lists[i], &counts[i]);
        o->slot_count = counts[i] > o->slot_count ? counts[i] : o->slot_count;
    }
    if (s == CKPT_OK && !ckpt__grow(&o->slots, &o->slot_capacity, o->slot_count, sizeof *o->slots))
        s = ckpt__canon_no_memory(b);
    for (size_t k = 0; k < o->slot_count && s == CKPT_OK; k++) {
        o->slots[k] = (ckpt__slot){
            .id = ckpt__s(""), .state = SIZE_MAX, .shaped = SIZE_MAX, .rows = SIZE_MAX, .columns = SIZE_MAX};
        for (size_t i = 0; i < CKPT__OLD_LISTS && s == CKPT_OK; i++) {
            if (k >= counts[i])
                continue;
            if (!ckpt__grow(&o->old, &o->old_capacity, o->old_count + 1, sizeof *o->old)) {
                s = ckpt__canon_no_memory(b);
                break;
            }
            o->old[o->old_count++] = (ckpt__old_state){k, lists[i][k], ckpt__old_lists[i].key};
            size_t tensor = t->nodes[lists[i][k]].value->tensor;
            o->slots[k].has_tensors = o->slots[k].has_tensors || !ckpt__str_is(ckpt__s(ckpt__old_lists[i].key), "step");
            if (ckpt__key_has_param_shape(ckpt__s(ckpt__old_lists[i].key)) && tensor < b->index->tensor_count)
                o->slots[k].shaped = tensor;
        }
    }
    for (size_t i = 0; i < CKPT__OLD_LISTS; i++)
        free(lists[i]);
    if (s != CKPT_OK) {
        o->slot_count = 0;
        return s;
    }
    o->groups[0] = (ckpt__opt_group){.node = o->node, .hypers = SIZE_MAX, .count = o->slot_count, .names = SIZE_MAX};
    o->group_count = 1;
    return CKPT_OK;
}

/* ---- groups */

bool ckpt__canon_is_libtorch(const ckpt__builder *b, size_t node)
{
    return ckpt__is_cpp_optimizer(b->tree.nodes[node].value);
}

static ckpt_status read_params(ckpt__builder *b, ckpt__optimizer *o, size_t group, ckpt__hash *states, ckpt__hash *ids)
{
    size_t *params, count;
    ckpt_status s = numbered(b, group, "params/", &params, &count);
    for (size_t i = 0; i < count && s == CKPT_OK; i++) {
        const ckpt__node *param = &b->tree.nodes[params[i]];
        if (param->value->kind == CKPT_V_STR)
            s = ckpt__canon_add_slot(b, o, params[i], states, ids);
        else
            s = ckpt__fail(b->err, CKPT_E_MISMATCH, param->name.data,
                           "a parameter of a group is a %s; libtorch writes its address as a string",
                           ckpt_kind_name(param->value->kind));
    }
    free(params);
    return s;
}

ckpt_status ckpt__canon_read_groups(ckpt__builder *b, ckpt__optimizer *o, ckpt__hash *states, ckpt__hash *ids)
{
    const ckpt__tree *t = &b->tree;
    size_t *list, count, node = ckpt__tree_child(t, o->node, "param_groups");
    if (node == SIZE_MAX)
        return ckpt__canon_read_old(b, o);
    ckpt_status s = numbered(b, node, "param_groups/", &list, &count);
    for (size_t g = 0; g < count && s == CKPT_OK; g++) {
        if (!ckpt__grow(&o->groups, &o->group_capacity, o->group_count + 1, sizeof *o->groups)) {
            s = ckpt__canon_no_memory(b);
            break;
        }
        ckpt__opt_group *group = &o->groups[g];
        *group = (ckpt__opt_group){.node = list[g],
                                   .hypers = ckpt__tree_child(t, list[g], "options"),
                                   .first = o->slot_count,
                                   .names = SIZE_MAX};
        s = read_params(b, o, list[g], states, ids);
        group->count = o->slot_count - group->first;
        o->group_count++;
    }
    free(list);
    return s;
}

void ckpt__canon_take_frame(ckpt__builder *b)
{
    const ckpt__optimizer *o = &b->optimizer;
    ckpt__tree *t = &b->tree;
    int64_t number;
    size_t version = ckpt__tree_child(t, o->node, "pytorch_version"),
           groups = ckpt__tree_child(t, o->node, "param_groups");
    if (version != SIZE_MAX)
        t->nodes[version].taken = true;
    if (groups != SIZE_MAX)
        for
            CKPT__CHILDREN(t, c, groups)
    if (t->nodes[c].value->kind == CKPT_V_TENSOR)
        t->nodes[c].taken = true; /* param_groups/size */
    for (size_t g = 0; g < o->group_count; g++)
        for
            CKPT__CHILDREN(t, c, o->groups[g].node)
    if (ckpt__str_begins(t->nodes[c].key, "params/") ||
        (o->groups[g].node == o->node && ckpt__old_list_of(t->nodes[c].key, &number) != CKPT__OLD_LISTS && number < 0))
        t->nodes[c].taken = true;
}

/* ---- modules */

enum { A_MODULE = 1, HAS_WEIGHTS = 2 };

static unsigned char module_flags(const ckpt__index *index, const ckpt__tree *t, size_t node,
                                  const unsigned char *flags)
{
    if (!is_script(&t->nodes[node]) || ckpt__is_cpp_optimizer(t->nodes[node].value))
        return 0;
    /* An archive of C++ holds tensors and other modules, or it is a trainer's own; a scripted module has attributes. */
    bool plain = ckpt__str_is(t->nodes[node].value->class_name, "__torch__.Module");
    unsigned char all = A_MODULE;
    for
        CKPT__CHILDREN(t, c, node)
        {
            const ckpt_value *v = t->nodes[c].value;
            bool tensor = v->kind == CKPT_V_TENSOR && v->tensor < index->tensor_count;
            if (tensor) {
                const ckpt_tensor_info *info = &index->tensors[v->tensor].info;
                if (info->ndim > 0 && info->role != CKPT_ROLE_RNG)
                    all |= HAS_WEIGHTS;
            } else if (flags[c] & A_MODULE) {
                all |= flags[c];
            } else if (plain && v->kind != CKPT_V_NONE) {
                return 0;
            }
        }
    return all;
}

/* Children come behind their parents, so from the last node to the first each is looked at once. */
unsigned char *ckpt__script_modules(const ckpt__index *index, const ckpt__tree *t, bool *ok)
{
    bool any = false;
    for (size_t i = 0; i < t->count && !any; i++)
        any = is_script(&t->nodes[i]);
    if (!any)
        return NULL;
    unsigned char *flags = calloc(t->count, 1);
    if (!flags) {
        *ok = false;
        return NULL;
    }
    for (size_t i = t->count; i > 0; i--)
        flags[i - 1] = module_flags(index, t, i - 1, flags);
    for (size_t i = 0; i < t->count; i++)
        flags[i] = flags[i] == (A_MODULE | HAS_WEIGHTS);
    return flags;
}
