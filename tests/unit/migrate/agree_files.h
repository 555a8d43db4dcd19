/* migrate/agree_files.h - what test_agree.c writes: maps, and torch files of a model and its optimizer. */
#ifndef AGREE_FILES_H
#define AGREE_FILES_H
#include <ckpt/tensor.h>
#include "../folder_files.h"

/* 'text' as YAML. */
static inline void quote(char *out, size_t size, const char *text, size_t n)
{
    size_t k = 0;
    out[k++] = '\'';
    for (size_t i = 0; i < n && k + 4 < size; i++) {
        if (text[i] == '\'')
            out[k++] = '\'';
        out[k++] = text[i];
    }
    out[k++] = '\'';
    out[k] = '\0';
}

static inline bool is_plain(ckpt_str path)
{
    for (size_t i = 0; i < path.size; i++)
        if ((unsigned char)path.data[i] < ' ' || (unsigned char)path.data[i] > '~')
            return false;
    return path.size > 0;
}

static inline void put_map(const char *file, const char *const *keys, const ckpt_str *paths, size_t count)
{
    char text[4096] = "map: 1\nsource:\n", quoted[1024];
    for (size_t i = 0; i < count; i++)
        if (is_plain(paths[i]) && paths[i].size < 500) {
            quote(quoted, sizeof quoted, paths[i].data, paths[i].size);
            snprintf(text + strlen(text), sizeof text - strlen(text), "  %s: %s\n", keys[i], quoted);
        }
    strcat(text, "default: cpu\n");
    write_text(file, text);
}

/* {'model': {..}, 'optimizer': {..}} */
static inline void write_pair(const char *path, const flat *model, size_t count, void (*put_optimizer)(torch_file *t))
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "model");
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < count; i++) {
        put_str(&t->pickle, model[i].name);
        torch_tensor(t, model[i].ndim, model[i].shape[0], model[i].shape[1], (float)i);
    }
    PUT(&t->pickle, "u");
    put_str(&t->pickle, "optimizer");
    put_optimizer(t);
    PUT(&t->pickle, "u");
    write_torch(path, t);
}

static const flat nets[] = {{"A.w", 2, {3, 4}}, {"A.b", 1, {3, 0}}, {"B.w", 2, {3, 4}}, {"B.b", 1, {3, 0}}};
static const flat wrapped[] = {{"module.w", 2, {3, 4}}, {"module.b", 1, {3, 0}}};

static inline void put_four(torch_file *t)
{
    put_adam(t, nets, 4, 4, 0);
}

static inline void put_two(torch_file *t)
{
    put_adam(t, wrapped, 2, 2, 0);
}

/* As an 8-bit optimizer: step is an int. */
static inline void put_counted(torch_file *t)
{
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "state");
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < 2; i++) {
        put_int(&t->pickle, (int64_t)i);
        PUT(&t->pickle, "}(");
        put_str(&t->pickle, "step");
        put_int(&t->pickle, 7);
        put_str(&t->pickle, "exp_avg");
        torch_tensor(t, wrapped[i].ndim, wrapped[i].shape[0], wrapped[i].shape[1], 100);
        PUT(&t->pickle, "u");
    }
    PUT(&t->pickle, "u");
    put_str(&t->pickle, "param_groups");
    PUT(&t->pickle, "](}(");
    put_str(&t->pickle, "params");
    PUT(&t->pickle, "](");
    put_int(&t->pickle, 0);
    put_int(&t->pickle, 1);
    PUT(&t->pickle, "eueu");
}
#endif
