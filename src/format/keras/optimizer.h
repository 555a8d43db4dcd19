/* format/keras/optimizer.h - how Keras' optimizers keep their variables: by number in Keras 3, by name in Keras 2. */
#ifndef CKPT_KERAS_OPTIMIZER_H
#define CKPT_KERAS_OPTIMIZER_H
#include "format/keras/keras.h"

/* The role of a variable that an optimizer of this class calls so: "momentum" is exp_avg to Adam, and momentum to SGD. The class is
 * in any case ("Adam", "adam_1"); data NULL: it is not known. The one iteration of all parameters is no step in torch's sense,
 * which a placement would keep on the CPU: it is optim. */
ckpt_role ckpt__keras_slot_role(ckpt_str optimizer, ckpt_str key);

/* Tensors of Keras 3 by number: optimizer/vars/0, 1, ...; `order` has their numbers in the index. The names that the slots of
 * each get are told by the class and its settings, where both are there and the shapes are what they ask for; else nothing is
 * given but what every optimizer has (iteration, learning_rate). `config` (may be NULL) is {"class_name", "config"}. `name` is the
 * optimizer's. Gives state keys and roles, and how many parameters it has: *slots[k] of parameter i is order[first + ...].
 */
typedef struct ckpt__keras_slots {
    size_t *first; /* heap: of each parameter, the number in the index of a tensor that has its shape */
    size_t count;  /* parameters; 0: not known */
    size_t *owner; /* heap: of each tensor of `order` the parameter that it belongs to; SIZE_MAX: none */
} ckpt__keras_slots;
ckpt_status ckpt__keras_find_slots(ckpt__index *index, const size_t *order, size_t count, const ckpt_value *config,
                                   ckpt_str name, ckpt__keras_slots *out, ckpt_error *err);
#endif
