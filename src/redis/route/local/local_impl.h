/* Shared by the files of local:; not for other files.
 *
 *   local.c        the directory, probing a server, waiting for one
 *   local_start.c  the programs, the script, and the processes of a server and its monitor */
#ifndef HFI_REDIS_ROUTE_LOCAL_LOCAL_IMPL_H
#define HFI_REDIS_ROUTE_LOCAL_LOCAL_IMPL_H

#include <holdfast/holdfast.h>

#define LOCAL_SOCKET "redis.sock"
#define LOCAL_SOCKET_IDLE LOCAL_SOCKET ".idle"
#define LOCAL_LOG "server.log"

struct local_start {
    int dir_fd;            /* the verified directory */
    const char *directory; /* its path: for the environment only */
    int64_t idle_ms;
    const char *search; /* see struct hfi_local_options */
};

/* Starts a server if none lives, that is if the lock is free: then *ret_started. Stale sockets are
 * removed. It does not wait for the server, which may still fail to come up. Errors: HF_EUNREACH
 * there is no program to start; HF_ESYS; HF_ENOMEM. */
int hfi_local_start(const struct local_start *start, bool *ret_started, hf_error *error);

#endif
