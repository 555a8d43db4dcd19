/* ranks/files.c - the files of all ranks: which there are by their names, which there must be, and reading them. */
#include "ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"

enum { SAID = 16 }; /* missing files that are named, of one form */

/* ---- names */

/* A folder below the source, or a file, and the numbers that its name has so far. */
typedef struct place {
    char *name; /* heap */
    int64_t numbers[CKPT__MESH_AXES + 1];
} place;

typedef struct places {
    place *items; /* heap */
    size_t count, capacity;
} places;

static void free_places(places *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->items[i].name);
    free(p->items);
    *p = (places){NULL, 0, 0};
}

/* A folder that is looked at, and what comes of it. */
typedef struct looking {
    const ckpt__file_form *form;
    size_t depth;
    bool last;
    const place *in;
    places *found;
} looking;

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    const looking *l = ctx;
    places *found = l->found;
    place p = {.name = NULL};
    ckpt__buf path = {0};
    memcpy(p.numbers, l->in->numbers, sizeof p.numbers);
    if (folder == l->last || !ckpt__file_form_match(l->form, l->depth, ckpt__s(name), p.numbers))
        return CKPT_OK;
    ckpt__buf_printf(&path, "%s%s%s", l->in->name, *l->in->name ? "/" : "", name);
    ckpt__buf_char(&path, 0);
    bool again = false;
    for (size_t i = 0; root && !path.failed && i < found->count; i++) /* on several disks it is there more than once */
        again = again || strcmp(found->items[i].name, path.data) == 0;
    if (again || path.failed || !ckpt__grow(&found->items, &found->capacity, found->count + 1, sizeof *found->items)) {
        ckpt__buf_free(&path);
        return again ? CKPT_OK : ckpt__ranks_no_memory(err);
    }
    p.name = path.data;
    found->items[found->count++] = p;
    return CKPT_OK;
}

/* All files whose names have the form: folder by folder. */
static ckpt_status find_places(const ckpt__source *source, const ckpt__file_form *form, places *out, ckpt_error *err)
{
    const size_t depths = ckpt__file_form_depth(form);
    places in = {NULL, 0, 0};
    ckpt_status status = CKPT_OK;
    for (size_t depth = 0; status == CKPT_OK && depth < depths; depth++) {
        places found = {NULL, 0, 0};
        char top[1] = "";
        place first = {.name = top};
        for (size_t a = 0; a <= CKPT__MESH_AXES; a++)
            first.numbers[a] = -1;
        for (size_t i = 0; status == CKPT_OK && i < (depth ? in.count : 1); i++) {
            looking l = {form, depth, depth + 1 == depths, depth ? &in.items[i] : &first, &found};
            status = ckpt__source_each(source, l.in->name, see, &l, err);
        }
        free_places(&in);
        in = found;
    }
    *out = in;
    return status;
}

ckpt_status ckpt__ranks_are_there(const ckpt__source *source, const ckpt__files_of_ranks *files, bool *found,
                                  ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    *found = false;
    for (size_t g = 0; status == CKPT_OK && !*found && g < files->count; g++) {
        places all = {NULL, 0, 0};
        status = find_places(source, &files->forms[g], &all, err);
        *found = all.count != 0;
        free_places(&all);
    }
    return status;
}

/* ---- the mesh */

/* The sizes that the layout leaves to the names of the files. */
static ckpt_status find_sizes(const ckpt__ranks *r, const places *all, ckpt__rank_mesh *said)
{
    ckpt__rank_axis axes[CKPT__MESH_AXES];
    const size_t count = ckpt__layout_axes(r->request->layout, r->request->side, axes);
    said->count = 0;
    for (size_t a = 0; a < count; a++) {
        int64_t most = -1;
        bool named = false;
        for (size_t g = 0; g < r->files->count; g++) {
            named = named || r->files->forms[g].has[a];
            for (size_t i = 0; i < all[g].count; i++)
                most = all[g].items[i].numbers[a] > most ? all[g].items[i].numbers[a] : most;
        }
        if (axes[a].size >= 0)
            continue;
        if (!named)
            return ckpt__fail(r->err, CKPT_E_ARGUMENT, ckpt__layout_file(r->request->layout),
                              "the size of the axis '%.*s' is left to the names of the files, which have no <%.*s>",
                              (int)axes[a].name.size, axes[a].name.data, (int)axes[a].name.size, axes[a].name.data);
        said->axes[said->count++] = (ckpt__rank_axis){axes[a].name, most < 0 ? 1 : most + 1};
    }
    return CKPT_OK;
}

