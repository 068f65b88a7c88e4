"""Locks of libraries of .NET, Ruby and PHP by their text: the commands that these send, as their sources have them, without
the libraries. ../README.md lists the commands of an actor, and ../python/actor.py is one with libraries.

Attempts answer True or False. `extend` and `release` answer True, or False if the library reports that the lock was lost.
One command runs at a time.
"""

import os
import secrets
import socket
import sys
import time

TAKE_S = 60  # As long as `take` waits.

DELETE_IF_EQUAL = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end'


class Connection:
    """RESP2, with the replies that come: None, int, str, list; an error is raised."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.replies = self.socket.makefile("rb")

    def __call__(self, *words):
        parts = [str(word).encode() for word in words]
        text = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(b"*%d\r\n%s" % (len(parts), text))
        return self.read()

    def read(self):
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        length = int(rest)
        if length < 0:
            return None
        if kind == b"*":
            return [self.read() for _ in range(length)]
        return self.replies.read(length + 2)[:-2].decode("latin-1")


class Peer:
    """`wait_s` is what lies between two attempts of a waiter."""

    prefix, wait_s = "", 0.1

    def __init__(self, name, lease_ms, port):
        self.server = Connection(port)
        self.key, self.lease_ms, self.token = self.prefix + name, lease_ms, self.new_token()

    def new_token(self):
        return secrets.token_hex(16)

    def take(self):
        ends = time.monotonic() + TAKE_S
        while not self.attempt():
            if time.monotonic() >= ends:
                return False
            time.sleep(self.wait_s)  # Such libraries poll: they subscribe to nothing.
        return True

    def release(self):
        return self.server("EVAL", DELETE_IF_EQUAL, 1, self.key, self.token) == 1


class StackExchange(Peer):
    """LockTake, LockExtend, LockRelease and LockQuery. The caller chooses the token. A comparison is WATCH and GET, then a
    transaction; on Redis 8.4 and later one command."""

    def __init__(self, name, lease_ms, port):
        super().__init__(name, lease_ms, port)
        info = self.server("INFO", "server")
        version = info.split("redis_version:")[1].split("\r\n")[0].split(".")
        self.compares = "valkey_version" not in info and (int(version[0]), int(version[1])) >= (8, 4)

    def new_token(self):
        return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    def expiry(self):
        return ("EX", self.lease_ms // 1000) if self.lease_ms % 1000 == 0 else ("PX", self.lease_ms)

    def attempt(self):
        return self.server("SET", self.key, self.token, *self.expiry(), "NX") == "OK"

    def if_mine(self, *command):
        self.server("WATCH", self.key)
        if self.server("GET", self.key) != self.token:
            self.server("UNWATCH")
            return False
        self.server("MULTI")
        self.server(*command)
        return self.server("EXEC") == [1]

    def extend(self):
        if self.compares:
            return self.server("SET", self.key, self.token, "IFEQ", self.token, *self.expiry()) == "OK"
        verb = "EXPIRE" if self.expiry()[0] == "EX" else "PEXPIRE"
        return self.if_mine(verb, self.key, self.expiry()[1])

    def release(self):
        if self.compares:
            return self.server("DELEX", self.key, "IFEQ", self.token) == 1
        return self.if_mine("DEL", self.key)

    def locked(self):
        return self.server("GET", self.key) is not None


class RedLockNet(Peer):
    """A GUID as token. Its timer extends at half the expiry, and takes the lock again if it is gone."""

    prefix = "redlock:"
    extend_script = """local there = redis.call('get', KEYS[1])
if there == false then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0
elseif there == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2])
else return -1 end"""

    def attempt(self):
        return self.server("SET", self.key, self.token, "PX", self.lease_ms, "NX") == "OK"

    def extend(self):
        return self.server("EVAL", self.extend_script, 1, self.key, self.token, self.lease_ms) == 1


class RedlockRb(Peer):
    """One script takes, and takes again: ARGV[3] allows a lock that is not there."""

    wait_s = 0.225
    lock_script = """if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
  return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
end"""
    left_script = 'return { redis.call("get", KEYS[1]), redis.call("pttl", KEYS[1]) }'

    def attempt(self):
        return self.server("EVAL", self.lock_script, 1, self.key, self.token, self.lease_ms, "yes") == "OK"

    def extend(self):
        return self.attempt()

    def locked(self):
        return self.server("EVAL", self.left_script, 1, self.key)[0] is not None


class Laravel(Peer):
    """Seconds, and an owner of 16 characters. Its prefixes are those of the database and of the cache."""

    prefix, wait_s = "app-database-app-cache-", 0.25
    extend_script = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("expire", KEYS[1], ARGV[2]) else return 0 end'

    def new_token(self):
        return secrets.token_hex(8)

    def attempt(self):
        return self.server("SET", self.key, self.token, "EX", self.lease_ms // 1000, "NX") == "OK"

    def extend(self):
        return self.server("EVAL", self.extend_script, 1, self.key, self.token, self.lease_ms // 1000) == 1

    def locked(self):
        return self.server("GET", self.key) is not None


PEERS = {"stackexchange": StackExchange, "redlock-net": RedLockNet, "redlock-rb": RedlockRb, "laravel": Laravel}

handles = {}


def work(handle, rounds, port):
    """Steps in a book that only an exclusive owner may take: what was read is what is written over."""
    book = Connection(port)
    for _ in range(rounds):
        while not handle.take():
            pass
        page = int(book("GET", "book") or 0)
        time.sleep(0.002)  # Its work, in which it must be alone.
        book("SET", "book", page + 1)
        handle.release()
    return "ok"


def obey(verb, words):
    if verb == "ping":
        return "ok"
    if verb == "open":
        name, peer, lock, lease_ms, port = words
        handles[name] = PEERS[peer](lock, int(lease_ms), int(port))
        return "ok"
    handle = handles[words[0]]
    if verb == "work":
        return work(handle, int(words[1]), int(words[2]))
    if verb in ("try", "take"):
        taken = handle.attempt() if verb == "try" else handle.take()
        return "ok" if taken else "busy"
    if verb == "locked":
        return "yes" if handle.locked() else "no"
    return {True: "ok", False: "lost"}[getattr(handle, verb)()]


def main():
    for line in sys.stdin:
        number, verb, *words = line.split()
        try:
            answer = obey(verb, words)
        except Exception as error:  # Whatever goes wrong has to reach the driver.
            answer = f"err {type(error).__name__} {error}".replace("\n", " ")
        print(number, answer, flush=True)


main()
