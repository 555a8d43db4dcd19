/* fuzz_open.c - any bytes as a checkpoint, or as the files of a directory that is one (pack.py): opened and walked each time, and by turns read, mapped, restored from, diagnosed,
 * salvaged, verified, scanned, compared with itself, and rewritten into each format, where what was written must be sound; with
 * no more memory than SECURITY.md says. For libFuzzer; tests/fuzz/run.sh builds and runs it, with mutate.c. */
#include <ckpt/ckpt.h>
#include <ftw.h>
#include <sanitizer/allocator_interface.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* ---- what is allocated at one time: from the heap, and mapped (the linker sends the library's calls here) */

static atomic_llong live, most;

static void took(long long n)
{
    long long now = atomic_fetch_add(&live, n) + n, seen = atomic_load(&most);
    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
        ;
}

static void on_malloc(const volatile void *p, size_t n)
{
    (void)p;
    took((long long)n);
}

static void on_free(const volatile void *p)
{
    if (p)
        took(-(long long)__sanitizer_get_allocated_size(p));
}

enum { FILES = 64 };
static void *_Atomic mapped_files[FILES]; /* what is mapped of a file is the page cache's */

void *__real_mmap(void *at, size_t n, int access, int flags, int fd, off_t offset);
int __real_munmap(void *p, size_t n);
void *__wrap_mmap(void *at, size_t n, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void *p, size_t n);

void *__wrap_mmap(void *at, size_t n, int access, int flags, int fd, off_t offset)
{
    void *p = __real_mmap(at, n, access, flags, fd, offset);
    if (p != MAP_FAILED && fd < 0)
        took((long long)n);
    for (int i = 0; p != MAP_FAILED && fd >= 0 && i < FILES; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&mapped_files[i], &none, p))
            break;
    }
    return p;
}

int __wrap_munmap(void *p, size_t n)
{
    bool of_file = false;
    for (int i = 0; i < FILES && !of_file; i++) {
        void *is = p;
        of_file = atomic_compare_exchange_strong(&mapped_files[i], &is, NULL);
    }
    if (!of_file)
        took(-(long long)n);
    return __real_munmap(p, n);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    return 0;
}

/* SECURITY.md: 64 MiB + 64 bytes for each of the file's, beside the buffers that move tensors. */
static void expect_bounded(const char *what, long long before, size_t size, long long buffers)
{
    long long n = atomic_load(&most) - before, bound = (64ll << 20) + 64ll * (long long)size + buffers;
    if (n > bound) {
        fprintf(stderr, "%s: %lld bytes of memory for a file of %zu; %lld are the bound\n", what, n, size, bound);
        abort();
    }
}

static int on_visit(void *ctx, const ckpt_visit *v)
{
    /* Every byte that a visitor may look at. */
    uint64_t *sum = ctx;
    for (size_t i = 0; i < v->name.size; i++)
        *sum += (unsigned char)v->name.data[i];
    for (size_t i = 0; i < v->value->text.size; i++)
        *sum += (unsigned char)v->value->text.data[i];
    for (size_t i = 0; i < v->path.count; i++)
        *sum += (uint64_t)v->path.keys[i].number + v->path.keys[i].text.size;
    return 0;
}

static void read_tensors(const ckpt_reader *r)
{
    static volatile uint64_t sum;
    for (size_t i = 0; i < ckpt_reader_tensor_count(r) && i < 64; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        uint32_t crc;
        if (t->nbytes > 1 << 20) /* a view with stride 0 may be any size, and is streamed all the same */
            continue;
        ckpt_error err;
        void *buffer = malloc(t->nbytes ? (size_t)t->nbytes : 1);
        if (buffer)
            ckpt_reader_read(r, i, buffer, (size_t)t->nbytes, &err);
        free(buffer);
        ckpt_reader_crc32(r, i, &crc, &err);
        const void *mapped;
        size_t size;
        if (ckpt_reader_map(r, i, &mapped, &size, &err) == CKPT_OK)
            for (size_t k = 0; k < size; k++)
                sum += ((const unsigned char *)mapped)[k];
    }
}

