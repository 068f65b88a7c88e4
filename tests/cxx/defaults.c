/*
 * The initialisers of the public header as a C compiler understands them. C++ makes functions from
 * the same lists of defaults; test_header.cpp compares the two.
 */
#include "cxx/defaults.h"

const hf_options c_options = HF_OPTIONS_INIT;
const hf_lock_options c_lock = HF_LOCK_OPTIONS_INIT;
const hf_acquire_options c_acquire = HF_ACQUIRE_OPTIONS_INIT;
const hf_result c_result = HF_RESULT_INIT;
const hf_wait_options c_wait = HF_WAIT_OPTIONS_INIT;
const hf_permits_options c_permits = HF_PERMITS_OPTIONS_INIT;
const hf_extend_options c_extend = HF_EXTEND_OPTIONS_INIT;
const hf_stats c_stats = HF_STATS_INIT;
