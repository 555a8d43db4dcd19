/* Checkpoints of FSDP with a file of each rank: DTensors over meshes, cut in every way, and ShardedTensors are put together; what is
 * missing, of another run or not told is named. Each element says which tensor it is of, and where in it. */
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include <ckpt/summary.h>
#include <ckpt/verify.h>
#define READER_FORMAT "fsdp"
#include "../reader_checks.h"
#include "../scarce_memory.h"

enum { MOST = 64, MESH_DIMS = 3 };

/* ---- tensors and how they are cut */

typedef struct cut {
    char kind; /* 'R' Replicate, 'S' Shard, 'T' _StridedShard, 'P' Partial, 'X' one that is not known */
    int64_t dim, split;
} cut;

typedef struct logical {
    const char *name;
    int ndim;
    int64_t shape[2];
    cut cuts[MESH_DIMS];
} logical;

/* What a run writes; what is not the usual is a lie of a broken file. */
typedef struct run {
    int ndim;
    int64_t sizes[MESH_DIMS];
    const logical *tensors;
    int count;
    bool work;         /* the last dimension of the mesh cuts first, as FSDP and tensor parallel do it */
    bool old, blind;   /* the mesh is a tensor, as before torch 2.9; no rank knows its coordinate */
    int liar, shorter; /* 1 + a rank that says it is rank 0; 1 + a rank whose tensors lack their last row */
    int64_t mesh_says; /* instead of the first size */
    int drifted;       /* 1 + a rank whose tensors' first element is another than that of its replicas */
    int own_seen;      /* 1 + a rank that has another `seen` */
    bool one_step;     /* all parameters have the steps of the first: one tensor, as FSDP1's units have it */
} run;

static float value_of(int tensor, int64_t i)
{
    return (float)(tensor * 1000 + i);
}

typedef struct indices {
    int64_t at[MOST], count;
} indices;

/* Chunk `which` of `parts`, element by element. */
static void add_chunk(indices *out, const indices *in, int64_t from, int64_t count, int64_t parts, int64_t which)
{
    int64_t chunk = (count + parts - 1) / parts;
    for (int64_t i = which * chunk; i < (which + 1) * chunk && i < count; i++)
        out->at[out->count++] = in->at[from + i];
}

static void cut_indices(indices *x, const cut *c, int64_t parts, int64_t which)
{
    indices out = {.count = 0};
    int64_t split = c->kind == 'T' ? c->split : 1, chunk = (x->count + split - 1) / split;
    for (int64_t from = 0; from < x->count; from += chunk)
        add_chunk(&out, x, from, x->count - from < chunk ? x->count - from : chunk, parts, which);
    *x = out;
}

static int64_t world_of(const run *r)
{
    int64_t n = 1;
    for (int i = 0; i < r->ndim; i++)
        n *= r->sizes[i];
    return n;
}

static void coordinate_of(const run *r, int rank, int64_t *out)
{
    for (int i = r->ndim; i-- > 0;) {
        out[i] = rank % r->sizes[i];
        rank /= (int)r->sizes[i];
    }
}

static void local_of(const run *r, const logical *l, int rank, indices *rows)
{
    int64_t coordinate[MESH_DIMS];
    coordinate_of(r, rank, coordinate);
    for (int d = 0; d < l->ndim; d++) {
        rows[d].count = l->shape[d];
        for (int64_t i = 0; i < l->shape[d]; i++)
            rows[d].at[i] = i;
    }
    for (int k = 0; k < r->ndim; k++) {
        const int i = r->work ? r->ndim - 1 - k : k;
        cut c = l->cuts[i];
        c.kind = r->work && c.kind == 'T' ? 'S' : c.kind;
        if ((c.kind == 'S' || c.kind == 'T') && c.dim >= 0 && c.dim < l->ndim && c.split > 0 && c.split < MOST)
            cut_indices(&rows[c.dim], &c, r->sizes[i], coordinate[i]);
    }
}

/* ---- pickles of torch */

static void begin_object(bytes *b, const char *module, const char *name)
{
    put_global(b, module, name);
    PUT(b, ")\x81}(");
}

static void end_object(bytes *b)
{
    PUT(b, "ub");
}

static void begin_shell(bytes *b, const char *module, const char *name, int ndim, const int64_t *shape)
{
    const int64_t strides[] = {ndim == 2 ? shape[1] : 1, 1};
    put_global(b, "torch._tensor", "_rebuild_from_type_v2");
    PUT(b, "(");
    put_global(b, "torch._utils", "_rebuild_wrapper_subclass");
    put_global(b, module, name);
    PUT(b, "(");
    put_global(b, module, name);
    put_global(b, "torch", "float32");
    put_ints(b, shape, ndim);
    put_ints(b, strides, ndim);
    PUT(b, "K\0");
    put_global(b, "torch.serialization", "_get_layout");
    put_str(b, "torch.strided");
    PUT(b, "\x85R");
    put_global(b, "torch", "device");
    put_str(b, "cpu");
    PUT(b, "\x85R\x89t");
}

/* The elements of the rank, in C order. */
static void put_local(torch_file *t, int tensor, const logical *l, const indices *rows, int64_t less)
{
    float *data = t->data[t->count];
    int64_t a = l->ndim > 0 ? rows[0].count - less : 1, n = l->ndim > 1 ? rows[1].count : 1;
    torch_tensor(t, l->ndim, a, n, 0);
    for (int64_t i = 0; i < a; i++)
        for (int64_t k = 0; k < n; k++) {
            int64_t row = l->ndim > 0 ? rows[0].at[i] : 0, column = l->ndim > 1 ? rows[1].at[k] : 0;
            data[i * n + k] = value_of(tensor, row * (l->ndim > 1 ? l->shape[1] : 1) + column);
        }
}