/* A state that has the file's first tensors, as a trainer might bind them. */
static void restore(const ckpt_reader *r, const char *path)
{
    ckpt_state *s = ckpt_state_new();
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_error err;
    int64_t step = 0;
    o.map_location = "cpu";
    o.allow_missing = o.allow_unexpected = o.allow_cast = true;
    for (size_t i = 0; s && i < ckpt_reader_tensor_count(r) && i < 16; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        if (t->nbytes > 1 << 20 || !t->shape)
            continue;
        d.name = t->name.data;
        d.dtype = i % 3 ? t->dtype : CKPT_F32;
        d.ndim = t->ndim;
        d.shape = t->shape;
        d.role = CKPT_ROLE_PARAM;
        ckpt_state_tensor(s, &d, &err);
    }
    if (s && ckpt_state_i64(s, "step", &step, &err) == CKPT_OK)
        ckpt_restore(s, path, &o, report, &err);
    ckpt_report_free(report);
    ckpt_state_free(s);
}

/* What is there of a damaged file: listed, and walked; what is whole can be read. */
static void salvage(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader_options o = {0};
    ckpt_reader *r = NULL;
    uint64_t sum = 0;
    o.salvage = true;
    if (ckpt_reader_open(path, &o, &r, &err) == CKPT_OK) {
        ckpt_value_walk(ckpt_reader_root(r), 200000, on_visit, &sum, &err);
        read_tensors(r);
    } else if (err.message[0] == '\0')
        abort();
    ckpt_reader_close(r);
}

/* ---- directories: "CKPTDIR\n", then of each file the bytes of its name (2), its own bytes (4), the name, the bytes; numbers are
 * little-endian. What is none of these at some place ends the list there. */

static const char packed[] = "CKPTDIR\n";
enum { PACKED = sizeof packed - 1, NAME_MOST = 200, FILES_MOST = 100 };

