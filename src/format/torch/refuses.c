/* format/torch/refuses.c - files that can be read here and on which torch.load raises, weights_only or not. Each line that is
 * quoted is that of torch 2.13.0 (caffe2/serialize/inline_container.cc, torch/serialization.py, torch/_utils.py), and was seen
 * by running it. */
#include "format/torch/torch.h"

#include <stdio.h>

bool ckpt__torch_refuses(ckpt__torch *t, const char *format, ...)
{
    char text[500], shown[500];
    va_list ap;
    if (t->refused || t->salvage || t->kept || t->depth > 0 || (!t->zip && !t->legacy))
        return true;
    t->refused = true;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return ckpt__report_add(
        t->index->findings, CKPT_SEVERITY_WARNING, "torch-refuses", NULL,
        "the bytes are as they were written; ckpt-migrate --to torch writes what it holds as torch reads it",
        "torch.load raises on this file, with weights_only=False too: %s",
        ckpt__escape(shown, sizeof shown, text, strlen(text)));
}

ckpt_status ckpt__torch_check_late(const ckpt__torch *t, ckpt_error *err)
{
    if (!t->pickle.late)
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_FORMAT, t->label,
        "byte %llu changes a list or dict after a call, or a state, took its content: an unpickler's call has what was "
        "in it then, what is read here is what it holds at the end; no pickler writes that",
        (unsigned long long)(t->pickle_at + t->pickle.late_at));
}

/* Of persistent ids that nothing refers to too: torch.load looks up each as it meets it. */
bool ckpt__torch_check_ids(ckpt__torch *t)
{
    const size_t wanted = t->legacy ? 5 : 4;
    char shown[80];
    for (size_t i = 0; i < t->pickle.persistent_count && !t->refused && !t->script; i++) {
        const ckpt__pickle_node *id = t->pickle.persistents[i]->u.id, *kind = ckpt__torch_item(id, 0);
        size_t n = ckpt__torch_length(id);
        if (id->kind != CKPT__P_TUPLE)
            return ckpt__torch_refuses(t, "AssertionError: saved_id must be a tuple");
        bool text = kind && (kind->kind == CKPT__P_STR || kind->kind == CKPT__P_BYTES);
        if (!text || !ckpt__str_is(kind->u.text, "storage")) {
            if (text && t->legacy && ckpt__str_is(kind->u.text, "module"))
                continue;
            return ckpt__torch_refuses(
                t,
                t->legacy ? "RuntimeError: Unknown saved id type: %s"
                          : "AssertionError: Unknown typename for persistent_load, expected 'storage' but got '%s'",
                text ? ckpt__escape(shown, sizeof shown, kind->u.text.data, kind->u.text.size) : "something else");
        }
        if (n - 1 > wanted)
            return ckpt__torch_refuses(t, "ValueError: too many values to unpack (expected %zu)", wanted);
        if (n - 1 < wanted)
            return ckpt__torch_refuses(t, "ValueError: not enough values to unpack (expected %zu, got %zu)", wanted,
                                       n - 1);
    }
    return true;
}

/* ---- the archive's records */

static bool check_names(ckpt__torch *t)
{
    const ckpt__zip_record *r;
    char shown[200], root[200];
    for (size_t i = 0; (r = ckpt__zip_at(t->zip, i)) != NULL; i++) {
        bool inside = r->name.size > t->root.size && memcmp(r->name.data, t->root.data, t->root.size) == 0 &&
                      r->name.data[t->root.size] == '/';
        if (inside)
            continue;
        ckpt__escape(root, sizeof root, t->root.data, t->root.size);
        ckpt__escape(shown, sizeof shown, r->name.data, r->name.size);
        return ckpt__torch_refuses(t, "RuntimeError: file in archive is not in a subdirectory %s/: %s", root, shown);
    }
    return true;
}

static bool check_zip(ckpt__torch *t)
{
    const ckpt__zip_record *r;
    const char *why = ckpt__zip_refused(t->zip, &r);
    char shown[200];
    if (!why)
        return true;
    if (!strstr(why, "codec")) /* a name is the user's */
        t->index->archive_refused = why;
    if (!r && strstr(why, "Error: "))
        return ckpt__torch_refuses(t, "%s", why);
    if (!r)
        return ckpt__torch_refuses(t, "RuntimeError: PytorchStreamReader failed reading zip archive: %s", why);
    ckpt__escape(shown, sizeof shown, r->name.data, r->name.size);
    if (strstr(why, "codec"))
        return ckpt__torch_refuses(t, "UnicodeDecodeError: %s (record %s)", why, shown);
    return ckpt__torch_refuses(t, "RuntimeError: PytorchStreamReader failed retrieving file meta-data for %s: %s",
                               shown, why);
}

