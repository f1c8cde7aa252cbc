# What a person sees: progress on stderr, the full output of a step only when it fails.
# Sourced by the scripts beside this folder; needs $root.

cache="$root/.cache/setup"
mkdir -p "$cache" 2>/dev/null || {
    printf 'error: cannot write to %s: run this as the user who owns the checkout.\n' "$root" >&2
    exit 1
}

say() { printf '==> %s\n' "$*" >&2; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

ticker=

stop_ticker() {
    [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
    ticker=
}
trap stop_ticker EXIT

# A step without output looks hung, and continuous integration kills silent jobs.
# It waits by reading from a pipe nobody writes to: a `sleep` would outlive its killed loop and keep stderr open.
start_ticker() {
    local what=$1 begun=$SECONDS
    {
        exec {silence}<> <(:)
        while ! read -r -t 30 -u "$silence"; do
            say "still at it after $((SECONDS - begun)) s: $what"
        done
    } 9>&- &
    ticker=$!
}

# run WHAT CURE COMMAND...: says WHAT, runs COMMAND silently; a failure shows the end of its output, then CURE.
# The command stays in the foreground so that Ctrl-C reaches it.
run() {
    local what=$1 cure=$2 log begun=$SECONDS status=0
    shift 2
    log=$(mktemp "$cache/step.XXXXXX")
    say "$what"
    start_ticker "$what"
    "$@" >"$log" 2>&1 </dev/null || status=$?
    stop_ticker
    if [ "$status" -ne 0 ]; then
        tail -n 25 "$log" >&2
        rm -f "$log"
        die "$cure"
    fi
    rm -f "$log"
    [ $((SECONDS - begun)) -lt 5 ] || say "done in $((SECONDS - begun)) s"
}

# One set-up at a time per checkout; without flock (it is part of every Debian) two at once may disturb each other.
lock_setup() {
    exec 9>"$cache/lock"
    command -v flock >/dev/null || return 0
    flock -n 9 || {
        say "another set-up of this checkout is running; waiting for it"
        flock 9
    }
}

unlock_setup() { exec 9>&-; }
