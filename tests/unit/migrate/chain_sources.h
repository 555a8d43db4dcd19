/* migrate/chain_sources.h - a training in files: of the library's own state, and of torch. What lies between the tensors is poison. */
#ifndef CHAIN_SOURCES_H
#define CHAIN_SOURCES_H
#include "chain_training.h"
#include "../folder_files.h"

enum { POISON = 0xa5, CHAIN_ROOM = 1 << 22 };

static ckpt_error chain_err;
#define CHAIN_OK(call)                                                                                                 \
    do {                                                                                                               \
        ckpt_status status_ = (call);                                                                                  \
        ck_assert_msg(status_ >= 0, "%s: %s: %s", #call, chain_err.object, chain_err.message);                         \
    } while (0)

/* Memory with room for everything, in which things lie with poison between. */
typedef struct heap {
    unsigned char *bytes;
    size_t used;
} heap;

static inline heap new_heap(void)
{
    heap h = {malloc(CHAIN_ROOM), 0};
    ck_assert_ptr_nonnull(h.bytes);
    memset(h.bytes, POISON, CHAIN_ROOM);
    return h;
}

/* Strides for the shape with its dimensions in any order, and perhaps with gaps. Returns how many elements that spans. */
static inline size_t draw_strides(const thing *x, bool plain, int64_t *strides)
{
    unsigned order[CHAIN_DIMS];
    int64_t at = 1;
    for (unsigned d = 0; d < x->ndim; d++)
        order[d] = x->ndim - 1 - d;
    for (unsigned d = x->ndim; !plain && d-- > 1;) {
        const unsigned k = (unsigned)draw(d + 1), swap = order[d];
        order[d] = order[k];
        order[k] = swap;
    }
    for (unsigned d = 0; d < x->ndim; d++) {
        strides[order[d]] = at;
        const int64_t n = x->shape[order[d]] ? x->shape[order[d]] : 1;
        at *= n + (plain ? 0 : (int64_t)draw(2));
    }
    size_t span = 1;
    for (unsigned d = 0; d < x->ndim; d++)
        span += x->shape[d] ? (size_t)((x->shape[d] - 1) * strides[d]) : 0;
    return x->count ? span : 0;
}

/* Element `at` of a box in C order: its place by strides, and in the tensor by lo. */
static inline size_t place_of(const int64_t *size, const int64_t *strides, uint32_t ndim, size_t at)
{
    size_t place = 0;
    for (uint32_t d = ndim; d-- > 0;) {
        place += (size_t)((int64_t)(at % (size_t)size[d]) * strides[d]);
        at /= (size_t)size[d];
    }
    return place;
}

static inline void scatter(const thing *x, const int64_t *strides, unsigned char *to)
{
    const size_t size = ckpt_dtype_size(x->dtype);
    for (size_t i = 0; i < x->count; i++)
        memcpy(to + place_of(x->shape, strides, x->ndim, i) * size, x->bytes + i * size, size);
}

/* ---- by a state of this library */

static inline void bind_thing(ckpt_state *s, const training *t, const thing *x, heap *h)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    int64_t strides[CHAIN_DIMS];
    if (x->tie >= 0) {
        CHAIN_OK(ckpt_state_alias(s, x->name, t->things[x->tie].name, &chain_err));
        return;
    }
    const size_t size = ckpt_dtype_size(x->dtype), span = draw_strides(x, chance(70), strides) * size;
    h->used = (h->used + 15) / 16 * 16 + draw(2) * 16;
    ck_assert_uint_lt(h->used + span, CHAIN_ROOM);
    scatter(x, strides, h->bytes + h->used);
    d.name = x->owner < 0 ? x->name : NULL;
    d.param = x->owner < 0 ? NULL : t->things[x->owner].name;
    d.state_key = x->owner < 0 ? NULL : x->key;
    d.dtype = x->dtype;
    d.ndim = x->ndim;
    d.shape = x->shape;
    d.strides = x->count ? strides : NULL;
    d.role = x->role;
    d.data = h->bytes + h->used;
    CHAIN_OK(ckpt_state_tensor(s, &d, &chain_err));
    h->used += span;
}

