"""Locks of Python's libraries under remote control: ../README.md lists the commands.

Each peer is a class with the same calls. An attempt answers True or False. `extend` and `release` answer True, False if
the library says that the lock was lost, and None if it says nothing. One command runs at a time.
"""

import asyncio
import logging
import sys
import time

TAKE_S = 60  # As long as `take` waits.


class RedisPy:
    """A lease of 0 is redis-py's default: no TTL."""

    def __init__(self, name, lease_ms, ports):
        import redis

        self.errors = redis.exceptions.LockError
        self.client = redis.Redis(port=ports[0])
        self.lease_s = lease_ms / 1000 or None
        self.lock = self.client.lock(name, timeout=self.lease_s)

    def attempt(self):
        return self.lock.acquire(blocking=False)

    def take(self):
        return self.lock.acquire(blocking_timeout=TAKE_S)

    def extend(self):
        try:
            return self.lock.extend(self.lease_s, replace_ttl=True)
        except self.errors:
            return False

    def release(self):
        try:
            self.lock.release()
            return True
        except self.errors:
            return False

    def locked(self):
        return self.lock.locked()

    def owned(self):
        return self.lock.owned()


class ByHand:
    """What is written by hand: SET NX PX, and DEL without a look at whose it is."""

    def __init__(self, name, lease_ms, ports):
        import redis

        self.client, self.name, self.lease_ms = redis.Redis(port=ports[0]), name, lease_ms

    def attempt(self):
        return bool(self.client.set(self.name, "mine", nx=True, px=self.lease_ms))

    def release(self):
        self.client.delete(self.name)


class RedisPyAsync:
    """The lock of redis.asyncio. `cancel` ends the task of an acquire while it is on its way, as a time-out would."""

    def __init__(self, name, lease_ms, ports):
        import redis.asyncio

        self.errors = redis.exceptions.LockError
        self.loop = asyncio.new_event_loop()
        self.client = redis.asyncio.Redis(port=ports[0])
        self.name, self.lease_s, self.cancelled = name, lease_ms / 1000, 0
        self.lock = self.client.lock(name, timeout=self.lease_s)

    def attempt(self):
        return self.loop.run_until_complete(self.lock.acquire(blocking=False))

    def release(self):
        try:
            self.loop.run_until_complete(self.lock.release())
            return True
        except self.errors:
            return False

    async def begin_and_cancel(self):
        lock = self.client.lock(self.name, timeout=self.lease_s)
        task = asyncio.create_task(lock.acquire())
        self.cancelled += 1  # Each time a little later.
        for _ in range(self.cancelled % 16):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        await lock.release()

    def cancel(self):
        self.loop.run_until_complete(self.begin_and_cancel())
        return True


class Flock:
    """flock() on a file of this machine; no lease, no server."""

    def __init__(self, name, lease_ms, ports):
        self.file = open(f"/tmp/holdfast-{name}-{ports[0]}.lock", "w")  # pylint: disable=consider-using-with

    def attempt(self):
        import fcntl

        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False

    def release(self):
        import fcntl

        fcntl.flock(self.file, fcntl.LOCK_UN)
        return True


class Pottery:
    def __init__(self, name, lease_ms, ports):
        import pottery
        import redis

        self.errors = (pottery.ExtendUnlockedLock, pottery.ReleaseUnlockedLock)
        masters = {redis.Redis(port=port, socket_timeout=1) for port in ports}
        self.lock = pottery.Redlock(key=name, masters=masters, auto_release_time=lease_ms / 1000)

    def attempt(self):
        return self.lock.acquire(blocking=False)

    def take(self):
        return self.lock.acquire(timeout=TAKE_S)

    def extend(self):
        try:
            self.lock.extend()
            return True
        except self.errors:
            return False

    def release(self):
        try:
            self.lock.release()
            return True
        except self.errors:
            return False

    def locked(self):
        return bool(self.lock.locked())


