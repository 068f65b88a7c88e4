/*
 * What is written in the ledger of a stress test; see stress_ledger.h. Read by the driver, on its one
 * thread.
 */
#include "stress_ledger.h"

#include "interop.h"

#include <stdio.h>
#include <string.h>

void stress_load_script(const char *path, char ret_sha1[41]) {
    char text[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof text, file);
    fclose(file);
    own_text *sha1 = cmd_str(suite.server, "SCRIPT LOAD %b", text, len);
    snprintf(ret_sha1, 41, "%s", sha1);
}

long long stress_sections(void) {
    long long sum = 0;
    own_reply *done = cmd(suite.server, "HVALS stress:done");
    for (size_t i = 0; i < done->elements; i++)
        sum += atoll(done->element[i]->str);
    return sum;
}

long long stress_number(const char *key, const char *name) {
    own_text *text = cmd_str(suite.server, "GET %s%s", key, name);
    return text == NULL ? 0 : atoll(text);
}

long long stress_counters(const struct stress_object *objects) {
    long long sum = 0;
    for (int i = 0; i < STRESS_OBJECTS; i++)
        if (i == 0 ||
            strcmp(objects[i].name, objects[i - 1].name) != 0) /* it may be one and the same */
            sum += stress_number("stress:counter:", objects[i].name);
    return sum;
}

bool stress_has_worked(const char *process) {
    long long sections = 0;
    for (int i = 0; i < STRESS_WORKERS; i++) {
        own_text *done = cmd_str(suite.server, "HGET stress:done %s/%d", process, i);
        sections += done == NULL ? 0 : atoll(done);
    }
    return sections > 0;
}

void stress_assert_no_violation(void) {
    redisReply *found = cmd(suite.server, "LRANGE stress:violations 0 -1");
    for (size_t i = 0; i < found->elements; i++)
        print_error("%s\n", found->element[i]->str);
    size_t count = found->elements;
    freeReplyObject(found);
    assert_int_equal(count, 0);
}

/* The longest of all waits; its words, "N ms at place by whom", go to `ret_words` unless that is
 * NULL. */
long long stress_longest_wait_ms(char ret_words[128]) {
    long long longest = -1;
    own_reply *waits = cmd(suite.server, "HGETALL stress:longest");
    for (size_t i = 0; i + 1 < waits->elements; i += 2) {
        const char *words = waits->element[i + 1]->str;
        if (atoll(words) <= longest)
            continue;
        longest = atoll(words);
        if (ret_words != NULL)
            snprintf(ret_words, 128, "%s by %s", words, waits->element[i]->str);
    }
    return longest;
}
