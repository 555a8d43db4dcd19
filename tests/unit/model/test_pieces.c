/* Tensors that are split: what an index takes as pieces of one, and what it says of them. */
#include "model/index.h"
#include "model/views.h"
#include "../runner.h"

static ckpt__index *ix;
static ckpt_error err;

static void setup(void)
{
    ix = ckpt__index_new(0);
    err = (ckpt_error)CKPT_ERROR_INIT;
    for (int i = 0; i < 3; i++) {
        ckpt__storage *s = ckpt__index_add_storage(ix);
        s->extent.size = s->extent.length = 64;
        s->device = ckpt__s(i < 2 ? "cuda:0" : "cuda:1");
    }
}

static void teardown(void)
{
    ckpt__index_free(ix);
}

static size_t add(const char *name, ckpt_dtype dtype, uint32_t ndim)
{
    ckpt__tensor *t = ckpt__index_add_tensor(ix);
    t->info.name = ckpt__s(name);
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    return ix->tensor_count - 1;
}

static const int64_t shape[] = {8, 4}, upper[] = {0, 0, 4, 4}, lower[] = {4, 0, 4, 4}, columns[] = {0, 1, 8, 2, 8, 1};

START_TEST(a_split_tensor)
{
    int64_t box[4], sizes[2];
    memcpy(box, upper, sizeof box);
    memcpy(sizes, shape, sizeof sizes);
    const ckpt__piece pieces[] = {{.box = box, .storage = 0},
                                  {.box = lower, .storage = 1, .flags = CKPT__PIECE_REPLICA}};
    size_t i = add("w", CKPT_F32, 2);
    ck_assert_msg(ckpt__index_set_pieces(ix, i, sizes, pieces, 2, &err) == CKPT_OK, "%s", err.message);
    box[0] = sizes[0] = 77; /* they were copied */
    const ckpt__tensor *t = &ix->tensors[i];
    ck_assert(!t->whole && t->piece_count == 2 && !ckpt__has_no_bytes(t) && ckpt__view_count(t) == 2);
    ck_assert(t->info.shape[0] == 8 && t->info.nbytes == 128 && !t->info.strides && t->info.storage == -1);
    ck_assert(ckpt__str_is(t->info.device, "cuda:0"));
    ckpt__view v = ckpt__view_of(ix, t, 0);
    ck_assert(v.lo[0] == 0 && v.size[0] == 4 && v.size[1] == 4 && !v.strides && v.storage == 0 && !v.replica &&
              !v.flat);
    v = ckpt__view_of(ix, t, 1);
    ck_assert(v.lo[0] == 4 && v.storage == 1 && v.replica);
    ck_assert(ix->pieces[1].tensor == i && ckpt__index_finish(ix, &err) == CKPT_OK && t->info.storage == -1);
}
END_TEST

/* A view says the same of a whole tensor. */
START_TEST(a_whole_tensor)
{
    static const int64_t strides[] = {1, 2}, two[] = {2, 3};
    size_t i = add("t", CKPT_I16, 2);
    ck_assert(ckpt__index_set_view(ix, i, 2, two, strides, 5, &err) == CKPT_OK);
    ckpt__view v = ckpt__view_of(ix, &ix->tensors[i], 0);
    ck_assert(!v.lo && v.size[1] == 3 && v.strides[1] == 2 && v.at == 10 && v.storage == 2 && !v.flat && !v.replica);
    ck_assert(ckpt__view_count(&ix->tensors[i]) == 1 && ix->piece_count == 0);
    size_t none = add("meta", CKPT_I16, 2);
    ck_assert(ckpt__has_no_bytes(&ix->tensors[none]) && ckpt__view_count(&ix->tensors[none]) == 0);
}
END_TEST

