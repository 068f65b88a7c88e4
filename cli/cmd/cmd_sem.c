/* holdfast sem NAME VERB: a semaphore for scripts. Its permits have no owner, and a dead process's
 * permits are lost. So `run --slots` is better where a command runs under the permit; this is for
 * resources that come and go elsewhere.
 *
 * Only the table of verbs; counter.c does the rest. */
#include "common/counter.h"

#include <string.h>

static int open_sem(struct counter *c) {
    return hf_sem_new(c->client, c->name, &c->sem);
}

static void close_sem(struct counter *c) {
    hf_sem_free(c->sem);
}

static int set(struct counter *c) {
    return hf_sem_try_set_start(c->sem, c->number, c->ttl_ms, counter_done, c, &c->op);
}

static int acquire(struct counter *c) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = c->wait_ms;
    return hf_sem_acquire_start(c->sem, c->number, &options, counter_done, c, &c->op);
}

static int try(struct counter *c) {
    c->wait_ms = 0;
    return acquire(c);
}

static int release(struct counter *c) {
    return hf_sem_release_start(c->sem, c->number, counter_done, c, &c->op);
}

static int add(struct counter *c) {
    return hf_sem_add_start(c->sem, c->number, counter_done, c, &c->op);
}

static int drain(struct counter *c) {
    return hf_sem_drain_start(c->sem, counter_done, c, &c->op);
}

static int count(struct counter *c) {
    return hf_sem_available_start(c->sem, counter_done, c, &c->op);
}

static int delete (struct counter *c) {
    return hf_sem_delete_start(c->sem, counter_done, c, &c->op);
}

static const struct counter_verb verbs[] = {
    {.name = "set",
     .doing = "set",
     .number = true,
     .ttl = true,
     .start = set,
     .answer = "set",
     .no = "exists already"},
    {.name = "acquire",
     .doing = "acquire from",
     .number = true,
     .number_or_1 = true,
     .lowest = 1,
     .waits = true,
     .start = acquire,
     .undo = release},
    {.name = "try",
     .doing = "acquire from",
     .number = true,
     .number_or_1 = true,
     .lowest = 1,
     .start = try,
     .undo = release},
    {.name = "release",
     .doing = "release to",
     .number = true,
     .number_or_1 = true,
     .lowest = 1,
     .start = release},
    {.name = "add", .doing = "add to", .number = true, .lowest = -HF_PERMITS_MAX, .start = add},
    {.name = "drain", .doing = "drain", .start = drain, .answer = "permits"},
    {.name = "count", .doing = "count", .start = count, .answer = "permits"},
    {.name = "delete",
     .doing = "delete",
     .start = delete,
     .answer = "deleted",
     .no = "does not exist"},
    {.name = NULL},
};

static const struct counter_kind kind = {
    .command = &command_sem,
    .noun = "semaphore",
    .verbs = verbs,
    .busy = "there are too few permits",
    .timed_out = "the wait ended before enough permits were available",
    .open = open_sem,
    .close = close_sem,
};

static int run(struct connection *connection, int argc, char **argv) {
    return counter_run(&kind, connection, argc, argv);
}

const struct command command_sem = {
    .name = "sem",
    .options = counter_options,
    .summary = "use a semaphore: take and put back permits",
    .usage =
        "NAME VERB [N] [OPTIONS]\n"
        "Permits of a semaphore have no owner and no lease: those of a dead process stay taken.\n"
        "To run commands in a number of slots, use 'holdfast run --slots'.\n\n"
        "  set N [--ttl DUR]  create it with N permits, if it does not exist; expires after DUR\n"
        "  acquire [N]        take N permits (1), waiting until they are available\n"
        "  try [N]            the same without waiting\n"
        "  release [N]        put N permits (1) back\n"
        "  add N              change the number of permits by N, which may be negative\n"
        "  drain              take all permits, and print how many\n"
        "  count              print the number of permits\n"
        "  delete             delete it\n\n"
        "  -n, --nonblock, --nb        'acquire' does not wait\n"
        "  -w, --wait DUR              'acquire' waits at most this long (default: for ever)\n"
        "  -E, --conflict-exit-code N  exit status if there were too few permits (75)\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: 0 done; 75 too few permits; 1 'set': it exists, 'delete': it does not.\n",
    .run = run,
};
