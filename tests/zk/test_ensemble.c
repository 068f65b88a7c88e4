/*
 * Three servers, some of which die or are cut off: a hold stays held while a quorum knows of it,
 * and a client on the wrong side is notified before the next holder begins.
 *
 * The last is the point of this engine. A follower that is cut off from its leader still answers,
 * so a holder there has to notice in time, by itself, that no commit follows. Rounds of that at
 * random moments: a few, and in `make soak` forty.
 */
#include "support/case.h"
#include "support/random.h"
#include "zk/scene.h"

#include <signal.h>

static struct zk_ensemble *ensemble;

static int start(void **state) {
    (void)state;
    ensemble = zk_ensemble_start(&scene_options);
    return 0;
}

static int stop(void **state) {
    (void)state;
    zk_client_close(scene.eyes);
    zk_ensemble_free(ensemble);
    return 0;
}

/* Each test finds all three, and looks at the tree through the leader. */
static int make_whole(void **state) {
    (void)state;
    int leader = zk_wait_whole(ensemble);
    zk_client_close(scene.eyes);
    scene.eyes = zk_client_open(zk_port(zk_member(ensemble, leader)));
    return 0;
}

static void bring_back(int member) {
    zk_launch(zk_member(ensemble, member));
    zk_wait_whole(ensemble);
}

/* ---- A server that is behind ----------------------------------------------------------------- */

struct count_down {
    hf_latch *latch;
    atomic_int err;
};

static void *count_down(void *arg) {
    struct count_down *call = arg;
    atomic_store(&call->err, hf_latch_count_down(call->latch));
    return NULL;
}

static bool is_counted(void *arg) {
    struct count_down *call = arg;
    return atomic_load(&call->err) != 1;
}

/* It has not heard that the latch is closed. */
CASE_AROUND(C382_a_count_down_at_a_server_that_is_behind, make_whole, NULL) {
    int leader = zk_wait_whole(ensemble), behind = leader == 0 ? 1 : 0;
    own_client *client = scene_client(zk_url(zk_member(ensemble, leader)), SURVIVES_MS);
    own_client *late = scene_client(zk_url(zk_member(ensemble, behind)), SURVIVES_MS);
    hf_latch *latch;
    struct count_down call = {.err = 1};
    bool set = false;
    int64_t count = 0;
    assert_hf(HF_OK, hf_latch_new(client, "behind", &latch));
    assert_hf(HF_OK, hf_latch_new(late, "behind", &call.latch));
    assert_hf(HF_OK, hf_latch_count_down(call.latch)); /* it is connected */
    zk_cut(ensemble, behind);
    assert_hf(HF_OK, hf_latch_try_set(latch, 2, &set));
    assert_true(set);
    pthread_t thread = started(count_down, &call);
    assert_false(wait_until(is_counted, &call, 300));
    zk_join(ensemble, behind);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_hf(HF_OK, atomic_load(&call.err));
    assert_hf(HF_OK, hf_latch_count(latch, &count));
    assert_int_equal(count, 1);
    hf_latch_free(latch);
    hf_latch_free(call.latch);
}

/* ---- Servers that die ------------------------------------------------------------------------ */

struct pair {
    hf_client *client, *rival;
    hf_lock *lock, *wanted;
    hf_op *op;
    int64_t token;
};

/* One holds, another waits. Each has all three servers to choose from, or the one that is named. */
static void pair_begin(struct pair *pair, const char *name, const char *url) {
    pair->client = scene_client(url != NULL ? url : zk_ensemble_url(ensemble), SURVIVES_MS);
    pair->rival = scene_client(zk_ensemble_url(ensemble), SURVIVES_MS);
    pair->lock = scene_lock(pair->client, HF_PLAIN | HF_FENCED, name);
    pair->wanted = scene_lock(pair->rival, HF_PLAIN | HF_FENCED, name);
    assert_hf(HF_OK, hf_lock_acquire(pair->lock));
    assert_hf(HF_OK, hf_lock_token(pair->lock, &pair->token));
    pair->op = scene_acquire_start(pair->wanted);
    own_text *path = text_of("/%s", name);
    assert_true(zk_wait_children(scene.eyes, path, 2, HANG_MS));
}

