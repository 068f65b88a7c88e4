/*
 * The sum of the clients' losses (cli/fleet/losses.h), without a fleet: the reports are made up here,
 * and time passes as a survey says. losses_announced.sh tests whole clients.
 */
#include "fleet/losses.h"
#include "support/case.h"
#include "support/wait.h"

#define BEGAN_MS 1000000
#define QUARTER_MS (15 * 60 * 1000)
#define ACCOUNTS_MAX 65536

enum how { ANSWERS, ANNOUNCES };

/* A survey of one client, which has been up for that long. */
static void hear(struct losses *losses, int64_t taken_ms, enum how how, unsigned id, int64_t up_ms,
                 uint64_t count) {
    own_text *text = text_of("%08x-0000-4000-8000-000000000000", id);
    const hf_fleet_client client = {
        .id = text, .presence = HF_PRESENCE_ALIVE, .up_ms = up_ms, .losses = count};
    const hf_fleet_client *const listed[] = {&client};
    hf_fleet fleet = {.taken_ms = taken_ms};
    if (how == ANSWERS) {
        fleet.clients = listed;
        fleet.clients_len = 1;
    } else {
        fleet.announced = listed;
        fleet.announced_len = 1;
    }
    losses_add(losses, &fleet, NULL, NULL);
}

static struct losses *begin(void) {
    const hf_fleet nobody = {.taken_ms = BEGAN_MS};
    struct losses *losses = losses_new();
    assert_non_null(losses);
    losses_add(losses, &nobody, NULL, NULL);
    assert_int_equal(losses_total(losses), 0);
    return losses;
}

static void losses_before_it_began_do_not_count(void **state) {
    (void)state;
    struct losses *losses = losses_new();
    hear(losses, BEGAN_MS, ANSWERS, 1, 90000, 7);
    assert_int_equal(losses_total(losses), 0);
    hear(losses, BEGAN_MS + 10, ANSWERS, 1, 90010, 9);
    assert_int_equal(losses_total(losses), 2);
    hear(losses, BEGAN_MS + 20, ANSWERS, 2, 90000, 5); /* older than we are */
    assert_int_equal(losses_total(losses), 2);
    losses_free(losses);
}

static void a_client_that_began_later_counts_in_full(void **state) {
    (void)state;
    struct losses *losses = begin();
    hear(losses, BEGAN_MS + 5000, ANSWERS, 1, 4000, 3);
    assert_int_equal(losses_total(losses), 3);
    hear(losses, BEGAN_MS + 6000, ANNOUNCES, 2, 500, 2);
    assert_int_equal(losses_total(losses), 5);
    losses_free(losses);
}

static void what_an_old_client_announces_has_just_happened(void **state) {
    (void)state;
    struct losses *losses = begin();
    hear(losses, BEGAN_MS + 10, ANNOUNCES, 1, 90000, 8);
    assert_int_equal(losses_total(losses), 1);
    hear(losses, BEGAN_MS + 20, ANNOUNCES, 1, 90000, 10);
    assert_int_equal(losses_total(losses), 3);
    losses_free(losses);
}

/* What is announced is in the next answers, too, and in the next surveys. */
static void a_loss_counts_once(void **state) {
    (void)state;
    struct losses *losses = begin();
    for (int i = 1; i <= 3; i++) {
        hear(losses, BEGAN_MS + 1000 * i, ANNOUNCES, 1, 500, 1);
        hear(losses, BEGAN_MS + 1000 * i + 1, ANSWERS, 1, 500, 1);
    }
    assert_int_equal(losses_total(losses), 1);
    losses_free(losses);
}

static void it_never_falls(void **state) {
    (void)state;
    struct losses *losses = begin();
    hear(losses, BEGAN_MS + 1000, ANNOUNCES, 1, 500, 4);
    hear(losses, BEGAN_MS + 2000, ANSWERS, 1, 500, 2); /* a forged one, or an old one */
    hear(losses, BEGAN_MS + 3000, ANSWERS, 2, 500, 0);
    assert_int_equal(losses_total(losses), 4);
    losses_free(losses);
}

/* A client that is heard of stays known, however many others come and go. */
static void accounts_are_bounded(void **state) {
    (void)state;
    struct losses *losses = begin();
    hear(losses, BEGAN_MS + 1000, ANSWERS, 1, 500, 1);
    for (unsigned id = 2; id <= ACCOUNTS_MAX; id++)
        hear(losses, BEGAN_MS + 2000, ANSWERS, id, 500, 0);
    hear(losses, BEGAN_MS + 3000, ANSWERS, ACCOUNTS_MAX + 1, 500, 1); /* no room */
    assert_int_equal(losses_total(losses), 1);
    hear(losses, BEGAN_MS + QUARTER_MS, ANSWERS, 1, 500, 1);
    hear(losses, BEGAN_MS + 2000 + QUARTER_MS, ANSWERS, ACCOUNTS_MAX + 1, 500, 1); /* room again */
    assert_int_equal(losses_total(losses), 2);
    hear(losses, BEGAN_MS + 2001 + QUARTER_MS, ANSWERS, 1, 500, 1);
    assert_int_equal(losses_total(losses), 2);
    losses_free(losses);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_before_it_began_do_not_count),
        cmocka_unit_test(a_client_that_began_later_counts_in_full),
        cmocka_unit_test(what_an_old_client_announces_has_just_happened),
        cmocka_unit_test(a_loss_counts_once),
        cmocka_unit_test(it_never_falls),
        cmocka_unit_test(accounts_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
