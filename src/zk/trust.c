/*
 * How long a session can be trusted (the rule is in trust.h).
 *
 * Used by the session under its mutex, and by whoever wants to know what the rule gives.
 */
#include "zk/trust.h"

static int64_t later(int64_t a_ms, int64_t b_ms) {
    return a_ms > b_ms ? a_ms : b_ms;
}

static struct hfi_zk_packet *packet(struct hfi_zk_trust *trust, uint64_t index) {
    return &trust->packets[index % HFI_ZK_REMEMBERED];
}

void hfi_zk_trust_connected(struct hfi_zk_trust *trust, int64_t timeout_ms, int64_t sent_ms,
                            int64_t now_ms) {
    trust->timeout_ms = timeout_ms;
    trust->known_ms = later(trust->known_ms, sent_ms);
    trust->committed_ms = later(trust->committed_ms, now_ms);
    trust->packets_len = 0;
    hfi_zk_trust_answered(trust, sent_ms, now_ms);
}

void hfi_zk_trust_answered(struct hfi_zk_trust *trust, int64_t sent_ms, int64_t now_ms) {
    int64_t step_ms = trust->timeout_ms / HFI_ZK_STEPS;
    if (trust->packets_len > 0 &&
        sent_ms - packet(trust, trust->packets_len - 1)->sent_ms < step_ms)
        return;
    *packet(trust, trust->packets_len++) =
        (struct hfi_zk_packet){.sent_ms = sent_ms, .answered_ms = now_ms};
}

void hfi_zk_trust_committed(struct hfi_zk_trust *trust, int64_t sent_ms, int64_t now_ms) {
    int64_t before_ms = sent_ms - (trust->timeout_ms + 3) / 4;
    uint64_t oldest =
        trust->packets_len > HFI_ZK_REMEMBERED ? trust->packets_len - HFI_ZK_REMEMBERED : 0;
    trust->committed_ms = later(trust->committed_ms, now_ms);
    for (uint64_t i = trust->packets_len; i > oldest; i--) {
        const struct hfi_zk_packet *candidate = packet(trust, i - 1);
        if (candidate->answered_ms > before_ms)
            continue;
        trust->known_ms = later(trust->known_ms, candidate->sent_ms);
        break;
    }
    hfi_zk_trust_answered(trust, sent_ms, now_ms);
}
