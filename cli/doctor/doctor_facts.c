/* The checks of `holdfast doctor` on a server's facts. Pure: facts in, findings out.
 *
 * Each check is a function with a row in the table at the end. Hosted servers often hide their
 * configuration; such a check is unknown, neither good nor bad. */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_S 86400

const char *doctor_fact(const hf_server_info *facts, const char *name) {
    for (size_t i = 0; i < facts->fields_len; i++)
        if (strcmp(facts->fields[i]->name, name) == 0)
            return facts->fields[i]->value;
    return NULL;
}

bool doctor_number(const hf_server_info *facts, const char *name, int64_t *ret) {
    const char *text = doctor_fact(facts, name);
    char *end;
    if (text == NULL || *text == '\0')
        return false;
    *ret = strtoll(text, &end, 10);
    return *end == '\0';
}

/* The value of a fact that has different names on different servers. */
static const char *either(const hf_server_info *facts, const char *one, const char *other) {
    const char *value = doctor_fact(facts, one);
    return value != NULL ? value : doctor_fact(facts, other);
}

static void unknown(struct findings *findings, const char *check) {
    finding_add(findings, VERDICT_UNKNOWN, check, NULL, "the server hides it");
}

/* ---- The checks ------------------------------------------------------------------------------ */

static void check_version(struct findings *findings, const char *check,
                          const hf_server_info *facts) {
    const char *valkey = doctor_fact(facts, "info.valkey_version");
    const char *version = valkey != NULL ? valkey : doctor_fact(facts, "info.redis_version");
    const char *program = valkey != NULL ? "Valkey" : "Redis";
    if (version == NULL)
        unknown(findings, check);
    else if (valkey == NULL && (atoi(version) < 6 || strncmp(version, "6.0", 3) == 0))
        finding_add(findings, VERDICT_WARNING, check,
                    "this version is no longer maintained: update the server", "%s %s", program,
                    version);
    else
        finding_add(findings, VERDICT_OK, check, NULL, "%s %s", program, version);
}

static void check_eviction(struct findings *findings, const char *check,
                           const hf_server_info *facts) {
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
                    "set maxmemory-policy to noeviction before setting maxmemory",
                    "%s would evict held locks, but maxmemory is not set", policy);
    else
        finding_add(findings, VERDICT_BAD, check,
                    "set maxmemory-policy to noeviction, or use another server for locks",
                    "when memory is short, %s evicts held locks (evicted so far: %" PRId64 " keys)",
                    policy, evicted);
}

static void check_persistence(struct findings *findings, const char *check,
                              const hf_server_info *facts) {
    const char *append = either(facts, "config.appendonly", "info.aof_enabled");
    const char *sync = doctor_fact(facts, "config.appendfsync");
    const char *written = doctor_fact(facts, "info.aof_last_write_status");
    const char *saved = doctor_fact(facts, "info.rdb_last_bgsave_status");
    bool on = append != NULL && (strcmp(append, "yes") == 0 || strcmp(append, "1") == 0);
    if ((written != NULL && strcmp(written, "ok") != 0) ||
        (saved != NULL && strcmp(saved, "ok") != 0))
        finding_add(findings, VERDICT_BAD, check, "check the server's log and disk",
                    "the server cannot write to its disk; it may refuse every command");
    else if (append == NULL)
        unknown(findings, check);
    else if (!on)
        finding_add(findings, VERDICT_WARNING, check,
                    "set appendonly to yes if a restart must not admit two holders; not needed "
                    "with a quorum",
                    "a restart forgets all locks (appendonly no)");
    else if (sync != NULL && strcmp(sync, "always") == 0)
        finding_add(findings, VERDICT_OK, check, NULL,
                    "every write is on disk (appendfsync always)");
    else
        finding_add(findings, VERDICT_OK, check, NULL,
                    "on disk; a crash may lose the last second (appendfsync %s)",
                    sync != NULL ? sync : "everysec");
}

