/* test_reader_pieces.c - what is said of the pieces of a tensor, and boxes that are read of whole and of split tensors. */
#include <ckpt/ckpt.h>

#include "reader/parts.h"
#include "../engine/plan_files.h"

enum { CASES = 1500, BOXES = 12 };

/* ---- random tensors in random pieces, whose storages lie in files as they are, deflated, or in memory */

static made tensors[TENSORS];
static ckpt_reader random_reader;

/* Returns how many tensors there are; *victim is the storage of which a byte was changed, or UINT32_MAX. */
static size_t open_case(uint64_t seed, bool harms, uint32_t *victim)
{
    static expected want;
    static char path[] = "case";
    ckpt__bond bonds[TENSORS];
    ckpt__op ops[TENSORS];
    size_t count = make_case(seed, tensors, &want);
    ck_assert(add_case(tensors, count, &want, bonds, ops));
    *victim = write_files(harms);
    ck_assert(ckpt__index_finish(source->index, &err) == CKPT_OK);
    random_reader =
        (ckpt_reader){.path = path, .source = opened, .index = source->index, .parts = ckpt__reader_parts_new()};
    ck_assert_ptr_nonnull(random_reader.parts);
    return count;
}

static void close_case(void)
{
    ckpt__reader_parts_free(random_reader.parts, opened);
    ckpt__source_close(opened);
    ckpt__index_free(source->index);
    ckpt__index_free(target->index);
}

static void each_case(void (*fn)(uint64_t seed, size_t count, uint32_t victim), uint64_t first, bool harms)
{
    uint64_t cases = getenv("CKPT_TEST_FEW") ? 40 : CASES;
    make_scratch();
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
    for (uint64_t i = 0; i < cases; i++) {
        uint32_t victim;
        size_t count = open_case(first + i, harms, &victim);
        fn(first + i, count, victim);
        close_case();
    }
    free(source);
    free(target);
    remove_scratch();
}

static void draw_box(const made *m, int64_t *lo, int64_t *size)
{
    unsigned kind = (unsigned)draw(10);
    for (uint32_t i = 0; i < m->n; i++) {
        lo[i] = kind == 0 ? 0 : (int64_t)draw((uint64_t)m->shape[i] + 1);
        int64_t left = m->shape[i] - lo[i];
        size[i] = kind == 0 ? left : (int64_t)draw((uint64_t)left + 1);
        if (kind > 1 && size[i] == 0 && left)
            size[i] = 1;
    }
}

/* The elements of the box, found one by one. Returns their bytes; *uses: one of them lies in the storage `victim`. */
static size_t expect_box(const made *m, const int64_t *lo, const int64_t *size, uint32_t victim, unsigned char *out,
                         bool *uses)
{
    int64_t at[DIMS] = {0}, index[DIMS] = {0};
    size_t n = 0;
    uint64_t where;
    *uses = false;
    if (numel_of(m->n, size) == 0)
        return 0;
    do {
        const drawn *d = m->from.pieces;
        for (uint32_t i = 0; i < m->n; i++)
            index[i] = lo[i] + at[i];
        while (!find(d, index, m->shape, m->bytes, &where))
            d++;
        *uses |= d->storage == victim;
        for (unsigned k = 0; k < m->bytes; k++)
            out[n++] = source->bytes[d->storage][where + (swaps ? m->bytes - 1 - k : k)];
    } while (next_index(at, m->n, size));
    return n;
}

