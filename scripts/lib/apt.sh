# Debian packages, only when the machine lets us: as root, or through a sudo that asks for no password.
# Sourced after console.sh. SAFEPRODUCER_NO_APT=1 forbids it.

as_root=()

apt_allowed() {
    [ -z "${SAFEPRODUCER_NO_APT:-}" ] || return 1
    command -v apt-get >/dev/null || return 1
    [ "$(id -u)" -ne 0 ] || return 0
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n)
}

apt_get() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# A fresh machine has no package lists; an old one has lists that name files the mirrors no longer hold.
apt_refresh_and_install() { apt_get update && apt_get install --no-install-recommends "$@"; }

# apt_install WHY PACKAGE...: installs, or ends with a sentence that says what to install by hand.
apt_install() {
    local why=$1
    shift
    apt_allowed || die "$why. As root, run 'apt-get install $*' (or what your system calls it); then run this again."
    run "Installing $* through apt-get (may take some minutes)" \
        "$why, and apt-get could not install $*: see its messages above." \
        apt_refresh_and_install "$@"
}
