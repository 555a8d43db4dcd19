/* test_migrate_turns.c - a distributed checkpoint that is cut anew for another number of ranks: its bytes are read once, though the
 * files of the target part the pieces of the source; and the files are the same by whichever way the tensors came. */
#include <ckpt/ckpt.h>

#include "../counted_reads.h"
#include "../runner.h"
#include "../scratch.h"

enum { TENSORS = 4, ROWS = 16384, WIDTH = 64 };

static ckpt_error err = CKPT_ERROR_INIT;
static const size_t bytes = (size_t)TENSORS * ROWS * WIDTH * 4;

static void save(const char *path)
{
    float *memory = malloc(bytes);
    ckpt_arena_entry entries[TENSORS];
    char names[TENSORS][20];
    const int64_t shape[] = {ROWS, WIDTH};
    ck_assert_ptr_nonnull(memory);
    for (size_t i = 0; i < bytes / 4; i++)
        memory[i] = (float)i;
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.weight", i);
        entries[i] = (ckpt_arena_entry){names[i], (uint64_t)i * ROWS * WIDTH * 4, 2, shape};
    }
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.data = memory;
    arena.nbytes = bytes;
    arena.dtype = CKPT_F32;
    arena.role = CKPT_ROLE_PARAM;
    ckpt_state *s = ckpt_state_new();
    ck_assert_ptr_nonnull(s);
    ck_assert_int_ge(ckpt_state_arena(s, &arena, entries, TENSORS, &err), 0);
    ck_assert_msg(ckpt_save(s, path, NULL, &err) >= 0, "%s", err.message);
    ckpt_state_free(s);
    free(memory);
}

static void cut(const char *from, const char *to, uint32_t world)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = "dcp";
    o.target_world = world;
    o.no_sync = true;
    o.threads = 1;
    read_bytes = 0;
    ck_assert_msg(ckpt_migrate(from, to, &o, NULL, &err) == CKPT_OK, "%s: %s", err.object, err.message);
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
        uint64_t most =
            bytes +
            bytes / 8; /* the list, a look at the end of each record, and what the journal is told by, come on top */
        most += worlds[i] > 4 ? bytes / 4 * 2 : 0;
        ck_assert_msg(read_bytes >= bytes && read_bytes <= most, "for %u: %llu bytes of %zu are read",
                      (unsigned)worlds[i], (unsigned long long)read_bytes, bytes);
        snprintf(again, sizeof again, "again%u", (unsigned)worlds[i]);
        cut("a.safetensors", again, worlds[i]);
        snprintf(command, sizeof command, "diff -r %s %s", name, again);
        ck_assert_int_eq(system(command), 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate turns");
    TCase *t = tcase_create("turns");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, each_byte_is_read_once);
    suite_add_tcase(s, t);
    return run_suite(s);
}
