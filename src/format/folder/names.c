/* format/folder/names.c - what the files of a directory are to a checkpoint, by their names; what they are together. */
#include "format/dcp/read.h"
#include "format/folder/folder.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- one name */

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* Digits at `at`, at most 12 of them; 0: none. */
static size_t digits(const char *at, uint64_t *value)
{
    size_t n = 0;
    for (*value = 0; at[n] >= '0' && at[n] <= '9' && n < 12; n++)
        *value = *value * 10 + (uint64_t)(at[n] - '0');
    return at[n] >= '0' && at[n] <= '9' ? 0 : n;
}

bool ckpt__shard_of(const char *name, uint64_t *number, uint64_t *count, char *stem, size_t size)
{
    for (const char *p = strchr(name, '-'); p; p = strchr(p + 1, '-')) {
        size_t n = digits(p + 1, number);
        if (n < 3 || strncmp(p + 1 + n, "-of-", 4) != 0)
            continue;
        const char *behind = p + 1 + n + 4;
        size_t m = digits(behind, count);
        if (m < 3 || behind[m] != '.')
            continue;
        int made = snprintf(stem, size, "%.*s%s", (int)(p - name), name, behind + m);
        return made > 0 && (size_t)made < size;
    }
    return false;
}

/* Suffixes of files that hold tensors. */
static const char *const suffixes[] = {".safetensors", ".bin", ".pt", ".pth", ".pth.tar", ".ckpt", ".pkl"};

static const struct {
    const char *stem;
    ckpt__part part;
    bool numbered; /* "<stem>_3" is one too */
} stems[] = {
    {"model", CKPT__PART_MODEL, true},
    {"pytorch_model", CKPT__PART_MODEL, true},
    {"pytorch_model_fsdp", CKPT__PART_MODEL, false},
    {"diffusion_pytorch_model", CKPT__PART_MODEL, false},
    {"pytorch_lora_weights", CKPT__PART_MODEL, false}, /* diffusers */
    {"adapter_model", CKPT__PART_ADAPTER, false},
    {"optimizer", CKPT__PART_OPTIMIZER, true},
    {"scheduler", CKPT__PART_SCHEDULER, true},
    {"scaler", CKPT__PART_SCALER, false},
    {"sampler", CKPT__PART_SAMPLER, true},
    {"dl_state_dict", CKPT__PART_SAMPLER, true},
    {"random_states", CKPT__PART_RNG, true},
    {"rng_state", CKPT__PART_RNG, true},
    {"custom_checkpoint", CKPT__PART_CUSTOM, true},
    {"training_args", CKPT__PART_ARGS, false},
};

static const struct {
    const char *name;
    ckpt__part part;
} documents[] = {
    {"trainer_state.json", CKPT__PART_TRAINER_STATE},
    {"config.json", CKPT__PART_CONFIG},
    {"generation_config.json", CKPT__PART_CONFIG},
    {"adapter_config.json", CKPT__PART_CONFIG},
    {"model_index.json", CKPT__PART_CONFIG},
    {"scheduler_config.json", CKPT__PART_CONFIG},
    {"config_sentence_transformers.json", CKPT__PART_CONFIG},
};

/* Words of names that people give: "last_optimizer.pt". The first that is in it decides. */
static const struct {
    const char *word;
    ckpt__part part;
} words[] = {
    {"ema", CKPT__PART_EMA},       {"optimizer", CKPT__PART_OPTIMIZER}, {"optim", CKPT__PART_OPTIMIZER},
    {"opt", CKPT__PART_OPTIMIZER}, {"scheduler", CKPT__PART_SCHEDULER}, {"sched", CKPT__PART_SCHEDULER},
    {"scaler", CKPT__PART_SCALER}, {"sampler", CKPT__PART_SAMPLER},     {"rng", CKPT__PART_RNG},
    {"random", CKPT__PART_RNG},    {"args", CKPT__PART_ARGS},           {"hparams", CKPT__PART_ARGS},
    {"model", CKPT__PART_MODEL},   {"weights", CKPT__PART_MODEL},       {"params", CKPT__PART_MODEL},
};

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool has_word(const char *text, size_t size, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(text + i, word, n) == 0 && (i == 0 || !is_letter(text[i - 1])) &&
            (i + n == size || !is_letter(text[i + n])))
            return true;
    return false;
}

