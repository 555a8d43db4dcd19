/* examine/diff.c - what differs between two checkpoints: names first, then values, side by side. */
#include "examine/diff_work.h"
#include "base/first_sizes.h"

#include <stdio.h>
#include <stdlib.h>

const char *ckpt_diff_status_name(ckpt_diff_status status)
{
    static const char *const names[] = {"same", "changed", "added", "removed", "tied"};
    return status >= CKPT_DIFF_SAME && status <= CKPT_DIFF_TIED ? names[status] : "same";
}

const char *ckpt_diff_what_name(unsigned bit)
{
    static const char *const names[] = {"kind", "dtype", "shape", "layout", "device", "value"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (bit == 1u << i)
            return names[i];
    return NULL;
}

const char *ckpt_diff_match_name(ckpt_diff_match match)
{
    static const char *const names[] = {"none", "name", "canonical", "prefix"};
    return match >= CKPT_MATCH_NONE && match <= CKPT_MATCH_PREFIX ? names[match] : "none";
}

ckpt_status ckpt__differ_no_memory(const ckpt__differ *d)
{
    bool limit =
        (d->a.arena && ckpt__arena_over_limit(d->a.arena)) || (d->b.arena && ckpt__arena_over_limit(d->b.arena));
    return limit
               ? ckpt__fail(
                     d->err, CKPT_E_LIMIT, "a diff",
                     "the names and values to compare would take far more memory than suits the files' size: they are not "
                     "compared")
               : ckpt__fail_memory(d->err, "a diff", 0);
}

bool ckpt__differ_note(const ckpt__differ *d, ckpt_severity severity, const char *code, const char *tensor,
                       const char *message)
{
    return !d->report || ckpt__report_add(d->report, severity, code, tensor, NULL, "%s", message);
}

/* ---- tensors */

static const ckpt_tensor_info *info_of(const ckpt__diff_side *s, const ckpt__thing *t)
{
    return &s->reader->index->tensors[t->tensor].info;
}

static bool is_wanted(const ckpt__differ *d, const ckpt_tensor_info *a, const ckpt_tensor_info *b)
{
    const ckpt_diff_options *o = d->options;
    return !o->wanted || (a && o->wanted(o->wanted_ctx, a)) || (b && o->wanted(o->wanted_ctx, b));
}

static bool same_shape(const ckpt_tensor_info *a, const ckpt_tensor_info *b)
{
    if (!a->shape || !b->shape)
        return a->ndim == b->ndim && (a->ndim == 0 || a->shape == b->shape);
    return ckpt__same_shape(a->shape, a->ndim, b->shape, b->ndim);
}

static bool same_or_none(ckpt_str a, ckpt_str b)
{
    return a.data ? ckpt__str_equal(a, b) : !b.data;
}

/* What can be told without reading. A tag that one format does not keep differs from nothing. */
static unsigned compare_infos(const ckpt_tensor_info *a, const ckpt_tensor_info *b)
{
    unsigned what = a->dtype == b->dtype ? 0u : CKPT_DIFF_DTYPE;
    what |= same_shape(a, b) ? 0u : CKPT_DIFF_SHAPE;
    bool layout =
        same_or_none(a->extra->layout, b->extra->layout) && same_or_none(a->extra->quantizer, b->extra->quantizer);
    what |= layout ? 0u : CKPT_DIFF_LAYOUT;
    what |= a->device.data && b->device.data && !ckpt__str_equal(a->device, b->device) ? CKPT_DIFF_DEVICE : 0u;
    return what;
}

static void count_row(ckpt_diff_counts *n, const ckpt_diff_tensor *row)
{
    uint64_t *const by_status[] = {&n->same, &n->changed, &n->added, &n->removed, &n->tied};
    uint64_t *const by_match[] = {NULL, &n->by_name, &n->by_canonical, &n->by_prefix};
    ++*by_status[row->status];
    if (by_match[row->match])
        ++*by_match[row->match];
}

static ckpt_status put_row(ckpt__differ *d, const ckpt_diff_tensor *row)
{
    count_row(&d->result->of_tensors, row);
    if (row->status == CKPT_DIFF_SAME && !d->options->keep_same)
        return CKPT_OK;
    if (!ckpt__grow(&d->tensors, &d->tensor_capacity, d->tensor_count + 1, sizeof *d->tensors))
        return ckpt__differ_no_memory(d);
    d->tensors[d->tensor_count++] = *row;
    return CKPT_OK;
}

static ckpt_status compare_tensors(ckpt__differ *d, const ckpt__thing *a, const ckpt__thing *b)
{
    ckpt_diff_tensor row = {.match = a->match, .a = info_of(&d->a, a), .b = info_of(&d->b, b)};
    row.name = row.a->name;
    if (!is_wanted(d, row.a, row.b))
        return CKPT_OK;
    row.what = compare_infos(row.a, row.b);
    ckpt_status status = CKPT_OK;
    if (!(row.what & (CKPT_DIFF_SHAPE | CKPT_DIFF_LAYOUT)))
        status = ckpt__differ_values(d, &row, a->tensor, b->tensor);
    row.what |= ckpt__differ_same_quantizer(d, a, b) ? 0u : CKPT_DIFF_LAYOUT;
    row.status = row.what ? CKPT_DIFF_CHANGED : CKPT_DIFF_SAME;
    return status == CKPT_OK ? put_row(d, &row) : status;
}

/* One that the other side does not have, or has under another of its names. */
static ckpt_status put_alone(ckpt__differ *d, const ckpt__diff_side *s, const ckpt__thing *t)
{
    const ckpt_tensor_info *info = info_of(s, t);
    bool first = s == &d->a, tied = t->tied != SIZE_MAX;
    ckpt_diff_tensor row = {.status = tied    ? CKPT_DIFF_TIED
                                      : first ? CKPT_DIFF_REMOVED
                                              : CKPT_DIFF_ADDED,
                            .name = info->name};
    if (t->frame || !is_wanted(d, info, NULL) || ckpt__differ_in_parts(s, first ? &d->b : &d->a, t))
        return CKPT_OK;
    row.a = first ? info : NULL;
    row.b = first ? NULL : info;
    if (tied) {
        char message[700], own[300], other[300];
        row.tied = info_of(s, &s->things[t->tied])->name;
        ckpt__escape(own, sizeof own, info->name.data, info->name.size);
        ckpt__escape(other, sizeof other, row.tied.data, row.tied.size);
        snprintf(message, sizeof message, "in %s it is a second name of '%s', which %s has", s->letter, other,
                 first ? "B" : "A");
        if (!ckpt__differ_note(d, CKPT_SEVERITY_NOTE, "tied-name", own, message))
            return ckpt__differ_no_memory(d);
    }
    return put_row(d, &row);
}

static ckpt_status each_tensor(ckpt__differ *d)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < d->a.reader->index->tensor_count; i++) {
        const ckpt__thing *a = &d->a.things[i];
        if (a->other == SIZE_MAX)
            status = put_alone(d, &d->a, a);
        else if (d->b.things[a->other].tensor != SIZE_MAX)
            status = compare_tensors(d, a, &d->b.things[a->other]);
    }
    for (size_t i = 0; status == CKPT_OK && i < d->b.reader->index->tensor_count; i++)
        if (d->b.things[i].other == SIZE_MAX)
            status = put_alone(d, &d->b, &d->b.things[i]);
    return status;
}

