/* holdfast latch NAME VERB: a count-down latch for scripts: waiters block until other processes
 * have counted it down to zero.
 *
 * Only the table of verbs; counter.c does the rest. */
#include "common/counter.h"

#include <string.h>

static int open_latch(struct counter *c) {
    return hf_latch_new(c->client, c->name, &c->latch);
}

static void close_latch(struct counter *c) {
    hf_latch_free(c->latch);
}

static int set(struct counter *c) {
    return hf_latch_try_set_start(c->latch, c->number, counter_done, c, &c->op);
}

static int down(struct counter *c) {
    return hf_latch_count_down_start(c->latch, counter_done, c, &c->op);
}

static int wait_for(struct counter *c) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = c->wait_ms;
    return hf_latch_await_start(c->latch, &options, counter_done, c, &c->op);
}

static int count(struct counter *c) {
    return hf_latch_count_start(c->latch, counter_done, c, &c->op);
}

static int delete (struct counter *c) {
    return hf_latch_delete_start(c->latch, counter_done, c, &c->op);
}

static const struct counter_verb verbs[] = {
    {.name = "set",
     .doing = "set",
     .number = true,
     .lowest = 1,
     .start = set,
     .answer = "set",
     .no = "is closed already"},
    {.name = "down", .doing = "count down", .start = down},
    {.name = "wait", .doing = "wait for", .waits = true, .start = wait_for},
    {.name = "count", .doing = "count", .start = count, .answer = "count"},
    {.name = "delete",
     .doing = "delete",
     .start = delete,
     .answer = "deleted",
     .no = "does not exist"},
    {.name = NULL},
};

static const struct counter_kind kind = {
    .command = &command_latch,
    .noun = "latch",
    .verbs = verbs,
    .busy = "the latch is closed",
    .timed_out = "the wait ended before the latch opened",
    .open = open_latch,
    .close = close_latch,
};

static int run(struct connection *connection, int argc, char **argv) {
    return counter_run(&kind, connection, argc, argv);
}

const struct command command_latch = {
    .name = "latch",
    .options = counter_options,
    .summary = "use a latch: wait until others have counted it down",
    .usage =
        "NAME VERB [N] [OPTIONS]\n"
        "'set' closes a latch with a count; it opens when it is counted down to zero. A latch that\n"
        "does not exist is open.\n\n"
        "  set N   close it with the count N, if it is open\n"
        "  down    count down by one\n"
        "  wait    wait until it is open\n"
        "  count   print the remaining count; 0: open\n"
        "  delete  open it at once\n\n"
        "  -n, --nonblock, --nb        'wait' does not wait\n"
        "  -w, --wait DUR              'wait' waits at most this long (default: for ever)\n"
        "  -E, --conflict-exit-code N  exit status if it did not open in time (75)\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: 0 done; 75 still closed; 1 'set': closed already, 'delete': there was none.\n",
    .run = run,
};
