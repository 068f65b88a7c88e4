/* The findings of `holdfast doctor`: a list per server, and the checks that fill it from the
 * server's own settings and status (hf_server_info). */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli.h"

enum verdict { VERDICT_OK, VERDICT_UNKNOWN, VERDICT_WARNING, VERDICT_BAD };

struct finding {
    enum verdict verdict;
    char check[24];
    char found[480];
    const char *advice; /* a constant; NULL: none */
};

#define FINDINGS_MAX 64
struct findings {
    size_t len;
    struct finding all[FINDINGS_MAX];
    const char *skip[8]; /* checks to skip */
    size_t skip_len;
};

/* Adds a finding, unless its check is skipped. */
void finding_add(struct findings *findings, enum verdict verdict, const char *check,
                 const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Whether a check is skipped. */
bool findings_skip(const struct findings *findings, const char *check);
const char *verdict_text(enum verdict verdict);
enum verdict findings_worst(const struct findings *findings);

/* doctor_facts.c: all checks that need only the server's facts. */
void doctor_judge(struct findings *findings, const hf_server_info *facts);
void doctor_check_tls(struct findings *findings, const hf_server_info *facts);
/* The value of a fact; NULL: unknown. doctor_number(): false if it is not a number. */
const char *doctor_fact(const hf_server_info *facts, const char *name);
bool doctor_number(const hf_server_info *facts, const char *name, int64_t *ret);

/* doctor_zk.c: the same for ZooKeeper. It also queries each server, with the TLS settings of
 * `options`. */
void doctor_judge_zk(struct findings *findings, const hf_server_info *facts, const char *url,
                     const hf_options *options);

/* doctor_cluster.c: calls `found` once for each server of a cluster, with a name (starting with
 * `stem`) in one of its slots. `facts` is NULL if the server could not be queried; see
 * hf_last_error(). Returns HF_OK or HF_ENOMEM. */
struct doctor_visitor {
    void (*found)(void *user, hf_client *client, const char *name, const char *node,
                  const hf_server_info *facts);
    void *user;
};
int doctor_visit_servers(hf_client *client, const char *stem, const struct doctor_visitor *visitor);

/* doctor_probe.c: tests on a name of its own: the latency of locks, and whether waiters are
 * woken. */
void doctor_probe(struct findings *findings, hf_client *client, const char *name);

/* doctor_fleet.c: deadlocks. */
void doctor_fleet(struct findings *findings, hf_client *client);

#endif
