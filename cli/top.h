/* The parts of `holdfast top`: what is shown (top_view.c), how it looks (top_draw.c), and the terminal
 * (top_terminal.c). The command itself, its keys and its loop are in cmd_top.c. */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include "fleet.h"

/* ---- What is shown ---- */

struct top_row {
    const hf_fleet_lock *lock;
    uint64_t hand_overs; /* that were seen, at most one in each survey */
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
    /* What is wanted. */
    enum top_order order;
    bool reverse, stuck_only;
    char filter[FILTER_SIZE]; /* a part of the name or of the holder; "": all */

    /* What the last survey found; the one before it is kept for comparing. */
    hf_fleet *fleet, *earlier;
    hf_deadlocks *deadlocks;                          /* NULL: not known yet */
    struct top_row *all;                              /* as the fleet has them */
    int64_t acquires_per_s_x10, hand_overs_per_s_x10; /* by the clients' word; -1: not known yet */

    const struct top_row **shown; /* those that are wanted, in order */
    size_t shown_len;
};

/* Takes over the fleet. False: out of memory. */
bool top_view_take(struct top_view *view, hf_fleet *fleet);
/* After what is wanted has changed. */
void top_view_choose(struct top_view *view);
void top_view_free(struct top_view *view);
/* False: there is none of that name. */
bool top_order_find(const char *name, enum top_order *ret);

/* ---- How it looks ---- */

struct top_look {
    int width, height; /* height 0: as long as it gets (batch mode) */
    bool full;         /* a full screen: each line is cleared to its end, and all that is below */
    bool colour;
    size_t scroll;       /* so many rows are above the first one that is shown */
    const char *message; /* on the line above the table; "" */
    bool help;           /* shown instead */
};

/* The picture as a text; the caller frees it. NULL: out of memory. */
char *top_draw(const struct top_view *view, const struct top_look *look, size_t *ret_len);
/* How many rows fit. */
size_t top_rows_that_fit(const struct top_look *look);

/* ---- The terminal ---- */

/* Whether a picture can be shown, and keys be read. */
bool top_terminal_is_there(void);
/* Keys one by one, and a screen of its own, until top_terminal_leave(), or whatever else ends the process
 * but SIGKILL. False: it is no terminal after all. */
bool top_terminal_enter(void);
void top_terminal_leave(void);
void top_terminal_size(int *ret_width, int *ret_height);
bool top_terminal_write(const char *text, size_t len);

#endif
