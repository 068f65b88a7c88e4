/* How old servers are, as their connections tell: in whole seconds, so differently each time. */
#include "joint/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next connection through this proxy hears that the server, the same as before, has been up for one
 * second. */
static void seem_young(struct fleet *f, int i) {
    char *info = cmd_str(f->server[i], "INFO server");
    char *up = strstr(info, "uptime_in_seconds:");
    assert_non_null(up);
    char reply[8192];
    int len = snprintf(reply, sizeof reply, "%.*suptime_in_seconds:1%s", (int)(up - info), info,
                       strchr(up, '\r'));
    assert_in_range(len, 1, (int)sizeof reply - 1);
    char bytes[8300];
    int total = snprintf(bytes, sizeof bytes, "$%d\r\n%s\r\n", len, reply);
    proxy_forge_reply(f->proxy[i], "\r\nINFO\r\n", bytes, (size_t)total);
    free(info);
}

static void no_server_grows_younger(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    hf_options options = fleet_options();
    options.restart_guard_ms = 2000;
    fleet_begin(&f, &options);
    assert_int_equal(hf_lock_on_lost(f.lock, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    for (int i = 0; i < FLEET; i++)
        seem_young(&f, i);
    for (int i = 0; i < FLEET; i++)
        assert_true(proxy_cut_all(f.proxy[i]) > 0);
    for (int i = 0; i < FLEET; i++)
        assert_true(proxy_wait_fired(f.proxy[i], 1, HANG_MS));
    assert_int_equal(hf_lock_extend(f.lock, 60000), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    fleet_end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_server_grows_younger),
    };
    return cmocka_run_group_tests_name("quorum_age", tests, fleet_start_servers,
                                       fleet_stop_servers);
}
