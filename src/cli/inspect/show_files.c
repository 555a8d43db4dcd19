/* inspect/show_files.c - what each file of a checkpoint of several ranks holds of its tensors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/show.h"

/* A table from the place of a file's name, which the reader has once a file, to 1 + the number of its row. */
typedef struct places {
    size_t *slots; /* heap; 0: free */
    size_t size;   /* a power of two, at least twice the rows */
} places;

static size_t slot_of(const places *t, const show_files *f, const char *name)
{
    size_t at = (size_t)((uintptr_t)name * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (t->size - 1);
    while (t->slots[at] && f->rows[t->slots[at] - 1].name.data != name)
        at = (at + 1) & (t->size - 1);
    return at;
}

static bool grow(places *t, const show_files *f)
{
    if (2 * (f->count + 1) <= t->size)
        return true;
    places more = {.size = t->size ? 2 * t->size : 64};
    more.slots = calloc(more.size, sizeof *more.slots);
    for (size_t i = 0; more.slots && i < f->count; i++)
        more.slots[slot_of(&more, f, f->rows[i].name.data)] = i + 1;
    if (!more.slots)
        return false;
    free(t->slots);
    *t = more;
    return true;
}

static bool count_piece(show_files *f, places *t, size_t *capacity, const ckpt_piece_info *p)
{
    if (!grow(t, f))
        return false;
    size_t at = slot_of(t, f, p->file.data);
    if (!t->slots[at]) {
        if (f->count == *capacity) {
            size_t n = *capacity ? 2 * *capacity : 16;
            show_file *rows = realloc(f->rows, n * sizeof *rows);
            if (!rows)
                return false;
            f->rows = rows;
            *capacity = n;
        }
        f->rows[f->count++] = (show_file){.name = p->file};
        t->slots[at] = f->count;
    }
    show_file *row = &f->rows[t->slots[at] - 1];
    row->pieces++;
    row->nbytes += p->nbytes;
    return true;
}

static int by_name(const void *a, const void *b)
{
    const show_file *x = a, *y = b;
    size_t n = x->name.size < y->name.size ? x->name.size : y->name.size;
    int order = memcmp(x->name.data, y->name.data, n);
    return order ? order : x->name.size < y->name.size ? -1 : x->name.size > y->name.size;
}

static bool same_name(const show_file *a, const show_file *b)
{
    return a->name.size == b->name.size && memcmp(a->name.data, b->name.data, a->name.size) == 0;
}

/* Sorted; a file whose name the reader has at two places is one. */
static void join_rows(show_files *f)
{
    size_t n = 0;
    qsort(f->rows, f->count, sizeof *f->rows, by_name);
    for (size_t i = 0; i < f->count; i++)
        if (n > 0 && same_name(&f->rows[n - 1], &f->rows[i])) {
            f->rows[n - 1].pieces += f->rows[i].pieces;
            f->rows[n - 1].nbytes += f->rows[i].nbytes;
        } else {
            f->rows[n++] = f->rows[i];
        }
    f->count = n;
}

bool show_count_files(const ckpt_reader *reader, show_files *out)
{
    places t = {0};
    size_t capacity = 0;
    bool good = true;
    *out = (show_files){0};
    for (size_t i = 0; good && ckpt_reader_layout(reader) && i < ckpt_reader_tensor_count(reader); i++) {
        const size_t count = ckpt_reader_piece_count(reader, i);
        for (size_t k = 0; good && k < count; k++) {
            ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
            good = ckpt_reader_piece(reader, i, k, &p, NULL) == CKPT_OK;
            if (good && p.file.data)
                good = count_piece(out, &t, &capacity, &p);
        }
    }
    free(t.slots);
    if (good && out->count)
        join_rows(out);
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
