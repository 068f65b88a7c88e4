/* What `holdfast watch` has seen of one name, and what has happened since it last looked. The view
 * (watch_view.c) makes events of what it is shown, and of what the ear hears (watch_ear.c); telling them (watch_tell.c)
 * is its caller's business. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "fleet.h"

#define OWNER_SIZE 96

enum party_state { PARTY_WAITS, PARTY_HOLDS, PARTY_ENDED };

/* An owner on the name, or one that was a moment ago. */
struct watch_party {
    char owner[OWNER_SIZE];
    char who[CELL_SIZE]; /* "host pid program"; "": not known */
    enum party_state state;
    int64_t
        since_ms; /* it holds, waits, or has ended since then, on the clock of now_ms(); -1: not known */
    int64_t had_ms; /* ended: for how long it had held; -1: not known */
    int64_t count, place;
    hf_presence presence;
    bool in_line;    /* a wait that the server tells of */
    uint64_t losses; /* of its client, when it was last told; NO_LOSSES: it was not */
    bool seen;       /* in this look */
};
#define NO_LOSSES UINT64_MAX

/* One thing that has happened. */
struct watch_event {
    const char *word;
    const struct watch_party *party; /* NULL: it concerns nobody */
    const struct watch_party *from;  /* who had it before; or NULL */
    int64_t for_ms, left_ms;         /* -1: not known, or of no interest */
    const struct numbers *numbers;   /* or NULL */
    const char *text;                /* or NULL */
    bool heard;                      /* by a message, */
    int64_t ago_ms;                  /* that long ago */
};
typedef void watch_fn(void *user, const struct watch_event *event);

struct watch_view {
    watch_fn *tell;
    void *user;
    struct watch_party **all; /* by owner */
    size_t len, cap;
    bool full;   /* there are more than are watched, and that was said */
    bool begun;  /* something has been told */
    bool failed; /* out of memory */
    hf_found kind;
    int64_t ttl_ms, looked_ms; /* of the last look, and when it began */
    struct numbers numbers;
    unsigned heard; /* messages that told of holders, so far */
    /* ends that a look has found, whose messages may be on their way; and when the last was */
    unsigned unheard;
    int64_t unheard_ms;
};

void watch_view_free(struct watch_view *view);
/* What the server says that was asked then. `late`: holders have changed since, so it is not believed about them. */
void watch_looked(struct watch_view *view, const hf_lock_info *info, const struct numbers *numbers,
                  int64_t asked_ms, bool late);
/* What a survey said that was begun at that time. `lock` is NULL if it did not find the name. */
void watch_surveyed(struct watch_view *view, const hf_fleet *fleet, const hf_fleet_lock *lock,
                    int64_t begun_ms);

/* The server has a line of those who wait: a fair lock, of which nothing is heard. */
bool watch_is_in_line(const struct watch_view *view);

/* What was heard, so long ago. Released: by the only one who holds it, or by all who do. */
void watch_released(struct watch_view *view, bool by_all, int64_t ago_ms);
void watch_latch(struct watch_view *view, bool opened, int64_t ago_ms);
void watch_missed(struct watch_view *view, const char *words);

/* ---- watch_ear.c ---- */

struct watch_ear {
    struct watch_view *view;
    hf_listener *listener;
    unsigned heard; /* a bit for each server that is */
    size_t servers; /* 0: nothing is known yet */
    bool refused;   /* that was said */
    bool stirred;   /* there was a message: it is worth a look; for whoever looks to clear */
};

/* Begins to hear; news come inside hf_dispatch(). */
int watch_ear_begin(struct watch_ear *ear, hf_client *client, const char *name,
                    struct watch_view *view);
void watch_ear_end(struct watch_ear *ear);
/* What is published is heard now. */
bool watch_ear_hears(const struct watch_ear *ear);

/* ---- watch_tell.c ---- */

/* An event as a line, with the time of day; or as JSON. False: it could not be written. */
bool watch_print(const char *name, const struct watch_event *event, bool json);

#endif
