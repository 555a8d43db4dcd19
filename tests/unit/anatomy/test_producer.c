/* Who wrote a file, told from its structure: each row of the table of producers with a file as its program writes it,
 * and files that look like one and are none; what is said of the training state. */
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include <ckpt/summary.h>
#include <math.h>
#include "examine/summary.h"
#include "producer_files.h"

static ckpt_error err;
static ckpt_reader *reader;
static ckpt_summary s;

static void setup(void)
{
    make_folder();
    memset(&s, 0, sizeof s);
    memset(&err, 0, sizeof err);
}

static void teardown(void)
{
    ckpt_summary_clear(&s);
    ckpt_reader_close(reader);
    reader = NULL;
    remove_folder();
}

static void summarize(const char *path)
{
    ckpt_summary_clear(&s);
    ckpt_reader_close(reader);
    ckpt_status status = ckpt_reader_open(path, NULL, &reader, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", path, err.message);
    ck_assert_int_eq(ckpt_summarize(reader, &s, &err), CKPT_OK);
}

static void of_spec(const char *spec)
{
    write_spec(at("x.pt"), spec);
    summarize(at("x.pt"));
}

/* ---- who wrote it */

static const struct {
    const char *spec, *producer, *version;
    int64_t step;
    double epoch, best;             /* NAN: it keeps none */
    const char *precision, *resume; /* resume: words of it; NULL: there is none */
} programs[] = {
    {"{'trainer': {'config': {}, 'var_wo_ddp': W, 'vae_local': W, 'var_opt': {'optimizer': O}}, 'epoch': 3, 'iter': 7, "
     "'args': {}}",
     "VAR", NULL, 7, 3, NAN, NULL, "trainer.load_state_dict(ckpt[\"trainer\"]"},
    {"{'epoch': 2, 'global_step': 8, 'pytorch-lightning_version': '2.6.6', 'state_dict': W, 'loops': {}, 'callbacks': "
     "{'EarlyStopping{}': {'best_score': T9.0}, 'ModelCheckpoint{}': {'best_model_score': T0.5, 'monitor': 'loss'}}, "
     "'optimizer_states': [O], 'lr_schedulers': [], 'MixedPrecision': {'scale': 2.0}}",
     "Lightning", "2.6.6", 8, 2, 0.5, "MixedPrecision", "trainer.fit(model, ckpt_path=\"{path}\"{load})"},
    {"{'epoch': 2, 'global_step': 8, 'pytorch-lightning_version': '1.4.0', 'state_dict': W, "
     "'native_amp_scaling_state': {'scale': 2.0}}",
     "Lightning", "1.4.0", 8, 2, NAN, "native_amp_scaling_state", "trainer.fit"},
    {"{'model': W, 'optimizer': O, 'model_args': {'n_layer': 2}, 'iter_num': 50, 'best_val_loss': T1.5, 'config': {}}",
     "nanoGPT", NULL, 50, -1, 1.5, NULL, "optimizer.load_state_dict(ckpt[\"optimizer\"])"},
    {"{'args': None, 'cfg': {}, 'model': W, 'criterion': None, 'optimizer_history': [{'num_updates': 3}, "
     "{'num_updates': 900}], "
     "'task_state': {}, 'extra_state': {'train_iterator': {'epoch': 4}, 'best': 2.25}, 'last_optimizer_state': O}",
     "fairseq", NULL, 900, 4, 2.25, NULL, "--restore-file"},
    {"{'epoch': 9, 'arch': 'resnet18', 'state_dict': W, 'optimizer': O, 'version': 2, 'args': {}, 'amp_scaler': {}, "
     "'metric': 71.5, 'state_dict_ema': W}",
     "timm", NULL, -1, 9, 71.5, NULL, "--resume"},
    {"{'epoch': 9, 'arch': 'resnet18', 'optimizer': O, 'version': 2, 'state_dict': W, 'metric': 70.0, 'saver': "
     "{'best_metric': 71.5}}",
     "timm", NULL, -1, 9, 71.5, NULL, "--resume"},
    {"{'model': W, 'optimizer': O, 'lr_scheduler': {'last_epoch': 1}, 'epoch': 5, 'args': $argparse "
     "Namespace{'data_path': '/d', 'print_freq': 10, 'workers': 16}, 'scaler': {}}",
     "torchvision", NULL, -1, 5, NAN, NULL, "--resume"},
    {"{'epoch': 90, 'arch': 'resnet50', 'state_dict': W, 'best_acc1': T76.0, 'optimizer': O, 'scheduler': {}}",
     "ImageNet example", NULL, -1, 90, 76, NULL, "main.py --resume"},
    {"{'model': W, 'optimizer': O, 'scheduler': {'base_lrs': [0.1], 'last_epoch': 5}, 'iteration': 999}", "detectron2",
     NULL, 999, -1, NAN, NULL, "resume_or_load"},
    {"{'model': W, 'trainer': {'iteration': 999, 'hooks': {}, '_trainer': {'optimizer': O}}, 'iteration': 999}",
     "detectron2", NULL, 999, -1, NAN, NULL, "resume_or_load"},
    {"{'model': W, '__author__': 'Caffe2', 'matching_heuristics': y}", "detectron2", NULL, -1, -1, NAN, NULL,
     "load(\"{path}\")"},
    {"{'meta': {'mmengine_version': '0.10.4', 'epoch': 3, 'iter': 300}, 'state_dict': W, "
     "'message_hub': {'runtime_info': {'best_score': 0.75}}, 'optimizer': O, 'param_schedulers': []}",
     "mmengine", "0.10.4", 300, 3, 0.75, NULL, "cfg.load_from"},
    {"{'meta': {'mmcv_version': '1.7.1', 'epoch': 3, 'iter': 300}, 'state_dict': W, 'optimizer': O}", "mmcv", "1.7.1",
     300, 3, NAN, NULL, "runner.resume"},
    {"{'epoch': 7, 'best_fitness': 0.25, 'model': None, 'ema': $ultralytics.nn.tasks DetectionModel{'yaml': {}}, "
     "'updates': 10, 'optimizer': O, 'train_args': {}, 'train_metrics': {}, 'date': '2024', 'version': '8.2.0'}",
     "Ultralytics", "8.2.0", -1, 7, 0.25, NULL, "YOLO("},
    {"{'epoch': -1, 'best_fitness': None, 'model': $ultralytics.nn.tasks DetectionModel{'yaml': {}}, 'ema': None, "
     "'updates': None, "
     "'optimizer': None, 'train_args': {}, 'train_metrics': {}, 'date': '2024', 'version': '8.2.0'}", /* when it is finished */
     "Ultralytics", "8.2.0", -1, -1, NAN, NULL, "YOLO("},
    {"{'epoch': 7, 'best_fitness': 0.25, 'model': $models.yolo Model{'yaml': {}}, 'ema': None, 'updates': 10, 'optimizer': O}",
     "YOLOv5", NULL, -1, 7, 0.25, NULL, "train.py --resume"},
    {"{'args': $argparse Namespace{'tensor_model_parallel_size': 2, 'bf16': y}, 'checkpoint_version': 3.0, "
     "'iteration': 5, 'model': {}, 'rng_state': []}",
     "Megatron", NULL, 5, -1, NAN, "bf16", NULL},
    {"{'args': $argparse Namespace{'tensor_model_parallel_size': 1, 'bf16': y}, 'checkpoint_version': 3.0, "
     "'iteration': 5, 'model': {}, 'rng_state': []}",
     "Megatron", NULL, 5, -1, NAN, "bf16", "torch.load"},
    {"{'module': W, 'optimizer': None, 'global_steps': 12, 'skipped_steps': 0, 'ds_config': {}, 'ds_version': '0.14.2'}",
     "DeepSpeed", "0.14.2", 12, -1, NAN, NULL, "torch.load"},
    {"{'optimizer_state_dict': {'zero_stage': 2}, 'ds_config': {}, 'ds_version': '0.14.2'}", "DeepSpeed", "0.14.2", -1,
     -1, NAN, NULL, NULL},
    {"{'state': {'model': W, 'optimizers': {'Adam': O}, 'timestamp': {'epoch': 1, 'batch': 44}, 'rank_zero_seed': 17, "
     "'metadata': {'precision': 'amp_bf16'}}, 'rng': []}",
     "Composer", NULL, 44, 1, NAN, "amp_bf16", "load_path"},
    {"{'model': W, 'reporter': {'stats': {}, 'epoch': 6}, 'optimizers': [O], 'schedulers': [], 'scaler': None}",
     "ESPnet", NULL, -1, 6, NAN, NULL, "torch.load"},
    {"{'optimizer': O, 'seed': 7, 'epochs_run': 1, 'total_epochs': 3, 'max_steps_per_epoch': None, 'steps_run': 40}",
     "torchtune", NULL, 40, 1, NAN, NULL, "torch.load"},
    {"{'model': W, 'optimizer': O, 'trainer': {'epoch_length': 4, 'max_epochs': 2, 'iteration': 8}}", "Ignite", NULL, 8,
     -1, NAN, NULL, "Checkpoint.load_objects"},
    {"{'dims': {'n_mels': 80, 'n_audio_ctx': 1500}, 'model_state_dict': W}", "Whisper", NULL, -1, -1, NAN, NULL,
     "whisper.load_model"},
    {"{'model': W, 'optimizer': O, 'step': 3}", "torch", NULL, 3, -1, NAN, NULL,
     "model.load_state_dict(ckpt[\"model\"])"},
    {"W", "torch", NULL, -1, -1, NAN, NULL, "model.load_state_dict(torch.load("},
};

START_TEST(each_program)
{
    of_spec(programs[_i].spec);
    const char *producer = programs[_i].producer;
    ck_assert_pstr_eq(s.producer, producer);
    ck_assert_pstr_eq(s.producer_version.data, programs[_i].version);
    ck_assert_msg(s.step == programs[_i].step, "%s: step %lld", producer, (long long)s.step);
    ck_assert_msg(s.epoch_exact == programs[_i].epoch, "%s: epoch %g", producer, s.epoch_exact);
    ck_assert_msg(s.score.has_best == !isnan(programs[_i].best), "%s: score %d", producer, s.score.has_best);
    ck_assert_msg(!s.score.has_best || s.score.best == programs[_i].best, "%s: score %g", producer, s.score.best);
    ck_assert_pstr_eq(s.precision.data, programs[_i].precision);
    ck_assert_int_eq(s.bare, strcmp(programs[_i].spec, "W") == 0);
    if (reader->index->root->kind == CKPT_V_DICT) { /* among many keys a row finds its own all the same */
        ckpt_value more = with_many_keys(reader->index->root);
        ck_assert_ptr_eq(ckpt__producer_of_root(&more), look_up_each(&more));
    }
    if (!programs[_i].resume) { /* a part: nothing resumes from it alone */
        ck_assert_msg(!s.resume.data, "%s: %s", producer, s.resume.data);
        return;
    }
    ck_assert_msg(s.resume.data && strstr(s.resume.data, programs[_i].resume), "%s: %s", producer, s.resume.data);
    ck_assert_msg(strstr(s.resume.data, "{path}") && !strstr(s.resume.data, "{lines}"), "%s", s.resume.data);
}
END_TEST

/* Each lacks or has one thing: nobody but torch is named. */
static const char *const lookalikes[] = {
    "{'trainer': {'var': W, 'var_opt': {'optimizer': O}}, 'epoch': 3, 'iter': 7}",
    "{'trainer': {'var_wo_ddp': W}, 'epoch': 3}",
    "{'pytorch-lightning_version': '2.6.6', 'weights': W}",
    "{'pytorch-lightning_version': 2, 'state_dict': W, 'global_step': 1, 'epoch': 1}",
    "{'model': W, 'optimizer': O, 'model_args': {'dim': 2}, 'iter_num': 50, 'best_val_loss': 1.5, 'config': "
    "{}}", /* llama2.c */
    "{'model': W, 'optimizer': O, 'iter_num': 50, 'best_val_loss': 1.5, 'config': {}}",
    "{'model': W, 'optimizer_history': [], 'extra_state': {}, 'args': {}}",
    "{'model': W, 'optimizer_history': [{'num_updates': 3}], 'args': {}}",
    "{'epoch': 9, 'arch': 'x', 'state_dict': W, 'optimizer': O, 'metric': 1.0}",
    "{'epoch': 9, 'arch': 'x', 'state_dict': W, 'optimizer': O, 'version': 2, 'best': 1.0}",
    "{'model': W, 'optimizer': O, 'lr_scheduler': {}, 'epoch': 5, 'args': $argparse Namespace{'coco_path': "
    "'/d'}}", /* DETR */
    "{'model': W, 'optimizer': O, 'lr_scheduler': {}, 'epoch': 5, 'args': $argparse Namespace{'data_path': "
    "'/d', 'num_workers': 4}}", /* DeiT */
    "{'model': W, 'optimizer': O, 'lr_scheduler': {}, 'epoch': 5, 'args': {'data_path': '/d', 'print_freq': "
    "10, 'workers': 16}}",
    "{'epoch': 90, 'arch': 'x', 'state_dict': W, 'optimizer': O}", /* MoCo */
    "{'epoch': 90, 'arch': 'x', 'state_dict': W, 'best_acc1': 7.0, 'optimizer': O, 'queue': T0}",
    "{'model': W, 'optimizer': O, 'scheduler': {'base_lrs': [0.1], 'last_epoch': 5, '_step_count': 6}, "
    "'iteration': 999}",
    "{'model': W, 'optimizer': O, 'iteration': 999}",
    "{'model': W, '__author__': 'me'}",
    "{'meta': {'epoch': 3, 'iter': 300}, 'state_dict': W, 'optimizer': O}",
    "{'epoch': 7, 'best_fitness': 0.25, 'model': W, 'ema': None, 'updates': 10, 'optimizer': O, 'train_args': "
    "{}, 'date': '2024', 'version': '8'}",
    "{'epoch': 7, 'best_fitness': 0.25, 'model': $mine Model{'yaml': {}}, 'optimizer': O}",
    "{'args': {}, 'checkpoint_version': 3.0, 'iteration': 5, 'model': {}}",
    "{'ds_version': '0.14.2', 'weights': W}",
    "{'ds_config': {}, 'model': W}",
    "{'state': {'model': W, 'timestamp': 12}, 'rng': []}",
    "{'model': W, 'optimizers': [O], 'schedulers': []}",
    "{'dims': {'n_mels': 80}, 'model_state_dict': W}",
    "{'dims': {'n_mels': 80, 'n_audio_ctx': 1500}, 'model_state_dict': W, 'optimizer': O}",
    "[W, O]",
};

START_TEST(who_only_looks_so)
{
    of_spec(lookalikes[_i]);
    ck_assert_pstr_eq(s.producer, "torch");
    ck_assert(!s.bare);
}
END_TEST

/* Every row is by name in the list above, or is of a directory. */
START_TEST(no_row_is_untested)
{
    for (size_t i = 0; i < ckpt__producer_row_count; i++) {
        bool tested = ckpt__producer_rows[i].format != NULL;
        for (size_t k = 0; k < sizeof programs / sizeof *programs; k++)
            tested = tested || strcmp(programs[k].producer, ckpt__producer_rows[i].producer.name) == 0;
        ck_assert_msg(tested, "%s", ckpt__producer_rows[i].producer.name);
        ck_assert_ptr_nonnull(ckpt__producer_rows[i].producer.resume);
    }
}
END_TEST

/* ---- the training state */

START_TEST(classes_of_optimizers)
{
    static const struct {
        const char *group, *name;
    } rows[] = {
        {"'betas': [0.9], 'eps': 0.1, 'amsgrad': n, 'decoupled_weight_decay': y", "AdamW"},
        {"'betas': [0.9], 'eps': 0.1, 'amsgrad': n, 'decoupled_weight_decay': n", "Adam"},
        {"'betas': [0.9], 'eps': 0.1, 'amsgrad': n", "Adam or AdamW"},
        {"'betas': [0.9], 'eps': 0.1, 'momentum_decay': 0.1, 'decoupled_weight_decay': n", "NAdam"},
        {"'betas': [0.9], 'eps': 0.1, 'decoupled_weight_decay': n, 'capturable': n", "RAdam"},
        {"'momentum': 0.9, 'dampening': 0, 'nesterov': n", "SGD"},
        {"'lr_decay': 0, 'initial_accumulator_value': 0", "Adagrad"},
        {"'alpha': 0.9, 'centered': n", "RMSprop"},
        {"'betas': [0.9], 'weight_decay': 0.1", NULL},
        {"'momentum': 0.9", NULL},
        {"'betas': [0.9], 'eps': 0.1, 'amsgrad': n, 'grad_averaging': n", NULL}, /* NovoGrad */
        {"'betas': [0.9], 'eps': 0.1, 'maximize': n", "SparseAdam"},
        {"'betas': [0.9], 'eps': 0.1, 'maximize': n, 'weight_decay': 0", NULL},
    };
    char spec[400];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(spec, sizeof spec,
                 "{'model': W, 'optimizer': {'state': {}, 'param_groups': [{'lr': 0.5, %s, 'params': [0, 1]}]}}",
                 rows[i].group);
        of_spec(spec);
        ck_assert_pstr_eq(s.optimizer_class, rows[i].name);
        ck_assert_uint_eq(s.optimizer_count, 1);
    }
}
END_TEST

