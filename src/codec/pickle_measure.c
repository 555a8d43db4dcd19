/* codec/pickle_measure.c - where a pickle ends. Its opcodes are walked and nothing is made of them, so a pickle at the
 * head of a large file is found without reading more than it. Argument kinds: Lib/pickletools.py. */
#include "codec/pickle.h"
#include "codec/pickle_vm.h"

#include <stdlib.h>

enum { WINDOW = 64 << 10 };

const ckpt__pickle_shape ckpt__pickle_shapes[256] = {
    ['J'] = {4, 0, 0},  ['K'] = {1, 0, 0},  ['M'] = {2, 0, 0},  ['G'] = {8, 0, 0},  ['h'] = {1, 0, 0},
    ['q'] = {1, 0, 0},  ['j'] = {4, 0, 0},  ['r'] = {4, 0, 0},  [0x80] = {1, 0, 0}, [0x82] = {1, 0, 0},
    [0x83] = {2, 0, 0}, [0x84] = {4, 0, 0}, [0x95] = {8, 0, 0}, [0x8a] = {0, 1, 0}, ['U'] = {0, 1, 0},
    ['C'] = {0, 1, 0},  [0x8c] = {0, 1, 0}, [0x8b] = {0, 4, 0}, ['T'] = {0, 4, 0},  ['B'] = {0, 4, 0},
    ['X'] = {0, 4, 0},  [0x8d] = {0, 8, 0}, [0x8e] = {0, 8, 0}, [0x96] = {0, 8, 0}, ['I'] = {0, 0, 1},
    ['L'] = {0, 0, 1},  ['S'] = {0, 0, 1},  ['V'] = {0, 0, 1},  ['F'] = {0, 0, 1},  ['g'] = {0, 0, 1},
    ['p'] = {0, 0, 1},  ['P'] = {0, 0, 1},  ['c'] = {0, 0, 2},  ['i'] = {0, 0, 2},
};

typedef struct walker {
    const ckpt__pickle_input *in;
    const char *label;
    ckpt_error *err;
    uint64_t begin, at; /* of the pickle; of the next byte */
    uint64_t window_at;
    size_t window_size;
    unsigned char *window;
} walker;

static ckpt_status cut_off(const walker *w)
{
    return ckpt__fail(
        w->err, CKPT_E_DAMAGED, w->label,
        "the file ends at byte %llu inside the pickle that begins at byte %llu: it is cut off, or a length in "
        "the pickle is wrong",
        (unsigned long long)w->in->size, (unsigned long long)w->begin);
}

static ckpt_status byte_at(walker *w, uint64_t at, unsigned char *out)
{
    if (at >= w->in->size)
        return cut_off(w);
    if (at < w->window_at || at - w->window_at >= w->window_size) {
        uint64_t left = w->in->size - at;
        size_t n = left < WINDOW ? (size_t)left : WINDOW;
        ckpt_status status = w->in->read(w->in->ctx, at, w->window, n, w->err);
        if (status < 0)
            return status;
        w->window_at = at;
        w->window_size = n;
    }
    *out = w->window[at - w->window_at];
    return CKPT_OK;
}

static ckpt_status skip(walker *w, uint64_t n)
{
    if (n > w->in->size - w->at)
        return cut_off(w);
    w->at += n;
    return CKPT_OK;
}

static ckpt_status skip_counted(walker *w, unsigned width)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < width; i++) {
        unsigned char c = 0;
        ckpt_status status = byte_at(w, w->at, &c);
        if (status < 0)
            return status;
        n |= (uint64_t)c << 8 * i;
        w->at++;
    }
    return skip(w, n);
}

static ckpt_status skip_line(walker *w)
{
    unsigned char c = 0;
    do {
        ckpt_status status = byte_at(w, w->at, &c);
        if (status < 0)
            return status;
        w->at++;
    } while (c != '\n');
    return CKPT_OK;
}

static ckpt_status step(walker *w, bool *stopped)
{
    unsigned char opcode = 0;
    ckpt_status status = byte_at(w, w->at, &opcode);
    if (status < 0)
        return status;
    if (!ckpt__pickle_ops[opcode].name)
        return ckpt__fail(w->err, CKPT_E_FORMAT, w->label,
                          "byte %llu: 0x%02x is not an opcode of protocols 0 to 5: no pickle, or a damaged one",
                          (unsigned long long)w->at, opcode);
    w->at++;
    *stopped = opcode == '.';
    const ckpt__pickle_shape *s = &ckpt__pickle_shapes[opcode];
    status = skip(w, s->fixed);
    if (status == CKPT_OK && s->counted)
        status = skip_counted(w, s->counted);
    for (unsigned i = 0; status == CKPT_OK && i < s->lines; i++)
        status = skip_line(w);
    return status;
}

ckpt_status ckpt__pickle_measure(const ckpt__pickle_input *in, uint64_t from, const char *label, uint64_t *end,
                                 ckpt_error *err)
{
    walker w = {.in = in, .label = label, .err = err, .begin = from, .at = from};
    if (from >= in->size)
        return ckpt__fail(err, CKPT_E_DAMAGED, label,
                          "the file ends at byte %llu, where a pickle must begin: it is cut off",
                          (unsigned long long)in->size);
    w.window = malloc(WINDOW);
    if (!w.window)
        return ckpt__fail_memory(err, label, WINDOW);
    ckpt_status status = CKPT_OK;
    for (bool stopped = false; status == CKPT_OK && !stopped;)
        status = step(&w, &stopped);
    free(w.window);
    *end = w.at;
    return status;
}
