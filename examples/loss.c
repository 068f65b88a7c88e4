/*
 * Work in slices, and stop when the lock is lost.
 *
 *     cc loss.c $(pkg-config --cflags --libs holdfast)
 *     ./loss redis://localhost               (without a url: HOLDFAST_URL)
 *
 * A lock can end early: the server lost it, another client broke it, or it was not renewed in time.
 * This program shows two ways to learn of it: a callback, which first gets a warning, and a
 * descriptor for programs that poll. Try `holdfast unlock --force example` while it works. It exits
 * with 3 if the lock was lost.
 */
#include <holdfast/holdfast.h>

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>

enum { SLICES = 600, SLICE_MS = 100, EXIT_LOST = 3 };

/* Runs on the library's dispatch thread. The descriptor below reports the loss itself. */
static void on_hold_event(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    (void)user;
    if (event->kind == HF_EVENT_WARNING)
        fprintf(stderr, "in danger, %lld ms left: %s\n", (long long)event->remaining_ms,
                event->reason);
}

/* One piece of work, here a pause. False: the lock was lost meanwhile. */
static bool work_a_slice(int lost_fd) {
    struct pollfd lost = {.fd = lost_fd, .events = POLLIN};
    return poll(&lost, 1, SLICE_MS) == 0;
}

static int work_alone(hf_lock *lock) {
    int err = hf_lock_on_lost(lock, on_hold_event, NULL);
    int lost_fd = hf_lock_lost_fd(lock);
    if (err == HF_OK && lost_fd < 0)
        err = lost_fd;
    if (err == HF_OK)
        err = hf_lock_acquire_for(lock, 5000);
    if (err != HF_OK)
        return err;

    printf("working\n");
    fflush(stdout);
    for (int i = 0; i < SLICES && work_a_slice(lost_fd); i++)
        continue;
    return hf_lock_release(lock); /* HF_ELOST if it was */
}

int main(int argc, char **argv) {
    char text[HF_ERROR_FORMAT_MAX];
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    int err = hf_open(argc > 1 ? argv[1] : NULL, NULL, &client);
    if (err == HF_OK)
        err = hf_lock_new(client, "example", &lock);
    if (err == HF_OK)
        err = work_alone(lock);

    if (err == HF_ELOST)
        printf("lost: what was done has to be checked\n");
    else if (err != HF_OK)
        fprintf(stderr, "%s\n", hf_error_format(NULL, text, sizeof text));
    hf_lock_free(lock);
    hf_close(client);
    return err == HF_OK ? 0 : err == HF_ELOST ? EXIT_LOST : 1;
}
