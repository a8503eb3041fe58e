#!/bin/sh
# ./prepare from outside: a small corpus with 1 and 2 threads gives the same bytes; exit codes; documents printed; stories written.
# Usage: tests/test_prepare.sh [PREPARE [STORIES]]
set -eu
prepare=${1:-${PROGRAM_DIR:-./}prepare}
stories=${2:-${BUILD:-build}/stories}
work=$(mktemp -d "${TMPDIR:-/tmp}/test_prepare_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

. "$(dirname "$0")/shell/checks.sh"

mkdir -p "$work/docs/more"
"$stories" --documents 300 --seed 7 --out "$work/docs/stories.jsonl"
"$stories" --documents 300 --seed 7 | cmp - "$work/docs/stories.jsonl" || fail "stories differ between file and standard output"
printf '\357\273\277A text file.\r\nWith two lines.\r\n' >"$work/docs/more/one.txt"
printf '{"text": "good"}\n{"text": 1}\n{"content": "also \\"good\\" \\u00e9"}\n' >"$work/docs/more/two.jsonl"
printf 'not read' >"$work/docs/more/three.md"

for threads in 1 2; do
    expect 0 "" "$prepare" "$work/docs" --out "$work/out$threads" --vocab-size 512 --threads "$threads" --shard-tokens 40k
    grep -q "two.jsonl:2: " "$work/err" || fail "the bad record is not named"
    grep -q "^skipped  *1$" "$work/err" || fail "the bad record is not counted in the table"
    grep -q "^1 file skipped: .md 1$" "$work/err" || fail "the file that is no document is not counted"
done
diff -r "$work/out1" "$work/out2" || fail "1 and 2 threads give different bytes"
for file in tokenizer.json prepare.json train_000000.bin train_000001.bin val_000000.bin; do
    [ -s "$work/out1/$file" ] || fail "$file is missing"
done
[ "$(od -An -tu4 -N4 "$work/out1/train_000000.bin" | tr -d ' ')" = 20240520 ] || fail "the shard has another magic"

expect 0 "" "$prepare" "$work/docs" --out "$work/out1" --vocab-size 512 --shard-tokens 40k
grep -q "already prepared" "$work/err" || fail "a complete folder is made again"
expect 1 "already prepared from other inputs or options (vocab_size)" "$prepare" "$work/docs" --out "$work/out1" --vocab-size 600 --shard-tokens 40k
expect 1 "two.jsonl:2: " "$prepare" "$work/docs/more/two.jsonl" --out "$work/strict" --strict
expect 1 "three.md is no document that can be read (1 file skipped: .md 1)" "$prepare" "$work/docs" --out "$work/strict" --strict
expect 1 "nothing.txt" "$prepare" "$work/nothing.txt" --out "$work/none"
expect 1 "three.md" "$prepare" "$work/docs/more/three.md" --out "$work/none"
expect 2 "--out" "$prepare" "$work/docs"
expect 2 "" "$prepare" --out "$work/none"
expect 2 "exclude" "$prepare" "$work/docs" --out "$work/none" --vocab-size 512 --tokenizer "$work/out1/tokenizer.json"
expect 0 "" "$prepare" --help
grep -q -- "--val-fraction" "$work/out" || fail "--help does not name --val-fraction"

expect 2 "is not understood" "$prepare" "$work/docs" --out "$work/none" --where score

# A run that is killed, or asked to stop, goes on where it was and gives what a whole run gives. --dedup and a packed file on the way.
"$stories" --documents 6000 --seed 8 --out "$work/many.jsonl"
gzip -c "$work/many.jsonl" >"$work/many.jsonl.gz"
expect 0 "" "$prepare" "$work/many.jsonl" "$work/many.jsonl.gz" --out "$work/whole" --tokenizer "$work/out1/tokenizer.json" --shard-tokens 10k --dedup
grep -q "^duplicates  *6000$" "$work/err" || fail "duplicates are not counted: $(cat "$work/err")"
# Started under nohup, the whole script ignores SIGHUP for good, and so do the programs.
signals="KILL TERM"
if (trap 'exit 0' HUP; kill -HUP "$(sh -c 'echo $PPID')"; exit 1); then
    signals="$signals HUP"
else
    echo "skipped: SIGHUP is ignored here (nohup), so stopping by SIGHUP cannot be tried"
fi
for signal in $signals; do
    out=$work/stopped_$signal
    "$prepare" "$work/many.jsonl" "$work/many.jsonl.gz" --out "$out" --tokenizer "$work/out1/tokenizer.json" --shard-tokens 10k --dedup \
        --threads 1 2>"$work/stopped" &
    pid=$!
    tries=0
    while [ ! -e "$out/train_000003.bin" ] && [ "$tries" -lt 2000 ]; do
        tries=$((tries + 1))
        sleep 0.005
    done
    # It is halted, so that it cannot end while the second one is refused, however slow that is.
    kill -s STOP "$pid" 2>/dev/null || fail "the run ended before it could be stopped"
    expect 1 "another process prepares documents into" "$prepare" "$work/many.jsonl" --out "$out" --tokenizer "$work/out1/tokenizer.json"
    kill -s "$signal" "$pid"
    kill -s CONT "$pid" 2>/dev/null || :
    got=0
    wait "$pid" || got=$?
    [ ! -e "$out/prepare.json" ] || fail "SIG$signal came too late"
    case $signal in
    KILL) wanted=137 ;;
    TERM) wanted=143 ;;
    HUP) wanted=129 ;;
    esac
    [ "$got" -eq "$wanted" ] || fail "exit code $got instead of $wanted after SIG$signal"
    if [ "$signal" != KILL ]; then
        grep -q "stopped while preparing" "$work/stopped" || fail "the stopped run does not say so: $(cat "$work/stopped")"
    fi
    touch -r "$out/train_000000.bin" "$work/before"
    expect 0 "" "$prepare" "$work/many.jsonl" "$work/many.jsonl.gz" --out "$out" --tokenizer "$work/out1/tokenizer.json" --shard-tokens 10k --dedup
    [ ! "$out/train_000000.bin" -nt "$work/before" ] || fail "the first shard is written again after SIG$signal"
    diff -r "$work/whole" "$out" || fail "a run stopped by SIG$signal gives other bytes"
