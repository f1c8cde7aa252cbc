# Runs the tests, and says which of them fail only now and then.
# Sourced by scripts/test; needs console.sh, $root and $venv.

# Parts, each in a process of its own, because tests mostly wait. Those of one folder share its tests: a part runs the
# files named below first, then whatever file of the folder no other part has begun. A new file needs no name here; one
# that takes long, or shares its cluster with others, should have one. All parts end at about the same time. A part
# after a colon follows the one before it: `former` runs a few tests once more on the Kafka before, a helper takes its
# share of the integration tests when there are no others left.
parts=(scenarios units:helper1 modules:helper2 former:waits:helper3 brokers spark)
units=(
    tests/pipeline/test_dispatcher_machine.py
    tests/pipeline/test_raising_handlers.py
    tests/pipeline/test_planted_bugs.py
)
modules=(
    tests/contract
    tests/reentry
    tests/cli
    tests/lanes
    tests/spark
)
# These wait for real time-outs, and use next to no processor.
waits=(
    tests/delivery/test_expiry.py
    tests/delivery/test_accepted_at.py
    tests/delivery/test_direct_deadline.py
    tests/delivery/test_buffer_bytes.py
    tests/lanes/test_renewal.py
    tests/lanes/test_renewal_soak.py
)
brokers=(
    integration/conformance
    integration/contract
    integration/test_kafka_cluster.py
    integration/test_doctor_kafka.py
    integration/test_crash_loop.py
    integration/test_expiry_kafka.py
    integration/test_alerts.py
)
spark=(
    integration/test_spark_exactly_once.py
    integration/test_spark_doors.py
    integration/test_spark_tokens.py
    integration/test_spark_copies.py
    integration/test_spark_kafka.py
    integration/test_spark_faults.py
    integration/test_spark_bad_rows.py
    integration/test_spark_archive.py
    integration/test_spark_dead_letters.py
    integration/test_spark_producer_ids.py
)
scenarios=(
    integration/test_replication_producer.py
    integration/test_replication_kafka.py
    integration/test_partitions_added.py
    integration/applications
    integration/faults
)
# Decisions, the engine in virtual time, and what documents promise; without the searches of state machines.
quick=(
    tests/kafka
    tests/pipeline
    tests/policy
    tests/telemetry
    tests/project/test_architecture.py
    tests/settings/test_config.py
    tests/project/test_documents.py
    tests/project/test_project.py
    tests/diagnosis/test_snapshot.py
)
searches=(dispatcher_machine lane_ids metadata_machine planted_bugs raising_handlers)
former_kafka=4.3.1
former=(integration/contract/test_kafka_only.py integration/test_lanes.py integration/test_quota.py)
most_unsteady=8

