/* test_migrate_pieces.c - tensors that are split migrate as whole ones: random pieces in files, deflated or in memory, to every format,
 * converted or not, against a loop that knows the formula of a piece alone. */
#include <ckpt/ckpt.h>
#include <dirent.h>
#include <unistd.h>

#include "case_source.h"
#include "short_memory.h"

enum { CASES = 250 };

/* ---- one case */

static uint64_t volume(const made *m, const drawn *d)
{
    return is_flat(d) ? (uint64_t)d->box[1] : numel_of(m->n, d->box + m->n);
}

/* Leaves out one of several pieces. False: no tensor has several. */
static bool drop_piece(void)
{
    for (size_t i = 0; i < tensor_count; i++) {
        cut *c = &tensors[i].from;
        size_t some = 0, last = 0;
        for (size_t k = 0; !c->whole && k < c->count; k++)
            if (volume(&tensors[i], &c->pieces[k])) {
                some++;
                last = k;
            }
        if (some > 1) {
            c->pieces[last] = c->pieces[--c->count];
            return true;
        }
    }
    return false;
}

/* The same files and pieces each time it is called with the same seed. Returns the storage that was harmed. */
static uint32_t make_source(uint64_t seed, bool harms, bool drops, bool *dropped)
{
    draw_source(seed);
    *dropped = drops && drop_piece();
    return write_source(harms);
}

/* The elements one by one, in C order. *uses: one of them lies in the storage `victim`. */
static size_t expect_elements(const made *m, bool cast, uint32_t victim, unsigned char *out, bool *uses)
{
    int64_t index[DIMS] = {0};
    size_t n = 0, bytes = cast ? m->to_bytes : m->bytes;
    uint64_t where;
    if (numel_of(m->n, m->shape) == 0)
        return 0;
    do {
        unsigned char element[8];
        const drawn *d = m->from.pieces;
        while (!find(d, index, m->shape, m->bytes, &where))
            d++;
        *uses |= d->storage == victim;
        for (unsigned k = 0; k < m->bytes; k++)
            element[k] = source->bytes[d->storage][where + (swaps ? m->bytes - 1 - k : k)];
        if (cast && m->to_dtype != m->dtype)
            ckpt__convert(m->dtype, element, m->to_dtype, out + n, 1, NULL);
        else
            memcpy(out + n, element, m->bytes);
        n += bytes;
    } while (next_index(index, m->n, m->shape));
    return n;
}

/* below: what stands in front of the names. */
static void compare_below(uint64_t seed, const char *path, const char *below, bool cast)
{
    static unsigned char want[ROOM * 8], have[ROOM * 8];
    ckpt_reader *r;
    ck_assert_msg(ckpt_reader_open(path, NULL, &r, &err) == CKPT_OK, "seed %llu: %s: %s", (unsigned long long)seed,
                  err.object, err.message);
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), tensor_count);
    for (size_t i = 0; i < tensor_count; i++) {
        const made *m = &tensors[i];
        char name[60];
        bool uses = false;
        size_t at, n = expect_elements(m, cast, UINT32_MAX, want, &uses);
        snprintf(name, sizeof name, "%st%zu", below, i);
        ck_assert_msg(ckpt_reader_find(r, name, strlen(name), &at, &err) == CKPT_OK, "seed %llu: no %s",
                      (unsigned long long)seed, name);
        const ckpt_tensor_info *info = ckpt_reader_tensor(r, at);
        ck_assert(info->dtype == (cast ? m->to_dtype : m->dtype));
        ck_assert(ckpt__same_shape(info->shape, info->ndim, m->shape, m->n) && info->nbytes == n);
        ck_assert_msg(ckpt_reader_read(r, at, have, n, &err) == CKPT_OK, "%s", err.message);
        if (memcmp(have, want, n) != 0)
            ck_abort_msg("seed %llu: %s of %s differs", (unsigned long long)seed, name, path);
    }
    ckpt_reader_close(r);
}

static void compare(uint64_t seed, const char *path, bool cast)
{
    compare_below(seed, path, "", cast);
}

/* A distributed checkpoint, if it is there. */
static void remove_folder_of(const char *path)
{
    char name[300];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            ck_assert_int_eq(unlink(name), 0);
    }
    if (d) {
        closedir(d);
        ck_assert_int_eq(rmdir(path), 0);
    }
}

static uint32_t world = 1; /* of a distributed checkpoint that is written next */

/* Migrates the case to one format, and says what came of it. */
static ckpt_status migrate(const char *to, const char *dst, bool cast, bool verify, bool salvage)
{
    ckpt_migrate_options o = case_options(to, cast);
    o.verify = verify;
    o.salvage = salvage;
    o.target_world = world;
    o.threads = world % 4;                               /* any number makes the same */
    o.max_shard_size = strcmp(to, "hf") == 0 ? 9000 : 0; /* several files, and so windows of several */
    give_reader(opened, source->index);
    return ckpt_migrate(".", dst, &o, NULL, &err);
}

