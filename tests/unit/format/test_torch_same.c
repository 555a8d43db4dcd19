/* The same checkpoint as torch sees, or a refusal: what torch 2.13 reads otherwise than the bytes seem to say is refused with both
 * readings, keys that Python takes for one are one, and what torch.load raises on is a finding. tests/interop/same_as_torch.py holds
 * the same against torch itself. */
#include <ckpt/doctor.h>
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include <ckpt/verify.h>
#include "../folder_files.h"

static ckpt_error err;
static ckpt_reader *reader;
static torch_file *file;
static bytes *pickle;
static archive zip;

static void setup(void)
{
    make_folder();
    file = begin_torch();
    pickle = &file->pickle;
    memset(&zip, 0, sizeof zip);
}

static void teardown(void)
{
    ckpt_reader_close(reader);
    reader = NULL;
    remove_folder();
}

/* ---- pickles: the object is {'w': what the test puts} */

static void begin(void)
{
    PUT(pickle, "}(");
    put_str(pickle, "w");
}
static void write_pickle(void)
{
    PUT(pickle, "u");
    write_torch(at("x.pt"), file);
}
static void must_open(void)
{
    ckpt_reader_close(reader);
    reader = NULL;
    ck_assert_msg(ckpt_reader_open(at("x.pt"), NULL, &reader, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}
static void must_refuse(ckpt_status status, const char *words)
{
    ckpt_status got = ckpt_reader_open(at("x.pt"), NULL, &reader, &err);
    ck_assert_msg(got == status && strstr(err.message, words) != NULL, "status %d: %s", got,
                  got < 0 ? err.message : "it opens");
}
static void refuses_pickle(const char *words)
{
    write_pickle();
    must_refuse(CKPT_E_FORMAT, words);
}

/* doctor for torch; weights_only: 1 or -1. The caller clears the answer. */
static void ask_doctor(int weights_only, ckpt_doctor_result *answer, ckpt_report *report)
{
    ckpt_doctor_options options = {.struct_size = sizeof options};
    options.loader = CKPT_LOADER_TORCH;
    options.load_weights_only = weights_only;
    ckpt_report_clear(report);
    ck_assert_int_ge(ckpt_doctor(reader, &options, answer, report, &err), CKPT_OK);
}

/* verify answers no, with the code torch-refuses alone; doctor says `code`, and that the load fails. */
static void torch_refuses_as(const char *words, const char *code)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    must_open();
    ckpt_status status = ckpt_verify(at("x.pt"), NULL, &result, report, &err);
    ck_assert_msg(status == CKPT_ANSWER_NO && !result.ok, "verify: status %d", status);
    const ckpt_finding *f = ckpt_report_find(report, "torch-refuses", NULL);
    ck_assert_msg(f && f->severity == CKPT_SEVERITY_ERROR && strstr(f->message, words), "%s",
                  f ? f->message : "no such finding");
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        ck_assert(ckpt_report_get(report, i) == f || ckpt_report_get(report, i)->severity < CKPT_SEVERITY_ERROR);
    for (int weights_only = -1; weights_only <= 1; weights_only += 2) {
        ckpt_doctor_result answer = CKPT_DOCTOR_RESULT_INIT;
        ask_doctor(weights_only, &answer, report);
        ck_assert_int_eq(answer.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
        ck_assert_msg(ckpt_report_find(report, code, NULL) != NULL, "no %s", code);
        ckpt_doctor_result_clear(&answer);
    }
    ckpt_report_free(report);
}

static void torch_refuses(const char *words)
{
    torch_refuses_as(words, "torch-refuses");
}

static void torch_takes_it(void)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    must_open();
    ck_assert_ptr_null(ckpt_report_find(ckpt_reader_findings(reader), "torch-refuses", NULL));
    ck_assert_msg(ckpt_verify(at("x.pt"), NULL, &result, NULL, &err) == CKPT_OK, "%s", err.message);
}

/* Arguments of _rebuild_tensor_v2 up to requires_grad, of 4 floats: storage number `count` of the file. */
static void begin_tensor(const char *class_name, const char *location)
{
    char key[16];
    snprintf(key, sizeof key, "%d", file->count);
    file->numel[file->count] = 4;
    for (int i = 0; i < 4; i++)
        file->data[file->count][i] = (float)(file->count * 10 + i);
    file->count++;
    put_global(pickle, "torch._utils", "_rebuild_tensor_v2");
    PUT(pickle, "(");
    put_storage(pickle, class_name, key, location, 4);
    PUT(pickle, "K\0K\4\x85K\1\x85");
}
static void a_storage(void)
{
    char key[16];
    snprintf(key, sizeof key, "%d", file->count);
    file->numel[file->count++] = 4;
    put_storage(pickle, "FloatStorage", key, "cpu", 4);
}

START_TEST(a_tensor_is_given_a_state)
{
    begin();
    torch_tensor(file, 1, 4, 0, 0);
    PUT(pickle, "(");
    a_storage();
    PUT(pickle, "K\0K\4\x85K\1\x85tb"); /* set_(storage, offset, size, stride) */
    refuses_pickle("given a state (BUILD): torch makes it a view");
}
END_TEST

START_TEST(items_are_put_into_a_tensor)
{
    begin();
    torch_tensor(file, 1, 4, 0, 0);
    PUT(pickle, "K\0K\x09s");
    refuses_pickle("a tensor into which items are put");
}
END_TEST

START_TEST(data_in_a_state)
{
    static const char *const names[] = {"data", "real", "__class__", "requires_grad", "note"};
    bool refused = _i < 4;
    begin();
    put_global(pickle, "torch._utils", "_rebuild_parameter_with_state");
    PUT(pickle, "(");
    torch_tensor(file, 1, 4, 0, 0);
    PUT(pickle, "\x88N}");
    put_str(pickle, names[_i]);
    torch_tensor(file, 1, 4, 0, 50);
    PUT(pickle, "stR");
    write_pickle();
    if (refused)
        must_refuse(CKPT_E_FORMAT, "in its state: torch's tensor is what that attribute makes of it");
    else
        torch_takes_it();
}
END_TEST

START_TEST(tensors_by_their_class)
{
    static const char *const names[] = {"Tensor", "FloatTensor"};
    begin();
    put_global(pickle, "torch", names[_i]);
    put(pickle, _i ? ")R(" : ")\x81(", 3);
    a_storage();
    PUT(pickle, "K\0K\4\x85K\1\x85tb");
    refuses_pickle("makes by itself");
}
END_TEST

/* What torch applies is the key; what its value says does not matter. */
START_TEST(neg_and_conj_are_keys)
{
    begin();
    begin_tensor("FloatStorage", "cpu");
    PUT(pickle, "\x89");
    put_ordered_dict(pickle);
    PUT(pickle, "}X\3\0\0\0neg");
    put(pickle, _i == 0 ? "\x89" : _i == 1 ? "N" : "K\0", _i == 2 ? 2 : 1);
    PUT(pickle, "stR");
    write_pickle();
    must_open();
    ck_assert(ckpt_reader_tensor(reader, 0)->neg && !ckpt_reader_tensor(reader, 0)->conj);
}
END_TEST

START_TEST(metadata_that_is_no_dict)
{
    begin();
    begin_tensor("FloatStorage", "cpu");
    PUT(pickle, "\x89N");
    put_ordered_dict(pickle);
    PUT(pickle, "X\3\0\0\0negK\1stR");
    refuses_pickle("a tensor whose metadata is object");
}
END_TEST

START_TEST(a_list_is_changed_later)
{
    PUT(pickle, "]q\1K\4a}q\2(");
    put_str(pickle, "w");
    put_global(pickle, "torch._utils", "_rebuild_tensor_v2");
    PUT(pickle, "(");
    a_storage();
    PUT(pickle, "K\0h\1K\1\x85\x89NtR");
    put_str(pickle, "size");
    PUT(pickle, "h\1K\2a");
    refuses_pickle("changes a list or dict after a call, or a state, took its content");
}
END_TEST

/* ---- keys that are one to Python */

static const struct {
    const char *a, *b;
    size_t a_size, b_size;
    bool one;
} keys[] = {
#define KEYS(a, b, one)                                                                                                \
    {                                                                                                                  \
        a, b, sizeof(a) - 1, sizeof(b) - 1, one                                                                        \
    }
    KEYS("K\1", "\x88", true),
    KEYS("K\1", "G\x3f\xf0\0\0\0\0\0\0", true),
    KEYS("\x88", "G\x3f\xf0\0\0\0\0\0\0", true),
    KEYS("K\0", "\x89", true),
    KEYS("G\0\0\0\0\0\0\0\0", "G\x80\0\0\0\0\0\0\0", true),
    KEYS("K\1K\2\x86", "\x88K\2\x86", true),
    KEYS("\x8a\x08\0\0\0\0\0\0\x20\0", "G\x43\x40\0\0\0\0\0\0", true),  /* 2^53 */
    KEYS("\x8a\x08\1\0\0\0\0\0\x20\0", "G\x43\x40\0\0\0\0\0\0", false), /* 2^53 + 1 */
    KEYS("\x8a\x09\0\0\0\0\0\0\0\0\1", "G\x43\xf0\0\0\0\0\0\0", true),  /* 2^64 */
    KEYS("\x8a\x09\1\0\0\0\0\0\0\0\1", "G\x43\xf0\0\0\0\0\0\0", false),
    KEYS("X\1\0\0\0a", "X\1\0\0\0a", true),
    KEYS("X\1\0\0\0a", "X\1\0\0\0b", false),
    KEYS("X\1\0\0\0"
         "1",
         "K\1", false),
    KEYS("N", "K\0", false),
    KEYS("ctorch\nSize\nK\1K\2\x86\x85R", "K\1K\2\x86", true),
    KEYS("ctorch\nfloat32\n", "ctorch\nfloat32\n", true),
    KEYS("ctorch\nfloat32\n", "ctorch\nfloat64\n", false),
#undef KEYS
};

START_TEST(keys_that_python_takes_for_one)
{
    if (_i % 2) /* as collections.OrderedDict, in two batches */
        put_ordered_dict(pickle);
    else
        PUT(pickle, "}");
    PUT(pickle, "(");
    put(pickle, keys[_i / 2].a, keys[_i / 2].a_size);
    torch_tensor(file, 1, 4, 0, 1);
    if (_i % 2)
        PUT(pickle, "u(");
    put(pickle, keys[_i / 2].b, keys[_i / 2].b_size);
    torch_tensor(file, 1, 4, 0, 50);
    write_pickle();
    must_open();
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), keys[_i / 2].one ? 1 : 2);
    float value[4] = {0};
    ck_assert_int_eq(ckpt_reader_read(reader, ckpt_reader_tensor_count(reader) - 1, value, sizeof value, &err),
                     CKPT_OK);
    ck_assert(value[0] == 50); /* the last value */
    ck_assert_uint_eq(ckpt_reader_root(reader)->entry_count, keys[_i / 2].one ? 1 : 2);
}
END_TEST

