/*
 * The seam: the real core on an engine that is not Redis.
 *
 * The engine (memory.h) keeps holds for as long as a session, has no leases, and has three nodes,
 * any of which can fall silent. The checks: the core keeps, extends, ends and loses holds by the
 * engine's proofs and events, at once if an event is certain; a silent node delays no other node's
 * renewals; and an operation that a kind does not offer is refused with an error text.
 */
#include "seam/client.h"

#include "support/case.h"
#include "support/wait.h"

#define LONG_MS 60000 /* a session whose next proof is far away */
#define OWNER_1 "00000000-0000-4000-8000-000000000000:1"

/* ---- Waiting for what is reported ---- */

struct expected {
    struct client *client;
    hf_event_kind kind;
    const char *name;
    unsigned number;
};

static bool was_notified(void *arg) {
    const struct expected *e = arg;
    return client_reported(e->client, e->kind, e->name, NULL, NULL) > 0;
}

static void wait_notified(struct client *client, hf_event_kind kind, const char *name) {
    struct expected expected = {.client = client, .kind = kind, .name = name};
    assert_true(wait_until(was_notified, &expected, HANG_MS));
}

static bool is_free(void *arg) {
    const struct expected *e = arg;
    return memory_count(e->client->memory, e->name) == 0;
}

static void wait_free(struct client *client, const char *name) {
    struct expected expected = {.client = client, .name = name};
    assert_true(wait_until(is_free, &expected, HANG_MS));
}

static bool was_renewed(void *arg) {
    const struct expected *e = arg;
    return memory_renewals(e->client->memory, 0) >= e->number;
}

/* The core tells of a renewal after the node has counted it. */
static bool was_changed(void *arg) {
    const struct expected *e = arg;
    return atomic_load(&e->client->changes) >= e->number;
}

static bool is_unanswered(void *arg) {
    const struct expected *e = arg;
    return memory_unanswered(e->client->memory, 1) > 0;
}

/* ---- Holding ---- */

CASE(a_hold_is_acquired_nested_and_released) {
    struct client *client = client_open(LONG_MS);
    hf_result result;
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    assert_int_equal(memory_count(client->memory, "a0"), 2);
    assert_int_equal(client_release(client, "a0", &result), HF_OK);
    assert_int_equal(result.count, 1);
    assert_int_equal(client_release(client, "a0", &result), HF_OK);
    assert_int_equal(memory_count(client->memory, "a0"), 0);
    assert_int_equal(client_release(client, "a0", &result), HF_ENOTOWNER);
    client_close(client);
}

CASE(another_owner_waits_for_it) {
    struct client *client = client_open(LONG_MS);
    struct request other = {
        .verb = &hfi_verb_acquire, .name = "a0", .owner = 2, .wait_ms = HANG_MS};
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    other.wait_ms = 0;
    assert_int_equal(client_run(client, &other, NULL), HF_EBUSY);
    other.wait_ms = 20;
    assert_int_equal(client_run(client, &other, NULL), HF_ETIMEDOUT);
    other.wait_ms = HANG_MS;
    struct hf_op *op = client_start(client, &other, NULL, NULL);
    assert_int_equal(client_release(client, "a0", NULL), HF_OK);
    other.verb = &hfi_verb_release; /* takes its turn behind the acquire */
    int err;
    assert_true(WAIT_FOR((err = client_run(client, &other, NULL)) != HF_ENOTOWNER, HANG_MS));
    assert_int_equal(err, HF_OK);
    hfi_task_unref(&op->task);
    client_close(client);
}

/* The proofs reach 4.5 s, and it is held for longer. */
CASE(renewals_keep_a_hold) {
    struct client *client = client_open(ENDURING_MS);
    int64_t since_ms = now_ms();
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    struct expected fourth = {.client = client, .number = 4};
    assert_true(wait_until(was_renewed, &fourth, HANG_MS));
    assert_true(now_ms() - since_ms > ENDURING_MS);
    assert_true(wait_until(was_changed, &fourth, HANG_MS));
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "a0", NULL, NULL), 0);
    assert_int_equal(client_release(client, "a0", NULL), HF_OK);
    client_close(client);
}

/* ---- Two times ---- */

/* The server would keep it for as long as the session. */
CASE(a_lease_ends_a_hold_that_is_proved_for_longer) {
    struct client *client = client_open(LONG_MS);
    int64_t since_ms = now_ms(), notified_ms;
    assert_int_equal(client_acquire(client, "a0", 200), HF_OK);
    wait_notified(client, HF_EVENT_LOST, "a0");
    client_reported(client, HF_EVENT_LOST, "a0", &notified_ms, NULL);
    assert_true(notified_ms - since_ms >= 200);
    wait_free(client, "a0"); /* released: nothing ends there by itself */
    assert_int_equal(client_release(client, "a0", NULL), HF_ELOST);
    client_close(client);
}

