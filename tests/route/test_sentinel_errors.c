/*
 * Sentinels that are down, do not know the name, want another password, or are not sentinels: holds
 * survive, and the error says what to do. With real servers and sentinels.
 */
#include "route/scene.h"

static int ping(const char *url) {
    hf_options options = scene_options();
    hf_client *client;
    int err = hf_open(url, &options, &client);
    if (err != HF_OK)
        return err;
    err = hf_ping(client);
    hf_close(client); /* which succeeds, and leaves the words alone */
    return err;
}

static void expect_words(const char *url, int err, const char *words) {
    int found = ping(url);
    const char *text = hf_last_error()->text;
    if (found != err || strstr(text, words) == NULL)
        fail_msg("%s: %s, '%s'", url, hf_error_name(found), text);
}

SCENE_CASE(wrong_name) {
    char url[256];
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d,127.0.0.1:%d/nobody",
             watched_sentinel_port(s->watched, 0), watched_sentinel_port(s->watched, 1));
    expect_words(url, HF_EINVAL, "no sentinel knows 'nobody'; they know " WATCHED_NAME);
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d",
             watched_sentinel_port(s->watched, 0));
    assert_int_equal(ping(url), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "the name of the primary is missing"));
}

SCENE_CASE(wrong_scheme) {
    char url[256];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", watched_sentinel_port(s->watched, 0));
    expect_words(url, HF_EINVAL, "use redis-sentinel://");
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d/" WATCHED_NAME,
             server_port(watched_primary(s->watched)));
    expect_words(url, HF_EINVAL, "use redis://");
    snprintf(url, sizeof url, "rediss-sentinel://127.0.0.1:%d/" WATCHED_NAME "?cmd_timeout_ms=1000",
             watched_sentinel_port(s->watched, 0));
    assert_int_equal(ping(url), HF_EUNREACH); /* a server without TLS says nothing to one with it */
}

/* The password of the servers is not for sentinels, nor the other way round. */
CASE(wrong_password) {
    const struct watched_options options = {.password = "data-word",
                                            .sentinel_password = "sentinel-word"};
    struct watched *w = watched_start(&options);
    char url[256];
    assert_int_equal(ping(watched_url(w)), HF_OK);
    int port = watched_sentinel_port(w, 0);
    snprintf(url, sizeof url, "redis-sentinel://:data-word@127.0.0.1:%d/" WATCHED_NAME, port);
    expect_words(url, HF_EPERM, "sentinel_password");
    snprintf(url, sizeof url,
             "redis-sentinel://:data-word@127.0.0.1:%d/" WATCHED_NAME "?sentinel_password=other",
             port);
    expect_words(url, HF_EPERM, "sentinel_password");
    snprintf(url, sizeof url,
             "redis-sentinel://:other@127.0.0.1:%d/" WATCHED_NAME
             "?sentinel_password=sentinel-word",
             port);
    expect_words(url, HF_EPERM, "the server refused");
    assert_null(strstr(hf_last_error()->text, "-word"));

    hf_options by_options = scene_options();
    by_options.master = WATCHED_NAME;
    by_options.password = "data-word";
    by_options.sentinel_password = "sentinel-word";
    snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d", port);
    hf_client *client = made(hf_open, url, &by_options);
    assert_int_equal(hf_ping(client), HF_OK);
    hf_close(client);
    watched_free(w);
}

/* What is held needs no sentinel; a client that arrives new needs one. */
SCENE_CASE(sentinels_gone) {
    own_lock *lock = scene_lock(s->client, HF_PLAIN, "alone");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    watched_kill_sentinel(s->watched, 0);
    watched_kill_sentinel(s->watched, 1);
    assert_int_equal(ping(watched_url(s->watched)), HF_OK); /* one is enough */
    watched_kill_sentinel(s->watched, 2);
    expect_words(watched_url(s->watched), HF_EUNREACH, "no sentinel returned");
    assert_non_null(strstr(hf_last_error()->text, "Connection refused"));
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_stats(s->client).losses, 0);
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        watched_start_sentinel(s->watched, i);
    watched_heal(s->watched);
    scene_replicate(s);
    scene_kill_primary(s);
    assert_true(scene_wait_switches(s->client, 1));
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

RUN_CASES(scene_start, scene_stop)
