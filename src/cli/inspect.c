/* inspect.c - ckpt-inspect: looks at checkpoints, never writes one. */
#include "inspect.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "inspect_run.h"

static const char usage_text[] =      /* one screen of 24 lines */
    "Usage: ckpt-inspect [COMMAND] [OPTION]... PATH...\n"
    "Says what a checkpoint (a file or a directory) holds. Runs nothing of it. For a\n"
    "run directory (ckpt_run_open) show, verify and doctor look at all it holds.\n"
    "  show      what it is, who wrote it, how far it is, how to resume (default)\n"
    "  list      one line a tensor           tree    everything that is not a tensor\n"
    "  verify    is every byte as written?   stats   min, max, mean, NaN, ... of each\n"
    "  diff A B [--atol X --rtol Y]          scan    what would an unpickler call?\n"
    "  doctor    will it resume? if not: why, and what mends it\n"
    "  extract PATH NAME -o FILE             one tensor as .npy\n"
    "\n"
    "      --json             one JSON document on standard output\n"
    "      --tensor GLOB      only these (* ? \\; =NAME: literal); repeatable, like\n"
    "      --role ROLE, --device TAG; --one: all PATHs are one checkpoint\n"
    "      --checksum         list: the CRC-32 of each tensor\n"
    "      --from FORMAT      do not tell the format from the content\n"
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
    O_ASSUME_ORDER, O_LATER
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
    {"help", no_argument, NULL, O_HELP},
    {"version", no_argument, NULL, O_VERSION},
    /* of the contract, but not of this version */
    {"pieces", no_argument, NULL, O_LATER},
    {NULL, 0, NULL, 0},
};

static const struct command {
    const char *name;
    int (*run)(const inspect *o);          /* NULL: a later version's */
    int paths;
    bool selects;                          /* takes --tensor, --role, --device */
    int (*run_directory)(const run_view *v);   /* NULL: not for a run directory */
} commands[] = {
    {"show", inspect_show, 1, true, run_show},
    {"list", inspect_list, 1, true, NULL},
    {"tree", inspect_tree, 1, false, NULL},
    {"verify", inspect_verify, 1, false, run_verify},
    {"doctor", inspect_doctor, 1, false, run_doctor},
    {"extract", inspect_extract, 2, false, NULL},
    {"stats", inspect_stats, 1, true, NULL},
    {"diff", inspect_diff, 2, true, NULL},
    {"scan", inspect_scan, 1, false, NULL},
};

static const struct command *command_named(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* A count of checkpoints or steps, from 1 on. */
static int take_number(const inspect *o, const char *option, int64_t *out)
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
static int take_option(inspect *o, int option, int index, char **argv)
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
    case O_LATER:
        return cli_fail(c, "unsupported", "this version does not have --%s", long_options[index].name);
    default:
        return cli_bad_option(c, option, argv);
    }
    if (list && !cli_list_add(list, optarg))
        return cli_fail(c, "no-memory", "out of memory");
    return -1;
}

/* Options may stand anywhere before "--"; what stands behind it is never a command. */
static int parse(inspect *o, int argc, char **argv, const struct command **command)
{
    int option, index = 0, behind = argc;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            behind = i;
            break;
        }
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":qo:", long_options, &index)) != -1) {
        int status = optarg && !*optarg ? cli_empty_value(&o->cli, argv) : take_option(o, option, index, argv);
        if (status >= 0)
            return status;
    }
    o->paths = argv + optind;
    o->path_count = argc - optind;
    *command = NULL;
    bool only_behind = behind < argc && o->path_count == argc - behind - 1;
    if (o->path_count > 0 && !only_behind && (*command = command_named(o->paths[0]))) {
        o->paths++;
        o->path_count--;
    }
    if (!*command)
        *command = &commands[0];
    return -1;
}

