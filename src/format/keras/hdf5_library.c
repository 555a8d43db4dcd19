/* format/keras/hdf5_library.c - the functions of libhdf5, found by name. */
#define CKPT__HDF5_AS_IT_IS
#include "format/keras/hdf5_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

/* Its calls of itself are its own, where the program has a libhdf5 of another release. The sanitizers refuse that flag. */
#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HOW (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#else
#define HOW (RTLD_NOW | RTLD_LOCAL)
#endif

ckpt__hdf5_library ckpt__hdf5;

/* What became of the one attempt. It is not repeated: a program that lacks the library keeps lacking it. */
static char problem[400];

typedef struct symbol {
    const char *name;
    size_t offset; /* of the pointer, in ckpt__hdf5_library */
} symbol;

/* The header may make a function's name a macro for that of an older release's: the symbol is what it stands for. */
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define ROW(member, name) {TEXT(name), offsetof(ckpt__hdf5_library, member)},
static const symbol symbols[] = {CKPT__HDF5_FUNCTIONS(ROW) CKPT__HDF5_NUMBERS(ROW)};
static const symbol numbers[] = {CKPT__HDF5_NUMBERS(ROW)};

/* A program that is linked with libhdf5 may have the numbers itself (copy relocations): then those of the library are never set. */
static bool find_numbers(ckpt__hdf5_library *found)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        hid_t *number;
        char *member = (char *)found + numbers[i].offset;
        memcpy(&number, member, sizeof number);
        if (*number <= 0 && (number = dlsym(RTLD_DEFAULT, numbers[i].name)))
            memcpy(member, &number, sizeof number);
        if (!number || *number <= 0)
            return false;
    }
    return true;
}

static void fill(void *handle)
{
    ckpt__hdf5_library found;
    unsigned major = 0, minor = 0, release = 0;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *at = dlsym(handle, symbols[i].name);
        if (!at) {
            snprintf(problem, sizeof problem, "%s has no %s", CKPT_HDF5_SONAME, symbols[i].name);
            return;
        }
        memcpy((char *)&found + symbols[i].offset, &at, sizeof at);
    }
    if (found.get_libversion(&major, &minor, &release) < 0 || major != H5_VERS_MAJOR || minor != H5_VERS_MINOR) {
        snprintf(problem, sizeof problem, "%s is release %u.%u.%u; this library was built for %d.%d", CKPT_HDF5_SONAME,
                 major, minor, release, H5_VERS_MAJOR, H5_VERS_MINOR);
        return;
    }
    if (found.open() < 0 || !find_numbers(&found))
        snprintf(problem, sizeof problem, "%s does not start", CKPT_HDF5_SONAME);
    else
        ckpt__hdf5 = found;
}

static void load(void)
{
    void *handle = dlopen(CKPT_HDF5_SONAME, HOW);
    const char *why = handle ? NULL : dlerror();
    if (handle)
        fill(handle);
    else
        snprintf(problem, sizeof problem, "%s", why ? why : CKPT_HDF5_SONAME " cannot be loaded");
    if (handle && *problem)
        dlclose(handle);
}

ckpt_status ckpt__hdf5_load(const char *label, ckpt_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (!*problem)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, label,
                      "it is HDF5, which Keras writes, and the library that reads it could not be loaded: %s (Debian: "
                      "install libhdf5-103-1, or what has %s)",
                      problem, CKPT_HDF5_SONAME);
}
