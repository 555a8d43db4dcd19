/* layout/rank_files_yaml.c - the YAML of `files`, `replicate` and `own` of a side's ranks. */
#include "layout/rank_files.h"

#include "layout/parts.h"

/* ---- the name of a file */

typedef struct form_reading {
    ckpt__layout_reading *r;
    const ckpt__yaml_node *n;
    const ckpt__layout_ranks *ranks;
    ckpt__file_form *form;
} form_reading;

static bool wrong(const form_reading *f, size_t at, const char *what)
{
    ckpt__layout_wrong(f->r, f->n, "'%.*s', character %zu: %s", (int)(f->n->text.size < 100 ? f->n->text.size : 100),
                       f->n->text.data, at + 1, what);
    return false;
}

static size_t axis_of(const ckpt__layout_ranks *ranks, ckpt_str name)
{
    size_t a = 0;
    if (ckpt__str_is(name, "rank"))
        return CKPT__FILE_RANK;
    while (a < ranks->axis_count && !ckpt__str_equal(name, ranks->axes[a].name))
        a++;
    return a < ranks->axis_count ? a : SIZE_MAX;
}

/* "<tp>", "<tp:03>" */
static bool read_number(const form_reading *f, size_t *at)
{
    const ckpt_str text = f->n->text;
    const char *from = text.data + *at + 1, *end = memchr(from, '>', text.size - *at - 1);
    const ckpt__file_part *last = f->form->count ? &f->form->parts[f->form->count - 1] : NULL;
    ckpt__file_part *p = &f->form->parts[f->form->count];
    if (!end)
        return wrong(f, *at, "there is no > for this <");
    const char *colon = memchr(from, ':', (size_t)(end - from));
    const ckpt_str name = {from, (size_t)((colon ? colon : end) - from)};
    int64_t width = 1;
    if (last && !last->text.data)
        return wrong(f, *at, "two numbers side by side: nobody could tell where the first one ends");
    if (colon &&
        (end - colon != 3 || colon[1] != '0' || !ckpt__parse_i64(colon + 1, (size_t)(end - colon) - 1, &width) ||
         width < 2 || width > CKPT__FILE_WIDTH))
        return wrong(f, *at + 1 + name.size, "a width is 02 to 09: zeros in front up to so many digits");
    *p = (ckpt__file_part){.axis = axis_of(f->ranks, name), .width = (size_t)width};
    if (p->axis == SIZE_MAX)
        return wrong(f, *at, "it is not an axis of the mesh, and not 'rank'");
    f->form->has[p->axis] = true;
    f->form->count++;
    *at += (size_t)(end - from) + 2;
    return true;
}

static bool read_text(const form_reading *f, size_t *at)
{
    const ckpt_str text = f->n->text;
    const size_t first = *at;
    const ckpt__file_part *last = f->form->count ? &f->form->parts[f->form->count - 1] : NULL;
    if (last && text.data[first] >= '0' && text.data[first] <= '9')
        return wrong(f, first, "a digit follows a number: nobody could tell where the number ends");
    while (*at < text.size && text.data[*at] != '<' && text.data[*at] != '>')
        ++*at;
    if (*at < text.size && text.data[*at] == '>')
        return wrong(f, *at, "there is no < for this >");
    ckpt__file_part *p = &f->form->parts[f->form->count++];
    *p = (ckpt__file_part){.text = ckpt__layout_keep(f->r, (ckpt_str){text.data + first, *at - first})};
    return p->text.data != NULL;
}

/* Each folder's name, and the file's, is one: no "..", no way out of the source. */
static bool check_names(const form_reading *f)
{
    const ckpt_str text = f->n->text;
    size_t first = 0, depth = 1;
    for (size_t i = 0; i <= text.size; i++) {
        if (i < text.size && text.data[i] != '/')
            continue;
        const ckpt_str one = {text.data + first, i - first};
        if (one.size == 0 || ckpt__str_is(one, ".") || ckpt__str_is(one, ".."))
            return wrong(f, first, "the name of a file below the source is expected");
        depth += i < text.size;
        first = i + 1;
    }
    return depth <= CKPT__FILE_DEPTH || wrong(f, 0, "more than 8 folders");
}

