/* format/native/columns.c - what is known of each record beside the safetensors header. Records of which the same is
 * known are of one kind, and a checkpoint has a few dozen: so a record costs two or three bytes, and a million fit.
 *
 *   "columns":{"kinds":K,"kind":[RUNS: a kind for every record],
 *              "device":{"names":["cuda:0","cpu"],"values":[RUNS: a value for every kind]},
 *              ... role, state_key, group, class, quantizer likewise ...
 *              "param":{"values":[...]},"flags":{"values":[...]},
 *              "params":{"names":[...],"values":[RUNS: a value for every record whose kind has param 3]}}
 *
 * RUNS are values in which [v,n] stands for n times v. A value is 0 (nothing) or the number of a name, from 1. Of
 * param, 1 is the record's own name and 2 the middle of its canonical name "optimizer.<param>.<state_key>", so that a
 * million moments do not repeat a million names. Flags are a sum of bits. A column that is empty throughout is left
 * out.
 *
 * Three parameters on cuda:0 and then "optimizer.a.step" on the cpu are four records of two kinds:
 *
 *   "columns":{"kinds":2,"kind":[[0,3],1],
 *              "device":{"names":["cuda:0","cpu"],"values":[1,2]},"role":{"names":["param","step"],"values":[1,2]},
 *              "state_key":{"names":["step"],"values":[0,1]},"param":{"values":[0,2]}}
 *
 * Kind 1 has device 2 (cpu), role 2 (step), state_key 1 (step), and the middle of its name, "a", as its parameter. */
#include "format/native/native.h"

#include <stddef.h>
#include <stdlib.h>

enum { FLAG_GRAD = 1, FLAG_INSIDE = 2, FLAG_CONJ = 4, FLAG_NEG = 8, FLAGS = 15 };
enum { PARAM_OWN = 1, PARAM_MIDDLE = 2, PARAM_LISTED = 3 };
#define OPTIMIZER "optimizer."

enum { DEVICE, ROLE, STATE_KEY, GROUP, CLASS, QUANTIZER, PARAM, FLAG, COLUMNS };
enum { KINDS = COLUMNS, KIND, PARAMS, MEMBERS };
static const char *const members[MEMBERS] = {"device", "role",  "state_key", "group", "class", "quantizer",
                                             "param",  "flags", "kinds",     "kind",  "params"};
/* The columns whose values are names, and where the names go; SIZE_MAX: not simply into the record. */
static const size_t offsets[] = {
    [DEVICE] = offsetof(ckpt_tensor_info, device),
    [ROLE] = SIZE_MAX,
    [STATE_KEY] = offsetof(ckpt_tensor_info, state_key),
    [GROUP] = offsetof(ckpt_tensor_info, group),
    [CLASS] = SIZE_MAX,
    [QUANTIZER] = SIZE_MAX,
};

/* What many records have in common. Its bytes are a hash key: no padding. */
typedef struct kind {
    uint32_t
        value[COLUMNS]; /* by column: 0 nothing, else the number of a name from 1; PARAM_* and FLAG_* in the last two */
} kind;

static ckpt_str field(const ckpt_tensor_info *info, int c)
{
    ckpt_str s;
    if (c == ROLE)
        return info->role == CKPT_ROLE_NONE ? (ckpt_str){NULL, 0} : ckpt__s(ckpt_role_name(info->role));
    if (c == PARAM)
        return info->param;
    if (c == CLASS || c == QUANTIZER)
        return c == CLASS ? info->extra->class_name : info->extra->quantizer;
    memcpy(&s, (const char *)info + offsets[c], sizeof s);
    return s;
}

/* The part of "optimizer.<param>.<state_key>" between its ends; data NULL where the name has another form. */
static ckpt_str middle(const ckpt_tensor_info *info)
{
    const size_t start = sizeof OPTIMIZER - 1;
    ckpt_str name = info->name, key = info->state_key;
    if (!key.data || !ckpt__has_prefix(name, OPTIMIZER) || name.size <= start + key.size + 1)
        return (ckpt_str){NULL, 0};
    size_t end = name.size - key.size - 1;
    if (name.data[end] != '.' || memcmp(name.data + end + 1, key.data, key.size) != 0)
        return (ckpt_str){NULL, 0};
    return (ckpt_str){name.data + start, end - start};
}