/* ---- what was not compared */

static bool keeps_devices(const ckpt__index *index)
{
    for (size_t i = 0; i < index->tensor_count; i++)
        if (index->tensors[i].info.device.data)
            return true;
    return false;
}

static ckpt_status note_devices(ckpt__differ *d)
{
    const ckpt__diff_side *a = &d->a, *b = &d->b;
    bool of_a = keeps_devices(a->reader->index), of_b = keeps_devices(b->reader->index);
    char message[200];
    if (of_a == of_b || !a->reader->index->tensor_count || !b->reader->index->tensor_count)
        return CKPT_OK;
    snprintf(message, sizeof message, "%s, of format %s, keeps no devices: they were not compared",
             of_a ? b->letter : a->letter, of_a ? b->reader->index->format : a->reader->index->format);
    return ckpt__differ_note(d, CKPT_SEVERITY_NOTE, "no-device-tags", NULL, message) ? CKPT_OK
                                                                                     : ckpt__differ_no_memory(d);
}

/* ---- all */

static void sum_bytes(ckpt__differ *d)
{
    for (size_t i = 0; i < d->a.reader->index->tensor_count; i++) {
        size_t other = d->a.things[i].other;
        if (other == SIZE_MAX || d->b.things[other].tensor == SIZE_MAX)
            continue;
        const ckpt_tensor_info *a = info_of(&d->a, &d->a.things[i]), *b = info_of(&d->b, &d->b.things[other]);
        if (same_shape(a, b) && is_wanted(d, a, b))
            d->total += a->nbytes + b->nbytes;
    }
}

