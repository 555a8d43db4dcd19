/* doctor/memory.c - who holds what before and after, whether that fits, and whether all of it is finite. */
#include "doctor/facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "model/nested.h"

static const ckpt_str none = {NULL, 0};

const char *ckpt__doctor_bytes(uint64_t n, char *buf, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)n;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1024;
    snprintf(buf, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buf;
}

/* ---- places */

static ckpt_role role_of(const ckpt__examination *p, size_t tensor)
{
    size_t e = p->entry_of[tensor];
    ckpt_role role = e != SIZE_MAX ? p->canon->entries[e].role : CKPT_ROLE_NONE;
    return role != CKPT_ROLE_NONE && role != CKPT_ROLE_OTHER ? role : p->index->tensors[tensor].info.role;
}

/* Where it is once the program goes on: load_state_dict takes moments to their parameter, and step where the flags say.
 */
static ckpt_device final_place(const ckpt__examination *p, size_t tensor, const ckpt_device *settled)
{
    ckpt_device d = settled[tensor].type != CKPT_DEVICE_NONE ? settled[tensor] : p->after[tensor];
    ckpt_role role = role_of(p, tensor);
    if (!p->loader->python || settled[tensor].type != CKPT_DEVICE_NONE)
        return d;
    if (role == CKPT_ROLE_RNG)
        return d;
    if ((role == CKPT_ROLE_PARAM || role == CKPT_ROLE_BUFFER) && !ckpt__is_gpu(d)) {
        ckpt_str tag = p->index->tensors[tensor].info.device;
        bool gpu = (tag.data && ckpt__is_gpu(ckpt__tag_parse(tag))) || (!tag.data && p->gpu.type != CKPT_DEVICE_NONE);
        if (gpu && p->cuda_devices != 0)
            return p->gpu.type != CKPT_DEVICE_NONE && !tag.data ? p->gpu : ckpt__tag_parse(tag);
    }
    return d;
}

static void settle(const ckpt__examination *p, ckpt_device *settled)
{
    for (size_t i = 0; p->loader->python && i < p->slot_count; i++) {
        const ckpt__doctor_slot *slot = &p->slots[i];
        const ckpt__doctor_group *g = &p->groups[slot->group];
        ckpt_device home = ckpt__doctor_home(p, slot);
        bool moves = (g->fused == 1 || g->capturable == 1) && p->version >= 201;
        if (slot->param != SIZE_MAX && home.type != CKPT_DEVICE_NONE)
            settled[slot->param] = home;
        for (size_t k = slot->first; k < slot->first + slot->count; k++) {
            size_t t = p->items[k].tensor;
            if (t != SIZE_MAX && (moves || !ckpt__str_is(p->items[k].key, "step")))
                settled[t] = home;
        }
    }
}

static int larger(const void *a, const void *b)
{
    const ckpt_doctor_place *x = a, *y = b;
    return x->nbytes < y->nbytes ? 1 : x->nbytes > y->nbytes ? -1 : 0;
}

typedef struct place_rows {
    ckpt_doctor_place *rows;
    size_t count, capacity;
} place_rows;

static bool add_place(place_rows *r, const char *from, const char *to, ckpt_role role, uint64_t nbytes)
{
    for (size_t i = 0; i < r->count; i++) {
        ckpt_doctor_place *q = &r->rows[i];
        if (q->role == role && strcmp(q->from, from) == 0 && strcmp(q->to, to) == 0) {
            q->tensors++;
            q->nbytes += nbytes;
            return true;
        }
    }
    if (!ckpt__grow(&r->rows, &r->capacity, r->count + 1, sizeof *r->rows))
        return false;
    ckpt_doctor_place *q = &r->rows[r->count++];
    memset(q, 0, sizeof *q);
    snprintf(q->from, sizeof q->from, "%s", from);
    snprintf(q->to, sizeof q->to, "%s", to);
    q->role = role;
    q->tensors = 1;
    q->nbytes = nbytes;
    return true;
}

