# Java and Maven for the real broker and for Spark. Sourced after console.sh, apt.sh and python.sh.

java_major() { "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }

# Prints the first Java that is new enough: the one chosen by the user, the usual one, any that Debian installed.
find_java() {
    local candidate major
    for candidate in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java /usr/lib/jvm/*/bin/java; do
        command -v "$candidate" >/dev/null || continue
        major=$(java_major "$candidate") || continue
        [ "${major:-0}" -ge 17 ] || continue
        command -v "$candidate"
        return 0
    done
    return 1
}

# jars_locked FOLDERS LOCK: whether one of the folders of the cache holds all jars of a lock.
jars_locked() {
    local folder
    for folder in "${SAFEPRODUCER_CACHE:-$root/.cache}"/$1/lib; do
        [ -d "$folder" ] || continue
        (cd "$folder" && sha256sum --check --status "$root/integration/kafka/$2" 2>/dev/null) && return 0
    done
    return 1
}

jars_present() {
    jars_locked 'kafka-*' jars.lock && jars_locked 'kafka-*' jars-4.3.lock && jars_locked 'spark-connector-*' connector.lock
}

# Debian 12 has 17; later releases have only a newer default. Looks into lists that may have been missing until now.
install_java_and_maven() {
    local java_package=default-jre-headless
    apt_get update
    # `apt-cache show` also succeeds for a name that is merely mentioned; madison lists what can be installed.
    [ -z "$(apt-cache madison openjdk-17-jre-headless)" ] || java_package=openjdk-17-jre-headless
    apt_get install --no-install-recommends "$java_package" maven
}

provide_kafka() {
    local java missing=
    find_java >/dev/null || missing="Java 17 or newer"
    jars_present || command -v mvn >/dev/null || missing="${missing:+$missing and }Maven"
    if [ -n "$missing" ]; then
        apt_allowed ||
            die "$missing missing: the tests run a real Kafka broker and Spark. As root, 'apt-get install default-jre-headless maven' (Debian 12 or newer) installs both; or set JAVA_HOME and put mvn on PATH. Then run this again."
        run "Installing Java and Maven through apt-get ($missing missing; 60 MB, may take some minutes)" \
            "apt-get could not install Java and Maven: see its messages above." \
            install_java_and_maven
    fi
    java=$(find_java) || die "apt-get brought no Java 17 or newer: install one and set JAVA_HOME to its folder."
    if [ "$(command -v java)" != "$java" ]; then
        JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$java")")")
        export JAVA_HOME PATH="$JAVA_HOME/bin:$PATH"
    fi
    if ! jars_present; then
        (cd "$root" && run "Fetching the jars of Kafka and of Spark's connector through Maven (150 MB, may take some minutes)" \
            "The jars could not be fetched: see the message above." \
            "$venv/bin/python" -m integration.kafka.jars)
    fi
}
