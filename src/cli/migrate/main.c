/* migrate/main.c - ckpt-migrate: rewrites a checkpoint with another format or other device tags. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/out/cli.h"
#include "cli/out/names.h"

static const char usage_text[] =      /* one screen of 24 lines; the man page has all of it */
    "Usage: ckpt-migrate [OPTION]... SRC... DST\n"
    "Writes the checkpoint SRC as DST, which appears whole or not at all.\n"
    "  --to ckpt|safetensors|torch|hf|same   format of DST (default: by its suffix)\n"
    "  --from FORMAT, --one            SRC's format; several SRC are one checkpoint\n"
    "  --map-location RULES            new device tags: cuda:0, 'cuda:1=cuda:0', ...\n"
    "  --optimizer KIND                fused, capturable, foreach, plain: step, flags\n"
    "  --strip-prefix P, --add-prefix P, --rename REGEX=REPLACEMENT   other names\n"
    "  --drop GLOB, --weights-only     leave tensors out; --replace GLOB: for a new head\n"
    "  --tensor, --role, --device      leave all others out\n"
    "  --cast GLOB=DTYPE               convert what the glob names: '*=bfloat16'\n"
    "  --plain, --map-device-objects   for weights_only=True; torch.device objects\n"
    "  --param-names FILE, --assume-order NAME   the optimizer's parameters in order\n"
    "  --fix CODE|all, --salvage       mend what doctor found; keep what is whole\n"
    "  --max-shard-size 5GB            of each file of --to hf\n"
    "  --memory 256MiB, --threads N    limits on memory and threads\n"
    "  --lossy, --allow-unused         permit losses; permit rules that match nothing\n"
    "  --dry-run, --verify             print the plan only; read back the result\n"
    "  --force, --no-sync              replace DST; do not flush it to the disk\n"
    "  --rank N, --world N             for {rank} and {world} in RULES\n"
    "  --json, -q, --help, --version\n"
    "Exit status: 0 done; 1 done, and something was not recovered (--salvage); 2 not\n"
    "done (usage, not a checkpoint, cannot be read, a loss without --lossy, ...).\n";

enum {
    O_JSON = 256, O_TO, O_FROM, O_ONE, O_MAP_LOCATION, O_OPTIMIZER, O_PARAM_NAMES, O_RANK, O_WORLD, O_LOSSY, O_DRY_RUN, O_VERIFY,
    O_FORCE, O_NO_SYNC, O_HELP, O_VERSION, O_STRIP, O_ADD, O_RENAME, O_DROP, O_CAST, O_WEIGHTS_ONLY, O_PLAIN, O_DEVICE_OBJECTS,
    O_FIX, O_SALVAGE, O_SHARD_SIZE, O_MEMORY, O_THREADS, O_TENSOR, O_ROLE, O_DEVICE, O_ASSUME_ORDER, O_REPLACE,
    O_ALLOW_UNUSED, O_LATER
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, O_JSON},
    {"to", required_argument, NULL, O_TO},
    {"from", required_argument, NULL, O_FROM},
    {"one", no_argument, NULL, O_ONE},
    {"map-location", required_argument, NULL, O_MAP_LOCATION},
    {"optimizer", required_argument, NULL, O_OPTIMIZER},
    {"param-names", required_argument, NULL, O_PARAM_NAMES},
    {"assume-order", required_argument, NULL, O_ASSUME_ORDER},
    {"rank", required_argument, NULL, O_RANK},
    {"world", required_argument, NULL, O_WORLD},
    {"strip-prefix", required_argument, NULL, O_STRIP},
    {"add-prefix", required_argument, NULL, O_ADD},
    {"rename", required_argument, NULL, O_RENAME},
    {"drop", required_argument, NULL, O_DROP},
    {"replace", required_argument, NULL, O_REPLACE},
    {"allow-unused", no_argument, NULL, O_ALLOW_UNUSED},
    {"tensor", required_argument, NULL, O_TENSOR},
    {"role", required_argument, NULL, O_ROLE},
    {"device", required_argument, NULL, O_DEVICE},
    {"cast", required_argument, NULL, O_CAST},
    {"weights-only", no_argument, NULL, O_WEIGHTS_ONLY},
    {"plain", no_argument, NULL, O_PLAIN},
    {"map-device-objects", no_argument, NULL, O_DEVICE_OBJECTS},
    {"fix", required_argument, NULL, O_FIX},
    {"salvage", no_argument, NULL, O_SALVAGE},
    {"max-shard-size", required_argument, NULL, O_SHARD_SIZE},
    {"memory", required_argument, NULL, O_MEMORY},
    {"threads", required_argument, NULL, O_THREADS},
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
    {NULL, 0, NULL, 0},
};

