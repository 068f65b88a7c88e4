/*
 * A survey asks for the wanted parts only: each part alone, unknown parts, and times by name, cut
 * to the asker's limit behind holds and waits.
 */
#include "support/world.h"

#include <sys/time.h>

#define WAITED "waited"

/* A client that holds one lock and waits for another, which the rival has; both have been acquired
 * and released before. */
struct reporter {
    struct world w;
    hf_client *responder;
    hf_lock *held, *wanted, *busy;
    struct world_caller waiter;
};

static void reporter_begin(struct reporter *reporter) {
    hf_options mute = world_options(), options = world_options();
    mute.report_after_ms = -1;
    options.report_after_ms = 0;
    options.name_prefix = "app:";
    mute.name_prefix = "app:";
    world_begin(&reporter->w, &mute);
    assert_int_equal(hf_open(server_url(reporter->w.server), &options, &reporter->responder),
                     HF_OK);
    assert_int_equal(hf_lock_new(reporter->responder, "held", &reporter->held), HF_OK);
    assert_int_equal(hf_lock_new(reporter->responder, WAITED, &reporter->wanted), HF_OK);
    assert_int_equal(hf_lock_new(reporter->w.client, WAITED, &reporter->busy), HF_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hf_lock_acquire(reporter->wanted), HF_OK);
        assert_int_equal(hf_lock_release(reporter->wanted), HF_OK);
    }
    assert_int_equal(hf_lock_acquire(reporter->busy), HF_OK);
    assert_int_equal(hf_lock_acquire(reporter->held), HF_OK);
    world_call_acquire(&reporter->waiter, reporter->wanted,
                       world_wait_for(HF_FOREVER, HF_WATCHDOG));
}

static void reporter_end(struct reporter *reporter) {
    assert_int_equal(hf_lock_release(reporter->busy), HF_OK);
    assert_int_equal(world_join(&reporter->waiter), HF_OK);
    assert_int_equal(hf_lock_release(reporter->held), HF_OK);
    hf_lock_free(reporter->held);
    hf_lock_free(reporter->wanted);
    hf_lock_free(reporter->busy);
    assert_int_equal(hf_close(reporter->responder), HF_OK);
    world_end(&reporter->w);
}

/* ---- Asking ---- */

static hf_fleet *survey(struct reporter *reporter, unsigned wanted, const char *pattern) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.wanted = wanted;
    options.pattern = pattern;
    assert_int_equal(hf_survey(reporter->w.client, &options, &fleet), HF_OK);
    return fleet;
}

static const hf_fleet_client *responder_in(const struct reporter *reporter, const hf_fleet *fleet) {
    for (size_t i = 0; i < fleet->clients_len; i++)
        if (strcmp(fleet->clients[i]->id, hf_client_id(reporter->responder)) == 0)
            return fleet->clients[i];
    return NULL;
}

/* The same, asked again while the responder has not answered: who has no processor in time is silent by right. */
static hf_fleet *survey_answered(struct reporter *reporter, unsigned wanted, const char *pattern) {
    for (int64_t until_ms = now_ms() + HANG_MS;;) {
        hf_fleet *fleet = survey(reporter, wanted, pattern);
        const hf_fleet_client *client = responder_in(reporter, fleet);
        if (client != NULL && client->presence == HF_PRESENCE_ALIVE)
            return fleet;
        hf_fleet_free(fleet);
        assert_true(now_ms() < until_ms);
    }
}

static bool is_reported_by_client(const hf_fleet *fleet, const char *name, bool waits) {
    for (size_t i = 0; i < fleet->locks_len; i++) {
        const hf_fleet_lock *lock = fleet->locks[i];
        const hf_fleet_party *const *parties = waits ? lock->waiters : lock->holders;
        size_t len = waits ? lock->waiters_len : lock->holders_len;
        for (size_t k = 0; strcmp(lock->name, name) == 0 && k < len; k++)
            if ((parties[k]->seen_by & HF_SEEN_BY_CLIENT) != 0)
                return true;
    }
    return false;
}

