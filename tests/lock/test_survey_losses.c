/*
 * Losses that clients announce: they are in surveys that want totals, also when the client has ended
 * or could not reach the server at the loss, once from several servers, and whatever strangers
 * publish there.
 */
#include "lock/surveys.h"
#include "support/shards.h"

#define CHANNEL "holdfast_tell:losses:0"

static hf_fleet *survey_totals(hf_client *client) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.wanted |= HF_WANT_HISTOGRAMS;
    assert_int_equal(hf_survey(client, &options, &fleet), HF_OK);
    return fleet;
}

/* Until a client's losses are announced. */
struct announced {
    hf_client *asker;
    const char *id; /* of the client that lost */
    uint64_t losses;
    hf_fleet *fleet; /* the last */
    const hf_fleet_client *client;
};

static bool is_announced(void *arg) {
    struct announced *announced = arg;
    hf_fleet_free(announced->fleet);
    announced->fleet = survey_totals(announced->asker);
    announced->client = NULL;
    for (size_t i = 0; i < announced->fleet->announced_len; i++)
        if (strcmp(announced->fleet->announced[i]->id, announced->id) == 0)
            announced->client = announced->fleet->announced[i];
    return announced->client != NULL && announced->client->losses == announced->losses;
}

static bool is_heard(void *server) {
    own_reply *reply = cmd(server, "PUBSUB NUMSUB %s", CHANNEL);
    return reply->elements == 2 && reply->element[1]->integer > 0;
}

/* Begins to hear announcements. */
static void listen(hf_client *asker, struct server *server) {
    hf_fleet_free(survey_totals(asker));
    assert_true(wait_until(is_heard, server, HANG_MS));
}

static void lose(hf_lock *lock, hf_lock *rival) {
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_break(rival, NULL), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
}

WORLD_CASE(a_client_that_ends_has_announced_its_losses) {
    hf_options options = world_options();
    char id[40];
    hf_client *loser = made(hf_open, server_url(w->server), &options);
    hf_lock *lock = made(hf_lock_new, loser, WORLD_NAME);
    snprintf(id, sizeof id, "%s", hf_client_id(loser));
    struct announced announced = {.asker = w->rival, .id = id, .losses = 2};
    listen(w->rival, w->server);
    lose(lock, w->rival_lock);
    lose(lock, w->rival_lock);
    assert_true(wait_until(is_announced, &announced, HANG_MS));
    assert_int_equal(announced.client->presence, HF_PRESENCE_CONNECTED);
    assert_int_equal(announced.client->pid, getpid());
    assert_true(announced.client->up_ms >= 0);
    assert_true(announced.client->acquired >= 2);

    lose(lock, w->rival_lock);
    hf_lock_free(lock);
    hf_close(loser); /* returns when the loss is announced */
    announced.losses = 3;
    assert_true(wait_until(is_announced, &announced, HANG_MS));
    assert_int_equal(announced.fleet->announced_len, 1);
    hf_fleet_free(announced.fleet);
}

/* Surveys that want no totals do not have them. */
WORLD_CASE(only_totals_have_them) {
    struct announced announced = {.asker = w->rival, .id = hf_client_id(w->client), .losses = 1};
    listen(w->rival, w->server);
    lose(w->lock, w->rival_lock);
    assert_true(wait_until(is_announced, &announced, HANG_MS));
    hf_fleet_free(announced.fleet);
    own_fleet *fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->announced_len, 0);
}

static hf_fleet *survey_losses(hf_client *client) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.wanted = HF_WANT_LOSSES;
    assert_int_equal(hf_survey(client, &options, &fleet), HF_OK);
    return fleet;
}

static bool has_announced(void *asker) {
    own_fleet *fleet = survey_losses(asker);
    bool one = fleet->announced_len == 1;
    if (one)
        assert_int_equal(fleet->announced[0]->losses, 1);
    return one;
}

