/* Pickles are written as CPython writes them with protocol 2: the bytes here are what its pickler gives, where nothing else
 * is said, and reading them again gives the graph that was written. */
#include "codec/pickle_write.h"
#include "../runner.h"

#include <string.h>

typedef ckpt__pickle_node node;

static ckpt__arena *arena;
static ckpt__pickle pickle;
static ckpt__buf out;
static ckpt_error err;

static void setup(void)
{
    arena = ckpt__arena_new(0);
    memset(&pickle, 0, sizeof pickle);
    memset(&out, 0, sizeof out);
    memset(&err, 0, sizeof err);
}
static void teardown(void)
{
    ckpt__pickle_free(&pickle);
    ckpt__buf_free(&out);
    ckpt__arena_free(arena);
}

static node *read_n(const char *data, size_t n)
{
    ckpt__pickle_free(&pickle);
    ckpt_status s = ckpt__pickle_read(data, n, "p", arena, &pickle, &err);
    ck_assert_msg(s == CKPT_OK, "%s", err.message);
    return pickle.root;
}

static void write_node(node *root)
{
    out.size = 0;
    ckpt_status s = ckpt__pickle_write(root, &out, &err);
    ck_assert_msg(s == CKPT_OK, "%s", err.message);
}

static void is_bytes(const char *data, size_t n)
{
    size_t same = 0;
    while (same < n && same < out.size && out.data[same] == data[same])
        same++;
    ck_assert_msg(same == n && out.size == n, "%zu bytes, expected %zu; the first %zu are alike", out.size, n, same);
}

/* What a pickler wrote comes out the same. */
static void again(const char *data, size_t n)
{
    write_node(read_n(data, n));
    is_bytes(data, n);
}
#define AGAIN(literal) again(literal, sizeof(literal) - 1)
#define GIVES(from, to) (write_node(read_n(from, sizeof(from) - 1)), is_bytes(to, sizeof(to) - 1))

START_TEST(scalars)
{
    AGAIN("\x80\x02N.");
    AGAIN("\x80\x02\x88.");
    AGAIN("\x80\x02\x89.");
    AGAIN("\x80\x02K\xff.");
    AGAIN("\x80\x02M\x00\x01.");
    AGAIN("\x80\x02J\x00\x00\x01\x00.");
    AGAIN("\x80\x02J\xff\xff\xff\xff.");
    AGAIN("\x80\x02J\x00\x00\x00\x80.");
    AGAIN("\x80\x02G\x80\x00\x00\x00\x00\x00\x00\x00.");
    AGAIN("\x80\x02G\x7f\xf8\x00\x00\x00\x00\x00\x01.");
    AGAIN("\x80\x02X\x03\x00\x00\x00\xed\xa0\x80q\x00."); /* a lone surrogate */
    AGAIN("\x80\x02X\x00\x00\x00\x00q\x00.");
}
END_TEST

/* 2**31, 2**63 - 1, 2**63, -2**31 - 1, -2**63, -2**63 - 1, 2**64 as Python has them. */
START_TEST(integers)
{
    AGAIN("\x80\x02\x8a\x05\x00\x00\x00\x80\x00.");
    AGAIN("\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.");
    AGAIN("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.");
    AGAIN("\x80\x02\x8a\x05\xff\xff\xff\x7f\xff.");
    AGAIN("\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.");
    AGAIN("\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff.");
    AGAIN("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.");
    GIVES("\x80\x02\x8a\x03\x01\x00\x00.", "\x80\x02K\x01."); /* longer than it need be */
}
END_TEST

START_TEST(large_integers)
{
    char pickled[8 + 400] = "\x80\x02\x8b\x90\x01\x00\x00"; /* LONG4: 400 bytes */
    for (size_t i = 0; i < 400; i++)
        pickled[7 + i] = (char)(unsigned char)(i * 37 + 11);
    pickled[7 + 399] = 0x12;
    pickled[407] = '.';
    again(pickled, 408);
    pickled[7 + 399] = (char)(unsigned char)0x92; /* negative */
    again(pickled, 408);
    ck_assert(!ckpt__pickle_put_long(&out, ckpt__s("12a")));
    ck_assert(!ckpt__pickle_put_long(&out, ckpt__s("-")));
    ck_assert(!ckpt__pickle_put_long(&out, ckpt__s("")));
}
END_TEST

