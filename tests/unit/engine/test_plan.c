/* The plan by brute force: random tensors in random pieces on both sides (plan_cases.h). Pieces are then broken on purpose: where the
 * loop finds an element with no source, or two, or a byte that two write, the plan must refuse; and it must refuse nowhere else.
 *
 * CKPT_PLAN_CASES: how many cases; 2000 where it is not set. CKPT_PLAN_SEED: of the first. */
#include "plan_cases.h"

/* ---- running the plan */

typedef struct runner {
    const ckpt__op *ops;
    bool pull;
    uint32_t storage;
    uint64_t begin, end;
    unsigned char (*out)[ROOM]; /* what comes out */
    uint32_t (*seen)[ROOM];     /* the question that last had a byte of the asked side; of the target, the byte */
    uint32_t (*written)[ROOM];  /* the question that last wrote the element at a byte of the target */
    uint32_t question;          /* never the same again: one a range of a target, one for all ranges of a source */
} runner;

static ckpt_status run_copy(void *ctx, const ckpt__copy *c, ckpt_error *e)
{
    runner *r = ctx;
    static const ckpt__op plain = {
        .from = CKPT_U8, .to = CKPT_U8, .from_size = 1, .to_size = 1, .granule = 1, .from_swap = 1, .to_swap = 1};
    const ckpt__op *op = c->op == CKPT__OP_BYTES ? &plain : &r->ops[c->op];
    uint64_t index[CKPT__COPY_DIMS] = {0}, from = c->from_at, to = c->to_at;
    if (c->box.empty || (r->pull ? c->to : c->from) != r->storage)
        ck_abort_msg("a copy of another storage, or an empty one");
    for (;;) { /* its elements one by one: in the range, and not twice in one question */
        uint64_t at = r->pull ? to : from, size = r->pull ? op->to_size : op->from_size;
        if (at >= r->end || (r->pull ? at + size <= r->begin : at < r->begin))
            ck_abort_msg("byte %llu is not in [%llu, %llu)", (unsigned long long)at, (unsigned long long)r->begin,
                         (unsigned long long)r->end);
        if (from + op->from_size > ROOM || to + op->to_size > ROOM || r->written[c->to][to] == r->question)
            ck_abort_msg("the element at byte %llu lies outside, or comes twice", (unsigned long long)to);
        r->written[c->to][to] = r->question;
        for (uint64_t k = 0; k < size; k++)
            r->seen[r->storage][at + k] = r->question;
        uint32_t i = c->box.n;
        while (i-- > 0) {
            from += c->box.from_stride[i];
            to += c->box.to_stride[i];
            if (++index[i] < c->box.size[i])
                break;
            from -= c->box.from_stride[i] * c->box.size[i];
            to -= c->box.to_stride[i] * c->box.size[i];
            index[i] = 0;
        }
        if (i == UINT32_MAX)
            break;
    }
    return ckpt__box_move(op, &c->box, source->bytes[c->from] + c->from_at, r->out[c->to] + c->to_at, NULL, "test", e);
}

static void compare_seen(const runner *r, const unsigned char *used, uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin; at < end && at < ROOM; at++)
        if (used[at] != (r->seen[r->storage][at] == r->question))
            ck_abort_msg("byte %llu of [%llu, %llu): %s", (unsigned long long)at, (unsigned long long)begin,
                         (unsigned long long)end, used[at] ? "no copy has it" : "a copy has it");
}

/* In ranges of the side's storages, as long as they come. */
static void run_plan(const ckpt__plan *plan, const ckpt__op *ops, bool pull, const expected *want,
                     unsigned char (*out)[ROOM])
{
    static uint32_t seen[STORAGES][ROOM], written[STORAGES][ROOM];
    const unsigned char(*used)[ROOM] = pull ? want->writers : want->readers;
    runner r = {.ops = ops, .pull = pull, .out = out, .seen = seen, .written = written};
    const side *s = pull ? target : source;
    static uint32_t question;
    r.question = question;
    uint64_t most = chance(20) ? ROOM : chance(50) ? 9 : 200;
    r.question++;
    for (r.storage = 0; r.storage < STORAGES; r.storage++) {
        for (r.begin = 0; r.begin < ROOM; r.begin = r.end) {
            r.end =
                r.begin > s->used[r.storage] ? ROOM : r.begin + 1 + draw(most); /* what was broken may reach beyond */
            r.question += pull;
            ckpt_status status =
                (pull ? ckpt__plan_target : ckpt__plan_source)(plan, r.storage, r.begin, r.end, run_copy, &r, &err);
            ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
            if (pull)
                compare_seen(&r, used[r.storage], r.begin, r.end);
        }
        if (!pull)
            compare_seen(&r, used[r.storage], 0, ROOM);
    }
    question = r.question;
}

