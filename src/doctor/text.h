/* doctor/text.h - the texts of findings, and the stages of an examination that the snippet shares. */
#ifndef CKPT_DOCTOR_TEXT_H
#define CKPT_DOCTOR_TEXT_H
#include "doctor/facts.h"

/* Appends a row's text, with a value for each name in braces (ckpt__row lists them). Braces around another text
 * stay. */
void ckpt__doctor_expand(ckpt__buf *b, const char *text, const ckpt__examination *p, const ckpt__row *row,
                         const ckpt__found *found);
/* Appends the text as a shell, as Python and as C take it. Python and C get it in quotes, a shell only where that is
 * needed. */
void ckpt__put_shell(ckpt__buf *b, const char *text);
void ckpt__put_python(ckpt__buf *b, const char *text);
void ckpt__put_c(ckpt__buf *b, const char *text);

/* doctor.c: the three stages of ckpt_doctor, in order. The caller allocates *p with calloc. admit clears *p;
 * discharge frees what *p owns and p itself, whatever admit returned. */
ckpt_status ckpt__doctor_admit(ckpt__examination *p, const ckpt_reader *reader, const ckpt_doctor_options *options,
                               ckpt_doctor_result *result, ckpt_error *err);
ckpt_status ckpt__doctor_examine(ckpt__examination *p, ckpt_report *report);
void ckpt__doctor_discharge(ckpt__examination *p);

/* snippet_c.c: a resume in C; with `run` from the run directory that holds the checkpoint. */
void ckpt__put_snippet_c(ckpt__buf *b, const ckpt__examination *p, bool run);
#endif
