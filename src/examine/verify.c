/* examine/verify.c - is every byte what was written? Structure (by opening), the manifest of a step directory, and
 * the payloads (verify_payloads.c). */
#include <ckpt/verify.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "engine/stream.h"
#include "examine/steps.h"
#include "examine/verify.h"
#include "examine/verify_work.h"
#include "base/first_sizes.h"
#include "base/workers.h"
#include "format/native/manifest.h"
#include "format/native/native.h"
#include "format/survey.h"

static const char manifest_name[] = "checkpoint.json";
enum { MANIFEST_MAX = 1 << 20 };

const char ckpt__verifier_file_fix[] =
    "copy it again, or take an earlier checkpoint; ckpt-migrate --salvage keeps every tensor that is whole";

ckpt_status ckpt__verifier_tick(ckpt__verifier *v, uint64_t n, ckpt_error *err)
{
    v->done = v->total - v->done < n ? v->total : v->done + n; /* what ends too early is read twice */
    if (v->progress && v->progress->fn && v->progress->fn(v->progress->ctx, v->done, v->total) != 0)
        return ckpt__fail(err, CKPT_E_CANCELLED, NULL, "cancelled");
    return CKPT_OK;
}

static ckpt_status tick_swept(void *ctx, uint64_t bytes, ckpt_error *err)
{
    return ckpt__verifier_tick(ctx, bytes, err);
}

ckpt_status ckpt__verifier_sweep(ckpt__verifier *v, ckpt__swept *list, size_t count, ckpt_error *err)
{
    return ckpt__sweep(v->source, list, count, v->threads, tick_swept, v, err);
}

ckpt_status ckpt__verifier_wrong(ckpt__verifier *v, const char *code, const char *tensor, const char *file,
                                 const char *fix, const char *message, ckpt_error *err)
{
    if (!ckpt__report_add(v->report, CKPT_SEVERITY_ERROR, code, tensor, fix, "%s", message) ||
        !ckpt__report_detail(v->report, file, NULL, NULL, 0))
        return ckpt__fail_memory(err, "the report", 0);
    return CKPT_OK;
}

bool ckpt__verifier_file_is_whole(const ckpt__verifier *v, uint32_t file)
{
    return file < v->whole_count && v->whole[file];
}

/* What this process lacks says nothing of the checkpoint. */
static bool is_ours(const ckpt_error *why)
{
    return why->sys_errno == EMFILE || why->sys_errno == ENFILE || why->sys_errno == ENOMEM ||
           why->sys_errno == EACCES || why->sys_errno == EPERM;
}

/* ---- the manifest */

static ckpt_status tell_read(void *ctx, uint64_t offset, const void *bytes, size_t n, ckpt_error *err)
{
    (void)offset;
    (void)bytes;
    return ckpt__verifier_tick(ctx, n, err);
}

/* CRC-32 of a whole file, block by block. */
static ckpt_status file_crc(ckpt__verifier *v, uint32_t file, uint32_t *crc, ckpt_error *err)
{
    const uint64_t size = v->source->files[file].size;
    const ckpt__span all = {.extent = {.file = file, .coding = CKPT__STORED, .length = size, .size = size},
                            .name = ckpt__s(v->source->files[file].name)};
    return ckpt__read_span(v->source, &all, tell_read, v, crc, err);
}

/* Of a file of the manifest all bytes. It is empty where that file cannot be opened or has another size: then nobody asks for it. */
static ckpt__extent extent_of(ckpt__verifier *v, const ckpt__manifest_file *want)
{
    ckpt__extent none = {.coding = CKPT__STORED}, all = none;
    if (ckpt__source_add(v->source, want->name.data, &all.file, NULL) < 0 ||
        v->source->files[all.file].size != want->size)
        return none;
    all.length = all.size = want->size;
    return all;
}

