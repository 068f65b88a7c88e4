/*
 * Servers that are hostile or broken: whatever they send, a call ends in time with an error that
 * says what was wrong, and the process neither crashes nor grows.
 *
 * Each test plays one wrong answer into an otherwise sound session (test_mangled.c spoils the
 * answers of a real server instead). Exchanges are short where an answer can only end by time, and
 * long where an error has to come before that.
 */
#include "net/scene.h"

#include "support/case.h"
#include "support/hostile.h"

#include <inttypes.h>

#define EXCHANGE_MS 200
#define LONG_EXCHANGE_MS 10000

/* What one command is answered with; all others are answered as they should be. */
struct mood {
    const char *verb; /* "" for every command */
    const char *bytes;
    size_t length;
    size_t cut;   /* close after so many bytes of it */
    bool closes;  /* `cut` counts */
    bool endless; /* send it again and again */
    bool after;   /* the right answer first, then the bytes, in one write */
    bool once;    /* from then on correctly, so that unanswered commands can be settled */
    atomic_int played;
};

static void play(struct hostile_peer *peer, struct mood *mood) {
    atomic_fetch_add(&mood->played, 1);
    size_t length = mood->closes ? mood->cut : mood->length;
    if (length > 0)
        hostile_send(peer, mood->bytes, length);
    while (mood->endless && hostile_send(peer, mood->bytes, length))
        continue;
    if (mood->closes)
        hostile_close(peer);
}

static bool is_script(const char *command, size_t length) {
    return hostile_is(command, length, "EVALSHA") || hostile_is(command, length, "EVAL");
}

static void answer(struct hostile_peer *peer, const char *command, size_t length, void *user) {
    struct mood *mood = user;
    if (mood->once && atomic_load(&mood->played) > 0 && is_script(command, length)) {
        hostile_send_text(peer, "*3\r\n:-1\r\n:0\r\n:1700000000000\r\n"); /* not yours */
        return;
    }
    bool hit = hostile_is(command, length, mood->verb) || mood->verb[0] == '\0' ||
               (strcmp(mood->verb, "EVALSHA") == 0 && is_script(command, length));
    if (hit && mood->after) {
        char both[256];
        int right = snprintf(both, sizeof both, "*2\r\n$10\r\n1700000000\r\n$6\r\n000001\r\n");
        memcpy(both + right, mood->bytes, mood->length);
        atomic_fetch_add(&mood->played, 1);
        hostile_send(peer, both, (size_t)right + mood->length);
    } else if (hit) {
        play(peer, mood);
    } else if (is_script(command, length)) {
        hostile_send_text(peer, "*3\r\n:0\r\n:60000\r\n:1700000000000\r\n"); /* another's */
    } else if (!hostile_handshake(peer, command, length)) {
        hostile_send_text(peer, ":0\r\n");
    }
}

static hf_options hostile_options(int64_t exchange_ms) {
    hf_options options = scene_options();
    options.cmd_timeout_ms = exchange_ms;
    options.connect_timeout_ms = 2 * exchange_ms;
    return options;
}

struct session {
    struct hostile *server;
    hf_client *client;
    hf_lock *lock;
    size_t rss;
};

static void begin_with(struct session *session, struct mood *mood, int64_t exchange_ms) {
    hf_options options = hostile_options(exchange_ms);
    session->server = hostile_start(answer, mood);
    session->rss = scene_rss();
    session->client = scene_open(hostile_url(session->server), &options);
    session->lock = scene_lock(session->client, "hostile");
}

static void begin(struct session *session, struct mood *mood) {
    begin_with(session, mood, LONG_EXCHANGE_MS);
}

static void end(struct session *session) {
    hf_lock_free(session->lock);
    assert_int_equal(hf_close(session->client), HF_OK);
    size_t rss = scene_rss();
    assert_true(rss < session->rss + SCENE_GROWTH_LIMIT);
    hostile_free(session->server);
}

