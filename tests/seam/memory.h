/* A second engine, for tests of the seam: in memory, with sessions.
 *
 * It has three nodes, and the last character of a name says which keeps it ('0', '1', '2'). A node
 * keeps a hold for as long as the session, and knows of no leases: what it proves reaches
 * `session_ms` from then on. A node can be silent: then it answers nothing, and does nothing. */
#ifndef HF_TEST_SEAM_MEMORY_H
#define HF_TEST_SEAM_MEMORY_H

#include "engine/engine.h"

#define MEMORY_NODES 3

struct memory;

struct memory *memory_new(struct hfi_exec *keeper, int64_t session_ms);
struct hfi_engine *memory_engine(struct memory *memory);

/* Held until released, or with a lease that is ours to end. */
extern const struct hfi_kind memory_lock;
/* Never has a lease, and offers nothing but acquire and release. */
extern const struct hfi_kind memory_leaseless;

/* How often the lock is held at its node. */
int64_t memory_count(struct memory *memory, const char *name);
/* How many renewals of the node were answered so far; how many it has not answered yet. */
unsigned memory_renewals(struct memory *memory, int node);
unsigned memory_unanswered(struct memory *memory, int node);
/* How many were answered while another node owed an answer. */
unsigned memory_renewals_beside(struct memory *memory, int node);
/* Some call waits, for the lock or for an answer. */
bool memory_is_awaited(struct memory *memory);

void memory_silence(struct memory *memory, int node, bool silent);
/* Whether its proofs say when to have the next one. */
void memory_plan(struct memory *memory, bool plans);
/* The hold is gone, and nobody says so. */
void memory_drop(struct memory *memory, const char *name);

/* What the engine reports by itself; each returns when that is done. */
void memory_end_session(struct memory *memory, int node);
void memory_take_away(struct memory *memory, const char *name, const char *owner);
void memory_doubt(struct memory *memory, const char *name); /* NULL: any */
void memory_prove(struct memory *memory, int node, int64_t reach_ms);
void memory_reconnect(struct memory *memory, int node);

#endif
