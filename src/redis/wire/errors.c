/*
 * Error replies as codes.
 *
 * Called by exchanges; no state. A reply starts with a word in capitals. Servers before 7.0 wrap an
 * error raised inside a script ("ERR Error running script ...: @user_script:12: WRONGTYPE ..."), so
 * the word is somewhere in the middle. ACL errors of scripts are sentences without such a word. So
 * is the error for an unknown or renamed command (`rename-command`), which then quotes what we
 * sent.
 */
#include "redis/wire/errors.h"

#include "base/error.h"

#include <string.h>

static const struct {
    const char *word;
    int code;
    enum hfi_remedy remedy;
} words[] = {
    {"NOSCRIPT", HF_EUNAVAILABLE, HFI_REMEDY_SEND_BODY},
    {"LOADING", HF_EUNAVAILABLE, HFI_REMEDY_WAIT},
    {"BUSY", HF_EUNAVAILABLE, HFI_REMEDY_WAIT},
    {"MASTERDOWN", HF_EUNAVAILABLE, HFI_REMEDY_ELSEWHERE},
    {"READONLY", HF_EUNAVAILABLE, HFI_REMEDY_ELSEWHERE},
    {"NOREPLICAS", HF_EUNAVAILABLE, HFI_REMEDY_WAIT_PATIENT},
    {"MISCONF", HF_EUNAVAILABLE, HFI_REMEDY_WAIT_PATIENT},
    {"TRYAGAIN", HF_EUNAVAILABLE, HFI_REMEDY_WAIT_MOVE},
    {"CLUSTERDOWN", HF_EUNAVAILABLE, HFI_REMEDY_WAIT_MOVE},
    {"OOM", HF_EOOM, HFI_REMEDY_NONE},
    {"NOAUTH", HF_EPERM, HFI_REMEDY_NONE},
    {"WRONGPASS", HF_EPERM, HFI_REMEDY_NONE},
    {"NOPERM", HF_EPERM, HFI_REMEDY_NONE},
    {"WRONGTYPE", HF_EWRONGTYPE, HFI_REMEDY_NONE},
    {"ERR Key should be of string type", HF_EWRONGTYPE, HFI_REMEDY_NONE}, /* DELEX, SET IFEQ */
    {"The user executing the script can't", HF_EPERM, HFI_REMEDY_NONE},   /* Redis 7.0 */
    {"ACL failure in script:", HF_EPERM, HFI_REMEDY_NONE},                /* Redis 7.2, Valkey */
};

/* Is `word` at `at`, and not only the beginning of a longer one? */
static bool is_word_at(const char *text, size_t len, size_t at, const char *word) {
    size_t word_len = strlen(word);
    if (len - at < word_len || memcmp(text + at, word, word_len) != 0)
        return false;
    return at + word_len == len || text[at + word_len] == ' ';
}

static bool contains_word(const char *text, size_t len, const char *word) {
    for (size_t at = 1; at < len; at++)
        if ((text[at - 1] == ' ' || text[at - 1] == '-') && is_word_at(text, len, at, word))
            return true;
    return false;
}

static bool begins_with(const char *text, size_t len, const char *start) {
    return len >= strlen(start) && memcmp(text, start, strlen(start)) == 0;
}

static bool contains(const char *text, size_t len, const char *part) {
    return memmem(text, len, part, strlen(part)) != NULL;
}

/* For a script's call Redis and Valkey use different words, and before 7.0 the script's name comes
 * first. */
static bool is_about_no_command(const char *text, size_t len) {
    return begins_with(text, len, "ERR unknown command") ||
           contains(text, len, "Unknown Redis command called from") ||
           contains(text, len, "Unknown command called from");
}

/* The server lacks the command. If it is EVALSHA, send the script's body: EVAL may still exist. */
static int lacks_command(const char *text, size_t len, enum hfi_remedy *ret_remedy) {
    bool by_number = contains(text, len, "EVALSHA");
    *ret_remedy = by_number ? HFI_REMEDY_SEND_BODY : HFI_REMEDY_NONE;
    return HF_ENOTSUP;
}

/* EVAL or its engine is missing: Valkey 9.1 answers EVAL like this if its Lua module is not loaded.
 * With rename-command, the command itself is unknown. */
static bool is_about_no_scripting(const char *text, size_t len) {
    return contains(text, len, "Could not find scripting engine") ||
           (begins_with(text, len, "ERR unknown command") && contains(text, len, "EVAL"));
}

/* The length without the quote of what we sent. */
static size_t words_len(const char *text, size_t len) {
    const char *sent = memmem(text, len, ", with args", 11);
    return sent != NULL ? (size_t)(sent - text) : len;
}

int hfi_error_of_reply(const struct hfi_reply *reply, hf_error *error,
                       enum hfi_remedy *ret_remedy) {
    const char *text = reply->str;
    size_t len = reply->len;
    bool lacking = is_about_no_command(text, len);
    bool wrapped = is_word_at(text, len, 0, "ERR") && contains(text, len, "script");
    int code = HF_EUNAVAILABLE;
    *ret_remedy = HFI_REMEDY_NONE;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!is_word_at(text, len, 0, words[i].word) &&
            !(wrapped && contains_word(text, len, words[i].word)))
            continue;
        code = words[i].code;
        *ret_remedy = words[i].remedy;
        break;
    }
    size_t own_len = lacking ? words_len(text, len) : len;
    bool scriptless = is_about_no_scripting(text, own_len);
    if (lacking)
        code = lacks_command(text, own_len, ret_remedy);
    else if (scriptless)
        code = HF_ENOTSUP;
    if (error != NULL) {
        hfi_fail(error, code, "%s",
                 scriptless ? "the server runs no scripts (EVAL is disabled, or its Lua module is "
                              "not loaded): "
                            : "");
        hfi_error_quote(error, text, own_len);
    }
    return code;
}
