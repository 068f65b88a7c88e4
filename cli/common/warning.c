/* Shows the library's warnings: a server is unreachable, refuses, may evict locks, or can be
 * impersonated.
 *
 * A failing command prints its own error, and a failure that passes at once needs no warning. So a
 * warning in the first FIRST_MOMENTS_MS is kept until that time is over or the command ends. If the
 * command gives up soon (-t), warnings are kept until just after that. At the end a warning is
 * printed unless the error contains it. Later warnings are printed at once. The same warning is not
 * repeated within a minute, and a client that closes after the error repeats nothing.
 *
 * warning_take() runs on any library thread, including those that renew, so it never waits for a
 * blocked stderr. The other functions are called by loops on the main thread. */
#include "cli.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_MOMENTS_MS 500
#define SOON_MS 3000 /* a user waits that long without a word */
#define AGAIN_MS 60000
#define KEPT 8

static struct {
    pthread_mutex_t mutex;
    int64_t kept_until_ms;
    char failure[512]; /* the text of the last error; a warning that contains it is not printed */
    size_t len;
    struct warning {
        char text[512];
        int code;
        char server[128]; /* "": none, or several */
        char *lock;       /* NULL: none, or several */
        int64_t said_ms;  /* 0: not printed yet */
    } all[KEPT];
} warnings = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void warning_begin(int64_t limit_ms) {
    bool soon = limit_ms > 0 && limit_ms <= SOON_MS;
    warnings.kept_until_ms = now_ms() + FIRST_MOMENTS_MS + (soon ? limit_ms : 0);
}

static bool is_stderr_ready(void) {
    struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&error, 1, 0) == 1 && (error.revents & POLLOUT) != 0;
}

static void say_warning(struct warning *warning) {
    warning->said_ms = now_ms();
    const struct subject subject = {.code = warning->code,
                                    .lock = warning->lock,
                                    .server = warning->server[0] != '\0' ? warning->server : NULL};
    say_of(LEVEL_NOTICE, &subject, "%s", warning->text);
}

/* A text that is about several locks or servers is about none of them. */
static void keep_common(struct warning *warning, const struct subject *subject) {
    const char *lock = subject->lock, *server = subject->server != NULL ? subject->server : "";
    if (warning->lock != NULL && (lock == NULL || strcmp(warning->lock, lock) != 0)) {
        free(warning->lock);
        warning->lock = NULL;
    }
    if (strcmp(warning->server, server) != 0)
        warning->server[0] = '\0';
}

/* The entry with this text, or a new one; NULL: the table is full. */
static struct warning *find_locked(const struct subject *subject, const char *text) {
    for (size_t i = 0; i < warnings.len; i++) {
        if (strcmp(warnings.all[i].text, text) == 0) {
            keep_common(&warnings.all[i], subject);
            return &warnings.all[i];
        }
    }
    if (warnings.len == KEPT)
        return NULL;
    struct warning *warning = &warnings.all[warnings.len++];
    snprintf(warning->text, sizeof warning->text, "%s", text);
    snprintf(warning->server, sizeof warning->server, "%s",
             subject->server != NULL ? subject->server : "");
    warning->code = subject->code;
    warning->lock = subject->lock != NULL ? strdup(subject->lock) : NULL;
    warning->said_ms = 0;
    return warning;
}

/* Whether the error of the command has said the same. */
static bool is_in_error_locked(const char *text) {
    return warnings.failure[0] != '\0' && strstr(text, warnings.failure) != NULL;
}

void warning_take(const struct subject *subject, const char *text) {
    int64_t now = now_ms();
    if (pthread_mutex_trylock(&warnings.mutex) != 0)
        return; /* Another thread is printing, which may take long. */
    struct warning *warning = is_in_error_locked(text) ? NULL : find_locked(subject, text);
    bool due = warning != NULL && now >= warnings.kept_until_ms &&
               (warning->said_ms == 0 || now - warning->said_ms >= AGAIN_MS);
    if (due && is_stderr_ready())
        say_warning(warning);
    pthread_mutex_unlock(&warnings.mutex);
}

int warning_print_due(int limit_ms) {
    int64_t left_ms = warnings.kept_until_ms - now_ms();
    if (left_ms > 0)
        return limit_ms < 0 || left_ms < limit_ms ? (int)left_ms : limit_ms;
    warning_finish(NULL);
    return limit_ms;
}

void warning_finish(const char *error_text) {
    pthread_mutex_lock(&warnings.mutex);
    if (error_text != NULL)
        snprintf(warnings.failure, sizeof warnings.failure, "%s", error_text);
    for (size_t i = 0; i < warnings.len; i++) {
        struct warning *warning = &warnings.all[i];
        if (warning->said_ms == 0 && !is_in_error_locked(warning->text))
            say_warning(warning);
        warning->said_ms = warning->said_ms == 0 ? now_ms() : warning->said_ms;
    }
    pthread_mutex_unlock(&warnings.mutex);
}
