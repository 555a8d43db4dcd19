/* format/deepspeed/saves.c - are the model's file and the optimizer's of one save? Each says a step. With stages 1 and 2 the weights are the
 * masters besides, rounded to the weights' dtype: a few of each rank's are compared. So a file of another step or of another run is seen
 * whose sizes are right. */
#include "format/deepspeed/deepspeed.h"

#include <stdlib.h>

enum { SPOTS = 4, SPOT = 16, WIDEST = 8 };

/* What was compared of one rank's part. */
typedef struct compared {
    size_t elements, differ;
    const ckpt__ds_param *first; /* in which the first difference is; NULL: there is none */
} compared;

/* Elements of a tensor from `at` on, counted in its storage, as float64, rounded to `to` before. False: they are not to be had. */
static bool read_elements(const ckpt__ds *d, const ckpt__tensor *t, uint64_t at, size_t n, ckpt_dtype to, double *out)
{
    unsigned char bytes[SPOT * WIDEST], rounded[SPOT * WIDEST];
    const size_t size = ckpt_dtype_size(t->info.dtype);
    const ckpt__extent *e = &ckpt__ds_index(d)->storages[t->storage].extent;
    return size > 0 && size <= WIDEST && ckpt_dtype_size(to) <= WIDEST && e->coding == CKPT__STORED && !e->memory &&
           !e->big_endian && !e->missing && (at + n) * size <= e->size &&
           ckpt__source_read(d->reader.request->source, e->file, e->offset + at * size, bytes, n * size, NULL) ==
               CKPT_OK &&
           ckpt__convert(t->info.dtype, bytes, to, rounded, n, NULL) &&
           ckpt__convert(to, rounded, CKPT_F64, out, n, NULL);
}

static bool same(double a, double b)
{
    return a == b || (a != a && b != b);
}

/* n elements of p from lo on, which are those of the masters from `at` on. */
static void compare(const ckpt__ds *d, const ckpt__ds_param *p, const ckpt__tensor *weight, const ckpt__tensor *master,
                    uint64_t lo, uint64_t at, size_t n, compared *out)
{
    double is[SPOT], was[SPOT];
    const ckpt_dtype dtype = weight->info.dtype;
    if (!read_elements(d, weight, (uint64_t)weight->info.offset + lo, n, dtype, is) ||
        !read_elements(d, master, (uint64_t)master->info.offset + at, n, dtype, was))
        return;
    for (size_t i = 0; i < n; i++) {
        out->elements++;
        out->differ += !same(is[i], was[i]);
        if (!same(is[i], was[i]) && !out->first)
            out->first = p;
    }
}

/* The weights of a parameter, in C order; NULL: the file has none such. */
static const ckpt__tensor *weight_of(const ckpt__ds *d, const ckpt_value *module, const ckpt__ds_param *p)
{
    const ckpt_value *v = NULL;
    for (size_t i = 0; !v && i < module->entry_count; i++)
        if (module->entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(module->entries[i].key->text, p->name))
            v = module->entries[i].value;
    const ckpt__tensor *t = ckpt__ds_tensor(d, v);
    return t && t->whole && ckpt__same_shape(t->info.shape, t->info.ndim, p->shape, p->ndim) &&
                   ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim)
               ? t
               : NULL;
}

/* n elements of p from lo on, as the rank has them from `at` on. */
static void compare_param(const ckpt__ds *d, const ckpt_value *module, size_t rank, size_t number,
                          const uint64_t range[3], compared *out)
{
    const uint64_t lo = range[0], n = range[1], at = range[2];
    const ckpt__ds_param *p = &d->params[number];
    const ckpt_value *masters = ckpt__ds_masters(ckpt__ds_optimizer(&d->optims[rank]));
    const ckpt__tensor *weight = weight_of(d, module, p),
                       *master = p->flat < masters->item_count ? ckpt__ds_tensor(d, masters->items[p->flat]) : NULL;
    if (!weight || !master || !master->whole || master->info.ndim != 1)
        return;
    const size_t take = n < SPOT ? (size_t)n : SPOT;
    const uint64_t middle = (n - take) / 2;
    if ((uint64_t)master->info.shape[0] >= at + n)
        compare(d, p, weight, master, lo + middle, at + middle, take, out);
}

/* Over the parameters that a rank has elements of. */
typedef struct walk {
    size_t next, flat;
    uint64_t part;
    bool known;
} walk;

