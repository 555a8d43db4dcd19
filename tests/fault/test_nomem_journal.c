/* test_nomem_journal.c - each allocation fails in turn while an interrupted migration goes on: an error that says so, nothing that was
 * finished is lost, and the next run ends it. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "../unit/scratch.h"
#include "nomem.h"

#define OK(call) ck_assert_int_eq(call, CKPT_OK)

static char torch_file[4096];

static int stop_late(void *ctx, uint64_t done, uint64_t total)
{
    int *left = ctx;
    (void)done, (void)total;
    return --*left < 0;
}

static ckpt_status shards_again(ckpt_progress progress, ckpt_error *err)
{
    ckpt_migrate_options o;
    memset(&o, 0, sizeof o);
    o.to = "hf";
    o.max_shard_size = 64;
    o.lossy = o.weights_only = o.no_sync = true;
    o.threads = 1;
    o.progress = progress;
    return ckpt_migrate(torch_file, "again/shards", &o, NULL, err);
}

static int names_beside(void)
{
    int n = 0;
    DIR *d = opendir("again");
    for (struct dirent *e; d && (e = readdir(d));)
        n += *e->d_name != '.' || strlen(e->d_name) > 2;
    closedir(d);
    return n;
}

static void remove_shards(void)
{
    ck_assert_int_eq(system("rm -rf again"), 0);
    ck_assert_int_eq(mkdir("again", 0777), 0);
}

/* Interrupted when two of its files are finished, with all the memory it wants; and then gone on with. */
static ckpt_status go_on(ckpt_error *err)
{
    const long wanted = countdown;
    int calls = 2;
    ckpt_error why = CKPT_ERROR_INIT;
    countdown = 0;
    remove_shards();
    ck_assert_int_eq(shards_again((ckpt_progress){stop_late, &calls}, &why), CKPT_E_CANCELLED);
    ck_assert_ptr_nonnull(strstr(why.message, "finished file"));
    ck_assert_int_eq(names_beside(), 2);
    countdown = wanted;
    return shards_again((ckpt_progress){NULL, NULL}, err);
}

/* Nothing is lost where memory was short: the next run ends it, and nothing else stays. */
static void is_gone_on_with(ckpt_status status)
{
    countdown = 0;
    if (status < 0) {
        ck_assert_int_ge(names_beside(), 2);
        OK(shards_again((ckpt_progress){NULL, NULL}, NULL));
    }
    ck_assert_int_eq(names_beside(), 1);
}

START_TEST(interrupted_migrations_go_on)
{
    each_allocation(go_on, is_gone_on_with);
}
END_TEST

int main(void)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];
    snprintf(path, sizeof path, "%.3900s/tests/data/cli/fused-step-cpu.pt", srcdir ? srcdir : ".");
    if (!realpath(path, torch_file))
        return 99;
    Suite *s = suite_create("nomem_journal");
    TCase *t = tcase_create("nomem_journal");
    tcase_add_test(t, interrupted_migrations_go_on);
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    suite_add_tcase(s, t);
    return run_suite(s);
}
