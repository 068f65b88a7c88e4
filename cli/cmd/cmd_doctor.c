/* holdfast doctor: checks the server, or each server of a quorum, for problems that affect locks,
 * and gives advice.
 *
 * hf_lock_server_info() gets the server's settings and doctor_facts.c judges them; doctor_probe.c tests
 * what must be tried. Warnings that the library logs meanwhile are findings, too. The server's
 * configuration is not changed. Test objects have unique names and are removed afterwards. */
#include "doctor/doctor.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD_MS 1000 /* tolerated difference between the servers' clocks */

enum { ID_PREFIX = 1, ID_SKIP };

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_PREFIX, 0, "prefix", false},
    {OPTION_VALUE, ID_SKIP, 0, "skip", true},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct doctor {
    struct connection *connection;
    const char *prefix;
    struct findings findings; /* of the current server, */
    const char *url;          /* its url, */
    hf_options options;       /* and the options of its client */
    enum verdict worst;
    json_t *servers;
    int64_t ahead_least_ms, ahead_most_ms; /* smallest and largest clock offset so far */
    int clocks;

    pthread_mutex_t mtx; /* for the warnings, which come on any thread */
    size_t warnings_len;
    char warnings[4][200];
};

/* All check names, so that a misspelt one is an error. */
static bool is_check(const char *word) {
    static const char *const checks[] = {
        "server", "version",   "eviction", "persistence", "replicas", "clock",
        "clocks", "buffers",   "timeout",  "clients",     "rights",   "tls",
        "client", "latency",   "waking",   "deadlocks",   "session",  "ensemble",
        "others", "scripting", "native",   "tracking"};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (strcmp(checks[i], word) == 0)
            return true;
    return false;
}

static int take(void *user, int id, char *value, const char *shown) {
    struct doctor *doctor = user;
    struct findings *findings = &doctor->findings;
    if (id == ID_PREFIX) {
        doctor->prefix = value;
    } else if (id == ID_SKIP) {
        if (!is_check(value))
            return usage_error(
                "doctor",
                "%s: unknown check '%s': give a name from the output of 'holdfast doctor'", shown,
                value);
        if (findings->skip_len == sizeof findings->skip / sizeof findings->skip[0])
            return usage_error("doctor", "%s: too many checks", shown);
        findings->skip[findings->skip_len++] = value;
    } else {
        common_option(doctor->connection, id);
    }
    return 0;
}

/* ---- Warnings of the library ----------------------------------------------------------------- */

/* Eviction has its own check. */
static void on_log(hf_log_level level, const char *message, void *user) {
    struct doctor *doctor = user;
    if (level > HF_LOG_WARN || message[0] == '\'' || strstr(message, "evict") != NULL)
        return;
    pthread_mutex_lock(&doctor->mtx);
    size_t room = sizeof doctor->warnings / sizeof doctor->warnings[0];
    if (doctor->warnings_len < room)
        snprintf(doctor->warnings[doctor->warnings_len++], sizeof doctor->warnings[0], "%s",
                 message);
    pthread_mutex_unlock(&doctor->mtx);
}

/* Call after the client is closed. */
static void add_warnings(struct doctor *doctor) {
    for (size_t i = 0; i < doctor->warnings_len; i++)
        finding_add(&doctor->findings, VERDICT_WARNING, "client",
                    "programs fail here in the same way", "%s", doctor->warnings[i]);
    doctor->warnings_len = 0;
}

/* ---- One server ------------------------------------------------------------------------------ */

static void note_clock(struct doctor *doctor, const hf_server_info *facts) {
    int64_t ahead_ms;
    if (!doctor_number(facts, "clock.ahead_ms", &ahead_ms))
        return;
    if (doctor->clocks == 0 || ahead_ms < doctor->ahead_least_ms)
        doctor->ahead_least_ms = ahead_ms;
    if (doctor->clocks == 0 || ahead_ms > doctor->ahead_most_ms)
        doctor->ahead_most_ms = ahead_ms;
    doctor->clocks++;
}

/* A unique name. */
static char *own_name(const struct doctor *doctor, const hf_client *client) {
    char *name;
    return asprintf(&name, "%sholdfast-doctor-%s", doctor->prefix, hf_client_id(client)) < 0 ? NULL
                                                                                             : name;
}

