#!/bin/sh
# build/mqar, build/mqar_report and scripts/mqar: rows, what is not run again, tables and chart, refusals.
# Usage: tests/test_mqar.sh
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/test_mqar_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
. tests/shell/checks.sh
tiny="--length 16 --vocab-size 8 --d-model 16 --steps 2 --batch 2 --test 2"

expect 0 "" "$build/mqar" $tiny --pairs 2 --mixer lattice,attention --chunk 4 --csv "$work/rows.csv"
cp "$work/out" "$work/first"
grep -q '^lattice+attention chunk=4,2,16,8,16,16,16,2,2,0,adamw,2,2,0.003,1,' "$work/rows.csv" || fail "row: $(cat "$work/rows.csv")"
cmp "$work/rows.csv" "$work/first" || fail "standard output and file differ"
expect 0 "" "$build/mqar" $tiny --pairs 2 --mixer lattice,attention --chunk 4 --csv "$work/rows.csv"
cmp "$work/rows.csv" "$work/first" || fail "a run that stood in the file was run again"
[ ! -s "$work/out" ] && grep -q "has this run already" "$work/err" || fail "nothing says that the run is there: $(cat "$work/err")"

# The driver goes on where the file stops: of four runs one is there.
mkdir "$work/sweep"
SEEDS=2 PAIRS=2 RATES=1e-2 MIXERS="--mixer delta" scripts/mqar "$work/sweep" $tiny >"$work/out" 2>"$work/err" || fail "sweep: $(cat "$work/err")"
SEEDS="1 2" PAIRS="2 4" RATES=1e-2 MIXERS="--mixer delta" scripts/mqar "$work/sweep" $tiny >"$work/out" 2>"$work/err" || fail "sweep: $(cat "$work/err")"
[ "$(wc -l <"$work/sweep/mqar.csv")" -eq 5 ] || fail "not four rows: $(cat "$work/sweep/mqar.csv")"
[ "$(grep -c "has this run already" "$work/err")" -eq 1 ] || fail "what stood there was run again: $(cat "$work/err")"
[ "$(grep -c '^| delta | 512 | .* | 0.01 | [01]\.[0-9]* | [01]\.[0-9]* | [01]\.[0-9]* | 2 |' "$work/out")" -eq 2 ] || fail "tables: $(cat "$work/out")"
[ "$(head -c 4 "$work/sweep/mqar.png" | tail -c 3)" = PNG ] || fail "no chart"
# A mixer that there is not is told, and the others stand.
PAIRS=2 SEEDS=1 RATES=1e-2 MIXERS="--mixer lettuce
--mixer delta" scripts/mqar "$work/sweep" $tiny >"$work/out" 2>"$work/err" && got=0 || got=$?
[ "$got" -eq 1 ] || fail "exit code $got after a run that failed"
says "^error: .*does not exist in this build"
grep -q '^| delta ' "$work/out" || fail "no report after a run that failed: $(cat "$work/out" "$work/err")"
checks=$((checks + 9))

# Flags that say what is usual name nothing, and what is measured tells runs apart.
expect 0 "" "$build/mqar" $tiny --pairs 2 --mixer delta --chunk 1 --gate-shift 0.123456789 --csv "$work/exact.csv"
grep -q '^delta gate-shift=0.123456789,2,16,' "$work/exact.csv" || fail "row: $(cat "$work/exact.csv")"
expect 0 "" "$build/mqar" $tiny --pairs 2 --mixer delta --gate-shift 0.123456789 --until 0 --csv "$work/exact.csv"
[ "$(wc -l <"$work/exact.csv")" -eq 3 ] || fail "a run that ends sooner is another: $(cat "$work/exact.csv")"
expect 0 "" "$build/mqar" $tiny --pairs 2 --mixer delta --gate-shift 0.123456789 --grow-from 1 --csv "$work/exact.csv"
grep -q ',2,2,1,adamw,' "$work/exact.csv" || fail "growth is not in the row: $(cat "$work/exact.csv")"
expect 0 "" "$build/mqar_report" "$work/exact.csv"
grep -q 'sequences, which grow from 1 pairs, by adamw\.' "$work/out" || fail "growth is not in the table: $(cat "$work/out")"
# A file whose last line has no end, or lines that end as on other systems.
printf '%s' "$(cat "$work/rows.csv")" >"$work/cut.csv"
expect 0 "" "$build/mqar" $tiny --pairs 2 --mixer delta --csv "$work/cut.csv"
[ "$(wc -l <"$work/cut.csv")" -eq 3 ] && "$build/mqar_report" "$work/cut.csv" >/dev/null || fail "a row was glued to another: $(cat "$work/cut.csv")"
sed 's/$/\r/' "$work/rows.csv" >"$work/crlf.csv"
expect 0 "" "$build/mqar_report" "$work/crlf.csv"
# No number is no number in the table.
sed '2s/[^,]*,[^,]*,\([^,]*\)$/nan,nan,\1/' "$work/rows.csv" >"$work/nan.csv"
expect 0 "" "$build/mqar_report" "$work/nan.csv"
grep -q '^| lattice+attention chunk=4 | .* | 0.003 | | | | 1 |' "$work/out" || fail "table without a number: $(cat "$work/out")"
checks=$((checks + 4))