CASE(a_lease_is_kept_up_beyond_the_proof_and_ends) {
    const int64_t lease_ms = ENDURING_MS + 1000;
    struct client *client = client_open(ENDURING_MS);
    int64_t since_ms = now_ms(), notified_ms;
    assert_int_equal(client_acquire(client, "a0", lease_ms), HF_OK);
    assert_true(client_left_ms(client, "a0") <= ENDURING_MS);
    wait_notified(client, HF_EVENT_LOST, "a0");
    client_reported(client, HF_EVENT_LOST, "a0", &notified_ms, NULL);
    assert_true(notified_ms - since_ms >= lease_ms);
    assert_true(memory_renewals(client->memory, 0) >= 1);
    wait_free(client, "a0");
    client_close(client);
}

CASE(an_extension_raises_the_promise) {
    struct client *client = client_open(LONG_MS);
    struct request extend = {.verb = &hfi_verb_extend, .name = "a0", .lease_ms = 30000};
    assert_int_equal(client_acquire(client, "a0", 10000), HF_OK);
    assert_true(client_left_ms(client, "a0") <= 10000);
    assert_int_equal(client_run(client, &extend, NULL), HF_OK);
    assert_true(client_left_ms(client, "a0") > 20000);
    extend.lease_ms = 1000; /* raises only */
    assert_int_equal(client_run(client, &extend, NULL), HF_OK);
    assert_true(client_left_ms(client, "a0") > 20000);
    extend.lease_ms = 2 * LONG_MS; /* more is promised than is proved */
    assert_int_equal(client_run(client, &extend, NULL), HF_OK);
    assert_true(client_left_ms(client, "a0") <= LONG_MS);
    assert_int_equal(client_release(client, "a0", NULL), HF_OK);
    client_close(client);
}

/* ---- Loss ---- */

CASE(a_session_that_ends_is_reported_at_once) {
    struct client *client = client_open(LONG_MS);
    const char *reason;
    hf_result result;
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "b0", 30000), HF_OK);
    assert_int_equal(client_acquire(client, "a1", HF_WATCHDOG), HF_OK);
    memory_end_session(client->memory, 0);
    /* reported when that returns: nothing was renewed for it */
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "a0", NULL, &reason), 1);
    assert_string_equal(reason, "the session is over");
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "b0", NULL, NULL), 1);
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "a1", NULL, NULL), 0);
    assert_int_equal(memory_renewals(client->memory, 0), 0);
    assert_true(atomic_load(&client->changes) >= 2);
    assert_int_equal(client_release(client, "a0", &result), HF_ELOST);
    assert_string_equal(result.error.text, "the session is over");
    assert_int_equal(client_release(client, "a0", NULL), HF_ENOTOWNER); /* once */
    assert_int_equal(client_release(client, "b0", NULL), HF_ELOST);
    assert_int_equal(client_release(client, "a1", NULL), HF_OK);
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK); /* in the next session */
    assert_int_equal(client_release(client, "a0", NULL), HF_OK);
    client_close(client);
}

CASE(one_hold_of_one_owner_is_lost) {
    struct client *client = client_open(LONG_MS);
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "b0", HF_WATCHDOG), HF_OK);
    memory_take_away(client->memory, "a0", OWNER_1);
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "a0", NULL, NULL), 1);
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "b0", NULL, NULL), 0);
    client_close(client);
}

static void note_result(void *user, const hf_result *result) {
    atomic_store((atomic_int *)user, result->code);
}

static bool has_result(void *arg) {
    return atomic_load((atomic_int *)arg) != 1;
}

static bool is_awaited(void *arg) {
    return memory_is_awaited(((struct client *)arg)->memory);
}

/* The hold ends while a command of its owner is under way: that command hears of it. */
CASE(a_loss_reaches_the_command_under_way) {
    struct client *client = client_open(LONG_MS);
    client->core.cmd_timeout_ms = HANG_MS; /* it is still under way, whatever the machine does */
    atomic_int code = 1;
    struct request extend = {.verb = &hfi_verb_extend, .name = "a1", .lease_ms = 2 * LONG_MS};
    assert_int_equal(client_acquire(client, "a1", 30000), HF_OK);
    memory_silence(client->memory, 1, true);
    struct hf_op *op = client_start(client, &extend, note_result, &code);
    assert_true(wait_until(is_awaited, client, HANG_MS));
    memory_end_session(client->memory, 1);
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "a1", NULL, NULL), 1);
    memory_silence(client->memory, 1, false);
    assert_true(wait_until(has_result, &code, HANG_MS));
    assert_int_equal(atomic_load(&code), HF_ELOST);
    hfi_task_unref(&op->task);
    assert_int_equal(client_release(client, "a1", NULL), HF_ENOTOWNER);
    client_close(client);
}

