/*
 * Evaluates the replies of a survey: which nodes are locks, which queued nodes hold them, and the
 * owners.
 *
 * Called by survey.c, on the thread of the call's executor. The tree may contain foreign nodes. A
 * node is a lock if a recipe's nodes are beneath it, permits if there are leases; anything else
 * beneath it may be more names.
 */
#include "zk/fleet/survey.h"

#include "base/glob.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNERS_MAX 100 /* holders of one lock, and as many waiters: the rest is only counted */
#define LOCKS_MAX 100000
/* Children of one node. A list cannot be fetched in parts and has to fit into HFI_ZK_FRAME_MAX, as
 * this many names of 16 letters do. A longer reply is refused when it comes. A node with more
 * children is not listed at all: the reply would be sent for nothing. */
#define CHILDREN_MAX 200000
#define CLOCK_OFF_MS 1000 /* more than this in the future: clocks are wrong */
#define DATA_SHOWN 40

static bool is_text(struct hfi_zk_text name, const char *text) {
    return name.len == strlen(text) && memcmp(name.bytes, text, name.len) == 0;
}

/* ---- Names ---- */

/* The lock name of a path. False: no name that this client could have. */
static bool name_of(const struct hfi_zk_survey *survey, const char *path, size_t len,
                    struct hfi_zk_text *ret) {
    if (len <= survey->base_len || memcmp(path, survey->base, survey->base_len) != 0)
        return false;
    *ret = (struct hfi_zk_text){.bytes = path + survey->base_len, .len = len - survey->base_len};
    return *ret->bytes != '/';
}

/* Whether this name, or names beneath it, can match the pattern. */
static bool is_on_the_way(const struct hfi_zk_survey *survey, struct hfi_zk_text name) {
    size_t len = name.len < survey->literal_len ? name.len : survey->literal_len;
    return memcmp(name.bytes, survey->pattern, len) == 0;
}

/* ---- Queues ---- */

struct place {
    struct hfi_zk_node node;
    struct hfi_zk_text name;
};

struct queue {
    size_t len;
    struct place *places; /* in order */
    bool any_writes;
    int32_t first_writer; /* its number */
};

static int compare_places(const void *a, const void *b) {
    const struct hfi_zk_node *one = &((const struct place *)a)->node,
                             *other = &((const struct place *)b)->node;
    if (one->number != other->number)
        return hfi_zk_before(one->number, other->number) ? -1 : 1;
    return (one->label > other->label) - (one->label < other->label);
}

/* Collects the queued nodes with those labels; the caller frees the places. */
static bool read_queue(struct hfi_zk_survey *survey, struct hfi_zk_children children,
                       unsigned labels, struct queue *ret) {
    struct hfi_zk_text name;
    *ret =
        (struct queue){.places = hfi_zalloc(survey->mem, (children.len + 1) * sizeof *ret->places)};
    if (ret->places == NULL) {
        survey->failed = true;
        return false;
    }
    while (hfi_zk_next_child(&children, &name)) {
        struct place place = {.node = hfi_zk_node_parse(name.bytes, name.len), .name = name};
        if ((labels >> place.node.label & 1) != 0)
            ret->places[ret->len++] = place;
    }
    qsort(ret->places, ret->len, sizeof *ret->places, compare_places);
    for (size_t i = 0; i < ret->len && !ret->any_writes; i++)
        if (ret->places[i].node.label == HFI_ZK_WRITE) {
            ret->any_writes = true;
            ret->first_writer = ret->places[i].node.number;
        }
    return true;
}

static bool holds_mutex(const struct queue *queue, size_t i) {
    (void)queue;
    return i == 0;
}

/* A writer that also reads has two nodes with one number. */
static bool holds_readwrite(const struct queue *queue, size_t i) {
    const struct hfi_zk_node *node = &queue->places[i].node;
    if (node->label == HFI_ZK_WRITE)
        return node->number == queue->places[0].node.number;
    return !queue->any_writes || !hfi_zk_before(queue->first_writer, node->number);
}

