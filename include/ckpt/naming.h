/* ckpt/naming.h - what a state would call each tensor of a checkpoint, and what belongs to what. */
#ifndef CKPT_NAMING_H
#define CKPT_NAMING_H

#ifndef CKPT_EXPERIMENTAL
#error "<ckpt/naming.h> is young and may change with each release: define CKPT_EXPERIMENTAL before the include"
#endif

#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/reader.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>

CKPT_BEGIN_DECLS

/* The name by which a state binds a tensor of a file, and the parameter it belongs to, by the rules of ckpt_restore: for a
 * torch file the path of the model's dict is gone, and optimizer ids have become the parameters' names. Where the order of the
 * parameters cannot be told, or two dicts could be the model, those fields are not known. The library makes the
 * struct; it may grow. */
typedef struct ckpt_canonical {
    ckpt_str name; /* "optimizer.wte.weight.exp_avg"; data NULL: the tensor is outside of what a state binds */
    ckpt_str param, state_key; /* of optimizer state: "wte.weight", "exp_avg"; else data NULL */
    ckpt_str group;            /* parameter group, of parameters and their state; data NULL: none, or not known */
    ckpt_role role;
} ckpt_canonical;

typedef struct ckpt_naming ckpt_naming;

/* Options of ckpt_naming_new: facts that the file itself may not tell. Texts and lists are borrowed during the call. */
typedef struct ckpt_naming_options {
    uint32_t struct_size;           /* by the initializer */
    const char *const *param_names; /* the optimizer's parameters in order, group by group; NULL: not said */
    size_t param_name_count;
    const char *assume_order; /* a known order of the optimizer's parameters, by its name (ckpt-map(5)); NULL: none */
} ckpt_naming_options;
#define CKPT_NAMING_OPTIONS_INIT CKPT_SIZED(ckpt_naming_options)

/* options may be NULL. report (may be NULL) gets what was found, and what was ambiguous: "source-found", "order-hypothesis",
 * "order-ambiguous", "order-unknown", "source-ambiguous", ... The naming must not outlive its reader; ckpt_naming_free accepts
 * NULL. */
ckpt_status ckpt_naming_new(const ckpt_reader *reader, const ckpt_naming_options *options, ckpt_naming **out,
                            ckpt_report *report, ckpt_error *err);
const ckpt_canonical *ckpt_naming_get(const ckpt_naming *naming, size_t tensor); /* NULL past the end */
void ckpt_naming_free(ckpt_naming *naming);

CKPT_END_DECLS
#endif
