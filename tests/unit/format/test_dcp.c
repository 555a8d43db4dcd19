/* Distributed checkpoints of PyTorch: lists, records that are looked into at first use, what is missing, what is hostile. The
 * checkpoints of tests/data/dcp are torch's own (make_dcp.py and make_versions.py there); every tensor in them counts 0, 1, 2, ... in C order.
 * Allocations are sent here by the linker, so that each can fail. */
#include <ckpt/ckpt.h>
#include <pthread.h>
#include "codec/zstd.h"
#include "dcp_files.h"
#include "model/nested.h"
#include "reader/parts.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static long countdown; /* the allocation that fails; 0: none */
static bool hit;

static bool fails_now(void)
{
    if (countdown <= 0 || --countdown > 0)
        return false;
    return hit = true;
}

void *__wrap_malloc(size_t n)
{
    return fails_now() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails_now() ? NULL : __real_realloc(p, n);
}

static ckpt_error err;
static ckpt_reader *reader;

static void setup(void)
{
    make_folder();
    reader = NULL;
}

static void teardown(void)
{
    ckpt_reader_close(reader);
    remove_folder();
}

static ckpt_status open_at(const char *path)
{
    ckpt_reader_close(reader);
    reader = NULL;
    return ckpt_reader_open(path, NULL, &reader, &err);
}

static void opens(const char *path)
{
    ck_assert_msg(open_at(path) == CKPT_OK, "%s: %s", path, err.message);
}

static void is_refused(ckpt_status status, const char *words)
{
    ckpt_status is = open_at(at("c"));
    ck_assert_msg(is == status && strstr(err.message, words), "%d, %s", is, is < 0 ? err.message : "it opens");
}

static size_t number_of(const char *name)
{
    size_t i = SIZE_MAX;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", err.message);
    return i;
}

/* ---- the bytes of a file */

static char *slurp(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f && fseek(f, 0, SEEK_END) == 0, "%s", path);
    *size = (size_t)ftell(f);
    rewind(f);
    char *content = malloc(*size + 1);
    ck_assert(content && fread(content, 1, *size, f) == *size && fclose(f) == 0);
    return content;
}

/* Every place of one text becomes another of as many bytes. */
static void replace(const char *path, const char *from, const char *to)
{
    size_t size, n = strlen(from), found = 0;
    char *content = slurp(path, &size);
    ck_assert_uint_eq(n, strlen(to));
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(content + i, from, n) == 0) {
            memcpy(content + i, to, n);
            found++;
        }
    ck_assert_msg(found > 0, "no %s in %s", from, path);
    write_to(path, content, size);
    free(content);
}

static void flip(const char *path, uint64_t offset)
{
    size_t size;
    char *content = slurp(path, &size);
    ck_assert_uint_lt(offset, size);
    content[offset] = (char)(content[offset] ^ 1);
    write_to(path, content, size);
    free(content);
}

/* ---- what is read */

static double element(const ckpt_tensor_info *t, const unsigned char *content, size_t i)
{
    uint32_t bits = 0;
    float f;
    int64_t n;
    if (t->dtype == CKPT_I64) {
        memcpy(&n, content + 8 * i, 8);
        return (double)n;
    }
    if (t->dtype == CKPT_F32)
        memcpy(&bits, content + 4 * i, 4);
    else
        memcpy((char *)&bits + 2, content + 2 * i, 2); /* bfloat16 */
    memcpy(&f, &bits, 4);
    return (double)f;
}

static ckpt_status read_counting(size_t i)
{
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    unsigned char content[4096];
    ck_assert_uint_le(t->nbytes, sizeof content);
    ckpt_status status = ckpt_reader_read(reader, i, content, (size_t)t->nbytes, &err);
    for (size_t k = 0; status == CKPT_OK && k < t->nbytes / ckpt_dtype_size(t->dtype); k++)
        ck_assert_msg(element(t, content, k) == (double)k, "element %zu of %s is %g", k, t->name.data,
                      element(t, content, k));
    return status;
}

