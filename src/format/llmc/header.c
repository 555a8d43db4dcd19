/* format/llmc/header.c - the headers of llm.c's files, and what must hold of them. */
#include "format/llmc/llmc.h"

static int32_t int_at(const unsigned char *head, size_t place)
{
    const unsigned char *p = head + place * 4;
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static int64_t long_at(const unsigned char *head, size_t place)
{
    return (int64_t)((uint64_t)(uint32_t)int_at(head, place) | (uint64_t)(uint32_t)int_at(head, place + 1) << 32);
}

bool ckpt__llmc_is_model(const unsigned char *head, size_t size)
{
    return size >= CKPT__LLMC_HEAD && int_at(head, 0) == CKPT__LLMC_MODEL_MAGIC;
}

bool ckpt__llmc_is_state(const unsigned char *head, size_t size)
{
    return size >= CKPT__LLMC_HEAD && int_at(head, 0) == CKPT__LLMC_STATE_MAGIC;
}

static ckpt_status read_head(const ckpt__source *source, uint32_t file, int32_t magic, unsigned char *head,
                             const char *label, ckpt_error *err)
{
    ckpt_status status = ckpt__source_read(source, file, 0, head, CKPT__LLMC_HEAD, err);
    if (status == CKPT_OK && int_at(head, 0) == CKPT__LLMC_MODEL_MAGIC + CKPT__LLMC_STATE_MAGIC - magic)
        return ckpt__fail(
            err, CKPT_E_MISMATCH, label,
            "it begins with %ld, as llm.c's %s do, and its name is that of a %s: two files were exchanged",
            (long)int_at(head, 0), magic == CKPT__LLMC_STATE_MAGIC ? "models" : "states",
            magic == CKPT__LLMC_STATE_MAGIC ? "state" : "model");
    if (status == CKPT_OK && int_at(head, 0) != magic)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "it begins with %ld, where llm.c writes %ld",
                          (long)int_at(head, 0), (long)magic);
    return status;
}

static ckpt_status wrong_size(const char *label, uint64_t is, uint64_t want, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_DAMAGED, label,
                      is < want ? "it ends at byte %llu of %llu that its header asks for: it is cut off"
                                : "it has %llu bytes, and its header asks for %llu: it is not what its header says",
                      (unsigned long long)is, (unsigned long long)want);
}

/* ---- the 16 tensors */

/* A letter a dimension: V padded vocabulary, T positions, L layers, C channels, 3 and 4 times so many channels. */
static const struct {
    const char *name, *shape;
} tensors[CKPT__LLMC_TENSORS] = {{"wte", "VC"},      {"wpe", "TC"},     {"ln1w", "LC"},      {"ln1b", "LC"},
                                 {"qkvw", "L3C"},    {"qkvb", "L3"},    {"attprojw", "LCC"}, {"attprojb", "LC"},
                                 {"ln2w", "LC"},     {"ln2b", "LC"},    {"fcw", "L4C"},      {"fcb", "L4"},
                                 {"fcprojw", "LC4"}, {"fcprojb", "LC"}, {"lnfw", "C"},       {"lnfb", "C"}};

static int64_t size_of(const ckpt__llmc_model *m, char letter)
{
    switch (letter) {
    case 'V':
        return m->padded_vocab;
    case 'T':
        return m->max_t;
    case 'L':
        return m->layers;
    case 'C':
        return m->channels;
    default:
        return (letter - '0') * m->channels;
    }
}

ckpt__llmc_tensor ckpt__llmc_tensor_of(const ckpt__llmc_model *m, size_t i)
{
    ckpt__llmc_tensor t = {.name = tensors[i].name, .layers = tensors[i].shape[0] == 'L' ? (uint64_t)m->layers : 1};
    for (const char *p = tensors[i].shape; *p; p++)
        t.shape[t.ndim++] = size_of(m, *p);
    if (!ckpt__numel(t.shape, t.ndim, &t.numel))
        t.numel = UINT64_MAX;
    return t;
}

/* ---- a model */

