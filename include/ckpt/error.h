/* ckpt/error.h - status codes and the error record. */
#ifndef CKPT_ERROR_H
#define CKPT_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What a call answers. Errors are negative, 0 is done, information is positive. Values are stable. */
typedef enum ckpt_status {
    CKPT_OK = 0,
    CKPT_NOTHING_TO_RESUME = 1,   /* there is no checkpoint yet: start from the beginning */
    CKPT_STOP = 2,                /* saved because of a signal or deadline: leave the loop */
    CKPT_ANSWER_NO = 3,                  /* the question was answered, and the answer is no (verify, guard) */

    CKPT_E_FORMAT = -1,           /* not this format, or not a checkpoint at all, or its rules are broken */
    CKPT_E_DAMAGED = -2,          /* this format, but truncated, altered, or a checksum is wrong */
    CKPT_E_TOO_NEW = -3,          /* written by a newer version than this one reads */
    CKPT_E_LIMIT = -4,            /* over a limit that protects against hostile files; the message names it */
    CKPT_E_MISMATCH = -5,         /* checkpoint and state (names, shapes, dtypes, devices) do not fit */
    CKPT_E_POISONED = -6,         /* a restore failed midway: the state holds a mixture; restore it again first */
    CKPT_E_DEVICE = -7,           /* a device is not there, or its driver refused a call */
    CKPT_E_SYSTEM = -8,           /* the operating system refused a call: see sys_errno */
    CKPT_E_CANCELLED = -9,        /* the progress callback asked to stop */
    CKPT_E_NO_MEMORY = -10,       /* host memory */
    CKPT_E_ARGUMENT = -11,        /* the caller's argument is wrong */
    CKPT_E_UNSUPPORTED = -12,     /* recognised and named, but this version does not read or write it */
    CKPT_E_NOT_FOUND = -13,       /* no such tensor, key or file */
    CKPT_E_EXISTS = -14           /* the destination exists and replacing it was not asked for */
} ckpt_status;

/* Plain data, about 1 KiB; put it on the stack. Written on failure only; every function accepts NULL for it.
 * `message` says what is wrong, what was found, what was expected and what to do; it is one line of UTF-8 with
 * control characters escaped, and does not repeat `object`. */
typedef struct ckpt_error {
    ckpt_status status;
    int sys_errno;                /* errno of the refused system call, or 0 */
    int device_code;              /* CUresult of the refused driver call, or 0 */
    char object[256];             /* the file, tensor, rule or device that it is about; "" where there is none */
    char message[756];
} ckpt_error;

#define CKPT_ERROR_INIT { CKPT_OK, 0, 0, "", "" }

/* A stable short name, such as "damaged" (the "code" of the commands' JSON). Never NULL. */
const char *ckpt_status_name(ckpt_status status);

/* "0.1.0", and a line that says what was built in ("cuda: yes (13.0), isa-l: no, ..."). Static strings. */
const char *ckpt_version(void);
const char *ckpt_build_info(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