static void counts(const char *name, const char *shape, size_t pieces)
{
    size_t i = number_of(name);
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    char text[100];
    ckpt__shape_text(text, sizeof text, t->shape, t->ndim);
    ck_assert_str_eq(text, shape);
    ck_assert_uint_eq(ckpt_reader_piece_count(reader, i), pieces);
    ck_assert_msg(read_counting(i) == CKPT_OK, "%s: %s", name, err.message);
}

static void values_are_there(void)
{
    const ckpt_value *root = ckpt_reader_root(reader), *v;
    ck_assert_int_eq(ckpt_value_find(root, "notes.name", &v, &err), CKPT_OK);
    ck_assert(v->kind == CKPT_V_STR && ckpt__str_is(v->text, "a run"));
    ck_assert_int_eq(ckpt_value_find(root, "notes.list.1", &v, &err), CKPT_OK);
    ck_assert(v->kind == CKPT_V_FLOAT && v->real == 2.5);
    ck_assert_int_eq(ckpt_value_find(root, "optim.param_groups.0.lr", &v, &err), CKPT_OK);
    ck_assert(v->kind == CKPT_V_FLOAT && v->real == 0.5);
    const ckpt_value *state = ckpt_value_get(ckpt_value_get(root, "optim"), "state");
    ck_assert(state && state->entry_count == 1);
    ck_assert_msg(state->entries[0].key->kind == CKPT_V_INT, "an id that the groups have as an int is a str");
    ck_assert_int_eq(ckpt_value_find(root, "notes.rng.1", &v, &err), CKPT_OK);
    ck_assert_int_eq(v->kind, CKPT_V_TENSOR);
    ck_assert_uint_eq(v->tensor, number_of("notes.rng.1"));
}

static void all_counts(size_t rows, size_t columns, size_t whole)
{
    counts("model.rows.weight", "[5, 3]", rows);
    counts("model.columns.weight", "[3, 5]", columns);
    counts("model.few", "[1, 4]", 1);
    counts("model.whole", "[2, 2]", whole);
    counts("model.turned", "[4, 3]", whole);
    counts("notes.rng.1", "[3]", 1);
    ck_assert_int_eq(ckpt_reader_tensor(reader, number_of("optim.state.0.step"))->role, CKPT_ROLE_STEP);
    ck_assert_int_eq(ckpt_reader_tensor(reader, number_of("model.rows.weight"))->role, CKPT_ROLE_PARAM);
    values_are_there();
}

START_TEST(two_ranks_are_one_checkpoint)
{
    opens(data("cut"));
    ck_assert_str_eq(ckpt_reader_format(reader), "dcp");
    ck_assert_str_eq(ckpt_reader_layout(reader), "8 pieces of tensors in 2 files, written by 2 ranks");
    all_counts(2, 2, 1);
    opens(data("ranks")); /* both have what is whole: the first is read */
    all_counts(2, 2, 2);
    ck_assert_str_eq(ckpt_reader_layout(reader), "11 pieces of tensors in 2 files, written by 2 ranks");
}
END_TEST

/* Its list has the strides of each tensor since 2.15. */
START_TEST(other_versions_of_torch)
{
    static char content[100];
    opens(data("torch-2.0"));
    all_counts(1, 1, 1);
    opens(data("torch-2.15"));
    all_counts(1, 1, 1);
    ck_assert_int_eq(ckpt_reader_read(reader, number_of("model.conjugated"), content, 16, &err), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "marked as to be conjugated"), "%s", err.message);
}
END_TEST

START_TEST(a_compressed_record)
{
    ckpt_status status = open_at(data("zstd"));
    if (ckpt__zstd_is_there())
        all_counts(1, 1, 1);
    else
        ck_assert_msg(status == CKPT_E_UNSUPPORTED && strstr(err.message, "zstd"), "%s", err.message);
    ck_assert(!ckpt__zstd_is_there() || status == CKPT_OK);
}
END_TEST

