/* ckpt/doctor.h - will it resume? If not, or not as meant: why, and what to do. */
#ifndef CKPT_DOCTOR_H
#define CKPT_DOCTOR_H

#ifndef CKPT_EXPERIMENTAL
#error "<ckpt/doctor.h> is young and may change with each release: define CKPT_EXPERIMENTAL before the include"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/map.h>
#include <ckpt/progress.h>
#include <ckpt/reader.h>
#include <ckpt/report.h>
#include <ckpt/summary.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_outcome {
    CKPT_OUTCOME_UNKNOWN = 0,
    CKPT_OUTCOME_RESUMES,
    CKPT_OUTCOME_RESUMES_DIFFERENTLY,
    CKPT_OUTCOME_FAILS_AT_LOAD,
    CKPT_OUTCOME_FAILS_AT_STEP,
    CKPT_OUTCOME_WEIGHTS_ONLY /* weights and no training state: it loads, and there is nothing to resume */
} ckpt_outcome;
const char *ckpt_outcome_name(ckpt_outcome outcome); /* "resumes-differently" */

typedef enum ckpt_loader {
    CKPT_LOADER_OWN = 0, /* the producer's own */
    CKPT_LOADER_CKPT,
    CKPT_LOADER_TORCH,
    CKPT_LOADER_TORCH_CPP,
    CKPT_LOADER_LIGHTNING,
    CKPT_LOADER_ACCELERATE,
    CKPT_LOADER_HF_TRAINER,
    /* the programs of sharded checkpoints, by the name of the format */
    CKPT_LOADER_DCP,         /* torch.distributed.checkpoint.load */
    CKPT_LOADER_DCP_HF,      /* the same with HuggingFaceStorageReader */
    CKPT_LOADER_DEEPSPEED,   /* engine.load_checkpoint */
    CKPT_LOADER_UNIVERSAL,   /* the same with "load_universal": true */
    CKPT_LOADER_MEGATRON,    /* Megatron-LM, --ckpt-format torch */
    CKPT_LOADER_TORCH_DIST,  /* Megatron-LM, --ckpt-format torch_dist */
    CKPT_LOADER_FSDP,        /* each rank its own file of torch.save: verl, accelerate without DCP */
    CKPT_LOADER_LLMC,        /* llm.c */
    CKPT_LOADER_SAFETENSORS, /* safetensors.torch.load_file */
    CKPT_LOADER_HF           /* from_pretrained */
} ckpt_loader;
const char *ckpt_loader_name(ckpt_loader loader); /* "hf-trainer" */
bool ckpt_loader_from_name(const char *name, ckpt_loader *loader);

/* The program that will resume. Zero is the default. Texts and lists are borrowed during the call. */
typedef struct ckpt_doctor_options {
    uint32_t struct_size; /* by the initializer */
    ckpt_loader loader;
    int torch_major, torch_minor;   /* 0.0: the newest known (2.13) */
    ckpt_optimizer_kind optimizer;  /* what the program constructs; DEFAULT: the saved flags */
    const char *map_location;       /* NULL: what the loader does by itself */
    int cuda_device_count;          /* CUDA devices that the target has; 0: unknown; -1: none */
    const char *const *param_names; /* the optimizer's parameters in order, group by group; NULL: not said */
    size_t param_name_count;
    int load_weights_only;    /* torch.load(weights_only=...): 1 yes, -1 no, 0: that version's default */
    bool amp;                 /* the program has an enabled GradScaler (assumed when the file has a scaler's state) */
    uint64_t device_memory;   /* bytes that each device has; 0: not said */
    int world;                /* how many ranks resume; 0: as many as saved, or as the mesh has */
    bool read_values;         /* look at the values too (non-finite): reads every byte */
    ckpt_progress progress;   /* of that */
    const char *assume_order; /* a known order of the optimizer's parameters, by its name (ckpt-map(5)); NULL: none */
    /* "dp=2,tp=2": how the ranks that resume divide the work, slowest axis first; NULL: not said. Axes: dp (or dp_replicate, dp_shard,
     * fsdp), tp, pp, ep, cp, sp. Their product is the world's size. */
    const char *mesh;
    /* The answer of ckpt_summarize for the same reader, the caller's. It saves the time to find it again. NULL: doctor finds it. */
    const ckpt_summary *summary;
} ckpt_doctor_options;
#define CKPT_DOCTOR_OPTIONS_INIT CKPT_SIZED(ckpt_doctor_options)

/* Who holds what, before and after: one row for each saved tag, target and role, largest first. The library
 * makes the struct; it may grow. */
typedef struct ckpt_doctor_place {
    char from[CKPT_DEVICE_NAME_MAX], to[CKPT_DEVICE_NAME_MAX]; /* "": no tag */
    ckpt_role role;
    uint64_t tensors, nbytes;
} ckpt_doctor_place;

/* The answer. Take it as it was initialized, or after ckpt_doctor_result_clear. */
typedef struct ckpt_doctor_result {
    uint32_t struct_size; /* by the initializer */
    ckpt_outcome outcome;
    ckpt_loader loader;
    int torch_major, torch_minor;
    ckpt_optimizer_kind optimizer;
    int uses_fused, uses_capturable, uses_foreach; /* after the load: 1, 0, or -1 for None/absent */
    bool load_weights_only, amp;                   /* assumed */
    const ckpt_doctor_place *const *places;        /* until ckpt_doctor_result_clear */
    size_t place_count;
    /* The bytes that the answer rests on. Without read_values doctor reads single numbers of the payload alone (step, scale,
     * lr). */
    uint64_t payload_bytes; /* of all storages, as they lie in the files */
    uint64_t read_bytes;    /* of them that were read */
    uint64_t checked_bytes; /* of those that were compared with a checksum */
    uint64_t read_tensors;
    void *owned; /* what the rows are made of */
} ckpt_doctor_result;
#define CKPT_DOCTOR_RESULT_INIT CKPT_SIZED(ckpt_doctor_result)
void ckpt_doctor_result_clear(ckpt_doctor_result *result); /* accepts one that holds nothing, and NULL */

/* Answers whether the checkpoint resumes. The findings of the report say why not, or what would be different, each with a fix.
 * options and report may be NULL. CKPT_OK: the answer is result->outcome. CKPT_E_ARGUMENT; CKPT_E_UNSUPPORTED: a torch that is
 * older than what is known here; CKPT_E_CANCELLED. After an error *result holds nothing. */
ckpt_status ckpt_doctor(const ckpt_reader *reader, const ckpt_doctor_options *options, ckpt_doctor_result *result,
                        ckpt_report *report, ckpt_error *err);

/* A resume that is right for this checkpoint, as source to paste: `language` is "torch" (Python, for the options' loader),
 * "c" (this library) or "run" (the same for a step directory of a run, by ckpt_run_open and ckpt_run_resume). It says where
 * the model, optimizer, scaler, scheduler and random states lie in the checkpoint, in which order to construct and to load,
 * pins what must stay on the cpu, puts step where the saved flags need it, and asserts that all is in its place. *out is the
 * caller's, to be freed with free(). CKPT_E_ARGUMENT: another language; CKPT_E_UNSUPPORTED: "torch" of the native format,
 * which no Python program reads, of Keras and of distributed checkpoints, which torch.load does not read; CKPT_E_MISMATCH: "c" of a file whose optimizer numbers its parameters, where more than one
 * order fits. */
ckpt_status ckpt_doctor_snippet(const ckpt_reader *reader, const char *language, const ckpt_doctor_options *options,
                                char **out, ckpt_error *err);

CKPT_END_DECLS
#endif