/* torch.load hands an archive with constants.pkl to torch.jit.load, which needs a module and the code of its class. */
bool ckpt__torch_refuses_script(ckpt__torch *t)
{
    const ckpt_str name = t->index->root ? t->index->root->class_name : (ckpt_str){NULL, 0};
    char shown[200];
    ckpt__buf b = {0};
    if (!t->script)
        return true;
    if (!ckpt__str_begins(name, "__torch__."))
        return ckpt__torch_refuses(
            t, "RuntimeError of torch.jit.load: the archive has constants.pkl, and data.pkl holds no module");
    ckpt__buf_add(&b, t->root.data, t->root.size);
    ckpt__buf_str(&b, "/code/");
    size_t last = ckpt__str_after_dot(name);
    for (size_t i = 0; i + 1 < last; i++)
        ckpt__buf_char(&b, name.data[i] == '.' ? '/' : name.data[i]);
    ckpt__buf_str(&b, ".py");
    ckpt__escape(shown, sizeof shown, name.data, name.size);
    bool fine = !b.failed && (ckpt__zip_find(t->zip, b.data, b.size) ||
                              ckpt__torch_refuses(t, "RuntimeError: Unknown type name '%s':", shown));
    ckpt__buf_free(&b);
    return fine;
}

bool ckpt__torch_refuses_archive(ckpt__torch *t)
{
    return check_zip(t) && check_names(t);
}

/* What Python's int() makes of the bytes of .storage_alignment: white space, a sign, digits with single underscores between. */
static bool is_int(ckpt_str s)
{
    size_t i = 0, n = s.size;
    static const char white[] = " \t\n\v\f\r";
    while (i < n && memchr(white, s.data[i], sizeof white - 1))
        i++;
    while (n > i && memchr(white, s.data[n - 1], sizeof white - 1))
        n--;
    if (i < n && (s.data[i] == '+' || s.data[i] == '-'))
        i++;
    for (bool digit = false; i < n; i++) {
        bool now = s.data[i] >= '0' && s.data[i] <= '9';
        if (!now && (s.data[i] != '_' || !digit || i + 1 == n))
            return false;
        digit = now;
        if (i + 1 == n)
            return true;
    }
    return false;
}

bool ckpt__torch_refuses_alignment(ckpt__torch *t, ckpt_str alignment)
{
    char shown[80];
    return is_int(alignment) ||
           ckpt__torch_refuses(t,
                               "ValueError: invalid literal for int() with base 10: b'%s' (record .storage_alignment)",
                               ckpt__escape(shown, sizeof shown, alignment.data ? alignment.data : "", alignment.size));
}

/* ---- a storage's tag */

/* The devices that torch knows, and names that backends outside of it register. */
bool ckpt__torch_refuses_location(ckpt__torch *t, ckpt_str location)
{
    static const char kinds[] =
        "cuda mps meta xpu hpu mtia npu privateuseone xla mlu musa gcu ipu vulkan maia lazy fpga ort ve opengl opencl hip xpu sdaa rbln";
    char shown[80];
    size_t n = 0;
    if (!location.data)
        return ckpt__torch_refuses(
            t, "TypeError: expected string or bytes-like object, got 'NoneType' (the location of a storage)");
    if (ckpt__str_is(location, "cpu"))
        return true;
    while (n < location.size && location.data[n] != ':')
        n++;
    bool known = ckpt__str_among((ckpt_str){location.data, n}, kinds) && n + 1 != location.size;
    for (size_t i = n + 1; known && i < location.size; i++)
        known = location.data[i] >= '0' && location.data[i] <= '9';
    return known ||
           ckpt__torch_refuses(t,
                               "RuntimeError: don't know how to restore data location of torch.storage.UntypedStorage "
                               "(tagged with %s)",
                               ckpt__escape(shown, sizeof shown, location.data, location.size));
}
