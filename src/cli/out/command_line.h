/* cli/out/command_line.h - what the command line of either program says. out/options.c fills it by the table of options; the
 * commands and the pages of a report read it. */
#ifndef CKPT_CLI_OUT_COMMAND_LINE_H
#define CKPT_CLI_OUT_COMMAND_LINE_H
#include <ckpt/migrate.h>
#include "cli/out/cli.h"

/* The commands of ckpt-inspect, in the order in which messages name them; ckpt-migrate is one more. COMMAND(x) is the bit of
 * one in a set. */
enum {
    COMMAND_SHOW,
    COMMAND_LIST,
    COMMAND_TREE,
    COMMAND_VERIFY,
    COMMAND_DOCTOR,
    COMMAND_EXTRACT,
    COMMAND_STATS,
    COMMAND_DIFF,
    COMMAND_SCAN,
    COMMAND_COUNT,
    COMMAND_MIGRATE = COMMAND_COUNT
};
#define COMMAND(x) (1u << COMMAND_##x)

/* The value of an option that is a number, a size, a version, ... The text stays, for a report shows it. */
typedef struct option_value {
    const char *text; /* as it was typed; NULL: the option was not given */
    uint64_t n;       /* bytes of a size, devices, ranks; of a version 100 * major + minor */
    double real;      /* of a tolerance */
} option_value;

typedef struct command_line {
    cli cli;               /* the options that every part of the programs looks at */
    unsigned command;      /* COMMAND(x) */
    const char *given[96]; /* per row of the table: the value, "" of a flag; NULL: not given */
    bool one;              /* --one: all PATHs are one checkpoint (cli.also) */
    bool many;             /* this PATH is one of several */
    bool in_folder;        /* and was found in a folder: it is asked as it is */
    bool force;            /* replace the file */
    const char *map_location, *optimizer, *param_names, *assume_order, *mesh;
    option_value world;
    /* ckpt-inspect */
    const char *check;  /* "all", "part"; NULL: part */
    const char *output; /* extract -o */
    bool raw, npz, upcast;
    option_value head;                  /* extract: so many elements of each tensor are printed */
    const char *by;                     /* show, stats --run: "layer", "dtype", "role", "device"; NULL: none */
    const char *report;                 /* --report FILE.html: show, stats --run, diff, doctor */
    option_value atol, rtol;            /* diff */
    cli_list exclude;                   /* diff: tensors that are not compared */
    option_value keep_last, keep_every; /* show of a run directory */
    bool metadata_only;                 /* doctor of a run directory */
    bool pieces, reverse;               /* list */
    const char *sort;                   /* list: "size", "name", "offset"; NULL: as in the file */
    option_value limit;                 /* list, diff: so many at most */
    bool run;                           /* stats: of all checkpoints of a run or a folder */
    bool watch;                         /* show: again after each change */
    bool nonfinite;                     /* stats: those that have NaN or infinities */
    const char *loader, *load_weights_only, *snippet;
    option_value torch, devices, device_memory;
    bool amp, values;
    char **paths;
    int path_count;
    char **names; /* extract: the NAMEs, which stand behind the PATHs */
    int name_count;
    char **typed; /* the words before getopt sorts them: the report shows them */
    int typed_count;
    /* ckpt-migrate */
    cli_list strip_prefix, rename, drop, replace, shard, cuts, cast, fix;
    option_value rank, max_shard_size, memory, threads;
    option_value expert_parallel;
    const char *layout, *layout_side; /* --layout: a preset or a file */
    cli_list layout_vars;
    const char *rank_state;       /* one of its words; NULL: keep */
    bool verbose;                 /* each tensor, each box of the plan */
    bool to_cpu;                  /* --cpu */
    ckpt_migrate_options migrate; /* its flags and strings; migrate/main.c sets the rest from what stands above */
} command_line;
#endif