START_TEST(schedulers)
{
    of_spec(
        "{'net': W, 'sched': {'step_size': 30, 'gamma': 0.1, 'base_lrs': [0.1], 'last_epoch': 5, '_step_count': 6}, "
        "'other': {'_schedulers': [{'gamma': 0.5, 'base_lrs': [0.1], 'last_epoch': 2}], '_milestones': [3], 'last_epoch': 5, "
        "'_step_count': 6}}");
    ck_assert_str_eq(s.scheduler_path.data, "sched");
    ck_assert_pstr_eq(s.scheduler_class, "StepLR");
    ck_assert_uint_eq(s.scheduler_count, 2); /* what is inside one is its own */
    of_spec(
        "{'model': W, 'lr_scheduler': {'T_max': 50, 'eta_min': 0.0, 'base_lrs': [0.1], 'last_epoch': 5}, 'optimizer': O}");
    ck_assert_pstr_eq(s.scheduler_class, "CosineAnnealingLR");
    ck_assert_ptr_nonnull(strstr(s.resume.data, "scheduler.load_state_dict(ckpt[\"lr_scheduler\"])"));
    of_spec("{'model': W, 'mine': {'last_epoch': 5}}");
    ck_assert_ptr_null(s.scheduler);
    /* SequentialLR as torch writes it: neither base_lrs nor _step_count; ChainedScheduler: no last_epoch either */
    of_spec("{'model': W, 'optimizer': O, 'sched': {'_milestones': [2], 'last_epoch': 3, '_last_lr': [0.1], "
            "'_schedulers': [{'start_factor': 0.1, 'end_factor': 1.0, 'total_iters': 5, 'base_lrs': [0.1], "
            "'last_epoch': 1, '_step_count': 2}]}}");
    ck_assert_pstr_eq(s.scheduler_class, "SequentialLR");
    ck_assert_uint_eq(s.scheduler_count, 1);
    ck_assert_ptr_nonnull(strstr(s.resume.data, "scheduler.load_state_dict(ckpt[\"sched\"])"));
    of_spec(
        "{'model': W, 'sched': {'_last_lr': [0.1], '_schedulers': [{'gamma': 0.9, 'base_lrs': [0.1], 'last_epoch': 3}]}}");
    ck_assert_pstr_eq(s.scheduler_class, "ChainedScheduler");
    of_spec(
        "{'model': W, 'sched': {'anneal_epochs': 10, '_anneal_strategy': 'cos', 'base_lrs': [0.1], 'last_epoch': 3}}");
    ck_assert_pstr_eq(s.scheduler_class, "SWALR");
}
END_TEST

