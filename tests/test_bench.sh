#!/bin/sh
# ./bench profile: the parts of a step are all there, leave next to nothing over, and their work is that of the model's shapes.
# Usage: tests/test_bench.sh [BENCH]
set -eu
bench=${1:-${PROGRAM_DIR:-./}bench}
work=$(mktemp -d "${TMPDIR:-/tmp}/test_bench_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
. "$(dirname "$0")/shell/checks.sh"

# field NAME KEY: a number from the JSON line of that name.
field() {
    value=$(sed -n "s/^{\"name\": \"$1\",.*\"$2\": \([-0-9.e+]*\).*/\1/p" "$work/out")
    [ "$(echo "$value" | grep -c .)" -eq 1 ] || fail "not one line \"$1\" with \"$2\": $(cat "$work/out")"
    echo "$value"
}

# holds CONDITION: an expression of awk.
holds() {
    awk "BEGIN { exit !($1) }" || fail "not so: $1: $(cat "$work/out")"
    checks=$((checks + 1))
}

"$bench" profile --preset nano --micro-batch 1 --seq-len 64 --runs 1 --threads 1 --json >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
for dtype in f32 bf16; do
    for part in projections "output projection" "mlp products" "head products" "mixer forward" "mixer backward" loss "mlp activation" norms convolution \
        gates embedding "residual sums" optimizer; do
        milliseconds=$(field "$dtype step: $part" value)
        holds "$milliseconds > 0"
    done
    [ "$dtype" = f32 ] || holds "$(field "$dtype step: rounding to bf16" value) > 0"
    all=$(field "$dtype step: all" value)
    rest=$(field "$dtype step: rest" value)
    holds "$rest >= 0 && $rest < 0.05 * $all"
    # Forward and two products of the backward, 2 operations a multiply-add, in millions: 4 layers of 64 tokens.
    while read -r expected part; do
        milliseconds=$(field "$dtype step: $part" value)
        rate=$(field "$dtype rate: $part" value)
        holds "$milliseconds * $rate > 0.999 * $expected && $milliseconds * $rate < 1.001 * $expected"
    done <<END
$(awk 'BEGIN { print 4 * 6 * 64 * 128 * 514 / 1e6 }') projections
$(awk 'BEGIN { print 4 * 6 * 64 * 128 * 128 / 1e6 }') output projection
$(awk 'BEGIN { print 4 * 6 * 64 * 128 * 3 * 352 / 1e6 }') mlp products
$(awk 'BEGIN { print 6 * 64 * 128 * 2048 / 1e6 }') head products
$(awk 'BEGIN { print 4 * (9 + 2) * 64 * 2 * 64 * 64 / 1e6 }') mixer forward
$(awk 'BEGIN { print 4 * (28 + 4) * 64 * 2 * 64 * 64 / 1e6 }') mixer backward
END
done
# Mixers of the preset, every one beside the exact form of Lattice.
"$bench" mixers --preset nano --micro-batch 1 --seq-len 64 --runs 1 --threads 1 --json >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
holds "$(field "lattice exact" value) > 0"
for mixer in "lattice frozen 16, norm per token" linear mamba2 gla delta gated_delta output_norm "ttt 1" "ttt 16" attention; do
    share=$(field "$mixer" ratio)
    holds "$share > 0 && $share * $(field "$mixer" ceiling) > 0.99 * $(field "$mixer" value) && $share * $(field "$mixer" ceiling) < 1.01 * $(field "$mixer" value)"
done
"$bench" --only tokenizer --runs 1 --json >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
for text in "one thread" "mixed scripts" "1 MB of one letter"; do
    rate=$(field "tokenizer encode, $text" value)
    holds "$rate > 0"
done
"$bench" tokenizer --runs 1 --json --text "$work/nothing" >"$work/out" 2>"$work/err" && fail "a missing text is no error"
grep -q "^error: .*nothing" "$work/err" || fail "the missing text is not named: $(cat "$work/err")"
mkdir "$work/temporary"
TMPDIR=$work/temporary "$bench" prepare --runs 1 --json --text README.md >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
holds "$(field "prepare, all threads" value) > 0"
holds "$(field "prepare, all threads" ceiling) > 0"
[ -z "$(ls "$work/temporary")" ] || fail "the documents of ./bench prepare stay behind: $(ls "$work/temporary")"
got=0
"$bench" --only nothing >"$work/out" 2>"$work/err" || got=$?
[ "$got" -eq 2 ] && grep -q "no part nothing: --help names" "$work/err" || fail "an unknown part: exit code $got: $(cat "$work/err")"
echo "$((checks + 1)) checks"
