/* migrate/mesh.c - --mesh and --cut: which rule cuts which tensor of a distributed checkpoint that is written. */
#include "migrate/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include "layout/ranks.h"
#include "migrate/layout.h"
#include "migrate/rules.h"
#include "migrate/shards.h"

typedef struct ruling {
    ckpt__migration *m;
    ckpt__meshed *d;
    unsigned side;              /* of the layout: the target */
    const ckpt__layout *layout; /* that has a mesh for that side; NULL: there is none */
    size_t shards;              /* entries that it has */
    ckpt__hash *by_name;        /* owned: parameter -> number of the tensor */
    ckpt_error *err;
} ruling;

void ckpt__meshed_free(ckpt__meshed *d)
{
    if (!d)
        return;
    ckpt__arena_free(d->arena);
    ckpt__hash_free(d->kinds);
    free(d->cuts);
    free(d->kind);
    free(d);
}

ckpt_status ckpt__mesh_ask(const ckpt__migration *m, ckpt_error *err)
{
    const ckpt_migrate_options *o = &m->options;
    ckpt__rank_mesh mesh;
    if (!o->mesh && !o->cut_count)
        return CKPT_OK;
    if (!ckpt__is_dcp(m) && !ckpt__is_fsdps(m))
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, m->dst,
            "%s is for a distributed checkpoint of PyTorch, which is cut for the ranks of a mesh (--to dcp, "
            "dcp-fsdp1, dcp-hf, torchtitan, hf-trainer-fsdp, accelerate-fsdp): %s is not",
            o->mesh ? "--mesh" : "--cut", m->to);
    if (!o->mesh)
        return CKPT_OK;
    ckpt_status status = ckpt__rank_mesh_parse(ckpt__s(o->mesh), &mesh, err);
    if (status < 0) {
        ckpt__error_prefix(err, "--mesh %s", o->mesh);
        ckpt__error_object(err, m->dst);
        return status;
    }
    if (o->target_world && o->target_world != ckpt__rank_mesh_world(&mesh) && !o->layout)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "--world %u and --mesh %s, which has %u ranks: say one of them",
                          (unsigned)o->target_world, o->mesh, (unsigned)ckpt__rank_mesh_world(&mesh));
    return CKPT_OK;
}

/* ---- the mesh */

/* Can the sizes of the layout's mesh be computed? Those of files of ranks may be told by the files alone. */
static bool has_known_mesh(const ruling *r)
{
    ckpt__rank_mesh mesh;
    return ckpt__layout_mesh(r->layout, r->side, NULL, ckpt__layout_value, r->m->followed->match, &mesh, NULL) ==
           CKPT_OK;
}

/* The layout's own mesh is that of its program; one of one rank cuts nothing, and is there to be made larger by --mesh. */
static ckpt_status find_mesh(ruling *r)
{
    ckpt__migration *m = r->m;
    const char *said = m->options.mesh;
    ckpt__rank_mesh asked = {.count = 0};
    ckpt_status status = said ? ckpt__rank_mesh_parse(ckpt__s(said), &asked, r->err) : CKPT_OK;
    if (m->followed) {
        r->side = 1 - m->followed->match->from;
        r->layout = ckpt__layout_has_mesh(m->followed->layout, r->side) ? m->followed->layout : NULL;
    }
    r->shards = r->layout ? ckpt__layout_shard_count(r->layout, r->side) : 0;
    r->d->mesh = asked;
    if (status == CKPT_OK && r->layout && !said && m->options.target_world && !has_known_mesh(r))
        return CKPT_OK; /* rows for --world */
    if (status == CKPT_OK && r->layout)
        status = ckpt__layout_mesh(r->layout, r->side, said ? &asked : NULL, ckpt__layout_value, m->followed->match,
                                   &r->d->mesh, r->err);
    if (status < 0)
        return status;
    const uint32_t world = r->d->mesh.count ? ckpt__rank_mesh_world(&r->d->mesh) : 1;
    r->d->is_mesh = said || world > 1;
    if (r->d->is_mesh && m->options.target_world && m->options.target_world != world) {
        char text[400];
        ckpt__rank_mesh_text(&r->d->mesh, text, sizeof text);
        return ckpt__fail(r->err, CKPT_E_ARGUMENT, m->dst,
                          "--world %u, and the mesh of %u ranks (%s): say --mesh alone",
                          (unsigned)m->options.target_world, (unsigned)world, text);
    }
    if (!r->d->is_mesh && m->options.cut_count)
        return ckpt__fail(r->err, CKPT_E_ARGUMENT, m->dst, "--cut says how the ranks of a mesh cut: say --mesh, too");
    return CKPT_OK;
}

