/*
 * Questions to the fleet and answers to them as texts (answer.h): reading a question that anybody may have sent, and
 * writing down what is asked for. Called by answer.c, which says when, and by survey_ask.c; stateless.
 *
 * What is told is the core's (struct hfi_news). An answer is cut to what the asker takes, in the order of what it is worth:
 * the client itself, waits, holds, and then how long things took, by name. What is left out is counted.
 */
#include "redis/answer_text.h"

#include "base/glob.h"
#include "redis/internal.h"

#include <string.h>

#define LIMIT_MIN 1024 /* less has no room for the client itself */
#define TAIL_ROOM 128  /* the ends of the lists, and how much was left out */
#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define VERSION STRING(HF_VERSION_MAJOR) "." STRING(HF_VERSION_MINOR) "." STRING(HF_VERSION_PATCH)

/* ---- Questions ---- */

static const struct {
    char letter;
    unsigned want;
} wishes[] = {
    {'h', HF_WANT_HOLDS}, {'w', HF_WANT_WAITS}, {'n', HF_WANT_NUMBERS}, {'t', HF_WANT_TIMES}};
#define WISHES (sizeof wishes / sizeof wishes[0])
_Static_assert(WISHES < HFI_WISHES_SIZE, "there is room for all of them");

void hfi_wishes_write(unsigned wanted, char to[HFI_WISHES_SIZE]) {
    char *at = to;
    for (size_t i = 0; i < WISHES; i++)
        if ((wanted & wishes[i].want) != 0)
            *at++ = wishes[i].letter;
    if (at == to)
        *at++ = '-';
    *at = '\0';
}

/* A number and the blank behind it. */
static bool read_number(const char **at, const char *end, long *ret) {
    *ret = 0;
    const char *from = *at;
    while (*at < end && **at >= '0' && **at <= '9' && *at - from < 9)
        *ret = *ret * 10 + (*(*at)++ - '0');
    return *at > from && *at < end && *(*at)++ == ' ';
}

/* Wishes and the blank behind them. What later versions may wish for is nothing that this one knows. */
static bool read_wishes(const char **at, const char *end, unsigned *ret) {
    const char *from = *at;
    *ret = 0;
    for (; *at < end && **at != ' '; ++*at)
        for (size_t i = 0; i < WISHES; i++)
            *ret |= **at == wishes[i].letter ? wishes[i].want : 0;
    return *at > from && *at < end && *(*at)++ == ' ';
}

static bool is_number(const char *at) {
    for (int i = 0; i < HFI_ASK_NUMBER_LEN; i++)
        if (!((at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'f')))
            return false;
    return at[HFI_ASK_NUMBER_LEN] == ' ';
}

bool hfi_asked_read(const struct hfi_redis *redis, const char *message, size_t len,
                    struct hfi_asked *ret) {
    const char *at = message, *end = message + len;
    size_t head = strlen(HFI_ASK);
    long limit, db, prefix_len;
    if (len < head + HFI_ASK_NUMBER_LEN + 1 || memcmp(at, HFI_ASK, head) != 0 ||
        !is_number(at + head))
        return false;
    memcpy(ret->number, at + head, HFI_ASK_NUMBER_LEN);
    at += head + HFI_ASK_NUMBER_LEN + 1;
    if (!read_number(&at, end, &limit) || !read_wishes(&at, end, &ret->wanted) ||
        !read_number(&at, end, &db) || !read_number(&at, end, &prefix_len) || db != redis->db ||
        prefix_len > end - at || end - at > HFI_QUESTION_MAX || limit < LIMIT_MIN)
        return false;
    ret->limit = limit < HFI_ANSWER_MAX ? (size_t)limit : HFI_ANSWER_MAX;
    ret->prefix_len = (size_t)prefix_len;
    ret->pattern_len = (size_t)(end - at) - ret->prefix_len;
    memcpy(ret->text, at, (size_t)(end - at));
    return true;
}

/* ---- What is told ---- */

struct telling {
    const struct hfi_redis *redis;
    const struct hfi_asked *asked;
    struct hfi_json *json;
    bool waits;       /* of the two lists of what is held and waited for, which it is */
    int64_t left_out; /* of the list, or of both of these */
};

