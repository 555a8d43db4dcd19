/* Torch files are written as torch writes them: files of torch come out the same but for the serialization id, and what is
 * changed on the way is changed where it lives. */
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include <limits.h>
#include "codec/crc32.h"
#include "format/torch/write.h"
#include "../runner.h"
#include "../scratch.h"

static ckpt_error err;
static char top[PATH_MAX]; /* of the sources; the tests' own directory is the current one */

static char *load_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    ck_assert_uint_eq(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static const char *fixture(const char *name)
{
    static char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/tests/data/torch_write/%s", top, name);
    return path;
}

static void migrate(const char *from, const char *to, const char *format, const char *map)
{
    ckpt_migrate_options options;
    memset(&options, 0, sizeof options);
    options.to = format;
    options.map_location = map;
    options.no_sync = options.force = true;
    ckpt_status s = ckpt_migrate(from, to, &options, NULL, &err);
    ck_assert_msg(s == CKPT_OK, "%s: %s", err.object, err.message);
}

static char *find(const char *data, size_t size, const char *text, size_t n)
{
    char *at = memmem(data, size, text, n);
    ck_assert_msg(at != NULL, "'%.20s' is not there", text);
    return at;
}

/* The id, its CRC in the descriptor and its CRC in the directory. */
static void blank_id(char *data, size_t size, const char *archive)
{
    char name[80];
    int n = snprintf(name, sizeof name, "%s/.data/serialization_id", archive);
    char *local = find(data, size, name, (size_t)n), *id = local + n;
    id += 4 + ((unsigned char)id[2] | (unsigned char)id[3] << 8); /* the padding */
    for (int i = 0; i < 40; i++)
        ck_assert_msg(id[i] >= '0' && id[i] <= '9', "the id has a character %d", id[i]);
    uint32_t stored, crc = ckpt__crc32(0, id, 40);
    memcpy(&stored, id + 44, 4);
    ck_assert_uint_eq(stored, crc);
    memset(id, 0, 48);
    char *central = find(id, size - (size_t)(id - data), name, (size_t)n);
    memcpy(&stored, central - 30, 4);
    ck_assert_uint_eq(stored, crc);
    memset(central - 30, 0, 4);
}

static void same_file(const char *one, const char *two, const char *archive)
{
    size_t n, m, same = 0;
    char *a = load_file(one, &n), *b = load_file(two, &m);
    blank_id(a, n, archive);
    blank_id(b, m, archive);
    while (same < n && same < m && a[same] == b[same])
        same++;
    ck_assert_msg(n == m && same == n, "%zu bytes and %zu; the first %zu are alike", n, m, same);
    free(a);
    free(b);
}

static const char *const files[] = {"plain", "odd"};

/* Offsets, padding, flags, descriptors, directory, and every byte of the pickle. */
START_TEST(as_torch_wrote)
{
    char name[40];
    snprintf(name, sizeof name, "%s.pt", files[_i]);
    migrate(fixture(name), name, "torch", NULL);
    same_file(fixture(name), name, files[_i]);
}
END_TEST

/* The same input is the same file, its id too. */
START_TEST(twice_the_same)
{
    size_t n, m;
    migrate(fixture("plain.pt"), "plain.pt", "torch", NULL);
    char *a = load_file("plain.pt", &n);
    migrate(fixture("plain.pt"), "plain.pt", "torch", NULL);
    char *b = load_file("plain.pt", &m);
    ck_assert(n == m && memcmp(a, b, n) == 0);
    free(a);
    free(b);
}
END_TEST

/* By way of the native format: only strides and lazy bits may differ, and plain.pt has none. */
START_TEST(by_way_of_native)
{
    migrate(fixture("plain.pt"), "plain.ckpt", "ckpt", NULL);
    migrate("plain.ckpt", "plain.pt", "torch", NULL);
    same_file(fixture("plain.pt"), "plain.pt", "plain");
    migrate("plain.ckpt", "again.ckpt", "ckpt", NULL); /* its records may have other numbers */
    migrate("again.ckpt", "plain.pt", "torch", NULL);
    same_file(fixture("plain.pt"), "plain.pt", "plain");
}
END_TEST

static const ckpt_value *value_at(const ckpt_reader *r, const char *key)
{
    const ckpt_value *v = ckpt_value_get(ckpt_reader_root(r), key);
    ck_assert_msg(v != NULL, "%s", key);
    return v;
}

/* Devices are rewritten in the ids of storages, and a user's own 'cpu' is not: they are one object in the source. */
START_TEST(devices)
{
    ckpt_reader *r = NULL;
    migrate(fixture("plain.pt"), "there.pt", "torch", "cuda:3");
    ck_assert_int_eq(ckpt_reader_open("there.pt", NULL, &r, &err), CKPT_OK);
    size_t n = ckpt_reader_tensor_count(r), moved = 0;
    for (size_t i = 0; i < n; i++)
        moved += ckpt__str_is(ckpt_reader_tensor(r, i)->device, "cuda:3");
    ck_assert_uint_gt(n, 10);
    ck_assert_uint_ge(moved, 10);
    ck_assert(ckpt__str_is(value_at(r, "device")->text, "cpu"));
    ckpt_reader_close(r);
    migrate("there.pt", "back.pt", "torch", "cpu");
    ckpt_reader *was = NULL;
    ck_assert_int_eq(ckpt_reader_open(fixture("plain.pt"), NULL, &was, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_open("back.pt", NULL, &r, &err), CKPT_OK);
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), n);
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor_info *a = ckpt_reader_tensor(was, i), *b = ckpt_reader_tensor(r, i);
        uint32_t x, y;
        ck_assert(ckpt__str_equal(a->name, b->name) && ckpt__str_equal(a->device, b->device) &&
                  a->storage == b->storage);
        ck_assert_int_eq(ckpt_reader_crc32(was, i, &x, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_reader_crc32(r, i, &y, &err), CKPT_OK);
        ck_assert_uint_eq(x, y);
    }
    ckpt_reader_close(was);
    ckpt_reader_close(r);
}
END_TEST

