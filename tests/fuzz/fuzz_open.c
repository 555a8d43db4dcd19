/* fuzz_open.c - any bytes as a checkpoint: opened, listed, walked, verified, restored from and diagnosed. For libFuzzer;
 * tests/fuzz/run.sh builds and runs it. */
#include <ckpt/ckpt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_visit(void *ctx, const ckpt_visit *v)
{
    /* Every byte that a visitor may look at. */
    uint64_t *sum = ctx;
    for (size_t i = 0; i < v->name.size; i++)
        *sum += (unsigned char)v->name.data[i];
    for (size_t i = 0; i < v->value->text.size; i++)
        *sum += (unsigned char)v->value->text.data[i];
    for (size_t i = 0; i < v->path.count; i++)
        *sum += (uint64_t)v->path.keys[i].number + v->path.keys[i].text.size;
    return 0;
}

static void read_tensors(const ckpt_reader *r)
{
    for (size_t i = 0; i < ckpt_reader_tensor_count(r) && i < 64; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        uint32_t crc;
        if (t->nbytes > 1 << 20)  /* a view with stride 0 may be any size, and is streamed all the same */
            continue;
        ckpt_error err;
        void *buffer = malloc(t->nbytes ? (size_t)t->nbytes : 1);
        if (buffer)
            ckpt_reader_read(r, i, buffer, (size_t)t->nbytes, &err);
        free(buffer);
        ckpt_reader_crc32(r, i, &crc, &err);
    }
}

/* A state that has the file's first tensors, as a trainer might bind them. */
static void restore(const ckpt_reader *r, const char *path)
{
    ckpt_state *s = ckpt_state_new();
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_error err;
    int64_t step = 0;
    o.map_location = "cpu";
    o.allow_missing = o.allow_unexpected = o.allow_cast = true;
    for (size_t i = 0; s && i < ckpt_reader_tensor_count(r) && i < 16; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, i);
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        if (t->nbytes > 1 << 20 || !t->shape)
            continue;
        d.name = t->name.data;
        d.dtype = i % 3 ? t->dtype : CKPT_F32;
        d.ndim = t->ndim;
        d.shape = t->shape;
        d.role = CKPT_PARAM;
        ckpt_state_tensor(s, &d, &err);
    }
    if (s && ckpt_state_i64(s, "step", &step, &err) == CKPT_OK)
        ckpt_restore(s, path, &o, report, &err);
    ckpt_report_free(report);
    ckpt_state_free(s);
}

/* What is there of a damaged file: listed, and walked; what is whole can be read. */
static void salvage(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader_options o = {0};
    ckpt_reader *r = NULL;
    uint64_t sum = 0;
    o.salvage = true;
    if (ckpt_reader_open(path, &o, &r, &err) == CKPT_OK) {
        ckpt_value_walk(ckpt_reader_root(r), 200000, on_visit, &sum, &err);
        read_tensors(r);
    } else if (err.message[0] == '\0')
        abort();
    ckpt_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *r = NULL;
    ckpt_report *report = ckpt_report_new();
    if (ckpt_reader_open(path, NULL, &r, &err) == CKPT_OK) {
        uint64_t sum = 0;
        ckpt_doctor_options doctor;
        ckpt_doctor_result result;
        memset(&doctor, 0, sizeof doctor);
        doctor.cuda_devices = -1;
        ckpt_value_walk(ckpt_reader_root(r), 200000, on_visit, &sum, &err);
        read_tensors(r);
        restore(r, path);
        memset(&result, 0, sizeof result);
        ckpt_doctor(r, &doctor, &result, report, &err);
        ckpt_doctor_result_clear(&result);
    } else if (err.message[0] == '\0')
        abort();                  /* a refusal always says why */
    ckpt_reader_close(r);
    salvage(path);
    ckpt_verify_result verified;
    ckpt_verify(path, NULL, NULL, &verified, report, &err);
    ckpt_report_free(report);
    close(fd);
    return 0;
}
