#!/bin/sh
# bench.sh - do the benchmarks say what their samples say? Known samples go through bench's table, JSON and chart; nothing is timed.
# What the pages show of the result (README, bench/README, bench/result.svg) has to be what bench/result.json says.
srcdir=${srcdir:-.}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || { echo "python3 (3.8 or newer) is not there"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/bench.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
PYTHONDONTWRITEBYTECODE=1 python3 "$srcdir/tests/bench_checks.py" "$srcdir" "$work"
