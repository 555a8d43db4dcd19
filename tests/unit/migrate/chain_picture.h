/* migrate/chain_picture.h - what a checkpoint holds under canonical names, against the training that it was made of. */
#ifndef CHAIN_PICTURE_H
#define CHAIN_PICTURE_H
#include "anatomy/canon.h"
#include "chain_sources.h"
#include "reader/reader.h"

typedef struct picture {
    ckpt_reader *reader;
    ckpt__canon *canon;
    bool *seen; /* one an entry of the canon: the training has it */
} picture;

static inline void forget(picture *p)
{
    ckpt__canon_free(p->canon);
    ckpt_reader_close(p->reader);
    free(p->seen);
    *p = (picture){.reader = NULL};
}

/* The names of the parameters in the order of the optimizer. */
static inline size_t optimizer_order(const training *t, const char **names)
{
    size_t n = 0;
    for (size_t g = 0; g < t->group_count; g++)
        for (size_t i = 0; i < t->group_sizes[g]; i++)
            names[n++] = t->things[t->groups[g][i]].name;
    return n;
}

/* numbered: the optimizer has no names, and gets them in the order of the training. */
static inline ckpt_status look(picture *p, const char *path, const training *t, bool numbered, ckpt_error *err)
{
    const char *names[CHAIN_PARAMS * CHAIN_GROUPS];
    ckpt__canon_hints hints = {.optional_optimizer = true};
    *p = (picture){.reader = NULL};
    if (numbered) {
        hints.param_names = names;
        hints.param_name_count = optimizer_order(t, names);
    }
    ckpt_status status = ckpt_reader_open(path, NULL, &p->reader, err);
    if (status == CKPT_OK)
        status = ckpt__canon_build(p->reader->index, &hints, &p->canon, NULL, err);
    if (status == CKPT_OK)
        ck_assert_ptr_nonnull(p->seen = calloc(p->canon->count + 1, sizeof *p->seen));
    return status;
}

/* NULL: there is none. */
static inline const ckpt__canon_entry *entry_of(const picture *p, const char *name)
{
    size_t i;
    if (!ckpt__hash_get(p->canon->by_name, name, strlen(name), &i))
        return NULL;
    p->seen[i] = true;
    return &p->canon->entries[i];
}

static inline const ckpt_tensor_info *info_of(const picture *p, const ckpt__canon_entry *e)
{
    return &p->reader->index->tensors[e->tensor].info;
}

/* Its elements: heap. */
static inline unsigned char *elements_of(const picture *p, const ckpt__canon_entry *e)
{
    const size_t n = (size_t)info_of(p, e)->nbytes;
    ckpt_error err = CKPT_ERROR_INIT;
    unsigned char *held = malloc(n + 1);
    ck_assert_ptr_nonnull(held);
    ck_assert_msg(ckpt_reader_read(p->reader, e->tensor, held, n, &err) == CKPT_OK, "%s: %s: %s", p->reader->path,
                  err.object, err.message);
    return held;
}

/* Does the tensor hold these elements, of this dtype? */
static inline bool holds(const picture *p, const ckpt__canon_entry *e, ckpt_dtype dtype, const thing *x,
                         const unsigned char *want)
{
    const ckpt_tensor_info *i = info_of(p, e);
    if (i->dtype != dtype || i->ndim != x->ndim || (x->ndim && memcmp(i->shape, x->shape, x->ndim * sizeof *x->shape)))
        return false;
    unsigned char *held = elements_of(p, e);
    const bool same = memcmp(held, want, x->count * ckpt_dtype_size(dtype)) == 0;
    free(held);
    return same;
}

/* The value of a number, whether it is one or a tensor of one element. */
static inline bool holds_setting(const picture *p, const ckpt__canon_entry *e, const setting *s)
{
    const ckpt_value *v = e->value;
    if (e->is_tensor) {
        if (s->kind != CKPT_V_BYTES || info_of(p, e)->nbytes != s->size)
            return false;
        unsigned char *held = elements_of(p, e);
        const bool same = memcmp(held, s->text, s->size) == 0;
        free(held);
        return same;
    }
    if (v->kind != s->kind)
        return false;
    return s->kind == CKPT_V_INT     ? v->integer == s->integer
           : s->kind == CKPT_V_FLOAT ? memcmp(&v->real, &s->real, sizeof s->real) == 0
           : s->kind == CKPT_V_BOOL  ? v->boolean == s->boolean
                                     : v->text.size == s->size && memcmp(v->text.data, s->text, s->size) == 0;
}
#endif
