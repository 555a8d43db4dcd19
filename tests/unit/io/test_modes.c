/* Who may read what is written: nobody else while it is written, then as what it replaces or as any new file, and never more
 * people than could read what it was made from. */
#define SCRATCH_ON_DISK
#include "io/sink.h"

#include <ckpt/ckpt.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include "../scratch.h"
#include "../state_fixture.h"

static struct {
    char name[300];
    int mode;
} made[64]; /* files, as they were asked for */
static size_t made_count;

int openat(int fd, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    if (flags & O_CREAT && made_count < sizeof made / sizeof *made) {
        snprintf(made[made_count].name, sizeof made->name, "%s", path);
        made[made_count++].mode = mode;
    }
    return (int)syscall(SYS_openat, fd, path, flags, mode);
}

static void begin(void)
{
    make_folder();
    ck_assert_int_eq(chdir(in_folder("")), 0);
    made_count = 0;
    umask(022);
}

static void end(void)
{
    umask(022);
    ck_assert_int_eq(chdir("/"), 0);
    remove_folder();
}

static int mode_of(const char *path)
{
    struct stat st;
    ck_assert_msg(stat(path, &st) == 0, "%s is not there", path);
    return st.st_mode & 07777;
}

static int asked_for(const char *name)
{
    for (size_t i = made_count; i-- > 0;)
        if (strcmp(made[i].name, name) == 0)
            return made[i].mode;
    return -1;
}

