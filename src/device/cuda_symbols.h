/* device/cuda_symbols.h - every function of the CUDA driver that this library calls, by the literal name it is looked
 * up by. cuda.h renames functions by macros (cuMemAlloc is cuMemAlloc_v2), and a name without its version is an older
 * function with other argument types; so the names here are the final ones. The stand-in driver of the tests exports
 * them all, and a test compares the two. */
#ifndef CKPT_CUDA_SYMBOLS_H
#define CKPT_CUDA_SYMBOLS_H

#define CKPT__CUDA_SYMBOLS(X)                                                                                          \
    X(cuInit)                                                                                                          \
    X(cuGetErrorName)                                                                                                  \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDeviceTotalMem_v2)                                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxGetDevice)                                                                                                  \
    X(cuCtxPushCurrent_v2)                                                                                             \
    X(cuCtxPopCurrent_v2)                                                                                              \
    X(cuCtxSynchronize)                                                                                                \
    X(cuMemGetInfo_v2)                                                                                                 \
    X(cuMemAlloc_v2)                                                                                                   \
    X(cuMemFree_v2)                                                                                                    \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemFreeHost)                                                                                                   \
    X(cuMemHostRegister_v2)                                                                                            \
    X(cuMemHostUnregister)                                                                                             \
    X(cuMemGetAddressRange_v2)                                                                                         \
    X(cuPointerGetAttributes)                                                                                          \
    X(cuMemsetD8_v2)                                                                                                   \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuMemcpyHtoDAsync_v2)                                                                                            \
    X(cuMemcpyDtoHAsync_v2)                                                                                            \
    X(cuMemcpyDtoDAsync_v2)                                                                                            \
    X(cuMemcpyDtoD_v2)                                                                                                 \
    X(cuMemcpy2DAsync_v2)                                                                                              \
    X(cuMemcpyPeer)                                                                                                    \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamDestroy_v2)                                                                                              \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuStreamGetCtx)                                                                                                  \
    X(cuStreamIsCapturing)                                                                                             \
    X(cuEventCreate)                                                                                                   \
    X(cuEventDestroy_v2)                                                                                               \
    X(cuEventRecord)                                                                                                   \
    X(cuEventSynchronize)

#endif
