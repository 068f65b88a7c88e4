/*
 * TLS on a bad network: connections that end in the middle of a handshake or of a record, that
 * bring a byte at a time, that bring something else than was sent; and many threads on one
 * connection.
 *
 * The server is a real one; between it and us there is a wire (support/wire.h). Whatever happens
 * after the handshake is a lost connection like any other: nothing is reported but what is true,
 * and calls that can wait go on.
 */
#include "net/scene.h"
#include "support/case.h"
#include "support/crowd.h"
#include "support/memory.h"
#include "support/tls.h"
#include "support/wire.h"

static struct authority *ca;
static struct server *server;

static int begin(void **state) {
    (void)state;
    ca = authority_new("holdfast test CA");
    struct certificate_options names = {.names = "DNS:localhost,IP:127.0.0.1"};
    server = tls_server_start(NULL, authority_issue(ca, &names), NULL);
    return 0;
}

static int end(void **state) {
    (void)state;
    server_free(server);
    authority_free(ca);
    return 0;
}

static hf_options patient_options(void) {
    hf_options options = scene_options();
    options.tls_ca_file = authority_file(ca);
    options.cmd_timeout_ms = options.connect_timeout_ms = HANG_MS;
    return options;
}

static hf_client *open_at(int port, const hf_options *options) {
    own_text *url = text_of("rediss://127.0.0.1:%d", port);
    return scene_open(url, options);
}

