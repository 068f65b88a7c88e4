#!/usr/bin/env bash
# tests/on_server.sh NAME PROGRAM: a test program on another server than the installed one, by its name in scripts/servers,
# which fetches it if it is not there yet. Exit status 77: it cannot be had.
set -eu

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! server=$(timeout 240 "$here/../scripts/servers" -f "$1"); then
    echo "SKIP $1: it cannot be fetched; see build/servers/$1/log"
    exit 77
fi
HF_TEST_SERVER=$server exec "$2"
