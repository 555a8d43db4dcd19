/* inspect/folder_best.c - which checkpoint of a folder is the best by its trainer's own word: Lightning's ModelCheckpoint, and the HF Trainer's
 * state. No direction is guessed: where nobody says which score is better, the trainer's choice is told, or nothing. */
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"

/* ---- what one checkpoint says */

static const char lowest[] = "min", highest[] = "max";

static const char *base_of(const char *path, size_t size, size_t *n)
{
    while (size > 0 && path[size - 1] == '/')
        size--;
    size_t at = size;
    while (at > 0 && path[at - 1] != '/')
        at--;
    *n = size - at;
    return path + at;
}

/* The last part of a path: it is of the machine that trained. An empty path says that there is no best one yet. */
static void keep_base(char *out, size_t size, const ckpt_value *path)
{
    size_t n = 0;
    const char *base = path && path->kind == CKPT_V_STR ? base_of(path->text.data, path->text.size, &n) : "";
    folder_keep_text(out, size, base, n);
}

/* "min" or "max" in the key of a callback's state, ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min', ...}; NULL: it is not there, or twice. */
static const char *mode_in(ckpt_str key)
{
    static const char word[] = "'mode': '";
    const char *found = NULL;
    for (size_t i = 0; key.data && i + sizeof word + 4 <= key.size; i++) {
        const char *at = key.data + i + sizeof word - 1;
        if (memcmp(key.data + i, word, sizeof word - 1) != 0)
            continue;
        if (found || at[3] != '\'')
            return NULL;
        found = memcmp(at, lowest, 3) == 0 ? lowest : memcmp(at, highest, 3) == 0 ? highest : NULL;
    }
    return found;
}

static bool is_same_claim(const folder_claim *a, const folder_claim *b)
{
    return strcmp(a->best, b->best) == 0 && strcmp(a->monitor, b->monitor) == 0 && a->mode == b->mode;
}

static void take_callbacks(folder_claim *claim, const ckpt_value *callbacks)
{
    static const char name[] = "ModelCheckpoint";
    for (size_t i = 0; callbacks && callbacks->kind == CKPT_V_DICT && i < callbacks->entry_count; i++) {
        const ckpt_value *key = callbacks->entries[i].key, *state = callbacks->entries[i].value;
        if (key->kind != CKPT_V_STR || key->text.size < sizeof name - 1 ||
            memcmp(key->text.data, name, sizeof name - 1) != 0)
            continue;
        folder_claim own = {.best = ""};
        const ckpt_value *monitor = ckpt_value_get(state, "monitor");
        if (!monitor || monitor->kind != CKPT_V_STR) /* it saves by time alone, and calls its newest file the best */
            continue;
        keep_base(own.best, sizeof own.best, ckpt_value_get(state, "best_model_path"));
        folder_keep_text(own.monitor, sizeof own.monitor, monitor->text.data, monitor->text.size);
        own.mode = mode_in(key->text);
        if (!own.best[0])
            continue;
        claim->several = claim->several || (claim->best[0] && !is_same_claim(claim, &own));
        own.several = claim->several;
        *claim = own;
    }
}

static void take_trainer(folder_claim *claim, const ckpt_value *root)
{
    const ckpt_value *state = ckpt_value_get(root, "trainer_state.json"),
                     *args = ckpt_value_get(root, "training_args.bin"),
                     *metric = ckpt_value_get(args, "metric_for_best_model"),
                     *greater = ckpt_value_get(args, "greater_is_better");
    keep_base(claim->best, sizeof claim->best, ckpt_value_get(state, "best_model_checkpoint"));
    if (!claim->best[0])
        return;
    if (metric && metric->kind == CKPT_V_STR)
        folder_keep_text(claim->monitor, sizeof claim->monitor, metric->text.data, metric->text.size);
    if (greater && greater->kind == CKPT_V_BOOL)
        claim->mode = greater->boolean ? highest : lowest;
}

void folder_take_claim(folder_item *it, const ckpt_reader *reader)
{
    const ckpt_value *root = ckpt_reader_root(reader), *callbacks = ckpt_value_get(root, "callbacks");
    if (!callbacks)
        callbacks = ckpt_value_get(ckpt_value_get(root, "meta.pt"), "callbacks");
    take_callbacks(&it->claim, callbacks);
    if (!it->claim.best[0])
        take_trainer(&it->claim, root);
}

/* ---- what they say together */

/* An older best that is better than the newest one's: then they are of two runs. */
static bool is_better(const folder_item *older, const folder_item *newer)
{
    const char *mode = newer->claim.mode;
    if (!mode || !older->score.has_best || !newer->score.has_best)
        return false;
    return mode == highest ? older->score.best > newer->score.best : older->score.best < newer->score.best;
}

/* The newest that says something; those that are not complete were not read to their end. */
static const folder_item *newest_claim(const folder_list *l)
{
    for (size_t i = l->count; i-- > 0;)
        if (l->items[i].complete && l->items[i].claim.best[0])
            return &l->items[i];
    return NULL;
}

/* Does another one contradict what the newest says? */
static bool contradicts(const folder_item *other, const folder_item *newest)
{
    const folder_claim *a = &other->claim, *b = &newest->claim;
    if (other == newest || !other->complete || !a->best[0])
        return false;
    if (strcmp(a->monitor, b->monitor) != 0 || a->mode != b->mode)
        return true;
    return is_better(other, newest) || (other->step == newest->step && strcmp(a->best, b->best) != 0);
}

void folder_find_best(folder_list *l, const folder_item *last)
{
    const folder_item *says = newest_claim(l);
    folder_item *found = NULL;
    size_t n, named = 0;
    for (size_t i = 0; i < l->count; i++)
        l->items[i].last = &l->items[i] == last;
    if (!says)
        return;
    folder_best *best = &l->best;
    best->said = true;
    if (says->claim.several)
        snprintf(best->why, sizeof best->why, "%.200s keeps several, by callbacks that do not agree", says->name);
    for (size_t i = 0; i < l->count && !best->why[0]; i++)
        if (contradicts(&l->items[i], says))
            snprintf(best->why, sizeof best->why, "%.200s and %.200s contradict each other", l->items[i].name,
                     says->name);
    if (best->why[0])
        return;
    folder_keep_text(best->name, sizeof best->name, says->claim.best, strlen(says->claim.best));
    best->monitor = says->claim.monitor[0] ? says->claim.monitor : NULL;
    best->mode = says->claim.mode;
    for (size_t i = 0; i < l->count; i++) {
        const char *base = base_of(l->items[i].name, strlen(l->items[i].name), &n);
        if (strlen(best->name) != n || memcmp(base, best->name, n) != 0)
            continue;
        found = &l->items[i];
        named++;
    }
    if (named == 1)
        found->best = true;
    else if (named > 1)
        snprintf(best->why, sizeof best->why, "%zu are called %.200s", named, best->name);
    else
        snprintf(best->why, sizeof best->why, "%.200s, which is not here", best->name);
    best->item = named == 1 ? found : NULL;
}