static void put_ranks(bytes *b, int64_t world)
{
    int64_t ranks[MOST];
    for (int64_t i = 0; i < world; i++)
        ranks[i] = i;
    put_ints(b, ranks, (int)world);
}

static void put_mesh(torch_file *t, const run *r, int rank)
{
    bytes *b = &t->pickle;
    int64_t coordinate[MESH_DIMS];
    coordinate_of(r, rank + 1 == r->liar ? 0 : rank, coordinate);
    begin_object(b, "torch.distributed.device_mesh", "DeviceMesh");
    if (r->old) {
        put_str(b, "mesh");
        torch_tensor(t, r->ndim, r->sizes[0], r->sizes[1], 0);
        put_str(b, "_flatten_mesh_list");
    } else {
        put_str(b, "_layout");
        begin_object(b, "torch.distributed._mesh_layout", "_MeshLayout");
        put_str(b, "axes");
        PUT(b, "(");
        for (int i = 0; i < r->ndim; i++) {
            const int64_t size[] = {i == 0 && r->mesh_says ? r->mesh_says : r->sizes[i]};
            begin_object(b, "torch.distributed._mesh_layout", "_FlatLayout");
            put_str(b, "shape");
            put_ints(b, size, 1);
            end_object(b);
        }
        PUT(b, "t");
        end_object(b);
        put_str(b, "_rank");
        put_int(b, rank + 1 == r->liar ? 0 : rank);
        put_str(b, "_flatten_rank_map");
    }
    put_ranks(b, world_of(r));
    put_str(b, "_coordinate_on_dim");
    if (r->blind)
        PUT(b, "N");
    else
        put_ints(b, coordinate, r->ndim);
    end_object(b);
}

static void put_cut(bytes *b, const cut *c)
{
    static const char kinds[] = "RSTP";
    static const char *const names[] = {"Replicate", "Shard", "_StridedShard", "Partial"};
    const char *at_kind = strchr(kinds, c->kind);
    begin_object(b, "torch.distributed.tensor.placement_types", at_kind ? names[at_kind - kinds] : "RaggedShard");
    if (c->kind == 'S' || c->kind == 'T') {
        put_str(b, "dim");
        put_int(b, c->dim);
    }
    if (c->kind == 'T') {
        put_str(b, "split_factor");
        put_int(b, c->split);
    }
    end_object(b);
}

static void put_dtensor(torch_file *t, const run *r, int rank, int tensor)
{
    bytes *b = &t->pickle;
    const logical *l = &r->tensors[tensor % 10];
    indices rows[2] = {{.count = 0}, {.count = 0}};
    local_of(r, l, rank, rows);
    begin_shell(b, "torch.distributed.tensor", "DTensor", l->ndim, l->shape);
    PUT(b, "N}(");
    put_str(b, "_local_tensor");
    put_local(t, tensor, l, rows, rank + 1 == r->shorter && rows[0].count > 1);
    t->data[t->count - 1][0] += rank + 1 == r->drifted ? 0.25F : 0;
    put_str(b, "_spec");
    begin_object(b, "torch.distributed.tensor._dtensor_spec", "DTensorSpec");
    put_str(b, "mesh");
    put_mesh(t, r, rank);
    put_str(b, "placements");
    PUT(b, "(");
    for (int i = 0; i < r->ndim; i++)
        put_cut(b, &l->cuts[i]);
    PUT(b, "t");
    end_object(b);
    PUT(b, "u\x86tR");
}

/* {name: DTensor, ..., "seen": the same on all ranks} */
static void write_model(const char *path, const run *r, int rank)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    for (int i = 0; i < r->count; i++) {
        put_str(&t->pickle, r->tensors[i].name);
        put_dtensor(t, r, rank, i);
    }
    put_str(&t->pickle, "seen");
    torch_tensor(t, 1, 3, 0, rank + 1 == r->own_seen ? 8 : 7);
    PUT(&t->pickle, "u");
    write_torch(path, t);
}

static void write_optimizer(const char *path, const run *r, int rank, float step, int64_t momentum)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "state");
    PUT(b, "}(");
    for (int i = 0; i < r->count; i++) {
        put_str(b, r->tensors[i].name);
        PUT(b, "}(");
        put_str(b, "step");
        if (r->one_step && i > 0)
            PUT(b, "h\xC8");
        else
            torch_tensor(t, 0, 0, 0, step);
        if (r->one_step && i == 0)
            PUT(b, "q\xC8");
        put_str(b, "exp_avg");
        put_dtensor(t, r, rank, 10 + i);
        put_str(b, "exp_avg_sq");
        put_dtensor(t, r, rank, 20 + i);
        PUT(b, "u");
    }
    PUT(b, "u");
    put_str(b, "param_groups");
    PUT(b, "]}(");
    put_str(b, "lr");
    torch_float(t, 0.5);
    put_str(b, "momentum");
    put_int(b, momentum);
    put_str(b, "params");
    PUT(b, "](");
    for (int i = 0; i < r->count; i++)
        put_str(b, r->tensors[i].name);
    PUT(b, "euau");
    write_torch(path, t);
}

/* verl's: what all ranks have, and what each has of its own. */
static void write_extra(const char *path, int rank, int64_t epoch)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "lr_scheduler");
    PUT(b, "}(");
    put_str(b, "last_epoch");
    put_int(b, epoch);
    PUT(b, "u");
    put_str(b, "rng");
    PUT(b, "}(");
    put_str(b, "random");
    put_int(b, 40 + rank);
    put_str(b, "name");
    put_str(b, "MT");
    PUT(b, "uu");
    write_torch(path, t);
}

static const char *model_path(const char *in, int rank)
{
    return at("%s/pytorch_model_fsdp_0_rank%d.bin", in, rank);
}