/* ---- writing */

/* The names of one column in the order in which they came. */
typedef struct dictionary {
    ckpt__hash *numbers; /* name -> its place in `names`, from 0; NULL: empty */
    ckpt_str *names;
    size_t count, capacity; /* heap; texts borrowed from the infos */
    ckpt_str last;          /* the name that was asked for last; data NULL: none was */
    uint32_t last_number;
} dictionary;

/* A run that grows: 0, 0, 0, 1 are written as [0,3],1, and one or two of a kind as they are. */
typedef struct run {
    ckpt__buf *out; /* borrowed */
    uint64_t value;
    size_t n;   /* how often `value` came; 0: nothing is pending */
    bool comma; /* something is written already */
} run;

typedef struct writer {
    dictionary names[QUANTIZER + 1], params;
    ckpt__arena *arena;       /* of the kinds, which are keys of their table */
    ckpt__hash *kind_numbers; /* kind -> its number, from 0 */
    const kind **kinds;
    size_t kind_count, kind_capacity;
    size_t last_kind;          /* number of the kind that was asked for last, once there is one */
    ckpt__buf records, listed; /* the runs of "kind" and of "params" */
} writer;

/* The number of a name, which is added where it is new; 0 when memory is short. */
static uint32_t look_up(dictionary *d, ckpt_str name)
{
    size_t existing;
    if (!d->numbers && !(d->numbers = ckpt__hash_new(16)))
        return 0;
    int put = ckpt__hash_put(d->numbers, name.data, name.size, d->count, &existing);
    if (put == 0)
        return (uint32_t)existing + 1;
    if (put < 0 || d->count >= UINT32_MAX - 1 || !ckpt__grow(&d->names, &d->capacity, d->count + 1, sizeof *d->names))
        return 0;
    d->names[d->count++] = name;
    return (uint32_t)d->count;
}

/* Mostly a record has the very text of the one before. */
static uint32_t number_of(dictionary *d, ckpt_str name)
{
    if (d->last.data != name.data || d->last.size != name.size) {
        d->last_number = look_up(d, name);
        d->last = d->last_number ? name : (ckpt_str){NULL, 0};
    }
    return d->last_number;
}

static void end_run(run *r)
{
    size_t single = r->n > 2 ? 0 : r->n;
    if (r->n > 2) {
        ckpt__buf_str(r->out, r->comma ? ",[" : "[");
        ckpt__json_put_u64(r->out, r->value);
        ckpt__buf_char(r->out, ',');
        ckpt__json_put_u64(r->out, r->n);
        ckpt__buf_char(r->out, ']');
    }
    for (size_t i = 0; i < single; i++) {
        ckpt__buf_str(r->out, r->comma || i ? "," : "");
        ckpt__json_put_u64(r->out, r->value);
    }
    r->comma |= r->n > 0;
    r->n = 0;
}

static void add_run(run *r, uint64_t value)
{
    if (r->n && value != r->value)
        end_run(r);
    r->value = value;
    r->n++;
}

/* What is known of one record; false when memory is short. */
static bool describe(writer *w, const ckpt_tensor_info *info, kind *k)
{
    memset(k, 0, sizeof *k);
    for (int c = DEVICE; c <= QUANTIZER; c++) {
        ckpt_str s = field(info, c);
        if (s.data && (k->value[c] = number_of(&w->names[c], s)) == 0)
            return false;
    }
    if (info->param.data)
        k->value[PARAM] = ckpt__str_equal(info->param, info->name)     ? PARAM_OWN
                          : ckpt__str_equal(info->param, middle(info)) ? PARAM_MIDDLE
                                                                       : PARAM_LISTED;
    k->value[FLAG] = (info->requires_grad ? FLAG_GRAD : 0u) | (info->inside ? FLAG_INSIDE : 0u) |
                     (info->conj ? FLAG_CONJ : 0u) | (info->neg ? FLAG_NEG : 0u);
    return true;
}

