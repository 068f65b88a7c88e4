/*
 * The checks of `holdfast doctor` that look at what a server says of itself. Pure: facts in,
 * findings out.
 *
 * Each check is a function with a row in the table at the end. What the server does not tell, as
 * hosted ones often do not tell their configuration, is unknown, which is no verdict.
 */
#include "doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_S 86400

const char *doctor_fact(const hf_facts *facts, const char *name) {
    for (size_t i = 0; i < facts->facts_len; i++)
        if (strcmp(facts->facts[i]->name, name) == 0)
            return facts->facts[i]->value;
    return NULL;
}

bool doctor_number(const hf_facts *facts, const char *name, int64_t *ret) {
    const char *text = doctor_fact(facts, name);
    char *end;
    if (text == NULL || *text == '\0')
        return false;
    *ret = strtoll(text, &end, 10);
    return *end == '\0';
}

/* Of two names under which servers tell the same. */
static const char *either(const hf_facts *facts, const char *one, const char *other) {
    const char *value = doctor_fact(facts, one);
    return value != NULL ? value : doctor_fact(facts, other);
}

static void unknown(struct findings *findings, const char *check) {
    finding_add(findings, VERDICT_UNKNOWN, check, NULL, "the server does not tell");
}

/* ---- The checks ------------------------------------------------------------------------------ */

static void check_version(struct findings *findings, const char *check, const hf_facts *facts) {
    const char *valkey = doctor_fact(facts, "info.valkey_version");
    const char *version = valkey != NULL ? valkey : doctor_fact(facts, "info.redis_version");
    const char *program = valkey != NULL ? "Valkey" : "Redis";
    if (version == NULL)
        unknown(findings, check);
    else if (valkey == NULL && (atoi(version) < 6 || strncmp(version, "6.0", 3) == 0))
        finding_add(findings, VERDICT_WARNING, check,
                    "nobody corrects errors in this version any more: update the server", "%s %s",
                    program, version);
    else
        finding_add(findings, VERDICT_OK, check, NULL, "%s %s", program, version);
}

static void check_eviction(struct findings *findings, const char *check, const hf_facts *facts) {
    const char *policy = either(facts, "config.maxmemory-policy", "info.maxmemory_policy");
    const char *limit = either(facts, "config.maxmemory", "info.maxmemory");
    int64_t evicted = 0;
    doctor_number(facts, "info.evicted_keys", &evicted);
    if (policy == NULL)
        unknown(findings, check);
    else if (strcmp(policy, "noeviction") == 0)
        finding_add(findings, VERDICT_OK, check, NULL, "no key is ever evicted (noeviction)");
    else if (limit != NULL && strcmp(limit, "0") == 0)
        finding_add(findings, VERDICT_WARNING, check,
                    "set maxmemory-policy to noeviction before anybody sets maxmemory",
                    "%s would evict locks that are held, but there is no maxmemory", policy);
    else
        finding_add(findings, VERDICT_BAD, check,
                    "set maxmemory-policy to noeviction, or use another server for locks",
                    "when memory is short, %s evicts locks that are held (evicted so far: %" PRId64
                    " keys)",
                    policy, evicted);
}

static void check_persistence(struct findings *findings, const char *check, const hf_facts *facts) {
    const char *append = either(facts, "config.appendonly", "info.aof_enabled");
    const char *sync = doctor_fact(facts, "config.appendfsync");
    const char *written = doctor_fact(facts, "info.aof_last_write_status");
    const char *saved = doctor_fact(facts, "info.rdb_last_bgsave_status");
    bool on = append != NULL && (strcmp(append, "yes") == 0 || strcmp(append, "1") == 0);
    if ((written != NULL && strcmp(written, "ok") != 0) ||
        (saved != NULL && strcmp(saved, "ok") != 0))
        finding_add(findings, VERDICT_BAD, check, "look into the server's log, and at its disk",
                    "the server cannot write to its disk; it may refuse every command");
    else if (append == NULL)
        unknown(findings, check);
    else if (!on)
        finding_add(findings, VERDICT_WARNING, check,
                    "set appendonly to yes if a restart must not let two in; with a quorum it need "
                    "not be",
                    "after a restart the server has forgotten who holds what (appendonly no)");
    else if (sync != NULL && strcmp(sync, "always") == 0)
        finding_add(findings, VERDICT_OK, check, NULL,
                    "every write is on disk (appendfsync always)");
    else
        finding_add(findings, VERDICT_OK, check, NULL,
                    "on disk; a crash may forget the last second (appendfsync %s)",
                    sync != NULL ? sync : "everysec");
}

