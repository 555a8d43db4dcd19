/* model/tag.c - devices as values: their names, as users write them and as files hold them. What is there is asked of the
 * device room. */
#include "model/index.h"

#include <stdio.h>

ckpt_device ckpt_cpu(void)
{
    return (ckpt_device){ CKPT_DEVICE_CPU, -1 };
}

ckpt_device ckpt_cuda(int index)
{
    return (ckpt_device){ CKPT_DEVICE_CUDA, index };
}

bool ckpt_device_equal(ckpt_device a, ckpt_device b)
{
    /* The cpu and meta have one device each, however their index was filled in. */
    if (a.type != b.type)
        return false;
    return a.index == b.index || a.type == CKPT_DEVICE_CPU || a.type == CKPT_DEVICE_META || a.type == CKPT_DEVICE_NONE;
}

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
static const char *const cuda_like[] = { "gpu", "nvidia", "rocm", "hip", NULL };
static const char *const foreign[] = {"mps", "xpu",           "npu", "hpu",    "mtia",
                                      "xla", "privateuseone", "ipu", "vulkan", NULL};

static ckpt_status bad_device(ckpt_error *err, const char *text, const char *why)
{
    char shown[64];
    ckpt__escape(shown, sizeof shown, text, strlen(text));
    return ckpt__fail(err, CKPT_E_ARGUMENT, shown, "not a device to map to: %s", why);
}

/* What stands after "cuda:". */
static ckpt_status parse_index(const char *text, const char *digits, ckpt_device *out, ckpt_error *err)
{
    char why[128];
    size_t n = strlen(digits);
    int64_t index;
    if (n == 0)
        return bad_device(err, text, "the index is missing; write cuda:0, cuda:1, ...");
    if (strspn(digits, "0123456789") == n && n > 1 && digits[0] == '0') {
        const char *rest = digits + strspn(digits, "0");
        snprintf(why, sizeof why, "the index has a leading zero; write cuda:%.10s", *rest ? rest : "0");
        return bad_device(err, text, why);
    }
    if (digits[0] == '-' && n > 1 && strspn(digits + 1, "0123456789") == n - 1)
        return bad_device(err, text, "an index is 0 or more; write cuda:0, cuda:1, ...");
    if (strspn(digits, "0123456789") != n)
        return bad_device(err, text, "the index must be a decimal number alone; write cuda:0, cuda:1, ...");
    if (!ckpt__parse_i64(digits, n, &index) || index > INT32_MAX)
        return bad_device(err, text, "the index is too large; write cuda:0, cuda:1, ...");
    *out = ckpt_cuda((int)index);
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
    if (strncmp(text, "cuda:", 5) == 0 && !has_space(text))
        return parse_index(text, text + 5, out, err);
    if (strcmp(text, "cuda") == 0)
        return bad_device(err, text,
                          "it has no index, and which device is current depends on the program; write cuda:0");
    if (has_space(text))
        return bad_device(err, text, "it has spaces in it; write cpu or cuda:0");
    size_t word = strcspn(text, ":");
    if (strncmp(text, "cpu:", 4) == 0)
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
        return bad_device(err, text, "this library carries such tags, but puts tensors on cpu and cuda only; write cpu "
                          "or cuda:0");
    if (strspn(text, "0123456789") == strlen(text))
        return bad_device(err, text, "a number alone names no device; write cuda:0, cuda:1, ...");
    if (strncmp(text, "cuda", 4) == 0)
        return bad_device(err, text, "the index stands after a colon; write cuda:0, cuda:1, ...");
    return bad_device(err, text, "no device has this name; write cpu or cuda:0");
}

/* ---- tags in files */

ckpt_device ckpt__tag_parse(ckpt_str tag)
{
    ckpt_device d = { CKPT_DEVICE_OTHER, -1 };
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
        if (colon > 0 && tag.size > colon && ckpt__parse_i64(tag.data + colon, tag.size - colon, &index) && index >= 0 &&
            index <= INT32_MAX) {
            d.index = (int32_t)index;
            if (colon == 5 && memcmp(tag.data, "cuda:", 5) == 0)
                d.type = CKPT_DEVICE_CUDA;
        }
    }
    return d;
}