static bool holds_all(const struct queue *queue, size_t i) {
    (void)queue;
    (void)i;
    return true;
}

static bool holds_none(const struct queue *queue, size_t i) {
    (void)queue;
    (void)i;
    return false;
}

static struct hfi_found_lock *new_lock(struct hfi_zk_survey *survey, struct hfi_zk_text name,
                                       enum hfi_found_kind kind, size_t owners) {
    struct hfi_found_lock *lock = calloc(1, sizeof *lock + name.len + 1);
    if (lock != NULL)
        lock->owners = calloc(owners, sizeof *lock->owners);
    if (lock == NULL || lock->owners == NULL) {
        free(lock);
        survey->failed = true;
        return NULL;
    }
    lock->kind = kind;
    lock->ttl_ms = lock->available = -1;
    lock->name_len = name.len;
    memcpy(lock->name, name.bytes, name.len);
    hfi_list_push_back(&survey->findings->locks, &lock->link);
    survey->locks++;
    return lock;
}

/* Adds the holders or the waiters, up to OWNERS_MAX, and requests their data. */
static void add_owners(struct hfi_zk_survey *survey, const char *path, const struct queue *queue,
                       bool (*holds)(const struct queue *queue, size_t i), bool holders,
                       struct hfi_found_lock *lock) {
    size_t added = 0;
    for (size_t i = 0; i < queue->len; i++) {
        if (holds(queue, i) != holders)
            continue;
        lock->listeners += !holders;
        if (++added > OWNERS_MAX) {
            lock->left_out++;
            continue;
        }
        struct hfi_found_owner *owner = &lock->owners[lock->owners_len++];
        owner->count = holders;
        owner->left_ms = -1;
        owner->writes = queue->places[i].node.label == HFI_ZK_WRITE;
        hfi_zk_survey_add(survey, HFI_ZK_REQUEST_DATA, path, queue->places[i].name, lock,
                          lock->owners_len - 1);
    }
}

static void add_lock(struct hfi_zk_survey *survey, const struct hfi_zk_request *request,
                     struct hfi_zk_text name, struct hfi_zk_children children, unsigned labels,
                     enum hfi_found_kind kind, bool (*holds)(const struct queue *queue, size_t i)) {
    struct queue queue;
    if (survey->locks >= LOCKS_MAX) {
        hfi_zk_survey_cut(survey, "there are more locks than a survey can list");
        return;
    }
    if (!read_queue(survey, children, labels, &queue))
        return;
    size_t owners_max = queue.len < 2 * (size_t)OWNERS_MAX ? queue.len : 2 * (size_t)OWNERS_MAX;
    struct hfi_found_lock *lock = queue.len > 0 ? new_lock(survey, name, kind, owners_max) : NULL;
    if (lock != NULL) {
        add_owners(survey, request->path, &queue, holds, true, lock);
        add_owners(survey, request->path, &queue, holds, false, lock);
    }
    hfi_free(survey->mem, queue.places);
}

/* ---- A node and its children ---- */

enum { HAS_LEASES = 1, HAS_QUEUE = 2, HAS_TOTAL = 4 };

/* The nodes of Curator's permits. */
static unsigned part_of_permits(struct hfi_zk_text child) {
    return is_text(child, "leases")    ? HAS_LEASES
           : is_text(child, "locks")   ? HAS_QUEUE
           : is_text(child, "permits") ? HAS_TOTAL
                                       : 0;
}

static bool are_permits(struct hfi_zk_children children) {
    struct hfi_zk_text child;
    unsigned parts = 0;
    while (hfi_zk_next_child(&children, &child))
        parts |= part_of_permits(child);
    return (parts & HAS_LEASES) != 0 || parts == (HAS_QUEUE | HAS_TOTAL);
}

