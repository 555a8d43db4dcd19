/* format/dcp/stream_quick.c - ChunkStorageMetadata, MetadataIndex and _StorageInfo, each at one go: a list of 3.5 million chunks has so
 * many of each, and is little else. What a pickler of protocol 4 makes of one:
 *
 *     GET class  ) NEWOBJ MEMOIZE } MEMOIZE (  {GET name, value} ...  SETITEMS BUILD
 *
 * where a value is a number, None, a text, an entry of the memo, or torch.Size((...)). The same opcodes do the same in stream.c, one by
 * one: there is nothing that is read here alone. */
#include "format/dcp/stream.h"

enum { ATTRIBUTES = 16, AT_HAND = 512 }; /* AT_HAND: an attribute is shorter */

typedef struct quick {
    ckpt__dcp_machine *m;
    const unsigned char *p; /* the next opcode */
} quick;

static inline bool take_entry(quick *q, ckpt__dcp_value *out)
{
    const unsigned char *p = q->p;
    if (*p == 'j') {
        q->p += 5;
        return ckpt__dcp_memo_get(q->m, ckpt__dcp_four(p + 1), out);
    }
    q->p += 2;
    return *p == 'h' && ckpt__dcp_memo_get(q->m, p[1], out);
}

static inline bool take_int(quick *q, int64_t *out)
{
    const size_t n = ckpt__dcp_int(q->p, out);
    q->p += n;
    return n > 0;
}

/* Behind the class torch.Size: one to three numbers, TUPLE1 to TUPLE3, MEMOIZE TUPLE1 MEMOIZE REDUCE MEMOIZE. */
static inline bool take_size(quick *q, ckpt__dcp_value *out)
{
    static const unsigned char run[] = {0x94, 0x85, 0x94, 'R', 0x94};
    int64_t *numbers = ckpt__dcp_take(q->m, 3 * sizeof *numbers);
    unsigned n = 0;
    while (numbers && n < 3 && take_int(q, &numbers[n]))
        if (numbers[n++] < 0)
            return false;
    if (!numbers || n == 0 || *q->p != 0x84 + n || memcmp(q->p + 1, run, sizeof run) != 0 ||
        !ckpt__dcp_memo_forgets(q->m, 3))
        return false;
    q->m->memo.next += 3;
    q->p += 1 + sizeof run;
    *out = (ckpt__dcp_value){.kind = CKPT__D_INTS, .n = n, .u.numbers = numbers};
    return true;
}

static inline bool take_text(quick *q, ckpt__dcp_value *out)
{
    const size_t n = q->p[1];
    if (!ckpt__dcp_text(q->m, q->p + 2, n, out) || q->p[2 + n] != 0x94)
        return false;
    q->p += 2 + n + 1;
    return ckpt__dcp_memo_put(q->m, q->m->memo.next++, out);
}

static inline bool take_value(quick *q, ckpt__dcp_value *out)
{
    switch (*q->p) {
    case 'h':
    case 'j':
        if (!take_entry(q, out))
            return false;
        return out->kind != CKPT__D_CLASS || out->what != CKPT__DC_SIZE || take_size(q, out);
    case 0x8c: /* SHORT_BINUNICODE */
        return take_text(q, out);
    case 'N':
        *out = (ckpt__dcp_value){.kind = CKPT__D_NONE};
        q->p++;
        return true;
    default:
        *out = (ckpt__dcp_value){.kind = CKPT__D_INT};
        return take_int(q, &out->u.number);
    }
}

static bool take_attributes(quick *q, ckpt__dcp_made *o)
{
    ckpt__dcp_value key, value;
    for (unsigned i = 0; i < ATTRIBUTES; i++) {
        if (q->m->window.end - q->p < AT_HAND)
            return false;
        if (i > 0 && q->p[0] == 'u' && q->p[1] == 'b') { /* SETITEMS BUILD */
            q->p += 2;
            return true;
        }
        if (!take_entry(q, &key) || !take_value(q, &value) || !ckpt__dcp_set(q->m, o, &key, &value))
            return false;
    }
    return false;
}

bool ckpt__dcp_quick_object(ckpt__dcp_machine *m, const ckpt__dcp_value *class_of)
{
    static const unsigned char run[] = {')', 0x81, 0x94, '}', 0x94, '('};
    const bool many =
        class_of->what == CKPT__DC_CHUNK || class_of->what == CKPT__DC_INDEX || class_of->what == CKPT__DC_INFO;
    if (!many || !ckpt__dcp_window_need(&m->window, AT_HAND) || memcmp(m->window.at, run, sizeof run) != 0 ||
        !ckpt__dcp_memo_forgets(m, 2) || m->depth + 3 >= m->deepest)
        return false;
    const size_t used = m->used;
    const uint64_t next = m->memo.next;
    quick q = {m, m->window.at + sizeof run};
    ckpt__dcp_made *o = ckpt__dcp_take(m, sizeof *o);
    if (!o)
        return false;
    o->class_of = class_of->what;
    o->built = true;
    o->zstd = false;
    o->has = 0;
    o->a.kind = o->b.kind = CKPT__D_NONE;
    m->memo.next += 2;
    if (take_attributes(&q, o)) {
        m->window.at = q.p;
        m->stack[m->depth++] = (ckpt__dcp_value){.kind = CKPT__D_OBJECT, .u.object = o};
        return true;
    }
    m->memo.next = next;
    m->used = used;
    return false;
}
