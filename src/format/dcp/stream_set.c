/* format/dcp/stream_set.c - the classes of a list and their attributes, which stand at the head of list.c: what is wanted of each. */
#include "format/dcp/stream.h"
#include "format/torch/torch.h"

/* ---- names */

bool ckpt__dcp_class_of(ckpt_str module, ckpt_str name, ckpt__dcp_value *out)
{
    static const struct {
        const char *name;
        ckpt__dcp_class is;
    } known[] = {
        {"Metadata", CKPT__DC_METADATA},
        {"TensorStorageMetadata", CKPT__DC_TENSOR},
        {"BytesStorageMetadata", CKPT__DC_BYTES},
        {"ChunkStorageMetadata", CKPT__DC_CHUNK},
        {"TensorProperties", CKPT__DC_PROPERTIES},
        {"StorageMeta", CKPT__DC_STORAGE_META},
        {"MetadataIndex", CKPT__DC_INDEX},
        {"_StorageInfo", CKPT__DC_INFO},
        {"_MEM_FORMAT_ENCODING", CKPT__DC_FORMAT},
        {"MEM_FORMAT_ENCODING", CKPT__DC_FORMAT},
        {"Size", CKPT__DC_SIZE},
        {"_get_layout", CKPT__DC_LAYOUT},
        {"PosixPath", CKPT__DC_PATH},
        {"PurePosixPath", CKPT__DC_PATH},
        {"WindowsPath", CKPT__DC_PATH},
        {"PureWindowsPath", CKPT__DC_PATH},
    };
    const ckpt_str last = ckpt__dcp_last_name(name);
    *out = (ckpt__dcp_value){.kind = CKPT__D_CLASS};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ckpt__str_is(last, known[i].name)) {
            out->what = (uint8_t)known[i].is;
            return true;
        }
    ckpt__pickle_names own = {module, name};
    const ckpt__pickle_node node = {.kind = CKPT__P_GLOBAL, .u.global = &own};
    out->what = CKPT__DC_DTYPE;
    out->n = (uint32_t)ckpt__torch_dtype(&node);
    return out->n != CKPT_DTYPE_NONE;
}

ckpt__dcp_name ckpt__dcp_name_of(const char *text, size_t n)
{
    static const struct {
        const char *text;
        ckpt__dcp_name is;
    } known[] = {
        {"state_dict_metadata", CKPT__DN_STATE_DICT_METADATA},
        {"planner_data", CKPT__DN_PLANNER_DATA},
        {"storage_data", CKPT__DN_STORAGE_DATA},
        {"storage_meta", CKPT__DN_STORAGE_META},
        {"version", CKPT__DN_VERSION},
        {"properties", CKPT__DN_PROPERTIES},
        {"size", CKPT__DN_SIZE},
        {"chunks", CKPT__DN_CHUNKS},
        {"offsets", CKPT__DN_OFFSETS},
        {"sizes", CKPT__DN_SIZES},
        {"fqn", CKPT__DN_FQN},
        {"offset", CKPT__DN_OFFSET},
        {"relative_path", CKPT__DN_RELATIVE_PATH},
        {"length", CKPT__DN_LENGTH},
        {"transform_descriptors", CKPT__DN_TRANSFORM},
        {"dtype", CKPT__DN_DTYPE},
        {"layout", CKPT__DN_LAYOUT},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ckpt__str_is((ckpt_str){text, n}, known[i].text))
            return known[i].is;
    return CKPT__DN_OTHER;
}

/* ---- attributes: each function takes one. `has` gets a bit of it. */

static bool set(ckpt__dcp_made *o, unsigned bit, ckpt__dcp_value *to, const ckpt__dcp_value *value, bool fits)
{
    if (to)
        *to = *value;
    o->has |= (uint8_t)bit;
    return fits;
}

static bool is_number(const ckpt__dcp_value *v)
{
    return v->kind == CKPT__D_INT && v->u.number >= 0;
}

static bool set_of_chunk(ckpt__dcp_made *o, ckpt__dcp_name name, const ckpt__dcp_value *v)
{
    if (name == CKPT__DN_OFFSETS)
        return set(o, CKPT__DA_FIRST, &o->a, v, v->kind == CKPT__D_INTS);
    if (name == CKPT__DN_SIZES)
        return set(o, CKPT__DA_SECOND, &o->b, v, v->kind == CKPT__D_INTS);
    return true;
}

static bool set_of_index(ckpt__dcp_made *o, ckpt__dcp_name name, const ckpt__dcp_value *v)
{
    if (name == CKPT__DN_FQN)
        return set(o, CKPT__DA_FIRST, &o->a, v, v->kind == CKPT__D_TEXT);
    if (name == CKPT__DN_OFFSET)
        return set(o, CKPT__DA_SECOND, &o->b, v, v->kind == CKPT__D_INTS || v->kind == CKPT__D_NONE);
    return true;
}

static bool set_of_info(ckpt__dcp_made *o, ckpt__dcp_name name, const ckpt__dcp_value *v)
{
    switch (name) {
    case CKPT__DN_RELATIVE_PATH:
        return set(o, CKPT__DA_FIRST, &o->a, v, v->kind == CKPT__D_TEXT);
    case CKPT__DN_OFFSET:
        o->offset = (uint64_t)v->u.number;
        return set(o, CKPT__DA_SECOND, NULL, v, is_number(v));
    case CKPT__DN_LENGTH:
        o->length = (uint64_t)v->u.number;
        return set(o, CKPT__DA_THIRD, NULL, v, is_number(v));
    case CKPT__DN_TRANSFORM:
        o->zstd = v->kind == CKPT__D_LIST && v->what;
        return v->kind == CKPT__D_NONE || o->zstd || (v->kind == CKPT__D_LIST && v->n == 0);
    default:
        return true;
    }
}

