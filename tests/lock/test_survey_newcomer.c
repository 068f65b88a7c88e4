/*
 * A client that subscribes between a survey's count of subscribers and its question: it answers,
 * and its answer is not mistaken for that of a counted client.
 */
#include "lock/surveys.h"

#define PUBLISH "\r\nPUBLISH\r\n"
#define NEWCOMER "cccccccc-0000-4000-8000-00000000000c"

/* A survey, and a client that answers it late. */
struct inquiry {
    struct world w; /* its client asks */
    struct proxy *wire;
    hf_client *responder; /* behind it */
    hf_lock *lock;
    hf_fleet *fleet;
};

/* The channels on which surveys want their answers; each client has one of its own besides. Writes the last of them. */
static int find_channels(struct server *server, char *to, size_t size) {
    own_reply *channels = cmd(server, "PUBSUB CHANNELS holdfast_tell:*");
    int found = 0;
    for (size_t i = 0; i < channels->elements; i++)
        if (strchr(channels->element[i]->str + strlen("holdfast_tell:"), ':') == NULL) {
            snprintf(to, size, "%s", channels->element[i]->str);
            found++;
        }
    return found;
}

/* The last survey has left nothing. */
static bool is_quiet(void *server) {
    char channel[128];
    return find_channels(server, channel, sizeof channel) == 0;
}

static void *take_survey(void *arg) {
    struct inquiry *inquiry = arg;
    inquiry->fleet = survey(inquiry->w.client, NULL);
    return NULL;
}

static hf_presence presence_of(const hf_fleet *fleet, const char *id) {
    for (size_t i = 0; i < fleet->clients_len; i++)
        if (strcmp(fleet->clients[i]->id, id) == 0)
            return fleet->clients[i]->presence;
    return HF_PRESENCE_UNKNOWN;
}

/* The newcomer's answer is there before anybody has heard the question. */
static bool are_both_alive(void *arg) {
    struct inquiry *inquiry = arg;
    char channel[128], id[64];
    assert_true(wait_until(is_quiet, inquiry->w.server, HANG_MS));
    proxy_stall_request(inquiry->w.proxy, PUBLISH);
    pthread_t thread = started(take_survey, inquiry);
    assert_true(proxy_wait_held(inquiry->w.proxy, HANG_MS));
    assert_int_equal(find_channels(inquiry->w.server, channel, sizeof channel), 1);
    assert_int_equal(cmd_int(inquiry->w.server, "PUBLISH %s %s", channel,
                             "{\"v\":1,\"id\":\"" NEWCOMER "\",\"name\":\"holdfast:" NEWCOMER
                             ":host:1:late\"}"),
                     1);
    assert_true(proxy_release_held(inquiry->w.proxy) >= 1);
    pthread_join(thread, NULL);
    world_owner_text(inquiry->responder, 1, id);
    id[36] = '\0';
    assert_int_equal(presence_of(inquiry->fleet, NEWCOMER), HF_PRESENCE_ALIVE);
    bool alive = presence_of(inquiry->fleet, id) == HF_PRESENCE_ALIVE;
    hf_fleet_free(inquiry->fleet);
    return alive;
}

/* A late answer is waited for. On a busy machine it may come too late; then the survey is
 * repeated. */
CASE(an_answer_counts_for_its_sender) {
    struct inquiry inquiry = {0};
    hf_options options = reporting(0), asking = reporting(-1);
    world_begin(&inquiry.w, &asking);
    inquiry.wire = proxy_start(server_socket(inquiry.w.server));
    assert_int_equal(hf_open(proxy_url(inquiry.wire), &options, &inquiry.responder), HF_OK);
    assert_int_equal(hf_lock_new(inquiry.responder, "asked", &inquiry.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(inquiry.lock), HF_OK);
    assert_true(wait_until(server_questions_are_received, inquiry.w.server, HANG_MS));
    proxy_delay(inquiry.wire, PUBLISH, 100);
    assert_true(wait_until(are_both_alive, &inquiry, HANG_MS));
    proxy_heal(inquiry.wire);
    assert_int_equal(hf_lock_release(inquiry.lock), HF_OK);
    hf_lock_free(inquiry.lock);
    assert_int_equal(hf_close(inquiry.responder), HF_OK);
    proxy_free(inquiry.wire);
    world_end(&inquiry.w);
}

RUN_CASES(world_start_server, world_stop_server)
