/* format/torch/role.c - what a tensor is to training, told from where it lies: torch writes no roles. */
#include "format/torch/torch.h"
#include "model/beside.h"
#include "model/flat_state.h"
#include "model/training.h"

#include <stdio.h>
#include <stdlib.h>

static bool key_is(const ckpt_tensor_info *info, size_t i, const char *text)
{
    return i < info->path.count && ckpt__str_is(info->path.keys[i].text, text) && !info->path.keys[i].other;
}

/* ---- optimizers: {'state': {id: {key: tensor}}, 'param_groups': [{..., 'params': [id, ...]}]} */

/* Where an optimizer's groups list an id. */
typedef struct place {
    size_t group;
    const ckpt_value *name; /* of the parameter, where the group has param_names; else NULL */
} place;

/* The answers for the dict that was asked about last: tensors of one dict come in a row. */
struct ckpt__torch_roles {
    const ckpt_value *maybe_optimizer, *maybe_state_dict, *maybe_flat, *maybe_beside;
    bool is_optimizer, is_state_dict, is_flat;
    ckpt_str prefix;             /* of the flat one's keys */
    ckpt__hash *beside;          /* owned: the model's keys in a dict that has an optimizer too; NULL: it has none */
    const ckpt_value *places_of; /* the optimizer that the next are about */
    ckpt__arena *arena;          /* keys of `ids` */
    ckpt__hash *ids;             /* "i7" or "sname" -> number in `places` */
    place *places;
    size_t place_count, place_capacity;
    uint64_t place_limit; /* more than a pickle has bytes are no parameters, but one group in many places */
};
typedef struct ckpt__torch_roles roles;

static void forget_places(roles *r)
{
    ckpt__hash_free(r->ids);
    ckpt__arena_free(r->arena);
    r->ids = NULL;
    r->arena = NULL;
    r->places_of = NULL;
    r->place_count = 0;
}

void ckpt__torch_roles_free(ckpt__torch *t)
{
    if (!t->roles)
        return;
    forget_places(t->roles);
    ckpt__hash_free(t->roles->beside);
    free(t->roles->places);
    free(t->roles);
    t->roles = NULL;
}

static bool is_optimizer(roles *r, const ckpt_value *v)
{
    if (v != r->maybe_optimizer) {
        r->maybe_optimizer = v;
        r->is_optimizer = ckpt__is_optimizer(v);
    }
    return r->is_optimizer;
}

static void put_id(ckpt__buf *b, const int64_t *number, ckpt_str text)
{
    b->size = 0;
    if (number) {
        ckpt__buf_printf(b, "i%lld", (long long)*number);
    } else {
        ckpt__buf_char(b, 's');
        ckpt__buf_add(b, text.data, text.size);
    }
}

static bool add_place(roles *r, ckpt__buf *key, const place *p)
{
    if (r->place_count >= r->place_limit)
        return true;
    ckpt_str copy = ckpt__arena_str(r->arena, key->data, key->size);
    if (key->failed || !copy.data || !ckpt__grow(&r->places, &r->place_capacity, r->place_count + 1, sizeof *r->places))
        return false;
    r->places[r->place_count++] = *p;
    return ckpt__hash_put(r->ids, copy.data, copy.size, r->place_count - 1, NULL) >= 0;
}

/* libtorch in C++: "param_groups/0": {"params/0": address as a str, ...}. */
static bool learn_script_places(roles *r, const ckpt_value *groups, ckpt__buf *key)
{
    bool ok = true;
    for (size_t g = 0; ok && g < groups->entry_count && r->place_count < r->place_limit; g++) {
        const ckpt_entry *group = &groups->entries[g];
        int64_t number, param;
        if (group->key->kind != CKPT_V_STR || !ckpt__numbered(group->key->text, "param_groups/", &number))
            continue;
        for (size_t i = 0; ok && i < group->value->entry_count; i++) {
            const ckpt_entry *e = &group->value->entries[i];
            if (e->key->kind != CKPT_V_STR || e->value->kind != CKPT_V_STR ||
                !ckpt__numbered(e->key->text, "params/", &param))
                continue;
            put_id(key, NULL, e->value->text);
            ok = add_place(r, key, &(place){(size_t)number, NULL});
        }
    }
    return ok;
}

