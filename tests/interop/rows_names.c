/*
 * Names between C and Java, for the kinds that make more keys and channels than one from them:
 * braces of every sort, which the two sides have to treat alike. And names that are something else
 * already.
 *
 * A name works if one side holds, the other waits, and is woken by a message: then keys and
 * channels are the same. Nothing may be left afterwards.
 */
#include "actors.h"
#include "interop.h"

#include <string.h>

/* What is done, and what has to be answered; in both directions. */
static const struct {
    const char *kind;
    const char *steps[9][2];
} uses[] = {
    {"fair",
     {{"lock A", "held"},
      {"wait B", "ok"},
      {"unlock A", "ok"},
      {"woken B", "held"},
      {"unlock B", "ok"}}},
    {"readwrite",
     {{"lock A.read", "held"},
      {"wait B.write", "ok"},
      {"unlock A.read", "ok"},
      {"woken B.write", "held"},
      {"lock B.read", "held"},
      {"unlock B.write", "ok"},
      {"try A.read", "held"},
      {"unlock B.read", "ok"},
      {"unlock A.read", "ok"}}},
    {"semaphore",
     {{"setPermits A permits=0", "true"},
      {"wait B", "ok"},
      {"release A", "ok"},
      {"woken B", "held"},
      {"delete B", "true"}}},
    {"permits",
     {{"trySetPermits A permits=1", "true"},
      {"acquire A lease=60000", "held"},
      {"wait B", "ok"},
      {"tryRelease A P1", "true"},
      {"woken B", "held"},
      {"acquired A", "1"},
      {"tryRelease B P2", "true"},
      {"delete B", "true"}}},
    {"latch",
     {{"setCount A count=1", "true"},
      {"wait B", "ok"},
      {"countDown A", "ok"},
      {"woken B", "held"}}},
};

static const char *const names[] = {
    "with space", "{tag}rest", "a{b}c", "open{", "close}", "a{}b", "{a}{b}",
};

static void use_name(const char *sides, size_t use, const char *name) {
    struct actors *actors = actors_new(sides, uses[use].kind, name);
    for (size_t i = 0; i < 9 && uses[use].steps[i][0] != NULL; i++) {
        const char *answer = act(actors, uses[use].steps[i][0]);
        if (strcmp(answer, uses[use].steps[i][1]) != 0)
            fail_msg("%s of %s by %s: %s: %s", uses[use].kind, name, sides, uses[use].steps[i][0],
                     answer);
    }
    assert_server_empty();
    actors_free(actors);
}

void others_every_sort_of_name(void **state) {
    (void)state;
    for (size_t use = 0; use < sizeof uses / sizeof *uses; use++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            use_name("JC", use, names[i]);
            use_name("CJ", use, names[i]);
        }
    }
}

/* ---- One name, two kinds --------------------------------------------------------------------- */

#define NAME "kinds"

/* Java has made something of that name; ours of another kind says so and changes nothing. */
static const struct {
    const char *java_kind, *java_command;
    const char *refused[7];
    const char *java_then; /* may be NULL */
} clashes[] = {
    {"plain", "lock H", {"read", "write", "semaphore", "permits", "latch"}, NULL},
    {"fair", "lock H", {"read", "write", "semaphore", "permits", "latch"}, NULL},
    {"read",
     "lock H",
     {"plain", "nonreentrant", "spin", "fenced", "fair", "nonreentrantfair", "semaphore"},
     NULL},
    {"write", "lock H", {"plain", "fair", "permits", "latch"}, NULL},
    {"semaphore", "setPermits H permits=1", {"plain", "fair", "read", "write"}, NULL},
    {"permits", "setPermits H permits=1", {"plain", "fair", "read", "write"}, NULL},
    {"permits", "setPermits H permits=2", {"plain", "semaphore"}, "try H lease=60000"},
    {"latch", "setCount H count=1", {"plain", "fair", "read", "write"}, NULL},
};

/* What asks for something, by kind. */
static const char *attempt_of(const char *kind) {
    return strcmp(kind, "latch") == 0 ? "await A wait=0" : "try A";
}

