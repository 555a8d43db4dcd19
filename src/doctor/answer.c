/* doctor/answer.c - a fact to the row that says what becomes of it; the findings of all facts, and the worst outcome. */
#include "doctor/facts.h"

#include <stdio.h>
#include "doctor/text.h"

static const ckpt_str none = {NULL, 0};

/* ---- facts to rows */

ckpt__situation ckpt__doctor_situation(const ckpt__examination *p)
{
    ckpt__situation s = {0, 0, 0, 0, 0, 0, 0};
    s.program = ckpt__kind_bit(p->options->optimizer);
    s.inside = p->inside;
    s.amp = p->result->amp ? CKPT__AMP : CKPT__NO_AMP;
    return s;
}

static bool asks(unsigned mask, unsigned value)
{
    return mask == 0 || (mask & value) != 0;
}

static bool fits_but_version(const ckpt__examination *p, const ckpt__row *r, const ckpt__situation *s)
{
    if (!asks(r->loaders, 1U << p->loader->loader))
        return false;
    return asks(r->kind, s->kind) && asks(r->step, s->step) && asks(r->step_dtype, s->step_dtype) &&
           asks(r->home, s->home) && asks(r->program, s->program) && asks(r->amp, s->amp) && asks(r->inside, p->inside);
}

static bool fits(const ckpt__examination *p, const ckpt__row *r, const ckpt__situation *s)
{
    bool python = p->loader->python || p->loader->loader == CKPT_LOADER_TORCH_CPP;
    if ((python && r->from && p->version < r->from) || (python && r->until && p->version > r->until))
        return false;
    return fits_but_version(p, r, s);
}

size_t ckpt__doctor_row_count(void)
{
    return ckpt__rows_place_count + ckpt__rows_load_count + ckpt__rows_state_count + ckpt__rows_job_count;
}

static const ckpt__row *row_at(size_t i)
{
    if (i < ckpt__rows_place_count)
        return &ckpt__rows_place[i];
    i -= ckpt__rows_place_count;
    if (i < ckpt__rows_load_count)
        return &ckpt__rows_load[i];
    i -= ckpt__rows_load_count;
    return i < ckpt__rows_state_count ? &ckpt__rows_state[i] : &ckpt__rows_job[i - ckpt__rows_state_count];
}

/* For a torch newer than what is known: has what becomes of this fact changed between versions before? */
static void note_version(ckpt__examination *p, ckpt__fact fact, const ckpt__situation *s)
{
    bool refused = fact >= CKPT__REFUSED && fact <= CKPT__UNTAKEN;
    char asked[32];
    for (size_t i = 0; i < ckpt__doctor_row_count(); i++) {
        const ckpt__row *r = row_at(i);
        bool bound = r->from || r->until || refused;
        if (r->fact != fact || !bound || !fits_but_version(p, r, s))
            continue;
        snprintf(asked, sizeof asked, "%d.%d", p->options->torch_major, p->options->torch_minor);
        ckpt__doctor_note(p, CKPT__TORCH_MATTERS, NULL, none, asked, r->code, NULL);
        return;
    }
}

const ckpt__row *ckpt__doctor_note(ckpt__examination *p, ckpt__fact fact, const ckpt__situation *situation,
                                   ckpt_str tensor, const char *a, const char *b, const char *c)
{
    ckpt__situation s = situation ? *situation : ckpt__doctor_situation(p);
    bool of_state = fact <= CKPT__ORDER_SEVERAL || (fact >= CKPT__SCHEDULER_LAMBDAS && fact <= CKPT__SCHEDULER_EPOCH) ||
                    (fact >= CKPT__STEP_NAN && fact <= CKPT__LR_ODD) || fact == CKPT__SCHEDULE_OVER ||
                    fact == CKPT__SCHEDULE_ENDED;
    if (p->unread && of_state && fact != CKPT__WEIGHTS_FEWER && fact != CKPT__STEP_OF_NAME)
        return NULL;
    if (p->beyond && fact != CKPT__TORCH_MATTERS && p->loader->loader != CKPT_LOADER_CKPT)
        note_version(p, fact, &s);
    for (size_t i = 0; i < ckpt__doctor_row_count(); i++) {
        const ckpt__row *r = row_at(i);
        if (r->fact != fact || !fits(p, r, &s))
            continue;
        ckpt__found *f = &p->found[i];
        if (f->count++ > 0)
            return r;
        if (tensor.data)
            ckpt__escape(f->tensor, sizeof f->tensor, tensor.data, tensor.size);
        snprintf(f->a, sizeof f->a, "%s", a ? a : "");
        snprintf(f->b, sizeof f->b, "%s", b ? b : "");
        snprintf(f->c, sizeof f->c, "%s", c ? c : "");
        return r;
    }
    return NULL;
}

