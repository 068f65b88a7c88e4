/*
 * Listeners (hf_listen()) whose server goes away and comes back: whether they hear it is told in the end as it is, also to a
 * callback that was slow, and to one whom the server has come to refuse.
 */
#include "lock/world.h"
#include "support/heard.h"

#include <string.h>

/* Whatever was published before this call has been heard: another connection has been made since. */
static void connect_again(struct world *w) {
    uint64_t before = world_stats(w->client).reconnects;
    cmd_ok(w->server, "CLIENT KILL TYPE pubsub");
    for (int64_t start_ms = now_ms();
         world_stats(w->client).reconnects == before || world_channels(w->server) < 4; sleep_ms(1))
        assert_true(now_ms() - start_ms < HANG_MS);
}

static void go_away(struct world *w) {
    proxy_refuse(w->proxy, true);
    proxy_cut_connections(w->proxy, "");
}

/* ---- A callback that is slow ---- */

struct order {
    struct world *w;
    int released, missed;
    hf_news_kind stands;
    bool twice_deaf; /* in a row */
};

/* While it is told that some were missed, the server comes back, goes and comes back. */
static void note_order(hf_listener *listener, const hf_news *news, void *user) {
    struct order *order = user;
    (void)listener;
    order->released += news->kind == HF_NEWS_RELEASED;
    if (news->kind == HF_NEWS_LISTENING || news->kind == HF_NEWS_DEAF) {
        order->twice_deaf |= news->kind == HF_NEWS_DEAF && order->stands == HF_NEWS_DEAF;
        order->stands = news->kind;
    }
    if (news->kind == HF_NEWS_MISSED && ++order->missed == 1) {
        proxy_refuse(order->w->proxy, false);
        connect_again(order->w);
        connect_again(order->w);
    }
}

/* That it was deaf when some were missed is not told after it has heard again. */
static void how_it_stands_is_told_in_order(void **state) {
    struct world w;
    hf_listener *listener;
    struct order order = {.w = &w};
    hf_options options = world_options();
    (void)state;
    options.flags = HF_MANUAL_DISPATCH;
    world_begin(&w, &options);
    assert_int_equal(hf_listen(w.client, WORLD_NAME, note_order, &order, &listener), HF_OK);
    while (order.stands == 0)
        assert_true(hf_dispatch(w.client, HANG_MS) > 0);
    for (int i = 0; i < HF_NEWS_MAX + 10; i++)
        cmd_ok(w.server, "PUBLISH " WORLD_CHANNEL " 0");
    connect_again(&w);
    go_away(&w);
    while (order.missed == 0)
        assert_true(hf_dispatch(w.client, HANG_MS) > 0);
    int released = order.released;
    cmd_ok(w.server, "PUBLISH " WORLD_CHANNEL " 0");
    while (order.released == released)
        assert_true(hf_dispatch(w.client, HANG_MS) > 0);
    while (hf_dispatch(w.client, 0) > 0)
        continue;
    assert_int_equal(order.stands, HF_NEWS_LISTENING);
    assert_false(order.twice_deaf);
    hf_listener_free(listener);
    world_end(&w);
}

/* ---- Rights that are taken away ---- */

/* It would not go on by itself, as a lost connection does. */
static void whoever_is_refused_later_is_told(void **state) {
    struct server *server = world_server();
    struct heard *heard = heard_new();
    hf_client *client;
    hf_listener *listener;
    hf_options options = world_options();
    (void)state;
    cmd_ok(server, "ACL SETUSER guest on >secret ~* &* +@all");
    options.user = "guest";
    options.password = "secret";
    assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
    assert_int_equal(hf_listen(client, WORLD_NAME, heard_note, heard, &listener), HF_OK);
    assert_true(heard_wait(heard, HF_NEWS_LISTENING, 1, HANG_MS));
    cmd_ok(server, "ACL SETUSER guest resetchannels"); /* which ends the connection, too */
    assert_true(heard_wait(heard, HF_NEWS_DEAF, 2, HANG_MS));
    assert_int_equal(heard_last(heard, HF_NEWS_DEAF).code, HF_EPERM);
    assert_int_equal(heard_count(heard, HF_NEWS_LISTENING), 1);
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(server, "ACL DELUSER guest");
    heard_free(heard);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(how_it_stands_is_told_in_order),
        cmocka_unit_test(whoever_is_refused_later_is_told),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
