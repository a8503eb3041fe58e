#!/bin/sh
# ./train under mpirun, built with MPI=1: several ranks give the bits of one process, whatever happens to them on the way.
# Usage: tests/mpi/test_mpi.sh [TRAIN [PREPARE [STORIES]]]
set -eu
train=${1:-${PROGRAM_DIR:-./}train}
prepare=${2:-${PROGRAM_DIR:-./}prepare}
stories=${3:-${BUILD:-build}/stories}
tester=${BUILD:-build}/tests/mpi/test_ranks
work=$(mktemp -d "${TMPDIR:-/tmp}/test_mpi_XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
shape="--d-model 32 --n-layer 2 --n-head 2 --mlp-hidden 48 --seq-len 32 --batch-tokens 512 --threads 1"
silent=1
. "$(dirname "$0")/../shell/checks.sh"
. "$(dirname "$0")/../shell/runs.sh"

# A job that hangs is a fault. As root, in a container, with more ranks than processors: mpirun wants to be told of each.
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun="timeout --foreground 300 mpirun --oversubscribe"

for ranks in 1 2 3; do
    $mpirun -n $ranks "$tester" >"$work/out" 2>&1 || fail "$tester in $ranks ranks: $(cat "$work/out")"
    checks=$((checks + 1))
done

mkdir "$work/docs"
"$stories" --documents 250 --seed 3 --out "$work/docs/stories.jsonl"
"$prepare" "$work/docs" --out "$work/data" --vocab-size 400 --val-fraction 0.05 --shard-tokens 5k --threads 1 2>"$work/err"

# ---- the same bits ----
go="$train $work/data $shape --steps 20 --save-every 10 --eval-every 10 --sample-every 10"
expect 0 "" $go --out "$work/one"
expect 0 "" $mpirun -n 2 $go --out "$work/two"
says "^ranks       2, of them 2 on this machine; 4 shares"
[ "$(grep -c "^done:" "$work/err")" -eq 1 ] || fail "not one rank alone tells what is going on: $(cat "$work/err")"
[ "$(wc -l <"$work/two/log.jsonl")" -eq 20 ] || fail "the log does not have 20 lines"
same one two 00000020
expect 0 "" $mpirun -n 2 $go --out "$work/threads" --threads 2 --recompute
same two threads 00000020
expect 0 "" $mpirun -n 2 $go --out "$work/muon2" --optimizer muon
expect 0 "" $go --out "$work/muon1" --optimizer muon
same muon1 muon2 00000020

# One sum over the whole step differs by rounding, which Adam makes larger from step to step.
expect 0 "" $go --out "$work/alone" --steps 2 --lr 1e-5 --shares 1
expect 0 "" $mpirun -n 2 $go --out "$work/alone2" --steps 2 --lr 1e-5
difference=$("$tester" --difference "$work/alone/step_00000002" "$work/alone2/step_00000002")
awk "BEGIN { exit !($difference < 1e-6) }" || fail "weights differ by $difference"

# Three shares of four micro-batches in a step, one or several a rank; and resumed with another number of ranks.
expect 0 "" $go --out "$work/three1" --shares 3
expect 0 "" $mpirun -n 3 $go --out "$work/three3" --shares 3
same three1 three3 00000020
expect 0 "" $mpirun -n 2 $go --out "$work/three2" --shares 3
same three1 three2 00000020
rm -r "$work/three3/step_00000020"
expect 0 "" $mpirun -n 2 "$train" --resume --out "$work/three3" --threads 1
same three1 three3 00000020
rm -r "$work/three3/step_00000020"
expect 0 "" "$train" --resume --out "$work/three3" --threads 1
same three1 three3 00000020
rm -r "$work/three1/step_00000020"
expect 1 "too few for 4 ranks" $mpirun -n 4 "$train" --resume --out "$work/three1"
expect 0 "" $mpirun -n 3 "$train" --resume --out "$work/three1" --threads 1
same three1 three3 00000020
expect 1 "too few for 5 shares" $mpirun -n 5 $go --micro-batch 4 --out "$work/x"

# ---- ranks that do not do the same ----
differ="$mpirun -n 1 $go --out $work/x : -n 1"
expect 1 "rank 1 has other settings" $differ $go --out "$work/x" --lr 1e-4
expect 1 "rank 1 has other data" $differ "$train" "$work/data/train_000000.bin" --tokenizer "$work/data/tokenizer.json" $shape --steps 20 --save-every 10 \
    --eval-every 10 --sample-every 10 --out "$work/x"
expect 1 "rank 1 has other kernels" $differ env LATTICE_ISA=generic $go --out "$work/x"
expect 1 "rank 1: .*/none.txt" $differ "$train" "$work/none.txt" $shape --out "$work/x"
[ ! -e "$work/x/log.jsonl" ] || fail "a run was begun"
expect 2 "unknown flag" $mpirun -n 2 $go --out "$work/x" --frobnicate
$mpirun -n 2 "$train" --help >"$work/out" 2>"$work/err" || fail "--help"

# ---- ranks that die, stops ----
# What $work/pids runs tells its process in $work/pid.
steps=900
go="$train $work/data $shape --steps $steps --save-every 20"
two() {
    folder=$1
    shift
    echo "$mpirun -n 1 $go --out $work/$folder $* : -n 1 $work/pids $go --out $work/$folder $*"
}
printf '#!/bin/sh\necho $$ >"%s/pid"\nexec "$@"\n' "$work" >"$work/pids"
chmod +x "$work/pids"
expect 0 "" $go --out "$work/unbroken"

start "$work/killed/step_00000020" $(two killed)
kill -KILL "$(cat "$work/pid")"
finish
[ "$got" -ne 0 ] && [ ! -e "$work/killed/step_00000$steps" ] || fail "the job did not end with its rank"
start "$work/killed/step_00000060" $(two killed --resume)
expect 1 "another process trains into" $mpirun -n 2 "$train" --resume --out "$work/killed"
kill -KILL "$running"   # timeout: mpirun and its ranks go on
finish
kill -KILL "$(cat "$work/pid")"
tries=0
until "$train" --resume --out "$work/killed" --threads 1 2>"$work/err"; do
    grep -q "another process trains into" "$work/err" && [ "$tries" -lt 100 ] || fail "resume after a killed rank: $(cat "$work/err")"
    tries=$((tries + 1))
    sleep 0.1
done
same unbroken killed 00000$steps

# Signals to one rank, which the other does not see.
start "$work/stopped/step_00000020" $(two stopped)
[ "$(readlink "/proc/$(cat "$work/pid")/fd/2" 2>/dev/null)" != /dev/null ] || fail "what ends a rank above the first would not be seen"
kill -INT "$(cat "$work/pid")"
finish
[ "$got" -eq 130 ] || fail "exit code $got after SIGINT: $(cat "$work/err")"
says "stopped and saved"
start "$work/stopped/step_00000060" $(two stopped --resume)
kill -TERM "$(cat "$work/pid")"
finish
[ "$got" -eq 143 ] || fail "exit code $got after SIGTERM: $(cat "$work/err")"
says "stopped and saved"
# A signal to mpirun, which passes it on to all.
start "$work/stopped/step_00000200" timeout --foreground 300 "$work/pids" mpirun --oversubscribe -n 2 $go --out "$work/stopped" --resume
kill -USR1 "$(cat "$work/pid")"
finish
[ "$got" -eq 138 ] || fail "exit code $got after SIGUSR1 to mpirun: $(cat "$work/err")"
says "stopped and saved"
[ ! -e "$work/stopped/step_00000$steps" ] || fail "the run was over before it could be stopped"
expect 0 "" $mpirun -n 2 $go --out "$work/stopped" --resume
same unbroken stopped 00000$steps

# ---- documents ----
expect 0 "" $mpirun -n 2 "$train" "$work/docs" $shape --steps 2 --vocab-size 300 --out "$work/documents"
[ -e "$work/documents/data/prepare.json" ] || fail "documents are not prepared into OUT/data"
expect 0 "" $mpirun -n 2 "$train" --resume --out "$work/documents" --steps 3
echo "$checks checks"
