/* anatomy/producer_match.c - signs and paths of the table of producers. */
#include "anatomy/producer.h"

enum { KEY_MAX = 120, FEW = 64 };

/* Which keys a dict cannot have: for each first byte a bit for each length of its keys, 63 for all that are longer. A row asks for a
 * hundred keys, and a root may have as many entries as a model has tensors. */
typedef struct sieve {
    const ckpt_value *of; /* NULL: everything is looked up */
    uint64_t lengths[256];
} sieve;

static uint64_t length_bit(size_t n)
{
    return UINT64_C(1) << (n < 63 ? n : 63);
}

static void fill_sieve(sieve *s, const ckpt_value *root)
{
    *s = (sieve){.of = root && root->kind == CKPT_V_DICT && root->entry_count > FEW ? root : NULL};
    for (size_t i = 0; s->of && i < root->entry_count; i++) {
        ckpt_str key = root->entries[i].key->text;
        if (key.data)
            s->lengths[key.size ? (unsigned char)key.data[0] : 0] |= length_bit(key.size);
    }
}

/* key has n bytes, and a NUL behind them. */
static bool may_have(const sieve *s, const ckpt_value *at, const char *key, size_t n)
{
    return !s || s->of != at || s->lengths[(unsigned char)key[0]] & length_bit(n);
}

/* ---- paths */

/* What a key is called: its text, or the last part of a class's name. */
static ckpt_str key_name(const ckpt_value *key)
{
    if (key->kind == CKPT_V_STR)
        return key->text;
    return key->kind == CKPT_V_CLASS ? ckpt__str_last(key->class_name) : (ckpt_str){NULL, 0};
}

static const ckpt_value *item_at(const ckpt_value *list, const char *key)
{
    int64_t n;
    if (!ckpt__parse_i64(key, strlen(key), &n))
        return NULL;
    if (n < 0)
        n += (int64_t)list->item_count;
    return n >= 0 && (uint64_t)n < list->item_count ? list->items[n] : NULL;
}

static void add_name(ckpt__buf *name, const char *key, size_t size)
{
    if (!name)
        return;
    if (name->size)
        ckpt__buf_char(name, '.');
    ckpt__buf_add(name, key, size);
}

/* One key down, without '*'; `path` is moved behind it. */
static const ckpt_value *step_down(const sieve *s, const ckpt_value *at, const char **path, const char *end,
                                   ckpt__buf *name)
{
    char key[KEY_MAX];
    const char *slash = memchr(*path, '/', (size_t)(end - *path));
    size_t n = (size_t)((slash ? slash : end) - *path);
    if (n >= sizeof key)
        return NULL;
    memcpy(key, *path, n);
    key[n] = '\0';
    *path = slash ? slash + 1 : end;
    const ckpt_value *next = at->kind == CKPT_V_LIST || at->kind == CKPT_V_TUPLE ? item_at(at, key)
                             : may_have(s, at, key, n)                           ? ckpt_value_get(at, key)
                                                                                 : NULL;
    if (next)
        add_name(name, key, n);
    return next;
}

static const ckpt_value *follow(const sieve *s, const ckpt_value *at, const char *path, const char *end,
                                ckpt__buf *name)
{
    while (at && path < end)
        at = step_down(s, at, &path, end, name);
    return at && at->kind != CKPT_V_NONE ? at : NULL;
}

/* The entries of a dict, or of an object's attributes. */
static const ckpt_value *dict_of(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT && v->state ? v->state : v;
}

/* A path with at most one '*'. */
static const ckpt_value *find(const sieve *s, const ckpt_value *root, const char *path, const char *end,
                              ckpt__buf *name)
{
    const char *star = memchr(path, '*', (size_t)(end - path));
    if (!root || !star)
        return follow(s, root, path, end, name);
    const char *key = star;
    while (key > path && key[-1] != '/')
        key--;
    const ckpt_value *above = follow(s, root, path, key > path ? key - 1 : path, name);
    size_t named = name ? name->size : 0, n = (size_t)(star - key);
    const char *rest = star + 1 < end ? star + 2 : end;
    for (size_t i = 0; above && i < dict_of(above)->entry_count; i++) {
        const ckpt_entry *e = &dict_of(above)->entries[i];
        ckpt_str own = key_name(e->key);
        if (own.size < n || memcmp(own.data, key, n) != 0)
            continue;
        add_name(name, own.data, own.size);
        const ckpt_value *v = follow(s, e->value, rest, end, name);
        if (v)
            return v;
        if (name && !name->failed)
            name->size = named;
    }
    return NULL;
}

