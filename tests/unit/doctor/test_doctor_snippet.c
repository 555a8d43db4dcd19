/* test_doctor_snippet.c - the resume that doctor prints: paths, groups and flags are those of the file. That it
 * compiles and runs is tests/interop/snippet.py's to show. */
#include <errno.h>
#include "doctor_files.h"

static char *snippet_of(const char *path, const char *language, const ckpt_doctor_options *options)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    char *text = NULL;
    ck_assert_int_eq(ckpt_reader_open(path, NULL, &reader, &err), CKPT_OK);
    ck_assert_msg(ckpt_doctor_snippet(reader, language, options, &text, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt_doctor_snippet(reader, "rust", options, &text, &err), CKPT_E_ARGUMENT);
    ckpt_reader_close(reader);
    return text;
}

#define HAS(text, part) ck_assert_msg(strstr(text, part) != NULL, "no %s in %s", part, text)
#define LACKS(text, part) ck_assert_msg(strstr(text, part) == NULL, "%s in %s", part, text)

START_TEST(in_python)
{
    write_object(at("it's.pt"),
                 "{'t':{'net':{'a':f32@cuda:0[2,3],'b':f32@cuda:0[3]}," OPTIMIZER(
                     "f32@cuda:0[]", "cuda:0",
                     "'amsgrad':False,'fused':True,") ",'amp':{'scale':2.0,'growth_factor':2.0,'backoff_factor':0.5,'"
                                                      "growth_interval':20,'_growth_tracker':1},"
                                                      "'lr_sched':{'base_lrs':[0.1],'last_epoch':3,'_step_count':4}},'"
                                                      "rng':u8@cpu[5056]}",
                 NULL);
    char *s = snippet_of(at("it's.pt"), "torch", NULL);
    HAS(s, "it\\'s.pt'");
    HAS(s, "['a', 'b'],");
    HAS(s, "torch.optim.AdamW(groups, lr=0.1, fused=True)");
    HAS(s, "torch.load(PATH, map_location='cpu', weights_only=True)");
    HAS(s, "weights = checkpoint['t']['net']\n");
    HAS(s, "optimizer.load_state_dict(checkpoint['t']['optimizer'])");
    HAS(s, "scaler.load_state_dict(checkpoint['t']['amp'])");
    HAS(s, "scheduler.load_state_dict(checkpoint['t']['lr_sched'])");
    HAS(s, "torch.set_rng_state(checkpoint['rng'].cpu())");
    HAS(s, "assert sizes == [2]");
    ck_assert(strstr(s, "model.to(device)") < strstr(s, "optimizer = make_optimizer(model)"));
    ck_assert(strstr(s, "scheduler = make_scheduler(optimizer)") < strstr(s, "optimizer.load_state_dict"));
    LACKS(s, "weights_only=False");
    free(s);
}
END_TEST

/* A ChainedScheduler counts no epochs itself: its dict is loaded, and not that of the first scheduler in it. */
START_TEST(of_a_chain)
{
    write_object(
        at("x.pt"),
        "{'model':{'a':f32@cpu[2,3],'b':f32@cpu[3]}," OPTIMIZER(
            "f32@cpu[]", "cpu", "'amsgrad':False,") ",'scheduler':{'_last_lr':[0.1],'_schedulers':[{'base_lrs':["
                                                    "0.1],'last_epoch':3,'_step_count':4,'_last_lr':[0.1]}]}}",
        NULL);
    char *s = snippet_of(at("x.pt"), "torch", NULL);
    HAS(s, "scheduler.load_state_dict(checkpoint['scheduler'])");
    free(s);
}
END_TEST

