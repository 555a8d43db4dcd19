/* migrate/given_reader.h - a reader of an index that the test has made, which ckpt_reader_open gives once. Link with
 * --wrap=ckpt_reader_open. */
#ifndef GIVEN_READER_H
#define GIVEN_READER_H
#include <ckpt/ckpt.h>

#include "reader/parts.h"
#include "reader/reader.h"
#include "../runner.h"

static ckpt__source *given_source;
static ckpt__index *given_index; /* NULL: the next reader is of the file that is named */
static void (*when_given)(void); /* called when the reader has been given; NULL: nothing is called */

/* The next reader is of this source and this index, and owns both. x NULL: it is of the file that is named. */
static inline void give_reader(ckpt__source *s, ckpt__index *x)
{
    given_source = s;
    given_index = x;
}

ckpt_status __real_ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                    ckpt_error *e);
ckpt_status __wrap_ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                    ckpt_error *e);

ckpt_status __wrap_ckpt_reader_open(const char *path, const ckpt_reader_options *options, ckpt_reader **out,
                                    ckpt_error *e)
{
    if (!given_index)
        return __real_ckpt_reader_open(path, options, out, e);
    ckpt_reader *r = calloc(1, sizeof *r);
    ck_assert_ptr_nonnull(r);
    *r = (ckpt_reader){
        .path = strdup(path), .source = given_source, .index = given_index, .parts = ckpt__reader_parts_new()};
    ck_assert(r->path && r->parts);
    give_reader(NULL, NULL);
    *out = r;
    if (when_given)
        when_given();
    return CKPT_OK;
}
#endif
