/* anatomy/producer.c - the table of producers: by what each is known, where it keeps what `show` tells, what resumes it.
 *
 * Who is not certain is not named: a file that only looks like one of these is torch's. The structures are those that the
 * programs' own sources write: lightning/pytorch/trainer/connectors/checkpoint_connector.py (dump_checkpoint), composer/core/
 * state.py, deepspeed/runtime/engine.py (_save_checkpoint, _save_zero_checkpoint), megatron/training/checkpointing.py,
 * mmengine/runner/runner.py (save_checkpoint), ultralytics/engine/trainer.py (save_model), fairseq/trainer.py (state_dict),
 * timm/utils/checkpoint_saver.py, detectron2/engine/train_loop.py and defaults.py, fvcore/common/checkpoint.py, espnet2/
 * train/trainer.py, ignite/engine/engine.py (state_dict), nanoGPT/train.py, vision/references, examples/imagenet/main.py,
 * torchtune/training/checkpointing/_checkpoint_client.py (TrainingProgress), torchtitan/trainer.py (state_dict) and
 * components/dataloader.py, whisper/__init__.py, VAR/train.py. */
#include "anatomy/producer.h"
#include "format/table.h"

#define LOAD "torch.load(\"{path}\", map_location=\"cpu\"{load})"
#define RESTORE "options.map_location = \"{device}\"; ckpt_restore(state, \"{path}\", &options, report, &err)"

