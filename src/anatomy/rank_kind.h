/* anatomy/rank_kind.h - what a name says of something that each rank has for itself. */
#ifndef CKPT_ANATOMY_RANK_KIND_H
#define CKPT_ANATOMY_RANK_KIND_H
#include "base/base.h"

typedef enum ckpt__rank_kind {
    CKPT__OF_GENERATORS, /* random generators */
    CKPT__OF_DATA,       /* a sampler, or the place of a loader in the data */
    CKPT__OF_OTHER       /* any other value that ranks have under names of their own (OWN alone) */
} ckpt__rank_kind;

/* Does the path say what it is? *kind is OTHER where it does not. */
bool ckpt__rank_kind_of(ckpt_str path, ckpt__rank_kind *kind);
#endif
