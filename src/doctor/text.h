/* doctor/text.h - the texts of findings, and the stages of an examination that the snippet shares. */
#ifndef CKPT_DOCTOR_TEXT_H
#define CKPT_DOCTOR_TEXT_H
#include "doctor/facts.h"

/* Appends a row's text with what is in braces filled in. */
void ckpt__doctor_expand(ckpt__buf *b, const char *text, const ckpt__examination *p, const ckpt__row *row, const ckpt__found *found);
/* As a shell, and as Python, takes it: quoted where it must be. */
void ckpt__put_shell(ckpt__buf *b, const char *text);
void ckpt__put_python(ckpt__buf *b, const char *text);
void ckpt__put_c(ckpt__buf *b, const char *text);

/* doctor.c: *p is cleared first; discharge frees it too, whatever admit said. */
ckpt_status ckpt__doctor_admit(ckpt__examination *p, const ckpt_reader *reader, const ckpt_doctor_options *options,
                               ckpt_doctor_result *result, ckpt_error *err);
ckpt_status ckpt__doctor_examine(ckpt__examination *p, ckpt_report *report);
void ckpt__doctor_discharge(ckpt__examination *p);

/* snippet_c.c: a resume in C; with `run` from the run directory that the checkpoint lies in. */
void ckpt__put_snippet_c(ckpt__buf *b, const ckpt__examination *p, bool run);
#endif
