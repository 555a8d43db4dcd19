/* migrate/out_files.c - the list of the target's files. */
#include "migrate/out.h"

ckpt__out_file *ckpt__out_add(ckpt__out *w, const char *name)
{
    const char *kept = name ? ckpt__arena_copy(w->m->index->arena, name, strlen(name)) : NULL;
    if ((name && !kept) || !ckpt__grow(&w->files, &w->capacity, w->count + 1, sizeof *w->files))
        return NULL;
    ckpt__out_file *f = &w->files[w->count++];
    memset(f, 0, sizeof *f);
    f->name = kept;
    return f;
}

ckpt_status ckpt__out_add_recipe(ckpt__out *w, const char *name, ckpt__recipe *recipe)
{
    ckpt__out_file *f = ckpt__out_add(w, name);
    if (!f) {
        ckpt__recipe_free(recipe);
        return ckpt__migration_no_memory(w->err);
    }
    f->format = recipe ? w->m->format : NULL;
    f->recipe = recipe;
    return CKPT_OK;
}