static bool next_of(const ckpt__ds *d, size_t rank, walk *w, size_t *number, uint64_t range[3])
{
    for (; w->next < d->param_count; w->next++) {
        const ckpt__ds_param *p = &d->params[w->next];
        if (!w->known || w->flat != p->flat)
            w->known = ckpt__ds_part_size(d, p->flat, &w->part);
        w->flat = p->flat;
        if (!w->known || !ckpt__ds_share(d, p, rank, w->part, &range[0], &range[1], &range[2]))
            continue;
        *number = w->next++;
        return true;
    }
    return false;
}

/* Of the parameters that lie in a rank's part, some: the first, the last, and others between them. */
static void compare_rank(const ckpt__ds *d, const ckpt_value *module, size_t rank, compared *out)
{
    size_t count = 0, seen = 0, spot = 0, number;
    uint64_t range[3];
    *out = (compared){0};
    if (!d->optims[rank].there || !ckpt__ds_masters(ckpt__ds_optimizer(&d->optims[rank])))
        return;
    for (walk w = {0}; next_of(d, rank, &w, &number, range);)
        count++;
    for (walk w = {0}; next_of(d, rank, &w, &number, range); seen++)
        if (seen * (SPOTS - 1) >= spot * (count - 1)) {
            compare_param(d, module, rank, number, range, out);
            spot++;
        }
}

/* ---- what they say of the step */

typedef struct steps {
    int64_t model, skipped, tag; /* -1: not known */
    double optimizer;            /* -1 */
} steps;

static steps steps_of(const ckpt__ds *d)
{
    const char *path = d->reader.request->source->path, *base = path;
    for (const char *c = path; *c; c++)
        base = *c == '/' && c[1] && c[1] != '/' ? c + 1 : base;
    steps s = {.model = ckpt__ds_int(ckpt_value_get(d->model.root, "global_steps")),
               .skipped = ckpt__ds_int(ckpt_value_get(d->model.root, "skipped_steps")),
               .tag = ckpt__ds_step_of(*d->below ? d->below : base),
               .optimizer = -1};
    if (!ckpt__ds_first_step(d, &s.optimizer))
        s.optimizer = -1;
    s.skipped = s.skipped < 0 ? 0 : s.skipped;
    return s;
}

static bool agree(const steps *s)
{
    return s->model < 0 || s->optimizer < 0 || s->optimizer == (double)s->model ||
           s->optimizer == (double)(s->model - s->skipped);
}

static ckpt_status lack_model(const ckpt__ds *d, const steps *s, ckpt_error *err)
{
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__fail(&why, CKPT_E_MISMATCH, d->model.name,
               "it is of step %lld, and the optimizer's files are of step %.0f: these are not the files of one save. "
               "Copy the files of one step, or take another checkpoint",
               (long long)s->model, s->optimizer);
    return ckpt__ds_lack(d, d->model.name, CKPT_E_MISMATCH, &why, err);
}

/* ---- all ranks */

static ckpt_status lack_rank(ckpt__ds *d, size_t rank, const compared *c, size_t right, ckpt_error *err)
{
    char shown[200];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__fail(&why, CKPT_E_MISMATCH, d->optims[rank].name,
               "its masters are not the weights of %s (the first: '%s'), and those of rank %zu are: it is a file of "
               "another save or of another rank. Copy the files of one save, or take another checkpoint",
               d->model.name, ckpt__escape(shown, sizeof shown, c->first->name.data, c->first->name.size), right);
    d->optims[rank].there = false;
    return ckpt__ds_lack(d, d->optims[rank].name, CKPT_E_MISMATCH, &why, err);
}

static ckpt_status say_apart(const ckpt__ds *d, const compared *c, ckpt_error *err)
{
    char shown[200];
    return ckpt__report_add(
               ckpt__ds_index(d)->findings, CKPT_SEVERITY_WARNING, "weights-not-masters",
               ckpt__escape(shown, sizeof shown, c->first->name.data, c->first->name.size),
               "where the files are of two saves, copy those of one; the masters are what DeepSpeed goes on from: its "
               "next step writes them over the weights",
               "the weights of %s are not the optimizer's float32 masters, which they are behind each step: the two are "
               "of different saves, or the program changed the weights after its last step (as by putting their "
               "average in their place)",
               d->model.name)
               ? CKPT_OK
               : ckpt__ds_no_memory(err);
}

/* Nearly all that was compared. What a program does to a few of its weights is another thing. */
static bool is_apart(const compared *c)
{
    enum { FEWEST = 8 };
    return c->elements >= FEWEST && c->differ * 10 >= c->elements * 9;
}

