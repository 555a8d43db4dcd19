/* inspect/show_params.c - how many parameters the model has: the elements of its weights, those that are tied once. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/show.h"

/* Where a tensor lies: two at one place are one parameter under two names. */
typedef struct place {
    int64_t storage, offset;
    size_t tensor;
} place;

static int by_place(const void *x, const void *y)
{
    const place *a = x, *b = y;
    if (a->storage != b->storage)
        return (a->storage > b->storage) - (a->storage < b->storage);
    if (a->offset != b->offset)
        return (a->offset > b->offset) - (a->offset < b->offset);
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* Elements; 0 where a dimension is not known. */
static uint64_t elements(const ckpt_tensor_info *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->ndim; i++)
        n = t->shape[i] > 0 ? n * (uint64_t)t->shape[i] : 0;
    return n;
}

static bool is_tied(const ckpt_reader *reader, const place *a, const place *b)
{
    return a->storage >= 0 && a->storage == b->storage && a->offset == b->offset &&
           elements(ckpt_reader_tensor(reader, a->tensor)) == elements(ckpt_reader_tensor(reader, b->tensor));
}

bool *show_second_names(const ckpt_reader *reader, const cli *c)
{
    const size_t n = ckpt_reader_tensor_count(reader);
    size_t count = 0;
    bool *again = calloc(n + 1, sizeof *again);
    place *places = again ? calloc(n + 1, sizeof *places) : NULL;
    if (!places) {
        free(again);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (cli_selected(c, t))
            places[count++] = (place){t->storage, t->offset, i};
    }
    if (count)
        qsort(places, count, sizeof *places, by_place);
    for (size_t i = 1; i < count; i++)
        again[places[i].tensor] = is_tied(reader, &places[i - 1], &places[i]);
    free(places);
    return again;
}

static bool add_dtype(show_params *p, const char *dtype, uint64_t n)
{
    size_t i = 0;
    while (i < p->dtypes && strcmp(p->of[i].dtype, dtype) != 0)
        i++;
    if (i == sizeof p->of / sizeof *p->of)
        return false;
    if (i == p->dtypes)
        p->of[p->dtypes++].dtype = dtype;
    p->of[i].count += n;
    return true;
}

bool show_count_params(const cli *c, const ckpt_reader *reader, show_params *out)
{
    const size_t n = ckpt_reader_tensor_count(reader);
    size_t count = 0;
    bool any_role = false;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n && !any_role; i++)
        any_role = ckpt_reader_tensor(reader, i)->role != CKPT_ROLE_NONE;
    place *places = calloc(n + 1, sizeof *places);
    if (!places)
        return false;
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (cli_selected(c, t) && t->role == (any_role ? CKPT_ROLE_PARAM : CKPT_ROLE_NONE))
            places[count++] = (place){t->storage, t->offset, i};
    }
    if (count)
        qsort(places, count, sizeof *places, by_place);
    out->all = !any_role;
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, places[i].tensor);
        if (i && is_tied(reader, &places[i - 1], &places[i])) {
            out->tied++;
            continue;
        }
        out->tensors++;
        out->count += elements(t);
        out->more = !add_dtype(out, ckpt_dtype_name(t->dtype), elements(t)) || out->more;
    }
    free(places);
    return true;
}

char *show_params_text(const show_params *p)
{
    char n[CLI_SIZE_MAX], tensors[CLI_SIZE_MAX], *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "%s in %s tensor%s", cli_count(n, p->count), cli_count(tensors, p->tensors), p->tensors == 1 ? "" : "s");
    for (size_t i = 0; i < p->dtypes; i++)
        if (p->dtypes == 1)
            fprintf(f, ", %s", p->of[i].dtype);
        else
            fprintf(f, "%s %s %s", i ? "," : ":", p->of[i].dtype, cli_count(n, p->of[i].count));
    if (p->more)
        fputs(", and other dtypes", f);
    if (p->tied)
        fprintf(f, "; %s more name%s tied to them", cli_count(n, p->tied), p->tied == 1 ? " is" : "s are");
    if (p->all)
        fputs(" (all tensors: the file keeps no roles)", f);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

void show_params_json(json_out *j, const show_params *p)
{
    if (p->tensors == 0) {
        json_null(j, "parameters");
        return;
    }
    json_object(j, "parameters");
    json_uint(j, "count", p->count);
    json_uint(j, "tensors", p->tensors);
    json_uint(j, "tied", p->tied);
    json_bool(j, "roles_known", !p->all);
    json_array(j, "dtypes");
    for (size_t i = 0; i < p->dtypes; i++) {
        json_object(j, NULL);
        json_text(j, "dtype", p->of[i].dtype);
        json_uint(j, "count", p->of[i].count);
        json_end_object(j);
    }
    json_end_array(j);
    json_end_object(j);
}
