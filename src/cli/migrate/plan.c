/* migrate/plan.c - the plan of a dry run: each tensor, and where its bytes come from. */
#include "cli/migrate/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one step */

bool plan_is_step(const ckpt_finding *f)
{
    static const char *const steps[] = {"copy", "moved", "cast", "renamed", "dropped"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (strcmp(f->code, steps[i]) == 0)
            return true;
    return false;
}

/* Steps of one kind, devices and dtypes: "moved  89 tensors, cuda:0 -> cpu". */
typedef struct kind {
    const ckpt_finding *first;
    size_t count;
} kind;

static bool is_alike(const ckpt_finding *a, const ckpt_finding *b)
{
    bool names = strcmp(a->code, "renamed") == 0 || strcmp(a->code, "dropped") == 0; /* each has others */
    return strcmp(a->code, b->code) == 0 && (names || (strcmp(a->from, b->from) == 0 && strcmp(a->to, b->to) == 0));
}

static void put_kind(const kind *k)
{
    const ckpt_finding *f = k->first;
    char n[CLI_SIZE_MAX];
    if (k->count == 1) {
        plan_step_text(f);
        return;
    }
    printf("%-6s %s tensors", f->code, cli_count(n, k->count));
    if (strcmp(f->code, "moved") == 0 || strcmp(f->code, "cast") == 0)
        printf(", %s -> %s", *f->from ? f->from : "-", f->to);
    putchar('\n');
}

void plan_summary(const ckpt_report *report)
{
    enum { KINDS = 64 };
    kind kinds[KINDS];
    size_t count = 0, others = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        size_t k = 0;
        if (!plan_is_step(f) || strcmp(f->code, "copy") == 0)
            continue;
        while (k < count && !is_alike(kinds[k].first, f))
            k++;
        if (k == KINDS) {
            others++;
            continue;
        }
        if (k == count)
            kinds[count++] = (kind){f, 0};
        kinds[k].count++;
    }
    for (size_t k = 0; k < count; k++)
        put_kind(&kinds[k]);
    if (others)
        printf("and %zu tensors with other devices or dtypes (-v lists each)\n", others);
}

/* One that the rows of a tensor follow. */
static bool has_rows(const ckpt_finding *f)
{
    return strcmp(f->code, "copy") == 0 || strcmp(f->code, "moved") == 0;
}

