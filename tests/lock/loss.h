/* What the tests of losses share: a world with a watchdog of its own, one way to lose a hold, and
 * the sign of it on a descriptor.
 *
 * Included by test_loss*.c alone. */
#ifndef HF_TEST_LOCK_LOSS_H
#define HF_TEST_LOCK_LOSS_H

#include "support/world.h"

#include <poll.h>

static inline void loss_begin(struct world *w, int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    world_begin(w, &options);
}
#define LOSS_CASE(name, watchdog_ms)                                                               \
    CASE_IN(name, struct world, w, loss_begin, world_end, watchdog_ms)

static inline bool loss_is_readable(int fd, int64_t limit_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, (int)limit_ms) == 1;
}

/* Found by the next renewal. */
static inline void loss_by_del(struct world *w) {
    server_drop(w->server, WORLD_NAME);
}

/* Known at once. */
static inline void loss_by_own_break(struct world *w) {
    bool broken = false;
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
    assert_true(broken);
}

#endif
