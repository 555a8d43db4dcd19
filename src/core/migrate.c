/* core/migrate.c - a checkpoint in another format or with other device tags. The target's index is the source's with
 * other names, tags and roles: tensor and storage numbers stay, so payloads are read by the source's numbers. */
#include <ckpt/migrate.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "core/engine.h"
#include "core/migrate_tree.h"
#include "core/placement.h"

typedef struct mover {
    const char *src, *dst;
    ckpt_migrate_options options;
    const ckpt__format *format;
    ckpt_reader *reader;
    ckpt_map *map;
    ckpt__canon *canon;
    ckpt__placement places;
    ckpt_optimizer_kind kind;     /* asked for by options or map; DEFAULT: not */
    ckpt__index *index;           /* the target's */
    ckpt_dtype *casts;            /* per tensor of the index: NONE as saved */
    size_t *chosen, chosen_count; /* the tensors that are written */
    bool *left_out;               /* per tensor */
    bool written;                 /* the target is there under its name */
    ckpt_report *report, *lost;
    /* payload */
    ckpt__payload inner;
    size_t converted;             /* tensor whose converted elements are in `buffer`; SIZE_MAX: none */
    char *buffer;
    uint64_t buffer_size, done, total;
} mover;

/* ---- what goes along */

static ckpt_status lose(mover *m, ckpt_str name, const char *why, ckpt_error *err)
{
    char shown[300];
    ckpt__escape(shown, sizeof shown, name.data ? name.data : "", name.size);
    return ckpt__report_add(m->lost, CKPT_WARNING, "lost", shown, NULL, "%s", why) ? CKPT_OK : ckpt__fail_memory(err, "the report", 0);
}

/* What is not dense has no bytes of its own to write; all else is the format's to take or to report. */
static ckpt_status choose(mover *m, ckpt_error *err)
{
    const ckpt__index *x = m->index;
    ckpt_status status = CKPT_OK;
    m->chosen = calloc(x->tensor_count + 1, sizeof *m->chosen);
    m->left_out = calloc(x->tensor_count + 1, sizeof *m->left_out);
    if (!m->chosen || !m->left_out)
        return ckpt__fail_memory(err, "a list of tensors", x->tensor_count);
    for (size_t i = 0; status == CKPT_OK && i < x->tensor_count; i++) {
        const ckpt__tensor *t = &x->tensors[i];
        bool meta = t->piece_count == 0 && !t->info.layout.data && t->info.part_count == 0;
        char why[200];
        if (t->piece_count == 1 || meta) {
            m->chosen[m->chosen_count++] = i;
            continue;
        }
        m->left_out[i] = true;
        if (t->info.layout.data)
            snprintf(why, sizeof why, "a tensor of layout %.100s is left out: only dense ones are written", t->info.layout.data);
        else
            snprintf(why, sizeof why, "a tensor in %zu pieces is left out: only whole ones are written", t->piece_count);
        status = lose(m, t->info.name, why, err);
    }
    return status;
}

/* The source's reader is this call's own, and so is its tree: references to tensors that stay behind become None. */
static int forget_tensor(void *ctx, const ckpt_visit *visit)
{
    const mover *m = ctx;
    ckpt_value *v = (ckpt_value *)(uintptr_t)visit->value;
    if (v->kind == CKPT_V_TENSOR && v->tensor < m->index->tensor_count && m->left_out[v->tensor])
        v->kind = CKPT_V_NONE;
    return 0;
}

/* ---- the target's index */

static ckpt_status copy_storages(mover *m, ckpt_error *err)
{
    const ckpt__index *from = m->reader->index;
    for (size_t i = 0; i < from->storage_count; i++) {
        ckpt__storage *s = ckpt__index_add_storage(m->index);
        if (!s)
            return ckpt__fail_memory(err, "storages", from->storage_count);
        *s = from->storages[i];
    }
    for (size_t i = 0; i < from->tensor_count; i++) {
        ckpt__tensor *t = ckpt__index_add_tensor(m->index);
        if (!t)
            return ckpt__fail_memory(err, "tensors", from->tensor_count);
        *t = from->tensors[i];
        t->has_crc = false;       /* computed anew on the way */
    }
    return CKPT_OK;
}

