/* Random schedules of the fair lock: nobody may ever hold it with another, nothing may stay held or
 * in line for nobody, and the order of those who wait is kept. The world is in fair_model.c.
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

#include "fair_model.h"
#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct server *server;
static struct fair_model *model;

static int open_group(void **state) {
    (void)state;
    server = server_start(NULL);
    model = fair_model_open(server);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    fair_model_close(model);
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

static void nothing_goes_wrong(void **state) {
    (void)state;
    const char *given = getenv("HF_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10)
                                  : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    printf("first seed %" PRIu64 "\n", seed);
    uint64_t played = 0;
    char why[256];
    for (int64_t end_ms = now_ms() + duration_ms(); now_ms() < end_ms; played++)
        if (!fair_model_play(model, seed + played, FAIR_CAREFUL, why, sizeof why))
            fail_msg("seed %" PRIu64 ": %s\n%s", seed + played, why, fair_model_trace(model));
    const struct fair_tally *t = fair_model_tally(model);
    printf("%" PRIu64 " schedules, %" PRIu64 " scripts: held %" PRIu64 ", queued %" PRIu64
           ", entered %" PRIu64 ", missed %" PRIu64 ", confirmed %" PRIu64 ", released %" PRIu64
           ", given up %" PRIu64 ", lost %" PRIu64 ", late %" PRIu64 ", resent %" PRIu64
           ", crashed %" PRIu64 ", java %" PRIu64 ", expired %" PRIu64 "\n",
           played, t->scripts, t->held, t->queued, t->entered, t->missed, t->confirmed, t->released,
           t->given_up, t->lost, t->late, t->resent, t->crashed, t->java_held, t->expired);
    if (played < 100)
        return; /* too slow a machine for everything to happen */
    assert_true(t->late > 0);
    assert_true(t->held > 0 && t->queued > 0 && t->entered > 0 && t->missed > 0);
    assert_true(t->confirmed > 0 && t->released > 0 && t->given_up > 0 && t->lost > 0);
    assert_true(t->resent > 0 && t->crashed > 0 && t->java_held > 0 && t->expired > 0);
}

static void finds(enum fair_discipline discipline) {
    enum { SCHEDULES = 2000 };
    char why[256];
    for (int i = 0; i < SCHEDULES; i++)
        if (!fair_model_play(model, (uint64_t)i, discipline, why, sizeof why)) {
            printf("after %d: %s\n", i + 1, why);
            return;
        }
    fail_msg("%d schedules, and nothing was found", SCHEDULES);
}

static void finds_scripts_that_run_late(void **state) {
    (void)state;
    finds(FAIR_NO_NOT_AFTER);
}

static void finds_old_grants(void **state) {
    (void)state;
    finds(FAIR_OLD_GRANTS);
}

static void finds_grants_that_are_trusted_too_long(void **state) {
    (void)state;
    finds(FAIR_GRANT_FROM_NOW);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_goes_wrong),
        cmocka_unit_test(finds_scripts_that_run_late),
        cmocka_unit_test(finds_old_grants),
        cmocka_unit_test(finds_grants_that_are_trusted_too_long),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
