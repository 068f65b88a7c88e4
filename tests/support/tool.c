/*
 * Running the tool: its line is written once and given to a shell.
 *
 * The page is fetched with curl, each time in a process of its own: what a browser makes of it is tested elsewhere.
 */
#include "support/tool.h"

#include "support/wait.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char servers[1024];

void tool_use(const char *url) {
    int len = snprintf(servers, sizeof servers, "%s", url);
    if (len < 0 || len >= (int)sizeof servers)
        support_die("an url of %d bytes", len);
}

void tool_line(char to[TOOL_LINE], const char *words) {
    const char *tool = getenv("HOLDFAST");
    if (tool == NULL)
        support_die("HOLDFAST does not name the tool");
    int len = snprintf(to, TOOL_LINE,
                       "exec '%s' -u '%s%ccmd_timeout_ms=5000&connect_timeout_ms=%d' -t 60s %s",
                       tool, servers, strchr(servers, '?') != NULL ? '&' : '?', HANG_MS, words);
    if (len < 0 || len >= TOOL_LINE)
        support_die("a line of %d bytes", len);
}

static int run_args(void *line) {
    execl("/bin/sh", "sh", "-c", (const char *)line, (char *)NULL);
    return 126;
}

pid_t tool_start(const char *words) {
    char line[TOOL_LINE];
    tool_line(line, words);
    return run_child(run_args, line);
}

/* All that a shell's line prints; the caller frees it. */
static char *output_of(const char *line, int *ret_status) {
    char *text = NULL;
    size_t size = 0;
    FILE *program = popen(line, "re"), *copy = open_memstream(&text, &size);
    if (program == NULL || copy == NULL)
        support_die("cannot run: %s", line);
    for (int c = fgetc(program); c != EOF; c = fgetc(program))
        fputc(c, copy);
    int status = pclose(program);
    fclose(copy);
    if (ret_status != NULL)
        *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return text;
}

char *tool_output(const char *words, int *ret_status) {
    char line[TOOL_LINE];
    tool_line(line, words);
    return output_of(line, ret_status);
}

bool tool_says(const char *words, const char *expected) {
    own_text *text = tool_output(words, NULL);
    bool says = strstr(text, expected) != NULL;
    if (!says)
        fprintf(stderr, "'%s' does not say '%s': %s\n", words, expected, text);
    return says;
}

/* ---- The page ---- */

struct tool_page {
    char *dir;
    pid_t pid;
    char address[128]; /* http://127.0.0.1:port/ */
};

/* It says on the standard error where it serves. */
static bool has_address(void *arg) {
    static const char mark[] = "the page is at ";
    struct tool_page *page = arg;
    char line[1024], path[512];
    snprintf(path, sizeof path, "%s/said", page->dir);
    FILE *said = fopen(path, "re");
    while (said != NULL && page->address[0] == '\0' && fgets(line, sizeof line, said) != NULL) {
        const char *at = strstr(line, mark);
        if (at != NULL && strchr(at, '\n') != NULL)
            snprintf(page->address, sizeof page->address, "%.*s",
                     (int)strcspn(at + strlen(mark), "\n"), at + strlen(mark));
    }
    if (said != NULL)
        fclose(said);
    return page->address[0] != '\0';
}

static bool can_be_fetched(void) {
    int status;
    free(output_of("command -v curl", &status));
    if (status != 0)
        return false;
    own_text *said = tool_output("serve --listen nowhere:70000 2>&1", NULL);
    return strstr(said, "left out") == NULL;
}

struct tool_page *tool_serve(void) {
    char words[640];
    if (!can_be_fetched())
        return NULL;
    struct tool_page *page = zeroed(1, sizeof *page);
    page->dir = temp_dir();
    snprintf(words, sizeof words, "serve --listen 127.0.0.1:0 2>'%s/said'", page->dir);
    page->pid = tool_start(words);
    if (!wait_until(has_address, page, HANG_MS))
        support_die("the page is not served");
    return page;
}

void tool_serve_end(struct tool_page *page) {
    if (page == NULL)
        return;
    kill_child(page->pid);
    temp_dir_remove(page->dir);
    free(page->dir);
    free(page);
}

char *tool_fetch(const struct tool_page *page, const char *path) {
    char line[512];
    snprintf(line, sizeof line, "curl -sS -m 60 '%s%s'", page->address, path + 1);
    return output_of(line, NULL);
}
