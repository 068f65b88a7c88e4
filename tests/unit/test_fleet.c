/*
 * Joining the halves of a survey, and deadlocks in it (fleet/survey.h), without servers: what is forged,
 * too old, twice or nonsense, and which circles are deadlocks.
 */
#include "support/case.h"
#include "support/wait.h"
#include "unit/findings.h"

CASE(both_halves_are_one) {
    struct hfi_findings *findings = begin(1000);
    found(findings, "x", (const char *[]){A ":1", NULL});
    answered(findings, ANSWER(A, "\"new\":{\"a\":[1]},", "", HOLD("x", A ":1")));
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->locks_len, 1);
    assert_int_equal(fleet->clients_len, 1);
    const hf_fleet_party *holder = fleet->locks[0]->holders[0];
    assert_int_equal(fleet->locks[0]->holders_len, 1);
    assert_int_equal(holder->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    assert_int_equal(holder->for_ms, 9000);
    assert_string_equal(holder->client->host, "host");
    assert_int_equal(holder->client->pid, 12);
    assert_string_equal(holder->client->program, "prog");
    hfi_fleet_free(fleet);
}

/* Times come with an answer, or not, if the client is older; and whatever is said, they add up. */
CASE(times_are_reported) {
    struct hfi_findings *findings = begin(1000);
    answered(findings,
             ANSWER(A,
                    "\"losses\":-3,\"released\":4,\"renewals\":5,"
                    "\"wait\":{\"sum_us\":70,\"new\":[1],\"max_us\":50,\"buckets\":[1,0,2]},"
                    "\"hold\":[1,2],\"hand_over\":{\"sum_us\":-1,\"buckets\":{\"a\":1}},",
                    "", ""));
    answered(findings, ANSWER(B, "", "", ""));
    answered(findings,
             ANSWER(C,
                    "\"wait\":{\"buckets\":[9223372036854775807,9223372036854775807,"
                    "9223372036854775807,-1,\"x\",1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,"
                    "20,21,22,23,24,25,26,27,28,29,30,31,32,33,34]},",
                    "", ""));
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->clients_len, 3);
    const hf_fleet_client *client = fleet->clients[0];
    assert_int_equal(client->losses, 0);
    assert_int_equal(client->released, 4);
    assert_int_equal(client->renewals, 5);
    assert_int_equal(client->wait.count, 3);
    assert_int_equal(client->wait.sum_us, 70);
    assert_int_equal(client->wait.max_us, 50);
    assert_int_equal(client->wait.buckets[2], 2);
    assert_int_equal(client->hold.count + client->hand_over.count + client->hand_over.sum_us, 0);
    assert_int_equal(fleet->clients[1]->wait.count, 0);
    client = fleet->clients[2];
    assert_true(client->wait.count > client->wait.buckets[0]); /* and did not begin anew */
    assert_int_equal(client->wait.buckets[3], 0);
    hfi_fleet_free(fleet);
}

/* By name, whatever is wrong with some of them. */
CASE(times_by_name_are_reported) {
    struct hfi_findings *findings = begin(1000);
    answered(
        findings,
        ANSWER(
            A,
            "\"names_left_out\":2,\"names\":["
            "{\"name\":\"one\",\"begun\":7,\"wait\":{\"sum_us\":9,\"buckets\":[1,2]},\"new\":{}},"
            "{\"begun\":1,\"wait\":{\"buckets\":[1]}},{\"name\":\"\"},{\"name\":5},\"x\",[],"
            "{\"name_hex\":\"ff00\",\"begun\":-1,\"hold\":{\"buckets\":[3]},\"wait\":1},"
            "{\"name_hex\":\"zz\"}],",
            "", ""));
    answered(findings, ANSWER(B, "\"names\":{\"a\":1},\"names_left_out\":-1,", "", ""));
    hf_fleet *fleet = join(findings);
    const hf_fleet_client *client = fleet->clients[0];
    assert_int_equal(fleet->locks_len, 0); /* nobody holds them */
    assert_int_equal(client->names_len, 2);
    assert_int_equal(client->names_left_out, 2);
    assert_string_equal(client->names[0]->name, "one");
    assert_int_equal(client->names[0]->begun, 7);
    assert_int_equal(client->names[0]->wait.count, 3);
    assert_int_equal(client->names[0]->wait.sum_us, 9);
    assert_int_equal(client->names[0]->hold.count, 0);
    assert_int_equal(client->names[1]->name_len, 2);
    assert_memory_equal(client->names[1]->name, "\xff\0", 3);
    assert_int_equal(client->names[1]->begun, 0);
    assert_int_equal(client->names[1]->hold.count, 3);
    assert_int_equal(client->names[1]->wait.count, 0);
    assert_int_equal(fleet->clients[1]->names_len, 0);
    assert_int_equal(fleet->clients[1]->names_left_out, 0);
    hfi_fleet_free(fleet);
}

