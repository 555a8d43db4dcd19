/* test_restore_keras.c - case S1: Keras on the torch backend under DataParallel, where tensors on cuda:0 and cuda:1 met. One file
 * of Keras goes onto several devices, each replica whole on its own, also where names have a wrapper's "module.". The
 * devices are those of tests/fakecuda, the files those of tests/data/keras. */
#include <ckpt/ckpt.h>
#include <stdlib.h>
#include <string.h>
#include "../child.h"
#include "engine/put.h"
#include "../require.h"
#include "../runner.h"

enum { MOST = 64, DEVICES = 4 };

typedef struct what {
    const char *file;   /* below tests/data/keras */
    const char *strip;  /* what the state's names lack of the file's; NULL: nothing */
    const char *rename; /* a rule that gives the file's names what the state's have more; NULL: none */
    const char *add;    /* what the state's names have more; NULL: nothing */
    size_t devices;
} what;

static char path[1200];
static ckpt_reader *reader;
static char names[MOST][120];
static size_t count;

static void open_file(const what *w)
{
    const char *srcdir = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/data/keras/%s", srcdir ? srcdir : ".", w->file);
    REQUIRE_OK(ckpt_reader_open(path, NULL, &reader, &err));
    count = ckpt_reader_tensor_count(reader);
    REQUIRE(count > 1 && count <= MOST);
    for (size_t i = 0; i < count; i++) {
        const char *name = ckpt_reader_tensor(reader, i)->name.data;
        size_t skip = w->strip ? strlen(w->strip) : 0;
        REQUIRE(!w->strip || strncmp(name, w->strip, skip) == 0);
        REQUIRE(snprintf(names[i], sizeof names[i], "%s%s", w->add ? w->add : "", name + skip) < (int)sizeof names[i]);
    }
}

/* In memory of the library's own, on whichever device the map says. */
static ckpt_state *bind_all(void)
{
    ckpt_state *s = ckpt_state_new();
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = names[i];
        d.role = t->role == CKPT_ROLE_NONE ? CKPT_ROLE_PARAM : t->role;
        d.dtype = t->dtype;
        d.ndim = t->ndim;
        d.shape = t->shape;
        REQUIRE_OK(ckpt_state_tensor(s, &d, &err));
    }
    return s;
}

/* Every tensor is where the replica is, says the driver, and has the file's bytes. */
static void check(const ckpt_state *s, size_t i, int device)
{
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    size_t n = (size_t)t->nbytes;
    char *want = malloc(n + 1), *have = malloc(n + 1);
    ckpt__lanes lanes = {.count = 0};
    ckpt_memory m;
    REQUIRE(ckpt_device_equal(ckpt_state_device(s, names[i]), ckpt_cuda(device)));
    REQUIRE_OK(ckpt_device_query(ckpt_state_data(s, names[i]), 1, &m, &err));
    REQUIRE(ckpt_device_equal(m.device, ckpt_cuda(device)));
    REQUIRE_OK(ckpt_reader_read(reader, i, want, n, &err));
    REQUIRE_OK(ckpt__move_bytes(&lanes, ckpt_cpu(), have, m.device, ckpt_state_data(s, names[i]), n, &err));
    REQUIRE_OK(ckpt__lanes_close(&lanes, &err));
    REQUIRE(memcmp(want, have, n) == 0);
    free(want);
    free(have);
}

static void put_map(const what *w, char *file)
{
    int fd = mkstemps(file, 5);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    REQUIRE(f);
    fprintf(f, "map: 1\nsource:\n  rename: [{from: '(.*)', to: '%s'}]\ndefault: 'cuda:{rank}'\n", w->rename);
    REQUIRE(fclose(f) == 0);
}

static void replicas(const void *arg)
{
    const what *w = arg;
    static const char *const devices[DEVICES] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"};
    char map[64] = "/tmp/ckpt-keras-XXXXXX.yaml";
    ckpt_state *states[DEVICES];
    ckpt_restore_options each[DEVICES];
    const ckpt_restore_options *options[DEVICES];
    ckpt_report *reports[DEVICES];
    open_file(w);
    if (w->rename)
        put_map(w, map);
    for (size_t i = 0; i < w->devices; i++) {
        states[i] = bind_all();
        reports[i] = ckpt_report_new();
        each[i] = (ckpt_restore_options)CKPT_RESTORE_OPTIONS_INIT;
        each[i].map_location = w->rename ? map : devices[i];
        each[i].ranks.rank = (int)i;
        each[i].ranks.world = (int)w->devices;
        options[i] = &each[i];
    }
    REQUIRE_OK(ckpt_restore_many(states, w->devices, path, options, reports, &err));
    for (size_t i = 0; i < w->devices; i++) {
        for (size_t k = 0; k < count; k++)
            check(states[i], k, (int)i);
        REQUIRE((ckpt_report_count_code(reports[i], "prefix-stripped") == 1) == (w->strip != NULL));
        REQUIRE_OK(ckpt_guard(states[i], CKPT_OPTIMIZER_PLAIN, NULL, reports[i], &err));
        ckpt_report_free(reports[i]);
        ckpt_state_free(states[i]);
    }
    if (w->rename)
        unlink(map);
    ckpt_reader_close(reader);
}

static const char *const four[] = {"FAKECUDA_DEVICES=4", NULL};
static const what cases[] = {
    {.file = "small.keras", .devices = 2},
    {.file = "small.keras", .devices = 4},
    {.file = "deflated.keras", .devices = 3},
    {.file = "shards", .devices = 2},
    {.file = "small.h5", .devices = 4},
    {.file = "module.weights.h5", .strip = "module.", .devices = 4},
    {.file = "small.keras", .rename = "module.$1", .add = "module.", .devices = 2},
};

START_TEST(one_file_onto_several_devices)
{
    expect_success(replicas, &cases[_i], four);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore of Keras' files on devices");
    TCase *t = tcase_create("restore of Keras' files on devices");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, one_file_onto_several_devices, 0, (int)(sizeof cases / sizeof *cases));
    suite_add_tcase(s, t);
    return run_suite(s);
}
