/* Checkpoints of megatron-core (torch_dist): a list with the plans of the ranks, records, common.pt beside them; moments in fragments get
 * the shape of their parameter where that can be proved. Each element says where in the whole it is. */
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#define READER_FORMAT "torch-dist"
#include "../reader_checks.h"
#include "../scarce_memory.h"

/* ---- a list and its records */

/* One chunk of a tensor. What is behind the sizes of its shape is 0. */
typedef struct chunk {
    const char *key;
    int ndim;
    int64_t shape[4], lo[4], size[4];
    float values[16];
} chunk;

static unsigned char records[1 << 17];
static size_t record_size, offsets[32], lengths[32];

static int64_t numel_of(const chunk *c)
{
    int64_t n = 1;
    for (int i = 0; i < c->ndim; i++)
        n *= c->size[i];
    return n;
}

/* A whole file of torch.save, of one tensor. */
static void add_chunk_record(const chunk *c, size_t number)
{
    static archive a;
    static bytes pickle;
    view v = {.class_name = "FloatStorage", .key = "0", .location = "cpu", .numel = numel_of(c)};
    memset(&a, 0, sizeof a);
    pickle.size = 0;
    v.ndim = v.stride_count = c->ndim;
    for (int i = c->ndim - 1, k = 1; i >= 0; k *= (int)c->size[i], i--) {
        v.shape[i] = c->size[i];
        v.strides[i] = k;
    }
    PUT(&pickle, "\x80\2");
    put_tensor(&pickle, &v);
    PUT(&pickle, ".");
    add_record(&a, &(record){.name = "archive/data.pkl", .data = pickle.data, .size = pickle.size, .flags = 0x808});
    add_record(&a, &(record){.name = "archive/data/0", .data = c->values, .size = (size_t)v.numel * 4, .flags = 0x808});
    add_record(&a, &(record){.name = "archive/version", .data = "3\n", .size = 2, .flags = 0x808});
    put_end(&a, a.count, "");
    offsets[number] = record_size;
    lengths[number] = a.file.size;
    ck_assert_uint_le(record_size + a.file.size, sizeof records);
    memcpy(records + record_size, a.file.data, a.file.size);
    record_size += a.file.size;
}

static void begin_object(bytes *b, const char *module, const char *name)
{
    put_global(b, module, name);
    PUT(b, ")\x81}(");
}

static void put_size(bytes *b, const char *key, const int64_t *values, int n)
{
    if (key)
        put_str(b, key);
    put_global(b, "torch", "Size");
    put_ints(b, values, n);
    PUT(b, "\x85R");
}

static void put_box(bytes *b, const chunk *c)
{
    begin_object(b, "torch.distributed.checkpoint.metadata", "ChunkStorageMetadata");
    put_size(b, "offsets", c->lo, c->ndim);
    put_size(b, "sizes", c->size, c->ndim);
    PUT(b, "ub");
}

static void put_properties(bytes *b)
{
    put_str(b, "properties");
    put_global(b, "torch.distributed.checkpoint.metadata", "TensorProperties");
    PUT(b, ")\x81(");
    put_global(b, "torch", "float32");
    put_global(b, "torch.serialization", "_get_layout");
    put_str(b, "torch.strided");
    PUT(b, "\x85R\x89");
    put_global(b, "torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING");
    PUT(b, "K\0\x85R\x89tb");
}

static void put_index(bytes *b, const chunk *c)
{
    begin_object(b, "torch.distributed.checkpoint.metadata", "MetadataIndex");
    put_str(b, "fqn");
    put_str(b, c->key);
    put_str(b, "index");
    put_int(b, 2);
    put_size(b, "offset", c->lo, c->ndim);
    PUT(b, "ub");
}

