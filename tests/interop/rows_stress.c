/*
 * Mixed stress: four Redisson clients and four C processes on the same objects for some time, and on
 * until everybody has been in. A object is a lock, a read/write lock or a semaphore; each game has
 * three. A game of locks that are made of several is played by three and three.
 *
 * The Java clients live in the suite's JVM, but for the last one, in a JVM of its own that can be killed.
 * What a lock guards is a counter that each worker reads, and writes one higher some milliseconds
 * later; the scripts stress_enter.lua and stress_leave.lua also note who is inside. In the end: no
 * violation, the counters equal the sections that were done alone, everybody came to an end by
 * itself, and no lock, key or subscription is left.
 *
 * One sort of row kills a player now and then, and replaces it. A killed process keeps its lock until the
 * lease ends; its name is put into stress:killed only after its end, long before that, so that
 * being found inside is forgiven to it and to nobody else. The other sort kills nobody and has
 * leases that outlive it: there only messages move things on, and a wake-up that got lost would
 * show as a wait until the TTL or the waiter's own poll. (What Redisson itself forgets, the Java
 * workers avoid or make up for: Places.java.)
 *
 * HF_SEED repeats the random choices of a run (not its timing); HF_SOAK makes it last minutes.
 */
#include "five.h"
#include "interop.h"
#include "state.h"
#include "stress_ledger.h"
#include "stress_worker.h"
#include "support/case.h"

#include <time.h>

/* It runs out soon after a kill; the living keep theirs beside JVMs that start. */
#define SHORT_LEASE_MS ENDURING_MS
#define LONG_LEASE_MS 300000 /* outlives the row */
#define OWN_POLL_MS 10000    /* what C waits at least if no message comes; Java waits for the TTL */
#define PLAYERS 8            /* at most */

struct player {
    char process[24];   /* its name in the ledger, and as a client; a replacement gets a new one */
    struct remote *jvm; /* Java players */
    int command;        /* the stress command's id */
    pid_t pid;          /* C players */
};

struct game {
    struct stress stress; /* what all have in common */
    int64_t least_end_ms; /* it lasts until then, if not longer */
    struct stress_object objects[STRESS_OBJECTS];
    struct player players[PLAYERS];
    int players_len;
    int own_jvm; /* the players before this one are clients in the suite's own JVM, and are never
                  * killed; this one has a JVM of its own; the others are C processes */
    struct server *const *homes; /* where the objects are */
    size_t homes_len;
    const char *url, *second_url; /* C's */
    unsigned random;
    bool spares_jvm;
    int kills[2]; /* of C processes, of JVMs */
};

static const struct stress_object plain_objects[STRESS_OBJECTS] = {
    {"plain", "stress-a"}, {"plain", "stress-b"}, {"plain", "stress-c"}};
static const struct stress_object kin_objects[STRESS_OBJECTS] = {
    {"nonreentrant", "stress-a"}, {"spin", "stress-b"}, {"fenced", "stress-c"}};
static const struct stress_object killed_objects[STRESS_OBJECTS] = {
    {"fair", "stress-a"}, {"readwrite", "stress-b"}, {"permits", "stress-c"}};
static const struct stress_object reported_objects[STRESS_OBJECTS] = {
    {"nonreentrantfair", "stress-a"}, {"semaphore", "stress-b"}, {"permits", "stress-c"}};

static const struct stress_object group_objects[STRESS_OBJECTS] = {
    {"group", "stress-a"}, {"group", "stress-b"}, {"group", "stress-c"}};

/* ---- Players --------------------------------------------------------------------------------- */

static bool is_joint(const struct game *game) {
    return game->homes != &suite.server;
}

/* Java's client for the ledger, and those of a joint lock's members, "name.0" and so on. */
static void open_java_clients(const struct game *game, const struct player *player,
                              const char *url) {
    const struct stress *stress = &game->stress;
    const char *answer = java_call(
        player->jvm, "client %s %s watchdog=%lld fairwait=%lld codec=string", player->process, url,
        (long long)stress->watchdog_ms, (long long)stress->fair_wait_ms);
    assert_memory_equal(answer, "ok ", 3);
    for (size_t i = 0; is_joint(game) && i < game->homes_len; i++) {
        answer = java_call(player->jvm, "client %s.%zu %s watchdog=%lld", player->process, i,
                           server_tcp_url(game->homes[i]), (long long)stress->watchdog_ms);
        assert_memory_equal(answer, "ok ", 3);
    }
}

