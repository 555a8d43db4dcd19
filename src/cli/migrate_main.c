/* migrate_main.c - ckpt-migrate: rewrites a checkpoint with another format or other device tags. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"
#include "names.h"

static const char usage_text[] =      /* one screen of 24 lines */
    "Usage: ckpt-migrate [OPTION]... SRC DST\n"
    "Writes the checkpoint SRC as DST, which appears whole or not at all.\n"
    "      --to ckpt|safetensors  format of DST (default: ckpt for *.safetensors; a\n"
    "                             ckpt file is a valid safetensors file)\n"
    "      --from FORMAT          do not tell SRC's format from its content\n"
    "      --map-location RULES   new device tags: cuda:0, 'cuda:1=cuda:0,cpu=cpu',\n"
    "                             'cuda:*=cuda:{rank}', or FILE.yaml (ckpt-map(5))\n"
    "      --optimizer KIND       fused, capturable, foreach, plain: step goes where\n"
    "                             that needs it, and the groups' flags say so\n"
    "      --param-names FILE     the optimizer's parameters in order, one a line\n"
    "      --rank N, --world N    for {rank} and {world} in the rules\n"
    "      --lossy                leave out what the target format cannot hold\n"
    "      --dry-run              print the plan, write nothing\n"
    "      --verify               read back what was written\n"
    "      --force                replace an existing DST\n"
    "      --no-sync              no fsync: a power cut may lose DST\n"
    "      --json                 one JSON document on standard output\n"
    "  -q, --quiet                no progress, no list of what moved\n"
    "      --help, --version\n"
    "Exit status: 0 done, 2 not done (usage, not a checkpoint, cannot be read, a\n"
    "loss that --lossy does not permit, no space).\n";

enum {
    O_JSON = 256, O_TO, O_FROM, O_MAP_LOCATION, O_OPTIMIZER, O_PARAM_NAMES, O_RANK, O_WORLD, O_LOSSY, O_DRY_RUN, O_VERIFY, O_FORCE,
    O_NO_SYNC, O_HELP, O_VERSION, O_LATER
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, O_JSON},
    {"to", required_argument, NULL, O_TO},
    {"from", required_argument, NULL, O_FROM},
    {"map-location", required_argument, NULL, O_MAP_LOCATION},
    {"optimizer", required_argument, NULL, O_OPTIMIZER},
    {"param-names", required_argument, NULL, O_PARAM_NAMES},
    {"rank", required_argument, NULL, O_RANK},
    {"world", required_argument, NULL, O_WORLD},
    {"lossy", no_argument, NULL, O_LOSSY},
    {"dry-run", no_argument, NULL, O_DRY_RUN},
    {"verify", no_argument, NULL, O_VERIFY},
    {"force", no_argument, NULL, O_FORCE},
    {"no-sync", no_argument, NULL, O_NO_SYNC},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, O_HELP},
    {"version", no_argument, NULL, O_VERSION},
    /* of the contract, but not of this version */
    {"layout", required_argument, NULL, O_LATER},
    {"rename", required_argument, NULL, O_LATER},
    {"strip-prefix", required_argument, NULL, O_LATER},
    {"add-prefix", required_argument, NULL, O_LATER},
    {"drop", required_argument, NULL, O_LATER},
    {"cast", required_argument, NULL, O_LATER},
    {"weights-only", no_argument, NULL, O_LATER},
    {"plain", no_argument, NULL, O_LATER},
    {"fix", required_argument, NULL, O_LATER},
    {"salvage", no_argument, NULL, O_LATER},
    {"max-shard-size", required_argument, NULL, O_LATER},
    {"threads", required_argument, NULL, O_LATER},
    {"memory", required_argument, NULL, O_LATER},
    {"tensor", required_argument, NULL, O_LATER},
    {"role", required_argument, NULL, O_LATER},
    {"device", required_argument, NULL, O_LATER},
    {NULL, 0, NULL, 0},
};

typedef struct job {
    cli cli;
    ckpt_migrate_options options;
    const char *param_names;
    const char *src, *dst;
    bool world_given;
} job;

static bool parse_count(const char *text, int64_t *out)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n > 1 << 24)
        return false;
    *out = n;
    return true;
}