/* The name as the asker knows it: NULL if it is none of those it asks for. The key is made in `room`. */
static const char *asked_name(const struct telling *telling, const char *bytes, size_t bytes_len,
                              char room[HFI_NAME_MAX + 1], size_t *ret_len) {
    const struct hfi_names *names = &telling->redis->names;
    const struct hfi_asked *asked = telling->asked;
    size_t len = names->prefix_len + bytes_len;
    if (len > HFI_NAME_MAX + 1)
        return NULL;
    memcpy(room, names->prefix, names->prefix_len);
    memcpy(room + names->prefix_len, bytes, bytes_len);
    if (len < asked->prefix_len || memcmp(room, asked->text, asked->prefix_len) != 0)
        return NULL;
    *ret_len = len - asked->prefix_len;
    const char *name = room + asked->prefix_len;
    bool matches = hfi_glob(asked->text + asked->prefix_len, asked->pattern_len, name, *ret_len);
    return matches ? name : NULL;
}

/* What was written since the mark counts if it has fitted; when one has not, the others of its list are not tried. */
static void keep_or_count(struct telling *telling, struct hfi_json_mark mark) {
    if (telling->left_out == 0 && !telling->json->full)
        return;
    hfi_json_back(telling->json, mark);
    telling->left_out++;
}

static void write_standing(struct hfi_json *json, const struct hfi_standing *it, const char *name,
                           size_t name_len) {
    hfi_json_open(json, '{');
    hfi_json_bytes(json, "name", name, name_len);
    hfi_json_bytes(json, "kind", it->kind->name, strlen(it->kind->name));
    hfi_json_bytes(json, "owner", it->owner, it->owner_len);
    hfi_json_pair(json, "for_ms", it->for_ms);
    hfi_json_pair(json, "left_ms", it->left_ms);
    if (!it->waits) {
        hfi_json_pair(json, "count", it->count);
        hfi_json_pair(json, "renewed", it->renewed);
    }
    if (it->thread[0] != '\0')
        hfi_json_bytes(json, "thread", it->thread, strlen(it->thread));
    hfi_json_close(json, '}');
}

/* Under a shard. */
static void tell_standing(void *arg, const struct hfi_standing *it) {
    struct telling *telling = arg;
    char room[HFI_NAME_MAX + 1];
    size_t len;
    if (it->waits != telling->waits)
        return;
    const char *name = asked_name(telling, it->name, it->name_len, room, &len);
    if (name == NULL)
        return;
    struct hfi_json_mark mark = hfi_json_mark(telling->json);
    if (telling->left_out == 0)
        write_standing(telling->json, it, name, len);
    keep_or_count(telling, mark);
}

/* Nothing if there was nothing; without the zeros at the end. How many there were is the sum of them. */
static void write_times(struct hfi_json *json, const char *key, const hf_times *times) {
    size_t len = sizeof times->buckets / sizeof times->buckets[0];
    while (len > 0 && times->buckets[len - 1] == 0)
        len--;
    if (len == 0)
        return;
    hfi_json_key(json, key);
    hfi_json_open(json, '{');
    hfi_json_pair(json, "sum_us", (int64_t)times->sum_us);
    hfi_json_pair(json, "max_us", (int64_t)times->max_us);
    hfi_json_key(json, "buckets");
    hfi_json_open(json, '[');
    for (size_t i = 0; i < len; i++)
        hfi_json_number(json, (int64_t)times->buckets[i]);
    hfi_json_close(json, ']');
    hfi_json_close(json, '}');
}

/* Under the mutex of what keeps them. */
static void tell_times(void *arg, const struct hfi_named_times *it) {
    struct telling *telling = arg;
    struct hfi_json *json = telling->json;
    char room[HFI_NAME_MAX + 1];
    size_t len;
    const char *name = asked_name(telling, it->name, it->name_len, room, &len);
    if (name == NULL)
        return;
    struct hfi_json_mark mark = hfi_json_mark(json);
    if (telling->left_out == 0) {
        hfi_json_open(json, '{');
        hfi_json_bytes(json, "name", name, len);
        hfi_json_pair(json, "begun", (int64_t)it->begun);
        write_times(json, "wait", &it->wait);
        write_times(json, "hold", &it->hold);
        write_times(json, "hand_over", &it->hand_over);
        hfi_json_close(json, '}');
    }
    keep_or_count(telling, mark);
}

