/* The totals of a migration: what the plan says before a byte is read, against what the reader says of the source's tensors and pieces. */
#include <ckpt/ckpt.h>
#include "../folder_files.h"

static ckpt_error err;
static ckpt_migrate_totals totals;

static void setup(void)
{
    make_folder();
    totals = (ckpt_migrate_totals)CKPT_MIGRATE_TOTALS_INIT;
}

static const char *fixture(const char *name)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s/tests/data/%s", getenv("srcdir"), name);
    return path;
}

static void plans(const char *from, const char *drop, bool dry)
{
    ckpt_migrate_options o = {.to = "safetensors", .lossy = true, .no_sync = true, .dry_run = dry, .totals = &totals};
    o.drop = &drop;
    o.drop_count = drop != NULL;
    ckpt_status status = ckpt_migrate(from, at("x.safetensors"), &o, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(access(at("x.safetensors"), F_OK), dry ? -1 : 0);
}

static const flat weights[] = {{"a", 2, {5, 3}}, {"b", 2, {100, 100}}, {"c", 1, {7, 0}}, {"d", 1, {0, 0}}};

START_TEST(whole_tensors)
{
    write_safetensors(at("w.safetensors"), weights, 4, 1);
    plans(at("w.safetensors"), NULL, _i == 0);
    ck_assert_uint_eq(totals.bytes_in, 4 * (15 + 10000 + 7));
    ck_assert_uint_eq(totals.bytes_out, totals.bytes_in);
    ck_assert_uint_eq(totals.bytes_read, totals.bytes_in);
    ck_assert_uint_eq(totals.replicas + totals.coded + totals.coded_reads, 0);
    unlink(at("x.safetensors"));
    plans(at("w.safetensors"), "b", true);
    ck_assert_uint_eq(totals.bytes_in, 4 * (15 + 7));
    ck_assert_uint_eq(totals.bytes_read, totals.bytes_in);
}
END_TEST

static bool same_box(const ckpt_piece_info *a, const ckpt_piece_info *b, uint32_t ndim)
{
    for (uint32_t d = 0; d < ndim; d++)
        if (a->lo[d] != b->lo[d] || a->size[d] != b->size[d])
            return false;
    return true;
}

/* Two ranks that each wrote a list: what both have is read once. Each piece that is read is one copy, for the target is whole. */
START_TEST(pieces_and_replicas)
{
    ckpt_reader *reader = NULL;
    uint64_t sum = 0, pieces = 0, replicas = 0;
    const char *path = fixture("dcp/ranks");
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        size_t n = ckpt_reader_piece_count(reader, i);
        sum += t->nbytes;
        for (size_t k = 0; k < n; k++) {
            ckpt_piece_info one = CKPT_PIECE_INFO_INIT, other = CKPT_PIECE_INFO_INIT;
            bool again = false;
            ck_assert_int_eq(ckpt_reader_piece(reader, i, k, &one, &err), CKPT_OK);
            for (size_t l = 0; l < k && !again; l++) {
                ck_assert_int_eq(ckpt_reader_piece(reader, i, l, &other, &err), CKPT_OK);
                again = same_box(&one, &other, t->ndim);
            }
            replicas += again;
            pieces++;
        }
    }
    ckpt_reader_close(reader);
    plans(path, NULL, true);
    ck_assert_uint_gt(replicas, 0);
    ck_assert_uint_eq(totals.replicas, replicas);
    ck_assert_uint_eq(totals.copies, pieces - replicas);
    ck_assert_uint_eq(totals.bytes_in, sum);
    ck_assert_uint_eq(totals.bytes_read, sum);
}
END_TEST