void plan_step_text(const ckpt_finding *f)
{
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

void plan_step_json(json_out *j, const ckpt_finding *f, bool open)
{
    json_object(j, NULL);
    json_text(j, "action", f->code);
    json_text(j, "name", f->tensor);
    json_text(j, "from", *f->from ? f->from : NULL);
    json_text(j, "to", *f->to ? f->to : NULL);
    json_uint(j, "nbytes", f->nbytes);
    if (!open)
        json_end_object(j);
}

/* ---- a row as JSON */

static const char *word_of(uint32_t value, const char *const *words, size_t count)
{
    return value < count ? words[value] : NULL;
}

static void put_changes(json_out *j, uint32_t change)
{
    static const char *const words[] = {"converted", "swapped", "conj-resolved", "neg-resolved"};
    json_array(j, "change");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (change >> i & 1)
            json_text(j, NULL, words[i]);
    json_end_array(j);
}

static void put_source(json_out *j, const ckpt_migrate_source *r)
{
    static const char *const whats[] = {NULL, "box", "replica", "storage", "shared", "nothing", "file"},
                             *const places[] = {NULL, "file", "record", "memory", "computed"};
    json_object(j, NULL);
    json_text(j, "what", word_of(r->what, whats, sizeof whats / sizeof *whats));
    if (r->flat) {
        json_uint(j, "begin", r->flat_begin);
        json_uint(j, "count", r->flat_count);
    } else if (r->lo || r->what != CKPT_MIGRATE_FILE) {
        json_sizes(j, "lo", r->lo, r->ndim);
        json_sizes(j, "size", r->size, r->ndim);
    }
    json_uint(j, "nbytes", r->nbytes);
    json_bytes(j, "tensor", r->from_name.data, r->from_name.size);
    json_text(j, "dtype", r->from_dtype == CKPT_DTYPE_NONE ? NULL : ckpt_dtype_name(r->from_dtype));
    json_text(j, "place", word_of(r->place, places, sizeof places / sizeof *places));
    json_bytes(j, "file", r->from_file.data, r->from_file.size);
    json_bytes(j, "storage", r->from_storage.data, r->from_storage.size);
    json_uint(j, "from", r->from_begin);
    json_uint(j, "to", r->from_end);
    if (r->strides)
        json_sizes(j, "strides", r->strides, r->ndim);
    if (r->place == CKPT_MIGRATE_IN_RECORD) {
        json_uint(j, "record_from", r->record_begin);
        json_uint(j, "record_to", r->record_end);
        json_uint(j, "passes", r->passes);
    }
    if (r->piece_lo) {
        json_sizes(j, "piece_lo", r->piece_lo, r->ndim);
        json_sizes(j, "piece_size", r->piece_size, r->ndim);
    } else if (r->piece_flat_count) {
        json_uint(j, "piece_begin", r->piece_flat_begin);
        json_uint(j, "piece_count", r->piece_flat_count);
    }
    if (r->what == CKPT_MIGRATE_SHARED)
        json_bytes(j, "shares", r->shares.data, r->shares.size);
    put_changes(j, r->change);
    json_end_object(j);
}

/* ---- a row as text */

static bool in_copied_file(const ckpt_migrate_source *r)
{
    return r->what == CKPT_MIGRATE_SHARED && r->file.data && r->shares.data &&
           strcmp(r->file.data, r->shares.data) == 0;
}

static void put_box(const ckpt_migrate_source *r)
{
    if (r->flat) {
        printf("%s %" PRIu64 ":%" PRIu64, r->what == CKPT_MIGRATE_STORAGE ? "bytes" : "elements", r->flat_begin,
               r->flat_begin + r->flat_count);
        return;
    }
    putchar('[');
    for (uint32_t i = 0; i < r->ndim; i++)
        printf("%s%" PRId64 ":%" PRId64, i ? ", " : "", r->lo[i], r->lo[i] + r->size[i]);
    putchar(']');
}

static void put_changes_text(uint32_t change, ckpt_dtype from, ckpt_dtype to)
{
    if (change & CKPT_MIGRATE_CONVERTED)
        printf(", %s -> %s", ckpt_dtype_name(from), ckpt_dtype_name(to));
    if (change & CKPT_MIGRATE_SWAPPED)
        fputs(", bytes swapped", stdout);
    if (change & CKPT_MIGRATE_CONJ_RESOLVED)
        fputs(", conjugated", stdout);
    if (change & CKPT_MIGRATE_NEG_RESOLVED)
        fputs(", negated", stdout);
}

/* "       [4:8, 0:4] of rank1.pt, bytes 64:128 (w)" */
static void put_row_text(const plan_out *p, const ckpt_migrate_source *r)
{
    const char *slash = strrchr(p->source, '/'), *own = slash && slash[1] ? slash + 1 : p->source;
    if (r->what == CKPT_MIGRATE_NOTHING)
        return;
    fputs("       ", stdout);
    if (r->what != CKPT_MIGRATE_FILE) {
        put_box(r);
        fputs(r->what == CKPT_MIGRATE_REPLICA ? " not read of " : " of ", stdout);
    }
    if (r->place == CKPT_MIGRATE_IN_MEMORY)
        fputs("the metadata", stdout);
    else if (r->place == CKPT_MIGRATE_COMPUTED)
        fputs("the source and the adapter, merged", stdout);
    else
        cli_put_str(stdout, r->from_file, own);
    if (r->place == CKPT_MIGRATE_IN_RECORD)
        printf(", record at %" PRIu64 ":%" PRIu64, r->record_begin, r->record_end);
    printf(", bytes %" PRIu64 ":%" PRIu64, r->from_begin, r->from_end);
    if (r->from_name.data && r->what != CKPT_MIGRATE_STORAGE &&
        (r->from_name.size != r->name.size || memcmp(r->from_name.data, r->name.data, r->name.size) != 0)) {
        fputs(" (", stdout);
        cli_put_str(stdout, r->from_name, "-");
        putchar(')');
    }
    put_changes_text(r->change, r->from_dtype, r->dtype);
    if (r->what == CKPT_MIGRATE_SHARED) {
        fputs(in_copied_file(r) ? ", copied with its file" : ", with ", stdout);
        if (!in_copied_file(r))
            cli_put_str(stdout, r->shares, "a storage");
    }
    if (r->passes)
        printf(", decoded %" PRIu64 " time%s", r->passes, r->passes == 1 ? "" : "s");
    putchar('\n');
}

/* The name, escaped as the output has it, cut where it is very long. */
static void keep_text(char out[200], ckpt_str s, const char *otherwise)
{
    FILE *f = fmemopen(out, 200, "w");
    if (!f)
        return;
    cli_put_str(f, s, otherwise);
    fclose(f);
    out[199] = 0;
}

/* One line of a tensor that is not plainly one piece of one file. */
static void put_summary(const plan_out *p)
{
    bool several = p->files.count > 1;
    char last[200] = "";
    if (p->what == CKPT_MIGRATE_SHARED) {
        printf("       shares the bytes of %s\n", p->shares);
        return;
    }
    if (p->boxes < 2 && !p->change && !p->passes && !p->replicas)
        return;
    printf("       from %" PRIu64 " piece%s", p->boxes, p->boxes == 1 ? "" : "s");
    if (several) {
        keep_text(last, (ckpt_str){p->last, p->last_size}, "");
        printf(" of %zu files (%s ... %s)", p->files.count, p->first, last);
    } else if (*p->first)
        printf(" of %s", p->first);
    put_changes_text(p->change, p->from_dtype, p->dtype);
    if (p->replicas)
        printf(", %" PRIu64 " replica%s not read", p->replicas, p->replicas == 1 ? "" : "s");
    if (p->passes)
        printf(", decoded %" PRIu64 " time%s", p->passes, p->passes == 1 ? "" : "s");
    putchar('\n');
}

/* ---- a tensor */

static void close_tensor(plan_out *p)
{
    if (p->open && p->json) {
        json_end_array(p->json);
        json_end_object(p->json);
    } else if (p->open && !p->verbose)
        put_summary(p);
    strset_free(&p->files);
    p->open = false;
}

static void begin(plan_out *p)
{
    size_t count = ckpt_report_count(p->report);
    p->begun = true;
    p->begin(p->ctx);
    p->failed = !(p->shown = calloc(count / 8 + 1, 1));
    for (size_t i = 0; i < count; i++) {
        const ckpt_finding *f = ckpt_report_get(p->report, i);
        if (!plan_is_step(f) || has_rows(f))
            continue;
        if (p->json)
            plan_step_json(p->json, f, false);
        else
            plan_step_text(f);
    }
}

static bool is_open_for(const plan_out *p, const ckpt_migrate_source *r)
{
    return p->open && r->what != CKPT_MIGRATE_STORAGE && r->what != CKPT_MIGRATE_FILE && p->finding == r->finding &&
           p->name_size == r->name.size && memcmp(p->name, r->name.data, r->name.size) == 0;
}

static const char *action_of(const ckpt_migrate_source *r)
{
    return r->what == CKPT_MIGRATE_STORAGE ? "storage" : r->what == CKPT_MIGRATE_FILE ? "file" : "copy";
}

/* A row without a finding gets a line of its own. */
static void put_own_step(const plan_out *p, const ckpt_migrate_source *r)
{
    bool copied = r->what == CKPT_MIGRATE_FILE;
    ckpt_str name = copied ? r->file : r->name;
    if (!p->json) {
        printf("%-6s %-18s ", copied ? "file" : r->what == CKPT_MIGRATE_STORAGE ? "whole" : "copy", "-");
        cli_put_str(stdout, name, "a storage");
        putchar('\n');
        return;
    }
    json_object(p->json, NULL);
    json_text(p->json, "action", action_of(r));
    json_bytes(p->json, "name", name.data, name.size);
    json_null(p->json, "from");
    json_null(p->json, "to");
    json_uint(p->json, "nbytes", r->nbytes);
}

static bool open_tensor(plan_out *p, const ckpt_migrate_source *r)
{
    const ckpt_finding *f = r->finding == SIZE_MAX ? NULL : ckpt_report_get(p->report, r->finding);
    close_tensor(p);
    if (r->what == CKPT_MIGRATE_FILE && !p->json && !p->verbose)
        return true;
    if (f && p->json)
        plan_step_json(p->json, f, true);
    else if (f)
        plan_step_text(f);
    else
        put_own_step(p, r);
    if (f)
        p->shown[r->finding / 8] |= (unsigned char)(1u << (r->finding % 8));
    if (p->json) {
        json_bytes(p->json, "file", r->file.data, r->file.size);
        json_array(p->json, "sources");
    }
    char *name = realloc(p->name, r->name.size + 1);
    if (!name)
        return false;
    p->name = name;
    p->name_size = r->name.size;
    if (r->name.size)
        memcpy(name, r->name.data, r->name.size);
    p->finding = r->finding;
    p->open = true;
    p->boxes = p->replicas = p->passes = 0;
    p->change = 0;
    p->first[0] = 0;
    p->last_size = 0;
    return true;
}

/* Of a tensor of a thousand ranks each of its files is the last one for a moment. */
static void keep_file(plan_out *p, ckpt_str file)
{
    if (p->files.count == 1) {
        keep_text(p->first, file, "");
        return;
    }
    p->last_size = file.size < sizeof p->last ? file.size : sizeof p->last;
    memcpy(p->last, file.data, p->last_size);
}

static bool count_row(plan_out *p, const ckpt_migrate_source *r)
{
    p->what = in_copied_file(r) ? CKPT_MIGRATE_FILE : r->what;
    if (r->what == CKPT_MIGRATE_SHARED)
        keep_text(p->shares, r->shares, "a storage");
    p->replicas += r->what == CKPT_MIGRATE_REPLICA;
    if (r->what != CKPT_MIGRATE_BOX && r->what != CKPT_MIGRATE_STORAGE)
        return true;
    p->boxes++;
    p->change |= r->change;
    p->dtype = r->dtype;
    p->from_dtype = r->from_dtype;
    p->passes = r->passes > p->passes ? r->passes : p->passes;
    int added = r->from_file.data ? strset_add(&p->files, r->from_file.data, r->from_file.size) : 0;
    if (added > 0)
        keep_file(p, r->from_file);
    return added >= 0;
}

ckpt_status plan_row(void *ctx, const ckpt_migrate_source *r, ckpt_error *err)
{
    plan_out *p = ctx;
    (void)err;
    if (!p->begun)
        begin(p);
    if (cli_signal_caught())
        return CKPT_E_CANCELLED;
    bool made = !p->failed && (is_open_for(p, r) || open_tensor(p, r));
    if (made && p->json) {
        if (r->what != CKPT_MIGRATE_NOTHING)
            put_source(p->json, r);
    } else if (made && p->verbose)
        put_row_text(p, r);
    else if (made)
        made = count_row(p, r);
    return made ? CKPT_OK : CKPT_E_NO_MEMORY;
}

void plan_end(plan_out *p)
{
    if (!p->begun)
        begin(p);
    close_tensor(p);
    for (size_t i = 0; p->shown && i < ckpt_report_count(p->report); i++) {
        const ckpt_finding *f = ckpt_report_get(p->report, i);
        if (!has_rows(f) || p->shown[i / 8] >> (i % 8) & 1)
            continue;
        if (p->json)
            plan_step_json(p->json, f, false);
        else
            plan_step_text(f);
    }
}

void plan_begin_ledger(plan_out *p)
{
    if (p->ledger)
        return;
    plan_end(p);
    json_end_array(p->json);
    json_array(p->json, "ledger");
    p->ledger = true;
}

ckpt_status plan_ledger_row(void *ctx, const ckpt_migrate_row *r, ckpt_error *err)
{
    plan_out *p = ctx;
    (void)err;
    if (cli_signal_caught())
        return CKPT_E_CANCELLED;
    plan_begin_ledger(p);
    json_object(p->json, NULL);
    json_bytes(p->json, "name", r->name.data, r->name.size);
    json_text(p->json, "fate", r->fate);
    json_text(p->json, "why", r->why);
    json_bytes(p->json, "from", r->from_name.data, r->from_name.size);
    json_bytes(p->json, "file", r->from_file.data, r->from_file.size);
    json_text(p->json, "dtype", ckpt_dtype_name(r->dtype));
    json_text(p->json, "from_dtype", ckpt_dtype_name(r->from_dtype));
    json_bytes(p->json, "device", r->tag.data, r->tag.size);
    json_bytes(p->json, "from_device", r->from_tag.data, r->from_tag.size);
    json_text(p->json, "role", ckpt_role_name((ckpt_role)r->role));
    json_bytes(p->json, "layout", r->layout.data, r->layout.size);
    json_text(p->json, "storage", r->storage);
    json_end_object(p->json);
    return CKPT_OK;
}

void plan_free(plan_out *p)
{
    free(p->shown);
    free(p->name);
    strset_free(&p->files);
}
