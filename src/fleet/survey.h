/*
 * Makes one view of an engine's findings (engine/findings.h): joins the reports of servers and
 * clients, and decides which clients are present.
 *
 * Pure: nothing is sent or read here. Clients' reports come from the network and are not trusted;
 * see survey_answers.c.
 */
#ifndef HFI_FLEET_SURVEY_H
#define HFI_FLEET_SURVEY_H

#include "engine/findings.h"

#include <holdfast/holdfast.h>

/* Merges the findings of `len` servers that have the same locks, and takes them over. NULL in `of`:
 * that server did not answer. `majority`: how many of all servers must have a hold. Returns NULL if
 * none answered. */
struct hfi_findings *hfi_findings_merge(struct hfi_findings *const *of, size_t len,
                                        size_t majority);

/* NULL: out of memory. Made with malloc; hfi_fleet_free() frees it. The pattern is the survey's:
 * what does not match is ignored. */
hf_fleet *hfi_fleet_join(const struct hfi_findings *findings, const char *pattern,
                         size_t pattern_len);
void hfi_fleet_free(hf_fleet *fleet); /* NULL is fine */

/* As hf_fleet_deadlocks(). HF_OK or HF_ENOMEM. */
int hfi_fleet_deadlocks(const hf_fleet *earlier, const hf_fleet *later, hf_deadlocks **ret);
void hfi_deadlocks_free(hf_deadlocks *deadlocks);

#endif
