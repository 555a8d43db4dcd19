/* The zip directory: what torch and zip tools write is read; what lies is refused, each lie by its own message. */
#include <stdio.h>
#include "codec/zip.h"
#include "../torch_emit.h"
#include "../runner.h"

static archive a;
static ckpt__zip *zip;
static ckpt_error err;
static int reads_left; /* the callback fails when it reaches 0; negative: never */

static ckpt_status read_file(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *e)
{
    const bytes *file = ctx;
    if (reads_left >= 0 && reads_left-- == 0)
        return ckpt__fail(e, CKPT_E_SYSTEM, "test", "the read that was to fail");
    if (offset > file->size || n > file->size - offset)
        return ckpt__fail(e, CKPT_E_DAMAGED, "test", "read past the end");
    memcpy(dst, file->data + offset, n);
    return CKPT_OK;
}

static ckpt_status open_zip(void)
{
    ckpt__zip_input in = {read_file, &a.file, a.file.size, "test.zip"};
    memset(&err, 0, sizeof err);
    ckpt__zip_free(zip);
    return ckpt__zip_open(&in, &zip, &err);
}

static void setup(void)
{
    memset(&a, 0, sizeof a);
    ckpt__zip_free(zip);
    zip = NULL;
    reads_left = -1;
}
static void teardown(void)
{
    ckpt__zip_free(zip);
    zip = NULL;
}

