/* format/identify.h - the name of what no format reads, for messages. */
#ifndef CKPT_IDENTIFY_H
#define CKPT_IDENTIFY_H
#include "format/format.h"

/* CKPT_E_UNSUPPORTED where it is known what this is ("an HDF5 file"), else CKPT_E_FORMAT ("not a checkpoint"). */
ckpt_status ckpt__identify(const ckpt__probe *probe, const char *label, ckpt_error *err);
#endif
