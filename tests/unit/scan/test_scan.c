/* What an unpickler would import and call, by pickles of a few bytes; and what names mean. */
#include "scan/work.h"
#include "scan_files.h"

typedef struct row {
    const char *what;
    const char *bytes;
    size_t size;
    ckpt_danger verdict;
    const char *name; /* that must be listed; NULL: none is */
    int called;       /* how often it is; -1: whatever */
    const char *code; /* of a finding; NULL: there is none at all */
} row;
#define P(literal) literal, sizeof(literal) - 1

static const row rows[] = {
    {"REDUCE", P("\x80\x02" OS_SYSTEM "."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"REDUCE, protocol 0", P("cos\nsystem\n(S'echo'\ntR."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"a global alone",
     P("\x80\x02"
       "cos\nsystem\n."),
     CKPT_DANGER_DANGEROUS, "os.system", 0, NULL},
    {"INST", P("(S'echo'\nios\nsystem\n."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"OBJ", P("\x80\x02(cos\nsystem\nX\x04\0\0\0echoo."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"NEWOBJ",
     P("\x80\x02"
       "cos\nsystem\nX\x04\0\0\0echo\x85\x81."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"NEWOBJ_EX",
     P("\x80\x04"
       "cos\nsystem\nX\x04\0\0\0echo\x85}\x92."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"STACK_GLOBAL", P("\x80\x04\x8c\2os\x8c\6system\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"by memo",
     P("\x80\x04\x8c\2os\x94\x8c\6system\x94"
       "00h\0h\1\x93)R."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"by a far memo",
     P("\x80\x02X\2\0\0\0osr\xff\xff\xff\xff"
       "0X\6\0\0\0systemr\xfe\xff\xff\xff"
       "0j\xff\xff\xff\xffj\xfe\xff\xff\xff\x93)R."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"by GET of text", P("Vos\np7\n0Vsystem\np8\n0g7\ng8\n\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    /* 5, a zero byte, 7: that is 5 */
    {"memo numbers with a zero byte",
     P("\x80\x04\x8c\2osp5\n0\x8c\6systemp6\n0\x8c\x0b"
       "collectionsp57\n0\x8c\x0bOrderedDictp67\n0g5\0"
       "7\ng6\0"
       "7\n\x93)R."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"a memo number that is put with a zero byte",
     P("Vos\np5\0"
       "9\n0Vsystem\np6\n0g5\ng6\n\x93)R."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"a pickle in a text of two backslashes",
     P("V\\u0080\\u0002X\\u0007\\u0000\\u0000\\u0000\\\\u0041"
       "0cos\\u000asystem\\u000a)R.\n."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"a memo entry put again",
     P("\x80\x04\x8c\3xyzq\0"
       "0\x8c\2osq\0"
       "0\x8c\6systemq\1"
       "0h\0h\1\x93)R."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"DUP and POP", P("\x80\x04\x8c\2os20\x8c\6system\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"POP of a mark", P("\x80\x04\x8c\2os(0\x8c\6system\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"POP_MARK", P("\x80\x04\x8c\2os(NN1\x8c\6system\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"unicode escapes", P("Vo\\u0073\nV\\U00000073ystem\n\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"string escapes", P("S'\\x6f\\163'\nS\"s\\171stem\"\n\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"frames", P("\x80\x04\x95\xff\xff\0\0\0\0\0\0\x8c\2os\x8c\6system\x93)R."), CKPT_DANGER_DANGEROUS, "os.system", 1,
     NULL},
    {"a number over the end of a frame", /* "57" to some, and 7 to CPython where it reads from a file */
     P("\x80\x04\x8c\x0b"
       "collectionsp57\n0\x8c\2osp7\n0\x8c\x0bOrderedDict\x95\2\0\0\0\0\0\0\0g57\n\x93)R."),
     CKPT_DANGER_UNKNOWN, NULL, -1, "scan-damaged"},
    {"a frame over the end of another, with a STOP between",
     P("\x80\x04\x8c\2os\x94\x8c\6system\x94\x95\x0b\0\0\0\0\0\0\0\x95\x08\0\0\0\0\0\0\0N.h\0h\1\x93)R."),
     CKPT_DANGER_UNKNOWN, NULL, -1, "scan-damaged"},
    {"a frame in a frame", P("\x80\x04\x95\x16\0\0\0\0\0\0\0\x95\x0d\0\0\0\0\0\0\0\x8c\2os\x8c\6system\x93)R."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"the callable from the memo",
     P("\x80\x02"
       "cos\nsystem\nq\1"
       "0h\1)R."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"in BUILD",
     P("\x80\x02"
       "ccollections\nCounter\n)R}X\1\0\0\0acsubprocess\nPopen\nsb."),
     CKPT_DANGER_DANGEROUS, "subprocess.Popen", 0, NULL},
    {"as an argument",
     P("\x80\x02"
       "cbuiltins\nmap\ncos\nsystem\n]\x86R."),
     CKPT_DANGER_DANGEROUS, "os.system", 0, NULL},
    {"behind STOP", P("\x80\x02K\1.\x80\x02" OS_SYSTEM "."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"behind STOP, without PROTO", P("K\1.cos\nsystem\n)R."), CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"behind STOP and something else", P("\x80\x02K\1.\0\0\0\0\0\0\x80\x02" OS_SYSTEM "."), CKPT_DANGER_DANGEROUS,
     "os.system", 1, NULL},
    {"no STOP", P("\x80\x02" OS_SYSTEM), CKPT_DANGER_DANGEROUS, "os.system", 1, "scan-damaged"},
    {"no STOP, no PROTO", P("cos\nsystem\n)R"), CKPT_DANGER_DANGEROUS, "os.system", 1, "scan-damaged"},
    {"an opcode that is none", P("\x80\x02" OS_SYSTEM "\xff."), CKPT_DANGER_DANGEROUS, "os.system", 1, "scan-damaged"},
    {"nothing on the stack", P("\x80\x02" OS_SYSTEM "000."), CKPT_DANGER_DANGEROUS, "os.system", 1, "scan-damaged"},
    {"bytes",
     P("\x80\x04"
       "C\x19\x80\x02" OS_SYSTEM ".."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, NULL},
    {"bytes, and no STOP behind them",
     P("\x80\x04"
       "C\x19\x80\x02" OS_SYSTEM "."),
     CKPT_DANGER_DANGEROUS, "os.system", 1, "scan-damaged"},
    {"a dotted name", P("\x80\x04\x8c\x13torch.serialization\x8c\x09os.system\x93)R."), CKPT_DANGER_DANGEROUS,
     "torch.serialization.os.system", 1, NULL},
    {"a copyreg extension", P("\x80\x02\x82\5)R."), CKPT_DANGER_UNKNOWN, "copyreg extension 5", 1, NULL},
    {"a name that is computed",
     P("\x80\x04"
       "cbuiltins\nstr\nX\1\0\0\0x\x85R\x8c\1y\x93."),
     CKPT_DANGER_UNKNOWN, "?.y", 0, "scan-computed"},
    {"a computed name of os",
     P("\x80\x04\x8c\2os"
       "cbuiltins\nstr\n)R\x93."),
     CKPT_DANGER_DANGEROUS, "os.?", 0, "scan-computed"},
    {"an odd codec",
     P("\x80\x02"
       "c_codecs\nencode\nX\1\0\0\0xX\6\0\0\0utf-16\x86R."),
     CKPT_DANGER_UNKNOWN, "_codecs.encode", 1, "scan-encoded"},
    {"a codec that leaves characters out",
     P("\x80\x02"
       "c_codecs\nencode\nX\2\0\0\0\xc4\x80X\5\0\0\0asciiX\6\0\0\0ignore\x87R."),
     CKPT_DANGER_UNKNOWN, "_codecs.encode", 1, "scan-encoded"},
    {"a usual codec",
     P("\x80\x02"
       "c_codecs\nencode\nX\1\0\0\0xX\6\0\0\0latin1\x86R."),
     CKPT_DANGER_HARMLESS, "_codecs.encode", 1, NULL},
    {"bytes that are computed",
     P("\x80\x02"
       "ctorch.storage\n_load_from_bytes\ncbuiltins\nstr\n)R\x85R."),
     CKPT_DANGER_UNKNOWN, "torch.storage._load_from_bytes", 1, "scan-bytes"},
    {"BUILD on a class",
     P("\x80\x02"
       "ccollections\nOrderedDict\nN}\x86"
       "b."),
     CKPT_DANGER_UNKNOWN, "collections.OrderedDict", 0, "scan-build"},
    {"BUILD on an object",
     P("\x80\x02"
       "ccollections\nOrderedDict\n)R}b."),
     CKPT_DANGER_HARMLESS, "collections.OrderedDict", 1, NULL},
    {"a class of one's own",
     P("\x80\x02"
       "c__main__\nNet\n)\x81."),
     CKPT_DANGER_UNKNOWN, "__main__.Net", 1, NULL},
    {"a global behind which stands what is no name", P("cmy.net\nrun\n)R0V \nVx\n\x93."), CKPT_DANGER_UNKNOWN,
     "my.net.run", 1, NULL},
    {"getattr of a class",
     P("\x80\x02"
       "cbuiltins\ngetattr\nc__main__\nColour\nX\3\0\0\0red\x86R."),
     CKPT_DANGER_UNKNOWN, "__main__.Colour.red", 0, NULL},
    {"getattr that reaches out",
     P("\x80\x02"
       "cbuiltins\ngetattr\nc__main__\nNet\nX\x0b\0\0\0__globals__\x86R."),
     CKPT_DANGER_DANGEROUS, "__main__.Net.__globals__", 0, NULL},
    {"getattr of a result",
     P("\x80\x02"
       "cbuiltins\ngetattr\nc__main__\nNet\n)RX\1\0\0\0a\x86R."),
     CKPT_DANGER_DANGEROUS, "builtins.getattr", 1, NULL},
    {"getattr that is passed on",
     P("\x80\x02"
       "cbuiltins\ngetattr\nq\0c__main__\nNet\nX\1\0\0\0a\x86Rh\0\x86."),
     CKPT_DANGER_DANGEROUS, "builtins.getattr", 1, NULL},
    {"plain values", P("\x80\x02}q\0X\1\0\0\0aK\1s."), CKPT_DANGER_HARMLESS, NULL, -1, NULL},
    {"a text", P("cos\nsin\ntan\nimport os\n"), CKPT_DANGER_HARMLESS, NULL, -1, NULL},
    {"a text with a full stop", P("import os\nos.system('x')\nN.B."), CKPT_DANGER_HARMLESS, NULL, -1, NULL},
    {"JSON", P("{\"os\": \"system\"}\n"), CKPT_DANGER_HARMLESS, NULL, -1, NULL},
    {"nothing", P(""), CKPT_DANGER_HARMLESS, NULL, -1, NULL},
};

START_TEST(pickles)
{
    const row *r = &rows[_i];
    ckpt_danger verdict = scan_bytes(r->bytes, r->size);
    ck_assert_msg(verdict == r->verdict, "%s: %s, expected %s", r->what, ckpt_verdict_name(verdict),
                  ckpt_verdict_name(r->verdict));
    const ckpt_scan_global *g = r->name ? scan_find(r->name) : NULL;
    ck_assert_msg(!r->name || g, "%s: %s is not listed", r->what, r->name);
    if (g && r->called >= 0)
        ck_assert_msg(g->called == (uint64_t)r->called, "%s: called %d times", r->what, (int)g->called);
    if (r->code)
        ck_assert_msg(scan_says(r->code), "%s: no finding %s", r->what, r->code);
    else
        ck_assert_msg(ckpt_report_count(scan_report) == 0, "%s: finding %s", r->what,
                      ckpt_report_get(scan_report, 0)->code);
}
END_TEST

START_TEST(what_is_said_of_a_call)
{
    static const char twice[] = "\x80\x02K\1"
                                "0cos\nsystem\nX\7\0\0\0echo hi\x85R"
                                "0cos\nsystem\n.";
    ck_assert_int_eq(scan_bytes(P(twice)), CKPT_DANGER_DANGEROUS);
    const ckpt_scan_global *g = ckpt_scan_get(scanned, 0);
    ck_assert_uint_eq(g->count, 2);
    ck_assert_uint_eq(g->called, 1);
    ck_assert_uint_eq(g->position, 5);
    ck_assert_mem_eq(g->argument.data, "echo hi", 7);
    ck_assert_uint_eq(g->argument.size, 7);
    ck_assert_mem_eq(g->file.data, "x", 2);
    ck_assert_uint_eq(ckpt_scan_pickles(scanned), 1);
    ck_assert_uint_eq(ckpt_scan_files(scanned), 1);
    ck_assert_ptr_null(ckpt_scan_get(scanned, 1));
}
END_TEST

START_TEST(dangerous_ones_come_first)
{
    scan_bytes(P("\x80\x02"
                 "ccollections\nOrderedDict\nc__main__\nNet\ncos\nsystem\n\x87."));
    ck_assert_int_eq(ckpt_scan_get(scanned, 0)->danger, CKPT_DANGER_DANGEROUS);
    ck_assert_int_eq(ckpt_scan_get(scanned, 1)->danger, CKPT_DANGER_UNKNOWN);
    ck_assert_int_eq(ckpt_scan_get(scanned, 2)->danger, CKPT_DANGER_HARMLESS);
}
END_TEST

/* Wherever the bytes end, what was called before is told. */
START_TEST(every_truncation)
{
    static const char whole[] = "\x80\x04\x8c\2os\x94\x8c\6system\x94\x93\x94\x8c\4echo\x85R.";
    size_t named = sizeof whole - 1 - 11 + 1, n = sizeof whole - 1;
    for (size_t i = 0; i <= n; i++) {
        ckpt_danger verdict = scan_bytes(whole, i);
        ck_assert_msg((verdict == CKPT_DANGER_DANGEROUS) == (i >= named), "%zu of %zu bytes: %s", i, n,
                      ckpt_verdict_name(verdict));
        ck_assert_msg(i < named || i == n || scan_says("scan-damaged"), "%zu of %zu bytes", i, n);
    }
}
END_TEST

/* Each byte of it any other: an answer, and no crash. */
START_TEST(every_byte_changed)
{
    char bytes[64] = "\x80\x04\x8c\2os\x94\x8c\6system\x94\x93\x94\x8c\4echo\x85R.";
    size_t n = 26;
    unsigned seen[3] = {0};
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 256; c += 3) {
            char was = bytes[i];
            bytes[i] = (char)c;
            seen[scan_bytes(bytes, n)]++;
            bytes[i] = was;
        }
    ck_assert_uint_eq(seen[0] + seen[1] + seen[2], n * 86);
    ck_assert_uint_gt(seen[2], 500);
}
END_TEST

START_TEST(lengths_that_lie)
{
    static const struct {
        const char *bytes;
        size_t size;
    } lies[] = {
        {P("\x80\x04" OS_SYSTEM "\x8d\xff\xff\xff\xff\xff\xff\xff\xff.")},
        {P("\x80\x04" OS_SYSTEM "X\xff\xff\xff\xff.")},
        {P("\x80\x04" OS_SYSTEM "\x8b\xff\xff\xff\x7f.")},
        {P("\x80\x04" OS_SYSTEM "\x96\0\0\0\0\0\0\0\x80.")},
        {P("\x80\x04" OS_SYSTEM "\x95\xff\xff\xff\xff\xff\xff\xff")},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        ck_assert_int_eq(scan_bytes(lies[i].bytes, lies[i].size), CKPT_DANGER_DANGEROUS);
        ck_assert(scan_says("scan-damaged"));
    }
}
END_TEST

/* A pickle in a bytes of a pickle, and so on: deeper than is looked at it is not called clean. */
START_TEST(pickles_in_pickles)
{
    static char bytes[4096], outer[4096];
    size_t n = sizeof("\x80\x02" OS_SYSTEM ".") - 1;
    memcpy(bytes, "\x80\x02" OS_SYSTEM ".", n);
    for (int depth = 1; depth <= 14; depth++) {
        memcpy(outer,
               "\x80\x03"
               "B",
               3);
        for (int k = 0; k < 4; k++)
            outer[3 + k] = (char)(n >> 8 * k);
        memcpy(outer + 7, bytes, n);
        outer[7 + n] = '.';
        n += 8;
        memcpy(bytes, outer, n);
        ckpt_danger verdict = scan_bytes(bytes, n);
        ck_assert_int_eq(verdict, depth <= CKPT__SCAN_DEPTH ? CKPT_DANGER_DANGEROUS : CKPT_DANGER_UNKNOWN);
        ck_assert_int_eq(scan_says("scan-limit"), depth > CKPT__SCAN_DEPTH);
    }
}
END_TEST

/* Deep, wide, and far: bounded memory, linear time. */
START_TEST(large_ones)
{
    size_t n = 3000000;
    char *bytes = malloc(n + 64);
    ck_assert_ptr_nonnull(bytes);
    static const char *const fillers[] = {"]", "(", "N", "K\1", "Nq\3", "N\x94", ")\x85", "]a"};
    for (size_t f = 0; f < sizeof fillers / sizeof *fillers; f++) {
        size_t at = 2, each = strlen(fillers[f]);
        memcpy(bytes, "\x80\x04", 2);
        if (f == 7)
            bytes[at++] = ']';
        while (at + each <= n) {
            memcpy(bytes + at, fillers[f], each);
            at += each;
        }
        memcpy(bytes + at, OS_SYSTEM ".", sizeof OS_SYSTEM);
        ck_assert_int_eq(scan_bytes(bytes, at + sizeof OS_SYSTEM), CKPT_DANGER_DANGEROUS);
    }
    free(bytes);
}
END_TEST

/* ---- names */

typedef struct judged {
    const char *module, *name;
    ckpt_danger danger;
} judged;
static const judged names[] = {
    {"os", "system", CKPT_DANGER_DANGEROUS},
    {"os.path", "join", CKPT_DANGER_DANGEROUS},
    {"osmium", "File", CKPT_DANGER_UNKNOWN},
    {"OS", "system", CKPT_DANGER_DANGEROUS},
    {"Subprocess", "Popen", CKPT_DANGER_DANGEROUS},
    {"six.moves.builtins", "eval", CKPT_DANGER_DANGEROUS},
    {"my.helpers", "os", CKPT_DANGER_DANGEROUS},
    {"builtins", "eval", CKPT_DANGER_DANGEROUS},
    {"__builtin__", "eval", CKPT_DANGER_DANGEROUS},
    {"builtins", "int", CKPT_DANGER_HARMLESS},
    {"builtins", "ValueError", CKPT_DANGER_HARMLESS},
    {"exceptions", "ValueError", CKPT_DANGER_HARMLESS},
    {"builtins", "object.__subclasses__", CKPT_DANGER_DANGEROUS},
    {"builtins", "map", CKPT_DANGER_UNKNOWN},
    {"collections", "OrderedDict", CKPT_DANGER_HARMLESS},
    {"collections", "OrderedDict.fromkeys", CKPT_DANGER_UNKNOWN},
    {"collections", "OrderedDict.__init__.__globals__", CKPT_DANGER_DANGEROUS},
    {"torch", "FloatStorage", CKPT_DANGER_HARMLESS},
    {"torch", "load", CKPT_DANGER_DANGEROUS},
    {"torch", "serialization.load", CKPT_DANGER_DANGEROUS},
    {"torch", "hub.load", CKPT_DANGER_DANGEROUS},
    {"torch.hub", "load", CKPT_DANGER_DANGEROUS},
    {"torch", "nn.Linear", CKPT_DANGER_UNKNOWN},
    {"torch.nn.modules.linear", "Linear", CKPT_DANGER_HARMLESS},
    {"torch.nn.modules.linear", "Linear.forward", CKPT_DANGER_UNKNOWN},
    {"torch.nn.modules.linear", "math", CKPT_DANGER_UNKNOWN},
    {"torch._utils", "torch.channels_last", CKPT_DANGER_HARMLESS},
    {"torch._utils", "_rebuild_tensor_v2", CKPT_DANGER_HARMLESS},
    {"torch._utils", "_import_dotted_name", CKPT_DANGER_DANGEROUS},
    {"numpy.core.multiarray", "_reconstruct", CKPT_DANGER_HARMLESS},
    {"numpy._core.multiarray", "scalar", CKPT_DANGER_HARMLESS},
    {"numpy", "load", CKPT_DANGER_DANGEROUS},
    {"numpy", "ndarray.tofile", CKPT_DANGER_UNKNOWN},
    {"pathlib", "PosixPath", CKPT_DANGER_HARMLESS},
    {"pathlib", "Path.write_text", CKPT_DANGER_DANGEROUS},
    {"pathlib", "Path.exists.__globals__", CKPT_DANGER_DANGEROUS},
    {"uuid", "UUID", CKPT_DANGER_HARMLESS},
    {"uuid", "_get_command_stdout", CKPT_DANGER_DANGEROUS},
    {"functools", "partial", CKPT_DANGER_UNKNOWN},
    {"functools", "reduce", CKPT_DANGER_DANGEROUS},
    {"torch._dynamo.decorators", "_DimRange", CKPT_DANGER_HARMLESS}, /* of a nested tensor */
    {"torch._dynamo.decorators", "disable", CKPT_DANGER_DANGEROUS},
    {"torch._dynamo.decorators", "_DimRange.__init__", CKPT_DANGER_DANGEROUS},
    {"torch.nested._internal.nested_tensor", "_rebuild_njt", CKPT_DANGER_HARMLESS},
    {"torch.nested._internal.nested_tensor", "NestedTensor", CKPT_DANGER_HARMLESS},
    {"types", "SimpleNamespace", CKPT_DANGER_HARMLESS},
    {"types", "CodeType", CKPT_DANGER_DANGEROUS},
    {"copyreg", "_reconstructor", CKPT_DANGER_HARMLESS},
    {"copyreg", "add_extension", CKPT_DANGER_DANGEROUS},
    {"numpy.random._pickle", "__generator_ctor", CKPT_DANGER_HARMLESS},
    {"pipes", "Template", CKPT_DANGER_DANGEROUS},
    {"_functools", "reduce", CKPT_DANGER_DANGEROUS},
    {"__builtin__", "reduce", CKPT_DANGER_DANGEROUS},
    {"StringIO", "open", CKPT_DANGER_DANGEROUS},
    {"cStringIO", "FileIO", CKPT_DANGER_DANGEROUS},
    {"wave", "Wave_write", CKPT_DANGER_DANGEROUS},
    {"_xxsubinterpreters", "run_string", CKPT_DANGER_DANGEROUS},
    {"logging.config", "ConvertingList", CKPT_DANGER_DANGEROUS},
    {"logging", "getLogger", CKPT_DANGER_UNKNOWN},
    {"argparse", "_os", CKPT_DANGER_DANGEROUS},
    {"argparse", "_os.remove", CKPT_DANGER_DANGEROUS},
    {"my.helpers", "Popen", CKPT_DANGER_DANGEROUS},
    {"pathlib", "attrgetter", CKPT_DANGER_DANGEROUS},
    {"torch.storage", "__dict__", CKPT_DANGER_DANGEROUS},
    {"collections", "__loader__", CKPT_DANGER_DANGEROUS},
    {"copyreg", "__newobj__", CKPT_DANGER_HARMLESS},
    {"my.net", "__version__", CKPT_DANGER_UNKNOWN},
    {"torch._ops", "ops.load_library", CKPT_DANGER_DANGEROUS},
    {"torch._C", "_construct_storage_from_data_pointer", CKPT_DANGER_DANGEROUS},
    {"torch._C._distributed_c10d", "TCPStore", CKPT_DANGER_DANGEROUS},
    {"torch.distributed.checkpoint.filesystem", "FileSystemReader", CKPT_DANGER_DANGEROUS},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", CKPT_DANGER_HARMLESS},
    {"torch.compiler", "save_cache_artifacts", CKPT_DANGER_DANGEROUS},
    {"numpy.lib._utils_impl", "safe_eval", CKPT_DANGER_DANGEROUS},
    {"numpy.core.records", "fromfile", CKPT_DANGER_DANGEROUS},
    {"warnings", "_getcategory", CKPT_DANGER_DANGEROUS},
    {"dataclasses", "_init_fn", CKPT_DANGER_DANGEROUS},
    {"dataclasses", "_MISSING_TYPE", CKPT_DANGER_UNKNOWN},
    {"six", "exec_", CKPT_DANGER_DANGEROUS},
    {"", "", CKPT_DANGER_UNKNOWN},
    {".", ".", CKPT_DANGER_UNKNOWN},
    {"os.", "system", CKPT_DANGER_DANGEROUS},
};

START_TEST(names_mean)
{
    const judged *j = &names[_i];
    const char *reason = NULL;
    ckpt_danger danger = ckpt__scan_judge(ckpt__s(j->module), ckpt__s(j->name), &reason);
    ck_assert_msg(danger == j->danger, "%s %s: %s, expected %s", j->module, j->name, ckpt_danger_name(danger),
                  ckpt_danger_name(j->danger));
    ck_assert(reason && *reason);
}
END_TEST

static ckpt_str next_word(const char **p)
{
    size_t n = strcspn(*p, " ");
    ckpt_str word = {*p, n};
    *p += n + ((*p)[n] == ' ');
    return word;
}

/* A name that two rows have means what the first says: then the other row must say the same. */
START_TEST(no_row_contradicts_another)
{
    for (size_t i = 0; i < ckpt__scan_table_size; i++) {
        const ckpt__scan_row *r = &ckpt__scan_table[i];
        if (r->names[0] == '*' || strcmp(r->names, "A*") == 0)
            continue;
        for (const char *m = r->modules; *m;) {
            ckpt_str module = next_word(&m);
            for (const char *n = r->names; *n;) {
                ckpt_str name = next_word(&n);
                const char *reason;
                ckpt_danger danger = ckpt__scan_judge(module, name, &reason);
                ck_assert_msg(danger == r->danger, "%.*s %.*s: %s, in another row %s", (int)module.size, module.data,
                              (int)name.size, name.data, ckpt_danger_name(r->danger), ckpt_danger_name(danger));
            }
        }
    }
}
END_TEST

/* No row may be empty, and no module harmless as a whole. */
START_TEST(the_table_is_sound)
{
    ck_assert_uint_gt(ckpt__scan_table_size, 50);
    for (size_t i = 0; i < ckpt__scan_table_size; i++) {
        const ckpt__scan_row *r = &ckpt__scan_table[i];
        ck_assert(r->modules[0] && r->names[0] && r->reason[0]);
        ck_assert_msg(!strstr(r->modules, "  ") && !strstr(r->names, "  "), "%s", r->modules);
        ck_assert_msg(r->names[0] != '*' || r->names[1] == '\0', "%s: '*' stands alone", r->modules);
        ck_assert_msg(r->danger != CKPT_DANGER_HARMLESS || r->names[0] != '*', "%s: no module is harmless as a whole",
                      r->modules);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scan");
    TCase *c = tcase_create("scan");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, scan_setup, scan_teardown);
    tcase_add_loop_test(c, pickles, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(c, what_is_said_of_a_call);
    tcase_add_test(c, dangerous_ones_come_first);
    tcase_add_test(c, every_truncation);
    tcase_add_test(c, every_byte_changed);
    tcase_add_test(c, lengths_that_lie);
    tcase_add_test(c, pickles_in_pickles);
    tcase_add_test(c, large_ones);
    tcase_add_loop_test(c, names_mean, 0, (int)(sizeof names / sizeof *names));
    tcase_add_test(c, the_table_is_sound);
    tcase_add_test(c, no_row_contradicts_another);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