/* It was held all the time, and now it is the other's. */
static void pair_end(struct pair *pair) {
    hf_result result = HF_RESULT_INIT;
    assert_hf(HF_EPENDING, hf_op_wait(pair->op, 0, NULL));
    assert_true(hf_lock_remaining_ms(pair->lock) > 0);
    assert_hf(HF_OK, hf_lock_release(pair->lock));
    assert_hf(HF_OK, hf_op_wait(pair->op, HANG_MS, &result));
    assert_true(result.token > pair->token);
    assert_hf(HF_OK, hf_lock_release_as(pair->wanted, result.owner));
    assert_int_equal(scene_stats(pair->client).losses, 0);
    hf_op_free(pair->op);
    hf_lock_free(pair->lock);
    hf_lock_free(pair->wanted);
    hf_close(pair->client);
    hf_close(pair->rival);
}

CASE_AROUND(the_leader_dies, make_whole, NULL) {
    struct pair pair;
    pair_begin(&pair, "leaderless", NULL);
    int leader = zk_wait_leader(ensemble);
    zk_kill(zk_member(ensemble, leader));
    zk_wait_leader(ensemble);
    pair_end(&pair);
    bring_back(leader);
}

/* The one that the holder talks to; it has others to go to. */
CASE_AROUND(the_holders_server_dies, make_whole, NULL) {
    struct pair pair;
    char url[128];
    int follower = (zk_wait_leader(ensemble) + 1) % ZK_MEMBERS;
    struct proxy *first = proxy_start_tcp(zk_port(zk_member(ensemble, follower)), PROXY_ZOOKEEPER);
    struct proxy *second =
        proxy_start_tcp(zk_port(zk_member(ensemble, zk_wait_leader(ensemble))), PROXY_ZOOKEEPER);
    snprintf(url, sizeof url, "zk://127.0.0.1:%d,127.0.0.1:%d", proxy_port(first),
             proxy_port(second));
    proxy_refuse(second, true);
    pair_begin(&pair, "serverless", url);
    proxy_refuse(second, false);
    zk_kill(zk_member(ensemble, follower));
    assert_true(proxy_wait_seen(second, "connect", 1, HANG_MS));
    pair_end(&pair);
    proxy_free(first);
    proxy_free(second);
    bring_back(follower);
}

/* Nobody can commit anything for a while; a new leader then gives every session its time anew. */
CASE_AROUND(the_quorum_is_lost_and_comes_back, make_whole, NULL) {
    struct pair pair;
    pair_begin(&pair, "quorum", NULL);
    int leader = zk_wait_leader(ensemble), follower = (leader + 1) % ZK_MEMBERS;
    zk_kill(zk_member(ensemble, leader));
    zk_kill(zk_member(ensemble, follower));
    zk_launch(zk_member(ensemble, follower));
    zk_wait_leader(ensemble);
    pair_end(&pair);
    bring_back(leader);
}

/* ---- A lost reply, and then a follower that lags ----------------------------------------------- */

/* The reply of the create is lost, and the only other server is a follower that was stopped before it ran: what that
 * one shows first is the past. */
static void lose_and_lag(struct proxy *leads, struct proxy *lags, struct zk *follower,
                         const char *url) {
    proxy_refuse(lags, true); /* so it is the leader that we begin with */
    hf_client *client = scene_client(url, SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "lags");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    zk_freeze(follower);
    size_t fired = proxy_fired(leads);
    proxy_drop_replies_after(leads, "create2 /lags/");
    hf_op *op = scene_acquire_start(lock);
    bool dropped = proxy_wait_fired(leads, fired + 1, HANG_MS);
    proxy_refuse(leads, true);
    proxy_refuse(lags, false);
    zk_unfreeze(follower);
    assert_true(dropped);
    hf_owner owner = scene_acquired(op);
    assert_int_equal(zk_count(scene.eyes, "/lags"), 1);
    assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    assert_nodes("lags", 0); /* a follower has said so; the leader may be the last to see it */
    hf_lock_free(lock);
    hf_close(client);
    proxy_refuse(leads, false);
}

