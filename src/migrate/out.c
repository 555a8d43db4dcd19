/* migrate/out.c - the target as a file, or as a directory of shards as transformers reads them:
 * model-00001-of-0000N.safetensors and model.safetensors.index.json, or one model.safetensors without an index
 * (transformers/modeling_utils.py, huggingface_hub/serialization). */
#include "migrate/out.h"
#include "migrate/adapter.h"
#include "migrate/megatron.h"
#include "migrate/resume.h"
#include "migrate/to_run.h"
#include "migrate/torch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include "codec/json.h"
#include "format/table.h"

/* Of so much memory one part is for what the disk reads ahead. */
enum { AHEAD_FROM = 128 << 20, AHEAD_SHARE = 3 };
static const uint64_t memory_default = (uint64_t)256 << 20, shard_default = (uint64_t)5000000000;

typedef ckpt__out_file shard;
typedef ckpt__out writer;

/* ---- which tensors go into which file */

static shard *add_shard(writer *w, size_t first)
{
    shard *s = ckpt__out_add(w, NULL);
    if (!s)
        return NULL;
    s->first = first;
    s->format = w->m->format;
    s->root = w->m->hf ? NULL : w->m->root;
    return s;
}

/* In order; a tensor is never split, so one that is larger than a shard is a shard of its own. */
static ckpt_status cut_shards(writer *w)
{
    ckpt__migration *m = w->m;
    uint64_t most = m->options.max_shard_size ? m->options.max_shard_size : shard_default, used = 0;
    shard *s = add_shard(w, 0);
    for (size_t k = 0; s && k < m->chosen_count; k++) {
        uint64_t nbytes = m->index->tensors[m->chosen[k]].info.nbytes;
        if (m->hf && s->count && (nbytes > most || used > most - nbytes)) {
            s = add_shard(w, k);
            used = 0;
            if (!s)
                break;
        }
        s->count++;
        used += nbytes;
    }
    if (!s)
        return ckpt__migration_no_memory(w->err);
    if (w->count > 99999)
        return ckpt__fail(w->err, CKPT_E_ARGUMENT, m->dst,
                          "--max-shard-size would make %zu files; at most 99999 have names", w->count);
    for (size_t i = 0; m->hf && i < w->count; i++) {
        char name[64] = "model.safetensors";
        if (w->count > 1)
            snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, w->count);
        if (!(w->files[i].name = ckpt__arena_copy(m->index->arena, name, strlen(name))))
            return ckpt__migration_no_memory(w->err);
    }
    return CKPT_OK;
}

/* transformers leaves the second name of a tied parameter out, and ties it again. */
static ckpt_status leave_ties(ckpt__migration *m, ckpt_error *err)
{
    size_t kept = 0;
    ckpt__hash *seen = ckpt__hash_new(m->chosen_count);
    ckpt_status status = seen ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const size_t tensor = m->chosen[k];
        bool tied;
        status =
            ckpt__leave_tied(m, seen, tensor, m->index->tensors[tensor].info.name, "as transformers does", &tied, err);
        if (!tied)
            m->chosen[kept++] = tensor;
    }
    if (status == CKPT_OK)
        m->chosen_count = kept;
    ckpt__hash_free(seen);
    return status;
}

/* ---- recipes */

/* Of a shard's losses those that are about one tensor; the others are said once for all shards. */
static bool keep_own(ckpt_report *into, const ckpt_report *from)
{
    for (size_t i = 0; i < ckpt_report_count(from); i++) {
        const ckpt_finding *f = ckpt_report_get(from, i);
        if (*f->tensor && !ckpt__report_add(into, f->severity, "lost", f->tensor, f->fix, "%s", f->message))
            return false;
    }
    return true;
}

/* The name of the archive inside a torch file. */
static const char *archive_of(const ckpt__migration *m, const shard *s)
{
    const char *slash = s->name ? strrchr(s->name, '/') : NULL, *name = slash ? slash + 1 : s->name;
    if (!name)
        return ckpt__migrate_torch_archive(m);
    const char *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    return n ? ckpt__arena_copy(m->index->arena, name, n) : NULL;
}

static void note_left_out(ckpt__migration *m, const ckpt__recipe *r)
{
    for (size_t i = 0; i < r->left_count; i++)
        m->ledger.rows[r->left_out[i]].fate = CKPT__FATE_LOST;
}

