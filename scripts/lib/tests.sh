# Runs the tests, and says which of them fail only now and then.
# Sourced by scripts/test; needs console.sh, $root and $venv.

folders=(tests integration)
most_unsteady=5

# run_tests ARGUMENTS...: what the arguments name; without any all tests, each folder in a process of its own, because
# tests mostly wait. When tests of a few files fail they run once more, alone: one that passes then is named as unsteady,
# and does not fail the run. More than a few files are no accident.
run_tests() {
    local status=0 names folder
    if [ $# -gt 0 ]; then
        _pytest chosen "$@"
        return
    fi
    rm -rf "$root/.pytest_cache"
    _pytest integration integration >"$cache/integration.log" 2>&1 &
    local other=$! other_status=0
    _pytest tests tests || status=$?
    start_ticker "tests with brokers, Spark and services"
    wait "$other" || other_status=$?
    stop_ticker
    cat "$cache/integration.log"
    [ "$status" -gt "$other_status" ] || status=$other_status
    [ "$status" -eq 1 ] || return "$status"
    names=$(cat "$root/.pytest_cache"/*/v/cache/lastfailed 2>/dev/null | grep '::' || true)
    [ -n "$names" ] && [ "$(sed 's/::.*//' <<<"$names" | uniq | grep -c '')" -le "$most_unsteady" ] || return "$status"
    say "Once more, alone: what failed"
    for folder in "${folders[@]}"; do
        _again "$folder" || return "$status"
    done
    say "UNSTEADY: failed among all tests, passed alone. A defect of the product or of the test; it wants a cure:"
    printf '%s\n' "$names" >&2
}

# _again FOLDER: its files with tests that failed, and no others: the conftest.py of another folder may come too late.
_again() {
    local failed="$root/.pytest_cache/$1/v/cache/lastfailed" files
    grep -q '::' "$failed" 2>/dev/null || return 0
    mapfile -t files < <(grep -o '"[^":]*\.py::' "$failed" | sed 's/^"//; s/::$//' | uniq)
    [ "${#files[@]}" -gt 0 ] || return 1
    _pytest "$1" --last-failed "${files[@]}"
}

# _pytest NAME ARGUMENTS...: what failed is kept for each NAME, as two processes may run.
_pytest() {
    local name=$1
    shift
    "$venv/bin/python" -m pytest -q --durations=15 --durations-min=1 -o "cache_dir=.pytest_cache/$name" "$@"
}
