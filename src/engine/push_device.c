/* engine/push_device.c - from host memory to the devices, through a ring of pinned slots that the threads share. */
#include <stdlib.h>
#include "engine/push_priv.h"

ckpt_status ckpt__push_devices_open(ckpt__push_devices *d, const ckpt__index *to, ckpt__lanes *lanes, unsigned threads,
                                    size_t units, ckpt_error *err)
{
    memset(d, 0, sizeof *d);
    d->wanted = 2 * (size_t)threads < CKPT__RING ? 2 * (size_t)threads : CKPT__RING;
    d->wanted = units < d->wanted && d->wanted > 2 ? (units > 2 ? units : 2) : d->wanted;
    if (pthread_mutex_init(&d->lock, NULL) != 0)
        return ckpt__fail_memory(err, "device queues", 0);
    if (pthread_cond_init(&d->given, NULL) != 0) {
        pthread_mutex_destroy(&d->lock);
        return ckpt__fail_memory(err, "device queues", 0);
    }
    ckpt_status status = CKPT_OK;
    if (!(d->by_number = calloc(to->device_count + 1, sizeof(ckpt__lane *))))
        status = ckpt__fail_memory(err, "device queues", to->device_count);
    for (size_t i = 1; status == CKPT_OK && i < to->device_count; i++) {
        if (to->devices[i].type == CKPT_DEVICE_CPU)
            continue;
        status = lanes ? ckpt__lanes_get(lanes, NULL, to->devices[i], &d->by_number[i], err) : CKPT_OK;
        if (status == CKPT_OK && !d->by_number[i])
            status = ckpt__fail(err, CKPT_E_ARGUMENT, "device queues", "there is none for device number %zu", i);
        d->lanes = lanes;
    }
    if (status < 0)
        ckpt__push_devices_close(d);
    return status;
}

void ckpt__push_devices_close(ckpt__push_devices *d)
{
    pthread_cond_destroy(&d->given);
    pthread_mutex_destroy(&d->lock);
    free(d->by_number);
}

/* ---- slots */

/* With the lock held, which is let go meanwhile. */
static void make_ring(ckpt__push_devices *d)
{
    ckpt_error err = CKPT_ERROR_INIT;
    size_t made = 0;
    d->making = true;
    pthread_mutex_unlock(&d->lock);
    ckpt_status status = ckpt__lanes_ring(d->lanes, d->wanted, &made, &err);
    pthread_mutex_lock(&d->lock);
    d->making = false;
    d->made = made;
    d->status = status;
    d->error = err;
    pthread_cond_broadcast(&d->given);
}

/* With the lock held: one that nobody holds. It is the one that was given back longest ago, so that its copies are done. */
static size_t find_free(const ckpt__push_devices *d)
{
    size_t found = CKPT__RING;
    for (size_t i = 0; i < d->made; i++)
        if (!d->held[i] && (found == CKPT__RING || d->turn[i] < d->turn[found]))
            found = i;
    return found;
}

