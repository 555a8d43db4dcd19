/* test_restore_cuda_peers.c - what other programs saved, restored onto devices: a file of Lightning, directories of
 * accelerate and transformers, torch before 1.6, an 8-bit optimizer. Every tensor of the checkpoint is bound under its
 * canonical name, restored with each kind of optimizer, read back from where it lies, and held against the placement policy
 * and the guard. The devices are those of tests/fakecuda. */
#include <ckpt/ckpt.h>
#include "../child.h"
#include "anatomy/canon.h"
#include "reader/reader.h"
#include "engine/put.h"
#include "../require.h"
#include "../runner.h"

enum { MOST = 200 };

typedef struct peer {
    const char *path;      /* below tests/data/peers */
    size_t params, states; /* that are bound at least */
    bool untagged;         /* it keeps no device tags */
    const char *names[8];  /* of its optimizer's parameters, where it does not say which they are */
    int64_t shapes[8][2];  /* of those, where it has no model */
} peer;

static const peer peers[] = {
    {.path = "lightning.ckpt", .params = 4, .states = 12},
    {.path = "lightning-callbacks.ckpt", .params = 2, .states = 4},
    {.path = "accelerate",
     .params = 6,
     .states = 18,
     .names = {"fc1.weight", "fc2.weight", "fc1.bias", "bn.weight", "bn.bias", "fc2.bias"}},
    {.path = "hf-sharded", .params = 4, .untagged = true},
    {.path = "torch-1.13-legacy.pt", .params = 2, .states = 6},
    {.path = "torch-1.13.pt", .params = 2, .states = 6},
    {.path = "bitsandbytes.pt",
     .params = 4,
     .states = 12,
     .names = {"big.weight", "big.bias", "small.weight", "small.bias"},
     .shapes = {{65, 64}, {65}, {2, 3}, {2}}},
};

typedef struct bound {
    char name[200];
    ckpt_role role;
    char param[200];
    size_t tensor; /* in the reader; SIZE_MAX: the checkpoint has none */
    uint32_t ndim;
    const int64_t *shape;
    ckpt_dtype dtype;
} bound;

static char path[1200];
static ckpt_reader *reader;
static ckpt__canon *canon;
static bound all[MOST];
static size_t count;

static size_t names_of(const peer *p)
{
    size_t n = 0;
    while (n < 8 && p->names[n])
        n++;
    return n;
}

static void open_peer(const peer *p)
{
    const char *srcdir = getenv("srcdir");
    ckpt_report *report = ckpt_report_new();
    snprintf(path, sizeof path, "%s/tests/data/peers/%s", srcdir ? srcdir : ".", p->path);
    REQUIRE_OK(ckpt_reader_open(path, NULL, &reader, &err));
    ckpt__canon_hints hints = {.param_names = p->names, .param_name_count = names_of(p)};
    REQUIRE_OK(ckpt__canon_build(reader->index, &hints, &canon, report, &err));
    ckpt_report_free(report);
    count = 0;
    for (size_t i = 0; p->shapes[0][0] && i < names_of(p); i++) {
        all[count] = (bound){.role = CKPT_ROLE_PARAM,
                             .tensor = SIZE_MAX,
                             .dtype = CKPT_F32,
                             .ndim = p->shapes[i][1] ? 2 : 1,
                             .shape = p->shapes[i]};
        strcpy(all[count++].name, p->names[i]);
    }
    for (size_t i = 0; i < canon->count; i++) {
        const ckpt__canon_entry *e = &canon->entries[i];
        if (!e->is_tensor || e->outside)
            continue;
        REQUIRE(count < MOST && e->name.size < 200 && e->param.size < 200);
        bound *b = &all[count++];
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, e->tensor);
        *b = (bound){.role = e->role, .tensor = e->tensor, .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape};
        memcpy(b->name, e->name.data, e->name.size);
        if (e->param.data)
            memcpy(b->param, e->param.data, e->param.size);
    }
}

static void close_peer(void)
{
    ckpt__canon_free(canon);
    ckpt_reader_close(reader);
}

/* Everything in memory of the library's own. */
static ckpt_state *bind_all(const peer *p, ckpt_optimizer_kind kind)
{
    ckpt_state *s = ckpt_state_new();
    size_t params = 0, states = 0;
    for (size_t i = 0; i < count; i++) {
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = all[i].name;
        d.param = *all[i].param && all[i].role != CKPT_ROLE_PARAM ? all[i].param : NULL;
        d.role = all[i].role;
        d.dtype = all[i].dtype;
        d.ndim = all[i].ndim;
        d.shape = all[i].shape;
        params += d.role == CKPT_ROLE_PARAM;
        states += d.param != NULL;
        if (all[i].role == CKPT_ROLE_STEP && (kind == CKPT_OPTIMIZER_FUSED || kind == CKPT_OPTIMIZER_CAPTURABLE))
            d.dtype = CKPT_F32;
        REQUIRE_OK(ckpt_state_tensor(s, &d, &err));
    }
    REQUIRE(params >= p->params && states >= p->states);
    return s;
}

static ckpt_device device_of_param(const ckpt_state *s, const char *name)
{
    return ckpt_state_device(s, name);
}

/* The bytes that the checkpoint has, wherever they are now. */
static void check_bytes(const ckpt_state *s, const bound *b)
{
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, b->tensor);
    size_t n = (size_t)t->nbytes;
    char *want = malloc(n + 1), *have = malloc(n + 1);
    ckpt__lanes lanes = {.count = 0};
    REQUIRE_OK(ckpt_reader_read(reader, b->tensor, want, n, &err));
    if (n) {
        REQUIRE_OK(ckpt__move_bytes(&lanes, ckpt_cpu(), have, ckpt_state_device(s, b->name),
                                    ckpt_state_data(s, b->name), n, &err));
        REQUIRE_OK(ckpt__lanes_close(&lanes, &err));
        if (memcmp(want, have, n) != 0)
            fprintf(stderr, "%s: %s\n", path, b->name);
        REQUIRE(memcmp(want, have, n) == 0);
    }
    free(want);
    free(have);
}

