/* A quorum of five: all up, some down, slow, hanging or refusing, a minority or a majority taken by
 * others; the votes and the words of each error. */
#include "joint/fleet.h"

FLEET_CASE(all_up) {
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire_with(f->lock, NULL, &result), HF_OK);
    assert_true(result.votes >= MAJORITY && result.votes <= FLEET);
    assert_int_equal(result.servers, FLEET);
    assert_int_equal(result.count, 1);
    /* a hundredth less than the lease: clocks differ */
    assert_true(result.remaining_ms <= 60000 - 602 && result.remaining_ms > 50000);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS)); /* the late ones join */
    assert_int_equal(hf_lock_try(f->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
    assert_int_equal(hf_lock_try(f->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(f->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_ENOTOWNER);
}

/* An exchange with a server that is down, slow or hangs takes so long that the client that is not delayed by it
 * is distinguished from the client that is, on the slowest machine. */
#define EXCHANGE_MS 20000
#define UNDELAYED_MS 15000

static void begin_patient(struct fleet *f) {
    hf_options options = fleet_options();
    options.cmd_timeout_ms = EXCHANGE_MS;
    fleet_begin(f, &options);
}

CASE_IN(C324_two_down, struct fleet, f, begin_patient, fleet_end) {
    hf_result result = HF_RESULT_INIT;
    server_kill(f->server[1]);
    server_kill(f->server[4]);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_with(f->lock, NULL, &result), HF_OK);
    assert_int_equal(result.votes, MAJORITY);
    assert_int_equal(fleet_held(f, f->owner), MAJORITY);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(now_ms() - start_ms < UNDELAYED_MS);
    assert_true(fleet_wait_free(f, HANG_MS));
}

FLEET_CASE_WITH(three_down, fleet_options(), options.cmd_timeout_ms = 4500,
                options.connect_timeout_ms = 3000) {
    /* by then the other two have answered */
    for (int i = 0; i < 3; i++)
        server_kill(f->server[i]);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_try(f->lock), HF_ENOQUORUM);
    const char *text = hf_last_error()->text;
    assert_non_null(strstr(text, "2 of 5 granted, 3 needed; no answer: "));
    assert_non_null(strstr(text, proxy_socket(f->proxy[2])));
    assert_null(strstr(text, proxy_socket(f->proxy[3])));
    assert_int_equal(hf_lock_acquire_for(f->lock, 500), HF_ENOQUORUM);
    assert_int_equal(hf_lock_acquire(f->lock),
                     HF_ENOQUORUM); /* for ever, that is connect_timeout_ms */
    assert_true(now_ms() - start_ms < 20000);
    assert_true(fleet_wait_free(f, HANG_MS));
    for (int i = 0; i < 3; i++)
        server_restart(f->server[i]);
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

/* Between two attempts the grants are given back, and no server is asked: the last attempt showed
 * which of them answer. */
FLEET_CASE(only_silent_servers_are_named) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    for (int i = 0; i < MAJORITY; i++)
        server_kill(f->server[i]);
    options.wait_ms = 2000;
    assert_int_equal(hf_lock_acquire_with(f->lock, &options, NULL), HF_ENOQUORUM);
    const char *missing = strstr(hf_last_error()->text, "no answer: ");
    assert_non_null(missing);
    size_t len = strcspn(missing, ";");
    for (int i = 0; i < FLEET; i++) {
        const char *socket = proxy_socket(f->proxy[i]);
        bool named = memmem(missing, len, socket, strlen(socket)) != NULL;
        assert_int_equal(named, i < MAJORITY);
    }
}

static int64_t pair_ms(hf_lock *lock) {
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    return now_ms() - start_ms;
}

CASE_IN(one_slow, struct fleet, f, begin_patient, fleet_end) {
    proxy_delay(f->proxy[2], "", EXCHANGE_MS);
    for (int i = 0; i < 5; i++)
        assert_true(pair_ms(f->lock) < UNDELAYED_MS);
    proxy_heal(f->proxy[2]);
    assert_true(fleet_wait_free(f, HANG_MS));
}

CASE_IN(one_hangs, struct fleet, f, begin_patient, fleet_end) {
    server_freeze(f->server[0]);
    for (int i = 0; i < 5; i++)
        assert_true(pair_ms(f->lock) < UNDELAYED_MS);
    server_unfreeze(f->server[0]);
    assert_true(fleet_wait_free(f, HANG_MS));
}

static bool all_are_asked(void *arg) {
    struct fleet *f = arg;
    int asked = 0;
    for (int i = 0; i < FLEET; i++)
        asked += proxy_held(f->proxy[i]) > 0;
    return asked == FLEET;
}

static void stall_all(struct fleet *f, const char *script) {
    for (int i = 0; i < FLEET; i++)
        proxy_stall_request(f->proxy[i], script);
}

/* All of them are asked before any has answered. */
static void answer_all(struct fleet *f) {
    assert_true(wait_until(all_are_asked, f, HANG_MS));
    for (int i = 0; i < FLEET; i++)
        proxy_release_held(f->proxy[i]);
}

/* They take the time of one, not that of five. */
CASE(all_slow) {
    OWN(fleet_end) struct fleet f;
    hf_op *op;
    hf_acquire_options as_self = HF_ACQUIRE_OPTIONS_INIT;
    as_self.owner = hf_owner_self();
    begin_patient(&f);
    stall_all(&f, FLEET_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(f.lock, &as_self, NULL, NULL, &op), HF_OK);
    answer_all(&f);
    assert_int_equal(joined(op, NULL), HF_OK);
    stall_all(&f, FLEET_RELEASE);
    assert_int_equal(hf_lock_release_start(f.lock, as_self.owner, NULL, NULL, &op), HF_OK);
    answer_all(&f);
    assert_int_equal(joined(op, NULL), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));

    for (int i = 0; i < FLEET; i++)
        proxy_delay(f.proxy[i], "", 200);
    assert_int_equal(hf_lock_try(f.lock), HF_OK);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    for (int i = 0; i < FLEET; i++)
        proxy_heal(f.proxy[i]);
    assert_true(fleet_wait_free(&f, HANG_MS));
}

