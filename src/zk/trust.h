/*
 * How long a session can be trusted, out of what was sent, answered and committed: arithmetic, without
 * clock or wire. Not locked.
 *
 * The leader ends a session that it has not heard of for T, the session's timeout. It hears of it
 * through the follower that we talk to, which answers pings and reads by itself, and reports whom it
 * has heard every half tick. So an answer proves nothing about the leader, unless a quorum had to
 * commit it; and even then the packet that asked for it may be one that the follower has not reported
 * when it dies. T is two ticks at least: what the follower had T/4 before that request was reported
 * before it was passed on. And what it had by then is what it had answered: a packet that was only
 * sent may have been held up on its way, and have come together with the request.
 *
 *   known      = when the latest packet was sent that was answered at least T/4 before the sending of
 *                the last request that was committed; a handshake counts at once, since the leader
 *                makes it
 *   good until = known + T
 */
#ifndef HFI_ZK_TRUST_H
#define HFI_ZK_TRUST_H

#include <stdint.h>

/* Packets are remembered in steps of T/HFI_ZK_STEPS, for as long as there is room: what is forgotten
 * counts for nothing, which is always safe. */
#define HFI_ZK_STEPS 64
#define HFI_ZK_REMEMBERED 128

struct hfi_zk_packet {
    int64_t sent_ms, answered_ms;
};

struct hfi_zk_trust {
    int64_t timeout_ms; /* T; 0: there is no session */
    int64_t known_ms;
    int64_t committed_ms; /* when it was last answered that something is committed */
    struct hfi_zk_packet packets[HFI_ZK_REMEMBERED]; /* of this connection, a ring */
    uint64_t packets_len;                            /* so far */
};

/* A handshake that was sent then is answered now. What was sent on another connection may never have
 * arrived. */
void hfi_zk_trust_connected(struct hfi_zk_trust *trust, int64_t timeout_ms, int64_t sent_ms,
                            int64_t now_ms);
/* A packet that was sent then, on this connection, is answered now, whatever it was. */
void hfi_zk_trust_answered(struct hfi_zk_trust *trust, int64_t sent_ms, int64_t now_ms);
/* The same of a request that was committed. */
void hfi_zk_trust_committed(struct hfi_zk_trust *trust, int64_t sent_ms, int64_t now_ms);

static inline int64_t hfi_zk_good_until_ms(const struct hfi_zk_trust *trust) {
    return trust->timeout_ms == 0 ? 0 : trust->known_ms + trust->timeout_ms;
}

/* When to have something committed again: a quarter of T after the last answer, and not earlier, or
 * the packet that counts would be an older one. */
static inline int64_t hfi_zk_heartbeat_at_ms(const struct hfi_zk_trust *trust) {
    return trust->committed_ms + (trust->timeout_ms + 3) / 4;
}

#endif
