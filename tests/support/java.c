/*
 * A JVM with the Java actor in it, as a remote program (remote.c). Those that run are listed, so
 * that one whose row has failed can be ended.
 *
 * Used by the test programs, in their one thread.
 */
#include "support/java.h"

#include "support/wait.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JVMS = 16 };

static struct remote *jvms[JVMS];

const char *java_dir(void) {
    const char *given = getenv("HF_JAVA_DIR");
    return given != NULL ? given : HF_JAVA_DIR;
}

const char *java_version(const char *library) {
    return getenv(strcmp(library, JAVA_REDISSON) == 0 ? "HF_REDISSON_VERSION"
                                                      : "HF_CURATOR_VERSION");
}

int java_build(const char *library) {
    const char *version = strcmp(library, JAVA_SERVER) != 0 ? java_version(library) : NULL;
    pid_t pid = fork();
    if (pid == 0) {
        execl(HF_JAVA_BUILD, HF_JAVA_BUILD, java_dir(), library, version, (char *)NULL);
        _exit(1);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        support_die("%s cannot be run", HF_JAVA_BUILD);
    status = WEXITSTATUS(status);
    return status == 0 || status == EXIT_SKIPPED ? status : 1;
}

static void list(struct remote *java) {
    int place = 0;
    while (place < JVMS && jvms[place] != NULL)
        place++;
    if (place == JVMS)
        support_die("too many JVMs");
    jvms[place] = java;
}

struct remote *java_start(const char *library) {
    char classpath[4096];
    const char *version = java_version(library), *dir = java_dir();
    int len = snprintf(classpath, sizeof classpath, "%s/%s/actor.jar:%s/%s/%s/*", dir, library, dir,
                       library, version != NULL ? version : "lib");
    if (len >= (int)sizeof classpath)
        support_die("the path of the jars is too long");

    /* Small and quick to start: it shares two cores with everything else that is being tested. */
    const char *const argv[] = {"java",
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "-Xmx256m",
                                "-Xshare:auto",
                                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                                "-cp",
                                classpath,
                                "holdfast.actor.Main",
                                library,
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