static void read_form(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks,
                      ckpt__file_form *form)
{
    const form_reading f = {r, n, ranks, form};
    form->line = n->line;
    form->column = n->column;
    if (n->kind != CKPT__YAML_SCALAR || !n->text.size) {
        ckpt__layout_wrong(r, n,
                           "the name of the files is expected, with the axes that tell them apart: rank_<dp>_<tp>.pt");
        return;
    }
    size_t parts = 1;
    for (size_t i = 0; i < n->text.size; i++)
        parts += n->text.data[i] == '<' ? 2 : 0;
    form->text = ckpt__layout_keep(r, n->text);
    form->parts = ckpt__arena_array(r->layout->arena, parts, sizeof *form->parts);
    if (!form->parts)
        ckpt__layout_no_memory(r);
    bool fine = form->parts && form->text.data && check_names(&f);
    for (size_t at = 0; fine && at < n->text.size;)
        fine = n->text.data[at] == '<' ? read_number(&f, &at) : read_text(&f, &at);
}

/* ---- the stages of a pipeline */

static ckpt__name_list read_list(ckpt__layout_reading *r, const ckpt__yaml_node *n)
{
    ckpt__rule_names names = {NULL, 0};
    ckpt__layout_read_names(r, n, &names);
    return (ckpt__name_list){names.forms, names.count};
}

/* Each has one number, which is that of the layer. */
static void check_layers(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__name_list *layers)
{
    for (size_t i = 0; i < layers->count; i++) {
        const ckpt__name_form *f = &layers->forms[i];
        size_t numbers = 0;
        for (size_t k = 0; k < f->count; k++)
            numbers += f->parts[k].kind == CKPT__NUMBER;
        if (numbers != 1)
            ckpt__layout_wrong(r, n, "'%.*s' captures %zu numbers; one is expected, that of the layer",
                               (int)f->text.size, f->text.data, numbers);
    }
}

/* [[0, 1, 4, 5], [2, 3, 6, 7]]: all together are 0, 1, 2, ..., each once. */
static void read_numbers(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__rank_stages *s)
{
    size_t all = 0;
    bool fine = n->kind == CKPT__YAML_LIST && n->count > 0 && n->count <= CKPT__STAGES;
    for (size_t i = 0; fine && i < n->count; i++) {
        fine = n->items[i]->kind == CKPT__YAML_LIST;
        all += fine ? n->items[i]->count : 0;
    }
    if (!fine) {
        ckpt__layout_wrong(r, n, "a list of the layers of each stage is expected: [[0, 1, 4, 5], [2, 3, 6, 7]]");
        return;
    }
    s->numbers = ckpt__arena_array(r->layout->arena, all + 1, sizeof *s->numbers);
    s->number_counts = ckpt__arena_array(r->layout->arena, n->count, sizeof *s->number_counts);
    bool *seen = ckpt__arena_array(r->layout->arena, all + 1, sizeof *seen);
    if (!s->numbers || !s->number_counts || !seen) {
        ckpt__layout_no_memory(r);
        return;
    }
    memset(seen, 0, all + 1);
    for (size_t i = 0, at = 0; i < n->count; i++)
        for (size_t k = 0; k < (s->number_counts[i] = n->items[i]->count); k++, at++) {
            const ckpt__yaml_node *one = n->items[i]->items[k];
            const bool number =
                one->kind == CKPT__YAML_SCALAR && ckpt__parse_i64(one->text.data, one->text.size, &s->numbers[at]);
            if (!number || s->numbers[at] < 0 || (uint64_t)s->numbers[at] >= all || seen[s->numbers[at]])
                ckpt__layout_wrong(r, one, "the number of a layer is expected, from 0 to %zu, each once", all - 1);
            else
                seen[s->numbers[at]] = true;
        }
    s->number_stages = n->count;
}

