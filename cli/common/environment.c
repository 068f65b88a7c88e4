/* Options from the environment, and a misconfigured environment. A lock on the wrong server looks
 * acquired but excludes no other client. So a variable that should name the server and does not is
 * an error, unless the command line names the server.
 *
 * Three cases: an empty variable, because its intended value was missing; a name or value that
 * shows that HOLDFAST_URL was meant; and HOLDFAST_PORT as Kubernetes sets it for a service called
 * `holdfast`, which is ignored because it is not the user's mistake.
 *
 * Called by connect.c before other threads or processes exist. */
#include "cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define EXAMPLE "redis://HOST:6379"

int environment_check_empty(const char *variable) {
    const char *value = getenv(variable);
    if (value == NULL || *value != '\0')
        return 0;
    return usage_error(NULL,
                       "%s is empty: set HOLDFAST_URL to the server's url, such as " EXAMPLE
                       ", or to local: for locks of this user on this machine only; or unset it",
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

/* Whether an unknown HOLDFAST_ variable contains a server's url. */
static bool names_server(const char *entry, size_t name_len) {
    static const char prefix[] = "HOLDFAST_", ours[] = "HOLDFAST_NAME=";
    static const char *const schemes[] = {"unix://", "local:"};
    if (strncmp(entry, prefix, strlen(prefix)) != 0 || strncmp(entry, ours, strlen(ours)) == 0)
        return false;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncasecmp(entry + name_len + 1, schemes[i], strlen(schemes[i])) == 0)
            return true;
    }
    return url_can_have_tls(entry + name_len + 1);
}

int environment_check_typos(bool other_url) {
    static const char meant[] = "HOLDFAST_URL";
    for (char **entry = environ; *entry != NULL; entry++) {
        size_t len = strcspn(*entry, "=");
        bool exact = len == strlen(meant) && strncmp(*entry, meant, len) == 0;
        if ((*entry)[len] == '\0' || exact)
            continue;
        if (one_typo_apart(*entry, len, meant) || (!other_url && names_server(*entry, len)))
            return usage_error(NULL,
                               "%.*s has no meaning; did you mean HOLDFAST_URL? If not, name the "
                               "server with -u",
                               (int)len, *entry);
    }
    return 0;
}

/* ---- Options ---- */

/* "HOLDFAST_" and the long name in capitals; false if it is too long. */
static bool variable_name(const char *name, char *buffer, size_t size) {
    int n = snprintf(buffer, size, "HOLDFAST_%s", name);
    if (n < 0 || (size_t)n >= size)
        return false;
    for (char *c = buffer; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return true;
}

int environment_options(const struct option_spec *specs, const char *subcommand, option_fn take,
                        void *user) {
    for (const struct option_spec *spec = specs; spec->kind != OPTION_END; spec++) {
        char variable[64];
        if (spec->name == NULL || spec->no_env ||
            !variable_name(spec->name, variable, sizeof variable))
            continue;
        char *value = getenv(variable);
        if (value == NULL || *value == '\0')
            continue;

        if (spec->kind != OPTION_VALUE) {
            bool on;
            if (!parse_switch(value, &on))
                return usage_error(subcommand, "%s must be yes or no", variable);
            if (!on)
                continue;
            value = NULL;
        }
        int status = take(user, spec->id, value, variable);
        if (status != 0)
            return status;
    }
    return 0;
}
