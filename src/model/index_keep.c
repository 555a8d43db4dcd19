/* model/index_keep.c - tensors that were the means of reading, and are not in the index in the end. */
#include "model/visits.h"

#include <stdlib.h>

static void keep_pieces(ckpt__index *x, const size_t *now)
{
    size_t count = 0;
    for (size_t i = 0; i < x->piece_count; i++) {
        const size_t tensor = x->pieces[i].tensor;
        if (!now[tensor])
            continue;
        if (i == x->tensors[tensor].first_piece)
            x->tensors[tensor].first_piece = (uint32_t)count;
        x->pieces[count] = x->pieces[i];
        x->pieces[count++].tensor = (uint32_t)(now[tensor] - 1);
    }
    x->piece_count = count;
}

/* The parts of a tensor that is not dense say the dense number of their storage too. */
static void number_parts(const ckpt__index *x, const int64_t *dense)
{
    for (size_t i = 0; i < x->tensor_count; i++)
        for (size_t k = 0; k < x->tensors[i].info.extra->part_count; k++) {
            ckpt_tensor_info *part = (ckpt_tensor_info *)(uintptr_t)x->tensors[i].info.extra->parts[k];
            if (part->storage >= 0 && (uint64_t)part->storage < x->storage_count)
                part->storage = dense[part->storage];
        }
}

/* After the rows have moved. before: the dense number that each of them had. */
static ckpt_status number_storages(ckpt__index *x, const int64_t *before, int64_t *dense, ckpt_error *err)
{
    ckpt_status status = ckpt__index_finish(x, err);
    for (size_t i = 0; i < x->storage_count; i++)
        dense[i] = -1;
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++)
        if (x->tensors[i].whole && before[i] >= 0 && (uint64_t)before[i] < x->storage_count)
            dense[before[i]] = x->tensors[i].info.storage;
    if (status == CKPT_OK)
        number_parts(x, dense);
    return status;
}

/* The memory of rows that are not there any more. */
static void give_back(ckpt__index *x)
{
    ckpt__tensor *less = realloc(x->tensors, (x->tensor_count + 1) * sizeof *less);
    if (!less)
        return;
    x->tensors = less;
    x->tensor_capacity = x->tensor_count + 1;
}

ckpt_status ckpt__index_keep(ckpt__index *x, const bool *keep, ckpt_error *err)
{
    size_t *now = calloc(x->tensor_count + 1, sizeof *now), count = 0;
    int64_t *before = calloc(x->tensor_count + 1, sizeof *before), *dense = calloc(x->storage_count + 1, sizeof *dense);
    ckpt_status status = now && before && dense ? CKPT_OK : ckpt__fail_memory(err, "tensors", x->tensor_count);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++)
        if (keep[i]) {
            before[count] = x->tensors[i].info.storage;
            now[i] = ++count;
        }
    if (status == CKPT_OK)
        status = ckpt__values_number(x->root, now, x->tensor_count, err);
    if (status == CKPT_OK) {
        keep_pieces(x, now);
        for (size_t i = 0; i < x->tensor_count; i++)
            if (now[i])
                x->tensors[now[i] - 1] = x->tensors[i];
        x->tensor_count = count;
        give_back(x);
        ckpt__hash_free(x->by_name);
        x->by_name = NULL;
        status = number_storages(x, before, dense, err);
    }
    free(now);
    free(before);
    free(dense);
    return status;
}
