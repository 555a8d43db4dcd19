/* examine/verify_steps.c - files of ranks that are each as they were written, and not of one save: the steps of an optimizer are
 * the same all through each file, and another number in another. */
#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "examine/verify_work.h"

/* The steps of one optimizer in one file. */
typedef struct counted {
    ckpt_str optimizer; /* its path, as the names of its tensors begin: "optimizer.state." */
    uint32_t file;
    size_t count;
    double step;
    bool differ; /* they are not all `step` */
} counted;

typedef struct counting {
    counted *rows; /* heap */
    size_t count, capacity;
} counting;

/* "optimizer.state." of optimizer.state.0.step; the flat form has the last two keys in one. false: it is none. */
static bool optimizer_of(const ckpt_tensor_info *t, ckpt_str *out)
{
    const ckpt_path *path = &t->path;
    const size_t n = path->count;
    if (t->role != CKPT_ROLE_STEP || n == 0 || !path->keys[n - 1].text.data)
        return false;
    size_t own = path->keys[n - 1].text.size;
    if (!ckpt__str_ends(path->keys[n - 1].text, ".step")) {
        char digits[24];
        const ckpt_key *id = n > 1 ? &path->keys[n - 2] : NULL;
        if (!id || id->other)
            return false;
        own += 1 +
               (id->text.data ? id->text.size : (size_t)snprintf(digits, sizeof digits, "%lld", (long long)id->number));
    }
    if (own > t->name.size)
        return false;
    *out = (ckpt_str){t->name.data, t->name.size - own};
    return true;
}

typedef struct one_step {
    ckpt_dtype dtype;
    double value;
    bool read;
} one_step;

static ckpt_status take_step(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    one_step *one = ctx;
    (void)err;
    if (offset == 0 && n > 0 && n == ckpt_dtype_size(one->dtype))
        one->read = ckpt__convert(one->dtype, data, CKPT_F64, &one->value, 1, NULL);
    return CKPT_OK;
}

static bool add_step(counting *c, ckpt_str optimizer, uint32_t file, double step)
{
    for (size_t i = c->count; i-- > 0;) {
        counted *row = &c->rows[i];
        if (row->file != file || !ckpt__str_equal(row->optimizer, optimizer))
            continue;
        row->count++;
        row->differ = row->differ || row->step != step;
        return true;
    }
    if (!ckpt__grow(&c->rows, &c->capacity, c->count + 1, sizeof *c->rows))
        return false;
    c->rows[c->count++] = (counted){.optimizer = optimizer, .file = file, .count = 1, .step = step};
    return true;
}

/* What cannot be read was said of its storage. */
static ckpt_status count_steps(ckpt__verifier *v, counting *c, ckpt_error *err)
{
    enum { MOST = 1024 }; /* files and optimizers: each step looks for its row */
    for (size_t i = 0; i < v->index->tensor_count && c->count < MOST; i++) {
        const ckpt__tensor *t = &v->index->tensors[i];
        one_step one = {.dtype = t->info.dtype};
        ckpt_str optimizer;
        if (!optimizer_of(&t->info, &optimizer) || t->info.nbytes != ckpt_dtype_size(t->info.dtype) ||
            ckpt__view_count(t) == 0)
            continue;
        const ckpt__view view = ckpt__view_of(v->index, t, 0);
        const ckpt__extent *e = &v->index->storages[view.storage].extent;
        if (e->missing || e->memory || ckpt__read_tensor(v->source, v->index, i, false, take_step, &one, NULL) < 0 ||
            !one.read)
            continue;
        if (!add_step(c, optimizer, e->file, one.value))
            return ckpt__fail_memory(err, "the steps of an optimizer", v->index->tensor_count);
    }
    return CKPT_OK;
}

/* Of two parameters of which one was frozen, each may be alone in a file. */
static ckpt_status say(ckpt__verifier *v, const counted *a, const counted *b, ckpt_error *err)
{
    const char *file_a = v->source->files[a->file].name, *file_b = v->source->files[b->file].name;
    const bool sure = a->count > 1 && b->count > 1;
    bool good = ckpt__report_add(
        v->report, sure ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_WARNING, "mixed-steps", NULL,
        "copy all files again from one save, or take an earlier checkpoint",
        "%s is of another step than %s: of one optimizer, %s of the former is at step %.17g, and %s of the latter at step "
        "%.17g%s",
        file_a, file_b, a->count > 1 ? "every parameter" : "the one parameter", a->step,
        b->count > 1 ? "every parameter" : "the one parameter", b->step,
        sure ? ": they are of two saves" : ": they are of two saves, or it had no gradient for a time");
    good = good && ckpt__report_detail(v->report, file_a, NULL, NULL, 0);
    return good ? CKPT_OK : ckpt__fail_memory(err, "the report", 0);
}

ckpt_status ckpt__verifier_steps(ckpt__verifier *v, ckpt_error *err)
{
    counting c = {0};
    ckpt_status status = v->source->count > 1 ? count_steps(v, &c, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < c.count; i++) {
        const counted *least = &c.rows[i], *most = least;
        bool first = true, all = true;
        for (size_t k = 0; k < c.count; k++) {
            const counted *row = &c.rows[k];
            if (!ckpt__str_equal(row->optimizer, c.rows[i].optimizer))
                continue;
            first = first && k >= i;
            all = all && !row->differ;
            least = row->step < least->step ? row : least;
            most = row->step > most->step ? row : most;
        }
        if (first && all && least->step < most->step)
            status = say(v, least, most, err);
    }
    free(c.rows);
    return status;
}
