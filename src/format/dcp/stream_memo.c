/* format/dcp/stream_memo.c - the window on a list, and the memo of which only what is fetched is kept. A pickler numbers each text, tuple
 * and object, 35 million of a large list, and fetches a few thousand. */
#include "format/dcp/stream.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- the window */

bool ckpt__dcp_window_open(ckpt__dcp_window *w, const ckpt__pickle_input *in)
{
    *w = (ckpt__dcp_window){.in = in, .bytes = malloc(CKPT__DCP_WINDOW + CKPT__DCP_ARGUMENT)};
    w->at = w->end = w->bytes;
    return w->bytes != NULL;
}

void ckpt__dcp_window_close(ckpt__dcp_window *w)
{
    free(w->bytes);
}

void ckpt__dcp_window_rewind(ckpt__dcp_window *w)
{
    w->at = w->end = w->bytes;
    w->next = 0;
}

bool ckpt__dcp_window_more(ckpt__dcp_window *w, size_t n)
{
    size_t has = (size_t)(w->end - w->at);
    if (w->next == w->in->size || n > CKPT__DCP_WINDOW)
        return false;
    memmove(w->bytes, w->at, has);
    uint64_t left = w->in->size - w->next;
    size_t more = left < CKPT__DCP_WINDOW - has ? (size_t)left : CKPT__DCP_WINDOW - has;
    w->at = w->end = w->bytes;
    if (w->in->read(w->in->ctx, w->next, w->bytes + has, more, NULL) < 0)
        return false;
    w->next += more;
    w->end = w->bytes + has + more;
    memset(w->bytes + has + more, 0, CKPT__DCP_ARGUMENT);
    return has + more >= n;
}

/* ---- which entries are fetched */

/* most: an entry takes a byte of the file at least. */
static bool mark(ckpt__dcp_memo *memo, uint64_t number, uint64_t most)
{
    uint64_t word = number >> 6;
    if (word >= memo->words) {
        uint64_t words = memo->words ? memo->words : 1024;
        while (words <= word)
            words *= 2;
        uint64_t *grown = number < most ? realloc(memo->fetched, words * sizeof *grown) : NULL;
        if (!grown)
            return false;
        memset(grown + memo->words, 0, (words - memo->words) * sizeof *grown);
        memo->fetched = grown;
        memo->words = words;
    }
    memo->fetched[word] |= (uint64_t)1 << (number & 63);
    return true;
}

/* Passes over n bytes, of which fewer may be at hand. */
static bool skip(ckpt__dcp_window *w, uint64_t n)
{
    for (size_t has; n > (has = (size_t)(w->end - w->at)); n -= has) {
        w->at = w->end;
        if (!ckpt__dcp_window_more(w, 1))
            return false;
    }
    w->at += n;
    return true;
}

/* What follows each opcode: bytes of a fixed argument. The ones that have a text behind it, or need a look, are not for the quick way. */
enum { LOOK = 255, QUICK = 300 }; /* QUICK: an opcode of the quick way is shorter */
static void quick_shapes(unsigned char quick[256])
{
    for (size_t i = 0; i < 256; i++) {
        const ckpt__pickle_shape *s = &ckpt__pickle_shapes[i];
        quick[i] = s->counted || s->lines || !ckpt__pickle_ops[i].name ? LOOK : s->fixed;
    }
    quick['h'] = quick['j'] = quick['.'] = LOOK;
}

static inline bool mark_again(ckpt__dcp_memo *memo, uint64_t number, uint64_t most)
{
    const uint64_t word = number >> 6;
    return (word < memo->words && memo->fetched[word] >> (number & 63) & 1) || mark(memo, number, most);
}

/* The two runs of opcodes that half of a list consists of (stream.c), as the number that their bytes are. */
static const uint64_t of_object = 0x28947d948129, of_size = 0x945294859400, six = 0xffffffffffff,
                      last_five = 0xffffffffff00;

/* The opcodes that begin before `safe`, which has as much behind it as any of them takes; up to one that is for the slow way. The
 * commonest are asked for one by one: a processor guesses the answers, and so does not wait for an opcode to know where the next
 * is, as it has to for a table. */
