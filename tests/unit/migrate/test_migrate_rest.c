/* test_migrate_rest.c - what lies beside the model and the optimizer, wherever those are found, goes into a native file under
 * its own name, and is named as lost where the target has no place for it. */
#include "../migrate_setup.h"

static const flat params[] = {{"w", 2, {3, 4}}, {"b", 1, {5, 0}}};

static void put_epoch(bytes *b)
{
    put_str(b, "epoch");
    put_int(b, 7);
    put_str(b, "args");
    PUT(b, "}");
    put_str(b, "lr");
    put_int(b, 9);
    PUT(b, "s");
}

/* One parameter in each of two dicts of the root: together they are what the optimizer holds. */
static void put_two_models(torch_file *t)
{
    put_str(&t->pickle, "enc");
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "w");
    torch_tensor(t, 2, 3, 4, 1);
    PUT(&t->pickle, "u");
    put_str(&t->pickle, "dec");
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "b");
    torch_tensor(t, 1, 5, 0, 2);
    PUT(&t->pickle, "u");
}

static void put_optimizer(torch_file *t)
{
    put_str(&t->pickle, "optimizer");
    put_adam(t, params, 2, 2, 0.1);
}

static const char *write_two_models(void)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_two_models(t);
    put_optimizer(t);
    put_epoch(&t->pickle);
    PUT(&t->pickle, "u");
    write_torch(at("x.pt"), t);
    return at("x.pt");
}

/* The root is the model's dict, and more lies in it. */
static const char *write_flat(void)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "w");
    torch_tensor(t, 2, 3, 4, 1);
    put_epoch(&t->pickle);
    PUT(&t->pickle, "u");
    write_torch(at("x.pt"), t);
    return at("x.pt");
}

/* The values lie in the model's dict and in the optimizer's. */
static const char *write_inside(void)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "model");
    PUT(b, "}(");
    put_str(b, "w");
    torch_tensor(t, 2, 3, 4, 1);
    put_str(b, "b");
    torch_tensor(t, 1, 5, 0, 2);
    put_str(b, "_extra_state"); /* what a module's get_extra_state gives: anything */
    PUT(b, "}(");
    put_epoch(b);
    PUT(b, "uu");
    put_optimizer(t);
    put_str(b, "loss_scale");
    put_int(b, 128);
    PUT(b, "su"); /* SETITEM on the optimizer's dict */
    write_torch(at("x.pt"), t);
    return at("x.pt");
}

/* [model, optimizer, {'epoch': 7, ...}] */
static const char *write_list(void)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "](}(");
    put_str(b, "w");
    torch_tensor(t, 2, 3, 4, 1);
    put_str(b, "b");
    torch_tensor(t, 1, 5, 0, 2);
    PUT(b, "u");
    put_adam(t, params, 2, 2, 0.1);
    PUT(b, "}(");
    put_epoch(b);
    PUT(b, "ue");
    write_torch(at("x.pt"), t);
    return at("x.pt");
}

static const ckpt_value *value_at(const ckpt_value *v, const char *a, const char *b)
{
    v = v ? ckpt_value_get(v, a) : NULL;
    return v && b ? ckpt_value_get(v, b) : v;
}

static void has_int(const ckpt_value *root, const char *a, const char *b, int64_t want)
{
    const ckpt_value *v = value_at(root, a, b);
    ck_assert_msg(v && v->kind == CKPT_V_INT && v->integer == want, "%s%s%s", a, b ? "." : "", b ? b : "");
}

static bool is_lost(const char *value)
{
    char text[200];
    snprintf(text, sizeof text, "the value '%s' (int)", value);
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        if (strcmp(f->code, "lost") == 0 && strcmp(f->message, text) == 0)
            return true;
    }
    return false;
}

