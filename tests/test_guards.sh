#!/bin/sh
# What guards a run of ./train, each by an injected fault: weights and gradients that are not finite, spikes, an unlikely first loss; writes that fail
# during saves; a second signal; and memory that ends anywhere in any program. What test_train.sh has (kills, stops, a loss that rises) is not repeated.
# Usage: tests/test_guards.sh [FOLDER-OF-PROGRAMS/]
set -eu
programs=${1:-${PROGRAM_DIR:-./}}
build=${BUILD:-build}
train=${programs}train
work=$(mktemp -d "${TMPDIR:-/tmp}/test_guards_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
shape="--d-model 16 --n-layer 1 --n-head 2 --mlp-hidden 24 --seq-len 32 --batch-tokens 128 --micro-batch 2 --threads 1"
. "$(dirname "$0")/shell/checks.sh"
change=$build/tests/test_snapshot

"$build/stories" --documents 120 --seed 3 --out "$work/stories.jsonl"
"${programs}prepare" "$work/stories.jsonl" --out "$work/data" --vocab-size 300 --val-fraction 0.05 --threads 1 2>"$work/err"
go="$train $work/data $shape --steps 40 --save-every 5 --eval-every 0"
expect 0 "" $go --out "$work/unbroken"
! grep -q warning "$work/err" || fail "a run without faults warns: $(cat "$work/err")"

# ---- numbers ----
if [ -x "$change" ]; then
    # A weight that is finite but overflows on the way: ten steps are skipped, named and logged, the weights stay, the checkpoint is named.
    expect 0 "" "$train" "$work/data" $shape --steps 8 --out "$work/poison"
    "$change" --poison "$work/poison/step_00000008" norm.weight 3e38
    cp "$work/poison/step_00000008/model.safetensors" "$work/before"
    expect 1 "10 steps in a row .*the last good checkpoint is $work/poison/step_000000" "$train" --resume --out "$work/poison" --steps 60 --save-every 2
    says "warning: step 9 skipped: .*first in the gradient of "
    [ "$(grep -c '"skipped":"gradient of ' "$work/poison/log.jsonl")" -eq 10 ] || fail "ten skipped steps are not in the log: $(cat "$work/poison/log.jsonl")"
    for folder in "$work"/poison/step_*; do
        cmp "$folder/model.safetensors" "$work/before" || fail "a gradient that is not finite reaches the weights"
    done
    # The loss of the first step: weights that have learned something already.
    cp -r "$work/unbroken" "$work/rewound"
    "$change" --rewind "$work/rewound/step_00000040"
    rm -r "$work"/rewound/step_000000[1-9]*
    expect 0 "" "$train" --resume --out "$work/rewound" --steps 2
    says "warning: the loss of the first step is .*where random weights give about ln(vocabulary)"
else
    echo "skipped: changed checkpoints, because $change is not built"
fi
# A text of one pattern, soon learned, and a little of something else in it.
awk 'BEGIN { srand(5); for (i = 0; i < 1500; i++) { if (i == 700) { for (k = 0; k < 90; k++) { printf "%c", 33 + int(rand() * 90) } }
    printf "one two three four " } }' >"$work/pattern.txt"
expect 0 "" "$train" "$work/pattern.txt" $shape --vocab-size 280 --val-fraction 0 --lr 1e-2 --schedule constant --epochs 5 --out "$work/spike"
says "gradient norm .* is more than ten times its mean, clipped"
grep -q '"clipped":true,"spike":true' "$work/spike/log.jsonl" || fail "the spike is not in the log"
last=$(sed -n '$s/.*"loss":\([0-9.e-]*\).*/\1/p' "$work/spike/log.jsonl")
awk "BEGIN { exit !($last < 1.0) }" || fail "a spike ruins the run: the last loss is $last"

# ---- a second signal ----
slow="$train $work/data --d-model 32 --n-layer 2 --n-head 2 --mlp-hidden 48 --seq-len 64 --batch-tokens 4096 --micro-batch 64 --threads 1 --steps 6"
expect 0 "" $slow --out "$work/calm"
at_once=
for try in 1 2 3 4 5 6 7 8; do
    rm -rf "$work/twice"
    $slow --save-every 1 --out "$work/twice" >"$work/out" 2>"$work/err" &
    running=$!
    until [ -e "$work/twice/step_00000001" ] || ! kill -0 "$running" 2>/dev/null; do sleep 0.01; done
    kill -TERM "$running" 2>/dev/null || :
    sleep 0.02
    kill -TERM "$running" 2>/dev/null || :
    got=0
    wait "$running" || got=$?
    [ "$got" -eq 143 ] || [ "$got" -eq 0 ] || fail "exit code $got after two SIGTERM"
    if [ "$got" -eq 143 ] && ! grep -q "stopped and saved" "$work/err"; then
        at_once=1
        break
    fi