/* A trainer's own native file has no such structure: it becomes the dict that a torch program would have saved. */
START_TEST(constructed)
{
    char path[PATH_MAX + 64];
    ckpt_reader *r = NULL;
    snprintf(path, sizeof path, "%s/tests/data/native/version-1.0.safetensors", top);
    migrate(path, "made.pt", "torch", NULL);
    ck_assert_int_eq(ckpt_reader_open("made.pt", NULL, &r, &err), CKPT_OK);
    const ckpt_value *model = value_at(r, "model"), *optimizer = value_at(r, "optimizer"),
                     *state = ckpt_value_get(optimizer, "state"), *groups = ckpt_value_get(optimizer, "param_groups"),
                     *betas, *params;
    ck_assert(ckpt__str_is(model->class_name, "collections.OrderedDict"));
    ck_assert_uint_eq(model->entry_count, 7);
    ck_assert_uint_eq(state->entry_count, 2);
    ck_assert_int_eq(state->entries[1].key->kind, CKPT_V_INT);
    ck_assert_int_eq(state->entries[1].key->integer, 1);
    ck_assert_int_eq(ckpt_value_get(state->entries[0].value, "exp_avg")->kind, CKPT_V_TENSOR);
    ck_assert_int_eq(groups->kind, CKPT_V_LIST);
    ck_assert_uint_eq(groups->item_count, 1);
    betas = ckpt_value_get(groups->items[0], "betas");
    params = ckpt_value_get(groups->items[0], "params");
    ck_assert_int_eq(betas->kind, CKPT_V_TUPLE);
    ck_assert_int_eq(ckpt_value_get(groups->items[0], "fused")->kind, CKPT_V_BOOL);
    ck_assert_uint_eq(params->item_count, 2);
    ck_assert_int_eq(params->items[1]->integer, 1);
    ck_assert_int_eq(value_at(r, "step")->integer, 13);
    ckpt_reader_close(r);
}
END_TEST

/* ---- what is made from nothing */

typedef struct made {
    ckpt__index *x;
    ckpt__arena *a;
    ckpt_report *lost;
    ckpt__recipe *recipe;
} made;

static void make(made *m)
{
    memset(m, 0, sizeof *m);
    m->x = ckpt__index_new(0);
    m->a = m->x->arena;
    m->lost = ckpt_report_new();
}

static void drop(made *m)
{
    ckpt__recipe_free(m->recipe);
    ckpt_report_free(m->lost);
    ckpt__index_free(m->x);
}

