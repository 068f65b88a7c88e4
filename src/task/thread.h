/* Starting the library's threads, and disabling pthread_cancel() for the application's. */
#ifndef HFI_TASK_THREAD_H
#define HFI_TASK_THREAD_H

#include <pthread.h>

/* Starts a thread with every signal blocked, since signals belong to the application. Its stack
 * is large enough for us and for a callback, whatever the process' default is. If `ret_thread`
 * is NULL it is detached. Returns an errno, 0 for success. */
int hfi_thread_start(pthread_t *ret_thread, void *(*body)(void *arg), void *arg);

/* A thread cancelled inside the library would keep our mutexes. disable returns the state for
 * restore. */
int hfi_thread_cancel_disable(void);
void hfi_thread_cancel_restore(int state);

#endif
