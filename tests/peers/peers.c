/*
 * The actors of the languages, and the pairs of a peer and us on one lock; see peers.h.
 *
 * Used by the test's one thread. After a case that did not come to its end the next has another actor.
 */
#include "peers.h"

#include "scenes.h"
#include "support/case.h"

#include <sys/wait.h>

struct peers_suite suite;

enum { ANSWERS_MS = 5000 };

struct played {
    const struct peer_scene *scene;
    const struct peer *peer;
};

static bool case_ended; /* the last one, in good order */

/* ---- Actors ---------------------------------------------------------------------------------- */

int peers_build(const char *language) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(HF_PEERS_BUILD, HF_PEERS_BUILD, HF_PEERS_DIR, language, (char *)NULL);
        _exit(1);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        support_die("%s cannot be run", HF_PEERS_BUILD);
    status = WEXITSTATUS(status);
    return status == 0 || status == EXIT_SKIPPED ? status : 1;
}

#define SOURCES HF_SOURCE_DIR "/tests/peers"

struct remote *peers_start(const char *language) {
    static const char jars[] = HF_PEERS_DIR "/java/actor.jar:" HF_PEERS_DIR "/java/lib/*";
    static const char *const python[] = {HF_PEERS_DIR "/python/venv/bin/python",
                                         SOURCES "/python/actor.py", NULL};
    static const char *const text[] = {"python3", SOURCES "/text/actor.py", NULL};
    static const char *const node[] = {"node", SOURCES "/node/actor.js", HF_PEERS_DIR "/node",
                                       NULL};
    static const char *const go[] = {HF_PEERS_DIR "/go/actor", NULL};
    static const char *const rust[] = {HF_PEERS_DIR "/rust/debug/peers", NULL};
    /* Small and quick to start, as support/java.c does it. */
    static const char *const java[] = {"java",     "-XX:+UseSerialGC",    "-XX:TieredStopAtLevel=1",
                                       "-Xmx256m", "-Xshare:auto",        "-cp",
                                       jars,       "holdfast.peers.Main", NULL};
    static const struct {
        const char *language;
        const char *const *argv;
    } actors[] = {{"python", python}, {"node", node}, {"go", go},
                  {"rust", rust},     {"java", java}, {"text", text}};
    for (size_t i = 0; i < sizeof actors / sizeof *actors; i++) {
        if (strcmp(actors[i].language, language) == 0)
            return remote_start(actors[i].argv);
    }
    support_die("no actor speaks %s", language);
}

/* ---- The suite of a language ----------------------------------------------------------------- */

/* One that hangs would not end by itself. */
static void end_actor(void) {
    if (suite.actor == NULL)
        return;
    remote_kill(suite.actor);
    remote_free(suite.actor);
    suite.actor = NULL;
}

int peers_begin_case(void **state) {
    (void)state;
    if (!case_ended)
        end_actor();
    if (suite.actor == NULL)
        suite.actor = peers_start(suite.language);
    cmd_ok(suite.server, "FLUSHALL");
    case_ended = false;
    return 0;
}

/* It also runs after a failure: whether the actor still serves is asked, by a command that an idle
 * one answers at once. */
int peers_end_case(void **state) {
    (void)state;
    int id = remote_send(suite.actor, "ping");
    case_ended = strcmp(remote_answer_within(suite.actor, id, ANSWERS_MS), "ok") == 0;
    return 0;
}

static void play(void **state) {
    const struct played *played = *state;
    peers_begin_case(NULL);
    played->scene->play(played->peer);
    case_ended = true;
}

static void play_all_at_once(void **state) {
    const struct peer_scene *scene = *state;
    peers_begin_case(NULL);
    scene->play(NULL);
    case_ended = true;
}

static void add(const struct peer_scene *scene, const struct peer *peer) {
    struct played *played = calloc(1, sizeof *played);
    char *name = calloc(1, 128);
    if (played == NULL || name == NULL)
        support_die("out of memory");
    *played = (struct played){scene, peer};
    snprintf(name, 128, "%s.%s", scene->name, peer->name);
    test_case_add(name, play, played);
}

static int start_server(void **state) {
    (void)state;
    suite.server = server_start(&(struct server_options){.tcp = true});
    return 0;
}

static int stop_server(void **state) {
    (void)state;
    end_actor();
    server_free(suite.server);
    return 0;
}

int peers_run(const char *language, const struct peer *peers, size_t len) {
    int status = peers_build(language);
    if (status != 0)
        return status;
    suite = (struct peers_suite){.language = language, .peers = peers, .peers_len = len};
    for (size_t i = 0; i < scenes_len; i++) {
        for (size_t peer = 0; peer < len && !scenes[i].all_at_once; peer++) {
            if ((peers[peer].traits & scenes[i].wanted) == scenes[i].wanted &&
                (peers[peer].traits & scenes[i].unwanted) == 0)
                add(&scenes[i], &peers[peer]);
        }
        if (scenes[i].all_at_once)
            test_case_add(scenes[i].name, play_all_at_once, (void *)(uintptr_t)&scenes[i]);
    }
    return test_cases_run(start_server, stop_server);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

hf_client *our_client(const char *prefix, int64_t watchdog_ms) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    options.name_prefix = prefix;
    if (watchdog_ms != 0)
        options.watchdog_ms = watchdog_ms;
    assert_hf(HF_OK, hf_open(server_url(suite.server), &options, &client));
    return client;
}

hf_lock *our_lock(hf_client *client, const char *name) {
    hf_lock *lock;
    assert_hf(HF_OK, new_lock(client, HF_STRING, name, strlen(name), &lock));
    return lock;
}

void pair_begin(struct pair *pair, const struct peer *peer) {
    static unsigned made = 0;
    int port = server_port(suite.server);
    *pair = (struct pair){.peer = peer};
    snprintf(pair->name, sizeof pair->name, "job%u", ++made);
    snprintf(pair->key, sizeof pair->key, "%s%s", peer->prefix, pair->name);
    pair->client = our_client(peer->prefix, 0);
    pair->lock = our_lock(pair->client, pair->name);
    it_says("ok", "open long %s %s %d %d", peer->name, pair->name, LONG_MS, port);
    it_says("ok", "open short %s %s %d %d", peer->name, pair->name, SHORT_MS, port);
}

void pair_end(struct pair *pair) {
    assert_true(WAIT_FOR(!key_exists(suite.server, pair->key), REMOTE_LIMIT_MS));
    hf_lock_free(pair->lock);
    hf_close(pair->client);
}

void assert_answer(const char *expected, const char *answer, const char *file, int line) {
    if (strcmp(expected, answer) == 0)
        return;
    print_error("the peer said [%s] instead of [%s]\n", answer, expected);
    _fail(file, line);
}

bool has(const struct peer *peer, enum peer_trait trait) {
    return (peer->traits & trait) != 0;
}

const char *released(const struct peer *peer) {
    return has(peer, PEER_TELLS) ? "ok" : "silent";
}

const char *not_released(const struct peer *peer) {
    return has(peer, PEER_TELLS) ? "lost" : "silent";
}

char *token_of(const struct pair *pair) {
    return cmd_str(suite.server, "GET %s", pair->key);
}

void assert_token(const struct pair *pair, const char *token) {
    char *now = token_of(pair);
    assert_non_null(now);
    assert_string_equal(now, token);
    free(now);
}
