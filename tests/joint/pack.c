/* Three servers, their proxies and clients, and one lock out of three; see pack.h. */
#include "joint/pack.h"

#include <inttypes.h>

const char *const pack_names[PACK] = {"a", "b", "c"};
static struct server *servers[PACK];

int pack_start_servers(void **state) {
    (void)state;
    for (int i = 0; i < PACK; i++)
        servers[i] = server_start(NULL);
    return 0;
}

int pack_stop_servers(void **state) {
    (void)state;
    for (int i = 0; i < PACK; i++)
        server_free(servers[i]);
    return 0;
}

hf_options pack_options(void) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 5000;
    options.connect_timeout_ms = 10000;
    options.watchdog_ms = 60000;
    return options;
}

/* Scripts are loaded and connections made. */
static void open_client(const char *url, const hf_options *options, const char *name,
                        hf_client **ret_client, hf_lock **ret_lock) {
    assert_int_equal(hf_open(url, options, ret_client), HF_OK);
    assert_int_equal(hf_lock_new(*ret_client, name, ret_lock), HF_OK);
    hf_acquire_options leased = fleet_wait_for(HF_FOREVER, 60000);
    assert_int_equal(hf_lock_acquire_with(*ret_lock, &leased, NULL), HF_OK);
    assert_int_equal(hf_lock_extend(*ret_lock, 60000), HF_OK);
    assert_int_equal(hf_lock_release(*ret_lock), HF_OK);
}

void pack_begin(struct pack *pack, const hf_options *given) {
    hf_options options = given != NULL ? *given : pack_options(), plain = pack_options();
    memset(pack, 0, sizeof *pack);
    for (int i = 0; i < PACK; i++) {
        pack->server[i] = servers[i];
        if (server_pid(servers[i]) == 0)
            server_restart(servers[i]);
        cmd_ok(servers[i], "FLUSHALL");
        pack->proxy[i] = proxy_start(server_socket(servers[i]));
        open_client(server_url(servers[i]), &plain, pack_names[i], &pack->rival[i],
                    &pack->rival_lock[i]);
        open_client(proxy_url(pack->proxy[i]), &options, pack_names[i], &pack->client[i],
                    &pack->lock[i]);
        snprintf(pack->owner[i], sizeof pack->owner[i], "%s:%" PRIu64,
                 hf_client_id(pack->client[i]), hf_owner_self());
    }
    assert_int_equal(hf_lock_new_multi(pack->lock, PACK, &pack->all), HF_OK);
    assert_int_equal(hf_lock_acquire(pack->all), HF_OK); /* by the keepers' connections */
    assert_int_equal(hf_lock_release(pack->all), HF_OK);
}

void pack_end_anyhow(struct pack *pack) {
    hf_lock_free(pack->all);
    for (int i = 0; i < PACK; i++) {
        hf_lock_free(pack->lock[i]);
        hf_lock_free(pack->rival_lock[i]);
        assert_int_equal(hf_close(pack->client[i]), HF_OK);
        assert_int_equal(hf_close(pack->rival[i]), HF_OK);
        proxy_free(pack->proxy[i]);
    }
}

void pack_end(struct pack *pack) {
    assert_true(pack_wait_free(pack, HANG_MS));
    pack_end_anyhow(pack);
}

/* ---- What the servers know ---- */

int pack_locked(struct pack *pack) {
    int count = 0;
    for (int i = 0; i < PACK; i++)
        if (server_pid(pack->server[i]) != 0)
            count += key_exists(pack->server[i], pack_names[i]);
    return count;
}

int pack_held(struct pack *pack) {
    int count = 0;
    for (int i = 0; i < PACK; i++)
        if (server_pid(pack->server[i]) != 0)
            count += cmd_int(pack->server[i], "HEXISTS %s %s", pack_names[i], pack->owner[i]) == 1;
    return count;
}

struct expectation {
    struct pack *pack;
    int names;
};

static bool are_locked(void *arg) {
    const struct expectation *expected = arg;
    return pack_locked(expected->pack) == expected->names;
}

bool pack_wait_locked(struct pack *pack, int names, int64_t limit_ms) {
    struct expectation expected = {pack, names};
    return wait_until(are_locked, &expected, limit_ms);
}

bool pack_wait_free(struct pack *pack, int64_t limit_ms) {
    return pack_wait_locked(pack, 0, limit_ms);
}

void pack_occupy(struct pack *pack, int i) {
    assert_int_equal(hf_lock_acquire(pack->rival_lock[i]), HF_OK);
}

void pack_vacate(struct pack *pack, int i) {
    assert_int_equal(hf_lock_release(pack->rival_lock[i]), HF_OK);
}

hf_lock *pack_all_of(hf_client *client, any_kind kind, const char *const *names, size_t len) {
    hf_lock *members[HF_MULTI_MAX] = {0}, *all;
    for (size_t i = 0; i < len; i++)
        assert_int_equal(new_lock(client, kind, names[i], strlen(names[i]), &members[i]), HF_OK);
    assert_int_equal(hf_lock_new_multi(members, len, &all), HF_OK);
    for (size_t i = 0; i < len; i++)
        hf_lock_free(members[i]);
    return all;
}