START_TEST(a_frame_that_decodes_to_too_much)
{
    if (!ckpt__zstd_is_there())
        return;
    opens(data("bomb"));
    ck_assert_int_eq(read_counting(number_of("model.whole")), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "decodes to more than"), "%s", err.message);
    ck_assert_int_eq(read_counting(number_of("model.turned")), CKPT_OK);
}
END_TEST

START_TEST(shards_in_safetensors)
{
    opens(data("shards"));
    ck_assert_str_eq(ckpt_reader_format(reader), "dcp");
    counts("rows.weight", "[5, 3]", 2);
    counts("columns.weight", "[3, 5]", 2);
    counts("few", "[1, 4]", 1);
    counts("whole", "[2, 2]", 1);
    copy("shards");
    ck_assert_int_eq(remove(at("c/shard-00001-model-00001-of-00001.safetensors")), 0);
    is_refused(CKPT_E_DAMAGED, "the shard of rank 0 is missing before shard-00002");
    copy("shards");
    replace(at("c/shard-00002-model-00001-of-00001.safetensors"), "DCP_SHARDING_INFO", "DCP_SHARDING_INFX");
    is_refused(CKPT_E_FORMAT, "has no DCP_SHARDING_INFO");
}
END_TEST

/* Whole tensors of it are restored as those of any file; also one that its record has in another order. */
START_TEST(whole_tensors_are_restored)
{
    static const int64_t whole_shape[] = {2, 2}, turned_shape[] = {4, 3};
    int64_t whole[4] = {0};
    float turned[12] = {0};
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    ckpt_state *state = ckpt_state_new();
    ckpt_report *report = ckpt_report_new();
    options.allow_unexpected = true;
    d.name = "whole";
    d.dtype = CKPT_I64;
    d.ndim = 2;
    d.shape = whole_shape;
    d.role = CKPT_ROLE_PARAM;
    d.data = whole;
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    d.name = "turned";
    d.dtype = CKPT_F32;
    d.shape = turned_shape;
    d.data = turned;
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    ckpt_status status = ckpt_restore(state, data("cut"), &options, report, &err);
    ck_assert_msg(status >= 0, "%s", err.message);
    for (int i = 0; i < 12; i++)
        ck_assert(turned[i] == (float)i && (i >= 4 || whole[i] == i));
    ckpt_report_free(report);
    ckpt_state_free(state);
}
END_TEST

/* Records are looked into when they are used, and not before. */
static size_t looked_into(const ckpt__index *x)
{
    size_t n = 0;
    for (size_t i = 0; i < x->storage_count; i++)
        n += x->storages[i].extent.coding == CKPT__NESTED && ckpt__is_found(&x->storages[i].extent);
    return n;
}

START_TEST(a_record_is_looked_into_at_its_first_use)
{
    opens(data("cut"));
    ck_assert_uint_eq(looked_into(reader->index), 0);
    ck_assert_int_eq(read_counting(number_of("model.rows.weight")), CKPT_OK);
    ck_assert_uint_eq(looked_into(reader->index), 2);
    ckpt_piece_info piece = CKPT_PIECE_INFO_INIT;
    ck_assert_int_eq(ckpt_reader_piece(reader, number_of("model.whole"), 0, &piece, &err), CKPT_OK);
    ck_assert_uint_eq(looked_into(reader->index), 3);
    ck_assert_int_ge(piece.file_offset, 0);
}
END_TEST

static void *read_all(void *ctx)
{
    bool *ok = ctx;
    char content[4096];
    *ok = true;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++)
        *ok &= ckpt_reader_read(reader, i, content, (size_t)ckpt_reader_tensor(reader, i)->nbytes, NULL) == CKPT_OK;
    return NULL;
}

START_TEST(threads_share_a_reader)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    bool ok[THREADS] = {false};
    opens(data("cut"));
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &ok[i]), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert(ok[i]);
}
END_TEST

/* ---- what is damaged */

