/* tests/unit/doctor/doctor_files.h - torch files from a line of text, and doctor's answer for them. The text is as Python
 * would show the object: dicts, lists, tuples, strings, numbers, True, False, None; a tensor is DTYPE@TAG[SHAPE], one
 * without a storage meta[SHAPE], a torch.device device@TAG, bytes, an object of another class a new MODULE:NAME. */
#ifndef DOCTOR_FILES_H
#define DOCTOR_FILES_H
#include <ckpt/ckpt.h>
#include <stdio.h>
#include "../folder_files.h"
#include "../runner.h"

typedef struct writing {
    const char *at; /* in the text */
    bytes pickle;
    uint64_t sizes[96]; /* of the storages, bytes */
    unsigned count;
    const char *fill; /* the bytes of each storage: four that repeat */
} writing;

static const struct {
    const char *word, *storage;
    unsigned size;
} storage_kinds[] = {{"f32", "FloatStorage", 4},     {"f64", "DoubleStorage", 8}, {"f16", "HalfStorage", 2},
                     {"bf16", "BFloat16Storage", 2}, {"i64", "LongStorage", 8},   {"u8", "ByteStorage", 1}};

static void emit(writing *w);

static inline bool take(writing *w, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(w->at, word, n) != 0)
        return false;
    w->at += n;
    return true;
}

static inline void emit_all(writing *w, char end)
{
    while (*w->at != end) {
        ck_assert_msg(*w->at, "the text ends in a list");
        emit(w);
        if (*w->at == ',' || *w->at == ':')
            w->at++;
    }
    w->at++;
}

static inline void emit_text(writing *w)
{
    char text[200];
    size_t n = strcspn(++w->at, "'");
    ck_assert_uint_lt(n, sizeof text);
    memcpy(text, w->at, n);
    text[n] = 0;
    put_str(&w->pickle, text);
    w->at += n + 1;
}

static inline void emit_number(writing *w)
{
    char *end;
    double real = strtod(w->at, &end);
    bool whole = strcspn(w->at, ".eni") >= (size_t)(end - w->at);
    if (whole)
        put_int(&w->pickle, (int64_t)real);
    else
        put_real(&w->pickle, real);
    w->at = end;
}

static inline void emit_tensor(writing *w, size_t kind)
{
    static char tags[96][24];
    view v = {.class_name = storage_kinds[kind].storage, .numel = 1};
    char key[8];
    size_t n = strcspn(w->at, "[");
    ck_assert_uint_lt(w->count, 96);
    snprintf(tags[w->count], sizeof tags[0], "%.*s", (int)n, w->at);
    snprintf(key, sizeof key, "%u", w->count);
    v.location = tags[w->count];
    v.key = key;
    for (w->at += n + 1; *w->at != ']';) {
        v.shape[v.ndim] = strtoll(w->at, (char **)(uintptr_t)&w->at, 10);
        v.numel *= v.shape[v.ndim++];
        w->at += *w->at == ',';
    }
    w->at++;
    v.stride_count = v.ndim;
    for (int d = v.ndim - 1; d >= 0; d--)
        v.strides[d] = d == v.ndim - 1 ? 1 : v.strides[d + 1] * v.shape[d + 1];
    w->sizes[w->count++] = (uint64_t)v.numel * storage_kinds[kind].size;
    put_tensor(&w->pickle, &v);
}

/* float32 on meta, which has no storage: meta[SHAPE] of up to two dimensions */
static inline void emit_meta(writing *w)
{
    int64_t shape[2] = {1, 1};
    for (int d = 0; *w->at != ']'; d++) {
        ck_assert_int_lt(d, 2);
        shape[d] = strtoll(w->at, (char **)(uintptr_t)&w->at, 10);
        w->at += *w->at == ',';
    }
    w->at++;
    put_global(&w->pickle, "torch._utils", "_rebuild_meta_tensor_no_storage");
    PUT(&w->pickle, "(");
    put_global(&w->pickle, "torch", "float32");
    put_int(&w->pickle, shape[0]);
    put_int(&w->pickle, shape[1]);
    PUT(&w->pickle, "\x86");
    put_int(&w->pickle, shape[1]);
    put_int(&w->pickle, 1);
    PUT(&w->pickle, "\x86\x89tR");
}