# run_tests ARGUMENTS...: what the arguments name; without any all tests. When tests of a few files fail they run once
# more, alone: one that passes then is named as unsteady, and does not fail the run. More than a few files are no
# accident.
run_tests() {
    local status=0 part names
    if [ $# -gt 0 ]; then
        _pytest chosen "$@"
        return
    fi
    rm -rf "$root/.pytest_cache"
    _run_parts || status=$?
    [ "$status" -eq 1 ] || return "$status"
    names=$(cat "$root/.pytest_cache"/*/v/cache/lastfailed 2>/dev/null | grep '::' || true)
    [ -n "$names" ] && [ "$(sed 's/::.*//' <<<"$names" | uniq | grep -c '')" -le "$most_unsteady" ] || return "$status"
    say "Once more, alone: what failed"
    for part in ${parts[*]//:/ }; do
        _again "$part" || return "$status"
    done
    say "UNSTEADY: failed among all tests, passed alone. A defect of the product or of the test; it wants a cure:"
    printf '%s\n' "$names" >&2
}

# run_quick_tests ARGUMENTS...: those that tell within two minutes whether a change is a good one; two processes share
# them, and the output of the second one follows at its end.
run_quick_tests() {
    local status=0 ended=0 ignored=("${searches[@]/#/--ignore=tests/pipeline/test_}")
    begun=$(mktemp -d "$cache/begun.XXXXXX")
    set -- --shared "$begun" "${quick[@]}" "${ignored[@]/%/.py}" "$@"
    _pytest quick2 "$@" >"$cache/quick2.log" 2>&1 &
    _pytest quick "$@" || status=$?
    wait $! || ended=$?
    cat "$cache/quick2.log"
    rm -rf "$begun"
    return $((status > ended ? status : ended))
}

# _run_parts: all at once. The first one shows its progress, the others' output follows at their end.
_run_parts() {
    local part status=0 ended others=()
    begun=$(mktemp -d "$cache/begun.XXXXXX")
    for part in "${parts[@]:1}"; do
        _in_turn "$part" >"$cache/${part%%:*}.log" 2>&1 &
        others+=($!)
    done
    _in_turn "${parts[0]}" || status=$?
    start_ticker "the other parts: ${parts[*]:1}"
    for part in "${parts[@]:1}"; do
        ended=0
        wait "${others[0]}" || ended=$?
        others=("${others[@]:1}")
        cat "$cache/${part%%:*}.log"
        [ "$status" -gt "$ended" ] || status=$ended
    done
    stop_ticker
    while read -r part ended log; do
        say "CRASHED: the process of the part $part ended with $ended; once more, what it said last:"
        { grep -h -A 40 'Fatal Python error' "$log" || tail -n 40 "$log"; } >&2 2>/dev/null || true
    done < <(cat "$begun/crashed" 2>/dev/null)
    rm -rf "$begun"
    return "$status"
}

# _in_turn PART:PART: one after the other, also when the first one fails.
_in_turn() {
    local part status=0 ended
    for part in ${1//:/ }; do
        ended=0
        _part "$part" || ended=$?
        [ "$ended" -le 1 ] || printf '%s %s %s\n' "$part" "$ended" "$cache/${1%%:*}.log" >>"$begun/crashed"
        [ "$status" -gt "$ended" ] || status=$ended
    done
    return "$status"
}

_part() {
    case $1 in
    units) _shared units tests "${units[@]}" ;;
    modules) _shared modules tests "${modules[@]}" ;;
    waits) _shared waits tests "${waits[@]}" ;;
    brokers) _shared brokers integration "${brokers[@]}" ;;
    spark) _shared spark integration "${spark[@]}" ;;
    scenarios) _shared scenarios integration "${scenarios[@]}" ;;
    helper*) _shared "$1" integration ;;
    former) _pytest former -k "not stock" "${former[@]}" ;;
    esac
}

# _shared NAME FOLDER FIRST...: the tests of the folder that no other part begins.
_shared() {
    local name=$1 folder=$2
    shift 2
    _pytest "$name" --shared "$begun" "${@/#/--first=}" "$folder"
}

# _again PART: its files with tests that failed, and no others: the conftest.py of another folder may come too late.
_again() {
    local failed="$root/.pytest_cache/$1/v/cache/lastfailed" files
    grep -q '::' "$failed" 2>/dev/null || return 0
    mapfile -t files < <(grep -o '"[^":]*\.py::' "$failed" | sed 's/^"//; s/::$//' | uniq)
    [ "${#files[@]}" -gt 0 ] || return 1
    _pytest "$1" --last-failed "${files[@]}"
}

# _pytest NAME ARGUMENTS...: what failed is kept for each NAME, as several processes may run.
_pytest() {
    local name=$1 kafka=${SAFEPRODUCER_KAFKA:-}
    shift
    [ "$name" != former ] || kafka=$former_kafka
    SAFEPRODUCER_KAFKA=$kafka "$venv/bin/python" -m pytest -q --durations=15 --durations-min=1 -o "cache_dir=.pytest_cache/$name" "$@"
}
