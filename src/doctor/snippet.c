/* doctor/snippet.c - a resume that is right for one checkpoint, as source to paste: Python for torch and the
 * frameworks; C is snippet_c.c. Everything in it was seen in the checkpoint: paths, groups, flags, what must
 * be pinned. */
#include "doctor/text.h"

#include <stdlib.h>
#include "anatomy/producer.h"

enum { NAMES = 2000 }; /* parameters that are named one by one; a model of more is handed over in its own order */

static void put(ckpt__buf *b, const char *text)
{
    ckpt__buf_str(b, text);
}

/* ---- what the saved groups are of */

static bool any_group(const ckpt__patient *p, const char *key)
{
    for (size_t i = 0; i < p->group_count; i++) {
        bool tensor;
        if (ckpt__doctor_hyper(p, &p->groups[i], key, &tensor) || tensor)
            return true;
    }
    return false;
}

static bool any_flag(const ckpt__patient *p, bool fused)
{
    for (size_t i = 0; i < p->group_count; i++)
        if ((fused ? p->groups[i].fused : p->groups[i].capturable) == 1)
            return true;
    return false;
}

/* torch's class by the hyper-parameters of its groups; NULL: none that is known. */
static const char *class_of(const ckpt__patient *p)
{
    static const struct {
        const char *key, *name;
    } rows[] = {{"momentum_decay", "NAdam"}, {"nesterov", "SGD"}, {"lr_decay", "Adagrad"}, {"centered", "RMSprop"},
                {"rho", "Adadelta"},         {"lambd", "ASGD"},   {"etas", "Rprop"}};
    for (size_t i = 0; i < p->item_count; i++)
        if (ckpt__str_is(p->items[i].key, "qmap1") || ckpt__str_is(p->items[i].key, "state1"))
            return NULL; /* bitsandbytes */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (any_group(p, rows[i].key))
            return rows[i].name;
    if (!any_group(p, "betas"))
        return NULL;
    if (!any_group(p, "amsgrad"))
        return any_group(p, "decoupled_weight_decay") ? "RAdam" : "Adamax";
    const ckpt_value *decoupled = ckpt__doctor_hyper(p, &p->groups[0], "decoupled_weight_decay", NULL);
    return decoupled && decoupled->kind == CKPT_V_BOOL && !decoupled->boolean ? "Adam" : "AdamW";
}

static ckpt_str name_of(const ckpt__patient *p, const ckpt__doctor_slot *slot)
{
    size_t e = slot->param != SIZE_MAX ? p->entry_of[slot->param] : SIZE_MAX;
    return e != SIZE_MAX ? p->canon->entries[e].name : (ckpt_str){NULL, 0};
}

static bool names_known(const ckpt__patient *p)
{
    bool known = p->optimizer_count == 1 && p->slot_count > 0 && p->slot_count <= NAMES &&
                 !(p->canon && p->canon->order.ambiguous);
    for (size_t i = 0; i < p->slot_count && known; i++)
        known = name_of(p, &p->slots[i]).data != NULL;
    return known;
}

/* Of wrappers; "module." only in front, the others anywhere. */
static const char *const prefixes[] = {"module.", "_orig_mod.", "_fsdp_wrapped_module.", "_forward_module."};
static const char bare[] = "def bare(name):\n"
                           "    \"\"\"A parameter's name without the prefixes of wrappers.\"\"\"\n"
                           "    prefixes = ('module.', '_orig_mod.', '_fsdp_wrapped_module.', '_forward_module.')\n"
                           "    while name.startswith(prefixes):\n"
                           "        name = name.split('.', 1)[1]\n"
                           "    for prefix in prefixes[1:]:\n"
                           "        name = name.replace('.' + prefix, '.')\n"
                           "    return name\n\n\n";

static void put_name(ckpt__buf *b, ckpt_str name)
{
    ckpt__buf out = {NULL, 0, 0, false};
    for (size_t i = 0; i < name.size;) {
        size_t skip = 0;
        for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes && skip == 0; k++) {
            size_t n = strlen(prefixes[k]);
            bool here = out.size == 0 || (k > 0 && out.data[out.size - 1] == '.');
            if (here && name.size - i > n && memcmp(name.data + i, prefixes[k], n) == 0)
                skip = n;
        }
        if (skip == 0)
            ckpt__buf_char(&out, name.data[i]);
        i += skip ? skip : 1;
        if (out.failed)
            break;
    }
    ckpt_value text = {.kind = CKPT_V_STR, .text = {out.data ? out.data : "", out.size}};
    ckpt__value_repr(b, &text);
    b->failed = b->failed || out.failed;
    ckpt__buf_free(&out);
}

