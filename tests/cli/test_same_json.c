/*
 * hf_fleet_json() and hf_lock_info_json() beside the tool's own writers: the same keys and values, for surveys of real
 * clients, and for names and texts that are no text.
 */
#include "fleet/fleet.h"

#include <holdfast/holdfast.h>

#include <jansson.h>

#include "support/world.h"

static json_t *parse(char *text) {
    json_error_t error;
    json_t *value = json_loads(text, JSON_ALLOW_NUL, &error);
    if (value == NULL)
        fail_msg("%s: %s", error.text, text);
    hf_text_free(text);
    return value;
}

static void assert_same(const hf_fleet *fleet) {
    char *text;
    assert_int_equal(hf_fleet_json(fleet, &text), HF_OK);
    json_t *ours = parse(text), *locks = fleet_json_locks(fleet);
    json_t *clients = fleet_json_clients(fleet);
    assert_true(json_equal(json_object_get(ours, "locks"), locks));
    assert_true(json_equal(json_object_get(ours, "clients"), clients));
    assert_int_equal(json_integer_value(json_object_get(ours, "took_ms")), fleet->took_ms);
    json_decref(ours);
    json_decref(locks);
    json_decref(clients);
}

WORLD_CASE_WITH(a_survey_is_as_ls_prints_it, world_options(), options.report_after_ms = 0) {
    own_lock *fair, *odd;
    hf_op *op;
    hf_fleet *fleet;
    assert_int_equal(new_lock(w->client, HF_FAIR, "fair", 4, &fair), HF_OK);
    assert_int_equal(new_lock(w->client, HF_PLAIN, "odd\0\xff\"\\\n", 8, &odd), HF_OK);
    assert_int_equal(hf_permits_try_set(w->permits, 3, NULL), HF_OK);
    hf_permit_id id;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(fair), HF_OK);
    assert_int_equal(hf_lock_acquire(odd), HF_OK);
    assert_int_equal(hf_permits_acquire(w->permits, &id), HF_OK);
    assert_int_equal(hf_lock_acquire_start(fair, NULL, NULL, NULL, &op), HF_OK);
    assert_true(WAIT_FOR(world_stats(w->client).waits == 1, HANG_MS));
    bool full = false;
    for (int i = 0; i < 1000 && !full;
         i++) { /* until the client answers, and the server knows the queue */
        assert_int_equal(hf_survey(w->rival, NULL, &fleet), HF_OK);
        assert_same(fleet);
        full = fleet->locks_len == 4 && fleet->clients_len > 0;
        for (size_t k = 0; full && k < fleet->locks_len; k++)
            full = strcmp(fleet->locks[k]->kind, "fair") != 0 || fleet->locks[k]->waiters_len == 1;
        hf_fleet_free(fleet);
    }
    assert_true(full);
    hf_op_cancel(op);
    assert_int_equal(joined(op, NULL), HF_ECANCELED);
    assert_int_equal(hf_lock_release(odd), HF_OK);
    assert_int_equal(hf_lock_release(fair), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_OK);
}

CASE(an_empty_survey_is_empty) {
    const hf_fleet none = {.missing_text = "nobody could be asked", .took_ms = 7};
    char *text;
    assert_int_equal(hf_fleet_json(&none, &text), HF_OK);
    assert_string_equal(
        text, "{\"took_ms\":7,\"missing\":\"nobody could be asked\",\"locks\":[],\"clients\":[]}");
    hf_text_free(text);
    assert_int_equal(hf_fleet_json(NULL, &text), HF_EINVAL);
}

WORLD_CASE(a_lock_is_as_show_prints_it) {
    hf_lock_info *info;
    char *text, expected[512];
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_inspect(w->rival_lock, &info), HF_OK);
    assert_int_equal(hf_lock_info_json(info, WORLD_NAME, strlen(WORLD_NAME), &text), HF_OK);
    json_t *ours = parse(text);
    snprintf(expected, sizeof expected, "%s:%llu", hf_client_id(w->client),
             (unsigned long long)hf_owner_self());
    const json_t *holder = json_array_get(json_object_get(ours, "holders"), 0);
    assert_string_equal(json_string_value(json_object_get(ours, "name")), WORLD_NAME);
    assert_string_equal(json_string_value(json_object_get(ours, "kind")), "plain");
    assert_true(json_is_true(json_object_get(ours, "held")));
    assert_string_equal(json_string_value(json_object_get(holder, "owner")), expected);
    assert_int_equal(json_integer_value(json_object_get(holder, "count")), 1);
    assert_true(json_integer_value(json_object_get(ours, "ttl_ms")) > 0);
    assert_null(json_object_get(ours, "waiters"));
    json_decref(ours);
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);

    cmd_ok(w->server, "SET %s text", WORLD_NAME);
    assert_int_equal(hf_lock_inspect(w->lock, &info), HF_OK);
    assert_int_equal(hf_lock_info_json(info, "\xff", 1, &text), HF_OK);
    assert_string_equal(text, "{\"name\":\"\xef\xbf\xbd\",\"name_hex\":\"ff\",\"kind\":\"other\","
                              "\"held\":false,\"holders\":[],\"type\":\"string\"}");
    hf_text_free(text);
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_info_json(NULL, "x", 1, &text), HF_EINVAL);
    server_drop(w->server, WORLD_NAME);
}

RUN_CASES(world_start_server, world_stop_server)
