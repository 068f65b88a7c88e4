/* A clock that a test can step and slew, for a server: preloaded, it adds a number to the time of
 * day, and has it run faster or slower. (Not the monotonic clock, by which no lease ends.) The
 * numbers are in the file `step` of its working directory, which is looked for until it is there;
 * see tests/support/step.c. */
#include "support/clock/stepped.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define IN_PLACE_OF(name) __asm__(#name) __attribute__((visibility("default")))

int day_time(struct timeval *tv, void *zone) IN_PLACE_OF(gettimeofday);
int clock_time(clockid_t clock, struct timespec *ts) IN_PLACE_OF(clock_gettime);
time_t seconds(time_t *ret) IN_PLACE_OF(time);

static _Atomic(struct stepped_clock *) stepped;

static struct stepped_clock *find_step(void) {
    int fd = open("step", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *page = mmap(NULL, sizeof(struct stepped_clock), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return page != MAP_FAILED ? page : NULL;
}

static int64_t now_us(void) {
    struct timespec ts;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
    struct stepped_clock *clock = atomic_load(&stepped);
    if (clock == NULL) {
        clock = find_step();
        atomic_store(&stepped, clock);
    }
    int64_t real_us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
    if (clock == NULL)
        return real_us;
    int64_t since_us = atomic_load(&clock->slewed_since_us);
    return real_us + atomic_load(&clock->step_us) +
           (real_us - since_us) / 1000 * atomic_load(&clock->slew_ppm) / 1000;
}

int day_time(struct timeval *tv, void *zone) {
    (void)zone;
    int64_t us = now_us();
    *tv = (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    return 0;
}

int clock_time(clockid_t clock, struct timespec *ts) {
    if (clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, ts);
    int64_t us = now_us();
    *ts = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    return 0;
}

time_t seconds(time_t *ret) {
    time_t now = now_us() / 1000000;
    if (ret != NULL)
        *ret = now;
    return now;
}
