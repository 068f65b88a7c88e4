/* State equality: the same commands, no matter who does them, leave the same on the server.
 *
 * A scenario is a list of steps by two actors. It is played by Java alone, which is the measure, by
 * C alone, and by one of each, both ways round. After every step its answer, all keys with types,
 * fields and values, the messages it published and the ends of everything have to be equal, except
 * where a step names a difference on purpose; a scenario with such a difference is not played by
 * one of each, since its later steps depend on who made it. */
#ifndef HF_TEST_INTEROP_PLAY_H
#define HF_TEST_INTEROP_PLAY_H

#include <stdbool.h>
#include <stddef.h>

#define PLAY_NAME "state"
#define PLAY_WATCHDOG_MS 30000
#define NO_KEY (-2)
#define NO_TTL (-1)

struct step {
    const char *
        command; /* as in actors.h; or what happens to the key: "!delete", "!expires", and "!renewed",
                            when the TTL is a full lease */
    const char *answer; /* what both must answer */
    int ttl_ms;         /* what the key's TTL starts from after this step; NO_TTL, NO_KEY */

    /* Differences on purpose, if set: what C has instead. */
    const char *c_answer;
    int c_ttl_ms;
    const char *c_state;
    const char *c_messages;
    bool c_ends;    /* other ends than Java's; not looked at */
    bool unsettled; /* not looked at but for the answer: more is still to come */
};

/* Designated, so that a step without a difference need not say so. */
#define STEP(does, says, ttl, ...)                                                                 \
    { .command = does, .answer = says, .ttl_ms = ttl, __VA_ARGS__ }

enum { PLAY_STEPS = 14 };

struct scenario {
    const char *title;
    unsigned kinds;                /* bits of the caller's; see play() */
    struct step steps[PLAY_STEPS]; /* ends at the first one without a command */
};

struct play_kind {
    const char *name; /* Java's word */
    unsigned bit;
    /* What C publishes though Java does not, when a step frees the lock; NULL: nothing. */
    const char *c_message_when_free;
    /* A key that is there before, with this value; NULL: none. */
    const char *seed_key, *seed_value;
    /* The fair lock's: our waiters have one key more, their scores are others, and their
     * message is the time of the grant. */
    bool fair;
};

/* Plays those scenarios that are for the kind; asserts. */
void play(const struct play_kind *kind, const struct scenario *scenarios, size_t count);

#endif