enum { PLACES = 1024 }; /* kinds that are told apart; a file with more tags than that is nobody's */

/* The rows and a list of them, which are the result's from here on. */
static bool hand_over(ckpt_doctor_result *result, const place_rows *r)
{
    const ckpt_doctor_place **list = calloc(r->count + 1, sizeof *list);
    if (r->count)
        qsort(r->rows, r->count, sizeof *r->rows, larger);
    for (size_t i = 0; list && i < r->count; i++)
        list[i] = &r->rows[i];
    result->owned = r->rows;
    result->places = list;
    result->place_count = list ? r->count : 0;
    return list != NULL;
}

ckpt_status ckpt__doctor_places(ckpt__examination *p)
{
    size_t n = p->index->tensor_count;
    place_rows found = {NULL, 0, 0};
    ckpt_device *settled = ckpt__arena_array(p->arena, n + 1, sizeof *settled);
    bool ok = settled != NULL;
    if (ok)
        settle(p, settled);
    for (size_t i = 0; ok && i < n; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        char from[CKPT_DEVICE_NAME_MAX] = "", to[CKPT_DEVICE_NAME_MAX] = "";
        ckpt_device d = final_place(p, i, settled);
        if (t->storage < 0 && t->nbytes == 0)
            continue;
        if (t->device.data)
            ckpt__escape(from, sizeof from, t->device.data, t->device.size);
        if (d.type == CKPT_DEVICE_OTHER)
            memcpy(to, from, sizeof to);
        else if (d.type != CKPT_DEVICE_NONE)
            ckpt_device_name(d, to);
        if (found.count >= PLACES)
            break;
        ok = add_place(&found, from, to, role_of(p, i), t->nbytes);
    }
    ok = hand_over(p->result, &found) && ok;
    return ok ? CKPT_OK : ckpt__fail_memory(p->err, "the places", n);
}

/* ---- memory: what one device must hold, by the way the loader goes about it
 *   torch, mapped to the GPU:  2 x weights while the dict lives (the model's and the dict's) + 1 x moments, which are
 * aliased where dtype and device match, + all else that the dict holds there torch, mapped to the cpu, and what
 * frameworks do with one process: 1 x each on the GPU ckpt: 1 x each, streamed Training adds gradients: 1 x weights, at
 * the first backward. */
typedef struct load {
    ckpt_device device;
    uint64_t weights, moments, other, dict; /* bytes; each storage counts once. dict: weights that come back on the
                                             * device beside the model's */
} load;

static load *load_of(load *all, size_t *count, size_t limit, ckpt_device d)
{
    for (size_t i = 0; i < *count; i++)
        if (ckpt_device_equal(all[i].device, d))
            return &all[i];
    if (*count == limit)
        return NULL;
    memset(&all[*count], 0, sizeof *all);
    all[*count].device = d;
    return &all[(*count)++];
}

enum { DEVICES = 128 };

static void weigh_one(ckpt__examination *p, const load *l)
{
    char w[32], m[32], o[32], total[32], have[32], name[CKPT_DEVICE_NAME_MAX], sum[360];
    uint64_t peak = l->weights + l->dict + l->moments + l->other, training = 2 * l->weights + l->moments;
    bool twice = l->dict > 0;
    ckpt__doctor_bytes(p->options->device_memory, have, sizeof have);
    ckpt__doctor_bytes(l->weights, w, sizeof w);
    ckpt__doctor_bytes(l->moments, m, sizeof m);
    ckpt__doctor_bytes(l->other, o, sizeof o);
    if (peak > p->options->device_memory || training <= p->options->device_memory) {
        snprintf(sum, sizeof sum, "%s x weights %s + 1 x optimizer state %s%s%s = %s, of %s", twice ? "2" : "1", w, m,
                 l->other ? " + the rest of the dict " : "", l->other ? o : "",
                 ckpt__doctor_bytes(peak, total, sizeof total), have);
        ckpt__doctor_note(p, peak > p->options->device_memory ? CKPT__MEMORY_LOAD : CKPT__MEMORY_FITS, NULL, none,
                          ckpt_device_name(l->device, name), sum,
                          twice ? "the dict's weights and the model's at once" : "one copy of each");
        return;
    }
    snprintf(sum, sizeof sum, "1 x weights %s + 1 x gradients %s + 1 x optimizer state %s = %s, of %s", w, w, m,
             ckpt__doctor_bytes(training, total, sizeof total), have);
    ckpt__doctor_note(p, CKPT__MEMORY_TRAIN, NULL, none, ckpt_device_name(l->device, name), sum, NULL);
}

