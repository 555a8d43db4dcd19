/* report.c - one page of HTML that opens from disk. */
#include "inspect.h"

int report_show(const inspect *o, const ckpt_reader *reader, const ckpt_summary *summary)
{
    (void)reader, (void)summary;
    return cli_fail(&o->cli, "unsupported", "this version does not have --report");
}

int report_doctor(const inspect *o, const ckpt_reader *reader, const ckpt_doctor_result *result, const ckpt_report *findings)
{
    (void)reader, (void)result, (void)findings;
    return cli_fail(&o->cli, "unsupported", "this version does not have --report");
}
