/* tests/unit/require.h - assertions that end the process: for what runs in a child, or without Check. */
#ifndef REQUIRE_H
#define REQUIRE_H
#include <stdio.h>
#include <unistd.h>
#include <ckpt/error.h>

/* Every call of a test may report into this one. */
static ckpt_error err __attribute__((unused));

/* In a child process Check's own assertions would return into the parent's loop of tests. */
#define REQUIRE(what)                                                                                                  \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                                         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define REQUIRE_OK(call)                                                                                               \
    do {                                                                                                               \
        ckpt_status status_ = (call);                                                                                  \
        if (status_ != CKPT_OK) {                                                                                      \
            fprintf(stderr, "%s:%d: %s: status %d: %s: %s\n", __FILE__, __LINE__, #call, (int)status_, err.object,     \
                    err.message);                                                                                      \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#endif
