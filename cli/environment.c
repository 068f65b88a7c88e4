/*
 * What the environment says by mistake. A lock on the wrong server looks like a lock and keeps
 * nobody out, so a variable that was meant to name the server and does not is an error, unless the
 * command line names it.
 *
 * Three mistakes are found: a variable that is empty, since whatever should have been in it was not
 * there; one whose name or value shows that HOLDFAST_URL was meant; and HOLDFAST_PORT as Kubernetes
 * sets it for a service that is called `holdfast`, which is nobody's mistake and passed over.
 *
 * Called by connect.c before there is any other thread or process.
 */
#include "cli.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define EXAMPLE "redis://HOST:6379"

int environment_check_empty(const char *variable) {
    const char *value = getenv(variable);
    if (value == NULL || *value != '\0')
        return 0;
    return usage_error(
        NULL,
        "%s is set, but empty: write the server's url into HOLDFAST_URL, such as " EXAMPLE
        ", or local: for locks of this machine only; or unset it",
        variable);
}

bool environment_is_service_link(const char *value) {
    static const char *const protocols[] = {"tcp://", "udp://", "sctp://"};
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++) {
        if (strncmp(value, protocols[i], strlen(protocols[i])) == 0)
            return true;
    }
    return false;
}

static bool same_letter(char a, char b) {
    return toupper((unsigned char)a) == toupper((unsigned char)b);
}

/* Whether one letter too many, too few or wrong, or two exchanged, make the difference; or none but
 * that of capitals. */
static bool one_slip_apart(const char *typed, size_t typed_len, const char *meant) {
    size_t meant_len = strlen(meant);
    while (typed_len > 0 && meant_len > 0 && same_letter(*typed, *meant)) {
        typed++, typed_len--;
        meant++, meant_len--;
    }
    while (typed_len > 0 && meant_len > 0 &&
           same_letter(typed[typed_len - 1], meant[meant_len - 1])) {
        typed_len--;
        meant_len--;
    }
    bool exchanged = typed_len == 2 && meant_len == 2 && same_letter(typed[0], meant[1]) &&
                     same_letter(typed[1], meant[0]);
    return (typed_len <= 1 && meant_len <= 1) || exchanged;
}

/* Whether a value is a url of ours, in a variable that is none of ours. */
static bool names_server(const char *entry, size_t name_len) {
    static const char prefix[] = "HOLDFAST_", ours[] = "HOLDFAST_NAME=";
    static const char *const schemes[] = {"redis://",   "rediss://", "valkey://",
                                          "valkeys://", "unix://",   "local:"};
    if (strncmp(entry, prefix, strlen(prefix)) != 0 || strncmp(entry, ours, strlen(ours)) == 0)
        return false;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncasecmp(entry + name_len + 1, schemes[i], strlen(schemes[i])) == 0)
            return true;
    }
    return false;
}

int environment_check_slips(bool other_url) {
    static const char meant[] = "HOLDFAST_URL";
    for (char **entry = environ; *entry != NULL; entry++) {
        size_t len = strcspn(*entry, "=");
        bool exact = len == strlen(meant) && strncmp(*entry, meant, len) == 0;
        if ((*entry)[len] == '\0' || exact)
            continue;
        if (one_slip_apart(*entry, len, meant) || (!other_url && names_server(*entry, len)))
            return usage_error(NULL,
                               "%.*s is set, which means nothing here: is it HOLDFAST_URL that is "
                               "meant? If not, name the server with -u",
                               (int)len, *entry);
    }
    return 0;
}