START_TEST(parameters_beside_their_state)
{
    of_spec("{'model': W, 'optimizer': O}");
    ck_assert(s.state.known);
    ck_assert_uint_eq(s.state.params, 2);
    ck_assert_uint_eq(s.state.without_state, 0);
    ck_assert_uint_eq(s.state.without_param, 0);
    of_spec("{'model': S, 'optimizer': O}"); /* a tie has the state of the other */
    ck_assert(s.state.known);
    ck_assert_uint_eq(s.state.params, 2);
    ck_assert_uint_eq(s.state.without_state, 0);
    of_spec(
        "{'model': W, 'optimizer': {'state': {0: {'exp_avg': T1.0}, 7: {'exp_avg': T1.0}}, 'param_groups': [{'lr': 0.5, "
        "'params': [0, 1], 'param_names': ['a.weight', 'a.bias']}]}}");
    ck_assert(s.state.known);
    ck_assert_uint_eq(s.state.without_state, 1);
    ck_assert_str_eq(s.state.without_names[0].data, "a.bias");
    ck_assert_ptr_null(s.state.without_names[1].data);
    ck_assert_uint_eq(s.state.without_param, 1); /* 7 is in no group */
    of_spec(
        "{'model': W, 'optimizer': {'state': {0: {'exp_avg': T1.0}, 1: {'exp_avg': T1.0}}, 'param_groups': [{'lr': 0.5, "
        "'params': [0, 1], 'param_names': ['a.weight', 'gone.bias']}]}}");
    ck_assert_uint_eq(s.state.without_param, 1);
    ck_assert_str_eq(s.state.without_param_names[0].data, "gone.bias");
    of_spec("{'model': W}");
    ck_assert(!s.state.known);
    /* one state for all parameters, or none at all: nothing is missing */
    of_spec(
        "{'model': W, 'optimizer': {'state': {0: {'d': T1.0}}, 'param_groups': [{'lr': 0.5, 'max_iter': 20, 'max_eval': "
        "25, 'history_size': 9, 'params': [0, 1]}]}}");
    ck_assert_pstr_eq(s.optimizer_class, "LBFGS");
    ck_assert(!s.state.known);
    of_spec(
        "{'net': W, 'opt': {'state': {}, 'param_groups': [{'momentum': 0, 'dampening': 0, 'nesterov': n, 'params': [0]}]}}");
    ck_assert(!s.state.known);
    of_spec("{'model': W, 'optimizer': {'state': {}, 'param_groups': [{'lr': 0.5, 'momentum': 0.9, 'dampening': 0, "
            "'nesterov': n, 'params': [0, 1]}]}}");
    ck_assert(s.state.known);
    ck_assert_uint_eq(s.state.without_state, 2);
}
END_TEST

