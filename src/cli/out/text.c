/* out/text.c - text for people, findings, progress. */
#include "cli/out/cli.h"
#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The escape of one character of text, or 0 where it is printed as it is. Controls of both blocks, the marks that
 * reverse the direction of a line, surrogates, and what is no character are escaped. */
static int escape(char *out, size_t size, const char *data, size_t left, size_t *taken)
{
    uint32_t c = 0;
    size_t n = json_decode(data, left, &c);
    *taken = n ? n : 1;
    if (n == 0)
        return snprintf(out, size, "\\x%02x", (unsigned char)*data);
    if (c == '\n' || c == '\t' || c == '\r' || c == '\\')
        return snprintf(out, size, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : '\\');
    if (c < 0x20 || (c >= 0x7f && c < 0xa0))
        return snprintf(out, size, "\\x%02" PRIx32, c);
    if ((c >= 0xd800 && c < 0xe000) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x200e ||
        c == 0x200f || c == 0x61c || c == 0xfeff || c == 0xfffe || c == 0xffff)
        return snprintf(out, size, "\\u%04" PRIx32, c);
    return 0;
}

/* Eight at once: none below ' ', no backslash, DEL or above. */
static bool is_plain(const char *data)
{
    const uint64_t each = UINT64_C(0x0101010101010101), high = each << 7;
    uint64_t w;
    memcpy(&w, data, 8);
    uint64_t slash = w ^ each * '\\';
    return ((w | (w - each * ' ') | (slash - each) | (w + each)) & high) == 0;
}

/* Bytes that are printed as they are, from `data` on. */
size_t cli_plain(const char *data, size_t size)
{
    size_t n = 0;
    while (n + 8 <= size && is_plain(data + n))
        n += 8;
    if (n > 0 && n + 8 > size && is_plain(data + size - 8))
        return size;
    while (n < size && data[n] >= ' ' && data[n] < 0x7f && data[n] != '\\')
        n++;
    return n;
}

void cli_put(FILE *f, const char *data, size_t size)
{
    for (size_t i = 0, taken; i < size; i += taken) {
        char text[16];
        if ((taken = cli_plain(data + i, size - i)) > 0) {
            fwrite_unlocked(data + i, 1, taken, f);
            continue;
        }
        int n = escape(text, sizeof text, data + i, size - i, &taken);
        fwrite(n ? text : data + i, 1, n ? (size_t)n : taken, f);
    }
}

void cli_put_message(FILE *f, const char *text)
{
    for (const char *end; (end = strchr(text, '\\')); text = end + 1) {
        cli_put(f, text, (size_t)(end - text));
        putc('\\', f);
    }
    cli_put(f, text, strlen(text));
}

size_t cli_width(const char *data, size_t size)
{
    size_t width = 0;
    for (size_t i = 0, taken; i < size; i += taken) {
        char text[16];
        if ((taken = cli_plain(data + i, size - i)) > 0) {
            width += taken;
            continue;
        }
        int n = escape(text, sizeof text, data + i, size - i, &taken);
        uint32_t code = 0;
        if (n == 0)
            (void)json_decode(data + i, size - i, &code);
        width += n ? (size_t)n : cli_char_width(code);
    }
    return width;
}

void cli_put_str(FILE *f, ckpt_str s, const char *otherwise)
{
    if (s.data)
        cli_put(f, s.data, s.size);
    else
        fputs(otherwise, f);
}

char *cli_size(char *buf, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t one = 1;
    while (bytes / 1024 >= one && unit + 1 < sizeof units / sizeof *units) {
        one *= 1024;
        unit++;
    }
    char *p = buf + CLI_SIZE_MAX - 8; /* without printf, which takes half the time of a list */
    uint64_t digits = bytes;
    *p = ' ';
    strcpy(p + 1, units[unit]);
    if (unit > 0) { /* tenths, rounded to nearest even */
        uint64_t rest = bytes % one, tenths = rest / (one / 1024) * 10,
                 part = rest % (one / 1024) * 10 + tenths % 1024 * (one / 1024);
        uint64_t whole = bytes / one * 10 + tenths / 1024;
        whole += part > one / 2 || (part == one / 2 && whole % 2);
        digits = whole / 10;
        *--p = (char)('0' + whole % 10);
        *--p = '.';
    }
    do
        *--p = (char)('0' + digits % 10);
    while (digits /= 10);
    return p;
}

char *cli_count(char *buf, uint64_t n)
{
    char digits[CLI_SIZE_MAX];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    char *out = buf;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = 0;
    return buf;
}