/* clang-format off */
const ckpt__producer_row ckpt__producer_rows[] = {
    /* directories whose files are one checkpoint: the layout is the producer's */
    { { "ckpt", CKPT_LOADER_CKPT, .resume = RESTORE }, .format = &ckpt__format_native },
    { { "HF Trainer", CKPT_LOADER_HF_TRAINER,
        .version = "config.json/transformers_version>transformers|generation_config.json/transformers_version>transformers|"
                   "adapter_config.json/peft_version>PEFT",
        .step = "trainer_state.json/global_step", .epoch = "trainer_state.json/epoch",
        .score = "trainer_state.json/best_metric", .metric = "training_args.bin/metric_for_best_model",
        .precision = "training_args.bin/bf16=True>bf16|training_args.bin/fp16=True>fp16",
        .resume = "trainer.train(resume_from_checkpoint=\"{path}\")" },
      .format = &ckpt__format_hf_trainer },
    { { "accelerate", CKPT_LOADER_ACCELERATE, .resume = "accelerator.load_state(\"{path}\")" }, .format = &ckpt__format_accelerate },
    { { "PEFT", CKPT_LOADER_TORCH, .version = "adapter_config.json/peft_version>",
        .resume = "PeftModel.from_pretrained(model, \"{path}\")" },
      .format = &ckpt__format_peft },
    { { "Diffusers", CKPT_LOADER_TORCH, .version = "model_index.json/_diffusers_version>",
        .resume = "DiffusionPipeline.from_pretrained(\"{path}\")" },
      .format = &ckpt__format_hf, .signs = { "model_index.json/_diffusers_version:str", "model_index.json/_class_name:str" } },
    { { "Diffusers", CKPT_LOADER_TORCH, .version = "config.json/_diffusers_version>",
        .resume = "diffusers.AutoModel.from_pretrained(\"{path}\")" },
      .format = &ckpt__format_hf, .signs = { "config.json/_diffusers_version:str", "config.json/_class_name:str" } },
    { { "Diffusers", CKPT_LOADER_TORCH, .resume = "pipeline.load_lora_weights(\"{path}\")" },
      .format = &ckpt__format_hf, .signs = { "pytorch_lora_weights.safetensors|pytorch_lora_weights.bin" } },
    { { "sentence-transformers", CKPT_LOADER_TORCH,
        .version = "config_sentence_transformers.json/__version__/sentence_transformers>",
        .resume = "SentenceTransformer(\"{path}\")" },
      .format = &ckpt__format_hf, .signs = { "config_sentence_transformers.json/__version__/sentence_transformers:str" } },
    { { "timm", CKPT_LOADER_TORCH, .resume = "timm.create_model(\"local-dir:{path}\", pretrained=True)" },
      .format = &ckpt__format_hf, .signs = { "config.json/architecture:str", "config.json/pretrained_cfg:dict" } },
    { { "Hugging Face", CKPT_LOADER_TORCH,
        .version = "config.json/transformers_version>transformers|generation_config.json/transformers_version>transformers",
        .resume = "{model}.from_pretrained(\"{path}\")" },
      .format = &ckpt__format_hf, .signs = { "config.json|generation_config.json" } },
    /* torch files, by what their root holds */
    { { "Lightning", CKPT_LOADER_LIGHTNING, .version = "pytorch-lightning_version>", .step = "global_step", .epoch = "epoch",
        .score = "callbacks/ModelCheckpoint*/best_model_score|callbacks/EarlyStopping*/best_score",
        .current = "callbacks/ModelCheckpoint*/current_score",
        .metric = "callbacks/ModelCheckpoint*/monitor",
        .precision = "MixedPrecision|MixedPrecisionPlugin|NativeMixedPrecisionPlugin|FSDPPrecision|FSDPMixedPrecisionPlugin|"
                     "ApexMixedPrecisionPlugin|native_amp_scaling_state|amp_scaling_state",
        .ema = "current_model_state>state_dict|callbacks/StochasticWeightAveraging*/average_model_state",
        .resume = "trainer.fit(model, ckpt_path=\"{path}\"{load})" },
      .signs = { "pytorch-lightning_version:str", "state_dict:dict", "global_step:int", "epoch:int" } },
    { { "VAR", CKPT_LOADER_TORCH, .step = "iter", .epoch = "epoch",
        .resume = "ckpt = " LOAD "\ntrainer.load_state_dict(ckpt[\"trainer\"], strict=False, skip_vae=True)" },
      .signs = { "trainer/var_wo_ddp:dict", "trainer/var_opt:dict|trainer/vae_local:dict" } },
    { { "Composer", CKPT_LOADER_TORCH, .version = "state/metadata/composer_env_info/composer_version>",
        .step = "state/timestamp/batch|state/timestamp/Timestamp/batch",
        .epoch = "state/timestamp/epoch|state/timestamp/Timestamp/epoch", .precision = "state/metadata/precision:str>=",
        .resume = "Trainer(..., load_path=\"{path}\")" },
      .signs = { "state/timestamp:dict", "state/rank_zero_seed:int", "state/model:dict|state/model@", "rng:list" } },
    { { "DeepSpeed", CKPT_LOADER_TORCH, .version = "ds_version>", .step = "global_steps", .resume = LOAD },
      .signs = { "ds_version:str", "optimizer_state_dict|module" } },
    { { "DeepSpeed", CKPT_LOADER_TORCH, .step = "global_steps", .resume = LOAD },
      .signs = { "ds_config:dict", "module", "global_steps:int", "skipped_steps:int" } },
    { { "Megatron", CKPT_LOADER_TORCH, .step = "iteration",
        .precision = "args/bf16=True>bf16|args/fp16=True>fp16", .resume = LOAD },
      .signs = { "checkpoint_version:number", "iteration:int", "model|model0", "args/tensor_model_parallel_size:int" } },
    { { "mmengine", CKPT_LOADER_TORCH, .version = "meta/mmengine_version>", .step = "meta/iter", .epoch = "meta/epoch",
        .score = "message_hub/runtime_info/best_score", .ema = "ema_state_dict",
        .resume = "cfg.resume = True; cfg.load_from = \"{path}\"; Runner.from_cfg(cfg).train()" },
      .signs = { "meta/mmengine_version:str", "state_dict:weights" } },
    { { "mmcv", CKPT_LOADER_TORCH, .version = "meta/mmcv_version>", .step = "meta/iter", .epoch = "meta/epoch",
        .score = "meta/hook_msgs/best_score", .resume = "runner.resume(\"{path}\")" },
      .signs = { "meta/mmcv_version:str", "state_dict:weights" } },
    { { "Ultralytics", CKPT_LOADER_TORCH, .version = "version>", .epoch = "epoch", .score = "best_fitness",
        .metric = "=fitness", .ema = "ema", .resume = "YOLO(\"{path}\").train(resume=True)" },
      .signs = { "train_args:dict", "date:str", "version:str", "model@ultralytics.|ema@ultralytics." } },
    { { "YOLOv5", CKPT_LOADER_TORCH, .epoch = "epoch", .score = "best_fitness", .metric = "=fitness", .ema = "ema",
        .resume = "python train.py --resume \"{path}\"" },
      .signs = { "best_fitness", "epoch:int", "model@models.yolo.|ema@models.yolo." }, .none = "train_args" },
    { { "fairseq", CKPT_LOADER_TORCH, .step = "optimizer_history/-1/num_updates", .epoch = "extra_state/train_iterator/epoch",
        .score = "extra_state/best", .resume = "fairseq-train ... --restore-file \"{path}\"" },
      .signs = { "model:weights", "optimizer_history:list", "optimizer_history/-1/num_updates:int", "extra_state:dict",
                 "args|cfg" } },
    { { "nanoGPT", CKPT_LOADER_TORCH, .step = "iter_num", .score = "best_val_loss", .metric = "=val_loss",
        .resume = "{lines}" },
      .signs = { "model:weights", "optimizer", "model_args/n_layer:int", "iter_num:int", "best_val_loss", "config:dict" } },
    { { "timm", CKPT_LOADER_TORCH, .epoch = "epoch", .score = "saver/best_metric|metric", .current = "metric",
        .metric = "=metric", .ema = "state_dict_ema", .resume = "python train.py --resume \"{path}\"" },
      .signs = { "epoch:int", "arch:str", "state_dict:weights", "version:int", "optimizer:optimizer" },
      .only = "epoch arch state_dict state_dict_ema optimizer version args amp_scaler amp metric saver task_state "
              "task_state_ema" },
    { { "torchvision", CKPT_LOADER_TORCH, .epoch = "epoch", .ema = "model_ema",
        .resume = "python train.py --resume \"{path}\"" },
      .signs = { "model:weights", "optimizer:optimizer", "lr_scheduler:dict", "epoch:int", "args/data_path:str",
                 "args/print_freq:int", "args/workers:int", "args@argparse.Namespace" },
      .only = "model optimizer lr_scheduler epoch args scaler model_ema" },
    { { "ImageNet example", CKPT_LOADER_TORCH, .epoch = "epoch", .score = "best_acc1|best_prec1", .metric = "=acc1",
        .resume = "python main.py --resume \"{path}\" DATA" },
      .signs = { "epoch:int", "arch:str", "state_dict:weights", "best_acc1|best_prec1", "optimizer:optimizer" },
      .only = "epoch arch state_dict best_acc1 best_prec1 optimizer scheduler" },
    { { "detectron2", CKPT_LOADER_TORCH, .step = "iteration|trainer/iteration",
        .resume = "trainer.checkpointer.resume_or_load(\"{path}\", resume=True)" },
      .signs = { "model:weights", "trainer/hooks:dict", "trainer/_trainer:dict" } },
    /* fvcore's LRMultiplier keeps these two alone, other schedulers of torch more */
    { { "detectron2", CKPT_LOADER_TORCH, .step = "iteration",
        .resume = "checkpointer = DetectionCheckpointer(model, optimizer=optimizer, scheduler=scheduler)\n"
                  "checkpointer.resume_or_load(\"{path}\", resume=True)" },
      .signs = { "model:weights", "optimizer:optimizer", "iteration:int", "scheduler/base_lrs:list",
                 "scheduler/last_epoch:int" },
      .none = "scheduler/_step_count", .only = "model optimizer scheduler iteration" },
    { { "detectron2", CKPT_LOADER_TORCH, .resume = "DetectionCheckpointer(model).load(\"{path}\")" },
      .signs = { "model:dict", "__author__:str", "matching_heuristics" } },
    /* ignite's Engine.state_dict(), under the name that its documentation gives it */
    { { "Ignite", CKPT_LOADER_TORCH, .step = "trainer/iteration",
        .resume = "Checkpoint.load_objects(to_load=to_save, checkpoint=\"{path}\")" },
      .signs = { "trainer/epoch_length:int", "trainer/iteration:int", "trainer/max_epochs" } },
    { { "ESPnet", CKPT_LOADER_TORCH, .epoch = "reporter/epoch", .resume = LOAD },
      .signs = { "model:weights", "reporter/stats:dict", "reporter/epoch:int", "optimizers:list", "schedulers:list" } },
    { { "torchtune", CKPT_LOADER_TORCH, .step = "steps_run", .epoch = "epochs_run", .resume = LOAD },
      .signs = { "seed:int", "epochs_run:int", "total_epochs:int" } },
    { { "Whisper", CKPT_LOADER_TORCH, .resume = "whisper.load_model(\"{path}\")" },
      .signs = { "dims/n_mels:int", "dims/n_audio_ctx:int", "model_state_dict:weights" }, .only = "dims model_state_dict" },
};
/* clang-format on */
const size_t ckpt__producer_row_count = sizeof ckpt__producer_rows / sizeof *ckpt__producer_rows;

