# Runs the tests, and says which of them fail only now and then.
# Sourced by scripts/test; needs console.sh, $root and $venv.

most_unsteady=3

# run_tests ARGUMENTS...: all tests, or what the arguments name. When few of all fail they run once more, alone: a test
# that passes then is named as unsteady, and does not fail the run. More than a few are no accident.
run_tests() {
    local status=0 failed="$root/.pytest_cache/v/cache/lastfailed" names
    rm -f "$failed"
    "$venv/bin/python" -m pytest -q --durations=15 --durations-min=1 "$@" || status=$?
    [ "$status" -eq 1 ] && [ $# -eq 0 ] && [ -f "$failed" ] || return "$status"
    names=$(grep '::' "$failed" || true)
    [ -n "$names" ] && [ "$(grep -c '' <<<"$names")" -le "$most_unsteady" ] || return "$status"
    say "Once more, alone: what failed"
    "$venv/bin/python" -m pytest -q --last-failed || return "$status"
    say "UNSTEADY: failed among all tests, passed alone. A defect of the product or of the test; it wants a cure:"
    printf '%s\n' "$names" >&2
}
