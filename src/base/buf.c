/* base/buf.c - growable buffers and arrays. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

void ckpt__buf_free(ckpt__buf *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

bool ckpt__buf_reserve(ckpt__buf *b, size_t more)
{
    if (b->failed)
        return false;
    if (more < b->capacity - b->size)
        return true;
    size_t need, capacity = b->capacity ? b->capacity : 64;
    if (__builtin_add_overflow(b->size, more, &need) || need > SIZE_MAX / 2 - 1) {
        b->failed = true;
        return false;
    }
    while (capacity <= need)
        capacity *= 2;
    char *data = realloc(b->data, capacity);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    ckpt__touch(b->data + b->size, more);
    b->data[b->size] = '\0';
    return true;
}

void ckpt__buf_add(ckpt__buf *b, const void *data, size_t n)
{
    if (!ckpt__buf_reserve(b, n))
        return;
    if (n)
        memcpy(b->data + b->size, data, n);
    b->size += n;
    b->data[b->size] = '\0';
}

void ckpt__buf_str(ckpt__buf *b, const char *text)
{
    ckpt__buf_add(b, text, strlen(text));
}

void ckpt__buf_char(ckpt__buf *b, char c)
{
    ckpt__buf_add(b, &c, 1);
}

void ckpt__buf_printf(ckpt__buf *b, const char *format, ...)
{
    char small[256];
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, format, ap);
    va_end(ap);
    if (n < 0)
        b->failed = true;
    else if ((size_t)n < sizeof small)
        ckpt__buf_add(b, small, (size_t)n);
    else if (ckpt__buf_reserve(b, (size_t)n + 1)) {
        vsnprintf(b->data + b->size, (size_t)n + 1, format, again);
        b->size += (size_t)n;
    }
    va_end(again);
}

bool ckpt__grow_more(void *items_pointer, size_t *capacity, size_t need, size_t item_size)
{
    size_t n = *capacity ? *capacity : 8, bytes;
    while (n < need) {
        if (n > SIZE_MAX / 2)
            return false;
        n *= 2;
    }
    void *items;
    memcpy(&items, items_pointer, sizeof items); /* a T ** seen as bytes: no aliasing of pointer types */
    if (__builtin_mul_overflow(n, item_size, &bytes) || !(items = realloc(items, bytes)))
        return false;
    memcpy(items_pointer, &items, sizeof items);
    *capacity = n;
    return true;
}