/* ---- Doubt and proof ---- */

CASE(a_doubt_is_verified_by_a_renewal) {
    struct client *client = client_open(LONG_MS);
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "b0", 30000), HF_OK);
    memory_doubt(client->memory, "a0"); /* a lie */
    struct expected first = {.client = client, .number = 1};
    assert_true(wait_until(was_renewed, &first, HANG_MS));
    assert_true(client_left_ms(client, "a0") > 0);
    memory_drop(client->memory, "a0");
    memory_drop(client->memory, "b0");
    assert_int_equal(client_reported(client, HF_EVENT_LOST, "a0", NULL, NULL), 0);
    memory_doubt(client->memory, NULL);
    wait_notified(client, HF_EVENT_LOST, "a0");
    wait_notified(client, HF_EVENT_LOST, "b0"); /* though nothing renews it */
    client_close(client);
}

CASE(a_connection_made_again_renews_its_node) {
    struct client *client = client_open(LONG_MS);
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "a2", HF_WATCHDOG), HF_OK);
    memory_reconnect(client->memory, 0);
    struct expected first = {.client = client, .number = 1};
    assert_true(wait_until(was_renewed, &first, HANG_MS));
    assert_int_equal(memory_renewals(client->memory, 2), 0);
    client_close(client);
}

/* The node answers no renewal, but the engine knows better. */
CASE(a_proof_needs_no_renewal) {
    struct client *client = client_open(LONG_MS);
    assert_int_equal(client_acquire(client, "a1", HF_WATCHDOG), HF_OK);
    memory_silence(client->memory, 1, true);
    int64_t before_ms = client_left_ms(client, "a1");
    unsigned changes = atomic_load(&client->changes);
    memory_prove(client->memory, 1, 2 * LONG_MS);
    assert_true(client_left_ms(client, "a1") > before_ms);
    memory_prove(client->memory, 1, LONG_MS / 2); /* or less */
    assert_in_range(client_left_ms(client, "a1"), 1, LONG_MS / 2);
    assert_true(atomic_load(&client->changes) > changes);
    assert_int_equal(memory_renewals(client->memory, 1), 0);
    client_close(client);
}

/* It did not know at first. */
CASE(a_proof_that_names_a_time_is_followed_by_a_renewal) {
    struct client *client = client_open(ENDURING_MS);
    memory_plan(client->memory, false);
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    memory_plan(client->memory, true);
    memory_prove(client->memory, 0, ENDURING_MS);
    struct expected second = {.client = client, .number = 2};
    assert_true(wait_until(was_renewed, &second, HANG_MS));
    assert_int_equal(client_release(client, "a0", NULL), HF_OK);
    client_close(client);
}

/* The release is on its way. A proof of less than was promised would be a reason to renew. */
CASE(a_hold_being_released_is_not_renewed_for_a_proof) {
    struct client *client = client_open(LONG_MS);
    client->core.cmd_timeout_ms = HANG_MS;
    atomic_int code = 1;
    struct request release = {.verb = &hfi_verb_release, .name = "a1"};
    assert_int_equal(client_acquire(client, "a1", HF_WATCHDOG), HF_OK);
    memory_silence(client->memory, 1, true);
    struct hf_op *op = client_start(client, &release, note_result, &code);
    assert_true(wait_until(is_awaited, client, HANG_MS));
    memory_prove(client->memory, 1, LONG_MS / 2);
    for (int i = 0; i < 3; i++) /* the keeper has seen to what the first has led to */
        memory_reconnect(client->memory, 1);
    assert_int_equal(memory_unanswered(client->memory, 1), 0);
    memory_silence(client->memory, 1, false);
    assert_true(wait_until(has_result, &code, HANG_MS));
    assert_int_equal(atomic_load(&code), HF_OK);
    assert_int_equal(memory_renewals(client->memory, 1), 0);
    hfi_task_unref(&op->task);
    client_close(client);
}

/* The engine does not know what each of them was promised. */
CASE(a_proof_that_is_far_from_its_end_is_no_warning) {
    struct client *client = client_open(LONG_MS);
    assert_int_equal(client_acquire(client, "a1", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "b1", LONG_MS), HF_OK);
    memory_prove(client->memory, 1, LONG_MS / 5);
    memory_prove(client->memory, 1, LONG_MS / 5); /* what the first has led to is reported by now */
    assert_in_range(client_left_ms(client, "a1"), 1, LONG_MS / 5);
    assert_in_range(client_left_ms(client, "b1"), 1, LONG_MS / 5);
    assert_int_equal(client_reported(client, HF_EVENT_WARNING, "a1", NULL, NULL), 0);
    assert_int_equal(client_reported(client, HF_EVENT_WARNING, "b1", NULL, NULL), 0);
    client_close(client);
}