static void check_replicas(struct findings *findings, const char *check,
                           const hf_server_info *facts) {
    const char *role = doctor_fact(facts, "info.role");
    int64_t replicas = 0, wanted = 0;
    bool known = doctor_number(facts, "config.min-replicas-to-write", &wanted);
    if (role == NULL || !doctor_number(facts, "info.connected_slaves", &replicas))
        unknown(findings, check);
    else if (strcmp(role, "master") != 0)
        finding_add(findings, VERDICT_BAD, check,
                    "connect to the primary, or let --sentinel or --cluster find it",
                    "this is a replica, which grants no locks");
    else if (replicas == 0)
        finding_add(findings, VERDICT_OK, check, NULL,
                    "none: while this server is down, nothing can be locked");
    else if (known && wanted == 0)
        finding_add(findings, VERDICT_WARNING, check,
                    "set min-replicas-to-write to 1, or use --acks, so that every grant is on a "
                    "replica, too",
                    "%" PRId64 ", but a primary that is cut off from all of them keeps granting",
                    replicas);
    else
        finding_add(findings, VERDICT_OK, check, NULL,
                    "%" PRId64 ", of which %" PRId64 " must be there", replicas, wanted);
}

static void check_clock(struct findings *findings, const char *check, const hf_server_info *facts) {
    int64_t ahead_ms, uncertain_ms;
    if (!doctor_number(facts, "clock.ahead_ms", &ahead_ms) ||
        !doctor_number(facts, "clock.uncertain_ms", &uncertain_ms)) {
        unknown(findings, check);
        return;
    }
    bool off = llabs(ahead_ms) - uncertain_ms > 1000;
    finding_add(findings, off ? VERDICT_WARNING : VERDICT_OK, check,
                off ? "synchronize all clocks (NTP): Java's fair locks and groups compare them"
                    : NULL,
                "the server's is %" PRId64 " ms %s this machine's, give or take %" PRId64 " ms",
                (int64_t)llabs(ahead_ms), ahead_ms < 0 ? "behind" : "ahead of", uncertain_ms);
}

/* "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60" */
static void check_buffers(struct findings *findings, const char *check,
                          const hf_server_info *facts) {
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
        finding_add(findings, VERDICT_OK, check, NULL, "no limit for subscribers");
    else
        finding_add(findings, tight ? VERDICT_WARNING : VERDICT_OK, check,
                    tight ? "raise client-output-buffer-limit of pubsub to 8mb or more" : NULL,
                    "subscribers are disconnected at %" PRId64 " bytes", least);
}

static void check_timeout(struct findings *findings, const char *check,
                          const hf_server_info *facts) {
    int64_t timeout_s;
    if (!doctor_number(facts, "config.timeout", &timeout_s))
        unknown(findings, check);
    else if (timeout_s == 0)
        finding_add(findings, VERDICT_OK, check, NULL, "idle connections stay open");
    else
        finding_add(findings, timeout_s < 20 ? VERDICT_WARNING : VERDICT_OK, check,
                    timeout_s < 20 ? "set timeout to 0, or to a minute or more" : NULL,
                    "connections idle for %" PRId64 " s are closed", timeout_s);
}

static void check_clients(struct findings *findings, const char *check,
                          const hf_server_info *facts) {
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
                    ? "raise maxclients, or find what opens so many connections: a client that "
                      "cannot connect cannot renew"
                    : NULL,
                "%" PRId64 " of %" PRId64 " connections are in use", connected, most);
}

static const hf_server_info_field *fact_of(const hf_server_info *facts, const char *name) {
    for (size_t i = 0; i < facts->fields_len; i++)
        if (strcmp(facts->fields[i]->name, name) == 0)
            return facts->fields[i];
    return NULL;
}

