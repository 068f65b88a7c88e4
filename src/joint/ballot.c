/*
 * Ballots: what one owner has of one lock at the servers, with a seat for each of them.
 *
 * A ballot is in the table while it is wanted, somebody works on it, or an errand of it is under way. An
 * answer that comes late finds it there: a grant that is still wanted joins the hold, any other is given
 * back. Each seat has one errand at a time; a release or a renewal may be followed by another errand
 * before it has ended (the member's core keeps them in order), and is then no longer listened to.
 *
 * On the keeper's thread.
 */
#include "joint/internal.h"

#include <string.h>

#define AGAIN_MS 1000 /* without memory for an errand */

static size_t place_len_of(size_t name_len) {
    return name_len + 1 + sizeof(hf_owner);
}

static void write_place(char *place, const char *name, size_t name_len, hf_owner owner) {
    memcpy(place, name, name_len);
    place[name_len] = '\0';
    memcpy(place + name_len + 1, &owner, sizeof owner);
}

/* NOLINTNEXTLINE(readability-function-size): the macro is what is big */
static struct hfi_ballot *find(struct hfi_quorum *quorum, const char *place, size_t place_len) {
    struct hfi_ballot *ballot = NULL;
    HASH_FIND(hh, quorum->table, place, place_len, ballot);
    return ballot;
}

struct hfi_ballot *hfi_ballot_find(struct hfi_quorum *quorum, const char *name, size_t name_len,
                                   hf_owner owner) {
    char small[256];
    size_t place_len = place_len_of(name_len);
    char *place = place_len <= sizeof small ? small : hfi_alloc(quorum->mem, place_len);
    if (place == NULL)
        return NULL;
    write_place(place, name, name_len, owner);
    struct hfi_ballot *ballot = find(quorum, place, place_len);
    if (place != small)
        hfi_free(quorum->mem, place);
    return ballot;
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_ballot_look(HFI_CONTAINER(alarm, struct hfi_ballot, alarm));
}

static void round_alarm_fired(struct hfi_alarm *alarm) {
    hfi_ballot_look(HFI_CONTAINER(alarm, struct hfi_ballot, round_alarm));
}

static void end_alarm_fired(struct hfi_alarm *alarm) {
    hfi_ballot_look(HFI_CONTAINER(alarm, struct hfi_ballot, end_alarm));
}

/* False: out of memory. */
/* NOLINTNEXTLINE(readability-function-size): the macro is what is big */
static bool insert(struct hfi_quorum *quorum, struct hfi_ballot *ballot) {
    const struct hfi_mem *mem = quorum->mem;
    HASH_ADD_KEYPTR(hh, quorum->table, ballot->place, ballot->place_len, ballot);
    return ballot->hh.tbl != NULL;
}

struct hfi_ballot *hfi_ballot_get(struct hfi_quorum *quorum, const char *name, size_t name_len,
                                  hf_owner owner) {
    struct hfi_ballot *ballot = hfi_ballot_find(quorum, name, name_len, owner);
    if (ballot != NULL)
        return ballot;
    size_t place_len = place_len_of(name_len);
    ballot = hfi_zalloc(quorum->mem, sizeof *ballot + place_len);
    if (ballot == NULL)
        return NULL;
    ballot->refs = 1;
    ballot->quorum = quorum;
    ballot->owner = owner;
    ballot->votes.len = quorum->len;
    ballot->votes.guard_ms = quorum->guard_ms;
    hfi_votes_begin(&ballot->votes);
    hfi_list_init(&ballot->rounds);
    ballot->alarm.fire = alarm_fired;
    ballot->round_alarm.fire = round_alarm_fired;
    ballot->end_alarm.fire = end_alarm_fired;
    ballot->place = ballot->name = (char *)(ballot + 1);
    ballot->name_len = name_len;
    ballot->place_len = place_len;
    write_place(ballot->place, name, name_len, owner);
    if (!insert(quorum, ballot)) {
        hfi_free(quorum->mem, ballot);
        return NULL;
    }
    return ballot;
}

void hfi_ballot_ref(struct hfi_ballot *ballot) {
    ballot->refs++;
}

void hfi_ballot_unref(struct hfi_ballot *ballot) {
    if (--ballot->refs == 0)
        hfi_free(ballot->quorum->mem, ballot);
}

static bool is_busy(const struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++)
        if (ballot->seats[i].errand != NULL || ballot->seats[i].owed)
            return true;
    return ballot->request != NULL || !hfi_list_empty(&ballot->rounds);
}

void hfi_ballot_clear_alarms(struct hfi_ballot *ballot) {
    struct hfi_exec *keeper = ballot->quorum->keeper;
    hfi_alarm_clear(keeper, &ballot->alarm);
    hfi_alarm_clear(keeper, &ballot->round_alarm);
    hfi_alarm_clear(keeper, &ballot->end_alarm);
}

