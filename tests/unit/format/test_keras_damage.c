/* Damage in files of Keras, and who sees it: the CRC of an archive's member, compared before any of the tensors in it is used, and the
 * Adler-32 of deflated chunks; and a length that would take all memory. */
#include <ckpt/naming.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "engine/checked.h"
#include "reader/reader.h"
#include "../migrate_setup.h"

static const char *data_file(const char *name)
{
    static char path[1200];
    const char *srcdir = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/data/keras/%s", srcdir ? srcdir : ".", name);
    return path;
}

#ifndef HAVE_HDF5

START_TEST(names_what_is_missing)
{
    ckpt_reader *r = NULL;
    ck_assert_int_eq(ckpt_reader_open(data_file("small.keras"), NULL, &r, &err), CKPT_E_UNSUPPORTED);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("keras_damage");
    TCase *t = tcase_create("without libhdf5");
    tcase_add_test(t, names_what_is_missing);
    suite_add_tcase(s, t);
    return run_suite(s);
}

#else

static uint64_t pread_bytes; /* atomic */

/* The library's reads, counted. */
ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
    ssize_t got = syscall(SYS_pread64, fd, to, n, offset);
    if (got > 0)
        __atomic_add_fetch(&pread_bytes, (uint64_t)got, __ATOMIC_RELAXED);
    return got;
}

static unsigned char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f && fseek(f, 0, SEEK_END) == 0, "%s", path);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*n + 1);
    ck_assert(data && fread(data, 1, *n, f) == *n && fclose(f) == 0);
    return data;
}

static void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* ---- the archive's CRC */

/* A copy of small.keras, of which one bit of layers/dense/vars/0 is another one. */
static void put_archive(bool sound)
{
    size_t n, i;
    unsigned char *all = slurp(data_file("small.keras"), &n);
    ckpt_reader *r = opened(data_file("small.keras"));
    ck_assert_int_eq(ckpt_reader_find(r, "layers/dense/vars/0", 19, &i, &err), CKPT_OK);
    all[r->index->storages[r->index->tensors[i].storage].extent.offset + 5] ^= sound ? 0 : 4;
    ckpt_reader_close(r);
    put_file(at("a.keras"), all, n);
    free(all);
}

static void check_error(ckpt_status status, bool sound, const char *what)
{
    ck_assert_msg(status == (sound ? CKPT_OK : CKPT_E_DAMAGED), "%s: %d: %s", what, (int)status, err.message);
    ck_assert_msg(sound || strstr(err.message, "it lies in model.weights.h5, whose bytes have the CRC-32"), "%s: %s",
                  what, err.message);
}

/* The tensors read one by one cost one more reading of the member, and those of a damaged one too. */
START_TEST(read_by_the_reader)
{
    for (int sound = 0; sound <= 1; sound++) {
        put_archive(sound);
        ckpt_reader *r = opened(at("a.keras"));
        uint64_t before = pread_bytes, payload = 0;
        ck_assert_uint_eq(r->index->span_count, 1);
        for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++) {
            const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
            uint32_t crc;
            void *data = malloc((size_t)t->nbytes + 1);
            check_error(ckpt_reader_read(r, i, data, (size_t)t->nbytes, &err), sound, t->name.data);
            ck_assert_str_eq(sound ? t->name.data : err.object, t->name.data);
            check_error(ckpt_reader_crc32(r, i, &crc, &err), sound, t->name.data);
            payload += sound ? 2 * t->nbytes : 0;
            free(data);
        }
        ck_assert_uint_eq(pread_bytes - before, payload + r->index->spans[0].extent.size);
        ckpt_reader_close(r);
    }
}
END_TEST

START_TEST(migrated)
{
    static const char *const to[] = {"torch", "ckpt", "safetensors"};
    for (int i = 0; i < 36; i++) {
        bool sound = i % 2;
        ckpt_migrate_options o = {.no_sync = true, .lossy = true, .to = to[i / 2 % 3], .verify = i / 6 % 2};
        o.threads = (size_t[]){1, 2, 8}[i / 12];
        put_archive(sound);
        check_error(ckpt_migrate(at("a.keras"), at("out"), &o, report, &err), sound, o.to);
        ck_assert_int_eq(access(at("out"), F_OK) == 0, sound);
        remove(at("out"));
    }
}
END_TEST

