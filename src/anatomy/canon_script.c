/* anatomy/canon_script.c - modules of libtorch in C++ and of TorchScript, which are dicts in dicts. */
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
