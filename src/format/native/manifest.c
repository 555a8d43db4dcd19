/* format/native/manifest.c - checkpoint.json. It begins exactly {"ckpt.crc32":"xxxxxxxx", and that CRC-32 is over the whole
 * text with the 8 digits taken as '0': a flipped bit in a size or a checksum must not pass for another checkpoint. */
#include "format/native/manifest.h"
#include "codec/crc32.h"
#include "codec/json.h"

#include <cjson/cJSON.h>

#define START "{\"ckpt.crc32\":\""
enum {
    CRC_AT = sizeof START - 1,
    VERSION = 1,
    DEPTH = 8,
    FILES = sizeof((ckpt__manifest *)0)->files / sizeof(ckpt__manifest_file)
};

static uint32_t crc_of(const char *text, size_t size)
{
    uint32_t crc = ckpt__crc32(0, text, CRC_AT);
    crc = ckpt__crc32(crc, "00000000", 8);
    return ckpt__crc32(crc, text + CRC_AT + 8, size - CRC_AT - 8);
}

static void put_number(ckpt__buf *b, const char *key, int64_t value)
{
    ckpt__buf_str(b, key);
    ckpt__json_put_i64(b, value);
}

ckpt_status ckpt__manifest_write(const ckpt__manifest *m, ckpt__buf *out, ckpt_error *err)
{
    size_t at = out->size;
    char digits[8];
    if (m->count > FILES)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a manifest of %zu files; it holds %d", m->count, (int)FILES);
    ckpt__buf_str(out, START "00000000\",\n \"manifest\":");
    ckpt__json_put_u64(out, VERSION);
    put_number(out, ",\n \"step\":", m->step);
    put_number(out, ",\n \"world\":", m->world);
    put_number(out, ",\n \"rank\":", m->rank);
    if (m->time)
        put_number(out, ",\n \"time\":", m->time);
    if (m->save) /* as text: JSON's numbers are not sure to hold 64 bits */
        ckpt__buf_printf(out, ",\n \"save\":\"%016llx\"", (unsigned long long)m->save);
    ckpt__buf_str(out, ",\n \"files\":[");
    for (size_t i = 0; i < m->count; i++) {
        ckpt__buf_str(out, i ? ",\n  {\"name\":" : "\n  {\"name\":");
        ckpt__json_put_string(out, m->files[i].name.data, m->files[i].name.size);
        ckpt__buf_str(out, ",\"size\":");
        ckpt__json_put_u64(out, m->files[i].size);
        ckpt__hex_crc(digits, m->files[i].crc);
        ckpt__buf_str(out, ",\"crc32\":\"");
        ckpt__buf_add(out, digits, 8);
        ckpt__buf_str(out, "\"}");
    }
    ckpt__buf_str(out, "]}\n");
    if (out->failed)
        return ckpt__fail_memory(err, "manifest", out->size);
    ckpt__hex_crc(out->data + at + CRC_AT, crc_of(out->data + at, out->size - at));
    return CKPT_OK;
}

static ckpt_status check_crc(const char *text, size_t size, const char *label, ckpt_error *err)
{
    char digits[9] = "", wanted[9] = "";
    uint32_t stored;
    if (size < CRC_AT + 8 || memcmp(text, START, CRC_AT) != 0)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "not a manifest of ckpt: it does not begin with %s", START);
    ckpt__hex_crc(wanted, crc_of(text, size));
    ckpt__escape(digits, sizeof digits, text + CRC_AT, 8);
    if (!ckpt__hex_crc_get(text + CRC_AT, &stored) || strcmp(digits, wanted) != 0)
        return ckpt__fail(err, CKPT_E_DAMAGED, label,
                          "the manifest has the checksum %s, computed %s: damaged, or edited", digits, wanted);
    return CKPT_OK;
}

static ckpt_status get_number(ckpt_str range, const char *key, int64_t fallback, int64_t *out, ckpt_error *err)
{
    ckpt__json j;
    *out = fallback;
    if (!range.data)
        return CKPT_OK;
    ckpt__json_start(&j, range.data, range.size, DEPTH, key);
    return ckpt__json_int(&j, out, err);
}

/* 16 lower-case hexadecimal digits in quotes. */
static ckpt_status get_save(ckpt_str range, const char *label, uint64_t *out, ckpt_error *err)
{
    uint32_t high = 0, low = 0;
    *out = 0;
    if (!range.data)
        return CKPT_OK;
    if (range.size != 18 || range.data[0] != '"' || !ckpt__hex_crc_get(range.data + 1, &high) ||
        !ckpt__hex_crc_get(range.data + 9, &low))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "\"save\" is not 16 hexadecimal digits");
    *out = (uint64_t)high << 32 | low;
    return CKPT_OK;
}

