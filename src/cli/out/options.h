/* cli/out/options.h - the options of both programs. One table (option_table.c) is what the parsing, the refusals, --help, the
 * synopses of the man pages and the completion of the shells are made of. */
#ifndef CKPT_CLI_OUT_OPTIONS_H
#define CKPT_CLI_OUT_OPTIONS_H
#include "cli/out/command_line.h"

typedef enum option_kind {
    OPTION_FLAG,    /* bool */
    OPTION_TEXT,    /* const char *, as it is */
    OPTION_CHOICE,  /* const char *, one of `words` */
    OPTION_LIST,    /* cli_list: the option may be repeated */
    OPTION_NUMBER,  /* option_value, as the ones below: from `least` to `most` */
    OPTION_SIZE,    /* 5GB, 256MiB */
    OPTION_VERSION, /* 2.6 */
    OPTION_DEVICES, /* cuda:2: two of them; cpu: none */
    OPTION_REAL,    /* 1e-3, from 0 on */
    OPTION_HELP,    /* ends the program */
    OPTION_ABOUT,   /* the same */
    OPTION_LATER    /* of the contract, but not of this version */
} option_kind;

/* In `takes`: it is for a run directory, and says nothing of another PATH. */
#define OPTION_OF_RUN (1u << 31)

/* One option. A name that means something else in the two programs has a row for each. */
typedef struct option_row {
    const char *name; /* without its dashes */
    option_kind kind;
    size_t field;         /* in command_line */
    unsigned takes;       /* the commands that have it */
    const char *help;     /* what it does, in a line of its own (zsh) */
    const char *argument; /* what help and man pages call its value; NULL: `words`, or it takes none */
    char letter;          /* "-q"; 0: none */
    const char *usage;    /* its text in --help; NULL: it stands in one line with the row that follows */
    const char *words;    /* values to complete, or "@" and how they are found; NULL: nothing completes it */
    const char *wanted;   /* what a value has to be: "'x' is no ..." */
    uint64_t least, most;
} option_row;

extern const option_row option_table[];
extern const size_t option_count;

typedef struct command_row {
    const char *name, *operands, *help;
    const char *example, *status; /* a line that works; what its exit statuses say */
} command_row;
extern const command_row command_table[COMMAND_COUNT];

bool option_has_value(const option_row *r);
/* "-o, --output FILE"; size bytes are enough for any. */
void option_head(const option_row *r, char *out, size_t size);
/* --help of ckpt-inspect or, migrate, ckpt-migrate; for free(), NULL where memory is out. */
char *option_usage(bool migrate);
/* --help of one command of ckpt-inspect, COMMAND_x. The same. */
char *option_usage_of(size_t command);
/* COMMAND_x; COMMAND_COUNT: it is none. */
size_t option_command_named(const char *name);

/* The words of the line into *o, up to what is no option. -1: go on, with optind at the first operand; else the exit status,
 * the error or the help said. */
int options_parse(command_line *o, int argc, char **argv, bool migrate);
/* --help, and the word help. command: COMMAND_x, or COMMAND_COUNT for the program. */
int options_help(const command_line *o, bool migrate, size_t command);
/* Once o->command is known: does it have all that was given, and are the values what they have to be? -1, or the exit status. */
int options_check(command_line *o);
/* An option that is for a run directory, which PATH is not. -1, or the exit status. */
int options_refuse_of_run(const command_line *o);
bool option_given(const command_line *o, const char *name);
void options_free(command_line *o);

/* The value of a row by its kind; false: it is none. */
bool option_value_read(const option_row *r, option_value *v);
#endif
