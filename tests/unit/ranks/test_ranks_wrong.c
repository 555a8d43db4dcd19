/* test_ranks_wrong.c - files of ranks that are not what their layout says, and layouts that say nothing that could be: what is wrong is
 * named, with the file or the line, and nothing is put together. */
#include "ranks_read.h"

/* Four ranks, or eight in a pipeline, whose layers have two tensors that tp cuts. */
static training plain(void)
{
    training t = {.sizes = {1, 2, 2}, .align = 1, .multiple = 1};
    t.count = 3;
    t.tensors[0] = (logical){.name = "w0", .layer = -1, .ndim = 2, .shape = {4, 6}, .cut_count = 1};
    t.tensors[0].cuts[0] = (cut){.axis = 2, .dim = 1, .as = CKPT__CUT_AS_EVEN, .groups = 1};
    t.tensors[1] = (logical){.name = "w1", .layer = -1, .ndim = 1, .shape = {5}};
    t.tensors[2] = (logical){.name = "w2", .layer = -1, .ndim = 2, .shape = {3, 2}};
    return t;
}

static training pipeline(void)
{
    training t = plain();
    t.sizes[0] = 2;
    t.stages = t.local = true;
    t.layers_of[0] = t.layers_of[1] = 1;
    t.count = 4;
    t.tensors[1] = (logical){.name = "layers.0.a", .layer = 0, .tail = "a", .ndim = 2, .shape = {4, 4}};
    t.tensors[2] = (logical){.name = "layers.1.a", .layer = 1, .stage = 1, .tail = "a", .ndim = 2, .shape = {4, 4}};
    t.tensors[3] = (logical){.name = "w1", .layer = -1, .stage = 1, .ndim = 1, .shape = {5}};
    return t;
}

static training flatly(void)
{
    training t = plain();
    t.flat = true;
    t.align = 4;
    t.multiple = 2;
    return t;
}