static bool scan_quickly(const unsigned char quick[256], const unsigned char **at, const unsigned char *safe,
                         ckpt__dcp_memo *memo, uint64_t most)
{
    const unsigned char *p = *at;
    bool marked = true;
    while (marked && p < safe) {
        const unsigned op = *p;
        const uint64_t bytes = ckpt__dcp_four(p) | (uint64_t)ckpt__dcp_four(p + 4) << 32;
        if ((bytes & six) == of_object)
            p += 6;
        else if ((bytes & last_five) == of_size && op >= 0x85 && op <= 0x87)
            p += 6;
        else if (op == 'j') {
            marked = mark_again(memo, ckpt__dcp_four(p + 1), most);
            p += 5;
        } else if (op == 'h') {
            marked = mark_again(memo, p[1], most);
            p += 2;
        } else if (op == 'K')
            p += 2;
        else if (op == 'M')
            p += 3;
        else if (op == 0x94)
            p += 1;
        else if (op == 0x8c) /* SHORT_BINUNICODE */
            p += 2 + p[1];
        else if (quick[op] != LOOK)
            p += 1 + quick[op];
        else if (op == 0x8a) /* LONG1 */
            p += 2 + p[1];
        else
            break;
    }
    *at = p;
    return marked;
}

/* One opcode, however near the end is. */
static bool scan_slowly(const unsigned char quick[256], ckpt__dcp_window *w, ckpt__dcp_memo *memo)
{
    const unsigned char *p = w->at;
    const unsigned op = *p;
    const ckpt__pickle_shape *s = &ckpt__pickle_shapes[op];
    uint64_t n = 0;
    w->at++;
    if (op == 'h')
        return mark(memo, p[1], w->in->size) && skip(w, 1);
    if (op == 'j')
        return mark(memo, ckpt__dcp_four(p + 1), w->in->size) && skip(w, 4);
    if (quick[op] != LOOK)
        return skip(w, quick[op]);
    if (!s->counted || !ckpt__pickle_ops[op].name)
        return false; /* no such opcode, or one of protocol 0 */
    for (unsigned i = s->counted; i-- > 0;)
        n = n << 8 | p[1 + i];
    return skip(w, s->counted) && skip(w, n);
}

/* Up to byte `end` of the file, or STOP. */
static bool scan(ckpt__dcp_window *w, uint64_t end, ckpt__dcp_memo *memo)
{
    unsigned char quick[256];
    quick_shapes(quick);
    for (;;) {
        ckpt__dcp_window_need(w, QUICK); /* or what is left; zeros, which are no opcode, stand behind it */
        const uint64_t place = w->next - (uint64_t)(w->end - w->at);
        if (place >= end)
            return place == end;
        if (w->at == w->end)
            return false;
        const unsigned char *safe = w->end - w->at > QUICK ? w->end - QUICK : w->at;
        if (end - place < (uint64_t)(safe - w->at))
            safe = w->at + (end - place);
        if (!scan_quickly(quick, &w->at, safe, memo, w->in->size))
            return false;
        if (w->at < safe || safe == w->at) {
            if (w->next - (uint64_t)(w->end - w->at) >= end || w->at >= w->end)
                continue;
            if (*w->at == '.')
                return true;
            if (!scan_slowly(quick, w, memo))
                return false;
        }
    }
}

/* ---- by two threads. A pickler of protocol 4 puts its opcodes into frames of 64 KiB, and says how long each is. What a frame says is
 * checked: the first thread comes to its end at an opcode; and an entry that the second has not seen is not there when it is
 * asked for. */

typedef struct half {
    ckpt__dcp_window window;
    ckpt__dcp_memo memo;
    uint64_t end;
    bool done;
} half;

static void *scan_half(void *of)
{
    half *h = of;
    h->done = scan(&h->window, h->end, &h->memo);
    return NULL;
}

/* The first frame that begins in the second half of the file; 0: there is none, or not known. */
static uint64_t find_middle(const ckpt__pickle_input *in)
{
    enum { HEAD = 9, LEAST = 16 << 20 }; /* less is not worth a thread */
    unsigned char head[2 + HEAD];
    uint64_t at = 2;
    if (in->size < LEAST || in->read(in->ctx, 0, head, 2, NULL) < 0 || head[0] != 0x80)
        return 0;
    while (at < in->size / 2) {
        uint64_t n = 0;
        if (in->read(in->ctx, at, head, HEAD, NULL) < 0 || head[0] != 0x95)
            return 0;
        for (unsigned i = HEAD - 1; i > 0; i--)
            n = n << 8 | head[i];
        if (n > in->size || at > in->size - n - HEAD)
            return 0;
        at += HEAD + n;
    }
    return at < in->size ? at : 0;
}