/* What no row names. */
static const ckpt__producer
    torch = {"torch", CKPT_LOADER_TORCH, .resume = "{lines}"},
    /* archives of libtorch in C++ */
    cpp_model = {"libtorch", CKPT_LOADER_TORCH_CPP, .resume = "torch::load(module, \"{path}\")"},
    cpp_optimizer = {"libtorch", CKPT_LOADER_TORCH_CPP, .resume = "torch::load(optimizer, \"{path}\")"},
    cpp_archive = {"libtorch", CKPT_LOADER_TORCH_CPP,
                   .resume = "torch::serialize::InputArchive().load_from(\"{path}\")"},
    script = {"TorchScript", CKPT_LOADER_TORCH_CPP, .resume = "torch.jit.load(\"{path}\", map_location=\"cpu\")"},
    /* a file whose header says {"format": "pt"}, as safetensors.torch's callers write it */
    safetensors = {"safetensors", CKPT_LOADER_TORCH,
                   .resume = "model.load_state_dict(safetensors.torch.load_file(\"{path}\"))"},
    /* weights in the files of Hugging Face without a config.json, as accelerate's save_model leaves them */
    weights_alone = {NULL, CKPT_LOADER_TORCH, .resume = "accelerate.load_checkpoint_in_model(model, \"{path}\")"},
    keras_model = {"Keras", CKPT_LOADER_CKPT, .version = "metadata.json/keras_version>|@keras_version>",
                   .resume = "model = keras.models.load_model(\"{path}\")"},
    keras_weights = {"Keras", CKPT_LOADER_CKPT, .version = "@keras_version>",
                     .resume = "model.load_weights(\"{path}\")"},
    llmc = {"llm.c", CKPT_LOADER_LLMC, .resume = "train_gpt2cu -o \"{path}\" -y 1"},
    deepspeed = {"DeepSpeed", CKPT_LOADER_DEEPSPEED, .version = "ds_version>", .step = "global_steps",
                 .resume = "engine.load_checkpoint(\"{path}\"{tag})"},
    universal =
        {"DeepSpeed", CKPT_LOADER_UNIVERSAL, .version = "ds_version>", .step = "global_steps",
         .resume =
             "engine.load_checkpoint(\"{path}\"{tag})  # \"checkpoint\": {\"load_universal\": true} in its configuration"},
    trainer_deepspeed = {"the HF Trainer with DeepSpeed",
                         CKPT_LOADER_HF_TRAINER,
                         .version = "ds_version>",
                         .step = "global_steps",
                         .epoch = "trainer_state.json/epoch",
                         .score = "trainer_state.json/best_metric",
                         .metric = "training_args.bin/metric_for_best_model",
                         .resume = "trainer.train(resume_from_checkpoint=\"{path}\")"},
    accelerate_deepspeed = {"accelerate with DeepSpeed", CKPT_LOADER_ACCELERATE, .version = "ds_version>",
                            .step = "global_steps", .resume = "accelerator.load_state(\"{path}\")"},
    lightning_deepspeed = {"Lightning with DeepSpeed",
                           CKPT_LOADER_LIGHTNING,
                           .version = "pytorch-lightning_version>",
                           .step = "global_step",
                           .epoch = "epoch",
                           .resume = "trainer.fit(model, ckpt_path=\"{path}\")"},
    /* what its FSDP and model-parallel strategies write beside torch's list (strategies/fsdp.py, model_parallel.py) */
    lightning_sharded = {"Lightning",
                         CKPT_LOADER_LIGHTNING,
                         .version = "meta.pt/pytorch-lightning_version>",
                         .step = "meta.pt/global_step",
                         .epoch = "meta.pt/epoch",
                         .resume = "trainer.fit(model, ckpt_path=\"{path}\")"},
    verl =
        {"verl", CKPT_LOADER_FSDP,
         .resume =
             "verl's trainer, with as many ranks as saved it: {path} (trainer.resume_mode=auto takes the step that latest_checkpointed_iteration.txt names)"},
    accelerate_fsdp = {"accelerate", CKPT_LOADER_ACCELERATE, .resume = "accelerator.load_state(\"{path}\")"},
    ranks = {NULL, CKPT_LOADER_FSDP, .resume = "the program that saved it, with as many ranks"},
    llmc_model = {"llm.c", CKPT_LOADER_CKPT, .resume = "train_gpt2cu -e \"{path}\""},
    megatron = {"Megatron", CKPT_LOADER_MEGATRON, .step = "iteration",
                .precision = "args/bf16=True>bf16|args/fp16=True>fp16", .resume = "pretrain_gpt.py --load \"{path}\""},
    megatron_dist = {"Megatron", CKPT_LOADER_TORCH_DIST, .step = "iteration",
                     .precision = "args/bf16=True>bf16|args/fp16=True>fp16",
                     .resume = "pretrain_gpt.py --load \"{path}\""},
    keras_shards = {"Keras", CKPT_LOADER_CKPT, .resume = "model.load_weights(glob.glob(\"{path}/*.weights.json\")[0])"},
    dcp = {"torch.distributed.checkpoint", CKPT_LOADER_DCP,
           .resume = "torch.distributed.checkpoint.load(state_dict, checkpoint_id=\"{path}\")"},
    torchtitan = {"torchtitan", CKPT_LOADER_DCP, .step = "train_state/step",
                  .resume =
                      "torchtitan's trainer: it takes the newest step-N beside {path} (checkpoint.load_step takes "
                      "another)"},
    dcp_shards =
        {"torch.distributed.checkpoint", CKPT_LOADER_DCP_HF,
         .resume =
             "torch.distributed.checkpoint.load(state_dict, storage_reader=HuggingFaceStorageReader(\"{path}\"))"},
    several_files = {NULL, CKPT_LOADER_TORCH, .resume = RESTORE}, unknown = {NULL, CKPT_LOADER_CKPT, .resume = RESTORE};

