/* engine/fetch.c - boxes of a device's memory into host memory. */
#include "engine/fetch.h"

/* A part of the box that goes through one buffer. */
typedef struct group {
    ckpt__slot *slot;   /* NULL: none is on its way */
    ckpt__copy_box box; /* from the buffer to its place */
    char *to;
} group;

typedef struct fetch {
    ckpt__lanes *lanes; /* borrowed, as is the lane */
    ckpt__lane *lane;
    ckpt__copy_box box; /* outermost is what lies furthest apart on the device: neighbours there are neighbours here */
    ckpt__op op;
    uint32_t item;
    const char *from;
    char *to;
    uint32_t split; /* dimensions from this one on are in one group whole; of the one before it `step` indexes are */
    uint64_t step;  /* 0: there is none before it */
    group before;   /* that is on its way */
    uint64_t at[CKPT__COPY_DIMS]; /* index of the group in the dimensions before `split` */
} fetch;

/* The dimensions by descending stride on the device. */
static void sort(const ckpt__copy_box *box, ckpt__copy_box *out)
{
    bool taken[CKPT__COPY_DIMS] = {false};
    ckpt__copy_box_init(out);
    for (uint32_t k = 0; k < box->n; k++) {
        uint32_t most = UINT32_MAX;
        for (uint32_t i = 0; i < box->n; i++)
            if (!taken[i] && (most == UINT32_MAX || box->from_stride[i] > box->from_stride[most]))
                most = i;
        taken[most] = true;
        ckpt__copy_box_add(out, box->size[most], box->from_stride[most], box->to_stride[most]);
    }
}

static uint64_t span_of(const ckpt__copy_box *box, uint32_t item)
{
    uint64_t span = item;
    for (uint32_t i = 0; i < box->n; i++)
        span += (box->size[i] - 1) * box->from_stride[i];
    return span;
}

static uint64_t bytes_of(const ckpt__copy_box *box, uint32_t item)
{
    uint64_t bytes = item;
    for (uint32_t i = 0; i < box->n; i++)
        bytes *= box->size[i];
    return bytes;
}

/* Is at most half of what the box spans none of its elements? */
static bool is_close(const ckpt__copy_box *box, uint32_t item)
{
    return span_of(box, item) / 2 <= bytes_of(box, item);
}

static ckpt_status copy_rows(const fetch *f, char *to, uint64_t to_pitch, const char *from, uint64_t from_pitch,
                             uint64_t width, uint64_t rows, ckpt_error *err)
{
    const ckpt__device_ops *ops = f->lane->ops;
    ckpt_status status = CKPT_OK;
    if (rows > 1 && ops->to_host_2d)
        return ops->to_host_2d(f->lane->stream, to, (size_t)to_pitch, from, (size_t)from_pitch, (size_t)width,
                               (size_t)rows, err);
    for (uint64_t i = 0; status == CKPT_OK && i < rows; i++)
        status = ops->to_host(f->lane->stream, to + i * to_pitch, from + i * from_pitch, (size_t)width, err);
    return status;
}

/* Each row of the box into `to`, whose strides are the box's, and dense in the innermost dimension where the device's is. */
static ckpt_status copy_box(const fetch *f, const ckpt__copy_box *box, const char *from, char *to, ckpt_error *err)
{
    uint64_t index[CKPT__COPY_DIMS] = {0}, width = f->item;
    uint32_t n = box->n;
    ckpt_status status = CKPT_OK;
    if (n && box->from_stride[n - 1] == f->item && box->to_stride[n - 1] == f->item)
        width *= box->size[--n];
    for (bool more = true; status == CKPT_OK && more;) {
        uint64_t at = 0, place = 0;
        for (uint32_t i = 0; i + 1 < n; i++) {
            at += index[i] * box->from_stride[i];
            place += index[i] * box->to_stride[i];
        }
        status = copy_rows(f, to + place, n ? box->to_stride[n - 1] : width, from + at,
                           n ? box->from_stride[n - 1] : width, width, n ? box->size[n - 1] : 1, err);
        more = false;
        for (uint32_t i = n ? n - 1 : 0; i-- > 0 && !more;) {
            more = ++index[i] < box->size[i];
            index[i] = more ? index[i] : 0;
        }
    }
    return status;
}

/* Waits for the group that is on its way, and puts its elements in their places. */
static ckpt_status take_before(fetch *f, ckpt_error *err)
{
    group *g = &f->before;
    if (!g->slot)
        return CKPT_OK;
    ckpt_status status = ckpt__lanes_wait(f->lanes, g->slot, err);
    if (status == CKPT_OK)
        status = ckpt__box_move(&f->op, &g->box, g->slot->data, g->to, NULL, "", err);
    g->slot = NULL;
    return status;
}

