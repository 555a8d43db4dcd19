/* ranks/ranks.c - files of ranks as one checkpoint: the order of work, and what is said. */
#include "ranks/merge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "format/table.h"

enum { MOST_WRONG = 1000 };

ckpt_status ckpt__ranks_no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "the files of the ranks", 0);
}

ckpt_status ckpt__ranks_wrong(ckpt__ranks *r, const char *file, ckpt_str name, const char *format, ...)
{
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->wrong++ >= MOST_WRONG)
        return CKPT_OK; /* it is refused, and more would help nobody */
    const bool added = ckpt__report_add(r->request->report, CKPT_SEVERITY_ERROR, "ranks-wrong", NULL, NULL, "%s%s%s",
                                        file ? file : "", file ? ": " : "", text) &&
                       (!name.data || ckpt__report_tensor(r->request->report, name)) &&
                       (!file || ckpt__report_detail(r->request->report, file, NULL, NULL, 0));
    return added ? CKPT_OK : ckpt__ranks_no_memory(r->err);
}

const char *ckpt__ranks_rank_text(const ckpt__ranks *r, const ckpt__ranks_file *f, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "rank %u (", f->rank);
    for (size_t a = 0; a < r->mesh.count && used < size; a++)
        used += (size_t)snprintf(out + used, size - used, "%s%.*s=%lld", a ? ", " : "",
                                 (int)(r->mesh.axes[a].name.size < 40 ? r->mesh.axes[a].name.size : 40),
                                 r->mesh.axes[a].name.data, (long long)f->at[a]);
    if (used < size)
        snprintf(out + used, size - used, ")");
    return out;
}

/* What the layout has, and the files have nothing of. */
static ckpt_status check_used(ckpt__ranks *r)
{
    const ckpt_str none = {NULL, 0};
    const ckpt__layout *layout = r->request->layout;
    const unsigned side = r->request->side;
    size_t line, column;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < ckpt__layout_shard_count(layout, side); i++)
        if (!r->used[i] && !ckpt__layout_shard_optional(layout, side, i, &line, &column))
            status = ckpt__ranks_wrong(
                r, ckpt__layout_file(layout), none,
                "line %zu, column %zu: no tensor of the files has a name of this entry, or an entry before "
                "it has them all (one that may be without has 'optional: true')",
                line, column);
    for (size_t i = 0; status == CKPT_OK && i < r->files->own.count; i++)
        if (!r->owned[i])
            status = ckpt__ranks_wrong(
                r, ckpt__layout_file(layout), none,
                "line %zu, column %zu: name %zu of 'own' is that of nothing which the ranks have another "
                "one of",
                r->files->own_line, r->files->own_column, i + 1);
    for (size_t i = 0; status == CKPT_OK && i < r->files->stages.shared.count; i++)
        if (!r->shares[i])
            status = ckpt__ranks_wrong(
                r, ckpt__layout_file(layout), none,
                "line %zu, column %zu: name %zu of 'shared' is that of nothing which several stages have",
                r->files->stages.line, r->files->stages.column, i + 1);
    for (size_t i = 0; status == CKPT_OK && i < r->files->flat_count; i++)
        for (size_t k = 0; status == CKPT_OK && k < r->files->flats[i].forms.count; k++)
            if (!(r->flat_forms[i] >> k & 1))
                status = ckpt__ranks_wrong(
                    r, ckpt__layout_file(layout), none,
                    "line %zu, column %zu: name %zu of 'order' is that of no parameter, or one before it has "
                    "them all",
                    r->files->flats[i].line, r->files->flats[i].column, k + 1);
    return status;
}

/* Do ranks along the axis have parts of something, and not the same? */
static bool parts_something(const ckpt__ranks *r, size_t axis)
{
    const ckpt__layout *layout = r->request->layout;
    const size_t entries = ckpt__layout_shard_count(layout, r->request->side);
    bool parts = r->files->stages.there && r->files->stages.axis == axis;
    for (size_t i = 0; i < r->files->flat_count; i++)
        parts = parts || r->files->flats[i].axis == axis;
    for (size_t i = 0; i < entries && !parts; i++) {
        size_t axes[CKPT__MESH_AXES];
        uint32_t dims[CKPT__MESH_AXES];
        const size_t cuts = ckpt__layout_shard_axes(layout, r->request->side, i, axes, dims);
        for (size_t k = 0; k < cuts; k++)
            parts = parts || axes[k] == axis;
    }
    return parts;
}

/* The last ranks of an axis may be missing where only the names of the files tell its size. */
static ckpt_status warn_of_sizes(const ckpt__ranks *r)
{
    ckpt__rank_axis axes[CKPT__MESH_AXES];
    const size_t count = ckpt__layout_axes(r->request->layout, r->request->side, axes);
    for (size_t i = 0; i < count; i++) {
        char fix[160];
        const int n = (int)(axes[i].name.size < 60 ? axes[i].name.size : 60);
        const long long size = (long long)r->mesh.axes[i].size;
        if (axes[i].size >= 0 || !parts_something(r, i))
            continue;
        snprintf(fix, sizeof fix, "if that is right, say it in the layout: mesh: {%.*s: %lld}", n, axes[i].name.data,
                 size);
        if (!ckpt__report_add(
                r->request->report, CKPT_SEVERITY_WARNING, "ranks-counted", NULL, fix,
                "the size of %.*s is %lld by the names of the files: if files of later ranks are missing, "
                "what they have is missing too",
                n, axes[i].name.data, size))
            return ckpt__ranks_no_memory(r->err);
    }
    return CKPT_OK;
}