START_TEST(the_first_key_stays)
{
    PUT(pickle, "}(\x88K\5");
    put_str(pickle, "x");
    PUT(pickle, "K\6K\1K\7");
    write_pickle();
    must_open();
    const ckpt_value *root = ckpt_reader_root(reader);
    ck_assert_uint_eq(root->entry_count, 2);
    ck_assert(root->entries[0].key->kind == CKPT_V_BOOL && root->entries[0].value->integer == 7);
    ck_assert(root->entries[1].value->integer == 6);
}
END_TEST

/* A tensor that a later value replaces is not in the checkpoint, and is not written. */
START_TEST(replaced_tensors_are_dead)
{
    PUT(pickle, "}(");
    for (int i = 0; i < (_i ? 20 : 1); i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        put_str(pickle, name);
        torch_tensor(file, 1, 4, 0, 1);
    }
    put_str(pickle, "w");
    PUT(pickle, "}(");
    put_str(pickle, "dead");
    torch_tensor(file, 1, 4, 0, 2);
    PUT(pickle, "u");
    put_str(pickle, "w");
    PUT(pickle, "}(");
    put_str(pickle, "alive");
    torch_tensor(file, 1, 4, 0, 3);
    PUT(pickle, "u");
    put_str(pickle, "x0");
    PUT(pickle, "N");
    write_pickle();
    ckpt_migrate_options options = CKPT_MIGRATE_OPTIONS_INIT;
    options.to = "safetensors";
    options.lossy = true;
    ck_assert_msg(ckpt_migrate(at("x.pt"), at("y.safetensors"), &options, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt_reader_open(at("y.safetensors"), NULL, &reader, &err), CKPT_OK);
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), _i ? 20 : 1);
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        ckpt_str name = ckpt_reader_tensor(reader, i)->name;
        ck_assert(!ckpt__str_is(name, "w.dead") && !ckpt__str_is(name, "x0"));
    }
}
END_TEST

