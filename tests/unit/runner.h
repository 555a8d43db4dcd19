/* tests/unit/runner.h - main() of a unit test program: Check, TAP on stdout, CK_FORK=no obeyed. */
#ifndef RUNNER_H
#define RUNNER_H
#include <check.h>
#include <stdlib.h>

static int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed || ran == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
#endif
