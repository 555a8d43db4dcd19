/* inspect/show_json.c - `show` as JSON. */
#include "cli/inspect/show.h"
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"
#include "cli/out/checkpoints.h"

static void json_table(json_out *j, const char *key, const char *what, const show_table *t)
{
    json_array(j, key);
    for (size_t i = 0; i < t->count; i++) {
        json_object(j, NULL);
        json_text(j, what, t->rows[i].name[0] && strcmp(t->rows[i].name, "none") != 0 ? t->rows[i].name : NULL);
        json_uint(j, "count", t->rows[i].count);
        json_uint(j, "nbytes", t->rows[i].nbytes);
        json_end_object(j);
    }
    json_end_array(j);
}

static void json_group(json_out *j, const show_group *g)
{
    bool counted = false;
    json_object(j, NULL);
    json_bytes(j, "name", g->name.data, g->name.size);
    for (size_t i = 0; i < g->hypers->entry_count; i++) {
        const ckpt_value *key = g->hypers->entries[i].key, *value = g->hypers->entries[i].value;
        if (key->kind != CKPT_V_STR)
            continue;
        json_key(j, key->text.data, key->text.size);
        bool params = key->text.size == 6 && memcmp(key->text.data, "params", 6) == 0;
        counted |= params;
        if (params)
            json_uint(j, NULL, g->params);
        else
            cli_json_value(j, NULL, value);
    }
    if (!counted && g->unnamed)
        json_null(j, "params");
    else if (!counted)
        json_uint(j, "params", g->params);
    json_end_object(j);
}

static void json_optimizer(json_out *j, const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    const ckpt_value *groups = ckpt_value_get(s->optimizer, "param_groups");
    if (!s->optimizer && !s->optimizer_kind.data) {
        json_null(j, "optimizer");
        return;
    }
    if (!groups)
        groups = ckpt_value_get(s->optimizer, "groups");
    json_object(j, "optimizer");
    json_bytes(j, "path", s->optimizer_path.data, s->optimizer_path.size);
    json_bytes(j, "kind", s->optimizer_kind.data, s->optimizer_kind.size);
    json_text(j, "class", s->optimizer_class);
    if (s->optimizer_count)
        json_uint(j, "count", s->optimizer_count);
    json_array(j, "groups");
    show_group g;
    for (size_t i = 0; i < show_group_limit(groups); i++)
        if (show_group_at(groups, i, &g))
            json_group(j, &g);
    json_end_array(j);
    json_end_object(j);
}

/* The members of a dict. */
static void json_entries(json_out *j, const ckpt_value *v)
{
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *key = v->entries[i].key;
        if (key->kind != CKPT_V_STR)
            continue;
        json_key(j, key->text.data, key->text.size);
        cli_json_value(j, NULL, v->entries[i].value);
    }
}

static void json_scaler(json_out *j, const show_picture *p)
{
    const ckpt_value *v = p->summary.scaler;
    if (!v) {
        json_null(j, "scaler");
        return;
    }
    json_object(j, "scaler");
    json_bytes(j, "path", p->summary.scaler_path.data, p->summary.scaler_path.size);
    json_bool(j, "enabled", v->entry_count > 0);
    json_entries(j, v);
    json_end_object(j);
}

static void json_scheduler(json_out *j, const ckpt_summary *s)
{
    const ckpt_value *v = s->scheduler;
    if (!v) {
        json_null(j, "scheduler");
        return;
    }
    json_object(j, "scheduler");
    json_bytes(j, "path", s->scheduler_path.data, s->scheduler_path.size);
    json_text(j, "class", s->scheduler_class);
    json_uint(j, "count", s->scheduler_count);
    json_entries(j, v);
    json_end_object(j);
}

static void json_names(json_out *j, const char *key, const ckpt_summary_state *s, uint64_t count, const ckpt_str *names)
{
    if (!s->known) {
        json_null(j, key);
        return;
    }
    json_object(j, key);
    json_uint(j, "count", count);
    json_array(j, "first");
    for (size_t i = 0; i < CKPT_SUMMARY_NAMES && names[i].data; i++)
        json_bytes(j, NULL, names[i].data, names[i].size);
    json_end_array(j);
    json_end_object(j);
}

/* What is beside the fields that every checkpoint has. */
static void json_training(json_out *j, const ckpt_summary *s)
{
    json_scheduler(j, s);
    json_bytes(j, "precision", s->precision.data, s->precision.size);
    if (s->ema_count) {
        json_object(j, "ema");
        json_bytes(j, "path", s->ema_path.data, s->ema_path.size);
        json_uint(j, "count", s->ema_count);
        json_end_object(j);
    } else {
        json_null(j, "ema");
    }
    json_names(j, "without_state", &s->state, s->state.without_state, s->state.without_names);
    json_names(j, "state_without_param", &s->state, s->state.without_param, s->state.without_param_names);
    checkpoint_json_score(j, "score", &s->score);
}

void show_json(const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    json_out j;
    json_document(&j);
    json_text(&j, "format", ckpt_reader_format(p->reader));
    json_text(&j, "kind", p->directory ? "directory" : "file");
    json_text(&j, "layout", ckpt_reader_layout(p->reader));
    show_files_json(&j, &p->files);
    json_text(&j, "producer", s->producer);
    json_bytes(&j, "producer_version", s->producer_version.data, s->producer_version.size);
    json_bytes(&j, "version_of", s->version_of.data, s->version_of.size);
    json_bool(&j, "rewritten", s->rewritten);
    json_bool(&j, "bare", s->bare);
    json_bytes(&j, "marks", s->marks.data, s->marks.size);
    show_json_progress(&j, s);
    json_uint(&j, "nbytes", ckpt_reader_file_size(p->reader));
    json_object(&j, "tensors");
    json_uint(&j, "count", p->tensors);
    json_uint(&j, "nbytes", p->nbytes);
    json_end_object(&j);
    show_params_json(&j, &p->params);
    json_table(&j, "roles", "role", &p->roles);
    json_table(&j, "devices", "device", &p->devices);
    json_table(&j, "dtypes", "dtype", &p->dtypes);
    if (p->by)
        show_by_json(p->by, &j);
    json_bytes(&j, "model_path", s->model_path.data, s->model_path.size);
    json_optimizer(&j, p);
    json_scaler(&j, p);
    json_training(&j, s);
    char *resume = show_resume_command(p);
    json_text(&j, "resume", resume);
    free(resume);
    if (show_may_hold(p))
        folder_beside(p->o, p->reader, &j, ckpt_reader_layout(p->reader) ? 2 : 1);
    cli_json_findings(&j, ckpt_reader_findings(p->reader), p->doctor, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}
