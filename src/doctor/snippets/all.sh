#!/bin/sh
# all.sh - the templates as C on stdout, for what is built without make: tests/fuzz, tests/gpu, tests/frozen_headers.sh.
cd "$(dirname "$0")/../../.." || exit 99
# shellcheck disable=SC2046
exec "${AWK:-awk}" -f src/doctor/snippets/embed.awk src/doctor/template.h \
    $(sed -n '/^snippet_templates = /,/[^\\]$/s/^[[:blank:]]*\(src[^ ]*\).*/\1/p' src/doctor/Makefile.inc)
