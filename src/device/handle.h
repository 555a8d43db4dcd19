/* device/handle.h - what a ckpt__stream and a ckpt__event are: a driver's handle tied to the device that made it. */
#ifndef CKPT_DEVICE_HANDLE_H
#define CKPT_DEVICE_HANDLE_H
#include "device/device.h"

/* One of our own queues. Made by stream_new of the device's table, freed by stream_free of the same. */
struct ckpt__stream {
    ckpt_device_type type;
    int ordinal;  /* N of cuda:N */
    void *handle; /* CUstream; NULL on the cpu, where everything is done at once */
};

/* A place in a queue that the host can wait for. */
struct ckpt__event {
    ckpt_device_type type;
    int ordinal;  /* N of cuda:N */
    void *handle; /* CUevent; NULL on the cpu */
};
#endif
