/* Random schedules of the plain lock: nobody may ever hold it with another, and nothing may stay
 * held for nobody. The world is in plain_model.c.
 *
 * The seed is printed; HF_SEED=n starts with that schedule, and a schedule that fails prints its
 * trace. Schedules run for some seconds; HF_SOAK=1 makes it a minute, HF_SOAK=n n seconds.
 *
 * The other tests show that the model can fail: for each rule that clients keep to, it finds what
 * comes of leaving it out. They play the same schedules every time. One thread, one private
 * server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plain_model.h"
#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct server *server;
static struct model *model;
static uint64_t first_seed;

static int open_group(void **state) {
    (void)state;
    const char *given = getenv("HF_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    first_seed = given != NULL ? strtoull(given, NULL, 10)
                               : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    printf("first seed %" PRIu64 "\n", first_seed);
    server = server_start(NULL);
    model = model_open(server);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    model_close(model);
    server_free(server);
    return 0;
}

static int64_t duration_ms(void) {
    const char *soak = getenv("HF_SOAK");
    int64_t seconds = soak == NULL ? 0 : strtoll(soak, NULL, 10);
    if (seconds <= 0)
        return 6000;
    return seconds == 1 ? 60000 : seconds * 1000;
}

/* Enough schedules have every kind of thing in them, or the model shows nothing. */
static void assert_eventful(const struct model_tally *t) {
    assert_true(t->held > 0 && t->reentered > 0 && t->busy > 0 && t->lost > 0);
    assert_true(t->released > 0 && t->resent > 0 && t->late > 0 && t->settled > 0);
    assert_true(t->forced > 0 && t->expired > 0 && t->java_held > 0);
}

static void careful_clients_never_share_the_lock(void **state) {
    (void)state;
    char why[256];
    uint64_t schedules = 0;
    int64_t end_ms = now_ms() + duration_ms();
    while (schedules < 50 || now_ms() < end_ms) {
        uint64_t seed = first_seed + schedules++;
        if (!model_play(model, seed, CAREFUL, why, sizeof why)) {
            fputs(model_trace(model), stderr);
            fail_msg("HF_SEED=%" PRIu64 ": %s", seed, why);
        }
    }
    const struct model_tally *t = model_tally(model);
    printf("%" PRIu64 " schedules, %" PRIu64 " scripts: held %" PRIu64 ", re-entered %" PRIu64
           ", busy %" PRIu64 ", lost %" PRIu64 ", released %" PRIu64 ", resent %" PRIu64
           ", late %" PRIu64 ", settled %" PRIu64 ", forced %" PRIu64 ", expired %" PRIu64
           ", held by Java %" PRIu64 "\n",
           schedules, t->scripts, t->held, t->reentered, t->busy, t->lost, t->released, t->resent,
           t->late, t->settled, t->forced, t->expired, t->java_held);
    assert_eventful(t);
}

static void assert_goes_wrong(enum discipline discipline) {
    enum { ENOUGH = 300 };
    char why[256];
    int wrong = 0;
    for (uint64_t seed = 1; seed <= ENOUGH; seed++)
        wrong += !model_play(model, seed, discipline, why, sizeof why);
    printf("%d of %d schedules go wrong, e.g.: %s\n", wrong, ENOUGH, wrong > 0 ? why : "-");
    assert_true(wrong > 0);
}

static void without_not_after_it_goes_wrong(void **state) {
    (void)state;
    assert_goes_wrong(WITHOUT_NOT_AFTER);
}

static void hasty_clients_go_wrong(void **state) {
    (void)state;
    assert_goes_wrong(HASTY);
}

static void unsettled_clients_go_wrong(void **state) {
    (void)state;
    assert_goes_wrong(UNSETTLED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(careful_clients_never_share_the_lock),
        cmocka_unit_test(without_not_after_it_goes_wrong),
        cmocka_unit_test(hasty_clients_go_wrong),
        cmocka_unit_test(unsettled_clients_go_wrong),
    };
    return cmocka_run_group_tests_name("plain_model", tests, open_group, close_group);
}
