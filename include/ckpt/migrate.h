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
    const char *to;               /* "ckpt", "safetensors", "torch", "hf"; NULL: ckpt */
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

    const char *const *also; size_t also_count;                  /* further sources of the same checkpoint (--one) */
    const char *const *strip_prefix; size_t strip_prefix_count;  /* "module.", ...: at any nesting, iteratively */
    const char *const *rename; size_t rename_count;              /* "REGEX=REPLACEMENT", in order */
    const char *add_prefix;       /* to the names of the model's tensors */
    const char *const *drop; size_t drop_count;                  /* globs over names */
    const char *const *cast; size_t cast_count;                  /* "GLOB=DTYPE", first match wins */
    bool weights_only;            /* the model's tensors alone */
    bool plain;                   /* opaque objects become dicts and strings, listed ("plain") */
    bool map_device_objects;      /* torch.device objects among the values follow map_location */
    const char *const *fix; size_t fix_count;                    /* codes of findings, or "all" */
    bool salvage;                 /* a damaged source: what is whole is kept, the rest listed ("not-recovered") */
    uint64_t max_shard_size;      /* hf: bytes a file; 0: 5 GB */
    uint64_t memory;              /* peak of buffers; 0: 256 MiB */
    const char *const *only_tensor; size_t only_tensor_count;    /* globs ("=NAME": literally): others are left out */
    const char *const *only_role; size_t only_role_count;
    const char *const *only_device; size_t only_device_count;
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