/* A GPT of today has some thousand channels: a number of 2^24 is no model, and three of them are still no overflow. */
ckpt_status ckpt__llmc_check_sizes(const ckpt__llmc_model *m, const char *who, const char *label, ckpt_error *err)
{
    const int64_t most = (int64_t)1 << 24;
    const struct {
        const char *what;
        int64_t is;
    } sizes[] = {{"maxT", m->max_t},  {"V", m->vocab},           {"layers", m->layers},
                 {"heads", m->heads}, {"channels", m->channels}, {"padded V", m->padded_vocab}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].is <= 0 || sizes[i].is > most)
            return ckpt__fail(err, CKPT_E_FORMAT, label, "%s says %s %lld, where 1 to %lld is expected", who,
                              sizes[i].what, (long long)sizes[i].is, (long long)most);
    if (m->vocab > m->padded_vocab)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "%s says V %lld, more than padded V, %lld", who,
                          (long long)m->vocab, (long long)m->padded_vocab);
    return CKPT_OK;
}

bool ckpt__llmc_numel(const ckpt__llmc_model *m, uint64_t *out)
{
    bool fits = true;
    *out = 0;
    for (size_t i = 0; fits && i < CKPT__LLMC_TENSORS; i++) {
        uint64_t numel = ckpt__llmc_tensor_of(m, i).numel;
        fits = numel != UINT64_MAX && ckpt__add(*out, numel, out);
    }
    return fits;
}

ckpt_status ckpt__llmc_read_model(const ckpt__source *source, uint32_t file, ckpt__llmc_model *out, ckpt_error *err)
{
    unsigned char head[CKPT__LLMC_HEAD];
    char label[256];
    uint64_t bytes;
    ckpt__source_label(source, file, label, sizeof label);
    ckpt_status status = read_head(source, file, CKPT__LLMC_MODEL_MAGIC, head, label, err);
    if (status < 0)
        return status;
    int32_t version = int_at(head, CKPT__LLMC_VERSION);
    if (version != CKPT__LLMC_FLOAT32 && version != CKPT__LLMC_BFLOAT16)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, label,
                          "it is of version %ld of llm.c's models; 3 (float32) and 5 (bfloat16) are read",
                          (long)version);
    *out = (ckpt__llmc_model){.max_t = int_at(head, CKPT__LLMC_MAX_T),
                              .vocab = int_at(head, CKPT__LLMC_VOCAB),
                              .layers = int_at(head, CKPT__LLMC_LAYERS),
                              .heads = int_at(head, CKPT__LLMC_HEADS),
                              .channels = int_at(head, CKPT__LLMC_CHANNELS),
                              .padded_vocab = int_at(head, CKPT__LLMC_PADDED_VOCAB),
                              .dtype = version == CKPT__LLMC_FLOAT32 ? CKPT_F32 : CKPT_BF16};
    if ((status = ckpt__llmc_check_sizes(out, "its header", label, err)) < 0)
        return status;
    if (!ckpt__llmc_numel(out, &out->numel) || !ckpt__nbytes(out->numel, ckpt_dtype_bits(out->dtype), &bytes) ||
        !ckpt__add(bytes, CKPT__LLMC_HEAD, &bytes))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "the sizes in its header overflow 64 bits");
    uint64_t is = source->files[file].size;
    return is == bytes ? CKPT_OK : wrong_size(label, is, bytes, err);
}

/* ---- a state */

static ckpt_status check_state(const ckpt__llmc_state *s, int32_t version, int32_t master, int32_t shuffles,
                               const char *label, ckpt_error *err)
{
    if (version != 1)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, label, "it is of version %ld of llm.c's states; 1 is read",
                          (long)version);
    if (s->ranks <= 0 || s->rank < 0 || s->rank >= s->ranks || s->step < 0)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "its header says rank %lld of %lld at step %lld",
                          (long long)s->rank, (long long)s->ranks, (long long)s->step);
    if ((master & ~1) || (shuffles & ~1))
        return ckpt__fail(err, CKPT_E_FORMAT, label,
                          "its header says use_master_weights %ld and should_shuffle %ld, where 0 or 1 is expected",
                          (long)master, (long)shuffles);
    return CKPT_OK;
}