/* A converted tensor gets a storage of its own. */
static ckpt_status set_cast(mover *m, size_t tensor, ckpt_dtype to, ckpt_error *err)
{
    ckpt__tensor *t = &m->index->tensors[tensor];
    uint64_t numel, nbytes;
    char from_name[32];
    ckpt_str device = t->info.device, name = t->info.name;
    if (t->info.dtype == to)
        return CKPT_OK;
    if (!ckpt__numel(t->info.shape, t->info.ndim, &numel) || !ckpt__nbytes(numel, ckpt_dtype_bits(to), &nbytes))
        return ckpt__fail(err, CKPT_E_FORMAT, name.data, "its shape overflows");
    snprintf(from_name, sizeof from_name, "%s", ckpt_dtype_name(t->info.dtype));
    ckpt__storage *s = ckpt__index_add_storage(m->index);
    if (!s)
        return ckpt__fail_memory(err, "storages", m->index->storage_count);
    s->extent.size = nbytes;
    s->name = name;
    s->device = device;
    s->unit = 1;
    t->info.dtype = to;
    m->casts[tensor] = to;
    ckpt_status status = ckpt__index_set_view(m->index, tensor, m->index->storage_count - 1, t->info.shape, NULL, 0, err);
    m->index->tensors[tensor].info.device = device;
    if (status == CKPT_OK && (!ckpt__report_add(m->report, CKPT_NOTE, "cast", name.data, NULL, "converted from %s to %s", from_name,
                                                ckpt_dtype_name(to)) ||
                              !ckpt__report_detail(m->report, NULL, from_name, ckpt_dtype_name(to), nbytes)))
        status = ckpt__fail_memory(err, "the report", 0);
    return status;
}

/* Name, role and target of one canonical entry go to its tensor. */
static ckpt_status set_entry(mover *m, size_t item, ckpt_error *err)
{
    const ckpt__canon_entry *e = &m->canon->entries[m->places.entries[item]];
    const ckpt__target *target = &m->places.targets[item];
    ckpt__tensor *t = &m->index->tensors[e->tensor];
    size_t g = m->places.groups[item];
    char before[40] = "", after[CKPT_DEVICE_NAME_MAX] = "";
    t->info.name = e->name;
    t->info.path = (ckpt_path){NULL, 0};
    if (e->role != CKPT_ROLE_NONE)
        t->info.role = e->role;
    t->info.param = e->param;
    t->info.state_key = e->state_key;
    t->info.group = e->group.data ? e->group : g != SIZE_MAX ? m->canon->groups[g].name : e->group;
    if (t->info.device.data)
        ckpt__escape(before, sizeof before, t->info.device.data, t->info.device.size);
    if (target->device.type != CKPT_DEVICE_NONE) {
        ckpt_device_name(target->device, after);
        if (strcmp(before, after) != 0) {
            t->info.device = ckpt__arena_str(m->index->arena, after, strlen(after));
            if (!t->info.device.data)
                return ckpt__fail_memory(err, "device tags", 0);
            if (!ckpt__report_add(m->report, CKPT_NOTE, "moved", e->name.data, NULL, "%s -> %s", *before ? before : "no tag", after) ||
                !ckpt__report_detail(m->report, NULL, before, after, t->info.nbytes))
                return ckpt__fail_memory(err, "the report", 0);
        }
        if (t->piece_count == 1)
            m->index->storages[t->pieces[0].storage].device = t->info.device;
    }
    return target->cast != CKPT_DTYPE_NONE ? set_cast(m, e->tensor, target->cast, err) : CKPT_OK;
}

