/* format/torch/script.c - archives of libtorch in C++ (torch::save, OutputArchive) and of TorchScript (torch.jit.save):
 * the zip of torch.save with constants.pkl and code/ beside data.pkl. Rules: torch/csrc/jit/serialization/pickler.cpp,
 * unpickler.cpp, export_module.cpp and torch/csrc/api/include/torch/optim/serialize.h.
 *
 * An object is GLOBAL `__torch__.<module> <Class>`, (), NEWOBJ, its attributes as a dict, BUILD. What it holds are named
 * things, so it becomes a dict with the class's name, and names are those that libtorch itself gives: `fc1.weight`.
 * An object with a __getstate__ of its own (packed weights of quantized layers) has anything there: a tuple of it.
 *
 * The code is neither read nor run; constants of the code are counted, not listed. */
#include "format/torch/torch.h"
#include "model/training.h"

#include <stdlib.h>

bool ckpt__torch_is_script(const ckpt__pickle_node *node)
{
    if (!node || node->kind != CKPT__P_OBJECT || node->u.object->call != CKPT__P_NEWOBJ ||
        node->u.object->callable->kind != CKPT__P_GLOBAL)
        return false;
    ckpt_str module = node->u.object->callable->u.global->module;
    return ckpt__str_is(module, "__torch__") || ckpt__str_begins(module, "__torch__.");
}

/* `__torch__.a.___torch_mangle_7.Linear` -> `__torch__.a.Linear`: the number only keeps classes of one name apart. */
static bool unmangle(ckpt__torch *t, ckpt_str *name)
{
    static const char word[] = "___torch_mangle_";
    char *out = ckpt__arena_alloc(t->arena, name->size + 1);
    size_t n = 0;
    if (!out)
        return false;
    for (size_t i = 0; i < name->size;) {
        const char *dot = memchr(name->data + i, '.', name->size - i);
        size_t part = dot ? (size_t)(dot - name->data) + 1 - i : name->size - i;
        if (!dot || !ckpt__str_begins((ckpt_str){name->data + i, part}, word)) {
            memcpy(out + n, name->data + i, part);
            n += part;
        }
        i += part;
    }
    *name = (ckpt_str){out, n};
    return true;
}

bool ckpt__torch_script_object(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    static const ckpt__pickle_list none = {NULL, 0, 0};
    ckpt__pickle_node *state = o->state;
    if (!unmangle(t, &v->class_name))
        return false;
    if (!state || state->kind == CKPT__P_DICT) {
        v->kind = CKPT_V_DICT;
        return ckpt__torch_set_entries(t, v, state ? &state->u.list : &none, &o->entries);
    }
    ckpt__pickle_list alone = {&state, 1, 1};
    bool sequence = state->kind == CKPT__P_TUPLE || state->kind == CKPT__P_LIST;
    v->kind = CKPT_V_TUPLE;
    return ckpt__torch_set_items(t, v, sequence ? &state->u.list : &alone, &o->items);
}

/* ---- torch.jit._pickle: a list or dict together with the type of what is in it */

const ckpt__pickle_node *ckpt__torch_untagged(const ckpt__pickle_node *node)
{
    static const char *const names[] = {"restore_type_tag", "build_intlist", "build_tensorlist", "build_doublelist",
                                        "build_boollist"};
    if (!node || node->kind != CKPT__P_OBJECT || node->u.object->call != CKPT__P_REDUCE)
        return NULL;
    const ckpt__pickle_node *args = node->u.object->args;
    if (args->kind != CKPT__P_TUPLE || args->u.list.count == 0)
        return NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ckpt__pickle_is_global(node->u.object->callable, "torch.jit._pickle", names[i]))
            return args->u.list.items[0];
    return NULL;
}

bool ckpt__torch_typed(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    static const ckpt__pickle_list none = {NULL, 0, 0};
    const ckpt__pickle_node *plain = ckpt__torch_untagged(v->origin);
    if (!plain || (plain->kind != CKPT__P_LIST && plain->kind != CKPT__P_TUPLE && plain->kind != CKPT__P_DICT))
        return true; /* not as libtorch writes it: opaque */
    v->args = NULL;
    v->class_name = (ckpt_str){NULL, 0};
    if (plain->kind == CKPT__P_DICT) {
        v->kind = CKPT_V_DICT;
        return ckpt__torch_set_entries(t, v, &plain->u.list, &o->entries);
    }
    v->kind = CKPT_V_LIST;
    return ckpt__torch_set_items(t, v, &plain->u.list, &none);
}

/* ---- roles */

bool ckpt__torch_old_optimizer(const ckpt_value *parent, ckpt_tensor_info *info)
{
    const ckpt_key *last = info->path.count ? &info->path.keys[info->path.count - 1] : NULL;
    int64_t number;
    if (!last || !last->text.data || last->other || !ckpt__is_scripted(parent))
        return false;
    size_t list = ckpt__old_list_of(last->text, &number);
    if (list == CKPT__OLD_LISTS)
        return false;
    bool size = number < 0;
    info->state_key = ckpt__s(size ? "size" : ckpt__old_lists[list].key);
    info->role = size ? CKPT_ROLE_OPTIM : ckpt__role_of_key(info->state_key);
    return true;
}

/* ---- the archive */

bool ckpt__torch_any_grad(const ckpt__torch *t)
{
    for (size_t i = 0; i < t->tensor_count; i++)
        if (t->tensors[i]->spec && t->tensors[i]->spec->requires_grad)
            return true;
    return false;
}

/* How many records lie in the archive's folder. */
static size_t count_below(const ckpt__torch *t, const char *folder)
{
    size_t count = 0, n = strlen(folder);
    const ckpt__zip_record *r;
    for (size_t i = 0; (r = ckpt__zip_at(t->zip, i)) != NULL; i++)
        count += !r->folder && r->name.size > t->root.size + 1 + n &&
                 memcmp(r->name.data, t->root.data, t->root.size) == 0 && r->name.data[t->root.size] == '/' &&
                 memcmp(r->name.data + t->root.size + 1, folder, n) == 0;
    return count;
}

ckpt_status ckpt__torch_note_script(ckpt__torch *t, ckpt_error *err)
{
    size_t constants = count_below(t, "constants/"), extra = count_below(t, "extra/");
    const ckpt_value *root = t->index->root;
    bool plain = root && ckpt__str_is(root->class_name, "__torch__.Module");
    bool ok = ckpt__report_add(
        t->index->findings, CKPT_SEVERITY_NOTE, "torchscript", NULL, NULL,
        "%s: its tensors and attributes are read from data.pkl; its code is neither read nor run, and "
        "is not in what is written from it",
        plain ? "an archive of libtorch in C++ (torch::save)" : "a TorchScript archive (torch.jit.save)");
    if (ok && constants)
        ok = ckpt__report_add(
            t->index->findings, CKPT_SEVERITY_NOTE, "constants-of-code", NULL,
            "torch.jit.load(FILE).code_with_constants[1].const_mapping holds those of forward",
            "tensors that are constants of the program's code (the records constants/*): %zu. They do not belong to its state and are not listed",
            constants);
    if (ok && extra)
        ok = ckpt__report_add(t->index->findings, CKPT_SEVERITY_NOTE, "extra-files", NULL,
                              "they are members of the zip file: any zip tool takes them out",
                              "%zu extra files lie beside the program (the records extra/*): they are not listed",
                              extra);
    return ok ? CKPT_OK : ckpt__torch_no_memory(t, err);
}