#define BYTES(text) (text), sizeof(text) - 1

/* ---- Garbage ---- */

static const struct {
    const char *bytes;
    size_t length;
} nonsense[] = {
    {BYTES("garbage\r\n")},
    {BYTES("\r\n")},
    {BYTES("\0\0\0\0\r\n")},
    {BYTES("@1\r\n")},
    {BYTES("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")},
    {BYTES("\x16\x03\x01\x02\x00\x01\x00\r\n")},
    {BYTES("$-2\r\n")},
    {BYTES("$x\r\n")},
    {BYTES("$99999999999999999999\r\n")},
    {BYTES(":\r\n")},
    {BYTES(":99999999999999999999\r\n")},
    {BYTES(":12a\r\n")},
    {BYTES("*-2\r\n")},
    {BYTES("*x\r\n")},
    {BYTES("*65537\r\n")},
    {BYTES("*1000000000\r\n")},
    {BYTES("*2147483647\r\n")},
    {BYTES("*4294967297\r\n")},
    {BYTES("*9223372036854775807\r\n")},
    {BYTES("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n")},
    /* Valid RESP, but no answer of a script: */
    {BYTES("+OK\r\n")},
    {BYTES("+\r\n")},
    {BYTES(":1\r\n")},
    {BYTES(":0\r\n")},
    {BYTES(":-1700000000000000\r\n")},
    {BYTES(":1700000000000\r\n")},
    {BYTES(":999999999999999\r\n")},
    {BYTES(":9223372036854775807\r\n")},
    {BYTES("$-1\r\n")},
    {BYTES("$0\r\n\r\n")},
    {BYTES("$2\r\nhi\r\n")},
    {BYTES("*-1\r\n")},
    {BYTES("*0\r\n")},
    {BYTES("*3\r\n$1\r\n1\r\n:1\r\n:1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n$1\r\n1\r\n:1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n:1\r\n$13\r\n1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n$-1\r\n:1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n:1\r\n*0\r\n")},
    {BYTES("*3\r\n:1\r\n-ERR inside\r\n:1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n:1\r\n:0\r\n")},
    {BYTES("*3\r\n:1\r\n:1\r\n:-1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n:1\r\n:9223372036854775807\r\n")},
    {BYTES("*3\r\n:7\r\n:0\r\n:1700000000000\r\n")},
    {BYTES("*3\r\n:-9\r\n:0\r\n:1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n:99\r\n:1700000000000\r\n")},
    {BYTES("*3\r\n:1\r\n:-1\r\n:1700000000000\r\n")},
    {BYTES("*2\r\n:1\r\n:1700000000000\r\n")},
    {BYTES("*4\r\n:1\r\n:1\r\n:1\r\n:1700000000000\r\n")},
};

/* All sessions before the first end: what may have run is settled for all of them together. */
CASE(nonsense_for_an_acquire_is_EPROTO) {
    enum { CASES = sizeof nonsense / sizeof nonsense[0] };
    static struct mood moods[CASES];
    static struct session sessions[CASES];
    for (size_t i = 0; i < CASES; i++) {
        moods[i] = (struct mood){.verb = "EVALSHA",
                                 .bytes = nonsense[i].bytes,
                                 .length = nonsense[i].length,
                                 .once = true};
        begin(&sessions[i], &moods[i]);
        int err = hf_lock_try(sessions[i].lock);
        if (err != HF_EPROTO)
            printf("answer %zu: %s, %s\n", i, nonsense[i].bytes, hf_error_name(err));
        assert_int_equal(err, HF_EPROTO);
        assert_int_not_equal(hf_last_error()->text[0], '\0');
        assert_true(atomic_load(&moods[i].played) > 0);
    }
    for (size_t i = 0; i < CASES; i++)
        end(&sessions[i]);
}

static bool is_text_reply(const char *bytes) {
    return strcmp(bytes, "$0\r\n\r\n") == 0 || strcmp(bytes, "$2\r\nhi\r\n") == 0;
}

