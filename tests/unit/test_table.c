/*
 * The hash table against a model: a flag for each key that says whether it is in.
 *
 * Random adds and removals, in mixes that make it grow and be empty again; every step looks for a
 * key, and now and then all of them are visited. Also without memory to grow. The seed is printed,
 * HF_SEED repeats a run.
 */
#include "base/table.h"
#include "support/case.h"
#include "support/random.h"

#define KEYS 400
#define STEPS 20000

struct thing {
    struct hfi_keyed keyed;
    char key[32];
    bool is_in;
    unsigned visits;
};

static struct thing *new_things(void) {
    struct thing *things = calloc(KEYS, sizeof *things);
    assert_non_null(things);
    for (int i = 0; i < KEYS; i++) /* of all lengths, and none begins like all others */
        snprintf(things[i].key, sizeof things[i].key, "%.*sn%d", i % 20, "a name, and another!", i);
    return things;
}

static struct thing *thing_of(struct hfi_keyed *keyed) {
    return (struct thing *)(void *)keyed; /* its first member */
}

static void check_all_are_visited_once(const struct hfi_table *table, struct thing *things) {
    struct hfi_keyed *next;
    for (int i = 0; i < KEYS; i++)
        things[i].visits = 0;
    for (struct hfi_keyed *keyed = hfi_table_first(table); keyed != NULL; keyed = next) {
        next = hfi_table_next(table, keyed);
        thing_of(keyed)->visits++;
    }
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(things[i].visits, things[i].is_in ? 1 : 0);
}

static void turn(const struct hfi_mem *mem, struct hfi_table *table, struct thing *thing) {
    if (thing->is_in)
        hfi_table_remove(mem, table, &thing->keyed);
    else
        hfi_table_add(mem, table, &thing->keyed, thing->key, strlen(thing->key));
    thing->is_in = !thing->is_in;
}

static void check(const struct hfi_table *table, struct thing *thing) {
    assert_int_equal(hfi_keyed_is_in_table(&thing->keyed), thing->is_in);
    assert_ptr_equal(hfi_table_find(table, thing->key, strlen(thing->key)),
                     thing->is_in ? &thing->keyed : NULL);
}

static void random_steps(const struct hfi_mem *mem) {
    struct thing *things = new_things();
    struct hfi_table table = {0};
    uint64_t state = random_seed();
    for (int step = 0; step < STEPS; step++) {
        size_t few = step % 4000 < 2000 ? KEYS : 3; /* so that it is empty now and then */
        turn(mem, &table, &things[random_next(&state) % few]);
        check(&table, &things[random_next(&state) % KEYS]);
        if (step % 500 == 0)
            check_all_are_visited_once(&table, things);
    }
    struct hfi_keyed *next; /* each is removed when the next is known */
    for (struct hfi_keyed *keyed = hfi_table_first(&table); keyed != NULL; keyed = next) {
        next = hfi_table_next(&table, keyed);
        turn(mem, &table, thing_of(keyed));
    }
    assert_int_equal(table.len, 0);
    assert_null(table.many);
    assert_null(hfi_table_first(&table));
    free(things);
}

CASE(random_steps_agree_with_the_model) {
    const struct hfi_mem mem = {.spares = NULL};
    random_steps(&mem);
}

static void *no_memory(size_t size, void *user) {
    (void)size, (void)user;
    return NULL;
}

CASE(without_memory_it_works_all_the_same) {
    const struct hfi_mem mem = {.hook.allocate = no_memory};
    random_steps(&mem);
}

CASE(every_byte_counts_for_the_hash) {
    char bytes[40] = {0};
    for (size_t len = 1; len <= sizeof bytes; len++) {
        uint64_t before = hfi_hash(bytes, len);
        assert_int_not_equal(before, hfi_hash(bytes, len - 1));
        for (size_t i = 0; i < len; i++) {
            bytes[i] = 1;
            assert_int_not_equal(before, hfi_hash(bytes, len));
            bytes[i] = 0;
        }
    }
}

RUN_CASES(NULL, NULL)
