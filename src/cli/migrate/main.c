/* migrate/main.c - ckpt-migrate: rewrites a checkpoint with another format or other device tags. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/migrate/layout.h"
#include "cli/migrate/plan.h"
#include "cli/migrate/target.h"
#include "cli/out/names.h"
#include "cli/out/options.h"

typedef struct job {
    command_line o;
    ckpt_migrate_options options; /* o.migrate, and what o has beside it */
    ckpt_migrate_totals totals;   /* of a dry run */
    const char *src, *dst;        /* dst: what is written, which target makes of what was typed */
    target target;
    char layout[4096];   /* the path of --layout */
    ckpt_report *report; /* owned */
    plan_out plan;       /* of a dry run */
    json_out json;       /* once the plan has begun: the document */
    cli_progress shown;
} job;

static bool ends_in(const char *text, const char *tail)
{
    size_t n = strlen(text), k = strlen(tail);
    return n >= k && strcmp(text + n - k, tail) == 0;
}

/* The format by DST's suffix. */
static int default_format(job *b)
{
    static const char *const torch[] = {".pt", ".pth", ".bin", ".ckpt"};
    const cli *c = &b->o.cli;
    if (b->options.to)
        return -1;
    struct stat st;
    const char *slash = strrchr(b->dst, '/');
    bool folder = ends_in(b->dst, "/") || !strchr(slash ? slash : b->dst, '.');
    if (folder && stat(b->src, &st) == 0 && S_ISDIR(st.st_mode)) {
        b->options.to = "same";
        return -1;
    }
    if (strcmp(b->dst, "-") == 0)
        return cli_usage(c, "-: standard output has no suffix to tell the format from: give --to");
    if (target_is_into(b->dst) && stat(b->src, &st) == 0 && S_ISREG(st.st_mode))
        return (b->options.to = target_same_format(c, b->src)) ? -1 : CLI_NO_ANSWER;
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
    return cli_usage(
        c,
        "%s: the format cannot be told from its suffix: give --to ckpt, safetensors, torch, hf, dcp, universal, hf-trainer, accelerate or same",
        b->dst);
}

/* What the library is asked for. */
static void set_options(job *b, char **operands, int count)
{
    ckpt_migrate_options *m = &b->options;
    const command_line *o = &b->o;
    *m = o->migrate;
    m->struct_size = sizeof *m;
    m->from = o->cli.from;
    m->map_location = o->map_location;
    m->assume_order = o->assume_order;
    m->optimizer = o->optimizer ? ckpt_optimizer_kind_from_name(o->optimizer) : CKPT_OPTIMIZER_DEFAULT;
    m->rank_state = !o->rank_state                         ? CKPT_RANK_STATE_KEEP
                    : strcmp(o->rank_state, "derive") == 0 ? CKPT_RANK_STATE_DERIVE
                    : strcmp(o->rank_state, "drop") == 0   ? CKPT_RANK_STATE_DROP
                                                           : CKPT_RANK_STATE_KEEP;
    m->force = o->force;
    m->allow_unused = o->cli.allow_unused;
    m->ranks.rank = m->ranks.local_rank = (int64_t)o->rank.n;
    m->ranks.world = o->world.text ? (int64_t)o->world.n : 1;
    m->target_world = o->world.text ? (uint32_t)o->world.n : 0;
    m->expert_parallel = (uint32_t)o->expert_parallel.n;
    m->max_shard_size = o->max_shard_size.n;
    m->memory = o->memory.n;
    m->threads = (uint32_t)o->threads.n;
    m->strip_prefix = o->strip_prefix.items, m->strip_prefix_count = o->strip_prefix.count;
    m->rename = o->rename.items, m->rename_count = o->rename.count;
    m->layout_side = o->layout_side;
    m->layout_vars = o->layout_vars.items, m->layout_var_count = o->layout_vars.count;
    m->drop = o->drop.items, m->drop_count = o->drop.count;
    m->replace = o->replace.items, m->replace_count = o->replace.count;
    m->shard = o->shard.items, m->shard_count = o->shard.count;
    m->cuts = o->cuts.items, m->cut_count = o->cuts.count;
    m->cast = o->cast.items, m->cast_count = o->cast.count;
    m->fix = o->fix.items, m->fix_count = o->fix.count;
    m->only_tensor = o->cli.tensors.items, m->only_tensor_count = o->cli.tensors.count;
    m->only_role = o->cli.roles.items, m->only_role_count = o->cli.roles.count;
    m->only_device = o->cli.devices.items, m->only_device_count = o->cli.devices.count;
    b->totals = (ckpt_migrate_totals)CKPT_MIGRATE_TOTALS_INIT;
    m->totals = m->dry_run ? &b->totals : NULL;
    m->also = (const char *const *)(operands + 1);
    m->also_count = (size_t)(count - 2);
}