/* Whether the library said so of EVAL; a user without the right to it is another matter. */
static bool has_no_scripting(const hf_server_info_field *eval) {
    return eval != NULL && eval->value == NULL && eval->reason != NULL &&
           strstr(eval->reason, "runs no scripts") != NULL;
}

static void check_scripting(struct findings *findings, const char *check,
                            const hf_server_info *facts) {
    const hf_server_info_field *eval = fact_of(facts, "may.eval");
    if (has_no_scripting(eval))
        finding_add(findings, VERDICT_BAD, check,
                    "load the server's Lua module, or do not rename EVAL: these locks are scripts",
                    "%s", eval->reason);
    else if (eval == NULL || eval->value == NULL)
        unknown(findings, check);
    else
        finding_add(findings, VERDICT_OK, check, NULL, "the server runs Lua scripts");
}

/* A user without the right cannot learn whether the server has the command. */
static bool is_refused(const hf_server_info *facts, const char *name) {
    const hf_server_info_field *fact = fact_of(facts, name);
    return fact != NULL && fact->reason != NULL && strstr(fact->reason, "NOPERM") != NULL;
}

/* Only facts: without these commands a script does the same. */
static void check_native(struct findings *findings, const char *check,
                         const hf_server_info *facts) {
    const char *deletes = doctor_fact(facts, "has.delifeq") != NULL ? "DELIFEQ"
                          : doctor_fact(facts, "has.delex") != NULL ? "DELEX"
                          : is_refused(facts, "has.delifeq") || is_refused(facts, "has.delex")
                              ? "refused"
                              : "none";
    const char *sets = doctor_fact(facts, "has.set-ifeq") != NULL ? "SET IFEQ"
                       : is_refused(facts, "has.set-ifeq")        ? "refused"
                                                                  : "none";
    finding_add(findings, VERDICT_OK, check, NULL, "compare and delete: %s; compare and set: %s",
                deletes, sets);
}

static void check_tracking(struct findings *findings, const char *check,
                           const hf_server_info *facts) {
    const hf_server_info_field *has = fact_of(facts, "has.tracking");
    int64_t keys;
    if (has == NULL || has->value == NULL)
        finding_add(findings, VERDICT_OK, check, NULL, "not available (%s)",
                    has != NULL && has->reason != NULL ? has->reason : "no answer");
    else if (!doctor_number(facts, "config.tracking-table-max-keys", &keys))
        finding_add(findings, VERDICT_OK, check, NULL, "available; the server hides its limit");
    else if (keys == 0)
        finding_add(findings, VERDICT_OK, check, NULL, "available, for any number of keys");
    else
        finding_add(findings, VERDICT_OK, check, NULL,
                    "available, for %" PRId64 " keys (tracking-table-max-keys)", keys);
}