/* The name without its suffix is a stem, or one with a number behind; of a model, a variant may follow ("model.fp16"). */
static ckpt__part part_of_stem(const char *name, size_t size, int64_t *number)
{
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
        size_t n = strlen(stems[i].stem), m;
        uint64_t value;
        if (size < n || memcmp(name, stems[i].stem, n) != 0)
            continue;
        bool model = stems[i].part == CKPT__PART_MODEL || stems[i].part == CKPT__PART_ADAPTER;
        if (size == n || (model && name[n] == '.'))
            return stems[i].part;
        if (stems[i].numbered && name[n] == '_' && (m = digits(name + n + 1, &value)) > 0 && n + 1 + m == size) {
            *number = (int64_t)value;
            return stems[i].part;
        }
    }
    return CKPT__PART_NONE;
}

ckpt__part ckpt__part_of(const char *path, int64_t *number, bool *exact)
{
    const char *name = base_of(path);
    char stem[300];
    uint64_t which, count;
    *number = -1;
    *exact = true;
    if ((strstr(name, ".safetensors.index.") || strstr(name, ".bin.index.")) && ckpt__ends(name, ".json"))
        return CKPT__PART_INDEX;
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        if (strcmp(name, documents[i].name) == 0)
            return documents[i].part;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (name[0] == '.' || !ckpt__ends(name, suffixes[i]))
            continue;
        if (ckpt__shard_of(name, &which, &count, stem, sizeof stem))
            return CKPT__PART_SHARD;
        size_t size = strlen(name) - strlen(suffixes[i]);
        ckpt__part part = part_of_stem(name, size, number);
        if (part)
            return part;
        *exact = false;
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (has_word(name, size, words[w].word))
                return words[w].part;
        return CKPT__PART_OTHER;
    }
    return CKPT__PART_NONE;
}

/* ---- a whole directory */

static ckpt_status add_member(ckpt__folder *f, const ckpt__member *like, ckpt_error *err)
{
    for (size_t i = 0; f->source->also_count && i < f->count; i++)
        if (strcmp(f->members[i].name, like->name) == 0) {
            f->members[i].copies++;
            return CKPT_OK;
        }
    char *name = ckpt__arena_copy(f->arena, like->name, strlen(like->name));
    if (!name || !ckpt__grow(&f->members, &f->capacity, f->count + 1, sizeof *f->members))
        return ckpt__fail_memory(err, "the files of a directory", f->count);
    f->members[f->count] = *like;
    f->members[f->count].name = name;
    f->members[f->count++].copies = 1;
    return CKPT_OK;
}

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    ckpt__folder *f = ctx;
    ckpt__foreign_see(f, name, folder);
    if (folder) {
        char *copy = ckpt__arena_copy(f->arena, name, strlen(name));
        if (!copy || !ckpt__grow(&f->folders, &f->folder_capacity, f->folder_count + 1, sizeof *f->folders))
            return ckpt__fail_memory(err, "the files of a directory", f->count);
        f->folders[f->folder_count++] = copy;
        return CKPT_OK;
    }
    ckpt__member m = {.name = name, .root = root};
    m.part = ckpt__part_of(name, &m.number, &m.exact);
    return m.part ? add_member(f, &m, err) : CKPT_OK;
}

/* Names in one folder below, with it in front of them. */
typedef struct below {
    ckpt__folder *folder;
    const char *name;
} below;

static ckpt_status see_below(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    below *b = ctx;
    char path[520];
    ckpt__member m = {.name = path, .root = root};
    int n = snprintf(path, sizeof path, "%s/%s", b->name, name);
    if (folder || n < 0 || (size_t)n >= sizeof path)
        return CKPT_OK;
    m.part = ckpt__part_of(path, &m.number, &m.exact);
    return m.part && m.exact ? add_member(b->folder, &m, err) : CKPT_OK;
}

static const ckpt__member *member(const ckpt__folder *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->members[i].name, name) == 0)
            return &f->members[i];
    return NULL;
}

static size_t count_part(const ckpt__folder *f, ckpt__part part)
{
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++)
        n += f->members[i].part == part && f->members[i].exact;
    return n;
}

/* JSON, which holds no tensor. */
static size_t count_documents(const ckpt__folder *f)
{
    return count_part(f, CKPT__PART_CONFIG) + count_part(f, CKPT__PART_TRAINER_STATE);
}

