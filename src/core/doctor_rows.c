/* core/doctor_rows.c - the truth table of a resume: which fact means what, to which loader, in which versions of torch.
 * Upstream moves; so this is data. torch from 2.1 on moves `step` in Optimizer.load_state_dict (pytorch#102619); before,
 * it stayed where map_location had put it. */
#include "core/doctor_facts.h"

#define SENTENCE                                                                                                              \
    "\"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\""
#define EACH_STEP "for s in optimizer.state.values(): s['step'] = s['step'].to(device, torch.float32)"
#define MOVE_STEP "after load_state_dict: " EACH_STEP
#define C_MAP "ckpt_restore with options.map_location = \"cuda:0\" and options.optimizer = CKPT_FUSED, or "

const ckpt__row ckpt__doctor_rows[] = {
    {CKPT__STEP_ON_CPU_FUSED, CKPT__FOR_CKPT, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "step-on-cpu",
     "the step of {n} parameter{s} is on the cpu, the parameters are on {a}, and the optimizer is fused: a fused kernel reads step "
     "on the device, and fails with " SENTENCE,
     C_MAP "ckpt-migrate --optimizer fused --to ckpt {path} {path}.fixed.safetensors"},
    {CKPT__STEP_ON_CPU_FUSED, CKPT__FOR_TORCH, 0, 200, CKPT_ERROR, CKPT_FAILS_AT_STEP, "step-on-cpu",
     "the step of {n} parameter{s} comes back on the cpu, the parameters are on {a}, and the saved groups say fused: torch {version} "
     "leaves step where map_location puts it, and the first optimizer.step() fails with " SENTENCE,
     "torch.load(..., map_location='{a}'), or torch >= 2.1, or " MOVE_STEP},
    {CKPT__STEP_ON_CPU_FUSED, CKPT__FOR_TORCH, 201, 0, CKPT_NOTE, CKPT_RESUMES, "step-on-cpu",
     "the step of {n} parameter{s} is on the cpu and the saved groups say fused: load_state_dict of torch {version} moves it to {a} as "
     "float32; torch up to 2.0, and loaders that do not go through load_state_dict, fail on it",
     ""},
    {CKPT__STEP_ON_CPU_CAPTURABLE, CKPT__FOR_CKPT, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "step-on-cpu",
     "the step of {n} parameter{s} is on the cpu, the parameters are on {a}, and the optimizer is capturable: it reads step on the "
     "device, and fails with \"If capturable=True, params and state_steps must be on supported devices\"",
     "ckpt_restore with options.map_location = \"cuda:0\" and options.optimizer = CKPT_CAPTURABLE, or ckpt-migrate --optimizer "
     "capturable --to ckpt {path} {path}.fixed.safetensors"},
    {CKPT__STEP_ON_CPU_CAPTURABLE, CKPT__FOR_TORCH, 0, 200, CKPT_ERROR, CKPT_FAILS_AT_STEP, "step-on-cpu",
     "the step of {n} parameter{s} comes back on the cpu, the parameters are on {a}, and the saved groups say capturable: torch "
     "{version} leaves it there, and fails with \"If capturable=True, params and state_steps must be CUDA tensors\"",
     "torch.load(..., map_location='{a}'), or torch >= 2.1, or " MOVE_STEP},
    {CKPT__STEP_ON_CPU_CAPTURABLE, CKPT__FOR_TORCH, 201, 0, CKPT_NOTE, CKPT_RESUMES, "step-on-cpu",
     "the step of {n} parameter{s} is on the cpu and the saved groups say capturable: load_state_dict of torch {version} moves it to {a}",
     ""},
    {CKPT__STEP_ON_GPU, CKPT__FOR_CKPT, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "step-on-gpu-slow",
     "the step of {n} parameter{s} is on {a}, and the optimizer is neither fused nor capturable: it reads step on the host, one "
     "synchronizing copy for each parameter and step",
     "ckpt_restore with a map_location (the placement policy puts step on the cpu), or ckpt-migrate --optimizer plain --to ckpt {path} "
     "{path}.fixed.safetensors"},
    {CKPT__STEP_ON_GPU, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "step-on-gpu-slow",
     "the step of {n} parameter{s} comes back on {a}, and the saved groups are neither fused nor capturable: it resumes, but slow "
     "(an .item() for each parameter and step; torch 1.12.0 asserts, pytorch#80809)",
     "torch.load(..., map_location='cpu'), or after load_state_dict: for s in optimizer.state.values(): s['step'] = s['step'].cpu()"},
    {CKPT__CAPTURABLE_ON_CPU, CKPT__FOR_ALL, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "capturable-on-cpu",
     "the optimizer is capturable and {n} parameter{s} would be on the cpu: \"If capturable=True, params and state_steps must be on "
     "supported devices\"",
     "map the checkpoint to a GPU, or set capturable=False in every group after the load"},
    {CKPT__MIXED_DEVICES, CKPT__FOR_CKPT, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "mixed-devices",
     "{n} optimizer tensor{s} would be on another device than the parameter ({a} and {b}): the optimizer fails with " SENTENCE,
     "ckpt_restore with options.map_location (moments then take their parameter's device)"},
    {CKPT__MIXED_DEVICES, CKPT__FOR_TORCH, 0, 0, CKPT_NOTE, CKPT_RESUMES, "mixed-devices",
     "{n} optimizer tensor{s} would be on another device than the parameter ({a} and {b}): load_state_dict moves moments to their "
     "parameter; a loader that does not go through it must do so itself",
     ""},
    {CKPT__NO_SUCH_DEVICE, CKPT__FOR_CKPT, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "no-such-device",
     "{n} tensor{s} would go to {a}, and there {b}: ckpt_restore refuses it before the first byte", "--map-location \"cuda:*=cuda:0\""},
    {CKPT__NO_SUCH_DEVICE, CKPT__FOR_TORCH, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "no-such-device",
     "{n} tensor{s} would go to {a}, and there {b}: torch.load fails with \"Attempting to deserialize object on a CUDA device\"",
     "torch.load(..., map_location='cpu'), or to a device that is there"},
    {CKPT__RNG_ON_GPU, CKPT__FOR_TORCH, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "rng-on-gpu",
     "{n} state{s} of a random generator would come back on {a}: torch.set_rng_state fails with \"RNG state must be a torch.ByteTensor\"",
     "torch.load(..., map_location='cpu'), or .cpu() on each before set_rng_state"},
    {CKPT__RNG_ON_GPU, CKPT__FOR_CKPT, 0, 0, CKPT_WARNING, CKPT_RESUMES, "rng-on-gpu",
     "{n} state{s} of a random generator carry the tag {a}; ckpt_restore puts them on the cpu", ""},
    {CKPT__MOMENT_SHAPE, CKPT__FOR_CKPT, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "", "", ""},
    {CKPT__MOMENT_SHAPE, CKPT__FOR_TORCH, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "moment-shape",
     "{n} optimizer tensor{s} have another shape than the parameter: torch loads them in silence and fails at the first step",
     "declare the order of the parameters with --param-names, or save the checkpoint again"},
    {CKPT__NO_STATE, CKPT__FOR_CKPT, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "missing-state",
     "the optimizer has {n} parameter{s} and state for none of them: ckpt_restore reports every moment as missing",
     "options.allow_missing starts them at zero"},
    {CKPT__NO_STATE, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "missing-state",
     "the optimizer has {n} parameter{s} and state for none of them: torch starts all moments at step 0, in silence",
     "resume from a checkpoint that was saved after an optimizer step"},
    {CKPT__SOME_STATE_MISSING, CKPT__FOR_CKPT, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "missing-state",
     "{n} parameter{s} of the optimizer have no state, others have: right for frozen parameters; for others ckpt_restore reports the "
     "moments as missing",
     "bind no moments for frozen parameters"},
    {CKPT__SOME_STATE_MISSING, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "missing-state",
     "{n} parameter{s} of the optimizer have no state, others have: right for frozen parameters; for others torch starts the moments at "
     "step 0, in silence",
     ""},
    {CKPT__NO_MAX_EXP_AVG_SQ, CKPT__FOR_ALL, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "missing-state",
     "a group says amsgrad=True, and {n} parameter{s} have no max_exp_avg_sq: KeyError at the first step",
     "set amsgrad=False in the groups after the load, or start the optimizer anew"},
    {CKPT__NO_LR, CKPT__FOR_ALL, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "missing-hyper",
     "{n} parameter group{s} have no lr: KeyError: 'lr' at the first step", "set lr in every group after the load"},
    {CKPT__TENSOR_LR_FOREACH, CKPT__FOR_TORCH, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "tensor-lr",
     "{n} parameter group{s} have a tensor as lr, foreach=True and capturable=False: \"lr as a Tensor is not supported for "
     "capturable=False and foreach=True\"",
     "for g in optimizer.param_groups: g['lr'] = float(g['lr'])"},
    {CKPT__MOMENTS_WIDER, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "moments-downcast",
     "{n} optimizer tensor{s} are {a} and the parameter is {b}: load_state_dict casts them to {b} in silence",
     "keep float32 master weights, or put the saved moments back after load_state_dict"},
    {CKPT__FUSED_KEPT, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "flags-from-file",
     "the program constructs {a}, and the saved groups say fused: after load_state_dict the saved flags are the optimizer's, so it "
     "runs fused",
     "after load_state_dict: for g in optimizer.param_groups: g['fused'] = False (and step to the cpu)"},
    {CKPT__FUSED_LOST, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "fused-lost",
     "the program constructs fused, and the saved groups do not say fused: after load_state_dict the saved flags are the optimizer's, "
     "so it silently runs without the fused kernel",
     "after load_state_dict: for g in optimizer.param_groups: g['fused'] = True; " EACH_STEP},
    {CKPT__FUSED_LOST_AMP, CKPT__FOR_TORCH, 0, 200, CKPT_WARNING, CKPT_OUTCOME_UNKNOWN, "fused-lost",
     "the program constructs fused with a GradScaler, and the saved groups do not say fused: what torch {version} does is not known here",
     "after load_state_dict: for g in optimizer.param_groups: g['fused'] = True; " EACH_STEP},
    {CKPT__FUSED_LOST_AMP, CKPT__FOR_TORCH, 201, 0, CKPT_ERROR, CKPT_FAILS_AT_STEP, "fused-lost",
     "the program constructs fused with a GradScaler, and the saved groups do not say fused: the first scaler.step() fails with "
     "\"Expected grad_scale and found_inf to be None\"",
     "after load_state_dict: for g in optimizer.param_groups: g['fused'] = True; " EACH_STEP},
    {CKPT__CAPTURABLE_LOST, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "capturable-lost",
     "the program constructs capturable, and the saved groups do not say so: after load_state_dict the saved flags are the optimizer's",
     "after load_state_dict: for g in optimizer.param_groups: g['capturable'] = True; " EACH_STEP},
    {CKPT__NOT_WEIGHTS_ONLY, CKPT__FOR_TORCH, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "not-weights-only",
     "torch.load with weights_only=True (the default from 2.6) refuses {n} value{s}: {a}",
     "torch.load(..., weights_only=False) for a file that you trust"},
    {CKPT__STRAY_DEVICE, CKPT__FOR_ALL, 0, 0, CKPT_NOTE, CKPT_RESUMES, "stray-device",
     "{n} torch.device object{s} among the values name {a}: no map_location reaches them", ""},
    {CKPT__NO_OPTIMIZER, CKPT__FOR_CKPT, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "no-optimizer",
     "there is no optimizer state: the weights load, and every moment of a bound optimizer is missing",
     "options.allow_missing starts them at zero"},
    {CKPT__NO_OPTIMIZER, CKPT__FOR_TORCH, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "no-optimizer",
     "there is no optimizer state: the weights load, the optimizer starts anew, and a program that asks for it gets a KeyError", ""},
    {CKPT__SCALER_DISABLED, CKPT__FOR_ALL, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "scaler-disabled",
     "the scaler was saved disabled ({}), and the program has an enabled one: \"The source state dict is empty, possibly because it "
     "was saved from a disabled instance of GradScaler\"",
     "do not load the scaler's state, or construct GradScaler(enabled=False)"},
    {CKPT__SCALER_MISSING, CKPT__FOR_ALL, 0, 0, CKPT_WARNING, CKPT_RESUMES_DIFFERENTLY, "no-scaler",
     "the program has a GradScaler, and the checkpoint has no state of one: the scale starts at its initial value", ""},
    {CKPT__POLICY_BREACH, CKPT__FOR_CKPT, 0, 0, CKPT_ERROR, CKPT_FAILS_AT_LOAD, "", "", ""},
    {CKPT__UNNAMED, CKPT__FOR_CKPT, 0, 0, CKPT_WARNING, CKPT_OUTCOME_UNKNOWN, "", "", ""},
    {CKPT__AMBIGUOUS, CKPT__FOR_ALL, 0, 0, CKPT_WARNING, CKPT_OUTCOME_UNKNOWN, "ambiguous", "{a}", "{b}"},
};
const size_t ckpt__doctor_row_count = sizeof ckpt__doctor_rows / sizeof *ckpt__doctor_rows;
