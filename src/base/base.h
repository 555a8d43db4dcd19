/* base/base.h - what every room uses: errors, checked arithmetic, strings, arenas, hash tables, numbers. libc only. */
#ifndef CKPT_BASE_H
#define CKPT_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <ckpt/error.h>
#include <ckpt/tensor.h>

/* How many there are, of the enums that may grow. */
#define CKPT__DTYPE_COUNT ((int)CKPT_F4 + 1)
#define CKPT__ROLE_COUNT ((int)CKPT_ROLE_OTHER + 1)

#if defined(__GNUC__)
#define CKPT__PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define CKPT__PRINTF(a, b)
#endif

/* ---- errors: each fills *err (NULL is fine) and returns the status. object may be NULL. */
ckpt_status ckpt__fail(ckpt_error *err, ckpt_status status, const char *object, const char *format, ...)
    CKPT__PRINTF(4, 5);
/* "<what>: <strerror>"; errno_value in sys_errno. ENOMEM stays CKPT_E_SYSTEM. */
ckpt_status ckpt__fail_sys(ckpt_error *err, int errno_value, const char *object, const char *format, ...)
    CKPT__PRINTF(4, 5);
ckpt_status ckpt__fail_memory(ckpt_error *err, const char *what, uint64_t bytes);
/* Puts "text: " before the message that is already there (context added on the way up). */
void ckpt__error_prefix(ckpt_error *err, const char *format, ...) CKPT__PRINTF(2, 3);
void ckpt__error_object(ckpt_error *err, const char *object);
/* What a device refused, with the tensor's name: err->object, which was the device's, becomes part of the message. Returns
 * the status. */
ckpt_status ckpt__fail_tensor(ckpt_error *err, ckpt_status status, ckpt_str name);

/* ---- structs of the caller's that may grow (error.h, CKPT_SIZED): each begins with a uint32_t struct_size, where 0 means first_size,
 * the size of the first release. name is the struct's, for messages. base/first_sizes.h has the sizes, and macros.
 *
 * Options: *own becomes zero and then what the caller gave (NULL: nothing), with own->struct_size set. CKPT_E_ARGUMENT: the
 * caller's struct is smaller than any release's, or has fields set that this library does not know. */
ckpt_status ckpt__take_options(void *own, size_t own_size, size_t first_size, const void *given, const char *name,
                               ckpt_error *err);
/* Answers: is there room for one (CKPT_E_ARGUMENT)? The answer itself, as much as the caller's struct has, its struct_size kept; what
 * the caller's has beyond own becomes zero. And the caller's struct as it is, what it lacks zero. given may be NULL. */
ckpt_status ckpt__check_answer(const void *given, size_t first_size, const char *name, ckpt_error *err);
void ckpt__give_answer(void *given, const void *own, size_t own_size, size_t first_size);
void ckpt__take_answer(void *own, size_t own_size, size_t first_size, const void *given);

/* Escapes control characters, DEL, broken UTF-8 and backslash for one line of text: \n, \x1b, ... Writes at most size
 * bytes with the NUL, ending in "..." where cut. Returns out. */
char *ckpt__escape(char *out, size_t size, const char *data, size_t n);

/* Bytes of a block: of a read, of a write, and of a pinned buffer between the two. */
enum { CKPT__BLOCK = 8 << 20 };

/* ---- checked arithmetic: false on overflow, *out untouched. */
static inline bool ckpt__add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool ckpt__mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
/* Product of a shape; false on overflow of int64 or a negative size. Empty shape: 1. */
bool ckpt__numel(const int64_t *shape, uint32_t ndim, uint64_t *out);
/* Equal in every size; the pointers may be NULL where ndim is 0. */
bool ckpt__same_shape(const int64_t *a, uint32_t a_ndim, const int64_t *b, uint32_t b_ndim);
/* "[10, 64]" into buf; cut short with "..." where there is no room. */
void ckpt__shape_text(char *buf, size_t size, const int64_t *shape, uint32_t ndim);
/* bits * numel, rounded up to whole bytes; false on overflow. */
bool ckpt__nbytes(uint64_t numel, unsigned bits, uint64_t *out);
/* C-order strides of a shape, in elements (a size of 0 counts as 1, as torch does). */
void ckpt__c_strides(const int64_t *shape, uint32_t ndim, int64_t *strides);
bool ckpt__is_c_order(const int64_t *shape, const int64_t *strides, uint32_t ndim);
/* Does each element lie at a place of its own, and is none left between them? C order but for the order of the dimensions.
 * The number of elements must be known to fit. */