/* ---- what torch.load raises on */

START_TEST(calls_that_torch_does_not_take)
{
    static const struct {
        const char *end, *words;
        size_t size;
    } calls[] = {
        {"\x89tR", "TypeError: _rebuild_tensor_v2() missing 1 required positional argument: 'backward_hooks'", 3},
        {"tR",
         "TypeError: _rebuild_tensor_v2() missing 2 required positional arguments: 'requires_grad' and 'backward_hooks'",
         2},
        {"\x89NNNtR", "TypeError: _rebuild_tensor_v2() takes from 6 to 7 positional arguments but 8 were given", 6},
        {"NNtR", "RuntimeError: requires_grad must be a bool", 4},
        {"K\1NtR", "RuntimeError: requires_grad must be a bool", 5},
        {"\x89N}X\4\0\0\0conj\x88stR", "INTERNAL ASSERT FAILED", 16},
        {"\x89N}K\1\x88stR", "TypeError: _set_tensor_metadata()", 9},
    };
    begin();
    begin_tensor("FloatStorage", "cpu");
    put(pickle, calls[_i].end, calls[_i].size);
    write_pickle();
    torch_refuses(calls[_i].words);
}
END_TEST

START_TEST(gradients_of_ints)
{
    begin();
    begin_tensor(_i ? "FloatStorage" : "IntStorage", "cpu");
    PUT(pickle, "\x88NtR");
    write_pickle();
    if (_i)
        torch_takes_it();
    else
        torch_refuses("only Tensors of floating point and complex dtype can require gradients");
}
END_TEST

