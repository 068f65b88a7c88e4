/* The fenced lock's acquire and its extension with a wish, row by row. Its other scripts are the plain
 * lock's.
 *
 * Data only, played by test_plain_scripts.c. As plain_rows.c, with the counter beside it: a row
 * shows what the lock and the counter are afterwards, and what a resend leaves, since that draws a
 * token anew. The counters are ahead of any clock, so that they count
 * one up; those that are behind take the time, which is no row (test_plain_scripts.c). */
#include "plain_rows.h"

#define COUNTER "thetoken"
#define FENCED "fenced_acquire"
#define ACQUIRE "thelock thetoken , 0 me 30000 "
#define EXT "fenced_extend"
#define EXTEND(wish) "thelock thetoken , 0 me 30000 " wish
#define HELD "SET thetoken 8000000000000005; HSET thelock me 1; PEXPIRE thelock 5000"
#define AT_FIVE                                                                                    \
    { COUNTER, "string 8000000000000005", NO_TTL }
#define AT_SIX                                                                                     \
    { COUNTER, "string 8000000000000006", NO_TTL }
#define AT_SEVEN                                                                                   \
    { COUNTER, "string 8000000000000007", NO_TTL }

const struct row fenced_rows[] = {
    /* ---- first: c = 0 ---- */
    {"fenced_free", "SET thetoken 8000000000000005", FENCED, ACQUIRE "0", "1 1 8000000000000006",
     .after = {{LOCK, "me=1", 30000}, AT_SIX}, .resent = {{LOCK, "me=1", 30000}, AT_SEVEN}},
    {"fenced_free_in_time", "SET thetoken 8000000000000005", FENCED,
     "thelock thetoken , @+60000 me 30000 0", "1 1 8000000000000006",
     .after = {{LOCK, "me=1", 30000}, AT_SIX}, .resent = {{LOCK, "me=1", 30000}, AT_SEVEN}},
    {"fenced_free_too_late", "SET thetoken 8000000000000005", FENCED,
     "thelock thetoken , @-1 me 30000 0", "-3 0", .after = {ABSENT, AT_FIVE}},
    {"fenced_another_holds",
     "SET thetoken 8000000000000005; HSET thelock you 2; PEXPIRE thelock 20000", FENCED,
     ACQUIRE "0", "0 ~20000", .after = {{LOCK, "you=2", 20000}, AT_FIVE}},
    {"U75_fenced_another_holds_without_ttl", "SET thetoken 8000000000000005; HSET thelock you 1",
     FENCED, ACQUIRE "0", "0 -1", .after = {{LOCK, "you=1", NO_TTL}, AT_FIVE}},
    {"fenced_another_holds_and_no_counter", "HSET thelock you 1; PEXPIRE thelock 20000", FENCED,
     ACQUIRE "0", "0 ~20000", .after = {{LOCK, "you=1", 20000}, {COUNTER, NULL, 0}}},
    {"fenced_resent", "SET thetoken 8000000000000005; HSET thelock me 1; PEXPIRE thelock 5000",
     FENCED, ACQUIRE "0", "1 1 8000000000000006", .after = {{LOCK, "me=1", 30000}, AT_SIX},
     .resent = {{LOCK, "me=1", 30000}, AT_SEVEN}},
    {"fenced_resent_never_lowers_the_ttl",
     "SET thetoken 8000000000000005; HSET thelock me 1; PEXPIRE thelock 60000", FENCED, ACQUIRE "0",
     "1 1 8000000000000006", .after = {{LOCK, "me=1", 60000}, AT_SIX},
     .resent = {{LOCK, "me=1", 60000}, AT_SEVEN}},
    {"fenced_own_residue",
     "SET thetoken 8000000000000005; HSET thelock me 3; PEXPIRE thelock 60000", FENCED, ACQUIRE "0",
     "1 1 8000000000000006", .after = {{LOCK, "me=1", 30000}, AT_SIX},
     .resent = {{LOCK, "me=1", 30000}, AT_SEVEN}},

    /* ---- again: c >= 1 ---- */
    {"fenced_reenter_gone", "SET thetoken 8000000000000005", FENCED, ACQUIRE "1", "-1 0",
     .after = {ABSENT, AT_FIVE}},
    {"fenced_reenter_another_holds",
     "SET thetoken 8000000000000005; HSET thelock you 1; PEXPIRE thelock 20000", FENCED,
     ACQUIRE "1", "-1 0", .after = {{LOCK, "you=1", 20000}, AT_FIVE}},
    {"U75_fenced_reenter", "SET thetoken 8000000000000005; HSET thelock me 1; PEXPIRE thelock 5000",
     FENCED, ACQUIRE "1", "1 2 8000000000000006", .after = {{LOCK, "me=2", 30000}, AT_SIX},
     .resent = {{LOCK, "me=2", 30000}, AT_SEVEN}},
    {"fenced_reenter_without_ttl", "SET thetoken 8000000000000005; HSET thelock me 1", FENCED,
     ACQUIRE "1", "1 2 8000000000000006", .after = {{LOCK, "me=2", NO_TTL}, AT_SIX},
     .resent = {{LOCK, "me=2", NO_TTL}, AT_SEVEN}},
    {"fenced_reenter_resent",
     "SET thetoken 8000000000000005; HSET thelock me 3; PEXPIRE thelock 60000", FENCED, ACQUIRE "2",
     "1 3 8000000000000006", .after = {{LOCK, "me=3", 60000}, AT_SIX},
     .resent = {{LOCK, "me=3", 60000}, AT_SEVEN}},
    {"fenced_reenter_count_too_low",
     "SET thetoken 8000000000000005; HSET thelock me 1; PEXPIRE thelock 5000", FENCED, ACQUIRE "2",
     "-2 1", .after = {{LOCK, "me=1", 5000}, AT_FIVE}},
    {"fenced_reenter_count_too_high",
     "SET thetoken 8000000000000005; HSET thelock me 4; PEXPIRE thelock 5000", FENCED, ACQUIRE "2",
     "-2 4", .after = {{LOCK, "me=4", 5000}, AT_FIVE}},
    {"fenced_reenter_too_late",
     "SET thetoken 8000000000000005; HSET thelock me 1; PEXPIRE thelock 5000", FENCED,
     "thelock thetoken , @-1 me 30000 1", "-3 0", .after = {{LOCK, "me=1", 5000}, AT_FIVE}},

    /* ---- the counter's edges ---- */
    {"U75_fenced_last_token", "SET thetoken 9007199254740990", FENCED, ACQUIRE "0",
     "1 1 9007199254740991",
     .after = {{LOCK, "me=1", 30000}, {COUNTER, "string 9007199254740991", NO_TTL}}},
    {"U75_fenced_counter_at_its_end", "SET thetoken 9007199254740991", FENCED, ACQUIRE "0",
     "!ERR the token counter", .after = {ABSENT, {COUNTER, "string 9007199254740991", NO_TTL}}},
    {"U75_fenced_counter_at_the_servers_end", "SET thetoken 9223372036854775807", FENCED,
     ACQUIRE "0", "!ERR the token counter",
     .after = {ABSENT, {COUNTER, "string 9223372036854775807", NO_TTL}}},
    {"U75_fenced_reenter_counter_at_its_end",
     "SET thetoken 9223372036854775807; HSET thelock me 1; PEXPIRE thelock 5000", FENCED,
     ACQUIRE "1", "!ERR the token counter",
     .after = {{LOCK, "me=1", 5000}, {COUNTER, "string 9223372036854775807", NO_TTL}}},
    {"U75_fenced_counter_is_a_list", "RPUSH thetoken 5", FENCED, ACQUIRE "0", "!WRONGTYPE",
     .after = {ABSENT, {COUNTER, "list", NO_TTL}}},
    {"U67_fenced_counter_is_text", "SET thetoken many", FENCED, ACQUIRE "0",
     "!WRONGTYPE the token counter", .after = {ABSENT, {COUNTER, "string many", NO_TTL}}},
    {"U75_fenced_counter_is_negative", "SET thetoken -5", FENCED, ACQUIRE "0",
     "!WRONGTYPE the token counter", .after = {ABSENT, {COUNTER, "string -5", NO_TTL}}},

    /* ---- what it should not ---- */
    {"U01_fenced_lease_zero", "SET thetoken 8000000000000005", FENCED,
     "thelock thetoken , 0 me 0 0", "!ERR the lease", .after = {ABSENT, AT_FIVE}},
    {"U02_fenced_lease_too_long", "SET thetoken 8000000000000005", FENCED,
     "thelock thetoken , 0 me 9223372036854775807 0", "!ERR invalid expire",
     .after = {ABSENT, AT_SIX}, .resent = {ABSENT, AT_SEVEN}},
    {"U67_fenced_string", "SET thetoken 8000000000000005; SET thelock text", FENCED, ACQUIRE "0",
     "!WRONGTYPE", .after = {{LOCK, "string text", NO_TTL}, AT_FIVE}},
    {"U67_fenced_text_for_a_count",
     "SET thetoken 8000000000000005; HSET thelock me many; PEXPIRE thelock 5000", FENCED,
     ACQUIRE "0", "!WRONGTYPE the hold count", .after = {{LOCK, "me=many", 5000}, AT_FIVE}},
    {"U67_fenced_endless_count",
     "SET thetoken 8000000000000005; HSET thelock me 1e308; PEXPIRE thelock 5000", FENCED,
     ACQUIRE "0", "!WRONGTYPE the hold count", .after = {{LOCK, "me=1e308", 5000}, AT_FIVE}},
    {"U68_fenced_read_lock",
     "SET thetoken 8000000000000005; HSET thelock mode read me 1; PEXPIRE thelock 5000", FENCED,
     ACQUIRE "0", "!WRONGTYPE this is a read/write lock",
     .after = {{LOCK, "me=1 mode=read", 5000}, AT_FIVE}},

    /* ---- an extension with a wish ---- */
    {"fenced_extend_stores_what_is_wished", HELD, EXT, EXTEND("8000000000000009"),
     "1 8000000000000009",
     .after = {{LOCK, "me=1", 30000}, {COUNTER, "string 8000000000000009", NO_TTL}}},
    {"fenced_extend_never_lowers_the_counter", HELD, EXT, EXTEND("4"), "1 8000000000000005",
     .after = {{LOCK, "me=1", 30000}, AT_FIVE}},
    {"fenced_extend_draws_another", HELD, EXT, EXTEND("-1"), "1 8000000000000006",
     .after = {{LOCK, "me=1", 30000}, AT_SIX}, .resent = {{LOCK, "me=1", 30000}, AT_SEVEN}},
    {"fenced_extend_counter_was_lost", "HSET thelock me 1; PEXPIRE thelock 5000", EXT, EXTEND("7"),
     "1 7", .after = {{LOCK, "me=1", 30000}, {COUNTER, "string 7", NO_TTL}}},
    {"fenced_extend_never_lowers_the_ttl",
     "SET thetoken 8000000000000005; HSET thelock me 1; PEXPIRE thelock 60000", EXT, EXTEND("4"),
     "1 8000000000000005", .after = {{LOCK, "me=1", 60000}, AT_FIVE}},
    {"fenced_extend_gone", "SET thetoken 8000000000000005", EXT, EXTEND("8000000000000009"), "0 0",
     .after = {ABSENT, AT_FIVE}},
    {"fenced_extend_another_holds",
     "SET thetoken 8000000000000005; HSET thelock you 1; PEXPIRE thelock 20000", EXT,
     EXTEND("8000000000000009"), "0 0", .after = {{LOCK, "you=1", 20000}, AT_FIVE}},
    {"fenced_extend_too_late", HELD, EXT, "thelock thetoken , @-1 me 30000 8000000000000009",
     "-3 0", .after = {{LOCK, "me=1", 5000}, AT_FIVE}},
    {"fenced_extend_counter_at_its_end",
     "SET thetoken 9007199254740991; HSET thelock me 1; PEXPIRE thelock 5000", EXT, EXTEND("-1"),
     "!ERR the token counter",
     .after = {{LOCK, "me=1", 5000}, {COUNTER, "string 9007199254740991", NO_TTL}}},
    {"fenced_extend_counter_beyond_its_end",
     "SET thetoken 9223372036854775807; HSET thelock me 1; PEXPIRE thelock 5000", EXT, EXTEND("5"),
     "!ERR the token counter",
     .after = {{LOCK, "me=1", 5000}, {COUNTER, "string 9223372036854775807", NO_TTL}}},
    {"fenced_extend_counter_is_text", "SET thetoken many; HSET thelock me 1; PEXPIRE thelock 5000",
     EXT, EXTEND("5"), "!WRONGTYPE the token counter",
     .after = {{LOCK, "me=1", 5000}, {COUNTER, "string many", NO_TTL}}},
    {"fenced_extend_string", "SET thetoken 8000000000000005; SET thelock text", EXT, EXTEND("5"),
     "-1 0", .after = {{LOCK, "string text", NO_TTL}, AT_FIVE}},
    {"fenced_extend_lease_zero", HELD, EXT, "thelock thetoken , 0 me 0 5", "!ERR the lease",
     .after = {{LOCK, "me=1", 5000}, AT_FIVE}},
};

const size_t fenced_row_count = sizeof fenced_rows / sizeof *fenced_rows;
