/* Pickles where a scan must find them: in archives of any kind, sound or not, in strings, in folders. */
#include "scan_files.h"
#include "../torch_emit.h"

#define EVIL "\x80\x02" OS_SYSTEM "."
/* The same call, of characters that are the same in Latin-1 and UTF-8. */
#define OS_SYSTEM1 "cos\nsystem\n(X\4\0\0\0echotR"
/* The members data and size of a record, or of the like. */
#define P(literal) .data = literal, .size = sizeof(literal) - 1

static archive a;
static bytes b;

static void setup(void)
{
    scan_setup();
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
}

static void found_in(const char *file)
{
    const ckpt_scan_global *g = scan_find("os.system");
    ck_assert_ptr_nonnull(g);
    ck_assert_msg(strstr(g->file.data, file) != NULL, "found in %s, expected %s", g->file.data, file);
}

static ckpt_danger scan_archive(void)
{
    return scan_bytes(a.file.data, a.file.size);
}

static void good_records(void)
{
    static const float ones[6] = {1, 1, 1, 1, 1, 1};
    add_record(&a, &(record){.name = "m/data.pkl", .data = "\x80\x02}.", .size = 4, .flags = 0x808});
    add_record(&a, &(record){.name = "m/data/0", .data = ones, .size = sizeof ones});
}

START_TEST(any_record)
{
    static const char *const names[] = {"m/data.pkl", "m/data/1", "m/extra/readme.txt", "other/data.pkl",
                                        "m/code/x.py"};
    for (int deflate = 0; deflate < 2; deflate++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            memset(&a, 0, sizeof a);
            if (i)
                good_records();
            add_record(&a, &(record){.name = names[i], P(EVIL), .deflate = deflate});
            put_end(&a, a.count, "");
            ck_assert_int_eq(scan_archive(), CKPT_DANGER_DANGEROUS);
            found_in(names[i]);
            ck_assert_uint_eq(ckpt_report_count(scan_report), 0);
        }
}
END_TEST
START_TEST(a_good_archive_is_clean)
{
    good_records();
    put_end(&a, a.count, "");
    ck_assert_int_eq(scan_archive(), CKPT_DANGER_HARMLESS);
    ck_assert_uint_eq(ckpt_scan_pickles(scanned), 1);
    ck_assert_uint_eq(ckpt_report_count(scan_report), 0);
}
END_TEST

/* Records that the directory does not list, in front of, between and behind those that it lists. */
START_TEST(records_without_an_entry)
{
    for (int where = 0; where < 3; where++)
        for (int deflate = 0; deflate < 2; deflate++) {
            bytes directory;
            memset(&a, 0, sizeof a);
            if (where == 1)
                add_record(&a, &(record){.name = "m/data.pkl", .data = "\x80\x02}.", .size = 4});
            if (where == 2)
                good_records();
            directory = a.directory;
            unsigned count = a.count;
            add_record(&a, &(record){.name = "m/hidden", P(EVIL), .deflate = deflate});
            a.directory = directory;
            a.count = count;
            if (where < 2)
                add_record(&a, &(record){.name = "m/data/0", .data = "0123456789", .size = 10});
            put_end(&a, a.count, "");
            ck_assert_int_eq(scan_archive(), CKPT_DANGER_DANGEROUS);
            found_in("m/hidden");
        }
}
END_TEST

/* An archive that readers refuse is looked into all the same. */
START_TEST(damaged_archives)
{
    for (int kind = 0; kind < 6; kind++) {
        memset(&a, 0, sizeof a);
        if (kind == 0)
            PUT(&a.file, "\x80\x02K\1."); /* something before it */
        add_record(&a, &(record){.name = "m/data.pkl",
                                 P(EVIL),
                                 .deflate = kind % 2,
                                 .wrong_crc = kind == 1,
                                 .local_name = kind == 2 ? "m/other.pkl" : NULL,
                                 .usize = kind == 3 ? 9999 : 0});
        if (kind == 4)
            add_record(&a, &(record){.name = "m/data.pkl", .data = "\x80\x02}.", .size = 4}); /* twice */
        if (kind != 5)
            put_end(&a, a.count + (kind == 2), "");
        ck_assert_msg(scan_archive() == CKPT_DANGER_DANGEROUS, "kind %d", kind);
    }
}
END_TEST

