/* test_migrate_turns.c - files of several ranks: their source is read once, though they part its pieces, or each of them has all of it;
 * and the files are the same by whichever way the tensors came. */
#include <ckpt/ckpt.h>

#include "../counted_reads.h"
#include "../runner.h"
#include "../scratch.h"

enum { TENSORS = 4, ROWS = 16384, WIDTH = 64 };

static ckpt_error err = CKPT_ERROR_INIT;
static const size_t bytes = (size_t)TENSORS * ROWS * WIDTH * 4;

static void save_rows(const char *path, int64_t rows)
{
    const size_t each = (size_t)rows * WIDTH * 4;
    float *memory = malloc(TENSORS * each);
    ckpt_arena_entry entries[TENSORS];
    char names[TENSORS][20];
    const int64_t shape[] = {rows, WIDTH};
    ck_assert_ptr_nonnull(memory);
    for (size_t i = 0; i < TENSORS * each / 4; i++)
        memory[i] = (float)i;
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.weight", i);
        entries[i] = (ckpt_arena_entry){names[i], i * each, 2, shape};
    }
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.data = memory;
    arena.nbytes = TENSORS * each;
    arena.dtype = CKPT_F32;
    arena.role = CKPT_ROLE_PARAM;
    int64_t step = 20;
    ckpt_state *s = ckpt_state_new();
    ck_assert_ptr_nonnull(s);
    ck_assert_int_ge(ckpt_state_i64(s, "step", &step, &err), 0);
    ck_assert_int_ge(ckpt_state_arena(s, &arena, entries, TENSORS, &err), 0);
    ck_assert_msg(ckpt_save(s, path, NULL, &err) >= 0, "%s", err.message);
    ckpt_state_free(s);
    free(memory);
}

static void save(const char *path)
{
    save_rows(path, ROWS);
}

static void migrate(const char *from, const char *to, uint32_t world, ckpt_migrate_options o, ckpt_report *r)
{
    o.struct_size = sizeof o;
    o.target_world = world;
    o.no_sync = true;
    o.threads = o.threads ? o.threads : 1;
    read_bytes = 0;
    ck_assert_msg(ckpt_migrate(from, to, &o, r, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}

static void cut(const char *from, const char *to, uint32_t world)
{
    migrate(from, to, world, (ckpt_migrate_options){.to = "dcp"}, NULL);
}

static void expect_read_once(const char *what, uint32_t world)
{
    ck_assert_msg(read_bytes >= bytes && read_bytes <= bytes + bytes / 8, "%s of %u: %llu bytes of %zu are read", what,
                  (unsigned)world, (unsigned long long)read_bytes, bytes);
}

static void run_command(const char *command)
{
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* Up to as many files as are written by turns; of more, two groups of files meet in a piece of each tensor. */
START_TEST(each_byte_is_read_once)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 7};
    save("a.safetensors");
    cut("a.safetensors", "of4", 4);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        char name[40], again[40], command[120];
        snprintf(name, sizeof name, "to%u", (unsigned)worlds[i]);
        cut("of4", name, worlds[i]);
        /* the list, a look at the end of each record, and what the journal is told by, come on top; and a block, for what is not a tensor */
        uint64_t most = bytes + bytes / 8 + (1 << 20);
        most += worlds[i] > 4 ? bytes / 4 * 2 : 0;
        ck_assert_msg(read_bytes >= bytes && read_bytes <= most, "for %u: %llu bytes of %zu are read",
                      (unsigned)worlds[i], (unsigned long long)read_bytes, bytes);
        snprintf(again, sizeof again, "again%u", (unsigned)worlds[i]);
        cut("a.safetensors", again, worlds[i]);
        snprintf(command, sizeof command, "diff -r %s %s", name, again);
        run_command(command);
    }
}
END_TEST

/* ---- a run, of which each rank has a directory */

static const char *const all[] = {"*"};

/* More ranks than files are written by turns otherwise; --verify reads the source once more. */
START_TEST(a_run_of_any_ranks_reads_once)
{
    static const uint32_t worlds[] = {1, 2, 9};
    save("a.safetensors");
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        char name[40], command[200];
        const unsigned n = worlds[i];
        snprintf(name, sizeof name, "run%u", n);
        migrate("a.safetensors", name, n, (ckpt_migrate_options){.to = "ckpt-run"}, NULL);
        expect_read_once("a run", n);
        for (unsigned r = 0; n > 1 && r < n; r++)
            for (int k = 0; k < 2; k++) {
                snprintf(command, sizeof command, "cmp run1/step-00000020/%s run%u/rank-%05u/step-00000020/%s",
                         k ? "training.safetensors" : "model.safetensors", n, r,
                         k ? "training.safetensors" : "model.safetensors");
                run_command(command);
            }
    }
}
END_TEST

