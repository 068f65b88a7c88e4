/*
 * A leader that stands still for a while, and packets that are lost between it and the holder's
 * server: the client that holds knows that it does not any more before the next one does.
 *
 * What a request of ours proves must not depend on a leader that is punctual. So the leader of a
 * real ensemble is stopped, for less than the others would wait for it or for more, while a holder
 * at a follower asks for a lock, holds one, or only reads; when the leader goes on, packets between
 * the two are lost, in one direction or in both. A rival at a third server wants the same lock. Two
 * rounds; in `make soak` forty, with 3 and 5 servers, and sessions of 10 and 30 s, four ensembles
 * at once.
 */
#include "support/case.h"
#include "support/random.h"
#include "support/zk_net.h"
#include "zk/scene.h"

#include <signal.h>

enum { TICK_MS = 2000, SYNC_LIMIT = 5, PLAYERS = 4, ROUNDS = 10, RIVAL_MS = 40000 };

enum loss { OUT, IN, BOTH, NONE };
static const char *const losses[] = {"to the leader", "from the leader", "both ways", "none"};

struct round {
    int64_t timeout_ms, stall_ms,
        alone_ms; /* of the session; of the leader; between connecting and asking */
    enum loss loss;
    bool old;   /* it holds the lock before the leader stops, and does not ask for it while it is */
    bool reads; /* and goes on to ask for what takes no leader */
};

/* ---- The holder, in a process of its own ------------------------------------------------------- */

struct holder {
    char url[64], name[32];
    int64_t timeout_ms;
    bool reads;
    atomic_int idles, may_ask, holds;
    struct scene_trust trust;
};

static void *read_on(void *arg) {
    hf_lock *lock = arg;
    for (;;) {
        bool locked;
        (void)hf_lock_is_locked(lock, &locked);
        (void)wait_a_moment();
    }
    return NULL;
}

static bool may_ask(void *arg) {
    struct holder *holder = arg;
    return atomic_load(&holder->may_ask) != 0;
}

/* Ends by a signal. */
static int hold_and_note(void *arg) {
    struct holder *holder = arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    hf_lock *lock = NULL, *other = NULL;
    pthread_t reader;
    options.watchdog_ms = holder->timeout_ms;
    options.cmd_timeout_ms = options.connect_timeout_ms = 4 * HANG_MS;
    if (hf_open(holder->url, &options, &client) != HF_OK ||
        hf_lock_new(client, holder->name, &lock) != HF_OK ||
        hf_lock_new(client, "other", &other) != HF_OK ||
        hf_lock_on_lost(lock, scene_note_loss, &holder->trust) != HF_OK ||
        hf_lock_acquire(other) != HF_OK || hf_lock_release(other) != HF_OK)
        return 1;
    if (holder->reads && pthread_create(&reader, NULL, read_on, other) != 0)
        return 1;
    atomic_store(&holder->idles, 1);
    if (!wait_until(may_ask, holder, 4 * HANG_MS) || hf_lock_acquire(lock) != HF_OK)
        return 1;
    scene_note_trust(&holder->trust, lock);
    atomic_store(&holder->holds, 1);
    for (;;) {
        scene_note_trust(&holder->trust, lock);
        (void)wait_a_moment();
    }
}

static bool idles(void *arg) {
    struct holder *holder = arg;
    return atomic_load(&holder->idles) != 0;
}

static bool holds(void *arg) {
    struct holder *holder = arg;
    return atomic_load(&holder->holds) != 0;
}

/* ---- A round ----------------------------------------------------------------------------------- */

static void must(int err, const char *what) {
    if (err != HF_OK)
        support_die("%s: %s", what, hf_last_error()->text);
}

/* Between the holder's server and a server that leads or led. */
static void lose(struct zk_net *net, int follower, int leader, enum loss loss, bool lost) {
    if (leader < 0 || leader == follower)
        return;
    if (loss == OUT || loss == BOTH)
        zk_net_lose(net, follower, leader, lost);
    if (loss == IN || loss == BOTH)
        zk_net_lose(net, leader, follower, lost);
}

struct request {
    struct zk_net *net;
    int leader, follower;
    int64_t unread_before;
};

/* The leader will find it when it goes on, or the follower has left it. */
static bool is_at_the_leader(void *arg) {
    const struct request *request = arg;
    int64_t unread = zk_net_unread(request->net, request->leader, request->follower);
    return unread < 0 || unread > request->unread_before;
}

