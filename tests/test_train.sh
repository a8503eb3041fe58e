#!/bin/sh
# ./train from outside: runs that are killed, stopped and resumed give the bits of an unbroken one; bad inputs give one line and the right exit code.
# Usage: tests/test_train.sh [TRAIN [PREPARE [STORIES]]]
set -eu
train=${1:-${PROGRAM_DIR:-./}train}
prepare=${2:-${PROGRAM_DIR:-./}prepare}
stories=${3:-${BUILD:-build}/stories}
poison=${BUILD:-build}/tests/test_snapshot
work=$(mktemp -d "${TMPDIR:-/tmp}/test_train_XXXXXX")
mounted=
trap '[ -z "$mounted" ] || umount "$work/small"; rm -rf "$work"' EXIT INT TERM
shape="--d-model 32 --n-layer 2 --n-head 2 --mlp-hidden 48 --seq-len 32 --batch-tokens 512 --threads 1"
silent=1
. "$(dirname "$0")/shell/checks.sh"
. "$(dirname "$0")/shell/runs.sh"

mkdir "$work/docs"
"$stories" --documents 250 --seed 3 --out "$work/docs/stories.jsonl"
"$prepare" "$work/docs" --out "$work/data" --vocab-size 400 --val-fraction 0.05 --shard-tokens 5k --threads 1 2>"$work/err"
[ -e "$work/data/train_000001.bin" ] || fail "the data has one shard only"

# ---- the same bits ----
steps=$([ -n "${TEST_SHORT:-}" ] && echo 150 || echo 300)
end=step_00000$steps
go="$train $work/data $shape --steps $steps --save-every 20 --eval-every 50 --sample-every 75"
expect 0 "" $go --out "$work/unbroken"
[ "$(wc -l <"$work/unbroken/log.jsonl")" -eq $steps ] || fail "the log does not have $steps lines"
[ "$(ls -d "$work"/unbroken/step_* | wc -l)" -eq 3 ] || fail "not the newest three checkpoints are kept"
[ "$(grep -c val_loss "$work/unbroken/log.jsonl")" -eq $((steps / 50)) ] || fail "not every 50 steps a validation"
says "sample at step $steps"
first=$(sed -n '1s/.*"loss":\([0-9.]*\).*/\1/p' "$work/unbroken/log.jsonl")
last=$(sed -n '$s/.*"loss":\([0-9.]*\).*/\1/p' "$work/unbroken/log.jsonl")
awk "BEGIN { exit !($first > 5.8 && $first < 6.2 && $last < $first - 1.5) }" || fail "loss goes from $first to $last"

start "$work/killed/step_00000020" $go --out "$work/killed"
stop_with KILL
[ ! -e "$work/killed/$end" ] || fail "the run was over before it could be killed"
expect 0 "" "$train" --resume --out "$work/killed" --threads 1
says "resume: from"
same unbroken killed 00000$steps

start "$work/stopped/step_00000040" $go --out "$work/stopped"
stop_with TERM
[ "$got" -eq 143 ] || fail "exit code $got after SIGTERM"
grep -q "stopped and saved" "$work/err" || fail "the stop is not told"
start "$work/stopped/step_00000080" $go --out "$work/stopped" --resume
expect 1 "another process trains into" $go --out "$work/stopped" --resume
stop_with INT
[ "$got" -eq 130 ] || fail "exit code $got after SIGINT"
expect 0 "" $go --out "$work/stopped" --resume
same unbroken stopped 00000$steps

# Killed again and again while it saves at every step.
for delay in 0.05 0.13 0.21 0.34; do
    start "$work/rounds/log.jsonl" $go --out "$work/rounds" --save-every 1 --keep 1 --resume
    sleep $delay
    stop_with KILL
done
[ ! -e "$work/rounds/$end" ] || fail "the run was over before it could be killed"
expect 0 "" $go --out "$work/rounds" --resume
same unbroken rounds 00000$steps
[ "$(ls -d "$work"/rounds/*.tmp 2>/dev/null | wc -l)" -eq 0 ] || fail "half a checkpoint stays"

expect 0 "" "$train" "$work/data" $shape --threads 2 --steps 12 --out "$work/two"
expect 0 "" "$train" "$work/data" $shape --threads 1 --steps 12 --out "$work/one"
says "memory .* needed"
says "memory .* at the most"
same one two 00000012

