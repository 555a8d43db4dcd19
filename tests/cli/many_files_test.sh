#!/bin/sh
# many_files_test.sh - a checkpoint of 1,024 files, with 256 descriptors: the commands read all of it.
. "${srcdir:-.}/tests/cli/cli_common.sh"

# 1,024 tensors of 64 float32 each, in files of one tensor
awk 'BEGIN {
    header = "{\"__metadata__\":{\"format\":\"pt\"}"
    for (i = 0; i < 1024; i++)
        header = header sprintf(",\"layer%d.w\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[%d,%d]}", i, i * 256, i * 256 + 256)
    header = header "}"
    while (length(header) % 8)
        header = header " "
    for (n = length(header); k < 8; k++) {
        printf "\\%03o", n % 256
        n = int(n / 256)
    }
    gsub(/"/, "\\042", header)
    print header
}' >header
printf "$(cat header)" >one.safetensors
awk 'BEGIN { for (i = 0; i < 65536; i++) printf "%04x", i * 7919 % 65536 }' >>one.safetensors

ulimit -n 256 || exit 77
"$migrate" --no-sync one.safetensors hf --to hf --max-shard-size 256B >out 2>err && [ "$(ls hf/*.safetensors | wc -l)" -eq 1024 ]
check "1,024 files are written"
"$inspect" list hf >out 2>err && [ "$(grep -c ' layer[0-9]*\.w$' out)" -eq 1024 ]
check "list"
"$inspect" list --checksum --json hf >with 2>err && "$inspect" list --checksum --json one.safetensors >without 2>>err &&
    grep -o '"crc32": *[^,}]*' with >out && grep -o '"crc32": *[^,}]*' without >>err &&
    [ "$(wc -l <out)" -eq 1024 ] && cmp out err
check "list --checksum: every tensor's bytes are read, and are its own"
"$inspect" verify hf >out 2>err
check "verify"
"$inspect" stats hf >out 2>err && [ "$(grep -c ' layer[0-9]*\.w$' out)" -eq 1024 ]
check "stats"
"$inspect" diff hf one.safetensors >out 2>err
check "diff with the one file"
cp -R hf copy && "$inspect" diff hf copy >out 2>err
check "diff with another such directory"
"$inspect" extract hf layer1000.w -o w.npy >out 2>err && [ -s w.npy ]
check "extract"
for to in safetensors ckpt torch; do
    "$migrate" --no-sync hf "made.$to" --to "$to" --verify >out 2>err && "$inspect" diff "made.$to" one.safetensors >out 2>>err
    check "migrate --to $to --verify"
done
"$migrate" --no-sync hf same --to same --verify >out 2>err && diff -r hf same >>out 2>&1
check "migrate --to same --verify"
"$inspect" verify --one hf/*.safetensors >out 2>err || "$inspect" list --one hf/*.safetensors >out 2>err
check "1,024 paths of one checkpoint"
(ulimit -n 64 && "$inspect" verify hf) >out 2>err
check "with 64 descriptors"

finish 14