static ckpt_status make_recipe(writer *w, shard *s)
{
    ckpt__migration *m = w->m;
    if (!s->format || s->recipe) /* none, or it has one */
        return CKPT_OK;
    bool several = m->hf || ((m->same || m->as) && s->format->weights_alone);
    ckpt_report *own = several ? ckpt_report_new() : NULL;
    ckpt__write_request q = {.index = m->index,
                             .source = m->from,
                             .edits = m->edits,
                             .tensors = m->chosen + s->first,
                             .count = s->count,
                             .root = s->root,
                             .only = s->only,
                             .step = m->hf || m->same || m->as ? -1 : m->index->step,
                             .weights_only = m->hf || m->options.weights_only,
                             .lost = several ? own : m->lost,
                             .numbered = m->kept.data != NULL,
                             .archive = archive_of(m, s)};
    if (several && !own)
        return ckpt__migration_no_memory(w->err);
    ckpt_status status = s->format->write(&q, &s->recipe, w->err);
    if (status == CKPT_OK && s->format->keeps_torch)
        status = ckpt__migrate_torch_views(m, s->recipe, w->err);
    if (status == CKPT_OK)
        note_left_out(m, s->recipe);
    if (status == CKPT_OK && own && !keep_own(m->lost, own))
        status = ckpt__migration_no_memory(w->err);
    ckpt_report_free(own);
    return status;
}

static ckpt_status lose(ckpt__migration *m, const char *text, ckpt_error *err)
{
    return ckpt__report_add(m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", text)
               ? CKPT_OK
               : ckpt__migration_no_memory(err);
}

/* A value that is no tensor, nor of the attributes that every state_dict has. */
static int is_value(void *ctx, const ckpt_visit *visit)
{
    ckpt_kind kind = visit->value->kind;
    (void)ctx;
    for (size_t i = 0; i < visit->path.count; i++)
        if (ckpt__str_is(visit->path.keys[i].text, "_metadata") ||
            ckpt__str_is(visit->path.keys[i].text, "__metadata__"))
            return 0;
    return kind != CKPT_V_TENSOR && kind != CKPT_V_DICT && kind != CKPT_V_LIST && kind != CKPT_V_TUPLE;
}

/* What a directory of files holds beside the weights, file by file; what is carried along is none of it. */
static ckpt_status list_files(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *root = m->from->root;
    for (size_t i = 0; i < root->entry_count; i++) {
        const ckpt_entry *e = &root->entries[i];
        char name[200], text[300];
        int found = ckpt_value_walk(e->value, 0, is_value, NULL, err);
        if (found < 0)
            return (ckpt_status)found;
        if (!found || (e->key->kind == CKPT_V_STR && ckpt__is_carried(m->from, e->key->text.data)))
            continue;
        ckpt__escape(name, sizeof name, e->key->text.data ? e->key->text.data : "", e->key->text.size);
        snprintf(text, sizeof text, "the values of %s that are not tensors", name);
        if (!ckpt__report_add(m->lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL, "%s", text))
            return ckpt__migration_no_memory(err);
    }
    return CKPT_OK;
}

/* Weights in safetensors files have no device tags: their loaders are told where they go. */
static ckpt_status note_tags(ckpt__migration *m, ckpt_error *err)
{
    size_t tags = 0;
    char first[80] = "";
    if (m->as != CKPT__AS_DCP && m->as != CKPT__AS_LLMC &&
        ((!m->hf && !m->options.weights_only) || !m->format->weights_alone))
        return CKPT_OK;
    for (size_t k = 0; k < m->chosen_count; k++) {
        ckpt_str tag = m->index->tensors[m->chosen[k]].info.device;
        bool counts = tag.data && !ckpt__str_is(tag, "cpu");
        if (counts && tags++ == 0)
            ckpt__escape(first, sizeof first, tag.data, tag.size);
    }
    if (!tags)
        return CKPT_OK;
    return ckpt__migration_note(
        m, CKPT_SEVERITY_NOTE, "tags-dropped", (ckpt_str){NULL, 0}, err,
        "the device tag%s of %zu tensor%s (%s%s) %s not kept: the program that loads weights says where they go",
        tags == 1 ? "" : "s", tags, tags == 1 ? "" : "s", first, tags == 1 ? "" : ", ...", tags == 1 ? "is" : "are");
}

/* What a directory of weights has no place for: said once. */
static ckpt_status list_hf_losses(ckpt__migration *m, ckpt_error *err)
{
    size_t others = ckpt__ledger_count(&m->ledger, CKPT__FATE_NO_WEIGHT);
    char text[160];
    ckpt_status status = CKPT_OK;
    snprintf(text, sizeof text, "%zu tensor%s none of the model's weights", others,
             others == 1 ? " that is" : "s that are");
    if (status == CKPT_OK && others && !m->options.weights_only)
        status = lose(m, text, err);
    const ckpt_value *root = m->from->root;
    if (status < 0 || m->options.weights_only)
        return status;
    if (root && ckpt__in_files(m->from) && root->kind == CKPT_V_DICT)
        return list_files(m, err);
    const bool canonical = ckpt__format_of(m->from)->canonical;
    if (!m->tree && !canonical)
        return CKPT_OK; /* of plain safetensors what they say of themselves goes along */
    int found = root ? ckpt_value_walk(root, 0, is_value, NULL, err) : 0;
    if (found == 0 && canonical && m->from->step >= 0) /* of weights alone */
        return ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "left-out", (ckpt_str){NULL, 0}, err,
                                    "the step (%lld) is in no file of the target: it holds weights alone",
                                    (long long)m->from->step);
    return found <= 0 ? (ckpt_status)found : lose(m, "all values beside the tensors (settings, step, epoch, ...)", err);
}