static void read_stages(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks,
                        ckpt__rank_stages *s)
{
    static const char *const known[] = {"axis", "local", "layers", "sizes", "numbers", "shared", NULL};
    static const char *const of_local[] = {"layers", "sizes", "numbers"};
    if (!ckpt__layout_read_map(r, n, "'stages'", known))
        return;
    const ckpt__yaml_node *axis = ckpt__yaml_get(n, "axis"), *layers = ckpt__yaml_get(n, "layers"),
                          *sizes = ckpt__yaml_get(n, "sizes"), *numbers = ckpt__yaml_get(n, "numbers"),
                          *shared = ckpt__yaml_get(n, "shared");
    *s = (ckpt__rank_stages){.there = true, .line = n->line, .column = n->column, .axis = SIZE_MAX};
    if (axis && axis->kind == CKPT__YAML_SCALAR)
        s->axis = axis_of(ranks, axis->text);
    if (s->axis >= ranks->axis_count)
        ckpt__layout_wrong(r, axis ? axis : n, "'axis' is expected, one of the mesh: each place along it is a stage");
    s->local = ckpt__layout_read_flag(r, ckpt__yaml_get(n, "local"));
    for (size_t i = 0; !s->local && i < sizeof of_local / sizeof *of_local; i++)
        if (ckpt__yaml_get(n, of_local[i]))
            ckpt__layout_wrong(
                r, ckpt__yaml_get(n, of_local[i]),
                "'%s' says which layers those are that each stage counts from 0, and 'local: true' is not said",
                of_local[i]);
    if (s->local && !layers)
        ckpt__layout_wrong(
            r, n, "'local: true' needs 'layers', the names that hold the number of a layer: layers.<i>.<r:rest>");
    if (sizes && numbers)
        ckpt__layout_wrong(r, sizes,
                           "'sizes' and 'numbers' both say how many layers a stage has: one of them is expected");
    if (layers) {
        s->layers = read_list(r, layers);
        check_layers(r, layers, &s->layers);
    }
    if (sizes)
        ckpt__layout_read_formulas(r, sizes, "sizes", 1, &s->sizes, &s->size_count);
    if (numbers)
        read_numbers(r, numbers, s);
    if (shared)
        s->shared = read_list(r, shared);
}

/* ---- flat buffers */

static void read_path(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt_str *out)
{
    if (n->kind != CKPT__YAML_SCALAR || !n->text.size)
        ckpt__layout_wrong(
            r, n, "a path in the files is expected, as ckpt-inspect list and show name it: optim.state.0.exp_avg");
    else
        *out = ckpt__layout_keep(r, n->text);
}

static void read_buffers(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__rank_flat *f)
{
    if (n->kind != CKPT__YAML_MAP || n->count == 0 || n->count > CKPT__FLAT_BUFFERS) {
        ckpt__layout_wrong(r, n,
                           "a map of 1 to %d states and where their buffers lie is expected: {exp_avg: "
                           "optim.state.0.exp_avg}",
                           (int)CKPT__FLAT_BUFFERS);
        return;
    }
    f->buffers = ckpt__arena_array(r->layout->arena, n->count, sizeof *f->buffers);
    if (!f->buffers) {
        ckpt__layout_no_memory(r);
        return;
    }
    for (f->buffer_count = 0; f->buffer_count < n->count; f->buffer_count++) {
        ckpt__flat_buffer *b = &f->buffers[f->buffer_count];
        *b = (ckpt__flat_buffer){.key = ckpt__layout_keep(r, n->keys[f->buffer_count]->text)};
        if (!b->key.size)
            ckpt__layout_wrong(r, n->keys[f->buffer_count], "the key of a state is expected: exp_avg");
        read_path(r, n->items[f->buffer_count], &b->path);
    }
}

