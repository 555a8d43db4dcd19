/* out/html.c - escapes, tables, bars. */
#include "cli/out/html.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void html_text(FILE *f, const char *text)
{
    for (size_t n; *text; text += n + (text[n] != 0)) {
        n = strcspn(text, "&<>\"'");
        fwrite(text, 1, n, f);
        switch (text[n]) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        case '\'':
            fputs("&#39;", f);
            break;
        default:
            break;
        }
    }
}

/* What cli_put makes of the bytes has no control character left. */
static void put(FILE *f, const char *data, size_t size, bool message)
{
    char *text = NULL, *copy = NULL;
    size_t length = 0;
    FILE *m = open_memstream(&text, &length);
    if (m && message && (copy = strndup(data, size)))
        cli_put_message(m, copy);
    else if (m && !message)
        cli_put(m, data, size);
    free(copy);
    if (m && fclose(m) == 0)
        html_text(f, text);
    free(text);
}

void html_put(FILE *f, const char *data, size_t size)
{
    put(f, data, size, false);
}

/* The largest size up to `most` that does not end inside a character of UTF-8. */
static size_t whole_characters(const char *data, size_t size, size_t most)
{
    if (size <= most)
        return size;
    for (size_t back = 0; back < 4 && back < most; back++)
        if (((unsigned char)data[most - back] & 0xc0) != 0x80)
            return most - back;
    return most;
}

void html_message(FILE *f, const char *text, size_t most)
{
    size_t size = strlen(text), shown = whole_characters(text, size, most);
    put(f, text, shown, true);
    if (shown < size)
        fprintf(f, " ... (%zu more bytes)", size - shown);
}

void html_str(FILE *f, ckpt_str s, const char *otherwise)
{
    enum { HEAD = 120, TAIL = 60 };
    if (!s.data) {
        html_text(f, otherwise);
        return;
    }
    if (s.size <= HEAD + TAIL + 20) {
        html_put(f, s.data, s.size);
        return;
    }
    size_t head = whole_characters(s.data, s.size, HEAD), tail = s.size - TAIL;
    while (tail < s.size && ((unsigned char)s.data[tail] & 0xc0) == 0x80)
        tail++;
    html_put(f, s.data, head);
    fprintf(f, " ... (%zu bytes) ... ", tail - head);
    html_put(f, s.data + tail, s.size - tail);
}

void html_size(FILE *f, uint64_t bytes)
{
    char size[CLI_SIZE_MAX], exact[CLI_SIZE_MAX];
    if (bytes < 1024)
        fprintf(f, "%s", cli_size(size, bytes));
    else
        fprintf(f, "<span title=\"%s bytes\">%s</span>", cli_count(exact, bytes), cli_size(size, bytes));
}

void html_count(FILE *f, uint64_t n)
{
    char text[CLI_SIZE_MAX];
    fputs(cli_count(text, n), f);
}

void html_share(FILE *f, uint64_t part, uint64_t whole)
{
    if (whole == 0) {
        fputs("-", f);
        return;
    }
    double share = (double)part / (double)whole * 100;
    if (part > 0 && share < 0.1)
        fputs("&lt; 0.1 %", f);
    else
        fprintf(f, "%.1f %%", share);
}