/* [MCoreSavePlan {items: [WriteItem ...]}]: the classes of the plans, in each of their places. */
static void put_plans(bytes *b, const chunk *c, const char *strange)
{
    put_str(b, "all_local_plans");
    PUT(b, "](");
    begin_object(b, "megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan");
    put_str(b, "items");
    PUT(b, "](");
    begin_object(b, "torch.distributed.checkpoint.planner", "WriteItem");
    put_str(b, "index");
    put_index(b, c);
    put_str(b, "type");
    put_global(b, "torch.distributed.checkpoint.planner", strange ? strange : "WriteItemType");
    PUT(b, "K\2\x85R");
    put_str(b, "tensor_data");
    begin_object(b, "torch.distributed.checkpoint.planner", "TensorWriteData");
    put_str(b, "chunk");
    put_box(b, c);
    put_properties(b);
    PUT(b, "ububeub");
    begin_object(b, "torch.distributed.checkpoint.planner", "SavePlan");
    PUT(b, "ube");
}

/* What differs from one checkpoint to another. */
typedef struct made {
    const chunk *chunks;
    size_t count;
    const char *whole_of; /* a key of which the list says the whole shape */
    int64_t whole[3];
    int whole_ndim;
    const char *strange; /* a class that no list needs */
    const char *sharding;
    const char *backend;
    int64_t iteration;
    bool own_class; /* the list's class is one of megatron-core's */
    int groups;     /* of the optimizer, which differ in their decay; none names its parameters. And args of 2 ranks */
} made;

static void write_list(const made *m)
{
    static bytes b;
    b.size = 0;
    PUT(&b, "\x80\2");
    if (m->own_class)
        begin_object(&b, "megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata");
    else
        begin_object(&b, "torch.distributed.checkpoint.metadata", "Metadata");
    put_str(&b, "state_dict_metadata");
    PUT(&b, "}(");
    for (size_t i = 0; i < m->count; i++) {
        if (i && strcmp(m->chunks[i].key, m->chunks[i - 1].key) == 0)
            continue;
        put_str(&b, m->chunks[i].key);
        begin_object(&b, "torch.distributed.checkpoint.metadata", "TensorStorageMetadata");
        put_properties(&b);
        put_size(&b, "size", m->chunks[i].shape, m->chunks[i].ndim);
        put_str(&b, "chunks");
        PUT(&b, "](");
        for (size_t k = i; k < m->count && strcmp(m->chunks[i].key, m->chunks[k].key) == 0; k++)
            put_box(&b, &m->chunks[k]);
        PUT(&b, "eub");
    }
    PUT(&b, "u");
    put_str(&b, "planner_data");
    PUT(&b, "N");
    put_str(&b, "storage_data");
    PUT(&b, "}(");
    for (size_t i = 0; i < m->count; i++) {
        put_index(&b, &m->chunks[i]);
        begin_object(&b, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
        put_str(&b, "relative_path");
        put_str(&b, "__0_0.distcp");
        put_str(&b, "offset");
        put_int(&b, (int64_t)offsets[i]);
        put_str(&b, "length");
        put_int(&b, (int64_t)lengths[i]);
        PUT(&b, "ub");
    }
    PUT(&b, "u");
    put_plans(&b, &m->chunks[0], m->strange);
    put_str(&b, "mcore_data");
    PUT(&b, "}(");
    for (int i = 0; m->whole_of && i < 1; i++) {
        put_str(&b, m->whole_of);
        PUT(&b, "}(");
        put_str(&b, "nd_reformulated_orig_global_shape");
        put_ints(&b, m->whole, m->whole_ndim);
        PUT(&b, "u");
    }
    PUT(&b, "uub.");
    write_to(at("iter_0000005/.metadata"), b.data, b.size);
}

static void write_common(const made *m)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "iteration");
    put_int(b, m->iteration ? m->iteration : 5);
    put_str(b, "optimizer");
    PUT(b, "}(");
    put_str(b, "param_state_sharding_type");
    put_str(b, m->sharding ? m->sharding : "fully_reshardable");
    put_str(b, "common_step");
    torch_tensor(t, 0, 0, 0, 5);
    if (m->groups) {
        put_str(b, "param_groups");
        PUT(b, "](");
        for (int i = 0; i < m->groups; i++) {
            PUT(b, "}(");
            put_str(b, "lr");
            put_int(b, 3);
            put_str(b, "weight_decay");
            put_int(b, i);
            put_str(b, "step");
            put_int(b, 5);
            PUT(b, "u");
        }
        PUT(b, "e");
    }
    PUT(b, "u");
    if (m->groups) {
        put_str(b, "checkpoint_version");
        put_int(b, 3);
        put_str(b, "args");
        begin_object(b, "argparse", "Namespace");
        put_str(b, "tensor_model_parallel_size");
        put_int(b, 2);
        put_str(b, "use_distributed_optimizer");
        PUT(b, "\x88");
        put_str(b, "num_layers");
        put_int(b, 2);
        PUT(b, "ub");
    }
    PUT(b, "u");
    write_torch(at("iter_0000005/common.pt"), t);
}

