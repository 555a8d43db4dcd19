/* test_list_pieces.c - what list --pieces says of a tensor that is split: the command over a reader that the test changes. */
#include <ckpt/ckpt.h>

#include "cli/inspect/inspect.h"
#include "cli/inspect/newest.h"
#include "reader/reader.h"
#include "../runner.h"
#include "../scratch.h"

/* The PATH of this test is one checkpoint. */
ckpt_reader *newest_open(const command_line *o, size_t which)
{
    return cli_open(&o->cli, o->paths[which]);
}

static int way; /* 0: boxes, 1: ranges, 2: as it is */

ckpt_status __real_ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                    ckpt_error *e);
ckpt_status __wrap_ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                    ckpt_error *e);

/* w, 8 x 4, is split into the storages of v and of itself. */
ckpt_status __wrap_ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                    ckpt_error *e)
{
    static const int64_t shape[] = {8, 4}, upper[] = {0, 0, 4, 4}, lower[] = {4, 0, 4, 4, 1, 4}, first[] = {0, 30},
                         last[] = {30, 2};
    ckpt_status status = __real_ckpt_reader_open(path, options, out, e);
    if (status < 0 || way == 2)
        return status;
    ckpt__index *x = (*out)->index;
    ckpt__tensor *t = &x->tensors[1];
    const ckpt__piece boxes[] =
        {{.box = upper, .storage = 0, .at = 8, .flags = CKPT__PIECE_REPLICA},
         {.box = lower, .storage = 1, .flags = CKPT__PIECE_STRIDED, .crc = 0xab, .has_crc = true}},
                      ranges[] = {{.box = first, .storage = 0, .flags = CKPT__PIECE_FLAT},
                                  {.box = last, .storage = 1, .flags = CKPT__PIECE_FLAT, .at = 64}};
    ck_assert_str_eq(t->info.name.data, "w");
    x->storages[0].device = ckpt__s("cuda:0");
    t->whole = false;
    t->info.storage = -1;
    ck_assert(ckpt__index_set_pieces(x, 1, shape, way ? ranges : boxes, 2, e) == CKPT_OK);
    return CKPT_OK;
}

/* Runs the command, and compares the lines that have `with` in them. */
static void said(int is, bool json, bool checksum, const char *with, const char *wanted)
{
    static char path[] = "w.safetensors";
    char *paths[] = {path, NULL}, line[4096], all[8192] = "";
    command_line o = {.command = COMMAND(LIST), .paths = paths, .path_count = 1, .pieces = true};
    o.cli.program = "ckpt-inspect";
    o.cli.json = json;
    o.cli.checksum = checksum;
    way = is;
    fflush(stdout);
    int keep = dup(1);
    ck_assert(freopen("out", "w", stdout) != NULL);
    int status = inspect_list(&o);
    fflush(stdout);
    dup2(keep, 1);
    close(keep);
    ck_assert_int_eq(status, 0);
    FILE *f = fopen("out", "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, with);
        if (at && strlen(all) + strlen(line) < sizeof all)
            strcat(all, json ? at : line);
    }
    fclose(f);
    ck_assert_str_eq(all, wanted);
}

static void make_file(void)
{
    static const char header[] = "{\"v\":{\"dtype\":\"F32\",\"shape\":[32],\"data_offsets\":[0,128]},"
                                 "\"w\":{\"dtype\":\"F32\",\"shape\":[8,4],\"data_offsets\":[128,256]}}    ";
    uint64_t n = sizeof header - 1;
    make_scratch();
    FILE *f = fopen("w.safetensors", "w");
    ck_assert(f && fwrite(&n, 1, 8, f) == 8 && fwrite(header, 1, n, f) == n);
    for (int i = 0; i < 256; i++)
        fputc(i, f);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(text)
{
    said(0, false, false, ":",
         "    [0:4, 0:4] (replica)  -        64 B  cuda:0\n"
         "    [4:8, 0:4]            -        64 B  -\n");
    said(1, false, false, ":",
         "    elements 0:30   -       120 B  cuda:0\n"
         "    elements 30:32  -         8 B  -\n");
    said(2, false, false, ":", "");
}
END_TEST

START_TEST(json)
{
    said(0, true, false, "\"pieces\": [{\"rank\": null, \"file\": null, \"device\": \"cuda:0\"",
         "\"pieces\": [{\"rank\": null, \"file\": null, \"device\": \"cuda:0\", \"lo\": [0, 0], \"shape\": [4, 4], "
         "\"flat_begin\": null, \"flat_count\": null, \"strides\": [4, 1], \"nbytes\": 64, \"storage\": 0, "
         "\"storage_nbytes\": 128, \"offset\": 8, \"file_offset\": 136, \"crc32\": null, \"replica\": true}, "
         "{\"rank\": null, \"file\": null, \"device\": null, \"lo\": [4, 0], \"shape\": [4, 4], "
         "\"flat_begin\": null, \"flat_count\": null, \"strides\": [1, 4], \"nbytes\": 64, \"storage\": 1, "
         "\"storage_nbytes\": 128, \"offset\": 0, \"file_offset\": 256, \"crc32\": \"000000ab\"}]}\n");
    said(1, true, false, "{\"rank\": null, \"file\": null, \"device\": null, \"lo\": null",
         "{\"rank\": null, \"file\": null, \"device\": null, \"lo\": null, \"shape\": null, "
         "\"flat_begin\": 30, \"flat_count\": 2, \"strides\": null, \"nbytes\": 8, \"storage\": 1, "
         "\"storage_nbytes\": 128, \"offset\": 64, \"file_offset\": 320, \"crc32\": null}]}\n");
}
END_TEST

/* A checksum of a split tensor is that of its elements in order. */
START_TEST(checksums)
{
    said(1, false, true, "  w\n", "float32  [8, 4]  -       -          128 B  1eefc59c  w\n");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("list_pieces");
    TCase *t = tcase_create("list_pieces");
    tcase_add_checked_fixture(t, make_file, remove_scratch);
    tcase_add_test(t, text);
    tcase_add_test(t, json);
    tcase_add_test(t, checksums);
    suite_add_tcase(s, t);
    return run_suite(s);
}