static uint64_t cases(void)
{
    return getenv("CKPT_TEST_FEW") ? 10 : CASES;
}

START_TEST(all_formats)
{
    begin();
    for (uint64_t i = 0; i < 4 * cases(); i++) {
        bool cast = i % 8 > 3, dropped;
        char dst[40];
        make_source(70000 + i, false, false, &dropped);
        snprintf(dst, sizeof dst, "../%s", formats[i % 4]);
        ckpt_status status = migrate(formats[i % 4], dst, cast, i % 3 == 0, false);
        ck_assert_msg(status == CKPT_OK, "seed %llu to %s: %s: %s", (unsigned long long)(70000 + i), formats[i % 4],
                      err.object, err.message);
        compare(70000 + i, dst, cast);
    }
    end();
}
END_TEST

/* What --to dcp makes of it for some ranks, of that for others, and of those one file, is what it was. No rank has more than its rows. */
START_TEST(several_ranks)
{
    size_t shards = 0;
    begin();
    for (uint64_t i = 0; i < 2 * cases(); i++) {
        bool cast = i % 4 == 3, dropped;
        ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
        make_source(70000 + i, false, false, &dropped);
        world = 1 + (uint32_t)(i % 7);
        ckpt_status status = migrate("dcp", "../ranks", cast, i % 3 == 0, false);
        ck_assert_msg(status == CKPT_OK, "seed %llu for %u: %s: %s", (unsigned long long)(70000 + i), world, err.object,
                      err.message);
        compare_below(70000 + i, "../ranks", "model.", cast);
        ckpt_reader *r;
        ck_assert_int_eq(ckpt_reader_open("../ranks", NULL, &r, &err), CKPT_OK);
        for (size_t k = 0; k < ckpt_reader_tensor_count(r); k++) {
            const ckpt_tensor_info *t = ckpt_reader_tensor(r, k);
            int64_t rows = t->ndim ? t->shape[0] : 1, each = (rows + world - 1) / world;
            bool whole = t->nbytes == 0 || rows < 2 || world == 1 || t->nbytes % (uint64_t)rows;
            ck_assert_int_eq((int64_t)ckpt_reader_piece_count(r, k), whole ? 1 : (rows + each - 1) / each);
        }
        ckpt_reader_close(r);
        give_reader(NULL, NULL);
        o.to = "dcp";
        o.force = o.no_sync = o.verify = true;
        o.target_world = 1 + (uint32_t)(i / 7 % 5);
        ck_assert_msg(ckpt_migrate("../ranks", "../others", &o, NULL, &err) == CKPT_OK, "%s: %s", err.object,
                      err.message);
        compare_below(70000 + i, "../others", "model.", cast);
        o.to = "torch";
        ck_assert_msg(ckpt_migrate("../others", "../whole.pt", &o, NULL, &err) == CKPT_OK, "%s: %s", err.object,
                      err.message);
        compare_below(70000 + i, "../whole.pt", "model.", cast);
        remove_folder_of("../ranks");
        remove_folder_of("../others");
        make_source(70000 + i, false, false, &dropped);
        status = migrate("dcp-hf", "../ranks", cast, i % 3 == 0, false);
        ck_assert_msg(status == CKPT_OK || (status == CKPT_E_UNSUPPORTED && strstr(err.message, "safetensors has no")),
                      "seed %llu for %u: %s: %s", (unsigned long long)(70000 + i), world, err.object, err.message);
        if (status == CKPT_OK)
            compare_below(70000 + i, "../ranks", "", cast);
        shards += status == CKPT_OK;
        remove_folder_of("../ranks");
    }
    ck_assert_uint_gt(shards, cases() / 2);
    world = 1;
    end();
}
END_TEST

