# The Python side of the set-up: uv in a private environment, .venv, locked requirements, the project itself.
# Sourced after console.sh and apt.sh.

venv="$root/.venv"
uv_env="$root/.cache/uv-venv"
uv="$uv_env/bin/uv"

# Without compiled files each of some hundred processes would compile all that it imports: three seconds of a processor.
unset PYTHONDONTWRITEBYTECODE

# The versions that the classifiers in pyproject.toml name.
version_test='import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'

fits() { "$1" -c "$version_test" 2>/dev/null; }

fingerprint() { { printf '%s\n' "$root" && cat "$@"; } | sha256sum | cut -d ' ' -f 1; }

# uv reads neither pip's settings nor, unless told so, the certificates of the system.
share_pip_settings_with_uv() {
    local settings
    settings=$("$uv_env/bin/python" "$root/scripts/lib/pip_settings.py") || die "cannot read pip's settings."
    eval "$settings"
    if [ -z "${SSL_CERT_FILE:-}" ] && [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"
    fi
    # One file of the development set is larger than 400 MB.
    export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-300}" UV_NO_PROGRESS=1
}

provide_uv() {
    local lock="$root/requirements/bootstrap.txt" stamp="$uv_env/.fingerprint" base=${PYTHON:-python3}
    command -v "$base" >/dev/null || apt_install "There is no $base on this machine" python3 python3-venv
    if [ ! -x "$uv" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$(fingerprint "$lock")" ]; then
        # Debian ships venv without ensurepip, in which case it can make no environment that has pip.
        "$base" -c 'import ensurepip, venv' 2>/dev/null ||
            apt_install "$base cannot make virtual environments: its modules venv and ensurepip are missing" python3-venv
        rm -rf "$uv_env"
        run "Making a private environment for uv" "'$base -m venv' failed: see its messages above." \
            "$base" -m venv "$uv_env"
        run "Downloading uv (20 MB)" \
            "pip could not install uv: check the network, and PIP_INDEX_URL and PIP_CERT if a proxy or mirror is in use." \
            "$uv_env/bin/python" -m pip install --disable-pip-version-check --require-hashes -r "$lock"
        fingerprint "$lock" >"$stamp"
    fi
    share_pip_settings_with_uv
}

provide_venv() {
    local base=${PYTHON:-python3}
    ! fits "$venv/bin/python" || return 0
    if ! fits "$base"; then
        base=$("$uv" python find --system --no-python-downloads '>=3.11,<3.15' 2>/dev/null) || base=3.11
    fi
    if [ "$base" = 3.11 ]; then
        say "This machine has no Python 3.11 to 3.14 (its python3 is $(python3 -V 2>&1)); trying to download 3.11"
    fi
    run "Making .venv with $("$base" -V 2>/dev/null || echo "Python $base")" \
        "could not make .venv: install Python 3.11 to 3.14 and name it, as in PYTHON=/path/to/python3.11 $0" \
        "$uv" venv --clear --python "$base" "$venv"
}

# A lock is complete, so nothing is resolved: resolving would download pyspark's source (450 MB) a second time.
install_locked() {
    "$uv" pip install --python "$venv/bin/python" --require-hashes --no-deps \
        --build-constraints "$root/requirements/build.txt" -r "$1" &&
        "$uv" pip install --python "$venv/bin/python" --no-deps --no-build-isolation -e "$root"
}

# Does .venv hold the set, installed from the locks as they are now? The large set contains the small one.
is_installed() {
    local set
    [ -x "$venv/bin/python" ] || return 1
    for set in "$1" dev; do
        [ "$(cat "$venv/.fingerprint-$set" 2>/dev/null)" != "$2" ] || return 0
    done
    return 1
}

# provide_python demo|dev SIZE: leaves .venv with at least the locked packages of that set. It never removes a
# package, so the small set can come first and the large one later.
provide_python() {
    local set=$1 size=$2 wanted
    wanted=$(fingerprint "$root/pyproject.toml" "$root"/requirements/*.txt)
    ! is_installed "$set" "$wanted" || return 0
    lock_setup
    # Another set-up may have done it while this one waited.
    if ! is_installed "$set" "$wanted"; then
        provide_uv
        provide_venv
        run "Installing the locked Python packages ($size the first time)" \
            "the locked packages could not be installed: check the network and the messages above." \
            install_locked "$root/requirements/$set.txt"
        printf '%s\n' "$wanted" >"$venv/.fingerprint-$set"
    fi
    unlock_setup
}