START_TEST(averages_and_marks)
{
    of_spec(
        "{'epoch': 2, 'global_step': 8, 'pytorch-lightning_version': '2.6.6', 'state_dict': W, 'current_model_state': W}");
    ck_assert_str_eq(s.ema_path.data, "state_dict");
    ck_assert_uint_eq(s.ema_count, 2);
    of_spec("{'model': W, 'model_ema': W}");
    ck_assert_str_eq(s.ema_path.data, "model_ema");
    ck_assert_uint_eq(s.ema_count, 2);
    of_spec("{'model': W, 'swa_model': W, 'optimizer': O}");
    ck_assert_str_eq(s.ema_path.data, "swa_model");
    ck_assert_uint_eq(s.ema_count, 2);
    of_spec(
        "{'model': W, 'ema': {'decay': 0.9, 'num_updates': 1, 'shadow_params': [T1.0, T1.0]}}"); /* torch_ema, Diffusers */
    ck_assert_str_eq(s.ema_path.data, "ema");
    ck_assert_uint_eq(s.ema_count, 2);
    of_spec("{'model': W, 'callbacks': {'best_k_models': {'/runs/a.ckpt': T0.5}}}"); /* scores, no weights */
    ck_assert_int_eq(ckpt_reader_tensor(reader, 2)->role, CKPT_ROLE_OTHER);
    of_spec("{'model': W}");
    ck_assert_uint_eq(s.ema_count, 0);
    ck_assert_ptr_null(s.marks.data);
    of_spec("{'fc.weight': T1.0, 'fc.weight.absmax': T1.0, 'fc.weight.quant_state.bitsandbytes__nf4': T1.0}");
    ck_assert_str_eq(s.marks.data, "bitsandbytes 4-bit weights (nf4)");
    of_spec("{'optimizer': {'state': {0: {'state1': T1.0, 'qmap1': T1.0, 'absmax1': T1.0}}, 'param_groups': "
            "[{'params': [0]}]}}");
    ck_assert_str_eq(s.marks.data, "bitsandbytes 8-bit optimizer");
    of_spec("{'fc.weight': T1.0, 'fc.SCB': T1.0}"); /* the weight is no int8 */
    ck_assert_ptr_null(s.marks.data);
}
END_TEST

