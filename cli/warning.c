/*
 * The library's warnings, for the user: a server that cannot be reached or refuses, that may evict
 * locks, that anybody may pose as.
 *
 * A command that fails says why itself, and one that overcomes a trouble in a moment has nothing to
 * tell. So a warning of the first moments is kept, until the command has gone on for a while or has
 * ended; at its end it is said unless the error has said it. Later ones are said at once. The same
 * warning is not repeated for a minute.
 *
 * warning_take() is called on any thread of the library, even on those that renew: it does not wait
 * for a standard error that takes no more. The others are called by loops on the main thread.
 */
#include "cli.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define FIRST_MOMENTS_MS 500
#define AGAIN_MS 60000
#define KEPT 8

static struct {
    pthread_mutex_t mutex;
    int64_t began_ms;
    size_t len;
    struct warning {
        char text[512];
        int64_t said_ms; /* 0: it is kept */
    } all[KEPT];
} warnings = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void warning_begin(void) {
    warnings.began_ms = now_ms();
}

static bool is_stderr_ready(void) {
    struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&error, 1, 0) == 1 && (error.revents & POLLOUT) != 0;
}

static void say_warning(struct warning *warning) {
    warning->said_ms = now_ms();
    say(LEVEL_NOTICE, "%s", warning->text);
}

/* The one with this text, or a new one; NULL: there are too many. */
static struct warning *find_locked(const char *text) {
    for (size_t i = 0; i < warnings.len; i++) {
        if (strcmp(warnings.all[i].text, text) == 0)
            return &warnings.all[i];
    }
    if (warnings.len == KEPT)
        return NULL;
    struct warning *warning = &warnings.all[warnings.len++];
    snprintf(warning->text, sizeof warning->text, "%s", text);
    warning->said_ms = 0;
    return warning;
}

void warning_take(const char *text) {
    int64_t now = now_ms();
    if (pthread_mutex_trylock(&warnings.mutex) != 0)
        return; /* Others are being said, and that may take its time. */
    struct warning *warning = find_locked(text);
    bool due = warning != NULL && now - warnings.began_ms >= FIRST_MOMENTS_MS &&
               (warning->said_ms == 0 || now - warning->said_ms >= AGAIN_MS);
    if (due && is_stderr_ready())
        say_warning(warning);
    pthread_mutex_unlock(&warnings.mutex);
}

int warning_look(int limit_ms) {
    int64_t left_ms = warnings.began_ms + FIRST_MOMENTS_MS - now_ms();
    if (left_ms > 0)
        return limit_ms < 0 || left_ms < limit_ms ? (int)left_ms : limit_ms;
    warning_finish(NULL);
    return limit_ms;
}

void warning_finish(const char *error_text) {
    pthread_mutex_lock(&warnings.mutex);
    for (size_t i = 0; i < warnings.len; i++) {
        struct warning *warning = &warnings.all[i];
        bool told =
            error_text != NULL && *error_text != '\0' && strstr(warning->text, error_text) != NULL;
        if (warning->said_ms == 0 && !told)
            say_warning(warning);
        warning->said_ms = warning->said_ms == 0 ? now_ms() : warning->said_ms;
    }
    pthread_mutex_unlock(&warnings.mutex);
}