typedef struct job {
    cli cli;
    ckpt_migrate_options options;
    const char *param_names;
    const char *src, *dst;
    bool world_given, one;
    const char *given[sizeof long_options / sizeof *long_options];      /* what each that counts once was given */
    cli_list strip, rename, drop, replace, cast, fix;
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

/* 5GB is 5 * 10^9 bytes, 256MiB 256 * 2^20; B and no unit are bytes, and 5G is 5GB. */
static bool parse_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    uint64_t scale = 1;
    const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (unit && *unit) {
        bool binary = end[1] == 'i';
        for (const char *u = units; u <= unit; u++)
            scale *= binary ? 1024 : 1000;
        end += binary ? 2 : 1;
    }
    end += *end == 'B' || *end == 'b';
    *out = n * scale;
    return errno == 0 && *end == 0 && n > 0 && n <= UINT64_MAX / scale;
}

static int keep(const cli *c, cli_list *list, const char *item)
{
    return cli_list_add(list, item) ? -1 : cli_fail(c, "no-memory", "out of memory");
}

/* What is given more than once, or has a value of its own kind: -1: go on, -2: none of these, else the exit status. */
static int take_transform(job *b, int option)
{
    const cli *c = &b->cli;
    ckpt_migrate_options *o = &b->options;
    int64_t threads;
    switch (option) {
    case O_STRIP: return keep(c, &b->strip, optarg);
    case O_RENAME: return keep(c, &b->rename, optarg);
    case O_DROP: return keep(c, &b->drop, optarg);
    case O_REPLACE: return keep(c, &b->replace, optarg);
    case O_CAST: return keep(c, &b->cast, optarg);
    case O_FIX: return keep(c, &b->fix, optarg);
    case O_TENSOR: return keep(c, &b->cli.tensors, optarg);
    case O_ROLE: return keep(c, &b->cli.roles, optarg);
    case O_DEVICE: return keep(c, &b->cli.devices, optarg);
    case O_ADD: o->add_prefix = optarg; return -1;
    case O_WEIGHTS_ONLY: o->weights_only = true; return -1;
    case O_PLAIN: o->plain = true; return -1;
    case O_DEVICE_OBJECTS: o->map_device_objects = true; return -1;
    case O_SALVAGE: o->salvage = true; return -1;
    case O_ONE: b->one = true; return -1;
    case O_ALLOW_UNUSED: o->allow_unused = true; return -1;
    case O_SHARD_SIZE:
        return parse_size(optarg, &o->max_shard_size) ? -1
                                                      : cli_usage(c, "--max-shard-size: '%s' is no size (5GB, 256MiB, ...)", optarg);
    case O_MEMORY:
        return parse_size(optarg, &o->memory) ? -1 : cli_usage(c, "--memory: '%s' is no size (256MiB, 1GB, ...)", optarg);
    case O_THREADS:
        if (!parse_count(optarg, &threads) || threads <= 0)
            return cli_usage(c, "--threads: '%s' is no number of threads; write 1 or more", optarg);
        o->threads = threads < UINT32_MAX ? (uint32_t)threads : UINT32_MAX;
        return -1;
    default: return -2;
    }
}

/* Of most options the last one counts: one that was given before, and said otherwise, is named. */
static void warn_twice(job *b, int index)
{
    static const int repeated[] = {O_STRIP, O_RENAME, O_DROP, O_REPLACE, O_CAST, O_FIX, O_TENSOR, O_ROLE, O_DEVICE};
    const struct option *o = &long_options[index];
    bool once = o->has_arg == required_argument;
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++)
        once = once && o->val != repeated[i];
    if (once && b->given[index] && strcmp(b->given[index], optarg) != 0)
        cli_warn(&b->cli, "--%s is given twice: '%s' counts, and '%s' does not", o->name, optarg, b->given[index]);
    if (once)
        b->given[index] = optarg;
}

