#!/bin/sh
# ./tokenize from outside: training, encoding, decoding, messages and exit codes.
set -u
tokenize=${PROGRAM_DIR:-./}tokenize
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/shell/checks.sh"

# check WHAT EXPECTED ACTUAL
check() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
}

# refused CODE TEXT ARGUMENTS...: standard input from $work/in; the first line on standard error is `error: ` with the text in it.
refused() {
    code=$1 text=$2
    shift 2
    "$tokenize" "$@" < "$work/in" > "$work/out" 2> "$work/err"
    check "exit code of $*" "$code" $?
    head -n 1 "$work/err" | grep -q "^error: .*$text" || fail "$*: no '$text' in: $(cat "$work/err")"
}

# Two megabytes of text with bytes that are no UTF-8, in which the program has places to cut and lines without one.
awk 'BEGIN { srand(4); for (i = 0; i < 40000; i++) {
    line = ""; for (k = 0; k < 8; k++) { line = line sprintf("%s%c%c", k ? " the" : "of", 97 + int(rand() * 26), 97 + int(rand() * 9)) }
    print line (i % 3 ? "." : " ") } }' > "$work/doc.txt"
printf 'na\303\257ve \342\200\224 \377\376 <|endoftext|>\n' >> "$work/doc.txt"
: > "$work/in"

for threads in 1 2 8; do
    "$tokenize" --train "$work/doc.txt" --vocab-size 500 --out "$work/t$threads.json" --threads $threads 2> "$work/err" || fail "training: $(cat "$work/err")"
    cmp -s "$work/t1.json" "$work/t$threads.json" || fail "$threads threads give another tokenizer"
    checks=$((checks + 1))
done
t=$work/t1.json
check "--info" "vocabulary      500 tokens" "$("$tokenize" --tokenizer "$t" --info | grep vocabulary)"

# The text nine times is read in several pieces: the ids are those of one document, nine times.
"$tokenize" --tokenizer "$t" < "$work/doc.txt" > "$work/ids" || fail "encoding"
for i in 1 2 3 4 5 6 7 8 9; do cat "$work/doc.txt"; done > "$work/nine.txt"
for i in 1 2 3 4 5 6 7 8 9; do cat "$work/ids"; done > "$work/nine.ids"
"$tokenize" --tokenizer "$t" < "$work/nine.txt" | cmp -s - "$work/nine.ids" || fail "pieces of a long text have other ids"
"$tokenize" --tokenizer "$t" --decode < "$work/nine.ids" | cmp -s - "$work/nine.txt" || fail "decoding does not give the text back"
checks=$((checks + 2))

check "empty text" "" "$("$tokenize" --tokenizer "$t" < "$work/in")"
check "special tokens" "499" "$(printf '<|endoftext|>' | "$tokenize" --tokenizer "$t")"
check "no special tokens" "60" "$(printf '<|endoftext|>' | "$tokenize" --tokenizer "$t" --no-specials | head -n 1)"
check "decoding without a last line break" "Hi" "$(printf '72\n105' | "$tokenize" --tokenizer "$t" --decode)"

# Ranks as tiktoken writes them: the 256 bytes and " a". With a pattern they become a tokenizer.json with the same ids.
awk 'BEGIN { digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for (i = 0; i < 256; i++) { print substr(digits, int(i / 4) + 1, 1) substr(digits, i % 4 * 16 + 1, 1) "== " i }
    print "IGE= 256" }' > "$work/ranks"
"$tokenize" --tokenizer "$work/ranks" --pattern cl100k_base --out "$work/ranks.json" || fail "--out"
check "ranks" "32 256 46" "$(printf '  a.' | "$tokenize" --tokenizer "$work/ranks" --pattern cl100k_base | tr '\n' ' ' | sed 's/ $//')"
check "ranks as a tokenizer.json" "32 256 46" "$(printf '  a.' | "$tokenize" --tokenizer "$work/ranks.json" | tr '\n' ' ' | sed 's/ $//')"
refused 1 '257 ranks' --tokenizer "$work/ranks"
refused 1 'rank files only' --tokenizer "$t" --pattern gpt2
refused 1 'is not supported' --tokenizer "$work/ranks" --pattern 'a|\w+'
refused 2 'at most one' --tokenizer "$t" --decode --out "$work/x.json"

# Llama-2's space in front is dropped when decoding.
awk 'BEGIN { printf "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":256,\"content\":\"</s>\",\"special\":true}]"
    printf ",\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\" \"},\"pre_tokenizer\":null,\"model\":{\"byte_fallback\":true,\"vocab\":{"
    for (i = 0; i < 256; i++) { printf "\"<0x%02X>\":%d,", i, i }
    printf "\"</s>\":256,\" \":257},\"merges\":[]},\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}}" }' > "$work/llama.json"
check "a space in front" "257 104 257 257 105" "$(printf 'h  i' | "$tokenize" --tokenizer "$work/llama.json" | tr '\n' ' ' | sed 's/ $//')"
check "no space in front" "h  i" "$(printf 'h  i' | "$tokenize" --tokenizer "$work/llama.json" | "$tokenize" --tokenizer "$work/llama.json" --decode)"

printf '72\n500\n' > "$work/in"
refused 1 'line 2: "500" is out of range' --tokenizer "$t" --decode
printf '72\n99999999999999999999\n' > "$work/in"
refused 1 'line 2: .* is out of range' --tokenizer "$t" --decode
printf '72\n-1\n' > "$work/in"
refused 1 'line 2: "-1" is no id' --tokenizer "$t" --decode
printf '\n' > "$work/in"
refused 1 'line 1: "" is no id' --tokenizer "$t" --decode
printf '7 2\n' > "$work/in"
refused 1 'line 1: "7 2" is no id' --tokenizer "$t" --decode
refused 1 'nowhere.json' --tokenizer "$work/nowhere.json"
refused 1 'JSON' --tokenizer "$work/doc.txt"
refused 1 'nowhere' --train "$work/nowhere" --out "$work/x.json"
refused 2 'tokenizer FILE'
refused 2 'out FILE' --train "$work/doc.txt"
refused 2 'vocab-size' --train "$work/doc.txt" --out "$work/x.json" --vocab-size 256
refused 2 'at most one' --tokenizer "$t" --decode --info
"$tokenize" --train "$work/doc.txt" --vocab-size 30k --out "$work/big.json" 2>&1 | grep -q 'too little for 30000 tokens' || fail "a vocabulary that is not filled goes unsaid"
"$tokenize" --help | grep -q -e --vocab-size || fail "--help"
checks=$((checks + 2))
echo "$checks checks"
