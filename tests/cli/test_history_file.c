/*
 * The history of locks (cli/history): lines of any bytes, the limits of what is in memory, and a file that cannot be
 * written. tests/cli/history.sh has it in a whole `serve`.
 */
#include "history/history.h"
#include "support/case.h"
#include "support/wait.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define AT_MS 1795062652617

static struct history_event named(const char *word, const char *name, size_t len) {
    return (struct history_event){.at_ms = AT_MS,
                                  .within_ms = -1,
                                  .event = word,
                                  .name = name,
                                  .name_len = len,
                                  .for_ms = -1};
}

static void names_keep_their_bytes(void **state) {
    static const struct {
        const char *name;
        size_t len;
    } rows[] = {
        {"plain", 5},   {"", 0}, {"a\0b", 3}, {"\xff\xfe\x80", 3}, {"line\nbreak\x1b[31m\x7f", 16},
        {"\xc2\x9b", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct history_event event = named("acquired", rows[i].name, rows[i].len);
        struct history_line read;
        event.owner = "x\xff:1";
        own_text *line = history_event_line(&event);
        assert_non_null(line);
        for (const char *c = line; *c != '\0'; c++)
            assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
        assert_null(strstr(line, "\xc2\x9b")); /* a control character of terminals */
        assert_true(history_line_read(line, strlen(line), &read));
        assert_int_equal(read.event.name_len, rows[i].len);
        assert_memory_equal(read.event.name, rows[i].name, rows[i].len);
        assert_int_equal(read.event.at_ms, AT_MS);
        assert_string_equal(read.event.owner, "x\xef\xbf\xbd:1");
        assert_true(history_event_is_about(&read.event, rows[i].name, rows[i].len));
        assert_false(history_event_is_about(&read.event, "another", 7));
        history_line_free(&read);
    }
}

static void long_names_are_cut(void **state) {
    static char name[100000];
    (void)state;
    memset(name, 0xff, sizeof name);
    struct history_event event = named("acquired", name, sizeof name);
    struct history_line read;
    own_text *line = history_event_line(&event);
    assert_non_null(line);
    assert_true(strlen(line) < HISTORY_LINE_MAX);
    assert_true(history_line_read(line, strlen(line), &read));
    assert_int_equal(read.event.name_len, HISTORY_NAME_MAX);
    assert_true(history_event_is_about(&read.event, name, sizeof name));
    history_line_free(&read);
}

static void what_is_no_event_is_refused(void **state) {
    static const char *const lines[] = {
        "",
        "{",
        "[]",
        "null",
        "7",
        "{}",
        "{\"event\":\"lost\"}",
        "{\"time\":\"2026-11-19T04:30:15.929Z\"}",
        "{\"time\":7,\"event\":\"lost\"}",
        "{\"time\":\"yesterday\",\"event\":\"lost\"}",
        "{\"time\":\"2026-11-19T04:30:15Z\",\"event\":\"lost\"}",
        "{\"time\":\"2026-11-19T04:30:15.929Z\",\"event\":\"\"}",
        "{\"time\":\"2026-11-19T04:30:15.929Z\",\"event\":\"lo st\"}",
        "{\"time\":\"2026-11-19T04:30:15.929Z\",\"event\":\"lost\"} more",
        "{\"time\":\"2026-11-19T04:30:15.929Z\",\"event\":\"lost\"}{}",
        "{\"time\":\"1926-11-19T04:30:15.929Z\",\"event\":\"lost\"}"};
    struct history_line read;
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_false(history_line_read(lines[i], strlen(lines[i]), &read));
}

/* Fields of other types, and what hex is not, are as if they were not there. */
static void odd_fields_are_ignored(void **state) {
    static const char *const fields[] = {"\"name\":[]",
                                         "\"name\":\"n\",\"name_hex\":\"0\"",
                                         "\"name\":\"n\",\"name_hex\":\"zz\"",
                                         "\"for_ms\":-7",
                                         "\"for_ms\":\"x\"",
                                         "\"from\":7",
                                         "\"from\":{\"owner\":{}}",
                                         "\"count\":1e300",
                                         "\"heard\":\"yes\"",
                                         "\"name_hex\":\"00\"",
                                         "\"owner\":null,\"who\":false,\"text\":{},\"kind\":[1]",
                                         "\"within_ms\":-9223372036854775808"};
    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char line[256];
        struct history_line read;
        snprintf(line, sizeof line, "{\"time\":\"2026-11-19T04:30:15.929Z\",\"event\":\"lost\",%s}",
                 fields[i]);
        assert_true(history_line_read(line, strlen(line), &read));
        assert_string_equal(read.event.event, "lost");
        assert_int_equal(read.event.for_ms, -1);
        assert_int_equal(read.event.within_ms, -1);
        assert_int_equal(read.event.count, 0);
        assert_null(read.event.owner);
        assert_null(read.event.from_owner);
        assert_false(read.event.heard);
        assert_true(read.event.name == NULL || strcmp(read.event.name, "n") == 0);
        history_line_free(&read);
    }
}

/* ---- In memory ---- */