static void read_boxes(uint64_t seed, size_t count, uint32_t victim)
{
    static unsigned char want[ROOM], out[ROOM + 16];
    for (size_t b = 0; b < BOXES; b++) {
        size_t i = draw(count), n;
        const made *m = &tensors[i];
        int64_t lo[DIMS] = {0}, size[DIMS] = {0};
        bool uses;
        draw_box(m, lo, size);
        n = expect_box(m, lo, size, victim, want, &uses);
        memset(out, 0x5a, n + 16);
        ckpt_status status = ckpt_reader_read_box(&random_reader, i, lo, size, out, n, &err);
        if (ckpt__has_no_bytes(&source->index->tensors[i])) {
            ck_assert_int_eq(status, CKPT_E_UNSUPPORTED);
            continue;
        }
        if (status != (uses ? CKPT_E_DAMAGED : CKPT_OK))
            ck_abort_msg("seed %llu, tensor %zu: %d: %s: %s", (unsigned long long)seed, i, (int)status, err.object,
                         err.message);
        for (size_t k = 0; status == CKPT_OK && k < n + 16; k++)
            if (out[k] != (k < n ? want[k] : 0x5a))
                ck_abort_msg("seed %llu, tensor %zu: byte %zu of %zu is %02x", (unsigned long long)seed, i, k, n,
                             out[k]);
    }
}

START_TEST(random_boxes)
{
    each_case(read_boxes, 30000, false);
}
END_TEST

/* One bit of a storage is wrong: a box that has an element there is refused, and no other one. */
START_TEST(damage)
{
    each_case(read_boxes, 40000, true);
}
END_TEST

static void compare_piece(const made *m, const drawn *d, const ckpt_piece_info *p)
{
    const ckpt__extent *e = &source->index->storages[d->storage].extent;
    int64_t strides[DIMS];
    ck_assert_uint_eq(p->ndim, m->n);
    if (p->flat)
        ck_assert(is_flat(d) && !p->lo && !p->size && !p->strides && p->flat_begin == (uint64_t)d->box[0] &&
                  p->flat_count == (uint64_t)d->box[1]);
    else if (!is_flat(d)) /* one range that is all of a tensor is whole */
        ck_assert(ckpt__same_shape(p->lo, m->n, d->box, m->n) && ckpt__same_shape(p->size, m->n, d->box + m->n, m->n) &&
                  p->flat_begin == 0 && p->flat_count == 0);
    ckpt__c_strides(p->flat ? m->shape : p->size, m->n, strides);
    for (uint32_t i = 0; p->nbytes && !is_flat(d) && d->flags & CKPT__PIECE_STRIDED && i < m->n; i++)
        ck_assert((p->strides ? p->strides : strides)[i] == d->box[2 * m->n + i] || p->size[i] == 1);
    ck_assert_uint_eq(p->nbytes, (is_flat(d) ? (uint64_t)d->box[1] : numel_of(m->n, d->box + m->n)) * m->bytes);
    ck_assert(p->offset == d->at && p->storage_nbytes == e->size && !p->device.data && !p->has_crc && !p->replica);
    bool plain = !e->memory && e->coding == CKPT__STORED;
    ck_assert_int_eq(p->file_offset, plain ? (int64_t)(e->offset + d->at) : -1);
    ck_assert(ckpt__str_is(p->file, opened->files[e->file].name));
}