/* Before a shape is known: what the user says, and what follows of it. */
static ckpt_status make_mesh(ckpt__ranks *r, const places *all)
{
    ckpt__rank_mesh said;
    ckpt_report *none = ckpt_report_new();
    ckpt_status status = none ? find_sizes(r, all, &said) : ckpt__ranks_no_memory(r->err);
    if (status == CKPT_OK)
        status = ckpt__layout_match_vars(r->request->layout, r->request->side, NULL, 0, r->request->vars,
                                         r->request->var_count, none, &r->given, r->err);
    if (status == CKPT_E_MISMATCH && r->given)
        status = CKPT_OK; /* it is said once the shapes are known */
    if (status == CKPT_OK)
        status = ckpt__layout_mesh(r->request->layout, r->request->side, said.count ? &said : NULL, ckpt__layout_value,
                                   r->given, &r->mesh, r->err);
    ckpt_report_free(none);
    return status;
}

/* ---- which files there must be */

static int by_rank(const void *a, const void *b)
{
    const ckpt__ranks_file *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The numbers of a name as a place in the mesh. */
static ckpt_status add_file(ckpt__ranks *r, ckpt__ranks_group *g, const place *p)
{
    const ckpt_str none = {NULL, 0};
    const int64_t rank = p->numbers[CKPT__FILE_RANK];
    ckpt__ranks_file f = {.name = ckpt__arena_copy(r->index->arena, p->name, strlen(p->name))};
    int64_t all[CKPT__MESH_AXES];
    if (!f.name)
        return ckpt__ranks_no_memory(r->err);
    if (rank >= (int64_t)ckpt__rank_mesh_world(&r->mesh))
        return ckpt__ranks_wrong(r, f.name, none, "its name says rank %lld, and the mesh has the ranks 0 to %u",
                                 (long long)rank, ckpt__rank_mesh_world(&r->mesh) - 1);
    if (rank >= 0)
        ckpt__rank_mesh_coordinates(&r->mesh, (uint32_t)rank, all);
    for (size_t a = 0; a < r->mesh.count; a++) {
        const ckpt__rank_axis *axis = &r->mesh.axes[a];
        const int64_t own = p->numbers[a];
        if (own >= axis->size)
            return ckpt__ranks_wrong(r, f.name, none, "its name says %.*s %lld, and the mesh has %.*s 0 to %lld",
                                     (int)axis->name.size, axis->name.data, (long long)own, (int)axis->name.size,
                                     axis->name.data, (long long)axis->size - 1);
        if (own >= 0 && rank >= 0 && own != all[a])
            return ckpt__ranks_wrong(r, f.name, none, "its name says %.*s %lld, and rank %lld, which has %.*s %lld",
                                     (int)axis->name.size, axis->name.data, (long long)own, (long long)rank,
                                     (int)axis->name.size, axis->name.data, (long long)all[a]);
        f.at[a] = rank >= 0 ? all[a] : own >= 0 ? own : 0;
    }
    f.rank = ckpt__rank_mesh_rank(&r->mesh, f.at);
    if (!ckpt__grow(&g->files, &g->capacity, g->count + 1, sizeof *g->files))
        return ckpt__ranks_no_memory(r->err);
    g->files[g->count++] = f;
    return CKPT_OK;
}

static ckpt_status say_missing(ckpt__ranks *r, const ckpt__ranks_group *g, const int64_t *at, size_t missing,
                               size_t all)
{
    const ckpt_str none = {NULL, 0};
    ckpt__ranks_file f = {.rank = ckpt__rank_mesh_rank(&r->mesh, at)};
    ckpt__buf name = {0};
    char rank[200];
    ckpt_status status;
    memcpy(f.at, at, sizeof f.at);
    ckpt__file_form_fill(g->form, &r->mesh, at, &name);
    ckpt__buf_char(&name, 0);
    if (name.failed)
        status = ckpt__ranks_no_memory(r->err);
    else if (missing == SAID)
        status = ckpt__ranks_wrong(r, name.data, none, "it is missing, and so may be others: %zu of %zu are there",
                                   g->count, all);
    else
        status = ckpt__ranks_wrong(
            r, name.data, none,
            "it is missing, with what %s has of the tensors. Copy it from where it was saved, or take an earlier checkpoint",
            ckpt__ranks_rank_text(r, &f, rank, sizeof rank));
    ckpt__buf_free(&name);
    return status;
}

/* Of each place along the axes that are in the names one file. */
static ckpt_status check_grid(ckpt__ranks *r, ckpt__ranks_group *g)
{
    const ckpt_str none = {NULL, 0};
    const uint32_t world = ckpt__rank_mesh_world(&r->mesh);
    size_t next = 0, all = 1, missing = 0;
    ckpt_status status = CKPT_OK;
    for (size_t a = 0; a < r->mesh.count; a++)
        all *= g->along[a] ? (size_t)r->mesh.axes[a].size : 1;
    for (uint32_t rank = 0; status == CKPT_OK && rank < world && missing <= SAID; rank++) {
        int64_t at[CKPT__MESH_AXES] = {0};
        bool here = true;
        ckpt__rank_mesh_coordinates(&r->mesh, rank, at);
        for (size_t a = 0; a < r->mesh.count; a++)
            here = here && (g->along[a] || at[a] == 0);
        if (!here)
            continue;
        if (next == g->count || g->files[next].rank != rank) {
            status = say_missing(r, g, at, missing++, all);
            continue;
        }
        for (next++; status == CKPT_OK && next < g->count && g->files[next].rank == rank; next++)
            status = ckpt__ranks_wrong(r, g->files[next].name, none,
                                       "it is of the same rank as %s: one file is expected", g->files[next - 1].name);
    }
    return status;
}

static ckpt_status list_group(ckpt__ranks *r, ckpt__ranks_group *g, const places *all)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < all->count; i++)
        status = add_file(r, g, &all->items[i]);
    for (size_t a = 0; a < r->mesh.count; a++)
        g->along[a] = g->form->has[a] || g->form->has[CKPT__FILE_RANK];
    if (g->count)
        qsort(g->files, g->count, sizeof *g->files, by_rank);
    return status == CKPT_OK ? check_grid(r, g) : status;
}