START_TEST(several_optimizers)
{
    of_spec("{'gen': W, 'opt_g': O, 'disc': W, 'opt_d': O}");
    ck_assert_uint_eq(s.optimizer_count, 2);
    ck_assert_str_eq(s.optimizer_path.data, "opt_g");
    ck_assert(!s.state.known);
    of_spec(
        "{'model': W, 'b': {'state': {}, 'param_groups': [{'alpha': 0.9, 'centered': n, 'params': [0]}]}, 'opt': O}");
    ck_assert_uint_eq(s.optimizer_count, 2);
    ck_assert_str_eq(s.optimizer_path.data, "b"); /* the first, whichever fits the model */
    ck_assert_pstr_eq(s.optimizer_class, "RMSprop");
    ck_assert_pstr_eq(s.optimizer_kind.data, "plain");
    ck_assert_ptr_null(strstr(s.resume.data, "optimizer."));   /* which is whose is not known */
    of_spec("{'model': W, 'optimizer': O, 'optimizer.d': O}"); /* beside it, and not in it */
    ck_assert_uint_eq(s.optimizer_count, 2);
    ck_assert_ptr_null(strstr(s.resume.data, "optimizer.load"));
}
END_TEST

/* ---- ours, made from theirs */

START_TEST(a_migrated_file_keeps_its_producer)
{
    of_spec(programs[1].spec);
    ck_assert_int_eq(ckpt_migrate(at("x.pt"), at("x.ckpt"), &(ckpt_migrate_options){.to = "ckpt"}, NULL, &err),
                     CKPT_OK);
    summarize(at("x.ckpt"));
    ck_assert_str_eq(ckpt_reader_format(reader), "ckpt");
    ck_assert_str_eq(s.producer, "Lightning");
    ck_assert_str_eq(s.producer_version.data, "2.6.6");
    ck_assert(s.rewritten);
    ck_assert_int_eq(s.step, 8);
    ck_assert_int_eq(s.epoch, 2);
    ck_assert(s.score.has_best && s.score.best == 0.5);
    ck_assert_ptr_nonnull(strstr(s.resume.data, "ckpt_restore")); /* Lightning does not read it */
    of_spec("{'model': W, 'optimizer': O}");
    ck_assert_int_eq(ckpt_migrate(at("x.pt"), at("y.ckpt"), &(ckpt_migrate_options){.to = "ckpt"}, NULL, &err),
                     CKPT_OK);
    summarize(at("y.ckpt"));
    ck_assert_str_eq(s.producer, "ckpt");
    ck_assert(!s.rewritten);
}
END_TEST

