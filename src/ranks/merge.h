/* ranks/merge.h - what the files that make one tree of the trees of all ranks share: merge.c, leaves.c and stages.c. */
#ifndef CKPT_RANKS_MERGE_H
#define CKPT_RANKS_MERGE_H
#include "model/trees.h"
#include "ranks/ranks.h"

/* Who has a tree: one file, or all files of a stage, whose trees are one by then. */
typedef struct ckpt__ranks_source {
    const ckpt__ranks_file *const *files;
    size_t count;
} ckpt__ranks_source;

/* The files of a stage become one tree, and then the stages do. A place (ckpt__place) has a value for each source. */
typedef struct ckpt__ranks_merger {
    ckpt__ranks *r;
    const ckpt__ranks_group *group;
    const ckpt__ranks_source *sources;
    size_t count;
    size_t stage;   /* of all sources; SIZE_MAX: the sources are the stages */
    ckpt__buf path; /* of the place */
} ckpt__ranks_merger;

static inline ckpt_str ckpt__ranks_path(const ckpt__ranks_merger *m)
{
    return (ckpt_str){m->path.data ? m->path.data : "", m->path.size};
}

/* ---- leaves.c. *out NULL: nothing of it is common to all. */
ckpt_status ckpt__ranks_merge_value(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                    ckpt__entries *own);
ckpt_status ckpt__ranks_merge_tensors(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                      ckpt__entries *own);
/* May ranks have another one each, by what it is called and by the layout? */
bool ckpt__ranks_is_own(const ckpt__ranks_merger *m);
ckpt_status ckpt__ranks_not_same(const ckpt__ranks_merger *m, size_t one, size_t other, const char *what);

/* ---- merge.c */
ckpt_status ckpt__ranks_merge_place(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                    ckpt__entries *own);
/* Of dicts, or of lists of one length. */
ckpt_status ckpt__ranks_merge_dicts(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                    ckpt__entries *own);

/* ---- stages.c */
/* Are these the optimizers of the stages, with their groups? */
bool ckpt__ranks_are_optimizers(const ckpt__ranks_merger *m, const ckpt__place *at);
/* Each of which numbers its own parameters. */
ckpt_status ckpt__ranks_merge_optimizers(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                         ckpt__entries *own);
#endif
