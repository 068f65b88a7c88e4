#!/usr/bin/env bash
# The subcommand `top`: what is on the screen of a real terminal, of 80 columns and 24 lines, and what is left of
# it afterwards; and the batch mode.
. "$(dirname "$0")/lib.sh"
server_start
owner=5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d

# ---- A terminal ----

tmux() { command tmux -S "$terminal" -f /dev/null "$@"; }
# terminal: a shell in a terminal; the test that began it ends it. Each has its own: one that is being ended
# would still answer the next.
terminal() {
    terminal=$(mktemp -u "$dir/tmux.XXXXXX")
    command -v tmux >/dev/null || { echo "skipped: there is no tmux"; exit 0; }
    export LC_ALL=C.UTF-8
    tmux -u new-session -d -x 80 -y 24 'env -u TMUX PS1="ready> " bash --norc --noprofile -i'
    trap 'tmux kill-server 2>/dev/null; leave_test' EXIT
    wait_until on_screen '^ready>'
}
screen() { tmux capture-pane -p; }
on_screen() { screen | grep -Eq -- "$1"; }
not_on_screen() { ! on_screen "$1"; }
keys() { tmux send-keys "$@"; }
# type_line TEXT: a command to the shell.
type_line() { keys -l "$1" && keys Enter; }
top_begins() {
    type_line "hf top -d 200ms"
    wait_until on_screen '^NAME '
}
# shell_again: the prompt is there again, and what was typed before; the terminal is as it was.
shell_again() {
    wait_until on_screen '^ready> *$'
    not_on_screen '^NAME ' || fail "the screen was not given back: $(screen)"
    type_line 'stty -a | grep -c -w -e "-icanon" -e "-echo" | sed s/^/raw:/'
    wait_until on_screen '^raw:0'
}

# ---- On the screen ----