/* ---- directories */

static void folder_of(const char *name, const char *file, const char *text)
{
    make_directory(name);
    write_text(at("%s/%s", name, file), text);
}

/* The calls were run with Keras 3.15 and torch 2.13: each loads what the line names. torch.load loads none of these. */
static const struct {
    const char *path, *producer, *resume;
    bool versioned;
} others[] = {
    {"dcp/cut", "torch.distributed.checkpoint",
     "torch.distributed.checkpoint.load(state_dict, checkpoint_id=\"{path}\")", false},
    {"dcp/ranks", "torch.distributed.checkpoint", "checkpoint_id=", false},
    {"dcp/shards", "torch.distributed.checkpoint", "storage_reader=HuggingFaceStorageReader(\"{path}\")", false},
#ifdef HAVE_HDF5
    {"keras/small.keras", "Keras", "keras.models.load_model(\"{path}\")", true},
    {"keras/small.h5", "Keras", "keras.models.load_model(\"{path}\")", true},
    {"keras/module.weights.h5", "Keras", "model.load_weights(\"{path}\")", false},
    {"keras/shards", "Keras", "model.load_weights(glob.glob(\"{path}/*.weights.json\")[0])", false},
    {"keras/shards/small.weights.json", "Keras", "model.load_weights(\"{path}\")", false},
#endif
};

