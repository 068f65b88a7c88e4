/*
 * Per-name statistics (core/observe/name_stats.h), without a client: one per name, no more than
 * there may be, and room is made only by who is not needed any more.
 */
#include "core/observe/name_stats.h"

#include "fleet/report.h"
#include "support/case.h"
#include "support/crowd.h"
#include "support/memory.h"
#include "support/wait.h"

static const struct hfi_mem plain_mem;

static void begin(struct hfi_name_stats_table *stats_table, size_t limit, int64_t rest_ms) {
    *stats_table = (struct hfi_name_stats_table){0};
    hfi_name_stats_table_init(stats_table, &plain_mem);
    stats_table->limit = limit;
    stats_table->rest_ms = rest_ms;
}

/* As an operation that has acquired something does; the slot keeps its reference. */
static uint64_t write_down(struct hfi_name_stats_table *stats_table,
                           struct hfi_name_stats_ref *slot, const char *name) {
    struct hfi_name_stats *name_stats = hfi_name_stats_take(stats_table, slot, name, strlen(name));
    if (name_stats == NULL)
        return 0;
    struct hfi_entries *entries = hfi_name_stats_entries(stats_table, name_stats);
    uint64_t begun = entries != NULL ? name_stats->begun : 0;
    if (entries != NULL)
        hfi_times_add(&entries->wait, NULL, 100);
    hfi_name_stats_unref(name_stats);
    return begun;
}

static uint64_t write_once(struct hfi_name_stats_table *stats_table, const char *name) {
    struct hfi_name_stats_ref slot = {.looked_up = false};
    uint64_t begun = write_down(stats_table, &slot, name);
    hfi_name_stats_ref_clear(&slot);
    return begun;
}

struct found {
    const char *name;
    uint64_t count, begun;
    size_t all;
};

static void note(void *arg, const struct hfi_named_times *times) {
    struct found *found = arg;
    found->all++;
    if (found->name == NULL || strlen(found->name) != times->name_len ||
        memcmp(found->name, times->name, times->name_len) != 0)
        return;
    found->count += times->wait.count;
    found->begun = times->begun;
}

static struct found look_for(struct hfi_name_stats_table *stats_table, const char *name) {
    struct found found = {.name = name};
    hfi_name_stats_table_report(stats_table, note, &found);
    return found;
}

CASE_IN(handles_on_one_name_share_statistics, struct hfi_name_stats_table, stats_table, begin,
        hfi_name_stats_table_clear, 8, 0) {
    struct hfi_name_stats_ref one = {.looked_up = false}, other = {.looked_up = false};
    uint64_t begun = write_down(stats_table, &one, "a");
    assert_int_equal(write_down(stats_table, &other, "a"), begun);
    assert_int_equal(write_down(stats_table, &one, "a"), begun);
    assert_int_equal(look_for(stats_table, "a").count, 3);
    assert_int_equal(look_for(stats_table, "a").all, 1);
    hfi_name_stats_ref_clear(&one);
    hfi_name_stats_ref_clear(&other);
    assert_int_equal(write_once(stats_table, "a"), begun); /* it outlives its handles */
}

CASE_IN(names_in_use_make_no_room, struct hfi_name_stats_table, stats_table, begin,
        hfi_name_stats_table_clear, 4, 0) {
    struct hfi_name_stats_ref slots[4] = {{.looked_up = false}}, late = {.looked_up = false};
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(write_down(stats_table, &slots[i], names[i]), 0);
    assert_int_equal(write_down(stats_table, &late, "late"), 0);
    struct hfi_name_stats *held =
        hfi_name_stats_take(stats_table, &slots[2], "c", 1); /* by a hold */
    hfi_name_stats_ref_clear(&slots[2]);
    assert_int_equal(write_once(stats_table, "late"), 0);
    hfi_times_add(&hfi_name_stats_entries(stats_table, held)->hold, NULL, 1);
    hfi_name_stats_unref(held);
    assert_int_not_equal(write_once(stats_table, "late"), 0);
    assert_int_equal(look_for(stats_table, "c").count, 0);
    assert_int_equal(look_for(stats_table, "late").count, 1);
    assert_int_equal(look_for(stats_table, NULL).all, 4);
    assert_int_equal(write_down(stats_table, &late, "late"), 0); /* a handle looks once */
    for (int i = 0; i < 4; i++)
        hfi_name_stats_ref_clear(&slots[i]);
}

CASE_IN(the_last_used_stays, struct hfi_name_stats_table, stats_table, begin,
        hfi_name_stats_table_clear, 2, 0) {
    uint64_t first = write_once(stats_table, "a");
    write_once(stats_table, "b");
    assert_int_equal(write_once(stats_table, "a"), first);
    write_once(stats_table, "c");
    assert_int_equal(look_for(stats_table, "a").count, 2);
    assert_int_equal(look_for(stats_table, "b").count, 0);
    uint64_t again = write_once(stats_table, "b"); /* in place of a, and reported as new */
    assert_true(again > first);
    assert_true(write_once(stats_table, "a") > again);
    assert_int_equal(look_for(stats_table, "a").count, 1);
}

