/*
 * A ZooKeeper server whose data were changed while it was down; see zk_set_next_number in zk.h.
 *
 * Called by tests, on the thread that the server belongs to. A server writes all it has into a snapshot when it
 * starts. There a node is its path, its data and the numbers about it, of which one is the number that the next
 * sequential child gets; sums of all bytes before them stand at the end, behind the tree and behind what follows it.
 */
#include "support/wait.h"
#include "support/zk_internal.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SEAL_LEN = 8 + 4 + 1, /* a sum, and the word "/" */
    BEFORE_CHILDREN =
        8 + 4 * 8 +
        4, /* of a node's numbers: its access list, when it was made and changed, its version */
    MOST_SEALS = 8,
};

struct snapshot {
    char *path;
    unsigned char *bytes;
    size_t len;
};

static struct snapshot read_newest(const struct zk *zk) {
    struct snapshot snapshot = {0};
    glob_t found;
    char *pattern = text_of("%s/data/version-2/snapshot.*", zk->dir);
    if (glob(pattern, 0, NULL, &found) != 0)
        support_die("%s: no such file", pattern);
    size_t newest = 0;
    for (size_t i = 1; i < found.gl_pathc; i++) /* its name ends with a number, in hexadecimal */
        if (strtoull(strrchr(found.gl_pathv[i], '.') + 1, NULL, 16) >
            strtoull(strrchr(found.gl_pathv[newest], '.') + 1, NULL, 16))
            newest = i;
    snapshot.path = strdup(found.gl_pathv[newest]);
    globfree(&found);
    free(pattern);

    FILE *file = fopen(snapshot.path, "re");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        support_die("%s: %s", snapshot.path, strerror(errno));
    snapshot.len = (size_t)ftell(file);
    snapshot.bytes = malloc(snapshot.len);
    rewind(file);
    if (snapshot.bytes == NULL || fread(snapshot.bytes, 1, snapshot.len, file) != snapshot.len)
        support_die("%s cannot be read", snapshot.path);
    fclose(file);
    return snapshot;
}

static void write_back(const struct snapshot *snapshot) {
    FILE *file = fopen(snapshot->path, "we");
    if (file == NULL || fwrite(snapshot->bytes, 1, snapshot->len, file) != snapshot->len ||
        fclose(file) != 0)
        support_die("%s: %s", snapshot->path, strerror(errno));
}

/* Adler-32, as Java's. */
static uint64_t add_to_sum(uint64_t sum, unsigned char byte) {
    uint64_t low = ((sum & 0xffff) + byte) % 65521, high = ((sum >> 16) + low) % 65521;
    return high << 16 | low;
}

/* Where the sums are: everywhere where the sum of what is before stands, with its word behind. */
static size_t find_seals(const struct snapshot *snapshot, size_t seals[MOST_SEALS]) {
    static const unsigned char word[] = {0, 0, 0, 1, '/'};
    uint64_t sum = 1;
    size_t found = 0;
    for (size_t at = 0; at + SEAL_LEN <= snapshot->len;
         sum = add_to_sum(sum, snapshot->bytes[at++])) {
        uint64_t wire = htobe64(sum);
        if (memcmp(snapshot->bytes + at, &wire, 8) == 0 &&
            memcmp(snapshot->bytes + at + 8, word, sizeof word) == 0 && found < MOST_SEALS)
            seals[found++] = at;
    }
    if (found == 0)
        support_die("%s has no sums", snapshot->path);
    return found;
}

static void seal(struct snapshot *snapshot, const size_t *seals, size_t len) {
    uint64_t sum = 1;
    size_t next = 0;
    for (size_t at = 0; at < snapshot->len && next < len; at++) {
        if (at == seals[next]) {
            uint64_t wire = htobe64(sum);
            memcpy(snapshot->bytes + at, &wire, sizeof wire);
            next++;
        }
        sum = add_to_sum(sum, snapshot->bytes[at]);
    }
}

/* Behind a node's path, before which is its length. */
static unsigned char *find_node(const struct snapshot *snapshot, const char *path) {
    size_t len = strlen(path);
    uint32_t wire = htonl((uint32_t)len);
    unsigned char *at = snapshot->bytes + 4, *end = snapshot->bytes + snapshot->len;
    while ((at = memmem(at, (size_t)(end - at), path, len)) != NULL) {
        if (memcmp(at - 4, &wire, 4) == 0)
            return at + len;
        at++;
    }
    support_die("%s has no %s", snapshot->path, path);
}

/* What follows there: its data, and its numbers. */
static unsigned char *find_number(const struct snapshot *snapshot, const char *path) {
    unsigned char *at = find_node(snapshot, path);
    uint32_t wire;
    memcpy(&wire, at, 4);
    int32_t len = (int32_t)ntohl(wire); /* -1: none */
    return at + 4 + (len > 0 ? len : 0) + BEFORE_CHILDREN;
}

void zk_set_next_number(struct zk *zk, const char *path, int32_t number) {
    size_t seals[MOST_SEALS];
    uint32_t wire = htonl((uint32_t)number);
    zk_restart(zk);
    zk_kill(zk);
    struct snapshot snapshot = read_newest(zk);
    size_t len = find_seals(&snapshot, seals);
    memcpy(find_number(&snapshot, path), &wire, sizeof wire);
    seal(&snapshot, seals, len);
    write_back(&snapshot);
    free(snapshot.path);
    free(snapshot.bytes);
    zk_launch(zk);
    zk_wait_serving(zk);
}