static void write_checkpoint(const made *m)
{
    char text[100];
    (void)mkdir(at("iter_0000005"), 0700);
    record_size = 0;
    for (size_t i = 0; i < m->count; i++)
        add_chunk_record(&m->chunks[i], i);
    write_list(m);
    write_common(m);
    write_to(at("iter_0000005/__0_0.distcp"), records, record_size);
    snprintf(text, sizeof text, "{\"sharded_backend\": \"%s\", \"sharded_backend_version\": 1}",
             m->backend ? m->backend : "torch_dist");
    write_text(at("iter_0000005/metadata.json"), text);
    write_text(at("latest_checkpointed_iteration.txt"), "5");
}

/* ---- what is read */

/* It has the shape, and its elements count 0, 1, 2, ... in C order. */
static void counts(const char *name, const char *shape, ckpt_role role)
{
    size_t i;
    float values[64];
    char text[80];
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", err.message);
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    ckpt__shape_text(text, sizeof text, t->shape, t->ndim);
    ck_assert_str_eq(text, shape);
    ck_assert_int_eq(t->role, role);
    ck_assert_msg(ckpt_reader_read(reader, i, values, (size_t)t->nbytes, &err) == CKPT_OK, "%s", err.message);
    for (size_t k = 0; k < t->nbytes / 4; k++)
        ck_assert_msg(values[k] == (float)k, "element %zu of %s is %g", k, name, (double)values[k]);
}

#define FC1 "decoder.layers.mlp.linear_fc1.weight"
#define AVG "optimizer.state.exp_avg." FC1
/* A gated fc1 of 2 layers, 4 rows and 2 columns over 2 ranks: the rank's rows of the gate, then those of the other half. Its moment is
 * in 4 fragments of a row each; those of layer 1 are cut within. */
