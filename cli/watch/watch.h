/* What `holdfast watch` knows of one name, and the events since its last poll. The view (changes.c)
 * makes events from polls, surveys and the name listener (listener.c). Its caller prints them
 * (print.c). */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "fleet/fleet.h"

#define OWNER_SIZE 96

enum party_state { PARTY_WAITS, PARTY_HOLDS, PARTY_ENDED };

/* A current or recent owner: a holder, a waiter, or one that has just ended. */
struct watch_party {
    char owner[OWNER_SIZE];
    char who[CELL_SIZE]; /* "host pid program"; "": not known */
    enum party_state state;
    int64_t since_ms; /* start of its state, on the clock of now_ms(); -1: not known */
    int64_t had_ms;   /* ended: how long it had held; -1: not known */
    int64_t count, place;
    hf_presence presence;
    bool queued;     /* a waiter in the server's fair queue */
    uint64_t losses; /* its client's loss count in the last survey; NO_LOSSES: none yet */
    bool seen;       /* in the current poll or survey */
};
#define NO_LOSSES UINT64_MAX

/* One event. */
struct watch_event {
    const char *verb;
    const struct watch_party *party; /* NULL: no owner is concerned */
    const struct watch_party *from;  /* the previous holder; or NULL */
    int64_t for_ms, remaining_ms;    /* -1: not known, or not relevant */
    const struct numbers *numbers;   /* or NULL */
    const char *text;                /* or NULL */
    bool received;                   /* came as a message, */
    int64_t ago_ms;                  /* published this long ago */
};
typedef void watch_fn(void *user, const struct watch_event *event);

struct watch_view {
    watch_fn *report;
    void *user;
    struct watch_party **all; /* sorted by owner */
    size_t len, cap;
    bool full;   /* more than CLAIMED_MAX, which was reported */
    bool begun;  /* at least one event was reported */
    bool failed; /* out of memory */
    hf_found kind;
    int64_t ttl_ms, polled_ms; /* of the last poll, and when it began */
    struct numbers numbers;
    unsigned messages; /* messages about holders so far */
    /* Releases that a poll found and whose messages may still arrive; and the time of the last. */
    unsigned unmatched_releases;
    int64_t unmatched_ms;
    /* A break was announced, and its end was not reported yet. */
    bool broken;
    int64_t broken_ms;
    /* Readers whose break was reported and whose clients may still publish a release: they delete
     * the rest of their hold. */
    unsigned echoes;
    /* When a poll found an end that no message had announced, and was ignored; 0: the last poll was
     * not ignored. */
    int64_t doubted_ms;
    int64_t asked_ms; /* when the last poll began, ignored or not */
};

void watch_view_free(struct watch_view *view);
/* Takes the result of a poll that began at asked_ms. `late`: holders changed since, so its holders
 * are ignored. `quiet`: messages arrive, and none has come since the last poll. */
void watch_polled(struct watch_view *view, const hf_lock_info *info, const struct numbers *numbers,
                  int64_t asked_ms, bool late, bool quiet);
/* When to poll again, because the message of an end may still arrive; 0: no need. */
int64_t watch_doubt_ends_ms(const struct watch_view *view);
/* Takes the result of a survey that began at begun_ms. `lock` is NULL if the survey did not find
 * the name. */
void watch_surveyed(struct watch_view *view, const hf_fleet *fleet, const hf_fleet_lock *lock,
                    int64_t begun_ms);

/* Whether the server has a fair queue for the name. Such a lock publishes no messages. */
bool watch_is_queued(const struct watch_view *view);

/* Takes a message that was published ago_ms ago. `by_all`: every holder released; otherwise the
 * sole holder did. */
void watch_released(struct watch_view *view, bool by_all, int64_t ago_ms);
/* The next end is a break. */
void watch_broken(struct watch_view *view, int64_t ago_ms);
void watch_latch(struct watch_view *view, bool opened, int64_t ago_ms);
void watch_missed(struct watch_view *view, const char *text);

/* ---- listener.c ---- */

struct watch_events {
    struct watch_view *view;
    hf_listener *listener;
    unsigned subscribed; /* one bit for each server whose subscription is up */
    size_t servers;      /* 0: not known yet */
    bool refused;        /* a refused subscription was reported */
    bool poll_due;       /* a message came, so poll; the polling loop clears it, and the next */
    bool changed;        /* the server has reported a change: poll, but a message may still come */
};

/* Subscribes; messages are delivered inside hf_dispatch(). */
int watch_events_begin(struct watch_events *events, hf_client *client, const char *name,
                       struct watch_view *view);
void watch_events_end(struct watch_events *events);
/* Whether published messages currently arrive. */
bool watch_events_are_subscribed(const struct watch_events *events);

/* ---- print.c ---- */

/* An event as a line, with the time of day; or as JSON. False: it could not be written. */
bool watch_print(const char *name, const struct watch_event *event, bool json);

#endif
