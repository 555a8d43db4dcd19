/* migrate/bytes_kept.c - what reading the bytes has found out, from one run to the one that goes on with it: as text,
 *
 *     "p=3:17,4:18"            source storages that were read in part, whose CRCs were not compared yet (engine/crcs.h)
 *     "p=* c=5:100:2:1,9:..."  and of each payload of the file that was converted: its number, how many values it has, how many were
 *                              out of range, and how many were NaN
 *     "p=* c=5+1024:25:2:0"    the same of a range of one, which begins at byte 1024 (bytes_slices.c) */
#include <inttypes.h>
#include <stdlib.h>
#include "migrate/bytes_priv.h"

bool ckpt__bytes_stops(const ckpt__bytes *b)
{
    return !b->slices_meet;
}

/* The payload of a segment, and the byte of it where the segment begins. */
static bool payload_of(const ckpt__recipe *r, size_t segment, size_t *number, uint64_t *begin)
{
    const ckpt__segment *s = &r->segments[segment];
    const bool range = s->kind == CKPT__RANGE;
    *number = range ? r->ranges[s->number].number : s->number;
    *begin = range ? r->ranges[s->number].begin : 0;
    return range || s->kind == CKPT__PAYLOAD || s->kind == CKPT__STORAGE;
}

/* Where the counts of a payload, or of a range of it, are kept; *slice: of a range. NULL: nowhere. */
static ckpt__convert_counts *counts_of(const ckpt__bytes *b, size_t number, uint64_t begin, bool *slice)
{
    ckpt__slice *s = b->counts && number < b->count ? ckpt__slice_at(b, number, begin) : NULL;
    *slice = s && s->begin == begin && !b->counts[number].elements;
    return !b->counts || number >= b->count ? NULL : *slice ? &s->n : &b->counts[number];
}

void ckpt__bytes_say(const ckpt__bytes *b, const ckpt__recipe *r, ckpt__buf *text)
{
    bool first = true, slice;
    ckpt__buf_str(text, "p=");
    ckpt__crcs_say(b->crcs, text);
    for (size_t i = 0; b->counts && r && i < r->count; i++) {
        size_t number;
        uint64_t begin;
        const ckpt__convert_counts *n = payload_of(r, i, &number, &begin) ? counts_of(b, number, begin, &slice) : NULL;
        if (!n || !n->elements)
            continue;
        ckpt__buf_printf(text, "%s%zu", first ? " c=" : ",", number);
        if (slice)
            ckpt__buf_printf(text, "+%" PRIu64, begin);
        ckpt__buf_printf(text, ":%" PRIu64 ":%" PRIu64 ":%" PRIu64, n->elements, n->out_of_range, n->nan);
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

/* What is no payload of the recipe, nor a range that it has, is another file's. */
static bool is_of(const ckpt__recipe *r, uint64_t number, bool slice, uint64_t begin, size_t *from)
{
    for (; r && *from < r->count; ++*from) {
        size_t its;
        uint64_t at;
        if (payload_of(r, *from, &its, &at) && its == number && (!slice || at == begin))
            return true;
    }
    return false;
}

/* "NUMBER:" or "NUMBER+BEGIN:" */
static bool take_place(const char **text, uint64_t *number, bool *slice, uint64_t *begin)
{
    const size_t digits = strspn(*text, "0123456789");
    *begin = 0;
    *slice = (*text)[digits] == '+';
    return *slice ? take_number(text, '+', number) && take_number(text, ':', begin) : take_number(text, ':', number);
}

ckpt_status ckpt__bytes_take(ckpt__bytes *b, const ckpt__recipe *r, const char *text, bool *understood)
{
    const char *p = strstr(text, "c=");
    size_t at = 0;
    *understood = true;
    for (p = p ? p + 2 : ""; *p && *understood;) {
        uint64_t number, begin;
        bool slice;
        ckpt__convert_counts n = {0};
        *understood = take_place(&p, &number, &slice, &begin) && take_number(&p, ':', &n.elements) &&
                      take_number(&p, ':', &n.out_of_range) && take_number(&p, ',', &n.nan) && b->counts &&
                      number < b->count && is_of(r, number, slice, begin, &at);
        ckpt__slice *s = *understood && slice ? ckpt__slice_at(b, (size_t)number, begin) : NULL;
        *understood = *understood && (!slice || (s && s->begin == begin));
        if (*understood && slice)
            s->n = n;
        else if (*understood)
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
