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

/* With the options that are younger than the first release, which has struct_size 0. */
static inline void setup_new(void)
{
    setup();
    options.struct_size = sizeof options;
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

static inline void migrates(const char *src, const char *to, const char *dst)
{
    ckpt_status status = migrate(src, to, dst);
    ck_assert_msg(status == CKPT_OK, "%s to %s: %s: %s", src, to, err.object, err.message);
}

static inline ckpt_reader *opened_as(const char *path, const char *format)
{
    ckpt_reader_options o = {.format = format};
    ckpt_reader *reader = NULL;
    ck_assert_msg(ckpt_reader_open(path, &o, &reader, &err) == CKPT_OK, "%s: %s", path, err.message);
    return reader;
}

static inline ckpt_reader *opened(const char *path)
{
    return opened_as(path, NULL);
}

/* NULL: there is none. */
static inline const ckpt_tensor_info *find(const ckpt_reader *reader, const char *name)
{
    size_t i;
    return ckpt_reader_find(reader, name, strlen(name), &i, NULL) == CKPT_OK ? ckpt_reader_tensor(reader, i) : NULL;
}
#endif
