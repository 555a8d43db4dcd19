/* Salvage: files cut off at every byte, and with each part damaged. What is recovered is exactly what is there. */
#include "format/table.h"
#include "legacy_emit.h"
#include "../runner.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static int memory = -1; /* the file, which is written thousands of times */
static char path[64];
static ckpt_error err;
static ckpt__source *source;
static ckpt__index *x;
static bytes pickle, file, directory;
enum { STORAGES = 12 };
static float floats[4 * STORAGES];

static void forget(void)
{
    ckpt__index_free(x);
    ckpt__source_close(source);
    x = NULL;
    source = NULL;
    memset(&err, 0, sizeof err);
}
static void setup(void)
{
    memory = memfd_create("test_salvage", MFD_CLOEXEC);
    ck_assert_int_ge(memory, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    pickle.size = file.size = 0;
    for (size_t i = 0; i < 4 * STORAGES; i++)
        floats[i] = (float)i / 3 + 1;
}
static void teardown(void)
{
    forget();
    close(memory);
}

static ckpt_status read_bytes(const void *data, size_t n, bool salvage)
{
    forget();
    ck_assert_int_eq(ftruncate(memory, 0), 0);
    ck_assert_int_eq(pwrite(memory, data, n, 0), (ssize_t)n);
    ck_assert_msg(ckpt__source_open(path, &source, &err) == CKPT_OK, "%s", err.message);
    ckpt__read_request request = ckpt__read_all(source);
    request.salvage = salvage;
    return ckpt__format_read(&request, NULL, &x, &err);
}
static void must_salvage(const bytes *b)
{
    ckpt_status s = read_bytes(b->data, b->size, true);
    ck_assert_msg(s == CKPT_OK, "%s: %s", err.object, err.message);
}
static bool has_finding(const char *code)
{
    return ckpt_report_find(x->findings, code, NULL) != NULL;
}

/* An error that says that nothing confirms what is called so. */
static bool is_unconfirmed(const char *what)
{
    bool is = false;
    for (size_t i = 0; i < ckpt_report_count(x->findings); i++) {
        const ckpt_finding *f = ckpt_report_get(x->findings, i);
        is = is || (f->severity == CKPT_SEVERITY_ERROR && strstr(f->message, "confirm") && strstr(f->message, what));
    }
    return is;
}

/* ---- archives as torch lays them out: caffe2/serialize/inline_container.cc */

typedef enum layout { NEW_TORCH, OLD_TORCH, ALIGN_1, NO_CRC, WIDE_DESCRIPTORS, WIDE_STREAM, ZIP_TOOL, LAYOUTS } layout;

typedef struct placed {
    char name[32];
    size_t header, data, size, end; /* end: of the descriptor */
} placed;
static placed records[STORAGES + 8];
static size_t record_count;

static void add_aligned(const char *name, const void *data, size_t n, layout l)
{
    placed *p = &records[record_count++];
    char full[48];
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(full, sizeof full, "m/%s", name);
    static const char zip64[20] = {1, 0, 16}; /* sizes that are said behind the data */
    size_t extra = 4 + (l == WIDE_STREAM ? sizeof zip64 : 0), start = file.size + 30 + strlen(full) + extra;
    size_t align = l == ALIGN_1 ? 1 : 64, pad = (align - start % align) % align, said = extra > 4 ? UINT32_MAX : 0;
    bool described = n && l != ZIP_TOOL, wide = l == WIDE_DESCRIPTORS || l == WIDE_STREAM;
    uint32_t crc = l == NO_CRC ? 0 : ckpt__crc32(0, data, n);
    p->header = file.size;
    PUT(&file, "PK\3\4");
    put_number(&file, 0, 2);
    put_number(&file, described ? 0x808 : 0x800, 2);
    put_number(&file, 0, 6);
    put_number(&file, l == ZIP_TOOL ? crc : 0, 4);
    put_number(&file, l == ZIP_TOOL ? n : said, 4);
    put_number(&file, l == ZIP_TOOL ? n : said, 4);
    put_number(&file, strlen(full), 2);
    put_number(&file, extra + pad, 2);
    put(&file, full, strlen(full));
    put(&file, zip64, extra - 4);
    PUT(&file, "FB");
    put_number(&file, pad, 2);
    for (size_t i = 0; i < pad; i++)
        PUT(&file, "Z");
    p->data = file.size;
    p->size = n;
    put(&file, data, n);
    if (described) {
        PUT(&file, "PK\7\x08");
        put_number(&file, crc, 4);
        put_number(&file, n, wide ? 8 : 4);
        put_number(&file, n, wide ? 8 : 4);
    }
    p->end = file.size;
    PUT(&directory, "PK\1\2");
    put_number(&directory, 0, 4);
    put_number(&directory, described ? 0x808 : 0x800, 2);
    put_number(&directory, 0, 6);
    put_number(&directory, crc, 4);
    put_number(&directory, n, 4);
    put_number(&directory, n, 4);
    put_number(&directory, strlen(full), 2);
    put_number(&directory, 0, 12);
    put_number(&directory, p->header, 4);
    put(&directory, full, strlen(full));
}

/* Storage i has 3 * i floats: the first has none. */
static void make_pickle(void)
{
    pickle.size = 0;
    PUT(&pickle, "\x80\2}(");
    for (int i = 0; i < STORAGES; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        put_str(&pickle, key);
        put_tensor(&pickle, &(view){"FloatStorage", key, "cuda:0", 3 * i, 0, 1, 1, {3 * i}, {1}});
    }
    PUT(&pickle, "u.");
}

static void make_archive(layout l)
{
    static const int by_text[STORAGES] = {0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9};
    static const char serialization_id[] = "0123456789012345678901234567890123456789";
    bool old = l == OLD_TORCH;
    file.size = directory.size = record_count = 0;
    make_pickle();
    add_aligned("data.pkl", pickle.data, pickle.size, l);
    if (!old) {
        add_aligned(".format_version", "1", 1, l);
        add_aligned(".storage_alignment", "64", 2, l);
        add_aligned("byteorder", "little", 6, l);
    }
    for (int i = 0; i < STORAGES; i++) {
        char name[32];
        int n = old ? by_text[i] : i;
        snprintf(name, sizeof name, "data/%d", n);
        add_aligned(name, floats + n, (size_t)n * 12, l);
    }
    add_aligned("version", "3\n", 2, l);
    if (!old)
        add_aligned(".data/serialization_id", serialization_id, 40, l);
}
static void end_archive(void)
{
    archive a;
    memset(&a, 0, sizeof a);
    a.file = file;
    a.directory = directory;
    a.count = (unsigned)record_count;
    put_end64(&a, 0, 0, 0);
    file = a.file;
}
static const placed *record_named(const char *name)
{
    for (size_t i = 0; i < record_count; i++)
        if (strcmp(records[i].name, name) == 0)
            return &records[i];
    ck_abort_msg("no record %s", name);
    return NULL;
}
static const placed *storage_record(size_t number)
{
    char name[32];
    snprintf(name, sizeof name, "data/%zu", number);
    return record_named(name);
}
/* The index's storage of that name; values are made from the last to the first, so the order is another. */
static const ckpt__extent *extent_of(const char *name)
{
    for (size_t i = 0; i < x->storage_count; i++)
        if (ckpt__str_is(x->storages[i].name, name))
            return &x->storages[i].extent;
    ck_abort_msg("no storage %s", name);
    return NULL;
}
static const ckpt__extent *extent(size_t number)
{
    char name[32];
    snprintf(name, sizeof name, "m/data/%zu", number);
    return extent_of(name);
}
/* Its bytes are there, and they are the right ones, for a storage that is whole. */
static void check_storage(size_t i, bool whole)
{
    const ckpt__extent *e = extent(i);
    const placed *p = storage_record(i);
    unsigned char got[STORAGES * 12];
    ck_assert_uint_eq(e->size, p->size);
    ck_assert_msg(e->missing == !whole, "storage %zu of a file of %llu bytes: missing is %d", i,
                  (unsigned long long)source->files[0].size, e->missing);
    if (!whole || p->size == 0)
        return;
    ck_assert_uint_eq(e->offset, p->data);
    ck_assert_uint_eq(e->length, p->size);
    ck_assert(ckpt__source_read(source, 0, e->offset, got, p->size, &err) == CKPT_OK);
    ck_assert_mem_eq(got, floats + i, p->size);
    if (e->has_crc)
        ck_assert_uint_eq(e->crc, ckpt__crc32(0, floats + i, p->size));
}

START_TEST(archives_cut_everywhere)
{
    for (layout l = 0; l < LAYOUTS; l++) {
        make_archive(l);
        end_archive();
        const placed *data_pkl = record_named("data.pkl");
        ck_assert_msg(read_bytes(file.data, file.size, true) == CKPT_OK, "%s", err.message);
        ck_assert(!has_finding("salvaged"));
        for (size_t n = 64; n < file.size; n++) {
            ckpt_status s = read_bytes(file.data, n, false);
            ck_assert_msg(s == CKPT_E_DAMAGED, "layout %d cut to %zu is read: %d, %s", l, n, s, err.message);
            s = read_bytes(file.data, n, true);
            bool readable = n >= data_pkl->data + data_pkl->size;
            ck_assert_msg(s == (readable ? CKPT_OK : CKPT_E_DAMAGED), "layout %d cut to %zu: %d, %s", l, n, s,
                          err.message);
            if (!readable) {
                ck_assert_msg(strstr(err.message, "nothing can be recovered") != NULL, "%s", err.message);
                continue;
            }
            ck_assert_uint_eq(x->tensor_count, STORAGES);
            ck_assert(has_finding("salvaged"));
            for (size_t i = 0; i < STORAGES; i++)
                check_storage(i, i == 0 || n >= storage_record(i)->data + storage_record(i)->size);
        }
    }
}
END_TEST

/* All bytes that are no storage's are of no use to a salvage, but for data.pkl and the local headers. */
START_TEST(damaged_directories)
{
    make_archive(NEW_TORCH);
    size_t records_end = file.size;
    end_archive();
    for (size_t at = records_end; at < file.size; at++) {
        bytes damaged = file;
        damaged.data[at] ^= 0x55;
        must_salvage(&damaged);
        for (size_t i = 0; i < STORAGES; i++)
            check_storage(i, true);
    }
}
END_TEST

START_TEST(damaged_headers_and_descriptors)
{
    make_archive(NEW_TORCH);
    if (_i == 1)
        end_archive(); /* it says the CRC of what has no descriptor any more */
    bytes whole = file;
    for (size_t k = 1; k < STORAGES; k++) {
        const placed *p = storage_record(k);
        file = whole;
        memset(file.data + p->header, 0, 40); /* signature and name: its bytes cannot be known for what they are */
        must_salvage(&file);
        for (size_t i = 0; i < STORAGES; i++)
            check_storage(i, i != k);
        file = whole;
        memset(file.data + p->end - 16, 0, 16);
        must_salvage(&file);
        for (size_t i = 0; i < STORAGES; i++)
            check_storage(i, true);
        ck_assert(extent(k)->has_crc == (_i == 1));
        ck_assert(is_unconfirmed(p->name) == (_i == 0));
        file = whole; /* bytes taken out of the middle of its data */
        memmove(file.data + p->data + 4, file.data + p->data + 8, file.size - p->data - 8);
        file.size -= 4;
        must_salvage(&file);
        for (size_t i = 0; i < STORAGES; i++)
            ck_assert(extent(i)->missing == (i == k));
    }
}
END_TEST

START_TEST(data_pkl_without_its_descriptor)
{
    make_archive(NEW_TORCH);
    must_salvage(&file);
    ck_assert(!is_unconfirmed(""));
    memset(file.data + record_named("data.pkl")->end - 16, 0, 16);
    must_salvage(&file);
    ck_assert(is_unconfirmed("data.pkl"));
}
END_TEST

/* A storage, its descriptor and the first byte of the next header are gone: what lies there now is as long as they were. */
START_TEST(bytes_taken_out)
{
    static const int64_t numel[] = {12, 0, 2};
    file.size = directory.size = record_count = 0;
    pickle.size = 0;
    PUT(&pickle, "\x80\2}(");
    for (int i = 0; i < 3; i++) {
        const char key[] = {(char)('0' + i), 0};
        put_str(&pickle, key);
        put_tensor(&pickle, &(view){"FloatStorage", key, "cpu", numel[i], 0, 1, 1, {numel[i]}, {1}});
    }
    PUT(&pickle, "u.");
    add_aligned("data.pkl", pickle.data, pickle.size, NEW_TORCH);
    add_aligned("data/0", floats, 48, NEW_TORCH);
    add_aligned("data/1", floats, 0, NEW_TORCH);
    add_aligned("data/2", floats, 8, NEW_TORCH);
    must_salvage(&file);
    ck_assert(extent(0)->has_crc && !is_unconfirmed(""));
    const size_t from = storage_record(0)->data + 1;
    memmove(file.data + from, file.data + from + 64, file.size - from - 64);
    file.size -= 64;
    must_salvage(&file);
    ck_assert(extent(0)->missing || is_unconfirmed("data/0"));
    ck_assert(!extent(2)->missing && extent(2)->has_crc);
}
END_TEST

/* Where the length of the extra field is not what it was, the descriptor still says where the data lies. */
START_TEST(damaged_lengths)
{
    make_archive(NEW_TORCH);
    for (size_t k = 1; k < STORAGES - 1; k++)
        for (int bit = 0; bit < 8; bit++) {
            unsigned char *length = file.data + storage_record(k)->header + 28;
            *length ^= (unsigned char)(1 << bit);
            must_salvage(&file);
            for (size_t i = 0; i < STORAGES; i++)
                check_storage(i, true);
            ck_assert(extent(k)->has_crc && extent(k)->offset == storage_record(k)->data);
            *length ^= (unsigned char)(1 << bit);
        }
}
END_TEST

/* A payload may be an archive of the same name: the sizes that the pickle gives carry the walk over it. */
START_TEST(archives_in_payloads)
{
    static bytes inner;
    make_archive(NEW_TORCH);
    end_archive();
    inner = file;
    file.size = directory.size = record_count = 0;
    pickle.size = 0;
    PUT(&pickle, "\x80\2}(");
    put_str(&pickle, "blob");
    put_tensor(&pickle, &(view){"ByteStorage", "0", "cpu", (int64_t)inner.size, 0, 1, 1, {(int64_t)inner.size}, {1}});
    put_str(&pickle, "after");
    put_tensor(&pickle, &(view){"FloatStorage", "1", "cpu", 6, 0, 1, 1, {6}, {1}});
    PUT(&pickle, "u.");
    add_aligned("data.pkl", pickle.data, pickle.size, NEW_TORCH);
    add_aligned("data/0", inner.data, inner.size, NEW_TORCH);
    add_aligned("data/1", floats, 24, NEW_TORCH);
    must_salvage(&file);
    ck_assert_uint_eq(x->storage_count, 2);
    for (size_t i = 0; i < 2; i++) {
        ck_assert(!extent(i)->missing && extent(i)->has_crc);
        ck_assert_uint_eq(extent(i)->offset, storage_record(i)->data);
        ck_assert_uint_eq(extent(i)->size, storage_record(i)->size);
    }
}
END_TEST

/* libtorch puts data.pkl behind the storages: their sizes are then told by their descriptors alone. */
START_TEST(data_pkl_behind_its_storages)
{
    file.size = directory.size = record_count = 0;
    make_pickle();
    for (int i = 0; i < STORAGES; i++) {
        char name[32];
        snprintf(name, sizeof name, "data/%d", i);
        add_aligned(name, floats + i, (size_t)i * 12, NEW_TORCH);
    }
    ck_assert_int_eq(read_bytes(file.data, file.size, true), CKPT_E_DAMAGED);
    ck_assert(strstr(err.message, "is not there") != NULL);
    add_aligned("data.pkl", pickle.data, pickle.size, NEW_TORCH);
    add_aligned("version", "3\n", 2, NEW_TORCH);
    must_salvage(&file);
    for (size_t i = 0; i < STORAGES; i++)
        check_storage(i, true);
}
END_TEST

/* The directory is whole, and what it lists is not all. */
START_TEST(records_missing_from_a_whole_archive)
{
    make_archive(OLD_TORCH);
    file.size = directory.size = record_count = 0;
    add_aligned("data.pkl", pickle.data, pickle.size, OLD_TORCH);
    for (int i = 0; i < STORAGES; i++) {
        char name[32];
        snprintf(name, sizeof name, "data/%d", i);
        if (i != 4)
            add_aligned(name, floats + i, (size_t)i * 12 - (i == 7 ? 4 : 0), OLD_TORCH);
    }
    add_aligned("version", "3\n", 2, OLD_TORCH);
    end_archive();
    ck_assert_int_eq(read_bytes(file.data, file.size, false), CKPT_E_DAMAGED);
    must_salvage(&file);
    ck_assert(has_finding("salvaged"));
    for (size_t i = 0; i < STORAGES; i++)
        ck_assert(extent(i)->missing == (i == 4 || i == 7));
}
END_TEST

/* Nothing says which of two is wanted. Behind other bytes an archive is no checkpoint, and is named. */
START_TEST(archives_behind_others)
{
    static bytes both;
    make_archive(NEW_TORCH);
    end_archive();
    both = file;
    put(&both, file.data, file.size);
    ck_assert_int_eq(read_bytes(both.data, both.size, true), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "two archives in one file") != NULL, "%s", err.message);
    both.size -= file.size + 1;
    put(&both, file.data, file.size);
    must_salvage(&both); /* the first is not whole, so it is what was damaged */
    both.size = 0;
    PUT(&both, "HTTP/1.1 200 OK\r\n\r\n");
    put(&both, file.data, file.size);
    ck_assert_int_eq(read_bytes(both.data, both.size, false), CKPT_E_FORMAT);
    ck_assert_msg(strstr(err.message, "begins at byte 19") && strstr(err.message, "tail -c +20"), "%s", err.message);
}
END_TEST

