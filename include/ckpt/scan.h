/* ckpt/scan.h - what would an unpickler import and call? Every pickle of a file or directory is looked for, also where no
 * loader looks first: behind the STOP of another, in any record of an archive (listed in its directory or not), in arrays of
 * numpy, in strings and bytes, in archives inside of archives. Nothing is imported, built or called.
 *
 * A name is held against a table: known to be harmless whatever it is called with, known to be dangerous, or not known. The
 * verdict is about names and is never "safe": a class of a program of one's own is not known here, and one who trusts the
 * program may trust the class. */
#ifndef CKPT_SCAN_H
#define CKPT_SCAN_H

#ifndef CKPT_EXPERIMENTAL
#error "<ckpt/scan.h> is young and may change with each release: define CKPT_EXPERIMENTAL before the include"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_danger { CKPT_DANGER_HARMLESS = 0, CKPT_DANGER_UNKNOWN, CKPT_DANGER_DANGEROUS } ckpt_danger;
const char *ckpt_danger_name(ckpt_danger danger); /* of a global: "harmless", "unknown", "dangerous" */
const char *ckpt_verdict_name(ckpt_danger worst); /* of all: "clean", "unknown", "dangerous" */

/* A global that some pickle names, once for each place. Strings live as long as the scan. The library makes the struct; it may
 * grow. */
typedef struct ckpt_scan_global {
    ckpt_str name; /* "os.system"; '?' stands for a part that is not known: it is computed, or a number of
                                   * copyreg's registry ("copyreg extension 5") */
    ckpt_danger danger;
    const char *reason; /* what such a thing does, or why it is not known; never NULL */
    ckpt_str file;      /* the file, relative to the directory, or as it was given; then '!' and a record, ... */
    uint64_t position;  /* of the first opcode that names it: a byte of that file, record, ... */
    uint64_t count;     /* how often it is named */
    uint64_t called;    /* how often it is called, as far as that can be told: it may be called by another */
    ckpt_str argument;  /* the first text that it is called with; data NULL: none */
} ckpt_scan_global;

typedef struct ckpt_scan ckpt_scan;

/* Zero is the default. */
typedef struct ckpt_scan_options {
    uint32_t struct_size; /* by the initializer */
    ckpt_progress progress;
} ckpt_scan_options;
#define CKPT_SCAN_OPTIONS_INIT CKPT_SIZED(ckpt_scan_options)

/* The path is that of a file, or of a directory: all its files are scanned. options may be NULL. The report (may be NULL)
 * gets what could not be looked into, and what else is odd: codes scan-limit, scan-damaged, scan-computed, scan-bytes,
 * scan-build, scan-encoded, scan-unreadable; each makes the verdict unknown at least. An error is CKPT_E_SYSTEM (no such
 * file), CKPT_E_FORMAT (a device), CKPT_E_CANCELLED, CKPT_E_NO_MEMORY; *out is then NULL. */
ckpt_status ckpt_scan_open(const char *path, const ckpt_scan_options *options, ckpt_scan **out, ckpt_report *report,
                           ckpt_error *err);
void ckpt_scan_close(ckpt_scan *scan); /* accepts NULL */

ckpt_danger ckpt_scan_verdict(const ckpt_scan *scan);
/* In the order of the table: dangerous ones first, then unknown, then harmless ones; of one kind as they were met. */
size_t ckpt_scan_count(const ckpt_scan *scan);
const ckpt_scan_global *ckpt_scan_get(const ckpt_scan *scan, size_t i); /* NULL past the end */
uint64_t ckpt_scan_files(const ckpt_scan *scan);                        /* that were scanned */
uint64_t ckpt_scan_pickles(const ckpt_scan *scan);                      /* that were found in them */

CKPT_END_DECLS
#endif
