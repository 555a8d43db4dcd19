/* migrate/digest_options.c - the options that decide on the target, as a text of words that a journal keeps:
 *
 *     to=dcp world=4 cast=*=bfloat16,head=float32 param-names=#09af31c2d4e5f607
 *
 * A word is an option that was given, under its name for the command, and its value; of a list the elements with commas between them.
 * What a word cannot hold is %XX, and a long value is its digest behind a '#'. So another run can say which option differs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "migrate/out.h"

enum { LONGEST = 60, SHOWN = 3 };

typedef enum kind { TEXT, LIST, FLAG, RANK_STATE, OPTIMIZER, U32, U64, I64 } kind;

typedef struct row {
    const char *name;
    kind kind;
    size_t at, count_at; /* offsets in ckpt_migrate_options; count_at: of a list, its count */
} row;

#define ONE(name, kind, member)                                                                                        \
    {                                                                                                                  \
        name, kind, offsetof(ckpt_migrate_options, member), 0                                                          \
    }
#define MANY(name, member, count)                                                                                      \
    {                                                                                                                  \
        name, LIST, offsetof(ckpt_migrate_options, member), offsetof(ckpt_migrate_options, count)                      \
    }

/* Those that say how it is done (force, no_sync, verify, memory, threads, ...), or what is permitted (lossy, allow_unused), are not among
 * them; nor are those that are a part of the source (also). */
static const row rows[] = {
    ONE("from", TEXT, from),
    ONE("to", TEXT, to),
    ONE("world", U32, target_world),
    ONE("mesh", TEXT, mesh),
    MANY("cut", cuts, cut_count),
    ONE("rank-state", RANK_STATE, rank_state),
    MANY("shard", shard, shard_count),
    ONE("layout", TEXT, layout),
    ONE("layout-side", TEXT, layout_side),
    MANY("var", layout_vars, layout_var_count),
    ONE("mesh", TEXT, mesh),
    MANY("cut", cuts, cut_count),
    ONE("expert-parallel", U32, expert_parallel),
    ONE("layers-apart", FLAG, layers_apart),
    ONE("map-location", TEXT, map_location),
    ONE("map-device-objects", FLAG, map_device_objects),
    ONE("optimizer", OPTIMIZER, optimizer),
    ONE("rank", I64, ranks.rank),
    ONE("local-rank", I64, ranks.local_rank),
    ONE("ranks.world", I64, ranks.world),
    MANY("param-names", param_names, param_name_count),
    ONE("assume-order", TEXT, assume_order),
    MANY("strip-prefix", strip_prefix, strip_prefix_count),
    MANY("rename", rename, rename_count),
    ONE("add-prefix", TEXT, add_prefix),
    MANY("tensor", only_tensor, only_tensor_count),
    MANY("role", only_role, only_role_count),
    MANY("device", only_device, only_device_count),
    MANY("drop", drop, drop_count),
    MANY("replace", replace, replace_count),
    ONE("weights-only", FLAG, weights_only),
    ONE("no-optimizer", FLAG, no_optimizer),
    ONE("merge-adapter", TEXT, merge_adapter),
    MANY("cast", cast, cast_count),
    ONE("plain", FLAG, plain),
    MANY("fix", fix, fix_count),
    ONE("salvage", FLAG, salvage),
    ONE("max-shard-size", U64, max_shard_size),
};

/* ---- said */

static void put_text(ckpt__buf *b, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p <= ' ' || *p >= 0x7f || *p == '%' || *p == ',' || *p == '#')
            ckpt__buf_printf(b, "%%%02x", *p);
        else
            ckpt__buf_char(b, (char)*p);
}

static void put_list(ckpt__buf *b, const ckpt_migrate_options *o, const row *r)
{
    const char *const *list;
    size_t count;
    memcpy(&list, (const char *)o + r->at, sizeof list);
    memcpy(&count, (const char *)o + r->count_at, sizeof count);
    for (size_t i = 0; i < count; i++) {
        if (i)
            ckpt__buf_char(b, ',');
        put_text(b, list[i]);
    }
}

