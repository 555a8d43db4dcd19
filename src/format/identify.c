/* format/identify.c - what nobody bids for, told by its first bytes or by the names in a directory. Magic numbers: the
 * formats' own documents. */
#include "codec/zip.h"
#include "format/folder/folder.h"
#include "format/identify.h"

typedef struct magic {
    size_t offset;
    const char *bytes;
    size_t size;
    const char *what; /* completes "this is ..." */
} magic;
#define AT(offset, bytes) offset, bytes, sizeof(bytes) - 1

static const magic magics[] = {
    {AT(0, "PK\x03\x04"), "a zip archive, but not one that torch.save wrote"},
    {AT(0, "PK\x05\x06"), "an empty zip archive"},
    {AT(257, "ustar"), "a tar archive: unpack it first"},
    {AT(0, "\x1f\x8b"), "gzip-compressed: gunzip it first"},
    {AT(0, "\x28\xb5\x2f\xfd"), "zstd-compressed: unzstd it first"},
    {AT(0, "\xfd"
           "7zXZ"),
     "xz-compressed: unxz it first"},
    {AT(0, "BZh"), "bzip2-compressed: bunzip2 it first"},
    {AT(0, "7z\xbc\xaf\x27\x1c"), "a 7-Zip archive: unpack it first"},
    {AT(0, "\xc6\xd7\x34\x01"),
     "a model of llm.c (model_N.bin): its optimizer's state is in state_N_RANK.bin beside it, and llm.c's train_gpt2cu reads both"},
    {AT(0, "\x8f\xd8\x34\x01"),
     "one rank's optimizer state of llm.c (state_N_RANK.bin): its model is in model_N.bin beside it, and llm.c's train_gpt2cu reads both"},
    {AT(0, "GGUF"),
     "a GGUF file (llama.cpp): weights for inference, no training state; gguf-dump (pip install gguf) prints it"},
    {AT(0, "\x93NUMPY"), "a single NumPy array (.npy): numpy.load reads it"},
    {AT(0, "\x7f"
           "ELF"),
     "a program or library"},
    {AT(0, "version https://git-lfs"), "a Git LFS pointer, not the file itself: run git lfs pull"},
    {AT(0, "<!DOCTYPE"), "a web page: the download failed?"},
    {AT(0, "<html"), "a web page: the download failed?"},
};

static bool all_zero(const ckpt__probe *p)
{
    for (size_t i = 0; i < p->head_size; i++)
        if (p->head[i])
            return false;
    return p->head_size > 0;
}

static ckpt_status read_probed(void *ctx, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__probe *p = ctx;
    return ckpt__source_read(p->source, p->file, offset, dst, n, err);
}

/* Where a zip archive begins that ends the file; 0: there is none. */
static uint64_t archive_within(const ckpt__probe *p)
{
    ckpt__probe copy = *p;
    const ckpt__zip_input in = {read_probed, &copy, p->file_size, "archive"};
    uint64_t start = 0;
    return ckpt__zip_start(&in, &start, NULL, NULL) == CKPT_OK ? start : 0;
}

/* The formats of directories say why it is none of theirs. */
static ckpt_status identify_directory(const ckpt__probe *probe, const char *label, ckpt_error *err)
{
    ckpt__folder f;
    ckpt_status status = ckpt__folder_look(probe->source, &f, err);
    if (status == CKPT_OK && f.layout > CKPT__LAYOUT_REFUSED)
        status = ckpt__fail_memory(err, label, 0); /* it is one after all: the bids could not look at it */
    else if (status == CKPT_OK)
        status =
            ckpt__fail(err, f.layout == CKPT__LAYOUT_REFUSED ? CKPT_E_UNSUPPORTED : CKPT_E_FORMAT, label, "%s", f.why);
    ckpt__folder_free(&f);
    return status;
}

ckpt_status ckpt__identify(const ckpt__probe *probe, const char *label, ckpt_error *err)
{
    if (probe->directory)
        return identify_directory(probe, label, err);
    if (probe->file_size == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "not a checkpoint: the file is empty");
    if (all_zero(probe))
        return ckpt__fail(err, CKPT_E_FORMAT, label,
                          "not a checkpoint: the first %zu of its %llu bytes are zero, as after a crash before the "
                          "data reached the disk",
                          probe->head_size, (unsigned long long)probe->file_size);
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        const magic *m = &magics[i];
        if (m->offset + m->size <= probe->head_size && memcmp(probe->head + m->offset, m->bytes, m->size) == 0)
            return ckpt__fail(err, CKPT_E_UNSUPPORTED, label, "this is %s", m->what);
    }
    uint64_t start = archive_within(probe);
    if (start)
        return ckpt__fail(
            err, CKPT_E_FORMAT, label,
            "not a checkpoint as it stands: a zip archive begins at byte %llu and ends the file, and what stands "
            "before it (the header of a download, a script?) keeps torch from reading it; `tail -c +%llu FILE` is "
            "the archive alone",
            (unsigned long long)start, (unsigned long long)start + 1);
    return ckpt__fail(err, CKPT_E_FORMAT, label, "not a checkpoint: unknown format (%llu bytes)",
                      (unsigned long long)probe->file_size);
}