/* A file of the manifest, as the format opened it or as it is opened here; swept: of all its bytes, where they could be read. */
static ckpt_status manifest_file(ckpt__verifier *v, const ckpt__manifest_file *want, const ckpt__swept *swept,
                                 ckpt_error *err)
{
    uint32_t file;
    uint32_t crc = 0;
    char message[400];
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__source_add(v->source, want->name.data, &file, &why);
    if ((status == CKPT_E_SYSTEM && !is_ours(&why)) || status == CKPT_E_NOT_FOUND || status == CKPT_E_FORMAT) {
        snprintf(message, sizeof message, "the manifest names it, but it cannot be opened: %.300s", why.message);
        return ckpt__verifier_wrong(v, "missing-file", NULL, want->name.data, ckpt__verifier_file_fix, message, err);
    }
    if (status < 0) {
        if (err)
            *err = why;
        return status;
    }
    uint64_t size = v->source->files[file].size;
    if (size != want->size) {
        snprintf(message, sizeof message, "it has %" PRIu64 " bytes, the manifest says %" PRIu64, size, want->size);
        return ckpt__verifier_wrong(v, size < want->size ? "truncated" : "size-mismatch", NULL, want->name.data,
                                    ckpt__verifier_file_fix, message, err);
    }
    if (swept->known && swept->extent->size == size)
        crc = swept->crc;
    else
        status = file_crc(v, file, &crc, err);
    if (status < 0)
        return status;
    if (crc != want->crc) {
        snprintf(message, sizeof message, "the file's CRC-32 is %08" PRIx32 ", the manifest says %08" PRIx32, crc,
                 want->crc);
        return ckpt__verifier_wrong(v, "crc-mismatch", NULL, want->name.data, ckpt__verifier_file_fix, message, err);
    }
    if (file >= v->whole_count) {
        bool *whole = realloc(v->whole, (file + 1) * sizeof *whole);
        if (!whole)
            return ckpt__fail_memory(err, "a list of files", file);
        memset(whole + v->whole_count, 0, (file + 1 - v->whole_count) * sizeof *whole);
        v->whole = whole;
        v->whole_count = file + 1;
    }
    v->whole[file] = true;
    return CKPT_OK;
}

static ckpt_status manifest_files(ckpt__verifier *v, const ckpt__manifest *manifest, ckpt_error *err)
{
    ckpt__extent *extents = calloc(manifest->count + 1, sizeof *extents);
    ckpt__swept *list = calloc(manifest->count + 1, sizeof *list);
    ckpt_status status = extents && list ? CKPT_OK : ckpt__fail_memory(err, "a list of files", manifest->count);
    for (size_t i = 0; status == CKPT_OK && i < manifest->count; i++) {
        v->total += manifest->files[i].size;
        extents[i] = extent_of(v, &manifest->files[i]);
        list[i].extent = &extents[i];
    }
    if (status == CKPT_OK)
        status = ckpt__verifier_sweep(v, list, manifest->count, err);
    for (size_t i = 0; status == CKPT_OK && i < manifest->count; i++)
        status = manifest_file(v, &manifest->files[i], &list[i], err);
    free(extents);
    free(list);
    return status;
}

/* Each file against the manifest: also when the checkpoint itself does not open, to name the file that is damaged. */
static ckpt_status check_manifest(ckpt__verifier *v, ckpt_error *err)
{
    ckpt__buf text = {NULL, 0, 0, false};
    ckpt__manifest manifest;
    uint32_t file;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__arena *arena = ckpt__arena_new(0);
    if (!arena)
        return ckpt__fail_memory(err, "a manifest", 0);
    memset(&manifest, 0, sizeof manifest);
    ckpt_status status = ckpt__source_add(v->source, manifest_name, &file, &why);
    if (status == CKPT_OK)
        status = ckpt__source_slurp(v->source, file, MANIFEST_MAX, &text, &why);
    if (status == CKPT_OK)
        status = ckpt__manifest_read(text.data, text.size, manifest_name, arena, &manifest, &why);
    if (status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT) {
        status = ckpt__verifier_wrong(v, "manifest-damaged", NULL, manifest_name, NULL, why.message, err);
    } else if (status < 0) {
        if (err)
            *err = why;
    } else {
        status = manifest_files(v, &manifest, err);
    }
    ckpt__buf_free(&text);
    ckpt__arena_free(arena);
    return status;
}