/* Requests the names beneath this one. At the top all children are names. */
static void walk_on(struct hfi_zk_survey *survey, const struct hfi_zk_request *request, bool top,
                    bool permits, struct hfi_zk_children children) {
    struct hfi_zk_text child, name;
    char path[HFI_ZK_PATH_MAX];
    while (hfi_zk_next_child(&children, &child)) {
        bool queued = hfi_zk_node_parse(child.bytes, child.len).label != HFI_ZK_NO_LABEL;
        if ((queued && !top) || (permits && part_of_permits(child) != 0))
            continue;
        size_t above = strcmp(request->path, "/") == 0 ? 0 : request->len;
        size_t len = above + 1 + child.len;
        if (len >= sizeof path || (above == 0 && is_text(child, "zookeeper")))
            continue;
        snprintf(path, sizeof path, "%.*s/%.*s", (int)above, request->path, (int)child.len,
                 child.bytes);
        if (name_of(survey, path, len, &name) && is_on_the_way(survey, name))
            hfi_zk_survey_add(survey, HFI_ZK_REQUEST_CHECK, request->path, child, NULL, 0);
    }
}

static void add_permits(struct hfi_zk_survey *survey, const struct hfi_zk_request *request) {
    static const struct hfi_zk_text leases = {.bytes = "leases", .len = 6},
                                    queue = {.bytes = "locks", .len = 5};
    hfi_zk_survey_add(survey, HFI_ZK_REQUEST_LEASES, request->path, leases, NULL, 0);
    hfi_zk_survey_add(survey, HFI_ZK_REQUEST_QUEUE, request->path, queue, NULL, 0);
}

static void listed(struct hfi_zk_survey *survey, const struct hfi_zk_request *request,
                   struct hfi_zk_children children) {
    struct hfi_zk_text name;
    bool top = request->len == survey->top_len;
    bool permits = !top && are_permits(children);
    walk_on(survey, request, top, permits, children);
    if (top || !name_of(survey, request->path, request->len, &name) ||
        !hfi_glob(survey->pattern, survey->pattern_len, name.bytes, name.len))
        return;
    if (permits)
        add_permits(survey, request);
    add_lock(survey, request, name, children, 1u << HFI_ZK_LOCK, HFI_FOUND_PLAIN, holds_mutex);
    add_lock(survey, request, name, children, 1u << HFI_ZK_READ | 1u << HFI_ZK_WRITE,
             HFI_FOUND_READ, holds_readwrite);
}

/* A part of permits was listed: its parent is their name. */
static void listed_part(struct hfi_zk_survey *survey, const struct hfi_zk_request *request,
                        struct hfi_zk_children children) {
    struct hfi_zk_text name;
    size_t len = hfi_zk_parent_len(request->path, request->len);
    if (!name_of(survey, request->path, len, &name))
        return;
    if (request->kind == HFI_ZK_REQUEST_LEASES)
        add_lock(survey, request, name, children, 1u << HFI_ZK_LEASE, HFI_FOUND_PERMITS, holds_all);
    else
        add_lock(survey, request, name, children, 1u << HFI_ZK_LOCK, HFI_FOUND_PERMITS, holds_none);
}

/* ---- Owners ---- */

/* Containers and TTL nodes have a marker in place of a session. */
static bool has_session(const struct hfi_zk_stat *stat) {
    uint64_t owner = (uint64_t)stat->ephemeral_owner;
    return owner != 0 && owner != (uint64_t)1 << 63 && owner >> 56 != 0xff;
}

/* As the client names of Redis connections: "holdfast:uuid:host:pid:program". */
static void add_connection(struct hfi_zk_survey *survey, const struct hfi_zk_data *says) {
    if (memcmp(survey->last_id, says->owner.bytes, sizeof survey->last_id) == 0)
        return;
    struct hfi_found_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        survey->failed = true;
        return;
    }
    memcpy(survey->last_id, says->owner.bytes, sizeof survey->last_id);
    snprintf(connection->name, sizeof connection->name, "holdfast:%.*s:%.*s", HFI_ZK_UUID_TEXT,
             says->owner.bytes, (int)says->who.len, says->who.bytes);
    char *blank = connection->name;
    for (int i = 0; i < 2 && blank != NULL; i++) {
        blank = strchr(blank, ' ');
        if (blank != NULL)
            *blank = ':';
    }
    snprintf(connection->under, sizeof connection->under, "%.*s", (int)says->under.len,
             says->under.bytes);
    hfi_list_push_back(&survey->findings->connections, &connection->link);
}