/* The same answers to whatever is asked first, and in each place of the handshake. None is an
 * answer to be content with. */
CASE(nonsense_in_the_handshake) {
    static const char *const verbs[] = {"CLIENT", "INFO", "TIME", ""};
    for (size_t v = 0; v < sizeof verbs / sizeof verbs[0]; v++) {
        for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
            struct mood mood = {
                .verb = verbs[v], .bytes = nonsense[i].bytes, .length = nonsense[i].length};
            struct session session;
            begin(&session, &mood);
            int err = hf_ping(session.client);
            /* CLIENT is optional; a server may keep its version to itself. */
            bool fine = strcmp(verbs[v], "CLIENT") == 0 ||
                        (strcmp(verbs[v], "INFO") == 0 && is_text_reply(nonsense[i].bytes));
            if (err != HF_EPROTO && !fine)
                printf("%s: %s, %s\n", verbs[v], nonsense[i].bytes, hf_error_name(err));
            assert_true(err == HF_EPROTO || fine);
            end(&session);
        }
    }
}

/* A verb that asks: the answer's type is checked before it is used. */
CASE(nonsense_for_questions) {
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        static const char *const verbs[] = {"PING", "EXISTS",  "HEXISTS", "HGET", "PTTL",
                                            "TYPE", "HGETALL", "EVALSHA", "HMGET"};
        for (size_t v = 0; v < sizeof verbs / sizeof verbs[0]; v++) {
            struct mood mood = {
                .verb = verbs[v], .bytes = nonsense[i].bytes, .length = nonsense[i].length};
            struct session session;
            bool flag;
            int64_t number;
            hf_lock_info *info = NULL;
            begin(&session, &mood);
            hf_ping(session.client);
            hf_lock_is_locked(session.lock, &flag);
            hf_lock_is_mine(session.lock, &flag);
            hf_lock_hold_count(session.lock, &number);
            hf_lock_ttl_ms(session.lock, &number);
            if (v > 3 && hf_lock_inspect(session.lock, &info) == HF_OK)
                hf_lock_info_free(info);
            if (v > 6)
                hf_lock_break(session.lock, &flag);
            end(&session);
        }
        if (i >= 2 && getenv("HF_SOAK") == NULL)
            i += 3; /* each fourth; the others in the soak */
    }
}

/* ---- Too much ---- */

static void endless(const char *bytes, size_t length, const char *first) {
    size_t head = first != NULL ? strlen(first) : 0, copies = 4096;
    own_text *flood = malloc(head + copies * length); /* sent until the session ends */
    OWN(end) struct session session;
    assert_non_null(flood);
    if (head > 0)
        /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): bytes for the wire, not a string */
        memcpy(flood, first, head);
    for (size_t i = 0; i < copies; i++)
        memcpy(flood + head + i * length, bytes, length);
    struct mood mood = {.verb = "EVALSHA",
                        .bytes = flood,
                        .length = head + copies * length,
                        .endless = true,
                        .once = true};
    begin(&session, &mood);
    int err = hf_lock_try(session.lock);
    if (err != HF_EPROTO)
        printf("%s: %s\n", first != NULL ? first : "no head", hf_error_name(err));
    assert_int_equal(err, HF_EPROTO);
    assert_true(scene_rss() < session.rss + SCENE_GROWTH_LIMIT);
}

CASE(endless_replies_are_cut_off) {
    static char block[256];
    memset(block, 'x', sizeof block);
    endless(block, sizeof block, "$1073741824\r\n"); /* one of 1 GB, and it means it */
    endless(block, sizeof block, "+");               /* a line without an end */
    endless(block, sizeof block, "-ERR ");
    endless(BYTES(":1\r\n"), "*65536\r\n*65536\r\n*65536\r\n");
    endless(BYTES("*0\r\n"), "*65536\r\n*65536\r\n*65536\r\n");
    endless(BYTES("$-1\r\n"), "*65536\r\n*65536\r\n*65536\r\n");
    endless(BYTES("*1\r\n"), NULL); /* an answer in an answer in an answer */
    endless(BYTES(":1\r\n"), NULL); /* replies that nobody asked for */
}

