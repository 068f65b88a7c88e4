/*
 * Playing runs and having them judged, as suite.h tells. The logs of a run that failed are kept, and
 * those of all runs with HF_KEEP.
 *
 * Used by the test programs, in their one thread.
 */
#include "suite.h"

#include "judge.h"

#include "support/java.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SHORT_MS 3000
#define LONG_MS 15000
#define LONG_RUNS 20

const char *const must_be_right[] = {"", NULL};
const char *const must_be_right_and_lies_found[] = {"", "-plant", NULL};

static struct remote *jvm;
static struct remote *actors[PLAY_PEERS]; /* NULL: not there */

struct remote *suite_jvm(void) {
    return jvm;
}

size_t suite_peers(void) {
    static bool asked;
    size_t there = 0;
    for (size_t i = 0; i < PLAY_PEERS; i++) {
        if (!asked)
            actors[i] = peer_actor_new(peer_languages[i]);
        there += actors[i] != NULL;
    }
    asked = true;
    return there;
}

static int start_suite(void **state) {
    (void)state;
    if (java_build(JAVA_REDISSON) == 0)
        jvm = java_start(JAVA_REDISSON);
    return 0;
}

static int end_suite(void **state) {
    (void)state;
    java_free(jvm);
    for (size_t i = 0; i < PLAY_PEERS; i++) {
        if (actors[i] != NULL)
            remote_free(actors[i]);
    }
    return 0;
}

static void keep(const char *dir) {
    const char *where = HF_HISTORY_DIR "/kept";
    own_text *command = text_of("mkdir -p '%s' && cp -r '%s' '%s'/", where, dir, where);
    if (system(command) == 0)
        print_error("its logs are kept: %s%s\n", where, strrchr(dir, '/'));
}

/* Those that are to be killed are the run's own. */
static void choose_jvms(struct plan *plan) {
    bool killed = (plan->faults & FAULT_KILL_JVM) != 0;
    if (!plan->java || jvm == NULL)
        return;
    for (size_t i = 0; i < (killed ? PLAY_JVMS : 1); i++)
        plan->jvms[i] = killed ? java_start(JAVA_REDISSON) : jvm;
}

static void free_jvms(const struct plan *plan) {
    for (size_t i = 0; i < PLAY_JVMS; i++)
        if (plan->jvms[i] != jvm)
            java_free(plan->jvms[i]);
}

static char *play(struct plan plan, unsigned seed) {
    plan.duration_ms = getenv("HF_SOAK") != NULL ? LONG_MS : SHORT_MS;
    if (plan.kinds->moving)
        plan.duration_ms *= plan.cluster ? 2 : 3; /* a failover takes a while */
    choose_jvms(&plan);
    if (plan.peers && suite_peers() > 0)
        memcpy(plan.actors, actors, sizeof actors);
    char *dir = play_run(&plan, seed);
    free_jvms(&plan);
    return dir;
}

static void forget(char *dir, bool failed) {
    if (failed || getenv("HF_KEEP") != NULL)
        keep(dir);
    temp_dir_remove(dir);
    free(dir);
}

/* One run, and what the checker is to say of it. */
static void play_and_judge(struct plan plan, unsigned seed, const char *const *options) {
    char *dir = play(plan, seed);
    int status = 0;
    for (size_t i = 0; status == 0 && options[i] != NULL; i++) {
        const char *const dirs[] = {dir};
        status = judge("checker", options[i][0] != '\0' ? options[i] : NULL, dirs, 1);
    }
    if (status != 0)
        print_error("%s, HF_SEED=%u: the checker ended with %d\n", plan.title, seed, status);
    forget(dir, status != 0);
    assert_int_equal(status, 0);
}

static unsigned first_seed(void) {
    const char *given = getenv("HF_SEED");
    return given != NULL ? (unsigned)strtoul(given, NULL, 10) : 1;
}

void suite_play(struct plan plan, const char *const *options) {
    bool many = getenv("HF_SEED") == NULL && getenv("HF_SOAK") != NULL;
    for (unsigned i = 0; i < (many ? LONG_RUNS : 1); i++)
        play_and_judge(plan, first_seed() + i, options);
}

void suite_find(struct plan plan, const char *what) {
    char *dirs[JUDGE_DIRS_MAX];
    size_t len = 0;
    int status = 1;
    while (status != 0 && len < JUDGE_DIRS_MAX) {
        dirs[len] = play(plan, first_seed() + (unsigned)len);
        len++;
        status = judge("checker", what, (const char *const *)dirs, len);
    }
    for (size_t i = 0; i < len; i++)
        forget(dirs[i], status != 0);
    assert_int_equal(status, 0);
}

int suite_main(const char *title, const struct CMUnitTest *rows, size_t len) {
    signal(SIGPIPE, SIG_IGN);
    int built = judge_build(HF_HISTORY_BUILD, HF_HISTORY_DIR);
    if (built != 0)
        return built == EXIT_SKIPPED ? EXIT_SKIPPED : 1;
    return _cmocka_run_group_tests(title, rows, len, start_suite, end_suite) == 0 ? 0 : 1;
}