/* The feature that needs a command; NULL: plain locks need it. */
static const char *purpose_of(const char *command) {
    static const struct {
        const char *command, *purpose;
    } all[] = {
        {"info", "the version, and most checks"},
        {"time", "the clock"},
        {"script.hget", "fair locks"},
        {"script.hlen", "fair and read/write locks"},
        {"script.hdel", "fair and read/write locks"},
        {"type", "show"},
        {"hgetall", "show, read/write locks"},
        {"get", "show, semaphores"},
        {"client|list", "the names of holders"},
        {"pubsub|numsub", "waiters"},
        {"scan", "ls"},
        {"role", "--sentinel"},
        {"wait", "--acks"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(command, all[i].command) == 0)
            return all[i].purpose;
    return NULL;
}

/* Whether the key was refused and not the command, in the wording of Redis up to 7.0 or later. */
static bool is_about_a_name(const char *why) {
    return strstr(why, "one of the keys") != NULL || strstr(why, "to access a key") != NULL;
}

/* Valkey 9.1 has rights by database. */
static bool is_about_a_database(const char *why) {
    return strstr(why, "to access database") != NULL;
}

static const char *advice_on_refusal(const char *why) {
    if (is_about_a_name(why))
        return "this user may use other names only: give their prefix with --prefix";
    if (is_about_a_database(why))
        return "this user may use other databases only: choose one with --db, or allow this one "
               "(ACL SETUSER, db=)";
    return "allow it: docs/redisson.md has the full list for ACL SETUSER";
}

static void add_refusal(struct findings *findings, const char *check, const char *command,
                        const char *why) {
    if (strcmp(command, "script.publish") == 0)
        finding_add(
            findings, VERDICT_WARNING, check,
            "allow the channels (&...) listed in docs/redisson.md: without them waiters are not "
            "woken and have to poll",
            "%s is refused: %s", command, why);
    else
        finding_add(findings, VERDICT_BAD, check, advice_on_refusal(why), "%s is refused: %s",
                    command, why);
}

/* Each missing right that plain locks need is a finding; the others are listed in one line. */
static void check_rights(struct findings *findings, const char *check,
                         const hf_server_info *facts) {
    char missing[256] = "";
    size_t len = 0;
    int tried = 0, allowed = 0;
    for (size_t i = 0; i < facts->fields_len; i++) {
        const hf_server_info_field *fact = facts->fields[i];
        if (strncmp(fact->name, "may.", 4) != 0)
            continue;
        const char *command = fact->name + 4, *purpose = purpose_of(command);
        if (has_no_scripting(fact))
            continue; /* that is no question of rights */
        tried++;
        allowed += fact->value != NULL;
        if (fact->value == NULL && purpose == NULL)
            add_refusal(findings, check, command, fact->reason);
        else if (fact->value == NULL && len < sizeof missing)
            len += (size_t)snprintf(missing + len, sizeof missing - len, "%s%s (%s)",
                                    len > 0 ? ", " : "; not: ", command, purpose);
    }
    finding_add(findings, VERDICT_OK, check, NULL, "%d of %d tried%s", allowed, tried, missing);
}

static void check_tls(struct findings *findings, const char *check, const hf_server_info *facts) {
    int64_t until_s;
    if (!doctor_number(facts, "tls.until_s", &until_s)) {
        finding_add(findings, VERDICT_OK, check, NULL, "not in use");
        return;
    }
    int64_t days = (until_s - (int64_t)time(NULL)) / DAY_S;
    enum verdict verdict = days < 7 ? VERDICT_BAD : days < 30 ? VERDICT_WARNING : VERDICT_OK;
    finding_add(findings, verdict, check,
                verdict != VERDICT_OK
                    ? "renew the certificate: when it expires, no client can connect"
                    : NULL,
                "the chain's first certificate expires in %" PRId64 " days", days);
}

void doctor_check_tls(struct findings *findings, const hf_server_info *facts) {
    check_tls(findings, "tls", facts);
}

void doctor_judge(struct findings *findings, const hf_server_info *facts) {
    static const struct {
        const char *check;
        void (*run)(struct findings *findings, const char *check, const hf_server_info *facts);
    } checks[] = {
        {"version", check_version},
        {"eviction", check_eviction},
        {"persistence", check_persistence},
        {"replicas", check_replicas},
        {"clock", check_clock},
        {"buffers", check_buffers},
        {"timeout", check_timeout},
        {"clients", check_clients},
        {"scripting", check_scripting},
        {"native", check_native},
        {"tracking", check_tracking},
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

const char *verdict_text(enum verdict verdict) {
    static const char *const names[] = {
        [VERDICT_OK] = "ok",
        [VERDICT_UNKNOWN] = "unknown",
        [VERDICT_WARNING] = "warning",
        [VERDICT_BAD] = "bad",
    };
    return names[verdict];
}

enum verdict findings_worst(const struct findings *findings) {
    enum verdict worst = VERDICT_OK;
    for (size_t i = 0; i < findings->len; i++)
        if (findings->all[i].verdict > worst)
            worst = findings->all[i].verdict;
    return worst;
}
