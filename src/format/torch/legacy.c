/* format/torch/legacy.c - pickles that are no zip: torch before 1.6 (five pickles, then raw storages: legacy_read.c)
 * and pickles of anything else, with tensors in them or not. The tar before both is recognised and named. */
#include "format/torch/torch.h"

#include <stdlib.h>

enum { MAGIC_WITHIN = 32 };

typedef enum kind { NO, OLD_TORCH, OLD_TAR, PICKLE, TEXT_PICKLE } kind;

/* 0x1950a86a20f9469cfc6c as LONG1 with its STOP, behind what the protocol puts before it. */
static bool has_magic(const unsigned char *head, size_t n)
{
    static const unsigned char magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    size_t within = n < MAGIC_WITHIN ? n : MAGIC_WITHIN;
    if (memmem(head, within, magic, sizeof magic))
        return true;
    static const char text[] = "L119547037146038801333356L\n."; /* protocols 0 and 1 */
    return n >= sizeof text - 1 && memcmp(head, text, sizeof text - 1) == 0;
}

bool ckpt__torch_is_legacy(const unsigned char *head, size_t n)
{
    return has_magic(head, n);
}

static bool is_old_tar(const unsigned char *head, size_t n)
{
    static const char *const members[] = {"sys_info", "pickle",    "tensors",   "storages",
                                          "./pickle", "./tensors", "./storages"};
    if (n < 512 || memcmp(head + 257, "ustar", 5) != 0)
        return false;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strcmp((const char *)head, members[i]) == 0)
            return true;
    return false;
}

