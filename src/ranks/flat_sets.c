/* ranks/flat_sets.c - which parameters lie in a flat buffer, in which order, and at which element each begins. */
#include "ranks/flat.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct setting {
    ckpt__ranks *r;
    ckpt__flat_set *set;
    bool *taken;
    int64_t align, multiple;
    bool wrong;
} setting;

static ckpt_status wrong(setting *s, const char *file, const char *what)
{
    const ckpt_str none = {NULL, 0};
    s->wrong = true;
    return ckpt__ranks_wrong(s->r, file ? file : ckpt__layout_file(s->r->request->layout), none,
                             "line %zu, column %zu: %s", s->set->flat->line, s->set->flat->column, what);
}

/* ---- the parameters */

static ckpt_status take(setting *s, size_t tensor)
{
    s->taken[tensor] = true;
    s->set->params[s->set->count++] = tensor;
    return CKPT_OK;
}

static bool is_param(const setting *s, size_t i)
{
    const ckpt__ranks_tensor *t = &s->r->tensors[i];
    return t->stage == s->set->stage && t->name.inside && !t->name.state && !t->name.buffer && !s->taken[i];
}

typedef struct named {
    ckpt_str name;
    size_t tensor;
} named;

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    const size_t n = x->name.size < y->name.size ? x->name.size : y->name.size;
    const int c = memcmp(x->name.data, y->name.data, n);
    return c ? c : (x->name.size > y->name.size) - (x->name.size < y->name.size);
}

/* The parameters under the names that the program's files have. */
static ckpt_status list_named(setting *s, named **out, size_t *count)
{
    *count = 0;
    if (!(*out = calloc(s->r->tensor_count + 1, sizeof **out)))
        return ckpt__ranks_no_memory(s->r->err);
    for (size_t i = 0; i < s->r->tensor_count; i++)
        if (is_param(s, i))
            (*out)[(*count)++] = (named){s->r->tensors[i].name.local, i};
    qsort(*out, *count, sizeof **out, by_name);
    return CKPT_OK;
}

static ckpt_status take_sorted(setting *s)
{
    named *all;
    size_t count;
    ckpt_status status = list_named(s, &all, &count);
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        status = take(s, all[i].tensor);
    free(all);
    return status;
}

static ckpt_status take_forms(setting *s)
{
    ckpt_status status = CKPT_OK;
    for (size_t f = 0; status == CKPT_OK && f < s->set->flat->forms.count; f++) {
        const ckpt__name_list one = ckpt__name_list_one(&s->set->flat->forms, f);
        const size_t before = s->set->count;
        for (size_t i = 0; status == CKPT_OK && i < s->r->tensor_count; i++)
            if (is_param(s, i) && ckpt__name_list_find(&one, s->r->tensors[i].name.param) == 0)
                status = take(s, i);
        s->r->flat_forms[s->set->flat - s->r->files->flats] |= s->set->count > before ? UINT64_C(1) << f : 0;
    }
    return status;
}

/* In the order of a list of names, or of the keys of a dict. */
static ckpt_status take_listed(setting *s)
{
    const ckpt__ranks_file *f = s->set->columns[0].files[0];
    const ckpt_value *list = ckpt__flat_value(s->set->group, f, s->set->flat->listed);
    const bool dict = list && list->kind == CKPT_V_DICT;
    named *all = NULL;
    size_t count = 0;
    char text[400];
    if (!list || (!dict && !ckpt__is_list(list)))
        return wrong(s, f->name, "there is no list of names at the path that 'order' says");
    ckpt_status status = list_named(s, &all, &count);
    for (size_t i = 0; status == CKPT_OK && i < (dict ? list->entry_count : list->item_count); i++) {
        const ckpt_value *one = dict ? list->entries[i].key : list->items[i];
        const named key = {.name = one->kind == CKPT_V_STR ? one->text : (ckpt_str){"", 0}};
        const named *found = count ? bsearch(&key, all, count, sizeof *all, by_name) : NULL;
        if (found && !s->taken[found->tensor])
            status = take(s, found->tensor);
        else {
            snprintf(text, sizeof text,
                     "the list that 'order' says has '%.*s', which is not a parameter of the files, or stands twice",
                     (int)(key.name.size < 200 ? key.name.size : 200), key.name.data);
            status = wrong(s, f->name, text);
        }
    }
    free(all);
    return status;
}

static ckpt_status take_params(setting *s)
{
    ckpt_status status = CKPT_OK;
    if (!(s->set->params = ckpt__arena_array(s->r->arena, s->r->tensor_count + 1, sizeof *s->set->params)))
        return ckpt__ranks_no_memory(s->r->err);
    switch (s->set->flat->order) {
    case CKPT__FLAT_SORTED:
        return take_sorted(s);
    case CKPT__FLAT_LISTED:
        return take_listed(s);
    case CKPT__FLAT_FORMS:
        return take_forms(s);
    default:
        for (size_t i = 0; status == CKPT_OK && i < s->r->tensor_count; i++)
            if (is_param(s, i))
                status = take(s, i);
        return status;
    }
}

