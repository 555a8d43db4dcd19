/* inspect_show.c - what is this, who wrote it, how far is it, and how to go on. */
#include "inspect.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One line of "by role", "by device", "by dtype". */
typedef struct row {
    char name[64];
    uint64_t count, nbytes;
} row;
typedef struct table {
    row *rows;
    size_t count;
} table;

typedef struct picture {
    const inspect *o;
    const ckpt_reader *reader;
    ckpt_summary summary;
    ckpt_report *doctor;          /* NULL: it had no answer */
    table roles, devices, dtypes;
    uint64_t tensors, nbytes;
    bool directory;
} picture;

/* Tags come from files, so their number is bounded: what goes past it is "(others)". */
static bool count_in(table *t, const char *name, size_t size, uint64_t nbytes)
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
        row *rows = realloc(t->rows, (i + 1) * sizeof *rows);
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

static bool count_tensors(picture *p)
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

static bool is_torch(const picture *p)
{
    return strncmp(ckpt_reader_format(p->reader), "torch", 5) == 0;
}

/* An archive of libtorch in C++ or of TorchScript, which torch.load does not read as a checkpoint. */
static bool is_script(const picture *p)
{
    const char *producer = p->summary.producer;
    return producer && (strcmp(producer, "libtorch") == 0 || strcmp(producer, "TorchScript") == 0);
}

/* How the producer's own program goes on: a call around the path. */
typedef struct own_way {
    const char *producer, *head, *tail;
    bool to_cpu;                  /* a trainer: it loads to the cpu, and goes through load_state_dict */
} own_way;

static bool has_role(const picture *p, const char *role)
{
    for (size_t i = 0; i < p->roles.count; i++)
        if (strcmp(p->roles.rows[i].name, role) == 0)
            return true;
    return false;
}

/* The files of a pipeline lie in folders of its directory. */
static bool has_folders(const picture *p)
{
    const ckpt_value *root = ckpt_reader_root(p->reader);
    for (size_t i = 0; p->directory && root && i < root->entry_count; i++)
        if (memchr(root->entries[i].key->text.data, '/', root->entries[i].key->text.size))
            return true;
    return false;
}

static const own_way *own_way_of(const picture *p)
{
#define TO_CPU "\", map_location=\"cpu\""
    static const own_way ways[] = {
        {"Lightning", "trainer.fit(model, ckpt_path=\"", "\"", false},
        {"accelerate", "accelerator.load_state(\"", "\"", true},
        {"HF Trainer", "trainer.train(resume_from_checkpoint=\"", "\"", true},
        {"PEFT", "PeftModel.from_pretrained(model, \"", "\"", false},
        {"TorchScript", "torch.jit.load(\"", TO_CPU, false},
        {"libtorch", "torch::load(module, \"", "\"", false},
        {"torch", "torch.load(\"", TO_CPU, false},
        {"VAR", "torch.load(\"", TO_CPU, false},
        {"DeepSpeed", "torch.load(\"", TO_CPU, false},
        {"Megatron", "torch.load(\"", TO_CPU, false},
    };
    static const own_way optimizer = {"libtorch", "torch::load(optimizer, \"", "\"", false},
                         archive = {"libtorch", "torch::serialize::InputArchive().load_from(\"", "\"", false},
                         model = {"Hugging Face", "AutoModel.from_pretrained(\"", "\"", false},
                         pipeline = {"Hugging Face", "DiffusionPipeline.from_pretrained(\"", "\"", false},
                         weights = {"Hugging Face", "safetensors.torch.load_file(\"", "\"", false};
#undef TO_CPU
    const char *producer = p->summary.producer ? p->summary.producer : "";
    bool weights_here = has_role(p, "param") || has_role(p, "buffer");
    if (strcmp(producer, "libtorch") == 0 && (!weights_here || p->summary.model_path.size))
        return weights_here ? &archive : &optimizer;
    if (strcmp(producer, "Hugging Face") == 0 && strcmp(ckpt_reader_format(p->reader), "safetensors") == 0)
        return &weights;
    if (strcmp(producer, "Hugging Face") == 0)
        return has_folders(p) ? &pipeline : &model;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].producer, producer) == 0)
            return &ways[i];
    return NULL;
}