/* A module at the root, an optimizer, or several of them in one archive. */
static const ckpt__producer *of_archive(const ckpt__index *index, const ckpt_value *first)
{
    bool weights = false;
    for (size_t i = 0; !weights && i < index->tensor_count; i++)
        weights = index->tensors[i].info.role == CKPT_ROLE_PARAM || index->tensors[i].info.role == CKPT_ROLE_BUFFER;
    if (!ckpt__str_is(first->class_name, "__torch__.Module"))
        return &script;
    if (!weights)
        return &cpp_optimizer;
    for (size_t i = 0; i < first->entry_count; i++) {
        const ckpt_value *v = first->entries[i].value;
        if (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_STR ||
            ckpt_value_get(v, "param_groups"))
            return &cpp_archive; /* what no module has: values of a program's own, or an optimizer */
    }
    return &cpp_model;
}

/* Keras writes a .keras archive, a whole model in HDF5 (Keras 2 does, too), or weights alone. Weights of Keras 3 name no version. */
static const ckpt__producer *of_keras(const ckpt__index *index)
{
    bool unpacked = ckpt__producer_fits(index->root, "metadata.json/keras_version:str");
    if (ckpt__index_is_directory(index) && !unpacked)
        return &keras_shards;
    bool whole =
        ckpt__producer_fits(index->root, "metadata.json/keras_version:str") ||
        (ckpt__producer_fits(index->root, "@keras_version:str") && ckpt__producer_fits(index->root, "@model_config"));
    return whole ? &keras_model : &keras_weights;
}

