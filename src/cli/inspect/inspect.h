/* cli/inspect/inspect.h - the commands of ckpt-inspect. Each gets its PATHs and answers with an exit status. */
#ifndef CKPT_CLI_INSPECT_INSPECT_H
#define CKPT_CLI_INSPECT_INSPECT_H
#include "cli/out/command_line.h"

int inspect_show(const command_line *o);
int inspect_list(const command_line *o);
int inspect_tree(const command_line *o);
int inspect_verify(const command_line *o);
int inspect_doctor(const command_line *o);
int inspect_extract(const command_line *o);
int inspect_stats(const command_line *o);
int inspect_diff(const command_line *o);
int inspect_scan(const command_line *o);

/* What doctor's answer depends on, into *d. */
void inspect_doctor_options(const command_line *o, ckpt_doctor_options *d);
/* Options that the loader has no use for must not look as if they counted. */
void inspect_doctor_warn(const command_line *o, ckpt_loader loader);
bool inspect_doctor_torch(ckpt_loader loader); /* does it depend on the version of torch? */
/* The members "assumed" and "effective". */
void inspect_doctor_json_assumed(json_out *j, const command_line *o, const ckpt_doctor_options *d,
                                 const ckpt_doctor_result *r);
/* The member "checked". */
void inspect_json_checked(json_out *j, const ckpt_verify_result *r);
const char *inspect_integrity_name(ckpt_integrity integrity);
#endif