done
[ -n "$at_once" ] || echo "skipped: a second signal, because the first was always quicker here"
expect 0 "" "$train" --resume --out "$work/twice" --threads 1
cmp "$work/calm/step_00000006/model.safetensors" "$work/twice/step_00000006/model.safetensors" || fail "other weights after two signals"

# ---- whole programs under faults ----
fault=$build/tests/libfault.so
if [ ! -e "$fault" ] || ! LD_PRELOAD=$fault FAULT=none:short:1:1 "$train" --help >/dev/null 2>"$work/err" || [ -s "$work/err" ]; then
    echo "skipped: whole programs under faults, because $fault is not built or cannot be loaded before them"
    echo "$checks checks"
    exit 0
fi
# under FAULT COMMAND...
under() {
    what=$1
    shift
    env LD_PRELOAD="$fault" FAULT="$what" "$@"
}

# Some saves fail: the run goes on, says so, keeps what it had and saves again; the end is that of the unbroken run.
for what in write:ENOSPC:90:10 write:EIO:30:2 write:short:1:1000000 write:EINTR:40:1 sync:EIO:6:5 names:EIO:12:14 close:EIO:9:3 open:EMFILE:60:4; do
    rm -rf "$work/run"
    expect 0 "" under "$what" $go --out "$work/run"
    case $what in
    *short* | *EINTR*) ! grep -q warning "$work/err" || fail "$what: $(cat "$work/err")" ;;
    *) says "warning: .*checkpoint step_.* was not saved: .*the run goes on and saves again at step" ;;
    esac
    [ "$(find "$work/run" -name '*.tmp' | wc -l)" -eq 0 ] || fail "$what: half a checkpoint stays"
    for file in model.safetensors optimizer.safetensors; do
        cmp "$work/unbroken/step_00000040/$file" "$work/run/step_00000040/$file" || fail "$what: other weights"
    done
done
# A file system without locks: said once, and the run goes on.
rm -rf "$work/run"
expect 0 "" under locks:ENOLCK:1:1000000 $go --out "$work/run"
[ "$(grep -c "^warning: $work/run cannot be locked (No locks available): take care that no other process trains into it$" "$work/err")" -eq 1 ] ||
    fail "a folder without a lock: $(cat "$work/err")"
# All saves fail from some moment on: the last one is an error that names the checkpoint there is, and that one is good.
rm -rf "$work/run"
expect 1 "the disk is full .*the last good checkpoint is $work/run/step_0000" under write:ENOSPC:90:1000000 $go --out "$work/run"
expect 0 "" "$train" --resume --out "$work/run" --threads 1
cmp "$work/unbroken/step_00000040/model.safetensors" "$work/run/step_00000040/model.safetensors" || fail "other weights after a full disk"

# Memory ends anywhere: a result as ever, or one line. Packed documents, so that their library is met as well.
gzip -c "$work/stories.jsonl" >"$work/packed.jsonl.gz"
"${programs}generate" "$work/unbroken" -p "Once" -n 3 --threads 1 >"$work/text" 2>"$work/err"
"${programs}tokenize" --tokenizer "$work/data/tokenizer.json" <"$work/pattern.txt" >"$work/ids"
for n in 1 2 3 5 8 13 21 34 55 89 144 233 377 610 987 1597; do
    for count in 1 1000000; do
        for program in generate tokenize prepare train eval_ppl; do
            rm -rf "$work/run"
            case $program in
            generate) set -- -p Once -n 3 --threads 1 "$work/unbroken" ;;
            tokenize) set -- --tokenizer "$work/data/tokenizer.json" ;;
            prepare) set -- "$work/packed.jsonl.gz" --out "$work/run" --tokenizer "$work/data/tokenizer.json" --val-fraction 0.05 --threads 1 ;;
            train) set -- "$work/data" $shape --steps 1 --out "$work/run" ;;
            eval_ppl) set -- "$work/unbroken" "$work/data" --contexts 32 --max-tokens 200 --threads 1 ;;
            esac
            got=0
            under "memory:ENOMEM:$n:$count" "$programs$program" "$@" <"$work/pattern.txt" >"$work/out" 2>"$work/err" || got=$?
            [ "$got" -le 1 ] || fail "$program ends with $got when allocation $n fails: $(cat "$work/err")"
            [ "$got" -eq 0 ] || [ -s "$work/err" ] || fail "$program says nothing when allocation $n fails"
            case $program:$got in
            generate:0) cmp "$work/text" "$work/out" || fail "generate writes another text when allocation $n fails" ;;
            tokenize:0) cmp "$work/ids" "$work/out" || fail "tokenize writes other ids when allocation $n fails" ;;
            prepare:0) cmp "$work/data/train_000000.bin" "$work/run/train_000000.bin" || fail "prepare writes other shards when allocation $n fails" ;;
            esac
            checks=$((checks + 1))
        done
    done
done
echo "$checks checks"