START_TEST(kinds_of_pieces)
{
    static const int64_t flat[] = {3, 10}, empty[] = {8, 0, 0, 4}, nothing[] = {32, 0};
    const ckpt__piece pieces[] = {
        {.box = flat, .storage = 2, .at = 8, .flags = CKPT__PIECE_FLAT},
        {.box = empty, .storage = 0, .at = 64},
        {.box = nothing, .storage = 0, .flags = CKPT__PIECE_FLAT},
        {.box = columns, .storage = 0, .flags = CKPT__PIECE_STRIDED, .crc = 7, .has_crc = true}};
    size_t i = add("w", CKPT_U8, 2), zero = add("scalar", CKPT_F64, 0), k = add("none", CKPT_F64, 1);
    ck_assert_msg(ckpt__index_set_pieces(ix, i, shape, pieces, 4, &err) == CKPT_OK, "%s", err.message);
    const ckpt__tensor *t = &ix->tensors[i];
    ck_assert_uint_eq(t->piece_count, 2); /* what is empty is left out */
    ck_assert_ptr_null(t->info.device.data);
    ckpt__view v = ckpt__view_of(ix, t, 0);
    ck_assert(v.flat && v.begin == 3 && v.count == 10 && v.at == 8 && v.storage == 2 && !v.lo && !v.size);
    v = ckpt__view_of(ix, t, 1);
    ck_assert(v.lo[1] == 1 && v.size[0] == 8 && v.strides[0] == 8 && v.strides[1] == 1);
    ck_assert(ix->pieces[1].has_crc && ix->pieces[1].crc == 7);
    const ckpt__piece one = {.box = NULL, .storage = 1, .at = 56};
    ck_assert(ckpt__index_set_pieces(ix, zero, NULL, &one, 1, &err) == CKPT_OK);
    ck_assert(ix->tensors[zero].info.nbytes == 8 && ckpt__view_of(ix, &ix->tensors[zero], 0).at == 56);
    ck_assert(ix->tensors[zero].whole && ix->tensors[zero].info.offset == 7);
    static const int64_t no_rows[] = {0};
    ck_assert(ckpt__index_set_pieces(ix, k, no_rows, NULL, 0, &err) == CKPT_OK && ix->tensors[k].info.nbytes == 0);
}
END_TEST

/* One piece that is all of the tensor is a view as any other, with its strides and its CRC. */
START_TEST(one_piece)
{
    static const int64_t all[] = {0, 0, 8, 4, 1, 8}, flat[] = {0, 32};
    const ckpt__piece strided =
                          {.box = all, .storage = 2, .flags = CKPT__PIECE_STRIDED, .crc = 9, .has_crc = true, .at = 2},
                      range = {.box = flat, .storage = 1, .at = 3, .flags = CKPT__PIECE_FLAT};
    size_t i = add("w", CKPT_U8, 2), k = add("v", CKPT_I16, 2), m = add("u", CKPT_U8, 2);
    ck_assert(ckpt__index_set_pieces(ix, i, shape, &strided, 1, &err) == CKPT_OK);
    const ckpt__tensor *t = &ix->tensors[i];
    ck_assert(t->whole && t->storage == 2 && t->info.strides[1] == 8 && t->info.offset == 2 && t->has_crc &&
              t->crc == 9);
    ix->storages[1].extent.size = 100;
    ck_assert(ckpt__index_set_pieces(ix, k, shape, &range, 1, &err) == CKPT_OK);
    t = &ix->tensors[k]; /* it begins within an element */
    ck_assert(!t->whole && t->piece_count == 1 && ckpt__view_of(ix, t, 0).at == 3 && ix->piece_count == 1);
    ck_assert(ckpt__index_set_pieces(ix, m, shape, &range, 1, &err) == CKPT_OK);
    ck_assert(ix->tensors[m].whole && ix->tensors[m].info.offset == 3 && ix->tensors[m].info.strides[0] == 4);
    ck_assert_uint_eq(ix->piece_count, 1);
}
END_TEST

/* Layers repeat: their boxes are kept once. */
START_TEST(equal_boxes_are_one)
{
    const ckpt__piece pieces[] = {{.box = upper, .storage = 0}, {.box = lower, .storage = 1}};
    size_t a = add("a", CKPT_F32, 2), b = add("b", CKPT_BF16, 2);
    ck_assert(ckpt__index_set_pieces(ix, a, shape, pieces, 2, &err) == CKPT_OK &&
              ckpt__index_set_pieces(ix, b, shape, pieces, 2, &err) == CKPT_OK);
    ck_assert(ix->pieces[0].box == ix->pieces[2].box && ix->pieces[1].box == ix->pieces[3].box &&
              ix->pieces[0].box != ix->pieces[1].box && ix->pieces[0].box != upper);
}
END_TEST