/* ---- the checkpoint */

static ckpt_status note_integrity(ckpt__verifier *v, ckpt_error *err)
{
    ckpt_verify_result *r = v->result;
    bool some = v->protected_bytes > 0 || v->index->metadata_crc;
    r->integrity = r->unprotected_bytes == 0 && some ? CKPT_INTEGRITY_CRC32
                   : some                            ? CKPT_INTEGRITY_PARTIAL
                                                     : CKPT_INTEGRITY_NONE;
    bool noted = true;
    if (some && v->index->bare_list)
        noted = ckpt__report_add(
            v->report, CKPT_SEVERITY_NOTE, "list-unprotected", NULL,
            "ckpt-migrate writes a copy whose list has a checksum too",
            "its list (.metadata) has no checksum, as torch writes none: each record was held against it, but a changed "
            "name of a tensor would not be seen");
    if (r->integrity == CKPT_INTEGRITY_NONE)
        noted = ckpt__report_add(
            v->report, CKPT_SEVERITY_NOTE, "no-integrity-data", NULL,
            "ckpt-migrate writes a copy with a CRC-32 of every tensor",
            "the file holds no checksums: nothing wrong was found, but a changed value would not be seen");
    return noted ? CKPT_OK : ckpt__fail_memory(err, "the report", 0);
}

/* What was found while opening; a file that the manifest has blamed already is blamed once. */
static ckpt_status merge_findings(ckpt__verifier *v, const ckpt_report *findings, ckpt_error *err)
{
    size_t before = ckpt_report_count(v->report);
    for (size_t i = 0; i < ckpt_report_count(findings); i++) {
        const ckpt_finding *f = ckpt_report_get(findings, i);
        bool known = false;
        for (size_t k = 0; !known && k < before && f->severity == CKPT_SEVERITY_ERROR && !f->tensor[0]; k++) {
            const ckpt_finding *said = ckpt_report_get(v->report, k);
            known = said->severity == CKPT_SEVERITY_ERROR && f->file[0] && strcmp(said->file, f->file) == 0;
        }
        ckpt_severity severity = strcmp(f->code, "torch-refuses") == 0 ? CKPT_SEVERITY_ERROR : f->severity;
        if (!known && (!ckpt__report_add(v->report, severity, f->code, f->tensor, f->fix, "%s", f->message) ||
                       !ckpt__report_detail(v->report, f->file, f->from, f->to, f->nbytes)))
            return ckpt__fail_memory(err, "the report", 0);
    }
    return CKPT_OK;
}

static ckpt_reader_options reader_options(const ckpt_verify_options *o)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    options.format = o->format;
    options.also = o->also;
    options.also_count = o->also_count;
    return options;
}

static const char mixed_fix[] = "take all files from one save, each under the name that it was saved with";

/* The files are those of several saves, ranks or runs: none of them need be damaged, and together they are no checkpoint. */
static ckpt_status is_mixed(ckpt__verifier *v, const ckpt_error *why, ckpt_error *err)
{
    return ckpt__verifier_wrong(v, "mixed-files", NULL, *why->object ? why->object : NULL, mixed_fix, why->message,
                                err);
}

/* Opens, and checks what could be opened. A damaged structure is an answer, not an error; of several files, each that is
 * damaged is, and the others are checked. */
