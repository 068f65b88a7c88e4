/*
 * Lookups: a blocking resolver on a detached thread, and an owner that never waits for it.
 *
 * Connections call this, on the keeper's thread. A lookup has two references, the owner's and the
 * thread's; the last unref frees it. Its mutex guards everything below `mutex`. The thread reaches
 * nothing of the client except notify's argument, and that only under the mutex while the owner has
 * not dropped the lookup.
 *
 * Invariants: `finished` is set once, by the thread or by the deadline, and the result does not
 * change after it. notify runs at most once and never after hfi_lookup_drop() returned. In a forked
 * child the thread does not exist and may have left the mutex locked: a child must not touch its
 * parent's lookups.
 */
#include "net/lookup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/error.h"
#include "task/thread.h"

struct hfi_lookup {
    hfi_resolve_fn resolve; /* these three do not change */
    char *target;
    int64_t deadline_ms;

    pthread_mutex_t mutex;
    int references;
    void (*notify)(void *arg); /* NULL: not wanted, or dropped */
    void *arg;
    bool finished;
    int err;
    size_t count;
    struct hfi_addr addrs[HFI_LOOKUP_MAX_ADDRS];
    hf_error error;
};

static void lookup_free(struct hfi_lookup *lookup) {
    if (lookup == NULL)
        return;
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup->target);
    free(lookup);
}

/* Drops one reference, with the mutex held. */
static void unlock_and_unref(struct hfi_lookup *lookup) {
    bool last = --lookup->references == 0;
    pthread_mutex_unlock(&lookup->mutex);
    if (last)
        lookup_free(lookup);
}

static void *lookup_thread(void *arg) {
    struct hfi_lookup *lookup = arg;
    struct hfi_addr addrs[HFI_LOOKUP_MAX_ADDRS];
    size_t count = 0;
    hf_error error = {0};
    int err = lookup->resolve(lookup->target, lookup->deadline_ms, addrs, HFI_LOOKUP_MAX_ADDRS,
                              &count, &error);

    pthread_mutex_lock(&lookup->mutex);
    if (!lookup->finished) {
        lookup->finished = true;
        lookup->err = err;
        lookup->error = error;
        lookup->count = err == HF_OK ? count : 0;
        memcpy(lookup->addrs, addrs, lookup->count * sizeof addrs[0]);
    }
    if (lookup->notify != NULL)
        lookup->notify(lookup->arg);
    lookup->notify = NULL;
    unlock_and_unref(lookup);
    return NULL;
}

int hfi_lookup_start(hfi_resolve_fn resolve, const char *target, int64_t deadline_ms,
                     void (*notify)(void *arg), void *arg, struct hfi_lookup **ret,
                     hf_error *error) {
    struct hfi_lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    pthread_mutex_init(&lookup->mutex, NULL);
    lookup->resolve = resolve;
    lookup->deadline_ms = deadline_ms;
    lookup->references = 2;
    lookup->notify = notify;
    lookup->arg = arg;
    lookup->target = strdup(target);
    if (lookup->target == NULL) {
        lookup_free(lookup);
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }

    int err = hfi_thread_start(NULL, lookup_thread, lookup);
    if (err != 0) {
        lookup_free(lookup);
        return hfi_fail_errno(error, HF_ESYS, err, "cannot start a thread for a name lookup");
    }
    *ret = lookup;
    return HF_OK;
}

bool hfi_lookup_poll(struct hfi_lookup *lookup, int *ret_err, struct hfi_addr *ret_addrs,
                     size_t cap, size_t *ret_count, hf_error *error) {
    pthread_mutex_lock(&lookup->mutex);
    if (!lookup->finished && hfi_now_ms() >= lookup->deadline_ms) {
        lookup->finished = true;
        lookup->err = hfi_fail(&lookup->error, HF_EUNREACH, "the name lookup timed out");
    }
    bool finished = lookup->finished;
    if (finished) {
        *ret_err = lookup->err;
        if (lookup->err == HF_OK) {
            *ret_count = lookup->count < cap ? lookup->count : cap;
            memcpy(ret_addrs, lookup->addrs, *ret_count * sizeof ret_addrs[0]);
        } else if (error != NULL) {
            *error = lookup->error;
        }
    }
    pthread_mutex_unlock(&lookup->mutex);
    return finished;
}