/* Writes a file, and looks at it while it is open. */
static void write_file(const char *path, mode_t limit)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink_options o = {.sync = true, .replace = true, .mode_limit = limit};
    ckpt__sink *s;
    ck_assert_msg(ckpt__sink_file(path, 3, &o, &s, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(mode_of(ckpt__sink_temporary(s)), 0600);
    ck_assert_int_eq(asked_for(ckpt__sink_temporary(s)), 0600);
    ck_assert_int_eq(ckpt__sink_write(s, 0, "new", 3, &err), CKPT_OK);
    ck_assert_int_eq(mode_of(ckpt__sink_temporary(s)), 0600);
    ck_assert_msg(ckpt__sink_commit(s, &err) == CKPT_OK, "%s", err.message);
    expect(path, "new");
}

static void write_directory(const char *path, mode_t limit)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink_options o = {.sync = true, .replace = true, .mode_limit = limit};
    ckpt__sink *d, *m;
    ck_assert_msg(ckpt__sink_directory(path, &o, &d, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(mode_of(ckpt__sink_temporary(d)) & 0777, 0700);
    ck_assert_int_eq(ckpt__sink_folder(d, "inner", &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_member(d, "checkpoint.json", 1, &m, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_write(m, 0, "x", 1, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_commit(m, &err), CKPT_OK);
    ck_assert_int_eq(mode_of(ckpt__sink_temporary(d)) & 0777, 0700);
    ck_assert_msg(ckpt__sink_commit(d, &err) == CKPT_OK, "%s", err.message);
}

START_TEST(a_new_file_gets_its_mode_last)
{
    static const struct {
        mode_t mask;
        int file, directory;
    } rows[] = {
        {022, 0644, 0755}, {0, 0666, 0777}, {027, 0640, 0750}, {077, 0600, 0700}, {026, 0640, 0751},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        umask(rows[i].mask);
        write_file("f", 0);
        write_directory("d", 0);
        ck_assert_int_eq(mode_of("f"), rows[i].file);
        ck_assert_int_eq(mode_of("d"), rows[i].directory);
        ck_assert_int_eq(mode_of("d/checkpoint.json"), rows[i].file);
        ck_assert_int_eq(mode_of("d/inner"), rows[i].directory);
        ck_assert_int_eq(umask(022), rows[i].mask);
        ck_assert_int_eq(entries("."), 2);
        ck_assert_int_eq(entries("d"), 2);
        ck_assert_int_eq(system("rm -rf f d"), 0);
    }
}
END_TEST

START_TEST(a_replaced_file_keeps_its_mode_but_no_special_bits)
{
    static const int modes[][2] = {{0600, 0600},  {0644, 0644},  {0666, 0666},
                                   {06755, 0755}, {01640, 0640}, {0400, 0400}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        put("f", "old");
        ck_assert_int_eq(chmod("f", (mode_t)modes[i][0]), 0);
        write_file("f", 0);
        ck_assert_int_eq(mode_of("f"), modes[i][1]);
        ck_assert_int_eq(unlink("f"), 0);
    }
    write_directory("d", 0);
    ck_assert_int_eq(chmod("d", 0750), 0);
    write_directory("d", 0);
    ck_assert_int_eq(mode_of("d"), 0750);
}
END_TEST

START_TEST(a_limit_is_never_passed)
{
    static const struct {
        int limit, old, file, directory;
    } rows[] = {
        {0600, 0, 0600, 0700}, {0700, 0, 0600, 0700},    {0640, 0, 0640, 0750},    {0644, 0, 0644, 0755},
        {0777, 0, 0644, 0755}, {0600, 0644, 0600, 0700}, {0644, 0600, 0600, 0700}, {0604, 0640, 0600, 0700},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].old) {
            put("f", "old");
            write_directory("d", 0);
            ck_assert_int_eq(chmod("f", (mode_t)rows[i].old), 0);
            ck_assert_int_eq(chmod("d", (mode_t)(rows[i].old | 0100 | (rows[i].old & 044) >> 2)), 0);
        }
        write_file("f", (mode_t)rows[i].limit);
        write_directory("d", (mode_t)rows[i].limit);
        ck_assert_int_eq(mode_of("f"), rows[i].file);
        ck_assert_int_eq(mode_of("d"), rows[i].directory);
        ck_assert_int_eq(mode_of("d/checkpoint.json") & ~(rows[i].limit | 0600), 0);
        ck_assert_int_eq(mode_of("d/inner") & ~(rows[i].directory | 0755), 0);
        ck_assert_int_eq(system("rm -rf f d"), 0);
    }
}
END_TEST

/* A directory that gives its group on to what is made in it, and one that has rules of its own instead of the umask. */
START_TEST(what_the_directory_above_gives_stays)
{
    ck_assert_int_eq(mkdir("above", 0777), 0);
    ck_assert_int_eq(chmod("above", 02775), 0);
    ck_assert_int_eq(chdir("above"), 0);
    write_directory("d", 0);
    ck_assert_int_eq(mode_of("d"), 02755);
    ck_assert_int_eq(chdir(".."), 0);
    /* system.posix_acl_default: version 2; user::rwx, group::rwx, mask::rwx, other::--- */
    static const unsigned char acl[] = {2,   0,   0,  0, 1, 0, 7,   0,   255, 255, 255, 255, 4, 0, 7,   0,   255, 255,
                                        255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32,  0,   0, 0, 255, 255, 255, 255};
    ck_assert_int_eq(mkdir("shared", 0777), 0);
    if (setxattr("shared", "system.posix_acl_default", acl, sizeof acl, 0) < 0 &&
        (errno == EOPNOTSUPP || errno == EPERM))
        return;
    ck_assert_int_eq(chdir("shared"), 0);
    write_file("f", 0);
    write_directory("d", 0);
    ck_assert_int_eq(mode_of("f"), 0660);
    ck_assert_int_eq(mode_of("d"), 0770);
    ck_assert_int_eq(mode_of("d/checkpoint.json"), 0660);
    ck_assert_int_eq(chdir(".."), 0);
}
END_TEST

static void save_source(const char *path, bool directory)
{
    static training t;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    o.directory = directory;
    fill(&t, 1);
    ckpt_state *s = bind_all(&t);
    OK(ckpt_save(s, path, &o, &err));
    ckpt_state_free(s);
}

static void migrate(const char *from, const char *to, const char *kind)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = kind;
    o.force = o.lossy = true;
    OK(ckpt_migrate(from, to, &o, NULL, &err));
}

START_TEST(a_copy_is_as_private_as_its_source)
{
    static const int modes[][2] = {{0600, 0600}, {0640, 0640}, {0644, 0644}, {0400, 0600}, {0666, 0644}};
    save_source("src", false);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        ck_assert_int_eq(chmod("src", (mode_t)modes[i][0]), 0);
        migrate("src", "dst", "safetensors");
        ck_assert_int_eq(mode_of("dst"), modes[i][1]);
        ck_assert_int_eq(unlink("dst"), 0);
        migrate("src", "dst", "torch");
        ck_assert_int_eq(mode_of("dst"), modes[i][1]);
        migrate("src", "dst", "torch");
        ck_assert_int_eq(mode_of("dst"), modes[i][1]);
        ck_assert_int_eq(unlink("dst"), 0);
    }
    put("dst", "old"); /* what is replaced was public: the copy of a private one is not */
    ck_assert_int_eq(chmod("dst", 0644), 0);
    ck_assert_int_eq(chmod("src", 0600), 0);
    migrate("src", "dst", "torch");
    ck_assert_int_eq(mode_of("dst"), 0600);
}
END_TEST

START_TEST(a_copy_of_a_directory_is_as_private_as_its_source)
{
    save_source("src", true);
    ck_assert_int_eq(chmod("src", 0700), 0);
    migrate("src", "dst", "safetensors");
    ck_assert_int_eq(mode_of("dst"), 0600);
    ck_assert_int_eq(chmod("src", 0755), 0);
    migrate("src", "open", "safetensors");
    ck_assert_int_eq(mode_of("open"), 0644);
    ck_assert_int_eq(chmod("src/training.safetensors", 0640), 0);
    migrate("src", "part", "safetensors");
    ck_assert_int_eq(mode_of("part"), 0640);
}
END_TEST

/* --to same: a directory of files, of which one is private and goes along as it is. */
START_TEST(the_same_kind_of_directory_is_as_private)
{
    static const int modes[][3] = {{0755, 0755, 0644}, {0700, 0700, 0600}, {0750, 0750, 0640}};
    save_source("w", false);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(mkdir("src", 0777), 0);
        migrate("w", "src/pytorch_model.bin", "torch");
        put("src/random_states_0.pkl", "N.");
        put("src/notes.txt", "mine");
        ck_assert_int_eq(chmod("src/pytorch_model.bin", 0644), 0);
        ck_assert_int_eq(chmod("src/notes.txt", 0600), 0);
        ck_assert_int_eq(chmod("src", (mode_t)modes[i][0]), 0);
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
        o.to = "same";
        OK(ckpt_migrate("src", "dst", &o, NULL, &err));
        ck_assert_int_eq(mode_of("dst"), modes[i][1]);
        ck_assert_int_eq(mode_of("dst/pytorch_model.bin"), modes[i][2]);
        if (there("dst/notes.txt"))
            ck_assert_int_eq(mode_of("dst/notes.txt"), 0600);
        ck_assert_int_eq(system("rm -rf src dst"), 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("modes");
    TCase *t = tcase_create("modes");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, a_new_file_gets_its_mode_last);
    tcase_add_test(t, a_replaced_file_keeps_its_mode_but_no_special_bits);
    tcase_add_test(t, a_limit_is_never_passed);
    tcase_add_test(t, what_the_directory_above_gives_stays);
    tcase_add_test(t, a_copy_is_as_private_as_its_source);
    tcase_add_test(t, a_copy_of_a_directory_is_as_private_as_its_source);
    tcase_add_test(t, the_same_kind_of_directory_is_as_private);
    suite_add_tcase(s, t);
    return run_suite(s);
}
