/* Every allocation fails in turn, once and for ever: an error that says so, nothing half done, nothing leaked (the
 * sanitizer build looks), and the checkpoint of before is still there. The linker sends the library's allocations here
 * (--wrap). */
#include "../unit/state_fixture.h"

#include "nomem.h"

static training a, b;
static ckpt_state *sa, *sb;
static char native[128], data[512];

static const char *fixture(const char *name)
{
    const char *srcdir = getenv("srcdir");
    snprintf(data, sizeof data, "%s/tests/data/%s", srcdir ? srcdir : ".", name);
    return data;
}

static void setup(void)
{
    ckpt_error err = CKPT_ERROR_INIT;
    make_folder();
    fill(&a, 1);
    fill(&b, 2);
    sa = bind_all(&a);
    sb = bind_all(&b);
    strcpy(native, in_folder("a.safetensors"));
    OK(ckpt_save(sa, native, NULL, &err));
}

static void teardown(void)
{
    ckpt_state_free(sa);
    ckpt_state_free(sb);
    remove_folder();
}

static ckpt_status save_b(ckpt_error *err)
{
    return ckpt_save(sb, native, NULL, err);
}

/* After a failure the first file is still there, and alone; after a success the second. */
static void file_is_whole(ckpt_status status)
{
    ckpt_error err = CKPT_ERROR_INIT;
    training c;
    fill(&c, 9);
    ckpt_state *s = bind_all(&c);
    OK(ckpt_restore(s, native, NULL, NULL, &err));
    ck_assert_int_eq(c.step, status < 0 ? a.step : b.step);
    ckpt_state_free(s);
    if (status >= 0)
        OK(ckpt_save(sa, native, NULL, &err));
    char command[160];
    snprintf(command, sizeof command, "test $(ls -A '%s' | wc -l) = 1", folder);
    ck_assert_msg(system(command) == 0, "something was left beside the checkpoint");
}

START_TEST(saves)
{
    each_allocation(save_b, file_is_whole);
}
END_TEST

static ckpt_status save_directory(ckpt_error *err)
{
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    o.directory = true;
    return ckpt_save(sb, in_folder("step"), &o, err);
}

START_TEST(saves_of_directories)
{
    each_allocation(save_directory, NULL);
}
END_TEST

static ckpt_status restore_b(ckpt_error *err)
{
    return ckpt_restore(sb, native, NULL, NULL, err);
}

static void state_is_whole(ckpt_status status)
{
    training old;
    fill(&old, 2);
    if (status < 0 && !ckpt_state_poisoned(sb))
        ck_assert(memcmp(&old, &b, sizeof b) == 0);
    if (status >= 0)
        ck_assert(memcmp(&a, &b, sizeof b) == 0);
    b = old;
}

START_TEST(restores)
{
    each_allocation(restore_b, state_is_whole);
}
END_TEST

static int count_values(void *ctx, const ckpt_visit *v)
{
    (void)v;
    ++*(int *)ctx;
    return 0;
}

static const char *torch_file;

static ckpt_status read_all(ckpt_error *err)
{
    ckpt_reader *r;
    int values = 0;
    ckpt_status status = ckpt_reader_open(torch_file, NULL, &r, err);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(ckpt_reader_root(r), 0, count_values, &values, err);
    const ckpt_value *none;
    if (status == CKPT_OK &&
        (status = ckpt_value_find(ckpt_reader_root(r), "optimizer.nothing", &none, err)) == CKPT_E_NOT_FOUND)
        status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < ckpt_reader_tensor_count(r); i++) {
        uint32_t crc;
        if (!ckpt_reader_tensor(r, i)->extra->layout.data && ckpt_reader_tensor(r, i)->storage >= 0)
            status = ckpt_reader_crc32(r, i, &crc, err);
    }
    ckpt_reader_close(r);
    return status;
}

START_TEST(torch_files_are_read)
{
    static const char *const names[] = {"cli/values.pt",
                                        "cli/tensors.pt",
                                        "cli/fused-step-cpu.pt",
                                        "peers/lightning.ckpt",
                                        "peers/torch-1.13-legacy.pt",
                                        "peers/libtorch-optimizer.pt",
                                        "peers/hf-sharded",
                                        "peers/accelerate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        torch_file = fixture(names[i]);
        each_allocation(read_all, NULL);
    }
}
END_TEST