CASE_AROUND(a_lost_reply_and_a_follower_that_lags, make_whole, NULL) {
    int leader = zk_wait_leader(ensemble);
    struct zk *follower = zk_member(ensemble, (leader + 1) % ZK_MEMBERS);
    own_proxy *leads = proxy_start_tcp(zk_port(zk_member(ensemble, leader)), PROXY_ZOOKEEPER);
    own_proxy *lags = proxy_start_tcp(zk_port(follower), PROXY_ZOOKEEPER);
    own_text *url = text_of("zk://127.0.0.1:%d,127.0.0.1:%d", proxy_port(leads), proxy_port(lags));
    for (int round = 0; round < (getenv("HF_SOAK") != NULL ? 40 : 3); round++)
        lose_and_lag(leads, lags, follower, url);
}

/* ---- Waiting at a follower that lags ----------------------------------------------------------- */

/* One holds and one waits last, both at the leader; between them one waits at a follower, which then is stopped. */
struct queue {
    struct zk *follower;
    hf_client *first, *second, *third;
    hf_lock *held, *wanted, *last;
    hf_op *second_op, *third_op;
    char path[32];
};

static void queue_begin(struct queue *queue, const char *name) {
    int leader = zk_wait_leader(ensemble);
    const char *url = zk_url(zk_member(ensemble, leader));
    queue->follower = zk_member(ensemble, (leader + 1) % ZK_MEMBERS);
    queue->first = scene_client(url, SURVIVES_MS);
    queue->second = scene_client(zk_url(queue->follower), SURVIVES_MS);
    queue->third = scene_client(url, SURVIVES_MS);
    queue->held = scene_lock(queue->first, HF_PLAIN, name);
    queue->wanted = scene_lock(queue->second, HF_PLAIN, name);
    queue->last = scene_lock(queue->third, HF_PLAIN, name);
    snprintf(queue->path, sizeof queue->path, "/%s", name);
    assert_hf(HF_OK, hf_lock_acquire(queue->held));
    queue->second_op = scene_acquire_start(queue->wanted);
    assert_true(zk_wait_children(scene.eyes, queue->path, 2, HANG_MS));
    queue->third_op = scene_acquire_start(queue->last);
    assert_true(zk_wait_children(scene.eyes, queue->path, 3, HANG_MS));
    zk_freeze(queue->follower);
}

static void queue_end(struct queue *queue) {
    hf_lock_free(queue->held);
    hf_lock_free(queue->wanted);
    hf_lock_free(queue->last);
    hf_close(queue->first);
    hf_close(queue->second);
    hf_close(queue->third);
}

/* It hears of its turn late, and nobody passes it. */
CASE_AROUND(a_turn_that_is_noticed_late, make_whole, NULL) {
    OWN(queue_end) struct queue queue;
    queue_begin(&queue, "late");
    int err = hf_lock_release(queue.held);
    bool left = zk_wait_children(scene.eyes, queue.path, 2, HANG_MS);
    int second = hf_op_wait(queue.second_op, 200, NULL),
        third = hf_op_wait(queue.third_op, 0, NULL);
    zk_unfreeze(queue.follower);
    assert_hf(HF_OK, err);
    assert_true(left);
    assert_int_equal(second, HF_EPENDING);
    assert_int_equal(third, HF_EPENDING);
    hf_owner owner = scene_acquired(queue.second_op);
    assert_int_equal(hf_op_wait(queue.third_op, 0, NULL), HF_EPENDING);
    assert_hf(HF_OK, hf_lock_release_as(queue.wanted, owner));
    assert_hf(HF_OK, hf_lock_release_as(queue.last, scene_acquired(queue.third_op)));
}

