/* Parsers for option values: durations, numbers, signals and switches; and the clock.
 *
 * Called while options are read, before other threads exist; pure except for the clock. A parser
 * takes the whole text or nothing: "5x", "-1", "nan" and "" are not durations, although strtod()
 * accepts them. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

bool parse_duration(const char *text, int64_t *ret_ms) {
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 36e5}, {"d", 864e5}};

    size_t digits = strspn(text, "0123456789.");
    if (digits == 0 || digits > 30 || strspn(text, ".") == digits ||
        memchr(text, '.', digits) != memrchr(text, '.', digits))
        return false;
    double ms = -1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + digits, units[i].name) == 0)
            ms = strtod(text, NULL) * units[i].ms;
    }
    if (ms < 0 || ms > (double)HF_LEASE_MAX_MS)
        return false;

    /* Round up, because 0 has another meaning than very short; but 0.29 s is 290 ms. */
    int64_t whole = (int64_t)ms;
    *ret_ms = ms - (double)whole > 1e-6 ? whole + 1 : whole;
    return true;
}

bool parse_lease(const char *text, int64_t *ret_ms) {
    if (strcmp(text, "none") != 0)
        return parse_duration(text, ret_ms);
    *ret_ms = HF_NO_LEASE;
    return true;
}

int duration_error(const char *subcommand, const char *shown, const char *value) {
    int64_t ms;
    if (parse_duration(value, &ms))
        return usage_error(subcommand,
                           "%s: '%s' is too short: give a duration above 0, such as 90s", shown,
                           value);
    return usage_error(subcommand,
                       "%s: '%s' is not a duration: give a number with ms, s, m, h or d, such as "
                       "90s; ten years at most",
                       shown, value);
}

bool parse_number(const char *text, long low, long high, long *ret) {
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    long value = strtol(text, NULL, 10);
    if (errno != 0 || value < low || value > high)
        return false;
    *ret = value;
    return true;
}

/* Not every C library has a function for signal names. */
static const struct {
    const char *name;
    int number;
} signals[] = {
#define SIGNAL_ROW(name)                                                                           \
    { #name, SIG##name }
    SIGNAL_ROW(HUP),    SIGNAL_ROW(INT),   SIGNAL_ROW(QUIT), SIGNAL_ROW(ILL),  SIGNAL_ROW(TRAP),
    SIGNAL_ROW(ABRT),   SIGNAL_ROW(BUS),   SIGNAL_ROW(FPE),  SIGNAL_ROW(KILL), SIGNAL_ROW(USR1),
    SIGNAL_ROW(SEGV),   SIGNAL_ROW(USR2),  SIGNAL_ROW(PIPE), SIGNAL_ROW(ALRM), SIGNAL_ROW(TERM),
    SIGNAL_ROW(CHLD),   SIGNAL_ROW(CONT),  SIGNAL_ROW(STOP), SIGNAL_ROW(TSTP), SIGNAL_ROW(TTIN),
    SIGNAL_ROW(TTOU),   SIGNAL_ROW(URG),   SIGNAL_ROW(XCPU), SIGNAL_ROW(XFSZ), SIGNAL_ROW(VTALRM),
    SIGNAL_ROW(PROF),   SIGNAL_ROW(WINCH), SIGNAL_ROW(POLL), SIGNAL_ROW(PWR),  SIGNAL_ROW(SYS),
#ifdef SIGSTKFLT
    SIGNAL_ROW(STKFLT),
#endif
#undef SIGNAL_ROW
};

bool parse_signal(const char *text, int *ret_signal) {
    long number;
    if (parse_number(text, 1, SIGRTMAX, &number)) {
        *ret_signal = (int)number;
        return true;
    }
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        if (strcasecmp(text, signals[i].name) == 0) {
            *ret_signal = signals[i].number;
            return true;
        }
    }
    return false;
}

bool parse_acks(const char *text, int *ret_acks) {
    static const struct {
        const char *word;
        int acks;
    } words[] = {{"off", HF_ACKS_OFF}, {"report", HF_ACKS_REPORT}, {"all", HF_ACKS_ALL}};
    long number;
    if (parse_number(text, 1, HF_ACKS_MAX, &number)) {
        *ret_acks = (int)number;
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i].word) == 0) {
            *ret_acks = words[i].acks;
            return true;
        }
    }
    return false;
}

bool parse_switch(const char *text, bool *ret) {
    static const char *const on[] = {"1", "yes", "true", "on"};
    static const char *const off[] = {"0", "no", "false", "off"};
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        if (strcasecmp(text, on[i]) == 0 || strcasecmp(text, off[i]) == 0) {
            *ret = strcasecmp(text, on[i]) == 0;
            return true;
        }
    }
    return false;
}

int64_t now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
