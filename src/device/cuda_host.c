/* device/cuda_host.c - page-locked memory of the host. What is large is memory of ours that the driver locks: it has huge pages, which
 * several threads fill in, and is there in a fraction of the time that cuMemHostAlloc takes, which fills in small ones one by one and holds
 * up every other call meanwhile. */
#ifdef HAVE_CUDA_H
#include "device/cuda_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/pages.h"

enum { LARGE = 1 << 20 }; /* bytes; what is smaller the driver makes */

/* Memory of ours that is locked. A list, so that freeing needs the address alone; there are a few dozen of them at most. */
typedef struct locked {
    struct locked *next; /* NULL: the last */
    char *data;          /* owned (pages) */
    uint64_t mapped;     /* bytes */
} locked;

static struct {
    pthread_mutex_t lock;
    locked *first; /* heap, owned; NULL: there is none */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(locked *l)
{
    pthread_mutex_lock(&all.lock);
    l->next = all.first;
    all.first = l;
    pthread_mutex_unlock(&all.lock);
}

/* Takes it off the list; NULL: it is the driver's own. */
static locked *forget(const void *data)
{
    pthread_mutex_lock(&all.lock);
    locked **at = &all.first, *found;
    while (*at && (*at)->data != data)
        at = &(*at)->next;
    if ((found = *at))
        *at = found->next;
    pthread_mutex_unlock(&all.lock);
    return found;
}

/* In a context. A system whose driver cannot lock memory that it has not made is none where that is an error. */
static bool lock_pages(size_t size, void **out, CUresult *result)
{
    locked *l = malloc(sizeof *l);
    *result = CUDA_SUCCESS;
    if (l && (l->data = ckpt__pages_map(size, &l->mapped))) {
        /* A child would share the pages until one of the two writes, and a device goes on with those that it was given. */
        if (madvise(l->data, (size_t)l->mapped, MADV_DONTFORK) == 0)
            *result =
                ckpt__cuda_get(NULL)->cuMemHostRegister_v2(l->data, (size_t)l->mapped, CU_MEMHOSTREGISTER_PORTABLE);
        else
            *result = CUDA_ERROR_NOT_SUPPORTED;
        if (*result == CUDA_SUCCESS) {
            note(l);
            *out = l->data;
            return true;
        }
        ckpt__pages_unmap(l->data, l->mapped);
    }
    free(l);
    return false;
}

/* Does the error say that such memory cannot be locked, and nothing of the device? */
static bool is_refusal(CUresult r)
{
    return r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_OUT_OF_MEMORY ||
           r == CUDA_ERROR_OPERATING_SYSTEM || r == CUDA_ERROR_NOT_SUPPORTED || r == CUDA_ERROR_NOT_PERMITTED;
}

ckpt_status ckpt__cuda_host_alloc(size_t size, void **out, ckpt_error *err)
{
    void *got = NULL;
    *out = NULL;
    ckpt_status s = ckpt__cuda_enter_any(err);
    if (s != CKPT_OK)
        return s;
    CUresult r = CUDA_SUCCESS;
    const char *call = "cuMemHostRegister_v2";
    if ((size < LARGE || !lock_pages(size, &got, &r)) && is_refusal(r)) {
        call = "cuMemHostAlloc";
        r = ckpt__cuda_get(NULL)->cuMemHostAlloc(&got, size ? size : 1, CU_MEMHOSTALLOC_PORTABLE);
    }
    if (r != CUDA_SUCCESS) {
        s = ckpt__cuda_fail(err, -1, r, call, "%zu bytes of page-locked host memory wanted", size);
        if (r == CUDA_ERROR_OUT_OF_MEMORY) {
            s = CKPT_E_NO_MEMORY;
            if (err)
                err->status = s;
        }
    }
    s = ckpt__cuda_leave(s, err);
    if (s == CKPT_OK)
        *out = got;
    else
        ckpt__cuda_host_free(got);
    return s;
}

void ckpt__cuda_host_free(void *data)
{
    /* Nobody frees it later, so a context that could not be entered is tried once more. A forked process can enter none, and does not
     * have the memory either. */
    if (!data || (ckpt__cuda_enter_any(NULL) != CKPT_OK && ckpt__cuda_enter_any(NULL) != CKPT_OK))
        return;
    locked *l = forget(data);
    if (l)
        ckpt__cuda_get(NULL)->cuMemHostUnregister(data);
    else
        ckpt__cuda_get(NULL)->cuMemFreeHost(data);
    ckpt__cuda_leave(CKPT_OK, NULL);
    if (l)
        ckpt__pages_unmap(l->data, l->mapped);
    free(l);
}
#else
typedef int ckpt__cuda_host_is_left_out;
#endif
