/* migrate/case_source.h - a case of plan_cases.h as what a migration reads: its storages in files, and the reader of it. Link with
 * --wrap=ckpt_reader_open. */
#ifndef CASE_SOURCE_H
#define CASE_SOURCE_H
#include "given_reader.h"
#include "../engine/plan_files.h"

static const char *const formats[] = {"safetensors", "torch", "ckpt", "hf"};

static made tensors[TENSORS];
static size_t tensor_count;
static expected drawn_bytes;

/* The current directory is "case" in the scratch directory: what is written into ".." is no file of the source. */
static inline void begin(void)
{
    make_scratch();
    ck_assert(mkdir("case", 0755) == 0 && chdir("case") == 0);
    source = malloc(sizeof *source);
    target = malloc(sizeof *target);
}

static inline void end(void)
{
    free(source);
    free(target);
    remove_scratch();
}

/* The same tensors and pieces each time it is called with the same seed; write_source comes next. */
static inline void draw_source(uint64_t seed)
{
    tensor_count = make_case(seed, tensors, &drawn_bytes);
}

/* Writes the files and finishes the index: `opened` and source->index are the source. Returns the storage that was harmed. */
static inline uint32_t write_source(bool harms)
{
    ckpt__bond bonds[TENSORS];
    ckpt__op ops[TENSORS];
    ck_assert(add_case(tensors, tensor_count, &drawn_bytes, bonds, ops));
    ckpt__index_free(target->index);
    uint32_t victim = write_files(harms);
    source->index->format = "safetensors";
    source->index->kind = "file";
    source->index->step = -1;
    ck_assert(ckpt__index_finish(source->index, &err) == CKPT_OK);
    return victim;
}

/* Options of a migration of the case; with cast each tensor gets the dtype that was drawn for it. */
static inline ckpt_migrate_options case_options(const char *to, bool cast)
{
    static char rules[TENSORS][32];
    static const char *casts[TENSORS];
    ckpt_migrate_options o = CKPT_MIGRATE_OPTIONS_INIT;
    for (size_t i = 0; cast && i < tensor_count; i++) {
        snprintf(rules[i], sizeof rules[i], "t%zu=%s", i, ckpt_dtype_name(tensors[i].to_dtype));
        casts[i] = rules[i];
    }
    o.to = to;
    o.lossy = o.force = o.no_sync = true;
    o.cast = casts;
    o.cast_count = cast ? tensor_count : 0;
    return o;
}
#endif