bool ckpt__is_dense(const int64_t *shape, const int64_t *strides, uint32_t ndim);
/* Elements from the first to one past the last that a view touches (0 for an empty one); false on overflow or a
 * negative stride. */
bool ckpt__view_extent(const int64_t *shape, const int64_t *strides, uint32_t ndim, uint64_t *out);

/* ---- a growable byte buffer. The buffer exists so that a text can be put together without a check at each step: after a
 * failed call `failed` is set, the buffer stays as it was, and the caller checks once at the end. All zero is empty. */
typedef struct ckpt__buf {
    char *data;            /* heap, owned, freed by ckpt__buf_free; NULL while empty, else a NUL follows */
    size_t size, capacity; /* bytes: without that NUL; and allocated */
    bool failed;           /* memory was short once; stays set */
} ckpt__buf;
void ckpt__buf_free(ckpt__buf *b);
bool ckpt__buf_reserve(ckpt__buf *b, size_t more);
void ckpt__buf_add(ckpt__buf *b, const void *data, size_t n);
void ckpt__buf_str(ckpt__buf *b, const char *text);
void ckpt__buf_char(ckpt__buf *b, char c);
void ckpt__buf_printf(ckpt__buf *b, const char *format, ...) CKPT__PRINTF(2, 3);

/* ---- arena: many small allocations freed together; 8-byte aligned, zeroed. `limit` bounds its bytes (0: none). */
typedef struct ckpt__arena ckpt__arena;
ckpt__arena *ckpt__arena_new(uint64_t limit);
void ckpt__arena_free(ckpt__arena *a);
void *ckpt__arena_alloc(ckpt__arena *a, size_t size);                 /* NULL: memory or limit */
void *ckpt__arena_array(ckpt__arena *a, size_t count, size_t size);   /* overflow-checked */
char *ckpt__arena_copy(ckpt__arena *a, const char *data, size_t n);   /* NUL added */
ckpt_str ckpt__arena_str(ckpt__arena *a, const char *data, size_t n); /* data NULL on failure */
/* One after the other, as one string; data NULL on failure. A part may be without data. */
ckpt_str ckpt__arena_join(ckpt__arena *a, ckpt_str one, ckpt_str two, ckpt_str three);
/* Shape and strides in an arena. Many tensors that follow each other are alike in both (moments and their parameter, the layers of a
 * model), and those have one copy. */
typedef struct ckpt__last_view {
    const int64_t *last; /* shape[ndim], strides[ndim], in the arena; NULL: none yet */
    uint32_t ndim;
    bool c_order; /* nobody gave the strides */
} ckpt__last_view;
/* shape[ndim], strides[ndim]; strides NULL: C order, and then the shape's product is known to fit. NULL: no memory. */
const int64_t *ckpt__view_keep(ckpt__last_view *last, ckpt__arena *arena, const int64_t *shape, const int64_t *strides,
                               uint32_t ndim);
/* So many bytes are likely to be asked for: what is asked first lies in one piece, in huge pages where there are some, that is
 * quicker to have and to walk through. Nothing else changes, and nothing is lost where it is not to be had. */
void ckpt__arena_expect(ckpt__arena *a, size_t bytes);
uint64_t ckpt__arena_used(const ckpt__arena *a);
bool ckpt__arena_over_limit(const ckpt__arena *a); /* a failure was the limit */
uint64_t ckpt__arena_limit(const ckpt__arena *a);
/* Counts bytes that lie on the heap against the arena's limit, as if they lay in it: false, and nothing counted, where that is
 * passed. What is freed again is discharged. */
bool ckpt__arena_charge(ckpt__arena *a, uint64_t bytes);
void ckpt__arena_discharge(ckpt__arena *a, uint64_t bytes);
void ckpt__arena_allow(ckpt__arena *a, uint64_t more); /* a limit, where there is one, is so much higher */

/* How much memory a file of `size` bytes may ask for (SECURITY.md has the factors, and how they were found): what is known of
 * it once it is open, with all that reading it takes on the way, and what a compressed part of it may inflate to. of_many: it
 * is a file of a directory, of which there may be many, so that each gets a small share of what every checkpoint may take. */
