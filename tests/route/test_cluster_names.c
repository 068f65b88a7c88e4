/*
 * A cluster whose servers announce host names, or no host at all: the client follows them, and if
 * it cannot, the error names the missing setting. With real servers, three primaries, from Redis
 * 7.0 on.
 */
#include "route/ring.h"

#include "support/server_internal.h"

#define ADDRESS "127.0.0.1"
#define HOST                                                                                       \
    "LocalHost" /* names have no case; this one can be distinguished from what anybody else would write */

/* ---- What they announce ---- */

struct announced {
    struct shards *shards;
    const char *host; /* NULL: none */
};

static bool says_it(struct server *server, const char *host) {
    own_reply *reply = cmd(server, "CLUSTER SLOTS");
    bool all = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    for (size_t i = 0; all && i < reply->elements; i++) {
        const redisReply *said = reply->element[i]->element[2]->element[0];
        all = host == NULL ? said->type == REDIS_REPLY_NIL
                           : said->type == REDIS_REPLY_STRING && strcmp(said->str, host) == 0;
    }
    return all;
}

static bool all_say_it(void *arg) {
    const struct announced *announced = arg;
    for (int i = 0; i < shards_count(announced->shards); i++)
        if (!says_it(shards_server(announced->shards, i), announced->host))
            return false;
    return true;
}

/* Returns when each of them says so of all. */
static void announce(struct shards *shards, const char *type, const char *name, const char *said) {
    struct announced announced = {shards, said};
    for (int i = 0; i < shards_count(shards); i++) {
        cmd_ok(shards_server(shards, i), "CONFIG SET cluster-announce-hostname %s", name);
        cmd_ok(shards_server(shards, i), "CONFIG SET cluster-preferred-endpoint-type %s", type);
    }
    assert_true(wait_until(all_say_it, &announced, HANG_MS));
}

/* ---- What comes of it ---- */

/* Which hosts a client goes to; the `arg` of note_host. */
struct hosts {
    atomic_int wanted, others;
    const char *host;
};

static bool note_host(const char *host, uint16_t port, char *ret_host, uint16_t *ret_port,
                      void *user) {
    struct hosts *hosts = user;
    (void)port;
    (void)ret_host;
    (void)ret_port;
    atomic_fetch_add(strcmp(host, hosts->host) == 0 ? &hosts->wanted : &hosts->others, 1);
    return false;
}

static hf_client *open_first(struct shards *shards, const char *host, struct hosts *hosts) {
    char url[128];
    hf_options options = scene_options();
    options.address_map = note_host;
    options.address_map_user = hosts;
    snprintf(url, sizeof url, "redis-cluster://%s:%d", host, server_port(shards_server(shards, 0)));
    return made(hf_open, url, &options);
}

/* At each of the three, and after a slot when it goes to another. */
static void use_everywhere(struct ring *r, hf_client *client) {
    for (int i = 0; i < SHARDS; i++) {
        struct server *server = shards_server(r->shards, i);
        char stem[16], name[32];
        snprintf(stem, sizeof stem, "at-%d", i);
        ring_name_at(r, server, stem, name);
        own_lock *lock = scene_lock(client, HF_PLAIN, name);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_true(key_exists(server, name));

        unsigned slot = shards_slot(r->shards, name);
        struct server *to = shards_other(r->shards, server);
        shards_move_slot(r->shards, slot, server, to);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_false(key_exists(to, name));
    }
}

RING_CASE(found_by_their_names) {
    struct hosts hosts = {.host = HOST};
    announce(r->shards, "hostname", HOST, HOST);
    own_client *client = open_first(r->shards, ADDRESS, &hosts);
    use_everywhere(r, client);
    assert_true(atomic_load(&hosts.wanted) >= SHARDS);
}

/* Then they are where the one is that was asked. */
RING_CASE(found_where_the_first_is) {
    struct hosts hosts = {.host = "localhost"}; /* as the url has it, and nobody else */
    announce(r->shards, "unknown-endpoint", "", NULL);
    own_client *client = open_first(r->shards, "localhost", &hosts);
    use_everywhere(r, client);
    assert_true(atomic_load(&hosts.wanted) >= SHARDS);
    assert_int_equal(atomic_load(&hosts.others), 0);
}

/* They are to be known by names, and have none. */
RING_CASE(nameless) {
    struct hosts hosts = {.host = "?"};
    announce(r->shards, "hostname", "", "?");
    own_client *client = open_first(r->shards, ADDRESS, &hosts);
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    assert_non_null(strstr(hf_last_error()->text, "cluster-announce-hostname"));
    assert_int_equal(atomic_load(&hosts.wanted), 0);

    announce(r->shards, "ip", "", ADDRESS);
    assert_int_equal(hf_ping(client), HF_OK);
}

int main(void) {
    if (!server_is_7())
        return 77;
    return test_cases_run(ring_start, ring_stop);
}
