/* test_laundering_files.c - a changed byte in checkpoints of real programs, in directories and in parts of tensors; and how
 * often a storage is read for it. */
#include <sys/syscall.h>
#include <sys/wait.h>
#include "engine/checked.h"
#include "examine/verify.h"
#include "engine/push.h"
#include "laundering_files.h"

static uint64_t preads, pread_bytes;

/* The library's reads, counted. */
ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
    ssize_t got = syscall(SYS_pread64, fd, to, n, offset);
    preads++;
    if (got > 0)
        pread_bytes += (uint64_t)got;
    return got;
}

static const char *peers(const char *name)
{
    static char path[1200];
    const char *srcdir = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/data/peers/%s", srcdir ? srcdir : ".", name);
    return path;
}

static void run(const char *format, const char *a, const char *b) CKPT__PRINTF(1, 0);
static void run(const char *format, const char *a, const char *b)
{
    char command[4000];
    snprintf(command, sizeof command, format, a, b);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static void flip_at(const char *path, const char *file, uint64_t offset)
{
    char full[800];
    unsigned char byte;
    snprintf(full, sizeof full, *file ? "%s/%s" : "%s", path, file);
    FILE *f = fopen(full, "r+b");
    ck_assert_msg(f && fseek(f, (long)offset, SEEK_SET) == 0 && fread(&byte, 1, 1, f) == 1, "%s", full);
    byte ^= 4;
    ck_assert(fseek(f, (long)offset, SEEK_SET) == 0 && fwrite(&byte, 1, 1, f) == 1 && fclose(f) == 0);
}

static bool sees(const ckpt__index *x, size_t tensor, size_t storage)
{
    const ckpt__tensor *t = &x->tensors[tensor];
    return t->whole && t->storage == storage && t->info.nbytes > 0;
}

/* Each tensor that looks at the storage is damaged, and no other. */
static void read_all(const char *path, size_t storage, size_t *damaged)
{
    ckpt_reader *reader = opened(path);
    const ckpt__index *x = reader->index;
    for (size_t i = 0; i < x->tensor_count; i++) {
        const ckpt_tensor_info *t = &x->tensors[i].info;
        if (!x->tensors[i].whole || t->nbytes == 0)
            continue;
        void *data = malloc((size_t)t->nbytes);
        ck_assert_ptr_nonnull(data);
        ckpt_status status = ckpt_reader_read(reader, i, data, (size_t)t->nbytes, &err);
        ck_assert_msg(status == (sees(x, i, storage) ? CKPT_E_DAMAGED : CKPT_OK), "%s: storage %zu: %s: %d", path,
                      storage, t->name.data, (int)status);
        *damaged += status == CKPT_E_DAMAGED;
        free(data);
    }
    ckpt_reader_close(reader);
}

static const char *const sources[] = {"accelerate",         "bitsandbytes.pt",       "hf-trainer",
                                      "libtorch-module.pt", "libtorch-optimizer.pt", "lightning-callbacks.ckpt",
                                      "lightning.ckpt",     "torch-1.13.pt"};

/* Every storage in turn has one byte changed. libtorch's number of groups is of no use to torch's optimizers: nothing that
 * is written is made of it. */
START_TEST(real_files)
{
    static const char *const targets[] = {"torch", "ckpt", "same"};
    const char *source = peers(sources[_i]);
    char copy[400], dst[400];
    size_t tried = 0, damaged = 0, migrated = 0;
    strcpy(copy, at("copy"));
    strcpy(dst, at("out"));
    run("cp -r --no-preserve=mode '%s' '%s'", source, copy);
    ckpt_reader *sound = opened(source);
    ckpt_migrate_options o = {.no_sync = true, .lossy = true, .verify = _i % 2};
    bool can[3];
    for (size_t t = 0; t < 3; t++) {
        o.to = targets[t];
        can[t] = ckpt_migrate(source, dst, &o, report, &err) == CKPT_OK;
        migrated += can[t];
        run("rm -rf '%s' '%s.none'", dst, dst);
    }
    ck_assert_msg(migrated > 0, "%s: %s", source, err.message);
    for (size_t s = 0; s < sound->index->storage_count; s++) {
        const ckpt__extent *e = &sound->index->storages[s].extent;
        bool used = false;
        for (size_t i = 0; i < sound->index->tensor_count; i++)
            used |= sees(sound->index, i, s) && !strstr(sound->index->tensors[i].info.name.data, "/size");
        if (!used || !e->has_crc || e->memory || e->length == 0)
            continue;
        if (getenv("CKPT_TEST_FEW") && tried >= 2)
            break;
        const char *file = sound->source->directory ? sound->source->files[e->file].name : "";
        uint64_t where = e->offset + (tried % 3 == 0 ? 0 : tried % 3 == 1 ? e->length / 2 : e->length - 1);
        flip_at(copy, file, where);
        if (e->coding == CKPT__STORED)
            read_all(copy, s, &damaged);
        for (size_t t = 0; t < 3; t++) {
            o.to = targets[t];
            ckpt_status status = can[t] ? ckpt_migrate(copy, dst, &o, report, &err) : CKPT_E_DAMAGED;
            ck_assert_msg(status == CKPT_E_DAMAGED, "%s to %s: storage %zu at %llu of %s: %d: %s", source, targets[t],
                          s, (unsigned long long)where, file, (int)status, err.message);
            ck_assert_msg(access(dst, F_OK) != 0, "%s to %s was written", source, targets[t]);
        }
        flip_at(copy, file, where);
        tried++;
    }
    ckpt_reader_close(sound);
    ck_assert_msg(tried > 0 && damaged >= tried, "%s: %zu storages, %zu tensors", source, tried, damaged);
}
END_TEST

/* ---- directories */

enum { PARTIAL = 2, TRANSPOSED = 1 };

static const flat weights[] = {{"a.weight", 2, {2, 3}}, {"b.weight", 1, {3, 0}}};

/* A model in two .bin shards, the second with a transposed view. */
static void write_shards(flip f)
{
    write_torch_flat(at("dir/pytorch_model-00001-of-00002.bin"), weights, 2, 1);
    write_archive(at("dir/pytorch_model-00002-of-00002.bin"), &kinds[TRANSPOSED], STORED, f);
    write_text(at("dir/pytorch_model.bin.index.json"),
               "{\"metadata\":{\"total_size\":292},\"weight_map\":{\"a.weight\":\"pytorch_model-00001-of-00002.bin\","
               "\"b.weight\":\"pytorch_model-00001-of-00002.bin\",\"w\":\"pytorch_model-00002-of-00002.bin\"}}");
    write_text(at("dir/config.json"), "{\"model_type\":\"gpt2\"}");
}

/* accelerate's: the file that nothing changes in goes along byte for byte. */
static void write_state(flip f)
{
    write_safetensors(at("dir/model.safetensors"), weights, 2, 10);
    write_archive(at("dir/optimizer.bin"), &kinds[TRANSPOSED], STORED, f);
}

START_TEST(directories)
{
    static const char *const to[] = {"same", "safetensors", "hf", "ckpt", "torch"};
    static void (*const writers[])(flip) = {write_shards, write_state};
    char dst[400];
    strcpy(dst, at("out"));
    make_directory("dir");
    for (int w = 0; w < 2; w++) {
        run("rm -rf '%s'/dir/* '%s'", folder, dst);
        for (flip f = SOUND; f <= UNDER; f++)
            for (int i = 0; i < 2 * (w ? 1 : 5); i++) {
                ckpt_migrate_options o = {
                    .no_sync = true, .lossy = true, .verify = i % 2, .to = to[i / 2], .force = true};
                writers[w](f);
                ckpt_status status = ckpt_migrate(at("dir"), dst, &o, report, &err);
                ck_assert_msg(status == (f == SOUND ? CKPT_OK : CKPT_E_DAMAGED), "%d to %s: %d: %s", w, to[i / 2],
                              (int)status, err.message);
                ck_assert_int_eq(access(dst, F_OK) == 0, f == SOUND);
                run("rm -rf '%s' '%s.none'", dst, dst);
            }
    }
}
END_TEST

/* ---- parts of tensors, and tensors within objects */

/* {"w": torch.sparse_coo_tensor(indices, values, ...)} of views of one storage, its values every second number of it; or
 * quantized per channel (what = 1); or a tensor inside of an object whose class is not known (what = 2). */
static void write_odd(const char *path, int what, flip f)
{
    static archive a;
    static bytes p;
    float data[VALUES], was;
    int64_t none[1] = {4};
    memset(&a, 0, sizeof a);
    p.size = 0;
    PUT(&p, "\x80\2}");
    put_str(&p, "w");
    if (what == 0) {
        put_global(&p, "torch._utils", "_rebuild_sparse_tensor");
        put_global(&p, "torch.serialization", "_get_layout");
        PUT(&p, "X\x10\0\0\0torch.sparse_coo\x85R(");
        put_tensor(&p, &(view){"LongStorage", "1", "cpu", 4, 0, 2, 2, {1, 4}, {4, 1}});
        put_tensor(&p, &(view){"FloatStorage", "0", "cpu", VALUES, 0, 1, 1, {4}, {2}});
        put_global(&p, "torch", "Size");
        PUT(&p, "K\7\x85\x85R\x88t\x86R");
    } else if (what == 1) {
        PUT(&p, "ctorch._utils\n_rebuild_qtensor\n(");
        put_storage(&p, "QInt8Storage", "0", "cpu", VALUES * 4);
        put_int(&p, 8);
        put_ints(&p, none, 1);
        put_ints(&p, (int64_t[]){2}, 1);
        PUT(&p, "(ctorch\nper_tensor_affine\nG\x3f\xe0\0\0\0\0\0\0K\0t\211ccollections\nOrderedDict\n)RtR");
    } else {
        PUT(&p, "c__main__\nThing\n)\x81}");
        put_str(&p, "inner");
        put_tensor(&p, &(view){"FloatStorage", "0", "cpu", VALUES, 0, 1, 1, {4}, {2}});
        PUT(&p, "sb");
    }
    PUT(&p, "s.");
    for (size_t i = 0; i < VALUES; i++)
        data[i] = (float)(i + 1);
    was = data[2];
    if (f != SOUND)
        data[2] = 1000;
    int64_t indices[4] = {0, 2, 4, 6};
    add_record(&a, &(record){.name = "archive/data.pkl", .data = p.data, .size = p.size, .flags = 0x808});
    add_record(&a, &(record){.name = "archive/data/0", .data = data, .size = sizeof data, .flags = 0x808});
    if (what == 0)
        add_record(&a, &(record){.name = "archive/data/1", .data = indices, .size = sizeof indices, .flags = 0x808});
    add_record(&a, &(record){.name = "archive/version", .data = "3\n", .size = 2, .flags = 0x808});
    put_end(&a, a.count, "");
    if (f != SOUND) {
        uint32_t now = ckpt__crc32(0, (const void *)data, sizeof data);
        data[2] = was;
        replace_number(&a.file, now, ckpt__crc32(0, (const void *)data, sizeof data));
    }
    write_to(path, a.file.data, a.file.size);
}

START_TEST(parts)
{
    static const char *const to[] = {"torch", "ckpt"};
    for (int what = 0; what < 3; what++)
        for (flip f = SOUND; f <= UNDER; f++) {
            write_odd(at("in"), what, f);
            for (int i = 0; i < 4; i++) {
                ckpt_migrate_options o = {.no_sync = true, .lossy = true, .verify = i % 2, .to = to[i / 2]};
                ckpt_status status = ckpt_migrate(at("in"), at("out"), &o, report, &err);
                ck_assert_msg(status == (f == SOUND ? CKPT_OK : CKPT_E_DAMAGED), "%d to %s: %d: %s", what, to[i / 2],
                              (int)status, err.message);
                ck_assert_int_eq(access(at("out"), F_OK) == 0, f == SOUND);
                unlink(at("out"));
            }
            size_t damaged = 0;
            ckpt_reader *reader = opened(at("in"));
            for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
                uint32_t crc;
                damaged += ckpt_reader_crc32(reader, i, &crc, &err) == CKPT_E_DAMAGED;
            }
            ckpt_reader_close(reader);
            ck_assert_msg(damaged == (f == SOUND ? 0u : 1u), "%d: %zu", what, damaged);
        }
}
END_TEST