static ckpt_status put_index(writer *w, size_t shards)
{
    const ckpt__migration *m = w->m;
    shard *file = ckpt__out_add(w, "model.safetensors.index.json");
    if (!file)
        return ckpt__migration_no_memory(w->err);
    ckpt__buf *b = &file->text;
    uint64_t total = 0;
    for (size_t k = 0; k < m->chosen_count; k++)
        total += ckpt__is_left_out(m, m->chosen[k]) ? 0 : m->index->tensors[m->chosen[k]].info.nbytes;
    ckpt__buf_str(b, "{\n  \"metadata\": {\n    \"total_size\": ");
    ckpt__json_put_u64(b, total);
    ckpt__buf_str(b, "\n  },\n  \"weight_map\": {");
    bool first = true;
    for (size_t i = 0; i < shards; i++)
        for (size_t k = 0; k < w->files[i].count; k++) {
            const size_t tensor = m->chosen[w->files[i].first + k];
            ckpt_str name = m->index->tensors[tensor].info.name;
            if (ckpt__is_left_out(m, tensor))
                continue;
            ckpt__buf_str(b, first ? "\n    " : ",\n    ");
            ckpt__json_put_string(b, name.data, name.size);
            ckpt__buf_str(b, ": ");
            ckpt__json_put_string(b, w->files[i].name, strlen(w->files[i].name));
            first = false;
        }
    ckpt__buf_str(b, "\n  }\n}\n");
    return b->failed ? ckpt__migration_no_memory(w->err) : CKPT_OK;
}

/* ---- bytes */

static uint64_t index_memory(const ckpt__index *x)
{
    return ckpt__arena_used(x->arena) + x->tensor_count * sizeof *x->tensors + x->storage_count * sizeof *x->storages;
}

/* What is known of the source and of the target. */
static uint64_t known_memory(const writer *w, const ckpt__bytes *bytes)
{
    const ckpt__migration *m = w->m;
    uint64_t sum = index_memory(m->from) + index_memory(m->index) + ckpt__arena_used(m->canon->arena) + m->kept.size +
                   ckpt__bytes_memory(bytes) + ckpt__adapter_memory(m);
    for (size_t i = 0; i < w->count; i++) {
        const ckpt__recipe *r = w->files[i].recipe;
        if (r)
            sum += ckpt__arena_used(r->arena) + r->text.size + r->count * sizeof *r->segments +
                   r->range_count * sizeof *r->ranges;
        sum += w->files[i].text.size;
    }
    return sum;
}