/* Damage, pieces that are missing and allocations that fail: nothing is there then. */
START_TEST(several_ranks_or_nothing)
{
    static unsigned char all[ROOM * 8];
    begin();
    world = 3;
    for (uint64_t i = 0; i < cases(); i++) {
        bool dropped, uses = false;
        uint32_t victim = make_source(80000 + i, true, i % 2, &dropped);
        for (size_t k = 0; !dropped && k < tensor_count; k++)
            expect_elements(&tensors[k], false, victim, all, &uses);
        ckpt_status status = migrate("dcp", "../ranks", i % 5 == 0, false, false);
        ck_assert_msg(dropped ? status == CKPT_E_MISMATCH
                      : uses  ? status == CKPT_E_DAMAGED
                              : status == CKPT_OK || status == CKPT_E_DAMAGED,
                      "seed %llu: %d: %s", (unsigned long long)(80000 + i), (int)status, err.message);
        ck_assert(status == CKPT_OK || access("../ranks", F_OK) != 0);
        remove_folder_of("../ranks");
    }
    for (uint64_t seed = 70002; seed < 70005; seed++) {
        ckpt_status status = CKPT_E_NO_MEMORY;
        bool dropped;
        for (long n = 0; status != CKPT_OK; n++) {
            ck_assert_int_lt(n, 20000);
            make_source(seed, false, false, &dropped);
            fail_after(n);
            status = migrate("dcp", "../ranks", false, false, false);
            fail_no_more();
            ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "allocation %ld: %d: %s: %s", n, (int)status,
                          err.object, err.message);
            ck_assert(status == CKPT_OK || access("../ranks", F_OK) != 0);
        }
        compare_below(seed, "../ranks", "model.", false);
        remove_folder_of("../ranks");
    }
    world = 1;
    end();
}
END_TEST

/* One bit of a storage is wrong: nothing is written if a tensor has an element there. */
START_TEST(damage)
{
    begin();
    size_t refused = 0;
    for (uint64_t i = 0; i < cases(); i++) {
        static unsigned char all[ROOM * 8];
        bool dropped, uses = false;
        uint32_t victim = make_source(80000 + i, true, false, &dropped);
        for (size_t k = 0; k < tensor_count; k++)
            expect_elements(&tensors[k], false, victim, all, &uses);
        remove("../out");
        ckpt_status status = migrate(formats[i % 3], "../out", false, false, false);
        if (uses) {
            ck_assert_msg(status == CKPT_E_DAMAGED, "seed %llu: %d: %s", (unsigned long long)(80000 + i), (int)status,
                          err.message);
            ck_assert_int_ne(access("../out", F_OK), 0);
            refused++;
        } else if (formats[i % 3][0] == 's') /* the others take the whole of a storage that tensors share */
            ck_assert_msg(status == CKPT_OK, "seed %llu: %s", (unsigned long long)(80000 + i), err.message);
    }
    ck_assert_uint_gt(refused, cases() / 8);
    end();
}
END_TEST

/* A piece is missing: that is said, and nothing is written; a salvage leaves the tensor out. */
START_TEST(incomplete)
{
    begin();
    size_t refused = 0;
    for (uint64_t i = 0; i < cases(); i++) {
        bool dropped;
        make_source(90000 + i, false, true, &dropped);
        remove("../out");
        ckpt_status status = migrate(formats[i % 3], "../out", i % 2, false, false);
        ck_assert_msg(status == (dropped ? CKPT_E_MISMATCH : CKPT_OK), "seed %llu: %d: %s",
                      (unsigned long long)(90000 + i), (int)status, err.message);
        refused += dropped;
        if (!dropped)
            continue;
        ck_assert_int_ne(access("../out", F_OK), 0);
        make_source(90000 + i, false, true, &dropped);
        ck_assert_int_ge(migrate(formats[i % 3], "../out", false, true, true), 0);
        ckpt_reader *r;
        ck_assert_msg(ckpt_reader_open("../out", NULL, &r, &err) == CKPT_OK, "%s", err.message);
        ck_assert_uint_eq(ckpt_reader_tensor_count(r), tensor_count - 1);
        ckpt_reader_close(r);
    }
    ck_assert_uint_gt(refused, cases() / 4);
    end();
}
END_TEST

/* ---- memory that is short */

/* Each allocation of the library fails once: that is said, and nothing is written. */
START_TEST(no_memory)
{
    static const uint64_t seeds[] = {70002, 70006, 70009};
    begin();
    for (size_t k = 0; k < 9; k++) {
        ckpt_status status = CKPT_E_NO_MEMORY;
        bool dropped;
        long n = 0;
        for (; status != CKPT_OK; n++) {
            ck_assert_int_lt(n, 20000);
            make_source(seeds[k / 3], false, false, &dropped);
            remove("../out");
            fail_after(n);
            status = migrate(formats[k % 3], "../out", k / 3 == 1, k % 3 == 1, false);
            fail_no_more();
            ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "allocation %ld to %s: %d: %s: %s", n,
                          formats[k % 3], (int)status, err.object, err.message);
            ck_assert(status == CKPT_OK || access("../out", F_OK) != 0);
        }
        ck_assert_int_gt(n, 20);
        compare(seeds[k / 3], "../out", k / 3 == 1);
    }
    end();
}
END_TEST

/* ---- thousands of small tensors, which are read together */

enum { MANY = 3000, FILE_SIZE = 200000 };

static unsigned char file_bytes[FILE_SIZE];

