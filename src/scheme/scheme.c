/* Picks the engine by the kind of the url. Called by src/api/client.c; no state. */
#include "scheme/scheme.h"

#include "net/url/url.h"
#include "redis/redis.h"
#include "zk/zk.h"

typedef int (*make_fn)(const struct hfi_engine_config *config, struct hfi_engine **ret,
                       hf_error *error);

static const make_fn makers[] = {
    [HFI_URL_TCP] = hfi_redis_new,     [HFI_URL_UNIX] = hfi_redis_new,
    [HFI_URL_LOCAL] = hfi_redis_new,   [HFI_URL_SENTINEL] = hfi_redis_new,
    [HFI_URL_CLUSTER] = hfi_redis_new, [HFI_URL_ZK] = hfi_zk_new,
};

int hfi_engine_new(const struct hfi_engine_config *config, struct hfi_engine **ret,
                   hf_error *error) {
    return makers[config->url->kind](config, ret, error);
}