/* The text with `from` in the place of `to`, once. */
static const char *with(const char *text, const char *from, const char *to)
{
    static char out[TEXT + 400];
    const char *place = strstr(text, from);
    ck_assert_msg(place != NULL, "no '%s' in:\n%s", from, text);
    snprintf(out, sizeof out, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    return out;
}

/* Of the folder "run", for what it says. */
static ckpt_status tried(const char *text)
{
    ckpt__source *source;
    ckpt__index *index;
    const ckpt_status status = put_together(text, "run", NULL, 0, &source, &index);
    ckpt__index_free(index);
    ckpt__source_close(source);
    return status;
}

static void good(const char *text)
{
    const ckpt_status status = tried(text);
    ck_assert_msg(status == CKPT_OK, "%s: %s\n%s", err.object, err.message, text);
}

/* words: in the object, the message or a finding, all of them; "|" parts them. */
static void refused(const char *text, const char *words)
{
    const ckpt_status status = tried(text);
    char said[1 << 13] = "", list[400];
    size_t n = (size_t)snprintf(said, sizeof said, "%s: %s", err.object, err.message);
    for (size_t i = 0; i < ckpt_report_count(report) && n < sizeof said; i++)
        n += (size_t)snprintf(said + n, sizeof said - n, "\n%s: %s", ckpt_report_get(report, i)->tensor,
                              ckpt_report_get(report, i)->message);
    ck_assert_msg(status < 0, "it was put together, and not: %s", words);
    snprintf(list, sizeof list, "%s", words);
    for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|"))
        ck_assert_msg(strstr(said, word) != NULL, "no '%s' in: %s", word, said);
}

static const char *written(const training *t)
{
    write_training(t, "run");
    return layout_of(t);
}

static void anew(void)
{
    teardown();
    setup();
}

/* ---- files */

START_TEST(files)
{
    training t = plain();
    const char *text = written(&t);
    good(text);
    ck_assert_ptr_null(ckpt_report_find(report, "ranks-counted", NULL));
    good(with(text, "dp: 2", "dp: files")); /* replicas: none of them is missed */
    ck_assert_ptr_null(ckpt_report_find(report, "ranks-counted", NULL));
    good(with(text, "tp: 2", "tp: files"));
    const ckpt_finding *counted = ckpt_report_find(report, "ranks-counted", NULL);
    ck_assert(counted && counted->severity == CKPT_SEVERITY_WARNING && strstr(counted->message, "tp is 2") &&
              strstr(counted->fix, "mesh: {tp: 2}"));
    rename(at("run/all_0/dp1_tp_00.pt"), at("run/all_0/dp2_tp_00.pt"));
    refused(
        text,
        "all_0/dp2_tp_00.pt: its name says dp 2, and the mesh has dp 0 to 1|all_0/dp1_tp_00.pt: it is missing, with what rank 2 "
        "(pp=0, dp=1, tp=0) has of the tensors");
    refused(with(text, "dp: 2", "dp: files"), "all_0/dp1_tp_00.pt: it is missing");
    unlink(at("run/all_0/dp2_tp_00.pt"));
    refused(text, "all_0/dp1_tp_00.pt: it is missing");
    write_text(at("run/all_0/dp1_tp_00.pt"), "no archive");
    refused(text, "dp1_tp_00.pt");
    refused(with(text, "all_<pp>", "none_<pp>"), "it has no file with a name such as none_<pp>/dp<dp>_tp_<tp:02>.pt");
    refused(with(text, "dp<dp>_tp_<tp:02>.pt", "dp<dp>_tp_<tp>.pt"), "it has no file"); /* zeros in front are a width */

    anew();
    t = plain();
    t.by_rank = true;
    text = written(&t);
    good(text);
    refused(with(text, "tp: 2", "tp: 1"), "all_002.pt: its name says rank 2, and the mesh has the ranks 0 to 1");
    good(with(text, "all_<rank:03>.pt", "all_0<rank:02>.pt"));
    refused(with(text, "all_<rank:03>.pt", "all_<rank:04>.pt"), "it has no file with a name such as all_<rank:04>.pt");
}
END_TEST

/* ---- what the ranks have */

static void lie(training t, const char *words)
{
    anew();
    refused(written(&t), words);
}

START_TEST(parts)
{
    training t = plain();
    t.drifted = 3;
    lie(t,
        "w0: all_0/dp1_tp_00.pt: rank 2 (pp=0, dp=1, tp=0) has other elements of it than rank 0 (pp=0, dp=0, tp=0) in "
        "all_0/dp0_tp_00.pt, from element 0");
    t.first = true;
    anew();
    good(written(&t));

    t = plain();
    t.shorter = 2;
    lie(t,
        "all_0/dp0_tp_01.pt: rank 1 (pp=0, dp=0, tp=1) has [3, 3] of it, and by the cuts in line 9 it would have [4, 3] of the whole, "
        "which is [4, 6]");
    t = plain();
    t.other_dtype = 4;
    lie(t, "w0: all_0/dp1_tp_01.pt: the dtype is int64 in it, and float32 in all_0/dp0_tp_00.pt");
    t = plain();
    t.lacks = 2;
    lie(t, "model.w0: all_0/dp0_tp_01.pt: there is none in it, and there is one in all_0/dp0_tp_00.pt");
    t = plain();
    t.has_more = 4;
    lie(t, "model.extra: all_0/dp0_tp_00.pt: there is none in it, and there is one in all_0/dp1_tp_01.pt");
}
END_TEST

START_TEST(values)
{
    training t = plain();
    t.other_step = 2;
    lie(t, "step: all_0/dp0_tp_01.pt: rank 1 (pp=0, dp=0, tp=1) has another one than rank 0 (pp=0, dp=0, tp=0) in "
           "all_0/dp0_tp_00.pt: these are not files of one step");
    t = plain();
    t.other_lr = 3;
    lie(t, "optim.param_groups.0.lr: all_0/dp1_tp_00.pt|an optimizer has the same settings on all ranks");

    t = plain(); /* what a rank may have for itself is kept */
    t.other_note = t.other_rng = 2;
    anew();
    good(written(&t));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "ranks-differ", NULL));
    refused(with(layout_of(&t), "    shard:", "    own: [note, nothing]\n    shard:"),
            "name 2 of 'own' is that of nothing");
    good(with(layout_of(&t), "    shard:", "    own: [note, rng]\n    shard:"));
    refused(with(layout_of(&t), "    shard:", "    own: [rng, note, step]\n    shard:"),
            "line 8, column 10: name 3 of 'own'");
}
END_TEST

/* ---- layouts that are not those of the files */

