/* What the random models of this folder share: chance, a clock of their own, the trace, and how a
 * test plays schedules.
 *
 * The server, its scripts and the locks are real; the clock is not. A tick of it is TICK_MS, the
 * scripts get the time as their last arguments instead of asking for it, and a step of the clock
 * shortens TTLs accordingly. So a schedule depends on its seed alone, however slow the machine:
 * leases are minutes of real time, and TTLs are rounded up to whole ticks. */
#ifndef HF_TEST_PLAY_H
#define HF_TEST_PLAY_H

#include "support/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TICK_MS 100000
#define EPOCH_MS INT64_C(1700000000000)

/* The part of a model that knows nothing of its lock. */
struct play {
    redisContext *connection;
    char *pass_time_sha;
    void *model;
    void (*run)(void *model, int discipline);

    /* One schedule. */
    uint64_t random;
    int now; /* tick */
    char violation[256];
    char trace[32768];
    size_t trace_len;
};

/* `run` plays one schedule from its beginning, on an empty server, as far as it goes well. NULL for the
 * server: the model has one of its own. */
void play_open(struct play *play, struct server *server, void *model,
               void (*run)(void *model, int discipline));
void play_close(struct play *play);

/* A script of ours that takes the time from its last two arguments, seconds and microseconds; the
 * SHA-1 is the caller's to free. */
char *play_load(struct server *server, const char *script);
char *play_load_0_1(struct server *server, const char *script); /* as that version had it */
char *play_load_text(struct server *server, const char *text);

/* ---- For models ----------------------------------------------------------------------------- */

unsigned roll(struct play *play, unsigned sides);
int larger(int a, int b);
int64_t clock_ms(int tick); /* as scripts see it */

/* Time passes, for all keys of the server. Returns how many ran out. */
long long pass_ticks(struct play *play, int ticks);

void note(struct play *play, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A rule was broken. The first one counts, and ends the schedule. */
void violated(struct play *play, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool going_well(const struct play *play);

/* An answer that is no error; the caller frees. */
redisReply *ask(struct play *play, const char *format, ...);
redisReply *must(struct play *play, redisReply *reply);

/* ---- For tests ------------------------------------------------------------------------------ */

/* Plays schedules, none of which may go wrong; returns how many there were. They are the same in
 * every run, so that a change which breaks one is the change that fails. A soak looks for new ones:
 * HF_SOAK=1 for a minute, HF_SOAK=n for n seconds; the first seed is printed, and HF_SEED=n starts
 * with that one. */
uint64_t play_many(struct play *play, int discipline, uint64_t least);

/* Of the same schedules every time, some must go wrong. */
void play_until_wrong(struct play *play, int discipline);

#endif
