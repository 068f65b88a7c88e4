/*
 * Threads or callbacks that contend; see crowd.h.
 *
 * crowd_add() and what waits for threads are for one thread, the test's; all else is for any.
 */
#include "support/crowd.h"

#include "support/case.h"
#include "support/wait.h"

void crowd_add(struct crowd *crowd, void *(*body)(void *), void *arg) {
    pthread_t *threads = realloc(crowd->threads, (crowd->len + 1) * sizeof *threads);
    if (threads == NULL)
        support_die("no memory for a thread");
    crowd->threads = threads;
    assert_int_equal(pthread_create(&threads[crowd->len], NULL, body, arg), 0);
    crowd->len++;
}

/* All of them are joined before one is judged: none is left behind with what the test is about to end. */
void crowd_join_with(struct crowd *crowd, void *result) {
    size_t others = 0;
    for (size_t i = 0; i < crowd->len; i++) {
        void *returned = NULL;
        assert_int_equal(pthread_join(crowd->threads[i], &returned), 0);
        others += returned != result;
    }
    free(crowd->threads);
    crowd->threads = NULL;
    crowd->len = 0;
    assert_int_equal(others, 0);
}

void crowd_join(struct crowd *crowd) {
    crowd_join_with(crowd, NULL);
}

void crowd_end(struct crowd *crowd) {
    atomic_store(&crowd->over, true);
    crowd_join(crowd);
}

void crowd_enter(struct crowd *crowd, size_t place) {
    if (atomic_fetch_add(&crowd->inside[place], 1) != 0)
        atomic_fetch_add(&crowd->clashes, 1);
    atomic_fetch_add(&crowd->entered, 1);
}

void crowd_leave(struct crowd *crowd, size_t place) {
    atomic_fetch_sub(&crowd->inside[place], 1);
}

void crowd_visit(struct crowd *crowd) {
    crowd_enter(crowd, 0);
    crowd_leave(crowd, 0);
}

bool crowd_expect(struct crowd *crowd, bool good) {
    if (!good)
        atomic_fetch_add(&crowd->failures, 1);
    return good;
}

void crowd_assert_exclusive(struct crowd *crowd) {
    assert_int_equal(atomic_load(&crowd->clashes), 0);
    assert_int_equal(atomic_load(&crowd->failures), 0);
    assert_true(atomic_load(&crowd->entered) > 0);
}
