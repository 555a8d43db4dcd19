/* test_migrate_back.c - a directory that reads back damaged is taken back, and nothing else with it. */
#include <ckpt/ckpt.h>
#include <dirent.h>
#include "folder_files.h"

static const flat weights[] = { { "w", 2, { 6, 3 } }, { "b", 1, { 6 } }, { "c", 1, { 9 } } };

static ckpt_error err;
static const char *victim;        /* the file that a bad disk gives back with other bytes, from the moment it is there */
static const char *guest;         /* somebody else's file, which is in the directory by then */
static bool spoilt;

static int spoil(void *ctx, uint64_t done, uint64_t total)
{
    char path[400];
    unsigned char byte;
    (void)ctx;
    (void)done;
    (void)total;
    strcpy(path, victim);
    FILE *f = spoilt ? NULL : fopen(path, "r+b");
    if (!f)
        return 0;
    ck_assert(fseek(f, -3, SEEK_END) == 0 && fread(&byte, 1, 1, f) == 1 && fseek(f, -3, SEEK_END) == 0);
    byte ^= 1;
    ck_assert(fwrite(&byte, 1, 1, f) == 1 && fclose(f) == 0);
    if (guest)
        write_text(guest, "mine");
    return spoilt = true, 0;
}

static ckpt_migrate_options with(const char *to)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = to;
    o.verify = o.no_sync = o.lossy = true;
    o.max_shard_size = 100;
    o.progress = (ckpt_progress){ spoil, NULL };
    spoilt = false;
    guest = NULL;
    return o;
}

static bool there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = -2;
    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

START_TEST(shards)
{
    ckpt_migrate_options o = with("hf");
    char dst[400], file[400];
    strcpy(dst, at("out"));
    strcpy(file, at("out/model-00002-of-00002.safetensors"));
    write_safetensors(at("in"), weights, 3, 1);
    victim = file;
    ck_assert_int_eq(ckpt_migrate(at("in"), dst, &o, NULL, &err), CKPT_E_DAMAGED);
    ck_assert(spoilt);
    ck_assert_ptr_nonnull(strstr(err.message, "and was removed"));
    ck_assert(!there(dst));
    ck_assert_int_eq(entries(folder), 1);
    o.progress.fn = NULL;
    ck_assert_msg(ckpt_migrate(at("in"), dst, &o, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(entries(dst), 3);
}
END_TEST

/* A file that came meanwhile is nobody's to remove. */
START_TEST(a_file_of_another_stays)
{
    ckpt_migrate_options o = with("hf");
    char dst[400], file[400], mine[400];
    strcpy(dst, at("out"));
    strcpy(file, at("out/model-00002-of-00002.safetensors"));
    strcpy(mine, at("out/notes.txt"));
    write_safetensors(at("in"), weights, 3, 1);
    victim = file;
    guest = mine;
    ck_assert_int_eq(ckpt_migrate(at("in"), dst, &o, NULL, &err), CKPT_E_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.message, "could not be removed"));
    ck_assert(there(mine));
    ck_assert_int_eq(entries(dst), 1);
    ck_assert_int_eq(entries(folder), 2);
}
END_TEST

/* Another directory has the name by now: it is not touched. */
static int replace(void *ctx, uint64_t done, uint64_t total)
{
    char command[1200];
    spoil(ctx, done, total);
    if (spoilt && !there(at("other"))) {
        snprintf(command, sizeof command, "cp -r '%s' '%s' && mv '%s' '%s' && mv '%s' '%s'", at("out"), at("copy"), at("out"),
                 at("other"), at("copy"), at("out"));
        ck_assert_int_eq(system(command), 0);
    }
    return 0;
}

START_TEST(another_directory_stays)
{
    ckpt_migrate_options o = with("hf");
    char dst[400], file[400];
    strcpy(dst, at("out"));
    strcpy(file, at("out/model-00002-of-00002.safetensors"));
    write_safetensors(at("in"), weights, 3, 1);
    victim = file;
    o.progress.fn = replace;
    ck_assert_int_eq(ckpt_migrate(at("in"), dst, &o, NULL, &err), CKPT_E_DAMAGED);
    ck_assert_int_eq(entries(dst), 3);
    ck_assert_int_eq(entries(at("other")), 3);
    ck_assert_int_eq(entries(folder), 3);
}
END_TEST

/* A directory of a framework's, with a folder in it; the source keeps every byte. */
START_TEST(in_its_own_format)
{
    ckpt_migrate_options o = with("same");
    char src[400], dst[400], file[400];
    strcpy(src, at("in"));
    strcpy(dst, at("out"));
    strcpy(file, at("out/model.safetensors"));
    make_directory("in");
    make_directory("in/more");
    write_safetensors(at("in/model.safetensors"), weights, 3, 0);
    write_adam(at("in/optimizer.bin"), weights, 3, 3, 0.1);
    write_torch_int(at("in/random_states_0.pkl"), "step", 3);
    write_text(at("in/more/notes.txt"), "kept");
    write_text(at("in/config.json"), "{}");
    victim = file;
    ck_assert_int_eq(ckpt_migrate(src, dst, &o, NULL, &err), CKPT_E_DAMAGED);
    ck_assert(spoilt);
    ck_assert_msg(!there(dst), "%s", err.message);
    ck_assert_int_eq(entries(folder), 1);
    ck_assert_int_eq(entries(src), 5);
    ck_assert_int_eq(ckpt_verify(src, NULL, NULL, NULL, NULL, &err), CKPT_OK);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_back");
    TCase *t = tcase_create("migrate_back");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, shards);
    tcase_add_test(t, a_file_of_another_stays);
    tcase_add_test(t, another_directory_stays);
    tcase_add_test(t, in_its_own_format);
    suite_add_tcase(s, t);
    return run_suite(s);
}
