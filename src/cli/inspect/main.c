/* inspect/main.c - ckpt-inspect: looks at checkpoints, never writes one. */
#include "cli/inspect/inspect.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/inspect/run.h"

static const char usage_text[] =      /* one screen of 24 lines */
    "Usage: ckpt-inspect [COMMAND] [OPTION]... PATH...\n"
    "Says what a checkpoint (a file or a directory) holds. Runs nothing of it. For a\n"
    "run directory (ckpt_run_open) show, verify and doctor look at all it holds.\n"
    "  show      what it is, who wrote it, how far it is, how to resume (default)\n"
    "  list      one line per tensor         tree    everything that is not a tensor\n"
    "  verify    is every byte as written?   stats   min, max, mean, NaN, ... of each\n"
    "  diff A B [--atol X --rtol Y]          scan    what would an unpickler call?\n"
    "  doctor    will it resume? if not: why, and what mends it\n"
    "  extract PATH NAME -o FILE             one tensor as .npy\n"
    "\n"
    "      --json             one JSON document on standard output\n"
    "      --tensor GLOB      only matching tensors (* ? \\; =NAME: exact); repeatable\n"
    "      --role ROLE, --device TAG  alike; --allow-unused: one may match nothing\n"
    "      --checksum         list: the CRC-32 of each tensor\n"
    "      --from FORMAT      read as FORMAT   --one   all PATHs are one checkpoint\n"
    "  -q, --quiet    no progress, no warnings    --check all   of small parts too\n"
    "  -o, --output FILE, --raw, --force   extract: where to; elements alone; replace\n"
    "      --report FILE.html   show, diff, doctor: also a page; --help, --version\n"
    "doctor: --for ckpt|torch|torch-cpp|lightning|accelerate|hf-trainer  --amp\n"
    " --torch VERSION --load-weights-only yes|no --map-location MAP --devices cuda:N\n"
    " --optimizer fused|capturable|foreach|plain --param-names FILE --world N\n"
    " --assume-order NAME --device-memory SIZE --values --snippet torch|c\n"
    " --metadata-only (of a run); show RUN --keep-last N [--keep-every K]: what goes?\n"
    "Exit status: 0 yes, 1 no (damaged, different, would not resume), 2 no answer.\n";

enum {
    O_JSON = 256, O_TENSOR, O_ROLE, O_DEVICE, O_CHECKSUM, O_FROM, O_RAW, O_HELP, O_VERSION, O_FOR, O_TORCH,
    O_LOAD_WEIGHTS_ONLY, O_OPTIMIZER, O_MAP_LOCATION, O_DEVICES, O_PARAM_NAMES, O_AMP, O_KEEP_LAST, O_KEEP_EVERY,
    O_METADATA_ONLY, O_ONE, O_CHECK, O_FORCE, O_ATOL, O_RTOL, O_SNIPPET, O_DEVICE_MEMORY, O_WORLD, O_VALUES, O_REPORT,
    O_ASSUME_ORDER, O_ALLOW_UNUSED, O_LATER
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, O_JSON},
    {"tensor", required_argument, NULL, O_TENSOR},
    {"role", required_argument, NULL, O_ROLE},
    {"device", required_argument, NULL, O_DEVICE},
    {"checksum", no_argument, NULL, O_CHECKSUM},
    {"from", required_argument, NULL, O_FROM},
    {"quiet", no_argument, NULL, 'q'},
    {"output", required_argument, NULL, 'o'},
    {"raw", no_argument, NULL, O_RAW},
    {"force", no_argument, NULL, O_FORCE},
    {"check", required_argument, NULL, O_CHECK},
    {"for", required_argument, NULL, O_FOR},
    {"torch", required_argument, NULL, O_TORCH},
    {"load-weights-only", required_argument, NULL, O_LOAD_WEIGHTS_ONLY},
    {"optimizer", required_argument, NULL, O_OPTIMIZER},
    {"map-location", required_argument, NULL, O_MAP_LOCATION},
    {"devices", required_argument, NULL, O_DEVICES},
    {"param-names", required_argument, NULL, O_PARAM_NAMES},
    {"assume-order", required_argument, NULL, O_ASSUME_ORDER},
    {"amp", no_argument, NULL, O_AMP},
    {"keep-last", required_argument, NULL, O_KEEP_LAST},
    {"keep-every", required_argument, NULL, O_KEEP_EVERY},
    {"metadata-only", no_argument, NULL, O_METADATA_ONLY},
    {"one", no_argument, NULL, O_ONE},
    {"snippet", required_argument, NULL, O_SNIPPET},
    {"device-memory", required_argument, NULL, O_DEVICE_MEMORY},
    {"world", required_argument, NULL, O_WORLD},
    {"values", no_argument, NULL, O_VALUES},
    {"atol", required_argument, NULL, O_ATOL},
    {"rtol", required_argument, NULL, O_RTOL},
    {"report", required_argument, NULL, O_REPORT},
    {"allow-unused", no_argument, NULL, O_ALLOW_UNUSED},
    {"help", no_argument, NULL, O_HELP},
    {"version", no_argument, NULL, O_VERSION},
    /* of the contract, but not of this version */
    {"pieces", no_argument, NULL, O_LATER},
    {NULL, 0, NULL, 0},
};

