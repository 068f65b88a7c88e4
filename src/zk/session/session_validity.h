/*
 * How long a session can be trusted, computed from handshakes and commits. Pure arithmetic: no
 * clock, no wire, no lock.
 *
 * The leader ends a session that it has not heard of for T, the session's timeout. Through a
 * follower it hears of a session in two ways only: in the follower's reply to one of the leader's
 * own pings, and by the handshake of a client that comes back. A request that a follower forwards
 * tells it nothing. Nobody knows when the leader pings, so the handshake is what counts.
 *
 *   proof       a handshake that was sent at h, and then a request on the same connection that a
 *               quorum has committed; of a new session the handshake alone, since that is committed
 *   good until  h + T
 *   chain       a proof counts if it was answered before the last one had run out. A session past
 *               that is spent: it grants nothing any more, and another is begun
 *   T           the shortest timeout that the session was ever granted, less what clocks may drift
 *
 * Why it holds, whichever process stalls and whatever is lost. A connection ends with its server's
 * role, so handshake and commit were before one leader, L. What a follower sends to its leader
 * stays in order: L had the handshake first. The session was not over when L had the request, so
 * the handshake has reset its timeout, at h or later. By the chain that was before L could end it.
 * A later leader has gathered a quorum, and in it was a server that had acknowledged the commit: so
 * later than h. A new leader begins with the full timeout for every session. An earlier leader
 * commits nothing more.
 *
 * Less is not enough:
 * - A handshake alone is answered by a leader that was replaced and does not know it.
 * - A reply of the leader may be such a leader's, too.
 * - A commit alone tells the leader nothing of the session.
 * - A handshake that comes too late is answered, and obeyed, by a leader that has already decided.
 * - On a connection of the leader itself a commit would do, but nothing in the protocol tells that
 *   it is one: an address can be that of a load balancer, which asks another server who leads.
 *
 * Assumption: the servers of an ensemble have the same limits for timeouts.
 */
#ifndef HFI_ZK_SESSION_SESSION_VALIDITY_H
#define HFI_ZK_SESSION_SESSION_VALIDITY_H

#include <stdbool.h>
#include <stdint.h>

struct hfi_zk_validity {
    int64_t timeout_ms; /* T, as granted; 0: there is no session */
    int64_t drift_ppm;  /* how much the clocks' rates may differ: clock_drift_ppm */
    int64_t greeted_ms; /* when this connection's handshake was sent */
    bool proved;        /* this connection's handshake counts as a proof */
    int64_t known_ms;   /* when the last handshake that counts was sent */
    int64_t good_until_ms;
};

/* The handshake that was sent at `sent_ms` is answered: begin is for a new session, connected for
 * the existing one. */
void hfi_zk_validity_begin(struct hfi_zk_validity *validity, int64_t timeout_ms, int64_t drift_ppm,
                           int64_t sent_ms);
void hfi_zk_validity_connected(struct hfi_zk_validity *validity, int64_t timeout_ms,
                               int64_t sent_ms);
/* A request on the connection of the last handshake is answered now: it was committed. */
void hfi_zk_validity_committed(struct hfi_zk_validity *validity, int64_t now_ms);

static inline bool hfi_zk_is_spent(const struct hfi_zk_validity *validity, int64_t now_ms) {
    return now_ms >= validity->good_until_ms;
}

/* When to prove it again, if the connection has users. */
static inline int64_t hfi_zk_prove_at_ms(const struct hfi_zk_validity *validity) {
    return validity->known_ms + validity->timeout_ms / 3;
}

/* From then on a request is worth a new connection. Less than a third of T, since the callers that
 * send at T/3 come a little early. */
static inline int64_t hfi_zk_stale_at_ms(const struct hfi_zk_validity *validity) {
    return validity->greeted_ms + validity->timeout_ms / 4;
}

#endif
