/* test_migrate_held.c - --drop in what holds its items itself (defaultdict, deque), and device rules for a tensor that is
 * not dense and has two names. */
#include <ckpt/ckpt.h>
#include "../folder_files.h"

static ckpt_error err;
static ckpt_migrate_options options;
static ckpt_reader *reader;

static void setup(void)
{
    make_folder();
    options = (ckpt_migrate_options){.to = "torch", .verify = true, .no_sync = true};
    reader = NULL;
}

static void teardown(void)
{
    ckpt_reader_close(reader);
    remove_folder();
}

static const ckpt_value *migrate(const char *from, const char *to)
{
    ckpt_status status = ckpt_migrate(at("%s", from), at("%s", to), &options, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    ckpt_reader_close(reader);
    reader = NULL;
    ck_assert_msg(ckpt_reader_open(at("%s", to), NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    return ckpt_reader_root(reader);
}

/* {"by": defaultdict(list, a=1.., b=2.., c=5), "queue": deque([3.., "x", 4..], 7), "list": [5..]} */
static void write_held(void)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "by");
    put_global(b, "collections", "defaultdict");
    PUT(b, "(");
    put_global(b, "__builtin__", "list");
    PUT(b, "tR(");
    put_str(b, "a");
    torch_tensor(t, 1, 4, 0, 1);
    put_str(b, "b");
    torch_tensor(t, 1, 4, 0, 2);
    put_str(b, "c");
    put_int(b, 5);
    PUT(b, "u");
    put_str(b, "queue");
    put_global(b, "collections", "deque");
    PUT(b, "()");
    put_int(b, 7);
    PUT(b, "tR(");
    torch_tensor(t, 1, 4, 0, 3);
    put_str(b, "x");
    torch_tensor(t, 1, 4, 0, 4);
    PUT(b, "e");
    put_str(b, "list");
    PUT(b, "](");
    torch_tensor(t, 1, 4, 0, 5);
    PUT(b, "eu");
    write_torch(at("held.pt"), t);
}

static float first_of(const ckpt_value *v)
{
    float data[4] = {0};
    ck_assert_int_eq(v->kind, CKPT_V_TENSOR);
    ck_assert_int_eq(ckpt_reader_read(reader, v->tensor, data, sizeof data, &err), CKPT_OK);
    return data[0];
}

static void check_held(const ckpt_value *root)
{
    const ckpt_value *by = ckpt_value_get(root, "by"), *queue = ckpt_value_get(root, "queue"),
                     *list = ckpt_value_get(root, "list");
    ck_assert_str_eq(by->class_name.data, "collections.defaultdict");
    ck_assert_uint_eq(by->entry_count, 2);
    ck_assert(first_of(ckpt_value_get(by, "a")) == 1);
    ck_assert_int_eq(ckpt_value_get(by, "c")->integer, 5);
    ck_assert_ptr_null(ckpt_value_get(by, "b"));
    ck_assert_str_eq(by->args->items[0]->class_name.data, "builtins.list");
    ck_assert_str_eq(queue->class_name.data, "collections.deque");
    ck_assert_uint_eq(queue->item_count, 2);
    ck_assert_str_eq(queue->items[0]->text.data, "x");
    ck_assert(first_of(queue->items[1]) == 4);
    ck_assert_int_eq(queue->args->items[1]->integer, 7);
    ck_assert_int_eq(list->items[0]->kind, CKPT_V_NONE); /* a list keeps the place */
}

START_TEST(entries_go)
{
    static const char *const drop[] = {"by.b", "queue.0", "list.0"};
    write_held();
    options.drop = drop;
    options.drop_count = 3;
    check_held(migrate("held.pt", "dropped.pt"));
    options.to = "ckpt"; /* which keeps the structure */
    migrate("held.pt", "dropped.safetensors");
    options.to = "torch";
    options.drop_count = 0;
    check_held(migrate("dropped.safetensors", "back.pt"));
}
END_TEST

/* All of a deque, and values of it too. */
START_TEST(a_deque_is_emptied)
{
    static const char *const drop[] = {"queue.2", "queue.1", "queue.0"};
    write_held();
    options.drop = drop;
    options.drop_count = 3;
    ck_assert_uint_eq(ckpt_value_get(migrate("held.pt", "dropped.pt"), "queue")->item_count, 0);
    options.drop_count = 0;
    ck_assert_uint_eq(ckpt_value_get(migrate("held.pt", "whole.pt"), "queue")->item_count, 3);
}
END_TEST

/* {"s": sparse, "again": {"s": the same}} */
static void write_sparse(void)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "s");
    put_global(b, "torch._utils", "_rebuild_sparse_tensor");
    PUT(b, "(");
    put_global(b, "torch.serialization", "_get_layout");
    PUT(b, "(");
    put_str(b, "torch.sparse_csr");
    PUT(b, "tR(");
    torch_tensor(t, 1, 3, 0, 0); /* of float32 here: nobody computes with it */
    torch_tensor(t, 1, 2, 0, 0);
    torch_tensor(t, 1, 2, 0, 6);
    PUT(b, "(K\2K\2tttRq\x07");
    put_str(b, "again");
    PUT(b, "}");
    put_str(b, "s");
    PUT(b, "h\7su");
    write_torch(at("sparse.pt"), t);
}

START_TEST(both_names_move)
{
    write_sparse();
    options.map_location = "cpu=xpu:1";
    migrate("sparse.pt", "moved.pt");
    size_t moved = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        ck_assert_msg(strcmp(t->device.data, "xpu:1") == 0, "%s is on %s", t->name.data, t->device.data);
        moved++;
    }
    ck_assert_uint_eq(moved, 8); /* two listings of a whole and three parts */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_held");
    TCase *t = tcase_create("migrate_held");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, entries_go);
    tcase_add_test(t, a_deque_is_emptied);
    tcase_add_test(t, both_names_move);
    suite_add_tcase(s, t);
    return run_suite(s);
}
