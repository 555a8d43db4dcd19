/* migrate/whole_state.h - a state that binds all that a checkpoint has names for: what is restored into it from another
 * checkpoint is compared with what the first one holds. */
#ifndef WHOLE_STATE_H
#define WHOLE_STATE_H
#include <ckpt/ckpt.h>
#include "anatomy/canon.h"
#include "reader/reader.h"

/* Is the name not to be bound, for a reason that the test knows? The test defines it. */
static bool is_meant(const char *fixture, const char *way, const char *name);

/* One thing that is bound: a tensor's elements, or the variable of a value. Both are told from what was there before. */
typedef struct thing {
    const ckpt__canon_entry *entry;
    char *name;
    unsigned char *data; /* heap */
    size_t size;         /* bytes */
} thing;

typedef struct picture {
    ckpt_reader *reader;
    ckpt__canon *canon;
    ckpt_state *state;
    thing *things;
    size_t count;
    const char **loose; /* names that a state cannot bind here: None, integers of over 64 bits, quantized tensors */
    size_t loose_count;
} picture;

enum { BEFORE = 0x5a };

static inline bool is_text(ckpt_str s)
{
    return s.size > 0 && strlen(s.data) == s.size;
}

static inline bool is_bound_tensor(const ckpt__tensor *t)
{
    return ckpt_dtype_size(t->info.dtype) > 0 && !t->info.extra->layout.data && !t->info.extra->quantizer.data &&
           !(ckpt__has_no_bytes(t) && t->info.nbytes);
}

static inline size_t size_of(const ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_BOOL:
        return sizeof(bool);
    case CKPT_V_INT:
        return sizeof(int64_t);
    case CKPT_V_FLOAT:
        return sizeof(double);
    case CKPT_V_STR:
        return v->text.size + 1;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return v->text.size;
    default:
        return SIZE_MAX;
    }
}

static inline ckpt_status bind_value(ckpt_state *state, const char *name, const ckpt_value *v, void *data, size_t size,
                                     ckpt_error *err)
{
    switch (v->kind) {
    case CKPT_V_BOOL:
        return ckpt_state_bool(state, name, data, err);
    case CKPT_V_INT:
        return ckpt_state_i64(state, name, data, err);
    case CKPT_V_FLOAT:
        return ckpt_state_f64(state, name, data, err);
    case CKPT_V_STR:
        return ckpt_state_string(state, name, data, size, err);
    default:
        return ckpt_state_bytes(state, name, data, size, err);
    }
}

static inline ckpt_status bind_tensor(ckpt_state *state, const char *name, const ckpt__canon_entry *e,
                                      const ckpt_tensor_info *info, void *data, ckpt_error *err)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.dtype = info->dtype;
    d.ndim = info->ndim;
    d.shape = info->shape;
    d.role = e->outside ? CKPT_ROLE_OTHER : e->role;
    d.param = e->param.data;
    d.state_key = e->state_key.data;
    d.data = data;
    return ckpt_state_tensor(state, &d, err);
}

/* A state binds it under this name; false: a state cannot. */
static inline bool bind(picture *p, const ckpt__canon_entry *e, const char *name)
{
    const ckpt_tensor_info *info = e->is_tensor ? &p->reader->index->tensors[e->tensor].info : NULL;
    size_t size = info ? (size_t)info->nbytes : size_of(e->value);
    if (size == SIZE_MAX || !is_text(e->name) || (info && !is_bound_tensor(&p->reader->index->tensors[e->tensor])))
        return false;
    thing t = {e, strdup(name), malloc(size + 1), size};
    ck_assert(t.name && t.data);
    memset(t.data, BEFORE, size);
    if (e->value && e->value->kind == CKPT_V_BOOL)
        *(bool *)(void *)t.data = false;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = info ? bind_tensor(p->state, t.name, e, info, t.data, &err)
                              : bind_value(p->state, t.name, e->value, t.data, size, &err);
    if (status != CKPT_OK) {
        if (getenv("AGREE_SAY"))
            printf("# not bound: %s: %s\n", name, err.message);
        free(t.name);
        free(t.data);
        return false;
    }
    p->things[p->count++] = t;
    return true;
}

static inline void bind_all(picture *p, const char *fixture, const char *way)
{
    for (size_t i = 0; i < p->canon->count; i++) {
        const ckpt__canon_entry *e = &p->canon->entries[i];
        if (is_meant(fixture, way, e->name.data) || !bind(p, e, e->name.data))
            p->loose[p->loose_count++] = e->name.data;
    }
}

static inline void forget(picture *p)
{
    ckpt_state_free(p->state);
    for (size_t i = 0; i < p->count; i++) {
        free(p->things[i].name);
        free(p->things[i].data);
    }
    free(p->things);
    free(p->loose);
    ckpt__canon_free(p->canon);
    ckpt_reader_close(p->reader);
    *p = (picture){.reader = NULL};
}

/* What is below the path, and a state of it. Where it cannot be, all is NULL or as far as it went: forget it. */
static inline ckpt_status look(picture *p, const char *path, const char *fixture, const char *way, ckpt_error *err)
{
    ckpt__canon_hints hints = {.optional_optimizer = true};
    *p = (picture){.reader = NULL};
    ckpt_status status = ckpt_reader_open(path, NULL, &p->reader, err);
    if (status == CKPT_OK)
        status = ckpt__canon_build(p->reader->index, &hints, &p->canon, NULL, err);
    if (status != CKPT_OK)
        return status;
    p->state = ckpt_state_new();
    p->things = calloc(p->canon->count + 1, sizeof *p->things);
    p->loose = calloc(p->canon->count + 1, sizeof *p->loose);
    ck_assert(p->state && p->things && p->loose);
    bind_all(p, fixture, way);
    return CKPT_OK;
}

/* The groups, as a state says them beside its parameters. */
static inline void bind_groups(picture *p)
{
    for (size_t g = 0; g < p->canon->group_count; g++) {
        const ckpt__canon_group *from = &p->canon->groups[g];
        ckpt_group_desc d = CKPT_GROUP_DESC_INIT;
        const char **params = calloc(from->param_count + 1, sizeof *params);
        ckpt_error err = CKPT_ERROR_INIT;
        ck_assert_ptr_nonnull(params);
        for (size_t i = 0; i < from->param_count; i++)
            params[i] = from->params[i].data;
        d.name = from->name.data;
        d.params = params;
        d.param_count = from->param_count;
        ckpt_status status = ckpt_state_group(p->state, &d, &err);
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_NOT_FOUND, "%s", err.message);
        free(params);
    }
}

static inline void clear(picture *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->things[i].entry->is_tensor || p->things[i].entry->value->kind != CKPT_V_BOOL)
            memset(p->things[i].data, BEFORE, p->things[i].size);
}

/* The bytes that the variable of a value has when it was restored. */
static inline void want_value(const ckpt_value *v, unsigned char *want, size_t size)
{
    memset(want, BEFORE, size);
    if (v->kind == CKPT_V_BOOL)
        memcpy(want, &v->boolean, size);
    else if (v->kind == CKPT_V_INT)
        memcpy(want, &v->integer, size);
    else if (v->kind == CKPT_V_FLOAT)
        memcpy(want, &v->real, size);
    else
        memcpy(want, v->text.data ? v->text.data : "", size);
}
#endif