START_TEST(cuts)
{
    training t = plain();
    const char *text = written(&t);
    refused(with(text, "name: w1", "name: w3"),
            "w1: no entry of 'shard' has the name 'w1'|mine.yaml: line 10, column 7: no tensor of the "
            "files has a name of this entry|optimizer.w1.exp_avg: no entry");
    good(with(text, "    - {name: w1, cuts: []}",
              "    - {name: w1, cuts: []}\n    - {name: w9, cuts: [], optional: true}"));
    refused(with(text, "dim: 1", "dim: 2"),
            "w0: all_0/dp0_tp_00.pt: it has 2 dimensions, and the layout cuts dimension 2 (from 0)");
    refused(with(text, "axis: tp, dim: 1, as: even", "axis: dp, dim: 1, as: even"),
            "w0|rank 1 (pp=0, dp=0, tp=1) has other elements of it than rank 0");
    refused(with(text, "as: even", "as: [4, 2]"),
            "w0: all_0/dp0_tp_00.pt: rank 0 (pp=0, dp=0, tp=0) has [4, 3] of it, and by the cuts in "
            "line 9 it would have [4, 4]");
    refused(with(text, "as: even", "as: [4, 3]"),
            "w0: all_0/dp0_tp_00.pt: it is [4, 6] in all files together: tp cuts dimension 1");
    refused(with(text, "as: even", "as: even, segments: {sizes: [3, 3]}"),
            "w0: all_0/dp0_tp_00.pt: it is [4, 6]|its 3 elements are not a multiple of 2");
    refused(with(text, "as: even", "as: ceil, segments: {sizes: [2, 3]}"),
            "w0: all_0/dp0_tp_00.pt: it is [4, 6]|segments");
    anew();
    t = plain();
    t.tensors[2].cuts[0] = (cut){.axis = 2, .dim = 0, .as = CKPT__CUT_AS_CEIL, .groups = 1};
    t.tensors[2].cut_count = 1;
    text = written(&t);
    good(text);
    refused(with(text, "dim: 0, as: ceil", "dim: 0, as: even"),
            "w2: all_0/dp0_tp_00.pt: it is [3, 2] in all files together: tp cuts "
            "dimension 0");
    anew();
    t = plain();
    t.tensors[2].cuts[0] = (cut){.axis = 2, .dim = 0, .as = CKPT__CUT_AS_BALANCED, .groups = 1};
    t.tensors[2].cut_count = 1;
    t.tensors[2].shape[0] = 5;
    t.tensors[0].cuts[0].as = CKPT__CUT_AS_CEIL;
    t.sizes[2] = 4; /* 2, 1, 1, 1; and in chunks 2, 2, 1, 0 */
    text = written(&t);
    good(text);
    refused(with(text, "dim: 0, as: balanced", "dim: 0, as: ceil"),
            "w2: all_0/dp0_tp_01.pt: rank 1 (pp=0, dp=0, tp=1) has [1, 2] of it, "
            "and by the cuts in line 11 it would have [2, 2]");
    anew();
    t = plain();
    t.two = true;
    text = written(&t);
    good(text);
    refused(with(text, "axis: tp, dim: 1", "axis: dp, dim: 1"),
            "w0: model_0/tp_00.pt: the axis 'dp' cuts it, and the names "
            "model_<pp>/tp_<tp:02>.pt of its files do not have <dp>");
}
END_TEST

