/* tests/unit/scan/scan_files.h - a directory with a file in it, and what a scan says of it. */
#ifndef SCAN_FILES_H
#define SCAN_FILES_H
#include <ckpt/scan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../runner.h"
#include "../scratch_base.h"

static char scan_folder[64];
static ckpt_scan *scanned;
static ckpt_report *scan_report;

static void scan_setup(void)
{
    snprintf(scan_folder, sizeof scan_folder, "%s/ckpt-scan-XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(scan_folder));
    ck_assert_int_eq(chdir(scan_folder), 0);
    scanned = NULL;
    scan_report = ckpt_report_new();
}

static void scan_teardown(void)
{
    char command[128];
    ckpt_scan_close(scanned);
    ckpt_report_free(scan_report);
    ck_assert_int_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf '%s'", scan_folder);
    ck_assert_int_eq(system(command), 0);
}

static inline void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

static inline ckpt_danger scan_path(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_scan_close(scanned);
    ckpt_report_clear(scan_report);
    ckpt_status status = ckpt_scan_open(path, NULL, &scanned, scan_report, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", path, err.message);
    return ckpt_scan_verdict(scanned);
}

static inline ckpt_danger scan_bytes(const void *data, size_t n)
{
    write_file("x", data, n);
    return scan_path("x");
}

static inline const ckpt_scan_global *scan_find(const char *name)
{
    const ckpt_scan_global *g;
    for (size_t i = 0; (g = ckpt_scan_get(scanned, i)); i++)
        if (g->name.size == strlen(name) && memcmp(g->name.data, name, g->name.size) == 0)
            return g;
    return NULL;
}

static inline bool scan_says(const char *code)
{
    return ckpt_report_count_code(scan_report, code) > 0;
}

#define OS_SYSTEM "cos\nsystem\nX\x04\0\0\0echo\x85R"
#endif
