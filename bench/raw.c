/*
 * The floor: the very scripts the library uses, sent over a bare socket with nothing around them.
 *
 * run_raw() sends an acquire, waits for its answer, sends a release, waits: one thread, blocking
 * calls, commands formatted once. run_raw_pipelined() keeps BENCH_IN_FLIGHT commands in flight on
 * one connection: each lock's next command is written as soon as its last one is answered, all that
 * came of one recv() in one send(). No deadline, no clock, no hold, no renewal: what the library
 * costs is the difference.
 */
#include "bench.h"
#include "redis/wire/script.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NEVER_TOO_LATE "9999999999999" /* `not-after`, in ms since 1970 */
#define COMMAND_MAX 512

static size_t format_script(char *to, size_t size, const struct hfi_script *script, int argc,
                            const char **args) {
    const char *argv[10] = {"EVALSHA", script->sha1, "1"};
    for (int i = 0; i < argc; i++)
        argv[3 + i] = args[i];
    char *text = NULL;
    int len = redisFormatCommandArgv(&text, argc + 3, argv, NULL);
    if (len < 0 || (size_t)len > size)
        die("a command is too long");
    memcpy(to, text, (size_t)len);
    redisFreeCommand(text);
    return (size_t)len;
}

size_t format_acquire(char *to, size_t size, const char *name, const char *owner) {
    const char *args[] = {name, NEVER_TOO_LATE, owner};
    return format_script(to, size, &hfi_script_plain_acquire, 3, args);
}

size_t format_release(char *to, size_t size, const char *name, const char *owner) {
    const char *args[] = {name, NEVER_TOO_LATE, owner};
    return format_script(to, size, &hfi_script_plain_release, 3, args);
}

static void send_all(int fd, const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent <= 0)
            die("send: %s", strerror(errno));
        bytes += sent;
        len -= (size_t)sent;
    }
}

/* Reads one answer, the time alone: anything else means that the row measures something else. */
static void expect_yes(int fd) {
    char reply[128];
    size_t have = 0;
    int lines = 0;
    while (lines < BENCH_REPLY_LINES) {
        ssize_t got = recv(fd, reply + have, sizeof reply - have, 0);
        if (got <= 0)
            die("recv: %s", got == 0 ? "the server has closed" : strerror(errno));
        for (size_t i = have; i < have + (size_t)got; i++)
            lines += reply[i] == '\n';
        have += (size_t)got;
    }
    if (reply[0] != ':')
        die("unexpected answer: %.*s", (int)have, reply);
}

void load_scripts(const struct bench *bench) {
    const struct hfi_script *scripts[] = {&hfi_script_plain_acquire, &hfi_script_plain_release};
    int fd = connect_to(bench);
    for (size_t i = 0; i < 2; i++) {
        const char *argv[] = {"SCRIPT", "LOAD", scripts[i]->body};
        size_t lens[] = {6, 4, scripts[i]->len};
        char *text = NULL, reply[128];
        int len = redisFormatCommandArgv(&text, 3, argv, lens);
        send_all(fd, text, (size_t)len);
        redisFreeCommand(text);
        if (recv(fd, reply, sizeof reply, 0) < 46 || memcmp(reply + 5, scripts[i]->sha1, 40) != 0)
            die("SCRIPT LOAD gave another SHA-1");
    }
    close(fd);
}

/* ---- One at a time ---- */

static void one_at_a_time(struct worker *worker) {
    char name[64], owner[64], acquire[COMMAND_MAX], release[COMMAND_MAX];
    snprintf(name, sizeof name, "bench-%d", worker->index);
    snprintf(owner, sizeof owner, "00000000-0000-4000-8000-000000000000:%d", worker->index);
    size_t acquire_len = format_acquire(acquire, sizeof acquire, name, owner);
    size_t release_len = format_release(release, sizeof release, name, owner);
    int fd = connect_to(worker->bench);
    worker_ready(worker);
    while (worker_goes_on(worker)) {
        send_all(fd, acquire, acquire_len);
        expect_yes(fd);
        send_all(fd, release, release_len);
        expect_yes(fd);
        worker_count(worker);
    }
    close(fd);
}

void run_raw(const struct bench *bench, int n, struct sample *ret) {
    run_workers(bench, n, one_at_a_time, NULL, ret);
}

/* ---- Pipelined ---- */