/* ---- the ranks */

static bool same_place(const ckpt__ranks *r, const ckpt__ranks_file *a, const ckpt__ranks_file *b, size_t but)
{
    for (size_t i = 0; i < r->mesh.count; i++)
        if (i != but && a->at[i] != b->at[i])
            return false;
    return true;
}

static ckpt_status make_columns(setting *s)
{
    ckpt__flat_set *set = s->set;
    const ckpt__ranks_group *g = set->group;
    const size_t axis = set->flat->axis;
    set->parts = (size_t)s->r->mesh.axes[axis].size;
    if (!g->along[axis] && set->parts > 1)
        return wrong(s, NULL, "the names of its files do not have the axis that cuts it");
    set->columns = ckpt__arena_array(s->r->arena, g->count + 1, sizeof *set->columns);
    if (!set->columns)
        return ckpt__ranks_no_memory(s->r->err);
    for (size_t i = 0; i < g->count; i++) {
        const ckpt__ranks_file *first = &g->files[i];
        if (!ckpt__ranks_in_stage(s->r, first, set->stage) || first->at[axis] != 0)
            continue;
        ckpt__flat_column *c = &set->columns[set->column_count++];
        *c = (ckpt__flat_column){.files = ckpt__arena_array(s->r->arena, set->parts, sizeof *c->files),
                                 .begins = ckpt__arena_array(s->r->arena, set->parts + 1, sizeof *c->begins)};
        if (!c->files || !c->begins)
            return ckpt__ranks_no_memory(s->r->err);
        for (size_t k = 0; k < g->count; k++)
            if (ckpt__ranks_in_stage(s->r, &g->files[k], set->stage) && same_place(s->r, first, &g->files[k], axis))
                c->files[g->files[k].at[axis]] = &g->files[k];
    }
    return CKPT_OK;
}

/* ---- places */

static bool round_up(int64_t n, int64_t to, int64_t *out)
{
    const int64_t rest = to > 1 ? n % to : 0;
    return !__builtin_add_overflow(n, rest ? to - rest : 0, out);
}

static ckpt_status place_params(setting *s, ckpt__flat_column *c, int64_t *end, int64_t *aligned)
{
    ckpt__flat_set *set = s->set;
    int64_t at = 0;
    *end = 0;
    if (!(c->offsets = ckpt__arena_array(s->r->arena, set->count + 1, sizeof *c->offsets)))
        return ckpt__ranks_no_memory(s->r->err);
    for (size_t i = 0; i < set->count; i++) {
        const ckpt__ranks_part *p = ckpt__flat_part_of(s->r, &s->r->tensors[set->params[i]], c->files[0]);
        const ckpt_tensor_info *t = p ? &s->r->index->tensors[p->row].info : NULL;
        uint64_t numel;
        c->offsets[i] = at;
        if (!t || !ckpt__numel(t->shape, t->ndim, &numel) || numel > INT64_MAX ||
            __builtin_add_overflow(at, (int64_t)numel, end) || !round_up(*end, s->align, &at))
            return wrong(s, c->files[0]->name, "its parameters together have more elements than 64 bits count");
    }
    *aligned = at;
    return CKPT_OK;
}

/* Each rank has what a cut of all leaves it. */
static ckpt_status check_lengths(setting *s, const ckpt__flat_column *c, int64_t end, int64_t aligned)
{
    const ckpt__flat_set *set = s->set;
    const int64_t all = c->begins[set->parts], n = (int64_t)set->parts;
    const int64_t unit = set->flat->as == CKPT__CUT_AS_EVEN ? s->multiple * n : 1;
    int64_t one = 0, other = 0;
    char text[400];
    const bool fits = round_up(end, unit, &one) && round_up(aligned, unit, &other) && (all == one || all == other);
    if (!fits) {
        snprintf(
            text, sizeof text,
            "its %zu parameters have %lld elements%s, which is a buffer of %lld, and the ranks have %lld together: the order or "
            "the padding is another one",
            set->count, (long long)end, s->align > 1 ? " with their alignment" : "", (long long)one, (long long)all);
        return wrong(s, c->files[0]->name, text);
    }
    for (int64_t k = 0; k < n; k++) {
        const int64_t own = c->begins[k + 1] - c->begins[k], size = (all + n - 1) / n, begin = k * size;
        const int64_t ceil = begin >= all ? 0 : all - begin < size ? all - begin : size;
        const int64_t want = set->flat->as == CKPT__CUT_AS_EVEN   ? all / n
                             : set->flat->as == CKPT__CUT_AS_CEIL ? ceil
                                                                  : all / n + (k < all % n);
        if (own == want)
            continue;
        snprintf(text, sizeof text,
                 "of a buffer of %lld elements over %lld ranks it has %lld, where the layout leaves it %lld",
                 (long long)all, (long long)n, (long long)own, (long long)want);
        return wrong(s, c->files[k]->name, text);
    }
    return CKPT_OK;
}

