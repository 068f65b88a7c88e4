/*
 * The servers' half of a survey: SCAN in small steps, and a script that reads some names at a time.
 *
 *   for hashes, and then for sorted sets:  SCAN -> names -> read, read, ... -> SCAN -> ... -> done
 *
 * Steps of survey.c, on the thread of the call's executor. Every command is short for the server,
 * no matter how many keys it has. Locks and groups of values are hashes of any name. Permits have a
 * sorted set with a derived name, so few keys match. They take a second pass: a single SCAN for
 * both could filter neither by type nor by name, and would return all keys.
 *
 * SCAN may return a name twice; src/fleet removes duplicates. survey_read.c parses the replies.
 * Near the call's deadline the survey stops, and returns what it has found so far, with a text.
 */
#include "base/clock.h"
#include "base/glob.h"
#include "redis/fleet/survey.h"

#include <stdio.h>
#include <string.h>

#define SCAN_COUNT "500"
#define LOCKS_MAX 100000
#define LAST_MS 100 /* no command is started this close to the deadline */
#define NAMES_OF_A_KEY 2

/* One pass of SCAN over the keys of one type. */
struct hfi_survey_pass {
    const char *type;
    unsigned unread; /* if it is cut short, or may not be read: HFI_UNREAD_... */
    void (*write_match)(const struct hfi_names *names, const struct hfi_call *call,
                        struct hfi_command *command);
    /* The names to which this key may belong. */
    size_t (*names_of)(const struct hfi_reply *key, struct hfi_survey_name ret[NAMES_OF_A_KEY]);
    const struct hfi_script *script;
    bool (*read)(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                 const struct hfi_reply *reply);
    const struct hfi_survey_pass *next;
};

static void scan(struct hfi_call *call);
static void read_names(struct hfi_call *call);

static void out_of_memory(struct hfi_call *call) {
    hfi_call_fail(call, HF_ENOMEM, "out of memory");
}

static void cut(struct hfi_call *call, const char *text) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->findings->cut = true;
    for (const struct hfi_survey_pass *pass = survey->pass; pass != NULL; pass = pass->next)
        survey->findings->unread |= pass->unread;
    snprintf(survey->findings->text, sizeof survey->findings->text, "%s", text);
    survey->next(call);
}

static bool is_late(const struct hfi_call *call) {
    return call->deadline_ms != HFI_NEVER && hfi_now_ms() >= call->deadline_ms - LAST_MS;
}

/* ---- Locks and groups: a hash of that name ---- */

/* The prefix is escaped, then comes the pattern. */
static void write_pattern(const struct hfi_names *names, const struct hfi_call *call,
                          struct hfi_command *command) {
    size_t pattern_len = call->name_len > 0 ? call->name_len : 1;
    char *room = hfi_command_room(command, 2 * names->prefix_len + pattern_len);
    if (room == NULL)
        return;
    for (size_t i = 0; i < names->prefix_len; i++) {
        *room++ = '\\';
        *room++ = names->prefix[i];
    }
    memcpy(room, call->name_len > 0 ? call->name : "*", pattern_len);
}

static size_t name_itself(const struct hfi_reply *key, struct hfi_survey_name ret[NAMES_OF_A_KEY]) {
    ret[0] = (struct hfi_survey_name){.bytes = key->str, .len = key->len};
    return 1;
}

/* ---- Permits: a sorted set derived from that name ---- */

static const char of_permits[] = ":timeout";

/* The name may be in braces here, so the pattern is matched on our side. */
static void write_ending(const struct hfi_names *names, const struct hfi_call *call,
                         struct hfi_command *command) {
    (void)names;
    (void)call;
    hfi_command_pair(command, "*", 1, of_permits, strlen(of_permits));
}

