/* cli/out/json.h - the commands' JSON: one streaming writer. What it writes is always valid JSON, whatever the bytes. */
#ifndef CKPT_CLI_OUT_JSON_H
#define CKPT_CLI_OUT_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Members of the document and the elements of its arrays stand on lines of their own; what is deeper stays on one
 * line. `key`, the program's own word, is NULL for the elements of an array. Write errors are left in the stream
 * (ferror). */
typedef struct json_out {
    FILE *file;
    unsigned depth;
    bool empty; /* nothing was written yet in the innermost object or array */
    bool keyed; /* json_key was called: its value is next */
    bool line;  /* all of it stands on one line */
} json_out;

void json_init(json_out *j, FILE *file);
/* The document of a command on standard output, up to its first member: json_end_object ends it. */
void json_document(json_out *j);
/* From now on a document is an element of the array that is open in `array` (NULL: it stands on standard output), and its second member is
 * "path". path NULL: without it. The caller keeps both. */
void json_documents_in(json_out *array, const char *path);
/* From now on each document has the member "taken": it is of `path`, for which the PATH `given` stands. Called again it has one more. The
 * caller keeps both until json_documents_forget. False: no memory. */
bool json_documents_took(const char *given, const char *path);
void json_documents_forget(void);
/* From now on each document is one line. */
void json_documents_as_lines(void);
/* The member "error". */
void json_error(json_out *j, const char *code, const char *message);
void json_object(json_out *j, const char *key);
void json_array(json_out *j, const char *key);
void json_end_object(json_out *j);
void json_end_array(json_out *j);

void json_null(json_out *j, const char *key);
void json_bool(json_out *j, const char *key, bool value);
void json_int(json_out *j, const char *key, int64_t value); /* beyond 2^53: a decimal string */
void json_uint(json_out *j, const char *key, uint64_t value);
void json_double(json_out *j, const char *key, double value); /* shortest; "nan", "inf", "-inf" as strings */
/* null where it is not known. */
void json_bool_or_null(json_out *j, const char *key, bool known, bool value);
void json_int_or_null(json_out *j, const char *key, bool known, int64_t value);
void json_uint_or_null(json_out *j, const char *key, bool known, uint64_t value);
void json_double_or_null(json_out *j, const char *key, bool known, double value);
/* [2, 3]; sizes NULL with n > 0: null. */
void json_sizes(json_out *j, const char *key, const int64_t *sizes, uint32_t n);
void json_crc(json_out *j, const char *key, uint32_t crc);      /* eight lower-case hex digits */
void json_text(json_out *j, const char *key, const char *text); /* NULL: null */
/* Bytes from a file: control characters are escaped; a lone surrogate in WTF-8 becomes \udXXX, and a byte that is no
 * UTF-8 at all becomes \udcXX (Python's surrogateescape), so nothing is lost. data NULL: null. */
void json_bytes(json_out *j, const char *key, const char *data, size_t size);
/* The key of the next value where it came from a file: the call that follows gives NULL for its key. */
void json_key(json_out *j, const char *key, size_t size);

/* The shortest decimal text that reads back as `value`, always with '.', 'e' or a name: "1.0", "1e-05", "nan". The
 * program never calls setlocale, so the C locale's point holds. buf: JSON_DOUBLE_MAX bytes. */
enum { JSON_DOUBLE_MAX = 32 };
char *json_format_double(char *buf, double value);

/* Decodes one character of data[0..size): its length, *code set; 0 where the bytes are no (W)UTF-8. */
size_t json_decode(const char *data, size_t size, uint32_t *code);
#endif