# All at once, since a client that answers late is silent for a moment. The times aside.
shows_five_locks() {
    local seen
    seen=$(screen)
    grep -Eq '^holdfast top - [0-9:]{8}  5 locks, 5 held, 1 waiting, longest [0-9.]+s$' <<<"$seen" &&
        grep -Eq '^busy +alive +[^ ]+ [0-9]+ .* 1 +[0-9.]+s +0$' <<<"$seen" &&
        [ "$(sed -n '4,9p' <<<"$seen" | sed -E 's/^(busy +alive) .*/\1/')" = "\
NAME             STATE     HOLDER               HELD     TTL  WAIT LONGEST HANDS
busy             alive
calm             unknown   5c4dd3c1-6b2f-4c5       -       -     0       -     0
evil?[31m?       unknown   5c4dd3c1-6b2f-4c5       -       -     0       -     0
nnnnnnnnnnnnnnnn unknown   5c4dd3c1-6b2f-4c5       -       -     0       -     0
数据库备份       unknown   5c4dd3c1-6b2f-4c5       -       -     0       -     0" ]
}
# rows_are NAMES: waited for, since a screen may be half drawn when it is looked at.
rows_are() { [ "$(screen | sed -n '5,9s/ .*//p' | tr '\n' ' ')" = "$1" ]; }
lines_are() { [ "$(screen | grep -c .)" = "$1" ]; }

test_a_screen() {
    terminal
    redis hset calm "$owner:17" 1 >/dev/null
    redis hset $'evil\e[31m\a' "$owner:17" 1 >/dev/null
    redis hset 数据库备份 "$owner:17" 1 >/dev/null
    redis hset "$(printf 'n%.0s' {1..200})" "$owner:17" 1 >/dev/null
    start hf run busy -- stay
    wait_until locked busy
    start hf run busy -- true
    top_begins
    wait_until shows_five_locks

    keys "?"
    wait_until on_screen 'Press any key'
    keys x
    wait_until on_screen '^NAME '
    keys n r
    wait_until rows_are '数据库备份 nnnnnnnnnnnnnnnn evil?[31m? calm busy '
    keys -l /cal
    wait_until on_screen '^only names or holders with: cal_'
    wait_until rows_are 'calm '
    keys Enter
    wait_until on_screen "^only with 'cal': 1 of 5"
    keys / Escape
    wait_until on_screen '^busy '
    keys s
    wait_until on_screen '^only what is stuck: 0 of 5'
    keys s r w

    tmux resize-window -x 120 -y 8
    wait_until on_screen '^NAME +KIND +STATE '
    wait_until lines_are 7
    keys Down
    wait_until not_on_screen '^busy'
    tmux resize-window -x 30 -y 3
    wait_until on_screen '^[0-9]+ client'
    tmux resize-window -x 80 -y 24
    wait_until on_screen '^NAME +STATE +HOLDER'
    keys q
    shell_again
    redis flushall >/dev/null
}

test_the_terminal_is_given_back() {
    local signal pid
    terminal
    for signal in INT TERM HUP QUIT SEGV; do
        top_begins
        pid=$(tmux list-panes -F '#{pane_pid}')
        pid=$(children_of "$pid")
        kill -"$signal" "$pid"
        wait_until ended "$pid"
        shell_again
        keys -l clear
        keys Enter
        wait_until not_on_screen raw:
    done
    # stopped and gone on with
    top_begins
    keys C-z
    wait_until on_screen 'Stopped'
    type_line 'stty -a | grep -c -w -e "-icanon" -e "-echo" | sed s/^/raw:/'
    wait_until on_screen '^raw:'
    type_line fg
    wait_until on_screen '^NAME '
    keys C-c
    shell_again
}

# Above it there is a shell that does not look after jobs, as behind ssh: it goes on, since nobody else could make it.
test_not_stopped_where_it_would_be_for_good() {
    terminal
    tmux respawn-pane -k 'hf top -d 200ms; stay'
    wait_until on_screen '^NAME '
    keys C-z "?" # what is typed meanwhile is not lost
    wait_until on_screen 'Press any key'
    keys x
    wait_until on_screen '^NAME '
    # nor if its parent has no use for that
    tmux respawn-pane -k 'trap "" TSTP; hf top -d 200ms; stay'
    wait_until on_screen '^NAME '
    keys C-z "?"
    wait_until on_screen 'Press any key'
}

# The server goes and comes back: what was there is still shown, and that it is old.
test_without_a_server() {
    terminal
    socket=$dir/other.sock
    server=
    server_start
    redis hset calm "$owner:17" 1 >/dev/null
    type_line "hf() { $TOOL -s $socket \"\$@\"; }"
    top_begins
    server_kill
    wait_until on_screen '^unchanged: '
    wait_until on_screen '^calm '
    server_start
    wait_until on_screen '^holdfast top .* 0 locks'
    wait_until not_on_screen '^unchanged'
    keys q
    shell_again
    server_kill
}

shows_a_deadlock() {
    local seen
    seen=$(screen)
    grep -q '^1 deadlock: .* waits for .*; .* waits for ' <<<"$seen" && grep -Eq '^one +deadlock ' <<<"$seen" &&
        grep -Eq '^two +deadlock ' <<<"$seen"
}
# Two scripts, each of which runs the other's lock inside its own.
test_a_deadlock() {
    terminal
    start hf run one -- sh -c 'until hf show --held two; do tick; done; hf run two -- true'
    start hf run two -- sh -c 'until hf show --held one; do tick; done; hf run one -- true'
    top_begins
    wait_until shows_a_deadlock
    keys q
    shell_again
}

test_colour() {
    terminal
    redis hset dead "$owner:4294967297" 1 >/dev/null
    top_begins
    wait_until on_screen '^dead +gone'
    tmux capture-pane -p -e | grep -Eq $'\e\\[33m(\e\\[49m)?dead' || fail "no colour: $(tmux capture-pane -p -e | cat -v)"
    keys q
    shell_again
    type_line 'export NO_COLOR=1; clear'
    wait_until not_on_screen raw:
    top_begins
    wait_until on_screen '^dead +gone'
    ! tmux capture-pane -p -e | grep -q $'\e\\[3[0-7]' || fail "colour: $(tmux capture-pane -p -e | cat -v)"
    keys q
    wait_until on_screen '^ready> *$'
    redis del dead >/dev/null
}

# ---- Without one ----

test_batch() {
    redis hset calm "$owner:17" 1 >/dev/null
    redis hset $'evil\e[31m' "$owner:17" 1 >/dev/null
    expect 0 hf top -n 2 -d 100ms
    same "$(grep -c '^NAME ' <<<"$out")" 2
    same "$(grep -Ec "^calm +plain +unknown +$owner:17 " <<<"$out")" 2
    same "$(grep -c '^evil?\[31m ' <<<"$out")" 2
    [[ $out != *$'\e'* ]] || fail "$out"
    expect 0 hf top -b -n 1 'no such *'
    same "$(wc -l <<<"$out")" 4
    redis pexpire calm 100000 >/dev/null
    expect 0 hf top -b -n 1 --sort ttl
    [[ $out == *calm*evil* ]] || fail "$out"
    redis del calm $'evil\e[31m' >/dev/null
    hf top -d 100ms | head -n 1 >/dev/null
    same "${PIPESTATUS[0]}" 141
    start hf top -b >/dev/null
    kill -TERM "$pid"
    finish "$pid"
    same "$status" 143
}

# Who it was is known, as long as it was seen alive.
test_the_dead_are_known_by_name() {
    start hf hold --no-stdin dead >/dev/null
    local held=$pid
    start hf top -b -d 100ms >"$dir/pictures"
    wait_until grep -Eq "^dead +plain +alive +[^ ]+ $held bash" "$dir/pictures"
    kill -KILL "$held"
    wait_until grep -Eq "^dead +plain +gone " "$dir/pictures"
    grep -Eq "^dead +plain +gone +[^ ]+ $held bash" "$dir/pictures" || fail "$(cat "$dir/pictures")"
    kill "$pid"
    redis del dead >/dev/null
}

# Several hold it at once: who stays has had nothing handed over, whichever of them comes first.
pictures() { [ "$(grep -c '^NAME ' "$dir/pictures")" -gt "$1" ]; }
next_picture() { wait_until pictures "$(($(grep -c '^NAME ' "$dir/pictures") + 1))"; }
hands() { tac "$dir/pictures" | sed -n "s/^$1 .* \([0-9]*\)\$/\1/p" | head -n 1; }
handed() { [ "$(hands "$1")" = "$2" ]; }
test_readers_and_slots_hand_nothing_over() {
    local first second
    redis hset readers mode read "$owner:1" 1 "$owner:2" 1 >/dev/null
    redis hset single "$owner:1" 1 >/dev/null
    first=$(hf acquire --slots 3 --lease 1m slots) && second=$(hf acquire --slots 3 --lease 1m slots) || fail "no slots"
    [[ $first < $second ]] || { local other=$first; first=$second; second=$other; }
    start hf top -b -d 100ms >"$dir/pictures"
    next_picture
    redis hdel readers "$owner:1" >/dev/null
    hf release slots "$first" || fail "not released"
    next_picture
    redis hset readers "$owner:0" 1 >/dev/null
    next_picture
    redis eval 'redis.call("hdel", KEYS[1], ARGV[1]) redis.call("hset", KEYS[1], ARGV[2], 1)' 1 single "$owner:1" "$owner:2" >/dev/null
    wait_until handed single 1
    same "$(hands readers)" 0 "hand-overs of readers"
    same "$(hands slots)" 0 "hand-overs of slots"
    kill "$pid"
    hf release slots "$second"
    redis del readers single >/dev/null
}

test_usage() {
    expect 64 hf top -d 1ms
    expect 64 hf top -n 0
    expect 64 hf top --sort colour
    expect 64 hf top a b
    expect 64 hf --json top
    expect 71 eval 'hf top -b -n 1 >/dev/full'
    says "cannot write to the standard output: No space left on device"
    expect 69 "$TOOL" -s "$dir/nowhere" -t 0.2s top -n 1
}

run_tests
