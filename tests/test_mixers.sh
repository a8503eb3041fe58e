#!/bin/sh
# Every mixer through the programs: a few steps of training, perplexity also beyond the training length and with packed weights, text in one piece and through a state file, resume.
# Usage: tests/test_mixers.sh [FOLDER-OF-PROGRAMS/]
set -eu
programs=${1:-${PROGRAM_DIR:-./}}
work=$(mktemp -d "${TMPDIR:-/tmp}/test_mixers_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
shape="--d-model 32 --n-layer 2 --n-head 2 --mlp-hidden 48 --seq-len 32 --micro-batch 4 --batch-tokens 256 --lr 4e-3 --threads 1"
. "$(dirname "$0")/shell/checks.sh"

run() {
    "$@" >"$work/out" 2>"$work/err" </dev/null || fail "$*: $(cat "$work/err")"
    checks=$((checks + 1))
}

# refused CODE WORDS FLAGS...: ./train says what is wrong in one line.
refused() {
    code=$1
    words=$2
    shift 2
    got=0
    "${programs}train" "$work/data" $shape --steps 1 --out "$work/refused" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" -eq "$code" ] || fail "exit code $got instead of $code: $*: $(cat "$work/err")"
    [ "$(grep -c "^error: .*$words" "$work/err")" -eq 1 ] || fail "no error with \"$words\": $*: $(cat "$work/err")"
    checks=$((checks + 1))
}

loss_at() { sed -n "$1s/.*\"loss\":\([0-9.]*\).*/\1/p" "$work/run/log.jsonl"; }

# Perplexity in the last row of a table.
perplexity() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "perplexity") c = i } END { print $c }' "$1"; }

# mixer FLAGS...
mixer() {
    rm -rf "$work/run"
    run "${programs}train" "$work/data" $shape --steps 15 --out "$work/run" "$@"
    awk "BEGIN { exit !($(loss_at 1) > 5.8 && $(loss_at 1) < 6.2 && $(loss_at 15) < $(loss_at 1) - 0.3) }" || fail "$*: loss goes from $(loss_at 1) to $(loss_at 15)"
    run "${programs}eval_ppl" "$work/run" "$work/text.jsonl" --contexts 16,128 --max-tokens 1k --csv "$work/table.csv" --threads 1
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "perplexity") c = i } NR > 1 && !($c > 20 && $c < 400) { exit 1 } END { exit NR != 3 }' \
        "$work/table.csv" || fail "$*: perplexity: $(cat "$work/table.csv")"
    exact=$(perplexity "$work/table.csv")
    for dtype in bf16 int8; do
        run "${programs}eval_ppl" "$work/run" "$work/text.jsonl" --contexts 128 --max-tokens 1k --csv "$work/table.csv" --dtype $dtype --threads 1
        awk "BEGIN { ratio = $(perplexity "$work/table.csv") / $exact; exit !(ratio > 0.97 && ratio < 1.03) }" || fail "$*: $dtype: $(cat "$work/table.csv")"
    done
    run "${programs}generate" "$work/run" -p "The fox" -n 160 --threads 1
    cp "$work/out" "$work/whole"
    run "${programs}generate" "$work/run" -p "The fox" -n 100 --threads 1 --save-state "$work/state"
    cp "$work/out" "$work/halves"
    run "${programs}generate" "$work/run" --load-state "$work/state" -n 60 --threads 1
    cat "$work/out" >>"$work/halves"
    cmp "$work/whole" "$work/halves" || fail "$*: through a state file the text is another"
}

"${BUILD:-build}/stories" --documents 100 --seed 3 --out "$work/stories.jsonl"
"${BUILD:-build}/stories" --documents 8 --seed 4 --out "$work/text.jsonl"
run "${programs}prepare" "$work/stories.jsonl" --out "$work/data" --vocab-size 400 --val-fraction 0 --threads 1

mixer --mixer lattice --objective encode --chunk 4 --chunk-form gated --n-slot 8
mixer --mixer lattice --objective similarity --forget-gate --no-projection --l1 0.01
mixer --mixer lattice --softmax-codes --scaled-keys --slot-gate

