/* test_restore_dcp.c - distributed checkpoints of PyTorch restored: tensors that lie in pieces in the files of several ranks, and
 * optimizer state, into host memory and onto the devices of tests/fakecuda, are byte for byte what ckpt_reader_read gives; of
 * a damaged rank file what the report says. The checkpoints are those of tests/data/dcp. */
#include <ckpt/ckpt.h>
#include <ckpt/naming.h>
#include <stdlib.h>
#include <string.h>
#include "../child.h"
#include "codec/zstd.h"
#include "engine/put.h"
#include "../require.h"
#include "../runner.h"

enum { MOST = 32, LARGEST = 4096, UNTOUCHED = 0xA5 };

typedef struct what {
    const char *directory; /* below tests/data/dcp */
    const char *first;     /* the optimizer's only parameter, where the file cannot tell; NULL: it can */
    size_t bound, split;   /* how many tensors a state binds, and how many of them lie in pieces */
    bool zstd;
    size_t turned; /* whose records have another order, so that no place in the file is told */
} what;

static const what cases[] = {
    {.directory = "trained", .bound = 12, .split = 9},
    {.directory = "cut", .first = "rows.weight", .bound = 6, .split = 2, .turned = 1},
    {.directory = "ranks", .first = "rows.weight", .bound = 6, .split = 5},
    {.directory = "zstd", .first = "rows.weight", .bound = 6, .zstd = true},
    {.directory = "shards", .bound = 5, .split = 2},
};
enum { CASES = sizeof cases / sizeof *cases, OF_RANKS = 2 }; /* the first two are whole files of several ranks */

static char path[1200];
static ckpt_reader *reader;

/* What a state binds, by the names that ckpt_naming_new gives, and the bytes that it should get. */
static struct tensor {
    const ckpt_tensor_info *info;
    const ckpt_canonical *as;
    size_t number; /* of the reader */
    unsigned char bytes[LARGEST];
} tensors[MOST];
static size_t count;
static ckpt_naming *naming;

static ckpt_restore_options options_of(const what *w)
{
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.param_names = w->first ? &w->first : NULL;
    o.param_name_count = w->first ? 1 : 0;
    return o;
}

static void open_case(const what *w)
{
    const char *srcdir = getenv("srcdir");
    ckpt_naming_options o = CKPT_NAMING_OPTIONS_INIT;
    size_t split = 0;
    snprintf(path, sizeof path, "%s/tests/data/dcp/%s", srcdir ? srcdir : ".", w->directory);
    o.param_names = w->first ? &w->first : NULL;
    o.param_name_count = w->first ? 1 : 0;
    count = 0;
    REQUIRE_OK(ckpt_reader_open(path, NULL, &reader, &err));
    REQUIRE_OK(ckpt_naming_new(reader, &o, &naming, NULL, &err));
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_canonical *as = ckpt_naming_get(naming, i);
        if (!as->name.data)
            continue;
        REQUIRE(count < MOST && ckpt_reader_tensor(reader, i)->nbytes <= LARGEST);
        struct tensor *t = &tensors[count++];
        t->info = ckpt_reader_tensor(reader, i);
        t->as = as;
        t->number = i;
        REQUIRE_OK(ckpt_reader_read(reader, i, t->bytes, (size_t)t->info->nbytes, &err));
        split += ckpt_reader_piece_count(reader, i) > 1;
    }
    REQUIRE(count == w->bound && split == w->split);
}

static void close_case(void)
{
    ckpt_naming_free(naming);
    ckpt_reader_close(reader);
}

/* ---- a state, whose tensor i is the caller's on the host, or the library's on a device */

typedef struct live {
    ckpt_state *state;
    size_t devices; /* 0: all on the host; else every third parameter is, and the others are on the devices in turn */
    unsigned char bytes[MOST][LARGEST];
} live;

/* Optimizer state is where its parameter is, but for the counter: a plain optimizer has that on the host. */
static ckpt_device place_of(const live *l, size_t i)
{
    size_t of = i;
    if (!l->devices || tensors[i].as->role == CKPT_ROLE_STEP)
        return ckpt_cpu();
    for (size_t k = 0; tensors[i].as->param.data && k < count; k++)
        if (strcmp(tensors[k].as->name.data, tensors[i].as->param.data) == 0)
            of = k;
    return of % 3 ? ckpt_cuda((int)(of % l->devices)) : ckpt_cpu();
}

static void bind_all(live *l, size_t devices)
{
    l->state = ckpt_state_new();
    l->devices = devices;
    memset(l->bytes, UNTOUCHED, sizeof l->bytes);
    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = &tensors[i];
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = t->as->name.data;
        d.param = t->as->param.data;
        d.state_key = t->as->state_key.data;
        d.role = t->as->role;
        d.dtype = t->info->dtype;
        d.ndim = t->info->ndim;
        d.shape = t->info->shape;
        d.device = place_of(l, i);
        d.data = d.device.type == CKPT_DEVICE_CPU ? l->bytes[i] : NULL;
        REQUIRE_OK(ckpt_state_tensor(l->state, &d, &err));
    }
    REQUIRE(ckpt_state_tensor_count(l->state) == count);
}