static ckpt_status build_index(mover *m, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (!(m->index = ckpt__index_new(0)) || !(m->casts = calloc(m->reader->index->tensor_count + 1, sizeof *m->casts)))
        return ckpt__fail_memory(err, "the target's index", 0);
    m->index->format = m->reader->index->format;
    m->index->kind = "file";
    m->index->step = m->reader->index->step;
    status = copy_storages(m, err);
    bool place = m->map || m->kind != CKPT_OPTIMIZER_DEFAULT;     /* asked for nothing: every tag stays */
    if (status == CKPT_OK)
        status = ckpt__placement_build(m->reader->index, m->canon, &m->places, err);
    if (status == CKPT_OK && place)
        status = ckpt__placement_apply(&m->places, m->map, m->options.optimizer, &m->options.ranks, m->report, err);
    for (size_t i = 0; status == CKPT_OK && i < m->places.count; i++)
        status = set_entry(m, i, err);
    if (status == CKPT_OK)
        status = choose(m, err);
    return status == CKPT_OK ? ckpt__index_finish(m->index, err) : status;
}

static int64_t step_of(const ckpt__canon *canon)
{
    size_t i;
    if (!ckpt__hash_get(canon->by_name, "step", 4, &i))
        return -1;
    const ckpt_value *v = canon->entries[i].value;
    return v && v->kind == CKPT_V_INT && v->integer >= 0 ? v->integer : -1;
}

static ckpt_status build_tree(mover *m, const ckpt_value **root, ckpt_error *err)
{
    const ckpt__index *from = m->reader->index;
    ckpt_status status = CKPT_OK;
    *root = from->root;
    int walked = from->root ? ckpt_value_walk(from->root, 0, forget_tensor, m, err) : 0;
    if (walked)
        return (ckpt_status)walked;
    if (strncmp(from->format, "torch", 5) == 0)
        status = ckpt__migrate_tree(from, m->canon, m->format == &ckpt__format_native, m->index->arena, m->lost, root, err);
    if (status == CKPT_OK && *root && m->kind != CKPT_OPTIMIZER_DEFAULT)
        status = ckpt__migrate_flags(*root, m->kind, m->index->arena, root, err);
    if (m->index->step < 0)
        m->index->step = step_of(m->canon);
    return status;
}

/* ---- payloads */

typedef struct gather {
    char *data;
} gather;

static ckpt_status gather_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    (void)err;
    memcpy(((gather *)ctx)->data + offset, data, n);
    return CKPT_OK;
}

/* All elements of a tensor in their new dtype; a step that float32 does not hold exactly is refused. */
static ckpt_status convert(mover *m, size_t tensor, ckpt_error *err)
{
    const ckpt_tensor_info *from = &m->reader->index->tensors[tensor].info, *to = &m->index->tensors[tensor].info;
    uint64_t numel;
    bool changed = false;
    free(m->buffer);
    m->buffer = NULL;
    m->converted = SIZE_MAX;
    gather g = {malloc((size_t)from->nbytes + 1)};
    m->buffer = malloc((size_t)to->nbytes + 1);
    if (!g.data || !m->buffer || !ckpt__numel(from->shape, from->ndim, &numel)) {
        free(g.data);
        return ckpt__fail_memory(err, "a tensor to convert", from->nbytes);
    }
    ckpt_status status = ckpt__read_tensor(m->reader->source, m->reader->index, tensor, true, gather_block, &g, err);
    if (status == CKPT_OK && !ckpt__convert(from->dtype, g.data, to->dtype, m->buffer, (size_t)numel, &changed))
        status = ckpt__fail(err, CKPT_E_UNSUPPORTED, to->name.data, "there is no conversion from %s to %s", ckpt_dtype_name(from->dtype),
                            ckpt_dtype_name(to->dtype));
    if (status == CKPT_OK && changed && to->role == CKPT_STEP)
        status = ckpt__fail(err, CKPT_E_MISMATCH, to->name.data, "this step is not exactly representable in %s", ckpt_dtype_name(to->dtype));
    free(g.data);
    if (status == CKPT_OK) {
        m->converted = tensor;
        m->buffer_size = to->nbytes;
    }
    return status;
}