/* -1: go on, else the exit status. */
static int take_option(job *b, int option, int index, char **argv)
{
    const cli *c = &b->cli;
    ckpt_migrate_options *o = &b->options;
    switch (option) {
    case O_JSON: b->cli.json = true; break;
    case 'q': b->cli.quiet = true; break;
    case O_TO: o->to = optarg; break;
    case O_FROM: o->from = optarg; break;
    case O_MAP_LOCATION: o->map_location = optarg; break;
    case O_OPTIMIZER:
        o->optimizer = ckpt_optimizer_kind_from_name(optarg);
        if (o->optimizer == CKPT_OPTIMIZER_DEFAULT)
            return cli_usage(c, "--optimizer: '%s' is none of fused, capturable, foreach, plain", optarg);
        break;
    case O_PARAM_NAMES: b->param_names = optarg; break;
    case O_RANK:
        if (!parse_count(optarg, &o->ranks.rank))
            return cli_usage(c, "--rank: '%s' is no rank", optarg);
        o->ranks.local_rank = o->ranks.rank;
        break;
    case O_WORLD:
        if (!parse_count(optarg, &o->ranks.world) || o->ranks.world == 0)
            return cli_usage(c, "--world: '%s' is no number of ranks", optarg);
        b->world_given = true;
        break;
    case O_LOSSY: o->lossy = true; break;
    case O_DRY_RUN: o->dry_run = true; break;
    case O_VERIFY: o->verify = true; break;
    case O_FORCE: o->force = true; break;
    case O_NO_SYNC: o->no_sync = true; break;
    case O_HELP:
        return cli_help(c, usage_text);
    case O_VERSION:
        return cli_version(c);
    case O_LATER:
        return cli_fail(c, "unsupported", "this version does not have --%s", long_options[index].name);
    default:
        return cli_bad_option(c, option, argv);
    }
    return -1;
}

static bool ends_in(const char *text, const char *tail)
{
    size_t n = strlen(text), k = strlen(tail);
    return n >= k && strcmp(text + n - k, tail) == 0;
}

/* The format by DST's suffix. */
static int default_format(job *b)
{
    static const char *const torch[] = {".pt", ".pth", ".bin", ".ckpt"};
    const cli *c = &b->cli;
    if (ends_in(b->dst, "/"))
        return cli_fail(c, "unsupported", "%s: this version writes one file, not a directory", b->dst);
    if (b->options.to)
        return -1;
    if (ends_in(b->dst, ".safetensors")) {
        b->options.to = "ckpt";
        return -1;
    }
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++)
        if (ends_in(b->dst, torch[i]))
            return cli_fail(c, "unsupported", "%s: the suffix says torch, which this version does not write; name it *.safetensors, or say --to ckpt",
                            b->dst);
    return cli_usage(c, "%s: the suffix does not say a format; say --to ckpt or --to safetensors", b->dst);
}

static int parse(job *b, int argc, char **argv)
{
    int option, index = 0;
    b->options.ranks.world = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":q", long_options, &index)) != -1) {
        int status = take_option(b, option, index, argv);
        if (status >= 0)
            return status;
    }
    if (b->world_given && b->options.ranks.rank >= b->options.ranks.world)
        return cli_usage(&b->cli, "--rank: ranks of a world of %" PRId64 " are 0 to %" PRId64, b->options.ranks.world,
                         b->options.ranks.world - 1);
    if (argc - optind > 2)
        return cli_fail(&b->cli, "unsupported", "one SRC and one DST: this version does not join several sources");
    if (argc - optind < 2)
        return cli_usage(&b->cli, "SRC and DST are wanted");
    b->src = argv[optind];
    b->dst = argv[optind + 1];
    return default_format(b);
}

/* ---- what was done, or would be */

static bool is_step(const ckpt_finding *f)
{
    return strcmp(f->code, "copy") == 0 || strcmp(f->code, "moved") == 0 || strcmp(f->code, "cast") == 0;
}

/* What a run would ask for beyond what it was given. */
static bool needs_lossy(const job *b, const ckpt_report *report)
{
    return !b->options.lossy && ckpt_report_count_code(report, "lost") > 0;
}

static bool needs_force(const job *b, bool done)
{
    struct stat st;
    return (b->options.dry_run || !done) && !b->options.force && stat(b->dst, &st) == 0 && S_ISREG(st.st_mode);
}

static void put_result(json_out *j, const job *b, const ckpt_report *report, bool done)
{
    uint64_t moved = ckpt_report_count_code(report, "moved"), lost = ckpt_report_count_code(report, "lost");
    json_text(j, "source", b->src);
    json_text(j, "destination", b->dst);
    json_text(j, "format", b->options.to);
    json_bool(j, "dry_run", b->options.dry_run);
    json_bool(j, "verified", done && b->options.verify && !b->options.dry_run);
    json_uint(j, "moved", moved);
    json_uint(j, "lost", lost);
    json_array(j, "needs");
    if (needs_lossy(b, report))
        json_text(j, NULL, "--lossy");
    if (needs_force(b, done))
        json_text(j, NULL, "--force");
    json_end_array(j);
    json_array(j, "plan");
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (!is_step(f))
            continue;
        json_object(j, NULL);
        json_text(j, "action", f->code);
        json_text(j, "name", f->tensor);
        json_text(j, "from", *f->from ? f->from : NULL);
        json_text(j, "to", *f->to ? f->to : NULL);
        json_uint(j, "nbytes", f->nbytes);
        json_end_object(j);
    }
    json_end_array(j);
    json_array(j, "findings");
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        if (!is_step(ckpt_report_get(report, i)))
            cli_json_finding(j, ckpt_report_get(report, i));
    json_end_array(j);
}

