/* The kind of lock that the options of `run` and `hold` choose: the table of kinds, and which
 * options exclude each other.
 *
 * Called while options are read, before other threads exist. A command-line option replaces one
 * from the environment; two from the same source are an error. -x chooses no kind: it only refuses
 * kinds that allow several holders. -m takes several locks of one kind, so it excludes slots. */
#include "hold/held.h"

#include <stdio.h>

static const struct held_kind plain = {"plain", &held_lock_ops, true, HF_PLAIN, 0};

/* In the order of CHOICE_OPTIONS. */
static const struct held_kind kinds[] = {
    {"read", &held_lock_ops, false, HF_READ, 0},
    {"write", &held_lock_ops, true, HF_WRITE, 0},
    {"fair", &held_lock_ops, true, HF_FAIR, 0},
    {"fenced", &held_lock_ops, true, HF_PLAIN, HF_FENCED},
    {"spin", &held_lock_ops, true, HF_PLAIN, HF_SPIN},
    {"string", &held_lock_ops, true, HF_STRING, 0},
    {"permit", &held_slot_ops, false, HF_PLAIN, 0},
};

static int choose(struct choice *choice, const char *subcommand, const struct held_kind *kind,
                  const char *shown) {
    bool by_flag = shown[0] == '-';
    if (choice->kind != NULL && choice->kind != kind && choice->by_flag == by_flag)
        return usage_error(subcommand, "%s and %s exclude each other", choice->shown, shown);
    choice->kind = kind;
    choice->by_flag = by_flag;
    snprintf(choice->shown, sizeof choice->shown, "%s", shown);
    return 0;
}

static int choose_slots(struct choice *choice, const char *subcommand, const char *value,
                        const char *shown) {
    long slots;
    if (!parse_number(value, 1, HF_PERMITS_MAX, &slots))
        return usage_error(subcommand, "%s: '%s' is not a number of slots: give 1 or more", shown,
                           value);
    choice->slots = slots;
    return choose(choice, subcommand, &kinds[CHOICE_ID_SLOTS - CHOICE_ID_FIRST], shown);
}

bool choice_option(struct choice *choice, const char *subcommand, int id, const char *value,
                   const char *shown, int *ret_status) {
    *ret_status = 0;
    if (id < CHOICE_ID_FIRST || id > CHOICE_ID_SEVERAL)
        return false;
    if (id == CHOICE_ID_EXCLUSIVE)
        choice->exclusive = true;
    else if (id == CHOICE_ID_SEVERAL)
        choice->several = true;
    else if (id == CHOICE_ID_SLOTS)
        *ret_status = choose_slots(choice, subcommand, value, shown);
    else
        *ret_status = choose(choice, subcommand, &kinds[id - CHOICE_ID_FIRST], shown);
    return true;
}

int choice_settle(struct choice *choice, const char *subcommand) {
    if (choice->kind != NULL && choice->exclusive && !choice->kind->exclusive) {
        if (choice->by_flag)
            return usage_error(subcommand, "-x and %s exclude each other", choice->shown);
        choice->kind = NULL;
    }
    if (choice->kind != NULL && choice->several && choice->kind->ops != &held_lock_ops) {
        if (choice->by_flag)
            return usage_error(subcommand, "-m and %s exclude each other", choice->shown);
        choice->kind = NULL;
    }
    if (choice->kind == NULL)
        choice->kind = &plain;
    return 0;
}

int choice_check_lease(struct choice *choice, const char *subcommand, int64_t lease_ms) {
    choice->no_lease = lease_ms == HF_NO_LEASE;
    if (!choice->no_lease)
        return 0;
    if (choice->kind->lock != HF_STRING)
        return usage_error(subcommand, "--lease none is only for --string");
    return choice->several ? usage_error(subcommand, "-m and --lease none exclude each other") : 0;
}

int choice_check_servers(const struct choice *choice, const struct connection *connection,
                         const char *subcommand) {
    if (choice->no_lease)
        return connection_refuse_several(connection, subcommand, "--lease none");
    if (choice->kind == &plain || choice->kind->flags == HF_FENCED ||
        choice->kind->lock == HF_STRING)
        return 0;
    return connection_refuse_several(connection, subcommand, choice->shown);
}
