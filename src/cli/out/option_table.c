/* out/option_table.c - the options of ckpt-inspect and ckpt-migrate, a row each, in the order of --help. */
#include "cli/out/options.h"

enum {
    MIGRATE = COMMAND(MIGRATE),
    INSPECT = COMMAND(MIGRATE) - 1,
    BOTH = MIGRATE | INSPECT,
    DOCTOR = COMMAND(DOCTOR),
    SELECTS = COMMAND(SHOW) | COMMAND(LIST) | COMMAND(STATS) | COMMAND(DIFF) | MIGRATE
};

#define AT(member) offsetof(command_line, member)
#define RANKS ((uint64_t)1 << 24)

static const char formats[] =
    "ckpt safetensors torch torch-legacy pickle keras hf hf-trainer accelerate peft dcp llmc deepspeed universal torch-dist "
    "megatron fsdp folder";
static const char roles[] =
    "param buffer grad exp_avg exp_avg_sq max_exp_avg_sq momentum optim master ema step scaler rng other none";
static const char orders[] =
    "model model-reversed groups-reversed decay-split-rank decay-split-name decay-split-token decay-split-bias decay-split-hf "
    "decay-split-vector decay-split-pattern decay-split-layernorm decay-split-rank-last decay-split-name-last "
    "decay-split-token-last decay-split-bias-last decay-split-hf-last decay-split-vector-last decay-split-pattern-last "
    "decay-split-layernorm-last";
static const char fixes[] =
    "all step-on-cpu step-on-gpu-slow mixed-devices rng-moved capturable-on-cpu fused-on-cpu no-such-device rank-device "
    "fused-flag-overwritten amp-needs-fused-flag prefix weights-only-refused torch-device-object truncated crc-mismatch";

