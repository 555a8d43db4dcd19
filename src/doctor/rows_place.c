/* doctor/rows_place.c - the truth table of a resume, part one: devices, flags, step, moments. Upstream moves; so this is
 * data. torch from 2.1 on moves `step` in Optimizer.load_state_dict (pytorch#102619); before, it stayed where map_location had
 * put it. What "ran": torch 2.13 and 1.13 on the CPU and on meta, which show where things are put and what is refused
 * there; libtorch 2.13 in C++ on the CPU; ckpt_restore on the CPU and on simulated CUDA devices, which show where each tensor
 * lands. That a fused CUDA kernel refuses a step on the CPU is read in its sources. */
#include "doctor/facts.h"
#include "doctor/fixes.h"

#define SENTENCE "\"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\""
#define SUPPORTED "\"If capturable=True, params and state_steps must be on supported devices\""
#define STEPS                                                                                                          \
    "for p, s in optimizer.state.items(): s['step'] = torch.as_tensor(s['step'], dtype=torch.float32, device=p.device)"
/* one line, to paste as it is */
#define ALL(key)                                                                                                       \
    "[g.update(" key                                                                                                   \
    "=True) for g in optimizer.param_groups]; [s.update(step=torch.as_tensor(s['step'], dtype=torch.float32, "         \
    "device=p.device)) for p, s in optimizer.state.items()]"
#define NONE_OF(key)                                                                                                   \
    "[g.update(" key                                                                                                   \
    "=False) for g in optimizer.param_groups]; [s.update(step=s['step'].cpu()) for s in optimizer.state.values()]"

