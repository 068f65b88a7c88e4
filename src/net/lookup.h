/* Name lookup without blocking the caller.
 *
 * A lookup runs a blocking resolver on its own thread. No thread ever waits for it. An owner
 * that loses interest drops the lookup; the thread frees it when the resolver returns, perhaps
 * after the client was closed. So a lookup owns copies of all it needs and uses plain malloc. */
#ifndef HFI_NET_LOOKUP_H
#define HFI_NET_LOOKUP_H

#include <sys/socket.h>

#include <holdfast/holdfast.h>

#define HFI_LOOKUP_MAX_ADDRS 16 /* room for a resolver's result */

struct hfi_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* Finds the addresses of `target`. May block; runs on a lookup's thread, so it must use no
 * client state and no allocator hook. `deadline_ms` is on hfi_now_ms()'s clock; a resolver that
 * can should give up then. Writes 1 .. `cap` addresses, in the order in which to try them. */
typedef int (*hfi_resolve_fn)(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                              size_t cap, size_t *ret_count, hf_error *error);

struct hfi_lookup;

/* Starts a lookup. `notify` (may be NULL) runs once, on the lookup's thread, when it has
 * finished. It runs under a mutex of the lookup: it must be short (write to an eventfd) and must
 * not call into the lookup.
 * Blocks:  no.   Errors: HF_ENOMEM; HF_ESYS no thread could be made. */
int hfi_lookup_start(hfi_resolve_fn resolve, const char *target, int64_t deadline_ms,
                     void (*notify)(void *arg), void *arg, struct hfi_lookup **ret,
                     hf_error *error);

/* True when it has finished: *ret_err is HF_OK and the addresses are filled in, or it is the
 * resolver's error and `error` (may be NULL) has the details. After the deadline it has finished
 * with HF_EUNREACH, whatever the resolver does. Idempotent. */
bool hfi_lookup_poll(struct hfi_lookup *lookup, int *ret_err, struct hfi_addr *ret_addrs,
                     size_t cap, size_t *ret_count, hf_error *error);

/* Gives a lookup up, finished or not. NULL is fine. Never waits for the resolver. Once this has
 * returned, notify does not run any more. */
void hfi_lookup_drop(struct hfi_lookup *lookup);

/* An hfi_resolve_fn for "host port": getaddrinfo for IPv4 and IPv6. Errors: HF_EUNREACH no such
 * name, or no resolver answered; HF_ENOMEM, HF_ESYS, HF_EINVAL. getaddrinfo has no deadline. */
int hfi_resolve_host(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                     size_t cap, size_t *ret_count, hf_error *error);

/* True, and the address, if `host` is a numeric IPv4 or IPv6 address and needs no lookup. */
bool hfi_addr_numeric(const char *host, uint16_t port, struct hfi_addr *ret);

/* The address of a Unix socket. HF_EINVAL: the path is empty, or longer than the system allows. */
int hfi_addr_unix(const char *path, struct hfi_addr *ret);

#endif
