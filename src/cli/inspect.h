/* cli/inspect.h - the commands of ckpt-inspect. Each gets its PATHs and answers with an exit status. */
#ifndef CKPT_CLI_INSPECT_H
#define CKPT_CLI_INSPECT_H
#include <ckpt/run.h>
#include "cli.h"

typedef struct inspect {
    cli cli;
    const char *output;           /* extract -o */
    bool raw, force;              /* extract --raw, --force */
    const char *check;            /* "all", "part"; NULL: part */
    /* doctor */
    const char *loader, *torch, *load_weights_only, *optimizer, *map_location, *devices, *param_names, *assume_order;
    const char *device_memory, *snippet, *world;
    bool amp, values;
    /* diff */
    const char *atol, *rtol;
    const char *report;           /* --report FILE.html: show, diff, doctor */
    /* a run directory */
    ckpt_retention keep;          /* show --keep-last, --keep-every */
    bool metadata_only;           /* doctor --metadata-only */
    bool one;                     /* --one: all PATHs are one checkpoint (cli.also) */
    const char *name;             /* extract: the NAME */
    char **paths;
    int path_count;
    char **typed;                 /* the command line before getopt sorts it: the report shows it */
    int typed_count;
} inspect;

int inspect_show(const inspect *o);
int inspect_list(const inspect *o);
int inspect_tree(const inspect *o);
int inspect_verify(const inspect *o);
int inspect_doctor(const inspect *o);
int inspect_extract(const inspect *o);
int inspect_stats(const inspect *o);
int inspect_diff(const inspect *o);
int inspect_scan(const inspect *o);
/* show of a directory that is no checkpoint and holds some: a line each. -1: it holds none. */
int inspect_folder(const inspect *o);
/* Step directories beside the files of a checkpoint, such as a Trainer's beside the model that it saved last: as the member
 * "checkpoints" (j NULL: as text). Nothing where there are none. */
void inspect_folder_beside(const inspect *o, json_out *j);
/* What show says of one checkpoint and of several does not: members that are null. */
void inspect_json_unsaid(json_out *j);
/* The members "step" and "epoch"; "score". */
void inspect_json_progress(json_out *j, const ckpt_summary *s);
void inspect_json_score(json_out *j, const ckpt_score *s);

/* ---- --report: one page beside what is printed; the exit status, 2 where it cannot be written (and says so) */
int report_show(const inspect *o, const ckpt_reader *reader, const ckpt_summary *summary, const ckpt_report *findings, const char *resume);
int report_doctor(const inspect *o, const ckpt_reader *reader, const ckpt_doctor_options *options, const ckpt_doctor_result *result,
                  const ckpt_report *findings);
/* The counts, the lists of what differs (result: never what is the same) and the notes of a diff. */
int report_diff(const inspect *o, const ckpt_reader *a, const ckpt_reader *b, const ckpt_diff_result *result,
                const ckpt_report *findings);

/* A path as a shell and as C or Python take it; with other characters no command is shown. */
bool inspect_plain_path(const char *path);
/* Does some tensor's tag name a GPU, whatever is selected? */
bool inspect_has_gpu(const ckpt_reader *reader);

/* What doctor's answer depends on, into *d; -1: go on, else the exit status, the error said. */
int inspect_doctor_options(const inspect *o, ckpt_doctor_options *d);
/* Options that the loader has no use for must not look as if they counted. */
void inspect_doctor_warn(const inspect *o, ckpt_loader loader);
/* The members "assumed" and "effective". */
void inspect_doctor_json_assumed(json_out *j, const inspect *o, const ckpt_doctor_options *d, const ckpt_doctor_result *r);
const char *inspect_integrity_name(ckpt_integrity integrity);
#endif