/* Of lists and records, or of safetensors alone. */
static const ckpt__producer *of_ranks(const ckpt__index *index)
{
    if (ckpt__producer_fits(index->root, "meta.pt/pytorch-lightning_version:str"))
        return &lightning_sharded;
    if (ckpt__producer_fits(index->root, "train_state/step") &&
        ckpt__producer_fits(index->root, "train_state/ntokens_seen|dataloader/dp_rank_*"))
        return &torchtitan;
    return index->bare_list ? &dcp : &dcp_shards;
}

/* The folder that accelerate gives DeepSpeed to write into. */
static bool is_in_accelerates(const ckpt__index *index)
{
    return index->job.folder && strcmp(index->job.folder, "pytorch_model/") == 0;
}

/* The Trainer, accelerate and Lightning leave their own beside what DeepSpeed writes for them. A save that was cut short has less of
 * it: the Trainer writes training_args.bin first and trainer_state.json last, accelerate random_states last. */
static const ckpt__producer *of_deepspeed(const ckpt__index *index)
{
    if (ckpt_value_get(index->root, "pytorch-lightning_version"))
        return &lightning_deepspeed;
    if (ckpt_value_get(index->root, "trainer_state.json") || ckpt_value_get(index->root, "training_args.bin") ||
        index->job.beside == CKPT__BESIDE_TRAINER)
        return &trainer_deepspeed;
    if (ckpt_value_get(index->root, "random_states_0.pkl") || is_in_accelerates(index) ||
        index->job.beside == CKPT__BESIDE_ACCELERATE)
        return &accelerate_deepspeed;
    return strcmp(index->format, "universal") == 0 ? &universal : &deepspeed;
}