static inline void emit_class(writing *w, bool device)
{
    char text[120], *colon;
    size_t n = strcspn(w->at, ",]})");
    ck_assert_uint_lt(n, sizeof text);
    memcpy(text, w->at, n);
    text[n] = 0;
    w->at += n;
    colon = strchr(text, ':');
    if (device) {
        put_global(&w->pickle, "torch", "device");
        PUT(&w->pickle, "(");
        if (colon)
            *colon = 0;
        put_str(&w->pickle, text);
        if (colon)
            put_int(&w->pickle, strtoll(colon + 1, NULL, 10));
        PUT(&w->pickle, "tR");
        return;
    }
    ck_assert_ptr_nonnull(colon);
    *colon = 0;
    put_global(&w->pickle, text, colon + 1);
    PUT(&w->pickle, ")R");
}

/* A tensor of two uint8 by the call that newer dtypes need. */
static inline void emit_v3(writing *w)
{
    char key[8];
    ck_assert_uint_lt(w->count, 96);
    snprintf(key, sizeof key, "%u", w->count);
    w->sizes[w->count++] = 8;
    put_global(&w->pickle, "torch._utils", "_rebuild_tensor_v3");
    PUT(&w->pickle, "((");
    put_str(&w->pickle, "storage");
    put_global(&w->pickle, "torch.storage", "UntypedStorage");
    put_str(&w->pickle, key);
    put_str(&w->pickle, "cpu");
    PUT(&w->pickle, "K\x08tQK\0K\2\x85K\1\x85\x89");
    put_global(&w->pickle, "collections", "OrderedDict");
    PUT(&w->pickle, ")R");
    put_global(&w->pickle, "torch", "uint8");
    PUT(&w->pickle, "tR");
}

/* Eight bytes by the usual call; `sizes`: its shape and strides, as opcodes. */
static inline void emit_v2(writing *w, const char *storage, const char *sizes, bool conj)
{
    char key[8];
    ck_assert_uint_lt(w->count, 96);
    snprintf(key, sizeof key, "%u", w->count);
    w->sizes[w->count++] = 8;
    put_global(&w->pickle, "torch._utils", "_rebuild_tensor_v2");
    PUT(&w->pickle, "((");
    put_str(&w->pickle, "storage");
    put_global(&w->pickle, "torch", storage);
    put_str(&w->pickle, key);
    put_str(&w->pickle, "cpu");
    PUT(&w->pickle, "K\1tQ");
    put_int(&w->pickle, 0);
    put(&w->pickle, sizes, strlen(sizes));
    PUT(&w->pickle, "\x89");
    put_global(&w->pickle, "collections", "OrderedDict");
    PUT(&w->pickle, ")R");
    if (conj) {
        PUT(&w->pickle, "}");
        put_str(&w->pickle, "conj");
        PUT(&w->pickle, "\x88s");
    }
    PUT(&w->pickle, "tR");
}

/* A sparse tensor of one value: coo says whether it is coalesced, as newer ones do. */
static inline void emit_sparse(writing *w, bool coo)
{
    put_global(&w->pickle, "torch._utils", "_rebuild_sparse_tensor");
    PUT(&w->pickle, "(");
    put_global(&w->pickle, "torch.serialization", "_get_layout");
    put_str(&w->pickle, coo ? "torch.sparse_coo" : "torch.sparse_csr");
    PUT(&w->pickle, "\x85R(");
    emit_v2(w, "LongStorage", coo ? "K\1K\1\x86K\1K\1\x86" : "K\1\x85K\1\x85", false);
    if (!coo)
        emit_v2(w, "LongStorage", "K\1\x85K\1\x85", false);
    emit_v2(w, "DoubleStorage", "K\1\x85K\1\x85", false);
    put_global(&w->pickle, "torch", "Size");
    put(&w->pickle, coo ? "K\3\x85\x85R\x88" : "K\1K\3\x86\x85R", coo ? 6 : 7);
    PUT(&w->pickle, "ttR");
}

