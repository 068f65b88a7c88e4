/*
 * In the place of serve_*.c when libmicrohttpd is missing: `holdfast serve` says that it was left out.
 */
#include "serve.h"

int serve_run(struct connection *connection, const struct serve_settings *settings) {
    (void)connection;
    (void)settings;
    say(LEVEL_ERROR,
        "'serve' was left out when this holdfast was built: libmicrohttpd was missing");
    return STATUS_UNAVAILABLE;
}