/* Weights alone, by another function than torch.load. */
static bool is_flat(const ckpt__patient *p)
{
    return strcmp(p->index->format, "safetensors") == 0;
}

static bool has_prefix(const ckpt__patient *p)
{
    for (size_t i = 0; is_flat(p) && i < p->index->tensor_count; i++) /* their names are the parameters' own */
        for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
            ckpt_str name = p->index->tensors[i].info.name;
            size_t n = strlen(prefixes[k]);
            if (name.size > n && memcmp(name.data, prefixes[k], n) == 0)
                return true;
        }
    for (size_t i = 0; i < ckpt__rows_load_count; i++)
        if (ckpt__rows_load[i].fact == CKPT__PREFIX && p->found[ckpt__rows_place_count + i].count > 0)
            return true;
    return false;
}

static void put_groups(ckpt__buf *b, const ckpt__patient *p)
{
    put(b, "# The optimizer's groups, in its order: load_state_dict matches by position, never by name.\nGROUPS = [\n");
    for (size_t g = 0; g < p->group_count; g++) {
        size_t column = 200;
        put(b, "    [");
        for (size_t i = 0; i < p->groups[g].count; i++) {
            ckpt_str name = name_of(p, &p->slots[p->groups[g].first + i]);
            if (i > 0)
                put(b, ",");
            if (i > 0 && column + name.size > 110)
                put(b, "\n     "), column = 5;
            else if (i > 0)
                put(b, " ");
            column = i == 0 ? 5 + name.size : column + name.size + 4;
            put_name(b, name);
        }
        put(b, "],\n");
    }
    put(b, "]\n\n\n");
}

/* ---- Python */

static const char place_steps[] =
    "def place_steps(optimizer):\n"
    "    \"\"\"step where the optimizer's flags read it: beside its parameter as float32, or on the cpu.\"\"\"\n"
    "    for group in optimizer.param_groups:\n"
    "        on_device = bool(group.get('fused') or group.get('capturable'))\n"
    "        for p in group['params']:\n"
    "            state = optimizer.state.get(p, {})\n"
    "            if torch.is_tensor(state.get('step')):\n"
    "                state['step'] = state['step'].to(p.device, torch.float32) if on_device else "
    "state['step'].cpu()\n\n\n"
    "def check_placement(optimizer):\n"
    "    for group in optimizer.param_groups:\n"
    "        on_device = bool(group.get('fused') or group.get('capturable'))\n"
    "        for p in group['params']:\n"
    "            for key, value in optimizer.state.get(p, {}).items():\n"
    "                if torch.is_tensor(value):\n"
    "                    want = p.device if key != 'step' or on_device else torch.device('cpu')\n"
    "                    assert value.device == want, f'{key} is on {value.device}, and belongs on {want}'\n"
    "                    assert key not in ('exp_avg', 'exp_avg_sq', 'momentum_buffer') or value.shape == p.shape, "
    "(key, value.shape)\n\n\n";

static void put_head(ckpt__buf *b, const ckpt__patient *p, const char *modules)
{
    ckpt__buf path = {NULL, 0, 0, false};
    ckpt__put_python(&path, p->path);
    ckpt__buf_printf(b, "# Resumes from %s with %s, torch %d.%d.\n", path.data ? path.data : "", p->loader->name,
                     p->result->torch_major, p->result->torch_minor);
    ckpt__buf_free(&path);
    put(b, modules);
    put(b, "\nPATH = ");
    ckpt__put_python(b, p->path);
    put(b, "\n");
}

static bool refuses(const ckpt__patient *p)
{
    return p->refusal_count > 0;
}

static void put_trust(ckpt__buf *b, const ckpt__patient *p)
{
    char name[200];
    for (size_t i = 0; i < p->refusal_count && i < 8; i++)
        ckpt__buf_printf(
            b, "%s%s", i ? ", " : "",
            ckpt__escape(name, sizeof name, p->refusals[i].class_name.data, p->refusals[i].class_name.size));
    if (p->refusal_count > 8)
        put(b, ", ...");
}

