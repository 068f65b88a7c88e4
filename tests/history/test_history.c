/*
 * Histories of every kind, from many clients at once, judged by a linearizability checker.
 *
 * Each row plays a run (play.c): processes of C and a JVM with the released Redisson, on one real
 * server, with trouble of one sort. What they were told is recorded with times, and the checker
 * (checker/, with Porcupine) looks for an order of events that explains it. Nothing is asserted
 * about how long anything takes. Other rows make sure that the checker notices: single answers are
 * changed, and things are written to the server behind everybody's back.
 *
 * Where Go is missing, or its module cannot be fetched, the suite is skipped (exit status 77); where
 * Java or Redisson is, only Java's part.
 *
 * Environment: HF_SEED plays the runs of that seed; HF_SOAK makes them long, and many. The logs of a run
 * that failed are kept in the build directory, in history/failed.
 */
#include "judge.h"
#include "play.h"

#include "support/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_SKIPPED 77
#define SHORT_MS 3000
#define LONG_MS 15000
#define LONG_RUNS 20

static struct remote *jvm; /* NULL: without Java */

static void keep(const char *dir) {
    const char *where = HF_HISTORY_DIR "/failed";
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p '%s' && cp -r '%s' '%s'/", where, dir, where);
    if (system(command) == 0)
        print_error("its logs are kept: %s%s\n", where, strrchr(dir, '/'));
}

/* One run, and what the checker is to say of it. */
static void play_and_judge(struct plan plan, unsigned seed, const char *const *options) {
    plan.duration_ms = getenv("HF_SOAK") != NULL ? LONG_MS : SHORT_MS;
    char *dir = play_run(&plan, seed, jvm);
    int status = 0;
    for (size_t i = 0; status == 0 && options[i] != NULL; i++) {
        const char *option = options[i][0] != '\0' ? options[i] : NULL;
        status = judge("checker", option != NULL ? option : dir, option != NULL ? dir : NULL);
    }
    if (status != 0) {
        print_error("%s, HF_SEED=%u: the checker ended with %d\n", plan.title, seed, status);
        keep(dir);
    }
    temp_dir_remove(dir);
    free(dir);
    assert_int_equal(status, 0);
}

static void play_all(struct plan plan, const char *const *options) {
    const char *given = getenv("HF_SEED");
    unsigned first = given != NULL ? (unsigned)strtoul(given, NULL, 10) : 1;
    unsigned runs = given == NULL && getenv("HF_SOAK") != NULL ? LONG_RUNS : 1;
    for (unsigned i = 0; i < runs; i++)
        play_and_judge(plan, first + i, options);
}

static const char *const must_be_right[] = {"", NULL};
static const char *const must_be_right_and_lies_found[] = {"", "-plant", NULL};
static const char *const must_be_wrong[] = {"-expect", NULL};

static void models_judge_what_was_written_by_hand(void **state) {
    (void)state;
    assert_int_equal(judge("checker.test", NULL, NULL), 0);
}

/* Skipped by its name, where the other rows are played by C alone. */
static void redisson_plays_too(void **state) {
    (void)state;
    if (jvm == NULL)
        skip();
    assert_string_equal(remote_call(jvm, "ping"), "ok");
}

static void calm_and_lies_are_found(void **state) {
    (void)state;
    play_all((struct plan){.title = "calm", .java = true}, must_be_right_and_lies_found);
}

static void locks_are_broken(void **state) {
    (void)state;
    play_all((struct plan){.title = "breaks", .troubles = TROUBLE_BREAK}, must_be_right);
}

static void processes_are_killed_and_paused(void **state) {
    (void)state;
    play_all(
        (struct plan){.title = "processes", .troubles = TROUBLE_KILL | TROUBLE_PAUSE, .java = true},
        must_be_right);
}

static void replies_are_lost(void **state) {
    (void)state;
    play_all(
        (struct plan){.title = "replies", .troubles = TROUBLE_LOSE | TROUBLE_KILL, .java = true},
        must_be_right);
}

static void server_restarts_with_its_data(void **state) {
    (void)state;
    play_all((struct plan){.title = "restarts", .troubles = TROUBLE_RESTART}, must_be_right);
}

static void server_restarts_empty(void **state) {
    (void)state;
    play_all((struct plan){.title = "wipes", .troubles = TROUBLE_WIPE}, must_be_right);
}

static void sabotage_is_found(void **state) {
    (void)state;
    play_all((struct plan){.title = "sabotage", .troubles = TROUBLE_SABOTAGE}, must_be_wrong);
}

/* ---- The suite ------------------------------------------------------------------------------- */

static struct remote *start_java(void) {
    if (judge_build(HF_INTEROP_BUILD, HF_INTEROP_DIR) != 0)
        return NULL;
    static const char classes[] = HF_INTEROP_DIR "/interop.jar:" HF_INTEROP_DIR "/lib/*";
    const char *const argv[] = {"java",
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "-Xmx256m",
                                "-Xshare:auto",
                                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                                "-cp",
                                classes,
                                "holdfast.interop.Main",
                                NULL};
    return remote_start(argv);
}

static int start_suite(void **state) {
    (void)state;
    jvm = start_java();
    return 0;
}

static int end_suite(void **state) {
    (void)state;
    remote_free(jvm);
    return 0;
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(models_judge_what_was_written_by_hand),
        cmocka_unit_test(redisson_plays_too),
        cmocka_unit_test(calm_and_lies_are_found),
        cmocka_unit_test(locks_are_broken),
        cmocka_unit_test(processes_are_killed_and_paused),
        cmocka_unit_test(replies_are_lost),
        cmocka_unit_test(server_restarts_with_its_data),
        cmocka_unit_test(server_restarts_empty),
        cmocka_unit_test(sabotage_is_found),
    };
    signal(SIGPIPE, SIG_IGN);
    int built = judge_build(HF_HISTORY_BUILD, HF_HISTORY_DIR);
    if (built != 0)
        return built == EXIT_SKIPPED ? EXIT_SKIPPED : 1;
    return cmocka_run_group_tests_name("history", rows, start_suite, end_suite) == 0 ? 0 : 1;
}