/* An adapter of several has its configuration beside it and nothing else: what the Trainer saved at a step is no part. */
static bool is_adapter_folder(const ckpt__folder *f, const char *folder, size_t from)
{
    char config[520];
    snprintf(config, sizeof config, "%s/adapter_config.json", folder);
    for (size_t i = from; i < f->count; i++)
        if (f->members[i].part != CKPT__PART_ADAPTER && f->members[i].part != CKPT__PART_CONFIG)
            return false;
    return member(f, config) != NULL;
}

/* What a program's own hook of accelerator.save_state leaves: a model's folder with its settings (diffusers' save_pretrained). */
static bool is_model_folder(const ckpt__folder *f, const char *folder, size_t from)
{
    char config[520];
    bool model = false;
    snprintf(config, sizeof config, "%s/config.json", folder);
    for (size_t i = from; i < f->count; i++)
        model = model || f->members[i].part == CKPT__PART_MODEL || f->members[i].part == CKPT__PART_INDEX;
    return model && member(f, config) != NULL;
}

static bool of_accelerate(const ckpt__member *m)
{
    bool bin = ckpt__ends(m->name, ".bin") &&
               (m->part == CKPT__PART_OPTIMIZER || m->part == CKPT__PART_SCHEDULER || m->part == CKPT__PART_SAMPLER);
    return m->exact && (bin || m->part == CKPT__PART_CUSTOM || ckpt__begins(m->name, "random_states_"));
}

/* A pipeline of diffusers keeps its models in folders, PEFT all adapters but the one named `default`. */
/* "pytorch_model_fsdp_0", "optimizer_0": what accelerate and the Trainer save of FSDP (accelerate/utils/fsdp_utils.py). */
static bool is_distributed(const ckpt__folder *f, const char *name, int64_t *number)
{
    static const char *const begins[] = {"pytorch_model_fsdp_", "optimizer_"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i]);
        if (ckpt__begins(name, begins[i]) && ckpt__parse_i64(name + n, strlen(name) - n, number) && *number >= 0)
            return ckpt__dcp_in_folder(f->source, name);
    }
    return false;
}

static ckpt_status add_distributed(ckpt__folder *f, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < f->folder_count; i++) {
        ckpt__member m = {.name = f->folders[i], .part = CKPT__PART_DISTRIBUTED, .exact = true};
        if (is_distributed(f, m.name, &m.number))
            status = add_member(f, &m, err);
    }
    return status;
}

static ckpt_status look_below(ckpt__folder *f, ckpt_error *err)
{
    enum { FOLDERS = 64 };
    bool pipeline = member(f, "model_index.json") != NULL, hooks = false;
    size_t kept = f->count;
    for (size_t i = 0; i < f->count; i++)
        hooks = hooks || of_accelerate(&f->members[i]);
    ckpt_status status = CKPT_OK;
    if (!pipeline && (count_part(f, CKPT__PART_MODEL) || count_part(f, CKPT__PART_INDEX)))
        return CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < f->folder_count && i < FOLDERS; i++) {
        below b = {f, f->folders[i]};
        size_t before = f->count;
        status = ckpt__source_each(f->source, f->folders[i], see_below, &b, err);
        bool part = pipeline || is_adapter_folder(f, f->folders[i], before) ||
                    (hooks && is_model_folder(f, f->folders[i], before));
        if (!part)
            f->count = before;
    }
    /* Adapters that stand alone below a directory of nothing else are its checkpoints, not its parts; and so they are beside
     * several files that are whole states. */
    size_t states = 0, own = 0;
    for (size_t i = 0; i < kept; i++) {
        states += f->members[i].part == CKPT__PART_OTHER;
        own += f->members[i].part == CKPT__PART_ADAPTER;
    }
    if (status == CKPT_OK && !pipeline && (kept == 0 || (states > 1 && own == 0)) && f->count > kept)
        f->count = kept;
    return status;
}

static bool of_trainer(const ckpt__member *m)
{
    bool part = m->part == CKPT__PART_OPTIMIZER || m->part == CKPT__PART_SCHEDULER;
    return m->exact && ((part && ckpt__ends(m->name, ".pt")) || ckpt__begins(m->name, "rng_state"));
}

