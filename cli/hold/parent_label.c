/* The default label of `hold` and `acquire` at the server: the name of the process that started
 * them, such as the script. Their own name would say nothing.
 *
 * Every reader of the server can see it, and an argument may be a secret. So it is the kernel's
 * name of the process, which has no arguments: at most 15 bytes.
 *
 * Called before other threads exist; reads /proc. */
#include "hold/held.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

const char *label_of_parent(char label[PARENT_LABEL_SIZE]) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)getppid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, label, PARENT_LABEL_SIZE - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n > 0 && label[n - 1] == '\n')
        n--;
    if (n <= 0)
        return NULL;
    label[n] = '\0';
    return label;
}