static size_t count_of(const struct history *history, const struct history_query *query,
                       const char *part) {
    own_text *text = history_find(history, query);
    size_t count = 0;
    assert_non_null(text);
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

static void add(struct history *history, const char *word, const char *name, int64_t at_ms) {
    struct history_event event = named(word, name, name != NULL ? strlen(name) : 0);
    event.at_ms = at_ms;
    history_add(history, &event);
}

static void a_busy_lock_displaces_no_other(void **state) {
    const struct history_limits limits = {.events = 100, .bytes = 1 << 20, .events_of_lock = 10};
    const struct history_query all = {.limit = 1000},
                               rare = {.name = "rare", .name_len = 4, .limit = 1000},
                               busy = {.name = "busy", .name_len = 4, .limit = 1000};
    struct history *history = history_new(&limits, NULL, NULL);
    (void)state;
    assert_non_null(history);
    add(history, "started", NULL, AT_MS);
    add(history, "acquired", "rare", AT_MS);
    for (int i = 0; i < 1000; i++)
        add(history, "acquired", "busy", AT_MS + i);
    assert_int_equal(count_of(history, &all, "\"busy\""), 10);
    assert_int_equal(count_of(history, &rare, "\"rare\""), 1);
    assert_int_equal(count_of(history, &rare, "started"), 1); /* of all locks */
    assert_int_equal(count_of(history, &rare, "\"time\""), 2);
    assert_int_equal(count_of(history, &busy, "\"busy\""), 10);
    assert_int_equal(history_total(history), 1002);
    history_free(history);
}

static void all_of_it_is_bounded(void **state) {
    const struct history_limits few = {.events = 50, .bytes = 1 << 20, .events_of_lock = 10},
                                small = {.events = 1000, .bytes = 5000, .events_of_lock = 10};
    const struct history_query all = {.limit = 10000}, latest = {.limit = 3};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct history *history = history_new(k == 0 ? &few : &small, NULL, NULL);
        assert_non_null(history);
        for (int i = 0; i < 500; i++) {
            own_text *name = text_of("lock-%d", i);
            add(history, "acquired", name, AT_MS + i);
        }
        size_t kept = count_of(history, &all, "\"time\"");
        assert_true(k == 0 ? kept == 50 : kept > 5 && kept < 50);
        assert_int_equal(count_of(history, &all, "\"lock-499\""), 1);
        assert_int_equal(count_of(history, &all, "\"lock-0\""), 0);
        assert_int_equal(count_of(history, &latest, "\"time\""), 3);
        assert_int_equal(count_of(history, &latest, "\"lock-497\""), 1);
        const struct history_query since = {.since_ms = AT_MS + 498, .limit = 100},
                                   after = {.after = 499, .limit = 100};
        assert_int_equal(count_of(history, &since, "\"time\""), 2);
        assert_int_equal(count_of(history, &after, "\"time\""), 1);
        history_free(history);
    }
}

/* ---- In a file ---- */

static char directory[] = "/tmp/holdfast-history.XXXXXX";

static int make_directory(void **state) {
    (void)state;
    message_setup(-1, false);
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state) {
    char path[256];
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/file%s", directory, i == 0 ? "" : ".1");
        unlink(path);
    }
    return rmdir(directory);
}

struct seen {
    int events, missed;
    int64_t count;
};

static bool see(void *user, const struct history_event *event) {
    struct seen *seen = user;
    if (strcmp(event->event, "missed") == 0) {
        seen->missed++;
        seen->count += event->count;
    } else {
        seen->events++;
    }
    return true;
}

/* The limit of the process stands for a disk that is full: it cuts the line that does not fit. */
static void what_cannot_be_written_is_counted(void **state) {
    char path[256];
    struct history_file *file = NULL;
    struct seen seen = {0};
    struct stat about;
    struct rlimit before, full = {.rlim_cur = 1000, .rlim_max = 0};
    struct history_event event = named("acquired", "name", 4);
    own_text *line = history_event_line(&event);
    (void)state;
    snprintf(path, sizeof path, "%s/file", directory);
    assert_int_equal(history_file_open(path, 1 << 20, &file), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    int written = (int)(1000 / (strlen(line) + 1));
    for (int i = 0; i < written + 5; i++)
        history_file_append(file, line);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, 1000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    history_file_append(file, line);
    history_file_append(file, line);
    assert_int_equal(history_file_read(path, see, &seen), 0);
    assert_int_equal(seen.events, written + 2);
    assert_int_equal(seen.missed, 1);
    assert_int_equal(seen.count, 5);
    history_file_close(file);
}

static void it_is_read_as_it_was_written(void **state) {
    char path[256], older[260];
    struct history_file *file = NULL;
    struct history_event event = named("acquired", "name", 4);
    own_text *line = history_event_line(&event);
    (void)state;
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(older, sizeof older, "%s.1", path);
    unlink(path);
    assert_int_equal(history_file_read(path, see, &(struct seen){0}), ENOENT);
    assert_int_equal(history_file_open(path, 4096, &file), 0);
    for (int i = 0; i < 1000; i++) {
        struct stat about = {0};
        history_file_append(file, line);
        assert_int_equal(stat(path, &about), 0);
        assert_true(about.st_size <= 4096);
        assert_int_equal(about.st_mode & 0777, 0600);
    }
    struct seen seen = {0};
    assert_int_equal(history_file_read(path, see, &seen), 0);
    assert_true(seen.events >= (int)(4096 / (strlen(line) + 1)));
    assert_int_equal(unlink(path), 0); /* as between the two steps of a rotation */
    assert_int_equal(history_file_read(path, see, &seen), 0);
    history_file_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_keep_their_bytes),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(what_is_no_event_is_refused),
        cmocka_unit_test(odd_fields_are_ignored),
        cmocka_unit_test(a_busy_lock_displaces_no_other),
        cmocka_unit_test(all_of_it_is_bounded),
        cmocka_unit_test(what_cannot_be_written_is_counted),
        cmocka_unit_test(it_is_read_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
