/* format/keras/driver.c - a driver of libhdf5 ("virtual file driver") that can only read, by positional reads of the source. So no
 * file is opened, locked, written or unpacked by libhdf5, and a failed read is an error of ours. H5FDregister's documentation,
 * H5FDpublic.h (1.10, 1.12) and H5FDdevelop.h (from 1.14) have the shape of its table. */
#include "format/keras/hdf5.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* What libhdf5 holds of the open file. */
typedef struct opened {
    H5FD_t base; /* libhdf5's own; first, as it asks */
    ckpt__h5 *h; /* borrowed */
    haddr_t end; /* of the allocated addresses, which libhdf5 sets from the superblock */
} opened;

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t list, haddr_t most)
{
    (void)name;
    (void)most;
    ckpt__h5 *const *h = H5Pget_driver_info(list);
    bool reads = h && !(flags & (H5F_ACC_RDWR | H5F_ACC_CREAT | H5F_ACC_TRUNC));
    opened *o = reads ? calloc(1, sizeof *o) : NULL;
    if (o)
        o->h = *h;
    else if (reads && (*h)->io_status == CKPT_OK) /* the file is not damaged by that */
        (*h)->io_status = ckpt__fail_memory(&(*h)->io, "libhdf5's file", sizeof *o);
    return o ? &o->base : NULL;
}

static herr_t driver_close(H5FD_t *file)
{
    free(file);
    return 0;
}

static int driver_compare(const H5FD_t *a, const H5FD_t *b)
{
    return a < b ? -1 : a > b;
}

static herr_t driver_query(const H5FD_t *file, unsigned long *flags)
{
    (void)file;
    *flags = H5FD_FEAT_ACCUMULATE_METADATA_READ;
    return 0;
}

static haddr_t driver_get_end(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const opened *)file)->end;
}

static herr_t driver_set_end(H5FD_t *file, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    ((opened *)file)->end = end;
    return 0;
}

static haddr_t driver_file_end(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const opened *)file)->h->in->size;
}

static bool may_read(ckpt__h5 *h, H5FD_mem_t type, uint64_t address, uint64_t size)
{
    uint64_t end;
    if (!ckpt__add(address, size, &end) || end > h->in->size)
        return false;
    if (size > h->budget) {
        h->out_of_budget = true;
        return false;
    }
    h->budget -= size;
    if ((type != H5FD_MEM_GHEAP && type != H5FD_MEM_DRAW) || h->decoding)
        return true; /* libhdf5 calls collections of texts raw data */
    h->heap_refused = h->heap_refused || size > h->heap_most;
    h->heap_largest = size > h->heap_largest ? size : h->heap_largest;
    return size <= h->heap_most;
}

static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t list, haddr_t address, size_t size, void *to)
{
    (void)list;
    ckpt__h5 *h = ((opened *)file)->h;
    if (!may_read(h, type, address, size))
        return -1;
    if (h->in->memory) {
        memcpy(to, h->in->memory + address, size);
        return 0;
    }
    ckpt_status status = ckpt__source_read(h->in->source, h->in->file, h->in->offset + address, to, size,
                                           h->io_status == CKPT_OK ? &h->io : NULL);
    if (status != CKPT_OK && h->io_status == CKPT_OK)
        h->io_status = status;
    return status == CKPT_OK ? 0 : -1;
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t list, haddr_t address, size_t size, const void *from)
{
    (void)file;
    (void)type;
    (void)list;
    (void)address;
    (void)size;
    (void)from;
    return -1;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)600, /* of those that are free for tests and drivers of one's own */
#endif
    .name = "ckpt",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(ckpt__h5 *),
    .open = driver_open,
    .close = driver_close,
    .cmp = driver_compare,
    .query = driver_query,
    .get_eoa = driver_get_end,
    .set_eoa = driver_set_end,
    .get_eof = driver_file_end,
    .read = driver_read,
    .write = driver_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* ---- libhdf5 is one for the whole program, and most builds of it know no threads. What is set here is set back. */

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static struct {
    H5E_auto2_t print;
    void *print_to;
    unsigned plugins;
} before;

ckpt_status ckpt__h5_enter(const char *label, ckpt_error *err)
{
    pthread_mutex_lock(&one_at_a_time);
    ckpt_status status = ckpt__hdf5_load(label, err);
    if (status == CKPT_OK && H5open() < 0)
        status = ckpt__fail_memory(err, "libhdf5", 0);
    if (status < 0) {
        pthread_mutex_unlock(&one_at_a_time);
        return status;
    }
    H5Eget_auto2(H5E_DEFAULT, &before.print, &before.print_to);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLget_loading_state(&before.plugins);
    H5PLset_loading_state(0); /* a file names its filters, and a filter would be loaded code */
    return CKPT_OK;
}

