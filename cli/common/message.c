/* The tool's output: messages on stderr, JSON data on stdout, and sentences for library errors
 * (their exit statuses: exit_codes.c).
 *
 * Called from any thread, including the library's (the log hook), but never between fork and exec.
 * Verbosity is set once, before the first thread or process starts, and only read later. A message
 * is one write(2), so lines of several processes do not mix. */
#include "cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    int verbosity;
    bool json;
    char server[256]; /* "": not known */
    char *lock;       /* NULL: not known */
} how;

void message_setup(int verbosity, bool json) {
    how.verbosity = verbosity;
    how.json = json;
}

void message_server(const char *shown) {
    snprintf(how.server, sizeof how.server, "%s", shown != NULL ? shown : "");
}

void message_lock(const char *name) {
    free(how.lock);
    how.lock = name != NULL ? strdup(name) : NULL;
}

bool message_wanted(enum level level) {
    return level == LEVEL_ERROR || (int)level <= how.verbosity + 1;
}

static void write_all(const char *text, size_t len) {
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* The reader is gone. */
        text += n;
        len -= (size_t)n;
    }
}

static void add_subject(json_t *object, const struct subject *subject) {
    const char *server = subject->server != NULL ? subject->server : how.server;
    const char *lock = subject->lock != NULL ? subject->lock : how.lock;
    if (subject->code != HF_OK)
        json_object_set_new(object, "code", json_string(hf_error_name(subject->code)));
    if (subject->hint != NULL)
        json_object_set_new(object, "hint", json_text(subject->hint));
    if (lock != NULL)
        json_object_set_new(object, "lock", json_text(lock));
    if (*server != '\0')
        json_object_set_new(object, "server", json_text(server));
}

static void say_json(enum level level, const struct subject *subject, const char *text) {
    static const char *const names[] = {"error", "notice", "info", "debug"};
    json_t *object = json_object();
    json_object_set_new(object, "program", json_string("holdfast"));
    json_object_set_new(object, "level", json_string(names[level]));
    json_object_set_new(object, "message", json_text(text));
    add_subject(object, subject);
    char *line = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (line == NULL)
        return;

    char *text_line = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text_line, &len);
    if (out != NULL) {
        text_write_json(out, line);
        if (fclose(out) == 0)
            write_all(text_line, len);
    }
    free(text_line);
    free(line);
}

static void say_text(const char *text) {
    char line[1024];
    int n = snprintf(line, sizeof line - 1, "holdfast: %s", text);
    if (n < 0)
        return;
    text_disarm(line);
    size_t len = strlen(line);
    line[len] = '\n';
    write_all(line, len + 1);
}

static void say_args(enum level level, const struct subject *subject, const char *format,
                     va_list args) {
    char text[1024 - sizeof "holdfast: "];
    if (!message_wanted(level) || vsnprintf(text, sizeof text, format, args) < 0)
        return;
    if (how.json) {
        say_json(level, subject, text);
        return;
    }
    say_text(text);
    if (subject->hint != NULL)
        say_text(subject->hint);
}

void say(enum level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_args(level, &(struct subject){0}, format, args);
    va_end(args);
}

void say_of(enum level level, const struct subject *subject, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_args(level, subject, format, args);
    va_end(args);
}

static int usage_error_args(int code, const char *subcommand, const char *format, va_list args) {
    char hint[64];
    bool known = subcommand != NULL;
    snprintf(hint, sizeof hint, "see 'holdfast help%s%s'", known ? " " : "",
             known ? subcommand : "");
    say_args(LEVEL_ERROR, &(struct subject){.code = code, .hint = hint}, format, args);
    return STATUS_USAGE;
}

int usage_error(const char *subcommand, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = usage_error_args(HF_EINVAL, subcommand, format, args);
    va_end(args);
    return status;
}

int usage_error_of(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = usage_error_args(code, NULL, format, args);
    va_end(args);
    return status;
}

/* The option that helps with a certificate error; NULL: none. The words are OpenSSL's; a server's
 * TLS alert says nothing else. */
static const char *advice_for(const char *text) {
    static const struct {
        const char *words, *advice;
    } all[] = {
        {"certificate required", "the server requires a client certificate: give --cert and --key"},
        {"self-signed certificate", "to trust its CA, give it with --cacert"},
        {"self signed certificate", "to trust its CA, give it with --cacert"},
        {"unable to get local issuer", "to trust its CA, give it with --cacert"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strstr(text, all[i].words) != NULL)
            return all[i].advice;
    return NULL;
}

int library_error(int code, const hf_error *error, const char *doing, const char *name) {
    char buffer[SHOWN_NAME_SIZE];
    const char *quote = name != NULL ? " '" : "";
    const char *shown = name != NULL ? shown_name(name, buffer) : "";
    const char *end = name != NULL ? "'" : "";
    /* The script's text for a wrong type shows only internals. */
    bool detailed = error != NULL && error->code == code &&
                    (code != HF_EWRONGTYPE || message_wanted(LEVEL_INFO));
    const char *node = detailed ? error->node : "";
    const char *text = detailed && strcmp(error->text, hf_strerror(code)) != 0 ? error->text : "";

    warning_finish(error != NULL ? error->text : NULL);
    const struct subject subject = {.code = code,
                                    .lock = name,
                                    .server = *node != '\0' ? node : NULL,
                                    .hint = code == HF_ETLS ? advice_for(text) : NULL};
    say_of(LEVEL_ERROR, &subject, "cannot %s%s%s%s: %s%s%s%s%s%s", doing, quote, shown, end,
           hf_strerror(code), *node || *text ? " (" : "", node, *node && *text ? ": " : "", text,
           *node || *text ? ")" : "");
    return status_of_error(code);
}

json_t *json_text(const char *text) {
    return json_bytes(text, strlen(text));
}

json_t *json_bytes(const char *text, size_t len) {
    json_t *string = json_stringn(text, len);
    if (string != NULL)
        return string;

    /* Not UTF-8: keep ASCII, and replace each other byte by U+FFFD. */
    char *safe = malloc(len * 3 + 1);
    if (safe == NULL)
        return NULL;
    char *out = safe;
    for (const char *end = text + len; text < end; text++) {
        if ((unsigned char)*text < 0x80) {
            *out++ = *text;
        } else {
            memcpy(out, "\xef\xbf\xbd", 3);
            out += 3;
        }
    }
    string = json_stringn(safe, (size_t)(out - safe));
    free(safe);
    return string;
}

int finish_output(void) {
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return STATUS_OK;
    /* A write that failed earlier has left no errno. */
    say(LEVEL_ERROR, "cannot write to the standard output%s%s", errno != 0 ? ": " : "",
        errno != 0 ? strerror(errno) : "");
    return STATUS_OS;
}

int print_json(json_t *object) {
    char *line = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (line == NULL) {
        say(LEVEL_ERROR, "out of memory");
        return STATUS_OS;
    }
    text_write_json(stdout, line);
    free(line);
    return finish_output();
}
