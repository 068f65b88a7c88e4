/*
 * Name lookups: they never block who asks, end on time, and leave nothing behind when they are
 * dropped.
 *
 * The resolvers are real where names are concerned; where a resolver has to hang, the test has one
 * that waits for the test's word.
 */
#include "net/lookup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/error.h"
#include "support/case.h"
#include "support/wait.h"

/* ---- Helpers --------------------------------------------------------------------------------- */

struct outcome {
    int err;
    size_t count;
    struct hfi_addr addrs[HFI_LOOKUP_MAX_ADDRS];
    hf_error error;
};

static bool poll_into(struct hfi_lookup *lookup, struct outcome *ret) {
    return hfi_lookup_poll(lookup, &ret->err, ret->addrs, HFI_LOOKUP_MAX_ADDRS, &ret->count,
                           &ret->error);
}

struct awaited {
    struct hfi_lookup *lookup;
    struct outcome *outcome;
};

static bool has_finished(void *arg) {
    const struct awaited *awaited = arg;
    return poll_into(awaited->lookup, awaited->outcome);
}

static void start(hfi_resolve_fn resolve, const char *target, int64_t deadline_ms,
                  void (*notify)(void *arg), void *arg, struct hfi_lookup **ret) {
    hf_error error = {0};
    assert_int_equal(hfi_lookup_start(resolve, target, deadline_ms, notify, arg, ret, &error),
                     HF_OK);
}

static void finish(struct hfi_lookup *lookup, struct outcome *ret) {
    memset(ret, 0, sizeof *ret);
    assert_true(wait_until(has_finished, &(struct awaited){lookup, ret}, HANG_MS));
}

/* A resolver under the test's control. The lookup has room for one string only, so it finds these
 * here. */
static struct {
    sem_t entered, may_return, returned;
    char target[64];
    sigset_t mask;
} local_queue;

static int gate_reset(void **state) {
    (void)state;
    memset(&local_queue, 0, sizeof local_queue);
    sem_init(&local_queue.entered, 0, 0);
    sem_init(&local_queue.may_return, 0, 0);
    sem_init(&local_queue.returned, 0, 0);
    return 0;
}

static void wait_for(sem_t *sem) {
    while (sem_wait(sem) < 0)
        assert_int_equal(errno, EINTR);
}

static int resolve_when_asked(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                              size_t cap, size_t *ret_count, hf_error *error) {
    (void)deadline_ms;
    (void)error;
    snprintf(local_queue.target, sizeof local_queue.target, "%s", target);
    pthread_sigmask(SIG_SETMASK, NULL, &local_queue.mask);
    sem_post(&local_queue.entered);
    while (sem_wait(&local_queue.may_return) < 0)
        continue;
    for (size_t i = 0; i < cap; i++)
        hfi_addr_numeric("127.0.0.1", (uint16_t)(i + 1), &ret_addrs[i]);
    *ret_count = cap;
    sem_post(&local_queue.returned);
    return HF_OK;
}

static int resolve_to_error(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                            size_t cap, size_t *ret_count, hf_error *error) {
    (void)deadline_ms;
    (void)ret_addrs;
    (void)cap;
    (void)ret_count;
    return hfi_fail(error, HF_EPERM, "not %s", target);
}

static atomic_int notified;

static void count_notify(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

static bool was_notified(void *arg) {
    return atomic_load((atomic_int *)arg) > 0;
}

static int resolve_at_once(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                           size_t cap, size_t *ret_count, hf_error *error) {
    (void)target;
    (void)deadline_ms;
    (void)cap;
    (void)error;
    *ret_count = hfi_addr_numeric("::1", 1, &ret_addrs[0]) ? 1 : 0;
    return HF_OK;
}

static int start_without_threads(void *arg) {
    (void)arg;
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || setuid(65534) != 0) /* root is above the limit */
        return 2;
    struct hfi_lookup *lookup = NULL;
    hf_error error = {0};
    int err = hfi_lookup_start(resolve_at_once, "x", HFI_NEVER, NULL, NULL, &lookup, &error);
    return err == HF_ESYS && lookup == NULL && error.sys_errno == EAGAIN ? 0 : 3;
}

/* First: TSan wants no fork after threads. */
CASE(no_thread_is_an_error) {
    if (geteuid() != 0)
        skip(); /* the limit counts all processes of the user, and would be felt by others */
    assert_true(expect_exit(run_child(start_without_threads, NULL), 0, HANG_MS));
}

/* ---- The life of a lookup -------------------------------------------------------------------- */

