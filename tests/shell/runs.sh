# What the tests of training runs share; read in behind checks.sh.

# The log of a run without what depends on the time of day.
plain_log() { sed -e 's/"tokens_per_second":[^,]*,//' -e 's/,"time":[^}]*//' "$1/log.jsonl"; }

# same A B STEP: the same weights, moments and log.
same() {
    for file in model.safetensors optimizer.safetensors; do
        cmp "$work/$1/step_$3/$file" "$work/$2/step_$3/$file" || fail "$file of $1 and $2 differ"
    done
    plain_log "$work/$1" >"$work/log1"
    plain_log "$work/$2" >"$work/log2"
    cmp "$work/log1" "$work/log2" || fail "the logs of $1 and $2 differ"
    checks=$((checks + 1))
}

# start FILE COMMAND...: runs the command in the background until FILE is there; leaves its process in $running.
start() {
    file=$1
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null &
    running=$!
    tries=0
    while [ ! -e "$file" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 3000 ] || fail "$file does not appear: $(cat "$work/err")"
        sleep 0.02
    done
}

# Waits for that process; leaves its exit code in $got.
finish() {
    got=0
    wait "$running" || got=$?
}

# stop_with SIGNAL: sends it to that process, and waits.
stop_with() {
    kill "-$1" "$running"
    finish
}
