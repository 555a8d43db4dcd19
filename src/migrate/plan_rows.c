/* migrate/plan_rows.c - where each byte of a target comes from, a row a box: made from the plan while they are given, and not kept. */
#include "migrate/out.h"

#include <stdlib.h>
#include "base/first_sizes.h"
#include "model/nested.h"

/* What all rows are made with. */
typedef struct row_maker {
    ckpt__out *w; /* borrowed, as are the plan and the passes */
    const ckpt__migration *m;
    const ckpt__plan *plan;
    const ckpt__passes *passes;
    uint32_t *bond_of; /* heap, owned, as are all arrays: one a tensor, the bond that makes it; UINT32_MAX: none */
    uint32_t *owners, *kept; /* bonds of tensors, by their places in the files; bonds of storages, by their numbers */
    size_t owner_count, kept_count;
    int64_t *zeros;             /* as many as a tensor has dimensions */
    unsigned char *given;       /* a bit a tensor: its rows were given */
    const ckpt__out_file *file; /* whose rows are given */
    size_t tensor;              /* of the target, whose boxes are given */
} row_maker;

static ckpt_status give(const row_maker *r, ckpt_migrate_source *row, ckpt_error *err)
{
    const ckpt_migrate_plan *plan = &r->m->options.plan;
    row->struct_size = sizeof *row;
    if (r->file && r->file->name)
        row->file = ckpt__s(r->file->name);
    ckpt_status status = plan->fn(plan->ctx, row, err);
    if (status < 0 && err && err->status == CKPT_OK)
        return ckpt__fail(err, status, r->m->src,
                          "the plan was not taken: the function that gets its rows ended the call");
    return status;
}

/* ---- the source */

/* Bytes [begin, end) of a storage. */
static void set_source(const row_maker *r, uint32_t storage, uint64_t begin, uint64_t end, ckpt_migrate_source *row)
{
    const ckpt__source *source = r->m->reader->source;
    const ckpt__storage *s = &r->m->from->storages[storage];
    const ckpt__extent *e = &s->extent;
    row->from_storage = s->name;
    row->from_begin = begin;
    row->from_end = end;
    row->passes = ckpt__passes_of(r->passes, storage);
    if (e->memory) {
        row->place = CKPT_MIGRATE_IN_MEMORY;
        return;
    }
    if (e->coding == CKPT__MADE) {
        row->place = CKPT_MIGRATE_COMPUTED;
        return;
    }
    if (source->directory && e->file < source->count)
        row->from_file = ckpt__s(source->files[e->file].name);
    if (e->coding == CKPT__STORED) {
        row->place = CKPT_MIGRATE_IN_FILE;
        row->from_begin += e->offset;
        row->from_end += e->offset;
        return;
    }
    row->place = CKPT_MIGRATE_IN_RECORD;
    row->record_begin = ckpt__extent_begin(e);
    row->record_end = row->record_begin + e->length;
}

static uint32_t change_of(const row_maker *r, const ckpt__bond *bond)
{
    const ckpt__op *op = ckpt__plan_op_of(r->plan, bond->op);
    uint32_t change =
        (op->from != op->to ? CKPT_MIGRATE_CONVERTED : 0) | (op->from_swap != op->to_swap ? CKPT_MIGRATE_SWAPPED : 0);
    if (bond->flags & CKPT__BOND_STORAGE)
        return change;
    const ckpt_tensor_info *from = &r->m->from->tensors[bond->from].info, *to = &r->m->index->tensors[bond->to].info;
    return change | (from->conj && !to->conj ? CKPT_MIGRATE_CONJ_RESOLVED : 0) |
           (from->neg && !to->neg ? CKPT_MIGRATE_NEG_RESOLVED : 0);
}

/* ---- the target */

