/* Where passwords come from, for connect.c. */
#ifndef CLI_PASSWORD_H
#define CLI_PASSWORD_H

#include <stdbool.h>
#include <stddef.h>

/* These return 0 and an owned string, or an exit status after saying why. */
int password_from_file(const char *path, char **ret_password); /* its first line */
int password_from_terminal(char **ret_password);

/* REDISCLI_AUTH or VALKEYCLI_AUTH; NULL if neither is set. */
const char *password_of_redis_cli(void);

/* Whether a url names a user or a password: in front of the host, or as an option. */
bool password_in_url(const char *url);

/* Overwrite a password in an argument, so that the list of processes does not show it. Copy it
 * first. Of a url everything goes that a password could be in, also in one that is no valid url. */
void password_hide(char *password);
void password_hide_in_url(char *url);

#endif