START_TEST(containers)
{

    GIVES("\x80\x02].", "\x80\x02]q\x00.");
    AGAIN("\x80\x02]q\x00K\x01"
          "a.");
    AGAIN("\x80\x02]q\x00(K\x01K\x02"
          "e.");
    AGAIN("\x80\x02}q\x00K\x01K\x02s.");
    AGAIN("\x80\x02}q\x00(K\x01K\x02K\x03K\x04u.");
    AGAIN("\x80\x02K\x01\x85q\x00.");
    AGAIN("\x80\x02K\x01K\x02\x86q\x00.");
    AGAIN("\x80\x02K\x01K\x02K\x03\x87q\x00.");
    AGAIN("\x80\x02(K\x01K\x02K\x03K\x04tq\x00.");
    AGAIN("\x80\x02)\x85q\x00.");
}
END_TEST

START_TEST(identity)
{
    AGAIN("\x80\x02]q\x00(]q\x01h\x01"
          "e."); /* [a, a] */
    AGAIN("\x80\x02]q\x00(]q\x01]q\x02"
          "e."); /* [[], []] */
    AGAIN("\x80\x02]q\x00(X\x01\x00\x00\x00"
          "aq\x01X\x01\x00\x00\x00"
          "aq\x02h\x01"
          "e.");
    AGAIN("\x80\x02]q\x00(ctorch\nfloat32\nq\x01h\x01"
          "e.");
    /* A class that the pickle names twice is one. */
    GIVES("\x80\x02]q\x00(ctorch\nfloat32\nctorch\nfloat32\n"
          "e.",
          "\x80\x02]q\x00(ctorch\nfloat32\nq\x01h\x01"
          "e.");
}
END_TEST

START_TEST(cycles)
{
    AGAIN("\x80\x02]q\x00h\x00"
          "a.");
    AGAIN("\x80\x02}q\x00K\x01h\x00s.");
    /* t = ([t],): the tuple inside itself, and the outer one thrown away */
    AGAIN("\x80\x02]q\x00h\x00\x85q\x01"
          "a0h\x01.");
    /* the same of four items */
    AGAIN("\x80\x02(]q\x00(h\x00K\x01K\x02K\x03tq\x01"
          "aK\x01K\x02K\x03"
          "1h\x01.");
    /* x holds i = I(x, [i]): the outer call is thrown away above x, and is none that gives x a state */
    AGAIN("\x80\x02]q\x00(cm\nX\nq\x01)Rq\x02"
          "cm\nI\nq\x03h\x02]q\x04h\x03h\x02h\x04\x86q\x05Rq\x06"
          "a00h\x05R0h\x06"
          "aK\x05"
          "e.");
}
END_TEST

START_TEST(objects)
{
    AGAIN("\x80\x02"
          "ccollections\nOrderedDict\nq\x00)Rq\x01K\x01K\x02s}q\x02X\x01\x00\x00\x00xq\x03K\x05sb.");
    AGAIN("\x80\x02"
          "cm\nC\nq\x00)\x81q\x01}q\x02X\x01\x00\x00\x00xq\x03h\x01sb."); /* it is its own attribute */
    AGAIN("\x80\x02"
          "cm\nC\nq\x00K\x01\x85q\x01Rq\x02(K\x01K\x02"
          "e.");
    AGAIN("\x80\x02X\x02\x00\x00\x00idq\x00\x85q\x01Q.");
    /* give(x, {'n': 7}), above x and thrown away: what __reduce__ may name for a state in place of BUILD */
    AGAIN("\x80\x02]q\x00(cm\nC\nq\x01)Rq\x02"
          "cm\ngive\nq\x03h\x02}q\x04X\x01\x00\x00\x00nq\x05K\x07s\x86R0h\x02"
          "e.");
    GIVES("\x80\x02(cm\nC\nK\x01o.", "\x80\x02(cm\nC\nq\x00K\x01oq\x01.");
    GIVES("\x80\x02(K\x01im\nC\n.", "\x80\x02(cm\nC\nq\x00K\x01oq\x01.");
    GIVES("\x80\x04"
          "cm\nC\n)}\x92.",
          "\x80\x02"
          "cm\nC\nq\x00)}q\x01\x92q\x02.");
}
END_TEST

