/* ckpt/inspect.h - what looks into checkpoints of any format, checks and rewrites them. The young parts, which may change with
 * each release, are there where CKPT_EXPERIMENTAL is defined before this header is included. */
#ifndef CKPT_INSPECT_H
#define CKPT_INSPECT_H

#include <ckpt/device.h>
#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/migrate.h>
#include <ckpt/progress.h>
#include <ckpt/reader.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>
#include <ckpt/value.h>
#include <ckpt/verify.h>

#ifdef CKPT_EXPERIMENTAL
#include <ckpt/diff.h>
#include <ckpt/doctor.h>
#include <ckpt/naming.h>
#include <ckpt/scan.h>
#include <ckpt/stats.h>
#include <ckpt/summary.h>
#endif

#endif
