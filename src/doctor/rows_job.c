/* doctor/rows_job.c - the truth table of a resume, part four: a sharded checkpoint in another job. "ran" is torch 2.13 (FSDP2, tensor
 * parallel, DCP), deepspeed 0.19.8, accelerate 1.15.0 and megatron-core 0.16.1 (experts) over gloo on the CPU, 1 to 4 ranks. Of Megatron-LM (checkpointing.py,
 * megatron-core 0.16.1: distrib_optimizer.py), llm.c (train_gpt2.cu: load_state) and torchtitan (dataloader.py) the sources were read. */
#include "doctor/facts.h"
#include "doctor/fixes.h"

#define ENGINE CKPT__L_SHARDS
#define INSIDE (CKPT__L_HF | CKPT__L_ACCELERATE | CKPT__L_LIGHTNING)
#define UNIVERSAL                                                                                                      \
    "python -m deepspeed.checkpoint.ds_to_universal --input_folder TAG --output_folder TAG_universal  # and "          \
    "\"checkpoint\": {\"load_universal\": true} in the configuration"
#define ONE_FILE                                                                                                       \
    "ckpt-migrate --to torch {path} {torch}  # one file with the moments, for a program that shards it anew"

/* clang-format off */
const ckpt__row ckpt__rows_job[] = {
    /* ---- what the job has to be */
    {.fact = CKPT__JOB_UNSAID, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "world-size", .message = "{a} ranks saved it, each its own part: it is taken here that as many resume (--world N or --mesh says how many)",
     .fix = SHELL "ckpt-inspect doctor --world N {path}"},
    {.fact = CKPT__JOB_NEEDS, .inside = CKPT__IN_DEEPSPEED, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "resume-needs",
     .message = "it was saved with ZeRO {a}: stages 1 and 2 load each other's, stage 3 its own alone (else an AssertionError without a text), and the "
                "engine's dtype has to be the saved one (the names of bf16's files begin with bf16_)"},
    {.fact = CKPT__JOB_NEEDS, .inside = CKPT__IN_UNIVERSAL, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "resume-needs",
     .message = "it loads with \"checkpoint\": {\"load_universal\": true} in DeepSpeed's configuration and ZeRO {a}, by which its files are named; with "
                "the other stages it fails with an AssertionError without a text"},
    {.fact = CKPT__JOB_NEEDS, .inside = CKPT__IN_DCP, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "resume-needs",
     .message = "Trainer.fit loads it with FSDPStrategy(state_dict_type='sharded') or ModelParallelStrategy alone"},
    {.fact = CKPT__JOB_NEEDS, .inside = CKPT__IN_DCP, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "resume-needs",
     .message = "dcp.load fills what the program asks for: the optimizer's state must be there to be asked for (get_state_dict makes it; "
                "optimizer.state_dict() before the first step has none, and no moments are loaded, without a word)"},
    {.fact = CKPT__JOB_NEEDS, .inside = CKPT__IN_FSDP, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "resume-needs",
     .message = "the files of ranks were saved with use_dcp=False: accelerate has to load them so, too, with FSDP over as many processes"},
    {.fact = CKPT__JOB_NEEDS, .inside = CKPT__IN_FSDP | CKPT__IN_FLAT, .loaders = ENGINE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "resume-needs",
     .message = "each rank loads its own file, into a model that was sharded over the same mesh before"},
    {.fact = CKPT__JOB_NEEDS, .inside = CKPT__IN_FLAT, .loaders = CKPT__L_ACCELERATE, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "resume-needs",
     .message = "the files of ranks are of LOCAL_STATE_DICT: accelerate has to load them so, too, with FSDP1 wrapped as it was, over as many processes"},
    /* ---- another number of ranks */
    {.fact = CKPT__WORLD_DIFFERS, .inside = CKPT__IN_DEEPSPEED, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "world-size",
     .message = "ZeRO's parts of {a} data parallel ranks do not load in {b}, with elastic_checkpoint neither: ZeRORuntimeException (\"The checkpoint being "
                "loaded used a DP world size of {a} but the current world size is {b}. Automatic adjustment of ZeRO's optimizer state partitioning with a "
                "new world size is not currently supported.\")",
     .fix = SHELL UNIVERSAL
            SHELL ONE_FILE},
    {.fact = CKPT__WORLD_DIFFERS_3, .inside = CKPT__IN_DEEPSPEED, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "world-size",
     .message = "ZeRO-3's parts of {a} data parallel ranks do not load in {b}: ZeRORuntimeException (\"The checkpoint being loaded used a DP world size of "
                "{a} but the current world size is {b}. ...\"), and an AssertionError without a text in a rank that has no file",
     .fix = SHELL UNIVERSAL
            SHELL ONE_FILE},
    {.fact = CKPT__WORLD_FROZEN, .inside = CKPT__IN_DEEPSPEED, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "world-size",
     .message = "ZeRO-3's parts of {a} data parallel ranks do not load in {b}: the frozen parameters come first, RuntimeError (\"The size of tensor a (...) "
                "must match the size of tensor b (...) at non-singleton dimension 0\"), and an AssertionError without a text in a rank that has no file",
     .fix = SHELL UNIVERSAL
            SHELL ONE_FILE},
    {.fact = CKPT__WORLD_DIFFERS, .inside = CKPT__IN_FSDP, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "world-size",
     .message = "the files of {a} ranks do not load in {b}: FileNotFoundError where a rank has none (or the name has the number of ranks in it), else "
                "RuntimeError (\"Cannot run aten.copy_.default on inputs with different meshes\")",
     .fix = ADVICE "save it with torch.distributed.checkpoint, whose checkpoints load in any job"
            SHELL ONE_FILE},
    {.fact = CKPT__WORLD_DIFFERS, .inside = CKPT__IN_FLAT, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "world-size",
     .message = "flat parameters of {a} ranks (LOCAL_STATE_DICT) are of {a} ranks alone, and {b} resume: a rank has no file, or a flat parameter of "
                "another size",
     .fix = ADVICE "load it once with {a} ranks, wrapped as it was, and save it with SHARDED_STATE_DICT"},
    {.fact = CKPT__WORLD_DIFFERS, .inside = CKPT__IN_LLMC, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "world-size",
     .message = "the state of {a} processes does not load in {b}: \"Assertion `state_header[2] == multi_gpu_config->num_processes' failed\", or no file "
                "of that rank",
     .fix = ADVICE "start {a} processes"
            SHELL "train_gpt2cu -e MODEL_FILE  # begins with the weights alone"},
    /* ---- those that take another job */
    {.fact = CKPT__RESHARDED, .inside = CKPT__IN_DCP | CKPT__IN_DCP_HF, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "world-size",
     .message = "{a} ranks saved it, and {b} resume: every rank reads the parts of the tensors that it has, whatever the mesh"},
    {.fact = CKPT__RESHARDED, .inside = CKPT__IN_UNIVERSAL, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "world-size", .message = "a universal checkpoint loads in any number of data parallel ranks, {b} here"},
    {.fact = CKPT__RESHARDED, .inside = CKPT__IN_TORCH_DIST | CKPT__IN_MEGATRON, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_NOTE,
     .outcome = CKPT_OUTCOME_RESUMES, .code = "world-size",
     .message = "the job that saved it had {a}, the one that resumes has {b} (ranks, or tensor and pipeline parallel sizes): Megatron-LM loads that"},
    /* ---- another mesh */
    {.fact = CKPT__MESH_DIFFERS, .inside = CKPT__IN_FSDP, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "mesh",
     .message = "the files were saved over the mesh {a}, and the job has {b}: RuntimeError (\"Cannot run aten.copy_.default on inputs with different "
                "meshes\", or \"got mixed torch.Tensor and DTensor\")",
     .fix = ADVICE "resume over the mesh {a}, and save with torch.distributed.checkpoint there"
            SHELL ONE_FILE},
    {.fact = CKPT__MESH_DIFFERS, .inside = CKPT__IN_MEGATRON, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "mesh",
     .message = "it was saved with {a}, and the job has {b}: the files are of those sizes alone, a rank has no file, or AssertionError "
                "(\"tensor_model_parallel_size value from checkpoint ... is not equal to the input argument value\")",
     .fix = ADVICE "in the sizes that wrote it, save it with --ckpt-format torch_dist"
            ADVICE "tools/checkpoint/convert.py of Megatron-LM"
            SHELL ONE_FILE},
    {.fact = CKPT__MESH_FOR_OPTIMIZER, .inside = CKPT__IN_TORCH_DIST, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "mesh",
     .message = "the distributed optimizer was saved as {c} with {a}, and the job has {b}: RuntimeError (\"(TP, PP) mismatch after resume ...: not supported "
                "for DistributedOptimizer with sharding type {c}\")",
     .fix = ADVICE "in the sizes that wrote it, save it with --dist-ckpt-optim-fully-reshardable"
            ADVICE "load the weights alone: --no-load-optim --no-load-rng"},
    {.fact = CKPT__MESH_FOR_EXPERTS, .inside = CKPT__IN_TORCH_DIST, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "mesh",
     .message = "the optimizer was saved for {a}, and the job has {b}: experts on several ranks have an optimizer of their own, and megatron-core raises "
                "RuntimeError (\"Expected 2 entries in state dict\") or KeyError",
     .fix = SHELL "ckpt-migrate --to torch-dist --expert-parallel {c} {path} DST"
            ADVICE "load the weights alone: --no-load-optim --no-load-rng"},
    {.fact = CKPT__MESH_UNKNOWN, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_UNKNOWN, .code = "mesh",
     .message = "whether it loads in a job of {b} is not known here: {c}",
     .fix = ADVICE "load it once in that job"
            ADVICE "ask for the mesh that saved it"},
    /* ---- what there is once for each rank */
    {.fact = CKPT__RNG_IGNORED, .inside = CKPT__IN_TORCH_DIST, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "once-per-rank",
     .message = "random states are of {a}, and the job has {b}: Megatron-LM says \"RNG state will be ignored\", and dropout is not that of a run without a break"},
    {.fact = CKPT__ONE_STATE, .inside = CKPT__IN_DCP, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING, .outcome = CKPT_OUTCOME_RESUMES,
     .code = "once-per-rank",
     .message = "there is one random state for all ranks ({a}): dcp.save keeps under one key what one rank had, not always rank 0, and every rank loads it. "
                "Where the ranks' states differed, their dropout is not that of a run without a break",
     .fix = PYTHON "torch.manual_seed(seed + rank)  # after the load"
            PYTHON "state_dict[f'rng.rank_{rank}'] = torch.get_rng_state()  # at the next save: a key for each rank"},
    {.fact = CKPT__STATE_KEYS, .inside = CKPT__IN_DCP, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "once-per-rank",
     .message = "there are random states of {a} ranks, and {b} resume: {c}",
     .fix = PYTHON "torch.manual_seed(seed + rank)  # in the ranks that have none, which do not ask for one"},
    {.fact = CKPT__LOADER_DATA, .inside = CKPT__IN_DCP, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "once-per-rank",
     .message = "the place in the data is there for {a} data parallel ranks, and {b} resume: torchtitan fails with AssertionError (\"dp_degree is "
                "inconsistent before and after checkpoint, dataloader resharding is not supported yet.\")",
     .fix = ADVICE "resume with {a} data parallel ranks"
            CONFIG "exclude_from_loading = [\"dataloader\"]  # torchtitan's [checkpoint]: the data starts anew"},
    {.fact = CKPT__LOADER_UNSAID, .inside = CKPT__IN_DCP, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_UNKNOWN, .code = "once-per-rank",
     .message = "the place in the data is there for {a} data parallel ranks, and it was not said how many of the {b} ranks that resume are data parallel: "
                "torchtitan takes {a} alone",
     .fix = SHELL "ckpt-inspect doctor --mesh dp=N,tp=M {path}"},
    /* ---- DeepSpeed's own */
    {.fact = CKPT__NO_LATEST, .inside = CKPT__IN_DEEPSPEED, .loaders = ENGINE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "latest-missing",
     .message = "there is no file latest: engine.load_checkpoint({py}) warns (\"Unable to find latest file\"), returns (None, None), and the run starts from "
                "its beginning",
     .fix = PYTHON "print(engine.load_checkpoint({py}, tag=FOLDER))  # and look at what it returns"},
    {.fact = CKPT__NO_LATEST, .inside = CKPT__IN_UNIVERSAL, .loaders = ENGINE, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "latest-missing",
     .message = "there is no file latest_universal: ValueError (\"Invalid for universal checkpoint: ... does not exist\")",
     .fix = PYTHON "engine.load_checkpoint({py}, tag=FOLDER)"
            ADVICE "write the folder's name into latest_universal"},
    {.fact = CKPT__NO_LATEST, .inside = CKPT__IN_LLMC, .loaders = 0, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "latest-missing",
     .message = "there is no file DONE_*: train_gpt2cu -y 1 looks for the newest of them, finds none, and the run starts from its beginning without "
                "a word",
     .fix = SHELL "ckpt-inspect verify {path}  # are all files whole?"
            ADVICE "then make the mark of the step that is read, an empty file"},
    {.fact = CKPT__NO_LATEST, .loaders = CKPT__L_HF, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "latest-missing",
     .message = "there is no file latest: the Trainer fails with ValueError (\"[deepspeed] failed to resume from checkpoint\")",
     .fix = ADVICE "write the name of the global_step folder into the file latest"},
    {.fact = CKPT__NO_LATEST, .loaders = CKPT__L_LIGHTNING, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "latest-missing",
     .message = "there is no file latest: Lightning fails with MisconfigurationException (\"DeepSpeed was unable to load the checkpoint\")",
     .fix = ADVICE "write \"checkpoint\", the folder's name, into the file latest"},
    {.fact = CKPT__WRONG_LATEST, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD,
     .code = "latest-missing",
     .message = "the file that names the newest step names one without files: engine.load_checkpoint fails with an AssertionError without a text",
     .fix = ADVICE "write the name of a whole one into it (ckpt-inspect show says which are)"
            PYTHON "engine.load_checkpoint({py}, tag=FOLDER)"},
    {.fact = CKPT__UNIVERSAL_ASKED, .inside = CKPT__IN_UNIVERSAL, .loaders = ENGINE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "not-its-format",
     .message = "without load_universal engine.load_checkpoint finds no latest here, warns, returns (None, None), and the run starts from its beginning; "
                "with a tag it fails with FileNotFoundError (*_optim_states.pt)",
     .fix = CONFIG "\"checkpoint\": {\"load_universal\": true}"},
    {.fact = CKPT__UNIVERSAL_ASKED, .inside = CKPT__IN_DEEPSPEED, .loaders = ENGINE, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "not-its-format",
     .message = "this is none, and with load_universal engine.load_checkpoint fails with ValueError (\"Invalid for universal checkpoint: ... "
                "latest_universal does not exist\")",
     .fix = SHELL UNIVERSAL},
    {.fact = CKPT__UNIVERSAL_LEFT, .inside = CKPT__IN_UNIVERSAL, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "universal-incomplete",
     .message = "{a} of its buffers and frozen parameters are not loaded under load_universal, without a word: they stay as the program made them",
     .fix = SHELL "ckpt-migrate --to torch --weights-only {path} {torch}  # then model.load_state_dict(..., strict=False) before "
            "deepspeed.initialize"},
    {.fact = CKPT__UNIVERSAL_GROUPS, .inside = CKPT__IN_UNIVERSAL, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_WARNING,
     .outcome = CKPT_OUTCOME_RESUMES_DIFFERENTLY, .code = "universal-incomplete",
     .message = "the optimizer has {a} groups: stage 3 copies the settings of the first into all (lr, weight_decay), without a word",
     .fix = PYTHON "for g in engine.optimizer.optimizer.param_groups: g.update(lr=LR, weight_decay=WEIGHT_DECAY)  # after "
            "load_checkpoint, with each group's own"},
    {.fact = CKPT__UNIVERSAL_MAX, .inside = CKPT__IN_UNIVERSAL, .loaders = 0, .evidence = CKPT__RAN, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_STEP, .code = "universal-incomplete",
     .message = "a group says amsgrad=True, and {a} of the parameters have no max_exp_avg_sq, which ds_to_universal.py leaves out: KeyError "
                "(\"max_exp_avg_sq\") at the first step",
     .fix = ADVICE "resume from the checkpoint that it was made of, over as many ranks"
            ADVICE "take that one to a file of torch, which keeps max_exp_avg_sq (ckpt-migrate --to torch)"},
    {.fact = CKPT__INSIDE_SCHEDULER, .inside = CKPT__IN_DEEPSPEED | CKPT__IN_UNIVERSAL, .loaders = CKPT__L_HF, .evidence = CKPT__SOURCE,
     .severity = CKPT_SEVERITY_ERROR, .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "optimizer-file-missing",
     .message = "scheduler.pt is not there, which the Trainer reads where the scheduler is not DeepSpeed's own: FileNotFoundError",
     .fix = ADVICE "copy it from the checkpoint before, and set last_epoch in it"
            ADVICE "let DeepSpeed's configuration have the scheduler"},
    /* ---- a loader that reads no such thing */
    {.fact = CKPT__FOREIGN, .loaders = ENGINE | 1U << CKPT_LOADER_SAFETENSORS | 1U << CKPT_LOADER_HF, .evidence = CKPT__SOURCE, .severity = CKPT_SEVERITY_ERROR,
     .outcome = CKPT_OUTCOME_FAILS_AT_LOAD, .code = "not-its-format",
     .message = "{loader} reads what its own program wrote, and this is of the format {a}: its files are not found",
     .fix = SHELL "ckpt-inspect doctor {path}  # says what loads it"},
};
/* clang-format on */
const size_t ckpt__rows_job_count = sizeof ckpt__rows_job / sizeof *ckpt__rows_job;
