/* format/native/json_values.h - a JSON file that lies beside the tensors (a trainer's state, a model's configuration) as values. */
#ifndef CKPT_JSON_VALUES_H
#define CKPT_JSON_VALUES_H
#include "codec/json.h"
#include "model/index.h"

/* Objects become dicts, arrays lists; integers that do not fit 64 bits keep their digits. Python's json writes NaN,
 * Infinity and -Infinity for floats that are none: these are read too. The arena bounds what is made. */
ckpt_status ckpt__json_values(const char *text, size_t size, const char *what, ckpt__arena *arena,
                              const ckpt_value **out, ckpt_error *err);
#endif
