/* examine/verify.h - a part of ckpt_verify that tests call alone. */
#ifndef CKPT_VERIFY_INTERNAL_H
#define CKPT_VERIFY_INTERNAL_H
#include <ckpt/verify.h>
#include "reader/reader.h"

/* Of ckpt_verify what looks at payloads: one finding for each tensor whose bytes are not what its own CRC, or that of its
 * storage, says; result gets the bytes (add to what is there). */
ckpt_status ckpt__verify_payloads(const ckpt_reader *reader, ckpt_verify_result *result, ckpt_report *report,
                                  ckpt_error *err);
#endif
