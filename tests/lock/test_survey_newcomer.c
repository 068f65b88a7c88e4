/*
 * A client that begins to listen between the moment at which a survey looks who would answer and its question: it answers, and
 * that is not taken for the answer of one who was there before.
 */
#include "lock/surveys.h"

#define PUBLISH "\r\nPUBLISH\r\n"
#define NEWCOMER "cccccccc-0000-4000-8000-00000000000c"

struct scene {
    struct world w; /* its client asks */
    struct proxy *wire;
    hf_client *teller; /* behind it */
    hf_lock *lock;
    hf_fleet *fleet;
};

/* The channels on which surveys want their answers; each client has one of its own besides. Writes the last of them. */
static int find_channels(struct server *server, char *to, size_t size) {
    redisReply *channels = cmd(server, "PUBSUB CHANNELS holdfast_tell:*");
    int found = 0;
    for (size_t i = 0; i < channels->elements; i++)
        if (strchr(channels->element[i]->str + strlen("holdfast_tell:"), ':') == NULL) {
            snprintf(to, size, "%s", channels->element[i]->str);
            found++;
        }
    freeReplyObject(channels);
    return found;
}

/* The last survey has left nothing. */
static bool is_quiet(void *server) {
    char channel[128];
    return find_channels(server, channel, sizeof channel) == 0;
}

static void *take_survey(void *arg) {
    struct scene *scene = arg;
    scene->fleet = survey(scene->w.client, NULL);
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
    struct scene *scene = arg;
    pthread_t thread;
    char channel[128], id[64];
    assert_true(wait_until(is_quiet, scene->w.server, HANG_MS));
    proxy_stall_request(scene->w.proxy, PUBLISH);
    assert_int_equal(pthread_create(&thread, NULL, take_survey, scene), 0);
    assert_true(proxy_wait_held(scene->w.proxy, HANG_MS));
    assert_int_equal(find_channels(scene->w.server, channel, sizeof channel), 1);
    assert_int_equal(cmd_int(scene->w.server, "PUBLISH %s %s", channel,
                             "{\"v\":1,\"id\":\"" NEWCOMER "\",\"name\":\"holdfast:" NEWCOMER
                             ":host:1:late\"}"),
                     1);
    assert_true(proxy_release_held(scene->w.proxy) >= 1);
    pthread_join(thread, NULL);
    world_owner_text(scene->teller, 1, id);
    id[36] = '\0';
    assert_int_equal(presence_of(scene->fleet, NEWCOMER), HF_ALIVE);
    bool alive = presence_of(scene->fleet, id) == HF_ALIVE;
    hf_fleet_free(scene->fleet);
    return alive;
}

/* Who answers late is waited for; on a busy machine it may be too late, and then it is asked again. */
static void an_answer_counts_for_who_gave_it(void **state) {
    (void)state;
    struct scene scene = {0};
    hf_options options = reporting(0), asking = reporting(-1);
    world_begin(&scene.w, &asking);
    scene.wire = proxy_start(server_socket(scene.w.server));
    assert_int_equal(hf_open(proxy_url(scene.wire), &options, &scene.teller), HF_OK);
    assert_int_equal(hf_lock_new(scene.teller, "told", &scene.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(scene.lock), HF_OK);
    assert_true(wait_until(server_questions_are_heard, scene.w.server, HANG_MS));
    proxy_delay(scene.wire, PUBLISH, 100);
    assert_true(wait_until(are_both_alive, &scene, HANG_MS));
    proxy_heal(scene.wire);
    assert_int_equal(hf_lock_release(scene.lock), HF_OK);
    hf_lock_free(scene.lock);
    assert_int_equal(hf_close(scene.teller), HF_OK);
    proxy_free(scene.wire);
    world_end(&scene.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_answer_counts_for_who_gave_it)};
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