/* How long nobody trusted the lock before the rival had it; INT64_MAX: only the rival ever had it. */
static int64_t play(struct zk_net *net, int number, const struct round *round) {
    struct holder *holder = shared_new(sizeof *holder);
    int leader = zk_net_wait_whole(net), follower = leader == 0 ? 1 : 0, third = 2;
    if (third == leader)
        third = 1;
    snprintf(holder->url, sizeof holder->url, "%s", zk_url(zk_net_member(net, follower)));
    snprintf(holder->name, sizeof holder->name, "round-%d", number);
    holder->timeout_ms = round->timeout_ms;
    holder->reads = round->reads;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *rival = NULL;
    hf_lock *wanted = NULL;
    hf_op *op = NULL;
    options.watchdog_ms = RIVAL_MS;
    options.cmd_timeout_ms = options.connect_timeout_ms = 4 * HANG_MS;
    must(hf_open(zk_url(zk_net_member(net, third)), &options, &rival), "the rival");
    must(hf_lock_new(rival, holder->name, &wanted), "the rival");
    must(hf_lock_acquire(wanted), "the rival"); /* so that the lock's node is there */
    must(hf_lock_release(wanted), "the rival");

    pid_t pid = run_child(hold_and_note, holder);
    if (!wait_until(idles, holder, 2 * HANG_MS))
        support_die("the holder does not connect");
    if (round->old) {
        atomic_store(&holder->may_ask, 1);
        if (!wait_until(holds, holder, HANG_MS))
            support_die("the holder holds nothing");
    }
    linger(round->alone_ms);
    zk_net_stop(net, leader);
    struct request request = {net, leader, follower, zk_net_unread(net, leader, follower)};
    linger(round->stall_ms);
    atomic_store(&holder->may_ask, 1);
    if (!round->old && !wait_until(is_at_the_leader, &request, HANG_MS))
        support_die("the holder sends nothing");
    int second = zk_net_leader(net);
    lose(net, follower, leader, round->loss, true);
    lose(net, follower, second, round->loss, true);
    zk_net_go_on(net, leader);
    must(hf_lock_acquire_start(wanted, NULL, NULL, NULL, &op), "the rival's acquire");
    bool cut = round->loss != NONE;
    if (!cut) { /* then the holder dies */
        (void)HOLDS_FOR(hf_op_wait(op, 0, NULL) == HF_EPENDING, round->timeout_ms);
        kill_child(pid);
    }
    /* A stall near syncLimit may end with a leader that the holder's server does reach. Then the
     * holder keeps its lock by right, and the rival's turn comes when the holder dies. */
    if (cut && hf_op_wait(op, 2 * HANG_MS, NULL) == HF_EPENDING) {
        print_message("round %d: the holder's server has found another leader\n", number);
        kill_child(pid);
        cut = false;
    }
    if (hf_op_wait(op, 4 * HANG_MS, NULL) != HF_OK)
        support_die("the rival gets nothing");
    int64_t granted_ms = now_ms();
    if (cut) {
        (void)HOLDS_FOR(
            process_alive(pid),
            round->timeout_ms); /* for a hold that begins, or lasts, beside the rival's */
        kill_child(pid);
    }
    int64_t trusted_ms = atomic_load(&holder->trust.until_ms);
    lose(net, follower, leader, round->loss, false);
    lose(net, follower, second, round->loss, false);
    hf_op_free(op);
    hf_lock_free(wanted);
    hf_close(rival);
    shared_free(holder, sizeof *holder);
    return trusted_ms == 0 ? INT64_MAX : granted_ms - trusted_ms;
}

/* ---- Players ----------------------------------------------------------------------------------- */

struct player {
    int members, tick_ms, sync_limit, number;
    const struct round *rounds;
    int rounds_len;
    int overlaps, done, held;
    int64_t least_ms;
};

