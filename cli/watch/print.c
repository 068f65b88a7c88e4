/* Prints the events of `holdfast watch` on stdout as text or JSON lines. Stateless. */
#include "watch/watch.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define WORD_WIDTH 8

/* The owner's description, or its id, escaped for a terminal. */
static const char *shown_party(const struct watch_party *party, char text[SHOWN_NAME_SIZE]) {
    return shown_name(party->who[0] != '\0' ? party->who : party->owner, text);
}

static void print_time(const char *before, int64_t ms, const char *after) {
    char text[CELL_SIZE];
    if (ms < 0)
        return;
    fleet_write_time(ms, text, sizeof text);
    printf("%s%s%s", before, text, after);
}

/* The time of day of the event, as far as it is known. */
static struct timespec time_of(const struct watch_event *event) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    int64_t ns = time.tv_nsec - event->ago_ms % 1000 * 1000000;
    time.tv_sec -= event->ago_ms / 1000 + (ns < 0);
    time.tv_nsec = ns < 0 ? ns + 1000000000 : ns;
    return time;
}

static void print_text(const struct watch_event *event) {
    char text[SHOWN_NAME_SIZE];
    const struct timespec now = time_of(event);
    struct tm day;
    localtime_r(&now.tv_sec, &day);
    bool alone = event->party == NULL && event->numbers == NULL && event->text == NULL;
    printf("%02d:%02d:%02d.%03d  %-*s", day.tm_hour, day.tm_min, day.tm_sec,
           (int)(now.tv_nsec / 1000000), alone ? 0 : WORD_WIDTH, event->verb);
    if (event->party != NULL)
        printf("  %s", shown_party(event->party, text));
    if (event->party != NULL && event->party->place > 0)
        printf(", place %" PRId64, event->party->place);
    if (event->party != NULL && event->party->count > 1)
        printf(", %" PRId64 " times", event->party->count);
    if (event->from != NULL) {
        printf(", from %s", shown_party(event->from, text));
        print_time(", which held it for ", event->for_ms, "");
    } else {
        print_time(", for ", event->for_ms, "");
    }
    print_time(", ", event->remaining_ms, " left");
    for (size_t i = 0; event->numbers != NULL && i < event->numbers->len; i++)
        printf("%s%s %" PRId64, i > 0 ? ", " : "  ", event->numbers->all[i].name,
               event->numbers->all[i].value);
    if (event->text != NULL)
        printf("  %s", shown_name(event->text, text));
    putchar('\n');
}

static void set_party(json_t *object, const struct watch_party *party) {
    json_object_set_new(object, "owner", json_text(party->owner));
    if (party->who[0] != '\0')
        json_object_set_new(object, "who", json_text(party->who));
    if (party->count > 0 && party->state == PARTY_HOLDS)
        json_object_set_new(object, "count", json_integer(party->count));
    if (party->place > 0)
        json_object_set_new(object, "place", json_integer(party->place));
}

static json_t *json_time(const struct watch_event *event) {
    char text[48];
    const struct timespec now = time_of(event);
    struct tm day;
    gmtime_r(&now.tv_sec, &day);
    size_t len = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &day);
    snprintf(text + len, sizeof text - len, ".%03dZ", (int)(now.tv_nsec / 1000000));
    return json_string(text);
}

static bool print_object(const char *name, const struct watch_event *event) {
    json_t *object = json_pack("{s:o, s:s, s:o}", "time", json_time(event), "event", event->verb,
                               "name", json_text(name));
    if (event->party != NULL)
        set_party(object, event->party);
    if (event->from != NULL) {
        json_t *from = json_object();
        set_party(from, event->from);
        json_object_set_new(object, "from", from);
    }
    if (event->for_ms >= 0)
        json_object_set_new(object, event->from != NULL ? "had_ms" : "for_ms",
                            json_integer(event->for_ms));
    if (event->remaining_ms >= 0)
        json_object_set_new(object, "remaining_ms", json_integer(event->remaining_ms));
    for (size_t i = 0; event->numbers != NULL && i < event->numbers->len; i++)
        json_object_set_new(object, event->numbers->all[i].name,
                            json_integer(event->numbers->all[i].value));
    if (event->text != NULL)
        json_object_set_new(object, "text", json_text(event->text));
    if (event->received)
        json_object_set_new(object, "heard", json_true());
    char *line = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (line != NULL)
        text_write_json(stdout, line);
    free(line);
    return line != NULL;
}

bool watch_print(const char *name, const struct watch_event *event, bool json) {
    bool made = true;
    if (json)
        made = print_object(name, event);
    else
        print_text(event);
    return fflush(stdout) == 0 && ferror(stdout) == 0 && made;
}
