/* doctor/ranks.c - several ranks, and the files of a directory: whose device a tag names, how many states there
 * are, and which file that a framework wants is not there. */
#include "doctor/facts.h"

#include <limits.h>
#include <stdio.h>
#include "anatomy/producer.h"
#include "format/table.h"

static const ckpt_str none = {NULL, 0};

/* The rank that a name says: rank-00003, rank3, mp_rank_03, random_states_3.pkl; -1: none. */
int64_t ckpt__doctor_rank_in(ckpt_str name)
{
    for (size_t i = name.size; i-- > 0;) {
        size_t at = i + 4, digits = 0;
        int64_t rank = 0;
        if (name.size - i < 5 || memcmp(name.data + i, "rank", 4) != 0)
            continue;
        if (at < name.size && (name.data[at] == '-' || name.data[at] == '_'))
            at++;
        for (; at < name.size && name.data[at] >= '0' && name.data[at] <= '9' && digits < 9; at++, digits++)
            rank = rank * 10 + (name.data[at] - '0');
        if (digits)
            return rank;
    }
    return -1;
}

/* "prefix<number>suffix" -> the number; -1: another name. */
static int64_t number_in(ckpt_str name, const char *prefix, const char *suffix)
{
    size_t a = strlen(prefix), b = strlen(suffix);
    int64_t n;
    if (!name.data || name.size <= a + b || memcmp(name.data, prefix, a) != 0 ||
        memcmp(name.data + name.size - b, suffix, b) != 0 || !ckpt__parse_i64(name.data + a, name.size - a - b, &n) ||
        n < 0)
        return -1;
    return n;
}

static bool is_folder(const ckpt__examination *p)
{
    return ckpt__in_files(p->index);
}

/* ---- tags */

/* The one GPU that all tags of GPUs name; NONE: none, or several. */
static ckpt_device only_gpu(const ckpt__examination *p)
{
    ckpt_device one = {CKPT_DEVICE_NONE, -1};
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        ckpt_str tag = p->index->tensors[i].info.device;
        ckpt_device d = tag.data ? ckpt__tag_parse(tag) : one;
        if (!ckpt__is_gpu(d) || d.index < 0)
            continue;
        if (one.type != CKPT_DEVICE_NONE && !ckpt_device_equal(one, d))
            return (ckpt_device){CKPT_DEVICE_NONE, -1};
        one = d;
    }
    return one;
}

/* How many ranks the names of the files say that hold tensors on a GPU. */
static size_t rank_files(const ckpt__examination *p)
{
    int64_t first = -1;
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        int64_t rank = t->file.data && t->device.data && ckpt__is_gpu(ckpt__tag_parse(t->device))
                           ? ckpt__doctor_rank_in(t->file)
                           : -1;
        if (rank >= 0 && first >= 0 && rank != first)
            return 2;
        first = rank >= 0 ? rank : first;
    }
    return first >= 0;
}

static void check_tags(ckpt__examination *p)
{
    char a[24], b[CKPT_DEVICE_NAME_MAX], c[48];
    ckpt_device only = only_gpu(p);
    int world = p->options->world;
    size_t files = rank_files(p);
    int64_t rank = ckpt__doctor_rank_in(ckpt__s(p->reader->path));
    if (only.type == CKPT_DEVICE_NONE || p->map || p->loader->alone != CKPT__TO_TAG || ckpt__format_of(p->index)->bound)
        return;
    ckpt_device_name(only, b);
    snprintf(a, sizeof a, "%lld", (long long)rank);
    if (files > 1) {
        ckpt__doctor_note(p, CKPT__RANKS_TOGETHER, NULL, none, "the files of several ranks are", b, "their ranks");
    } else if (rank >= 0 && ((world > 0 && rank >= world) || (rank != only.index && only.index > 0))) {
        ckpt__doctor_note(p, CKPT__RANK_OTHER, NULL, none, a, b, NULL);
    } else if (rank < 0 && world > 1) {
        snprintf(c, sizeof c, "%d ranks", world);
        ckpt__doctor_note(p, CKPT__RANKS_TOGETHER, NULL, none, "the checkpoint is", b, c);
    } else if (only.index > 0) {
        ckpt__doctor_note(p, CKPT__RANK_TAG, NULL, none, a, b, NULL);
    }
}