static void compare(unsigned char (*out)[ROOM], unsigned char (*want)[ROOM], const char *what)
{
    for (int s = 0; s < STORAGES; s++)
        for (size_t i = 0; i < ROOM && memcmp(out[s], want[s], ROOM) != 0; i++)
            if (out[s][i] != want[s][i])
                ck_abort_msg("%s: storage %d, byte %zu is %02x and should be %02x", what, s, i, out[s][i], want[s][i]);
}

static const char *const harms[] = {"none", "drop", "double", "grow", "shift", "swap", "offset", "replica", "fold"};

/* Pieces are added and changed after the bytes were made, so that the formula, and not what was meant, says what is right. */
static void harm(cut *c, uint32_t n, const int64_t *shape, unsigned which)
{
    drawn *d = c->count ? &c->pieces[draw(c->count)] : NULL;
    uint32_t k = n ? (uint32_t)draw(n) : 0;
    if (!d || (c->whole && which != 8))
        return;
    if (which == 1)
        *d = c->pieces[--c->count];
    else if (which == 2 || which == 7) {
        c->pieces[c->count] = *d;
        if (which == 7) {
            c->pieces[c->count].flags |= CKPT__PIECE_REPLICA;
            d->flags |= chance(80) ? CKPT__PIECE_REPLICA : 0; /* both must say so */
        }
        c->count++;
    } else if (which == 3 && !is_flat(d) && n && d->box[k] + d->box[n + k] < shape[k])
        d->box[n + k]++;
    else if (which == 3 && is_flat(d) && d->box[0] + d->box[1] < (int64_t)numel_of(n, shape))
        d->box[1]++;
    else if (which == 4 && (is_flat(d) || n) && d->box[k * !is_flat(d)] > 0)
        d->box[k * !is_flat(d)]--;
    else if (which == 5 && !is_flat(d) && n > 1) {
        uint32_t m = (k + 1) % n;
        int64_t size = d->box[n + k];
        d->box[n + k] = d->box[n + m];
        d->box[n + m] = size;
    } else if (which == 6)
        d->at++;
    else if (which == 8 && d->flags & CKPT__PIECE_STRIDED && n && d->box[2 * n + k] > 0)
        d->box[2 * n + k]--;
}

static void one_case(uint64_t seed, unsigned *refused)
{
    static made tensors[TENSORS];
    static expected want;
    static unsigned char out[STORAGES][ROOM];
    ckpt__bond bonds[TENSORS];
    ckpt__op ops[TENSORS];
    size_t count = make_case(seed, tensors, &want), hurt = draw(count);
    unsigned which = chance(40) ? 1 + (unsigned)draw(8) : 0;
    harm(chance(70) ? &tensors[hurt].from : &tensors[hurt].to, tensors[hurt].n, tensors[hurt].shape, which);
    bool taken = add_case(tensors, count, &want, bonds, ops);
    if (!taken) /* the index refused a piece outside of its shape or storage */
        ++*refused;
    ckpt__plan *plan = NULL;
    ckpt__plan_want asked = {.from = source->index,
                             .to = target->index,
                             .bonds = bonds,
                             .bond_count = count,
                             .ops = ops,
                             .op_count = count,
                             .push = true};
    ckpt_status status = taken ? ckpt__plan_new(&asked, &plan, &err) : CKPT_OK;
    if (taken) {
        ck_assert_msg((status == CKPT_E_MISMATCH) == want.refuses && (status == CKPT_OK) == !want.refuses,
                      "seed %llu, %s: status %d, %s%s%s", (unsigned long long)seed, harms[which], (int)status,
                      want.refuses ? "it should be refused" : err.object, want.refuses ? "" : ": ",
                      want.refuses ? "" : err.message);
        *refused += status < 0;
    }
    for (int pull = 0; plan && pull < 2; pull++) {
        char what[100];
        memset(out, 0x5a, sizeof out);
        run_plan(plan, ops, pull, &want, out);
        snprintf(what, sizeof what, "seed %llu, %s, %s", (unsigned long long)seed, harms[which],
                 pull ? "pull" : "push");
        compare(out, want.bytes, what);
    }
    ckpt__plan_free(plan);
    ckpt__index_free(source->index);
    ckpt__index_free(target->index);
}

