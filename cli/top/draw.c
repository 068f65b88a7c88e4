/* Draws the screen of `holdfast top`: two lines of counts, one for messages, and the table, cut to
 * the terminal's width and height. A pure function of the view: it returns a text that the caller
 * writes.
 *
 * Untrusted text is escaped (shown_name) and cut by columns, not bytes, so that a row is never
 * wider than the screen. */
#include "top/top.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HEAD_LINES 4   /* above the rows */
#define WIDE 100       /* from this width on, the kind has a column */
#define LINE_SIZE 1024 /* in bytes; wider terminals show no more */

#define PLAIN ""
#define INVERSE "\x1b[7m"
#define BAD "\x1b[1;31m"
#define DOUBTFUL "\x1b[33m"

enum column { NAME, KIND, STATE, HOLDER, HELD, TTL, WAITERS, WAITED, HANDS, COLUMNS };

static const struct {
    const char *title;
    int width; /* 0: flexible */
    bool right;
} columns[COLUMNS] = {
    {"NAME", 0, false},   {"KIND", 9, false},   {"STATE", 9, false},
    {"HOLDER", 0, false}, {"HELD", 7, true},    {"TTL", 7, true},
    {"WAIT", 5, true},    {"LONGEST", 7, true}, {"HANDS", 5, true},
};

struct picture {
    FILE *out;
    const struct top_layout *layout;
    int widths[COLUMNS]; /* 0: not shown */
    int lines;           /* lines written so far */
};

/* ---- Lines ---- */

/* Writes one line, cut to the width. The newline goes in front of it: behind it would scroll a full
 * screen. Inverse is always used; colours only if wanted. */
static void put_line(struct picture *picture, const char *attribute, const char *text) {
    const struct top_layout *layout = picture->layout;
    bool inverse = strcmp(attribute, INVERSE) == 0;
    bool marked = layout->full && (inverse || (layout->colour && attribute[0] != '\0'));
    int width;
    size_t len = text_fit(text, layout->width, &width);
    if (layout->full && picture->lines++ > 0)
        fputs("\r\n", picture->out);
    if (marked)
        fputs(attribute, picture->out);
    fwrite(text, 1, len, picture->out);
    if (marked && inverse)
        fprintf(picture->out, "%*s", layout->width - width, "");
    if (marked)
        fputs("\x1b[0m", picture->out);
    /* after a full line the cursor is still on its last character */
    if (layout->full && width < layout->width && !(marked && inverse))
        fputs("\x1b[K", picture->out);
    if (!layout->full)
        putc('\n', picture->out);
}

