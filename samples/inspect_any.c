/* inspect_any.c - what is in a checkpoint, whoever wrote it: a file or a directory, of any format that the library reads.
 *
 *     inspect_any CHECKPOINT [NAME]
 *
 * Walks the tensors and the values by their key paths and prints one line each, tensors with the CRC-32 of their bytes
 * (what zlib gives for a contiguous array, in whatever format it lies). NAME is a key path with dots: of a value, which is
 * then printed again with all that is in it, or of a tensor. Then it looks at one tensor, the first that has bytes or NAME,
 * in two ways: a copy in memory of ours, and the file's own bytes, mapped. A mapped tensor costs no
 * memory and no time until it is touched, but not every tensor lies in the file as it is in memory: then there is a reason
 * in the error, and ckpt_reader_read gives its values. Nothing of the file is run, and no device is needed. */
#include "util.h"
#include <ckpt/inspect.h>
#include <inttypes.h>
#include <string.h>

/* Text comes from the file: nothing of it may reach the terminal as a control character. */
static void print_text(const char *before, ckpt_str text, const char *after)
{
    printf("%s", before);
    for (size_t i = 0; i < text.size && i < 60; i++)
        putchar((unsigned char)text.data[i] < ' ' || text.data[i] == 127 ? '?' : text.data[i]);
    printf("%s", after);
}

/* A key path as Python writes it: ['optimizer']['state'][0]['exp_avg']. */
static void print_path(ckpt_path path)
{
    for (size_t i = 0; i < path.count; i++)
        if (path.keys[i].text.data == NULL)
            printf("[%" PRId64 "]", path.keys[i].number);
        else if (path.keys[i].other)
            print_text("[", path.keys[i].text, "]");
        else
            print_text("['", path.keys[i].text, "']");
}

static void print_tensor(const ckpt_reader *reader, size_t i)
{
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    uint32_t crc;
    printf("%-10s %-7s ", ckpt_dtype_name(t->dtype), t->device.data ? t->device.data : "-");
    if (ckpt_reader_crc32(reader, i, &crc, NULL) == CKPT_OK)
        printf("%08" PRIx32 " (", crc);
    else
        printf("%-8s (", t->extra->layout.data ? t->extra->layout.data : "-"); /* sparse, meta, ...: its parts are tensors too */
    for (uint32_t d = 0; d < t->ndim; d++)
        printf("%s%" PRId64, d ? ", " : "", t->shape[d]);
    printf(") ");
    if (t->file.data)
        print_text("", t->file, ": ");
    if (t->path.count)
        print_path(t->path);
    else
        print_text("", t->name, "");
    printf("\n");
}

/* One value. Tensors have been printed; containers, and objects of classes that only Python knows, are named. */
static int print_value(void *ctx, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value;
    size_t *count = ctx;
    *count += 1;
    if (v->kind == CKPT_V_TENSOR || visit->cycle || visit->inside)
        return 0;
    print_path(visit->path);
    printf(visit->path.count ? "" : "all of it:");
    switch (v->kind) {
    case CKPT_V_BOOL: printf(" = %s\n", v->boolean ? "True" : "False"); break;
    case CKPT_V_INT: printf(" = %" PRId64 "\n", v->integer); break;
    case CKPT_V_FLOAT: printf(" = %.17g\n", v->real); break;
    case CKPT_V_STR: print_text(" = '", v->text, "'\n"); break;
    case CKPT_V_NONE: printf(" = None\n"); break;
    case CKPT_V_BIGINT: print_text(" = ", v->text, "\n"); break;
    case CKPT_V_LIST:
    case CKPT_V_TUPLE: printf(" %s of %zu\n", ckpt_kind_name(v->kind), v->item_count); break;
    case CKPT_V_DICT: printf(" dict of %zu\n", v->entry_count); break;
    default:
        printf(" %s", ckpt_kind_name(v->kind));
        print_text(" ", v->class_name, "\n");
        break;
    }
    return 0;
}

/* The first tensor that has bytes of its own, unless the user named one. */
static size_t choose(const ckpt_reader *reader, const char *name)
{
    ckpt_error err = CKPT_ERROR_INIT;
    size_t i = 0;
    if (name) {
        check(ckpt_reader_find(reader, name, strlen(name), &i, &err), &err);
        return i;
    }
    while (i < ckpt_reader_tensor_count(reader) && (ckpt_reader_tensor(reader, i)->storage < 0 ||
                                                    ckpt_reader_tensor(reader, i)->extra->layout.data))
        i++;
    return i;
}

static void print_floats(const char *how, const ckpt_tensor_info *t, const void *data)
{
    print_text("", t->name, ", ");
    printf("%s:", how);
    for (size_t k = 0; t->dtype == CKPT_F32 && k < t->nbytes / sizeof(float) && k < 4; k++) {
        float value;                      /* mapped bytes need not be aligned */
        memcpy(&value, (const char *)data + k * sizeof value, sizeof value);
        printf(" %.9g", (double)value);
    }
    printf(" (%" PRIu64 " bytes)\n", t->nbytes);
}

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    if (argc < 2 || argc > 3)
        die("usage: inspect_any CHECKPOINT [NAME]");
    check(ckpt_reader_open(argv[1], NULL, &reader, &err), &err);

    size_t tensors = ckpt_reader_tensor_count(reader), values = 0;
    for (size_t i = 0; i < tensors; i++)
        print_tensor(reader, i);
    if (ckpt_reader_root(reader))
        check(ckpt_value_walk(ckpt_reader_root(reader), 0, print_value, &values, &err), &err);
    printf("%s: %zu tensors and %zu values in %" PRIu64 " bytes\n", ckpt_reader_format(reader), tensors, values,
           ckpt_reader_file_size(reader));

    size_t i;
    if (argc > 2 && ckpt_reader_find(reader, argv[2], strlen(argv[2]), &i, NULL) != CKPT_OK) {
        const ckpt_value *part;
        check(ckpt_value_find(ckpt_reader_root(reader), argv[2], &part, &err), &err);
        print_text("below ", (ckpt_str){ argv[2], strlen(argv[2]) }, ":\n");
        check(ckpt_value_walk(part, 0, print_value, &values, &err), &err);
        argc = 2;                         /* and the first tensor */
    }
    i = choose(reader, argc > 2 ? argv[2] : NULL);
    if (i < tensors) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        void *copy = allocate(1, t->nbytes ? (size_t)t->nbytes : 1);
        check(ckpt_reader_read(reader, i, copy, (size_t)t->nbytes, &err), &err);
        print_floats("read", t, copy);
        const void *mapped = NULL;
        size_t size = 0;
        if (ckpt_reader_map(reader, i, &mapped, &size, &err) == CKPT_OK)
            print_floats("mapped", t, mapped);        /* good until the reader is closed; pages come when touched */
        else
            printf("not mapped: %s\n", err.message);  /* compressed, transposed, ...: such a tensor is read */
        free(copy);
    }
    ckpt_reader_close(reader);
    return 0;
}