static const hf_fleet_name_stats *times_of(const hf_fleet_client *client, const char *name) {
    for (size_t i = 0; client != NULL && i < client->names_len; i++)
        if (strcmp(client->names[i]->name, name) == 0)
            return client->names[i];
    return NULL;
}

/* Until the client answers, and its waiter waits. */
static bool is_ready(void *arg) {
    struct reporter *reporter = arg;
    own_fleet *fleet = survey(reporter, HF_WANT_HOLDS | HF_WANT_WAITS, NULL);
    bool ready =
        is_reported_by_client(fleet, "held", false) && is_reported_by_client(fleet, WAITED, true);
    return ready;
}

/* The server's view is included, whatever is wanted of the clients. */
static void expect_reported(struct reporter *reporter, unsigned wanted) {
    own_fleet *fleet = survey_answered(reporter, wanted, NULL);
    const hf_fleet_client *client = responder_in(reporter, fleet);
    assert_non_null(client);
    assert_int_equal(client->presence, HF_PRESENCE_ALIVE);
    assert_int_equal(client->left_out, 0);
    assert_true(client->up_ms >= 0);
    assert_int_equal(is_reported_by_client(fleet, "held", false), (wanted & HF_WANT_HOLDS) != 0);
    assert_int_equal(is_reported_by_client(fleet, WAITED, true), (wanted & HF_WANT_WAITS) != 0);
    bool numbers = (wanted & HF_WANT_STATS) != 0;
    assert_int_equal(client->acquired, numbers ? 4 : 0);
    assert_int_equal(client->wait.count, numbers ? 4 : 0);
    assert_int_equal(client->names_len, (wanted & HF_WANT_HISTOGRAMS) != 0 ? 2 : 0);
    assert_int_equal(fleet->locks_len, 2);
    for (size_t i = 0; i < fleet->locks_len; i++) {
        assert_int_equal(fleet->locks[i]->holders_len, 1);
        assert_false(fleet->locks[i]->disputed);
    }
}

CASE_IN(each_wish_alone, struct reporter, reporter, reporter_begin, reporter_end) {
    assert_true(wait_until(is_ready, reporter, HANG_MS));
    expect_reported(reporter, 0);
    expect_reported(reporter, HF_WANT_HOLDS);
    expect_reported(reporter, HF_WANT_WAITS);
    expect_reported(reporter, HF_WANT_STATS);
    expect_reported(reporter, HF_WANT_HISTOGRAMS);
    expect_reported(reporter, HF_WANT_HOLDS | HF_WANT_WAITS | HF_WANT_STATS | HF_WANT_HISTOGRAMS);
    const hf_survey_options usual = HF_SURVEY_OPTIONS_INIT;
    assert_int_equal(usual.wanted, HF_WANT_HOLDS | HF_WANT_WAITS | HF_WANT_STATS);
    expect_reported(reporter, usual.wanted);
    hf_survey_options unknown = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    unknown.wanted = 0x80000000u;
    assert_int_equal(hf_survey(reporter->w.client, &unknown, &fleet), HF_EINVAL);
}

CASE_IN(times_are_reported_by_name, struct reporter, reporter, reporter_begin, reporter_end) {
    assert_true(wait_until(is_ready, reporter, HANG_MS));
    hf_fleet *fleet = survey_answered(reporter, HF_WANT_HISTOGRAMS, NULL);
    const hf_fleet_name_stats *waited = times_of(responder_in(reporter, fleet), WAITED);
    const hf_fleet_name_stats *held = times_of(responder_in(reporter, fleet), "held");
    assert_non_null(waited);
    assert_non_null(held);
    assert_int_equal(waited->name_len, strlen(WAITED));
    assert_int_equal(waited->wait.count, 3);
    assert_int_equal(waited->hold.count, 3);
    assert_true(waited->hold.sum_us >= waited->hold.max_us && waited->hold.max_us > 0);
    assert_int_equal(held->wait.count, 1);
    assert_int_equal(held->hold.count, 0);
    assert_int_not_equal(held->begun, waited->begun);
    hf_fleet_free(fleet);

    fleet = survey_answered(reporter, HF_WANT_HISTOGRAMS, "wait*");
    assert_int_equal(responder_in(reporter, fleet)->names_len, 1);
    assert_non_null(times_of(responder_in(reporter, fleet), WAITED));
    hf_fleet_free(fleet);
}