static bool number_of_kind(writer *w, const kind *k, size_t *number)
{
    *number = w->last_kind;
    if (w->kind_count && memcmp(k, w->kinds[*number], sizeof *k) == 0)
        return true;
    if (ckpt__hash_get(w->kind_numbers, (const char *)k, sizeof *k, number)) {
        w->last_kind = *number;
        return true;
    }
    const kind *copy = (const kind *)(const void *)ckpt__arena_copy(w->arena, (const char *)k, sizeof *k);
    *number = w->kind_count;
    if (!copy || !ckpt__grow(&w->kinds, &w->kind_capacity, w->kind_count + 1, sizeof *w->kinds) ||
        ckpt__hash_put(w->kind_numbers, (const char *)copy, sizeof *copy, w->kind_count, NULL) < 0)
        return false;
    w->last_kind = w->kind_count;
    w->kinds[w->kind_count++] = copy;
    return true;
}

static bool describe_all(writer *w, const ckpt_tensor_info *const *infos, size_t n)
{
    run records = {.out = &w->records}, listed = {.out = &w->listed};
    for (size_t i = 0; i < n; i++) {
        kind k;
        size_t number;
        if (!describe(w, infos[i], &k) || !number_of_kind(w, &k, &number))
            return false;
        add_run(&records, number);
        if (k.value[PARAM] == PARAM_LISTED) {
            uint32_t param = number_of(&w->params, infos[i]->param);
            if (param == 0)
                return false;
            add_run(&listed, param);
        }
    }
    end_run(&records);
    end_run(&listed);
    return true;
}

static void put_names(const dictionary *d, ckpt__buf *out)
{
    ckpt__buf_str(out, "\"names\":[");
    for (size_t i = 0; i < d->count; i++) {
        ckpt__buf_str(out, i ? "," : "");
        ckpt__json_put_string(out, d->names[i].data, d->names[i].size);
    }
    ckpt__buf_str(out, "],");
}

static void put_all(const writer *w, ckpt__buf *out)
{
    ckpt__buf_printf(out, "\"columns\":{\"kinds\":%zu,\"kind\":[", w->kind_count);
    ckpt__buf_add(out, w->records.data ? w->records.data : "", w->records.size);
    ckpt__buf_char(out, ']');
    for (int c = 0; c < COLUMNS; c++) {
        run values = {.out = out};
        uint32_t any = 0;
        for (size_t i = 0; i < w->kind_count; i++)
            any |= w->kinds[i]->value[c];
        if (!any)
            continue;
        ckpt__buf_printf(out, ",\"%s\":{", members[c]);
        if (c <= QUANTIZER)
            put_names(&w->names[c], out);
        ckpt__buf_str(out, "\"values\":[");
        for (size_t i = 0; i < w->kind_count; i++)
            add_run(&values, w->kinds[i]->value[c]);
        end_run(&values);
        ckpt__buf_str(out, "]}");
    }
    if (w->params.count) {
        ckpt__buf_str(out, ",\"params\":{");
        put_names(&w->params, out);
        ckpt__buf_str(out, "\"values\":[");
        ckpt__buf_add(out, w->listed.data, w->listed.size);
        ckpt__buf_str(out, "]}");
    }
    ckpt__buf_char(out, '}');
}

/* checked: of each column the text that was good last; mostly it is this one's too. */
static ckpt_status check_text(const ckpt_tensor_info *info, ckpt_str checked[COLUMNS], ckpt_error *err)
{
    char text[128];
    for (int c = DEVICE; c <= PARAM; c++) {
        ckpt_str s = field(info, c);
        if (c == ROLE || (s.data == checked[c].data && s.size == checked[c].size))
            continue;
        checked[c] = s;
        if (s.data && !ckpt__utf8_valid(s.data, s.size))
            return ckpt__fail(err, CKPT_E_UNSUPPORTED,
                              ckpt__escape(text, sizeof text, info->name.data, info->name.size), "its %s is not UTF-8",
                              members[c]);
    }
    return CKPT_OK;
}

