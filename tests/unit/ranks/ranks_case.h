/* tests/unit/ranks/ranks_case.h - a training of any program in several ranks, made up: its model, how its ranks cut it, the files that they
 * write, and the layout that says it. Each element of each tensor says which tensor it is of, and where in it; what lies around a view in
 * its storage, and what pads a flat buffer, is poison. The parts of a rank are dealt out element by element, by no code of the library. */
#ifndef RANKS_CASE_H
#define RANKS_CASE_H
#include "../dealt.h"
#include "../folder_files.h"
#include "../random.h"

enum { AXES = 3, DIMS = 3, TENSORS = 10, STATES = 2, MOST = 4096, TEXT = 1 << 14 };
static const char *const axis_names[AXES] = {"pp", "dp", "tp"};

/* How one axis cuts a tensor. */
typedef struct cut {
    int axis, dim;
    ckpt__rank_cut_as as;
    int64_t widths[4], segments[4];
    int segment_count;
    int64_t groups;
} cut;

typedef struct logical {
    char name[40]; /* of the whole model */
    int stage;     /* -1: the first and the last have it */
    int layer;     /* -1: it is in none */
    char tail[20]; /* behind the number of the layer */
    int ndim;
    int64_t shape[DIMS];
    cut cuts[AXES];
    int cut_count;
    bool buffer; /* it has no state */
} logical;

typedef struct training {
    int64_t sizes[AXES]; /* pp, dp, tp; pp 1: there is no pipeline */
    logical tensors[TENSORS];
    int count;
    bool stages, local; /* each stage counts its layers from 0 */
    bool numbers;       /* stages take their layers by turns */
    bool flat;          /* the optimizer lies in flat buffers */
    int64_t align, multiple;
    bool found;       /* the sizes of the mesh are left to the names of the files */
    bool two;         /* a file of the model without dp, and one of the optimizer */
    bool by_rank;     /* the name of a file has the rank */
    bool first;       /* replicate: first */
    bool wide;        /* float64, else float32; buffers are int64 */
    int layers_of[8]; /* how many each stage has */
    /* lies */
    int drifted;                                     /* 1 + a rank, whose first tensor has another element */
    int shorter;                                     /* 1 + a rank, whose first tensor lacks a row */
    int other_dtype;                                 /* 1 + a rank */
    int lacks, has_more;                             /* 1 + a rank: of tensors of the model */
    int other_step, other_lr, other_note, other_rng; /* 1 + a rank */
    int flat_shorter;                                /* 1 + a rank, whose flat buffers lack an element */
} training;

/* ---- values */

static inline int64_t value_of(int tensor, int kind, int64_t element)
{
    return (tensor * 3 + kind) * MOST + element + 1;
}

enum { POISON = 16777215 };

/* ---- the parts, dealt out one by one */

static inline void held_by(const training *t, const logical *l, const int64_t *at_axis, held *dims)
{
    for (int d = 0; d < l->ndim; d++)
        dims[d] = held_whole(l->shape[d]);
    for (int i = 0; i < l->cut_count; i++) {
        const cut *c = &l->cuts[i];
        const ckpt__rank_cut own = {.as = c->as,
                                    .widths = c->widths,
                                    .segments = c->segments,
                                    .segment_count = (size_t)c->segment_count,
                                    .groups = c->groups};
        deal(&own, t->sizes[c->axis], at_axis[c->axis], &dims[c->dim]);
    }
}

/* The rank's elements of a tensor, in C order: their numbers in the whole. Gives how many there are. */
static inline int64_t elements_of(const training *t, const logical *l, const int64_t *at_axis, int64_t *shape,
                                  int64_t *out)
{
    held dims[DIMS];
    int64_t n = 1;
    held_by(t, l, at_axis, dims);
    for (int d = 0; d < l->ndim; d++)
        n *= shape[d] = dims[d].count;
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, index[DIMS] = {0}, number = 0;
        for (int d = l->ndim; d-- > 0;) {
            index[d] = dims[d].of[left % dims[d].count];
            left /= dims[d].count;
        }
        for (int d = 0; d < l->ndim; d++)
            number = number * l->shape[d] + index[d];
        out[i] = number;
    }
    return n;
}

/* ---- files */