static void refused(ckpt_dtype dtype, uint32_t ndim, const int64_t *sizes, ckpt__piece piece, const char *said)
{
    ckpt__piece pieces[] = {{.box = upper, .storage = 0}, piece};
    size_t i = add("w", dtype, ndim), skip = ndim == 2 && dtype == CKPT_F32 ? 0 : 1;
    err.message[0] = '\0';
    ck_assert_msg(ckpt__index_set_pieces(ix, i, sizes, pieces + skip, 2 - skip, &err) == CKPT_E_FORMAT, "%s", said);
    ck_assert_msg(strstr(err.message, said) && strcmp(err.object, "w") == 0, "%s: %s", err.object, err.message);
}

START_TEST(refusals)
{
    static const int64_t low[] = {-1, 0, 2, 4}, far[] = {5, 0, 4, 4}, beyond[] = {9, 0, 0, 4},
                         large[] = {1, 0, INT64_MAX, 4}, minus[] = {0, 0, 4, -4}, back[] = {0, 0, 2, 2, -1, 1},
                         wild[] = {0, 0, 4, 4, INT64_MAX, 1}, flat[] = {30, 3}, under[] = {-1, 3},
                         huge[] = {INT64_MAX, INT64_MAX}, odd[] = {0, 1, 8, 1}, half[] = {1, 2}, one[] = {4},
                         three[] = {8, 3}, minus_shape[] = {8, -4};
    const uint8_t s = CKPT__PIECE_STRIDED, f = CKPT__PIECE_FLAT;
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = lower, .storage = 3}, "piece 1 of it views a storage that is not");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = low, .storage = 1}, "outside of its shape");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = far, .storage = 1}, "outside of its shape");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = beyond, .storage = 1}, "outside of its shape");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = large, .storage = 1}, "outside of its shape");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = minus, .storage = 1}, "outside of its shape");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = back, .storage = 1, .flags = s}, "negative stride");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = wild, .storage = 1, .flags = s}, "overflow 64 bits");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = lower, .storage = 1, .at = 4},
            "16 elements behind byte 4 of a storage of 64");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = lower, .storage = 1, .at = UINT64_MAX}, "behind byte");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = flat, .storage = 1, .flags = f}, "range that ends outside");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = under, .storage = 1, .flags = f}, "range that ends outside");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = huge, .storage = 1, .flags = f}, "range that ends outside");
    refused(CKPT_F32, 2, shape, (ckpt__piece){.box = one, .storage = 1, .flags = f | s}, "has strides");
    refused(CKPT_F4, 2, shape, (ckpt__piece){.box = odd, .storage = 1}, "rows that begin or end within a byte");
    refused(CKPT_F4, 2, shape, (ckpt__piece){.box = half, .storage = 1, .flags = f}, "begins or ends within a byte");
    refused(CKPT_F4, 2, three, (ckpt__piece){.box = columns, .storage = 1}, "rows that begin or end within a byte");
    refused(CKPT_F4, 2, shape, (ckpt__piece){.box = columns, .storage = 1, .flags = s}, "within a byte");
    refused(CKPT_F4, 0, NULL, (ckpt__piece){.storage = 1}, "within a byte");
    refused(CKPT_DTYPE_NONE, 2, shape, (ckpt__piece){.box = lower, .storage = 1}, "known dtype");
    refused(CKPT_U8, 2, minus_shape, (ckpt__piece){.box = lower, .storage = 1}, "negative or overflows");
}
END_TEST

/* Six bits: four elements are three bytes. */
START_TEST(granules)
{
    static const int64_t right[] = {0, 4, 8, 4}, sizes[] = {8, 8};
    const ckpt__piece piece = {.box = right, .storage = 0, .at = 40};
    size_t i = add("w", CKPT_F6_E2M3, 2);
    ck_assert_msg(ckpt__index_set_pieces(ix, i, sizes, &piece, 1, &err) == CKPT_OK, "%s", err.message);
    const ckpt__piece later = {.box = right, .storage = 0, .at = 41};
    ck_assert(ckpt__index_set_pieces(ix, add("v", CKPT_F6_E2M3, 2), sizes, &later, 1, &err) == CKPT_E_FORMAT);
}
END_TEST

