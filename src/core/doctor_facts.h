/* core/doctor_facts.h - what doctor finds in a checkpoint (facts), and what each fact means to which loader (rows). */
#ifndef CKPT_DOCTOR_FACTS_H
#define CKPT_DOCTOR_FACTS_H
#include <ckpt/doctor.h>
#include "base/base.h"

typedef enum ckpt__fact {
    CKPT__STEP_ON_CPU_FUSED,      /* a fused group's step is on the cpu, its parameter on a GPU */
    CKPT__STEP_ON_CPU_CAPTURABLE,
    CKPT__STEP_ON_GPU,            /* neither fused nor capturable, and step on a GPU */
    CKPT__CAPTURABLE_ON_CPU,      /* a capturable group's parameter is on the cpu */
    CKPT__MIXED_DEVICES,          /* a moment is not where its parameter is */
    CKPT__NO_SUCH_DEVICE,
    CKPT__RNG_ON_GPU,
    CKPT__MOMENT_SHAPE,
    CKPT__NO_STATE,               /* an Adam or momentum optimizer without any state */
    CKPT__SOME_STATE_MISSING,
    CKPT__NO_MAX_EXP_AVG_SQ,      /* amsgrad=True without it */
    CKPT__NO_LR,
    CKPT__TENSOR_LR_FOREACH,
    CKPT__MOMENTS_WIDER,          /* moments of a wider dtype than their parameter's */
    CKPT__FUSED_KEPT,             /* saved fused; the program constructs another kind */
    CKPT__FUSED_LOST,             /* the program constructs fused; the saved flags say otherwise */
    CKPT__FUSED_LOST_AMP,         /* the same with a GradScaler */
    CKPT__CAPTURABLE_LOST,
    CKPT__NOT_WEIGHTS_ONLY,       /* classes that torch.load(weights_only=True) refuses */
    CKPT__STRAY_DEVICE,           /* a torch.device among the values: no map_location reaches it */
    CKPT__NO_OPTIMIZER,
    CKPT__SCALER_DISABLED,        /* {} for a program with an enabled scaler */
    CKPT__SCALER_MISSING,
    CKPT__POLICY_BREACH,          /* a rule by name or role puts a tensor where its optimizer cannot use it */
    CKPT__AMBIGUOUS,              /* which dict is the model's is not clear */
    CKPT__UNNAMED,                /* a native file's numbered optimizer state that no parameter's name goes with */
    CKPT__FACT_COUNT
} ckpt__fact;

/* One fact as found: how often, where first, and two details for the message. */
typedef struct ckpt__found {
    uint64_t count;
    char tensor[256];
    char a[760], b[360];
} ckpt__found;

typedef enum ckpt__loaders { CKPT__FOR_CKPT = 1, CKPT__FOR_TORCH = 2, CKPT__FOR_ALL = 3 } ckpt__loaders;

/* Versions are major * 100 + minor; 0: no bound. `until` is the last that the row holds for. Texts may hold {n}, {s}
 * ("" for one, "s" for more), {tensor}, {a}, {b}, {path}, {version}. */
typedef struct ckpt__row {
    ckpt__fact fact;
    ckpt__loaders loaders;
    int from, until;
    ckpt_severity severity;
    ckpt_outcome outcome;
    const char *code, *message, *fix;
} ckpt__row;

extern const ckpt__row ckpt__doctor_rows[];
extern const size_t ckpt__doctor_row_count;
#endif
