#!/bin/sh
# ./generate and ./eval_ppl from outside, on a tiny model trained here for a few steps: one text by all ways, state files, signals, exit codes, tables.
# Usage: tests/test_infer.sh [FOLDER-OF-PROGRAMS/]
set -eu
programs=${1:-${PROGRAM_DIR:-./}}
stories=${BUILD:-build}/stories
work=$(mktemp -d "${TMPDIR:-/tmp}/test_infer_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
generate=${programs}generate
eval_ppl=${programs}eval_ppl
. "$(dirname "$0")/shell/checks.sh"

same() {
    cmp "$work/$1" "$work/$2" || fail "$3"
    checks=$((checks + 1))
}

"$stories" --documents 200 --seed 5 --out "$work/stories.jsonl"
"${programs}train" "$work/stories.jsonl" --out "$work/run" --vocab-size 384 --d-model 32 --n-layer 2 --n-head 2 --mlp-hidden 48 --seq-len 64 --micro-batch 4 \
    --batch-tokens 256 --steps 30 --lr 3e-3 --threads 2 >"$work/log" 2>&1 || fail "cannot train: $(tail -n 3 "$work/log")"
run=$work/run
checkpoint=$(echo "$run"/step_*)

# ---- generate ----
"$generate" "$run" -p "Once upon a time" -n 60 --threads 2 >"$work/whole" 2>"$work/err"
[ -s "$work/whole" ] || fail "nothing was generated"
says err "decode: .* tokens/s"
says err "threads\{0,1\}, OpenMP"
"$generate" "$run" -p "Once upon a time" -n 60 --threads 1 >"$work/other" 2>/dev/null
same whole other "threads change the text"
printf 'Once upon a time\n' | "$generate" "$checkpoint" -n 60 >"$work/other" 2>/dev/null
same whole other "standard input, or the checkpoint's own folder, gives another text than -p"
printf 'Once upon a time\n' >"$work/prompt"
"$generate" "$run" -f "$work/prompt" -n 60 >"$work/other" 2>/dev/null
same whole other "-f gives another text than -p"
"$generate" "$run" -p "Once upon a time" -n 60 --seed 2 >"$work/other" 2>/dev/null
cmp -s "$work/whole" "$work/other" && fail "the seed changes nothing"
"$generate" "$run" -p "Once upon a time" -n 20 --greedy >"$work/greedy" 2>/dev/null
"$generate" "$run" -p "Once upon a time" -n 20 --temperature 0.9 --top-k 1 >"$work/other" 2>/dev/null
same greedy other "top-k 1 is not greedy"

# In two halves through a state file: the same bytes; random numbers and repeat penalty go on, too.
"$generate" "$run" -p "The fox" -n 50 --repeat-penalty 1.2 --top-p 0.95 >"$work/whole" 2>/dev/null
"$generate" "$run" -p "The fox" -n 20 --repeat-penalty 1.2 --top-p 0.95 --save-state "$work/state" >"$work/halves" 2>"$work/err"
says err "state at position"
"$generate" "$run" --load-state "$work/state" -n 30 --repeat-penalty 1.2 --top-p 0.95 >>"$work/halves" 2>/dev/null </dev/null
same whole halves "in two halves through a state file the text is another"
# A prompt in two halves. The cut stands before a space, where the tokenizer cuts as well.
"$generate" "$run" -p "The fox went to the river" -n 20 --greedy >"$work/whole" 2>/dev/null
"$generate" "$run" -p "The fox went" -n 0 --save-state "$work/state" >"$work/other" 2>/dev/null
[ -s "$work/other" ] && fail "-n 0 prints"
"$generate" "$run" --load-state "$work/state" -p " to the river" -n 20 --greedy >"$work/other" 2>"$work/err"
same whole other "a prompt in two halves gives another text"
says err "^prompt: [2-9] tokens"   # the second half alone is read

"$generate" "$run" -p "The" -n 12 --num-samples 3 >"$work/samples" 2>/dev/null
[ "$(grep -c '^--- sample [123] of 3 ---$' "$work/samples")" -eq 3 ] || fail "three samples are not three: $(cat "$work/samples")"
"$generate" "$run" -p "The" -n 12 --num-samples 3 --threads 1 >"$work/other" 2>/dev/null
same samples other "threads change the samples"

# A sample does not depend on how many there are.
"$generate" "$run" -p "The" -n 12 --num-samples 2 >"$work/two" 2>/dev/null
for file in samples two; do
    awk '/^--- sample [0-9]+ of [0-9]+ ---$/ { number = $3; next } number == 2' "$work/$file" >"$work/second_of_$file"
done
same second_of_samples second_of_two "the second of two samples is not the second of three"

# The first sample is what there is without --num-samples.
"$generate" "$run" -p "The" -n 12 >"$work/other" 2>/dev/null
[ "$(sed -n 2p "$work/samples")" = "$(head -n 1 "$work/other")" ] || fail "the first of three samples is not the text alone: $(cat "$work/samples" "$work/other")"

# Weights in bf16 and int8: any number of threads, the same text; a state goes from one type to the other, and back.
for dtype in bf16 int8; do
    "$generate" "$run" -p "The fox went" -n 20 --dtype $dtype --threads 1 --save-state "$work/state" >"$work/whole" 2>"$work/err"
    says err ", $dtype\$"
    "$generate" "$run" -p "The fox went" -n 20 --dtype $dtype --threads 2 >"$work/other" 2>/dev/null
    same whole other "threads change the text in $dtype"
    expect 0 "" "$generate" "$run" --load-state "$work/state" -n 5
    expect 0 "" "$generate" "$run" -p "The fox went" -n 5 --save-state "$work/state"
    expect 0 "" "$generate" "$run" --load-state "$work/state" -n 5 --dtype $dtype
done

# Prompts of no token, of one, of 100,000 and more; bytes that are no text.
expect 0 "" "$generate" "$run" -n 3
says err "^prompt: 1 tokens"
expect 0 "" "$generate" "$run" -p "" -n 3
expect 0 "" "$generate" "$run" -p "a" -n 3
says err "^prompt: 2 tokens"
head -c 120000 /dev/urandom >"$work/bytes.txt"
expect 0 "" "$generate" "$run" -f "$work/bytes.txt" -n 3 --threads 1
tokens=$(sed -n 's/^prompt: \([0-9]*\) tokens.*/\1/p' "$work/err")
[ "$tokens" -gt 100000 ] || fail "a prompt of 120,000 random bytes has only $tokens tokens"

printf 'Once\n/save %s\n\n/reset\n/load %s\n\n/what\n/load %s\n/quit\nnot read\n' "$work/talk" "$work/talk" "$work/none" |
    "$generate" "$run" --interactive -n 6 >"$work/out" 2>"$work/err"
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "three turns are not three lines: $(cat "$work/out")"
[ "$(sed -n 2p "$work/out")" = "$(sed -n 3p "$work/out")" ] || fail "after /load another text comes: $(cat "$work/out")"
says err "/save FILE, /load FILE, /reset, /quit"
says err "unknown command"
says err "^error: cannot open .*none"

# SIGTERM and SIGINT end the text, save, and show in the exit code. It waits for a line that never comes until the signal does.
mkfifo "$work/lines"
signals="TERM:143 INT:130"
with_interrupt="env --default-signal=INT"   # jobs in the background of a script ignore SIGINT; this gives it back
if ! $with_interrupt true 2>/dev/null; then
    echo "skipped: SIGINT, as env has no --default-signal here"
    signals=TERM:143
    with_interrupt=
fi
for signal in $signals; do
    rm -f "$work/state" "$work/err"
    sleep 20 >"$work/lines" &
    writer=$!
    $with_interrupt "$generate" "$run" --interactive -n 5 --save-state "$work/state" -p "One" >"$work/out" 2>"$work/err" <"$work/lines" &
    child=$!
    tries=0
    until grep -qs "^Commands:" "$work/err" || [ "$tries" -eq 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -s "${signal%:*}" "$child"
    got=0
    wait "$child" || got=$?
    kill "$writer"
    [ "$got" -eq "${signal#*:}" ] || fail "SIG${signal%:*} gives exit code $got: $(cat "$work/err")"
    [ -s "$work/state" ] || fail "SIG${signal%:*} saves nothing"
    checks=$((checks + 1))
done

flip() {   # flip FILE OFFSET: changes one byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059
    printf "\\$(printf %03o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
expect 0 "" "$generate" "$run" -p "One" -n 5 --save-state "$work/state"
cp "$work/state" "$work/altered"
flip "$work/altered" $(($(wc -c <"$work/state") - 9))
expect 1 "altered" "$generate" "$run" --load-state "$work/altered" -n 3
head -c 500 "$work/state" >"$work/short"
expect 1 "short" "$generate" "$run" --load-state "$work/short" -n 3
"${programs}train" "$work/stories.jsonl" --out "$work/run2" --vocab-size 384 --d-model 32 --n-layer 2 --n-head 2 --mlp-hidden 48 --seq-len 64 --micro-batch 4 \
    --batch-tokens 256 --steps 1 --seed 9 >"$work/log" 2>&1 || fail "cannot train: $(tail -n 3 "$work/log")"
expect 1 "another model" "$generate" "$work/run2" --load-state "$work/state" -n 3
expect 1 "none" "$generate" "$work/none" -p x
expect 1 "none" "$generate" "$run" -f "$work/none"
expect 1 "none" "$generate" "$run" -p x -n 2 --save-state "$work/none/state"
expect 2 "" "$generate"
expect 2 "f16' is unknown: there are f32, bf16 and int8" "$generate" "$run" -p x --dtype f16
expect 2 "top-p" "$generate" "$run" -p x --top-p 0
expect 2 "not both" "$generate" "$run" -p x -f "$work/prompt"
expect 2 "num-samples" "$generate" "$run" -p x --num-samples 2 --save-state "$work/state"
expect 0 "" "$generate" --help
says out "--repeat-penalty"
if [ -w /dev/full ]; then
    got=0
    "$generate" "$run" -p x -n 9 >/dev/full 2>"$work/err" || got=$?
    [ "$got" -eq 1 ] || fail "a full disk on standard output gives exit code $got"
    says err "^error: .*standard output"
fi

# ---- eval_ppl ----
"$stories" --documents 20 --seed 6 --out "$work/new.jsonl"
"$eval_ppl" "$run" "$work/new.jsonl" --contexts 32,64,1k,1m --by-position --json "$work/ppl.json" --csv "$work/ppl.csv" --plot "$work/ppl.png" >"$work/table" 2>"$work/err"
says err "context 1048576 is skipped"
says table "^stride "
says table "^start "
[ "$(grep -c '^context,' "$work/ppl.csv")" -eq 3 ] || fail "three contexts are not three rows: $(cat "$work/ppl.csv")"
[ "$(grep '^context,' "$work/ppl.csv" | cut -d, -f5 | uniq | wc -l)" -eq 1 ] || fail "contexts score different numbers of tokens"
[ "$(head -c 4 "$work/ppl.png" | tail -c 3)" = PNG ] || fail "the chart is no PNG"
says ppl.json '"bits_per_byte"'
"$eval_ppl" "$run" "$work/new.jsonl" --contexts 32,64,1k,1m --by-position --threads 1 >"$work/other" 2>/dev/null
same table other "a second run, or another number of threads, gives other figures"
# Documents apart: the same targets, other figures where windows hold several.
"$eval_ppl" "$run" "$work/new.jsonl" --contexts 64,1k --reset-at-document --csv "$work/apart.csv" >"$work/other" 2>/dev/null
says other "^start .*starts anew"
awk -F, '$1 == "context" { if ($2 in tokens) { if (tokens[$2] == $5 && loss[$2] != $7) n++ } else { tokens[$2] = $5; loss[$2] = $7 } } END { exit n != 2 }' \
    "$work/ppl.csv" "$work/apart.csv" || fail "documents apart: $(cat "$work/apart.csv")"
checks=$((checks + 1))
# The same documents as shards of the same tokenizer; two copies of a text by position.
"${programs}prepare" "$work/new.jsonl" --out "$work/shards" --tokenizer "$checkpoint/tokenizer.json" --val-fraction 0 >/dev/null 2>&1
"$eval_ppl" "$run" "$work/shards/train_000000.bin" --contexts 32,64,1k,1m --by-position >"$work/other" 2>/dev/null
same table other "shards give other figures than documents"
cp "$work/new.jsonl" "$work/copy.jsonl"
"$eval_ppl" "$run" "$work/new.jsonl" "$work/copy.jsonl" --contexts 64 --by-position --csv "$work/copies.csv" >/dev/null 2>&1
grep '^position,' "$work/ppl.csv" | cut -d, -f2,3,9 | cut -c 1-16 >"$work/once"
grep '^position,' "$work/copies.csv" | cut -d, -f2,3,9 | cut -c 1-16 >"$work/twice"
same once twice "two copies of one text give another perplexity by position"
"${programs}prepare" "$work/stories.jsonl" --out "$work/strange" --vocab-size 300 >/dev/null 2>&1
expect 1 "another tokenizer" "$eval_ppl" "$run" "$work/strange/train_000000.bin"
: >"$work/empty.txt"
for dtype in bf16 int8; do
    "$eval_ppl" "$run" "$work/new.jsonl" --contexts 64 --dtype $dtype --csv "$work/packed.csv" >/dev/null 2>&1
    awk -F, '$1 == "context" && $2 == 64 { if (++n == 1) a = $8; else b = $8 } END { r = b / a - 1; exit !(r < 0.01 && r > -0.01 && r != 0) }' \
        "$work/ppl.csv" "$work/packed.csv" || fail "perplexity in $dtype: $(cat "$work/packed.csv")"
    checks=$((checks + 1))
done
expect 2 "dtype" "$eval_ppl" "$run" "$work/new.jsonl" --dtype int4
expect 1 "empty.txt" "$eval_ppl" "$run" "$work/empty.txt"
expect 1 "none" "$eval_ppl" "$run" "$work/none.txt"
expect 1 "none" "$eval_ppl" "$run" "$work/new.jsonl" --contexts 64 --json "$work/none/x.json"
expect 2 "contexts" "$eval_ppl" "$run" "$work/new.jsonl" --contexts 64,,5
expect 2 "" "$eval_ppl" "$run"
expect 0 "" "$eval_ppl" "$run" "$work/new.jsonl" --max-tokens 50
says out " 50 tokens"
echo "$checks checks"
