#!/bin/sh
# All programs where the world around them is unkind: closed descriptors, full devices, limits, lost readers, outputs that are inputs, other data on
# resume, checkpoints with parts missing, names that do not exist.
# Usage: tests/test_programs.sh [FOLDER-OF-PROGRAMS/]
set -eu
programs=${1:-${PROGRAM_DIR:-./}}
stories=${BUILD:-build}/stories
train=${programs}train
generate=${programs}generate
eval_ppl=${programs}eval_ppl
prepare=${programs}prepare
work=$(mktemp -d "${TMPDIR:-/tmp}/test_programs_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
shape="--d-model 16 --n-layer 1 --n-head 2 --mlp-hidden 24 --seq-len 32 --batch-tokens 128 --micro-batch 2 --threads 1"
. "$(dirname "$0")/shell/checks.sh"

# Names and checksums of all files, to see that a refused command changes nothing.
tree_sum() { (cd "$work" && find . -type f ! -name out ! -name err ! -name .lock -exec cksum {} + | sort); }

mkdir "$work/docs" "$work/others"
"$stories" --documents 60 --seed 3 --out "$work/docs/a.jsonl"
"$stories" --documents 60 --seed 4 --out "$work/others/a.jsonl"
"$prepare" "$work/docs" --out "$work/data" --vocab-size 300 --val-fraction 0.1 --threads 1 2>"$work/err"
"$train" "$work/data" $shape --steps 4 --out "$work/run" 2>"$work/err" || fail "cannot train: $(cat "$work/err")"
checkpoint=$work/run/step_00000004

# ---- descriptors that are closed ----
for closed in 2 "0 1 2"; do
    rm -rf "$work/closed"
    (
        for fd in $closed; do eval "exec $fd>&-"; done
        "$prepare" "$work/docs" --out "$work/closed" --vocab-size 300 --val-fraction 0.1 --threads 1
    ) 2>/dev/null || fail "prepare with $closed closed"
    diff -r "$work/data" "$work/closed" || fail "prepare with $closed closed writes other files"
    rm -rf "$work/closed"
    (
        for fd in $closed; do eval "exec $fd>&-"; done
        "$train" "$work/data" $shape --steps 4 --sample-every 2 --out "$work/closed"
    ) 2>/dev/null || fail "train with $closed closed"
    cmp "$work/closed/step_00000004/model.safetensors" "$checkpoint/model.safetensors" || fail "train with $closed closed"
    checks=$((checks + 2))
done
"$stories" --documents 60 --seed 3 --out "$work/again.jsonl" 0<&- 2>&-
cmp "$work/again.jsonl" "$work/docs/a.jsonl" || fail "stories with closed descriptors"
for program in train generate eval_ppl prepare tokenize; do
    got=0
    "$programs$program" --help >&- 2>"$work/err" || got=$?
    [ "$got" -eq 1 ] || fail "$program --help into a closed descriptor gives exit code $got"
    says err "^error: cannot write to standard output"
    [ -w /dev/full ] || continue
    got=0
    "$programs$program" --help >/dev/full 2>"$work/err" || got=$?
    [ "$got" -eq 1 ] || fail "$program --help on a full device gives exit code $got"
    says err "^error: cannot write to standard output: No space"
    "$programs$program" --help | grep -q "1,000-fold" || fail "$program --help does not say what k is"
done
# All kinds of DATA are named wherever they are accepted.
for program in train prepare eval_ppl; do
    for form in txt jsonl parquet parq gz zst xz bz2 tar tgz tzst txz tbz2; do
        "$programs$program" --help | grep -q "\.$form\>" || fail "$program --help does not name .$form"
    done
    checks=$((checks + 1))
done
for words in "shards (.bin" "that ./prepare made"; do
    "$train" --help | grep -q "$words" && "$eval_ppl" --help | grep -q "$words" || fail "--help does not name \"$words\""
done
got=0
"$eval_ppl" "$work/run" "$work/data" --contexts 32 >&- 2>"$work/err" || got=$?
[ "$got" -eq 1 ] || fail "figures that cannot be printed are no error"
"$train" --help | grep -q "1,024-fold in --seq-len.*else 1,000-fold" || fail "train --help does not say where k is 1,024"

# ---- limits and readers that leave ----
expect 1 "ulimit -f" sh -c "ulimit -f 8; exec $train $work/data $shape --steps 2 --out $work/limit"
[ "$(find "$work/limit" -name '*tmp*' | wc -l)" -eq 0 ] || fail "half a checkpoint stays: $(ls "$work/limit")"
expect 1 "ulimit -f" sh -c "ulimit -f 1; exec $generate $work/run -p x -n 1 --save-state $work/limit/state"
[ ! -e "$work/limit/state" ] && [ ! -e "$work/limit/state.tmp" ] || fail "half a state stays"
("$train" "$work/data" $shape --steps 40 --sample-every 1 --out "$work/piped" 2>&1 && : >"$work/finished") | head -n 1 >/dev/null
[ -e "$work/finished" ] && [ -e "$work/piped/step_00000040" ] || fail "a run whose messages nobody reads does not end well"
checks=$((checks + 3))
"$train" "$work/data" $shape --steps 1m --out "$work/hung" >"$work/out" 2>"$work/err" &
running=$!
tries=0
until [ -s "$work/hung/log.jsonl" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 500 ] || fail "the run does not begin"
    sleep 0.02
done
# Started under nohup, the whole script ignores SIGHUP for good, and so do the programs.
if (trap 'exit 0' HUP; kill -HUP "$(sh -c 'echo $PPID')"; exit 1); then
    kill -HUP "$running"
    kill -HUP "$running" 2>/dev/null || :
    got=0
    wait "$running" || got=$?
    [ "$got" -eq 129 ] || fail "exit code $got after SIGHUP: $(cat "$work/err")"
    says err "stopped and saved"
else
    echo "skipped: SIGHUP is ignored here (nohup), so saving on SIGHUP cannot be tried"
    kill -TERM "$running"
    wait "$running" || :
fi
# What schedulers send some time before the end, perhaps more than once.
"$train" "$work/data" $shape --steps 1m --out "$work/scheduled" >"$work/out" 2>"$work/err" &
running=$!
until [ -s "$work/scheduled/log.jsonl" ]; do sleep 0.02; done
kill -USR1 "$running"
kill -USR1 "$running" 2>/dev/null || :
got=0
wait "$running" || got=$?
[ "$got" -eq 138 ] || fail "exit code $got after SIGUSR1: $(cat "$work/err")"
says err "stopped and saved"
sh -c 'trap "" HUP; exec "$@"' sh "$train" "$work/data" $shape --steps 100 --out "$work/nohup" >"$work/out" 2>"$work/err" &
running=$!
until [ -s "$work/nohup/log.jsonl" ]; do sleep 0.02; done
kill -HUP "$running" 2>/dev/null || :
wait "$running" || fail "SIGHUP ends a run under nohup"
checks=$((checks + 1))

# ---- outputs that are inputs ----
cp "$work/docs/a.jsonl" "$work/text.jsonl"
ln -s text.jsonl "$work/link"
before=$(tree_sum)
evaluate="$eval_ppl $work/run $work/text.jsonl --contexts 32"
expect 1 "would overwrite the input" $evaluate --csv "$work/text.jsonl"
expect 1 "would overwrite the input" $evaluate --json "$work/docs/../link"
expect 1 "both name the file" $evaluate --json "$work/x" --plot "$work/./x"
expect 1 "into a checkpoint" $evaluate --plot "$checkpoint/config.json"
expect 1 "into a folder of prepared data" "$eval_ppl" "$work/run" "$work/data" --contexts 32 --csv "$work/data/train_000000.bin"
expect 1 "there is no folder" $evaluate --csv "$work/none/x.csv"
expect 1 "it is a folder" $evaluate --csv "$work/docs"
expect 1 "would overwrite the input" "$generate" "$work/run" -f "$work/text.jsonl" -n 1 --save-state "$work/text.jsonl"
expect 1 "into a checkpoint" "$generate" "$work/run" -p x -n 1 --save-state "$checkpoint/model.safetensors"
expect 1 "there is no folder" "$generate" "$work/run" -p x -n 1 --save-state "$work/none/state"
expect 1 "no regular file" "$generate" "$work/run" -p x -n 1 --save-state /dev/null
printf 'x\n/save %s\n' "$checkpoint/optimizer.safetensors" | "$generate" "$work/run" --interactive -n 1 >"$work/out" 2>"$work/err"
says err "^error: /save .*into a checkpoint"
[ "$(tree_sum)" = "$before" ] || fail "a refused output changed something"
mkdir "$work/logs"
cp "$work/docs/a.jsonl" "$work/logs/log.jsonl"
expect 1 "writes its log there" "$train" "$work/logs" $shape --steps 1 --out "$work/logs"
cmp "$work/logs/log.jsonl" "$work/docs/a.jsonl" || fail "the log took the place of a document"
expect 0 "" $evaluate --csv "$work/x.csv" --json "$work/x.json" --plot "$work/x.png"

# ---- other data on resume ----
expect 0 "" "$train" "$work/docs" $shape --vocab-size 300 --steps 2 --out "$work/documents"
expect 1 "others is not what the run was trained on" "$train" "$work/others" --resume --steps 3 --out "$work/documents"
expect 1 "leave DATA out" "$train" "$work/docs" "$work/others" --resume --steps 3 --out "$work/documents"
expect 1 "not what the run was trained on" "$train" "$work/data" --resume --steps 3 --out "$work/documents"
expect 0 "" "$train" "$work/others/../docs/" --resume --steps 3 --out "$work/documents"
expect 0 "" "$train" --resume --steps 4 --out "$work/documents"
# As many tokens, but one is another (a fingerprint covers all tokens of data as short as this).
cp -r "$work/data" "$work/data2"
printf '\101\000' | dd of="$work/data2/train_000000.bin" bs=2 seek=$((512 + 3)) conv=notrunc 2>/dev/null
cmp -s "$work/data/train_000000.bin" "$work/data2/train_000000.bin" && fail "the test changes nothing"
expect 1 "the data is not the one" "$train" "$work/data2" --resume --steps 5 --out "$work/run"
mv "$work/data" "$work/moved"
expect 0 "" "$train" "$work/moved" --resume --steps 5 --out "$work/run"
mv "$work/moved" "$work/data"

# ---- data of which only a part was prepared ----
cp -r "$work/data" "$work/half"
mv "$work/half/prepare.json" "$work/half/prepare.unfinished"
expect 1 "half: the preparation .* did not finish .*: run the same ./prepare " "$train" "$work/half" $shape --steps 1 --out "$work/x"
expect 1 "half: the preparation .* did not finish " "$train" --data "$work/data:1" --data "$work/half:1" $shape --steps 1 --out "$work/x"
expect 1 "--val: .*half: the preparation .* did not finish " "$train" "$work/data" --val "$work/half" $shape --steps 1 --out "$work/x"
expect 1 "half: the preparation .* did not finish " "$eval_ppl" "$work/run" "$work/half" --contexts 32
[ ! -e "$work/x" ] || fail "half a data set leaves a run's folder"

# ---- names that do not exist ----
expect 2 "--preset: .*7b" "$train" "$work/data" --out "$work/x" --preset 7b
expect 2 "--mixer: .*none" "$train" "$work/data" --out "$work/x" --mixer none
expect 2 "--objective: .*none" "$train" "$work/data" --out "$work/x" --objective none
expect 2 "--optimizer 'none'" "$train" "$work/data" --out "$work/x" --optimizer none
expect 2 "--dtype 'f8'" "$train" "$work/data" --out "$work/x" --dtype f8
expect 2 "--dtype 'f8'" "$generate" "$work/run" -p x --dtype f8
expect 1 "the name is empty" "$train" "" --out "$work/x"
expect 1 "the name is empty" "$eval_ppl" "$work/run" ""
expect 1 "the name is empty" "$generate" "" -p x
[ ! -e "$work/x" ] || fail "a refused run leaves a folder"

# ---- a configuration file ----
config=$checkpoint/config.json
for key in d_model n_layer n_head d_head n_slot conv_width mlp_hidden; do
    grep -v "\"$key\"" "$config" >"$work/config.json"
    expect 1 "\"$key\" is missing" "$train" "$work/data" --config "$work/config.json" --seq-len 32 --steps 1 --out "$work/x"
done
grep -v -e vocab_size -e norm_eps -e '"chunk' "$config" >"$work/config.json"
expect 0 "" "$train" "$work/data" --config "$work/config.json" --seq-len 32 --batch-tokens 128 --steps 1 --out "$work/configured"

# ---- without a tokenizer, without the optimizer ----
cp "$work/data/train_000000.bin" "$work/alone.bin"
expect 0 "" "$train" "$work/alone.bin" $shape --vocab-size 300 --steps 2 --out "$work/bare"
says err "need --tokenizer FILE"
for program in generate eval_ppl; do
    "$programs$program" --help | grep -q -- "--tokenizer FILE" || fail "$program has no --tokenizer"
done
expect 0 "" "$eval_ppl" "$work/bare" "$work/alone.bin" --contexts 32 --csv "$work/bare.csv" --json "$work/bare.json"
says out "bits per byte are unknown without a tokenizer"
grep -q "bits/byte" "$work/out" && fail "bits per byte without a tokenizer"
perplexity=$(sed -n '$s/.* //p' "$work/out")
expect 0 "" "$eval_ppl" "$work/bare" "$work/alone.bin" --contexts 32 --tokenizer "$work/data/tokenizer.json"
says out "bits/byte"
says out " $perplexity "
expect 1 "documents need a tokenizer" "$eval_ppl" "$work/bare" "$work/text.jsonl"
expect 1 "by-position needs" "$eval_ppl" "$work/bare" "$work/alone.bin" --by-position
expect 1 "reset-at-document needs" "$eval_ppl" "$work/bare" "$work/alone.bin" --reset-at-document
expect 1 "by --tokenizer FILE" "$generate" "$work/bare" -p x -n 2
expect 0 "" "$generate" "$work/bare" -p x -n 2 --tokenizer "$work/data/tokenizer.json"
expect 0 "" "$generate" "$work/run" -p x -n 2 --tokenizer "$work/data/tokenizer.json"
expect 1 "is not the one that" "$generate" "$work/run" -p x -n 2 --tokenizer tests/golden/model/tokenizer.json
rm "$work"/run/step_*/optimizer.safetensors
expect 0 "" "$generate" "$work/run" -p x -n 2
expect 0 "" "$eval_ppl" "$checkpoint" "$work/data" --contexts 32
expect 1 "optimizer.safetensors is missing" "$train" --resume --steps 9 --out "$work/run"
printf x >>"$work/bare/step_00000002/optimizer.safetensors"
expect 1 "optimizer.safetensors" "$eval_ppl" "$work/bare" "$work/alone.bin" --contexts 32
rm "$checkpoint/tokenizer.json"
expect 1 "tokenizer.json is missing" "$generate" "$checkpoint" -p x -n 2
echo "$checks checks"
