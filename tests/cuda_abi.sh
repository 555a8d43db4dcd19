#!/bin/sh
# cuda_abi.sh - src/device/driver/cuda.h, which serves where the CUDA toolkit is not installed, says what NVIDIA's header
# says: the same numbers, the same layout, the same functions. Skipped where there is no toolkit to compare with.
set -u
srcdir=${srcdir:-.} CC=${CC:-cc}
own=$srcdir/src/device/driver
test -n "${CKPT_TOOLKIT:-}" || { echo "no CUDA toolkit to compare with"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/cuda_abi.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

constants=$(sed -n 's/^    \(CU[A-Z0-9_]*\) = [0-9].*/\1/p' "$own/cuda.h" | grep -v CU_JIT; echo CU_MEMHOSTALLOC_PORTABLE CU_MEMHOSTREGISTER_PORTABLE CU_STREAM_LEGACY CU_STREAM_PER_THREAD)
fields='srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch dstXInBytes dstY dstMemoryType dstHost dstDevice dstArray dstPitch WidthInBytes Height'
{
    cat <<'C'
#include <cuda.h>
#include <stddef.h>
#include <stdio.h>
#define CONSTANT(name) printf("%s %lld\n", #name, (long long)(size_t)name);
#define FIELD(name) printf("%s at %zu\n", #name, offsetof(CUDA_MEMCPY2D, name));
#define SIZE(name) printf("%s %zu bytes\n", #name, sizeof(name));
int main(void)
{
C
    for name in $constants; do echo "    CONSTANT($name)"; done
    for name in $fields; do echo "    FIELD($name)"; done
    for name in CUDA_MEMCPY2D CUresult CUdevice CUdeviceptr CUstream CUpointer_attribute; do echo "    SIZE($name)"; done
    echo '}'
} >"$work/numbers.c"
$CC -I"$own" -o "$work/ours" "$work/numbers.c" && $CC -I"$CKPT_TOOLKIT" -o "$work/theirs" "$work/numbers.c" || exit 1
"$work/ours" >"$work/ours.txt" && "$work/theirs" >"$work/theirs.txt" || exit 1
count=$(wc -l <"$work/ours.txt")
test "$count" -gt 70 || { echo "cuda_abi: only $count numbers compared"; exit 1; }
diff "$work/ours.txt" "$work/theirs.txt" || { echo "cuda_abi: < ours, > NVIDIA's"; exit 1; }

# A second declaration of a function must be compatible with the first.
{
    echo '#include <cuda.h>'
    grep '^CUresult cu' "$own/cuda.h" | sed 's/^CUresult \(cu[A-Za-z0-9_]*\).*/#undef \1/'
    grep '^CUresult cu' "$own/cuda.h"
} >"$work/functions.c"
functions=$(grep -c '^CUresult cu' "$work/functions.c")
test "$functions" -gt 50 || { echo "cuda_abi: only $functions functions compared"; exit 1; }
$CC -Werror -fsyntax-only -I"$CKPT_TOOLKIT" "$work/functions.c" || exit 1
sed 's/^CUresult cuInit.*/CUresult cuInit(char flags);/' "$work/functions.c" >"$work/wrong.c"
$CC -fsyntax-only -I"$CKPT_TOOLKIT" "$work/wrong.c" 2>/dev/null && { echo "cuda_abi: a wrong declaration passed"; exit 1; }
echo "cuda_abi: $count numbers and $functions functions are NVIDIA's"
