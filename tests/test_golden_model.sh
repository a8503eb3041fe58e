#!/bin/sh
# A small trained model that is part of the tests: what it says greedily, and its perplexity on a text made here, under every instruction set.
# Made by: build/stories --documents 1500 --seed 3 --out stories.jsonl; ./train stories.jsonl --out run --vocab-size 384 --d-model 32 --n-layer 2 --n-head 2
#          --mlp-hidden 64 --seq-len 256 --batch-tokens 2k --tokens 1m --lr 1e-2 --threads 1 --no-relative-read
set -u
cd "$(dirname "$0")/.." || exit 1
programs=${PROGRAM_DIR:-./}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/shell/checks.sh"

printf ' Wilma.\n\n"What are you afraid of?" Bruno. "It is under the great oak. Not far away, among the apple t' >"$work/expected"
"${BUILD:-build}/stories" --documents 20 --seed 9 --out "$work/text.jsonl" || fail "stories"
for isa in generic avx2 avx512 avx512bf16 amx; do
    export LATTICE_ISA=$isa
    if ! "${programs}generate" tests/golden/model -p "There was one thing that" --greedy -n 60 >"$work/got" 2>"$work/log"; then
        grep -q "LATTICE_ISA" "$work/log" || fail "$(cat "$work/log")"
        [ "$isa" = generic ] && fail "generic kernels must run everywhere"
        echo "skipped: this processor cannot run $isa"
        continue
    fi
    cmp "$work/expected" "$work/got" || fail "$isa says: $(cat "$work/got")"
    "${programs}eval_ppl" tests/golden/model "$work/text.jsonl" --contexts 256 --csv "$work/table.csv" >/dev/null 2>"$work/log" || fail "$(cat "$work/log")"
    perplexity=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "perplexity") column = i } END { printf "%.3f", $column }' "$work/table.csv")
    [ "$perplexity" = 3.270 ] || fail "$isa: perplexity $perplexity"
    checks=$((checks + 2))
done
echo "$checks checks"
