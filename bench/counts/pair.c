/*
 * Pairs of one thread, for bench/counts/run to count what they cost: nothing is measured here.
 *
 *   hf_bench_counts URL KIND PAIRS
 *
 * KIND is plain, fenced, fair, string or semaphore. Public header only.
 */
#include <holdfast/holdfast.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "hf_bench_counts: %s: %s\n", what, hf_last_error()->text);
    return EXIT_FAILURE;
}

static int lock_pairs(hf_client *client, const char *kind, long pairs) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    if (strcmp(kind, "fair") == 0)
        options.kind = HF_FAIR;
    else if (strcmp(kind, "string") == 0)
        options.kind = HF_STRING;
    else if (strcmp(kind, "fenced") == 0)
        options.flags = HF_FENCED;
    hf_lock *lock = NULL;
    int err = hf_lock_new_with(client, "counts", strlen("counts"), &options, &lock);
    for (long i = 0; i < pairs && err == HF_OK; i++) {
        err = hf_lock_acquire(lock);
        if (err == HF_OK)
            err = hf_lock_release(lock);
    }
    hf_lock_free(lock);
    return err;
}

static int semaphore_pairs(hf_client *client, long pairs) {
    hf_sem *sem = NULL;
    int err = hf_sem_new(client, "counts-semaphore", &sem);
    if (err == HF_OK)
        err = hf_sem_try_set(sem, 1, 0, NULL);
    for (long i = 0; i < pairs && err == HF_OK; i++) {
        err = hf_sem_acquire(sem, 1);
        if (err == HF_OK)
            err = hf_sem_release(sem, 1);
    }
    hf_sem_free(sem);
    return err;
}

int main(int argc, char **argv) {
    hf_client *client = NULL;
    if (argc != 4) {
        fprintf(stderr, "usage: hf_bench_counts URL KIND PAIRS\n");
        return EXIT_FAILURE;
    }
    const char *kind = argv[2];
    long pairs = strtol(argv[3], NULL, 10);
    int err = hf_open(argv[1], NULL, &client);
    if (err != HF_OK)
        return fail("open");
    if (strcmp(kind, "semaphore") == 0)
        err = semaphore_pairs(client, pairs);
    else
        err = lock_pairs(client, kind, pairs);
    if (err != HF_OK)
        return fail(kind);
    hf_close(client);
    return EXIT_SUCCESS;
}