void ckpt__doctor_memory(ckpt__examination *p)
{
    load all[DEVICES];
    size_t count = 0, n = p->index->tensor_count;
    ckpt_device *settled = ckpt__arena_array(p->arena, n + 1, sizeof *settled);
    bool *seen =
        ckpt__arena_array(p->arena, n + 1, sizeof *seen); /* storages: numbered densely, at most one a tensor */
    if (p->options->device_memory == 0 || !settled || !seen)
        return;
    settle(p, settled);
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor_info *t = &p->index->tensors[i].info;
        ckpt_role role = role_of(p, i);
        ckpt_device d = final_place(p, i, settled), loaded = p->after[i];
        uint64_t bytes = t->storage >= 0 ? t->storage_nbytes : t->nbytes;
        if (t->storage >= 0 && (uint64_t)t->storage < n) {
            if (seen[t->storage])
                continue;
            seen[t->storage] = true;
        }
        load *l = ckpt__is_gpu(d) ? load_of(all, &count, DEVICES, d) : NULL;
        bool weight = role == CKPT_ROLE_PARAM || role == CKPT_ROLE_BUFFER;
        if (l && weight)
            l->weights += bytes;
        else if (l && ckpt_role_is_optimizer(role))
            l->moments += bytes;
        else if (l)
            l->other += bytes;
        l = weight && p->loader->python && ckpt__is_gpu(loaded) ? load_of(all, &count, DEVICES, loaded) : NULL;
        if (l)
            l->dict += bytes;
    }
    for (size_t i = 0; i < count; i++)
        weigh_one(p, &all[i]);
}

/* ---- values */

/* One tensor whose values are looked at, 512 at a time. */
typedef struct finite_check {
    ckpt_dtype dtype;
    uint64_t bad;       /* values that are NaN or infinite */
    double values[512]; /* scratch: the values as doubles */
} finite_check;

static ckpt_status count_bad(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    finite_check *c = ctx;
    size_t size = ckpt_dtype_size(c->dtype), count = size ? n / size : 0;
    (void)offset;
    (void)err;
    for (size_t i = 0; i < count;) {
        size_t some = count - i < 512 ? count - i : 512;
        if (!ckpt__convert(c->dtype, (const char *)data + i * size, CKPT_F64, c->values, some, NULL))
            return CKPT_OK;
        for (size_t k = 0; k < some; k++)
            c->bad += isfinite(c->values[k]) ? 0 : 1;
        i += some;
    }
    return CKPT_OK;
}

static bool is_plain(const ckpt_tensor_info *t)
{
    return ckpt_dtype_size(t->dtype) > 0 && t->storage >= 0 && !t->extra->layout.data && !t->extra->quantizer.data;
}

/* Damage is a finding here, and the rest is read. */
static ckpt_status damaged(ckpt__examination *p, ckpt_status status, ckpt_str tensor, const ckpt_error *why)
{
    if (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT) {
        ckpt__doctor_note(p, CKPT__WRONG_BYTES, NULL, tensor, why->message, NULL, NULL);
        return CKPT_OK;
    }
    if (status < 0 && p->err)
        *p->err = *why;
    return status;
}