/* Short texts become large structs, so there is an end to them. */
CASE(names_without_end_are_left_out) {
    enum { NAMES = 70000 };
    static const char one[] = "{\"name\":\"a\"},";
    size_t one_len = sizeof one - 1, head_len;
    own_text *text = malloc(200 + NAMES * one_len);
    assert_non_null(text);
    head_len = (size_t)sprintf(text, "{\"v\":1,\"id\":\"" A "\",\"names\":[");
    for (size_t i = 0; i < NAMES; i++)
        memcpy(text + head_len + i * one_len, one, one_len);
    memcpy(text + head_len + NAMES * one_len - 1, "]}", 3);
    struct hfi_findings *findings = begin(1000);
    answered(findings, text);
    answered(findings, "{\"v\":1,\"id\":\"" B "\",\"names\":[{\"name\":\"b\"}],"
                       "\"names_left_out\":9223372036854775807}");
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->clients[0]->names_len, 65536);
    assert_int_equal(fleet->clients[0]->names_left_out, NAMES - 65536);
    assert_int_equal(fleet->clients[1]->names_len, 0);
    assert_true(fleet->clients[1]->names_left_out > 0);
    hfi_fleet_free(fleet);
}

/* Each client says how long it has held, and at its own moment: of two that began together now one is older, now the
 * other. Their order stays. */
CASE(holders_that_began_together_keep_their_order) {
    static const int ages_ms[][3] = {{5000, 5030, 9000}, {5030, 5000, 9000}, {5000, 5000, 5101}};
    for (size_t k = 0; k < sizeof ages_ms / sizeof *ages_ms; k++) {
        static const char *const clients[] = {A, B, C};
        struct hfi_findings *findings = begin(1000);
        for (int i = 0; i < 3; i++) {
            char text[512];
            snprintf(
                text, sizeof text,
                "{\"v\":1,\"id\":\"%s\",\"name\":\"holdfast:%s:host:12:prog\",\"waits\":[],\"holds\":"
                "[{\"name\":\"x\",\"kind\":\"read\",\"owner\":\"%s:1\",\"for_ms\":%d,\"count\":1}]}",
                clients[i], clients[i], clients[i], ages_ms[k][i]);
            answered(findings, text);
        }
        hf_fleet *fleet = join(findings);
        const hf_fleet_lock *lock = fleet->locks[0];
        assert_int_equal(lock->holders_len, 3);
        assert_string_equal(lock->holders[0]->owner, C ":1");
        assert_string_equal(lock->holders[1]->owner, A ":1");
        assert_string_equal(lock->holders[2]->owner, B ":1");
        hfi_fleet_free(fleet);
    }
}

/* What the server does not have is marked; what it has twice is one. */
CASE(a_dispute_is_marked) {
    struct hfi_findings *findings = begin(1000);
    found(findings, "x", (const char *[]){B ":1", NULL});
    found(findings, "x", (const char *[]){B ":1", NULL});
    answered(findings, ANSWER(A, "", "", HOLD("x", A ":1")));
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->locks_len, 1);
    assert_true(fleet->locks[0]->disputed);
    assert_int_equal(fleet->locks[0]->holders_len, 2);
    hfi_fleet_free(fleet);
}

/* However long somebody says to have had it, whom the server knows comes first, and is what it is. */
CASE(a_claim_is_never_instead_of_the_server) {
    struct hfi_findings *findings = begin(1000);
    found(findings, "x", (const char *[]){B ":1", NULL});
    answered(findings, ANSWER(A, "\"up_ms\":9223372036854775807,", "",
                              "{\"name\":\"x\",\"kind\":\"latch\",\"owner\":\"" A
                              ":1\",\"for_ms\":9223372036854775807,"
                              "\"left_ms\":9223372036854775807,\"count\":1},"
                              "{\"name\":\"x\",\"kind\":\"permits\",\"owner\":\"" B
                              ":1\",\"for_ms\":5,\"count\":7}"));
    hf_fleet *fleet = join(findings);
    const hf_fleet_lock *lock = fleet->locks[0];
    assert_int_equal(lock->holders_len, 2);
    assert_string_equal(lock->kind, "plain");
    assert_string_equal(lock->holders[0]->owner, B ":1");
    assert_string_equal(lock->holders[0]->kind, "plain");
    assert_int_equal(lock->holders[0]->seen_by, HF_SEEN_BY_SERVER);
    assert_null(lock->holders[0]->client);
    assert_string_equal(lock->holders[1]->kind, "latch");
    assert_true(lock->holders[1]->for_ms > 0 && lock->holders[1]->for_ms < INT64_MAX / 1000000);
    assert_true(lock->holders[1]->remaining_ms > 0 &&
                lock->holders[1]->remaining_ms < INT64_MAX / 1000000);
    assert_true(fleet->clients[0]->up_ms > 0 && fleet->clients[0]->up_ms < INT64_MAX / 1000000);
    hfi_fleet_free(fleet);
}

