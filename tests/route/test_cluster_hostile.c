/*
 * Servers that redirect in circles, to dead addresses or to invalid ones; that send invalid
 * replies, or refuse for a while. Every call ends at its deadline, and a refused command runs once
 * when it is no longer refused. The servers are simulated.
 */
#include "route/fake_node.h"
#include "route/scene.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define BRIEF_MS 3000 /* the time of an exchange that is to fail */

struct stage {
    struct fake_node *one, *other;
    hf_client *client;
    hf_lock *lock;
    hf_sem *sem; /* where scripts are counted: nobody asks later if it is still held */
    int nobody;  /* a socket that does not listen */
};

/* The slot of the name is 1, which is what they say. The first serves everything. */
static void begin_with(struct stage *s, int64_t cmd_timeout_ms) {
    char url[64];
    *s = (struct stage){.one = fake_node_start(), .other = fake_node_start(), .nobody = -1};
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", fake_node_port(s->one));
    hf_options options = scene_options();
    options.cmd_timeout_ms = cmd_timeout_ms;
    assert_int_equal(hf_open(url, &options, &s->client), HF_OK);
    s->lock = scene_lock(s->client, HF_PLAIN, "Qi");
    assert_int_equal(hf_sem_new(s->client, "Qi", &s->sem), HF_OK);
}

static void begin(struct stage *s) {
    begin_with(s, scene_options().cmd_timeout_ms);
}

static void end(struct stage *s) {
    fake_node_says(s->one, 0, "");
    fake_node_says(s->other, 0, "");
    hf_lock_free(s->lock);
    hf_sem_free(s->sem);
    hf_close(s->client);
    fake_node_free(s->one);
    fake_node_free(s->other);
    if (s->nobody >= 0)
        close(s->nobody);
}

