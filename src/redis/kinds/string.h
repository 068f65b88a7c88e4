/* The string lock's commands, for its table and for late_copies.c. */
#ifndef HFI_REDIS_KINDS_STRING_H
#define HFI_REDIS_KINDS_STRING_H

#include "redis/kinds/kind.h"

/* How a server deletes a key that has a value; hfi_learnt.delete_by. */
enum hfi_delete {
    HFI_DELETE_UNKNOWN, /* not asked yet */
    HFI_DELETE_BY_SCRIPT,
    HFI_DELETE_IFEQ,   /* DELIFEQ key value */
    HFI_DELETE_EX_IFEQ /* DELEX key IFEQ value */
};

/* A token: the bytes of a hold at the server. */
size_t hfi_string_token_len(const struct hfi_stamp *stamp, size_t owner_len);
void hfi_string_write_token(const struct hfi_stamp *stamp, const char *owner, size_t owner_len,
                            char *to);

/* Whether a value has the form of our tokens. */
bool hfi_string_is_ours(const struct hfi_reply *reply);

/* A release of a token, whose exchange is anybody's: as in struct hfi_redis_kind. */
void hfi_string_choose_release(struct hfi_exchange *x);
bool hfi_string_learn(struct hfi_exchange *x);
void hfi_string_write_release_of(const struct hfi_exchange *x, const char *name, size_t name_len,
                                 const char *token, size_t token_len, struct hfi_command *command);
int hfi_string_read_release(const struct hfi_exchange *x, struct hfi_release_answer *ret);

/* string.c, as operations of the engine */
extern const struct hfi_call_ops hfi_redis_string_ops;

#endif
