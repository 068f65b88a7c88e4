/*
 * What hf_lock_server_info() gets of an ensemble, without writing anything: the granted session timeout, the ensemble's
 * configuration, and the certificate's expiry.
 *
 * Called by src/core through the fleet view's door, on the thread of the call's executor. A refused
 * read is a field, too. The result is allocated with malloc, since it is freed without a client.
 * This protocol tells neither the servers' versions nor which one leads.
 */
#include "zk/fleet/observe.h"

#include "engine/server_info.h"
#include "zk/ops/queue.h"

#include <stdlib.h>
#include <string.h>

/* HF_OK, HF_EPROTO or HF_ENOMEM. */
static int add_config(hf_server_info *info, struct hfi_zk_answer *answer) {
    struct hfi_zk_text data;
    struct hfi_zk_stat stat;
    enum hfi_zk_remedy remedy;
    hf_error error = {0};
    if (answer->err != HFI_ZK_OK) {
        hfi_zk_error(answer->err, &error, &remedy);
        return hfi_server_info_add_text(info, "", "zk.config", NULL, error.text) ? HF_OK
                                                                                 : HF_ENOMEM;
    }
    if (hfi_zk_get_data(&answer->body, &data, &stat) != HF_OK)
        return HF_EPROTO;
    const hf_bytes value = {data.bytes != NULL ? data.bytes : "", data.len};
    return hfi_server_info_add(info, "zk.", (hf_bytes){"config", strlen("config")}, value, NULL)
               ? HF_OK
               : HF_ENOMEM;
}

static int collect(struct hfi_zk_call *c, hf_server_info *info) {
    struct hfi_zk_session *session = c->zk->session;
    int64_t until_s = hfi_conn_tls_until_s(hfi_zk_session_conn(session));
    info->node = strdup(hfi_zk_session_node(session));
    if (info->node == NULL ||
        !hfi_server_info_add_number(info, "zk.session_ms",
                                    hfi_zk_session_credit(session).timeout_ms) ||
        (until_s != 0 && !hfi_server_info_add_number(info, "tls.until_s", until_s)))
        return HF_ENOMEM;
    return add_config(info, &c->answers[0]);
}

static void answered(struct hfi_zk_call *c) {
    hf_server_info *info = calloc(1, sizeof *info);
    int err = info != NULL ? collect(c, info) : HF_ENOMEM;
    if (err == HF_OK) {
        c->call->server_info = info;
        hfi_zk_call_finish(c, HF_OK);
        return;
    }
    hfi_server_info_free(info);
    if (err == HF_EPROTO)
        hfi_zk_call_fail_proto(c);
    else
        hfi_zk_call_fail(c, err, "out of memory");
}

static void write_config(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    (void)c;
    hfi_zk_put_get_data(out, 0, "/zookeeper/config", false);
}

static const struct hfi_zk_step config_step = {
    .frames = 1, .tolerant = true, .write = write_config, .answered = answered};

static void over(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNREACH, "the ZooKeeper session has ended");
}

void hfi_zk_server_info(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = over;
    hfi_zk_ask_for(c, &config_step);
}
