/* report/page.c - one page of HTML that opens from disk: what one attaches to a bug report. */
#include "cli/report/page.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "cli/out/file.h"

bool report_room(const report_page *p)
{
    return ftello(p->f) < REPORT_ROOM;
}

/* A page replaces a page; anything else that has this name was not meant. */
static bool is_page(const char *path)
{
    static const char head[] = "<!doctype html";
    char text[sizeof head] = "";
    FILE *f = fopen(path, "re");
    if (!f)
        return errno == ENOENT;
    size_t n = fread(text, 1, sizeof head - 1, f);
    fclose(f);
    const char *slash = strrchr(path, '/');
    if (n == 0) /* as mktemp makes them; but the lock of a run is empty too */
        return strcmp(slash ? slash + 1 : path, ".lock") != 0;
    return strcasecmp(text, head) == 0;
}

static int check_output(const command_line *o, const ckpt_reader *a, const ckpt_reader *b)
{
    const cli *c = &o->cli;
    struct stat st;
    if (!*o->report || output_is_stdout(o->report))
        return strcmp(o->report, "/dev/null") == 0
                   ? -1
                   : cli_usage(c, "--report: needs a FILE: standard output has the answer");
    bool source = output_is_part(o->report, a) || output_is_part(o->report, b) ||
                  (o->param_names && output_is_same(o->report, o->param_names, NULL, 0)) ||
                  (o->map_location && output_is_same(o->report, o->map_location, NULL, 0));
    for (int i = 0; i < o->path_count; i++)
        source |= output_is_same(o->report, o->paths[i], NULL, 0);
    if (source)
        return cli_fail(c, "argument",
                        "%s: --report would replace the checkpoint, which is never written; name another FILE",
                        o->report);
    if (stat(o->report, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_fail(c, "argument", "%s: --report wants the name of a FILE, this is a directory", o->report);
    if (stat(o->report, &st) == 0 && S_ISREG(st.st_mode) && !is_page(o->report))
        return cli_fail(c, "exists",
                        "%s: exists, and is not a page of HTML: --report replaces pages only; name another FILE",
                        o->report);
    return -1;
}

/* The last part of a path. */
static const char *base_of(const char *path, size_t *size)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (begin == end)
        begin = 0;
    *size = end - begin;
    return path + begin;
}

static void put_title(report_page *p, const char *command, bool marked)
{
    size_t size;
    for (int i = 0; i < (strcmp(command, "diff") == 0 ? 2 : 1); i++) {
        const char *base = base_of(p->o->paths[i], &size);
        fputs(i ? " and " : "", p->f);
        fputs(marked ? "<span class=\"name\">" : "", p->f);
        html_str(p->f, (ckpt_str){base, size}, "");
        fputs(marked ? "</span>" : "", p->f);
    }
}

static void put_head(report_page *p, const char *command, const char *says)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; "
          "style-src &#39;unsafe-inline&#39;\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"robots\" content=\"noindex\"/>\n",
          p->f);
    fprintf(p->f, "<meta name=\"generator\" content=\"ckpt %s\"/>\n<title>", ckpt_version());
    put_title(p, command, false);
    fprintf(p->f, " - ckpt-inspect %s</title>\n<style>\n", command);
    for (const char *const *line = report_style; *line; line++)
        fputs(*line, p->f);
    fprintf(p->f, "</style>\n</head>\n<body>\n<main>\n<header>\n<p class=\"eyebrow\">%s</p>\n<h1>", says);
    put_title(p, command, true);
    fputs("</h1>\n</header>\n", p->f);
}

int report_begin(report_page *p, const command_line *o, const char *command, const char *says, const ckpt_reader *a,
                 const ckpt_reader *b)
{
    memset(p, 0, sizeof *p);
    p->o = o;
    int status = check_output(o, a, b);
    if (status >= 0)
        return status;
    p->f = open_memstream(&p->text, &p->size);
    if (!p->f)
        return cli_fail(&o->cli, "no-memory", "out of memory for the report");
    put_head(p, command, says);
    return -1;
}

