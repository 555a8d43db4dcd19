/* Pulling the ranges of a plan from files: the cases of plan_cases.h, whose storages lie in files as they are, deflated, or in memory.
 * Ranges are asked for in any order, and more than once. */
#include "engine/pull.h"

#include <pthread.h>
#include "engine/elements.h"
#include "engine/stream.h"
#include "plan_files.h"

enum { CASES = 1500 };

static bool sound; /* no byte was changed */

/* A range twice, in any order of the ranges. A range that is given has the right bytes; returns whether all were given. */
static bool pull_storage(ckpt__pull *p, uint32_t storage, const expected *want)
{
    static unsigned char out[ROOM];
    uint64_t border[40], used = target->used[storage] + 8, at = 0, most = chance(30) ? ROOM : chance(50) ? 9 : 300;
    size_t count = 0;
    bool all = true;
    for (; count < 39 && at < used; at += 1 + draw(most))
        border[count++] = at;
    border[count] = used;
    for (size_t i = 0; count && i < 2 * count; i++) {
        size_t k = draw(count);
        k = i < count ? i : k;
        memset(out, 0x5a, sizeof out);
        ckpt_status status = ckpt__pull_bytes(p, storage, border[k], border[k + 1], out + border[k], NULL, &err);
        all = all && status == CKPT_OK;
        if (status < 0 && (sound || status != CKPT_E_DAMAGED))
            ck_abort_msg("storage %u, [%llu, %llu): %s: %s", storage, (unsigned long long)border[k],
                         (unsigned long long)border[k + 1], err.object, err.message);
        for (uint64_t b = 0; status == CKPT_OK && b < used; b++) {
            unsigned char is = b < border[k] || b >= border[k + 1] ? 0x5a : want->bytes[storage][b];
            if (out[b] != is)
                ck_abort_msg("storage %u, [%llu, %llu): byte %llu is %02x and should be %02x", storage,
                             (unsigned long long)border[k], (unsigned long long)border[k + 1], (unsigned long long)b,
                             out[b], is);
        }
    }
    return all;
}

static bool reads(const expected *want, uint32_t storage)
{
    for (size_t i = 0; storage < STORAGES && i < ROOM; i++)
        if (want->readers[storage][i])
            return true;
    return false;
}

/* A case with its source in files, the plan of it, and a pull by the plan. */
typedef struct pulled {
    made tensors[TENSORS];
    expected want;
    ckpt__bond bonds[TENSORS];
    ckpt__op ops[TENSORS];
    uint32_t victim; /* storage of which a byte was changed; UINT32_MAX: none was */
    ckpt__plan *plan;
    ckpt__pull *pull;
} pulled;