/* An option that the command does not look at must not look as if it did. */
static void warn_unused(const inspect *o, const struct command *command, bool run_directory)
{
    bool show_run = run_directory && command->run == inspect_show, doctor_run = run_directory && command->run == inspect_doctor;
    bool doctor = command->run == inspect_doctor, list = command->run == inspect_list, extract = command->run == inspect_extract;
    const struct {
        bool unused;
        const char *option, *of;
    } rows[] = {
        {o->cli.checksum && !list, "--checksum", "list"},
        {o->output && !extract, "--output", "extract"},
        {o->raw && !extract, "--raw", "extract"},
        {o->force && !extract, "--force", "extract"},
        {o->check && !extract && !(list && o->cli.checksum) && command->run != inspect_stats && command->run != inspect_diff, "--check",
         "extract, list --checksum, stats and diff"},
        {o->param_names && !doctor && !(list && o->cli.json), "--param-names", "doctor and list --json"},
        {o->assume_order && !doctor, "--assume-order", "doctor"},
        {o->cli.from && command->run == inspect_scan, "--from", "the other commands"},
        {o->loader && !doctor, "--for", "doctor"},
        {o->torch && !doctor, "--torch", "doctor"},
        {o->load_weights_only && !doctor, "--load-weights-only", "doctor"},
        {o->optimizer && !doctor, "--optimizer", "doctor"},
        {o->map_location && !doctor, "--map-location", "doctor"},
        {o->devices && !doctor, "--devices", "doctor"},
        {o->amp && !doctor, "--amp", "doctor"},
        {o->snippet && !doctor, "--snippet", "doctor"},
        {o->device_memory && !doctor, "--device-memory", "doctor"},
        {o->world && !doctor, "--world", "doctor"},
        {o->values && !doctor && !(o->report && command->run == inspect_show), "--values", "doctor, and of show --report"},
        {(o->atol || o->rtol) && command->run != inspect_diff, "--atol, --rtol", "diff"},
        {o->report && command->run != inspect_show && command->run != inspect_diff && !doctor, "--report", "show, diff and doctor"},
        {(o->keep.keep_last || o->keep.keep_every) && !show_run, "--keep-last, --keep-every", "show RUN_DIR"},
        {o->metadata_only && !doctor_run, "--metadata-only", "doctor RUN_DIR"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].unused)
            cli_warn(&o->cli, "%s is an option of %s: `%s` does not look at it", rows[i].option, rows[i].of, command->name);
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

static int run(inspect *o, int argc, char **argv)
{
    const struct command *command;
    const cli *c = &o->cli;
    int status = parse(o, argc, argv, &command);
    if (status >= 0)
        return status;
    if (!command->run)
        return cli_fail(c, "unsupported", "this version does not have `%s`", command->name);
    if (o->path_count == 0)
        return cli_usage(c, "%s: no PATH was given", command->name);
    if (command->run == inspect_extract && (o->path_count < 2 || (o->path_count > 2 && !o->one)))
        return cli_usage(c, "extract: PATH and NAME are wanted, and -o FILE");
    if (o->one) {                 /* the further PATHs go with the first; of extract the last is the NAME */
        o->cli.also = o->paths + 1;
        o->cli.also_count = o->path_count - command->paths;
    }
    o->name = o->paths[o->path_count - 1];
    if (command->run == inspect_diff && (o->one || o->path_count < 2))
        return cli_usage(c, o->one ? "diff: it compares two checkpoints, and --one makes one of all PATHs" : "diff: two PATHs are wanted");
    if (o->one && command->run == inspect_scan)
        return cli_usage(c, "scan: it reads every file of one PATH; of several, scan each (--one is for the other commands)");
    if (o->path_count != command->paths && !o->one)
        return cli_usage(c, "%s: %s, '%s' is one too many", command->name,
                         command->paths == 2 ? "two PATHs" : "one PATH at a time", o->paths[command->paths]);
    if (o->check && strcmp(o->check, "all") != 0 && strcmp(o->check, "part") != 0)
        return cli_usage(c, "--check: '%s' is neither all nor part", o->check);
    o->cli.leave_large = !(o->check && strcmp(o->check, "all") == 0) &&
                         (command->run == inspect_extract || command->run == inspect_list || command->run == inspect_stats ||
                          command->run == inspect_diff);
    /* A program that reads each file itself fails in the damaged one. */
    o->cli.leave_damaged = command->run == inspect_doctor &&
                           (!o->loader || strcmp(o->loader, "accelerate") == 0 || strcmp(o->loader, "hf-trainer") == 0);
    if (!cli_selection_check(c))
        return CLI_NO_ANSWER;
    if (cli_has_selection(c) && !command->selects)
        return cli_usage(c, "%s answers for the whole checkpoint; --tensor, --role and --device are for show, list, stats and diff (list --checksum reads what they select)",
                         command->name);
    if (command->run == inspect_scan) {       /* all files, whatever they are */
        warn_unused(o, command, false);
        return command->run(o);
    }
    run_view view;
    status = run_view_open(o, &view);
    warn_unused(o, command, status < 0);
    if (status == CLI_YES)
        return command->run(o);
    if (status < 0)
        status = answer_for_run(&view, command);
    run_view_close(&view);
    return status;
}

int main(int argc, char **argv)
{
    inspect o;
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
