/* model/report.c - findings and device rows. */
#include "model/index.h"

#include <stdio.h>
#include <stdlib.h>

/* Findings in the order in which they were added, and one row for each device. */
struct ckpt_report {
    ckpt__arena *strings;   /* owned: all texts of findings */
    ckpt_finding *findings; /* heap, owned */
    size_t count, capacity;
    ckpt_device_use *devices; /* heap, owned */
    size_t device_count, device_capacity;
};

ckpt_report *ckpt_report_new(void)
{
    ckpt_report *r = calloc(1, sizeof *r);
    if (r && !(r->strings = ckpt__arena_new(0))) {
        free(r);
        r = NULL;
    }
    return r;
}

void ckpt_report_free(ckpt_report *r)
{
    if (!r)
        return;
    ckpt__arena_free(r->strings);
    free(r->findings);
    free(r->devices);
    free(r);
}

void ckpt_report_clear(ckpt_report *r)
{
    if (!r)
        return;
    ckpt__arena *fresh = ckpt__arena_new(0);
    if (fresh) { /* otherwise the old strings just stay until the end */
        ckpt__arena_free(r->strings);
        r->strings = fresh;
    }
    r->count = r->device_count = 0;
}

size_t ckpt_report_count(const ckpt_report *r)
{
    return r ? r->count : 0;
}

const ckpt_finding *ckpt_report_get(const ckpt_report *r, size_t i)
{
    return r && i < r->count ? &r->findings[i] : NULL;
}

size_t ckpt_report_count_code(const ckpt_report *r, const char *code)
{
    size_t n = 0;
    for (size_t i = 0; r && i < r->count; i++)
        n += strcmp(r->findings[i].code, code) == 0;
    return n;
}

const ckpt_finding *ckpt_report_find(const ckpt_report *r, const char *code, const char *tensor)
{
    for (size_t i = 0; r && i < r->count; i++)
        if ((!code || strcmp(r->findings[i].code, code) == 0) &&
            (!tensor || strcmp(r->findings[i].tensor, tensor) == 0))
            return &r->findings[i];
    return NULL;
}

ckpt_severity ckpt_report_worst(const ckpt_report *r)
{
    ckpt_severity worst = CKPT_SEVERITY_NOTE;
    for (size_t i = 0; r && i < r->count; i++)
        if (r->findings[i].severity > worst)
            worst = r->findings[i].severity;
    return worst;
}

const char *ckpt_severity_name(ckpt_severity severity)
{
    return severity == CKPT_SEVERITY_ERROR ? "error" : severity == CKPT_SEVERITY_WARNING ? "warning" : "note";
}

size_t ckpt_report_device_count(const ckpt_report *r)
{
    return r ? r->device_count : 0;
}

const ckpt_device_use *ckpt_report_device(const ckpt_report *r, size_t i)
{
    return r && i < r->device_count ? &r->devices[i] : NULL;
}

static const char *keep(ckpt_report *r, const char *text)
{
    return !text || !*text ? "" : ckpt__arena_copy(r->strings, text, strlen(text));
}

/* ---- fixes */

enum { FIX_KINDS = 5 };
/* A kind, by how its text begins: CKPT__FIX_SHELL is 1. */
static const char *const fix_kinds[FIX_KINDS] = {"shell", "python", "c", "config", "advice"};

static bool begins_fix(char c)
{
    return c > 0 && c <= FIX_KINDS;
}

static bool add_fix(ckpt_report *r, ckpt_finding *f, ckpt_fix **fixes, char kind, const char *text, size_t size)
{
    const char *kept = ckpt__arena_copy(r->strings, text, size);
    ckpt_fix *fix = ckpt__arena_array(r->strings, 1, sizeof *fix);
    if (!kept || !fix)
        return false;
    *fix = (ckpt_fix){begins_fix(kind) ? fix_kinds[kind - 1] : "advice", kept};
    fixes[f->fix_count++] = fix;
    return true;
}

