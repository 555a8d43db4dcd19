/* test_migrate_journal.c - migrations that are cancelled again and again end with the same bytes and the same findings as one that is
 * not; and what is wrong with the source is found, though each run reads a part of it. tests/fault/kill_migrate has the kills. */
#include <ckpt/ckpt.h>

#include "../runner.h"
#include "../scratch.h"

enum { TENSORS = 4, ROWS = 16384, WIDTH = 64 };

static ckpt_error err = CKPT_ERROR_INIT;

/* The last has so many rows, and as many bytes as the others. */
static void save(const char *path, int64_t rows, int64_t last_rows)
{
    const size_t each = (size_t)rows * WIDTH * 4, bytes = TENSORS * each;
    float *memory = malloc(bytes);
    ckpt_arena_entry entries[TENSORS];
    char names[TENSORS][20];
    const int64_t shape[] = {rows, WIDTH}, last[] = {last_rows, rows * WIDTH / last_rows};
    ck_assert_ptr_nonnull(memory);
    for (size_t i = 0; i < bytes / 4; i++)
        memory[i] = (float)i;
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.weight", i);
        entries[i] = (ckpt_arena_entry){names[i], i * each, 2, i + 1 < TENSORS ? shape : last};
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

/* Where it stops: when so many hundredths are done; 0: nowhere. */
static int stop_at(void *ctx, uint64_t done, uint64_t total)
{
    const unsigned *percent = ctx;
    return *percent && done * 100 > total * *percent;
}

static ckpt_status migrate(const char *from, const char *to, ckpt_migrate_options *o, unsigned percent, ckpt_report *r)
{
    err = (ckpt_error)CKPT_ERROR_INIT;
    o->no_sync = true;
    o->threads = 1;
    o->progress = (ckpt_progress){stop_at, &percent};
    return ckpt_migrate(from, to, o, r, &err);
}

static ckpt_migrate_options options_of(const char *to, uint32_t world)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = to;
    o.target_world = world;
    return o;
}

static int names_in(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

/* Stopped at each tenth, and gone on with each time. */
static void in_steps(const char *from, ckpt_migrate_options *o, ckpt_report *r)
{
    int kept = 0;
    ck_assert_int_eq(mkdir("out", 0777), 0);
    for (unsigned percent = 10; percent < 100; percent += 10) {
        ck_assert_int_eq(migrate(from, "out/x", o, percent, r), CKPT_E_CANCELLED);
        const size_t files = ckpt_report_count_code(r, "journal-kept");
        ck_assert_int_eq(names_in("out"), files ? 2 : 0);
        ck_assert(!files == !strstr(err.message, "finished file"));
        ck_assert_msg(!kept || ckpt_report_count_code(r, "journal-resumed") == 1 || !files, "at %u", percent);
        kept += files > 0;
    }
    ck_assert_int_gt(kept, 3);
    ck_assert_msg(migrate(from, "out/x", o, 0, r) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-resumed"), 1);
    ck_assert_int_eq(names_in("out"), 1);
}

START_TEST(the_bytes_are_the_same)
{
    ckpt_report *r = ckpt_report_new();
    ckpt_migrate_options first = options_of("dcp", 4), o = options_of("dcp", 12);
    save("a.safetensors", ROWS, ROWS);
    ck_assert_int_eq(migrate("a.safetensors", "of4", &first, 0, r), CKPT_OK);
    ck_assert_int_eq(migrate("of4", "whole", &o, 0, r), CKPT_OK);
    in_steps("of4", &o, r);
    ck_assert_int_eq(system("diff -r whole out/x"), 0);
    ckpt_report_free(r);
}
END_TEST

/* What conversions made of values is known of the tensors that earlier runs have read, too. */
START_TEST(the_findings_are_the_same)
{
    static const char *const cast[] = {"*=float16"};
    ckpt_report *whole = ckpt_report_new(), *r = ckpt_report_new();
    ckpt_migrate_options o = options_of("hf", 0);
    o.max_shard_size = 1000;
    o.cast = cast;
    o.cast_count = 1;
    save("a.safetensors", ROWS, ROWS);
    ck_assert_int_eq(migrate("a.safetensors", "whole", &o, 0, whole), CKPT_OK);
    in_steps("a.safetensors", &o, r);
    ck_assert_int_eq(system("diff -r whole out/x"), 0);
    ck_assert_uint_eq(ckpt_report_count_code(whole, "cast-range"), TENSORS);
    ck_assert_uint_eq(ckpt_report_count_code(r, "cast-range"), TENSORS);
    for (size_t i = 0; i < ckpt_report_count(whole); i++) {
        const ckpt_finding *f = ckpt_report_get(whole, i);
        const ckpt_finding *g = strcmp(f->code, "cast-range") == 0 ? ckpt_report_find(r, f->code, f->tensor) : f;
        ck_assert_ptr_nonnull(g);
        ck_assert_str_eq(f->message, g->message);
    }
    ckpt_report_free(whole);
    ckpt_report_free(r);
}
END_TEST

/* The last tensor goes to the files of eight ranks of twelve, which two runs write: none of them reads its record from end to end. The
 * third reads nothing of it, and finds the byte that is wrong all the same. */
START_TEST(what_was_not_compared_is_compared)
{
    ckpt_report *r = ckpt_report_new();
    ckpt_migrate_options first = options_of("torch", 0), o = options_of("dcp", 12);
    save("a.safetensors", 3 * ROWS, 8);
    first.lossy = true;
    ck_assert_int_eq(migrate("a.safetensors", "a.pt", &first, 0, r), CKPT_OK);
    FILE *f = fopen("a.pt", "r+");
    ck_assert(f && fseek(f, (36 << 20) + (200 << 10), SEEK_SET) == 0);
    int byte = getc(f);
    ck_assert(fseek(f, (36 << 20) + (200 << 10), SEEK_SET) == 0 && putc(byte ^ 0x20, f) != EOF && fclose(f) == 0);
    ck_assert_int_eq(migrate("a.pt", "x", &o, 0, r), CKPT_E_DAMAGED);
    ck_assert_int_eq(mkdir("out", 0777), 0);
    for (unsigned percent = 38; percent < 90; percent += 38) {
        ck_assert_msg(migrate("a.pt", "out/x", &o, percent, r) == CKPT_E_CANCELLED, "%s: %s", err.object, err.message);
        ck_assert_uint_eq(ckpt_report_count_code(r, "journal-kept"), 1);
    }
    ck_assert_int_eq(migrate("a.pt", "out/x", &o, 0, r), CKPT_E_DAMAGED);
    ck_assert_uint_eq(ckpt_report_count_code(r, "journal-resumed"), 1);
    ck_assert_int_eq(names_in("out"), 0);
    ckpt_report_free(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate journal");
    TCase *t = tcase_create("journal");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_bytes_are_the_same);
    tcase_add_test(t, the_findings_are_the_same);
    tcase_add_test(t, what_was_not_compared_is_compared);
    suite_add_tcase(s, t);
    return run_suite(s);
}
