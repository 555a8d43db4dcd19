/* reader/naming.c - canonical names for whoever looks at a file: what ckpt_restore would call each tensor. */
#include <ckpt/naming.h>

#include <stdlib.h>
#include "anatomy/canon.h"
#include "base/first_sizes.h"
#include "reader/reader.h"

/* One row for each tensor of the reader. The strings of a row are borrowed from the canon and from the reader's
 * index, so the reader must outlive the naming. */
struct ckpt_naming {
    ckpt__canon *canon;   /* owned; NULL: the file was too ambiguous for names */
    ckpt_canonical *rows; /* heap, owned: per tensor; name.data NULL: no name is known */
    size_t count;         /* tensors of the reader's index */
};

static void fill(ckpt_naming *n)
{
    for (size_t i = 0; i < n->canon->count; i++) {
        const ckpt__canon_entry *e = &n->canon->entries[i];
        if (!e->is_tensor || e->tensor >= n->count || e->outside || n->rows[e->tensor].name.data)
            continue;
        n->rows[e->tensor] = (ckpt_canonical){e->name, e->param, e->state_key, e->group, e->role};
    }
}

/* The entry's tensor is a row that has another entry's name: one tensor that stands at several places. */
static bool is_elsewhere(const ckpt_naming *n, const ckpt__canon_entry *e)
{
    return e->is_tensor && !e->outside && e->tensor < n->count && n->rows[e->tensor].name.data != e->name.data;
}

/* The places have rows of their own, by the names that they have in the file. */
static ckpt_status fill_places(ckpt_naming *n, const ckpt__index *x, ckpt_error *err)
{
    size_t first = 0, row;
    int put = 0;
    while (first < n->canon->count && !is_elsewhere(n, &n->canon->entries[first]))
        first++;
    if (first == n->canon->count)
        return CKPT_OK;
    ckpt__hash *by_name = ckpt__hash_new(n->count);
    for (size_t i = 0; by_name && put >= 0 && i < n->count; i++)
        put = ckpt__hash_put(by_name, x->tensors[i].info.name.data, x->tensors[i].info.name.size, i, NULL);
    for (size_t i = first; by_name && put >= 0 && i < n->canon->count; i++) {
        const ckpt__canon_entry *e = &n->canon->entries[i];
        if (is_elsewhere(n, e) && ckpt__hash_get(by_name, e->own.data, e->own.size, &row) && !n->rows[row].name.data &&
            ckpt__same_view(&x->tensors[row], &x->tensors[e->tensor]))
            n->rows[row] = (ckpt_canonical){e->name, e->param, e->state_key, e->group, e->role};
    }
    const bool good = by_name && put >= 0;
    ckpt__hash_free(by_name);
    return good ? CKPT_OK : ckpt__fail_memory(err, "names", n->count);
}

ckpt_status ckpt_naming_new(const ckpt_reader *reader, const ckpt_naming_options *options, ckpt_naming **out,
                            ckpt_report *report, ckpt_error *err)
{
    ckpt_naming_options own;
    if (out)
        *out = NULL;
    if (!reader || !out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_naming_new", "a reader and a place for the answer are required");
    ckpt_status named = CKPT__TAKE_OPTIONS(ckpt_naming_options, &own, options, err);
    if (named == CKPT_OK)
        named = ckpt__canon_check_names(own.param_names, own.param_name_count, reader->path, err);
    if (named == CKPT_OK)
        named = ckpt__order_check(own.assume_order, reader->path, err);
    if (named < 0)
        return named;
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    hints.param_names = own.param_names;
    hints.param_name_count = own.param_name_count;
    hints.assume_order = own.assume_order;
    hints.optional_optimizer = true;
    ckpt_naming *n = calloc(1, sizeof *n);
    if (!n || !(n->rows = calloc(reader->index->tensor_count + 1, sizeof *n->rows))) {
        free(n);
        return ckpt__fail_memory(err, "names", reader->index->tensor_count);
    }
    n->count = reader->index->tensor_count;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__canon_build(reader->index, &hints, &n->canon, report, &why);
    if (status == CKPT_OK) {
        fill(n);
        status = fill_places(n, reader->index, &why);
    } else if (status == CKPT_E_MISMATCH && !own.param_name_count && !own.assume_order)
        status = !report || ckpt__report_add(report, CKPT_SEVERITY_WARNING, "source-ambiguous", NULL, NULL, "%s",
                                             why.message)
                     ? CKPT_OK
                     : ckpt__fail_memory(&why, "the report", 0);
    if (status < 0) {
        if (err)
            *err = why;
        ckpt_naming_free(n);
        return status;
    }
    *out = n;
    return CKPT_OK;
}

const ckpt_canonical *ckpt_naming_get(const ckpt_naming *naming, size_t tensor)
{
    return naming && tensor < naming->count ? &naming->rows[tensor] : NULL;
}

void ckpt_naming_free(ckpt_naming *naming)
{
    if (!naming)
        return;
    ckpt__canon_free(naming->canon);
    free(naming->rows);
    free(naming);
}
