"""holdfast.asyncio: every kind; cancellation at any moment; loss; loops that end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import warnings

import pytest
import redis.asyncio

import holdfast
import holdfast.asyncio
import holdfast.redis
from conftest import HANG_S, SOAK, WATCHDOG, losses, wait_until

KINDS = ["plain", "fair", "spin", "fenced", "string", "cohort", "fair+cohort"]


def run(coroutine, loop="asyncio"):
    """In a loop of its own, with a hang limit."""

    async def limited():
        async with asyncio.timeout(3600 if SOAK else HANG_S):
            return await coroutine

    if loop == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(limited())
    return asyncio.run(limited())


class Inside:
    """A body that says that it was entered, and stays. That the server has the lock says less: the task that acquires
    it may not know yet, and a cancellation would hit the acquire, whose undo goes on in the background."""

    def __init__(self):
        self.entered = asyncio.Event()

    async def stay(self):
        self.entered.set()
        await asyncio.sleep(10 * HANG_S)


async def until(condition, what="it"):
    async with asyncio.timeout(HANG_S):
        while not (value := condition()):
            await asyncio.sleep(0.002)
    return value


@pytest.fixture
def url(server):
    return server.url


# ---- Kinds ----


@pytest.mark.parametrize("kind", KINDS)
def test_one_client_gets_in(url, kind):
    async def scene():
        # Within such a lease nothing is renewed.
        async with holdfast.asyncio.Client(url, watchdog=1000) as ours, holdfast.asyncio.Client(url) as theirs:
            lock, other = ours.lock("x", kind=kind), theirs.lock("x", kind=kind)
            async with lock:
                assert await lock.owned()
                assert await other.locked()
                assert not await other.acquire(blocking=False)
                assert not await other.acquire(blocking_timeout=0.02)
                assert await lock.ttl() >= lock.remaining > 0
                assert "cohort" in kind or lock.handle
                waiter = asyncio.create_task(other.acquire())
                await until(lambda: theirs.stats()["waits"] == 1)
            assert await waiter
            assert not await lock.acquire(blocking=False)

    run(scene())


def test_reentrant_lock_belongs_to_the_task(url):
    """Not to its context, which child tasks inherit."""

    async def scene():
        inside = most = 0

        async def work(lock):
            nonlocal inside, most
            async with lock:
                async with lock:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0.001)
                    inside -= 1

        async with holdfast.asyncio.Client(url) as client:
            lock = client.rlock("x")
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(work(lock))
            assert most == 1
            async with client.rwlock("y").write(), client.rwlock("y").read():
                pass
            assert not await lock.locked()

    run(scene())


def test_other_objects(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client:
            await client.ping()
            async with client.group("g", ["a"]), holdfast.asyncio.all_of(client.lock("b"), client.lock("c")):
                assert not await client.lock("b").acquire(blocking=False)
            semaphore = client.semaphore("s")
            assert await semaphore.try_set(2)
            async with semaphore:
                assert await semaphore.available() == 1
                assert not await semaphore.acquire(2, blocking=False)
                assert not await semaphore.acquire(2, timeout=0.01)
            async with semaphore.taken(2):
                assert await semaphore.available() == 0
                with pytest.raises(holdfast.LockNotAcquiredError):
                    async with semaphore.taken(timeout=0.01):
                        pass
            await semaphore.add(1)
            assert await semaphore.drain() == 3
            await semaphore.release()
            assert await semaphore.release_if_exists()
            assert await semaphore.delete()
            permits = client.permits("p")
            assert await permits.try_set(2)
            async with permits.taken(2) as ids:
                assert permits.remaining(ids[0]) > 0
                assert await permits.acquire(blocking=False) is None
                with pytest.raises(holdfast.LockNotAcquiredError):
                    async with permits.taken(blocking_timeout=0.01):
                        pass
            (one,) = await permits.acquire(timeout=1000)
            await permits.extend(one, None)
            assert await permits.lease(one) is None
            assert (await permits.available(), await permits.total(), await permits.count_taken()) == (1, 2, 1)
            await permits.release(one)
            await permits.set(5)
            await permits.add(1)
            assert await permits.expire(100)
            assert await permits.delete()
            latch = client.latch("l")
            assert await latch.try_set(1)
            assert not await latch.wait(0.01)
            waiter = asyncio.create_task(latch.wait())
            await latch.count_down()
            assert await waiter
            assert await latch.count() == 0
            assert not await latch.delete()

    run(scene())


def test_what_others_see(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client, holdfast.asyncio.Client(url) as other:
            listener = client.listen("x")
            breaks = client.listen_breaks()
            assert (await listener.get()).kind is holdfast.NotificationKind.SUBSCRIBED
            assert (await breaks.get()).kind is holdfast.NotificationKind.SUBSCRIBED
            async with other.lock("x") as lock:
                found = await client.survey("x")
                assert found["locks"][0]["name"] == "x"
                assert lock.handle in str(await lock.inspect())
            assert (await listener.get()).kind is holdfast.NotificationKind.RELEASED
            assert "info.redis_version" in await client.lock("unused").server_info()
            await other.lock("y").acquire()
            assert await client.lock("y").break_lock()
            assert (await breaks.get()).name == b"y"
            listener.close()
            assert [notification async for notification in listener] == []
            heard = []
            with client.listen("z", heard.append), client.listen_breaks(heard.append):
                await until(lambda: len(heard) == 2)
                await other.lock("z").acquire()
                assert await client.lock("z").break_lock()
                await until(lambda: [n.kind for n in heard].count(holdfast.NotificationKind.BROKEN) == 2)
            assert client.stats()["acquired"] == 0
            assert client.id in client.metrics()

    run(scene())


def test_extending_and_adopting(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client, holdfast.asyncio.Client(url) as other:
            async with client.lock("x", timeout=1000) as lock:
                await lock.extend(2000)
                assert 2900 < await lock.ttl() <= 3000.1
                await lock.extend(500, replace_ttl=True)
                assert 400 < await lock.ttl() <= 500.1
                await lock.reacquire()
                assert 900 < await lock.ttl() <= 1000.1
                adopted = await other.adopt("x", lock.handle)
                assert await adopted.owned()
            shared = client.lock("y", thread_local=False)
            await asyncio.create_task(shared.acquire())
            await shared.release()
            own = client.lock("y")
            await asyncio.create_task(own.acquire())
            with pytest.raises(holdfast.LockNotOwnedError):
                await own.release()

    run(scene())


def test_lock_of_a_task_that_has_ended_is_no_longer_renewed(server):
    async def scene():
        async with holdfast.asyncio.Client(server.url, watchdog=WATCHDOG) as client:
            lock = client.lock("x")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                await asyncio.create_task(lock.acquire())
                gc.collect()
                await until(lambda: not server.redis.exists("x"), "the end of the lease")

    run(scene())


def test_decorator(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client:
            lock = client.lock("x")

            @lock
            async def doubled(x):
                assert await lock.owned()
                return 2 * x

            assert await doubled(3) == 6
            assert not await lock.locked()
            with pytest.raises(TypeError, match=r"holdfast\.Client"):
                lock(print)

    run(scene())


# ---- Cancellation ----


async def take_and_give_back(lock):
    assert await lock.acquire()
    try:
        if random.random() < 0.5:
            await asyncio.sleep(random.random() * 0.001)
    finally:
        await lock.release()


async def take_permits(permits):
    async with permits.taken(2):
        await asyncio.sleep(0)


async def take_semaphore(semaphore):
    async with semaphore:
        await asyncio.sleep(0)


async def take_twice(lock):
    async with lock, lock:
        await asyncio.sleep(0)


async def take_over(client, other):
    """Adopts what another client holds. Cancelled, it ends with its lease: so it is broken here."""
    name = f"k{random.randrange(10**9)}"
    held = other.lock(name)
    await held.acquire()
    handle = held.handle
    try:
        lock = await client.adopt(name, handle)
        await lock.release()
    finally:
        held._holds.clear()
        server_side = other.lock(name)
        await asyncio.shield(asyncio.ensure_future(server_side.break_lock()))


async def wait_for_latch(latch):
    assert not await latch.wait(0.002)


def actions(client, kind, url):
    """A function that makes a coroutine, which is to be cancelled."""
    if kind == "permits":
        permits = client.permits("permits")
        return lambda: take_permits(permits)
    if kind == "semaphore":
        semaphore = client.semaphore("semaphore")
        return lambda: take_semaphore(semaphore)
    if kind == "latch":
        latch = client.latch("latch")
        return lambda: wait_for_latch(latch)
    if kind == "group":
        return lambda: take_and_give_back(client.group("group", random.sample("abcd", 2)))
    if kind == "all_of":
        return lambda: take_and_give_back(
            holdfast.asyncio.all_of(*(client.lock(f"k{n}") for n in random.sample(range(6), 2)))
        )
    if kind == "reentrant":
        return lambda: take_twice(client.rlock(f"k{random.randrange(8)}"))
    if kind in ("read", "write"):
        return lambda: take_and_give_back(
            getattr(client.rwlock(f"k{random.randrange(4)}"), random.choice(["read", "write"]))()
        )
    if kind == "redis":
        theirs = redis.asyncio.Redis(unix_socket_path=url.removeprefix("unix://"))
        holdfast.redis._clients[theirs.connection_pool] = client
        return lambda: take_and_give_back(
            theirs.lock(f"k{random.randrange(8)}", lock_class=holdfast.redis.AsyncLock)
        )
    if kind in ("quorum", "zookeeper"):
        kind = "plain"
    return lambda: take_and_give_back(client.lock(f"k{random.randrange(8)}", kind=kind))


async def cancel_at_random(client, act, cancels):
    count = 0
    while count < cancels:
        tasks = [asyncio.create_task(act()) for _ in range(20)]
        for task in tasks:
            await asyncio.sleep(random.choice([0, 0, 0, random.random() * 0.0005]))
            if random.random() < 0.7 and not task.done():
                task.cancel()
                count += 1
        await asyncio.wait(tasks, timeout=HANG_S)
        for task in tasks:
            if not task.cancelled():
                assert task.exception() is None
    await until(lambda: client.stats()["holds"] == 0 and client.stats()["waits"] == 0, "the end of all holds")


async def cancel_and_look(client, kind, url, keys):
    """Cancels at random; then all is free, and nothing is held or awaited."""
    cancels = 10000 if SOAK else 60
    if kind == "adopt":
        async with holdfast.asyncio.Client(url, watchdog=1000) as other:
            await cancel_at_random(client, lambda: take_over(client, other), cancels // 10)
        return  # What was cancelled ends with its lease.
    await cancel_at_random(client, actions(client, kind, url), cancels)
    await until(lambda: keys() == [], "the end of all locks")
    for n in range(8):
        async with client.lock(f"k{n}", kind="string" if kind == "redis" else "plain"):
            pass


ACTIONS = [*KINDS, "reentrant", "read", "group", "all_of", "semaphore", "permits", "latch", "redis", "adopt"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_random_cancels_leave_nothing(server, kind, loop):
    """10,000 of each kind at full size."""
    random.seed(7)

    def keys():
        return [k for k in server.redis.keys("*") if k.startswith((b"k", b"group"))]

    async def scene():
        async with holdfast.asyncio.Client(server.url, watchdog=1000) as client:  # What is left behind stays.
            await client.semaphore("semaphore").try_set(3)
            await client.permits("permits").try_set(3)
            await client.latch("latch").try_set(1)
            await cancel_and_look(client, kind, server.url, keys)
            for counter in (client.permits("permits"), client.semaphore("semaphore")):
                async with asyncio.timeout(HANG_S):
                    while await counter.available() != 3:
                        await asyncio.sleep(0)
            assert client.stats()["cancelled"] > 0 or kind == "adopt"

    run(scene(), loop)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_random_cancels_on_a_quorum(new_server, loop):
    random.seed(7)
    servers = [new_server() for _ in range(3)]
    url = " ".join(s.url for s in servers)

    async def scene():
        async with holdfast.asyncio.Client(url, watchdog=1000, restart_guard=0) as client:
            await cancel_and_look(client, "quorum", url, lambda: [k for s in servers for k in s.redis.keys("k*")])

    run(scene(), loop)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_random_cancels_on_zookeeper(zookeeper, loop):
    random.seed(7)

    async def scene():
        patient = {"connect_timeout": HANG_S, "command_timeout": HANG_S}
        async with holdfast.asyncio.Client(zookeeper, **patient) as client:
            await cancel_and_look(client, "zookeeper", zookeeper, list)

    run(scene(), loop)


def test_cancelled_release_still_happens(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client:
            lock = client.lock("x")
            await lock.acquire()
            coroutine = lock.release()
            coroutine.send(None)  # It has begun ...
            with contextlib.suppress(asyncio.CancelledError):
                coroutine.throw(asyncio.CancelledError())  # ... and is cancelled.
            other = client.lock("x")
            assert await other.acquire()

    run(scene())


def test_grant_that_nobody_sees_is_given_back(url):
    """Cancelled after the server has granted it, before the task has run again."""

    async def scene():
        async with holdfast.asyncio.Client(url, watchdog=1000) as client:
            for _ in range(30):
                task = asyncio.create_task(client.lock("x").acquire())
                while client.stats()["holds"] == 0:
                    await asyncio.sleep(0)
                assert not task.done()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await until(lambda: client.stats()["holds"] == 0)
            async with client.lock("x"):
                pass

    run(scene())


# ---- Loss ----


def test_lost_lock_cancels_the_body(server):
    async def scene():
        async with holdfast.asyncio.Client(server.url, watchdog=WATCHDOG) as client:
            reached = False
            with pytest.raises(holdfast.LockLostError) as caught:
                async with client.lock("x") as lock:
                    server.redis.delete("x")
                    await asyncio.sleep(10 * HANG_S)
                    reached = True
            assert not reached
            assert lock.lost.is_set()
            assert caught.value.lock_name == "x"
            assert asyncio.current_task().cancelling() == 0
            async with lock:
                assert not lock.lost.is_set()

    run(scene())


def test_broken_lock_cancels_the_body(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client, holdfast.asyncio.Client(url) as other:
            with pytest.raises(holdfast.LockLostError):
                async with client.lock("x"):
                    assert await other.lock("x").break_lock()
                    await asyncio.sleep(10 * HANG_S)

    run(scene())


def test_cancellation_from_elsewhere_stays_one(server):
    async def scene():
        async with holdfast.asyncio.Client(server.url, watchdog=WATCHDOG) as client:

            inside = Inside()

            async def work():
                async with client.lock("x"):
                    await inside.stay()

            task = asyncio.create_task(work())
            await inside.entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not server.redis.exists("x")
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(None) as limit, client.lock("y"):
                    limit.reschedule(asyncio.get_running_loop().time())
                    await asyncio.sleep(10 * HANG_S)
            assert not isinstance(caught.value, holdfast.HoldfastError)
            assert not server.redis.exists("y")

    run(scene())


def test_loss_and_cancellation_together(server):
    """The cancellation goes on."""

    async def scene():
        async with holdfast.asyncio.Client(server.url, watchdog=WATCHDOG) as client:
            lock, inside = client.lock("x"), Inside()

            async def work():
                async with lock:
                    await inside.stay()

            task = asyncio.create_task(work())
            await inside.entered.wait()
            hold = next(iter(lock._holds.values()))
            lock._lose(hold, "for the test")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(scene())


def test_loss_in_the_cleanup_of_a_cancelled_task(server):
    """As asyncio.timeout(): what counts is whether another cancellation came while the body ran."""

    async def scene():
        async with holdfast.asyncio.Client(server.url, watchdog=WATCHDOG) as client:
            inside, cancelling = Inside(), []

            async def work():
                try:
                    await inside.stay()
                except asyncio.CancelledError:
                    with contextlib.suppress(holdfast.LockLostError):
                        async with client.lock("x"):
                            server.redis.delete("x")
                            await asyncio.sleep(10 * HANG_S)
                    cancelling.append(asyncio.current_task().cancelling())
                    raise

            task = asyncio.create_task(work())
            await inside.entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cancelling == [1]

    run(scene())


def test_loss_in_a_task_group(server):
    async def scene():
        async with holdfast.asyncio.Client(server.url, watchdog=WATCHDOG) as client:
            sibling_cancelled = False

            async def sibling():
                nonlocal sibling_cancelled
                try:
                    await asyncio.sleep(10 * HANG_S)
                except asyncio.CancelledError:
                    sibling_cancelled = True
                    raise

            async def work():
                async with client.lock("x"):
                    server.redis.delete("x")
                    await asyncio.sleep(10 * HANG_S)

            with pytest.raises(ExceptionGroup) as caught:
                async with asyncio.TaskGroup() as group:
                    group.create_task(sibling())
                    group.create_task(work())
            assert caught.group_contains(holdfast.LockLostError)
            assert sibling_cancelled

    run(scene())


def test_loss_without_cancellation(server):
    async def scene():
        events = []
        async with holdfast.asyncio.Client(server.url, watchdog=WATCHDOG) as client:
            with pytest.raises(holdfast.LockLostError):
                async with client.lock("x", cancel_on_loss=False, on_lost=events.append) as lock:
                    server.redis.delete("x")
                    await lock.lost.wait()
                    with pytest.raises(holdfast.LockLostError):
                        lock.ensure_held()
            assert len(losses(events)) == 1

    run(scene())


# ---- Loops ----


def test_other_loops(server):
    """A second loop may use it when the first has ended, whose waits leave nothing behind."""
    client = holdfast.asyncio.Client(server.url)
    holder = holdfast.Client(server.url)
    held = holder.lock("x")
    held.acquire()

    async def leave_a_wait():
        task = asyncio.ensure_future(client.lock("x").acquire())
        await until(lambda: client.stats()["waits"] == 1)
        task.get_loop().stop()
        await asyncio.sleep(10 * HANG_S)

    loop = asyncio.new_event_loop()
    with pytest.raises(RuntimeError):
        loop.run_until_complete(leave_a_wait())
    loop.close()
    held.release()

    async def second():
        lock = client.lock("x")
        async with asyncio.timeout(HANG_S), lock:
            assert await lock.owned()
        # Without a dispatch the grant of the first loop's wait would stay for its lease.
        await until(lambda: client.stats()["waits"] == 0 and client.stats()["holds"] == 0)
        await client.aclose()

    asyncio.run(second())
    holder.close()
    assert not server.redis.exists("x")


def test_two_loops_at_once_are_refused(url):
    client = holdfast.asyncio.Client(url)
    first = asyncio.new_event_loop()
    first.run_until_complete(client.ping())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(client.ping())
    first.run_until_complete(client.aclose())
    first.close()


def test_aclose_ends_waits(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as other:
            await other.lock("x").acquire()
            client = holdfast.asyncio.Client(url)
            waiter = asyncio.create_task(client.lock("x").acquire())
            await until(lambda: client.stats()["waits"] == 1)
            await client.aclose()
            with pytest.raises(holdfast.ClosedError):
                await waiter
            await client.aclose()
            with pytest.raises(holdfast.ClosedError):
                await client.ping()

    run(scene())


def test_closed_listener_returns_none(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client:
            listener = client.listen("x")
            assert await listener.get()
            waiters = [asyncio.create_task(listener.get()) for _ in range(3)]
            await asyncio.sleep(0)
            listener.close()
            assert await asyncio.gather(*waiters) == [None] * 3
            assert await listener.get() is None
            assert [n async for n in listener] == []

    run(scene())


def test_aclose_ends_listening(url):
    async def scene():
        client = holdfast.asyncio.Client(url)
        listener = client.listen("x")
        assert await listener.get()
        waiters = [asyncio.create_task(listener.get()) for _ in range(3)]

        async def iterate():
            return [n async for n in listener]

        waiters.append(asyncio.create_task(iterate()))
        await asyncio.sleep(0)
        await client.aclose()
        ended = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(error) for error in ended] == [holdfast.ClosedError] * 4
        with pytest.raises(holdfast.ClosedError):
            await listener.get()
        listener.close()
        assert await listener.get() is None

    run(scene())


def test_forgotten_client_closes(server):
    async def scene():
        client = holdfast.asyncio.Client(server.url)
        await client.lock("x").acquire()
        return client._core

    core = asyncio.run(scene())
    gc.collect()
    wait_until(lambda: core.closed)


def test_a_wait_does_not_block_the_loop(url):
    async def scene():
        async with holdfast.asyncio.Client(url) as client:
            await client.lock("x").acquire()
            waiter = asyncio.create_task(client.lock("x").acquire())
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert not waiter.done()
            waiter.cancel()

    run(scene())