const char *cli_style(const cli *c, const char *style)
{
    static const char *const table[][2] = {
        {"bold", "\x1b[1m"}, {"red", "\x1b[1;31m"}, {"yellow", "\x1b[33m"}, {"dim", "\x1b[2m"}, {"off", "\x1b[0m"}};
    for (size_t i = 0; c->colour && i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i][0], style) == 0)
            return table[i][1];
    return "";
}

/* ---- findings */

static const char *or_null(const char *text)
{
    return text && *text ? text : NULL;
}

void cli_json_finding(json_out *j, const ckpt_finding *f)
{
    json_object(j, NULL);
    json_text(j, "code", f->code);
    json_text(j, "severity", ckpt_severity_name(f->severity));
    json_text(j, "message", f->message);
    json_text(j, "fix", or_null(f->fix));
    json_array(j, "fixes");
    for (size_t i = 0; i < f->fix_count; i++) {
        json_object(j, NULL);
        json_text(j, "kind", f->fixes[i]->kind);
        json_text(j, "text", f->fixes[i]->text);
        json_end_object(j);
    }
    json_end_array(j);
    json_text(j, "tensor", or_null(f->tensor));
    json_text(j, "file", or_null(f->file));
    if (*f->from || *f->to) {
        json_text(j, "from", or_null(f->from));
        json_text(j, "to", or_null(f->to));
    }
    json_end_object(j);
}

void cli_json_findings(json_out *j, const ckpt_report *a, const ckpt_report *b, ckpt_severity least)
{
    const ckpt_report *const reports[] = {a, b};
    json_array(j, "findings");
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; reports[r] && i < ckpt_report_count(reports[r]); i++)
            if (ckpt_report_get(reports[r], i)->severity >= least)
                cli_json_finding(j, ckpt_report_get(reports[r], i));
    json_end_array(j);
}

/* Columns of the terminal that out is; 0 where it is none. */
static size_t columns_of(FILE *out)
{
    struct winsize size;
    int fd = fileno(out);
    if (fd < 0 || !isatty(fd))
        return 0;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 80;
}

size_t cli_columns(FILE *out)
{
    size_t columns = columns_of(out);
    return columns ? columns : 80;
}

void cli_put_wrapped(FILE *out, const char *text, size_t used, size_t indent)
{
    size_t columns = columns_of(out), spaces = 0;
    while (*text) {
        size_t word = strcspn(text, " "), width = cli_width(text, word);
        if (columns && spaces && used + spaces + width > columns) {
            fprintf(out, "\n%*s", (int)indent, "");
            used = indent;
        } else {
            fprintf(out, "%*s", (int)spaces, "");
            used += spaces;
        }
        char *copy = strndup(text, word);
        if (copy)
            cli_put_message(out, copy);
        free(copy);
        used += width;
        text += word;
        spaces = strspn(text, " ");
        text += spaces;
    }
    putc('\n', out);
}

/* Does the text say the name, as a word of its own? */
static bool says(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = strstr(text, name); p; p = strstr(p + 1, name)) {
        unsigned char before = p == text ? ' ' : (unsigned char)p[-1], after = (unsigned char)p[n];
        if (!isalnum(before) && before != '_' && before != '.' && !isalnum(after) && after != '_')
            return true;
    }
    return false;
}

/* One line for each way, which is never broken: it is there to be pasted. */
static void put_fixes(FILE *out, const ckpt_finding *f)
{
    for (size_t i = 0; i < f->fix_count; i++) {
        const ckpt_fix *fix = f->fixes[i];
        if (strcmp(fix->kind, "advice") == 0)
            fprintf(out, "%*sfix: ", CLI_INDENT, "");
        else
            fprintf(out, "%*sfix (%s): ", CLI_INDENT, "", fix->kind);
        cli_put_message(out, fix->text);
        putc('\n', out);
    }
}

/* Two that one fix is for: it stands once, behind the last. */
static bool is_alike(const ckpt_finding *a, const ckpt_finding *b)
{
    return a->severity == b->severity && strcmp(a->code, b->code) == 0 && *a->fix && strcmp(a->fix, b->fix) == 0;
}

/* One finding for each class: a file may have dozens, and one fix is for all. */
static bool is_of_classes(const ckpt_finding *f)
{
    return strcmp(f->code, "weights-only-refused") == 0 || strcmp(f->code, "torch-too-old") == 0;
}

