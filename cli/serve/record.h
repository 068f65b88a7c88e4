/* Makes events of the history (history/history.h) of surveys and messages. Owned by the view. */
#ifndef CLI_SERVE_RECORD_H
#define CLI_SERVE_RECORD_H

#include "fleet/fleet.h"
#include "history/history.h"

#define RECORD_BREAKS 64
#define RECORD_ENDS 256
#define RECORD_LOSSES 64
#define RECORD_SEEN 4096
#define RECORD_ID_SIZE 64

/* A lock that was broken, for some surveys. */
struct record_break {
    char *name; /* NULL: none */
    size_t name_len;
    uint64_t seq;
    unsigned servers; /* one bit for each that reported it */
    bool over;        /* a survey has shown that the hold ended */
};

/* A hold that has ended, until its client counts a loss. */
struct record_end {
    char client[RECORD_ID_SIZE];
    char *name, *owner, *who; /* NULL: none */
    size_t name_len;
    bool counted; /* it is known as a loss */
    uint64_t seq;
};

/* Losses of a client, until the holds are known. */
struct record_loss {
    char client[RECORD_ID_SIZE];
    char who[CELL_SIZE];
    uint64_t more; /* 0: none */
    uint64_t seq;
};

/* A long wait or a deadlock that was recorded. */
struct record_seen {
    uint64_t hash, seq;
};

struct recorder {
    struct history *history;
    int64_t long_wait_ms;

    uint64_t seq;   /* number of surveys, of which some were left out; see seq_ms */
    int64_t seq_ms; /* when `seq` rose: not with surveys sooner than half a period after it */
    int64_t at_ms, earlier_at_ms, between_ms;
    bool close, breaks_heard;
    struct record_break breaks[RECORD_BREAKS]; /* ring buffers */
    struct record_end ends[RECORD_ENDS];
    struct record_loss losses[RECORD_LOSSES];
    size_t breaks_total, ends_total, losses_total;
    struct record_seen seen[RECORD_SEEN]; /* sorted by hash */
    size_t seen_len;
};

struct losses;

struct record_surveys {
    const hf_fleet *earlier, *later; /* `earlier` may be NULL */
    const hf_deadlocks *deadlocks;   /* of `later`; NULL: unknown */
    int64_t earlier_at_ms, at_ms;    /* Unix times */
    int64_t close_ms;  /* counters tell how a hold ended if they are no further apart */
    int64_t period_ms; /* surveys that are closer together count as one, for waiting */
    bool breaks_heard; /* breaks were announced in between */
};

/* Records what changed, and adds to the losses. Returns how many locks were handed over. */
int64_t record_survey(struct recorder *recorder, const struct record_surveys *surveys,
                      struct losses *losses);
/* A break that was announced. `fleet` is the latest survey, or NULL. */
void record_broken(struct recorder *recorder, const hf_fleet *fleet, const char *name,
                   size_t name_len, unsigned server_bit);
/* Whether more surveys are needed, since none has shown of which lock a loss is. */
bool record_has_open_losses(const struct recorder *recorder);
/* An event of the server: it is away, or back. */
void record_server(struct recorder *recorder, const char *word, const char *text);
void recorder_clear(struct recorder *recorder);

int64_t unix_ms(void);

#endif