static void read_order(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__rank_flat *f)
{
    static const char *const known[] = {"at", NULL};
    const ckpt__yaml_node *at = n->kind == CKPT__YAML_MAP ? ckpt__yaml_get(n, "at") : NULL;
    if (n->kind == CKPT__YAML_LIST) {
        f->order = CKPT__FLAT_FORMS;
        f->forms = read_list(r, n);
    } else if (n->kind == CKPT__YAML_MAP && ckpt__layout_read_map(r, n, "'order'", known) && at) {
        f->order = CKPT__FLAT_LISTED;
        read_path(r, at, &f->listed);
    } else if (n->kind == CKPT__YAML_SCALAR && ckpt__str_is(n->text, "sorted"))
        f->order = CKPT__FLAT_SORTED;
    else if (n->kind != CKPT__YAML_SCALAR || !ckpt__str_is(n->text, "model"))
        ckpt__layout_wrong(
            r, n, "model, sorted, {at: PATH} or a list of names is expected: how the parameters follow one another");
}

static void read_flat(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks,
                      ckpt__rank_flat *f)
{
    static const char *const known[] = {"axis",  "as",    "in",    "buffers",  "step",
                                        "group", "order", "align", "multiple", NULL};
    *f = (ckpt__rank_flat){.line = n->line, .column = n->column, .axis = SIZE_MAX, .as = CKPT__CUT_AS_EVEN};
    if (!ckpt__layout_read_map(r, n, "a flat buffer", known))
        return;
    const ckpt__yaml_node *axis = ckpt__yaml_get(n, "axis"), *as = ckpt__yaml_get(n, "as"),
                          *in = ckpt__yaml_get(n, "in"), *buffers = ckpt__yaml_get(n, "buffers"),
                          *step = ckpt__yaml_get(n, "step"), *group = ckpt__yaml_get(n, "group"),
                          *order = ckpt__yaml_get(n, "order"), *align = ckpt__yaml_get(n, "align"),
                          *multiple = ckpt__yaml_get(n, "multiple");
    if (axis && axis->kind == CKPT__YAML_SCALAR)
        f->axis = axis_of(ranks, axis->text);
    if (f->axis >= ranks->axis_count)
        ckpt__layout_wrong(r, axis ? axis : n,
                           "'axis' is expected, one of the mesh: the ranks along it have parts of the buffer");
    if (!in || !buffers || !order)
        ckpt__layout_wrong(r, n, "a flat buffer has 'in', 'buffers' and 'order'");
    if (as && as->kind == CKPT__YAML_SCALAR && ckpt__str_is(as->text, "ceil"))
        f->as = CKPT__CUT_AS_CEIL;
    else if (as && as->kind == CKPT__YAML_SCALAR && ckpt__str_is(as->text, "balanced"))
        f->as = CKPT__CUT_AS_BALANCED;
    else if (as && (as->kind != CKPT__YAML_SCALAR || !ckpt__str_is(as->text, "even")))
        ckpt__layout_wrong(r, as, "even, ceil or balanced is expected");
    if (multiple && f->as != CKPT__CUT_AS_EVEN)
        ckpt__layout_wrong(r, multiple, "'multiple' is of parts that are even");
    if (in)
        read_path(r, in, &f->in);
    if (buffers)
        read_buffers(r, buffers, f);
    if (step)
        read_path(r, step, &f->step);
    if (group)
        read_path(r, group, &f->group);
    if (order)
        read_order(r, order, f);
    if (align)
        ckpt__layout_read_formula(r, align, &f->align);
    if (multiple)
        ckpt__layout_read_formula(r, multiple, &f->multiple);
}