ckpt_status ckpt__ranks_list(ckpt__ranks *r)
{
    places all[CKPT__FILE_FORMS] = {{NULL, 0, 0}};
    size_t found = 0;
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < r->files->count; g++) {
        status = find_places(r->source, &r->files->forms[g], &all[g], r->err);
        found += all[g].count;
    }
    if (status == CKPT_OK && !found)
        status = ckpt__fail(r->err, CKPT_E_NOT_FOUND, r->source->path,
                            "it has no file with a name such as %.*s, which the layout says the files of side %s have",
                            (int)r->files->forms[0].text.size, r->files->forms[0].text.data,
                            ckpt__layout_side(r->request->layout, r->request->side));
    if (status == CKPT_OK)
        status = make_mesh(r, all);
    r->group_count = r->files->count;
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++) {
        r->groups[g].form = &r->files->forms[g];
        status = list_group(r, &r->groups[g], &all[g]);
    }
    for (size_t g = 0; g < r->files->count; g++)
        free_places(&all[g]);
    return status;
}

/* ---- reading */

static ckpt_status read_file(ckpt__ranks *r, ckpt__ranks_file *f)
{
    ckpt__index *part = NULL;
    uint32_t number;
    bool sorted = false;
    ckpt_status status = ckpt__source_add(r->source, f->name, &number, r->err);
    if (status == CKPT_OK)
        status = ckpt__folder_part(&r->reader, number, &part, &sorted, r->err);
    if (status < 0)
        return status;
    f->root = f->whole = part->root;
    f->first = r->index->tensor_count;
    f->count = part->tensor_count;
    f->step = part->step;
    f->native = ckpt__format_of(part)->canonical;
    return ckpt__folder_absorb(&r->reader, part, f->name, sorted, r->err);
}

static ckpt_status read_group(ckpt__ranks *r, ckpt__ranks_group *g)
{
    const char **names = calloc(g->count + 1, sizeof *names);
    ckpt_status status = names ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    for (size_t i = 0; names && i < g->count; i++)
        names[i] = g->files[i].name;
    r->reader.ahead = names ? ckpt__ahead_new(r->reader.request, names, g->count) : NULL;
    for (size_t i = 0; status == CKPT_OK && i < g->count; i++)
        status = read_file(r, &g->files[i]);
    ckpt__ahead_free(r->reader.ahead);
    r->reader.ahead = NULL;
    free(names);
    return status;
}

ckpt_status ckpt__ranks_read_files(ckpt__ranks *r)
{
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++)
        status = read_group(r, &r->groups[g]);
    r->row_count = r->index->tensor_count;
    return status;
}