static const chunk gated[] = {
    {FC1, 3, {2, 4, 2}, {0, 0, 0}, {1, 1, 2}, {0, 1}},
    {FC1, 3, {2, 4, 2}, {0, 2, 0}, {1, 1, 2}, {4, 5}},
    {FC1, 3, {2, 4, 2}, {0, 1, 0}, {1, 1, 2}, {2, 3}},
    {FC1, 3, {2, 4, 2}, {0, 3, 0}, {1, 1, 2}, {6, 7}},
    {FC1, 3, {2, 4, 2}, {1, 0, 0}, {1, 4, 2}, {8, 9, 10, 11, 12, 13, 14, 15}},
    {AVG, 4, {2, 4, 1, 2}, {0, 0, 0, 0}, {1, 1, 1, 2}, {0, 1}},
    {AVG, 4, {2, 4, 1, 2}, {0, 2, 0, 0}, {1, 1, 1, 2}, {4, 5}},
    {AVG, 4, {2, 4, 1, 2}, {0, 1, 0, 0}, {1, 1, 1, 2}, {2, 3}},
    {AVG, 4, {2, 4, 1, 2}, {0, 3, 0, 0}, {1, 1, 1, 2}, {6, 7}},
    {AVG, 4, {2, 4, 1, 2}, {1, 0, 0, 0}, {1, 1, 1, 1}, {8}},
    {AVG, 4, {2, 4, 1, 2}, {1, 0, 0, 1}, {1, 1, 1, 1}, {9}},
    {AVG, 4, {2, 4, 1, 2}, {1, 1, 0, 0}, {1, 1, 1, 2}, {10, 11}},
    {AVG, 4, {2, 4, 1, 2}, {1, 2, 0, 0}, {1, 1, 1, 2}, {12, 13}},
    {AVG, 4, {2, 4, 1, 2}, {1, 3, 0, 0}, {1, 1, 1, 2}, {14, 15}},
};
/* Cut over the columns by the ranks, and anywhere by the data-parallel ones: [3, 4] in 2 fragments of [3, 2]. */
#define FC2 "decoder.fc2.weight"
#define FC2_AVG "optimizer.state.exp_avg." FC2
static const chunk by_columns[] = {
    {FC2, 2, {3, 4}, {0, 0}, {3, 2}, {0, 1, 4, 5, 8, 9}},
    {FC2, 2, {3, 4}, {0, 2}, {3, 2}, {2, 3, 6, 7, 10, 11}},
    {FC2_AVG, 3, {1, 2, 6}, {0, 0, 0}, {1, 1, 1}, {0}},
    {FC2_AVG, 3, {1, 2, 6}, {0, 0, 1}, {1, 1, 4}, {1, 4, 5, 8}},
    {FC2_AVG, 3, {1, 2, 6}, {0, 0, 5}, {1, 1, 1}, {9}},
    {FC2_AVG, 3, {1, 2, 6}, {0, 1, 0}, {1, 1, 6}, {2, 3, 6, 7, 10, 11}},
};
enum { GATED = sizeof gated / sizeof *gated, BY_COLUMNS = sizeof by_columns / sizeof *by_columns };

START_TEST(moments_in_fragments_get_their_shape)
{
    write_checkpoint(&(made){.chunks = gated, .count = GATED}); /* by the parameter */
    opens(folder);
    counts(FC1, "[2, 4, 2]", CKPT_ROLE_PARAM);
    counts(AVG, "[2, 4, 2]", CKPT_ROLE_EXP_AVG);
    ck_assert_ptr_null(finding("layout-unknown"));
    write_checkpoint(&(made){.chunks = by_columns, .count = BY_COLUMNS, .own_class = true});
    opens(folder);
    counts(FC2, "[3, 4]", CKPT_ROLE_PARAM);
    counts(FC2_AVG, "[3, 4]", CKPT_ROLE_EXP_AVG);
    write_checkpoint(&(made){
        .chunks = by_columns + 2, .count = BY_COLUMNS - 2, .whole_of = FC2_AVG, .whole = {3, 4}, .whole_ndim = 2});
    opens(folder); /* by the list alone */
    counts(FC2_AVG, "[3, 4]", CKPT_ROLE_EXP_AVG);
    ck_assert(ckpt__str_is(ckpt_reader_tensor(reader, 0)->param, FC2));
}
END_TEST

