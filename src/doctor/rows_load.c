/* doctor/rows_load.c - the truth table of a resume, part two: what loaders refuse, miss, ignore or take in silence. "ran":
 * torch 2.13 and 1.13, Lightning 2.6.6, accelerate 1.15.0, transformers 5.23.0, by their own resume on the CPU; libtorch 2.13
 * in C++ and ckpt_restore by trainers that tests/interop has for it. */
#include "doctor/facts.h"
#include "doctor/fixes.h"

/* clang-format off */
const ckpt__row ckpt__rows_load[] = {
    /* ---- classes that are refused: one finding a class; {a} and {c} are filled in for each */
    {.fact = CKPT__REFUSED, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "weights-only-refused",
     .message = "torch.load with weights_only=True (the default from 2.6) refuses {a} at {n} place{s}: {c}",
     .fix = PYTHON "checkpoint = torch.load({py}, weights_only=False)" TRUSTED
            SHELL "{repair}"},
    {.fact = CKPT__REFUSED, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "weights-only-refused",
     .message = "Trainer.fit passes weights_only on to torch.load (True by default from torch 2.6), which refuses {a} at {n} place{s}: {c}",
     .fix = PYTHON "trainer.fit(model, ckpt_path={py}, weights_only=False)" TRUSTED},
    {.fact = CKPT__REFUSED, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "weights-only-refused", .message = "accelerate loads with weights_only=True, which refuses {a} at {n} place{s}: {c}",
     .fix = PYTHON "accelerator.load_state({py}, load_kwargs={'weights_only': False})" TRUSTED},
    {.fact = CKPT__REFUSED, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "weights-only-refused", .message = "the Trainer loads with weights_only=True, which refuses {a} at {n} place{s}: {c}",
     .fix = PYTHON "torch.serialization.add_safe_globals([...])  # before trainer.train(resume_from_checkpoint={py}); only if you "
            "trust the file (ckpt-inspect scan {path})"},
    {.fact = CKPT__REFUSED_FIXED, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "weights-only-refused",
     .message = "accelerate loads with weights_only=True, which refuses {a} at {n} place{s}: {c}; its load_kwargs do not reach this file",
     .fix = PYTHON "torch.serialization.add_safe_globals([...])  # before accelerator.load_state({py}); only if you trust the "
            "file (ckpt-inspect scan {path})"},
    {.fact = CKPT__UNBUILT, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "torch-too-old",
     .message = "torch {version} has no {a}, which is needed at {n} place{s}: {c}; torch.load fails there, whatever weights_only says "
                "(AttributeError, \"Can't get attribute\")",
     .fix = SHELL "pip install 'torch>={b}'"
            SHELL "ckpt-migrate --cast 'NAME=float16' --to same {path} {dst}  # what an older one reads"},
    {.fact = CKPT__UNTAKEN, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "torch-too-old",
     .message = "torch {version} cannot rebuild {a}, which is needed at {n} place{s}: {c}; torch.load fails there, whatever weights_only "
                "says (TypeError, ValueError or NotImplementedError)",
     .fix = SHELL "pip install 'torch>={b}'"
            PYTHON "t = t.to_dense().resolve_conj().resolve_neg()  # before torch.save: a dense tensor without a view"},
    {.fact = CKPT__REFUSED_RNG, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "weights-only-refused",
     .message = "weights_only=True refuses {a} at {n} place{s}: {c}; {loader} goes on without a word, and the random states are not those "
                "that were saved",
     .fix = PYTHON "states = torch.load(FILE, weights_only=False)  # and set them by hand; only for a file that you trust"},
    {.fact = CKPT__TORCH_REFUSES, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "torch-refuses", .message = "{a}",
     .fix = SHELL "ckpt-migrate --to torch {path} {dst}  # writes what it holds as torch reads it"},
    {.fact = CKPT__REFUSED_CPP, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "weights-only-refused",
     .message = "torch::pickle_load builds plain dicts, lists, tuples, numbers, strings and tensors; it refuses {a} at {n} place{s}: {c}",
     .fix = ADVICE "load it with ckpt_restore, which reads the file as it is"
            PYTHON "torch.save(dict(model.state_dict()), FILE, pickle_protocol=2)  # what pickle_load builds"},
    {.fact = CKPT__NOT_AN_ARCHIVE, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "not-an-archive",
     .message = "torch::load reads archives of libtorch, and this is a file of torch.save: it is taken here that the program uses "
                "torch::pickle_load and places the tensors itself",
     .fix = IN_C "torch::IValue checkpoint = torch::pickle_load(bytes); // of the whole file"
            ADVICE "load it with ckpt_restore"},
    /* ---- groups and their state */
    {.fact = CKPT__NO_LR, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "missing-hyper", .message = "{n} parameter group{s} {have} no lr: a program that reads it there finds nothing",
     .fix = ADVICE "where a group has no lr keep the one that the optimizer was constructed with"},
    {.fact = CKPT__NO_LR, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "missing-hyper", .message = "{n} parameter group{s} {have} no lr: ckpt_restore reports a bound one as missing",
     .fix = IN_C "ckpt_state_optional(state, \"optimizer.groups.*.lr\", &err); /* it keeps its value */"},
    {.fact = CKPT__NO_LR, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "missing-hyper", .message = "{n} parameter group{s} {have} no lr: KeyError: 'lr' at the first step",
     .fix = PYTHON "for g in optimizer.param_groups: g.setdefault('lr', 1e-3)  # after load_state_dict"},
    {.fact = CKPT__NO_HYPER, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "missing-hyper", .message = "group {b} has no {a}: KeyError: '{a}' at the first step",
     .fix = PYTHON "for g in optimizer.param_groups: g.setdefault('{a}', optimizer.defaults['{a}'])  # after load_state_dict"},
    {.fact = CKPT__NO_HYPER, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "missing-hyper", .message = "group {b} has no {a}: a program that reads it there finds nothing",
     .fix = ADVICE "where a group has no {a} keep the one that the optimizer was constructed with"},
    {.fact = CKPT__NO_HYPER, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "missing-hyper", .message = "group {b} has no {a}: ckpt_restore reports a bound one as missing",
     .fix = IN_C "ckpt_state_optional(state, \"optimizer.groups.*.{a}*\", &err); /* it keeps its value */"},
    {.fact = CKPT__DEFAULTED_HYPER, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "missing-hyper",
     .message = "group {b} does not say {a} ({c}): load_state_dict sets it to False or 0, whatever the program says, in silence",
     .fix = PYTHON "for g in optimizer.param_groups: g['{a}'] = optimizer.defaults['{a}']  # after load_state_dict"},
    {.fact = CKPT__TENSOR_LR, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "tensor-lr",
     .message = "{n} parameter group{s} {have} a tensor as lr, foreach=True and capturable=False: \"lr as a Tensor is not supported for "
                "capturable=False and foreach=True\"",
     .fix = PYTHON "for g in optimizer.param_groups: g['lr'] = float(g['lr'])  # after load_state_dict"},
    {.fact = CKPT__LR, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "lr-comes-from-checkpoint",
     .message = "lr is {a} in the saved groups: load_state_dict replaces the lr of the program with it",
     .fix = PYTHON "for g in optimizer.param_groups: g['lr'] = g['initial_lr'] = NEW  # to use another lr, after load_state_dict"},
    {.fact = CKPT__NO_INITIAL_LR_SCHEDULED, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "initial-lr-missing",
     .message = "{n} saved group{s} without initial_lr, and the checkpoint holds a scheduler: load_state_dict removes initial_lr from the optimizer, so a scheduler created "
                "afterwards with last_epoch other than -1 raises KeyError (\"param 'initial_lr' is not specified\")",
     .fix = ADVICE "construct the scheduler before optimizer.load_state_dict, and load its state"
            PYTHON "for g in optimizer.param_groups: g.setdefault('initial_lr', g['lr'])  # after load_state_dict"},
    {.fact = CKPT__NO_INITIAL_LR, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "initial-lr-missing",
     .message = "{n} saved group{s} without initial_lr: load_state_dict removes it from the optimizer, so a scheduler created afterwards with "
                "last_epoch other than -1 raises KeyError (\"param 'initial_lr' is not specified\")",
     .fix = ADVICE "construct the scheduler before optimizer.load_state_dict, and load its state"
            PYTHON "for g in optimizer.param_groups: g.setdefault('initial_lr', g['lr'])  # after load_state_dict"},
    {.fact = CKPT__NO_STATE, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "moments-missing",
     .message = "the optimizer has {b} parameters and state for none of them: ckpt_restore reports every moment as missing",
     .fix = IN_C "options.allow_missing = true; /* they start at zero */"},
    {.fact = CKPT__NO_STATE, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "moments-missing",
     .message = "the optimizer has {b} parameters and state for none of them, {c}: torch starts all moments at step 0, in silence",
     .fix = ADVICE "nothing to do, if the optimizer had not stepped yet when it was saved"
            ADVICE "resume from a checkpoint that was saved after an optimizer step"
            ADVICE "warm up the lr again"},
    {.fact = CKPT__NEVER_STEPPED, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "moments-missing",
     .message = "the optimizer has {b} parameters and state for none of them, as before its first step: ckpt_restore reports every moment "
                "that is bound as missing",
     .fix = IN_C "options.allow_missing = true; /* they start at zero, which is what they were */"},
    {.fact = CKPT__NEVER_STEPPED, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "moments-missing",
     .message = "the optimizer has {b} parameters and state for none of them, and the checkpoint is of step 0: torch makes the state at the "
                "first step, as it would have without the load",
     .fix = ""},
    {.fact = CKPT__SOME_STATE_MISSING, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "moments-missing",
     .message = "{a} of {b} parameters of the optimizer have no state: right for frozen ones, for which no moments are bound; those of "
                "others ckpt_restore reports as missing",
     .fix = ADVICE "bind no moments for frozen parameters"
            IN_C "options.allow_missing = true; /* they start at zero */"},
    {.fact = CKPT__SOME_STATE_MISSING, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "moments-missing",
     .message = "{a} of {b} parameters of the optimizer have no state: right for frozen ones; for others torch starts the moments at step 0, "
                "in silence",
     .fix = ADVICE "freeze the same parameters as the run that saved it"
            ADVICE "resume from an older checkpoint, if they trained"},
    {.fact = CKPT__FROZEN_STATE, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "moments-missing",
     .message = "{a} of {b} parameters of the optimizer have no state, whole modules or groups as they are frozen: right where the "
                "program binds no moments for them either; those that it binds ckpt_restore reports as missing",
     .fix = ADVICE "bind no moments for frozen parameters"
            IN_C "options.allow_missing = true; /* they start at zero */"},
    {.fact = CKPT__FROZEN_STATE, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "moments-missing",
     .message = "{a} of {b} parameters of the optimizer have no state, whole modules or groups as they are frozen (requires_grad=False, which "
                "no state_dict says): torch keeps none for those; one that trains from now on starts its moments at step 0",
     .fix = ADVICE "freeze the same parameters as the run that saved it"
            ADVICE "resume from an older checkpoint, if they trained: state was lost"},
    {.fact = CKPT__NO_MAX_EXP_AVG_SQ, .loaders = CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "moments-missing",
     .message = "a group says amsgrad=True, and {n} parameter{s} {have} no max_exp_avg_sq: it is missing where the program has it",
     .fix = ADVICE "construct the optimizer without amsgrad"
            ADVICE "begin max_exp_avg_sq as exp_avg_sq"},
    {.fact = CKPT__NO_MAX_EXP_AVG_SQ, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "moments-missing",
     .message = "a group says amsgrad=True, and {n} parameter{s} {have} no max_exp_avg_sq: KeyError at the first step",
     .fix = PYTHON "for s in optimizer.state.values(): s.setdefault('max_exp_avg_sq', s['exp_avg_sq'].clone())  # after "
            "load_state_dict"},
    {.fact = CKPT__NO_STEP, .loaders = CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "moments-missing", .message = "{n} parameter{s} {have} moments and no step: it is missing where the program has it",
     .fix = ADVICE "resume from a checkpoint that has it"
            ADVICE "take the run's own step for all of them"},
    {.fact = CKPT__NO_MOMENT, .loaders = CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "moments-missing", .message = "{n} parameter{s} {have} state without {a}: it is missing where the program has it",
     .fix = ADVICE "resume from a checkpoint that has it"},
    {.fact = CKPT__NO_STEP, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "moments-missing", .message = "{n} parameter{s} {have} moments and no step: load_state_dict fails with KeyError: 'step'",
     .fix = PYTHON "for s in state['optimizer']['state'].values(): s.setdefault('step', torch.tensor(0.0))  # before "
            "load_state_dict"},
    {.fact = CKPT__NO_MOMENT, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "moments-missing", .message = "{n} parameter{s} {have} state without {a}: KeyError: '{a}' at the first step",
     .fix = ADVICE "resume from a checkpoint that has it"
            PYTHON "for p, s in optimizer.state.items(): s.clear()  # after load_state_dict: these start anew"},
    {.fact = CKPT__NO_FACTOR, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "moments-missing", .message = "{n} parameter{s} {have} state without {a}: load_state_dict fails with KeyError: '{a}'",
     .fix = ADVICE "resume from a checkpoint that has it"
            ADVICE "leave their state out of the dict: these start anew"},
    {.fact = CKPT__BAD_HYPER, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "bad-hyper", .message = "{a} of group {b} is {c}: load_state_dict takes it, and the first step cannot compute with it",
     .fix = PYTHON "for g in optimizer.param_groups: g['{a}'] = optimizer.defaults['{a}']  # after load_state_dict"},
    {.fact = CKPT__BAD_STEP, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "bad-step", .message = "the step of {n} parameter{s} is None or text: load_state_dict makes a number of it, and fails with TypeError or ValueError",
     .fix = PYTHON "for s in state['state'].values(): s['step'] = torch.tensor(STEPS)  # before load_state_dict"},
    {.fact = CKPT__BAD_STEP_LATER, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "bad-step", .message = "the step of {n} parameter{s} is None, text, or for bitsandbytes a float: it loads, and the first step cannot count with it",
     .fix = PYTHON "for s in state['state'].values(): s['step'] = STEPS  # before load_state_dict"},
    {.fact = CKPT__DIFFERENTIABLE, .loaders = CKPT__L_PYTHON, .from = 200, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "bad-hyper", .message = "group {b} says {a} and differentiable=True: the first step fails with {c}",
     .fix = PYTHON "for g in optimizer.param_groups: g['differentiable'] = False  # after load_state_dict"},
    {.fact = CKPT__OPTIMIZER_KEY, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "optimizer-incomplete", .message = "the optimizer's dict ({b}) lacks {a}: load_state_dict fails with KeyError: '{a}'",
     .fix = ADVICE "resume from a checkpoint that has it"
            ADVICE "begin with the weights alone, and an optimizer that starts from scratch"},
    {.fact = CKPT__OPTIMIZER_KEY, .loaders = CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "optimizer-incomplete", .message = "the optimizer's dict ({b}) lacks {a}: its state is not found",
     .fix = ADVICE "resume from a checkpoint that has it"
            ADVICE "begin with the weights alone, and an optimizer that starts from scratch"},
    {.fact = CKPT__IDS_LOST, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "group-mismatch",
     .message = "{a} parameter id(s) have state and are missing in the groups, which hold the others (of the row 0, 1, 2, ..., or by name): for the "
                "optimizer that was saved load_state_dict fails with ValueError (\"loaded state dict contains a parameter group that doesn't "
                "match the size of optimizer's group\"), or, where a whole group is gone, (\"loaded state dict has a different number of "
                "parameter groups\")",
     .fix = PYTHON "lost = sorted(set(saved['state']) - {i for g in saved['param_groups'] for i in g['params']})  # put these ids "
            "back into the groups"},
    {.fact = CKPT__WEIGHTS_FEWER, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "weights-incomplete",
     .message = "the model has {a} tensors that can be parameters, and the optimizer {b} parameters: the Trainer loads with strict=False, and "
                "what is missing keeps the values that the program gave it",
     .fix = ADVICE "bring the weights back from another checkpoint of the run"},
    {.fact = CKPT__WEIGHTS_FEWER, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "group-mismatch",
     .message = "the checkpoint's own model has {a} tensors that can be parameters, and the saved groups hold {b} with state: for the model "
                "that was saved load_state_dict fails with RuntimeError (\"Missing key(s) in state_dict\"); for one without them the optimizer's with "
                "ValueError (\"loaded state dict contains a parameter group that doesn't match the size of optimizer's group\")",
     .fix = ADVICE "bring the weights back from another checkpoint"
            PYTHON "model.load_state_dict(saved, strict=False)  # the rest of it, without the optimizer's state"},
    {.fact = CKPT__MODEL_ELSEWHERE, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "weights-missing",
     .message = "the optimizer at '{a}' has the parameters of no model in the file, and each of these has an optimizer of its own: the weights "
                "of its model must come from another file, and of the same step",
     .fix = PYTHON "model.load_state_dict(torch.load(WEIGHTS, map_location='cpu'))  # before the first step"},
    {.fact = CKPT__RNG_KIND, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "rng-refused", .message = "the state of the CPU's generator is not one: torch.set_rng_state fails with {a}, accelerate goes on without a "
                                       "word, and shuffling and dropout are not those of a run without a break",
     .fix = PYTHON "torch.manual_seed(seed)  # after the load"},
    {.fact = CKPT__RNG_KIND, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "rng-refused", .message = "the state of the CPU's generator is not one: torch.set_rng_state fails with {a}",
     .fix = PYTHON "torch.manual_seed(seed)  # instead of the saved state"},
    {.fact = CKPT__SCALER_PART, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "scaler-incomplete", .message = "the GradScaler's dict lacks {a}: load_state_dict of an enabled one fails with KeyError: '{a}'",
     .fix = PYTHON "scaler.load_state_dict({**scaler.state_dict(), **saved})"},
    {.fact = CKPT__SCHEDULER_LAMBDAS, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "scheduler-incomplete", .message = "the scheduler's dict has no lr_lambdas: load_state_dict of LambdaLR, which the Trainer makes, fails with "
                                                "KeyError: 'lr_lambdas'",
     .fix = PYTHON "saved['lr_lambdas'] = [None] * NUMBER_OF_GROUPS; torch.save(saved, {py} + '/scheduler.pt')"},
    {.fact = CKPT__SCHEDULER_LAMBDAS, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "scheduler-incomplete",
     .message = "the scheduler's dict has what all have and nothing more: one of LambdaLR without lr_lambdas, for which load_state_dict fails with "
                "KeyError: 'lr_lambdas', or of a class of one's own, for which it is whole",
     .fix = PYTHON "saved['lr_lambdas'] = [None] * len(optimizer.param_groups)  # for LambdaLR, before load_state_dict"},
    {.fact = CKPT__SCHEDULER_LRS, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_STEP,
     .code = "scheduler-incomplete",
     .message = "the scheduler has base_lrs of {a} group(s), and the saved optimizer has {b}: the first scheduler.step() fails with ValueError "
                "(\"zip() argument 2 is {c} than argument 1\")",
     .fix = PYTHON "scheduler.base_lrs = [g['initial_lr'] for g in optimizer.param_groups]  # after both loads"},
    {.fact = CKPT__SCHEDULER_EPOCH, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "scheduler-incomplete", .message = "the scheduler's dict has no {a}: load_state_dict keeps the new scheduler's, and the schedule begins anew",
     .fix = PYTHON "scheduler.last_epoch = STEPS_TAKEN  # after the load"},
    {.fact = CKPT__FLAT, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "flat-optimizer",
     .message = "the optimizer's state is flat, with a key for each value (flatten_optimizer_state_dict=True): Optimizer.load_state_dict "
                "fails with KeyError: 'param_groups'",
     .fix = PYTHON "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict(model, optimizer, {a})"},
    {.fact = CKPT__DEAD_STATE, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "state-without-parameter",
     .message = "states of the optimizer whose parameter is in no group: {a}. torch carries them along and never uses them",
     .fix = ADVICE "if a group lost its parameters, add them before the load"
            ADVICE "nothing to do otherwise: nothing is lost without them"},
    {.fact = CKPT__GROUP_COUNT, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "group-mismatch",
     .message = "{c} {a} parameters, and the saved groups hold {b}: load_state_dict fails with \"loaded state dict contains a parameter "
                "group that doesn't match the size of optimizer's group\"",
     .fix = SHELL "ckpt-inspect doctor --snippet torch {path}  # constructs the optimizer with the groups of the checkpoint"},
    {.fact = CKPT__PLACES_EMPTY, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "group-mismatch",
     .message = "{c} {a} parameters, and the saved groups hold {b}: load_state_dict fails with \"loaded state dict contains a parameter "
                "group that doesn't match the size of optimizer's group\"",
     .fix = SHELL "ckpt-inspect doctor --snippet torch {path}  # constructs the optimizer with the groups of the checkpoint"
            PYTHON "model.load_state_dict(WEIGHTS, strict=False)  # where the program has the others in another shape "
            "(ckpt-migrate --replace): they begin anew"},
    {.fact = CKPT__GROUP_COUNT, .loaders = CKPT__L_CKPT | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "group-mismatch",
     .message = "{c} {a} parameters, and the saved groups hold {b}: the load is refused",
     .fix = ADVICE "give one name for each parameter of the saved groups, group by group"},
    {.fact = CKPT__ORDER_DIFFERS, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "param-order-differs",
     .message = "parameter {c} is '{a}' by the names given and '{b}' in the file: torch matches by position, whatever param_names say, and "
                "gives parameters the moments of others in silence",
     .fix = ADVICE "hand the parameters to the optimizer in the file's order"
            SHELL "ckpt-migrate --param-names FILE --to same {path} {dst}"},
    {.fact = CKPT__ORDER_DIFFERS, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "param-order-differs",
     .message = "parameter {c} is '{a}' by the names given and '{b}' in the file: ckpt_restore goes by names where the file has them",
     .fix = ""},
    {.fact = CKPT__ORDER_NAMED, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "param-order-differs",
     .message = "a group's param_names have '{a}' before '{b}', and the model's dict has them the other way round: torch matches by position "
                "and ignores param_names, so a program that hands over model.parameters() gives them each other's moments in silence",
     .fix = PYTHON "by_name = dict(model.named_parameters()); parameters = [by_name[n] for n in "
            "saved['param_groups'][0]['param_names']]  # the order for the optimizer"},
    {.fact = CKPT__ORDER_AMBIGUOUS, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "ambiguous-order",
     .message = "{a}; torch matches by position: keep the same order as when it was saved, for nothing checks it", .fix = ADVICE "{b}"},
    {.fact = CKPT__ORDER_AMBIGUOUS, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "ambiguous-order", .message = "{a}", .fix = ADVICE "{b}"},
    {.fact = CKPT__ORDER_SEVERAL, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "order-ambiguous", .message = "{a}: ckpt_restore refuses to guess", .fix = ADVICE "{b}"},
    {.fact = CKPT__ORDER_SEVERAL, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "order-ambiguous",
     .message = "{a}; the loader matches by position: keep the same order as when it was saved, for nothing checks it", .fix = ADVICE "{b}"},
    {.fact = CKPT__SOURCE_AMBIGUOUS, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "ambiguous", .message = "{a}", .fix = ADVICE "{b}"},
    {.fact = CKPT__SOURCE_AMBIGUOUS, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "ambiguous", .message = "{a}", .fix = ADVICE "{b}"},
    {.fact = CKPT__UNNAMED, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_UNKNOWN,
     .code = ""},
    {.fact = CKPT__POLICY_BREACH, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = ""},
    /* ---- names */
    {.fact = CKPT__PREFIX, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "prefix",
     .message = "{n} name{s} of the model {have} the prefix {a} of a wrapper: a model that is not wrapped as the one that saved it fails with "
                "\"Missing key(s) in state_dict\"",
     .fix = PYTHON "model.load_state_dict({k.replace('module.', '').replace('_orig_mod.', ''): v for k, v in sd.items()})"
            SHELL "{repair}"},
    {.fact = CKPT__PREFIX, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "prefix", .message = "{n} name{s} of the model {have} the prefix {a} of a wrapper: ckpt_restore strips it", .fix = ADVICE "nothing to do for ckpt_restore"
            SHELL "{repair}"},
    /* ---- the scaler */
    {.fact = CKPT__NO_SCALER, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "scaler-missing",
     .message = "the program has a GradScaler, and there is no scaler.pt: accelerator.load_state fails with FileNotFoundError",
     .fix = PYTHON "import torch; torch.save(torch.amp.GradScaler('cpu').state_dict(), {py} + '/scaler.pt')"},
    {.fact = CKPT__NO_SCALER, .loaders = CKPT__L_LIGHTNING | CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "scaler-missing",
     .message = "the program has a GradScaler, and the checkpoint has no state of one: {loader} goes on in silence, and the scale starts at "
                "its initial value",
     .fix = ADVICE "nothing to load: expect some skipped steps until the scale has settled"},
    {.fact = CKPT__NO_SCALER, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "scaler-missing",
     .message = "the program has a GradScaler, and the checkpoint has no state of one: ckpt_restore reports a bound one as missing",
     .fix = IN_C "ckpt_state_optional(state, \"scaler.*\", &err); /* it keeps its initial value */"},
    {.fact = CKPT__NO_SCALER, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "scaler-missing",
     .message = "the program has a GradScaler, and the checkpoint has no state of one: the scale starts at its initial value (and a program "
                "that asks for it gets a KeyError)",
     .fix = PYTHON "if 'scaler' in checkpoint: scaler.load_state_dict(checkpoint['scaler'])"},
    {.fact = CKPT__SCALER_EMPTY, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "scaler-disabled",
     .message = "the scaler was saved disabled ({}), and the program has an enabled one: ckpt_restore reports a bound one as missing",
     .fix = IN_C "ckpt_state_optional(state, \"scaler.*\", &err); /* it keeps its initial value */"},
    {.fact = CKPT__SCALER_EMPTY, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "scaler-disabled",
     .message = "the scaler was saved disabled ({}), and the program has an enabled one: \"The source state dict is empty, possibly because "
                "it was saved from a disabled instance of GradScaler\"",
     .fix = PYTHON "if saved: scaler.load_state_dict(saved)  # an empty dict is not loaded"},
    {.fact = CKPT__SCALER_KEY, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "scaler-key-ignored",
     .message = "the scaler's state is under '{a}': Lightning gives it back only under the class name of the current precision plugin "
                "(MixedPrecision) or native_amp_scaling_state, and ignores it in silence otherwise",
     .fix = PYTHON "def on_load_checkpoint(self, checkpoint): checkpoint['native_amp_scaling_state'] = checkpoint.pop('{a}')  # "
            "in the LightningModule"},
    /* ---- files and parts that are not there */
    {.fact = CKPT__SCHEDULER_ALONE, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "scheduler-without-optimizer",
     .message = "there is a scheduler's state and no optimizer's: loading it alone does not set lr, which stays as constructed until the next "
                "scheduler.step()",
     .fix = PYTHON "for g, lr in zip(optimizer.param_groups, scheduler.get_last_lr()): g['lr'] = lr  # after "
            "scheduler.load_state_dict"},
    {.fact = CKPT__NO_OPTIMIZER, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-optimizer",
     .message = "there is no optimizer state: for a bound optimizer ckpt_restore reports every moment as missing (a program that binds the "
                "weights alone gets them)",
     .fix = IN_C "options.allow_missing = true; /* they start at zero */"},
    {.fact = CKPT__NO_OPTIMIZER, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "no-optimizer",
     .message = "there is no optimizer state (save_weights_only=True?): Trainer.fit fails with KeyError (\"Trying to restore optimizer state "
                "but checkpoint contains only the model\")",
     .fix = PYTHON "model = Model.load_from_checkpoint({py}); trainer.fit(model)  # the weights alone"},
    {.fact = CKPT__NO_OPTIMIZER, .loaders = CKPT__L_TORCH | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "no-optimizer",
     .message = "no optimizer state: the weights load, the optimizer starts from scratch, and checkpoint['optimizer'] raises KeyError",
     .fix = PYTHON "if 'optimizer' in checkpoint: optimizer.load_state_dict(checkpoint['optimizer'])"},
    {.fact = CKPT__FILE_MISSING, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "optimizer-file-missing",
     .message = "{a} is not there: accelerator.load_state fails with FileNotFoundError",
     .fix = PYTHON "safetensors.torch.load_model(model, {py} + '/model.safetensors')  # the weights alone"},
    {.fact = CKPT__FILE_MISSING, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "optimizer-file-missing",
     .message = "{a} not there (of the two there is: {b}): the Trainer then loads neither optimizer nor scheduler, in silence, and both "
                "start anew",
     .fix = ADVICE "bring the missing file back"
            PYTHON "trainer.create_optimizer_and_scheduler(N); trainer.optimizer.load_state_dict(torch.load({py} + "
            "'/optimizer.pt', map_location='cpu'))"},
    {.fact = CKPT__OPTIMIZERS_EMPTY, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "moments-missing",
     .message = "optimizer_states is an empty list: Lightning pairs optimizers and states as far as both go, in silence, and every moment "
                "starts at step 0",
     .fix = ADVICE "resume from a checkpoint that was saved with its optimizers"},
    {.fact = CKPT__SCHEDULERS_EMPTY, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "scheduler-missing",
     .message = "lr_schedulers is an empty list, and the groups had a scheduler (initial_lr): Lightning pairs schedulers and states as far as "
                "both go, in silence, and the schedule starts anew",
     .fix = PYTHON "scheduler = SCHEDULER(optimizer, last_epoch=checkpoint['epoch'])  # in configure_optimizers"},
    {.fact = CKPT__KEY_MISSING, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "not-lightning", .message = "the root has no {a}: Lightning fails with KeyError",
     .fix = SHELL "ckpt-inspect doctor --for torch {path}  # to load it by hand"},
    {.fact = CKPT__PROGRESS_MISSING, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "progress-missing",
     .message = "the root has no loops: Lightning begins again at epoch 0 and step 0, in silence",
     .fix = ADVICE "start with max_epochs less what was done: the key epoch says how much"},
    {.fact = CKPT__WEIGHTS_MISSING, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "weights-missing", .message = "there is no {a} in the directory: the load fails before anything else",
     .fix = ADVICE "restore the weights: the optimizer's state cannot be used without them"},
    {.fact = CKPT__WEIGHTS_BY_HOOK, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "weights-by-hook",
     .message = "the weights are in {a}, which a hook of the program itself wrote: accelerator.load_state brings them back where the program "
                "registers its load hook as well, and fails with FileNotFoundError (pytorch_model.bin) where it does not",
     .fix = PYTHON "accelerator.register_load_state_pre_hook(HOOK)  # before accelerator.load_state({py})"},
    {.fact = CKPT__WEIGHTS_ELSEWHERE, .loaders = CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "weights-missing",
     .message = "there is an optimizer's state and no weights: they must come from another file, and of the same step",
     .fix = IN_C "torch::load(module, WEIGHTS, torch::kCPU); // before the first step"},
    {.fact = CKPT__WEIGHTS_ELSEWHERE, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "weights-missing",
     .message = "there is an optimizer's state and no weights: they must come from another file, and of the same step",
     .fix = PYTHON "model.load_state_dict(torch.load(WEIGHTS, map_location='cpu'))  # before the first step"},
    {.fact = CKPT__TRAINER_STATE_MISSING, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "trainer-state-missing",
     .message = "trainer_state.json is not there: Trainer.train(resume_from_checkpoint=...) fails with FileNotFoundError",
     .fix = ADVICE "copy that of the checkpoint before, and set global_step and epoch in it"},
    {.fact = CKPT__TRAINER_STATE_DAMAGED, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "trainer-state-damaged",
     .message = "trainer_state.json is there, and is no JSON document (cut short, or empty): Trainer.train(resume_from_checkpoint=...) "
                "fails with JSONDecodeError",
     .fix = ADVICE "copy that of the checkpoint before, and set global_step and epoch in it"},
    {.fact = CKPT__TRAINER_STATE_LACKS, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "trainer-state-incomplete",
     .message = "trainer_state.json has no train_batch_size, as old versions wrote it: the Trainer of transformers 5 compares it with its own, "
                "and fails with TypeError: unsupported operand type(s) for //: 'NoneType' and 'int'",
     .fix = ADVICE "set \"train_batch_size\" in trainer_state.json: per_device_train_batch_size times the GPUs of a process"},
    {.fact = CKPT__CONFIG_DAMAGED, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "config-damaged",
     .message = "config.json is there, and is no JSON document (cut short, or empty): Trainer.train(resume_from_checkpoint=...) fails with "
                "JSONDecodeError",
     .fix = PYTHON "model.config.save_pretrained({py})"
            ADVICE "remove it: the Trainer only looks which version of transformers wrote it"},
    {.fact = CKPT__FSDP_OPTIMIZER_MISSING, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "optimizer-file-missing",
     .message = "optimizer_0 is not there, with the optimizer's state of all ranks: accelerator.load_state fails with CheckpointException. accelerate "
                "writes it behind the weights, and a save that is cut short has none",
     .fix = ADVICE "resume from an earlier checkpoint"
            SHELL "ckpt-migrate --to torch --weights-only {path} {torch}"},
    {.fact = CKPT__SCHEDULER_FILE_MISSING, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "optimizer-file-missing",
     .message = "scheduler.bin is not there, and the groups had a scheduler (initial_lr): accelerator.load_state fails with "
                "FileNotFoundError for a program that prepares one",
     .fix = PYTHON "accelerator.load_state({py})  # before a scheduler is prepared; construct it afterwards"},
    {.fact = CKPT__RNG_MISSING, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "rng-missing",
     .message = "{a} is not there: {loader} goes on without a word, and shuffling and dropout are not those of a run without a break",
     .fix = PYTHON "torch.manual_seed(seed)  # before the resume"},
    {.fact = CKPT__RNG_DAMAGED, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "rng-missing",
     .message = "{a}: accelerate ignores every error there, and shuffling and dropout are not those of a run without a break",
     .fix = ADVICE "copy that file again"
            PYTHON "torch.manual_seed(seed)  # after accelerator.load_state({py})"},
    {.fact = CKPT__ARGS_DAMAGED, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "member-damaged",
     .message = "training_args.bin cannot be read: Trainer.train(resume_from_checkpoint=...) takes the arguments of its program and does "
                "not look there"},
    /* ---- adapters; the HF Trainer loads into an adapter that the program made by its own settings */
    {.fact = CKPT__ADAPTER_RANK, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "adapter-mismatch",
     .message = "adapter_config.json gives {n} module{s} another rank than their tensors have ({c}: r={b}, and its tensors are of {a}): "
                "PeftModel.from_pretrained fails with \"size mismatch\"",
     .fix = ADVICE "set r (or rank_pattern) in adapter_config.json to what the tensors are of"},
    {.fact = CKPT__ADAPTER_TARGET, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "adapter-mismatch",
     .message = "the adapter has tensors for {n} module{s} that target_modules in adapter_config.json does not name (the first: {a}): "
                "PeftModel.from_pretrained leaves them out",
     .fix = ADVICE "add them to target_modules in adapter_config.json"},
    {.fact = CKPT__ADAPTER_DORA, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "adapter-mismatch",
     .message = "the adapter has lora_magnitude_vector (DoRA), and adapter_config.json does not say use_dora: PeftModel.from_pretrained leaves "
                "them out",
     .fix = CONFIG "\"use_dora\": true"},
    {.fact = CKPT__ADAPTER_NO_DORA, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "adapter-mismatch",
     .message = "adapter_config.json says use_dora, and modules have no lora_magnitude_vector: PeftModel.from_pretrained warns of missing "
                "keys, and they start anew",
     .fix = CONFIG "\"use_dora\": false"},
    {.fact = CKPT__GROUPS_FEWER, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "group-mismatch",
     .message = "the saved optimizer has one group, and {a}; the Trainer makes two: ValueError (\"loaded state "
                "dict has a different number of parameter groups\")",
     .fix = ADVICE "resume from a checkpoint before"
            ADVICE "remove optimizer.pt and scheduler.pt, and both start anew"},
    /* ---- ranks */
    {.fact = CKPT__RANK_STATES_SAID, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "rank-state-count", .message = "there are states of {a} ranks for {c}: it is taken here that as many resume (--world N says how many)",
     .fix = SHELL "ckpt-inspect doctor --world N {path}"},
    {.fact = CKPT__RANK_STATES, .loaders = CKPT__L_ACCELERATE | CKPT__L_HF, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "rank-state-count",
     .message = "there are states of {a} rank(s) for {c}, and {b} resume: {loader} goes on without the ones it does not find, and mentions it at most in its log",
     .fix = ADVICE "resume with {a} ranks"
            PYTHON "torch.manual_seed(seed + rank)  # seeds each rank anew"},
    {.fact = CKPT__RANK_STATES, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "rank-state-count",
     .message = "there are states of {a} ranks for {c}, and {b} resume: a rank that has none gets an IndexError, or another's",
     .fix = ADVICE "resume with {a} ranks"
            PYTHON "torch.manual_seed(seed + rank)  # seeds each rank anew"},
    {.fact = CKPT__RANK_STATES_MORE, .loaders = CKPT__L_ACCELERATE | CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "rank-state-count",
     .message = "there are states of {a} ranks for {c}, and {b} resume: each finds its own, and those of the others are lost",
     .fix = ADVICE "resume with {a} ranks"
            PYTHON "torch.manual_seed(seed + rank)  # seeds each rank anew"},
    {.fact = CKPT__MOMENTS_NOT_LOADED, .loaders = CKPT__L_ACCELERATE | CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "moments-not-loaded",
     .message = "FSDP 1 wrote {a}, and accelerate 1.15 loads it only over a state that the optimizer has already: a new optimizer has none, so "
                "its moments start at zero, without a word",
     .fix = ADVICE "resume with FSDP 2 (fsdp_version: 2), which loads them"
            ADVICE "give the optimizer a state before the load: one optimizer.step() with gradients of zero, and lr and "
            "weight_decay 0 in all groups"},
    {.fact = CKPT__DEVICE_STATES, .loaders = CKPT__L_ACCELERATE | CKPT__L_HF, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "rank-state-count",
     .message = "there are random states of {a} GPUs, and {b} are there: setting them fails, and {loader} goes on",
     .fix = PYTHON "torch.cuda.manual_seed_all(seed)"},
    {.fact = CKPT__DEVICE_STATES, .loaders = CKPT__L_TORCH | CKPT__L_LIGHTNING, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "rank-state-count",
     .message = "there are random states of {a} GPUs, and {b} are there: torch.cuda.set_rng_state_all fails (\"invalid device ordinal\")",
     .fix = PYTHON "torch.cuda.set_rng_state_all(states[:torch.cuda.device_count()])"},
    /* ---- values, and the question itself */
    {.fact = CKPT__NON_FINITE, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "non-finite",
     .message = "NaN or infinity in {n} tensor{s} (in the first {a} value(s), role {b}): the checkpoint loads, and training "
                "spreads them",
     .fix = ADVICE "resume from an earlier checkpoint"
            SHELL "ckpt-inspect stats --nonfinite {path}  # lists the tensors"},
    {.fact = CKPT__A_SHARD, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_UNKNOWN,
     .code = "part-of-checkpoint", .message = "this is {a}. Alone it does not tell whether a run resumes", .fix = ADVICE "{b}"},
    {.fact = CKPT__A_PART, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_UNKNOWN,
     .code = "part-of-checkpoint", .message = "this is {a}. Alone it does not tell whether a run resumes", .fix = ADVICE "{b}"},
    {.fact = CKPT__A_PART_ASKED, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "part-of-checkpoint", .message = "this is {a}. The answer is for a program that loads this file alone", .fix = ADVICE "{b}"},
    {.fact = CKPT__A_FLAT_LAYOUT, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_UNKNOWN,
     .code = "layout-unknown", .message = "{a}: what a program asks for by a parameter's name is not found there", .fix = ADVICE "{b}"},
    {.fact = CKPT__TORCH_UNKNOWN, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__UNVERIFIED, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "version-unknown",
     .message = "torch {a} is newer than what is known here, which ends with {version}: what has not differed between versions is answered as for "
                "{version}, the rest is unknown",
     .fix = ADVICE "try it once on a copy"},
    {.fact = CKPT__TORCH_TOO_OLD, .loaders = CKPT__L_HF, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "torch-too-old",
     .message = "the Trainer (transformers 5) refuses torch.load below torch 2.6 (check_torch_load_is_safe): ValueError before optimizer.pt "
                "is read",
     .fix = SHELL "pip install 'torch>=2.6'"},
    {.fact = CKPT__NOT_ITS_FORMAT, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "not-its-format",
     .message = "torch.load reads what torch.save wrote, and this is a pickle of its own: it fails with \"Invalid magic number; corrupt file?\"",
     .fix = PYTHON "checkpoint = pickle.load(open({py}, 'rb'))" TRUSTED
            SHELL "ckpt-migrate --to torch {path} {torch}  # without running it"},
    {.fact = CKPT__NOT_ITS_FORMAT, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "not-its-format",
     .message = "accelerator.load_state takes the directory that save_state wrote, and this is a file: ValueError (\"Tried to find ... but "
                "folder does not exist\")",
     .fix = SHELL "ckpt-inspect doctor --for torch {path}  # to load it by hand"},
    {.fact = CKPT__NOT_ITS_FORMAT, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "not-its-format",
     .message = "the Trainer takes the directory of a checkpoint, and this is a file: ValueError (\"Can't find a valid checkpoint\")",
     .fix = SHELL "ckpt-inspect doctor --for torch {path}  # to load it by hand"},
    {.fact = CKPT__NOT_ITS_FOLDER, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "not-its-format",
     .message = "accelerator.load_state takes the directory that save_state wrote, and this is another ({a}): it fails at the first file "
                "that is not there",
     .fix = SHELL "ckpt-inspect doctor --for torch {path}  # to load it by hand"},
    {.fact = CKPT__NOT_ITS_FOLDER, .loaders = CKPT__L_HF, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "not-its-format",
     .message = "the Trainer takes the directory of a checkpoint of its own, and this is another ({a}): ValueError (\"Can't find a valid "
                "checkpoint\"), or FileNotFoundError at trainer_state.json",
     .fix = SHELL "ckpt-inspect doctor --for torch {path}  # to load it by hand"},
    {.fact = CKPT__FOREIGN, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "not-its-format", .message = "torch.load reads what torch.save wrote, and this is of the format {a}: UnpicklingError, RuntimeError or "
                                          "IsADirectoryError",
     .fix = SHELL "ckpt-migrate --to torch {path} {torch}  # and torch.load of that"},
    {.fact = CKPT__FOREIGN, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "not-its-format",
     .message = "Trainer.fit reads with torch.load what Lightning saved, and this is of the format {a}",
     .fix = SHELL "ckpt-inspect doctor --for torch {path}  # to load it by hand before Trainer.fit, which then gets no ckpt_path"},
    {.fact = CKPT__FOREIGN, .loaders = CKPT__L_CPP, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "not-its-format",
     .message = "libtorch reads its own archives and what torch.save wrote, and this is of the format {a}",
     .fix = ADVICE "load it with ckpt_restore, which reads it as it is"},
    {.fact = CKPT__SAFETENSORS, .loaders = CKPT__L_TORCH, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "not-its-format",
     .message = "torch.load is not for safetensors (from 2.13 it passes on what is called .safetensors): it is taken here that the program "
                "reads this with safetensors.torch.load_file",
     .fix = PYTHON "model.load_state_dict(safetensors.torch.load_file({py}))"},
    {.fact = CKPT__NO_WEIGHTS_ONLY, .loaders = CKPT__L_TORCH, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "weights-only-refused",
     .message = "torch {version} does not know weights_only, which is there from 1.13: torch.load fails with TypeError (\"'weights_only' is "
                "an invalid keyword argument for Unpickler()\")",
     .fix = PYTHON "checkpoint = torch.load({py})" TRUSTED},
    {.fact = CKPT__MAP_IGNORED, .loaders = CKPT__L_LIGHTNING | CKPT__L_ACCELERATE | CKPT__L_HF, .evidence = CKPT__SOURCE,
     .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES, .code = "map-ignored",
     .message = "{loader} takes no map_location: it maps by itself ({a})", .fix = SHELL "ckpt-migrate --map-location RULES --to same {path} {dst}"},
};
/* clang-format on */
const size_t ckpt__rows_load_count = sizeof ckpt__rows_load / sizeof *ckpt__rows_load;