static void set_tensor(const row_maker *r, size_t from, size_t to, ckpt_migrate_source *row)
{
    const ckpt_tensor_info *a = &r->m->from->tensors[from].info, *b = &r->m->index->tensors[to].info;
    row->name = b->name;
    row->dtype = b->dtype;
    row->ndim = b->ndim;
    row->shape = b->shape;
    row->from_name = a->name;
    row->from_dtype = a->dtype;
    const uint32_t finding = r->m->ledger.rows[to].finding;
    row->finding = finding ? finding - 1 : SIZE_MAX;
}

static uint64_t bytes_of(const ckpt_migrate_source *row)
{
    uint64_t volume = row->flat_count, bytes = 0;
    if (!row->flat)
        ckpt__numel(row->size, row->ndim, &volume);
    ckpt__nbytes(volume, ckpt_dtype_bits(row->dtype), &bytes);
    return bytes;
}

static ckpt_status give_box(void *ctx, const ckpt__bond_box *box, ckpt_error *err)
{
    const row_maker *r = ctx;
    const ckpt__bond *bond = ckpt__plan_bond(r->plan, r->bond_of[r->tensor]);
    ckpt_migrate_source row = {.what = box->replica ? CKPT_MIGRATE_REPLICA : CKPT_MIGRATE_BOX,
                               .flat = box->flat,
                               .change = change_of(r, bond)};
    set_tensor(r, bond->from, bond->to, &row);
    set_source(r, box->from, box->from_at, box->from_end, &row);
    if (box->flat) {
        row.flat_begin = (uint64_t)box->lo[0];
        row.flat_count = (uint64_t)box->size[0];
        row.piece_flat_begin = box->piece ? (uint64_t)box->piece[0] : 0;
        row.piece_flat_count = box->piece ? (uint64_t)box->piece[1] : 0;
    } else {
        row.lo = box->lo ? box->lo : r->zeros;
        row.size = box->size;
        row.strides = box->strides;
        row.piece_lo = box->piece;
        row.piece_size = box->piece ? box->piece + box->n : NULL;
    }
    row.nbytes = bytes_of(&row);
    if (box->replica)
        row.passes = 0;
    return give(r, &row, err);
}

/* The bond of a tensor in whose bytes those at `at` of the target's storage lie. */
static const ckpt__bond *owner_of(const row_maker *r, uint32_t storage, uint64_t at)
{
    const ckpt__index *x = r->m->index;
    size_t low = 0, high = r->owner_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const ckpt__tensor *t = &x->tensors[ckpt__plan_bond(r->plan, r->owners[middle])->to];
        if (t->storage < storage || (t->storage == storage && ckpt__payload_begin(x, t) <= at))
            low = middle + 1;
        else
            high = middle;
    }
    return low ? ckpt__plan_bond(r->plan, r->owners[low - 1]) : NULL;
}

/* All of a tensor that the source has whole, where it lies there. */
static void set_place_of(const row_maker *r, const ckpt__tensor *from, ckpt_migrate_source *row)
{
    const uint64_t at = ckpt__whole_at(from);
    uint64_t reach = 0, bytes = 0;
    if (ckpt__view_extent(from->info.shape, from->info.strides, from->info.ndim, &reach))
        (void)ckpt__nbytes(reach, ckpt_dtype_bits(from->info.dtype), &bytes);
    set_source(r, from->storage, at, at + bytes, row);
    row->lo = r->zeros;
    row->size = from->info.shape;
    row->strides = from->info.strides;
}

/* A tensor whose bytes are those of another tensor, or of a storage that goes over whole; or one without bytes. */
static ckpt_status give_shared(const row_maker *r, size_t tensor, ckpt_error *err)
{
    const ckpt__index *x = r->m->index;
    const ckpt__tensor *t = &x->tensors[tensor], *from = &r->m->from->tensors[tensor];
    ckpt_migrate_source row = {.what = CKPT_MIGRATE_NOTHING};
    set_tensor(r, tensor, tensor, &row);
    const ckpt__bond *bond = NULL;
    const size_t files =
        r->w->count + (r->w->ranged != NULL); /* storages of the target, and then those that are kept whole */
    if (t->whole && t->info.nbytes)
        bond = t->storage >= files ? ckpt__plan_bond(r->plan, r->kept[t->storage - files])
                                   : owner_of(r, t->storage, ckpt__whole_at(t));
    if (!bond || !from->whole)
        return give(r, &row, err);
    row.what = CKPT_MIGRATE_SHARED;
    row.shares =
        bond->flags & CKPT__BOND_STORAGE ? r->m->from->storages[bond->from].name : x->tensors[bond->to].info.name;
    row.change = change_of(r, bond);
    set_place_of(r, from, &row);
    row.nbytes = t->info.nbytes;
    return give(r, &row, err);
}

