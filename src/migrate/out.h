/* migrate/out.h - the files of a target: one, or those of a directory. */
#ifndef CKPT_MIGRATE_OUT_H
#define CKPT_MIGRATE_OUT_H
#include "codec/sha256.h"
#include "engine/passes.h"
#include "migrate/migration.h"

/* One file of the target. A file is one of three: tensors in a format (`format` is set), a copy of a file of the
 * source (`copy`), or `text`. An example: two shards of --to hf, of 5 tensors in `chosen`, are {first 0, count 3},
 * {first 3, count 2}, and model.safetensors.index.json is a third file, with `text`. */
typedef struct ckpt__out_file {
    const char *name;           /* relative to the directory, in the arena of m->index; NULL: the target itself */
    const ckpt__format *format; /* static; NULL: `text`, or a copy */
    size_t first, count;        /* the file's tensors: m->chosen[first] to m->chosen[first + count - 1] */
    const ckpt_value *root;     /* borrowed: the value tree that goes into the file; NULL: none */
    size_t only;                /* as ckpt__write_request has it */
    ckpt__recipe *recipe;       /* owned: the bytes of the file, planned; NULL: `text`, or a copy */
    ckpt__buf text;             /* owned: the whole file */
    bool copy;                  /* a copy of the source's file of this name, byte for byte */
    size_t from;                /* of a copy: number of the source's root that holds the file */
    uint64_t size;              /* of a copy: bytes */
    uint32_t crc;               /* CRC-32 of the file's bytes, once they are written: of all but `text` */
    bool taken;                 /* an interrupted run has written it, and it was read back */
    struct ckpt__manifest
        *list; /* in the arena of m->index: `text` is made anew when its turn comes, and by each run that goes on
                                  * (to_run.c); NULL: it is not */
} ckpt__out_file;

/* All files of the target, in the order in which they are written. */
typedef struct ckpt__out {
    ckpt__migration *m; /* borrowed */
    ckpt__out_file *files;
    size_t count, capacity; /* heap, owned */
    const char **folders;
    size_t folder_count, folder_capacity; /* heap, owned: directories to make, parents
                                                                        * first */
    ckpt__recipe *ranged;                 /* owned: the tensors that files have in ranges, whole; NULL: there is none */
    const struct ckpt__dcp_ranks *cuts;   /* borrowed: how those lie box by box; NULL: in C order */
    struct ckpt__bytes *bytes;            /* borrowed: what the recipes are read from; NULL: nothing is read yet */
    ckpt_error *err;
} ckpt__out;

/* One more file, zeroed but for its name; NULL: memory is short. Valid until the next is added. */
ckpt__out_file *ckpt__out_add(ckpt__out *w, const char *name);
/* One more file of the target's format, which takes the recipe; it is freed where memory is short. NULL: the file is `text`, which is
 * empty yet. */
ckpt_status ckpt__out_add_recipe(ckpt__out *w, const char *name, ckpt__recipe *recipe);

/* ---- ties.c */

/* Is a tensor of the target the same view as one that was asked about before? Then it is left out: the row's fate and a note ("tied") say
 * so, under the name `name`. seen: those that were; its keys lie in the arena of m->index. why: "as transformers does". */
ckpt_status ckpt__leave_tied(ckpt__migration *m, ckpt__hash *seen, size_t tensor, ckpt_str name, const char *why,
                             bool *tied, ckpt_error *err);

/* ---- bytes.c */

/* Which bytes of the source become which of the target, once all recipes are made. m->index describes the target from then on
 * (ckpt__recipes_lay_out). Nothing is read for it. An error: that of ckpt__plan_new, before a file is made. *out is to be freed in
 * any case. */
typedef struct ckpt__bytes ckpt__bytes;
ckpt_status ckpt__bytes_plan(ckpt__out *w, ckpt__bytes **out);
/* Of a plan that was made with m->options.totals. */
ckpt_status ckpt__bytes_totals(const ckpt__bytes *b, ckpt_migrate_totals *out, ckpt_error *err);
/* How often the run, with so much memory for its buffers, decodes compressed storages. *out is to be freed in any case. */
ckpt_status ckpt__bytes_passes(ckpt__bytes *b, const ckpt__out *w, uint64_t memory, ckpt__passes **out,
                               ckpt_error *err);
/* Can another run go on between two files? Not where two files have ranges that overlap in part, of values that are converted: what
 * became of them is counted for each range. */
bool ckpt__bytes_stops(const ckpt__bytes *b);
/* What a run that goes on has to know of a file that was just written, for the journal; and takes it in place of reading it.
 * *understood: false where it is no such text. last: it is of the file that was written last of all. */
void ckpt__bytes_say(const ckpt__bytes *b, const ckpt__recipe *recipe, ckpt__buf *text);
ckpt_status ckpt__bytes_take(ckpt__bytes *b, const ckpt__recipe *recipe, const char *text, bool *understood);
ckpt_status ckpt__bytes_doubt(ckpt__bytes *b, const char *text, bool *understood, ckpt_error *err);
const ckpt__plan *ckpt__bytes_plan_of(const ckpt__bytes *b); /* its bonds: one a payload, in the order of the files */
/* Where the payload of a tensor of the target begins in its storage, in bytes: one that is cut into boxes has them one behind the other. */
uint64_t ckpt__payload_begin(const ckpt__index *index, const ckpt__tensor *tensor);
uint64_t ckpt__bytes_memory(const ckpt__bytes *b); /* bytes that the plan takes */
/* To be read, for ckpt__write_recipe, in buffers of `memory` bytes, at least CKPT__MEMORY_LEAST. The payloads may be asked for in any
 * order, each from its first byte to its last. A view whose elements do not lie in order is put together window by window.
 *   readers: threads that make parts of a payload at the same time, at least 1; bytes, counts and errors are the same for any number.
 *   The CRCs that the source has are compared: CKPT_E_DAMAGED. Some are known only when the last byte of a storage was read, and some
 * by ckpt__bytes_finish, which reads what else they need: nothing is published before. */