static ckpt__folder_layout layout_of(const ckpt__folder *f)
{
    bool trainer = false, accelerate = false, others = false;
    for (size_t i = 0; i < f->count; i++) {
        const ckpt__member *m = &f->members[i];
        bool model = m->exact && (m->part == CKPT__PART_MODEL || m->part == CKPT__PART_CONFIG);
        trainer = trainer || of_trainer(m);
        accelerate = accelerate || of_accelerate(m) || m->part == CKPT__PART_DISTRIBUTED;
        others = others || !model;
    }
    bool args = count_part(f, CKPT__PART_ARGS) > 0;
    if (member(f, "trainer_state.json") || (args && trainer))
        return CKPT__LAYOUT_HF_TRAINER;
    if (accelerate)
        return CKPT__LAYOUT_ACCELERATE;
    if (count_part(f, CKPT__PART_ADAPTER))
        return CKPT__LAYOUT_PEFT;
    if (count_part(f, CKPT__PART_INDEX) || count_part(f, CKPT__PART_SHARD) || member(f, "model_index.json") ||
        (count_part(f, CKPT__PART_MODEL) && (!others || member(f, "config.json") || args)))
        return CKPT__LAYOUT_HF;
    return CKPT__LAYOUT_FOLDER;
}

/* ---- which of them are read */

/* Of one model under several names the one that its own program loads: safetensors before .bin, whole before sharded,
 * without a variant ("model.fp16.safetensors") before one. Smaller is better. */
static int preference(const ckpt__member *m)
{
    const char *name = base_of(m->name), *dot = strchr(name, '.');
    bool index = m->part == CKPT__PART_INDEX;
    bool safetensors = strstr(name, ".safetensors") != NULL;
    size_t dots = 0;
    for (const char *p = dot; p; p = strchr(p + 1, '.'))
        dots++;
    bool variant = dots > (index ? 3u : 1u);
    return (variant ? 4 : 0) + (safetensors ? 0 : 2) + (index ? 1 : 0);
}

/* An adapter, which lies beside a model: 1 is one of PEFT, 2 one of diffusers. 0: neither. */
static int kind_of_adapter(const char *base)
{
    return ckpt__begins(base, "adapter") ? 1 : ckpt__begins(base, "pytorch_lora_weights") ? 2 : 0;
}

static bool same_model(const ckpt__member *a, const ckpt__member *b)
{
    if (a->number != b->number)
        return false;
    size_t in_a = (size_t)(base_of(a->name) - a->name), in_b = (size_t)(base_of(b->name) - b->name);
    return in_a == in_b && memcmp(a->name, b->name, in_a) == 0 &&
           kind_of_adapter(a->name + in_a) == kind_of_adapter(b->name + in_b);
}

static bool is_model_part(const ckpt__member *m)
{
    return m->exact && (m->part == CKPT__PART_INDEX || m->part == CKPT__PART_MODEL || m->part == CKPT__PART_ADAPTER);
}

static void choose_known(ckpt__folder *f)
{
    for (size_t i = 0; i < f->count; i++) {
        ckpt__member *m = &f->members[i];
        m->read = m->exact && m->part != CKPT__PART_SHARD && m->part != CKPT__PART_OTHER;
        for (size_t k = 0; m->read && is_model_part(m) && k < f->count; k++)
            if (k != i && is_model_part(&f->members[k]) && same_model(m, &f->members[k])) {
                int own = preference(m), other = preference(&f->members[k]);
                m->read = own < other || (own == other && i < k);
            }
    }
}

/* Files of other names are one checkpoint where each is another part of it. Given one by one, they are what was asked
 * for. */
static void choose_folder(ckpt__folder *f)
{
    bool given = f->source->dirfd < 0;
    const ckpt__member *first = NULL, *second = NULL;
    size_t files = 0;
    char one[120], two[120];
    for (size_t i = 0; i < f->count; i++) {
        ckpt__member *m = &f->members[i];
        m->read = true;
        if (m->part == CKPT__PART_CONFIG || m->part == CKPT__PART_TRAINER_STATE)
            continue;
        files++;
        for (size_t k = 0; k < i && !second; k++)
            if (f->members[k].part == m->part) {
                first = &f->members[k];
                second = m;
            }
        if (m->part == CKPT__PART_OTHER && files > 1 && !second) {
            first = &f->members[i - 1];
            second = m;
        }
        if (m->part == CKPT__PART_MODEL && f->members[0].part == CKPT__PART_OTHER && !second) {
            first = &f->members[0]; /* a name that says nothing is a whole state, and no part of a model's */
            second = m;
        }
    }
    if (files > 0 && (!second || given))
        return;
    f->layout = CKPT__LAYOUT_NONE;
    if (second)
        snprintf(
            f->why, sizeof f->why,
            "it holds several checkpoints, such as %s and %s: give one of them, or those that belong together (options.also; --one)",
            ckpt__escape(one, sizeof one, first->name, strlen(first->name)),
            ckpt__escape(two, sizeof two, second->name, strlen(second->name)));
}