START_TEST(a_changed_element_is_damage)
{
    const char *names[] = {"model.rows.weight", "model.whole", "model.turned", "model.columns.weight"};
    for (size_t i = 0; i < 4; i++) {
        ckpt_piece_info piece = CKPT_PIECE_INFO_INIT;
        ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
        ckpt_report *report = ckpt_report_new();
        opens(data("cut"));
        ck_assert_int_eq(ckpt_reader_piece(reader, number_of(names[i]), 0, &piece, &err), CKPT_OK);
        uint64_t at_byte = piece.file_offset >= 0 ? (uint64_t)piece.file_offset : 0;
        if (piece.file_offset <
            0) { /* turned as it is read: nothing says where it is. The only 48 bytes of float32 counting by 3 */
            size_t size;
            float columns[] = {0, 3, 6, 9, 1};
            char name[60];
            snprintf(name, sizeof name, "cut/%s", piece.file.data);
            char *content = slurp(data(name), &size), *found = memmem(content, size, columns, sizeof columns);
            ck_assert_ptr_nonnull(found);
            at_byte = (uint64_t)(found - content);
            free(content);
        }
        char file[100];
        snprintf(file, sizeof file, "%s", piece.file.data);
        copy("cut");
        flip(at("c/%s", file), at_byte);
        opens(at("c"));
        ck_assert_msg(read_counting(number_of(names[i])) == CKPT_E_DAMAGED, "%s", names[i]);
        ck_assert_int_eq(ckpt_verify(at("c"), NULL, &result, report, &err), CKPT_ANSWER_NO);
        bool named = false;
        for (size_t k = 0; k < ckpt_report_count(report); k++)
            named |= ckpt_report_get(report, k)->tensor && strcmp(ckpt_report_get(report, k)->tensor, names[i]) == 0;
        ck_assert_msg(named, "%s is not named", names[i]);
        ckpt_report_free(report);
    }
}
END_TEST

/* One bit of any byte of a record: what is read is what was written, or it is damage. */
START_TEST(no_flipped_bit_gives_other_elements)
{
    size_t size, damaged = 0;
    char *content = slurp(data("cut/__0_0.distcp"), &size);
    copy("cut");
    for (size_t i = 0; i < size; i++) {
        content[i] = (char)(content[i] ^ 1 << i % 8);
        write_to(at("c/__0_0.distcp"), content, size);
        content[i] = (char)(content[i] ^ 1 << i % 8);
        ckpt_status status = open_at(at("c"));
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_DAMAGED, "byte %zu: %s", i, err.message);
        for (size_t k = 0; status == CKPT_OK && k < ckpt_reader_tensor_count(reader); k++)
            if (strncmp(ckpt_reader_tensor(reader, k)->name.data, "model.", 6) == 0)
                status = read_counting(k);
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_DAMAGED || status == CKPT_E_UNSUPPORTED, "byte %zu: %d %s",
                      i, status, err.message);
        damaged += status < 0;
    }
    ck_assert_uint_gt(damaged, size / 4); /* the others are padding, and what nothing reads */
    free(content);
}
END_TEST

static bool has_global_step(void)
{
    const ckpt_value *meta = ckpt_value_get(ckpt_reader_root(reader), "meta.pt"),
                     *step = meta ? ckpt_value_get(meta, "global_step") : NULL;
    return step && step->kind == CKPT_V_INT && step->integer == 7;
}

/* Of a checkpoint of Lightning: what the loops, schedules and callbacks are lies beside the list. */
START_TEST(what_lightning_puts_beside)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    copy("cut");
    write_torch_int(at("c/meta.pt"), "global_step", 7);
    opens(at("c"));
    ck_assert(has_global_step());
    all_counts(2, 2, 1);
    ck_assert_int_eq(truncate(at("c/meta.pt"), 100), 0);
    is_refused(CKPT_E_DAMAGED, "");
    ck_assert_msg(strstr(err.object, "meta.pt") || strstr(err.message, "meta.pt"), "%s: %s", err.object, err.message);
    ck_assert_int_eq(ckpt_verify(at("c"), NULL, &result, report, &err), CKPT_ANSWER_NO);
    copy("cut");
    write_text(at("c/meta.pt"), "a file of something else");
    opens(at("c"));
    ck_assert_ptr_null(ckpt_value_get(ckpt_reader_root(reader), "meta.pt"));
    all_counts(2, 2, 1);
    ckpt_report_free(report);
}
END_TEST

