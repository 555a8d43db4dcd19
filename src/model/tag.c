/* model/tag.c - devices as values: their names, as users write them and as files hold them. What is there is asked of the
 * device room. */
#include "model/index.h"

#include <stdio.h>

ckpt_device ckpt_cpu(void)
{
    return (ckpt_device){CKPT_DEVICE_CPU, -1};
}

ckpt_device ckpt_cuda(int index)
{
    return (ckpt_device){CKPT_DEVICE_CUDA, index};
}

bool ckpt_device_equal(ckpt_device a, ckpt_device b)
{
    /* The cpu and meta have one device each, however their index was filled in. */
    if (a.type != b.type)
        return false;
    return a.index == b.index || a.type == CKPT_DEVICE_CPU || a.type == CKPT_DEVICE_META ||
           a.type == CKPT_DEVICE_NONE || a.type == CKPT_DEVICE_MPS;
}

/* torch's devices beside the cpu and cuda, as torch/serialization.py tags storages: mps has one, and no index in its tag;
 * a tag of the others is NAME:N, and of a device that is asked for no index NAME. A program may rename privateuseone, and
 * npu is one that did. */
static const struct {
    const char *word;
    ckpt_device_type type;
    bool indexed; /* it has an index, */
    bool bare;    /* but is written without one too */
} further[] = {
    {"mps", CKPT_DEVICE_MPS, false, true},   {"xpu", CKPT_DEVICE_XPU, true, false},
    {"npu", CKPT_DEVICE_NPU, true, false},   {"hpu", CKPT_DEVICE_HPU, true, true},
    {"mtia", CKPT_DEVICE_MTIA, true, false}, {"privateuseone", CKPT_DEVICE_PRIVATEUSEONE, true, false},
};
enum { FURTHER = sizeof further / sizeof further[0] };

char *ckpt_device_name(ckpt_device device, char *buf)
{
    switch (device.type) {
    case CKPT_DEVICE_CPU:
        return strcpy(buf, "cpu");
    case CKPT_DEVICE_META:
        return strcpy(buf, "meta");
    case CKPT_DEVICE_OTHER:
        return strcpy(buf, "other");
    case CKPT_DEVICE_CUDA:
        if (device.index >= 0)
            snprintf(buf, CKPT_DEVICE_NAME_MAX, "cuda:%d", (int)device.index);
        else
            strcpy(buf, "cuda");
        return buf;
    case CKPT_DEVICE_MPS:
    case CKPT_DEVICE_XPU:
    case CKPT_DEVICE_NPU:
    case CKPT_DEVICE_HPU:
    case CKPT_DEVICE_MTIA:
    case CKPT_DEVICE_PRIVATEUSEONE:
        for (size_t i = 0; i < FURTHER; i++)
            if (further[i].type == device.type && further[i].indexed && device.index >= 0)
                snprintf(buf, CKPT_DEVICE_NAME_MAX, "%s:%d", further[i].word, (int)device.index);
            else if (further[i].type == device.type)
                strcpy(buf, further[i].word);
        return buf;
    case CKPT_DEVICE_NONE:
        break;
    }
    return strcpy(buf, "none");
}

/* ---- reading a device */

static bool equal_nocase(const char *text, size_t n, const char *lower)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        if (lower[i] == '\0' || c != lower[i])
            return false;
    }
    return lower[n] == '\0';
}

static bool is_one_of(const char *text, size_t n, const char *const *words)
{
    for (; *words; words++)
        if (equal_nocase(text, n, *words))
            return true;
    return false;
}

/* Names that users try for cuda, and devices that are other frameworks' or torch's own. */
static const char *const cuda_like[] = {"gpu", "nvidia", "rocm", "hip", NULL};
static const char *const foreign[] = {"mps", "xpu",           "npu", "hpu",    "mtia",
                                      "xla", "privateuseone", "ipu", "vulkan", NULL};

static ckpt_status bad_device(ckpt_error *err, const char *text, const char *why)
{
    char shown[64];
    ckpt__escape(shown, sizeof shown, text, strlen(text));
    return ckpt__fail(err, CKPT_E_ARGUMENT, shown, "not a device to map to: %s", why);
}

/* What stands after "cuda:", where `word` is cuda. */
static ckpt_status parse_index(const char *text, const char *digits, const char *word, ckpt_device_type type,
                               ckpt_device *out, ckpt_error *err)
{
    char why[128];
    size_t n = strlen(digits);
    int64_t index;
    bool number = strspn(digits, "0123456789") == n;
    if (number && n > 1 && digits[0] == '0') {
        const char *rest = digits + strspn(digits, "0");
        snprintf(why, sizeof why, "the index has a leading zero; write %s:%.10s", word, *rest ? rest : "0");
        return bad_device(err, text, why);
    }
    const char *what = n == 0 ? "the index is missing"
                       : digits[0] == '-' && n > 1 && strspn(digits + 1, "0123456789") == n - 1
                           ? "an index is 0 or more"
                       : !number ? "the index must be a decimal number alone"
                       : !ckpt__parse_i64(digits, n, &index) || index > INT32_MAX ? "the index is too large"
                                                                                  : NULL;
    if (what) {
        snprintf(why, sizeof why, "%s; write %s:0, %s:1, ...", what, word, word);
        return bad_device(err, text, why);
    }
    *out = (ckpt_device){type, (int32_t)index};
    return CKPT_OK;
}

