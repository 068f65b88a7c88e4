/*
 * What servers have found, and what that comes to beside the clients' claims (fleet/survey.h),
 * without servers: permits, groups, several servers of a quorum, and what was not looked at.
 */
#include "support/case.h"
#include "unit/findings.h"

#define ID_1 "0123456789abcdef0123456789abcdef"
#define ID_2 "fedcba9876543210fedcba9876543210"

#define HOLDS(kind, name, owner)                                                                   \
    "{\"name\":\"" name "\",\"kind\":\"" kind "\",\"owner\":\"" owner                              \
    "\",\"for_ms\":9000,\"left_ms\":99999,\"count\":1,\"renewed\":1}"
#define WAITS(kind, name, owner)                                                                   \
    "{\"name\":\"" name "\",\"kind\":\"" kind "\",\"owner\":\"" owner                              \
    "\",\"for_ms\":9000,\"left_ms\":-1}"

/* So many permits of the two ids. */
static struct hfi_found_lock *found_permits(struct hfi_findings *findings, const char *name,
                                            size_t len) {
    struct hfi_found_lock *lock = found(findings, name, (const char *[]){ID_1, NULL});
    lock->kind = HFI_FOUND_PERMITS;
    if (len > 1) {
        lock->owners[1] = lock->owners[0];
        snprintf(lock->owners[1].owner, sizeof lock->owners[1].owner, "%s", ID_2);
    }
    lock->owners_len = len;
    return lock;
}

CASE(a_permit_is_its_clients_and_lasts_as_the_server_says) {
    struct hfi_findings *findings = begin(1000);
    found_permits(findings, "x", 2)->available = 3;
    answered(findings,
             ANSWER(A, "", "", HOLDS("permits", "x", ID_2) "," HOLDS("plain", "x", ID_1)));
    hf_fleet *fleet = join(findings);
    const hf_fleet_lock *lock = fleet->locks[0];
    assert_string_equal(lock->kind, "permits");
    assert_int_equal(lock->available, 3);
    assert_int_equal(lock->holders_len, 2);
    assert_false(lock->disputed);
    const hf_fleet_party *known = lock->holders[0], *other = lock->holders[1];
    assert_string_equal(known->owner, ID_2);
    assert_string_equal(known->client->id, A);
    assert_int_equal(known->for_ms, 9000);
    assert_int_equal(known->remaining_ms, 30000);
    assert_true(known->renewed);
    assert_null(other->client);
    assert_int_equal(other->presence, HF_PRESENCE_UNKNOWN);
    hfi_fleet_free(fleet);
}

struct doubt {
    const char *kind, *text;
    bool at_server;   /* with another holder */
    int64_t left_out; /* there */
    unsigned unread;
    bool disputed;
};

CASE(a_disputed_server_report) {
#define CLAIM(kind) kind, ANSWER(A, "", "", HOLDS(kind, "x", A ":1"))
    static const struct doubt doubts[] = {
        {CLAIM("plain"), false, 0, 0, true},
        {CLAIM("group"), false, 0, 0, true},
        {CLAIM("permits"), false, 0, 0, true},
        {CLAIM("semaphore"), false, 0, 0, false},
        {CLAIM("latch"), false, 0, 0, false},
        {CLAIM("cohort"), true, 0, 0, false},
        {CLAIM("plain"), false, 0, HFI_UNREAD_LOCKS, false},
        {CLAIM("plain"), false, 0, HFI_UNREAD_PERMITS, true},
        {CLAIM("permits"), false, 0, HFI_UNREAD_PERMITS, false},
        {CLAIM("plain"), true, 0, HFI_UNREAD_LOCKS | HFI_UNREAD_PERMITS, true},
        {CLAIM("permits"), true, 0, HFI_UNREAD_PERMITS, true},
        {CLAIM("permits"), true, 5, 0, false},
    };
    for (size_t i = 0; i < sizeof doubts / sizeof doubts[0]; i++) {
        struct hfi_findings *findings = begin(1000);
        findings->unread = doubts[i].unread;
        if (doubts[i].at_server)
            found_permits(findings, "x", 1)->left_out = doubts[i].left_out;
        answered(findings, doubts[i].text);
        hf_fleet *fleet = join(findings);
        assert_int_equal(fleet->locks_len, 1);
        if (fleet->locks[0]->disputed != doubts[i].disputed)
            fail_msg("row %zu: %s", i, doubts[i].kind);
        hfi_fleet_free(fleet);
    }
}

