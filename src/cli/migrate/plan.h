/* cli/migrate/plan.h - the plan of a dry run as it is made: what becomes of each tensor, and where its bytes come from. */
#ifndef CKPT_CLI_MIGRATE_PLAN_H
#define CKPT_CLI_MIGRATE_PLAN_H
#include <ckpt/migrate.h>
#include "cli/out/cli.h"
#include "cli/out/strset.h"

/* The rows as they come. What is kept is of one tensor, and a bit a finding of the report. All zero, and the first group set by the
 * caller, is the beginning. */
typedef struct plan_out {
    json_out *json;            /* NULL: text */
    bool verbose;              /* text: each box */
    const char *source;        /* SRC */
    const ckpt_report *report; /* borrowed: complete when the first row comes */
    void (*begin)(void *ctx);  /* writes what stands before the plan */
    void *ctx;

    bool begun, failed;   /* failed: no memory for what is kept */
    bool ledger;          /* of JSON: the plan is closed, and the rows of the ledger are coming */
    unsigned char *shown; /* heap: a bit a finding */
    bool open;            /* a tensor's rows are coming */
    char *name;           /* heap: its name */
    size_t name_size, finding;
    uint32_t what, change; /* of its last box */
    ckpt_dtype dtype, from_dtype;
    uint64_t boxes, replicas, passes;
    strset files;                 /* of the source that it is made of */
    char first[200], shares[200]; /* escaped: one of them; what it shares */
    char last[256];               /* the one that came last, as it is: it is escaped once, when it is shown */
    size_t last_size;             /* of that name, cut to what is shown of it at most */
} plan_out;

/* A ckpt_migrate_plan's function; ctx is a plan_out. A caught signal ends it. */
ckpt_status plan_row(void *ctx, const ckpt_migrate_source *row, ckpt_error *err);
/* A ckpt_migrate_ledger's function, for JSON; ctx is a plan_out. A caught signal ends it. */
ckpt_status plan_ledger_row(void *ctx, const ckpt_migrate_row *row, ckpt_error *err);
/* The ledger is open, and the plan closed; where no row of it has come as well. */
void plan_begin_ledger(plan_out *p);
/* After the last row: the steps that no row has shown. Where none came it begins, too. */
void plan_end(plan_out *p);
void plan_free(plan_out *p);

/* Does the finding say what becomes of a tensor? */
bool plan_is_step(const ckpt_finding *f);
/* All steps of a report but the copies, those alike in one line. */
void plan_summary(const ckpt_report *report);
/* It as a line of text, and as an element of "plan", which `open` leaves open. */
void plan_step_text(const ckpt_finding *f);
void plan_step_json(json_out *j, const ckpt_finding *f, bool open);
#endif
