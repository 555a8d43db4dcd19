/* codec/json.h - strict JSON (RFC 8259) over a byte range that nobody has vouched for: a pull lexer, and a writer.
 *
 * The lexer checks all of the grammar as it goes: UTF-8, escapes and surrogate pairs, numbers ("[02]" is refused),
 * control characters, commas, depth, and that nothing but white space follows the value. It neither recurses nor
 * allocates; what it gives points into the text. Whoever pulls until CKPT__JSON_END knows that the document is sound.
 * Duplicate keys are the caller's to find, since only the caller knows how many keys to expect: ckpt__json_split does
 * it for small objects, a ckpt__hash for large ones.
 *
 *     ckpt__json j;
 *     ckpt__json_start(&j, text, size, 16, "manifest");
 *     if (ckpt__json_expect(&j, CKPT__JSON_OBJECT, err) < 0) ...
 *     while ((more = ckpt__json_member(&j, &scratch, &key, err)) > 0) {
 *         if (ckpt__str_is(key, "step")) status = ckpt__json_int(&j, &step, err);
 *         else status = ckpt__json_skip(&j, NULL, err);
 *     }
 */
#ifndef CKPT_JSON_H
#define CKPT_JSON_H
#include "base/base.h"

enum { CKPT__JSON_DEPTH = 8192 }; /* the most that max_depth may be */

typedef enum ckpt__json_event {
    CKPT__JSON_ERROR = -1, /* *err says what and where; every later call gives it again */
    CKPT__JSON_END = 0,    /* the value is complete and nothing follows */
    CKPT__JSON_OBJECT,
    CKPT__JSON_OBJECT_END,
    CKPT__JSON_ARRAY,
    CKPT__JSON_ARRAY_END,
    CKPT__JSON_KEY,
    CKPT__JSON_STRING,
    CKPT__JSON_NUMBER,
    CKPT__JSON_TRUE,
    CKPT__JSON_FALSE,
    CKPT__JSON_NULL
} ckpt__json_event;

/* A place in a document: the lexer owns nothing, and takes no memory however deep a document nests. After `{"step": 12` was
 * pulled as OBJECT, KEY, NUMBER: pos 11, depth 1, event NUMBER, start 9, end 11. */
typedef struct ckpt__json {
    const char *text;
    size_t size, pos;                          /* the caller's; its bytes; the next byte to look at */
    const char *what;                          /* for messages: "header", "manifest"; the caller's */
    unsigned depth, max_depth;                 /* objects and arrays that are open; the most that may be */
    int state;                                 /* what the grammar expects next: json.c */
    ckpt_status status;                        /* of the error, once there was one */
    ckpt__json_event event;                    /* the last one */
    size_t start, end;                         /* its bytes [start, end): of a string or key without the quotes */
    bool escaped;                              /* string or key: holds a backslash */
    uint64_t in_object[CKPT__JSON_DEPTH / 64]; /* a bit for each open level: 1 object, 0 array */
} ckpt__json;

/* text stays the caller's and must outlive j. */
void ckpt__json_start(ckpt__json *j, const char *text, size_t size, unsigned max_depth, const char *what);

/* CKPT_E_FORMAT with the byte where the grammar is broken; CKPT_E_LIMIT for the depth. */
ckpt__json_event ckpt__json_next(ckpt__json *j, ckpt_error *err);

/* The next event must be this one: else CKPT_E_FORMAT ("expected an array, found a string"). */
ckpt_status ckpt__json_expect(ckpt__json *j, ckpt__json_event event, ckpt_error *err);

/* Inside an object: 1 and the key (valid until scratch changes), 0 at its end, negative on an error. */
int ckpt__json_member(ckpt__json *j, ckpt__buf *scratch, ckpt_str *key, ckpt_error *err);

/* The text of the string or key that was the last event, escapes resolved: points into the document where there were
 * none (so no NUL follows), else into scratch, which it replaces. data NULL when memory is short. */
ckpt_str ckpt__json_text(const ckpt__json *j, ckpt__buf *scratch);

/* The next value, of this type. Integers must be written as such: 1.0 and 1e3 are refused. */
ckpt_status ckpt__json_string(ckpt__json *j, ckpt__buf *scratch, ckpt_str *out, ckpt_error *err);
ckpt_status ckpt__json_int(ckpt__json *j, int64_t *out, ckpt_error *err);
/* The integer of the NUMBER event that was the last. */
ckpt_status ckpt__json_this_int(const ckpt__json *j, int64_t *out, ckpt_error *err);

/* Reads over the next value, whatever it is; its bytes go to *range (may be NULL). */
ckpt_status ckpt__json_skip(ckpt__json *j, ckpt_str *range, ckpt_error *err);

/* Behind a key: the next n bytes are an object, which the caller has read by itself and found to be sound. */
void ckpt__json_took(ckpt__json *j, size_t n);

/* "<what>: <message>, at byte N": CKPT_E_FORMAT, for what the grammar allows and the reader does not. */
ckpt_status ckpt__json_wrong(const ckpt__json *j, ckpt_error *err, const char *format, ...) CKPT__PRINTF(3, 4);

/* Splits the object that is the whole text into its members: ranges[i] gets the bytes of member names[i] (data NULL:
 * absent). Other members are checked and passed over; a key that occurs twice is CKPT_E_FORMAT and named. */
ckpt_status ckpt__json_split(const char *text, size_t size, unsigned max_depth, const char *what,
                             const char *const *names, ckpt_str *ranges, size_t n, ckpt_error *err);

/* A small member (at most 64 KiB, 16 levels, 256 keys an object, no NUL in a string, no key twice) as a cJSON tree, for
 * documents that people edit and where speed is nothing: it has been through the lexer first. Free with cJSON_Delete.
 */
struct cJSON;
ckpt_status ckpt__json_tree(const char *text, size_t size, const char *what, struct cJSON **out, ckpt_error *err);
/* The member of an object, by its exact name; NULL where there is none. */
const struct cJSON *ckpt__json_get(const struct cJSON *object, const char *key);

/* ---- writing: appends to b; errors are b's (`failed`) */
void ckpt__json_put_string(ckpt__buf *b, const char *data, size_t n);  /* quoted; data must be UTF-8 */
void ckpt__json_put_escaped(ckpt__buf *b, const char *data, size_t n); /* the same without the quotes */
void ckpt__json_put_u64(ckpt__buf *b, uint64_t v);
void ckpt__json_put_i64(ckpt__buf *b, int64_t v);
/* Shortest text that reads back, always with '.' or 'e'; not finite: the strings "nan", "inf", "-inf". */
void ckpt__json_put_double(ckpt__buf *b, double v);

/* ---- hexadecimal, lower case only: a flipped bit must not turn a digit into its upper-case twin */
void ckpt__hex_put(ckpt__buf *b, const void *data, size_t n);
bool ckpt__hex_get(const char *text, size_t n, void *out); /* n digits, n / 2 bytes; n must be even */
void ckpt__hex_crc(char *out, uint32_t crc);               /* 8 digits, no NUL */
bool ckpt__hex_crc_get(const char *text, uint32_t *crc);   /* 8 digits */
#endif