void ckpt__h5_leave(void)
{
    H5PLset_loading_state(before.plugins);
    H5Eclear2(H5E_DEFAULT);
    H5Eset_auto2(H5E_DEFAULT, before.print, before.print_to);
    pthread_mutex_unlock(&one_at_a_time);
}

static hid_t open_file(ckpt__h5 *h)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS), file = H5I_INVALID_HID;
    if (list >= 0 && H5Pset_driver(list, h->driver, &h) >= 0)
        file = (H5Fopen)("ckpt", H5F_ACC_RDONLY, list); /* in parentheses: the macro ends the program at odd versions */
    return file;
}

/* Offsets of datasets count from the superblock, which is the first thing in every file of Keras. */
static ckpt_status check_user_block(ckpt__h5 *h, ckpt_error *err)
{
    hsize_t block = 1;
    hid_t list = H5Fget_create_plist(h->file);
    if (list >= 0)
        H5Pget_userblock(list, &block);
    H5Pclose(list);
    return block == 0 ? CKPT_OK
                      : ckpt__fail(err, CKPT_E_UNSUPPORTED, h->in->label,
                                   "its HDF5 data begins behind a user block of %llu bytes; Keras writes none",
                                   (unsigned long long)block);
}

ckpt_status ckpt__h5_open(ckpt__h5 *h, ckpt_error *err)
{
    h->driver = h->file = H5I_INVALID_HID;
    h->heap_most = CKPT__H5_TEXT;
    /* Metadata is read about once; a structure that leads around would be read without an end. */
    if (!ckpt__mul(h->in->size, 4, &h->budget) || !ckpt__add(h->budget, (uint64_t)64 << 20, &h->budget))
        h->budget = UINT64_MAX;
    h->driver = H5FDregister(&driver);
    h->file = h->driver >= 0 ? open_file(h) : H5I_INVALID_HID;
    ckpt_status status = h->file >= 0 ? check_user_block(h, err) : ckpt__h5_fail(h, "the file", err);
    if (status < 0)
        ckpt__h5_close(h);
    return status;
}

void ckpt__h5_close(ckpt__h5 *h)
{
    if (h->file >= 0)
        H5Fclose(h->file);
    if (h->driver >= 0)
        H5FDunregister(h->driver);
}

/* ---- errors */

static herr_t innermost(unsigned n, const H5E_error2_t *error, void *ctx)
{
    char *text = ctx;
    if (n == 0)
        ckpt__escape(text, 200, error->desc, error->desc ? strlen(error->desc) : 0);
    return 0;
}

/* A file with libver='latest' has the newest version of each part that the libhdf5 of its writer knows. */
static ckpt_status fail_version(const ckpt__h5 *h, const char *what, const char *why, ckpt_error *err)
{
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    return ckpt__fail(
        err, CKPT_E_TOO_NEW, h->in->label,
        "%s: a part of the HDF5 structure has a version that libhdf5 %u.%u.%u does not know (%s): a newer "
        "HDF5 wrote the file, or it is damaged there. A newer libhdf5 reads it, and so does this one what "
        "h5py writes without libver='latest'",
        what, major, minor, release, why);
}

ckpt_status ckpt__h5_fail(ckpt__h5 *h, const char *what, ckpt_error *err)
{
    char why[200] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, why);
    if (h->io_status != CKPT_OK && h->io_status != CKPT_E_DAMAGED) {
        if (err)
            *err = h->io;
        return h->io_status;
    }
    if (h->heap_refused)
        return ckpt__fail(err, CKPT_E_LIMIT, h->in->label, "%s: its texts may come to more than %d MiB", what,
                          (h->heap_most == CKPT__H5_TEXT ? CKPT__H5_TEXT : CKPT__H5_TEXTS) >> 20);
    if (h->out_of_budget)
        return ckpt__fail(err, CKPT_E_LIMIT, h->in->label,
                          "%s: libhdf5 has read %llu bytes for the structure of a file of %llu: it leads around", what,
                          (unsigned long long)(h->in->size * 4 + ((uint64_t)64 << 20)),
                          (unsigned long long)h->in->size);
    if (strstr(why, "bad version number"))
        return fail_version(h, what, why, err);
    return ckpt__fail(err, CKPT_E_DAMAGED, h->in->label, "the HDF5 structure is damaged at %s: %s", what,
                      why[0] ? why : "libhdf5 gives no reason");
}