/* The row of a buffer in a file; SIZE_MAX: there is none, which was said. */
static ckpt_status find_row(setting *s, const ckpt__ranks_file *f, size_t buffer, const ckpt_tensor_info **out)
{
    const ckpt__flat_buffer *b = &s->set->flat->buffers[buffer];
    const ckpt_value *v = ckpt__flat_value(s->set->group, f, b->path);
    char text[300];
    *out = NULL;
    if (!v || v->kind != CKPT_V_TENSOR || v->tensor >= s->r->row_count ||
        s->r->index->tensors[v->tensor].info.ndim != 1) {
        snprintf(text, sizeof text,
                 "there is no tensor of one dimension at '%.*s' in it, where a flat buffer is expected",
                 (int)(b->path.size < 150 ? b->path.size : 150), b->path.data);
        return wrong(s, f->name, text);
    }
    *out = &s->r->index->tensors[v->tensor].info;
    return CKPT_OK;
}

/* All buffers of a rank have the same length. */
static ckpt_status measure(setting *s, ckpt__flat_column *c)
{
    ckpt_status status = CKPT_OK;
    c->begins[0] = 0;
    for (size_t k = 0; status == CKPT_OK && !s->wrong && k < s->set->parts; k++)
        for (size_t b = 0; status == CKPT_OK && !s->wrong && b < s->set->flat->buffer_count; b++) {
            const ckpt_tensor_info *t;
            int64_t end;
            status = find_row(s, c->files[k], b, &t);
            if (status < 0 || !t)
                continue;
            if (__builtin_add_overflow(c->begins[k], t->shape[0], &end) || (b && end != c->begins[k + 1]))
                status = wrong(s, c->files[k]->name, "its flat buffers are not of one length");
            c->begins[k + 1] = end;
        }
    return status;
}

static ckpt_status eval(setting *s, const ckpt__formula *f, int64_t *out)
{
    char why[300];
    *out = 1;
    if (!f->count ||
        (ckpt__formula_eval(f, ckpt__layout_value, s->r->given, out, why, sizeof why) && *out > 0 && *out < 1 << 30))
        return CKPT_OK;
    return wrong(s, NULL, "'align' and 'multiple' are numbers of elements, 1 or more");
}

static ckpt_status find_group(setting *s)
{
    const ckpt__rank_flat *flat = s->set->flat;
    ckpt_str inside;
    for (size_t g = 0; g < s->r->group_count && !s->set->group; g++)
        if (ckpt__flat_path(&s->r->groups[g], flat->buffers[0].path, &inside))
            s->set->group = &s->r->groups[g];
    bool all = s->set->group != NULL;
    for (size_t b = 0; all && b < flat->buffer_count; b++)
        all = ckpt__flat_path(s->set->group, flat->buffers[b].path, &inside);
    all = all && (!flat->step.data || ckpt__flat_path(s->set->group, flat->step, &inside)) &&
          (!flat->group.data || ckpt__flat_path(s->set->group, flat->group, &inside)) &&
          (!flat->listed.data || ckpt__flat_path(s->set->group, flat->listed, &inside)) &&
          ckpt__flat_path(s->set->group, flat->in, &inside);
    return all ? CKPT_OK
               : wrong(s, NULL, "its paths lead into files of one name, each with the key of 'files' in front");
}

ckpt_status ckpt__flat_set_make(ckpt__ranks *r, const ckpt__rank_flat *flat, size_t stage, bool *taken,
                                const ckpt__flat_set **out)
{
    ckpt__flat_set *set = ckpt__arena_alloc(r->arena, sizeof *set);
    setting s = {.r = r, .set = set, .taken = taken};
    *out = NULL;
    if (!set)
        return ckpt__ranks_no_memory(r->err);
    *set = (ckpt__flat_set){.flat = flat, .stage = stage};
    ckpt_status status = find_group(&s);
    if (status == CKPT_OK && !s.wrong)
        status = eval(&s, &flat->align, &s.align);
    if (status == CKPT_OK && !s.wrong)
        status = eval(&s, &flat->multiple, &s.multiple);
    if (status == CKPT_OK && !s.wrong)
        status = make_columns(&s);
    if (status == CKPT_OK && !s.wrong)
        status = take_params(&s);
    for (size_t c = 0; status == CKPT_OK && !s.wrong && c < set->column_count; c++) {
        int64_t end = 0, aligned = 0;
        status = measure(&s, &set->columns[c]);
        if (status == CKPT_OK && !s.wrong)
            status = place_params(&s, &set->columns[c], &end, &aligned);
        if (status == CKPT_OK && !s.wrong)
            status = check_lengths(&s, &set->columns[c], end, aligned);
    }
    *out = status == CKPT_OK && !s.wrong ? set : NULL;
    return status;
}
