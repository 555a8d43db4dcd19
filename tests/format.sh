#!/bin/sh
# format.sh [-i] - is the tree laid out by .clang-format (version 14, Debian 12's)? With -i it is, afterwards. Tables whose rows
# clang-format would tear apart stand between /* clang-format off */ and /* clang-format on */, with nothing else in those comments.
# Samples are laid out by hand: docs/trainers.md shows and counts their lines. Run by .ci/run.
cd "$(dirname "$0")/.." || exit 99
mode="--dry-run -Werror"
test "${1:-}" != -i || mode=-i
# shellcheck disable=SC2046,SC2086
${CLANG_FORMAT:-clang-format} $mode $(find src include tests bench \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' \) ! -path 'tests/data/*' | sort)
