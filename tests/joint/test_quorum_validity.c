/* The arithmetic of votes: validity, the q-th deadline, age, and breaks that a later refill does not make
 * up for. */
#include "joint/quorum/quorum_validity.h"
#include "support/case.h"

#define LEASE_MS 30000
#define OLD INT64_MIN

static struct hfi_votes votes_of(size_t len, int64_t guard_ms) {
    struct hfi_votes votes = {.len = len, .guard_ms = guard_ms, .clock_drift_ppm = 10000};
    hfi_votes_begin(&votes);
    return votes;
}

/* Servers 0 to count - 1 have granted it, sent at 1000 and answered a millisecond later. */
static struct hfi_votes won_by(size_t len, size_t count) {
    struct hfi_votes votes = votes_of(len, 0);
    for (size_t i = 0; i < count; i++)
        hfi_votes_held(&votes, i, 1000, 1001, LEASE_MS, OLD);
    hfi_votes_won(&votes, 1001);
    return votes;
}

CASE(majorities) {
    assert_int_equal(hfi_quorum_of(3), 2);
    assert_int_equal(hfi_quorum_of(4), 3);
    assert_int_equal(hfi_quorum_of(5), 3);
    assert_int_equal(hfi_quorum_of(9), 5);
}

CASE(validity) {
    struct hfi_votes votes = votes_of(5, 0);
    assert_int_equal(hfi_vote_valid_until_ms(&votes, 1000, 30000), 1000 + 30000 - 300 - 2);
    assert_int_equal(hfi_vote_valid_until_ms(&votes, 0, 100), 97);
    votes.clock_drift_ppm = 83333;
    assert_int_equal(hfi_vote_valid_until_ms(&votes, 1000, 30000), 1000 + 30000 - 2500 - 2);
}

CASE(the_qth_deadline) {
    struct hfi_votes votes = votes_of(5, 0);
    const int64_t sent[] = {5000, 1000, 4000, 3000, 2000};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(hfi_votes_deadline_ms(&votes, 5001),
                         i < 3 ? 0
                               : hfi_vote_valid_until_ms(&votes, i == 3 ? 1000 : 3000, LEASE_MS));
        hfi_votes_held(&votes, i, sent[i], 5001, LEASE_MS, OLD);
    }
    assert_int_equal(hfi_votes_deadline_ms(&votes, 5001),
                     hfi_vote_valid_until_ms(&votes, 3000, LEASE_MS));
    assert_int_equal(hfi_votes_count(&votes, 5001), 5);
    assert_int_equal(hfi_votes_count(&votes, hfi_vote_valid_until_ms(&votes, 2000, LEASE_MS)), 3);
    assert_int_equal(hfi_votes_deadline_ms(&votes, hfi_vote_valid_until_ms(&votes, 3000, LEASE_MS)),
                     0);
}

CASE(a_majority_of_the_configured) {
    struct hfi_votes votes = won_by(5, 2);
    assert_int_equal(hfi_votes_deadline_ms(&votes, 1001), 0);
}

CASE(too_many_gone) {
    struct hfi_votes votes = won_by(5, 4);
    hfi_votes_gone(&votes, 0, 5000, OLD);
    assert_false(votes.broken);
    assert_int_equal(hfi_votes_count(&votes, 5000), 3);
    hfi_votes_gone(&votes, 1, 5001, OLD);
    assert_true(votes.broken);
    assert_int_equal(hfi_votes_deadline_ms(&votes, 5001), 0);
}

/* The lock was deleted at three servers at once. Each is found and refilled before the next is
 * asked; another client may have been inside all the same. */
CASE(a_refill_is_too_late) {
    struct hfi_votes votes = won_by(5, 5);
    hfi_votes_gone(&votes, 0, 5000, OLD);
    hfi_votes_held(&votes, 0, 5001, 5002, LEASE_MS, OLD);
    hfi_votes_gone(&votes, 1, 5003, OLD);
    hfi_votes_held(&votes, 1, 5004, 5005, LEASE_MS, OLD);
    assert_false(votes.broken);
    hfi_votes_gone(&votes, 2, 5006, OLD);
    assert_true(votes.broken);
}

/* One after the other, each proved after the last was filled up. */
CASE(refills_in_time) {
    struct hfi_votes votes = won_by(3, 3);
    for (int k = 0; k < 10; k++) {
        int64_t at_ms = 2000 + k * 1000;
        size_t i = (size_t)k % 3;
        hfi_votes_gone(&votes, i, at_ms, OLD);
        hfi_votes_held(&votes, i, at_ms + 1, at_ms + 2, LEASE_MS, OLD);
        for (size_t j = 0; j < 3; j++)
            hfi_votes_held(&votes, j, at_ms + 3, at_ms + 4, LEASE_MS, OLD);
    }
    assert_false(votes.broken);
    assert_int_equal(hfi_votes_count(&votes, 13000), 3);
}

