#!/bin/sh
# build/text_run, build/text_report, scripts/compare_text and scripts/ablate: rows, what is not run again, what is resumed, tables and charts, refusals.
# Usage: tests/test_text.sh
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/test_text_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
. tests/shell/checks.sh
"$build/stories" --documents 120 --seed 3 --out "$work/stories.jsonl"
tiny="--tokens 512 --seq-len 32 --batch-tokens 128 --d-model 16 --n-layer 1 --n-head 1 --mlp-hidden 24 --contexts 64,128 --eval-tokens 512"
VOCAB=300 HELD_OUT=0.1
export VOCAB HELD_OUT

# The comparison: two runs, then three more. --slot-gate is the configuration's last key, so ./train knows the others too.
two="--mixer delta
--mixer lattice --chunk 4 --slot-gate"
MIXERS=$two scripts/compare_text "$work/r" "$work/stories.jsonl" $tiny >"$work/out" 2>"$work/err" || fail "compare_text: $(cat "$work/err")"
[ "$(wc -l <"$work/r/text.csv")" -eq 3 ] || fail "not two rows: $(cat "$work/r/text.csv")"
grep -q '^delta,stories.jsonl,[0-9a-f]*,32,512,128,16,1,1,24,adamw,f32,512,0.003,1,300,7553,1024,' "$work/r/text.csv" || fail "row: $(cat "$work/r/text.csv")"
# Twice 16 · 16 floats: chunks keep their start.
grep -q '^lattice chunk=4 slot-gate,.*,300,8064,2048,' "$work/r/text.csv" || fail "row: $(cat "$work/r/text.csv")"
cp "$work/r/text.csv" "$work/first.csv"
SEEDS="1 2" RATES="3e-3 1e-2" MIXERS="--mixer delta" scripts/compare_text "$work/r" "$work/stories.jsonl" $tiny >"$work/out" 2>"$work/err" ||
    fail "compare_text goes on: $(cat "$work/err")"
[ "$(wc -l <"$work/r/text.csv")" -eq 6 ] || fail "not five rows: $(cat "$work/r/text.csv")"
head -3 "$work/r/text.csv" | cmp - "$work/first.csv" || fail "rows that stood there have changed"
[ "$(grep -c "has this run already" "$work/err")" -eq 1 ] || fail "what stood there was run again: $(cat "$work/err")"
grep -q '^| delta | 7553 | 1024 | 0.0[0-9]* | [0-9.]* | [0-9.]* | [0-9.]* | [0-9.]* | 2 | [0-9]* | 0.0[0-9]*: [0-9.]* |$' "$work/out" || fail "table: $(cat "$work/out")"
[ "$(head -c 4 "$work/r/text.png" | tail -c 3)" = PNG ] || fail "no chart"
[ "$(find "$work/r/made/runs" -type d | wc -l)" -eq 1 ] || fail "folders of runs stay: $(ls "$work/r/made/runs")"
checks=$((checks + 9))

# A run that was under way is gone on with; its time is then not known. The same seed gives the same model.
run=$(sed -n 's/^delta, lr 0.003, seed 2: //p' "$work/err")
grep -v '^delta,.*,0.003,2,' "$work/r/text.csv" >"$work/less.csv"
mkdir -p "$run"
programs=${PROGRAM_DIR:-.}
expect 0 "" "$build/text_run" $tiny --data "$work/r/made/stories.jsonl" --mixer delta --seed 2 --programs "$programs" --runs "$work/r/made/runs" \
    --csv "$work/less.csv" --keep
[ -e "$run/step_00000004/model.safetensors" ] || fail "--keep does not keep the checkpoint: $(ls "$run")"
before=$(grep '^delta,.*,0.003,2,' "$work/r/text.csv" | cut -d, -f20,21)
grep -q "^delta,.*,0.003,2,300,7553,1024,nan,$before,nan" "$work/less.csv" || fail "not the same model: $before, $(cat "$work/less.csv")"
checks=$((checks + 2))

# Another optimizer and type are another setting.
expect 0 "" "$build/text_run" $tiny --data "$work/r/made/stories.jsonl" --mixer delta --optimizer muon --dtype bf16 --programs "$programs" --runs "$work/r/made/runs" \
    --csv "$work/less.csv"
grep -q '^delta,.*,24,muon,bf16,512,0.003,1,' "$work/less.csv" || fail "row: $(cat "$work/less.csv")"
expect 1 "there are adamw and muon" "$build/text_run" $tiny --data "$work/r/made/stories.jsonl" --optimizer adam --programs "$programs" --runs "$work/r/made/runs"
"$build/text_report" "$work/less.csv" >"$work/out"
[ "$(grep -c "steps of 128 by muon in bf16" "$work/out")" -eq 1 ] || fail "heading: $(cat "$work/out")"
checks=$((checks + 2))

# A row without a context that is asked for, other tokens to measure on, and other data of the same name.
expect 1 "has this run without context 256" "$build/text_run" $tiny --contexts 64,256 --data "$work/r/made/stories.jsonl" --mixer delta --seed 2 --programs "$programs" \
    --runs "$work/r/made/runs" --csv "$work/less.csv"
rows=$(wc -l <"$work/less.csv")
expect 0 "" "$build/text_run" $tiny --eval-tokens 256 --data "$work/r/made/stories.jsonl" --mixer delta --seed 2 --programs "$programs" --runs "$work/r/made/runs" \
    --csv "$work/less.csv"
