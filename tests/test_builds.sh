#!/bin/sh
# ./train of several builds and of every instruction set that this machine has: the loss of 20 steps agrees to within 1e-3, and each says at its start
# what it runs on. Which machine has which set, tests/test_kernels decides as the programs do.
# Usage: tests/test_builds.sh [TRAIN...]     other builds beside the first; .ci/run gives those of both compilers, of low optimisation, and without OpenMP
set -eu
[ $# -gt 0 ] || set -- "${PROGRAM_DIR:-./}train"
work=$(mktemp -d "${TMPDIR:-/tmp}/test_builds_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
. "$(dirname "$0")/shell/checks.sh"
shape="--vocab-size 300 --val-fraction 0 --d-model 32 --n-layer 2 --n-head 2 --mlp-hidden 48 --seq-len 64 --batch-tokens 256 --steps 20 --lr 5e-3"

"${BUILD:-build}/stories" --documents 100 --seed 3 --out "$work/stories.jsonl"
losses() { sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$1/log.jsonl"; }

for dtype in f32 bf16; do
    tolerance=$([ $dtype = f32 ] && echo 0.001 || echo 0.02)
    for train in "$@"; do
        for isa in generic avx2 avx512; do
            rm -rf "$work/run"
            got=0
            LATTICE_ISA=$isa "$train" "$work/stories.jsonl" $shape --dtype $dtype --threads 2 --out "$work/run" >"$work/out" 2>"$work/err" || got=$?
            if [ "$got" -ne 0 ] && [ $isa != generic ] && grep -q "^error: .*LATTICE_ISA" "$work/err"; then
                echo "skipped: $isa with $train, which this machine or this build does not have"
                continue
            fi
            [ "$got" -eq 0 ] || fail "$train with $isa: $(tail -n 1 "$work/err")"
            grep -q "^processor   $isa.*, OpenMP \(on\|off\); products in $dtype" "$work/err" || fail "$train does not say what it runs on: $(cat "$work/err")"
            [ $dtype = f32 ] || [ $isa = avx512 ] || grep -q "slower than f32 here" "$work/err" || fail "$train with $isa does not say that bf16 is slow"
            losses "$work/run" >"$work/losses"
            [ "$(wc -l <"$work/losses")" -eq 20 ] || fail "$train with $isa does not have 20 losses"
            [ -e "$work/first-$dtype" ] || cp "$work/losses" "$work/first-$dtype"
            paste "$work/first-$dtype" "$work/losses" | awk -v t="$tolerance" '{ d = $2 / $1 - 1; if (!(d <= t && d >= -t)) bad = 1 } END { exit bad }' ||
                fail "$train with $isa: losses in $dtype are others: $(paste "$work/first-$dtype" "$work/losses" | tail -n 3)"
            checks=$((checks + 1))
        done
    done
done
LATTICE_ISA=vax expect 1 "LATTICE_ISA" "$1" "$work/stories.jsonl" $shape --out "$work/x"
OMP_WAIT_POLICY=passive "$1" "$work/stories.jsonl" $shape --steps 1 --threads 40 --out "$work/many" >"$work/out" 2>"$work/err" || fail "40 threads: $(tail -n 1 "$work/err")"
grep -q "warning: --threads 40 is more than\|warning: built without OpenMP" "$work/err" || fail "too many threads go unsaid"
checks=$((checks + 1))
echo "$checks checks"