CASE(one_that_ran_out_begins_anew) {
    struct hfi_votes votes = won_by(3, 3);
    int64_t end_ms = hfi_vote_valid_until_ms(&votes, 1000, LEASE_MS);
    hfi_votes_held(&votes, 0, 20000, 20001, LEASE_MS, OLD);
    hfi_votes_held(&votes, 1, 20000, 20001, LEASE_MS, OLD);
    assert_int_equal(hfi_votes_count(&votes, end_ms), 2);
    hfi_votes_held(&votes, 2, end_ms + 5, end_ms + 6, LEASE_MS, OLD);
    assert_false(votes.broken);
    assert_int_equal(votes.of[2].since_ms, end_ms + 6);
    hfi_votes_gone(&votes, 0, end_ms + 7, OLD); /* proved at 20000, before the other began anew */
    assert_true(votes.broken);
}

/* Nobody has deleted anything: it was cut off, and the others that joined meanwhile are enough. */
CASE(one_that_ran_out_is_not_gone_before) {
    struct hfi_votes votes = won_by(5, 3);
    int64_t end_ms = hfi_vote_valid_until_ms(&votes, 1000, LEASE_MS);
    hfi_votes_held(&votes, 3, 2000, 2001, LEASE_MS, OLD);
    for (size_t i = 1; i < 4; i++)
        hfi_votes_held(&votes, i, 20000, 20001, LEASE_MS, OLD);
    hfi_votes_gone(&votes, 0, end_ms, OLD);
    assert_false(votes.broken);
    assert_int_equal(hfi_votes_deadline_ms(&votes, end_ms),
                     hfi_vote_valid_until_ms(&votes, 20000, LEASE_MS));
}

/* Three won it, and two came later. What has restarted since could not vote for another in between: they make up
 * for it. What has not may have lost it at once. */
CASE(late_grants_make_up_for_a_restart) {
    for (int restarted = 0; restarted < 2; restarted++) {
        struct hfi_votes votes = votes_of(5, 30000);
        for (size_t i = 0; i < 5; i++) {
            if (i == 3)
                hfi_votes_won(&votes, 100001);
            hfi_votes_held(&votes, i, 100000, 100001 + (int64_t)i, LEASE_MS, 0);
        }
        hfi_votes_gone(&votes, 0, 100600, restarted ? 100590 : 0);
        assert_int_equal(votes.broken, !restarted);
    }
}

/* Three won it, and two came later: they make up for one that was found to have it after that, if its vote
 * counted then. */
CASE(S101_late_grants_make_up_for_a_server_that_was_found_to_have_it) {
    enum { NOW_MS = 200000 };
    static const struct {
        int64_t found_ms;
        bool broken;
    } rows[] = {{100003, true}, {100004, false}, {140000, true}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct hfi_votes votes = votes_of(5, 30000);
        for (size_t i = 0; i < 5; i++) {
            if (i == 3)
                hfi_votes_won(&votes, 100001);
            hfi_votes_held(&votes, i, 100000, 100001 + (int64_t)i, 10 * LEASE_MS, 0);
        }
        hfi_votes_found(&votes, 0, rows[k].found_ms);
        assert_int_equal(votes.of[0].valid_until_ms, votes.of[1].valid_until_ms);
        for (int64_t at_ms = 120000; at_ms < NOW_MS; at_ms += 20000)
            for (size_t i = 1; i < 5; i++)
                hfi_votes_held(&votes, i, at_ms, at_ms, 10 * LEASE_MS, 0);
        hfi_votes_gone(&votes, 0, NOW_MS, 0);
        assert_int_equal(votes.broken, rows[k].broken);
    }
    struct hfi_votes votes = won_by(5, 3);
    hfi_votes_found(&votes, 4, 2000); /* it has none */
    assert_false(votes.of[4].held);
}

/* Its vote had ended when its server restarted, for the second time if the lease is longer than the
 * guard: in between it could vote for another. */
CASE(a_restart_hides_no_vote_that_ended) {
    enum { RESTARTED_MS = 131000, NOW_MS = 133000 };
    static const int64_t leases_ms[] = {LEASE_MS, 10 * LEASE_MS};
    for (size_t k = 0; k < 2; k++) {
        struct hfi_votes votes = votes_of(5, 30000);
        for (size_t i = 0; i < 3; i++)
            hfi_votes_held(&votes, i, 100000, 100001, leases_ms[k], 0);
        hfi_votes_won(&votes, 100001);
        for (size_t i = 1; i < 3; i++)
            hfi_votes_held(&votes, i, 120000, 120001, leases_ms[k], 0);
        hfi_votes_held(&votes, 3, NOW_MS - 1, NOW_MS, leases_ms[k], 0);
        hfi_votes_gone(&votes, 0, NOW_MS, RESTARTED_MS);
        assert_true(votes.broken);
    }
}