/* By the names of the files that plain tensors are in. */
static const ckpt__producer *of_fsdp(const ckpt__index *index)
{
    if (ckpt_value_get(index->root, "extra_state"))
        return &verl;
    for (size_t i = 0; i < index->tensor_count; i++) {
        const ckpt_str file = index->tensors[i].info.file;
        if (!file.data)
            continue;
        if (memmem(file.data, file.size, "_world_size_", 12))
            return &verl;
        if (ckpt__begins(file.data, "pytorch_model_fsdp_") || ckpt__begins(file.data, "optimizer_"))
            return &accelerate_fsdp;
    }
    return &ranks;
}

/* Which program wrote it is a question of its format, and not of a fact about it. */
static const ckpt__producer *without_row(const ckpt__index *index)
{
    const ckpt_value *root = index->root, *first = root;
    if (ckpt__format_of(index)->family == CKPT__FAMILY_KERAS)
        return of_keras(index);
    if (ckpt__format_of(index)->family == CKPT__FAMILY_DCP)
        return of_ranks(index);
    if (ckpt__format_of(index)->family == CKPT__FAMILY_FSDP)
        return of_fsdp(index);
    if (ckpt__format_of(index)->family == CKPT__FAMILY_LLMC)
        return ckpt__index_is_directory(index) ? &llmc : &llmc_model;
    if (ckpt__format_of(index)->family == CKPT__FAMILY_DEEPSPEED)
        return of_deepspeed(index);
    if (ckpt__format_of(index)->family == CKPT__FAMILY_MEGATRON)
        return ckpt__format_of(index)->sharded == CKPT__SHARDED_TORCH_DIST ? &megatron_dist : &megatron;
    if (root && !root->class_name.data && ckpt__index_is_directory(index) && root->entry_count > 0)
        first = root->entries[0].value; /* the first file's */
    if (first && ckpt__is_scripted_class(first->class_name))
        return of_archive(index, first);
    if (ckpt__format_of(index)->family == CKPT__FAMILY_TORCH)
        return &torch;
    if (ckpt__format_of(index)->pretrained)
        return &weights_alone;
    const ckpt_value *metadata = ckpt_value_get(root, "__metadata__");
    const ckpt_value *format = ckpt_value_get(metadata ? metadata : root, "format");
    if (format && format->kind == CKPT_V_STR && ckpt__str_is(format->text, "pt"))
        return &safetensors;
    return &unknown;
}