/* "checkpoint-500", "step_100", "epoch=3": a number at the end. */
static bool is_step_folder(const char *name)
{
    size_t n = strlen(name);
    return n > 1 && name[n - 1] >= '0' && name[n - 1] <= '9' && is_letter(name[0]);
}

static void explain_none(ckpt__folder *f)
{
    const char *steps[2] = {NULL, NULL};
    size_t count = 0;
    char one[120], two[120];
    for (size_t i = 0; i < f->folder_count; i++)
        if (is_step_folder(f->folders[i]) && count++ < 2)
            steps[count - 1] = f->folders[i];
    f->layout = CKPT__LAYOUT_NONE;
    bool inside = false;
    for (size_t i = 0; i < f->folder_count; i++)
        inside = inside || strcmp(f->folders[i], "checkpoints") == 0;
    if (count == 0 && inside)
        snprintf(f->why, sizeof f->why, "not a checkpoint itself; give one of those in its folder checkpoints");
    else if (count == 0)
        snprintf(f->why, sizeof f->why,
                 "not a checkpoint: this directory has no checkpoint.json, and no files that another program saves");
    else if (count == 1)
        snprintf(f->why, sizeof f->why, "not a checkpoint itself; give the one in it: %s",
                 ckpt__escape(one, sizeof one, steps[0], strlen(steps[0])));
    else
        snprintf(f->why, sizeof f->why, "it holds several checkpoints, such as %s and %s: give one of them",
                 ckpt__escape(one, sizeof one, steps[0], strlen(steps[0])),
                 ckpt__escape(two, sizeof two, steps[1], strlen(steps[1])));
}

/* The parts in their order, and first of all what may be anything: a whole state, beside which others lie. */
static int in_order(const void *x, const void *y)
{
    const ckpt__member *a = x, *b = y;
    int of_a = a->part == CKPT__PART_OTHER ? 0 : (int)a->part, of_b = b->part == CKPT__PART_OTHER ? 0 : (int)b->part;
    if (of_a != of_b)
        return of_a < of_b ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

ckpt_status ckpt__folder_look(const ckpt__source *source, ckpt__folder *f, ckpt_error *err)
{
    memset(f, 0, sizeof *f);
    f->source = source;
    f->arena = ckpt__arena_new(0);
    ckpt_status status =
        f->arena ? ckpt__source_each(source, "", see, f, err) : ckpt__fail_memory(err, "the files of a directory", 0);
    if (status == CKPT_OK && f->count)
        qsort(f->members, f->count, sizeof *f->members, in_order);
    if (status == CKPT_OK)
        ckpt__foreign_decide(f);
    if (status < 0 || f->layout == CKPT__LAYOUT_REFUSED)
        return status;
    if (f->folder_count)
        qsort(f->folders, f->folder_count, sizeof *f->folders, by_name);
    if ((status = look_below(f, err)) < 0 || (status = add_distributed(f, err)) < 0)
        return status;
    if (f->count)
        qsort(f->members, f->count, sizeof *f->members, in_order);
    bool tensors = false;
    for (size_t i = 0; i < f->count; i++)
        tensors =
            tensors || (f->members[i].part != CKPT__PART_CONFIG && f->members[i].part != CKPT__PART_TRAINER_STATE);
    for (size_t i = 0; i < f->folder_count && tensors; i++) /* a run's arguments beside its steps */
        if (is_step_folder(f->folders[i]) && count_part(f, CKPT__PART_ARGS) == f->count - count_documents(f))
            tensors = false;
    if (!tensors) {
        explain_none(f);
        return CKPT_OK;
    }
    if (member(f, "model.safetensors") && member(f, "training.safetensors")) { /* ours, and its manifest comes last */
        snprintf(f->why, sizeof f->why,
                 "not a checkpoint: a step without its checkpoint.json, so its save did not complete");
        return CKPT_OK;
    }
    f->layout = layout_of(f);
    if (f->layout == CKPT__LAYOUT_FOLDER)
        choose_folder(f);
    else
        choose_known(f);
    return CKPT_OK;
}

void ckpt__folder_free(ckpt__folder *f)
{
    ckpt__arena_free(f->arena);
    free(f->members);
    free(f->folders);
    memset(f, 0, sizeof *f);
}