static void put_finding(const cli *c, FILE *out, const ckpt_finding *f, bool again)
{
    const char *style = f->severity == CKPT_SEVERITY_ERROR     ? "red"
                        : f->severity == CKPT_SEVERITY_WARNING ? "yellow"
                                                               : "dim";
    size_t used = CLI_INDENT;
    if (again) {
        fprintf(out, "%*s", (int)used, "");
    } else {
        used += strlen(f->code) + 2;
        fprintf(out, "%s%-7s%s  %s: ", cli_style(c, style), ckpt_severity_name(f->severity), cli_style(c, "off"),
                f->code);
    }
    if (*f->file) {
        cli_put(out, f->file, strlen(f->file));
        fputs(": ", out);
        used += cli_width(f->file, strlen(f->file)) + 2;
    }
    if (*f->tensor && !says(f->message, f->tensor)) {
        cli_put_message(out, f->tensor);
        fputs(": ", out);
        used += cli_width(f->tensor, strlen(f->tensor)) + 2;
    }
    cli_put_wrapped(out, f->message, used, again ? CLI_INDENT + 2 : CLI_INDENT);
}

/* The findings of f's code and severity. */
static size_t of_a_kind(const ckpt_report *report, const ckpt_finding *f)
{
    size_t n = 0, count = ckpt_report_count(report);
    for (size_t i = 0; i < count; i++) {
        const ckpt_finding *g = ckpt_report_get(report, i);
        n += g->severity == f->severity && strcmp(g->code, f->code) == 0;
    }
    return n;
}

/* Those from `least` to `most` severe. */
static void put_findings(const cli *c, FILE *out, const ckpt_report *report, ckpt_severity least, ckpt_severity most,
                         const char *except)
{
    enum { SHOWN = 20, KINDS = 64 }; /* of one kind; of kinds beyond the last all are shown */
    enum { ALIKE = 5 };              /* of classes that one fix is for */
    const ckpt_finding *kinds[KINDS], *above = NULL;
    size_t seen[KINDS], kind_count = 0, count = report ? ckpt_report_count(report) : 0, alike = 0;
    for (size_t i = 0; i < count; i++) {
        const ckpt_finding *f = ckpt_report_get(report, i), *next = ckpt_report_get(report, i + 1);
        size_t k = 0;
        if (f->severity < least || f->severity > most || (except && strcmp(f->code, except) == 0))
            continue;
        while (k < kind_count && (kinds[k]->severity != f->severity || strcmp(kinds[k]->code, f->code) != 0))
            k++;
        if (k == kind_count && k < KINDS) {
            kinds[kind_count++] = f;
            seen[k] = 0;
        }
        alike = above && is_alike(above, f) ? alike + 1 : 0;
        above = f;
        bool last = !next || !is_alike(f, next), room = c->verbose || alike < ALIKE || !is_of_classes(f);
        if (!room) {
            if (last)
                fprintf(out, "%*sand %zu more (-v)\n", CLI_INDENT, "", alike + 1 - ALIKE);
        } else if (k < KINDS && f->severity != CKPT_SEVERITY_ERROR && seen[k]++ >= SHOWN) {
            if (seen[k] == SHOWN + 1)
                fprintf(out, "%-7s  %s: and %zu more (--json lists them all)\n", ckpt_severity_name(f->severity),
                        f->code, of_a_kind(report, f) - SHOWN);
            continue;
        } else {
            put_finding(c, out, f, alike > 0 && is_of_classes(f));
        }
        if (last)
            put_fixes(out, f);
    }
}

void cli_text_findings(const cli *c, FILE *out, const ckpt_report *report, ckpt_severity least, const char *except)
{
    put_findings(c, out, report, least, CKPT_SEVERITY_ERROR, except);
}

void cli_text_by_severity(const cli *c, FILE *out, const ckpt_report *report, const char *except)
{
    static const char part[] = "part-of-checkpoint"; /* the answer is about less than was meant */
    size_t notes = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        notes += f->severity == CKPT_SEVERITY_NOTE && strcmp(f->code, part) != 0 &&
                 !(except && strcmp(f->code, except) == 0);
    }
    put_findings(c, out, report, CKPT_SEVERITY_ERROR, CKPT_SEVERITY_ERROR, except);
    if (c->quiet)
        return;
    put_findings(c, out, report, CKPT_SEVERITY_WARNING, CKPT_SEVERITY_WARNING, except);
    if (c->verbose) {
        put_findings(c, out, report, CKPT_SEVERITY_NOTE, CKPT_SEVERITY_NOTE, except);
        return;
    }
    cli_text_code(c, out, report, part);
    if (notes)
        fprintf(out, "%s%zu note%s%s (-v)\n", cli_style(c, "dim"), notes, notes == 1 ? "" : "s", cli_style(c, "off"));
}

