# Environments of other versions, in .cache/matrix: `requirements/matrix/NAME.txt`, or for python-3.x the newest of all.
# Sourced after python.sh.

matrix="$root/.cache/matrix"
pythons=(3.12 3.13 3.14)

# Prints an interpreter of that version, if this machine has one.
find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        "$candidate" -c "import sys; sys.exit('.'.join(map(str, sys.version_info[:2])) != '$1')" 2>/dev/null || continue
        printf '%s\n' "$candidate"
        return 0
    done
    return 1
}

install_matrix() {
    "$uv" venv --quiet --clear --python "$2" "$matrix/$1" &&
        "$uv" pip install --quiet --python "$matrix/$1/bin/python" --require-hashes --no-deps \
            --build-constraints "$root/requirements/build.txt" -r "$3"
}

# provide_matrix NAME...: makes those that are missing or have other requirements by now.
provide_matrix() {
    local name lock python wanted
    lock_setup
    for name in "$@"; do
        lock="$root/requirements/matrix/$name.txt" python="$venv/bin/python"
        if [[ $name = python-* ]]; then
            lock="$root/requirements/matrix/newest.txt"
            python=$(find_python "${name#python-}") || { say "no Python ${name#python-} here: not tested"; continue; }
        fi
        wanted=$(fingerprint "$lock")
        [ "$(cat "$matrix/$name/.fingerprint" 2>/dev/null)" != "$wanted" ] || continue
        provide_uv
        run "Making the environment $name" "it could not be made: check the network and the messages above." \
            install_matrix "$name" "$python" "$lock"
        printf '%s\n' "$wanted" >"$matrix/$name/.fingerprint"
    done
    unlock_setup
}

# All of them.
matrix_names() {
    basename -s .txt "$root"/requirements/matrix/*.txt | grep -v '^newest$'
    printf 'python-%s\n' "${pythons[@]}"
}
