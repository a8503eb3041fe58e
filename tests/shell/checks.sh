# What the end-to-end tests share. Read in by a script that has set $work, its temporary folder; with $silent set, no command may write to standard output.
checks=0

fail() {
    echo "$(basename "$0"): FAILED: $1" >&2
    exit 1
}

# expect CODE WORDS COMMAND...: the exit code; with WORDS exactly one line "error: ... WORDS ..." on standard error. Leaves $work/out and $work/err.
expect() {
    code=$1
    words=$2
    shift 2
    got=0
    "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
    [ "$got" -eq "$code" ] || fail "exit code $got instead of $code: $*: $(cat "$work/err")"
    [ -z "${silent:-}" ] || [ ! -s "$work/out" ] || fail "something on standard output: $*"
    if [ -n "$words" ]; then
        grep -q -- "^error: .*$words" "$work/err" || fail "no error with \"$words\": $*: $(cat "$work/err")"
        [ "$(grep -c '^error: ' "$work/err")" -eq 1 ] || fail "more than one error line: $*: $(cat "$work/err")"
    fi
    checks=$((checks + 1))
}

# says [FILE] WORDS: they stand in $work/FILE, which is the last command's standard error unless given.
says() {
    [ $# -eq 2 ] || set -- err "$1"
    grep -q -- "$2" "$work/$1" || fail "\"$2\" is not said: $(cat "$work/$1")"
    checks=$((checks + 1))
}
