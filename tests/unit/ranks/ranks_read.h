/* ranks/ranks_read.h - files of ranks in a folder of the test, put together by the text of a layout. */
#ifndef RANKS_READ_H
#define RANKS_READ_H
#include "format/table.h"
#include "ranks/ranks.h"
#include "ranks_case.h"

static ckpt_error err;
static ckpt_report *report;

static void setup(void)
{
    make_folder();
    report = ckpt_report_new();
}

static void teardown(void)
{
    ckpt_report_free(report);
    remove_folder();
}

/* Of the folder `in`; names: of the optimizer's parameters, or NULL. Both are the caller's, and NULL where it fails: err and report say why. */
static inline ckpt_status put_together(const char *text, const char *in, const char *const *names, size_t count,
                                       ckpt__source **source, ckpt__index **index)
{
    ckpt__layout *layout = NULL;
    *source = NULL;
    *index = NULL;
    memset(&err, 0, sizeof err);
    ckpt_report_clear(report);
    ckpt_status status = ckpt__layout_parse(text, strlen(text), "mine.yaml", report, &layout, &err);
    if (status == CKPT_OK)
        status = ckpt__source_open(at("%s", in), source, &err);
    const ckpt__ranks_request request = {
        .layout = layout, .param_names = names, .param_name_count = count, .report = report};
    if (status == CKPT_OK)
        status = ckpt__ranks_read(*source, &request, index, &err);
    if (status != CKPT_OK) {
        ckpt__source_close(*source);
        *source = NULL;
    }
    ckpt__layout_free(layout);
    return status;
}
#endif