START_TEST(several_files)
{
    const ckpt__piece pieces[] = {{.box = upper, .storage = 1}, {.box = lower, .storage = 2}};
    ckpt__index *into = ckpt__index_new(0), *parts[2];
    for (int p = 0; p < 2; p++) {
        teardown();
        setup();
        parts[p] = ix;
        ck_assert(ckpt__index_set_view(ix, add("whole", CKPT_F32, 1), 2, (int64_t[]){16}, NULL, 0, &err) == CKPT_OK);
        ck_assert(ckpt__index_set_pieces(ix, add("split", CKPT_F32, 2), shape, pieces, 2, &err) == CKPT_OK);
        ck_assert(ckpt__index_finish(ix, &err) == CKPT_OK);
        ix = NULL;
    }
    for (int p = 0; p < 2; p++)
        ck_assert(ckpt__index_absorb(into, parts[p], ckpt__s(p ? "b" : "a"), &err) == CKPT_OK);
    ix = into;
    ck_assert(ix->tensor_count == 4 && ix->piece_count == 4 && ix->storage_count == 6);
    ck_assert(ix->tensors[2].whole && ix->tensors[2].storage == 5);
    ckpt__view v = ckpt__view_of(ix, &ix->tensors[3], 1);
    ck_assert(v.lo[0] == 4 && v.storage == 5 && ix->pieces[3].tensor == 3 &&
              ckpt__str_is(ix->tensors[3].info.file, "b"));
    ck_assert(ckpt__view_of(ix, &ix->tensors[1], 0).storage == 1);
    ckpt__views views;
    size_t count;
    ck_assert(ckpt__views_make(ix, true, &views));
    const size_t *of = ckpt__views_of(&views, 5, &count);
    ck_assert(count == 2 && of[0] == 2 && of[1] == 3);
    ckpt__views_free(&views);
}
END_TEST

/* Of whole and split tensors every second one goes: pieces, values and numbers of storages are those of the ones that stay. A value
 * that is reached twice is numbered once. */
START_TEST(tensors_that_are_left_out)
{
    const ckpt__piece pieces[] = {{.box = upper, .storage = 1}, {.box = lower, .storage = 2}};
    const ckpt_value *items[7];
    for (int i = 0; i < 3; i++) {
        ck_assert(ckpt__index_set_view(ix, add("whole", CKPT_F32, 1), (size_t)i, (int64_t[]){16}, NULL, 0, &err) ==
                  CKPT_OK);
        ck_assert(ckpt__index_set_pieces(ix, add("split", CKPT_F32, 2), shape, pieces, 2, &err) == CKPT_OK);
    }
    for (size_t i = 0; i < 6; i++) {
        ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_TENSOR);
        v->tensor = i;
        items[i] = v;
    }
    items[6] = items[5];
    ix->root = ckpt__value_list(ix->arena, CKPT_V_LIST, items, 7);
    ck_assert(ckpt__index_finish(ix, &err) == CKPT_OK);
    const bool keep[] = {false, true, false, false, true, true};
    ck_assert(ckpt__index_keep(ix, keep, &err) == CKPT_OK);
    ck_assert(ix->tensor_count == 3 && ix->piece_count == 4);
    ck_assert(ckpt__is_split(&ix->tensors[0]) && ix->tensors[1].whole && ckpt__is_split(&ix->tensors[2]));
    ck_assert(ix->tensors[1].storage == 2 && ix->tensors[1].info.storage == 0);
    for (size_t i = 0; i < 4; i++)
        ck_assert(ix->pieces[i].tensor == (i < 2 ? 0 : 2) && ix->pieces[i].storage == 1 + i % 2);
    ck_assert(ix->tensors[0].first_piece == 0 && ix->tensors[2].first_piece == 2);
    static const int now[] = {-1, 0, -1, -1, 1, 2, 2};
    for (size_t i = 0; i < 7; i++) {
        const ckpt_value *v = ix->root->items[i];
        ck_assert(now[i] < 0 ? v->kind == CKPT_V_NONE : v->kind == CKPT_V_TENSOR && v->tensor == (size_t)now[i]);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pieces");
    TCase *c = tcase_create("pieces");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_split_tensor);
    tcase_add_test(c, a_whole_tensor);
    tcase_add_test(c, kinds_of_pieces);
    tcase_add_test(c, one_piece);
    tcase_add_test(c, equal_boxes_are_one);
    tcase_add_test(c, refusals);
    tcase_add_test(c, granules);
    tcase_add_test(c, several_files);
    tcase_add_test(c, tensors_that_are_left_out);
    suite_add_tcase(s, c);
    return run_suite(s);
}
