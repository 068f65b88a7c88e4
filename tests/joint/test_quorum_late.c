/* Servers of a quorum that answer late: however late within `cmd_timeout_ms`, a free majority is won. */
#include "joint/fleet.h"

/* Two are another owner's for ever, one answers at once, and two late, but not at the same time. A
 * round waits longer each time, until both grants meet in one. Each server is the early one once:
 * so once that is the first in the order of this name, whose grant is kept for a while. */
FLEET_CASE(late_grants_meet_in_one_round) {
    enum { MANY = 100 }; /* it is 25; without the back-off some 30 a second */
    own_lock *lock = made(hf_lock_new, f->client, "taken");
    for (int early = 0; early < FLEET; early++) {
        for (int i = 1; i <= 2; i++)
            cmd_ok(f->server[(early + i) % FLEET], "HSET taken another:1 1");
        proxy_delay(f->proxy[(early + 3) % FLEET], "", 500);
        proxy_delay(f->proxy[(early + 4) % FLEET], "", 900);
        long long before = server_calls(f->server[early], "evalsha");
        assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
        assert_true(server_calls(f->server[early], "evalsha") - before < MANY);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        for (int i = 1; i <= 4; i++)
            proxy_heal(f->proxy[(early + i) % FLEET]);
        for (int i = 1; i <= 2; i++)
            cmd_ok(f->server[(early + i) % FLEET], "HDEL taken another:1");
    }
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
