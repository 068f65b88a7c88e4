/*
 * The lists of fields in the public header, for generators of bindings, have every field of their
 * structs, in order, with its type: a struct that is made of the list is the same.
 */
#include <holdfast/holdfast.h>

#include "support/case.h"

#define MEMBER(type, field) type field;
#define SAME(name, listed, field)                                                                  \
    assert_int_equal(offsetof(listed, field), offsetof(name, field));                              \
    assert_true(__builtin_types_compatible_p(__typeof__(((listed *)0)->field),                     \
                                             __typeof__(((name *)0)->field)));

struct options_listed {
    size_t size;
    HF_OPTIONS_FIELDS(MEMBER)
};
struct result_listed {
    size_t size;
    HF_RESULT_FIELDS(MEMBER)
};
struct stats_listed {
    size_t size;
    HF_STATS_FIELDS(MEMBER)
};

#define OPTION(type, field) SAME(hf_options, struct options_listed, field)
#define RESULT(type, field) SAME(hf_result, struct result_listed, field)
#define STATISTIC(type, field) SAME(hf_stats, struct stats_listed, field)

CASE(list_of_options_is_complete) {
    assert_int_equal(sizeof(struct options_listed), sizeof(hf_options));
    HF_OPTIONS_FIELDS(OPTION)
}

CASE(list_of_results_is_complete) {
    assert_int_equal(sizeof(struct result_listed), sizeof(hf_result));
    HF_RESULT_FIELDS(RESULT)
}

CASE(list_of_statistics_is_complete) {
    assert_int_equal(sizeof(struct stats_listed), sizeof(hf_stats));
    HF_STATS_FIELDS(STATISTIC)
}

RUN_CASES(NULL, NULL)
