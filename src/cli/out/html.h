/* cli/out/html.h - the pieces of a page of HTML, also well-formed as XML. Whatever comes from a file goes through
 * html_put, html_str or html_message: markup is escaped, and what a terminal would be spared (control characters, marks
 * that reverse a line, broken UTF-8) is shown as a visible escape. */
#ifndef CKPT_CLI_OUT_HTML_H
#define CKPT_CLI_OUT_HTML_H
#include "cli/out/cli.h"

/* Text of the program itself: only markup is escaped. */
void html_text(FILE *f, const char *text);
/* Bytes from a file or from the command line. */
void html_put(FILE *f, const char *data, size_t size);
/* A sentence that may hold such escapes already: backslashes stay. Cut after `most` bytes, with a word saying so. */
void html_message(FILE *f, const char *text, size_t most);
/* A name: of a long one the head and the tail. data NULL: `otherwise`. */
void html_str(FILE *f, ckpt_str s, const char *otherwise);
/* "1.5 MiB", with the exact bytes as its title. */
void html_size(FILE *f, uint64_t bytes);
void html_count(FILE *f, uint64_t n);
/* "32.5 %"; of nothing: "-". */
void html_share(FILE *f, uint64_t part, uint64_t whole);

/* A heading with an id, and the section that it opens; html_section_end closes it. */
void html_section(FILE *f, const char *id, const char *title);
void html_section_end(FILE *f);
/* A table that scrolls in its own box, its caption and its column heads (NULL at the end; a head that begins with '#'
 * stands above numbers, "|" above bars); html_table_end closes it. */
void html_table(FILE *f, const char *caption, const char *const *heads);
void html_table_end(FILE *f);

/* What tensors are to training, in as many kinds as colours can be told apart. */
enum { HTML_KINDS = 8 };
unsigned html_kind_of(ckpt_role role);
const char *html_kind_name(unsigned kind);
/* A bar of `parts`, as long as their sum in `whole`; said in words to those who do not see it where `label` is not NULL,
 * else left to the numbers beside it. */
void html_bar(FILE *f, const uint64_t parts[HTML_KINDS], uint64_t whole, const char *label);
void html_legend(FILE *f, const uint64_t parts[HTML_KINDS]);
/* "good", "error", "warning", "note" or "unknown": a sign of its own shape, for those who do not tell its colour. */
void html_icon(FILE *f, const char *kind);

uint64_t html_add(uint64_t a, uint64_t b); /* sizes that a file claims: stops at the largest number */
#endif
