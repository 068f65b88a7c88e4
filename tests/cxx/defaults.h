/* What the `HF_..._INIT` macros are in C, for a C++ test to compare with. */
#ifndef HF_TEST_CXX_DEFAULTS_H
#define HF_TEST_CXX_DEFAULTS_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const hf_options c_options;
extern const hf_lock_options c_lock;
extern const hf_acquire_options c_acquire;
extern const hf_result c_result;
extern const hf_wait_options c_wait;
extern const hf_permits_options c_permits;
extern const hf_extend_options c_extend;
extern const hf_stats c_stats;

#ifdef __cplusplus
}
#endif
#endif
