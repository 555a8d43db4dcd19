/* migrate/order.h - the slots of a torch optimizer's dict: its parameters, counted over all groups. */
#ifndef CKPT_MIGRATE_ORDER_H
#define CKPT_MIGRATE_ORDER_H
#include "migrate/migration.h"

size_t ckpt__optimizer_slots(const ckpt_value *optimizer);
/* Makes old slot slots[i] the new number i, in another tree: ids that are numbers are dense again, states, params and
 * param_names go along, in the order of the ids. groups[]: which of the old groups follow each other; the slots of each
 * stand together in `slots`. Slots that are not named, and groups, go. */
ckpt_status ckpt__optimizer_turn(ckpt__migration *m, const ckpt_value *optimizer, const size_t *slots, size_t count,
                                 const size_t *groups, size_t group_count, ckpt_error *err);
/* A state and the id that its parameter gets. */
typedef struct ckpt__numbered_state {
    size_t id;
    ckpt_entry entry;
} ckpt__numbered_state;
/* Sorts them by their ids, into `entries`. */
void ckpt__states_sort(ckpt__numbered_state *states, size_t count, ckpt_entry *entries);
/* Notes the group with the flags of m->kind (ckpt__migration_apply makes the tree). */
ckpt_status ckpt__group_set_flags(ckpt__migration *m, const ckpt_value *group, ckpt_error *err);
#endif