static void assert_lock_works(hf_client *client, const char *name) {
    own_lock *lock = scene_lock(client, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(key_exists(server, name));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_false(key_exists(server, name));
}

/* How many bytes of the server it takes until a client has pinged. */
static size_t bytes_of_a_ping(void) {
    struct wire *wire = wire_start(server_port(server));
    hf_options options = patient_options();
    hf_client *client = open_at(wire_port(wire), &options);
    assert_int_equal(hf_ping(client), HF_OK);
    size_t bytes = wire_delivered(wire);
    hf_close(client);
    wire_free(wire);
    return bytes;
}

/* ---- No memory ---- */

/* Any one allocation fails, also that for a greeting of TLS or of ours. The exchange limit is twice
 * the hang limit, so that an attempt that would only end with it is caught. True: it came so far. */
static bool ping_without_memory(long fail_at) {
    struct memory memory = {.fail_at = fail_at};
    hf_options options = patient_options();
    options.cmd_timeout_ms = options.connect_timeout_ms = 2 * HANG_MS;
    options.allocator = memory_allocator(&memory);
    own_text *url = text_of("rediss://127.0.0.1:%d", server_port(server));
    hf_client *client = NULL;
    int err = hf_open(url, &options, &client);
    if (err == HF_OK) {
        int64_t start_ms = now_ms();
        err = hf_ping(client);
        if (now_ms() - start_ms >= HANG_MS)
            fail_msg("without allocation %ld: %s", fail_at, hf_last_error()->text);
        if (err != HF_OK) /* it was this one call that failed */
            assert_int_equal(hf_ping(client), HF_OK);
        assert_int_equal(hf_close(client), HF_OK);
    }
    if (err != HF_OK && err != HF_ENOMEM && err != HF_EUNREACH)
        fail_msg("without allocation %ld: %s", fail_at, hf_error_name(err));
    assert_int_equal(atomic_load(&memory.live), 0);
    return atomic_load(&memory.calls) >= fail_at;
}

CASE(any_allocation_fails) {
    long fail_at = 1;
    while (ping_without_memory(fail_at))
        fail_at++;
    assert_in_range(fail_at, 10, 200); /* else the allocator was never asked */
}

/* ---- Ends ---- */

static bool answers(void *arg) {
    return hf_ping(arg) == HF_OK;
}

/* The server's stream ends after every so many bytes: in the handshake of TLS, in ours, in a
 * record. Each end is HF_EUNREACH for one who does not wait, never a refusal; and the next
 * connection works. */
CASE(cut_anywhere) {
    size_t all = bytes_of_a_ping();
    assert_true(all > 500);
    struct wire *wire = wire_start(server_port(server));
    hf_options options = patient_options();
    options.connect_timeout_ms = options.cmd_timeout_ms = 200;
    size_t failures = 0;
    for (size_t at = 1; at < all + 40; at += at < 20 ? 1 : 37) {
        wire_cut_after(wire, at);
        own_client *client = open_at(wire_port(wire), &options);
        int err = hf_ping(client);
        if (err != HF_OK && err != HF_EUNREACH)
            fail_msg("cut after %zu bytes: %s", at, hf_last_error()->text);
        failures += err != HF_OK;
        wire_cut_after(wire, 0);
        if (err != HF_OK)
            assert_true(wait_until(answers, client, HANG_MS));
    }
    assert_true(failures > 20);
    wire_free(wire);
}

static bool was_tried_thrice(void *arg) {
    return wire_connections(arg) >= 3;
}

/* One who waits tries again until it works. */
CASE(dropped_in_the_handshake) {
    struct wire *wire = wire_start(server_port(server));
    hf_options options = patient_options();
    hf_client *client = open_at(wire_port(wire), &options);
    hf_lock *lock = scene_lock(client, "dropped");
    struct scene_call call;
    wire_cut_after(wire, 300);
    scene_acquire(&call, lock, HF_FOREVER, NULL);
    assert_true(wait_until(was_tried_thrice, wire, HANG_MS));
    wire_cut_after(wire, 0);
    assert_int_equal(scene_join(&call), HF_OK);
    assert_int_equal(hf_lock_release_as(lock, call.options.owner), HF_OK);
    hf_lock_free(lock);
    hf_close(client);
    wire_free(wire);
}

#define SILENT_MS 1500 /* the handshake has begun before that, on a machine that is busy, too */

/* A handshake that gets no answer ends with the time of an exchange. */
CASE(silence_in_the_handshake) {
    struct wire *wire = wire_start(server_port(server));
    hf_options options = patient_options();
    options.cmd_timeout_ms = options.connect_timeout_ms = SILENT_MS;
    wire_stall(wire, true);
    int64_t start_ms = now_ms();
    hf_client *client = open_at(wire_port(wire), &options);
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    assert_non_null(strstr(hf_last_error()->text, "no answer to the TLS handshake"));
    assert_true(now_ms() - start_ms >= SILENT_MS);
    wire_stall(wire, false);
    hf_close(client);
    wire_free(wire);
}

/* What does not decrypt is a lost connection: made again, and nobody notices but the counter. */
CASE(garbage_in_a_record) {
    struct wire *wire = wire_start(server_port(server));
    hf_options options = patient_options();
    hf_client *client = open_at(wire_port(wire), &options);
    for (int i = 0; i < 5; i++) {
        assert_lock_works(client, "garbage");
        wire_flip_next(wire);
    }
    assert_lock_works(client, "garbage");
    assert_true(scene_stats(client).reconnects >= 4);
    hf_close(client);
    wire_free(wire);
}

/* CLIENT KILL of an idle connection: TLS says goodbye before the end comes, which is no answer to
 * the next command. */
CASE(killed_while_idle) {
    hf_options options = patient_options();
    long long ids[SCENE_CONNS];
    own_client *client = open_at(server_port(server), &options);
    for (int idle_ms = 0; idle_ms <= 120; idle_ms += 60) {
        assert_int_equal(hf_ping(client), HF_OK);
        assert_int_equal(scene_ping_async(client), HF_OK);
        size_t len = scene_conns(server, client, ids);
        assert_int_equal(len, 2);
        for (size_t i = 0; i < len; i++)
            scene_kill(server, ids[i]);
        scene_stay_idle(idle_ms); /* on either side of the time after which it is looked */
        assert_lock_works(client, "idle");
        assert_int_equal(scene_ping_async(client), HF_OK);
    }
}

/* ---- Pieces ---- */

CASE(byte_at_a_time) {
    struct wire *wire = wire_start(server_port(server));
    hf_options options = patient_options();
    /* A handshake is thousands of bytes, and each of them waits for its turn on a busy processor. */
    options.cmd_timeout_ms = options.connect_timeout_ms = 4 * HANG_MS;
    wire_trickle(wire, 1);
    hf_client *client = open_at(wire_port(wire), &options);
    for (int i = 0; i < 5; i++)
        assert_lock_works(client, "trickle");
    assert_int_equal(scene_ping_async(client), HF_OK);
    assert_int_equal(scene_stats(client).reconnects, 0);
    hf_close(client);
    wire_free(wire);
}

/* More than a record can hold, in both directions. */
CASE(long_names) {
    enum { LENGTH = 60000 };
    hf_options options = patient_options();
    own_client *client = open_at(server_port(server), &options);
    own_text *name = malloc(LENGTH + 1);
    assert_non_null(name);
    memset(name, 'n', LENGTH);
    name[LENGTH] = '\0';
    assert_lock_works(client, name);
}

/* ---- The other connections ---- */

/* Messages come over TLS too: a waiter is notified, and does not have to look by itself (that would be
 * after 10 s). */
CASE(waiters_are_reported) {
    hf_options options = patient_options();
    own_client *holder = open_at(server_port(server), &options);
    own_client *waiter = open_at(server_port(server), &options);
    hf_lock *held = scene_lock(holder, "notified"), *wanted = scene_lock(waiter, "notified");
    struct scene_call call;
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    scene_acquire(&call, wanted, HF_FOREVER, NULL);
    scene_wait_subscribed(server, "notified");
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(held), HF_OK);
    assert_int_equal(scene_join(&call), HF_OK);
    assert_true(now_ms() - start_ms < 5000);
    assert_int_equal(hf_lock_release_as(wanted, call.options.owner), HF_OK);
    hf_lock_free(held);
    hf_lock_free(wanted);
}

static void count_success(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    *(int *)user += result->code == HF_OK;
}

