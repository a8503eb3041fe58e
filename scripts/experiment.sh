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
    case $1 in *[\'\"\\]*) fail "MIXERS has a quote or a backslash: give flags and names alone, a line a run" ;; esac
    echo "$1" | sed 's/[[:space:]]*$//; /^$/d'
}

# run_lines PROGRAM FLAGS...: runs it once for each line of flags in the file $lines, JOBS at once, and removes the file. Returns 1 if a run failed. What is sent
# to the script is sent on to the runs, which have a group of their own where there is setsid.
run_lines() {
    command -v "$1" >/dev/null || fail "$1 is not there: run make first"
    if command -v setsid >/dev/null; then
        setsid xargs -P "${JOBS:-2}" -L 1 "$@" <"$lines" >/dev/null &
    else
        xargs -P "${JOBS:-2}" -L 1 "$@" <"$lines" >/dev/null &
    fi
    runs=$!
    trap 'stop_runs' HUP INT TERM
    failed=0
    wait "$runs" || failed=1
    trap - HUP INT TERM
    rm -f "$lines"
    return "$failed"
}

stop_runs() {
    trap - HUP INT TERM
    kill -TERM "-$runs" 2>/dev/null || kill -TERM "$runs" 2>/dev/null || true
    wait "$runs" 2>/dev/null || true
    rm -f "$lines"
    echo "stopped: the same command goes on from here" >&2
    exit 130
}