static bool is_folder(const char *to);

static int parse(job *b, int argc, char **argv)
{
    command_line *o = &b->o;
    cli *c = &o->cli;
    struct stat st;
    int status = options_parse(o, argc, argv, true);
    o->command = COMMAND(MIGRATE);
    if (status < 0)
        status = options_check(o);
    if (status >= 0)
        return status;
    char **operands = argv + optind;
    int count = argc - optind;
    if (o->world.text && o->rank.n >= o->world.n)
        return cli_usage(c, "--rank: %" PRIu64 " is not a rank of a world of %" PRIu64 ": they are 0 to %" PRIu64,
                         o->rank.n, o->world.n, o->world.n - 1);
    if (count == 1 && strcmp(operands[0], "help") == 0 && lstat("help", &st) != 0)
        return options_help(o, true, COMMAND_COUNT);
    if (o->to_cpu && o->map_location && strcmp(o->map_location, "cpu") != 0)
        return cli_usage(c, "--cpu and --map-location %s are two answers to one question", o->map_location);
    if (o->to_cpu)
        o->map_location = "cpu";
    if (count < 2)
        return cli_usage(c, "missing operand: %s", count == 0 ? "SRC and DST" : "DST");
    if (count > 2 && !o->one)
        return cli_usage(c, "%d SRC are given: if they are one checkpoint whose files lie on several disks, say --one",
                         count - 1);
    b->src = operands[0];
    b->dst = operands[count - 1];
    if (o->optimizer && o->migrate.no_optimizer)
        return cli_usage(c, "--optimizer and --no-optimizer are two answers to one question");
    set_options(b, operands, count);
    if (!cli_selection_check(c))
        return CLI_NO_ANSWER;
    if (o->layout && (status = layout_find(c, o->layout, b->layout, sizeof b->layout)) >= 0)
        return status;
    b->options.layout = o->layout ? b->layout : NULL;
    for (int i = 0; i < count - 1; i++)
        if ((status = target_check_source(c, operands[i])) >= 0)
            return status;
    const char *const files[] = {b->src,           b->dst, o->param_names, o->map_location, o->migrate.merge_adapter,
                                 b->options.layout};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] && !cli_list_add(&c->about, files[i]))
            return cli_fail(c, "no-memory", "out of memory");
    for (size_t i = 0; i < b->options.also_count; i++)
        if (!cli_list_add(&c->about, b->options.also[i]))
            return cli_fail(c, "no-memory", "out of memory");
    status = default_format(b);
    if (status < 0)
        status = target_open(&b->target, o, b->src, b->dst, b->options.to, is_folder(b->options.to));
    if (b->target.path)
        b->dst = b->target.path;
    return status;
}

/* ---- what was done, or would be */

/* What a run would ask for beyond what it was given. */
static bool needs_lossy(const job *b, const ckpt_report *report)
{
    return !b->options.lossy && ckpt_report_count_code(report, "lost") > 0;
}