/* What later protocols have opcodes for becomes calls. */
START_TEST(later_protocols)
{
    GIVES("\x80\x04"
          "C\x02\x00\xff.",
          "\x80\x02"
          "c_codecs\nencode\nq\x00X\x03\x00\x00\x00\x00\xc3\xbfX\x06\x00\x00\x00latin1q\x01\x86Rq\x02.");
    GIVES("\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00z.",
          "\x80\x02"
          "c__builtin__\nbytearray\nq\x00"
          "c_codecs\nencode\nq\x01X\x01\x00\x00\x00zX\x06\x00\x00\x00latin1q\x02\x86R\x85Rq\x03.");
    GIVES("\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x00.", "\x80\x02"
                                                           "c__builtin__\nbytearray\nq\x00)Rq\x01.");
    GIVES("\x80\x04\x8f(K\x01\x90.", "\x80\x02"
                                     "c__builtin__\nset\nq\x00]K\x01"
                                     "a\x85Rq\x01.");
    GIVES("\x80\x04(K\x01K\x02\x91.", "\x80\x02"
                                      "c__builtin__\nfrozenset\nq\x00](K\x01K\x02"
                                      "e\x85Rq\x01.");
}
END_TEST

/* A dot in a name is read as one attribute of another from protocol 4 on. */
START_TEST(dotted_names)
{
    GIVES("\x80\x04\x8c\x01m\x8c\x03"
          "A.B\x93.",
          "\x80\x04"
          "cm\nA.B\nq\x00.");
    GIVES("\x80\x04(\x8c\x01m\x8c\x03"
          "A.B\x93(K\x01\x91t.",
          "\x80\x04"
          "cm\nA.B\nq\x00"
          "cbuiltins\nfrozenset\nq\x01]K\x01"
          "a\x85Rq\x02\x86q\x03.");
    GIVES("\x80\x04\x8c\x03m\nn\x8c\x01"
          "A\x93.",
          "\x80\x02X\x03\x00\x00\x00m\nnX\x01\x00\x00\x00"
          "A\x93q\x00.");
}
END_TEST

/* Strings that were made here are one where they are equal; those that were read are not. */
START_TEST(made_strings)
{
    node *items[] = {ckpt__pickle_make_text(arena, CKPT__P_STR, ckpt__s("a")),
                     ckpt__pickle_make_text(arena, CKPT__P_STR, ckpt__s("a"))};
    write_node(ckpt__pickle_make_tuple(arena, 2, items));
    is_bytes("\x80\x02X\x01\x00\x00\x00"
             "aq\x00h\x00\x86q\x01.",
             16);
    ck_assert_ptr_null(ckpt__pickle_make_tuple(arena, 2, (node *[]){items[0], NULL}));
    ck_assert_ptr_null(ckpt__pickle_make_persistent(arena, NULL));
}
END_TEST

static node *list_of(size_t n, ckpt__pickle_kind kind)
{
    node *list = ckpt__pickle_make_list(arena, kind, n);
    for (size_t i = 0; i < n; i++)
        list->u.list.items[i] = ckpt__pickle_make(arena, CKPT__P_NONE);
    return list;
}

static size_t count(char op)
{
    size_t n = 0;
    for (size_t i = 0; i < out.size; i++)
        n += out.data[i] == op;
    return n;
}

/* Batches of 1000: a list of 1001 has two, a dict of 1000 two, of which one is empty; an object's items end with a single. */
START_TEST(batches)
{
    write_node(list_of(1001, CKPT__P_LIST));
    ck_assert_uint_eq(count('e'), 2);
    ck_assert_uint_eq(count('a'), 0);
    write_node(list_of(2000, CKPT__P_DICT));
    ck_assert_uint_eq(count('u'), 2);
    node *call = ckpt__pickle_make_call(
        arena, CKPT__P_REDUCE, ckpt__pickle_make_global(arena, ckpt__s("M"), ckpt__s("C")), list_of(0, CKPT__P_TUPLE));
    call->u.object->items = list_of(1001, CKPT__P_LIST)->u.list;
    write_node(call);
    ck_assert_uint_eq(count('e'), 1);
    ck_assert_uint_eq(count('a'), 1);
}
END_TEST