static ckpt_status judge(ckpt__ds *d, const compared *all, ckpt_error *err)
{
    const steps s = steps_of(d);
    size_t right = SIZE_MAX;
    const compared *wrong = NULL;
    ckpt_status status = CKPT_OK;
    for (size_t r = 0; r < d->ranks; r++) {
        if (all[r].elements && !all[r].differ && right == SIZE_MAX)
            right = r;
        if (all[r].differ && !wrong)
            wrong = &all[r];
    }
    if (!agree(&s) && ((s.tag != s.model && s.optimizer == (double)s.tag) || (wrong && right == SIZE_MAX)))
        return lack_model(d, &s, err);
    if (wrong && right == SIZE_MAX)
        return say_apart(d, wrong, err);
    for (size_t r = 0; status == CKPT_OK && right != SIZE_MAX && r < d->ranks; r++)
        if (is_apart(&all[r]))
            status = lack_rank(d, r, &all[r], right, err);
    return status;
}

ckpt_status ckpt__ds_check_saves(ckpt__ds *d, ckpt_error *err)
{
    const ckpt_value *module = ckpt_value_get(d->model.root, "module");
    compared *all = calloc(d->ranks, sizeof *all);
    if (!all)
        return ckpt__ds_no_memory(err);
    for (size_t r = 0; d->stage < 3 && module && module->kind == CKPT_V_DICT && r < d->ranks; r++)
        compare_rank(d, module, r, &all[r]);
    ckpt_status status = judge(d, all, err);
    free(all);
    return status;
}

/* ---- universal: each parameter has its own folder, which a converter has filled */

static bool has_round_robin(const ckpt__ds *d)
{
    const ckpt_value *v = ckpt_value_get(
        ckpt_value_get(ckpt_value_get(d->model.root, "ds_config"), "zero_optimization"), "round_robin_gradients");
    return v && v->kind == CKPT_V_BOOL && v->boolean;
}

static ckpt_status say_wrong(const ckpt__ds *d, const compared *c, size_t wrong, size_t count, ckpt_error *err)
{
    char shown[200];
    const bool known = has_round_robin(d);
    return ckpt__report_add(
               ckpt__ds_index(d)->findings, known ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_WARNING, "weights-not-masters",
               ckpt__escape(shown, sizeof shown, c->first->name.data, c->first->name.size),
               "ckpt-migrate --to torch of the checkpoint that was converted has the right ones; or save that one again without "
               "round_robin_gradients, and convert it",
               "of %zu of %zu parameters the float32 master is not the weight in %s%s", wrong, count, d->model.name,
               known
                   ? ", as ds_to_universal.py writes them of a checkpoint with round_robin_gradients: their masters and moments "
                     "are those of others"
                   : ": it was changed after the last step, or the conversion took the master of another")
               ? CKPT_OK
               : ckpt__ds_no_memory(err);
}

ckpt_status ckpt__ds_check_universal(const ckpt__ds *d, ckpt_error *err)
{
    const ckpt_value *module = ckpt_value_get(d->model.root, "module");
    const ckpt__index *x = ckpt__ds_index(d);
    compared first = {0};
    size_t count = 0, wrong = 0, number;
    for (size_t i = 0; module && module->kind == CKPT_V_DICT && i < x->tensor_count; i++) {
        const ckpt__tensor *master = &x->tensors[i];
        const ckpt_str name = master->info.param;
        if (i >= d->keep_capacity || !d->keep[i] || master->info.role != CKPT_ROLE_MASTER || !name.data ||
            !ckpt__hash_get(d->by_name, name.data, name.size, &number))
            continue;
        const ckpt__ds_param *p = &d->params[number];
        const ckpt__tensor *weight = weight_of(d, module, p);
        uint64_t numel;
        if (!weight || !master->whole ||
            !ckpt__is_c_order(master->info.shape, master->info.strides, master->info.ndim) ||
            !ckpt__numel(master->info.shape, master->info.ndim, &numel) || numel != p->numel)
            continue;
        compared own = {0};
        const size_t take = p->numel < SPOT ? (size_t)p->numel : SPOT;
        const uint64_t from = (p->numel - take) / 2;
        compare(d, p, weight, master, from, from, take, &own);
        const bool apart = own.differ > 0 && own.differ * 10 >= own.elements * 9;
        count += own.elements > 0;
        if (apart && wrong++ == 0)
            first = own;
    }
    return wrong ? say_wrong(d, &first, wrong, count, err) : CKPT_OK;
}
