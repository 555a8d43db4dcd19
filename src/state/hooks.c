/* state/hooks.c - values that the trainer writes and takes itself: binding them, and calling their hooks. */
#include "state/state.h"

#include <stdlib.h>
#include "base/first_sizes.h"
#include "io/store.h"

ckpt_status ckpt_state_value(ckpt_state *s, const char *name, const ckpt_value_hooks *hooks, ckpt_error *err)
{
    ckpt__valued v = {.last = 0};
    if (!s || !name || !hooks)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name ? name : "ckpt_state_value",
                          "a NULL state, name or struct of hooks");
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_value_hooks, &v.hooks, hooks, err);
    if (status < 0)
        return status;
    if (!v.hooks.measure || !v.hooks.write || !v.hooks.take)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name,
                          "the hooks measure, write and take are needed, and one of them is NULL");
    status = ckpt__state_check_name(ckpt__s(name), name, err);
    if (status < 0)
        return status;
    v.name = ckpt__arena_str(s->memory, name, strlen(name));
    if (!v.name.data || !ckpt__grow(&s->values, &s->value_capacity, s->value_count + 1, sizeof *s->values))
        return ckpt__fail_memory(err, name, 0);
    int put = ckpt__hash_put(s->names, v.name.data, v.name.size, CKPT__VALUE_BASE + s->value_count, NULL);
    if (put <= 0)
        return put < 0 ? ckpt__fail_memory(err, name, 0)
                       : ckpt__fail(err, CKPT_E_ARGUMENT, name, "this name is bound already");
    s->values[s->value_count++] = v;
    return CKPT_OK;
}

ckpt_status ckpt__hook_answer(const ckpt__valued *v, const char *hook, ckpt_status status, ckpt_error *own,
                              ckpt_error *err)
{
    if (status == CKPT_OK)
        return CKPT_OK;
    own->object[sizeof own->object - 1] = own->message[sizeof own->message - 1] = '\0';
    bool known = status < 0 && strcmp(ckpt_status_name(status), "unknown") != 0;
    bool named = own->object[0] && strcmp(own->object, v->name.data) != 0;
    if (!known)
        ckpt__fail(err, CKPT_E_ARGUMENT, v->name.data,
                   "its hook '%s' answered %d, which is neither CKPT_OK nor the status of an error%s%s", hook,
                   (int)status, own->message[0] ? ": " : "", own->message);
    else if (!own->message[0])
        ckpt__fail(err, status, v->name.data, "its hook '%s' failed (%s) and did not say why", hook,
                   ckpt_status_name(status));
    else
        ckpt__fail(err, status, v->name.data, "its hook '%s': %s%s%s", hook, named ? own->object : "",
                   named ? ": " : "", own->message);
    if (err) {
        err->sys_errno = own->sys_errno;
        err->device_code = own->device_code;
    }
    return known ? status : CKPT_E_ARGUMENT;
}

ckpt_status ckpt__hook_room(const ckpt__valued *v, uint64_t size, char **data, ckpt_error *err)
{
    enum { LITTLE = 64 << 20 }; /* what needs no look at the machine */
    *data = NULL;
    if (size > SIZE_MAX / 2 || (size > LITTLE && size > ckpt__memory_available()) ||
        !(*data = malloc(size ? (size_t)size : 1)))
        return ckpt__fail_memory(err, v->name.data, size);
    return CKPT_OK;
}

ckpt_status ckpt__hook_write(ckpt__valued *v, char **data, uint64_t *size, ckpt_error *err)
{
    ckpt_error own = CKPT_ERROR_INIT;
    *size = 0;
    *data = NULL;
    ckpt_status status = ckpt__hook_answer(v, "measure", v->hooks.measure(v->hooks.ctx, size, &own), &own, err);
    if (status == CKPT_OK)
        status = ckpt__hook_room(v, *size, data, err);
    if (status == CKPT_OK)
        status = ckpt__hook_answer(v, "write", v->hooks.write(v->hooks.ctx, *data, (size_t)*size, &own), &own, err);
    if (status == CKPT_OK) {
        v->last = *size;
        return CKPT_OK;
    }
    free(*data);
    *data = NULL;
    return status;
}
