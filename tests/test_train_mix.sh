#!/bin/sh
# ./train --data from outside: shares of sources in the log, runs stopped and resumed to the same bits, what is refused.
# Usage: tests/test_train_mix.sh [TRAIN [PREPARE [STORIES]]]
set -eu
train=${1:-${PROGRAM_DIR:-./}train}
prepare=${2:-${PROGRAM_DIR:-./}prepare}
stories=${3:-${BUILD:-build}/stories}
work=$(mktemp -d "${TMPDIR:-/tmp}/test_train_mix_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
shape="--d-model 16 --n-layer 1 --n-head 1 --mlp-hidden 0 --seq-len 32 --batch-tokens 320 --micro-batch 2 --threads 1 --schedule constant --warmup 1"
. "$(dirname "$0")/shell/checks.sh"

mkdir "$work/docs" "$work/more"
"$stories" --documents 60 --seed 3 --out "$work/docs/a.jsonl"
"$stories" --documents 30 --seed 4 --out "$work/more/b.jsonl"
printf 'x' >"$work/more/paper.pdf"
printf 'x' >"$work/more/paper2.PDF"
printf 'x' >"$work/more/old.doc"
printf 'x' >"$work/more/.hidden.doc"
"$prepare" "$work/docs" --out "$work/web" --vocab-size 400 --val-fraction 0.05 --threads 1 2>"$work/err"
"$prepare" "$work/more" --out "$work/books" --tokenizer "$work/web/tokenizer.json" --val-fraction 0.1 --threads 1 2>"$work/err"
says "^3 files skipped: .pdf 2, .doc 1$"
expect 1 "old.doc is no document that can be read (3 files skipped: .pdf 2, .doc 1)" "$prepare" "$work/more" --out "$work/strict" --strict

# ---- prepared sources: shares, and the same bits after a stop ----
mix="$train --data $work/web:0.7 --data $work/books:0.3 $shape"
expect 0 "" $mix --out "$work/whole" --steps 40 --save-every 0
says "source      $work/web: 70 % of the tokens"
says "source      $work/books: 30 % of the tokens"
last=$(tail -n 1 "$work/whole/log.jsonl")
web=$(sed -n "s|^source .*$work/web: .* tokens, \([0-9]*\) windows, .*|\1|p" "$work/err")
books=$(sed -n "s|^source .*$work/books: .* tokens, \([0-9]*\) windows, .*|\1|p" "$work/err")
# 40 steps of 10 windows: 280 and 120 windows.
wanted=$(awk -v web="$web" -v books="$books" -v a="$work/web" -v b="$work/books" 'BEGIN {
    printf "\"sources\":[{\"data\":\"%s\",\"share\":0.7,\"epochs\":%.9g},{\"data\":\"%s\",\"share\":0.3,\"epochs\":%.9g}]", a, 280 / web, b, 120 / books }')
case "$last" in
*"$wanted"*) checks=$((checks + 1)) ;;
*) fail "the log does not have $wanted: $last" ;;
esac
expect 0 "" $mix --out "$work/parts" --steps 13
expect 0 "" "$train" --resume --out "$work/parts" --steps 27 --threads 2
expect 0 "" $mix --out "$work/parts" --steps 40 --resume
for file in model.safetensors optimizer.safetensors; do
    cmp "$work/whole/step_00000040/$file" "$work/parts/step_00000040/$file" || fail "$file differs after two stops"
done
sed -e 's/"tokens_per_second":[^,]*,//' -e 's/"val_loss":[^,]*,//' -e 's/,"time":[^}]*//' "$work/whole/log.jsonl" >"$work/log1"
sed -e 's/"tokens_per_second":[^,]*,//' -e 's/"val_loss":[^,]*,//' -e 's/,"time":[^}]*//' "$work/parts/log.jsonl" >"$work/log2"
cmp "$work/log1" "$work/log2" || fail "the logs differ after two stops"
expect 1 "the sources or their weights are not those" "$train" --data "$work/web:0.6" --data "$work/books:0.4" $shape --out "$work/parts" --steps 50 --resume
expect 1 "the sources or their weights are not those" "$train" "$work/web" $shape --out "$work/parts" --steps 50 --resume

# Without weights the shares follow the sizes. A colon may be part of a path.
cp -r "$work/books" "$work/books:2"
expect 0 "" "$train" --data "$work/web" --data "$work/books:2" $shape --out "$work/sizes" --steps 2
says "source      $work/books:2: "
expect 0 "" "$train" --data "$work/web:3" --data "$work/books:2:1" $shape --out "$work/colon" --steps 2
says "source      $work/books:2: 25 % of the tokens"

# ---- documents: one tokenizer for all, and no need of them later ----
expect 0 "" "$train" --data "$work/docs:2" --data "$work/more:1" $shape --vocab-size 300 --out "$work/documents" --steps 3
cmp "$work/documents/data_1/tokenizer.json" "$work/documents/data_2/tokenizer.json" || fail "two tokenizers"
mv "$work/docs" "$work/docs.away"
expect 0 "" "$train" --resume --out "$work/documents" --steps 5
says "the data is $work/documents/data_2"
mv "$work/docs.away" "$work/docs"
expect 0 "" "$train" --data "$work/web:1" --data "$work/more:1" $shape --out "$work/both" --steps 2
cmp "$work/web/tokenizer.json" "$work/both/tokenizer.json" || fail "documents beside a prepared folder do not take its tokenizer"
expect 1 "data_1/tokenizer.json" "$train" --data "$work/documents/data_1:1" --data "$work/web:1" $shape --out "$work/x" --steps 2
says "was prepared with another tokenizer than"
expect 1 "web" "$train" --data "$work/documents/data_1:1" --data "$work/web/train_000000.bin:1" $shape --out "$work/x" --steps 2

# ---- wrong usage ----
expect 2 "the weight must be above 0" "$train" --data "$work/web:0" --data "$work/books:1" $shape --out "$work/x"
expect 2 "the weight must be above 0" "$train" --data "$work/web:-1" --data "$work/books:1" $shape --out "$work/x"
expect 2 "the weight must be above 0" "$train" --data "$work/web:nan" --data "$work/books:1" $shape --out "$work/x"
expect 2 "ends with no weight" "$train" --data "$work/web:half" $shape --out "$work/x"
expect 2 "is given twice" "$train" --data "$work/web:1" --data "$work/web/:2" $shape --out "$work/x"
expect 2 "give every source a weight" "$train" --data "$work/web:1" --data "$work/books" $shape --out "$work/x"
expect 2 "stands beside --data" "$train" "$work/web" --data "$work/books:1" $shape --out "$work/x"
expect 1 "none" "$train" --data "$work/web:1" --data "$work/none:1" $shape --out "$work/x"
got=0
"$train" --help >"$work/out" 2>"$work/err" || got=$?
[ "$got" -eq 0 ] && grep -q -- '--data SOURCE' "$work/out" || fail "--help does not tell of --data"
echo "$checks checks"