static void write_made(made *m, const ckpt_value *root)
{
    size_t numbers[8];
    for (size_t i = 0; i < m->x->tensor_count; i++)
        numbers[i] = i;
    ckpt__write_request q = {
        .index = m->x, .tensors = numbers, .count = m->x->tensor_count, .root = root, .step = -1, .lost = m->lost};
    ckpt_status s = ckpt__torch_write(&q, &m->recipe, &err);
    ck_assert_msg(s == CKPT_OK, "%s", err.message);
}

/* A tensor with a storage of its own. */
static size_t add_tensor(ckpt__index *x, const char *name, ckpt_dtype dtype, int64_t numel, const char *device)
{
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = s->extent.length = ((uint64_t)numel * ckpt_dtype_bits(dtype) + 7) / 8;
    s->device = ckpt__s(device);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s(name);
    t->info.dtype = dtype;
    t->info.ndim = 1;
    ck_assert_int_eq(ckpt__index_set_view(x, x->tensor_count - 1, x->storage_count - 1, &numel, NULL, 0, &err),
                     CKPT_OK);
    return x->tensor_count - 1;
}

static ckpt_value *tensor_value(made *m, size_t n)
{
    ckpt_value *v = ckpt__value_new(m->a, CKPT_V_TENSOR);
    v->tensor = n;
    return v;
}

static uint64_t offset_of(const ckpt__recipe *r, size_t segment)
{
    uint64_t at = 0;
    for (size_t i = 0; i < segment; i++)
        at += r->segments[i].size;
    return at;
}

static size_t storage_segment(const ckpt__recipe *r, size_t number)
{
    size_t i = 0;
    while (i < r->count && !(r->segments[i].kind == CKPT__STORAGE && r->segments[i].number == number))
        i++;
    ck_assert_uint_lt(i, r->count);
    return i;
}