/* ---- states of ranks in files of their own */

static const struct {
    ckpt_loader loader;
    const char *prefix, *suffix, *alone;
    const char *what;
} rank_states[] = {
    {CKPT_LOADER_ACCELERATE, "random_states_", ".pkl", NULL, "random generators"},
    {CKPT_LOADER_HF_TRAINER, "rng_state_", ".pth", "rng_state.pth", "random generators"},
};

/* The message of the finding that says which file was left out; NULL: none begins so. */
static const char *left_out(const ckpt__examination *p, const char *prefix)
{
    const ckpt_report *r = p->index->findings;
    for (size_t i = 0; i < ckpt_report_count(r); i++) {
        const ckpt_finding *f = ckpt_report_get(r, i);
        if (strcmp(f->code, "member-damaged") == 0 && ckpt__begins(f->file, prefix))
            return f->message;
    }
    return NULL;
}

void ckpt__doctor_rank_states(ckpt__examination *p, int64_t parts)
{
    const ckpt_value *root = p->index->root;
    const char *damaged = p->loader->loader == CKPT_LOADER_ACCELERATE ? left_out(p, "random_states_") : NULL;
    if (damaged)
        ckpt__doctor_note(p, CKPT__RNG_DAMAGED, NULL, none, damaged, NULL, NULL);
    int gpus = p->cuda_devices, asked = p->options->world ? p->options->world : gpus == 0 || gpus == 1;
    for (size_t r = 0; r < sizeof rank_states / sizeof *rank_states; r++) {
        char have[24], want[24];
        uint64_t found = 0;
        bool alone = false;
        for (size_t i = 0; i < root->entry_count; i++) {
            ckpt_str file = root->entries[i].key->text;
            found += number_in(file, rank_states[r].prefix, rank_states[r].suffix) >= 0;
            alone = alone || (rank_states[r].alone && ckpt__str_is(file, rank_states[r].alone));
        }
        if (rank_states[r].loader == p->loader->loader && found == 0 && !alone && !damaged)
            ckpt__doctor_note(p, CKPT__RNG_MISSING, NULL, none,
                              rank_states[r].alone ? rank_states[r].alone : "random_states_0.pkl", NULL, NULL);
        /* As many resume as wrote parts of the weights, where nothing else is said: a save that was cut short has fewer states. */
        int world = asked == 0 && found > 0 && (int64_t)found < parts && parts <= INT_MAX ? (int)parts : asked;
        if (world == 0 && found > 1) {
            snprintf(have, sizeof have, "%llu", (unsigned long long)found);
            ckpt__doctor_note(p, CKPT__RANK_STATES_SAID, NULL, none, have, NULL, rank_states[r].what);
        }
        bool fits = world == 1 && rank_states[r].alone ? alone || found == 0 : found == (uint64_t)world;
        if (world == 0 || fits || (found == 0 && !alone))
            continue;
        snprintf(have, sizeof have, "%llu", (unsigned long long)(found ? found : 1));
        snprintf(want, sizeof want, "%d", world);
        bool each = found >= (uint64_t)world && !(world == 1 && rank_states[r].alone);
        ckpt__doctor_note(p, each ? CKPT__RANK_STATES_MORE : CKPT__RANK_STATES, NULL, none, have, want,
                          rank_states[r].what);
    }
}

void ckpt__doctor_ranks(ckpt__examination *p)
{
    check_tags(p);
    if (is_folder(p) && p->index->root)
        ckpt__doctor_rank_states(p, ckpt__doctor_ranks_of_files(p));
}

/* ---- files that are wanted */

static bool has_file(const ckpt__examination *p, const char *name)
{
    return p->index->root && ckpt_value_get(p->index->root, name) != NULL;
}