/* flatten_state_dict=False: an object with DTensors is pickled by the one rank that writes it. */
START_TEST(an_object_has_one_ranks_part)
{
    size_t said = 0;
    opens(data("unflattened"));
    for (size_t i = 0; i < ckpt_report_count(ckpt_reader_findings(reader)); i++) {
        const ckpt_finding *f = ckpt_report_get(ckpt_reader_findings(reader), i);
        if (strcmp(f->code, "rank-part") != 0)
            continue;
        ck_assert_int_eq(f->severity, CKPT_SEVERITY_ERROR);
        ck_assert_msg(strstr(f->message, "1 sharded tensor has the part of rank 0 of 2 alone"), "%s", f->message);
        said++;
    }
    ck_assert_uint_eq(said, 1); /* not of the copy that each rank has */
    number_of("m.cut._local_tensor");
    ckpt_summary s = CKPT_SUMMARY_INIT;
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
    ck_assert_msg(strstr(s.resume.data, "checkpoint_id="), "%s", s.resume.data); /* no storage reader of safetensors */
    ckpt_summary_clear(&s);
}
END_TEST

START_TEST(a_file_that_lacks_records)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    copy("cut");
    ck_assert_int_eq(remove(at("c/__1_0.distcp")), 0);
    is_refused(CKPT_E_DAMAGED, "__1_0.distcp: what rank 1 wrote is missing");
    ck_assert_int_eq(ckpt_verify(at("c"), NULL, &result, report, &err), CKPT_ANSWER_NO);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "shard-missing", NULL));
    ckpt_report_free(report);
    copy("cut");
    ck_assert_int_eq(truncate(at("c/__1_0.distcp"), 5000), 0);
    is_refused(CKPT_E_DAMAGED, "__1_0.distcp: what rank 1 wrote ends at byte 5000 of");
    copy("cut");
    ck_assert_int_eq(remove(at("c/.metadata")), 0);
    is_refused(CKPT_E_DAMAGED, "without its .metadata");
    copy("ranks");
    ck_assert_int_eq(remove(at("c/__0.metadata")), 0);
    is_refused(CKPT_E_DAMAGED, "the list of rank 0 (__0.metadata) is missing");
    ck_assert_int_eq(open_at(at("c/__0_0.distcp")), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "ask for the directory"), "%s", err.message);
}
END_TEST

/* With leave_damaged it opens, and a finding of this code names the file, and in its words the rank; `whole` reads. */
static const ckpt_finding *goes_on(const char *code, const char *file, const char *words, const char *whole)
{
    static const char *const codes[] = {"shard-missing", "rank-missing", "truncated"};
    ckpt_reader_options leave = {.leave_damaged = true};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    size_t errors = 0;
    ckpt_reader_close(reader);
    reader = NULL;
    ck_assert_msg(ckpt_reader_open(at("c"), &leave, &reader, &err) == CKPT_OK, "%s", err.message);
    const ckpt_report *said = ckpt_reader_findings(reader);
    const ckpt_finding *f = ckpt_report_find(said, code, NULL);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        errors += ckpt_report_count_code(said, codes[i]);
    ck_assert_uint_eq(errors, 1);
    ck_assert_msg(f && strcmp(f->file, file) == 0 && strstr(f->message, words) && strstr(f->fix, file), "%s: %s: %s",
                  f ? f->file : "nothing", f ? f->message : "", f ? f->fix : "");
    if (whole)
        ck_assert_int_eq(read_counting(number_of(whole)), CKPT_OK);
    ck_assert_msg(ckpt_doctor(reader, NULL, &result, report, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    const ckpt_finding *again = ckpt_report_find(report, code, NULL);
    ck_assert_msg(again && strcmp(again->file, file) == 0, "doctor does not say it");
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
    return f;
}

START_TEST(what_is_there_of_a_checkpoint_that_lacks_files)
{
    copy("cut");
    ck_assert_int_eq(remove(at("c/__1_0.distcp")), 0);
    goes_on("shard-missing", "__1_0.distcp", "what rank 1 wrote is missing", NULL);
    copy("cut");
    ck_assert_int_eq(truncate(at("c/__1_0.distcp"), 5000), 0);
    goes_on("truncated", "__1_0.distcp", "what rank 1 wrote ends at byte 5000", NULL);
    copy("shards");
    ck_assert_int_eq(remove(at("c/shard-00001-model-00001-of-00001.safetensors")), 0);
    goes_on("shard-missing", "shard-00001-model-00001-of-00001.safetensors", "the shard of rank 0 is missing", NULL);
}
END_TEST

/* Each rank has a list of its own, and what it held is in no other: the records that it wrote tell that one is missing, also the last. */
START_TEST(a_rank_without_its_list)
{
    static const char *const lists[] = {"__0.metadata", "__1.metadata"};
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    char path[60], words[80];
    ckpt_report *report = ckpt_report_new();
    copy("ranks");
    snprintf(path, sizeof path, "c/%s", lists[_i]);
    snprintf(words, sizeof words, "the list of rank %d (%s) is missing", _i, lists[_i]);
    ck_assert_int_eq(remove(at("%s", path)), 0);
    is_refused(CKPT_E_DAMAGED, words);
    ck_assert_int_eq(ckpt_verify(at("c"), NULL, &result, report, &err), CKPT_ANSWER_NO);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "rank-missing", NULL));
    goes_on("rank-missing", lists[_i], words, NULL);
    ckpt_report_free(report);
}
END_TEST

