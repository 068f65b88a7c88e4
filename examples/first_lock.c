/*
 * The first lock: wait for it up to five seconds, work, release it.
 *
 *     cc first_lock.c $(pkg-config --cflags --libs holdfast)
 *     ./first_lock redis://localhost          (without a url: HOLDFAST_URL)
 *
 * Run it in two terminals at once: the second waits for the first.
 */
#include <holdfast/holdfast.h>

#include <stdio.h>
#include <unistd.h>

static int work(void) {
    printf("working\n");
    fflush(stdout);
    return sleep(1) == 0 ? HF_OK : HF_ECANCELED;
}

static int work_alone(hf_client *client) {
    hf_lock *lock;
    int err = hf_lock_new(client, "example", &lock);
    if (err != HF_OK)
        return err;

    err = hf_lock_acquire_for(lock, 5000);
    if (err == HF_OK) {
        work();
        err = hf_lock_release(lock); /* HF_ELOST: another may have worked at the same time */
    }
    hf_lock_free(lock);
    return err;
}

int main(int argc, char **argv) {
    char text[HF_ERROR_FORMAT_MAX];
    hf_client *client = NULL;
    int err = hf_open(argc > 1 ? argv[1] : NULL, NULL, &client);
    if (err == HF_OK)
        err = work_alone(client);

    if (err == HF_ETIMEDOUT)
        fprintf(stderr, "another process holds the lock\n");
    else if (err != HF_OK)
        fprintf(stderr, "%s\n", hf_error_format(NULL, text, sizeof text));
    hf_close(client);
    return err == HF_OK ? 0 : 1;
}