static ckpt_status migrate_torch(ckpt_error *err)
{
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.map_location = "cuda:0=cpu";
    o.force = o.verify = o.lossy = true;
    return ckpt_migrate(torch_file, in_folder("m.safetensors"), &o, NULL, err);
}

/* With what edits the tree and converts, to another torch file and from there to shards. */
static ckpt_status transform(ckpt_error *err)
{
    static const char *const drops[] = {"*.bias"}, *const casts[] = {"*weight=bfloat16"}, *const strips[] = {"module."};
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "torch";
    o.map_location = "cuda:0=cuda:1";
    o.drop = drops;
    o.cast = casts;
    o.strip_prefix = strips;
    o.drop_count = o.cast_count = o.strip_prefix_count = 1;
    o.add_prefix = "model.";
    o.plain = o.map_device_objects = true;
    o.force = o.verify = o.lossy = o.salvage = o.allow_unused = true;
    return ckpt_migrate(torch_file, in_folder("m.pt"), &o, NULL, err);
}

/* A tensor that keeps its place, and rules that match nothing, for which better ones are looked for. */
static ckpt_status replace(ckpt_error *err)
{
    static const char *const globs[] = {"2.*", "modle.2"}, *const drops[] = {"epochs"};
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "torch";
    o.replace = globs;
    o.replace_count = 2;
    o.drop = drops;
    o.drop_count = 1;
    o.force = o.allow_unused = true;
    return ckpt_migrate(torch_file, in_folder("m.pt"), &o, NULL, err);
}

static ckpt_status weights_alone(ckpt_error *err)
{
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "safetensors";
    o.force = o.weights_only = true;
    return ckpt_migrate(torch_file, in_folder("w.safetensors"), &o, NULL, err);
}

static ckpt_status no_optimizer(ckpt_error *err)
{
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "torch";
    o.force = o.no_optimizer = true;
    return ckpt_migrate(torch_file, in_folder("n.pt"), &o, NULL, err);
}

/* Moments without a group, for torch: a group is made, and steps. */
static ckpt_status make_group(ckpt_error *err)
{
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "torch";
    o.force = true;
    return ckpt_migrate(data, in_folder("g.pt"), &o, NULL, err);
}

static void save_without_group(const char *path)
{
    static float values[3][4];
    static int64_t steps = 3;
    static const int64_t four = 4;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, &four, NULL, values[0]);
    bind_tensor(s, NULL, "w", CKPT_ROLE_EXP_AVG, CKPT_F32, 1, &four, NULL, values[1]);
    bind_tensor(s, NULL, "w", CKPT_ROLE_EXP_AVG_SQ, CKPT_F32, 1, &four, NULL, values[2]);
    OK(ckpt_state_i64(s, "step", &steps, &err));
    OK(ckpt_save(s, path, NULL, &err));
    ckpt_state_free(s);
}

static char kept_file[700], bad_file[700];

/* A native file that keeps the structure of a torch file, whose names, flags and tensors change along. */
static ckpt_status edit_along(ckpt_error *err)
{
    static const char *const renames[] = {"^(.*)weight$=$1w"}, *const drops[] = {"*.bias"};
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.rename = renames;
    o.drop = drops;
    o.rename_count = o.drop_count = 1;
    o.optimizer = CKPT_OPTIMIZER_FUSED;
    o.force = o.lossy = o.allow_unused = true;
    return ckpt_migrate(kept_file, in_folder("along.safetensors"), &o, NULL, err);
}

/* An optimizer of libtorch becomes one of torch's; what a damaged storage is needed for goes. */
static ckpt_status as_torch(ckpt_error *err)
{
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "torch";
    o.force = o.lossy = o.salvage = true;
    return ckpt_migrate(torch_file, in_folder("t.pt"), &o, NULL, err);
}