/* -1: go on, else the exit status. */
static int take_option(job *b, int option, int index, char **argv)
{
    const cli *c = &b->cli;
    ckpt_migrate_options *o = &b->options;
    if (option >= O_JSON)
        warn_twice(b, index);
    int taken = take_transform(b, option);
    if (taken != -2)
        return taken;
    switch (option) {
    case O_JSON: b->cli.json = true; break;
    case 'q': b->cli.quiet = true; break;
    case O_TO: o->to = optarg; break;
    case O_FROM: o->from = optarg; break;
    case O_MAP_LOCATION: o->map_location = optarg; break;
    case O_OPTIMIZER:
        o->optimizer = ckpt_optimizer_kind_from_name(optarg);
        if (o->optimizer == CKPT_OPTIMIZER_DEFAULT)
            return cli_usage(c, "--optimizer: unknown value '%s' (choose fused, capturable, foreach or plain)", optarg);
        break;
    case O_PARAM_NAMES: b->param_names = optarg; break;
    case O_ASSUME_ORDER: o->assume_order = optarg; break;
    case O_RANK:
        if (!parse_count(optarg, &o->ranks.rank))
            return cli_usage(c, "--rank: '%s' is no rank; ranks are 0, 1, ...", optarg);
        o->ranks.local_rank = o->ranks.rank;
        break;
    case O_WORLD:
        if (!parse_count(optarg, &o->ranks.world) || o->ranks.world == 0)
            return cli_usage(c, "--world: '%s' is no number of ranks; write 1 or more", optarg);
        b->world_given = true;
        break;
    case O_LOSSY: o->lossy = true; break;
    case O_DRY_RUN: o->dry_run = true; break;
    case O_VERIFY: o->verify = true; break;
    case O_FORCE: o->force = true; break;
    case O_NO_SYNC: o->no_sync = true; break;
    case 'h':
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
    if (b->options.to)
        return -1;
    struct stat st;
    const char *slash = strrchr(b->dst, '/');
    bool folder = ends_in(b->dst, "/") || !strchr(slash ? slash : b->dst, '.');
    if (folder && stat(b->src, &st) == 0 && S_ISDIR(st.st_mode)) {
        b->options.to = "same";
        return -1;
    }
    if (ends_in(b->dst, "/"))
        return cli_usage(c, "%s: DST is a directory: give a file name, or --to hf", b->dst);
    if (ends_in(b->dst, ".safetensors")) {
        b->options.to = "ckpt";
        return -1;
    }
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++)
        if (ends_in(b->dst, torch[i])) {
            b->options.to = "torch";
            return -1;
        }
    return cli_usage(c, "%s: its suffix does not say the format: give --to ckpt, safetensors, torch, hf or same", b->dst);
}

static void set_lists(job *b)
{
    ckpt_migrate_options *o = &b->options;
    o->strip_prefix = b->strip.items, o->strip_prefix_count = b->strip.count;
    o->rename = b->rename.items, o->rename_count = b->rename.count;
    o->drop = b->drop.items, o->drop_count = b->drop.count;
    o->replace = b->replace.items, o->replace_count = b->replace.count;
    o->cast = b->cast.items, o->cast_count = b->cast.count;
    o->fix = b->fix.items, o->fix_count = b->fix.count;
    o->only_tensor = b->cli.tensors.items, o->only_tensor_count = b->cli.tensors.count;
    o->only_role = b->cli.roles.items, o->only_role_count = b->cli.roles.count;
    o->only_device = b->cli.devices.items, o->only_device_count = b->cli.devices.count;
}

static int parse(job *b, int argc, char **argv)
{
    int option, index = 0;
    b->options.ranks.world = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":qh", long_options, &index)) != -1) {
        int status = optarg && !*optarg ? cli_empty_value(&b->cli, argv) : take_option(b, option, index, argv);
        if (status >= 0)
            return status;
    }
    if (b->world_given && b->options.ranks.rank >= b->options.ranks.world)
        return cli_usage(&b->cli, "--rank: %" PRId64 " is no rank of a world of %" PRId64 ": they are 0 to %" PRId64, b->options.ranks.rank,
                         b->options.ranks.world, b->options.ranks.world - 1);
    struct stat st;
    if (argc - optind == 1 && strcmp(argv[optind], "help") == 0 && lstat("help", &st) != 0)
        return cli_help(&b->cli, usage_text);
    if (argc - optind < 2)
        return cli_usage(&b->cli, "missing operand: %s", argc == optind ? "SRC and DST" : "DST");
    if (argc - optind > 2 && !b->one)
        return cli_usage(&b->cli, "%d SRC are given: if they are one checkpoint whose files lie on several disks, say --one",
                         argc - optind - 1);
    b->src = argv[optind];
    b->dst = argv[argc - 1];
    b->options.also = (const char *const *)(argv + optind + 1);
    b->options.also_count = (size_t)(argc - optind - 2);
    set_lists(b);
    if (!cli_selection_check(&b->cli))
        return CLI_NO_ANSWER;
    const char *const files[] = {b->src, b->dst, b->param_names, b->options.map_location};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] && !cli_list_add(&b->cli.about, files[i]))
            return cli_fail(&b->cli, "no-memory", "out of memory");
    for (size_t i = 0; i < b->options.also_count; i++)
        if (!cli_list_add(&b->cli.about, b->options.also[i]))
            return cli_fail(&b->cli, "no-memory", "out of memory");
    return default_format(b);
}