/* NOLINTNEXTLINE(readability-function-size): the macro is what is big */
void hfi_ballot_tidy(struct hfi_ballot *ballot) {
    struct hfi_quorum *quorum = ballot->quorum;
    const struct hfi_mem *mem = quorum->mem;
    if (ballot->hh.tbl == NULL || ballot->wanted || is_busy(ballot))
        return;
    hfi_ballot_clear_alarms(ballot);
    HASH_DEL(quorum->table, ballot);
    ballot->hh.tbl = NULL;
    hfi_ballot_unref(ballot);
}

/* ---- Errands of seats ---- */

/* A grant that nobody wants: it is not waited at this server any more, nor was it probed. */
static bool keeps(const struct hfi_ballot *ballot, size_t i) {
    const struct hfi_request *request = ballot->request;
    if (!ballot->wanted)
        return false;
    return request == NULL || request->acquire.phase != HFI_PHASE_WAITING ||
           request->acquire.waits_at == i || request->acquire.probes_at == i;
}

static void note_held(struct hfi_ballot *ballot, const struct hfi_errand *errand) {
    hfi_votes_held(&ballot->votes, errand->index, errand->sent_ms, hfi_now_ms(), errand->lease_ms,
                   hfi_member_up_since_ms(errand->member));
    ballot->seats[errand->index].proved_round = errand->round;
}

static bool is_asking(const struct hfi_ballot *ballot) {
    return ballot->wanted && ballot->request != NULL &&
           ballot->request->acquire.phase == HFI_PHASE_ASKING;
}

static void give_back_seat(struct hfi_ballot *ballot, size_t i) {
    ballot->seats[i].owed = !hfi_seat_send(ballot, i, HFI_ERRAND_RELEASE, 0, 0);
}

static void asked(struct hfi_ballot *ballot, const struct hfi_errand *errand) {
    struct hfi_seat *seat = &ballot->seats[errand->index];
    seat->code = errand->code == HF_ETIMEDOUT ? HF_EBUSY : errand->code;
    seat->known = errand->code == HF_EBUSY;
    if (errand->code == HF_OK && !keeps(ballot, errand->index)) {
        seat->answer = HFI_UNASKED;
        give_back_seat(ballot, errand->index);
    } else if (errand->code == HF_OK) {
        seat->answer = HFI_GRANTED;
        note_held(ballot, errand);
        hfi_token_heard(ballot, errand);
    } else if (errand->code == HF_EBUSY || errand->code == HF_ETIMEDOUT) {
        seat->answer = HFI_BUSY;
    } else {
        seat->answer = errand->code == HF_ECANCELED ? HFI_UNASKED : HFI_FAILED;
    }
    /* a question of the last wait was in the way of one of this */
    if (errand->code == HF_ECANCELED && is_asking(ballot))
        hfi_seat_send(ballot, errand->index, HFI_ERRAND_ACQUIRE, 0, ballot->request->lease_ms);
}

static void renewed(struct hfi_ballot *ballot, const struct hfi_errand *errand) {
    struct hfi_seat *seat = &ballot->seats[errand->index];
    if (errand->code == HF_OK) {
        note_held(ballot, errand);
    } else if (errand->code == HF_ELOST || errand->code == HF_ENOTOWNER) {
        seat->answer = HFI_UNASKED;
        hfi_votes_gone(&ballot->votes, errand->index, hfi_now_ms());
    }
    hfi_token_heard(ballot, errand);
}

static void released(struct hfi_ballot *ballot, const struct hfi_errand *errand) {
    struct hfi_seat *seat = &ballot->seats[errand->index];
    seat->gone = errand->code == HF_ELOST || errand->code == HF_ENOTOWNER;
    seat->known = seat->gone || errand->code == HF_OK;
}

static void seat_done(struct hfi_errand *errand) {
    struct hfi_ballot *ballot = errand->ballot;
    struct hfi_seat *seat = &ballot->seats[errand->index];
    if (seat->errand == errand) {
        seat->errand = NULL;
        if (errand->kind == HFI_ERRAND_ACQUIRE)
            asked(ballot, errand);
        else if (errand->kind == HFI_ERRAND_RELEASE)
            released(ballot, errand);
        else if (ballot->wanted)
            renewed(ballot, errand);
        hfi_ballot_look(ballot);
    }
    hfi_ballot_unref(ballot);
}

/* What is owed comes first; the member's core keeps the order. False: there is still no memory. */
static bool pay_back(struct hfi_ballot *ballot, size_t i) {
    if (ballot->seats[i].owed && ballot->seats[i].errand == NULL)
        give_back_seat(ballot, i);
    return !ballot->seats[i].owed;
}

