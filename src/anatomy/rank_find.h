/* anatomy/rank_find.h - what rank_state.c and rank_keys.c share. */
#ifndef CKPT_ANATOMY_RANK_FIND_H
#define CKPT_ANATOMY_RANK_FIND_H
#include "anatomy/rank_state.h"
#include "base/pointers.h"

enum { CKPT__RANK_DEPTH = 6 }; /* keys to a place of a rank: deeper none is looked for */

typedef struct ckpt__rank_finder {
    const ckpt__index *index; /* borrowed */
    ckpt__arena *arena;       /* borrowed */
    ckpt__rank_states *out;   /* borrowed */
    ckpt__hash *by_name;      /* owned: name of a state -> its number */
    ckpt__pointers seen;      /* owned: parts, and dicts and lists that were looked into */
    const char *own_name;     /* IN_OWN: "rank_*", for the name of the state */
    size_t own_head;          /* IN_OWN: bytes of the rank's dict in the name of a part, with the dot */
    bool shuffles;            /* llm.c: each process has a shuffle of its own */
} ckpt__rank_finder;

/* One part more of the state of that name and form, which is made where there is none. False: no memory. */
bool ckpt__rank_add(ckpt__rank_finder *f, ckpt__rank_state like, ckpt__rank_part part);
/* Each item of the list at `path`, of so many keys, is a rank's. */
bool ckpt__rank_add_items(ckpt__rank_finder *f, ckpt_str path, size_t depth, const ckpt_value *list,
                          ckpt__rank_kind kind);
/* The number behind the last "rank", "rank_" or "rank-" of a name: its digits are [*begin, *end). -1: there is none. */
int64_t ckpt__rank_digits(ckpt_str name, size_t *begin, size_t *end);

/* rank_keys.c: dicts with a key of each rank, and lists with an item of each, wherever they are. */
bool ckpt__rank_look_below(ckpt__rank_finder *f);
#endif