CASE(nonsense_is_passed_over) {
    static const char *const texts[] = {
        "",
        "nonsense",
        "[]",
        "{\"v\":1}",
        "{\"v\":1,\"id\":\"" A "\"",                                     /* cut */
        "{\"v\":2,\"id\":\"" A "\",\"holds\":[" HOLD("x", A ":1") "]}",  /* of another version */
        "{\"id\":\"" A "\",\"holds\":[" HOLD("x", A ":1") "]}",          /* of none */
        "{\"v\":1,\"id\":\"" A "0\",\"holds\":[" HOLD("x", A ":1") "]}", /* too long */
        "{\"v\":1,\"id\":5,\"holds\":[" HOLD("x", A ":1") "]}",
        "{\"v\":1,\"id\":\"" A "\",\"holds\":[" HOLD("x", A ":1") "]} x",
        "{\"v\":1,\"id\":\"" A "\",\"holds\":[[[[[[[[[[1]]]]]]]]]]}",
    };
    struct hfi_findings *findings = begin(1000);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        answered(findings, texts[i]);
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->clients_len, 0);
    assert_int_equal(fleet->locks_len, 0);
    hfi_fleet_free(fleet);
}

/* A client speaks for itself only, and once. */
CASE(a_client_reports_only_itself) {
    struct hfi_findings *findings = begin(1000);
    answered(findings, ANSWER(A, "", "", HOLD("mine", A ":1") "," HOLD("forged", B ":1")));
    answered(findings, ANSWER(A, "", "", HOLD("second", A ":1")));
    answered(findings,
             ANSWER(C, "", "{\"name\":\"no owner\"},5,[]", "{},{\"owner\":5,\"name\":\"x\"}"));
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->locks[0]->name, "mine");
    assert_int_equal(fleet->clients_len, 2);
    hfi_fleet_free(fleet);
}

/* Who says that it tells nothing is not taken for silent, even if another is. */
CASE(a_client_without_a_report_is_connected) {
    struct hfi_findings *findings = begin(1000);
    static const char *const names[] = {"holdfast:" A ":host:12:prog",
                                        "holdfast:" B ":host:13:prog"};
    for (int i = 0; i < 2; i++) {
        struct hfi_found_connection *connection = calloc(1, sizeof *connection);
        assert_non_null(connection);
        snprintf(connection->name, sizeof connection->name, "%s", names[i]);
        connection->listens = true;
        hfi_list_push_back(&findings->connections, &connection->link);
    }
    answered(findings, "{\"v\":1,\"id\":\"" A "\",\"tells_nothing\":1}");
    findings->subscribers = 2;
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->clients_len, 2);
    assert_int_equal(fleet->clients[0]->presence, HF_PRESENCE_CONNECTED);
    assert_string_equal(fleet->clients[0]->host, "host");
    assert_int_equal(fleet->clients[1]->presence, HF_PRESENCE_SILENT);
    hfi_fleet_free(fleet);
}

/* It is known who hears questions: nobody else is missed, however many have. */
CASE(a_client_that_takes_no_questions_is_not_silent) {
    struct hfi_findings *findings = begin(1000);
    static const char *const names[] = {"holdfast:" A ":host:12:prog",
                                        "holdfast:" B ":host:13:prog"};
    for (int i = 0; i < 2; i++) {
        struct hfi_found_connection *connection = calloc(1, sizeof *connection);
        assert_non_null(connection);
        snprintf(connection->name, sizeof connection->name, "%s", names[i]);
        connection->listens = i == 0;
        hfi_list_push_back(&findings->connections, &connection->link);
    }
    answered(findings, ANSWER(C, "", "", "")); /* perhaps forged */
    findings->subscribers_known = true;
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->clients_len, 3);
    assert_int_equal(fleet->clients[0]->presence, HF_PRESENCE_SILENT);
    assert_int_equal(fleet->clients[1]->presence, HF_PRESENCE_CONNECTED);
    assert_int_equal(fleet->clients[2]->presence, HF_PRESENCE_ALIVE);
    hfi_fleet_free(fleet);
}