/* Queues a group, and takes the one before it. */
static ckpt_status put_group(fetch *f, const ckpt__copy_box *box, uint64_t from_at, uint64_t to_at, ckpt_error *err)
{
    bool close = is_close(box, f->item);
    uint64_t pitch = bytes_of(box, f->item);
    ckpt__copy_box in; /* from the device into the buffer */
    group next = {.to = f->to + to_at};
    ckpt__copy_box_init(&in);
    ckpt__copy_box_init(&next.box);
    for (uint32_t i = 0; i < box->n; i++) { /* in the buffer the elements lie as they do there, or side by side */
        pitch /= box->size[i];
        uint64_t stride = close ? box->from_stride[i] : pitch;
        ckpt__copy_box_add(&in, box->size[i], box->from_stride[i], stride);
        ckpt__copy_box_add(&next.box, box->size[i], stride, box->to_stride[i]);
    }
    ckpt_status status = ckpt__lanes_slot(f->lanes, &next.slot, err);
    if (status == CKPT_OK)
        status = close ? copy_rows(f, next.slot->data, 0, f->from + from_at, 0, span_of(box, f->item), 1, err)
                       : copy_box(f, &in, f->from + from_at, next.slot->data, err);
    if (status == CKPT_OK)
        status = ckpt__lanes_mark(f->lanes, next.slot, f->lane, err);
    if (status == CKPT_OK)
        status = take_before(f, err);
    if (status == CKPT_OK)
        f->before = next;
    return status;
}

/* As many of the inner dimensions as span a buffer at most. */
static void choose_groups(fetch *f, uint64_t room)
{
    uint64_t span = f->item;
    f->split = f->box.n;
    f->step = 0;
    while (f->split > 0 && (f->box.size[f->split - 1] - 1) * f->box.from_stride[f->split - 1] <= room - span) {
        f->split--;
        span += (f->box.size[f->split] - 1) * f->box.from_stride[f->split];
    }
    if (f->split > 0)
        f->step = 1 + (room - span) / f->box.from_stride[f->split - 1];
}

static ckpt_status fetch_groups(fetch *f, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    choose_groups(f, CKPT__SLOT);
    for (bool more = true; status == CKPT_OK && more;) {
        ckpt__copy_box part;
        uint64_t from_at = 0, to_at = 0;
        uint32_t last = f->split ? f->split - 1 : 0;
        ckpt__copy_box_init(&part);
        for (uint32_t i = 0; i < f->split; i++) {
            from_at += f->at[i] * f->box.from_stride[i];
            to_at += f->at[i] * f->box.to_stride[i];
        }
        uint64_t left = f->split ? f->box.size[last] - f->at[last] : 0, here = f->step < left ? f->step : left;
        if (f->split)
            ckpt__copy_box_add(&part, here, f->box.from_stride[last], f->box.to_stride[last]);
        for (uint32_t i = f->split; i < f->box.n; i++)
            ckpt__copy_box_add(&part, f->box.size[i], f->box.from_stride[i], f->box.to_stride[i]);
        status = put_group(f, &part, from_at, to_at, err);
        more = false;
        for (uint32_t i = f->split; i-- > 0 && !more;) {
            f->at[i] += i == last ? here : 1;
            more = f->at[i] < f->box.size[i];
            f->at[i] = more ? f->at[i] : 0;
        }
    }
    return status == CKPT_OK ? take_before(f, err) : status;
}

ckpt_status ckpt__fetch_box(ckpt__lanes *lanes, ckpt__lane *lane, const ckpt__copy_box *box, uint32_t item,
                            const void *from, void *to, bool pinned, ckpt_error *err)
{
    fetch f = {.lanes = lanes, .lane = lane, .item = item, .from = from, .to = to};
    if (box->empty)
        return CKPT_OK;
    sort(box, &f.box);
    f.op = (ckpt__op){.from = CKPT_U8, .to = CKPT_U8, .granule = 1, .from_swap = 1, .to_swap = 1};
    f.op.from_size = f.op.to_size = item;
    uint32_t n = f.box.n;
    bool rows = n == 0 || (f.box.from_stride[n - 1] == item && f.box.to_stride[n - 1] == item);
    /* One run, or rows that lie far apart: they need no place on the way. */
    if (pinned && rows && (n < 2 || !is_close(&f.box, item)))
        return copy_box(&f, &f.box, from, to, err);
    return fetch_groups(&f, err);
}
