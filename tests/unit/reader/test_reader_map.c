/* test_reader_map.c - a tensor's bytes where they lie, and why they cannot be had so. */
#include <ckpt/ckpt.h>

#include "codec/crc32.h"
#include "reader/reader.h"
#include "../runner.h"
#include "../scratch.h"

static ckpt_error err;

static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                             "\"b\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[24,29]},"
                             "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[29,29]}}   ";
static const unsigned char payload[29] = {0, 0, 128, 63, 0,  0,  0,  64, 1,  2,   3,   4,   5,   6,  7,
                                          8, 9, 10,  11, 12, 13, 14, 15, 16, 'h', 'e', 'l', 'l', 'o'};

static ckpt_reader *open_one(void)
{
    ckpt_reader *reader = NULL;
    uint64_t n = sizeof header - 1;
    FILE *f = fopen("one.safetensors", "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(&n, 1, 8, f) + fwrite(header, 1, n, f) + fwrite(payload, 1, sizeof payload, f),
                      8 + n + sizeof payload);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_msg(ckpt_reader_open("one.safetensors", NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    return reader;
}

static size_t number(const ckpt_reader *reader, const char *name)
{
    size_t i = SIZE_MAX;
    ck_assert_int_eq(ckpt_reader_find(reader, name, strlen(name), &i, &err), CKPT_OK);
    return i;
}

START_TEST(where_they_lie)
{
    ckpt_reader *reader = open_one();
    const void *a, *b, *again;
    size_t n;
    ck_assert_int_eq(ckpt_reader_map(reader, number(reader, "a"), &a, &n, &err), CKPT_OK);
    ck_assert_uint_eq(n, 24);
    ck_assert(memcmp(a, payload, 24) == 0);
    ck_assert_int_eq(ckpt_reader_map(reader, number(reader, "b"), &b, &n, &err), CKPT_OK);
    ck_assert_uint_eq(n, 5);
    ck_assert(memcmp(b, "hello", 5) == 0);
    ck_assert_ptr_eq(b, (const char *)a + 24); /* one mapping for the file */
    ck_assert_int_eq(ckpt_reader_map(reader, number(reader, "a"), &again, &n, &err), CKPT_OK);
    ck_assert_ptr_eq(a, again);
    ck_assert_int_eq(ckpt_reader_map(reader, number(reader, "empty"), &again, &n, &err), CKPT_OK);
    ck_assert_ptr_null(again);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(ckpt_reader_map(reader, 3, &a, &n, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_reader_map(reader, 0, NULL, &n, &err), CKPT_E_ARGUMENT);
    /* The file is replaced, as this library does it: what was mapped stays. */
    put("other", "something else");
    ck_assert_int_eq(rename("other", "one.safetensors"), 0);
    ck_assert(memcmp(b, "hello", 5) == 0);
    ckpt_reader_close(reader);
}
END_TEST

/* The file is not written through, and what another writes into it is seen: it is the file. */
START_TEST(it_is_the_file)
{
    ckpt_reader *reader = open_one();
    const void *b;
    size_t n;
    ck_assert_int_eq(ckpt_reader_map(reader, number(reader, "b"), &b, &n, &err), CKPT_OK);
    FILE *f = fopen("one.safetensors", "r+");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, -5, SEEK_END), 0);
    ck_assert_uint_eq(fwrite("world", 1, 5, f), 5);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert(memcmp(b, "world", 5) == 0);
    ckpt_reader_close(reader);
}
END_TEST

/* Every reason, and what is said of it. */
START_TEST(obstacles)
{
    static const struct {
        const char *what, *said;
    } cases[] = {{"transposed", "one after the other; read it"},
                 {"coded", "compressed; read it"},
                 {"big", "big-endian; read it"},
                 {"conj", "conjugated view; read it"},
                 {"neg", "negated view; read it"},
                 {"layout", "not dense; map its parts"},
                 {"pieces", "several pieces; read it"},
                 {"meta", "no data (a meta tensor); there is nothing to read either"},
                 {"short", "ends before"},
                 {"missing", "ends before"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_reader *reader = open_one();
        size_t a = number(reader, "a"), n;
        ckpt__tensor *t = &reader->index->tensors[a];
        ckpt__extent *e = &reader->index->storages[t->storage].extent;
        static const int64_t turned[2] = {1, 2};
        const void *data = &n;
        const char *what = cases[i].what;
        if (strcmp(what, "transposed") == 0)
            t->info.strides = turned;
        else if (strcmp(what, "coded") == 0)
            e->coding = CKPT__DEFLATE;
        else if (strcmp(what, "big") == 0) {
            e->big_endian = true;
            reader->index->storages[t->storage].unit = 4;
        } else if (strcmp(what, "conj") == 0)
            t->info.conj = true;
        else if (strcmp(what, "neg") == 0)
            t->info.neg = true;
        else if (strcmp(what, "layout") == 0) {
            static const ckpt_tensor_info part = {.name = {"a.values", 8}}, *const parts[] = {&part};
            static const ckpt_tensor_extra sparse = {.layout = {"sparse_coo", 10}, .parts = parts, .part_count = 1};
            t->info.extra = &sparse;
            t->whole = false;
            ck_assert_int_eq(ckpt_reader_read(reader, a, (float[6]){0}, 24, &err), CKPT_E_UNSUPPORTED);
            ck_assert_ptr_nonnull(strstr(err.message, "as its parts are: read those"));
        } else if (strcmp(what, "pieces") == 0)
            t->whole = !(t->piece_count = 2);
        else if (strcmp(what, "meta") == 0)
            t->whole = false;
        else if (strcmp(what, "short") == 0)
            e->offset += 100;
        else {
            e->missing = true;
            e->length = 23;
        }
        ckpt_status status = ckpt_reader_map(reader, a, &data, &n, &err);
        ck_assert_int_eq(status, i < 8 ? CKPT_E_UNSUPPORTED : CKPT_E_DAMAGED);
        ck_assert_msg(strstr(err.message, cases[i].said) != NULL, "%s: %s", what, err.message);
        ck_assert_str_eq(err.object, "a");
        ck_assert_ptr_null(data);
        ckpt_reader_close(reader);
    }
}
END_TEST

/* Bytes inside a pickle are in memory already. */
START_TEST(in_memory)
{
    ckpt_reader *reader = open_one();
    static const char bytes[24] = "bytes inside a pickle...";
    size_t a = number(reader, "a"), n;
    const void *data;
    reader->index->storages[reader->index->tensors[a].storage].extent.memory = bytes;
    ck_assert_int_eq(ckpt_reader_map(reader, a, &data, &n, &err), CKPT_OK);
    ck_assert_ptr_eq(data, bytes);
    ckpt_reader_close(reader);
}
END_TEST

/* The values of a view that is conjugated are read, and so is their CRC. */
START_TEST(resolved)
{
    ckpt_reader *reader = open_one();
    size_t a = number(reader, "a");
    uint32_t crc;
    float stored[6], want[6], got[6];
    memcpy(stored, payload, sizeof stored);
    ckpt_tensor_info *t = &reader->index->tensors[a].info;
    t->neg = true;
    for (int i = 0; i < 6; i++)
        want[i] = -stored[i];
    ck_assert_int_eq(ckpt_reader_read(reader, a, got, sizeof got, &err), CKPT_OK);
    ck_assert(memcmp(got, want, sizeof got) == 0);
    ck_assert_int_eq(ckpt_reader_crc32(reader, a, &crc, &err), CKPT_OK);
    ck_assert_uint_eq(crc, ckpt__crc32(0, want, sizeof want));
    ck_assert_int_eq(ckpt_reader_read_to(reader, a, ckpt_cpu(), NULL, got, sizeof got, &err), CKPT_OK);
    ck_assert(memcmp(got, want, sizeof got) == 0);
    ck_assert_int_eq(ckpt_reader_read(reader, a, got, 23, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_reader_read_to(reader, a, ckpt_cpu(), NULL, got, 25, &err), CKPT_E_ARGUMENT);
    ckpt_reader_close(reader);
}
END_TEST

static void refused(ckpt_status status, const char *said)
{
    ck_assert_int_eq(status, CKPT_E_ARGUMENT);
    ck_assert_msg(strstr(err.message, said) != NULL, "'%s' is not in: %s", said, err.message);
}

/* What a program may give by mistake is answered, and not followed. */
START_TEST(arguments)
{
    ckpt_reader *reader = open_one(), *none = reader;
    size_t a = number(reader, "a"), n;
    const void *data;
    char buffer[24];
    uint32_t crc;
    refused(ckpt_reader_read(reader, a, NULL, 24, &err), "no buffer was given for its 24 bytes");
    refused(ckpt_reader_read_to(reader, a, ckpt_cpu(), NULL, NULL, 24, &err), "no buffer was given");
    refused(ckpt_reader_read(reader, a, buffer, 12, &err),
            "a buffer of 12 bytes was given for its 24; give one of just that size");
    refused(ckpt_reader_read(reader, 3, buffer, 12, &err), "there is no tensor of number 3: it has 3, counted from 0");
    refused(ckpt_reader_crc32(reader, a, NULL, &err), "no place for the checksum");
    refused(ckpt_reader_find(reader, NULL, 1, &n, &err), "a NULL name");
    ck_assert_int_eq(ckpt_reader_find(reader, "a", 1, NULL, &err), CKPT_OK);
    refused(ckpt_reader_read(NULL, 0, buffer, 24, &err), "no reader was given");
    refused(ckpt_reader_read_to(NULL, 0, ckpt_cuda(0), NULL, buffer, 24, &err), "no reader was given");
    refused(ckpt_reader_map(NULL, 0, &data, &n, &err), "no reader was given");
    refused(ckpt_reader_map(NULL, 0, NULL, &n, &err), "no place for the address");
    refused(ckpt_reader_crc32(NULL, 0, &crc, &err), "no reader was given");
    refused(ckpt_reader_find(NULL, "a", 1, &n, &err), "a NULL reader");
    ck_assert(!ckpt_reader_tensor_count(NULL) && !ckpt_reader_tensor(NULL, 0) && !ckpt_reader_root(NULL) &&
              !ckpt_reader_findings(NULL) && !ckpt_reader_format(NULL) && !ckpt_reader_path(NULL) &&
              !ckpt_reader_file_size(NULL));
    ckpt_reader_close(reader);
    const char *also[] = {"other", NULL};
    ckpt_reader_options o = {.also = also, .also_count = 2};
    put("other", "a file");
    refused(ckpt_reader_open("one.safetensors", &o, &none, &err), "also[1] of 2 is NULL");
    ck_assert_ptr_null(none);
    o.also = NULL;
    refused(ckpt_reader_open("one.safetensors", &o, &none, &err), "also_count is 2, and also is NULL");
    struct {
        ckpt_reader_options o;
        uint64_t more[2];
    } newer = {.o = CKPT_READER_OPTIONS_INIT}; /* of a later header */
    newer.o.struct_size = sizeof newer;
    ck_assert_int_eq(ckpt_reader_open("one.safetensors", &newer.o, &reader, &err), CKPT_OK);
    ckpt_reader_close(reader);
    newer.more[1] = 1;
    refused(ckpt_reader_open("one.safetensors", &newer.o, &none, &err), "built against a newer libckpt");
    ck_assert_str_eq(err.object, "ckpt_reader_options");
    newer.o.struct_size = 0; /* the first release's, whatever follows */
    ck_assert_int_eq(ckpt_reader_open("one.safetensors", &newer.o, &reader, &err), CKPT_OK);
    ckpt_reader_close(reader);
    newer.o.struct_size = offsetof(ckpt_reader_options, also);
    refused(ckpt_reader_open("one.safetensors", &newer.o, &none, &err), "no release has a struct of less than");
    newer.o.struct_size = UINT32_MAX; /* nothing is read by it */
    refused(ckpt_reader_open("one.safetensors", &newer.o, &none, &err), "it was never set");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reader_map");
    TCase *c = tcase_create("reader_map");
    tcase_add_checked_fixture(c, make_scratch, remove_scratch);
    tcase_add_test(c, where_they_lie);
    tcase_add_test(c, it_is_the_file);
    tcase_add_test(c, obstacles);
    tcase_add_test(c, in_memory);
    tcase_add_test(c, resolved);
    tcase_add_test(c, arguments);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
