/* format/folder/one.c - what must agree between the files of one checkpoint: no rank is missing, all are of one step. */
#include "format/folder/folder.h"
#include "format/native/json_values.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- ranks */

static bool of_rank(const ckpt__member *m)
{
    return m->read && m->part == CKPT__PART_RNG && m->number >= 0;
}

/* "rng_state_" of "rng_state_3.pth". */
static size_t stem_size(const char *name)
{
    size_t n = strcspn(name, ".");
    while (n > 0 && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    return n;
}

/* The first number that no file has; they are sorted by it. -1: none. */
static int64_t first_gap(const ckpt__folder *f, const ckpt__member **before, const ckpt__member **behind)
{
    int64_t next = 0;
    *before = *behind = NULL;
    for (size_t i = 0; i < f->count; i++) {
        const ckpt__member *m = &f->members[i];
        if (!of_rank(m))
            continue;
        if (m->number > next) {
            *behind = m;
            return next;
        }
        *before = m;
        next = m->number + 1;
    }
    return -1;
}

ckpt_status ckpt__folder_check_ranks(const ckpt__folder *f, ckpt_report *findings, ckpt_error *err)
{
    const ckpt__member *before, *behind;
    char near[400], wanted[300];
    int64_t gap = first_gap(f, &before, &behind);
    if (gap < 0)
        return CKPT_OK;
    size_t n = stem_size(behind->name);
    snprintf(wanted, sizeof wanted, "%.*s%lld%s", (int)n, behind->name, (long long)gap, strchr(behind->name, '.'));
    if (before)
        snprintf(near, sizeof near, "%s is in %s, %s in %s", before->name, ckpt__source_root(f->source, before->root),
                 behind->name, ckpt__source_root(f->source, behind->root));
    else
        snprintf(near, sizeof near, "%s is in %s", behind->name, ckpt__source_root(f->source, behind->root));
    if (f->source->also_count)
        return ckpt__fail(err, CKPT_E_MISMATCH, ckpt__source_root(f->source, behind->root),
                          "rank %lld is missing: no directory holds %s (%s); give the directory of that rank too",
                          (long long)gap, wanted, near);
    if (!ckpt__report_add(findings, CKPT_SEVERITY_WARNING, "rank-missing", NULL,
                          "if the ranks wrote to disks of their own, give all of the directories (options.also; --one)",
                          "rank %lld is missing: there is no %s (%s)", (long long)gap, wanted, near))
        return ckpt__fail_memory(err, "findings", 0);
    return CKPT_OK;
}

/* ---- steps */

static const ckpt_value *entry(const ckpt__folder_reader *r, const char *name)
{
    for (size_t i = 0; i < r->entry_count; i++)
        if (ckpt__str_is(r->entries[i].key->text, name))
            return r->entries[i].value;
    return NULL;
}

static bool step_in(const ckpt_value *v, const char *key, int64_t *step)
{
    const ckpt_value *at = v ? ckpt_value_get(v, key) : NULL;
    *step = at && at->kind == CKPT_V_INT ? at->integer : 0;
    return at && at->kind == CKPT_V_INT;
}

static ckpt_status differ(const ckpt__folder *f, size_t a, const char *in_a, int64_t x, size_t b, const char *in_b,
                          int64_t y, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_MISMATCH, ckpt__source_root(f->source, a),
                      "its %s is of step %lld, %s/%s of step %lld: these are parts of two checkpoints", in_a,
                      (long long)x, ckpt__source_root(f->source, b), in_b, (long long)y);
}

/* trainer_state.json of every directory that has one. */
static ckpt_status check_states(ckpt__folder_reader *r, const ckpt__folder *f, const ckpt__member *m, ckpt_error *err)
{
    int64_t step, other;
    ckpt_status status = CKPT_OK;
    if (m->copies < 2 || !step_in(entry(r, m->name), "global_step", &step))
        return CKPT_OK;
    for (size_t root = m->root + 1; status == CKPT_OK && root < ckpt__source_roots(f->source); root++) {
        uint32_t file;
        ckpt_error why = CKPT_ERROR_INIT;
        ckpt__buf text = {0};
        const ckpt_value *value;
        status = ckpt__source_add_at(r->request->source, root, m->name, &file, &why);
        if (status < 0 && why.sys_errno != 0) {
            status = CKPT_OK; /* this one has none */
            continue;
        }
        if (status == CKPT_OK)
            status = ckpt__source_slurp(r->request->source, file, (uint64_t)64 << 20, &text, &why);
        ckpt__arena_allow(r->index->arena, ckpt__known_limit(text.size, true));
        if (status == CKPT_OK)
            status = ckpt__json_values(text.data, text.size, m->name, r->index->arena, &value, &why);
        ckpt__buf_free(&text);
        if (status < 0 && err)
            *err = why;
        if (status == CKPT_OK && step_in(value, "global_step", &other) && other != step)
            status = differ(f, m->root, m->name, step, root, m->name, other, err);
    }
    return status;
}

ckpt_status ckpt__folder_check_steps(ckpt__folder_reader *r, const ckpt__folder *f, ckpt_error *err)
{
    const ckpt__member *first = NULL;
    int64_t step = 0, own;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < f->count; i++) {
        const ckpt__member *m = &f->members[i];
        if (m->read && m->part == CKPT__PART_TRAINER_STATE)
            status = check_states(r, f, m, err);
        if (!of_rank(m) || !step_in(entry(r, m->name), "step", &own))
            continue;
        if (first && own != step)
            status = differ(f, first->root, first->name, step, m->root, m->name, own, err);
        if (!first) {
            first = m;
            step = own;
        }
    }
    return status;
}
