/*
 * JSON and patterns as clients use them among each other (base/json.h, base/glob.h): what is written can
 * be read, and what anybody may have sent does no harm.
 */
#include "base/glob.h"
#include "base/json.h"
#include "support/case.h"

static const struct hfi_mem plain;

CASE(written_values_can_be_read) {
    static const char odd[] = "a \"b\"\\\n\x01/\x7f \xc3\xa4";
    struct hfi_json json;
    hfi_json_begin(&json, &plain, 10000);
    hfi_json_open(&json, '{');
    hfi_json_bytes(&json, "text", odd, strlen(odd));
    hfi_json_bytes(&json, "bytes", "\xff\x00z", 3);
    hfi_json_pair(&json, "least", INT64_MIN + 1);
    hfi_json_key(&json, "list");
    hfi_json_open(&json, '[');
    hfi_json_number(&json, 1);
    hfi_json_open(&json, '{');
    hfi_json_close(&json, '}');
    hfi_json_close(&json, ']');
    hfi_json_close(&json, '}');
    assert_false(json.full);

    struct hfi_json_reader reader;
    char key[16], text[64];
    size_t len;
    int64_t number;
    hfi_json_read(&reader, json.text, json.len);
    assert_true(hfi_json_enter(&reader, '{'));
    assert_true(hfi_json_next_key(&reader, key, sizeof key));
    assert_string_equal(key, "text");
    assert_true(hfi_json_read_text(&reader, text, sizeof text, &len));
    assert_string_equal(text, odd);
    assert_true(hfi_json_next_key(&reader, key, sizeof key));
    assert_string_equal(key, "bytes_hex");
    assert_true(hfi_json_read_text(&reader, text, 4, &len));
    assert_string_equal(text, "ff0"); /* cut */
    assert_true(hfi_json_next_key(&reader, key, sizeof key));
    assert_true(hfi_json_read_number(&reader, &number));
    assert_int_equal(number, INT64_MIN + 1);
    assert_true(hfi_json_next_key(&reader, key, 3));
    assert_string_equal(key, "li");
    hfi_json_skip(&reader);
    assert_false(hfi_json_next_key(&reader, key, sizeof key));
    assert_true(hfi_json_is_over(&reader));
    free(json.text);
}

CASE(names_that_do_not_fit_are_left_out) {
    struct hfi_json json;
    hfi_json_begin(&json, &plain, 12);
    hfi_json_open(&json, '[');
    hfi_json_text(&json, "one", 3);
    struct hfi_json_mark mark = hfi_json_mark(&json);
    hfi_json_text(&json, "a longer one", 12);
    assert_true(json.full);
    hfi_json_back(&json, mark);
    hfi_json_number(&json, 2);
    hfi_json_close(&json, ']');
    assert_false(json.full);
    assert_int_equal(json.len, 9);
    assert_memory_equal(json.text, "[\"one\",2]", 9);
    free(json.text);
}

/* Reads everything, as it comes. */
static bool read_all(struct hfi_json_reader *reader) {
    hfi_json_skip(reader);
    return hfi_json_is_over(reader);
}

CASE(only_json_is_json) {
    static const char *const good[] = {"{}",    "[]",          "[[],{}]", "{\"a\":[1,2.5,-3e4]}",
                                       " [ ] ", "[true,null]", "\"a\"",   "[\"\\u00e4\\n\"]"};
    static const char *const bad[] = {"",    "{",    "[",          "[1",
                                      "\"a", "\"\\", "\"\\u12",    "\"\\x\"",
                                      "[]]", "]",    "[\"\x01\"]", "[[[[[[[[[[]]]]]]]]]]"};
    struct hfi_json_reader reader;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        hfi_json_read(&reader, good[i], strlen(good[i]));
        assert_true(read_all(&reader));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hfi_json_read(&reader, bad[i], strlen(bad[i]));
        assert_false(read_all(&reader));
    }
}

CASE(numbers_are_whole_and_of_64_bits) {
    static const char *const none[] = {"1.5", "1e3",   "9223372036854775808",       "-",
                                       "x",   "\"1\"", "99999999999999999999999999"};
    struct hfi_json_reader reader;
    int64_t number = 7;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        hfi_json_read(&reader, none[i], strlen(none[i]));
        assert_false(hfi_json_read_number(&reader, &number));
        assert_int_equal(number, 7);
    }
    hfi_json_read(&reader, "-12", 3);
    assert_true(hfi_json_read_number(&reader, &number));
    assert_int_equal(number, -12);
}

/* Texts that were cut or changed somewhere: nothing is read behind the end, and reading ends. Each copy
 * has just its own bytes, so that ASan sees. */
CASE(mangled_texts_do_no_harm) {
    static const char text[] =
        "{\"v\":1,\"id\":\"a\\u00e4\\\\\",\"waits\":[{\"name\":\"x\",\"for_ms\":-1}],"
        "\"holds\":[[],{}],\"n\":123456789012345678}";
    size_t len = sizeof text - 1;
    unsigned chance = 1;
    for (size_t i = 0; i < 20000; i++) {
        chance = chance * 1103515245u + 12345u;
        size_t cut = i < len ? i : len - (chance >> 16) % 3;
        char *copy = malloc(cut + 1), key[8];
        memcpy(copy, text, cut);
        for (unsigned k = 0; cut > 0 && k < 1 + i % 3; k++) {
            chance = chance * 1103515245u + 12345u;
            if (i >= len)
                copy[(chance >> 8) % cut] = "{}[]\",:\\u0\xff\n"[(chance >> 24) % 12];
        }
        copy = realloc(copy, cut > 0 ? cut : 1);
        struct hfi_json_reader reader;
        hfi_json_read(&reader, copy, cut);
        if (hfi_json_enter(&reader, '{'))
            for (int n = 0; hfi_json_next_key(&reader, key, sizeof key); n++) {
                assert_in_range(n, 0, len);
                hfi_json_skip(&reader);
            }
        assert_true(reader.at <= reader.end);
        free(copy);
    }
}

CASE(patterns_match_as_in_redis) {
    static const struct {
        const char *pattern, *name;
        bool matches;
    } rows[] = {
        {"", "anything", true},  {"*", "", true},          {"a*c", "abbbc", true},
        {"a*c", "abbbd", false}, {"a?c", "abc", true},     {"a?c", "ac", false},
        {"[abc]x", "bx", true},  {"[^abc]x", "bx", false}, {"[a-c]x", "bx", true},
        {"[c-a]x", "bx", true},  {"\\*", "*", true},       {"\\*", "a", false},
        {"a", "ab", false},      {"ab", "a", false},       {"*a*b*c*", "xxaxbxcx", true},
        {"[", "x", false},       {"[\\]]", "]", true},     {"a[", "a", false},
        {"**", "x", true},       {"*?", "", false},        {"[^]", "x", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (hfi_glob(rows[i].pattern, strlen(rows[i].pattern), rows[i].name,
                     strlen(rows[i].name)) != rows[i].matches)
            fail_msg("'%s' and '%s'", rows[i].pattern, rows[i].name);
}

/* The time is bounded by the product of the lengths. */
CASE(a_wicked_pattern_ends) {
    char pattern[256], name[4096];
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = 'b';
    assert_false(hfi_glob(pattern, sizeof pattern, name, sizeof name));
}

RUN_CASES(NULL, NULL)