struct slot {
    char command[2][COMMAND_MAX]; /* acquire, release */
    size_t len[2];
    int next;
    bool landed; /* its lock is free and the run is over: it gets no more answers */
};

struct pipeline {
    struct slot slots[BENCH_IN_FLIGHT];
    size_t at;    /* the slot whose answer comes next */
    int landed;   /* how many slots have */
    int gathered; /* commands in `out` */
    size_t out_len;
    char out[BENCH_IN_FLIGHT * COMMAND_MAX];
    char in[16384];
};

/* Writes the slot's next command. */
static size_t append_next(struct slot *slot, char *to) {
    int which = slot->next;
    slot->next = 1 - which;
    memcpy(to, slot->command[which], slot->len[which]);
    return slot->len[which];
}

static struct pipeline *new_pipeline(void) {
    struct pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (pipeline == NULL)
        die("out of memory");
    for (int i = 0; i < BENCH_IN_FLIGHT; i++) {
        struct slot *slot = &pipeline->slots[i];
        char name[64], owner[64];
        snprintf(name, sizeof name, "bench-%d", i);
        snprintf(owner, sizeof owner, "00000000-0000-4000-8000-000000000000:%d", i);
        slot->len[0] = format_acquire(slot->command[0], COMMAND_MAX, name, owner);
        slot->len[1] = format_release(slot->command[1], COMMAND_MAX, name, owner);
    }
    return pipeline;
}

/* The next slot has its answer: writes its next command, unless its lock is free and the run is
 * over. Returns the bytes to send. */
static size_t advance(struct worker *worker, struct pipeline *pipeline, char *to) {
    while (pipeline->slots[pipeline->at].landed)
        pipeline->at = (pipeline->at + 1) % BENCH_IN_FLIGHT;
    struct slot *slot = &pipeline->slots[pipeline->at];
    bool released = slot->next == 0;
    pipeline->at = (pipeline->at + 1) % BENCH_IN_FLIGHT;
    if (released)
        worker_count(worker);
    if (released && !worker_goes_on(worker)) {
        slot->landed = true;
        pipeline->landed++;
        return 0;
    }
    return append_next(slot, to);
}

static void send_gathered(int fd, struct pipeline *pipeline) {
    if (pipeline->out_len > 0)
        send_all(fd, pipeline->out, pipeline->out_len);
    pipeline->out_len = 0;
    pipeline->gathered = 0;
}

/* At most so many commands go out together. */
static void keep_in_flight(struct worker *worker, int together) {
    struct pipeline *pipeline = new_pipeline();
    int fd = connect_to(worker->bench), lines = 0;
    for (size_t i = 0; i < BENCH_IN_FLIGHT; i++)
        pipeline->out_len += append_next(&pipeline->slots[i], pipeline->out + pipeline->out_len);
    worker_ready(worker);
    while (pipeline->landed < BENCH_IN_FLIGHT) {
        send_gathered(fd, pipeline);
        ssize_t got = recv(fd, pipeline->in, sizeof pipeline->in, 0);
        if (got <= 0)
            die("recv: %s", got == 0 ? "the server has closed" : strerror(errno));
        for (ssize_t i = 0; i < got; i++) {
            if (pipeline->in[i] == '-')
                die("unexpected answer: %.*s", (int)(got - i), pipeline->in + i);
            if (pipeline->in[i] != '\n' || ++lines < BENCH_REPLY_LINES)
                continue;
            lines = 0;
            pipeline->out_len += advance(worker, pipeline, pipeline->out + pipeline->out_len);
            if (++pipeline->gathered == together)
                send_gathered(fd, pipeline);
        }
    }
    close(fd);
    free(pipeline);
}

/* What came with one recv() is answered by one send(). */
static void answer_at_once(struct worker *worker) {
    keep_in_flight(worker, BENCH_IN_FLIGHT);
}

void run_raw_pipelined(const struct bench *bench, int n, struct sample *ret) {
    run_workers(bench, n, answer_at_once, NULL, ret);
}

/* As the library does, so that the server can begin with the first while the rest is made. */
static void answer_often(struct worker *worker) {
    keep_in_flight(worker, BENCH_TOGETHER);
}

void run_raw_often(const struct bench *bench, int n, struct sample *ret) {
    run_workers(bench, n, answer_often, NULL, ret);
}