static int ask_facts(struct doctor *doctor, hf_client *client, const char *name) {
    hf_lock *lock = NULL;
    hf_server_info *facts = NULL;
    int code = hf_lock_new(client, name, &lock);
    if (code == HF_OK)
        code = hf_lock_server_info(lock, &facts);
    if (code == HF_OK && url_is_zk(doctor->url)) {
        doctor_judge_zk(&doctor->findings, facts, doctor->url, &doctor->options);
    } else if (code == HF_OK) {
        doctor_judge(&doctor->findings, facts);
        note_clock(doctor, facts);
    }
    hf_server_info_free(facts);
    hf_lock_free(lock);
    return code;
}

static int examine_one(struct doctor *doctor, hf_client *client, const char *name) {
    int code = ask_facts(doctor, client, name);
    if (code == HF_OK)
        doctor_probe(&doctor->findings, client, name);
    return code;
}

static void print_server(struct doctor *doctor, const char *server);

static void found_in_cluster(void *user, hf_client *client, const char *name, const char *node,
                             const hf_server_info *facts) {
    struct doctor *doctor = user;
    if (facts == NULL) {
        finding_add(&doctor->findings, VERDICT_BAD, "server",
                    "restart it, or promote a replica: its names cannot be locked",
                    "it cannot be checked: %s", hf_last_error()->text);
    } else {
        doctor_judge(&doctor->findings, facts);
        note_clock(doctor, facts);
        doctor_probe(&doctor->findings, client, name);
    }
    print_server(doctor, node[0] != '\0' ? node : "a server of the cluster");
}

/* Returns an exit status if nothing could be checked. */
static int examine(struct doctor *doctor, hf_client *client) {
    const struct doctor_visitor visitor = {.found = found_in_cluster, .user = doctor};
    char *name = own_name(doctor, client);
    int code = name != NULL ? hf_ping(client) : HF_ENOMEM;
    if (code == HF_OK && url_is_cluster(doctor->url))
        code = doctor_visit_servers(client, name, &visitor);
    else if (code == HF_OK)
        code = examine_one(doctor, client, name);
    free(name);
    return code == HF_OK ? 0 : library_error(code, hf_last_error(), "check the server", NULL);
}

/* ---- Printing -------------------------------------------------------------------------------- */

static void print_findings(const struct findings *findings) {
    for (size_t i = 0; i < findings->len; i++) {
        const struct finding *finding = &findings->all[i];
        printf("%-8s %-12s %s\n", verdict_text(finding->verdict), finding->check, finding->found);
        if (finding->advice != NULL)
            printf("%-8s %-12s -> %s\n", "", "", finding->advice);
    }
}

static json_t *json_findings(const struct findings *findings) {
    json_t *array = json_array();
    for (size_t i = 0; i < findings->len; i++) {
        const struct finding *finding = &findings->all[i];
        json_t *object =
            json_pack("{s:s, s:s, s:o}", "check", finding->check, "verdict",
                      verdict_text(finding->verdict), "found", json_text(finding->found));
        if (object != NULL && finding->advice != NULL)
            json_object_set_new(object, "advice", json_string(finding->advice));
        json_array_append_new(array, object);
    }
    return array;
}

static void print_server(struct doctor *doctor, const char *server) {
    struct findings *findings = &doctor->findings;
    enum verdict worst = findings_worst(findings);
    if (worst > doctor->worst)
        doctor->worst = worst;
    if (doctor->connection->json) {
        json_t *object = json_pack("{s:o}", "checks", json_findings(findings));
        if (object != NULL && server != NULL)
            json_object_set_new(object, "server", json_text(server));
        json_array_append_new(doctor->servers, object);
    } else {
        if (server != NULL)
            printf("%s\n", server);
        print_findings(findings);
    }
    findings->len = 0;
}

/* ---- One server or several ------------------------------------------------------------------- */

static void compare_clocks(struct doctor *doctor) {
    int64_t spread_ms = doctor->ahead_most_ms - doctor->ahead_least_ms;
    bool apart = spread_ms > SPREAD_MS;
    if (doctor->clocks > 1)
        finding_add(&doctor->findings, apart ? VERDICT_WARNING : VERDICT_OK, "clocks",
                    apart ? "synchronize the servers' clocks (NTP)" : NULL,
                    "the servers' clocks are %lld ms apart", (long long)spread_ms);
}