static void write_run(const char *in, const run *r)
{
    mkdir(at("%s", in), 0700);
    for (int rank = 0; rank < (int)world_of(r); rank++)
        write_model(model_path(in, rank), r, rank);
}

/* ---- FSDP1 */

typedef struct sharded {
    int64_t size, columns;   /* of the tensor */
    int64_t lo[4], count[4]; /* rows of each rank; count 0: it has no shard */
    int ranks;
    const char *name;
} sharded;

static void put_rows(bytes *b, const sharded *s, int rank)
{
    const int64_t lo[] = {s->lo[rank], 0}, size[] = {s->count[rank], s->columns};
    const int ndim = s->columns ? 2 : 1;
    PUT(b, "N}(");
    put_str(b, "shard_offsets");
    put_ints(b, lo, ndim);
    put_str(b, "shard_sizes");
    put_ints(b, size, ndim);
    PUT(b, "u\x86");
}

static void put_metadata(bytes *b, const sharded *s, int rank)
{
    put_global(b, "torch.distributed._shard.metadata", "ShardMetadata");
    PUT(b, ")\x81");
    put_rows(b, s, rank);
    PUT(b, "b");
}

static void put_sharded(torch_file *t, const sharded *s, int rank)
{
    bytes *b = &t->pickle;
    const int64_t shape[] = {s->size, s->columns};
    const int ndim = s->columns ? 2 : 1;
    begin_shell(b, "torch.distributed._shard.sharded_tensor.api", "ShardedTensor", ndim, shape);
    PUT(b, "(]");
    if (s->count[rank]) {
        put_global(b, "torch.distributed._shard.sharded_tensor.shard", "Shard");
        PUT(b, ")\x81N}(");
        put_str(b, "tensor");
        torch_tensor(t, ndim, s->count[rank], s->columns, (float)s->lo[rank] * (float)(s->columns ? s->columns : 1));
        put_str(b, "metadata");
        put_metadata(b, s, rank);
        PUT(b, "u\x86"
               "ba");
    }
    begin_object(b, "torch.distributed._shard.sharded_tensor.metadata", "ShardedTensorMetadata");
    put_str(b, "shards_metadata");
    PUT(b, "](");
    for (int i = 0; i < s->ranks; i++)
        put_metadata(b, s, i);
    PUT(b, "e");
    end_object(b);
    put_global(b, "__builtin__", "getattr");
    PUT(b, "(");
    put_global(b, "torch.distributed._shard.sharded_tensor.api", "ShardedTensor");
    put_str(b, "ProcessGroupState");
    PUT(b, "tR)\x81}(");
    put_str(b, "global_rank");
    put_int(b, rank);
    put_str(b, "global_world_size");
    put_int(b, s->ranks);
    end_object(b);
    PUT(b, "N\x89ttR");
}

static void write_sharded(const char *in, const sharded *s)
{
    mkdir(at("%s", in), 0700);
    for (int rank = 0; rank < s->ranks; rank++) {
        torch_file *t = begin_torch();
        PUT(&t->pickle, "}(");
        put_str(&t->pickle, s->name);
        put_sharded(t, s, rank);
        PUT(&t->pickle, "u");
        write_torch(model_path(in, rank), t);
    }
}

/* ---- what is expected */

static void expect_values(const char *name, int64_t count, int tensor)
{
    float values[1024] = {0};
    size_t number;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &number, &err) == CKPT_OK, "%s: %s", name, err.message);
    ck_assert_int_eq(ckpt_reader_tensor(reader, number)->nbytes, count * 4);
    ckpt_status status = ckpt_reader_read(reader, number, values, (size_t)count * 4, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", name, err.message);
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(values[i] == value_of(tensor, i), "%s[%d]: %g", name, (int)i, (double)values[i]);
}

static int64_t numel(const logical *l)
{
    return (l->ndim > 0 ? l->shape[0] : 1) * (l->ndim > 1 ? l->shape[1] : 1);
}

static void expect_model(const char *path, const run *r)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    opens(path);
    for (int i = 0; i < r->count; i++) {
        char name[80];
        snprintf(name, sizeof name, "model.%s", r->tensors[i].name);
        expect_values(name, numel(&r->tensors[i]), i);
    }
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), (size_t)r->count + 1);
    ck_assert_int_eq(ckpt_verify(path, NULL, &result, NULL, &err), CKPT_OK);
}

static const logical over_one[] = {{"even", 2, {8, 3}, {{'S', 0, 1}}},    {"uneven", 2, {7, 2}, {{'S', 0, 1}}},
                                   {"columns", 2, {3, 5}, {{'S', 1, 1}}}, {"one", 1, {1, 0}, {{'S', 0, 1}}},
                                   {"copy", 1, {5, 0}, {{'R', 0, 1}}},    {"scalar", 0, {0, 0}, {{'R', 0, 1}}},
                                   {"nothing", 2, {0, 4}, {{'S', 0, 1}}}, {"strided", 1, {13, 0}, {{'T', 0, 3}}},
                                   {"few", 1, {3, 0}, {{'S', 0, 1}}}};

START_TEST(the_parts_of_all_ranks_are_one_tensor)
{
    static const int64_t worlds[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const run r = {.ndim = 1, .sizes = {worlds[i]}, .tensors = over_one, .count = 9};
        char in[20];
        snprintf(in, sizeof in, "c%d", (int)i);
        write_run(in, &r);
        expect_model(at("%s", in), &r);
    }
}
END_TEST

