/* doctor/template.c - expands a template. */
#include "doctor/template.h"

enum { DEPTH = 8 }; /* embed.awk refuses a template that nests deeper */

/* An if or each that is open. Lines are copied where every open block is `live`. */
typedef struct block {
    bool live, taken;            /* taken: one branch of the if was live, so no later one is */
    size_t first, round, rounds; /* of an each: its own step; the item; how many items. Of an if: rounds is 0. */
} block;

static block begin_if(const block *outer, bool holds)
{
    return (block){.live = outer->live && holds, .taken = !outer->live || holds, .round = outer->round};
}

static void begin_branch(block *own, bool holds)
{
    own->live = !own->taken && holds;
    own->taken = own->taken || holds;
}

void ckpt__snippet_expand(ckpt__buf *b, const ckpt__snippet_op *ops, const ckpt__snippet *with)
{
    block open[DEPTH + 1] = {{.live = true}}, *own = open;
    for (size_t i = 0; ops[i].kind != CKPT__SNIPPET_DONE; i++) {
        int what = ops[i].what;
        switch (ops[i].kind) {
        case CKPT__SNIPPET_TEXT:
            if (own->live)
                ckpt__buf_str(b, ops[i].text);
            break;
        case CKPT__SNIPPET_HOLE:
            if (own->live)
                with->put(b, with->context, what, own->round);
            break;
        case CKPT__SNIPPET_IF:
        case CKPT__SNIPPET_IF_NOT:
            own[1] = begin_if(own, with->holds[what] == (ops[i].kind == CKPT__SNIPPET_IF));
            own++;
            break;
        case CKPT__SNIPPET_ELIF:
        case CKPT__SNIPPET_ELSE:
            begin_branch(own, ops[i].kind == CKPT__SNIPPET_ELSE || with->holds[what]);
            break;
        case CKPT__SNIPPET_EACH:
            own[1] = (block){.live = own->live && with->counts[what] > 0, .first = i, .rounds = with->counts[what]};
            own++;
            break;
        case CKPT__SNIPPET_END:
            if (own->live && own->round + 1 < own->rounds) {
                own->round++;
                i = own->first;
            } else {
                own--;
            }
            break;
        case CKPT__SNIPPET_DONE:
            break;
        }
    }
}
