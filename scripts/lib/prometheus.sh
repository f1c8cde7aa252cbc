# Prometheus for integration/test_dashboard.py, in .cache/prometheus. Sourced after console.sh and apt.sh.

# Only unpacked: installed, it would start a service. It needs no other package.
fetch_prometheus() {
    local folder="$root/.cache/prometheus"
    rm -rf "$folder"
    mkdir -p "$folder"
    "${as_root[@]}" apt-get -q -o Acquire::Retries=3 update
    (cd "$folder" && apt-get -q -o Acquire::Retries=3 download prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb)
}

provide_prometheus() {
    [ ! -x "$root/.cache/prometheus/usr/bin/promtool" ] || return 0
    ! command -v promtool >/dev/null || return 0
    apt_allowed || { say "no Prometheus here: the dashboard is not tested against one"; return 0; }
    run "Fetching Prometheus through apt-get (20 MB)" \
        "apt-get could not fetch Prometheus: see its messages above. The dashboard is tested against it." \
        fetch_prometheus
}
