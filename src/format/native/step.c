/* format/native/step.c - the directory of a step: checkpoint.json names its files; together they are one checkpoint. */
#include "format/native/manifest.h"
#include "format/native/native.h"
#include "format/survey.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define MANIFEST "checkpoint.json"
enum { MANIFEST_BYTES = 1 << 20 };

int ckpt__native_bid_step(const ckpt__probe *probe)
{
    struct stat st;
    if (probe->dirfd < 0)
        return 0; /* several files */
    if (fstatat(probe->dirfd, MANIFEST, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : 90; /* the reading says what is wrong with it */
    return S_ISREG(st.st_mode) ? 90 : 0;
}

static ckpt_status add(ckpt__native_reader *r, const char *name, uint32_t *file, ckpt_error *err)
{
    return r->rooted ? ckpt__source_add_at(r->source, r->root, name, file, err)
                     : ckpt__source_add(r->source, name, file, err);
}

static ckpt_status read_manifest(ckpt__native_reader *r, ckpt__manifest *m, ckpt_error *err)
{
    char label[256];
    uint32_t file;
    ckpt__buf text = {0};
    ckpt_status status = add(r, MANIFEST, &file, err);
    if (status < 0)
        return status;
    ckpt__source_label(r->source, file, label, sizeof label);
    status = ckpt__source_slurp(r->source, file, MANIFEST_BYTES, &text, err);
    if (status == CKPT_OK)
        status = ckpt__manifest_read(text.data ? text.data : "", text.size, label, r->index->arena, m, err);
    r->index->metadata_bytes += text.size;
    ckpt__buf_free(&text);
    return status;
}

/* One file of the manifest: there, of the right size, of the same step. */
static ckpt_status read_member(ckpt__native_reader *r, const ckpt__manifest *m, const ckpt__manifest_file *mf,
                               ckpt_error *err)
{
    char label[256];
    uint32_t file;
    int64_t step = -1;
    ckpt_status status = add(r, mf->name.data, &file, err);
    if (status == CKPT_E_SYSTEM || status == CKPT_E_NOT_FOUND) {
        ckpt__error_prefix(err, "the manifest names '%s'", mf->name.data);
        if (err && err->sys_errno == ENOENT) /* the directory is incomplete: that is damage */
            err->status = status = CKPT_E_DAMAGED;
    }
    if (status < 0)
        return status;
    ckpt__source_label(r->source, file, label, sizeof label);
    uint64_t size = r->source->files[file].size;
    if (size != mf->size && !r->salvage)
        return ckpt__fail(err, CKPT_E_DAMAGED, label, "has %llu bytes, the manifest says %llu: %s",
                          (unsigned long long)size, (unsigned long long)mf->size,
                          size < mf->size ? "truncated" : "of another save");
    status = ckpt__native_read_file(r, file, mf->name, &step, err);
    if (status == CKPT_OK && step != m->step)
        status = ckpt__fail(err, CKPT_E_DAMAGED, label,
                            "is of step %lld, the manifest of step %lld: files of two saves are mixed", (long long)step,
                            (long long)m->step);
    return status;
}

/* A salvage goes on without a file that is not there, or whose header is not: only its name is known. */
static ckpt_status note_lost(ckpt__native_reader *r, const ckpt__manifest_file *mf, ckpt_error *err)
{
    char why[600] = "";
    if (err)
        memcpy(why, err->message, strnlen(err->message, sizeof why - 1));
    return ckpt__report_add(r->index->findings, CKPT_SEVERITY_ERROR, "not-recovered", NULL, NULL,
                            "nothing of the file '%s' can be recovered: %s", mf->name.data, why)
               ? CKPT_OK
               : ckpt__fail_memory(err, "findings", 0);
}

/* A survey goes on without the file: nothing of it stays in the index. */
static ckpt_status pass_over(ckpt__native_reader *r, const char *name, size_t tensors, size_t storages,
                             size_t elsewhere, const ckpt_error *why, ckpt_error *err)
{
    r->index->tensor_count = tensors;
    r->index->storage_count = storages;
    r->elsewhere_count = elsewhere;
    return ckpt__survey_note(r->index->findings, name, why->status, why, err);
}

/* Two files must not hold the same name: which of them would count? */
static ckpt_status check_names(const ckpt__native_reader *r, ckpt_error *err)
{
    const ckpt__index *x = r->index;
    char text[160];
    ckpt__hash *names = ckpt__hash_new(x->tensor_count);
    int put = names ? 1 : -1;
    size_t i, first = 0;
    for (i = 0; i < x->tensor_count && put >= 0; i++) {
        ckpt_str name = x->tensors[i].info.name;
        put = ckpt__hash_put(names, name.data, name.size, i, &first);
        if (put == 0 && x->tensors[first].info.file.data != x->tensors[i].info.file.data)
            break;
    }
    ckpt__hash_free(names);
    if (put < 0)
        return ckpt__fail_memory(err, "names", 0);
    if (i == x->tensor_count)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_FORMAT, r->source->path, "the tensor '%s' is in %s and in %s",
                      ckpt__escape(text, sizeof text, x->tensors[i].info.name.data, x->tensors[i].info.name.size),
                      x->tensors[first].info.file.data, x->tensors[i].info.file.data);
}

ckpt_status ckpt__native_read_step(ckpt__native_reader *r, ckpt_error *err)
{
    ckpt__manifest m = {.step = -1};
    ckpt_status status = read_manifest(r, &m, err);
    for (size_t i = 0; status == CKPT_OK && i < m.count; i++) {
        size_t before = r->index->tensor_count, storages = r->index->storage_count, elsewhere = r->elsewhere_count;
        const ckpt_value *root = r->index->root;
        ckpt_error why = CKPT_ERROR_INIT;
        status = read_member(r, &m, &m.files[i], &why);
        if (status < 0 && err)
            *err = why;
        if (status == CKPT_E_DAMAGED && r->salvage && r->index->tensor_count == before)
            status = note_lost(r, &m.files[i], err);
        else if (r->survey && ckpt__survey_passes(status)) {
            r->index->root = root;
            status = pass_over(r, m.files[i].name.data, before, storages, elsewhere, &why, err);
        }
    }
    r->index->step = m.step;
    return status == CKPT_OK ? check_names(r, err) : status;
}
