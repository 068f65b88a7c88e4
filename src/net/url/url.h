/* Parsed connection urls.
 *
 *   redis://[USERINFO@][HOST][:PORT][/DB][?OPTION=VALUE[&...]]
 *       or valkey://; with TLS rediss://, valkeys://
 *   unix://[USERINFO@]/abs/path[?OPTION=VALUE[&...]]
 *       or redis+unix://, redis+uds://, valkey+uds://, redis-socket://
 *   local:[/abs/dir][?OPTION=VALUE[&...]]
 *       a private server of this user
 *   redis-sentinel://[USERINFO@]HOST[:PORT][,...]/NAME[/DB][?OPTION=VALUE[&...]]
 *       or redis+sentinel://, valkey-sentinel://, valkey+sentinel://; with TLS an `s` behind redis
 *       or valkey, or at the end
 *   redis-cluster://[USERINFO@]HOST[:PORT][,...][/DB][?OPTION=VALUE[&...]]
 *       nodes of a cluster; other spellings as for Sentinel
 *   zk://[USERINFO@]HOST[:PORT][,...][/CHROOT][?OPTION=VALUE[&...]]
 *       a ZooKeeper ensemble; with TLS zks://
 *
 * USERINFO is `user:password`, `:password` (the default user) or `password` (no colon: a
 * password, never a user). Userinfo, host, path and option values are percent-decoded; a bad
 * escape or %00 is refused. `+` is a plus, not a space. The host defaults to localhost, the port
 * to 6379, the database to 0.
 *
 * The hosts of a Sentinel url are sentinels, at port 26379; USERINFO is for the servers that
 * they name. NAME may be the option `master` instead (also read as sentinelMasterId,
 * master_name, service_name); then the path is [/DB].
 *
 * Options:
 *   general     db, user, password, name_prefix
 *   in ms       cmd_timeout_ms, connect_timeout_ms, watchdog_ms, max_hold_ms, ping_interval_ms,
 *               fair_wait_ms, restart_guard_ms, report_after_ms, failover_timeout_ms,
 *               ack_timeout_ms
 *   numbers     histogram_names, clock_drift_ppm
 *   acks        off, report, all or a number
 *   on or off   ack_disk, busy_poll, track
 *   Sentinel    sentinel_user (or sentinel_username), sentinel_password, sentinel_tls and
 *               sentinel_confirm (on or off), sentinel_tls_server_name
 *   cluster     pubsub (auto, sharded or classic)
 *   Sentinel and cluster
 *               address_map=ANNOUNCED:PORT=REAL:PORT, any number of times
 *   TLS         tls_ca_file, tls_ca_dir, tls_cert_file, tls_key_file, tls_server_name,
 *               tls_min_version (1.2 or 1.3), tls_verify (full or none)
 *   ZooKeeper   acl (open or creator); but not db, ping_interval_ms, fair_wait_ms, busy_poll and track
 *
 * TLS options without TLS are refused: their author expects TLS. An unknown option is refused by
 * name. Anything given twice is refused, since a url that contradicts itself is a mistake: also
 * the database as /DB and ?db=, or a user before the host and as an option. */
#ifndef HFI_NET_URL_URL_H
#define HFI_NET_URL_URL_H

#include "base/mem.h"

#include <holdfast/holdfast.h>

#define HFI_URL_SOCKET_MAX 107   /* bytes in a Unix socket's path: what sockaddr_un can hold */
#define HFI_URL_LOCAL_DIR_MAX 90 /* bytes; leaves room for the names of its files */

#define HFI_URL_HOSTS_MAX 32

enum hfi_url_kind {
    HFI_URL_TCP,
    HFI_URL_UNIX,
    HFI_URL_LOCAL,
    HFI_URL_SENTINEL,
    HFI_URL_CLUSTER,
    HFI_URL_ZK
};

struct hfi_url_host {
    char *host; /* a name, an IPv4 address, or an IPv6 address without brackets */
    uint16_t port;
};

/* A server announced at one address is reached at the other. */
struct hfi_url_map {
    struct hfi_url_host announced, real;
};

struct hfi_url {
    enum hfi_url_kind kind;
    bool tls;      /* rediss, valkeys */
    char *host;    /* TCP: a name, an IPv4 address, or an IPv6 address without brackets */
    uint16_t port; /* TCP */
    /* UNIX: the socket; LOCAL: the directory, or NULL for the default; ZK: the chroot, or NULL */
    char *path;
    int db;                 /* 0 unless given */
    char *user, *password;  /* NULL: not given */
    int64_t cmd_timeout_ms; /* -1: not given, like all numbers down to clock_drift_ppm */
    int64_t connect_timeout_ms;
    int64_t watchdog_ms;
    int64_t max_hold_ms;
    int64_t ping_interval_ms;
    int64_t fair_wait_ms;
    int64_t restart_guard_ms;
    int64_t report_after_ms;
    int64_t failover_timeout_ms;
    int64_t ack_timeout_ms;
    int64_t histogram_names;
    int64_t clock_drift_ppm;
    int acks; /* as in hf_options; 0: not given */
    enum hfi_url_switch {
        HFI_SWITCH_DEFAULT,
        HFI_SWITCH_ON,
        HFI_SWITCH_OFF
    } ack_disk,
        busy_poll, track;
    char *name_prefix; /* NULL: not given */
    char *tls_ca_file, *tls_ca_dir, *tls_cert_file, *tls_key_file, *tls_server_name; /* NULL */
    int tls_min_version; /* HF_TLS_1_2, HF_TLS_1_3; 0: not given */
    enum hfi_url_verify { HFI_VERIFY_DEFAULT, HFI_VERIFY_FULL, HFI_VERIFY_NONE } tls_verify;

    /* SENTINEL, CLUSTER and ZK. */
    struct hfi_url_host *hosts; /* the sentinels, some cluster nodes, or servers of the ensemble */
    size_t hosts_len;
    struct hfi_url_map *map;
    size_t map_len;

    /* CLUSTER: the kind of pub/sub channel for release messages. */
    enum hfi_url_pubsub {
        HFI_PUBSUB_DEFAULT, /* not given */
        HFI_PUBSUB_AUTO,    /* depends on the first node's answer */
        HFI_PUBSUB_SHARDED,
        HFI_PUBSUB_CLASSIC
    } pubsub;

    /* SENTINEL. */
    char *master;                            /* the sentinels' name for the primary */
    char *sentinel_user, *sentinel_password; /* NULL: not given; never the data servers' */
    enum hfi_url_switch sentinel_tls, sentinel_confirm;
    char *sentinel_tls_server_name;

    /* ZK: the ACL of the nodes we create. */
    enum hfi_url_acl {
        HFI_ACL_DEFAULT, /* not given: the creator, if there is a user */
        HFI_ACL_OPEN,
        HFI_ACL_CREATOR
    } acl;
};

/* Parses `text`. On success the caller owns `ret` and clears it with hfi_url_clear(); on failure
 * `ret` is untouched. Errors: HF_EINVAL with a sentence that names the bad part; HF_ENOMEM. No
 * message ever contains a password, or text that could be a piece of one. `error` may be NULL. */
int hfi_url_parse(const struct hfi_mem *mem, const char *text, struct hfi_url *ret,
                  hf_error *error);

/* A deep copy, which the caller clears. HF_ENOMEM. */
int hfi_url_copy(const struct hfi_mem *mem, const struct hfi_url *url, struct hfi_url *ret);

/* Frees what the url owns, overwriting the passwords first, and leaves it empty. NULL and an
 * all-zero url are fine. */
void hfi_url_clear(const struct hfi_mem *mem, struct hfi_url *url);

#endif