/* Its bytes now, and all of them are where they should be. */
static const unsigned char *bytes_of(live *l, size_t i)
{
    size_t n = (size_t)tensors[i].info->nbytes;
    const char *name = tensors[i].as->name.data;
    ckpt_device place = place_of(l, i);
    REQUIRE(ckpt_device_equal(ckpt_state_device(l->state, name), place));
    if (place.type == CKPT_DEVICE_CPU) {
        for (size_t k = n; k < LARGEST; k++)
            REQUIRE(l->bytes[i][k] == UNTOUCHED);
        return l->bytes[i];
    }
    ckpt__lanes lanes = {.count = 0};
    ckpt_memory m;
    REQUIRE_OK(ckpt_device_query(ckpt_state_data(l->state, name), 1, &m, &err));
    REQUIRE(ckpt_device_equal(m.device, place));
    REQUIRE_OK(ckpt__move_bytes(&lanes, ckpt_cpu(), l->bytes[i], place, ckpt_state_data(l->state, name), n, &err));
    REQUIRE_OK(ckpt__lanes_close(&lanes, &err));
    return l->bytes[i];
}

static bool is_restored(live *l, size_t i)
{
    return memcmp(bytes_of(l, i), tensors[i].bytes, (size_t)tensors[i].info->nbytes) == 0;
}

static void check_all(live *l)
{
    REQUIRE(!ckpt_state_poisoned(l->state));
    for (size_t i = 0; i < count; i++)
        REQUIRE(is_restored(l, i));
}

/* ---- all is well */

static const char *const two[] = {"FAKECUDA_DEVICES=2", NULL};
static const size_t threads[] = {1, 2, 8};
static live one, other;

static void equal(const void *arg)
{
    const what *w = arg;
    open_case(w);
    for (size_t t = 0; t < 3; t++)
        for (size_t devices = 0; devices <= 2; devices += 2) {
            ckpt_restore_options o = options_of(w);
            ckpt_report *report = ckpt_report_new();
            o.threads = threads[t];
            bind_all(&one, devices);
            REQUIRE_OK(ckpt_restore(one.state, path, &o, report, &err));
            check_all(&one);
            REQUIRE(ckpt_report_count_code(report, "missing") + ckpt_report_count_code(report, "unexpected") == 0);
            ckpt_report_free(report);
            ckpt_state_free(one.state);
        }
    close_case();
}

static void many(const void *arg)
{
    const what *w = arg;
    open_case(w);
    for (size_t t = 0; t < 3; t++) {
        ckpt_restore_options o = options_of(w);
        const ckpt_restore_options *options[2] = {&o, &o};
        o.threads = threads[t];
        bind_all(&one, 0);
        bind_all(&other, 2);
        ckpt_state *const states[2] = {one.state, other.state};
        REQUIRE_OK(ckpt_restore_many(states, 2, path, options, NULL, &err));
        check_all(&one);
        check_all(&other);
        ckpt_state_free(one.state);
        ckpt_state_free(other.state);
    }
    close_case();
}

static bool can_be_read(const what *w)
{
    return !w->zstd || ckpt__zstd_is_there();
}

START_TEST(all_tensors_are_equal)
{
    if (can_be_read(&cases[_i]))
        expect_success(equal, &cases[_i], two);
}
END_TEST

START_TEST(two_states_at_once)
{
    if (can_be_read(&cases[_i]))
        expect_success(many, &cases[_i], two);
}
END_TEST

/* ---- a rank's file is damaged, or is not there */

static char copy[64]; /* of the checkpoint */

static void shell(const char *format, const char *a, const char *b)
{
    char command[3000];
    REQUIRE(snprintf(command, sizeof command, format, a, b) < (int)sizeof command && system(command) == 0);
}

static void make_copy(void)
{
    strcpy(copy, "/tmp/ckpt-dcp-XXXXXX");
    REQUIRE(mkdtemp(copy));
    shell("cp -r '%2$s/.' '%1$s' && chmod -R u+w '%1$s'", copy, path);
}

/* One bit of a piece's first byte; once more: as it was. */
static void flip(const ckpt_piece_info *piece)
{
    char file[1500];
    long at = (long)piece->file_offset;
    REQUIRE(at >= 0);
    snprintf(file, sizeof file, "%s/%.*s", copy, (int)piece->file.size, piece->file.data);
    FILE *f = fopen(file, "r+b");
    REQUIRE(f && fseek(f, at, SEEK_SET) == 0);
    int byte = fgetc(f);
    REQUIRE(byte != EOF && fseek(f, at, SEEK_SET) == 0 && fputc(byte ^ 1, f) != EOF && fclose(f) == 0);
}

static bool is_on_host(const live *l, size_t i)
{
    return place_of(l, i).type == CKPT_DEVICE_CPU;
}

static void check_untouched(const live *l, size_t i)
{
    for (size_t k = 0; is_on_host(l, i) && k < LARGEST; k++)
        REQUIRE(l->bytes[i][k] == UNTOUCHED);
}

