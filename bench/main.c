/*
 * The benchmark: which rows there are, in which order they run, and what is printed.
 *
 * Started by bench/run, which starts the server first. The rows of a group are run in turn, A B C A
 * B C ..., so that whatever else happens on the machine happens to all of them; a row's number is
 * the median of its runs, and its ratio is the median against the median of the group's first row.
 * "by time" is the same ratio from processor time, client's and server's together, which others on
 * the machine disturb less.
 * Single-threaded, apart from what a row starts and ends itself.
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_MAX 4
#define RUNS_MAX 25

struct row {
    const char *name;
    row_fn run;
};

struct group {
    const char *name, *title;
    bool tls;      /* needs a server with TLS */
    bool acks;     /* needs one with a replica */
    bool one_core; /* client and server share one: nobody gains by working in parallel */
    int n;
    double target;          /* of the last row against the first; 0: none */
    double handover_target; /* of its hand-over's p50 against the first's: at most this; 0: none */
    struct row rows[ROWS_MAX];
};

static const struct group groups[] = {
    {.name = "threads-1",
     .title = "1 thread, client and server on one core",
     .one_core = true,
     .n = 1,
     .target = 0.88,
     .rows = {{"raw socket", run_raw}, {"hiredis", run_hiredis}, {"holdfast", run_holdfast}}},
    {.name = "string-threads-1",
     .title = "1 thread, a string lock, client and server on one core",
     .one_core = true,
     .n = 1,
     .target = 0.95,
     .rows = {{"hiredis, SET NX PX and a script", run_hiredis_string},
              {"holdfast, plain", run_holdfast},
              {"holdfast, string", run_holdfast_string}}},
    {.name = "threads-2",
     .title = "2 threads",
     .n = 2,
     .target = 1.05,
     .rows = {{"hiredis", run_hiredis}, {"holdfast", run_holdfast}}},
    {.name = "threads-8",
     .title = "8 threads",
     .n = 8,
     .target = 1.1,
     .rows = {{"hiredis", run_hiredis}, {"holdfast", run_holdfast}}},
    {.name = "threads-64",
     .title = "64 threads",
     .n = 64,
     .target = 1.6,
     .rows = {{"hiredis", run_hiredis}, {"holdfast", run_holdfast}}},
    {.name = "tls-threads-1",
     .title = "1 thread over TLS, client and server on one core",
     .tls = true,
     .one_core = true,
     .n = 1,
     .target = 0.9,
     .rows = {{"OpenSSL", run_openssl},
              {"holdfast in clear", run_holdfast},
              {"holdfast over TLS", run_holdfast_tls}}},
    {.name = "tls-threads-64",
     .title = "64 threads over TLS",
     .tls = true,
     .n = 64,
     .target = 1.8,
     .rows = {{"OpenSSL, one connection each", run_openssl},
              {"holdfast in clear", run_holdfast},
              {"holdfast over TLS", run_holdfast_tls}}},
    {.name = "async-64",
     .title = "64 in flight from one thread",
     .n = 1,
     .target = 0.9,
     .rows = {{"raw, writes as often", run_raw_often},
              {"raw pipelining", run_raw_pipelined},
              {"holdfast, own dispatch thread", run_holdfast_thread},
              {"holdfast, manual dispatch", run_holdfast_manual}}},
    {.name = "acks-threads-1",
     .title = "1 thread, a server with a replica",
     .acks = true,
     .n = 1,
     .target = 0.55,
     .rows = {{"acks=off", run_holdfast}, {"acks=1", run_holdfast_confirmed}}},
    {.name = "acks-threads-64",
     .title = "64 threads, a server with a replica",
     .acks = true,
     .n = 64,
     .target = 0.5,
     .rows = {{"acks=off", run_holdfast}, {"acks=1", run_holdfast_confirmed}}},
    {.name = "contended-threads",
     .title = "8 threads of one client want one lock",
     .n = 8,
     .rows = {{"holdfast", run_contending_threads}}},
    {.name = "contended-processes-8",
     .title = "8 processes want one lock",
     .n = 8,
     .handover_target = 0.6,
     .rows = {{"plain", run_contending_processes}, {"fair", run_contending_fair}}},
    {.name = "contended-processes-64",
     .title = "64 processes want one lock",
     .n = 64,
     .handover_target = 0.1,
     .rows = {{"plain", run_contending_processes}, {"fair", run_contending_fair}}},
};

static bool is_wanted(const struct bench *bench, const struct row *row) {
    return row->run != NULL && strstr(row->name, bench->row) != NULL;
}

