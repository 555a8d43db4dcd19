/* core/summary.c - what `show` says of the training state: who wrote it, how far it is, where its parts are. */
#include <ckpt/summary.h>

#include <stdio.h>
#include <stdlib.h>
#include "core/canon.h"
#include "core/engine.h"
#include "core/producer.h"

/* The first of the keys that holds an int >= 0, at the root or one level below it under the names that trainers use. */
static int64_t count_of(const ckpt_value *root, const char *const *keys)
{
    static const char *const below[] = {NULL, "trainer_state", "progress", "state", "train_state"};
    for (size_t b = 0; b < sizeof below / sizeof *below; b++) {
        const ckpt_value *at = below[b] ? ckpt_value_get(root, below[b]) : root;
        for (size_t i = 0; at && keys[i]; i++) {
            const ckpt_value *v = ckpt_value_get(at, keys[i]);
            if (v && v->kind == CKPT_V_INT && v->integer >= 0)
                return v->integer;
        }
    }
    return -1;
}

/* Of a directory: what its trainer_state.json says, else the one file that says it (an RNG file counts its own). */
static int64_t count_in_files(const ckpt_value *root, const char *const *keys)
{
    int64_t found = -1;
    const ckpt_value *state = ckpt_value_get(root, "trainer_state.json");
    if (state)
        return count_of(state, keys);
    for (size_t i = 0; root && i < root->entry_count; i++) {
        ckpt_str file = root->entries[i].key->text;
        int64_t own = file.size > 6 && memcmp(file.data, "random", 6) == 0 ? -1 : count_of(root->entries[i].value, keys);
        if (own >= 0 && found >= 0 && own != found)
            return -1;
        found = own >= 0 ? own : found;
    }
    return found;
}

/* Follows a dotted path through dicts; keys may hold dots, so at each level the longest key that fits is taken. */
static const ckpt_value *value_at(const ckpt_value *root, ckpt_str path)
{
    const ckpt_value *at = root;
    const char *p = path.data, *end = path.data + path.size;
    while (at && p < end) {
        const ckpt_value *next = NULL;
        size_t taken = 0;
        const ckpt_value *state = at->kind == CKPT_V_OBJECT && at->state ? at->state : at;
        for (size_t i = 0; i < state->entry_count; i++) {
            const ckpt_value *k = state->entries[i].key;
            size_t n = k->text.size, left = (size_t)(end - p);
            if (k->kind == CKPT_V_STR && n <= left && n >= taken && memcmp(k->text.data, p, n) == 0 && (n == left || p[n] == '.')) {
                next = state->entries[i].value;
                taken = n;
            }
        }
        char number[24];
        for (size_t i = 0; !next && (at->kind == CKPT_V_LIST || at->kind == CKPT_V_TUPLE) && i < at->item_count; i++) {
            size_t n = (size_t)snprintf(number, sizeof number, "%zu", i);
            if (n <= (size_t)(end - p) && memcmp(number, p, n) == 0 && (n == (size_t)(end - p) || p[n] == '.')) {
                next = at->items[i];
                taken = n;
            }
        }
        at = next;
        p += taken < (size_t)(end - p) ? taken + 1 : taken;
    }
    return at;
}

/* The flags of the groups in one word; groups that disagree have none. */
static const char *kind_of(const ckpt__canon *canon)
{
    const char *kind = NULL;
    for (size_t i = 0; i < canon->group_count; i++) {
        const ckpt__canon_group *g = &canon->groups[i];
        const char *own = g->fused == 1 ? "fused" : g->capturable == 1 ? "capturable" : g->foreach == 1 ? "foreach" : "plain";
        if (kind && strcmp(kind, own) != 0)
            return "mixed";
        kind = own;
    }
    return kind;
}

static ckpt_str keep_path(char **at, ckpt_str path)
{
    ckpt_str out = {NULL, 0};
    if (!path.data)
        return out;
    memcpy(*at, path.data, path.size);
    (*at)[path.size] = 0;
    out = (ckpt_str){*at, path.size};
    *at += path.size + 1;
    return out;
}

ckpt_status ckpt_summarize(const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err)
{
    static const char *const step_keys[] = {"global_step", "step", "iter", "iteration", "global_steps", "steps", "it", NULL};
    static const char *const epoch_keys[] = {"epoch", "current_epoch", NULL};
    if (!reader || !out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no reader or no place for the answer was given");
    memset(out, 0, sizeof *out);
    const ckpt__index *index = reader->index;
    out->producer = ckpt__producer_of(index)->name;
    bool files = strcmp(index->kind, "directory") == 0 && strcmp(index->format, "ckpt") != 0;
    int64_t (*count)(const ckpt_value *, const char *const *) = files ? count_in_files : count_of;
    out->step = index->step >= 0 ? index->step : count(index->root, step_keys);
    out->epoch = count(index->root, epoch_keys);

    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    ckpt__canon *canon = NULL;
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt_report *findings = ckpt_report_new();
    if (!findings)
        return ckpt__fail_memory(err, "the report", 0);
    ckpt_status status = ckpt__canon_build(index, &hints, &canon, findings, &ignored);
    ckpt_report_free(findings);
    if (status == CKPT_E_NO_MEMORY)
        return ckpt__fail_memory(err, "canonical names", 0);
    if (status < 0)               /* ambiguous: what was found without it still holds */
        return CKPT_OK;
    size_t size = canon->model_path.size + canon->optimizer_path.size + canon->scaler_path.size + 3;
    char *at = out->owned = malloc(size);
    if (!at) {
        ckpt__canon_free(canon);
        return ckpt__fail_memory(err, "the paths", size);
    }
    out->model_path = keep_path(&at, canon->model_path);
    out->optimizer_path = keep_path(&at, canon->optimizer_path);
    out->scaler_path = keep_path(&at, canon->scaler_path);
    if (out->optimizer_path.data)
        out->optimizer = value_at(index->root, out->optimizer_path);
    if (out->scaler_path.data)
        out->scaler = value_at(index->root, out->scaler_path);
    if (strcmp(index->format, "ckpt") == 0) {     /* canonical already: the paths are the names themselves */
        out->optimizer = out->optimizer ? out->optimizer : ckpt_value_get(index->root, "optimizer");
        out->scaler = out->scaler ? out->scaler : ckpt_value_get(index->root, "scaler");
    }
    const char *kind = kind_of(canon);
    if (kind)
        out->optimizer_kind = ckpt__s(kind);
    ckpt__canon_free(canon);
    return CKPT_OK;
}

void ckpt_summary_clear(ckpt_summary *summary)
{
    if (!summary)
        return;
    free(summary->owned);
    memset(summary, 0, sizeof *summary);
}
