/* format/folder/hf_index.c - the index file of a model in shards: {"metadata": {"total_size": N}, "weight_map": {tensor: file}}. */
#include "codec/json.h"
#include "format/folder/hf.h"

#include <stdlib.h>

enum { DEPTH = 64 };

typedef ckpt__hf sharded;

static ckpt_status map_entry(sharded *s, ckpt_str tensor, ckpt_str file, ckpt_error *err)
{
    char one[160];
    size_t number = s->shard_count;
    if (!ckpt__grow(&s->tensors, &s->capacity, s->count + 1, sizeof *s->tensors) ||
        !ckpt__grow(&s->shards, &s->shard_capacity, s->shard_count + 1, sizeof *s->shards))
        return ckpt__hf_no_memory(s, err);
    ckpt_str name = ckpt__arena_str(s->arena, tensor.data, tensor.size);
    int put = name.data ? ckpt__hash_put(s->by_tensor, name.data, name.size, s->count, NULL) : -1;
    if (put == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, s->label, "its weight_map lists the tensor '%s' twice",
                          ckpt__escape(one, sizeof one, name.data, name.size));
    if (put < 0)
        return ckpt__hf_no_memory(s, err);
    if (!ckpt__hash_get(s->by_file, file.data, file.size, &number)) {
        ckpt_str kept = ckpt__arena_str(s->arena, file.data, file.size);
        if (!kept.data || ckpt__hash_put(s->by_file, kept.data, kept.size, number, NULL) < 0)
            return ckpt__hf_no_memory(s, err);
        if (memchr(kept.data, '\0', kept.size))
            return ckpt__fail(err, CKPT_E_FORMAT, s->label, "its weight_map names the file '%s', with a NUL in it",
                              ckpt__escape(one, sizeof one, kept.data, kept.size));
        s->shards[s->shard_count++] = (ckpt__hf_shard){.name = kept}; /* an index file names fewer than 2^32 */
    }
    s->shards[number].tensors++;
    if (s->count > 0) {
        ckpt_str last = s->tensors[s->count - 1].name;
        size_t n = last.size < name.size ? last.size : name.size;
        int order = memcmp(last.data, name.data, n);
        s->sorted = s->sorted && (order < 0 || (order == 0 && last.size < name.size));
    }
    s->tensors[s->count].name = name;
    s->tensors[s->count].shard = (uint32_t)number;
    s->tensors[s->count++].found = false;
    return CKPT_OK;
}

static ckpt_status read_map(sharded *s, ckpt__json *j, ckpt_error *err)
{
    ckpt__buf key_text = {0}, file_text = {0};
    ckpt_str key, file;
    int more = 1;
    ckpt_status status = ckpt__json_expect(j, CKPT__JSON_OBJECT, err);
    while (status == CKPT_OK && (more = ckpt__json_member(j, &key_text, &key, err)) > 0) {
        status = ckpt__json_string(j, &file_text, &file, err);
        if (status == CKPT_OK)
            status = map_entry(s, key, file, err);
    }
    ckpt__buf_free(&key_text);
    ckpt__buf_free(&file_text);
    return more < 0 ? (ckpt_status)more : status;
}

/* {"total_size": N, ...}; some programs write it as a float, or something else: then it says nothing. */
static ckpt_status read_metadata(sharded *s, ckpt_str text, ckpt_error *err)
{
    static const char *const names[] = {"total_size"};
    ckpt_str total;
    double real;
    size_t at = 0;
    while (at < text.size && memchr(" \t\r\n", text.data[at], 4))
        at++;
    if (at == text.size || text.data[at] != '{')
        return CKPT_OK;
    ckpt_status status = ckpt__json_split(text.data, text.size, DEPTH, s->label, names, &total, 1, err);
    if (status < 0 || !total.data)
        return status;
    while (total.size && memchr(" \t\r\n", total.data[0], 4)) {
        total.data++;
        total.size--;
    }
    s->has_total = ckpt__parse_i64(total.data, total.size, &s->total);
    if (!s->has_total && ckpt__parse_double(total.data, total.size, &real) && real >= 0 && real < 9e18) {
        s->total = (int64_t)real;
        s->has_total = (double)s->total == real;
    }
    return CKPT_OK;
}

ckpt_status ckpt__hf_parse_index(ckpt__hf *s, const char *text, size_t size, ckpt_error *err)
{
    ckpt__buf scratch = {0};
    ckpt_str key, range;
    bool seen = false;
    int more = 1;
    ckpt__json *j = malloc(sizeof *j);
    if (!j)
        return ckpt__hf_no_memory(s, err);
    ckpt__json_start(j, text, size, DEPTH, s->label);
    ckpt_status status = ckpt__json_expect(j, CKPT__JSON_OBJECT, err);
    while (status == CKPT_OK && (more = ckpt__json_member(j, &scratch, &key, err)) > 0) {
        if (ckpt__str_is(key, "weight_map")) {
            status = seen ? ckpt__json_wrong(j, err, "it has two members 'weight_map'") : read_map(s, j, err);
            seen = true;
        } else if (ckpt__str_is(key, "metadata")) {
            status = ckpt__json_skip(j, &range, err);
            if (status == CKPT_OK)
                status = read_metadata(s, range, err);
        } else
            status = ckpt__json_skip(j, NULL, err);
    }
    status = more < 0 ? (ckpt_status)more : status;
    if (status == CKPT_OK)
        status = ckpt__json_expect(j, CKPT__JSON_END, err);
    if (status == CKPT_OK && !seen)
        status =
            ckpt__fail(err, CKPT_E_FORMAT, s->label, "it has no member 'weight_map', so it is not an index of shards");
    ckpt__buf_free(&scratch);
    free(j);
    return status;
}
