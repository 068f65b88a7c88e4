/* Cases of a test program, each of which registers itself.
 *
 *     CASE(a_release_frees_the_lock) {
 *         ...
 *     }
 *     RUN_CASES(start_server, stop_server)
 *
 * Include as "support/case.h", which stands for the usual standard headers, too. RUN_CASES is the
 * last line of the program and its main(); it takes the group's setup and teardown, or NULL. The
 * cases run in the order of their lines. */
#ifndef HF_TEST_CASE_H
#define HF_TEST_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct test_case {
    struct CMUnitTest test; /* of a table: its first row is the initial state */
    size_t rows, row_size;  /* no table: 0 rows */
    int line;
    struct test_case *next;
};
void test_case_register(struct test_case *test_case);
/* For a main() that makes cases while it runs; they come first, in the order of the calls. */
void test_case_add(const char *name, CMUnitTestFunction function, void *initial_state);
int test_cases_run(CMFixtureFunction setup, CMFixtureFunction teardown);

#define RUN_CASES(setup, teardown)                                                                 \
    int main(void) {                                                                               \
        return test_cases_run(setup, teardown);                                                    \
    }

/* NOLINTBEGIN(bugprone-macro-parentheses): they name functions, types and variables */
#define CASE_REGISTER(name_, row_count, size_of_row, ...)                                          \
    static void name_(void **state);                                                               \
    __attribute__((constructor)) static void name_##_registers(void) {                             \
        static struct test_case test_case = {.test = {#name_, name_, __VA_ARGS__},                 \
                                             .rows = (row_count),                                  \
                                             .row_size = (size_of_row),                            \
                                             .line = __LINE__};                                    \
        test_case_register(&test_case);                                                            \
    }

#define CASE(name) CASE_AROUND(name, NULL, NULL)

/* With a setup and a teardown of its own, which run on failure, too. */
#define CASE_AROUND(name, setup, teardown)                                                         \
    CASE_REGISTER(name, 0, 0, setup, teardown, NULL)                                               \
    static void name(void **state __attribute__((unused)))

/* In a scene, to which `scene` points in the body. `begin` is called with it first; `end` is called
 * when the body returns, so not on failure. */
#define CASE_IN(name, type, scene, begin, end, ...)                                                \
    static void name##_in_scene(type *scene);                                                      \
    CASE(name) {                                                                                   \
        type within;                                                                               \
        begin(&within, ##__VA_ARGS__);                                                             \
        name##_in_scene(&within);                                                                  \
        end(&within);                                                                              \
    }                                                                                              \
    static void name##_in_scene(type *scene __attribute__((unused)))

/* The same, if `begin` takes options: `base`, which assignments to fields of `options` may follow.
 *
 *     WORLD_CASE_WITH(a_short_wait, world_options(), options.cmd_timeout_ms = 100) */
#define CASE_WITH(name, type, scene, begin, end, base, ...)                                        \
    CASE_IN(name, type, scene, begin, end, (hf_options[]){__extension__({                          \
                hf_options options = base;                                                         \
                (void)0, ##__VA_ARGS__;                                                            \
                options;                                                                           \
            })})

/* A scene that the case begins by itself, with what it has only then: `OWN(world_end) struct world
 * w;`. It ends when the body returns, after all that is declared below it. */
#define OWN(end) __attribute__((cleanup(end), unused))

/* A case for each row of a table, whose first member is `const char *name`. The case is called
 * name.row, and `row` points to the row in the body. */
#define ROW_CASES(name, row, table)                                                                \
    static void name##_with(const __typeof__((table)[0]) *row);                                    \
    CASE_REGISTER(name, sizeof(table) / sizeof *(table), sizeof *(table), NULL, NULL,              \
                  (void *)(uintptr_t)(table))                                                      \
    static void name(void **state) {                                                               \
        name##_with(*state);                                                                       \
    }                                                                                              \
    static void name##_with(const __typeof__((table)[0]) *row)

/* Both: a case for each row, each in a scene of its own. */
#define ROW_CASES_IN(name, row, table, type, scene, begin, end, ...)                               \
    static void name##_with_in(const __typeof__((table)[0]) *row, type *scene);                    \
    ROW_CASES(name, row, table) {                                                                  \
        type within;                                                                               \
        begin(&within, ##__VA_ARGS__);                                                             \
        name##_with_in(row, &within);                                                              \
        end(&within);                                                                              \
    }                                                                                              \
    static void name##_with_in(const __typeof__((table)[0]) *row __attribute__((unused)),          \
                               type *scene __attribute__((unused)))
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
