/* cli/out/cli.h - what the two commands share: options, exit statuses, errors, text for people, selection, progress. */
#ifndef CKPT_CLI_OUT_CLI_H
#define CKPT_CLI_OUT_CLI_H
#include <ckpt/ckpt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include "cli/out/json.h"

/* Exit statuses, as cmp and diff have them. */
enum { CLI_YES = 0, CLI_NO = 1, CLI_NO_ANSWER = 2 };

#if defined(__GNUC__)
#define CLI_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define CLI_PRINTF(a, b)
#endif

/* --tensor, --role, --device: within one kind any may match, between the kinds all must. */
typedef struct cli_list {
    const char **items;
    size_t count;
} cli_list;
bool cli_list_add(cli_list *list, const char *item);

/* The options that every part of both programs looks at, and how their output is to look. */
typedef struct cli {
    const char *program; /* "ckpt-inspect" */
    bool json, quiet, checksum;
    bool ndjson;        /* with json: a line for each document */
    bool verbose;       /* -v: the notes too */
    bool markdown;      /* --markdown: a table as GitHub and GitLab read it */
    bool colour;        /* stdout is a terminal and NO_COLOR is not set, or as --color says */
    const char *color;  /* --color: "auto", "always", "never"; NULL: auto */
    const char *from;   /* --from; NULL: told from the content */
    bool leave_damaged; /* a file that its loader does not need is left out where it is damaged */
    bool leave_large;   /* of what is selected of a large storage, not all is read for its CRC: see --check */
    cli_list tensors, roles, devices;
    bool allow_unused; /* --allow-unused: of those, one that names nothing is a warning */
    cli_list about;    /* what an error may begin with: PATHs, the first of them where it names none; files
                                   * of options */
    char **also;
    int also_count; /* --one: the further PATHs */
} cli;

/* Fills program, json (already here, so that usage errors honour it) and colour. argv as main got it. */
void cli_init(cli *c, const char *program, int argc, char **argv);

/* No answer: with --json the error document on stdout, else a line on stderr. Both return CLI_NO_ANSWER. */
int cli_fail(const cli *c, const char *code, const char *format, ...) CLI_PRINTF(3, 4);
/* It begins with the path: about's first, where it names none of about itself. */
int cli_fail_error(const cli *c, const ckpt_error *err);
/* The same of one of several PATHs. */
int cli_fail_error_of(const cli *c, const char *path, const ckpt_error *err);
/* The member "error" of a document that has an answer beside it: status 2 always has one. */
void cli_json_error(const cli *c, json_out *j, const char *code, const char *message);
/* The text that they say, for free(); NULL where memory is out. */
char *cli_error_text(const cli *c, const char *path, const ckpt_error *err);
/* The same with "Try '... --help'". */
int cli_usage(const cli *c, const char *format, ...) CLI_PRINTF(2, 3);
void cli_warn(const cli *c, const char *format, ...) CLI_PRINTF(2, 3);
/* `what` ("cannot write", "cannot create") failed with the errno `why`: the error names the object, says why, and what to do. */
typedef enum cli_place {
    CLI_TO_NAME,   /* a file that is written beside its name and then renamed */
    CLI_TO_DIRECT, /* what is written as it is: a device, a pipe */
    CLI_TO_STDOUT,
} cli_place;
int cli_fail_write(const cli *c, const char *object, cli_place place, const char *what, int why);
/* path, which stays valid, is complete: only the report of it can still fail, and cli_finish says that. */
void cli_written(const char *path);
/* Call last: flushes stdout; a write error there (a full disk) makes the status CLI_NO_ANSWER. Dies by the signal that
 * was caught, if one was: a shell's loop over files then ends. */
int cli_finish(const cli *c, int status);
/* getopt_long answered '?' or ':' for argv[optind - 1]. meant: an option that is close to it, without its dashes, or NULL. */
int cli_bad_option(const cli *c, int answer, char **argv, const char *meant);
/* getopt_long gave the option whose value ends at argv[optind - 1], and that is "": a usage error for every option. */
int cli_empty_value(const cli *c, char **argv);
/* One letter apart (long words: two), which is another, left out, put in or swapped with its neighbour? */
bool cli_is_close(const char *word, const char *name);
/* --help */
int cli_help(const cli *c, const char *text);
/* --version */
int cli_version(const cli *c);

/* False, with the error said, when a --role is unknown. */
bool cli_selection_check(const cli *c);
bool cli_selected(const cli *c, const ckpt_tensor_info *t);
bool cli_has_selection(const cli *c);
/* Does one of these patterns match the name? An empty list matches none. */
bool cli_names(const cli_list *patterns, ckpt_str name);
/* Each --tensor, --role and --device must name a tensor of one of the readers, and all together too: an empty answer
 * looks like an empty file. -1: go on, else the exit status, the error said. */
