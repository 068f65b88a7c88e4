/*
 * Error texts when no connection can be made: the server's own message if it sent one, and no wrong
 * guesses.
 */
#include "net/scene.h"
#include "support/case.h"

static hf_options short_options(void) {
    hf_options options = scene_options();
    options.connect_timeout_ms = 1500;
    return options;
}

static bool says(const char *words) {
    bool found = strstr(hf_last_error()->text, words) != NULL;
    if (!found)
        printf("not \"%s\" but: %s\n", words, hf_last_error()->text);
    return found;
}

/* It says so before it has read anything, and closes; with a password that looks like a refusal. */
CASE(maxclients_is_reported) {
    const char *const passwords[] = {NULL, "secret"};
    for (size_t i = 0; i < 2; i++) {
        const struct server_options server_options = {.tcp = true, .password = passwords[i]};
        own_server *server = server_start(&server_options);
        const char *urls[] = {server_url(server), server_tcp_url(server)};
        hf_options options = short_options();
        for (size_t u = 0; u < 2; u++) {
            cmd_ok(server, "CONFIG SET maxclients 1"); /* the test's own */
            own_client *client = scene_open(urls[u], &options);
            assert_int_equal(hf_ping(client), HF_EUNREACH);
            assert_true(says("max number of clients reached"));
            assert_int_not_equal(hf_last_error()->node[0], '\0');
            cmd_ok(server, "CONFIG SET maxclients 100");
            assert_int_equal(hf_ping(client), HF_OK); /* it was not for ever */
        }
    }
}

static void accepts_and_cuts(const char *url, bool may_want_tls) {
    hf_options options = short_options();
    own_client *client = scene_open(url, &options);
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    assert_true((strstr(hf_last_error()->text, "TLS") != NULL) == may_want_tls);
}

/* A server that wants TLS may end a connection without a word, but then it has never talked. */
CASE(tls_is_guessed_only_where_it_can_be) {
    own_server *server = server_start(NULL);
    own_proxy *proxy = proxy_start(server_socket(server));
    hf_options options = short_options();
    own_client *client = scene_open(proxy_tcp_url(proxy), &options);
    assert_int_equal(hf_ping(client), HF_OK);
    server_kill(server); /* from now on the proxy accepts, and cuts */
    accepts_and_cuts(proxy_tcp_url(proxy), true);
    accepts_and_cuts(proxy_url(proxy), false); /* nobody speaks TLS on a Unix socket */
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    assert_null(strstr(hf_last_error()->text, "TLS"));
}

RUN_CASES(NULL, NULL)
