/* inspect/pieces.c - one line a piece, below the line of a tensor that is split. */
#include "cli/inspect/pieces.h"
#include <inttypes.h>
#include "cli/out/rows.h"

/* What a line is made of. RANK is always NULL: no format that is read says yet which rank wrote a piece. */
enum { PIECE, RANK };

static const ckpt_piece_info *piece_of(const row_parts *r)
{
    return r->part[PIECE];
}

static void json_numbers(json_out *j, const char *key, const int64_t *numbers, uint32_t n)
{
    if (numbers)
        json_sizes(j, key, numbers, n);
    else
        json_null(j, key);
}

static void json_lo(json_out *j, const char *key, const row_parts *r)
{
    json_numbers(j, key, piece_of(r)->lo, piece_of(r)->ndim);
}

static void json_shape(json_out *j, const char *key, const row_parts *r)
{
    json_numbers(j, key, piece_of(r)->size, piece_of(r)->ndim);
}

/* Those of C order, too, which the struct leaves out. */
static void json_strides(json_out *j, const char *key, const row_parts *r)
{
    const ckpt_piece_info *p = piece_of(r);
    if (p->flat || p->strides) {
        json_numbers(j, key, p->strides, p->ndim);
        return;
    }
    json_array(j, key);
    for (uint32_t i = 0; i < p->ndim; i++) {
        int64_t stride = 1;
        for (uint32_t k = i + 1; k < p->ndim; k++)
            stride *= p->size[k] > 1 ? p->size[k] : 1;
        json_int(j, NULL, stride);
    }
    json_end_array(j);
}

static bool is_flat(const row_parts *r)
{
    return piece_of(r)->flat;
}

static bool has_crc(const row_parts *r)
{
    return piece_of(r)->has_crc;
}

/* "[0:4, 0:4]", as Python cuts it out of the tensor; "elements 30:60" of the flattened one. */
static ckpt_str text_box(char buf[ROW_CELL], const row_parts *r)
{
    const ckpt_piece_info *p = piece_of(r);
    const char *replica = p->replica ? " (replica)" : "";
    size_t used = 0;
    if (p->flat)
        return rows_print(buf, "elements %" PRIu64 ":%" PRIu64 "%s", p->flat_begin, p->flat_begin + p->flat_count,
                          replica);
    for (uint32_t i = 0; i < p->ndim && used + 80 < ROW_CELL; i++)
        used += (size_t)snprintf(buf + used, ROW_CELL - used, "%s%" PRId64 ":%" PRId64, i ? ", " : "[", p->lo[i],
                                 p->lo[i] + p->size[i]);
    used += (size_t)snprintf(buf + used, ROW_CELL - used, "%s]%s", p->ndim ? "" : "[", replica);
    return (ckpt_str){buf, used};
}

/* clang-format off */
#define P(member) .part = PIECE, .at = offsetof(ckpt_piece_info, member)
static const row_field fields[] = {
    {NULL, "", ROW_NONE, .width = 2}, /* they stand below the tensor, and to the right of it */
    {"rank", NULL, ROW_INT, .part = RANK},
    {"file", "file", ROW_STR, P(file), .most = 48, .column = 2},
    {"device", "device", ROW_STR, P(device), .column = 4},
    {"lo", "box", ROW_NONE, .json = json_lo, .text = text_box, .most = 48, .column = 1},
    {"shape", .json = json_shape},
    {"flat_begin", NULL, ROW_UINT, P(flat_begin), .known = is_flat},
    {"flat_count", NULL, ROW_UINT, P(flat_count), .known = is_flat},
    {"strides", .json = json_strides},
    {"nbytes", "size", ROW_SIZE, P(nbytes), .right = true, .width = 10, .column = 3},
    {"storage", NULL, ROW_NUMBER, P(storage)},
    {"storage_nbytes", NULL, ROW_UINT, P(storage_nbytes)},
    {"offset", NULL, ROW_UINT, P(offset)},
    {"file_offset", NULL, ROW_NUMBER, P(file_offset)},
    {"crc32", NULL, ROW_CRC, P(crc32), .known = has_crc},
    {"replica", NULL, ROW_BOOL, P(replica), .omit = true},
    {.key = NULL},
};
/* clang-format on */

int pieces_ready(const cli *c, const ckpt_reader *reader)
{
    ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    size_t i = 0, n = ckpt_reader_tensor_count(reader);
    while (i < n && ckpt_reader_piece_count(reader, i) == 0)
        i++;
    return i == n || ckpt_reader_piece(reader, i, 0, &p, &err) == CKPT_OK ? -1 : cli_fail_error(c, &err);
}

void pieces_json(json_out *j, const char *key, const piece_row *row)
{
    size_t n = ckpt_reader_piece_count(row->reader, row->tensor);
    json_array(j, key);
    for (size_t i = 0; i < n; i++) {
        ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
        const row_parts r = {{[PIECE] = &p}};
        if (ckpt_reader_piece(row->reader, row->tensor, i, &p, NULL) == CKPT_OK)
            rows_json(j, fields, 0, &r);
    }
    json_end_array(j);
}

void pieces_text(const piece_row *row)
{
    row_text out;
    size_t n = ckpt_reader_piece_count(row->reader, row->tensor);
    rows_begin(&out, fields, 0, 2);
    for (int print = 0; print < 2; print++) /* the widths first */
        for (size_t i = 0; i < n; i++) {
            ckpt_piece_info p = CKPT_PIECE_INFO_INIT;
            const row_parts r = {{[PIECE] = &p}};
            if (ckpt_reader_piece(row->reader, row->tensor, i, &p, NULL) < 0)
                continue;
            if (!print) {
                rows_measure(&out, &r);
                continue;
            }
            rows_line(&out, &r);
            rows_end_line(&out);
        }
    rows_flush(&out);
}