/* What Lightning reads of the root, and fails without. */
static void check_keys(ckpt__examination *p)
{
    static const char *const keys[] = {"pytorch-lightning_version", "state_dict", "lr_schedulers"};
    const ckpt_value *root; /* in a folder of one file that of the file */
    ckpt_str file;
    ckpt__producer_match(p->index, &root, &file);
    const ckpt_value *list = ckpt_value_get(root, "lr_schedulers");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!ckpt_value_get(root, keys[i]) && (i < 2 || ckpt_value_get(root, "optimizer_states")))
            ckpt__doctor_note(p, CKPT__KEY_MISSING, NULL, none, keys[i], NULL, NULL);
    if (!ckpt_value_get(root, "loops"))
        ckpt__doctor_note(p, CKPT__PROGRESS_MISSING, NULL, none, NULL, NULL, NULL);
    if (list && list->kind == CKPT_V_LIST && list->item_count == 0 && p->had_scheduler)
        ckpt__doctor_note(p, CKPT__SCHEDULERS_EMPTY, NULL, none, NULL, NULL, NULL);
}

/* Weights that lie where accelerate itself puts none: a hook's (diffusers' unet/, pytorch_lora_weights). NULL: there is a
 * model of its own. */
static const char *hook_of(const ckpt__examination *p)
{
    const char *hook = NULL;
    for (size_t i = 0; i < p->index->root->entry_count; i++) {
        ckpt_str file = p->index->root->entries[i].key->text;
        bool below = memchr(file.data, '/', file.size) != NULL;
        if (!below && (ckpt__begins(file.data, "model") || ckpt__begins(file.data, "pytorch_model")))
            return NULL;
        if (!hook && ((below && strstr(file.data, "model")) || ckpt__begins(file.data, "pytorch_lora_weights")))
            hook = file.data;
    }
    return hook;
}

static bool is_none(const ckpt_value *v)
{
    return !v || v->kind == CKPT_V_NONE;
}

static void check_trainer_files(ckpt__examination *p)
{
    bool optimizer = p->optimizer_count > 0 || p->broken_optimizer, scheduler = has_file(p, "scheduler.pt");
    size_t groups = p->group_count;
    const ckpt_value *lrs = ckpt_value_get(ckpt_value_get(p->index->root, "scheduler.pt"), "base_lrs");
    if (!has_file(p, "trainer_state.json"))
        ckpt__doctor_note(p,
                          left_out(p, "trainer_state.json") ? CKPT__TRAINER_STATE_DAMAGED : CKPT__TRAINER_STATE_MISSING,
                          NULL, none, NULL, NULL, NULL);
    else if (is_none(ckpt_value_get(ckpt_value_get(p->index->root, "trainer_state.json"), "train_batch_size")))
        ckpt__doctor_note(p, CKPT__TRAINER_STATE_LACKS, NULL, none, NULL, NULL, NULL);
    if (left_out(p, "config.json"))
        ckpt__doctor_note(p, CKPT__CONFIG_DAMAGED, NULL, none, NULL, NULL, NULL);
    if (left_out(p, "training_args.bin"))
        ckpt__doctor_note(p, CKPT__ARGS_DAMAGED, NULL, none, NULL, NULL, NULL);
    if (p->optimizer_count == 1 && groups < 2 && p->optimizers[0].dead && !p->optimizers[0].lost)
        ckpt__doctor_note(p, CKPT__GROUPS_FEWER, NULL, none, "state of parameters that are in none", NULL, NULL);
    else if (p->optimizer_count == 1 && groups < 2 && lrs && lrs->kind == CKPT_V_LIST && lrs->item_count == 2)
        ckpt__doctor_note(p, CKPT__GROUPS_FEWER, NULL, none, "its scheduler is of two", NULL, NULL);
    if (optimizer && scheduler)
        return;
    bool cut_optimizer = left_out(p, "optimizer.pt"), cut_scheduler = left_out(p, "scheduler.pt");
    ckpt__doctor_note(p, CKPT__FILE_MISSING, NULL, none,
                      optimizer || cut_optimizer   ? "scheduler.pt is"
                      : scheduler || cut_scheduler ? "optimizer.pt is"
                                                   : "optimizer.pt and scheduler.pt are",
                      optimizer       ? "optimizer.pt"
                      : scheduler     ? "scheduler.pt"
                      : cut_optimizer ? "optimizer.pt, damaged"
                      : cut_scheduler ? "scheduler.pt, damaged"
                                      : "none",
                      NULL);
}

/* Is it torch.load that it fails in otherwise? */
static bool reads_torch(const ckpt__examination *p)
{
    return ckpt__format_of(p->inner)->torch_loads || ckpt__in_files(p->inner);
}

