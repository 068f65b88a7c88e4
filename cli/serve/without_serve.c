/* Replaces the other files of this directory if libmicrohttpd is missing: `holdfast serve` says
 * that it was left out. */
#include "serve/serve.h"

int serve_run(struct connection *connection, const struct serve_settings *settings) {
    (void)connection;
    (void)settings;
    say(LEVEL_ERROR, "this holdfast was built without 'serve', since libmicrohttpd was missing");
    return STATUS_UNAVAILABLE;
}
