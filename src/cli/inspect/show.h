/* cli/inspect/show.h - what the files of `show` share: show.c gathers, show_json.c and show_text.c write it, resume.c
 * says how to go on, show_parts.c has what both of them and the lists of runs and folders need. */
#ifndef CKPT_CLI_INSPECT_SHOW_H
#define CKPT_CLI_INSPECT_SHOW_H
#include "cli/inspect/inspect.h"

/* One line of "by role", "by device", "by dtype". */
typedef struct show_row {
    char name[64];
    uint64_t count, nbytes; /* tensors; bytes */
} show_row;
/* All lines of one kind. */
typedef struct show_table {
    show_row *rows; /* heap, owned; NULL: none */
    size_t count;
} show_table;

/* What one file of a checkpoint of several ranks holds. */
typedef struct show_file {
    ckpt_str name; /* the reader's */
    uint64_t pieces, nbytes;
} show_file;
typedef struct show_files {
    show_file *rows; /* heap, owned, by name; NULL: none */
    size_t count;
} show_files;

/* The model's parameters: elements of the tensors of role param, tied ones once. Where no tensor has a role, of all. */
typedef struct show_params {
    uint64_t count, tensors, tied; /* elements; tensors; further names of those */
    bool all, more;                /* no role is known; there are more dtypes than have room */
    size_t dtypes;
    struct {
        const char *dtype; /* static */
        uint64_t count;
    } of[16];
} show_params;

/* What `show` says of one checkpoint: show.c gathers the whole picture before the first word is printed, so that the
 * text, the JSON and the report say the same. */
typedef struct show_picture {
    const command_line *o; /* the caller's, as are path and reader */
    const char *path;
    const ckpt_reader *reader;
    ckpt_summary summary;
    ckpt_report *doctor; /* NULL: it had no answer */
    show_table roles, devices, dtypes;
    show_params params;
    show_files files;         /* none where no ranks divided it */
    uint64_t tensors, nbytes; /* how many tensors; bytes of them */
    struct show_by *by;       /* NULL: not asked for */
    const char *verdict;      /* doctor's word, static; NULL: it had no answer */
    bool directory;           /* path is a directory */
} show_picture;

/* A parameter group of an optimizer: torch's list of dicts, the native dict of dicts, or libtorch's dict of
 * "param_groups/0": {"params/0": ..., "options": {...}}. */
typedef struct show_group {
    ckpt_str name;
    const ckpt_value *hypers;
    size_t params;
    bool unnamed; /* it does not say which parameters it has: Megatron's */
    char number[24];
} show_group;

/* Groups 0 to limit - 1; false where entry i is none. */
size_t show_group_limit(const ckpt_value *groups);
bool show_group_at(const ckpt_value *groups, size_t i, show_group *out);

/* How the producer's own program goes on, lines parted by '\n', to be freed; NULL: nothing that could be pasted. */
char *show_resume_command(const show_picture *p);
/* The same of a checkpoint that is opened for it. */
char *show_resume_of(const command_line *o, const char *path);

/* Is it a directory that may hold others beside its own files? */
bool show_may_hold(const show_picture *p);

/* show_files.c: of all tensors, also of a selection. False: no memory. begin: writes the label. */
bool show_count_files(const ckpt_reader *reader, show_files *out);
void show_files_text(const show_files *files, void (*begin)(const void *ctx, const char *label), const void *ctx);
void show_files_json(json_out *j, const show_files *files);

/* show_params.c: of the selected tensors. False: no memory. */
bool show_count_params(const cli *c, const ckpt_reader *reader, show_params *out);
char *show_params_text(const show_params *p); /* for free(); NULL: no memory */
void show_params_json(json_out *j, const show_params *p);

/* Per tensor: does it lie where a selected one before it lies, under a second name? For free(); NULL: no memory. */
bool *show_second_names(const ckpt_reader *reader, const cli *c);

/* show_by.c: --by layer, dtype, role or device, of the selected tensors; second names are not counted. NULL: no memory. */
typedef struct show_by show_by;
show_by *show_by_new(const command_line *o, const ckpt_reader *reader);
void show_by_free(show_by *b); /* accepts NULL */
void show_by_text(const show_by *b);
void show_by_json(const show_by *b, json_out *j); /* the member "by" */

void show_text(const show_picture *p);
void show_json(const show_picture *p);

/* ---- what the lists of runs and folders say too */
bool show_is_directory(const char *path);
/* A path as a shell and as C or Python take it; with other characters no command is shown. */
bool show_plain_path(const char *path);
/* What would be odd at a resume by the producer's own loader, into p->doctor. */
void show_ask_doctor(show_picture *p);
/* What show says of one checkpoint and of several does not: members that are null. */
void show_json_unsaid(json_out *j);
/* The members "step" and "epoch". */
void show_json_progress(json_out *j, const ckpt_summary *s);
#endif