static int check_server(struct doctor *doctor, struct connection *one, const char *server) {
    hf_client *client;
    const hf_options defaults = HF_OPTIONS_INIT;
    doctor->options = defaults;
    doctor->options.log = on_log;
    doctor->options.log_user = doctor;
    doctor->url = one->target;
    int status = connection_open(one, &doctor->options, &client);
    if (status != 0)
        return status;
    status = examine(doctor, client);
    if (status == 0 && server == NULL) {
        compare_clocks(doctor);
        doctor_fleet(&doctor->findings, client);
    }
    hf_close(client);
    add_warnings(doctor);
    if (status != 0 && server == NULL)
        return status;
    if (status != 0)
        finding_add(&doctor->findings, VERDICT_BAD, "server",
                    "the others suffice while they are more than half", "it cannot be checked");
    print_server(doctor, server == NULL && url_is_cluster(one->target) ? "all servers" : server);
    return 0;
}

/* Checks that concern all servers together. */
static int check_fleet(struct doctor *doctor) {
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    compare_clocks(doctor);
    options.log = on_log;
    options.log_user = doctor;
    int status = connection_open(doctor->connection, &options, &client);
    if (status != 0)
        return status;
    doctor_fleet(&doctor->findings, client);
    hf_close(client);
    doctor->warnings_len = 0; /* already reported for each server */
    print_server(doctor, "all servers");
    return 0;
}

static int check_all(struct doctor *doctor) {
    const char *list = doctor->connection->target;
    struct connection one = *doctor->connection;
    int status = 0;
    while (status == 0 && connection_next_server(&list, &one)) {
        char server[256];
        connection_shown_server(&one, server, sizeof server);
        status = check_server(doctor, &one, server);
        explicit_bzero(one.target, strlen(one.target)); /* the url may contain a password */
        free(one.target);
    }
    return status == 0 ? check_fleet(doctor) : status;
}

static int conclude(struct doctor *doctor) {
    int status = doctor->worst == VERDICT_BAD ? 2 : doctor->worst == VERDICT_WARNING ? 1 : 0;
    if (doctor->connection->json) {
        const char *word =
            verdict_text(doctor->worst == VERDICT_UNKNOWN ? VERDICT_OK : doctor->worst);
        int printed =
            print_json(json_pack("{s:s, s:O}", "verdict", word, "servers", doctor->servers));
        return printed != STATUS_OK ? printed : status;
    }
    return finish_output() == STATUS_OK ? status : STATUS_OS;
}

static int run(struct connection *connection, int argc, char **argv) {
    static struct doctor doctor; /* large */
    doctor = (struct doctor){.connection = connection, .prefix = ""};
    pthread_mutex_init(&doctor.mtx, NULL);
    int first = command_options(&command_doctor, specs, argc, argv, take, &doctor);
    if (first <= 0)
        return -first;
    if (argc != first)
        return usage_error("doctor", "unexpected argument: this subcommand takes options only");
    int status = connection_resolve(connection);
    if (status != 0)
        return status;
    doctor.servers = json_array();
    status = connection_has_several(connection) ? check_all(&doctor)
                                                : check_server(&doctor, connection, NULL);
    if (status == 0)
        status = conclude(&doctor);
    json_decref(doctor.servers);
    return status;
}

const struct command command_doctor = {
    .name = "doctor",
    .options = specs,
    .summary = "check the server for problems with locks",
    .usage =
        "[OPTIONS]\n"
        "Checks the server: version, eviction, persistence, replicas, clock, connection limits,\n"
        "scripting, native commands, tracking, this user's rights, certificates, the time that a\n"
        "lock takes, whether waiters are woken, and deadlocks. Prints each result, and what to do\n"
        "if it is not ok.\n\n"
        "      --prefix TEXT   prefix of the names to try, if this user may use no others\n"
        "      --skip CHECK    skip a check, by its name in the output\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: 0 all is well; 1 warnings; 2 something is bad.\n",
    .run = run,
};
