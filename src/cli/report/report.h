/* cli/report/report.h - --report FILE: one page beside what is printed. Each call writes one; it gives CLI_YES, or the
 * exit status where the page cannot be written, the error said. */
#ifndef CKPT_CLI_REPORT_REPORT_H
#define CKPT_CLI_REPORT_REPORT_H
#include "cli/out/checkpoints.h"
#include "cli/out/command_line.h"

/* resume: how the producer's own program goes on, or NULL. */
int report_show(const command_line *o, const ckpt_reader *reader, const ckpt_summary *summary,
                const ckpt_report *findings, const char *resume);
int report_doctor(const command_line *o, const ckpt_reader *reader, const ckpt_doctor_options *options,
                  const ckpt_doctor_result *result, const ckpt_report *findings);
/* The counts, the lists of what differs (result: never what is the same) and the notes of a diff. */
int report_diff(const command_line *o, const ckpt_reader *a, const ckpt_reader *b, const ckpt_diff_result *result,
                const ckpt_report *findings);

/* The page of a run directory or of a folder. The caller fills the struct and owns what it points at; report_list_page
 * only reads. */
typedef struct report_list {
    const char *command, *says;
    const char *kind, *title, *about, *outcome; /* doctor's answer; title NULL: none */
    const checkpoint *rows;
    size_t count, passed; /* passed: entries that were not looked at */
    unsigned set;         /* WITH_PLAN, or 0 */
    bool newest_first;
    const char *resume;
    char note[400];
    const ckpt_report *findings, *more;
    const char *recommended;          /* path of the checkpoint that the rest of the page is of */
    const ckpt_doctor_result *result; /* of that one; NULL: doctor was not asked */
    bool resumes;                     /* doctor: from that one */
    const char *snippet;
} report_list;
int report_list_page(const command_line *o, const report_list *l);

/* The page of stats --run. The caller owns everything. */
typedef struct report_series {
    const char *name;
    const double *values; /* one per checkpoint, oldest first; what is not known is NaN */
} report_series;
typedef struct report_stats {
    const row_field *fields; /* of the table; the last is the path */
    unsigned set;
    const row_parts *rows;
    size_t count; /* checkpoints */
    const report_series *series, *layers;
    size_t series_count, layer_count;
    const char *odd; /* the first checkpoint with values that are not finite; NULL: none has any */
    size_t odd_count;
} report_stats;
int report_stats_page(const command_line *o, const report_stats *s);
#endif
