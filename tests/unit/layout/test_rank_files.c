/* test_rank_files.c - names of files of ranks, made and taken apart; and what may be wrong with a layout that says them. */
#include "layout/rank_files.h"

#include <stdio.h>
#include "../runner.h"

#define HEAD "layout: 1\nsides: [a]\nranks:\n  a:\n    mesh: {pp: 2, dp: 3, tp: 4}\n"

static ckpt_report *report;

static ckpt__layout *parsed(const char *text)
{
    ckpt__layout *layout = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    report = ckpt_report_new();
    ckpt_status status = ckpt__layout_parse(text, strlen(text), "x.yaml", report, &layout, &err);
    ck_assert_int_eq(status == CKPT_OK, layout != NULL);
    return layout;
}

START_TEST(names)
{
    static const struct {
        const char *form, *name;
        int64_t pp, dp, tp, rank; /* -1: it does not stand in the form; pp -2: it is no such name */
    } rows[] = {
        {"rank_<dp>_<tp>.pt", "rank_1_3.pt", -1, 1, 3, -1},
        {"rank_<dp>_<tp>.pt", "rank_01_3.pt", -2, 0, 0, 0},
        {"rank_<dp>_<tp>.pt", "rank_1_3.pt2", -2, 0, 0, 0},
        {"rank_<dp>_<tp>.pt", "rank_1_.pt", -2, 0, 0, 0},
        {"rank_<dp>_<tp>.pt", "rank_12_345.pt", -1, 12, 345, -1},
        {"rank_<dp>_<tp>.pt", "rank_1_99999999999.pt", -2, 0, 0, 0},
        {"<rank>", "7", -1, -1, -1, 7},
        {"tp<tp>-<tp>.pt", "tp2-2.pt", -1, -1, 2, -1},
        {"tp<tp>-<tp>.pt", "tp2-3.pt", -2, 0, 0, 0},
        {"mp_rank_<tp:02>/model_optim_rng.pt", "mp_rank_03/model_optim_rng.pt", -1, -1, 3, -1},
        {"mp_rank_<tp:02>/model_optim_rng.pt", "mp_rank_3/model_optim_rng.pt", -2, 0, 0, 0},
        {"mp_rank_<tp:02>/model_optim_rng.pt", "mp_rank_103/model_optim_rng.pt", -1, -1, 103, -1},
        {"mp_rank_<tp:02>/model_optim_rng.pt", "mp_rank_003/model_optim_rng.pt", -2, 0, 0, 0},
        {"s<pp>/d<dp:03>/x", "s1/d002/x", 1, 2, -1, -1},
        {"s<pp>/d<dp:03>/x", "s1/d002", -2, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[400];
        snprintf(text, sizeof text, HEAD "    files: \"%s\"\n", rows[i].form);
        ckpt__layout *layout = parsed(text);
        ck_assert_msg(layout != NULL, "%s", rows[i].form);
        const ckpt__file_form *form = &ckpt__layout_files(layout, 0)->forms[0];
        int64_t numbers[CKPT__MESH_AXES + 1];
        bool is = true;
        size_t depth = 0;
        for (size_t a = 0; a <= CKPT__MESH_AXES; a++)
            numbers[a] = -1;
        for (const char *at = rows[i].name; at && is; depth++) {
            const char *slash = strchr(at, '/');
            const ckpt_str one = {at, slash ? (size_t)(slash - at) : strlen(at)};
            is = ckpt__file_form_match(form, depth, one, numbers);
            at = slash ? slash + 1 : NULL;
        }
        is = is && depth == ckpt__file_form_depth(form);
        ck_assert_msg(is == (rows[i].pp != -2), "%s: %s", rows[i].form, rows[i].name);
        const int64_t want[] = {rows[i].pp, rows[i].dp, rows[i].tp, rows[i].rank};
        for (size_t k = 0; is && k < 4; k++)
            ck_assert_int_eq(numbers[k < 3 ? k : CKPT__FILE_RANK], want[k]);
        ckpt__layout_free(layout);
        ckpt_report_free(report);
    }
}
END_TEST

START_TEST(made)
{
    const ckpt__rank_mesh mesh = {3, {{{"pp", 2}, 2}, {{"dp", 2}, 3}, {{"tp", 2}, 4}}};
    const int64_t at[CKPT__MESH_AXES] = {1, 2, 3};
    ckpt__layout *layout = parsed(HEAD "    files: {m: \"s<pp>/<dp:03>_<tp>.pt\", o: \"<rank:05>\"}\n");
    const ckpt__files_of_ranks *files = ckpt__layout_files(layout, 0);
    ckpt__buf name = {0};
    ck_assert_uint_eq(files->count, 2);
    ck_assert(ckpt__str_is(files->forms[1].key, "o"));
    ckpt__file_form_fill(&files->forms[0], &mesh, at, &name);
    ckpt__buf_char(&name, ' ');
    ckpt__file_form_fill(&files->forms[1], &mesh, at, &name);
    ckpt__buf_char(&name, 0);
    ck_assert_str_eq(name.data, "s1/002_3.pt 00023");
    ckpt__buf_free(&name);
    ckpt__layout_free(layout);
    ckpt_report_free(report);
}
END_TEST

static const struct wrong {
    const char *text, *says[4];
} wrongs[] = {
    {HEAD "    files: \"x_<dp\"\n", {"line 6, column 12: 'x_<dp', character 3: there is no > for this <"}},
    {HEAD "    files: \"x_dp>\"\n", {"line 6, column 12: 'x_dp>', character 5: there is no < for this >"}},
    {HEAD "    files: \"x_<ep>\"\n", {"character 3: it is not an axis of the mesh, and not 'rank'"}},
    {HEAD "    files: \"x_<dp><tp>\"\n", {"character 7: two numbers side by side"}},
    {HEAD "    files: \"x_<dp>1\"\n", {"character 7: a digit follows a number"}},
    {HEAD "    files: \"x_<dp:2>\"\n", {"character 6: a width is 02 to 09"}},
    {HEAD "    files: \"x_<dp:01>\"\n", {"character 6: a width is 02 to 09"}},
    {HEAD "    files: \"../x_<dp>\"\n", {"character 1: the name of a file below the source is expected"}},
    {HEAD "    files: \"/x_<dp>\"\n", {"character 1: the name of a file below the source is expected"}},
    {HEAD "    files: \"x//<dp>\"\n", {"character 3: the name of a file below the source is expected"}},
    {HEAD "    files: \"a/b/c/d/e/f/g/h/<dp>\"\n", {"more than 8 folders"}},
    {HEAD "    files: [x]\n", {"line 6, column 12: the name of the files is expected"}},
    {HEAD "    files: {}\n", {"1 to 8 names of files are expected"}},
    {HEAD "    replicate: first\n",
     {"line 6, column 16: 'replicate' says how files of ranks are read, and there is no 'files'"}},
    {HEAD "    files: x\n    replicate: all\n", {"line 7, column 16: 'first' or 'compare' is expected"}},
    {HEAD "    files: x\n    file: y\n", {"line 7, column 5: there is no key 'file' here"}},
    {HEAD "    files: x\n    own: {}\n", {"line 7, column 10"}},
    {HEAD "    files: x\n    stages: {axis: ep}\n", {"line 7, column 20: 'axis' is expected, one of the mesh"}},
    {HEAD "    files: x\n    stages: {axis: pp, local: true}\n", {"line 7, column 13: 'local: true' needs 'layers'"}},
    {HEAD "    files: x\n    stages: {axis: pp, layers: \"l.<i>\", sizes: [1]}\n",
     {"line 7, column 32: 'layers' says which layers those are", "'sizes' says which layers"}},
    {HEAD "    files: x\n    stages: {axis: pp, local: yes}\n", {"line 7, column 31: true or false is expected"}},
    {HEAD "    files: x\n    stages: {axis: pp, local: true, layers: \"l.<w:word>\"}\n",
     {"captures 0 numbers; one is expected"}},
    {HEAD "    files: x\n    stages: {axis: pp, local: true, layers: \"<i>.<k>\"}\n",
     {"captures 2 numbers; one is expected"}},
    {HEAD "    files: x\n    stages: {axis: pp, local: true, layers: \"l.<i>\", sizes: [1], numbers: [[0]]}\n",
     {"'sizes' and 'numbers' both say"}},
    {HEAD "    files: x\n    stages: {axis: pp, local: true, layers: \"l.<i>\", numbers: [[0, 2], [2]]}\n",
     {"column 73: the number of a layer is expected, from 0 to 2, each once"}},
    {HEAD "    files: x\n    stages: {axis: pp, local: true, layers: \"l.<i>\", numbers: [0]}\n",
     {"a list of the layers of each stage"}},
    {HEAD "    files: x\n    flat: {}\n", {"line 7, column 11: 'flat' is a list of 1 to 16 flat buffers"}},
    {HEAD "    files: x\n    flat: [{axis: dp}]\n",
     {"line 7, column 12: a flat buffer has 'in', 'buffers' and 'order'"}},
    {HEAD "    files: x\n    flat: [{axis: x, in: o, order: model, buffers: {}}]\n",
     {"'axis' is expected, one of the mesh", "a map of 1 to 16 states"}},
    {HEAD "    files: x\n    flat: [{axis: dp, in: o, order: any, buffers: {m: o.m}, as: odd}]\n",
     {"column 37: model, sorted, {at: PATH} or a list of names", "even, ceil or balanced is expected"}},
    {HEAD "    files: x\n    flat: [{axis: dp, in: o, order: model, buffers: {m: o.m}, as: ceil, multiple: 2}]\n",
     {"'multiple' is of parts that are even"}},
    {HEAD
     "    files: x\n    flat:\n    - {axis: dp, in: o, order: model, buffers: {m: o.m}}\n    - {axis: dp, in: p, order: model, "
     "buffers: {m: p.m}}\n",
     {"line 9, column 7: all flat buffers are of one optimizer"}},
    {"layout: 1\nsides: [a]\n", {"a layout of one side has 'ranks'"}},
    {HEAD, {"the 'ranks' of a layout of one side have 'files'"}},
    {HEAD "    files: x\nrules: [{a: x}]\n", {"line 7, column 8: 'rules' leads from one side to the other"}},
    {HEAD "    files: x\nties: [{a: x, of: y}]\n", {"line 7, column 7: 'ties' leads from one side to the other"}},
    {"layout: 1\nsides: []\n", {"line 2, column 8: 'sides' is expected"}},
};

START_TEST(messages)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        char said[1 << 13] = "";
        size_t n = 0;
        ckpt__layout *layout = parsed(wrongs[i].text);
        for (size_t k = 0; k < ckpt_report_count(report); k++)
            n += (size_t)snprintf(said + n, sizeof said - n, "%s\n", ckpt_report_get(report, k)->message);
        ck_assert_msg(layout == NULL, "it was read:\n%s", wrongs[i].text);
        for (size_t k = 0; k < 4 && wrongs[i].says[k]; k++)
            ck_assert_msg(strstr(said, wrongs[i].says[k]) != NULL, "no '%s' in: %s of:\n%s", wrongs[i].says[k], said,
                          wrongs[i].text);
        ckpt_report_free(report);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rank_files");
    TCase *cases = tcase_create("rank_files");
    tcase_add_test(cases, names);
    tcase_add_test(cases, made);
    tcase_add_test(cases, messages);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