START_TEST(stages)
{
    training t = pipeline();
    const char *text = written(&t);
    good(text);
    refused(
        with(text, ", local: true, layers: \"layers.<i>.<r:rest>\"", ""),
        "model.layers.0.a: all_1/dp0_tp_00.pt: rank 4 (pp=1, dp=0, tp=0) has another one than rank 0 (pp=0, dp=0, tp=0) in "
        "all_0/dp0_tp_00.pt, under the same name|'shared'|'local: true'");
    refused(with(text, "layers.<i>.<r:rest>\"", "layers.<i>.<r:rest>\", sizes: [1, 2]"),
            "line 8, column 13: the files of stage 1 have 1 layers, and the layout says 2");
    good(with(text, "layers.<i>.<r:rest>\"", "layers.<i>.<r:rest>\", sizes: [1, 1]"));
    refused(with(text, "layers.<i>.<r:rest>\"", "layers.<i>.<r:rest>\", sizes: [1, 1, 1]"),
            "the layers of 3 stages are said, and there are 2");
    refused(with(text, "layers.<i>.<r:rest>\"", "blocks.<i>.<r:rest>\""),
            "the files of stage 0 have no tensor with a name of 'layers'");
    refused(with(text, "all_<pp>/dp<dp>", "all_0/dp<dp>"),
            "line 8, column 13: the names of the files do not have the axis of the stages");
    refused(with(text, "}\n    shard", ", shared: [w9]}\n    shard"),
            "name 1 of 'shared' is that of nothing which several stages have");
    good(with(text, "layers.<i>.<r:rest>\"", "layers.<i>.<r:rest>\", numbers: [[0], [1]]"));

    anew();
    t = pipeline();
    t.tensors[2].layer = 2; /* a stage that has layer 1 of its own, and not 0 */
    t.layers_of[1] = 2;
    text = written(&t);
    refused(text, "the files of stage 1 have 2 layers and not number 0");

    anew();
    t = pipeline();
    t.tensors[1].stage = -1;
    t.tensors[1].layer = -1;
    strcpy(t.tensors[1].name, "shared");
    t.tensors[0] = (logical){.name = "layers.0.a", .layer = 0, .tail = "a", .ndim = 2, .shape = {3, 4}};
    text = written(&t);
    good(text);
    refused(with(text, ", shared: [shared]", ""), "model.shared: all_1/dp0_tp_00.pt|under the same name");
    t.drifted = 5;
    t.tensors[3] = t.tensors[0];
    t.tensors[0] = t.tensors[1];
    t.tensors[1] = t.tensors[3];
    t.count = 3;
    anew();
    text = written(&t);
    refused(text, "shared|rank 5 (pp=1, dp=0, tp=1) has other elements of it than rank 4");

    anew();
    t = pipeline();
    t.other_lr = 5;
    refused(written(&t), "all_1/dp0_tp_01.pt|optim.param_groups.0.lr|the same settings in all stages");
}
END_TEST

START_TEST(flat_buffers)
{
    training t = flatly();
    const char *text = written(&t);
    good(text);
    good(with(text, "order: model", "order: sorted"));
    good(with(text, "order: model", "order: [w0, \"w<n>\"]"));
    refused(with(text, "order: model", "order: [w0, w9, \"w<n>\"]"),
            "line 9, column 7: name 2 of 'order' is that of no parameter");
    refused(with(text, "order: model", "order: [w0, w1]"),
            "its 2 parameters have 17 elements with their alignment, which is a buffer of "
            "20, and the ranks have 28 together");
    refused(with(text, "order: model", "order: {at: note}"), "there is no list of names at the path that 'order' says");
    refused(with(text, "align: 4", "align: 1"), "the order or the padding is another one");
    refused(with(text, "align: 4", "align: 0"), "'align' and 'multiple' are numbers of elements, 1 or more");
    refused(with(text, "multiple: 2", "multiple: 8"), "which is a buffer of 32, and the ranks have 28 together");
    refused(with(text, "axis: dp\n      in", "axis: tp\n      in"),
            "optimizer.w0.exp_avg|the flat buffers of rank 2 (pp=0, dp=1, tp=0) have other elements of it");
    refused(
        with(text, "optim.state.0.exp_avg_sq", "optim.state.0.exp_avg_q"),
        "optim.state.0.exp_avg_sq: all_0/dp0_tp_00.pt: the optimizer of the flat buffers has it, and no key of 'flat' says what it is");
    refused(with(text, "group: optim.param_groups.0", "group: optim.param_groups.1"),
            "optim.param_groups.0.lr: all_0/dp0_tp_00.pt: the "
            "optimizer of the flat buffers has it");
    refused(with(text, "      step: optim.state.0.step\n", ""), "optim.state.0.step: all_0/dp0_tp_00.pt");
    refused(with(text, "in: optim", "in: opt"),
            "there is no dict at 'opt' in it, where 'flat' says that the optimizer lies");
    t.flat_shorter = 2;
    anew();
    refused(written(&t), "the order or the padding is another one");
    t = flatly();
    t.other_lr = 3;
    anew();
    refused(
        written(&t),
        "optim.param_groups.0: all_0/dp1_tp_00.pt: it is not that in all_0/dp0_tp_00.pt: an optimizer has the same");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks_wrong");
    TCase *cases = tcase_create("ranks_wrong");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, files);
    tcase_add_test(cases, parts);
    tcase_add_test(cases, values);
    tcase_add_test(cases, cuts);
    tcase_add_test(cases, stages);
    tcase_add_test(cases, flat_buffers);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