void cli_text_code(const cli *c, FILE *out, const ckpt_report *report, const char *code)
{
    const ckpt_finding *f = report && !c->quiet ? ckpt_report_find(report, code, NULL) : NULL;
    if (!f)
        return;
    put_finding(c, out, f, false);
    put_fixes(out, f);
}

/* ---- progress and signals */

static volatile sig_atomic_t caught;
static struct timespec caught_at;

/* A terminal that goes away sends SIGHUP, and its shell sends it again at once: that is one wish, and temporaries are
 * removed. Who asks a second time after a second has no more patience. */
static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (caught && now.tv_sec - caught_at.tv_sec >= 2) {
        signal(number, SIG_DFL);
        raise(number);
    }
    if (!caught)
        caught_at = now;
    caught = number;
}

void cli_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction now, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&action.sa_mask);
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) /* nohup stays in force */
            sigaction(numbers[i], &action, NULL);
    }
}

bool cli_signal_caught(void)
{
    return caught != 0;
}

void cli_signals_reraise(void)
{
    if (!caught)
        return;
    signal(caught, SIG_DFL);
    raise(caught);
}

static double seconds(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

void cli_progress_init(cli_progress *p, const cli *c, const char *verb)
{
    const char *terminal = getenv("TERM");
    memset(p, 0, sizeof *p);
    p->cli = c;
    p->dumb = !terminal || strcmp(terminal, "dumb") == 0;
    p->verb = verb;
    clock_gettime(CLOCK_MONOTONIC, &p->start);
    p->last = p->phase = p->start;
}

static void show_progress(cli_progress *p, double elapsed, uint64_t done, uint64_t total)
{
    double rate = (double)(done - p->base) / elapsed;
    char a[CLI_SIZE_MAX], b[CLI_SIZE_MAX], r[CLI_SIZE_MAX], left[40] = "";
    if (rate > 0 && total >= done)
        snprintf(left, sizeof left, ", %.0f s left", (double)(total - done) / rate);
    fprintf(stderr, "\r\x1b[K%s %s of %s, %s/s%s", p->second ? p->again : p->verb, cli_size(a, done),
            cli_size(b, total), cli_size(r, (uint64_t)rate), left);
    p->shown = true;
}

int cli_progress_step(void *progress, uint64_t done, uint64_t total)
{
    cli_progress *p = progress;
    struct timespec now;
    if (caught)
        return 1;
    if (p->cli->quiet || p->dumb || !isatty(STDERR_FILENO))
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t half = p->again ? total / 2 : 0;
    if (half && done > half && !p->second) { /* from here on it has a rate of its own */
        p->second = true;
        p->phase = now;
        p->base = done - half;
    }
    double elapsed = seconds(&p->phase, &now);
    if (seconds(&p->start, &now) < 1 || seconds(&p->last, &now) < 0.1 || elapsed < 0.05)
        return 0;
    p->last = now;
    show_progress(p, elapsed, p->second ? done - half : done, total - half);
    return 0;
}

void cli_progress_end(cli_progress *p)
{
    if (p->shown)
        fputs("\r\x1b[K", stderr);
    p->shown = false;
}

void cli_json_value(json_out *j, const char *key, const ckpt_value *v)
{
    switch (v ? v->kind : CKPT_V_NONE) {
    case CKPT_V_NONE:
        json_null(j, key);
        break;
    case CKPT_V_BOOL:
        json_bool(j, key, v->boolean);
        break;
    case CKPT_V_INT:
        json_int(j, key, v->integer);
        break;
    case CKPT_V_FLOAT:
        json_double(j, key, v->real);
        break;
    case CKPT_V_BIGINT:
    case CKPT_V_STR:
        json_bytes(j, key, v->text.data, v->text.size);
        break;
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
        json_array(j, key);
        for (size_t i = 0; i < v->item_count; i++) {
            const ckpt_value *item = v->items[i]; /* one level: what nests deeper is named by its kind */
            if (item->kind == CKPT_V_LIST || item->kind == CKPT_V_TUPLE)
                json_text(j, NULL, ckpt_kind_name(item->kind));
            else
                cli_json_value(j, NULL, item);
        }
        json_end_array(j);
        break;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
    case CKPT_V_DICT:
    case CKPT_V_TENSOR:
    case CKPT_V_ARRAY:
    case CKPT_V_CLASS:
    case CKPT_V_OBJECT:
        json_text(j, key, ckpt_kind_name(v->kind));
        break;
    }
}