# Recomputation changes nothing but memory and time, and can come and go on resume.
expect 0 "" "$train" "$work/data" $shape --steps 12 --save-every 6 --recompute --out "$work/again"
same one again 00000012
rm -r "$work/again/step_00000012"
expect 0 "" "$train" --resume --out "$work/again" --no-recompute --save-every 3 --threads 1
says "recompute changes from on to off"
same one again 00000012
rm -r "$work/again/step_00000012"
expect 0 "" "$train" --resume --out "$work/again" --recompute --threads 1
says "recompute changes from off to on"
same one again 00000012

# ---- a loss that rises ----
expect 0 "" "$train" "$work/data" $shape --lr 20 --warmup 200 --steps 150 --out "$work/rising"
says "the loss has been rising"
[ "$(grep -c '"rising":true' "$work/rising/log.jsonl")" -eq 1 ] || fail "the rise is not in the log once"
! grep -q '"rising"' "$work/unbroken/log.jsonl" || fail "a falling loss is told as rising"

# ---- muon ----
muon="$train $work/data $shape --optimizer muon --steps 60"
expect 0 "" $muon --out "$work/muon"
says "epochs; muon, rate"
last=$(sed -n '$s/.*"loss":\([0-9.]*\).*/\1/p' "$work/muon/log.jsonl")
awk "BEGIN { exit !($last < $first - 1.0) }" || fail "with Muon the loss goes from $first to $last"
start "$work/muon2/step_00000020" $muon --out "$work/muon2" --save-every 20
stop_with KILL
[ ! -e "$work/muon2/step_00000060" ] || fail "the run was over before it could be killed"
expect 1 "optimizer cannot change on --resume (muon in the checkpoint, adamw now)" "$train" --resume --out "$work/muon2" --optimizer adamw
expect 0 "" "$train" --resume --out "$work/muon2" --threads 1
same muon muon2 00000060
expect 1 "optimizer cannot change on --resume (adamw in the checkpoint, muon now)" "$train" --resume --out "$work/one" --optimizer muon

# ---- documents apart ----
apart="$train $work/data $shape --reset-at-document --steps 60 --eval-every 20"
expect 0 "" $apart --out "$work/apart"
says "states anew at each document"
grep -q '"reset_at_document":[[:space:]]*true' "$work/apart/step_00000060/trainer.json" || fail "trainer.json does not hold reset_at_document"
other=$(sed -n '1s/.*"loss":\([0-9.]*\).*/\1/p' "$work/apart/log.jsonl")
awk "BEGIN { exit !($other != $first && $other < $first + 0.1 && $other > $first - 0.1) }" || fail "the first loss with documents apart is $other, else $first"
start "$work/apart2/step_00000020" $apart --out "$work/apart2" --save-every 20 --recompute --threads 2
stop_with KILL
[ ! -e "$work/apart2/step_00000060" ] || fail "the run was over before it could be killed"
expect 1 "reset-at-document cannot change on --resume (on in the checkpoint, off now)" "$train" --resume --out "$work/apart2" --no-reset-at-document
expect 0 "" "$train" --resume --out "$work/apart2" --threads 2
says "states anew at each document"
same apart apart2 00000060
expect 1 "reset-at-document cannot change on --resume (off in the checkpoint, on now)" "$train" --resume --out "$work/one" --reset-at-document

# ---- checkpoints ----
for flag in "--dedup" "--strict" "--where a>1" "--text-key t" "--val-fraction 0.5"; do
    # shellcheck disable=SC2086
    expect 1 "${flag%% *} is for documents, and the data is prepared already" "$train" "$work/data" $shape --steps 1 --out "$work/none" $flag