/* Storages that are larger than the views of them. */
typedef struct saved {
    bytes pickle;
    unsigned char data[TENSORS * 4 + 8][1 << 13];
    size_t size[TENSORS * 4 + 8];
    int count;
} saved;

static inline void store(saved *f, char type, size_t i, int64_t value)
{
    const float narrow = (float)value;
    const double wide = (double)value;
    if (type == 'f')
        memcpy(f->data[f->count] + 4 * i, &narrow, 4);
    else
        memcpy(f->data[f->count] + 8 * i, type == 'd' ? (const void *)&wide : &value, 8);
}

static inline char type_of(const training *t, const logical *l)
{
    return l && l->buffer ? 'i' : t->wide ? 'd' : 'f';
}

/* A view: behind some poison, with holes or turned around. */
static inline void put_view(saved *f, char type, int ndim, const int64_t *shape, const int64_t *values)
{
    char key[16];
    view v = {.key = key, .location = "cpu", .ndim = ndim, .stride_count = ndim, .offset = roll(4)};
    v.class_name = type == 'i' ? "LongStorage" : type == 'd' ? "DoubleStorage" : "FloatStorage";
    const bool turned = ndim == 2 && roll(3) == 0;
    int64_t step = 1 + (roll(3) == 0), n = 1, reach = v.offset + 1;
    for (int d = 0; d < ndim; d++) {
        n *= shape[d];
        v.shape[d] = shape[d];
    }
    for (int k = 0; k < ndim; k++) {
        const int d = turned ? k : ndim - 1 - k;
        v.strides[d] = step;
        reach += shape[d] > 0 ? (shape[d] - 1) * step : 0;
        step *= shape[d] > 1 ? shape[d] : 1;
    }
    v.numel = n ? reach + roll(3) : 0;
    v.offset = n ? v.offset : 0;
    ck_assert_int_le(v.numel * 8, 1 << 13);
    ck_assert_int_lt(f->count, TENSORS * 4 + 8);
    for (int64_t i = 0; i < v.numel; i++)
        store(f, type, (size_t)i, POISON);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, place = v.offset;
        for (int d = ndim; d-- > 0;) {
            place += left % shape[d] * v.strides[d];
            left /= shape[d];
        }
        store(f, type, (size_t)place, values[i]);
    }
    f->size[f->count] = (size_t)v.numel * (type == 'f' ? 4 : 8);
    snprintf(key, sizeof key, "%d", f->count++);
    put_tensor(&f->pickle, &v);
}

static inline saved *begin_saved(void)
{
    static saved f;
    f.count = 0;
    f.pickle.size = 0;
    PUT(&f.pickle, "\x80\2");
    return &f;
}

static inline void write_saved(const char *path, saved *f)
{
    static archive a;
    char name[60];
    a.file.size = a.directory.size = a.count = 0;
    PUT(&f->pickle, ".");
    add_record(&a,
               &(record){.name = "archive/data.pkl", .data = f->pickle.data, .size = f->pickle.size, .flags = 0x808});
    for (int i = 0; i < f->count; i++) {
        snprintf(name, sizeof name, "archive/data/%d", i);
        add_record(&a, &(record){.name = name, .data = f->data[i], .size = f->size[i], .flags = 0x808});
    }
    add_record(&a, &(record){.name = "archive/version", .data = "3\n", .size = 2, .flags = 0x808});
    put_end(&a, a.count, "");
    write_to(path, a.file.data, a.file.size);
}

/* ---- what a rank saves */

static inline void coordinates(const training *t, int rank, int64_t *out)
{
    for (int a = AXES; a-- > 0;) {
        out[a] = rank % t->sizes[a];
        rank /= (int)t->sizes[a];
    }
}

static inline int world_of(const training *t)
{
    return (int)(t->sizes[0] * t->sizes[1] * t->sizes[2]);
}

static inline bool has(const training *t, const logical *l, int64_t stage)
{
    return l->stage == stage || (l->stage < 0 && (stage == 0 || stage == t->sizes[0] - 1));
}

/* The name that the files of a stage have. */
static inline const char *name_in(const training *t, const logical *l, int64_t stage)
{
    static char text[60];
    int number = l->layer;
    for (int i = 0; i < stage && !t->numbers; i++)
        number -= t->layers_of[i];
    if (t->numbers)
        number = l->layer / (int)t->sizes[0];
    if (l->layer < 0 || !t->local)
        return l->name;
    snprintf(text, sizeof text, "layers.%d.%s", number, l->tail);
    return text;
}