void hfi_lookup_drop(struct hfi_lookup *lookup) {
    if (lookup == NULL)
        return;
    pthread_mutex_lock(&lookup->mutex);
    lookup->notify = NULL;
    unlock_and_unref(lookup);
}

/* ---- Addresses ------------------------------------------------------------------------------- */

static bool ipv4_numeric(const char *host, uint16_t port, struct hfi_addr *ret) {
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &sin.sin_addr) != 1)
        return false;
    memset(ret, 0, sizeof *ret);
    memcpy(&ret->sa, &sin, sizeof sin);
    ret->len = sizeof sin;
    return true;
}

/* An IPv6 address, possibly with a zone behind it: fe80::1%eth0 or fe80::1%2. */
static bool ipv6_numeric(const char *host, uint16_t port, struct hfi_addr *ret) {
    char address[INET6_ADDRSTRLEN];
    const char *zone = strchr(host, '%');
    size_t len = zone != NULL ? (size_t)(zone - host) : strlen(host);
    if (len >= sizeof address)
        return false;
    memcpy(address, host, len);
    address[len] = '\0';

    struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET6, address, &sin6.sin6_addr) != 1)
        return false;
    if (zone != NULL) {
        char *end;
        unsigned long index = strtoul(zone + 1, &end, 10);
        if (end == zone + 1 || *end != '\0')
            index = if_nametoindex(zone + 1);
        if (index == 0 || index > UINT32_MAX)
            return false;
        sin6.sin6_scope_id = (uint32_t)index;
    }
    memset(ret, 0, sizeof *ret);
    memcpy(&ret->sa, &sin6, sizeof sin6);
    ret->len = sizeof sin6;
    return true;
}

bool hfi_addr_numeric(const char *host, uint16_t port, struct hfi_addr *ret) {
    return ipv4_numeric(host, port, ret) || ipv6_numeric(host, port, ret);
}

int hfi_addr_unix(const char *path, struct hfi_addr *ret) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof un.sun_path)
        return HF_EINVAL;
    memcpy(un.sun_path, path, len + 1);
    memset(ret, 0, sizeof *ret);
    memcpy(&ret->sa, &un, sizeof un);
    ret->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    return HF_OK;
}

static int fail_resolve(hf_error *error, int gai, int sys_errno, const char *host) {
    if (gai == EAI_MEMORY)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    if (gai == EAI_SYSTEM)
        return hfi_fail_errno(error, HF_ESYS, sys_errno, "looking up host '%s'", host);
    if (error != NULL && gai == EAI_NONAME)
        error->sys_errno = ENOENT; /* permanent, as far as we know */
    return hfi_fail(error, HF_EUNREACH, "looking up host '%s': %s", host, gai_strerror(gai));
}

int hfi_resolve_host(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                     size_t cap, size_t *ret_count, hf_error *error) {
    (void)deadline_ms; /* getaddrinfo has none; hfi_lookup_poll() enforces it */
    const char *space = strrchr(target, ' ');
    if (space == NULL || space == target || space[1] == '\0')
        return hfi_fail(error, HF_EINVAL, "a lookup needs a host and a port");
    char *host = strndup(target, (size_t)(space - target));
    if (host == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");

    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int gai = getaddrinfo(host, space + 1, &hints, &list);
    int err = gai == 0 ? HF_OK : fail_resolve(error, gai, errno, host);

    size_t count = 0;
    for (const struct addrinfo *one = list; one != NULL && count < cap; one = one->ai_next) {
        memset(&ret_addrs[count], 0, sizeof ret_addrs[count]);
        memcpy(&ret_addrs[count].sa, one->ai_addr, one->ai_addrlen);
        ret_addrs[count].len = one->ai_addrlen;
        count++;
    }
    if (list != NULL)
        freeaddrinfo(list);
    if (err == HF_OK)
        *ret_count = count;
    free(host);
    return err;
}