/* clang-format off */
const ckpt__row ckpt__rows_place[] = {
    /* ---- step: fused and capturable read it on the device */
    {.fact = CKPT__STEP, .loaders = CKPT__L_CKPT, .kind = CKPT__K_FUSED, .step = CKPT__STEP_CPU, .home = CKPT__HOME_GPU,
     .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-on-cpu",
     .message = "the step of {n} parameter{s} is on the cpu, the parameters are on {a}, and the optimizer is fused: a fused kernel "
                "reads step on the device, and fails with " SENTENCE,
     .fix = IN_C "options.map_location = \"{a}\"; options.optimizer = CKPT_OPTIMIZER_FUSED; /* for ckpt_restore */"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_CKPT, .kind = CKPT__K_CAPTURABLE, .step = CKPT__STEP_CPU, .home = CKPT__HOME_GPU,
     .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-on-cpu",
     .message = "the step of {n} parameter{s} is on the cpu, the parameters are on {a}, and the optimizer is capturable: it reads step "
                "on the device, and fails with " SUPPORTED,
     .fix = IN_C "options.map_location = \"{a}\"; options.optimizer = CKPT_OPTIMIZER_CAPTURABLE; /* for ckpt_restore */"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_CPP, .kind = CKPT__K_DEVICE, .step = CKPT__STEP_CPU, .home = CKPT__HOME_GPU,
     .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-on-cpu",
     .message = "the step of {n} parameter{s} comes back on the cpu, the parameters are on {a}, and the saved groups say fused or "
                "capturable: nothing in C++ moves it, and a fused kernel fails with " SENTENCE,
     .fix = IN_C "step = step.to(param.device(), torch::kFloat32); // after the load"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .until = 200, .kind = CKPT__K_FUSED, .step = CKPT__STEP_CPU | CKPT__STEP_NUMBER,
     .home = CKPT__HOME_GPU, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-on-cpu",
     .message = "the step of {n} parameter{s} comes back on the cpu, the parameters are on {a}, and the saved groups say fused: torch "
                "{version} leaves step where map_location puts it, and the first optimizer.step() fails with " SENTENCE,
     .fix = SHELL "pip install 'torch>=2.1'"
            PYTHON "checkpoint = torch.load({file}, map_location='{a}')"
            PYTHON STEPS "  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .until = 200, .kind = CKPT__K_CAPTURABLE, .step = CKPT__STEP_CPU | CKPT__STEP_NUMBER,
     .home = CKPT__HOME_GPU, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-on-cpu",
     .message = "the step of {n} parameter{s} comes back on the cpu, the parameters are on {a}, and the saved groups say capturable: "
                "torch {version} leaves it there, and fails with \"If capturable=True, params and state_steps must be CUDA tensors\"",
     .fix = SHELL "pip install 'torch>=2.1'"
            PYTHON "checkpoint = torch.load({file}, map_location='{a}')"
            PYTHON STEPS "  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .from = 201, .kind = CKPT__K_DEVICE, .step = CKPT__STEP_CPU, .home = CKPT__HOME_GPU,
     .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES, .code = "step-on-cpu",
     .message = "the step of {n} parameter{s} is on the cpu and the saved groups say fused or capturable: load_state_dict of torch "
                "{version} moves it to {a} as float32; torch up to 2.0, and loaders that do not go through it, fail",
     .fix = ADVICE "nothing to do with torch >= 2.1"
            SHELL "{repair}"},
    /* ---- fused on the CPU: torch 2.4 was the first to have kernels for it (ran: 1.13, 2.0.1, 2.1.2, 2.3.1, 2.4.1) */
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .until = 203, .kind = CKPT__K_FUSED, .home = CKPT__HOME_CPU, .evidence = CKPT__RAN,
     .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "fused-on-cpu",
     .message = "the saved groups say fused, and {n} parameter{s} would be on the cpu, for which torch {version} has no fused kernel: "
                "\"Could not run 'aten::_fused_adam_' with arguments from the 'CPU' backend\"",
     .fix = SHELL "pip install 'torch>=2.4'"
            PYTHON "for g in optimizer.param_groups: g['fused'] = False  # after load_state_dict"
            SHELL "{repair}"},
    /* ---- capturable on the CPU */
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .from = 200, .kind = CKPT__K_CAPTURABLE, .home = CKPT__HOME_CPU, .evidence = CKPT__RAN,
     .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "capturable-on-cpu",
     .message = "the saved groups say capturable, and {n} parameter{s} would be on the cpu: optimizer.step() fails with " SUPPORTED,
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cuda:0')  # with the model on that GPU"
            PYTHON "for g in optimizer.param_groups: g['capturable'] = False  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .until = 113, .kind = CKPT__K_CAPTURABLE, .home = CKPT__HOME_CPU,
     .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "capturable-on-cpu",
     .message = "the saved groups say capturable, and {n} parameter{s} would be on the cpu: optimizer.step() fails with \"If "
                "capturable=True, params and state_steps must be CUDA tensors\"",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cuda:0')  # with the model on that GPU"
            PYTHON "for g in optimizer.param_groups: g['capturable'] = False  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_CKPT, .kind = CKPT__K_CAPTURABLE, .home = CKPT__HOME_CPU,
     .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "capturable-on-cpu",
     .message = "the optimizer is capturable and {n} parameter{s} would be on the cpu: " SUPPORTED,
     .fix = IN_C "options.map_location = \"cuda:0\"; /* for ckpt_restore */"
            SHELL "{repair}"},
    /* ---- an integer step for foreach */
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .from = 201, .kind = CKPT__K_FOREACH, .step = CKPT__STEP_CPU | CKPT__STEP_GPU,
     .step_dtype = CKPT__ODD_STEP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-dtype",
     .message = "the step of {n} parameter{s} is {c}, and the optimizer runs with foreach (torch's default on a GPU): load_state_dict "
                "leaves it so, and the first step fails with \"Tensors of the same index must be on the same device and the same dtype except "
                "`step` tensors that can be CPU and float32/64\"",
     .fix = PYTHON "for s in optimizer.state.values(): s['step'] = s['step'].float()  # after load_state_dict"},
    /* (ran: 2.1.2 fails on these two, 2.3.1 does not) */
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .from = 201, .until = 201, .kind = CKPT__K_FOREACH,
     .step = CKPT__STEP_CPU | CKPT__STEP_GPU, .step_dtype = CKPT__F64_STEP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-dtype",
     .message = "the step of {n} parameter{s} is {c}, and the optimizer runs with foreach: torch {version} wants float32, and the first "
                "step fails with \"Tensors of the same index must be on the same device and the same dtype\"",
     .fix = SHELL "pip install 'torch>=2.3'"
            PYTHON "for s in optimizer.state.values(): s['step'] = s['step'].float()  # after load_state_dict"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .from = 201, .until = 201, .kind = CKPT__K_DEVICE, .step = CKPT__STEP_NUMBER,
     .home = CKPT__HOME_GPU, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-on-cpu",
     .message = "the step of {n} parameter{s} is a number, and the saved groups say fused or capturable: torch {version} makes it a "
                "tensor on the cpu, the parameters are on {a}, and the first optimizer.step() fails with " SENTENCE,
     .fix = SHELL "pip install 'torch>=2.3'"
            PYTHON STEPS "  # after load_state_dict"
            SHELL "{repair}"},
    /* ---- step on a GPU for one that reads it on the host */
    {.fact = CKPT__STEP, .loaders = CKPT__L_CKPT | CKPT__L_CPP, .kind = CKPT__K_HOST, .step = CKPT__STEP_GPU, .evidence = CKPT__SOURCE,
     .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-on-gpu-slow",
     .message = "the step of {n} parameter{s} is on {b}, and the optimizer is neither fused nor capturable: it reads step on the host, "
                "one synchronizing copy for each parameter and step",
     .fix = IN_C "options.map_location = \"{b}\"; /* for ckpt_restore, whose placement policy puts step on the cpu */"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .until = 112, .kind = CKPT__K_HOST, .step = CKPT__STEP_GPU,
     .evidence = CKPT__UNVERIFIED, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-on-gpu-slow",
     .message = "the step of {n} parameter{s} comes back on {b}, and the saved groups are neither fused nor capturable: torch 1.12.0 "
                "asserts (pytorch#80809), 1.12.1 resumes, slow",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cpu')"
            PYTHON "for s in optimizer.state.values(): s['step'] = s['step'].cpu()  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .kind = CKPT__K_HOST, .step = CKPT__STEP_GPU, .evidence = CKPT__SOURCE,
     .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-on-gpu-slow",
     .message = "the step of {n} parameter{s} comes back on {b}, and the saved groups are neither fused nor capturable: load_state_dict "
                "leaves it there, and it resumes, but slow (an .item() for each parameter and step)",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cpu')"
            PYTHON "for s in optimizer.state.values(): s['step'] = s['step'].cpu()  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__FACTOR_ON_GPU, .loaders = CKPT__L_PYTHON, .kind = CKPT__K_HOST | CKPT__K_FUSED, .home = CKPT__HOME_GPU,
     .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-on-gpu-slow",
     .message = "load_state_dict takes mu_product of {n} parameter{s} to {a}, and NAdam reads it on the host: it resumes, but slow (an .item() "
                "for each parameter and step)",
     .fix = PYTHON "for s in optimizer.state.values(): s['mu_product'] = s['mu_product'].cpu()  # after load_state_dict"},
    /* ---- the dtype of a fused step */
    {.fact = CKPT__STEP, .loaders = CKPT__L_PYTHON, .until = 200, .kind = CKPT__K_FUSED, .step = CKPT__STEP_GPU,
     .step_dtype = CKPT__OTHER_STEP, .home = CKPT__HOME_GPU, .evidence = CKPT__UNVERIFIED, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-dtype",
     .message = "the step of {n} parameter{s} is {c}, and the saved groups say fused: the kernel wants float32, and torch {version} does "
                "not convert it",
     .fix = SHELL "pip install 'torch>=2.1'"
            PYTHON STEPS "  # after load_state_dict"},
    {.fact = CKPT__STEP, .loaders = CKPT__L_CPP, .kind = CKPT__K_FUSED, .step = CKPT__STEP_GPU,
     .step_dtype = CKPT__OTHER_STEP, .home = CKPT__HOME_GPU, .evidence = CKPT__UNVERIFIED, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-dtype",
     .message = "the step of {n} parameter{s} is {c}, and the optimizer is fused: torch's kernels want float32",
     .fix = ADVICE "load it with ckpt_restore, which makes step float32 for a fused optimizer"},
    /* ---- flags: after load_state_dict the saved ones are the optimizer's */
    {.fact = CKPT__FLAGS, .loaders = CKPT__L_PYTHON, .until = 200, .kind = CKPT__K_CAPTURABLE | CKPT__K_HOST, .program = CKPT__K_FUSED,
     .amp = CKPT__AMP, .evidence = CKPT__UNVERIFIED, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_UNKNOWN,
     .code = "amp-needs-fused-flag",
     .message = "the program constructs fused with a GradScaler, and the saved groups say {b}: what torch {version} does is not known "
                "here (2.13 fails at the first scaler.step())",
     .fix = PYTHON ALL("fused") "  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__FLAGS, .loaders = CKPT__L_PYTHON, .kind = CKPT__K_CAPTURABLE | CKPT__K_HOST, .program = CKPT__K_FUSED,
     .amp = CKPT__AMP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "amp-needs-fused-flag",
     .message = "the program constructs fused with a GradScaler, and the saved groups say {b}: load_state_dict takes the saved flags, but "
                "_step_supports_amp_scaling of the constructor stays, and the first scaler.step() fails with \"Expected grad_scale and "
                "found_inf to be None\"",
     .fix = PYTHON ALL("fused") "  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__FLAGS, .loaders = CKPT__L_PYTHON, .kind = CKPT__K_CAPTURABLE | CKPT__K_HOST, .program = CKPT__K_FUSED,
     .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "fused-flag-overwritten",
     .message = "the program constructs fused, and the saved groups say {b}: after load_state_dict the saved flags are the optimizer's, so "
                "it silently runs without the fused kernel",
     .fix = PYTHON ALL("fused") "  # after load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__FLAGS, .loaders = CKPT__L_PYTHON, .kind = CKPT__K_FUSED,
     .program = CKPT__K_CAPTURABLE | CKPT__K_FOREACH | CKPT__K_PLAIN, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "fused-flag-overwritten",
     .message = "the program constructs {a}, and the saved groups say {b}: after load_state_dict the saved flags are the optimizer's, so it "
                "runs fused",
     .fix = PYTHON NONE_OF("fused") "  # after load_state_dict"
            SHELL "ckpt-migrate --optimizer {a} --to same {path} {dst}"},
    {.fact = CKPT__FLAGS, .loaders = CKPT__L_PYTHON, .kind = CKPT__K_HOST, .program = CKPT__K_CAPTURABLE, .evidence = CKPT__RAN,
     .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "capturable-flag-overwritten",
     .message = "the program constructs capturable, and the saved groups say {b}: after load_state_dict the saved flags are the optimizer's",
     .fix = PYTHON ALL("capturable") "  # after load_state_dict"
            SHELL "ckpt-migrate --optimizer capturable --to same {path} {dst}"},
    {.fact = CKPT__FLAGS, .loaders = CKPT__L_PYTHON, .kind = CKPT__K_CAPTURABLE, .program = CKPT__K_HOST, .evidence = CKPT__RAN,
     .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "capturable-flag-overwritten",
     .message = "the program constructs {a}, and the saved groups say {b}: after load_state_dict the saved flags are the optimizer's, so it "
                "runs capturable",
     .fix = PYTHON NONE_OF("capturable") "  # after load_state_dict"},
    /* ---- moments */
    {.fact = CKPT__MOMENT_ELSEWHERE, .loaders = CKPT__L_CKPT | CKPT__L_CPP, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "mixed-devices",
     .message = "{n} optimizer tensor{s} would be on another device than the parameter ({a} and {b}): the optimizer fails with " SENTENCE,
     .fix = IN_C "options.map_location = \"{b}\"; /* for ckpt_restore: moments then take their parameter's device */"
            SHELL "{repair}"},
    {.fact = CKPT__MOMENT_MIXED_IN_FILE, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "mixed-devices",
     .message = "{n} optimizer tensor{s} {were} saved on another device than the parameter ({a} and {b}): load_state_dict moves them to "
                "their parameter; a loader that does not go through it must do so itself",
     .fix = ADVICE "nothing to do for load_state_dict"
            SHELL "{repair}"},
    {.fact = CKPT__MOMENT_CAST, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "moments-cast",
     .message = "{n} optimizer tensor{s} {are} {a} and the parameter is {b}: load_state_dict casts them to {b} in silence",
     .fix = ADVICE "keep float32 master weights"
            PYTHON "for p, s in zip((p for g in optimizer.param_groups for p in g['params']), saved['state'].values()): "
            "optimizer.state[p].update({k: v.to(p.device) for k, v in s.items() if k != 'step'})  # after load_state_dict"},
    {.fact = CKPT__MOMENT_WIDENED, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "moments-cast",
     .message = "{n} optimizer tensor{s} {are} {a} and the parameter is {b}: load_state_dict makes them {b}, which changes no value, and "
                "training goes on with moments of {b}",
     .fix = ADVICE "nothing to do, if that is intended"
            PYTHON "for p, s in zip((p for g in optimizer.param_groups for p in g['params']), saved['state'].values()): "
            "optimizer.state[p].update({k: v.to(p.device) for k, v in s.items() if k != 'step'})  # after load_state_dict"},
    {.fact = CKPT__MOMENT_SHAPE, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = ""},
    {.fact = CKPT__MOMENT_SHARD, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "moment-shape",
     .message = "{n} optimizer tensor{s} of another shape than the parameter, such as a rank's share ({a}): a state that binds such a tensor "
                "in its own shape gets it, and one that binds the parameter's shape is refused",
     .fix = ADVICE "nothing to do, if the program binds them in this shape"},
    {.fact = CKPT__MOMENT_SHAPE, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "moment-shape",
     .message = "{n} optimizer tensor{s} {have} another shape than the parameter: torch loads them in silence and fails at the first step "
                "({a})",
     .fix = SHELL "ckpt-migrate --param-names FILE --to same {path} {dst}  # if the order of the parameters is another"
            SHELL "ckpt-migrate --drop {drop} --to same {path} {dst}  # leaves their state out"},
    {.fact = CKPT__MOMENT_FUSED, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "moment-shape",
     .message = "{n} optimizer tensor{s} {have} another shape than the parameter and as many elements: the fused kernel of the CPU looks at no "
                "shape and takes them in their order in memory ({a})",
     .fix = ADVICE "reshape them, if the order is right"
            SHELL "ckpt-migrate --drop {drop} --to same {path} {dst}  # leaves their state out"},
    {.fact = CKPT__BNB_NESTED, .loaders = CKPT__L_PYTHON | CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "bnb-never-cast",
     .message = "{n} tensor{s} of 8-bit optimizer state (bitsandbytes): its load_state_dict moves them and never casts them; they are not moments of another optimizer",
     .fix = ADVICE "construct the same optimizer of bitsandbytes, not one of torch.optim, and cast none of them"},
    {.fact = CKPT__BNB_FLAT, .loaders = CKPT__L_PYTHON | CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "bnb-never-cast",
     .message = "{n} tensor{s} of 8-bit optimizer state (bitsandbytes) lie bare in the state: its own load_state_dict keeps them uint8, "
                "torch.optim's would cast them to the parameter's dtype and destroy them",
     .fix = ADVICE "construct the same optimizer of bitsandbytes, not one of torch.optim, and cast none of them"},
    /* ---- devices */
    {.fact = CKPT__NO_SUCH_DEVICE, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "no-such-device", .message = "{n} tensor{s} would go to {a}, and there {b}: ckpt_restore refuses it before the first byte",
     .fix = IN_C "options.map_location = \"cuda:*=cuda:0\";"
            IN_C "options.map_location = \"cpu\";"
            SHELL "{repair}"},
    {.fact = CKPT__NO_SUCH_DEVICE, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-such-device",
     .message = "{n} tensor{s} would go to {a}, and there {b}: torch::load and torch::pickle_load fail",
     .fix = IN_C "torch::load(module, FILE, torch::kCPU);"
            SHELL "{repair}  # for torch::pickle_load, which takes no device"},
    {.fact = CKPT__NO_SUCH_DEVICE, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-such-device",
     .message = "{n} tensor{s} would go to {a}, and there {b}: torch.load fails with \"Attempting to deserialize object on a CUDA device\"",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cpu')"
            SHELL "{repair}"},
    {.fact = CKPT__NO_SUCH_BACKEND, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-such-device",
     .message = "{n} tensor{s} {are} tagged {a}, which is no CUDA device and not the cpu: torch::load fails where that backend is not",
     .fix = IN_C "torch::load(module, FILE, torch::kCPU);"
            SHELL "{repair}  # for torch::pickle_load, which takes no device"},
    {.fact = CKPT__NO_SUCH_BACKEND, .loaders = CKPT__L_PYTHON, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-such-device",
     .message = "{n} tensor{s} {are} tagged {a}, which is no CUDA device and not the cpu: torch.load fails where that backend is not",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cpu')"},
    {.fact = CKPT__NO_SUCH_TAG, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-such-device",
     .message = "{n} tensor{s} would go to {a}, and ckpt_restore places tensors on the cpu and on CUDA devices: it refuses it before the first "
                "byte",
     .fix = IN_C "options.map_location = \"cuda:0\";"
            IN_C "options.map_location = \"cpu\";"},
    {.fact = CKPT__NO_SUCH_TAG, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-such-device",
     .message = "{n} tensor{s} {are} tagged '{a}', which libtorch knows no device by: it fails with \"Expected one of cpu, cuda, ...\", whatever "
                "device is asked for",
     .fix = SHELL "{repair}"},
    {.fact = CKPT__NO_SUCH_TAG, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-such-device",
     .message = "{n} tensor{s} {are} tagged '{a}', which torch knows no device by: torch.load fails with \"don't know how to restore data "
                "location\"",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cpu')"},
    {.fact = CKPT__ON_META, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "no-data",
     .message = "{n} tensor{s} of the model {were} saved from meta, without data, and stay there whatever device is asked for: a copy of one "
                "fails with \"Cannot copy out of meta tensor; no data!\"",
     .fix = ADVICE "resume from another checkpoint"},
    {.fact = CKPT__ON_META, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "no-data",
     .message = "{n} tensor{s} of the model would be on meta, without data: load_state_dict fails with \"Cannot copy out of meta tensor; no "
                "data!\"",
     .fix = ADVICE "map it to a device that holds data"
            ADVICE "resume from another checkpoint, if they were saved from meta: then they have no data"},
    {.fact = CKPT__RANK_OTHER, .loaders = CKPT__L_TORCH | CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "rank-device",
     .message = "rank {a} saved this file on {b}: a different rank that loads it without map_location uses {b} too, not its own GPU",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location=f'cuda:{local_rank}')"
            IN_C "snprintf(rule, sizeof rule, \"cuda:*=cuda:%d\", local_rank), options.map_location = rule; /* for ckpt_restore */"
            SHELL "{repair}"},
    {.fact = CKPT__RANK_TAG, .loaders = CKPT__L_TORCH | CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "rank-device",
     .message = "all that was on a GPU is tagged {b}: a program that loads it without map_location uses {b} too",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cuda:0')"
            SHELL "{repair}"},
    {.fact = CKPT__RANKS_TOGETHER, .loaders = CKPT__L_TORCH | CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE,
     .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES, .code = "rank-device",
     .message = "{a} tagged {b}: without map_location all of {c} load onto {b}, and its memory holds every copy (pytorch#23138)",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location=f'cuda:{local_rank}')"
            PYTHON "checkpoint = torch.load({file}, map_location='cpu')"
            IN_C "snprintf(rule, sizeof rule, \"cuda:*=cuda:%d\", local_rank), options.map_location = rule; /* for ckpt_restore */"},
    {.fact = CKPT__RNG_ON_GPU, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "rng-moved",
     .message = "{n} state{s} of a random generator would come back on {a}: torch.set_rng_state fails with \"RNG state must be a "
                "torch.ByteTensor\"",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cpu')"
            PYTHON "torch.set_rng_state(state.cpu())  # for each of them"
            SHELL "{repair}  # where the file says {a}"},
    {.fact = CKPT__RNG_ON_GPU, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "rng-moved", .message = "{n} state{s} of a random generator {have} the tag {a}; ckpt_restore with a map puts them on the cpu",
     .fix = SHELL "{repair}"},
    {.fact = CKPT__DEVICE_OBJECT, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "torch-device-object",
     .message = "{n} torch.device object{s} among the values name{es} {a}: no map_location reaches them", .fix = SHELL "{repair}"},
    /* ---- memory */
    {.fact = CKPT__MEMORY_LOAD, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "device-memory", .message = "{a} cannot hold the load: {b} ({c})",
     .fix = PYTHON "checkpoint = torch.load({file}, map_location='cpu', mmap=True)  # then 1 x each on the GPU"
            SHELL "ckpt-migrate --map-location RULES --to same {path} {dst}  # over more devices"},
    {.fact = CKPT__MEMORY_TRAIN, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "device-memory", .message = "{a} can hold what is loaded, and not the gradients too: {b}, before any activation",
     .fix = SHELL "ckpt-migrate --map-location RULES --to same {path} {dst}  # over more devices"},
    {.fact = CKPT__MEMORY_FITS, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "device-memory", .message = "{a} holds the load: {b} ({c}); gradients and activations come on top", .fix = ""},
};
/* clang-format on */
const size_t ckpt__rows_place_count = sizeof ckpt__rows_place / sizeof *ckpt__rows_place;
