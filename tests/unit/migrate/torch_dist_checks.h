/* migrate/torch_dist_checks.h - what tests of --to torch-dist share: the kinds of tensors that it has, its values, what is refused, two of them
 * held against each other, and allocations that fail. Link with --wrap=malloc,--wrap=calloc,--wrap=realloc. */
#ifndef TORCH_DIST_CHECKS_H
#define TORCH_DIST_CHECKS_H
#include <sys/stat.h>
#include "../scarce_memory.h"
#include "bound_adam.h"

enum { SIZE = 4, KINDS = 4 }; /* kinds: the weight, exp_avg, exp_avg_sq, the master */

static const char *const heads[KINDS] = {"", "optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq.",
                                         "optimizer.state.param."};
static const ckpt_role roles[KINDS] = {CKPT_ROLE_PARAM, CKPT_ROLE_EXP_AVG, CKPT_ROLE_EXP_AVG_SQ, CKPT_ROLE_MASTER};

/* NULL: there is none. */
static const ckpt_value *root_value(const ckpt_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const ckpt_value *root_value(const ckpt_reader *r, const char *format, ...)
{
    char key[300];
    va_list args;
    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    return ckpt_value_get(ckpt_reader_root(r), key);
}

/* Nothing is there then. */
static void refuses(const char *from, const char *to, ckpt_status status, const char *because)
{
    struct stat st;
    ckpt_status is = migrate(from, to, at("u"));
    ck_assert_msg(is == status, "%d and not for '%s': %s", (int)is, because, err.message);
    ck_assert_msg(strstr(err.message, because), "'%s' is not in: %s", because, err.message);
    ck_assert_int_ne(stat(at("u"), &st), 0);
}

/* All tensors and all values of two checkpoints. */
static void are_the_same(const char *one, const char *other)
{
    ckpt_diff_result result = CKPT_DIFF_RESULT_INIT;
    ckpt_reader *a = opened(one), *b = opened(other);
    ck_assert_int_eq(ckpt_diff(a, b, NULL, &result, NULL, &err), CKPT_OK);
    ck_assert_msg(result.tensor_count == 0, "%s: %s", other, result.tensor_count ? result.tensors[0]->name.data : "");
    ck_assert_msg(result.scalar_count == 0, "%s: %s", other, result.scalar_count ? result.scalars[0]->name.data : "");
    ck_assert_uint_gt(ckpt_reader_tensor_count(a), 0);
    ckpt_diff_result_clear(&result);
    ckpt_reader_close(a);
    ckpt_reader_close(b);
}

/* Each of the first `all` allocations fails once, and of those behind them ever fewer: a target is there where the migration went well, and
 * nowhere else. `to` gets the path of the last one, which had memory enough. */
static void each_allocation(const char *from, long all, char *to, size_t size)
{
    static unsigned count;
    struct stat st;
    char source[200];
    bool failed = true;
    long n = 0, refused = 0;
    snprintf(source, sizeof source, "%s", from); /* at() keeps eight */
    count++;
    options.threads = 1;
    for (; failed; n += 1 + n / all) { /* some may fail and nobody minds */
        ck_assert_int_lt(n, 100000);
        snprintf(to, size, "%s", at("t%u.%ld", count, n));
        allocations_left = n;
        ckpt_status status = migrate(source, "torch-dist", to);
        failed = allocations_left < 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "allocation %ld: %d: %s: %s", n, (int)status,
                      err.object, err.message);
        ck_assert_int_eq(stat(to, &st) == 0, status == CKPT_OK);
        refused += status < 0;
    }
    ck_assert_int_gt(n, 100);
    ck_assert_int_gt(refused, 50);
}
#endif