static void read_flats(ckpt__layout_reading *r, const ckpt__yaml_node *n, const ckpt__layout_ranks *ranks)
{
    ckpt__files_of_ranks *files = ranks->files;
    if (n->kind != CKPT__YAML_LIST || n->count == 0 || n->count > CKPT__FLATS) {
        ckpt__layout_wrong(r, n, "'flat' is a list of 1 to %d flat buffers", (int)CKPT__FLATS);
        return;
    }
    files->flats = ckpt__arena_array(r->layout->arena, n->count, sizeof *files->flats);
    if (!files->flats) {
        ckpt__layout_no_memory(r);
        return;
    }
    files->flat_count = n->count;
    for (size_t i = 0; i < n->count; i++) {
        read_flat(r, n->items[i], ranks, &files->flats[i]);
        if (i && files->flats[i].in.data && files->flats[0].in.data &&
            !ckpt__str_equal(files->flats[i].in, files->flats[0].in))
            ckpt__layout_wrong(r, n->items[i], "all flat buffers are of one optimizer: 'in' is the same");
    }
}

/* ---- all of a side */

static void read_files(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_ranks *ranks)
{
    const bool map = n->kind == CKPT__YAML_MAP;
    const size_t count = map ? n->count : 1;
    ckpt__files_of_ranks *files = ckpt__arena_array(r->layout->arena, 1, sizeof *files);
    ckpt__file_form *forms = ckpt__arena_array(r->layout->arena, count + 1, sizeof *forms);
    if (!files || !forms) {
        ckpt__layout_no_memory(r);
        return;
    }
    if (count == 0 || count > CKPT__FILE_FORMS) {
        ckpt__layout_wrong(r, n, "1 to %d names of files are expected", (int)CKPT__FILE_FORMS);
        return;
    }
    *files = (ckpt__files_of_ranks){.line = n->line, .column = n->column, .forms = forms, .count = count};
    for (size_t i = 0; i < count; i++) {
        if (map && !n->keys[i]->text.size)
            ckpt__layout_wrong(r, n->keys[i],
                               "a key is expected, under which the checkpoint has what is in these files");
        forms[i].key = map ? ckpt__layout_keep(r, n->keys[i]->text) : (ckpt_str){NULL, 0};
        read_form(r, map ? n->items[i] : n, ranks, &forms[i]);
    }
    ranks->files = files;
}

static void read_replicate(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__files_of_ranks *files)
{
    files->first = n->kind == CKPT__YAML_SCALAR && ckpt__str_is(n->text, "first");
    if (n->kind != CKPT__YAML_SCALAR || (!files->first && !ckpt__str_is(n->text, "compare")))
        ckpt__layout_wrong(r, n, "'first' or 'compare' is expected: are the replicas of a tensor compared?");
}

void ckpt__layout_read_files(ckpt__layout_reading *r, const ckpt__yaml_node *side, ckpt__layout_ranks *ranks)
{
    static const char *const others[] = {"replicate", "own", "stages", "flat"};
    const ckpt__yaml_node *files = ckpt__yaml_get(side, "files"), *replicate = ckpt__yaml_get(side, "replicate"),
                          *own = ckpt__yaml_get(side, "own"), *stages = ckpt__yaml_get(side, "stages"),
                          *flat = ckpt__yaml_get(side, "flat");
    if (files)
        read_files(r, files, ranks);
    for (size_t i = 0; !files && i < sizeof others / sizeof *others; i++)
        if (ckpt__yaml_get(side, others[i]))
            ckpt__layout_wrong(r, ckpt__yaml_get(side, others[i]),
                               "'%s' says how files of ranks are read, and there is no "
                               "'files'",
                               others[i]);
    if (!ranks->files)
        return;
    if (replicate)
        read_replicate(r, replicate, ranks->files);
    if (own) {
        ranks->files->own = read_list(r, own);
        ranks->files->own_line = own->line;
        ranks->files->own_column = own->column;
    }
    if (stages)
        read_stages(r, stages, ranks, &ranks->files->stages);
    if (flat)
        read_flats(r, flat, ranks);
}