static void emit(writing *w)
{
    if (take(w, "v3")) {
        emit_v3(w);
        return;
    }
    if (take(w, "conj")) {
        emit_v2(w, "ComplexFloatStorage", "K\1\x85K\1\x85", true);
        return;
    }
    if (take(w, "coo") || take(w, "csr")) {
        emit_sparse(w, w->at[-1] == 'o');
        return;
    }
    if (take(w, "is ")) {
        char text[120];
        size_t n = strcspn(w->at, ",]})"), colon = strcspn(w->at, ":");
        ck_assert(n < sizeof text && colon < n);
        memcpy(text, w->at, n);
        text[colon] = text[n] = 0;
        w->at += n;
        put_global(&w->pickle, text, text + colon + 1);
        return;
    }
    if (take(w, "{")) {
        PUT(&w->pickle, "}(");
        emit_all(w, '}');
        PUT(&w->pickle, "u");
    } else if (take(w, "[")) {
        PUT(&w->pickle, "](");
        emit_all(w, ']');
        PUT(&w->pickle, "e");
    } else if (take(w, "(")) {
        PUT(&w->pickle, "(");
        emit_all(w, ')');
        PUT(&w->pickle, "t");
    } else if (*w->at == '\'') {
        emit_text(w);
    } else if (take(w, "True")) {
        PUT(&w->pickle, "\x88");
    } else if (take(w, "False")) {
        PUT(&w->pickle, "\x89");
    } else if (take(w, "None")) {
        PUT(&w->pickle, "N");
    } else if (take(w, "meta[")) {
        emit_meta(w);
    } else if (take(w, "bytes")) { /* as protocol 2 has them */
        put_global(&w->pickle, "_codecs", "encode");
        put_str(&w->pickle, "ab");
        put_str(&w->pickle, "latin1");
        PUT(&w->pickle, "\x86R");
    } else if (take(w, "device@")) {
        emit_class(w, true);
    } else if (take(w, "new ")) {
        emit_class(w, false);
    } else {
        for (size_t i = 0; i < sizeof storage_kinds / sizeof *storage_kinds; i++) {
            size_t n = strlen(storage_kinds[i].word);
            if (strncmp(w->at, storage_kinds[i].word, n) == 0 && w->at[n] == '@') {
                w->at += n + 1;
                emit_tensor(w, i);
                return;
            }
        }
        ck_assert_msg((*w->at >= '0' && *w->at <= '9') || *w->at == '-' || strncmp(w->at, "nan", 3) == 0 ||
                          strncmp(w->at, "inf", 3) == 0,
                      "what is this? %s", w->at);
        emit_number(w);
    }
}

/* fill: four bytes that all storages repeat; NULL: zeros. */
static inline void write_object(const char *path, const char *text, const char *fill)
{
    static writing w;
    static archive a;
    static char names[96][24];
    static unsigned char data[8192];
    memset(&w, 0, sizeof w);
    memset(&a, 0, sizeof a);
    w.at = text;
    PUT(&w.pickle, "\x80\2");
    emit(&w);
    ck_assert_msg(*w.at == 0, "left over: %s", w.at);
    PUT(&w.pickle, ".");
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = fill ? (unsigned char)fill[i % 4] : 0;
    add_record(&a, &(record){.name = "x/data.pkl", .data = w.pickle.data, .size = w.pickle.size});
    for (unsigned i = 0; i < w.count; i++) {
        snprintf(names[i], sizeof names[i], "x/data/%u", i);
        ck_assert_uint_le(w.sizes[i], sizeof data);
        add_record(&a, &(record){.name = names[i], .data = data, .size = (size_t)w.sizes[i]});
    }
    add_record(&a, &(record){.name = "x/version", .data = "3\n", .size = 2});
    put_end(&a, a.count, "");
    write_to(path, a.file.data, a.file.size);
}

/* ---- the usual checkpoint: a weight of [2,3] and a bias of [3] under AdamW */
#define MODEL(tag) "'model':{'a':f32@" tag "[2,3],'b':f32@" tag "[3]}"
#define STATE(step, tag)                                                                                               \
    "'state':{0:{'step':" step ",'exp_avg':f32@" tag "[2,3],'exp_avg_sq':f32@" tag "[2,3]},1:{'step':" step            \
    ",'exp_avg':f32@" tag "[3],'exp_avg_sq':f32@" tag "[3]}}"
#define GROUPS(more)                                                                                                   \
    "'param_groups':[{'lr':0.1,'betas':(0.9,0.99),'eps':1e-8,'weight_decay':0.0," more "'params':[0,1]}]"
#define OPTIMIZER(step, tag, more) "'optimizer':{" STATE(step, tag) "," GROUPS(more) "}"
#define FILE_OF(step, tag, more) "{" MODEL(tag) "," OPTIMIZER(step, tag, more) "}"
#define PLAIN FILE_OF("f32@cpu[]", "cpu", "'initial_lr':0.1,")

static inline ckpt_status doctor_of(const char *path, ckpt_doctor_options *options, ckpt_doctor_result *result,
                                    ckpt_report *report)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s: %s", path, err.message);
    ckpt_status status = ckpt_doctor(reader, options, result, report, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    ckpt_reader_close(reader);
    return status;
}
#endif
