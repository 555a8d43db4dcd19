/* tests/fault/disk.h - what a disk may hold when the power fails in the middle of what recorded.h has written down.
 *
 * What was synced is there. Of the rest any part may be: a file's bytes block by block (512 or 4096), its size, the
 * entries of directories. How the entries depend on one another differs between file systems, so there are several
 * models of that; where a block is lost, zeros or another file's old bytes stand in its place. */
#ifndef DISK_H
#define DISK_H
#include "recorded.h"
#include "world.h"

typedef struct model {
    const char *name;
    bool journal;         /* changes of directories reach the disk in their order, whatever directory it is; else
                                   * each by itself, and only the fsync of that directory makes sure of it */
    bool ordered;         /* and a file's bytes before the change that comes after them (ext4's data=ordered) */
    unsigned grain;       /* bytes that are written or lost together */
    unsigned char filler; /* of what was never written */
} model;

static const model models[] = {
    {"each entry by itself, torn at 512", false, false, 512, 0},
    {"each entry by itself, torn at 4096, old bytes", false, false, 4096, 0xa5},
    {"journal, torn at 4096", true, false, 4096, 0},
    {"journal, torn at 512, old bytes", true, false, 512, 0xa5},
    {"journal, data first", true, true, 4096, 0},
};
enum { MODELS = sizeof models / sizeof *models };

/* One crash: after `point` operations, and by these chances (of 4) what was not synced is there. */
typedef struct crash {
    const recording *r;
    const model *m;
    size_t point;
    unsigned entries, sizes, bytes;
    uint64_t random;
} crash;

static uint64_t next_random(crash *c)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

static bool chance(crash *c, unsigned quarters)
{
    return (next_random(c) >> 33) % 4 < quarters;
}

static bool is_entry_op(op_kind kind)
{
    return kind == OP_ENTER || kind == OP_REMOVE || kind == OP_MOVE || kind == OP_SWAP;
}

/* How many operations there were up to the last sync of each inode. */
static size_t synced[INODES];

static void find_syncs(const crash *c)
{
    memset(synced, 0, (size_t)c->r->inodes * sizeof *synced);
    for (size_t i = 0; i < c->point; i++)
        if (c->r->ops[i].kind == OP_SYNC)
            synced[c->r->ops[i].ino] = i + 1;
}

/* A directory is in one place. */
static void place(const crash *c, entry *entries, size_t *n, int dir, const char *name, int ino)
{
    for (size_t i = 0; c->r->is_dir[ino] && i < *n; i++)
        if (entries[i].ino == ino)
            entries[i--] = entries[--*n];
    set_entry(entries, n, dir, name, ino);
}

static void apply(const crash *c, const op *o, entry *entries, size_t *n)
{
    entry *e = find_entry(entries, *n, o->dir, o->name);
    bool here = e && e->ino == o->ino;
    if (o->kind == OP_ENTER)
        place(c, entries, n, o->dir, o->name, o->ino);
    else if (o->kind == OP_REMOVE && here)
        drop_entry(entries, n, o->dir, o->name);
    else if (o->kind == OP_MOVE) {
        if (here)
            drop_entry(entries, n, o->dir, o->name);
        place(c, entries, n, o->dir, o->to, o->ino);
    } else if (o->kind == OP_SWAP) {
        place(c, entries, n, o->dir, o->to, o->ino);
        place(c, entries, n, o->dir, o->name, o->other);
    }
}

/* The directories after the crash. `cut`: with a journal, what came before it is there. */
static size_t surviving_entries(crash *c, entry *entries, size_t *cut)
{
    size_t n = 0, sure = c->r->first;
    *cut = 0;
    for (size_t i = 0; i < c->point; i++) {
        const op *o = &c->r->ops[i];
        if (is_entry_op(o->kind) && i + 1 < synced[o->dir] && i + 1 > sure)
            sure = i + 1;
    }
    if (c->m->journal)
        *cut = c->entries == 4   ? c->point
               : c->entries == 0 ? sure
                                 : sure + (size_t)(next_random(c) % (c->point - sure + 1));
    for (size_t i = 0; i < c->point; i++) {
        const op *o = &c->r->ops[i];
        if (!is_entry_op(o->kind))
            continue;
        bool there = i < c->r->first || (c->m->journal ? i < *cut : i < synced[o->dir] || chance(c, c->entries));
        if (there)
            apply(c, o, entries, &n);
    }
    return n;
}

/* ---- a file's bytes */

typedef struct content {
    char *data;
    uint64_t size, capacity;
} content;