/* Bytes of pieces that were read in time; none of a damaged one, for all are small. */
static void check_torn(const live *l, size_t i)
{
    REQUIRE(ckpt_reader_piece_count(reader, tensors[i].number) > 1);
    for (size_t k = 0; is_on_host(l, i) && k < LARGEST; k++)
        REQUIRE(l->bytes[i][k] == UNTOUCHED || (k < tensors[i].info->nbytes && l->bytes[i][k] == tensors[i].bytes[k]));
}

/* Each tensor is in the report once, and is what that says. Only what lies in pieces is torn: by a piece that was not read. */
static void check_report(live *l, const ckpt_report *report, size_t damaged)
{
    REQUIRE(ckpt_report_count_code(report, "complete") + ckpt_report_count_code(report, "untouched") +
                ckpt_report_count_code(report, "torn") ==
            count);
    for (size_t i = 0; i < count; i++) {
        const char *name = tensors[i].as->name.data;
        if (ckpt_report_find(report, "complete", name))
            REQUIRE(i != damaged && is_restored(l, i));
        else if (ckpt_report_find(report, "untouched", name))
            check_untouched(l, i);
        else if (ckpt_report_find(report, "torn", name))
            check_torn(l, i);
        else
            REQUIRE(!"in the report");
    }
}

/* It is refused by name; then the state can be restored from what is whole. */
static void refused(const what *w, size_t damaged, const ckpt_restore_options *o, size_t devices)
{
    ckpt_restore_options good = options_of(w);
    ckpt_report *report = ckpt_report_new();
    bind_all(&one, devices);
    REQUIRE(ckpt_restore(one.state, copy, o, report, &err) == CKPT_E_DAMAGED);
    REQUIRE(strstr(err.message, tensors[damaged].info->name.data) ||
            strstr(tensors[damaged].info->name.data, err.object));
    REQUIRE(ckpt_state_poisoned(one.state) == !o->verify_first);
    for (size_t i = 0; o->verify_first && i < count; i++)
        check_untouched(&one, i);
    if (!o->verify_first)
        check_report(&one, report, damaged);
    REQUIRE_OK(ckpt_restore(one.state, path, &good, NULL, &err));
    check_all(&one);
    ckpt_report_free(report);
    ckpt_state_free(one.state);
}

/* The first byte of the last piece of each tensor in turn. */
static void damaged(const void *arg)
{
    const what *w = arg;
    size_t turned = 0;
    open_case(w);
    make_copy();
    for (size_t i = 0; i < count; i++) {
        ckpt_restore_options o = options_of(w);
        ckpt_piece_info piece = CKPT_PIECE_INFO_INIT;
        size_t last = ckpt_reader_piece_count(reader, tensors[i].number) - 1;
        REQUIRE_OK(ckpt_reader_piece(reader, tensors[i].number, last, &piece, &err));
        if (piece.file_offset < 0) {
            turned++;
            continue;
        }
        flip(&piece);
        for (size_t k = 0; k < 2; k++) {
            o.threads = threads[(i + k) % 3];
            refused(w, i, &o, 2 * k);
        }
        o.verify_first = true;
        refused(w, i, &o, 2);
        flip(&piece);
    }
    REQUIRE(turned == w->turned);
    bind_all(&one, 0);
    ckpt_restore_options o = options_of(w);
    REQUIRE_OK(ckpt_restore(one.state, copy, &o, NULL, &err));
    check_all(&one);
    ckpt_state_free(one.state);
    shell("rm -r '%s'%s", copy, "");
    close_case();
}

START_TEST(what_a_damaged_rank_leaves)
{
    expect_success(damaged, &cases[_i], two);
}
END_TEST

/* Without a rank's file, or with one that is cut off, nothing is touched, not even what other ranks have. */
static void incomplete(const void *arg)
{
    static const char *const ways[] = {"rm '%s/%s'", "truncate -s 900 '%s/%s'"};
    const what *w = arg;
    open_case(w);
    for (size_t i = 0; i < 2; i++) {
        ckpt_restore_options o = options_of(w);
        make_copy();
        shell(ways[i], copy, "__1_0.distcp");
        bind_all(&one, 0);
        REQUIRE(ckpt_restore(one.state, copy, &o, NULL, &err) == CKPT_E_DAMAGED);
        REQUIRE(strstr(err.message, "__1_0.distcp") && !ckpt_state_poisoned(one.state));
        for (size_t k = 0; k < count; k++)
            check_untouched(&one, k);
        ckpt_state_free(one.state);
        shell("rm -r '%s'%s", copy, "");
    }
    close_case();
}

START_TEST(a_rank_that_is_not_all_there)
{
    expect_success(incomplete, &cases[_i], two);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore of distributed checkpoints");
    TCase *t = tcase_create("restore of distributed checkpoints");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, all_tensors_are_equal, 0, CASES);
    tcase_add_loop_test(t, two_states_at_once, 0, CASES);
    tcase_add_loop_test(t, what_a_damaged_rank_leaves, 0, OF_RANKS);
    tcase_add_loop_test(t, a_rank_that_is_not_all_there, 0, OF_RANKS);
    suite_add_tcase(s, t);
    return run_suite(s);
}
