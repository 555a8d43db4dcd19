/* format/torch_legacy.c - pickles that are no zip: torch before 1.6 (five pickles, then raw storages), the tar before
 * that, and pickles of anything else. They are recognised and named; this version reads none of them. */
#include "format/torch_priv.h"

enum { MAGIC_WITHIN = 32 };

typedef enum kind { NO, OLD_TORCH, OLD_TAR, PICKLE, TEXT_PICKLE } kind;

/* 0x1950a86a20f9469cfc6c as LONG1 with its STOP, behind what the protocol puts before it. */
static bool has_magic(const unsigned char *head, size_t n)
{
    static const unsigned char magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    size_t within = n < MAGIC_WITHIN ? n : MAGIC_WITHIN;
    if (memmem(head, within, magic, sizeof magic))
        return true;
    static const char text[] = "L119547037146038801333356L\n."; /* protocols 0 and 1 */
    return n >= sizeof text - 1 && memcmp(head, text, sizeof text - 1) == 0;
}

static bool is_old_tar(const unsigned char *head, size_t n)
{
    static const char *const members[] = {"sys_info", "pickle",    "tensors",   "storages",
                                          "./pickle", "./tensors", "./storages"};
    if (n < 512 || memcmp(head + 257, "ustar", 5) != 0)
        return false;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strcmp((const char *)head, members[i]) == 0)
            return true;
    return false;
}

static bool is_word(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* "cmodule\nname\n", "(dp0\n", "(lp1\n", "(ip...": how protocol 0 begins. */
static bool is_text_pickle(const unsigned char *head, size_t n)
{
    if (n >= 4 && head[0] == '(' && (head[1] == 'd' || head[1] == 'l') && head[2] == 'p' && head[3] >= '0' &&
        head[3] <= '9')
        return true;
    if (n < 4 || (head[0] != 'c' && !(head[0] == '(' && head[1] == 'i')))
        return false;
    size_t i = head[0] == 'c' ? 1 : 2;
    for (int line = 0; line < 2; line++, i++) {
        size_t from = i;
        while (i < n && is_word(head[i]))
            i++;
        if (i == n || i == from || head[i] != '\n')
            return false;
    }
    return true;
}

static kind kind_of(const unsigned char *head, size_t n)
{
    if (has_magic(head, n))
        return OLD_TORCH;
    if (is_old_tar(head, n))
        return OLD_TAR;
    if (n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
        return PICKLE;
    return is_text_pickle(head, n) ? TEXT_PICKLE : NO;
}

static int bid(const ckpt__probe *probe)
{
    static const int bids[] = {[NO] = 0, [OLD_TORCH] = 100, [OLD_TAR] = 80, [PICKLE] = 60, [TEXT_PICKLE] = 20};
    return probe->directory ? 0 : bids[kind_of(probe->head, probe->head_size)];
}

static ckpt_status read(const ckpt__read_request *request, ckpt__index **out, ckpt_error *err)
{
    ckpt__source *source = request->source;
    unsigned char head[512];
    *out = NULL;
    if (request->file == CKPT__WHOLE_DIRECTORY)
        return ckpt__fail(err, CKPT_E_FORMAT, source->path, "a directory; a torch checkpoint is a file");
    uint64_t size = source->files[request->file].size;
    size_t n = size < sizeof head ? (size_t)size : sizeof head;
    ckpt_status status = ckpt__source_read(source, request->file, 0, head, n, err);
    if (status < 0)
        return status;
    switch (kind_of(head, n)) {
    case OLD_TORCH:
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, source->path,
            "PyTorch's format before 1.6 (pickles, then raw storages), which this "
            "version does not read. Save it again: torch.save(torch.load(FILE, map_location='cpu'), 'new.pt')");
    case OLD_TAR:
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, source->path,
            "PyTorch's oldest format (a tar of pickle, tensors, storages), which this "
            "version does not read. Save it again: torch.save(torch.load(FILE, map_location='cpu'), 'new.pt')");
    case PICKLE:
    case TEXT_PICKLE:
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, source->path,
                          "a Python pickle that torch.save did not write; this version reads none. "
                          "If you trust where it comes from: torch.save(pickle.load(open(FILE, 'rb')), 'new.pt')");
    case NO:
        break;
    }
    return ckpt__fail(err, CKPT_E_FORMAT, source->path, "neither PyTorch's format before 1.6 nor a pickle");
}

const ckpt__format ckpt__format_torch_legacy = {"torch-legacy", ".pt", bid, read, NULL};
