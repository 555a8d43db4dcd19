/* anatomy/canon_tell.c - what is said of the order of an optimizer's parameters: that one fits, or what else could be and which line
 * settles it. */
#include "anatomy/canon_work.h"

#include <stdio.h>

static const char lasting[] = "torch 2.6 and later store the names where the optimizer is made of them: "
                              "AdamW(model.named_parameters())";
static const char state_names[] =
    "state the parameters' names in the optimizer's order, group by group (param_names; --param-names "
    "FILE)";

/* A name for messages; the root has none. */
static const char *shown(const ckpt__builder *b, size_t node, char *buf, size_t size)
{
    ckpt_str name = b->tree.nodes[node].name;
    return name.size ? ckpt__escape(buf, size, name.data, name.size) : "the root";
}

const char *ckpt__order_evidence_text(ckpt__order_evidence evidence)
{
    static const char *const texts[] = {"none",
                                        "names in the file",
                                        "names that the caller states",
                                        "the order that the caller assumes",
                                        "the groups of the state",
                                        "shapes and names of the model's tensors",
                                        "shapes, names and the groups' weight_decay"};
    return texts[evidence];
}

/* "; 12 parameters of equal shape could be exchanged within it (h: 10, ln: 2)" */
static void tell_equal(const ckpt__order *order, ckpt__buf *out)
{
    char name[80];
    if (!order->exchangeable)
        return;
    ckpt__buf_printf(out, "; %zu parameters of equal shape could be exchanged within it", order->exchangeable);
    for (size_t i = 0; i < order->exchange_count; i++)
        ckpt__buf_printf(out, "%s%s: %zu", i ? ", " : " (",
                         ckpt__escape(name, sizeof name, order->exchanges[i].a.data, order->exchanges[i].a.size),
                         order->exchanges[i].count);
    ckpt__buf_str(out, order->exchange_count ? ")" : "");
}

void ckpt__canon_note_order(ckpt__builder *b, const ckpt__order *order)
{
    char where[120];
    ckpt__buf equal = {0};
    if (!order->inferred)
        return;
    b->canon->hypothesis = !order->plain;
    tell_equal(order, &equal);
    const char *of = order->evidence == CKPT__ASSUMED_ORDER  ? "as it is assumed"
                     : order->evidence == CKPT__STATE_GROUPS ? "the state says which"
                     : order->doubtful                       ? "the likely order of those that trainers use"
                                                             : "of the orders that trainers use one alone fits";
    ckpt__canon_note(b, order->doubtful ? CKPT_SEVERITY_WARNING : CKPT_SEVERITY_NOTE, "order-hypothesis", NULL,
                     order->plain && !order->doubtful
                         ? NULL
                         : "to be sure, state the parameters' names in the optimizer's order (param_names; "
                           "--param-names FILE)",
                     "the optimizer at '%s' numbers its %zu parameters; %s: %s%s%s",
                     shown(b, b->optimizer.node, where, sizeof where), b->optimizer.slot_count, of, order->how,
                     order->evidence == CKPT__CONTENT ? ", as weight_decay says" : "", equal.data ? equal.data : "");
    b->no_memory = b->no_memory || equal.failed;
    ckpt__buf_free(&equal);
}

/* What is not known, and the line that settles it. */
typedef struct doubt {
    const char *code; /* static: of the finding */
    char why[560], fix[400];
} doubt;

static doubt doubt_of(const ckpt__order *order)
{
    doubt d = {.code = "order-ambiguous"};
    snprintf(d.fix, sizeof d.fix, "%s", state_names);
    if (order->fit == CKPT__FITS_NOT) {
        d.code = "order-unknown";
        snprintf(d.why, sizeof d.why, "%s%s", order->inferred ? "no order fits: " : "", order->how);
    } else if (order->fit == CKPT__FITS_SEVERAL) {
        snprintf(d.why, sizeof d.why, "more than one order fits: %s", order->how);
    } else if (!order->ambiguous) {
        snprintf(d.why, sizeof d.why,
                 "nothing in the file names them, and strict_order takes no order by structure; it would be "
                 "'%s' (%.200s)",
                 order->name, order->how);
    } else {
        snprintf(d.why, sizeof d.why,
                 "more than one order fits: '%s' (%.150s), and with equal shapes exchanged: %.220s", order->name,
                 order->how, order->why);
        snprintf(d.fix, sizeof d.fix, "if it is '%s': --assume-order %s (assume_order = \"%s\"); else %s", order->name,
                 order->name, order->name, state_names);
    }
    return d;
}

ckpt_status ckpt__canon_order_unknown(ckpt__builder *b, size_t node, const ckpt__order *order)
{
    char buf[160];
    const char *where = shown(b, node, buf, sizeof buf);
    doubt d = doubt_of(order);
    bool several = order->fit != CKPT__FITS_NOT;
    char fix[600];
    snprintf(fix, sizeof fix, "%s%s%s", d.fix, several ? "; for good: " : "", several ? lasting : "");
    bool unmet = b->hints->assume_order && !several; /* the caller said an order, and it is not this one */
    if (b->hints->optional_optimizer && !unmet && !(order->fit == CKPT__FITS && b->hints->needs_order)) {
        b->canon->unnamed = b->tree.nodes[node].name;
        ckpt__canon_note(
            b, CKPT_SEVERITY_WARNING, d.code, NULL, fix,
            "cannot tell which parameter each state of the optimizer at '%s' belongs to, so the states keep the file's own names: %s",
            where, d.why);
        return CKPT_OK;
    }
    if (several)
        ckpt__canon_note(b, CKPT_SEVERITY_ERROR, d.code, NULL, fix,
                         "cannot tell which parameter each state of the optimizer at '%s' belongs to: %s", where,
                         d.why);
    return ckpt__fail(b->err, CKPT_E_MISMATCH, where,
                      "%scannot tell which parameter each state of this optimizer belongs to; %s; %s",
                      several ? "order-ambiguous: " : "", d.why, d.fix);
}

void ckpt__canon_note_tentative(ckpt__builder *b, const ckpt__order *order)
{
    char where[120], fix[600];
    doubt d = doubt_of(order);
    snprintf(fix, sizeof fix, "%s; for good: %s", d.fix, lasting);
    b->canon->hypothesis = true;
    ckpt__canon_note(b, CKPT_SEVERITY_WARNING, d.code, NULL, fix,
                     "cannot tell which parameter each state of the optimizer at '%s' belongs to: %s",
                     shown(b, b->optimizer.node, where, sizeof where), d.why);
}