/* ---- a tensor's own CRC, of what is less than its storage */

static ckpt_status restored(const ckpt_reader *reader, size_t i, const kind *k)
{
    static unsigned char data[VALUES * UNIT];
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    ckpt__index *to = ckpt__index_new(0);
    ckpt__storage *place = ckpt__index_add_storage(to);
    ckpt__tensor *whole = ckpt__index_add_tensor(to);
    place->extent.place = data;
    place->extent.size = t->nbytes;
    whole->info.name = t->name;
    whole->info.dtype = t->dtype;
    whole->info.ndim = k->ndim;
    ck_assert_int_eq(ckpt__index_set_view(to, 0, 0, t->shape, NULL, 0, &err), CKPT_OK);
    ckpt__op_want kept = {
        .from = t->dtype, .to = t->dtype, .from_swap = ckpt__plan_swap_of(reader->index, &reader->index->tensors[i])};
    ckpt__op op;
    ckpt__bond bond = {.from = (uint32_t)i};
    ckpt__plan_want asked = {
        .from = reader->index, .to = to, .bonds = &bond, .bond_count = 1, .ops = &op, .op_count = 1, .push = true};
    ckpt__plan *plan;
    ck_assert_int_eq(ckpt__op_make(&kept, "w", &op, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__plan_new(&asked, &plan, &err), CKPT_OK);
    ckpt__push_want want = {.plan = plan, .source = reader->source, .check = true};
    ckpt_status status = ckpt__push(&want, &err);
    ckpt__plan_free(plan);
    ckpt__index_free(to);
    return status;
}

/* No format that is read today keeps one; the index can say it, and then it counts. */
START_TEST(own_crc)
{
    for (size_t n = 0; n < KINDS; n++) {
        const kind *k = &kinds[n];
        float want[4 * VALUES], got[4 * VALUES];
        if (k->flag)
            continue;
        size_t count = expected(k, want);
        ck_assert(write_case(at("in"), k, STORED, SOUND));
        for (int wrong = 0; wrong < 2; wrong++) {
            ckpt_verify_result result = {.ok = false};
            ckpt_reader *reader = opened(at("in"));
            size_t i = 0;
            ck_assert_int_eq(ckpt_reader_find(reader, "w", 1, &i, &err), CKPT_OK);
            reader->index->tensors[i].has_crc = true;
            reader->index->tensors[i].crc = ckpt__crc32(0, (const void *)want, count * 4) ^ (wrong ? 1 : 0);
            ckpt_report_clear(report);
            ck_assert_int_eq(ckpt__verify_payloads(reader, &result, report, &err), CKPT_OK);
            ck_assert_msg(ckpt_report_count_code(report, "crc-mismatch") == (wrong ? 1 : 0), "%s: ckpt_verify", label);
            ck_assert_msg(!wrong || ckpt_report_find(report, "crc-mismatch", "w"), "%s: ckpt_verify: the tensor",
                          label);
            ck_assert_msg(ckpt_reader_read(reader, i, got, count * 4, &err) == (wrong ? CKPT_E_DAMAGED : CKPT_OK),
                          "%s: read", label);
            ck_assert_msg(restored(reader, i, k) == (wrong ? CKPT_E_DAMAGED : CKPT_OK), "%s: restore", label);
            ckpt_reader_close(reader);
        }
    }
}
END_TEST

/* ---- how often a storage is read */

enum { COLUMNS = 1000, ROWS = 1000 }; /* float32: 4 MB in one storage */

/* Columns of it, each a tensor; of one: it is all of the storage. */
static void write_views(const char *path, size_t count)
{
    static bytes p;
    char name[32];
    uint32_t size = COLUMNS * ROWS * 4;
    unsigned char *file = malloc(size);
    ck_assert_ptr_nonnull(file);
    p.size = 0;
    PUT(&p, "\x80\2}");
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "w%zu", i);
        put_str(&p, name);
        view v = {"FloatStorage", "0", "cpu", COLUMNS * ROWS, (int64_t)i, 1, 1, {ROWS}, {COLUMNS}};
        if (count == 1)
            v = (view){"FloatStorage", "0", "cpu", COLUMNS * ROWS, 0, 1, 1, {COLUMNS * ROWS}, {1}};
        put_tensor(&p, &v);
        PUT(&p, "s");
    }
    PUT(&p, ".");
    for (size_t i = 0; i < size; i++)
        file[i] = (unsigned char)(i * 7 >> 3);
    write_large(path, &p, file, size, ckpt__crc32(0, file, size));
    free(file);
}

