/* format/deepspeed/names.c - what a file of a tag is, by its name (deepspeed/runtime/engine.py: _get_zero_ckpt_name, _get_ckpt_name,
 * _get_expert_ckpt_name, _get_optimizer_ckpt_name; pipe/module.py: ckpt_layer_path). */
#include "format/deepspeed/deepspeed.h"

#include <stdio.h>
#include <stdlib.h>

static bool takes(const char **at, const char *word)
{
    if (!ckpt__begins(*at, word))
        return false;
    *at += strlen(word);
    return true;
}

static bool takes_number(const char **at, int64_t *out)
{
    size_t digits = strspn(*at, "0123456789");
    bool is = digits > 0 && digits <= 9 && ckpt__parse_i64(*at, digits, out);
    *at += digits;
    return is;
}

ckpt__ds_kind ckpt__ds_kind_of(const char *name, int64_t *dp, int64_t *mp)
{
    const char *at = name;
    *dp = *mp = 0;
    if (!ckpt__ends(name, "_states.pt"))
        return CKPT__DS_NOTHING;
    if (takes(&at, "layer_"))
        return strstr(at, "expert_") ? CKPT__DS_EXPERT : CKPT__DS_LAYER;
    if (takes(&at, "expp_rank_"))
        return CKPT__DS_EXPERT;
    if (takes(&at, "mp_rank_"))
        return takes_number(&at, mp) && strcmp(at, "_model_states.pt") == 0 ? CKPT__DS_MODEL : CKPT__DS_NOTHING;
    bool prefixed = takes(&at, "bf16_") || takes(&at, "fp16_");
    if (!takes(&at, "zero_pp_rank_") || !takes_number(&at, dp) || !takes(&at, "_mp_rank_") || !takes_number(&at, mp))
        return CKPT__DS_NOTHING;
    if (strcmp(at, "_optim_states.pt") == 0)
        return CKPT__DS_OPTIM;
    return !prefixed && strcmp(at, "_model_states.pt") == 0 ? CKPT__DS_MODEL_OF : CKPT__DS_NOTHING;
}

/* ---- what the file itself says */

ckpt_status ckpt__ds_check_name(const char *name, ckpt_str archive, ckpt_error *err)
{
    enum { LONGEST = 200 };
    char said[LONGEST + 4];
    int64_t dp, mp, own_dp, own_mp;
    const char *slash = strrchr(name, '/');
    if (!archive.data || archive.size > LONGEST || memchr(archive.data, '\0', archive.size))
        return CKPT_OK;
    snprintf(said, sizeof said, "%.*s.pt", (int)archive.size, archive.data);
    const ckpt__ds_kind own = ckpt__ds_kind_of(said, &own_dp, &own_mp),
                        kind = ckpt__ds_kind_of(slash ? slash + 1 : name, &dp, &mp);
    if (own == CKPT__DS_NOTHING || kind == CKPT__DS_NOTHING || (own == kind && own_dp == dp && own_mp == mp))
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_MISMATCH, name,
        "it was saved as %s, as its archive says, and is in the place of another file: files of two ranks were exchanged, or "
        "one was copied over the other. Copy the file of this name from where it was saved, or take another checkpoint",
        said);
}

/* ---- the files of a tag */

enum { MOST_RANKS = 1 << 16 };

static bool has_room(ckpt__ds_tag *t, size_t count)
{
    if (count <= t->capacity)
        return true;
    size_t capacity = count < 64 ? 64 : 2 * count;
    const char **optim = realloc(t->optim, capacity * sizeof *optim);
    t->optim = optim ? optim : t->optim;
    const char **model = optim ? realloc(t->model, capacity * sizeof *model) : NULL;
    t->model = model ? model : t->model;
    if (!model)
        return false;
    memset(optim + t->capacity, 0, (capacity - t->capacity) * sizeof *optim);
    memset(model + t->capacity, 0, (capacity - t->capacity) * sizeof *model);
    t->capacity = capacity;
    return true;
}

typedef struct looking {
    ckpt__ds_tag *tag;
    const char *below;
} looking;

static ckpt_status take(const looking *l, const char **slot, const char *name, ckpt_error *err)
{
    if (*slot && strcmp(*slot + strlen(l->below), name) == 0) /* in another of the roots */
        return CKPT_OK;
    if (*slot)
        return ckpt__fail(err, CKPT_E_MISMATCH, *slot,
                          "it is of the same rank as %s: one of them is not of this checkpoint", name);
    size_t n = strlen(l->below) + strlen(name) + 1;
    char *copy = ckpt__arena_alloc(l->tag->arena, n);
    if (!copy)
        return ckpt__fail_memory(err, "the names of a folder", n);
    snprintf(copy, n, "%s%s", l->below, name);
    *slot = copy;
    return CKPT_OK;
}

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    const looking *l = ctx;
    ckpt__ds_tag *t = l->tag;
    int64_t dp, mp;
    (void)root;
    if (folder) {
        t->universal |= strcmp(name, "zero") == 0;
        return CKPT_OK;
    }
    const ckpt__ds_kind kind = ckpt__ds_kind_of(name, &dp, &mp);
    if (kind == CKPT__DS_NOTHING)
        return CKPT_OK;
    t->models += kind == CKPT__DS_MODEL;
    t->models_of += kind == CKPT__DS_MODEL_OF;
    t->optims += kind == CKPT__DS_OPTIM;
    t->layers += kind == CKPT__DS_LAYER;
    t->experts += kind == CKPT__DS_EXPERT;
    t->highest_mp = mp > t->highest_mp ? mp : t->highest_mp;
    if (kind == CKPT__DS_LAYER || kind == CKPT__DS_EXPERT || mp > 0)
        return CKPT_OK;
    if (kind == CKPT__DS_MODEL)
        return take(l, &t->plain, name, err);
    if (dp >= MOST_RANKS)
        return ckpt__fail(err, CKPT_E_LIMIT, name, "it is of rank %lld; ranks below %d are read", (long long)dp,
                          (int)MOST_RANKS);
    if (!has_room(t, (size_t)dp + 1))
        return ckpt__fail_memory(err, "the names of a folder", (size_t)dp);
    t->highest = dp > t->highest ? dp : t->highest;
    return take(l, kind == CKPT__DS_OPTIM ? &t->optim[dp] : &t->model[dp], name, err);
}

ckpt_status ckpt__ds_look(const ckpt__source *source, const char *below, ckpt__arena *arena, ckpt__ds_tag *out,
                          ckpt_error *err)
{
    *out = (ckpt__ds_tag){.highest = -1, .highest_mp = -1, .arena = arena};
    looking l = {out, below};
    return ckpt__source_each(source, below, see, &l, err);
}

void ckpt__ds_tag_free(ckpt__ds_tag *tag)
{
    free(tag->optim);
    free(tag->model);
    tag->optim = tag->model = NULL;
}
