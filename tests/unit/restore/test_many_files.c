/* A model in 1,024 shards is restored by a process that may have 256 files open, and in which others take most of them. */
#include <ckpt/ckpt.h>
#include <fcntl.h>
#include <sys/resource.h>
#include "../folder_files.h"

enum { SHARDS = 1024, ROWS = 4, COLUMNS = 3, LIMIT = 256 };

static float weight[SHARDS][ROWS * COLUMNS];
static ckpt_state *state;
static ckpt_error err;

static void write_shards(void)
{
    FILE *f = fopen(at("model.safetensors.index.json"), "w");
    ck_assert_ptr_nonnull(f);
    fputs("{\"metadata\":{},\"weight_map\":{", f);
    for (int i = 0; i < SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "w%d", i);
        const flat tensor = {name, 2, {ROWS, COLUMNS}};
        write_safetensors(at("model-%05d-of-%05d.safetensors", i + 1, SHARDS), &tensor, 1, (float)(i * 100));
        fprintf(f, "%s\"w%d\":\"model-%05d-of-%05d.safetensors\"", i ? "," : "", i, i + 1, SHARDS);
    }
    fputs("}}", f);
    ck_assert_int_eq(fclose(f), 0);
}

static void setup(void)
{
    static const int64_t shape[2] = {ROWS, COLUMNS};
    const struct rlimit limit = {LIMIT, LIMIT};
    make_folder();
    write_shards();
    memset(&err, 0, sizeof err);
    memset(weight, 0, sizeof weight);
    state = ckpt_state_new();
    for (int i = 0; i < SHARDS; i++) {
        char name[32];
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        snprintf(name, sizeof name, "w%d", i);
        d.name = name;
        d.role = CKPT_ROLE_PARAM;
        d.dtype = CKPT_F32;
        d.ndim = 2;
        d.shape = shape;
        d.data = weight[i];
        ck_assert_msg(ckpt_state_tensor(state, &d, &err) == CKPT_OK, "%s", err.message);
    }
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void teardown(void)
{
    ckpt_state_free(state);
    remove_folder();
}

static void restored(void)
{
    ck_assert_msg(ckpt_restore(state, folder, NULL, NULL, &err) >= 0, "%s: %s", err.object, err.message);
    for (int i = 0; i < SHARDS; i++)
        for (int k = 0; k < ROWS * COLUMNS; k++)
            ck_assert_float_eq(weight[i][k], (float)(i * 100 + k));
}

START_TEST(with_256_descriptors)
{
    struct rlimit limit;
    restored();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_eq(limit.rlim_cur, LIMIT); /* the program's, and not the library's */
}
END_TEST

START_TEST(with_ten)
{
    int own[LIMIT];
    size_t n = 0;
    while (n < LIMIT && (own[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    for (int i = 0; i < 10; i++)
        close(own[--n]);
    restored();
    while (n > 0)
        close(own[--n]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("many files");
    TCase *t = tcase_create("many files");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, with_256_descriptors);
    tcase_add_test(t, with_ten);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