/* The file in each format: above and below it is the dict that holds epoch and args; NULL: the root, or above itself. */
static void everything_is_there(const char *src, const char *above, const char *below, const char *epoch,
                                const char *lr, const char *other)
{
    options.lossy = false;
    ck_assert_msg(migrate(src, "ckpt", at("x.ckpt")) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_ptr_null(ckpt_report_find(report, "lost", NULL));
    ckpt_reader *r = NULL;
    ck_assert_int_eq(ckpt_reader_open(at("x.ckpt"), NULL, &r, &err), CKPT_OK);
    const ckpt_value *root = ckpt_reader_root(r), *in = above ? value_at(root, above, below) : root;
    has_int(in, "epoch", NULL, 7);
    has_int(in, "args", "lr", 9);
    ckpt_reader_close(r);
    ck_assert_int_eq(migrate(src, "safetensors", at("x.safetensors")), CKPT_E_UNSUPPORTED);
    ck_assert_msg(is_lost(epoch) && is_lost(lr) && (!other || is_lost(other)), "%s, %s, %s", epoch, lr,
                  other ? other : "");
    ck_assert(access(at("x.safetensors"), F_OK) != 0);
    ck_assert_int_eq(migrate(at("x.ckpt"), "torch", at("back.pt")), CKPT_OK);
}

START_TEST(beside_several_models)
{
    everything_is_there(write_two_models(), NULL, NULL, "epoch", "args.lr", NULL);
}
END_TEST

START_TEST(in_a_root_that_is_the_model)
{
    everything_is_there(write_flat(), NULL, NULL, "epoch", "args.lr", NULL);
}
END_TEST

START_TEST(in_the_dicts_of_model_and_optimizer)
{
    everything_is_there(write_inside(), "model", "_extra_state", "model._extra_state.epoch",
                        "model._extra_state.args.lr", "optimizer.loss_scale");
    ckpt_reader *r = NULL;
    ck_assert_int_eq(ckpt_reader_open(at("x.ckpt"), NULL, &r, &err), CKPT_OK);
    has_int(ckpt_reader_root(r), "optimizer", "loss_scale", 128);
    ck_assert_ptr_nonnull(value_at(ckpt_reader_root(r), "optimizer", "groups"));
    ck_assert_ptr_null(value_at(ckpt_reader_root(r), "model", "w")); /* it has its canonical name */
    ckpt_reader_close(r);
}
END_TEST

START_TEST(in_a_list)
{
    everything_is_there(write_list(), "2", NULL, "2.epoch", "2.args.lr", NULL);
}
END_TEST

/* {'state_dict': ..., 'optimizer_states': [...], 'global_step': 3}: Lightning's optimizer lies in a list. */
static const char *write_lightning(void)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "state_dict");
    PUT(b, "}(");
    put_str(b, "w");
    torch_tensor(t, 2, 3, 4, 1);
    put_str(b, "b");
    torch_tensor(t, 1, 5, 0, 2);
    PUT(b, "u");
    put_str(b, "optimizer_states");
    PUT(b, "](");
    put_adam(t, params, 2, 2, 0.1);
    PUT(b, "e");
    put_str(b, "global_step");
    put_int(b, 3);
    put_epoch(b);
    PUT(b, "u");
    write_torch(at("x.pt"), t);
    return at("x.pt");
}

static size_t losses_of(const char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        n += strcmp(ckpt_report_get(report, i)->code, "lost") == 0 && strstr(ckpt_report_get(report, i)->message, text);
    return n;
}

START_TEST(in_a_list_below_the_root)
{
    const char *src = write_lightning();
    ck_assert_int_eq(migrate(src, "safetensors", at("x.safetensors")), CKPT_E_UNSUPPORTED);
    ck_assert_uint_eq(losses_of("groups.0.lr"), 1); /* under the canonical name, and not under the file's own too */
    ck_assert_uint_eq(losses_of("optimizer_states"), 0);
    ck_assert_uint_eq(losses_of("the step, 3"), 1);
    ck_assert_uint_eq(losses_of("step'"), 0); /* neither 'step' nor 'global_step' once more */
    ck_assert(is_lost("epoch"));
    everything_is_there(src, NULL, NULL, "epoch", "args.lr", NULL);
    ckpt_reader *r = NULL;
    ck_assert_int_eq(ckpt_reader_open(at("back.pt"), NULL, &r, &err), CKPT_OK);
    has_int(ckpt_reader_root(r), "global_step", NULL, 3);
    const ckpt_value *list = value_at(ckpt_reader_root(r), "optimizer_states", NULL);
    ck_assert(list && list->kind == CKPT_V_LIST && list->item_count == 1 &&
              ckpt_value_get(list->items[0], "param_groups"));
    ckpt_reader_close(r);
}
END_TEST

static size_t left_out(const char *file)
{
    size_t n = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const ckpt_finding *f = ckpt_report_get(report, i);
        n += strcmp(f->code, "left-out") == 0 && strstr(f->message, file);
    }
    return n;
}

/* What says how to build the model is no value of the checkpoint, whichever way the weights beside it are written. */
START_TEST(settings_beside_torch_weights)
{
    make_directory("m");
    write_text(at("m/config.json"), "{\"model_type\": \"gpt2\", \"n_layer\": 2}");
    write_text(at("m/generation_config.json"), "{\"eos_token_id\": 5}");
    write_torch_flat(at("m/pytorch_model.bin"), params, 2, 0);
    static const char *const formats[] = {"safetensors", "torch"};
    for (size_t i = 0; i < 2; i++) {
        options.lossy = true; /* the weights' device tags */
        ck_assert_msg(migrate(at("m"), formats[i], at("%s", formats[i])) == CKPT_OK, "%s", err.message);
        ck_assert_msg(left_out(" config.json ") == 1 && left_out(" generation_config.json ") == 1, "%s", formats[i]);
        ck_assert_uint_eq(losses_of("config"), 0);
    }
}
END_TEST

