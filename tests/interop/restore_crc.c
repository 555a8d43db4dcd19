/* restore_crc CHECKPOINT [MODEL] - every tensor of a checkpoint that a state can bind, restored to the host: for each a line of the
 * name that the file has, the one that the state has, and the CRC-32 of what was restored. MODEL: what lies below that path is
 * the model, and nothing else is restored. For the interoperability tests, which compare that with the program's own values. */
#include <ckpt/ckpt.h>
#include <ckpt/naming.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct job {
    ckpt_reader *reader;
    ckpt_naming *naming;
    ckpt_state *state;
    const char *model; /* NULL: told from the content */
    void **places;     /* of each tensor of the reader; NULL: no state binds it */
    size_t count;
} job;

static int fail(const char *path, const ckpt_error *err)
{
    fprintf(stderr, "restore_crc: %s: %s: %s\n", path, err->object, err->message);
    return 1;
}

/* What a state calls tensor i; name.data NULL: it has none of that. */
static ckpt_canonical name_of(const job *j, size_t i)
{
    ckpt_str name = ckpt_reader_tensor(j->reader, i)->name;
    size_t skip = j->model ? strlen(j->model) : 0;
    if (!j->model)
        return *ckpt_naming_get(j->naming, i);
    if (name.size <= skip + 1 || memcmp(name.data, j->model, skip) != 0 || name.data[skip] != '.')
        return (ckpt_canonical){.name = {NULL, 0}};
    return (ckpt_canonical){.name = {name.data + skip + 1, name.size - skip - 1}};
}

static ckpt_status bind(job *j, size_t i, ckpt_error *err)
{
    const ckpt_tensor_info *t = ckpt_reader_tensor(j->reader, i);
    const ckpt_canonical as = name_of(j, i);
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    if (!as.name.data || t->extra->layout.data || t->extra->quantizer.data)
        return CKPT_OK;
    d.name = as.name.data;
    d.param = as.param.data;
    d.state_key = as.state_key.data;
    d.role = as.role == CKPT_ROLE_NONE ? CKPT_ROLE_PARAM : as.role;
    d.dtype = t->dtype;
    d.ndim = t->ndim;
    d.shape = t->shape;
    d.data = j->places[i] = malloc((size_t)t->nbytes + 1);
    if (!d.data)
        return CKPT_E_NO_MEMORY;
    memset(d.data, 0xA5, (size_t)t->nbytes + 1);
    return ckpt_state_tensor(j->state, &d, err);
}

static ckpt_status prepare(job *j, const char *path, ckpt_error *err)
{
    ckpt_status status = ckpt_reader_open(path, NULL, &j->reader, err);
    if (status >= 0)
        status = ckpt_naming_new(j->reader, NULL, &j->naming, NULL, err);
    if (status < 0)
        return status;
    j->count = ckpt_reader_tensor_count(j->reader);
    j->places = calloc(j->count + 1, sizeof *j->places);
    j->state = ckpt_state_new();
    if (!j->places || !j->state)
        return CKPT_E_NO_MEMORY;
    for (size_t i = 0; status >= 0 && i < j->count; i++)
        status = bind(j, i, err);
    return status;
}

static void print_text(ckpt_str s)
{
    for (size_t i = 0; i < s.size; i++)
        putchar((unsigned char)s.data[i] < ' ' ? '?' : s.data[i]);
}

static void print(const job *j)
{
    for (size_t i = 0; i < j->count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(j->reader, i);
        if (!j->places[i])
            continue;
        print_text(t->name);
        putchar('\t');
        print_text(name_of(j, i).name);
        printf("\t%08lx\n", crc32_z(0, j->places[i], (size_t)t->nbytes));
    }
}

static ckpt_status restore(job *j, const char *path, ckpt_error *err)
{
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    char text[1000];
    ckpt_map *map = NULL;
    ckpt_status status = CKPT_OK;
    if (j->model) {
        int n = snprintf(text, sizeof text, "map: 1\nsource: {model: '%s'}\n", j->model);
        status = ckpt_map_parse_yaml(text, (size_t)n, "restore_crc", &map, err);
    }
    options.map = map;
    if (status >= 0)
        status = ckpt_restore(j->state, path, &options, NULL, err);
    ckpt_map_free(map);
    return status;
}

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    job j = {.model = argc == 3 ? argv[2] : NULL};
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: restore_crc CHECKPOINT [MODEL]\n");
        return 2;
    }
    ckpt_status status = prepare(&j, argv[1], &err);
    if (status >= 0)
        status = restore(&j, argv[1], &err);
    if (status >= 0)
        print(&j);
    ckpt_state_free(j.state);
    ckpt_naming_free(j.naming);
    ckpt_reader_close(j.reader);
    for (size_t i = 0; i < j.count; i++)
        free(j.places[i]);
    free(j.places);
    return status < 0 ? fail(argv[1], &err) : 0;
}