/* The directory says that a record is deflated, its header that it is stored: readers differ in whom they believe. */
START_TEST(methods_that_differ)
{
    static unsigned char packed[256];
    const record r = {P(EVIL)};
    size_t n = deflate_into(&r, packed, sizeof packed);
    add_record(&a, &(record){.name = "m/data.pkl", .data = packed, .size = n});
    a.directory.data[10] = 8;
    put_end(&a, a.count, "");
    ck_assert_int_eq(scan_archive(), CKPT_DANGER_DANGEROUS);
}
END_TEST

START_TEST(encrypted_or_unknown_methods)
{
    add_record(&a, &(record){.name = "m/data.pkl", P("BZh91AY&SY\0\0\0\0"), .method = 12});
    put_end(&a, a.count, "");
    ck_assert_int_eq(scan_archive(), CKPT_DANGER_UNKNOWN);
    ck_assert(scan_says("scan-unreadable"));
    memset(&a, 0, sizeof a);
    add_record(&a, &(record){.name = "m/data.pkl", .data = "zzzzzzzzzzzzzzzzzz", .size = 18, .flags = 1});
    put_end(&a, a.count, "");
    ck_assert_int_eq(scan_archive(), CKPT_DANGER_UNKNOWN);
    ck_assert(scan_says("scan-unreadable"));
}
END_TEST

/* A reader that does not look at the flags reads it as it is. */
START_TEST(encrypted_by_its_flags_alone)
{
    for (int deflate = 0; deflate < 2; deflate++)
        for (unsigned flags = 1; flags <= 0x2041; flags += 0x1020) {
            memset(&a, 0, sizeof a);
            add_record(&a, &(record){.name = "m/data.pkl", P(EVIL), .deflate = deflate, .flags = flags});
            put_end(&a, a.count, "");
            ck_assert_int_eq(scan_archive(), CKPT_DANGER_DANGEROUS);
            ck_assert(scan_says("scan-unreadable"));
        }
}
END_TEST

/* Archives in archives, to the depth that is looked at and beyond. */
START_TEST(archives_in_archives)
{
    static archive outer;
    for (int deflate = 0; deflate < 2; deflate++) {
        memset(&a, 0, sizeof a);
        add_record(&a, &(record){.name = "m/x", P(EVIL)});
        put_end(&a, a.count, "");
        for (int depth = 2; depth <= 12; depth++) {
            memset(&outer, 0, sizeof outer);
            add_record(&outer,
                       &(record){.name = "in.zip", .data = a.file.data, .size = a.file.size, .deflate = deflate});
            put_end(&outer, outer.count, "");
            a = outer;
            ckpt_danger verdict = scan_archive();
            if (depth <= 10)
                ck_assert_msg(verdict == CKPT_DANGER_DANGEROUS, "depth %d", depth);
            else {
                ck_assert_int_eq(verdict, CKPT_DANGER_UNKNOWN);
                ck_assert(scan_says("scan-limit"));
            }
        }
    }
}
END_TEST

/* A record that inflates to 400 MiB of None: not all of it is looked at, and it is not called clean. */
START_TEST(a_bomb)
{
    static unsigned char block[1 << 16];
    FILE *f = fopen("bomb", "wb");
    z_stream z = {0};
    unsigned char out[1 << 16];
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    memset(block, 'N', sizeof block);
    for (int i = 0; i < 6400; i++) {
        z.next_in = block;
        z.avail_in = sizeof block;
        do {
            z.next_out = out;
            z.avail_out = sizeof out;
            deflate(&z, i == 6399 ? Z_FINISH : Z_NO_FLUSH);
            fwrite(out, 1, sizeof out - z.avail_out, f);
        } while (z.avail_out == 0);
    }
    deflateEnd(&z);
    fclose(f);
    ck_assert_int_eq(scan_path("bomb"), CKPT_DANGER_UNKNOWN);
    ck_assert(scan_says("scan-limit"));
}
END_TEST

/* Appends a stream of zlib (MAX_WBITS) or gzip (16 more). */
static void put_packed(int bits, const char *data, size_t n)
{
    unsigned char out[256];
    z_stream z = {0};
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)data;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = sizeof out;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    put(&b, out, z.total_out);
    deflateEnd(&z);
}

START_TEST(gzip_and_zlib)
{
    for (int bits = MAX_WBITS; bits <= MAX_WBITS + 16; bits += 16) {
        b.size = 0;
        put_packed(bits, EVIL, sizeof EVIL - 1);
        ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
        found_in(bits == MAX_WBITS ? "!zlib" : "!gzip");
    }
}
END_TEST