/* The texts of all in one, as `fix` has them. */
static const char *join_fixes(ckpt_report *r, const ckpt_finding *f)
{
    ckpt__buf b = {NULL, 0, 0, false};
    for (size_t i = 0; i < f->fix_count; i++)
        ckpt__buf_printf(&b, "%s%s", i ? "; or: " : "", f->fixes[i]->text);
    const char *kept = b.failed ? NULL : keep(r, b.data);
    ckpt__buf_free(&b);
    return kept;
}

/* The alternatives of a text. */
static bool set_fixes(ckpt_report *r, ckpt_finding *f, const char *text)
{
    bool several = text && begins_fix(*text);
    size_t most = 1, size;
    for (const char *p = text; several && *p; p++)
        most += begins_fix(*p);
    ckpt_fix **fixes = text && *text ? ckpt__arena_array(r->strings, most, sizeof(ckpt_fix *)) : NULL;
    if (text && *text && !fixes)
        return false;
    for (const char *p = text; fixes && *p; p += size) {
        char kind = several ? *p++ : 0;
        for (size = 0; p[size] && !(several && begins_fix(p[size])); size++)
            ;
        if (size > 0 && !add_fix(r, f, fixes, kind, p, size))
            return false;
    }
    f->fixes = f->fix_count ? (const ckpt_fix *const *)fixes : NULL;
    f->fix = f->fix_count > 1 ? join_fixes(r, f) : f->fix_count ? f->fixes[0]->text : "";
    return f->fix != NULL;
}

bool ckpt__report_add(ckpt_report *r, ckpt_severity severity, const char *code, const char *tensor, const char *fix,
                      const char *format, ...)
{
    char small[1024], *text = small;
    if (!r)
        return true;
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, format, ap);
    va_end(ap);
    if (n >= (int)sizeof small) {
        text = malloc((size_t)n + 1);
        if (text)
            vsnprintf(text, (size_t)n + 1, format, again);
    }
    va_end(again);
    if (n < 0 || !text || !ckpt__grow(&r->findings, &r->capacity, r->count + 1, sizeof *r->findings)) {
        if (text != small)
            free(text);
        return false;
    }
    ckpt_finding f = {.severity = severity,
                      .code = keep(r, code),
                      .message = keep(r, text),
                      .fix = "",
                      .tensor = keep(r, tensor),
                      .file = "",
                      .from = "",
                      .to = "",
                      .nbytes = 0};
    if (text != small)
        free(text);
    if (!f.code || !f.message || !f.tensor || !set_fixes(r, &f, fix))
        return false;
    r->findings[r->count++] = f;
    return true;
}

bool ckpt__report_tensor(ckpt_report *r, ckpt_str name)
{
    if (!r || r->count == 0 || !name.data)
        return !r || !name.data;
    size_t size = 4 * name.size + 1; /* a byte is four characters at most */
    char *text = malloc(size);
    const char *kept = text ? keep(r, ckpt__escape(text, size, name.data, name.size)) : NULL;
    free(text);
    if (kept)
        r->findings[r->count - 1].tensor = kept;
    return kept != NULL;
}

bool ckpt__report_detail(ckpt_report *r, const char *file, const char *from, const char *to, uint64_t nbytes)
{
    if (!r || r->count == 0)
        return r == NULL;
    ckpt_finding *f = &r->findings[r->count - 1];
    const char *a = keep(r, file), *b = keep(r, from), *c = keep(r, to);
    if (!a || !b || !c)
        return false;
    f->file = a;
    f->from = b;
    f->to = c;
    f->nbytes = nbytes;
    return true;
}

bool ckpt__report_use(ckpt_report *r, ckpt_device device, ckpt_role role, uint64_t nbytes)
{
    if (!r)
        return true;
    size_t i = 0;
    while (i < r->device_count && !ckpt_device_equal(r->devices[i].device, device))
        i++;
    if (i == r->device_count) {
        if (!ckpt__grow(&r->devices, &r->device_capacity, i + 1, sizeof *r->devices))
            return false;
        uint64_t *by_role = ckpt__arena_array(r->strings, CKPT__ROLE_COUNT, sizeof *by_role);
        if (!by_role)
            return false;
        r->devices[i] = (ckpt_device_use){.device = device, .by_role = by_role, .role_count = CKPT__ROLE_COUNT};
        r->device_count++;
    }
    r->devices[i].tensors++;
    r->devices[i].nbytes += nbytes;
    if (role >= 0 && role < CKPT__ROLE_COUNT)
        ((uint64_t *)(uintptr_t)r->devices[i].by_role)[role] += nbytes; /* made above */
    return true;
}