/* "{a}:timeout" may belong to "a" or to "{a}"; "a:timeout" to none. The script finds out. */
static size_t names_before_ending(const struct hfi_reply *key,
                                  struct hfi_survey_name ret[NAMES_OF_A_KEY]) {
    size_t ending = strlen(of_permits), found = 0;
    if (key->len <= ending || memcmp(key->str + key->len - ending, of_permits, ending) != 0)
        return 0;
    const char *at = key->str;
    size_t len = key->len - ending;
    if (memchr(at, '{', len) != NULL)
        ret[found++] = (struct hfi_survey_name){.bytes = at, .len = len};
    if (len > 2 && at[0] == '{' && at[len - 1] == '}' && memchr(at + 1, '{', len - 2) == NULL)
        ret[found++] = (struct hfi_survey_name){.bytes = at + 1, .len = len - 2};
    return found;
}

static const struct hfi_survey_pass permits = {
    .type = "zset",
    .unread = HFI_UNREAD_PERMITS,
    .write_match = write_ending,
    .names_of = names_before_ending,
    .script = &hfi_script_survey_permits,
    .read = hfi_survey_read_permits,
};

static const struct hfi_survey_pass locks = {
    .type = "hash",
    .unread = HFI_UNREAD_LOCKS,
    .write_match = write_pattern,
    .names_of = name_itself,
    .script = &hfi_script_survey_locks,
    .read = hfi_survey_read_hash,
    .next = &permits,
};

/* ---- Reading some names ---- */

/* The next name that SCAN has found. */
static struct hfi_survey_name next_name(const struct hfi_redis_survey *survey, size_t *at) {
    struct hfi_survey_name name;
    memcpy(&name.len, survey->names + *at, sizeof name.len);
    name.bytes = survey->names + *at + sizeof name.len;
    *at += sizeof name.len + name.len;
    return name;
}

static bool is_unread(const struct hfi_reply *answer) {
    const long long unread = -1; /* as in the scripts */
    return answer->type == HFI_REPLY_INTEGER && answer->integer == unread;
}

/* The script answers for the first name at least, and for others if there is time. */
static void got_names(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    size_t prefix_len = state->exchange.redis->names.prefix_len;
    if (state->exchange.err != HF_OK) {
        hfi_survey_failed(call);
        return;
    }
    const struct hfi_reply *reply = hfi_answer_of(call);
    if (reply->type != HFI_REPLY_ARRAY || reply->elements == 0) {
        hfi_call_fail_proto(call);
        return;
    }
    for (size_t i = 0; i < reply->elements && survey->names_at < survey->batch_end; i++) {
        struct hfi_survey_name name = next_name(survey, &survey->names_at);
        name.bytes += prefix_len;
        name.len -= prefix_len;
        if (is_unread(reply->element[i]))
            survey->findings->unread |= survey->pass->unread;
        if (!survey->pass->read(survey, name, reply->element[i])) {
            out_of_memory(call);
            return;
        }
    }
    read_names(call);
}

static void write_names(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_redis_survey *survey = hfi_state_around(x)->u.survey;
    const struct hfi_script *script = survey->pass->script;
    (void)not_after_ms;
    hfi_command_text(command, "EVAL");
    hfi_command_bytes(command, script->body, script->len);
    hfi_command_number(command, 0);
    hfi_command_number(command, HFI_SURVEY_OWNERS_MAX);
    hfi_command_text(command, hfi_redis_is_sharded(x->redis) ? "shardnumsub" : "numsub");
    for (size_t at = survey->names_at; at < survey->batch_end;) {
        struct hfi_survey_name name = next_name(survey, &at);
        hfi_command_bytes(command, name.bytes, name.len);
    }
}

static void read_names(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->names_at == survey->names_len) {
        scan(call);
        return;
    }
    survey->batch_end = survey->names_at;
    for (int i = 0; i < HFI_SURVEY_BATCH_MAX && survey->batch_end < survey->names_len; i++)
        next_name(survey, &survey->batch_end);
    hfi_survey_send(call, write_names, got_names);
}

/* ---- SCAN ---- */

