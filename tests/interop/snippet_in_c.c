/* What a program around the printed snippet has: its own tensors, bound by name. snippet_in_c.py compiles it with
 * -DSNIPPET="file" for each checkpoint.
 *
 * usage: snippet_in_c OUT < bindings: a line a tensor, tabs between NAME PARAM STATE_KEY ROLE DTYPE DIM..., "-" for none;
 * a line "scaler NAME" binds a GradScaler, "group NAME PARAM..." a parameter group with its lr. Resumes, prints what numbers
 * it got, and saves all as OUT. */
#include SNIPPET

#include <stdlib.h>
#include <string.h>

enum { WORDS = 64, TEXT = 4096, GROUPS = 8 };

static int say(const char *what, const ckpt_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->message);
    return 1;
}

static int bind_tensor(ckpt_state *state, char **words, uint32_t count, ckpt_error *err)
{
    int64_t shape[WORDS];
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    for (uint32_t i = 5; i < count; i++)
        shape[i - 5] = strtoll(words[i], NULL, 10);
    d.name = words[0];
    d.param = strcmp(words[1], "-") ? words[1] : NULL;
    d.state_key = strcmp(words[2], "-") ? words[2] : NULL;
    d.role = ckpt_role_from_name(words[3]);
    d.dtype = ckpt_dtype_from_name(words[4]);
    d.ndim = count - 5;
    d.shape = shape;
    return count >= 5 && ckpt_state_tensor(state, &d, err) >= 0 ? 0 : say(words[0], err);
}

static int bind_group(ckpt_state *state, char **words, uint32_t count, double *lr, ckpt_error *err)
{
    ckpt_hyper hyper = {"lr", CKPT_SCALAR_F64, lr};
    ckpt_group_desc d = CKPT_GROUP_DESC_INIT;
    d.name = words[1];
    d.params = (const char *const *)&words[2];
    d.param_count = count - 2;
    d.hypers = &hyper;
    d.hyper_count = 1;
    return ckpt_state_group(state, &d, err) >= 0 ? 0 : say(words[1], err);
}

int main(int argc, char **argv)
{
    char line[TEXT];
    double lr[GROUPS] = {0};
    int groups = 0, status = 0;
    ckpt_scaler scaler = CKPT_SCALER_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    if (argc != 2 || !state)
        return 2;
    while (status == 0 && fgets(line, sizeof line, stdin)) {
        char *words[WORDS];
        uint32_t count = 0;
        for (char *word = strtok(line, "\t\n"); word && count < WORDS; word = strtok(NULL, "\t\n"))
            words[count++] = word;
        if (count >= 2 && strcmp(words[0], "scaler") == 0)
            status = ckpt_state_scaler(state, words[1], &scaler, &err) >= 0 ? 0 : say("scaler", &err);
        else if (count > 2 && strcmp(words[0], "group") == 0 && groups < GROUPS)
            status = bind_group(state, words, count, &lr[groups++], &err);
        else
            status = bind_tensor(state, words, count, &err);
    }
    if (status == 0)
        status = resume(state);
    printf("scale %.17g\n", scaler.scale);
    for (int i = 0; i < groups; i++)
        printf("lr %.17g\n", lr[i]);
    if (status == 0 && ckpt_save(state, argv[1], NULL, &err) < 0)
        status = say(argv[1], &err);
    ckpt_state_free(state);
    return status;
}
