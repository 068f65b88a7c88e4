/* Sources of passwords, for connect.c. */
#ifndef CLI_PASSWORD_H
#define CLI_PASSWORD_H

#include <stdbool.h>
#include <stddef.h>

/* These return 0 and an owned string, or an exit status after printing the error. */
int password_from_file(const char *path, char **ret_password); /* its first line */
int password_from_terminal(char **ret_password);

/* REDISCLI_AUTH or VALKEYCLI_AUTH; NULL if neither is set. */
const char *password_of_redis_cli(void);

/* Whether a url contains a user or password: in front of the host, or as an option. */
bool password_in_url(const char *url);

/* Overwrite a password in argv, so that it does not show in the process list. Copy it first. In a
 * url, everything that could contain a password is overwritten, even if the url is invalid. */
void password_hide(char *password);
void password_hide_in_url(char *url);

#endif