/* Members one behind the other are one stream to Python, whatever zeros lie between them, and a pickle may lie in several. */
START_TEST(members_of_one_stream)
{
    static const size_t zeros[] = {0, 3, 65536, 200000};
    static char whole[300000];
    for (int bits = MAX_WBITS; bits <= MAX_WBITS + 16; bits += 16)
        for (size_t k = 0; k < sizeof zeros / sizeof *zeros; k++) {
            size_t behind = 0;
            b.size = 0;
            for (size_t at = 0, n; at < sizeof EVIL - 1; at += n) {
                n = sizeof EVIL - 1 - at < 5 ? sizeof EVIL - 1 - at : 5;
                put_packed(bits, &EVIL[at], n);
                behind = at ? behind : b.size;
            }
            memset(whole, 0, sizeof whole);
            memcpy(whole, b.data, behind);
            memcpy(whole + behind + zeros[k], b.data + behind, b.size - behind);
            strcpy(whole + b.size + zeros[k] + 3, "what is no member ends it");
            ck_assert_int_eq(scan_bytes(whole, b.size + zeros[k]), CKPT_DANGER_DANGEROUS);
            ck_assert_int_eq(scan_bytes(whole, b.size + zeros[k] + 30), CKPT_DANGER_DANGEROUS);
            found_in(bits == MAX_WBITS ? "!zlib" : "!gzip");
        }
}
END_TEST

START_TEST(what_is_not_unpacked)
{
    static const struct {
        const char *data;
        size_t size;
    } heads[] = {{P("\xFD"
                    "7zXZ\0\0\0\0\0")},
                 {P("BZh91AY&SY\0\0\0")},
                 {P("\x28\xB5\x2F\xFD\0\0\0\0")}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        ck_assert_int_eq(scan_bytes(heads[i].data, heads[i].size), CKPT_DANGER_UNKNOWN);
        ck_assert(scan_says("scan-unreadable"));
    }
}
END_TEST

/* ---- numpy, tar, strings */

START_TEST(numpy_arrays)
{
    static const char head[] = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n";
    PUT(&b, "\x93NUMPY\1\0");
    put_number(&b, sizeof head - 1, 2);
    PUT(&b, head);
    put(&b, EVIL, sizeof EVIL - 1);
    ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
    add_record(&a, &(record){.name = "arr_0.npy", .data = b.data, .size = b.size, .deflate = true});
    put_end(&a, a.count, "");
    ck_assert_int_eq(scan_archive(), CKPT_DANGER_DANGEROUS);
    found_in("!arr_0.npy");
    b.size = 0;
    PUT(&b, "\x93NUMPY\2\0");
    put_number(&b, sizeof head - 1, 4);
    PUT(&b, head);
    put(&b, EVIL, sizeof EVIL - 1);
    ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
    b.size -= sizeof EVIL - 1;
    PUT(&b, "\0\0\0\0\0\0\xf0\x3f");
    ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_HARMLESS);
}
END_TEST

/* How the sum of a header's bytes is taken and written. */
typedef enum sum_kind { USUAL, WITH_SIGNS, AS_PYTHON_READS } sum_kind;

static void put_header(const char *name, size_t n, char type, const char *magic, sum_kind kind)
{
    char header[512] = "";
    int sum = 0;
    strcpy(header, name);
    snprintf(header + 124, 12, "%011o", (unsigned)n);
    header[156] = type;
    strcpy(header + 257, magic);
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < sizeof header; i++)
        sum += kind == WITH_SIGNS ? (signed char)header[i] : (unsigned char)header[i];
    snprintf(header + 148, 8, kind == AS_PYTHON_READS ? "0o%05o" : "%06o", (unsigned)sum);
    put(&b, header, sizeof header);
}

static void put_member(const char *name, const void *data, size_t n)
{
    put_header(name, n, '0', "ustar", USUAL);
    put(&b, data, n);
    while (b.size % 512)
        PUT(&b, "\0");
}

START_TEST(tar_members)
{
    put_member("sys_info", "\x80\x02}.", 4);
    put_member("storages", "\x80\x02K\1.\0\0\0\0", 9);
    put_member("pickle", EVIL, sizeof EVIL - 1);
    ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
    found_in("!pickle");
    ck_assert_int_eq(scan_bytes(b.data, b.size - 500), CKPT_DANGER_UNKNOWN);
    ck_assert(scan_says("scan-damaged"));
}
END_TEST

static void put_block(const void *data, size_t n)
{
    put(&b, data, n);
    while (b.size % 512)
        PUT(&b, "\0");
}

