/* The exit status of `holdfast run`: the command's own, 128+n for a signal, 79 (STATUS_LOST) if the
 * lock was lost, 124 if the command timed out, 126 and 127 if it could not be started. If the lock
 * was not acquired, held_failed() decides: 75 (STATUS_BUSY) or the status of -E.
 *
 * Called by the holder, and by the guard when it ends the command alone, each on its main thread. */
#include "run/holder.h"

#include <errno.h>
#include <sys/wait.h>

int exit_status_not_started(int error) {
    return error == ENOENT                      ? STATUS_NOT_FOUND
           : error == EAGAIN || error == ENOMEM ? STATUS_OS
                                                : STATUS_NOT_RUNNABLE;
}

void exit_status_decide(struct holder *h) {
    bool signalled = !h->start_status && WIFSIGNALED(h->wait_status);
    h->endangered |= atomic_load(&h->shared->warned); /* The guard may have sent it first. */
    h->killed_by = signalled ? WTERMSIG(h->wait_status) : 0;
    if (h->start_status != 0)
        h->status = h->start_status;
    else if ((h->doomed || h->endangered) && !h->options->preserve_status)
        h->status = STATUS_LOST;
    else if (h->timed_out_ms != 0 && h->killed_by != SIGKILL && !h->options->preserve_status)
        h->status = STATUS_TIMED_OUT; /* like timeout(1), a SIGKILL is reported as such */
    else
        h->status = signalled ? STATUS_SIGNAL + h->killed_by : WEXITSTATUS(h->wait_status);
}

/* HF_ELOST: perhaps lost before the command ended. Any other failure is harmless: the command has
 * run to its end under the lock, and the lease will expire. */
void exit_status_released(struct holder *h, int code) {
    if (code == HF_ELOST && h->interrupted == 0 && h->start_status == 0 && !h->lingered &&
        !h->options->preserve_status)
        h->status = STATUS_LOST;
}

int exit_status_without_holder(const struct run_options *options, bool ended, int wait_status) {
    if (!ended || !options->preserve_status)
        return STATUS_LOST;
    return WIFSIGNALED(wait_status) ? STATUS_SIGNAL + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}
