/* The label of `run` at the server: the command that it runs.
 *
 * Every reader of the server can see it, and any argument may be a secret. So the label has only
 * the program and those first arguments that name existing files, such as an interpreter's script.
 * The first other word ends it.
 *
 * Called before other threads or processes exist; checks the file system. */
#include "run/run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Length of the program name at the start of a shell string; 0: it starts otherwise, for instance
 * with an assignment. */
static size_t first_program(const char *string) {
    size_t len = strspn(string, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._/+-");
    return strchr(" \t\n;|&<>", string[len]) != NULL ? len : 0;
}

static void add_files(char *const argv[], char *label, size_t size) {
    size_t len = strlen(label);
    for (; *argv != NULL && (*argv)[0] != '-' && access(*argv, F_OK) == 0 && len < size; argv++)
        len += (size_t)snprintf(label + len, size - len, " %s", *argv);
}

void label_of_command(const struct run_options *options, char label[LABEL_SIZE]) {
    const char *string = options->shell_command;
    size_t len = 0;
    if (string != NULL) {
        string += strspn(string, " \t\n");
        len = first_program(string);
    }
    if (len > 0) {
        char program[LABEL_SIZE];
        snprintf(program, sizeof program, "%.*s", (int)len, string);
        snprintf(label, LABEL_SIZE, "%s", base_of(program));
        return;
    }
    snprintf(label, LABEL_SIZE, "%s", base_of(options->argv[0]));
    if (string == NULL)
        add_files(options->argv + 1, label, LABEL_SIZE);
}
