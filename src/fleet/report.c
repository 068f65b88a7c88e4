/*
 * Writes a client's report to a survey (report.h). Called by src/core on the keeper's thread;
 * stateless.
 *
 * A report is cut to the asker's limit, most useful first: the client itself, waits, holds, then
 * latencies by name. Omitted entries are counted.
 */
#include "fleet/report.h"

#include "base/glob.h"

#include <string.h>

#define NAME_MAX_LEN 65535 /* of a name with its prefix */
#define TAIL_ROOM 128      /* room for the ends of the lists, and the counts of omitted entries */

struct report_writer {
    const struct hfi_report_request *request;
    const struct hfi_report_source *source;
    struct hfi_json *json;
    bool waits;       /* which list is written: waits, or holds */
    int64_t left_out; /* entries omitted from the list, or from both of these */
};

/* The name as the asker knows it; NULL: the asker does not want it. It is built in `room`. */
static const char *asked_name(const struct hfi_report_request *request, const char *bytes,
                              size_t bytes_len, char room[NAME_MAX_LEN + 1], size_t *ret_len) {
    size_t len = request->prefix_len + bytes_len;
    if (len > NAME_MAX_LEN + 1)
        return NULL;
    memcpy(room, request->prefix, request->prefix_len);
    memcpy(room + request->prefix_len, bytes, bytes_len);
    if (len < request->asker_prefix_len ||
        memcmp(room, request->asker_prefix, request->asker_prefix_len) != 0)
        return NULL;
    *ret_len = len - request->asker_prefix_len;
    const char *name = room + request->asker_prefix_len;
    return hfi_glob(request->pattern, request->pattern_len, name, *ret_len) ? name : NULL;
}

/* Keeps what was written since the mark if it fits. Once an entry of a list did not fit, the rest
 * of the list is only counted. */
static void keep_or_count(struct report_writer *writer, struct hfi_json_mark mark) {
    if (writer->left_out == 0 && !writer->json->full)
        return;
    hfi_json_back(writer->json, mark);
    writer->left_out++;
}

static void write_entry(struct hfi_json *json, const struct hfi_survey_entry *it, const char *name,
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

/* Called under a shard's mutex. */
static void write_entry_visited(void *arg, const struct hfi_survey_entry *it) {
    struct report_writer *writer = arg;
    char room[NAME_MAX_LEN + 1];
    size_t len;
    if (it->waits != writer->waits)
        return;
    const char *name = asked_name(writer->request, it->name, it->name_len, room, &len);
    if (name == NULL)
        return;
    struct hfi_json_mark mark = hfi_json_mark(writer->json);
    if (writer->left_out == 0)
        write_entry(writer->json, it, name, len);
    keep_or_count(writer, mark);
}

/* Omitted if empty; trailing zeros are left out. The total count is the sum of the buckets. */
static void write_times(struct hfi_json *json, const char *key, const hf_histogram *times) {
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

/* Called under the mutex of the name statistics. */
static void write_times_visited(void *arg, const struct hfi_named_times *it) {
    struct report_writer *writer = arg;
    struct hfi_json *json = writer->json;
    char room[NAME_MAX_LEN + 1];
    size_t len;
    const char *name = asked_name(writer->request, it->name, it->name_len, room, &len);
    if (name == NULL)
        return;
    struct hfi_json_mark mark = hfi_json_mark(json);
    if (writer->left_out == 0) {
        hfi_json_open(json, '{');
        hfi_json_bytes(json, "name", name, len);
        hfi_json_pair(json, "begun", (int64_t)it->begun);
        write_times(json, "wait", &it->wait);
        write_times(json, "hold", &it->hold);
        write_times(json, "hand_over", &it->hand_over);
        hfi_json_close(json, '}');
    }
    keep_or_count(writer, mark);
}

static void write_self(struct hfi_json *json, const char *client_name,
                       const struct hfi_survey_client *self) {
    hfi_json_pair(json, "v", 1);
    hfi_json_bytes(json, "id", self->id, strlen(self->id));
    hfi_json_bytes(json, "name", client_name, strlen(client_name));
    hfi_json_bytes(json, "version", HF_VERSION_TEXT, strlen(HF_VERSION_TEXT));
    hfi_json_pair(json, "up_ms", self->up_ms);
    if (self->under != NULL)
        hfi_json_bytes(json, "under", self->under, strlen(self->under));
}

/* The times are left out if they would take the room of holds and waits. */
static void write_numbers(struct hfi_json *json, const struct hfi_survey_client *self) {
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

/* Reserves room for what follows the list. */
static void begin_list(struct hfi_json *json, const char *key) {
    hfi_json_key(json, key);
    hfi_json_open(json, '[');
    json->limit -= TAIL_ROOM;
}

static void end_list(struct hfi_json *json) {
    json->limit += TAIL_ROOM;
    hfi_json_close(json, ']');
}

static void write_entries(struct report_writer *writer, const char *key, bool waits) {
    writer->waits = waits;
    begin_list(writer->json, key);
    writer->source->entries(writer->source->arg, write_entry_visited, writer);
    end_list(writer->json);
}

/* Waits come first: there are fewer of them, and they tell more. */
static void write_holds_and_waits(struct report_writer *writer) {
    if ((writer->request->wanted & HF_WANT_WAITS) != 0)
        write_entries(writer, "waits", true);
    if ((writer->request->wanted & HF_WANT_HOLDS) != 0)
        write_entries(writer, "holds", false);
    if (writer->left_out > 0)
        hfi_json_pair(writer->json, "left_out", writer->left_out);
}

static void write_names(struct report_writer *writer) {
    writer->left_out = 0;
    begin_list(writer->json, "names");
    writer->source->times(writer->source->arg, write_times_visited, writer);
    end_list(writer->json);
    if (writer->left_out > 0)
        hfi_json_pair(writer->json, "names_left_out", writer->left_out);
}

static bool write_presence(const char *client_name, struct hfi_json *json) {
    size_t head = strlen("holdfast:"), uuid = 36;
    if (strlen(client_name) < head + uuid)
        return false;
    hfi_json_open(json, '{');
    hfi_json_pair(json, "v", 1);
    hfi_json_bytes(json, "id", client_name + head, uuid);
    hfi_json_pair(json, "tells_nothing", 1);
    hfi_json_close(json, '}');
    return !json->full;
}

bool hfi_report_write(const struct hfi_report_request *request,
                      const struct hfi_report_source *source, struct hfi_json *json) {
    struct report_writer writer = {.request = request, .source = source, .json = json};
    struct hfi_survey_client self;
    if (request->only_presence || !source->client(source->arg, &self))
        return write_presence(request->client_name, json);
    hfi_json_open(json, '{');
    write_self(json, request->client_name, &self);
    if ((request->wanted & HF_WANT_STATS) != 0)
        write_numbers(json, &self);
    if (json->full || json->len + TAIL_ROOM > json->limit)
        return false;
    write_holds_and_waits(&writer);
    if ((request->wanted & HF_WANT_HISTOGRAMS) != 0)
        write_names(&writer);
    hfi_json_close(json, '}');
    return !json->full;
}