/* ---- Nodes ---- */

CASE(a_silent_node_delays_nobody_else) {
    struct client *client =
        client_open(24000); /* a renewal that is a sixth of it late is a warning */
    assert_int_equal(client_acquire(client, "a0", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "a1", HF_WATCHDOG), HF_OK);
    assert_int_equal(client_acquire(client, "a2", HF_WATCHDOG), HF_OK);
    memory_silence(client->memory, 1, true);
    struct expected unanswered = {.client = client};
    assert_true(wait_until(is_unanswered, &unanswered, HANG_MS));
    wait_notified(client, HF_EVENT_LOST, "a1");
    /* those that were due together with it had their answers while it had none */
    assert_true(memory_renewals_beside(client->memory, 2) >= 1);
    assert_int_equal(client_reported(client, HF_EVENT_WARNING, "a1", NULL, NULL), 1);
    assert_int_equal(client_reported(client, HF_EVENT_WARNING, "a0", NULL, NULL), 0);
    assert_int_equal(client_reported(client, HF_EVENT_WARNING, "a2", NULL, NULL), 0);
    assert_true(memory_renewals(client->memory, 0) >= 2);
    assert_true(memory_renewals(client->memory, 2) >= 2);
    assert_int_equal(client_release(client, "a0", NULL), HF_OK);
    assert_int_equal(client_release(client, "a2", NULL), HF_OK);
    client_close(client);
}

/* An acquire of unknown outcome is undone when the node speaks again. */
CASE(a_possible_grant_of_a_silent_node_is_settled) {
    struct client *client = client_open(LONG_MS);
    struct request acquire = {.verb = &hfi_verb_acquire, .name = "a1", .wait_ms = 100};
    memory_silence(client->memory, 1, true);
    assert_int_equal(client_run(client, &acquire, NULL), HF_EUNREACH);
    memory_silence(client->memory, 1, false);
    assert_int_equal(client_acquire(client, "a1", HF_WATCHDOG), HF_OK);
    assert_int_equal(memory_count(client->memory, "a1"), 1);
    assert_int_equal(client_release(client, "a1", NULL), HF_OK);
    client_close(client);
}

/* ---- What a kind does not offer ---- */

static void refused(struct client *client, const struct hfi_verb *verb, int64_t lease_ms,
                    const char *words) {
    struct request request = {
        .verb = verb, .kind = &memory_leaseless, .name = "a0", .lease_ms = lease_ms};
    hf_result result;
    assert_int_equal(client_run(client, &request, &result), HF_ENOTSUP);
    assert_non_null(strstr(result.error.text, words));
}

CASE(verbs_a_kind_lacks_are_refused) {
    struct client *client = client_open(LONG_MS);
    struct request request = {.kind = &memory_leaseless, .name = "a0"};
    refused(client, &hfi_verb_acquire, 1000, "has no lease");
    request.verb = &hfi_verb_acquire;
    assert_int_equal(client_run(client, &request, NULL), HF_OK);
    refused(client, &hfi_verb_extend, 1000, "has no lease");
    refused(client, &hfi_verb_break, 0, "does not support");
    refused(client, &hfi_verb_query, 0, "does not support");
    refused(client, &hfi_verb_inspect, 0, "does not support");
    refused(client, &hfi_verb_object_op, 0, "does not support");
    assert_int_equal(memory_count(client->memory, "a0"), 1);
    request.verb = &hfi_verb_release;
    assert_int_equal(client_run(client, &request, NULL), HF_OK);
    client_close(client);
}

/* ---- For the caller that is built on it ---- */

CASE(a_parent_is_notified_when_an_operation_completes) {
    struct client *client = client_open(LONG_MS);
    atomic_int code = 1;
    struct request request = {.verb = &hfi_verb_acquire, .name = "a0"};
    struct hf_op *op = client_start(client, &request, note_result, &code);
    assert_true(wait_until(has_result, &code, HANG_MS));
    assert_int_equal(atomic_load(&code), HF_OK);
    hfi_task_unref(&op->task);

    /* even if it has something to settle */
    atomic_store(&code, 1);
    memory_silence(client->memory, 1, true);
    request = (struct request){.verb = &hfi_verb_acquire, .name = "a1"};
    op = client_start(client, &request, note_result, &code);
    assert_true(wait_until(has_result, &code, HANG_MS));
    assert_int_equal(atomic_load(&code), HF_EUNREACH);
    hfi_task_unref(&op->task);
    assert_int_equal(client_release(client, "a0", NULL), HF_OK);
    client_close(client);
}

RUN_CASES(NULL, NULL)
