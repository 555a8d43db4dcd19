/* migrate/chain_pieces.h - a training in pieces of any kind, in several files. What lies between the pieces is poison. Link with
 * --wrap=ckpt_reader_open. */
#ifndef CHAIN_PIECES_H
#define CHAIN_PIECES_H
#include "chain_sources.h"
#include "given_reader.h"
#include "../deflated.h"

enum { CHAIN_FILES = 3 };

/* The native file `path` once more, with its tensors in pieces of any size and strides, in several files, some deflated. */
typedef struct pieces_making {
    ckpt__index *x;
    FILE *files[CHAIN_FILES];
    uint32_t numbers[CHAIN_FILES];
} pieces_making;

static inline size_t write_piece(pieces_making *m, const unsigned char *data, size_t size, bool deflate)
{
    static unsigned char coded[CHAIN_ROOM];
    ckpt__storage *s = ckpt__index_add_storage(m->x);
    ck_assert_ptr_nonnull(s);
    ckpt__extent *e = &s->extent;
    e->file = (uint32_t)draw(CHAIN_FILES);
    FILE *f = m->files[e->file];
    for (size_t gap = draw(40); gap > 0; gap--)
        fputc(POISON, f);
    e->offset = (uint64_t)ftell(f);
    e->size = e->length = size;
    e->has_crc = chance(60);
    e->crc = ckpt__crc32(0, data, size);
    s->device = ckpt__s("cpu");
    s->unit = 1;
    e->coding = deflate && size ? CKPT__DEFLATE : CKPT__STORED;
    if (e->coding == CKPT__DEFLATE) {
        e->length = deflated(data, size, coded, sizeof coded);
        data = coded;
    }
    ck_assert_uint_eq(fwrite(data, 1, (size_t)e->length, f), e->length);
    return m->x->storage_count - 1;
}

/* One box of the tensor: its elements by strides that are drawn, in a storage of its own. */
static inline void cut_box(pieces_making *m, const thing *x, const int64_t *lo, const int64_t *size, ckpt__piece *out)
{
    const size_t each = ckpt_dtype_size(x->dtype), ahead = draw(3);
    int64_t *box = ckpt__arena_array(m->x->arena, 3 * CHAIN_DIMS, sizeof *box), own[CHAIN_DIMS], at = 1;
    thing part = {.ndim = x->ndim, .dtype = x->dtype, .count = 1};
    ck_assert_ptr_nonnull(box);
    for (uint32_t d = 0; d < x->ndim; d++) {
        part.shape[d] = size[d];
        part.count *= (size_t)size[d];
    }
    const bool plain = chance(40);
    const size_t span = draw_strides(&part, plain, own);
    unsigned char *data = malloc((ahead + span + 3) * each);
    int64_t strides[CHAIN_DIMS];
    ck_assert_ptr_nonnull(data);
    memset(data, POISON, (ahead + span + 3) * each);
    for (uint32_t d = x->ndim; d-- > 0; at *= x->shape[d])
        strides[d] = at;
    size_t first = 0;
    for (uint32_t d = 0; d < x->ndim; d++)
        first += (size_t)(lo[d] * strides[d]);
    for (size_t i = 0; i < part.count; i++)
        memcpy(data + (ahead + place_of(size, own, x->ndim, i)) * each,
               x->bytes + (first + place_of(size, strides, x->ndim, i)) * each, each);
    memcpy(box, lo, x->ndim * sizeof *box);
    memcpy(box + x->ndim, size, x->ndim * sizeof *box);
    memcpy(box + 2 * x->ndim, own, x->ndim * sizeof *box);
    *out = (ckpt__piece){.box = box,
                         .at = ahead * each,
                         .storage = (uint32_t)write_piece(m, data, (ahead + span + draw(4)) * each, chance(20)),
                         .flags = CKPT__PIECE_STRIDED};
    free(data);
}

