/* Directories of other formats as weights for transformers: what comes of PyTorch's distributed checkpoints and of Keras's shards
 * (tests/data/dcp, tests/data/keras) reads back with the same tensors, and no file that the source is read from lies beside them. */
#include <ckpt/ckpt.h>
#include <dirent.h>
#include "../folder_files.h"
#include "codec/zstd.h"

static ckpt_error err;
static ckpt_report *report;
static ckpt_reader *source, *target;

static void setup(void)
{
    make_folder();
    report = ckpt_report_new();
    ck_assert_ptr_nonnull(report);
    source = target = NULL;
}

static void teardown(void)
{
    ckpt_reader_close(source);
    ckpt_reader_close(target);
    ckpt_report_free(report);
    remove_folder();
}

/* A fixture as at("c"), with files beside it that are no part of it. */
static void copy(const char *name)
{
    char command[1200];
    snprintf(command, sizeof command, "cp -r '%s/tests/data/%s' '%s' && chmod -R u+w '%s'", getenv("srcdir"), name,
             at("c"), at("c"));
    ck_assert_int_eq(system(command), 0);
    write_text(at("c/config.json"), "{}");
    write_text(at("c/notes.txt"), "kept");
}

static ckpt_status migrate(bool lossy, bool force)
{
    ckpt_migrate_options o = {.to = "hf", .verify = true, .no_sync = true, .lossy = lossy, .force = force};
    return ckpt_migrate(at("c"), at("hf"), &o, report, &err);
}

static void migrates(void)
{
    ckpt_status status = migrate(true, false);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
}

/* The target holds these files, which are in order, and no other. */
static void holds(const char *const *names, size_t count)
{
    struct dirent **found;
    int n = scandir(at("hf"), &found, NULL, alphasort);
    size_t seen = 0;
    ck_assert_int_ge(n, 2);
    for (int i = 0; i < n; i++) {
        const char *name = found[i]->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            ck_assert_msg(seen < count && strcmp(name, names[seen]) == 0, "the target has '%s'", name);
            seen++;
        }
        free(found[i]);
    }
    free(found);
    ck_assert_uint_eq(seen, count);
}

/* The source's tensor of this canonical name: the same one below the model's place in the tree. */
static size_t in_source(ckpt_str name)
{
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < ckpt_reader_tensor_count(source); i++) {
        ckpt_str own = ckpt_reader_tensor(source, i)->name;
        size_t before = own.size - name.size;
        if (own.size >= name.size && memcmp(own.data + before, name.data, name.size) == 0 &&
            (before == 0 || (strncmp(own.data, "model.", 6) == 0 && before == 6))) {
            ck_assert_uint_eq(found, SIZE_MAX);
            found = i;
        }
    }
    ck_assert_msg(found != SIZE_MAX, "'%s' is not in the source", name.data);
    return found;
}

static void *bytes_of(ckpt_reader *reader, size_t i, uint64_t nbytes)
{
    void *own = malloc((size_t)nbytes + 1);
    ck_assert_ptr_nonnull(own);
    ckpt_status status = ckpt_reader_read(reader, i, own, (size_t)nbytes, &err);
    ck_assert_msg(status == CKPT_OK, "%s", err.message);
    return own;
}

/* The target is a directory of weights, and has so many tensors, all as in the source. */
static void same_tensors(size_t count)
{
    ck_assert_msg(ckpt_reader_open(at("c"), NULL, &source, &err) == CKPT_OK, "%s", err.message);
    ck_assert_msg(ckpt_reader_open(at("hf"), NULL, &target, &err) == CKPT_OK, "%s", err.message);
    ck_assert_str_eq(ckpt_reader_format(target), "hf");
    ck_assert_uint_eq(ckpt_reader_tensor_count(target), count);
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(target, i);
        size_t k = in_source(t->name);
        const ckpt_tensor_info *s = ckpt_reader_tensor(source, k);
        ck_assert(s->dtype == t->dtype && s->ndim == t->ndim);
        for (uint32_t d = 0; d < t->ndim; d++)
            ck_assert_int_eq(s->shape[d], t->shape[d]);
        void *a = bytes_of(source, k, t->nbytes), *b = bytes_of(target, i, t->nbytes);
        ck_assert_msg(memcmp(a, b, (size_t)t->nbytes) == 0, "'%s' differs", t->name.data);
        free(a);
        free(b);
    }
}

static const char *const expected[] = {"config.json", "model.safetensors", "notes.txt"};
enum { EXPECTED = sizeof expected / sizeof *expected };

