/*
 * The library under remote control, as tests/peers/README.md tells of the other libraries' actors: lines "ID command"
 * on standard input, "ID answer" on standard output, one command at a time.
 *
 *     open H KIND NAME LEASE_MS URL...   KIND: plain, fenced, fair, write or string; a watchdog of LEASE_MS
 *     cancel H                           begins an acquire, and cancels it at any moment of it: "ok"
 *     try H                              "ok TOKEN" or "busy"
 *     remaining H                        "ok MS": how long the hold can be trusted, as the application would ask
 *     release H                          "ok" or "lost"
 *
 * Its one thread is the owner.
 */
#include "lab.h"

#include "support/wait.h"

#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hf_client *client;
static hf_lock *lock;

static int open_lock(char *words) {
    char kind[16], name[64];
    int lease_ms = 0, read = 0;
    if (sscanf(words, "h %15s %63s %d %n", kind, name, &lease_ms, &read) != 3)
        return HF_EINVAL;
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = lease_ms;
    options.cmd_timeout_ms = 1000;
    options.connect_timeout_ms = 2000;
    int err = hf_open(words + read, &options, &client);
    if (err != HF_OK)
        return err;
    hf_lock_options lock_options = HF_LOCK_OPTIONS_INIT;
    lock_options.flags = strcmp(kind, "fenced") == 0 ? HF_FENCED : 0;
    lock_options.kind = strcmp(kind, "fair") == 0     ? HF_FAIR
                        : strcmp(kind, "write") == 0  ? HF_WRITE
                        : strcmp(kind, "string") == 0 ? HF_STRING
                                                      : HF_PLAIN;
    return hf_lock_new_with(client, name, strlen(name), &lock_options, &lock);
}

/* If it was granted all the same, the caller knows, and releases it. */
static int acquire_and_cancel(void) {
    static unsigned seed = 1;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.owner = hf_owner_self();
    int err = hf_lock_acquire_start(lock, &options, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    linger(rand_r(&seed) % 2);
    hf_op_cancel(op);
    if (hf_op_wait(op, HF_FOREVER, NULL) == HF_OK)
        err = hf_lock_release(lock);
    hf_op_free(op);
    return err;
}

static void obey(const char *id, char *command) {
    if (strcmp(command, "ping") == 0) {
        printf("%s ok\n", id);
    } else if (strncmp(command, "open ", 5) == 0) {
        int err = open_lock(command + 5);
        printf("%s %s %s\n", id, err == HF_OK ? "ok" : "err", err == HF_OK ? "" : hf_strerror(err));
    } else if (lock == NULL) {
        printf("%s err nothing is open\n", id);
    } else if (strcmp(command, "try h") == 0) {
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        hf_result result = HF_RESULT_INIT;
        options.wait_ms = 0;
        int err = hf_lock_acquire_with(lock, &options, &result);
        if (err == HF_OK)
            printf("%s ok %" PRId64 "\n", id, result.token);
        else
            printf("%s %s\n", id, err == HF_EBUSY ? "busy" : hf_strerror(err));
    } else if (strcmp(command, "cancel h") == 0) {
        printf("%s %s\n", id, acquire_and_cancel() == HF_OK ? "ok" : "err");
    } else if (strcmp(command, "remaining h") == 0) {
        printf("%s ok %" PRId64 "\n", id, hf_lock_remaining_ms(lock));
    } else if (strcmp(command, "release h") == 0) {
        printf("%s %s\n", id, hf_lock_release(lock) == HF_OK ? "ok" : "lost");
    } else {
        printf("%s err no such command\n", id);
    }
}

int lab_actor(void) {
    char line[2048];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *space = strchr(line, ' ');
        if (space == NULL)
            continue;
        *space = '\0';
        obey(line, space + 1);
    }
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}