enum { CKPT__MEMORY_LEAST = 1 << 20 };
unsigned ckpt__bytes_readers(unsigned threads, uint64_t memory); /* of so many threads, with so much memory */
ckpt_status ckpt__bytes_open(ckpt__bytes *b, uint64_t memory, unsigned readers, ckpt__payload *payload,
                             ckpt_error *err);
ckpt_status ckpt__bytes_finish(ckpt__bytes *b, ckpt_error *err);
/* What conversions cost, one a tensor of the source, when all was read; NULL: nothing is converted. It is b's. */
const ckpt__convert_counts *ckpt__bytes_cast_counts(ckpt__bytes *b);
void ckpt__bytes_free(ckpt__bytes *b);

/* ---- plan_rows.c */

/* What is known before a byte is read: the totals, where they are asked for; of a dry run what stays as it is ("copy"), and to
 * m->options.plan where each byte comes from. memory: of the run's buffers. */
ckpt_status ckpt__plan_tell(ckpt__out *w, ckpt__bytes *bytes, uint64_t memory);

/* ---- as_folder.c */

/* The members of the source's directory, each to be written in its own format, or copied. */
ckpt_status ckpt__same_files(ckpt__out *w);
/* For a directory of weights: the source's settings, tokenizer and other files that hold no part of a checkpoint. */
ckpt_status ckpt__carry_files(ckpt__out *w);
/* Is the file of this name, at the top of the source that was read as `from`, one that ckpt__carry_files takes along? */
bool ckpt__is_carried(const ckpt__index *from, const char *name);

/* ---- to_dcp.c */

/* A file for each rank that has a record, and, but of safetensors, the list. */
ckpt_status ckpt__dcp_files(ckpt__out *w);
/* The dict `root` as a distributed checkpoint in a folder of the directory. Values that hold no tensor are there whole, too, as torch 2.3
 * has them: an optimizer's groups may lack settings then (format/dcp/write.h). */
ckpt_status ckpt__dcp_folder(ckpt__out *w, const char *folder, const ckpt_value *root);

/* ---- digest.c */

/* Of the source's files, of the options, and of the plan: two migrations of one digest write the same files. As hexadecimal digits.
 * of: words that say what it is of, one by one: "source=DIGEST copied=DIGEST version=0.2.0", and the options. */
ckpt_status ckpt__out_digest(ckpt__out *w, char digest[CKPT__SHA256_TEXT], ckpt__buf *of);

/* ---- digest_options.c */

/* Behind what is there: the options that decide on the target, as words. Where memory is short the buffer has failed. */
void ckpt__options_say(const ckpt__migration *m, ckpt__buf *out);
/* The value of such a word; data NULL: it is not there. */
ckpt_str ckpt__options_word(const char *words, const char *name);
/* How many options differ, and behind what is there which they are: "--cast (not given then, '*=bfloat16' now)". */
size_t ckpt__options_differ(const char *then, const char *now, ckpt__buf *out);

/* ---- interrupted.c: a run goes on with what an interrupted one has left, by its journal (io/journal.h) */

/* What this run would be known by. */
typedef struct ckpt__known_by {
    char digest[CKPT__SHA256_TEXT]; /* "": no journal is kept */
    ckpt__buf of;                   /* owned */
} ckpt__known_by;
/* Before the directory is opened, which borrows it: options->journal. CKPT_E_EXISTS: an interrupted run of other options has finished files
 * that would be lost. *by is to be freed in any case. */
ckpt_status ckpt__interrupted_ask(ckpt__out *w, ckpt__sink_options *options, ckpt__known_by *by);
/* What a dry run says of it. */
ckpt_status ckpt__interrupted_tell(ckpt__out *w);
/* Once it is open: the finished files are read back, and are `taken`. *bytes: theirs. */
ckpt_status ckpt__interrupted_take(ckpt__out *w, ckpt__sink *folder, uint64_t *bytes);
/* A file is written. */
ckpt_status ckpt__interrupted_record(const ckpt__out *w, ckpt__sink *folder, const ckpt__out_file *file);
/* In place of ckpt__sink_abort, after an error: what is finished stays where another run can do better, and the error says so. */
void ckpt__interrupted_leave(ckpt__migration *m, ckpt__sink *folder, ckpt_status status, ckpt_error *err);

/* ---- turns.c */

/* How many files from `first` on are written by turns, since they have ranges of the same tensors; 0: that one has none. */
ckpt_status ckpt__turns_count(const ckpt__out *w, size_t first, size_t *count);
ckpt_status ckpt__write_turns(ckpt__out *w, size_t first, size_t count, ckpt__sink *folder,
                              const ckpt__payload *payload);
/* ---- to_llmc.c */

/* The model, a state of each rank, and the mark that all are whole; with --weights-only the model alone. A target that llm.c could not
 * go on from is refused. */
ckpt_status ckpt__llmc_files(ckpt__out *w);

/* ---- copy.c */
ckpt_status ckpt__copy_file(ckpt__out *w, ckpt__out_file *file, ckpt__sink *folder);
ckpt_status ckpt__copy_size(ckpt__out *w, const ckpt__out_file *file, uint64_t *size);
/* The copies are read back. */
ckpt_status ckpt__check_copies(ckpt__out *w);
/* May the target that is there be replaced? A directory only by one that has all that it holds. */
ckpt_status ckpt__check_replaced(ckpt__migration *m, ckpt_error *err);
#endif