static const logical over_two[] = {
    {"fsdp_tp", 1, {16, 0}, {{'T', 0, 2}, {'S', 0, 1}}},  {"uneven", 2, {13, 2}, {{'T', 0, 2}, {'S', 0, 1}}},
    {"both", 2, {5, 7}, {{'S', 0, 1}, {'S', 1, 1}}},      {"same_dim", 1, {11, 0}, {{'S', 0, 1}, {'S', 0, 1}}},
    {"hsdp", 2, {6, 2}, {{'R', 0, 1}, {'S', 0, 1}}},      {"tp_only", 2, {4, 6}, {{'R', 0, 1}, {'S', 1, 1}}},
    {"copies", 1, {4, 0}, {{'R', 0, 1}, {'R', 0, 1}}},    {"scalar", 0, {0, 0}, {{'R', 0, 1}, {'R', 0, 1}}},
    {"two_runs", 2, {12, 3}, {{'T', 0, 3}, {'R', 0, 1}}}, {"grid", 2, {8, 6}, {{'T', 0, 2}, {'T', 1, 2}}}};

START_TEST(a_mesh_of_two_dimensions_cuts_twice)
{
    static const int64_t sizes[][2] = {{2, 2}, {1, 2}, {3, 2}, {4, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const run r = {.ndim = 2, .sizes = {sizes[i][0], sizes[i][1]}, .tensors = over_two, .count = 10};
        char in[20];
        snprintf(in, sizeof in, "c%d", (int)i);
        write_run(in, &r);
        expect_model(at("%s", in), &r);
    }
}
END_TEST

/* 9 rows over FSDP 4 x tensor parallel 2: the strides give rank (3, 0) a row that FSDP gives rank (3, 1). Over 2 x 3 x 2 both ways give
 * the same shapes, of other rows: FSDP's is the one that torch's full_tensor() knows. */
/* ---- replicas */

/* What verify finds of `code`: how often, and the first of it. */
static size_t found_by_verify(const char *path, ckpt_report *report, const ckpt_finding **first)
{
    size_t count = 0;
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report_clear(report);
    ck_assert_int_eq(ckpt_verify(path, NULL, &result, report, &err), CKPT_OK);
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        if (strcmp(ckpt_report_get(report, i)->code, "replicas-differ") == 0 && count++ == 0)
            *first = ckpt_report_get(report, i);
    return count;
}

/* Four ranks, of which 0 and 2, and 1 and 3, have the same; each archive's CRCs are right. */
START_TEST(replicas_that_differ_are_found)
{
    static const logical hybrid[] = {{"rows", 2, {7, 3}, {{'R', 0, 1}, {'S', 0, 1}}},
                                     {"columns", 2, {3, 5}, {{'R', 0, 1}, {'S', 1, 1}}},
                                     {"all", 1, {5, 0}, {{'R', 0, 1}, {'R', 0, 1}}},
                                     {"scalar", 0, {0, 0}, {{'R', 0, 1}, {'R', 0, 1}}},
                                     {"apart", 2, {8, 2}, {{'S', 0, 1}, {'S', 1, 1}}}};
    run r = {.ndim = 2, .sizes = {2, 2}, .tensors = hybrid, .count = 5};
    ckpt_report *report = ckpt_report_new();
    const ckpt_finding *f = NULL;
    write_run("same", &r);
    expect_model(at("same"), &r);
    ck_assert_uint_eq(found_by_verify(at("same"), report, &f), 0);
    r.drifted = 1 + 3;
    write_run("drifted", &r);
    ck_assert_uint_eq(found_by_verify(at("drifted"), report, &f), 4);
    ck_assert_str_eq(f->tensor, "model.rows");
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_WARNING);
    ck_assert_ptr_nonnull(strstr(f->message, "pytorch_model_fsdp_0_rank1.bin and pytorch_model_fsdp_0_rank3.bin"));
    ck_assert_str_eq(f->file, "pytorch_model_fsdp_0_rank3.bin");
    ck_assert_ptr_nonnull(ckpt_report_find(report, "replicas-differ", "model.all"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "replicas-differ", "model.scalar"));
    ck_assert_ptr_null(ckpt_report_find(report, "replicas-differ", "model.apart"));
    ckpt_report_free(report);
}
END_TEST

START_TEST(whole_tensors_that_differ_are_found)
{
    run r = {.ndim = 1, .sizes = {3}, .tensors = over_one, .count = 2, .own_seen = 1 + 1};
    ckpt_report *report = ckpt_report_new();
    const ckpt_finding *f = NULL;
    write_run("seen", &r);
    ck_assert_uint_eq(found_by_verify(at("seen"), report, &f), 1);
    ck_assert_str_eq(f->tensor, "model.seen");
    ck_assert_ptr_nonnull(strstr(f->message, "rank0.bin and rank 1 in"));
    ck_assert_str_eq(f->file, "pytorch_model_fsdp_0_rank1.bin");
    ckpt_report_free(report);
}
END_TEST

START_TEST(fsdp_cuts_what_tensor_parallel_left)
{
    static const logical two[] = {{"w", 1, {9, 0}, {{'T', 0, 2}, {'S', 0, 1}}}},
                         three[] = {{"w", 1, {9, 0}, {{'T', 0, 6}, {'T', 0, 2}, {'S', 0, 1}}}};
    run r = {.ndim = 2, .sizes = {4, 2}, .tensors = two, .count = 1};
    write_run("a", &r);
    expect_model(at("a"), &r);
    r.work = true;
    write_run("b", &r);
    expect_model(at("b"), &r);
    const run ambiguous = {.ndim = 3, .sizes = {2, 3, 2}, .tensors = three, .count = 1, .work = true};
    write_run("c", &ambiguous);
    expect_model(at("c"), &ambiguous);
}
END_TEST

