/* inspect/show_parts.c - parts of what show says that its text and its JSON, or the lists of runs and folders, share. */
#include "cli/inspect/show.h"
#include <string.h>
#include "cli/out/checkpoints.h"

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
    out->unnamed = !params;
    if (!key_begins(groups->kind == CKPT_V_DICT ? groups->entries[i].key : g, "param_groups/"))
        return true;
    if (!options)
        return false; /* libtorch's param_groups/size */
    out->hypers = options;
    out->unnamed = false;
    out->name = (ckpt_str){out->name.data + 13, out->name.size - 13};
    for (size_t k = 0; k < g->entry_count; k++)
        out->params += key_begins(g->entries[k].key, "params/") && g->entries[k].value->kind == CKPT_V_STR;
    return true;
}

bool show_may_hold(const show_picture *p)
{
    return p->directory && !p->o->one && !p->o->cli.from && strcmp(ckpt_reader_format(p->reader), "ckpt") != 0;
}

/* ---- --json */

void show_json_progress(json_out *j, const ckpt_summary *s)
{
    json_int_or_null(j, "step", s->step >= 0, s->step);
    checkpoint_json_epoch(j, "epoch", s->epoch, s->epoch_exact);
}

void show_json_unsaid(json_out *j)
{
    static const char *const members[] = {"tensors", "roles", "devices", "dtypes", "optimizer", "scaler"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_null(j, members[i]);
}