/* Each is what was drawn, in the same order; two have one number where they lie in one storage. */
static void ask_pieces(uint64_t seed, size_t count, uint32_t victim)
{
    int64_t numbers[STORAGES] = {-1, -1, -1, -1, -1, -1};
    uint64_t pieces[STORAGES] = {0}, nbytes[STORAGES] = {0}; /* of each file */
    const size_t files = ckpt_reader_file_count(&random_reader);
    (void)victim;
    ck_assert(files == opened->count && files <= STORAGES);
    for (size_t i = 0; i < count; i++) {
        const made *m = &tensors[i];
        const ckpt_tensor_info *info = ckpt_reader_tensor(&random_reader, i);
        size_t next = 0;
        for (size_t k = 0; k < m->from.count; k++) {
            const drawn *d = &m->from.pieces[k];
            ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
            if (!m->from.whole && (is_flat(d) ? d->box[1] == 0 : numel_of(m->n, d->box + m->n) == 0))
                continue;
            if (ckpt_reader_piece(&random_reader, i, next++, &p, &err) != CKPT_OK)
                ck_abort_msg("seed %llu: %s", (unsigned long long)seed, err.message);
            compare_piece(m, d, &p);
            ck_assert(info->storage < 0 || p.storage == info->storage);
            for (uint32_t s = 0; s < STORAGES; s++)
                ck_assert(s == d->storage ? numbers[s] < 0 || numbers[s] == p.storage : numbers[s] != p.storage);
            numbers[d->storage] = p.storage;
            pieces[source->index->storages[d->storage].extent.file]++;
            nbytes[source->index->storages[d->storage].extent.file] += p.nbytes;
        }
        ck_assert_uint_eq(ckpt_reader_piece_count(&random_reader, i), next);
    }
    for (uint32_t s = 0; s < STORAGES; s++)
        ck_assert_int_lt(numbers[s], STORAGES);
    for (size_t f = 0; f < files; f++) {
        ckpt_str name;
        uint64_t some, bytes;
        ck_assert_int_eq(ckpt_reader_file_holds(&random_reader, f, &name, &some, &bytes, &err), CKPT_OK);
        ck_assert(ckpt__str_is(name, opened->files[f].name) && some == pieces[f] && bytes == nbytes[f]);
    }
    ck_assert_int_eq(ckpt_reader_file_holds(&random_reader, files, NULL, NULL, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert(strstr(err.message, "counted from 0"));
}

START_TEST(random_pieces)
{
    each_case(ask_pieces, 50000, false);
}
END_TEST

/* ---- a file that is opened, and changed to what is to be looked at */

static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[0,96]},"
                             "\"b\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[96,192]},"
                             "\"c\":{\"dtype\":\"C64\",\"shape\":[3,2],\"data_offsets\":[192,240]},"
                             "\"f4\":{\"dtype\":\"F4\",\"shape\":[4,6],\"data_offsets\":[240,252]},"
                             "\"f6\":{\"dtype\":\"F6_E2M3\",\"shape\":[2,8],\"data_offsets\":[252,264]},"
                             "\"odd\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[264,267]},"
                             "\"one\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[267,268]}}";
enum { BYTES = 268 };
static unsigned char payload[BYTES];
static ckpt_reader *reader;

static void open_one(void)
{
    uint64_t n = sizeof header - 1;
    make_scratch();
    for (int i = 0; i < BYTES; i++)
        payload[i] = (unsigned char)(i * 7);
    FILE *f = fopen("one.safetensors", "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(&n, 1, 8, f) + fwrite(header, 1, n, f) + fwrite(payload, 1, BYTES, f), 8 + n + BYTES);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_msg(ckpt_reader_open("one.safetensors", NULL, &reader, &err) == CKPT_OK, "%s", err.message);
}

static void close_one(void)
{
    ckpt_reader_close(reader);
    remove_scratch();
}

static size_t number(const char *name)
{
    size_t i = SIZE_MAX;
    ck_assert_int_eq(ckpt_reader_find(reader, name, strlen(name), &i, &err), CKPT_OK);
    return i;
}

static size_t split_b(const ckpt__piece *pieces, size_t count)
{
    static const int64_t shape[] = {4, 6};
    size_t b = number("b");
    ckpt__tensor *t = &reader->index->tensors[b];
    t->whole = false;
    t->piece_count = 0;
    ck_assert_msg(ckpt__index_set_pieces(reader->index, b, shape, pieces, count, &err) == CKPT_OK, "%s", err.message);
    return b;
}

static uint32_t storage_of(const char *name)
{
    return reader->index->tensors[number(name)].storage;
}

START_TEST(whole)
{
    size_t a = number("a");
    const ckpt_tensor_info *info = ckpt_reader_tensor(reader, a);
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    ckpt_str file = {"", 0};
    uint64_t pieces, nbytes;
    ck_assert_uint_eq(ckpt_reader_piece_count(reader, a), 1);
    ck_assert_uint_eq(ckpt_reader_file_count(reader), 1);
    ck_assert_int_eq(ckpt_reader_file_holds(reader, 0, &file, &pieces, &nbytes, &err), CKPT_OK);
    ck_assert(!file.data && pieces == ckpt_reader_tensor_count(reader) && nbytes >= 96);
    ck_assert_int_eq(ckpt_reader_file_holds(NULL, 0, NULL, NULL, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_reader_piece(reader, a, 0, &p, &err), CKPT_OK);
    ck_assert(p.struct_size == sizeof p && p.ndim == 2 && p.lo[0] == 0 && p.lo[1] == 0 && p.size[0] == 4 &&
              p.size[1] == 6 && !p.strides && !p.flat && !p.replica && !p.has_crc && p.crc32 == 0);
    ck_assert(p.nbytes == 96 && p.storage == info->storage && p.offset == 0 && !p.file.data && !p.device.data);
    ck_assert_int_eq(p.file_offset, 8 + (int64_t)sizeof header - 1);
    /* a view of it: the transposed right half, with a CRC and a device */
    static const int64_t shape[] = {3, 4}, strides[] = {1, 6};
    ckpt__tensor *t = &reader->index->tensors[a];
    ck_assert(ckpt__index_set_view(reader->index, a, t->storage, (const int64_t[]){4, 6}, NULL, 0, &err) == CKPT_OK);
    t->info.shape = shape;
    t->info.strides = strides;
    t->info.offset = 3;
    t->info.nbytes = 48;
    t->info.device = ckpt__s("cuda:3");
    t->info.file = ckpt__s("rank3.bin");
    t->has_crc = true;
    t->crc = 0x1234;
    ck_assert_int_eq(ckpt_reader_piece(reader, a, 0, &p, &err), CKPT_OK);
    ck_assert(p.size[0] == 3 && p.strides[0] == 1 && p.strides[1] == 6 && p.offset == 12 && p.nbytes == 48 &&
              p.storage_nbytes == 96 && p.has_crc && p.crc32 == 0x1234);
    ck_assert_int_eq(p.file_offset, 8 + (int64_t)sizeof header - 1 + 12);
    ck_assert_str_eq(p.device.data, "cuda:3");
    ck_assert_str_eq(p.file.data, "rank3.bin");
    uint32_t out[4], want[4];
    t->has_crc = false;
    for (size_t i = 0; i < 4; i++) /* rows 1 and 2, columns 2 and 3 */
        memcpy(&want[i], payload + 12 + 4 * (1 + i / 2 + 6 * (2 + i % 2)), 4);
    ck_assert_int_eq(ckpt_reader_read_box(reader, a, (int64_t[]){1, 2}, (int64_t[]){2, 2}, out, 16, &err), CKPT_OK);
    ck_assert_mem_eq(out, want, 16);
}
END_TEST

START_TEST(split)
{
    static const int64_t left[] = {0, 0, 4, 2, 1, 4}, right[] = {0, 2, 4, 4};
    reader->index->storages[storage_of("b")].device = ckpt__s("cuda:1");
    const ckpt__piece pieces[] = {
        {.box = left, .storage = storage_of("a"), .at = 8, .flags = CKPT__PIECE_STRIDED, .crc = 5, .has_crc = true},
        {.box = right, .storage = storage_of("b"), .flags = CKPT__PIECE_REPLICA},
        {.box = right, .storage = storage_of("c"), .at = 0, .flags = CKPT__PIECE_REPLICA}};
    reader->index->storages[storage_of("c")].extent.size = 64;
    reader->index->storages[storage_of("c")].extent.coding = CKPT__DEFLATE; /* it is not read */
    size_t b = split_b(pieces, 3);
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    ck_assert_uint_eq(ckpt_reader_piece_count(reader, b), 3);
    ck_assert_int_eq(ckpt_reader_piece(reader, b, 0, &p, &err), CKPT_OK);
    ck_assert(p.lo[1] == 0 && p.size[1] == 2 && p.strides[1] == 4 && p.offset == 8 && p.nbytes == 32 && p.has_crc &&
              p.crc32 == 5 && !p.replica && p.storage == ckpt_reader_tensor(reader, number("a"))->storage);
    ck_assert_int_eq(ckpt_reader_piece(reader, b, 1, &p, &err), CKPT_OK);
    ck_assert(p.lo[1] == 2 && p.size[1] == 4 && !p.strides && p.replica && !p.has_crc && p.crc32 == 0);
    ck_assert_str_eq(p.device.data, "cuda:1");
    /* Nothing else views b's storage: its number is behind those of the whole tensors. */
    ck_assert_int_gt(p.storage, ckpt_reader_tensor(reader, number("one"))->storage);
    ck_assert_int_eq(ckpt_reader_piece(reader, b, 2, &p, &err), CKPT_OK);
    ck_assert(p.storage == ckpt_reader_tensor(reader, number("c"))->storage && p.file_offset == -1);
    /* a box over both */
    unsigned char out[16];
    ck_assert_int_eq(ckpt_reader_read_box(reader, b, (int64_t[]){2, 1}, (int64_t[]){2, 2}, out, 16, &err), CKPT_OK);
    for (size_t row = 2; row < 4; row++) {
        ck_assert_mem_eq(out + 8 * (row - 2), payload + 8 + 4 * (row + 4), 4);
        ck_assert_mem_eq(out + 8 * (row - 2) + 4, payload + 96 + 16 * row, 4);
    }
}
END_TEST

/* Ranges, of which one is missing: what lies in the others can be read, and is what it should be. */
START_TEST(flat)
{
    static const int64_t first[] = {0, 10}, last[] = {14, 10};
    const ckpt__piece pieces[] = {{.box = first, .storage = storage_of("a"), .flags = CKPT__PIECE_FLAT},
                                  {.box = last, .storage = storage_of("b"), .at = 2, .flags = CKPT__PIECE_FLAT}};
    size_t b = split_b(pieces, 2);
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    unsigned char out[96];
    ck_assert_int_eq(ckpt_reader_piece(reader, b, 1, &p, &err), CKPT_OK);
    ck_assert(p.flat && p.flat_begin == 14 && p.flat_count == 10 && !p.lo && !p.size && !p.strides && p.nbytes == 40 &&
              p.offset == 2 && p.ndim == 2);
    ck_assert_int_eq(ckpt_reader_read_box(reader, b, (int64_t[]){3, 1}, (int64_t[]){1, 3}, out, 12, &err), CKPT_OK);
    ck_assert_mem_eq(out, payload + 96 + 2 + 4 * (19 - 14), 12);
    ck_assert_int_eq(ckpt_reader_read_box(reader, b, (int64_t[]){1, 0}, (int64_t[]){1, 6}, out, 24, &err),
                     CKPT_E_MISMATCH);
    ck_assert_str_eq(err.object, "b");
    ck_assert_msg(strstr(err.message, "4 of the 6 elements"), "%s", err.message);
    ck_assert_int_eq(ckpt_reader_read_box(reader, b, (int64_t[]){0, 0}, (int64_t[]){4, 6}, out, 96, &err),
                     CKPT_E_MISMATCH);
}
END_TEST

START_TEST(pieces_that_meet)
{
    static const int64_t upper[] = {0, 0, 3, 6}, lower[] = {2, 0, 2, 6};
    const ckpt__piece pieces[] = {{.box = upper, .storage = storage_of("a"), .flags = CKPT__PIECE_REPLICA},
                                  {.box = lower, .storage = storage_of("b"), .flags = CKPT__PIECE_REPLICA}};
    size_t b = split_b(pieces, 2);
    float out;
    ck_assert_int_eq(ckpt_reader_read_box(reader, b, (int64_t[]){0, 0}, (int64_t[]){1, 1}, &out, 4, &err),
                     CKPT_E_MISMATCH);
    ck_assert_str_eq(err.object, "b");
    ck_assert_msg(strstr(err.message, "two of its pieces have the same elements"), "%s", err.message);
}
END_TEST

/* Conjugated and negated views give their values, big-endian ones native elements; of a coded storage as of any. */
START_TEST(values)
{
    size_t c = number("c");
    ckpt__tensor *t = &reader->index->tensors[c];
    unsigned char out[16], want[16];
    const int64_t lo[] = {1, 1}, size[] = {2, 1};
    t->info.conj = true;
    memcpy(want, payload + 192 + 24, 8);
    memcpy(want + 8, payload + 192 + 40, 8);
    want[7] ^= 0x80;
    want[15] ^= 0x80;
    ck_assert_int_eq(ckpt_reader_read_box(reader, c, lo, size, out, 16, &err), CKPT_OK);
    ck_assert_mem_eq(out, want, 16);
    t->info.neg = true; /* of both parts: the imaginary one is turned twice */
    want[3] ^= 0x80;
    want[7] ^= 0x80;
    want[11] ^= 0x80;
    want[15] ^= 0x80;
    ck_assert_int_eq(ckpt_reader_read_box(reader, c, lo, size, out, 16, &err), CKPT_OK);
    ck_assert_mem_eq(out, want, 16);
    t->info.conj = t->info.neg = false;
    reader->index->storages[t->storage].extent.big_endian = true;
    reader->index->storages[t->storage].unit = 4;
    for (int i = 0; i < 16; i++)
        want[i] = payload[192 + (i < 8 ? 24 : 32) + (i / 4 * 4 + 3 - i % 4)];
    ck_assert_int_eq(ckpt_reader_read_box(reader, c, lo, size, out, 16, &err), CKPT_OK);
    ck_assert_mem_eq(out, want, 16);
}
END_TEST

START_TEST(below_a_byte)
{
    unsigned char out[12];
    size_t f4 = number("f4"), f6 = number("f6"), odd = number("odd");
    ck_assert_int_eq(ckpt_reader_read_box(reader, f4, (int64_t[]){1, 2}, (int64_t[]){2, 4}, out, 4, &err), CKPT_OK);
    ck_assert(memcmp(out, payload + 240 + 4, 2) == 0 && memcmp(out + 2, payload + 240 + 7, 2) == 0);
    ck_assert_int_eq(ckpt_reader_read_box(reader, f6, (int64_t[]){0, 4}, (int64_t[]){2, 4}, out, 6, &err), CKPT_OK);
    ck_assert(memcmp(out, payload + 252 + 3, 3) == 0 && memcmp(out + 3, payload + 252 + 9, 3) == 0);
    ck_assert_int_eq(ckpt_reader_read_box(reader, odd, (int64_t[]){0, 0}, (int64_t[]){2, 3}, out, 3, &err), CKPT_OK);
    ck_assert_mem_eq(out, payload + 264, 3);
    static const int64_t boxes[][4] = {{0, 1, 1, 2}, {0, 0, 1, 3}, {0, 2, 1, 1}};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(ckpt_reader_read_box(reader, f4, boxes[i], boxes[i] + 2, out, 1, &err), CKPT_E_ARGUMENT);
        ck_assert_msg(strstr(err.message, "6 elements of 4 bits") && strstr(err.message, "multiples of 2"), "%s",
                      err.message);
    }
    ck_assert_int_eq(ckpt_reader_read_box(reader, f6, (int64_t[]){0, 2}, (int64_t[]){1, 4}, out, 3, &err),
                     CKPT_E_ARGUMENT);
    ck_assert_msg(strstr(err.message, "multiples of 4"), "%s", err.message);
    ck_assert_int_eq(ckpt_reader_read_box(reader, odd, (int64_t[]){1, 0}, (int64_t[]){1, 2}, out, 1, &err),
                     CKPT_E_ARGUMENT); /* its second row begins within a byte */
    /* in pieces of rows */
    static const int64_t upper[] = {0, 0, 3, 6}, lower[] = {3, 0, 1, 6}, shape[] = {4, 6};
    const ckpt__piece pieces[] = {{.box = upper, .storage = storage_of("a"), .at = 1},
                                  {.box = lower, .storage = storage_of("b"), .at = 5}};
    reader->index->tensors[f4].whole = false;
    ck_assert_int_eq(ckpt__index_set_pieces(reader->index, f4, shape, pieces, 2, &err), CKPT_OK);
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    ck_assert(ckpt_reader_piece(reader, f4, 0, &p, &err) == CKPT_OK && p.nbytes == 9);
    ck_assert_int_eq(ckpt_reader_read_box(reader, f4, (int64_t[]){2, 4}, (int64_t[]){2, 2}, out, 2, &err), CKPT_OK);
    ck_assert(out[0] == payload[1 + 8] && out[1] == payload[96 + 5 + 2]);
}
END_TEST

/* ---- what is refused */

static void refused(ckpt_status status, ckpt_status is, const char *object, const char *said)
{
    ck_assert_msg(status == is && strcmp(err.object, object) == 0 && strstr(err.message, said), "%d: %s: %s",
                  (int)status, err.object, err.message);
}

START_TEST(refusals)
{
    float out[24];
    size_t a = number("a"), one = number("one");
    const int64_t lo[] = {1, 1}, size[] = {2, 3}, below[] = {-1, 1}, minus[] = {2, -3}, far[] = {1, 6}, many[] = {2, 7},
                  end[] = {4, 6}, none[] = {0, 0}, huge[] = {INT64_MAX, INT64_MAX};
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    refused(ckpt_reader_read_box(NULL, a, lo, size, out, 24, &err), CKPT_E_ARGUMENT, "", "no reader");
    refused(ckpt_reader_read_box(reader, 7, lo, size, out, 24, &err), CKPT_E_ARGUMENT, "one.safetensors", "number 7");
    refused(ckpt_reader_read_box(reader, a, NULL, size, out, 24, &err), CKPT_E_ARGUMENT, "a", "first index of the box");
    refused(ckpt_reader_read_box(reader, a, lo, NULL, out, 24, &err), CKPT_E_ARGUMENT, "a", "size of the box is NULL");
    refused(ckpt_reader_read_box(reader, a, below, size, out, 24, &err), CKPT_E_ARGUMENT, "a",
            "dimension 0 the box has 2 elements from -1 on, and the tensor has 4");
    refused(ckpt_reader_read_box(reader, a, lo, minus, out, 24, &err), CKPT_E_ARGUMENT, "a", "-3 elements from 1");
    refused(ckpt_reader_read_box(reader, a, far, size, out, 24, &err), CKPT_E_ARGUMENT, "a", "3 elements from 6");
    refused(ckpt_reader_read_box(reader, a, lo, many, out, 24, &err), CKPT_E_ARGUMENT, "a", "7 elements from 1");
    refused(ckpt_reader_read_box(reader, a, lo, huge, out, 24, &err), CKPT_E_ARGUMENT, "a", "box inside of it");
    refused(ckpt_reader_read_box(reader, a, lo, size, out, 23, &err), CKPT_E_ARGUMENT, "a",
            "a buffer of 23 bytes was given for the 24 of the box");
    refused(ckpt_reader_read_box(reader, a, lo, size, NULL, 24, &err), CKPT_E_ARGUMENT, "a", "no buffer");
    refused(ckpt_reader_read_box(reader, a, none, end, out, 24, &err), CKPT_E_ARGUMENT, "a",
            "24 bytes was given for its 96");
    ck_assert_int_eq(ckpt_reader_read_box(reader, a, lo, size, out, 24, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read_box(reader, a, end, none, NULL, 0, &err), CKPT_OK); /* nothing, at its end */
    refused(ckpt_reader_read_box(reader, a, end, none, out, 4, &err), CKPT_E_ARGUMENT, "a",
            "4 bytes was given for the 0");
    ck_assert(ckpt_reader_read_box(reader, one, NULL, NULL, out, 1, &err) == CKPT_OK);
    ck_assert_mem_eq(out, payload + 267, 1);

    refused(ckpt_reader_piece(reader, a, 1, &p, &err), CKPT_E_ARGUMENT, "a", "no piece of number 1: it has 1");
    refused(ckpt_reader_piece(reader, 7, 0, &p, &err), CKPT_E_ARGUMENT, "one.safetensors", "number 7");
    refused(ckpt_reader_piece(NULL, 0, 0, &p, &err), CKPT_E_ARGUMENT, "", "no reader");
    refused(ckpt_reader_piece(reader, a, 0, NULL, &err), CKPT_E_ARGUMENT, "a", "no place");
    ck_assert(ckpt_reader_piece_count(NULL, 0) == 0 && ckpt_reader_piece_count(reader, 7) == 0);
    reader->index->tensors[a].whole = false;
    ck_assert_uint_eq(ckpt_reader_piece_count(reader, a), 0);
    refused(ckpt_reader_piece(reader, a, 0, &p, &err), CKPT_E_ARGUMENT, "a", "it has 0");
    refused(ckpt_reader_read_box(reader, a, lo, size, out, 24, &err), CKPT_E_UNSUPPORTED, "a", "a meta tensor");
}
END_TEST

/* A caller's struct that is larger or smaller than ours, or that says nothing of its size. */
START_TEST(sizes_of_the_struct)
{
    struct {
        ckpt_piece_info info;
        uint64_t more[4];
    } p;
    const uint32_t own = sizeof p.info;
    memset(&p, 0xee, sizeof p);
    p.info.struct_size = sizeof p;
    ck_assert_int_eq(ckpt_reader_piece(reader, number("a"), 0, &p.info, &err), CKPT_OK);
    ck_assert(p.info.struct_size == sizeof p && p.info.nbytes == 96 && p.more[0] == 0 && p.more[3] == 0);
    memset(&p, 0xee, sizeof p);
    p.info.struct_size = 0; /* of 0.2.0 */
    ck_assert_int_eq(ckpt_reader_piece(reader, number("a"), 0, &p.info, &err), CKPT_OK);
    ck_assert(p.info.struct_size == 0 && p.info.nbytes == 96 && !p.info.replica);
    ck_assert_uint_eq(p.more[0], UINT64_C(0xeeeeeeeeeeeeeeee));
    p.info.struct_size = own - 1;
    p.info.nbytes = 1;
    ck_assert_int_eq(ckpt_reader_piece(reader, number("a"), 0, &p.info, &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "ckpt_piece_info");
    ck_assert_uint_eq(p.info.nbytes, 1);
    p.info.struct_size = 0xeeeeeeee; /* never initialized */
    ck_assert_int_eq(ckpt_reader_piece(reader, number("a"), 0, &p.info, &err), CKPT_E_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reader_pieces");
    TCase *t = tcase_create("random"), *o = tcase_create("one file");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, random_boxes);
    tcase_add_test(t, damage);
    tcase_add_test(t, random_pieces);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(o, open_one, close_one);
    tcase_add_test(o, whole);
    tcase_add_test(o, split);
    tcase_add_test(o, flat);
    tcase_add_test(o, pieces_that_meet);
    tcase_add_test(o, values);
    tcase_add_test(o, below_a_byte);
    tcase_add_test(o, refusals);
    tcase_add_test(o, sizes_of_the_struct);
    suite_add_tcase(s, o);
    return run_suite(s);
}