static ckpt_status give_storage(const row_maker *r, const ckpt__bond *bond, ckpt_error *err)
{
    ckpt_migrate_source row = {
        .what = CKPT_MIGRATE_STORAGE, .finding = SIZE_MAX, .flat = true, .change = change_of(r, bond)};
    uint64_t size = r->m->from->storages[bond->from].extent.size;
    row.name = row.from_name = r->m->from->storages[bond->from].name;
    row.flat_count = row.nbytes = size;
    set_source(r, bond->from, 0, size, &row);
    return give(r, &row, err);
}

static ckpt_status give_copied(const row_maker *r, ckpt_error *err)
{
    ckpt_migrate_source row = {.what = CKPT_MIGRATE_FILE, .finding = SIZE_MAX, .place = CKPT_MIGRATE_IN_FILE};
    ckpt_status status = ckpt__copy_size(r->w, r->file, &row.nbytes);
    row.from_file = ckpt__s(r->file->name);
    row.from_end = row.nbytes;
    return status == CKPT_OK ? give(r, &row, err) : status;
}

/* A tensor of a file that is copied as it is. */
static ckpt_status give_in_copy(const row_maker *r, size_t tensor, ckpt_error *err)
{
    const ckpt__tensor *from = &r->m->from->tensors[tensor];
    ckpt_migrate_source row = {.what = CKPT_MIGRATE_NOTHING};
    set_tensor(r, tensor, tensor, &row);
    if (from->whole && from->info.nbytes) {
        set_place_of(r, from, &row);
        row.what = CKPT_MIGRATE_SHARED;
        row.nbytes = from->info.nbytes;
        row.file = row.shares = row.from_file;
    }
    return give(r, &row, err);
}

/* A tensor of which several files have a part: the boxes of all of it, and no file. */
static ckpt_status give_ranged(row_maker *r, size_t tensor, ckpt_error *err)
{
    r->tensor = tensor;
    return r->bond_of[tensor] == UINT32_MAX ? give_shared(r, tensor, err)
                                            : ckpt__plan_bond_boxes(r->plan, r->bond_of[tensor], give_box, r, err);
}

/* ---- all files */

static ckpt_status give_file(row_maker *r, ckpt_error *err)
{
    const ckpt__out_file *f = r->file;
    ckpt_status status = f->copy ? give_copied(r, err) : CKPT_OK;
    for (size_t i = 0; f->recipe && status == CKPT_OK && i < f->recipe->count; i++) {
        const ckpt__segment *g = &f->recipe->segments[i];
        const ckpt__bond *bond = g->kind == CKPT__STORAGE ? ckpt__plan_bond(r->plan, g->number) : NULL;
        if (bond && bond->flags & CKPT__BOND_STORAGE)
            status = give_storage(r, bond, err);
    }
    for (size_t k = 0; f->format && status == CKPT_OK && k < f->count; k++) {
        r->tensor = r->m->chosen[f->first + k];
        if (ckpt__is_left_out(r->m, r->tensor))
            continue;
        r->given[r->tensor / 8] |= (unsigned char)(1u << (r->tensor % 8));
        status = r->bond_of[r->tensor] == UINT32_MAX
                     ? give_shared(r, r->tensor, err)
                     : ckpt__plan_bond_boxes(r->plan, r->bond_of[r->tensor], give_box, r, err);
    }
    return status;
}

