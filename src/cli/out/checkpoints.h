/* cli/out/checkpoints.h - the checkpoints of a run directory or of a folder, a row each: of one description come the
 * columns of show, the members of its JSON and the columns of the page. */
#ifndef CKPT_CLI_OUT_CHECKPOINTS_H
#define CKPT_CLI_OUT_CHECKPOINTS_H
#include "cli/out/rows.h"

/* One of them. Who makes it owns what it points at. What is not known is -1, or data NULL. */
typedef struct checkpoint {
    ckpt_str name;
    const char *path;
    const char *format, *producer; /* of a folder's; NULL: not known */
    int64_t step, epoch, time;     /* time: seconds since 1970 in UTC */
    double epoch_exact;            /* 1.5 where epoch is 1 */
    ckpt_score score;              /* its name ends in a NUL */
    int64_t world, ranks_held;     /* of a run's */
    uint64_t nbytes;
    bool complete, unread, verified; /* unread: of a kind that this version does not read */
    const char *checked;             /* of a folder's: "bytes", "structure"; NULL: not read */
    bool best_known, best, last;     /* of a folder's; best_known: of the list */
    bool remove;                     /* retention would remove it */
    const char *state, *why;         /* why NULL: nothing is wrong */
    const char *style, *kind;        /* of the state: cli_style's, NULL for none, and html_icon's */
} checkpoint;

/* Who shows them, and what was asked for. */
enum { IN_RUN = 1, IN_FOLDER = 2, ON_PAGE = 4, WITH_RANKS = 8, WITH_PLAN = 16 };
extern const row_field checkpoint_fields[];

void checkpoints_text(const cli *c, const checkpoint *items, size_t count, unsigned set);
void checkpoints_json(json_out *j, const checkpoint *items, size_t count, unsigned set); /* the member "checkpoints" */
/* How all that have a score call it, else "score"; NULL: none has one. */
const char *checkpoints_metric(const checkpoint *items, size_t count);

/* The members "epoch" (epoch -1: not known) and "score". */
void checkpoint_json_epoch(json_out *j, const char *key, int64_t epoch, double exact);
void checkpoint_json_score(json_out *j, const char *key, const ckpt_score *s);
#endif
