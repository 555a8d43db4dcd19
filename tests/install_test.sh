#!/bin/sh
# install_test.sh - what `make install` puts down is enough to build and run a program with, by pkg-config alone; the
# installed commands run; nothing of the tests is installed; `make uninstall` leaves no file.
set -u
srcdir=${srcdir:-.} builddir=${builddir:-.} CC=${CC:-cc} PKG_CONFIG=${PKG_CONFIG:-pkg-config} MAKE=${MAKE:-make}
test "${CKPT_SANITIZERS:-no}" = yes && { echo "install_test: not with sanitizers (the sample is built without)"; exit 77; }
unset MAKEFLAGS MFLAGS MAKELEVEL
work=$(mktemp -d "${TMPDIR:-/tmp}/install.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
fail() { echo "install_test: $*"; exit 1; }

root=$work/root
$MAKE -C "$builddir" install DESTDIR="$root" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "make install failed"; }
pc=$(find "$root" -name ckpt.pc)
test -n "$pc" || fail "ckpt.pc was not installed"
test "$(find "$root" -name '*fakecuda*' -o -name 'libcuda*' -o -name 'libckpt_core*' -o -name 'test_*' | wc -l)" = 0 ||
    fail "a part of the tests was installed: $(find "$root" -name 'libcuda*' -o -name 'test_*')"

PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$(dirname "$pc")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH
version=$($PKG_CONFIG --modversion ckpt) || fail "pkg-config does not know ckpt"
test "$version" = "${CKPT_VERSION:?set by make check}" || fail "ckpt.pc says $version, the package is $CKPT_VERSION"

cat >"$work/sample.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <ckpt/ckpt.h>

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    float weight[3] = { 1.0f, -2.0f, 0.5f }, saved[3];
    int64_t shape[1] = { 3 }, step = 42;
    ckpt_state *state = ckpt_state_new();
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = "weight", d.dtype = CKPT_F32, d.ndim = 1, d.shape = shape, d.role = CKPT_ROLE_PARAM, d.data = weight;
    if (argc < 2 || !state || ckpt_state_tensor(state, &d, &err) < 0 || ckpt_state_i64(state, "step", &step, &err) < 0 ||
        ckpt_save(state, argv[1], NULL, &err) < 0)
        goto fail;
    memcpy(saved, weight, sizeof saved);
    memset(weight, 0, sizeof weight);
    step = 0;
    if (ckpt_restore(state, argv[1], NULL, NULL, &err) < 0)
        goto fail;
    if (memcmp(saved, weight, sizeof saved) != 0 || step != 42) {
        fprintf(stderr, "restored, but not what was saved\n");
        return 1;
    }
    printf("ckpt %s (%s)\n", ckpt_version(), ckpt_build_info());
    ckpt_state_free(state);
    return 0;
fail:
    fprintf(stderr, "%s: %s\n", err.object, err.message);
    return 1;
}
C
flags=$($PKG_CONFIG --cflags --libs ckpt) || fail "pkg-config --cflags --libs ckpt"
# shellcheck disable=SC2086
$CC -std=c11 -Wall -Wextra -Werror -o "$work/sample" "$work/sample.c" $flags || fail "the sample does not build with: $flags"
libdir=$(dirname "$(find "$root" -name 'libckpt*.so' | head -n 1)")
LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
said=$("$work/sample" "$work/one.ckpt") || fail "the sample failed"
case $said in "ckpt $version (cuda: "*) ;; *) fail "the sample said: $said" ;; esac

for command in ckpt-inspect ckpt-migrate; do
    path=$(find "$root" -path "*/bin/$command" -type f)
    test -x "$path" || fail "$command was not installed"
    "$path" --version >"$work/out" || fail "$command --version ends with $?"
    grep -qF "$version" "$work/out" || fail "$command --version does not say $version: $(cat "$work/out")"
    test -n "$(find "$root" -name "$command.1*")" || fail "$command has no man page"
done
"$(find "$root" -path "*/bin/ckpt-inspect" -type f)" list "$work/one.ckpt" | grep -q weight ||
    fail "the installed ckpt-inspect does not list what the sample saved"
test -n "$(find "$root" -name 'ckpt.3*')" || fail "ckpt(3) was not installed"
for file in bash-completion/completions/ckpt-inspect bash-completion/completions/ckpt-migrate zsh/site-functions/_ckpt; do
    test -n "$(find "$root" -path "*/share/$file")" || fail "$file was not installed"
done

unset PKG_CONFIG_SYSROOT_DIR
$MAKE -C "$builddir" uninstall DESTDIR="$root" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "make uninstall failed"; }
left=$(find "$root" ! -type d)
test -z "$left" || fail "make uninstall left: $left"
echo "install_test: $said"
