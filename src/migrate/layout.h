/* migrate/layout.h - --layout: the source's tensors become those of another program (src/layout), and with them what its optimizer has
 * of each. From then on the source is as one with canonical names: each step behind it sees the other program's tensors, as if a file
 * had them in pieces. */
#ifndef CKPT_MIGRATE_LAYOUT_H
#define CKPT_MIGRATE_LAYOUT_H
#include "layout/layout.h"
#include "migrate/migration.h"

enum { CKPT__LAYOUT_SIZE = 1 << 20 }; /* bytes of a layout at most */

/* Something that belongs to a name: the tensor itself, a state of it, or a number. */
typedef struct ckpt__laid_item {
    size_t entry;        /* number of the canonical entry */
    size_t next;         /* the name's next item; SIZE_MAX: none */
    ckpt_str head, tail; /* around the tensor's name: "optimizer.", ".exp_avg"; of the tensor itself both are empty */
} ckpt__laid_item;

/* A tensor of the source's index that was made as another name of one: its target may have the same bytes. */
typedef struct ckpt__laid_tie {
    size_t made, of; /* numbers */
} ckpt__laid_tie;

/* The layout that was followed, and what became of the source by it. */
typedef struct ckpt__followed {
    ckpt__layout *layout;
    ckpt__layout_match *match;
    ckpt__laid_tie *ties; /* heap, owned */
    size_t tie_count;
} ckpt__followed;
void ckpt__followed_free(ckpt__followed *followed);

/* The work of ckpt__migrate_layout. */
typedef struct ckpt__laying {
    ckpt__migration *m;
    ckpt__layout *layout;      /* owned, until it was followed */
    ckpt__layout_match *match; /* likewise */
    ckpt__layout_name
        *names; /* heap, owned: each tensor of the model once; weights and states apart where the layout has them so */
    size_t *items_of; /* heap, one a name: its first item */
    size_t name_count, name_capacity, of_capacity;
    ckpt__laid_item *items; /* heap, owned */
    size_t item_count, item_capacity;
    ckpt__hash *by_name;   /* owned: name -> its number, of its states where they have one of their own */
    ckpt__hash *by_weight; /* owned: name -> the number of its weights, where they have one of their own; else NULL */
    ckpt__arena *arena;    /* owned: pieces of one use */
    ckpt__laid_tie *ties;
    size_t tie_count, tie_capacity; /* heap, owned, until it was followed */
    uint32_t zero;                  /* the storage that padding is of; it is there once something is padded */
    ckpt_error *err;
} ckpt__laying;

/* The file of --layout, read. */
ckpt_status ckpt__migrate_read_layout(ckpt__migration *m, ckpt__layout **out, ckpt_error *err);
/* open: where the source is files of ranks of a side of the layout, m->reader has them put together; else it stays NULL (ranks.c). */
ckpt_status ckpt__migrate_open_ranks(ckpt__migration *m, ckpt_error *err);
/* rewrite: after the tree is what goes along, before anything is named for the target. */
ckpt_status ckpt__migrate_layout(ckpt__migration *m, ckpt_error *err);

/* ---- layout_states.c */
ckpt_status ckpt__laying_find(ckpt__laying *l); /* names, and what belongs to each */
/* What a rule drops though it is another name of a tensor that goes on: is it the same? Before any tensor has become another. */
ckpt_status ckpt__laying_check_drop(ckpt__laying *l, const ckpt__layout_use *use);
/* The entries of a use become those of its outputs. */
ckpt_status ckpt__laying_use(ckpt__laying *l, const ckpt__layout_use *use);
ckpt_status ckpt__laying_tie(ckpt__laying *l, const ckpt__layout_tie *tie);
/* ---- layout_groups.c: the parameters of each group, under their new names */
ckpt_status ckpt__laying_groups(ckpt__laying *l);
/* ---- layout_pieces.c */
/* Tensor i as pieces. */
ckpt_status ckpt__laying_lay(ckpt__laying *l, size_t tensor, ckpt__lay *out);
/* Tensor i is made of these from now on. */
ckpt_status ckpt__laying_set(ckpt__laying *l, size_t tensor, const ckpt__lay *lay);
#endif
