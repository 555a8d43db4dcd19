/* tests/unit/llmc_files.h - checkpoints of llm.c as a loop writes them that knows nothing of the library. Each element says which tensor it
 * is of, and where in it. */
#ifndef LLMC_FILES_H
#define LLMC_FILES_H
#include "reader_checks.h"

enum { MAX_T = 4, VOCAB = 6, LAYERS = 2, HEADS = 1, CHANNELS = 4, PADDED = 8, HEAD_INTS = 256 };

static const struct {
    const char *name;
    int layers, numel; /* 0: of no layer; elements of one layer */
} parts[] = {{"wte", 0, PADDED *CHANNELS},
             {"wpe", 0, MAX_T *CHANNELS},
             {"ln1w", 1, CHANNELS},
             {"ln1b", 1, CHANNELS},
             {"qkvw", 1, 3 * CHANNELS *CHANNELS},
             {"qkvb", 1, 3 * CHANNELS},
             {"attprojw", 1, CHANNELS *CHANNELS},
             {"attprojb", 1, CHANNELS},
             {"ln2w", 1, CHANNELS},
             {"ln2b", 1, CHANNELS},
             {"fcw", 1, 4 * CHANNELS *CHANNELS},
             {"fcb", 1, 4 * CHANNELS},
             {"fcprojw", 1, 4 * CHANNELS *CHANNELS},
             {"fcprojb", 1, CHANNELS},
             {"lnfw", 0, CHANNELS},
             {"lnfb", 0, CHANNELS}};
enum { PARTS = sizeof parts / sizeof *parts };

/* Of one kind (0: the weights) and tensor, element i. */
static inline float value_of(int kind, int part, int i)
{
    return (float)(kind * 100000 + part * 1000 + i);
}

static inline int32_t *header(int32_t magic, int32_t version)
{
    static int32_t h[HEAD_INTS];
    memset(h, 0, sizeof h);
    h[0] = magic;
    h[1] = version;
    return h;
}

static inline FILE *begin(const char *path, const int32_t *head)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(head, sizeof *head, HEAD_INTS, f), HEAD_INTS);
    return f;
}

/* All elements of all tensors, or those of one rank of several. */
static inline void put_kind(FILE *f, int kind, int rank, int ranks)
{
    for (int p = 0; p < PARTS; p++)
        for (int l = 0; l < (parts[p].layers ? LAYERS : 1); l++)
            for (int i = 0, own = parts[p].numel / ranks; i < own; i++) {
                float v = value_of(kind, p, l * parts[p].numel + rank * own + i);
                ck_assert_uint_eq(fwrite(&v, sizeof v, 1, f), 1);
            }
}

static inline int32_t *model_header(void)
{
    int32_t *h = header(20240326, 3);
    const int32_t sizes[] = {MAX_T, VOCAB, LAYERS, HEADS, CHANNELS, PADDED};
    memcpy(h + 2, sizes, sizeof sizes);
    return h;
}

static inline void write_model(const char *path)
{
    FILE *f = begin(path, model_header());
    put_kind(f, 0, 0, 1);
    fclose(f);
}

/* What differs from file to file. */
typedef struct state {
    int rank, ranks, step;
    bool whole, master, shuffles; /* whole: not divided */
} state;

/* One of each kind. */
static const state kinds_of_states[] = {{.ranks = 1, .step = 7},
                                        {.ranks = 2, .step = 7, .master = true},
                                        {.ranks = 4, .step = 7, .shuffles = true},
                                        {.ranks = 2, .step = 7, .whole = true},
                                        {.ranks = 3, .step = 7, .whole = true, .master = true, .shuffles = true}};
enum { KINDS_OF_STATES = sizeof kinds_of_states / sizeof *kinds_of_states };

static inline void write_state(const char *path, state s)
{
    int32_t *h = header(20240527, 1);
    const int64_t numbers[] = {700 + s.rank, 600}, place[] = {3, 50};
    const int32_t list[] = {2, 0, 1};
    const int64_t count = 3;
    char twister[2520] = {0};
    h[2] = s.ranks;
    h[3] = s.rank;
    h[4] = s.master;
    h[5] = s.shuffles;
    h[10] = s.step;
    memcpy(h + 20, numbers, sizeof numbers);
    memcpy(h + 30, place, sizeof place);
    FILE *f = begin(path, h);
    for (int kind = 1; kind <= 2 + s.master; kind++)
        put_kind(f, kind, s.whole ? 0 : s.rank, s.whole ? 1 : s.ranks);
    for (int i = 0; s.shuffles && i < 2; i++) {
        fwrite(&count, sizeof count, 1, f);
        fwrite(list, sizeof list, 1, f);
    }
    if (s.shuffles)
        fwrite(twister, sizeof twister, 1, f);
    fclose(f);
}

static inline const char *state_path(int step, int rank)
{
    char name[60];
    snprintf(name, sizeof name, "state_%08d_%05d.bin", step, rank);
    return at("%s", name);
}

static inline const char *step_path(const char *kind, int step)
{
    char name[60];
    snprintf(name, sizeof name, "%s_%08d%s", kind, step, strcmp(kind, "DONE") == 0 ? "" : ".bin");
    return at("%s", name);
}

static inline void write_step(state s)
{
    write_model(step_path("model", s.step));
    for (s.rank = 0; s.rank < s.ranks; s.rank++)
        write_state(state_path(s.step, s.rank), s);
    write_text(step_path("DONE", s.step), "");
}
#endif