static bool is_wanted(const struct hfi_call *call, const struct hfi_names *names,
                      struct hfi_survey_name name) {
    return name.len > names->prefix_len &&
           memcmp(name.bytes, names->prefix, names->prefix_len) == 0 &&
           hfi_glob(call->name, call->name_len, name.bytes + names->prefix_len,
                    name.len - names->prefix_len);
}

/* Writes the wanted names of a key, each behind its length, unless `to` is NULL; returns their
 * size. */
static size_t put_names(struct hfi_call *call, const struct hfi_reply *key, char *to) {
    const struct hfi_names *names = &hfi_state_of(call)->exchange.redis->names;
    struct hfi_survey_name of[NAMES_OF_A_KEY];
    size_t room = 0;
    size_t len = key->type == HFI_REPLY_STRING ? hfi_survey_of(call)->pass->names_of(key, of) : 0;
    for (size_t i = 0; i < len; i++) {
        if (!is_wanted(call, names, of[i]))
            continue;
        if (to != NULL) {
            memcpy(to + room, &of[i].len, sizeof of[i].len);
            memcpy(to + room + sizeof of[i].len, of[i].bytes, of[i].len);
        }
        room += sizeof of[i].len + of[i].len;
    }
    return room;
}

/* False: out of memory. */
static bool keep_names(struct hfi_call *call, const struct hfi_reply *keys) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    size_t room = 0;
    for (size_t i = 0; i < keys->elements; i++)
        room += put_names(call, keys->element[i], NULL);
    free(survey->names);
    survey->names_len = survey->names_at = 0;
    survey->names = malloc(room + 1);
    if (survey->names == NULL)
        return false;
    for (size_t i = 0; i < keys->elements; i++)
        survey->names_len += put_names(call, keys->element[i], survey->names + survey->names_len);
    return true;
}

static void scanned(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    if (state->exchange.err != HF_OK) {
        hfi_survey_failed(call);
        return;
    }
    const struct hfi_reply *reply = hfi_answer_of(call);
    if (reply->type != HFI_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != HFI_REPLY_STRING ||
        reply->element[0]->len >= sizeof survey->cursor ||
        reply->element[1]->type != HFI_REPLY_ARRAY) {
        hfi_call_fail_proto(call);
        return;
    }
    memcpy(survey->cursor, reply->element[0]->str, reply->element[0]->len + 1);
    survey->scanned = strcmp(survey->cursor, "0") == 0;
    if (keep_names(call, reply->element[1]))
        read_names(call);
    else
        out_of_memory(call);
}

static void write_scan(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_redis_survey *survey = hfi_state_around(x)->u.survey;
    (void)not_after_ms;
    hfi_command_text(command, "SCAN");
    hfi_command_text(command, survey->cursor);
    hfi_command_text(command, "MATCH");
    survey->pass->write_match(&x->redis->names, hfi_state_around(x)->call, command);
    hfi_command_text(command, "COUNT");
    hfi_command_text(command, SCAN_COUNT);
    hfi_command_text(command, "TYPE");
    hfi_command_text(command, survey->pass->type);
}

static void begin_pass(struct hfi_redis_survey *survey, const struct hfi_survey_pass *pass) {
    survey->pass = pass;
    survey->scanned = false;
    survey->names_len = survey->names_at = 0;
    memcpy(survey->cursor, "0", 2);
}

static void scan(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->scanned && survey->pass->next == NULL) {
        survey->next(call);
        return;
    }
    if (survey->scanned)
        begin_pass(survey, survey->pass->next);
    if (survey->locks_found >= LOCKS_MAX)
        cut(call, "there are more locks than a survey can list");
    else if (is_late(call))
        cut(call, "the time limit ended before all keys were read");
    else
        hfi_survey_send(call, write_scan, scanned);
}

void hfi_survey_scan(struct hfi_call *call, hfi_survey_step *next) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->next = next;
    begin_pass(survey, &locks);
    scan(call);
}
