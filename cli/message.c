/*
 * What the tool says: its own messages on stderr, its data as JSON on stdout, and the translation
 * of the library's errors into sentences and exit statuses.
 *
 * Called from everywhere in the tool, also from the library's threads (the log hook), but never
 * between fork and exec. The verbosity is set once, before the first thread or process is started,
 * and only read afterwards. A message is one write(2), so that lines of several processes do not
 * mix.
 */
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
} how;

void message_setup(int verbosity, bool json) {
    how.verbosity = verbosity;
    how.json = json;
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
            return; /* Nobody is left to hear it. */
        text += n;
        len -= (size_t)n;
    }
}

static void say_json(enum level level, const char *text) {
    static const char *const names[] = {"error", "notice", "info", "debug"};
    json_t *object = json_object();
    json_object_set_new(object, "program", json_string("holdfast"));
    json_object_set_new(object, "level", json_string(names[level]));
    json_object_set_new(object, "message", json_text(text));
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

void say(enum level level, const char *format, ...) {
    if (!message_wanted(level))
        return;
    char line[1024] = "holdfast: ";
    size_t prefix = strlen(line);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + prefix, sizeof line - prefix - 1, format, args);
    va_end(args);
    if (n < 0)
        return;

    if (how.json) {
        say_json(level, line + prefix);
        return;
    }
    text_disarm(line + prefix);
    size_t len = strlen(line);
    line[len] = '\n';
    write_all(line, len + 1);
}

int usage_error(const char *subcommand, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say(LEVEL_ERROR, "%s", text);
    if (subcommand == NULL)
        say(LEVEL_ERROR, "see 'holdfast help'");
    else
        say(LEVEL_ERROR, "see 'holdfast help %s'", subcommand);
    return STATUS_USAGE;
}

static enum status status_of(int code) {
    switch (code) {
    case HF_OK:
        return STATUS_OK;
    case HF_EBUSY:
    case HF_ETIMEDOUT:
        return STATUS_BUSY;
    case HF_ELOST:
        return STATUS_LOST;
    case HF_EWRONGTYPE:
        return STATUS_DATA;
    case HF_EPERM:
        return STATUS_DENIED;
    case HF_ENOTOWNER:
        return STATUS_NO;
    case HF_EINVAL:
        return STATUS_USAGE;
    case HF_ENOMEM:
    case HF_ESYS:
        return STATUS_OS;
    case HF_EUNREACH:
    case HF_ETLS:
    case HF_EUNKNOWN:
    case HF_ENOQUORUM:
    case HF_ENOREPLICA:
    case HF_EREFUSED:
    case HF_EOOM:
    case HF_EPROTO:  /* Something else than Redis answers. */
    case HF_ENOTSUP: /* By a server that is too old; a url is looked at before. */
        return STATUS_UNAVAILABLE;
    default:
        return STATUS_INTERNAL;
    }
}

/* Which option helps, if a certificate was the reason. The words are OpenSSL's: all that a server's
 * alert says. */
static void give_advice(const char *text) {
    static const struct {
        const char *words, *advice;
    } all[] = {
        {"certificate required", "the server wants a client certificate: --cert and --key"},
        {"self-signed certificate", "to trust its CA, give that with --cacert"},
        {"self signed certificate", "to trust its CA, give that with --cacert"},
        {"unable to get local issuer", "to trust its CA, give that with --cacert"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strstr(text, all[i].words) != NULL) {
            say(LEVEL_ERROR, "%s", all[i].advice);
            return;
        }
    }
}

int library_error(int code, const hf_error *error, const char *doing, const char *name) {
    char buffer[SHOWN_NAME_SIZE];
    const char *quote = name != NULL ? " '" : "";
    const char *shown = name != NULL ? shown_name(name, buffer) : "";
    const char *end = name != NULL ? "'" : "";
    /* What a script says of a wrong type is of its innards. */
    bool detailed = error != NULL && error->code == code &&
                    (code != HF_EWRONGTYPE || message_wanted(LEVEL_INFO));
    const char *node = detailed ? error->node : "";
    const char *text = detailed && strcmp(error->text, hf_strerror(code)) != 0 ? error->text : "";

    warning_finish(error != NULL ? error->text : NULL);
    say(LEVEL_ERROR, "cannot %s%s%s%s: %s%s%s%s%s%s", doing, quote, shown, end, hf_strerror(code),
        *node || *text ? " (" : "", node, *node && *text ? ": " : "", text,
        *node || *text ? ")" : "");
    if (code == HF_ETLS)
        give_advice(text);
    return status_of(code);
}

json_t *json_text(const char *text) {
    return json_bytes(text, strlen(text));
}

json_t *json_bytes(const char *text, size_t len) {
    json_t *string = json_stringn(text, len);
    if (string != NULL)
        return string;

    /* Not UTF-8: keep what is ASCII, and show that there was something else. */
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

int print_json(json_t *object) {
    char *line = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (line != NULL)
        text_write_json(stdout, line);
    bool written = line != NULL && fflush(stdout) == 0 && ferror(stdout) == 0;
    free(line);
    if (written)
        return STATUS_OK;
    say(LEVEL_ERROR, "cannot write to the standard output: %s", strerror(errno));
    return STATUS_OS;
}
