/*
 * Members of a mixed fleet, each a process of its own that is driven by lines (actor/actor.c).
 *
 * Used by the test's one thread. One server serves all rows; members are filed here until their row
 * ends, so that a row that fails leaves none behind.
 */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_SKIPPED 77

enum { MEMBERS = 32 };

struct server *fleet_server;
static struct member members[MEMBERS];
static size_t members_len;

/* ---- The fleet ------------------------------------------------------------------------------- */

void fleet_build(void) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(HF_UPGRADE_BUILD, HF_UPGRADE_BUILD, HF_UPGRADE_DIR, (char *)NULL);
        _exit(1);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        support_die("cannot build 0.1");
    if (WEXITSTATUS(status) != 0)
        exit(WEXITSTATUS(status) == EXIT_SKIPPED ? EXIT_SKIPPED : 1);
}

int fleet_begin(void **state) {
    (void)state;
    cmd_ok(fleet_server, "FLUSHALL");
    return 0;
}

int fleet_end(void **state) {
    (void)state;
    for (size_t i = 0; i < members_len; i++)
        remote_free(members[i].remote);
    members_len = 0;
    return 0;
}

static struct member *start(char version, const char *const *argv) {
    if (members_len == MEMBERS)
        support_die("too many members");
    struct member *member = &members[members_len++];
    *member = (struct member){.version = version};
    member->remote = remote_start(argv);
    return member;
}

struct member *member_in_storm(char version, const char *books, int seat) {
    char watchdog[16];
    char number[16];
    snprintf(watchdog, sizeof watchdog, "%d", ENDURING_MS);
    snprintf(number, sizeof number, "%d", seat);
    const char *argv[] = {version == 'O' ? HF_UPGRADE_DIR "/actor" : HF_UPGRADE_ACTOR,
                          server_url(fleet_server),
                          watchdog,
                          books,
                          number,
                          NULL};
    return start(version, argv);
}

struct member *member_new(char version) {
    return member_in_storm(version, NULL, 0);
}

void member_kill(struct member *member) {
    remote_kill(member->remote);
    member->dead = true;
}

/* ---- What they say --------------------------------------------------------------------------- */

static const char *checked(const struct member *member, const char *expected, const char *answer,
                           const char *file, int line) {
    if (strncmp(answer, expected, strlen(expected)) == 0)
        return answer;
    print_error("%s: expected [%s], got [%s]\n", member->version == 'O' ? "0.1" : "this build",
                expected, answer);
    _fail(file, line);
    return answer;
}

const char *say_at(struct member *member, const char *expected, const char *file, int line,
                   const char *format, ...) {
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return checked(member, expected, remote_call(member->remote, "%s", command), file, line);
}

const char *told_at(struct member *member, int id, const char *expected, int64_t limit_ms,
                    const char *file, int line) {
    return checked(member, expected, remote_answer_within(member->remote, id, limit_ms), file,
                   line);
}

/* ---- What the server shows ------------------------------------------------------------------- */

struct number_of {
    const char *name;
    int wanted;
};

static bool is_listening(void *arg) {
    const struct number_of *what = arg;
    redisReply *reply = cmd(fleet_server, "PUBSUB NUMSUB %s", what->name);
    bool there = reply->elements == 2 && reply->element[1]->integer >= what->wanted;
    freeReplyObject(reply);
    return there;
}

static bool is_long(void *arg) {
    const struct number_of *what = arg;
    return cmd_int(fleet_server, "LLEN %s", what->name) == what->wanted;
}

void until_listening(const char *channel, int listeners) {
    struct number_of what = {channel, listeners};
    if (!wait_until(is_listening, &what, REMOTE_LIMIT_MS))
        fail_msg("nobody listens to %s", channel);
}

void until_length(const char *list, int length) {
    struct number_of what = {list, length};
    if (!wait_until(is_long, &what, REMOTE_LIMIT_MS))
        fail_msg("%s does not get %d long", list, length);
}

/* How much is there; prints it if asked to. */
static size_t left_over(bool print) {
    size_t count = 0;
    redisReply *keys = cmd(fleet_server, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++) {
        const char *key = keys->element[i]->str;
        bool by_itself = strstr(key, "}:holdfast_") != NULL && pttl(fleet_server, key) > 0;
        if (strncmp(key, "redisson_lock_token:", 20) == 0 || by_itself)
            continue;
        count++;
        if (print)
            print_error("left behind: %s, for %lld ms\n", key, pttl(fleet_server, key));
    }
    freeReplyObject(keys);
    return count;
}

static bool nothing_left(void *unused) {
    (void)unused;
    return left_over(false) == 0;
}

void assert_nothing_left(int64_t limit_ms) {
    if (wait_until(nothing_left, NULL, limit_ms))
        return;
    left_over(true);
    fail();
}
