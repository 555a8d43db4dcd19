#include "cli/out/checkpoints.h"
#include <inttypes.h>
#include <string.h>

static const checkpoint *item_of(const row_parts *r)
{
    return r->part[0];
}

/* ---- what is more than a value */

void checkpoint_json_epoch(json_out *j, const char *key, int64_t epoch, double exact)
{
    if (epoch >= 0 && exact > (double)epoch)
        json_double(j, key, exact);
    else
        json_int_or_null(j, key, epoch >= 0, epoch);
}

static void json_epoch(json_out *j, const char *key, const row_parts *r)
{
    checkpoint_json_epoch(j, key, item_of(r)->epoch, item_of(r)->epoch_exact);
}

static bool has_epoch(const row_parts *r)
{
    return item_of(r)->epoch >= 0;
}

static ckpt_str epoch_text(char buf[ROW_CELL], const row_parts *r)
{
    const checkpoint *it = item_of(r);
    char number[JSON_DOUBLE_MAX];
    if (it->epoch_exact > (double)it->epoch)
        return rows_print(buf, "%.6s", json_format_double(number, it->epoch_exact));
    return rows_print(buf, "%" PRId64, it->epoch);
}

void checkpoint_json_score(json_out *j, const char *key, const ckpt_score *s)
{
    if (!s->has_best && !s->has_current) {
        json_null(j, key);
        return;
    }
    json_object(j, key);
    json_bytes(j, "name", s->name.data, s->name.size);
    json_double_or_null(j, "best", s->has_best, s->best);
    json_double_or_null(j, "current", s->has_current, s->current);
    json_end_object(j);
}

static void json_score(json_out *j, const char *key, const row_parts *r)
{
    checkpoint_json_score(j, key, &item_of(r)->score);
}

static bool has_score(const row_parts *r)
{
    return item_of(r)->score.has_best || item_of(r)->score.has_current;
}

/* Of this checkpoint, else the best so far. */
static ckpt_str score_text(char buf[ROW_CELL], const row_parts *r)
{
    const ckpt_score *s = &item_of(r)->score;
    return rows_print(buf, "%.6g", s->has_current ? s->current : s->best);
}

static ckpt_str saved_text(char buf[ROW_CELL], const row_parts *r)
{
    struct tm tm;
    time_t t = (time_t)item_of(r)->time;
    bool known =
        t >= 0 && gmtime_r(&t, &tm) && tm.tm_year <= 9999 - 1900 && strftime(buf, ROW_CELL, "%Y-%m-%d %H:%M:%S", &tm);
    return rows_word(known ? buf : NULL);
}

/* "45 s", "12 min", "3 h", "5 d" */
static ckpt_str age_text(char buf[ROW_CELL], const row_parts *r)
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    int64_t age = (int64_t)time(NULL) - item_of(r)->time;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (age >= units[i].seconds)
            return rows_print(buf, "%" PRId64 " %s", age / units[i].seconds, units[i].unit);
    return rows_word("0 s");
}

static bool is_of_several(const row_parts *r)
{
    return item_of(r)->world > 1;
}

static ckpt_str ranks_text(char buf[ROW_CELL], const row_parts *r)
{
    return rows_print(buf, "%" PRId64 "/%" PRId64, item_of(r)->ranks_held, item_of(r)->world);
}

static bool is_read(const row_parts *r)
{
    return !item_of(r)->unread;
}

static ckpt_str plan_text(char buf[ROW_CELL], const row_parts *r)
{
    (void)buf;
    return rows_word(item_of(r)->remove ? "remove" : "keep");
}

static bool is_marked(const row_parts *r)
{
    return item_of(r)->best || item_of(r)->last;
}

static bool knows_best(const row_parts *r)
{
    return item_of(r)->best_known;
}

static ckpt_str mark_text(char buf[ROW_CELL], const row_parts *r)
{
    (void)buf;
    return rows_word(!item_of(r)->best ? "last" : item_of(r)->last ? "best, last" : "best");
}

/* ---- the description */