ckpt_status ckpt__native_put_columns(const ckpt_tensor_info *const *infos, size_t n, ckpt__buf *out, ckpt_error *err)
{
    writer w = {.arena = ckpt__arena_new(0), .kind_numbers = ckpt__hash_new(64)};
    ckpt_status status = CKPT_OK;
    ckpt_str checked[COLUMNS] = {{NULL, 0}};
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = check_text(infos[i], checked, err);
    if (status == CKPT_OK && w.arena && w.kind_numbers && describe_all(&w, infos, n) && !w.records.failed &&
        !w.listed.failed)
        put_all(&w, out);
    else if (status == CKPT_OK)
        status = ckpt__fail_memory(err, "columns", n);
    for (int c = DEVICE; c <= QUANTIZER; c++) {
        ckpt__hash_free(w.names[c].numbers);
        free(w.names[c].names);
    }
    ckpt__hash_free(w.params.numbers);
    free(w.params.names);
    ckpt__hash_free(w.kind_numbers);
    free(w.kinds);
    ckpt__arena_free(w.arena);
    ckpt__buf_free(&w.records);
    ckpt__buf_free(&w.listed);
    return status;
}

/* ---- reading */

typedef struct names {
    ckpt_str *items;
    size_t count, capacity; /* heap; texts in the arena of the index */
} names;

typedef struct reader {
    ckpt__index *x; /* that is filled */
    size_t base, n; /* its tensors [base, base + n) */
    kind *kinds;
    size_t kind_count;
    const ckpt_tensor_extra **extras; /* of each kind; NULL: not made yet */
    names names[QUANTIZER + 1], params;
} reader;

static ckpt_status get_names(reader *r, ckpt_str text, const char *what, names *out, ckpt_error *err)
{
    ckpt__json j;
    ckpt__buf scratch = {0};
    ckpt__json_start(&j, text.data, text.size, CKPT__NATIVE_DEPTH, what);
    ckpt_status status = ckpt__json_expect(&j, CKPT__JSON_ARRAY, err);
    while (status == CKPT_OK && ckpt__json_next(&j, err) != CKPT__JSON_ARRAY_END) {
        ckpt_str s = {NULL, 0};
        if (j.event == CKPT__JSON_STRING)
            s = ckpt__json_text(&j, &scratch);
        if (s.data)
            s = ckpt__arena_str(r->x->arena, s.data, s.size);
        if (j.event != CKPT__JSON_STRING)
            status =
                j.event == CKPT__JSON_ERROR ? j.status : ckpt__json_wrong(&j, err, "a column's names must be strings");
        else if (!s.data || !ckpt__grow(&out->items, &out->capacity, out->count + 1, sizeof *out->items))
            status = ckpt__fail_memory(err, "columns", text.size);
        else
            out->items[out->count++] = s;
    }
    ckpt__buf_free(&scratch);
    return status;
}

/* The values of RUNS one after the other. */
typedef struct runs {
    ckpt__json j;
    int64_t value, left; /* the value of the run that is open, and how often it is still to come */
} runs;

static ckpt_status start_runs(runs *s, ckpt_str text, const char *what, ckpt_error *err)
{
    s->left = 0;
    ckpt__json_start(&s->j, text.data ? text.data : "[]", text.data ? text.size : 2, CKPT__NATIVE_DEPTH, what);
    return ckpt__json_expect(&s->j, CKPT__JSON_ARRAY, err);
}

/* The next value, 0 <= value < limit. */
static ckpt_status next_value(runs *s, uint64_t limit, uint32_t *out, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (s->left == 0) {
        ckpt__json_event event = ckpt__json_next(&s->j, err);
        s->left = 1;
        if (event == CKPT__JSON_ERROR)
            return s->j.status;
        if (event == CKPT__JSON_ARRAY_END)
            return ckpt__json_wrong(&s->j, err, "a column with too few values");
        if (event != CKPT__JSON_ARRAY)
            status = ckpt__json_this_int(&s->j, &s->value, err);
        else if ((status = ckpt__json_int(&s->j, &s->value, err)) == CKPT_OK &&
                 (status = ckpt__json_int(&s->j, &s->left, err)) == CKPT_OK)
            status = ckpt__json_expect(&s->j, CKPT__JSON_ARRAY_END, err);
    }
    if (status < 0)
        return status;
    if (s->left < 1 || s->value < 0 || (uint64_t)s->value >= limit || s->value > UINT32_MAX)
        return ckpt__json_wrong(&s->j, err, "a column's value is %lld, expected 0 to %llu", (long long)s->value,
                                (unsigned long long)(limit ? limit - 1 : 0));
    s->left--;
    *out = (uint32_t)s->value;
    return CKPT_OK;
}