/* ---- rules */

static ckpt_status no_memory(const ruling *r)
{
    return ckpt__migration_no_memory(r->err);
}

static ckpt_status wrong_cut(const ruling *r, const char *said, const char *why)
{
    char axes[400];
    ckpt__rank_mesh_text(&r->d->mesh, axes, sizeof axes);
    return ckpt__fail(
        r->err, CKPT_E_ARGUMENT, r->m->dst,
        "--cut '%s': %s; say 'GLOB=AXIS:DIMENSION', of several the outer one first: 'GLOB=tp:0,dp:0' (the "
        "mesh is %s)",
        said, why, axes);
}

/* One "axis:dim", or "axis:none". */
static ckpt_status read_cut(const ruling *r, const char *said, ckpt_str one, ckpt__mesh_rule *rule, ckpt__rank_cut *cut)
{
    const char *colon = one.size ? memchr(one.data, ':', one.size) : NULL;
    const ckpt_str axis = {one.data, colon ? (size_t)(colon - one.data) : one.size},
                   of = {colon ? colon + 1 : NULL, colon ? one.size - axis.size - 1 : 0};
    const bool none = ckpt__str_is(of, "none");
    int64_t dim = 0;
    *cut = (ckpt__rank_cut){.axis = ckpt__rank_mesh_axis(&r->d->mesh, axis), .groups = 1};
    if (!none && (!colon || !ckpt__parse_i64(of.data, of.size, &dim) || dim < 0 || dim > CKPT__NDIM_MAX))
        return wrong_cut(r, said, "an axis, a colon, and the number of a dimension or 'none' are expected");
    if (cut->axis == r->d->mesh.count)
        return wrong_cut(r, said, "the mesh has no such axis");
    if (rule->named >> cut->axis & 1)
        return wrong_cut(r, said, "an axis cuts a tensor once");
    cut->dim = (uint32_t)dim;
    rule->named |= 1u << cut->axis;
    rule->count += !none;
    return CKPT_OK;
}

/* "GLOB=tp:0,dp:0" */
static ckpt_status read_rule(const ruling *r, const char *said, ckpt__mesh_rule *rule)
{
    const char *equals = strrchr(said, '=');
    ckpt__rank_cut *cuts = ckpt__arena_array(r->d->arena, CKPT__MESH_AXES + 1, sizeof *cuts);
    if (!equals || equals == said)
        return wrong_cut(r, said, "there is no '=' behind a pattern of names");
    if (!cuts || !(rule->glob = ckpt__arena_copy(r->d->arena, said, (size_t)(equals - said))))
        return no_memory(r);
    ckpt_status status = CKPT_OK;
    rule->cuts = cuts;
    for (const char *at = equals + 1; status == CKPT_OK;) {
        const size_t n = strcspn(at, ",");
        status = read_cut(r, said, (ckpt_str){at, n}, rule, &cuts[rule->count]); /* at most one for each axis */
        if (!at[n])
            break;
        at += n + 1;
    }
    return status;
}

static ckpt_status read_rules(ruling *r)
{
    const ckpt__migration *m = r->m;
    const size_t said = m->options.cut_count, shards = r->shards;
    r->d->rules = ckpt__arena_array(r->d->arena, said + shards + 1, sizeof *r->d->rules);
    if (!r->d->rules)
        return no_memory(r);
    ckpt_status status = CKPT_OK;
    r->d->rule_count = said + shards;
    for (size_t i = 0; status == CKPT_OK && i < said; i++)
        status = read_rule(r, m->options.cuts[i], &r->d->rules[i]);
    for (size_t i = 0; status == CKPT_OK && i < shards; i++) {
        ckpt__mesh_rule *rule = &r->d->rules[said + i];
        rule->shard = i;
        status = ckpt__layout_shard_cuts(r->layout, r->side, i, &r->d->mesh, ckpt__layout_value, m->followed->match,
                                         r->d->arena, &rule->cuts, &rule->count, r->err);
    }
    return status;
}

/* ---- axes that a rule does not name */

/* FSDP2 cuts the rows of each parameter, and what is behind tensor parallelism of it: by such an axis, where nothing else is said. */
static bool cuts_rows(ckpt_str axis)
{
    return ckpt__str_among(axis, "dp fsdp dp_shard");
}

