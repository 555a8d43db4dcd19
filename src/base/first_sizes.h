/* base/first_sizes.h - the public structs that may grow, with the bytes that each had in 0.2.0, the first release with the
 * frozen layout: what a struct_size of 0 means, for ever. A struct grows at its end. A new field begins at or behind the size of
 * each release before it: in what was padding there an old program has anything. (So a new bool or int is followed by fields
 * that fill its eight bytes, or by a reserved one.) tests/frozen_headers.sh holds that for 0.2.0. */
#ifndef CKPT_FIRST_SIZES_H
#define CKPT_FIRST_SIZES_H

#include <ckpt/ckpt.h>
#include "base/base.h"

#define CKPT__FIRST_SIZES(X)                                                                                           \
    X(ckpt_reader_options, 40)                                                                                         \
    X(ckpt_piece_info, 128)                                                                                            \
    X(ckpt_restore_options, 144)                                                                                       \
    X(ckpt_save_options, 48)                                                                                           \
    X(ckpt_migrate_options, 392)                                                                                       \
    X(ckpt_migrate_totals, 72)                                                                                         \
    X(ckpt_guard_options, 56)                                                                                          \
    X(ckpt_run_options, 200)                                                                                           \
    X(ckpt_tensor_desc, 80)                                                                                            \
    X(ckpt_arena_desc, 56)                                                                                             \
    X(ckpt_group_desc, 48)                                                                                             \
    X(ckpt_value_hooks, 48)                                                                                            \
    X(ckpt_verify_options, 48)                                                                                         \
    X(ckpt_verify_result, 72)                                                                                          \
    X(ckpt_run_info, 80)                                                                                               \
    X(ckpt_diff_options, 64)                                                                                           \
    X(ckpt_diff_result, 184)                                                                                           \
    X(ckpt_doctor_options, 104)                                                                                        \
    X(ckpt_doctor_result, 96)                                                                                          \
    X(ckpt_stats_options, 24)                                                                                          \
    X(ckpt_scan_options, 24)                                                                                           \
    X(ckpt_naming_options, 32)                                                                                         \
    X(ckpt_summary, 640)

/* An enumerator for each, by which the macros below find the size: ckpt__first_size_of_ckpt_reader_options. */
#define CKPT__FIRST_SIZE(type, size) ckpt__first_size_of_##type = size,
enum { CKPT__FIRST_SIZES(CKPT__FIRST_SIZE) };
#undef CKPT__FIRST_SIZE

#define CKPT__FIRST_SIZE(type, size)                                                                                   \
    _Static_assert(sizeof(type) >= (size), #type " is smaller than in 0.2.0");                                         \
    _Static_assert(offsetof(type, struct_size) == 0, #type " does not begin with struct_size");
CKPT__FIRST_SIZES(CKPT__FIRST_SIZE)
#undef CKPT__FIRST_SIZE

/* base.h's functions for a struct of the table; own is a pointer to the library's, given to the caller's. */
#define CKPT__TAKE_OPTIONS(type, own, given, err)                                                                      \
    ckpt__take_options(own, sizeof(type), ckpt__first_size_of_##type, given, #type, err)
#define CKPT__CHECK_ANSWER(type, given, err) ckpt__check_answer(given, ckpt__first_size_of_##type, #type, err)
#define CKPT__GIVE_ANSWER(type, given, own) ckpt__give_answer(given, own, sizeof(type), ckpt__first_size_of_##type)
#define CKPT__TAKE_ANSWER(type, own, given) ckpt__take_answer(own, sizeof(type), ckpt__first_size_of_##type, given)

#endif