/* ---- how the page was made */

/* One word as bash takes it. */
static void put_word(FILE *f, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
    size_t length = strlen(word), shown = length < 1024 ? length : 1024;
    char *text = NULL;
    size_t size = 0;
    FILE *m = open_memstream(&text, &size);
    if (m)
        cli_put(m, word, shown);
    if (!m || fclose(m) != 0) {
        free(text);
        return;
    }
    bool escaped = size != shown;
    if (length && strspn(word, safe) == length) {
        html_text(f, text);
    } else {
        html_text(f, escaped ? "$'" : "'");
        for (char *rest = text, *part; (part = strsep(&rest, "'"));) {
            html_text(f, part);
            html_text(f, !rest ? "'" : escaped ? "\\'" : "'\\''");
        }
    }
    if (shown < length)
        fprintf(f, "... (%zu more bytes)", length - shown);
    free(text);
}

/* UTC; SOURCE_DATE_EPOCH stands for now where it is set, so that a page can be made again byte for byte. */
static void put_date(FILE *f)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL, text[64];
    long long fixed = epoch && *epoch ? strtoll(epoch, &end, 10) : 0;
    time_t now = end && !*end && fixed >= 0 ? (time_t)fixed : time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &t))
        html_text(f, text);
    else
        fputs("at an unknown time", f);
}

static void put_origin(report_page *p)
{
    const command_line *o = p->o;
    fputs("</main>\n<footer>\n<p>Made ", p->f);
    put_date(p->f);
    fprintf(p->f, " by ckpt-inspect %s (", ckpt_version());
    html_text(p->f, ckpt_build_info());
    fputs("), by this command line:</p>\n<pre><code>", p->f);
    for (int i = 0; i < o->typed_count; i++) {
        fputs(i ? " " : "", p->f);
        if (i >= 60 || !report_room(p)) {
            fprintf(p->f, "... (%d more words)", o->typed_count - i);
            break;
        }
        if (i == 0)
            fputs("ckpt-inspect", p->f);
        else
            put_word(p->f, o->typed[i]);
    }
    fputs(
        "</code></pre>\n<p>No code from the checkpoint was run. This page loads no external resources.</p>\n</footer>\n"
        "</body>\n</html>\n",
        p->f);
}

/* ---- the page, once it is whole. What came from a file has no markup left: each tag here is ours. */

/* Links to the sections, where there are enough of them. */
static void put_contents(FILE *f, const char *text)
{
    static const char begin[] = "<h2 id=\"";
    enum { ENOUGH = 3 };
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, begin)); at++)
        n++;
    if (n < ENOUGH)
        return;
    fputs("<nav aria-label=\"Contents\"><ul class=\"contents\">", f);
    for (const char *at = text, *end, *title; (at = strstr(at, begin)); at = end) {
        at += sizeof begin - 1;
        end = strchr(at, '"');
        title = end[1] == '>' ? end + 2 : NULL; /* the verdict, which stands at the top, has a class too */
        if (title)
            fprintf(f, "<li><a href=\"#%.*s\">%.*s</a></li>", (int)(end - at), at,
                    (int)(strstr(title, "</h2>") - title), title);
    }
    fputs("</ul></nav>\n", f);
}

static bool is_tag(const char *at, const char *name)
{
    size_t n = strlen(name);
    return strncmp(at + 1, name, n) == 0 && (at[1 + n] == '>' || at[1 + n] == ' ');
}

/* Does the element have a name, which may be broken? One of class "word" stays in a line. */
static bool is_name(const char *at)
{
    static const char name[] = "class=\"name";
    const char *end = strchr(at, '>'), *class = end ? memmem(at, (size_t)(end - at), name, sizeof name - 1) : NULL;
    return class && strncmp(class + sizeof name - 1, " word", 5) != 0;
}