/* One bit of the floats that are all 1 or all 2, which an object and a set of closed.pt have. */
static void damage(const char *from, const char *to)
{
    static char bytes[1 << 16];
    FILE *f = fopen(from, "rb");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (int i = 1; i < 3; i++) {
        const float is[3] = {(float)i, (float)i, (float)i};
        char *at = memmem(bytes, n, is, sizeof is);
        ck_assert_ptr_nonnull(at);
        at[0] ^= 1;
    }
    f = fopen(to, "wb");
    ck_assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static ckpt_status make_shards(ckpt_error *err)
{
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "hf";
    o.max_shard_size = 1000;
    o.force = o.lossy = true;
    return ckpt_migrate(torch_file, in_folder("shards"), &o, NULL, err);
}

static ckpt_status verify_native(ckpt_error *err)
{
    ckpt_verify_result v = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *r = ckpt_report_new();
    ckpt_status status = ckpt_verify(native, NULL, &v, r, err);
    ckpt_report_free(r);
    return status;
}

static ckpt_status diagnose(ckpt_error *err)
{
    ckpt_reader *r;
    ckpt_doctor_options o;
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    memset(&o, 0, sizeof o);
    memset(&result, 0, sizeof result);
    ckpt_report *report = ckpt_report_new();
    ckpt_status status = report ? ckpt_reader_open(torch_file, NULL, &r, err) : CKPT_OK;
    if (report && status == CKPT_OK) {
        status = ckpt_doctor(r, &o, &result, report, err);
        ckpt_doctor_result_clear(&result);
        ckpt_reader_close(r);
    }
    ckpt_report_free(report);
    return status;
}

START_TEST(the_commands_work)
{
    torch_file = fixture("cli/fused-step-cpu.pt");
    each_allocation(migrate_torch, NULL);
    each_allocation(verify_native, NULL);
    each_allocation(diagnose, NULL);
}
END_TEST

START_TEST(checkpoints_are_rewritten)
{
    static const char *const names[] = {"cli/namespace.pt", "peers/torch-1.13-legacy.pt", "peers/libtorch-module.pt",
                                        "peers/accelerate", "torch_write/odd.pt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        torch_file = fixture(names[i]);
        each_allocation(transform, NULL);
    }
    torch_file = fixture("peers/hf-sharded");
    each_allocation(make_shards, NULL);
    torch_file = fixture("cli/plain.pt");
    each_allocation(replace, NULL);
    torch_file = fixture("torch-handover/ar-ckpt-mixed.pth");
    each_allocation(weights_alone, NULL);
    each_allocation(no_optimizer, NULL);
    snprintf(data, sizeof data, "%s", in_folder("n.safetensors"));
    save_without_group(data);
    each_allocation(make_group, NULL);
}
END_TEST

START_TEST(other_trees_are_made)
{
    ckpt_migrate_options o;
    ckpt_error err = CKPT_ERROR_INIT;
    memset(&o, 0, sizeof o);
    o.force = true;
    snprintf(kept_file, sizeof kept_file, "%s", in_folder("kept.safetensors"));
    OK(ckpt_migrate(fixture("cli/fused-step-cpu.pt"), kept_file, &o, NULL, &err));
    each_allocation(edit_along, NULL);
    torch_file = fixture("peers/libtorch-optimizer.pt");
    each_allocation(as_torch, NULL);
    snprintf(bad_file, sizeof bad_file, "%s", in_folder("bad.pt"));
    damage(fixture("cli/closed.pt"), bad_file);
    torch_file = bad_file;
    each_allocation(as_torch, NULL);
}
END_TEST

static ckpt_status parse_map(ckpt_error *err)
{
    static const char yaml[] =
        "map: 1\nsource: {model: a.b, strip_prefix: ['module.'], rename: [{from: 'h.(\\d+)', to: 'l.$1'}]}\n"
        "rules:\n- {name: 'vae.*', to: 'cuda:1'}\n- {tag: 'cuda:*', to: 'cuda:{rank % 8}'}\n"
        "default: 'cuda:{rank}'\n";
    ckpt_map *map = NULL;
    ckpt_status status = ckpt_map_parse_yaml(yaml, sizeof yaml - 1, "test.yaml", &map, err);
    ckpt_map_free(map);
    map = NULL;
    if (status == CKPT_OK)
        status = ckpt_map_parse("cuda:0=cuda:1,cuda:*=cuda:{(index + 1) % 2}", &map, err);
    ckpt_map_free(map);
    return status;
}

START_TEST(maps_are_read)
{
    each_allocation(parse_map, NULL);
}
END_TEST

/* ---- memory that moves, values of hooks, another head */

static unsigned char order[300];
static size_t taken;

static ckpt_status measure(void *ctx, uint64_t *size, ckpt_error *err)
{
    (void)ctx;
    (void)err;
    *size = sizeof order;
    return CKPT_OK;
}

static ckpt_status write_order(void *ctx, void *to, size_t size, ckpt_error *err)
{
    (void)ctx;
    (void)err;
    memcpy(to, order, size);
    return CKPT_OK;
}

static ckpt_status take_order(void *ctx, const void *from, size_t size, ckpt_error *err)
{
    (void)ctx;
    (void)err;
    taken += size == sizeof order && memcmp(from, order, size) == 0;
    return CKPT_OK;
}

static const ckpt_value_hooks order_hooks = {0, NULL, measure, write_order, NULL, take_order};
static ckpt_state *moving;
static float place[80];
static bool there; /* where the arena lies: at place, or behind it */

static ckpt_status rebind_arena(ckpt_error *err)
{
    ckpt_status status = ckpt_state_rebind(moving, "params", there ? place : place + 40, err);
    there ^= status == CKPT_OK;
    return status;
}

/* The names mean what they meant, and who lies where is still known. */
static void arena_is_whole(ckpt_status status)
{
    ckpt_error err = CKPT_ERROR_INIT;
    float *base = there ? place + 40 : place;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    (void)status;
    ck_assert(ckpt_state_data(moving, "a") == base && ckpt_state_data(moving, "b") == base + 4 &&
              ckpt_state_data(moving, "even") == base + 8);
    d.name = "late";
    d.dtype = CKPT_F32;
    d.ndim = 1;
    d.shape = (int64_t[]){1};
    for (int i = 0; i < 3; i++) {
        d.data = base + 4 * i;
        ck_assert_int_eq(ckpt_state_tensor(moving, &d, &err), CKPT_E_MISMATCH);
    }
    d.data = place + 79;
    ck_assert_int_eq(ckpt_state_tensor(moving, &d, &err), CKPT_E_MISMATCH);
}

START_TEST(memory_moves)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const int64_t four[] = {4};
    const ckpt_arena_entry entries[] = {{"a", 0, 1, four}, {"b", 16, 1, four}, {"even", 32, 1, four}};
    ckpt_arena_desc d = CKPT_ARENA_DESC_INIT;
    moving = ckpt_state_new();
    there = false;
    d.name = "params";
    d.dtype = CKPT_F32;
    d.nbytes = 48;
    d.data = place;
    OK(ckpt_state_arena(moving, &d, entries, 3, &err));
    bind_tensor(moving, "last", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, four, (int64_t[]){1}, place + 76);
    each_allocation(rebind_arena, arena_is_whole);
    /* Onto another tensor: refused, whatever fails on the way back. */
    for (int n = 1; n < 24; n++)
        for (int pass = 0; pass < 2; pass++) {
            countdown = n;
            for_ever = pass;
            ckpt_status status = ckpt_state_rebind(moving, "params", place + 68, &err);
            countdown = 0;
            ck_assert(status == CKPT_E_MISMATCH || status == CKPT_E_NO_MEMORY);
            arena_is_whole(status);
        }
    ckpt_state_free(moving);
}
END_TEST