/* Rank r of n has rows [ROWS * r / n, ROWS * (r + 1) / n) of each tensor. */
static void expect_rows(const char *run, int64_t n)
{
    float *rows = malloc(bytes / TENSORS);
    ck_assert_ptr_nonnull(rows);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < TENSORS; i++) {
            char path[80], name[40];
            ckpt_reader *reader;
            size_t at;
            const int64_t begin = ROWS * r / n, end = ROWS * (r + 1) / n;
            snprintf(path, sizeof path, "%s/rank-%05d/step-00000020", run, (int)r);
            snprintf(name, sizeof name, "layers.%d.weight", (int)i);
            ck_assert_int_eq(ckpt_reader_open(path, NULL, &reader, &err), CKPT_OK);
            ck_assert_int_eq(ckpt_reader_find(reader, name, strlen(name), &at, &err), CKPT_OK);
            ck_assert_int_eq(ckpt_reader_tensor(reader, at)->shape[0], end - begin);
            ck_assert_int_eq(ckpt_reader_read(reader, at, rows, ckpt_reader_tensor(reader, at)->nbytes, &err), CKPT_OK);
            int64_t k = 0;
            while (k < (end - begin) * WIDTH && rows[k] == (float)((i * ROWS + begin) * WIDTH + k))
                k++;
            ck_assert_msg(k == (end - begin) * WIDTH, "%s: %s: %lld", path, name, (long long)k);
            ckpt_reader_close(reader);
        }
    free(rows);
}

START_TEST(its_rows_are_read_once)
{
    const ckpt_migrate_options o = {.to = "ckpt-run", .shard = all, .shard_count = 1};
    save("a.safetensors");
    migrate("a.safetensors", "run4", 4, o, NULL);
    expect_read_once("rows", 4);
    expect_rows("run4", 4);
    static const uint32_t worlds[] = {3, 4, 7};
    const char *const also[] = {"run4/rank-00001/step-00000020", "run4/rank-00002/step-00000020",
                                "run4/rank-00003/step-00000020"};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        char name[40];
        ckpt_migrate_options again = o;
        again.also = also;
        again.also_count = 3;
        snprintf(name, sizeof name, "again%u", (unsigned)worlds[i]);
        migrate("run4/rank-00000/step-00000020", name, worlds[i], again, NULL);
        ck_assert_msg(read_bytes <= bytes + bytes / 8 + (worlds[i] > 4 ? bytes / 2 : 0),
                      "of %u: %llu bytes of %zu are read", (unsigned)worlds[i], (unsigned long long)read_bytes, bytes);
        expect_rows(name, worlds[i]);
    }
}
END_TEST

/* What a conversion costs is said of each value once, however many ranks have it. */
START_TEST(a_cast_is_counted_once)
{
    static const char *const half[] = {"*=float16"};
    static const struct {
        const char *to;
        uint32_t world;
        unsigned shards, threads;
    } ways[] = {{"ckpt-run", 1, 0, 1}, {"ckpt-run", 7, 0, 1}, {"ckpt-run", 3, 1, 1}, {"ckpt-run", 9, 1, 3},
                {"dcp", 4, 0, 1},      {"dcp", 7, 0, 1},      {"dcp", 10, 0, 3}};
    ckpt_report *first = ckpt_report_new();
    save_rows("a.safetensors", ROWS / 8);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char name[40];
        ckpt_report *r = i ? ckpt_report_new() : first;
        const ckpt_migrate_options o = {.to = ways[i].to,
                                        .cast = half,
                                        .cast_count = 1,
                                        .lossy = true,
                                        .shard = all,
                                        .shard_count = ways[i].shards,
                                        .threads = ways[i].threads};
        snprintf(name, sizeof name, "to%zu", i);
        migrate("a.safetensors", name, ways[i].world, o, r);
        ck_assert_uint_eq(ckpt_report_count_code(r, "cast-range"), TENSORS);
        for (size_t k = 0, n = 0; k < ckpt_report_count(r); k++) {
            const ckpt_finding *f = ckpt_report_get(r, k), *same = NULL;
            if (strcmp(f->code, "cast-range") != 0)
                continue;
            for (size_t at = 0, seen = 0; !same && at < ckpt_report_count(first); at++)
                if (strcmp(ckpt_report_get(first, at)->code, "cast-range") == 0 && seen++ == n)
                    same = ckpt_report_get(first, at);
            n++;
            ck_assert_msg(same && strcmp(f->message, same->message) == 0, "%zu: %s: %s", i, f->tensor, f->message);
        }
        if (i)
            ckpt_report_free(r);
    }
    ckpt_report_free(first);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate turns");
    TCase *t = tcase_create("turns");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, each_byte_is_read_once);
    tcase_add_test(t, a_run_of_any_ranks_reads_once);
    tcase_add_test(t, its_rows_are_read_once);
    tcase_add_test(t, a_cast_is_counted_once);
    suite_add_tcase(s, t);
    return run_suite(s);
}