/* Who waits in the queue is left out without a doubt about who holds it. */
CASE(a_long_queue_delays_no_timeout) {
    struct hfi_findings *findings = begin(1000);
    found(findings, "x", (const char *[]){B ":1", C ":1", NULL})->left_out = 50;
    answered(findings, ANSWER(A, "", "", HOLD("x", A ":1")));
    hf_fleet *fleet = join(findings);
    assert_true(fleet->locks[0]->disputed);
    hfi_fleet_free(fleet);
}

/* On ZooKeeper an owner may hold several; a server may say any number. */
CASE(counts_add_up_to_a_number) {
    struct hfi_findings *findings = begin(1000);
    struct hfi_found_lock *lock = found_permits(findings, "x", 2);
    lock->owners[1] = lock->owners[0];
    lock->owners[0].count = lock->owners[1].count = INT64_MAX - 1;
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->locks[0]->holders_len, 1);
    assert_int_equal(fleet->locks[0]->holders[0]->count, INT64_MAX);
    hfi_fleet_free(fleet);
}

/* ---- Several servers ---- */

/* Findings of a quorum, in which so many servers have the owner's hold, each reported twice. */
static struct hfi_findings *voted(size_t votes, size_t servers, const char *owner) {
    struct hfi_findings *findings = begin(1000);
    findings->votes = votes;
    for (size_t i = 0; i < 2 * servers; i++)
        found(findings, "x", (const char *[]){owner, NULL})->server = i / 2;
    return findings;
}

CASE(a_hold_of_too_few_servers_is_none) {
    hf_fleet *fleet = join(voted(3, 2, A ":1"));
    assert_int_equal(fleet->locks_len, 0);
    hfi_fleet_free(fleet);
    fleet = join(voted(3, 3, A ":1"));
    assert_int_equal(fleet->locks_len, 1);
    assert_int_equal(fleet->locks[0]->holders_len, 1);
    assert_int_equal(fleet->locks[0]->holders[0]->count, 1);
    hfi_fleet_free(fleet);
    fleet = join(voted(1, 1, A ":1")); /* the others did not answer */
    assert_int_equal(fleet->locks_len, 1);
    hfi_fleet_free(fleet);
}

/* Who is about to take it waits; who says to hold it is reported, with a mark. */
CASE(beside_too_few_servers_clients_are_reported) {
    struct hfi_findings *findings = voted(3, 2, A ":1");
    answered(findings, ANSWER(A, "", WAIT("x", A ":1", 10, -1), ""));
    hf_fleet *fleet = join(findings);
    assert_int_equal(fleet->locks_len, 1);
    assert_int_equal(fleet->locks[0]->holders_len, 0);
    assert_int_equal(fleet->locks[0]->waiters_len, 1);
    assert_int_equal(fleet->locks[0]->ttl_ms, -2);
    hfi_fleet_free(fleet);
    findings = voted(3, 2, A ":1");
    answered(findings, ANSWER(A, "", "", HOLD("x", A ":1")));
    fleet = join(findings);
    assert_int_equal(fleet->locks[0]->holders_len, 1);
    assert_int_equal(fleet->locks[0]->holders[0]->seen_by, HF_SEEN_BY_CLIENT);
    assert_true(fleet->locks[0]->disputed);
    hfi_fleet_free(fleet);
}

/* ---- Deadlocks ---- */

/* One who waits inside a permit for a lock, whose holder waits for a permit. */
static size_t circles_with(size_t permits, int64_t left_out) {
    hf_fleet *fleets[2];
    hf_deadlocks *deadlocks = NULL;
    for (int i = 0; i < 2; i++) {
        struct hfi_findings *findings = begin(5000 + i * 1000);
        found_permits(findings, "pool", permits)->left_out = left_out;
        found(findings, "y", (const char *[]){B ":1", NULL});
        answered(findings, ANSWER(A, "\"under\":\"" ID_1 "\",", WAIT("y", A ":1", 5000, -1), ""));
        answered(findings, ANSWER(B, "", WAITS("permits", "pool", B ":1"), ""));
        fleets[i] = join(findings);
    }
    assert_int_equal(hfi_fleet_deadlocks(fleets[0], fleets[1], &deadlocks), HF_OK);
    size_t len = deadlocks->len;
    hfi_deadlocks_free(deadlocks);
    hfi_fleet_free(fleets[0]);
    hfi_fleet_free(fleets[1]);
    return len;
}

CASE(any_permit_will_do) {
    assert_int_equal(circles_with(1, 0), 1);
    assert_int_equal(circles_with(2, 0), 0);
    assert_int_equal(circles_with(1, 1), 0);
}

RUN_CASES(NULL, NULL)
