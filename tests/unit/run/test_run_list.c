/* What a run directory holds: each kind of damage, several ranks, hints, and a writer that publishes and removes while
 * it is read. Allocations are sent here by the linker, so that each can fail. */
#include "run/list.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include "run_files.h"

#define ENTRY(i) ckpt_run_list_entry(list, i)

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static long countdown; /* the allocation that fails; 0: none */
static bool hit;

static bool fails(void)
{
    if (countdown <= 0 || --countdown > 0)
        return false;
    hit = true;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

/* The `refused`th small file, or member, and what comes after it, cannot be opened: too many are open. 0: all can. */
static size_t refused, opened;
ckpt_status __real_ckpt__store_stat(const ckpt__store *s, const char *name, uint64_t *size, int64_t *mtime,
                                    ckpt_error *err);
ckpt_status __wrap_ckpt__store_stat(const ckpt__store *s, const char *name, uint64_t *size, int64_t *mtime,
                                    ckpt_error *err);
ckpt_status __real_ckpt__store_read(const ckpt__store *s, const char *name, size_t limit, ckpt__buf *out,
                                    ckpt_error *err);
ckpt_status __wrap_ckpt__store_read(const ckpt__store *s, const char *name, size_t limit, ckpt__buf *out,
                                    ckpt_error *err);

ckpt_status __wrap_ckpt__store_stat(const ckpt__store *s, const char *name, uint64_t *size, int64_t *mtime,
                                    ckpt_error *err)
{
    opened++;
    if (refused && opened >= refused)
        return ckpt__fail_sys(err, EMFILE, name, "cannot open it");
    return __real_ckpt__store_stat(s, name, size, mtime, err);
}

ckpt_status __wrap_ckpt__store_read(const ckpt__store *s, const char *name, size_t limit, ckpt__buf *out,
                                    ckpt_error *err)
{
    opened++;
    if (refused && opened >= refused)
        return ckpt__fail_sys(err, EMFILE, name, "cannot open it");
    return __real_ckpt__store_read(s, name, limit, out, err);
}

static ckpt_run_list *open_list(const char *path)
{
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_msg(ckpt_run_list_open(path, &list, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    return list;
}

/* The only entry of the run directory "run" is not complete, and says so in these words. */
static void expect_why(const char *words)
{
    ckpt_run_list *list = open_list("run");
    ck_assert_uint_eq(ckpt_run_list_count(list), 1);
    const ckpt_run_entry *e = ENTRY(0);
    ck_assert_msg(!e->complete && strstr(e->why, words), "complete %d, why '%s', expected '%s'", e->complete, e->why,
                  words);
    ck_assert(!e->verified);
    const ckpt_finding *f = ckpt_report_find(ckpt_run_list_findings(list), "incomplete-step", NULL);
    ck_assert(f && strstr(f->message, words));
    ckpt_run_list_close(list);
}

START_TEST(names)
{
    static const char *const wrong[] = {"step-",
                                        "step--1",
                                        "step-1a",
                                        "step- 1",
                                        "step-+1",
                                        "stepp-1",
                                        "Step-1",
                                        "step-1.tmp",
                                        "step-99999999999999999999",
                                        ".step-1",
                                        "step-000000000000000000000000001",
                                        ""};
    char name[CKPT__STEP_NAME];
    int64_t n = -1;
    ckpt__step_name(name, 1000);
    ck_assert_str_eq(name, "step-00001000");
    ck_assert(ckpt__step_parse(name, &n) && n == 1000);
    ckpt__step_name(name, INT64_MAX);
    ck_assert(ckpt__step_parse(name, &n) && n == INT64_MAX);
    ck_assert(ckpt__step_parse("step-7", &n) && n == 7);
    ckpt__rank_name(name, 3);
    ck_assert_str_eq(name, "rank-00003");
    ck_assert(ckpt__rank_parse(name, &n) && n == 3);
    ck_assert(!ckpt__rank_parse("step-3", &n));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(!ckpt__step_parse(wrong[i], &n), "'%s' was taken for a step", wrong[i]);
}
END_TEST

START_TEST(sound)
{
    make_directory("run");
    make_step("run/step-00000100", 100);
    make_step("run/step-00000300", 300);
    make_step("run/step-20", 20);
    put("run/latest", "step-00000300\n");
    make_directory("run/step-x");
    put("run/step-", "");
    ckpt_run_list *list = open_list("run///");
    ck_assert_uint_eq(ckpt_run_list_count(list), 3);
    ck_assert_int_eq(ENTRY(0)->step, 300);
    ck_assert_int_eq(ENTRY(1)->step, 100);
    ck_assert_int_eq(ENTRY(2)->step, 20);
    ck_assert_str_eq(ENTRY(0)->path, "run/step-00000300");
    ck_assert_str_eq(ENTRY(2)->name, "step-20");
    for (int i = 0; i < 3; i++) {
        struct stat st;
        char path[128];
        snprintf(path, sizeof path, "%s/checkpoint.json", ENTRY(i)->path);
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert(ENTRY(i)->complete && !ENTRY(i)->verified && ENTRY(i)->why[0] == '\0');
        ck_assert_int_eq(ENTRY(i)->time, 1000 + ENTRY(i)->step);
        ck_assert_uint_eq(ENTRY(i)->nbytes, 13 + (uint64_t)st.st_size);
        ck_assert(ENTRY(i)->world == 1 && ENTRY(i)->ranks_held == 1);
    }
    ck_assert_ptr_null(ckpt_run_list_writer(list));
    ck_assert_uint_eq(ckpt_report_count(ckpt_run_list_findings(list)), 0);
    ckpt_run_list_close(list);
}
END_TEST

START_TEST(damage_of_files)
{
    make_directory("run");
    make_directory("run/step-00000005");
    expect_why("no checkpoint.json");
    ck_assert_int_eq(rmdir("run/step-00000005"), 0);
    put("run/step-00000005", "");
    expect_why("it is a file; a step directory is expected");
    ck_assert_int_eq(unlink("run/step-00000005"), 0);
    make_step("run/step-00000005", 5);
    ck_assert_int_eq(truncate("run/step-00000005/model.safetensors", 9), 0);
    expect_why("model.safetensors has 9 bytes, the manifest says 10");
    ck_assert_int_eq(truncate("run/step-00000005/model.safetensors", 11), 0);
    expect_why("model.safetensors has 11 bytes, the manifest says 10");
    ck_assert_int_eq(unlink("run/step-00000005/model.safetensors"), 0);
    expect_why("model.safetensors is missing");
    make_directory("run/step-00000005/model.safetensors");
    expect_why("model.safetensors: it is a directory");
    ck_assert_int_eq(rmdir("run/step-00000005/model.safetensors"), 0);
    put("outside", "0123456789");
    ck_assert_int_eq(symlink("../../outside", "run/step-00000005/model.safetensors"), 0);
    expect_why("model.safetensors: "); /* the size is right, and it is not the run's */
    ck_assert_int_eq(unlink("run/step-00000005/model.safetensors"), 0);
    put("run/step-00000005/model.safetensors", "0123456789");
    ck_assert_int_eq(rename("run/step-00000005", "run/step-00000006"), 0);
    expect_why("checkpoint.json is of step 5");
    ck_assert_int_eq(rename("run/step-00000006", "elsewhere"), 0);
    ck_assert_int_eq(symlink("../elsewhere", "run/step-00000005"), 0);
    expect_why("checkpoint.json: ");
}
END_TEST

/* Each bit of a manifest, and each length: never complete. */
START_TEST(damage_of_manifest)
{
    static const char path[] = "run/step-00000005/checkpoint.json";
    made m = {.step = 5, .world = 1, .time = 77, .save = 99, .size = 10};
    ckpt__buf text = {0};
    ckpt__store *store = NULL;
    ckpt__held h;
    make_directory("run");
    make_step_of("run/step-00000005", &m, &text);
    ck_assert_int_eq(ckpt__store_open("run", false, &store, NULL), CKPT_OK);
    ckpt__held_read(store, "step-00000005", &h);
    ck_assert(h.complete && h.step == 5 && h.time == 77 && h.save == 99 && h.status == CKPT_OK && h.manifest_crc != 0);
    for (size_t i = 0; i < text.size; i++)
        for (int bit = 0; bit < 8; bit++) {
            text.data[i] = (char)(text.data[i] ^ 1 << bit);
            put_bytes(path, text.data, text.size);
            ckpt__held_read(store, "step-00000005", &h);
            ck_assert_msg(!h.complete && h.status < 0 && strncmp(h.why, "checkpoint.json: ", 17) == 0,
                          "byte %zu, bit %d", i, bit);
            text.data[i] = (char)(text.data[i] ^ 1 << bit);
        }
    for (size_t n = 0; n < text.size; n++) {
        put_bytes(path, text.data, n);
        ckpt__held_read(store, "step-00000005", &h);
        ck_assert_msg(!h.complete && h.status < 0, "cut to %zu bytes", n);
    }
    put_bytes(path, text.data, text.size);
    ckpt__held_read(store, "step-00000005", &h);
    ck_assert(h.complete);
    ck_assert_int_eq(truncate(path, 2 << 20), 0);
    ckpt__held_read(store, "step-00000005", &h);
    ck_assert(!h.complete && h.status == CKPT_E_DAMAGED);
    ckpt__held_read(store, "step-00000006", &h);
    ck_assert(!h.complete && h.status == CKPT_E_NOT_FOUND);
    ckpt__store_close(store);
    ckpt__buf_free(&text);
}
END_TEST

static size_t list_held(ckpt__store *store, ckpt__held **list)
{
    size_t n = 0;
    ck_assert_int_eq(ckpt__held_list(store, list, &n, NULL), CKPT_OK);
    return n;
}

START_TEST(verified_hint)
{
    ckpt__store *store = NULL;
    ckpt__held *list = NULL, copy;
    ckpt__buf text = {0};
    char line[64];
    make_directory("run");
    make_step("run/step-00000001", 1);
    make_step("run/step-00000002", 2);
    put("run/verified", "no such line\nstep-00000001 0000\nstep-00000009 12345678\n\n");
    ck_assert_int_eq(ckpt__store_open("run", false, &store, NULL), CKPT_OK);
    ck_assert_uint_eq(list_held(store, &list), 2);
    ck_assert(!list[0].verified && !list[1].verified);
    ck_assert_int_eq(ckpt__held_mark_verified(store, list, 2, &list[1], NULL), CKPT_OK);
    snprintf(line, sizeof line, "step-00000001 %08x\n", (unsigned)list[1].manifest_crc);
    ck_assert_int_eq(ckpt__store_read(store, "verified", 100, &text, NULL), CKPT_OK);
    ck_assert_str_eq(text.data, line); /* what is gone, or was never a line, is dropped */
    copy = list[0];
    free(list);
    ck_assert_uint_eq(list_held(store, &list), 2);
    ck_assert(!list[0].verified && list[1].verified);
    ck_assert_int_eq(ckpt__held_mark_verified(store, list, 2, &copy, NULL), CKPT_OK);
    free(list);
    ck_assert_uint_eq(list_held(store, &list), 2);
    ck_assert(list[0].verified && list[1].verified);
    free(list);
    /* another save of step 2, and step 1 damaged: neither is what was verified */
    ck_assert_int_eq(system("rm -r run/step-00000002"), 0);
    made m = {.step = 2, .world = 1, .time = 2000, .size = 10};
    make_step_of("run/step-00000002", &m, NULL);
    ck_assert_int_eq(truncate("run/step-00000001/model.safetensors", 1), 0);
    ck_assert_uint_eq(list_held(store, &list), 2);
    ck_assert(list[0].complete && !list[0].verified && !list[1].complete && !list[1].verified);
    free(list);
    ckpt__buf_free(&text);
    ckpt__store_close(store);
}
END_TEST

START_TEST(findings)
{
    ckpt__store *store = NULL;
    make_directory("run");
    make_step("run/step-00000001", 1);
    make_step("run/step-00000002", 2);
    put("run/latest", "step-00000001\n");
    make_directory("run/.tmp-step-00000003.0123456789abcdef");
    make_directory("run/.trash-pruned.step-00000000.0123456789abcdef");
    ckpt_run_list *list = open_list("run");
    const ckpt_report *r = ckpt_run_list_findings(list);
    const ckpt_finding *f = ckpt_report_find(r, "stale-hint", NULL);
    ck_assert(f && strstr(f->message, "latest names step-00000001") && strstr(f->message, "step-00000002"));
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_NOTE);
    f = ckpt_report_find(r, "leftover", NULL);
    ck_assert(f && strncmp(f->message, "2 ", 2) == 0);
    ck_assert_uint_eq(ckpt_report_count(r), 2);
    ckpt_run_list_close(list);
    ck_assert_int_eq(ckpt__store_open("run", false, &store, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt__store_lock(store, NULL), CKPT_OK);
    list = open_list("run"); /* a writer is at work: both are nothing odd */
    ck_assert(ckpt_run_list_writer(list) && strncmp(ckpt_run_list_writer(list), "pid ", 4) == 0);
    ck_assert_uint_eq(ckpt_report_count(ckpt_run_list_findings(list)), 0);
    ckpt_run_list_close(list);
    ckpt__store_close(store);
}
END_TEST

START_TEST(no_run)
{
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    put("file", "x");
    ck_assert_int_eq(ckpt_run_list_open("file", &list, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(ckpt_run_list_open("nothing", &list, &err), CKPT_E_SYSTEM);
    ck_assert_str_eq(err.object, "nothing");
    make_directory("run");
    ck_assert_int_eq(ckpt_run_list_open("run", &list, &err), CKPT_E_FORMAT);
    make_directory("run/rank-00000");
    ck_assert_int_eq(ckpt_run_list_open("run", &list, &err), CKPT_E_FORMAT);
    put("run/.lock", "someone else's");
    ck_assert_int_eq(ckpt_run_list_open("run", &list, &err), CKPT_E_FORMAT);
    put("run/latest", "step-00000001\n");
    list = open_list("run");
    ck_assert_uint_eq(ckpt_run_list_count(list), 0);
    ckpt_run_list_close(list);
    make_step("run/step-00000001", 1);
    ck_assert_int_eq(ckpt_run_list_open("run/step-00000001", &list, &err), CKPT_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "one step"));
    ck_assert_int_eq(ckpt_run_list_open("", &list, &err), CKPT_E_ARGUMENT);
    ckpt_run_list_close(NULL);
    ck_assert_uint_eq(ckpt_run_list_count(NULL), 0);
}
END_TEST

/* torchtitan's checkpoint/step-N holds a distributed checkpoint: nothing of it is ours, so nothing of ours is damaged. Its
 * neighbours: a step of ours whose manifest is lost, beside one of another; the hook's own latest. */
START_TEST(steps_of_others)
{
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    make_directory("run");
    make_directory("run/step-3");
    put("run/step-3/.metadata", "x");
    put("run/step-3/__0_0.distcp", "x");
    ck_assert_int_eq(ckpt_run_list_open("run", &list, &err), CKPT_E_FORMAT);
    ck_assert_msg(strstr(err.message, "not a run directory"), "%s", err.message);
    put("run/latest", "global_step3\n");
    ck_assert_int_eq(ckpt_run_list_open("run", &list, &err), CKPT_E_FORMAT);
    make_directory("run/rank-00000");
    make_directory("run/rank-00000/step-3");
    put("run/rank-00000/step-3/model.safetensors", "x");
    ck_assert_int_eq(ckpt_run_list_open("run", &list, &err), CKPT_E_FORMAT);
    put("run/rank-00000/step-3/training.safetensors", "x");
    list = open_list("run");
    ck_assert_uint_eq(ckpt_run_list_count(list), 1);
    ckpt_run_list_close(list);
    ck_assert_int_eq(unlink("run/rank-00000/step-3/training.safetensors"), 0);
    put("run/latest", "step-00000003\n");
    list = open_list("run");
    ck_assert(ckpt_run_list_count(list) >= 1 && !ENTRY(0)->complete);
    ckpt_run_list_close(list);
    put("run/latest", "");
    make_step("run/step-00000007", 7);
    list = open_list("run");
    ck_assert_uint_eq(ckpt_run_list_count(list), 2);
    ckpt_run_list_close(list);
}
END_TEST

/* ---- several ranks */

static void expect_entry(const ckpt_run_entry *e, int64_t step, bool complete, int64_t held, const char *why)
{
    ck_assert_int_eq(e->step, step);
    ck_assert_msg(e->complete == complete && e->ranks_held == held && strcmp(e->why, why) == 0,
                  "step %d: complete %d, %d ranks, '%s'; expected complete %d, %d ranks, '%s'", (int)step, e->complete,
                  (int)e->ranks_held, e->why, complete, (int)held, why);
}

START_TEST(ranks)
{
    make_directory("run");
    for (int64_t rank = 0; rank < 3; rank++) {
        make_rank_step(rank, 3, 10, 100);
        make_rank_step(rank, 3, 20, rank == 1 ? 201 : 200); /* two saves of one step */
        make_rank_step(rank, 3, 30, 300);
        if (rank != 2)
            make_rank_step(rank, 3, 40, 400);
        make_rank_step(rank, 3, 50, 500);
    }
    ck_assert_int_eq(truncate("run/rank-00001/step-00000030/model.safetensors", 3), 0);
    ck_assert_int_eq(unlink("run/rank-00002/step-00000050/checkpoint.json"), 0);
    ckpt_run_list *list = open_list("run");
    ck_assert_uint_eq(ckpt_run_list_count(list), 6);
    expect_entry(ENTRY(0), 50, false, 2, "rank 2: no checkpoint.json: it was never finished, or was damaged since");
    expect_entry(ENTRY(1), 40, false, 2, "2 of 3 ranks here, rank 2 missing");
    expect_entry(ENTRY(2), 30, false, 2, "rank 1: model.safetensors has 3 bytes, the manifest says 10");
    const ckpt_run_entry *two = ENTRY(3)->ranks_held == 2 ? ENTRY(3) : ENTRY(4),
                         *one = ENTRY(3)->ranks_held == 2 ? ENTRY(4) : ENTRY(3);
    expect_entry(two, 20, false, 2, "two saves of this step: ranks 0, 2 have one, rank 1 has another");
    expect_entry(one, 20, false, 1, "two saves of this step: rank 1 has one, ranks 0, 2 have another");
    expect_entry(ENTRY(5), 10, true, 3, "");
    ck_assert_str_eq(ENTRY(5)->path, "run/rank-00000/step-00000010");
    ck_assert_str_eq(one->path, "run/rank-00001/step-00000020");
    ck_assert_int_eq(ENTRY(5)->world, 3);
    ck_assert_uint_eq(ENTRY(5)->nbytes % 3, 0);
    ckpt_run_list_close(list);
}
END_TEST

START_TEST(ranks_elsewhere)
{
    make_directory("run");
    make_rank_step(2, 1000000, 10, 7); /* one node's disk */
    make_rank_step(3, 1000000, 10, 7);
    ckpt_run_list *list = open_list("run");
    ck_assert_uint_eq(ckpt_run_list_count(list), 1);
    expect_entry(ENTRY(0), 10, false, 2, "2 of 1000000 ranks here, ranks 0-1, 4-999999 missing");
    ck_assert_str_eq(ENTRY(0)->path, "run/rank-00002/step-00000010");
    ckpt_run_list_close(list);
    list = open_list("run/rank-00002"); /* a rank's own directory */
    expect_entry(ENTRY(0), 10, false, 1, "1 of 1000000 ranks here, ranks 0-1, 3-999999 missing");
    ckpt_run_list_close(list);
}
END_TEST

START_TEST(ranks_changed)
{
    made m = {.step = 10, .world = 2, .rank = 0, .save = 5, .size = 10};
    ckpt__store *store = NULL;
    ckpt__held *held = NULL;
    make_directory("run");
    for (int64_t rank = 0; rank < 2; rank++) {
        make_rank_step(rank, 2, 20, 9);
        ckpt__held h;
        char path[64];
        snprintf(path, sizeof path, "run/rank-%05d", (int)rank);
        ck_assert_int_eq(ckpt__store_open(path, false, &store, NULL), CKPT_OK);
        ckpt__held_read(store, "step-00000020", &h);
        ck_assert_int_eq(ckpt__held_mark_verified(store, NULL, 0, &h, NULL), CKPT_OK);
        ckpt__store_close(store);
    }
    make_rank_step(2, 3, 20, 8); /* left from when there were three */
    make_rank_step(0, 2, 10, 5);
    make_step_of("run/rank-00001/step-00000010", &m, NULL); /* rank 0's, copied over rank 1's */
    ckpt_run_list *list = open_list("run");
    ck_assert_uint_eq(ckpt_run_list_count(list), 3);
    expect_entry(ENTRY(0), 20, true, 2, "");
    ck_assert(ENTRY(0)->verified);
    expect_entry(ENTRY(1), 20, false, 1, "two saves of this step: rank 2 has one, ranks 0-1 have another");
    expect_entry(ENTRY(2), 10, false, 1, "rank 1: its checkpoint.json is of rank 0: it was copied from there");
    ckpt_run_list_close(list);
    put("run/rank-00001/verified", "");
    list = open_list("run"); /* verified on one rank is not verified */
    ck_assert(ENTRY(0)->complete && !ENTRY(0)->verified);
    ckpt_run_list_close(list);
    /* the same rank twice does not stand for two ranks */
    ck_assert_int_eq(system("rm -r run/rank-00001 && cp -r run/rank-00000/step-00000020 run/rank-00000/step-20"), 0);
    list = open_list("run");
    for (size_t i = 0; i < ckpt_run_list_count(list); i++)
        ck_assert(!ENTRY(i)->complete && ENTRY(i)->ranks_held <= 1 && ENTRY(i)->why[0]);
    ckpt_run_list_close(list);
    free(held);
}
END_TEST

/* ---- while a writer works */

enum { ROUNDS = 200 };
static atomic_bool over;

static void pack(int step, size_t size, const char *name)
{
    char temporary[64], path[64], gone[64], command[200];
    made m = {.step = step, .world = 1, .time = 5, .size = size};
    snprintf(temporary, sizeof temporary, "run/.tmp-%s.1", name);
    snprintf(path, sizeof path, "run/%s", name);
    snprintf(gone, sizeof gone, "run/.trash-%s.1", name);
    make_step_of(temporary, &m, NULL);
    if (access(path, F_OK) == 0) {
        ck_assert_int_eq(renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE), 0);
        ck_assert_int_eq(rename(temporary, gone), 0);
    } else {
        ck_assert_int_eq(rename(temporary, path), 0);
        if (step == 0)
            return;
        snprintf(path, sizeof path, "run/step-%08d", step - 1);
        ck_assert_int_eq(rename(path, gone), 0);
    }
    static const char *const members[] = {"model.safetensors", "training.safetensors", "checkpoint.json"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "%s/%s", gone, members[i]);
        ck_assert_int_eq(unlink(command), 0);
    }
    ck_assert_int_eq(rmdir(gone), 0);
}

/* Publishes a step, saves it anew with other sizes, publishes the next and removes the one before: always one is there.
 */
static void *writes(void *nothing)
{
    char name[CKPT__STEP_NAME];
    for (int step = 1; step < ROUNDS; step++) {
        ckpt__step_name(name, step);
        pack(step, 10, name);
        pack(step, 4000, name);
        pack(step, 20, name);
    }
    over = true;
    return nothing;
}

START_TEST(writer_at_work)
{
    pthread_t thread;
    size_t lists = 0;
    int64_t newest = 0;
    make_directory("run");
    pack(0, 10, "step-00000000");
    over = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, writes, NULL), 0);
    while (!over) {
        ckpt_run_list *list = open_list("run");
        ck_assert_msg(ckpt_run_list_count(list) >= 1, "nothing was seen, and always something is there");
        for (size_t i = 0; i < ckpt_run_list_count(list); i++)
            ck_assert_msg(ENTRY(i)->complete, "%s: %s", ENTRY(i)->name, ENTRY(i)->why);
        ck_assert_msg(ENTRY(0)->step >= newest, "step %d after %d", (int)ENTRY(0)->step, (int)newest);
        newest = ENTRY(0)->step;
        ckpt_run_list_close(list);
        lists++;
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_msg(lists > 20, "only %zu lists were taken meanwhile", lists);
}
END_TEST

/* Each allocation fails in turn: an error, never a checkpoint that is said to be damaged. */
START_TEST(no_memory)
{
    make_directory("run");
    for (int64_t rank = 0; rank < 2; rank++) {
        make_rank_step(rank, 2, 10, 100);
        make_rank_step(rank, 2, 20, 100 + (uint64_t)rank);
    }
    put("run/rank-00000/latest", "step-00000010\n");
    long n = 0;
    do {
        ckpt_run_list *list = NULL;
        ckpt_error err = CKPT_ERROR_INIT;
        hit = false;
        countdown = ++n;
        ckpt_status status = ckpt_run_list_open("run", &list, &err);
        countdown = 0;
        if (status == CKPT_OK) {
            ck_assert_uint_eq(ckpt_run_list_count(list), 3);
            ck_assert(ENTRY(2)->complete && ENTRY(2)->step == 10);
        } else {
            ck_assert_msg(status == CKPT_E_NO_MEMORY && hit, "allocation %ld: status %d: %s", n, status, err.message);
            ck_assert_ptr_null(list);
        }
        ckpt_run_list_close(list);
    } while (hit);
    ck_assert_int_gt(n, 40);
}
END_TEST

/* Each small file in turn cannot be opened because the process has too many open, and each member cannot be looked at:
 * an error, never a checkpoint that is said to be damaged. */
START_TEST(no_descriptors)
{
    size_t failed = 0, n = 0;
    make_directory("run");
    make_step("run/step-00000100", 100);
    make_step("run/step-00000200", 200);
    put("run/latest", "step-00000200\n");
    do {
        ckpt_run_list *list = NULL;
        ckpt_error err = CKPT_ERROR_INIT;
        opened = 0;
        refused = ++n;
        ckpt_status status = ckpt_run_list_open("run", &list, &err);
        refused = 0;
        for (size_t i = 0; i < ckpt_run_list_count(list); i++)
            ck_assert_msg(ENTRY(i)->complete, "open %zu: %s: %s", n, ENTRY(i)->name, ENTRY(i)->why);
        if (status == CKPT_OK) /* it was a hint's */
            ck_assert_uint_eq(ckpt_run_list_count(list), 2);
        else
            ck_assert_msg(status == CKPT_E_SYSTEM && err.sys_errno == EMFILE, "open %zu: %s", n, err.message);
        failed += status < 0;
        ckpt_run_list_close(list);
    } while (opened >= n);
    ck_assert_uint_ge(failed, 6); /* two manifests, four members */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("run_list");
    TCase *c = tcase_create("list");
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, names);
    tcase_add_test(c, sound);
    tcase_add_test(c, damage_of_files);
    tcase_add_test(c, damage_of_manifest);
    tcase_add_test(c, verified_hint);
    tcase_add_test(c, findings);
    tcase_add_test(c, no_run);
    tcase_add_test(c, steps_of_others);
    tcase_add_test(c, ranks);
    tcase_add_test(c, ranks_elsewhere);
    tcase_add_test(c, ranks_changed);
    tcase_add_test(c, writer_at_work);
    tcase_add_test(c, no_memory);
    tcase_add_test(c, no_descriptors);
    suite_add_tcase(s, c);
    return run_suite(s);
}