enum { OPTION_COUNT = sizeof long_options / sizeof *long_options };

/* A bit for each command: see takers. */
enum { SHOW = 1, LIST = 2, TREE = 4, VERIFY = 8, DOCTOR = 16, EXTRACT = 32, STATS = 64, DIFF = 128, SCAN = 256, EVERY = 511 };

static const struct command {
    const char *name;
    int (*run)(const command_line *o);
    unsigned bit;
    int paths;
    int (*run_directory)(const run_view *v);   /* NULL: not for a run directory */
} commands[] = {
    {"show", inspect_show, SHOW, 1, run_show},
    {"list", inspect_list, LIST, 1, NULL},
    {"tree", inspect_tree, TREE, 1, NULL},
    {"verify", inspect_verify, VERIFY, 1, run_verify},
    {"doctor", inspect_doctor, DOCTOR, 1, run_doctor},
    {"extract", inspect_extract, EXTRACT, 2, NULL},
    {"stats", inspect_stats, STATS, 1, NULL},
    {"diff", inspect_diff, DIFF, 2, NULL},
    {"scan", inspect_scan, SCAN, 1, NULL},
};

/* The commands that an option is for; every command takes what is not here. */
static const struct taker {
    int option;
    unsigned commands;
} takers[] = {
    {O_TENSOR, SHOW | LIST | STATS | DIFF},
    {O_ROLE, SHOW | LIST | STATS | DIFF},
    {O_DEVICE, SHOW | LIST | STATS | DIFF},
    {O_ALLOW_UNUSED, SHOW | LIST | STATS | DIFF},
    {O_CHECKSUM, LIST},
    {O_FROM, EVERY & ~(unsigned)SCAN},
    {O_ONE, EVERY & ~(unsigned)(SCAN | DIFF)},
    {'o', EXTRACT},
    {O_RAW, EXTRACT},
    {O_FORCE, EXTRACT},
    {O_CHECK, LIST | EXTRACT | STATS | DIFF},
    {O_REPORT, SHOW | DIFF | DOCTOR},
    {O_ATOL, DIFF},
    {O_RTOL, DIFF},
    {O_KEEP_LAST, SHOW},
    {O_KEEP_EVERY, SHOW},
    {O_FOR, DOCTOR},
    {O_TORCH, DOCTOR},
    {O_LOAD_WEIGHTS_ONLY, DOCTOR},
    {O_OPTIMIZER, DOCTOR},
    {O_MAP_LOCATION, DOCTOR},
    {O_DEVICES, DOCTOR},
    {O_DEVICE_MEMORY, DOCTOR},
    {O_WORLD, DOCTOR},
    {O_AMP, DOCTOR},
    {O_SNIPPET, DOCTOR},
    {O_ASSUME_ORDER, DOCTOR},
    {O_METADATA_ONLY, DOCTOR},
    {O_PARAM_NAMES, DOCTOR | LIST},
    {O_VALUES, DOCTOR | SHOW},
};