static void check_place(const ckpt_state *s, const bound *b, ckpt_optimizer_kind kind, ckpt_device everything)
{
    ckpt_memory m;
    ckpt_device d = ckpt_state_device(s, b->name), want = everything;
    bool on_device = kind == CKPT_OPTIMIZER_FUSED || kind == CKPT_OPTIMIZER_CAPTURABLE;
    if (want.type == CKPT_DEVICE_NONE)
        want = b->role == CKPT_ROLE_PARAM ? d : *b->param ? device_of_param(s, b->param) : d;
    if (b->role == CKPT_ROLE_RNG || (b->role == CKPT_ROLE_STEP && !on_device))
        want = ckpt_cpu();
    if (!ckpt_device_equal(d, want))
        fprintf(stderr, "%s: %s is on %d:%d, not on %d:%d\n", path, b->name, d.type, d.index, want.type, want.index);
    REQUIRE(ckpt_device_equal(d, want));
    if (b->tensor != SIZE_MAX && !ckpt_reader_tensor(reader, b->tensor)->nbytes)
        return;
    REQUIRE_OK(ckpt_device_query(ckpt_state_data(s, b->name), 1, &m, &err));
    REQUIRE(ckpt_device_equal(m.device, want));
}

static void restore_one(const peer *p, const char *map, ckpt_optimizer_kind kind, ckpt_device everything)
{
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *r = ckpt_report_new();
    o.map_location = map;
    o.optimizer = kind;
    o.allow_unexpected = true;
    o.allow_missing = p->shapes[0][0] != 0;
    o.param_names = p->names;
    o.param_name_count = names_of(p);
    ckpt_state *s = bind_all(p, kind);
    ckpt_status status = ckpt_restore(s, path, &o, r, &err);
    if (status != CKPT_OK)
        fprintf(stderr, "%s to %s for %s: %s: %s\n", path, map, ckpt_optimizer_kind_name(kind), err.object,
                err.message);
    REQUIRE(status == CKPT_OK);
    for (size_t i = 0; i < count; i++) {
        check_place(s, &all[i], kind, everything);
        if (all[i].tensor != SIZE_MAX && (all[i].role != CKPT_ROLE_STEP || all[i].dtype == CKPT_F32))
            check_bytes(s, &all[i]);
    }
    ckpt_status guarded = ckpt_guard(s, kind, NULL, r, &err);
    if (guarded != CKPT_OK)
        fprintf(stderr, "%s to %s for %s: the guard: %s: %s\n", path, map, ckpt_optimizer_kind_name(kind), err.object,
                err.message);
    REQUIRE(guarded == CKPT_OK);
    ckpt_report_free(r);
    ckpt_state_free(s);
}

static const ckpt_optimizer_kind kinds[] = {CKPT_OPTIMIZER_FUSED, CKPT_OPTIMIZER_CAPTURABLE, CKPT_OPTIMIZER_FOREACH,
                                            CKPT_OPTIMIZER_PLAIN};

static void everywhere(const void *arg)
{
    const peer *p = arg;
    open_peer(p);
    for (size_t k = 0; k < 4; k++) {
        restore_one(p, "cuda:0", kinds[k], ckpt_cuda(0));
        restore_one(p, "cuda:1", kinds[k], ckpt_cuda(1));
        if (!p->untagged && !p->shapes[0][0] && !p->names[0])
            restore_one(p, "*=cuda:{1 - 0}", kinds[k], ckpt_cuda(1));
        if (kinds[k] != CKPT_OPTIMIZER_CAPTURABLE && kinds[k] != CKPT_OPTIMIZER_FUSED)
            restore_one(p, "cpu", kinds[k], ckpt_cpu());
    }
    close_peer();
}

/* Some parameters on one device, the rest on the other: what belongs to a parameter is with it. */
static void split(const void *arg)
{
    const peer *p = arg;
    char file[64] = "/tmp/ckpt-map-XXXXXX.yaml";
    const char *first = NULL;
    open_peer(p);
    for (size_t i = 0; i < count && !first; i++)
        if (all[i].role == CKPT_ROLE_PARAM)
            first = all[i].name;
    int fd = mkstemps(file, 5);
    REQUIRE(fd >= 0 && first);
    FILE *f = fdopen(fd, "w");
    fprintf(f, "map: 1\nrules:\n- {name: '%s', to: 'cuda:0'}\ndefault: 'cuda:1'\n", first);
    fclose(f);
    for (size_t k = 0; k < 4; k++)
        restore_one(p, file, kinds[k], (ckpt_device){CKPT_DEVICE_NONE, -1});
    unlink(file);
    close_peer();
}

/* ---- the tests */

static const char *const two[] = {"FAKECUDA_DEVICES=2", NULL};

START_TEST(each_peer_on_each_device)
{
    expect_success(everywhere, &peers[_i], two);
}
END_TEST

START_TEST(each_peer_on_two_devices)
{
    expect_success(split, &peers[_i], two);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore of peers on devices");
    TCase *t = tcase_create("restore of peers on devices");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, each_peer_on_each_device, 0, (int)(sizeof peers / sizeof *peers));
    tcase_add_loop_test(t, each_peer_on_two_devices, 0, (int)(sizeof peers / sizeof *peers));
    suite_add_tcase(s, t);
    return run_suite(s);
}
