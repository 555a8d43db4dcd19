/* cli/report/page.h - what the parts of a page share (report.h has the calls that the commands make). */
#ifndef CKPT_CLI_REPORT_PAGE_H
#define CKPT_CLI_REPORT_PAGE_H
#include "cli/out/html.h"
#include "cli/report/report.h"

/* A page is for people: lists end at these numbers, with a word on what was left out, so that it stays below a MiB
 * whatever a file holds. */
enum {
    REPORT_FINDINGS = 100,
    REPORT_LAYERS = 40,
    REPORT_SPECKS = 5, /* rows, after which a layer of less than a thousandth is left out */
    REPORT_LARGEST = 20,
    REPORT_DEVICES = 32,
    REPORT_TAGS = 256, /* told apart while counting */
    REPORT_MOVES = 60,
    REPORT_DIFFERENCES = 200,
    REPORT_CHECKPOINTS = 500,
    REPORT_BLOCK = 32 << 10, /* bytes of a block to copy */
    REPORT_ROOM = 600 << 10  /* bytes, after which a list takes no further row */
};

/* One page while it is made. It is made in memory, so that a file appears only when the page is whole. report_begin
 * makes f, and report_end or report_give_up frees f and text. */
typedef struct report_page {
    const command_line *o;              /* the caller's */
    FILE *f;                            /* the page, in memory */
    char *text;                         /* what f has written; means something after a flush of f */
    size_t size;                        /* bytes of it */
    const char *codes[REPORT_FINDINGS]; /* of findings that the page has; theirs */
    size_t code_count;
} report_page;

/* ---- page.c */
/* -1: begun; else the exit status, the error said. `command` is "show", ...; `says` stands over the title. FILE must be
 * no part of what is looked at; readers may be NULL. */
int report_begin(report_page *p, const command_line *o, const char *command, const char *says, const ckpt_reader *a,
                 const ckpt_reader *b);
/* How the page was made, and the file: CLI_YES, else the exit status, the error said. Frees the page. */
int report_end(report_page *p);
/* After an error that was said: frees the page, gives the status. */
int report_give_up(report_page *p, int status);
bool report_room(const report_page *p); /* is there room for another row of a list? */

/* ---- style.c */
extern const char *const report_style[]; /* the style sheet; NULL at the end */

/* ---- answer.c */
void report_facts(report_page *p, const ckpt_reader *reader, const ckpt_summary *summary, const char *id,
                  const char *title);
/* What one wants to know first: parameters, size, step. */
void report_headline(report_page *p, const ckpt_reader *reader, const ckpt_summary *summary);
/* The answer in a frame of its own; kind is html_icon's, `label` says what the outcome is of. */
void report_box(report_page *p, const char *kind, const char *title, const char *says, const char *label,
                const char *outcome);
void report_verdict(report_page *p, const ckpt_doctor_result *result, const ckpt_report *findings);
void report_assumed(report_page *p, const ckpt_doctor_result *result);
/* What is odd, most severe first; either may be NULL. */
void report_findings(report_page *p, const ckpt_report *a, const ckpt_report *b);
void report_fix(report_page *p, const char *label, const char *text); /* a block to copy */
/* The first `most` ways to fix it: a block for each that is pasted, prose outside of it. */
void report_fixes(report_page *p, const ckpt_finding *finding, size_t most);

/* ---- sizes.c */
/* Who holds what; result NULL, or without places: by the tags alone. */
void report_devices(report_page *p, const ckpt_reader *reader, const ckpt_doctor_result *result);
void report_sizes(report_page *p, const ckpt_reader *reader);

/* ---- stats.c */
/* A line over `count` checkpoints, oldest first, and its ends in words; what is not finite is passed over. False: fewer than
 * three are left, and nothing is drawn. */
bool report_curve(report_page *p, const char *name, const double *values, size_t count);

/* ---- values.c */
/* What cannot be read is said in its place. */
void report_values(report_page *p, const ckpt_reader *reader);
#endif