CASE(announced_but_never_sent_ends_by_time) {
    static const char *const heads[] = {"$4000000\r\nabc", "*60000\r\n:1\r\n", "+no end", "$",
                                        "*3\r\n:1\r\n:1\r\n:1700000000000"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct mood mood = {.verb = "EVALSHA", .bytes = heads[i], .length = strlen(heads[i])};
        struct session session;
        begin_with(&session, &mood, EXCHANGE_MS);
        int64_t start_ms = now_ms();
        int err = hf_lock_try(session.lock);
        assert_true(err == HF_ETIMEDOUT || err == HF_EUNREACH);
        assert_true(now_ms() - start_ms >= EXCHANGE_MS);
        assert_true(now_ms() - start_ms < EXCHANGE_MS + 10000);
        end(&session);
    }
}

/* ---- Nobody asked ---- */

/* Right behind the handshake, in the same packet: the connection must not be used. */
CASE(unsolicited_behind_the_handshake) {
    static const char *const extras[] = {"+hello\r\n", ":1\r\n:2\r\n", "garbage\r\n",
                                         "*3\r\n:1\r\n:1\r\n:1700000000000\r\n"};
    for (int round = 0; round < 40; round++) {
        const char *extra = extras[round % 4];
        struct mood mood = {.verb = "TIME", .bytes = extra, .length = strlen(extra), .after = true};
        struct session session;
        struct scene_call calls[4];
        begin(&session, &mood);
        for (size_t i = 0; i < 4; i++)
            scene_acquire(&calls[i], session.lock, 0, NULL);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(scene_join(&calls[i]), HF_EPROTO);
        assert_int_equal(scene_ping_async(session.client), HF_EPROTO);
        end(&session);
    }
}

static void send_extra(struct hostile_peer *peer, const char *command, size_t length, void *user) {
    atomic_int *extras = user;
    if (is_script(command, length)) {
        hostile_send_text(peer, "*3\r\n:0\r\n:60000\r\n:1700000000000\r\n");
        return;
    }
    hostile_handshake(peer, command, length);
    if (hostile_is(command, length, "PING")) {
        sleep_ms(20); /* by itself, when the first answer has been read, which nobody says */
        hostile_send_text(peer, "+PONG\r\n");
        atomic_fetch_add(extras, 1);
    }
}

/* On an idle connection: it must not be taken for the answer of the next command. */
CASE(unsolicited_on_an_idle_connection) {
    atomic_int extras = 0;
    struct hostile *server = hostile_start(send_extra, &extras);
    hf_options options = hostile_options(LONG_EXCHANGE_MS);
    hf_client *client = scene_open(hostile_url(server), &options);
    hf_lock *lock = scene_lock(client, "hostile");
    assert_int_equal(hf_ping(client), HF_OK);
    assert_true(WAIT_FOR(atomic_load(&extras) != 0, HANG_MS));
    scene_stay_idle(60);
    assert_int_equal(hf_lock_try(lock), HF_EBUSY); /* on a new connection */
    assert_int_equal(hostile_connections(server), 2);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    hostile_free(server);
}

/* ---- Closing ---- */

