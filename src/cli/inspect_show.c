/* inspect_show.c - what is this, who wrote it, how far is it, and how to go on. */
#include "inspect_show.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Tags come from files, so their number is bounded: what goes past it is "(others)". */
static bool count_in(show_table *t, const char *name, size_t size, uint64_t nbytes)
{
    enum { ROWS_MAX = 256 };
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(size < sizeof key ? size : sizeof key - 1), name);
    size_t i = 0;
    while (i < t->count && strcmp(t->rows[i].name, key) != 0)
        i++;
    if (i == t->count && i >= ROWS_MAX) {
        strcpy(t->rows[i - 1].name, "(others)");
        i--;
    } else if (i == t->count) {
        show_row *rows = realloc(t->rows, (i + 1) * sizeof *rows);
        if (!rows)
            return false;
        t->rows = rows;
        t->count++;
        memset(&rows[i], 0, sizeof rows[i]);
        strcpy(rows[i].name, key);
    }
    t->rows[i].count++;
    t->rows[i].nbytes += nbytes;
    return true;
}

static bool count_tensors(show_picture *p)
{
    bool ok = true;
    for (size_t i = 0; ok && i < ckpt_reader_tensor_count(p->reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(p->reader, i);
        const char *role = ckpt_role_name(t->role), *dtype = ckpt_dtype_name(t->dtype);
        if (!cli_selected(&p->o->cli, t))
            continue;
        p->tensors++;
        p->nbytes += t->nbytes;
        ok = count_in(&p->roles, role, strlen(role), t->nbytes) && count_in(&p->dtypes, dtype, strlen(dtype), t->nbytes) &&
             count_in(&p->devices, t->device.data ? t->device.data : "", t->device.data ? t->device.size : 0, t->nbytes);
    }
    return ok;
}

/* What would be odd at a resume by the producer's own loader. */
static void ask_doctor(show_picture *p)
{
    ckpt_doctor_options options = {.loader = CKPT_LOADER_OWN, .cuda_devices = -1};
    ckpt_doctor_result result;
    memset(&result, 0, sizeof result);
    p->doctor = ckpt_report_new();
    if (p->doctor && ckpt_doctor(p->reader, &options, &result, p->doctor, NULL) < 0)
        ckpt_report_clear(p->doctor);
    ckpt_doctor_result_clear(&result);
}

bool inspect_plain_path(const char *path)
{
    for (; *path; path++)
        if ((unsigned char)*path < 0x20 || strchr("'\"\\$`!", *path))
            return false;
    return true;
}

bool inspect_has_gpu(const ckpt_reader *reader)
{
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {     /* whatever is selected */
        const char *tag = ckpt_reader_tensor(reader, i)->device.data;
        if (tag && strncmp(tag, "cuda", 4) == 0)
            return true;
    }
    return false;
}

/* One {word} of the producer's way to go on. */
static void put_word(FILE *f, const show_picture *p, const char *word, size_t size, const char *path, int length)
{
    ckpt_str file = p->summary.resume_file;
    bool refuses = ckpt_report_count_code(p->doctor, "weights-only-refused") > 0;
    if (size == 4 && memcmp(word, "path", size) == 0) {
        fprintf(f, "%.*s", length, path);
        if (file.data)
            fprintf(f, "/%s", file.data);
    } else if (size == 4 && memcmp(word, "load", size) == 0) {
        fputs(refuses ? ", weights_only=False" : "", f);
    } else if (size == 6 && memcmp(word, "device", size) == 0) {
        fputs(inspect_has_gpu(p->reader) ? "cuda:0" : "cpu", f);
    } else {
        fprintf(f, "{%.*s}", (int)size, word);
    }
}

/* Without its last name: the bytes of path[0, n) up to it; 0: there is nothing before it. */
static int above(const char *path, int n)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* The parts of a run's ranks, RUN/rank-N/step-N each: the run resumes, and every rank its own part. */
static char *resume_ranks(const show_picture *p)
{
    int n = above(p->path, above(p->path, (int)strlen(p->path)));
    char *text = NULL;
    if (asprintf(&text, "ckpt_run_open(&run, \"%.*s\", state, &options, &err);\nckpt_run_resume(run, NULL, &done, report, &err)",
                 n ? n : 1, n ? p->path : ".") < 0)
        return NULL;
    return text;
}

/* Parts of several directories are what this library alone restores together. */
static char *resume_together(const show_picture *p)
{
    const cli *c = &p->o->cli;
    char *text = NULL;
    size_t size = 0;
    for (int i = 0; i < c->also_count; i++)
        if (!inspect_plain_path(c->also[i]))
            return NULL;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fputs("options.also = (const char *const[]){", f);
    for (int i = 0; i < c->also_count; i++)
        fprintf(f, "%s\"%s\"", i ? ", " : "", c->also[i]);
    fprintf(f, "}; options.also_count = %d;\noptions.map_location = \"%s\"; ckpt_restore(state, \"%s\", &options, report, &err)",
            c->also_count, inspect_has_gpu(p->reader) ? "cuda:0" : "cpu", p->path);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

char *show_resume_command(const show_picture *p)
{
    const char *path = p->path, *slash = strrchr(path, '/'), *at = p->summary.resume.data;
    int length = (int)strlen(path);
    char *text = NULL;
    size_t size = 0;
    ckpt_str file = p->summary.resume_file;
    if (!at || !inspect_plain_path(path) || (file.data && !inspect_plain_path(file.data)))
        return NULL;
    if (ckpt_report_find(ckpt_reader_findings(p->reader), "ranks-joined", NULL))
        return resume_ranks(p);
    if (p->o->cli.also_count > 0)
        return resume_together(p);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (!p->directory && strcmp(ckpt_reader_format(p->reader), "hf") == 0) {
        length = slash ? (int)(slash - path) : 1;     /* an index stands for its directory */
        path = slash ? path : ".";
    }
    FILE *f = open_memstream(&text, &size);
    for (const char *open; f && (open = strchr(at, '{'));) {
        size_t n = strcspn(open + 1, "}");
        fwrite(at, 1, (size_t)(open - at), f);
        put_word(f, p, open + 1, n, path, length);
        at = open[1 + n] ? open + n + 2 : open + 1 + n;
    }
    if (f)
        fputs(at, f);
    if (f && fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- --json */

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

static bool key_begins(const ckpt_value *key, const char *head)
{
    size_t n = strlen(head);
    return key->kind == CKPT_V_STR && key->text.size > n && memcmp(key->text.data, head, n) == 0;
}

size_t show_group_limit(const ckpt_value *groups)
{
    return groups ? groups->item_count + (groups->kind == CKPT_V_DICT ? groups->entry_count : 0) : 0;
}

/* Group i; false where entry i is none. */
bool show_group_at(const ckpt_value *groups, size_t i, show_group *out)
{
    const ckpt_value *g = i < groups->item_count ? groups->items[i] : groups->entries[i - groups->item_count].value;
    if (i < groups->item_count) {
        snprintf(out->number, sizeof out->number, "%zu", i);
        out->name = (ckpt_str){out->number, strlen(out->number)};
    } else {
        out->name = groups->entries[i - groups->item_count].key->text;
    }
    const ckpt_value *params = ckpt_value_get(g, "params"), *options = ckpt_value_get(g, "options");
    out->hypers = g;
    out->params = params ? params->item_count : 0;
    if (!key_begins(groups->kind == CKPT_V_DICT ? groups->entries[i].key : g, "param_groups/"))
        return true;
    if (!options)
        return false;             /* libtorch's param_groups/size */
    out->hypers = options;
    out->name = (ckpt_str){out->name.data + 13, out->name.size - 13};
    for (size_t k = 0; k < g->entry_count; k++)
        out->params += key_begins(g->entries[k].key, "params/") && g->entries[k].value->kind == CKPT_V_STR;
    return true;
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
    if (!counted)
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
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *key = v->entries[i].key;
        if (key->kind != CKPT_V_STR)
            continue;
        json_key(j, key->text.data, key->text.size);
        cli_json_value(j, NULL, v->entries[i].value);
    }
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
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *key = v->entries[i].key;
        if (key->kind != CKPT_V_STR)
            continue;
        json_key(j, key->text.data, key->text.size);
        cli_json_value(j, NULL, v->entries[i].value);
    }
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

void inspect_json_score(json_out *j, const ckpt_score *s)
{
    if (!s->has_best && !s->has_current) {
        json_null(j, "score");
        return;
    }
    json_object(j, "score");
    json_bytes(j, "name", s->name.data, s->name.size);
    if (s->has_best)
        json_double(j, "best", s->best);
    else
        json_null(j, "best");
    if (s->has_current)
        json_double(j, "current", s->current);
    else
        json_null(j, "current");
    json_end_object(j);
}

void inspect_json_progress(json_out *j, const ckpt_summary *s)
{
    if (s->step >= 0)
        json_int(j, "step", s->step);
    else
        json_null(j, "step");
    if (s->epoch >= 0 && s->epoch_exact > (double)s->epoch)
        json_double(j, "epoch", s->epoch_exact);
    else if (s->epoch >= 0)
        json_int(j, "epoch", s->epoch);
    else
        json_null(j, "epoch");
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
    inspect_json_score(j, &s->score);
}

bool show_may_hold(const show_picture *p)
{
    return p->directory && !p->o->one && !p->o->cli.from && strcmp(ckpt_reader_format(p->reader), "ckpt") != 0;
}

static void show_json(const show_picture *p)
{
    const ckpt_summary *s = &p->summary;
    json_out j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_int(&j, "ckpt", 1);
    json_text(&j, "format", ckpt_reader_format(p->reader));
    json_text(&j, "kind", p->directory ? "directory" : "file");
    json_text(&j, "producer", s->producer);
    json_bytes(&j, "producer_version", s->producer_version.data, s->producer_version.size);
    json_bytes(&j, "version_of", s->version_of.data, s->version_of.size);
    json_bool(&j, "rewritten", s->rewritten);
    json_bool(&j, "bare", s->bare);
    json_bytes(&j, "marks", s->marks.data, s->marks.size);
    inspect_json_progress(&j, s);
    json_uint(&j, "nbytes", ckpt_reader_file_size(p->reader));
    json_object(&j, "tensors");
    json_uint(&j, "count", p->tensors);
    json_uint(&j, "nbytes", p->nbytes);
    json_end_object(&j);
    json_table(&j, "roles", "role", &p->roles);
    json_table(&j, "devices", "device", &p->devices);
    json_table(&j, "dtypes", "dtype", &p->dtypes);
    json_bytes(&j, "model_path", s->model_path.data, s->model_path.size);
    json_optimizer(&j, p);
    json_scaler(&j, p);
    json_training(&j, s);
    char *resume = show_resume_command(p);
    json_text(&j, "resume", resume);
    free(resume);
    if (show_may_hold(p))
        inspect_folder_beside(p->o, &j);
    cli_json_findings(&j, ckpt_reader_findings(p->reader), p->doctor, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A directory that is no checkpoint, unlike one whose files break a rule: what format/folder/names.c says of it, and not of a file
 * in it (an empty shard). */
static bool is_none_itself(const char *path, const ckpt_error *err)
{
    size_t n = strlen(path);
    bool of_file = strncmp(err->object, path, n) == 0 && err->object[n] == '/' && err->object[n + 1];
    return !of_file && err->status == CKPT_E_FORMAT && (strncmp(err->message, "not a checkpoint", 16) == 0 ||
                                                        strncmp(err->message, "it holds several checkpoints", 28) == 0);
}

char *show_resume_of(const inspect *o, const char *path)
{
    ckpt_reader *reader = NULL;
    char *text = NULL;
    show_picture p;
    memset(&p, 0, sizeof p);
    p.o = o;
    p.path = path;
    p.directory = is_directory(path);
    if (ckpt_reader_open(path, NULL, &reader, NULL) < 0)
        return NULL;
    p.reader = reader;
    if (ckpt_summarize(reader, &p.summary, NULL) == CKPT_OK) {
        ask_doctor(&p);
        text = show_resume_command(&p);
    }
    ckpt_report_free(p.doctor);
    ckpt_summary_clear(&p.summary);
    ckpt_reader_close(reader);
    return text;
}

int inspect_show(const inspect *o)
{
    ckpt_error err = CKPT_ERROR_INIT;
    show_picture p;
    memset(&p, 0, sizeof p);
    p.o = o;
    p.path = o->paths[0];
    p.directory = o->cli.also_count > 0 || is_directory(p.path);
    ckpt_reader_options options = {.format = o->cli.from, .also = (const char *const *)o->cli.also,
                                   .also_count = (size_t)o->cli.also_count};
    ckpt_reader *reader = NULL;
    if (ckpt_reader_open(p.path, &options, &reader, &err) < 0) {
        bool may_hold = p.directory && !o->cli.from && !o->one && is_none_itself(p.path, &err);
        int listed = may_hold ? inspect_folder(o) : -1;
        return listed >= 0 ? listed : cli_fail_error(&o->cli, &err);
    }
    p.reader = reader;
    int status = cli_selection_finds(&o->cli, (const ckpt_reader *const *)&reader, 1);
    if (status >= 0) {
        ckpt_reader_close(reader);
        return status;
    }
    status = CLI_YES;
    if (ckpt_summarize(reader, &p.summary, &err) < 0) {
        status = cli_fail_error(&o->cli, &err);
    } else if (!count_tensors(&p)) {
        status = cli_fail(&o->cli, "no-memory", "out of memory");
    } else {
        ask_doctor(&p);
        if (o->report) {
            char *resume = show_resume_command(&p);
            status = report_show(o, reader, &p.summary, p.doctor, resume);
            free(resume);
        }
        if (status == CLI_YES && o->cli.json)
            show_json(&p);
        else if (status == CLI_YES)
            show_text(&p);
    }
    free(p.roles.rows);
    free(p.devices.rows);
    free(p.dtypes.rows);
    ckpt_report_free(p.doctor);
    ckpt_summary_clear(&p.summary);
    ckpt_reader_close(reader);
    return status;
}