static void put_optimizer_default(ckpt__buf *b, const ckpt__patient *p, const char *class_name, bool named)
{
    char lr[CKPT__DOUBLE_MAX] = "1e-3";
    const ckpt_value *v = p->group_count ? ckpt__doctor_hyper(p, &p->groups[0], "lr", NULL) : NULL;
    if (v && v->kind == CKPT_V_FLOAT)
        ckpt__format_double(lr, v->real);
    put(b, "def make_optimizer(model):\n"
           "    \"\"\"The class as the saved groups tell it; its settings come with the checkpoint.\"\"\"\n");
    if (named)
        put(b, "    by_name = dict(model.named_parameters(remove_duplicate=False))\n"
               "    groups = [{'params': [by_name[name] for name in names]} for names in GROUPS]\n");
    else
        put(b, "    groups = [{'params': list(model.parameters())}]\n");
    bool kernels = strcmp(class_name, "AdamW") == 0 || strcmp(class_name, "Adam") == 0 ||
                   strcmp(class_name, "SGD") == 0 || strcmp(class_name, "Adagrad") == 0;
    ckpt__buf_printf(b, "    return torch.optim.%s(groups, lr=%s%s)\n\n\n", class_name, lr,
                     kernels && any_flag(p, true) ? ", fused=True"
                     : any_flag(p, false)         ? ", capturable=True"
                                                  : "");
}

static const char *path_in(const char *path)
{
    return strcmp(path, " ") == 0 ? "" : path;
}

/* load, model on its device, optimizer */
static void put_torch_front(ckpt__buf *b, const ckpt__patient *p, const char *class_name)
{
    ckpt__buf_printf(
        b,
        "def resume(model, make_optimizer=%s, make_scheduler=None, scaler=None, device=None):\n"
        "    \"\"\"model: constructed; make_optimizer(model), make_scheduler(optimizer): construct the others.\"\"\"\n"
        "    device = torch.device(device or ('cuda:0' if torch.cuda.is_available() else 'cpu'))\n"
        "    # To the cpu: one copy on the device, random states stay where they must be.\n",
        class_name ? "make_optimizer" : "None");
    if (is_flat(p)) {
        put(b, "    checkpoint = weights = safetensors.torch.load_file(PATH)\n");
        if (has_prefix(p))
            put(b, "    weights = {bare(name): value for name, value in weights.items()}\n");
        put(b, "    missing, unexpected = model.load_state_dict(weights, strict=False)\n"
               "    assert not unexpected, unexpected   # missing: tied weights, which are stored once\n"
               "    assert set(missing) < set(model.state_dict()), 'it has none of the model: the names differ'\n"
               "    model.to(device)              # before the optimizer is constructed\n");
        return;
    }
    if (refuses(p)) {
        put(b, "    # weights_only=False runs what the file says (it holds ");
        put_trust(b, p);
        put(b, "): only for a file that you trust.\n");
    }
    ckpt__buf_printf(b, "    checkpoint = torch.load(PATH, map_location='cpu'%s)\n",
                     refuses(p)          ? ", weights_only=False"
                     : p->version >= 113 ? ", weights_only=True"
                                         : "");
    if (*p->paths.model || *p->flat_model) {
        ckpt__buf_printf(b, "    weights = %s%s\n", *p->flat_model ? p->flat_model : "checkpoint",
                         *p->flat_model ? "" : path_in(p->paths.model));
        if (has_prefix(p))
            put(b, "    weights = {bare(name): value for name, value in weights.items()}\n");
        put(b, "    model.load_state_dict(weights)\n");
    }
    put(b, "    model.to(device)              # before the optimizer is constructed: it keeps the parameters that it "
           "is given\n");
}

static void put_torch_optimizer(ckpt__buf *b, const ckpt__patient *p)
{
    put(b, "    optimizer = make_optimizer(model)\n"
           "    sizes = [len(group['params']) for group in optimizer.param_groups]\n    assert sizes == [");
    for (size_t g = 0, n = 0; g < p->group_count; g++)
        if (p->groups[g].optimizer == 0)
            ckpt__buf_printf(b, "%s%zu", n++ ? ", " : "", p->groups[g].count);
    put(b, "], f'the groups have other sizes: {sizes}'\n"
           "    # The scheduler before the state: its constructor sets lr and initial_lr, and the load puts the saved "
           "ones over them.\n"
           "    scheduler = make_scheduler(optimizer) if make_scheduler else None\n");
    if (*p->flat)
        ckpt__buf_printf(b, "    # A key for each value: by the parameters' names, not by position.\n"
                            "    from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict\n"
                            "    set_optimizer_state_dict(model, optimizer, %s)\n", p->flat);
    else
        ckpt__buf_printf(b, "    optimizer.load_state_dict(checkpoint%s)\n", path_in(p->paths.optimizer));
    if (any_flag(p, false) && !any_flag(p, true))
        put(b, "    if device.type == 'cpu':      # capturable is for GPUs\n"
               "        for group in optimizer.param_groups:\n            group['capturable'] = False\n");
    put(b, "    place_steps(optimizer)\n");
    if (*p->paths.scheduler)
        ckpt__buf_printf(b, "    if scheduler:\n        scheduler.load_state_dict(checkpoint%s)\n",
                         path_in(p->paths.scheduler));
}

