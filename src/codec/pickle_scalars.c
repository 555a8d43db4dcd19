/* codec/pickle_scalars.c - the opcodes that push one value that holds no other: constants, numbers, strings and bytes. */
#include "codec/pickle_vm.h"

typedef ckpt__pickle_vm vm_t;
typedef ckpt__pickle_node node_t;

/* ---- constants and numbers */
ckpt_status ckpt__pickle_op_none(vm_t *vm)
{
    return ckpt__pickle_push(vm, vm->none);
}
ckpt_status ckpt__pickle_op_newtrue(vm_t *vm)
{
    return ckpt__pickle_push(vm, vm->yes);
}
ckpt_status ckpt__pickle_op_newfalse(vm_t *vm)
{
    return ckpt__pickle_push(vm, vm->no);
}
static ckpt_status push_unsigned(vm_t *vm, unsigned width)
{
    uint64_t value;
    ckpt_status status = ckpt__pickle_number(vm, width, &value);
    return status < 0 ? status : ckpt__pickle_push_int(vm, (int64_t)value);
}
ckpt_status ckpt__pickle_op_binint1(vm_t *vm)
{
    return push_unsigned(vm, 1);
}
ckpt_status ckpt__pickle_op_binint2(vm_t *vm)
{
    return push_unsigned(vm, 2);
}
ckpt_status ckpt__pickle_op_binint(vm_t *vm)
{
    uint64_t value;
    ckpt_status status = ckpt__pickle_number(vm, 4, &value);
    return status < 0 ? status : ckpt__pickle_push_int(vm, (int64_t)value - (value >> 31 ? INT64_C(1) << 32 : 0));
}
static ckpt_status long_of(vm_t *vm, uint64_t n)
{
    const unsigned char *bytes;
    ckpt_status status = ckpt__pickle_take(vm, n, &bytes);
    return status < 0 ? status : ckpt__pickle_push_long(vm, bytes, (size_t)n);
}
ckpt_status ckpt__pickle_op_long1(vm_t *vm)
{
    uint64_t n;
    ckpt_status status = ckpt__pickle_number(vm, 1, &n);
    return status < 0 ? status : long_of(vm, n);
}
ckpt_status ckpt__pickle_op_long4(vm_t *vm)
{
    uint64_t n;
    ckpt_status status = ckpt__pickle_number(vm, 4, &n);
    if (status < 0)
        return status;
    return n >> 31 ? ckpt__pickle_fail(vm, CKPT_E_FORMAT, "a negative length") : long_of(vm, n);
}
ckpt_status ckpt__pickle_op_binfloat(vm_t *vm)
{
    const unsigned char *p;
    ckpt_status status = ckpt__pickle_take(vm, 8, &p);
    if (status < 0)
        return status;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    node_t *n = ckpt__pickle_new(vm, CKPT__P_FLOAT);
    if (n)
        memcpy(&n->u.real, &bits, sizeof bits);
    return ckpt__pickle_push(vm, n);
}

/* ---- strings and bytes */
static ckpt_status text_of(vm_t *vm, unsigned width, ckpt__pickle_kind kind)
{
    uint64_t n;
    const unsigned char *p;
    ckpt_status status = ckpt__pickle_number(vm, width, &n);
    if (status == CKPT_OK)
        status = ckpt__pickle_take(vm, n, &p);
    if (status < 0)
        return status;
    if (kind == CKPT__P_STR && !ckpt__pickle_utf8((const char *)p, (size_t)n))
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "a str that is not UTF-8");
    return ckpt__pickle_push_text(vm, kind, p, (size_t)n);
}
ckpt_status ckpt__pickle_op_short_binunicode(vm_t *vm)
{
    return text_of(vm, 1, CKPT__P_STR);
}
ckpt_status ckpt__pickle_op_binunicode(vm_t *vm)
{
    return text_of(vm, 4, CKPT__P_STR);
}
ckpt_status ckpt__pickle_op_binunicode8(vm_t *vm)
{
    return text_of(vm, 8, CKPT__P_STR);
}
ckpt_status ckpt__pickle_op_short_binbytes(vm_t *vm)
{
    return text_of(vm, 1, CKPT__P_BYTES);
}
ckpt_status ckpt__pickle_op_binbytes(vm_t *vm)
{
    return text_of(vm, 4, CKPT__P_BYTES);
}
ckpt_status ckpt__pickle_op_binbytes8(vm_t *vm)
{
    return text_of(vm, 8, CKPT__P_BYTES);
}
ckpt_status ckpt__pickle_op_bytearray8(vm_t *vm)
{
    return text_of(vm, 8, CKPT__P_BYTEARRAY);
}
static ckpt_status string_of(vm_t *vm, unsigned width)
{
    uint64_t n;
    const unsigned char *p;
    ckpt_status status = ckpt__pickle_number(vm, width, &n);
    if (status == CKPT_OK && width == 4 && n >> 31)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "a negative length");
    if (status == CKPT_OK)
        status = ckpt__pickle_take(vm, n, &p);
    return status < 0 ? status : ckpt__pickle_push_string(vm, p, (size_t)n);
}
ckpt_status ckpt__pickle_op_short_binstring(vm_t *vm)
{
    return string_of(vm, 1);
}
ckpt_status ckpt__pickle_op_binstring(vm_t *vm)
{
    return string_of(vm, 4);
}
