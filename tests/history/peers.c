/*
 * Players with other libraries: redis-py, redsync and node-redlock, at the names of the string
 * kind. On a quorum the latter two.
 *
 * Used by play.c, in its one thread. Each has an actor (tests/peers), which does one thing after
 * the other: it takes the lock, perhaps lengthens its lease, gives it back. An operation is written
 * down from before its command is sent until after its answer was found.
 */
#include "kinds.h"
#include "play.h"

#include "support/wait.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEER_LEASE_MS (2 * PLAY_LEASE_MS)
#define VISITS_PER_NAME 12
#define QUORUM_VISITS_PER_NAME 4 /* all its players are together at one name */
#define PORTS_TEXT 64

const char *const peer_languages[PLAY_PEERS] = {"python", "go", "node"};
static const char *const libraries[PLAY_PEERS] = {"redis-py", "redsync", "node-redlock-5"};

struct peer_player {
    struct remote *actor; /* NULL: none */
    struct subject subject;
    char owner[32], name[48];
    int visits;
    struct operation operation;
    int64_t called_ns;
    int answer_id; /* what it waits for; -1: nothing */
    void (*then)(struct peer_players *players, struct peer_player *player, const char *answer);
    char hold[48]; /* what it has; "" for nothing */
    int64_t next_ms;
};

struct peer_players {
    struct run *run;
    struct record record;
    struct peer_player all[PLAY_PEERS];
};

/* ---- Actors ---------------------------------------------------------------------------------- */

static int build(const char *language) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(HF_PEERS_BUILD, HF_PEERS_BUILD, HF_PEERS_DIR, language, (char *)NULL);
        _exit(1);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        support_die("%s cannot be run", HF_PEERS_BUILD);
    return WEXITSTATUS(status);
}

struct remote *peer_actor_new(const char *language) {
    static const char *const python[] = {HF_PEERS_DIR "/python/venv/bin/python",
                                         HF_SOURCE_DIR "/tests/peers/python/actor.py", NULL};
    static const char *const node[] = {"node", HF_SOURCE_DIR "/tests/peers/node/actor.js",
                                       HF_PEERS_DIR "/node", NULL};
    static const char *const go[] = {HF_PEERS_DIR "/go/actor", NULL};
    int status = build(language);
    if (status == EXIT_SKIPPED)
        return NULL;
    if (status != 0)
        support_die("the peers of %s cannot be built", language);
    return remote_start(language[0] == 'p' ? python : language[0] == 'g' ? go : node);
}

/* ---- What they do ---------------------------------------------------------------------------- */

static void send_it(struct peer_player *player, const char *verb,
                    void (*then)(struct peer_players *players, struct peer_player *player,
                                 const char *answer)) {
    player->then = then;
    player->called_ns = record_now_ns();
    player->answer_id = remote_send(player->actor, "%s h", verb);
}

/* A refusal counts if it came at once: later it may be that its lease was too short for its library. */
static int code_of(const struct peer_player *player, const char *answer) {
    bool soon = record_now_ns() - player->called_ns < PEER_LEASE_MS / 4 * INT64_C(1000000);
    if (strcmp(answer, "ok") == 0)
        return HF_OK;
    if (strcmp(answer, "lost") == 0)
        return HF_ELOST;
    return strcmp(answer, "busy") == 0 && soon ? HF_EBUSY : HF_EINDOUBT;
}

/* Of a quorum a refused release or extension says only that too few servers have answered well. */
static int code_of_hold(const struct peer_players *players, const struct peer_player *player,
                        const char *answer) {
    int code = code_of(player, answer);
    return players->run->plan->kinds->quorum && code != HF_OK ? HF_EINDOUBT : code;
}

static void given(struct peer_players *players, struct peer_player *player, const char *answer) {
    record_return(&player->operation, code_of_hold(players, player, answer), " ");
    player->hold[0] = '\0';
}

static void extended(struct peer_players *players, struct peer_player *player, const char *answer) {
    int code = code_of_hold(players, player, answer);
    record_return(&player->operation, code, " ");
    if (code == HF_OK)
        record_sure(&players->record, player->hold, player->called_ns, PEER_LEASE_MS);
    else if (code == HF_ELOST)
        player->hold[0] = '\0';
}

static void taken(struct peer_players *players, struct peer_player *player, const char *answer) {
    int code = code_of(player, answer);
    record_return(&player->operation, code, "count=%d token=0 ids=-", code == HF_OK);
    if (code != HF_OK)
        return;
    snprintf(player->hold, sizeof player->hold, "%s", player->operation.id);
    record_sure(&players->record, player->hold, player->called_ns, PEER_LEASE_MS);
}

