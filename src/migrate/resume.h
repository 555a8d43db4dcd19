/* migrate/resume.h - directories that a training program resumes from: what the files that write them share. */
#ifndef CKPT_MIGRATE_RESUME_H
#define CKPT_MIGRATE_RESUME_H
#include "migrate/out.h"

/* Is one of them written? */
static inline bool ckpt__resumes(const ckpt__migration *m)
{
    return ckpt__is_universal(m) || ckpt__is_trainers(m) || ckpt__is_fsdps(m);
}

/* When all names are known, before the target is described: each parameter with moments has its step as a float32 tensor, a state lies
 * in a storage of its own, and what DeepSpeed wants as float32 becomes that. */
ckpt_status ckpt__resume_ready(ckpt__migration *m, ckpt_error *err);
/* The step alone, in m->from->step: of its values, or of all its optimizer's parameters alike. -1: nothing says it. */
ckpt_status ckpt__resume_step(ckpt__migration *m, ckpt_error *err);

/* The files of the directory, from m->root, which is the dict of a torch file with one optimizer (torch.h); what cannot be written
 * is "lost". A target of which nobody could resume is refused. */
ckpt_status ckpt__universal_files(ckpt__out *w);
ckpt_status ckpt__trainer_files(ckpt__out *w);

/* A universal checkpoint as a part of the directory. tag: its folder; data NULL: global_step<N>_universal, which latest_universal names.
 * elsewhere: one an entry of m->root, those that have a file beside it; NULL: none has. */
ckpt_status ckpt__universal_in(ckpt__out *w, ckpt_str tag, const bool *elsewhere);

/* ---- resume.c: dicts on their way, in the arena of the target's index */
typedef struct ckpt__made_dict {
    ckpt__arena *arena;
    ckpt_entry *entries;
    size_t count, capacity; /* heap, until it is finished */
    bool failed;            /* memory was short */
} ckpt__made_dict;
void ckpt__made_put(ckpt__made_dict *d, const ckpt_value *key, const ckpt_value *value); /* NULL: memory was short */
void ckpt__made_put_as(ckpt__made_dict *d, const char *key, const ckpt_value *value);
const ckpt_value *ckpt__made_finish(ckpt__made_dict *d); /* NULL: memory was short */

const ckpt_value *ckpt__made_without(ckpt__arena *a, const ckpt_value *dict,
                                     const ckpt_value *value); /* NULL likewise */

/* A parameter of the optimizer in m->root. */
typedef struct ckpt__trained {
    ckpt_str name;
    size_t group;            /* number of its group */
    const ckpt_value *state; /* its dict; NULL: it has none */
    size_t weight;           /* number of the model's tensor of the name; SIZE_MAX: there is none */
} ckpt__trained;

/* The optimizer in m->root, taken apart. */
typedef struct ckpt__trained_parts {
    const ckpt_value *model, *optimizer, *groups; /* the dicts, and the list of groups; NULL: there is none */
    ckpt__trained *params;                        /* heap: in the order of the groups */
    size_t count;
    ckpt__hash *by_name; /* name of a parameter -> number in params */
} ckpt__trained_parts;
ckpt_status ckpt__trained_take(const ckpt__migration *m, ckpt__trained_parts *out, ckpt_error *err);
void ckpt__trained_free(ckpt__trained_parts *o);
/* The master among the tensors of a parameter's state (NULL: it has none); NULL: there is none. */
const ckpt_value *ckpt__master_in(const ckpt__migration *m, const ckpt_value *state);

/* The value at a key of a dict that has any bytes; NULL: there is none. */
const ckpt_value *ckpt__at(const ckpt_value *dict, const char *key);
/* The settings of a group without its parameters and their names; NULL: memory is short. */
const ckpt_value *ckpt__settings_of(ckpt__arena *a, const ckpt_value *group);
/* What the optimizer's dict has beside its states and groups is lost. */
ckpt_status ckpt__lose_settings(ckpt__migration *m, const ckpt_value *optimizer, ckpt_error *err);
/* m->root with weights at the root and a flat optimizer, from a DCP's (to_torchtitan.c). */
ckpt_status ckpt__torchtitan_root(ckpt__migration *m, ckpt_error *err);
/* The scheduler's dict, as programs call it; NULL: there is none. */
const ckpt_value *ckpt__scheduler_of(const ckpt_value *root);
/* Tags name devices of the job that saved: each rank takes its part of each file to its own. Where no map says otherwise, the target's
 * say cpu. */
void ckpt__tag_as_host(const ckpt__migration *m);
/* "a, b and 3 more" */
void ckpt__put_name(ckpt__buf *b, size_t number, ckpt_str name);
ckpt_status ckpt__lose(ckpt__migration *m, ckpt_error *err, const char *format, ...) CKPT__PRINTF(3, 4);
/* What the program that resumes makes of the target. fix: NULL: there is none. */
ckpt_status ckpt__warn(ckpt__migration *m, const char *code, ckpt_error *err, const char *fix, const char *format, ...)
    CKPT__PRINTF(5, 6);
#endif