static inline void put_one(const training *t, saved *f, int rank, int tensor, int kind)
{
    static int64_t numbers[MOST];
    int64_t at_axis[AXES], shape[DIMS];
    const logical *l = &t->tensors[tensor];
    coordinates(t, rank, at_axis);
    int64_t n = elements_of(t, l, at_axis, shape, numbers);
    for (int64_t i = 0; i < n; i++)
        numbers[i] =
            value_of(tensor, kind, numbers[i]) + (tensor == 0 && kind == 0 && rank + 1 == t->drifted && i == 0);
    if (tensor == 0 && kind == 0 && rank + 1 == t->shorter)
        shape[0]--;
    put_view(f, tensor == 0 && kind == 0 && rank + 1 == t->other_dtype ? 'i' : type_of(t, l), l->ndim, shape, numbers);
}

static inline void put_model(const training *t, saved *f, int rank)
{
    int64_t at_axis[AXES];
    const int64_t two[] = {2}, values[] = {5, 6};
    bool lacked = rank + 1 != t->lacks;
    coordinates(t, rank, at_axis);
    PUT(&f->pickle, "}(");
    for (int i = 0; i < t->count; i++) {
        if (!has(t, &t->tensors[i], at_axis[0]))
            continue;
        if (!lacked) {
            lacked = true;
            continue;
        }
        put_str(&f->pickle, name_in(t, &t->tensors[i], at_axis[0]));
        put_one(t, f, rank, i, 0);
    }
    if (rank + 1 == t->has_more) {
        put_str(&f->pickle, "extra");
        put_view(f, type_of(t, NULL), 1, two, values);
    }
    PUT(&f->pickle, "u");
}

static inline void put_groups(const training *t, bytes *b, int rank, int params)
{
    put_str(b, "param_groups");
    PUT(b, "]}(");
    put_str(b, "lr");
    put_real(b, rank + 1 == t->other_lr ? 0.25 : 0.5);
    put_str(b, "params");
    PUT(b, "](");
    for (int i = 0; i < params; i++)
        put_int(b, i);
    PUT(b, "eua");
}

static inline void put_adam_of(const training *t, saved *f, int rank)
{
    static const char *const keys[] = {"exp_avg", "exp_avg_sq"};
    const int64_t step = 7;
    int64_t at_axis[AXES];
    int number = 0;
    coordinates(t, rank, at_axis);
    PUT(&f->pickle, "}(");
    put_str(&f->pickle, "state");
    PUT(&f->pickle, "}(");
    for (int i = 0; i < t->count; i++) {
        if (!has(t, &t->tensors[i], at_axis[0]) || t->tensors[i].buffer)
            continue;
        put_int(&f->pickle, number++);
        PUT(&f->pickle, "}(");
        put_str(&f->pickle, "step");
        put_view(f, type_of(t, NULL), 0, NULL, &step);
        for (int k = 0; k < STATES; k++) {
            put_str(&f->pickle, keys[k]);
            put_one(t, f, rank, i, 1 + k);
        }
        PUT(&f->pickle, "u");
    }
    PUT(&f->pickle, "u");
    put_groups(t, &f->pickle, rank, number);
    PUT(&f->pickle, "u");
}

/* The values of one flat buffer of all data parallel ranks: gives how many. */
static inline int64_t fill_flat(const training *t, int rank, int kind, int64_t *out)
{
    static int64_t numbers[MOST];
    int64_t at_axis[AXES], shape[DIMS], n = 0;
    coordinates(t, rank, at_axis);
    for (int i = 0; i < t->count; i++) {
        if (!has(t, &t->tensors[i], at_axis[0]) || t->tensors[i].buffer)
            continue;
        for (; n % t->align; n++)
            out[n] = POISON;
        const int64_t own = elements_of(t, &t->tensors[i], at_axis, shape, numbers);
        for (int64_t k = 0; k < own; k++)
            out[n++] = value_of(i, kind, numbers[k]);
    }
    for (; n % (t->multiple * t->sizes[1]); n++)
        out[n] = POISON;
    return n;
}

