/*
 * A JVM with the Java program of this suite in it, as a remote program (support/remote.c).
 */
#include "java.h"

#include "support/wait.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return remote_start(argv);
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