/* Somebody deletes its node meanwhile, and the lock is the next one's. What it then hears of first
 * is that the one before it is gone. */
CASE_AROUND(a_place_that_is_lost_without_word, make_whole, NULL) {
    OWN(queue_end) struct queue queue;
    char node[256];
    queue_begin(&queue, "unheard");
    struct zk_children *line = zk_children(scene.eyes, queue.path);
    bool three = line != NULL && line->count == 3;
    if (three)
        snprintf(node, sizeof node, "%s/%s", queue.path, line->names[1]);
    zk_children_free(line);
    int deleted = three ? zk_delete(scene.eyes, node) : -1;
    int err = hf_lock_release(queue.held);
    hf_result result = HF_RESULT_INIT;
    int third = hf_op_wait(queue.third_op, HANG_MS, &result);
    zk_unfreeze(queue.follower);
    assert_int_equal(deleted, 0);
    assert_hf(HF_OK, err);
    assert_hf(HF_OK, third);
    assert_true(zk_wait_children(scene.eyes, queue.path, 2, HANG_MS)); /* at the end of the queue */
    assert_int_equal(hf_op_wait(queue.second_op, 0, NULL), HF_EPENDING);
    assert_hf(HF_OK, hf_lock_release_as(queue.last, result.owner));
    assert_hf(HF_OK, hf_lock_release_as(queue.wanted, scene_acquired(queue.second_op)));
    hf_op_free(queue.third_op);
}

/* ---- A follower that is cut off, or killed ----------------------------------------------------- */

/* The holder in a process of its own, so that it can be paused. */
struct holder {
    char url[64], name[32];
    atomic_int holds, may_go;
    struct scene_trust trust;
};

static int hold_and_note(void *arg) {
    struct holder *holder = arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    options.watchdog_ms = SHORT_MS;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = HANG_MS;
    if (hf_open(holder->url, &options, &client) != HF_OK ||
        hf_lock_new(client, holder->name, &lock) != HF_OK ||
        hf_lock_on_lost(lock, scene_note_loss, &holder->trust) != HF_OK ||
        hf_lock_acquire(lock) != HF_OK)
        return 1;
    atomic_store(&holder->holds, 1);
    while (atomic_load(&holder->trust.lost) == 0 && wait_a_moment())
        scene_note_trust(&holder->trust, lock);
    while (atomic_load(&holder->may_go) == 0) /* it may have to be stopped */
        (void)wait_a_moment();
    return 0;
}

static bool holds(void *arg) {
    struct holder *holder = arg;
    return atomic_load(&holder->holds) != 0;
}

/* The leader is cut off: it leads on for a while, and answers, when the others have another already. Its holder has
 * stopped believing in it before the next one begins. The others take their time, so it is for `make soak`. */
CASE_AROUND(two_leaders, make_whole, NULL) {
    if (getenv("HF_SOAK") == NULL) {
        print_message("half a minute, in `make soak`\n");
        skip();
    }
    struct holder *holder = shared_new(sizeof *holder);
    int leader = zk_wait_whole(ensemble), follower = (leader + 1) % ZK_MEMBERS;
    snprintf(holder->url, sizeof holder->url, "%s", zk_url(zk_member(ensemble, leader)));
    snprintf(holder->name, sizeof holder->name, "leaders");
    pid_t pid = run_child(hold_and_note, holder);
    assert_true(wait_until(holds, holder, HANG_MS));
    hf_client *rival = scene_client(zk_url(zk_member(ensemble, follower)), SURVIVES_MS);
    hf_lock *wanted = scene_lock(rival, HF_PLAIN, holder->name);
    hf_op *op = scene_acquire_start(wanted);
    assert_true(scene_wait_behind("/leaders", op));
    zk_cut(ensemble, leader);
    atomic_store(&holder->may_go, 1);
    hf_owner owner = scene_acquired(op);
    int64_t margin_ms = now_ms() - atomic_load(&holder->trust.until_ms);
    print_message("%lld ms between\n", (long long)margin_ms);
    assert_true(margin_ms >= 0);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_hf(HF_OK, hf_lock_release_as(wanted, owner));
    hf_lock_free(wanted);
    hf_close(rival);
    zk_join(ensemble, leader);
    shared_free(holder, sizeof *holder);
}

