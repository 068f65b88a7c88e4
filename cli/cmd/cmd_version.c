/* holdfast version: the versions of the tool and of the library. No connection is needed, so it
 * works without any configuration. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>

static const struct option_spec specs[] = {COMMON_OPTIONS, {OPTION_END, 0, 0, NULL, false}};

static int take(void *user, int id, char *value, const char *shown) {
    (void)value;
    (void)shown;
    common_option(user, id);
    return 0;
}

static int run(struct connection *connection, int argc, char **argv) {
    int first = command_options(&command_version, specs, argc, argv, take, connection);
    if (first <= 0)
        return -first;
    if (first < argc)
        return usage_error("version", "unexpected argument '%s'", argv[first]);
    if (connection->json)
        return print_json(
            json_pack("{s:s, s:s}", "version", HF_VERSION_TEXT, "library", hf_version()));
    printf("holdfast %s (library %s)\n", HF_VERSION_TEXT, hf_version());
    return finish_output();
}

const struct command command_version = {
    .name = "version",
    .options = specs,
    .summary = "print the version",
    .usage = "[--json]\n"
             "Prints the versions of the tool and of its library.\n",
    .run = run,
};