/* All tensors that a state has a name for. */
static ckpt_state *make_state(const ckpt_reader *r, const ckpt_naming *naming, unsigned char *place, size_t room)
{
    ckpt_state *state = ckpt_state_new();
    size_t used = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        const ckpt_canonical as = *ckpt_naming_get(naming, i);
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = as.name.data;
        d.param = as.param.data;
        d.state_key = as.state_key.data;
        d.role = as.role == CKPT_ROLE_NONE ? CKPT_ROLE_PARAM : as.role;
        d.dtype = t->dtype;
        d.ndim = t->ndim;
        d.shape = t->shape;
        d.data = place + used;
        used += ((size_t)t->nbytes + 63) / 64 * 64;
        ck_assert_uint_le(used, room);
        if (as.name.data)
            ck_assert_msg(ckpt_state_tensor(state, &d, &err) == CKPT_OK, "%s: %s", d.name, err.message);
    }
    return state;
}

/* With 1 to 8 threads the same, and read as often; what is not to be verified is not read for it. */
START_TEST(restored)
{
    enum { ROOM = 64 << 10 };
    static unsigned char place[ROOM];
    for (int sound = 0; sound <= 1; sound++) {
        uint64_t taken[9] = {0}, span = 0;
        put_archive(sound);
        for (size_t threads = 0; threads <= 8; threads++) {
            ckpt_naming *naming = NULL;
            ckpt_reader *r = opened(at("a.keras"));
            ck_assert_int_ge(ckpt_naming_new(r, NULL, &naming, NULL, &err), 0);
            memset(place, 0xA5, sizeof place);
            ckpt_state *state = make_state(r, naming, place, sizeof place);
            ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
            o.threads = threads ? threads : 1;
            o.no_verify = threads == 0;
            uint64_t before = pread_bytes;
            ckpt_status status = ckpt_restore(state, at("a.keras"), &o, report, &err);
            taken[threads] = pread_bytes - before;
            if (threads)
                check_error(status, sound, "restore");
            else
                ck_assert_msg(status == CKPT_OK, "%s", err.message);
            for (size_t i = 0; threads && !sound && i < sizeof place; i++)
                ck_assert_int_eq(place[i], 0xA5);
            span = r->index->spans[0].extent.size;
            ckpt_state_free(state);
            ckpt_naming_free(naming);
            ckpt_reader_close(r);
        }
        for (size_t threads = 1; threads <= 8; threads++)
            ck_assert_uint_eq(taken[threads], taken[1]);
        if (sound)
            ck_assert_uint_eq(taken[1], taken[0] + span);
    }
}
END_TEST

/* What lies in the member counts as covered: in the file, and in memory where the member is deflated. */
START_TEST(covered)
{
    static const char *const names[] = {"small.keras", "deflated.keras"};
    for (size_t i = 0; i < 2; i++) {
        ckpt_doctor_options o = CKPT_DOCTOR_OPTIONS_INIT;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
        o.read_values = true;
        ckpt_reader *r = opened(data_file(names[i]));
        ckpt_status status = ckpt_doctor(r, &o, &result, report, &err);
        ck_assert_msg(status >= 0, "%s: %s", names[i], err.message);
        ck_assert_uint_gt(result.read_bytes, 0);
        ck_assert_uint_eq(result.checked_bytes, result.read_bytes);
        ckpt_doctor_result_clear(&result);
        ckpt_reader_close(r);
        ck_assert_int_eq(ckpt_verify(data_file(names[i]), NULL, &verified, report, &err), CKPT_OK);
        ck_assert_int_eq(verified.integrity, CKPT_INTEGRITY_CRC32);
        ck_assert_uint_eq(verified.unprotected_bytes, 0);
    }
}
END_TEST