static void put_torch_back(ckpt__buf *b, const ckpt__patient *p)
{
    if (*p->paths.scaler)
        ckpt__buf_printf(b, "    if scaler:\n        scaler.load_state_dict(checkpoint%s)\n", path_in(p->paths.scaler));
    else if (p->has_scaler)
        put(b, "    # The scaler was saved disabled ({}): an enabled one refuses that; nothing is loaded.\n");
    if (*p->paths.rng)
        ckpt__buf_printf(b, "    torch.set_rng_state(checkpoint%s.cpu())\n", path_in(p->paths.rng));
    if (*p->paths.cuda_rng)
        ckpt__buf_printf(b,
                         "    if torch.cuda.is_available():\n"
                         "        states = [state.cpu() for state in checkpoint%s]\n"
                         "        torch.cuda.set_rng_state_all(states[:torch.cuda.device_count()])\n",
                         path_in(p->paths.cuda_rng));
    if (p->optimizer_count > 0)
        put(b, "    check_placement(optimizer)\n    return checkpoint, optimizer, scheduler\n");
    else
        put(b, "    return checkpoint, make_optimizer(model) if make_optimizer else None, None\n");
}

static void put_torch(ckpt__buf *b, const ckpt__patient *p)
{
    const char *class_name = p->optimizer_count > 0 ? class_of(p) : NULL;
    bool named = class_name && names_known(p);
    if (class_name && !named && p->group_count > 1)
        class_name = NULL; /* which parameters are in which group is not known: the program's own function must say */
    put_head(b, p, is_flat(p) ? "import safetensors.torch\nimport torch\n" : "import torch\n");
    if (p->optimizer_count > 1)
        ckpt__buf_printf(b, "# There are %zu optimizers; this is for the first. The others go the same way.\n",
                         p->optimizer_count);
    put(b, "\n\n");
    if (has_prefix(p) && (*p->paths.model || is_flat(p)))
        put(b, bare);
    if (named)
        put_groups(b, p);
    if (class_name)
        put_optimizer_default(b, p, class_name, named);
    if (p->optimizer_count > 0)
        put(b, place_steps);
    put_torch_front(b, p, class_name);
    if (p->optimizer_count > 0)
        put_torch_optimizer(b, p);
    put_torch_back(b, p);
}

/* A directory for plain torch: its files one by one. */
static void put_folder(ckpt__buf *b, const ckpt__patient *p)
{
    put_head(b, p, "import os\n\nimport torch\n");
    put(b, "\n\n");
    put(b, place_steps);
    put(b, "def resume(model, optimizer=None, device=None):\n"
           "    \"\"\"The weights into model, then the optimizer's state; the optimizer must be of the model on its "
           "device.\"\"\"\n"
           "    device = torch.device(device or ('cuda:0' if torch.cuda.is_available() else 'cpu'))\n"
           "    weights = {}\n"
           "    for name in sorted(os.listdir(PATH)):\n"
           "        if name.endswith('.safetensors'):\n"
           "            import safetensors.torch\n"
           "            weights.update(safetensors.torch.load_file(os.path.join(PATH, name)))\n"
           "        elif name.startswith('pytorch_model') and name.endswith('.bin'):\n"
           "            weights.update(torch.load(os.path.join(PATH, name), map_location='cpu', weights_only=True))\n"
           "    missing, unexpected = model.load_state_dict(weights, strict=False)\n"
           "    assert not unexpected, unexpected   # missing: tied weights, which are stored once\n"
           "    model.to(device)\n"
           "    for name in ('optimizer.pt', 'optimizer.bin'):\n"
           "        path = os.path.join(PATH, name)\n"
           "        if optimizer is not None and os.path.exists(path):\n"
           "            optimizer.load_state_dict(torch.load(path, map_location='cpu', weights_only=True))\n"
           "            place_steps(optimizer)\n"
           "            check_placement(optimizer)\n"
           "    return missing\n");
}