static void check_replicas(struct findings *findings, const char *check, const hf_facts *facts) {
    const char *role = doctor_fact(facts, "info.role");
    int64_t replicas = 0, wanted = 0;
    bool known = doctor_number(facts, "config.min-replicas-to-write", &wanted);
    if (role == NULL || !doctor_number(facts, "info.connected_slaves", &replicas))
        unknown(findings, check);
    else if (strcmp(role, "master") != 0)
        finding_add(findings, VERDICT_BAD, check,
                    "connect to the primary, or use --sentinel or --cluster, which find it",
                    "this is a replica, and takes no locks");
    else if (replicas == 0)
        finding_add(findings, VERDICT_OK, check, NULL,
                    "none: while this server is away nobody locks");
    else if (known && wanted == 0)
        finding_add(findings, VERDICT_WARNING, check,
                    "set min-replicas-to-write to 1, or use --acks: then what is granted is on a "
                    "replica, too",
                    "%" PRId64 ", but a primary that is cut off from all of them goes on granting",
                    replicas);
    else
        finding_add(findings, VERDICT_OK, check, NULL,
                    "%" PRId64 ", of which %" PRId64 " must be there", replicas, wanted);
}

static void check_clock(struct findings *findings, const char *check, const hf_facts *facts) {
    int64_t ahead_ms, uncertain_ms;
    if (!doctor_number(facts, "clock.ahead_ms", &ahead_ms) ||
        !doctor_number(facts, "clock.uncertain_ms", &uncertain_ms)) {
        unknown(findings, check);
        return;
    }
    bool off = llabs(ahead_ms) - uncertain_ms > 1000;
    finding_add(
        findings, off ? VERDICT_WARNING : VERDICT_OK, check,
        off ? "have all machines keep time (NTP): Java's fair locks and groups compare clocks"
            : NULL,
        "the server's is %" PRId64 " ms %s this machine's, give or take %" PRId64 " ms",
        (int64_t)llabs(ahead_ms), ahead_ms < 0 ? "behind" : "ahead of", uncertain_ms);
}

/* "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60" */
static void check_buffers(struct findings *findings, const char *check, const hf_facts *facts) {
    const char *limits = doctor_fact(facts, "config.client-output-buffer-limit");
    const char *pubsub = limits != NULL ? strstr(limits, "pubsub ") : NULL;
    if (pubsub == NULL) {
        unknown(findings, check);
        return;
    }
    char *end;
    int64_t hard = strtoll(pubsub + strlen("pubsub "), &end, 10), soft = strtoll(end, NULL, 10);
    int64_t least = hard == 0 || (soft != 0 && soft < hard) ? soft : hard;
    bool tight = least != 0 && least < INT64_C(1) << 20;
    if (least == 0)
        finding_add(findings, VERDICT_OK, check, NULL, "no limit for who waits for messages");
    else
        finding_add(findings, tight ? VERDICT_WARNING : VERDICT_OK, check,
                    tight ? "raise client-output-buffer-limit for pubsub to 8mb or more" : NULL,
                    "who waits for messages is cut off at %" PRId64 " bytes", least);
}

static void check_timeout(struct findings *findings, const char *check, const hf_facts *facts) {
    int64_t timeout_s;
    if (!doctor_number(facts, "config.timeout", &timeout_s))
        unknown(findings, check);
    else if (timeout_s == 0)
        finding_add(findings, VERDICT_OK, check, NULL, "idle connections stay");
    else
        finding_add(findings, timeout_s < 20 ? VERDICT_WARNING : VERDICT_OK, check,
                    timeout_s < 20 ? "set timeout to 0, or to a minute or more" : NULL,
                    "connections that are idle for %" PRId64 " s are closed", timeout_s);
}

static void check_clients(struct findings *findings, const char *check, const hf_facts *facts) {
    int64_t connected, most = 0;
    bool known = doctor_number(facts, "config.maxclients", &most) ||
                 doctor_number(facts, "info.maxclients", &most);
    if (!known || most <= 0 || !doctor_number(facts, "info.connected_clients", &connected)) {
        unknown(findings, check);
        return;
    }
    enum verdict verdict = connected >= most - most / 20  ? VERDICT_BAD
                           : connected >= most - most / 5 ? VERDICT_WARNING
                                                          : VERDICT_OK;
    finding_add(findings, verdict, check,
                verdict != VERDICT_OK
                    ? "raise maxclients, or find out who connects so often: whoever "
                      "cannot connect cannot renew"
                    : NULL,
                "%" PRId64 " of %" PRId64 " connections are in use", connected, most);
}