CASE(closing_at_every_byte_of_an_answer) {
    static const char held[] = "*3\r\n:1\r\n:1\r\n:1700000000000\r\n", pong[] = "+PONG\r\n";
    hf_options options = hostile_options(60);
    for (size_t cut = 0; cut < sizeof held - 1; cut++) {
        struct mood mood = {.verb = "EVALSHA", .bytes = held, .closes = true, .cut = cut};
        struct hostile *server = hostile_start(answer, &mood);
        hf_client *client = scene_open(hostile_url(server), &options);
        hf_lock *lock = scene_lock(client, "hostile");
        int err = hf_lock_try(lock);
        assert_true(err == HF_EUNREACH || err == HF_ETIMEDOUT);
        hf_lock_free(lock);
        assert_int_equal(hf_close(client), HF_OK);
        hostile_free(server);
    }
    for (size_t cut = 0; cut < sizeof pong - 1; cut++) {
        struct mood mood = {.verb = "PING", .bytes = pong, .closes = true, .cut = cut};
        struct hostile *server = hostile_start(answer, &mood);
        hf_client *client = scene_open(hostile_url(server), &options);
        assert_int_equal(hf_ping(client), HF_EUNREACH);
        assert_int_equal(hf_close(client), HF_OK);
        hostile_free(server);
    }
}

CASE(closing_at_every_byte_of_the_handshake) {
    static const char time[] = "*2\r\n$10\r\n1700000000\r\n$6\r\n000001\r\n";
    for (size_t cut = 0; cut < sizeof time - 1; cut++) {
        struct mood mood = {.verb = "TIME", .bytes = time, .closes = true, .cut = cut};
        struct session session;
        begin(&session, &mood);
        assert_int_equal(hf_ping(session.client), HF_EUNREACH);
        end(&session);
    }
}

/* A server that lets us in and then closes, again and again: neither tight loop nor hang. */
CASE(closing_after_each_subscription_is_no_tight_loop) {
    static const char *const replies[] = {"", "garbage\r\n"};
    for (size_t i = 0; i < 2; i++) {
        struct mood mood = {.verb = "SUBSCRIBE",
                            .bytes = replies[i],
                            .length = strlen(replies[i]),
                            .cut = strlen(replies[i]),
                            .closes = true};
        struct session session;
        begin(&session, &mood);
        assert_int_equal(hf_lock_acquire_for(session.lock, 1000), HF_ETIMEDOUT);
        /* 20 ms, doubled each time with jitter, make about ten; a tight loop makes thousands. */
        size_t connections = hostile_connections(session.server);
        if (connections >= 60)
            printf("%zu connections, %zu commands\n", connections,
                   hostile_commands(session.server));
        assert_true(connections >= 3 && connections < 60);
        assert_true(hostile_commands(session.server) < 600);
        end(&session);
    }
}

CASE(silence_in_the_handshake_ends_by_time) {
    OWN(end) struct session session;
    struct mood mood = {.verb = "", .bytes = "", .length = 0};
    begin_with(&session, &mood, EXCHANGE_MS);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_ping(session.client), HF_EUNREACH);
    assert_true(now_ms() - start_ms >= EXCHANGE_MS);
    assert_int_equal(hf_lock_try(session.lock), HF_EUNREACH);
}

/* ---- Versions ---- */

static void version_is(const char *version, int expected) {
    OWN(end) struct session session;
    char info[128], bytes[192];
    int len =
        snprintf(info, sizeof info, "# Server\r\nredis_version:%s\r\nredis_mode:x\r\n", version);
    int total = snprintf(bytes, sizeof bytes, "$%d\r\n%s\r\n", len, info);
    struct mood mood = {.verb = "INFO", .bytes = bytes, .length = (size_t)total};
    begin(&session, &mood);
    assert_int_equal(hf_ping(session.client), expected);
    if (expected == HF_ENOTSUP)
        assert_non_null(strstr(hf_last_error()->text, "6.2"));
}

CASE(too_old_servers_are_refused) {
    version_is("5.0.7", HF_ENOTSUP);
    version_is("6.0.16", HF_ENOTSUP);
    version_is("2.8.4", HF_ENOTSUP);
    version_is("6.2.0", HF_OK);
    version_is("7.4.1", HF_OK);
    version_is("10.0.0", HF_OK);
    version_is("255.255.255", HF_OK);
    version_is("odd", HF_OK);
}

RUN_CASES(scene_start_server, scene_stop_server)