static bool is_sorted(const ckpt_value *last, const ckpt_value *v)
{
    if (!last)
        return true;
    const size_t least = last->text.size < v->text.size ? last->text.size : v->text.size;
    const int order = memcmp(last->text.data, v->text.data, least);
    return order < 0 || (order == 0 && last->text.size <= v->text.size);
}

/* FSDP 1 lists the states by the sorted names of their parameters (torch/distributed/fsdp/_optim_utils.py, _optim_state_dict), FSDP 2
 * in the order of the groups. False: it is of FSDP 2, or both orders are the same. */
static bool is_of_fsdp1(const ckpt_value *optimizer)
{
    const ckpt_value *state = ckpt_value_get(optimizer, "state"), *groups = ckpt_value_get(optimizer, "param_groups");
    const ckpt_value *last = NULL;
    bool sorted = state && state->kind == CKPT_V_DICT && groups && groups->kind == CKPT_V_LIST, same = true;
    for (size_t i = 0; sorted && i < state->entry_count; i++) {
        const ckpt_value *key = state->entries[i].key;
        sorted = key->kind == CKPT_V_STR && is_sorted(last, key);
        last = key;
    }
    last = NULL;
    for (size_t i = 0; sorted && i < groups->item_count; i++) {
        const ckpt_value *names = ckpt_value_get(groups->items[i], "params");
        for (size_t k = 0; names && names->kind == CKPT_V_LIST && k < names->item_count; k++) {
            same = same && names->items[k]->kind == CKPT_V_STR && is_sorted(last, names->items[k]);
            last = names->items[k];
        }
    }
    return sorted && !same;
}

static void check_fsdp(ckpt__examination *p)
{
    const ckpt_value *root = p->index->root;
    for (size_t i = 0; root && i < root->entry_count; i++) {
        const ckpt_value *key = root->entries[i].key;
        if (key->kind == CKPT_V_STR && ckpt__begins(key->text.data, "optimizer_") &&
            is_of_fsdp1(ckpt_value_get(root->entries[i].value, "optimizer")))
            ckpt__doctor_note(p, CKPT__MOMENTS_NOT_LOADED, NULL, none, key->text.data, NULL, NULL);
    }
}

void ckpt__doctor_files(ckpt__examination *p)
{
    bool weights = false;
    if (p->loader->loader == CKPT_LOADER_LIGHTNING && p->index->root && reads_torch(p))
        check_keys(p);
    for (size_t i = 0; i < p->index->tensor_count && !weights; i++)
        weights = p->index->tensors[i].info.role == CKPT_ROLE_PARAM;
    if (!weights && p->optimizer_count > 0)
        ckpt__doctor_note(p, CKPT__WEIGHTS_ELSEWHERE, NULL, none, NULL, NULL, NULL);
    if (!is_folder(p))
        return;
    bool accelerate = p->loader->loader == CKPT_LOADER_ACCELERATE,
         trainer = p->loader->loader == CKPT_LOADER_HF_TRAINER;
    if (!weights && (accelerate || trainer))
        ckpt__doctor_note(p, CKPT__WEIGHTS_MISSING, NULL, none,
                          accelerate ? "model.safetensors nor pytorch_model.bin" : "weights file", NULL, NULL);
    if (accelerate && weights && p->index->root && hook_of(p))
        ckpt__doctor_note(p, CKPT__WEIGHTS_BY_HOOK, NULL, none, hook_of(p), NULL, NULL);
    if (accelerate && p->optimizer_count == 0 && !p->broken_optimizer)
        ckpt__doctor_note(p, has_file(p, "pytorch_model_fsdp_0") ? CKPT__FSDP_OPTIMIZER_MISSING : CKPT__FILE_MISSING,
                          NULL, none, "optimizer.bin", NULL, NULL);
    if (accelerate && p->had_scheduler && !has_file(p, "scheduler.bin"))
        ckpt__doctor_note(p, CKPT__SCHEDULER_FILE_MISSING, NULL, none, NULL, NULL, NULL);
    if (accelerate || trainer)
        check_fsdp(p);
    if (trainer)
        check_trainer_files(p);
}