static uint64_t le(const char *p, int width)
{
    uint64_t v = 0;
    for (int i = width; i-- > 0;)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

/* The bytes of a segment that is computed, where the only record has this CRC. */
static char *computed(const made *m, size_t segment, size_t payload, uint32_t crc)
{
    uint32_t *crcs = calloc(m->recipe->count, sizeof *crcs);
    char *bytes = malloc((size_t)m->recipe->segments[segment].size);
    crcs[payload] = crc;
    ck_assert_int_eq(m->recipe->segments[segment].kind, CKPT__COMPUTED);
    ck_assert_int_eq(m->recipe->compute(m->recipe, segment, crcs, bytes, &err), CKPT_OK);
    free(crcs);
    return bytes;
}

/* Beyond 4 GiB. Numbers are those of the file that torch 2.13 writes for {'a': zeros(2**32 + 100, uint8), 'b': arange(5.)}:
 * the local headers, descriptors and directory entries of both records. */
START_TEST(zip64)
{
    made m;
    make(&m);
    const int64_t large = ((int64_t)1 << 32) + 100;
    size_t a = add_tensor(m.x, "a", CKPT_U8, large, "cpu"), b = add_tensor(m.x, "b", CKPT_F32, 5, "cpu");
    ckpt_entry entries[] = {{ckpt__value_str(m.a, "a", 1), tensor_value(&m, a)},
                            {ckpt__value_str(m.a, "b", 1), tensor_value(&m, b)}};
    write_made(&m, ckpt__value_dict(m.a, entries, 2));
    const ckpt__recipe *r = m.recipe;
    size_t first = storage_segment(r, 0), second = storage_segment(r, 1);
    ck_assert_uint_eq(offset_of(r, first) % 64, 0);
    ck_assert_uint_eq(offset_of(r, second) % 64, 0);
    char *header = computed(&m, first - 1, first, 0);
    const char *extra = header + 30 + strlen("archive/data/0");
    ck_assert_int_eq(memcmp(header, "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 26), 0);
    ck_assert_uint_eq(le(extra, 2), 1);
    ck_assert_uint_eq(le(extra + 2, 2), 16);
    ck_assert_uint_eq(le(extra + 4, 8), (uint64_t)large);
    ck_assert_uint_eq(le(extra + 12, 8), 0);
    ck_assert_int_eq(memcmp(extra + 20, "FB", 2), 0);
    ck_assert_uint_eq(r->segments[first + 1].size, 24);
    free(header);
    header = computed(&m, second - 1, first, 0);
    extra = header + 30 + strlen("archive/data/1");
    ck_assert_uint_eq(le(extra, 2), 1); /* its offset needs 64 bits, its size does not */
    ck_assert_uint_eq(le(extra + 2, 2), 8);
    ck_assert_uint_eq(le(extra + 4, 8), offset_of(r, second - 1));
    ck_assert_int_eq(memcmp(extra + 12, "FB", 2), 0);
    ck_assert_uint_eq(r->segments[second + 1].size, 24);
    free(header);
    char *descriptor = computed(&m, first + 1, first, 0x11223344);
    ck_assert_int_eq(memcmp(descriptor, "PK\7\10\x44\x33\x22\x11", 8), 0);
    ck_assert_uint_eq(le(descriptor + 8, 8), (uint64_t)large);
    ck_assert_uint_eq(le(descriptor + 16, 8), (uint64_t)large);
    free(descriptor);
    size_t n = (size_t)r->segments[r->count - 2].size;
    char *directory = computed(&m, r->count - 2, first, 0x11223344);
    const char *entry = find(directory, n, "archive/data/0", 14) - 46;
    ck_assert_uint_eq(le(entry + 16, 4), 0x11223344);
    ck_assert_uint_eq(le(entry + 20, 4), UINT32_MAX);
    ck_assert_uint_eq(le(entry + 24, 4), UINT32_MAX);
    ck_assert_uint_eq(le(entry + 30, 2), 20);
    ck_assert_uint_eq(le(entry + 46 + 14 + 4, 8), (uint64_t)large);
    ck_assert_uint_eq(le(entry + 46 + 14 + 12, 8), (uint64_t)large);
    entry = find(directory, n, "archive/data/1", 14) - 46;
    ck_assert_uint_eq(le(entry + 20, 4), 20);
    ck_assert_uint_eq(le(entry + 42, 4), UINT32_MAX);
    ck_assert_uint_eq(le(entry + 46 + 14 + 4, 8), offset_of(r, second - 1));
    const char *end = r->segments[r->count - 1].bytes;
    ck_assert_uint_eq(le(end + 48, 8), offset_of(r, r->count - 2));
    ck_assert_uint_eq(le(end + 56 + 20 + 16, 4), UINT32_MAX);
    free(directory);
    drop(&m);
}
END_TEST

/* A hundred thousand tensors are written in the memory that is set aside for it: what their pickle is made of is there while
 * it goes by, and of the archive the segments and few bytes a record. */
START_TEST(memory_of_a_tensor)
{
    enum { N = 5000, PICKLE = 160, RECORD = 40, SEGMENTS = 3 * 24 };
    made m;
    make(&m);
    ckpt_entry *entries = calloc(N, sizeof *entries);
    for (size_t i = 0; i < N; i++) {
        char name[80];
        int n = snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu.down_proj.weight", i / 64, i % 64);
        ckpt_str kept = ckpt__arena_str(m.a, name, (size_t)n);
        entries[i] = (ckpt_entry){ckpt__value_str(m.a, kept.data, kept.size),
                                  tensor_value(&m, add_tensor(m.x, kept.data, CKPT_F32, 8, "cpu"))};
    }
    ckpt__torch_pickling p = {.index = m.x, .source = m.x, .root = ckpt__value_dict(m.a, entries, N)};
    for (int kept = 0; kept < 2; kept++) {
        ckpt__buf out = {0};
        p.kept = kept;
        ck_assert_int_eq(ckpt__torch_pickle(&p, &out, &err), CKPT_OK);
        ck_assert_uint_gt(out.size, N * 100);
        ck_assert_msg(p.held < N * PICKLE, "%zu bytes a tensor are held", p.held / N);
        ckpt__buf_free(&out);
    }
    size_t *numbers = calloc(N, sizeof *numbers);
    for (size_t i = 0; i < N; i++)
        numbers[i] = i;
    ckpt__write_request q = {.index = m.x, .tensors = numbers, .count = N, .root = p.root, .step = -1};
    ck_assert_int_eq(ckpt__torch_write(&q, &m.recipe, &err), CKPT_OK);
    uint64_t used = ckpt__arena_used(m.recipe->arena), segments = m.recipe->count * sizeof *m.recipe->segments;
    ck_assert_msg(used < N * RECORD, "%llu bytes a record", (unsigned long long)used / N);
    ck_assert_msg(segments < (N + 8) * SEGMENTS, "%llu bytes of segments a record", (unsigned long long)segments / N);
    free(p.storages);
    free(numbers);
    free(entries);
    drop(&m);
}
END_TEST

static ckpt__pickle pickle;

/* The pickle of a recipe, read. */
static const ckpt__pickle_node *root_of(made *m)
{
    const ckpt__segment *s = &m->recipe->segments[1];
    ckpt_status status = ckpt__pickle_read(s->bytes, (size_t)s->size, "p", m->a, &pickle, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    ckpt__pickle_free(&pickle);
    return pickle.root;
}

static const ckpt__pickle_node *item(const ckpt__pickle_node *n, size_t i)
{
    if (n->kind == CKPT__P_OBJECT)
        n = n->u.object->args;
    ck_assert_uint_lt(i, n->u.list.count);
    return n->u.list.items[i];
}

/* Storages of one dtype have its class; of a dtype that has none, or of several, they are bytes and _v3 says the dtype. */
START_TEST(storage_classes)
{
    made m;
    make(&m);
    const int64_t half[] = {8};
    add_tensor(m.x, "f", CKPT_F32, 4, "cuda:1");
    add_tensor(m.x, "f8", CKPT_F8_E4M3, 4, "cpu");
    ckpt__tensor *t = ckpt__index_add_tensor(m.x);
    t->info.name = ckpt__s("other");
    t->info.dtype = CKPT_BF16;
    t->info.ndim = 1;
    ck_assert_int_eq(ckpt__index_set_view(m.x, 2, 0, half, NULL, 0, &err), CKPT_OK);
    add_tensor(m.x, "i", CKPT_I64, 4, "cpu");
    const ckpt_value *items[] = {tensor_value(&m, 0), tensor_value(&m, 1), tensor_value(&m, 2), tensor_value(&m, 3)};
    write_made(&m, ckpt__value_list(m.a, CKPT_V_LIST, items, 4));
    const ckpt__pickle_node *root = root_of(&m), *f = item(root, 0), *f8 = item(root, 1), *other = item(root, 2),
                            *i = item(root, 3);
    ck_assert(ckpt__pickle_is_global(f->u.object->callable, "torch._utils", "_rebuild_tensor_v3"));
    ck_assert(ckpt__pickle_is_global(item(f, 6), "torch", "float32"));
    ck_assert(ckpt__pickle_is_global(item(item(f, 0)->u.id, 1), "torch.storage", "UntypedStorage"));
    ck_assert_int_eq(item(item(f, 0)->u.id, 4)->u.integer, 16);
    ck_assert(ckpt__str_is(item(item(f, 0)->u.id, 3)->u.text, "cuda:1"));
    ck_assert(ckpt__pickle_is_global(item(f8, 6), "torch", "float8_e4m3fn"));
    ck_assert(ckpt__pickle_is_global(item(other, 6), "torch", "bfloat16"));
    ck_assert(ckpt__str_is(item(item(other, 0)->u.id, 2)->u.text, "0"));
    ck_assert(ckpt__pickle_is_global(i->u.object->callable, "torch._utils", "_rebuild_tensor_v2"));
    ck_assert(ckpt__pickle_is_global(item(item(i, 0)->u.id, 1), "torch", "LongStorage"));
    ck_assert(ckpt__str_is(item(item(i, 0)->u.id, 2)->u.text, "2"));
    ck_assert_int_eq(item(item(i, 0)->u.id, 4)->u.integer, 4);
    ck_assert_uint_eq(i->u.object->args->u.list.count, 6);
    drop(&m);
}
END_TEST

/* What torch has no dtype for is lost, and said. */
START_TEST(lost)
{
    made m;
    make(&m);
    add_tensor(m.x, "f4", CKPT_F4, 4, "cpu");
    write_made(&m, tensor_value(&m, 0));
    ck_assert_uint_eq(ckpt_report_count(m.lost), 1);
    ck_assert_str_eq(ckpt_report_get(m.lost, 0)->code, "lost");
    ck_assert_str_eq(ckpt_report_get(m.lost, 0)->tensor, "f4");
    ck_assert_int_eq(root_of(&m)->kind, CKPT__P_NONE);
    drop(&m);
}
END_TEST

/* Objects without a pickle are made from their parts. */
START_TEST(objects)
{
    made m;
    make(&m);
    ckpt_value *device = ckpt__value_new(m.a, CKPT_V_OBJECT), *dtype = ckpt__value_new(m.a, CKPT_V_CLASS),
               *layout = ckpt__value_new(m.a, CKPT_V_CLASS), *set = ckpt__value_new(m.a, CKPT_V_OBJECT),
               *ordered = ckpt__value_new(m.a, CKPT_V_DICT), *array = ckpt__value_new(m.a, CKPT_V_ARRAY);
    const ckpt_value *cuda[] = {ckpt__value_str(m.a, "cuda", 4), ckpt__value_int(m.a, 1)};
    const int64_t shape[] = {2};
    device->class_name = ckpt__s("torch.device");
    device->args = ckpt__value_list(m.a, CKPT_V_TUPLE, cuda, 2);
    dtype->class_name = ckpt__s("torch.bfloat16");
    layout->class_name = ckpt__s("torch.sparse_coo");
    set->class_name = ckpt__s("builtins.set");
    set->items = cuda;
    set->item_count = 2;
    ordered->class_name = ckpt__s("collections.OrderedDict");
    ordered->state = ckpt__value_dict(m.a, NULL, 0);
    array->array = &(ckpt_array){ckpt__s("<f4"), shape, 1, false};
    array->text = (ckpt_str){"\0\0\x80?\0\0\0@", 8};
    const ckpt_value *items[] = {device, dtype, layout, set, ordered, array, device};
    write_made(&m, ckpt__value_list(m.a, CKPT_V_TUPLE, items, 7));
    const ckpt__pickle_node *root = root_of(&m), *state;
    ck_assert(ckpt__pickle_is_global(item(root, 0)->u.object->callable, "torch", "device"));
    ck_assert_int_eq(item(item(root, 0), 1)->u.integer, 1);
    ck_assert(ckpt__pickle_is_global(item(root, 1), "torch", "bfloat16"));
    ck_assert(ckpt__pickle_is_global(item(root, 2)->u.object->callable, "torch.serialization", "_get_layout"));
    ck_assert(ckpt__pickle_is_global(item(root, 3)->u.object->callable, "__builtin__", "set"));
    ck_assert(ckpt__pickle_is_global(item(root, 4)->u.object->callable, "collections", "OrderedDict"));
    ck_assert_int_eq(item(root, 4)->u.object->state->kind, CKPT__P_DICT);
    state = item(root, 5)->u.object->state;
    ck_assert_int_eq(item(item(state, 1), 0)->u.integer, 2);
    ck_assert(ckpt__str_is(item(item(state, 2), 0)->u.text, "f4"));
    ck_assert_ptr_eq(item(root, 6), item(root, 0));
    drop(&m);
}
END_TEST

/* The state of a dtype has what numpy sets it by: sizes of texts, units of dates. Fields of records it does not get. */
START_TEST(arrays)
{
    static const struct {
        const char *dtype, *code;
        int64_t size, align;
        const char *unit;
        int64_t count;
    } rows[] = {{"<U2", "U2", 8, 4, NULL, 0},        {"|S3", "S3", 3, 1, NULL, 0},
                {"|V5", "V5", 5, 1, NULL, 0},        {">i4", "i4", -1, -1, NULL, 0},
                {"<M8[7D]", "M8", -1, -1, "D", 7},   {"<m8[ns]", "m8", -1, -1, "ns", 1},
                {"<m8", "m8", -1, -1, "generic", 1}, {"[('a', '<i4'), ('b', '<f4')]", "V8", 8, 1, NULL, 0}};
    enum { N = sizeof rows / sizeof rows[0] };
    const int64_t shape[] = {1};
    ckpt_array described[N];
    const ckpt_value *items[N];
    made m;
    make(&m);
    for (size_t i = 0; i < N; i++) {
        ckpt_value *v = ckpt__value_new(m.a, CKPT_V_ARRAY);
        described[i] = (ckpt_array){ckpt__s(rows[i].dtype), shape, 1, false};
        v->array = &described[i];
        v->text = (ckpt_str){"12345678", 8};
        items[i] = v;
    }
    write_made(&m, ckpt__value_list(m.a, CKPT_V_LIST, items, N));
    for (size_t i = 0; i < N; i++) {
        const ckpt__pickle_node *dtype = item(item(root_of(&m), i)->u.object->state, 2),
                                *state = dtype->u.object->state;
        ck_assert(ckpt__str_is(item(dtype, 0)->u.text, rows[i].code));
        ck_assert_int_eq(item(state, 5)->u.integer, rows[i].size);
        ck_assert_int_eq(item(state, 6)->u.integer, rows[i].align);
        ck_assert_int_eq(item(state, 0)->u.integer, rows[i].unit ? 4 : 3);
        ck_assert_uint_eq(state->u.list.count, rows[i].unit ? 9 : 8);
        if (rows[i].unit) {
            const ckpt__pickle_node *unit = item(item(state, 8), 1);
            ck_assert(ckpt__str_is(item(item(unit, 0), 0)->u.text, rows[i].unit)); /* bytes, by _codecs.encode */
            ck_assert_int_eq(item(unit, 1)->u.integer, rows[i].count);
        }
    }
    ck_assert_uint_eq(ckpt_report_count(m.lost), 1);
    ck_assert_ptr_nonnull(strstr(ckpt_report_get(m.lost, 0)->message, "without its fields: [('a'"));
    drop(&m);
}
END_TEST

/* The keys of a kept structure follow the records; a tensor that has none becomes None. */
START_TEST(renumbered)
{
    static const char kept[] =
        "\x80\x02(ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
        "2X\x03\x00\x00\x00"
        "cpuK\x02tQ"
        "K\x00K\x02\x85K\x01\x85\x89"
        "ccollections\nOrderedDict\n)RtRctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        "ctorch\nFloatStorage\nX\x01\x00\x00\x00"
        "1X\x03\x00\x00\x00"
        "cpuK\x02tQK\x00K\x02\x85K\x01\x85\x89"
        "ccollections\nOrderedDict\n)RtRt.";
    const size_t record_of[] = {1, 0, 8};
    ckpt__arena *a = ckpt__arena_new(0);
    ckpt__buf out = {0};
    ckpt_str text = {kept, sizeof kept - 1};
    ckpt_status s = ckpt__torch_kept_renumber(text, record_of, 3, &out, &err);
    ck_assert_msg(s == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt__pickle_read(out.data, out.size, "p", a, &pickle, &err), CKPT_OK);
    ck_assert(ckpt__str_is(item(item(item(pickle.root, 0), 0)->u.id, 2)->u.text, "7"));
    ck_assert_int_eq(item(pickle.root, 1)->kind, CKPT__P_NONE);
    ckpt__pickle_free(&pickle);
    ckpt__buf_free(&out);
    for (size_t n = 0; n + 1 < sizeof kept - 1; n++) { /* cut off anywhere: refused */
        text.size = n;
        ck_assert_int_lt(ckpt__torch_kept_renumber(text, record_of, 3, &out, &err), 0);
        ckpt__buf_free(&out);
    }
    ckpt__arena_free(a);
}
END_TEST

int main(void)
{
    const char *srcdir = getenv("srcdir");
    if (!realpath(srcdir ? srcdir : ".", top))
        return EXIT_FAILURE;
    Suite *suite = suite_create("torch_write");
    TCase *tc = tcase_create("torch_write");
    tcase_add_checked_fixture(tc, make_scratch, remove_scratch);
    tcase_add_loop_test(tc, as_torch_wrote, 0, sizeof files / sizeof *files);
    tcase_add_test(tc, twice_the_same);
    tcase_add_test(tc, by_way_of_native);
    tcase_add_test(tc, devices);
    tcase_add_test(tc, constructed);
    tcase_add_test(tc, zip64);
    tcase_add_test(tc, memory_of_a_tensor);
    tcase_add_test(tc, storage_classes);
    tcase_add_test(tc, lost);
    tcase_add_test(tc, objects);
    tcase_add_test(tc, arrays);
    tcase_add_test(tc, renumbered);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