static inline void bind_setting(ckpt_state *s, setting *v)
{
    CHAIN_OK(v->kind == CKPT_V_INT     ? ckpt_state_i64(s, v->name, &v->integer, &chain_err)
             : v->kind == CKPT_V_FLOAT ? ckpt_state_f64(s, v->name, &v->real, &chain_err)
             : v->kind == CKPT_V_BOOL  ? ckpt_state_bool(s, v->name, &v->boolean, &chain_err)
             : v->kind == CKPT_V_STR   ? ckpt_state_string(s, v->name, v->text, sizeof v->text, &chain_err)
                                       : ckpt_state_bytes(s, v->name, v->text, v->size, &chain_err));
}

static inline void save_native(training *t, const char *path)
{
    ckpt_state *s = ckpt_state_new();
    heap h = new_heap();
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    o.no_sync = true;
    for (size_t i = 0; i < t->count; i++)
        bind_thing(s, t, &t->things[i], &h);
    for (size_t g = 0; g < t->group_count; g++) {
        ckpt_group_desc d = CKPT_GROUP_DESC_INIT;
        const char *names[CHAIN_PARAMS];
        char number[24];
        snprintf(number, sizeof number, "%zu", g);
        for (size_t i = 0; i < t->group_sizes[g]; i++)
            names[i] = t->things[t->groups[g][i]].name;
        d.name = number;
        d.params = names;
        d.param_count = t->group_sizes[g];
        CHAIN_OK(ckpt_state_group(s, &d, &chain_err));
    }
    for (size_t i = 0; i < t->setting_count; i++)
        bind_setting(s, &t->settings[i]);
    CHAIN_OK(ckpt_save(s, path, &o, &chain_err));
    ckpt_state_free(s);
    free(h.bytes);
}

/* ---- by torch.save */

/* A zip of stored records, written as it grows. */
typedef struct zip {
    FILE *f;
    unsigned char directory[1 << 16];
    size_t used, count;
} zip;

static inline void le(FILE *f, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        ck_assert_int_ne(fputc(i < 8 ? (int)(value >> 8 * i & 255) : 0, f), EOF);
}

static inline void zip_entry(FILE *f, bool central, const char *name, uint32_t crc, size_t size, uint32_t at)
{
    fwrite(central ? "PK\1\2" : "PK\3\4", 1, 4, f);
    le(f, 0, central ? 2 : 0);
    le(f, 0, 2);
    le(f, 0x800, 2);
    le(f, 0, 2 + 4);
    le(f, crc, 4);
    le(f, size, 4);
    le(f, size, 4);
    le(f, strlen(name), 2);
    le(f, 0, 2);
    le(f, 0, central ? 2 + 2 + 2 + 4 : 0);
    le(f, at, central ? 4 : 0);
    fwrite(name, 1, strlen(name), f);
}

static inline void zip_record(zip *z, const char *name, const void *data, size_t size)
{
    const uint32_t crc = ckpt__crc32(0, data, size), at = (uint32_t)ftell(z->f);
    zip_entry(z->f, false, name, crc, size, 0);
    ck_assert_uint_eq(fwrite(data, 1, size, z->f), size);
    FILE *f = fmemopen(z->directory + z->used, sizeof z->directory - z->used, "wb");
    ck_assert_ptr_nonnull(f);
    zip_entry(f, true, name, crc, size, at);
    const long n = ftell(f);
    ck_assert_int_eq(fclose(f), 0);
    z->used += (size_t)n;
    z->count++;
}

static inline void zip_end(zip *z)
{
    const long at = ftell(z->f);
    ck_assert_uint_eq(fwrite(z->directory, 1, z->used, z->f), z->used);
    fwrite("PK\5\6", 1, 4, z->f);
    le(z->f, 0, 4);
    le(z->f, z->count, 2);
    le(z->f, z->count, 2);
    le(z->f, z->used, 4);
    le(z->f, (uint64_t)at, 4);
    le(z->f, 0, 2);
    ck_assert_int_eq(fclose(z->f), 0);
}

/* A file of torch on its way: its storages are one behind the other in the heap. */
typedef struct torch_making {
    bytes pickle;
    heap heap;
    size_t begins[CHAIN_TENSORS], ends[CHAIN_TENSORS], storages; /* bytes in the heap */
    struct {
        size_t storage, offset; /* elements */
        int64_t strides[CHAIN_DIMS];
    } places[CHAIN_TENSORS];
} torch_making;

