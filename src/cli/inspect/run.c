/* inspect/run.c - a run directory: which it is, what lies in it, and the dry run of retention. */
#include "cli/inspect/run.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/inspect/show.h"
#include "cli/inspect/show_line.h"

int run_view_open(const command_line *o, run_view *v)
{
    struct stat st;
    ckpt_error err = CKPT_ERROR_INIT;
    memset(v, 0, sizeof *v);
    v->o = o;
    if (o->cli.from || o->one || stat(o->paths[0], &st) != 0 || !S_ISDIR(st.st_mode))
        return CLI_YES;
    ckpt_status status = ckpt_run_list_open(o->paths[0], &v->list, &err);
    if (status == CKPT_E_FORMAT)
        return CLI_YES; /* a checkpoint of several files, or nothing that is known */
    if (status < 0)
        return cli_fail_error(&o->cli, &err);
    size_t n = strlen(o->paths[0]);
    while (n > 1 && o->paths[0][n - 1] == '/')
        n--;
    v->path = strndup(o->paths[0], n);
    v->count = ckpt_run_list_count(v->list);
    if (v->path)
        return -1;
    run_view_close(v);
    return cli_fail(&o->cli, "no-memory", "out of memory");
}

void run_view_close(run_view *v)
{
    ckpt_run_list_close(v->list);
    free(v->path);
    memset(v, 0, sizeof *v);
}

int run_again(const run_view *v, int (*once)(const run_view *v, bool insist))
{
    enum { TRIES = 8 };
    int answer = once(v, false);
    for (int i = 1; answer < 0 && i <= TRIES; i++) {
        run_view fresh;
        int opened = run_view_open(v->o, &fresh);
        if (opened > 0)
            return opened;
        if (opened == CLI_YES)
            return cli_fail(&v->o->cli, "not-found", "%s: it was removed while it was read", v->path);
        answer = once(&fresh, i == TRIES);
        run_view_close(&fresh);
    }
    return answer;
}

/* ---- the ranks' parts */