static ckpt_status read_payload(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                                ckpt_error *err)
{
    mover *m = ctx;
    size_t tensor = number;
    bool own = kind == CKPT__PAYLOAD && m->casts[number] != CKPT_DTYPE_NONE;
    if (kind == CKPT__STORAGE && number >= m->reader->index->storage_count) {
        for (tensor = 0; tensor < m->index->tensor_count; tensor++)
            if (m->casts[tensor] != CKPT_DTYPE_NONE && m->index->tensors[tensor].pieces[0].storage == number)
                break;
        own = true;
    }
    if (!own)
        return m->inner.read(m->inner.ctx, kind, number, offset, dst, n, err);
    ckpt_status status = m->converted == tensor ? CKPT_OK : convert(m, tensor, err);
    if (status == CKPT_OK && (offset > m->buffer_size || n > m->buffer_size - offset))
        status = ckpt__fail(err, CKPT_E_FORMAT, m->index->tensors[tensor].info.name.data, "more was asked for than its bytes");
    if (status == CKPT_OK)
        memcpy(dst, m->buffer + offset, n);
    return status;
}

static ckpt_status write_out(mover *m, ckpt__recipe *recipe, ckpt_error *err)
{
    ckpt__sink_options sink_options = {.sync = !m->options.no_sync, .replace = m->options.force};
    ckpt__reader_payload *inner = NULL;
    ckpt__payload payload = {read_payload, m};
    ckpt__sink *sink = NULL;
    ckpt_status status = ckpt__reader_payload_new(m->reader->source, m->reader->index, &inner, &m->inner, err);
    m->converted = SIZE_MAX;
    m->total = recipe->size * (m->options.verify ? 2 : 1);
    if (status == CKPT_OK)
        status = ckpt__sink_file(m->dst, recipe->size, &sink_options, &sink, err);
    if (status == CKPT_OK) {
        status = ckpt__write_recipe(recipe, &payload, sink, &m->options.progress, 0, m->total, NULL, err);
        if (status == CKPT_OK)
            m->written = (status = ckpt__sink_commit(sink, err)) == CKPT_OK;
        else
            ckpt__sink_abort(sink);
    }
    ckpt__reader_payload_free(inner);
    free(m->buffer);
    m->buffer = NULL;
    m->done = recipe->size;
    return status;
}

/* ---- reading back */

/* The target's tensor of that name that was not asked for yet: names that occur twice stay in their order. */
static ckpt_status next_of_name(const ckpt_reader *back, bool *seen, ckpt_str name, size_t *i, ckpt_error *err)
{
    ckpt_status status = ckpt_reader_find(back, name.data, name.size, i, err);
    size_t first = *i;
    while (status == CKPT_OK && seen[*i]) {
        do {
            *i = (*i + 1) % ckpt_reader_tensor_count(back);
        } while (*i != first && !ckpt__str_equal(ckpt_reader_tensor(back, *i)->name, name));
        if (*i == first)
            status = ckpt__fail(err, CKPT_E_DAMAGED, ckpt_reader_path(back), "tensor '%s' was written more often than it is there", name.data);
    }
    if (status == CKPT_OK)
        seen[*i] = true;
    return status;
}

/* Of those chosen plain safetensors leaves out what it cannot name: its recipe, a segment a tensor, says what is there. */
static ckpt_status keep_written(mover *m, const ckpt__recipe *recipe, ckpt_error *err)
{
    size_t kept = 0;
    if (m->format == &ckpt__format_native)
        return CKPT_OK;           /* holds every one */
    bool *written = calloc(m->index->tensor_count + 1, sizeof *written);
    if (!written)
        return ckpt__fail_memory(err, "a list of tensors", m->index->tensor_count);
    for (size_t i = 0; i < recipe->count; i++)
        if (recipe->segments[i].kind == CKPT__PAYLOAD && recipe->segments[i].number < m->index->tensor_count)
            written[recipe->segments[i].number] = true;
    for (size_t k = 0; k < m->chosen_count; k++)
        if (written[m->chosen[k]])
            m->chosen[kept++] = m->chosen[k];
    m->chosen_count = kept;
    free(written);
    return CKPT_OK;
}

