/*
 * The identity of a server behind a Unix socket. Stateless; any thread.
 *
 * The mtime of a socket file is when it was bound: connecting, renaming and chmod leave it alone.
 */
#include "net/server_identity.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

bool hfi_identity_at(const char *path, struct hfi_identity *ret) {
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *ret = (struct hfi_identity){.device = (uint64_t)st.st_dev,
                                 .inode = (uint64_t)st.st_ino,
                                 .made_s = (int64_t)st.st_mtim.tv_sec,
                                 .made_ns = (int64_t)st.st_mtim.tv_nsec};
    return true;
}

bool hfi_identity_of(const struct hfi_addr *addr, struct hfi_identity *ret) {
    struct sockaddr_un un;
    if (addr->sa.ss_family != AF_UNIX || addr->len > sizeof un)
        return false;
    memset(&un, 0, sizeof un);
    memcpy(&un, &addr->sa, addr->len);
    return un.sun_path[0] != '\0' && memchr(un.sun_path, '\0', sizeof un.sun_path) != NULL &&
           hfi_identity_at(un.sun_path, ret);
}

bool hfi_identity_known(const struct hfi_identity *identity) {
    return identity->inode != 0;
}

bool hfi_identity_same(const struct hfi_identity *a, const struct hfi_identity *b) {
    return a->device == b->device && a->inode == b->inode && a->made_s == b->made_s &&
           a->made_ns == b->made_ns;
}