static const struct command *command_named(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* A count of checkpoints or steps, from 1 on. */
static int take_number(const command_line *o, const char *option, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(optarg, &end, 10);
    if (errno || *end || optarg[0] < '0' || optarg[0] > '9' || n < 1)
        return cli_usage(&o->cli, "%s: '%s' is no number from 1 on", option, optarg);
    *out = n;
    return -1;
}

/* One option into *o; -1: go on, else the exit status. */
static int take_option(command_line *o, int option, int index, char **argv)
{
    cli *c = &o->cli;
    cli_list *list = NULL;
    switch (option) {
    case O_JSON: c->json = true; break;
    case 'q': c->quiet = true; break;
    case O_CHECKSUM: c->checksum = true; break;
    case O_FROM: c->from = optarg; break;
    case O_TENSOR: list = &c->tensors; break;
    case O_ROLE: list = &c->roles; break;
    case O_DEVICE: list = &c->devices; break;
    case 'o': o->output = optarg; break;
    case O_RAW: o->raw = true; break;
    case O_FORCE: o->force = true; break;
    case O_CHECK: o->check = optarg; break;
    case O_FOR: o->loader = optarg; break;
    case O_TORCH: o->torch = optarg; break;
    case O_LOAD_WEIGHTS_ONLY: o->load_weights_only = optarg; break;
    case O_OPTIMIZER: o->optimizer = optarg; break;
    case O_MAP_LOCATION: o->map_location = optarg; break;
    case O_DEVICES: o->devices = optarg; break;
    case O_PARAM_NAMES: o->param_names = optarg; break;
    case O_ASSUME_ORDER: o->assume_order = optarg; break;
    case O_AMP: o->amp = true; break;
    case O_KEEP_LAST: return take_number(o, "--keep-last", &o->keep.keep_last);
    case O_KEEP_EVERY: return take_number(o, "--keep-every", &o->keep.keep_every);
    case O_METADATA_ONLY: o->metadata_only = true; break;
    case O_ONE: o->one = true; break;
    case 'h':
    case O_HELP:
        return cli_help(c, usage_text);
    case O_VERSION:
        return cli_version(c);
    case O_SNIPPET: o->snippet = optarg; break;
    case O_DEVICE_MEMORY: o->device_memory = optarg; break;
    case O_WORLD: o->world = optarg; break;
    case O_VALUES: o->values = true; break;
    case O_ATOL: o->atol = optarg; break;
    case O_RTOL: o->rtol = optarg; break;
    case O_REPORT: o->report = optarg; break;
    case O_ALLOW_UNUSED: c->allow_unused = true; break;
    case O_LATER:
        return cli_fail(c, "unsupported", "this version does not have --%s", long_options[index].name);
    default:
        return cli_bad_option(c, option, argv);
    }
    if (list && !cli_list_add(list, optarg))
        return cli_fail(c, "no-memory", "out of memory");
    return -1;
}

/* No command was named: was one meant? -1: no, the words are PATHs. */
static int guess(const command_line *o)
{
    const cli *c = &o->cli;
    const char *first = o->path_count ? o->paths[0] : "", *last = o->path_count ? o->paths[o->path_count - 1] : "";
    struct stat st;
    if (strcmp(first, "help") == 0 && lstat(first, &st) != 0)
        return cli_help(c, usage_text);
    if (o->path_count > 1 && command_named(last) && lstat(last, &st) != 0)
        return cli_usage(c, "the command comes before its PATHs: ckpt-inspect %s %s", last, first);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (*first && cli_is_close(first, commands[i].name) && lstat(first, &st) != 0)
            return cli_usage(c, "'%s' is neither a command nor a file; did you mean '%s'?", first, commands[i].name);
    return -1;
}

/* Options may stand anywhere before "--"; what stands behind it is never a command. */
static int parse(command_line *o, int argc, char **argv, const struct command **command, bool *given)
{
    int option, index = 0, behind = argc;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            behind = i;
            break;
        }
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":qo:h", long_options, &index)) != -1) {
        int status = optarg && !*optarg ? cli_empty_value(&o->cli, argv) : take_option(o, option, index, argv);
        if (status >= 0)
            return status;
        for (size_t i = 0; i < OPTION_COUNT; i++)
            given[i] |= long_options[i].name && long_options[i].val == option;
    }
    o->paths = argv + optind;
    o->path_count = argc - optind;
    *command = NULL;
    bool only_behind = behind < argc && o->path_count == argc - behind - 1;
    if (o->path_count > 0 && !only_behind && (*command = command_named(o->paths[0]))) {
        o->paths++;
        o->path_count--;
    }
    int status = *command || only_behind ? -1 : guess(o);
    if (!*command)
        *command = &commands[0];
    return status;
}