START_TEST(meshes_of_older_torch_are_read)
{
    run r = {.ndim = 2, .sizes = {2, 3}, .tensors = over_two, .count = 10, .old = true};
    write_run("a", &r);
    expect_model(at("a"), &r);
    r.blind = true; /* the place in the list of ranks tells it */
    write_run("b", &r);
    expect_model(at("b"), &r);
    r.old = false;
    write_run("c", &r);
    expect_model(at("c"), &r);
}
END_TEST

static const sharded rows[] = {
    {.size = 7, .columns = 3, .lo = {0, 4}, .count = {4, 3}, .ranks = 2, .name = "w"},
    {.size = 2, .columns = 0, .lo = {0, 1, 2}, .count = {1, 1, 0}, .ranks = 3, .name = "w"},
    {.size = 4, .columns = 2, .lo = {0, 2, 0, 2}, .count = {2, 2, 2, 2}, .ranks = 4, .name = "w"}};

START_TEST(shards_of_fsdp1_are_one_tensor)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char in[20];
        ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
        snprintf(in, sizeof in, "c%d", (int)i);
        write_sharded(in, &rows[i]);
        opens(at("%s", in));
        expect_values("model.w", rows[i].size * (rows[i].columns ? rows[i].columns : 1), 0);
        ck_assert_ptr_null(ckpt_report_find(ckpt_reader_findings(reader), "flat-parameters", NULL));
        ck_assert_int_eq(ckpt_verify(at("%s", in), NULL, &result, NULL, &err), CKPT_OK);
        ck_assert_int_eq(unlink(model_path(in, rows[i].ranks - 1)), 0);
        fails(at("%s", in), CKPT_E_DAMAGED, "is missing");
    }
}
END_TEST

START_TEST(flat_parameters_are_said_to_be_flat)
{
    const sharded local = {.size = 9, .lo = {0, 5}, .count = {5, 4}, .ranks = 2, .name = "block._flat_param"};
    write_sharded("c", &local);
    for (int rank = 0; rank < 2; rank++)
        ck_assert_int_eq(rename(model_path("c", rank), at("c/pytorch_model_fsdp_rank%d.bin", rank)), 0);
    opens(at("c"));
    expect_values("model.block._flat_param", 9, 0);
    const ckpt_finding *f = ckpt_report_find(ckpt_reader_findings(reader), "flat-parameters", NULL);
    ck_assert(f && strstr(f->message, "in no file"));
}
END_TEST

/* FSDP1 with use_orig_params, LOCAL_STATE_DICT: beside its part of the flat parameter a rank has views of it, of the elements that it
 * has of each parameter; a buffer that each rank has for itself has a storage of its own. */
static void write_views(const char *in, const sharded *local, const int64_t *count)
{
    mkdir(at("%s", in), 0700);
    for (int rank = 0; rank < local->ranks; rank++) {
        torch_file *t = begin_torch();
        const view own = {.class_name = "FloatStorage",
                          .key = "0",
                          .location = "cpu",
                          .numel = local->count[rank],
                          .ndim = 1,
                          .stride_count = 1,
                          .shape = {count[rank]},
                          .strides = {1}};
        PUT(&t->pickle, "}(");
        put_str(&t->pickle, local->name);
        put_sharded(t, local, rank);
        put_str(&t->pickle, "block.weight");
        put_tensor(&t->pickle, &own);
        put_str(&t->pickle, "block.mean");
        torch_tensor(t, 1, 3, 1, (float)rank);
        PUT(&t->pickle, "u");
        write_torch(at("%s/pytorch_model_fsdp_rank%d.bin", in, rank), t);
    }
}

START_TEST(names_in_flat_parameters_are_no_replicas)
{
    const sharded local = {.size = 9, .lo = {0, 5}, .count = {5, 4}, .ranks = 2, .name = "block._flat_param"};
    const int64_t uneven[] = {5, 2}, even[] = {3, 3}, counts[] = {0, 4};
    const int64_t *const cuts[] = {uneven, even, counts};
    for (int i = 0; i < 3; i++) {
        char in[20];
        snprintf(in, sizeof in, "f%d", i);
        write_views(in, &local, cuts[i]);
        opens(at("%s", in));
        size_t number;
        ck_assert_int_eq(ckpt_reader_find(reader, "rank_1.model.block.weight", 25, &number, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_reader_tensor(reader, number)->nbytes, cuts[i][1] * 4);
        const ckpt_report *found = ckpt_reader_findings(reader);
        const ckpt_finding *f = ckpt_report_find(found, "flat-parameters", NULL);
        ck_assert(f && strstr(f->message, "1 parameter is there"));
        f = ckpt_report_find(found, "replicas-differ", NULL); /* of the buffer, and of nothing else */
        ck_assert(f && f->tensor && strcmp(f->tensor, "model.block.mean") == 0);
        ck_assert_ptr_null(ckpt_report_find(found, "replicas-differ", "model.block.weight"));
    }
}
END_TEST

/* ---- whole checkpoints */

static const run two_ranks = {.ndim = 1, .sizes = {2}, .tensors = over_one, .count = 4};

static void write_all(const char *in)
{
    mkdir(at("%s", in), 0700);
    for (int rank = 0; rank < 2; rank++) {
        write_model(at("%s/model_world_size_2_rank_%d.pt", in, rank), &two_ranks, rank);
        write_optimizer(at("%s/optim_world_size_2_rank_%d.pt", in, rank), &two_ranks, rank, 3, 9);
        write_extra(at("%s/extra_state_world_size_2_rank_%d.pt", in, rank), rank, 3);
    }
}

START_TEST(an_optimizer_and_what_each_rank_has_of_its_own)
{
    write_all("v");
    opens(at("v"));
    for (int i = 0; i < 4; i++) {
        char name[80];
        snprintf(name, sizeof name, "optimizer.state.%s.exp_avg_sq", over_one[i].name);
        expect_values(name, numel(&over_one[i]), 20 + i);
    }
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4 + 1 + 3 * 4);
    const ckpt_value *root = ckpt_reader_root(reader), *extra = ckpt_value_get(root, "extra_state"), *one;
    ck_assert_int_eq(ckpt_value_get(ckpt_value_get(extra, "lr_scheduler"), "last_epoch")->integer, 3);
    ck_assert_ptr_null(ckpt_value_get(extra, "rng"));
    ck_assert_int_eq(ckpt_value_find(root, "rank_1.extra_state.rng.random", &one, &err), CKPT_OK);
    ck_assert_int_eq(one->integer, 41);
    ck_assert_int_eq(ckpt_value_find(root, "rank_0.extra_state.rng.name", &one, &err), CKPT_OK);
    ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(reader), "ranks-differ", NULL));
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_str_eq(s.producer, "verl");
    ckpt_summary_clear(&s);
}
END_TEST

