/*
 * TLS talks to itself: new keys, tickets, requests for another handshake, goodbyes. None of it is
 * an answer to a command, and none may make us wait; also not on a connection that nobody reads at
 * that moment.
 *
 * Redis does none of this, but what stands in front of it may (stunnel, a load balancer). So the
 * TLS end is our own (support/front.h), with a real server behind it.
 */
#include "net/scene.h"
#include "support/case.h"
#include "support/front.h"

#define IDLE_MS 80 /* longer than an idle connection is trusted without a look */

static struct authority *ca;
static struct certificate *certificate;

static int begin(void **state) {
    ca = authority_new("holdfast test CA");
    certificate = authority_issue(ca, &(struct certificate_options){.names = "IP:127.0.0.1"});
    return scene_start_server(state);
}

static int end(void **state) {
    authority_free(ca);
    return scene_stop_server(state);
}

struct talk {
    struct front *front;
    hf_client *client;
    hf_lock *lock;
};

static void start(struct talk *talk, bool old) {
    char url[64];
    hf_options options = scene_options();
    options.tls_ca_file = authority_file(ca);
    options.cmd_timeout_ms = options.connect_timeout_ms = HANG_MS;
    cmd_ok(scene_server(), "FLUSHALL");
    talk->front = front_start(certificate, server_socket(scene_server()), old);
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d", front_port(talk->front));
    talk->client = scene_open(url, &options);
    talk->lock = scene_lock(talk->client, "talk");
}

static void stop(struct talk *talk) {
    hf_lock_free(talk->lock);
    hf_close(talk->client);
    front_free(talk->front);
}

static void assert_works(struct talk *talk) {
    assert_int_equal(hf_lock_acquire(talk->lock), HF_OK);
    assert_true(key_exists(scene_server(), "talk"));
    assert_int_equal(hf_lock_release(talk->lock), HF_OK);
    assert_int_equal(scene_ping_async(talk->client), HF_OK);
}

CASE_IN(new_keys, struct talk, talk, start, stop, false) {
    for (int i = 0; i < 30; i++) {
        assert_works(talk);
        front_update_keys(talk->front);
    }
    assert_works(talk);
    assert_int_equal(scene_stats(talk->client).reconnects, 0);
}

CASE_IN(new_keys_while_idle, struct talk, talk, start, stop, false) {
    for (int i = 0; i < 3; i++) {
        assert_works(talk);
        front_update_keys(talk->front);
        front_send_tickets(talk->front);
        scene_stay_idle(IDLE_MS);
    }
    assert_works(talk);
    assert_int_equal(scene_stats(talk->client).reconnects, 0);
}

struct worker {
    pthread_t thread;
    hf_lock *lock;
    atomic_bool *stop;
    int result;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    while (!atomic_load(worker->stop) && worker->result == HF_OK) {
        worker->result = hf_lock_acquire(worker->lock);
        if (worker->result == HF_OK)
            worker->result = hf_lock_release(worker->lock);
    }
    return NULL;
}

/* Readers and writers at the same time, while every key changes. */
CASE(new_keys_under_load) {
    OWN(stop) struct talk talk;
    enum { WORKERS = 8, KEYS = 200 };
    struct worker workers[WORKERS];
    atomic_bool stopping = false;
    start(&talk, false);
    for (int i = 0; i < WORKERS; i++) {
        own_text *name = text_of("load-%d", i);
        workers[i] = (struct worker){.lock = scene_lock(talk.client, name), .stop = &stopping};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int i = 0; i < KEYS; i++)
        front_update_keys(talk.front);
    atomic_store(&stopping, true);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].result, HF_OK);
        hf_lock_free(workers[i].lock);
    }
    /* One that has rested, with something to read and a driver that has not left yet, is given up:
     * on a busy machine that happens now and then, and not with every key. */
    assert_true(scene_stats(talk.client).reconnects < KEYS / 10);
}

/* Refused: the other side may end the connection for that, and we make another. */
CASE_IN(another_handshake, struct talk, talk, start, stop, true) {
    for (int i = 0; i < 3; i++) {
        assert_works(talk);
        front_renegotiate(talk->front);
        assert_works(talk);
        front_renegotiate(talk->front);
        scene_stay_idle(IDLE_MS);
    }
    assert_works(talk);
}

/* What came while nothing was asked is not the answer to the next command. */
CASE_IN(unasked_data_while_idle, struct talk, talk, start, stop, false) {
    assert_works(talk);
    size_t before = front_connections(talk->front);
    front_say(talk->front, "*3\r\n:1\r\n:1\r\n:1\r\n");
    scene_stay_idle(IDLE_MS);
    assert_works(talk);
    assert_int_equal(front_connections(talk->front), before + 2); /* both that were there */
}

/* A goodbye without an end: the connection is not used any more, not even for one command. */
CASE_IN(goodbye_while_idle, struct talk, talk, start, stop, false) {
    assert_works(talk);
    size_t before = front_connections(talk->front);
    front_say_goodbye(talk->front);
    scene_stay_idle(IDLE_MS);
    assert_works(talk);
    assert_int_equal(front_connections(talk->front), before + 2);
    assert_int_equal(scene_stats(talk->client).in_doubt, 0);
}

/* Talk does not hide the end behind it: what must not be sent twice is not sent into a dead
 * connection. */
CASE_IN(end_behind_talk, struct talk, talk, start, stop, false) {
    own_sem *semaphore = NULL;
    assert_int_equal(hf_sem_new_bytes(talk->client, "cut", 3, &semaphore), HF_OK);
    for (int i = 0; i < 3; i++) {
        assert_works(talk);
        front_cut(talk->front);
        assert_int_equal(hf_sem_release(semaphore, 1), HF_OK);
    }
    assert_int_equal(scene_stats(talk->client).in_doubt, 0);
}

/* Every request for new keys is answered. A server that asks and asks and reads no answer does not
 * get our memory. */
CASE_IN(endless_new_keys, struct talk, talk, start, stop, false) {
    assert_int_equal(scene_ping_async(talk->client), HF_OK); /* the keeper's connection only */
    size_t before = front_connections(talk->front);
    front_flood(talk->front);
    assert_int_equal(scene_ping_async(talk->client), HF_OK);
    assert_int_equal(front_connections(talk->front), before + 1);
}

RUN_CASES(begin, end)