void ckpt__report_cut(ckpt_report *r, size_t count)
{
    if (!r)
        return;
    r->count = count < r->count ? count : r->count;
    r->device_count = 0;
}

/* The text that set_fixes takes apart into these. */
static void put_fixes(ckpt__buf *b, const ckpt_finding *f)
{
    for (size_t i = 0; i < f->fix_count; i++) {
        size_t k = 0;
        while (k + 1 < FIX_KINDS && strcmp(f->fixes[i]->kind, fix_kinds[k]) != 0)
            k++;
        ckpt__buf_char(b, (char)(k + 1));
        ckpt__buf_str(b, f->fixes[i]->text);
    }
}

bool ckpt__report_repeat(ckpt_report *r, const ckpt_finding *f, ckpt_severity severity, const char *code)
{
    ckpt__buf fixes = {NULL, 0, 0, false};
    put_fixes(&fixes, f);
    bool added = !fixes.failed && ckpt__report_add(r, severity, code, f->tensor, fixes.data, "%s", f->message) &&
                 ckpt__report_detail(r, f->file, f->from, f->to, f->nbytes);
    ckpt__buf_free(&fixes);
    return added;
}

bool ckpt__report_merge(ckpt_report *into, const ckpt_report *from)
{
    for (size_t i = 0; into && from && i < from->count; i++)
        if (!ckpt__report_repeat(into, &from->findings[i], from->findings[i].severity, from->findings[i].code))
            return false;
    return true;
}

enum { SHOWN = 8 };

/* The i-th wrong thing and on: its name alone where all say the same. False where the error record has no room. */
static bool show_wrong(ckpt__buf *text, const ckpt_finding *f, size_t shown, bool names_only)
{
    size_t before = text->size;
    ckpt__buf_str(text, shown == 0 ? "" : names_only ? ", " : "; ");
    if (*f->tensor)
        ckpt__buf_printf(text, "'%s'%s", f->tensor, names_only ? "" : ": ");
    if (!names_only)
        ckpt__buf_str(text, f->message);
    if (shown == 0 || text->size <= 600 || text->failed)
        return true;
    text->size = before; /* the report has the rest */
    text->data[before] = '\0';
    return false;
}

ckpt_status ckpt__report_fail(const ckpt_report *r, ckpt_severity at_least, ckpt_status status, const char *object,
                              ckpt_error *err)
{
    ckpt__buf text = {0};
    size_t wrong = 0, shown = 0;
    const ckpt_finding *first = NULL;
    bool alike = true; /* one sentence holds for all of them */
    for (size_t i = 0; r && i < r->count; i++) {
        const ckpt_finding *f = &r->findings[i];
        if (f->severity < at_least)
            continue;
        first = first ? first : f;
        alike &= *f->tensor && strcmp(f->message, first->message) == 0;
        wrong++;
    }
    alike &= wrong > 1;
    if (alike)
        ckpt__buf_printf(&text, "%zu times: %s: ", wrong, first->message);
    else if (wrong > 1)
        ckpt__buf_printf(&text, "%zu things are wrong: ", wrong);
    for (size_t i = 0; r && i < r->count && shown < SHOWN; i++)
        if (r->findings[i].severity >= at_least) {
            if (!show_wrong(&text, &r->findings[i], shown, alike))
                break;
            shown++;
        }
    if (shown < wrong)
        ckpt__buf_printf(&text, " and %zu more", wrong - shown);
    if (first && *first->fix)
        ckpt__buf_printf(&text, "; %s%s", alike || wrong == 1 ? "" : "for the first: ", first->fix);
    ckpt__fail(err, status, object, "%s",
               text.data && !text.failed ? text.data : "several things are wrong (see the report)");
    ckpt__buf_free(&text);
    return status;
}