/* Beyond 256 memo entries the opcodes are the long ones. */
START_TEST(long_memo)
{
    node *outer = ckpt__pickle_make_list(arena, CKPT__P_LIST, 301);
    for (size_t i = 0; i < 300; i++)
        outer->u.list.items[i] = ckpt__pickle_make_list(arena, CKPT__P_LIST, 0);
    outer->u.list.items[300] = outer->u.list.items[299];
    write_node(outer);
    ck_assert_uint_eq(out.size, 2 + 3 + 1 + 255 * 3 + 45 * 6 + 5 + 1 + 1);
    ck_assert_int_eq(memcmp(out.data + out.size - 7,
                            "j\x2c\x01\x00\x00"
                            "e.",
                            7),
                     0);
    node *back = read_n(out.data, out.size);
    ck_assert_uint_eq(back->u.list.count, 301);
    ck_assert_ptr_eq(back->u.list.items[300], back->u.list.items[299]);
}
END_TEST

START_TEST(deep)
{
    node *inner = ckpt__pickle_make_list(arena, CKPT__P_LIST, 0), *n = inner;
    for (int i = 0; i < 200000; i++) {
        node *outer = ckpt__pickle_make_list(arena, i % 2 ? CKPT__P_LIST : CKPT__P_TUPLE, 1);
        outer->u.list.items[0] = n;
        n = outer;
    }
    write_node(n);
    node *back = read_n(out.data, out.size);
    int depth = 0;
    for (; back->u.list.count; depth++)
        back = back->u.list.items[0];
    ck_assert_int_eq(depth, 200000);
}
END_TEST

/* A tuple of n lists that each hold the tuple is written n times inside itself: n is made far too large. */
START_TEST(blown_up)
{
    enum { N = 6000 };
    node *tuple = ckpt__pickle_make_list(arena, CKPT__P_TUPLE, N);
    for (size_t i = 0; i < N; i++) {
        tuple->u.list.items[i] = ckpt__pickle_make_list(arena, CKPT__P_LIST, 1);
        tuple->u.list.items[i]->u.list.items[0] = tuple;
    }
    ck_assert_int_eq(ckpt__pickle_write(tuple, &out, &err), CKPT_E_LIMIT);
    ck_assert_msg(strstr(err.message, "contain themselves") != NULL, "%s", err.message);
}
END_TEST

/* ---- nodes that are filled when their turn comes: those of another graph, each with its containers made later */

typedef struct copier {
    ckpt__arena *lasting;
    ckpt__pickle_later later;
    int fills, fails; /* fails: number of the one that does */
    uint64_t most;    /* of the arena, after a fill */
} copier;

/* A container has its copy as its `user`. */
static node *copy_of(copier *c, node *n)
{
    bool holds = n->kind == CKPT__P_LIST || n->kind == CKPT__P_TUPLE || n->kind == CKPT__P_DICT ||
                 n->kind == CKPT__P_PERSISTENT || n->kind == CKPT__P_OBJECT;
    if (!n->user) {
        node *fresh = holds ? ckpt__pickle_make_later(c->lasting, n) : ckpt__pickle_make(c->lasting, n->kind);
        if (!holds) {
            fresh->boolean = n->boolean;
            fresh->u = n->u;
        }
        n->user = fresh;
    }
    return n->user;
}

static void copy_list(copier *c, const ckpt__pickle_list *from, ckpt__pickle_list *to)
{
    to->count = to->capacity = from->count;
    to->items = ckpt__arena_array(c->later.arena, from->count + 1u, sizeof(node *));
    for (size_t i = 0; i < from->count; i++)
        to->items[i] = copy_of(c, from->items[i]);
}

static ckpt_status fill(void *ctx, const node *what, node *to, bool writing, ckpt_error *e)
{
    copier *c = ctx;
    const node *from = what->u.later;
    (void)writing;
    if (++c->fills == c->fails)
        return ckpt__fail(e, CKPT_E_MISMATCH, NULL, "not this one");
    to->kind = from->kind;
    if (from->kind == CKPT__P_PERSISTENT)
        to->u.id = copy_of(c, from->u.id);
    else if (from->kind == CKPT__P_OBJECT) {
        const ckpt__pickle_object *o = from->u.object;
        ckpt__pickle_object *copy = to->u.object = ckpt__arena_alloc(c->later.arena, sizeof *copy);
        copy->call = o->call;
        copy->callable = copy_of(c, o->callable);
        copy->args = copy_of(c, o->args);
        copy->kwargs = o->kwargs ? copy_of(c, o->kwargs) : NULL;
        copy->state = o->state ? copy_of(c, o->state) : NULL;
        copy_list(c, &o->items, &copy->items);
        copy_list(c, &o->entries, &copy->entries);
    } else
        copy_list(c, &from->u.list, &to->u.list);
    uint64_t used = ckpt__arena_used(c->later.arena);
    c->most = used > c->most ? used : c->most;
    return CKPT_OK;
}

