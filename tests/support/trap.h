/* A signal handler that does not return until it is asked to.
 *
 * Include as "support/trap.h". It stands for any thread of the application that stops where it is: in a
 * handler of its own, under a debugger, without a processor. */
#ifndef HF_TEST_TRAP_H
#define HF_TEST_TRAP_H

#include <pthread.h>

void trap_set(void);
/* Returns when the thread is in the handler. */
void trap_catch(pthread_t thread);
void trap_wait(void);    /* until one more thread is in it, for one that signals itself */
void trap_release(void); /* one of them */

#endif
