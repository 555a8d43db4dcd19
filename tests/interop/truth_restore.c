/* truth_restore - a trainer in C on this library, as doctor_truth.py puts it to the test: it binds what it is told, restores
 * a checkpoint, and says what became of it: one line of JSON a job. It reads lines of standard input, tabs between words:
 *
 *     tensor WHERE NAME PARAM STATE_KEY ROLE DTYPE DIM...    "-": none
 *         WHERE: "-" the library's, made where the restore puts it; "cpu", "cuda:N" the program's own buffer there
 *     group NAME PARAM...    hyper KEY     a parameter group, and a hyper-parameter of the last one
 *     scaler NAME    names NAME...         a GradScaler; the optimizer's parameters in order
 *     map RULES      kind KIND             options of the restore
 *     go FILE OUT                          restores FILE, saves what it got as OUT, answers, and begins anew */
#include <ckpt/ckpt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 64, GROUPS = 8, HYPERS = 16, NAMES = 64, BUFFERS = 256, GPUS = 8 };

typedef struct group {
    char *name, *params[NAMES];
    size_t param_count, hyper_count;
    char *keys[HYPERS];
    double values[HYPERS];
} group;

typedef struct job {
    ckpt_state *state;
    group groups[GROUPS];
    size_t group_count;
    char *names[NAMES], *map;
    size_t name_count;
    ckpt_optimizer_kind kind;
    ckpt_scaler scaler;
    bool has_scaler;
    char *kept[4096]; /* all words of the job */
    size_t kept_count;
    struct buffer {
        void *data;
        int gpu; /* -1: of the host */
    } buffers[BUFFERS];
    size_t buffer_count;
} job;

/* What a trainer calls of the driver: types as its ABI has them, since a build without cuda.h has this program too. */
static struct driver {
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*push)(void *), (*pop)(void **);
    int (*alloc)(uint64_t *, size_t), (*release)(uint64_t);
    void *contexts[GPUS];
} driver;

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "truth_restore: %s: %s\n", what, why);
    exit(2);
}

static char *keep(job *j, const char *word)
{
    char *copy = strdup(word);
    if (!copy || j->kept_count == sizeof j->kept / sizeof *j->kept)
        give_up(word, "too many words");
    return j->kept[j->kept_count++] = copy;
}

static void load_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    static const char *const names[] = {
        "cuInit",        "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
        "cuMemAlloc_v2", "cuMemFree_v2"};
    void *found[7];
    for (size_t i = 0; i < 7; i++)
        if (!lib || !(found[i] = dlsym(lib, names[i])))
            give_up("libcuda.so.1", names[i]);
    memcpy(&driver, found, sizeof found);
    if (driver.init(0) != 0)
        give_up("libcuda.so.1", "cuInit");
}

static void on_gpu(int gpu, uint64_t *data, size_t size)
{
    int device;
    void *before;
    if (!driver.init)
        load_driver();
    if (gpu >= GPUS || driver.get(&device, gpu) != 0 ||
        (!driver.contexts[gpu] && driver.retain(&driver.contexts[gpu], device) != 0))
        give_up("cuda", "no such device");
    bool good =
        driver.push(driver.contexts[gpu]) == 0 && (size ? driver.alloc(data, size) : driver.release(*data)) == 0;
    if (!good || driver.pop(&before) != 0)
        give_up("cuda", size ? "no memory" : "not freed");
}

/* The program's own buffer of `size` bytes; NULL for "-". */
static void *buffer(job *j, const char *where, size_t size)
{
    uint64_t data = 0;
    if (strcmp(where, "-") == 0)
        return NULL;
    if (j->buffer_count == BUFFERS)
        give_up("buffer", "too many");
    struct buffer *b = &j->buffers[j->buffer_count++];
    b->gpu = strncmp(where, "cuda:", 5) == 0 ? (int)strtol(where + 5, NULL, 10) : -1;
    if (b->gpu >= 0) {
        on_gpu(b->gpu, &data, size ? size : 1);
        b->data = (void *)(uintptr_t)data;
    } else if (!(b->data = calloc(1, size ? size : 1))) {
        give_up("buffer", "no memory");
    }
    return b->data;
}

static void free_buffers(job *j)
{
    for (size_t i = 0; i < j->buffer_count; i++) {
        uint64_t data = (uintptr_t)j->buffers[i].data;
        if (j->buffers[i].gpu >= 0)
            on_gpu(j->buffers[i].gpu, &data, 0);
        else
            free(j->buffers[i].data);
    }
}

static void bind_tensor(job *j, char **words, size_t count)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    int64_t shape[WORDS];
    if (count < 7)
        give_up("tensor", "words are missing");
    d.name = strcmp(words[2], "-") ? words[2] : NULL;
    d.param = strcmp(words[3], "-") ? words[3] : NULL;
    d.state_key = strcmp(words[4], "-") ? words[4] : NULL;
    d.role = ckpt_role_from_name(words[5]);
    d.dtype = ckpt_dtype_from_name(words[6]);
    d.ndim = (uint32_t)(count - 7);
    size_t size = ckpt_dtype_size(d.dtype);
    for (size_t i = 7; i < count; i++) {
        shape[i - 7] = strtoll(words[i], NULL, 10);
        size *= (size_t)shape[i - 7];
    }
    d.shape = shape;
    d.data = buffer(j, words[1], size);
    if (ckpt_state_tensor(j->state, &d, &err) < 0)
        give_up(words[2], err.message);
}

