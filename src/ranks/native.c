/* ranks/native.c - files of ranks that this library has written: their tensors have canonical names and say themselves what they are, and
 * so does what becomes of them. Their values are the tree; the tensors stand in it only while the trees are put together. */
#include "ranks/ranks.h"

#include "format/table.h"
#include "model/rewrite.h"

typedef struct dropping {
    bool tensors; /* all of them; else what the format keeps for itself: ckpt.torch, storages that tensors share */
} dropping;

static int on_place(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    const dropping *d = ctx;
    (void)spot;
    if (d->tensors ? visit->value->kind == CKPT_V_TENSOR
                   : visit->path.count == 1 && ckpt__str_begins(visit->name, "ckpt."))
        *to = NULL;
    return 0;
}

static ckpt_status drop(const ckpt__ranks *r, bool tensors, ckpt__arena *arena, const ckpt_value **root)
{
    dropping d = {tensors};
    ckpt__edits *edits = *root ? ckpt__edits_new(arena, NULL) : NULL;
    if (!edits)
        return *root ? ckpt__ranks_no_memory(r->err) : CKPT_OK;
    ckpt_status status = ckpt__rewrite(edits, *root, on_place, &d, root, r->err);
    ckpt__edits_free(edits);
    return status;
}

ckpt_status ckpt__ranks_open_native(ckpt__ranks *r)
{
    const ckpt_str none = {NULL, 0};
    const ckpt__ranks_file *first = &r->groups[0].files[0];
    ckpt_status status = CKPT_OK;
    r->native = first->native;
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++)
        for (size_t i = 0; status == CKPT_OK && i < r->groups[g].count; i++) {
            ckpt__ranks_file *f = &r->groups[g].files[i];
            if (f->native != r->native)
                status = ckpt__ranks_wrong(r, f->name, none, "it is%s a file of this library, and %s is%s",
                                           f->native ? "" : " not", first->name, first->native ? "" : " not");
            else if (f->step != first->step)
                status = ckpt__ranks_wrong(r, f->name, none,
                                           "it is of step %lld, and %s of step %lld: take the files of one save",
                                           (long long)f->step, first->name, (long long)first->step);
            else if (r->native)
                status = drop(r, false, r->index->arena, &f->root);
        }
    if (status == CKPT_OK && r->native &&
        (r->files->stages.there || r->files->flat_count || r->files->forms[0].key.data))
        status = ckpt__ranks_wrong(
            r, first->name, none,
            "it is a file of this library; of those one a rank is put together, without 'stages' and 'flat'");
    if (status == CKPT_OK && r->native) {
        r->index->step = first->step;
        r->index->format = ckpt__format_native.name;
        r->index->kind = "file";
        r->optimizer = ckpt__s("optimizer");
    }
    return status;
}

ckpt_status ckpt__ranks_drop_tensors(const ckpt__ranks *r, ckpt__index *index)
{
    return drop(r, true, index->arena, &index->root);
}
