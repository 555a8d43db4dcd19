/* migrate/to_run.h - a target that is a run of this library: what out.c, place.c and back.c ask. */
#ifndef CKPT_MIGRATE_TO_RUN_H
#define CKPT_MIGRATE_TO_RUN_H
#include "migrate/out.h"

/* The files of all ranks. */
ckpt_status ckpt__run_files(ckpt__out *w);
/* The text of a manifest, w->files[number], from the files before it: once more when those are written. */
ckpt_status ckpt__run_list(ckpt__out *w, size_t number);
/* The same run, at `path`, as one checkpoint. */
ckpt_status ckpt__run_open(const ckpt__migration *m, const char *path, ckpt_reader **out, ckpt_error *err);
#endif
