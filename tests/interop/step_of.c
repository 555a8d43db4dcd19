/* step_of SRC DIR - the tensors of any checkpoint as a step directory, by way of a state: read, bound, restored, saved.
 * For the interoperability tests. */
#include <ckpt/ckpt.h>
#include <stdio.h>
#include <string.h>

static int fail(const ckpt_error *err)
{
    fprintf(stderr, "step_of: %s: %s\n", err->object, err->message);
    return 1;
}

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    ckpt_state *state = ckpt_state_new();
    ckpt_restore_options restore = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_save_options save = CKPT_SAVE_OPTIONS_INIT;
    int64_t step = 7;
    double lr = 0.5;
    if (argc != 3 || !state) {
        fprintf(stderr, "usage: step_of SRC DIR\n");
        return 2;
    }
    int status = ckpt_reader_open(argv[1], NULL, &reader, &err) < 0 ? fail(&err) : 0;
    for (size_t i = 0; status == 0 && i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = t->name.data;
        d.dtype = t->dtype;
        d.ndim = t->ndim;
        d.shape = t->shape;
        d.role = CKPT_ROLE_PARAM;
        if (ckpt_state_tensor(state, &d, &err) < 0)
            status = fail(&err);
    }
    restore.map_location = "cpu";
    restore.allow_unexpected = true;
    if (status == 0 && ckpt_restore(state, argv[1], &restore, NULL, &err) < 0)
        status = fail(&err);
    save.directory = true; /* and something that belongs into training.safetensors */
    if (status == 0 && (ckpt_state_i64(state, "step", &step, &err) < 0 || ckpt_state_f64(state, "lr", &lr, &err) < 0 ||
                        ckpt_save(state, argv[2], &save, &err) < 0))
        status = fail(&err);
    ckpt_state_free(state);
    ckpt_reader_close(reader);
    return status;
}