static void shut_java_clients(const struct game *game, const struct player *player) {
    assert_string_equal(java_call(player->jvm, "shutdown %s", player->process), "ok");
    for (size_t i = 0; is_joint(game) && i < game->homes_len; i++)
        assert_string_equal(java_call(player->jvm, "shutdown %s.%zu", player->process, i), "ok");
}

static void list_members(const struct game *game, const char *name, char ret_text[256]) {
    size_t len = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; is_joint(game) && i < game->homes_len; i++)
        len += (size_t)snprintf(ret_text + len, 256 - len, "%s%s.%zu", i == 0 ? " members=" : ",",
                                name, i);
}

static void start_java(const struct game *game, const struct stress *stress, struct player *player,
                       const char *url) {
    const char *name = player->process;
    const struct stress_object *objects = stress->objects;
    char members[256];
    open_java_clients(game, player, url);
    list_members(game, name, members);
    player->command = java_send(
        player->jvm,
        "stress %s thread=%s places=%s:%s,%s:%s,%s:%s process=%s workers=%d seed=%u ms=%lld "
        "lease=%lld enter=%s leave=%s%s",
        name, name, objects[0].kind, objects[0].name, objects[1].kind, objects[1].name,
        objects[2].kind, objects[2].name, name, STRESS_WORKERS, stress->seed,
        (long long)(stress->end_ms - now_ms()), (long long)stress->lease_ms, stress->enter,
        stress->leave, members);
}

static void start_player(struct game *game, int number) {
    static unsigned started = 0; /* over all rows: what one left behind must not meet the next */
    struct player *player = &game->players[number];
    struct stress stress = game->stress;
    bool java = number <= game->own_jvm;
    snprintf(player->process, sizeof player->process, "%s%u", java ? "java" : "c", ++started);
    stress.process = player->process;
    stress.seed += started;
    if (!java) {
        player->pid = run_child(stress_worker, &stress);
        return;
    }
    /* One of them through the Unix socket, as C goes, the others by TCP; older ones cannot. */
    if (player->jvm == NULL)
        player->jvm = number < game->own_jvm ? suite.java : java_start(JAVA_REDISSON);
    start_java(game, &stress, player,
               number == 0 && java_version(JAVA_REDISSON) == NULL ? server_url(suite.server)
                                                                  : server_tcp_url(suite.server));
}

static void kill_player(struct game *game, int number) {
    struct player *player = &game->players[number];
    if (number == game->own_jvm) {
        java_kill(player->jvm);
        java_free(player->jvm);
        player->jvm = NULL;
    } else {
        kill_child(player->pid);
    }
    cmd_ok(suite.server, "SADD stress:killed %s", player->process);
    game->kills[number == game->own_jvm]++;
}

/* Kills and replaces players until the time is up: C processes and, unless it is spared, the JVM in
 * turn, each at least once. */
static void play(struct game *game) {
    for (int round = 0;; round++) {
        int64_t pause_ms = 300 + rand_r(&game->random) % 800;
        if (round >= 2 && now_ms() + pause_ms >= game->least_end_ms)
            return;
        linger(pause_ms);
        bool jvm = round % 2 == 1 && !game->spares_jvm;
        int own = game->own_jvm, c_players = game->players_len - own - 1;
        int number = jvm ? own : own + 1 + rand_r(&game->random) % c_players;
        kill_player(game, number);
        start_player(game, number);
    }
}

/* Everybody ends by itself: the longest wait is for the lease of somebody killed. */
static bool ended_well(const struct game *game, int number) {
    const struct player *player = &game->players[number];
    if (number > game->own_jvm)
        return expect_exit(player->pid, 0, JAVA_LIMIT_MS);
    const char *answer = java_answer(player->jvm, player->command);
    if (strncmp(answer, "ok sections=", 12) != 0) {
        print_error("%s: %s\n", player->process, answer);
        return false;
    }
    return true;
}