static inline const char *storage_class(ckpt_dtype dtype)
{
    switch (dtype) {
    case CKPT_F32:
        return "FloatStorage";
    case CKPT_F64:
        return "DoubleStorage";
    case CKPT_F16:
        return "HalfStorage";
    case CKPT_BF16:
        return "BFloat16Storage";
    case CKPT_I64:
        return "LongStorage";
    case CKPT_I32:
        return "IntStorage";
    case CKPT_I16:
        return "ShortStorage";
    case CKPT_I8:
        return "CharStorage";
    case CKPT_U8:
        return "ByteStorage";
    case CKPT_BOOL:
        return "BoolStorage";
    case CKPT_C64:
        return "ComplexFloatStorage";
    case CKPT_C128:
        return "ComplexDoubleStorage";
    default:
        return NULL;
    }
}

/* In a storage of its own, or behind what lies in the last one. */
static inline void place_thing(torch_making *m, const training *t, size_t number)
{
    const thing *x = &t->things[number];
    const size_t size = ckpt_dtype_size(x->dtype);
    if (x->tie >= 0) {
        m->places[number] = m->places[x->tie];
        return;
    }
    const bool joins =
        number > 0 && t->things[number - 1].dtype == x->dtype && t->things[number - 1].tie < 0 && chance(30);
    if (!joins) {
        m->heap.used = (m->heap.used + 63) / 64 * 64;
        m->begins[m->storages++] = m->heap.used;
    }
    const size_t s = m->storages - 1, gap = chance(30) ? draw(5) : 0;
    m->places[number].storage = s;
    m->places[number].offset = (m->heap.used - m->begins[s]) / size + gap;
    m->heap.used += gap * size;
    const size_t span = draw_strides(x, chance(70), m->places[number].strides) * size;
    ck_assert_uint_lt(m->heap.used + span + 64, CHAIN_ROOM);
    scatter(x, m->places[number].strides, m->heap.bytes + m->heap.used);
    m->heap.used += span + (chance(20) ? draw(4) * size : 0);
    m->ends[s] = m->heap.used;
}