static ckpt_state *hooked[2];
static ckpt_report *odd;

static ckpt_status save_hooked(ckpt_error *err)
{
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    o.report = odd;
    return ckpt_save(hooked[0], native, &o, err);
}

static ckpt_status restore_hooked(ckpt_error *err)
{
    taken = 0;
    return ckpt_restore(hooked[1], native, NULL, odd, err);
}

static void is_taken(ckpt_status status)
{
    ck_assert_uint_eq(taken, status >= 0);
}

START_TEST(values_and_another_head)
{
    ckpt_error err = CKPT_ERROR_INIT;
    float was[2][3] = {{1, 2, 3}, {4, 5, 6}}, now[2][4] = {{7, 7, 7, 7}, {8, 8, 8, 8}}, body[2][2] = {{1, 2}, {0}},
          avg[2][2] = {{3, 4}, {0}}, sq[2][2] = {{5, 6}, {0}};
    odd = ckpt_report_new();
    memset(order, 7, sizeof order);
    for (int i = 0; i < 2; i++) {
        const int64_t shape[] = {i ? 4 : 3}, two[] = {2};
        hooked[i] = ckpt_state_new();
        bind_tensor(hooked[i], "body", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, two, NULL, body[i]);
        bind_tensor(hooked[i], NULL, "body", CKPT_ROLE_EXP_AVG, CKPT_F32, 1, two, NULL, avg[i]);
        bind_tensor(hooked[i], NULL, "body", CKPT_ROLE_EXP_AVG_SQ, CKPT_F32, 1, two, NULL, sq[i]);
        bind_tensor(hooked[i], "head", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, shape, NULL, i ? now[0] : was[0]);
        bind_tensor(hooked[i], NULL, "head", CKPT_ROLE_EXP_AVG, CKPT_F32, 1, shape, NULL, i ? now[1] : was[1]);
        OK(ckpt_state_value(hooked[i], "order", &order_hooks, &err));
    }
    OK(ckpt_state_replace(hooked[1], "head", &err));
    each_allocation(save_hooked, NULL);
    ck_assert_ptr_nonnull(ckpt_report_find(odd, "moments-incomplete", "optimizer.head.exp_avg_sq"));
    each_allocation(restore_hooked, is_taken);
    ck_assert(now[0][3] == 7 && now[1][3] == 0 && body[1][1] == 2);
    ckpt_state_free(hooked[0]);
    ckpt_state_free(hooked[1]);
    ckpt_report_free(odd);
}
END_TEST

