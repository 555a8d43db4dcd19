/* run/retention.c - which checkpoints stay. No I/O and no memory, so a dry run is the plan itself. */
#include <ckpt/run.h>

/* Are fewer than `limit` complete ones newer? Entries of one step are equally new: none of them pushes another out. */
static bool is_among_newest(const ckpt_run_entry *entries, size_t n, int64_t step, int64_t limit)
{
    int64_t newer = 0;
    for (size_t i = 0; i < n && newer < limit; i++)
        newer += entries[i].complete && entries[i].step > step;
    return newer < limit;
}

void ckpt_retention_plan(const ckpt_retention *rule, const ckpt_run_entry *entries, size_t n, bool *remove)
{
    int64_t newest = INT64_MIN, verified = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        if (!entries[i].complete)
            continue;
        if (entries[i].step > newest)
            newest = entries[i].step;
        if (entries[i].verified && entries[i].step > verified)
            verified = entries[i].step;
    }
    for (size_t i = 0; i < n; i++) {
        const ckpt_run_entry *e = &entries[i];
        bool kept_every = rule && rule->keep_every > 0 && e->step % rule->keep_every == 0;
        remove[i] = rule && rule->keep_last > 0 && e->complete && e->step != newest && e->step != verified &&
                    !kept_every && !is_among_newest(entries, n, e->step, rule->keep_last);
    }
}