static ckpt_status end_runs(runs *s, ckpt_error *err)
{
    if (s->left || ckpt__json_next(&s->j, err) != CKPT__JSON_ARRAY_END)
        return s->j.status < 0 ? s->j.status : ckpt__json_wrong(&s->j, err, "a column with too many values");
    return CKPT_OK;
}

/* {"names":[...],"values":[...]}: the names are taken, the range of the values is given back. */
static ckpt_status open_column(reader *r, ckpt_str text, int member, names *out, ckpt_str *values, ckpt_error *err)
{
    static const char *const parts[] = {"names", "values"};
    ckpt_str part[2];
    ckpt_status status =
        ckpt__json_split(text.data, text.size, CKPT__NATIVE_DEPTH, members[member], parts, part, 2, err);
    if (status == CKPT_OK && out && part[0].data)
        status = get_names(r, part[0], members[member], out, err);
    if (status == CKPT_OK && !part[1].data)
        status = ckpt__fail(err, CKPT_E_FORMAT, members[member], "a column without \"values\"");
    *values = part[1];
    return status;
}

static ckpt_status get_column(reader *r, ckpt_str text, int c, ckpt_error *err)
{
    runs values;
    ckpt_str range;
    ckpt_status status = open_column(r, text, c, c <= QUANTIZER ? &r->names[c] : NULL, &range, err);
    uint64_t limit = c == FLAG ? FLAGS + 1 : c == PARAM ? PARAM_LISTED + 1 : r->names[c].count + 1;
    if (status == CKPT_OK)
        status = start_runs(&values, range, members[c], err);
    for (size_t i = 0; status == CKPT_OK && i < r->kind_count; i++)
        status = next_value(&values, limit, &r->kinds[i].value[c], err);
    return status == CKPT_OK ? end_runs(&values, err) : status;
}

static ckpt_status set_param(reader *r, ckpt_tensor_info *info, uint32_t value, runs *listed, ckpt_error *err)
{
    uint32_t number = 0;
    ckpt_str s = info->name;
    char text[160];
    if (value == PARAM_LISTED) {
        ckpt_status status = next_value(listed, r->params.count + 1, &number, err);
        if (status == CKPT_OK && number)
            info->param = r->params.items[number - 1];
        return status;
    }
    if (value == PARAM_MIDDLE && !(s = middle(info)).data)
        return ckpt__fail(err, CKPT_E_FORMAT, ckpt__escape(text, sizeof text, info->name.data, info->name.size),
                          "column \"param\" is 2, but the name is not optimizer.<param>.<state_key>");
    info->param = value == PARAM_OWN ? s : ckpt__arena_str(r->x->arena, s.data, s.size);
    return info->param.data ? CKPT_OK : ckpt__fail_memory(err, "columns", s.size);
}

static ckpt_str name_of(const reader *r, const kind *k, int c)
{
    return k->value[c] ? r->names[c].items[k->value[c] - 1] : (ckpt_str){NULL, 0};
}

/* What few tensors have, the same for all of a kind; NULL: no memory. */
static const ckpt_tensor_extra *extra_of(reader *r, const kind *k)
{
    const ckpt_tensor_extra **known = &r->extras[k - r->kinds];
    ckpt_tensor_extra *made;
    if (!k->value[CLASS] && !k->value[QUANTIZER])
        return &ckpt__no_extra;
    if (!*known && (made = ckpt__arena_alloc(r->x->arena, sizeof *made))) {
        made->class_name = name_of(r, k, CLASS);
        made->quantizer = name_of(r, k, QUANTIZER);
        *known = made;
    }
    return *known;
}