static unsigned commands_of(int option)
{
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (takers[i].option == option)
            return takers[i].commands;
    return EVERY;
}

/* "show, list and diff" */
static void put_commands(char *out, size_t size, unsigned bits)
{
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < sizeof commands / sizeof *commands && used < size; i++) {
        if (!(bits & commands[i].bit))
            continue;
        bits &= ~commands[i].bit;
        used += (size_t)snprintf(out + used, size - used, "%s%s", !used ? "" : bits ? ", " : " and ", commands[i].name);
    }
}

/* An option that the command does not look at must not look as if it did. -1: there is none. */
static int refuse_others(const command_line *o, const struct command *command, const bool *given)
{
    const struct {
        bool refused;
        const char *option, *with;
    } alone[] = {
        {command->bit == LIST && o->check && !o->cli.checksum, "--check", "--checksum"},
        {command->bit == LIST && o->param_names && !o->cli.json, "--param-names", "--json"},
        {command->bit == SHOW && o->values && !o->report, "--values", "--report"},
    };
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char takes[120];
        unsigned bits = given[i] ? commands_of(long_options[i].val) : EVERY;
        if (bits & command->bit)
            continue;
        bool most = bits == (EVERY & ~(unsigned)SCAN) || bits == (EVERY & ~(unsigned)(SCAN | DIFF));
        put_commands(takes, sizeof takes, most ? EVERY & ~bits : bits);
        return cli_usage(&o->cli, "%s has no option --%s (%s%s %s it)", command->name, long_options[i].name, most ? "all commands but " : "",
                         takes, most || bits & (bits - 1) ? "have" : "has");
    }
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (alone[i].refused)
            return cli_usage(&o->cli, "%s: %s is for %s, which was not given", command->name, alone[i].option, alone[i].with);
    return -1;
}

/* The same of what is for a run directory, now that it is known whether PATH is one. */
static int refuse_of_run(const command_line *o, const struct command *command)
{
    const char *option = o->keep.keep_last ? "--keep-last" : o->keep.keep_every ? "--keep-every" : o->metadata_only ? "--metadata-only" : NULL;
    return option ? cli_usage(&o->cli, "%s: %s is for a run directory, which this is not (%s)", o->paths[0], option, command->name) : -1;
}

static int answer_for_run(const run_view *v, const struct command *command)
{
    const cli *c = &v->o->cli;
    if (command->run_directory)
        return command->run_directory(v);
    if (v->count == 0)
        return cli_fail(c, "run-directory", "%s: a run directory without any checkpoint yet; `%s` takes a checkpoint", v->path,
                        command->name);
    return cli_fail(c, "run-directory", "%s: a run directory of %zu checkpoint%s; `%s` takes one of them, such as %s", v->path,
                    v->count, v->count == 1 ? "" : "s", command->name, run_newest(v) ? run_newest(v)->path : v->entries[0].path);
}