/* ---- what was done, or would be */

static bool is_step(const ckpt_finding *f)
{
    static const char *const steps[] = {"copy", "moved", "cast", "renamed", "dropped"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (strcmp(f->code, steps[i]) == 0)
            return true;
    return false;
}

/* What a run would ask for beyond what it was given. */
static bool needs_lossy(const job *b, const ckpt_report *report)
{
    return !b->options.lossy && ckpt_report_count_code(report, "lost") > 0;
}

static bool needs_force(const job *b, bool done)
{
    struct stat st;
    bool folder = strcmp(b->options.to, "hf") == 0 || strcmp(b->options.to, "same") == 0;
    return (b->options.dry_run || !done) && !b->options.force && stat(b->dst, &st) == 0 && (S_ISREG(st.st_mode) || folder);
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
    const ckpt_finding *size = ckpt_report_find(report, "size", NULL);
    if (size)
        json_uint(j, "nbytes", size->nbytes);
    else
        json_null(j, "nbytes");
    json_uint(j, "not_recovered", ckpt_report_count_code(report, "not-recovered"));
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
        if (!is_step(ckpt_report_get(report, i)) && ckpt_report_get(report, i) != size)
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
            bool said = strstr(err->message, f->message) && strcmp(f->message, err->message) != 0;
            if ((!is_lost && (f->severity < CKPT_SEVERITY_ERROR || said)) || (is_lost && ++lost > SHOWN))
                continue;
            fprintf(stderr, "%s: ", f->code);
            cli_put_message(stderr, f->tensor);
            fputs(*f->tensor ? ": " : "", stderr);
            cli_put_message(stderr, f->message);
            putc('\n', stderr);
        }
        if (lost > SHOWN)
            fprintf(stderr, "lost: and %zu more (--json lists them all)\n", lost - SHOWN);
        if (err->status == CKPT_E_UNSUPPORTED && needs_lossy(b, report))
            return cli_fail(&b->cli, ckpt_status_name(err->status),
                            "%s: nothing was written: the format %s cannot hold what is listed as lost; --lossy leaves it out%s",
                            b->dst, b->options.to, strcmp(b->options.to, "safetensors") == 0 ? ", --to ckpt or torch holds more" : "");
        int status = cli_fail_error(&b->cli, err);
        if (err->status == CKPT_E_DAMAGED && !b->options.salvage && strncmp(err->object, b->dst, strlen(b->dst)) != 0)
            fprintf(stderr, "Nothing was written; --salvage writes what is whole, and lists the rest.\n");
        return status;
    }
    char *text = cli_error_text(&b->cli, b->src, err);
    json_out j;
    json_init(&j, stdout);
    json_object(&j, NULL);
    json_int(&j, "ckpt", 1);
    json_object(&j, "error");
    json_text(&j, "code", ckpt_status_name(err->status));
    json_text(&j, "message", text ? text : err->message);
    json_end_object(&j);
    free(text);
    put_result(&j, b, report, false);
    json_end_object(&j);
    return CLI_NO_ANSWER;
}

/* What was done on the way, other than to a tensor. */
static bool is_deed(const job *b, const ckpt_finding *f)
{
    static const char *const deeds[] = {"fix", "plain", "resolved", "reordered", "tied", "left-out", "cut-out", "order-stated", "replaced", "tags-dropped", "step-made"};
    if (f->severity != CKPT_SEVERITY_NOTE)
        return false;             /* said with the warnings */
    if (b->options.weights_only && strcmp(f->code, "plain") == 0)
        return false;             /* it is not among what was written */
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (strcmp(f->code, deeds[i]) == 0)
            return true;
    return b->options.map_location && !b->options.weights_only && strcmp(f->code, "torch-device-object") == 0;
}

static void put_deeds(const job *b, const ckpt_report *report)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (!is_deed(b, f))
            continue;
        printf("%-6s ", f->code);
        cli_put_message(stdout, f->tensor);
        fputs(*f->tensor ? ": " : "", stdout);
        cli_put_message(stdout, f->message);
        putchar('\n');
    }
}

/* What somebody may miss in the result: with -q too. */
static void put_missed(const ckpt_report *report)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (strcmp(f->code, "left-behind") != 0 && strcmp(f->code, "group-made") != 0)
            continue;
        fprintf(stderr, "ckpt-migrate: %s: ", f->code);
        cli_put_message(stderr, f->message);
        putc('\n', stderr);
    }
}