static const struct {
    const char *name;
    size_t count; /* the model's tensors */
} fixtures[] = {{"dcp/ranks", 5}, {"dcp/shards", 5}, {"dcp/zstd", 5}, {"keras/shards", 10}};

START_TEST(weights_alone_go_along)
{
    const char *name = fixtures[_i].name;
    if (strcmp(name, "dcp/zstd") == 0 && !ckpt__zstd_is_there())
        return;
#ifndef HAVE_HDF5
    if (strncmp(name, "keras", 5) == 0)
        return;
#endif
    copy(name);
    migrates();
    holds(expected, EXPECTED);
    same_tensors(fixtures[_i].count);
}
END_TEST

/* Files that no list names are still none of the weights. */
START_TEST(strays_stay)
{
    static const char *const strays[] = {"__7_0.distcp", "__9.metadata.distcp", "old.keras", "old.weights.h5",
                                         "shard-00009-model-00001-of-00001.safetensors"};
    copy("dcp/zstd");
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++)
        write_text(at("c/%s", strays[i]), "x");
    if (!ckpt__zstd_is_there())
        return;
    migrates();
    holds(expected, EXPECTED);
}
END_TEST

/* A shard whose name says nothing is known by what is read from it. */
START_TEST(what_is_read_stays)
{
    static const flat weights[] = {{"a.weight", 2, {2, 3}}};
    make_directory("c");
    write_safetensors(at("c/weights.data"), weights, 1, 1);
    write_text(at("c/model.safetensors.index.json"),
               "{\"metadata\":{},\"weight_map\":{\"a.weight\":\"weights.data\"}}");
    write_text(at("c/config.json"), "{}");
    write_text(at("c/notes.txt"), "kept");
    migrates();
    holds(expected, EXPECTED);
    same_tensors(1);
}
END_TEST

/* The values of a distributed checkpoint have keys, which are no names of files: they are lost, and it is said. */
START_TEST(values_are_lost)
{
    copy("dcp/ranks");
    ck_assert_int_eq(migrate(false, false), CKPT_E_UNSUPPORTED);
    bool said = false;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        said |= strstr(ckpt_report_get(report, i)->message, "all values beside the tensors") != NULL;
    ck_assert(said);
}
END_TEST

/* A directory that holds a distributed checkpoint is none of weights, and is not replaced by one. */
START_TEST(another_checkpoint_stays)
{
    copy("dcp/ranks");
    make_directory("hf");
    write_text(at("hf/__0.metadata"), "x");
    ck_assert_int_eq(migrate(true, true), CKPT_E_EXISTS);
    ck_assert_msg(strstr(err.message, "__0.metadata") != NULL, "%s", err.message);
}
END_TEST

/* A step of ours: its manifest names files that are not written, and stays. */
START_TEST(our_own_manifest_stays)
{
    static const char *const names[] = {"config.json", "model.safetensors", "notes.txt"};
    copy("v01/directory");
    migrates();
    holds(names, 3);
    ck_assert_msg(ckpt_reader_open(at("hf"), NULL, &target, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}
END_TEST

/* --force replaces files of the names that are written, and no others that look like weights. */
START_TEST(other_weights_stay)
{
    static const char *const others[] = {"model_of_mine.safetensors", "model-1-of-2.safetensors",
                                         "model-00001-of-00002.safetensors.bak", "model.safetensors2"};
    copy("dcp/ranks");
    make_directory("hf");
    write_text(at("hf/model-00001-of-00002.safetensors"), "x");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_text(at("hf/%s", others[i]), "mine");
        ck_assert_int_eq(migrate(true, true), CKPT_E_EXISTS);
        ck_assert_msg(strstr(err.message, others[i]) != NULL, "%s", err.message);
        ck_assert_int_eq(remove(at("hf/%s", others[i])), 0);
    }
    ck_assert_int_eq(migrate(true, true), CKPT_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("migrate_hf");
    TCase *tcase = tcase_create("hf");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, weights_alone_go_along, 0, (int)(sizeof fixtures / sizeof *fixtures));
    tcase_add_test(tcase, strays_stay);
    tcase_add_test(tcase, what_is_read_stays);
    tcase_add_test(tcase, values_are_lost);
    tcase_add_test(tcase, another_checkpoint_stays);
    tcase_add_test(tcase, our_own_manifest_stays);
    tcase_add_test(tcase, other_weights_stay);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