static bool send(struct hfi_ballot *ballot, size_t i, const struct hfi_errand_args *what) {
    struct hfi_errand_args args = *what;
    args.name = ballot->name;
    args.name_len = ballot->name_len;
    args.owner = ballot->owner;
    args.fenced = ballot->fenced;
    if (ballot->quorum->stopped || (args.kind != HFI_ERRAND_RELEASE && !pay_back(ballot, i)))
        return false;
    struct hfi_errand *errand = hfi_errand_begin(ballot->quorum, i, &args, seat_done);
    if (errand == NULL)
        return false;
    errand->ballot = ballot;
    errand->round = ballot->round;
    hfi_ballot_ref(ballot);
    ballot->seats[i].errand = errand;
    return true;
}

bool hfi_seat_send(struct hfi_ballot *ballot, size_t i, enum hfi_errand_kind kind, int64_t wait_ms,
                   int64_t lease_ms) {
    const struct hfi_errand_args args = {.kind = kind, .wait_ms = wait_ms, .lease_ms = lease_ms};
    return send(ballot, i, &args);
}

bool hfi_seat_wish(struct hfi_ballot *ballot, size_t i, int64_t token_wish, int64_t lease_ms) {
    const struct hfi_errand_args args = {
        .kind = HFI_ERRAND_EXTEND, .lease_ms = lease_ms, .token_wish = token_wish};
    return send(ballot, i, &args);
}

/* ---- The ballot as a whole ---- */

void hfi_ballot_give_back(struct hfi_ballot *ballot) {
    ballot->wanted = false;
    ballot->votes.won = false;
    for (size_t k = 0; k < ballot->quorum->len; k++) { /* the others wait at the first */
        size_t i = ballot->order[k];
        struct hfi_seat *seat = &ballot->seats[i];
        seat->answer = HFI_UNASKED;
        seat->gone = false;
        seat->known = seat->errand == NULL;
        if (!ballot->votes.of[i].held)
            continue;
        seat->known = false;
        give_back_seat(ballot, i);
    }
    hfi_votes_begin(&ballot->votes);
}

void hfi_ballot_stop_asking(struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++) {
        const struct hfi_errand *errand = ballot->seats[i].errand;
        if (errand != NULL && errand->kind == HFI_ERRAND_ACQUIRE)
            hfi_errand_stop(ballot->seats[i].errand);
    }
}

/* Fewer than a majority have held it without a break: the core above is told at once, and whatever is
 * left is given back. */
static void lose(struct hfi_ballot *ballot) {
    const struct hfi_news *news = ballot->quorum->news;
    char owner[HFI_OWNER_MAX];
    const struct hfi_scope scope = {
        .name = ballot->name,
        .name_len = ballot->name_len,
        .owner = owner,
        .owner_len = hfi_owner_text(&ballot->quorum->members[0]->core, ballot->owner, owner),
        .kind = ballot->held_as};
    hfi_ballot_give_back(ballot);
    hfi_rounds_end(ballot, HF_ELOST);
    news->lost(news->arg, &scope, HFI_LOST_WORDS);
}

/* The end of a hold may come nearer, when a server with a late end stops counting. */
static void watch_end(struct hfi_ballot *ballot) {
    int64_t now_ms = hfi_now_ms(), end_ms = hfi_votes_deadline_ms(&ballot->votes, now_ms);
    if (end_ms <= now_ms)
        lose(ballot);
    else
        hfi_alarm_set(ballot->quorum->keeper, &ballot->end_alarm, end_ms);
}

static void pay_all_back(struct hfi_ballot *ballot) {
    bool owed = false;
    for (size_t i = 0; i < ballot->quorum->len && !ballot->quorum->stopped; i++)
        owed |= !pay_back(ballot, i);
    if (owed && hfi_list_empty(&ballot->rounds))
        hfi_alarm_set(ballot->quorum->keeper, &ballot->round_alarm, hfi_now_ms() + AGAIN_MS);
}

void hfi_ballot_look(struct hfi_ballot *ballot) {
    hfi_ballot_ref(ballot);
    if (ballot->votes.won && !ballot->quorum->stopped)
        watch_end(ballot);
    if (!hfi_list_empty(&ballot->rounds))
        hfi_rounds_look(ballot);
    if (ballot->request != NULL)
        ballot->request->look(ballot->request);
    pay_all_back(ballot);
    hfi_ballot_tidy(ballot);
    hfi_ballot_unref(ballot);
}

struct hfi_proof hfi_ballot_proof(const struct hfi_ballot *ballot, int64_t lease_ms) {
    int64_t watchdog_ms = ballot->quorum->config.watchdog_ms;
    int64_t until_ms = hfi_votes_deadline_ms(&ballot->votes, hfi_now_ms());
    int64_t sent_ms = until_ms - (hfi_valid_until_ms(0, lease_ms));
    int64_t period_ms = (lease_ms < watchdog_ms ? lease_ms : watchdog_ms) / 3;
    return (struct hfi_proof){.valid_until_ms = until_ms,
                              .renew_at_ms = sent_ms + period_ms,
                              .promised_until_ms = until_ms};
}
