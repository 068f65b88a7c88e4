/*
 * Urls of Sentinel: every form that people write for other clients, what they get wrong, and no password
 * in any message.
 */
#include "support/case.h"
#include "unit/urls.h"

static const struct hfi_mem plain_memory;

/* A url in one line: "hosts|name|db|tls|user|password|sentinel: user|password|tls|name|map". */
static void describe(const struct hfi_url *url, char *text, size_t size) {
    FILE *out = fmemopen(text, size, "w");
    for (size_t i = 0; i < url->hosts_len; i++)
        fprintf(out, "%s%s:%u", i > 0 ? "," : "", url->hosts[i].host, (unsigned)url->hosts[i].port);
    fprintf(out, "|%s|%d|%s|%s|%s", url->master != NULL ? url->master : "-", url->db,
            url->tls ? "tls" : "clear", url->user != NULL ? url->user : "-",
            url->password != NULL ? url->password : "-");
    static const char *const switches[] = {"-", "on", "off"};
    fprintf(out, "|%s|%s|%s|%s|", url->sentinel_user != NULL ? url->sentinel_user : "-",
            url->sentinel_password != NULL ? url->sentinel_password : "-",
            switches[url->sentinel_tls],
            url->sentinel_tls_server_name != NULL ? url->sentinel_tls_server_name : "-");
    for (size_t i = 0; i < url->map_len; i++)
        fprintf(out, "%s%s:%u=%s:%u", i > 0 ? "," : "", url->map[i].announced.host,
                (unsigned)url->map[i].announced.port, url->map[i].real.host,
                (unsigned)url->map[i].real.port);
    fclose(out);
}

