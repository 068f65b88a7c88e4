/*
 * One run of the lab, as lab.h tells. Histories are those of tests/history, of all kinds of a
 * topology at once, with any of its faults; the checker there judges, and what it prints goes to
 * standard output.
 *
 * Used by scripts/lab, in one thread.
 */
#include "lab.h"

#include "history/judge.h"
#include "history/play.h"
#include "support/java.h"
#include "support/power.h"
#include "support/step.h"
#include "support/wait.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    const struct kinds *kinds;
    bool cluster;
} topologies[] = {{"one", &kinds_of_one_server, false},  {"cohort", &kinds_of_cohorts, false},
                  {"quorum", &kinds_of_a_quorum, false}, {"sentinel", &kinds_of_a_route, false},
                  {"cluster", &kinds_of_a_route, true},  {"zk", &kinds_of_zk, false}};

static const struct {
    const char *name;
    unsigned fault;
} faults[] = {{"break", FAULT_BREAK},       {"kill", FAULT_KILL},          {"pause", FAULT_PAUSE},
              {"lose", FAULT_LOSE},         {"restart", FAULT_RESTART},    {"wipe", FAULT_WIPE},
              {"sabotage", FAULT_SABOTAGE}, {"failover", FAULT_FAIL_OVER}, {"move", FAULT_MOVE},
              {"freeze", FAULT_FREEZE},     {"one-way", FAULT_ONE_WAY},    {"part", FAULT_PART},
              {"back", FAULT_BACK},         {"drift", FAULT_DRIFT},        {"power", FAULT_POWER},
              {"hang-up", FAULT_HANG_UP},   {"own-clock", FAULT_OWN_CLOCK}};

/* Words that are no fault of their own. */
static const struct {
    const char *name;
    size_t field; /* of the plan, a bool; 0: of none */
} settings[] = {{"none", 0},
                {"unguarded", offsetof(struct plan, unguarded)},
                {"everysec", offsetof(struct plan, everysec)},
                {"java", offsetof(struct plan, java)},
                {"peers", offsetof(struct plan, peers)}};

static bool choose_topology(struct plan *plan, const char *name) {
    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++) {
        if (strcmp(topologies[i].name, name) == 0) {
            plan->kinds = topologies[i].kinds;
            plan->cluster = topologies[i].cluster;
        }
    }
    return plan->kinds != NULL;
}

static bool set(struct plan *plan, const char *word) {
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (strcmp(settings[i].name, word) != 0)
            continue;
        if (settings[i].field != 0)
            *(bool *)((char *)plan + settings[i].field) = true;
        return true;
    }
    return false;
}

/* "kill,pause". "unguarded": servers that restart have a vote at once, which is right where they keep their data. */
static bool choose_faults(struct plan *plan, char *words) {
    for (char *rest = NULL, *word = strtok_r(words, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        bool known = set(plan, word);
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            if (strcmp(faults[i].name, word) == 0) {
                plan->faults |= faults[i].fault;
                known = true;
            }
        }
        if (!known)
            return false;
    }
    return true;
}

/* What the machine must have for it, before the first server is started. */
static bool is_ready(struct plan *plan) {
    if (plan->kinds->sessions)
        zk_need();
    if ((plan->faults & (FAULT_BACK | FAULT_DRIFT)) != 0 && !step_preload(HF_TEST_STEPPED_CLOCK))
        return false;
    if ((plan->faults & FAULT_POWER) != 0 && !power_preload(HF_TEST_SYNCED))
        return false;
    if (plan->java && java_build(JAVA_REDISSON) != 0)
        return false;
    if (plan->java)
        plan->jvms[0] = java_start(JAVA_REDISSON);
    bool all = true;
    for (size_t i = 0; plan->peers && i < PLAY_PEERS; i++) {
        plan->actors[i] = peer_actor_new(peer_languages[i]);
        all &= plan->actors[i] != NULL;
    }
    return all;
}

/* Where its own time of day is to be stepped, the program begins again with that library preloaded,
 * in the directory DIR: there the library looks for the step. */
static void preload_this(const struct plan *plan, char **argv) {
    if ((plan->faults & FAULT_OWN_CLOCK) == 0)
        return;
    if (getenv("LD_PRELOAD") != NULL) {
        unsetenv("LD_PRELOAD"); /* it is not for the servers */
        return;
    }
    setenv("LD_PRELOAD", HF_TEST_STEPPED_CLOCK, 1);
    if (chdir(argv[6]) == 0)
        execv("/proc/self/exe", argv);
    support_die("the lab cannot begin again in %s", argv[6]);
}

static void free_actors(struct plan *plan) {
    java_free(plan->jvms[0]);
    for (size_t i = 0; i < PLAY_PEERS; i++)
        remote_free(plan->actors[i]);
}

static int play_history(char **argv) {
    struct plan plan = {.title = argv[3], .dir = argv[6]};
    char words[256];
    snprintf(words, sizeof words, "%s", argv[3]);
    if (!choose_topology(&plan, argv[2]) || !choose_faults(&plan, words)) {
        fprintf(stderr, "lab: no such topology or fault: %s %s\n", argv[2], argv[3]);
        return 2;
    }
    preload_this(&plan, argv);
    if (!is_ready(&plan)) {
        fprintf(stderr, "SKIP: this machine has not all that %s needs\n", argv[3]);
        return EXIT_SKIPPED;
    }
    plan.duration_ms = strtol(argv[5], NULL, 10) * 1000;
    int status = judge_build(HF_HISTORY_BUILD, HF_HISTORY_DIR);
    if (status != 0)
        return status;
    char *dir = play_run(&plan, (unsigned)strtoul(argv[4], NULL, 10));
    free_actors(&plan);
    const char *const dirs[] = {dir};
    status = judge("checker", NULL, dirs, 1);
    if ((plan.faults & FAULT_OWN_CLOCK) != 0)
        unlink("step");
    free(dir);
    return status;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "actor") == 0)
        return lab_actor();
    if (argc == 7 && strcmp(argv[1], "history") == 0)
        return play_history(argv);
    if ((argc == 7 || argc == 8) && strcmp(argv[1], "register") == 0)
        return lab_register(argv[2], argv[3], argv[4], (unsigned)strtoul(argv[5], NULL, 10),
                            (int)strtol(argv[6], NULL, 10),
                            argc == 8 ? (int)strtol(argv[7], NULL, 10) : 0);
    fputs("usage: lab history TOPOLOGY FAULTS SEED SECONDS DIR\n"
          "       lab register SUBJECT TOPOLOGY FAULT SEED SECONDS [LIMIT]\n",
          stderr);
    return 2;
}
