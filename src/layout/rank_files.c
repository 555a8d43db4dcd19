/* layout/rank_files.c - the names of files of ranks: made, and taken apart. */
#include "layout/rank_files.h"

#include "layout/parts.h"

const ckpt__files_of_ranks *ckpt__layout_files(const ckpt__layout *layout, unsigned side)
{
    return layout->ranks[side].files;
}

size_t ckpt__layout_axes(const ckpt__layout *layout, unsigned side, ckpt__rank_axis out[CKPT__MESH_AXES])
{
    const ckpt__layout_ranks *r = &layout->ranks[side];
    for (size_t a = 0; a < r->axis_count; a++)
        out[a] = (ckpt__rank_axis){r->axes[a].name, r->axes[a].size.count ? 0 : -1};
    return r->axis_count;
}

size_t ckpt__layout_shard_axes(const ckpt__layout *layout, unsigned side, size_t shard, size_t axes[CKPT__MESH_AXES],
                               uint32_t dims[CKPT__MESH_AXES])
{
    const ckpt__layout_shard *s = &layout->ranks[side].shards[shard];
    for (size_t i = 0; i < s->cut_count; i++) {
        axes[i] = s->cuts[i].axis;
        dims[i] = s->cuts[i].dim;
    }
    return s->cut_count;
}

/* One number, up to the next text. A number of a width has zeros in front up to it; else it has none. */
static bool take_number(const ckpt__file_part *part, ckpt_str *s, int64_t *numbers)
{
    int64_t *own = &numbers[part->axis], value;
    size_t n = 0;
    while (n < s->size && s->data[n] >= '0' && s->data[n] <= '9')
        n++;
    if (n < part->width || n > CKPT__FILE_WIDTH || (n > part->width && s->data[0] == '0') ||
        !ckpt__parse_i64(s->data, n, &value) || (*own >= 0 && *own != value))
        return false;
    *own = value;
    *s = (ckpt_str){s->data + n, s->size - n};
    return true;
}

/* The parts of one depth are a text behind another one's slash, and all up to the next slash. */
static bool find_depth(const ckpt__file_form *form, size_t depth, size_t *part, size_t *at)
{
    *part = *at = 0;
    for (; depth && *part < form->count; ++*part)
        for (*at = 0; depth && form->parts[*part].text.data && *at < form->parts[*part].text.size;)
            if (form->parts[*part].text.data[(*at)++] == '/' && --depth == 0)
                return true;
    return depth == 0;
}

bool ckpt__file_form_match(const ckpt__file_form *form, size_t depth, ckpt_str name, int64_t *numbers)
{
    size_t part, at;
    bool slash = false;
    if (!find_depth(form, depth, &part, &at))
        return false;
    for (; part < form->count && !slash; part++, at = 0) {
        const ckpt__file_part *p = &form->parts[part];
        if (!p->text.data) {
            if (!take_number(p, &name, numbers))
                return false;
            continue;
        }
        const char *from = p->text.data + at, *end = memchr(from, '/', p->text.size - at);
        const size_t n = end ? (size_t)(end - from) : p->text.size - at;
        if (n > name.size || memcmp(from, name.data, n) != 0)
            return false;
        name = (ckpt_str){name.data + n, name.size - n};
        slash = end != NULL;
    }
    return name.size == 0;
}

size_t ckpt__file_form_depth(const ckpt__file_form *form)
{
    size_t depth = 1;
    for (size_t i = 0; i < form->count; i++)
        for (size_t k = 0; form->parts[i].text.data && k < form->parts[i].text.size; k++)
            depth += form->parts[i].text.data[k] == '/';
    return depth;
}

void ckpt__file_form_fill(const ckpt__file_form *form, const ckpt__rank_mesh *mesh, const int64_t *coordinates,
                          ckpt__buf *out)
{
    for (size_t i = 0; i < form->count; i++) {
        const ckpt__file_part *p = &form->parts[i];
        if (p->text.data)
            ckpt__buf_add(out, p->text.data, p->text.size);
        else
            ckpt__buf_printf(out, "%0*lld", (int)p->width,
                             p->axis == CKPT__FILE_RANK ? (long long)ckpt__rank_mesh_rank(mesh, coordinates)
                                                        : (long long)coordinates[p->axis]);
    }
}

size_t ckpt__name_list_find(const ckpt__name_list *list, ckpt_str name)
{
    ckpt__captured with;
    size_t i = 0;
    while (i < list->count && !ckpt__name_form_match(&list->forms[i], name, &with))
        i++;
    return i;
}

bool ckpt__name_list_number(const ckpt__name_list *list, ckpt_str name, int64_t *number, size_t *at, size_t *digits)
{
    ckpt__captured with;
    for (size_t i = 0; i < list->count; i++) {
        const ckpt__name_form *form = &list->forms[i];
        if (!ckpt__name_form_match(form, name, &with))
            continue;
        for (size_t k = 0, capture = 0; k < form->count; k++) {
            if (form->parts[k].kind == CKPT__NUMBER) {
                *at = (size_t)(with.text[capture].data - name.data);
                *digits = with.text[capture].size;
                return ckpt__parse_i64(with.text[capture].data, *digits, number);
            }
            capture += form->parts[k].kind != CKPT__LITERAL;
        }
    }
    return false;
}

ckpt__name_list ckpt__name_list_one(const ckpt__name_list *list, size_t i)
{
    return (ckpt__name_list){list->forms + i, 1};
}
