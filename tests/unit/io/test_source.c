/* The files that a checkpoint is read from: a directory, several, a file and what lies beside it. */
#define SCRATCH_ON_DISK
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../folder_files.h"
#include "io/source.h"

enum { LARGE = 66 << 20 }; /* more than a file that is passed through must have */

static ckpt_error err;
static ckpt__source *s;

static void setup(void)
{
    make_folder();
    make_directory("a");
    make_directory("b");
    write_text(at("a/x"), "same");
    write_text(at("b/x"), "same");
    write_text(at("a/y"), "of a");
    write_text(at("b/y"), "of b");
    write_text(at("b/z"), "only b");
    memset(&err, 0, sizeof err);
    s = NULL;
}

static void teardown(void)
{
    ckpt__source_close(s);
    remove_folder();
}

static void open_both(void)
{
    ck_assert_int_eq(ckpt__source_open(at("a"), &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_open_also(s, at("b"), &err), CKPT_OK);
    ck_assert_uint_eq(ckpt__source_roots(s), 2);
}

START_TEST(a_file_is_found_on_any_disk)
{
    uint32_t x, again, z, none;
    char label[500];
    open_both();
    ck_assert_int_eq(ckpt__source_add(s, "z", &z, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, z, label, sizeof label), at("b/z"));
    ck_assert_int_eq(ckpt__source_add(s, "x", &x, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, x, label, sizeof label), at("a/x"));
    ck_assert_int_eq(ckpt__source_add(s, "x", &again, &err), CKPT_OK);
    ck_assert_uint_eq(x, again);
    ck_assert_int_eq(ckpt__source_add(s, "w", &none, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    ck_assert_int_eq(ckpt__source_add(s, "../a/x", &none, &err), CKPT_E_FORMAT);
}
END_TEST

START_TEST(two_that_differ_are_named)
{
    uint32_t y;
    open_both();
    ck_assert_int_eq(ckpt__source_add(s, "y", &y, &err), CKPT_E_MISMATCH);
    ck_assert_str_eq(err.object, at("a/y"));
    ck_assert_ptr_nonnull(strstr(err.message, at("b")));
    ck_assert_int_eq(ckpt__source_add_at(s, 1, "y", &y, &err), CKPT_OK);
    ck_assert_uint_eq(s->files[y].root, 1);
}
END_TEST

/* Bytes behind the first block count too. */
START_TEST(large_ones_are_compared_to_the_end)
{
    static char data[(1 << 20) + 100];
    uint32_t x;
    write_to(at("a/x"), data, sizeof data);
    data[sizeof data - 1] = 1;
    write_to(at("b/x"), data, sizeof data);
    open_both();
    ck_assert_int_eq(ckpt__source_add(s, "x", &x, &err), CKPT_E_MISMATCH);
}
END_TEST

START_TEST(replacing_any_of_them_is_noticed)
{
    open_both();
    ck_assert(ckpt__source_is_there(s));
    ck_assert_int_eq(rename(at("b"), at("c")), 0);
    make_directory("b");
    ck_assert(!ckpt__source_is_there(s));
}
END_TEST

static ckpt_status count_name(void *ctx, size_t root, const char *name, bool is_folder, ckpt_error *e)
{
    int *counts = ctx;
    (void)e;
    counts[root]++;
    counts[2] += is_folder;
    counts[3] += strcmp(name, "x") == 0;
    return CKPT_OK;
}

START_TEST(names_are_listed_by_disk)
{
    int counts[4] = {0};
    make_directory("b/sub");
    write_text(at("b/sub/x"), "");
    ck_assert_int_eq(mkfifo(at("b/fifo"), 0600), 0);
    open_both();
    ck_assert_int_eq(ckpt__source_each(s, "", count_name, counts, &err), CKPT_OK);
    ck_assert_int_eq(counts[0], 2);
    ck_assert_int_eq(counts[1], 4); /* x, y, z, sub: a FIFO is no file */
    ck_assert_int_eq(counts[2], 1);
    ck_assert_int_eq(counts[3], 2);
    ck_assert_int_eq(ckpt__source_each(s, "sub", count_name, counts, &err), CKPT_OK);
    ck_assert_int_eq(counts[1], 5);
    ck_assert_int_lt(ckpt__source_each(s, "../b", count_name, counts, &err), 0);
}
END_TEST

/* A distributed checkpoint may have a file for each tensor. More than a checkpoint has are refused, and the message says what to do. */
START_TEST(many_names)
{
    enum { MANY = 12000, MOST = 200000 };
    int counts[4] = {0};
    char name[400];
    uint32_t first, file;
    make_directory("many");
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%s/many/%d", folder, i);
        ck_assert_int_eq(close(open(name, O_WRONLY | O_CREAT | O_EXCL, 0600)), 0);
    }
    ck_assert_int_eq(ckpt__source_open(at("many"), &s, &err), CKPT_OK);
    ck_assert_msg(ckpt__source_each(s, "", count_name, counts, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(counts[0], MANY);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 300; i++) {
            snprintf(name, sizeof name, "%d", i);
            ck_assert_int_eq(ckpt__source_add(s, name, &file, &err), CKPT_OK);
            ck_assert_uint_eq(file, (unsigned)i); /* found again */
        }
    ckpt__source_drop_last(s);
    ck_assert_uint_eq(s->count, 299);
    ck_assert_int_eq(ckpt__source_add(s, "299", &first, &err), CKPT_OK);
    ck_assert_uint_eq(first, 299);
    if (getenv("CKPT_TEST_FEW"))
        return;
    for (int i = MANY; i <= MOST; i++) {
        snprintf(name, sizeof name, "%s/many/%d", folder, i);
        ck_assert_int_eq(close(open(name, O_WRONLY | O_CREAT | O_EXCL, 0600)), 0);
    }
    ck_assert_int_eq(ckpt__source_each(s, "", count_name, counts, &err), CKPT_E_LIMIT);
    ck_assert_msg(strstr(err.message, "more than 200000 files") && strstr(err.message, "single_file_per_rank=True"),
                  "%s", err.message);
}
END_TEST

START_TEST(a_file_and_what_lies_beside_it)
{
    uint32_t y;
    char label[500];
    ck_assert_int_eq(ckpt__source_open(at("a/x"), &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_add(s, "y", &y, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt__source_open_around(s, &err), CKPT_OK);
    ck_assert_str_eq(s->files[0].name, "x");
    ck_assert_int_eq(ckpt__source_add(s, "y", &y, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, y, label, sizeof label), at("a/y"));
}
END_TEST

START_TEST(files_from_several_places)
{
    int counts[4] = {0};
    uint32_t file;
    char label[500];
    ck_assert_int_eq(ckpt__source_open(at("a/x"), &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_open_also(s, at("b/z"), &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_open_also(s, at("a/x"), &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt__source_each(s, "", count_name, counts, &err), CKPT_OK);
    ck_assert_int_eq(counts[0], 1);
    ck_assert_int_eq(counts[1], 1);
    ck_assert_int_eq(ckpt__source_add(s, "z", &file, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, file, label, sizeof label), at("b/z"));
    ck_assert_int_eq(ckpt__source_add(s, "y", &file, &err), CKPT_E_SYSTEM);
}
END_TEST

/* ---- a snapshot in the cache of the Hugging Face hub: its files are links to blobs */

#define SHA1 "0123456789abcdef0123456789abcdef01234567"
#define SHA256 SHA1 "89abcdef0123456789abcdef"
#define SNAPSHOT "models--x/snapshots/" SHA1

static void make_hub(void)
{
    make_directory("models--x");
    make_directory("models--x/blobs");
    make_directory("models--x/snapshots");
    make_directory(SNAPSHOT);
    make_directory(SNAPSHOT "/unet");
    make_directory(SNAPSHOT "/unet/deep");
    write_text(at("models--x/blobs/" SHA1), "one");
    write_text(at("models--x/blobs/" SHA256), "two");
    write_text(at("models--x/blobs/readme"), "three");
    write_text(at("models--x/" SHA1), "outside");
}

static void make_link(const char *text, const char *name)
{
    ck_assert_int_eq(symlink(text, at(SNAPSHOT "/%s", name)), 0);
}

/* Opens `name` of the directory that s is, and reads the three bytes that it has. */
static const char *three_bytes(const char *name)
{
    static char three[4];
    uint32_t file = 99;
    ckpt_status status = ckpt__source_add(s, name, &file, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", name, err.message);
    ck_assert_uint_eq(s->files[file].size, 3);
    ck_assert_int_eq(ckpt__source_read(s, file, 0, three, 3, &err), CKPT_OK);
    return three;
}

START_TEST(a_link_to_a_blob_is_followed)
{
    make_hub();
    make_link("../../blobs/" SHA1, "a");
    make_link("../../blobs/" SHA256, "b");
    make_link("../../../blobs/" SHA1, "unet/a");
    make_link("../../../../blobs/" SHA256, "unet/deep/b");
    ck_assert_int_eq(ckpt__source_open(at(SNAPSHOT), &s, &err), CKPT_OK);
    ck_assert_str_eq(three_bytes("a"), "one");
    ck_assert_str_eq(three_bytes("b"), "two");
    ck_assert_str_eq(three_bytes("unet/a"), "one");
    ck_assert_str_eq(three_bytes("unet/deep/b"), "two");
    ckpt__source_close(s);
    /* A folder of a snapshot, which is a model of its own; and a snapshot that is itself reached by a link. */
    ck_assert_int_eq(ckpt__source_open(at(SNAPSHOT "/unet"), &s, &err), CKPT_OK);
    ck_assert_str_eq(three_bytes("a"), "one");
    ck_assert_str_eq(three_bytes("deep/b"), "two");
    ckpt__source_close(s);
    ck_assert_int_eq(symlink(SNAPSHOT, at("here")), 0);
    ck_assert_int_eq(ckpt__source_open(at("here"), &s, &err), CKPT_OK);
    ck_assert_str_eq(three_bytes("a"), "one");
}
END_TEST

/* Whatever else leads out of the directory is refused, and the message names the link. */
static const struct {
    const char *text, *name;
} bad_links[] = {
    {"../../blobs/readme", "name"}, /* no hash */
    {"../../blobs/0123456789ABCDEF0123456789ABCDEF01234567", "upper"},
    {"../../blobs/" SHA1 "0", "longer"},
    {"../../blobs/" SHA1 "/", "slash"},
    {"../../blobs/../" SHA1, "climbs"},
    {"../../blobs/./" SHA1, "dot"},
    {"../.././blobs/" SHA1, "dot_before"},
    {"../../" SHA1, "beside"},
    {"../../other/" SHA1, "other"},
    {"../blobs/" SHA1, "too_near"},
    {"../../../blobs/" SHA1, "too_far"},
    {"../../blobs/" SHA1, "unet/too_near"},
    {"unet/../../../blobs/" SHA1, "detour"},
    {"../../blobs/fedcba9876543210fedcba9876543210fedcba98", "to_a_link"},
    {"../../blobs/aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd", "to_a_fifo"},
    {"../../blobs/ddddddddddccccccccccbbbbbbbbbbaaaaaaaaaa", "to_a_directory"},
    {"../../../../../../../../../../../../../../../../../../../../etc/passwd", "passwd"},
    {"/etc/passwd", "absolute"},
    {"loop", "loop"},
    {"chain", "to_a_chain"},
    {"nowhere/" SHA1, "through_a_link/a"},
};

START_TEST(every_other_link_out_is_refused)
{
    uint32_t file;
    make_hub();
    make_directory("models--x/other");
    write_text(at("models--x/other/" SHA1), "one");
    write_text(at("models--x/snapshots/" SHA1 "/plain"), "one");
    ck_assert_int_eq(symlink(SHA1, at("models--x/blobs/fedcba9876543210fedcba9876543210fedcba98")), 0);
    ck_assert_int_eq(mkfifo(at("models--x/blobs/aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd"), 0600), 0);
    make_directory("models--x/blobs/ddddddddddccccccccccbbbbbbbbbbaaaaaaaaaa");
    make_link("../../blobs/" SHA1, "chain"); /* good by itself; a link to it is not one to a blob */
    make_link("unet", "through_a_link");
    make_link("../../blobs/" SHA1, "unet/a"); /* one folder short, so only good where the folder is not seen */
    ck_assert_int_eq(ckpt__source_open(at(SNAPSHOT), &s, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof bad_links / sizeof *bad_links; i++) {
        const char *name = bad_links[i].name;
        if (strcmp(name, "through_a_link/a") != 0)
            make_link(bad_links[i].text, name);
        ck_assert_msg(ckpt__source_add(s, name, &file, &err) == CKPT_E_FORMAT, "%s: %s", name, err.message);
        ck_assert_str_eq(err.object, at(SNAPSHOT "/%s", name));
    }
    ck_assert_uint_eq(s->count, 0);
    ck_assert_str_eq(three_bytes("plain"), "one");
    ck_assert_int_eq(ckpt__source_add(s, "to_a_fifo", &file, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "a FIFO"));
    ck_assert_int_eq(ckpt__source_add(s, "to_a_link", &file, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "a link that leaves the checkpoint's directory"));
    make_link("../../blobs/00000000000000000000000000000000000000ff", "missing");
    ck_assert_int_eq(ckpt__source_add(s, "missing", &file, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOENT);
}
END_TEST

/* Without a directory called snapshots above it, or with blobs that are elsewhere, it is no such cache. */
/* Pages of the file that the page cache has, of those at every megabyte. */
static int cached(const char *path)
{
    int fd = open(path, O_RDONLY), count = 0;
    ck_assert_int_ge(fd, 0);
    for (off_t at = 0; at < LARGE; at += 1 << 20) {
        char byte;
        struct iovec to = {&byte, 1};
        ssize_t got = preadv2(fd, &to, 1, at, RWF_NOWAIT);
        ck_assert(got == 1 || errno == EAGAIN || errno == EOPNOTSUPP);
        count += got == 1;
    }
    close(fd);
    return count;
}

static void drop(const char *path)
{
    int fd = open(path, O_RDONLY);
    ck_assert_int_eq(fsync(fd), 0);
    ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

/* All of it in order, in odd pieces, as it is. */
static void read_through(bool keep)
{
    static char block[777777];
    uint64_t next = 0;
    ck_assert_int_eq(ckpt__source_open(at("large"), &s, &err), CKPT_OK);
    ckpt__source_pass(s, keep, 0);
    for (size_t n; next < LARGE; next += n) {
        n = LARGE - next < sizeof block ? (size_t)(LARGE - next) : sizeof block;
        ck_assert_int_eq(ckpt__source_read(s, 0, next, block, n, &err), CKPT_OK);
        for (size_t i = 0; i < n; i += 4096)
            ck_assert_int_eq((unsigned char)block[i], (next + i) >> 20 & 255);
    }
    ckpt__source_close(s);
    s = NULL;
}

/* Records of 2 MiB, of each its first bytes and its last ones before all of it. step: bytes from one to the next, in as many rounds
 * as there are records between them. */
static void read_records(uint64_t step)
{
    enum { RECORD = 2 << 20, HEAD = 8192, END = 66 << 10 };
    static char one[RECORD];
    ck_assert_int_eq(ckpt__source_open(at("large"), &s, &err), CKPT_OK);
    ckpt__source_pass(s, false, 0);
    for (uint64_t first = 0; first < step; first += RECORD)
        for (uint64_t begin = first; begin + RECORD <= LARGE; begin += step) {
            ck_assert_int_eq(ckpt__source_read(s, 0, begin, one, HEAD, &err), CKPT_OK);
            ck_assert_int_eq(ckpt__source_read(s, 0, begin + RECORD - END, one, END, &err), CKPT_OK);
            ck_assert_int_eq(ckpt__source_read(s, 0, begin, one, RECORD, &err), CKPT_OK);
            for (size_t i = 0; i < RECORD; i += 4096)
                ck_assert_int_eq((unsigned char)one[i], (begin + i) >> 20 & 255);
        }
    ckpt__source_close(s);
    s = NULL;
}

START_TEST(what_was_not_cached_is_not_afterwards)
{
    FILE *f = fopen(at("large"), "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < LARGE >> 10; i++) {
        char kib[1024];
        memset(kib, i >> 10, sizeof kib);
        ck_assert_uint_eq(fwrite(kib, sizeof kib, 1, f), 1);
    }
    ck_assert_int_eq(fclose(f), 0);
    drop(at("large"));
    bool drops = cached(at("large")) == 0; /* a tmpfs keeps all */
    read_through(true);
    ck_assert_int_eq(cached(at("large")), LARGE >> 20);
    read_through(false); /* in the cache before, and so it stays */
    ck_assert_int_eq(cached(at("large")), LARGE >> 20);
    drop(at("large"));
    read_through(false);
    if (drops)
        ck_assert_int_le(cached(at("large")), 16); /* the end of it, and what was read ahead */
    drop(at("large"));
    read_records(2 << 20);
    if (drops)
        ck_assert_int_le(cached(at("large")), 16);
    drop(at("large"));
    read_records(22 << 20); /* three places of it in turn */
    if (drops)
        ck_assert_int_le(cached(at("large")), 24);
}
END_TEST

START_TEST(other_directories_have_no_blobs)
{
    uint32_t file;
    make_hub();
    make_link("../../blobs/" SHA1, "a");
    ck_assert_int_eq(rename(at("models--x/snapshots"), at("models--x/steps")), 0);
    ck_assert_int_eq(ckpt__source_open(at("models--x/steps/" SHA1), &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_add(s, "a", &file, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(symlink("steps", at("models--x/snapshots")), 0);
    ck_assert_int_eq(ckpt__source_add(s, "a", &file, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(unlink(at("models--x/snapshots")), 0);
    ck_assert_int_eq(rename(at("models--x/steps"), at("models--x/snapshots")), 0);
    ck_assert_int_eq(rename(at("models--x/blobs"), at("blobs")), 0);
    ck_assert_int_eq(ckpt__source_add(s, "a", &file, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(symlink("../blobs", at("models--x/blobs")), 0);
    ck_assert_int_eq(ckpt__source_add(s, "a", &file, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(unlink(at("models--x/blobs")), 0);
    ck_assert_int_eq(rename(at("blobs"), at("models--x/blobs")), 0);
    ck_assert_str_eq(three_bytes("a"), "one");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("source");
    TCase *t = tcase_create("source");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_file_is_found_on_any_disk);
    tcase_add_test(t, two_that_differ_are_named);
    tcase_add_test(t, large_ones_are_compared_to_the_end);
    tcase_add_test(t, replacing_any_of_them_is_noticed);
    tcase_add_test(t, names_are_listed_by_disk);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, many_names);
    tcase_add_test(t, a_file_and_what_lies_beside_it);
    tcase_add_test(t, files_from_several_places);
    tcase_add_test(t, a_link_to_a_blob_is_followed);
    tcase_add_test(t, every_other_link_out_is_refused);
    tcase_add_test(t, what_was_not_cached_is_not_afterwards);
    tcase_add_test(t, other_directories_have_no_blobs);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