done
expect 0 "" "$train" "$work/data" $shape --steps 1 --shares 0 --out "$work/shares"
checks=$((checks + 6))
expect 1 "already holds the checkpoints of a run" $go --out "$work/one"
expect 0 "" "$train" --resume --out "$work/one"
says "all 12 steps are done"
# Fewer than there are is no contradiction either: the run is that far, and stays as it is.
expect 0 "" "$train" --resume --out "$work/one" --steps 5
says "the run has done 12 steps already, more than the 5 asked for: give --steps above 12 to go on"
! grep -q "all .* steps are done" "$work/err" && [ -e "$work/one/step_00000012" ] || fail "fewer steps than were done: $(cat "$work/err")"
expect 1 "n_layer is 2 in the checkpoint, 3 now" "$train" --resume --out "$work/one" --n-layer 3 --steps 20
expect 1 "seq-len cannot change" "$train" --resume --out "$work/one" --seq-len 64 --steps 20
expect 1 "the data is not the one" "$train" "$work/data/train_000000.bin" --resume --out "$work/one" --steps 20
expect 0 "" "$train" --resume --out "$work/one" --steps 20 --lr 0.001 --threads 1
says "lr changes from 0.004 to 0.001"
[ -e "$work/one/step_00000020" ] || fail "the run did not go on to step 20"
printf x >>"$work/one/step_00000020/model.safetensors"
expect 0 "" "$train" --resume --out "$work/one" --steps 16 --threads 1
says "step_00000020 is damaged"
[ -e "$work/one/step_00000016" ] || fail "the run did not go on from step 12"
[ "$(wc -l <"$work/one/log.jsonl")" -eq 16 ] || fail "the log was not cut on resume"
expect 1 "is a checkpoint" "$train" --resume --out "$work/one/step_00000016"
if [ -x "$poison" ]; then
    "$poison" --poison "$work/one/step_00000016" layers.1.mixer.k.weight nan
    expect 1 "weight layers.1.mixer.k.weight holds a NaN" "$train" --resume --out "$work/one" --steps 30
else
    echo "skipped: a NaN in a checkpoint, because $poison is not built"
fi

# ---- data of every kind ----
tiny="$shape --steps 2"
expect 0 "" "$train" "$work/docs" $tiny --vocab-size 300 --out "$work/documents"
[ -e "$work/documents/data/prepare.json" ] || fail "documents are not prepared into OUT/data"
[ -e "$work/documents/step_00000002/tokenizer.json" ] || fail "the checkpoint holds no tokenizer"
rm "$work/docs/stories.jsonl"
expect 0 "" "$train" --resume --out "$work/documents" --steps 3
"$stories" --documents 40 --seed 4 --out "$work/docs/stories.jsonl"
expect 0 "" "$train" "$work/data/train_*.bin" $tiny --val "$work/docs" --out "$work/shards"
rm "$work/docs/stories.jsonl"
expect 0 "" "$train" --resume --out "$work/shards" --steps 3
printf 'once upon a time there was a small corpus; ' >"$work/little.txt"
for i in 1 2 3 4 5 6; do cat "$work/little.txt" "$work/little.txt" >"$work/more.txt" && mv "$work/more.txt" "$work/little.txt"; done
expect 0 "" "$train" "$work/little.txt" $tiny --out "$work/little"
says "ids instead of 2048"
mkdir "$work/other"
cp -r "$work/documents/data" "$work/other/data"
expect 1 "other/data" "$train" "$work/little.txt" $tiny --out "$work/other"
cp "$work/data/train_000000.bin" "$work/alone.bin"
expect 1 "need --tokenizer FILE" "$train" "$work/alone.bin" $tiny --out "$work/x"
expect 1 "reset-at-document goes by" "$train" "$work/alone.bin" $tiny --vocab-size 400 --reset-at-document --out "$work/x"
expect 0 "" "$train" "$work/alone.bin" $tiny --vocab-size 400 --out "$work/alone"

# ---- a stop while documents are prepared ----
# more_documents: twice as many as before, and what they give when nobody stops it.
documents=6000
more_documents() {
    documents=$((documents * 2))
    rm -rf "$work/many"
    "$stories" --documents $documents --seed 5 --out "$work/many.jsonl"
    "$prepare" "$work/many.jsonl" --out "$work/many" --tokenizer "$work/data/tokenizer.json" --threads 1 2>"$work/err"
}

# stop_preparing SIGNAL: whether it came before all was prepared.
stop_preparing() {
    shard=$work/prepares/data/train_000000.bin
    rm -rf "$work/prepares"
    start "$work/prepares/data/.lock" "$train" "$work/many.jsonl" $tiny --tokenizer "$work/data/tokenizer.json" --out "$work/prepares"
    until [ -e "$shard.tmp" ] || [ -e "$shard" ] || grep -q "^error" "$work/err"; do sleep 0.01; done
    stop_with "$1"
    [ ! -e "$work/prepares/data/prepare.json" ]
}

# SIGHUP has the same handler (tests/test_programs.sh), and cannot be tried everywhere.
more_documents
for signal in "INT 130" "TERM 143"; do
    until stop_preparing "${signal% *}"; do
        [ $documents -lt 100000 ] || fail "SIG${signal% *} came too late"
        more_documents
    done
    [ "$got" -eq "${signal#* }" ] || fail "exit code $got after SIG${signal% *} while preparing"
    says "^stopped while preparing $work/prepares/data"
    ! grep -q "^error" "$work/err" || fail "a stop is told as an error"