START_TEST(what_cannot_be_proved_stays_flat)
{
    static const made cases[] = {
        {.chunks = by_columns, .count = BY_COLUMNS, .whole_of = FC2_AVG, .whole = {4, 3}, .whole_ndim = 2},
        {.chunks = by_columns + 2, .count = 4, .sharding = "fully_sharded_model_space"},
        {.chunks = by_columns + 2, .count = 4, .whole_of = FC2_AVG, .whole = {3, 5}, .whole_ndim = 2},
        {.chunks = by_columns + 2, .count = 4, .whole_of = FC2_AVG, .whole = {6, 4}, .whole_ndim = 2},
        {.chunks = by_columns + 2, .count = 4, .whole_of = FC2_AVG, .whole = {1, 3, 4}, .whole_ndim = 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t number;
        write_checkpoint(&cases[i]);
        opens(folder);
        ck_assert_ptr_nonnull(finding("layout-unknown"));
        ck_assert_int_eq(ckpt_reader_find(reader, FC2_AVG, strlen(FC2_AVG), &number, &err), CKPT_OK);
        ck_assert_uint_eq(ckpt_reader_tensor(reader, number)->ndim, 3);
    }
}
END_TEST

START_TEST(buckets_stay_flat_and_it_is_said)
{
    static const chunk bucket[] = {
        {"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg",
         1,
         {5},
         {0},
         {3},
         {0, 1, 2}},
        {"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg",
         1,
         {5},
         {3},
         {2},
         {3, 4}}};
    write_checkpoint(&(made){.chunks = bucket, .count = 2});
    opens(folder);
    counts(bucket[0].key, "[5]", CKPT_ROLE_EXP_AVG);
    ck_assert_ptr_nonnull(strstr(finding("layout-unknown")->message, "dp_reshardable"));
}
END_TEST

START_TEST(values_are_those_of_common_pt)
{
    const ckpt_value *v;
    size_t number;
    write_checkpoint(&(made){.chunks = gated, .count = GATED});
    opens(folder);
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(reader), "optimizer.param_state_sharding_type", &v, &err),
                     CKPT_OK);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "iteration")->integer, 5);
    ck_assert_int_eq(ckpt_reader_find(reader, "optimizer.common_step", 21, &number, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_tensor(reader, number)->role, CKPT_ROLE_STEP);
    ck_assert_ptr_nonnull(ckpt_value_get(ckpt_reader_root(reader), FC1));
}
END_TEST

static const ckpt_value *value_at(const char *path)
{
    const ckpt_value *v;
    ck_assert_msg(ckpt_value_find(ckpt_reader_root(reader), path, &v, &err) == CKPT_OK, "%s: %s", path, err.message);
    return v;
}

/* One of torch, which is not a part of anything: each tensor once, and the arguments of one rank. Of groups that name no parameters one is
 * made with what they have in common; the others' settings are kept beside it. */
START_TEST(it_becomes_a_file_of_torch)
{
    ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
    char out[300];
    size_t number;
    ckpt_report *report = ckpt_report_new();
    write_checkpoint(&(made){.chunks = gated, .count = GATED, .groups = 1 + _i});
    options.to = "torch";
    snprintf(out, sizeof out, "%s.pt", folder); /* never inside the source */
    ckpt_status status = ckpt_migrate(folder, out, &options, report, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt_reader_open(out, NULL, &reader, &err), CKPT_OK);
    unlink(out);
    ck_assert_str_eq(ckpt_reader_format(reader), "torch");
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 3);
    counts("model." FC1, "[2, 4, 2]", CKPT_ROLE_PARAM);
    counts("optimizer.state.0.exp_avg", "[2, 4, 2]", CKPT_ROLE_EXP_AVG);
    ck_assert_int_eq(tensor_named("optimizer.state.0.step", &number)->role, CKPT_ROLE_STEP);
    ck_assert_ptr_null(finding("part-of-checkpoint"));
    ck_assert_int_eq(value_at("args.tensor_model_parallel_size")->integer, 1);
    ck_assert(!value_at("args.use_distributed_optimizer")->boolean);
    ck_assert_int_eq(value_at("args.num_layers")->integer, 2);
    const ckpt_finding *ranks = ckpt_report_find(report, "one-rank", "args"),
                       *group = ckpt_report_find(report, "group-made", NULL);
    ck_assert_ptr_nonnull(ranks);
    ck_assert_msg(strstr(ranks->message, "tensor_model_parallel_size 2 -> 1, use_distributed_optimizer True -> False"),
                  "%s", ranks->message);
    const ckpt_value *made_group = value_at("optimizer.param_groups.0");
    ck_assert_int_eq(ckpt_value_get(made_group, "lr")->integer, 3);
    ck_assert_int_eq(ckpt_value_get(made_group, "weight_decay") != NULL, _i == 0);
    ck_assert_ptr_null(ckpt_value_get(made_group, "step"));
    ck_assert_uint_eq(value_at("saved_param_groups")->item_count, 1 + (size_t)_i);
    ck_assert_int_eq(value_at(_i ? "saved_param_groups.1.weight_decay" : "saved_param_groups.0.weight_decay")->integer,
                     _i);
    ck_assert_ptr_nonnull(group);
    ck_assert_msg(
        (strstr(group->message, "these differ, and are in 'saved_param_groups' alone: weight_decay") != NULL) == _i,
        "%s", group->message);
    ckpt_report_free(report);
}
END_TEST

