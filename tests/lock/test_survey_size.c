/*
 * A survey of a large fleet: every lock of every client is reported, and no server command builds
 * one long list. bench/fleet/run measures the time; `make soak` has ten times as many.
 */
#include "support/world.h"

#include <sys/socket.h>
#include <sys/un.h>

#define STRANGER "eeeeeeee-0000-4000-8000-00000000000e"

enum { IDLE_MAX = 500, LOCKS = 10 };

static const hf_fleet_lock *find(const hf_fleet *fleet, const char *name) {
    for (size_t i = 0; i < fleet->locks_len; i++)
        if (strcmp(fleet->locks[i]->name, name) == 0)
            return fleet->locks[i];
    return NULL;
}

static int connect_raw(struct server *server) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", server_socket(server));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static bool are_connected(void *arg) {
    return server_clients(arg) > IDLE_MAX;
}

/* Then they are looked for by their numbers, and all are found: who is connected, and who is not. */
WORLD_CASE_WITH(many_connections_are_not_one_list, world_options(), options.report_after_ms = -1) {
    /* nobody answers: all that is known are connections */
    int idle[IDLE_MAX];
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    freeReplyObject(cmd(w->server, "HSET gone " STRANGER ":4294967296 1"));
    for (int i = 0; i < IDLE_MAX; i++)
        idle[i] = connect_raw(w->server);
    assert_true(wait_until(are_connected, w->server, HANG_MS));

    long long lists = server_calls(w->server, "client|list");
    hf_fleet *fleet = NULL;
    assert_int_equal(hf_survey(w->rival, NULL, &fleet), HF_OK);
    bool counted_together = server_calls(w->server, "client") > 0; /* before Redis 7 */
    assert_true(counted_together || server_calls(w->server, "client|list") - lists > 1);
    assert_int_equal(fleet->missing & HF_MISSING_CONNECTIONS, 0);
    assert_int_equal(find(fleet, WORLD_NAME)->holders[0]->presence, HF_PRESENCE_CONNECTED);
    assert_int_equal(find(fleet, "gone")->holders[0]->presence, HF_PRESENCE_GONE);
    hf_fleet_free(fleet);

    for (int i = 0; i < IDLE_MAX; i++)
        close(idle[i]);
}

struct expected {
    hf_client *asker;
    size_t clients;
};

static bool all_are_notified(void *arg) {
    const struct expected *expected = arg;
    own_fleet *fleet = NULL;
    size_t alive = 0, clients = 0;
    assert_int_equal(hf_survey(expected->asker, NULL, &fleet), HF_OK);
    for (size_t i = 0; i < fleet->locks_len; i++)
        alive += fleet->locks[i]->holders_len == 1 && !fleet->locks[i]->disputed &&
                 fleet->locks[i]->holders[0]->presence == HF_PRESENCE_ALIVE;
    for (size_t i = 0; i < fleet->clients_len; i++)
        clients += fleet->clients[i]->presence == HF_PRESENCE_ALIVE;
    bool all = fleet->missing == 0 && fleet->locks_len == expected->clients * LOCKS &&
               alive == fleet->locks_len && clients == expected->clients;
    return all;
}

CASE(every_lock_of_every_client_is_reported) {
    OWN(world_end) struct world w;
    size_t clients = getenv("HF_SOAK") != NULL ? 400 : 40;
    hf_client **all = calloc(clients, sizeof(hf_client *));
    hf_options options = world_options();
    options.report_after_ms = 0;
    assert_non_null(all);
    world_begin(&w, NULL);
    for (size_t i = 0; i < clients; i++) {
        assert_int_equal(hf_open(server_url(w.server), &options, &all[i]), HF_OK);
        for (int k = 0; k < LOCKS; k++) {
            char name[32];
            own_lock *lock = NULL;
            snprintf(name, sizeof name, "held-%zu-%d", i, k);
            assert_int_equal(hf_lock_new(all[i], name, &lock), HF_OK);
            assert_int_equal(hf_lock_acquire(lock), HF_OK);
        }
    }
    struct expected expected = {.asker = w.rival, .clients = clients};
    assert_true(wait_until(all_are_notified, &expected, HANG_MS));
    for (size_t i = 0; i < clients; i++)
        hf_close(all[i]);
    free(all);
}

RUN_CASES(world_start_server, world_stop_server)
