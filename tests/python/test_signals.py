"""Signals that arrive while a lock is acquired, held or released; and locks that nobody refers to any more."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import pytest

import holdfast
from conftest import HANG_S, SOAK, WATCHDOG, wait_until


class Bang(BaseException):
    pass


@contextlib.contextmanager
def handler(number, function):
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


def bang(*ignored):
    raise Bang


def scenes(client, shared):
    """What a raising signal may hit."""
    reentrant, rwlock = client.rlock("reentrant"), client.rwlock("new-rw")
    semaphore = client.semaphore("semaphore")
    semaphore.try_set(1)
    permits = client.permits("permits")
    permits.try_set(1)

    def with_a_new_lock():
        with client.lock(f"new{random.randrange(1000)}"):
            pass

    def with_a_shared_lock():
        with shared:
            pass

    def with_a_reentrant_lock():
        with reentrant:
            with reentrant:
                pass

    def acquire_and_release():
        shared.acquire()
        shared.release()

    def with_each_kind():
        with client.lock("shared", kind=random.choice(["spin", "fenced", "cohort"])):
            pass

    def with_a_fair_lock():
        with client.lock("new-fair", kind="fair"):
            pass

    def with_a_string_lock():
        with client.lock("new-string", kind="string"):
            pass

    def with_readers_and_writers():
        with rwlock.write(), rwlock.read():
            pass

    def with_a_group():
        with client.group("new-group", random.sample("abcd", 2)):
            pass

    def with_all_of():
        with holdfast.all_of(client.lock("new-a"), client.lock("new-b")):
            pass

    def with_a_semaphore():
        with semaphore:
            pass

    def with_permits():
        with permits.taken():
            pass

    return [
        with_a_new_lock,
        with_a_shared_lock,
        with_a_reentrant_lock,
        acquire_and_release,
        with_each_kind,
        with_a_fair_lock,
        with_a_string_lock,
        with_readers_and_writers,
        with_a_group,
        with_all_of,
        with_a_semaphore,
        with_permits,
    ]


SCENES = 12


def interrupt(scene, times, after, gets_through):
    """Runs a scene until so many signals have raised in it, each at a random moment. On a slow machine they come later:
    some must let it acquire."""
    hits, reach = 0, 0.0004
    while hits < times or not gets_through():
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.random() * reach + 1e-6)
                for _ in range(20):
                    scene()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Bang:
            hits += 1
            after()
            if hits % 25 == 0 and not gets_through():
                reach *= 2


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(SCENES))
def test_raising_signals_leave_nothing(client, server, number):
    """20,000 interrupts of each scene at full size."""
    random.seed(number)
    shared = client.lock("shared")
    assert len(scenes(client, shared)) == SCENES
    scene = scenes(client, shared)[number]

    def after():
        # A plain acquire() may be followed by the signal: but the lock knows that it is held.
        if scene.__name__ == "acquire_and_release" and shared._owner is not None:
            shared.release()

    def gets_through():
        return client.stats()["acquired"] > 0 or scene.__name__ == "with_a_semaphore"

    with handler(signal.SIGALRM, bang):
        interrupt(scene, 20000 if SOAK else 75, after, gets_through)
    gc.collect()
    wait_until(lambda: left(client, server) == [], "the end of all holds")


def left(client, server):
    """What is held, or missing."""
    keys = [k for k in server.redis.keys("*") if k.startswith((b"new", b"shared", b"reentrant"))]
    if client.stats()["holds"]:
        keys.append(b"holds")
    if server.redis.exists("semaphore") and client.semaphore("semaphore").available() != 1:
        keys.append(b"semaphore")
    if server.redis.exists("permits") and client.permits("permits").available() != 1:
        keys.append(b"permits")
    return keys


WAITS = ["plain", "fair", "spin", "fenced", "string", "cohort", "read", "write", "group", "all_of"]
WAITS += ["semaphore", "permits", "latch", "listen", "lost", "with", "asyncio"]
# gevent with everything patched, or `select` alone; the call in the main greenlet, or in one that the main one joins.
PATCHES = ["all", "select", "all other", "select other"]
GEVENT = [(kind, patch) for patch in PATCHES for kind in WAITS if kind != "asyncio"]


@pytest.mark.parametrize("kind", WAITS)
def test_ctrl_c_ends_a_wait(server, kind):
    interrupt_a_wait(server, kind, "")


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")
@pytest.mark.parametrize(("kind", "patch"), GEVENT if SOAK else GEVENT[::5])
def test_ctrl_c_ends_a_greenlets_wait(server, kind, patch):
    interrupt_a_wait(server, kind, patch)


def interrupt_a_wait(server, kind, patch):
    """In a process of its own, whose main thread waits."""
    program = """
        import sys
        patch, _, other = sys.argv[3].partition(" ")
        if patch:
            import gevent
            from gevent import monkey
            getattr(monkey, "patch_" + patch)()
        import os, signal, threading, time
        import holdfast
        signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
        client = holdfast.Client(sys.argv[1], watchdog=1000)  # What is left behind stays.
        kind = sys.argv[2]
        if kind == "group": call = client.group("x", ["v"]).acquire
        elif kind == "all_of": call = holdfast.all_of(client.lock("x"), client.lock("y")).acquire
        elif kind == "semaphore": call = client.semaphore("s").acquire
        elif kind == "permits": call = client.permits("p").acquire
        elif kind == "latch": call = client.latch("l").wait
        elif kind == "listen":
            listener = client.listen("y")
            def call():
                while True:
                    listener.get()  # That it listens may be reported first.
        elif kind == "lost":
            mine = client.lock("z")
            mine.acquire()
            call = mine.lost.wait
        elif kind in ("read", "write"): call = getattr(client.rwlock("x"), kind)().acquire
        elif kind == "asyncio":
            import asyncio, holdfast.asyncio
            client.close()
            client = holdfast.asyncio.Client(sys.argv[1], watchdog=1000)
            call = lambda: asyncio.run(client.lock("x").acquire())
        elif kind == "with": call = client.lock("x").__enter__
        else: call = client.lock("x", kind=kind).acquire
        signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"handled\\n"))
        sleep = gevent.sleep if patch else time.sleep
        main = threading.main_thread().ident
        def inside():
            if kind not in ("listen", "lost"):
                return client.stats()["waits"] > 0
            frame = None if patch else sys._current_frames()[main]
            while frame and "holdfast" not in frame.f_code.co_filename.split("/"):
                frame = frame.f_back
            return patch or frame is not None
        def tell():
            while not inside():
                sleep(0.001)
            os.write(1, b"waits\\n")
        gevent.spawn(tell) if patch else threading.Thread(target=tell).start()
        try:
            if other:
                greenlet = gevent.spawn(call)
                greenlet.join()
            else:
                call()
            os.write(1, b"got it\\n")
        except KeyboardInterrupt:
            os.write(1, b"interrupted\\n")
            if other:
                greenlet.kill()
            if kind == "lost":
                mine.release()
            while kind != "asyncio" and ((stats := client.stats())["waits"] or stats["holds"]):
                sleep(0.001)  # What it had of all_of() goes back.
            sys.stdin.read()  # What goes back in the background may need this process.
    """
    holder = holdfast.Client(server.url)
    lock = holder.lock("x", kind=kind if kind in ("fair", "string", "spin", "fenced") else "plain")
    if kind in ("read", "write"):
        lock = holder.rwlock("x").write()
    if kind == "group":
        lock = holder.group("x", ["v"])
    elif kind in ("semaphore", "permits"):
        getattr(holder, kind)(kind[0]).try_set(0)
    elif kind == "latch":
        holder.latch("l").try_set(1)
    if kind not in ("semaphore", "permits", "latch", "listen", "lost"):
        lock.acquire()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), server.url, kind, patch],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if patch else None,  # gevent prints what ends a greenlet.
        text=True,
    )
    assert process.stdout.readline() == "waits\n"
    for _ in range(3):  # A handler that returns does not end the wait.
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "handled\n"
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    took_ms = (time.monotonic() - start) * 1000
    print(f"Ctrl-C ended a wait for {kind} after {took_ms:.0f} ms")
    if SOAK:
        assert took_ms <= 100
    wait_until(lambda: not server.redis.exists("y"), "the return of the other lock of all_of()")
    process.stdin.close()
    assert process.wait(HANG_S) == 0
    holder.close()


def test_handler_that_returns_does_not_end_the_wait(client, other):
    hits = []
    lock, theirs = client.lock("x"), other.lock("x", thread_local=False)
    theirs.acquire()

    def disturb():
        wait_until(lambda: client.stats()["waits"] == 1)
        for count in range(1, 6):
            os.kill(os.getpid(), signal.SIGUSR1)
            wait_until(lambda count=count: len(hits) >= count)
        theirs.release()

    with handler(signal.SIGUSR1, lambda *_: hits.append(1)):
        thread = threading.Thread(target=disturb)
        thread.start()
        assert lock.acquire()
        thread.join()
    lock.release()


# ---- Closing in a handler ----


def wait_with(client, other, function):
    """Waits for a lock; meanwhile a handler calls this, and returns what it raised."""
    raised = []
    theirs = other.lock("x", thread_local=False)
    theirs.acquire()

    def call(*_):
        try:
            function()
            raised.append(None)
        except holdfast.HoldfastError as error:
            raised.append(error)

    def disturb():
        wait_until(lambda: client.stats()["waits"] == 1)
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_until(lambda: raised)
        theirs.release()

    with handler(signal.SIGUSR1, call):
        thread = threading.Thread(target=disturb)
        thread.start()
        with client.lock("x"):
            pass
        thread.join()
    return raised[0]


def test_client_that_a_handler_could_not_close_closes_later(server, other):
    client = holdfast.Client(server.url, watchdog=WATCHDOG)
    mine = client.lock("mine")
    mine.acquire()
    assert isinstance(wait_with(client, other, client.close), holdfast.DeadlockError)
    assert not client.closed
    assert mine.owned()
    client.close()
    assert client.closed
    wait_until(lambda: not server.redis.exists("mine"), "the end of the lease")


def test_client_that_is_collected_in_a_handler_closes(server, client, other):
    def connections():
        return {connection["id"] for connection in server.redis.client_list()}

    before = connections()
    forgotten = [holdfast.Client(server.url)]
    forgotten[0].ping()
    its = connections() - before
    assert its
    assert wait_with(client, other, forgotten.clear) is None
    wait_until(lambda: not its & connections(), "the end of its connections")


@pytest.mark.parametrize("call", ["try", "acquire", "with", "locked", "extend", "semaphore", "survey"])
def test_ctrl_c_ends_a_call_that_no_server_answers(new_server, call):
    server = new_server()
    with holdfast.Client(server.url, command_timeout=2 * HANG_S) as client:
        lock, held = client.lock("x"), client.lock("y", timeout=HANG_S)
        held.acquire()
        client.semaphore("s").try_set(1)
        calls = {
            "try": lambda: lock.acquire(blocking=False),
            "acquire": lock.acquire,
            "with": lock.__enter__,
            "locked": lock.locked,
            "extend": lambda: held.extend(1),
            "semaphore": lambda: client.semaphore("s").acquire(blocking=False),
            "survey": client.survey,
        }
        server.process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        try:
            with handler(signal.SIGALRM, bang), pytest.raises(Bang):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                calls[call]()
            assert time.monotonic() - start < HANG_S
        finally:
            server.process.send_signal(signal.SIGCONT)
        client.ping()  # What was sent before has run.
        held.release()
        wait_until(lambda: not server.redis.exists("x"), "the return of what was granted")
        assert wait_until(lambda: client.semaphore("s").available() == 1, "the return of the permit")


def test_ctrl_c_waits_for_a_release(new_server):
    """The library ends the hold all the same."""
    server = new_server()
    with holdfast.Client(server.url, command_timeout=1) as client:
        lock = client.lock("x")
        lock.acquire()
        server.process.send_signal(signal.SIGSTOP)
        try:
            with handler(signal.SIGALRM, bang), pytest.raises(Bang):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                lock.release()
        finally:
            server.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not server.redis.exists("x"), "the release")


# ---- Locks that nobody refers to ----


def test_collected_lock_is_no_longer_renewed(server):
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client:
        lock = client.lock("x")
        lock.acquire()
        with pytest.warns(ResourceWarning, match="'x'"):
            del lock
            gc.collect()
        wait_until(lambda: not server.redis.exists("x"), "the end of the lease")


def test_lock_of_a_thread_that_has_ended_is_no_longer_renewed(server):
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        lock = client.lock("x")
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
        wait_until(lambda: not server.redis.exists("x"), "the end of the lease")


def test_held_lock_is_renewed(server):
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client:
        with client.lock("x") as lock:
            renewals = client.stats()["renewals"]
            wait_until(lambda: client.stats()["renewals"] >= renewals + 5, "five renewals")
            assert lock.owned()


def test_cycles_are_collected(server):
    client = holdfast.Client(server.url)
    events = []
    lock = client.lock("x", on_lost=events.append)
    events.append(lock)
    lock.itself = lock
    client.itself = client
    with lock:
        pass
    core = client._core
    del client, lock, events
    gc.collect()
    assert core.closed


def test_nothing_grows(client):
    def resident():
        """Kilobytes that are not of files: those come and go as the machine likes."""
        with open("/proc/self/status") as file:
            return int(next(line for line in file if line.startswith("RssAnon:")).split()[1])

    def pairs(count):
        for _ in range(count):
            with client.lock("x") as lock:
                lock.owned()

    pairs(300)
    gc.collect()
    before = resident()
    pairs(100000 if SOAK else 2000)
    gc.collect()
    assert resident() - before < 1024, "kilobytes"