/* A list's length at *at, which goes behind the list. */
static ckpt_status read_list(const ckpt__source *source, const ckpt__llmc_state *s, uint64_t *at, uint64_t *count,
                             bool *fits, ckpt_error *err)
{
    unsigned char text[8];
    uint64_t size = source->files[s->file].size;
    *fits = *at <= size && size - *at >= sizeof text;
    if (!*fits)
        return CKPT_OK;
    ckpt_status status = ckpt__source_read(source, s->file, *at, text, sizeof text, err);
    int64_t n = status == CKPT_OK ? long_at(text, 0) : 0;
    *at += sizeof text;
    *fits = n >= 0 && (uint64_t)n <= (size - *at) / 4;
    *count = *fits ? (uint64_t)n : 0;
    *at += *count * 4;
    return status;
}

/* Does the file end where it does with so many elements of each kind? *want: the bytes that it would have, as far as is known. */
static ckpt_status try_length(const ckpt__source *source, ckpt__llmc_state *s, uint64_t numel, uint64_t *want,
                              bool *fits, ckpt_error *err)
{
    uint64_t size = source->files[s->file].size, end;
    *fits = ckpt__mul(numel, (s->master ? 3u : 2u) * 4, &end) && ckpt__add(end, CKPT__LLMC_HEAD, &end);
    *want = *fits ? end : UINT64_MAX;
    if (!*fits)
        return CKPT_OK;
    s->numel = numel;
    s->shuffle_at = end;
    ckpt_status status = CKPT_OK;
    if (s->shuffles) {
        status = read_list(source, s, &end, &s->shards, fits, err);
        if (status == CKPT_OK && *fits)
            status = read_list(source, s, &end, &s->samples, fits, err);
        end += CKPT__LLMC_TWISTER;
        *want = end;
    }
    *fits = *fits && end == size;
    return status;
}

ckpt_status ckpt__llmc_read_state(const ckpt__source *source, const ckpt__llmc_model *model, ckpt__llmc_state *out,
                                  ckpt_error *err)
{
    unsigned char head[CKPT__LLMC_HEAD];
    char label[256];
    uint32_t file = out->file;
    uint64_t split = 0, whole = 0;
    bool fits = false;
    ckpt__source_label(source, file, label, sizeof label);
    ckpt_status status = read_head(source, file, CKPT__LLMC_STATE_MAGIC, head, label, err);
    if (status < 0)
        return status;
    int32_t master = int_at(head, CKPT__LLMC_MASTER), shuffles = int_at(head, CKPT__LLMC_SHUFFLES);
    *out = (ckpt__llmc_state){.file = file,
                              .rank = int_at(head, CKPT__LLMC_RANK),
                              .ranks = int_at(head, CKPT__LLMC_RANKS),
                              .step = int_at(head, CKPT__LLMC_STEP),
                              .master = master == 1,
                              .shuffles = shuffles == 1,
                              .rng = long_at(head, CKPT__LLMC_RNG),
                              .rng_last = long_at(head, CKPT__LLMC_RNG_LAST),
                              .shard = long_at(head, CKPT__LLMC_SHARD),
                              .sample = long_at(head, CKPT__LLMC_SAMPLE)};
    status = check_state(out, int_at(head, CKPT__LLMC_VERSION), master, shuffles, label, err);
    if (status == CKPT_OK && out->ranks > 1 && model->numel % (uint64_t)out->ranks == 0) {
        status = try_length(source, out, model->numel / (uint64_t)out->ranks, &split, &fits, err);
        out->split = fits;
    }
    if (status == CKPT_OK && !fits)
        status = try_length(source, out, model->numel, &whole, &fits, err);
    if (status < 0)
        return status;
    out->there = fits;
    return fits ? CKPT_OK : wrong_size(label, source->files[file].size, split ? split : whole, err);
}
