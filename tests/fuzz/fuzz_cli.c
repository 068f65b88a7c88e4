/*
 * What the tool reads: durations, numbers, signals, options, the parts of an address, and in HTTP
 * who asks for what.
 *
 * Input: which of these, then a text.
 */
#include "fuzz.h"

#include "cli.h"
#include "fleet/fleet.h"
#ifdef FUZZ_SERVE
#include "serve/serve.h"
#endif

#include <string.h>

static const struct option_spec specs[] = {
    {OPTION_VALUE, 1, 'w', "wait", false}, {OPTION_FLAG, 2, 'n', "nonblock", false},
    {OPTION_FLAG, 3, 0, "write", false},   COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

static int take(void *user, int id, char *value, const char *shown) {
    int64_t ms;
    (void)shown;
    FUZZ_CHECK(id != 1 || value != NULL);
    if (id == 1)
        parse_duration(value, &ms);
    ++*(int *)user;
    return 0;
}

static void read_options(char *text) {
    char *argv[18] = {(char[]){"holdfast"}};
    int argc = 1, count = 0;
    for (char *rest, *word = strtok_r(text, "\n", &rest); word != NULL && argc < 16;
         word = strtok_r(NULL, "\n", &rest))
        argv[argc++] = word;
    FUZZ_CHECK(options_parse(specs, "run", argc, argv, take, &count) <= argc);
}

static void read_value(char *text) {
    int64_t ms = -1;
    long number;
    int small;
    bool flag;
    if (parse_duration(text, &ms))
        FUZZ_CHECK(ms >= 0);
    if (parse_number(text, 1, 65535, &number))
        FUZZ_CHECK(number >= 1 && number <= 65535);
    parse_acks(text, &small);
    parse_signal(text, &small);
    parse_switch(text, &flag);
}

static void show(char *text) {
    char shown[SHOWN_NAME_SIZE], *copy = strdup(text);
    int width;
    if (copy == NULL)
        abort();
    shown_name(text, shown);
    FUZZ_CHECK(strlen(shown) < SHOWN_NAME_SIZE);
    text_disarm(copy);
    FUZZ_CHECK(strlen(copy) <= strlen(text));
    for (const char *c = copy; *c != '\0'; c++)
        FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
    FUZZ_CHECK(text_fit(copy, 20, &width) <= strlen(copy) && width <= 20);
    free(copy);
}

static void read_address(char *text) {
    struct connection connection = {0};
    char *rest = strchr(text, '\n');
    if (rest != NULL) {
        *rest++ = '\0';
        connection.sentinel.value = rest;
    }
    connection.host.value = text;
    char *url = connection_url_of_parts(&connection);
    if (url != NULL) {
        url_has_tls(url);
        url_is_zk(url);
        url_is_cluster(url);
        url_can_have_tls(url);
        free(url_option(url, "master"));
        free(url_option(url, "db"));
    }
    free(url);
}

static void read_request(char *text) {
#ifdef FUZZ_SERVE
    static const struct listener listener = {.loopback = true, .host = "127.0.0.1"};
    static const struct serve_settings settings = {.host_names = {"locks.example"},
                                                   .host_names_len = 1};
    static const char token[] = "0123456789abcdef";
    size_t len = strlen(text);
    host_is_ours(&listener, &settings, text);
    origin_is_host(text, "127.0.0.1:7380");
    if (token_matches(token, text))
        FUZZ_CHECK(len > sizeof token && strcmp(text + len - strlen(token), token) == 0);
    long decoded = percent_decode(text);
    if (decoded >= 0)
        FUZZ_CHECK((size_t)decoded <= len && strlen(text) == (size_t)decoded);
#else
    (void)text;
#endif
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const readers[])(char *text) = {read_value, show, read_request, read_address,
                                                  read_options};
    if (size < 1)
        return 0;
    message_setup(-1, false);
    char *text = malloc(size);
    if (text == NULL)
        abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    readers[data[0] % (sizeof readers / sizeof readers[0])](text);
    free(text);
    return 0;
}
