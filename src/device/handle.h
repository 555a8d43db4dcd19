/* device/handle.h - what a ckpt__stream and a ckpt__event are: a driver's handle tied to the device that made it. */
#ifndef CKPT_DEVICE_HANDLE_H
#define CKPT_DEVICE_HANDLE_H
#include "device/device.h"

struct ckpt__stream {
    ckpt_device_type type;
    int ordinal;
    void *handle;                 /* CUstream; NULL on the cpu, where everything is done at once */
};

struct ckpt__event {
    ckpt_device_type type;
    int ordinal;
    void *handle;                 /* CUevent; NULL on the cpu */
};
#endif