static bool is_packed(const uint8_t *data, size_t size)
{
    return size >= PACKED && memcmp(data, packed, PACKED) == 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Letters of which no name climbs out of the directory. */
static bool is_name(const char *name, size_t n)
{
    if (n == 0 || n > NAME_MOST || name[0] == '/' || memchr(name, '\0', n))
        return false;
    for (size_t i = 0; i + 1 < n; i++)
        if (name[i] == '.' && name[i + 1] == '.')
            return false;
    return true;
}

static void put_file(const char *folder, const char *name, size_t n, const uint8_t *data, size_t size)
{
    char path[NAME_MOST + 80];
    const int begin = snprintf(path, sizeof path, "%s/", folder);
    snprintf(path + begin, sizeof path - (size_t)begin, "%.*s", (int)n, name);
    for (char *at = path + begin; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *f = fopen(path, "wb");
    if (!f)
        return; /* a folder of the name is there */
    if (size)
        fwrite(data, 1, size, f);
    fclose(f);
}

static void unpack(const char *folder, const uint8_t *data, size_t size)
{
    remove_tree(folder);
    if (mkdir(folder, 0700) < 0)
        abort();
    size_t at = PACKED;
    for (int i = 0; i < FILES_MOST && size - at >= 6; i++) {
        const size_t n = data[at] | (size_t)data[at + 1] << 8;
        const size_t bytes =
            data[at + 2] | (size_t)data[at + 3] << 8 | (size_t)data[at + 4] << 16 | (size_t)data[at + 5] << 24;
        at += 6;
        if (n > size - at || bytes > size - at - n || !is_name((const char *)data + at, n))
            break;
        put_file(folder, (const char *)data + at, n, data + at + n, bytes);
        at += n + bytes;
    }
}

/* ---- what is done by turns */

/* A refusal always says why. */
static void answered(ckpt_status status, const ckpt_error *err)
{
    if (status < 0 && err->message[0] == '\0')
        abort();
}

static void job_read(const ckpt_reader *r, const char *path)
{
    (void)path;
    read_tensors(r);
}

static void job_doctor(const ckpt_reader *r, const char *path)
{
    (void)path;
    for (int i = 0; i < 3; i++) {
        static const ckpt_loader loaders[] = {CKPT_LOADER_OWN, CKPT_LOADER_TORCH, CKPT_LOADER_CKPT};
        ckpt_doctor_options o;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_report *report = ckpt_report_new();
        memset(&o, 0, sizeof o);
        memset(&result, 0, sizeof result);
        o.loader = loaders[i];
        o.cuda_device_count = i - 1;
        o.read_values = i == 1;
        answered(ckpt_doctor(r, &o, &result, report, &err), &err);
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
    }
}

static void job_snippets(const ckpt_reader *r, const char *path)
{
    (void)path;
    static const char *const languages[] = {"torch", "c", "run"};
    for (int i = 0; i < 3; i++) {
        ckpt_doctor_options o;
        ckpt_error err = CKPT_ERROR_INIT;
        char *out = NULL;
        memset(&o, 0, sizeof o);
        answered(ckpt_doctor_snippet(r, languages[i], &o, &out, &err), &err);
        free(out);
    }
    ckpt_naming *naming = NULL;
    ckpt_summary summary = CKPT_SUMMARY_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    memset(&summary, 0, sizeof summary);
    answered(ckpt_naming_new(r, NULL, &naming, NULL, &err), &err);
    ckpt_naming_free(naming);
    answered(ckpt_summarize(r, &summary, &err), &err);
    ckpt_summary_clear(&summary);
}

static void job_verify(const ckpt_reader *r, const char *path)
{
    (void)r;
    ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_error err = CKPT_ERROR_INIT;
    answered(ckpt_verify(path, NULL, &verified, report, &err), &err);
    ckpt_report_free(report);
}

static void job_scan(const ckpt_reader *r, const char *path)
{
    (void)r;
    ckpt_scan *scan = NULL;
    ckpt_report *report = ckpt_report_new();
    ckpt_error err = CKPT_ERROR_INIT;
    answered(ckpt_scan_open(path, NULL, &scan, report, &err), &err);
    for (size_t i = 0; i < ckpt_scan_count(scan); i++)
        if (!ckpt_scan_get(scan, i)->reason)
            abort();
    ckpt_scan_close(scan);
    ckpt_report_free(report);
}

static int on_stats(void *ctx, size_t tensor, const ckpt_tensor_stats *stats)
{
    (void)ctx;
    (void)tensor;
    if (stats->finite > stats->count)
        abort();
    return 0;
}

static bool is_small(const ckpt_reader *r)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(r); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        if (t->nbytes > 1 << 22)
            return false;
        sum += t->nbytes;
    }
    return sum <= 1 << 24;
}

/* A checkpoint is the same as itself; and stats of all. */
static void job_compare(const ckpt_reader *r, const char *path)
{
    (void)path;
    ckpt_diff_result result = CKPT_DIFF_RESULT_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    memset(&result, 0, sizeof result);
    if (!is_small(r))
        return;
    ckpt_status status = ckpt_diff(r, r, NULL, &result, NULL, &err);
    answered(status, &err);
    if (status == CKPT_OK && !result.same)
        abort();
    ckpt_diff_result_clear(&result);
    size_t all[64], count = 0;
    while (count < 64 && count < ckpt_reader_tensor_count(r)) {
        all[count] = count;
        count++;
    }
    answered(ckpt_stats(r, all, count, NULL, on_stats, NULL, &err), &err);
}

/* Rewritten, and what was written is sound: it opens, and nothing is wrong with it. */
static void migrate_to(const ckpt_reader *r, const char *path, const char *to, bool plain, bool rescue, bool same)
{
    char dst[64];
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_error err = CKPT_ERROR_INIT;
    if (r && !is_small(r))
        return;
    snprintf(dst, sizeof dst, "/dev/shm/fuzz-%ld.out", (long)getpid());
    o.to = same ? "same" : to;
    o.plain = plain;
    o.salvage = rescue;
    o.lossy = o.force = o.no_sync = true;
    o.threads = 1;
    o.memory = 64 << 20;
    ckpt_status status = ckpt_migrate(path, dst, &o, report, &err);
    answered(status, &err);
    if (status == CKPT_OK) {
        ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
        status = ckpt_verify(dst, NULL, &verified, report, &err);
        /* Byte for byte what the source had wrong is still wrong; and so is what torch refuses, and torch alone. */
        if (status != CKPT_OK && !same &&
            !(status == CKPT_ANSWER_NO && ckpt_report_count_code(report, "torch-refuses")))
            abort();
    }
    remove_tree(dst);
    ckpt_report_free(report);
}