/* What would be odd at a resume by the producer's own loader. */
static void ask_doctor(picture *p)
{
    const own_way *way = own_way_of(p);
    bool torch = (is_torch(p) && !is_script(p)) || (way && way->to_cpu);
    ckpt_doctor_options options = {.loader = torch ? CKPT_LOADER_TORCH : CKPT_LOADER_CKPT, .cuda_devices = -1};
    if (way && way->to_cpu) {     /* which lists the classes that it trusts */
        options.map_location = "cpu";
        options.load_weights_only = -1;
    }
    ckpt_doctor_result result;
    p->doctor = ckpt_report_new();
    if (p->doctor && ckpt_doctor(p->reader, &options, &result, p->doctor, NULL) < 0)
        ckpt_report_clear(p->doctor);
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

static char *resume_command(const picture *p)
{
    const char *path = p->o->paths[0], *target = inspect_has_gpu(p->reader) ? "cuda:0" : "cpu";
    const own_way *way = p->o->cli.also_count == 0 ? own_way_of(p) : NULL;
    size_t size = strlen(path) + 200;
    char *text = inspect_plain_path(path) ? malloc(size) : NULL;
    if (!text)
        return NULL;
    const char *slash = strrchr(path, '/');
    int length = (int)strlen(path);
    if (way && !p->directory && strcmp(ckpt_reader_format(p->reader), "hf") == 0) {    /* an index stands for its directory */
        length = slash ? (int)(slash - path) : 1;
        path = slash ? path : ".";
    }
    if (way)
        snprintf(text, size, "%s%.*s%s%s)", way->head, length, path, way->tail,
                 ckpt_report_count_code(p->doctor, "not-weights-only") ? ", weights_only=False" : "");
    else
        snprintf(text, size, "options.map_location = \"%s\"; ckpt_restore(state, \"%s\", &options, report, &err)", target, path);
    return text;
}

/* ---- --json */

static void json_table(json_out *j, const char *key, const char *what, const table *t)
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

/* A parameter group of an optimizer: torch's list of dicts, the native dict of dicts, or libtorch's dict of
 * "param_groups/0": {"params/0": ..., "options": {...}}. */
typedef struct group_row {
    ckpt_str name;
    const ckpt_value *hypers;
    size_t params;
    char number[24];
} group_row;

static bool key_begins(const ckpt_value *key, const char *head)
{
    size_t n = strlen(head);
    return key->kind == CKPT_V_STR && key->text.size > n && memcmp(key->text.data, head, n) == 0;
}

static size_t group_limit(const ckpt_value *groups)
{
    return groups ? groups->item_count + (groups->kind == CKPT_V_DICT ? groups->entry_count : 0) : 0;
}

/* Group i; false where entry i is none. */
static bool group_at(const ckpt_value *groups, size_t i, group_row *out)
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

static void json_group(json_out *j, const group_row *g)
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

static void json_optimizer(json_out *j, const picture *p)
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
    json_array(j, "groups");
    group_row g;
    for (size_t i = 0; i < group_limit(groups); i++)
        if (group_at(groups, i, &g))
            json_group(j, &g);
    json_end_array(j);
    json_end_object(j);
}

static void json_scaler(json_out *j, const picture *p)
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