/* Which bond makes which tensor, and which storage. */
static ckpt_status find_bonds(row_maker *r, ckpt_error *err)
{
    const ckpt__index *x = r->m->index;
    size_t bonds = ckpt__plan_bond_count(r->plan), dimensions = 0;
    for (size_t i = 0; i < x->tensor_count; i++)
        if (x->tensors[i].info.ndim > dimensions)
            dimensions = x->tensors[i].info.ndim;
    r->bond_of = malloc((x->tensor_count + 1) * sizeof *r->bond_of);
    r->owners = malloc((bonds + 1) * sizeof *r->owners);
    r->kept = malloc((bonds + 1) * sizeof *r->kept);
    r->zeros = calloc(dimensions + 1, sizeof *r->zeros);
    r->given = calloc(x->tensor_count / 8 + 1, 1);
    if (!r->bond_of || !r->owners || !r->kept || !r->zeros || !r->given)
        return ckpt__migration_no_memory(err);
    memset(r->bond_of, 0xff, x->tensor_count * sizeof *r->bond_of);
    for (size_t i = 0; i < bonds; i++) {
        const ckpt__bond *b = ckpt__plan_bond(r->plan, i);
        if (b->flags & CKPT__BOND_STORAGE) {
            r->kept[r->kept_count++] = (uint32_t)i;
            continue;
        }
        r->bond_of[b->to] = (uint32_t)i;
        r->owners[r->owner_count++] = (uint32_t)i;
    }
    return CKPT_OK;
}

static ckpt_status give_all(ckpt__out *w, const ckpt__bytes *bytes, const ckpt__passes *passes, ckpt_error *err)
{
    row_maker r = {.w = w, .m = w->m, .plan = ckpt__bytes_plan_of(bytes), .passes = passes};
    ckpt_status status = find_bonds(&r, err);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        r.file = &w->files[i];
        status = give_file(&r, err);
    }
    r.file = NULL;
    for (size_t k = 0; status == CKPT_OK && k < r.m->chosen_count; k++)
        if (!(r.given[r.m->chosen[k] / 8] >> (r.m->chosen[k] % 8) & 1) && !ckpt__is_left_out(r.m, r.m->chosen[k]))
            status = w->ranged ? give_ranged(&r, r.m->chosen[k], err) : give_in_copy(&r, r.m->chosen[k], err);
    free(r.bond_of);
    free(r.owners);
    free(r.kept);
    free(r.zeros);
    free(r.given);
    return status;
}

/* ---- what is told before a byte is read */

/* What stays where it is, for the plan of a dry run. */
static ckpt_status plan_copies(ckpt__migration *m, ckpt_error *err)
{
    for (size_t k = 0; k < m->chosen_count; k++) {
        const ckpt_tensor_info *t = &m->index->tensors[m->chosen[k]].info;
        const char *tag = t->device.data;
        ckpt_str before = m->from->tensors[m->chosen[k]].info.device;
        if (ckpt__is_left_out(m, m->chosen[k]))
            continue; /* reported as lost */
        if (tag && m->options.map_location && (!before.data || !ckpt__str_equal(t->device, before)))
            continue; /* reported as moved */
        if (tag && before.data && !ckpt__str_equal(t->device, before))
            continue;
        ckpt_status status =
            ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "copy", t->name, err, "%s", tag ? tag : "no tag");
        if (status < 0)
            return status;
        if (!ckpt__report_detail(m->report, NULL, tag, tag, t->nbytes))
            return ckpt__migration_no_memory(err);
        ckpt__migration_note_row(m, m->chosen[k]);
    }
    return CKPT_OK;
}

/* ---- the ledger */

/* Names in the target: of a torch file its tree says them, and a tensor has that of the first place. */
typedef struct target_names {
    const ckpt__migration *m;
    ckpt__arena *arena; /* of the names; NULL: the index says them */
    ckpt_str *of;       /* heap, one a tensor; data NULL: no place has it */
    ckpt_error *err;
} target_names;

