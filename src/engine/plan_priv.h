/* engine/plan_priv.h - what the files of the plan share. */
#ifndef CKPT_PLAN_PRIV_H
#define CKPT_PLAN_PRIV_H
#include "engine/plan.h"
#include "model/box.h"

/* One side of a bond of which a tensor is split: its pieces as boxes, all in the same coordinates. The coordinates are those of the
 * tensor, or, where all pieces on both sides are ranges of its elements in C order, those of the flattened tensor (flat). Bonds
 * that need the same side share it. */
typedef struct ckpt__side {
    const ckpt__tensor *tensor;
    uint32_t n;  /* dimensions; flat: 1 */
    bool target; /* of the target's index; else of the source's */
    bool flat;   /* boxes are {begin, count} */
    bool sorted; /* the rows lie one behind the other along dimension `along`, and are alike else: none meets another */
    uint32_t along;
    const ckpt__piece *rows; /* of the index, or in the plan's arena; where not `flat`, none is CKPT__PIECE_FLAT */
    size_t count;            /* rows */
    unsigned char *left_out; /* in the arena, one a row: a replica of another row; NULL: none is */
    ckpt__boxes *tree;       /* owned; NULL where there is one row, or none, or where they are sorted */
} ckpt__side;

/* One piece, or one whole tensor, that is written or read: where it lies makes its place among the others, so it is kept: to look
 * it up at each comparison takes longer than all else. */
typedef struct ckpt__unit {
    uint64_t begin, end; /* bytes of the storage: first, and past the last */
    uint32_t bond;       /* UINT32_MAX: a fill */
    uint32_t row; /* of the bond's side; of a fill its number; of a storage 0 its elements, 1 the bytes behind them */
} ckpt__unit;

/* The units of one direction, by storage and place. Which of them lie in a range is found without looking at all: most[0] has the
 * largest end of each 64 units, most[1] of each 4096; both NULL where there are few. */
typedef struct ckpt__units {
    ckpt__unit *items; /* owned, as is the rest */
    uint32_t *first;   /* one a storage, and one more: items[first[s] .. first[s + 1]) */
    uint64_t *most[2];
    size_t count;
} ckpt__units;

enum { CKPT__NEAR = 64, CKPT__FAR = 4096 };

struct ckpt__plan {
    ckpt__plan_want want; /* borrowed */
    ckpt__arena *arena;   /* owned: rows and boxes that were made; NULL: no bonded tensor is split */
    ckpt__side *sides;    /* owned */
    size_t side_count, side_capacity;
    /* Owned: numbers in `sides`, of the source and of the target, UINT32_MAX twice where neither is split; NULL: no
     * bonded tensor is. */
    uint32_t (*of_bond)[2];
    uint32_t *side_of[2][2]; /* owned, while the plan is made: [source, target][flat], a number a tensor */
    unsigned char *alias; /* owned: a bit a bond: its tensor lies in bytes that another bond writes alike; NULL: none */
    ckpt__units out, in;  /* by target storage; by source storage (push) */
    ckpt__plan_totals totals;
    uint64_t work; /* comparisons so far */
};

/* Where a row lies in the storages of its direction: its first byte, and past its last. */
typedef struct ckpt__span_of {
    uint32_t storage;
    uint64_t begin, end;
} ckpt__span_of;

/* A view in bytes: what two sides have in common of one is put together from these. */
typedef struct ckpt__lie {
    const int64_t *lo, *size; /* n each; lo NULL: zeros */
    uint32_t n;
    uint64_t at;
    uint32_t storage;
    bool strided;
    int64_t strides[CKPT__BOX_MAX]; /* elements */
} ckpt__lie;

extern const ckpt__op ckpt__op_of_bytes; /* what CKPT__OP_BYTES is */
static inline const ckpt__op *ckpt__plan_op(const ckpt__plan *p, uint16_t op)
{
    return op == CKPT__OP_BYTES ? &ckpt__op_of_bytes : &p->want.ops[op];
}
static inline bool ckpt__is_alias(const ckpt__plan *p, size_t bond)
{
    return p->alias && p->alias[bond / 8] >> (bond % 8) & 1;
}
static inline const ckpt__side *ckpt__side_of_bond(const ckpt__plan *p, size_t bond, bool target)
{
    return p->of_bond && p->of_bond[bond][0] != UINT32_MAX ? &p->sides[p->of_bond[bond][target]] : NULL;
}

/* ---- plan_sides.c */
/* Makes the sides of all bonds that need them, and proves them: the rows of a source do not meet, and cover each row of the target. */
ckpt_status ckpt__plan_make_sides(ckpt__plan *plan, ckpt_error *err);
void ckpt__plan_free_sides(ckpt__plan *plan);
void ckpt__side_row(const ckpt__side *side, size_t row, ckpt__lie *out);
/* Each row that meets the box, and what both have. */
ckpt_status ckpt__side_each(const ckpt__side *side, const int64_t *lo, const int64_t *size, ckpt__meet_fn *fn,
                            void *ctx, uint64_t *work, ckpt_error *err);

/* ---- plan_units.c */
ckpt_status ckpt__plan_make_units(ckpt__plan *plan, bool target, ckpt_error *err);
void ckpt__units_free(ckpt__units *units);
/* Of a row of a bond; not of a fill. */
ckpt__span_of ckpt__row_span(const ckpt__plan *plan, bool target, size_t bond, size_t row);
/* Rows of a bond on a side. */
size_t ckpt__bond_rows(const ckpt__plan *plan, size_t bond, bool target);

/* ---- plan_check.c */
/* Of the units of the target: each byte is written once, ties agree, and a `whole` storage has no gap. */
ckpt_status ckpt__plan_check_storages(ckpt__plan *plan, ckpt_error *err);
#endif
