/* What a survey and an inspection found, as JSON. Made with malloc; NULL: out of memory. */
#ifndef HFI_FLEET_FLEET_JSON_H
#define HFI_FLEET_FLEET_JSON_H

#include <holdfast/holdfast.h>

char *hfi_fleet_json(const hf_fleet *fleet);
char *hfi_lock_info_json(const char *name, size_t name_len, const hf_lock_info *info);

#endif
