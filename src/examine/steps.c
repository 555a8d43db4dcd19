/* examine/steps.c - files of ranks that are each as they were written, and not of one save: the steps of an optimizer are
 * the same all through each file, and another number in another. */
#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "examine/steps.h"

/* The steps of one optimizer in one file. */
typedef struct counted {
    char *
        optimizer; /* heap, owned: the member of a directory, and the keys above its parameters: two members have like ones */
    uint32_t file;
    size_t count;
    double step;
    bool differ; /* they are not all `step` */
} counted;

typedef struct counting {
    const ckpt__source *source; /* borrowed, as is the index */
    const ckpt__index *index;
    counted *rows; /* heap */
    size_t count, capacity;
    size_t most;   /* steps that are read of one optimizer in one file */
    ckpt__buf key; /* of the step that is looked at */
} counting;

static void free_rows(counting *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->rows[i].optimizer);
    free(c->rows);
    ckpt__buf_free(&c->key);
}

/* The member and the keys above a parameter's into c->key: ('optimizer', 'state') of optimizer.state.0.step; the flat form has the last three in one.
 * false: it is no step of one. */
static bool find_optimizer(counting *c, const ckpt_tensor_info *t)
{
    const ckpt_path *path = &t->path;
    const size_t n = path->count;
    if (t->role != CKPT_ROLE_STEP || n == 0 || !path->keys[n - 1].text.data)
        return false;
    const bool flat = ckpt__str_ends(path->keys[n - 1].text, ".step");
    if (!flat && n < 2)
        return false;
    c->key.size = 0;
    ckpt__buf_add(&c->key, t->file.data, t->file.size);
    for (size_t i = 0; i + (flat ? 1 : 2) < n; i++) {
        const ckpt_key *key = &path->keys[i];
        if (key->text.data)
            ckpt__buf_add(&c->key, key->text.data, key->text.size);
        else
            ckpt__buf_printf(&c->key, "%lld", (long long)key->number);
        ckpt__buf_char(&c->key, '\n');
    }
    ckpt__buf_char(&c->key, '\0');
    return !c->key.failed;
}

static counted *row_of(const counting *c, uint32_t file)
{
    for (size_t i = c->count; i-- > 0;)
        if (c->rows[i].file == file && strcmp(c->rows[i].optimizer, c->key.data) == 0)
            return &c->rows[i];
    return NULL;
}

static bool add_step(counting *c, uint32_t file, double step)
{
    counted *row = row_of(c, file);
    if (row) {
        row->count++;
        row->differ = row->differ || row->step != step;
        return true;
    }
    char *optimizer = strdup(c->key.data);
    if (!optimizer || !ckpt__grow(&c->rows, &c->capacity, c->count + 1, sizeof *c->rows)) {
        free(optimizer);
        return false;
    }
    c->rows[c->count++] = (counted){.optimizer = optimizer, .file = file, .count = 1, .step = step};
    return true;
}

/* What cannot be read is said of its storage, by whoever reads all of it. */
static ckpt_status count_steps(counting *c, ckpt_error *err)
{
    enum { MOST = 1024 }; /* files and optimizers: each step looks for its row */
    for (size_t i = 0; i < c->index->tensor_count && c->count < MOST; i++) {
        const ckpt__tensor *t = &c->index->tensors[i];
        const ckpt__extent *e = ckpt__first_extent(c->index, t);
        double step;
        bool read;
        if (!find_optimizer(c, &t->info) || !e)
            continue;
        const counted *row = row_of(c, e->file);
        if ((row && row->count >= c->most) || e->missing || e->memory ||
            ckpt__read_number(c->source, c->index, i, false, &step, &read, NULL) < 0 || !read)
            continue;
        if (!add_step(c, e->file, step))
            return ckpt__fail_memory(err, "the steps of an optimizer", c->index->tensor_count);
    }
    return CKPT_OK;
}

/* Of two parameters of which one was frozen, each may be alone in a file. */
static ckpt_status say(const counting *c, const counted *a, const counted *b, ckpt_report *report, ckpt_error *err)
{
    const char *file_a = c->source->files[a->file].name, *file_b = c->source->files[b->file].name;
    const bool sure = a->count > 1 && b->count > 1;
    bool good = ckpt__report_add(
        report, sure ? CKPT_SEVERITY_ERROR : CKPT_SEVERITY_WARNING, "mixed-steps", NULL,
        "copy all files again from one save, or take an earlier checkpoint",
        "%s is of another step than %s: of one optimizer, %s of the former is at step %.17g, and %s of the latter at step "
        "%.17g%s",
        file_a, file_b, a->count > 1 ? "every parameter" : "the one parameter", a->step,
        b->count > 1 ? "every parameter" : "the one parameter", b->step,
        sure ? ": they are of two saves" : ": they are of two saves, or it had no gradient for a time");
    good = good && ckpt__report_detail(report, file_a, NULL, NULL, 0);
    return good ? CKPT_OK : ckpt__fail_memory(err, "the report", 0);
}

ckpt_status ckpt__steps_compare(const ckpt__source *source, const ckpt__index *index, size_t most, ckpt_report *report,
                                ckpt_error *err)
{
    counting c = {.source = source, .index = index, .most = most};
    ckpt_status status = source->count > 1 ? count_steps(&c, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < c.count; i++) {
        const counted *least = &c.rows[i], *last = least;
        bool first = true, all = true;
        for (size_t k = 0; k < c.count; k++) {
            const counted *row = &c.rows[k];
            if (strcmp(row->optimizer, c.rows[i].optimizer) != 0)
                continue;
            first = first && k >= i;
            all = all && !row->differ;
            least = row->step < least->step ? row : least;
            last = row->step > last->step ? row : last;
        }
        if (first && all && least->step < last->step)
            status = say(&c, least, last, report, err);
    }
    free_rows(&c);
    return status;
}
