/* migrate/same.h - --to same: what as_folder.c and same_shards.c share. */
#ifndef CKPT_MIGRATE_SAME_H
#define CKPT_MIGRATE_SAME_H
#include "migrate/out.h"

/* One file of the source that holds tensors or values. A part that is not `changed` is copied byte for byte,
 * but for a torch file where values are edited. */
typedef struct ckpt__same_part {
    ckpt_str name;              /* the file's, borrowed from the source's index or tree */
    ckpt_str called;            /* its name in the target; data NULL: the same */
    const ckpt__format *format; /* static; NULL: not known */
    bool changed;               /* a tensor of the file changes its tag, dtype or name, or stays behind */
    bool other;                 /* the same, tags left out of account */
    bool left;                  /* a shard of which every tensor stays behind: the file does, too */
    size_t first, count;        /* its tensors: `count` numbers of m->chosen, from `first` on. sort_chosen sorts
                                   * m->chosen by parts */
} ckpt__same_part;

/* The work of ckpt__same_files. Tensor i is read from parts[part_of[i]]. */
typedef struct ckpt__same {
    ckpt__out *w;
    ckpt__migration *m;
    ckpt__same_part *parts;
    size_t count, capacity; /* heap, owned */
    size_t left;            /* parts that are left */
    ckpt__hash *by_name;    /* file name -> part */
    ckpt__hash *away;       /* borrowed: names of the source's files that are not copied */
    size_t *part_of;        /* heap, one a tensor of the source: number of its part; SIZE_MAX: none */
    ckpt_error *err;
} ckpt__same;

/* ---- same_shards.c */
/* Says which shards are left, and puts them into s->away. After m->chosen is sorted. */
ckpt_status ckpt__same_leave(ckpt__same *s);
/* {"__metadata__": ...} of a shard of safetensors, which is not in the model's dict; {} where it has none. */
ckpt_status ckpt__same_metadata(ckpt__same *s, const ckpt__same_part *p, const ckpt_value **root);
/* `e` is the root's entry of a model in shards; has_index: it is named for the index file, which is written again where `changed`,
 * where shards are left, and with salvage where it names what is not there. Else an index is made where one is needed by now, and
 * the entry gets its name, as it is read back. */
ckpt_status ckpt__same_index(ckpt__same *s, const ckpt_entry *e, bool has_index, bool changed);
#endif