/* Nobody holds it, and no server knows of it. */
CASE_IN(free_locks_are_reported, struct reporter, reporter, reporter_begin, reporter_end) {
    static const char odd[] = "a \"b\"\\\n\xff{c}";
    hf_lock *lock = made(hf_lock_new, reporter->responder, odd);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_true(wait_until(is_ready, reporter, HANG_MS));
    own_fleet *fleet = survey_answered(reporter, HF_WANT_HISTOGRAMS, NULL);
    assert_int_equal(fleet->locks_len, 2);
    const hf_fleet_name_stats *times = times_of(responder_in(reporter, fleet), odd);
    assert_non_null(times);
    assert_int_equal(times->hold.count, 1);
}

/* ---- By hand ---- */

/* What the client answers to a question with such an end; the caller frees it. */
static redisReply *ask(struct server *server, unsigned number, const char *rest) {
    char channel[64], question[256];
    snprintf(channel, sizeof channel, "holdfast_tell:%032x", number);
    snprintf(question, sizeof question, "ask 1 %032x %s", number, rest);
    own_context *hearer = server_connect(server);
    redisReply *message = redisCommand(hearer, "SUBSCRIBE %s", channel);
    assert_non_null(message);
    freeReplyObject(message);
    cmd_ok(server, "PUBLISH holdfast_ask %s", question);
    /* no poll: both answers may have been read at once */
    assert_int_equal(redisSetTimeout(hearer, (struct timeval){.tv_sec = HANG_MS / 1000}), REDIS_OK);
    do { /* the mute one says that it is there */
        assert_int_equal(redisGetReply(hearer, (void **)&message), REDIS_OK);
        if (strstr(message->element[2]->str, "tells_nothing") == NULL)
            break;
        freeReplyObject(message);
    } while (true);
    return message;
}

CASE_IN(unknown_wishes_are_ignored, struct reporter, reporter, reporter_begin, reporter_end) {
    assert_true(wait_until(is_ready, reporter, HANG_MS));
    own_reply *message = ask(reporter->w.server, 1, "65536 xhZ7! 0 4 app:");
    const char *text = message->element[2]->str;
    assert_non_null(strstr(text, "\"name\":\"held\""));
    assert_null(strstr(text, "\"waits\""));
    assert_null(strstr(text, "\"acquired\""));
    assert_null(strstr(text, "\"names\""));
}

CASE_IN(times_come_last_and_are_cut, struct reporter, reporter, reporter_begin, reporter_end) {
    enum { LIMIT = 2400 };
    for (int i = 0; i < 40; i++) {
        own_text *name = text_of("free-%d", i);
        own_lock *lock = made(hf_lock_new, reporter->responder, name);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_true(wait_until(is_ready, reporter, HANG_MS));
    redisReply *message = ask(reporter->w.server, 2, "2400 hwt 0 4 app:");
    const redisReply *text = message->element[2];
    assert_true(text->len <= LIMIT);
    const char *holds = strstr(text->str, "\"holds\":[{"),
               *names = strstr(text->str, "\"names\":[{");
    assert_non_null(holds);
    assert_non_null(names);
    assert_true(holds < names);
    assert_non_null(strstr(text->str, "\"waits\":[{"));
    assert_null(strstr(text->str, "\"left_out\":"));
    assert_non_null(strstr(text->str, "\"names_left_out\":"));
    assert_int_equal(text->str[text->len - 1], '}');
    freeReplyObject(message);
    own_fleet *fleet = survey_answered(reporter, HF_WANT_HISTOGRAMS, NULL);
    assert_int_equal(responder_in(reporter, fleet)->names_len, 42);
    assert_int_equal(responder_in(reporter, fleet)->names_left_out, 0);
}

RUN_CASES(world_start_server, world_stop_server)