static void end_java(struct game *game) {
    java_free(game->players[game->own_jvm].jvm);
    for (int i = 0; i < game->own_jvm; i++)
        shut_java_clients(game, &game->players[i]);
}

/* ---- What is left ---------------------------------------------------------------------------- */

/* Tells what nobody is there to release. */
static void fail_with_leftovers(struct server *server) {
    char *left = state_dump(server, NULL, 0);
    for (char *line = strtok(left, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "stress:", 7) != 0)
            print_error("left: %s\n", line);
    }
    free(left);
    fail_msg("something is left on the server");
}

static bool is_semaphore(const struct stress_object *object) {
    return strcmp(object->kind, "semaphore") == 0 || strcmp(object->kind, "permits") == 0;
}

static void set_semaphores(const struct stress_object *objects) {
    for (int i = 0; i < STRESS_OBJECTS; i++) {
        if (is_semaphore(&objects[i]))
            cmd_ok(suite.server, "SET %s %d", objects[i].name, STRESS_PERMITS);
    }
}

static bool all_permits_are_back(void *arg) {
    int64_t number;
    assert_hf(HF_OK, hf_permits_available(arg, &number));
    return number == STRESS_PERMITS;
}

/* Once more, alone: the client that was killed in the queue or inside does not keep us out, and is gone then. */
static void visit_lock(hf_client *client, hf_client *second, const struct stress_object *object) {
    struct stress_door door = {.way = stress_way_of(object->kind), .second = second};
    assert_hf(HF_OK, door.way->open(&door, client, object->name));
    assert_hf(HF_OK, hf_lock_acquire_for(door.lock, JAVA_LIMIT_MS));
    assert_hf(HF_OK, hf_lock_release(door.lock));
    door.way->close(&door);
}

/* Locks can be had. All permits are there again, those of the killed when their leases have ended; no more,
 * no fewer. The semaphores go. */
static void check_objects(const struct game *game) {
    const struct stress_object *objects = game->objects;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client, *second = NULL;
    /* what Java left of former owners of a group's values ends with the last lease of all */
    options.watchdog_ms = SHORT_LEASE_MS;
    options.restart_guard_ms = 0;
    assert_hf(HF_OK, hf_open(game->url, &options, &client));
    if (game->second_url != NULL)
        assert_hf(HF_OK, hf_open(game->second_url, &options, &second));
    for (int i = 0; i < STRESS_OBJECTS; i++) {
        const char *name = objects[i].name;
        if (!is_semaphore(&objects[i])) {
            visit_lock(client, second, &objects[i]);
        } else if (strcmp(objects[i].kind, "permits") == 0) {
            hf_permits *permits;
            assert_hf(HF_OK, hf_permits_new_bytes(client, name, strlen(name), &permits));
            if (!wait_until(all_permits_are_back, permits, BY_MESSAGE_MS + SHORT_LEASE_MS))
                fail_with_leftovers(suite.server);
            hf_permits_free(permits);
        } else {
            assert_int_equal(stress_number("", name), STRESS_PERMITS);
        }
        if (is_semaphore(&objects[i]))
            cmd_ok(suite.server, "DEL %s {%s}:timeout", name, name);
    }
    hf_close(client);
    if (second != NULL)
        hf_close(second);
}

/* To the objects, that is: what other rows have left is not this one's. */
static redisReply *channels_of_objects(struct server *server) {
    return cmd(server, "PUBSUB CHANNELS *stress-[abc]*");
}

static bool nobody_listens(void *arg) {
    own_reply *channels = channels_of_objects(arg);
    return channels->elements == 0;
}

static void assert_nobody_listens(struct server *server) {
    if (wait_until(nobody_listens, server, JAVA_LIMIT_MS))
        return;
    redisReply *channels = channels_of_objects(server);
    for (size_t i = 0; i < channels->elements; i++)
        print_error("somebody listens to %s\n", channels->element[i]->str);
    freeReplyObject(channels);
    fail();
}

