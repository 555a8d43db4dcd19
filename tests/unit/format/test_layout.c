/* test_layout.c - where the payloads of recipes lie in the index of their target. */
#include "format/safetensors.h"
#include "../runner.h"

static ckpt_error err;
static ckpt__index *x;

/* w, float32 of 3 x 4, and last = w[:, 3]; both in storage 0 of 48 bytes. In storage 1 of 64 bytes z, turned, and half of it, u. */
static void make_index(void)
{
    static const struct {
        const char *name;
        ckpt_dtype dtype;
        size_t storage;
        int64_t shape[2], strides[2], offset;
        uint32_t n;
    } rows[] = {{"w", CKPT_F32, 0, {3, 4}, {4, 1}, 0, 2},
                {"last", CKPT_F32, 0, {3}, {4}, 3, 1},
                {"z", CKPT_F64, 1, {2, 4}, {1, 2}, 0, 2},
                {"u", CKPT_U8, 1, {32}, {1}, 32, 1}};
    ck_assert_ptr_nonnull(x = ckpt__index_new(0));
    for (size_t i = 0; i < 2; i++) {
        ckpt__storage *s = ckpt__index_add_storage(x);
        s->extent.size = s->extent.length = i ? 64 : 48;
        s->unit = 1;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        t->info.name = ckpt__s(rows[i].name);
        t->info.dtype = rows[i].dtype;
        t->info.ndim = rows[i].n;
        ck_assert(ckpt__index_set_view(x, i, rows[i].storage, rows[i].shape, rows[i].strides, rows[i].offset, &err) ==
                  CKPT_OK);
    }
}

typedef struct part {
    ckpt__segment_kind kind;
    size_t number;
} part;

static ckpt__recipe *make_recipe(const part *parts, size_t n)
{
    ckpt__recipe *r = ckpt__recipe_new();
    size_t capacity = 0;
    ck_assert_ptr_nonnull(r);
    ck_assert(ckpt__recipe_add(r, &capacity, CKPT__LITERAL, 4, "head", 0, &err) == CKPT_OK);
    for (size_t i = 0; i < n; i++) {
        uint64_t size = parts[i].kind == CKPT__PAYLOAD ? x->tensors[parts[i].number].info.nbytes
                                                       : x->storages[parts[i].number].extent.size;
        ck_assert(ckpt__recipe_add(r, &capacity, parts[i].kind, size, NULL, parts[i].number, &err) == CKPT_OK);
    }
    return r;
}

static ckpt__laid *laid;
static size_t laid_count;

static ckpt_status lay_out(ckpt__recipe *const *recipes, size_t n, size_t sources)
{
    laid = NULL;
    return ckpt__recipes_lay_out(recipes, n, x, sources, &laid, &laid_count, &err);
}

static void done(ckpt__recipe *const *recipes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ckpt__recipe_free(recipes[i]);
    free(laid);
    ckpt__index_free(x);
}

static void lies(size_t tensor, uint32_t storage, int64_t offset, int64_t stride)
{
    const ckpt__tensor *t = &x->tensors[tensor];
    ck_assert_msg(t->whole && t->storage == storage && t->info.offset == offset && t->info.strides[0] == stride,
                  "%s: whole %d, storage %u, offset %lld, stride %lld", t->info.name.data, t->whole, t->storage,
                  (long long)t->info.offset, (long long)t->info.strides[0]);
}

START_TEST(tensors)
{
    static const part parts[] = {{CKPT__PAYLOAD, 0}, {CKPT__PAYLOAD, 1}, {CKPT__PAYLOAD, 2}};
    make_index();
    ckpt__recipe *r = make_recipe(parts, 3);
    ck_assert_int_eq(lay_out(&r, 1, 2), CKPT_OK);
    ck_assert_uint_eq(x->storage_count, 1);
    lies(0, 0, 0, 4);
    lies(1, 0, 12, 1);               /* copied behind w */
    lies(2, 0, 96 / 8, 4);           /* in C order; 60 is no multiple of its alignment */
    ck_assert(!x->tensors[3].whole); /* z's bytes have another order there */
    ck_assert(x->storages[0].extent.size == 96 + 64 && laid_count == 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert(laid[i].to == i && laid[i].from == i && !laid[i].storage &&
                  r->segments[i + 1].kind == CKPT__STORAGE && r->segments[i + 1].number == i);
    ck_assert(r->segments[0].kind == CKPT__LITERAL);
    done(&r, 1);
}
END_TEST

START_TEST(storages)
{
    static const part parts[] = {{CKPT__STORAGE, 0}, {CKPT__STORAGE, 1}};
    for (size_t sources = 1; sources < 3; sources++) {
        make_index();
        ckpt__recipe *r = make_recipe(parts, 2);
        ck_assert_int_eq(lay_out(&r, 1, sources), CKPT_OK);
        lies(0, 0, 0, 4);
        lies(1, 0, 3, 4); /* goes on as a view of w */
        ck_assert(laid[0].to == 0 && laid[0].from == 0 && !laid[0].storage);
        if (sources == 2) { /* none of its tensors is all of it in C order: it goes over whole */
            ck_assert(x->storage_count == 2 && x->storages[1].extent.size == 64 && laid[1].storage && laid[1].to == 1 &&
                      laid[1].from == 1);
            lies(2, 1, 0, 1);
            lies(3, 1, 32, 1);
        } else { /* it has no source: it is what z makes of it */
            ck_assert(x->storage_count == 1 && x->storages[0].extent.size == 48 + 64 && !laid[1].storage &&
                      laid[1].to == 2);
            lies(2, 0, 48 / 8, 1);
            lies(3, 0, 48 + 32, 1);
        }
        done(&r, 1);
    }
}
END_TEST

/* Two files, of which one has no recipe; a storage in both; what is in none. */
START_TEST(files)
{
    static const part first[] = {{CKPT__STORAGE, 1}}, second[] = {{CKPT__STORAGE, 1}, {CKPT__PAYLOAD, 1}};
    make_index();
    ckpt__recipe *r[] = {make_recipe(first, 1), NULL, make_recipe(second, 2)};
    ck_assert_int_eq(lay_out(r, 3, 2), CKPT_OK);
    ck_assert(x->storage_count == 4 && x->storages[0].extent.size == 0 && x->storages[1].extent.size == 0 &&
              x->storages[2].extent.size == 12 && x->storages[3].extent.size == 64);
    ck_assert(laid_count == 2 && laid[0].storage && laid[0].to == 3 && laid[1].to == 1);
    ck_assert(r[0]->segments[1].number == 0 && r[2]->segments[1].number == 0 && r[2]->segments[2].number == 1);
    lies(1, 2, 0, 1);
    ck_assert(!x->tensors[0].whole); /* last has taken its own bytes alone, and w is written nowhere */
    done(r, 3);
}
END_TEST

START_TEST(twice)
{
    static const part parts[] = {{CKPT__PAYLOAD, 0}};
    make_index();
    ckpt__recipe *r[] = {make_recipe(parts, 1), make_recipe(parts, 1)};
    ck_assert_int_eq(lay_out(r, 2, 2), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(err.object, "w");
    done(r, 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_add_test(t, tensors);
    tcase_add_test(t, storages);
    tcase_add_test(t, files);
    tcase_add_test(t, twice);
    suite_add_tcase(s, t);
    return run_suite(s);
}