/* A tensor that cannot go along is one loss, and not a value besides. */
START_TEST(a_tensor_is_lost_once)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "other");
    PUT(b, "}(");
    put_str(b, "coo");
    put_global(b, "torch._utils", "_rebuild_sparse_tensor");
    PUT(b, "(");
    put_global(b, "torch.serialization", "_get_layout");
    put_str(b, "torch.sparse_coo");
    PUT(b, "\x85R(");
    torch_tensor(t, 2, 1, 2, 0);
    torch_tensor(t, 1, 2, 0, 1);
    put_ints(b, (const int64_t[]){3}, 1);
    PUT(b, "ttRu");
    put_str(b, "w");
    torch_tensor(t, 2, 3, 4, 1);
    PUT(b, "u");
    write_torch(at("x.pt"), t);
    ck_assert_msg(migrate(at("x.pt"), "safetensors", at("x.safetensors")) == CKPT_E_UNSUPPORTED, "%s", err.message);
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        const char *message = ckpt_report_get(report, i)->message;
        ck_assert_msg(!strstr(message, "coo' (none)"), "%s", message);
    }
    const ckpt_finding *f = ckpt_report_find(report, "lost", NULL);
    ck_assert_msg(f && strcmp(f->tensor, "coo") == 0, "%s", f ? f->tensor : err.message);
}
END_TEST

/* What only the program that wrote it looks up, as a value, as a callable and as a key: torch's file is one that is read. */
START_TEST(persistent_ids_of_others)
{
    static bytes b;
    b.size = 0;
    PUT(&b, "\x80\2}(");
    put_str(&b, "id");
    put_str(&b, "of somebody's");
    PUT(&b, "Q");
    put_str(&b, "call");
    put_str(&b, "what it stands for");
    PUT(&b, "QK\7\x85R");
    put_str(&b, "function"); /* of torch, by way of an id: no tensor may come of it */
    put_global(&b, "torch._utils", "_rebuild_tensor_v2");
    PUT(&b, "QK\1\x85R");
    put_str(&b, "keys");
    PUT(&b, "}(]QK\1u");
    put_str(&b, "n");
    PUT(&b, "K\5u.");
    write_to(at("x.pkl"), b.data, b.size);
    ck_assert_msg(migrate(at("x.pkl"), "torch", at("x.pt")) == CKPT_E_UNSUPPORTED, "%s", err.message);
    ck_assert_uint_eq(losses_of("a persistent id becomes the value that it is"), 1);
    ck_assert_uint_eq(losses_of("a persistent id becomes None"), 1);
    ck_assert_uint_eq(losses_of("calling what a persistent id stands for"), 2);
    options.lossy = true;
    migrates(at("x.pkl"), "torch", at("x.pt"));
    ckpt_reader *r = opened(at("x.pt"));
    const ckpt_value *root = ckpt_reader_root(r);
    ck_assert(ckpt__str_is(ckpt_value_get(root, "id")->text, "of somebody's"));
    ck_assert_int_eq(ckpt_value_get(root, "call")->kind, CKPT_V_NONE);
    ck_assert_int_eq(ckpt_value_get(root, "function")->kind, CKPT_V_NONE);
    ck_assert_int_eq(ckpt_value_get(root, "n")->integer, 5);
    ck_assert_uint_eq(ckpt_value_get(root, "keys")->entry_count, 1);
    ckpt_reader_close(r);
}
END_TEST

/* A record of a distributed checkpoint that is not read is one tensor that is not recovered: the run that writes nothing says so, too. */
START_TEST(salvage_of_a_record)
{
    char source[1200];
    snprintf(source, sizeof source, "%s/tests/data/dcp/torch-2.15", getenv("srcdir"));
    ck_assert_int_eq(migrate(source, "ckpt", at("a")), CKPT_E_UNSUPPORTED);
    options.salvage = true;
    for (int dry = 1; dry >= 0; dry--) {
        ckpt_report_free(report);
        report = ckpt_report_new();
        options.dry_run = dry;
        migrates(source, "ckpt", at("a"));
        ck_assert_uint_eq(ckpt_report_count_code(report, "not-recovered"), 1);
        const ckpt_finding *f = ckpt_report_find(report, "not-recovered", "model.conjugated");
        ck_assert_msg(f && strstr(f->message, "its bytes are not read: ") &&
                          strstr(f->message, "to be conjugated, and such records are not read") &&
                          strstr(f->message, "save what resolve_conj() returns"),
                      "%s", f ? f->message : "no finding");
        ck_assert_int_eq(access(at("a"), F_OK), dry ? -1 : 0);
    }
    ckpt_reader *from = opened(source), *to = opened(at("a"));
    ck_assert_uint_eq(ckpt_reader_tensor_count(to) + 1, ckpt_reader_tensor_count(from)); /* each was read back */
    ckpt_reader_close(from);
    ckpt_reader_close(to);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_rest");
    TCase *t = tcase_create("rest");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, beside_several_models);
    tcase_add_test(t, in_a_root_that_is_the_model);
    tcase_add_test(t, in_the_dicts_of_model_and_optimizer);
    tcase_add_test(t, in_a_list);
    tcase_add_test(t, in_a_list_below_the_root);
    tcase_add_test(t, settings_beside_torch_weights);
    tcase_add_test(t, a_tensor_is_lost_once);
    tcase_add_test(t, persistent_ids_of_others);
    tcase_add_test(t, salvage_of_a_record);
    suite_add_tcase(s, t);
    return run_suite(s);
}