/* Where a row has no text for --help, the next one goes on in its line. */
const option_row option_table[] = {
    {"to", OPTION_TEXT, AT(migrate.to), MIGRATE, .help = "format of the target", .argument = "FORMAT",
     .usage = "format of DST (default: by its suffix)",
     .words =
         "ckpt safetensors torch hf dcp dcp-fsdp1 dcp-hf torchtitan universal hf-trainer hf-trainer-fsdp hf-trainer-deepspeed "
         "accelerate accelerate-fsdp accelerate-deepspeed torch-dist llmc ckpt-run same"},
    {"from", OPTION_TEXT, AT(cli.from), BOTH & ~COMMAND(SCAN), .help = "do not tell the format from the content",
     .argument = "FORMAT", .words = formats},
    {"one", OPTION_FLAG, AT(one), BOTH & ~(COMMAND(SCAN) | COMMAND(DIFF)), .help = "all paths are one checkpoint",
     .usage = "read as FORMAT; all paths are one checkpoint"},
    {"tensor", OPTION_LIST, AT(cli.tensors), SELECTS, .help = "only tensors of this name", .argument = "GLOB",
     .words = "@globs"},
    {"role", OPTION_LIST, AT(cli.roles), SELECTS, .help = "only tensors of this role", .argument = "ROLE",
     .words = roles},
    {"device", OPTION_LIST, AT(cli.devices), SELECTS, .help = "only tensors with this tag", .argument = "TAG",
     .usage = "only such (* ? \\; =NAME: exact)", .words = "@tags"},
    {"allow-unused", OPTION_FLAG, AT(cli.allow_unused), SELECTS, .help = "a rule or selection may match nothing",
     .usage = "a rule or selection may match nothing"},
    {"pieces", OPTION_FLAG, AT(pieces), COMMAND(LIST), .help = "where the pieces of each tensor lie"},
    {"checksum", OPTION_FLAG, AT(cli.checksum), COMMAND(LIST), .help = "the CRC-32 of each tensor"},
    {"check", OPTION_CHOICE, AT(check), COMMAND(LIST) | COMMAND(EXTRACT) | COMMAND(STATS) | COMMAND(DIFF),
     .help = "the CRC of a storage of which little is read", .usage = "list: shards; CRC-32s; all bytes",
     .words = "all part"},
    {"output", OPTION_TEXT, AT(output), COMMAND(EXTRACT), .help = "where to", .argument = "FILE", .letter = 'o',
     .words = "@files"},
    {"raw", OPTION_FLAG, AT(raw), COMMAND(EXTRACT), .help = "the elements alone"},
    {"force", OPTION_FLAG, AT(force), COMMAND(EXTRACT), .help = "replace the file",
     .usage = "extract: where to; elements alone; replace"},
    {"report", OPTION_TEXT, AT(report), COMMAND(SHOW) | COMMAND(DIFF) | DOCTOR, .help = "a page of HTML",
     .argument = "FILE.html", .usage = "show, diff, doctor: also a page", .words = "@pages"},
    {"atol", OPTION_REAL, AT(atol), COMMAND(DIFF), .help = "absolute tolerance", .argument = "X",
     .wanted = "number from 0 on"},
    {"rtol", OPTION_REAL, AT(rtol), COMMAND(DIFF), .help = "relative tolerance", .argument = "Y",
     .usage = "diff: what is no difference", .wanted = "number from 0 on"},
    {"keep-last", OPTION_NUMBER, AT(keep_last), COMMAND(SHOW) | OPTION_OF_RUN,
     .help = "mark what retention would remove", .argument = "N", .wanted = "number from 1 on", .least = 1,
     .most = INT64_MAX},
    {"keep-every", OPTION_NUMBER, AT(keep_every), COMMAND(SHOW) | OPTION_OF_RUN, .help = "steps that retention keeps",
     .argument = "K", .usage = "show RUN: what would be removed?", .wanted = "number from 1 on", .least = 1,
     .most = INT64_MAX},
    {"for", OPTION_CHOICE, AT(loader), DOCTOR, .help = "who loads it", .argument = "LOADER", .brief = true,
     .words = "ckpt torch torch-cpp lightning accelerate hf-trainer dcp dcp-hf deepspeed universal megatron torch-dist "
              "fsdp llmc safetensors hf"},
    {"values", OPTION_FLAG, AT(values), DOCTOR | COMMAND(SHOW), .help = "look at the values too", .brief = true},
    {"torch", OPTION_VERSION, AT(torch), DOCTOR, .help = "its version", .argument = "VERSION", .brief = true,
     .words = "1.13 2.0 2.1 2.4 2.6 2.13", .wanted = "version; write 2.0 or 2.13"},
    {"load-weights-only", OPTION_CHOICE, AT(load_weights_only), DOCTOR, .help = "torch.load(weights_only=...)",
     .brief = true, .words = "yes no"},
    {"devices", OPTION_DEVICES, AT(devices), DOCTOR, .help = "of the target", .argument = "cuda:N", .brief = true,
     .words = "cpu cuda:1 cuda:2 cuda:4 cuda:8",
     .wanted = "number of devices; write cuda:2 for two of them, or cpu for none", .least = 0, .most = 1024},
    {"world", OPTION_NUMBER, AT(world), DOCTOR, .help = "ranks", .argument = "N", .brief = true,
     .wanted = "number of ranks", .least = 1, .most = 1000000},
    {"mesh", OPTION_TEXT, AT(mesh), DOCTOR, .help = "how the ranks divide the work", .argument = "AXES", .brief = true,
     .words = "dp=2 dp=2,tp=2 dp=2,tp=2,pp=2"},
    {"amp", OPTION_FLAG, AT(amp), DOCTOR, .help = "the program has a grad scaler", .brief = true},
    {"optimizer", OPTION_CHOICE, AT(optimizer), DOCTOR, .help = "what the program constructs", .brief = true,
     .words = "fused capturable foreach plain"},
    {"map-location", OPTION_TEXT, AT(map_location), DOCTOR, .help = "where tensors go", .argument = "RULES",
     .brief = true, .words = "@map"},
    {"metadata-only", OPTION_FLAG, AT(metadata_only), DOCTOR | OPTION_OF_RUN, .help = "read no payload", .brief = true},
    {"param-names", OPTION_TEXT, AT(param_names), DOCTOR | COMMAND(LIST), .help = "the parameters in order",
     .argument = "FILE", .brief = true, .words = "@files"},
    {"assume-order", OPTION_TEXT, AT(assume_order), DOCTOR, .help = "the known order of the parameters",
     .argument = "NAME", .brief = true, .words = orders},
    {"device-memory", OPTION_SIZE, AT(device_memory), DOCTOR, .help = "bytes that each device has", .argument = "SIZE",
     .brief = true, .wanted = "size (80GiB, 24GB, ...)"},
    {"snippet", OPTION_CHOICE, AT(snippet), DOCTOR, .help = "print a resume that is right for this file", .brief = true,
     .words = "torch c"},
    {"map-location", OPTION_TEXT, AT(map_location), MIGRATE, .help = "where tensors go", .argument = "RULES",
     .usage = "new device tags: cuda:0, 'cuda:1=cuda:0', ...", .words = "@map"},
    {"optimizer", OPTION_CHOICE, AT(optimizer), MIGRATE, .help = "what the program constructs", .usage = "step, flags",
     .words = "fused capturable foreach plain"},
    {"rank", OPTION_NUMBER, AT(rank), MIGRATE, .help = "for {rank} in rules", .argument = "N",
     .wanted = "rank; ranks are 0, 1, ...", .least = 0, .most = RANKS},
    {"world", OPTION_NUMBER, AT(world), MIGRATE, .help = "ranks", .argument = "N",
     .wanted = "number of ranks; write 1 or more", .least = 1, .most = RANKS},
    {"mesh", OPTION_TEXT, AT(migrate.mesh), MIGRATE, .help = "a mesh of ranks: dp=2,tp=2", .argument = "AXES"},
    {"cut", OPTION_LIST, AT(cuts), MIGRATE, .help = "how a mesh cuts: GLOB=tp:0,dp:0", .argument = "RULE"},
    {"shard", OPTION_LIST, AT(shard), MIGRATE, .help = "tensors that the ranks of a run have rows of",
     .argument = "GLOB", .usage = "ranks, {rank}", .words = "@globs"},
    {"expert-parallel", OPTION_NUMBER, AT(expert_parallel), MIGRATE, .help = "torch-dist: ranks that share the experts",
     .argument = "N", .wanted = "number of ranks; write 1 or more", .least = 1, .most = RANKS},
    {"layers-apart", OPTION_FLAG, AT(migrate.layers_apart), MIGRATE, .help = "torch-dist: keys of each layer",
     .usage = "of megatron-core's program"},
    {"strip-prefix", OPTION_LIST, AT(strip_prefix), MIGRATE, .help = "take this off the names", .argument = "P"},
    {"add-prefix", OPTION_TEXT, AT(migrate.add_prefix), MIGRATE, .help = "put this before the names", .argument = "P"},
    {"rename", OPTION_LIST, AT(rename), MIGRATE, .help = "other names", .argument = "REGEX=REPLACEMENT",
     .usage = "other names"},
    {"layout", OPTION_TEXT, AT(layout), MIGRATE, .help = "as another program has them", .argument = "FILE|PRESET",
     .words = "@files"},
    {"layout-side", OPTION_TEXT, AT(layout_side), MIGRATE, .help = "the program that SRC is of", .argument = "SIDE"},
    {"var", OPTION_LIST, AT(layout_vars), MIGRATE, .help = "what a layout asks for", .argument = "NAME=N",
     .usage = "as another program"},
    {"drop", OPTION_LIST, AT(drop), MIGRATE, .help = "leave tensors out", .argument = "GLOB", .words = "@globs"},
    {"weights-only", OPTION_FLAG, AT(migrate.weights_only), MIGRATE, .help = "leave out all but the weights"},
    {"rank-state", OPTION_CHOICE, AT(rank_state), MIGRATE, .help = "what each of several ranks has for itself",
     .usage = "leave tensors out", .words = "keep drop derive"},
    {"replace", OPTION_LIST, AT(replace), MIGRATE, .help = "leave weights out, and keep their places",
     .argument = "GLOB", .words = "@globs"},
    {"merge-adapter", OPTION_TEXT, AT(migrate.merge_adapter), MIGRATE, .help = "merge a LoRA adapter of PEFT",
     .argument = "DIR", .usage = "for a new head; merge LoRA in", .words = "@files"},
    {"cast", OPTION_LIST, AT(cast), MIGRATE, .help = "convert what the glob names", .argument = "GLOB=DTYPE",
     .usage = "convert what the glob names: '*=bfloat16'", .words = "@cast"},
    {"plain", OPTION_FLAG, AT(migrate.plain), MIGRATE, .help = "for torch.load(weights_only=True)"},
    {"map-device-objects", OPTION_FLAG, AT(migrate.map_device_objects), MIGRATE, .help = "also torch.device objects",
     .usage = "for weights_only=True; torch.device objects"},
    {"param-names", OPTION_TEXT, AT(param_names), MIGRATE, .help = "the parameters in order", .argument = "FILE",
     .words = "@files"},
    {"assume-order", OPTION_TEXT, AT(assume_order), MIGRATE, .help = "the known order of the parameters",
     .argument = "NAME", .usage = "the optimizer's parameters in order", .words = orders},
    {"fix", OPTION_LIST, AT(fix), MIGRATE, .help = "mend what doctor found", .argument = "CODE|all", .words = fixes},
    {"salvage", OPTION_FLAG, AT(migrate.salvage), MIGRATE, .help = "keep what is whole of a damaged file"},
    {"lossy", OPTION_FLAG, AT(migrate.lossy), MIGRATE, .help = "leave out what the format cannot hold",
     .usage = "mend; keep what is whole; permit losses"},
    {"max-shard-size", OPTION_SIZE, AT(max_shard_size), MIGRATE, .help = "of each file of --to hf", .argument = "SIZE",
     .wanted = "size (5GB, 256MiB, ...)"},
    {"memory", OPTION_SIZE, AT(memory), MIGRATE, .help = "what it may take", .argument = "SIZE",
     .wanted = "size (256MiB, 1GB, ...)"},
    {"threads", OPTION_NUMBER, AT(threads), MIGRATE, .help = "how many", .argument = "N",
     .usage = "limits (5GB, 256MiB)", .wanted = "number of threads; write 1 or more", .least = 1, .most = RANKS},
    {"dry-run", OPTION_FLAG, AT(migrate.dry_run), MIGRATE, .help = "print the plan only"},
    {"verbose", OPTION_FLAG, AT(verbose), MIGRATE, .help = "each box of the plan", .letter = 'v'},
    {"verify", OPTION_FLAG, AT(migrate.verify), MIGRATE, .help = "read back the result",
     .usage = "plan only, each box of it; read back"},
    {"force", OPTION_FLAG, AT(force), MIGRATE, .help = "replace the target"},
    {"no-sync", OPTION_FLAG, AT(migrate.no_sync), MIGRATE, .help = "do not flush it to the disk"},
    {"no-resume", OPTION_FLAG, AT(migrate.no_resume), MIGRATE, .help = "start anew, keep nothing when interrupted",
     .usage = "replace DST; do not flush it; start anew"},
    {"json", OPTION_FLAG, AT(cli.json), BOTH, .help = "one JSON document on standard output"},
    {"quiet", OPTION_FLAG, AT(cli.quiet), BOTH, .help = "no progress, no warnings", .letter = 'q'},
    {"help", OPTION_HELP, 0, BOTH, .help = "say how it is used", .letter = 'h'},
    {"version", OPTION_ABOUT, 0, BOTH, .help = "say what was built in", .usage = "one JSON document; quiet"},
    {"layout", OPTION_LATER, 0, MIGRATE, .help = "", .argument = "FILE", .words = "@files"},
};
_Static_assert(sizeof option_table / sizeof *option_table <= sizeof((command_line *)NULL)->given / sizeof(char *),
               "command_line.given has a place for each row");
const size_t option_count = sizeof option_table / sizeof *option_table;

const command_row command_table[COMMAND_COUNT] = {
    [COMMAND_SHOW] = {"show", "", "what it is, who wrote it, how far it is, how to resume (default)"},
    [COMMAND_LIST] = {"list", "", "one line per tensor"},
    [COMMAND_TREE] = {"tree", "", "everything that is not a tensor"},
    [COMMAND_VERIFY] = {"verify", "", "is every byte as written?"},
    [COMMAND_DOCTOR] = {"doctor", "", "will it resume? if not: why, and what mends it"},
    [COMMAND_EXTRACT] = {"extract", " PATH NAME -o FILE", "one tensor as .npy"},
    [COMMAND_STATS] = {"stats", "", "min, max, mean, NaN, ... of each"},
    [COMMAND_DIFF] = {"diff", " A B", "what is not the same?"},
    [COMMAND_SCAN] = {"scan", "", "what would an unpickler call?"},
};
