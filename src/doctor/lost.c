/* doctor/lost.c - files and pieces of the checkpoint that are not there. */
#include "doctor/facts.h"
#include "engine/cover.h"
#include "format/table.h"

/* Files of the checkpoint that are missing or short, where reading went on without them: each loader fails at the first of them
 * (dcp.load: FileNotFoundError, or a record that does not unpickle; load_weights: FileNotFoundError; ckpt_restore: "damaged"). Of what
 * is left nothing is said. *lost: there are some. */
static ckpt_status copy_lost_files(ckpt__examination *p, ckpt_report *report, bool *lost)
{
    static const char *const codes[] = {"shard-missing", "rank-missing",   "truncated",
                                        "damaged",       "member-damaged", "crc-mismatch"};
    const ckpt_report *said = p->index->findings;
    size_t count = ckpt__format_of(p->index)->joins_files ? 6 : 3; /* in a folder a loader may not need the member */
    *lost = false;
    for (size_t i = 0; ckpt__index_is_directory(p->index) && i < ckpt_report_count(said); i++) {
        const ckpt_finding *f = ckpt_report_get(said, i);
        bool is = false;
        for (size_t k = 0; k < count; k++)
            is = is || strcmp(f->code, codes[k]) == 0;
        if (!is || f->severity != CKPT_SEVERITY_ERROR || !f->file[0])
            continue;
        *lost = true;
        if (!ckpt__report_repeat(report, f, f->severity, f->code))
            return ckpt__fail_memory(p->err, "the report", 0);
    }
    return CKPT_OK;
}

/* Tensors whose pieces do not make them whole. ckpt_restore refuses them. dcp.load says nothing: it fills the elements that it finds and
 * leaves the others as they were in memory (torch 2.13: ran). */
static ckpt_status note_pieces(ckpt__examination *p, ckpt_report *report, bool *some)
{
    static const char *const codes[] = {"pieces-missing", "pieces-overlap"};
    const ckpt_report *said = p->index->findings;
    size_t before = ckpt_report_count(report);
    if (!ckpt__cover_noted(said)) {
        ckpt_status status = ckpt__cover_note(p->index, report, p->err);
        *some = ckpt_report_count(report) > before;
        return status;
    }
    for (size_t i = 0; i < ckpt_report_count(said); i++) {
        const ckpt_finding *f = ckpt_report_get(said, i);
        if ((strcmp(f->code, codes[0]) == 0 || strcmp(f->code, codes[1]) == 0) &&
            !ckpt__report_repeat(report, f, f->severity, f->code))
            return ckpt__fail_memory(p->err, "the report", 0);
    }
    *some = true;
    return CKPT_OK;
}

ckpt_status ckpt__doctor_lost(ckpt__examination *p, ckpt_report *report, bool *lost)
{
    bool pieces = false;
    ckpt_status status = copy_lost_files(p, report, lost);
    if (status == CKPT_OK)
        status = note_pieces(p, report, &pieces);
    if (*lost || (pieces && p->loader->loader == CKPT_LOADER_CKPT))
        p->result->outcome = CKPT_OUTCOME_FAILS_AT_LOAD;
    else if (pieces)
        p->result->outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY;
    *lost = *lost || pieces;
    return status;
}
