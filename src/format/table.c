/* format/table.c - the one list of formats, and the choice between them. */
#include "format/table.h"
#include "format/folder/folder.h"
#include "format/identify.h"
#include "format/native/native.h"

#include <stdio.h>

const ckpt__format *const ckpt__formats[] = {
    &ckpt__format_native,    &ckpt__format_safetensors, &ckpt__format_torch,      &ckpt__format_torch_legacy,
    &ckpt__format_pickle,    &ckpt__format_keras,       &ckpt__format_dcp,        &ckpt__format_llmc,
    &ckpt__format_deepspeed, &ckpt__format_universal,   &ckpt__format_torch_dist, &ckpt__format_megatron,
    &ckpt__format_fsdp,      &ckpt__format_ranks,       &ckpt__format_hf_trainer, &ckpt__format_accelerate,
    &ckpt__format_peft,      &ckpt__format_hf,          &ckpt__format_folder,     NULL,
};

const ckpt__format *ckpt__format_find(const char *name)
{
    for (size_t i = 0; name && ckpt__formats[i]; i++)
        if (strcmp(ckpt__formats[i]->name, name) == 0)
            return ckpt__formats[i];
    return NULL;
}

const ckpt__format *ckpt__format_of(const ckpt__index *index)
{
    static const ckpt__format none = {.name = ""};
    const ckpt__format *format = ckpt__format_find(index->format);
    return format ? format : &none;
}

bool ckpt__format_owned(const ckpt__index *index, const char *name)
{
    const ckpt__format *own = index ? ckpt__format_of(index) : NULL;
    if (own && own->owns_beside && own->owns_beside(index, name))
        return true;
    for (size_t i = 0; ckpt__formats[i]; i++)
        if (ckpt__formats[i]->owns && ckpt__formats[i]->owns(name))
            return true;
    return false;
}

bool ckpt__in_files(const ckpt__index *index)
{
    return ckpt__index_is_directory(index) && !ckpt__format_of(index)->joins_files;
}

static bool has_values(const ckpt_value *file)
{
    for (size_t i = 0; i < file->entry_count; i++) {
        const ckpt_entry *e = &file->entries[i];
        bool metadata = e->key->kind == CKPT_V_STR && ckpt__str_is(e->key->text, "__metadata__");
        if (e->value->kind != CKPT_V_TENSOR && !metadata)
            return true;
    }
    return false;
}

bool ckpt__files_have_values(const ckpt__index *index)
{
    size_t count = ckpt__in_files(index) && index->root ? index->root->entry_count : 0;
    for (size_t i = 0; i < count; i++) {
        const ckpt_entry *file = &index->root->entries[i];
        bool settings = file->key->kind == CKPT_V_STR && ckpt__str_ends(file->key->text, ".json");
        if (!settings && has_values(file->value))
            return true;
    }
    return false;
}

enum { HEAD_BYTES = 4096 };

static ckpt_status look(const ckpt__read_request *request, unsigned char *head, ckpt__probe *probe, ckpt_error *err)
{
    bool directory = request->file == CKPT__WHOLE_DIRECTORY;
    *probe = (ckpt__probe){.head = head,
                           .directory = directory,
                           .dirfd = request->source->dirfd,
                           .source = request->source,
                           .file = request->file};
    if (directory)
        return CKPT_OK;
    probe->file_size = request->source->files[request->file].size;
    probe->head_size = probe->file_size < HEAD_BYTES ? (size_t)probe->file_size : HEAD_BYTES;
    return ckpt__source_read(request->source, request->file, 0, head, probe->head_size, err);
}

static ckpt_status read_as(const char *name, const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    char known[160] = "";
    const ckpt__format *format = ckpt__format_find(name);
    if (format)
        return format->read(request, out, err);
    for (size_t i = 0, n = 0; ckpt__formats[i]; i++) {
        int more = snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", ckpt__formats[i]->name);
        n += more > 0 && (size_t)more < sizeof known - n ? (size_t)more : 0;
    }
    return ckpt__fail(err, CKPT_E_ARGUMENT, name, "no such format; there are: %s", known);
}

static const ckpt__members members = {ckpt__format_choose, ckpt__format_read};

ckpt__read_request ckpt__read_all(ckpt__source *source)
{
    return (ckpt__read_request){
        .source = source, .file = source->directory ? CKPT__WHOLE_DIRECTORY : 0, .members = &members};
}

/* A bid that no directory format outbids: a step's manifest is there. */
enum { SURE = 90 };

static const ckpt__format *highest_bid(const ckpt__probe *probe)
{
    const ckpt__format *best = NULL;
    int highest = 0;
    for (size_t i = 0; ckpt__formats[i]; i++) {
        int bid = ckpt__formats[i]->bid(probe);
        if (bid > highest) {
            highest = bid;
            best = ckpt__formats[i];
        }
        if (probe->directory && highest >= SURE)
            break; /* the others would read the whole directory's names */
    }
    return best;
}

ckpt_status ckpt__format_choose(const ckpt__read_request *request, const ckpt__format **best, ckpt_error *err)
{
    unsigned char head[HEAD_BYTES];
    ckpt__probe probe;
    ckpt_status status = look(request, head, &probe, err);
    *best = status == CKPT_OK ? highest_bid(&probe) : NULL;
    return status;
}

/* DCP appends a whole file of torch.save for each tensor, so that most of its files are archives one behind the other, and
 * no program reads one alone: what is found wrong with it as a single file is no fault of it. */
static ckpt_status blame_distcp(const ckpt__probe *probe, const char *label, ckpt_status status, ckpt_error *err)
{
    bool judged =
        status == CKPT_E_FORMAT || status == CKPT_E_DAMAGED || status == CKPT_E_UNSUPPORTED || status == CKPT_E_LIMIT;
    if (probe->directory || !judged || !ckpt__ends(probe->source->files[probe->file].name, ".distcp"))
        return status;
    const char *name = probe->source->files[probe->file].name, *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    char rank[40] = "one rank";
    size_t digits = ckpt__begins(name, "__") ? strspn(name + 2, "0123456789") : 0;
    if (digits && digits < 10)
        snprintf(rank, sizeof rank, "rank %.*s", (int)digits, name + 2);
    return ckpt__fail(
        err, CKPT_E_UNSUPPORTED, label,
        "this is a part of a PyTorch distributed checkpoint (DCP): what %s wrote, as records whose names and "
        "places are in .metadata beside it. Alone it is not read: ask for the directory",
        rank);
}

ckpt_status ckpt__format_read(const ckpt__read_request *request, const char *forced, ckpt__index **out, ckpt_error *err)
{
    unsigned char head[HEAD_BYTES];
    char label[256];
    ckpt__probe probe;
    *out = NULL;
    if (forced)
        return read_as(forced, request, out, err);
    ckpt_status status = look(request, head, &probe, err);
    if (status < 0)
        return status;
    const ckpt__format *best = highest_bid(&probe);
    if (!probe.directory)
        ckpt__source_label(request->source, request->file, label, sizeof label);
    else
        ckpt__escape(label, sizeof label, request->source->path, strlen(request->source->path));
    if (!best)
        return blame_distcp(&probe, label, ckpt__identify(&probe, label, err), err);
    status = blame_distcp(&probe, label, best->read(request, out, err), err);
    if (status == CKPT_OK && best == &ckpt__format_safetensors &&
        (status = ckpt__native_disown(*out, label, err)) < 0) {
        ckpt__index_free(*out);
        *out = NULL;
    }
    return status;
}
