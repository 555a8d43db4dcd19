/* tests/unit/reader_checks.h - one reader of a directory that the test makes: opening it, and what must come of that. */
#ifndef READER_CHECKS_H
#define READER_CHECKS_H
#include <ckpt/reader.h>
#include "folder_files.h"

static ckpt_error err;
static ckpt_reader *reader;

static inline void setup(void)
{
    make_folder();
    memset(&err, 0, sizeof err);
}

static inline void teardown(void)
{
    ckpt_reader_close(reader);
    reader = NULL;
    remove_folder();
}

/* An empty directory again. */
static inline void anew(void)
{
    teardown();
    setup();
}

static inline ckpt_status open_with(const char *path, const ckpt_reader_options *options)
{
    ckpt_reader_close(reader);
    reader = NULL;
    memset(&err, 0, sizeof err);
    return ckpt_reader_open(path, options, &reader, &err);
}

static inline void opens(const char *path)
{
    ckpt_status status = open_with(path, NULL);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
#ifdef READER_FORMAT /* what the test is of */
    ck_assert_str_eq(ckpt_reader_format(reader), READER_FORMAT);
#endif
}

/* words: in the object or in the message */
static inline void fails(const char *path, ckpt_status status, const char *words)
{
    ckpt_status is = open_with(path, NULL);
    ck_assert_msg(is == status, "%d, not %d: %s: %s", (int)is, (int)status, err.object, err.message);
    ck_assert_msg(strstr(err.message, words) || strstr(err.object, words), "no '%s' in: %s: %s", words, err.object,
                  err.message);
}

static inline const ckpt_tensor_info *tensor_named(const char *name, size_t *number)
{
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), number, &err) == CKPT_OK, "%s: %s", name, err.message);
    return ckpt_reader_tensor(reader, *number);
}

static inline const ckpt_finding *finding(const char *code)
{
    return ckpt_report_find(ckpt_reader_findings(reader), code, NULL);
}
#endif
