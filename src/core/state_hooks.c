/* core/state_hooks.c - values that the trainer writes and takes itself, and tensors that are new. */
#include "core/state.h"

ckpt_status ckpt_state_value(ckpt_state *s, const char *name, const ckpt_value_hooks *hooks, ckpt_error *err)
{
    (void)s;
    (void)hooks;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, name, "values of the trainer's own hooks are not there yet");
}

ckpt_status ckpt_state_replace(ckpt_state *s, const char *glob, ckpt_error *err)
{
    (void)s;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, glob, "replaced tensors are not there yet");
}