START_TEST(a_wrong_crc_of_data_pkl)
{
    make_archive(OLD_TORCH);
    const placed *p = record_named("data.pkl");
    end_archive();
    for (size_t at = p->data; at < p->data + p->size; at++)
        if (memcmp(file.data + at, "cuda:0", 6) == 0)
            file.data[at + 5] = '1';
    ck_assert_int_eq(read_bytes(file.data, file.size, false), CKPT_E_DAMAGED);
    must_salvage(&file);
    const ckpt_finding *f = ckpt_report_find(x->findings, "salvaged", NULL);
    ck_assert(f && strstr(f->message, "CRC-32") != NULL && f->severity == CKPT_SEVERITY_ERROR);
    ck_assert(ckpt__str_is(x->storages[1].device, "cuda:1"));
    for (size_t i = 0; i < STORAGES; i++)
        check_storage(i, true);
}
END_TEST

/* ---- the format before 1.6 */

START_TEST(legacy_files)
{
    bytes object = {.size = 0}, cut;
    const old_storage s[] = {
        {"10", 6, floats, 24, false}, {"2", 0, floats, 0, false}, {"31", 9, floats + 7, 36, false}};
    PUT(&object, "\x80\2}(");
    for (int i = 2; i >= 0; i--) {
        put_str(&object, s[i].key);
        begin_tensor(&object);
        put_old_storage(&object, "FloatStorage", s[i].key, "cpu", (int64_t)s[i].numel, (old_view){NULL, 0, 0});
        end_tensor(&object, 0, (int64_t)s[i].numel);
    }
    put_str(&object, "view"); /* elements 2 to 4 of "31" */
    begin_tensor(&object);
    put_old_storage(&object, "FloatStorage", "31", "cpu", 9, (old_view){"32", 2, 3});
    end_tensor(&object, 0, 3);
    PUT(&object, "u.");
    file.size = 0;
    put_legacy(&file, &object, s, 3);
    const size_t data31 = file.size - 36, data10 = data31 - 8 - 8 - 24;
    size_t object_end = 0;
    for (size_t i = 0; i + object.size <= file.size; i++)
        if (memcmp(file.data + i, object.data, object.size) == 0)
            object_end = i + object.size;
    for (size_t n = 40; n < file.size; n++) {
        ckpt_status status = read_bytes(file.data, n, true);
        ck_assert_msg(status == (n >= object_end ? CKPT_OK : CKPT_E_DAMAGED), "cut to %zu: %d %s", n, status,
                      err.message);
        if (status < 0)
            continue;
        ck_assert_uint_eq(x->storage_count, 4);
        const struct {
            const char *key;
            size_t from, size;
        } wanted[] = {{"31", data31, 36}, {"2", 0, 0}, {"10", data10, 24}, {"32", data31 + 8, 12}};
        for (size_t i = 0; i < 4; i++) {
            const ckpt__extent *e = extent_of(wanted[i].key);
            bool whole = n >= wanted[i].from + wanted[i].size;
            ck_assert_uint_eq(e->size, wanted[i].size);
            ck_assert_msg(e->missing == (!whole && wanted[i].size > 0), "cut to %zu, storage %zu", n, i);
            if (!e->missing && e->size)
                ck_assert_uint_eq(e->offset, wanted[i].from);
            ck_assert(e->length <= n && e->offset <= n - e->length);
        }
    }
    cut = file; /* the number of one is wrong: it alone is lost */
    cut.data[data10 - 8] ^= 1;
    must_salvage(&cut);
    ck_assert(extent_of("10")->missing && !extent_of("31")->missing && !extent_of("2")->missing);
    cut = file; /* the list of keys is not a list: told from the end of the file */
    memset(cut.data + object_end, 'x', 6);
    ck_assert_int_lt(read_bytes(cut.data, cut.size, false), 0);
    must_salvage(&cut);
    for (size_t i = 0; i < 4; i++)
        ck_assert(!x->storages[i].extent.missing);
    ck_assert_uint_eq(extent_of("31")->offset, data31);
    cut.data[data10 - 8] ^= 1; /* and nothing is believed where one number is wrong too */
    must_salvage(&cut);
    ck_assert(extent_of("31")->missing && extent_of("10")->missing);
}
END_TEST