/* What is not in the file is not in the snippet. */
START_TEST(in_python_neighbour)
{
    write_object(at("x.pt"), "{'model':{'module.a':f32@cpu[2,3]},'args':new argparse:Namespace}", NULL);
    char *s = snippet_of(at("x.pt"), "torch", NULL);
    HAS(s, "weights_only=False");
    HAS(s, "argparse.Namespace");
    HAS(s, "bare(name): value for name");
    LACKS(s, "optimizer.load_state_dict");
    LACKS(s, "set_rng_state");
    LACKS(s, "scheduler.load_state_dict");
    free(s);
}
END_TEST

START_TEST(in_c)
{
    write_object(at("x.pt"), FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), NULL);
    char *s = snippet_of(at("x.pt"), "c", NULL);
    HAS(s, "source: {model: model, optimizer: optimizer}");
    HAS(s, "default: cuda:0");
    HAS(s, "options.optimizer = CKPT_OPTIMIZER_FUSED;");
    HAS(s, "ckpt_guard(state, CKPT_OPTIMIZER_FUSED,");
    free(s);
    write_object(at("x.pt"), PLAIN, NULL);
    s = snippet_of(at("x.pt"), "c", NULL);
    HAS(s, "default: cpu");
    HAS(s, "options.optimizer = CKPT_OPTIMIZER_PLAIN;");
    free(s);
}
END_TEST

/* By the resume hook: of the run that the checkpoint lies in, whichever rank's it is. */
START_TEST(in_c_of_a_run)
{
    static const char *const ways[] = {"step-1", "rank-00003/step-1", "step-1/", "rank-00003//step-1//"};
    char path[500];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ck_assert(mkdir(at("%.*s", (int)strcspn(ways[i], "/"), ways[i]), 0700) == 0 || errno == EEXIST);
        ck_assert(mkdir(at("%s", ways[i]), 0700) == 0 || errno == EEXIST);
        write_object(at("%s/x.pt", ways[i]), FILE_OF("f32@cpu[]", "cuda:0", "'fused':True,"), NULL);
        char *s = snippet_of(at("%s", ways[i]), "run", NULL);
        snprintf(path, sizeof path, "path[] = \"%s\", map_location[] = \"cuda:0\";", folder);
        HAS(s, path);
        HAS(s, "ckpt_run_open(path, state, options, run, &err)");
        HAS(s, "restore.optimizer = CKPT_OPTIMIZER_FUSED;");
        HAS(s, "ckpt_guard(state, CKPT_OPTIMIZER_FUSED,");
        LACKS(s, "ckpt_restore(");
        free(s);
    }
}
END_TEST

START_TEST(for_frameworks)
{
    ckpt_doctor_options options = {.loader = CKPT_LOADER_LIGHTNING};
    write_object(
        at("x.pt"),
        "{'pytorch-lightning_version':'2.6.6','state_dict':{'a':f32@cpu[2,3]},'Old':{'scale':2.0,'growth_factor':2.0,"
        "'backoff_factor':0.5,'growth_interval':20,'_growth_tracker':1}}",
        NULL);
    char *s = snippet_of(at("x.pt"), "torch", &options);
    HAS(s, "trainer.fit(model, ckpt_path=PATH, **data)");
    HAS(s, "checkpoint['native_amp_scaling_state'] = checkpoint.pop('Old')");
    free(s);
    options.loader = CKPT_LOADER_ACCELERATE;
    s = snippet_of(at("x.pt"), "torch", &options);
    HAS(s, "accelerator.load_state(PATH)");
    free(s);
    options.loader = CKPT_LOADER_HF_TRAINER;
    s = snippet_of(at("x.pt"), "torch", &options);
    HAS(s, "trainer.train(resume_from_checkpoint=PATH)");
    free(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("doctor_snippet");
    TCase *t = tcase_create("doctor_snippet");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, in_python);
    tcase_add_test(t, of_a_chain);
    tcase_add_test(t, in_python_neighbour);
    tcase_add_test(t, in_c);
    tcase_add_test(t, in_c_of_a_run);
    tcase_add_test(t, for_frameworks);
    suite_add_tcase(s, t);
    return run_suite(s);
}
