/* anatomy/canon_splits.c - how trainers divide a model's parameters in those that decay and those that do not: by rank, or by
 * what their names say. */
#include "anatomy/canon_work.h"

static bool is_bias(ckpt_str name)
{
    return ckpt__str_ends(name, "bias");
}

/* A part of the name says norm, or is ln, bn, gn with a number or a letter: ln_1, ln_f, bn2. */
static bool is_norm(ckpt_str name)
{
    for (size_t i = 0; i < name.size; i++) {
        size_t left = name.size - i;
        const char *c = name.data + i;
        if (left >= 4 && (memcmp(c, "norm", 4) == 0 || memcmp(c, "Norm", 4) == 0))
            return true;
        if ((i > 0 && c[-1] != '.') || left < 3 ||
            (memcmp(c, "ln", 2) != 0 && memcmp(c, "bn", 2) != 0 && memcmp(c, "gn", 2) != 0))
            continue;
        if (c[2] == '.' || c[2] == '_' || (c[2] >= '0' && c[2] <= '9') || (c[2] == 'f' && left > 3 && c[3] == '.'))
            return true;
    }
    return false;
}

static bool holds(ckpt_str name, const char *word)
{
    return memmem(name.data, name.size, word, strlen(word)) != NULL;
}

/* Tokens, positions and scales, which vision transformers and VAR do not decay. */
static bool is_token(ckpt_str name)
{
    static const char *const words[] = {"cls_token", "start_token", "task_token", "cfg_uncond", "pos_embed",
                                        "pos_1LC",   "pos_start",   "start_pos",  "lvl_embed",  "gamma",
                                        "beta",      "ada_gss",     "moe_bias",   "scale_mul"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (holds(name, words[i]))
            return true;
    return false;
}

static bool decays_by_rank(ckpt_str name, uint32_t ndim)
{
    (void)name;
    return ndim >= 2;
}

static bool decays_by_name(ckpt_str name, uint32_t ndim)
{
    (void)ndim;
    return !is_bias(name) && !is_norm(name);
}

static bool decays_by_token(ckpt_str name, uint32_t ndim)
{
    return ndim != 1 && !is_bias(name) && !is_token(name);
}

static bool decays_by_bias(ckpt_str name, uint32_t ndim)
{
    (void)ndim;
    return !is_bias(name);
}

/* The Trainer of transformers: "bias" anywhere in the name, and layers of its list of norms. */
static bool decays_by_hf(ckpt_str name, uint32_t ndim)
{
    (void)ndim;
    return !holds(name, "bias") && !is_norm(name);
}

/* Is `word` in the name, in small letters or not? */
static bool holds_any_case(ckpt_str name, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= name.size; i++) {
        size_t k = 0;
        while (k < n && (name.data[i + k] | 0x20) == word[k])
            k++;
        if (k == n)
            return true;
    }
    return false;
}

/* The same in transformers 5, by patterns: a norm is one that is called norm and nothing more, or ends in _norm. */
static bool decays_by_pattern(ckpt_str name, uint32_t ndim)
{
    (void)ndim;
    if (holds_any_case(name, "bias") || holds_any_case(name, "layernorm") || holds_any_case(name, "rmsnorm"))
        return false;
    for (size_t i = 0; i + 4 <= name.size; i++) {
        bool begins = i == 0 || name.data[i - 1] == '.' || name.data[i - 1] == '_';
        bool ends = i + 4 == name.size || name.data[i + 4] == '.';
        ckpt_str part = {name.data + i, 4};
        if (begins && ends && holds_any_case(part, "norm"))
            return false;
    }
    return true;
}

/* The Trainer again, where norms are told by their class and their names do not say it. */
static bool decays_by_vector(ckpt_str name, uint32_t ndim)
{
    bool weight = ckpt__str_ends(name, "weight");
    return !holds(name, "bias") && !(ndim < 2 && weight);
}

/* The recipe of BERT: no_decay = ["bias", "LayerNorm.weight"]. */
static bool decays_by_layernorm(ckpt_str name, uint32_t ndim)
{
    (void)ndim;
    return !holds(name, "bias") && !holds(name, "LayerNorm.weight") && !holds(name, "LayerNorm.bias");
}

static const struct {
    const char *name, *text;
    bool (*decays)(ckpt_str name, uint32_t ndim);
} splits[] = {
    {"rank", "with two or more dimensions", decays_by_rank},
    {"name", "that are neither bias nor norm", decays_by_name},
    {"token", "with two or more dimensions that are not a bias, token or position", decays_by_token},
    {"bias", "that are not a bias", decays_by_bias},
    {"hf", "without 'bias' in their names that are not a norm", decays_by_hf},
    {"vector", "without 'bias' in their names that are not a vector called weight", decays_by_vector},
    {"pattern", "without 'bias', 'layernorm' or 'norm' as a word in their names", decays_by_pattern},
    {"layernorm", "without 'bias' or 'LayerNorm' in their names", decays_by_layernorm},
};

size_t ckpt__split_count(void)
{
    return sizeof splits / sizeof splits[0];
}

const char *ckpt__split_name(size_t split)
{
    return splits[split].name;
}

const char *ckpt__split_text(size_t split)
{
    return splits[split].text;
}

bool ckpt__split_decays(size_t split, ckpt_str name, uint32_t ndim)
{
    return splits[split].decays(name, ndim);
}

/* A group that decays and one that does not: the names must be of the classes that trainers put there. */
bool ckpt__classes_agree(const ckpt__optimizer *o, const ckpt__model *m, const ckpt__builder *b, const size_t *entries)
{
    bool some = false, none = false;
    for (size_t g = 0; g < o->group_count; g++) {
        some = some || (o->groups[g].has_decay && o->groups[g].decay > 0);
        none = none || (o->groups[g].has_decay && !(o->groups[g].decay > 0));
    }
    for (size_t i = 0; some && none && i < o->slot_count; i++) {
        const ckpt__opt_group *g = &o->groups[o->slots[i].group];
        const ckpt__model_entry *e = &m->entries[entries[i]];
        bool vector = is_bias(e->own) || is_norm(e->own);
        uint32_t ndim = b->index->tensors[e->tensor].info.ndim;
        if (g->has_decay && g->decay > 0 ? vector : !vector && !is_token(e->own) && ndim >= 2)
            return false;
    }
    return true;
}