# What the driver gives, blank lines and quotes, help, a stop.
expect 0 "" scripts/mqar --help
grep -q "^Usage: scripts/mqar FOLDER" "$work/out" && [ ! -e ./--help ] || fail "--help: $(cat "$work/out")"
expect 2 "is given by RATES" scripts/mqar "$work/sweep" --lr 3
expect 2 "is given by PAIRS" scripts/mqar "$work/sweep" --pairs=3
expect 2 "run make first" env BUILD="$work" scripts/mqar "$work/sweep"
expect 2 "has a quote" env MIXERS="--mixer 'delta'" scripts/mqar "$work/sweep"
SEEDS=2 PAIRS=2 RATES=1e-2 MIXERS="
--mixer delta  

" scripts/mqar "$work/blank" $tiny >"$work/out" 2>"$work/err" || fail "blank lines: $(cat "$work/err")"
[ "$(wc -l <"$work/blank/mqar.csv")" -eq 2 ] || fail "a blank line was run: $(cat "$work/blank/mqar.csv")"
expect 2 "MIXERS has no line" env MIXERS=" " scripts/mqar "$work/sweep"
if command -v setsid >/dev/null && command -v pgrep >/dev/null; then
    SEEDS="1 2 3" PAIRS=2 RATES=1e-2 MIXERS="--mixer delta" scripts/mqar "$work/long" --length 16 --vocab-size 8 --d-model 16 --steps 1m >"$work/long.out" 2>"$work/long.err" &
    driver=$!
    tries=0
    while ! grep -q "lr 0.01, seed" "$work/long.err" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "the driver starts nothing: $(cat "$work/long.err")"
        sleep 0.1
    done
    pgrep -f "mqar --csv $work/long" >/dev/null || fail "no run is told by its command line"
    kill -TERM "$driver"
    wait "$driver" && got=0 || got=$?
    [ "$got" -eq 130 ] && grep -q "goes on from here" "$work/long.err" || fail "a stopped driver: exit code $got, $(cat "$work/long.err")"
    pgrep -f "mqar --csv $work/long" >/dev/null && fail "runs go on after their driver was stopped"
    checks=$((checks + 1))
else
    echo "skipped: a driver that is stopped, because there is no setsid or no pgrep"
fi
checks=$((checks + 2))

expect 2 "" "$build/mqar" --pairs 0
expect 1 "there are adamw and muon" "$build/mqar" --optimizer sgd
expect 2 "" "$build/mqar" --mixers delta
expect 2 "" "$build/mqar_report"
expect 1 "four tokens a pair" "$build/mqar" --pairs 8 --length 31
expect 1 "cannot grow from 9" "$build/mqar" --pairs 8 --grow-from 9
expect 1 "half of it are keys" "$build/mqar" --pairs 8 --length 32 --vocab-size 15
expect 1 "does not exist in this build" "$build/mqar" --mixer lettuce
expect 1 "has no chunks" "$build/mqar" --mixer delta --chunk 4
expect 1 "" "$build/mqar" --csv "$work/nowhere/rows.csv"
echo "mixer,pairs" >"$work/other.csv"
expect 1 "first line is not" "$build/mqar" --csv "$work/other.csv"
expect 1 "first line is not" "$build/mqar_report" "$work/other.csv"
if [ -c /dev/full ]; then
    "$build/mqar_report" "$work/rows.csv" >/dev/full 2>"$work/err" && fail "tables that cannot be written are no error"
    grep -q "^error: cannot write to standard output" "$work/err" || fail "nothing says that tables were lost: $(cat "$work/err")"
    checks=$((checks + 1))
else
    echo "skipped: tables that cannot be written, because there is no /dev/full"
fi
expect 1 "there are no rows" "$build/mqar_report" "$work/missing.csv"
echo "$checks checks"
