/* What a history is made of: one file per process, one line per event, written at once so that it
 * is there however the process ends.
 *
 *     kind KIND                                          is played in this run
 *     call OP TIME NAME KIND OWNER VERB key=value...     an operation was begun
 *     ret OP TIME CODE key=value...                      and has returned; a line that is missing: it never did
 *     sure HOLD TIME                                     until when a hold was promised to be trusted
 *     pause PROCESS FROM TO | kill PROCESS TIME | cut TIME | wipe FROM TO     what was done to processes,
 *                                                        connections and the server
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. OP is unique in a history; HOLD is the OP of the acquire
 * that began the hold, or the id of a permit. Usable in forked children and by several threads. */
#ifndef HF_TEST_HISTORY_RECORD_H
#define HF_TEST_HISTORY_RECORD_H

#include <stdatomic.h>
#include <stdint.h>

struct record {
    int fd;
    char process[24];
    atomic_long operations;
};

/* Appends to DIR/PROCESS.log. */
void record_open(struct record *record, const char *dir, const char *process);
void record_close(struct record *record);

int64_t record_now_ns(void);
void record_line(struct record *record, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whose operations, on what. */
struct subject {
    const char *name;
    const char *kind;
    const char *owner; /* "uuid:number", or what the kind has instead */
};

struct operation {
    struct record *record;
    char id[48];
};

struct operation record_call(struct record *record, const struct subject *subject, const char *verb,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));
void record_return(const struct operation *operation, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* `hold` can be trusted for so long from `asked_ns`, a time before the question was asked. */
void record_sure(struct record *record, const char *hold, int64_t asked_ns, int64_t remaining_ms);

#endif