static const struct good_url good[] = {
    {"redis-sentinel://h1/m", "h1:26379|m|0|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h1:1,h2,h3:3/m/4", "h1:1,h2:26379,h3:3|m|4|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h1/m/", "h1:26379|m|0|clear|-|-|-|-|-|-|"},
    {"redis-sentinel:///m", "localhost:26379|m|0|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://[::1]:7,[::2]/m", "::1:7,::2:26379|m|0|clear|-|-|-|-|-|-|"},
    {"redis+sentinel://h/m", "h:26379|m|0|clear|-|-|-|-|-|-|"},
    {"valkey-sentinel://h/m", "h:26379|m|0|clear|-|-|-|-|-|-|"},
    {"valkey+sentinel://h/m", "h:26379|m|0|clear|-|-|-|-|-|-|"},
    {"rediss-sentinel://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},
    {"rediss+sentinel://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},
    {"redis-sentinels://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},
    {"redis+sentinels://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},
    {"valkeys-sentinel://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},
    {"VALKEYS+SENTINEL://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},
    {"valkey-sentinels://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},
    {"valkey+sentinels://h/m", "h:26379|m|0|tls|-|-|-|-|-|-|"},

    /* lettuce, RIOT */
    {"redis-sentinel://me:pw@h1:1,h2/2?sentinelMasterId=m",
     "h1:1,h2:26379|m|2|clear|me|pw|-|-|-|-|"},
    {"redis-sentinel://h1,h2?sentinelMasterId=m", "h1:26379,h2:26379|m|0|clear|-|-|-|-|-|-|"},
    /* redis-sentinel-url, LangChain, Prefect */
    {"redis+sentinel://:pw@h1:1,h2:2/m/3?sentinel_username=su&sentinel_password=sp",
     "h1:1,h2:2|m|3|clear|-|pw|su|sp|-|-|"},
    {"redis+sentinel://h/?service_name=m", "h:26379|m|0|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h/1?master_name=m", "h:26379|m|1|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h?master=m&db=5", "h:26379|m|5|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h/m?db=5", "h:26379|m|5|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h/my%2fm%20n", "h:26379|my/m n|0|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h/7/0", "h:26379|7|0|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h/m1", "h:26379|m1|0|clear|-|-|-|-|-|-|"},
    {"redis-sentinel://h", "h:26379|-|0|clear|-|-|-|-|-|-|"}, /* hf_options may name it */

    {"redis-sentinel://:p@,#/w@h/m", "h:26379|m|0|clear|-|p@,#/w|-|-|-|-|"},
    {"rediss-sentinel://h/m?sentinel_tls=off", "h:26379|m|0|tls|-|-|-|-|off|-|"},
    {"redis-sentinel://h/m?tls_ca_file=a&sentinel_tls=on", "h:26379|m|0|clear|-|-|-|-|on|-|"},
    {"rediss-sentinel://h/m?sentinel_tls_server_name=s", "h:26379|m|0|tls|-|-|-|-|-|s|"},
    {"redis-sentinel://h/m?address_map=10.0.0.1:6379=localhost:7000&address_map=[::1]:1=[::2]:2",
     "h:26379|m|0|clear|-|-|-|-|-|-|10.0.0.1:6379=localhost:7000,::1:1=::2:2"},
};

CASE(good_urls_are_taken_apart) {
    assert_good_urls(good, sizeof good / sizeof good[0], HFI_URL_SENTINEL, describe);
}

static const struct bad_url bad[] = {
    {"redis-sentinel://:" SECRET "@h/0", "the database or the name"},
    {"redis-sentinel://:" SECRET "@h/0#m", "'#'"},
    {"redis-sentinel://h#m/0", "the host contains"},
    {"redis-sentinel://h/m/x", "the database is not a number"},
    {"redis-sentinel://h/m/1/2", "the database is not a number"},
    {"redis-sentinel://h/m/1?db=1", "the database is given twice"},
    {"redis-sentinel://h/m/1?master=m", "named twice"},
    {"redis-sentinel://h/m?master=m", "named twice"},
    {"redis-sentinel://h?master=m&service_name=n", "master is given twice"},
    {"redis-sentinel://h?master=", "master is empty"},
    {"redis-sentinel://h1,,h2/m", "beside a comma"},
    {"redis-sentinel://h1,/m", "beside a comma"},
    {"redis-sentinel://,h1/m", "beside a comma"},
    {"redis-sentinel://h1:x/m", "the port"},
    {"redis-sentinel://h/m?sentinel_password=" SECRET "&sentinel_password=" SECRET, "given twice"},
    {"redis-sentinel://h/m?sentinel_password=%zz" SECRET, "hex digits"},
    {"redis-sentinel://h/m?sentinel_tls=yes", "on or off"},
    {"redis-sentinel://h/m?sentinel_confirm=1", "sentinel_confirm must be on or off"},
    {"redis-sentinel://h/m?sentinel_confirm=on&sentinel_confirm=on",
     "sentinel_confirm is given twice"},
    {"redis://h?sentinel_confirm=on", "Sentinel options need redis-sentinel://"},
    {"redis-sentinel://h/m?tls_ca_file=a", "rediss-sentinel://"},
    {"redis-sentinel://h/m?address_map=a:1", "ANNOUNCED:PORT=REAL:PORT"},
    {"redis-sentinel://h/m?address_map=a=b:1", "ANNOUNCED:PORT=REAL:PORT"},
    {"redis-sentinel://h/m?address_map=a:1=b", "ANNOUNCED:PORT=REAL:PORT"},
    {"redis-sentinel://h/m?address_map=:1=b:2", "ANNOUNCED:PORT=REAL:PORT"},
    {"redis-sentinel://h/m?address_map=a:1=b:0", "ANNOUNCED:PORT=REAL:PORT"},
    {"redis-sentinel://h/m?nonsense=1", "nonsense"},
    {"redis://h?master=m", "redis-sentinel://"},
    {"redis://h?sentinel_password=" SECRET, "redis-sentinel://"},
    {"unix:///a?address_map=a:1=b:1", "redis-sentinel://"},
    {"redis-sentinel://h/m?pubsub=auto", "redis-cluster://"},
};

CASE(bad_urls_are_refused_in_words) {
    assert_bad_urls(bad, sizeof bad / sizeof bad[0]);
}

CASE(there_is_an_end_to_hosts) {
    char text[512] = "redis-sentinel://h";
    for (int i = 0; i < HFI_URL_HOSTS_MAX; i++)
        strcat(text, ",h");
    strcat(text, "/m");
    struct hfi_url url;
    hf_error error = {0};
    assert_int_equal(hfi_url_parse(&plain_memory, text, &url, &error), HF_EINVAL);
    assert_non_null(strstr(error.text, "more than"));
}

RUN_CASES(NULL, NULL)
