/* Faults of time in the holder of `holdfast run`, at defined points; preloaded into the tool by tests/cli/tree.sh.
 *
 *   HF_TEST_SLEEPS=1      the machine sleeps for an hour when the holder has read its first note: the guard's consent
 *   HF_TEST_STALLS=FILE   while the file is there, the holder stalls for 1.5 s between the two
 *                         readings of the clock from which it computes the deadline: before the
 *                         second reading after a look for notes
 *
 * Only the holder's clock is changed: a guard whose clock jumped would end everything by itself. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define IN_PLACE_OF(name) __asm__(#name) __attribute__((visibility("default")))
#define STALL_MS 1500

int clock_time(clockid_t clock, struct timespec *ts) IN_PLACE_OF(clock_gettime);
ssize_t receive(int fd, void *buffer, size_t size, int flags) IN_PLACE_OF(recv);

static volatile bool slept;
static volatile int readings; /* of the clock, on the main thread, since the last look for notes */

static bool is_holder(void) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return syscall(SYS_gettid) == getpid() && strcmp(name, "holdfast-holder") == 0;
}

static void stall(void) {
    const char *file = getenv("HF_TEST_STALLS");
    const struct timespec pause = {STALL_MS / 1000, STALL_MS % 1000 * 1000000L};
    if (file != NULL && ++readings == 2 && access(file, F_OK) == 0)
        syscall(SYS_nanosleep, &pause, NULL);
}

int clock_time(clockid_t clock, struct timespec *ts) {
    int before = errno;
    if (clock == CLOCK_BOOTTIME && is_holder())
        stall();
    errno = before;
    int result = (int)syscall(SYS_clock_gettime, clock, ts);
    if (clock == CLOCK_BOOTTIME && slept)
        ts->tv_sec += 3600;
    return result;
}

ssize_t receive(int fd, void *buffer, size_t size, int flags) {
    int type = 0;
    socklen_t len = sizeof type;
    ssize_t got = syscall(SYS_recvfrom, fd, buffer, size, flags, NULL, NULL);
    int failure = errno;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET &&
        is_holder()) {
        readings = 0;
        slept = slept || (got > 0 && getenv("HF_TEST_SLEEPS") != NULL);
    }
    errno = failure;
    return got;
}