/* ---- below a folder: as accelerate and the Trainer keep them */

/* The one error of this code names the file by its place in the folder, and what to do says the same; verify says no, and a
 * salvage that it did not recover it. */
static void folder_says(const char *code, const char *file, const char *words)
{
    ckpt_reader_options survey = {.leave_damaged = true};
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_reader_close(reader);
    reader = NULL;
    ck_assert_msg(ckpt_reader_open(at("acc"), &survey, &reader, &err) == CKPT_OK, "%s", err.message);
    ck_assert_str_eq(ckpt_reader_format(reader), "accelerate");
    const ckpt_finding *f = ckpt_report_find(ckpt_reader_findings(reader), code, NULL);
    ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), code), 1);
    ck_assert_msg(f && f->severity == CKPT_SEVERITY_ERROR && strcmp(f->file, file) == 0 && strstr(f->message, words),
                  "%s: %s", f ? f->file : "nothing", f ? f->message : "");
    ck_assert_int_eq(ckpt_verify(at("acc"), NULL, &result, report, &err), CKPT_ANSWER_NO);
    f = ckpt_report_find(report, code, NULL);
    ck_assert_msg(f && strcmp(f->file, file) == 0, "verify does not say it");
    ckpt_report_clear(report);

    ckpt_migrate_options salvage = CKPT_MIGRATE_OPTIONS_INIT;
    salvage.to = "torch";
    salvage.salvage = true;
    ck_assert_int_ge(ckpt_migrate(at("acc"), at("out.pt"), &salvage, report, &err), CKPT_OK);
    bool said = false;
    for (size_t i = 0; i < ckpt_report_count(report); i++) {
        f = ckpt_report_get(report, i);
        said = said || (strcmp(f->code, "not-recovered") == 0 && strcmp(f->file, file) == 0);
    }
    ck_assert_msg(said, "the salvage does not say it");
    remove(at("out.pt"));
    ckpt_report_free(report);
}

/* acc: a model, and `name` of the data as the state of its optimizer. */
static void put_below(const char *name)
{
    char command[1000];
    ck_assert_int_eq(system(strcat(strcpy(command, "rm -rf "), at("acc"))), 0);
    make_directory("acc");
    write_torch_int(at("acc/scheduler.bin"), "last_epoch", 1);
    snprintf(command, sizeof command, "cp -r '%s' '%s' && chmod -R u+w '%s'", data(name), at("acc/optimizer_0"),
             at("acc"));
    ck_assert_int_eq(system(command), 0);
    snprintf(command, sizeof command, "cp -r '%s' '%s' && chmod -R u+w '%s'", data("trained"),
             at("acc/pytorch_model_fsdp_0"), at("acc"));
    ck_assert_int_eq(system(command), 0);
}

