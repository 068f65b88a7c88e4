/* Chance, clock, words and schedules of the random models; see play.h.
 *
 * Used by the models of this folder and by their tests, each on the one thread of its program. A
 * schedule depends on its seed alone: whatever is random comes from roll(), and the time from the
 * model's clock. A schedule that fails prints its trace. */

#include "play.h"

#include "script.h"
#include "support/case.h"
#include "support/wait.h"

#include <inttypes.h>
#include <time.h>

/* ARGV 1 how many ms pass, 2 ms of a tick. Replies how many keys ran out. */
static const char pass_time_lua[] = "local gone = 0\n"
                                    "for _, key in ipairs(redis.call('keys', '*')) do\n"
                                    "  local left = redis.call('pttl', key)\n"
                                    "  if left >= 0 then\n"
                                    "    left = math.ceil(left / ARGV[2]) * ARGV[2] - ARGV[1]\n"
                                    "    if left > 0 then redis.call('pexpire', key, left)\n"
                                    "    else gone = gone + redis.call('del', key) end\n"
                                    "  end\n"
                                    "end\n"
                                    "return gone\n";

void play_open(struct play *play, struct server *server, void *model,
               void (*run)(void *model, int discipline)) {
    memset(play, 0, sizeof *play);
    if (server != NULL) {
        play->connection = connect_as(server, NULL, NULL);
        play->pass_time_sha = script_load(server, pass_time_lua);
    }
    play->model = model;
    play->run = run;
}

void play_close(struct play *play) {
    free(play->pass_time_sha);
    redisFree(play->connection);
}

char *play_load_text(struct server *server, const char *text) {
    return script_load_timed_text(server, text,
                                  "{table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}");
}

static char *load_and_free(struct server *server, char *text) {
    char *sha = play_load_text(server, text);
    free(text);
    return sha;
}

char *play_load(struct server *server, const char *script) {
    return load_and_free(server, script_text(script));
}

char *play_load_0_1(struct server *server, const char *script) {
    return load_and_free(server, script_text_0_1(script));
}

/* ---- For models ----------------------------------------------------------------------------- */

/* splitmix64: good enough, and the same everywhere. */
unsigned roll(struct play *play, unsigned sides) {
    uint64_t z = (play->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) % sides);
}

int larger(int a, int b) {
    return a > b ? a : b;
}

int64_t clock_ms(int tick) {
    return EPOCH_MS + (int64_t)tick * TICK_MS;
}

void note(struct play *play, const char *format, ...) {
    char line[200];
    if (play->trace_len + sizeof line + 32 > sizeof play->trace)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    play->trace_len += (size_t)snprintf(play->trace + play->trace_len, sizeof line + 32,
                                        "%4d  %s\n", play->now, line);
}

void violated(struct play *play, const char *format, ...) {
    if (!going_well(play))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(play->violation, sizeof play->violation, format, args);
    va_end(args);
    note(play, "VIOLATED: %s", play->violation);
}

bool going_well(const struct play *play) {
    return play->violation[0] == '\0';
}

redisReply *must(struct play *play, redisReply *reply) {
    if (reply == NULL)
        support_die("the server is gone: %s", play->connection->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        support_die("a script failed: %s", reply->str);
    return reply;
}

redisReply *ask(struct play *play, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *reply = redisvCommand(play->connection, format, args);
    va_end(args);
    return must(play, reply);
}

long long pass_ticks(struct play *play, int ticks) {
    redisReply *reply =
        ask(play, "EVALSHA %s 0 %d %d", play->pass_time_sha, ticks * TICK_MS, TICK_MS);
    long long gone = reply->integer;
    freeReplyObject(reply);
    play->now += ticks;
    return gone;
}

/* ---- For tests ------------------------------------------------------------------------------ */

static bool goes_well(struct play *play, uint64_t seed, int discipline) {
    if (play->connection != NULL)
        freeReplyObject(ask(play, "FLUSHALL"));
    play->random = seed;
    play->now = 0;
    play->violation[0] = '\0';
    play->trace[0] = '\0';
    play->trace_len = 0;
    play->run(play->model, discipline);
    return going_well(play);
}

/* How long a soak lasts; 0: this is none. */
static int64_t soak_ms(void) {
    const char *soak = getenv("HF_SOAK");
    int64_t seconds = soak == NULL ? 0 : strtoll(soak, NULL, 10);
    return seconds == 1 ? 60000 : seconds * 1000;
}

static uint64_t first_seed(void) {
    const char *given = getenv("HF_SEED");
    if (given != NULL)
        return strtoull(given, NULL, 10);
    if (soak_ms() <= 0)
        return 1;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
}

uint64_t play_many(struct play *play, int discipline, uint64_t least) {
    uint64_t seed = first_seed(), played = 0;
    printf("first seed %" PRIu64 "\n", seed);
    for (int64_t end_ms = now_ms() + soak_ms(); played < least || now_ms() < end_ms; played++)
        if (!goes_well(play, seed + played, discipline)) {
            fputs(play->trace, stderr);
            fail_msg("HF_SEED=%" PRIu64 ": %s", seed + played, play->violation);
        }
    return played;
}

void play_until_wrong(struct play *play, int discipline) {
    enum { ENOUGH = 2000 };
    uint64_t seed = 1;
    while (seed <= ENOUGH && goes_well(play, seed, discipline))
        seed++;
    if (seed > ENOUGH)
        fail_msg("%d schedules, and nothing went wrong", ENOUGH);
    printf("schedule %" PRIu64 " goes wrong: %s\n", seed, play->violation);
}