static int note_name(void *ctx, const ckpt_visit *visit)
{
    target_names *n = ctx;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= n->m->index->tensor_count || n->of[v->tensor].data)
        return CKPT_OK;
    n->of[v->tensor] = ckpt__arena_str(n->arena, visit->name.data, visit->name.size);
    return n->of[v->tensor].data ? CKPT_OK : ckpt__migration_no_memory(n->err);
}

static ckpt_status find_names(target_names *n)
{
    const ckpt__migration *m = n->m;
    if (!m->torch || m->same || !m->root)
        return CKPT_OK;
    n->arena = ckpt__arena_new(0);
    n->of = calloc(m->index->tensor_count + 1, sizeof *n->of);
    return n->arena && n->of ? (ckpt_status)ckpt_value_walk(m->root, 0, note_name, n, n->err)
                             : ckpt__migration_no_memory(n->err);
}

static ckpt_status tell_row(const target_names *n, size_t i, ckpt_error *err)
{
    const ckpt__migration *m = n->m;
    const ckpt_tensor_info *from = &m->from->tensors[i].info, *to = &m->index->tensors[i].info;
    const ckpt__row *row = &m->ledger.rows[i];
    const ckpt_str none = {NULL, 0};
    const bool written = row->fate == CKPT__FATE_GOES;
    const ckpt_migrate_row told = {.struct_size = sizeof told,
                                   .role = (uint32_t)to->role,
                                   .name = !written                 ? none
                                           : n->of && n->of[i].data ? n->of[i]
                                                                    : to->name,
                                   .from_name = i < m->ledger.read ? from->name : none,
                                   .from_file = i < m->ledger.read ? from->file : none,
                                   .dtype = to->dtype,
                                   .from_dtype = from->dtype,
                                   .tag = to->device,
                                   .from_tag = from->device,
                                   .layout = from->extra->layout,
                                   .fate = ckpt__fate_code(row->fate),
                                   .why = ckpt__fate_why(row->fate),
                                   .storage = written ? ckpt__own_code(row->own) : NULL};
    ckpt_status status = m->options.ledger.fn(m->options.ledger.ctx, &told, err);
    if (status < 0 && err && err->status == CKPT_OK)
        return ckpt__fail(err, status, m->dst,
                          "the ledger was not taken: the function that gets its rows ended the call");
    return status;
}

static ckpt_status tell_ledger(const ckpt__migration *m, ckpt_error *err)
{
    target_names n = {.m = m, .err = err};
    if (!m->options.ledger.fn)
        return CKPT_OK;
    ckpt_status status = find_names(&n);
    for (size_t i = 0; status == CKPT_OK && i < m->index->tensor_count; i++)
        status = tell_row(&n, i, err);
    ckpt__arena_free(n.arena);
    free(n.of);
    return status;
}

ckpt_status ckpt__plan_tell(ckpt__out *w, ckpt__bytes *bytes, uint64_t memory)
{
    ckpt__migration *m = w->m;
    bool dry = m->options.dry_run, rows = dry && m->options.plan.fn;
    ckpt__passes *passes = NULL;
    ckpt_status status = CKPT_OK;
    if (m->options.totals || rows)
        status = ckpt__bytes_passes(bytes, w, memory, &passes, w->err);
    if (status == CKPT_OK && m->options.totals)
        status = ckpt__bytes_totals(bytes, &m->totals, w->err);
    if (status == CKPT_OK && m->options.totals)
        m->totals.coded_passes = ckpt__passes_all(passes);
    if (status == CKPT_OK && dry)
        status = plan_copies(m, w->err);
    if (status == CKPT_OK && rows && m->options.totals)
        CKPT__GIVE_ANSWER(ckpt_migrate_totals, m->options.totals, &m->totals);
    if (status == CKPT_OK && rows)
        status = give_all(w, bytes, passes, w->err);
    ckpt__passes_free(passes);
    return status == CKPT_OK ? tell_ledger(m, w->err) : status;
}
