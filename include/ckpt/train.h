/* ckpt/train.h - what a trainer needs: bind, save, restore, resume. All of it is stable. */
#ifndef CKPT_TRAIN_H
#define CKPT_TRAIN_H

#include <ckpt/device.h>
#include <ckpt/error.h>
#include <ckpt/guard.h>
#include <ckpt/map.h>
#include <ckpt/progress.h>
#include <ckpt/report.h>
#include <ckpt/restore.h>
#include <ckpt/run.h>
#include <ckpt/save.h>
#include <ckpt/state.h>
#include <ckpt/tensor.h>

#endif
