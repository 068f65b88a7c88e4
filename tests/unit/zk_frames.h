/* What a server of ZooKeeper 3.9.4 said, as hex digits: without the length of the frame. */
#ifndef HF_TEST_UNIT_ZK_FRAMES_H
#define HF_TEST_UNIT_ZK_FRAMES_H

#include <stddef.h>

#define ZK_NODE "/app/_c_11223344-5566-4788-99aa-bbccddeeff01-lock-"
#define ZK_NODE_HEX                                                                                  \
    "2f6170702f5f635f31313232333334342d353536362d343738382d393961612d6262636364646565666630312d6c6f" \
    "636b2d"
#define ZK_ZEROES "30303030303030303030"

enum zk_frame_kind {
    ZK_CONNECTED,
    ZK_HEADER, /* and nothing else */
    ZK_STAT,
    ZK_CREATED,
    ZK_DATA,
    ZK_CHILDREN,
    ZK_EVENT,
    ZK_MULTI,
    ZK_FRAME_KINDS
};

extern const char frame_connected[], frame_pong[], frame_bad_version[], frame_created[],
    frame_children[], frame_data[], frame_stat[], frame_event[], frame_multi[], frame_refused[],
    frame_empty_multi[];

struct zk_frame {
    enum zk_frame_kind kind;
    const char *hex;
};
#define ZK_FRAMES 11
extern const struct zk_frame zk_frames[ZK_FRAMES];

/* Bytes in a block of exactly their size, so that a sanitizer sees the caller that leaves it. */
unsigned char *zk_from_hex(const char *hex, size_t *ret_len);

#endif