static void open_case(pulled *c, uint64_t seed, bool harms)
{
    size_t count = make_case(seed, c->tensors, &c->want);
    ck_assert(add_case(c->tensors, count, &c->want, c->bonds, c->ops));
    c->victim = write_files(harms);
    sound = c->victim == UINT32_MAX;
    ckpt__plan_want asked = {.from = source->index,
                             .to = target->index,
                             .bonds = c->bonds,
                             .bond_count = count,
                             .ops = c->ops,
                             .op_count = count};
    ck_assert_msg(ckpt__plan_new(&asked, &c->plan, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert(ckpt__pull_new(c->plan, opened, true, chance(50) ? 0 : 1, &c->pull, &err) == CKPT_OK);
}

static void close_case(pulled *c)
{
    ckpt__pull_free(c->pull);
    ckpt__plan_free(c->plan);
    ckpt__source_close(opened);
    ckpt__index_free(source->index);
    ckpt__index_free(target->index);
}

static void one_case(uint64_t seed, bool harms)
{
    static pulled c;
    bool all = true;
    open_case(&c, seed, harms);
    for (uint32_t s = 0; s < STORAGES; s++)
        all = pull_storage(c.pull, s, &c.want) && all;
    ck_assert_msg(all == (sound || !reads(&c.want, c.victim)), "seed %llu: a damaged storage %s",
                  (unsigned long long)seed, all ? "was used" : "was not used, and refused");
    close_case(&c);
}

/* ---- CRCs on the way: what is asked for once, in order or not, or not at all */

static ckpt_status note_use(void *ctx, const ckpt__copy *c, ckpt_error *e)
{
    (void)e;
    ((bool *)ctx)[c->from] = true;
    return CKPT_OK;
}

/* Returns whether all was given and right. used: a flag a storage of the source. */
static bool pull_late(ckpt__pull *p, const ckpt__plan *plan, uint32_t storage, const expected *want, bool *used)
{
    static unsigned char out[ROOM];
    uint64_t begins[40], ends[40], size = target->used[storage] + 8, at = 0, most = chance(30) ? ROOM : 300;
    size_t count = 0;
    bool all = true, skips = chance(30);
    for (; count < 40 && at < size; at = ends[count++]) {
        begins[count] = at;
        ends[count] = count == 39 || at + 1 + most > size ? size : at + 1 + draw(most);
    }
    for (size_t i = 0; chance(30) && i < count; i++) {
        size_t k = draw(count);
        uint64_t b = begins[i], e = ends[i];
        begins[i] = begins[k];
        ends[i] = ends[k];
        begins[k] = b;
        ends[k] = e;
    }
    for (size_t i = 0; all && i < count; i++) {
        if (skips && chance(20))
            continue;
        memset(out, 0x5a, sizeof out);
        ck_assert(ckpt__plan_target(plan, storage, begins[i], ends[i], note_use, used, &err) == CKPT_OK);
        ckpt_status status = ckpt__pull_bytes(p, storage, begins[i], ends[i], out, NULL, &err);
        all = status == CKPT_OK;
        if (status < 0 && (sound || status != CKPT_E_DAMAGED))
            ck_abort_msg("storage %u: %s: %s", storage, err.object, err.message);
        if (sound && memcmp(out, want->bytes[storage] + begins[i], ends[i] - begins[i]) != 0)
            ck_abort_msg("storage %u, [%llu, %llu)", storage, (unsigned long long)begins[i],
                         (unsigned long long)ends[i]);
    }
    return all;
}

static void late_case(uint64_t seed, bool harms)
{
    static pulled c;
    bool used[STORAGES] = {false}, all = true;
    open_case(&c, seed, harms);
    ckpt__crcs *crcs = ckpt__crcs_new(c.plan);
    ck_assert_ptr_nonnull(crcs);
    bool shared = chance(30); /* as threads have it, which settle after each block */
    ckpt__crcs_share(crcs, shared);
    ckpt__pull_check_late(c.pull, crcs);
    for (uint32_t s = 0; all && s < STORAGES; s++) {
        all = pull_late(c.pull, c.plan, s, &c.want, used);
        if (all && shared && chance(50))
            all = ckpt__crcs_settle(crcs, &err) == CKPT_OK;
    }
    ckpt_status status = all ? ckpt__crcs_finish(crcs, opened, &err) : CKPT_E_DAMAGED;
    ck_assert_msg(status == (sound || !used[c.victim] ? CKPT_OK : CKPT_E_DAMAGED), "seed %llu: status %d, %s",
                  (unsigned long long)seed, (int)status,
                  sound            ? "sound"
                  : used[c.victim] ? "used"
                                   : "not used");
    ckpt__crcs_free(crcs);
    close_case(&c);
}

START_TEST(late)
{
    uint64_t count = getenv("CKPT_TEST_FEW") ? 40 : CASES;
    make_scratch();
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    for (uint64_t i = 0; i < count; i++)
        late_case(30000 + i, i % 2);
    free(source);
    free(target);
    remove_scratch();
}
END_TEST

/* ---- a split tensor, read as one */

typedef struct taken {
    unsigned char bytes[ROOM];
    size_t count;
} taken;

static ckpt_status take(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *e)
{
    taken *t = ctx;
    (void)e;
    if (offset != t->count || t->count + n > ROOM)
        ck_abort_msg("block %llu after %zu bytes", (unsigned long long)offset, t->count);
    memcpy(t->bytes + t->count, data, n);
    t->count += n;
    return CKPT_OK;
}

/* In reads of any size, with little memory. */
static ckpt_status read_in_parts(size_t tensor, taken *t)
{
    ckpt__elements e;
    ckpt__elements_options options = {.check = true, .resolve = true, .memory = chance(30) ? 0 : 8 + draw(300)};
    uint64_t size = source->index->tensors[tensor].info.nbytes;
    t->count = 0;
    ckpt_status status = ckpt__elements_of_tensor(&e, opened, source->index, tensor, &options, &err);
    while (status == CKPT_OK && t->count < size) {
        size_t n = 1 + draw(size - t->count < 200 ? size - t->count : 200);
        status = ckpt__elements_read(&e, t->bytes + t->count, n, &err);
        t->count += n;
    }
    ckpt__elements_close(&e);
    return status;
}

static void compare_tensor(const made *m, const taken *t)
{
    int64_t index[DIMS] = {0};
    size_t at = 0;
    uint64_t where;
    ck_assert_uint_eq(t->count, numel_of(m->n, m->shape) * m->bytes);
    if (t->count == 0)
        return;
    do {
        const drawn *d = m->from.pieces;
        while (!find(d, index, m->shape, m->bytes, &where))
            d++;
        for (unsigned k = 0; k < m->bytes; k++, at++) {
            unsigned char is = source->bytes[d->storage][where + (swaps ? m->bytes - 1 - k : k)];
            if (t->bytes[at] != is)
                ck_abort_msg("byte %zu is %02x and should be %02x", at, t->bytes[at], is);
        }
    } while (next_index(index, m->n, m->shape));
}

static void read_case(uint64_t seed)
{
    static made tensors[TENSORS];
    static expected want;
    static taken all;
    ckpt__bond bonds[TENSORS];
    ckpt__op ops[TENSORS];
    size_t count = make_case(seed, tensors, &want);
    ck_assert(add_case(tensors, count, &want, bonds, ops));
    bool damaged = chance(20);
    uint32_t victim = write_files(damaged);
    for (size_t i = 0; i < count; i++) {
        const made *m = &tensors[i];
        bool uses = false;
        for (size_t k = 0; k < m->from.count; k++)
            uses |= m->from.pieces[k].storage == victim && numel_of(m->n, m->shape) > 0;
        ckpt_status status = read_in_parts(i, &all);
        if (uses && status == CKPT_E_DAMAGED)
            continue;
        if (ckpt__has_no_bytes(&source->index->tensors[i])) { /* no elements, and no piece that says so */
            ck_assert_int_eq(status, CKPT_E_UNSUPPORTED);
            continue;
        }
        if (status < 0)
            ck_abort_msg("seed %llu, tensor %zu: %s: %s", (unsigned long long)seed, i, err.object, err.message);
        compare_tensor(m, &all);
    }
    ckpt__source_close(opened);
    ckpt__index_free(source->index);
    ckpt__index_free(target->index);
}

/* A piece that is missing, or there twice, is not a tensor: nothing is read of it. */
static void refuse_case(uint64_t seed)
{
    static made tensors[TENSORS];
    static expected want;
    static taken all;
    ckpt__bond bonds[TENSORS];
    ckpt__op ops[TENSORS];
    size_t count = make_case(seed, tensors, &want);
    made *m = &tensors[0];
    bool drop = chance(50);
    size_t k = 0;
    while (k < m->from.count && (is_flat(&m->from.pieces[k]) ? m->from.pieces[k].box[1] == 0
                                                             : numel_of(m->n, m->from.pieces[k].box + m->n) == 0))
        k++;
    bool broken = !m->from.whole && m->from.count > 1 && k < m->from.count && numel_of(m->n, m->shape);
    if (broken && drop)
        m->from.pieces[k] = m->from.pieces[--m->from.count];
    else if (broken)
        m->from.pieces[m->from.count++] = m->from.pieces[k];
    ck_assert(add_case(tensors, count, &want, bonds, ops));
    write_files(false);
    all.count = 0;
    ckpt_status status = ckpt__read_tensor(opened, source->index, 0, true, take, &all, &err);
    if (broken &&
        (status != (source->index->tensors[0].piece_count ? CKPT_E_MISMATCH : CKPT_E_UNSUPPORTED) || all.count))
        ck_abort_msg("seed %llu: status %d", (unsigned long long)seed, (int)status);
    ckpt__source_close(opened);
    ckpt__index_free(source->index);
    ckpt__index_free(target->index);
}

START_TEST(split_tensors_are_read)
{
    uint64_t count = getenv("CKPT_TEST_FEW") ? 40 : CASES;
    make_scratch();
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    for (uint64_t i = 0; i < count; i++) {
        read_case(9000 + i);
        refuse_case(9000 + i);
    }
    free(source);
    free(target);
    remove_scratch();
}
END_TEST

static const int64_t large_shape[] = {3, 300, 500};
enum { N = 3 * 300 * 500 };

/* Element i of the file is i; way 0 is turned, way 1 is turned and big-endian, way 2 is in two pieces and big-endian. */
static void compare_large(const uint32_t *out, int way)
{
    for (uint32_t i = 0; i < N; i++) {
        uint32_t a = i / 150000, b = i / 500 % 300, c = i % 500;
        uint32_t is = way < 2   ? a * 150000 + b + c * 300
                      : b < 200 ? a * 100000 + b * 500 + c
                                : 300000 + a * 50000 + (b - 200) + c * 100;
        if (out[i] != (way ? __builtin_bswap32(is) : is))
            ck_abort_msg("element %u of way %d", i, way);
    }
}

/* More elements than are swapped at a time, in another order, and more bytes than are read at a time. */
START_TEST(large)
{
    static const int64_t strides[] = {150000, 1, 300}, half[] = {0, 0, 0, 3, 200, 500},
                         rest[] = {0, 200, 0, 3, 100, 500, 50000, 1, 100};
    uint32_t *bytes = malloc(4 * N), *out = malloc(4 * N);
    make_scratch();
    for (int split = 0; split < 3; split++) {
        ckpt__index *from = ckpt__index_new(0), *to = ckpt__index_new(0);
        for (uint32_t i = 0; i < N; i++)
            bytes[i] = i;
        FILE *f = fopen("large", "w");
        ck_assert(f && fwrite(bytes, 4, N, f) == N && fclose(f) == 0);
        ck_assert_int_eq(ckpt__source_open("large", &opened, &err), CKPT_OK);
        ckpt__storage *s = ckpt__index_add_storage(from), *x = ckpt__index_add_storage(to);
        s->extent.size = s->extent.length = x->extent.size = 4 * N;
        s->extent.big_endian = split > 0;
        s->unit = 4;
        for (int side_number = 0; side_number < 2; side_number++) {
            ckpt__tensor *t = ckpt__index_add_tensor(side_number ? to : from);
            t->info.name = ckpt__s("large");
            t->info.dtype = CKPT_F32;
            t->info.ndim = 3;
        }
        const ckpt__piece pieces[] = {{.box = half, .storage = 0},
                                      {.box = rest, .storage = 0, .at = 1200000, .flags = CKPT__PIECE_STRIDED}};
        ckpt_status status = split == 2 ? ckpt__index_set_pieces(from, 0, large_shape, pieces, 2, &err)
                                        : ckpt__index_set_view(from, 0, 0, large_shape, strides, 0, &err);
        ck_assert_msg(status == CKPT_OK, "%s", err.message);
        ck_assert(ckpt__index_set_view(to, 0, 0, large_shape, NULL, 0, &err) == CKPT_OK);
        ckpt__op op;
        ckpt__op_want want = {.from = CKPT_F32, .to = CKPT_F32, .from_swap = split ? 4 : 1};
        ckpt__bond bond = {0, 0, 0, 0};
        ckpt__plan_want asked = {.from = from, .to = to, .bonds = &bond, .bond_count = 1, .ops = &op, .op_count = 1};
        ckpt__plan *plan;
        ckpt__pull *pull;
        ck_assert(ckpt__op_make(&want, "large", &op, &err) == CKPT_OK);
        ck_assert(ckpt__plan_new(&asked, &plan, &err) == CKPT_OK &&
                  ckpt__pull_new(plan, opened, true, 0, &pull, &err) == CKPT_OK);
        for (uint32_t way = 0; way < 2; way++) { /* all at once, and in two parts */
            uint64_t border = way * 777776;
            memset(out, 0xff, 4 * N);
            ck_assert(ckpt__pull_bytes(pull, 0, border, 4 * N, (char *)out + border, NULL, &err) == CKPT_OK);
            ck_assert(ckpt__pull_bytes(pull, 0, 0, border, out, NULL, &err) == CKPT_OK);
            compare_large(out, split);
        }
        ckpt__pull_free(pull);
        ckpt__plan_free(plan);
        ckpt__source_close(opened);
        ckpt__index_free(from);
        ckpt__index_free(to);
    }
    free(bytes);
    free(out);
    remove_scratch();
}
END_TEST

/* ---- threads: one plan and one source, a pull each */

typedef struct worker {
    const ckpt__plan *plan;
    const expected *want;
    unsigned number;
    unsigned wrong; /* ranges */
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    ckpt_error e = CKPT_ERROR_INIT;
    ckpt__pull *p;
    unsigned char out[64];
    if (ckpt__pull_new(w->plan, opened, true, 0, &p, &e) < 0)
        return NULL;
    for (uint32_t s = 0; s < STORAGES; s++)
        for (uint64_t at = w->number * 16; at < target->used[s]; at += sizeof out) {
            memset(out, 0x5a, sizeof out);
            w->wrong += ckpt__pull_bytes(p, s, at, at + sizeof out, out, NULL, &e) < 0 ||
                        memcmp(out, w->want->bytes[s] + at, sizeof out) != 0;
        }
    ckpt__pull_free(p);
    return NULL;
}

START_TEST(threads)
{
    enum { WORKERS = 4 };
    static made tensors[TENSORS];
    static expected want;
    make_scratch();
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    for (uint64_t seed = 0; seed < 60; seed++) {
        ckpt__bond bonds[TENSORS];
        ckpt__op ops[TENSORS];
        ckpt__plan *plan;
        pthread_t ids[WORKERS];
        worker workers[WORKERS];
        size_t count = make_case(20000 + seed, tensors, &want);
        ck_assert(add_case(tensors, count, &want, bonds, ops));
        write_files(false);
        ckpt__plan_want asked = {.from = source->index,
                                 .to = target->index,
                                 .bonds = bonds,
                                 .bond_count = count,
                                 .ops = ops,
                                 .op_count = count};
        ck_assert(ckpt__plan_new(&asked, &plan, &err) == CKPT_OK);
        for (unsigned i = 0; i < WORKERS; i++) {
            workers[i] = (worker){plan, &want, i, 0};
            ck_assert_int_eq(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
        }
        for (unsigned i = 0; i < WORKERS; i++) {
            ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
            ck_assert_msg(workers[i].wrong == 0, "seed %d, thread %u: %u ranges", (int)seed, i, workers[i].wrong);
        }
        ckpt__plan_free(plan);
        ckpt__source_close(opened);
        ckpt__index_free(source->index);
        ckpt__index_free(target->index);
    }
    free(source);
    free(target);
    remove_scratch();
}
END_TEST

static void all_cases(bool harms)
{
    uint64_t count = getenv("CKPT_TEST_FEW") ? 40 : CASES;
    make_scratch();
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    for (uint64_t i = 0; i < count; i++)
        one_case(7000 + i, harms);
    free(source);
    free(target);
    remove_scratch();
}

START_TEST(any_range)
{
    all_cases(false);
}
END_TEST

/* One bit of a file is wrong: whoever uses the storage is refused, whatever part of it is asked for, and in whatever order. */
START_TEST(damage)
{
    all_cases(true);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pull");
    TCase *t = tcase_create("pull");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, any_range);
    tcase_add_test(t, damage);
    tcase_add_test(t, late);
    tcase_add_test(t, split_tensors_are_read);
    tcase_add_test(t, large);
    tcase_add_test(t, threads);
    suite_add_tcase(s, t);
    return run_suite(s);
}
