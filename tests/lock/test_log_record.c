/*
 * The log function that is called with a record (hf_options.log_record): what a message is about, in fields.
 */
#include "support/case.h"
#include "support/wait.h"
#include "support/world.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The first record with these words, copied. */
struct wanted {
    const char *words;
    atomic_int found, records, lines;
    pthread_mutex_t mtx;
    hf_log_level level;
    int code;
    char server[128], name[64];
    size_t name_len;
};

static void take_record(const hf_log_record *record, void *user) {
    struct wanted *wanted = user;
    pthread_mutex_lock(&wanted->mtx);
    atomic_fetch_add(&wanted->records, 1);
    if (strstr(record->message, wanted->words) != NULL && atomic_load(&wanted->found) == 0) {
        wanted->level = record->level;
        wanted->code = record->code;
        wanted->name_len = record->name_len;
        snprintf(wanted->server, sizeof wanted->server, "%s", record->server);
        assert(record->name_len <= sizeof wanted->name);
        memcpy(wanted->name, record->name, record->name_len);
        atomic_store(&wanted->found, 1);
    }
    pthread_mutex_unlock(&wanted->mtx);
}

static void take_line(hf_log_level level, const char *message, void *user) {
    struct wanted *wanted = user;
    (void)level;
    (void)message;
    atomic_fetch_add(&wanted->lines, 1);
}

static hf_options options_for(struct wanted *wanted, const char *words) {
    hf_options options = world_options();
    *wanted = (struct wanted){.words = words, .mtx = PTHREAD_MUTEX_INITIALIZER};
    options.log = take_line;
    options.log_record = take_record;
    options.log_user = wanted;
    return options;
}

static bool is_found(void *arg) {
    const struct wanted *wanted = arg;
    return atomic_load(&wanted->found) > 0;
}

static void assert_record(struct wanted *wanted, int code, const char *server, const char *name) {
    assert_true(wait_until(is_found, wanted, HANG_MS));
    pthread_mutex_lock(&wanted->mtx);
    assert_int_equal(wanted->level, HF_LOG_WARN);
    assert_int_equal(wanted->code, code);
    assert_string_equal(wanted->server, server);
    assert_int_equal(wanted->name_len, strlen(name));
    assert_memory_equal(wanted->name, name, wanted->name_len);
    pthread_mutex_unlock(&wanted->mtx);
    assert_int_equal(atomic_load(&wanted->lines), 0);
}

CASE(C397_an_unreachable_server) {
    struct wanted wanted;
    hf_client *client;
    hf_options options = options_for(&wanted, "cannot connect");
    options.connect_timeout_ms = 100;
    assert_int_equal(hf_open("redis://127.0.0.1:1", &options, &client), HF_OK);
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    assert_record(&wanted, HF_EUNREACH, "127.0.0.1:1", "");
    hf_close(client);
}

/* The name is the handle's: without the prefix, and with any bytes. */
CASE(C397_a_loss) {
    static const char name[] = "lost \0 name";
    struct wanted wanted;
    struct world w;
    hf_client *client;
    hf_lock *lock;
    hf_options options = options_for(&wanted, "the hold ended before it was released");
    options.name_prefix = "ours:";
    world_begin(&w, NULL);
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    assert_int_equal(hf_lock_new_bytes(client, name, sizeof name - 1, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    cmd_ok(w.server, "FLUSHDB");
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_true(wait_until(is_found, &wanted, HANG_MS));
    assert_int_equal(wanted.name_len, sizeof name - 1);
    assert_memory_equal(wanted.name, name, sizeof name - 1);
    assert_int_equal(wanted.code, HF_ELOST);
    hf_lock_free(lock);
    hf_close(client);
    world_end(&w);
}

CASE(C397_a_denied_channel) {
    struct wanted wanted;
    struct world w;
    hf_client *client;
    hf_lock *lock;
    hf_options options = options_for(&wanted, "may not publish on its channel");
    options.user = "mute";
    options.password = "";
    world_begin(&w, NULL);
    cmd_ok(w.server, "ACL SETUSER mute on nopass ~* +@all resetchannels");
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    assert_int_equal(hf_lock_new(client, "unheard", &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_record(&wanted, HF_EPERM, strchr(server_url(w.server), '/') + 2, "unheard");
    hf_lock_free(lock);
    hf_close(client);
    cmd_ok(w.server, "ACL DELUSER mute");
    world_end(&w);
}

/* A program that was compiled before there were records has no such field. */
CASE(C397_programs_without_records_get_lines) {
    struct wanted wanted;
    hf_client *client;
    hf_options options = options_for(&wanted, "cannot connect");
    options.connect_timeout_ms = 100;
    options.size = offsetof(hf_options, log_record);
    assert_int_equal(hf_open("redis://127.0.0.1:1", &options, &client), HF_OK);
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    hf_close(client);
    assert_int_not_equal(atomic_load(&wanted.lines), 0);
    assert_int_equal(atomic_load(&wanted.records), 0);
}

RUN_CASES(world_start_server, world_stop_server)