/* Once for an optimizer: a search of its groups for each tensor would be quadratic. */
static bool learn_places(roles *r, const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    ckpt__buf key = {0};
    forget_places(r);
    r->arena = ckpt__arena_new(0);
    r->ids = ckpt__hash_new(64);
    bool ok = r->arena && r->ids;
    if (ok && groups->kind == CKPT_V_DICT)
        ok = learn_script_places(r, groups, &key);
    for (size_t g = 0; ok && g < groups->item_count && r->place_count < r->place_limit; g++) {
        const ckpt_value *params = ckpt__params_of(groups->items[g]),
                         *names = ckpt_value_get(groups->items[g], "param_names");
        for (size_t i = 0; ok && params && i < params->item_count; i++) {
            const ckpt_value *id = params->items[i];
            place p = {g, NULL};
            if (id->kind != CKPT_V_INT && id->kind != CKPT_V_STR)
                continue;
            if (names && names->kind == CKPT_V_LIST && i < names->item_count && names->items[i]->kind == CKPT_V_STR)
                p.name = names->items[i];
            put_id(&key, id->kind == CKPT_V_INT ? &id->integer : NULL, id->text);
            ok = add_place(r, &key, &p);
        }
    }
    ckpt__buf_free(&key);
    r->places_of = ok ? optimizer : NULL;
    return ok;
}

static bool set_group(ckpt__torch *t, uint64_t number, ckpt_tensor_info *info)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    info->group = ckpt__arena_str(t->arena, text, (size_t)n);
    return info->group.data != NULL;
}

static bool find_group(ckpt__torch *t, const ckpt_value *optimizer, const ckpt_key *id, ckpt_tensor_info *info)
{
    roles *r = t->roles;
    r->place_limit = t->pickle.end;
    if (r->places_of != optimizer && !learn_places(r, optimizer))
        return false;
    ckpt__buf key = {0};
    size_t i;
    put_id(&key, id->text.data ? NULL : &id->number, id->text);
    bool found = !key.failed && !id->other && ckpt__hash_get(r->ids, key.data, key.size, &i);
    bool ok = !key.failed;
    ckpt__buf_free(&key);
    if (!found)
        return ok;
    if (r->places[i].name)
        info->param = r->places[i].name->text;
    return set_group(t, r->places[i].group, info);
}

/* path.keys[at] is a key of the optimizer's dict. */
static bool set_optimizer_role(ckpt__torch *t, const ckpt_value *optimizer, size_t at, ckpt_tensor_info *info)
{
    const ckpt_key *last = &info->path.keys[info->path.count - 1];
    info->role = CKPT_ROLE_OPTIM;
    info->state_key = last->text.data && !last->other ? last->text : (ckpt_str){NULL, 0};
    if (key_is(info, at, "param_groups")) {
        bool numbered = at + 1 < info->path.count && !info->path.keys[at + 1].text.data;
        int64_t group;
        if (at + 1 < info->path.count && !numbered &&
            ckpt__numbered(info->path.keys[at + 1].text, "param_groups/", &group))
            return set_group(t, (uint64_t)group, info);
        return !numbered || set_group(t, (uint64_t)info->path.keys[at + 1].number, info);
    }
    if (info->path.count < at + 3)
        return true;
    const ckpt_key *id = &info->path.keys[at + 1];
    if (info->path.count == at + 3)
        info->role = ckpt__role_of_key(last->text);
    if (id->text.data && !id->other && !ckpt__is_scripted(optimizer)) /* libtorch's are addresses */
        info->param = id->text;
    return find_group(t, optimizer, id, info);
}

/* ---- models */

static bool is_state_dict(roles *r, const ckpt_value *v)
{
    if (v != r->maybe_state_dict) {
        r->maybe_state_dict = v;
        r->is_state_dict = ckpt__looks_like_state_dict(v);
    }
    return r->is_state_dict;
}

static bool is_buffer(const ckpt__torch *t, const ckpt_tensor_info *info, const ckpt__torch_spec *spec, ckpt_str key)
{
    bool parameter = ckpt__str_is(info->extra->class_name, "torch.nn.parameter.Parameter");
    return spec->is_buffer || (t->any_grad && !spec->requires_grad) || ckpt__str_ends(key, "running_mean") ||
           ckpt__str_ends(key, "running_var") || ckpt__str_ends(key, "num_batches_tracked") ||
           (spec->dtype == CKPT_I64 && !parameter); /* no parameter is made of int64 */
}

static bool below_ema(const ckpt_tensor_info *info)
{
    for (size_t i = 0; i + 1 < info->path.count; i++) {
        ckpt_str key = info->path.keys[i].text;
        if (key.data && ckpt__is_average(key))
            return true;
    }
    return false;
}