START_TEST(keras_and_distributed_checkpoints)
{
    char path[700];
    char *snippet = NULL;
    const char *top = getenv("srcdir");
    ckpt_report *report = ckpt_report_new();
    ckpt_doctor_options options = {.loader = CKPT_LOADER_TORCH};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    snprintf(path, sizeof path, "%s/tests/data/%s", top ? top : ".", others[_i].path);
    summarize(path);
    ck_assert_pstr_eq(s.producer, others[_i].producer);
    ck_assert_msg(s.resume.data && strstr(s.resume.data, others[_i].resume), "%s: %s", path, s.resume.data);
    ck_assert_int_eq(s.producer_version.data != NULL, others[_i].versioned);
    ck_assert_int_eq(ckpt_doctor(reader, &options, &result, report, &err), CKPT_OK);
    ck_assert_int_eq(result.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "not-its-format", NULL));
    ck_assert_int_eq(ckpt_doctor_snippet(reader, "torch", NULL, &snippet, &err), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, "does not read this"), "%s", err.message);
    ckpt_status in_c = ckpt_doctor_snippet(reader, "c", NULL, &snippet, &err);
    ck_assert_msg(in_c == CKPT_OK || in_c == CKPT_E_MISMATCH, "%s", err.message); /* an optimizer without names */
    free(snippet);
    ckpt_doctor_result_clear(&result);
    ckpt_report_free(report);
}
END_TEST

START_TEST(directories)
{
    folder_of("pipe", "model_index.json",
              "{\"_class_name\": \"P\", \"_diffusers_version\": \"0.30.0\", \"unet\": [\"diffusers\", \"U\"]}");
    make_directory("pipe/unet");
    write_safetensors(at("pipe/unet/diffusion_pytorch_model.safetensors"), shapes, 2, 0);
    summarize(at("pipe"));
    ck_assert_str_eq(s.producer, "Diffusers");
    ck_assert_str_eq(s.producer_version.data, "0.30.0");
    ck_assert_ptr_nonnull(strstr(s.resume.data, "DiffusionPipeline"));
    folder_of("bert", "config.json", "{\"model_type\": \"bert\", \"transformers_version\": \"5.1.0\"}");
    write_safetensors(at("bert/model.safetensors"), shapes, 2, 0);
    summarize(at("bert"));
    ck_assert_str_eq(s.producer, "Hugging Face");
    ck_assert_str_eq(s.producer_version.data, "5.1.0");
    ck_assert_str_eq(s.version_of.data, "transformers");
    ck_assert_str_eq(s.resume.data, "AutoModel.from_pretrained(\"{path}\")");
    /* the class with its head, which AutoModel would leave out; a name that is none is not printed */
    write_text(at("bert/config.json"), "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"]}");
    summarize(at("bert"));
    ck_assert_str_eq(s.resume.data, "transformers.LlamaForCausalLM.from_pretrained(\"{path}\")");
    write_text(at("bert/config.json"), "{\"model_type\": \"x\", \"architectures\": [\"A; import os\"]}");
    summarize(at("bert"));
    ck_assert_str_eq(s.resume.data, "AutoModel.from_pretrained(\"{path}\")");
    write_text(at("bert/config.json"), "{\"architectures\": [\"MyModel\"], \"auto_map\": {\"AutoConfig\": \"m.C\", "
                                       "\"AutoModelForCausalLM\": \"m.MyModel\"}}");
    summarize(at("bert"));
    ck_assert_str_eq(s.resume.data, "transformers.AutoModelForCausalLM.from_pretrained(\"{path}\")");
    write_text(at("bert/config.json"), "{\"model_type\": \"bert\", \"transformers_version\": \"5.1.0\"}");
    write_text(at("bert/config_sentence_transformers.json"),
               "{\"__version__\": {\"sentence_transformers\": \"3.0.1\"}}");
    summarize(at("bert"));
    ck_assert_str_eq(s.producer, "sentence-transformers");
    ck_assert_str_eq(s.producer_version.data, "3.0.1");
    make_directory("weights"); /* no config: whose it is is not known */
    write_safetensors(at("weights/model.safetensors"), shapes, 2, 0);
    summarize(at("weights"));
    ck_assert_ptr_null(s.producer);
    folder_of("timm", "config.json", "{\"architecture\": \"resnet10t\", \"pretrained_cfg\": {\"tag\": \"\"}}");
    write_safetensors(at("timm/model.safetensors"), shapes, 2, 0);
    summarize(at("timm"));
    ck_assert_str_eq(s.producer, "timm");
    folder_of("lora", "adapter_config.json", "{\"peft_type\": \"LORA\", \"peft_version\": \"0.12.0\"}");
    write_safetensors(at("lora/adapter_model.safetensors"), shapes, 2, 0);
    summarize(at("lora"));
    ck_assert_str_eq(s.producer, "PEFT");
    ck_assert_str_eq(s.producer_version.data, "0.12.0");
    ck_assert_str_eq(s.marks.data, "PEFT LORA adapter");
    make_directory("diffusers");
    write_safetensors(at("diffusers/pytorch_lora_weights.safetensors"), shapes, 2, 0);
    summarize(at("diffusers"));
    ck_assert_str_eq(s.producer, "Diffusers");
    ck_assert_str_eq(s.resume.data, "pipeline.load_lora_weights(\"{path}\")");
    make_directory("one");
    write_spec(at("one/last.ckpt"), programs[1].spec);
    summarize(at("one"));
    ck_assert_str_eq(s.producer, "Lightning");
    ck_assert_str_eq(s.resume_file.data, "last.ckpt");
    ck_assert_int_eq(s.step, 8);
    make_directory("plain"); /* whose file is torch's and no more */
    write_spec(at("plain/x.pt"), "{'model': W, 'optimizer': O, 'step': 3}");
    summarize(at("plain"));
    ck_assert_str_eq(s.producer, "torch");
    ck_assert_str_eq(s.resume_file.data, "x.pt");
    ck_assert_int_eq(s.step, 3);
}
END_TEST

