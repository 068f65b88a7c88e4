/*
 * What src/base needs of the C library and of the kernel, without any library: compiled by
 * portable_*.sh in other ways than the rest, and run.
 *
 * A thread sleeps until its timer, in one piece; another wakes it before; an error is reported
 * in the system's words. Prints what was wrong and fails.
 */
#include "base/clock.h"
#include "base/error.h"
#include "task/task.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define SLEEP_MS 400

static int failures;

static void expect(bool fact, const char *what) {
    if (fact)
        return;
    printf("FAILED: %s\n", what);
    failures++;
}

/* How often this thread has gone to sleep, or was made to wait. */
static long pauses(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void fire(struct hfi_alarm *alarm) {
    (void)alarm;
}

static void sleep_until_the_timer(void) {
    struct hfi_exec exec;
    struct hfi_alarm alarm = {.fire = fire};
    hfi_exec_init(&exec);
    int64_t start_ms = hfi_now_ms();
    long before = pauses();
    hfi_alarm_set(&exec, &alarm, start_ms + SLEEP_MS);
    hfi_exec_sleep(&exec);
    expect(hfi_now_ms() - start_ms >= SLEEP_MS, "it sleeps until its timer");
    expect(pauses() - before < SLEEP_MS / 4, "it sleeps, and does not spin");
    expect(hfi_exec_run(&exec), "the timer is due");
    hfi_exec_destroy(&exec);
}

static void *wake(void *exec) {
    hfi_exec_wake(exec);
    return NULL;
}

static void sleep_until_woken(int64_t limit_ms) {
    struct hfi_exec exec;
    struct hfi_alarm alarm = {.fire = fire};
    pthread_t thread;
    hfi_exec_init(&exec);
    hfi_alarm_set(&exec, &alarm, limit_ms == HFI_NEVER ? HFI_NEVER : hfi_now_ms() + limit_ms);
    expect(pthread_create(&thread, NULL, wake, &exec) == 0, "a thread");
    int64_t start_ms = hfi_now_ms();
    hfi_exec_sleep(&exec);
    expect(hfi_now_ms() - start_ms < 60000, "it is woken before its timer");
    pthread_join(thread, NULL);
    hfi_alarm_clear(&exec, &alarm);
    hfi_exec_run(&exec);
    hfi_exec_destroy(&exec);
}

static void words(void) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail_errno(&error, HF_ESYS, ENOENT, "no luck");
    expect(strcmp(error.text, "no luck: No such file or directory") == 0, error.text);
    expect(error.sys_errno == ENOENT && error.code == HF_ESYS, "the codes are kept");
}

int main(void) {
    sleep_until_the_timer();
    sleep_until_woken(HFI_NEVER);
    sleep_until_woken(600000);
    sleep_until_woken((int64_t)100 * 365 * 86400 * 1000); /* more seconds than 31 bits hold */
    words();
    return failures != 0;
}
