/* doctor/mends.c - the findings of doctor that a rewrite mends. */
#include "doctor/mends.h"

#include <string.h>

const ckpt__mend ckpt__mends[] = {
    {"step-on-cpu", CKPT__MEND_POLICY, "",
     "step goes to its parameter's device as float32, where the saved flags need it there"},
    {"step-on-gpu-slow", CKPT__MEND_POLICY, "", "step goes to the cpu, where the saved flags read it on the host"},
    {"mixed-devices", CKPT__MEND_POLICY, "", "the optimizer's tensors go to their parameter's device"},
    {"rng-moved", CKPT__MEND_POLICY, "", "states of random generators go to the cpu"},
    {"capturable-on-cpu", CKPT__MEND_PLAIN, "--optimizer plain",
     "the groups say capturable=False, and step is on the cpu"},
    {"fused-on-cpu", CKPT__MEND_PLAIN, "--optimizer plain", "the groups say fused=False, and step is on the cpu"},
    {"no-such-device", CKPT__MEND_DEVICES, "--map-location 'cuda:*=cuda:0'", "every cuda tag becomes cuda:0"},
    {"rank-device", CKPT__MEND_DEVICES, "--map-location 'cuda:*=cuda:0'", "every cuda tag becomes cuda:0"},
    {"fused-flag-overwritten", CKPT__MEND_FUSED, "--optimizer fused",
     "the groups say fused=True, and step is with its parameter as float32"},
    {"amp-needs-fused-flag", CKPT__MEND_FUSED, "--optimizer fused",
     "the groups say fused=True, and step is with its parameter as float32"},
    {"prefix", CKPT__MEND_PREFIX, "--strip-prefix module.", "the prefixes that wrappers add go from the names"},
    {"weights-only-refused", CKPT__MEND_OBJECTS, "--plain", "opaque objects become dicts and strings"},
    {"torch-device-object", CKPT__MEND_DEVICE_OBJECTS, "--map-device-objects",
     "torch.device objects follow --map-location"},
    {"truncated", CKPT__MEND_SALVAGE, "--salvage", "every tensor that is whole is kept"},
    {"crc-mismatch", CKPT__MEND_SALVAGE, "--salvage", "every tensor that is whole is kept"},
};
const size_t ckpt__mend_count = sizeof ckpt__mends / sizeof *ckpt__mends;

const ckpt__mend *ckpt__mend_of(const char *code)
{
    for (size_t i = 0; i < ckpt__mend_count; i++)
        if (strcmp(ckpt__mends[i].code, code) == 0)
            return &ckpt__mends[i];
    return NULL;
}
