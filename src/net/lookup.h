/* Finding out where to connect, without blocking whoever asks.
 *
 * A lookup runs a blocking resolver on a thread of its own. Nobody ever waits for that thread: an
 * owner that loses interest drops the lookup, and the thread frees what is left when the resolver
 * returns, which may be after the client was closed. So a lookup owns copies of all it needs and
 * uses plain malloc. */
#ifndef HFI_NET_LOOKUP_H
#define HFI_NET_LOOKUP_H

#include <sys/socket.h>

#include <holdfast/holdfast.h>

#define HFI_LOOKUP_MAX_ADDRS 16 /* a resolver is offered room for this many */

struct hfi_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* Finds the addresses of `target`. May block; runs on a lookup's thread, so it must be safe there:
 * no client state, no allocator hook. `deadline_ms` is on hfi_now_ms()'s clock, and a resolver that
 * can should give up then. Writes 1 .. `cap` addresses, in the order in which to try them. */
typedef int (*hfi_resolve_fn)(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                              size_t cap, size_t *ret_count, hf_error *error);

struct hfi_lookup;

/* Starts a lookup. `notify` (may be NULL) runs once, on the lookup's thread, when it has finished,
 * holding a mutex of the lookup: it must be short (write to an eventfd), and must not call into the
 * lookup.
 * Blocks:  no.   Errors: HF_ENOMEM; HF_ESYS no thread could be made. */
int hfi_lookup_start(hfi_resolve_fn resolve, const char *target, int64_t deadline_ms,
                     void (*notify)(void *arg), void *arg, struct hfi_lookup **ret,
                     hf_error *error);

/* True when it has finished: then *ret_err is HF_OK and the addresses are filled in, or it is the
 * resolver's error and `error` (may be NULL) has the details. While the resolver runs, false until
 * the deadline has passed; from then on it has finished with HF_EUNREACH, whatever the resolver
 * does. Idempotent. */
bool hfi_lookup_poll(struct hfi_lookup *lookup, int *ret_err, struct hfi_addr *ret_addrs,
                     size_t cap, size_t *ret_count, hf_error *error);

/* Gives a lookup up, finished or not. NULL is fine. Never waits for the resolver; once this has
 * returned, notify does not run any more (and is not running). */
void hfi_lookup_drop(struct hfi_lookup *lookup);

/* An hfi_resolve_fn for "host port": getaddrinfo for IPv4 and IPv6. Errors: HF_EUNREACH there is no
 * such name, or nobody could say; HF_ENOMEM, HF_ESYS, HF_EINVAL. getaddrinfo has no deadline. */
int hfi_resolve_host(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                     size_t cap, size_t *ret_count, hf_error *error);

/* True, and the address, if `host` is an IPv4 or IPv6 address in numbers and needs no lookup. */
bool hfi_addr_numeric(const char *host, uint16_t port, struct hfi_addr *ret);

/* The address of a Unix socket. HF_EINVAL: the path is empty, or longer than the system allows. */
int hfi_addr_unix(const char *path, struct hfi_addr *ret);

#endif