static bool set_of_properties(ckpt__dcp_made *o, ckpt__dcp_name name, const ckpt__dcp_value *v)
{
    if (name == CKPT__DN_DTYPE) {
        o->dtype = (uint16_t)v->n;
        return set(o, CKPT__DA_FIRST, NULL, v, v->kind == CKPT__D_CLASS && v->what == CKPT__DC_DTYPE);
    }
    return name != CKPT__DN_LAYOUT || set(o, CKPT__DA_SECOND, NULL, v, v->kind == CKPT__D_STRIDED);
}

static bool set_of_tensor(ckpt__dcp_made *o, ckpt__dcp_name name, const ckpt__dcp_value *v)
{
    switch (name) {
    case CKPT__DN_PROPERTIES:
        if (v->kind != CKPT__D_OBJECT || v->u.object->class_of != CKPT__DC_PROPERTIES || !v->u.object->built ||
            v->u.object->has != (CKPT__DA_FIRST | CKPT__DA_SECOND))
            return false;
        o->dtype = v->u.object->dtype;
        return set(o, CKPT__DA_FIRST, NULL, v, true);
    case CKPT__DN_SIZE:
        return set(o, CKPT__DA_SECOND, &o->a, v, v->kind == CKPT__D_INTS);
    case CKPT__DN_CHUNKS:
        return set(o, CKPT__DA_THIRD, &o->b, v, v->kind == CKPT__D_LIST && !v->what);
    default:
        return true;
    }
}

/* A dict of that kind, which there is one of, or an empty one where none was met. */
static bool is_dict(const ckpt__dcp_machine *m, const ckpt__dcp_value *v, ckpt__dcp_dict what)
{
    return v->kind == CKPT__D_DICT && v->what == (m->seen[what] ? what : CKPT__DD_EMPTY);
}

static bool set_of_metadata(ckpt__dcp_machine *m, ckpt__dcp_made *o, ckpt__dcp_name name, const ckpt__dcp_value *v)
{
    switch (name) {
    case CKPT__DN_STATE_DICT_METADATA:
        return set(o, CKPT__DA_FIRST, NULL, v, is_dict(m, v, CKPT__DD_ITEMS));
    case CKPT__DN_STORAGE_DATA:
        return set(o, CKPT__DA_SECOND, NULL, v, is_dict(m, v, CKPT__DD_RECORDS));
    case CKPT__DN_PLANNER_DATA:
        return set(o, CKPT__DA_THIRD, NULL, v,
                   is_dict(m, v, CKPT__DD_PATHS) || (v->kind == CKPT__D_NONE && !m->seen[CKPT__DD_PATHS]));
    default: /* Megatron has more of them */
        return name == CKPT__DN_STORAGE_META || name == CKPT__DN_VERSION;
    }
}

static bool set_attribute(ckpt__dcp_machine *m, ckpt__dcp_made *o, ckpt__dcp_name name, const ckpt__dcp_value *v)
{
    switch (o->class_of) {
    case CKPT__DC_CHUNK:
        return set_of_chunk(o, name, v);
    case CKPT__DC_INDEX:
        return set_of_index(o, name, v);
    case CKPT__DC_INFO:
        return set_of_info(o, name, v);
    case CKPT__DC_PROPERTIES:
        return set_of_properties(o, name, v);
    case CKPT__DC_TENSOR:
        return set_of_tensor(o, name, v);
    case CKPT__DC_METADATA:
        return set_of_metadata(m, o, name, v);
    default:
        return true;
    }
}

bool ckpt__dcp_set(ckpt__dcp_machine *m, ckpt__dcp_made *o, const ckpt__dcp_value *key, const ckpt__dcp_value *value)
{
    if (key->kind != CKPT__D_TEXT)
        return false;
    ckpt__dcp_name name =
        key->what != CKPT__DN_UNASKED ? (ckpt__dcp_name)key->what : ckpt__dcp_name_of(key->u.text, key->n);
    return set_attribute(m, o, name, value);
}

bool ckpt__dcp_set_all(ckpt__dcp_machine *m, ckpt__dcp_made *o, const ckpt__dcp_value *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!ckpt__dcp_set(m, o, &pairs[2 * i], &pairs[2 * i + 1]))
            return false;
    if (o->class_of != CKPT__DC_METADATA)
        return true;
    m->complete = (o->has & (CKPT__DA_FIRST | CKPT__DA_SECOND)) == (CKPT__DA_FIRST | CKPT__DA_SECOND) &&
                  (o->has & CKPT__DA_THIRD || !m->seen[CKPT__DD_PATHS]);
    return m->complete;
}

bool ckpt__dcp_build(ckpt__dcp_made *o, const ckpt__dcp_value *state)
{
    const ckpt__dcp_value *items = state->u.items;
    bool fits = state->kind == CKPT__D_DICT && state->what == CKPT__DD_STATE;
    if (state->kind == CKPT__D_TUPLE && o->class_of == CKPT__DC_PROPERTIES && state->n >= 5)
        fits = set_of_properties(o, CKPT__DN_DTYPE, &items[0]) && set_of_properties(o, CKPT__DN_LAYOUT, &items[1]);
    fits = fits && !o->built;
    o->built = true;
    return fits;
}
