/* format/folder/keys.c - the key of a file where a directory of several becomes one dict. */
#include "format/folder/folder.h"

#include <stdio.h>

/* What the files of accelerate's save_state and of the HF Trainer are. A '*' is a number. */
static const struct {
    const char *file, *key;
} known[] = {
    {"optimizer.bin", "optimizer"},
    {"optimizer.pt", "optimizer"},
    {"scheduler.bin", "scheduler"},
    {"scheduler.pt", "scheduler"},
    {"scaler.pt", "scaler"},
    {"sampler.bin", "sampler"},
    {"trainer_state.json", "trainer_state"},
    {"training_args.bin", "training_args"},
    {"config.json", "config"},
    {"adapter_config.json", "adapter_config"},
    {"rng_state.pth", "rng"},
    {"generation_config.json", "generation_config"},
    {"optimizer_*.bin", "optimizer_*"},
    {"scheduler_*.bin", "scheduler_*"},
    {"sampler_*.bin", "sampler_*"},
    {"rng_state_*.pth", "rng_*"},
    {"random_states_0.pkl", "rng"},
    {"random_states_*.pkl", "rng_*"},
    {"custom_checkpoint_*.pkl", "custom_*"},
};

static bool match_key(const char *pattern, const char *key, ckpt_str file, char *out, size_t size)
{
    const char *star = strchr(pattern, '*');
    size_t head = star ? (size_t)(star - pattern) : strlen(pattern), tail = star ? strlen(star + 1) : 0;
    if (file.size < head + tail || memcmp(file.data, pattern, head) != 0)
        return false;
    if (!star) {
        snprintf(out, size, "%s", key);
        return file.size == head;
    }
    size_t n = file.size - head - tail;
    if (memcmp(file.data + head + n, star + 1, tail) != 0 || n == 0 || n > 10)
        return false;
    for (size_t i = 0; i < n; i++)
        if (file.data[head + i] < '0' || file.data[head + i] > '9')
            return false;
    snprintf(out, size, "%.*s%.*s", (int)strcspn(key, "*"), key, (int)n, file.data + head);
    return true;
}

void ckpt__folder_key(ckpt_str file, char *out, size_t size)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (match_key(known[i].file, known[i].key, file, out, size))
            return;
    const char *dot = memchr(file.data, '.', file.size);
    snprintf(out, size, "%.*s", (int)(dot ? (size_t)(dot - file.data) : file.size), file.data);
}