/* The weights of small.keras, and a member that is no state, stored or deflated. */
static void put_vocabulary(bool deflated, bool sound)
{
    static const char words[] = "a vocabulary of a vocabulary";
    static archive a;
    size_t n;
    unsigned char *all = slurp(data_file("small.keras"), &n);
    ckpt_reader *r = opened(data_file("small.keras"));
    const ckpt__extent *e = &r->index->spans[0].extent;
    memset(&a, 0, sizeof a);
    add_record(&a,
               &(record){.name = "model.weights.h5", .data = all + e->offset, .size = (size_t)e->size, .flags = 0x800});
    add_record(&a, &(record){.name = "assets/text/vocabulary.txt",
                             .data = words,
                             .size = sizeof words - 1,
                             .flags = 0x800,
                             .deflate = deflated,
                             .wrong_crc = !sound});
    put_end(&a, a.count, "");
    write_to(at("b.keras"), a.file.data, a.file.size);
    ckpt_reader_close(r);
    free(all);
}

/* Its damage is a finding of a verification, and of no matter to the tensors. */
START_TEST(other_members)
{
    for (int i = 0; i < 4; i++) {
        bool sound = i % 2;
        ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
        uint32_t crc;
        put_vocabulary(i / 2, sound);
        ckpt_report_clear(report);
        ckpt_status status = ckpt_verify(at("b.keras"), NULL, &result, report, &err);
        ck_assert_msg(status == (sound ? CKPT_OK : CKPT_ANSWER_NO), "%d: %d: %s", i, (int)status, err.message);
        ck_assert_int_eq(result.integrity, CKPT_INTEGRITY_CRC32);
        ck_assert_uint_eq(ckpt_report_count_code(report, "crc-mismatch"), !sound);
        for (size_t k = 0; k < ckpt_report_count(report); k++)
            ck_assert_msg(strstr(ckpt_report_get(report, k)->message, "no tensor lies there"), "%s",
                          ckpt_report_get(report, k)->message);
        ckpt_reader *r = opened(at("b.keras"));
        ck_assert_uint_eq(r->index->span_count, 2);
        for (size_t k = 0; k < ckpt_reader_tensor_count(r); k++)
            ck_assert_msg(ckpt_reader_crc32(r, k, &crc, &err) == CKPT_OK, "%s", err.message);
        ckpt_reader_close(r);
    }
}
END_TEST

/* ---- the Adler-32 of deflated chunks */

/* The tensor's bytes, of a copy of coded.h5 that is at "a.h5". */
static ckpt_status read_coded(const char *name, void *to, size_t *n)
{
    ckpt_reader *r = opened(at("a.h5"));
    size_t i;
    ck_assert_int_eq(ckpt_reader_find(r, name, strlen(name), &i, &err), CKPT_OK);
    *n = (size_t)ckpt_reader_tensor(r, i)->nbytes;
    ckpt_status status = ckpt_reader_read(r, i, to, *n, &err);
    ckpt_reader_close(r);
    return status;
}

/* One bit of each byte of a chunk: what is read is right or nothing. Only bits that deflate does not use change nothing. */
static void flip_chunk(unsigned char *all, size_t n, const ckpt__extent *e, const char *name, size_t counts[2])
{
    unsigned char right[1000], is[1000];
    size_t size, other;
    put_file(at("a.h5"), all, n);
    ck_assert_int_eq(read_coded(name, right, &size), CKPT_OK);
    for (uint64_t k = 0; k < e->length; k++) {
        all[e->offset + k] ^= 4;
        put_file(at("a.h5"), all, n);
        ckpt_status status = read_coded(name, is, &other);
        ck_assert_msg(status == CKPT_E_DAMAGED || (status == CKPT_OK && memcmp(is, right, size) == 0),
                      "%s, byte %llu: %d: %s", name, (unsigned long long)(e->offset + k), (int)status, err.message);
        counts[status == CKPT_OK]++;
        ckpt_migrate_options o = {.no_sync = true, .lossy = true, .to = "torch", .verify = k % 2, .threads = k % 3};
        if (k % 5 == 0)
            ck_assert_int_eq(ckpt_migrate(at("a.h5"), at("out"), &o, report, &err), status);
        remove(at("out"));
        all[e->offset + k] ^= 4;
    }
}

