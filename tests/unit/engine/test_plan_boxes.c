/* test_plan_boxes.c - the boxes of a bond against a loop over the elements: each element that the target asks for is in one box, and the
 * box says where the source has it. */
#include "plan_cases.h"

static made tensors[TENSORS];

/* What the boxes of one bond have said. */
typedef struct heard {
    const made *m;
    unsigned char named[ROOM];
    size_t boxes, replicas;
} heard;

static void take_element(heard *h, const ckpt__bond_box *box, const int64_t *index, uint64_t from)
{
    const made *m = h->m;
    uint64_t number = 0, at;
    bool found = false;
    for (uint32_t i = 0; i < m->n; i++)
        number = number * (uint64_t)m->shape[i] + (uint64_t)index[i];
    h->named[number]++;
    for (size_t i = 0; i < m->from.count; i++)
        found |= find(&m->from.pieces[i], index, m->shape, m->bytes, &at) && m->from.pieces[i].storage == box->from &&
                 at == from;
    ck_assert_msg(found, "element %llu does not lie at byte %llu of storage %u", (unsigned long long)number,
                  (unsigned long long)from, box->from);
    ck_assert_uint_le(from + m->bytes, box->from_end);
}

static ckpt_status take_box(void *ctx, const ckpt__bond_box *box, ckpt_error *e)
{
    heard *h = ctx;
    const made *m = h->m;
    int64_t index[DIMS] = {0}, within[DIMS] = {0};
    (void)e;
    h->replicas += box->replica;
    h->boxes += !box->replica;
    if (box->replica)
        return CKPT_OK;
    ck_assert_uint_le(box->from_at, box->from_end);
    ck_assert_uint_le(box->to_end, ROOM);
    if (box->flat) {
        for (int64_t k = 0; k < box->size[0]; k++) {
            uint64_t rest = (uint64_t)(box->lo[0] + k);
            for (uint32_t i = m->n; i-- > 0; rest /= (uint64_t)m->shape[i])
                index[i] = (int64_t)(rest % (uint64_t)m->shape[i]);
            take_element(h, box, index, box->from_at + (uint64_t)k * m->bytes);
        }
        return CKPT_OK;
    }
    ck_assert_uint_eq(box->n, m->n);
    do {
        uint64_t at = 0;
        for (uint32_t i = 0; i < m->n; i++) {
            index[i] = (box->lo ? box->lo[i] : 0) + within[i];
            at += (uint64_t)(within[i] * box->strides[i]);
            if (box->piece)
                ck_assert(index[i] >= box->piece[i] && index[i] < box->piece[i] + box->piece[m->n + i]);
        }
        take_element(h, box, index, box->from_at + at * m->bytes);
    } while (next_index(within, m->n, box->size));
    return CKPT_OK;
}

static void compare(uint64_t seed, const heard *h)
{
    const made *m = h->m;
    int64_t index[DIMS] = {0};
    uint64_t number = 0, at;
    if (numel_of(m->n, m->shape) == 0) {
        ck_assert_uint_eq(h->boxes, 0);
        return;
    }
    do {
        unsigned asked = 0;
        for (size_t i = 0; i < m->to.count; i++)
            asked += find(&m->to.pieces[i], index, m->shape, m->to_bytes, &at);
        ck_assert_msg(h->named[number] == asked, "seed %llu: element %llu was named %u times, and asked for %u times",
                      (unsigned long long)seed, (unsigned long long)number, h->named[number], asked);
        number++;
    } while (next_index(index, m->n, m->shape));
}

START_TEST(random_bonds)
{
    static expected want;
    static heard h;
    uint64_t cases = getenv("CKPT_TEST_FEW") ? 50 : 1500, plans = 0, boxes = 0;
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    for (uint64_t seed = 1; seed <= cases; seed++) {
        ckpt__bond bonds[TENSORS];
        ckpt__op ops[TENSORS];
        size_t count = make_case(seed, tensors, &want);
        ckpt__plan *plan = NULL;
        bool fits = add_case(tensors, count, &want, bonds, ops);
        ckpt__plan_want asked = {.from = source->index,
                                 .to = target->index,
                                 .bonds = bonds,
                                 .bond_count = count,
                                 .ops = ops,
                                 .op_count = count};
        if (fits && ckpt__plan_new(&asked, &plan, &err) == CKPT_OK) {
            plans++;
            for (size_t i = 0; i < count; i++) {
                memset(&h, 0, sizeof h);
                h.m = &tensors[bonds[i].from];
                ck_assert_int_eq(ckpt__plan_bond_boxes(plan, i, take_box, &h, &err), CKPT_OK);
                compare(seed, &h);
                boxes += h.boxes;
            }
        }
        ckpt__plan_free(plan);
        ckpt__index_free(source->index);
        ckpt__index_free(target->index);
    }
    ck_assert_uint_gt(plans, cases / 2);
    ck_assert_uint_gt(boxes, 3 * plans);
    free(source);
    free(target);
}
END_TEST

static ckpt_status refuse(void *ctx, const ckpt__bond_box *box, ckpt_error *e)
{
    (void)ctx;
    (void)box;
    (void)e;
    return CKPT_E_CANCELLED;
}

/* A storage is one box of bytes; a negative answer ends the call. */
START_TEST(a_storage)
{
    ckpt__bond bond = {.to = 0, .from = 2, .op = CKPT__OP_BYTES, .flags = CKPT__BOND_STORAGE};
    ckpt__plan *plan;
    static heard h;
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    new_side(source, 0);
    new_side(target, 0);
    ckpt__plan_want asked = {.from = source->index, .to = target->index, .bonds = &bond, .bond_count = 1};
    static const int64_t shape[] = {ROOM};
    static made bytes = {.dtype = CKPT_U8, .bytes = 1, .to_bytes = 1, .n = 1, .shape = {ROOM}};
    ck_assert_int_eq(ckpt__plan_new(&asked, &plan, &err), CKPT_OK);
    add_box(&bytes.from, 1, (const int64_t[]){0}, shape);
    bytes.from.pieces[0].storage = 2;
    bytes.from.pieces[0].box[2] = 1;
    h.m = &bytes;
    ck_assert_int_eq(ckpt__plan_bond_boxes(plan, 0, take_box, &h, &err), CKPT_OK);
    ck_assert(h.boxes == 1 && h.named[0] == 1 && h.named[ROOM - 1] == 1);
    ck_assert_int_eq(ckpt__plan_bond_boxes(plan, 0, refuse, NULL, &err), CKPT_E_CANCELLED);
    ckpt__plan_free(plan);
    ckpt__index_free(source->index);
    ckpt__index_free(target->index);
    free(source);
    free(target);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plan_boxes");
    TCase *t = tcase_create("plan_boxes");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, random_bonds);
    tcase_add_test(t, a_storage);
    suite_add_tcase(s, t);
    return run_suite(s);
}