START_TEST(what_a_folder_says_of_its_distributed_checkpoint)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    put_below("cut");
    ck_assert_int_eq(ckpt_verify(at("acc"), NULL, &result, NULL, &err), CKPT_OK);
    ck_assert_int_eq(remove(at("acc/optimizer_0/__1_0.distcp")), 0);
    folder_says("shard-missing", "optimizer_0/__1_0.distcp", "what rank 1 wrote is missing");
    ck_assert_int_eq(open_at(at("acc")), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(err.message, "optimizer_0/__1_0.distcp: what rank 1"), "%s", err.message);
    put_below("cut");
    ck_assert_int_eq(truncate(at("acc/optimizer_0/__1_0.distcp"), 5000), 0);
    folder_says("truncated", "optimizer_0/__1_0.distcp", "what rank 1 wrote ends at byte 5000");
    for (int rank = 0; rank < 2; rank++) {
        char file[60];
        put_below("ranks");
        snprintf(file, sizeof file, "optimizer_0/__%d.metadata", rank);
        ck_assert_int_eq(remove(at("acc/%s", file)), 0);
        folder_says("rank-missing", file, file);
    }
}
END_TEST

START_TEST(what_a_folder_says_of_an_object_in_it)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    put_below("cut");
    replace(at("acc/optimizer_0/__1_0.distcp"), "a run", "a rum");
    folder_says("damaged", "optimizer_0/__1_0.distcp", "the object 'notes.name'");
    put_below("cut");
    write_to(at("acc/optimizer_0/meta.pt"), "PK\3\4 and no more", 16);
    ck_assert_int_eq(ckpt_verify(at("acc"), NULL, &result, report, &err), CKPT_ANSWER_NO);
    ck_assert_uint_eq(ckpt_report_count(report), 2);
    ck_assert_str_eq(ckpt_report_get(report, 0)->file, "optimizer_0/meta.pt");
    ck_assert_str_eq(ckpt_report_get(report, 1)->code, "list-unprotected");
    ckpt_report_free(report);
}
END_TEST

/* ---- lists from strangers */

START_TEST(a_list_that_names_what_it_should_not)
{
    copy("cut");
    replace(at("c/.metadata"), "__0_0.distcp", "../_0.distcp");
    is_refused(CKPT_E_FORMAT, "leaves the checkpoint's directory");
    copy("cut");
    replace(at("c/.metadata"), "_MEM_FORMAT_ENCODING", "_MEM_FORMAT_EXECUTED");
    is_refused(CKPT_E_UNSUPPORTED, "_MEM_FORMAT_EXECUTED");
    copy("cut");
    replace(at("c/.metadata"), "__0_0.distcp", "__1_0.distcp"); /* two records at one place */
    is_refused(CKPT_E_FORMAT, "lie on one another");
    copy("cut");
    write_text(at("c/.metadata"), "cos\nsystem\n(S'echo'\ntR.");
    is_refused(CKPT_E_UNSUPPORTED, "os.system");
    copy("cut");
    write_to(at("c/.metadata"), "\200\2}q\0.", 6);
    is_refused(CKPT_E_MISMATCH, "a pickle of something else");
    copy("cut");
    write_to(at("c/.metadata"), "PK\3\4 and no more", 16);
    is_refused(CKPT_E_DAMAGED, "the pickle is cut off");
}
END_TEST

/* Lists that are of another save: the records say otherwise. */
START_TEST(a_list_that_says_another_dtype)
{
    size_t size;
    copy("cut");
    char *content = slurp(at("c/.metadata"), &size), *dtype = memmem(content, size,
                                                                     "\x8c\x08"
                                                                     "bfloat16",
                                                                     10);
    ck_assert_ptr_nonnull(dtype);
    memcpy(dtype,
           "\x8c\x07"
           "float16\x94",
           10); /* and one more memo, which moves the others: refused, or other elements said so */
    write_to(at("c/.metadata"), content, size);
    free(content);
    ckpt_status status = open_at(at("c"));
    if (status == CKPT_OK)
        status = read_counting(number_of("model.columns.weight"));
    ck_assert_int_lt(status, 0);
}
END_TEST

