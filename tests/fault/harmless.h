/* tests/fault/harmless.h - what the library calls that neither reads nor writes a file, nor takes a resource that may run
 * out: it is not made to fail by test_io_faults, nor recorded by test_power_loss. */
#ifndef HARMLESS_H
#define HARMLESS_H
#include <stdbool.h>
#include <string.h>

/* A '*' stands for the rest of a name. */
static const char *const harmless[] = {
    "ckpt_*",
    "_GLOBAL_OFFSET_TABLE_",
    /* libraries that work on memory */
    "cJSON_*",
    "yaml_*",
    "pcre2_*",
    "inflate*",
    "crc32*",
    "isal_*",
    "ZSTD_*",
    /* the lock of a migration's journal: what is refused it keeps none (kill_migrate.c holds one) */
    "flock",
    /* the halves of a device number: glibc's macros call these where nothing is optimized */
    "gnu_dev_*",
    /* the compiler, its sanitizers and its checks */
    "__asan_*",
    "__lsan_*",
    "__ubsan_*",
    "__tsan_*",
    "__sanitizer_*",
    "__odr_asan*",
    "__gcov_*",
    "__cpu_model",
    "__cpu_features2",
    "__stack_chk_fail",
    "__tls_get_addr",
    "__muloti4",
    "__divti3",
    "__modti3",
    "__udivti3",
    "__umodti3",
    "__divmodti4",
    "__udivmodti4",
    "__fixdfti",
    "__floattidf",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__strcpy_chk",
    "__strcat_chk",
    "__snprintf_chk",
    "__vsnprintf_chk",
    /* strings, numbers, sorting, trees */
    "str*",
    "__isoc99_str*",
    "__isoc23_str*",
    "sscanf",
    "__isoc99_sscanf",
    "__isoc23_sscanf",
    "mem*",
    "snprintf",
    "vsnprintf",
    "qsort*",
    "bsearch",
    "tsearch",
    "tfind",
    "tdelete",
    "tdestroy",
    "frexp*",
    "ldexp*",
    "nearbyint*",
    "floor*",
    "ceil*",
    "hypot*",
    "sqrt*",
    "fmaf",
    "__ctype_*",
    "newlocale",
    "uselocale",
    "freelocale",
    "__errno_location",
    /* threads and signals that exist already */
    "pthread_mutex_*",
    "pthread_cond_*",
    "pthread_condattr_*",
    "pthread_join",
    "pthread_once",
    "pthread_self",
    "pthread_equal",
    "pthread_sigmask",
    "pthread_kill",
    "pthread_setname_np",
    "pthread_atfork",
    "__register_atfork",
    "sig*",
    "__libc_current_sigrt*",
    "raise",
    "kill",
    /* what mmap and malloc gave; where a descriptor stands */
    "munmap",
    "malloc_trim",
    "lseek",
    /* advice on the page cache, and what it has: a failure means that nothing is known of it */
    "posix_fadvise*",
    "preadv2",
    "preadv64v2",
    "mincore",
    /* how much a file system has left, and which one it is: a failure means that it is not known */
    "fstatvfs",
    "fstatvfs64",
    "fstatfs",
    "fstatfs64",
    /* a copy of the process that ends, and has limits of its own (tests/unit/io/test_trial.c lets pipe2 and fork fail) */
    "pipe2",
    "fork",
    "setrlimit",
    "waitid",
    "waitpid",
    "poll",
    "_exit",
    /* the time, who and where we are, the driver's library */
    "clock_gettime",
    "time",
    "gmtime_r",
    "getpid",
    "gettid",
    "getuid",
    "geteuid",
    "getpriority",
    "setpriority",
    "getcwd",
    "getrlimit",
    "nanosleep",
    "sysconf",
    "sched_getaffinity",
    "__sched_cpucount",
    "dlopen",
    "dlsym",
    "dlclose",
    "dlerror",
    "dl_iterate_phdr",
};

static bool is_harmless(const char *name)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        const char *star = strchr(harmless[i], '*');
        if (star ? strncmp(name, harmless[i], (size_t)(star - harmless[i])) == 0 : strcmp(name, harmless[i]) == 0)
            return true;
    }
    return false;
}
#endif