static void add_group(job *j, char **words, size_t count)
{
    if (j->group_count == GROUPS || count < 2 || count - 2 > NAMES)
        give_up("group", "too many");
    group *g = &j->groups[j->group_count++];
    g->name = keep(j, words[1]);
    for (size_t i = 2; i < count; i++)
        g->params[g->param_count++] = keep(j, words[i]);
}

static void bind_group(job *j, group *g)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_hyper hypers[HYPERS];
    ckpt_group_desc d = CKPT_GROUP_DESC_INIT;
    for (size_t i = 0; i < g->hyper_count; i++)
        hypers[i] = (ckpt_hyper){g->keys[i], CKPT_SCALAR_F64, &g->values[i]};
    d.name = g->name;
    d.params = (const char *const *)g->params;
    d.param_count = g->param_count;
    d.hypers = hypers;
    d.hyper_count = g->hyper_count;
    if (ckpt_state_group(j->state, &d, &err) < 0)
        give_up(g->name, err.message);
}

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else
            putchar((unsigned char)*text < ' ' || *text == 127 ? ' ' : *text);
    putchar('"');
}

static void print_answer(const job *j, ckpt_status status, const ckpt_error *err, const ckpt_report *report)
{
    char device[CKPT_DEVICE_NAME_MAX];
    printf("{\"status\": %d, \"message\": ", (int)status);
    print_text(err->message);
    printf(", \"findings\": [");
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        printf("%s[", i ? ", " : "");
        print_text(f->code);
        printf(", ");
        print_text(f->tensor);
        printf("]");
    }
    printf("], \"tensors\": {");
    for (size_t i = 0; i < ckpt_state_tensor_count(j->state); i++) {
        const char *name = ckpt_state_tensor_name(j->state, i);
        printf("%s", i ? ", " : "");
        print_text(name);
        printf(": \"%s\"", ckpt_device_name(ckpt_state_device(j->state, name), device));
    }
    printf("}, \"groups\": [");
    for (size_t g = 0; g < j->group_count; g++) {
        printf("%s{", g ? ", " : "");
        for (size_t i = 0; i < j->groups[g].hyper_count; i++) {
            printf("%s", i ? ", " : "");
            print_text(j->groups[g].keys[i]);
            printf(": %.17g", j->groups[g].values[i]);
        }
        printf("}");
    }
    printf("], \"scale\": %.17g}\n", j->scaler.scale);
    fflush(stdout);
}

static void go(job *j, const char *file, const char *out)
{
    ckpt_error err = CKPT_ERROR_INIT, saving = CKPT_ERROR_INIT;
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *report = ckpt_report_new();
    if (!report)
        give_up("report", "no memory");
    for (size_t i = 0; i < j->group_count; i++)
        bind_group(j, &j->groups[i]);
    options.map_location = j->map;
    options.optimizer = j->kind;
    options.param_names = (const char *const *)j->names;
    options.param_name_count = j->name_count;
    options.allow_unexpected = true; /* a file of torch holds more than a trainer binds */
    ckpt_status status = ckpt_restore(j->state, file, &options, report, &err);
    if (status >= 0 && ckpt_save(j->state, out, NULL, &saving) < 0)
        give_up(out, saving.message);
    print_answer(j, status, &err, report);
    ckpt_report_free(report);
}

static void begin(job *j)
{
    for (size_t i = 0; i < j->kept_count; i++)
        free(j->kept[i]);
    ckpt_state_free(j->state);
    free_buffers(j);
    memset(j, 0, sizeof *j);
    j->scaler = (ckpt_scaler)CKPT_SCALER_INIT;
    j->state = ckpt_state_new();
    if (!j->state)
        give_up("state", "no memory");
}

static void take(job *j, char **words, size_t count)
{
    ckpt_error err = CKPT_ERROR_INIT;
    group *last = j->group_count ? &j->groups[j->group_count - 1] : NULL;
    if (strcmp(words[0], "tensor") == 0)
        bind_tensor(j, words, count);
    else if (strcmp(words[0], "group") == 0)
        add_group(j, words, count);
    else if (strcmp(words[0], "hyper") == 0 && last && count == 2 && last->hyper_count < HYPERS)
        last->keys[last->hyper_count++] = keep(j, words[1]);
    else if (strcmp(words[0], "names") == 0)
        for (size_t i = 1; i < count && j->name_count < NAMES; i++)
            j->names[j->name_count++] = keep(j, words[i]);
    else if (strcmp(words[0], "map") == 0 && count == 2)
        j->map = keep(j, words[1]);
    else if (strcmp(words[0], "kind") == 0 && count == 2)
        j->kind = ckpt_optimizer_kind_from_name(words[1]);
    else if (strcmp(words[0], "scaler") == 0 && count == 2) {
        if (ckpt_state_scaler(j->state, words[1], &j->scaler, &err) < 0)
            give_up(words[1], err.message);
    } else if (strcmp(words[0], "go") == 0 && count == 3) {
        go(j, words[1], words[2]);
        begin(j);
    } else {
        give_up(words[0], "what is that?");
    }
}

int main(void)
{
    static job j;
    static char line[1 << 16];
    begin(&j);
    while (fgets(line, sizeof line, stdin)) {
        char *words[WORDS];
        size_t count = 0;
        for (char *word = strtok(line, "\t\n"); word && count < WORDS; word = strtok(NULL, "\t\n"))
            words[count++] = word;
        if (count)
            take(&j, words, count);
    }
    begin(&j);
    ckpt_state_free(j.state);
    return 0;
}
