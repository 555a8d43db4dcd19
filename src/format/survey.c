/* format/survey.c - what is said of a damaged file while the others of its checkpoint are read. */
#include "format/survey.h"

const char *ckpt__damage_code(const char *message)
{
    static const struct {
        const char *words, *code;
    } table[] = {
        {"nothing can be salvaged", "damaged"},
        {"CRC", "crc-mismatch"},
        {"checksum", "crc-mismatch"},
        {"ends at", "truncated"},
        {"truncated", "truncated"},
        {"is missing, with", "shard-missing"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strstr(message, table[i].words))
            return table[i].code;
    return "damaged";
}

const char *ckpt__damage_fix(const char *code)
{
    if (strcmp(code, "crc-mismatch") == 0)
        return "copy it again, or take an earlier checkpoint; ckpt-migrate --salvage reads it as it stands: names, shapes and "
               "values may then be others than were written";
    if (strcmp(code, "truncated") == 0)
        return "ckpt-migrate --salvage keeps every tensor whose bytes are all there";
    return NULL;
}

bool ckpt__survey_passes(ckpt_status status)
{
    return status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT || status == CKPT_E_LIMIT ||
           status == CKPT_E_UNSUPPORTED;
}

bool ckpt__survey_leaves(const ckpt__read_request *r, ckpt_status status)
{
    bool damage = status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT || status == CKPT_E_LIMIT;
    return (r->survey && ckpt__survey_passes(status)) || ((r->salvage || r->leave_damaged) && damage);
}

bool ckpt__survey_goes_on(const ckpt__read_request *r)
{
    return r->survey || r->salvage || r->leave_damaged;
}

ckpt_status ckpt__survey_lack(const ckpt__read_request *r, ckpt_report *findings, const char *file, ckpt_status status,
                              const ckpt_error *why, ckpt_error *err)
{
    if (ckpt__survey_goes_on(r) && (ckpt__survey_passes(status) || status == CKPT_E_MISMATCH))
        return ckpt__survey_note(findings, file, status, why, err);
    if (err)
        *err = *why;
    return status;
}

ckpt_status ckpt__survey_note(ckpt_report *findings, const char *file, ckpt_status status, const ckpt_error *why,
                              ckpt_error *err)
{
    const char *code = status == CKPT_E_DAMAGED       ? ckpt__damage_code(why->message)
                       : status == CKPT_E_UNSUPPORTED ? "member-unread"
                                                      : "member-damaged";
    if (ckpt__report_add(findings, CKPT_SEVERITY_ERROR, code, NULL, ckpt__damage_fix(code), "%s", why->message) &&
        ckpt__report_detail(findings, file, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}

ckpt_status ckpt__survey_pieces(ckpt_report *findings, ckpt_str tensor, uint64_t elements, uint64_t of, ckpt_error *err)
{
    char shown[512];
    if (ckpt__report_add(findings, CKPT_SEVERITY_ERROR, "pieces-missing",
                         ckpt__escape(shown, sizeof shown, tensor.data, tensor.size),
                         "copy the checkpoint again with the files of all ranks, or take an earlier one; ckpt-migrate "
                         "--salvage leaves this tensor out and keeps the others",
                         "its pieces have %llu of its %llu elements: the others are in no file",
                         (unsigned long long)elements, (unsigned long long)of))
        return CKPT_OK;
    return ckpt__fail_memory(err, "findings", 0);
}