/* ---- the answer */

/* From better to worse; unknown weighs more than "differently", less than a failure that is sure. */
static int weight(ckpt_outcome outcome)
{
    static const int weights[] = {
        [CKPT_OUTCOME_RESUMES] = 0, [CKPT_OUTCOME_WEIGHTS_ONLY] = 1,  [CKPT_OUTCOME_RESUMES_DIFFERENTLY] = 2,
        [CKPT_OUTCOME_UNKNOWN] = 3, [CKPT_OUTCOME_FAILS_AT_STEP] = 4, [CKPT_OUTCOME_FAILS_AT_LOAD] = 5};
    return weights[outcome];
}

/* Facts of which there is one finding a class. */
static bool is_refusal(ckpt__fact fact)
{
    return fact >= CKPT__REFUSED && fact <= CKPT__REFUSED_CPP && fact != CKPT__TORCH_REFUSES;
}

static bool say(ckpt__examination *p, ckpt_report *report, const ckpt__row *r, const ckpt__found *f)
{
    ckpt__buf message = {NULL, 0, 0, false}, fix = {NULL, 0, 0, false};
    ckpt__doctor_expand(&message, r->message, p, r, f);
    ckpt__doctor_expand(&fix, r->fix, p, r, f);
    if (*f->tensor && !is_refusal(r->fact))
        ckpt__buf_printf(&message, f->count == 1 ? " (%s)" : " (the first: %s)", f->tensor);
    if (r->evidence == CKPT__UNVERIFIED)
        ckpt__buf_str(&message, " [not verified]");
    bool added = !message.failed && !fix.failed &&
                 ckpt__report_add(report, r->severity, r->code, f->tensor, fix.data, "%s", message.data);
    ckpt__buf_free(&message);
    ckpt__buf_free(&fix);
    return added;
}

/* One finding a class that is refused. */
static bool say_refusals(ckpt__examination *p, ckpt_report *report, const ckpt__row *row)
{
    bool added = true;
    for (size_t i = 0; i < p->refusal_count && added; i++) {
        const ckpt__refusal *r = &p->refusals[i];
        ckpt__found f = {.count = r->count};
        if (r->row != row)
            continue;
        int from =
            row->fact == CKPT__UNBUILT || row->fact == CKPT__UNTAKEN ? ckpt__doctor_there_from(r->class_name) : 0;
        snprintf(f.b, sizeof f.b, "%d.%d", from / 100, from % 100);
        ckpt__escape(f.a, sizeof f.a, r->class_name.data, r->class_name.size);
        snprintf(f.tensor, sizeof f.tensor, "%s", r->where);
        snprintf(f.c, sizeof f.c, "%s%s%s", r->count > 1 ? "the first is " : "", *r->where ? "" : "the root", r->where);
        added = say(p, report, row, &f);
    }
    if (added && p->refusals_more && p->refusal_count && p->refusals[0].row == row)
        added = ckpt__report_add(report, row->severity, row->code, NULL, NULL,
                                 "and %llu places with further classes; ckpt-inspect scan lists all",
                                 (unsigned long long)p->refusals_more);
    return added;
}

ckpt_status ckpt__doctor_answer(ckpt__examination *p, ckpt_report *report)
{
    p->result->outcome = CKPT_OUTCOME_RESUMES;
    for (size_t i = 0; i < ckpt__doctor_row_count(); i++) {
        const ckpt__row *r = row_at(i);
        const ckpt__found *f = &p->found[i];
        ckpt_outcome outcome =
            p->beyond && (r->from || r->until || is_refusal(r->fact)) ? CKPT_OUTCOME_UNKNOWN : r->outcome;
        if (f->count == 0)
            continue;
        if (weight(outcome) > weight(p->result->outcome))
            p->result->outcome = outcome;
        if (*r->code && !(is_refusal(r->fact) ? say_refusals(p, report, r) : say(p, report, r, f)))
            return ckpt__fail_memory(p->err, "the report", 0);
    }
    return CKPT_OK;
}
