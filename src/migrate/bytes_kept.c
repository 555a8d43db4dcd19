/* migrate/bytes_kept.c - what reading the bytes has found out, from one run to the one that goes on with it: as text,
 *
 *     "p=3:17,4:18"            source storages that were read in part, whose CRCs were not compared yet (engine/crcs.h)
 *     "p=* c=5:100:2:1,9:..."  and of each payload of the file that was converted: its number, how many values it has, how many were
 *                              out of range, and how many were NaN */
#include <inttypes.h>
#include <stdlib.h>
#include "migrate/bytes_priv.h"

bool ckpt__bytes_stops(const ckpt__bytes *b)
{
    return !(b->converts && b->ranges);
}

void ckpt__bytes_say(const ckpt__bytes *b, const ckpt__recipe *r, ckpt__buf *text)
{
    bool first = true;
    ckpt__buf_str(text, "p=");
    ckpt__crcs_say(b->crcs, text);
    for (size_t i = 0; b->counts && r && i < r->count; i++) {
        const ckpt__segment *s = &r->segments[i];
        const bool payload = s->kind == CKPT__PAYLOAD || s->kind == CKPT__STORAGE;
        const ckpt__convert_counts *n = payload && s->number < b->count ? &b->counts[s->number] : NULL;
        if (!n || !n->elements)
            continue;
        ckpt__buf_printf(text, "%s%zu:%" PRIu64 ":%" PRIu64 ":%" PRIu64, first ? " c=" : ",", s->number, n->elements,
                         n->out_of_range, n->nan);
        first = false;
    }
}

static bool take_number(const char **text, char end, uint64_t *n)
{
    char *stop;
    if (**text < '0' || **text > '9')
        return false;
    *n = strtoull(*text, &stop, 10);
    *text = stop + (*stop == end);
    return *stop == end || (end == ',' && *stop == '\0');
}

/* Numbers of payloads that are none of the recipe's are another file's. */
static bool is_of(const ckpt__recipe *r, uint64_t number, size_t *from)
{
    for (; r && *from < r->count; ++*from) {
        const ckpt__segment *s = &r->segments[*from];
        if ((s->kind == CKPT__PAYLOAD || s->kind == CKPT__STORAGE) && s->number == number)
            return true;
    }
    return false;
}

ckpt_status ckpt__bytes_take(ckpt__bytes *b, const ckpt__recipe *r, const char *text, bool *understood)
{
    const char *p = strstr(text, "c=");
    size_t at = 0;
    *understood = true;
    for (p = p ? p + 2 : ""; *p && *understood;) {
        uint64_t number;
        ckpt__convert_counts n = {0};
        *understood = take_number(&p, ':', &number) && take_number(&p, ':', &n.elements) &&
                      take_number(&p, ':', &n.out_of_range) && take_number(&p, ',', &n.nan) && b->counts &&
                      number < b->count && is_of(r, number, &at);
        if (*understood)
            b->counts[number] = n;
    }
    return CKPT_OK;
}

ckpt_status ckpt__bytes_doubt(ckpt__bytes *b, const char *text, bool *understood, ckpt_error *err)
{
    ckpt__buf storages = {0};
    *understood = ckpt__begins(text, "p=");
    if (!*understood)
        return CKPT_OK;
    ckpt__buf_add(&storages, text + 2, strcspn(text + 2, " "));
    ckpt_status status = storages.failed
                             ? ckpt__migration_no_memory(err)
                             : ckpt__crcs_doubt(b->crcs, storages.data ? storages.data : "", understood, err);
    ckpt__buf_free(&storages);
    return status;
}