static inline void put_flat(const training *t, saved *f, int rank)
{
    static int64_t all[MOST];
    static const char *const keys[] = {"exp_avg", "exp_avg_sq"};
    const int64_t step = 7;
    int64_t at_axis[AXES];
    coordinates(t, rank, at_axis);
    PUT(&f->pickle, "}(");
    put_str(&f->pickle, "state");
    PUT(&f->pickle, "}(");
    put_int(&f->pickle, 0);
    PUT(&f->pickle, "}(");
    put_str(&f->pickle, "step");
    put_view(f, type_of(t, NULL), 0, NULL, &step);
    for (int k = 0; k < STATES; k++) {
        const int64_t part = fill_flat(t, rank, 1 + k, all) / t->sizes[1];
        const int64_t shape[] = {part - (rank + 1 == t->flat_shorter)};
        put_str(&f->pickle, keys[k]);
        put_view(f, type_of(t, NULL), 1, shape, all + at_axis[1] * part);
    }
    PUT(&f->pickle, "uu");
    put_groups(t, &f->pickle, rank, 1);
    PUT(&f->pickle, "u");
}

static inline void put_rest(const training *t, saved *f, int rank)
{
    const int64_t two[] = {2}, values[] = {rank + 1 == t->other_rng ? 90 : 80, 81};
    put_str(&f->pickle, "step");
    put_int(&f->pickle, rank + 1 == t->other_step ? 8 : 7);
    put_str(&f->pickle, "note");
    put_int(&f->pickle, rank + 1 == t->other_note ? 2 : 1);
    put_str(&f->pickle, "rng");
    put_view(f, 'i', 1, two, values);
}

static inline void name_of_file(const training *t, const char *kind, int rank, char *out, size_t size)
{
    int64_t c[AXES];
    coordinates(t, rank, c);
    if (t->by_rank)
        snprintf(out, size, "%s%03d.pt", kind, rank);
    else if (t->two && *kind == 'm')
        snprintf(out, size, "%s%d/tp_%02d.pt", kind, (int)c[0], (int)c[2]);
    else
        snprintf(out, size, "%s%d/dp%d_tp_%02d.pt", kind, (int)c[0], (int)c[1], (int)c[2]);
}

static inline void write_rank(const training *t, const char *in, int rank)
{
    char name[80];
    int64_t c[AXES];
    coordinates(t, rank, c);
    saved *f = begin_saved();
    if (t->two && c[1] == 0) {
        name_of_file(t, "model_", rank, name, sizeof name);
        put_model(t, f, rank);
        write_saved(at("%s/%s", in, name), f);
        f = begin_saved();
    }
    PUT(&f->pickle, "}(");
    if (!t->two) {
        put_str(&f->pickle, "model");
        put_model(t, f, rank);
    }
    put_str(&f->pickle, "optim");
    if (t->flat)
        put_flat(t, f, rank);
    else
        put_adam_of(t, f, rank);
    put_rest(t, f, rank);
    PUT(&f->pickle, "u");
    name_of_file(t, t->two ? "rest_" : "all_", rank, name, sizeof name);
    write_saved(at("%s/%s", in, name), f);
}