/* ---- signs */

static bool is_kind(const ckpt_value *v, const char *kind, size_t n)
{
    static const struct {
        const char *name;
        unsigned kinds; /* bits of ckpt_kind */
    } table[] = {
        {"int", 1u << CKPT_V_INT},   {"number", 1u << CKPT_V_INT | 1u << CKPT_V_FLOAT}, {"str", 1u << CKPT_V_STR},
        {"dict", 1u << CKPT_V_DICT}, {"list", 1u << CKPT_V_LIST | 1u << CKPT_V_TUPLE},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, kind, n) == 0)
            return table[i].kinds >> v->kind & 1;
    if (n == 7 && memcmp(kind, "weights", n) == 0)
        return ckpt__names_tensors(v);
    return n == 9 && memcmp(kind, "optimizer", n) == 0 && ckpt__is_optimizer(v);
}

static bool is_value(const ckpt_value *v, const char *text, size_t n)
{
    if (v->kind == CKPT_V_BOOL)
        return n == (v->boolean ? 4u : 5u) && memcmp(text, v->boolean ? "True" : "False", n) == 0;
    return v->kind == CKPT_V_STR && v->text.size == n && memcmp(v->text.data, text, n) == 0;
}

/* One sign; its value where it holds. */
static const ckpt_value *sign_holds(const sieve *s, const ckpt_value *root, const char *sign, const char *end,
                                    ckpt__buf *name)
{
    const char *mark = sign;
    while (mark < end && *mark != ':' && *mark != '=' && (*mark != '@' || mark == sign || mark[-1] == '/'))
        mark++; /* a key may begin with '@': an attribute of HDF5 */
    const ckpt_value *v = find(s, root, sign, mark, name);
    size_t n = mark < end ? (size_t)(end - mark - 1) : 0;
    if (!v || mark == end)
        return v;
    bool holds = *mark == ':' ? is_kind(v, mark + 1, n)
                 : *mark == '='
                     ? is_value(v, mark + 1, n)
                     : v->class_name.data && v->class_name.size >= n && memcmp(v->class_name.data, mark + 1, n) == 0;
    return holds ? v : NULL;
}

static const ckpt_value *find_any(const sieve *s, const ckpt_value *root, const char *alternatives, ckpt__buf *name,
                                  const char **word, size_t *size)
{
    *word = NULL;
    *size = 0;
    for (const char *at = alternatives; at && *at;) {
        const char *end = at + strcspn(at, "|"), *arrow = memchr(at, '>', (size_t)(end - at));
        if (name && !name->failed)
            name->size = 0;
        const ckpt_value *v = sign_holds(s, root, at, arrow ? arrow : end, name);
        if (v) {
            *word = arrow ? arrow + 1 : NULL;
            *size = arrow ? (size_t)(end - arrow - 1) : 0;
            return v;
        }
        at = *end ? end + 1 : end;
    }
    return NULL;
}

const ckpt_value *ckpt__producer_find(const ckpt_value *root, const char *alternatives, ckpt__buf *name,
                                      const char **word, size_t *size)
{
    return find_any(NULL, root, alternatives, name, word, size);
}

static bool fits(const sieve *s, const ckpt_value *root, const char *alternatives)
{
    const char *word;
    size_t size;
    return find_any(s, root, alternatives, NULL, &word, &size) != NULL;
}

bool ckpt__producer_fits(const ckpt_value *root, const char *alternatives)
{
    return fits(NULL, root, alternatives);
}

/* ---- rows */

static bool has_only(const ckpt_value *root, const char *words)
{
    for (size_t i = 0; i < root->entry_count; i++)
        if (root->entries[i].key->kind != CKPT_V_STR || !ckpt__str_among(root->entries[i].key->text, words))
            return false;
    return true;
}

const ckpt__producer *ckpt__producer_of_root(const ckpt_value *root)
{
    sieve s;
    if (!root || root->kind != CKPT_V_DICT)
        return NULL;
    fill_sieve(&s, root);
    for (size_t i = 0; i < ckpt__producer_row_count; i++) {
        const ckpt__producer_row *row = &ckpt__producer_rows[i];
        bool all = !row->format;
        for (size_t k = 0; all && k < sizeof row->signs / sizeof *row->signs && row->signs[k]; k++)
            all = fits(&s, root, row->signs[k]);
        if (all && !fits(&s, root, row->none) && (!row->only || has_only(root, row->only)))
            return &row->producer;
    }
    return NULL;
}