static void show_json(const picture *p)
{
    const ckpt_summary *s = &p->summary;
    json_out j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_int(&j, "ckpt", 1);
    json_text(&j, "format", ckpt_reader_format(p->reader));
    json_text(&j, "kind", p->directory ? "directory" : "file");
    json_text(&j, "producer", s->producer);
    if (s->step >= 0)
        json_int(&j, "step", s->step);
    else
        json_null(&j, "step");
    if (s->epoch >= 0)
        json_int(&j, "epoch", s->epoch);
    else
        json_null(&j, "epoch");
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
    char *resume = resume_command(p);
    json_text(&j, "resume", resume);
    free(resume);
    cli_json_findings(&j, ckpt_reader_findings(p->reader), p->doctor, CKPT_NOTE);
    json_end_object(&j);
}

/* ---- text */

static void label(const picture *p, const char *text)
{
    printf("%s%-11s%s", cli_style(&p->o->cli, "bold"), text, cli_style(&p->o->cli, "off"));
}

static void text_table(const picture *p, const char *what, const table *t)
{
    char size[CLI_SIZE_MAX];
    size_t column = 11;
    if (t->count == 0)
        return;
    label(p, what);
    for (size_t i = 0; i < t->count; i++) {
        const char *name = t->rows[i].name[0] ? t->rows[i].name : "none";
        char text[128];
        int n = snprintf(text, sizeof text, "%s %" PRIu64 " (%s)%s", name, t->rows[i].count, cli_size(size, t->rows[i].nbytes),
                         i + 1 < t->count ? "," : "");
        if (column + (size_t)n + 1 > 80 && column > 11) {
            printf("\n%11s", "");
            column = 11;
        }
        if (column > 11) {
            putchar(' ');
            column++;
        }
        cli_put(stdout, text, strlen(text));
        column += (size_t)n;
    }
    putchar('\n');
}

static void put_number(FILE *f, const ckpt_value *v)
{
    char number[JSON_DOUBLE_MAX];
    if (v->kind == CKPT_V_FLOAT)
        fputs(json_format_double(number, v->real), f);
    else if (v->kind == CKPT_V_INT)
        fprintf(f, "%" PRId64, v->integer);
    else if (v->kind == CKPT_V_BOOL)
        fputs(v->boolean ? "True" : "False", f);
    else
        fputs(ckpt_kind_name(v->kind), f);
}

static void put_hyper(FILE *f, const ckpt_value *group, const char *key, const char *before)
{
    const ckpt_value *v = ckpt_value_get(group, key);
    if (!v || v->kind == CKPT_V_NONE)
        return;
    fprintf(f, "%s%s ", before, key);
    if (v->kind == CKPT_V_DICT) {                       /* native: betas.0, betas.1 */
        for (size_t i = 0; i < v->entry_count; i++) {
            fputs(i ? ", " : "(", f);
            put_number(f, v->entries[i].value);
        }
        putc(')', f);
    } else if (v->item_count > 0) {
        for (size_t i = 0; i < v->item_count && i < 8; i++) {
            fputs(i ? ", " : "(", f);
            put_number(f, v->items[i]);
        }
        putc(')', f);
    } else {
        put_number(f, v);
    }
}

static void text_group(const group_row *g)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return;
    fprintf(f, "%zu parameter%s", g->params, g->params == 1 ? "" : "s");
    put_hyper(f, g->hypers, "lr", ", ");
    put_hyper(f, g->hypers, "betas", ", ");
    put_hyper(f, g->hypers, "momentum", ", ");
    put_hyper(f, g->hypers, "weight_decay", ", ");
    if (fclose(f) == 0) {
        printf("%11s", "");
        cli_put_wrapped(stdout, text, 11, 13);
    }
    free(text);
}

