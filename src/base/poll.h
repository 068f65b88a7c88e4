/* Waiting for descriptors, whatever RLIMIT_NOFILE is by now. */
#ifndef HFI_BASE_POLL_H
#define HFI_BASE_POLL_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>

/* As ppoll(), with the timeout of poll(). `signals` NULL: the mask is unchanged. It also works
 * when RLIMIT_NOFILE has fallen below `len`, where poll() fails at once and a caller's loop
 * would spin. */
int hfi_poll(struct pollfd *fds, size_t len, int timeout_ms, const sigset_t *signals);

#endif