static ckpt_status run(ckpt__differ *d, const ckpt_reader *a, const ckpt_reader *b)
{
    ckpt_status status = ckpt__diff_side_open(d, &d->a, a, "A");
    if (status == CKPT_OK)
        status = ckpt__diff_side_open(d, &d->b, b, "B");
    if (status == CKPT_OK)
        status = ckpt__differ_match(d);
    if (status == CKPT_OK)
        status = note_devices(d);
    if (status < 0)
        return status;
    sum_bytes(d);
    status = each_tensor(d);
    if (status == CKPT_OK && (!d->options->wanted || d->options->values_too))
        status = ckpt__differ_scalars(d);
    const ckpt_diff_counts *t = &d->result->of_tensors, *s = &d->result->of_scalars;
    d->result->same = t->changed + t->added + t->removed + s->changed + s->added + s->removed == 0;
    return status;
}

/* The lists, once the rows lie where they stay. */
static ckpt_status list_rows(ckpt__differ *d)
{
    ckpt_diff_result *r = d->result;
    d->tensor_list = calloc(d->tensor_count + 1, sizeof *d->tensor_list);
    d->scalar_list = calloc(d->scalar_count + 1, sizeof *d->scalar_list);
    if (!d->tensor_list || !d->scalar_list)
        return ckpt__differ_no_memory(d);
    for (size_t i = 0; i < d->tensor_count; i++)
        d->tensor_list[i] = &d->tensors[i];
    for (size_t i = 0; i < d->scalar_count; i++)
        d->scalar_list[i] = &d->scalars[i];
    r->tensors = d->tensor_list;
    r->tensor_count = d->tensor_count;
    r->scalars = d->scalar_list;
    r->scalar_count = d->scalar_count;
    return CKPT_OK;
}

ckpt_status ckpt_diff(const ckpt_reader *a, const ckpt_reader *b, const ckpt_diff_options *options,
                      ckpt_diff_result *result, ckpt_report *report, ckpt_error *err)
{
    ckpt_diff_options o;
    ckpt_diff_result answer;
    memset(&answer, 0, sizeof answer);
    if (!a || !b || !result)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "two readers and a place for the answer are required");
    ckpt_status status = CKPT__CHECK_ANSWER(ckpt_diff_result, result, err);
    if (status == CKPT_OK)
        CKPT__GIVE_ANSWER(ckpt_diff_result, result, &answer);
    if (status == CKPT_OK)
        status = CKPT__TAKE_OPTIONS(ckpt_diff_options, &o, options, err);
    if (status < 0)
        return status;
    if (o.tolerant && !(o.atol >= 0 && o.rtol >= 0))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "atol and rtol are numbers from 0 on");
    ckpt__differ *d = calloc(1, sizeof *d);
    if (!d)
        return ckpt__fail_memory(err, "a diff", sizeof *d);
    d->options = &o;
    d->result = &answer;
    d->report = report;
    d->err = err;
    answer.owned = d;
    status = run(d, a, b);
    if (status == CKPT_OK)
        status = list_rows(d);
    d->options = NULL;
    d->result = NULL;
    if (status < 0)
        ckpt_diff_result_clear(&answer);
    CKPT__GIVE_ANSWER(ckpt_diff_result, result, &answer);
    return status;
}

void ckpt_diff_result_clear(ckpt_diff_result *result)
{
    ckpt_diff_result own;
    CKPT__TAKE_ANSWER(ckpt_diff_result, &own, result);
    ckpt__differ *d = own.owned;
    if (d) {
        ckpt__diff_side_close(&d->a);
        ckpt__diff_side_close(&d->b);
        free(d->tensor_list);
        free(d->scalar_list);
        free(d->tensors);
        free(d->scalars);
        free(d);
    }
    memset(&own, 0, sizeof own);
    CKPT__GIVE_ANSWER(ckpt_diff_result, result, &own);
}
