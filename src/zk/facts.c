/*
 * What is known of the servers without writing anything: the session that they have granted, the ensemble's configuration, and
 * the certificate.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor. What may not be read is a fact,
 * too. The result is made with malloc, since it is freed without a client. Versions, and who leads, servers tell by
 * other means than this protocol.
 */
#include "engine/facts.h"
#include "zk/line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* False: out of memory. `value` may be NULL, and then `why` is not. */
static bool add(hf_facts *facts, const char *name, const char *value, size_t len, const char *why) {
    hf_fact **more = realloc(facts->facts, (facts->facts_len + 1) * sizeof *more);
    if (more == NULL)
        return false;
    facts->facts = more;
    hf_fact *fact = calloc(1, sizeof *fact);
    if (fact == NULL)
        return false;
    more[facts->facts_len++] = fact;
    fact->name = strdup(name);
    fact->value = value != NULL ? strndup(value, len) : NULL;
    fact->why = why != NULL ? strdup(why) : NULL;
    return fact->name != NULL && (value == NULL || fact->value != NULL) &&
           (why == NULL || fact->why != NULL);
}

static bool add_number(hf_facts *facts, const char *name, int64_t number) {
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRId64, number);
    return add(facts, name, text, (size_t)len, NULL);
}

/* HF_OK, HF_EPROTO or HF_ENOMEM. */
static int add_config(hf_facts *facts, struct hfi_zk_answer *answer) {
    struct hfi_zk_text data;
    struct hfi_zk_stat stat;
    enum hfi_zk_remedy remedy;
    hf_error error = {0};
    if (answer->err != HFI_ZK_OK) {
        hfi_zk_error(answer->err, &error, &remedy);
        return add(facts, "zk.config", NULL, 0, error.text) ? HF_OK : HF_ENOMEM;
    }
    if (hfi_zk_get_data(&answer->body, &data, &stat) != HF_OK)
        return HF_EPROTO;
    return add(facts, "zk.config", data.bytes != NULL ? data.bytes : "", data.len, NULL)
               ? HF_OK
               : HF_ENOMEM;
}

static int collect(struct hfi_zk_call *c, hf_facts *facts) {
    struct hfi_zk_session *session = c->zk->session;
    int64_t until_s = hfi_conn_tls_until_s(hfi_zk_session_conn(session));
    facts->node = strdup(hfi_zk_session_node(session));
    if (facts->node == NULL ||
        !add_number(facts, "zk.session_ms", hfi_zk_session_credit(session).timeout_ms) ||
        (until_s != 0 && !add_number(facts, "tls.until_s", until_s)))
        return HF_ENOMEM;
    return add_config(facts, &c->answers[0]);
}

static void answered(struct hfi_zk_call *c) {
    hf_facts *facts = calloc(1, sizeof *facts);
    int err = facts != NULL ? collect(c, facts) : HF_ENOMEM;
    if (err == HF_OK) {
        c->call->facts = facts;
        hfi_zk_call_finish(c, HF_OK);
        return;
    }
    hfi_facts_free(facts);
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
    hfi_zk_call_fail(c, HF_EUNREACH, "the session with ZooKeeper is over");
}

void hfi_zk_facts(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = over;
    hfi_zk_ask_for(c, &config_step);
}
