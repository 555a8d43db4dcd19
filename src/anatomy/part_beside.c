/* anatomy/part_beside.c - a file of a directory that is a checkpoint, opened alone. */
#include "anatomy/part.h"

#include <ckpt/reader.h>
#include <stdio.h>
#include "format/folder/folder.h"

static const char *kind_of(const ckpt__member *m, const char *name)
{
    static const char *const kinds[] = {
        [CKPT__PART_MODEL] = "the weights",
        [CKPT__PART_ADAPTER] = "the adapter's weights",
        [CKPT__PART_EMA] = "averaged weights",
        [CKPT__PART_OPTIMIZER] = "the optimizer's state",
        [CKPT__PART_SCHEDULER] = "the schedule's state",
        [CKPT__PART_SCALER] = "the GradScaler's state",
        [CKPT__PART_SAMPLER] = "the state of a data loader",
        [CKPT__PART_RNG] = "random states",
        [CKPT__PART_CUSTOM] = "the state of an object that the program registered",
        [CKPT__PART_ARGS] = "the arguments",
        [CKPT__PART_SHARD] = "some of the weights",
    };
    if (m->part == CKPT__PART_SHARD && ckpt__ends(name, ".index.json"))
        return "the list of the shards";
    return m->part < sizeof kinds / sizeof *kinds && kinds[m->part] ? kinds[m->part] : "a file";
}

static const struct {
    ckpt__folder_layout layout;
    const char *of;
} layouts[] = {
    {CKPT__LAYOUT_HF, "a model that lies in several files"},
    {CKPT__LAYOUT_PEFT, "a PEFT adapter"},
    {CKPT__LAYOUT_ACCELERATE, "what accelerator.save_state wrote"},
    {CKPT__LAYOUT_HF_TRAINER, "a checkpoint of the HF Trainer"},
};

/* Weights in one file are whole with or without a config.json; those of a shard are not. */
static bool is_part(const ckpt__folder *f, const ckpt__member *m)
{
    bool known = m->exact && (m->read || m->part == CKPT__PART_SHARD);
    if (!known || f->layout <= CKPT__LAYOUT_REFUSED || f->layout == CKPT__LAYOUT_FOLDER)
        return false;
    return f->layout != CKPT__LAYOUT_HF || m->part == CKPT__PART_SHARD;
}

static void say(const ckpt__folder *f, const ckpt__member *m, const char *directory, ckpt__whole *out)
{
    const char *of = "a checkpoint";
    char shown[160];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].layout == f->layout)
            of = layouts[i].of;
    ckpt__escape(shown, sizeof shown, directory, strlen(directory));
    snprintf(out->what, sizeof out->what, "a part of the directory %s (%s): %s", shown, of, kind_of(m, m->name));
    snprintf(out->how, sizeof out->how, "ask for the directory: %s", shown);
}

bool ckpt__part_of_folder(const ckpt__index *index, const char *path, ckpt__whole *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char directory[1024];
    ckpt__source *source = NULL;
    ckpt__folder f;
    bool found = false;
    int n = slash ? snprintf(directory, sizeof directory, "%.*s", slash == path ? 1 : (int)(slash - path), path)
                  : snprintf(directory, sizeof directory, ".");
    int64_t number;
    bool exact;
    /* a name of a person's own is nobody's part: the directory need not be read for it */
    if (ckpt__index_is_directory(index) || n < 0 || (size_t)n >= sizeof directory ||
        ckpt__part_of(name, &number, &exact) == CKPT__PART_NONE || !exact)
        return false;
    if (ckpt__source_open(directory, &source, NULL) < 0)
        return false;
    if (ckpt__folder_look(source, &f, NULL) == CKPT_OK)
        for (size_t i = 0; !found && i < f.count; i++)
            if (strcmp(f.members[i].name, name) == 0 && (found = is_part(&f, &f.members[i])))
                say(&f, &f.members[i], directory, out);
    ckpt__folder_free(&f);
    ckpt__source_close(source);
    return found;
}

const char *ckpt_layout_of(const char *path)
{
    ckpt__source *source = NULL;
    ckpt__folder f;
    const char *layout = NULL;
    if (!path || ckpt__source_open(path, &source, NULL) < 0)
        return NULL;
    if (source->directory && ckpt__folder_look(source, &f, NULL) == CKPT_OK && f.layout == CKPT__LAYOUT_REFUSED)
        layout = f.foreign;
    if (source->directory)
        ckpt__folder_free(&f);
    ckpt__source_close(source);
    return layout;
}