typedef struct little {
    char name[16];
    ckpt_dtype dtype;
    uint64_t at;
    int64_t shape[2];
    bool turned, split; /* columns before rows; the rows in two pieces */
} little;

static little littles[MANY];

static void add_little(size_t i, bool crcs)
{
    static const ckpt_dtype dtypes[] = {CKPT_U8, CKPT_BF16, CKPT_F32, CKPT_F64, CKPT_C64};
    little *l = &littles[i];
    *l =
        (little){.dtype = dtypes[draw(5)], .shape = {1 + (int64_t)draw(7), 1 + (int64_t)draw(9)}, .turned = chance(30)};
    l->split = !l->turned && l->shape[0] > 1 && chance(30);
    snprintf(l->name, sizeof l->name, "n%04zu", i * 7919 % MANY);
    uint64_t size = ckpt_dtype_size(l->dtype), n = (uint64_t)(l->shape[0] * l->shape[1]) * size,
             half = (uint64_t)(l->shape[0] / 2 * l->shape[1]) * size;
    l->at = chance(70) ? i * (FILE_SIZE - 1000) / MANY : draw(FILE_SIZE - n);
    ckpt__index *x = source->index;
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent = (ckpt__extent){.offset = l->at, .length = n, .size = n, .has_crc = crcs && !l->split && chance(50)};
    s->extent.crc = ckpt__crc32(0, file_bytes + l->at, (size_t)n);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s(l->name);
    t->info.dtype = l->dtype;
    t->info.ndim = 2;
    uint32_t storage = (uint32_t)x->storage_count - 1;
    int64_t strides[] = {1, l->shape[0]}, upper[] = {0, 0, l->shape[0] / 2, l->shape[1]},
            lower[] = {l->shape[0] / 2, 0, l->shape[0] - l->shape[0] / 2, l->shape[1]};
    const ckpt__piece pieces[] = {{.box = lower, .storage = storage, .at = half}, {.box = upper, .storage = storage}};
    ck_assert((l->split
                   ? ckpt__index_set_pieces(x, i, l->shape, pieces, 2, &err)
                   : ckpt__index_set_view(x, i, storage, l->shape, l->turned ? strides : NULL, 0, &err)) == CKPT_OK);
}

static void compare_little(const ckpt_reader *r, const little *l)
{
    unsigned char have[1024], want[1024];
    size_t at, size = ckpt_dtype_size(l->dtype), rows = (size_t)l->shape[0], columns = (size_t)l->shape[1];
    ck_assert_int_eq(ckpt_reader_find(r, l->name, strlen(l->name), &at, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, at, have, rows * columns * size, &err), CKPT_OK);
    for (size_t i = 0; i < rows * columns; i++)
        memcpy(want + i * size, file_bytes + l->at + (l->turned ? i % columns * rows + i / columns : i) * size, size);
    ck_assert_msg(memcmp(have, want, rows * columns * size) == 0, "%s differs", l->name);
}

START_TEST(small_ones)
{
    begin();
    for (size_t k = 0; k < 8; k++) {
        random_state = 99 + k;
        for (size_t i = 0; i < FILE_SIZE; i++)
            file_bytes[i] = (unsigned char)draw(256);
        FILE *f = fopen("bytes", "wb");
        ck_assert(f && fwrite(file_bytes, 1, FILE_SIZE, f) == FILE_SIZE && fclose(f) == 0);
        ck_assert_int_eq(ckpt__source_open("bytes", &opened, &err), CKPT_OK);
        ck_assert_ptr_nonnull(source->index = ckpt__index_new(0));
        for (size_t i = 0; i < MANY; i++)
            add_little(i, k % 2);
        source->index->format = "safetensors";
        source->index->kind = "file";
        source->index->step = -1;
        ck_assert(ckpt__index_finish(source->index, &err) == CKPT_OK);
        tensor_count = MANY;
        ck_assert_msg(migrate(formats[k % 4], k % 4 == 3 ? "../dir" : "../out", false, k < 4, false) == CKPT_OK,
                      "%s: %s", err.object, err.message);
        ckpt_reader *r;
        ck_assert_int_eq(ckpt_reader_open(k % 4 == 3 ? "../dir" : "../out", NULL, &r, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt_reader_tensor_count(r), MANY);
        for (size_t i = 0; i < MANY; i++)
            compare_little(r, &littles[i]);
        ckpt_reader_close(r);
    }
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_pieces");
    TCase *t = tcase_create("migrate_pieces");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, all_formats);
    tcase_add_test(t, several_ranks);
    tcase_add_test(t, several_ranks_or_nothing);
    tcase_add_test(t, damage);
    tcase_add_test(t, incomplete);
    tcase_add_test(t, small_ones);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