/* Who reads metrics would have to keep a series for each name that there ever was. */
CASE_IN(recently_used_names_make_no_room, struct hfi_name_stats_table, stats_table, begin,
        hfi_name_stats_table_clear, 2, 3600000) {
    struct hfi_name_stats_ref empty = {.looked_up = false};
    write_once(stats_table, "a");
    hfi_name_stats_unref(
        hfi_name_stats_take(stats_table, &empty, "tried", 5)); /* in vain: nothing is in it */
    hfi_name_stats_ref_clear(&empty);
    assert_int_not_equal(write_once(stats_table, "b"), 0);
    for (int i = 0; i < 1000; i++) {
        own_text *name = text_of("n%d", i);
        assert_int_equal(write_once(stats_table, name), 0);
    }
    assert_int_equal(look_for(stats_table, "a").count, 1);
    assert_int_equal(look_for(stats_table, "b").count, 1);
}

CASE(some_names_have_none) {
    struct hfi_name_stats_table stats_table;
    struct hfi_name_stats_ref slot = {.looked_up = false};
    own_text *name = malloc(HFI_NAME_STATS_NAME_MAX + 2);
    assert_non_null(name);
    memset(name, 'x', HFI_NAME_STATS_NAME_MAX + 1);
    name[HFI_NAME_STATS_NAME_MAX + 1] = '\0';
    begin(&stats_table, 0, 0);
    assert_int_equal(write_once(&stats_table, "a"), 0);
    stats_table.limit = 1;
    assert_int_equal(write_once(&stats_table, name), 0);
    assert_int_not_equal(write_once(&stats_table, name + 1), 0);
    hfi_name_stats_ref_clear(&slot); /* one in which nothing ever was */
    hfi_name_stats_table_clear(&stats_table);
}

CASE(without_memory_there_is_none) {
    struct hfi_name_stats_table stats_table;
    struct memory memory = {0};
    const struct hfi_mem mem = {.hook = memory_allocator(&memory)};
    begin(&stats_table, 4, 0);
    stats_table.mem = &mem;
    for (int at = 1; at <= 2; at++) { /* the statistics, and what is to be in it */
        memory.calls = 0;
        memory.fail_at = at;
        assert_int_equal(write_once(&stats_table, "a"), 0);
        assert_int_equal(look_for(&stats_table, "a").all, 0);
    }
    assert_int_not_equal(write_once(&stats_table, "a"), 0);
    hfi_name_stats_table_clear(&stats_table);
    assert_int_equal(memory.live, 0);
}

/* ---- Many at once ---- */

enum { THREADS = 8, ROUNDS = 2000, NAMES = 6 };

struct shared_table {
    struct crowd crowd;
    struct hfi_name_stats_table stats_table;
    struct hfi_name_stats_ref shared;
    atomic_int go;
};

static void *come_and_go(void *arg) {
    struct shared_table *table = arg;
    while (atomic_load(&table->go) == 0)
        continue;
    for (int i = 0; i < ROUNDS; i++) {
        own_text *name = text_of("n%d", i % NAMES);
        write_once(&table->stats_table, name);
        crowd_expect(&table->crowd, write_down(&table->stats_table, &table->shared, "shared") != 0);
    }
    return NULL;
}

CASE(threads_come_and_go) {
    struct shared_table table = {.go = 0};
    begin(&table.stats_table, 4, 0);
    for (int i = 0; i < THREADS; i++)
        crowd_add(&table.crowd, come_and_go, &table);
    assert_int_not_equal(write_down(&table.stats_table, &table.shared, "shared"), 0);
    atomic_store(&table.go, 1);
    for (int i = 0; i < 100; i++)
        assert_true(look_for(&table.stats_table, NULL).all <= 4);
    crowd_join(&table.crowd);
    assert_int_equal(atomic_load(&table.crowd.failures), 0);
    assert_int_equal(look_for(&table.stats_table, "shared").count, THREADS * ROUNDS + 1);
    hfi_name_stats_ref_clear(&table.shared);
    hfi_name_stats_table_clear(&table.stats_table);
}

/* ---- A handle that many threads use for the first time ---- */

enum { FIRST_ROUNDS = 300 };

struct first {
    struct crowd crowd;
    struct hfi_name_stats_table stats_table;
    struct hfi_name_stats_ref slots[FIRST_ROUNDS];
    pthread_barrier_t barrier;
};

static void *use_first(void *arg) {
    struct first *first = arg;
    for (int i = 0; i < FIRST_ROUNDS; i++) {
        pthread_barrier_wait(&first->barrier);
        crowd_expect(&first->crowd,
                     write_down(&first->stats_table, &first->slots[i], "shared") != 0);
    }
    return NULL;
}

CASE(the_first_client_is_not_missed) {
    struct first *first = calloc(1, sizeof *first);
    assert_non_null(first);
    begin(&first->stats_table, 4, 0);
    assert_int_equal(pthread_barrier_init(&first->barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        crowd_add(&first->crowd, use_first, first);
    crowd_join(&first->crowd);
    assert_int_equal(atomic_load(&first->crowd.failures), 0);
    assert_int_equal(look_for(&first->stats_table, "shared").count, THREADS * FIRST_ROUNDS);
    for (int i = 0; i < FIRST_ROUNDS; i++)
        hfi_name_stats_ref_clear(&first->slots[i]);
    pthread_barrier_destroy(&first->barrier);
    hfi_name_stats_table_clear(&first->stats_table);
    free(first);
}

RUN_CASES(NULL, NULL)
