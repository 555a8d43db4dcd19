/* engine/crcs.h - CRCs of storages that are taken while their bytes are read, range by range and over many questions.
 *
 * A worked example: a storage of 10 MiB is read by 40 questions of 256 KiB. Each question adds its range, ranges side by side become
 * one, and the CRC is compared when that one is the whole storage. The bytes of the first 39 are given before their CRC is known. So
 * this is for a reader that publishes nothing before ckpt__crcs_finish has said that all is right; others have their storages
 * checked before (engine/checked.h). */
#ifndef CKPT_CRCS_H
#define CKPT_CRCS_H
#include "engine/plan.h"
#include "io/source.h"

/* Of one plan. Not for several threads at a time until ckpt__crcs_share. */
typedef struct ckpt__crcs ckpt__crcs;
/* The plan is borrowed. NULL: no memory. */
ckpt__crcs *ckpt__crcs_new(const ckpt__plan *plan);
void ckpt__crcs_free(ckpt__crcs *crcs);
/* While it is shared threads may add at the same time, and a storage whose last range came waits for ckpt__crcs_settle: which
 * thread adds the last range is chance, and the error must not be. */
void ckpt__crcs_share(ckpt__crcs *crcs, bool shared);

/* Does the plan show that the bytes of the storage are all read as ranges that do not meet? Either the bond reads each of its bytes,
 * or all bonds together do. False: the storage is known to be damaged, or memory is short; its CRC is compared before its use. */
bool ckpt__crcs_takes(ckpt__crcs *crcs, uint32_t storage, uint32_t bond);
/* Bytes [at, at + n) of the storage, as they are stored. CKPT_E_DAMAGED, of the bond's tensor: these were the last, and the CRC is
 * wrong. */
ckpt_status ckpt__crcs_add(ckpt__crcs *crcs, uint32_t storage, uint32_t bond, uint64_t at, const void *data, size_t n,
                           ckpt_error *err);
/* The same of a span (model/index.h), of which storages are parts that have no CRC of their own: is this one a range of it, and do the
 * bonds read as many bytes of it as it has? Ranges of all its storages are put together. */
bool ckpt__crcs_takes_span(ckpt__crcs *crcs, uint32_t storage);
ckpt_status ckpt__crcs_add_span(ckpt__crcs *crcs, uint32_t storage, uint32_t bond, uint64_t at, const void *data,
                                size_t n, ckpt_error *err);
/* Compares what was completed while it was shared: storages before spans, the lowest number first. */
ckpt_status ckpt__crcs_settle(ckpt__crcs *crcs, ckpt_error *err);
/* No more is read: a storage of which ranges are missing, or came twice, is read from end to end. CKPT_E_DAMAGED as above. */
ckpt_status ckpt__crcs_finish(ckpt__crcs *crcs, const ckpt__source *source, ckpt_error *err);
/* A run that goes on with what another one has written does not read again what that one has read. What it had not compared by then
 * is said here, as storages in `text` ("3:17,4:18": the bond that read it first, for messages; "*": more than that), and given to
 * ckpt__crcs_doubt before anything is read: then ckpt__crcs_finish reads those from end to end. False: it is no such text. */
void ckpt__crcs_say(const ckpt__crcs *crcs, ckpt__buf *text);
ckpt_status ckpt__crcs_doubt(ckpt__crcs *crcs, const char *text, bool *understood, ckpt_error *err);
#endif
