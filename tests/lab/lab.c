/*
 * One run of the lab, as lab.h tells. Histories are those of tests/history, of all kinds of a topology at once, with any
 * of its troubles; the checker there judges, and what it prints goes to standard output.
 *
 * Used by scripts/lab, in one thread.
 */
#include "lab.h"

#include "history/judge.h"
#include "history/play.h"
#include "support/wait.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const struct kinds *kinds;
    bool cluster;
} topologies[] = {{"one", &kinds_of_one_server, false},
                  {"cohort", &kinds_of_cohorts, false},
                  {"quorum", &kinds_of_a_quorum, false},
                  {"sentinel", &kinds_of_a_route, false},
                  {"cluster", &kinds_of_a_route, true}};

static const struct {
    const char *name;
    unsigned trouble;
} troubles[] = {
    {"break", TROUBLE_BREAK},       {"kill", TROUBLE_KILL},          {"pause", TROUBLE_PAUSE},
    {"lose", TROUBLE_LOSE},         {"restart", TROUBLE_RESTART},    {"wipe", TROUBLE_WIPE},
    {"sabotage", TROUBLE_SABOTAGE}, {"failover", TROUBLE_FAIL_OVER}, {"move", TROUBLE_MOVE}};

static bool choose_topology(struct plan *plan, const char *name) {
    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++) {
        if (strcmp(topologies[i].name, name) == 0) {
            plan->kinds = topologies[i].kinds;
            plan->cluster = topologies[i].cluster;
        }
    }
    return plan->kinds != NULL;
}

/* "kill,pause"; "unguarded" is a wrong setting, and "none" none of them. */
static bool choose_troubles(struct plan *plan, char *words) {
    for (char *rest = NULL, *word = strtok_r(words, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        bool known = strcmp(word, "none") == 0 || strcmp(word, "unguarded") == 0;
        plan->unguarded |= strcmp(word, "unguarded") == 0;
        for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
            if (strcmp(troubles[i].name, word) == 0) {
                plan->troubles |= troubles[i].trouble;
                known = true;
            }
        }
        if (!known)
            return false;
    }
    return true;
}

static int play_history(char **argv) {
    struct plan plan = {.title = argv[3]};
    if (!choose_topology(&plan, argv[2]) || !choose_troubles(&plan, argv[3])) {
        fprintf(stderr, "lab: no such topology or trouble: %s %s\n", argv[2], argv[3]);
        return 2;
    }
    plan.duration_ms = strtol(argv[5], NULL, 10) * 1000;
    int status = judge_build(HF_HISTORY_BUILD, HF_HISTORY_DIR);
    if (status != 0)
        return status;
    char *dir = play_run(&plan, (unsigned)strtoul(argv[4], NULL, 10));
    const char *const dirs[] = {dir};
    status = judge("checker", NULL, dirs, 1);
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p '%s' && cp -r '%s'/. '%s'/", argv[6], dir, argv[6]);
    if (system(command) != 0)
        support_die("the history cannot be kept in %s", argv[6]);
    temp_dir_remove(dir);
    free(dir);
    return status;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "actor") == 0)
        return lab_actor();
    if (argc == 7 && strcmp(argv[1], "history") == 0)
        return play_history(argv);
    if (argc == 7 && strcmp(argv[1], "register") == 0)
        return lab_register(argv[2], argv[3], argv[4], (unsigned)strtoul(argv[5], NULL, 10),
                            (int)strtol(argv[6], NULL, 10));
    fputs("usage: lab history TOPOLOGY TROUBLES SEED SECONDS DIR\n"
          "       lab register SUBJECT TOPOLOGY FAULT SEED SECONDS\n",
          stderr);
    return 2;
}