static ckpt_status say(ckpt__ranks *r)
{
    char mesh[300];
    size_t files = 0;
    for (size_t g = 0; g < r->group_count; g++)
        files += r->groups[g].count;
    ckpt__rank_mesh_text(&r->mesh, mesh, sizeof mesh);
    bool added = ckpt__report_add(r->request->report, CKPT_SEVERITY_NOTE, "ranks", NULL, NULL,
                                  "%zu files of the ranks of %s are put together (%s)", files,
                                  ckpt__layout_side(r->request->layout, r->request->side), mesh) &&
                 ckpt__index_tell_layout(r->index, "a file of each rank of %s", mesh);
    if (added && r->differ)
        added = ckpt__trees_say_differ(r->request->report, r->differ);
    return added ? CKPT_OK : ckpt__ranks_no_memory(r->err);
}

static ckpt_status refuse(ckpt__ranks *r)
{
    return r->wrong
               ? ckpt__report_fail(r->request->report, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, r->source->path, r->err)
               : CKPT_OK;
}

static ckpt_status work(ckpt__ranks *r)
{
    r->index->format = ckpt__format_ranks.name;
    r->index->kind = "directory";
    ckpt_status status = ckpt__ranks_list(r);
    if (status == CKPT_OK)
        status = refuse(r);
    if (status == CKPT_OK)
        status = ckpt__ranks_read_files(r);
    if (status == CKPT_OK)
        status = ckpt__ranks_open_native(r);
    if (status == CKPT_OK)
        status = refuse(r);
    if (status == CKPT_OK)
        status = ckpt__flat_open(r);
    if (status == CKPT_OK)
        status = ckpt__ranks_find_stages(r);
    if (status == CKPT_OK)
        status = refuse(r);
    if (status == CKPT_OK)
        status = ckpt__ranks_find_names(r);
    if (status == CKPT_OK)
        status = ckpt__ranks_merge(r);
    for (size_t i = 0; status == CKPT_OK && i < r->tensor_count; i++)
        status = ckpt__ranks_shape(r, &r->tensors[i]);
    if (status == CKPT_OK)
        status = ckpt__ranks_find_vars(r);
    if (status == CKPT_OK)
        status = ckpt__ranks_fill(r);
    if (status == CKPT_OK)
        status = check_used(r);
    if (status == CKPT_OK)
        status = refuse(r);
    r->index->job.ranks = ckpt__rank_mesh_world(&r->mesh);
    if (status == CKPT_OK)
        status = warn_of_sizes(r);
    return status == CKPT_OK ? say(r) : status;
}

ckpt_status ckpt__ranks_read(ckpt__source *source, const ckpt__ranks_request *request, ckpt__index **out,
                             ckpt_error *err)
{
    const ckpt__read_request reading = ckpt__read_all(source);
    ckpt__ranks r = {.request = request, .source = source, .err = err};
    ckpt_status status = CKPT_OK;
    *out = NULL;
    r.files = ckpt__layout_files(request->layout, request->side);
    r.index = ckpt__index_new(ckpt__known_limit(0, false));
    r.arena = ckpt__arena_new(0);
    r.used = calloc(ckpt__layout_shard_count(request->layout, request->side) + 1, sizeof *r.used);
    r.owned = calloc(r.files->own.count + 1, sizeof *r.owned);
    r.shares = calloc(r.files->stages.shared.count + 1, sizeof *r.shares);
    r.reader = (ckpt__folder_reader){.request = &reading, .index = r.index};
    if (!r.index || !r.arena || !r.used || !r.owned || !r.shares)
        status = ckpt__ranks_no_memory(err);
    if (status == CKPT_OK && !source->directory)
        status = ckpt__fail(err, CKPT_E_ARGUMENT, source->path,
                            "the layout says files of ranks below it, and it is not a directory");
    if (status == CKPT_OK)
        status = work(&r);
    if (r.index)
        status = ckpt__index_refused(r.index, status, source->path, err);
    if (status == CKPT_OK)
        *out = r.index;
    else
        ckpt__index_free(r.index);
    for (size_t g = 0; g < CKPT__FILE_FORMS; g++)
        free(r.groups[g].files);
    ckpt__layout_match_free(r.vars);
    ckpt__layout_match_free(r.given);
    ckpt__arena_free(r.arena);
    for (size_t s = 0; s < r.stage_count; s++) {
        ckpt__hash_free(r.by_own ? r.by_own[s] : NULL);
        ckpt__hash_free(r.by_param ? r.by_param[s] : NULL);
    }
    free(r.by_own);
    free(r.by_param);
    free(r.names);
    free(r.parts);
    free(r.tensors);
    free(r.used);
    free(r.owned);
    free(r.shares);
    free(r.twins);
    free(r.layers);
    free(r.layer_first);
    return status;
}