static void open_lock(struct peer_players *players, struct peer_player *player) {
    const struct run *run = players->run;
    size_t i = (size_t)(player - players->all);
    char ports[PORTS_TEXT] = "";
    for (size_t s = 0; s < run->servers_len; s++) {
        size_t len = strlen(ports);
        snprintf(ports + len, sizeof ports - len, " %d", server_port(run->servers[s]));
    }
    const char *answer = remote_call(player->actor, "open h %s %s %d%s", libraries[i], player->name,
                                     PEER_LEASE_MS, ports);
    if (strcmp(answer, "ok") != 0)
        support_die("%s: open: %s", libraries[i], answer);
}

static void begin(struct peer_players *players, struct peer_player *player) {
    unsigned dice = run_pick(players->run, 100);
    if (player->hold[0] != '\0' && dice < 20) {
        player->operation = record_call(&players->record, &player->subject, "extend",
                                        "hold=%s values=", player->hold);
        send_it(player, "extend", extended);
        return;
    }
    if (player->hold[0] != '\0') {
        player->operation = record_call(&players->record, &player->subject, "release",
                                        "left=0 hold=%s values=", player->hold);
        send_it(player, "release", given);
        return;
    }
    char name[48];
    bool quorum = players->run->plan->kinds->quorum;
    play_name(player->subject.kind, players->run->begin_ms, name);
    if (strcmp(name, player->name) != 0) {
        snprintf(player->name, sizeof player->name, "%s", name);
        player->visits = 0;
        open_lock(players, player);
    }
    if (player->visits++ >= (quorum ? QUORUM_VISITS_PER_NAME : VISITS_PER_NAME))
        return;
    player->operation = record_call(&players->record, &player->subject, "acquire",
                                    "wait=0 lease=%d nested=0 hold=- values=", PEER_LEASE_MS);
    send_it(player, "try", taken);
}

static void step(struct peer_players *players, struct peer_player *player, bool begins) {
    if (player->actor == NULL)
        return;
    if (player->answer_id >= 0) {
        if (!remote_answered(player->actor, player->answer_id))
            return;
        const char *answer = remote_answer(player->actor, player->answer_id);
        player->answer_id = -1;
        player->next_ms = now_ms() + run_pick(players->run, 6);
        player->then(players, player, answer);
    } else if (now_ms() >= player->next_ms && (begins || player->hold[0] != '\0')) {
        begin(players, player);
    }
}

void peer_players_step(struct peer_players *players) {
    for (size_t i = 0; players != NULL && i < PLAY_PEERS; i++)
        step(players, &players->all[i], true);
}

static bool is_idle(void *arg) {
    struct peer_players *players = arg;
    bool idle = true;
    for (size_t i = 0; i < PLAY_PEERS; i++) {
        struct peer_player *player = &players->all[i];
        step(players, player, false);
        idle =
            idle && (player->actor == NULL || (player->answer_id < 0 && player->hold[0] == '\0'));
    }
    return idle;
}

struct peer_players *peer_players_new(struct run *run) {
    static int processes;
    bool quorum = run->plan->kinds == &kinds_of_a_quorum;
    if (!run->plan->peers || (run->plan->kinds != &kinds_of_one_server && !quorum))
        return NULL;
    struct peer_players *players = calloc(1, sizeof *players);
    char process[24];
    if (players == NULL)
        support_die("out of memory");
    players->run = run;
    snprintf(process, sizeof process, "p%d", ++processes);
    record_open(&players->record, run->dir, process);
    for (size_t i = 0; i < PLAY_PEERS; i++) {
        struct peer_player *player = &players->all[i];
        bool joins =
            !quorum || strcmp(peer_languages[i], "python") != 0; /* redis-py has no quorum */
        player->actor = joins ? run->plan->actors[i] : NULL;
        player->answer_id = -1;
        snprintf(player->owner, sizeof player->owner, "%s:%zu", libraries[i], i + 1);
        player->subject = (struct subject){.name = player->name,
                                           .kind = quorum ? "quorum_string" : "string",
                                           .owner = player->owner};
    }
    return players;
}

void peer_players_end(struct peer_players *players) {
    if (players == NULL)
        return;
    if (!wait_until(is_idle, players, REMOTE_LIMIT_MS))
        support_die("another library's player does not end");
    record_close(&players->record);
    free(players);
}