/* As FSDP1 writes it: an optimizer that is not sharded counts in place, so what it loads must not be one tensor. */
START_TEST(steps_that_are_one_tensor_become_several)
{
    const run r = {.ndim = 1, .sizes = {2}, .tensors = over_one, .count = 4, .one_step = true};
    ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
    int64_t storages[4] = {-1, -1, -1, -1};
    mkdir(at("s"), 0700);
    for (int rank = 0; rank < 2; rank++) {
        write_model(at("s/model_world_size_2_rank_%d.pt", rank), &r, rank);
        write_optimizer(at("s/optim_world_size_2_rank_%d.pt", rank), &r, rank, 6, 0);
    }
    options.to = "torch";
    options.verify = true;
    ck_assert_msg(ckpt_migrate(at("s"), at("steps.pt"), &options, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(open_with(at("steps.pt"), NULL), CKPT_OK);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 4 + 1 + 3 * 4);
    for (int i = 0; i < 4; i++) {
        char name[80];
        float step = 0;
        size_t number;
        snprintf(name, sizeof name, "optimizer.state.%s.step", over_one[i].name);
        ck_assert_int_eq(ckpt_reader_find(reader, name, strlen(name), &number, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_reader_read(reader, number, &step, sizeof step, &err), CKPT_OK);
        ck_assert(step == 6);
        storages[i] = ckpt_reader_tensor(reader, number)->storage;
        for (int k = 0; k < i; k++)
            ck_assert_int_ne(storages[k], storages[i]);
    }
}
END_TEST

START_TEST(it_becomes_a_file_of_torch)
{
    ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
    write_all("v");
    options.to = "torch";
    options.verify = true;
    ckpt_status status = ckpt_migrate(at("v"), at("out.pt"), &options, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(open_with(at("out.pt"), NULL), CKPT_OK);
    expect_values("model.uneven", 14, 1);
    expect_values("optimizer.state.columns.exp_avg", 15, 12);
}
END_TEST

START_TEST(what_lies_beside_goes_along)
{
    write_run("c", &two_ranks);
    write_torch_int(at("c/scheduler.bin"), "last_epoch", 6);
    write_torch_int(at("c/random_states_0.pkl"), "step", 5);
    write_torch_int(at("c/random_states_1.pkl"), "step", 5);
    make_directory("c/huggingface");
    write_text(at("c/huggingface/config.json"), "{}");
    opens(at("c"));
    const ckpt_value *root = ckpt_reader_root(reader);
    ck_assert_int_eq(ckpt_value_get(ckpt_value_get(root, "scheduler.bin"), "last_epoch")->integer, 6);
    ck_assert_ptr_nonnull(ckpt_value_get(root, "random_states_1.pkl"));
    expect_values("model.even", 24, 0);
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_str_eq(s.producer, "accelerate");
    ckpt_summary_clear(&s);
}
END_TEST

/* ---- faults */

START_TEST(a_rank_without_its_file_is_named)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    const run r = {.ndim = 1, .sizes = {3}, .tensors = over_one, .count = 9};
    options.leave_damaged = true;
    for (int rank = 0; rank < 3; rank++) {
        char in[20], name[80];
        ckpt_report *report = ckpt_report_new();
        snprintf(in, sizeof in, "c%d", rank);
        write_run(in, &r);
        ck_assert_int_eq(unlink(model_path(in, rank)), 0);
        snprintf(name, sizeof name, "pytorch_model_fsdp_0_rank%d.bin", rank);
        fails(at("%s", in), CKPT_E_DAMAGED, name);
        ck_assert_ptr_nonnull(strstr(err.message, "is missing"));
        ck_assert_int_eq(open_with(at("%s", in), &options), CKPT_OK);
        ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(reader), "shard-missing", NULL));
        expect_values("model.copy", 5, 4);
        ck_assert_int_ne(ckpt_verify(at("%s", in), NULL, &result, report, &err), CKPT_OK);
        ck_assert_ptr_nonnull(ckpt_report_find(report, "pieces-missing", "model.even"));
        ckpt_report_free(report);
    }
    write_all("v");
    ck_assert_int_eq(unlink(at("v/optim_world_size_2_rank_1.pt")), 0);
    fails(at("v"), CKPT_E_DAMAGED, "optim_world_size_2_rank_1.pt");
}
END_TEST

