/* The parts of `holdfast top`: the data (view.c), the drawing (draw.c) and the terminal (screen.c).
 * The command with its keys and its loop is in cmd_top.c. */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include "fleet/fleet.h"

/* ---- The data ---- */

struct top_row {
    const hf_fleet_lock *lock;
    uint64_t hand_overs; /* observed ones, at most one per survey */
    bool deadlocked;
};

enum top_order {
    TOP_BY_NAME,
    TOP_BY_AGE,
    TOP_BY_TTL,
    TOP_BY_WAIT,
    TOP_BY_WAITERS,
    TOP_BY_HAND_OVERS
};

#define FILTER_SIZE 64

struct top_view {
    /* The user's choice. */
    enum top_order order;
    bool reverse, stuck_only;
    char filter[FILTER_SIZE]; /* part of the name or of the holder; "": all */

    /* The last survey, and the one before it for comparison. */
    hf_fleet *fleet, *earlier;
    hf_deadlocks *deadlocks;                          /* NULL: not known yet */
    struct top_row *all;                              /* in the fleet's order */
    int64_t acquires_per_s_x10, hand_overs_per_s_x10; /* from clients' counters; -1: unknown */

    const struct top_row **shown; /* selected rows, sorted */
    size_t shown_len;
};

/* Takes ownership of the fleet. False: out of memory. */
bool top_view_take(struct top_view *view, hf_fleet *fleet);
/* Call after the user's choice has changed. */
void top_view_choose(struct top_view *view);
void top_view_free(struct top_view *view);
/* False: no such order. */
bool top_order_find(const char *name, enum top_order *ret);

/* ---- The drawing ---- */

struct top_layout {
    int width, height; /* height 0: no limit (batch mode) */
    bool full;         /* full screen: clears the rest of each line and everything below */
    bool colour;
    size_t scroll;       /* rows scrolled out at the top */
    const char *message; /* on the line above the table; "": none */
    bool help;           /* show the help instead of the table */
};

/* Returns the screen as text; the caller frees it. NULL: out of memory. */
char *top_draw(const struct top_view *view, const struct top_layout *layout, size_t *ret_len);
/* The number of table rows that fit. */
size_t top_rows_that_fit(const struct top_layout *layout);

/* ---- The terminal ---- */

/* Whether stdin and stdout are a terminal with a screen. */
bool top_terminal_is_there(void);
/* Single keys and the alternate screen, until top_terminal_leave() or the end of the process,
 * except by SIGKILL. False: not a terminal. */
bool top_terminal_enter(void);
void top_terminal_leave(void);
void top_terminal_size(int *ret_width, int *ret_height);
bool top_terminal_write(const char *text, size_t len);

#endif
