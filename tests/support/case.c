/*
 * Cases that register themselves before main(); see case.h.
 *
 * Nothing here is freed before the program ends.
 */
#include "support/case.h"

#include "support/wait.h"

static struct test_case *registered; /* by their lines */
static struct CMUnitTest *tests;

/* Constructors run in no order that C promises. */
void test_case_register(struct test_case *test_case) {
    struct test_case **place = &registered;
    while (*place != NULL && (*place)->line <= test_case->line)
        place = &(*place)->next;
    test_case->next = *place;
    *place = test_case;
}

static void *get_memory(size_t count, size_t size) {
    void *memory = zeroed(count, size);
    return memory;
}

void test_case_add(const char *name, CMUnitTestFunction function, void *initial_state) {
    struct test_case *test_case = get_memory(1, sizeof *test_case);
    test_case->test = (struct CMUnitTest){name, function, NULL, NULL, initial_state};
    test_case_register(test_case);
}

static const char *name_of_row(const char *name, const char *row) {
    int len = snprintf(NULL, 0, "%s.%s", name, row);
    char *text = get_memory(1, (size_t)len + 1);
    snprintf(text, (size_t)len + 1, "%s.%s", name, row);
    return text;
}

static size_t add_rows(const struct test_case *test_case, struct CMUnitTest *added) {
    char *row = test_case->test.initial_state;
    for (size_t i = 0; i < test_case->rows; i++, row += test_case->row_size) {
        added[i] = test_case->test;
        added[i].name = name_of_row(test_case->test.name, *(const char **)(void *)row);
        added[i].initial_state = row;
    }
    return test_case->rows;
}

int test_cases_run(CMFixtureFunction setup, CMFixtureFunction teardown) {
    size_t count = 0;
    for (struct test_case *each = registered; each != NULL; each = each->next)
        count += each->rows > 0 ? each->rows : 1;
    tests = get_memory(count + 1, sizeof *tests);
    count = 0;
    for (struct test_case *each = registered; each != NULL; each = each->next) {
        if (each->rows > 0)
            count += add_rows(each, tests + count);
        else
            tests[count++] = each->test;
    }
    return _cmocka_run_group_tests("tests", tests, count, setup, teardown);
}