/* Each tensor is a frame of its own, but for one in an object, which lies in memory: the frames are read, not the elements alone. */
START_TEST(compressed)
{
    plans(fixture("dcp/zstd"), NULL, true);
    ck_assert_uint_gt(totals.coded, 0);
    ck_assert_uint_eq(totals.coded_reads, totals.coded);
    ck_assert_uint_eq(totals.copies, totals.coded + 1);
    ck_assert_uint_gt(totals.bytes_read, totals.bytes_in); /* small tensors, each with its archive */
    ck_assert_uint_eq(totals.bytes_in, totals.bytes_out);
}
END_TEST

/* A struct that no release had is refused before anything is done; a call that fails fills nothing. */
START_TEST(the_struct)
{
    ckpt_migrate_options o = {.to = "safetensors", .totals = &totals};
    write_safetensors(at("w.safetensors"), weights, 3, 1);
    totals.struct_size = 8;
    ck_assert_int_eq(ckpt_migrate(at("w.safetensors"), at("x.safetensors"), &o, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(access(at("x.safetensors"), F_OK), -1);
    totals = (ckpt_migrate_totals)CKPT_MIGRATE_TOTALS_INIT;
    totals.copies = 77;
    ck_assert_int_lt(ckpt_migrate(at("none"), at("x.safetensors"), &o, NULL, &err), 0);
    ck_assert_uint_eq(totals.copies, 77);
}
END_TEST

static ckpt_report *dry_run(const char *src, const char *to, const char *map)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    ckpt_report *report = ckpt_report_new();
    o.to = to;
    o.dry_run = true;
    o.map_location = map;
    ck_assert_msg(ckpt_migrate(src, at("never"), &o, report, &err) == CKPT_OK, "%s", err.message);
    return report;
}

/* Every action names a tensor by its whole name, escaped. */
START_TEST(names_in_full)
{
    static char long_name[401], longer[402];
    const flat named[] = {{long_name, 1, {3}}, {longer, 1, {3}}, {"new\nline", 1, {3}}};
    memset(long_name, 'x', sizeof long_name - 1);
    memset(longer, 'x', sizeof longer - 1);
    write_torch_flat(at("in.pt"), named, 3, 1);
    for (int moved = 0; moved < 2; moved++) {
        const char *code = moved ? "moved" : "copy";
        ckpt_report *report = dry_run(at("in.pt"), "torch", moved ? "cuda:0" : NULL);
        ck_assert_uint_eq(ckpt_report_count_code(report, code), 3);
        ck_assert_ptr_nonnull(ckpt_report_find(report, code, long_name));
        ck_assert_ptr_nonnull(ckpt_report_find(report, code, longer));
        ck_assert_ptr_nonnull(ckpt_report_find(report, code, "new\\nline"));
        ckpt_report_free(report);
    }
}
END_TEST

/* What is lost is not among what is written: 1 and '1' have one name in safetensors. */
START_TEST(what_is_left_out_is_not_in_the_plan)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(K\1");
    torch_tensor(t, 1, 3, 0, 1);
    put_str(&t->pickle, "1");
    torch_tensor(t, 1, 3, 0, 2);
    put_str(&t->pickle, "w");
    torch_tensor(t, 1, 3, 0, 3);
    PUT(&t->pickle, "u");
    write_torch(at("in.pt"), t);
    ckpt_report *report = dry_run(at("in.pt"), "safetensors", NULL);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "lost", "1"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "copy"), 2);
    ckpt_report_free(report);
    report = dry_run(at("in.pt"), "torch", NULL);
    ck_assert_uint_eq(ckpt_report_count_code(report, "copy"), 3);
    ckpt_report_free(report);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("migrate_totals");
    TCase *tcase = tcase_create("totals");
    tcase_add_checked_fixture(tcase, setup, remove_folder);
    tcase_add_loop_test(tcase, whole_tensors, 0, 2);
    tcase_add_test(tcase, pieces_and_replicas);
    tcase_add_test(tcase, compressed);
    tcase_add_test(tcase, the_struct);
    tcase_add_test(tcase, names_in_full);
    tcase_add_test(tcase, what_is_left_out_is_not_in_the_plan);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