static ckpt_status set_record(reader *r, size_t i, const kind *k, runs *listed, ckpt_error *err)
{
    ckpt__tensor *t = &r->x->tensors[r->base + i];
    ckpt_tensor_info *info = &t->info;
    for (int c = DEVICE; c <= GROUP; c++) {
        if (!k->value[c])
            continue;
        ckpt_str s = name_of(r, k, c);
        if (c == ROLE) {
            info->role = ckpt_role_from_name(s.data);
            info->role = info->role == CKPT_ROLE_NONE ? CKPT_ROLE_OTHER : info->role; /* of a later minor version */
        } else
            memcpy((char *)info + offsets[c], &s, sizeof s);
    }
    if (!(info->extra = extra_of(r, k)))
        return ckpt__fail_memory(err, "columns", sizeof *info->extra);
    if (k->value[DEVICE] && t->whole && !r->x->storages[t->storage].device.data)
        r->x->storages[t->storage].device = info->device;
    info->requires_grad = k->value[FLAG] & FLAG_GRAD;
    info->inside = k->value[FLAG] & FLAG_INSIDE;
    info->conj = k->value[FLAG] & FLAG_CONJ;
    info->neg = k->value[FLAG] & FLAG_NEG;
    return k->value[PARAM] ? set_param(r, info, k->value[PARAM], listed, err) : CKPT_OK;
}

static ckpt_status set_records(reader *r, ckpt_str kinds, ckpt_str params, ckpt_error *err)
{
    runs records, listed;
    uint32_t number = 0;
    ckpt_str range = {NULL, 0};
    ckpt_status status = start_runs(&records, kinds, members[KIND], err);
    if (status == CKPT_OK && params.data)
        status = open_column(r, params, PARAMS, &r->params, &range, err);
    if (status == CKPT_OK)
        status = start_runs(&listed, range, members[PARAMS], err);
    for (size_t i = 0; status == CKPT_OK && i < r->n; i++) {
        status = next_value(&records, r->kind_count, &number, err);
        if (status == CKPT_OK)
            status = set_record(r, i, &r->kinds[number], &listed, err);
    }
    if (status == CKPT_OK)
        status = end_runs(&records, err);
    return status == CKPT_OK ? end_runs(&listed, err) : status;
}

static ckpt_status get_all(reader *r, const ckpt_str *range, ckpt_error *err)
{
    ckpt__json j;
    int64_t count = 0;
    ckpt_status status = CKPT_OK;
    if (range[KINDS].data) {
        ckpt__json_start(&j, range[KINDS].data, range[KINDS].size, CKPT__NATIVE_DEPTH, members[KINDS]);
        status = ckpt__json_int(&j, &count, err);
    }
    if (status < 0)
        return status;
    if (count < 0 || (uint64_t)count > r->n)
        return ckpt__fail(err, CKPT_E_FORMAT, members[KINDS], "%lld kinds of %zu tensors", (long long)count, r->n);
    r->kind_count = (size_t)count;
    r->kinds = calloc(r->kind_count + 1, sizeof *r->kinds);
    r->extras = calloc(r->kind_count + 1, sizeof *r->extras);
    if (!r->kinds || !r->extras)
        return ckpt__fail_memory(err, "columns", r->kind_count * sizeof *r->kinds);
    for (int c = 0; status == CKPT_OK && c < COLUMNS; c++)
        if (range[c].data)
            status = get_column(r, range[c], c, err);
    return status == CKPT_OK ? set_records(r, range[KIND], range[PARAMS], err) : status;
}

ckpt_status ckpt__native_get_columns(ckpt_str text, ckpt__index *x, size_t base, size_t n, ckpt_error *err)
{
    reader r = {.x = x, .base = base, .n = n};
    ckpt_str range[MEMBERS];
    ckpt_status status =
        ckpt__json_split(text.data, text.size, CKPT__NATIVE_DEPTH, "columns", members, range, MEMBERS, err);
    if (status == CKPT_OK)
        status = get_all(&r, range, err);
    for (int c = DEVICE; c <= QUANTIZER; c++)
        free(r.names[c].items);
    free(r.params.items);
    free(r.kinds);
    free(r.extras);
    return status;
}