/* What a run's JSON and a folder's, or their text, have in another order or by another title, stands here twice. */
/* clang-format off */
#define AT(member) .at = offsetof(checkpoint, member)
const row_field checkpoint_fields[] = {
    {"name", NULL, ROW_STR, AT(name), .only = IN_RUN},
    {"name", "name", ROW_STR, AT(name), .only = IN_FOLDER | ON_PAGE},
    {"path", NULL, ROW_WORD, AT(path)},
    {"format", NULL, ROW_WORD, AT(format), .only = IN_FOLDER},
    {"producer", NULL, ROW_WORD, AT(producer), .only = IN_FOLDER},
    {"step", "step", ROW_NUMBER, AT(step), .right = true},
    {"epoch", "epoch", .json = json_epoch, .text = epoch_text, .known = has_epoch, .only = IN_FOLDER | ON_PAGE,
     .if_any = ON_PAGE, .right = true},
    {"score", "score", .json = json_score, .text = score_text, .known = has_score, .only = IN_FOLDER | ON_PAGE,
     .if_any = IN_FOLDER | ON_PAGE, .right = true},
    {"time", "saved (UTC)", ROW_NUMBER, AT(time), .text = saved_text, .only = IN_RUN | ON_PAGE, .width = 19,
     .css = "name word"},
    {"nbytes", "size", ROW_SIZE, AT(nbytes), .width = 10, .right = true},
    {"time", "age", ROW_INT, AT(time), .text = age_text, .only = IN_FOLDER, .width = 6, .right = true},
    {"world", NULL, ROW_INT, AT(world), .only = IN_RUN},
    {"ranks_held", NULL, ROW_INT, AT(ranks_held), .only = IN_RUN},
    {NULL, "ranks", .text = ranks_text, .only = WITH_RANKS, .width = 5, .right = true},
    {NULL, "ranks here", .text = ranks_text, .known = is_of_several, .only = ON_PAGE, .if_any = ON_PAGE, .right = true},
    {"complete", NULL, ROW_BOOL, AT(complete), .known = is_read},
    {"verified", NULL, ROW_BOOL, AT(verified), .only = IN_RUN},
    {NULL, "mark", .text = mark_text, .known = is_marked, .only = IN_FOLDER | ON_PAGE, .if_any = IN_FOLDER | ON_PAGE},
    {"best", NULL, ROW_BOOL, AT(best), .known = knows_best, .only = IN_FOLDER},
    {"last", NULL, ROW_BOOL, AT(last), .only = IN_FOLDER},
    {"checked", NULL, ROW_WORD, AT(checked), .only = IN_FOLDER},
    {"why", NULL, ROW_WORD, AT(why)},
    {"remove", "plan", ROW_BOOL, AT(remove), .text = plan_text, .only = WITH_PLAN, .width = 6},
    {.title = "state"}, /* written by hand: it is coloured, and the reason is wrapped */
    {.key = NULL},
};
/* clang-format on */

/* ---- all of them */

void checkpoints_json(json_out *j, const checkpoint *items, size_t count, unsigned set)
{
    json_array(j, "checkpoints");
    for (size_t i = 0; i < count; i++)
        rows_json(j, checkpoint_fields, set, &(row_parts){{&items[i]}});
    json_end_array(j);
}

const char *checkpoints_metric(const checkpoint *items, size_t count)
{
    const char *metric = NULL;
    for (size_t i = 0; i < count; i++) {
        const ckpt_score *s = &items[i].score;
        if (!s->has_best && !s->has_current)
            continue;
        metric = s->name.data && (!metric || strcmp(metric, s->name.data) == 0) ? s->name.data : "score";
    }
    return metric;
}

static void put_state(const cli *c, const checkpoint *it, size_t used, size_t indent)
{
    printf("%s%s%s", it->style ? cli_style(c, it->style) : "", it->state, it->style ? cli_style(c, "off") : "");
    if (it->why) {
        fputs(": ", stdout);
        cli_put_wrapped(stdout, it->why, used + strlen(it->state) + 2, indent);
    } else {
        putchar('\n');
    }
}

void checkpoints_text(const cli *c, const checkpoint *items, size_t count, unsigned set)
{
    row_text t;
    const char *metric = checkpoints_metric(items, count);
    rows_begin(&t, checkpoint_fields, set, 2);
    for (size_t i = 0; i < t.count; i++)
        if (metric && t.columns[i].field->text == score_text)
            t.columns[i].title = metric;
    for (size_t i = 0; i < count; i++)
        rows_measure(&t, &(row_parts){{&items[i]}});
    rows_head(&t, c);
    for (size_t i = 0; i < count; i++) {
        size_t used = rows_line(&t, &(row_parts){{&items[i]}});
        rows_flush(&t);
        put_state(c, &items[i], used, set & IN_RUN ? t.columns[0].width + 2 : 4);
    }
}
