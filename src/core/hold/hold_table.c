/*
 * The table of holds: one record per (place on the server, owner), whatever the handle or kind.
 *
 * A record is in its shard's table while it is held, used by an operation, or being released; while
 * its loss is unreported; or while a renewal of it may still act. The owner's next call reports a
 * loss. How long the record waits for that call depends on the owner. A thread: until it ends. A
 * permit: as long as its lease was. Any other number: at least as long as its lease was, and then
 * until many more were lost.
 *
 * The shard's mutex guards the table. References keep the memory alive for other threads: alarm,
 * renewal in flight, entry in the expired-release list, notice queued for the dispatcher.
 */
#include "core/op/op.h"

#include <string.h>

struct hfi_shard *hfi_core_shard(struct hfi_core *core, const char *stem, size_t stem_len) {
    return &core->shards[(hfi_hash(stem, stem_len) >> 8) % HFI_SHARDS];
}

/* Most names are short, so the memory of one hold fits the next. `room`: for name, owner and
 * place. */
#define SMALL_ROOM 240

static struct hfi_hold *allocate(const struct hfi_mem *mem, size_t room) {
    bool small = room <= SMALL_ROOM;
    size_t size = sizeof(struct hfi_hold) + (small ? SMALL_ROOM : room);
    struct hfi_hold *hold =
        small ? hfi_spare_alloc(mem, HFI_SPARE_HOLD, size) : hfi_alloc(mem, size);
    if (hold == NULL)
        return NULL;
    memset(hold, 0, sizeof *hold + room);
    hold->size = size;
    return hold;
}

static void deallocate(const struct hfi_mem *mem, struct hfi_hold *hold) {
    if (hold->size == sizeof *hold + SMALL_ROOM)
        hfi_spare_free(mem, HFI_SPARE_HOLD, hold);
    else
        hfi_free(mem, hold);
}

static struct hfi_hold *new_hold(struct hfi_core *core, struct hfi_shard *shard,
                                 const struct hfi_kind *kind, const char *name, size_t name_len,
                                 const char *owner, size_t owner_len, const char *place,
                                 size_t place_len) {
    struct hfi_hold *hold = allocate(core->mem, name_len + 1 + owner_len + 1 + place_len);
    if (hold == NULL)
        return NULL;
    atomic_init(&hold->refs, 1);
    hold->core = core;
    hold->shard = shard;
    hold->kind = kind;
    hfi_list_init(&hold->queue);
    hfi_list_init(&hold->stakes);
    hfi_list_init(&hold->shares);
    hold->name = (char *)(hold + 1);
    hold->owner = hold->name + name_len + 1;
    hold->place = hold->owner + owner_len + 1;
    memcpy(hold->name, name, name_len);
    memcpy(hold->owner, owner, owner_len);
    memcpy(hold->place, place, place_len);
    hold->name_len = name_len;
    hold->owner_len = owner_len;
    hold->place_len = place_len;
    hold->alarm.fire = hfi_watchdog_fired;
    hfi_hold_init_reports(hold);
    return hold;
}

void hfi_hold_ref(struct hfi_hold *hold) {
    atomic_fetch_add_explicit(&hold->refs, 1, memory_order_relaxed);
}

void hfi_hold_unref(struct hfi_hold *hold) {
    if (hold == NULL || atomic_fetch_sub_explicit(&hold->refs, 1, memory_order_acq_rel) != 1)
        return;
    hfi_thread_record_unref(hold->self);
    hfi_name_stats_unref(hold->name_stats);
    hfi_alias_unref(hold->core, hold->alias);
    hfi_stamp_text_unref(hold->stamp.text);
    deallocate(hold->core->mem, hold);
}

/* Finding a hold must not need memory, or a release could fail for lack of it. So each shard has a
 * buffer as long as the longest place of any hold made so far. NULL: the place is longer, so there
 * is no such hold; with `make`: out of memory. */
static char *long_place_locked(const struct hfi_mem *mem, struct hfi_shard *shard, size_t len,
                               bool make) {
    if (len <= shard->long_place_room)
        return shard->long_place;
    char *place = make ? hfi_alloc(mem, len) : NULL;
    if (place == NULL)
        return NULL;
    hfi_free(mem, shard->long_place);
    shard->long_place = place;
    shard->long_place_room = len;
    return place;
}

/* Adds bytes as far as there is room, and counts all of them. */
static size_t append(char *buffer, size_t cap, size_t len, const char *bytes, size_t more) {
    if (len < cap)
        memcpy(buffer + len, bytes, more < cap - len ? more : cap - len);
    return len + more;
}

/* Name, a zero byte, owner, part. No owner contains a zero byte and all end in a digit, so this is
 * unambiguous, whatever follows the stem of a name. Kinds of one part share a record. */
