/* The field name of a group's value on the wire: HighwayHash-128 of its bytes, by the published
 * description (J. Alakuijala, B. Cox, J. Wassenberg, "Fast keyed hash/pseudo-random function using
 * SIMD multiply and permute", 2016) with the key that Redisson uses, as Base64 without padding. */
#ifndef HFI_REDIS_WIRE_HIGHWAYHASH_H
#define HFI_REDIS_WIRE_HIGHWAYHASH_H

#include <stddef.h>

#define HFI_FIELD_LEN 22 /* characters; there is no NUL behind them */

void hfi_highwayhash_field(const void *value, size_t len, char field[HFI_FIELD_LEN]);

#endif