static struct hfi_findings *forge(int64_t taken_ms, int clients) {
    struct hfi_findings *findings = begin(taken_ms);
    found(findings, "x", (const char *[]){A ":1", NULL});
    for (int i = 0; i < clients; i++) {
        char text[512], id[40];
        snprintf(id, sizeof id, "%08x-0000-4000-8000-%012x", (unsigned)i * 2654435761u,
                 (unsigned)i);
        snprintf(
            text, sizeof text,
            "{\"v\":1,\"id\":\"%s\",\"under\":\"" A ":1\",\"waits\":[{\"name\":\"x\",\"kind\":"
            "\"plain\",\"owner\":\"%s:1\",\"for_ms\":9000}],\"holds\":[{\"name\":\"x\",\"kind\":"
            "\"plain\",\"owner\":\"%s:2\",\"for_ms\":9000,\"count\":1}]}",
            id, id, id);
        answered(findings, text);
    }
    return findings;
}

/* As many as an asker takes: it is over before any asker times out, and no client that the server does not know is
 * believed to keep others waiting. */
CASE(a_forged_crowd) {
    enum { FORGED = 10000 };
    hf_fleet *earlier = join(forge(1000, FORGED)), *later = join(forge(2000, FORGED));
    hf_deadlocks *deadlocks = NULL;
    assert_int_equal(later->clients_len, FORGED);
    for (size_t i = 1; i < later->clients_len; i++)
        assert_true(strcmp(later->clients[i - 1]->id, later->clients[i]->id) < 0);
    assert_int_equal(later->locks_len, 1);
    assert_int_equal(later->locks[0]->waiters_len, FORGED);
    assert_int_equal(hfi_fleet_deadlocks(earlier, later, &deadlocks), HF_OK);
    for (size_t i = 0; i < deadlocks->len; i++)
        for (size_t k = 0; k < deadlocks->all[i].steps_len; k++)
            assert_string_equal(deadlocks->all[i].steps[k].holder->owner, A ":1");
    hfi_deadlocks_free(deadlocks);
    hfi_fleet_free(earlier);
    hfi_fleet_free(later);
}

/* The server knows of the hold, and its owner is gone: the caller that has adopted it is there. */
CASE(an_adopter_is_believed_with_the_server) {
    struct hfi_findings *findings = begin(1000);
    found(findings, "x", (const char *[]){B ":4294967297", NULL});
    found(findings, "y", (const char *[]){B ":4294967297", NULL});
    answered(findings, ANSWER(A, "", WAIT("y", B ":4294967297", 5000, -1),
                              HOLD("x", B ":4294967297") "," HOLD("z", B ":4294967297")));
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->locks_len, 2);
    const hf_fleet_party *holder = fleet->locks[0]->holders[0];
    assert_int_equal(fleet->locks[0]->holders_len, 1);
    assert_false(fleet->locks[0]->disputed);
    assert_string_equal(holder->owner, B ":4294967297");
    assert_string_equal(holder->client->id, A);
    assert_int_equal(holder->presence, HF_PRESENCE_ALIVE);
    assert_true(holder->renewed);
    assert_int_equal(holder->for_ms, 9000);
    assert_int_equal(holder->remaining_ms,
                     30000); /* anybody may say so, and the server knows better */
    assert_int_equal(fleet->locks[1]->holders[0]->presence, HF_PRESENCE_GONE);
    assert_int_equal(fleet->locks[1]->waiters_len, 0);
    hfi_fleet_free(fleet);
}

/* ---- Deadlocks ---- */

#define INTERVAL_MS 1000

/* Two surveys of the same answers. */
static size_t deadlocks_in(const char *const *answers, size_t *ret_steps) {
    hf_fleet *fleets[2];
    hf_deadlocks *deadlocks = NULL;
    for (int i = 0; i < 2; i++) {
        struct hfi_findings *findings = begin(5000 + i * INTERVAL_MS);
        for (size_t k = 0; answers[k] != NULL; k++)
            answered(findings, answers[k]);
        fleets[i] = join(findings);
    }
    assert_int_equal(hfi_fleet_deadlocks(fleets[0], fleets[1], &deadlocks), HF_OK);
    size_t len = deadlocks->len;
    *ret_steps = len > 0 ? deadlocks->all[0].steps_len : 0;
    hfi_deadlocks_free(deadlocks);
    hfi_fleet_free(fleets[0]);
    hfi_fleet_free(fleets[1]);
    return len;
}