/* One that restarts after its proof may vote for another when the guard is over: so it counts for no longer. */
CASE(a_proof_counts_for_the_guard) {
    struct hfi_votes votes = votes_of(3, 30000);
    for (size_t i = 0; i < 3; i++)
        hfi_votes_held(&votes, i, 100000, 100001, 60000, 0);
    hfi_votes_won(&votes, 100001);
    assert_int_equal(hfi_votes_deadline_ms(&votes, 100001), 100000 + 30000 - 300 - 2);
    assert_int_equal(hfi_votes_leased_until_ms(&votes, 100001), 100000 + 60000 - 600 - 2);
    assert_int_equal(hfi_votes_period_ms(&votes, 60000), (30000 - 300) / 3);
    for (size_t i = 0; i < 3; i++)
        hfi_votes_held(&votes, i, 110000, 110001, 50000, 0);
    assert_int_equal(hfi_votes_deadline_ms(&votes, 110001), 110000 + 30000 - 300 - 2);
    votes.guard_ms = 0;
    assert_int_equal(hfi_vote_valid_until_ms(&votes, 0, 60000), 60000 - 600 - 2);
}

CASE(the_young_have_no_vote) {
    struct hfi_votes votes = votes_of(5, 30000);
    for (size_t i = 0; i < 4; i++)
        hfi_votes_held(&votes, i, 100000, 100001, LEASE_MS,
                       i < 2 ? 60000 : 80000 + (int64_t)i * 1000);
    assert_int_equal(hfi_votes_holders(&votes), 4);
    assert_int_equal(hfi_votes_count(&votes, 100001), 2);
    assert_int_equal(hfi_votes_deadline_ms(&votes, 100001), 0);
    assert_int_equal(hfi_votes_of_age_ms(&votes), 112000);
    assert_int_equal(hfi_votes_count(&votes, 112000), 3);
    assert_true(hfi_votes_deadline_ms(&votes, 112000) > 0);
    votes.guard_ms = 0;
    assert_int_equal(hfi_votes_count(&votes, 50000), 4); /* it is off, whatever they say */
    votes.guard_ms = 30000;
    votes.of[0].up_since_ms = votes.of[1].up_since_ms = votes.of[2].up_since_ms = OLD;
    assert_true(hfi_votes_of_age_ms(&votes) < 0);
}

/* ---- Tokens ---- */

static void draw(struct hfi_votes *votes, size_t i, int64_t token) {
    hfi_votes_held(votes, i, 1000, 1001, LEASE_MS, OLD);
    hfi_votes_drew(votes, i, token, 1000);
}

/* With all answers there is one that a majority stores, and that a majority has not gone beyond. */
CASE(tokens_agree_by_themselves) {
    struct hfi_votes votes = votes_of(5, 0);
    int64_t wishes[HFI_SERVERS_MAX];
    static const int64_t drawn[] = {40, 10, 50, 20, 30};
    for (size_t i = 0; i < 5; i++)
        draw(&votes, i, drawn[i]);
    assert_int_equal(hfi_votes_token(&votes, 1002, wishes), 30);
}

CASE(tokens_are_written_back) {
    struct hfi_votes votes = votes_of(5, 0);
    int64_t wishes[HFI_SERVERS_MAX];
    draw(&votes, 0, 40);
    draw(&votes, 1, 10);
    assert_int_equal(hfi_votes_token(&votes, 1002, wishes), 0); /* no majority yet */
    draw(&votes, 3, 20);
    assert_int_equal(hfi_votes_token(&votes, 1002, wishes), 0);
    assert_int_equal(wishes[0], 0);
    assert_int_equal(wishes[1], 40);
    assert_int_equal(wishes[2], 0);
    assert_int_equal(wishes[3], 40);
    hfi_votes_stored(&votes, 1, 40);
    assert_int_equal(hfi_votes_token(&votes, 1002, wishes), 0);
    hfi_votes_stored(&votes, 3, 41); /* more is as good, and becomes the token */
    assert_int_equal(hfi_votes_token(&votes, 1002, wishes), 0);
    assert_int_equal(wishes[0], 41);
    hfi_votes_stored(&votes, 0, 41);
    hfi_votes_stored(&votes, 1, 41);
    assert_int_equal(hfi_votes_token(&votes, 1002, wishes), 41);
    assert_int_equal(hfi_votes_token(&votes, 1000 + LEASE_MS, wishes), 0); /* nobody counts */
}

/* What was drawn before the server was of age is drawn again. */
CASE(tokens_of_young_servers) {
    struct hfi_votes votes = votes_of(3, 5000);
    int64_t wishes[HFI_SERVERS_MAX];
    draw(&votes, 0, 10);
    hfi_votes_held(&votes, 1, 1000, 1001, LEASE_MS, 500);
    hfi_votes_drew(&votes, 1, 10, 1000);
    assert_int_equal(hfi_votes_token(&votes, 5499, wishes), 0);
    assert_int_equal(wishes[1], 0); /* it has no vote */
    assert_int_equal(hfi_votes_token(&votes, 5500, wishes), 0);
    assert_int_equal(wishes[1], HFI_TOKEN_DRAW);
    hfi_votes_drew(&votes, 1, 20, 5500);
    assert_int_equal(hfi_votes_token(&votes, 5501, wishes), 0);
    assert_int_equal(wishes[0], 20);
    hfi_votes_stored(&votes, 0, 20);
    assert_int_equal(hfi_votes_token(&votes, 5502, wishes), 20);
}

RUN_CASES(NULL, NULL)