static int play_all(void *arg) {
    struct player *player = arg;
    const struct zk_options options = {.tick_ms = player->tick_ms,
                                       .sync_limit = player->sync_limit,
                                       .keeps_containers = true,
                                       .config =
                                           (const char *const[]){"maxSessionTimeout=60000", NULL}};
    zk_net_enter();
    struct zk_net *net = zk_net_start(player->members, &options);
    player->least_ms = INT64_MAX;
    for (int i = 0; i < player->rounds_len; i++) {
        const struct round *round = &player->rounds[i];
        int64_t margin_ms = play(net, 100 * player->number + i, round);
        char margin[64] = "the holder never held it";
        if (margin_ms != INT64_MAX)
            snprintf(margin, sizeof margin, "%lld ms between", (long long)margin_ms);
        printf(
            "%d servers, T %lld ms, leader stopped for %lld ms, packets lost: %s, %s hold%s: %s\n",
            player->members, (long long)round->timeout_ms, (long long)round->stall_ms,
            losses[round->loss], round->old ? "old" : "new", round->reads ? ", reading" : "",
            margin);
        fflush(stdout);
        player->overlaps += margin_ms < 0;
        player->held += margin_ms != INT64_MAX;
        player->least_ms = margin_ms < player->least_ms ? margin_ms : player->least_ms;
        player->done++;
    }
    zk_net_free(net);
    return 0;
}

static void assert_no_overlap(const struct player *player) {
    assert_int_equal(player->done, player->rounds_len);
    assert_int_equal(player->overlaps, 0);
    assert_true(player->held > 0);
}

CASE(a_few_rounds) {
    static const struct round rounds[] = {
        {.timeout_ms = 6000, .stall_ms = 3600, .alone_ms = 2000, .loss = OUT},
        {.timeout_ms = 6000, .stall_ms = 1000, .loss = OUT, .old = true},
    };
    if (getenv("HF_SOAK") != NULL)
        return; /* the next has more of them */
    struct player *player = shared_new(sizeof *player);
    *player = (struct player){
        .members = 3, .tick_ms = 500, .sync_limit = 40, .rounds = rounds, .rounds_len = 2};
    assert_true(expect_exit(run_child(play_all, player), 0, 10 * HANG_MS));
    assert_no_overlap(player);
    shared_free(player, sizeof *player);
}

/* Stalls of 0.3 s to twice T, more of the shorter ones; some are longer than the others wait for a leader. */
static struct round draw(int64_t timeout_ms, int number, unsigned *seed) {
    double part = (double)(number * 4 + rand_r(seed) % 4) / (4 * ROUNDS);
    struct round round = {.timeout_ms = timeout_ms, .loss = (enum loss)(number % 4)};
    round.stall_ms = 300 + (int64_t)((double)(2 * timeout_ms - 300) * part * part);
    round.alone_ms = rand_r(seed) % (timeout_ms / 3);
    round.old = number % 3 == 1 || round.loss == NONE;
    round.reads = number % 5 > 2;
    if (number == 0) /* these are how the rule that counted on pings was broken */
        round = (struct round){.timeout_ms = timeout_ms,
                               .stall_ms = timeout_ms == 10000 ? 6000 : 9000,
                               .alone_ms = timeout_ms / 3,
                               .loss = OUT};
    return round;
}

CASE(forty_rounds) {
    static struct round rounds[PLAYERS][ROUNDS];
    struct player *players = shared_new(PLAYERS * sizeof *players);

    pid_t pids[PLAYERS];
    if (getenv("HF_SOAK") == NULL) {
        print_message("a quarter of an hour, in `make soak`\n");
        skip();
    }
    unsigned seed = (unsigned)random_seed();
    for (int i = 0; i < PLAYERS; i++) {
        for (int j = 0; j < ROUNDS; j++)
            rounds[i][j] = draw(i % 2 == 0 ? 10000 : 30000, j, &seed);
        players[i] = (struct player){.members = i < 2 ? 3 : 5,
                                     .tick_ms = TICK_MS,
                                     .sync_limit = SYNC_LIMIT,
                                     .number = i,
                                     .rounds = rounds[i],
                                     .rounds_len = ROUNDS};
        pids[i] = run_child(play_all, &players[i]);
    }
    for (int i = 0; i < PLAYERS; i++)
        assert_true(expect_exit(pids[i], 0, 3600000));
    for (int i = 0; i < PLAYERS; i++) {
        print_message("%d servers, T %d s: held in %d rounds, least margin %lld ms\n",
                      players[i].members, i % 2 == 0 ? 10 : 30, players[i].held,
                      (long long)players[i].least_ms);
        assert_no_overlap(&players[i]);
    }
    shared_free(players, PLAYERS * sizeof *players);
}

int main(void) {
    zk_need();
    zk_net_need();
    return test_cases_run(NULL, NULL);
}