/* Each tensor of the target has the bytes of its source. */
static ckpt_status read_back(mover *m, ckpt_error *err)
{
    ckpt_reader *back = NULL;
    bool *seen = NULL;
    ckpt_status status = ckpt_reader_open(m->dst, NULL, &back, err);
    if (status == CKPT_OK && !(seen = calloc(ckpt_reader_tensor_count(back) + 1, sizeof *seen)))
        status = ckpt__fail_memory(err, "a list of tensors", m->chosen_count);
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const ckpt__tensor *t = &m->index->tensors[m->chosen[k]];
        uint32_t was = 0, is = 0;
        size_t i = 0;
        if (t->piece_count == 0)
            continue;             /* no data */
        status = next_of_name(back, seen, t->info.name, &i, err);
        if (status == CKPT_OK)
            status = ckpt_reader_crc32(back, i, &is, err);
        if (status == CKPT_OK && m->casts[m->chosen[k]] == CKPT_DTYPE_NONE) {
            status = ckpt_reader_crc32(m->reader, m->chosen[k], &was, err);
            if (status == CKPT_OK && was != is)
                status = ckpt__fail(err, CKPT_E_DAMAGED, m->dst, "tensor '%s' reads back with CRC-32 %08x, the source's is %08x",
                                    t->info.name.data, (unsigned)is, (unsigned)was);
        }
        m->done += t->info.nbytes;
        if (status == CKPT_OK && m->options.progress.fn && m->options.progress.fn(m->options.progress.ctx, m->done, m->total) != 0)
            status = ckpt__fail(err, CKPT_E_CANCELLED, m->dst, "written, but cancelled before it was read back");
    }
    free(seen);
    ckpt_reader_close(back);
    return status;
}

/* What reads back otherwise than it was written is no checkpoint: it does not stay under the name. */
static void take_back(const mover *m, ckpt_error *err)
{
    ckpt__error_prefix(err, ckpt__sink_retract(m->dst) ? "what was written reads back damaged, and was removed"
                                 : "what was written reads back damaged, and could not be removed: do not use it");
}

/* ---- before the first byte */

static ckpt_status check_paths(const mover *m, ckpt_error *err)
{
    struct stat a, b;
    memset(&a, 0, sizeof a);
    bool there = stat(m->dst, &b) == 0;
    if (stat(m->src, &a) == 0 && there && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "source and destination are the same: a checkpoint is never rewritten in place");
    if (there && S_ISDIR(b.st_mode))
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "it is a directory: one file is written, give it a name");
    if (there && !m->options.force && !m->options.dry_run)
        return ckpt__fail(err, CKPT_E_EXISTS, m->dst, "it exists; --force replaces it");
    char *inside = realpath(m->src, NULL), *parent = NULL;
    const char *slash = strrchr(m->dst, '/');
    bool within = false;
    char *folder = slash ? strndup(m->dst, slash == m->dst ? 1 : (size_t)(slash - m->dst)) : strdup(".");
    if (inside && folder && S_ISDIR(a.st_mode) && (parent = realpath(folder, NULL))) {
        size_t n = strlen(inside);
        within = strncmp(parent, inside, n) == 0 && (parent[n] == 0 || parent[n] == '/');
    }
    free(inside);
    free(parent);
    free(folder);
    return within ? ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "it would lie inside the source %s, which is never touched", m->src) : CKPT_OK;
}

static ckpt_status prepare(mover *m, ckpt_error *err)
{
    const char *to = m->options.to ? m->options.to : "ckpt";
    ckpt_reader_options reading = {.format = m->options.from};
    ckpt__canon_hints hints;
    m->format = ckpt__format_find(to);
    if (!m->format || !m->format->write)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, m->dst, m->format ? "format '%s' is read, but this version does not write it; it writes ckpt and safetensors"
                                                                     : "there is no format '%s'; this version writes ckpt and safetensors", to);
    ckpt_status status = check_paths(m, err);
    if (status == CKPT_OK && m->options.map_location)
        status = ckpt_map_parse(m->options.map_location, &m->map, err);
    if (status == CKPT_OK)
        status = ckpt_reader_open(m->src, &reading, &m->reader, err);
    if (status < 0)
        return status;
    m->kind = m->options.optimizer != CKPT_OPTIMIZER_DEFAULT ? m->options.optimizer : m->map ? ckpt__map_optimizer(m->map) : CKPT_OPTIMIZER_DEFAULT;
    memset(&hints, 0, sizeof hints);
    hints.map = m->map;
    hints.param_names = m->options.param_names;
    hints.param_name_count = m->options.param_name_count;
    return ckpt__canon_build(m->reader->index, &hints, &m->canon, m->report, err);
}

