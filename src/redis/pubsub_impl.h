/* What pubsub.c and pubsub_debts.c share. Nobody else includes this. */
#ifndef HFI_REDIS_PUBSUB_IMPL_H
#define HFI_REDIS_PUBSUB_IMPL_H

#include "base/table.h"
#include "redis/pubsub.h"

enum channel_state { CHANNEL_NEW, CHANNEL_ASKED, CHANNEL_HEARD, CHANNEL_DEAF, CHANNEL_ASTRAY };

struct hfi_channel {
    struct hfi_keyed keyed; /* in the registry, by its name */
    struct hfi_link waiters;
    struct hfi_link todo;  /* in the registry's list when a SUBSCRIBE may have to be sent */
    struct hfi_link asked; /* in the registry's list while a SUBSCRIBE is on its way */
    enum channel_state state;
    bool sharded;
    int64_t leave_ms;   /* without waiters: when to unsubscribe */
    int64_t astray_ms;  /* since when it is */
    int64_t message_ms; /* when the last one came */
    struct hfi_debt debt;
    int64_t no_debt_ms;  /* nothing is owed until then: those who listened did not come, */
    uint8_t in_vain;     /* so often in a row */
    uint16_t debt_limit; /* no more came, of those who were owed; 0: nothing is known */
    char name[];
};

#define LOGGED_MAX 5 /* releases, and each struct hfi_listener there is */

struct hfi_pubsub {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_exec *exec; /* the keeper's */
    struct hfi_conn *conn;
    struct hfi_task task; /* on the keeper: update() */
    struct hfi_alarm alarm;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_table channels;
    struct hfi_link todo, asked;
    int64_t alarm_ms;               /* when `alarm` is set to fire; HFI_NEVER */
    const char *logged[LOGGED_MAX]; /* of refused channels: what has been said, each once */
    bool up, stopped;
};

/* NULL: there is none. */
struct hfi_channel *hfi_pubsub_find_locked(struct hfi_pubsub *pubsub, const char *name, size_t len);

#endif
