/* inspect/diff_markdown.c - diff --markdown: what differs as tables for an issue or a pull request. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/diff_order.h"
#include "cli/inspect/diff_words.h"
#include "cli/out/rows.h"

/* A sentence, escaped already, of which no character is a mark. */
static void put_prose(const char *text)
{
    char *safe = malloc(2 * strlen(text) + 1), *end = safe;
    for (const char *p = text; safe && *p; p++) {
        if (strchr("\\`*_{}[]<>#|~&", *p))
            *end++ = '\\';
        *end++ = *p;
    }
    if (safe)
        printf("%.*s", (int)(end - safe), safe);
    free(safe);
}

static void put_findings(const ckpt_report *report)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        printf("%s- %s `%s`", i ? "" : "\n", ckpt_severity_name(f->severity), f->code);
        if (*f->tensor) {
            putchar(' ');
            rows_put_markdown_message(f->tensor, true);
        }
        fputs(": ", stdout);
        put_prose(f->message);
        putchar('\n');
    }
}

/* The columns that some tensor has something for. */
typedef struct columns {
    bool values, nan;
} columns;

static columns columns_of(const ckpt_diff_result *r)
{
    columns have = {false, false};
    for (size_t i = 0; i < r->tensor_count; i++) {
        const ckpt_diff_tensor *t = r->tensors[i];
        have.values |= t->compared && t->what & CKPT_DIFF_VALUE;
        have.nan |= t->nan_mismatch > 0;
    }
    return have;
}

/* A | inside a head is no end of a column. */
static void put_roles(const ckpt_diff_result *r, columns have)
{
    diff_tally all[DIFF_ROLES];
    size_t differing, count = diff_tallies(r, all, &differing);
    if (!count)
        return;
    printf("\n| role | changed | added | removed |%s%s\n| --- | ---: | ---: | ---: |%s%s\n",
           have.values ? " max \\|a-b\\| |" : "", have.nan ? " tensors with NaN in one only |" : "",
           have.values ? " ---: |" : "", have.nan ? " ---: |" : "");
    for (size_t i = 0; i < count; i++) {
        const diff_tally *t = &all[i];
        printf("| %s | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " |", t->role, t->changed, t->added, t->removed);
        if (have.values && t->max_abs > 0)
            printf(" %.3g |", t->max_abs);
        else if (have.values)
            fputs(" - |", stdout);
        if (have.nan)
            printf(" %" PRIu64 " |", t->nan);
        putchar('\n');
    }
}

/* "| changed | `name` (B: `other`) | " */
static void put_name(ckpt_diff_status status, ckpt_str name, ckpt_str other)
{
    const ckpt_str empty = {"\"\"", 2};
    printf("| %s | ", ckpt_diff_status_name(status));
    rows_put_markdown(name.size ? name : empty, true);
    if (other.data && !diff_same_text(other, name)) {
        fputs(" (B: ", stdout);
        rows_put_markdown(other.size ? other : empty, true);
        putchar(')');
    }
    fputs(" | ", stdout);
}

/* What `put` writes, as code: words of a file are in it. Nothing is "-". */
static void put_words(void (*put)(FILE *f, const void *of), const void *of)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (f)
        put(f, of);
    if (f && fclose(f) == 0) {
        const char *words = text + strspn(text, " ");
        if (*words)
            rows_put_markdown_message(words, true);
        else
            putchar('-');
    }
    free(text);
}

static void write_change(FILE *f, const void *of)
{
    const ckpt_diff_tensor *t = of;
    diff_put_change(f, t);
    if (t->a && t->b && t->what & CKPT_DIFF_VALUE)
        fputs(t->compared ? "  value" : "  value: one of them has no data", f);
}

static void write_scalar(FILE *f, const void *of)
{
    diff_put_scalar(f, of);
}

static void put_tensor(const ckpt_diff_tensor *t, columns have)
{
    put_name(t->status, t->name, t->a && t->b ? t->b->name : (ckpt_str){NULL, 0});
    put_words(write_change, t);
    fputs(" |", stdout);
    if (have.values && t->compared && t->what & CKPT_DIFF_VALUE)
        printf(" %" PRIu64 " of %" PRIu64 " | %.3g | %.3g |", t->differing, t->elements, t->max_abs, t->max_rel);
    else if (have.values)
        fputs(" - | - | - |", stdout);
    if (have.nan)
        printf(" %" PRIu64 " |", t->nan_mismatch);
    putchar('\n');
}

int diff_markdown(const command_line *o, const ckpt_diff_result *r, const ckpt_report *report)
{
    const size_t limit = o->limit.text ? (size_t)o->limit.n : SIZE_MAX;
    const columns have = columns_of(r);
    size_t count = 0, *order = diff_order(r, &count);
    if (!order)
        return cli_fail(&o->cli, "no-memory", "out of memory for %zu tensors", r->tensor_count);
    for (int i = 0; i < 2; i++) {
        rows_put_markdown((ckpt_str){o->paths[i], strlen(o->paths[i])}, true);
        fputs(i ? ": " : " and ", stdout);
    }
    puts(r->same ? "**the same**\n" : "**different**\n");
    diff_put_counts("- tensors", &r->of_tensors);
    if (!cli_has_selection(&o->cli))
        diff_put_counts("- values", &r->of_scalars);
    put_roles(r, have);
    if (count)
        printf("\n| status | tensor | from A to B |%s%s\n| --- | --- | --- |%s%s\n",
               have.values ? " values | max \\|a-b\\| | relative |" : "", have.nan ? " NaN in one only |" : "",
               have.values ? " ---: | ---: | ---: |" : "", have.nan ? " ---: |" : "");
    for (size_t i = 0; i < count && i < limit; i++)
        put_tensor(r->tensors[order[i]], have);
    free(order);
    if (r->scalar_count)
        puts("\n| status | value | from A to B |\n| --- | --- | --- |");
    for (size_t i = 0; i < r->scalar_count && i < limit; i++) {
        const ckpt_diff_scalar *s = r->scalars[i];
        put_name(s->status, s->name, s->name_a.data && s->name_b.data ? s->name_b : (ckpt_str){NULL, 0});
        put_words(write_scalar, s);
        puts(" |");
    }
    if (count > limit || r->scalar_count > limit)
        printf("\n%zu more tensors and %zu more values differ (--limit).\n", count > limit ? count - limit : 0,
               r->scalar_count > limit ? r->scalar_count - limit : 0);
    if (!o->cli.quiet)
        put_findings(report);
    return r->same ? CLI_YES : CLI_NO;
}