START_TEST(by_brute_force)
{
    const char *cases = getenv("CKPT_PLAN_CASES"), *seed = getenv("CKPT_PLAN_SEED");
    uint64_t count = cases                     ? strtoull(cases, NULL, 10)
                     : getenv("CKPT_TEST_FEW") ? 100
                                               : 2000,
             first = seed ? strtoull(seed, NULL, 10) : 1;
    unsigned refused = 0;
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    for (uint64_t i = 0; i < count; i++)
        one_case(first + i, &refused);
    if (count >= 100) /* both kinds were there */
        ck_assert_msg(refused > count / 20 && refused < count / 2, "%u of %llu were refused", refused,
                      (unsigned long long)count);
    free(source);
    free(target);
}
END_TEST

/* ---- one thing at a time */

static ckpt__index *from, *to;
static ckpt__bond bonds[8];
static ckpt__op ops[4];
static ckpt__fill fills[2];
static ckpt__plan_want want;
static ckpt__plan *plan;

static void setup(void)
{
    from = ckpt__index_new(0);
    to = ckpt__index_new(0);
    memset(bonds, 0, sizeof bonds);
    want = (ckpt__plan_want){
        .from = from, .to = to, .bonds = bonds, .ops = ops, .op_count = 4, .fills = fills, .push = true};
    const ckpt__op_want wants[] = {{.from = CKPT_F32, .to = CKPT_F32},
                                   {.from = CKPT_F32, .to = CKPT_F32, .from_swap = 4},
                                   {.from = CKPT_F4, .to = CKPT_F4},
                                   {.from = CKPT_U8, .to = CKPT_U8}};
    for (int i = 0; i < 4; i++)
        ck_assert(ckpt__op_make(&wants[i], "op", &ops[i], &err) == CKPT_OK);
}

static void teardown(void)
{
    ckpt__plan_free(plan);
    plan = NULL;
    ckpt__index_free(from);
    ckpt__index_free(to);
}

static ckpt__storage *storage(ckpt__index *x, const char *name, uint64_t size)
{
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->name = ckpt__s(name);
    s->extent.size = s->extent.length = size;
    return s;
}

/* A whole tensor; strides NULL: C order. */
static void tensor(ckpt__index *x, const char *name, ckpt_dtype dtype, uint32_t n, const int64_t *shape,
                   const int64_t *strides, size_t in, int64_t offset)
{
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s(name);
    t->info.dtype = dtype;
    t->info.ndim = n;
    ck_assert_msg(ckpt__index_set_view(x, x->tensor_count - 1, in, shape, strides, offset, &err) == CKPT_OK, "%s",
                  err.message);
}

static void bond(uint32_t target_number, uint32_t source_number, uint16_t op, uint16_t flags)
{
    bonds[want.bond_count++] = (ckpt__bond){target_number, source_number, op, flags};
}

