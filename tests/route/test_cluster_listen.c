/*
 * Listening to names of a cluster (hf_listen()): at the server that has the name, by sharded channels and by others, while its slot
 * moves and when its primary dies. With real servers.
 */
#include "route/ring.h"
#include "support/heard.h"

#include <stdio.h>
#include <string.h>

static void take_and_release(hf_client *client, any_kind kind, const char *name) {
    hf_lock *lock = scene_lock(client, kind, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
}

/* Names at all three servers, some with a tag of their own. */
static void hear_all(hf_client *client, hf_client *rival) {
    enum { NAMES = 8 };
    struct ear ears[NAMES];
    char names[NAMES][32];
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], i % 2 == 0 ? "heard-%d" : "heard-{%d}", i);
        ears[i] = ear_new(client, names[i]);
    }
    for (int i = 0; i < NAMES; i++) {
        take_and_release(rival, i % 4 < 2 ? HF_PLAIN : HF_WRITE, names[i]);
        hf_news_kind news = i % 4 < 2 ? HF_NEWS_RELEASED : HF_NEWS_WRITE_RELEASED;
        assert_true(heard_wait(ears[i].heard, news, 1, HANG_MS));
        assert_int_equal(heard_count(ears[i].heard, HF_NEWS_LISTENING), 1);
        assert_int_equal(heard_count(ears[i].heard, HF_NEWS_DEAF), 0);
    }
    for (int i = 0; i < NAMES; i++)
        ear_free(&ears[i]);
}

static void names_are_heard_where_they_are(void **state) {
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    hear_all(r.client, r.rival);
    ring_end(&r);
}

static hf_client *open_unsharded(struct ring *r) {
    char url[512];
    hf_client *client;
    hf_options options = scene_options();
    snprintf(url, sizeof url, "%s?pubsub=classic", shards_url(r->shards));
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    return client;
}

static void without_sharded_channels_too(void **state) {
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    hf_client *client = open_unsharded(&r), *rival = open_unsharded(&r);
    hear_all(client, rival);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_close(rival), HF_OK);
    ring_end(&r);
}

/* It says that it listens again, since something may have been missed. */
static void a_name_that_moves_is_followed(void **state) {
    struct ring r;
    (void)state;
    ring_begin(&r, NULL);
    struct ear ear = ear_new(r.client, "moved");
    unsigned slot = shards_slot(r.shards, "moved");
    for (int i = 0; i < 2; i++) { /* there, and on to another */
        struct server *from = shards_owner(r.shards, slot), *to = shards_other(r.shards, from);
        int before = heard_count(ear.heard, HF_NEWS_LISTENING);
        shards_open_slot(r.shards, slot, from, to);
        shards_move_keys(r.shards, slot, from, to);
        shards_close_slot(r.shards, slot, from, to);
        assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, before + 1, HANG_MS));
        assert_true(ring_wait_listened(to, "moved"));
        int released = heard_count(ear.heard, HF_NEWS_RELEASED);
        take_and_release(r.rival, HF_PLAIN, "moved");
        assert_true(heard_wait(ear.heard, HF_NEWS_RELEASED, released + 1, HANG_MS));
    }
    assert_true(heard_count(ear.heard, HF_NEWS_DEAF) >= 2);
    ear_free(&ear);
    ring_end(&r);
}

/* Nobody here sends a command: it is the listening that finds the new server. */
static void whoever_takes_over_is_heard(void **state) {
    struct ring r;
    char name[32];
    (void)state;
    ring_begin(&r, NULL);
    struct server *old = shards_owner(r.shards, 0);
    ring_name_at(&r, old, "taken-over", name);
    struct ear ear = ear_new(r.client, name);
    struct server *new = shards_kill(r.shards, old);
    assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, 2, HANG_MS));
    assert_true(ring_wait_listened(new, name));
    int released = heard_count(ear.heard, HF_NEWS_RELEASED);
    take_and_release(r.rival, HF_PLAIN, name);
    assert_true(heard_wait(ear.heard, HF_NEWS_RELEASED, released + 1, HANG_MS));
    ear_free(&ear);
    ring_end(&r);
}

/* What belongs to such a name is in several slots, and so are its channels. */
static void names_whose_braces_are_no_pair_are_refused(void **state) {
    struct ring r;
    hf_listener *none = NULL;
    (void)state;
    ring_begin(&r, NULL);
    assert_int_equal(hf_listen(r.client, "a}b", heard_note, NULL, &none), HF_EINVAL);
    assert_null(none);
    ring_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_heard_where_they_are),
        cmocka_unit_test(without_sharded_channels_too),
        cmocka_unit_test(a_name_that_moves_is_followed),
        cmocka_unit_test(whoever_takes_over_is_heard),
        cmocka_unit_test(names_whose_braces_are_no_pair_are_refused),
    };
    return cmocka_run_group_tests(tests, ring_start_with_replicas, ring_stop);
}
