/* An event of the history as a line of JSON, and back. Keys are absent if the value is unknown. A
 * name that is not valid UTF-8, or contains NUL, is also given as `name_hex`, as in `ls --json`.
 *
 * A file may have been changed by others: a line is checked before it is used. Stateless. */
#include "history/history.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Writing --------------------------------------------------------------------------------- */

static json_t *json_time(int64_t at_ms) {
    char text[64];
    time_t seconds = (time_t)(at_ms / 1000);
    struct tm day;
    gmtime_r(&seconds, &day);
    size_t len = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &day);
    snprintf(text + len, sizeof text - len, ".%03dZ", (int)(at_ms % 1000));
    return json_string(text);
}

static void set_text(json_t *object, const char *key, const char *text) {
    if (text != NULL && text[0] != '\0')
        json_object_set_new(object, key, json_text(text));
}

static void set_number(json_t *object, const char *key, int64_t number) {
    if (number >= 0)
        json_object_set_new(object, key, json_integer(number));
}

static json_t *json_hex(const char *bytes, size_t len) {
    char hex[2 * HISTORY_NAME_MAX + 1];
    for (size_t i = 0; i < len; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
    return json_stringn(hex, 2 * len);
}

static void set_name(json_t *object, const char *name, size_t name_len) {
    size_t len = name_len < HISTORY_NAME_MAX ? name_len : HISTORY_NAME_MAX;
    json_t *text = json_bytes(name, len);
    bool same = json_string_length(text) == len && memcmp(json_string_value(text), name, len) == 0;
    json_object_set_new(object, "name", text);
    if (!same || memchr(name, '\0', len) != NULL)
        json_object_set_new(object, "name_hex", json_hex(name, len));
}

static json_t *json_event(const struct history_event *event) {
    json_t *object =
        json_pack("{s:o, s:s}", "time", json_time(event->at_ms), "event", event->event);
    if (object == NULL)
        return NULL;
    if (event->name != NULL)
        set_name(object, event->name, event->name_len);
    set_text(object, "kind", event->kind);
    set_text(object, "owner", event->owner);
    set_text(object, "who", event->who);
    if (event->from_owner != NULL) {
        json_t *from = json_object();
        set_text(from, "owner", event->from_owner);
        set_text(from, "who", event->from_who);
        json_object_set_new(object, "from", from);
    }
    set_number(object, "for_ms", event->for_ms);
    set_number(object, "within_ms", event->within_ms);
    if (event->count > 0)
        json_object_set_new(object, "count", json_integer(event->count));
    set_text(object, "text", event->text);
    if (event->heard)
        json_object_set_new(object, "heard", json_true());
    return object;
}

char *history_event_line(const struct history_event *event) {
    json_t *object = json_event(event);
    char *json = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL, *line = NULL;
    size_t len = 0;
    json_decref(object);
    FILE *out = json != NULL ? open_memstream(&line, &len) : NULL;
    if (out != NULL) {
        text_write_json(out, json); /* people look at such files on a terminal */
        if (fclose(out) != 0 || len == 0) {
            free(line);
            line = NULL;
        }
    }
    free(json);
    if (line != NULL)
        line[len - 1] = '\0';
    return line;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool read_time(const char *text, int64_t *ret_ms) {
    struct tm day = {0};
    const char *rest = text != NULL ? strptime(text, "%Y-%m-%dT%H:%M:%S", &day) : NULL;
    if (rest == NULL || rest[0] != '.' || strspn(rest + 1, "0123456789") != 3 ||
        strcmp(rest + 4, "Z") != 0)
        return false;
    time_t seconds = timegm(&day);
    *ret_ms = (int64_t)seconds * 1000 + strtol(rest + 1, NULL, 10);
    return seconds >= 0;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static int64_t number_of(const json_t *object, const char *key, int64_t otherwise) {
    const json_t *number = json_object_get(object, key);
    int64_t value = json_is_integer(number) ? (int64_t)json_integer_value(number) : -1;
    return value >= 0 ? value : otherwise;
}

static int digit(char c) {
    const char *all = "0123456789abcdef", *at = c != '\0' ? strchr(all, c) : NULL;
    return at != NULL ? (int)(at - all) : -1;
}

/* NULL: invalid, or out of memory. */
static char *decode_hex(const char *hex, size_t *ret_len) {
    size_t len = strlen(hex);
    char *bytes = len % 2 == 0 ? malloc(len / 2 + 1) : NULL;
    for (size_t i = 0; bytes != NULL && i < len; i += 2) {
        int high = digit(hex[i]), low = digit(hex[i + 1]);
        if (high < 0 || low < 0) {
            free(bytes);
            return NULL;
        }
        bytes[i / 2] = (char)(high << 4 | low);
    }
    if (bytes != NULL)
        bytes[len / 2] = '\0';
    *ret_len = len / 2;
    return bytes;
}

static void read_name(struct history_line *line) {
    const json_t *name = json_object_get(line->object, "name");
    const char *hex = text_of(line->object, "name_hex");
    line->event.name = json_string_value(name);
    line->event.name_len = json_string_length(name);
    if (line->event.name == NULL || hex == NULL)
        return;
    size_t len = 0;
    line->name = decode_hex(hex, &len);
    if (line->name == NULL)
        return;
    line->event.name = line->name;
    line->event.name_len = len;
}

/* Words of ours, and of later versions. */
static bool is_word(const char *text) {
    return text != NULL && text[0] != '\0' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz_") == strlen(text);
}

bool history_line_read(const char *text, size_t len, struct history_line *ret) {
    if (len > HISTORY_LINE_MAX)
        return false;
    json_t *object = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    int64_t at_ms = 0;
    if (!json_is_object(object) || !read_time(text_of(object, "time"), &at_ms) ||
        !is_word(text_of(object, "event"))) {
        json_decref(object);
        return false;
    }
    const json_t *from = json_object_get(object, "from");
    *ret = (struct history_line){
        .object = object,
        .event = {.at_ms = at_ms,
                  .within_ms = number_of(object, "within_ms", -1),
                  .event = text_of(object, "event"),
                  .kind = text_of(object, "kind"),
                  .owner = text_of(object, "owner"),
                  .who = text_of(object, "who"),
                  .from_owner = text_of(from, "owner"),
                  .from_who = text_of(from, "who"),
                  .for_ms = number_of(object, "for_ms", -1),
                  .count = number_of(object, "count", 0),
                  .text = text_of(object, "text"),
                  .heard = json_is_true(json_object_get(object, "heard"))},
    };
    read_name(ret);
    return true;
}

void history_line_free(struct history_line *line) {
    json_decref(line->object);
    free(line->name);
}

bool history_event_is_about(const struct history_event *event, const char *name, size_t name_len) {
    if (event->name == NULL)
        return true;
    size_t len = name_len < HISTORY_NAME_MAX ? name_len : HISTORY_NAME_MAX;
    return event->name_len == len && memcmp(event->name, name, len) == 0;
}
