/* format/keras/no_hdf5.c - where libhdf5 is not built in: Keras' files are known, and not read. */
#include "format/keras/keras.h"

ckpt_status ckpt__h5_read(const ckpt__h5_input *input, ckpt__index *index, ckpt__keras_values *values, ckpt_error *err)
{
    (void)index;
    (void)values;
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, input->label,
                      "its weights are HDF5 (Keras), which this build does not read: install libhdf5 (Debian: "
                      "libhdf5-dev), and build again with ./configure --with-hdf5");
}
