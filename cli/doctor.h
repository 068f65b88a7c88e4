/* What `holdfast doctor` finds: a list of findings per server, and the checks that make it from what
 * the server says of itself (hf_facts). */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli.h"

enum verdict { VERDICT_OK, VERDICT_UNKNOWN, VERDICT_WARNING, VERDICT_BAD };

struct finding {
    enum verdict verdict;
    char check[24];
    char found[480];
    const char *advice; /* what to do; a constant. NULL: nothing */
};

#define FINDINGS_MAX 64
struct findings {
    size_t len;
    struct finding all[FINDINGS_MAX];
    const char *skip[8]; /* checks that are not wanted */
    size_t skip_len;
};

/* Adds one, unless it is not wanted. */
void finding_add(struct findings *findings, enum verdict verdict, const char *check,
                 const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Whether a check is not wanted. */
bool findings_skip(const struct findings *findings, const char *check);
const char *verdict_word(enum verdict verdict);
enum verdict findings_worst(const struct findings *findings);

/* doctor_facts.c: everything that can be told from what the server says. */
void doctor_judge(struct findings *findings, const hf_facts *facts);
void doctor_check_tls(struct findings *findings, const hf_facts *facts);
/* The value of a fact; NULL: unknown. And as a number; false: it is none. */
const char *doctor_fact(const hf_facts *facts, const char *name);
bool doctor_number(const hf_facts *facts, const char *name, int64_t *ret);

/* doctor_zk.c: the same for ZooKeeper, whose servers are asked for more, with the library's options for TLS. */
void doctor_judge_zk(struct findings *findings, const hf_facts *facts, const char *url,
                     const hf_options *options);

/* doctor_cluster.c: each server of a cluster, found by a name that it has, which begins with `stem`. `facts` is NULL if the
 * server of that name could not be looked at; hf_last_error() tells why. Errors: HF_ENOMEM. */
struct doctor_visitor {
    void (*found)(void *user, hf_client *client, const char *name, const char *node,
                  const hf_facts *facts);
    void *user;
};
int doctor_visit_servers(hf_client *client, const char *stem, const struct doctor_visitor *visitor);

/* doctor_probe.c: what has to be tried, on a name of its own: how long locks take, and whether who
 * waits is woken. */
void doctor_probe(struct findings *findings, hf_client *client, const char *name);

/* doctor_fleet.c: who waits for ever. */
void doctor_fleet(struct findings *findings, hf_client *client);

#endif
