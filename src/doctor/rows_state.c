/* doctor/rows_state.c - the truth table of a resume, part three: numbers that training cannot go on with or that disagree,
 * schedules at their end, several models and optimizers, and what was looked at. "ran": torch 2.13 on the CPU, Lightning
 * 2.6.6, accelerate 1.15.0, schedulefree 1.4.1, torchdata 0.11.0, by their own load and step. */
#include "doctor/facts.h"
#include "doctor/fixes.h"

#define SENTENCE "\"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\""

/* clang-format off */
const ckpt__row ckpt__rows_state[] = {
    /* ---- step */
    {.fact = CKPT__STEP_NAN, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "step-value", .message = "the step of {n} parameter{s} is NaN: it loads, and the first optimizer step makes the weights NaN",
     .fix = ADVICE "resume from an earlier checkpoint"
            PYTHON "for s in optimizer.state.values(): s['step'] = torch.full_like(s['step'], STEPS)  # after the load"},
    {.fact = CKPT__STEP_INF, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "step-value",
     .message = "the step of {n} parameter{s} is {a}: it loads, and every step is scaled as if bias correction were over, or becomes NaN",
     .fix = ADVICE "resume from an earlier checkpoint"
            PYTHON "for s in optimizer.state.values(): s['step'] = torch.full_like(s['step'], STEPS)  # after the load"},
    {.fact = CKPT__STEP_NEGATIVE, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "step-value",
     .message = "the step of {n} parameter{s} is {a}: it loads, and 1 - beta ** step is not positive: {b}",
     .fix = ADVICE "resume from an earlier checkpoint"
            PYTHON "for s in optimizer.state.values(): s['step'] = torch.full_like(s['step'], STEPS)  # after the load"},
    {.fact = CKPT__STEP_NEGATIVE, .loaders = CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-value",
     .message = "the step of {n} parameter{s} is {a}: it loads, and 1 - beta ** step is not positive, so the weights become NaN",
     .fix = ADVICE "resume from an earlier checkpoint"},
    {.fact = CKPT__STEP_BELOW_ZERO, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-value",
     .message = "the step of {n} parameter{s} is {a}: it loads, and steps of the wrong size follow, NaN or an error, as the optimizer has it",
     .fix = ADVICE "resume from an earlier checkpoint"
            PYTHON "for s in optimizer.state.values(): s['step'] = torch.full_like(s['step'], STEPS)  # after the load"},
    {.fact = CKPT__STEPS_DIFFER_WHOLE, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "steps-differ",
     .message = "{c} have taken fewer steps than the others ({a}, and {b}), whole modules or groups as they are frozen for a time: each goes "
                "on from its own",
     .fix = ""},
    {.fact = CKPT__STEPS_DIFFER_UNUSED, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "steps-differ",
     .message = "{c} have taken fewer steps than the others of the same optimizer ({a}, and {b}), and it computes nothing for them: right for those "
                "that had no gradient for a time; else the state is put together from two checkpoints",
     .fix = ADVICE "resume from an earlier checkpoint, where they were never frozen"},
    {.fact = CKPT__STEPS_DIFFER, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "steps-differ",
     .message = "{c} have taken fewer steps than the others of the same optimizer ({a}, and {b}): right for those that had no gradient for "
                "a time; else the state is put together from two checkpoints, and these go on with moments and a bias correction of another step",
     .fix = ADVICE "resume from an earlier checkpoint, where they were never frozen"},
    {.fact = CKPT__STEP_OF_ANOTHER, .loaders = CKPT__L_HF, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-of-another",
     .message = "{a} is of step {b}, and trainer_state.json says {c}: the Trainer compares nothing, and goes on at step {c} with the state of "
                "step {b}",
     .fix = ADVICE "copy the whole checkpoint again"
            ADVICE "resume from an earlier checkpoint"},
    {.fact = CKPT__STEP_OF_ANOTHER, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "step-of-another",
     .message = "{a} is of step {b}, and the checkpoint says {c}: nothing compares them, and training goes on at step {c} with the state of step "
                "{b}",
     .fix = ADVICE "resume from an earlier checkpoint"},
    {.fact = CKPT__STEP_OF_NAME, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "step-of-another",
     .message = "the directory is called checkpoint-{a}, and trainer_state.json says step {b}: the Trainer goes by the file when it resumes, and by "
                "the name when it looks for the last checkpoint and removes old ones",
     .fix = ADVICE "rename the directory to checkpoint-{b}"},
    {.fact = CKPT__STEP_OF_COUNT, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "step-of-another",
     .message = "the optimizer has taken {a} steps, and the checkpoint's own {b} is {c}: what {b} counts is the program's affair, but the state "
                "may be of another checkpoint",
     .fix = ""},
    /* ---- lr */
    {.fact = CKPT__LR_ODD, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "lr-value", .message = "lr is {a} in {n} saved group{s}: it loads, and {b}",
     .fix = PYTHON "for g in optimizer.param_groups: g['lr'] = g['initial_lr'] = NEW  # after load_state_dict"},
    {.fact = CKPT__LR_ZERO, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "lr-value", .message = "lr is 0 in {n} saved group{s}: nothing is learned there until a scheduler or the program changes it",
     .fix = PYTHON "for g in optimizer.param_groups: g['lr'] = g['initial_lr'] = NEW  # after load_state_dict, with a new "
            "scheduler"},
    /* ---- the scaler */
    {.fact = CKPT__SCALE_ZERO, .loaders = CKPT__L_PYTHON | CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "scaler-value",
     .message = "the scaler's scale is 0: gradients are divided by it again, and the first step makes the weights NaN (0 * inf)",
     .fix = PYTHON "scaler.load_state_dict({**saved, 'scale': 65536.0})"},
    {.fact = CKPT__SCALE_STUCK, .loaders = CKPT__L_PYTHON | CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "scaler-value",
     .message = "the scaler's scale is {a}: no gradient is finite, every step is skipped, and no backoff makes it a number again",
     .fix = PYTHON "scaler.load_state_dict({**saved, 'scale': 65536.0})"},
    {.fact = CKPT__SCALE_TINY, .loaders = CKPT__L_PYTHON | CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "scaler-value",
     .message = "the scaler's scale is {a}: gradients in float16 become 0 where they are small, and most of them do not count",
     .fix = ADVICE "find what overflowed before this checkpoint"
            PYTHON "scaler.load_state_dict({**saved, 'scale': 65536.0})"},
    /* ---- schedules */
    {.fact = CKPT__SCHEDULE_OVER, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "schedule-over",
     .message = "OneCycleLR is at its end (total_steps={b}, which comes from the checkpoint): accelerate does not step it further, and lr stays "
                "at its least; with split_batches=True it fails with \"Tried to step {a} times. The specified number of total steps is {b}\"",
     .fix = ADVICE "for a longer run, make a new scheduler that is not prepared before load_state"},
    {.fact = CKPT__SCHEDULE_OVER, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "schedule-over",
     .message = "OneCycleLR is at its end, and total_steps comes from the checkpoint: the first scheduler.step() after the resume fails with "
                "\"Tried to step {a} times. The specified number of total steps is {b}\"",
     .fix = PYTHON "scheduler = OneCycleLR(optimizer, max_lr=MAX_LR, total_steps=NEW, last_epoch={b} - 1)  # after "
            "optimizer.load_state_dict, instead of loading the scheduler"},
    {.fact = CKPT__SCHEDULE_ENDED, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "schedule-over", .message = "{a} is at its end ({b}): {c}",
     .fix = ADVICE "for a longer run, make a new scheduler; load_state_dict of this one brings back its length too"},
    {.fact = CKPT__EVAL_MODE, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "optimizer-eval-mode",
     .message = "the optimizer (schedulefree) was saved in eval mode: optimizer.train() must come after load_state_dict; where it came before, the "
                "first step fails with \"Optimizer was not in train mode when step is called\"",
     .fix = PYTHON "optimizer.load_state_dict(saved); optimizer.train()"},
    {.fact = CKPT__DATA_WORKERS, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "data-workers",
     .message = "the state of a StatefulDataLoader is of {a}: with another num_workers it fails with AssertionError at the first batch",
     .fix = ADVICE "construct it with the same num_workers"},
    /* ---- models and optimizers */
    {.fact = CKPT__ID_TWICE, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "id-twice",
     .message = "the groups of the optimizer at '{b}' hold id {a} twice: load_state_dict gives its state to the last of them, and the first starts "
                "at step 0, in silence",
     .fix = ADVICE "resume from a checkpoint whose groups hold each id once"},
    {.fact = CKPT__ID_TWICE, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "id-twice", .message = "the groups of the optimizer at '{b}' hold id {a} twice: ckpt_restore refuses it",
     .fix = ADVICE "resume from a checkpoint whose groups hold each id once"},
    {.fact = CKPT__ID_TWICE, .loaders = CKPT__L_CPP, .evidence = CKPT__UNVERIFIED, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "id-twice", .message = "the groups of the optimizer at '{b}' hold id {a} twice",
     .fix = ADVICE "resume from a checkpoint whose groups hold each id once"},
    {.fact = CKPT__CLASS_UNDECIDED, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "optimizer-undecided",
     .message = "group {b} has the keys of {c}, whose state never holds '{a}'; torch's own class would fail without what is missing here, and "
                "whether the class that wrote this does is not known",
     .fix = ADVICE "load it with the program that wrote it, and take one step"},
    {.fact = CKPT__MODEL_UNDECIDED, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "model-undecided", .message = "{a}; torch matches by position, and fails at the first step where shapes differ",
     .fix = SHELL "ckpt-inspect doctor --map-location FILE.yaml {path}  # its source: says which model it trains, see ckpt-map(5)"},
    {.fact = CKPT__MODEL_APART, .loaders = CKPT__L_PYTHON, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "model-on-two-devices",
     .message = "the model's parameters were saved on {a} and on {b} ({c}): load_state_dict copies each to where the program has it; a program that "
                "has them on two devices itself, as by a head that was replaced after .to(device), fails in forward with " SENTENCE,
     .fix = PYTHON "model.to(device)  # after the last change to the model, and before the optimizer is constructed"},
    {.fact = CKPT__MODEL_APART, .loaders = CKPT__L_CPP | CKPT__L_CKPT, .home = CKPT__HOME_CPU, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "model-on-two-devices",
     .message = "the model's parameters would be on {a} and on {b} ({c}): forward fails with " SENTENCE,
     .fix = IN_C "options.map_location = \"cuda:0\"; /* for ckpt_restore: one device for all */"
            IN_C "torch::load(module, FILE, torch::kCUDA); // for libtorch: one device for all"},
    {.fact = CKPT__MODEL_APART, .loaders = CKPT__L_CPP | CKPT__L_CKPT, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "model-on-two-devices",
     .message = "the model's parameters would be on {a} and on {b} ({c}): right for a model that is spread over GPUs",
     .fix = IN_C "options.map_location = \"cuda:*=cuda:0\"; /* for ckpt_restore: one device for all */"},
    /* ---- bytes */
    {.fact = CKPT__WRONG_BYTES, .loaders = CKPT__L_CKPT, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "crc-mismatch", .message = "the bytes of {n} tensor{s} are damaged: {a}; ckpt_restore compares checksums while it copies, and stops there",
     .fix = ADVICE "copy it again"
            ADVICE "resume from an earlier checkpoint"
            SHELL "ckpt-inspect verify {path}  # lists all of them"},
    {.fact = CKPT__WRONG_BYTES, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY,
     .code = "crc-mismatch",
     .message = "the bytes of {n} tensor{s} are damaged: {a}; torch compares no checksum when it loads, and training goes on with wrong numbers",
     .fix = ADVICE "copy it again"
            ADVICE "resume from an earlier checkpoint"
            SHELL "ckpt-inspect verify {path}  # lists all of them"},
    /* ---- weights alone */
    {.fact = CKPT__WEIGHTS_ONLY_FILE, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_WEIGHTS_ONLY,
     .code = "weights-only", .message = "weights only: nothing to resume; loads with {a}", .fix = ""},
    /* ---- versions */
    {.fact = CKPT__TORCH_MATTERS, .loaders = CKPT__L_PYTHON | CKPT__L_CPP, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "version-unknown",
     .message = "unknown for {a}: what becomes of this ({b}) has changed between versions of torch, and {version} is the newest that is known here",
     .fix = ADVICE "try it once on a copy"
            SHELL "ckpt-inspect doctor --torch {version} {path}  # asks for {version}"},
};
/* clang-format on */
const size_t ckpt__rows_state_count = sizeof ckpt__rows_state / sizeof *ckpt__rows_state;