/* So many tensors that what is known of them alone is too much: it goes on with the least that buffers need, and says so. */
static ckpt_status note_memory(const writer *w, uint64_t known, uint64_t least, uint64_t all, ckpt_error *err)
{
    const ckpt__migration *m = w->m;
    char fix[80];
    if (known + least <= all)
        return CKPT_OK;
    snprintf(fix, sizeof fix, "--memory %lluMiB, where there is that much",
             (unsigned long long)((known + least) >> 20) + 1);
    bool added =
        ckpt__report_add(m->report, CKPT_SEVERITY_WARNING, "over-memory", NULL, fix,
                         "what is known of %zu tensors takes %llu MiB beside the %llu MiB that buffers need: more than "
                         "--memory %llu MiB",
                         m->from->tensor_count, (unsigned long long)(known >> 20), (unsigned long long)(least >> 20),
                         (unsigned long long)(all >> 20));
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* For the buffers of the payloads, *out; and the blocks in which they are written: where there are so many tensors that
 * what is known of them takes most of the memory, smaller ones. */
static ckpt_status payload_memory(const writer *w, const ckpt__bytes *bytes, uint64_t *out, size_t *block,
                                  ckpt_error *err)
{
    enum { SMALLER = 4 };
    const ckpt__migration *m = w->m;
    uint64_t all = m->options.memory ? m->options.memory : memory_default,
             least = (uint64_t)CKPT__WRITER_MEMORY + CKPT__MEMORY_LEAST;
    uint64_t known = known_memory(w, bytes), blocks = CKPT__WRITER_MEMORY;
    if (all < least)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "--memory: %llu bytes are too few, at least %lluMiB are needed",
                          (unsigned long long)all, (unsigned long long)(least >> 20));
    *block = CKPT__BLOCK;
    if (known > all / 2 || known + least > all) {
        *block /= SMALLER;
        blocks /= SMALLER;
    }
    *out = all - blocks > known + CKPT__MEMORY_LEAST ? all - blocks - known : CKPT__MEMORY_LEAST;
    return note_memory(w, known, blocks + CKPT__MEMORY_LEAST, all, err);
}

static ckpt_status write_literal(ckpt__sink *folder, const char *name, const ckpt__buf *text, ckpt_error *err)
{
    ckpt__sink *sink = NULL;
    ckpt_status status = ckpt__sink_member(folder, name, text->size, &sink, err);
    if (status == CKPT_OK && (status = ckpt__sink_write(sink, 0, text->data, text->size, err)) == CKPT_OK)
        return ckpt__sink_commit(sink, err);
    ckpt__sink_abort(sink);
    return status;
}

/* The target is published, or with --verify kept beside its name until it was read back. */
static ckpt_status finish(const writer *w, ckpt__sink *sink)
{
    ckpt__migration *m = w->m;
    ckpt_error *err = w->err;
    ckpt_status status = ckpt__bytes_finish(w->bytes, err);
    if (status == CKPT_OK && !m->options.verify)
        return ckpt__sink_commit(sink, err);
    if (status == CKPT_OK)
        status = ckpt__sink_settle(sink, err);
    if (status == CKPT_OK && !(m->beside = ckpt__sink_beside(sink)))
        status = ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        m->sink = sink;
    else
        ckpt__interrupted_leave(m, sink, status, err);
    return status;
}

static ckpt_status write_shard(writer *w, shard *s, ckpt__sink *folder, const ckpt__payload *payload)
{
    ckpt__migration *m = w->m;
    ckpt_status listed = s->list ? ckpt__run_list(w, (size_t)(s - w->files)) : CKPT_OK;
    if (listed < 0 || !s->format)
        return listed < 0 ? listed
               : s->copy  ? ckpt__copy_file(w, s, folder)
                          : write_literal(folder, s->name, &s->text, w->err);
    ckpt__sink_options options = {.sync = !m->options.no_sync,
                                  .replace = m->options.force,
                                  .behind = true,
                                  .mode_limit = ckpt__source_mode(m->reader->source)};
    ckpt__sink *sink = NULL;
    ckpt_status status = folder ? ckpt__sink_member(folder, s->name, s->recipe->size, &sink, w->err)
                                : ckpt__sink_file(m->dst, s->recipe->size, &options, &sink, w->err);
    if (status == CKPT_OK)
        status = ckpt__write_recipe(s->recipe, payload, sink, &m->options.progress, m->done, m->total,
                                    folder ? &s->crc : NULL, w->err);
    if (status < 0) {
        ckpt__sink_abort(sink);
        return status;
    }
    m->done += s->recipe->size;
    return folder ? ckpt__sink_commit(sink, w->err) : finish(w, sink);
}