CASE_AROUND(finishes_and_notifies, gate_reset, NULL) {
    struct hfi_lookup *lookup;
    struct outcome outcome = {.err = 77, .count = 77};
    char target[] = "somewhere 1";
    atomic_store(&notified, 0);
    start(resolve_when_asked, target, HFI_NEVER, count_notify, &notified, &lookup);
    target[0] = '!'; /* it has a copy */
    wait_for(&local_queue.entered);
    assert_false(poll_into(lookup, &outcome));
    assert_int_equal(outcome.err, 77);
    assert_int_equal(outcome.count, 77);
    assert_int_equal(atomic_load(&notified), 0);

    sem_post(&local_queue.may_return);
    assert_true(wait_until(was_notified, &notified, HANG_MS));
    assert_true(poll_into(lookup, &outcome)); /* a notified waiter finds it finished */
    assert_int_equal(outcome.err, HF_OK);
    assert_int_equal(outcome.count, HFI_LOOKUP_MAX_ADDRS);
    assert_string_equal(local_queue.target, "somewhere 1");

    struct outcome few = {.count = 77};
    assert_true(hfi_lookup_poll(lookup, &few.err, few.addrs, 2, &few.count, NULL));
    assert_int_equal(few.count, 2);
    assert_memory_equal(few.addrs, outcome.addrs, 2 * sizeof few.addrs[0]);
    hfi_lookup_drop(lookup);
    assert_int_equal(atomic_load(&notified), 1);
}

CASE(error_comes_through) {
    struct hfi_lookup *lookup;
    struct outcome outcome;
    start(resolve_to_error, "x", HFI_NEVER, NULL, NULL, &lookup);
    finish(lookup, &outcome);
    assert_int_equal(outcome.err, HF_EPERM);
    assert_int_equal(outcome.error.code, HF_EPERM);
    assert_string_equal(outcome.error.text, "not x");
    assert_int_equal(outcome.count, 0);
    hfi_lookup_drop(lookup);
}

CASE_AROUND(deadline_ends_it, gate_reset, NULL) {
    struct hfi_lookup *lookup;
    struct outcome outcome;
    int64_t deadline_ms = hfi_now_ms() + 50;
    start(resolve_when_asked, "x", deadline_ms, NULL, NULL, &lookup);
    wait_for(&local_queue.entered);
    finish(lookup, &outcome);
    assert_true(hfi_now_ms() >= deadline_ms);
    assert_int_equal(outcome.err, HF_EUNREACH);
    assert_non_null(strstr(outcome.error.text, "timed out"));

    sem_post(&local_queue.may_return); /* what comes later changes nothing */
    wait_for(&local_queue.returned);
    assert_true(poll_into(lookup, &outcome));
    assert_int_equal(outcome.err, HF_EUNREACH);
    hfi_lookup_drop(lookup);
}

CASE_AROUND(dropping_does_not_wait, gate_reset, NULL) {
    struct hfi_lookup *lookup;
    atomic_store(&notified, 0);
    start(resolve_when_asked, "x", HFI_NEVER, count_notify, &notified, &lookup);
    wait_for(&local_queue.entered);
    hfi_lookup_drop(lookup); /* would hang here for ever */
    sem_post(&local_queue.may_return);
    wait_for(&local_queue.returned);
    hfi_lookup_drop(NULL);
    assert_true(HOLDS_FOR(atomic_load(&notified) == 0, 20));
}

/* Notify must not run once drop has returned, however close the two come. Under the sanitizers this
 * also shows that nothing is used after it was freed. */
struct short_lived {
    atomic_bool alive;
    atomic_int late;
};

static void notice_if_late(void *arg) {
    struct short_lived *owner = arg;
    if (!atomic_load(&owner->alive))
        atomic_fetch_add(&owner->late, 1);
}

CASE(drop_races_notify) {
    static struct short_lived owner;
    for (int i = 0; i < 2000; i++) {
        struct hfi_lookup *lookup;
        atomic_store(&owner.alive, true);
        start(resolve_at_once, "x", HFI_NEVER, notice_if_late, &owner, &lookup);
        for (volatile int spin = i % 200 * 50; spin > 0; spin--)
            continue;
        struct outcome outcome;
        if (i % 3 == 0 && poll_into(lookup, &outcome))
            assert_int_equal(outcome.count, 1);
        hfi_lookup_drop(lookup);
        atomic_store(&owner.alive, false);
    }
    assert_int_equal(atomic_load(&owner.late), 0);
}

CASE_AROUND(signals_stay_with_the_application, gate_reset, NULL) {
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct hfi_lookup *lookup;
    start(resolve_when_asked, "x", HFI_NEVER, NULL, NULL, &lookup);
    wait_for(&local_queue.entered);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++) {
        if (number != SIGKILL && number != SIGSTOP)
            assert_int_equal(sigismember(&local_queue.mask, number), 1);
        assert_int_equal(sigismember(&after, number), sigismember(&before, number));
    }
    sem_post(&local_queue.may_return);
    wait_for(&local_queue.returned);
    hfi_lookup_drop(lookup);
}