/* Behind this byte of a name; never inside of a number, nor of "..". */
static bool may_break(const char *p)
{
    return strchr("._/", *p) && !strchr("._/", p[1]) &&
           !(isdigit((unsigned char)p[-1]) && isdigit((unsigned char)p[1]));
}

/* A name: a line may end behind one of its dots, slashes and underscores. What is copied, or searched, has no trace of that. */
static void put_breakable(FILE *f, const char *text, const char *end)
{
    for (const char *p = text; p < end; p++) {
        putc(*p, f);
        if (p > text && p + 1 < end && may_break(p))
            fputs("<wbr/>", f);
    }
}

/* Each cell of a table with the head of its column: where a screen is too narrow for columns, rows are cards. */
static void put_labelled(FILE *f, const char *text, const char *end)
{
    enum { MOST = 16 };
    ckpt_str heads[MOST];
    size_t count = 0, column = 0;
    bool head = false, body = false, breaks = false;
    for (const char *at; (at = strchr(text, '<')) && at < end; text = at + 1) {
        const char *close = breaks ? memchr(text, '>', (size_t)(at - text)) : NULL; /* of the tag that stands before */
        fwrite(text, 1, (size_t)((close ? close + 1 : at) - text), f);
        if (close)
            put_breakable(f, close + 1, at);
        putc('<', f);
        breaks = is_name(at);
        if (is_tag(at, "thead"))
            head = true, count = 0;
        else if (is_tag(at, "tbody"))
            head = false, body = true;
        else if (is_tag(at, "/tbody"))
            body = false;
        else if (is_tag(at, "tr"))
            column = 0;
        if (!is_tag(at, "th") && !is_tag(at, "td"))
            continue;
        if (head && count < MOST) {
            const char *open = strchr(at, '>') + 1;
            heads[count++] = (ckpt_str){open, (size_t)(strstr(open, "</t") - open)};
        } else if (body && column < count) {
            const ckpt_str *label = &heads[column++];
            fputs(is_tag(at, "th") ? "th" : "td", f);
            if (label->size && column > 1)
                fprintf(f, " data-label=\"%.*s\"", (int)label->size, label->data);
            at += 2;
        }
    }
    fwrite(text, 1, (size_t)(end - text), f);
}

/* *text becomes the page as it is written; false: no memory, *text is as it was. */
static bool finish(char **text, size_t *size)
{
    static const char header[] = "</header>\n", body[] = "<body>";
    char *whole = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&whole, &length);
    const char *rest = strstr(*text, header), *begin = strstr(*text, body);
    if (!f || !rest || !begin) {
        if (f)
            fclose(f);
        free(whole);
        return false;
    }
    rest += sizeof header - 1;
    fwrite(*text, 1, (size_t)(begin - *text), f);
    put_labelled(f, begin, rest);
    put_contents(f, rest);
    put_labelled(f, rest, rest + strlen(rest));
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        free(whole);
        return false;
    }
    free(*text);
    *text = whole;
    *size = length;
    return true;
}

int report_end(report_page *p)
{
    const cli *c = &p->o->cli;
    struct stat st;
    char size[CLI_SIZE_MAX];
    put_origin(p);
    bool failed = ferror(p->f) != 0;
    int status = CLI_NO_ANSWER;
    bool replaced = stat(p->o->report, &st) == 0 && S_ISREG(st.st_mode);
    if (fclose(p->f) != 0 || failed || !finish(&p->text, &p->size))
        cli_fail(c, "no-memory", "out of memory for the report");
    else
        status = output_write(c, p->o->report, true, "", 0, p->text, p->size);
    if (status == CLI_YES)
        cli_warn(c, "%s: report %s (%s)", p->o->report, replaced ? "replaced" : "written", cli_size(size, p->size));
    free(p->text);
    return status;
}

int report_give_up(report_page *p, int status)
{
    fclose(p->f);
    free(p->text);
    return status;
}