done

# Memory stays below 1 GB: a line of 100 MB, and 40 MB of text that nothing cuts, with two threads. (Sanitizers need more than that to start.)
if (ulimit -v 1000000 && "$prepare" --help >"$work/out" 2>&1); then
    { printf '{"text": "'; yes 'a hundred megabytes of text stand in this line, and no end of it comes' | head -c 100000000 | tr '\n' ' '; printf '"}\n'; } >"$work/line.jsonl"
    head -c 40000000 /dev/zero | tr '\0' 'a' >"$work/letters.txt"
    expect 0 "" sh -c "ulimit -v 1000000; exec $prepare $work/line.jsonl $work/letters.txt --out $work/large --tokenizer $work/out1/tokenizer.json --threads 2"
    [ "$(awk '$1 == "training" || $1 == "validation" { sum += $3 } END { printf "%d", sum }' "$work/err")" -eq 140000000 ] ||
        fail "bytes are missing: $(cat "$work/err")"
else
    echo "skipped: this build cannot start within 1 GB of address space, so that its memory cannot be bounded"
fi

"$prepare" --print-documents "$work/docs/more" >"$work/printed" 2>/dev/null
printf '{"text": "A text file.\\u000d\\nWith two lines.\\u000d\\n"}\n{"text": "good"}\n{"text": "also \\"good\\" \303\251"}\n' | cmp - "$work/printed" ||
    fail "--print-documents prints something else: $(cat "$work/printed")"
"$prepare" --print-documents "$work/printed.jsonl" >/dev/null 2>&1 && fail "a missing file is no error"
mv "$work/printed" "$work/printed.jsonl"
"$prepare" --print-documents "$work/printed.jsonl" | cmp - "$work/printed.jsonl" || fail "what was printed is not read back the same"
if [ -e /dev/full ]; then
    code=0
    "$prepare" --print-documents "$work/docs" >/dev/full 2>"$work/err" || code=$?
    [ "$code" -eq 1 ] || fail "a full disk is no error"
fi
echo "$checks checks"
