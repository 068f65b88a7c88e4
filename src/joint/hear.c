/*
 * Hearing what the servers of a quorum say of a name: each is heard for itself, and what it says is passed on with its number.
 *
 * Any thread: the members' engines take care of themselves, and nothing here changes between hear and unhear.
 */
#include "joint/internal.h"

struct ear {
    struct hfi_hearer hearer;
    struct hfi_hearing *whole;
    struct hfi_hearing *at; /* the member's; NULL: there is none */
};

struct hfi_hearing {
    struct hfi_hearer *hearer;
    struct ear ears[HFI_SERVERS_MAX];
};

static void pass_on(struct hfi_hearer *hearer, const struct hfi_tidings *tidings) {
    const struct ear *ear = HFI_CONTAINER(hearer, struct ear, hearer);
    struct hfi_hearing *hearing = ear->whole;
    struct hfi_tidings told = *tidings;
    told.server = (size_t)(ear - hearing->ears);
    hearing->hearer->hear(hearing->hearer, &told);
}

void hfi_quorum_unhear(struct hfi_engine *engine, struct hfi_hearing *hearing) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        if (hearing->ears[i].at != NULL)
            member->ops->unhear(member, hearing->ears[i].at);
    }
    hfi_free(quorum->mem, hearing);
}

int hfi_quorum_hear(struct hfi_engine *engine, const char *name, size_t name_len,
                    struct hfi_hearer *hearer, struct hfi_hearing **ret) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    struct hfi_hearing *hearing = hfi_zalloc(quorum->mem, sizeof *hearing);
    int err = hearing != NULL ? HF_OK : HF_ENOMEM;
    if (hearing != NULL)
        hearing->hearer = hearer;
    for (size_t i = 0; i < quorum->len && err == HF_OK; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        struct ear *ear = &hearing->ears[i];
        *ear = (struct ear){.hearer = {.hear = pass_on}, .whole = hearing};
        err = member->ops->hear(member, name, name_len, &ear->hearer, &ear->at);
    }
    if (err == HF_OK)
        *ret = hearing;
    else if (hearing != NULL)
        hfi_quorum_unhear(engine, hearing);
    return err;
}

size_t hfi_quorum_servers(struct hfi_engine *engine) {
    return hfi_quorum_of_engine(engine)->len;
}
