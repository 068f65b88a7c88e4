/* The deadlines of `holdfast run`: when the command gets SIGTERM and when SIGKILL, before the lease
 * ends, and how long guard and holder may be stopped.
 *
 * Both processes call it, so they agree. No state of its own. */
#include "run/run.h"

int64_t hold_ttl(const struct run_options *options) {
    return options->lease_ms > 0 ? options->lease_ms : options->ttl_ms;
}

/* A server may guarantee less between renewals than the requested lease. */
static int64_t span_of(const struct run *run) {
    int64_t span_ms = atomic_load(&run->shared->span_ms), ttl_ms = hold_ttl(run->options);
    return span_ms > 0 && span_ms < ttl_ms ? span_ms : ttl_ms;
}

int64_t kill_time(const struct run *run, int64_t deadline_ms) {
    int64_t twentieth = span_of(run) / 20;
    return deadline_ms - (twentieth > 250 ? twentieth : 250);
}

int64_t warn_time(const struct run *run, int64_t deadline_ms) {
    int64_t third = span_of(run) / 3;
    return kill_time(run, deadline_ms) - (third < 5000 ? third : 5000);
}

int64_t stall_limit(const struct run *run) {
    int64_t tenth = span_of(run) / 10;
    return tenth < 250 ? 250 : tenth > 1000 ? 1000 : tenth;
}
