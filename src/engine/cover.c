/* engine/cover.c - what is said of tensors whose pieces do not cover them, or meet. */
#include "engine/cover.h"
#include "engine/plan.h"
#include "format/survey.h"

static ckpt_status note_overlap(ckpt_report *findings, ckpt_str name, const char *what, ckpt_error *err)
{
    char shown[512];
    if (ckpt__report_add(
            findings, CKPT_SEVERITY_ERROR, "pieces-overlap", ckpt__escape(shown, sizeof shown, name.data, name.size),
            "take an earlier checkpoint, or save it again; ckpt-migrate --salvage leaves this tensor out and "
            "keeps the others",
            "%s", what))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}

static ckpt_status look_at(const ckpt__index *x, size_t i, ckpt_report *findings, ckpt_error *err)
{
    const ckpt_tensor_info *t = &x->tensors[i].info;
    ckpt_error why = CKPT_ERROR_INIT;
    uint64_t elements = 0, numel = 0;
    ckpt_status status = ckpt__plan_cover(x, i, &elements, &why);
    if (status == CKPT_E_MISMATCH)
        return note_overlap(findings, t->name, why.message, err);
    if (status < 0 && err)
        *err = why;
    if (status < 0 || (ckpt__numel(t->shape, t->ndim, &numel) && elements == numel))
        return status;
    return ckpt__survey_pieces(findings, t->name, elements, numel, err);
}

ckpt_status ckpt__cover_note(const ckpt__index *x, ckpt_report *findings, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++)
        if (ckpt__is_split(&x->tensors[i]))
            status = look_at(x, i, findings, err);
    return status;
}

bool ckpt__cover_noted(const ckpt_report *findings)
{
    return ckpt_report_find(findings, "pieces-missing", NULL) || ckpt_report_find(findings, "pieces-overlap", NULL);
}