static void write_self(struct hfi_json *json, const struct hfi_redis *redis,
                       const struct hfi_bearing *self) {
    hfi_json_pair(json, "v", 1);
    hfi_json_bytes(json, "id", self->id, strlen(self->id));
    hfi_json_bytes(json, "name", redis->client_name, strlen(redis->client_name));
    hfi_json_bytes(json, "version", VERSION, strlen(VERSION));
    hfi_json_pair(json, "up_ms", self->up_ms);
    if (self->under != NULL)
        hfi_json_bytes(json, "under", self->under, strlen(self->under));
}

/* The times are left out where they would take the room of what is held and waited for. */
static void write_numbers(struct hfi_json *json, const struct hfi_bearing *self) {
    hfi_json_pair(json, "acquired", (int64_t)self->acquired);
    hfi_json_pair(json, "contended", (int64_t)self->contended);
    hfi_json_pair(json, "timed_out", (int64_t)self->timed_out);
    hfi_json_pair(json, "losses", (int64_t)self->losses);
    hfi_json_pair(json, "renew_failures", (int64_t)self->renew_failures);
    hfi_json_pair(json, "released", (int64_t)self->released);
    hfi_json_pair(json, "renewals", (int64_t)self->renewals);
    struct hfi_json_mark mark = hfi_json_mark(json);
    write_times(json, "wait", &self->wait);
    write_times(json, "hold", &self->hold);
    write_times(json, "hand_over", &self->hand_over);
    if (json->full || json->len > json->limit / 2)
        hfi_json_back(json, mark);
}

static void tell_nothing(void *arg, const struct hfi_standing *it) {
    (void)arg;
    (void)it;
}

/* What the lists end with has room in any case. */
static void begin_list(struct hfi_json *json, const char *key) {
    hfi_json_key(json, key);
    hfi_json_open(json, '[');
    json->limit -= TAIL_ROOM;
}

static void end_list(struct hfi_json *json) {
    json->limit += TAIL_ROOM;
    hfi_json_close(json, ']');
}

static void write_standings(struct telling *telling, const char *key, bool waits) {
    const struct hfi_news *news = telling->redis->news;
    struct hfi_bearing self;
    telling->waits = waits;
    begin_list(telling->json, key);
    news->asked(news->arg, &self, tell_standing, telling);
    end_list(telling->json);
}

/* Waits come first: there are fewer of them, and they tell more. */
static void write_holds_and_waits(struct telling *telling) {
    if ((telling->asked->wanted & HF_WANT_WAITS) != 0)
        write_standings(telling, "waits", true);
    if ((telling->asked->wanted & HF_WANT_HOLDS) != 0)
        write_standings(telling, "holds", false);
    if (telling->left_out > 0)
        hfi_json_pair(telling->json, "left_out", telling->left_out);
}

static void write_names(struct telling *telling) {
    const struct hfi_news *news = telling->redis->news;
    telling->left_out = 0;
    begin_list(telling->json, "names");
    news->asked_times(news->arg, tell_times, telling);
    end_list(telling->json);
    if (telling->left_out > 0)
        hfi_json_pair(telling->json, "names_left_out", telling->left_out);
}

/* Who tells nothing says that much, lest it be taken for one that hangs. */
static bool write_refusal(const struct hfi_redis *redis, struct hfi_json *json) {
    size_t head = strlen("holdfast:"), uuid = 36;
    if (strlen(redis->client_name) < head + uuid)
        return false;
    hfi_json_open(json, '{');
    hfi_json_pair(json, "v", 1);
    hfi_json_bytes(json, "id", redis->client_name + head, uuid);
    hfi_json_pair(json, "tells_nothing", 1);
    hfi_json_close(json, '}');
    return !json->full;
}

bool hfi_answer_write(const struct hfi_redis *redis, const struct hfi_asked *asked,
                      struct hfi_json *json) {
    const struct hfi_news *news = redis->news;
    struct telling telling = {.redis = redis, .asked = asked, .json = json};
    struct hfi_bearing self;
    hfi_json_begin(json, redis->mem, asked->limit);
    if (news == NULL)
        return false;
    if (!news->asked(news->arg, &self, tell_nothing, NULL))
        return write_refusal(redis, json);
    hfi_json_open(json, '{');
    write_self(json, redis, &self);
    if ((asked->wanted & HF_WANT_NUMBERS) != 0)
        write_numbers(json, &self);
    if (json->full || json->len + TAIL_ROOM > json->limit)
        return false;
    write_holds_and_waits(&telling);
    if ((asked->wanted & HF_WANT_TIMES) != 0)
        write_names(&telling);
    hfi_json_close(json, '}');
    return !json->full;
}