static bool has_space(const char *text)
{
    return strpbrk(text, " \t\r\n\v\f") != NULL;
}

ckpt_status ckpt_device_parse(const char *text, ckpt_device *out, ckpt_error *err)
{
    if (!text || !*text)
        return bad_device(err, text ? text : "", "it is empty; write cpu or cuda:0");
    if (strcmp(text, "cpu") == 0) {
        *out = ckpt_cpu();
        return CKPT_OK;
    }
    if (ckpt__begins(text, "cuda:") && !has_space(text))
        return parse_index(text, text + 5, "cuda", CKPT_DEVICE_CUDA, out, err);
    if (strcmp(text, "cuda") == 0)
        return bad_device(err, text,
                          "it has no index, and which device is current depends on the program; write cuda:0");
    if (has_space(text))
        return bad_device(err, text, "it has spaces in it; write cpu or cuda:0");
    size_t word = strcspn(text, ":");
    if (ckpt__begins(text, "cpu:"))
        return bad_device(err, text, "the cpu has no index; write cpu");
    if (equal_nocase(text, word, "cpu"))
        return bad_device(err, text, "names of devices are in lower case, and the cpu has no index; write cpu");
    if (equal_nocase(text, word, "cuda"))
        return bad_device(err, text, "names of devices are in lower case; write cuda:0, cuda:1, ...");
    if (is_one_of(text, word, cuda_like))
        return bad_device(err, text, "the name of a GPU here is cuda; write cuda:0, cuda:1, ...");
    if (equal_nocase(text, word, "meta"))
        return bad_device(err, text, "meta holds no data; write cpu or cuda:0");
    if (is_one_of(text, word, foreign))
        return bad_device(err, text,
                          "this library carries such tags, but puts tensors on cpu and cuda only; write cpu "
                          "or cuda:0");
    if (strspn(text, "0123456789") == strlen(text))
        return bad_device(err, text, "a number alone names no device; write cuda:0, cuda:1, ...");
    if (ckpt__begins(text, "cuda"))
        return bad_device(err, text, "the index stands after a colon; write cuda:0, cuda:1, ...");
    return bad_device(err, text, "no device has this name; write cpu or cuda:0");
}

/* ---- tags in files */

ckpt_device ckpt__tag_parse(ckpt_str tag)
{
    ckpt_device d = {CKPT_DEVICE_OTHER, -1};
    if (!tag.data)
        d.type = CKPT_DEVICE_NONE;
    else if (ckpt__str_is(tag, "cpu"))
        d.type = CKPT_DEVICE_CPU;
    else if (ckpt__str_is(tag, "meta"))
        d.type = CKPT_DEVICE_META;
    else if (ckpt__str_is(tag, "cuda"))
        d.type = CKPT_DEVICE_CUDA;
    else {
        size_t colon = tag.size;
        while (colon > 0 && tag.data[colon - 1] != ':')
            colon--;
        int64_t index;
        if (colon > 0 && tag.size > colon && ckpt__parse_i64(tag.data + colon, tag.size - colon, &index) &&
            index >= 0 && index <= INT32_MAX) {
            d.index = (int32_t)index;
            if (colon == 5 && memcmp(tag.data, "cuda:", 5) == 0)
                d.type = CKPT_DEVICE_CUDA;
        }
        bool bare = colon == 0;
        for (size_t i = 0; i < FURTHER; i++)
            if (ckpt__str_is((ckpt_str){tag.data, bare ? tag.size : colon - 1}, further[i].word) &&
                (bare || d.index >= 0))
                d.type = further[i].type;
    }
    return d;
}

ckpt_device_type ckpt__indexed_device(ckpt_str word)
{
    if (ckpt__str_is(word, "cuda"))
        return CKPT_DEVICE_CUDA;
    for (size_t i = 0; i < FURTHER; i++)
        if (further[i].indexed && ckpt__str_is(word, further[i].word))
            return further[i].type;
    return CKPT_DEVICE_NONE;
}

ckpt_status ckpt__tag_target(const char *text, ckpt_device *out, ckpt_error *err)
{
    size_t word = strcspn(text, ":"), i = 0;
    char why[128];
    while (i < FURTHER && !equal_nocase(text, word, further[i].word))
        i++;
    if (i == FURTHER || has_space(text))
        return ckpt_device_parse(text, out, err);
    if (strncmp(text, further[i].word, word) != 0)
        snprintf(why, sizeof why, "names of devices are in lower case; write %s%s", further[i].word,
                 further[i].bare ? "" : ":0");
    else if (!text[word] && further[i].bare) {
        *out = (ckpt_device){further[i].type, -1};
        return CKPT_OK;
    } else if (!text[word])
        snprintf(why, sizeof why, "it has no index, and which device is current depends on the program; write %s:0",
                 text);
    else if (further[i].indexed)
        return parse_index(text, text + word + 1, further[i].word, further[i].type, out, err);
    else
        snprintf(why, sizeof why, "there is one, and torch's tag for it has no index; write %s", further[i].word);
    return bad_device(err, text, why);
}
