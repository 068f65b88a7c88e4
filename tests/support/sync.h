/* A mutex with a condition on a steady clock, and threads that get no signals.
 *
 * It is for the rest of the test support. Timed waits of pthreads follow the wall clock by
 * default, and a test may be about a wall clock that jumps. */
#ifndef HF_TEST_SYNC_H
#define HF_TEST_SYNC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sync {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

void sync_init(struct sync *sync);
void sync_destroy(struct sync *sync);
void sync_lock(struct sync *sync);
void sync_unlock(struct sync *sync);

/* With the mutex held: waits for a change until `end_ms` of now_ms(). False once it is past. */
bool sync_wait(struct sync *sync, int64_t end_ms);

/* With the mutex held: wakes everybody who waits. */
void sync_changed(struct sync *sync);

/* Starts a thread that has every signal blocked, so a test's signals meet only the test's own
 * threads. */
pthread_t sync_thread(void *(*body)(void *), void *arg);

#endif
