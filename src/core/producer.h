/* core/producer.h - who wrote a checkpoint: one row a producer, matched by the structure of what it leaves. */
#ifndef CKPT_PRODUCER_H
#define CKPT_PRODUCER_H
#include <ckpt/doctor.h>
#include "model/index.h"

typedef struct ckpt__producer {
    const char *name;             /* "Lightning"; NULL: not known */
    ckpt_loader loader;           /* what it resumes with */
} ckpt__producer;
/* Never NULL. */
const ckpt__producer *ckpt__producer_of(const ckpt__index *index);
#endif