/* What errors may begin with: the PATHs first. False: out of memory. */
static bool name_paths(command_line *o, const struct command *command)
{
    const char *const files[] = {o->map_location, o->param_names};
    bool ok = true;
    for (int i = 0; i < o->path_count - (command->bit == EXTRACT); i++)
        ok &= cli_list_add(&o->cli.about, o->paths[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        ok &= !files[i] || cli_list_add(&o->cli.about, files[i]);
    return ok;
}

/* The PATHs, and the NAME of extract. -1: they fit the command. */
static int take_paths(command_line *o, const struct command *command)
{
    const cli *c = &o->cli;
    if (o->path_count == 0)
        return cli_usage(c, "%s: missing operand: PATH", command->name);
    if (command->bit == EXTRACT && o->path_count < 2)
        return cli_usage(c, "extract: missing operand: NAME (extract PATH NAME -o FILE)");
    if (command->bit == DIFF && o->path_count < 2)
        return cli_usage(c, "diff: missing operand: A and B are two PATHs");
    if (o->path_count > command->paths && !o->one)
        return cli_usage(c, "%s takes %s; unexpected argument '%s'", command->name,
                         command->bit == EXTRACT ? "one PATH and one NAME" : command->paths == 2 ? "two PATHs" : "one PATH",
                         o->paths[command->paths]);
    if (o->one) {                 /* the further PATHs go with the first; of extract the last is the NAME */
        o->cli.also = o->paths + 1;
        o->cli.also_count = o->path_count - command->paths;
    }
    o->name = o->paths[o->path_count - 1];
    return name_paths(o, command) ? -1 : cli_fail(c, "no-memory", "out of memory");
}

static int run(command_line *o, int argc, char **argv)
{
    const struct command *command;
    const cli *c = &o->cli;
    bool given[OPTION_COUNT] = {false};
    int status = parse(o, argc, argv, &command, given);
    if (status < 0)
        status = refuse_others(o, command, given);
    if (status < 0)
        status = take_paths(o, command);
    if (status >= 0)
        return status;
    if (o->check && strcmp(o->check, "all") != 0 && strcmp(o->check, "part") != 0)
        return cli_usage(c, "--check: unknown value '%s' (choose all or part)", o->check);
    o->cli.leave_large = !(o->check && strcmp(o->check, "all") == 0) && (command->bit & commands_of(O_CHECK));
    /* A program that reads each file itself fails in the damaged one. */
    o->cli.leave_damaged = command->run == inspect_doctor &&
                           (!o->loader || strcmp(o->loader, "accelerate") == 0 || strcmp(o->loader, "hf-trainer") == 0);
    if (!cli_selection_check(c))
        return CLI_NO_ANSWER;
    if (command->bit == SCAN)     /* all files, whatever they are */
        return command->run(o);
    run_view view;
    status = run_view_open(o, &view);
    if (status == CLI_YES)
        status = refuse_of_run(o, command);
    else if (status < 0)
        status = answer_for_run(&view, command);
    else
        return status;
    run_view_close(&view);
    return status < 0 ? command->run(o) : status;
}

int main(int argc, char **argv)
{
    command_line o;
    memset(&o, 0, sizeof o);
    signal(SIGPIPE, SIG_DFL);     /* `| head` ends us without a word, even below a parent that ignores SIGPIPE */
    cli_init(&o.cli, "ckpt-inspect", argc, argv);
    if ((o.typed = calloc((size_t)argc + 1, sizeof *o.typed))) {
        memcpy(o.typed, argv, (size_t)argc * sizeof *argv);
        o.typed_count = argc;
    }
    int status = run(&o, argc, argv);
    free(o.typed);
    cli_free(&o.cli);
    return cli_finish(&o.cli, status);
}