/* ---- Cores ---- */

static void use_cores(const struct bench *bench, bool one_core) {
    cpu_set_t all, set;
    CPU_ZERO(&all);
    CPU_ZERO(&set);
    long cores = sysconf(_SC_NPROCESSORS_CONF);
    for (int i = 0; i < cores && i < CPU_SETSIZE; i++)
        CPU_SET(i, &all);
    if (one_core)
        CPU_SET((int)cores - 1, &set);
    else
        set = all;
    if (sched_setaffinity(0, sizeof set, &set) != 0 ||
        sched_setaffinity(bench->server_pid, sizeof set, &set) != 0)
        die("cannot choose cores: %s", strerror(errno));
}

/* ---- Printing ---- */

static void write_json(const struct bench *bench, const struct group *group, const struct row *row,
                       int run, const struct sample *sample) {
    if (bench->json == NULL)
        return;
    fprintf(
        bench->json,
        "{\"group\":\"%s\",\"row\":\"%s\",\"n\":%d,\"run\":%d,\"pairs\":%.0f,\"seconds\":%.3f,"
        "\"pairs_per_s\":%.0f,\"client_cpu_us_per_pair\":%.3f,\"server_cpu_us_per_pair\":%.3f,"
        "\"commands\":%.0f,\"scripts\":%.0f,\"handover_p50_us\":%.1f,\"handover_p99_us\":%.1f}\n",
        group->name, row->name, group->n, run, sample->pairs, sample->seconds,
        sample->pairs / sample->seconds, sample->client_cpu_s / sample->pairs * 1e6,
        sample->server_cpu_s / sample->pairs * 1e6, sample->commands, sample->scripts,
        sample->p50_us, sample->p99_us);
    fflush(bench->json);
}

struct summary {
    double rate, client_us, server_us, p50_us, p99_us, scripts;
};

/* Processor time of a pair, both sides. On one core its inverse is the rate of an idle machine. */
static double time_of(const struct summary *s) {
    return s->client_us + s->server_us;
}

static struct summary summarize(const struct sample *samples, int runs) {
    double values[6][RUNS_MAX];
    for (int i = 0; i < runs; i++) {
        const struct sample *s = &samples[i];
        values[0][i] = s->pairs / s->seconds;
        values[1][i] = s->client_cpu_s / s->pairs * 1e6;
        values[2][i] = s->server_cpu_s / s->pairs * 1e6;
        values[3][i] = s->p50_us;
        values[4][i] = s->p99_us;
        values[5][i] = s->scripts / s->pairs;
    }
    return (struct summary){median(values[0], runs), median(values[1], runs),
                            median(values[2], runs), median(values[3], runs),
                            median(values[4], runs), median(values[5], runs)};
}

static void print_group(const struct bench *bench, const struct group *group,
                        struct sample samples[][RUNS_MAX]) {
    struct summary first = {0}, last = {0};
    bool handover = samples[0][0].p50_us > 0;
    printf("\n%s: lock+unlock pairs\n\n", group->title);
    printf("| %-29s | pairs/s |  ratio | client us | server us | by time |%s\n", group->name,
           handover ? " hand-over p50 us |  p99 us | against | scripts |" : "");
    printf(
        "|-------------------------------|--------:|-------:|----------:|----------:|--------:|%s\n",
        handover ? "-----------------:|--------:|--------:|--------:|" : "");
    for (int i = 0; i < ROWS_MAX; i++) {
        if (!is_wanted(bench, &group->rows[i]))
            continue;
        struct summary s = last = summarize(samples[i], bench->runs);
        if (first.rate == 0)
            first = s;
        printf("| %-29s | %7.0f | %6.2f | %9.2f | %9.2f | %7.2f |", group->rows[i].name, s.rate,
               s.rate / first.rate, s.client_us, s.server_us, time_of(&first) / time_of(&s));
        if (handover)
            printf(" %16.1f | %7.1f | %7.2f | %7.2f |", s.p50_us, s.p99_us, s.p50_us / first.p50_us,
                   s.scripts);
        printf("\n");
    }
    double handovers = handover ? last.p50_us / first.p50_us : 0;
    if (group->handover_target > 0)
        printf("\nhand-over p50, wanted: at most %.2f; reached: %.2f%s\n", group->handover_target,
               handovers, handovers <= group->handover_target ? "" : " (NOT REACHED in this run)");
    if (group->target > 0)
        printf("\nwanted: at least %.2f; reached: %.2f%s\n", group->target, last.rate / first.rate,
               last.rate / first.rate >= group->target ? "" : " (NOT REACHED in this run)");
    fflush(stdout);
}

