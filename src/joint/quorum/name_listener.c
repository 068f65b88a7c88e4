/*
 * A name listener at each server of a quorum; events are passed on with the server's index.
 *
 * Any thread: the members' engines do their own locking, and nothing here changes between subscribe
 * and unsubscribe.
 */
#include "joint/quorum/quorum_impl.h"

struct subscription {
    struct hfi_name_subscriber subscriber;
    struct name_listener *whole;
    struct hfi_name_listener *at; /* the member's; NULL: none */
};

struct name_listener {
    struct hfi_name_listener base;
    const struct hfi_mem *mem;
    struct hfi_name_subscriber *subscriber;
    struct subscription subscriptions[HFI_SERVERS_MAX];
};

static void pass_on(struct hfi_name_subscriber *subscriber,
                    const struct hfi_name_event *name_event) {
    const struct subscription *subscription =
        HFI_CONTAINER(subscriber, struct subscription, subscriber);
    struct name_listener *name_listener = subscription->whole;
    struct hfi_name_event passed = *name_event;
    passed.server = (size_t)(subscription - name_listener->subscriptions);
    name_listener->subscriber->on_event(name_listener->subscriber, &passed);
}

static void unsubscribe(struct hfi_name_listener *base) {
    struct name_listener *name_listener = HFI_CONTAINER(base, struct name_listener, base);
    for (size_t i = 0; i < base->servers; i++) {
        struct hfi_name_listener *at = name_listener->subscriptions[i].at;
        if (at != NULL)
            at->unsubscribe(at);
    }
    hfi_free(name_listener->mem, name_listener);
}

int hfi_quorum_subscribe(struct hfi_engine *engine, const char *name, size_t name_len,
                         struct hfi_name_subscriber *subscriber, struct hfi_name_listener **ret) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    struct name_listener *name_listener = hfi_zalloc(quorum->mem, sizeof *name_listener);
    if (name_listener == NULL)
        return HF_ENOMEM;
    name_listener->base =
        (struct hfi_name_listener){.servers = quorum->len, .unsubscribe = unsubscribe};
    name_listener->mem = quorum->mem;
    name_listener->subscriber = subscriber;
    int err = HF_OK;
    for (size_t i = 0; i < quorum->len && err == HF_OK; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        struct subscription *subscription = &name_listener->subscriptions[i];
        *subscription =
            (struct subscription){.subscriber = {.on_event = pass_on}, .whole = name_listener};
        err = member->ops->observe->subscribe(member, name, name_len, &subscription->subscriber,
                                              &subscription->at);
    }
    if (err == HF_OK)
        *ret = &name_listener->base;
    else
        unsubscribe(&name_listener->base);
    return err;
}
