/* format/torch/write.c - a torch file: the pickle, which says which storages it wants, then the archive around both. */
#include "format/torch/torch.h"
#include "format/safetensors.h"
#include "format/torch/write.h"

#include <stdlib.h>

enum { SMALL = 3, RECORDS = 2 + SMALL }; /* beside the storages */

/* The order of records of torch 2.13: the storages in the order in which the pickle names them. */
static ckpt_status put_records(ckpt__torch_zip *z, const ckpt__torch_pickling *p, const ckpt__buf *pickle,
                               ckpt_error *err)
{
    static const struct {
        const char *name, *text;
    } small[SMALL] = {{".format_version", "1"}, {".storage_alignment", "64"}, {"byteorder", "little"}};
    ckpt_status status = ckpt__torch_zip_bytes(z, "data.pkl", pickle->data, pickle->size, err);
    for (size_t i = 0; status == CKPT_OK && i < SMALL; i++)
        status = ckpt__torch_zip_bytes(z, small[i].name, small[i].text, strlen(small[i].text), err);
    for (size_t i = 0; status == CKPT_OK && i < p->count; i++)
        status = ckpt__torch_zip_storage(z, i, p->storages[i], p->index->storages[p->storages[i]].extent.size, err);
    if (status == CKPT_OK)
        status = ckpt__torch_zip_bytes(z, "version", "3\n", 2, err);
    return status == CKPT_OK ? ckpt__torch_zip_finish(z, err) : status;
}

/* An archive's name stands in front of a slash, and torch takes what is no ASCII for none at all. */
static const char *archive_name(const char *name)
{
    bool usable = name && *name;
    for (const char *c = name; usable && *c; c++)
        usable = *c >= ' ' && *c < 0x7f && *c != '/' && *c != '\\';
    return usable ? name : "archive";
}

ckpt_status ckpt__torch_write(const ckpt__write_request *q, ckpt__recipe **out, ckpt_error *err)
{
    static const ckpt_value none = {.kind = CKPT_V_NONE};
    ckpt__torch_pickling p = {.index = q->index,
                              .source = q->source ? q->source : q->index,
                              .edits = q->edits,
                              .lost = q->lost,
                              .only = q->only};
    ckpt__recipe *recipe = ckpt__recipe_new();
    p.root = q->root ? q->root : &none;
    ckpt_status status =
        recipe ? ckpt__torch_pickle(&p, &recipe->text, err) : ckpt__fail_memory(err, "a torch file", 0);
    ckpt__torch_zip *z =
        status == CKPT_OK ? ckpt__torch_zip_new(recipe, archive_name(q->archive), RECORDS + p.count) : NULL;
    if (status == CKPT_OK)
        status = z ? put_records(z, &p, &recipe->text, err) : ckpt__fail_memory(err, "a torch file", 0);
    ckpt__torch_zip_free(z);
    free(p.storages);
    if (status < 0)
        ckpt__recipe_free(recipe);
    else
        *out = recipe;
    return status;
}