START_TEST(tags_that_torch_does_not_know)
{
    static const struct {
        const char *tag;
        bool known;
    } tags[] = {{"cpu", true},  {"cuda", true},  {"cuda:7", true}, {"npu:0", true},
                {"foo", false}, {"cpu5", false}, {"CPU", false},   {"cuda:", false}};
    begin();
    begin_tensor("FloatStorage", tags[_i].tag);
    PUT(pickle, "\x89NtR");
    write_pickle();
    if (tags[_i].known)
        torch_takes_it();
    else
        torch_refuses_as("don't know how to restore data location", "no-such-device"); /* a map may mend it */
}
END_TEST

START_TEST(states_of_dicts)
{
    begin();
    put_ordered_dict(pickle);
    put(pickle, _i == 0 ? "K\1b" : _i == 1 ? "}b" : ")b", _i == 0 ? 3 : 2);
    write_pickle();
    if (_i == 1)
        torch_takes_it();
    else
        torch_refuses("UnpicklingError: state is not a dictionary");
}
END_TEST

START_TEST(keys_without_a_hash)
{
    PUT(pickle, "}(]\x85"); /* ([],) */
    torch_tensor(file, 1, 4, 0, 0);
    write_pickle();
    torch_refuses("TypeError: unhashable type: 'list'");
}
END_TEST

