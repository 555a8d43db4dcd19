/* anatomy/naming.c - canonical names for whoever looks at a file: what ckpt_restore would call each tensor. */
#include <ckpt/doctor.h>

#include <stdlib.h>
#include "anatomy/canon.h"
#include "engine/engine.h"

struct ckpt_naming {
    ckpt__canon *canon;           /* NULL: the file was too ambiguous for names */
    ckpt_canonical *rows;         /* per tensor */
    size_t count;
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

ckpt_status ckpt_naming_new(const ckpt_reader *reader, const char *const *param_names, size_t param_name_count,
                            ckpt_naming **out, ckpt_report *report, ckpt_error *err)
{
    if (out)
        *out = NULL;
    if (!reader || !out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_naming_new", "a reader and a place for the answer are wanted");
    ckpt_status named = ckpt__canon_check_names(param_names, param_name_count, reader->path, err);
    if (named < 0)
        return named;
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    hints.param_names = param_names;
    hints.param_name_count = param_name_count;
    hints.optional_optimizer = true;
    ckpt_naming *n = calloc(1, sizeof *n);
    if (!n || !(n->rows = calloc(reader->index->tensor_count + 1, sizeof *n->rows))) {
        free(n);
        return ckpt__fail_memory(err, "names", reader->index->tensor_count);
    }
    n->count = reader->index->tensor_count;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__canon_build(reader->index, &hints, &n->canon, report, &why);
    if (status == CKPT_OK)
        fill(n);
    else if (status == CKPT_E_MISMATCH && !param_name_count)
        status = !report || ckpt__report_add(report, CKPT_SEVERITY_WARNING, "source-ambiguous", NULL, NULL, "%s", why.message)
                     ? CKPT_OK : ckpt__fail_memory(&why, "the report", 0);
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
    return tensor < naming->count ? &naming->rows[tensor] : NULL;
}

void ckpt_naming_free(ckpt_naming *naming)
{
    if (!naming)
        return;
    ckpt__canon_free(naming->canon);
    free(naming->rows);
    free(naming);
}
