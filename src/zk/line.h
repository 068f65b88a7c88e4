/* Standing in line, which is what every kind of lock does; and the verbs on a place in it. */
#ifndef HFI_ZK_LINE_H
#define HFI_ZK_LINE_H

#include "zk/call.h"

extern const struct hfi_call_ops hfi_zk_lock_ops;

/* ---- line.c ---- */

void hfi_zk_acquire(struct hfi_call *call);

static inline bool hfi_zk_tries_once(const struct hfi_call *call) {
    return call->deadline_ms <= call->start_ms;
}

/* Stands in line; the kind's `granted` comes then. */
void hfi_zk_line_up(struct hfi_zk_call *c);
/* What we had in it is gone: at its end once more. */
void hfi_zk_line_begin_anew(struct hfi_zk_call *c);
/* Whether it is still ours. */
void hfi_zk_line_look(struct hfi_zk_call *c);

/* ---- mutex.c ---- */

/* Who has the lowest number. */
struct hfi_zk_look hfi_zk_look_at_locks(struct hfi_zk_children line, const struct hfi_zk_node *me);

/* ---- again.c ---- */

/* It is held: that is counted here, and the server is asked only if little is left of what was proved.
 * `there`: c->held is it. */
void hfi_zk_acquire_again(struct hfi_zk_call *c, bool there);
/* A `multi` that checks the node in c->line, and what came of it: HF_OK with what the server
 * says, where NO_NODE alone means that it is gone; HF_EPROTO. */
void hfi_zk_write_check(struct hfi_zk_call *c, struct hfi_zk_out *out);
int hfi_zk_read_check(struct hfi_zk_call *c, int32_t *ret_refusal);

/* ---- parents.c ---- */

/* Makes the node at the lock's path with `beneath` behind it, a constant text, and those above it. NULL:
 * only those above the lock's path. */
void hfi_zk_make_parents(struct hfi_zk_call *c, const char *beneath,
                         void (*then)(struct hfi_zk_call *c));

/* ---- search.c ---- */

/* Whether a node of our uuid is in the line; then *ret is it. */
bool hfi_zk_line_find(struct hfi_zk_children line, const unsigned char uuid[HFI_ZK_UUID_LEN],
                      struct hfi_zk_node *ret);
/* Finds out whether a create whose answer was lost has made a node: c->line.made then tells, and `then`
 * goes on. */
void hfi_zk_line_search(struct hfi_zk_call *c, void (*then)(struct hfi_zk_call *c));

/* ---- verbs.c ---- */

void hfi_zk_release(struct hfi_call *call);
void hfi_zk_extend(struct hfi_call *call);
void hfi_zk_settle(struct hfi_call *call);
/* Makes sure that what this call may have in the line is there no more; c->left goes on. */
void hfi_zk_leave_line(struct hfi_zk_call *c);

/* ---- questions.c ---- */

void hfi_zk_force(struct hfi_call *call);
void hfi_zk_ask(struct hfi_call *call);

/* ---- inspect.c ---- */

void hfi_zk_inspect(struct hfi_call *call);

/* ---- facts.c ---- */

void hfi_zk_facts(struct hfi_call *call);

/* ---- survey.c ---- */

void hfi_zk_survey(struct hfi_call *call);

/* ---- renew.c ---- */

void hfi_zk_renew(struct hfi_engine *engine, struct hfi_renewal *renewal);
void hfi_zk_renewals_stop(struct hfi_zk *zk);

#endif