/* A name below the directory and nothing else; the source checks it again when it opens it. */
static bool is_plain_name(const char *name)
{
    return name && name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

static ckpt_status get_file(const ckpt__json *j, ckpt_str text, ckpt__arena *a, ckpt__manifest_file *out,
                            ckpt_error *err)
{
    const double exact = 9007199254740992.0; /* 2^53: cJSON's numbers are doubles */
    cJSON *tree = NULL;
    ckpt_status status = ckpt__json_tree(text.data, text.size, j->what, &tree, err);
    if (status < 0)
        return status;
    const cJSON *name = ckpt__json_get(tree, "name"), *size = ckpt__json_get(tree, "size"),
                *crc = ckpt__json_get(tree, "crc32");
    double bytes = cJSON_IsNumber(size) ? size->valuedouble : -1;
    if (!cJSON_IsString(name) || !is_plain_name(name->valuestring))
        status = ckpt__json_wrong(j, err, "a file needs a \"name\" without '/'");
    else if (!(bytes >= 0 && bytes < exact) || bytes - (double)(uint64_t)bytes != 0)
        status = ckpt__json_wrong(j, err, "a file needs a \"size\" in bytes");
    else if (!cJSON_IsString(crc) || strlen(crc->valuestring) != 8 || !ckpt__hex_crc_get(crc->valuestring, &out->crc))
        status = ckpt__json_wrong(j, err, "a file needs a \"crc32\" of 8 lower-case hexadecimal digits");
    else {
        out->size = (uint64_t)bytes;
        out->name = ckpt__arena_str(a, name->valuestring, strlen(name->valuestring));
        status = out->name.data ? CKPT_OK : ckpt__fail_memory(err, "manifest", 0);
    }
    cJSON_Delete(tree);
    return status;
}

static ckpt_status get_files(ckpt_str range, const char *label, ckpt__arena *a, ckpt__manifest *out, ckpt_error *err)
{
    ckpt__json j;
    if (!range.data)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "the manifest has no \"files\"");
    ckpt__json_start(&j, range.data, range.size, DEPTH, label);
    ckpt_status status = ckpt__json_expect(&j, CKPT__JSON_ARRAY, err);
    while (status == CKPT_OK) {
        ckpt__json peek = j; /* an element begins here, or the array ends */
        ckpt_str element;
        if (ckpt__json_next(&peek, err) == CKPT__JSON_ARRAY_END)
            break;
        if (out->count == FILES)
            return ckpt__json_wrong(&j, err, "more than %d files", (int)FILES);
        status = ckpt__json_skip(&j, &element, err);
        if (status == CKPT_OK)
            status = get_file(&j, element, a, &out->files[out->count++], err);
    }
    for (size_t i = 0; status == CKPT_OK && i < out->count; i++)
        for (size_t k = 0; status == CKPT_OK && k < i; k++)
            if (ckpt__str_equal(out->files[i].name, out->files[k].name))
                status = ckpt__fail(err, CKPT_E_FORMAT, label, "the manifest names the file '%s' twice",
                                    out->files[i].name.data);
    return status;
}

ckpt_status ckpt__manifest_read(const char *text, size_t size, const char *label, ckpt__arena *a, ckpt__manifest *out,
                                ckpt_error *err)
{
    static const char *const keys[] = {"manifest", "step", "world", "rank", "files", "ckpt.crc32", "time", "save"};
    ckpt_str range[8];
    int64_t version = 0;
    memset(out, 0, sizeof *out);
    ckpt_status status = check_crc(text, size, label, err);
    if (status == CKPT_OK)
        ckpt__hex_crc_get(text + CRC_AT, &out->crc);
    if (status == CKPT_OK)
        status = ckpt__json_split(text, size, DEPTH, label, keys, range, 8, err);
    if (status == CKPT_OK)
        status = get_number(range[0], keys[0], 0, &version, err);
    if (status == CKPT_OK && version != VERSION)
        status = ckpt__fail(err, version > VERSION ? CKPT_E_TOO_NEW : CKPT_E_FORMAT, label,
                            "manifest version %lld; this library reads %d", (long long)version, VERSION);
    if (status == CKPT_OK)
        status = get_number(range[1], keys[1], -1, &out->step, err);
    if (status == CKPT_OK)
        status = get_number(range[2], keys[2], 1, &out->world, err);
    if (status == CKPT_OK)
        status = get_number(range[3], keys[3], 0, &out->rank, err);
    if (status == CKPT_OK)
        status = get_number(range[6], keys[6], 0, &out->time, err);
    if (status == CKPT_OK)
        status = get_save(range[7], label, &out->save, err);
    if (status == CKPT_OK && (out->world < 1 || out->rank < 0 || out->rank >= out->world))
        status = ckpt__fail(err, CKPT_E_FORMAT, label, "the manifest is of rank %lld of %lld", (long long)out->rank,
                            (long long)out->world);
    return status == CKPT_OK ? get_files(range[4], label, a, out, err) : status;
}
