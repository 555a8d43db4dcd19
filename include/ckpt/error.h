/* ckpt/error.h - status codes, the error record, the version, and what all headers share. */
#ifndef CKPT_ERROR_H
#define CKPT_ERROR_H

/* Each header puts its declarations between these two. */
#ifdef __cplusplus
#define CKPT_BEGIN_DECLS                                                                                               \
    extern "C" {                                                                                                       \
    _Pragma("GCC visibility push(default)")
#define CKPT_END_DECLS                                                                                                 \
    _Pragma("GCC visibility pop")                                                                                      \
    }
#else
#define CKPT_BEGIN_DECLS _Pragma("GCC visibility push(default)")
#define CKPT_END_DECLS _Pragma("GCC visibility pop")
#endif

/* The version of this header. ckpt_version_number() is that of the library that the program runs with. */
#define CKPT_VERSION_MAJOR 0
#define CKPT_VERSION_MINOR 2
#define CKPT_VERSION_PATCH 0
#define CKPT_VERSION_NUMBER                                                                                            \
    (CKPT_VERSION_MAJOR * 10000 + CKPT_VERSION_MINOR * 100 + CKPT_VERSION_PATCH) /* 0.2.0: 200 */

/* A struct that may grow begins with struct_size, and has an initializer CKPT_..._INIT that sets struct_size to the size that
 * the program was compiled with, and all else to zero. The library reads and writes so many bytes and no more. A struct_size
 * of 0 ("= { 0 }") means the size that the struct had in 0.2.0. New fields are added at the end. */
#ifdef __cplusplus
extern "C++" { /* also where a program includes this within extern "C" */
template <typename T> inline T ckpt_sized()
{
    T value = T();
    value.struct_size = sizeof(T);
    return value;
}
}
#define CKPT_SIZED(T) ckpt_sized<T>()
#else
#define CKPT_SIZED(T)                                                                                                  \
    {                                                                                                                  \
        .struct_size = sizeof(T)                                                                                       \
    }
#endif

CKPT_BEGIN_DECLS

/* The answer of a call. Errors are negative, 0 is done, information is positive. Values are stable; new ones may be added. */
typedef enum ckpt_status {
    CKPT_OK = 0,

    /* The run directory holds no checkpoint yet: ckpt_run_resume. Begin at step 0. */
    CKPT_NOTHING_TO_RESUME = 1,

    /* A signal, a deadline or the file STOP asked for a stop, and the checkpoint is on disk: ckpt_run_step. Leave the loop. */
    CKPT_STOP = 2,

    /* The question was answered, and the answer is no: ckpt_verify (damaged), ckpt_guard (not on one device). The findings of
     * the report say what. */
    CKPT_ANSWER_NO = 3,

    /* The file has another format, is not a checkpoint, or breaks a rule of its format. Check whether the path is
     * right. */
    CKPT_E_FORMAT = -1,

    /* The file is of the format, and it is truncated or altered, or a checksum is wrong. Take an older checkpoint or a copy;
     * ckpt_migrate with salvage keeps what is whole. */
    CKPT_E_DAMAGED = -2,

    /* A newer version of ckpt wrote the file, in a way that this one does not read. Update libckpt. */
    CKPT_E_TOO_NEW = -3,

    /* A limit that protects against hostile files was passed. The message names it; SECURITY.md lists them. */
    CKPT_E_LIMIT = -4,

    /* Checkpoint and state do not fit: names, shapes, dtypes, devices. The report lists all of it; nothing was changed. */
    CKPT_E_MISMATCH = -5,

    /* The last restore failed midway, and the state holds a mixture. Restore it again before it is saved. */
    CKPT_E_POISONED = -6,

    /* A device is not there, or its driver refused a call: see device_code. */
    CKPT_E_DEVICE = -7,

    /* The operating system refused a call: see sys_errno. A save may be tried again: the checkpoint before is untouched. */
    CKPT_E_SYSTEM = -8,

    /* The progress callback asked to stop. */
    CKPT_E_CANCELLED = -9,

    /* Host memory is short. */
    CKPT_E_NO_MEMORY = -10,

    /* An argument of the call is wrong. This is a fault of the program, or of a text that its user gave (a map, a rule). */
    CKPT_E_ARGUMENT = -11,

    /* The library knows what was given, and this version does not read or write it. */
    CKPT_E_UNSUPPORTED = -12,

    /* The tensor, key or file does not exist. */
    CKPT_E_NOT_FOUND = -13,

    /* The destination exists, and replacing it was not asked for; or another process writes in the run directory. */
    CKPT_E_EXISTS = -14
} ckpt_status;

/* The record of a failure. Plain data of about 1 KiB; put it on the stack. It is written on failure only; every function accepts NULL
 * for it. `message` says what is wrong, what was found, what was expected and what to do; it is one line of UTF-8 with
 * control characters escaped, and does not repeat `object`. The struct never grows. */
typedef struct ckpt_error {
    ckpt_status status;
    int sys_errno;    /* errno of the refused system call, or 0 */
    int device_code;  /* CUresult of the refused driver call, or 0 */
    char object[256]; /* the file, tensor, rule or device that it is about; "" where there is none */
    char message[756];
} ckpt_error;

#define CKPT_ERROR_INIT                                                                                                \
    {                                                                                                                  \
        CKPT_OK, 0, 0, "", ""                                                                                          \
    }

/* A stable short name, such as "damaged" (the "code" of the commands' JSON). Never NULL. */
const char *ckpt_status_name(ckpt_status status);

/* The library that the program runs with: "0.2.0"; the same as a number, 200 (major * 10000 + minor * 100 + patch); and a line
 * that says what was built in ("cuda: yes (13.0), isa-l: no, ..."). The strings are static. */
const char *ckpt_version(void);
unsigned ckpt_version_number(void);
const char *ckpt_build_info(void);

CKPT_END_DECLS
#endif
