#!/bin/sh
# Runs test programs that were built with clang's thread sanitizer. OpenMP's runtime is not built with it, so what its barriers and queues order would
# look like races; libarcher.so, which comes with it, tells the sanitizer of them. Usage: tests/analysis/tsan.sh PROGRAM...
set -u
cd "$(dirname "$0")/../.." || exit 1
export TSAN_OPTIONS=ignore_noninstrumented_modules=1 OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive ONLY_PROGRAMS=1
if ! ARCHER_OPTIONS=verbose=1 "$1" 2>&1 | grep -q "^Archer detected OpenMP application"; then
    echo "error: libarcher.so of the OpenMP runtime is not found: races between OpenMP's threads cannot be told from its barriers" >&2
    exit 1
fi
exec tests/run "$@"