static ckpt_status refuse_axis(const ruling *r, ckpt_str axis)
{
    return ckpt__fail(
        r->err, CKPT_E_ARGUMENT, r->m->dst,
        "it is unknown which tensors the axis '%.*s' cuts, and along which dimension: say --cut 'GLOB=%.*s:DIMENSION' "
        "for each kind of tensor, or a layout that has it (--layout); in PyTorch a column-wise linear layer "
        "is cut along dimension 0, a row-wise one along 1. Only dp, fsdp and dp_shard cut rows unasked, and "
        "dp_replicate nothing",
        (int)axis.size, axis.data, (int)axis.size, axis.data);
}

/* Of each axis that cuts something the layout or a --cut says what. */
static ckpt_status check_axes(const ruling *r)
{
    const ckpt__meshed *d = r->d;
    unsigned named = 0;
    for (size_t i = 0; i < r->m->options.cut_count; i++)
        named |= d->rules[i].named;
    for (size_t a = 0; a < d->mesh.count && !r->shards; a++) {
        const ckpt_str name = d->mesh.axes[a].name;
        if (d->mesh.axes[a].size > 1 && !(named >> a & 1) && !cuts_rows(name) && !ckpt__str_is(name, "dp_replicate"))
            return refuse_axis(r, name);
    }
    return CKPT_OK;
}

/* Behind the rule's own cuts those of the rows, by the axes that it does not name. */
static bool add_rows(const ruling *r, ckpt__mesh_rule *rule)
{
    ckpt__rank_cut *cuts = ckpt__arena_array(r->d->arena, CKPT__MESH_AXES + 1, sizeof *cuts);
    if (!cuts)
        return false;
    if (rule->count)
        memcpy(cuts, rule->cuts, rule->count * sizeof *cuts);
    for (size_t a = 0; a < r->d->mesh.count; a++)
        if (cuts_rows(r->d->mesh.axes[a].name) && !(rule->named >> a & 1))
            cuts[rule->count++] = (ckpt__rank_cut){.axis = a, .groups = 1};
    rule->cuts = cuts;
    return true;
}

/* The entries of a layout say all, and so does a layout of the tensors that none of them has. */
static ckpt_status default_rows(const ruling *r)
{
    ckpt_status status = check_axes(r);
    bool fine = r->shards || add_rows(r, &r->d->none);
    for (size_t i = 0; fine && i < r->m->options.cut_count; i++)
        fine = add_rows(r, &r->d->rules[i]);
    return fine || status < 0 ? status : no_memory(r);
}

/* ---- tensors */

/* What a tensor is to the rules. */
typedef struct subject {
    ckpt_str param; /* whose it is, or what it is; data NULL: it stays in one piece */
    bool state;     /* of the parameter */
} subject;

static bool is_weight(const ckpt_tensor_info *t)
{
    return t->role == CKPT_ROLE_NONE || t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER;
}

static subject subject_of(const ckpt__migration *m, size_t tensor)
{
    const ckpt_tensor_info *t = &m->index->tensors[tensor].info;
    const ckpt__row *row = &m->ledger.rows[tensor];
    const ckpt__canon_entry *e =
        row->entry && row->entry <= m->canon->count ? &m->canon->entries[row->entry - 1] : NULL;
    if (ckpt__stays_behind(m, tensor) || !e || e->outside)
        return (subject){{NULL, 0}, false};
    if (t->param.data && t->state_key.data)
        return (subject){t->param, true};
    return (subject){is_weight(t) ? e->name : (ckpt_str){NULL, 0}, false};
}

static ckpt__mesh_rule *find_rule(const ruling *r, ckpt_str param)
{
    ckpt__meshed *d = r->d;
    const size_t said = r->m->options.cut_count;
    for (size_t i = 0; i < said; i++)
        if (ckpt__rule_matches(d->rules[i].glob, param))
            return &d->rules[i];
    const size_t shard = r->layout ? ckpt__layout_shard_of(r->layout, r->side, param) : SIZE_MAX;
    return shard == SIZE_MAX ? &d->none : &d->rules[said + shard];
}

/* Whose states an optimizer has by numbers is not known: they would lie otherwise than their parameters. */
static ckpt_status check_named(const ruling *r, size_t tensor)
{
    const ckpt__migration *m = r->m;
    const ckpt_tensor_info *t = &m->index->tensors[tensor].info;
    const bool moment = t->role >= CKPT_ROLE_EXP_AVG && t->role <= CKPT_ROLE_MASTER;
    if (!moment || t->param.data || ckpt__stays_behind(m, tensor) || t->ndim == 0)
        return CKPT_OK;
    return ckpt__fail(r->err, CKPT_E_MISMATCH, t->name.data ? t->name.data : m->src,
                      "which parameter this state of the optimizer belongs to is unknown, so that it cannot be cut as "
                      "that is: say --param-names FILE, or --weights-only");
}