/* The connection that hf_dispatch() drives; also when it was idle, and when it was killed then. */
CASE(manual_dispatch) {
    enum { ROUNDS = 4, IN_FLIGHT = 50 };
    hf_options options = patient_options();
    options.flags = HF_MANUAL_DISPATCH;
    own_client *client = open_at(server_port(server), &options);
    int successes = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < IN_FLIGHT; i++)
            assert_int_equal(hf_ping_start(client, count_success, &successes, NULL), HF_OK);
        int64_t end_ms = now_ms() + HANG_MS;
        while (successes < round * IN_FLIGHT && now_ms() < end_ms)
            assert_true(hf_dispatch(client, 1000) >= 0);
        assert_int_equal(successes, round * IN_FLIGHT);
        if (round == 2)
            cmd_ok(server, "CLIENT KILL TYPE normal SKIPME yes");
        scene_stay_idle(80); /* longer than an idle connection is trusted without a look */
    }
}

/* ---- Renewals ---- */

static bool has_renewed_twice(void *arg) {
    return scene_stats(arg).renewals >= 2;
}

static bool has_failed_to_renew(void *arg) {
    return scene_stats(arg).renew_failures >= 1;
}

/* The connections are gone when a renewal is due, and for a while none can be made: the hold
 * survives it. */
CASE(renewal_due_during_reconnect) {
    struct wire *wire = wire_start(server_port(server));
    hf_options options = patient_options();
    options.watchdog_ms = 12000;
    hf_client *client = open_at(wire_port(wire), &options);
    hf_lock *lock = scene_lock(client, "renewed");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    wire_cut_after(wire, 700); /* into the middle of the certificate */
    wire_cut_all(wire);
    assert_true(wait_until(has_failed_to_renew, client, HANG_MS));
    wire_cut_after(wire, 0);
    assert_true(wait_until(has_renewed_twice, client, HANG_MS));
    assert_int_equal(scene_stats(client).losses, 0);
    assert_true(pttl(server, "renewed") > 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    hf_close(client);
    wire_free(wire);
}

/* ---- Many threads ---- */

#define SOME_WORK 20000 /* bytes of answers */

struct worker {
    struct crowd *crowd;
    hf_lock *own, *shared;
    int rounds, result;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    for (int i = 0; i < worker->rounds && worker->result == HF_OK; i++) {
        bool share = i % 8 == 0;
        hf_lock *lock = share ? worker->shared : worker->own;
        worker->result = hf_lock_acquire(lock);
        if (worker->result != HF_OK)
            break;
        if (share)
            crowd_visit(worker->crowd);
        worker->result = hf_lock_release(lock);
    }
    return NULL;
}

static void run_threads(struct wire *wire, int rounds) {
    enum { WORKERS = 64 };
    static struct worker workers[WORKERS];
    struct crowd crowd = {0};
    hf_options options = patient_options();
    hf_client *client = open_at(wire != NULL ? wire_port(wire) : server_port(server), &options);
    hf_lock *shared = scene_lock(client, "shared");
    for (int i = 0; i < WORKERS; i++) {
        own_text *name = text_of("own-%d", i);
        workers[i] = (struct worker){
            .crowd = &crowd, .own = scene_lock(client, name), .shared = shared, .rounds = rounds};
        crowd_add(&crowd, work, &workers[i]);
    }
    crowd_join(&crowd);
    crowd_assert_exclusive(&crowd);
    for (int i = 0; i < WORKERS; i++) {
        if (workers[i].result != HF_OK)
            fail_msg("thread %d: %s", i, hf_error_name(workers[i].result));

        hf_lock_free(workers[i].own);
    }
    assert_int_equal(cmd_int(server, "DBSIZE"), 0);
    hf_lock_free(shared);
    hf_close(client);
}

CASE(many_threads) {
    run_threads(NULL, 40);
}

CASE(many_threads_on_a_bad_wire) {
    struct wire *wire = wire_start(server_port(server));
    /* Each connection ends in the middle of work. Not before: a release that finds no connection,
     * and cannot make one, is refused, as it should be. */
    wire_cut_after(wire, bytes_of_a_ping() + SOME_WORK);
    run_threads(wire, 24);
    assert_true(wire_connections(wire) > 4); /* more than a client has at a time */
    wire_free(wire);
}

/* ---- Forks ---- */

static int use_in_child(void *arg) {
    hf_client *client = arg;
    if (hf_ping(client) != HF_EFORKED)
        return 1;
    return hf_close(client) == HF_OK ? 0 : 2;
}

/* A child closes its descriptors without a word on our connections. */
CASE(parent_goes_on_after_fork) {
    hf_options options = patient_options();
    own_client *client = open_at(server_port(server), &options);
    own_lock *lock = scene_lock(client, "fork");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(scene_ping_async(client), HF_OK);
    assert_true(expect_exit(run_child(use_in_child, client), 0, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_ping_async(client), HF_OK);
    assert_int_equal(scene_stats(client).reconnects, 0);
}

RUN_CASES(begin, end)