static int failed(const job *b, const ckpt_report *report, const ckpt_error *err)
{
    if (!b->cli.json) {
        enum { SHOWN = 12 };
        size_t lost = 0;
        for (size_t i = 0; i < ckpt_report_count(report); i++) {
            const ckpt_finding *f = ckpt_report_get(report, i);
            bool is_lost = strcmp(f->code, "lost") == 0;
            if ((!is_lost && f->severity < CKPT_ERROR) || (is_lost && ++lost > SHOWN))
                continue;
            fprintf(stderr, "%s: ", f->code);
            cli_put_message(stderr, f->tensor);
            fputs(*f->tensor ? ": " : "", stderr);
            cli_put_message(stderr, f->message);
            putc('\n', stderr);
        }
        if (lost > SHOWN)
            fprintf(stderr, "lost: and %zu more (--json lists them all)\n", lost - SHOWN);
        return cli_fail_error(&b->cli, err);
    }
    char text[1200];
    json_out j;
    snprintf(text, sizeof text, "%s%s%s", err->object, err->object[0] ? ": " : "", err->message);
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_int(&j, "ckpt", 1);
    json_object(&j, "error");
    json_text(&j, "code", ckpt_status_name(err->status));
    json_text(&j, "message", text);
    json_end_object(&j);
    put_result(&j, b, report, false);
    json_end_object(&j);
    return CLI_NO_ANSWER;
}

static void done_text(const job *b, const ckpt_report *report)
{
    uint64_t nbytes = 0;
    size_t copies = 0;
    char size[CLI_SIZE_MAX];
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (!is_step(f))
            continue;
        copies += strcmp(f->code, "copy") == 0;
        nbytes += strcmp(f->code, "cast") == 0 ? 0 : f->nbytes;
        if (b->cli.quiet)
            continue;
        printf("%-6s ", f->code);
        if (strcmp(f->code, "copy") == 0)
            printf("%-18s ", *f->to ? f->to : "-");
        else
            printf("%s -> %-8s ", *f->from ? f->from : "-", f->to);
        cli_put_message(stdout, f->tensor);
        putchar('\n');
    }
    cli_text_findings(&b->cli, b->options.dry_run ? stdout : stderr, report, b->cli.quiet ? CKPT_ERROR : CKPT_WARNING, NULL);
    if (b->options.dry_run)
        printf("%zu to copy as they are, %zu with another device tag, %zu lost; %s; nothing was written%s%s\n", copies,
               ckpt_report_count_code(report, "moved"), ckpt_report_count_code(report, "lost"), cli_size(size, nbytes),
               needs_lossy(b, report) ? "; writing it needs --lossy" : "", needs_force(b, true) ? "; replacing DST needs --force" : "");
    else if (!b->cli.quiet)
        printf("%s: written%s\n", b->dst, b->options.verify ? " and read back" : "");
}

static int run(job *b, int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    names list = {NULL, NULL, 0};
    cli_progress shown;
    int status = parse(b, argc, argv);
    if (status < 0 && b->param_names)
        status = names_read(&b->cli, b->param_names, &list);
    ckpt_report *report = status < 0 ? ckpt_report_new() : NULL;
    if (status < 0 && !report)
        status = cli_fail(&b->cli, "no-memory", "out of memory");
    if (status < 0) {
        cli_progress_init(&shown, &b->cli, "written");
        cli_signals();
        b->options.param_names = list.items;
        b->options.param_name_count = list.count;
        b->options.progress = (ckpt_progress){cli_progress_step, &shown};
        ckpt_status answer = ckpt_migrate(b->src, b->dst, &b->options, report, &err);
        cli_progress_end(&shown);
        if (answer == CKPT_E_CANCELLED)
            cli_signals_reraise();      /* the temporary is gone: now die by the signal */
        status = answer == CKPT_OK ? CLI_YES : failed(b, report, &err);
        if (answer == CKPT_OK && b->cli.json) {
            json_out j;
            json_init(&j, stdout);
            json_object(&j, NULL);
            json_int(&j, "ckpt", 1);
            put_result(&j, b, report, true);
            json_end_object(&j);
        } else if (answer == CKPT_OK) {
            done_text(b, report);
        }
    }
    ckpt_report_free(report);
    names_free(&list);
    return status;
}

int main(int argc, char **argv)
{
    job b;
    memset(&b, 0, sizeof b);
    signal(SIGPIPE, SIG_DFL);
    cli_init(&b.cli, "ckpt-migrate", argc, argv);
    int status = run(&b, argc, argv);
    cli_free(&b.cli);
    return cli_finish(&b.cli, status);
}
