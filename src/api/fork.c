/*
 * The fork check: whether this process is a forked child of the one that opened the client.
 *
 * Every public call on a client makes it first (hfi_enter() in client.c), before it takes a mutex:
 * a mutex may have been locked at the fork. So it must not cost a system call. The kernel wipes the
 * mark's page in a child; before Linux 4.14 the pid is compared instead.
 */
#include "api/client.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

const atomic_int *hfi_fork_mark_new(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    atomic_int *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, size, MADV_WIPEONFORK) != 0) { /* before Linux 4.14 */
        munmap(page, size);
        return NULL;
    }
    atomic_init(page, 1);
    return page;
}

void hfi_fork_mark_free(const atomic_int *page) {
    if (page != NULL)
        munmap((void *)(uintptr_t)page, (size_t)sysconf(_SC_PAGESIZE));
}

bool hfi_is_forked(const hf_client *client) {
    if (client->not_forked != NULL)
        return atomic_load_explicit(client->not_forked, memory_order_relaxed) == 0;
    return getpid() != client->core.pid;
}