START_TEST(a_list_that_is_cut_or_changed_anywhere)
{
    size_t size, opened = 0;
    char *content = slurp(data("cut/.metadata"), &size), kept[4096];
    copy("cut");
    for (size_t n = 0; n < size; n++) {
        write_to(at("c/.metadata"), content, n);
        ck_assert_msg(open_at(at("c")) < 0, "%zu bytes of a list of %zu are taken for one", n, size);
    }
    for (size_t i = 0; i < size; i++) {
        content[i] = (char)(content[i] ^ 1 << i % 7);
        write_to(at("c/.metadata"), content, size);
        content[i] = (char)(content[i] ^ 1 << i % 7);
        if (open_at(at("c")) < 0)
            continue;
        opened++;
        for (size_t k = 0; k < ckpt_reader_tensor_count(reader); k++)
            if (ckpt_reader_tensor(reader, k)->nbytes <= sizeof kept)
                (void)ckpt_reader_read(reader, k, kept, (size_t)ckpt_reader_tensor(reader, k)->nbytes, NULL);
    }
    ck_assert_uint_gt(opened, 0); /* a letter of a name */
    free(content);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    static const char *const names[] = {"cut", "ranks", "zstd", "shards"};
    for (size_t d = 0; d < sizeof names / sizeof *names; d++) {
        const char *path = data(names[d]);
        long n = 0;
        if (strcmp(names[d], "zstd") == 0 && !ckpt__zstd_is_there())
            continue;
        do {
            char content[256];
            hit = false;
            countdown = ++n;
            ckpt_status status = ckpt_reader_open(path, NULL, &reader, &err);
            for (size_t i = 0; status == CKPT_OK && i < ckpt_reader_tensor_count(reader); i++)
                status = ckpt_reader_read(reader, i, content, (size_t)ckpt_reader_tensor(reader, i)->nbytes, &err);
            countdown = 0;
            ck_assert_msg(hit || status == CKPT_OK, "%s", err.message);
            ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY || status == CKPT_E_LIMIT,
                          "allocation %ld of %s: %d %s", n, names[d], status, err.message);
            ckpt_reader_close(reader);
            reader = NULL;
        } while (hit);
        ck_assert_int_gt(n, 50);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dcp");
    TCase *t = tcase_create("dcp");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, two_ranks_are_one_checkpoint);
    tcase_add_test(t, other_versions_of_torch);
    tcase_add_test(t, a_compressed_record);
    tcase_add_test(t, a_frame_that_decodes_to_too_much);
    tcase_add_test(t, shards_in_safetensors);
    tcase_add_test(t, whole_tensors_are_restored);
    tcase_add_test(t, a_record_is_looked_into_at_its_first_use);
    tcase_add_test(t, threads_share_a_reader);
    tcase_add_test(t, a_changed_element_is_damage);
    tcase_add_test(t, no_flipped_bit_gives_other_elements);
    tcase_add_test(t, what_lightning_puts_beside);
    tcase_add_test(t, an_object_has_one_ranks_part);
    tcase_add_test(t, a_file_that_lacks_records);
    tcase_add_test(t, what_is_there_of_a_checkpoint_that_lacks_files);
    tcase_add_test(t, what_a_folder_says_of_its_distributed_checkpoint);
    tcase_add_test(t, what_a_folder_says_of_an_object_in_it);
    tcase_add_loop_test(t, a_rank_without_its_list, 0, 2);
    tcase_add_test(t, a_list_that_names_what_it_should_not);
    tcase_add_test(t, a_list_that_says_another_dtype);
    tcase_add_test(t, a_list_that_is_cut_or_changed_anywhere);
    tcase_add_test(t, every_allocation_may_fail);
    suite_add_tcase(s, t);
    return run_suite(s);
}