START_TEST(what_is_missing_or_foreign_is_named)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    const made whole = {.chunks = gated, .count = GATED};
    options.leave_damaged = true;
    write_checkpoint(&(made){.chunks = gated, .count = GATED, .iteration = 6});
    fails(folder, CKPT_E_MISMATCH, "it is of iteration 6");
    write_checkpoint(&(made){.chunks = gated, .count = GATED, .strange = "eval"});
    fails(folder, CKPT_E_UNSUPPORTED, "eval");
    write_checkpoint(&(made){.chunks = gated, .count = GATED, .backend = "zarr"});
    fails(folder, CKPT_E_UNSUPPORTED, "'zarr'");
    write_checkpoint(&whole);
    ck_assert_int_eq(unlink(at("iter_0000005/common.pt")), 0);
    fails(folder, CKPT_E_DAMAGED, "is missing, with the iteration");
    ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
    ck_assert_ptr_nonnull(finding("shard-missing"));
    counts(AVG, "[2, 4, 2]", CKPT_ROLE_EXP_AVG);
    write_checkpoint(&whole);
    ck_assert_int_eq(unlink(at("iter_0000005/metadata.json")), 0); /* written last; the tensors are all there */
    opens(folder);
    ck_assert(finding("shard-missing") && finding("shard-missing")->severity == CKPT_SEVERITY_ERROR);
    counts(AVG, "[2, 4, 2]", CKPT_ROLE_EXP_AVG);
    write_checkpoint(&whole);
    opens(folder);
    ck_assert(!finding("shard-missing"));
    ck_assert_int_eq(truncate(at("iter_0000005/__0_0.distcp"), (off_t)record_size - 1), 0);
    fails(folder, CKPT_E_DAMAGED, "what rank 0 wrote ends at byte");
    ck_assert_int_eq(unlink(at("iter_0000005/.metadata")), 0);
    fails(folder, CKPT_E_DAMAGED, "without its .metadata");
}
END_TEST

/* Each allocation fails in turn: what comes of it is an error of memory, or the whole checkpoint. */
START_TEST(an_allocation_that_fails_is_said)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    bool done = false;
    options.format = "torch-dist";
    write_checkpoint(&(made){.chunks = gated, .count = GATED});
    for (long n = 0; !done; n++) {
        allocations_left = n;
        ckpt_status status = open_with(folder, &options);
        done = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_E_NO_MEMORY || status == CKPT_OK, "allocation %ld: %d, %s", n, (int)status,
                      err.message);
        if (status == CKPT_OK)
            counts(AVG, "[2, 4, 2]", CKPT_ROLE_EXP_AVG);
        ck_assert_int_lt(n, 100000);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("torch-dist");
    TCase *t = tcase_create("torch-dist");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, moments_in_fragments_get_their_shape);
    tcase_add_test(t, what_cannot_be_proved_stays_flat);
    tcase_add_test(t, buckets_stay_flat_and_it_is_said);
    tcase_add_test(t, values_are_those_of_common_pt);
    tcase_add_loop_test(t, it_becomes_a_file_of_torch, 0, 2);
    tcase_add_test(t, what_is_missing_or_foreign_is_named);
    tcase_add_test(t, an_allocation_that_fails_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