static void text_optimizer(const picture *p)
{
    const ckpt_summary *s = &p->summary;
    const ckpt_value *groups = ckpt_value_get(s->optimizer, "param_groups");
    if (!s->optimizer && !s->optimizer_kind.data)
        return;
    label(p, "optimizer");
    cli_put_str(stdout, s->optimizer_kind, "?");
    if (s->optimizer_path.data && s->optimizer_path.size) {
        fputs(", at ", stdout);
        cli_put_str(stdout, s->optimizer_path, "");
    }
    if (!groups)
        groups = ckpt_value_get(s->optimizer, "groups");
    size_t n = 0, shown = 0;
    group_row g;
    for (size_t i = 0; i < group_limit(groups); i++)
        n += group_at(groups, i, &g);
    printf(", %zu group%s\n", n, n == 1 ? "" : "s");
    for (size_t i = 0; i < group_limit(groups) && shown < 8; i++) {
        if (!group_at(groups, i, &g))
            continue;
        shown++;
        text_group(&g);
    }
    if (n > 8)
        printf("%11sand %zu more\n", "", n - 8);
}

static void text_scaler(const picture *p)
{
    const ckpt_value *v = p->summary.scaler;
    if (!v)
        return;
    label(p, "scaler");
    if (v->entry_count == 0) {
        puts("disabled");
        return;
    }
    put_hyper(stdout, v, "scale", "");
    put_hyper(stdout, v, "growth_interval", ", ");
    put_hyper(stdout, v, "_growth_tracker", ", ");
    putchar('\n');
}

static void show_text(const picture *p)
{
    const cli *c = &p->o->cli;
    const ckpt_summary *s = &p->summary;
    char size[CLI_SIZE_MAX], exact[CLI_SIZE_MAX];
    label(p, "format");
    printf("%s, a %s of %s (%s bytes)\n", ckpt_reader_format(p->reader), p->directory ? "directory" : "file",
           cli_size(size, ckpt_reader_file_size(p->reader)), cli_count(exact, ckpt_reader_file_size(p->reader)));
    if (s->producer) {
        label(p, "written by");
        puts(s->producer);
    }
    if (s->step >= 0 || s->epoch >= 0) {
        label(p, "progress");
        if (s->step >= 0)
            printf("step %" PRId64 "%s", s->step, s->epoch >= 0 ? ", " : "");
        if (s->epoch >= 0)
            printf("epoch %" PRId64, s->epoch);
        putchar('\n');
    }
    label(p, "tensors");
    printf("%" PRIu64 ", %s (%s bytes)\n", p->tensors, cli_size(size, p->nbytes), cli_count(exact, p->nbytes));
    text_table(p, "  role", &p->roles);
    text_table(p, "  device", &p->devices);
    text_table(p, "  dtype", &p->dtypes);
    if (s->model_path.data && s->model_path.size) {
        label(p, "model");
        printf("at ");
        cli_put_str(stdout, s->model_path, "");
        putchar('\n');
    }
    text_optimizer(p);
    text_scaler(p);
    ckpt_severity least = c->quiet ? CKPT_ERROR : CKPT_WARNING;
    cli_text_findings(c, stdout, ckpt_reader_findings(p->reader), least, NULL);
    cli_text_findings(c, stdout, p->doctor, least, "no-optimizer");      /* weights alone are nothing odd */
    char *resume = resume_command(p);
    if (resume && !c->quiet) {
        label(p, "resume with");
        putchar(' ');
        cli_put_message(stdout, resume);
        putchar('\n');
    }
    free(resume);
}

int inspect_show(const inspect *o)
{
    ckpt_error err = CKPT_ERROR_INIT;
    struct stat st;
    picture p;
    memset(&p, 0, sizeof p);
    p.o = o;
    ckpt_reader *reader = cli_open(&o->cli, o->paths[0]);
    if (!reader)
        return CLI_NO_ANSWER;
    p.reader = reader;
    p.directory = o->cli.also_count > 0 || (stat(o->paths[0], &st) == 0 && S_ISDIR(st.st_mode));
    int status = CLI_YES;
    if (ckpt_summarize(reader, &p.summary, &err) < 0) {
        status = cli_fail_error(&o->cli, &err);
    } else if (!count_tensors(&p)) {
        status = cli_fail(&o->cli, "no-memory", "out of memory");
    } else {
        ask_doctor(&p);
        if (o->cli.json)
            show_json(&p);
        else
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