static ckpt_status verify_open(ckpt__verifier *v, const char *path, const ckpt_verify_options *o, ckpt_error *err)
{
    ckpt_reader *reader = NULL;
    ckpt_reader_options options = reader_options(o);
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__reader_survey(path, &options, &reader, &why);
    if (status == CKPT_E_DAMAGED) {
        const char *code = ckpt__damage_code(why.message);
        return ckpt__verifier_wrong(v, code, NULL, why.object, ckpt__damage_fix(code), why.message, err);
    }
    if (status == CKPT_E_MISMATCH)
        return is_mixed(v, &why, err);
    if (status < 0) {
        if (err)
            *err = why;
        return status;
    }
    ckpt__source *own = v->source;
    /* the whole-file marks are by file of our own source: carry them over by name */
    bool *whole = calloc(reader->source->count + 1, sizeof *whole);
    if (!whole) {
        status = ckpt__fail_memory(err, "a list of files", reader->source->count);
        ckpt_reader_close(reader);
        return status;
    }
    for (size_t i = 0; i < reader->source->count; i++)
        for (size_t k = 0; k < v->whole_count; k++)
            if (v->whole[k] && strcmp(own->files[k].name, reader->source->files[i].name) == 0 &&
                own->files[k].ino == reader->source->files[i].ino && own->files[k].dev == reader->source->files[i].dev)
                whole[i] = true;
    free(v->whole);
    v->whole = whole;
    v->whole_count = reader->source->count;
    v->source = reader->source;
    v->index = reader->index;
    v->result->tensors = reader->index->tensor_count;
    snprintf(v->result->format, sizeof v->result->format, "%s", reader->index->format);
    for (size_t s = 0; s < reader->index->storage_count; s++)
        v->total += ckpt__verifier_file_is_whole(v, reader->index->storages[s].extent.file)
                        ? 0
                        : reader->index->storages[s].extent.size;
    status = merge_findings(v, reader->index->findings, err);
    if (status == CKPT_OK) {
        ckpt__source_pass(reader->source, true, 0);
        status = ckpt__verifier_payloads(v, err);
    }
    if (status == CKPT_OK)
        status = ckpt__verifier_replicas(v, err);
    if (status == CKPT_OK)
        status = ckpt__steps_compare(v->source, v->index, SIZE_MAX, v->report, err);
    if (status == CKPT_OK)
        status = note_integrity(v, err);
    v->source = own;
    v->index = NULL;
    ckpt_reader_close(reader);
    return status;
}

/* What is not read is neither whole nor damaged: where nothing else is wrong, there is no answer. */
static bool only_unread(const ckpt_report *report)
{
    size_t errors = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        errors += ckpt_report_get(report, i)->severity == CKPT_SEVERITY_ERROR;
    return errors == ckpt_report_count_code(report, "member-unread");
}

/* The parts of the ranks of a run: each is checked by itself, by its own manifest, once they are known to belong together. */
static ckpt_status verify_ranks(ckpt__verifier *v, const char *path, const ckpt_verify_options *o, ckpt_error *err)
{
    ckpt_reader *reader = NULL;
    ckpt_reader_options options = reader_options(o);
    ckpt_report *report = ckpt_report_new();
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status =
        report ? ckpt_reader_open(path, &options, &reader, &why) : ckpt__fail_memory(&why, "the report", 0);
    bool ok = status != CKPT_E_MISMATCH;
    ckpt_report_clear(v->report);
    if (status == CKPT_E_DAMAGED) /* the part that is says so itself */
        status = CKPT_OK;
    else if (!ok)
        status = is_mixed(v, &why, err);
    else if (status < 0 && err)
        *err = why;
    ckpt_verify_options each = *o;
    each.also = NULL;
    each.also_count = 0;
    for (size_t i = 0; status >= 0 && i <= o->also_count; i++) {
        ckpt_verify_result one = CKPT_VERIFY_RESULT_INIT;
        status = ckpt_verify(i ? o->also[i - 1] : path, &each, &one, report, err);
        if (status >= 0 && !ckpt__report_merge(v->report, report))
            status = ckpt__fail_memory(err, "the report", 0);
        ok = ok && one.ok;
        if (i == 0 || one.integrity < v->result->integrity)
            v->result->integrity = one.integrity;
        v->result->bytes += one.bytes;
        v->result->tensors += one.tensors;
        v->result->unprotected_bytes += one.unprotected_bytes;
        memcpy(v->result->format, one.format, sizeof one.format);
    }
    ckpt_reader_close(reader);
    ckpt_report_free(report);
    v->result->ok = ok;
    return status < 0 ? status : ok ? CKPT_OK : CKPT_ANSWER_NO;
}