static void job_torch(const ckpt_reader *r, const char *path)
{
    migrate_to(r, path, "torch", false, false, false);
}
static void job_plain(const ckpt_reader *r, const char *path)
{
    migrate_to(r, path, "torch", true, false, false);
}
static void job_safetensors(const ckpt_reader *r, const char *path)
{
    migrate_to(r, path, "safetensors", false, false, false);
}
static void job_ckpt(const ckpt_reader *r, const char *path)
{
    migrate_to(r, path, "ckpt", false, false, false);
}
static void job_same(const ckpt_reader *r, const char *path)
{
    migrate_to(r, path, NULL, false, false, true);
}
static void job_rescue(const ckpt_reader *r, const char *path)
{
    migrate_to(r, path, "ckpt", false, true, false);
}

static void job_salvage(const ckpt_reader *r, const char *path)
{
    (void)r;
    salvage(path);
}

/* The last ones need no file that opens. `moves`: it moves tensors, for which it has buffers. */
static const struct job {
    const char *name;
    void (*run)(const ckpt_reader *r, const char *path);
    bool moves;
} jobs[] = {
    {"read", job_read, true},          {"doctor", job_doctor, true},
    {"snippets", job_snippets, false}, {"compare", job_compare, true},
    {"restore", restore, true},        {"to torch", job_torch, true},
    {"plain", job_plain, true},        {"to safetensors", job_safetensors, true},
    {"to ckpt", job_ckpt, true},       {"same", job_same, true},
    {"verify", job_verify, true},      {"scan", job_scan, false},
    {"salvage", job_salvage, true},    {"rescue", job_rescue, true},
};
enum { JOBS = sizeof jobs / sizeof jobs[0], NEED_NONE = 4 };

static void run_job(size_t i, const ckpt_reader *r, const char *path, size_t size)
{
    long long before = atomic_load(&live);
    atomic_store(&most, before);
    jobs[i].run(r, path);
    expect_bounded(jobs[i].name, before, size, jobs[i].moves ? 160ll << 20 : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    uint32_t turn = 2166136261u; /* which jobs: by the bytes, so that an input is always treated alike */
    for (size_t i = 0; i < size; i++)
        turn = (turn ^ data[i]) * 16777619u;
    bool all = getenv("FUZZ_ALL_JOBS") != NULL;
    const bool directory = is_packed(data, size);
    int fd = directory ? -1 : memfd_create("fuzz", MFD_CLOEXEC);
    if (!directory && (fd < 0 || write(fd, data, size) != (ssize_t)size))
        abort();
    if (directory) {
        snprintf(path, sizeof path, "/dev/shm/fuzz-%ld.dir", (long)getpid());
        unpack(path, data, size);
    } else
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    long long before = atomic_load(&live);
    atomic_store(&most, before);
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *r = NULL;
    ckpt_status status = ckpt_reader_open(path, NULL, &r, &err);
    answered(status, &err);
    if (r) {
        uint64_t sum = 0;
        ckpt_value_walk(ckpt_reader_root(r), 200000, on_visit, &sum, &err);
    }
    expect_bounded("open", before, size, 0);
    for (size_t i = r ? 0 : JOBS - NEED_NONE; i < JOBS; i++)
        if (all || turn % JOBS == i || turn / JOBS % JOBS == i || (!r && turn / 7 % NEED_NONE == JOBS - 1 - i))
            run_job(i, r, path, size);
    ckpt_reader_close(r);
    if (directory)
        remove_tree(path);
    else
        close(fd);
    return 0;
}
