/* Making one view of what an engine has found (engine/findings.h): the server's and the clients' halves
 * joined, and who of them is there.
 *
 * Pure: nothing is asked or sent here. What clients say comes from the network and is believed no further
 * than that; see answers.c. */
#ifndef HFI_SURVEY_SURVEY_H
#define HFI_SURVEY_SURVEY_H

#include "engine/findings.h"

#include <holdfast/holdfast.h>

/* NULL: out of memory. Made with malloc; hfi_fleet_free() frees it. The pattern is the one that was asked
 * for: what does not match was not asked for. */
hf_fleet *hfi_fleet_join(const struct hfi_findings *findings, const char *pattern,
                         size_t pattern_len);
void hfi_fleet_free(hf_fleet *fleet); /* NULL is fine */

/* As hf_fleet_deadlocks(). HF_OK or HF_ENOMEM. */
int hfi_fleet_deadlocks(const hf_fleet *earlier, const hf_fleet *later, hf_deadlocks **ret);
void hfi_deadlocks_free(hf_deadlocks *deadlocks);

#endif