/* A wait that is shorter than an answer takes: it is busy or not, and no fault of the servers. */
FLEET_CASE(short_wait_has_one_exchange) {
    for (int i = 0; i < FLEET; i++)
        proxy_delay(f->proxy[i], "", 200);
    assert_int_equal(hf_lock_acquire_for(f->lock, 20), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
    assert_int_equal(hf_lock_acquire(f->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_for(f->lock, 20), HF_ETIMEDOUT);
    assert_int_equal(hf_lock_release(f->rival_lock), HF_OK);
    for (int i = 0; i < FLEET; i++)
        proxy_heal(f->proxy[i]);
    assert_true(fleet_wait_free(f, HANG_MS));
}

FLEET_CASE(one_refuses) {
    static const char *const refusals[] = {
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-NOPERM this user has no permissions to run the command\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-MISCONF Redis is configured to save RDB snapshots\r\n",
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        hf_result result = HF_RESULT_INIT;
        for (int n = 0; n < 50; n++)
            proxy_answer_instead(f->proxy[1], FLEET_ACQUIRE, refusals[i], strlen(refusals[i]));
        assert_int_equal(hf_lock_acquire_with(f->lock, NULL, &result), HF_OK);
        assert_true(result.votes < FLEET);
        assert_int_equal(hf_lock_release(f->lock), HF_OK);
        proxy_heal(f->proxy[1]);
        assert_true(fleet_wait_free(f, HANG_MS));
    }
}

FLEET_CASE(C322_minority_taken) {
    hf_result result = HF_RESULT_INIT;
    fleet_occupy(f, 0);
    fleet_occupy(f, 3);
    hf_acquire_options options = fleet_wait_for(20000, 60000);
    assert_int_equal(hf_lock_acquire_with(f->lock, &options, &result), HF_OK);
    assert_int_equal(result.votes, MAJORITY);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(key_exists(f->server[0], FLEET_NAME) && key_exists(f->server[3], FLEET_NAME));
}

/* The same when some of the free ones answer late: those that are another's are not waited for, since
 * they may stay what they are. Which server is the first depends on the name. */
FLEET_CASE(minority_taken_and_the_rest_is_slow) {
    enum { NAMES = 6 };
    proxy_delay(f->proxy[0], "", 100);
    proxy_delay(f->proxy[3], "", 100);
    for (int k = 0; k < NAMES; k++) {
        own_text *name = text_of("taken%d", k);
        for (int i = 1; i <= 2; i++)
            cmd_ok(f->server[i], "HSET %s another:1 1", name); /* for ever */
        own_lock *lock = made(hf_lock_new, f->client, name);
        assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    proxy_heal(f->proxy[0]);
    proxy_heal(f->proxy[3]);
}

FLEET_CASE(C321_majority_taken) {
    for (int i = 1; i < 4; i++)
        fleet_occupy(f, i);
    assert_int_equal(hf_lock_try(f->lock), HF_EBUSY);
    const char *text = hf_last_error()->text;
    assert_non_null(strstr(text, "3 needed; "));
    assert_non_null(strstr(text, "busy: "));
    assert_non_null(strstr(text, proxy_socket(f->proxy[1])));
    /* long enough that they have answered, or it could not be distinguished from too few servers */
    assert_int_equal(hf_lock_acquire_for(f->lock, 3000), HF_ETIMEDOUT);
    assert_true(fleet_wait_held(f, f->owner, 0, HANG_MS));
}

static bool somebody_listens(void *arg) {
    struct fleet *f = arg;
    bool any = false;
    for (int i = 0; i < FLEET; i++) {
        own_reply *channels = cmd(f->server[i], "PUBSUB CHANNELS *taken*");
        any = any || channels->elements > 0;
    }
    return any;
}

static long long scripts_run(struct fleet *f) {
    long long sum = 0;
    for (int i = 0; i < FLEET; i++)
        sum += server_calls(f->server[i], "evalsha") + server_calls(f->server[i], "eval");
    return sum;
}

static bool nobody_listens(void *arg) {
    return !somebody_listens(arg);
}

/* All but one are taken, each of them once: a waiter waits for a message, also if the free one is
 * the first, and does not ask for it again and again. */
FLEET_CASE(waits_by_message_though_one_is_free) {
    enum { MANY = 150 }; /* it is 8, and 50 if the first is kept for a while */
    for (int spared = 0; spared < FLEET; spared++) {
        struct fleet_caller caller;
        hf_acquire_options patient = fleet_wait_for(HANG_MS, HF_WATCHDOG);
        patient.owner = 77;
        assert_true(wait_until(nobody_listens, f, HANG_MS));
        for (int i = 0; i < FLEET; i++)
            if (i != spared)
                cmd_ok(f->server[i], "HSET taken another:1 1");
        long long before = scripts_run(f);
        own_lock *lock = made(hf_lock_new, f->client, "taken");
        fleet_call_acquire(&caller, lock, patient);
        assert_true(wait_until(somebody_listens, f, HANG_MS / 2));
        assert_true(scripts_run(f) - before < MANY);
        for (int i = 0; i < FLEET; i++) {
            if (i == spared)
                continue;
            cmd_ok(f->server[i], "DEL taken");
            cmd_ok(f->server[i], "PUBLISH redisson_lock__channel:{taken} 0");
        }
        assert_int_equal(fleet_join(&caller), HF_OK);
        assert_int_equal(hf_lock_release_as(lock, patient.owner), HF_OK);
    }
}

/* For each of the servers that are taken: three locks at once. */
FLEET_CASE(C323_woken_when_a_majority_is_free) {
    struct fleet_caller callers[3];
    hf_lock *locks[3];
    for (int k = 0; k < 3; k++) {
        own_text *name = text_of("taken%d", k);
        for (int i = 1; i < 4; i++)
            cmd_ok(f->server[i], "HSET %s another:1 1", name);
        assert_int_equal(hf_lock_new(f->client, name, &locks[k]), HF_OK);
        fleet_call_acquire(&callers[k], locks[k], fleet_wait_for(HANG_MS, HF_WATCHDOG));
    }
    assert_true(HOLDS_FOR(!atomic_load(&callers[0].done) && !atomic_load(&callers[1].done) &&
                              !atomic_load(&callers[2].done),
                          200));
    for (int k = 0; k < 3; k++) {
        assert_false(atomic_load(&callers[k].done));
        cmd_ok(f->server[k + 1], "DEL taken%d", k);
        cmd_ok(f->server[k + 1], "PUBLISH redisson_lock__channel:{taken%d} 0", k);
    }
    for (int k = 0; k < 3; k++) {
        assert_int_equal(fleet_join(&callers[k]), HF_OK);
        hf_lock_free(locks[k]);
    }
}

static bool is_waited_at(struct server *server) {
    own_reply *reply = cmd(server, "PUBSUB NUMSUB redisson_lock__channel:{" FLEET_NAME "}");
    assert_non_null(reply);
    return reply->element[1]->integer > 0;
}

static int where_it_waits(struct fleet *f) {
    for (int64_t end_ms = now_ms() + HANG_MS; now_ms() < end_ms; wait_a_moment())
        for (int i = 0; i < FLEET; i++)
            if (is_waited_at(f->server[i]))
                return i;
    fail_msg("it does not wait");
    return -1;
}

/* One is freed where it does not wait. When it comes there, the other free servers answer a little later
 * than those that are another's, so it gives back what it was granted. It does not wait at those for ever
 * then, though nobody there tells of anything. */
FLEET_CASE(asks_again_after_a_round_that_was_lost) {
    struct fleet_caller caller;
    for (int i = 1; i < 4; i++)
        fleet_occupy(f, i);
    fleet_call_acquire(&caller, f->lock, fleet_wait_for(50000, HF_WATCHDOG));
    int at = where_it_waits(f);
    size_t asked = proxy_seen(f->proxy[0], FLEET_ACQUIRE);
    proxy_delay(f->proxy[0], FLEET_ACQUIRE, 400);
    proxy_delay(f->proxy[4], FLEET_ACQUIRE, 400);
    fleet_vacate(f, at == 1 ? 2 : 1);
    assert_true(proxy_wait_seen(f->proxy[0], FLEET_ACQUIRE, asked + 1, HANG_MS));
    proxy_heal(f->proxy[0]);
    proxy_heal(f->proxy[4]);
    assert_int_equal(fleet_join(&caller), HF_OK);             /* long before any lease there ends */
    assert_int_equal(hf_lock_release(f->lock), HF_ENOTOWNER); /* that thread's */
}

static long long commands_in_two_seconds(struct fleet *f) {
    long long before = 0, after = 0;
    for (int i = 0; i < FLEET; i++)
        before += server_commands(f->server[i]);
    sleep_ms(2000); /* what is sent in so long is what is measured */
    for (int i = 0; i < FLEET; i++)
        after += server_commands(f->server[i]);
    return after - before;
}

/* It waits at one server, and does not poll: once it has begun to, nothing is sent any more. */
static bool is_quiet(void *fleet) {
    return commands_in_two_seconds(fleet) < 20;
}

FLEET_CASE(waits_by_message) {
    struct fleet_caller caller;
    assert_int_equal(hf_lock_acquire(f->rival_lock), HF_OK);
    fleet_call_acquire(&caller, f->lock, fleet_wait_for(HANG_MS, HF_WATCHDOG));
    for (int i = 0; i < FLEET;
         i++) /* the holder listens for breaks, which is not what is counted below */
        assert_true(wait_until(server_questions_are_received, f->server[i], HANG_MS));
    assert_true(wait_until(is_quiet, f, HANG_MS / 2));
    assert_false(atomic_load(&caller.done));
    assert_int_equal(hf_lock_release(f->rival_lock), HF_OK);
    int64_t start_ms = now_ms();
    assert_int_equal(fleet_join(&caller), HF_OK);
    assert_true(now_ms() - start_ms < 10000); /* before it would have looked for itself */
}

CASE(urls_are_checked) {
    hf_client *client;
    assert_int_equal(hf_open("redis://a redis://b", NULL, &client), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "two urls"));
    assert_int_equal(hf_open("redis://a redis://b redis://a", NULL, &client), HF_EINVAL);
    assert_int_equal(hf_open("redis://a redis://b local:", NULL, &client), HF_EINVAL);
    assert_int_equal(hf_open("redis://a redis://b redis-sentinel://c/m", NULL, &client), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "Sentinel"));
    assert_int_equal(hf_open("redis://a redis://b redis://:x@", NULL, &client), HF_OK);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(
        hf_open("redis://a?watchdog_ms=1000 redis://b?watchdog_ms=2000 redis://c", NULL, &client),
        HF_EINVAL);
    assert_int_equal(
        hf_open("redis://1 redis://2 redis://3 redis://4 redis://5 redis://6 redis://7 "
                "redis://8 redis://9 redis://10",
                NULL, &client),
        HF_EINVAL);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