/* Is a directory written, or may it be one? */
static bool is_folder(const char *to)
{
    static const char *const folders[] = {"hf", "same", "universal", "torch-dist", "torchtitan", "llmc", "ckpt-run"},
                             *const heads[] = {"dcp", "hf-trainer", "accelerate"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strncmp(to, heads[i], strlen(heads[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strcmp(to, folders[i]) == 0)
            return true;
    return false;
}

static bool needs_force(const job *b, bool done)
{
    struct stat st;
    bool folder = is_folder(b->options.to);
    return (b->options.dry_run || !done) && !b->options.force && stat(b->dst, &st) == 0 &&
           (S_ISREG(st.st_mode) || folder);
}

/* Bytes read for each that is used; 1 where none is. */
static double amplification(const ckpt_migrate_totals *t)
{
    return t->bytes_in ? (double)t->bytes_read / (double)t->bytes_in : 1;
}

static void put_totals(json_out *j, const ckpt_migrate_totals *t)
{
    json_object(j, "totals");
    json_uint(j, "bytes_in", t->bytes_in);
    json_uint(j, "bytes_out", t->bytes_out);
    json_uint(j, "bytes_read", t->bytes_read);
    json_double(j, "amplification", amplification(t));
    json_uint(j, "copies", t->copies);
    json_uint(j, "replicas", t->replicas);
    json_uint(j, "coded", t->coded);
    json_uint(j, "coded_reads", t->coded_reads);
    json_uint(j, "coded_passes", t->coded_passes);
    json_end_object(j);
}

static void totals_text(const ckpt_migrate_totals *t)
{
    char read[CLI_SIZE_MAX], in[CLI_SIZE_MAX], out[CLI_SIZE_MAX];
    printf("reads %s for %s of the source (%.2f times), makes %s in %" PRIu64 " cop%s", cli_size(read, t->bytes_read),
           cli_size(in, t->bytes_in), amplification(t), cli_size(out, t->bytes_out), t->copies,
           t->copies == 1 ? "y" : "ies");
    if (t->replicas)
        printf(", %" PRIu64 " replica%s not read", t->replicas, t->replicas == 1 ? "" : "s");
    if (t->coded)
        printf(", %" PRIu64 " compressed storage%s for %" PRIu64 " tensor%s or pieces, decoded %" PRIu64 " time%s",
               t->coded, t->coded == 1 ? "" : "s", t->coded_reads, t->coded_reads == 1 ? "" : "s", t->coded_passes,
               t->coded_passes == 1 ? "" : "s");
    putchar('\n');
}

/* Up to the plan, which is left open. */
static void put_head(json_out *j, const job *b, const ckpt_report *report, bool done)
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
    if (done && b->options.dry_run)
        put_totals(j, &b->totals);
    json_array(j, "needs");
    if (needs_lossy(b, report))
        json_text(j, NULL, "--lossy");
    if (needs_force(b, done))
        json_text(j, NULL, "--force");
    json_end_array(j);
    json_array(j, "plan");
}

/* Behind it. */
static void put_tail(json_out *j, const ckpt_report *report)
{
    const ckpt_finding *size = ckpt_report_find(report, "size", NULL);
    json_end_array(j);
    json_array(j, "findings");
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        if (!plan_is_step(ckpt_report_get(report, i)) && ckpt_report_get(report, i) != size)
            cli_json_finding(j, ckpt_report_get(report, i));
    json_end_array(j);
}

static void put_result(json_out *j, const job *b, const ckpt_report *report, bool done)
{
    put_head(j, b, report, done);
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        if (plan_is_step(ckpt_report_get(report, i)))
            plan_step_json(j, ckpt_report_get(report, i), false);
    put_tail(j, report);
}

/* The plan comes: all else is known by then. */
static void begin_plan(void *ctx)
{
    job *b = ctx;
    cli_progress_end(&b->shown);
    if (!b->o.cli.json)
        return;
    json_document(&b->json);
    put_head(&b->json, b, b->report, true);
}

/* Nobody asks with --quiet, but for the document, which is always whole. */
static void ask_for_plan(job *b)
{
    const cli *c = &b->o.cli;
    if (!b->options.dry_run || (c->quiet && !c->json))
        return;
    b->plan = (plan_out){.json = c->json ? &b->json : NULL,
                         .verbose = b->o.verbose,
                         .source = b->src,
                         .report = b->report,
                         .begin = begin_plan,
                         .ctx = b};
    b->options.plan = (ckpt_migrate_plan){plan_row, &b->plan};
    if (c->json)
        b->options.ledger = (ckpt_migrate_ledger){plan_ledger_row, &b->plan};
}

static int failed(job *b, const ckpt_report *report, const ckpt_error *err)
{
    if (!b->o.cli.json) {
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
            return cli_fail(
                &b->o.cli, ckpt_status_name(err->status),
                "%s: nothing was written: the format %s cannot hold what is listed as lost; --lossy leaves it out%s",
                b->dst, b->options.to,
                strcmp(b->options.to, "safetensors") == 0 ? ", --to ckpt or torch holds more" : "");
        int status = cli_fail_error(&b->o.cli, err);
        target_advise(&b->target, &b->o.cli, err->sys_errno);
        if (err->status == CKPT_E_DAMAGED && !b->options.salvage && !strstr(err->message, "nothing can be salvaged") &&
            strncmp(err->object, b->dst, strlen(b->dst)) != 0)
            fprintf(stderr, "Nothing was written; --salvage writes what is whole, and lists the rest.\n");
        return status;
    }
    char *text = cli_error_text(&b->o.cli, b->src, err);
    json_out j;
    if (b->plan.begun) { /* the rest of the document says so */
        plan_begin_ledger(&b->plan);
        put_tail(&b->json, report);
        json_error(&b->json, ckpt_status_name(err->status), text ? text : err->message);
        json_end_object(&b->json);
    } else {
        json_document(&j);
        json_error(&j, ckpt_status_name(err->status), text ? text : err->message);
        put_result(&j, b, report, false);
        json_end_object(&j);
    }
    free(text);
    return CLI_NO_ANSWER;
}

/* What was done on the way, other than to a tensor. */
static bool is_deed(const job *b, const ckpt_finding *f)
{
    static const char *const deeds[] = {"fix",
                                        "plain",
                                        "resolved",
                                        "reordered",
                                        "tied",
                                        "left-out",
                                        "cut-out",
                                        "order-stated",
                                        "replaced",
                                        "tags-dropped",
                                        "step-made",
                                        "one-rank",
                                        "adapter",
                                        "ranks",
                                        "rank-state",
                                        "weights-from-masters",
                                        "journal-resumed",
                                        "trainer-state-made"};
    if (f->severity != CKPT_SEVERITY_NOTE)
        return false; /* said with the warnings */
    if (b->options.weights_only && strcmp(f->code, "plain") == 0)
        return false; /* it is not among what was written */
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

/* Who pressed Ctrl-C needs no message, but for what stays. */
static void put_kept(const ckpt_report *report)
{
    const ckpt_finding *f = ckpt_report_find(report, "journal-kept", NULL);
    if (!f)
        return;
    fputs("ckpt-migrate: ", stderr);
    cli_put_message(stderr, f->message);
    putc('\n', stderr);
}

static void done_text(job *b, const ckpt_report *report)
{
    const ckpt_finding *whole = ckpt_report_find(report, "size", NULL);
    size_t copies = ckpt_report_count_code(report, "copy");
    char size[CLI_SIZE_MAX];
    if (b->options.plan.fn)
        plan_end(&b->plan);
    const bool shown = !b->options.dry_run && !b->o.cli.quiet;
    for (size_t i = 0; shown && b->o.verbose && i < ckpt_report_count(report); i++)
        if (plan_is_step(ckpt_report_get(report, i)))
            plan_step_text(ckpt_report_get(report, i));
    if (shown && !b->o.verbose)
        plan_summary(report);
    if (!b->o.cli.quiet)
        put_deeds(b, report);
    cli_text_findings(&b->o.cli, b->options.dry_run ? stdout : stderr, report,
                      b->o.cli.quiet ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_WARNING, NULL);
    if (b->o.cli.quiet)
        put_missed(report);
    if (b->options.dry_run && !b->o.cli.quiet)
        totals_text(&b->totals);
    if (b->options.dry_run) {
        static const char *const also[] = {"cast", "renamed"};
        size_t moved = ckpt_report_count_code(report, "moved"), writes = copies + moved;
        printf("%zu tensor%s to write, %zu with another device tag, ", writes, writes == 1 ? "" : "s", moved);
        for (size_t i = 0; i < sizeof also / sizeof *also; i++)
            if (ckpt_report_count_code(report, also[i]))
                printf("%zu %s, ", ckpt_report_count_code(report, also[i]), also[i]);
        printf("%zu lost; %s; nothing was written%s%s\n", ckpt_report_count_code(report, "lost"),
               cli_size(size, whole ? whole->nbytes : 0), needs_lossy(b, report) ? "; writing it needs --lossy" : "",
               needs_force(b, true) ? "; replacing DST needs --force" : "");
    } else if (!b->o.cli.quiet) {
        if (b->target.folder)
            fputs("standard output", stdout);
        else
            cli_put(stdout, b->dst, strlen(b->dst));
        puts(b->options.verify ? ": written and read back" : ": written");
    }
}

/* An option that changes nothing must not look as if it did. */
static void warn_unused(const job *b)
{
    const ckpt_migrate_options *o = &b->options;
    const bool cuts = strncmp(o->to, "dcp", 3) == 0 || strstr(o->to, "-fsdp") || strstr(o->to, "-deepspeed") ||
                      strcmp(o->to, "torch-dist") == 0 || strcmp(o->to, "torchtitan") == 0 ||
                      strcmp(o->to, "llmc") == 0 || strcmp(o->to, "ckpt-run") == 0;
    if (o->max_shard_size && strcmp(o->to, "hf") != 0 && strcmp(o->to, "same") != 0)
        cli_warn(&b->o.cli, "--max-shard-size is for --to hf: %s is written %s", o->to,
                 is_folder(o->to) ? "without shards" : "as one file");
    if ((o->ranks.rank || (b->o.world.text && !cuts)) && !o->map_location)
        cli_warn(&b->o.cli, "--rank and --world stand for {rank} and {world} in --map-location, which was not given");
    if (o->map_device_objects && !o->map_location)
        cli_warn(&b->o.cli, "--map-device-objects does what --map-location says, which was not given");
}

static int run(job *b, int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    names list = {NULL, NULL, 0};
    int status = parse(b, argc, argv);
    if (status < 0 && b->o.param_names)
        status = names_read(&b->o.cli, b->o.param_names, &list);
    ckpt_report *report = b->report = status < 0 ? ckpt_report_new() : NULL;
    if (status < 0 && !report)
        status = cli_fail(&b->o.cli, "no-memory", "out of memory");
    if (status < 0) {
        warn_unused(b);
        cli_progress_init(&b->shown, &b->o.cli, "written");
        b->shown.again = b->options.verify ? "read back" : NULL;
        cli_signals();
        b->options.param_names = list.items;
        b->options.param_name_count = list.count;
        b->options.progress = (ckpt_progress){cli_progress_step, &b->shown};
        ask_for_plan(b);
        ckpt_status answer = ckpt_migrate(b->src, b->dst, &b->options, report, &err);
        cli_progress_end(&b->shown);
        if (answer == CKPT_E_CANCELLED)
            put_kept(report);
        if (answer == CKPT_E_CANCELLED)
            target_close(&b->target);
        if (answer == CKPT_E_CANCELLED)
            cli_signals_reraise(); /* the temporary is gone, or kept: now die by the signal */
        if (answer == CKPT_OK && !b->options.dry_run && !b->target.folder)
            cli_written(b->dst);
        status = answer != CKPT_OK                                 ? failed(b, report, &err)
                 : ckpt_report_count_code(report, "not-recovered") ? CLI_NO
                                                                   : CLI_YES;
        if (answer == CKPT_OK && b->o.cli.json) {
            json_out j;
            if (b->options.plan.fn) {
                plan_begin_ledger(&b->plan);
                put_tail(&b->json, report);
                json_end_object(&b->json);
            } else {
                json_document(&j);
                put_result(&j, b, report, true);
                json_end_object(&j);
            }
        } else if (answer == CKPT_OK) {
            int sent = target_send(&b->target, &b->o.cli);
            if (sent == CLI_YES)
                done_text(b, report);
            else
                status = sent;
        }
    }
    target_close(&b->target);
    plan_free(&b->plan);
    ckpt_report_free(report);
    names_free(&list);
    return status;
}

int main(int argc, char **argv)
{
    job b;
    memset(&b, 0, sizeof b);
    b.target.out = -1;
    signal(SIGPIPE, SIG_DFL);
    cli_init(&b.o.cli, "ckpt-migrate", argc, argv);
    int status = run(&b, argc, argv);
    options_free(&b.o);
    return cli_finish(&b.o.cli, status);
}