/* A mesh of any kind: each dimension is cut at any places. */
static inline void cut_thing(pieces_making *m, const thing *x, size_t tensor)
{
    enum { MOST = 4, PIECES = MOST * MOST * MOST * MOST * MOST };
    static ckpt__piece pieces[PIECES];
    int64_t cuts[CHAIN_DIMS][MOST + 1] = {{0}}, lo[CHAIN_DIMS], size[CHAIN_DIMS];
    size_t counts[CHAIN_DIMS], all = 1, n = 0;
    for (uint32_t d = 0; d < x->ndim; d++) {
        counts[d] = x->ndim > 3 ? 1 + draw(2) : 1 + draw(MOST);
        for (size_t i = 1; i < counts[d]; i++)
            cuts[d][i] = cuts[d][i - 1] + (int64_t)draw((uint64_t)(x->shape[d] - cuts[d][i - 1] + 1));
        cuts[d][counts[d]] = x->shape[d];
        all *= counts[d];
    }
    for (size_t i = 0; i < all; i++) {
        size_t at = i;
        bool empty = false;
        for (uint32_t d = 0; d < x->ndim; d++) {
            lo[d] = cuts[d][at % counts[d]];
            size[d] = cuts[d][at % counts[d] + 1] - lo[d];
            empty |= size[d] == 0;
            at /= counts[d];
        }
        if (!empty || all == 1)
            cut_box(m, x, lo, size, &pieces[n++]);
    }
    for (size_t i = n; i-- > 1;) { /* in any order */
        const size_t k = draw(i + 1);
        const ckpt__piece swap = pieces[i];
        pieces[i] = pieces[k];
        pieces[k] = swap;
    }
    CHAIN_OK(ckpt__index_set_pieces(m->x, tensor, x->shape, pieces, n, &chain_err));
}

/* ckpt_reader_open gives it next. `native` is the same training, whose values it borrows, and stays open until they are not needed. */
static inline void give_pieces(training *t, const ckpt_reader *native)
{
    pieces_making m = {.x = ckpt__index_new(0)};
    ckpt__source *source = NULL;
    char name[] = "pieces/0";
    ck_assert_ptr_nonnull(m.x);
    ck_assert_int_eq(system("rm -rf pieces && mkdir pieces"), 0);
    for (int f = 0; f < CHAIN_FILES; f++) {
        name[7] = (char)('0' + f);
        ck_assert_ptr_nonnull(m.files[f] = fopen(name, "wb"));
    }
    for (size_t i = 0; i < t->count; i++) {
        const thing *x = &t->things[i];
        size_t of;
        ckpt__tensor *tensor = ckpt__index_add_tensor(m.x);
        ck_assert_ptr_nonnull(tensor);
        CHAIN_OK(ckpt_reader_find(native, x->name, strlen(x->name), &of, &chain_err));
        const ckpt_tensor_info *info = ckpt_reader_tensor(native, of);
        tensor->info.name = info->name;
        tensor->info.dtype = info->dtype;
        tensor->info.ndim = info->ndim;
        tensor->info.role = info->role;
        tensor->info.param = info->param;
        tensor->info.state_key = info->state_key;
        tensor->info.group = info->group;
        cut_thing(&m, x->tie < 0 ? x : &t->things[x->tie], i);
    }
    for (int f = 0; f < CHAIN_FILES; f++)
        ck_assert_int_eq(fclose(m.files[f]), 0);
    CHAIN_OK(ckpt__source_open("pieces", &source, &chain_err));
    for (int f = 0; f < CHAIN_FILES; f++) {
        name[7] = (char)('0' + f);
        CHAIN_OK(ckpt__source_add(source, name + 7, &m.numbers[f], &chain_err));
    }
    for (size_t i = 0; i < m.x->storage_count; i++)
        m.x->storages[i].extent.file = m.numbers[m.x->storages[i].extent.file];
    m.x->format = "ckpt";
    m.x->kind = "file";
    m.x->step = native->index->step;
    m.x->root = native->index->root;
    CHAIN_OK(ckpt__index_finish(m.x, &chain_err));
    give_reader(source, m.x);
}
#endif