static void run_group(const struct bench *bench, const struct group *group) {
    static struct sample samples[ROWS_MAX][RUNS_MAX];
    memset(samples, 0, sizeof samples);
    use_cores(bench, group->one_core);
    for (int run = 0; run < bench->runs; run++)
        for (int i = 0; i < ROWS_MAX; i++) {
            if (!is_wanted(bench, &group->rows[i]))
                continue;
            group->rows[i].run(bench, group->n, &samples[i][run]);
            write_json(bench, group, &group->rows[i], run, &samples[i][run]);
        }
    use_cores(bench, false);
    print_group(bench, group, samples);
}

/* ---- Arguments ---- */

static void usage(void) {
    fprintf(stderr, "usage: hf_bench --server-pid PID (--port PORT | --unix PATH) [--run-ms MS] "
                    "[--runs N] [--only GROUP] [--row ROW] [--json FILE] "
                    "[--tls-port PORT --tls-ca FILE] [--replicated] [--no-look]\n");
    exit(2);
}

static struct bench parse(int argc, char **argv) {
    static const struct option options[] = {{"server-pid", required_argument, NULL, 's'},
                                            {"port", required_argument, NULL, 'p'},
                                            {"unix", required_argument, NULL, 'u'},
                                            {"run-ms", required_argument, NULL, 'm'},
                                            {"runs", required_argument, NULL, 'n'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"json", required_argument, NULL, 'j'},
                                            {"row", required_argument, NULL, 'r'},
                                            {"tls-port", required_argument, NULL, 't'},
                                            {"tls-ca", required_argument, NULL, 'c'},
                                            {"replicated", no_argument, NULL, 'R'},
                                            {"no-look", no_argument, NULL, 'L'},
                                            {NULL, 0, NULL, 0}};
    struct bench bench = {.run_ms = 1000, .warm_ms = 100, .runs = 5, .only = "", .row = ""};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            bench.server_pid = (pid_t)atol(optarg);
            break;
        case 'p':
            bench.port = atoi(optarg);
            break;
        case 'u':
            bench.path = optarg;
            break;
        case 'm':
            bench.run_ms = atol(optarg);
            break;
        case 'n':
            bench.runs = atoi(optarg);
            break;
        case 'o':
            bench.only = optarg;
            break;
        case 'r':
            bench.row = optarg;
            break;
        case 't':
            bench.tls_port = atoi(optarg);
            break;
        case 'c':
            bench.tls_ca = optarg;
            break;
        case 'R':
            bench.replicated = true;
            break;
        case 'L':
            bench.sleeps_at_once = true;
            break;
        case 'j':
            bench.json = fopen(optarg, "ae");
            if (bench.json == NULL)
                die("cannot write %s: %s", optarg, strerror(errno));
            break;
        default:
            usage();
        }
    }
    if (bench.server_pid <= 0 || (bench.port == 0) == (bench.path == NULL) || bench.runs < 1 ||
        bench.runs > RUNS_MAX || bench.run_ms < 1 ||
        (bench.tls_port == 0) != (bench.tls_ca == NULL))
        usage();
    if (bench.path != NULL)
        snprintf(bench.url, sizeof bench.url, "unix://%s", bench.path);
    else
        snprintf(bench.url, sizeof bench.url, "redis://127.0.0.1:%d", bench.port);
    return bench;
}

static bool can_run(const struct bench *bench, const struct group *group) {
    return strstr(group->name, bench->only) != NULL && (!group->tls || bench->tls_port != 0) &&
           group->acks == bench->replicated;
}

static void report(const struct bench *bench) {
    if (strstr("watchdog", bench->only) != NULL)
        report_watchdog(bench);
    if (strstr("memory", bench->only) != NULL)
        report_memory(bench);
    if (strstr("idle", bench->only) != NULL)
        report_idle(bench);
    if (strstr("queue", bench->only) != NULL)
        report_queue(bench);
    if (strstr("cohort", bench->only) != NULL)
        report_cohort(bench);
}

int main(int argc, char **argv) {
    struct bench bench = parse(argc, argv);
    signal(SIGPIPE, SIG_IGN); /* hiredis raises it */
    load_scripts(&bench);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (can_run(&bench, &groups[i]))
            run_group(&bench, &groups[i]);
    if (!bench.replicated)
        report(&bench);
    if (bench.json != NULL)
        fclose(bench.json);
    return 0;
}