/* What a conversion did to the values, now that they were read. */
static ckpt_status note_casts(writer *w, ckpt__bytes *bytes)
{
    ckpt__migration *m = w->m;
    const ckpt__convert_counts *counts = ckpt__bytes_cast_counts(bytes);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && counts && i < m->from->tensor_count; i++) {
        const ckpt__convert_counts n = counts[i];
        ckpt_str name = m->index->tensors[i].info.name;
        const ckpt_dtype to = ckpt__own_dtype(m, i);
        if (to == CKPT_DTYPE_NONE)
            continue;
        if (n.out_of_range)
            status = ckpt__migration_note(
                m, CKPT_SEVERITY_WARNING, "cast-range", name, w->err,
                "%llu of %llu values are out of the range of %s, and became infinite or the nearest that it has",
                (unsigned long long)n.out_of_range, (unsigned long long)n.elements, ckpt_dtype_name(to));
        if (status == CKPT_OK && n.nan)
            status =
                ckpt__migration_note(m, CKPT_SEVERITY_WARNING, "cast-nan", name, w->err,
                                     "%llu of %llu values are NaN%s", (unsigned long long)n.nan,
                                     (unsigned long long)n.elements, ckpt_dtype_is_float(to) ? "" : ", and became 0");
    }
    return status;
}

static ckpt_status write_all(writer *w, const ckpt__payload *payload)
{
    ckpt__migration *m = w->m;
    ckpt__sink_options options = {.sync = !m->options.no_sync,
                                  .replace = m->options.force,
                                  .replace_any = m->options.force,
                                  .behind = true,
                                  .mode_limit = ckpt__source_mode(m->reader->source)};
    ckpt__sink *folder = NULL;
    ckpt__known_by by = {.digest = ""};
    uint64_t there = 0, all = m->total / (m->options.verify ? 2 : 1);
    ckpt_status status = ckpt__is_folder(m) ? ckpt__interrupted_ask(w, &options, &by) : CKPT_OK;
    if (status == CKPT_OK && ckpt__is_folder(m))
        status = ckpt__sink_directory(m->dst, &options, &folder, w->err);
    ckpt__buf_free(&by.of);
    if (status == CKPT_OK && folder)
        status = ckpt__interrupted_take(w, folder, &there);
    if (status == CKPT_OK && folder)
        status = ckpt__sink_room(folder, all > there ? all - there : 0, w->err);
    for (size_t i = 0; status == CKPT_OK && i < w->folder_count; i++)
        status = ckpt__sink_folder(folder, w->folders[i], w->err);
    for (size_t i = 0, n; status == CKPT_OK && i < w->count; i += n) {
        shard *s = &w->files[i];
        size_t turns = 0;
        if (folder)
            status = ckpt__turns_count(w, i, &turns);
        n = turns > 1 ? turns : 1;
        if (status < 0)
            break;
        if (turns > 1)
            status = ckpt__write_turns(w, i, n, folder, payload);
        else if (!s->taken) {
            status = write_shard(w, s, folder, payload);
            if (status == CKPT_OK && folder)
                status = ckpt__interrupted_record(w, folder, s);
        }
    }
    if (status == CKPT_OK && folder)
        status = finish(w, folder);
    else if (status < 0)
        ckpt__interrupted_leave(m, folder, status, w->err);
    return status;
}

/* A second thread on the only core takes time from the first. */
static bool is_alone(const ckpt__migration *m)
{
    cpu_set_t cores;
    if (m->options.threads)
        return m->options.threads == 1;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
}

static ckpt_status run(writer *w, ckpt__bytes *bytes, uint64_t memory, uint64_t ahead, size_t block)
{
    ckpt__migration *m = w->m;
    ckpt__payload payload;
    unsigned readers = ckpt__bytes_readers(m->options.threads, memory);
    m->total = 0;
    for (size_t i = 0; i < w->count; i++)
        m->total += (w->files[i].recipe ? w->files[i].recipe->size : w->files[i].size) * (m->options.verify ? 2 : 1);
    ckpt__heap_trim();
    ckpt_status status = ckpt__bytes_open(bytes, memory, readers, &payload, w->err);
    if (status == CKPT_OK) {
        payload.alone = is_alone(m);
        m->threads = payload.alone ? 1 : readers + 1;
        payload.block = block;
        /* a source that is passed is not for several threads */
        ckpt__source_pass(m->reader->source, readers > 1, payload.alone ? 0 : ahead);
        status = write_all(w, &payload);
    }
    if (status == CKPT_OK)
        status = note_casts(w, bytes);
    return status;
}