/* ---- Hosts ----------------------------------------------------------------------------------- */

CASE(names_are_looked_up) {
    struct hfi_lookup *lookup;
    struct outcome outcome;
    start(hfi_resolve_host, "localhost 6379", HFI_NEVER, NULL, NULL, &lookup);
    finish(lookup, &outcome);
    assert_int_equal(outcome.err, HF_OK);
    assert_true(outcome.count >= 1);
    for (size_t i = 0; i < outcome.count; i++) {
        int family = outcome.addrs[i].sa.ss_family;
        assert_true(family == AF_INET || family == AF_INET6);
        assert_int_equal(outcome.addrs[i].len, family == AF_INET ? sizeof(struct sockaddr_in)
                                                                 : sizeof(struct sockaddr_in6));
    }
    hfi_lookup_drop(lookup);
}

CASE(numbers_need_no_server) {
    struct hfi_addr resolved[4], direct;
    size_t count = 0;
    static const char *const hosts[] = {"127.0.0.1", "::1", "2001:db8::7"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        own_text *target = text_of("%s 7000", hosts[i]);
        assert_int_equal(hfi_resolve_host(target, HFI_NEVER, resolved, 4, &count, NULL), HF_OK);
        assert_int_equal(count, 1);
        assert_true(hfi_addr_numeric(hosts[i], 7000, &direct));
        assert_int_equal(direct.len, resolved[0].len);
        assert_memory_equal(&direct.sa, &resolved[0].sa, direct.len);
    }
}

CASE(unknown_names_are_errors) {
    struct hfi_addr addrs[4];
    size_t count = 77;
    hf_error error = {0};
    /* Names that end in .invalid do not exist, by RFC 6761; this one is no valid name to begin
     * with, so that not even a resolver that answers everything is asked. */
    assert_int_equal(hfi_resolve_host("no..such.invalid 1", HFI_NEVER, addrs, 4, &count, &error),
                     HF_EUNREACH);
    assert_non_null(strstr(error.text, "no..such.invalid"));
    assert_int_equal(count, 77);
    static const char *const malformed[] = {"", "host", " 1", "host "};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++)
        assert_int_equal(hfi_resolve_host(malformed[i], HFI_NEVER, addrs, 4, &count, NULL),
                         HF_EINVAL);
}

CASE(numeric_addresses) {
    struct hfi_addr addr;
    assert_true(hfi_addr_numeric("10.1.2.3", 65535, &addr));
    struct sockaddr_in sin;
    memcpy(&sin, &addr.sa, sizeof sin);
    assert_int_equal(sin.sin_family, AF_INET);
    assert_int_equal(ntohs(sin.sin_port), 65535);
    assert_int_equal(ntohl(sin.sin_addr.s_addr), 0x0a010203);

    assert_true(hfi_addr_numeric("fe80::1%lo", 1, &addr));
    struct sockaddr_in6 sin6;
    memcpy(&sin6, &addr.sa, sizeof sin6);
    assert_int_equal(sin6.sin6_family, AF_INET6);
    assert_int_not_equal(sin6.sin6_scope_id, 0);
    assert_true(hfi_addr_numeric("fe80::1%7", 1, &addr));
    memcpy(&sin6, &addr.sa, sizeof sin6);
    assert_int_equal(sin6.sin6_scope_id, 7);

    static const char *const names[] = {"localhost",      "",           "1.2.3",
                                        "1.2.3.4.5",      "[::1]",      "::1%",
                                        "::1%nosuchlink", "1.2.3.4%lo", "12345:::1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        memset(&addr, 0x5a, sizeof addr);
        if (hfi_addr_numeric(names[i], 1, &addr))
            fail_msg("'%s' is taken for a number", names[i]);
        assert_int_equal(addr.len, 0x5a5a5a5a);
    }
}

CASE(unix_addresses) {
    struct hfi_addr addr;
    struct sockaddr_un un;
    char path[sizeof un.sun_path + 1];
    memset(path, 'x', sizeof path);
    path[sizeof un.sun_path - 1] = '\0';
    assert_int_equal(hfi_addr_unix(path, &addr), HF_OK);
    memcpy(&un, &addr.sa, sizeof un);
    assert_int_equal(un.sun_family, AF_UNIX);
    assert_string_equal(un.sun_path, path);
    assert_int_equal(addr.len, sizeof un);
    assert_int_equal(hfi_addr_unix("/a", &addr), HF_OK);
    assert_int_equal(addr.len, offsetof(struct sockaddr_un, sun_path) + 3);

    path[sizeof un.sun_path - 1] = 'x';
    path[sizeof un.sun_path] = '\0';
    assert_int_equal(hfi_addr_unix(path, &addr), HF_EINVAL);
    assert_int_equal(hfi_addr_unix("", &addr), HF_EINVAL);
}

RUN_CASES(NULL, NULL)
