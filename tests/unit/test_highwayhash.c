/*
 * The fields of a group's values: the vectors that Redisson 4.7 was seen to write. That every length
 * up to 100 comes out as in Java is shown by the interop tests. No server.
 */

#include "redis/wire/highwayhash.h"
#include "support/case.h"

static const struct {
    const char *value, *field;
} vectors[] = {
    {"", "t6rZwibGo2uy1OSmNVe8pg"},
    {"Jack_001", "7pNoDdizVy2xY792MaFv+w"},
    {"Mary_002", "kIX2DFOX4IWct7G7K6tV9A"},
    {"abcdefghijklmnopqrstuvwxyz0123456789", "nMtxa73M/ZjwHCcA4AdYhg"},
};

CASE(C117_fields_that_java_writes) {
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        char field[HFI_FIELD_LEN + 1] = {0};
        hfi_highwayhash_field(vectors[i].value, strlen(vectors[i].value), field);
        assert_string_equal(field, vectors[i].field);
    }
}

/* Each byte and each length matters, whatever the bytes are. */
CASE(every_length_and_byte_counts) {
    enum { LONGEST = 100 };
    unsigned char value[LONGEST];
    static char fields[2 * LONGEST + 1][HFI_FIELD_LEN];
    size_t count = 0;
    memset(value, 0, sizeof value);
    for (size_t len = 0; len <= LONGEST; len++)
        hfi_highwayhash_field(value, len, fields[count++]);
    for (size_t at = 0; at < LONGEST; at++) {
        value[at] = 0x80;
        hfi_highwayhash_field(value, LONGEST, fields[count++]);
        value[at] = 0;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(fields[i], fields[j], HFI_FIELD_LEN);
}

RUN_CASES(NULL, NULL)