static inline void put_thing(torch_making *m, const training *t, size_t number)
{
    const thing *x = &t->things[number];
    bytes *b = &m->pickle;
    const char *class = storage_class(x->dtype);
    const size_t s = m->places[number].storage, nbytes = m->ends[s] - m->begins[s];
    char key[24];
    snprintf(key, sizeof key, "%zu", s);
    put_global(b, "torch._utils", class ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    PUT(b, "(");
    put_storage(b, class ? class : "UntypedStorage", key, "cpu",
                (int64_t)(class ? nbytes / ckpt_dtype_size(x->dtype) : nbytes));
    put_int(b, (int64_t)m->places[number].offset);
    put_ints(b, x->shape, (int)x->ndim);
    put_ints(b, m->places[number].strides, (int)x->ndim);
    PUT(b, "\x89");
    put_ordered_dict(b);
    if (!class)
        put_global(b, "torch", ckpt_dtype_name(x->dtype));
    PUT(b, "tR");
}

static inline void put_setting(bytes *b, const setting *v)
{
    if (v->kind == CKPT_V_INT)
        put_int(b, v->integer);
    else if (v->kind == CKPT_V_FLOAT)
        put_real(b, v->real);
    else if (v->kind == CKPT_V_BOOL)
        v->boolean ? PUT(b, "\x88") : PUT(b, "\x89");
    else if (v->kind == CKPT_V_STR)
        put_str(b, v->text);
    else { /* of protocol 3: bytes */
        PUT(b, "B");
        put_number(b, v->size, 4);
        put(b, v->text, v->size);
    }
}

/* The values whose names begin so, under what is left of them. One level of dicts. */
static inline void put_settings(bytes *b, const training *t, const char *head)
{
    const size_t n = strlen(head);
    for (size_t i = 0; i < t->setting_count; i++) {
        const setting *v = &t->settings[i];
        if (strncmp(v->name, head, n) != 0 || strstr(v->name + n, "betas.") || (n == 0 && strchr(v->name, '.')))
            continue;
        put_str(b, v->name + n);
        put_setting(b, v);
    }
}

static inline void put_betas(bytes *b, const training *t, size_t g)
{
    char head[60];
    size_t n = (size_t)snprintf(head, sizeof head, "optimizer.groups.%zu.betas.", g);
    bool any = false;
    for (size_t i = 0; i < t->setting_count; i++)
        if (strncmp(t->settings[i].name, head, n) == 0) {
            if (!any) {
                put_str(b, "betas");
                PUT(b, "(");
            }
            any = true;
            put_real(b, t->settings[i].real);
        }
    if (any)
        PUT(b, "t");
}

static inline void put_optimizer(torch_making *m, const training *t, bool named)
{
    bytes *b = &m->pickle;
    int64_t id = 0;
    put_str(b, "optimizer");
    PUT(b, "}(");
    put_str(b, "state");
    PUT(b, "}(");
    for (size_t g = 0; g < t->group_count; g++)
        for (size_t i = 0; i < t->group_sizes[g]; i++, id++) {
            bool any = false;
            for (size_t k = 0; k < t->count; k++) {
                if (t->things[k].owner != t->groups[g][i])
                    continue;
                if (!any) {
                    put_int(b, id);
                    PUT(b, "}(");
                }
                any = true;
                put_str(b, t->things[k].key);
                put_thing(m, t, k);
            }
            if (any)
                PUT(b, "u");
        }
    PUT(b, "u");
    put_str(b, "param_groups");
    PUT(b, "](");
    id = 0;
    for (size_t g = 0; g < t->group_count; g++) {
        char head[60];
        snprintf(head, sizeof head, "optimizer.groups.%zu.", g);
        PUT(b, "}(");
        put_settings(b, t, head);
        put_betas(b, t, g);
        put_str(b, "params");
        PUT(b, "](");
        for (size_t i = 0; i < t->group_sizes[g]; i++)
            put_int(b, id++);
        PUT(b, "e");
        if (named) {
            put_str(b, "param_names");
            PUT(b, "](");
            for (size_t i = 0; i < t->group_sizes[g]; i++)
                put_str(b, t->things[t->groups[g][i]].name);
            PUT(b, "e");
        }
        PUT(b, "u");
    }
    PUT(b, "eu");
}

static inline bool has_settings(const training *t, const char *head)
{
    for (size_t i = 0; i < t->setting_count; i++)
        if (strncmp(t->settings[i].name, head, strlen(head)) == 0)
            return true;
    return false;
}

static inline void put_tree(torch_making *m, const training *t, bool named)
{
    static const char *const dicts[] = {"scheduler.", "scaler."};
    bytes *b = &m->pickle;
    PUT(b, "\x80\3}(");
    put_str(b, "model");
    put_ordered_dict(b);
    PUT(b, "(");
    for (size_t i = 0; i < t->count; i++)
        if (t->things[i].owner < 0) {
            put_str(b, t->things[i].name);
            put_thing(m, t, i);
        }
    PUT(b, "u");
    if (t->group_count)
        put_optimizer(m, t, named);
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        char name[40];
        if (!has_settings(t, dicts[i]))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strlen(dicts[i]) - 1, dicts[i]);
        put_str(b, name);
        PUT(b, "}(");
        put_settings(b, t, dicts[i]);
        PUT(b, "u");
    }
    put_settings(b, t, "");
    PUT(b, "u.");
}

static inline void save_torch(const training *t, const char *path, bool named)
{
    static torch_making m;
    static zip z;
    memset(&m, 0, sizeof m);
    z = (zip){.f = fopen(path, "wb")};
    ck_assert_ptr_nonnull(z.f);
    m.heap = new_heap();
    for (size_t i = 0; i < t->count; i++)
        place_thing(&m, t, i);
    put_tree(&m, t, named);
    zip_record(&z, "archive/data.pkl", m.pickle.data, m.pickle.size);
    for (size_t s = 0; s < m.storages; s++) {
        char name[60];
        snprintf(name, sizeof name, "archive/data/%zu", s);
        zip_record(&z, name, m.heap.bytes + m.begins[s], m.ends[s] - m.begins[s]);
    }
    zip_record(&z, "archive/version", "3\n", 2);
    zip_end(&z);
    free(m.heap.bytes);
}
#endif
