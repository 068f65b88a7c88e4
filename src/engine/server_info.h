/* What a server reports about itself (hf_server_info). An engine makes it with malloc, the caller
 * frees it. */
#ifndef HFI_ENGINE_SERVER_INFO_H
#define HFI_ENGINE_SERVER_INFO_H

#include <holdfast/holdfast.h>

/* Adds a field whose name is the group and the name. If `value` has no bytes, not even "", it is
 * not known, and `why` says why. False: out of memory. */
bool hfi_server_info_add(hf_server_info *info, const char *group, hf_bytes name, hf_bytes value,
                         const char *why);
bool hfi_server_info_add_text(hf_server_info *info, const char *group, const char *name,
                              const char *value, const char *why);
bool hfi_server_info_add_number(hf_server_info *info, const char *name, int64_t number);

void hfi_server_info_free(hf_server_info *info); /* NULL and partly filled ones are fine */

/* The same for what it reports about a lock. */
void hfi_lock_info_free(hf_lock_info *info);

#endif