static size_t write_place(char *buffer, size_t cap, const struct hfi_kind *kind, const char *name,
                          size_t name_len, const char *owner, size_t owner_len) {
    const char *part = hfi_kind_part(kind);
    size_t len = append(buffer, cap, 0, name, name_len);
    len = append(buffer, cap, len, "", 1);
    len = append(buffer, cap, len, owner, owner_len);
    return append(buffer, cap, len, part, strlen(part));
}

struct hfi_hold *hfi_hold_of_locked(struct hfi_core *core, struct hfi_shard *shard,
                                    const struct hfi_kind *kind, const char *name, size_t name_len,
                                    const char *owner, size_t owner_len, bool make) {
    const struct hfi_mem *mem = core->mem;
    char small[256], *place = small;
    size_t place_len = write_place(small, sizeof small, kind, name, name_len, owner, owner_len);
    if (place_len > sizeof small) {
        place = long_place_locked(mem, shard, place_len, make);
        if (place == NULL)
            return NULL;
        write_place(place, place_len, kind, name, name_len, owner, owner_len);
    }
    struct hfi_hold *hold = hfi_hold_around(hfi_table_find(&shard->holds, place, place_len));
    if (hold != NULL || !make)
        return hold;
    hold = new_hold(core, shard, kind, name, name_len, owner, owner_len, place, place_len);
    if (hold != NULL)
        hfi_table_add(mem, &shard->holds, &hold->keyed, hold->place, place_len);
    return hold;
}

/* The owner is another client's. The record keeps the number that it first had. False: out of
 * memory. */
static bool give_alias_locked(struct hfi_hold *hold, struct hf_op *op) {
    if (hold->alias == NULL) {
        hold->alias = hfi_alias_ref(op->core, op->owner, hold->owner, hold->owner_len);
        hold->number = op->owner;
    }
    op->owner = hold->number;
    return hold->alias != NULL;
}

struct hfi_hold *hfi_hold_get_locked(struct hf_op *op) {
    const struct hfi_call *call = op->call;
    struct hfi_hold *hold = hfi_hold_of_locked(op->core, op->shard, call->kind, call->name,
                                               call->name_len, call->owner, call->owner_len, true);
    if (hold == NULL)
        return NULL;
    if (op->inner && !hold->inner) /* once: it is read without the shard */
        hold->inner = true;
    if (!op->foreign) {
        if (hold->number != op->owner) /* once: it is read without the shard */
            hold->number = op->owner;
    } else if (!give_alias_locked(hold, op)) {
        hfi_hold_tidy_locked(hold);
        return NULL;
    }
    return hold;
}

struct hfi_hold *hfi_hold_find_locked(struct hfi_core *core, struct hfi_shard *shard,
                                      const struct hfi_kind *kind, const char *name,
                                      size_t name_len, hf_owner number) {
    char owner[HFI_OWNER_MAX];
    size_t owner_len = hfi_owner_text(core, number, owner);
    return hfi_hold_of_locked(core, shard, kind, name, name_len, owner, owner_len, false);
}

void hfi_hold_tidy_locked(struct hfi_hold *hold) {
    if (hold->count > 0 || hold->active != NULL || !hfi_list_empty(&hold->queue) ||
        hold->releasing_expired || !hfi_keyed_is_in_table(&hold->keyed))
        return;
    int64_t later_ms = hold->renewal_until_ms;
    if (hold->quiet_until_ms > later_ms) /* a copy would hit the next possession */
        later_ms = hold->quiet_until_ms;
    if (hold->possession == HFI_HOLD_LOST && !hold->orphaned) {
        if (!hfi_hold_is_permit(hold))
            return;
        if (hold->forget_ms > later_ms)
            later_ms = hold->forget_ms;
    }
    if (hfi_now_ms() < later_ms) {
        if (hold->renewing == HFI_RESTING)
            hfi_watchdog_check_at_locked(hold, later_ms);
        return;
    }
    hfi_hold_loss_reported_locked(hold); /* no owner is left to report it to */
    hfi_watchdog_disarm_locked(hold);
    hfi_table_remove(hold->core->mem, &hold->shard->holds, &hold->keyed);
    hfi_hold_unref(hold);
}

void hfi_for_each_hold(struct hfi_core *core, void (*visit)(struct hfi_hold *hold)) {
    for (int i = 0; i < HFI_SHARDS; i++) {
        struct hfi_hold *hold, *next;
        pthread_mutex_lock(&core->shards[i].mtx);
        for (hold = hfi_hold_first_locked(&core->shards[i]); hold != NULL; hold = next) {
            next = hfi_hold_next_locked(hold);
            visit(hold);
        }
        pthread_mutex_unlock(&core->shards[i].mtx);
    }
}
