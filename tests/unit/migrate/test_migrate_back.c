/* test_migrate_back.c - what was written takes its name after it was read back: what reads back damaged never has it, and
 * what had it before is untouched. */
#include <ckpt/ckpt.h>
#include <dirent.h>
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>
#include "../folder_files.h"

static const flat weights[] = {{"w", 2, {6, 3}}, {"b", 1, {6}}, {"c", 1, {9}}};

static ckpt_error err;
static const char *victim; /* below the target, or "" for the target: it reads back with other bytes */
static const char *taker;  /* somebody else's file, which takes the target's name meanwhile */
static bool spoilt;
static int answer;

/* Called while the target is written: it has no name yet, and lies beside that. Once all of it is there, a byte changes. */
static int spoil(void *ctx, uint64_t done, uint64_t total)
{
    char pattern[600];
    unsigned char byte;
    glob_t found;
    (void)ctx;
    if (spoilt || done * 2 < total)
        return 0;
    snprintf(pattern, sizeof pattern, "%s/.%s*%s", folder, *victim ? "tmp-out" : "out.tmp", victim);
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    ck_assert_uint_eq(found.gl_pathc, 1);
    FILE *f = fopen(found.gl_pathv[0], "r+b");
    ck_assert(f && fseek(f, -3, SEEK_END) == 0 && fread(&byte, 1, 1, f) == 1 && fseek(f, -3, SEEK_END) == 0);
    byte = (unsigned char)(byte ^ 1);
    ck_assert(fwrite(&byte, 1, 1, f) == 1 && fclose(f) == 0);
    globfree(&found);
    return spoilt = true, 0;
}

static const char *was, *is; /* of one length: the header reads back with the second for the first */