"$programs/prepare" "$work/stories.jsonl" --out "$work/other/stories.jsonl" --vocab-size 290 --val-fraction 0.1 >/dev/null 2>&1
expect 0 "" "$build/text_run" $tiny --data "$work/other/stories.jsonl" --mixer delta --seed 2 --programs "$programs" --runs "$work/r/made/runs" --csv "$work/less.csv"
[ "$(wc -l <"$work/less.csv")" -eq $((rows + 2)) ] || fail "other data or other tokens are the same run: $(cat "$work/less.csv")"
# What follows from the width is usual for that width only.
expect 0 "" "$build/text_run" $tiny --data "$work/r/made/stories.jsonl" --mixer lattice --n-slot 64 --programs "$programs" --runs "$work/r/made/runs" --csv "$work/slots.csv"
expect 0 "" "$build/text_run" $tiny --data "$work/r/made/stories.jsonl" --mixer lattice --n-slot 16 --programs "$programs" --runs "$work/r/made/runs" --csv "$work/slots.csv"
[ "$(cut -d, -f1 "$work/slots.csv" | tr '\n' ' ')" = "mixer lattice n-slot=64 lattice " ] || fail "names: $(cat "$work/slots.csv")"
# What cannot be written down keeps its model.
mkdir "$work/full"
cat >"$work/full/train" <<'END'
#!/bin/sh
rm -f "$CSV"
mkdir -p "$CSV"
exec "$REAL/train" "$@"
END
chmod +x "$work/full/train"
ln -s "$(cd "$programs" && pwd)/eval_ppl" "$work/full/eval_ppl"
expect 1 "gone.csv: Is a directory" env "REAL=$(cd "$programs" && pwd)" "CSV=$work/gone.csv" "$build/text_run" $tiny \
    --data "$work/r/made/stories.jsonl" --mixer delta --seed 9 --programs "$work/full" --runs "$work/lost" --csv "$work/gone.csv"
ls "$work"/lost/*/step_*/model.safetensors >/dev/null || fail "the model is gone with the row that could not be written"
checks=$((checks + 2))

# The ablation is the same with other lines; one that cannot be run is told, and the others stand.
MIXERS="--mixer lattice --no-projection
--mixer delta --no-projection
--mixer lattice --n-slot 8" scripts/ablate "$work/r" "$work/r/made/stories.jsonl" $tiny >"$work/out" 2>"$work/err" && fail "a refused run is no failure"
says "error: no_projection is a key of Lattice"
[ "$(grep -c '^| lattice ' "$work/out")" -eq 2 ] || fail "ablation: $(cat "$work/out" "$work/err")"
grep -q '^lattice n-slot=8,' "$work/r/ablation.csv" || fail "row: $(cat "$work/r/ablation.csv")"
checks=$((checks + 2))

expect 2 "is given by SEEDS" scripts/compare_text "$work/r" "$work/stories.jsonl" --seed 2
expect 2 "holds out nothing" env HELD_OUT=0 scripts/compare_text "$work/r3" "$work/stories.jsonl" $tiny
expect 2 "is not there" scripts/compare_text "$work/r3" "$work/nowhere.txt" $tiny
expect 0 "" scripts/ablate --help
grep -q "^Usage: scripts/ablate" "$work/out" || fail "--help: $(cat "$work/out")"
expect 2 "" "$build/text_run"
expect 2 "" "$build/text_run" --data x --mixers delta
expect 2 "" "$build/text_report"
expect 1 "does not exist in this build" "$build/text_run" --data x --mixer lettuce
data=$work/r/made/stories.jsonl
expect 1 "--contexts 64,100: give powers of two" "$build/text_run" --data x --contexts 64,100
expect 1 "--contexts 64,: give powers of two" "$build/text_run" --data x --contexts 64,
expect 1 "its last part names the data" "$build/text_run" --data "a,b"
expect 1 "is no folder that ./prepare made" "$build/text_run" --data "$work/nothing"
expect 1 "cannot run .*/train with output to .*: No such file" "$build/text_run" --data "$data" --runs "$work/none" --programs "$work/text_run"
mkdir "$work/broken"
printf '#!/bin/sh\nexit 1\n' >"$work/broken/train"
chmod +x "$work/broken/train"
expect 1 "ended with exit code 1: what it said" "$build/text_run" --data "$data" --runs "$work/none" --programs "$work/broken"
# A run of an older build, whose models read plainly, is not taken for this one.
expect 1 "ended with exit code 1" "$build/text_run" $tiny --data "$data" --seed 5 --runs "$work/old" --programs "$work/broken"
old=$(sed -n 's/^lattice, lr 0.003, seed 5: //p' "$work/err")
"$programs/train" "$data" --out "$old" --tokens 128 --seq-len 32 --batch-tokens 128 --d-model 16 --n-layer 1 --n-head 1 --mlp-hidden 24 --seed 5 --no-relative-read \
    >/dev/null 2>&1 || fail "train"
expect 1 "ended with exit code 1" "$build/text_run" $tiny --data "$data" --seed 5 --runs "$work/old" --programs "$programs"
grep -q "relative" "$old.log" || fail "an older run is refused for another reason: $(cat "$old.log")"
checks=$((checks + 1))
expect 1 "first line is not" "$build/text_run" --data "$data" --csv "$work/stories.jsonl"
expect 1 "first line is not" "$build/text_report" "$work/stories.jsonl"
expect 1 "there are no rows" "$build/text_report" "$work/missing.csv"
echo "$checks checks"