/* How often the storage's bytes are read: in hundredths. */
static unsigned passes(uint64_t before)
{
    return (unsigned)((pread_bytes - before) * 100 / (COLUMNS * ROWS * 4));
}

static unsigned passes_of_migrate(const char *to, bool verify)
{
    ckpt_migrate_options o = {.no_sync = true, .lossy = true, .to = to, .force = true, .threads = 1, .verify = verify};
    uint64_t before = pread_bytes;
    ckpt_status status = ckpt_migrate(at("views"), at("out"), &o, report, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    return passes(before);
}

START_TEST(once)
{
    static unsigned char out[COLUMNS * ROWS * 4];
    write_views(at("views"), 1);
    ckpt_reader *reader = opened(at("views"));
    uint64_t before = pread_bytes;
    ck_assert_msg(ckpt_reader_read(reader, 0, out, sizeof out, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(passes(before), 100); /* on the way, as ever */
    ckpt_reader_close(reader);
    ck_assert_uint_lt(passes_of_migrate("safetensors", false), 110);
    ck_assert_uint_lt(passes_of_migrate("torch", false), 110);
    ck_assert_uint_lt(passes_of_migrate("ckpt", false), 110);
    ck_assert_uint_lt(passes_of_migrate("ckpt", true), 320); /* written, its source again, and what was written */
}
END_TEST

/* Two hundred views, whose elements lie 4,000 bytes apart: the storage is checked once. */
START_TEST(once_for_all_views)
{
    static unsigned char out[ROWS * 4];
    write_views(at("views"), 200);
    ckpt_reader *reader = opened(at("views"));
    uint64_t of_one = 0, before = pread_bytes, all = preads;
    size_t block = 256 << 10, blocks = (COLUMNS * ROWS * 4 + block - 1) / block;
    for (size_t i = 0; i < 200; i++) {
        ck_assert_msg(ckpt_reader_read(reader, i, out, sizeof out, &err) == CKPT_OK, "%s", err.message);
        if (i == 0) {
            of_one = pread_bytes - before - COLUMNS * ROWS * 4;
            ck_assert_uint_gt(preads - all, blocks);
            before = pread_bytes;
        }
    }
    ck_assert_uint_eq(pread_bytes - before, 199 * of_one);
    ckpt_reader_close(reader);
    reader = opened(at("views"));
    before = pread_bytes;
    ck_assert_int_eq(ckpt__check_storage(reader->source, reader->index, 0, UINT64_MAX, "w", &err), CKPT_OK);
    ck_assert_uint_eq(passes(before), 100);
    ck_assert_int_eq(ckpt__check_storage(reader->source, reader->index, 0, UINT64_MAX, "w", &err), CKPT_OK);
    ck_assert_uint_eq(passes(before), 100);
    ckpt_reader_close(reader);
}
END_TEST

/* ---- a small part of a large storage */

enum { LARGE = 65 << 20, PART = LARGE / 4 / 20 }; /* of float32: 26 parts of a twentieth and less */

/* Tensors of 1,000 floats, "s0" to "s9", and twenty of a twentieth of the storage, "l0" on; zeros. */
static void write_parts(const char *path, bool sound)
{
    static bytes p;
    static unsigned char zeros[1 << 20];
    char name[32];
    uint32_t crc = sound ? 0 : 1;
    p.size = 0;
    PUT(&p, "\x80\2}");
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "%c%d", i < 10 ? 's' : 'l', i % 10 + (i >= 20 ? 10 : 0));
        put_str(&p, name);
        int64_t n = i < 10 ? 1000 : PART, first = i < 10 ? i * 1000 : (i - 10) * (int64_t)PART;
        put_tensor(&p, &(view){"FloatStorage", "0", "cpu", LARGE / 4, first, 1, 1, {n}, {1}});
        PUT(&p, "s");
    }
    PUT(&p, ".");
    uint32_t all = 0;
    for (size_t i = 0; i < LARGE; i += sizeof zeros)
        all = ckpt__crc32(all, zeros, sizeof zeros);
    write_large(path, &p, NULL, LARGE, all ^ crc);
}

static ckpt_status read_part(const ckpt_reader *reader, const char *name)
{
    static float out[PART];
    size_t i;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", err.message);
    return ckpt_reader_read(reader, i, out, (size_t)ckpt_reader_tensor(reader, i)->nbytes, &err);
}

/* Little is read alone, where that was asked for, and counted; the rest is read as soon as it is no longer little. */
START_TEST(little_of_a_large_storage)
{
    ckpt_reader_options o = {.leave_large = true};
    for (int sound = 1; sound >= 0; sound--) {
        ckpt_status checked = sound ? CKPT_OK : CKPT_E_DAMAGED;
        uint64_t of = 1, before;
        ckpt_reader *reader = NULL;
        write_parts(at("large"), sound);
        ckpt_report_clear(report);
        ck_assert_msg(ckpt_reader_open(at("large"), &o, &reader, &err) == CKPT_OK, "%s", err.message);
        ck_assert_uint_eq(ckpt_reader_unchecked(reader, &of, report), 0);
        ck_assert_uint_eq(of, 0);
        ck_assert_uint_eq(ckpt_report_count(report), 0);
        before = pread_bytes;
        ck_assert_int_eq(read_part(reader, "s0"), CKPT_OK);
        ck_assert_int_eq(read_part(reader, "s5"), CKPT_OK);
        ck_assert_int_eq(read_part(reader, "l3"), CKPT_OK);
        ck_assert_int_eq(read_part(reader, "l4"), CKPT_OK);
        ck_assert_uint_eq(pread_bytes - before, 8000 + 2 * PART * 4);
        ck_assert_uint_eq(ckpt_reader_unchecked(reader, &of, report), 8000 + 2 * PART * 4);
        ck_assert_uint_eq(of, LARGE);
        ck_assert_uint_eq(ckpt_report_count_code(report, "bytes-unchecked"), 1);
        ck_assert_int_eq(read_part(reader, "l5"), checked); /* more than an eighth by now */
        ck_assert_int_eq(read_part(reader, "s1"), checked);
        ck_assert_int_eq(ckpt_reader_unchecked(reader, &of, NULL) == 0, sound);
        ckpt_reader_close(reader);
        reader = opened(at("large"));
        before = pread_bytes;
        ck_assert_int_eq(read_part(reader, "s0"), checked);
        ck_assert_uint_ge(pread_bytes - before, LARGE);
        ck_assert_uint_eq(ckpt_reader_unchecked(reader, &of, NULL), 0);
        ckpt_reader_close(reader);
    }
    ck_assert_uint_eq(ckpt_reader_unchecked(NULL, NULL, NULL), 0);
}
END_TEST

static int inspects(const char *arguments)
{
    char command[1500];
    const char *builddir = getenv("builddir");
    snprintf(command, sizeof command, "cd '%s' && '%s/src/cli/ckpt-inspect' %s >out.txt 2>err.txt", folder,
             builddir ? builddir : ".", arguments);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool said(const char *file, const char *text)
{
    char all[4096] = "";
    FILE *f = fopen(at("%s", file), "r");
    ck_assert_ptr_nonnull(f);
    all[fread(all, 1, sizeof all - 1, f)] = 0;
    fclose(f);
    return strstr(all, text) != NULL;
}

/* The commands read what they are asked for, and say what was not checked, or with --check all read the rest too. */
START_TEST(commands_say_what_is_unchecked)
{
    static const char *const some[] = {"extract large s1 --raw -o part", "list --checksum --tensor s1 large",
                                       "stats --tensor s1 large", "diff --tensor s1 large large"};
    static const char *const all[] = {"list --checksum large", "stats large", "diff large large"};
    const char *builddir = getenv("builddir");
    if (builddir && *builddir != '/') {
        static char full[1000];
        ck_assert_ptr_nonnull(realpath(builddir, full));
        setenv("builddir", full, 1);
    }
    write_parts(at("large"), false);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char more[200];
        ck_assert_msg(inspects(some[i]) == 0, "%s", some[i]);
        ck_assert_msg(said("err.txt", "bytes-unchecked"), "%s", some[i]);
        unlink(at("part"));
        snprintf(more, sizeof more, "--json %s", some[i]);
        ck_assert_msg(inspects(more) == 0 && said("out.txt", "\"bytes-unchecked\""), "%s", more);
        unlink(at("part"));
        snprintf(more, sizeof more, "%s --check all", some[i]);
        ck_assert_msg(inspects(more) == 2 && said("err.txt", "CRC-32"), "%s", more);
        ck_assert_int_ne(access(at("part"), F_OK), 0);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ck_assert_msg(inspects(all[i]) == 2, "%s", all[i]);
}
END_TEST

/* Of many blocks, the last is damaged: where the tensor does not go over as it is, nothing of the state is touched. */
START_TEST(a_restore_that_converts_touches_nothing)
{
    static double place[COLUMNS * ROWS];
    static const int64_t shape[] = {COLUMNS * ROWS};
    write_views(at("views"), 1);
    ckpt_reader *reader = opened(at("views"));
    const ckpt__extent *e = &reader->index->storages[0].extent;
    flip_at(at("views"), "", e->offset + e->size - 1);
    ckpt_reader_close(reader);
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_cast = true;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = "w0";
    d.role = CKPT_ROLE_PARAM;
    d.dtype = CKPT_F64;
    d.ndim = 1;
    d.shape = shape;
    d.data = place;
    ckpt_state *state = ckpt_state_new();
    ck_assert_ptr_nonnull(state);
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    for (size_t i = 0; i < COLUMNS * ROWS; i++)
        place[i] = 7;
    ck_assert_int_eq(ckpt_restore(state, at("views"), &o, report, &err), CKPT_E_DAMAGED);
    for (size_t i = 0; i < COLUMNS * ROWS; i++)
        ck_assert(place[i] == 7);
    ck_assert_uint_eq(ckpt_report_count_code(report, "untouched"), 1);
    ck_assert_uint_eq(ckpt_report_count_code(report, "torn"), 0);
    ckpt_state_free(state);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("laundering_files");
    TCase *cases = tcase_create("laundering_files");
    tcase_set_timeout(cases, 300);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, real_files, 0, sizeof sources / sizeof *sources);
    tcase_add_test(cases, directories);
    tcase_add_test(cases, parts);
    tcase_add_test(cases, own_crc);
    tcase_add_test(cases, little_of_a_large_storage);
    tcase_add_test(cases, commands_say_what_is_unchecked);
    tcase_add_test(cases, a_restore_that_converts_touches_nothing);
    tcase_add_test(cases, once);
    tcase_add_test(cases, once_for_all_views);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