START_TEST(deflated_chunks)
{
    static const char *const names[] = {"gzip", "big_chunks"};
    size_t n, counts[2] = {0};
    unsigned char *all = slurp(data_file("coded.h5"), &n);
    for (size_t i = 0; i < 2; i++) {
        ckpt_reader *r = opened(data_file("coded.h5"));
        size_t tensor;
        ck_assert_int_eq(ckpt_reader_find(r, names[i], strlen(names[i]), &tensor, &err), CKPT_OK);
        const ckpt__tensor *t = &r->index->tensors[tensor];
        ck_assert_uint_gt(ckpt__view_count(t), 3);
        for (size_t k = 0; k < ckpt__view_count(t); k += 3) {
            const ckpt__extent *e = &r->index->storages[ckpt__view_of(r->index, t, k).storage].extent;
            ck_assert_int_eq(e->coding, CKPT__ZLIB);
            flip_chunk(all, n, e, names[i], counts);
        }
        ckpt_reader_close(r);
    }
    free(all);
    ck_assert_uint_gt(counts[0], 20 * counts[1]);
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report_clear(report);
    ck_assert_int_eq(ckpt_verify(data_file("coded.h5"), NULL, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(result.integrity, CKPT_INTEGRITY_PARTIAL);
    ck_assert_uint_eq(ckpt_report_count_code(report, "no-integrity-data"), 0);
}
END_TEST

/* Part of a large chunk is read only where all of it is right. */
START_TEST(part_of_a_deflated_chunk)
{
    size_t n;
    unsigned char *all = slurp(data_file("coded.h5"), &n);
    ckpt_reader *r = opened(data_file("coded.h5"));
    size_t tensor;
    ck_assert_int_eq(ckpt_reader_find(r, "gzip", 4, &tensor, &err), CKPT_OK);
    size_t storage = ckpt__view_of(r->index, &r->index->tensors[tensor], 0).storage;
    const ckpt__extent *e = &r->index->storages[storage].extent;
    for (int sound = 1; sound >= 0; sound--) {
        all[e->offset + e->length - 1] ^= sound ? 0 : 1;
        put_file(at("a.h5"), all, n);
        ckpt_reader *copy = opened(at("a.h5"));
        for (int twice = 0; twice < 2; twice++) {
            ckpt_status status = ckpt__check_storage(copy->source, copy->index, storage, 4, "gzip", &err);
            ck_assert_msg(status == (sound ? CKPT_OK : CKPT_E_DAMAGED), "%d: %s", (int)status, err.message);
            ck_assert_int_eq(ckpt__is_sound(&copy->index->storages[storage].extent), sound);
        }
        ckpt_reader_close(copy);
    }
    ckpt_reader_close(r);
    free(all);
}
END_TEST

/* ---- memory */

/* A text of 13 letters whose reference says 1.5 GiB, for which libhdf5 asks twice. Where the sanitizers are there is no such limit. */
START_TEST(a_length_that_is_not_there)
{
    struct rusage used;
    ckpt_reader *r = NULL;
    ckpt_status status = ckpt_reader_open(data_file("bad-length.h5"), NULL, &r, &err);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_msg(status == CKPT_E_LIMIT, "%d: %s", (int)status, err.message);
    ck_assert_msg(strstr(err.message, "libhdf5 asks for more than the") && strstr(err.message, "@name"), "%s",
                  err.message);
    ck_assert_int_eq(getrusage(RUSAGE_CHILDREN, &used), 0);
    ck_assert_int_lt(used.ru_maxrss, 64 << 10);
#endif
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &used), 0);
    ck_assert_int_ne(status, CKPT_E_SYSTEM);
    ckpt_reader_close(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("keras_damage");
    TCase *t = tcase_create("keras_damage");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, read_by_the_reader);
    tcase_add_test(t, migrated);
    tcase_add_test(t, restored);
    tcase_add_test(t, covered);
    tcase_add_test(t, other_members);
    tcase_add_test(t, deflated_chunks);
    tcase_add_test(t, part_of_a_deflated_chunk);
    tcase_add_test(t, a_length_that_is_not_there);
    suite_add_tcase(s, t);
    return run_suite(s);
}
#endif
