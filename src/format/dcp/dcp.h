/* format/dcp/dcp.h - distributed checkpoints of PyTorch (DCP, torch.distributed.checkpoint): a directory with what each rank wrote.
 *
 *   dcp.c     the format of the table: bids, the lists that there are, files that must be there
 *   lists.c   the lists of a checkpoint, one after the other
 *   list.c    a list (.metadata, or __<rank>.metadata of each rank) -> items and their chunks
 *   stream.c  .metadata as torch writes it, without a graph of its pickle: items and chunks of the largest checkpoints
 *   record.c  one record: an archive of torch.save inside a file, looked into at its first use
 *   fill.c    items -> tensors, pieces and objects of an index
 *   tree.c    the paths of the state dict -> the value tree, and what each tensor is to training
 *   shards.c  the same checkpoint in safetensors (HuggingFaceStorageWriter), which has no list
 *
 * A list is a pickle of torch/distributed/checkpoint/metadata.py's Metadata. It says of each tensor its dtype, its shape and its
 * chunks, of each chunk the box; and of each chunk and each object the record that has it: file, offset, length
 * (filesystem.py). A record is a whole archive of torch.save, or, with an extension, one zstd frame of it. */
#ifndef CKPT_DCP_H
#define CKPT_DCP_H
#include "codec/pickle.h"
#include "format/dcp/read.h"
#include "format/format.h"
#include "model/nested.h"

/* One record, and what of an item it holds. */
typedef struct ckpt__dcp_chunk {
    const int64_t *box; /* lo[ndim], size[ndim], one of the index's (ckpt__index_box); of an object NULL */
    uint64_t offset, length;
    uint32_t item; /* number in the list, as file is */
    uint32_t file : 31;
    bool zstd : 1;
} ckpt__dcp_chunk;

enum {
    CKPT__DCP_DIMS = 64,         /* of a tensor, at most */
    CKPT__DCP_FILES = 0x7fffffff /* numbers of files are below */
};

/* One key of the state dict. */
typedef struct ckpt__dcp_item {
    ckpt_str name;        /* "model.blocks.0.up.weight", in the list's arena, as all here */
    const ckpt_key *keys; /* its path, where the list has one: NULL, or key_count */
    size_t key_count;
    const int64_t *shape; /* ndim sizes */
    uint32_t ndim;
    ckpt_dtype dtype;
    uint32_t turn;     /* where the planner met it, over all lists; UINT32_MAX: in no list of paths */
    bool object;       /* no tensor: one record of a pickled value */
    ckpt_value *value; /* in the index's arena: what stands at its place in the tree */
} ckpt__dcp_item;

typedef struct ckpt__dcp_file {
    const char *name; /* below the list's directory */
    uint64_t needs;   /* bytes that its records reach */
    uint64_t has;     /* bytes that are there; where reading goes on they may be fewer, or none */
    uint32_t number;  /* in the source; of one that is missing the list's */
} ckpt__dcp_file;

/* All lists of a checkpoint, taken together. */
typedef struct ckpt__dcp {
    const ckpt__read_request *request; /* borrowed */
    const char *folder;                /* of the lists below the source's directory: "", or "optimizer_0/" */
    ckpt__index *index;                /* that is filled: borrowed */
    ckpt__arena *arena;                /* owned: until the index is made */
    ckpt__dcp_item *items;
    size_t item_count, item_capacity; /* heap, owned, as all three */
    ckpt__dcp_chunk *chunks;          /* in the order of the lists; of no use once the index is filled */
    size_t chunk_count, chunk_capacity;
    size_t pieces;   /* chunks that are of tensors */
    uint32_t *order; /* heap, owned: the chunks in the order of their records in the list; order_count 0: not told */
    size_t order_count;
    bool apart; /* in that order each record begins in a later file than the one before, or behind it */
    ckpt__dcp_file *files;
    size_t file_count, file_capacity;
    ckpt__hash *by_name, *by_file; /* owned: item's name, file's name -> number */
    uint32_t turns;                /* paths that all lists had so far */
    uint64_t list_bytes;           /* of all lists */
    uint32_t list_file;            /* the last one's number in the source */
    ckpt__dcp_wholes *wholes;      /* borrowed: whole shapes that a list names are added; NULL: they are passed over */
    bool shards;                   /* files of their own (shards.c), which have no records */
    bool replicas;                 /* each rank has a list: a box may stand in several */
} ckpt__dcp;