/* ---- safetensors */

START_TEST(safetensors_files)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[12,32]},"
                                 "\"c\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[32,32]}}";
    const size_t begin = 8 + sizeof header - 1;
    file.size = 0;
    put_number(&file, sizeof header - 1, 8);
    put(&file, header, sizeof header - 1);
    put(&file, floats, 32);
    for (size_t n = begin; n <= file.size + 3; n++) {
        bytes cut = file;
        while (cut.size < n)
            PUT(&cut, "x");
        cut.size = n;
        ck_assert(n == file.size || read_bytes(cut.data, n, false) == CKPT_E_DAMAGED);
        must_salvage(&cut);
        ck_assert_uint_eq(x->storage_count, 3);
        ck_assert(x->storages[0].extent.missing == (n < begin + 12));
        ck_assert(x->storages[1].extent.missing == (n < begin + 32));
        ck_assert(!x->storages[2].extent.missing);
        ck_assert(has_finding("salvaged") == (n != file.size));
        if (n < begin + 12)
            ck_assert_uint_eq(x->storages[0].extent.length, n - begin);
    }
    for (size_t n = 10; n < begin; n++)
        ck_assert_int_lt(read_bytes(file.data, n, true), 0);
}
END_TEST

/* A file of the native format: its own tensors, and values with bytes in the data. */
START_TEST(native_files)
{
    char name[512];
    const char *top = getenv("srcdir");
    snprintf(name, sizeof name, "%s/tests/data/native/version-1.0.safetensors", top ? top : ".");
    int fd = open(name, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ssize_t got = read(fd, file.data, sizeof file.data);
    close(fd);
    ck_assert_int_gt(got, 100);
    file.size = (size_t)got;
    ck_assert(read_bytes(file.data, file.size, false) == CKPT_OK);
    size_t count = x->storage_count, tensors = x->tensor_count, lost = 0;
    ckpt__extent *all = malloc(count * sizeof *all);
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        all[i] = x->storages[i].extent;
        first = all[i].offset < first ? all[i].offset : first;
    }
    for (size_t n = (size_t)first; n < file.size; n++) {
        ck_assert_int_eq(read_bytes(file.data, n, false), CKPT_E_DAMAGED);
        ck_assert_msg(read_bytes(file.data, n, true) == CKPT_OK, "cut to %zu: %s", n, err.message);
        ck_assert_uint_eq(x->storage_count, count);
        ck_assert_uint_eq(x->tensor_count, tensors);
        ck_assert(has_finding("salvaged") &&
                  (x->root || ckpt_report_find(x->findings, "salvaged", NULL)->severity == CKPT_SEVERITY_ERROR));
        for (size_t i = 0; i < count; i++) {
            ck_assert(x->storages[i].extent.missing == (all[i].size > 0 && all[i].offset + all[i].size > n));
            lost += x->storages[i].extent.missing;
        }
    }
    ck_assert_uint_gt(lost, 0);
    free(all);
}
END_TEST