# The others, as the table of mixers names them, so that none is forgotten.
refused 2 'mixer "none" does not exist in this build: choose from lattice, linear' --mixer none
names=$(sed -n 's/^error: .*choose from lattice, //p' "$work/err" | tr -d ,)
for name in $names; do
    case $name in
    mamba2) mixer --mixer $name --n-slot 24 ;;
    ttt) mixer --mixer $name --chunk 8 ;;
    *) mixer --mixer $name ;;
    esac
done
[ "$(echo "$names" | wc -w)" -ge 8 ] || fail "too few mixers: $names"
mixer --mixer lattice,attention:20

# A run of a mixed stack goes on to the same bits; its shape cannot change.
cp -r "$work/run" "$work/unbroken"
rm -rf "$work/run"
run "${programs}train" "$work/data" $shape --steps 15 --save-every 6 --out "$work/run" --mixer lattice,attention:20
rm -r "$work/run/step_00000015" "$work/run/step_00000012"
run "${programs}train" --resume --out "$work/run" --threads 1
cmp "$work/run/step_00000015/model.safetensors" "$work/unbroken/step_00000015/model.safetensors" || fail "a resumed run ends with other weights"
grep -q '"mixer":[[:space:]]*"lattice,attention:20"' "$work/run/step_00000015/config.json" || fail "config.json: $(cat "$work/run/step_00000015/config.json")"
got=0
"${programs}train" --resume --out "$work/run" --steps 20 --mixer lattice,attention:21 >"$work/out" 2>"$work/err" || got=$?
[ "$got" -eq 1 ] && grep -q "mixer is lattice,attention:20 in the checkpoint, lattice,attention:21 now" "$work/err" || fail "resume: $(cat "$work/err")"

# New models read relative to their start where a layer is Lattice; a run from before goes on as it began, also where the command names a preset.
reads() { grep -c '"relative_read":[[:space:]]*true' "$work/$1"/step_*/config.json || true; }
[ "$(reads run | tail -c 2)" = 1 ] || fail "the usual read: $(cat "$work"/run/step_*/config.json)"
run "${programs}train" "$work/data" $shape --steps 1 --out "$work/delta" --mixer delta
run "${programs}train" "$work/data" --preset nano $shape --steps 1 --out "$work/plain" --no-relative-read
[ "$(reads delta)" = 0 ] && [ "$(reads plain)" = 0 ] || fail "a read that was not asked for: $(cat "$work"/*/step_*/config.json)"
run "${programs}train" "$work/data" --preset nano $shape --steps 2 --out "$work/plain" --resume
[ "$(reads plain | grep -c ':0$')" = 2 ] || fail "a resumed run reads otherwise: $(cat "$work"/plain/step_*/config.json)"
got=0
"${programs}train" --resume --out "$work/plain" --steps 3 --relative-read >"$work/out" 2>"$work/err" || got=$?
[ "$got" -eq 1 ] && grep -q "relative_read is" "$work/err" || fail "another read on resume: $(cat "$work/err")"

# A file says how its model reads; without the key plainly. Another mixer has no such read.
for from in run plain; do
    for checkpoint in "$work/$from"/step_*; do cp "$checkpoint/config.json" "$work/shape.json"; done   # the last one
    run "${programs}train" "$work/data" --config "$work/shape.json" --seq-len 32 --batch-tokens 64 --steps 1 --threads 1 --out "$work/from-$from"
    run "${programs}train" "$work/data" --config "$work/shape.json" --seq-len 32 --batch-tokens 64 --steps 1 --threads 1 --out "$work/other-$from" --mixer delta
done
[ "$(reads from-run)$(reads from-plain)$(reads other-run)$(reads other-plain)" = 1000 ] || fail "reads by files: $(cat "$work"/from-*/step_*/config.json)"
refused 1 "relative_read is a key of Lattice" --mixer delta --relative-read
refused 1 "relative_read is a key of Lattice" --mixer delta --no-relative-read

refused 2 'objective "guess" does not exist' --objective guess
refused 1 "needs n_slot = d_head" --mixer attention --n-slot 8
refused 1 "names 3 layers, n_layer is 2" --mixer lattice,linear,ttt
refused 1 "has no chunks" --mixer delta --chunk 4
echo "$checks checks"
