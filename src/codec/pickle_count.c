/* codec/pickle_count.c - the first pass over a graph that is to be written. What is still to be visited waits in a list; a
 * node that is filled for it is emptied again when all below it has been visited. */
#include "codec/pickle_emit.h"

#include <stdlib.h>

typedef ckpt__pickle_node node;

/* A node that was filled, and what it was. */
typedef struct opened {
    node *n, was;
    ckpt__arena_mark before;
} opened;

typedef struct counter {
    ckpt__pickle_emitter *e;
    node **work;
    size_t count, capacity; /* NULL: the last opened one has been counted */
    opened *opened;
    size_t opened_count, opened_capacity;
    bool no_memory;
} counter;

ckpt_status ckpt__pickle_fill(const ckpt__pickle_emitter *e, node *n, bool writing)
{
    node what = *n;
    *n = (node){.user = what.user};
    ckpt_status status = e->later->fill(e->later->ctx, &what, n, writing, e->err);
    n->user = what.user;
    return status;
}

static void visit(counter *c, node *n);

static void visit_parts(counter *c, const node *n)
{
    if (n->kind == CKPT__P_STR)
        c->e->bytes += n->u.text.size;
    if (n->kind == CKPT__P_GLOBAL) {
        c->e->bytes += n->u.global->module.size + n->u.global->name.size;
        if (ckpt__pickle_is_dotted(n))
            c->e->protocol = 4;
    }
    if (n->kind == CKPT__P_BYTES || (n->kind == CKPT__P_BYTEARRAY && n->u.text.size)) {
        c->e->bytes += 2 * (uint64_t)n->u.text.size;
        visit(c, c->e->encode);
        visit(c, c->e->latin1);
    }
    if (n->kind == CKPT__P_BYTEARRAY)
        visit(c, c->e->bytearray);
    if (n->kind == CKPT__P_SET)
        visit(c, c->e->set);
    if (n->kind == CKPT__P_FROZENSET)
        visit(c, c->e->frozenset);
}

static void push_work(counter *c, node *n)
{
    if (ckpt__grow(&c->work, &c->capacity, c->count + 1, sizeof(node *)))
        c->work[c->count++] = n;
    else
        c->no_memory = true;
}

static void visit(counter *c, node *n)
{
    c->e->nodes++;
    if (n && n->kind == CKPT__P_BIGINT)
        c->e->bytes += n->u.text.size;
    bool later = n && ckpt__pickle_is_later(c->e, n);
    if (!n || (!later && !ckpt__pickle_is_memoized(n))) {
        c->no_memory |= !n;
        return;
    }
    bool seen = n->user != NULL;
    n->user = (void *)((uintptr_t)n->user | (seen ? CKPT__PICKLE_SHARED : CKPT__PICKLE_SEEN));
    if (seen)
        return;
    if (!later)
        visit_parts(c, n); /* one level deep: their parts are globals and strings */
    if (later || ckpt__pickle_is_container(n))
        push_work(c, n);
}

static void visit_list(counter *c, const ckpt__pickle_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        visit(c, list->items[i]);
}

static void visit_content(counter *c, const node *n)
{
    if (n->kind == CKPT__P_PERSISTENT)
        visit(c, n->u.id);
    else if (n->kind != CKPT__P_OBJECT)
        visit_list(c, &n->u.list);
    else {
        const ckpt__pickle_object *o = n->u.object;
        visit(c, o->callable);
        visit(c, o->args);
        if (o->kwargs)
            visit(c, o->kwargs);
        visit_list(c, &o->items);
        visit_list(c, &o->entries);
        if (o->setter) {
            visit(c, o->setter);
            visit(c, (node *)(uintptr_t)n); /* its first argument */
        }
        if (o->state)
            visit(c, o->state);
    }
}

static ckpt_status no_memory(const counter *c)
{
    return ckpt__fail_memory(c->e->err, "a pickle", c->capacity * sizeof(node *));
}

static ckpt_status open_one(counter *c, node *n)
{
    if (!ckpt__grow(&c->opened, &c->opened_capacity, c->opened_count + 1, sizeof *c->opened))
        return no_memory(c);
    c->opened[c->opened_count++] = (opened){n, *n, ckpt__arena_note(c->e->later->arena)};
    push_work(c, NULL);
    ckpt_status status = ckpt__pickle_fill(c->e, n, false);
    if (status == CKPT_OK && ckpt__pickle_is_memoized(n))
        visit_parts(c, n);
    if (status == CKPT_OK && n->kind == CKPT__P_BIGINT)
        c->e->bytes += n->u.text.size;
    return status;
}

static void close_one(counter *c)
{
    const opened *o = &c->opened[--c->opened_count];
    void *user = o->n->user; /* it may have been reached again meanwhile */
    *o->n = o->was;
    o->n->user = user;
    ckpt__arena_rewind(c->e->later->arena, &o->before);
}

ckpt_status ckpt__pickle_count(ckpt__pickle_emitter *e, node *root)
{
    counter c = {.e = e};
    ckpt_status status = CKPT_OK;
    visit(&c, root);
    while (status == CKPT_OK && c.count && !c.no_memory) {
        node *n = c.work[--c.count];
        if (n && ckpt__pickle_is_later(e, n))
            status = open_one(&c, n);
        if (!n)
            close_one(&c);
        else if (status == CKPT_OK && ckpt__pickle_is_container(n))
            visit_content(&c, n);
    }
    if (c.no_memory)
        status = no_memory(&c);
    free(c.work);
    free(c.opened);
    return status;
}