/* Of a tensor in floating-point numbers whether all are finite; and of one with a checksum of its own whether that is right. */
static ckpt_status read_one(ckpt__examination *p, size_t tensor, bool *seen)
{
    const ckpt__tensor *whole = &p->index->tensors[tensor];
    const ckpt_tensor_info *t = &whole->info;
    finite_check c = {.dtype = t->dtype};
    ckpt_error why = CKPT_ERROR_INIT;
    char n[32];
    bool numbers = ckpt_dtype_is_float(t->dtype);
    const ckpt__extent *e = whole->whole ? &p->index->storages[whole->storage].extent : NULL;
    bool all = e && whole->info.offset == 0 && t->nbytes == e->size &&
               (!t->strides || ckpt__is_c_order(t->shape, t->strides, t->ndim));
    if (!is_plain(t) || (!numbers && !whole->has_crc) || (!numbers && all && seen[whole->storage]))
        return CKPT_OK;
    ckpt_status status =
        ckpt__read_tensor(p->reader->source, p->index, tensor, true, numbers ? count_bad : NULL, &c, &why);
    snprintf(n, sizeof n, "%llu", (unsigned long long)c.bad);
    if (c.bad)
        ckpt__doctor_note(p, CKPT__NON_FINITE, NULL, t->name, n, ckpt_role_name(role_of(p, tensor)), NULL);
    p->result->read_tensors++;
    if (all && !seen[whole->storage]) {
        p->result->read_bytes += e->size;
        p->result->checked_bytes +=
            ckpt__has_any_crc(ckpt__extent_known(p->index, whole->storage)) || whole->has_crc ? e->size : 0;
        seen[whole->storage] = true;
    }
    return damaged(p, status, t->name, &why);
}

/* What no tensor covered: integers, views, storages that nothing looks at. */
static ckpt_status read_rest(ckpt__examination *p, const bool *seen)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < p->index->storage_count; i++) {
        const ckpt__storage *s = &p->index->storages[i];
        ckpt_error why = CKPT_ERROR_INIT;
        if (seen[i] || s->extent.missing)
            continue;
        status = damaged(p, ckpt__read_storage(p->reader->source, p->index, i, true, NULL, NULL, &why), s->name, &why);
        p->result->read_bytes += s->extent.size;
        p->result->checked_bytes += ckpt__has_any_crc(ckpt__extent_known(p->index, i)) ? s->extent.size : 0;
    }
    return status;
}

ckpt_status ckpt__doctor_finite(ckpt__examination *p)
{
    ckpt_status status = CKPT_OK;
    const ckpt_progress *progress = &p->options->progress;
    uint64_t done = 0, total = 0;
    bool *seen = ckpt__arena_array(p->arena, p->index->storage_count + 1, sizeof *seen);
    if (!seen)
        return ckpt__fail_memory(p->err, "the storages", p->index->storage_count);
    memset(seen, 0, (p->index->storage_count + 1) * sizeof *seen);
    for (size_t i = 0; i < p->index->storage_count; i++)
        p->result->payload_bytes += p->index->storages[i].extent.size;
    if (!p->options->read_values)
        return CKPT_OK;
    for (size_t i = 0; i < p->index->tensor_count; i++)
        if (!ckpt__add(total, p->index->tensors[i].info.nbytes, &total))
            total = UINT64_MAX;
    for (size_t i = 0; status == CKPT_OK && i < p->index->tensor_count; i++) {
        uint64_t n = p->index->tensors[i].info.nbytes;
        if (progress->fn && progress->fn(progress->ctx, done, total) != 0)
            return ckpt__fail(p->err, CKPT_E_CANCELLED, NULL, "cancelled while the values were read");
        done = done > total - (n < total ? n : total) ? total : done + n;
        status = read_one(p, i, seen);
    }
    return status == CKPT_OK ? read_rest(p, seen) : status;
}
