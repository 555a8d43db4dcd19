/* scan/table.c - names and what they mean. What is harmless stays so whatever it is called with: a class that only
 * keeps its arguments, a function that only makes values of them (it may be asked for more than there is memory: that is
 * not what is judged). What is dangerous runs code or commands, imports, opens
 * files or connections, or reaches any attribute of any object, by itself. Sources: what torch.load(weights_only=True)
 * allows (torch 2.13), what real trainers' checkpoints name, the documentation of Python's and torch's modules. */
#include "scan/work.h"

#define H CKPT_DANGER_HARMLESS
#define U CKPT_DANGER_UNKNOWN
#define D CKPT_DANGER_DANGEROUS

/* clang-format off */
const ckpt__scan_row ckpt__scan_table[] = {
    {D, "os posix nt posixpath ntpath genericpath", "*", "runs commands, ends processes, reads or changes files"},
    {D, "subprocess _posixsubprocess commands popen2 pty pexpect ptyprocess sh fabric invoke paramiko plumbum "
     "delegator pipes _bootsubprocess",
     "*",
     "runs commands"},
    {D, "sys _sys", "*", "reaches every module of the program, and changes how it runs"},
    {D, "shutil tempfile _tempfile fileinput filecmp glob dircache zipfile tarfile gzip bz2 lzma dbm anydbm whichdb "
     "dumbdbm gdbm bsddb shelve sqlite3 _sqlite3 mmap fcntl dbhash _dbm _gdbm _posixshmem aifc sunau wave chunk sndhdr "
     "imghdr uu zipapp cgitb tabnanny mimetypes pstats sysconfig",
     "*",
     "opens, writes or removes files"},
    {D, "io _io _pyio StringIO cStringIO",
     "open open_code FileIO OpenWrapper _open_code_with_warning",
     "opens files"},
    {D, "tokenize argparse base64", "open _builtin_open main FileType ArgumentParser", "opens files"},
    {D, "pathlib",
     "Path.open Path.write_text Path.write_bytes Path.unlink Path.rmdir Path.rename Path.replace Path.chmod "
     "Path.touch Path.mkdir Path.symlink_to Path.hardlink_to Path.read_text Path.read_bytes PosixPath.open "
     "PosixPath.write_text PosixPath.write_bytes PosixPath.unlink PosixPath.rmdir PosixPath.rename PosixPath.replace "
     "PosixPath.chmod PosixPath.touch PosixPath.mkdir PosixPath.symlink_to PosixPath.hardlink_to PosixPath.read_text "
     "PosixPath.read_bytes WindowsPath.write_text WindowsPath.write_bytes WindowsPath.unlink WindowsPath.open "
     "WindowsPath.rename WindowsPath.replace",
     "opens, writes or removes files"},
    {D, "builtins __builtin__ __builtins__",
     "eval exec execfile compile open file __import__ getattr setattr delattr globals locals vars dir input "
     "raw_input apply breakpoint help reload __build_class__ exit quit license credits copyright reduce __loader__ "
     "__spec__ __dict__",
     "runs code, opens files, or reaches any attribute of any object"},
    {D, "importlib _frozen_importlib _frozen_importlib_external imp _imp pkgutil zipimport ihooks modulefinder runpy "
     "pkg_resources",
     "*",
     "imports or runs any module"},
    {D, "code codeop bdb pdb cProfile profile hotshot timeit trace doctest pydoc test unittest idlelib lib2to3 "
     "ensurepip venv pip setuptools distutils site sitecustomize usercustomize compileall py_compile new user "
     "rexec Bastion _pyrepl _osx_support _aix_support pyclbr _lsprof _xxsubinterpreters _interpreters interpreters "
     "_testcapi _testinternalcapi pytest _pytest nose tox virtualenv",
     "*",
     "runs code that it is given as text, or programs"},
    {D, "types",
     "CodeType FunctionType LambdaType MethodType DynamicClassAttribute coroutine new_class prepare_class",
     "makes code of bytes, or functions of code"},
    {D, "marshal", "*", "makes code of bytes"},
    {D, "inspect gc linecache tracemalloc faulthandler atexit signal _signal",
     "*",
     "reaches any object of the program, or has something run later"},
    {D, "ctypes _ctypes cffi _cffi_backend llvmlite cppyy", "*", "calls machine code"},
    {D, "socket _socket ssl _ssl socketserver SocketServer select selectors http httplib httplib2 http_parser urllib "
     "urllib2 urllib3 urlparse requests aiohttp httpx ftplib smtplib smtpd imaplib poplib nntplib telnetlib xmlrpc "
     "xmlrpclib SimpleXMLRPCServer DocXMLRPCServer BaseHTTPServer SimpleHTTPServer CGIHTTPServer asyncore asynchat "
     "webbrowser antigravity wsgiref cgi websocket websockets tornado twisted flask pycurl boto boto3 botocore "
     "fsspec s3fs gcsfs huggingface_hub.file_download wget robotparser cookielib Cookie",
     "*",
     "talks to the network"},
    {D, "asyncio _asyncio multiprocessing _multiprocessing threading _thread thread _threading_local dummy_threading "
     "dummy_thread _dummy_thread concurrent sched",
     "*",
     "starts threads or processes, or runs what it is given"},
    {D, "pickle _pickle cPickle pickletools dill cloudpickle jsonpickle shelve",
     "*",
     "unpickles bytes or files that are not seen here, or rebuilds code"},
    {D, "joblib", "load Parallel delayed", "unpickles a file, or runs what it is given"},
    {D, "joblib.numpy_pickle", "load load_temporary_memmap _unpickle", "unpickles a file"},
    {D, "pandas pandas.io.pickle pandas.io.common",
     "read_pickle read_csv read_json read_html read_sql read_hdf get_handle urlopen",
     "reads or unpickles a file"},
    {D, "pandas.core.computation.eval pandas.core.computation", "*", "evaluates text as code"},
    {D, "functools _functools",
     "reduce partialmethod cached_property singledispatch singledispatchmethod",
     "calls what it is given"},
    {D, "operator _operator",
     "attrgetter methodcaller itemgetter call __call__ getitem setitem delitem",
     "reaches any attribute or calls any method"},
    {D, "logging.config logging.handlers", "*", "opens files or connections, or imports what it is told"},
    {D, "logging",
     "FileHandler RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler SocketHandler HTTPHandler "
     "SMTPHandler SysLogHandler fileConfig dictConfig listen basicConfig config handlers",
     "opens files or connections, or imports what it is told"},
    {D, "uuid",
     "_popen _get_command_stdout _find_mac _ifconfig_getter _ip_getter _arp_getter _lanscan_getter _netstat_getter "
     "_ipconfig_getter _netbios_getter _find_mac_near_keyword _find_mac_under_heading os sys",
     "runs commands"},
    {D, "platform", "*", "runs commands"},
    {D, "getpass curses readline rlcompleter cmd tty termios resource grp pwd spwd crypt syslog nis msilib winreg "
     "_winreg _winapi msvcrt winsound ossaudiodev",
     "*",
     "reaches the terminal, the user's or the system's data"},
    {D, "turtle tkinter Tkinter turtledemo _tkinter _curses _curses_panel tkFileDialog tkSimpleDialog tkMessageBox "
     "FileDialog SimpleDialog Dialog Tix ttk ScrolledText",
     "*",
     "starts a user interface, and runs what it is given"},
    {D, "xml.sax.saxutils xml.sax xml.dom xml.etree _elementtree", "*", "reads files or addresses that it is given"},
    {D, "codecs", "open EncodedFile StreamReaderWriter lookup register", "opens files"},
    {D, "locale gettext mailcap mailbox netrc plistlib configparser ConfigParser", "*", "reads files or runs commands"},
    {D, "yaml ruamel", "*", "rebuilds any object from text"},
    {D, "six", "exec_ moves", "runs code, or reaches any module"},
    {D, "past.builtins past.utils future.utils", "*", "runs code, or calls what it is given"},
    {D, "warnings", "_getcategory _setoption _processoptions", "imports what it is told"},
    {D, "copy", "_reconstruct", "calls what it is given"},
    {D, "time", "clock_settime clock_settime_ns", "sets the clock"},
    {D, "numpy.testing numpy.testing._private numpy.f2py numpy.distutils numpy.ctypeslib numpy.lib.npyio "
     "numpy.lib._npyio_impl numpy.lib.format numpy.lib._format_impl numpy.lib._datasource numpy._pytesttester "
     "numpy.compat",
     "*",
     "runs code or commands, or opens and unpickles files"},
    {D, "numpy",
     "load loads save savez savez_compressed loadtxt genfromtxt fromfile memmap fromregex savetxt DataSource f2py "
     "testing vectorize apply_along_axis apply_over_axes fromfunction piecewise fromiter frompyfunc",
     "opens files, or calls what it is given"},
    {D, "numpy.lib.utils numpy.lib._utils_impl", "safe_eval source info", "evaluates text, or reads files"},
    {D, "numpy.rec numpy.core.records numpy._core.records", "fromfile", "opens files"},
    {D, "numpy.core numpy.core.multiarray numpy._core numpy._core.multiarray numpy.core._multiarray_umath "
     "numpy._core._multiarray_umath",
     "fromfile _load_from_filelike set_typeDict loadtxt memmap",
     "opens files"},
    {D, "numpy.core.memmap numpy._core.memmap numpy.core._exec_command", "*", "opens files"},
    {D, "scipy.io scipy.weave scipy._lib._testutils", "*", "opens files, or runs code"},
    {D, "torch",
     "load save compile hub jit package ops classes library fromfile from_file import_ir_module _import_dotted_name "
     "typename eval vmap cond while_loop",
     "opens and unpickles files, or compiles and runs code"},
    {D, "torch.hub torch.package torch.utils.cpp_extension torch._inductor torch._dynamo torch._export "
     "torch.utils.bottleneck torch.utils.model_zoo torch.utils.collect_env torch.distributed.run "
     "torch.distributed.launch torch.distributed.launcher torch.distributed.elastic torch.distributed.rpc "
     "torch.multiprocessing torch.testing torch.utils._config_module torch._appdirs torch.export torch.utils.viz "
     "torch.utils.benchmark torch.utils.show_pickle torch.utils.model_dump torch.utils.file_baton "
     "torch.utils.hipify torch.utils._cpp_embed_headers torch.utils.data.datapipes torch.utils.data.graph "
     "torch.backends._nnapi torch._utils_internal torch._sources torch._vendor torch.for_onnx torch._C._jit torch._ops "
     "torch._classes torch.ops torch.classes torch._library torch.library torch.compiler torch._compile "
     "torch._jit_internal torch._strobelight "
     "torch._weights_only_unpickler torch._C._aoti torch._C._distributed_c10d torch._C._distributed_rpc torch._C._profiler "
     "torch._C._dynamo torch._functorch torch._higher_order_ops torch._lazy torch._native torch.onnx torch.mps "
     "torch.cuda._utils torch.cuda._memory_viz torch.cuda.tunable torch.distributed.nn.jit torch.distributed.rendezvous "
     "torch.distributed.checkpoint.filesystem torch.distributed.checkpoint.hf_storage "
     "torch.distributed.checkpoint.quantized_hf_storage torch.distributed.checkpoint._consolidate_hf_safetensors "
     "torch.distributed.checkpoint._fsspec_filesystem torch.distributed.checkpoint._async_process_executor "
     "torch.distributed.checkpoint.state_dict_loader torch.distributed.checkpoint.state_dict_saver "
     "torch.distributed.checkpoint.format_utils torch.utils.tensorboard torch.monitor",
     "*",
     "downloads, compiles or runs code, or opens and unpickles files"},
    {D, "torch.jit", "*", "compiles and runs code, or loads it from files"},
    {D, "torch.fx torch.fx.graph_module torch.fx.experimental torch.fx.graph torch.fx.interpreter",
     "*",
     "makes code of text and runs it"},
    {D, "torch.serialization",
     "load _load _legacy_load save _open_file_like _open_file _open_zipfile_reader _open_zipfile_writer "
     "_open_buffer_reader pickle os io sys shutil tarfile tempfile struct import_module add_safe_globals "
     "clear_safe_globals mkdtemp get_source_lines_and_file _import_dotted_name register_package",
     "opens and unpickles files"},
    {D, "torch.distributed torch.distributed.distributed_c10d",
     "init_process_group TCPStore FileStore HashStore PrefixStore Store broadcast_object_list all_gather_object "
     "gather_object scatter_object_list send_object_list recv_object_list _object_to_tensor _tensor_to_object rendezvous",
     "opens files or connections, or unpickles bytes that are not seen here"},
    {D, "torch._C",
     "PyTorchFileReader PyTorchFileWriter import_ir_module import_ir_module_from_buffer _import_ir_module_from_package "
     "_construct_storage_from_data_pointer _construct_CUDA_Tensor_From_Storage_And_Metadata _from_dlpack from_file "
     "_jit_script_compile _create_module _load_jit_module_from_file _load_jit_module_from_bytes "
     "_load_mobile_module_from_file _load_mobile_module_from_bytes CompilationUnit FileCheck _jit_to_backend parse_ir",
     "opens files, compiles code, or takes addresses for data"},
    {D, "torch.autograd.profiler", "load_nvprof", "opens files"},
    {D, "torch.utils.dlpack", "*", "takes addresses for data"},
    {D, "torch._utils", "_import_dotted_name try_import sys os traceback functools logging importlib", "imports what it is told"},
    {D, "torch.storage", "_share_memory_map os io sys pickle functools warnings _new_shared", "opens files"},
    {D, "torch.UntypedStorage torch.TypedStorage torch.FloatStorage torch.ByteStorage torch.Tensor",
     "from_file",
     "opens files"},
    {D, "transformers.utils.hub transformers.dynamic_module_utils transformers.file_utils "
     "transformers.utils.import_utils transformers.pipelines transformers.commands transformers.agents "
     "transformers.tools",
     "*",
     "downloads or runs code"},
    {D, "keras.models keras.saving keras.src.saving tensorflow.io tensorflow.python.lib.io tensorflow.saved_model",
     "*",
     "loads or runs code"},
    {D, "sklearn.utils._testing sklearn.datasets", "*", "opens files, or runs code"},
    {D, "statsmodels.iolib.smpickle statsmodels.iolib", "*", "unpickles a file"},
    {D, "sympy sympy.core.sympify sympy.parsing", "*", "evaluates text as code"},
    {D, "numexpr", "*", "evaluates text as code"},
    {D, "jinja2 mako django", "*", "runs templates"},
    {D, "cloudpickle.cloudpickle cloudpickle.cloudpickle_fast", "*", "rebuilds code"},
    {D, "copyreg copy_reg",
     "add_extension clear_extension_cache pickle remove_extension constructor dispatch_table _extension_registry "
     "_inverted_registry _extension_cache",
     "changes how everything else is unpickled"},
    {D, "weakref", "finalize", "has something run later"},
    {D, "contextlib _contextvars contextvars", "*", "calls what it is given"},
    {D, "IPython ipykernel jupyter jupyter_client nbformat", "*", "runs code"},
    {D, "win32api win32com win32process win32con pythoncom wmi", "*", "runs commands"},
    {D, "twisted.internet celery dask distributed ray pyspark", "*", "runs what it is given, here or on other machines"},
    {D, "mlflow wandb", "*", "downloads and unpickles files"},
    {D, "psutil", "*", "starts or ends processes"},
    {D, "typing", "get_type_hints ForwardRef", "evaluates text as code"},
    {D, "ast", "literal_eval parse", "reads text as code"},
    {D, "dataclasses",
     "make_dataclass _create_fn _init_fn _repr_fn _cmp_fn _hash_fn _frozen_get_del_attr _process_class dataclass "
     "_FuncBuilder",
     "makes code of text and runs it"},
    {D, "string", "Formatter", "reaches any attribute of any object"},
    {D, "random", "_os os _urandom", "reaches os"},
    {H, "torch torch.cuda",
     "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage DoubleStorage "
     "FloatStorage HalfStorage IntStorage LongStorage QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage "
     "QUInt8Storage ShortStorage BFloat16Tensor BoolTensor ByteTensor CharTensor ComplexDoubleTensor "
     "ComplexFloatTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor QInt32Tensor QInt8Tensor "
     "QUInt2x4Tensor QUInt4x2Tensor QUInt8Tensor ShortTensor",
     "a kind of tensor"},
    {H, "torch.sparse torch.cuda.sparse",
     "BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor",
     "a kind of tensor"},
    {H, "torch", "Size Tensor device dtype layout Generator UntypedStorage TypedStorage", "a tensor, or what describes one"},
    {H, "torch",
     "bfloat16 bits16 bits1x8 bits2x4 bits4x2 bits8 bool complex128 complex32 complex64 cfloat cdouble chalf double "
     "float float16 float32 float64 half int short long float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
     "float8_e5m2fnuz float8_e8m0fnu int1 int16 int2 int3 int32 int4 int5 int6 int64 int7 int8 qint32 qint8 quint2x4 "
     "quint4x2 quint8 uint1 uint16 uint2 uint3 uint32 uint4 uint5 uint6 uint64 uint7 uint8",
     "a dtype"},
    {H, "torch",
     "per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine "
     "per_tensor_symmetric strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged _mkldnn "
     "contiguous_format channels_last channels_last_3d preserve_format",
     "a constant"},
    {H, "torch._C", "Generator _TensorBase TensorBase", "a tensor, or a generator of random numbers"},
    {H, "torch._utils",
     "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy _rebuild_meta_tensor_no_storage "
     "_rebuild_nested_tensor _rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor "
     "_rebuild_sparse_tensor _rebuild_sparse_csr_tensor _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 "
     "_rebuild_wrapper_subclass _rebuild_xla_tensor _rebuild_mlc_tensor _rebuild_ort_tensor _rebuild_hpu_tensor "
     "torch.channels_last torch.channels_last_3d torch.contiguous_format torch.preserve_format",
     "puts a tensor together"},
    {H, "torch._tensor", "_rebuild_from_type_v2 _rebuild_from_type", "puts a tensor together"},
    {H, "torch.tensor", "_rebuild_from_type_v2 _rebuild_from_type", "puts a tensor together"},
    {H, "torch.nested._internal.nested_tensor", "_rebuild_njt NestedTensor", "puts a tensor together"},
    {H, "torch._dynamo.decorators", "_DimRange", "the bounds of a dimension of a nested tensor"},
    {H, "torch.storage", "UntypedStorage TypedStorage _TypedStorage _UntypedStorage _StorageBase", "a storage"},
    {H, "torch.serialization", "_get_layout", "a layout by its name"},
    {H, "torch.nn.parameter torch.nn",
     "Parameter Buffer UninitializedParameter UninitializedBuffer _ParameterMeta",
     "a parameter"},
    {H, "torch.nn.modules torch.optim torch.optim.lr_scheduler torch.ao.nn.quantized torch.nn.quantized",
     "A*",
     "a class of torch's modules or optimizers"},
    {H, "torch.nn.functional",
     "relu gelu silu selu celu elu leaky_relu tanh sigmoid softmax log_softmax hardtanh hardswish hardsigmoid mish "
     "softplus relu6 glu logsigmoid softsign tanhshrink cross_entropy mse_loss",
     "a function of tensors"},
    {H, "torch", "relu tanh sigmoid softmax", "a function of tensors"},
    {H, "torch.amp.grad_scaler torch.cuda.amp.grad_scaler",
     "GradScaler OptState _refresh_per_optimizer_state",
     "the scaler of mixed precision"},
    {H, "torch.distributed.tensor torch.distributed._tensor torch.distributed._tensor.api",
     "DTensor",
     "a tensor over several devices"},
    {H, "torch.distributed.tensor._dtensor_spec torch.distributed._tensor.placement_types",
     "DTensorSpec ShardOrderEntry TensorMeta",
     "where its parts lie"},
    {H, "torch.distributed.tensor.placement_types torch.distributed._tensor.placement_types",
     "Replicate Shard Partial _Partial _StridedShard",
     "where its parts lie"},
    {H, "torch.distributed.device_mesh torch.distributed._tensor.device_mesh", "DeviceMesh", "the devices that it lies on"},
    {H, "torch.distributed._mesh_layout", "_FlatLayout _MeshLayout", "the devices that it lies on"},
    {H, "torch.distributed.checkpoint.metadata", "A*", "what a sharded checkpoint lists"},
    {H, "torch.distributed._shard.metadata torch.distributed._shard.sharding_spec",
     "ShardMetadata",
     "what a sharded checkpoint lists"},
    {H, "torch.distributed.checkpoint.planner", "A*", "what a sharded checkpoint lists"},
    {H, "torch.distributed.checkpoint.filesystem", "_StorageInfo _StoragePrefix", "what a sharded checkpoint lists"},
    {H, "torch.distributed._shard.sharded_tensor.api torch.distributed._shard.sharded_tensor",
     "ShardedTensor ShardedTensor.ProcessGroupState",
     "a tensor over several devices"},
    {H, "torch.distributed._shard.sharded_tensor.shard torch.distributed._shard.sharded_tensor.metadata",
     "Shard ShardedTensorMetadata TensorProperties MEM_FORMAT_ENCODING",
     "a tensor over several devices"},
    {H, "torch.distributed._shard.sharding_spec.chunk_sharding_spec torch.distributed._shard.sharding_spec.api",
     "ChunkShardingSpec EnumerableShardingSpec",
     "where its parts lie"},
    {H, "torch.distributed.remote_device", "_remote_device", "where its parts lie"},
    {H, "deepspeed.runtime.fp16.loss_scaler", "LossScaler DynamicLossScaler", "the scaler of mixed precision"},
    {H, "deepspeed.runtime.zero.config deepspeed.utils.tensor_fragment",
     "ZeroStageEnum fragment_address",
     "settings of DeepSpeed"},
    {H, "megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan", "what a sharded checkpoint lists"},
    {H, "torch.utils.data.dataset", "TensorDataset Subset ConcatDataset", "a set of data"},
    {H, "torch.utils.data.sampler", "A*", "an order of data"},
    {H, "torch.utils.hooks", "RemovableHandle", "a number of a hook"},
    {H, "torch.torch_version", "TorchVersion", "a version"},
    {H, "torch.jit._pickle",
     "build_intlist build_tensorlist build_doublelist build_boollist restore_type_tag",
     "makes a list"},
    {H, "numpy",
     "dtype ndarray matrix bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 intp uintp intc uintc "
     "longlong ulonglong longdouble clongdouble float16 float32 float64 complex64 complex128 float_ complex_ str_ "
     "bytes_ void object_ datetime64 timedelta64 generic number integer floating long ulong",
     "an array, or what describes one"},
    {H, "numpy.core.multiarray numpy._core.multiarray", "_reconstruct scalar array", "puts an array together"},
    {H, "numpy.core.numeric numpy._core.numeric numpy._core.internal numpy.core._internal numpy._core._internal",
     "_frombuffer _convert_to_stringdtype_kwargs",
     "puts an array together"},
    {H, "numpy.dtypes", "A*", "a dtype"},
    {H, "numpy.ma.core", "MaskedArray _mareconstruct", "an array with a mask"},
    {H, "numpy.random._pickle", "__bit_generator_ctor __generator_ctor __randomstate_ctor", "a generator of random numbers"},
    {H, "numpy.random._mt19937 numpy.random._pcg64 numpy.random._philox numpy.random._sfc64 numpy.random._generator "
     "numpy.random.mtrand",
     "MT19937 PCG64 PCG64DXSM Philox SFC64 Generator RandomState",
     "a generator of random numbers"},
    {H, "numpy.random.bit_generator",
     "SeedSequence SeedlessSeedSequence __pyx_unpickle_SeedSequence",
     "a generator of random numbers"},
    {H, "numpy.rec numpy", "recarray record", "an array of records"},
    {H, "joblib.numpy_pickle sklearn.externals.joblib.numpy_pickle",
     "NumpyArrayWrapper NDArrayWrapper ZNDArrayWrapper",
     "an array that follows in the file"},
    {H, "collections", "OrderedDict defaultdict deque Counter ChainMap UserDict UserList UserString", "a container"},
    {H, "_collections", "OrderedDict defaultdict deque", "a container"},
    {H, "builtins __builtin__",
     "int long float complex bool str unicode bytes bytearray list tuple dict set frozenset object slice range "
     "xrange Ellipsis NotImplemented None True False len abs sum min max round pow divmod sorted reversed enumerate "
     "zip hash hex oct bin ord chr unichr repr ascii all any buffer memoryview print",
     "makes plain values"},
    {H, "exceptions", "A*", "an exception"},
    {H, "_codecs", "encode", "makes bytes of a string"},
    {H, "copyreg copy_reg", "_reconstructor __newobj__ __newobj_ex__", "makes an object of a class that is named beside it"},
    {H, "argparse", "Namespace", "attributes"},
    {H, "types", "SimpleNamespace NoneType GenericAlias MappingProxyType", "attributes"},
    {H, "datetime _datetime", "date datetime time timedelta timezone tzinfo UTC", "a date or time"},
    {H, "decimal _decimal", "Decimal", "a number"},
    {H, "fractions", "Fraction", "a number"},
    {H, "uuid", "UUID SafeUUID", "a number"},
    {H, "pathlib pathlib._local",
     "Path PurePath PosixPath PurePosixPath WindowsPath PureWindowsPath",
     "a path, which is not opened"},
    {H, "random", "Random", "a generator of random numbers"},
    {H, "_random", "Random", "a generator of random numbers"},
    {H, "enum", "Enum IntEnum Flag IntFlag StrEnum auto", "a constant"},
    {H, "re", "Pattern _compile RegexFlag", "a regular expression"},
    {H, "re._compiler sre_compile", "Pattern", "a regular expression"},
    {H, "ipaddress", "IPv4Address IPv6Address IPv4Network IPv6Network", "an address, which is not called"},
    {H, "io _io", "BytesIO StringIO", "bytes in memory"},
    {H, "array", "array _array_reconstructor", "an array of numbers"},
    {H, "math cmath", "sqrt exp log cos sin tan pi e floor ceil", "a function of numbers"},
    {H, "itertools", "count repeat chain islice cycle", "an iterator"},
    {H, "zoneinfo", "ZoneInfo", "a time zone"},
    {H, "accelerate.state", "PartialState", "settings of accelerate"},
    {H, "accelerate.utils.dataclasses",
     "DistributedType PrecisionType DynamoBackend RNGType LoggerType ComputeEnvironment AutocastKwargs "
     "GradientAccumulationPlugin",
     "settings of accelerate"},
    {H, "accelerate.data_loader", "SeedableRandomSampler", "an order of data"},
    {H, "accelerate.utils.deepspeed accelerate.utils.dataclasses",
     "HfDeepSpeedConfig DeepSpeedPlugin",
     "settings of accelerate"},
    {H, "transformers.trainer_pt_utils", "AcceleratorConfig", "settings of the Trainer"},
    {H, "transformers.trainer_utils",
     "HubStrategy IntervalStrategy SaveStrategy SchedulerType EvaluationStrategy FSDPOption ShardedDDPOption "
     "EvalPrediction",
     "settings of the Trainer"},
    {H, "transformers.training_args", "TrainingArguments OptimizerNames ParallelMode", "settings of the Trainer"},
    {H, "transformers.training_args_seq2seq", "Seq2SeqTrainingArguments", "settings of the Trainer"},
    {H, "transformers.integrations.deepspeed transformers.deepspeed",
     "HfTrainerDeepSpeedConfig HfDeepSpeedConfig",
     "settings of the Trainer"},
    {H, "peft.utils.peft_types", "PeftType TaskType", "settings of PEFT"},
    {H, "lightning.fabric.utilities.data lightning_fabric.utilities.data pytorch_lightning.utilities.parsing "
     "lightning.pytorch.utilities.parsing",
     "AttributeDict",
     "attributes"},
    {H, "omegaconf.dictconfig omegaconf.listconfig omegaconf.base omegaconf.nodes", "A*", "settings"},
    {H, "bitsandbytes.nn.modules bitsandbytes.functional", "Params4bit Int8Params QuantState", "a parameter of bitsandbytes"},
    {U, "torch.storage", "_load_from_bytes", "unpickles bytes; those in the file were checked too"},
    {U, "functools", "partial", "keeps a function with arguments, to be called later; a dangerous one would be listed too"},
    {U, "__main__", "*", "a class or function of the program that saved it, and of the one that loads it"},
    {U, "__torch__",
     "*",
     "a class of a TorchScript archive, whose code is in the archive: no unpickler of Python imports it"},
};
/* clang-format on */
const size_t ckpt__scan_table_size = sizeof ckpt__scan_table / sizeof *ckpt__scan_table;

