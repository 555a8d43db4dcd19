/* base/error.c - status names and the error record. */
#include "base/base.h"

#include <stdio.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#ifndef PACKAGE_VERSION /* built by hand */
#define PACKAGE_VERSION TEXT(CKPT_VERSION_MAJOR) "." TEXT(CKPT_VERSION_MINOR) "." TEXT(CKPT_VERSION_PATCH)
#endif
#ifndef CKPT_BUILD_INFO
#define CKPT_BUILD_INFO "built by hand"
#endif

const char *ckpt_version(void)
{
    return PACKAGE_VERSION;
}

unsigned ckpt_version_number(void)
{
    return CKPT_VERSION_NUMBER;
}

const char *ckpt_build_info(void)
{
    return CKPT_BUILD_INFO;
}

const char *ckpt_status_name(ckpt_status status)
{
    switch (status) {
    case CKPT_OK:
        return "ok";
    case CKPT_NOTHING_TO_RESUME:
        return "nothing-to-resume";
    case CKPT_STOP:
        return "stop";
    case CKPT_ANSWER_NO:
        return "no";
    case CKPT_E_FORMAT:
        return "format";
    case CKPT_E_DAMAGED:
        return "damaged";
    case CKPT_E_TOO_NEW:
        return "too-new";
    case CKPT_E_LIMIT:
        return "limit";
    case CKPT_E_MISMATCH:
        return "mismatch";
    case CKPT_E_POISONED:
        return "poisoned";
    case CKPT_E_DEVICE:
        return "device";
    case CKPT_E_SYSTEM:
        return "system";
    case CKPT_E_CANCELLED:
        return "cancelled";
    case CKPT_E_NO_MEMORY:
        return "no-memory";
    case CKPT_E_ARGUMENT:
        return "argument";
    case CKPT_E_UNSUPPORTED:
        return "unsupported";
    case CKPT_E_NOT_FOUND:
        return "not-found";
    case CKPT_E_EXISTS:
        return "exists";
    }
    return "unknown";
}

/* Length of the valid UTF-8 sequence at p (n bytes left), 0 where it is none. */
static size_t utf8_length(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

bool ckpt__utf8_valid(const char *data, size_t n)
{
    const unsigned char *p = (const unsigned char *)data;
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (n - i >= sizeof eight &&
            (memcpy(&eight, p + i, sizeof eight), (eight & UINT64_C(0x8080808080808080)) == 0)) {
            i += sizeof eight;
            continue;
        }
        size_t len = p[i] < 0x80 ? 1 : utf8_length(p + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

/* The printable form of what stands at p; *used bytes of input. At most 4 characters and a NUL. */
static size_t escape_one(char piece[8], const unsigned char *p, size_t n, size_t *used)
{
    static const char hex[] = "0123456789abcdef";
    size_t len = utf8_length(p, n);
    *used = len ? len : 1;
    bool c1 = len == 2 && p[0] == 0xc2 && p[1] < 0xa0; /* the C1 controls act on terminals too */
    if (len > 1 && !c1) {
        memcpy(piece, p, len);
        return len;
    }
    if (len == 1 && p[0] >= 0x20 && p[0] != 0x7f && p[0] != '\\') {
        piece[0] = (char)p[0];
        return 1;
    }
    piece[0] = '\\';
    const char *named = p[0] == '\n' ? "n" : p[0] == '\t' ? "t" : p[0] == '\r' ? "r" : p[0] == '\\' ? "\\" : NULL;
    if (named) {
        piece[1] = *named;
        return 2;
    }
    unsigned char c = c1 ? p[1] : p[0];
    piece[1] = 'x';
    piece[2] = hex[c >> 4];
    piece[3] = hex[c & 15];
    return 4;
}

char *ckpt__escape(char *out, size_t size, const char *data, size_t n)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t o = 0, fits = 0; /* fits: the last place where "..." still has room */
    if (size == 0)
        return out;
    for (size_t i = 0, used; i < n; i += used) {
        char piece[8];
        size_t len = escape_one(piece, p + i, n - i, &used);
        if (o + len + 1 > size) {
            size_t dots = size - 1 - fits < 3 ? size - 1 - fits : 3;
            memset(out + fits, '.', dots);
            out[fits + dots] = '\0';
            return out;
        }
        memcpy(out + o, piece, len);
        o += len;
        if (o + 4 <= size)
            fits = o;
    }
    out[o] = '\0';
    return out;
}

static void put_object(ckpt_error *err, const char *object)
{
    ckpt__escape(err->object, sizeof err->object, object ? object : "", object ? strlen(object) : 0);
}

static void put_message(ckpt_error *err, const char *text, size_t n)
{
    /* Formats embed bytes from files (already escaped or not): control characters never get through. A backslash that
     * an inner escape made stays single. */
    size_t o = 0;
    for (size_t i = 0; i < n && o + 5 < sizeof err->message; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) {
            char piece[8];
            size_t used, len = escape_one(piece, &c, 1, &used);
            memcpy(err->message + o, piece, len);
            o += len;
        } else
            err->message[o++] = (char)c;
    }
    err->message[o] = '\0';
}

static void vformat(ckpt_error *err, const char *format, va_list ap, const char *tail)
{
    char text[1024];
    int n = vsnprintf(text, sizeof text, format, ap);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (tail && size + 2 < sizeof text) {
        int more = snprintf(text + size, sizeof text - size, ": %s", tail);
        if (more > 0)
            size = size + (size_t)more < sizeof text ? size + (size_t)more : sizeof text - 1;
    }
    put_message(err, text, size);
}

ckpt_status ckpt__fail(ckpt_error *err, ckpt_status status, const char *object, const char *format, ...)
{
    if (err) {
        va_list ap;
        memset(err, 0, sizeof *err);
        err->status = status;
        put_object(err, object);
        va_start(ap, format);
        vformat(err, format, ap, NULL);
        va_end(ap);
    }
    return status;
}

ckpt_status ckpt__fail_sys(ckpt_error *err, int errno_value, const char *object, const char *format, ...)
{
    if (err) {
        char reason[128];
        va_list ap;
        memset(err, 0, sizeof *err);
        err->status = CKPT_E_SYSTEM;
        err->sys_errno = errno_value;
        put_object(err, object);
        va_start(ap, format);
        vformat(err, format, ap, strerror_r(errno_value, reason, sizeof reason));
        va_end(ap);
    }
    return CKPT_E_SYSTEM;
}

ckpt_status ckpt__fail_memory(ckpt_error *err, const char *what, uint64_t bytes)
{
    if (bytes)
        return ckpt__fail(err, CKPT_E_NO_MEMORY, what, "no memory for %llu bytes", (unsigned long long)bytes);
    return ckpt__fail(err, CKPT_E_NO_MEMORY, what, "no memory");
}

void ckpt__error_prefix(ckpt_error *err, const char *format, ...)
{
    if (!err)
        return;
    char before[sizeof err->message];
    memcpy(before, err->message, sizeof before);
    va_list ap;
    va_start(ap, format);
    vformat(err, format, ap, before);
    va_end(ap);
}

void ckpt__error_object(ckpt_error *err, const char *object)
{
    if (err)
        put_object(err, object);
}

ckpt_status ckpt__fail_tensor(ckpt_error *err, ckpt_status status, ckpt_str name)
{
    if (status != CKPT_E_DEVICE || !err || ckpt__str_is(name, err->object))
        return status;
    ckpt_error was = *err;
    ckpt__fail(err, status, name.data, "%s%s%s", was.object, was.object[0] ? ": " : "", was.message);
    err->device_code = was.device_code;
    return status;
}