START_TEST(a_trainers_epoch_and_score)
{
    folder_of("c", "trainer_state.json",
              "{\"epoch\": 1.25, \"global_step\": 50, \"best_metric\": 0.5, \"log_history\": [{\"eval_loss\": 0.5, "
              "\"step\": 25}, {\"eval_loss\": 0.75, \"step\": 50}, {\"loss\": 9.0}]}");
    write_safetensors(at("c/model.safetensors"), shapes, 2, 0);
    summarize(at("c"));
    ck_assert_str_eq(s.producer, "HF Trainer");
    ck_assert_int_eq(s.epoch, 1);
    ck_assert(s.epoch_exact == 1.25);
    ck_assert(s.score.has_best && s.score.best == 0.5 && s.score.has_current && s.score.current == 0.75);
    ck_assert_str_eq(s.score.name.data, "eval_loss");
}
END_TEST

/* Counts that a trainer keeps as a tensor or as numpy's. */
START_TEST(counts_that_are_no_plain_numbers)
{
    of_spec("{'model': W, 'step': I42, 'epoch': A3}");
    ck_assert_int_eq(s.step, 42);
    ck_assert_int_eq(s.epoch, 3);
    ck_assert(s.epoch_exact == 3);
    of_spec("{'model': W, 'iteration': A7, 'epoch': I0}");
    ck_assert_int_eq(s.step, 7);
    ck_assert_int_eq(s.epoch, 0);
    of_spec("{'trainer': {'config': {}, 'var_wo_ddp': W, 'vae_local': W, 'var_opt': {'optimizer': O}}, 'epoch': A2, "
            "'iter': I9007199254740993}");
    ck_assert_str_eq(s.producer, "VAR");
    ck_assert(s.step == INT64_C(9007199254740993)); /* not by way of a double */
    ck_assert_int_eq(s.epoch, 2);
    of_spec("{'model': W, 'step': I-1, 'epoch': T1.0}"); /* neither is a count */
    ck_assert_int_eq(s.step, -1);
    ck_assert_int_eq(s.epoch, -1);
    of_spec("{'model': W, 'global_step': I7, 'step': I5}"); /* the one that a restore takes */
    ck_assert_int_eq(s.step, 5);
    make_directory("counted");
    write_spec(at("counted/x.pt"), "{'model': W, 'optimizer': O, 'global_step': I5}");
    summarize(at("counted"));
    ck_assert_int_eq(s.step, 5);
}
END_TEST

/* A directory of several is none of them. */
START_TEST(unrelated_files_are_not_one)
{
    make_directory("two");
    write_spec(at("two/last.pt"), "{'model': W, 'step': 1}");
    write_spec(at("two/model.pt"), "W");
    ck_assert_int_eq(ckpt_reader_open(at("two"), NULL, &reader, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "several checkpoints, such as last.pt and model.pt"));
    make_directory("run");
    make_directory("run/checkpoint-5");
    make_directory("run/checkpoint-6");
    write_spec(at("run/training_args.bin"), "$transformers.training_args TrainingArguments{'a': 1}");
    ck_assert_int_eq(ckpt_reader_open(at("run"), NULL, &reader, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "such as checkpoint-5 and checkpoint-6"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("producer");
    TCase *t = tcase_create("producer");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, each_program, 0, (int)(sizeof programs / sizeof *programs));
    tcase_add_loop_test(t, who_only_looks_so, 0, (int)(sizeof lookalikes / sizeof *lookalikes));
    tcase_add_test(t, no_row_is_untested);
    tcase_add_test(t, classes_of_optimizers);
    tcase_add_test(t, schedulers);
    tcase_add_test(t, parameters_beside_their_state);
    tcase_add_test(t, averages_and_marks);
    tcase_add_test(t, several_optimizers);
    tcase_add_test(t, a_migrated_file_keeps_its_producer);
    tcase_add_loop_test(t, keras_and_distributed_checkpoints, 0, (int)(sizeof others / sizeof *others));
    tcase_add_test(t, directories);
    tcase_add_test(t, a_trainers_epoch_and_score);
    tcase_add_test(t, counts_that_are_no_plain_numbers);
    tcase_add_test(t, unrelated_files_are_not_one);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