/* Without the histograms, which make answers long. */
WORLD_CASE(losses_alone_may_be_wanted) {
    hf_survey_options unknown = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = survey_losses(w->rival);
    hf_fleet_free(fleet);
    assert_true(wait_until(is_heard, w->server, HANG_MS));
    lose(w->lock, w->rival_lock);
    assert_true(wait_until(has_announced, w->rival, HANG_MS));
    unknown.wanted = 0x20;
    assert_int_equal(hf_survey(w->rival, &unknown, &fleet), HF_EINVAL);
}

/* A client that reports nothing announces nothing. */
WORLD_CASE_WITH(a_client_that_does_not_report_is_silent, world_options(),
                options.report_after_ms = -1) {
    struct announced announced = {.asker = w->rival, .id = hf_client_id(w->client), .losses = 1};
    listen(w->rival, w->server);
    size_t before = proxy_seen(w->proxy, CHANNEL);
    lose(w->lock, w->rival_lock);
    assert_int_equal(hf_ping(w->client), HF_OK);
    assert_false(is_announced(&announced));
    assert_int_equal(proxy_seen(w->proxy, CHANNEL), before);
    hf_fleet_free(announced.fleet);
}

static bool is_lost(void *client) {
    return world_stats(client).losses == 1;
}

WORLD_CASE_WITH(what_could_not_be_announced_is_announced_later, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS, options.watchdog_ms = 3000) {
    struct announced announced = {.asker = w->rival, .id = hf_client_id(w->client), .losses = 1};
    listen(w->rival, w->server);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    proxy_refuse(w->proxy, true);
    proxy_cut_all(w->proxy);
    assert_true(wait_until(is_lost, w->client, HANG_MS));
    proxy_heal(w->proxy);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK); /* it is used again */
    assert_true(wait_until(is_announced, &announced, HANG_MS));
    hf_fleet_free(announced.fleet);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* Whoever may publish may forge them: what is no report is ignored, and their number is bounded. */
WORLD_CASE(forged_announcements_are_bounded) {
    static const char *const garbage[] = {
        "", "{", "{\"v\":1,\"id\":\"x\"}",
        "not json \"id\":\"00000000-0000-0000-0000-000000000000\""};
    listen(w->rival, w->server);
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++)
        freeReplyObject(cmd(w->server, "PUBLISH %s %s", CHANNEL, garbage[i]));
    char text[160];
    for (int i = 0; i < 1500; i++) {
        snprintf(text, sizeof text,
                 "{\"v\":1,\"id\":\"%08x-0000-4000-8000-000000000000\",\"losses\":%d}", i, i);
        freeReplyObject(cmd(w->server, "PUBLISH %s %s", CHANNEL, text));
    }
    struct announced announced = {
        .asker = w->rival, .id = "000005db-0000-4000-8000-000000000000", .losses = 1499};
    assert_true(wait_until(is_announced, &announced, HANG_MS));
    assert_int_equal(announced.client->presence, HF_PRESENCE_GONE);
    assert_true(announced.fleet->announced_len <= 1024);
    assert_true(announced.fleet->announced_len >= 1000);
    assert_true(announced.fleet->clients_len < 100);
    hf_fleet_free(announced.fleet);
}

/* Each node passes it on, and each client counts once. */
CASE(in_a_cluster_it_is_counted_once) {
    struct shards *shards = shards_start(NULL);
    hf_options options = world_options();
    hf_client *asker = made(hf_open, shards_url(shards), &options);
    hf_client *loser = made(hf_open, shards_url(shards), &options);
    hf_lock *rival = made(hf_lock_new, asker, "clustered");
    hf_lock *lock = made(hf_lock_new, loser, "clustered");
    struct announced announced = {.asker = asker, .id = hf_client_id(loser)};
    hf_fleet_free(survey_totals(asker));
    /* What is lost before it listens is not heard: it loses until that. */
    do {
        lose(lock, rival);
        announced.losses++;
    } while (!is_announced(&announced) && announced.losses < 200);
    assert_non_null(announced.client);
    assert_int_equal(announced.fleet->announced_len, 1);
    hf_fleet_free(announced.fleet);
    hf_lock_free(lock);
    hf_lock_free(rival);
    hf_close(loser);
    hf_close(asker);
    shards_free(shards);
}

RUN_CASES(world_start_server, world_stop_server)