static void done_text(const job *b, const ckpt_report *report)
{
    const ckpt_finding *whole = ckpt_report_find(report, "size", NULL);
    size_t copies = 0;
    char size[CLI_SIZE_MAX];
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (!is_step(f))
            continue;
        copies += strcmp(f->code, "copy") == 0;
        if (b->cli.quiet)
            continue;
        printf("%-6s ", f->code);
        if (strcmp(f->code, "copy") == 0)
            printf("%-18s ", *f->to ? f->to : "-");
        else if (strcmp(f->code, "renamed") == 0) {
            cli_put_message(stdout, f->from);
            fputs(" -> ", stdout);
        } else if (strcmp(f->code, "dropped") != 0)
            printf("%s -> %-8s ", *f->from ? f->from : "-", f->to);
        cli_put_message(stdout, f->tensor);
        putchar('\n');
    }
    if (!b->cli.quiet)
        put_deeds(b, report);
    cli_text_findings(&b->cli, b->options.dry_run ? stdout : stderr, report, b->cli.quiet ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_WARNING, NULL);
    if (b->cli.quiet)
        put_missed(report);
    if (b->options.dry_run) {
        static const char *const also[] = {"cast", "renamed"};
        size_t moved = ckpt_report_count_code(report, "moved"), writes = copies + moved;
        printf("%zu tensor%s to write, %zu with another device tag, ", writes, writes == 1 ? "" : "s", moved);
        for (size_t i = 0; i < sizeof also / sizeof *also; i++)
            if (ckpt_report_count_code(report, also[i]))
                printf("%zu %s, ", ckpt_report_count_code(report, also[i]), also[i]);
        printf("%zu lost; %s; nothing was written%s%s\n", ckpt_report_count_code(report, "lost"), cli_size(size, whole ? whole->nbytes : 0),
               needs_lossy(b, report) ? "; writing it needs --lossy" : "",
               needs_force(b, true) ? "; replacing DST needs --force" : "");
    } else if (!b->cli.quiet) {
        cli_put(stdout, b->dst, strlen(b->dst));
        puts(b->options.verify ? ": written and read back" : ": written");
    }
}

/* An option that changes nothing must not look as if it did. */
static void warn_unused(const job *b)
{
    const ckpt_migrate_options *o = &b->options;
    bool whole = strcmp(o->to, "hf") != 0 && strcmp(o->to, "same") != 0;
    if (o->max_shard_size && whole)
        cli_warn(&b->cli, "--max-shard-size is for --to hf: %s is written as one file", o->to);
    if ((o->ranks.rank || b->world_given) && !o->map_location)
        cli_warn(&b->cli, "--rank and --world stand for {rank} and {world} in --map-location, which was not given");
    if (o->map_device_objects && !o->map_location)
        cli_warn(&b->cli, "--map-device-objects does what --map-location says, which was not given");
}

/* Every tensor was left out: most likely a name that is not there. */
static bool selects_nothing(const job *b, const ckpt_report *report)
{
    return cli_has_selection(&b->cli) && ckpt_report_count_code(report, "dropped") > 0 && ckpt_report_count_code(report, "copy") == 0 &&
           ckpt_report_count_code(report, "moved") == 0 && ckpt_report_count_code(report, "cast") == 0;
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
        warn_unused(b);
        cli_progress_init(&shown, &b->cli, "written");
        shown.again = b->options.verify ? "read back" : NULL;
        cli_signals();
        b->options.param_names = list.items;
        b->options.param_name_count = list.count;
        b->options.progress = (ckpt_progress){cli_progress_step, &shown};
        ckpt_status answer = ckpt_migrate(b->src, b->dst, &b->options, report, &err);
        cli_progress_end(&shown);
        if (answer == CKPT_E_CANCELLED)
            cli_signals_reraise();      /* the temporary is gone: now die by the signal */
        if (answer == CKPT_OK && !b->options.dry_run)
            cli_written(b->dst);
        status = answer != CKPT_OK ? failed(b, report, &err) : ckpt_report_count_code(report, "not-recovered") ? CLI_NO : CLI_YES;
        if (answer == CKPT_OK && selects_nothing(b, report))
            cli_warn(&b->cli, "--tensor, --role and --device name no tensor that is there: all were left out");
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
    cli_list *lists[] = {&b.strip, &b.rename, &b.drop, &b.replace, &b.cast, &b.fix};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
    cli_free(&b.cli);
    return cli_finish(&b.cli, status);
}