static void assert_refused(const char *kind) {
    bool side = strcmp(kind, "read") == 0 || strcmp(kind, "write") == 0;
    struct actors *actors = actors_new("CC", side ? "readwrite" : kind, NAME);
    char command[32];
    strcpy(command, side ? "try A." : attempt_of(kind));
    if (side)
        strcat(command, kind);
    const char *answer = act(actors, command);
    if (strcmp(answer, "HF_EWRONGTYPE") != 0)
        fail_msg("%s: %s", kind, answer);
    actors_free(actors);
}

void others_refuse_objects_of_another_kind_by_java(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof clashes / sizeof *clashes; i++) {
        int thread = java_thread();
        java_open("j1", clashes[i].java_kind, NAME, "H");
        const char *made = java_call(suite.java, "%s thread=%d", clashes[i].java_command, thread);
        assert_memory_equal(made, "ok", 2);
        if (clashes[i].java_then != NULL)
            made = java_call(suite.java, "%s thread=%d", clashes[i].java_then, thread);
        assert_memory_equal(made, "ok", 2);
        char *before = state_dump(suite.server, NULL, 0);
        for (size_t j = 0; j < 7 && clashes[i].refused[j] != NULL; j++)
            assert_refused(clashes[i].refused[j]);
        char *after = state_dump(suite.server, NULL, 0);
        assert_string_equal(before, after);
        free(before);
        free(after);
        cmd_ok(suite.server, "FLUSHALL");
    }
}

/* ---- Who is on it ---------------------------------------------------------------------------- */

static hf_lock_info *inspect(any_kind kind) {
    hf_client *client = c_client(0);
    hf_lock *lock;
    hf_lock_info *info;
    assert_hf(HF_OK, new_lock(client, kind, NAME, strlen(NAME), &lock));
    assert_hf(HF_OK, hf_lock_inspect(lock, &info));
    hf_lock_free(lock);
    hf_close(client);
    return info;
}

static bool is_of(const hf_holder *holder, const struct alias *alias) {
    return strncmp(holder->owner, alias->text, strlen(alias->text)) == 0;
}

void others_inspect_names_both_sides(void **state) {
    (void)state;
    size_t count;
    struct actors *actors = actors_new("JC", "readwrite", NAME);
    const struct alias *aliases = actors_aliases(actors, &count);
    act(actors, "lock A.read");
    act(actors, "lock A.read");
    assert_string_equal(act(actors, "lock B.read"), "held");
    hf_lock_info *info = inspect(HF_READ);
    assert_int_equal(info->kind, HF_FOUND_READ);
    assert_int_equal(info->holders_len, 2);
    size_t java = is_of(info->holders[0], &aliases[0]) ? 0 : 1;
    assert_true(is_of(info->holders[java], &aliases[0]));
    assert_int_equal(info->holders[java]->count, 2);
    assert_true(is_of(info->holders[1 - java], &aliases[1]));
    assert_int_equal(info->holders[1 - java]->count, 1);
    hf_lock_info_free(info);
    act(actors, "unlock B.read");
    act(actors, "unlock A.read");
    assert_string_equal(act(actors, "unlock A.read"), "ok");
    actors_free(actors);

    actors = actors_new("CJ", "fair", NAME);
    aliases = actors_aliases(actors, &count);
    assert_string_equal(act(actors, "lock A"), "held");
    act(actors, "wait B");
    info = inspect(HF_FAIR);
    assert_int_equal(info->kind, HF_FOUND_FAIR);
    assert_int_equal(info->holders_len, 1);
    assert_true(is_of(info->holders[0], &aliases[0]));
    assert_int_equal(info->waiters_len, 1);
    assert_true(is_of(info->waiters[0], &aliases[1]));
    hf_lock_info_free(info);
    act(actors, "unlock A");
    assert_string_equal(act(actors, "woken B"), "held");
    assert_string_equal(act(actors, "unlock B"), "ok");
    assert_server_empty();
    actors_free(actors);
}