static void add(const record *r)
{
    add_record(&a, r);
}
static void two_good(void)
{
    add(&(record){.name = "m/data.pkl", .data = "pickle", .size = 6, .flags = 0x808});
    add(&(record){.name = "m/data/0", .data = "0123456789", .size = 10});
}
static void refused(ckpt_status status, const char *message)
{
    ckpt_status s = open_zip();
    ck_assert_msg(s == status, "status %d, expected %d: %s", s, status, err.message);
    ck_assert_msg(strstr(err.message, message) != NULL, "'%s' lacks '%s'", err.message, message);
    ck_assert_ptr_null(zip);
}
static void reads_as(const char *name, const char *expected)
{
    const ckpt__zip_record *r = ckpt__zip_find(zip, name, strlen(name));
    ck_assert_msg(r != NULL, "no record %s", name);
    ckpt__buf b = {0};
    ck_assert_msg(ckpt__zip_read(zip, r, 1 << 20, &b, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(b.size, strlen(expected));
    ck_assert_int_eq(memcmp(b.data, expected, b.size), 0);
    ckpt__buf_free(&b);
}

START_TEST(plain)
{
    two_good();
    put_end(&a, a.count, "");
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt__zip_count(zip), 2);
    const ckpt__zip_record *r = ckpt__zip_at(zip, 1);
    ck_assert(ckpt__str_is(r->name, "m/data/0"));
    ck_assert_int_eq(memcmp(a.file.data + r->data, "0123456789", 10), 0);
    ck_assert(r->has_crc);
    ck_assert_ptr_null(ckpt__zip_at(zip, 2));
    ck_assert_ptr_null(ckpt__zip_find(zip, "m/data/1", 8));
    reads_as("m/data.pkl", "pickle");
    reads_as("m/data/0", "0123456789");
}
END_TEST

START_TEST(zip64_comment_folder_deflate)
{
    add(&(record){.name = "m/"});
    add(&(record){.name = "m/data.pkl", .data = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", .size = 36, .deflate = true});
    add(&(record){.name = "m/empty"});
    put_end(&a, a.count, "a comment with PK\5\6 in it");
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
    reads_as("m/data.pkl", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    reads_as("m/empty", "");
    ck_assert(ckpt__zip_at(zip, 0)->folder);
    setup();
    two_good();
    put_end64(&a, 0, 0, 0);
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
    reads_as("m/data/0", "0123456789");
}
END_TEST

/* torch takes the last end record with enough bytes behind it, other readers the one whose comment ends the file. */
START_TEST(two_end_records)
{
    static const char fake[] = "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"; /* and the NUL: 22 bytes */
    char comment[32] = "";
    two_good();
    if (_i == 0) { /* in the comment, and its own comment ends the file too */
        memset(comment, 'x', 22);
        put_end(&a, a.count, comment);
        memcpy(a.file.data + a.file.size - 22, fake, 22);
    } else if (_i == 1) { /* in the comment, before more of it */
        memset(comment, 'x', 23);
        put_end(&a, a.count, comment);
        memcpy(a.file.data + a.file.size - 23, fake, 22);
    } else if (_i == 2) { /* behind the archive, with a comment that reaches over the file's end */
        put_end(&a, a.count, "");
        put(&a.file, fake, 22);
        a.file.data[a.file.size - 2] = 9;
    } else { /* too few bytes for a record: no program takes it */
        put_end(&a, a.count, "");
        put(&a.file, fake, 21);
    }
    if (_i < 3) {
        refused(CKPT_E_FORMAT, "two end records, at byte");
        return;
    }
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt__zip_trailing(zip), 21);
}
END_TEST

START_TEST(names_but_for_case)
{
    two_good();
    add(&(record){.name = "m/DATA/0", .data = "abc", .size = 3});
    put_end(&a, a.count, "");
    refused(CKPT_E_FORMAT, "have one name but for upper and lower case");
    setup();
    add(&(record){.name = "M/Data_[1].PKL", .data = "abc", .size = 3});
    put_end(&a, a.count, "");
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
    reads_as("m/data_[1].pkl", "abc");
    ck_assert_ptr_null(ckpt__zip_find(zip, "m/data_{1}.pkl", 14));
}
END_TEST

/* torch reads an archive that was padded. */
START_TEST(bytes_behind_the_end)
{
    two_good();
    put_end(&a, a.count, "hm");
    PUT(&a.file, "\0\0\0\0\0");
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(ckpt__zip_trailing(zip), 5);
    reads_as("m/data/0", "0123456789");
    setup();
    two_good();
    put_end(&a, a.count, "hm");
    ck_assert_int_eq(open_zip(), CKPT_OK);
    ck_assert_uint_eq(ckpt__zip_trailing(zip), 0);
}
END_TEST

START_TEST(no_crc_is_none)
{
    add(&(record){.name = "m/x", .data = "abc", .size = 3, .flags = 0x808, .no_crc = true});
    put_end(&a, a.count, "");
    ck_assert_int_eq(open_zip(), CKPT_OK);
    ck_assert(!ckpt__zip_at(zip, 0)->has_crc);
    reads_as("m/x", "abc");
}
END_TEST

START_TEST(broken_records)
{
    ckpt__buf b = {0};
    add(&(record){.name = "m/x", .data = "abc", .size = 3, .wrong_crc = true});
    add(&(record){
        .name = "m/more", .data = "aaaaaaaaaaaaaaaaaaaa", .size = 20, .deflate = true, .usize = 10, .no_crc = true});
    add(&(record){
        .name = "m/less", .data = "aaaaaaaaaaaaaaaaaaaa", .size = 20, .deflate = true, .usize = 30, .no_crc = true});
    add(&(record){.name = "m/noise", .data = "\xff\xff\xff\xff", .size = 4, .method = 8, .usize = 9});
    put_end(&a, a.count, "");
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
    static const char *const said[] = {"CRC-32 is wrong", "more bytes", "does not inflate to the size", "broken"};
    for (size_t i = 0; i < 4; i++) {
        memset(&err, 0, sizeof err);
        ck_assert_int_eq(ckpt__zip_read(zip, ckpt__zip_at(zip, i), 1000, &b, &err), CKPT_E_DAMAGED);
        ck_assert_msg(strstr(err.message, said[i]) != NULL, "%s", err.message);
    }
    ck_assert_int_eq(ckpt__zip_read(zip, ckpt__zip_at(zip, 0), 2, &b, &err), CKPT_E_LIMIT);
    ckpt__buf_free(&b);
}
END_TEST

START_TEST(bad_names)
{
    static const char *const names[] = {"/etc/passwd", "m/../x", "..", "m/..", "..\\x", "C:/x", "\\x"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setup();
        add(&(record){.name = names[i], .data = "x", .size = 1});
        put_end(&a, a.count, "");
        refused(CKPT_E_FORMAT, "climbs out");
    }
    setup();
    add(&(record){.name = "m/..x/...", .data = "x", .size = 1}); /* no climbing in these */
    put_end(&a, a.count, "");
    ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
}
END_TEST

START_TEST(lies_of_records)
{
    static const struct {
        record r;
        ckpt_status status;
        const char *message;
    } lies[] = {
        {{.name = "m/data/0", .data = "twice", .size = 5}, CKPT_E_FORMAT, "two records are named 'm/data/0'"},
        {{.name = "m/x", .local_name = "m/y", .data = "x", .size = 1}, CKPT_E_FORMAT, "the record itself 'm/y'"},
        {{.name = "m/x", .data = "x", .size = 1, .flags = 1}, CKPT_E_UNSUPPORTED, "encrypted"},
        {{.name = "m/x", .data = "x", .size = 1, .method = 99}, CKPT_E_UNSUPPORTED, "method 99"},
        {{.name = "m/x", .data = "x", .size = 1, .usize = 7}, CKPT_E_DAMAGED, "two sizes"},
        {{.name = "m/x", .data = "x", .size = 1, .local_usize = 7}, CKPT_E_DAMAGED, "different sizes"},
        {{.name = "m/x", .data = "x", .size = 1, .flags = 8, .wrong_descriptor = true}, CKPT_E_DAMAGED, "descriptor"},
        {{.name = "m/data.pkl2",
          .local_name = "m/data.pkl",
          .at_zero = true,
          .data = "pickle",
          .size = 6,
          .flags = 0x808},
         CKPT_E_FORMAT,
         "readers would disagree"},
        {{.name = "m/d/", .data = "x", .size = 1}, CKPT_E_FORMAT, "folder"},
        {{.name = "m/x", .data = "\3\0", .size = 2, .method = 8, .usize = 1000000}, CKPT_E_DAMAGED, "cannot inflate"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        setup();
        two_good();
        add(&lies[i].r);
        put_end(&a, a.count, "");
        refused(lies[i].status, lies[i].message);
    }
}
END_TEST

/* Two entries of one name length over one local header: the second's span lies within the first's. */
START_TEST(overlap)
{
    add(&(record){.name = "m/aaaa", .data = "PK\3\4xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", .size = 50});
    put_end(&a, a.count, "");
    /* a second local header inside the first one's data, and a second entry that points there */
    size_t inner = a.directory_at - 50;
    setup();
    unsigned char data[50] = "PK\3\4";
    data[4] = 20;
    data[18] = data[22] = 1;
    data[14] = 0x83, data[15] = 0x16, data[16] = 0xdc, data[17] = 0x8c; /* crc32 of "x" */
    data[26] = 6;
    memcpy(data + 30, "m/bbbb", 6);
    data[36] = 'x';
    add(&(record){.name = "m/aaaa", .data = data, .size = 50});
    add(&(record){.name = "m/bbbb", .data = "x", .size = 1, .at_zero = true});
    size_t field = a.directory.size - 6 - 4;
    for (int i = 0; i < 4; i++)
        a.directory.data[field + (size_t)i] = (unsigned char)(inner >> 8 * i);
    put_end(&a, a.count, "");
    refused(CKPT_E_FORMAT, "'m/aaaa' and 'm/bbbb' overlap");
}
END_TEST

/* The first byte of a record's header is the last one of the data before it, which is right by its CRC; also where
 * another thread looks at the one before. */
START_TEST(overlap_by_one_byte)
{
    static const unsigned before[] = {0, 254, 255, 256, 300};
    char name[16];
    for (int overlapping = 0; overlapping < 2; overlapping++)
        for (size_t n = 0; n < sizeof before / sizeof *before; n++) {
            setup();
            for (unsigned i = 0; i < before[n]; i++) {
                snprintf(name, sizeof name, "m/%u", i);
                add(&(record){.name = name, .data = "x", .size = 1});
            }
            add(&(record){.name = "m/aaaa", .data = "0123P", .size = 5});
            a.file.size -= (size_t)overlapping;
            add(&(record){.name = "m/bbbb", .data = "x", .size = 1});
            put_end(&a, a.count, "");
            if (overlapping)
                refused(CKPT_E_FORMAT, "'m/aaaa' and 'm/bbbb' overlap");
            else
                ck_assert_msg(open_zip() == CKPT_OK, "%s", err.message);
        }
}
END_TEST

START_TEST(lies_of_the_end)
{
    two_good();
    put_end(&a, 900, "");
    refused(CKPT_E_DAMAGED, "has room for 2");
    setup();
    two_good();
    put_end(&a, 1, "");
    refused(CKPT_E_DAMAGED, "too small");
    static const struct {
        uint64_t count, where, offset;
        const char *message;
    } lies[] = {
        {(uint64_t)1 << 40, 0, 0, "has room for 2"},
        {0, (uint64_t)1 << 50, 0, "points to byte"},
        {0, 0, (uint64_t)1 << 50, "does not end at"},
        {0, (uint64_t)-4, 0, "no zip64 end record"},
        {(uint64_t)-1, 0, 0, "too small"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        setup();
        two_good();
        put_end64(&a, lies[i].count, lies[i].where, lies[i].offset);
        refused(CKPT_E_DAMAGED, lies[i].message);
    }
}
END_TEST

/* Cut anywhere, an archive is damaged: never read, never another error. */
START_TEST(cut_everywhere)
{
    two_good();
    put_end64(&a, 0, 0, 0);
    size_t whole = a.file.size;
    for (size_t n = 4; n < whole; n++) {
        a.file.size = n;
        ckpt_status s = open_zip();
        ck_assert_msg(s == CKPT_E_DAMAGED, "cut to %zu of %zu: status %d, %s", n, whole, s, err.message);
    }
    a.file.size = whole;
    ck_assert_int_eq(open_zip(), CKPT_OK);
}
END_TEST

START_TEST(every_read_fails)
{
    two_good();
    put_end64(&a, 0, 0, 0);
    int n = 0;
    for (ckpt_status s = CKPT_E_SYSTEM; s != CKPT_OK; n++) {
        reads_left = n;
        s = open_zip();
        ck_assert(s == CKPT_OK || (s == CKPT_E_SYSTEM && zip == NULL));
    }
    ck_assert_int_ge(n, 6);
}
END_TEST

START_TEST(not_a_zip)
{
    PUT(&a.file, "no archive at all");
    refused(CKPT_E_FORMAT, "not a zip");
    a.file.size = 0;
    refused(CKPT_E_FORMAT, "not a zip");
}
END_TEST

/* ---- an archive behind other bytes */

/* Puts the archive behind `front`. */
static void put_behind(const bytes *front)
{
    static bytes whole;
    whole.size = 0;
    put(&whole, front->data, front->size);
    put(&whole, a.file.data, a.file.size);
    a.file = whole;
}
static uint64_t start_of(bool *two)
{
    ckpt__zip_input in = {read_file, &a.file, a.file.size, "test.zip"};
    uint64_t start = 99;
    *two = false;
    ck_assert_int_eq(ckpt__zip_start(&in, &start, two, &err), CKPT_OK);
    return start;
}
static void make(bool wide)
{
    setup();
    two_good();
    if (wide)
        put_end64(&a, 0, 0, 0);
    else
        put_end(&a, a.count, "");
}

START_TEST(two_archives_in_one_file)
{
    static bytes first;
    char said[80];
    bool two;
    for (int i = 0; i < 8; i++) {
        make(i & 1);
        ck_assert_uint_eq(start_of(&two), 0);
        first = a.file;
        make(i & 2);
        if (i & 4)
            put(&a.file, "padding", 7);
        put_behind(&first);
        ck_assert_uint_eq(start_of(&two), first.size);
        ck_assert(two);
        snprintf(said, sizeof said, "two archives in one file, the second from byte %zu on", first.size);
        refused(CKPT_E_DAMAGED, said);
        snprintf(said, sizeof said, "`tail -c +%zu FILE` the second", first.size + 1);
        refused(CKPT_E_DAMAGED, said);
    }
}
END_TEST

/* The first of the two is cut off; and what an archive holds may be an archive, behind which it was cut off. */
START_TEST(an_archive_behind_a_part_of_one)
{
    static bytes first;
    bool two;
    make(true);
    first = a.file;
    for (size_t cut = 1; cut < first.size; cut++) {
        first.size = cut;
        make(true);
        put_behind(&first);
        ck_assert_uint_eq(start_of(&two), cut);
        ck_assert(!two);
        if (cut >= 4)
            refused(CKPT_E_DAMAGED, "the bytes before it are not a whole archive");
        else
            refused(CKPT_E_FORMAT, "not a zip");
    }
}
END_TEST

/* Its offsets count from where it begins, or it is none of these: nothing is taken for such an archive by its end alone. */
START_TEST(no_archive_behind_other_bytes)
{
    static bytes front;
    bool two;
    for (int wide = 0; wide < 2; wide++) {
        make(wide);
        front.size = 0;
        PUT(&front, "HTTP/1.1 200 OK\r\n\r\n");
        put_behind(&front);
        ck_assert_uint_eq(start_of(&two), front.size);
        ck_assert(!two);
        refused(CKPT_E_FORMAT, "not a zip");
        a.file.data[front.size] = 'Q'; /* no record begins there */
        ck_assert_uint_eq(start_of(&two), 0);
        make(wide);
        size_t whole = a.file.size;
        for (a.file.size = 0; a.file.size < whole; a.file.size++) {
            ck_assert_uint_eq(start_of(&two), 0);
            ck_assert(!two);
        }
        setup();
        two_good();
        PUT(&a.file, "something between the records and the directory"); /* which says where it is */
        put_end64(&a, 0, 0, wide ? (uint64_t)-20 : 0);
        ck_assert_uint_eq(start_of(&two), 0);
    }
}
END_TEST

/* ---- many records, whose local headers are looked at by a thread */

enum { MANY = 600, LIAR = 400 };

/* LIAR says another name of itself than the directory does, where `lie` is set. */
static void many(bool lie)
{
    static char names[MANY][16];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "m/%03d", i);
        add(&(record){.name = names[i], .local_name = lie && i == LIAR ? "m/zzz" : NULL, .data = names[i], .size = 5});
    }
    put_end(&a, a.count, "");
}

static ckpt_status open_ahead(void)
{
    ckpt__zip_input in = {read_file, &a.file, a.file.size, "test.zip"};
    memset(&err, 0, sizeof err);
    ckpt__zip_free(zip);
    return ckpt__zip_open_ahead(&in, &zip, &err);
}

START_TEST(headers_are_checked_meanwhile)
{
    many(false);
    ck_assert_msg(open_ahead() == CKPT_OK, "%s", err.message);
    reads_as("m/599", "m/599"); /* before anybody knows where it lies */
    reads_as("m/000", "m/000");
    ck_assert_msg(ckpt__zip_checked(zip, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt__zip_checked(zip, &err), CKPT_OK);
    for (size_t i = 0; i < MANY; i++) {
        const ckpt__zip_record *r = ckpt__zip_at(zip, i);
        ck_assert_uint_eq(r->data, r->header + 30 + 5 + 7);
        ck_assert_int_eq(memcmp(a.file.data + r->data, r->name.data, 5), 0);
    }
    reads_as("m/300", "m/300");
}
END_TEST

START_TEST(a_lie_is_found_meanwhile)
{
    static const char message[] = "the directory says 'm/400' and the record itself 'm/zzz'";
    many(true);
    refused(CKPT_E_FORMAT, message);
    ck_assert_int_eq(open_ahead(), CKPT_OK);
    reads_as("m/399", "m/399");
    ckpt__buf b = {0};
    ck_assert_int_eq(ckpt__zip_read(zip, ckpt__zip_find(zip, "m/400", 5), 1 << 20, &b, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, message));
    ck_assert_uint_eq(b.size, 0);
    ckpt__buf_free(&b);
    for (int again = 0; again < 2; again++) {
        memset(&err, 0, sizeof err);
        ck_assert_int_eq(ckpt__zip_checked(zip, &err), CKPT_E_FORMAT);
        ck_assert_ptr_nonnull(strstr(err.message, message));
    }
    ck_assert_int_eq(open_ahead(), CKPT_OK); /* and freed without a question */
}
END_TEST

/* Few are looked at before the archive is there at all. */
START_TEST(few_are_checked_at_once)
{
    add(&(record){.name = "m/x", .local_name = "m/y", .data = "abc", .size = 3});
    put_end(&a, a.count, "");
    ck_assert_int_eq(open_ahead(), CKPT_E_FORMAT);
    ck_assert_ptr_null(zip);
}
END_TEST

static bool ten(void *ctx, ckpt_str name, uint64_t *size)
{
    (void)ctx;
    *size = 10;
    return strstr(name.data, "/data/") != NULL;
}

/* A descriptor is lost together with the header behind it: the next record, of the same size, must not take the first one's
 * name. A directory that is whole still says the CRC. */
START_TEST(a_page_between_two_records)
{
    add(&(record){.name = "m/data.pkl", .data = "pickle", .size = 6, .flags = 0x808});
    add(&(record){.name = "m/data/0", .data = "0123456789", .size = 10, .flags = 0x808});
    size_t end = a.file.size;
    add(&(record){.name = "m/data/1", .data = "abcdefghij", .size = 10, .flags = 0x808});
    add(&(record){.name = "m/version", .data = "3", .size = 1, .flags = 0x808});
    if (_i == 1)
        put_end(&a, a.count, "");
    memset(a.file.data + end - 16, 0, 16 + 30);
    ckpt__zip_input in = {read_file, &a.file, a.file.size, "test.zip"};
    ck_assert_int_eq(ckpt__zip_salvage(&in, "/data.pkl", &zip, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__zip_salvage_rest(zip, ten, NULL, &err), CKPT_OK);
    const ckpt__zip_record *r = ckpt__zip_find(zip, "m/data/0", 8);
    ck_assert_ptr_nonnull(r);
    ck_assert_uint_eq(r->data, end - 16 - 10);
    ck_assert(r->unsure && r->has_crc == (_i == 1));
    ck_assert(_i == 0 || r->crc == ckpt__crc32(0, "0123456789", 10));
    ck_assert_ptr_null(ckpt__zip_find(zip, "m/data/1", 8));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("zip");
    TCase *t = tcase_create("directory");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, plain);
    tcase_add_test(t, zip64_comment_folder_deflate);
    tcase_add_loop_test(t, two_end_records, 0, 4);
    tcase_add_test(t, names_but_for_case);
    tcase_add_test(t, bytes_behind_the_end);
    tcase_add_test(t, no_crc_is_none);
    tcase_add_test(t, broken_records);
    tcase_add_test(t, bad_names);
    tcase_add_test(t, lies_of_records);
    tcase_add_test(t, overlap);
    tcase_add_test(t, overlap_by_one_byte);
    tcase_add_test(t, lies_of_the_end);
    tcase_add_test(t, cut_everywhere);
    tcase_add_test(t, every_read_fails);
    tcase_add_test(t, not_a_zip);
    tcase_add_test(t, two_archives_in_one_file);
    tcase_add_test(t, an_archive_behind_a_part_of_one);
    tcase_add_test(t, no_archive_behind_other_bytes);
    tcase_add_test(t, headers_are_checked_meanwhile);
    tcase_add_test(t, a_lie_is_found_meanwhile);
    tcase_add_test(t, few_are_checked_at_once);
    tcase_add_loop_test(t, a_page_between_two_records, 0, 2);
    suite_add_tcase(s, t);
    return run_suite(s);
}