/* Opcodes that only the unpickler of weights_only refuses. */
START_TEST(opcodes_of_weights_only)
{
    static const struct {
        const char *code, *name;
        size_t size;
    } opcodes[] = {{"N0", "POP", 2},
                   {"N20", "DUP", 3},
                   {"I5\n0", "INT", 4},
                   {"\x94", "MEMOIZE", 1},
                   {"p9\n", "PUT", 3},
                   {"\x8c\1a0", "SHORT_BINUNICODE", 4},
                   {"(\x91"
                    "0",
                    "FROZENSET", 3},
                   {"C\1a0", "SHORT_BINBYTES", 4}};
    char words[64];
    begin();
    torch_tensor(file, 1, 4, 0, 0);
    PUT(pickle, "u");
    put(pickle, opcodes[_i].code, opcodes[_i].size);
    write_torch(at("x.pt"), file);
    torch_takes_it();
    snprintf(words, sizeof words, "refuses the opcode %s", opcodes[_i].name);
    ckpt_report *report = ckpt_report_new();
    for (int weights_only = -1; weights_only <= 1; weights_only += 2) {
        ckpt_doctor_result answer = CKPT_DOCTOR_RESULT_INIT;
        ask_doctor(weights_only, &answer, report);
        const ckpt_finding *f = ckpt_report_find(report, "weights-only-refused", NULL);
        /* N20 leaves None as the root: no weights at all */
        ck_assert_int_eq(answer.outcome, weights_only > 0 ? CKPT_OUTCOME_FAILS_AT_LOAD
                                         : _i == 1        ? CKPT_OUTCOME_RESUMES_DIFFERENTLY
                                                          : CKPT_OUTCOME_WEIGHTS_ONLY);
        ck_assert_msg(weights_only > 0 ? f && strstr(f->message, words) : !f, "%s", f ? f->message : "nothing");
        ckpt_doctor_result_clear(&answer);
    }
    ckpt_report_free(report);
}
END_TEST

/* ---- archives */

static const float four[] = {1, 2, 3, 4};

/* data.pkl of {'w': a tensor of storage "0"}, data/0, version; `name` NULL: none of that kind. */
static void begin_zip(const char *data, const char *version)
{
    begin();
    put_global(pickle, "torch._utils", "_rebuild_tensor_v2");
    PUT(pickle, "(");
    put_storage(pickle, "FloatStorage", "0", "cpu", 4);
    PUT(pickle, "K\0K\4\x85K\1\x85\x89NtRu.");
    add_record(&zip, &(record){.name = "a/data.pkl", .data = pickle->data, .size = pickle->size});
    if (data)
        add_record(&zip, &(record){.name = data, .data = four, .size = sizeof four});
    if (version)
        add_record(&zip, &(record){.name = version, .data = "3", .size = 1});
}
static void another(const char *name, const char *text)
{
    add_record(&zip, &(record){.name = name, .data = text, .size = strlen(text)});
}
static void end_zip(const char *comment, const void *behind, size_t n)
{
    put_end(&zip, zip.count, comment);
    put(&zip.file, behind, n);
    write_to(at("x.pt"), zip.file.data, zip.file.size);
}

START_TEST(names_are_found_without_case)
{
    begin_zip("a/DATA/0", "a/Version");
    another("a/BYTEORDER", "big");
    end_zip("", "", 0);
    torch_takes_it();
    unsigned char value[16], swapped[16];
    memcpy(swapped, four, sizeof four);
    ck_assert_int_eq(ckpt_reader_read(reader, 0, value, sizeof value, &err), CKPT_OK);
    for (int i = 0; i < 16; i++)
        ck_assert_uint_eq(value[i], swapped[i / 4 * 4 + 3 - i % 4]);
}
END_TEST

START_TEST(records_that_torch_does_not_expect)
{
    static const struct {
        const char *name, *text, *words;
    } records[] = {
        {"README.txt", "x", "file in archive is not in a subdirectory a/: README.txt"},
        {"other/x", "x", "file in archive is not in a subdirectory a/: other/x"},
        {"A/x", "x", "file in archive is not in a subdirectory a/: A/x"},
        {"a/byteorder", "", "ValueError: Unknown endianness type"},
        {"a/.storage_alignment", "x", "ValueError: invalid literal for int() with base 10: b'x'"},
        {"a/.storage_alignment", "6__4", "ValueError: invalid literal for int()"},
        {"a/.data/version", "", "Couldn't parse the version"},
        {"a/constants.pkl", "\x80\2).", "constants.pkl"},
        {"a/\xff", "x", "UnicodeDecodeError: 'utf-8' codec can't decode"},
        {"a/README.txt", "x", NULL},
        {"a/.storage_alignment", " 6_4\n", NULL},
        {"a/CONSTANTS.pkl", "x", NULL},
        {"a/\xc3\xa9", "x", NULL},
    };
    begin_zip("a/data/0", "a/version");
    another(records[_i].name, records[_i].text);
    end_zip("", "", 0);
    if (records[_i].words)
        torch_refuses(records[_i].words);
    else
        torch_takes_it();
}
END_TEST

