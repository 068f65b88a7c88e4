/*
 * Tests of the hostile server (tests/support/hostile.h): it answers what the test asked, when the test
 * asked, and ends when it is freed, whatever its connections are doing.
 */
#include "support/case.h"
#include "support/hostile.h"
#include "support/resp.h"
#include "support/wait.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { LIMIT_MS = 30000 };

#define PING "*1\r\n$4\r\nPING\r\n"
#define GET "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"

static int connect_to(struct hostile *h) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", hostile_socket(h));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
}

/* Reads exactly this. */
static void expect(int fd, const char *text) {
    char got[1024];
    size_t length = strlen(text);
    assert_true(length <= sizeof got);
    assert_int_equal(recv(fd, got, length, MSG_WAITALL), length);
    assert_memory_equal(got, text, length);
}

CASE(script_answers_in_order) {
    static const struct hostile_reply script[] = {
        {"+OK\r\n", 0}, {"$-7\r\n\0garbage", 13}, {NULL, 0}};
    struct hostile *h = hostile_start_script(script, 3);
    for (int round = 0; round < 2; round++) {
        int fd = connect_to(h);
        say(fd, PING GET);
        expect(fd, "+OK\r\n");
        char got[13];
        assert_int_equal(recv(fd, got, sizeof got, MSG_WAITALL), sizeof got);
        assert_memory_equal(got, "$-7\r\n\0garbage", sizeof got);
        say(fd, PING);
        assert_int_equal(recv(fd, got, 1, 0), 0);
        close(fd);
    }
    assert_true(hostile_wait_commands(h, 6, LIMIT_MS));
    assert_int_equal(hostile_commands(h), 6);
    assert_int_equal(hostile_connections(h), 2);
    hostile_free(h);
}

CASE(script_is_silent_when_it_is_over) {
    struct hostile *h = hostile_start_script(NULL, 0);
    int fd = connect_to(h);
    say(fd, PING);
    assert_true(hostile_wait_commands(h, 1, LIMIT_MS));
    char byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    assert_false(hostile_wait_commands(h, 2, 20));
    hostile_free(h); /* with the connection open */
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

static void drip(struct hostile_peer *peer, const char *command, size_t length, void *user) {
    (void)user;
    if (!hostile_handshake(peer, command, length) && hostile_is(command, length, "get"))
        hostile_send_slowly(peer, "$3\r\nabc\r\n", 9, 1);
}

CASE(slow_answer_comes_byte_by_byte) {
    struct hostile *h = hostile_start(drip, NULL);
    int fd = connect_to(h);
    say(fd, PING);
    expect(fd, "+PONG\r\n");
    say(fd, "INFO\r\n"); /* words without RESP */
    expect(fd, "$55\r\n# Server\r\n");
    char rest[1024];
    assert_int_equal(recv(fd, rest, 47, MSG_WAITALL), 47);
    assert_int_equal(resp_reply_length("$2\r\nab\r\n", 8), 8);
    say(fd, GET);
    char got[16];
    for (size_t length = 0; length < 9; length++)
        assert_int_equal(recv(fd, got + length, sizeof got - length, 0), 1);
    assert_memory_equal(got, "$3\r\nabc\r\n", 9);
    close(fd);
    hostile_free(h);
}

static void flood(struct hostile_peer *peer, const char *command, size_t length, void *user) {
    (void)command;
    (void)length;
    static const char nest[] = "*1\r\n*1\r\n*1\r\n*1\r\n";
    while (hostile_send(peer, nest, sizeof nest - 1))
        continue;
    atomic_fetch_add((atomic_int *)user, 1);
}

static bool flood_has_ended(void *arg) {
    return atomic_load((atomic_int *)arg) == 1;
}

CASE(flood_ends_with_the_client_or_the_server) {
    atomic_int ended = 0;
    struct hostile *h = hostile_start(flood, &ended);
    int leaving = connect_to(h), staying = connect_to(h);
    say(leaving, PING);
    say(staying, PING);
    expect(leaving, "*1\r\n*1\r\n");
    close(leaving);
    assert_true(wait_until(flood_has_ended, &ended, LIMIT_MS));
    hostile_free(h); /* the other one is still being flooded, and does not read */
    assert_int_equal(atomic_load(&ended), 2);
    close(staying);
}

CASE(ends_of_messages_are_found) {
    static const char *const whole[] = {
        "+OK\r\n",
        "-ERR x\r\n",
        ":-1\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n*1\r\n:1\r\n$3\r\na\r\n\r\n",
        "%1\r\n+k\r\n_\r\n",
        ">2\r\n+a\r\n#t\r\n",
        "|1\r\n+k\r\n+v\r\n:7\r\n",
        "~1\r\n,1.5\r\n",
        "=7\r\ntxt:abc\r\n",
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        size_t length = strlen(whole[i]);
        assert_int_equal(resp_reply_length(whole[i], length), length);
        for (size_t part = 0; part < length; part++)
            assert_int_equal(resp_reply_length(whole[i], part), 0);
    }
    assert_int_equal(resp_reply_length("hello\r\n", 7), RESP_BROKEN);
    assert_int_equal(resp_reply_length("$x\r\n", 4), RESP_BROKEN);
    assert_int_equal(resp_reply_length("*1\n", 3), RESP_BROKEN);
    assert_int_equal(resp_reply_length("\0\r\n", 3), RESP_BROKEN);
    assert_int_equal(resp_reply_length("$999999999999\r\n", 15), 0);
    assert_int_equal(resp_command_length("PING\r\n" PING, 6 + strlen(PING)), 6);
    assert_true(resp_command_is(GET, strlen(GET), "get"));
    assert_false(resp_command_is(GET, strlen(GET), "ge"));
    assert_true(resp_contains("abCdef", 6, "BcD"));
    assert_false(resp_contains("abc", 3, "abcd"));
}

RUN_CASES(NULL, NULL)
