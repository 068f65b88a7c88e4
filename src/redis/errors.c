/*
 * Error replies of the server as codes.
 *
 * Called by the exchanges; no state. A reply starts with a word in capitals. Servers before 7.0
 * wrap an error that was raised inside a script ("ERR Error running script ...: @user_script:12:
 * WRONGTYPE ..."), and the word is then somewhere in the middle; the access list has sentences
 * without a word for what scripts may not do.
 */
#include "redis/errors.h"

#include "base/error.h"

#include <string.h>

static const struct {
    const char *word;
    int code;
    enum hfi_remedy remedy;
} words[] = {
    {"NOSCRIPT", HF_EREFUSED, HFI_REMEDY_SEND_BODY},
    {"LOADING", HF_EREFUSED, HFI_REMEDY_WAIT},
    {"BUSY", HF_EREFUSED, HFI_REMEDY_WAIT},
    {"MASTERDOWN", HF_EREFUSED, HFI_REMEDY_ELSEWHERE},
    {"READONLY", HF_EREFUSED, HFI_REMEDY_ELSEWHERE},
    {"NOREPLICAS", HF_EREFUSED, HFI_REMEDY_WAIT_PATIENT},
    {"MISCONF", HF_EREFUSED, HFI_REMEDY_WAIT_PATIENT},
    {"TRYAGAIN", HF_EREFUSED, HFI_REMEDY_WAIT_MOVE},
    {"CLUSTERDOWN", HF_EREFUSED, HFI_REMEDY_WAIT_MOVE},
    {"OOM", HF_EOOM, HFI_REMEDY_NONE},
    {"NOAUTH", HF_EPERM, HFI_REMEDY_NONE},
    {"WRONGPASS", HF_EPERM, HFI_REMEDY_NONE},
    {"NOPERM", HF_EPERM, HFI_REMEDY_NONE},
    {"WRONGTYPE", HF_EWRONGTYPE, HFI_REMEDY_NONE},
    {"The user executing the script can't", HF_EPERM, HFI_REMEDY_NONE}, /* Redis 7.0 */
    {"ACL failure in script:", HF_EPERM, HFI_REMEDY_NONE},              /* Redis 7.2, Valkey */
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

int hfi_error_of_reply(const redisReply *reply, hf_error *error, enum hfi_remedy *ret_remedy) {
    const char *text = reply->str;
    size_t len = reply->len;
    bool wrapped = is_word_at(text, len, 0, "ERR") && memmem(text, len, "script", 6) != NULL;
    int code = HF_EREFUSED;
    *ret_remedy = HFI_REMEDY_NONE;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!is_word_at(text, len, 0, words[i].word) &&
            !(wrapped && contains_word(text, len, words[i].word)))
            continue;
        code = words[i].code;
        *ret_remedy = words[i].remedy;
        break;
    }
    if (error != NULL) {
        hfi_fail(error, code, "%s", "");
        hfi_error_quote(error, text, len);
    }
    return code;
}