__attribute__((format(printf, 3, 4))) static void put(struct picture *picture,
                                                      const char *attribute, const char *format,
                                                      ...) {
    char text[LINE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_disarm(text); /* it may have been cut inside a character */
    put_line(picture, attribute, text);
}

/* ---- The header ---- */

struct sums {
    size_t held, gone, silent, alive;
    int64_t waiters, oldest_ms;
};

static struct sums sum_up(const hf_fleet *fleet) {
    struct sums sums = {.oldest_ms = -1};
    for (size_t i = 0; i < fleet->locks_len; i++) {
        const hf_fleet_lock *lock = fleet->locks[i];
        int64_t wait_ms = fleet_wait(lock);
        sums.held += lock->holders_len > 0;
        sums.waiters += fleet_waiters(lock);
        sums.oldest_ms = wait_ms > sums.oldest_ms ? wait_ms : sums.oldest_ms;
    }
    for (size_t i = 0; i < fleet->clients_len; i++) {
        hf_presence presence = fleet->clients[i]->presence;
        sums.alive += presence == HF_PRESENCE_ALIVE;
        sums.silent += presence == HF_PRESENCE_SILENT;
        sums.gone += presence == HF_PRESENCE_GONE;
    }
    return sums;
}

static const char *plural(size_t count) {
    return count == 1 ? "" : "s";
}

static void put_head(struct picture *picture, const struct top_view *view) {
    const struct sums sums = sum_up(view->fleet);
    char oldest[CELL_SIZE], rates[100] = "";
    time_t now = time(NULL);
    struct tm day;
    localtime_r(&now, &day);
    fleet_write_time(sums.oldest_ms, oldest, sizeof oldest);
    put(picture, PLAIN,
        "holdfast top - %02d:%02d:%02d  %zu lock%s, %zu held, %" PRId64 " waiting, longest %s",
        day.tm_hour, day.tm_min, day.tm_sec, view->fleet->locks_len, plural(view->fleet->locks_len),
        sums.held, sums.waiters, oldest);
    if (view->hand_overs_per_s_x10 >= 0)
        snprintf(rates, sizeof rates, "  %" PRId64 ".%d hand-overs/s, %" PRId64 ".%d acquires/s",
                 view->hand_overs_per_s_x10 / 10, (int)(view->hand_overs_per_s_x10 % 10),
                 view->acquires_per_s_x10 / 10, (int)(view->acquires_per_s_x10 % 10));
    put(picture, PLAIN, "%zu client%s, %zu answered, %zu silent, %zu gone%s",
        view->fleet->clients_len, plural(view->fleet->clients_len), sums.alive, sums.silent,
        sums.gone, rates);
}

/* The waiters and locks of the first deadlock cycle. */
static void describe_deadlock(const hf_deadlocks *deadlocks, char *text, size_t size) {
    const hf_deadlock *first = &deadlocks->all[0];
    size_t len =
        (size_t)snprintf(text, size, "%zu deadlock%s: ", deadlocks->len, plural(deadlocks->len));
    for (size_t i = 0; i < first->steps_len && len < size; i++) {
        char waiter[CELL_SIZE], name[SHOWN_NAME_SIZE];
        fleet_describe_party(first->steps[i].waiter, waiter, sizeof waiter);
        len += (size_t)snprintf(text + len, size - len, "%s%s waits for '%s'", i > 0 ? "; " : "",
                                waiter, fleet_shown_name(first->steps[i].lock, name));
    }
}

/* The active filter; "": none. */
static void describe_filter(const struct top_view *view, char *text, size_t size) {
    bool filtered = view->filter[0] != '\0';
    text[0] = '\0';
    if (filtered || view->stuck_only)
        snprintf(text, size, "only%s%s%s%s: %zu of %zu", view->stuck_only ? " what is stuck" : "",
                 filtered ? " with '" : "", view->filter, filtered ? "'" : "", view->shown_len,
                 view->fleet->locks_len);
}

static void put_message(struct picture *picture, const struct top_view *view) {
    char filter[LINE_SIZE / 2], deadlock[LINE_SIZE / 2];
    bool bad = view->deadlocks != NULL && view->deadlocks->len > 0;
    deadlock[0] = '\0';
    describe_filter(view, filter, sizeof filter);
    if (bad)
        describe_deadlock(view->deadlocks, deadlock, sizeof deadlock);
    if (picture->layout->message[0] != '\0')
        put(picture, PLAIN, "%s", picture->layout->message);
    else if (bad || filter[0] != '\0')
        put(picture, bad ? BAD : PLAIN, "%s%s%s", filter, bad && filter[0] != '\0' ? "; " : "",
            deadlock);
    else
        put(picture, PLAIN, "%s%s", view->fleet->missing_text[0] != '\0' ? "incomplete: " : "",
            view->fleet->missing_text);
}

/* ---- The table ---- */

typedef char cells[COLUMNS][CELL_SIZE];

static void fill(const struct top_row *row, cells text) {
    char holder[CELL_SIZE];
    fleet_shown_name(row->lock, text[NAME]);
    shown_name(row->lock->kind, text[KIND]);
    if (row->deadlocked)
        snprintf(text[STATE], CELL_SIZE, "deadlock");
    else
        fleet_describe_state(row->lock, text[STATE], CELL_SIZE);
    fleet_describe_holder(row->lock, holder, sizeof holder);
    shown_name(holder, text[HOLDER]);
    fleet_write_time(fleet_age(row->lock), text[HELD], CELL_SIZE);
    fleet_write_time(row->lock->ttl_ms, text[TTL], CELL_SIZE);
    snprintf(text[WAITERS], CELL_SIZE, "%" PRId64, fleet_waiters(row->lock));
    fleet_write_time(fleet_wait(row->lock), text[WAITED], CELL_SIZE);
    snprintf(text[HANDS], CELL_SIZE, "%" PRIu64, row->hand_overs);
}

/* Name and holder share the remaining width. In batch mode they take what they need. */
static void lay_out(struct picture *picture, const struct top_view *view) {
    int left = picture->layout->width;
    for (int i = 0; i < COLUMNS; i++) {
        bool shown = i != KIND || picture->layout->width >= WIDE;
        picture->widths[i] = shown ? columns[i].width : 0;
        left -= shown && columns[i].width > 0 ? columns[i].width + 1 : 0;
    }
    left = left > 9 ? left - 1 : 8; /* the space between the two columns */
    int name = 4, holder = 6;
    for (size_t i = 0; i < view->shown_len && !picture->layout->full; i++) {
        cells text;
        fill(view->shown[i], text);
        name = text_width(text[NAME]) > name ? text_width(text[NAME]) : name;
        holder = text_width(text[HOLDER]) > holder ? text_width(text[HOLDER]) : holder;
    }
    bool natural = !picture->layout->full && name + holder <= left;
    picture->widths[NAME] = natural ? name : left / 2;
    picture->widths[HOLDER] = natural ? holder : left - left / 2;
}

static void put_cells(struct picture *picture, const char *attribute, cells text) {
    char line[LINE_SIZE];
    size_t len = 0;
    for (int i = 0; i < COLUMNS; i++) {
        int width, wide = picture->widths[i];
        if (wide == 0)
            continue;
        size_t bytes = text_fit(text[i], wide, &width);
        int before = columns[i].right ? wide - width : 0;
        int after = columns[i].right || i == COLUMNS - 1 ? 0 : wide - width;
        int more = snprintf(line + len, sizeof line - len, "%s%*s%.*s%*s", len > 0 ? " " : "",
                            before, "", (int)bytes, text[i], after, "");
        len += (size_t)more;
        if (len >= sizeof line)
            break;
    }
    put_line(picture, attribute, line);
}

static const char *attribute_of(const struct top_row *row) {
    const hf_fleet_party *holder = fleet_holder(row->lock);
    if (row->deadlocked)
        return BAD;
    bool doubtful =
        row->lock->disputed || (holder != NULL && (holder->presence == HF_PRESENCE_SILENT ||
                                                   holder->presence == HF_PRESENCE_GONE));
    return doubtful ? DOUBTFUL : PLAIN;
}

size_t top_rows_that_fit(const struct top_layout *layout) {
    return layout->height > HEAD_LINES ? (size_t)(layout->height - HEAD_LINES) : 0;
}

static void put_table(struct picture *picture, const struct top_view *view) {
    cells text;
    lay_out(picture, view);
    for (int i = 0; i < COLUMNS; i++)
        snprintf(text[i], CELL_SIZE, "%s", columns[i].title);
    put_cells(picture, INVERSE, text);
    size_t first = picture->layout->scroll, room = top_rows_that_fit(picture->layout);
    for (size_t i = first; i < view->shown_len; i++) {
        if (picture->layout->height > 0 && i - first >= room)
            break;
        fill(view->shown[i], text);
        put_cells(picture, attribute_of(view->shown[i]), text);
    }
}

static void put_help(struct picture *picture) {
    static const char *const lines[] = {
        "q          quit                      ?          this help",
        "space      survey now                d          time between surveys",
        "/          only names or holders with a text; an empty one: all",
        "s          only what is stuck: holder silent or gone, waits over 1m, deadlocks",
        "",
        "Sorted by  n name   a age   t ttl   l longest wait   w waiters   h hand-overs",
        "r          reverse the order",
        "Up, Down, Page Up, Page Down, Home: scroll",
        "",
        "States     alive; connected: not expected to answer; silent: did not answer;",
        "           gone: the lock ends with its ttl; unknown: gone, or a Java client;",
        "           free; deadlock: waiters wait for each other;",
        "           with '!': server and clients disagree",
        "HANDS      how often it changed holders since the last survey",
        "",
        "Press any key to continue.",
    };
    put(picture, INVERSE, "holdfast top");
    put(picture, PLAIN, "%s", "");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0] && (int)i + 2 < picture->layout->height;
         i++)
        put_line(picture, PLAIN, lines[i]);
}

char *top_draw(const struct top_view *view, const struct top_layout *layout, size_t *ret_len) {
    char *text = NULL;
    struct picture picture = {.out = open_memstream(&text, ret_len), .layout = layout};
    if (picture.out == NULL)
        return NULL;
    if (layout->full)
        fputs("\x1b[H", picture.out);
    if (layout->help) {
        put_help(&picture);
    } else {
        put_head(&picture, view);
        put_message(&picture, view);
        put_table(&picture, view);
    }
    if (layout->full && picture.lines < layout->height)
        fputs("\r\n\x1b[J", picture.out);
    bool failed = ferror(picture.out) != 0;
    if (fclose(picture.out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
