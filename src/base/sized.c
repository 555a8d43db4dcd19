/* base/sized.c - structs of a caller that was built against an older or a newer header: how much of them there is. */
#include "base/base.h"

/* More than any struct will ever have: a struct_size beyond that was never set, and nothing is read by it. */
enum { STRUCT_MAX = 4096 };

/* The bytes that the caller's struct has. */
static ckpt_status size_of(const void *given, size_t first_size, const char *name, size_t *size, ckpt_error *err)
{
    uint32_t said;
    memcpy(&said, given, sizeof said);
    *size = said ? said : first_size;
    if (*size < first_size)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, name,
            "struct_size is %zu, and no release has a struct of less than %zu bytes; begin with its _INIT", *size,
            first_size);
    if (*size > STRUCT_MAX)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, name,
            "struct_size is %zu: it was never set (begin with its _INIT), or the program was built against a newer "
            "libckpt than this %s; run it with that one",
            *size, ckpt_version());
    return CKPT_OK;
}

ckpt_status ckpt__take_options(void *own, size_t own_size, size_t first_size, const void *given, const char *name,
                               ckpt_error *err)
{
    size_t size = 0;
    memset(own, 0, own_size);
    if (given) {
        ckpt_status status = size_of(given, first_size, name, &size, err);
        if (status < 0)
            return status;
        for (size_t i = own_size; i < size; i++)
            if (((const unsigned char *)given)[i])
                return ckpt__fail(
                    err, CKPT_E_ARGUMENT, name,
                    "the program was built against a newer libckpt than this %s (the struct has %zu bytes there and %zu "
                    "here), and sets a field that this one does not have; run it with that one, or leave the field 0",
                    ckpt_version(), size, own_size);
        memcpy(own, given, size < own_size ? size : own_size);
    }
    uint32_t whole = (uint32_t)own_size;
    memcpy(own, &whole, sizeof whole);
    return CKPT_OK;
}

ckpt_status ckpt__check_answer(const void *given, size_t first_size, const char *name, ckpt_error *err)
{
    size_t size;
    return given ? size_of(given, first_size, name, &size, err) : CKPT_OK;
}

void ckpt__give_answer(void *given, const void *own, size_t own_size, size_t first_size)
{
    size_t size, both;
    if (!given || size_of(given, first_size, NULL, &size, NULL) < 0)
        return;
    both = size < own_size ? size : own_size;
    memcpy((char *)given + sizeof(uint32_t), (const char *)own + sizeof(uint32_t), both - sizeof(uint32_t));
    memset((char *)given + both, 0, size - both);
}

void ckpt__take_answer(void *own, size_t own_size, size_t first_size, const void *given)
{
    size_t size;
    memset(own, 0, own_size);
    if (given && size_of(given, first_size, NULL, &size, NULL) == CKPT_OK)
        memcpy(own, given, size < own_size ? size : own_size);
}
