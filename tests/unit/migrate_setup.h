/* migrate_setup.h - a folder, options and a report for tests that migrate; every target is read back. */
#ifndef MIGRATE_SETUP_H
#define MIGRATE_SETUP_H
#include <ckpt/ckpt.h>
#include "folder_files.h"

static ckpt_error err;
static ckpt_report *report;
static ckpt_migrate_options options;

static void setup(void)
{
    make_folder();
    memset(&options, 0, sizeof options);
    options.no_sync = options.force = options.verify = true;
    report = ckpt_report_new();
}

static void teardown(void)
{
    ckpt_report_free(report);
    remove_folder();
}

static ckpt_status migrate(const char *src, const char *to, const char *dst)
{
    memset(&err, 0, sizeof err);
    options.to = to;
    return ckpt_migrate(src, dst, &options, report, &err);
}
#endif