/* Archives as they were before "ustar", with what Python's tarfile takes too. */
START_TEST(old_tar)
{
    static const struct {
        const char *name;
        sum_kind sum;
    } first[] = {{"sys_info", USUAL}, {"\xe9t\xe9", WITH_SIGNS}, {"sys_info", AS_PYTHON_READS}, {"", USUAL}};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        b.size = 0;
        put_header(first[i].name, 4, 0, "", first[i].sum);
        put_block("\x80\x02}.", 4);
        put_header("pickle", sizeof EVIL - 1, 0, "", first[i].sum);
        put_block(EVIL, sizeof EVIL - 1);
        ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
        found_in("!pickle");
        ck_assert_uint_eq(ckpt_report_count(scan_report), 0);
    }
}
END_TEST

/* The header says that nothing follows, and an extended one before it what follows: what lies there is not a header. */
START_TEST(tar_sizes_elsewhere)
{
    static const char *const said[] = {"13 size=2048\n", "22 GNU.sparse.major=1\n", NULL};
    for (size_t i = 0; i < 3; i++) {
        static const char path[] = "12 path=abc\n";
        const char *text = said[i] ? said[i] : path;
        b.size = 0;
        put_header("x", strlen(text), 'x', "ustar", USUAL);
        put_block(text, strlen(text));
        put_member("y", "\x80\x02}.", 4);
        ck_assert_int_eq(scan_bytes(b.data, b.size), said[i] ? CKPT_DANGER_UNKNOWN : CKPT_DANGER_HARMLESS);
        ck_assert_int_eq(scan_says("scan-unreadable"), said[i] != NULL);
    }
    b.data[148]++;
    ck_assert_int_eq(scan_bytes(b.data, b.size),
                     CKPT_DANGER_UNKNOWN); /* by its magic it is one, by its sum it is none */
    ck_assert(scan_says("scan-damaged"));
}
END_TEST

static void put_counted(const char *opcode, const void *data, size_t n)
{
    PUT(&b, "\x80\x03");
    put(&b, opcode, 1);
    put_number(&b, n, 4);
    put(&b, data, n);
    PUT(&b, ".");
}

START_TEST(strings)
{
    static const char latin1[] = "\xc2\x80\x02" OS_SYSTEM1 ".";
    put_counted("B", EVIL, sizeof EVIL - 1);
    ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
    found_in("!bytes@7");
    b.size = 0;
    put_counted("X", "cos\nsystem\n)R.", 14);
    ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
    b.size = 0;
    put_counted("X", latin1, sizeof latin1 - 1);
    ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
    static const char line[] = "S'\\x80\\x02cos\\nsystem\\n)R.'\n.";
    ck_assert_int_eq(scan_bytes(line, sizeof line - 1), CKPT_DANGER_DANGEROUS);
    static const char unicode[] = "V\\u0080\\u0002cos\\u000asystem\\u000a)R.\n.";
    ck_assert_int_eq(scan_bytes(unicode, sizeof unicode - 1), CKPT_DANGER_DANGEROUS);
    static const char harmless[] = "\x80\x03X\x0b\0\0\0os.system()C\3abc\x86.";
    ck_assert_int_eq(scan_bytes(harmless, sizeof harmless - 1), CKPT_DANGER_HARMLESS);
}
END_TEST

/* A string longer than the window that pickles are read through. */
START_TEST(long_strings)
{
    static char big[300000];
    size_t n = 0;
    for (int latin1 = 0; latin1 < 2; latin1++) {
        n = (size_t)snprintf(big, 16, "\x80\x02%c", latin1 ? 'X' : 'T');
        uint32_t size = 200000;
        memcpy(big + n, &size, 4);
        char *p = big + n + 4, *end = p + size;
        memcpy(p, latin1 ? "\xc2\x80\x02" : "\x80\x02", 2 + (size_t)latin1);
        p += 2 + latin1;
        for (; p < end - 40; p += 2)
            memcpy(p, "N0", 2);
        memcpy(p, OS_SYSTEM1 ".", sizeof OS_SYSTEM1);
        p += sizeof OS_SYSTEM1;
        memset(p, '.', (size_t)(end - p));
        *end = '.';
        ck_assert_int_eq(scan_bytes(big, (size_t)(end - big) + 1), CKPT_DANGER_DANGEROUS);
    }
}
END_TEST