/* An adapter's names are not those of the model that has it: PEFT puts the adapter's own into them. */
static void put_adapter(ckpt__buf *b, const ckpt__patient *p)
{
    bool folder = strcmp(p->index->kind, "directory") == 0;
    put_head(b, p, folder ? "import peft\n" : "import peft\nimport safetensors.torch\n");
    put(b, "\n\n"
           "def resume(model, device=None):\n"
           "    \"\"\"model: the base model, as it was before the adapter; or one that has an adapter of the same settings.\"\"\"\n");
    if (folder)
        put(b, "    if not isinstance(model, peft.PeftModel):\n"
               "        model = peft.PeftModel.from_pretrained(model, PATH, is_trainable=True)\n"
               "    else:\n"
               "        result = peft.set_peft_model_state_dict(model, peft.load_peft_weights(PATH, device='cpu'))\n"
               "        assert not result.unexpected_keys, result.unexpected_keys\n");
    else
        put(b, "    assert isinstance(model, peft.PeftModel), 'the settings are in adapter_config.json, which is not here'\n"
               "    result = peft.set_peft_model_state_dict(model, safetensors.torch.load_file(PATH))\n"
               "    assert not result.unexpected_keys, result.unexpected_keys\n");
    put(b, "    return model.to(device) if device else model\n");
}

static bool is_adapter(const ckpt__patient *p)
{
    bool lora = false;
    if (strcmp(p->index->format, "peft") == 0)
        return p->optimizer_count == 0;
    for (size_t i = 0; is_flat(p) && !lora && i < p->index->tensor_count; i++) {
        ckpt_str name = p->index->tensors[i].info.name;
        lora = name.size > 17 && memcmp(name.data, "base_model.model.", 17) == 0 &&
               memmem(name.data, name.size, ".lora_A.weight", 14);
    }
    return lora;
}

static void put_lightning(ckpt__buf *b, const ckpt__patient *p)
{
    put_head(b, p, "import lightning\nimport torch\n");
    put(b, "\n\n");
    put(b, place_steps);
    put(b, "class Placement(lightning.Callback):\n"
           "    def on_train_start(self, trainer, module):\n"
           "        for optimizer in trainer.optimizers:\n"
           "            place_steps(optimizer)\n"
           "            check_placement(optimizer)\n\n\n"
           "def resume(trainer, model, **data):\n"
           "    trainer.callbacks.append(Placement())\n");
    if (p->paths.scaler_key[0] && strcmp(p->paths.scaler_key, "MixedPrecision") != 0 &&
        strcmp(p->paths.scaler_key, "native_amp_scaling_state") != 0) {
        put(b, "    inner = model.on_load_checkpoint\n\n"
               "    def on_load_checkpoint(checkpoint):      # Lightning looks for the scaler under this name only\n"
               "        checkpoint['native_amp_scaling_state'] = checkpoint.pop(");
        ckpt__put_python(b, p->paths.scaler_key);
        put(b, ")\n        inner(checkpoint)\n\n    model.on_load_checkpoint = on_load_checkpoint\n");
    }
    if (refuses(p)) {
        put(b, "    # weights_only=False runs what the file says (it holds ");
        put_trust(b, p);
        put(b,
            "): only for a file that you trust.\n    trainer.fit(model, ckpt_path=PATH, weights_only=False, **data)\n");
    } else {
        put(b, "    trainer.fit(model, ckpt_path=PATH, **data)\n");
    }
}

static void put_accelerate(ckpt__buf *b, const ckpt__patient *p)
{
    put_head(b, p, "import torch\n");
    put(b, "\n\n");
    put(b, place_steps);
    put(b, "def resume(accelerator, model, optimizer, *others):\n"
           "    \"\"\"others: data loaders, a scheduler, in the order that they were prepared in; register objects "
           "before.\"\"\"\n"
           "    model, optimizer, *others = accelerator.prepare(model, optimizer, *others)\n");
    put(b, refuses(p) ? "    accelerator.load_state(PATH, load_kwargs={'weights_only': False})   # only for a "
                        "directory that you trust\n"
                      : "    accelerator.load_state(PATH)\n");
    put(b, "    inner = getattr(optimizer, 'optimizer', optimizer)\n"
           "    place_steps(inner)\n"
           "    check_placement(inner)\n"
           "    return model, optimizer, *others\n");
}

