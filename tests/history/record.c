/*
 * Writing histories, as record.h tells.
 *
 * Each line is one write() to a file that is open for appending: lines of several threads do not
 * mix, and what was written survives a SIGKILL. Nothing here uses cmocka: it runs in children.
 */
#include "record.h"

#include "support/wait.h"

#include <fcntl.h>
#include <holdfast/holdfast.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_LEN 4096

void record_open(struct record *record, const char *dir, const char *process) {
    own_text *path = text_of("%s/%s.log", dir, process);
    snprintf(record->process, sizeof record->process, "%s", process);
    atomic_init(&record->operations, 0);
    record->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (record->fd < 0)
        support_die("cannot write %s", path);
}

void record_close(struct record *record) {
    close(record->fd);
}

int64_t record_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct line {
    char text[LINE_MAX_LEN];
    size_t len;
};

static void add_list(struct line *line, const char *format, va_list list) {
    size_t room = sizeof line->text - line->len - 1;
    int len = vsnprintf(line->text + line->len, room, format, list);
    if (len < 0 || (size_t)len >= room)
        support_die("a line of a history is too long");
    line->len += (size_t)len;
}

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...) {
    va_list list;
    va_start(list, format);
    add_list(line, format, list);
    va_end(list);
}

static void put(struct record *record, struct line *line) {
    line->text[line->len++] = '\n';
    if (write(record->fd, line->text, line->len) != (ssize_t)line->len)
        support_die("a history cannot be written");
}

void record_line(struct record *record, const char *format, ...) {
    struct line line = {.len = 0};
    va_list list;
    va_start(list, format);
    add_list(&line, format, list);
    va_end(list);
    put(record, &line);
}

struct operation record_call(struct record *record, const struct subject *subject, const char *verb,
                             const char *format, ...) {
    struct operation operation = {.record = record};
    struct line line = {.len = 0};
    va_list list;
    snprintf(operation.id, sizeof operation.id, "%s.%ld", record->process,
             atomic_fetch_add(&record->operations, 1));
    add(&line, "call %s %lld %s %s %s %s ", operation.id, (long long)record_now_ns(), subject->name,
        subject->kind, subject->owner, verb);
    va_start(list, format);
    add_list(&line, format, list);
    va_end(list);
    put(record, &line);
    return operation;
}

void record_return(const struct operation *operation, int code, const char *format, ...) {
    long long now_ns = (long long)record_now_ns();
    struct line line = {.len = 0};
    va_list list;
    va_start(list, format);
    add(&line, "ret %s %lld %s ", operation->id, now_ns, hf_error_name(code));
    add_list(&line, format, list);
    va_end(list);
    put(operation->record, &line);
}

void record_sure(struct record *record, const char *hold, int64_t asked_ns, int64_t remaining_ms) {
    if (remaining_ms > 0)
        record_line(record, "sure %s %lld", hold,
                    (long long)asked_ns + (long long)remaining_ms * 1000000);
}