static ckpt_status bind_some(ckpt_error *err)
{
    static float w[64];
    static double lr;
    const char *const params[] = {"x"};
    ckpt_hyper hyper = {"lr", CKPT_SCALAR_F64, &lr};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    ckpt_scaler scaler = CKPT_SCALER_INIT;
    ckpt_state *s = ckpt_state_new();
    if (!s)
        return ckpt_save(NULL, NULL, NULL, NULL) == CKPT_OK ? CKPT_OK
                                                            : (strcpy(err->message, "no memory"), CKPT_E_NO_MEMORY);
    d.name = "x";
    d.dtype = CKPT_F32;
    d.ndim = 1;
    d.shape = (int64_t[]){64};
    d.role = CKPT_ROLE_PARAM;
    d.data = w;
    g.name = "0";
    g.params = params;
    g.param_count = g.hyper_count = 1;
    g.hypers = &hyper;
    ckpt_status status = ckpt_state_tensor(s, &d, err);
    if (status == CKPT_OK)
        status = ckpt_state_alias(s, "y", "x", err);
    if (status == CKPT_OK)
        status = ckpt_state_group(s, &g, err);
    if (status == CKPT_OK)
        status = ckpt_state_scaler(s, "scaler", &scaler, err);
    if (status == CKPT_OK)
        status = ckpt_state_optional(s, "rng*", err);
    if (status == CKPT_OK)
        status = ckpt_state_replace(s, "head*", err);
    if (status == CKPT_OK)
        status = ckpt_state_value(s, "order", &order_hooks, err);
    if (status == CKPT_OK)
        status = ckpt_state_u64(s, "seed", &(uint64_t){1}, err);
    if (status == CKPT_OK)
        status = ckpt_state_rebind(s, "scaler", &(ckpt_scaler)CKPT_SCALER_INIT, err);
    ckpt_state_free(s);
    return status;
}

START_TEST(states_are_bound)
{
    each_allocation(bind_some, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("no memory");
    TCase *t = tcase_create("no memory");
    tcase_set_timeout(t, 900);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, saves);
    tcase_add_test(t, saves_of_directories);
    tcase_add_test(t, restores);
    tcase_add_test(t, torch_files_are_read);
    tcase_add_test(t, the_commands_work);
    tcase_add_test(t, checkpoints_are_rewritten);
    tcase_add_test(t, other_trees_are_made);
    tcase_add_test(t, maps_are_read);
    tcase_add_test(t, states_are_bound);
    tcase_add_test(t, memory_moves);
    tcase_add_test(t, values_and_another_head);
    suite_add_tcase(s, t);
    return run_suite(s);
}