START_TEST(files_of_several_runs_do_not_mix)
{
    run r = two_ranks;
    const logical other[] = {{"even", 2, {8, 4}, {{'S', 0, 1}}}};
    const logical turned[] = {{"even", 2, {8, 3}, {{'S', 1, 1}}}};
    const run shape = {.ndim = 1, .sizes = {2}, .tensors = other, .count = 1},
              cuts = {.ndim = 1, .sizes = {2}, .tensors = turned, .count = 1},
              three = {.ndim = 1, .sizes = {3}, .tensors = over_one, .count = 4};
    write_run("c", &r);
    write_model(model_path("c", 1), &shape, 1);
    fails(at("c"), CKPT_E_MISMATCH, "the shape of 'even' is [8, 4]");
    write_model(model_path("c", 1), &cuts, 1);
    fails(at("c"), CKPT_E_MISMATCH, "placement");
    write_model(model_path("c", 1), &three, 1);
    fails(at("c"), CKPT_E_MISMATCH, "the mesh of 'even' is [3]");
    write_model(model_path("c", 1), &r, 1);
    write_model(model_path("c", 2), &three, 2); /* left over from a larger run */
    fails(at("c"), CKPT_E_MISMATCH, "pytorch_model_fsdp_0_rank2.bin");
    ck_assert_int_eq(unlink(model_path("c", 2)), 0);
    r.liar = 2;
    write_model(model_path("c", 1), &r, 1);
    fails(at("c"), CKPT_E_MISMATCH, "of rank 0, and its name says rank 1");
    r.liar = 0;
    write_model(model_path("c", 1), &r, 1);
    write_model(at("c/pytorch_model_fsdp_rank1.bin"), &r, 1);
    fails(at("c"), CKPT_E_MISMATCH, "are both of rank 1");
}
END_TEST

START_TEST(files_of_several_steps_do_not_mix)
{
    write_all("v");
    write_optimizer(at("v/optim_world_size_2_rank_1.pt"), &two_ranks, 1, 4, 9);
    fails(at("v"), CKPT_E_MISMATCH, "files of one step");
    write_optimizer(at("v/optim_world_size_2_rank_1.pt"), &two_ranks, 1, 3, 8);
    fails(at("v"), CKPT_E_MISMATCH, "param_groups");
    write_optimizer(at("v/optim_world_size_2_rank_1.pt"), &two_ranks, 1, 3, 9);
    write_extra(at("v/extra_state_world_size_2_rank_1.pt"), 1, 4);
    fails(at("v"), CKPT_E_MISMATCH, "lr_scheduler");
    write_extra(at("v/extra_state_world_size_2_rank_1.pt"), 1, 3);
    write_extra(at("v/extra_state_world_size_4_rank_1.pt"), 1, 3);
    fails(at("v"), CKPT_E_MISMATCH, "runs of different sizes");
}
END_TEST

START_TEST(a_file_that_is_cut_off_is_named)
{
    struct stat st;
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    write_run("c", &two_ranks);
    ck_assert_int_eq(stat(model_path("c", 1), &st), 0);
    options.leave_damaged = true;
    for (long less = 1; less < st.st_size; less = less * 3 + 1) {
        write_model(model_path("c", 1), &two_ranks, 1);
        ck_assert_int_eq(truncate(model_path("c", 1), (long)st.st_size - less), 0);
        ck_assert_int_lt(open_with(at("c"), NULL), 0);
        ck_assert_msg(strstr(err.object, "rank1"), "%s: %s", err.object, err.message);
        ck_assert_int_eq(open_with(at("c"), &options), CKPT_OK);
    }
}
END_TEST