/* Files without a layout: the one that a row knows, if it is the only one. */
static const ckpt__producer *of_files(const ckpt_value *files, const ckpt_value **root, ckpt_str *file)
{
    const ckpt__producer *found = NULL;
    for (size_t i = 0; files && i < files->entry_count; i++) {
        const ckpt__producer *own = ckpt__producer_of_root(files->entries[i].value);
        if (own && found)
            return NULL;
        if (own) {
            found = own;
            *root = files->entries[i].value;
            *file = files->entries[i].key->text;
        }
    }
    return found;
}

/* Files that no row knows are torch's or of safetensors all the same: the one that there is, or all. NULL: they are not. */
static const ckpt__producer *of_other_files(const ckpt__index *index, const ckpt_value **root, ckpt_str *file)
{
    const ckpt__producer *found = NULL;
    for (size_t i = 0; i < index->absorbed_count; i++) {
        ckpt__family family = ckpt__format_of(index->absorbed[i])->family;
        found = family == CKPT__FAMILY_TORCH ? &torch : family == CKPT__FAMILY_SAFETENSORS ? &safetensors : NULL;
        if (!found)
            return NULL;
    }
    if (index->absorbed_count != 1 || !index->root || index->root->entry_count != 1)
        return found ? &several_files : NULL;
    *root = index->root->entries[0].value;
    *file = index->root->entries[0].key->text;
    return found;
}

const ckpt__producer *ckpt__producer_match(const ckpt__index *index, const ckpt_value **root, ckpt_str *file)
{
    const ckpt__producer *found = NULL;
    const ckpt__format *format = ckpt__format_of(index);
    *root = index->root;
    *file = (ckpt_str){NULL, 0};
    for (size_t i = 0; i < ckpt__producer_row_count; i++) {
        const ckpt__producer_row *row = &ckpt__producer_rows[i];
        if (row->format != format)
            continue;
        bool all = true;
        for (size_t k = 0; all && k < sizeof row->signs / sizeof *row->signs && row->signs[k]; k++)
            all = ckpt__producer_fits(index->root, row->signs[k]);
        if (all)
            return &row->producer;
    }
    if (format->loose_files)
        found = of_files(index->root, root, file);
    if (!found && format->loose_files && without_row(index) == &unknown)
        found = of_other_files(index, root, file);
    if (format->family == CKPT__FAMILY_TORCH)
        found = index->job.whole_model ? of_deepspeed(index) : ckpt__producer_of_root(index->root);
    return found ? found : without_row(index);
}

const ckpt__producer *ckpt__producer_of(const ckpt__index *index)
{
    const ckpt_value *root;
    ckpt_str file;
    return ckpt__producer_match(index, &root, &file);
}