int cli_selection_finds(const cli *c, const ckpt_reader *const *readers, size_t count);
/* What may have been meant by a name that no tensor has: for free(), NULL where memory is out. */
char *cli_selection_hint(const cli *c, const ckpt_reader *reader, const char *name);

/* Opens path, and c->also with it; on failure says why and gives NULL. */
ckpt_reader *cli_open(const cli *c, const char *path);
/* The same, and *err says why. */
ckpt_reader *cli_open_quietly(const cli *c, const char *path, ckpt_error *err);

/* Bytes that were read and not checked (leave_large): a warning, and *report gets the note for cli_json_findings; NULL
 * where all were. The caller frees it. */
ckpt_report *cli_unchecked(const cli *c, const ckpt_reader *reader);

/* ---- text for people */
/* What stands below a finding, or below "resume with", is indented by so many columns. */
enum { CLI_INDENT = 9 };
/* Bytes from a file, control characters, broken UTF-8 and backslashes escaped. */
void cli_put(FILE *f, const char *data, size_t size);
size_t cli_plain(const char *data, size_t size); /* so many bytes are printed as they are */
/* A sentence that may hold such escapes already: backslashes stay. */
void cli_put_message(FILE *f, const char *text);
/* The same with a hanging indent and a line's end: broken between words on a terminal, in one line elsewhere. `used`:
 * columns that are taken. */
void cli_put_wrapped(FILE *out, const char *text, size_t used, size_t indent);
/* Columns of the terminal that `out` is, at least 40; 80 where it is none. */
size_t cli_columns(FILE *out);
void cli_put_str(FILE *f, ckpt_str s, const char *otherwise);
size_t cli_width(const char *data, size_t size); /* columns that cli_put takes */
/* Of one character that is printed as it is: 2 of CJK, 0 of one that combines with the one before. */
size_t cli_char_width(uint32_t code);
/* Bytes of the layer at the beginning of a tensor's name: "blocks.3" of "blocks.3.attn.proj.weight". */
size_t cli_layer_size(ckpt_str name);
/* The name by which a tensor counts to a layer: its parameter's where it is an optimizer's, else its canonical one, else that of the
 * file; never NULL. naming may be NULL. */
ckpt_str cli_layer_name(const ckpt_reader *reader, const ckpt_naming *naming, size_t tensor);
/* Below 0, 0, above 0: by bytes, the shorter first. */
int cli_str_order(ckpt_str a, ckpt_str b);
void cli_width_free(void); /* call at the end */
/* "640 B", "1.5 MiB", somewhere in buf of CLI_SIZE_MAX bytes. */
enum { CLI_SIZE_MAX = 32 };
char *cli_size(char *buf, uint64_t bytes);
/* "12,345,678" */
char *cli_count(char *buf, uint64_t n);
/* A sequence for a terminal, "" where there are no colours: "bold", "red", "yellow", "dim", "off". */
const char *cli_style(const cli *c, const char *style);

/* ---- findings */
void cli_json_finding(json_out *j, const ckpt_finding *f);
/* findings: [...] of those at least `least` severe; reports may be NULL. */
void cli_json_findings(json_out *j, const ckpt_report *a, const ckpt_report *b, ckpt_severity least);
/* except: a code that is passed over; NULL: none. Of warnings and notes of one code twenty are shown, the rest is
 * counted. */
void cli_text_findings(const cli *c, FILE *out, const ckpt_report *report, ckpt_severity least, const char *except);
/* Errors, then warnings, then with --verbose the notes and else how many there are; with --quiet errors alone. */
void cli_text_by_severity(const cli *c, FILE *out, const ckpt_report *report, const char *except);
/* The first finding of that code, where there is one; nothing with --quiet. report may be NULL. */
void cli_text_code(const cli *c, FILE *out, const ckpt_report *report, const char *code);
void cli_json_value(json_out *j, const char *key, const ckpt_value *v); /* a scalar or a short list; else its kind */

/* ---- progress on stderr: a line that is rewritten, after the first second, on a terminal, without --quiet.
 * cli_signals makes SIGINT, SIGTERM and SIGHUP cancel through the callback. */
typedef struct cli_progress {
    const cli *cli;
    const char *verb;  /* "checked", "written" */
    const char *again; /* of the second half of the bytes, where the same are passed twice ("read back");
                                   * else NULL */
    struct timespec start, phase, last;
    uint64_t base; /* bytes of this phase that were done when it was seen to begin */
    bool shown, second;
    bool dumb; /* a terminal that cannot rewrite a line (TERM=dumb): nothing is shown */
} cli_progress;
void cli_progress_init(cli_progress *p, const cli *c, const char *verb);
int cli_progress_step(void *progress, uint64_t done, uint64_t total); /* a ckpt_progress_fn */
void cli_progress_end(cli_progress *p);
void cli_signals(void);
bool cli_signal_caught(void);
/* Dies by the signal that cancelled, if one did. */
void cli_signals_reraise(void);
#endif