static ckpt_status write_later(copier *c, const char *data, size_t n, int fails)
{
    *c = (copier){.lasting = ckpt__arena_new(0), .fails = fails};
    c->later = (ckpt__pickle_later){.arena = ckpt__arena_new(0), .fill = fill, .ctx = c};
    out.size = 0;
    ckpt_status s = ckpt__pickle_write_later(copy_of(c, read_n(data, n)), &c->later, &out, &err);
    ck_assert(s < 0 || ckpt__arena_used(c->later.arena) == 0); /* all was given back */
    ckpt__arena_free(c->later.arena);
    ckpt__arena_free(c->lasting);
    return s;
}

/* Sharing, persistent ids that are fetched again, lists, tuples and calls that contain themselves. */
static const struct {
    const char *data;
    size_t size;
} graphs[] = {
    {"\200\002]q\001(h\001]q\002(K\001h\002h\001eh\002X\001\000\000\000aq\003h\003h\003\206q\004h\004}q\005h\003h\005se.",
     48},
    {"\200\002]q\001(X\001\000\000\000kq\002\205q\003Qq\004h\004h\003QK\001K\002\206q\005e.", 34},
    {"\200\002]q\001(]q\002(h\002K\007\206q\003h\003K\010\206q\004h\003h\004eh\004h\002e.", 35},
    {"\200\002c__main__\nA\nq\001)\201q\002}q\003(X\001\000\000\000xq\004h\002X\001\000\000\000yq\005h\001)\201q\006ub.",
     51},
    {"\200\002]q\000(]q\001h\001\205q\002a0h\002h\002e.", 22},
};

START_TEST(filled_later)
{
    copier c;
    const char *graph = graphs[_i].data;
    size_t n = graphs[_i].size;
    write_node(read_n(graph, n));
    char *whole = malloc(out.size);
    size_t size = out.size;
    memcpy(whole, out.data, size);
    ck_assert_int_eq(write_later(&c, graph, n, 0), CKPT_OK);
    is_bytes(whole, size);
    int fills = c.fills;
    for (int i = 1; i <= fills; i++)
        ck_assert_int_eq(write_later(&c, graph, n, i), CKPT_E_MISMATCH);
    free(whole);
}
END_TEST

/* Of a list of many only the list itself, and what is being written, is in memory. */
START_TEST(little_at_a_time)
{
    enum { N = 20000 };
    ckpt__buf text = {0};
    copier c;
    ckpt__buf_add(&text, "\x80\x02](", 4);
    for (int i = 0; i < N; i++)
        ckpt__buf_add(&text, "](]](K\001K\002e]e", 12);
    ckpt__buf_add(&text, "e.", 2);
    ck_assert_int_eq(write_later(&c, text.data, text.size, 0), CKPT_OK);
    ck_assert_uint_lt(c.most, (N + 100) * sizeof(node *));
    ckpt__buf_free(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pickle_write");
    TCase *tc = tcase_create("pickle_write");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, scalars);
    tcase_add_test(tc, integers);
    tcase_add_test(tc, large_integers);
    tcase_add_test(tc, containers);
    tcase_add_test(tc, identity);
    tcase_add_test(tc, cycles);
    tcase_add_test(tc, objects);
    tcase_add_test(tc, later_protocols);
    tcase_add_test(tc, dotted_names);
    tcase_add_test(tc, made_strings);
    tcase_add_test(tc, batches);
    tcase_add_test(tc, long_memo);
    tcase_add_test(tc, deep);
    tcase_add_test(tc, blown_up);
    tcase_add_loop_test(tc, filled_later, 0, sizeof graphs / sizeof *graphs);
    tcase_add_test(tc, little_at_a_time);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