static int turn(void *ctx, uint64_t done, uint64_t total)
{
    char pattern[600], head[4096];
    glob_t found;
    (void)ctx;
    if (spoilt || done * 2 < total)
        return 0;
    snprintf(pattern, sizeof pattern, "%s/.out.tmp*", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    ck_assert_uint_eq(found.gl_pathc, 1);
    FILE *f = fopen(found.gl_pathv[0], "r+b");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(head, 1, sizeof head, f);
    char *at = memmem(head, n, was, strlen(was));
    ck_assert_msg(at != NULL, "no %s in the header", was);
    ck_assert(fseek(f, at - head, SEEK_SET) == 0 && fwrite(is, 1, strlen(is), f) == strlen(is) && fclose(f) == 0);
    globfree(&found);
    return spoilt = true, 0;
}

static bool of_the_id; /* else of the directory */

/* A bit of an archive that no tensor shows: in torch's id, or in the number of a disk. */
static void spoil_archive_file(const char *path)
{
    static const char name[] = ".data/serialization_id";
    static char text[1 << 16];
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(text, 1, sizeof text, f);
    char *at = of_the_id ? memmem(text, n, name, sizeof name - 1) : memmem(text, n, "PK\1\2", 4);
    ck_assert_ptr_nonnull(at);
    for (at += of_the_id ? (long)sizeof name - 1 : 35; of_the_id && strspn(at, "0123456789") < 40;)
        at++;
    *at = (char)(*at ^ 4);
    ck_assert(fseek(f, at - text, SEEK_SET) == 0 && fwrite(at, 1, 1, f) == 1 && fclose(f) == 0);
}

static int spoil_archive(void *ctx, uint64_t done, uint64_t total)
{
    char pattern[600];
    glob_t found;
    (void)ctx;
    snprintf(pattern, sizeof pattern, "%s/.out.tmp*", folder);
    if (spoilt || done * 2 < total || glob(pattern, 0, NULL, &found) != 0)
        return 0;
    spoil_archive_file(found.gl_pathv[0]);
    globfree(&found);
    return spoilt = true, 0;
}

/* As spoil is called, but nothing is spoilt: the name is taken, or the user has enough. */
static int interfere(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (done * 2 <= total || spoilt)
        return 0;
    if (taker)
        write_text(taker, "mine");
    return spoilt = true, answer;
}

static ckpt_migrate_options with(const char *to)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = to;
    o.verify = o.lossy = true;
    o.threads = 1; /* what was counted as done is in the file */
    o.max_shard_size = 100;
    o.progress = (ckpt_progress){spoil, NULL};
    spoilt = false;
    taker = NULL;
    answer = 0;
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

static bool holds(const char *path, const char *text)
{
    char have[64] = "";
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(have, 1, sizeof have - 1, f) : 0;
    if (f)
        fclose(f);
    return n == strlen(text) && strcmp(have, text) == 0;
}

static void is_damaged(const char *src, const char *dst, const ckpt_migrate_options *o)
{
    ck_assert_int_eq(ckpt_migrate(src, dst, o, NULL, &err), CKPT_E_DAMAGED);
    ck_assert(spoilt);
    ck_assert_msg(strstr(err.message, "reads back damaged") && strstr(err.message, "is untouched"), "%s", err.message);
    ck_assert_str_eq(err.object, dst);
}

START_TEST(shards)
{
    ckpt_migrate_options o = with("hf");
    char dst[400];
    strcpy(dst, at("out"));
    write_safetensors(at("in"), weights, 3, 1);
    victim = "/model-00002-of-00002.safetensors";
    is_damaged(at("in"), dst, &o);
    ck_assert(!there(dst));
    ck_assert_int_eq(entries(folder), 1);
    o.progress.fn = NULL;
    ck_assert_msg(ckpt_migrate(at("in"), dst, &o, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(entries(dst), 3);
    ck_assert_int_eq(entries(folder), 2);
}
END_TEST

START_TEST(another_shape)
{
    ckpt_migrate_options o = with("safetensors");
    char dst[400];
    strcpy(dst, at("out"));
    write_safetensors(at("in"), weights, 3, 1);
    o.progress.fn = turn;
    was = "\"shape\":[6,3]"; /* as many bytes, of the same dtype, and each in its place */
    is = "\"shape\":[3,6]";
    is_damaged(at("in"), dst, &o);
    ck_assert_msg(strstr(err.message, "tensor 'w' reads back with the shape [3, 6], and has [6, 3]"), "%s",
                  err.message);
    ck_assert(!there(dst));
}
END_TEST

/* Nothing but the header tells of it: its name, its dtype, its shape. */
START_TEST(a_tensor_without_elements)
{
    static const flat with_empty[] = {{"w", 2, {6, 3}}, {"empty", 2, {0, 5}}};
    static const char *const spoilt_header[][3] = {
        {"\"empty\"", "\"emqty\"", "tensor 'empty' was written, and does not read back"},
        {"\"empty\":{\"dtype\":\"F32\"", "\"empty\":{\"dtype\":\"I32\"",
         "tensor 'empty' reads back as int32, and is float32"},
        {"\"shape\":[0,5]", "\"shape\":[0,4]", "tensor 'empty' reads back with the shape [0, 4], and has [0, 5]"}};
    ckpt_migrate_options o = with("safetensors");
    char dst[400];
    strcpy(dst, at("out"));
    write_safetensors(at("in"), with_empty, 2, 1);
    o.progress.fn = turn;
    was = spoilt_header[_i][0];
    is = spoilt_header[_i][1];
    is_damaged(at("in"), dst, &o);
    ck_assert_msg(strstr(err.message, spoilt_header[_i][2]), "%s", err.message);
    ck_assert(!there(dst));
    o.progress.fn = NULL;
    ck_assert_msg(ckpt_migrate(at("in"), dst, &o, NULL, &err) == CKPT_OK, "%s", err.message);
}
END_TEST

/* What torch's reader needs beside the tensors. */
START_TEST(what_no_tensor_shows)
{
    ckpt_migrate_options o = with("torch");
    char dst[400];
    strcpy(dst, at("out"));
    write_safetensors(at("in"), weights, 3, 1);
    of_the_id = _i;
    o.progress.fn = spoil_archive;
    is_damaged(at("in"), dst, &o);
    ck_assert_msg(strstr(err.message, _i ? "the record .data/serialization_id reads back with CRC-32"
                                         : "torch refuses: unsupported multidisk archive"),
                  "%s", err.message);
    ck_assert(!there(dst));
    o.progress.fn = NULL;
    ck_assert_msg(ckpt_migrate(at("in"), dst, &o, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt_verify(dst, NULL, NULL, NULL, &err), CKPT_OK);
    spoil_archive_file(dst);
    ckpt_report *report = ckpt_report_new();
    ck_assert_int_eq(ckpt_verify(dst, NULL, NULL, report, &err), CKPT_ANSWER_NO);
    ck_assert_ptr_nonnull(ckpt_report_find(report, _i ? "crc-mismatch" : "torch-refuses", NULL));
    ckpt_report_free(report);
}
END_TEST

/* One file over another, by its name and through a link; --force does not give the old one away. */
START_TEST(the_old_file_stays)
{
    ckpt_migrate_options o = with(_i % 2 ? "torch" : "safetensors");
    bool linked = _i >= 2;
    char dst[400], name[400];
    strcpy(dst, at("out"));
    strcpy(name, linked ? at("link") : dst);
    write_safetensors(at("in"), weights, 3, 1);
    write_text(dst, "the only good one");
    if (linked)
        ck_assert_int_eq(symlink("out", name), 0);
    victim = "";
    o.force = true;
    is_damaged(at("in"), name, &o);
    ck_assert(holds(dst, "the only good one"));
    ck_assert_int_eq(entries(folder), linked ? 3 : 2);
    o.progress.fn = NULL;
    ck_assert_msg(ckpt_migrate(at("in"), name, &o, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt_verify(name, NULL, NULL, NULL, &err), CKPT_OK);
    ck_assert_int_eq(entries(folder), linked ? 3 : 2);
}
END_TEST

static int calls;

static int die(void *ctx, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    if (--calls == 0)
        raise(SIGKILL);
    return *(const int *)ctx;
}

/* Killed at each call of the progress, while it is written and while it is read back: the old one has the name. */
START_TEST(killed)
{
    ckpt_migrate_options o = with(_i ? "hf" : "safetensors");
    static const int go_on = 0;
    char dst[400], old[400];
    int status = 0, kills = 0;
    strcpy(dst, at("out"));
    strcpy(old, at(_i ? "out/model.safetensors" : "out"));
    write_safetensors(at("in"), weights, 3, 1);
    if (_i)
        make_directory("out");
    write_safetensors(old, weights, 2, 50);
    o.force = true;
    o.progress = (ckpt_progress){die, (void *)(uintptr_t)&go_on};
    for (int k = 1; !WIFEXITED(status) || k == 1; k++) {
        calls = k;
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            _exit(ckpt_migrate(at("in"), dst, &o, NULL, &err) == CKPT_OK ? 0 : 1);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        if (WIFEXITED(status))
            break;
        kills++;
        ckpt_reader *r = NULL;
        ck_assert_int_eq(ckpt_reader_open(old, NULL, &r, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt_reader_tensor_count(r), 2);
        ckpt_reader_close(r);
        ck_assert(!_i || entries(dst) == 1);
    }
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_ge(kills, 4); /* a block and three tensors */
    ck_assert_int_eq(ckpt_verify(dst, NULL, NULL, NULL, &err), CKPT_OK);
    ck_assert(_i ? entries(dst) == 3 : there(dst));
}
END_TEST

/* A directory over another. */
START_TEST(the_old_directory_stays)
{
    ckpt_migrate_options o = with("hf");
    char dst[400];
    strcpy(dst, at("out"));
    write_safetensors(at("in"), weights, 3, 1);
    make_directory("out");
    write_safetensors(at("out/model.safetensors"), weights, 2, 50);
    write_text(at("out/model.safetensors.index.json"), "the only good one");
    victim = "/model-00001-of-00002.safetensors";
    o.force = true;
    is_damaged(at("in"), dst, &o);
    ck_assert_int_eq(entries(dst), 2);
    ck_assert(holds(at("out/model.safetensors.index.json"), "the only good one"));
    ck_assert_int_eq(ckpt_verify(at("out/model.safetensors"), NULL, NULL, NULL, &err), CKPT_OK);
    ck_assert_int_eq(entries(folder), 2);
}
END_TEST

/* Somebody takes the name while the target is read back, and was not to be replaced. */
START_TEST(a_name_that_was_taken_meanwhile)
{
    ckpt_migrate_options o = with(_i ? "hf" : "safetensors");
    char dst[400];
    strcpy(dst, at("out"));
    write_safetensors(at("in"), weights, 3, 1);
    o.progress.fn = interfere;
    taker = dst;
    ck_assert_int_eq(ckpt_migrate(at("in"), dst, &o, NULL, &err), CKPT_E_EXISTS);
    ck_assert(spoilt && holds(dst, "mine"));
    ck_assert_int_eq(entries(folder), 2);
}
END_TEST

/* Or puts a file into the directory that is to be replaced. */
START_TEST(what_came_meanwhile_stays)
{
    ckpt_migrate_options o = with("hf");
    char dst[400], mine[400];
    strcpy(dst, at("out"));
    strcpy(mine, at("out/notes.txt"));
    write_safetensors(at("in"), weights, 3, 1);
    make_directory("out");
    write_safetensors(at("out/model.safetensors"), weights, 2, 50);
    o.force = true;
    o.progress.fn = interfere;
    taker = mine;
    ck_assert_int_eq(ckpt_migrate(at("in"), dst, &o, NULL, &err), CKPT_E_EXISTS);
    ck_assert(spoilt && holds(mine, "mine"));
    ck_assert_int_eq(entries(dst), 2);
    ck_assert_int_eq(entries(folder), 2);
}
END_TEST

START_TEST(cancelled_while_it_is_read_back)
{
    ckpt_migrate_options o = with(_i ? "hf" : "safetensors");
    char dst[400];
    strcpy(dst, at("out"));
    write_safetensors(at("in"), weights, 3, 1);
    o.progress.fn = interfere;
    answer = 1;
    ck_assert_int_eq(ckpt_migrate(at("in"), dst, &o, NULL, &err), CKPT_E_CANCELLED);
    ck_assert(spoilt && !there(dst));
    /* The finished files of a directory stay, and their journal: the same command goes on with them. */
    ck_assert_int_eq(entries(folder), _i ? 3 : 1);
    o.progress.fn = NULL;
    ck_assert_int_eq(ckpt_migrate(at("in"), dst, &o, NULL, &err), CKPT_OK);
    ck_assert(there(dst));
    ck_assert_int_eq(entries(folder), 2);
}
END_TEST

/* A directory of a framework's, with a folder in it; the source keeps every byte. */
START_TEST(in_its_own_format)
{
    ckpt_migrate_options o = with("same");
    char src[400], dst[400];
    strcpy(src, at("in"));
    strcpy(dst, at("out"));
    make_directory("in");
    make_directory("in/more");
    write_safetensors(at("in/model.safetensors"), weights, 3, 0);
    write_adam(at("in/optimizer.bin"), weights, 3, 3, 0.1);
    write_torch_int(at("in/random_states_0.pkl"), "step", 3);
    write_text(at("in/more/notes.txt"), "kept");
    victim = _i == 0 ? "/model.safetensors" : _i == 1 ? "/more/notes.txt" : "/config.json";
    write_text(at("in/config.json"), "{\"a\":1}");
    is_damaged(src, dst, &o);
    ck_assert_msg(!there(dst), "%s", err.message);
    ck_assert_int_eq(entries(folder), 1);
    ck_assert_int_eq(entries(src), 5);
    ck_assert_int_eq(ckpt_verify(src, NULL, NULL, NULL, &err), CKPT_OK);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_back");
    TCase *t = tcase_create("migrate_back");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, shards);
    tcase_add_test(t, another_shape);
    tcase_add_loop_test(t, a_tensor_without_elements, 0, 3);
    tcase_add_loop_test(t, what_no_tensor_shows, 0, 2);
    tcase_add_loop_test(t, the_old_file_stays, 0, 4);
    tcase_add_test(t, the_old_directory_stays);
    tcase_add_loop_test(t, killed, 0, 2);
    tcase_add_loop_test(t, a_name_that_was_taken_meanwhile, 0, 2);
    tcase_add_test(t, what_came_meanwhile_stays);
    tcase_add_loop_test(t, cancelled_while_it_is_read_back, 0, 2);
    tcase_add_loop_test(t, in_its_own_format, 0, 3);
    suite_add_tcase(s, t);
    return run_suite(s);
}
