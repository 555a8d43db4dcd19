/* ckpt/ckpt.h - all of libckpt. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <ckpt/device.h>
#include <ckpt/diff.h>
#include <ckpt/doctor.h>
#include <ckpt/error.h>
#include <ckpt/guard.h>
#include <ckpt/map.h>
#include <ckpt/migrate.h>
#include <ckpt/progress.h>
#include <ckpt/reader.h>
#include <ckpt/report.h>
#include <ckpt/restore.h>
#include <ckpt/run.h>
#include <ckpt/save.h>
#include <ckpt/scan.h>
#include <ckpt/state.h>
#include <ckpt/stats.h>
#include <ckpt/summary.h>
#include <ckpt/tensor.h>
#include <ckpt/value.h>
#include <ckpt/verify.h>

#endif