/* list.c: takes in one list, which is `size` bytes at `text`. */
ckpt_status ckpt__dcp_parse(ckpt__dcp *d, const char *text, size_t size, const char *label, ckpt_error *err);
/* A new item, which is like `like` but for its name. */
ckpt_status ckpt__dcp_add_item(ckpt__dcp *d, ckpt_str name, const ckpt__dcp_item *like, size_t *number,
                               ckpt_error *err);
/* The file of that name. CKPT_E_FORMAT: none can have that name; no message is made. */
ckpt_status ckpt__dcp_file_of(ckpt__dcp *d, ckpt_str name, uint32_t *file);
/* "metadata.Metadata": "Metadata". */
ckpt_str ckpt__dcp_last_name(ckpt_str name);
/* stream.c: takes in the one list of a checkpoint from its file, as quickly as it can be read, in memory for what is wanted of it. *taken
 * false: it has something that torch's own lists do not have, or is damaged. Then ckpt__dcp_parse is to be asked, and what was
 * added so far is to be taken back. */
ckpt_status ckpt__dcp_stream(ckpt__dcp *d, const ckpt__pickle_input *in, bool *taken, ckpt_error *err);
/* lists.c: the list of that name is taken in; the lists of all ranks are. */
ckpt_status ckpt__dcp_read_list(ckpt__dcp *d, const char *name, ckpt_error *err);
ckpt_status ckpt__dcp_read_ranks(ckpt__dcp *d, ckpt_error *err);
/* "__12_0.distcp": 12; -1: it has another name. "__12.metadata": true, and 12. */
int64_t ckpt__dcp_rank_of_record(const char *name);
bool ckpt__dcp_rank_of_list(const char *name, uint64_t *rank);
/* fill.c: everything of the list into the index; files are known. */
ckpt_status ckpt__dcp_fill(ckpt__dcp *d, ckpt_error *err);
/* record.c: looks into a tensor's record (ckpt__records.look). */
ckpt_status ckpt__dcp_look(const struct ckpt__source *source, const ckpt__extent *extent, const char *what,
                           ckpt__nested_place **out, ckpt_error *err);
/* record.c: an object's record, as an index of its own in the arena of d->index. Several in a row are read together: *cache is the
 * caller's, all zero at first, and is freed by ckpt__dcp_cache_free. */
typedef struct ckpt__dcp_cache {
    char *bytes; /* heap */
    size_t size;
    uint64_t begin;
    uint32_t file;
} ckpt__dcp_cache;
ckpt_status ckpt__dcp_object(ckpt__dcp *d, const ckpt__dcp_chunk *chunk, ckpt__dcp_cache *cache, ckpt__index **out,
                             ckpt_error *err);
void ckpt__dcp_cache_free(ckpt__dcp_cache *cache);
/* tree.c: the items' values by their paths: the index's root. Then the path and the role of each tensor. */
ckpt_status ckpt__dcp_tree(ckpt__dcp *d, ckpt_error *err);
ckpt_status ckpt__dcp_roles(ckpt__dcp *d, ckpt_error *err);
/* shards.c */
ckpt_status ckpt__dcp_read_shards(ckpt__dcp *d, ckpt_error *err);

/* Is what is damaged or missing a finding, and the rest read? And such a finding, an error about `file` of the
 * list's directory, which names it from the source's: "optimizer_0/__0_0.distcp". */
bool ckpt__dcp_goes_on(const ckpt__dcp *d);
ckpt_status ckpt__dcp_note(ckpt__dcp *d, const char *code, const char *file, const char *what, ckpt_error *err);
ckpt_status ckpt__dcp_no_memory(const ckpt__dcp *d, ckpt_error *err);
#endif