START_TEST(no_version)
{
    begin_zip("a/data/0", NULL);
    end_zip("", "", 0);
    torch_refuses("RuntimeError: Expected hasRecord(\"version\") to be true, but got false.");
    ck_assert_ptr_nonnull(ckpt_report_find(ckpt_reader_findings(reader), "no-version", NULL));
}
END_TEST

/* The central directory's entry of data/0, the second. */
static void patch_entry(size_t field, unsigned value)
{
    unsigned char *p = memmem(zip.file.data, zip.file.size, "PK\1\2", 4);
    p = memmem(p + 4, zip.file.size - (size_t)(p + 4 - zip.file.data), "PK\1\2", 4);
    ck_assert_ptr_nonnull(p);
    p[field] = (unsigned char)value;
    write_to(at("x.pt"), zip.file.data, zip.file.size);
}

START_TEST(fields_of_the_directory)
{
    begin_zip("a/data/0", "a/version");
    end_zip("", "", 0);
    patch_entry(34, 1); /* disk 1: taken */
    torch_takes_it();
    patch_entry(34, 2);
    torch_refuses("unsupported multidisk archive");
    patch_entry(34, 0);
    patch_entry(8, 0x20); /* a patch */
    torch_refuses("unsupported feature");
    patch_entry(8, 0);
    patch_entry(38, 0x10); /* a folder by its attributes: torch fills nothing in */
    ckpt_reader_close(reader);
    reader = NULL;
    must_refuse(CKPT_E_FORMAT, "gives memory that it has not filled");
}
END_TEST

START_TEST(steps_to_the_end_record)
{
    static const char nothing[8192];
    static const struct {
        size_t behind;
        bool taken;
    } ends[] = {{0, true}, {1, true}, {4074, true}, {4075, false}, {5000, false}};
    begin_zip("a/data/0", "a/version");
    end_zip("", nothing, ends[_i].behind);
    if (ends[_i].taken)
        torch_takes_it();
    else
        torch_refuses("OSError: [Errno 22] Invalid argument");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("torch_same");
    TCase *t = tcase_create("same");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_tensor_is_given_a_state);
    tcase_add_test(t, items_are_put_into_a_tensor);
    tcase_add_loop_test(t, data_in_a_state, 0, 5);
    tcase_add_loop_test(t, tensors_by_their_class, 0, 2);
    tcase_add_loop_test(t, neg_and_conj_are_keys, 0, 3);
    tcase_add_test(t, metadata_that_is_no_dict);
    tcase_add_test(t, a_list_is_changed_later);
    tcase_add_loop_test(t, keys_that_python_takes_for_one, 0, 2 * (int)(sizeof keys / sizeof *keys));
    tcase_add_test(t, the_first_key_stays);
    tcase_add_loop_test(t, replaced_tensors_are_dead, 0, 2);
    tcase_add_loop_test(t, calls_that_torch_does_not_take, 0, 7);
    tcase_add_loop_test(t, gradients_of_ints, 0, 2);
    tcase_add_loop_test(t, tags_that_torch_does_not_know, 0, 8);
    tcase_add_loop_test(t, states_of_dicts, 0, 3);
    tcase_add_test(t, keys_without_a_hash);
    tcase_add_loop_test(t, opcodes_of_weights_only, 0, 8);
    tcase_add_test(t, names_are_found_without_case);
    tcase_add_loop_test(t, records_that_torch_does_not_expect, 0, 13);
    tcase_add_test(t, no_version);
    tcase_add_test(t, fields_of_the_directory);
    tcase_add_loop_test(t, steps_to_the_end_record, 0, 5);
    suite_add_tcase(s, t);
    return run_suite(s);
}
