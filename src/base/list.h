/* An intrusive doubly linked list. A zeroed link is in no list. */
#ifndef HFI_BASE_LIST_H
#define HFI_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct hfi_link {
    struct hfi_link *prev, *next;
};

/* The head of a list: links to itself when empty. */
static inline void hfi_list_init(struct hfi_link *head) {
    head->prev = head->next = head;
}

static inline bool hfi_list_empty(const struct hfi_link *head) {
    return head->next == head;
}

static inline bool hfi_linked(const struct hfi_link *link) {
    return link->next != NULL;
}

static inline void hfi_list_push_back(struct hfi_link *head, struct hfi_link *link) {
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void hfi_list_push_front(struct hfi_link *head, struct hfi_link *link) {
    link->prev = head;
    link->next = head->next;
    head->next->prev = link;
    head->next = link;
}

static inline void hfi_list_remove(struct hfi_link *link) {
    if (!hfi_linked(link))
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = NULL;
}

/* Puts `link` in the place of `other`, which is in a list. */
static inline void hfi_list_replace(struct hfi_link *other, struct hfi_link *link) {
    *link = *other;
    link->prev->next = link;
    link->next->prev = link;
    other->prev = other->next = NULL;
}

static inline struct hfi_link *hfi_list_pop_front(struct hfi_link *head) {
    if (hfi_list_empty(head))
        return NULL;
    struct hfi_link *first = head->next;
    hfi_list_remove(first);
    return first;
}

/* Moves everything in `from` to the end of `to`, which is initialised. */
static inline void hfi_list_splice(struct hfi_link *to, struct hfi_link *from) {
    if (hfi_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    hfi_list_init(from);
}

#define HFI_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
