/*
 * A JVM with the Java program of this suite in it, as a remote program (support/remote.c). Those that
 * run are listed, so that one whose row has failed can be ended.
 */
#include "java.h"

#include "support/wait.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JVMS = 8 };

static struct remote *jvms[JVMS];

#define EXIT_SKIPPED 77

int java_build(const char **ret_dir) {
    const char *given = getenv("HF_INTEROP_DIR"), *dir = given != NULL ? given : HF_INTEROP_DIR;
    pid_t pid = fork();
    if (pid == 0) {
        execl(HF_INTEROP_BUILD, HF_INTEROP_BUILD, dir, getenv("HF_INTEROP_REDISSON"), (char *)NULL);
        _exit(1);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 1;
    *ret_dir = dir;
    return WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == EXIT_SKIPPED ? WEXITSTATUS(status)
                                                                           : 1;
}

static void list(struct remote *java) {
    int place = 0;
    while (place < JVMS && jvms[place] != NULL)
        place++;
    if (place == JVMS)
        support_die("too many JVMs");
    jvms[place] = java;
}

struct remote *java_start(const char *dir) {
    char classpath[4096];
    const char *version = getenv("HF_INTEROP_REDISSON");
    const char *libraries = version != NULL ? "redisson-" : "lib";
    int len = snprintf(classpath, sizeof classpath, "%s/interop.jar:%s/%s%s/*", dir, dir, libraries,
                       version != NULL ? version : "");
    if (len >= (int)sizeof classpath)
        support_die("the path of the jars is too long");

    /* Small and quick to start: it shares two cores with everything else that is being tested. */
    const char *const argv[] = {
        "java",     "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-Xmx256m", "-Xshare:auto",     "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        "-cp",      classpath,          "holdfast.interop.Main",
        NULL};
    struct remote *java = remote_start(argv);
    list(java);
    return java;
}

void java_free(struct remote *java) {
    for (int i = 0; i < JVMS; i++) {
        if (jvms[i] == java)
            jvms[i] = NULL;
    }
    remote_free(java);
}

void java_kill_all(void) {
    for (int i = 0; i < JVMS; i++) {
        if (jvms[i] == NULL)
            continue;
        java_kill(jvms[i]);
        java_free(jvms[i]);
    }
}

char *java_word(const char *text) {
    char *word = malloc(strlen(text) * 3 + 1);
    if (word == NULL)
        support_die("out of memory");
    char *to = word;
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || c == '-' || c == '_' || c == '.')
            *to++ = (char)c;
        else
            to += sprintf(to, "%%%02X", c);
    }
    *to = '\0';
    return word;
}
