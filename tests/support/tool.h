/* The tool that is tested beside the library, by its command line.
 *
 *     tool_use(zk_url(zk));
 *     pid_t holder = tool_start("run nightly -- tail -f /dev/null");
 *     char *text = tool_output("ls 'night*'");
 *
 * Include as "support/tool.h". Words are a shell's, so they may be quoted and redirected. What is
 * started dies with the test (wait.h), and waits longer for servers on a busy machine. One thread
 * at a time. */
#ifndef HF_TEST_TOOL_H
#define HF_TEST_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The servers of all calls below; the text is copied. */
void tool_use(const char *url);

enum { TOOL_LINE = 4096 };

/* The pause of a loop in a command that the tool runs: a shell has no event for what it looks for. */
#define TICK "sleep 0.01"

/* The whole line for a shell, to be put into another one. */
void tool_line(char to[TOOL_LINE], const char *words);

pid_t tool_start(const char *words);

/* What it prints, whatever its exit status, which is written unless that is NULL. The caller frees the text. */
char *tool_output(const char *words, int *ret_status);

/* Whether it prints that; what it has printed instead is shown. */
bool tool_says(const char *words, const char *expected);

/* ---- The page -------------------------------------------------------------------------------- */

struct tool_page;

/* `holdfast serve` on a port of its own; returns when it serves. NULL: this tool was built without,
 * or there is no curl. */
struct tool_page *tool_serve(void);
void tool_serve_end(struct tool_page *page); /* NULL is fine */

/* What it answers to a path; the caller frees it. */
char *tool_fetch(const struct tool_page *page, const char *path);

#endif
