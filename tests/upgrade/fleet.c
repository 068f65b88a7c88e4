/*
 * Members of a mixed fleet, each a process of its own that reads commands (actor/actor.c).
 *
 * Used by the test's one thread. One server serves all cases; members are listed here until their
 * case ends, so that a case that fails leaves none behind.
 */
#include "fleet.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMBERS = 32 };

const struct old_version fleet_old_versions[] = {{"0.1", "a04dafe"}, {"0.2", "79f616b"}};
const size_t fleet_old_versions_len = sizeof fleet_old_versions / sizeof *fleet_old_versions;

struct server *fleet_server;
const char *fleet_url;
static const char *old_name;     /* as in fleet_old_versions */
static char old_directory[1024]; /* where its actor is */
static struct member members[MEMBERS];
static size_t members_len;

/* ---- The fleet ------------------------------------------------------------------------------- */

bool fleet_build(const struct old_version *version) {
    old_name = version->name;
    snprintf(old_directory, sizeof old_directory, "%s/%s", HF_UPGRADE_DIR, version->name);
    pid_t pid = fork();
    if (pid == 0) {
        execl(HF_UPGRADE_BUILD, HF_UPGRADE_BUILD, version->name, version->commit, old_directory,
              (char *)NULL);
        _exit(1);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        support_die("cannot build %s", version->name);
    if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != EXIT_SKIPPED)
        exit(1);
    return WEXITSTATUS(status) == 0;
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

static struct member *start(enum version version, const char *const *argv) {
    if (members_len == MEMBERS)
        support_die("too many members");
    struct member *member = &members[members_len++];
    *member = (struct member){.version = version};
    member->remote = remote_start(argv);
    return member;
}

struct member *member_in_storm(enum version version, const char *books, int number) {
    char actor[sizeof old_directory + sizeof "/actor"];
    char watchdog[16];
    char digits[16];
    snprintf(actor, sizeof actor, "%s/actor", old_directory);
    snprintf(watchdog, sizeof watchdog, "%d", ENDURING_MS);
    snprintf(digits, sizeof digits, "%d", number);
    const char *argv[] = {version == OLD ? actor : HF_UPGRADE_ACTOR,
                          fleet_url != NULL ? fleet_url : server_url(fleet_server),
                          watchdog,
                          books,
                          digits,
                          NULL};
    return start(version, argv);
}

struct member *member_new(enum version version) {
    return member_in_storm(version, NULL, 0);
}

void member_kill(struct member *member) {
    remote_kill(member->remote);
    member->dead = true;
}

/* ---- Their answers --------------------------------------------------------------------------- */

static const char *checked(const struct member *member, const char *expected, const char *answer,
                           const char *file, int line) {
    if (strncmp(answer, expected, strlen(expected)) == 0)
        return answer;
    print_error("%s: expected [%s], got [%s]\n", member->version == OLD ? old_name : "this build",
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

const char *answered_at(struct member *member, int id, const char *expected, int64_t limit_ms,
                        const char *file, int line) {
    return checked(member, expected, remote_answer_within(member->remote, id, limit_ms), file,
                   line);
}

/* ---- What the server shows ------------------------------------------------------------------- */

struct expected_count {
    const char *name;
    int wanted;
};

static bool is_subscribed(void *arg) {
    const struct expected_count *what = arg;
    own_reply *reply = cmd(fleet_server, "PUBSUB NUMSUB %s", what->name);
    return reply->elements == 2 && reply->element[1]->integer >= what->wanted;
}

static bool is_long(void *arg) {
    const struct expected_count *what = arg;
    return cmd_int(fleet_server, "LLEN %s", what->name) == what->wanted;
}

void until_subscribed(const char *channel, int subscribers) {
    struct expected_count what = {channel, subscribers};
    if (!wait_until(is_subscribed, &what, REMOTE_LIMIT_MS))
        fail_msg("nobody is subscribed to %s", channel);
}

void until_length(const char *list, int length) {
    struct expected_count what = {list, length};
    if (!wait_until(is_long, &what, REMOTE_LIMIT_MS))
        fail_msg("%s does not get %d long", list, length);
}

/* Counts the keys that should be gone; prints them if asked to. */
static size_t left_over(bool print) {
    size_t count = 0;
    own_reply *keys = cmd(fleet_server, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++) {
        const char *key = keys->element[i]->str;
        bool expires = strstr(key, "}:holdfast_") != NULL && pttl(fleet_server, key) > 0;
        if (strncmp(key, "redisson_lock_token:", 20) == 0 || expires)
            continue;
        count++;
        if (print)
            print_error("left behind: %s, for %lld ms\n", key, pttl(fleet_server, key));
    }
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
