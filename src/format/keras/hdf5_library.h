/* format/keras/hdf5_library.h - libhdf5, loaded when the first file of Keras is read. Debian's brings forty other libraries with it,
 * and a trainer that reads none of Keras' files shall not start with them. The sources that include this (by hdf5.h) call
 * the functions by their own names. */
#ifndef CKPT_HDF5_LIBRARY_H
#define CKPT_HDF5_LIBRARY_H
/* H5Literate and its info are those of 1.10, which later releases keep under the same names. */
#define H5_USE_110_API 1
#include <hdf5.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif
#include "base/base.h"

/* Each function that is called; and each number that libhdf5 gives a name when it starts. */
#define CKPT__HDF5_FUNCTIONS(X)                                                                                        \
    X(Aclose, H5Aclose)                                                                                                \
    X(Aexists, H5Aexists)                                                                                              \
    X(Aget_name_by_idx, H5Aget_name_by_idx)                                                                            \
    X(Aget_space, H5Aget_space)                                                                                        \
    X(Aget_type, H5Aget_type)                                                                                          \
    X(Aopen, H5Aopen)                                                                                                  \
    X(Aopen_by_name, H5Aopen_by_name)                                                                                  \
    X(Aread, H5Aread)                                                                                                  \
    X(Dget_chunk_info_by_coord, H5Dget_chunk_info_by_coord)                                                            \
    X(Dget_create_plist, H5Dget_create_plist)                                                                          \
    X(Dget_offset, H5Dget_offset)                                                                                      \
    X(Dget_space, H5Dget_space)                                                                                        \
    X(Dget_storage_size, H5Dget_storage_size)                                                                          \
    X(Dget_type, H5Dget_type)                                                                                          \
    X(Dread, H5Dread)                                                                                                  \
    X(Eclear2, H5Eclear2)                                                                                              \
    X(Eget_auto2, H5Eget_auto2)                                                                                        \
    X(Eset_auto2, H5Eset_auto2)                                                                                        \
    X(Ewalk2, H5Ewalk2)                                                                                                \
    X(FDregister, H5FDregister)                                                                                        \
    X(FDunregister, H5FDunregister)                                                                                    \
    X(Fclose, H5Fclose)                                                                                                \
    X(Fget_create_plist, H5Fget_create_plist)                                                                          \
    X(Fopen, H5Fopen)                                                                                                  \
    X(Gclose, H5Gclose)                                                                                                \
    X(Gopen2, H5Gopen2)                                                                                                \
    X(Literate, H5Literate)                                                                                            \
    X(Oclose, H5Oclose)                                                                                                \
    X(Oget_info2, H5Oget_info2)                                                                                        \
    X(Oopen, H5Oopen)                                                                                                  \
    X(PLget_loading_state, H5PLget_loading_state)                                                                      \
    X(PLset_loading_state, H5PLset_loading_state)                                                                      \
    X(Pclose, H5Pclose)                                                                                                \
    X(Pcreate, H5Pcreate)                                                                                              \
    X(Pget_chunk, H5Pget_chunk)                                                                                        \
    X(Pget_driver_info, H5Pget_driver_info)                                                                            \
    X(Pget_external_count, H5Pget_external_count)                                                                      \
    X(Pget_filter2, H5Pget_filter2)                                                                                    \
    X(Pget_layout, H5Pget_layout)                                                                                      \
    X(Pget_nfilters, H5Pget_nfilters)                                                                                  \
    X(Pget_userblock, H5Pget_userblock)                                                                                \
    X(Pset_driver, H5Pset_driver)                                                                                      \
    X(Sclose, H5Sclose)                                                                                                \
    X(Sget_simple_extent_dims, H5Sget_simple_extent_dims)                                                              \
    X(Sget_simple_extent_npoints, H5Sget_simple_extent_npoints)                                                        \
    X(Sget_simple_extent_type, H5Sget_simple_extent_type)                                                              \
    X(Tclose, H5Tclose)                                                                                                \
    X(Tcopy, H5Tcopy)                                                                                                  \
    X(Tget_class, H5Tget_class)                                                                                        \
    X(Tget_cset, H5Tget_cset)                                                                                          \
    X(Tget_ebias, H5Tget_ebias)                                                                                        \
    X(Tget_fields, H5Tget_fields)                                                                                      \
    X(Tget_member_value, H5Tget_member_value)                                                                          \
    X(Tget_nmembers, H5Tget_nmembers)                                                                                  \
    X(Tget_norm, H5Tget_norm)                                                                                          \
    X(Tget_order, H5Tget_order)                                                                                        \
    X(Tget_precision, H5Tget_precision)                                                                                \
    X(Tget_sign, H5Tget_sign)                                                                                          \
    X(Tget_size, H5Tget_size)                                                                                          \
    X(Tget_strpad, H5Tget_strpad)                                                                                      \
    X(Tget_super, H5Tget_super)                                                                                        \
    X(Tis_variable_str, H5Tis_variable_str)                                                                            \
    X(Tset_cset, H5Tset_cset)                                                                                          \
    X(Tset_size, H5Tset_size)                                                                                          \
    X(Zfilter_avail, H5Zfilter_avail)                                                                                  \
    X(check_version, H5check_version)                                                                                  \
    X(get_libversion, H5get_libversion)                                                                                \
    X(free_memory, H5free_memory)                                                                                      \
    X(open, H5open)