/* A native file: what it keeps of a pickle, in its header or as a blob. */
START_TEST(native_files)
{
    for (int blob = 0; blob < 2; blob++) {
        char header[600], hex[200] = "";
        for (size_t i = 0; i < sizeof EVIL - 1; i++)
            snprintf(hex + 2 * i, 3, "%02x", (unsigned)(unsigned char)EVIL[i]);
        int n =
            blob ? snprintf(header, sizeof header,
                            "{\"__metadata__\":{},\"ckpt.blob.0\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":["
                            "4,%zu]}}",
                            sizeof EVIL - 1, sizeof EVIL + 3)
                 : snprintf(header, sizeof header,
                            "{\"__metadata__\":{\"ckpt\":\"{\\\"$\\\":\\\"bytes\\\",\\\"hex\\\":\\\"%s\\\"}\"}}", hex);
        b.size = 0;
        put_number(&b, (uint64_t)n, 8);
        put(&b, header, (size_t)n);
        PUT(&b, "\0\0\0\0");
        put(&b, EVIL, blob ? sizeof EVIL - 1 : 0);
        ck_assert_int_eq(scan_bytes(b.data, b.size), CKPT_DANGER_DANGEROUS);
        found_in("!bytes of its values");
    }
}
END_TEST

/* ---- folders */

START_TEST(folders)
{
    ck_assert_int_eq(mkdir("run", 0777), 0);
    ck_assert_int_eq(mkdir("run/deep", 0777), 0);
    ck_assert_int_eq(mkdir("run/deep/er", 0777), 0);
    write_file("run/config.json", "{}", 2);
    write_file("run/good.pkl", "\x80\x02}.", 4);
    ck_assert_int_eq(scan_path("run"), CKPT_DANGER_HARMLESS);
    ck_assert_uint_eq(ckpt_scan_files(scanned), 2);
    write_file("run/deep/er/README", EVIL, sizeof EVIL - 1);
    ck_assert_int_eq(scan_path("run"), CKPT_DANGER_DANGEROUS);
    ck_assert_uint_eq(ckpt_scan_files(scanned), 3);
    ck_assert_uint_eq(ckpt_scan_pickles(scanned), 2);
    found_in("deep/er/README");
}
END_TEST

START_TEST(links_that_leave)
{
    ck_assert_int_eq(mkdir("run", 0777), 0);
    write_file("outside", EVIL, sizeof EVIL - 1);
    ck_assert_int_eq(symlink("../outside", "run/inside"), 0);
    ck_assert_int_eq(scan_path("run"), CKPT_DANGER_UNKNOWN);
    ck_assert(scan_says("scan-unreadable"));
    ck_assert_uint_eq(ckpt_scan_files(scanned), 0);
}
END_TEST

START_TEST(no_file)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_scan *scan;
    ck_assert_int_eq(ckpt_scan_open("nowhere", NULL, &scan, scan_report, &err), CKPT_E_SYSTEM);
    ck_assert_ptr_null(scan);
    ck_assert_int_eq(mkfifo("fifo", 0600), 0);
    ck_assert_int_eq(ckpt_scan_open("fifo", NULL, &scan, scan_report, &err), CKPT_E_FORMAT);
    ck_assert_ptr_null(scan);
}
END_TEST

static int stop_at_once(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return 1;
}

START_TEST(cancelled)
{
    const ckpt_progress progress = {stop_at_once, NULL};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_scan *scan;
    write_file("x", EVIL, sizeof EVIL - 1);
    ck_assert_int_eq(ckpt_scan_open("x", &(ckpt_scan_options){.progress = progress}, &scan, scan_report, &err),
                     CKPT_E_CANCELLED);
    ck_assert_ptr_null(scan);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scan_files");
    TCase *c = tcase_create("scan_files");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, scan_teardown);
    tcase_add_test(c, any_record);
    tcase_add_test(c, a_good_archive_is_clean);
    tcase_add_test(c, records_without_an_entry);
    tcase_add_test(c, damaged_archives);
    tcase_add_test(c, methods_that_differ);
    tcase_add_test(c, encrypted_or_unknown_methods);
    tcase_add_test(c, archives_in_archives);
    tcase_add_test(c, a_bomb);
    tcase_add_test(c, encrypted_by_its_flags_alone);
    tcase_add_test(c, gzip_and_zlib);
    tcase_add_test(c, members_of_one_stream);
    tcase_add_test(c, what_is_not_unpacked);
    tcase_add_test(c, numpy_arrays);
    tcase_add_test(c, tar_members);
    tcase_add_test(c, old_tar);
    tcase_add_test(c, tar_sizes_elsewhere);
    tcase_add_test(c, strings);
    tcase_add_test(c, long_strings);
    tcase_add_test(c, native_files);
    tcase_add_test(c, folders);
    tcase_add_test(c, links_that_leave);
    tcase_add_test(c, no_file);
    tcase_add_test(c, cancelled);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