done
expect 0 "" "$train" "$work/many.jsonl" $tiny --tokenizer "$work/data/tokenizer.json" --out "$work/prepares"
for file in train_000000.bin val_000000.bin tokenizer.json; do
    cmp "$work/many/$file" "$work/prepares/data/$file" || fail "$file of a stopped preparation differs"
done

# ---- bad inputs ----
expect 2 "unknown flag" "$train" "$work/data" --out "$work/x" --frobnicate
expect 2 "out DIR is missing" "$train" "$work/data"
expect 2 "DATA is missing" "$train" --out "$work/x"
expect 2 "give one" "$train" "$work/data" --out "$work/x" --steps 3 --epochs 1
expect 2 "--schedule 'linear' is unknown" "$train" "$work/data" --out "$work/x" --schedule linear
expect 2 "there are adamw and muon" "$train" "$work/data" --out "$work/x" --optimizer sgd
expect 1 "$work/none.txt" "$train" "$work/none.txt" --out "$work/x"
mkdir "$work/empty"
expect 1 "$work/empty" "$train" "$work/empty" --out "$work/x"
expect 1 "not a kind of file" "$train" "$train" --out "$work/x"
head -c 5000 "$train" >"$work/binary.txt"
expect 1 "binary.txt" "$train" "$work/binary.txt" --out "$work/x"
head -c 3001 "$work/alone.bin" >"$work/cut.bin"
expect 1 "cut.bin" "$train" "$work/cut.bin" $tiny --vocab-size 400 --out "$work/x"
for flags in "--vocab-size 100" "--lr 1e-3 --min-lr 1e-2" "--min-lr 1e-2"; do
    # shellcheck disable=SC2086
    expect 1 "" "$train" "$work/little.txt" $tiny $flags --out "$work/early"
    says "^error: \(a vocabulary of 100 tokens cannot be: .*: give --vocab-size from 257\|--min-lr 0.01 is above --lr 0.00[14]\)"
    [ "$(wc -l <"$work/err")" -eq 1 ] && [ ! -e "$work/early/data" ] || fail "documents are prepared before $flags is refused: $(cat "$work/err")"
done
expect 1 "outside the vocabulary" "$train" "$work/alone.bin" $tiny --vocab-size 100 --out "$work/x"
expect 1 "another tokenizer" "$train" "$work/alone.bin" $tiny --tokenizer "$work/documents/tokenizer.json" --out "$work/x"
expect 1 "none.json" "$train" "$work/alone.bin" $tiny --tokenizer "$work/none.json" --out "$work/x"
expect 1 "has 400 ids, but vocab_size is 512" "$train" "$work/data" $tiny --vocab-size 512 --out "$work/x"
expect 1 "mixed" "$train" "$work/alone.bin" "$work/little.txt" $tiny --out "$work/x"
expect 1 "not divisible" "$train" "$work/data" --d-model 33 --n-head 2 --out "$work/x"
expect 1 "seq-len" "$train" "$work/data" $shape --seq-len 100k --out "$work/x"
expect 2 "preset" "$train" "$work/data" --preset 7b --out "$work/x"
expect 1 "holds no checkpoint" "$train" --resume --out "$work/x"
expect 1 "add --recompute, lower --micro-batch" "$train" "$work/data" --preset 110m --vocab-size 400 --seq-len 4k --micro-batch 100k --batch-tokens 1g --out "$work/x"
expect 0 "" "$train" "$work/data" $tiny --resume --out "$work/anew"
says "begins anew"
got=0
"$train" --help >"$work/out" 2>"$work/err" || got=$?
[ "$got" -eq 0 ] && grep -q -- '--batch-tokens' "$work/out" || fail "--help"

# ---- a full disk ----
mkdir "$work/small"
if mount -t tmpfs -o size=400k none "$work/small" 2>/dev/null; then
    mounted=1
    expect 1 "No space left" "$train" "$work/data" $shape --steps 60 --save-every 10 --keep 1 --out "$work/small/run"
    says "warning: .*the run goes on"
    [ "$(wc -l <"$work/small/run/log.jsonl")" -eq 60 ] || fail "the run did not go on with a full disk"
    [ "$(ls "$work/small/run" | grep -c tmp)" -eq 0 ] || fail "half a checkpoint stays"
    umount "$work/small"
    mounted=
else
    echo "skipped: a full disk, because a small file system cannot be mounted here"
fi
echo "$checks checks"
