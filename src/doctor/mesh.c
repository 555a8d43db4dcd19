/* doctor/mesh.c - the mesh of the job that resumes, as it was asked for: "dp=2,tp=2". */
#include "doctor/facts.h"

#include <stdio.h>

/* The axes that there are, and what each divides. */
static const struct {
    const char *name;
    char what; /* 'd': the data, 'e': the data, and experts among them, 't', 'p' */
} axes[] = {{"dp", 'd'}, {"dp_replicate", 'd'}, {"dp_shard", 'd'}, {"fsdp", 'd'}, {"cp", 'd'},
            {"sp", 'd'}, {"ep", 'e'},           {"tp", 't'},       {"pp", 'p'}};

static const char expected[] =
    "say it as \"dp=2,tp=2\", slowest axis first; axes are dp (or dp_replicate, dp_shard, fsdp), tp, pp, ep, cp and sp";

static ckpt_status refuse(const char *mesh, const char *path, const char *why, ckpt_str part, ckpt_error *err)
{
    char shown[200], of[60];
    return ckpt__fail(err, CKPT_E_ARGUMENT, path, "mesh \"%s\": %s\"%s\"; %s",
                      ckpt__escape(shown, sizeof shown, mesh, strlen(mesh)), why,
                      ckpt__escape(of, sizeof of, part.data, part.size), expected);
}

/* One "name=size". */
static ckpt_status take_axis(ckpt__mesh_asked *m, ckpt_str part, const char *mesh, const char *path, ckpt_error *err)
{
    const char *equals = part.size ? memchr(part.data, '=', part.size) : NULL;
    size_t kind = sizeof axes / sizeof *axes;
    int64_t size;
    if (!equals)
        return refuse(mesh, path, "an axis has a name and a size, and this is ", part, err);
    ckpt_str name = {part.data, (size_t)(equals - part.data)};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        kind = ckpt__str_is(name, axes[i].name) ? i : kind;
    if (kind == sizeof axes / sizeof *axes)
        return refuse(mesh, path, "there is no axis ", name, err);
    for (size_t i = 0; i < m->count; i++)
        if (ckpt__str_is(name, axes[kind].name) && m->names[i].size == name.size &&
            memcmp(m->names[i].data, name.data, name.size) == 0)
            return refuse(mesh, path, "this axis stands twice: ", name, err);
    if (!ckpt__parse_i64(equals + 1, part.size - name.size - 1, &size) || size < 1 || size > 1000000 ||
        m->world > 1000000 / size)
        return refuse(mesh, path, "a size is a number from 1 on, and all together at most 1000000 ranks: ", part, err);
    m->names[m->count] = name;
    m->sizes[m->count++] = size;
    m->world *= size;
    *(axes[kind].what == 't' ? &m->tp : axes[kind].what == 'p' ? &m->pp : &m->dp) *= size;
    m->ep = axes[kind].what == 'e' ? size : m->ep;
    return CKPT_OK;
}

ckpt_status ckpt__mesh_parse(const char *mesh, int world, const char *path, ckpt__mesh_asked *out, ckpt_error *err)
{
    char shown[200];
    ckpt_status status = CKPT_OK;
    memset(out, 0, sizeof *out);
    if (world < 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, path, "a world of %d ranks; say 1 or more, or 0 for as many as saved",
                          world);
    out->world = world;
    if (!mesh)
        return CKPT_OK;
    out->world = out->dp = out->tp = out->pp = 1;
    for (const char *at = mesh; status == CKPT_OK; at++) {
        size_t n = strcspn(at, ",");
        status = take_axis(out, (ckpt_str){at, n}, mesh, path, err);
        at += n;
        if (!*at)
            break;
    }
    if (status == CKPT_OK && world > 0 && world != out->world)
        status = ckpt__fail(
            err, CKPT_E_ARGUMENT, path,
            "mesh \"%s\" is of %lld ranks, and the world is said to be of %d: the product of the mesh is the "
            "world; leave one of the two out, or make them agree",
            ckpt__escape(shown, sizeof shown, mesh, strlen(mesh)), (long long)out->world, world);
    return status;
}
