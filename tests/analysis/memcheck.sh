#!/bin/sh
# A short run of each program under valgrind, which finds what the sanitizers do not look for: memory that is read before it is set, and leaks of what
# lies in other libraries. Once for each instruction set that valgrind knows. Usage: tests/analysis/memcheck.sh
set -eu
programs=${PROGRAM_DIR:-./}
work=$(mktemp -d "${TMPDIR:-/tmp}/memcheck_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
export OMP_NUM_THREADS=1
. "$(dirname "$0")/../shell/checks.sh"

# Products keep 4 MB on the stack (model/kernels/gemm.c), which valgrind would take for another stack.
memcheck() {
    expect 0 "" valgrind --max-stackframe=8000000 --main-stacksize=16000000 --quiet --leak-check=full --errors-for-leak-kinds=definite --log-file="$work/valgrind" "$@"
    [ ! -s "$work/valgrind" ] || fail "$* $(cat "$work/valgrind")"
}

"${BUILD:-build}/stories" --documents 30 --seed 3 --out "$work/stories.jsonl"
memcheck "${programs}prepare" "$work/stories.jsonl" --out "$work/data" --vocab-size 300 --val-fraction 0.1 --threads 2
# with_set ISA: all of it with these kernels.
with_set() {
    export LATTICE_ISA=$1
    all=$work
    work=$work/$1
    mkdir "$work"
    run="$work/run"
    for mixers in lattice,attention gated_delta; do
        rm -rf "$run"
        memcheck "${programs}train" "$all/data" --out "$run" --d-model 32 --n-layer 2 --n-head 2 --d-head 16 --n-slot 16 --mlp-hidden 48 --seq-len 17 \
            --micro-batch 2 --batch-tokens 68 --shares 2 --steps 2 --eval-every 1 --eval-tokens 70 --save-every 1 --keep 1 --mixer $mixers
    done
    memcheck "${programs}train" --resume --out "$run" --steps 3 --recompute
    memcheck "${programs}generate" "$run" -p "It was" -n 4 --save-state "$work/state"
    memcheck "${programs}generate" "$run" -p "It was" -n 3 --num-samples 2 --dtype int8
    memcheck "${programs}eval_ppl" "$run" "$all/stories.jsonl" --contexts 16,32 --max-tokens 200
    echo "$1: $checks checks"
}

pids=
for isa in ${MEMCHECK_ISAS:-generic avx2}; do
    (with_set "$isa") &
    pids="$pids $!"
done
failed=0
for pid in $pids; do
    wait "$pid" || failed=1
done
exit $failed
