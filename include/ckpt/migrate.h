/* ckpt/migrate.h - rewrite a checkpoint: other format, other device tags. */
#ifndef CKPT_MIGRATE_H
#define CKPT_MIGRATE_H

#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ckpt_migrate_options {
    uint32_t struct_size;
    const char *from;             /* format of the source; NULL: told from the content */
    const char *to;               /* "ckpt", "safetensors"; NULL: ckpt */
    const char *map_location;     /* rewrites device tags; NULL: kept */
    ckpt_optimizer_kind optimizer;/* places step and the like by this policy; DEFAULT: the saved flags */
    ckpt_ranks ranks;
    const char *const *param_names;
    size_t param_name_count;
    bool dry_run;                 /* only the plan, as findings: "copy", "moved", "lost" */
    bool verify;                  /* read back what was written */
    bool force;                   /* replace an existing dst */
    bool lossy;                   /* permits what the target cannot hold to be left out */
    bool no_sync;
    ckpt_progress progress;
} ckpt_migrate_options;

/* src is never touched; dst appears whole or not at all. What the target format cannot hold is listed in the report
 * before anything is written, and is an error (CKPT_E_UNSUPPORTED) unless lossy. */
ckpt_status ckpt_migrate(const char *src, const char *dst, const ckpt_migrate_options *options, ckpt_report *report,
                         ckpt_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