CASE(circles_are_deadlocks) {
    size_t steps;
    static const char *const two[] = {ANSWER(A, "", WAIT("y", A ":1", 5000, -1), HOLD("x", A ":1")),
                                      ANSWER(B, "", WAIT("x", B ":1", 5000, -1), HOLD("y", B ":1")),
                                      NULL};
    assert_int_equal(deadlocks_in(two, &steps), 1);
    assert_int_equal(steps, 2);
    static const char *const three[] = {
        ANSWER(A, "", WAIT("y", A ":1", 5000, -1), HOLD("x", A ":1")),
        ANSWER(B, "", WAIT("z", B ":1", 5000, -1), HOLD("y", B ":1")),
        ANSWER(C, "", WAIT("x", C ":1", 5000, -1) "," WAIT("x", C ":2", 5000, -1),
               HOLD("z", C ":1")),
        NULL};
    assert_int_equal(deadlocks_in(three, &steps), 1);
    assert_int_equal(steps, 3);
}

/* A script that runs inside another's lock: the outer owner waits with it. */
CASE(inner_processes_count_for_outer_owners) {
    size_t steps;
    static const char *const scripts[] = {
        ANSWER(A, "", "", HOLD("x", A ":1")), ANSWER(B, "", "", HOLD("y", B ":1")),
        ANSWER(C, "\"under\":\"" A ":1\",", WAIT("y", C ":1", 5000, -1), ""),
        ANSWER("dddddddd-0000-4000-8000-000000000004", "\"under\":\"" B ":1\",",
               WAIT("x", "dddddddd-0000-4000-8000-000000000004:1", 5000, -1), ""),
        NULL};
    assert_int_equal(deadlocks_in(scripts, &steps), 1);
    assert_int_equal(steps, 2);
    static const char *const itself[] = {
        ANSWER(A, "", "", HOLD("x", A ":1")),
        ANSWER(B, "\"under\":\"" A ":1\",", WAIT("x", B ":1", 5000, -1), ""), NULL};
    assert_int_equal(deadlocks_in(itself, &steps), 1);
    assert_int_equal(steps, 1);
}

CASE(what_goes_on_is_none) {
    size_t steps;
    static const char *const line[] = {
        ANSWER(A, "", "", HOLD("x", A ":1")),
        ANSWER(B, "", WAIT("x", B ":1", 5000, -1), HOLD("y", B ":1")),
        ANSWER(C, "", WAIT("y", C ":1", 5000, -1), ""), NULL};
    assert_int_equal(deadlocks_in(line, &steps), 0);
    static const char *const threads[] = {
        ANSWER(A, "", WAIT("y", A ":2", 5000, -1), HOLD("x", A ":1")),
        ANSWER(B, "", WAIT("x", B ":1", 5000, -1), HOLD("y", B ":1")), NULL};
    assert_int_equal(deadlocks_in(threads, &steps), 0);
    static const char *const young[] = {
        ANSWER(A, "", WAIT("y", A ":1", 1500, -1), HOLD("x", A ":1")),
        ANSWER(B, "", WAIT("x", B ":1", 5000, -1), HOLD("y", B ":1")), NULL};
    assert_int_equal(deadlocks_in(young, &steps), 0);
    static const char *const ending[] = {
        ANSWER(A, "", WAIT("y", A ":1", 5000, 900), HOLD("x", A ":1")),
        ANSWER(B, "", WAIT("x", B ":1", 5000, -1), HOLD("y", B ":1")), NULL};
    assert_int_equal(deadlocks_in(ending, &steps), 0);
}

/* Java owners, of whom only the server knows: they wait in the queue for fair locks. */
CASE(queues_of_the_server_count) {
    hf_fleet *fleets[2];
    hf_deadlocks *deadlocks;
    for (int i = 0; i < 2; i++) {
        struct hfi_findings *findings = begin(5000 + i * INTERVAL_MS);
        found(findings, "x", (const char *[]){A ":1", B ":7", NULL});
        found(findings, "y", (const char *[]){B ":7", A ":1", NULL});
        fleets[i] = join(findings);
    }
    assert_int_equal(hfi_fleet_deadlocks(fleets[0], fleets[1], &deadlocks), HF_OK);
    assert_int_equal(deadlocks->len, 1);
    hfi_deadlocks_free(deadlocks);
    hfi_fleet_free(fleets[0]);
    hfi_fleet_free(fleets[1]);
}

RUN_CASES(NULL, NULL)