/* What stays where it is, for the plan of a dry run. */
static ckpt_status plan_copies(mover *m, ckpt_error *err)
{
    for (size_t k = 0; k < m->chosen_count; k++) {
        const ckpt_tensor_info *t = &m->index->tensors[m->chosen[k]].info;
        const char *tag = t->device.data;
        ckpt_str before = m->reader->index->tensors[m->chosen[k]].info.device;
        if (tag && !ckpt__str_equal(t->device, before))
            continue;             /* reported as moved */
        if (!ckpt__report_add(m->report, CKPT_NOTE, "copy", t->name.data, NULL, "%s", tag ? tag : "no tag") ||
            !ckpt__report_detail(m->report, NULL, tag, tag, t->nbytes))
            return ckpt__fail_memory(err, "the report", 0);
    }
    return CKPT_OK;
}

static ckpt_status migrate(mover *m, ckpt_error *err)
{
    const ckpt_value *root = NULL;
    ckpt__recipe *recipe = NULL;
    ckpt_status status = prepare(m, err);
    if (status == CKPT_OK)
        status = build_index(m, err);
    if (status == CKPT_OK)
        status = build_tree(m, &root, err);
    if (status == CKPT_OK) {
        ckpt__write_request request = {.index = m->index, .tensors = m->chosen, .count = m->chosen_count, .root = root,
                                       .step = m->index->step, .lost = m->lost};
        status = m->format->write(&request, &recipe, err);
    }
    if (status == CKPT_OK && !ckpt__report_merge(m->report, m->lost))
        status = ckpt__fail_memory(err, "the report", 0);
    if (status == CKPT_OK && ckpt_report_count_code(m->report, "policy-breach") > 0)
        status = ckpt__report_fail(m->report, CKPT_ERROR, CKPT_E_MISMATCH, m->src, err);
    if (status == CKPT_OK && m->options.dry_run)
        status = plan_copies(m, err);
    else if (status == CKPT_OK) {
        if (ckpt_report_count(m->lost) > 0 && !m->options.lossy) {
            ckpt__report_fail(m->lost, CKPT_NOTE, CKPT_E_UNSUPPORTED, m->dst, err);
            ckpt__error_prefix(err, "format %s cannot hold all of it, and --lossy does not permit to leave it out", m->format->name);
            status = CKPT_E_UNSUPPORTED;
        }
        if (status == CKPT_OK)
            status = write_out(m, recipe, err);
        if (status == CKPT_OK && m->options.verify)
            status = keep_written(m, recipe, err);
        if (status == CKPT_OK && m->options.verify)
            status = read_back(m, err);
        if (status == CKPT_E_DAMAGED && m->written)
            take_back(m, err);
    }
    ckpt__recipe_free(recipe);
    return status;
}

ckpt_status ckpt_migrate(const char *src, const char *dst, const ckpt_migrate_options *options, ckpt_report *report,
                         ckpt_error *err)
{
    mover m;
    memset(&m, 0, sizeof m);
    m.src = src;
    m.dst = dst;
    if (!src || !*src || !dst || !*dst)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "source and destination are wanted");
    if (options && options->struct_size > sizeof *options)
        return ckpt__fail(err, CKPT_E_ARGUMENT, src, "the options are of a newer version of the library");
    if (options)
        memcpy(&m.options, options, options->struct_size ? options->struct_size : sizeof *options);
    if (m.options.ranks.world == 0)
        m.options.ranks.world = 1;
    m.report = report ? report : ckpt_report_new();
    m.lost = ckpt_report_new();
    ckpt_report_clear(m.report);
    ckpt_status status = m.report && m.lost ? migrate(&m, err) : ckpt__fail_memory(err, "the report", 0);
    if (!report)
        ckpt_report_free(m.report);
    ckpt_report_free(m.lost);
    ckpt__placement_free(&m.places);
    ckpt__canon_free(m.canon);
    ckpt__index_free(m.index);
    ckpt_reader_close(m.reader);
    ckpt_map_free(m.map);
    free(m.casts);
    free(m.chosen);
    free(m.left_out);
    return status;
}