static ckpt_status find_weights(const ruling *r)
{
    const ckpt__migration *m = r->m;
    for (size_t i = 0; i < m->index->tensor_count; i++) {
        const subject s = subject_of(m, i);
        if (s.param.data && !s.state && ckpt__hash_put(r->by_name, s.param.data, s.param.size, i, NULL) < 0)
            return no_memory(r);
    }
    return CKPT_OK;
}

static ckpt_status rule_tensor(const ruling *r, size_t i)
{
    const ckpt__index *x = r->m->index;
    const ckpt_tensor_info *t = &x->tensors[i].info, *param = NULL;
    const subject s = subject_of(r->m, i);
    size_t of;
    ckpt_status status = check_named(r, i);
    if (status < 0 || !s.param.data)
        return status;
    if (ckpt__hash_get(r->by_name, s.param.data, s.param.size, &of) && of != i)
        param = &x->tensors[of].info;
    ckpt__mesh_rule *rule = find_rule(r, s.param);
    rule->used++;
    const bool buffer = (param ? param : t)->role == CKPT_ROLE_BUFFER; /* FSDP leaves them as they are */
    if (ckpt__shard_is_cut(t, s.state ? param : NULL) && !(rule == &r->d->none && buffer))
        r->d->rule_of[i] = rule;
    return CKPT_OK;
}

static ckpt_status note_unused(const ruling *r)
{
    static const ckpt__rule_names names = {.canonical = true};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < r->d->rule_count; i++) {
        const ckpt__mesh_rule *rule = &r->d->rules[i];
        char said[400];
        size_t line = 0, column = 0;
        if (rule->used)
            continue;
        if (rule->glob) {
            snprintf(said, sizeof said, "--cut '%.300s'", r->m->options.cuts[i]);
            status = ckpt__rule_unused(r->m, said, "is the first rule of no parameter", rule->glob, &names, r->err);
        } else if (!ckpt__layout_shard_optional(r->layout, r->side, rule->shard, &line, &column)) {
            snprintf(said, sizeof said, "%.300s, line %zu, column %zu:", r->m->options.layout, line, column);
            status =
                ckpt__rule_unused(r->m, said, "the entry of 'shard' is the first of no parameter", NULL, NULL, r->err);
        }
    }
    return status;
}

static ckpt_status say_mesh(const ruling *r)
{
    const ckpt__meshed *d = r->d;
    size_t cut = 0, all = 0;
    char text[400];
    ckpt__rank_mesh_text(&d->mesh, text, sizeof text);
    for (size_t i = 0; i < d->tensor_count; i++) {
        cut += d->rule_of[i] && d->rule_of[i]->count;
        all += !ckpt__stays_behind(r->m, i);
    }
    return ckpt__migration_note(r->m, CKPT_SEVERITY_NOTE, "mesh-cut", (ckpt_str){NULL, 0}, r->err,
                                "a mesh of %u ranks (%s) cuts %zu of %zu tensors",
                                (unsigned)ckpt__rank_mesh_world(&d->mesh), text, cut, all);
}

static ckpt_status rule_all(ruling *r)
{
    ckpt__meshed *d = r->d;
    d->tensor_count = r->m->index->tensor_count;
    d->rule_of = ckpt__arena_array(d->arena, d->tensor_count + 1, sizeof *d->rule_of);
    r->by_name = ckpt__hash_new(d->tensor_count);
    ckpt_status status = d->rule_of && r->by_name ? read_rules(r) : no_memory(r);
    if (status == CKPT_OK)
        status = default_rows(r);
    if (status == CKPT_OK)
        status = find_weights(r);
    for (size_t i = 0; status == CKPT_OK && i < d->tensor_count; i++)
        status = rule_tensor(r, i);
    if (status == CKPT_OK)
        status = note_unused(r);
    return status == CKPT_OK ? say_mesh(r) : status;
}

ckpt_status ckpt__mesh_rules(ckpt__migration *m, ckpt_error *err)
{
    ruling r = {.m = m, .err = err};
    if (!ckpt__is_dcp(m) && !ckpt__is_fsdps(m))
        return CKPT_OK;
    m->meshed = r.d = calloc(1, sizeof *r.d);
    if (!r.d || !(r.d->arena = ckpt__arena_new(0)))
        return no_memory(&r);
    ckpt_status status = find_mesh(&r);
    if (status == CKPT_OK && r.d->is_mesh)
        status = rule_all(&r);
    ckpt__hash_free(r.by_name);
    return status;
}