uint64_t ckpt__known_limit(uint64_t size, bool of_many);
uint64_t ckpt__inflated_limit(uint64_t size, bool of_many);
/* The most values that a file may have, and the most bytes of their names together. A shared value counts at each of its places.
 * The limits bound each later walk that prints or keeps something of every value. */
uint64_t ckpt__visits_limit(uint64_t size);
uint64_t ckpt__names_limit(uint64_t size);
/* A place in an arena. ckpt__arena_rewind gives back everything that was taken after ckpt__arena_note made the mark. Marks are
 * used in reverse: a rewind to an early mark ends all later ones. The pointers belong to the arena. */
typedef struct ckpt__arena_mark {
    void *chunk, *second; /* the arena's first chunk at that time, and the one behind it; NULL: none */
    size_t left;          /* bytes that the first chunk had left */
    uint64_t used;        /* bytes that were taken from the arena */
} ckpt__arena_mark;
ckpt__arena_mark ckpt__arena_note(const ckpt__arena *a);
void ckpt__arena_rewind(ckpt__arena *a, const ckpt__arena_mark *mark);

/* A growable array of T: `T *items; size_t count, capacity;` grown on the heap. False when memory is short. */
bool ckpt__grow_more(void *items_pointer, size_t *capacity, size_t need, size_t item_size);
static inline bool ckpt__grow(void *items_pointer, size_t *capacity, size_t need, size_t item_size)
{
    return need <= *capacity || ckpt__grow_more(items_pointer, capacity, need, item_size);
}

/* The same, charged to the arena. What it comes to is capacity * item_size. */
bool ckpt__arena_grow_more(ckpt__arena *a, void *items_pointer, size_t *capacity, size_t need, size_t item_size);
static inline bool ckpt__arena_grow(ckpt__arena *a, void *items_pointer, size_t *capacity, size_t need,
                                    size_t item_size)
{
    return need <= *capacity || ckpt__arena_grow_more(a, items_pointer, capacity, need, item_size);
}

/* Memory that will be written to the end, and soon: where it is much, its pages are had in one call and not by a page fault
 * each. Where that is not to be had nothing is lost. */
void ckpt__touch(void *data, size_t size);

/* Gives the whole pages in this memory back to the system: nobody needs their content. They are zero when they are read. */
void ckpt__forget(void *data, size_t size);

/* Gives back to the system what was freed: after a phase that took much, before one that takes as much elsewhere. */
void ckpt__heap_trim(void);

/* ---- hash table from byte strings (borrowed) to size_t. Seeded per table, so hostile names cannot be chosen to
 * collide. */
typedef struct ckpt__hash ckpt__hash;
ckpt__hash *ckpt__hash_new(size_t expected);
void ckpt__hash_free(ckpt__hash *h);
/* Puts key -> value unless it is there: then *existing (may be NULL) gets its value and the result is 0. 1: put;
 * -1: no memory. */
int ckpt__hash_put(ckpt__hash *h, const char *key, size_t n, size_t value, size_t *existing);
/* Keys that are put soon, the eighth from here as a rule, in the order in which they are told: the place where each belongs is fetched
 * meanwhile. Their bytes stay until they were put, or until the end was told. One that is never put costs nothing but time. */
void ckpt__hash_ahead(ckpt__hash *h, const char *key, size_t n);
void ckpt__hash_ahead_end(ckpt__hash *h);
enum { CKPT__HASH_AHEAD = 8 };
bool ckpt__hash_get(const ckpt__hash *h, const char *key, size_t n, size_t *value);
/* The key that was put last is not there any more. None has been taken back since. */
void ckpt__hash_take_back(ckpt__hash *h);
/* Room for so many more keys. False: no memory for it now, and nothing is lost. */
bool ckpt__hash_expect(ckpt__hash *h, size_t more);

/* ---- numbers, independent of the locale */
enum { CKPT__DOUBLE_MAX = 32 };
char *ckpt__format_double(char *buf, double value); /* shortest text that reads back; "nan", "inf", "-inf";
                                                                      * always with '.' or 'e': 1.0 is "1.0" */
bool ckpt__parse_double(const char *data, size_t n, double *out); /* JSON or C decimal syntax, the whole of it */
bool ckpt__parse_i64(const char *data, size_t n, int64_t *out);   /* decimal, optional '-', the whole of it */
bool ckpt__utf8_valid(const char *data, size_t n);

#include "base/str.h"

#endif