void html_section(FILE *f, const char *id, const char *title)
{
    fprintf(f, "<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">", id, id);
    html_text(f, title);
    fputs("</h2>\n", f);
}

void html_section_end(FILE *f)
{
    fputs("</section>\n", f);
}

void html_table(FILE *f, const char *caption, const char *const *heads)
{
    fputs("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", f);
    html_text(f, caption);
    fputs("\">\n<table>\n<caption>", f);
    html_text(f, caption);
    fputs("</caption>\n<thead><tr>", f);
    for (; *heads; heads++) {
        if (**heads == '|') {
            fputs("<td class=\"bars\"></td>", f);
            continue;
        }
        bool number = **heads == '#';
        fprintf(f, "<th scope=\"col\"%s>", number ? " class=\"n\"" : "");
        html_text(f, *heads + number);
        fputs("</th>", f);
    }
    fputs("</tr></thead>\n<tbody>\n", f);
}

void html_table_end(FILE *f)
{
    fputs("</tbody>\n</table>\n</div>\n", f);
}

static const struct {
    const char *name;
    ckpt_role roles[6];
} kinds[HTML_KINDS] = {
    {"parameters", {CKPT_ROLE_PARAM}},
    {"exp_avg", {CKPT_ROLE_EXP_AVG}},
    {"exp_avg_sq", {CKPT_ROLE_EXP_AVG_SQ}},
    {"other optimizer state", {CKPT_ROLE_MAX_EXP_AVG_SQ, CKPT_ROLE_MOMENTUM, CKPT_ROLE_OPTIM, CKPT_ROLE_STEP}},
    {"master weights", {CKPT_ROLE_MASTER}},
    {"moving averages (EMA)", {CKPT_ROLE_EMA}},
    {"buffers", {CKPT_ROLE_BUFFER}},
    {"all else", {CKPT_ROLE_NONE}},
};

unsigned html_kind_of(ckpt_role role)
{
    for (unsigned k = 0; k < HTML_KINDS; k++)
        for (size_t i = 0; role != CKPT_ROLE_NONE && i < sizeof kinds[k].roles / sizeof *kinds[k].roles; i++)
            if (kinds[k].roles[i] == role)
                return k;
    return HTML_KINDS - 1;
}

const char *html_kind_name(unsigned kind)
{
    return kinds[kind].name;
}

uint64_t html_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Thousandths of a bar. What is there is seen, however little, at the cost of the largest part. */
static void widths_of(const uint64_t parts[HTML_KINDS], uint64_t whole, double out[HTML_KINDS])
{
    const double least = 5;
    double taken = 0;
    size_t largest = 0;
    for (size_t k = 0; k < HTML_KINDS; k++) {
        double width = whole ? (double)parts[k] / (double)whole * 1000 : 0;
        out[k] = parts[k] > 0 && width < least ? least : width;
        taken += out[k] - width;
        if (out[k] > out[largest])
            largest = k;
    }
    if (out[largest] - taken >= least)
        out[largest] -= taken;
}

static void say_parts(FILE *f, const uint64_t parts[HTML_KINDS])
{
    char size[CLI_SIZE_MAX];
    const char *between = "";
    for (unsigned k = 0; k < HTML_KINDS; k++)
        if (parts[k] > 0) {
            fprintf(f, "%s%s %s", between, kinds[k].name, cli_size(size, parts[k]));
            between = ", ";
        }
    if (!*between)
        fputs("nothing", f);
}

void html_bar(FILE *f, const uint64_t parts[HTML_KINDS], uint64_t whole, const char *label)
{
    char size[CLI_SIZE_MAX], exact[CLI_SIZE_MAX];
    double widths[HTML_KINDS], x = 0;
    fputs("<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" ", f);
    if (label) {
        fputs("role=\"img\" aria-label=\"", f);
        html_put(f, label, strlen(label));
        fputs(": ", f);
        say_parts(f, parts);
        fputs("\">", f);
    } else {
        fputs("aria-hidden=\"true\">", f);
    }
    widths_of(parts, whole, widths);
    for (unsigned k = 0; k < HTML_KINDS; k++) {
        if (parts[k] == 0)
            continue;
        fprintf(f, "<rect class=\"k%u\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"10\">", k, x, widths[k]);
        fprintf(f, "<title>%s: %s (%s bytes)</title></rect>", kinds[k].name, cli_size(size, parts[k]),
                cli_count(exact, parts[k]));
        x += widths[k];
    }
    fputs("</svg>", f);
}

void html_legend(FILE *f, const uint64_t parts[HTML_KINDS])
{
    fputs("<ul class=\"legend\">", f);
    for (unsigned k = 0; k < HTML_KINDS; k++)
        if (parts[k] > 0)
            fprintf(f,
                    "<li><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\">"
                    "<rect class=\"k%u\" width=\"10\" height=\"10\"/></svg> %s</li>",
                    k, kinds[k].name);
    fputs("</ul>\n", f);
}

void html_icon(FILE *f, const char *kind)
{
    static const char *const shapes[][2] = {
        {"good", "<circle cx=\"8\" cy=\"8\" r=\"7\"/><path class=\"mark\" d=\"M4.5 8.3l2.4 2.4 4.6-5\"/>"},
        {"error", "<path d=\"M5 1h6l4 4v6l-4 4H5l-4-4V5z\"/><path class=\"mark\" d=\"M5.5 5.5l5 5m0-5l-5 5\"/>"},
        {"warning", "<path d=\"M8 1l7.3 13.5H.7z\"/><path class=\"mark\" d=\"M8 6v4m0 2v.6\"/>"},
        {"note", "<circle cx=\"8\" cy=\"8\" r=\"7\"/><path class=\"mark\" d=\"M8 7.5V12M8 4.4V5\"/>"},
        {"unknown", "<rect x=\"1.5\" y=\"1.5\" width=\"13\" height=\"13\"/>"
                    "<path class=\"mark\" d=\"M5.8 6.2a2.2 2.2 0 1 1 2.2 2.6v.7m0 2v.6\"/>"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i][0], kind) == 0)
            fprintf(f, "<svg class=\"icon %s\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">%s</svg>", kind,
                    shapes[i][1]);
}