static bool take_in(ckpt__dcp_memo *memo, const ckpt__dcp_memo *more)
{
    if (more->words > memo->words && !mark(memo, more->words * 64 - 1, UINT64_MAX))
        return false;
    for (uint64_t i = 0; i < more->words; i++)
        memo->fetched[i] |= more->fetched[i];
    return true;
}

static bool scan_all(ckpt__dcp_window *w, ckpt__dcp_memo *memo)
{
    half second = {.end = UINT64_MAX};
    pthread_t thread;
    const uint64_t middle = find_middle(w->in);
    if (!middle)
        return scan(w, UINT64_MAX, memo);
    bool opened = ckpt__dcp_window_open(&second.window, w->in);
    second.window.next = middle;
    bool parted = opened && pthread_create(&thread, NULL, scan_half, &second) == 0;
    bool done = scan(w, parted ? middle : UINT64_MAX, memo);
    if (parted)
        pthread_join(thread, NULL);
    done = done && (!parted || (second.done && take_in(memo, &second.memo)));
    ckpt__dcp_window_close(&second.window);
    free(second.memo.fetched);
    return done;
}

static uint32_t count_bits(uint64_t word)
{
    word -= word >> 1 & 0x5555555555555555;
    word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return (uint32_t)(word * 0x0101010101010101 >> 56);
}

bool ckpt__dcp_memo_scan(ckpt__dcp_machine *m)
{
    ckpt__dcp_memo *memo = &m->memo;
    if (!scan_all(&m->window, memo))
        return false;
    ckpt__dcp_window_rewind(&m->window);
    memo->before = calloc(memo->words + 1, sizeof *memo->before);
    if (!memo->before)
        return false;
    for (uint64_t i = 0; i < memo->words; i++)
        memo->before[i + 1] = memo->before[i] + count_bits(memo->fetched[i]);
    memo->kept_count = memo->before[memo->words];
    memo->kept = malloc((memo->kept_count + 1) * sizeof *memo->kept);
    for (uint64_t i = 0; memo->kept && i < memo->kept_count; i++)
        memo->kept[i] = (ckpt__dcp_value){.kind = CKPT__D_CHANGING};
    for (size_t i = 0; i < CKPT__DCP_LAST; i++)
        memo->last[i].value.kind = CKPT__D_CHANGING;
    return memo->kept != NULL;
}

void ckpt__dcp_memo_free(ckpt__dcp_memo *memo)
{
    free(memo->fetched);
    free(memo->before);
    free(memo->kept);
}

/* ---- the entries */

static ckpt__dcp_value *entry(const ckpt__dcp_memo *memo, uint64_t number)
{
    const uint64_t word = number >> 6, below = ((uint64_t)1 << (number & 63)) - 1;
    return &memo->kept[memo->before[word] + count_bits(memo->fetched[word] & below)];
}

bool ckpt__dcp_memo_keep(ckpt__dcp_machine *m, uint64_t number, const ckpt__dcp_value *value)
{
    ckpt__dcp_value own = *value;
    switch (value->kind) {
    case CKPT__D_TEXT:
        own.u.text = ckpt__arena_copy(m->kept, value->u.text, value->n);
        own.what = (uint8_t)ckpt__dcp_name_of(value->u.text, value->n);
        m->no_memory = !own.u.text;
        break;
    case CKPT__D_INTS:
        own.u.numbers = ckpt__arena_array(m->kept, (size_t)value->n + 1, sizeof *own.u.numbers);
        m->no_memory = !own.u.numbers;
        if (own.u.numbers && own.n)
            memcpy((int64_t *)(uintptr_t)own.u.numbers, value->u.numbers, own.n * sizeof *own.u.numbers);
        break;
    case CKPT__D_TUPLE:
    case CKPT__D_DICT:
    case CKPT__D_LIST:
    case CKPT__D_OBJECT:
        own.kind = CKPT__D_CHANGING;
        break;
    default:
        break;
    }
    *entry(&m->memo, number) = own;
    return !m->no_memory;
}

bool ckpt__dcp_memo_find(ckpt__dcp_machine *m, uint64_t number, ckpt__dcp_value *value)
{
    ckpt__dcp_memo *memo = &m->memo;
    if (number >> 6 >= memo->words || !(memo->fetched[number >> 6] >> (number & 63) & 1))
        return false; /* the file is another one than the first time */
    *value = *entry(memo, number);
    memo->last[number % CKPT__DCP_LAST] = (struct ckpt__dcp_fetched){number, *value};
    return value->kind != CKPT__D_CHANGING;
}
