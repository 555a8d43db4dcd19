/* doctor/fixes.h - how the rows write a fix: alternatives, each a kind and a line that is pasted alone. A command for a
 * shell, or Python, says in a comment where it stands. */
#ifndef CKPT_DOCTOR_FIXES_H
#define CKPT_DOCTOR_FIXES_H
#include "model/index.h"

#define SHELL CKPT__FIX_SHELL
#define PYTHON CKPT__FIX_PYTHON
#define IN_C CKPT__FIX_C
#define CONFIG CKPT__FIX_CONFIG
#define ADVICE CKPT__FIX_ADVICE

#define TRUSTED "  # only if you trust the file (ckpt-inspect scan {path})"
#endif