/* Lightning's ModelCheckpoint: {path of a checkpoint: its score}. */
static bool is_file_of(const ckpt_tensor_info *info, ckpt_str key)
{
    return info->ndim == 0 && key.data && memchr(key.data, '/', key.size);
}

/* ---- random number generators: 1-D uint8, of a generator's size or under a key that says so */

static bool is_rng(const ckpt_tensor_info *info)
{
    static const char *const words[] = {"rng", "RNG", "random", "seed"};
    if (info->dtype != CKPT_U8 || info->ndim != 1)
        return false;
    if (info->nbytes == 5056 || info->nbytes == 5048)
        return true;
    for (size_t i = 0; i < info->path.count; i++)
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            if (ckpt__str_holds(info->path.keys[i].text, words[k]))
                return true;
    return info->nbytes == 16 && info->path.count && ckpt__str_holds(info->path.keys[0].text, "cuda");
}

/* ---- an optimizer's state with a key for each value, maybe among the model's */

static bool is_flat(roles *r, const ckpt_value *v)
{
    if (v != r->maybe_flat) {
        r->maybe_flat = v;
        r->is_flat = ckpt__flat_state(v, &r->prefix);
    }
    return r->is_flat;
}

/* One of its keys, else the role stays. */
static bool set_flat_role(ckpt__torch *t, ckpt_str key, ckpt_tensor_info *info, bool *is)
{
    bool group;
    ckpt_str param, what;
    *is = ckpt__flat_key(key, t->roles->prefix, &group, &param, &what);
    if (!*is)
        return true;
    info->role = group ? CKPT_ROLE_OPTIM : ckpt__role_of_key(what);
    info->param = ckpt__arena_str(t->arena, param.data, param.size);
    info->state_key = what;
    return info->param.data != NULL;
}

/* ---- a model beside its optimizer */

static bool look_beside(roles *r, const ckpt_value *v)
{
    if (v == r->maybe_beside)
        return true;
    ckpt__hash_free(r->beside);
    r->maybe_beside = v;
    return ckpt__beside(v, &r->beside);
}

bool ckpt__torch_set_role(ckpt__torch *t, const ckpt__torch_spec *spec, const ckpt_value *const *containers,
                          ckpt_tensor_info *info)
{
    size_t depth = info->path.count;
    if (!t->roles && !(t->roles = calloc(1, sizeof *t->roles)))
        return false;
    for (size_t i = 0; i < depth; i++)
        if ((key_is(info, i, "state") || key_is(info, i, "param_groups")) && is_optimizer(t->roles, containers[i]))
            return set_optimizer_role(t, containers[i], i, info);
    info->role = is_rng(info) ? CKPT_ROLE_RNG : CKPT_ROLE_OTHER;
    if (info->role == CKPT_ROLE_RNG || depth == 0 || ckpt__torch_old_optimizer(containers[depth - 1], info))
        return true;
    const ckpt_key *key = &info->path.keys[depth - 1];
    bool flat = key->text.data && !key->other && is_flat(t->roles, containers[depth - 1]), of_optimizer = false;
    if (flat && !set_flat_role(t, key->text, info, &of_optimizer))
        return false;
    if (of_optimizer)
        return true;
    if (!look_beside(t->roles, containers[depth - 1]))
        return false;
    if (t->roles->beside && key->text.data && !key->other &&
        ckpt__hash_get(t->roles->beside, key->text.data, key->text.size, NULL)) {
        info->role = is_buffer(t, info, spec, key->text) ? CKPT_ROLE_BUFFER : CKPT_ROLE_PARAM;
        return true;
    }
    if (flat)
        return true;
    if (depth > 1 && info->inside && (key_is(info, depth - 2, "_parameters") || key_is(info, depth - 2, "_buffers")))
        info->role = key_is(info, depth - 2, "_parameters") ? CKPT_ROLE_PARAM : CKPT_ROLE_BUFFER;
    else if (depth > 1 && key_is(info, depth - 2, "shadow_params")) /* a list, as torch_ema and Diffusers keep them */
        info->role = CKPT_ROLE_EMA;
    else if (is_file_of(info, key->text))
        info->role = CKPT_ROLE_OTHER;
    else if (key->text.data && !key->other && is_state_dict(t->roles, containers[depth - 1]))
        info->role = below_ema(info)                       ? CKPT_ROLE_EMA
                     : is_buffer(t, info, spec, key->text) ? CKPT_ROLE_BUFFER
                                                           : CKPT_ROLE_PARAM;
    return true;
}