static void resize(content *f, uint64_t size, int filler)
{
    if (size > f->size)
        memset(f->data + f->size, filler, size - f->size);
    f->size = size;
}

static void write_pieces(crash *c, content *f, const op *o, uint64_t size)
{
    for (uint64_t at = o->offset, end = o->offset + o->size; at < end;) {
        uint64_t stop = (at / c->m->grain + 1) * c->m->grain;
        if (stop > end)
            stop = end;
        if (chance(c, c->bytes) && at < size)
            memcpy(f->data + at, o->data + (at - o->offset), (stop < size ? stop : size) - at);
        at = stop;
    }
}

/* One of the sizes that the file had since it was synced. */
static uint64_t surviving_size(crash *c, int ino, size_t from, uint64_t size)
{
    uint64_t volatile_size = size;
    for (size_t i = from; i < c->point; i++) {
        const op *o = &c->r->ops[i];
        if (o->ino != ino || (o->kind != OP_WRITE && o->kind != OP_SIZE))
            continue;
        if (o->kind == OP_SIZE)
            volatile_size = o->size;
        else if (o->offset + o->size > volatile_size)
            volatile_size = o->offset + o->size;
        if (chance(c, c->sizes))
            size = volatile_size;
    }
    return size;
}

static content surviving_bytes(crash *c, int ino, size_t cut)
{
    content f = {NULL, 0, 0};
    size_t sure = synced[ino];
    if (c->m->ordered && cut > sure)
        sure = cut;
    for (size_t i = 0; i < c->point; i++) {
        const op *o = &c->r->ops[i];
        uint64_t end = o->kind == OP_WRITE ? o->offset + o->size : o->kind == OP_SIZE ? o->size : 0;
        if (o->ino == ino && end > f.capacity)
            f.capacity = end;
    }
    f.data = malloc((size_t)f.capacity + 1);
    ck_assert_ptr_nonnull(f.data);
    for (size_t i = 0; i < sure; i++) {
        const op *o = &c->r->ops[i];
        if (o->ino != ino || (o->kind != OP_WRITE && o->kind != OP_SIZE))
            continue;
        if (o->kind == OP_SIZE || o->offset + o->size > f.size)
            resize(&f, o->kind == OP_SIZE ? o->size : o->offset + o->size, 0);
        if (o->kind == OP_WRITE)
            memcpy(f.data + o->offset, o->data, (size_t)o->size);
    }
    resize(&f, surviving_size(c, ino, sure, f.size), c->m->filler);
    for (size_t i = sure; i < c->point; i++)
        if (c->r->ops[i].ino == ino && c->r->ops[i].kind == OP_WRITE)
            write_pieces(c, &f, &c->r->ops[i], f.size);
    return f;
}

static void lay_out_below(crash *c, const entry *entries, size_t n, size_t cut, int dir, const char *path)
{
    char below[400];
    for (size_t i = 0; i < n; i++) {
        if (entries[i].dir != dir)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, entries[i].name);
        if (c->r->is_dir[entries[i].ino]) {
            ck_assert_int_eq(mkdir(below, 0777), 0);
            lay_out_below(c, entries, n, cut, entries[i].ino, below);
        } else {
            content f = surviving_bytes(c, entries[i].ino, cut);
            put_file(below, f.data, (size_t)f.size);
            free(f.data);
        }
    }
}

/* Makes the directory `path` what is left of the recording's root. */
static void lay_out(crash c, const char *path)
{
    static entry entries[ENTRIES];
    size_t cut;
    find_syncs(&c);
    size_t n = surviving_entries(&c, entries, &cut);
    remove_tree(path);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    lay_out_below(&c, entries, n, cut, 0, path);
}

/* ---- a disk that is not empty at the start */

static void adopt_below(recording *r, int dir, const char *path)
{
    char below[400];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        int ino = new_inode(r, e->d_type == DT_DIR);
        set_entry(r->now, &r->entries, dir, e->d_name, ino);
        entry_op(r, OP_ENTER, dir, e->d_name, ino);
        if (e->d_type == DT_DIR) {
            adopt_below(r, ino, below);
            continue;
        }
        size_t n;
        char *data = get_file(below, &n);
        op *o = add_op(r, OP_WRITE, ino);
        o->size = r->size[ino] = n;
        o->data = data;
        add_op(r, OP_SYNC, ino);
    }
    if (d)
        closedir(d);
    add_op(r, OP_SYNC, dir);
}

static void adopt(recording *r)
{
    adopt_below(r, 0, r->root);
    r->first = r->count;
}
#endif