/* One tensor over two ranks that says something odd. */
START_TEST(what_cannot_be_put_together_is_refused)
{
    static const struct {
        cut cut;
        int64_t mesh;
        int shorter;
        ckpt_status status;
        const char *words;
    } cases[] = {{{'P', 0, 1}, 0, 0, CKPT_E_UNSUPPORTED, "Partial"},
                 {{'X', 0, 1}, 0, 0, CKPT_E_UNSUPPORTED, "not known"},
                 {{'S', 2, 1}, 0, 0, CKPT_E_FORMAT, "of a tensor of 2 dimensions"},
                 {{'S', -1, 1}, 0, 0, CKPT_E_FORMAT, "cuts dimension -1"},
                 {{'S', INT64_MAX, 1}, 0, 0, CKPT_E_FORMAT, "of a tensor of 2 dimensions"},
                 {{'T', 0, 0}, 0, 0, CKPT_E_FORMAT, "split factor"},
                 {{'S', 0, 1}, 0, 2, CKPT_E_FORMAT, "it should have [4, 3]"},
                 {{'S', 0, 1}, 1000000000, 0, CKPT_E_FORMAT, "it should have [1, 3]"},
                 {{'S', 0, 1}, INT64_MAX, 0, CKPT_E_FORMAT, "it should have [1, 3]"},
                 {{'S', 0, 1}, -2, 0, CKPT_E_UNSUPPORTED, "not understood"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const logical odd[] = {{"w", 2, {8, 3}, {cases[i].cut}}};
        const run r = {.ndim = 1,
                       .sizes = {2},
                       .tensors = odd,
                       .count = 1,
                       .mesh_says = cases[i].mesh,
                       .shorter = cases[i].shorter};
        char in[20];
        snprintf(in, sizeof in, "c%d", (int)i);
        write_run(in, &r);
        fails(at("%s", in), cases[i].status, cases[i].words);
        ck_assert_msg(strstr(err.object, "model.w"), "%s", err.object);
    }
}
END_TEST

/* A split of a billion chunks over a billion elements, of which the file has none. */
START_TEST(a_split_without_end_is_refused)
{
    const int64_t shape[] = {1000000000};
    for (int rank = 0; rank < 2; rank++) {
        const logical none[] = {{"w", 1, {4, 0}, {{'T', 0, 500000000}}}};
        const run r = {.ndim = 1, .sizes = {2}, .tensors = none, .count = 1};
        torch_file *t = begin_torch();
        bytes *b = &t->pickle;
        PUT(b, "}(");
        put_str(b, "w");
        begin_shell(b, "torch.distributed.tensor", "DTensor", 1, shape);
        PUT(b, "N}(");
        put_str(b, "_local_tensor");
        torch_tensor(t, 1, 4, 0, 0);
        put_str(b, "_spec");
        begin_object(b, "torch.distributed.tensor._dtensor_spec", "DTensorSpec");
        put_str(b, "mesh");
        put_mesh(t, &r, rank);
        put_str(b, "placements");
        PUT(b, "(");
        put_cut(b, &none[0].cuts[0]);
        PUT(b, "t");
        end_object(b);
        PUT(b, "u\x86tRu");
        if (rank == 0)
            mkdir(at("c"), 0700);
        write_torch(model_path("c", rank), t);
    }
    fails(at("c"), CKPT_E_LIMIT, "chunks");
}
END_TEST

/* Numbers of ranks by the files' names, and files that are none. */
START_TEST(ranks_that_cannot_be_are_refused)
{
    static const char *const names[] = {"model_world_size_999999999_rank_0.pt",
                                        "model_world_size_999999999_rank_999999998.pt",
                                        "pytorch_model_fsdp_0_rank999999999.bin", "model_world_size_2_rank_7.pt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        anew();
        mkdir(at("c"), 0700);
        write_model(at("c/%s", names[i]), &two_ranks, 0);
        ck_assert_int_lt(open_with(at("c"), NULL), 0);
        ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
        options.leave_damaged = true;
        (void)open_with(at("c"), &options); /* it ends, and with few findings */
        ck_assert(!reader || ckpt_report_count(ckpt_reader_findings(reader)) < 100);
    }
    for (int kind = 0; kind < 3; kind++) {
        anew();
        write_run("c", &two_ranks);
        const char *path = model_path("c", 1);
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(kind == 0   ? mkfifo(path, 0600)
                         : kind == 1 ? symlink("/dev/zero", path)
                                     : mkdir(path, 0700),
                         0);
        ck_assert_int_lt(open_with(at("c"), NULL), 0);
        ck_assert_msg(strstr(err.object, "rank1") || strstr(err.message, "rank1"), "%s: %s", err.object, err.message);
    }
}
END_TEST

START_TEST(shards_that_lie_wrong_are_refused)
{
    static const struct {
        int64_t lo, count;
        const char *words;
    } cases[] = {
        {5, 3, "outside of its shape"}, {-1, 3, "outside of its shape"}, {INT64_MAX, 3, "outside of its shape"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sharded s = {
            .size = 7, .columns = 3, .lo = {0, cases[i].lo}, .count = {4, cases[i].count}, .ranks = 2, .name = "w"};
        char in[20];
        snprintf(in, sizeof in, "c%d", (int)i);
        write_sharded(in, &s);
        fails(at("%s", in), CKPT_E_FORMAT, cases[i].words);
    }
    const sharded meet = {.size = 7, .columns = 3, .lo = {0, 2}, .count = {4, 5}, .ranks = 2, .name = "w"};
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    write_sharded("m", &meet);
    ck_assert_int_ne(ckpt_verify(at("m"), NULL, &result, report, &err), CKPT_OK);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "pieces-overlap", "model.w"));
    ckpt_report_free(report);
    float values[21];
    ck_assert_int_eq(open_with(at("m"), NULL), CKPT_OK);
    ck_assert_int_lt(ckpt_reader_read(reader, 0, values, sizeof values, &err), 0);
}
END_TEST

/* Each allocation fails in turn: what comes of it is an error of memory, or the whole checkpoint. */
START_TEST(an_allocation_that_fails_is_said)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    bool done = false;
    options.format = "fsdp"; /* which format it is, is another question */
    write_all("v");
    for (long n = 0; !done; n++) {
        allocations_left = n;
        ckpt_status status = open_with(at("v"), &options);
        done = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_E_NO_MEMORY || status == CKPT_OK, "allocation %ld: %d, %s", n, (int)status,
                      err.message);
        if (status == CKPT_OK)
            expect_values("optimizer.state.even.exp_avg", 24, 10);
        ck_assert_int_lt(n, 100000);
    }
    ck_assert_ptr_nonnull(reader);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fsdp");
    TCase *t = tcase_create("fsdp");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_parts_of_all_ranks_are_one_tensor);
    tcase_add_test(t, a_mesh_of_two_dimensions_cuts_twice);
    tcase_add_test(t, replicas_that_differ_are_found);
    tcase_add_test(t, whole_tensors_that_differ_are_found);
    tcase_add_test(t, fsdp_cuts_what_tensor_parallel_left);
    tcase_add_test(t, meshes_of_older_torch_are_read);
    tcase_add_test(t, shards_of_fsdp1_are_one_tensor);
    tcase_add_test(t, flat_parameters_are_said_to_be_flat);
    tcase_add_test(t, names_in_flat_parameters_are_no_replicas);
    tcase_add_test(t, an_optimizer_and_what_each_rank_has_of_its_own);
    tcase_add_test(t, steps_that_are_one_tensor_become_several);
    tcase_add_test(t, it_becomes_a_file_of_torch);
    tcase_add_test(t, what_lies_beside_goes_along);
    tcase_add_test(t, a_rank_without_its_file_is_named);
    tcase_add_test(t, files_of_several_runs_do_not_mix);
    tcase_add_test(t, files_of_several_steps_do_not_mix);
    tcase_add_test(t, a_file_that_is_cut_off_is_named);
    tcase_add_test(t, what_cannot_be_put_together_is_refused);
    tcase_add_test(t, a_split_without_end_is_refused);
    tcase_add_test(t, ranks_that_cannot_be_are_refused);
    tcase_add_test(t, shards_that_lie_wrong_are_refused);
    tcase_add_test(t, an_allocation_that_fails_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
