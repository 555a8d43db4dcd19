/* migrate/to_trainer_shards.c - what the HF Trainer and accelerate resume from in any number of ranks
 * (accelerate/utils/fsdp_utils.py, accelerate/accelerator.py, transformers/integrations/deepspeed.py):
 *
 *     with FSDP2                  pytorch_model_fsdp_0/   a distributed checkpoint of {'model': ...}
 *                                 optimizer_0/            and one of {'optimizer': ...}, by the names of its parameters
 *     with DeepSpeed, universal   latest_universal, global_step<N>_universal/    the Trainer, which asks for a name like it
 *                                 pytorch_model/                                 accelerate, which asks for that name
 *
 * Beside them stand the files of one process, but for the weights and the optimizer; each rank has random states of its own. */
#include "migrate/trainer.h"

typedef ckpt__trainer trainer;

static ckpt_status write_folder(trainer *t, const char *folder, const char *key, const ckpt_value *value)
{
    ckpt__made_dict d = {.arena = t->arena};
    ckpt__made_put_as(&d, key, value);
    const ckpt_value *root = ckpt__made_finish(&d);
    ckpt_status status = ckpt__trainer_placed(t, folder, root);
    return status == CKPT_OK ? ckpt__dcp_folder(t->w, folder, root) : status;
}

/* m->root has its optimizer by names already (ckpt__migrate_dcp_root). */
ckpt_status ckpt__trainer_fsdp(trainer *t)
{
    const ckpt_value *model = t->parts.model, *optimizer = t->parts.optimizer;
    if (!t->parts.groups || !ckpt__at(optimizer, "state"))
        return ckpt__trainer_refuse(t);
    if (!model || model->entry_count == 0)
        return ckpt__trainer_no_model(t);
    ckpt_status status = write_folder(t, "pytorch_model_fsdp_0", "model", model);
    return status == CKPT_OK ? write_folder(t, "optimizer_0", "optimizer", optimizer) : status;
}

ckpt_status ckpt__trainer_deepspeed(trainer *t)
{
    const ckpt_str tag = t->accelerate ? ckpt__s("pytorch_model") : (ckpt_str){NULL, 0};
    return ckpt__universal_in(t->w, tag, t->used);
}