static void put_trainer(ckpt__buf *b, const ckpt__patient *p)
{
    put_head(b, p, "import os\n\nimport torch\nimport transformers\n");
    put(b, "\n\n");
    put(b, place_steps);
    put(b, "class Placement(transformers.TrainerCallback):\n"
           "    def on_train_begin(self, args, state, control, optimizer=None, **more):\n"
           "        inner = getattr(optimizer, 'optimizer', optimizer)\n"
           "        place_steps(inner)\n"
           "        check_placement(inner)\n\n\n"
           "def resume(trainer):\n"
           "    for name in ('optimizer.pt', 'scheduler.pt'):       # without one of them the Trainer loads neither, "
           "in silence\n"
           "        assert os.path.exists(os.path.join(PATH, name)), f'{name} is missing'\n"
           "    trainer.add_callback(Placement())\n"
           "    return trainer.train(resume_from_checkpoint=PATH)\n");
}

static void put_python(ckpt__buf *b, const ckpt__patient *p)
{
    bool folder = strcmp(p->index->kind, "directory") == 0;
    switch (p->loader->loader) {
    case CKPT_LOADER_LIGHTNING:
        put_lightning(b, p);
        return;
    case CKPT_LOADER_ACCELERATE:
        put_accelerate(b, p);
        return;
    case CKPT_LOADER_HF_TRAINER:
        put_trainer(b, p);
        return;
    case CKPT_LOADER_OWN:
    case CKPT_LOADER_CKPT:
    case CKPT_LOADER_TORCH:
    case CKPT_LOADER_TORCH_CPP:
        break;
    }
    if (is_adapter(p))
        put_adapter(b, p);
    else if (folder)
        put_folder(b, p);
    else
        put_torch(b, p);
}

ckpt_status ckpt_doctor_snippet(const ckpt_reader *reader, const ckpt_doctor_options *options, const char *language,
                                char **out, ckpt_error *err)
{
    ckpt_doctor_options own = {.cuda_devices = -1};
    ckpt_doctor_result result;
    bool run = language && strcmp(language, "run") == 0, python = language && strcmp(language, "torch") == 0;
    if (!reader || !out || !language || (!python && !run && strcmp(language, "c") != 0))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "no reader, no place for the snippet, or a language that is none of torch, c, run");
    *out = NULL;
    if (options)
        own = *options;
    own.read_values = false;
    if (python && strcmp(reader->index->format, "ckpt") == 0)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, reader->path,
                          "no Python program reads this format, so there is no resume in Python: ckpt-migrate --to torch makes a "
                          "file that torch reads, and for that there is one; in C there is one for this");
    if (own.loader == CKPT_LOADER_OWN)
        own.loader = ckpt__producer_of(reader->index)->loader;
    if (!python)
        own.loader = CKPT_LOADER_CKPT;
    else if (!ckpt__loader_row_of(own.loader)->python)
        own.loader = CKPT_LOADER_TORCH;
    ckpt_status known = ckpt__order_check(own.assume_order, reader->path, err);
    if (known < 0)
        return known;
    ckpt__patient *p = calloc(1, sizeof *p);
    ckpt_report *findings = ckpt_report_new();
    if (!p || !findings) {
        free(p);
        ckpt_report_free(findings);
        return ckpt__fail_memory(err, "the snippet", 0);
    }
    ckpt__buf b = {NULL, 0, 0, false};
    ckpt_status status = ckpt__doctor_admit(p, reader, &own, &result, err);
    if (status == CKPT_OK && p->shard)
        status = ckpt__fail(err, CKPT_E_UNSUPPORTED, reader->path, "this is %s. There is no resume from it alone; %s",
                            p->whole.what, p->whole.how);
    if (status == CKPT_OK)
        status = ckpt__doctor_examine(p, findings);
    if (status == CKPT_OK && !python && p->several.status != CKPT_OK) {
        status = p->several.status;        /* it would name the states of one parameter as another's */
        if (err)
            *err = p->several;
    }
    if (status == CKPT_OK) {
        if (python)
            put_python(&b, p);
        else
            ckpt__put_snippet_c(&b, p, run);
        if (b.failed || !b.data) {
            ckpt__buf_free(&b);
            status = ckpt__fail_memory(err, "the snippet", b.size);
        } else {
            *out = b.data;
        }
    }
    ckpt_report_free(findings);
    ckpt_doctor_result_clear(&result);
    ckpt__doctor_discharge(p);
    return status;
}