enum fault { CUT, KILL };

static void inject_fault(enum fault fault, int follower) {
    if (fault == CUT)
        zk_cut(ensemble, follower);
    else
        zk_kill(zk_member(ensemble, follower));
}

static void end_fault(enum fault fault, int follower) {
    if (fault == CUT)
        zk_join(ensemble, follower);
    else
        zk_launch(zk_member(ensemble, follower));
    zk_wait_whole(ensemble);
}

struct round {
    int number, again;
    enum fault fault;
    bool pause;
    unsigned *chance;
};

/* The moment has come: random, which is what this is about. */
static void await_moment(const struct round *round, pid_t pid) {
    linger(rand_r(round->chance) % SHORT_MS);
    if (round->pause) {
        stop_process(pid);
        linger(SHORT_MS * 45 / 100); /* so long is the pause */
    }
}

/* False: it was lost before there was any fault. */
static bool play(const struct round *round) {
    struct holder *holder = shared_new(sizeof *holder);
    int leader = zk_wait_whole(ensemble), follower = (leader + 1 + round->number % 2) % ZK_MEMBERS;
    snprintf(holder->url, sizeof holder->url, "%s", zk_url(zk_member(ensemble, follower)));
    snprintf(holder->name, sizeof holder->name, "round-%d-%d", round->number, round->again);
    pid_t pid = run_child(hold_and_note, holder);
    assert_true(wait_until(holds, holder, HANG_MS));

    hf_client *rival = scene_client(zk_url(zk_member(ensemble, leader)), SURVIVES_MS);
    hf_lock *wanted = scene_lock(rival, HF_PLAIN, holder->name);
    hf_op *op = scene_acquire_start(wanted);
    own_text *path = text_of("/%s", holder->name);
    assert_true(scene_wait_behind(path, op));

    await_moment(round, pid);
    bool held = atomic_load(&holder->trust.lost) == 0;
    inject_fault(round->fault, follower);
    atomic_store(&holder->may_go, 1);
    kill(pid, SIGCONT);
    hf_owner owner = scene_acquired(op);
    int64_t granted_ms = now_ms();
    int64_t margin_ms = granted_ms - atomic_load(&holder->trust.until_ms);
    print_message("round %d, %s%s: %lld ms between%s\n", round->number,
                  round->fault == CUT ? "cut" : "killed", round->pause ? " after a pause" : "",
                  (long long)margin_ms, held ? "" : ", but it was lost before");
    assert_true(margin_ms >= 0);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_hf(HF_OK, hf_lock_release_as(wanted, owner));
    hf_lock_free(wanted);
    hf_close(rival);
    end_fault(round->fault, follower);
    shared_free(holder, sizeof *holder);
    return held;
}

CASE_AROUND(a_holder_knows_before_the_next_begins, make_whole, NULL) {
    unsigned seed = (unsigned)random_seed();
    int rounds = getenv("HF_SOAK") != NULL ? 40 : 4;

    for (int i = 0; i < rounds; i++) {
        struct round round = {
            .number = i, .fault = i % 2 == 0 ? CUT : KILL, .pause = i % 4 < 2, .chance = &seed};
        while (!play(&round))
            assert_true(++round.again < SCENE_ROUNDS);
    }
}

int main(void) {
    zk_need();
    return test_cases_run(start, stop);
}