/* Data that is not printable text is not shown. */
static size_t shown_len(struct hfi_zk_text data) {
    size_t len = data.len < DATA_SHOWN ? data.len : DATA_SHOWN;
    for (size_t i = 0; i < len; i++)
        if (data.bytes[i] < ' ' || data.bytes[i] > '~')
            return 0;
    return len;
}

/* The age of a node; 0: its ctime is in the future, or negative. */
static int64_t age_of(int64_t wall_ms, int64_t ctime_ms) {
    if (ctime_ms < 0 || ctime_ms - CLOCK_OFF_MS > wall_ms)
        return 0;
    return ctime_ms < wall_ms ? wall_ms - ctime_ms : 1;
}

/* A holdfast node names its owner. Of other clients there is a session and the node's data:
 * Curator's address. */
static void describe(struct hfi_zk_survey *survey, const struct hfi_zk_request *request,
                     struct hfi_zk_text data, const struct hfi_zk_stat *stat) {
    struct hfi_found_owner *owner = &request->lock->owners[request->owner];
    struct hfi_zk_data says;
    bool ours = hfi_zk_data_parse(data, &says);
    owner->for_ms = age_of(survey->wall_ms, stat->ctime_ms);
    owner->presence = has_session(stat) ? HF_PRESENCE_CONNECTED : HF_PRESENCE_GONE;
    if (ours)
        snprintf(owner->owner, sizeof owner->owner, "%.*s", (int)says.owner.len, says.owner.bytes);
    else if (has_session(stat))
        snprintf(owner->owner, sizeof owner->owner, "session 0x%" PRIx64 " %.*s",
                 (uint64_t)stat->ephemeral_owner, (int)shown_len(data), data.bytes);
    else
        snprintf(owner->owner, sizeof owner->owner, "no session %.*s", (int)shown_len(data),
                 data.bytes);
    if (ours && has_session(stat))
        add_connection(survey, &says);
}

/* ---- Replies ---- */

int hfi_zk_survey_found(struct hfi_zk_survey *survey, const struct hfi_zk_request *request,
                        struct hfi_zk_in *body) {
    static const struct hfi_zk_text nothing = {.bytes = "", .len = 0};
    struct hfi_zk_stat stat;
    struct hfi_zk_children children;
    struct hfi_zk_text data = nothing;
    int err = HF_OK;
    switch (request->kind) {
    case HFI_ZK_REQUEST_CHECK:
        err = hfi_zk_get_stat(body, &stat);
        if (err == HF_OK && stat.children_len > CHILDREN_MAX)
            hfi_zk_survey_cut(survey, "a node has more children than can be listed");
        else if (err == HF_OK && stat.children_len > 0)
            hfi_zk_survey_add(survey, HFI_ZK_REQUEST_LIST, request->path, nothing, NULL, 0);
        break;
    case HFI_ZK_REQUEST_LIST:
        err = hfi_zk_get_children(body, &children);
        if (err == HF_OK)
            listed(survey, request, children);
        break;
    case HFI_ZK_REQUEST_LEASES:
    case HFI_ZK_REQUEST_QUEUE:
        err = hfi_zk_get_children(body, &children);
        if (err == HF_OK)
            listed_part(survey, request, children);
        break;
    case HFI_ZK_REQUEST_DATA:
        err = hfi_zk_get_data(body, &data, &stat);
        if (err == HF_OK)
            describe(survey, request, data.bytes != NULL ? data : nothing, &stat);
        break;
    case HFI_ZK_REQUEST_SESSION:
        err = hfi_zk_get_stat(body, &stat);
        if (err == HF_OK)
            describe(survey, request, nothing, &stat);
        break;
    }
    return err;
}
