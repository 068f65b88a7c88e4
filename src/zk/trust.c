/*
 * How long a session can be trusted (the rule is in trust.h).
 *
 * Used by the session under its mutex, and by whoever wants to know what the rule gives.
 */
#include "zk/trust.h"

static int64_t later(int64_t a_ms, int64_t b_ms) {
    return a_ms > b_ms ? a_ms : b_ms;
}

static int64_t *slot(struct hfi_zk_trust *trust, uint64_t index) {
    return &trust->sent_ms[index % HFI_ZK_REMEMBERED];
}

void hfi_zk_trust_connected(struct hfi_zk_trust *trust, int64_t timeout_ms, int64_t sent_ms) {
    trust->timeout_ms = timeout_ms;
    trust->known_ms = later(trust->known_ms, sent_ms);
    trust->committed_ms = later(trust->committed_ms, sent_ms);
    trust->sent_len = 0;
    hfi_zk_trust_sent(trust, sent_ms);
}

void hfi_zk_trust_sent(struct hfi_zk_trust *trust, int64_t now_ms) {
    int64_t step_ms = trust->timeout_ms / HFI_ZK_STEPS;
    if (trust->sent_len > 0 && now_ms - *slot(trust, trust->sent_len - 1) < step_ms)
        return;
    *slot(trust, trust->sent_len++) = now_ms;
}

void hfi_zk_trust_committed(struct hfi_zk_trust *trust, int64_t sent_ms) {
    int64_t before_ms = sent_ms - (trust->timeout_ms + 3) / 4;
    uint64_t oldest = trust->sent_len > HFI_ZK_REMEMBERED ? trust->sent_len - HFI_ZK_REMEMBERED : 0;
    trust->committed_ms = later(trust->committed_ms, sent_ms);
    for (uint64_t i = trust->sent_len; i > oldest; i--) {
        int64_t packet_ms = *slot(trust, i - 1);
        if (packet_ms > before_ms)
            continue;
        trust->known_ms = later(trust->known_ms, packet_ms);
        return;
    }
}