/* A port that is taken, and where nobody is. */
static int dead_port(struct stage *s) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    s->nobody = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s->nobody >= 0);
    assert_int_equal(bind(s->nobody, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(s->nobody, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

/* The client has the map in which the first serves everything; from now on both say that it is the other. */
static void hand_over(struct stage *s) {
    char map[128];
    assert_int_equal(hf_ping(s->client), HF_OK);
    snprintf(map, sizeof map, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
             fake_node_port(s->other));
    fake_node_maps(s->one, map);
}

/* ---- Sent elsewhere ---- */

CASE_IN(sent_by_moved, struct stage, s, begin, end) {
    hand_over(s);
    fake_node_sends(s->one, FAKE_NODE_ALWAYS, "MOVED", fake_node_port(s->other));
    assert_int_equal(hf_sem_release(s->sem, 1), HF_OK);
    assert_int_equal(fake_node_scripts(s->one), 1);
    assert_int_equal(fake_node_scripts(s->other), 1);
    assert_int_equal(fake_node_askings(s->other), 0);
    assert_int_equal(scene_stats(s->client).redirects, 1);
}

/* Without a host it means the one that says so. */
CASE_IN(sent_to_the_same_host, struct stage, s, begin, end) {
    char text[32];
    hand_over(s);
    snprintf(text, sizeof text, "-MOVED 1 :%d\r\n", fake_node_port(s->other));
    fake_node_says(s->one, FAKE_NODE_ALWAYS, text);
    assert_int_equal(hf_sem_release(s->sem, 1), HF_OK);
    assert_int_equal(fake_node_scripts(s->one), 1);
    assert_int_equal(fake_node_scripts(s->other), 1);
}

/* The other is not known at first, nor is there a connection: it is asked for again until there is. */
CASE_IN(sent_by_ask, struct stage, s, begin, end) {
    fake_node_sends(s->one, FAKE_NODE_ALWAYS, "ASK", fake_node_port(s->other));
    assert_int_equal(hf_sem_release(s->sem, 1), HF_OK);
    assert_int_equal(fake_node_scripts(s->other), 1);
    assert_int_equal(fake_node_askings(s->other), 1);
    assert_true(fake_node_scripts(s->one) < 20);
    size_t before = fake_node_scripts(s->one);
    assert_int_equal(hf_sem_release(s->sem, 1), HF_OK);
    assert_int_equal(fake_node_scripts(s->one), before + 1);
    assert_int_equal(fake_node_scripts(s->other), 2);
}

/* The script goes there as a whole, behind ASKING again. */
CASE_IN(a_server_without_the_script, struct stage, s, begin, end) {
    fake_node_sends(s->one, FAKE_NODE_ALWAYS, "ASK", fake_node_port(s->other));
    fake_node_says(s->other, 1, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    assert_int_equal(hf_sem_release(s->sem, 1), HF_OK);
    assert_int_equal(fake_node_scripts(s->other), 2);
    assert_int_equal(fake_node_askings(s->other), 2);
}

/* There are pauses, so that nobody is flooded. */
static void sent_in_a_circle(const char *word) {
    OWN(end) struct stage s;
    begin_with(&s, BRIEF_MS);
    fake_node_sends(s.one, FAKE_NODE_ALWAYS, word, fake_node_port(s.other));
    fake_node_sends(s.other, FAKE_NODE_ALWAYS, word, fake_node_port(s.one));
    assert_int_equal(hf_lock_acquire_for(s.lock, BRIEF_MS), HF_EUNAVAILABLE);
    assert_true(fake_node_scripts(s.one) + fake_node_scripts(s.other) < 150);
}

CASE(sent_in_a_circle_by_moved) {
    sent_in_a_circle("MOVED");
}

CASE(sent_in_a_circle_by_ask) {
    sent_in_a_circle("ASK");
}

CASE_IN(sent_to_itself, struct stage, s, begin_with, end, BRIEF_MS) {
    fake_node_sends(s->one, FAKE_NODE_ALWAYS, "MOVED", fake_node_port(s->one));
    assert_int_equal(hf_lock_acquire_for(s->lock, BRIEF_MS), HF_EUNAVAILABLE);
    assert_true(fake_node_scripts(s->one) < 150);
}

/* And back, when it has thought better of it. */
static void sent_to_nobody(const char *word) {
    OWN(end) struct stage s;
    begin_with(&s, BRIEF_MS);
    fake_node_sends(s.one, FAKE_NODE_ALWAYS, word, dead_port(&s));
    int err = hf_lock_acquire_for(s.lock, BRIEF_MS);
    assert_true(err == HF_EUNAVAILABLE || err == HF_EUNREACH);
    fake_node_says(s.one, 0, "");
    assert_int_equal(hf_lock_acquire_for(s.lock, HANG_MS), HF_OK);
}

CASE(redirected_by_MOVED_to_a_dead_node) {
    sent_to_nobody("MOVED");
}

CASE(redirected_by_ASK_to_a_dead_node) {
    sent_to_nobody("ASK");
}

CASE_IN(sent_nowhere, struct stage, s, begin, end) {
    static const char *const nonsense[] = {"-MOVED\r\n",
                                           "-MOVED 1\r\n",
                                           "-MOVED x y\r\n",
                                           "-MOVED 99999 127.0.0.1:1\r\n",
                                           "-ASK 1 127.0.0.1:99999\r\n",
                                           "-ASK 1 127.0.0.1\r\n"};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        fake_node_says(s->one, 1, nonsense[i]);
        assert_int_equal(hf_lock_acquire_for(s->lock, HANG_MS), HF_EUNAVAILABLE);
    }
}

/* ---- Refused for a while ---- */

CASE(refused_for_a_while) {
    static const char *const words[] = {
        "-CLUSTERDOWN The cluster is down\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct stage s;
        begin(&s);
        fake_node_says(s.one, 3, words[i]);
        assert_int_equal(hf_sem_release(s.sem, 1), HF_OK);
        assert_int_equal(fake_node_scripts(s.one), 4);
        end(&s);
    }
}

/* A single attempt waits for a moment, too. */
CASE_IN(refused_for_a_single_attempt, struct stage, s, begin, end) {
    fake_node_says(s->one, 2, "-CLUSTERDOWN The cluster is down\r\n");
    assert_int_equal(hf_lock_try(s->lock), HF_OK);
}

/* ---- Maps ---- */

static void no_map(const char *bytes, int expected) {
    OWN(end) struct stage s;
    begin(&s);
    fake_node_maps(s.one, bytes);
    assert_int_equal(hf_lock_try(s.lock), expected);
    assert_int_equal(fake_node_scripts(s.one), 0);
}

CASE(maps_that_are_none) {
    no_map("*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n", HF_EUNREACH);
    no_map("+OK\r\n", HF_EUNREACH);
    no_map("*0\r\n", HF_EUNREACH);
    no_map("-ERR This instance has cluster support disabled\r\n", HF_ENOTSUP);
    no_map("-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n", HF_EPERM);
}

/* It has a hole where the name is, until it has not. */
CASE_IN(a_map_with_a_hole, struct stage, s, begin_with, end, BRIEF_MS) {
    struct scene_waiter waiter;
    char map[128];
    for (int first = 2; first >= 0; first -= 2) {
        snprintf(map, sizeof map, "*1\r\n*3\r\n:%d\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n", first,
                 fake_node_port(s->one));
        fake_node_maps(s->one, map);
        if (first > 0) {
            assert_int_equal(hf_lock_acquire_for(s->lock, BRIEF_MS), HF_EUNAVAILABLE);
            assert_non_null(
                strstr(hf_last_error()->text, "no server of the cluster serves slot 1"));
            scene_wait_for(&waiter, s->lock);
        }
    }
    assert_int_equal(scene_join(&waiter), HF_OK);
}

/* ---- Addresses ---- */

#define ELSEWHERE "127.0.0.9" /* loopback, too, but nobody is there */

static void announce_elsewhere(struct stage *s) {
    own_text *map =
        text_of("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n" ELSEWHERE "\r\n:%d\r\n", dead_port(s));
    fake_node_maps(s->one, map);
}

static int port_of_nobody(const struct stage *s) {
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    assert_int_equal(getsockname(s->nobody, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

CASE_IN(an_address_that_is_good_elsewhere, struct stage, s, begin_with, end, BRIEF_MS) {
    announce_elsewhere(s);
    assert_int_equal(hf_lock_try(s->lock), HF_EUNREACH);
    assert_non_null(strstr(hf_last_error()->text, "the option map"));
}

CASE_IN(an_address_that_is_mapped, struct stage, s, begin, end) {
    char url[128];
    announce_elsewhere(s);
    snprintf(url, sizeof url,
             "redis-cluster://127.0.0.1:%d?address_map=" ELSEWHERE ":%d=127.0.0.1:%d",
             fake_node_port(s->one), port_of_nobody(s), fake_node_port(s->other));
    hf_options options = scene_options();
    own_client *client = made(hf_open, url, &options);
    own_lock *lock = scene_lock(client, HF_PLAIN, "Qi");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(fake_node_scripts(s->one), 0);
    assert_true(fake_node_scripts(s->other) >= 1);
}

RUN_CASES(NULL, NULL)
