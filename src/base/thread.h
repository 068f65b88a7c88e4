/* Starting threads of our own. */
#ifndef HFI_BASE_THREAD_H
#define HFI_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread with every signal blocked, since signals are the application's business, and with
 * a stack that is large enough for us and for a callback, whatever the process' default is. With
 * `ret_thread` NULL it is detached. Returns an errno, 0 for success. */
int hfi_thread_start(pthread_t *ret_thread, void *(*body)(void *arg), void *arg);

#endif