/* The locks of those killed have run out by now, and nothing else may be there but the ledger;
 * and, for their own short lives, what a JVM that was killed between its unlock and its clean-up
 * has left, and the record of a fair waiter that was killed and removed by Java, which knows no
 * records. The counters of tokens stay. */
static bool only_books_left(void *arg) {
    struct server *server = arg;
    own_reply *keys = cmd(server, "KEYS *");
    bool only = true;
    for (size_t i = 0; i < keys->elements; i++) {
        const char *key = keys->element[i]->str;
        bool latch = strncmp(key, "redisson_unlock_latch:", 22) == 0 && pttl(server, key) != -1;
        bool record = strncmp(key, "holdfast_fair:", 14) == 0 && pttl(server, key) != -1;
        bool token = strncmp(key, "redisson_lock_token:", 20) == 0;
        only =
            only && (strncmp(key, "stress:", 7) == 0 || latch || record || token || is_proof(key));
    }
    return only;
}

/* ---- The row --------------------------------------------------------------------------------- */

static unsigned choose_seed(void) {
    const char *given = getenv("HF_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return given != NULL ? (unsigned)strtoul(given, NULL, 10)
                         : (unsigned)(now.tv_nsec ^ now.tv_sec);
}

static bool soaking(void) {
    return getenv("HF_SOAK") != NULL;
}

/* What an older Redisson does not have is played as what it has of the same sort. */
static void choose_objects(struct game *game, const struct stress_object *wanted) {
    for (int i = 0; i < STRESS_OBJECTS; i++) {
        game->objects[i] = wanted[i];
        if (!java_has_kind(wanted[i].kind) && strcmp(wanted[i].kind, "readwrite") != 0)
            game->objects[i].kind = strstr(wanted[i].kind, "fair") != NULL ? "fair" : "plain";
    }
}

static void begin(struct game *game, const struct stress_object *wanted, int64_t lasts_ms,
                  int64_t lease_ms) {
    const struct stress_object *objects = game->objects;
    choose_objects(game, wanted);
    game->random = choose_seed();
    game->players[game->own_jvm].jvm =
        java_start(JAVA_REDISSON); /* It takes its time: before it counts. */
    if (soaking())
        lasts_ms *= 30;
    game->least_end_ms = now_ms() + lasts_ms;
    game->stress = (struct stress){
        .url = game->url,
        .second_url = game->second_url,
        .socket = server_socket(suite.server),
        .objects = objects,
        .seed = game->random,
        .end_ms = game->least_end_ms + 2 * JAVA_LIMIT_MS, /* a JVM may start slowly */
        .watchdog_ms = lease_ms,
        .lease_ms = lease_ms,
        .fair_wait_ms = lease_ms / 6,
    };
    stress_load_script(HF_SOURCE_DIR "/tests/interop/stress_enter.lua", game->stress.enter);
    stress_load_script(HF_SOURCE_DIR "/tests/interop/stress_leave.lua", game->stress.leave);
    print_message("stress of %s, %s, %s: seed %u, %lld s\n", objects[0].kind, objects[1].kind,
                  objects[2].kind, game->random, (long long)lasts_ms / 1000);
    set_semaphores(objects);
    for (int i = 0; i < game->players_len; i++)
        start_player(game, i);
}

/* How long it takes until a JVM has started and got into something is nobody's promise. */
static bool everybody_has_worked(void *arg) {
    const struct game *game = arg;
    if (now_ms() < game->least_end_ms)
        return false;
    for (int i = 0; i < game->players_len; i++) {
        if (!stress_has_worked(game->players[i].process))
            return false;
    }
    return true;
}

/* Ends it when it has lasted long enough, waits for everybody and checks what must be true of
 * every game. */
static void end(struct game *game) {
    int bad = 0;
    bool worked = wait_until(everybody_has_worked, game, game->stress.end_ms - now_ms());
    cmd_ok(suite.server, "SET stress:over 1");
    for (int i = 0; i < game->players_len; i++)
        bad += ended_well(game, i) ? 0 : 1;
    end_java(game);
    char longest[128] = "";
    stress_longest_wait_ms(longest);
    print_message("stress: %lld sections, longest wait %s; killed %d C processes, %d JVMs\n",
                  stress_sections(), longest, game->kills[0], game->kills[1]);

    stress_assert_no_violation();
    assert_int_equal(bad, 0);
    assert_int_equal(stress_counters(game->stress.objects), stress_number("stress:alone", ""));
    assert_true(worked);
    check_objects(game);
    for (size_t i = 0; i < game->homes_len; i++) {
        if (!wait_until(only_books_left, game->homes[i], BY_MESSAGE_MS + 2 * SHORT_LEASE_MS))
            fail_with_leftovers(game->homes[i]);
        assert_nobody_listens(game->homes[i]);
    }
}

/* Four of each on the suite's server. */
#define EIGHT_ON_ONE                                                                               \
    .players_len = 8, .own_jvm = 3, .homes = &suite.server, .homes_len = 1,                        \
    .url = server_url(suite.server)

/* With kills: C processes and JVMs in turn. */
static void stress_with_kills(const struct stress_object *objects, int64_t lasts_ms) {
    OWN(end) struct game game = {EIGHT_ON_ONE};
    begin(&game, objects, lasts_ms, SHORT_LEASE_MS);
    play(&game);
}

/* With kills of C processes alone. */
static void stress_with_c_kills(const struct stress_object *objects, int64_t lasts_ms) {
    OWN(end) struct game game = {EIGHT_ON_ONE, .spares_jvm = true};
    begin(&game, objects, lasts_ms, SHORT_LEASE_MS);
    play(&game);
}

/* Without: then every wait ends by a message, or it shows. */
static void stress_by_message(const struct stress_object *objects, int64_t lasts_ms) {
    struct game game = {EIGHT_ON_ONE};
    begin(&game, objects, lasts_ms, LONG_LEASE_MS);
    end(&game);
    assert_true(stress_longest_wait_ms(NULL) < OWN_POLL_MS);
}

void plain_mixed_stress(void **state) {
    (void)state;
    stress_with_kills(plain_objects, 7 * 1000);
}

void plain_mixed_stress_wakes_by_message(void **state) {
    (void)state;
    stress_by_message(plain_objects, 3 * 1000);
}

void kin_mixed_stress(void **state) {
    (void)state;
    stress_with_kills(kin_objects, 6 * 1000);
}

void kin_mixed_stress_wakes_by_message(void **state) {
    (void)state;
    stress_by_message(kin_objects, 3 * 1000);
}

/* No JVM is killed: what Redisson takes over from a dead Redisson it may lose at once, because both
 * the lease and the key end in that millisecond, and it leaves a TTL of 0 as it is. A key of ours
 * lasts a little longer than the lease. */
void group_mixed_stress(void **state) {
    (void)state;
    stress_with_c_kills(group_objects, 6 * 1000);
}

void group_mixed_stress_wakes_by_message(void **state) {
    (void)state;
    stress_by_message(group_objects, 3 * 1000);
}

void others_mixed_stress(void **state) {
    (void)state;
    stress_with_kills(killed_objects, 8 * 1000);
}

void others_mixed_stress_wakes_by_message(void **state) {
    (void)state;
    stress_by_message(reported_objects, 3 * 1000);
}

/* ---- Locks made of several --------------------------------------------------------------------- */

/* Three of each on one lock, with kills. */
static void stress_joint(const char *kind, const char *url, const char *second_url, size_t homes) {
    const struct stress_object objects[STRESS_OBJECTS] = {
        {kind, "stress-a"}, {kind, "stress-a"}, {kind, "stress-a"}};
    struct game game = {.players_len = 6,
                        .own_jvm = 2,
                        .homes = five.servers,
                        .homes_len = homes,
                        .url = url,
                        .second_url = second_url};
    begin(&game, objects, 6 * 1000, ENDURING_MS);
    play(&game);
    end(&game);
}

void quorum_mixed_stress(void **state) {
    (void)state;
    five_begin();
    stress_joint("redlock", five.urls, NULL, FIVE);
}

void multi_mixed_stress(void **state) {
    (void)state;
    five_begin();
    stress_joint("multi", server_url(five.servers[0]), server_url(five.servers[1]), 2);
}