static inline void write_training(const training *t, const char *in)
{
    static const char *const kinds[] = {"model_", "rest_", "all_"};
    make_directory(in);
    for (int s = 0; s < (int)t->sizes[0]; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            mkdir(at("%s/%s%d", in, kinds[k], s), 0700);
    for (int rank = 0; rank < world_of(t); rank++)
        write_rank(t, in, rank);
}

/* ---- the layout */

static inline size_t say_cut(char *out, size_t size, const cut *c, int64_t ranks)
{
    static const char *const ways[] = {"ceil", "even", "balanced"};
    size_t n = (size_t)snprintf(out, size, "{axis: %s, dim: %d, as: ", axis_names[c->axis], c->dim);
    if (c->as != CKPT__CUT_AS_WIDTHS)
        n += (size_t)snprintf(out + n, size - n, "%s", ways[c->as]);
    for (int64_t k = 0; c->as == CKPT__CUT_AS_WIDTHS && k < ranks; k++)
        n +=
            (size_t)snprintf(out + n, size - n, "%s%d%s", k ? ", " : "[", (int)c->widths[k], k + 1 == ranks ? "]" : "");
    for (int k = 0; k < c->segment_count; k++)
        n += (size_t)snprintf(out + n, size - n, "%s%d", k ? ", " : ", segments: {sizes: [", (int)c->segments[k]);
    if (c->segment_count)
        n += (size_t)snprintf(out + n, size - n, "], groups: %d}", (int)c->groups);
    return n + (size_t)snprintf(out + n, size - n, "}");
}

static inline const char *layout_of(const training *t)
{
    static char out[TEXT];
    const size_t size = sizeof out;
    size_t n = (size_t)snprintf(out, size, "layout: 1\nsides: [mine]\nranks:\n  mine:\n    mesh: {");
    for (int a = 0; a < AXES; a++) {
        char number[24];
        snprintf(number, sizeof number, "%d", (int)t->sizes[a]);
        n += (size_t)snprintf(out + n, size - n, "%s%s: %s", a ? ", " : "", axis_names[a], t->found ? "files" : number);
    }
    n += (size_t)snprintf(out + n, size - n, "}\n    replicate: %s\n    files: ", t->first ? "first" : "compare");
    if (t->two && t->by_rank)
        n += (size_t)snprintf(out + n, size - n, "{model: \"model_<rank:03>.pt\", rest: \"rest_<rank:03>.pt\"}\n");
    else if (t->two)
        n += (size_t)snprintf(out + n, size - n,
                              "{model: \"model_<pp>/tp_<tp:02>.pt\", rest: \"rest_<pp>/dp<dp>_tp_<tp:02>.pt\"}\n");
    else
        n += (size_t)snprintf(out + n, size - n, t->by_rank ? "all_<rank:03>.pt\n" : "all_<pp>/dp<dp>_tp_<tp:02>.pt\n");
    if (t->stages) {
        n += (size_t)snprintf(out + n, size - n, "    stages: {axis: pp");
        if (t->local)
            n += (size_t)snprintf(out + n, size - n, ", local: true, layers: \"layers.<i>.<r:rest>\"");
        if (t->local && t->numbers) {
            int layers = 0, said = 0;
            for (int s = 0; s < (int)t->sizes[0]; s++)
                layers += t->layers_of[s];
            for (int s = 0; s < (int)t->sizes[0]; s++, said = 0) {
                n += (size_t)snprintf(out + n, size - n, s ? ", [" : ", numbers: [[");
                for (int i = s; i < layers; i += (int)t->sizes[0])
                    n += (size_t)snprintf(out + n, size - n, "%s%d", said++ ? ", " : "", i);
                n += (size_t)snprintf(out + n, size - n, "]");
            }
            n += (size_t)snprintf(out + n, size - n, "]");
        }
        bool shared = false;
        for (int i = 0; i < t->count; i++)
            shared = shared || (t->tensors[i].stage < 0 && t->sizes[0] > 1);
        n += (size_t)snprintf(out + n, size - n, "%s}\n", shared ? ", shared: [shared]" : "");
    }
    if (t->flat) {
        const char *p = t->two ? "rest." : "";
        n += (size_t)snprintf(
            out + n, size - n,
            "    flat:\n    - axis: dp\n      in: %soptim\n      buffers: {exp_avg: %soptim.state.0.exp_avg, exp_avg_sq: "
            "%soptim.state.0.exp_avg_sq}\n      step: %soptim.state.0.step\n      group: %soptim.param_groups.0\n"
            "      order: model\n      align: %d\n      multiple: %d\n",
            p, p, p, p, p, (int)t->align, (int)t->multiple);
    }
    n += (size_t)snprintf(out + n, size - n, "    shard:\n");
    for (int i = 0; i < t->count; i++) {
        n += (size_t)snprintf(out + n, size - n, "    - {name: %s, cuts: [", t->tensors[i].name);
        for (int k = 0; k < t->tensors[i].cut_count; k++) {
            n += (size_t)snprintf(out + n, size - n, "%s", k ? ", " : "");
            n += say_cut(out + n, size - n, &t->tensors[i].cuts[k], t->sizes[t->tensors[i].cuts[k].axis]);
        }
        n += (size_t)snprintf(out + n, size - n, "]}\n");
    }
    ck_assert_uint_lt(n, size);
    return out;
}
#endif
