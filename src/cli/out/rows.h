/* cli/out/rows.h - rows of a table: what they say is described once, a field a line, and both the columns of the text
 * and the members of the JSON are made of it. */
#ifndef CKPT_CLI_OUT_ROWS_H
#define CKPT_CLI_OUT_ROWS_H
#include "cli/out/cli.h"

/* One row: the structs that its fields lie in, all the caller's. Of a part that is NULL nothing is known. */
enum { ROW_PARTS = 5 };
typedef struct row_parts {
    const void *part[ROW_PARTS];
} row_parts;

/* The type of what lies at a field's place; behind the semicolon, which value is not known ("-" in the text, null in
 * the JSON). */
typedef enum row_kind {
    ROW_NONE,   /* nothing: a column in which the caller writes, or `json` and `text` do all */
    ROW_WORD,   /* const char *, the program's own; NULL */
    ROW_STR,    /* ckpt_str, from a file; data NULL */
    ROW_NAME,   /* the same of a tensor: an empty one is shown as "" */
    ROW_DTYPE,  /* ckpt_dtype */
    ROW_ROLE,   /* ckpt_role; CKPT_ROLE_NONE */
    ROW_SHAPE,  /* the whole ckpt_tensor_info */
    ROW_INT,    /* int64_t */
    ROW_NUMBER, /* int64_t; below 0 */
    ROW_UINT,   /* uint64_t */
    ROW_SIZE,   /* uint64_t: bytes, as "1.5 MiB" in the text */
    ROW_BOOL,   /* bool */
    ROW_CRC     /* uint32_t */
} row_kind;

/* What a row says: a member of the JSON, a column of the text, or both. A description is an array of them, in the order
 * of the members; one without key and title ends it. `set` is what is wanted of it, in bits of its own. */
enum { ROW_CELL = 1024 };
typedef struct row_field {
    const char *key, *title; /* the member's and the column's; NULL: there is none */
    row_kind kind;           /* of what lies at part[part] + at */
    unsigned char part;
    size_t at;
    bool (*known)(const row_parts *r); /* NULL: by the kind alone */
    unsigned only;                     /* there with one of these bits of the set; 0: always */
    unsigned if_any;                   /* with one of these, a column only where some row has something in it */
    bool omit;                         /* no member where it is false, or not known by its kind */
    bool right;                        /* the column's side */
    unsigned char column;              /* its place among the columns; those of one place stand as in the description */
    unsigned char width, most;         /* 0: as wide as the widest cell that is not wider than most (0: than any) */
    const char *css;                   /* class of a page's cell that is to the left; NULL: none */
    void (*json)(json_out *j, const char *key, const row_parts *r); /* writes the member, or several, or none */
    ckpt_str (*text)(char buf[ROW_CELL], const row_parts *r);       /* the cell, not escaped; data NULL: "-" */
} row_field;

/* The object of one row. */
void rows_json(json_out *j, const row_field *fields, unsigned set, const row_parts *r);

/* A table of text: rows_begin, rows_measure with each row, rows_head, then each row by rows_line and rows_end_line.
 * Lines are kept back until rows_flush, which comes before anything else is printed: to print each column by itself
 * would take half the time of a long list. */
enum { ROW_COLUMNS = 16 };
typedef struct row_column {
    const row_field *field;
    const char *title; /* the field's, or what the caller calls it instead */
    size_t width, gap; /* gap: blanks to the next; 0: it is the last, and not padded */
    bool hidden;       /* if_any, and no row has something yet */
    bool escape;       /* bytes from a file */
    const void *above; /* the value of the row that was measured before */
} row_column;
typedef struct row_text {
    row_column columns[ROW_COLUMNS];
    size_t count, used; /* used: of page */
    bool markdown;      /* --markdown, from rows_head on */
    char page[4 << 10];
} row_text;

void rows_begin(row_text *t, const row_field *fields, unsigned set, size_t gap);
void rows_measure(row_text *t, const row_parts *r);
void rows_head(row_text *t, const cli *c);
size_t rows_line(row_text *t, const row_parts *r); /* how wide it became */
void rows_end_line(row_text *t);
void rows_flush(row_text *t);

/* A cell of a table in Markdown, escaped; code: in the type of code, as names from a file are. */
void rows_put_markdown(ckpt_str s, bool code);
/* The same of text that is escaped already. */
void rows_put_markdown_message(const char *text, bool code);
/* A cell by itself; data NULL: not known. */
ckpt_str rows_cell(const row_field *f, char buf[ROW_CELL], const row_parts *r);
/* What a field's `text` gives: a word of the program's own (NULL: not known), or what it prints into buf. */
ckpt_str rows_word(const char *text);
ckpt_str rows_print(char buf[ROW_CELL], const char *format, ...) CLI_PRINTF(2, 3);
#endif
