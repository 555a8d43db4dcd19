/* inspect/show_files.c - what each file of a checkpoint of several ranks holds of its tensors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/show.h"

static int by_name(const void *a, const void *b)
{
    const show_file *x = a, *y = b;
    size_t n = x->name.size < y->name.size ? x->name.size : y->name.size;
    int order = memcmp(x->name.data, y->name.data, n);
    return order ? order : x->name.size < y->name.size ? -1 : x->name.size > y->name.size;
}

bool show_count_files(const ckpt_reader *reader, show_files *out)
{
    const size_t count = ckpt_reader_layout(reader) ? ckpt_reader_file_count(reader) : 0;
    *out = (show_files){.rows = calloc(count + 1, sizeof *out->rows)};
    bool good = out->rows != NULL;
    for (size_t i = 0; good && i < count; i++) {
        show_file *row = &out->rows[out->count];
        good = ckpt_reader_file_holds(reader, i, &row->name, &row->pieces, &row->nbytes, NULL) == CKPT_OK;
        out->count += good && row->name.data && row->pieces > 0;
    }
    if (good && out->count > 1)
        qsort(out->rows, out->count, sizeof *out->rows, by_name);
    return good;
}

/* A line a file, and one for all where there are many. */
void show_files_text(const show_files *f, void (*begin)(const void *, const char *), const void *ctx)
{
    enum { A_LINE_EACH = 8 };
    char least[CLI_SIZE_MAX], most[CLI_SIZE_MAX];
    if (f->count == 0)
        return;
    begin(ctx, "holds");
    if (f->count > A_LINE_EACH) {
        const show_file *low = f->rows, *high = f->rows;
        uint64_t few = f->rows[0].pieces, many = few;
        for (size_t i = 1; i < f->count; i++) {
            low = f->rows[i].nbytes < low->nbytes ? &f->rows[i] : low;
            high = f->rows[i].nbytes > high->nbytes ? &f->rows[i] : high;
            few = f->rows[i].pieces < few ? f->rows[i].pieces : few;
            many = f->rows[i].pieces > many ? f->rows[i].pieces : many;
        }
        if (few < many)
            printf("%" PRIu64 " to ", few);
        printf("%" PRIu64 " piece%s, ", many, many == 1 ? "" : "s");
        if (low->nbytes < high->nbytes)
            printf("%s to ", cli_size(least, low->nbytes));
        printf("%s in each of %zu files (list --pieces)\n", cli_size(most, high->nbytes), f->count);
        return;
    }
    for (size_t i = 0; i < f->count; i++) {
        const show_file *row = &f->rows[i];
        printf("%*s%" PRIu64 " piece%s, %s in ", i ? 11 : 0, "", row->pieces, row->pieces == 1 ? "" : "s",
               cli_size(least, row->nbytes));
        cli_put_str(stdout, row->name, "");
        putchar('\n');
    }
}

void show_files_json(json_out *j, const show_files *f)
{
    json_array(j, "files");
    for (size_t i = 0; i < f->count; i++) {
        json_object(j, NULL);
        json_bytes(j, "file", f->rows[i].name.data, f->rows[i].name.size);
        json_uint(j, "pieces", f->rows[i].pieces);
        json_uint(j, "nbytes", f->rows[i].nbytes);
        json_end_object(j);
    }
    json_end_array(j);
}
