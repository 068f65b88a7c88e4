/* Hearing that something about a name has changed (engine/hearing.h). */
#ifndef HFI_ZK_HEAR_H
#define HFI_ZK_HEAR_H

#include "engine/engine.h"

struct hfi_zk;

/* The engine's operations of these names. */
int hfi_zk_hear(struct hfi_engine *engine, const char *name, size_t name_len,
                struct hfi_hearer *hearer, struct hfi_hearing **ret);
void hfi_zk_unhear(struct hfi_engine *engine, struct hfi_hearing *hearing);

/* On the keeper's thread, before the session ends. */
void hfi_zk_hearings_stop(struct hfi_zk *zk);

#endif