#define CKPT__HDF5_NUMBERS(X)                                                                                          \
    X(P_CLS_FILE_ACCESS_ID_g, H5P_CLS_FILE_ACCESS_ID_g)                                                                \
    X(T_C_S1_g, H5T_C_S1_g)                                                                                            \
    X(T_NATIVE_DOUBLE_g, H5T_NATIVE_DOUBLE_g)                                                                          \
    X(T_NATIVE_INT64_g, H5T_NATIVE_INT64_g)                                                                            \
    X(T_NATIVE_UINT64_g, H5T_NATIVE_UINT64_g)

typedef struct ckpt__hdf5_library {
#define MEMBER(member, function) __typeof__(function) *member;
    CKPT__HDF5_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(member, number) hid_t *member;
    CKPT__HDF5_NUMBERS(MEMBER)
#undef MEMBER
} ckpt__hdf5_library;

/* All zero before the first call has succeeded. */
extern ckpt__hdf5_library ckpt__hdf5;
/* Loads it once; threads may call it at the same time. CKPT_E_UNSUPPORTED: it is not there, or of another release than the one that
 * this library was built with. label: of the file that is to be read. */
ckpt_status ckpt__hdf5_load(const char *label, ckpt_error *err);

#ifndef CKPT__HDF5_AS_IT_IS
#undef H5Aclose
#define H5Aclose (*ckpt__hdf5.Aclose)
#undef H5Aexists
#define H5Aexists (*ckpt__hdf5.Aexists)
#undef H5Aget_name_by_idx
#define H5Aget_name_by_idx (*ckpt__hdf5.Aget_name_by_idx)
#undef H5Aget_space
#define H5Aget_space (*ckpt__hdf5.Aget_space)
#undef H5Aget_type
#define H5Aget_type (*ckpt__hdf5.Aget_type)
#undef H5Aopen
#define H5Aopen (*ckpt__hdf5.Aopen)
#undef H5Aopen_by_name
#define H5Aopen_by_name (*ckpt__hdf5.Aopen_by_name)
#undef H5Aread
#define H5Aread (*ckpt__hdf5.Aread)
#undef H5Dget_chunk_info_by_coord
#define H5Dget_chunk_info_by_coord (*ckpt__hdf5.Dget_chunk_info_by_coord)
#undef H5Dget_create_plist
#define H5Dget_create_plist (*ckpt__hdf5.Dget_create_plist)
#undef H5Dget_offset
#define H5Dget_offset (*ckpt__hdf5.Dget_offset)
#undef H5Dget_space
#define H5Dget_space (*ckpt__hdf5.Dget_space)
#undef H5Dget_storage_size
#define H5Dget_storage_size (*ckpt__hdf5.Dget_storage_size)
#undef H5Dget_type
#define H5Dget_type (*ckpt__hdf5.Dget_type)
#undef H5Dread
#define H5Dread (*ckpt__hdf5.Dread)
#undef H5Eclear2
#define H5Eclear2 (*ckpt__hdf5.Eclear2)
#undef H5Eget_auto2
#define H5Eget_auto2 (*ckpt__hdf5.Eget_auto2)
#undef H5Eset_auto2
#define H5Eset_auto2 (*ckpt__hdf5.Eset_auto2)
#undef H5Ewalk2
#define H5Ewalk2 (*ckpt__hdf5.Ewalk2)
#undef H5FDregister
#define H5FDregister (*ckpt__hdf5.FDregister)
#undef H5FDunregister
#define H5FDunregister (*ckpt__hdf5.FDunregister)
#undef H5Fclose
#define H5Fclose (*ckpt__hdf5.Fclose)
#undef H5Fget_create_plist
#define H5Fget_create_plist (*ckpt__hdf5.Fget_create_plist)
#undef H5Fopen
#define H5Fopen (*ckpt__hdf5.Fopen)
#undef H5Gclose
#define H5Gclose (*ckpt__hdf5.Gclose)
#undef H5Gopen2
#define H5Gopen2 (*ckpt__hdf5.Gopen2)
#undef H5Literate
#define H5Literate (*ckpt__hdf5.Literate)
#undef H5Oclose
#define H5Oclose (*ckpt__hdf5.Oclose)
#undef H5Oget_info2
#define H5Oget_info2 (*ckpt__hdf5.Oget_info2)
#undef H5Oopen
#define H5Oopen (*ckpt__hdf5.Oopen)
#undef H5PLget_loading_state
#define H5PLget_loading_state (*ckpt__hdf5.PLget_loading_state)
#undef H5PLset_loading_state
#define H5PLset_loading_state (*ckpt__hdf5.PLset_loading_state)
#undef H5Pclose
#define H5Pclose (*ckpt__hdf5.Pclose)
#undef H5Pcreate
#define H5Pcreate (*ckpt__hdf5.Pcreate)
#undef H5Pget_chunk
#define H5Pget_chunk (*ckpt__hdf5.Pget_chunk)
#undef H5Pget_driver_info
#define H5Pget_driver_info (*ckpt__hdf5.Pget_driver_info)
#undef H5Pget_external_count
#define H5Pget_external_count (*ckpt__hdf5.Pget_external_count)
#undef H5Pget_filter2
#define H5Pget_filter2 (*ckpt__hdf5.Pget_filter2)
#undef H5Pget_layout
#define H5Pget_layout (*ckpt__hdf5.Pget_layout)
#undef H5Pget_nfilters
#define H5Pget_nfilters (*ckpt__hdf5.Pget_nfilters)
#undef H5Pget_userblock
#define H5Pget_userblock (*ckpt__hdf5.Pget_userblock)
#undef H5Pset_driver
#define H5Pset_driver (*ckpt__hdf5.Pset_driver)
#undef H5Sclose
#define H5Sclose (*ckpt__hdf5.Sclose)
#undef H5Sget_simple_extent_dims
#define H5Sget_simple_extent_dims (*ckpt__hdf5.Sget_simple_extent_dims)
#undef H5Sget_simple_extent_npoints
#define H5Sget_simple_extent_npoints (*ckpt__hdf5.Sget_simple_extent_npoints)
#undef H5Sget_simple_extent_type
#define H5Sget_simple_extent_type (*ckpt__hdf5.Sget_simple_extent_type)
#undef H5Tclose
#define H5Tclose (*ckpt__hdf5.Tclose)
#undef H5Tcopy
#define H5Tcopy (*ckpt__hdf5.Tcopy)
#undef H5Tget_class
#define H5Tget_class (*ckpt__hdf5.Tget_class)
#undef H5Tget_cset
#define H5Tget_cset (*ckpt__hdf5.Tget_cset)
#undef H5Tget_ebias
#define H5Tget_ebias (*ckpt__hdf5.Tget_ebias)
#undef H5Tget_fields
#define H5Tget_fields (*ckpt__hdf5.Tget_fields)
#undef H5Tget_member_value
#define H5Tget_member_value (*ckpt__hdf5.Tget_member_value)
#undef H5Tget_nmembers
#define H5Tget_nmembers (*ckpt__hdf5.Tget_nmembers)
#undef H5Tget_norm
#define H5Tget_norm (*ckpt__hdf5.Tget_norm)
#undef H5Tget_order
#define H5Tget_order (*ckpt__hdf5.Tget_order)
#undef H5Tget_precision
#define H5Tget_precision (*ckpt__hdf5.Tget_precision)
#undef H5Tget_sign
#define H5Tget_sign (*ckpt__hdf5.Tget_sign)
#undef H5Tget_size
#define H5Tget_size (*ckpt__hdf5.Tget_size)
#undef H5Tget_strpad
#define H5Tget_strpad (*ckpt__hdf5.Tget_strpad)
#undef H5Tget_super
#define H5Tget_super (*ckpt__hdf5.Tget_super)
#undef H5Tis_variable_str
#define H5Tis_variable_str (*ckpt__hdf5.Tis_variable_str)
#undef H5Tset_cset
#define H5Tset_cset (*ckpt__hdf5.Tset_cset)
#undef H5Tset_size
#define H5Tset_size (*ckpt__hdf5.Tset_size)
#undef H5Zfilter_avail
#define H5Zfilter_avail (*ckpt__hdf5.Zfilter_avail)
#undef H5check_version
#define H5check_version (*ckpt__hdf5.check_version)
#undef H5get_libversion
#define H5get_libversion (*ckpt__hdf5.get_libversion)
#undef H5free_memory
#define H5free_memory (*ckpt__hdf5.free_memory)
#undef H5open
#define H5open (*ckpt__hdf5.open)
#define H5P_CLS_FILE_ACCESS_ID_g (*ckpt__hdf5.P_CLS_FILE_ACCESS_ID_g)
#define H5T_C_S1_g (*ckpt__hdf5.T_C_S1_g)
#define H5T_NATIVE_DOUBLE_g (*ckpt__hdf5.T_NATIVE_DOUBLE_g)
#define H5T_NATIVE_INT64_g (*ckpt__hdf5.T_NATIVE_INT64_g)
#define H5T_NATIVE_UINT64_g (*ckpt__hdf5.T_NATIVE_UINT64_g)
#endif
#endif