/* What needs a right that plain locks can do without; NULL: they need it. */
static const char *purpose_of(const char *command) {
    static const struct {
        const char *command, *purpose;
    } all[] = {
        {"info", "the version, and most of this"},
        {"time", "the clock"},
        {"script.hget", "fair locks"},
        {"script.hlen", "fair and read/write locks"},
        {"script.hdel", "fair and read/write locks"},
        {"type", "show"},
        {"hgetall", "show, read/write locks"},
        {"get", "show, semaphores"},
        {"client|list", "the names of holders"},
        {"pubsub|numsub", "who waits"},
        {"scan", "ls"},
        {"role", "--sentinel"},
        {"wait", "--acks"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(command, all[i].command) == 0)
            return all[i].purpose;
    return NULL;
}

/* Whether a name was refused, and not the command: as Redis says it up to 7.0, and since. */
static bool is_about_a_name(const char *why) {
    return strstr(why, "one of the keys") != NULL || strstr(why, "to access a key") != NULL;
}

static void add_refusal(struct findings *findings, const char *check, const char *command,
                        const char *why) {
    if (strcmp(command, "script.publish") == 0)
        finding_add(
            findings, VERDICT_WARNING, check,
            "allow the channels (&...) of docs/redisson.md: without them nobody is woken, and "
            "who waits has to ask again and again",
            "%s is refused: %s", command, why);
    else
        finding_add(findings, VERDICT_BAD, check,
                    is_about_a_name(why)
                        ? "this user may use other names only: give their beginning with --prefix"
                        : "allow it: docs/redisson.md has the whole list for ACL SETUSER",
                    "%s is refused: %s", command, why);
}

/* Rights that are missing and that plain locks need have a line each; the others are listed in one. */
static void check_rights(struct findings *findings, const char *check, const hf_facts *facts) {
    char missing[256] = "";
    size_t len = 0;
    int tried = 0, allowed = 0;
    for (size_t i = 0; i < facts->facts_len; i++) {
        const hf_fact *fact = facts->facts[i];
        if (strncmp(fact->name, "may.", 4) != 0)
            continue;
        const char *command = fact->name + 4, *purpose = purpose_of(command);
        tried++;
        allowed += fact->value != NULL;
        if (fact->value == NULL && purpose == NULL)
            add_refusal(findings, check, command, fact->why);
        else if (fact->value == NULL && len < sizeof missing)
            len += (size_t)snprintf(missing + len, sizeof missing - len, "%s%s (%s)",
                                    len > 0 ? ", " : "; not: ", command, purpose);
    }
    finding_add(findings, VERDICT_OK, check, NULL, "%d of %d that were tried%s", allowed, tried,
                missing);
}

static void check_tls(struct findings *findings, const char *check, const hf_facts *facts) {
    int64_t until_s;
    if (!doctor_number(facts, "tls.until_s", &until_s)) {
        finding_add(findings, VERDICT_OK, check, NULL, "not in use");
        return;
    }
    int64_t days = (until_s - (int64_t)time(NULL)) / DAY_S;
    enum verdict verdict = days < 7 ? VERDICT_BAD : days < 30 ? VERDICT_WARNING : VERDICT_OK;
    finding_add(findings, verdict, check,
                verdict != VERDICT_OK ? "renew the certificate: when it ends nobody gets in" : NULL,
                "the first certificate of the chain ends in %" PRId64 " days", days);
}

void doctor_check_tls(struct findings *findings, const hf_facts *facts) {
    check_tls(findings, "tls", facts);
}

void doctor_judge(struct findings *findings, const hf_facts *facts) {
    static const struct {
        const char *check;
        void (*run)(struct findings *findings, const char *check, const hf_facts *facts);
    } checks[] = {
        {"version", check_version},
        {"eviction", check_eviction},
        {"persistence", check_persistence},
        {"replicas", check_replicas},
        {"clock", check_clock},
        {"buffers", check_buffers},
        {"timeout", check_timeout},
        {"clients", check_clients},
        {"rights", check_rights},
        {"tls", check_tls},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        checks[i].run(findings, checks[i].check, facts);
}

/* ---- Findings -------------------------------------------------------------------------------- */

bool findings_skip(const struct findings *findings, const char *check) {
    for (size_t i = 0; i < findings->skip_len; i++)
        if (strcmp(findings->skip[i], check) == 0)
            return true;
    return false;
}

void finding_add(struct findings *findings, enum verdict verdict, const char *check,
                 const char *advice, const char *format, ...) {
    if (findings->len == FINDINGS_MAX || findings_skip(findings, check))
        return;
    struct finding *finding = &findings->all[findings->len++];
    va_list args;
    finding->verdict = verdict;
    finding->advice = advice;
    snprintf(finding->check, sizeof finding->check, "%s", check);
    va_start(args, format);
    vsnprintf(finding->found, sizeof finding->found, format, args);
    va_end(args);
    text_disarm(finding->found);
}

const char *verdict_word(enum verdict verdict) {
    static const char *const words[] = {
        [VERDICT_OK] = "ok",
        [VERDICT_UNKNOWN] = "unknown",
        [VERDICT_WARNING] = "warning",
        [VERDICT_BAD] = "bad",
    };
    return words[verdict];
}

enum verdict findings_worst(const struct findings *findings) {
    enum verdict worst = VERDICT_OK;
    for (size_t i = 0; i < findings->len; i++)
        if (findings->all[i].verdict > worst)
            worst = findings->all[i].verdict;
    return worst;
}
