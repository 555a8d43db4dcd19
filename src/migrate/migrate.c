/* migrate/migrate.c - a checkpoint in another format, with other device tags, names or dtypes: the order of work.
 *
 *   open       what is read, and what is written (open.c)
 *   decide     the ledger: which tensors go along, which stay behind, and why
 *   rewrite    another tree of the source's: without what stays behind, under other names
 *   describe   the target: its index (place.c) and its tree (root.c)
 *   write      files laid out, one plan of their bytes, and then the bytes (out.c); read back and published */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "base/first_sizes.h"
#include "examine/steps.h"
#include "format/table.h"
#include "migrate/adapter.h"
#include "migrate/layout.h"
#include "migrate/megatron.h"
#include "migrate/select.h"
#include "migrate/mesh.h"
#include "migrate/out.h"
#include "migrate/resume.h"
#include "migrate/rules.h"
#include "migrate/torch.h"

ckpt_status ckpt__migration_no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "the target", 0);
}

char *ckpt__migration_escaped(ckpt_str name)
{
    size_t size = 4 * name.size + 1; /* a byte is four characters at most */
    char *text = malloc(size);
    return text ? ckpt__escape(text, size, name.data ? name.data : "", name.size) : NULL;
}

ckpt_status ckpt__migration_note(ckpt__migration *m, ckpt_severity severity, const char *code, ckpt_str name,
                                 ckpt_error *err, const char *format, ...)
{
    char message[900];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    bool added =
        ckpt__report_add(m->report, severity, code, NULL, NULL, "%s", message) && ckpt__report_tensor(m->report, name);
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

void ckpt__migration_note_row(ckpt__migration *m, size_t tensor)
{
    m->ledger.rows[tensor].finding = (uint32_t)ckpt_report_count(m->report);
}

ckpt_status ckpt__migrate_refuse(const ckpt__migration *m, ckpt_error *err)
{
    return ckpt__report_fail(m->report, CKPT_SEVERITY_ERROR, CKPT_E_MISMATCH, m->src, err);
}

/* ---- the steps */

/* Files of ranks of two saves: each is as it was written, and together they are no checkpoint. --salvage takes them all the same. */
static ckpt_status check_steps(ckpt__migration *m, ckpt_error *err)
{
    enum { MOST = 64 }; /* of an optimizer in a file: enough to tell, and few beside what is copied */
    ckpt_report *found = ckpt_report_new();
    ckpt_status status =
        found ? ckpt__steps_compare(m->reader->source, m->from, MOST, found, err) : ckpt__migration_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < ckpt_report_count(found); i++) {
        const ckpt_finding *f = ckpt_report_get(found, i);
        if (f->severity == CKPT_SEVERITY_ERROR && !m->options.salvage)
            status = ckpt__fail(err, CKPT_E_DAMAGED, m->src, "%s; %s (--salvage takes them as they are)", f->message,
                                f->fix);
        else if (!ckpt__report_add(m->report, CKPT_SEVERITY_WARNING, f->code, f->tensor, f->fix, "%s", f->message) ||
                 !ckpt__report_detail(m->report, f->file, NULL, NULL, 0))
            status = ckpt__migration_no_memory(err);
    }
    ckpt_report_free(found);
    return status;
}

/* What stays behind, and why. Names are those of a tree that all of its values can be read of, in plain terms where that is asked
 * for. */