static void fine(void)
{
    ck_assert_msg(ckpt__plan_new(&want, &plan, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}

static void refused(ckpt_status status, const char *object, const char *said)
{
    ck_assert_msg(ckpt__plan_new(&want, &plan, &err) == status, "%s", said);
    ck_assert_ptr_null(plan);
    ck_assert_msg(strcmp(err.object, object) == 0 && strstr(err.message, said), "%s: %s", err.object, err.message);
}

static unsigned copy_count;
static ckpt__copy last_copy;

static ckpt_status count_copy(void *ctx, const ckpt__copy *c, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    copy_count++;
    last_copy = *c;
    return CKPT_OK;
}

static unsigned copies_of(bool pull, uint32_t number, uint64_t begin, uint64_t end)
{
    copy_count = 0;
    ck_assert((pull ? ckpt__plan_target : ckpt__plan_source)(plan, number, begin, end, count_copy, NULL, &err) ==
              CKPT_OK);
    return copy_count;
}

static const int64_t four[] = {4}, eight[] = {8}, square[] = {2, 4}, turned[] = {1, 2};

/* Two names of one view are written once, if they are made of the same. */
START_TEST(ties)
{
    storage(from, "a", 32);
    storage(from, "b", 32);
    storage(to, "x", 32);
    tensor(from, "w", CKPT_F32, 1, eight, NULL, 0, 0);
    tensor(from, "twin", CKPT_F32, 1, eight, NULL, 0, 0);
    tensor(from, "other", CKPT_F32, 1, eight, NULL, 1, 0);
    tensor(from, "part", CKPT_F32, 1, four, NULL, 0, 2);
    for (int i = 0; i < 2; i++)
        tensor(to, i ? "tied" : "w", CKPT_F32, 1, eight, NULL, 0, 0);
    tensor(to, "part", CKPT_F32, 1, four, NULL, 0, 2);
    tensor(to, "shifted", CKPT_F32, 1, four, NULL, 0, 3);
    bond(0, 0, 0, 0);
    bond(1, 0, 0, 0);
    fine();
    ckpt__plan_totals totals;
    ckpt__plan_totals_of(plan, &totals);
    ck_assert(totals.bytes_in == 32 && totals.bytes_out == 32 && totals.meets == 1);
    ck_assert_uint_eq(copies_of(true, 0, 0, 32), 1);
    ck_assert_uint_eq(copies_of(false, 0, 0, 32), 1);
    ckpt__plan_free(plan);
    bonds[1].from = 1; /* another name of the same bytes */
    bond(2, 3, 0, 0);  /* and a part, where it lies in the source */
    fine();
    ck_assert_uint_eq(copies_of(true, 0, 0, 32), 1);
    ckpt__plan_free(plan);
    bonds[2].to = 3; /* elsewhere */
    refused(CKPT_E_MISMATCH, "shifted", "byte 12 of its storage is written twice: it shares memory with another");
    want.bond_count = 2;
    bonds[1].from = 2;
    refused(CKPT_E_MISMATCH, "tied", "byte 0 of its storage is written twice");
}
END_TEST

/* A storage that is kept: its elements are swapped, the bytes behind the last are not. What its views would write is written. */
START_TEST(storages)
{
    ckpt__storage *s = storage(from, "a", 23);
    s->extent.big_endian = true;
    s->unit = 4;
    storage(to, "x", 23);
    storage(to, "y", 3);
    tensor(from, "w", CKPT_F32, 1, four, NULL, 0, 1);
    tensor(to, "w", CKPT_F32, 1, four, NULL, 0, 1);
    tensor(to, "moved", CKPT_F32, 1, four, NULL, 0, 0);
    bond(0, 0, 1, CKPT__BOND_STORAGE);
    bond(0, 0, 1, 0);
    want.whole = true;
    refused(CKPT_E_MISMATCH, "y", "3 of its bytes 0 to 3 are written by nothing");
    fills[0] = (ckpt__fill){1, 0, 3};
    want.fill_count = 1;
    fine();
    ck_assert_uint_eq(copies_of(true, 0, 0, 23), 2);
    ck_assert(last_copy.op == CKPT__OP_BYTES && last_copy.from_at == 20 && last_copy.box.size[0] == 3);
    ck_assert_uint_eq(copies_of(true, 0, 5, 6), 1);
    ck_assert(last_copy.op == 1 && last_copy.from_at == 4 && last_copy.to_at == 4 && last_copy.box.n == 0);
    ck_assert_uint_eq(copies_of(false, 0, 16, 21), 2);
    ck_assert_uint_eq(copies_of(false, 0, 17, 21), 1); /* the element of bytes 16 to 19 begins before */
    ck_assert_uint_eq(copies_of(true, 1, 0, 3), 0);
    ckpt__plan_free(plan);
    bonds[1].to = 1;
    refused(CKPT_E_MISMATCH, "moved", "written twice");
    want.bond_count = 1;
    s->extent.size = 22;
    refused(CKPT_E_MISMATCH, "a", "it has 22 bytes, and 23 are to be made of it");
}
END_TEST

START_TEST(files_of_ours)
{
    storage(from, "a", 32);
    storage(to, "x", 48);
    tensor(from, "w", CKPT_F32, 1, four, NULL, 0, 0);
    tensor(from, "v", CKPT_F32, 1, four, NULL, 0, 4);
    tensor(to, "w", CKPT_F32, 1, four, NULL, 0, 0);
    tensor(to, "v", CKPT_F32, 1, four, NULL, 0, 8);
    bond(0, 0, 0, 0);
    bond(1, 1, 0, 0);
    fine(); /* others may write between them */
    ckpt__plan_free(plan);
    want.whole = true;
    refused(CKPT_E_MISMATCH, "x", "16 of its bytes 16 to 32 are written by nothing");
    fills[0] = (ckpt__fill){0, 16, 16};
    want.fill_count = 1;
    fine();
    ckpt__plan_free(plan);
    fills[0].size = 17;
    refused(CKPT_E_MISMATCH, "v", "byte 32 of its storage is written twice");
    fills[0].size = 15;
    refused(CKPT_E_MISMATCH, "x", "1 of its bytes 31 to 32");
    fills[0] = (ckpt__fill){0, 40, 16};
    refused(CKPT_E_ARGUMENT, "plan", "fill 0 lies outside");
}
END_TEST

/* Shards that interleave fill a storage together, and one that is missing is noticed. */
START_TEST(shards_of_one_allocation)
{
    static const int64_t columns[] = {4, 2}, strides[] = {8, 1};
    storage(from, "a", 128);
    storage(to, "x", 128);
    for (int i = 0; i < 4; i++) {
        tensor(from, "w", CKPT_F32, 2, columns, NULL, 0, 8 * i);
        tensor(to, "w", CKPT_F32, 2, columns, strides, 0, 2 * i);
        bond((uint32_t)i, (uint32_t)i, 0, 0);
    }
    want.whole = true;
    fine();
    ck_assert_uint_eq(copies_of(true, 0, 32, 64), 4);
    ckpt__plan_free(plan);
    want.bond_count = 3;
    refused(CKPT_E_MISMATCH, "x", "24 of its bytes 0 to 120 are written by nothing");
}
END_TEST

/* Two elements of four bits a byte: boxes count bytes. */
START_TEST(granules)
{
    static const int64_t shape[] = {4, 8}, left[] = {0, 0, 4, 6}, right[] = {0, 6, 4, 2}, odd[] = {3, 5};
    storage(from, "a", 12);
    storage(from, "b", 4);
    storage(to, "x", 16);
    const ckpt__piece pieces[] = {{.box = left, .storage = 0}, {.box = right, .storage = 1}};
    ckpt__tensor *t = ckpt__index_add_tensor(from);
    t->info = (ckpt_tensor_info){.name = ckpt__s("w"), .dtype = CKPT_F4, .ndim = 2, .extra = &ckpt__no_extra};
    ck_assert(ckpt__index_set_pieces(from, 0, shape, pieces, 2, &err) == CKPT_OK);
    tensor(to, "w", CKPT_F4, 2, shape, NULL, 0, 0);
    bond(0, 0, 2, 0);
    want.whole = true;
    fine();
    ck_assert_uint_eq(copies_of(true, 0, 0, 16), 2);
    ck_assert_uint_eq(copies_of(true, 0, 7, 8), 1); /* the last byte of row 1 */
    ck_assert(last_copy.from == 1 && last_copy.from_at == 1 && last_copy.to_at == 7 && last_copy.box.n == 0);
    ck_assert_uint_eq(copies_of(false, 1, 3, 4), 1);
    ck_assert(last_copy.to_at == 15);
    ck_assert_uint_eq(copies_of(false, 0, 0, 12), 1);
    ck_assert(last_copy.box.n == 2 && last_copy.box.size[1] == 3 && last_copy.box.to_stride[0] == 4);
    ckpt__plan_free(plan);
    tensor(from, "odd", CKPT_F4, 2, odd, NULL, 0, 0); /* 15 elements in 8 bytes */
    tensor(to, "odd", CKPT_F4, 2, odd, NULL, 0, 0);
    want.whole = false;
    bonds[0] = (ckpt__bond){1, 1, 2, 0};
    fine();
    ck_assert(copies_of(true, 0, 0, 16) == 1 && last_copy.op == CKPT__OP_BYTES && last_copy.box.size[0] == 8);
}
END_TEST

START_TEST(refusals)
{
    static const int64_t large[] = {1 << 30, 64}, still[] = {0, 0};
    ckpt__storage *s = storage(from, "a", 32);
    s->extent.missing = true;
    s->extent.length = 20;
    storage(to, "x", 64);
    tensor(from, "w", CKPT_F32, 1, eight, NULL, 0, 0);
    tensor(from, "u", CKPT_U8, 1, eight, NULL, 0, 0);
    tensor(from, "sq", CKPT_F32, 2, square, turned, 0, 0);
    tensor(from, "big", CKPT_F32, 2, large, still, 0, 0);
    tensor(to, "w", CKPT_F32, 1, eight, NULL, 0, 0);
    tensor(to, "sq", CKPT_F32, 2, square, NULL, 0, 0);
    tensor(to, "twice", CKPT_F32, 2, square, (int64_t[]){1, 1}, 0, 0);
    ckpt__tensor *meta = ckpt__index_add_tensor(from);
    meta->info = (ckpt_tensor_info){
        .name = ckpt__s("meta"), .dtype = CKPT_F32, .ndim = 1, .shape = eight, .nbytes = 32, .extra = &ckpt__no_extra};
    bond(0, 0, 0, 0);
    refused(CKPT_E_DAMAGED, "w", "bytes 0 to 32 of a are asked for, and the file has 20");
    s->extent.missing = false;
    fine();
    ckpt__plan_free(plan);
    bonds[0].from = 1;
    refused(CKPT_E_ARGUMENT, "u", "its op is not of its dtypes, uint8 and float32");
    bonds[0].from = 2;
    refused(CKPT_E_MISMATCH, "sq", "its shape is [2, 4], and [8] is to be made of it");
    bonds[0].from = 4;
    refused(CKPT_E_MISMATCH, "meta", "no data of its own");
    bonds[0].from = 9;
    refused(CKPT_E_ARGUMENT, "plan", "bond 0 names what is not there");
    bonds[0] = (ckpt__bond){0, 0, 7, 0};
    refused(CKPT_E_ARGUMENT, "plan", "bond 0 names what is not there");
    bonds[0] = (ckpt__bond){0, 0, 1, 0};
    refused(CKPT_E_ARGUMENT, "w",
            "reversed 1 at a time in the source and 1 in the target; the plan takes them for 4 and 1");
    bonds[0] = (ckpt__bond){2, 2, 0, 0};
    refused(CKPT_E_MISMATCH, "twice", "its own elements share memory");
    to->tensors[1].info = from->tensors[3].info;
    bonds[0] = (ckpt__bond){1, 3, 0, 0};
    refused(CKPT_E_LIMIT, "big", "its view makes 274877906944 bytes of 32 that are stored");
}
END_TEST

/* Ranks hold rows, the file is to have columns: 40,000 meets, of which a band sees a few. */
START_TEST(many_pieces)
{
    enum { N = 200 };
    static int64_t rows[N][4], columns[N][4];
    static ckpt__piece source_pieces[N], target_pieces[N];
    static const int64_t shape[] = {N, N};
    for (int i = 0; i < N; i++) {
        storage(from, "row", N * 4);
        storage(to, "column", N * 4);
        memcpy(rows[i], (int64_t[]){i, 0, 1, N}, sizeof rows[i]);
        memcpy(columns[i], (int64_t[]){0, i, N, 1}, sizeof columns[i]);
        source_pieces[i] = (ckpt__piece){.box = rows[i], .storage = (uint32_t)i};
        target_pieces[i] = (ckpt__piece){.box = columns[i], .storage = (uint32_t)i};
    }
    for (int side_number = 0; side_number < 2; side_number++) {
        ckpt__index *x = side_number ? to : from;
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        t->info = (ckpt_tensor_info){.name = ckpt__s("w"), .dtype = CKPT_F32, .ndim = 2, .extra = &ckpt__no_extra};
        ck_assert(ckpt__index_set_pieces(x, 0, shape, side_number ? target_pieces : source_pieces, N, &err) == CKPT_OK);
    }
    bond(0, 0, 0, 0);
    want.whole = true;
    fine();
    ckpt__plan_totals totals;
    ckpt__plan_totals_of(plan, &totals);
    ck_assert(totals.meets == N * N && totals.bytes_in == N * N * 4 && totals.bytes_out == N * N * 4);
    ck_assert_uint_eq(copies_of(true, 17, 0, N * 4), N);
    ck_assert_uint_eq(copies_of(true, 17, 40, 80), 10);
    ck_assert_uint_eq(copies_of(false, 3, 0, 8), 2);
    ck_assert(last_copy.to_at == 12);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("plan");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, by_brute_force);
    suite_add_tcase(s, t);
    TCase *one = tcase_create("one thing");
    tcase_add_checked_fixture(one, setup, teardown);
    tcase_add_test(one, ties);
    tcase_add_test(one, storages);
    tcase_add_test(one, files_of_ours);
    tcase_add_test(one, shards_of_one_allocation);
    tcase_add_test(one, granules);
    tcase_add_test(one, refusals);
    tcase_add_test(one, many_pieces);
    suite_add_tcase(s, one);
    return run_suite(s);
}