class RedlockPy:
    """It extends nothing, and does not say whether a lock that it releases was there."""

    def __init__(self, name, lease_ms, ports):
        import redlock

        self.name, self.lease_ms, self.lock = name, lease_ms, None
        servers = [{"port": port, "socket_timeout": 1} for port in ports]
        self.once = redlock.Redlock(servers, retry_count=1)
        self.often = redlock.Redlock(servers, retry_count=TAKE_S * 5)

    def taken(self, manager):
        lock = manager.lock(self.name, self.lease_ms)
        self.lock = lock or self.lock
        return bool(lock)

    def attempt(self):
        return self.taken(self.once)

    def take(self):
        return self.taken(self.often)

    def extend(self):
        return None

    def release(self):
        self.once.unlock(self.lock)

    def locked(self):
        return None


class Aioredlock:
    def __init__(self, name, lease_ms, ports):
        import aioredlock

        self.errors = (aioredlock.LockError, RuntimeError)
        self.name, self.lease_s, self.lock = name, lease_ms / 1000, None
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        servers = [{"host": "127.0.0.1", "port": port} for port in ports]
        self.once = aioredlock.Aioredlock(servers, retry_count=1)
        self.often = aioredlock.Aioredlock(servers, retry_count=TAKE_S * 5)

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def taken(self, manager):
        try:
            self.lock = self.run(manager.lock(self.name, lock_timeout=self.lease_s))
            return True
        except self.errors:
            self.run(asyncio.sleep(0.01))  # It cleans up in the background.
            return False

    def attempt(self):
        return self.taken(self.once)

    def take(self):
        return self.taken(self.often)

    def extend(self):
        try:
            self.run(self.once.extend(self.lock))
            return True
        except self.errors:
            return False

    def release(self):
        try:
            self.run(self.once.unlock(self.lock))
            return True
        except self.errors:
            return False

    def locked(self):
        return self.run(self.once.is_locked(self.name))


class PythonRedisLock:
    """Its leases are whole seconds. It waits for at most its own lease."""

    def __init__(self, name, lease_ms, ports):
        import redis
        import redis_lock

        self.errors = redis_lock.NotAcquired
        self.lock = redis_lock.Lock(redis.StrictRedis(port=ports[0]), name, expire=lease_ms // 1000)

    def attempt(self):
        return self.lock.acquire(blocking=False)

    def take(self):
        return self.lock.acquire()

    def extend(self):
        try:
            self.lock.extend()
            return True
        except self.errors:
            return False

    def release(self):
        try:
            self.lock.release()
            return True
        except self.errors:
            return False

    def locked(self):
        return self.lock.locked()


PEERS = {
    "by-hand": ByHand,
    "redis-py": RedisPy,
    "redis-py-async": RedisPyAsync,
    "flock": Flock,
    "pottery": Pottery,
    "redlock-py": RedlockPy,
    "aioredlock": Aioredlock,
    "python-redis-lock": PythonRedisLock,
}

handles = {}


def work(handle, rounds, port):
    """Steps in a book that only an exclusive owner may take: what was read is what is written over."""
    import redis

    book = redis.Redis(port=port)
    for _ in range(rounds):
        while not handle.take():
            pass
        page = int(book.get("book") or 0)
        time.sleep(0.002)  # Its work, in which it must be alone.
        book.set("book", page + 1)
        handle.release()
    return "ok"


def obey(verb, words):
    if verb == "ping":
        return "ok"
    if verb == "open":
        name, peer, lock, lease_ms, *ports = words
        handles[name] = PEERS[peer](lock, int(lease_ms), [int(port) for port in ports])
        return "ok"
    handle = handles[words[0]]
    if verb == "work":
        return work(handle, int(words[1]), int(words[2]))
    if verb in ("try", "take"):
        taken = handle.attempt() if verb == "try" else handle.take()
        return "ok" if taken else "busy"
    if verb == "locked":
        return {True: "yes", False: "no", None: "silent"}[handle.locked()]
    return {True: "ok", False: "lost", None: "silent"}[getattr(handle, verb)()]


def main():
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        number, verb, *words = line.split()
        try:
            answer = obey(verb, words)
        except Exception as error:  # Whatever goes wrong has to reach the driver.
            answer = f"err {type(error).__name__} {error}".replace("\n", " ")
        print(number, answer, flush=True)


main()