static ckpt_status refuse_losses(const ckpt__migration *m, ckpt_error *err)
{
    ckpt__report_fail(m->lost, CKPT_SEVERITY_NOTE, CKPT_E_UNSUPPORTED, m->dst, err);
    ckpt__error_prefix(err, "format %s cannot hold all of it, and --lossy does not permit to leave it out", m->to);
    return CKPT_E_UNSUPPORTED;
}

/* Bytes of all files, as they will be: known before the first is written. */
static ckpt_status note_size(writer *w)
{
    ckpt__migration *m = w->m;
    uint64_t sum = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        const shard *s = &w->files[i];
        uint64_t size = s->recipe ? s->recipe->size : s->text.size;
        if (s->copy)
            status = ckpt__copy_size(w, s, &size);
        sum += size;
    }
    if (status == CKPT_OK)
        status =
            ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "size", (ckpt_str){NULL, 0}, w->err, "%llu bytes in %zu file%s",
                                 (unsigned long long)sum, w->count, w->count == 1 ? "" : "s");
    return status < 0 || ckpt__report_detail(m->report, NULL, NULL, NULL, sum) ? status
                                                                               : ckpt__migration_no_memory(w->err);
}

ckpt_status ckpt__migrate_write(ckpt__migration *m, ckpt_error *err)
{
    writer w = {.m = m, .err = err};
    ckpt__bytes *bytes = NULL;
    uint64_t memory = 0;
    size_t block = 0;
    ckpt_status status = m->hf && !m->as ? leave_ties(m, err) : CKPT_OK;
    if (status == CKPT_OK)
        status = m->same                       ? ckpt__same_files(&w)
                 : ckpt__is_dcp(m)             ? ckpt__dcp_files(&w)
                 : ckpt__is_torch_dist(m)      ? ckpt__megatron_files(&w)
                 : m->as == CKPT__AS_UNIVERSAL ? ckpt__universal_files(&w)
                 : m->as == CKPT__AS_RUN       ? ckpt__run_files(&w)
                 : m->as == CKPT__AS_LLMC      ? ckpt__llmc_files(&w)
                 : m->as                       ? ckpt__trainer_files(&w)
                                               : cut_shards(&w);
    size_t shards = w.count;
    for (size_t i = 0; status == CKPT_OK && i < shards; i++)
        status = make_recipe(&w, &w.files[i]);
    if (status == CKPT_OK && m->hf)
        status = list_hf_losses(m, err);
    if (status == CKPT_OK && m->hf && !m->as && shards > 1)
        status = put_index(&w, shards);
    if (status == CKPT_OK && m->hf && m->reader->source->directory)
        status = ckpt__carry_files(&w);
    if (status == CKPT_OK && !ckpt__report_merge(m->report, m->lost))
        status = ckpt__migration_no_memory(err);
    if (status == CKPT_OK &&
        ckpt_report_count_code(m->report, "policy-breach") + ckpt_report_count_code(m->report, "shared-split") > 0)
        status = ckpt__migrate_refuse(m, err);
    if (status == CKPT_OK)
        status = note_tags(m, err);
    if (status == CKPT_OK)
        status = note_size(&w);
    if (status == CKPT_OK && !m->options.dry_run && ckpt_report_count(m->lost) > 0 && !m->options.lossy)
        status = refuse_losses(m, err);
    if (status == CKPT_OK)
        status = ckpt__bytes_plan(&w, &bytes);
    if (status == CKPT_OK)
        status = payload_memory(&w, bytes, &memory, &block, err);
    const uint64_t ahead = memory >= AHEAD_FROM ? memory / AHEAD_SHARE : 0;
    memory -= ahead;
    w.bytes = bytes;
    if (status == CKPT_OK && m->options.dry_run)
        status = ckpt__interrupted_tell(&w);
    if (status == CKPT_OK)
        status = ckpt__plan_tell(&w, bytes, memory);
    if (status == CKPT_OK && !m->options.dry_run)
        status = run(&w, bytes, memory, ahead, block);
    ckpt__bytes_free(bytes);
    if (status == CKPT_OK && m->sink)
        status = ckpt__check_copies(&w);
    for (size_t i = 0; i < w.count; i++) {
        ckpt__recipe_free(w.files[i].recipe);
        ckpt__buf_free(&w.files[i].text);
    }
    ckpt__recipe_free(w.ranged);
    free(w.files);
    free(w.folders);
    return status;
}