static int by_path(const void *a, const void *b)
{
    const run_part *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static bool is_rank(const char *name)
{
    return strncmp(name, "rank-", 5) == 0 && name[5] && strspn(name + 5, "0123456789") == strlen(name + 5);
}

static char *joined(const char *a, const char *b, const char *c)
{
    size_t size = strlen(a) + strlen(b) + strlen(c) + 3;
    char *text = malloc(size);
    const char *slash = a[0] && a[strlen(a) - 1] == '/' ? "" : "/";
    if (text)
        snprintf(text, size, "%s%s%s%s%s", a, slash, b, *c ? "/" : "", c);
    return text;
}

/* Takes path over. */
static bool add_part(run_parts *parts, char *path)
{
    struct stat st;
    run_part *items = path ? realloc(parts->items, (parts->count + 1) * sizeof *items) : NULL;
    if (!items) {
        free(path);
        return false;
    }
    parts->items = items;
    memset(&st, 0, sizeof st);
    (void)stat(path, &st);
    items[parts->count++] = (run_part){path, (uint64_t)st.st_ino, (uint64_t)st.st_dev};
    return true;
}

bool run_parts_find(const run_view *v, const ckpt_run_entry *e, run_parts *out)
{
    bool ok = true;
    memset(out, 0, sizeof *out);
    char *own = joined(v->path, e->name, "");
    if (!own)
        return false;
    if (strcmp(own, e->path) == 0)
        return add_part(out, own);
    free(own);
    DIR *dir = opendir(v->path);
    for (struct dirent *d; dir && ok && (d = readdir(dir));) {
        if (!is_rank(d->d_name))
            continue;
        out->rank_directories++;
        char *path = joined(v->path, d->d_name, e->name);
        if (path && !show_is_directory(path))
            free(path);
        else
            ok = add_part(out, path);
    }
    if (dir)
        closedir(dir);
    if (out->count > 1)
        qsort(out->items, out->count, sizeof *out->items, by_path);
    if (ok && out->count == 0) /* gone since; what is said of it then says so */
        ok = add_part(out, strdup(e->path));
    if (!ok)
        run_parts_free(out);
    return ok;
}

void run_parts_free(run_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        free(parts->items[i].path);
    free(parts->items);
    memset(parts, 0, sizeof *parts);
}

bool run_parts_gone(const run_parts *parts)
{
    struct stat st;
    for (size_t i = 0; i < parts->count; i++)
        if (stat(parts->items[i].path, &st) != 0 || (uint64_t)st.st_ino != parts->items[i].inode ||
            (uint64_t)st.st_dev != parts->items[i].device)
            return true;
    return false;
}

/* ---- how to resume */

char *run_resume_command(const run_view *v)
{
    size_t size = strlen(v->path) + 200;
    char *text = show_plain_path(v->path) ? malloc(size) : NULL;
    if (text)
        snprintf(text, size,
                 "ckpt_run_open(\"%s\", state, &options, &run, &err); ckpt_run_resume(run, NULL, &done, report, &err)",
                 v->path);
    return text;
}

void run_put_resume(const run_view *v, const ckpt_run_entry *from)
{
    char *text = run_resume_command(v), *second = text ? strstr(text, "; ckpt_run_resume") : NULL;
    if (second) { /* on a line each: together they are wider than 80 columns */
        *second = '\0';
        printf("%sresume with%s ", cli_style(&v->o->cli, "bold"), cli_style(&v->o->cli, "off"));
        cli_put_message(stdout, text);
        printf(";\n%*s", CLI_INDENT, "");
        cli_put_message(stdout, second + 2);
        if (from->world > 1)
            printf("\n%*s(the same on every rank)", CLI_INDENT, "");
        putchar('\n');
    }
    free(text);
}

/* ---- show */

/* What is said of them all. */
typedef struct layout {
    checkpoint *rows;    /* heap, owned */
    unsigned set;        /* IN_RUN and more */
    ckpt_retention rule; /* --keep-last, --keep-every */
    const bool *remove;  /* the dry run of retention; NULL: not asked for */
    uint64_t nbytes, removed_bytes;
    size_t removed;
} layout;

const ckpt_run_entry *run_newest(const run_view *v)
{
    for (size_t i = 0; i < v->count; i++)
        if (ckpt_run_list_entry(v->list, i)->complete)
            return ckpt_run_list_entry(v->list, i);
    return NULL;
}

checkpoint *run_rows(const run_view *v)
{
    checkpoint *rows = calloc(v->count + 1, sizeof *rows);
    for (size_t i = 0; rows && i < v->count; i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(v->list, i);
        rows[i] = (checkpoint){.name = {e->name, strlen(e->name)},
                               .path = e->path,
                               .step = e->step,
                               .epoch = -1,
                               .time = e->time,
                               .nbytes = e->nbytes,
                               .world = e->world,
                               .ranks_held = e->ranks_held,
                               .complete = e->complete,
                               .verified = e->verified,
                               .state = !e->complete  ? e->world > 1 ? "incomplete" : "damaged"
                                        : e->verified ? "verified"
                                                      : "complete",
                               .why = e->complete ? NULL : e->why,
                               .style = !e->complete  ? "red"
                                        : e->verified ? "bold"
                                                      : "off",
                               .kind = e->complete ? "good" : "error"};
    }
    return rows;
}

/* False: no memory. */
static bool lay_out(const run_view *v, layout *l)
{
    l->rows = run_rows(v);
    l->set = IN_RUN | (l->remove ? WITH_PLAN : 0);
    for (size_t i = 0; l->rows && i < v->count; i++) {
        checkpoint *it = &l->rows[i];
        l->set |= it->world > 1 ? WITH_RANKS : 0;
        l->nbytes += it->nbytes;
        it->remove = l->remove && l->remove[i];
        l->removed += it->remove;
        l->removed_bytes += it->remove ? it->nbytes : 0;
    }
    return l->rows != NULL;
}

static void show_plan(const run_view *v, const layout *l)
{
    char size[CLI_SIZE_MAX];
    const ckpt_retention *rule = &l->rule;
    if (rule->keep_last == 0) {
        puts("retention  nothing is ever removed without --keep-last");
        return;
    }
    printf("retention  keep the last %" PRId64, rule->keep_last);
    if (rule->keep_every > 0)
        printf(" and every multiple of %" PRId64, rule->keep_every);
    printf(": %zu of %zu would be removed (%s); nothing was\n", l->removed, v->count, cli_size(size, l->removed_bytes));
}

static void list_text(const run_view *v, const layout *l)
{
    const cli *c = &v->o->cli;
    char size[CLI_SIZE_MAX], exact[CLI_SIZE_MAX];
    const char *bold = cli_style(c, "bold"), *off = cli_style(c, "off"), *writer = ckpt_run_list_writer(v->list);
    printf("%sformat%s     run, a directory of %zu checkpoint%s, %s (%s bytes)\n", bold, off, v->count,
           v->count == 1 ? "" : "s", cli_size(size, l->nbytes), cli_count(exact, l->nbytes));
    printf("%swriter%s     ", bold, off);
    cli_put_message(stdout, writer ? writer : "none: nobody holds its lock");
    putchar('\n');
    if (v->count > 0)
        checkpoints_text(c, l->rows, v->count, l->set);
    if (l->remove)
        show_plan(v, l);
    cli_text_findings(c, stdout, ckpt_run_list_findings(v->list), c->quiet ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_NOTE,
                      "incomplete-step");
    if (c->quiet)
        return;
    if (run_newest(v))
        run_put_resume(v, run_newest(v));
    else if (v->count == 0)
        puts("nothing to resume from: nothing was saved yet");
    else
        puts(l->set & WITH_RANKS ? "nothing to resume from: no checkpoint is here with all its ranks"
                                 : "nothing to resume from: no checkpoint is complete");
}

static void list_json(const run_view *v, const layout *l)
{
    const ckpt_run_entry *newest = run_newest(v);
    json_out j;
    json_document(&j);
    json_text(&j, "format", "run");
    json_text(&j, "kind", "directory");
    json_text(&j, "producer", "ckpt");
    if (newest)
        json_int(&j, "step", newest->step);
    else
        json_null(&j, "step");
    json_null(&j, "epoch");
    json_uint(&j, "nbytes", l->nbytes);
    show_json_unsaid(&j);
    json_text(&j, "writer", ckpt_run_list_writer(v->list));
    checkpoints_json(&j, l->rows, v->count, l->set);
    if (l->remove) {
        json_object(&j, "retention");
        json_int(&j, "keep_last", l->rule.keep_last);
        json_int(&j, "keep_every", l->rule.keep_every);
        json_uint(&j, "removed", l->removed);
        json_uint(&j, "removed_nbytes", l->removed_bytes);
        json_end_object(&j);
    }
    json_null(&j, "best"); /* a run keeps no score */
    json_text(&j, "last", newest ? newest->path : NULL);
    json_null(&j, "monitor");
    json_null(&j, "mode");
    char *resume = newest ? run_resume_command(v) : NULL;
    json_text(&j, "resume", resume);
    free(resume);
    cli_json_findings(&j, ckpt_run_list_findings(v->list), NULL, CKPT_SEVERITY_NOTE);
    json_end_object(&j);
}

/* ---- --report */

void run_report_note(report_list *out, const ckpt_run_entry *from)
{
    if (from->world > 1)
        snprintf(out->note, sizeof out->note, "Devices and sizes below are of one rank's part: %s", from->path);
}

static int show_report(const run_view *v, const layout *l)
{
    const ckpt_run_entry *newest = run_newest(v);
    char *resume = newest ? run_resume_command(v) : NULL;
    report_list page = {.command = "show",
                        .says = "What this run directory holds",
                        .rows = l->rows,
                        .count = v->count,
                        .set = l->set & WITH_PLAN,
                        .newest_first = true,
                        .findings = ckpt_run_list_findings(v->list),
                        .resume = resume,
                        .recommended = newest ? newest->path : NULL};
    if (newest)
        run_report_note(&page, newest);
    int status = report_list_page(v->o, &page);
    free(resume);
    return status;
}

/* What the rule of --keep-last and --keep-every says of each. NULL: no memory. */
static bool *plan_of(const run_view *v, const ckpt_retention *rule)
{
    ckpt_retention_entry *entries = calloc(v->count + 1, sizeof *entries);
    bool *remove = entries ? calloc(v->count + 1, sizeof *remove) : NULL;
    for (size_t i = 0; remove && i < v->count; i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(v->list, i);
        entries[i] = (ckpt_retention_entry){.step = e->step, .complete = e->complete, .verified = e->verified};
    }
    if (remove)
        ckpt_retention_plan(rule, entries, v->count, remove);
    free(entries);
    return remove;
}

/* Of several PATHs. */
static int show_in_line(const run_view *v, uint64_t nbytes)
{
    char verdict[80];
    const ckpt_run_entry *newest = run_newest(v);
    snprintf(verdict, sizeof verdict, "%zu checkpoint%s", v->count, v->count == 1 ? "" : "s");
    const show_line own = {.path = v->path,
                           .format = "run",
                           .producer = "ckpt",
                           .verdict = verdict,
                           .step = newest ? newest->step : -1,
                           .epoch = -1,
                           .nbytes = nbytes};
    return show_line_add(&own) ? CLI_YES : cli_fail(&v->o->cli, "no-memory", "out of memory");
}

int run_show(const run_view *v)
{
    const command_line *o = v->o;
    layout l;
    bool *remove = NULL;
    memset(&l, 0, sizeof l);
    l.rule = (ckpt_retention){.keep_last = (int64_t)o->keep_last.n, .keep_every = (int64_t)o->keep_every.n};
    if (cli_has_selection(&o->cli) || o->by)
        return cli_usage(
            &o->cli,
            "%s: show lists the checkpoints of a run directory; --tensor, --role, --device and --by are for one of them",
            v->path);
    if (o->keep_last.text || o->keep_every.text) {
        remove = plan_of(v, &l.rule);
        if (!remove)
            return cli_fail(&o->cli, "no-memory", "out of memory");
        if (!o->keep_last.text)
            cli_warn(&o->cli,
                     "--keep-every adds to what --keep-last keeps; without --keep-last nothing is ever removed");
    }
    l.remove = remove;
    int status = CLI_YES;
    if (!lay_out(v, &l))
        status = cli_fail(&o->cli, "no-memory", "out of memory");
    else if (o->report)
        status = show_report(v, &l);
    if (status == CLI_YES && show_lines_wanted(o))
        status = show_in_line(v, l.nbytes);
    else if (status == CLI_YES && o->cli.json)
        list_json(v, &l);
    else if (status == CLI_YES)
        list_text(v, &l);
    free(l.rows);
    free(remove);
    return status;
}
