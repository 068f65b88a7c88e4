/*
 * What is spoken through a proxy: RESP, ZooKeeper's frames, or bytes that mean nothing to it.
 *
 * Called by proxy_link.c with the proxy's mutex held; there is no state here.
 *
 * A frame of ZooKeeper is a length of four bytes and so much behind it. A request's begins with its
 * number and what it asks for, and most go on with a path; a reply's begins with the number of its
 * request, and with -1 if it is the news of a watch. The first frame of either side has no number,
 * but zero at that place.
 */
#include "support/proxy_internal.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { FRAME_LIMIT = 64 * 1024 * 1024, AT_ID = 4, AT_KIND = 8, AT_PATH = 12 };

static int32_t number_at(const char *data) {
    uint32_t number;
    memcpy(&number, data, sizeof number);
    return (int32_t)ntohl(number);
}

int32_t proxy_frame_id(const char *frame) {
    return number_at(frame + AT_ID);
}

void proxy_frame_answers(char *frame, const char *request) {
    memcpy(frame + AT_ID, request + AT_ID, AT_KIND - AT_ID);
}

static size_t frame_length(const char *data, size_t length) {
    if (length < 4)
        return 0;
    int32_t behind = number_at(data);
    if (behind < 0 || behind > FRAME_LIMIT)
        return RESP_BROKEN;
    return length >= (size_t)behind + 4 ? (size_t)behind + 4 : 0;
}

static const char *kind_name(int32_t kind) {
    static const struct {
        int32_t kind;
        const char *name;
    } kinds[] = {
        {1, "create"},       {2, "delete"},           {3, "exists"},      {4, "getData"},
        {5, "setData"},      {6, "getACL"},           {8, "getChildren"}, {9, "sync"},
        {11, "ping"},        {12, "getChildren2"},    {13, "check"},      {14, "multi"},
        {15, "create2"},     {19, "createContainer"}, {22, "multiRead"},  {100, "auth"},
        {101, "setWatches"}, {-11, "closeSession"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "request";
}

/* "create2 /app/x/_c_… " and then the bytes. */
static void describe_frame(struct bytes *into, const char *frame, size_t length) {
    bool first = length >= 8 && proxy_frame_id(frame) == 0;
    const char *name =
        first || length < AT_PATH ? "connect" : kind_name(number_at(frame + AT_KIND));
    bytes_append(into, name, strlen(name));
    bytes_append(into, " ", 1);
    if (!first && length >= AT_PATH + 4) {
        int32_t path = number_at(frame + AT_PATH);
        if (path > 0 && (size_t)path <= length - AT_PATH - 4)
            bytes_append(into, frame + AT_PATH + 4, (size_t)path);
    }
    bytes_append(into, " ", 1);
    bytes_append(into, frame, length);
}

static size_t all_there_is(const char *data, size_t length) {
    (void)data;
    return length;
}

const struct proxy_speech *proxy_speech_of(enum proxy_wire wire) {
    static const struct proxy_speech speeches[] = {
        [PROXY_RESP] = {.scheme = "redis",
                        .command_length = resp_command_length,
                        .reply_length = resp_reply_length},
        [PROXY_ZOOKEEPER] = {.scheme = "zk",
                             .command_length = frame_length,
                             .reply_length = frame_length,
                             .describe = describe_frame,
                             .numbered = true},
        [PROXY_OPAQUE] = {.scheme = "tcp",
                          .command_length = all_there_is,
                          .reply_length = all_there_is,
                          .opaque = true},
    };
    return &speeches[wire];
}