ckpt_status ckpt__push_way_take(ckpt__push_way *w, ckpt_error *err)
{
    ckpt__push_devices *d = w->devices;
    ckpt_status status = CKPT_OK;
    size_t number = CKPT__RING;
    pthread_mutex_lock(&d->lock);
    while (status == CKPT_OK && number == CKPT__RING) {
        if (d->status < 0) {
            status = d->status;
            if (err)
                *err = d->error;
        } else if (!d->made && !d->making)
            make_ring(d);
        else if ((number = find_free(d)) < CKPT__RING)
            d->held[number] = true;
        else
            pthread_cond_wait(&d->given, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    if (status < 0)
        return status;
    w->slot = &d->lanes->ring[number];
    w->used = 0;
    return ckpt__lanes_wait(d->lanes, w->slot, err);
}

static ckpt_status mark(ckpt__push_way *w, ckpt_error *err)
{
    ckpt_status status = w->lane ? ckpt__lanes_mark(w->devices->lanes, w->slot, w->lane, err) : CKPT_OK;
    w->lane = NULL;
    return status;
}

ckpt_status ckpt__push_way_give(ckpt__push_way *w, ckpt_error *err)
{
    ckpt__push_devices *d = w->devices;
    if (!w->slot)
        return CKPT_OK;
    ckpt_status status = mark(w, err);
    size_t number = (size_t)(w->slot - d->lanes->ring);
    pthread_mutex_lock(&d->lock);
    d->held[number] = false;
    d->turn[number] = ++d->turns;
    pthread_cond_signal(&d->given);
    pthread_mutex_unlock(&d->lock);
    w->slot = NULL;
    w->used = 0;
    return status;
}

/* ---- sending */

/* A box of bytes: how long a row is, and what is left of its dimensions. */
static uint32_t row_of(const ckpt__copy_box *box, uint32_t size, uint64_t *width)
{
    uint32_t n = box->n;
    *width = size;
    if (n && box->from_stride[n - 1] == size && box->to_stride[n - 1] == size)
        *width *= box->size[--n];
    return n;
}

bool ckpt__push_goes_as_is(const ckpt__op *op, const ckpt__copy_box *box)
{
    uint64_t width;
    return ckpt__op_is_plain(op) && (box->n == 0 || row_of(box, op->from_size, &width) < box->n);
}

/* Rows of one pitch. */
static ckpt_status send_rows(ckpt__lane *lane, const ckpt__copy_box *box, uint32_t n, uint64_t width,
                             const unsigned char *from, unsigned char *to, ckpt_error *err)
{
    uint64_t rows = n ? box->size[n - 1] : 1, from_pitch = n ? box->from_stride[n - 1] : width,
             to_pitch = n ? box->to_stride[n - 1] : width;
    ckpt_status status = CKPT_OK;
    if (rows > 1 && lane->ops->to_device_2d && from_pitch >= width && to_pitch >= width)
        return lane->ops->to_device_2d(lane->stream, to, (size_t)to_pitch, from, (size_t)from_pitch, (size_t)width,
                                       (size_t)rows, err);
    for (uint64_t i = 0; status == CKPT_OK && i < rows; i++)
        status = lane->ops->to_device(lane->stream, to + i * to_pitch, from + i * from_pitch, (size_t)width, err);
    return status;
}

ckpt_status ckpt__push_send(ckpt__push_way *w, ckpt__lane *lane, const ckpt__copy_box *box, uint32_t size,
                            const unsigned char *from, unsigned char *to, ckpt_error *err)
{
    uint64_t width, index[CKPT__COPY_DIMS];
    uint32_t n = row_of(box, size, &width), outer = n ? n - 1 : 0;
    ckpt_status status = CKPT_OK;
    if (box->empty)
        return CKPT_OK;
    memset(index, 0, outer * sizeof *index);
    if (w->lane != lane)
        status = mark(w, err);
    w->lane = lane; /* marked also where queueing fails: some may have been queued */
    for (bool more = true; status == CKPT_OK && more;) {
        status = send_rows(lane, box, n, width, from, to, err);
        more = false;
        for (uint32_t i = outer; i-- > 0 && !more;) {
            from += box->from_stride[i];
            to += box->to_stride[i];
            more = ++index[i] < box->size[i];
            if (!more) {
                from -= index[i] * box->from_stride[i];
                to -= index[i] * box->to_stride[i];
                index[i] = 0;
            }
        }
    }
    return status;
}

/* ---- putting together */

/* What is packed: the dimensions from `first` on are all that is left, in the order of the target. */
typedef struct packing {
    ckpt__push_way *way;
    ckpt__lane *lane;
    const ckpt__op *op;
    ckpt__copy_box box;
    ckpt__convert_counts *counts;
    const char *what;
} packing;

static uint64_t bytes_from(const packing *p, uint32_t first)
{
    uint64_t bytes = p->op->to_size;
    for (uint32_t i = first; i < p->box.n; i++)
        bytes *= p->box.size[i];
    return bytes;
}

/* All of it fits into a slot: `count` of dimension `first`, and all behind it. */
static ckpt_status pack_part(packing *p, uint32_t first, uint64_t count, const unsigned char *from, unsigned char *to,
                             ckpt_error *err)
{
    ckpt__push_way *w = p->way;
    uint64_t bytes = p->op->to_size, dense[CKPT__COPY_DIMS];
    ckpt__copy_box gather, spread;
    ckpt_status status = CKPT_OK;
    for (uint32_t i = p->box.n; i-- > first;) {
        dense[i] = bytes;
        bytes *= i == first ? count : p->box.size[i];
    }
    ckpt__copy_box_init(&gather);
    ckpt__copy_box_init(&spread);
    for (uint32_t i = first; i < p->box.n; i++) {
        uint64_t size = i == first ? count : p->box.size[i];
        ckpt__copy_box_add(&gather, size, p->box.from_stride[i], dense[i]);
        ckpt__copy_box_add(&spread, size, dense[i], p->box.to_stride[i]);
    }
    if (w->slot && bytes > CKPT__SLOT - w->used)
        status = ckpt__push_way_give(w, err);
    if (status == CKPT_OK && !w->slot)
        status = ckpt__push_way_take(w, err);
    if (status < 0)
        return status;
    unsigned char *at = (unsigned char *)w->slot->data + w->used;
    status = ckpt__box_move(p->op, &gather, from, at, p->counts, p->what, err);
    w->used += (size_t)(bytes + 15) / 16 * 16;
    w->used = w->used < CKPT__SLOT ? w->used : CKPT__SLOT;
    return status == CKPT_OK ? ckpt__push_send(w, p->lane, &spread, p->op->to_size, at, to, err) : status;
}

static ckpt_status pack_from(packing *p, uint32_t first, const unsigned char *from, unsigned char *to, ckpt_error *err)
{
    uint64_t bytes = bytes_from(p, first), room = CKPT__SLOT;
    ckpt_status status = CKPT_OK;
    if (first == p->box.n || bytes <= room)
        return pack_part(p, first, first == p->box.n ? 1 : p->box.size[first], from, to, err);
    uint64_t row = bytes_from(p, first + 1), count = row < room ? room / row : 1;
    for (uint64_t i = 0; status == CKPT_OK && i < p->box.size[first]; i += count) {
        uint64_t left = p->box.size[first] - i, some = count < left ? count : left;
        const unsigned char *part = from + i * p->box.from_stride[first];
        unsigned char *place = to + i * p->box.to_stride[first];
        status = row > room ? pack_from(p, first + 1, part, place, err) : pack_part(p, first, some, part, place, err);
    }
    return status;
}

ckpt_status ckpt__push_pack(ckpt__push_way *w, ckpt__lane *lane, const ckpt__op *op, const ckpt__copy_box *box,
                            const unsigned char *from, unsigned char *to, ckpt__convert_counts *counts,
                            const char *what, ckpt_error *err)
{
    packing p = {.way = w, .lane = lane, .op = op, .counts = counts, .what = what};
    uint32_t order[CKPT__COPY_DIMS];
    ckpt_status status = CKPT_OK;
    if (box->empty)
        return CKPT_OK;
    for (uint32_t i = 0; i < box->n; i++) { /* the widest steps in the target first */
        uint32_t k = i;
        for (; k > 0 && box->to_stride[order[k - 1]] < box->to_stride[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    ckpt__copy_box_init(&p.box);
    for (uint32_t i = 0; i < box->n; i++)
        ckpt__copy_box_add(&p.box, box->size[order[i]], box->from_stride[order[i]], box->to_stride[order[i]]);
    return status == CKPT_OK ? pack_from(&p, 0, from, to, err) : status;
}
