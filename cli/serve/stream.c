/* Live pages by Server-Sent Events: one endless response for each. Every survey is one event, made
 * once for all streams. A stream that sent the previous survey gets the changes, any other gets
 * everything. So a slow reader skips surveys and needs no queue. One that does not read an event
 * within EVENT_LIMIT_MS is dropped (http.c).
 *
 * The connection is suspended while there is nothing to send. */
#include "serve/http.h"

#include <stdlib.h>
#include <string.h>

#define EVENT_LIMIT_MS 10000
#define BLOCK_SIZE ((size_t)32 * 1024)

struct frame {
    int users;
    uint64_t seq;
    size_t len;
    char *text;
};

static void frame_drop(struct frame *frame) {
    if (frame == NULL || --frame->users > 0)
        return;
    free(frame->text);
    free(frame);
}

static struct frame *frame_new(uint64_t seq, char *text) {
    struct frame *frame = text != NULL ? malloc(sizeof *frame) : NULL;
    if (frame == NULL)
        free(text);
    else
        *frame = (struct frame){.users = 1, .seq = seq, .len = strlen(text), .text = text};
    return frame;
}

/* The event of the latest survey, for a stream that last sent survey `known`; NULL: out of
 * memory. */
static struct frame *frame_for(struct serve *serve, uint64_t known) {
    bool full = known == 0 || known + 1 != serve->view.seq;
    struct frame **slot = full ? &serve->full : &serve->changes;
    if (*slot == NULL || (*slot)->seq != serve->view.seq) {
        frame_drop(*slot);
        *slot = frame_new(serve->view.seq, frame_make(&serve->view, &serve->facts, full));
    }
    if (*slot != NULL)
        (*slot)->users++;
    return *slot;
}

void frames_forget(struct serve *serve) {
    frame_drop(serve->full);
    frame_drop(serve->changes);
    serve->full = serve->changes = NULL;
}

/* The next event to send; NULL: none for now. */
static struct frame *next_frame(struct request *request) {
    static const char keep_alive[] = ": still asking\n\n";
    struct stream *stream = &request->stream;
    if (stream->seq != request->serve->view.seq) {
        struct frame *frame = frame_for(request->serve, stream->seq);
        stream->seq = request->serve->view.seq;
        stream->keep_alive_due = false;
        return frame;
    }
    if (!stream->keep_alive_due)
        return NULL;
    stream->keep_alive_due = false;
    return frame_new(stream->seq, strdup(keep_alive));
}

static ssize_t read_on(void *user, uint64_t position, char *buffer, size_t size) {
    struct request *request = user;
    struct stream *stream = &request->stream;
    (void)position;
    if (request->serve->closing)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (stream->frame != NULL && stream->sent == stream->frame->len) {
        frame_drop(stream->frame);
        stream->frame = NULL;
    }
    if (stream->frame == NULL) {
        stream->frame = next_frame(request);
        stream->sent = 0;
        request->visitor->deadline_ms = now_ms() + EVENT_LIMIT_MS;
    }
    if (stream->frame == NULL) {
        request_suspend(request);
        return 0;
    }
    size_t left = stream->frame->len - stream->sent, len = left < size ? left : size;
    memcpy(buffer, stream->frame->text + stream->sent, len);
    stream->sent += len;
    return (ssize_t)len;
}

enum MHD_Result stream_begin(struct request *request) {
    struct serve *serve = request->serve;
    if (serve->streams >= MOST_STREAMS)
        return answer_error(request, MHD_HTTP_SERVICE_UNAVAILABLE,
                            "too many open pages; close one of them");
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_SIZE, read_on, request, NULL);
    if (response == NULL)
        return MHD_NO;
    answer_headers(response, "text/event-stream", "no-store");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* for nginx */
    request->streams = request->stream.counted = true;
    serve->streams++;
    return answer_with(request, MHD_HTTP_OK, response);
}

void stream_end(struct request *request) {
    frame_drop(request->stream.frame);
    request->stream.frame = NULL;
    request->serve->streams -= request->stream.counted;
    request->stream.counted = false;
}

void streams_wake(struct serve *serve) {
    for (struct request *request = serve->requests; request != NULL; request = request->next)
        if (request->streams)
            request_resume(request);
}

void streams_keep_alive(struct serve *serve) {
    for (struct request *request = serve->requests; request != NULL; request = request->next) {
        request->stream.keep_alive_due = request->streams;
        if (request->streams)
            request_resume(request);
    }
}
