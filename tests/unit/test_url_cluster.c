/* Urls of a cluster: every spelling of the scheme, several nodes, and the options that are theirs. */
#include "support/case.h"
#include "unit/urls.h"

/* A url in one line: "hosts|db|tls|user|password|pubsub|map". */
static void describe(const struct hfi_url *url, char *text, size_t size) {
    static const char *const pubsub[] = {"-", "auto", "sharded", "classic"};
    FILE *out = fmemopen(text, size, "w");
    for (size_t i = 0; i < url->hosts_len; i++)
        fprintf(out, "%s%s:%u", i > 0 ? "," : "", url->hosts[i].host, (unsigned)url->hosts[i].port);
    fprintf(out, "|%d|%s|%s|%s|%s|", url->db, url->tls ? "tls" : "clear",
            url->user != NULL ? url->user : "-", url->password != NULL ? url->password : "-",
            pubsub[url->pubsub]);
    for (size_t i = 0; i < url->map_len; i++)
        fprintf(out, "%s%s:%u=%s:%u", i > 0 ? "," : "", url->map[i].announced.host,
                (unsigned)url->map[i].announced.port, url->map[i].real.host,
                (unsigned)url->map[i].real.port);
    fclose(out);
}

static const struct good_url good[] = {
    {"redis-cluster://h1", "h1:6379|0|clear|-|-|-|"},
    {"redis-cluster://h1:1,h2,[::3]:3", "h1:1,h2:6379,::3:3|0|clear|-|-|-|"},
    {"redis-cluster://", "localhost:6379|0|clear|-|-|-|"},
    {"redis-cluster://h/", "h:6379|0|clear|-|-|-|"},
    {"redis+cluster://h", "h:6379|0|clear|-|-|-|"},
    {"valkey-cluster://h", "h:6379|0|clear|-|-|-|"},
    {"valkey+cluster://h", "h:6379|0|clear|-|-|-|"},
    {"rediss-cluster://h", "h:6379|0|tls|-|-|-|"},
    {"rediss+cluster://h", "h:6379|0|tls|-|-|-|"},
    {"valkeys-cluster://h", "h:6379|0|tls|-|-|-|"},
    {"VALKEYS+CLUSTER://h", "h:6379|0|tls|-|-|-|"},
    {"redis-clusters://h", "h:6379|0|tls|-|-|-|"},
    {"redis+clusters://h", "h:6379|0|tls|-|-|-|"},
    {"valkey-clusters://h", "h:6379|0|tls|-|-|-|"},
    {"valkey+clusters://h", "h:6379|0|tls|-|-|-|"},
    {"redis-cluster://me:p@,/w@h1,h2/3", "h1:6379,h2:6379|3|clear|me|p@,/w|-|"},
    {"redis-cluster://h?db=2&user=me&password=pw", "h:6379|2|clear|me|pw|-|"},
    {"redis-cluster://h?pubsub=auto", "h:6379|0|clear|-|-|auto|"},
    {"redis-cluster://h?pubsub=sharded", "h:6379|0|clear|-|-|sharded|"},
    {"redis-cluster://h?pubsub=classic", "h:6379|0|clear|-|-|classic|"},
    {"redis-cluster://h?address_map=a:1=b:2&address_map=[::1]:1=[::2]:2",
     "h:6379|0|clear|-|-|-|a:1=b:2,::1:1=::2:2"},
    {"rediss-cluster://h?tls_verify=none", "h:6379|0|tls|-|-|-|"},
};

CASE(good_urls_are_taken_apart) {
    assert_good_urls(good, sizeof good / sizeof good[0], HFI_URL_CLUSTER, describe);
}

static const struct bad_url bad[] = {
    {"redis-cluster://:" SECRET "@h/x", "the database is not a number"},
    {"redis-cluster://h/1?db=1", "the database is given twice"},
    {"redis-cluster://h1,,h2", "beside a comma"},
    {"redis-cluster://h1,", "beside a comma"},
    {"redis-cluster://h1:x", "the port"},
    {"redis-cluster://h?pubsub=on", "auto, sharded or classic"},
    {"redis-cluster://h?pubsub=auto&pubsub=auto", "given twice"},
    {"redis-cluster://h?address_map=a:1", "ANNOUNCED:PORT=REAL:PORT"},
    {"redis-cluster://h?tls_ca_file=a", "rediss-cluster://"},
    {"redis-cluster://h?master=m", "redis-sentinel://"},
    {"redis-cluster://h?sentinel_password=" SECRET, "redis-sentinel://"},
    {"redis-cluster://h?nonsense=1", "nonsense"},
    {"redis://h?pubsub=auto", "redis-cluster://"},
    {"unix:///a?pubsub=auto", "redis-cluster://"},
    {"redis://h?address_map=a:1=b:1", "redis-cluster://"},
};

CASE(bad_urls_are_refused_in_words) {
    assert_bad_urls(bad, sizeof bad / sizeof bad[0]);
}

CASE(no_quorum_is_made_of_clusters) {
    hf_client *client;
    assert_int_equal(
        hf_open("redis-cluster://a redis-cluster://b redis-cluster://c", NULL, &client), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "cluster cannot be one server of a quorum"));
    assert_int_equal(hf_open("redis://a redis://b redis+cluster://c", NULL, &client), HF_EINVAL);
}

RUN_CASES(NULL, NULL)
