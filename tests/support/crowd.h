/* Threads or callbacks that contend: they start, enter a place one at a time, and end.
 *
 *     struct crowd crowd = {0};
 *     for (int i = 0; i < THREADS; i++)
 *         crowd_add(&crowd, take_and_release, &workers[i]);
 *     crowd_end(&crowd);
 *     crowd_assert_exclusive(&crowd);
 *
 * Include as "support/crowd.h". A crowd begins as zeroes. The body of a thread must not use cmocka's assertions: it
 * counts a failure with crowd_expect(). */
#ifndef HF_TEST_CROWD_H
#define HF_TEST_CROWD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define CROWD_PLACES 8

struct crowd {
    pthread_t *threads;
    size_t len;
    atomic_bool over;                /* a body that loops ends when this is set */
    atomic_int inside[CROWD_PLACES]; /* of each place: threads that are in it */
    atomic_int clashes;              /* a thread entered a place that was not empty */
    atomic_int entered;              /* any place */
    atomic_int failures;
};

/* Starts one more thread. */
void crowd_add(struct crowd *crowd, void *(*body)(void *), void *arg);

/* Waits until all threads have ended; each body has returned `result`. More may be added afterwards. */
void crowd_join_with(struct crowd *crowd, void *result);
void crowd_join(struct crowd *crowd); /* NULL */
void crowd_end(struct crowd *crowd);  /* sets `over` first */

/* ---- In a thread or a callback ---- */

/* Counts a clash if another one is there. */
void crowd_enter(struct crowd *crowd, size_t place);
void crowd_leave(struct crowd *crowd, size_t place);
void crowd_visit(struct crowd *crowd); /* place 0, for no time */

/* Counts a failure unless this is true, and returns it. */
bool crowd_expect(struct crowd *crowd, bool good);

/* ---- Afterwards ---- */

/* Somebody was inside, never two at once, and nothing failed. */
void crowd_assert_exclusive(struct crowd *crowd);

#endif
