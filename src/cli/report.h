/* cli/report.h - what the parts of a report share (inspect.h has the calls that the commands make). */
#ifndef CKPT_CLI_REPORT_H
#define CKPT_CLI_REPORT_H
#include "html_out.h"
#include "inspect.h"

/* A page is for people: lists end at these numbers, with a word on what was left out, so that it stays below a MiB
 * whatever a file holds. */
enum {
    REPORT_FINDINGS = 100,
    REPORT_LAYERS = 40,
    REPORT_LARGEST = 20,
    REPORT_DEVICES = 32,
    REPORT_TAGS = 256,            /* told apart while counting */
    REPORT_MOVES = 60,
    REPORT_DIFFERENCES = 200,
    REPORT_CHECKPOINTS = 500,
    REPORT_BLOCK = 32 << 10,      /* bytes of a block to copy */
    REPORT_ROOM = 600 << 10       /* bytes, after which a list takes no further row */
};

typedef struct report_page {
    const inspect *o;
    FILE *f;                      /* the page, in memory */
    char *text;
    size_t size;
} report_page;

/* ---- report_page.c */
/* -1: begun; else the exit status, the error said. `command` is "show", ...; `says` stands over the title. FILE must be no
 * part of what is looked at; readers may be NULL. */
int report_begin(report_page *p, const inspect *o, const char *command, const char *says, const ckpt_reader *a,
                 const ckpt_reader *b);
/* How the page was made, and the file: CLI_YES, else the exit status, the error said. Frees the page. */
int report_end(report_page *p);
/* After an error that was said: frees the page, gives the status. */
int report_give_up(report_page *p, int status);
bool report_room(const report_page *p);          /* is there room for another row of a list? */

/* ---- report_style.c */
extern const char *const report_style[];    /* the style sheet; NULL at the end */

/* ---- report_head.c */
void report_head(report_page *p, const char *command, const char *says);
void report_facts(report_page *p, const ckpt_reader *reader, const ckpt_summary *summary, const char *id, const char *title);
/* The answer in a frame of its own; kind is html_icon's. */
void report_box(report_page *p, const char *kind, const char *title, const char *says, const char *outcome);
void report_verdict(report_page *p, const ckpt_doctor_result *result, const ckpt_report *findings);
void report_assumed(report_page *p, const ckpt_doctor_result *result);
/* What is odd, most severe first; either may be NULL. */
void report_findings(report_page *p, const ckpt_report *a, const ckpt_report *b);
void report_fix(report_page *p, const char *label, const char *text);     /* a block to copy */
void report_origin(report_page *p);

/* ---- report_list.c */
/* A checkpoint of a run directory or of a folder. What is not known is -1, "" or NULL. */
typedef struct report_line {
    const char *name;
    int64_t step, time;
    char epoch[24], score[40], ranks[48];
    uint64_t nbytes;
    const char *plan, *kind, *state, *why;       /* kind is html_icon's */
} report_line;
typedef struct report_list {
    const char *command, *says;
    const char *kind, *title, *about, *outcome;  /* doctor's answer; title NULL: none */
    report_line *lines;
    size_t count, passed;                        /* passed: entries that were not looked at */
    bool newest_first;
    const char *metric, *resume;
    char note[400];
    const ckpt_report *findings, *more;
    const char *recommended;                     /* path of the checkpoint that the rest of the page is of */
    const ckpt_doctor_result *result;            /* of that one; NULL: doctor was not asked */
    bool resumes;                                /* doctor: from that one */
    const char *snippet;
} report_list;
int report_list_page(const inspect *o, const report_list *l);    /* the exit status, the error said */

/* ---- report_sizes.c */
/* Who holds what; result NULL, or without places: by the tags alone. */
void report_devices(report_page *p, const ckpt_reader *reader, const ckpt_doctor_result *result);
void report_sizes(report_page *p, const ckpt_reader *reader);

/* ---- report_values.c */
/* What cannot be read is said in its place. */
void report_values(report_page *p, const ckpt_reader *reader);
#endif