/* Whatever is changed, what is said to be there is inside of the file. */
START_TEST(random_damage)
{
    uint64_t r = 88172645463325252u;
    size_t read = 0;
    for (int round = 0; round < 2000; round++) {
        if (round % 100 == 0) {
            make_archive((layout)(round / 100 % LAYOUTS));
            end_archive();
        }
        bytes damaged = file;
        for (int k = 0; k < 3; k++) {
            r ^= r << 13, r ^= r >> 7, r ^= r << 17;
            damaged.data[r % damaged.size] ^= (unsigned char)(1u << (r >> 32) % 8);
        }
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        if (round % 2)
            damaged.size = r % damaged.size + 1;
        if (read_bytes(damaged.data, damaged.size, true) < 0) {
            ck_assert(err.message[0] != '\0');
            continue;
        }
        read++;
        for (size_t i = 0; i < x->storage_count; i++) {
            const ckpt__extent *e = &x->storages[i].extent;
            ck_assert(e->length <= damaged.size && e->offset <= damaged.size - e->length);
            ck_assert(e->missing || e->length == e->size);
        }
    }
    ck_assert_uint_gt(read, 500);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("salvage");
    TCase *t = tcase_create("formats");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 300);
    tcase_add_test(t, archives_cut_everywhere);
    tcase_add_test(t, damaged_directories);
    tcase_add_loop_test(t, damaged_headers_and_descriptors, 0, 2);
    tcase_add_test(t, data_pkl_without_its_descriptor);
    tcase_add_test(t, bytes_taken_out);
    tcase_add_test(t, archives_in_payloads);
    tcase_add_test(t, damaged_lengths);
    tcase_add_test(t, data_pkl_behind_its_storages);
    tcase_add_test(t, records_missing_from_a_whole_archive);
    tcase_add_test(t, archives_behind_others);
    tcase_add_test(t, a_wrong_crc_of_data_pkl);
    tcase_add_test(t, legacy_files);
    tcase_add_test(t, safetensors_files);
    tcase_add_test(t, native_files);
    tcase_add_test(t, random_damage);
    suite_add_tcase(s, t);
    return run_suite(s);
}
