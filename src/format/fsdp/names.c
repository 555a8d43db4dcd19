/* format/fsdp/names.c - what the file of a rank is, by its name. */
#include "format/fsdp/fsdp.h"

/* '#' is a number, '%' the rank, '&' how many ranks there are. */
static const struct {
    const char *pattern;
    ckpt__fsdp_kind kind;
} patterns[] = {
    {"pytorch_model_fsdp_#_rank%.bin", CKPT__FSDP_MODEL},     {"pytorch_model_fsdp_rank%.bin", CKPT__FSDP_MODEL},
    {"optimizer_#_rank%.bin", CKPT__FSDP_OPTIMIZER},          {"optimizer_rank%.bin", CKPT__FSDP_OPTIMIZER},
    {"model_world_size_&_rank_%.pt", CKPT__FSDP_MODEL},       {"optim_world_size_&_rank_%.pt", CKPT__FSDP_OPTIMIZER},
    {"extra_state_world_size_&_rank_%.pt", CKPT__FSDP_EXTRA},
};

static bool fits(const char *pattern, const char *name, ckpt__fsdp_name *out)
{
    for (; *pattern; pattern++) {
        int64_t *number = *pattern == '#'   ? &out->number
                          : *pattern == '%' ? &out->rank
                          : *pattern == '&' ? &out->world
                                            : NULL;
        size_t n = number ? strspn(name, "0123456789") : 1;
        if (number ? n == 0 || n > 9 || !ckpt__parse_i64(name, n, number) : *name != *pattern)
            return false;
        name += n;
    }
    return !*name;
}

bool ckpt__fsdp_name_of(const char *name, ckpt__fsdp_name *out)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        *out = (ckpt__fsdp_name){.kind = patterns[i].kind};
        if (fits(patterns[i].pattern, name, out))
            return true;
    }
    return false;
}