const char *const ckpt__scan_reaching[] = {
    "__globals__",
    "__builtins__",
    "__class__",
    "__base__",
    "__bases__",
    "__mro__",
    "mro",
    "__subclasses__",
    "__init__",
    "__new__",
    "__call__",
    "__dict__",
    "__code__",
    "__closure__",
    "__defaults__",
    "__kwdefaults__",
    "__func__",
    "__self__",
    "__module__",
    "__import__",
    "__loader__",
    "__spec__",
    "__getattribute__",
    "__getattr__",
    "__setattr__",
    "__delattr__",
    "__reduce__",
    "__reduce_ex__",
    "__setstate__",
    "__wrapped__",
    "__get__",
    "__set__",
    "__init_subclass__",
    "__subclasshook__",
    "__prepare__",
    "__build_class__",
    "func_globals",
    "func_code",
    "f_globals",
    "f_locals",
    "f_builtins",
    "f_back",
    "gi_frame",
    "gi_code",
    "cr_frame",
    "ag_frame",
    "tb_frame",
    "im_func",
    "im_self",
    "im_class",
    "eval",
    "exec",
    "compile",
    "system",
    "popen",
    "spawn",
    "fork",
    "execv",
    "getattr",
    "setattr",
    "import_module",
    "load_module",
    "exec_module",
    "get_loader",
    "write_text",
    "write_bytes",
    "unlink",
    "rmdir",
};
const size_t ckpt__scan_reaching_size = sizeof ckpt__scan_reaching / sizeof *ckpt__scan_reaching;

const char *const ckpt__scan_anywhere[] = {
    "os",
    "posix",
    "nt",
    "sys",
    "subprocess",
    "shutil",
    "builtins",
    "__builtin__",
    "__builtins__",
    "importlib",
    "ctypes",
    "socket",
    "marshal",
    "runpy",
    "pty",
    "_posixsubprocess",
    /* no modules, but as little the names of anything else */
    "Popen",
    "attrgetter",
    "methodcaller",
    "import_module",
    "check_output",
    "urlopen",
    "execfile",
    "getoutput",
    "run_path",
    "_run_code",
    "_run_module_code",
    "create_subprocess_shell",
    "create_subprocess_exec",
};
const size_t ckpt__scan_anywhere_size = sizeof ckpt__scan_anywhere / sizeof *ckpt__scan_anywhere;
