/* Every allocation fails in turn where a checkpoint lies in several files, or in HDF5: distributed checkpoints and Keras, opened,
 * read, verified, examined, migrated with what is read back, and restored. */
#include "../unit/scratch.h"

#include "nomem.h"

static char source[700];
static const char *target; /* "safetensors" */

static void of(const char *name)
{
    const char *top = getenv("srcdir");
    snprintf(source, sizeof source, "%s/tests/data/%s", top ? top : ".", name);
}

static ckpt_status read_it(ckpt_error *err)
{
    ckpt_reader *r = NULL;
    ckpt_reader_options o = CKPT_READER_OPTIONS_INIT;
    o.leave_damaged = true;
    char content[8192];
    ckpt_status status = ckpt_reader_open(source, &o, &r, err);
    for (size_t i = 0; status == CKPT_OK && i < ckpt_reader_tensor_count(r); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        status = t->nbytes <= sizeof content ? ckpt_reader_read(r, i, content, (size_t)t->nbytes, err) : CKPT_OK;
        if (status == CKPT_E_MISMATCH || status == CKPT_E_DAMAGED)
            status = CKPT_OK; /* of a checkpoint that lacks files */
    }
    ckpt_reader_close(r);
    return status;
}

static ckpt_status verify_it(ckpt_error *err)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    return ckpt_verify(source, NULL, &result, NULL, err);
}

static ckpt_status examine_it(ckpt_error *err)
{
    ckpt_reader *r = NULL;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_summary summary = {0};
    ckpt_status status = ckpt_reader_open(source, NULL, &r, err);
    if (status == CKPT_OK)
        status = ckpt_doctor(r, NULL, &result, NULL, err);
    if (status == CKPT_OK)
        status = ckpt_summarize(r, &summary, err);
    ckpt_doctor_result_clear(&result);
    ckpt_summary_clear(&summary);
    ckpt_reader_close(r);
    return status;
}

static ckpt_status migrate_it(ckpt_error *err)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    o.to = target;
    o.force = o.verify = o.lossy = true;
    return ckpt_migrate(source, "out", &o, NULL, err);
}

static ckpt_status plan_it(ckpt_error *err)
{
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    ckpt_migrate_totals totals = CKPT_MIGRATE_TOTALS_INIT;
    o.to = target;
    o.totals = &totals;
    o.force = o.dry_run = o.lossy = true;
    return ckpt_migrate(source, "out", &o, NULL, err);
}

static ckpt_status restore_it(ckpt_error *err)
{
    static const int64_t whole_shape[] = {2, 2}, turned_shape[] = {4, 3};
    int64_t whole[4];
    float turned[12];
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_state *state = ckpt_state_new();
    if (!state)
        return ckpt_state_tensor(NULL, NULL, NULL) < 0 ? (strcpy(err->message, "no memory"), CKPT_E_NO_MEMORY)
                                                       : CKPT_OK;
    o.allow_unexpected = true;
    d.name = "whole";
    d.dtype = CKPT_I64;
    d.ndim = 2;
    d.shape = whole_shape;
    d.role = CKPT_ROLE_PARAM;
    d.data = whole;
    ckpt_status status = ckpt_state_tensor(state, &d, err);
    d.name = "turned";
    d.dtype = CKPT_F32;
    d.shape = turned_shape;
    d.data = turned;
    if (status == CKPT_OK)
        status = ckpt_state_tensor(state, &d, err);
    if (status == CKPT_OK)
        status = ckpt_restore(state, source, &o, NULL, err);
    ckpt_state_free(state);
    return status;
}

START_TEST(distributed_checkpoints)
{
    static const char *const names[] = {"dcp/cut", "dcp/ranks", "dcp/shards"};
    of(names[_i]);
    each_allocation(read_it, NULL);
    each_allocation(verify_it, NULL);
    each_allocation(examine_it, NULL);
    target = "safetensors";
    each_allocation(migrate_it, NULL);
    each_allocation(plan_it, NULL);
    if (_i == 0)
        each_allocation(restore_it, NULL);
}
END_TEST

/* One file of a rank, or its list, is not there. */
START_TEST(checkpoints_that_lack_files)
{
    char command[1500];
    of(_i ? "dcp/ranks" : "dcp/cut");
    snprintf(command, sizeof command, "cp -r '%s' c && chmod -R u+w c && rm c/%s", source,
             _i ? "__1.metadata" : "__1_0.distcp");
    ck_assert_int_eq(system(command), 0);
    strcpy(source, "c");
    each_allocation(read_it, NULL);
    each_allocation(verify_it, NULL);
}
END_TEST

#ifdef HAVE_HDF5
START_TEST(files_of_keras)
{
    static const char *const names[] = {"keras/small.keras", "keras/small.h5", "keras/coded.h5",
                                        "keras/module.weights.h5", "keras/shards"};
    of(names[_i]);
    each_allocation(read_it, NULL);
    if (_i)
        return; /* each opening is a process of its own */
    each_allocation(examine_it, NULL);
    target = "torch";
    each_allocation(migrate_it, NULL);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("no memory for layouts");
    TCase *t = tcase_create("no memory for layouts");
    tcase_set_timeout(t, 900);
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_add_loop_test(t, distributed_checkpoints, 0, 3);
    tcase_add_loop_test(t, checkpoints_that_lack_files, 0, 2);
#ifdef HAVE_HDF5
    tcase_add_loop_test(t, files_of_keras, 0, 5);
#endif
    suite_add_tcase(s, t);
    return run_suite(s);
}
