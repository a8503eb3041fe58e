# What scripts/mqar, scripts/compare_text and scripts/ablate share; sourced by them.
here=$PWD

fail() {
    echo "error: $1" >&2
    exit 2
}

# check_usage N "$@": help for --help, and for fewer than N arguments an exit with it: the comment at the script's beginning.
check_usage() {
    least=$1
    shift
    for argument; do
        case $argument in -h | --help)
            sed -n '2,/^[^#]/s/^# //p' "$0"
            exit 0
            ;;
        esac
    done
    if [ $# -lt "$least" ]; then
        sed -n '2,/^[^#]/s/^# //p' "$0" >&2
        exit 2
    fi
    case $1 in -*) fail "$1 stands where FOLDER should" ;; esac
}

# built PROGRAM: it is there.
built() { command -v "$1" >/dev/null || fail "$1 is not there: run make first"; }

# not_given "--lr is given by RATES" "$@": a flag that the script itself gives.
not_given() {
    flag=${1%% *}
    why=$1
    shift
    for argument; do
        case $argument in "$flag" | "$flag"=*) fail "$why, not behind the folders" ;; esac
    done
}

# A name as the caller meant it.
from_here() { case $1 in /*) echo "$1" ;; *) echo "$here/$1" ;; esac; }

# The mixers, one line of flags each, without lines that are blank; blanks at a line's end would tie it to the next.
mixer_lines() {
    case $1 in *[![:space:]]*) ;; *) fail "MIXERS has no line: give flags, a line a run" ;; esac
    case $1 in *[\'\"\\]*) fail "MIXERS has a quote or a backslash: give flags and names alone, a line a run" ;; esac
    echo "$1" | sed 's/[[:space:]]*$//; /^$/d'
}

# run_lines PROGRAM FLAGS...: runs it once for each line of flags in the file $lines, JOBS at once, and removes the file. Returns 1 if a run failed. A signal to
# the script ends the runs too: they have a group of their own where there is setsid; elsewhere only those of the first rank get it.
run_lines() {
    runs=
    trap stop_runs HUP INT TERM
    if command -v setsid >/dev/null; then
        setsid xargs -P "${JOBS:-2}" -L 1 "$@" <"$lines" >/dev/null &
    else
        xargs -P "${JOBS:-2}" -L 1 "$@" <"$lines" >/dev/null &
    fi
    runs=$!
    failed=0
    wait "$runs" || failed=1
    trap - HUP INT TERM
    rm -f "$lines"
    return "$failed"
}

# Waits for what is being saved, so that the same command finds the run's folder free.
stop_runs() {
    trap - HUP INT TERM
    if [ -n "$runs" ]; then
        kill -TERM "-$runs" 2>/dev/null || kill -TERM "$runs" $(pgrep -P "$runs" 2>/dev/null) 2>/dev/null || true
        wait "$runs" 2>/dev/null || true
        tries=0
        while kill -0 "-$runs" 2>/dev/null && [ "$tries" -lt 600 ]; do
            tries=$((tries + 1))
            sleep 0.1
        done
    fi
    rm -f "$lines"
    echo "stopped: the same command goes on from here" >&2
    exit 130
}
