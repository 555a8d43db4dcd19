/* ckpt/ckpt.h - all of libckpt: what a trainer needs, and what looks into checkpoints. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <ckpt/inspect.h>
#include <ckpt/train.h>

#endif