/* The value of an option. Nothing is put where it was not given. */
static void put_value(ckpt__buf *b, const ckpt_migrate_options *o, const row *r)
{
    static const char *const states[] = {[CKPT_RANK_STATE_DROP] = "drop", [CKPT_RANK_STATE_DERIVE] = "derive"};
    const char *at = (const char *)o + r->at, *text = NULL;
    uint64_t number = 0;
    uint32_t small = 0;
    bool flag = false;
    switch (r->kind) {
    case TEXT:
        memcpy(&text, at, sizeof text);
        break;
    case LIST:
        put_list(b, o, r);
        break;
    case FLAG:
        memcpy(&flag, at, sizeof flag);
        break;
    case RANK_STATE:
        text = states[o->rank_state];
        break;
    case OPTIMIZER:
        text = o->optimizer ? ckpt_optimizer_kind_name(o->optimizer) : NULL;
        break;
    case U32:
        memcpy(&small, at, sizeof small);
        break;
    case U64:
    case I64:
        memcpy(&number, at, sizeof number);
        break;
    }
    if (text)
        put_text(b, text);
    if (flag)
        ckpt__buf_str(b, "yes");
    if (number || small)
        ckpt__buf_printf(b, "%" PRIu64, number + small);
}

void ckpt__options_say(const ckpt__migration *m, ckpt__buf *out)
{
    ckpt_migrate_options o = m->options;
    ckpt__buf value = {0};
    o.to = m->to;
    if (o.ranks.world == 1 || o.ranks.world == (int64_t)o.target_world) /* --world says both */
        o.ranks.world = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        value.size = 0;
        put_value(&value, &o, &rows[i]);
        if (!value.size && !value.failed)
            continue;
        ckpt__buf_printf(out, "%s%s=", out->size ? " " : "", rows[i].name);
        if (value.size > LONGEST) {
            char digest[CKPT__SHA256_TEXT];
            ckpt__sha256 s;
            ckpt__sha256_begin(&s);
            ckpt__sha256_add(&s, value.data, value.size);
            ckpt__sha256_end(&s, digest);
            ckpt__buf_printf(out, "#%.16s", digest);
        } else
            ckpt__buf_add(out, value.data, value.size);
        out->failed |= value.failed;
    }
    ckpt__buf_free(&value);
}

/* ---- compared */

ckpt_str ckpt__options_word(const char *words, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = words; *p;) {
        const size_t size = strcspn(p, " ");
        if (size > n && strncmp(p, name, n) == 0 && p[n] == '=')
            return (ckpt_str){p + n + 1, size - n - 1};
        p += size + (p[size] == ' ');
    }
    return (ckpt_str){NULL, 0};
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
}

/* As the user has written it, nearly; nothing of what is known by its digest alone. */
static void show_value(ckpt__buf *b, const char *when, ckpt_str value)
{
    ckpt__buf text = {0};
    char shown[4 * LONGEST + 1];
    if (!value.data) {
        ckpt__buf_printf(b, "not given %s", when);
        return;
    }
    if (value.size && *value.data == '#') {
        ckpt__buf_printf(b, "a long one %s", when);
        return;
    }
    for (size_t i = 0; i < value.size; i++)
        if (value.data[i] == '%' && value.size - i > 2) {
            ckpt__buf_char(&text, (char)(digit(value.data[i + 1]) << 4 | digit(value.data[i + 2])));
            i += 2;
        } else
            ckpt__buf_char(&text, value.data[i]);
    if (text.failed)
        b->failed = true;
    else
        ckpt__buf_printf(b, "'%s' %s", ckpt__escape(shown, sizeof shown, text.data ? text.data : "", text.size), when);
    ckpt__buf_free(&text);
}

size_t ckpt__options_differ(const char *then, const char *now, ckpt__buf *out)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ckpt_str a = ckpt__options_word(then, rows[i].name), b = ckpt__options_word(now, rows[i].name);
        if (!a.data == !b.data && (!a.data || ckpt__str_equal(a, b)))
            continue;
        if (count++ >= SHOWN)
            continue;
        ckpt__buf_printf(out, "%s--%s (", count > 1 ? ", " : "", rows[i].name);
        show_value(out, "then", a);
        ckpt__buf_str(out, ", ");
        show_value(out, "now", b);
        ckpt__buf_char(out, ')');
    }
    if (count > SHOWN)
        ckpt__buf_printf(out, " and %zu more", count - SHOWN);
    return count;
}