static ckpt_status verify(ckpt__verifier *v, const char *path, const ckpt_verify_options *o, ckpt_error *err)
{
    ckpt_status status = ckpt__source_open(path, &v->source, err);
    for (size_t i = 0; status == CKPT_OK && i < o->also_count; i++)
        status = ckpt__source_open_also(v->source, o->also[i], err);
    if (status == CKPT_OK && o->also_count && ckpt__native_has_ranks(v->source)) {
        ckpt__source_close(v->source);
        v->source = NULL;
        return verify_ranks(v, path, o, err);
    }
    if (status == CKPT_OK && v->source->dirfd >= 0 && faccessat(v->source->dirfd, manifest_name, F_OK, 0) == 0)
        status = check_manifest(v, err);
    if (status == CKPT_OK)
        status = verify_open(v, path, o, err);
    /* an unreadable checkpoint whose manifest names the damage has been answered */
    if (status < 0 && (status == CKPT_E_FORMAT || status == CKPT_E_SYSTEM) &&
        ckpt_report_worst(v->report) == CKPT_SEVERITY_ERROR)
        status = CKPT_OK;
    if (status == CKPT_OK) {
        v->result->ok = ckpt_report_worst(v->report) != CKPT_SEVERITY_ERROR;
        status = v->result->ok ? CKPT_OK : only_unread(v->report) ? CKPT_E_UNSUPPORTED : CKPT_ANSWER_NO;
        if (status != CKPT_OK)
            ckpt__report_fail(v->report, CKPT_SEVERITY_ERROR, status, path, err);
    }
    if (status != CKPT_OK && v->source && !ckpt__source_is_there(v->source)) {
        ckpt_report_clear(v->report); /* what was wrong with it is that it went */
        status =
            ckpt__fail(err, CKPT_E_NOT_FOUND, path, "it was removed or replaced while it was read; verify it again");
    }
    return status;
}

ckpt_status ckpt_verify(const char *path, const ckpt_verify_options *options, ckpt_verify_result *result,
                        ckpt_report *report, ckpt_error *err)
{
    ckpt_verify_options own;
    ckpt_verify_result answer;
    ckpt__verifier v;
    memset(&v, 0, sizeof v);
    memset(&answer, 0, sizeof answer);
    ckpt_status status = CKPT__CHECK_ANSWER(ckpt_verify_result, result, err);
    if (status == CKPT_OK)
        CKPT__GIVE_ANSWER(ckpt_verify_result, result, &answer);
    if (status == CKPT_OK)
        status = CKPT__TAKE_OPTIONS(ckpt_verify_options, &own, options, err);
    bool given = status == CKPT_OK && path && *path && (!own.also_count || own.also);
    for (size_t i = 0; given && i < own.also_count; i++)
        given = own.also[i] != NULL;
    if (status == CKPT_OK && !given)
        status = ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no path was given");
    if (status < 0)
        return status;
    v.progress = &own.progress;
    v.threads = own.threads < CKPT__WORKERS_MAX ? (unsigned)own.threads : CKPT__WORKERS_MAX;
    v.result = &answer;
    v.report = report ? report : ckpt_report_new();
    if (!v.report)
        return ckpt__fail_memory(err, "the report", 0);
    ckpt_report_clear(v.report);
    status = verify(&v, path, &own, err);
    ckpt__source_close(v.source);
    free(v.whole);
    ckpt__views_free(&v.views);
    if (!report)
        ckpt_report_free(v.report);
    CKPT__GIVE_ANSWER(ckpt_verify_result, result, &answer);
    return status;
}