static ckpt_status decide(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = check_steps(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_recover(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_ranks(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_plain(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_no_optimizer(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_find_names(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_select(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_say_ranks(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_check_order(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_weights(m, err);
    return status == CKPT_OK ? ckpt__migrate_adapter(m, err) : status;
}

/* The tree without that, as the target's program has it, under the target's names. */
static ckpt_status rewrite(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    const bool torch = !m->same && !o->layout && (m->torch || ckpt__migrate_torch_keeps(m));
    const bool renames = !m->same && (o->strip_prefix_count || o->rename_count || o->add_prefix);
    ckpt_status status =
        m->tree ? ckpt__migrate_second_names(m, err) : CKPT_OK; /* while it has those of the listings */
    if (status == CKPT_OK && m->tree && o->cast_count)
        status = ckpt__migrate_find_ties(m, err);
    if (status == CKPT_OK)
        status = ckpt__edits_close_holes(m->edits, m->from->root, &m->from->root, err);
    if (status == CKPT_OK && !m->same && !ckpt__is_torch_dist(m))
        status = ckpt__migrate_one_rank(m, err);
    if (status == CKPT_OK && o->layout)
        status = ckpt__migrate_layout(m, err);
    if (status == CKPT_OK && (torch || (renames && !o->layout)))
        status = ckpt__migrate_flatten(m, err);
    if (status == CKPT_OK && torch && !m->named_script && !o->weights_only)
        status = ckpt__migrate_libtorch(m, err);
    if (status == CKPT_OK && m->torch && !m->same && !ckpt__is_torch_dist(m) && !o->weights_only &&
        ckpt__format_of(m->from)->canonical)
        status = ckpt__migrate_groups(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_names(m, err);
    if (status == CKPT_OK && ckpt__is_torch_dist(m))
        status = ckpt__megatron_ready(m, err);
    if (status == CKPT_OK && (m->as == CKPT__AS_LLMC || m->as == CKPT__AS_RUN || m->torchtitan) && !o->weights_only)
        status = ckpt__resume_step(m, err);
    return status == CKPT_OK && ckpt__resumes(m) ? ckpt__resume_ready(m, err) : status;
}

/* The target's index, and its value tree. */
static ckpt_status describe(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = ckpt__migrate_place(m, err);
    if (status == CKPT_OK)
        status = ckpt__mesh_rules(m, err);
    if (status == CKPT_OK)
        status = ckpt__migrate_check_rules(m, err);
    ckpt__heap_trim();
    return status == CKPT_OK ? ckpt__migrate_root(m, err) : status;
}

/* What was read back takes its name now, and what was there before goes. What reads back otherwise than it was written is no
 * checkpoint: it never has the name, and what was there before stays. */
static ckpt_status publish(ckpt__migration *m, ckpt_status status, ckpt_error *err)
{
    ckpt__sink *sink = m->sink;
    struct stat st;
    m->sink = NULL;
    if (sink && status == CKPT_OK && m->options.force && stat(m->dst, &st) == 0)
        status = ckpt__check_replaced(m, err); /* once more: reading back takes time */
    if (sink && status == CKPT_OK)
        return ckpt__sink_commit(sink, err);
    if (status == CKPT_E_CANCELLED)
        ckpt__interrupted_leave(m, sink, status, err);
    else
        ckpt__sink_abort(sink);
    if (sink && (status == CKPT_E_DAMAGED || status == CKPT_E_SYSTEM)) {
        ckpt__error_object(err, m->dst);
        ckpt__error_prefix(err, "what was written %s, and was removed; what was there before is untouched",
                           status == CKPT_E_DAMAGED ? "reads back damaged" : "cannot be read back");
    }
    return status;
}

/* The names were given; what is left of them are texts. Big checkpoints have as many entries as tensors and values. */
static void forget_entries(ckpt__canon *canon)
{
    ckpt__hash_free(canon->by_name);
    free(canon->entries);
    canon->by_name = NULL;
    canon->entries = NULL;
    canon->count = 0;
}

void ckpt__migrate_forget_source(ckpt__migration *m)
{
    ckpt__canon_free(m->canon);
    ckpt__edits_free(m->edits);
    ckpt__index_free(m->index);
    ckpt__adapter_close(m->adapter);
    ckpt_reader_close(m->reader);
    ckpt__meshed_free(m->meshed);
    m->meshed = NULL;
    m->adapter = NULL;
    m->edits = NULL;
    m->canon = NULL;
    m->index = m->from = NULL;
    m->reader = NULL;
    m->root = NULL;
    ckpt__buf_free(&m->kept);
    ckpt__heap_trim();
}

/* The five steps. */
static ckpt_status migrate(ckpt__migration *m, ckpt_error *err)
{
    ckpt_status status = ckpt__migrate_open(m, err);
    if (status == CKPT_OK)
        status = decide(m, err);
    if (status == CKPT_OK)
        status = rewrite(m, err);
    if (status == CKPT_OK)
        status = describe(m, err);
    if (status == CKPT_OK) {
        forget_entries(m->canon);
        ckpt__heap_trim();
        status = ckpt__migrate_write(m, err); /* the files are laid out and planned before a byte moves */
    }
    if (status == CKPT_OK && m->sink)
        status = ckpt__migrate_read_back(m, err);
    return publish(m, status, err);
}

static void free_all(ckpt__migration *m)
{
    ckpt_report_free(m->lost);
    ckpt_report_free(m->unused);
    ckpt__placement_free(&m->places);
    ckpt__canon_free(m->canon);
    ckpt__edits_free(m->edits);
    ckpt__index_free(m->index);
    ckpt__adapter_close(m->adapter);
    ckpt_reader_close(m->reader);
    ckpt__meshed_free(m->meshed);
    ckpt__followed_free(m->followed);
    ckpt_map_free(m->map);
    ckpt__ledger_free(&m->ledger);
    free(m->kept_names);
    free(m->chosen);
    free(m->rank_tags);
    free(m->expected);
    free(m->beside);
    ckpt__buf_free(&m->kept);
}

ckpt_status ckpt_migrate(const char *src, const char *dst, const ckpt_migrate_options *options, ckpt_report *report,
                         ckpt_error *err)
{
    ckpt__migration m;
    memset(&m, 0, sizeof m);
    m.src = src;
    m.dst = dst;
    if (!src || !*src || !dst || !*dst)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "source and destination are required");
    ckpt_status named = CKPT__TAKE_OPTIONS(ckpt_migrate_options, &m.options, options, err);
    if (named == CKPT_OK && m.options.totals)
        named =
            ckpt__check_answer(m.options.totals, ckpt__first_size_of_ckpt_migrate_totals, "ckpt_migrate_totals", err);
    if (named == CKPT_OK)
        named = ckpt__canon_check_names(m.options.param_names, m.options.param_name_count, src, err);
    if (named == CKPT_OK)
        named = ckpt__order_check(m.options.assume_order, src, err);
    if (named == CKPT_OK && m.options.rank_state > CKPT_RANK_STATE_DERIVE)
        named = ckpt__fail(err, CKPT_E_ARGUMENT, src, "rank_state is %u: it is keep (0), drop (1) or derive (2)",
                           (unsigned)m.options.rank_state);
    if (named < 0)
        return named;
    if (m.options.ranks.world == 0)
        m.options.ranks.world = m.options.target_world ? m.options.target_world : 1;
    m.report = report ? report : ckpt_report_new();
    m.lost = ckpt_report_new();
    m.unused = ckpt_report_new();
    ckpt_report_clear(m.report);
    ckpt_status status = m.report && m.lost && m.unused ? migrate(&m, err) : ckpt__fail_memory(err, "the report", 0);
    if (status == CKPT_OK && m.options.totals)
        CKPT__GIVE_ANSWER(ckpt_migrate_totals, m.options.totals, &m.totals);
    if (!report)
        ckpt_report_free(m.report);
    free_all(&m);
    return status;
}