static bool is_word(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* "cmodule\nname\n", "(dp0\n", "(lp1\n", "(ip...": how protocol 0 begins; "}q\0", "]q\0": protocol 1. */
static bool is_text_pickle(const unsigned char *head, size_t n)
{
    if (n >= 4 && (head[0] == '}' || head[0] == ']') && head[1] == 'q' && head[2] <= 1)
        return true;
    if (n >= 4 && head[0] == '(' && (head[1] == 'd' || head[1] == 'l') && head[2] == 'p' && head[3] >= '0' &&
        head[3] <= '9')
        return true;
    if (n < 4 || (head[0] != 'c' && !(head[0] == '(' && head[1] == 'i')))
        return false;
    size_t i = head[0] == 'c' ? 1 : 2;
    for (int line = 0; line < 2; line++, i++) {
        size_t from = i;
        while (i < n && is_word(head[i]))
            i++;
        if (i == n || i == from || head[i] != '\n')
            return false;
    }
    return true;
}

static kind kind_of(const unsigned char *head, size_t n)
{
    if (has_magic(head, n))
        return OLD_TORCH;
    if (is_old_tar(head, n))
        return OLD_TAR;
    if (n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
        return PICKLE;
    return is_text_pickle(head, n) ? TEXT_PICKLE : NO;
}

static int bid_legacy(const ckpt__probe *probe)
{
    static const int bids[] = {[NO] = 0, [OLD_TORCH] = 100, [OLD_TAR] = 80, [PICKLE] = 0, [TEXT_PICKLE] = 0};
    return probe->directory ? 0 : bids[kind_of(probe->head, probe->head_size)];
}

/* ---- pickles that begin like anything else: protocols 0 and 1 of a tuple, a str, a number, None, ... */

enum { WHOLE_MAX = 64 << 20 };

static ckpt_status read_probe(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__probe *probe = ctx;
    return ckpt__source_read(probe->source, probe->file, offset, dst, n, err);
}

/* Does its only STOP stand at its end, and is one object all that it makes? Then it is a pickle, and nothing else. */
static bool is_whole_pickle(const ckpt__probe *probe)
{
    ckpt__pickle_input in = {read_probe, (void *)(uintptr_t)probe, probe->file_size};
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt__pickle p = {0};
    uint64_t size = probe->file_size, end = 0;
    char last = 0;
    if (size < 2 || size > WHOLE_MAX || probe->head_size < 2 || !memchr("()]}NILVSUTXFGKMJc", probe->head[0], 18) ||
        read_probe(in.ctx, size - 1, &last, 1, &ignored) < 0 || last != '.' ||
        ckpt__pickle_measure(&in, 0, "", &end, &ignored) < 0 || end != size)
        return false;
    ckpt__arena *arena = ckpt__arena_new(ckpt__known_limit(size, false));
    unsigned char *bytes = arena ? malloc((size_t)size) : NULL;
    bool is = bytes && read_probe(in.ctx, 0, bytes, (size_t)size, &ignored) == CKPT_OK &&
              ckpt__pickle_read(bytes, (size_t)size, "", arena, &p, &ignored) == CKPT_OK && p.end == size &&
              p.left == 0;
    ckpt__pickle_free(&p);
    ckpt__arena_free(arena);
    free(bytes);
    return is;
}

static int bid_pickle(const ckpt__probe *probe)
{
    static const int bids[] = {[NO] = 0, [OLD_TORCH] = 0, [OLD_TAR] = 0, [PICKLE] = 60, [TEXT_PICKLE] = 20};
    if (probe->directory)
        return 0;
    kind k = kind_of(probe->head, probe->head_size);
    return k == NO && is_whole_pickle(probe) ? 20 : bids[k];
}

/* ---- what both need */

static ckpt_status read_source(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__torch *t = ctx;
    return ckpt__source_read(t->source, t->file, offset, dst, n, err);
}

/* The index of a file whose first `size` bytes are pickles, which are kept: values refer to them. */
static ckpt_status begin(ckpt__torch *t, const char *format, uint64_t size, unsigned char **bytes, ckpt_error *err)
{
    t->index = ckpt__index_new(ckpt__known_limit(t->source->files[t->file].size, t->source->directory));
    t->by_key = ckpt__hash_new(64);
    if (!t->index || !t->by_key || size > SIZE_MAX / 2)
        return ckpt__fail_memory(err, t->path, size);
    t->arena = t->index->arena;
    t->index->format = format;
    *bytes = ckpt__arena_alloc(t->arena, (size_t)size + 1);
    if (!*bytes)
        return ckpt__torch_no_memory(t, err);
    return ckpt__source_read(t->source, t->file, 0, *bytes, (size_t)size, err);
}

static ckpt_status make_index(ckpt__torch *t, ckpt_error *err)
{
    ckpt_status status = ckpt__torch_values(t, err);
    return status == CKPT_OK ? ckpt__torch_list(t, err) : status;
}

/* ---- before 1.6 */

enum { PICKLES = 5 };

static ckpt_status note_legacy(ckpt__torch *t, ckpt_error *err)
{
    ckpt_report *r = t->index->findings;
    size_t n = t->index->storage_count, missing = 0;
    for (size_t i = 0; i < n; i++)
        missing += t->index->storages[i].extent.missing;
    if (missing &&
        !ckpt__report_add(r, CKPT_SEVERITY_WARNING, "salvaged", NULL, NULL,
                          "the file is cut off or damaged: %zu of its %zu storages are not whole", missing, n))
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

/* The list of keys and all storages may be cut off in a salvage; the object may not. */
static ckpt_status read_legacy(ckpt__torch *t, ckpt_error *err)
{
    uint64_t size = t->source->files[t->file].size, end = 0;
    ckpt__pickle_input in = {read_source, t, size};
    unsigned char *bytes = NULL;
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    for (int i = 0; status == CKPT_OK && i < PICKLES; i++) {
        uint64_t next = 0;
        bool last = t->salvage && i == PICKLES - 1;
        status = ckpt__pickle_measure(&in, end, t->path, &next, last ? &ignored : err);
        if (status == CKPT_OK)
            end = next;
        else if (last && (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT))
            status = CKPT_OK;
        else if (last && err)
            *err = ignored;
    }
    if (status == CKPT_OK)
        status = begin(t, "torch-legacy", end, &bytes, err);
    if (status < 0)
        return status;
    ckpt__torch_legacy_input input = {bytes, (size_t)end, false, size};
    ckpt__source_scattered(t->source, t->file, true); /* each storage's number of elements */
    status = ckpt__torch_legacy_open(t, &input, err);
    ckpt__source_scattered(t->source, t->file, false);
    if (status == CKPT_OK)
        status = make_index(t, err);
    return status == CKPT_OK ? note_legacy(t, err) : status;
}

/* ---- any other pickle */

/* joblib puts the bytes of arrays into the stream, behind the object that announces them. */
static bool is_joblib(const ckpt__pickle *p)
{
    for (size_t i = 0; i < p->global_count; i++)
        if (ckpt__str_is(p->globals[i].module, "joblib.numpy_pickle"))
            return true;
    return false;
}

static ckpt_status not_a_pickle(ckpt__torch *t, const unsigned char *bytes, uint64_t size, ckpt_status status,
                                ckpt_error *err)
{
    ckpt__arena *arena = ckpt__arena_new(ckpt__known_limit(size, false));
    ckpt__pickle p = {0};
    ckpt_error ignored = CKPT_ERROR_INIT;
    if (arena)
        ckpt__pickle_read(bytes, (size_t)size, t->label, arena, &p, &ignored);
    bool joblib = is_joblib(&p);
    ckpt__pickle_free(&p);
    ckpt__arena_free(arena);
    if (!joblib)
        return status;
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, t->label,
        "a joblib file with arrays between its opcodes, which this version does not read. If you trust where it "
        "comes from: pickle.dump(joblib.load(FILE), open('new.pkl', 'wb'))");
}

enum { LOOK = 64 << 10 };

static ckpt_status look_for_joblib(ckpt__torch *t, ckpt_status status, ckpt_error *err)
{
    uint64_t size = t->source->files[t->file].size, n = size < LOOK ? size : LOOK;
    unsigned char *head = malloc((size_t)n + 1);
    ckpt_error ignored = CKPT_ERROR_INIT;
    if (head && ckpt__source_read(t->source, t->file, 0, head, (size_t)n, &ignored) == CKPT_OK)
        status = not_a_pickle(t, head, n, status, err);
    free(head);
    return status;
}

static ckpt_status note_pickle(ckpt__torch *t, uint64_t size, ckpt_error *err)
{
    static const char fix[] = "scan it before you load it";
    ckpt_report *r = t->index->findings;
    if (t->pickle.end < size &&
        !ckpt__report_add(
            r, CKPT_SEVERITY_WARNING, "bytes-after-stop", NULL, fix,
            "%llu bytes follow the end of the pickle; pickle.load does not look at them, and they are not read",
            (unsigned long long)(size - t->pickle.end)))
        return ckpt__torch_no_memory(t, err);
    if (t->pickle.left &&
        !ckpt__report_add(r, CKPT_SEVERITY_WARNING, "stack-left", NULL, fix,
                          "the pickle makes %zu objects that belong to nothing; picklers leave none", t->pickle.left))
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

static ckpt_status read_pickle(ckpt__torch *t, ckpt_error *err)
{
    uint64_t size = t->source->files[t->file].size, end = 0;
    ckpt__pickle_input in = {read_source, t, size};
    unsigned char *bytes = NULL;
    ckpt_status status = ckpt__pickle_measure(&in, 0, t->path, &end, err);
    if (status < 0)
        return status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT ? look_for_joblib(t, status, err) : status;
    status = begin(t, "pickle", end, &bytes, err);
    if (status == CKPT_OK)
        status = ckpt__pickle_read_kept(bytes, (size_t)end, t->label, t->arena, &t->pickle, err);
    if (status == CKPT_E_FORMAT || status == CKPT_E_DAMAGED)
        return is_joblib(&t->pickle) ? not_a_pickle(t, bytes, end, status, err) : status;
    if (status == CKPT_OK && t->pickle.root->kind == CKPT__P_BIGINT &&
        ckpt__str_is(t->pickle.root->u.text, "119547037146038801333356"))
        return ckpt__fail(
            err, CKPT_E_FORMAT, t->label,
            "the magic number of PyTorch's format before 1.6, pickled by other opcodes than torch.save writes: torch reads a checkpoint behind it, other programs read a single number");
    if (status == CKPT_OK)
        status = ckpt__torch_check_late(t, err);
    if (status == CKPT_OK)
        status = make_index(t, err);
    return status == CKPT_OK ? note_pickle(t, size, err) : status;
}

/* ---- the formats */

typedef ckpt_status (*reader)(ckpt__torch *t, ckpt_error *err);

static ckpt_status read_by(const ckpt__read_request *request, reader read, ckpt__index **out, ckpt_error *err)
{
    *out = NULL;
    if (request->file == CKPT__WHOLE_DIRECTORY)
        return ckpt__fail(err, CKPT_E_FORMAT, request->source->path, "a directory; a pickle is a file");
    char path[1024];
    ckpt__torch t = {.source = request->source, .file = request->file, .salvage = request->salvage};
    t.path = t.label = request->source->directory
                           ? ckpt__source_label(request->source, request->file, path, sizeof path)
                           : request->source->path;
    ckpt_status status = read(&t, err);
    status = ckpt__index_refused(t.index, status, t.label, err);
    ckpt__torch_release(&t);
    if (status < 0)
        ckpt__index_free(t.index);
    else
        *out = t.index;
    return status;
}

/* By the name of the format it may be any file: told from its head once more. */
static ckpt_status read_legacy_format(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    const ckpt__source *source = request->source;
    unsigned char head[512];
    char label[1024];
    if (request->file == CKPT__WHOLE_DIRECTORY)
        return read_by(request, read_legacy, out, err);
    uint64_t size = source->files[request->file].size;
    size_t n = size < sizeof head ? (size_t)size : sizeof head;
    *out = NULL;
    ckpt_status status = ckpt__source_read(source, request->file, 0, head, n, err);
    if (status < 0)
        return status;
    ckpt__source_label(source, request->file, label, sizeof label);
    kind k = kind_of(head, n);
    if (k == OLD_TAR)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, label,
            "PyTorch's oldest format (a tar of pickle, tensors, storages), which this "
            "version does not read. Save it again: torch.save(torch.load(FILE, map_location='cpu'), 'new.pt')");
    if (k != OLD_TORCH)
        return ckpt__fail(
            err, CKPT_E_FORMAT, label,
            "not PyTorch's format before 1.6: it does not begin with its magic number (any other pickle is the "
            "format 'pickle')");
    return read_by(request, read_legacy, out, err);
}

static ckpt_status read_pickle_format(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    return read_by(request, read_pickle, out, err);
}

const ckpt__format ckpt__format_torch_legacy = {
    .name = "torch-legacy",
    .suffix = ".pt",
    .bid = bid_legacy,
    .read = read_legacy_format,
    .family = CKPT__FAMILY_TORCH,
    .laid_out = true,
    .torch_loads = true,
    .has_values = true,
    .no_archive = true,
    .rewritten_as = &ckpt__format_torch,
};
const ckpt__format ckpt__format_pickle = {
    .name = "pickle",
    .suffix = ".pkl",
    .bid = bid_pickle,
    .read = read_pickle_format,
    .family = CKPT__FAMILY_PICKLE,
    .torch_raises = true,
    .has_values = true,
};
