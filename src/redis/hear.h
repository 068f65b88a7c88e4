/* Hearing what is said of a name (engine/hearing.h): the channels of each kind of lock and thing. */
#ifndef HFI_REDIS_HEAR_H
#define HFI_REDIS_HEAR_H

#include "engine/engine.h"

struct hfi_redis;

/* The engine's operations of these names. */
int hfi_hear(struct hfi_engine *engine, const char *name, size_t name_len,
             struct hfi_hearer *hearer, struct hfi_hearing **ret);
void hfi_unhear(struct hfi_engine *engine, struct hfi_hearing *hearing);

/* ---- On the keeper's thread ---- */

/* Names may be at other servers now. */
void hfi_hearings_look(struct hfi_redis *redis);
/* Before the connections go. */
void hfi_hearings_stop(struct hfi_redis *redis);

#endif
