# A real Redisson client, for the tests of the tool: the Java actor (tests/java), which takes commands by line. Sourced
# after lib.sh. Where it cannot be built, for want of Java or of the network, the whole file is skipped, by name.
# shellcheck shell=bash disable=SC2154

java_dir=${HF_BUILD_DIR:?where the tests are built}/java
"$(dirname "${BASH_SOURCE[0]}")/../java/build.sh" "$java_dir" redisson || exit

java_asked=0 # commands so far: each has a number

# java_start NAME [OPTION=VALUE...]: a process with one client of that name (its options: Main.java). It ends when its input
# does, and with the test; its pid is in $java.
java_start() {
    rm -f "$dir/java.in"
    mkfifo "$dir/java.in"
    : >"$dir/java.out"
    exec {java_input}<>"$dir/java.in" # for both ends: the first to open it would wait for the other
    # A shell between, since what bash starts in the background does not have the function's input.
    # shellcheck disable=SC2016 # the inner shell replaces it
    start sh -c 'exec java -cp "$1/actor.jar:$1/lib/*" holdfast.actor.Main redisson <"$0/java.in" >"$0/java.out" 2>"$0/java.err"' \
        "$dir" "$java_dir/redisson"
    java=$pid
    java_client=$1
    java_does client "$1" "unix://$socket" "${@:2}"
    }

# java_begins COMMAND...: it may take its time; java_done says whether it has ended.
java_begins() {
    java_asked=$((java_asked + 1))
    echo "$java_asked $*" >&"$java_input"
}
java_done() { grep -q "^$java_asked " "$dir/java.out"; }
# java_does COMMAND...: it has succeeded when this returns; what it says is in $java_answer.
java_does() {
    java_begins "$@"
    wait_until java_done
    java_answer=$(sed -n "s/^$java_asked //p" "$dir/java.out")
    case $java_answer in
    ok*) java_answer=${java_answer#ok} java_answer=${java_answer# } ;;
    *) fail "Java: $*: $java_answer" ;;
    esac
}
# java_owner THREAD: who it is at the server; in $java_answer.
java_owner() {
    java_does ids "$java_client" thread="$1"
    java_answer=${java_answer/ /:}
}

# As a machine that loses its power: nothing is given back, nothing is said.
java_kill() {
    kill -KILL "$java"
    wait "$java" 2>/dev/null
    exec {java_input}>&-
}
