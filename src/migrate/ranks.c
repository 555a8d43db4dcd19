/* migrate/ranks.c - --layout, of files of ranks: where the source's are those of a side of it, they are put together (src/ranks) before
 * anything else is asked of the source. */
#include "migrate/layout.h"
#include "ranks/ranks.h"
#include "reader/reader.h"

#include <stdlib.h>

/* The side whose files the source has; 2: it has those of neither. */
static ckpt_status find_side(ckpt__migration *m, const ckpt__layout *layout, ckpt__source *source, unsigned *side,
                             ckpt_error *err)
{
    const char *const said = m->options.layout_side;
    const bool alone = !ckpt__layout_side(layout, 1);
    ckpt_status status = CKPT_OK;
    *side = 2;
    for (unsigned i = 0; status == CKPT_OK && i < 2; i++) {
        bool found = false;
        if (!ckpt__layout_side(layout, i) || !ckpt__layout_files(layout, i) ||
            (said && strcmp(said, ckpt__layout_side(layout, i)) != 0))
            continue;
        if (alone || (said && source->directory))
            found = true;
        else if (source->directory)
            status = ckpt__ranks_are_there(source, ckpt__layout_files(layout, i), &found, err);
        if (found && *side < 2)
            return ckpt__fail(
                err, CKPT_E_MISMATCH, m->src,
                "it has files with the names of those of %s and of %s: say which they are with --layout-side",
                ckpt__layout_side(layout, 0), ckpt__layout_side(layout, 1));
        *side = found ? i : *side;
    }
    if (status == CKPT_OK && alone && said && *side == 2)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->options.layout, "it has no side '%s': its side is %s", said,
                          ckpt__layout_side(layout, 0));
    return status;
}

static ckpt_status open_all(const ckpt__migration *m, ckpt__source **source, ckpt_error *err)
{
    ckpt_status status = ckpt__source_open(m->src, source, err);
    for (size_t i = 0; status == CKPT_OK && i < m->options.also_count; i++)
        status = ckpt__source_open_also(*source, m->options.also[i], err);
    return status;
}

static ckpt_status refuse_options(const ckpt__migration *m, ckpt_error *err)
{
    if (m->options.salvage)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, m->dst,
            "--salvage reads what is left of a damaged checkpoint, and --layout puts files of ranks together that are "
            "all there");
    if (m->options.from)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->src,
                          "--from %s says how the source is read, and --layout says it too: leave --from out",
                          m->options.from);
    if (m->options.to && strcmp(m->options.to, "same") == 0)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, m->dst,
            "--to same keeps the files of the source's program: with --layout say --to ckpt, torch, safetensors, ...");
    return CKPT_OK;
}

static ckpt_status read_side(ckpt__migration *m, const ckpt__layout *layout, unsigned side, ckpt__source *source,
                             ckpt__index **index, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    const ckpt__ranks_request request = {.layout = layout,
                                         .side = side,
                                         .vars = o->layout_vars,
                                         .var_count = o->layout_var_count,
                                         .param_names = o->param_names,
                                         .param_name_count = o->param_name_count,
                                         .assume_order = o->assume_order,
                                         .report = m->report};
    ckpt_status status = refuse_options(m, err);
    return status == CKPT_OK ? ckpt__ranks_read(source, &request, index, err) : status;
}

ckpt_status ckpt__migrate_open_ranks(ckpt__migration *m, ckpt_error *err)
{
    ckpt__layout *layout = NULL;
    ckpt__source *source = NULL;
    ckpt__index *index = NULL;
    unsigned side = 2;
    if (!m->options.layout)
        return CKPT_OK;
    ckpt_status status = ckpt__migrate_read_layout(m, &layout, err);
    const bool files = layout && (ckpt__layout_files(layout, 0) || ckpt__layout_files(layout, 1));
    if (status == CKPT_OK && files)
        status = open_all(m, &source, err);
    if (status == CKPT_OK && files)
        status = find_side(m, layout, source, &side, err);
    if (status == CKPT_OK && side < 2)
        status = read_side(m, layout, side, source, &index, err);
    if (status == CKPT_OK && side < 2) {
        status = ckpt__reader_of(m->src, source, index, &m->reader, err); /* which has both, also where it fails */
        source = NULL;
    }
    if (status == CKPT_OK && side < 2 && !ckpt__layout_side(layout, 1)) /* no rule leads further */
        m->options.layout = NULL;
    if (status == CKPT_OK && side < 2 && m->options.layout) {
        const char *name = ckpt__layout_side(layout, side);
        m->options.layout_side = ckpt__arena_copy(m->reader->index->arena, name, strlen(name));
        status = m->options.layout_side ? CKPT_OK : ckpt__migration_no_memory(err);
    }
    ckpt__source_close(source);
    ckpt__layout_free(layout);
    return status;
}
