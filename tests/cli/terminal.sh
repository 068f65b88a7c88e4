#!/usr/bin/env bash
# `holdfast run` on a terminal, as a person uses it: prompts, Ctrl-C, Ctrl-Z and fg, pipelines. The person
# is expect(1).
. "$(dirname "$0")/lib.sh"
type -P expect >/dev/null || {
    echo "SKIP: expect is not installed"
    exit 77
}
server_start

# What sudo and ssh do: open the terminal, switch its echo off, ask, read. In a script, so that it is not the
# command itself that asks.
cat >"$dir/bin/ask" <<'END'
#!/bin/bash
exec 3<>/dev/tty
stty -echo <&3
printf 'Password: ' >&3
read -r answer <&3
stty echo <&3
echo "the answer is $answer"
END
# Something that runs until a signal ends it. It starts no other process: what is stopped in the middle of
# a vfork() is not stopped for its parent.
mkfifo "$dir/never"
cat >"$dir/bin/work" <<'END'
#!/bin/bash
echo running
exec 3<>"${socket%/*}/never"
while [ ! -e "$socket.go" ] && [ -S "$socket" ]; do read -r -t 0.02 -u 3; done
echo ended
END
chmod +x "$dir/bin/ask" "$dir/bin/work"

# person SCRIPT: runs an expect script; $prompt is an interactive shell's.
person() {
    cat - <(echo "$1") >"$dir/script.exp" <<'END'
set timeout 30
proc give_up {why} { puts "\n$why"; exit 1 }
proc must {text} {
    expect {
        -ex $text {}
        timeout { give_up "did not see: $text" }
        eof { give_up "ended before: $text" }
    }
}
proc must_end {} {
    expect {
        eof {}
        timeout { give_up "did not end" }
    }
}
proc shell {} {
    global spawn_id
    spawn -noecho bash --norc --noprofile -i
    send "PS1=ready\\>; set +o history\r"
    must "ready>"
}
proc until {condition} {
    global env
    for {set i 0} {![expr $condition]} {incr i} {
        if {$i > 1500} { give_up "never: $condition" }
        after 20
    }
}
END
    TERM=dumb setpriv --pdeathsig KILL expect "$dir/script.exp" >"$dir/out" 2>&1 </dev/null || {
        sed 's/^/    terminal: /' "$dir/out" >&2
        fail "the person did not see what was expected"
    }
}

test_prompt() {
    person '
        spawn -noecho hf run p ask
        must "Password: "
        send "secret\r"
        must "the answer is secret"
        must_end'
    free p || fail "still locked"
}

test_prompt_in_a_script_of_a_shell() {
    person '
        shell
        send "bash -c \"hf run p sh -c ask; echo then \\\$?\"\r"
        must "Password: "
        send "secret\r"
        must "the answer is secret"
        must "then 0"
        must "ready>"
        send "exit\r"
        must_end'
}

test_prompt_in_a_pipeline() {
    person '
        shell
        send "hf run p ask | sed s/answer/ANSWER/\r"
        must "Password: "
        send "secret\r"
        must "the ANSWER is secret"
        must "ready>"
        send "exit\r"
        must_end'
}

# The other end of a pipeline keeps the terminal as well.
test_pager_in_a_pipeline() {
    person '
        shell
        send "hf run p echo da\"\"ta | { cat; read -r key </dev/tty; echo key \$key; }\r"
        must "data"
        send "q\r"
        must "key q"
        must "ready>"
        send "exit\r"
        must_end'
}

test_ctrl_c_ends_command_and_script() {
    person '
        shell
        send "bash -c \"hf run c sh -c \\\"echo run\\\"ning\\\"; exec stay\\\"; echo not\\\"\\\"reached\"\r"
        must "running"
        send "\003"
        expect {
            "notreached" { exit 3 }
            "ready>" {}
            timeout { exit 4 }
        }
        send "echo status=\$?\r"
        must "status=130"
        send "exit\r"
        must_end'
    free c || fail "still locked"
}

test_ctrl_c_while_waiting() {
    redis hset w somebody 1 >/dev/null
    person '
        shell
        send "hf run w true; echo status=\$?\r"
        until {[exec redis-cli -s $env(socket) pubsub channels "*{w}*"] ne ""}
        send "\003"
        must "ready>"
        send "exit\r"
        must_end'
    redis del w >/dev/null
}

# (What is typed after fg ends with a newline, since the terminal may still have the modes of the shell's line
# editor, in which a return stays one.)
# While it is stopped the lease is renewed; with fg it goes on and has the terminal.
test_ctrl_z_and_fg() {
    person '
        shell
        send "hf run --ttl 5s z sh -c \"echo run\\\"\\\"ning; read -r x; echo got \\\$x\"\r"
        must "running"
        send "\032"
        must "Stopped"
        must "ready>"
        send "outlive_lease z; jobs\r"
        must "Stopped"
        must "ready>"
        send "redis-cli -s $env(socket) exists z | sed s/^/locked=/\r"
        must "locked=1"
        must "ready>"
        send "fg\r"
        must "hf run"
        send "hello\n"
        must "got hello"
        must "ready>"
        send "exit\r"
        must_end'
    free z || fail "still locked"
}

test_ctrl_z_in_a_pipeline() {
    person '
        shell
        send "hf run --ttl 5s y ask | sed s/answer/ANSWER/\r"
        must "Password: "
        send "\032"
        must "Stopped"
        must "ready>"
        send "outlive_lease y; redis-cli -s $env(socket) exists y | sed s/^/locked=/\r"
        must "locked=1"
        must "ready>"
        send "fg\r"
        must "sed"
        send "secret\n"
        must "the ANSWER is secret"
        must "ready>"
        send "exit\r"
        must_end'
    free y || fail "still locked"
}

test_ctrl_c_in_a_pipeline() {
    person '
        shell
        send "bash -c \"hf run p work | cat; echo not\\\"\\\"reached\"\r"
        must "running"
        send "\003"
        expect {
            "notreached" { exit 3 }
            "ready>" {}
            timeout { exit 4 }
        }
        send "exit\r"
        must_end'
    wait_until free p
}

test_ctrl_z_and_bg() {
    person '
        shell
        send "hf run --ttl 6s b work\r"
        must "running"
        send "\032"
        must "Stopped"
        must "ready>"
        send "bg\r"
        must "ready>"
        send "touch \$socket.go\r"
        must "ended"
        send "exit\r"
        must_end'
}

test_background_job_that_reads_is_stopped() {
    person '
        shell
        send "hf run g sh -c \"read -r x; echo got \\\$x\" &\r"
        must "ready>"
        until {[exec redis-cli -s $env(socket) exists g] eq "1"}
        send "\r"
        expect {
            "Stopped" {}
            "ready>" { after 50; send "\r"; exp_continue }
            timeout { exit 5 }
        }
        send "fg\r"
        must "hf run"
        send "hello\n"
        must "got hello"
        must "ready>"
        send "exit\r"
        must_end'
}

# A command that is killed in the middle of a prompt leaves a terminal that can be used.
test_lost_during_a_prompt() {
    person '
        shell
        send "hf run --ttl 6s l ask; echo status=\$?\r"
        must "Password: "
        exec redis-cli -s $env(socket) del l
        must "the lock is lost"
        must "status=79"
        must "ready>"
        send "echo ec\"\"ho\r"
        must "echo ec\"\"ho"
        must "echo"
        send "exit\r"
        must_end'
}

test_foreground() {
    person '
        spawn -noecho hf run --foreground f ask
        must "Password: "
        send "secret\r"
        must "the answer is secret"
        must_end'
}

run_tests
