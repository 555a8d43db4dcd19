/* restore/restore_pair.h - two small training states: a test saves one and restores into the other. And files as bytes, which a test
 * changes. */
#ifndef RESTORE_PAIR_H
#define RESTORE_PAIR_H
#include "../state_fixture.h"

static training a, b;
static ckpt_state *sa, *sb; /* of a and b; made and freed by the fixture */

static inline void setup(void)
{
    make_folder();
    fill(&a, 1);
    fill(&b, 2);
    sa = bind_all(&a);
    sb = bind_all(&b);
}

static inline void teardown(void)
{
    ckpt_state_free(sa);
    ckpt_state_free(sb);
    remove_folder();
}

static inline void expect_same(void)
{
    ck_assert(memcmp(a.params, b.params, sizeof a.params) == 0);
    ck_assert(memcmp(a.exp_avg, b.exp_avg, sizeof a.exp_avg) == 0);
    ck_assert(memcmp(a.exp_avg_sq, b.exp_avg_sq, sizeof a.exp_avg_sq) == 0);
    ck_assert(memcmp(&a, &b, sizeof a) == 0);
}

/* A restore of a.safetensors is refused with this finding, and touches nothing. */
static inline void refused(ckpt_state *target, const ckpt_restore_options *o, const char *code, const char *tensor)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    training before = b;
    ck_assert_int_eq(ckpt_restore(target, in_folder("a.safetensors"), o, r, &err), CKPT_E_MISMATCH);
    ck_assert_msg(ckpt_report_find(r, code, tensor) != NULL, "no finding %s of %s; the error says: %s", code, tensor,
                  err.message);
    ck_assert(memcmp(&before, &b, sizeof b) == 0);
    ck_assert(!ckpt_state_poisoned(target));
    ckpt_report_free(r);
}

/* ---- files as bytes */

static unsigned char *image; /* heap: the test frees it */
static long image_size;

static inline void load_image(const char *path)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    fseek(f, 0, SEEK_END);
    image_size = ftell(f);
    rewind(f);
    image = malloc((size_t)image_size);
    ck_assert_uint_eq(fread(image, 1, (size_t)image_size, f), (size_t)image_size);
    fclose(f);
}

static inline void store(const char *path, const unsigned char *data, long n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, (size_t)n, f), (size_t)n);
    ck_assert_int_eq(fclose(f), 0);
}

/* ---- the program */

/* A case whose tests have the two states. */
static inline TCase *pair_case(const char *name)
{
    TCase *t = tcase_create(name);
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, setup, teardown);
    return t;
}
#endif
