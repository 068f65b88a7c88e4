"""holdfast.redis beside redis-py: both share locks on the wire."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis
import redis.asyncio

import holdfast
import holdfast.redis
from conftest import HANG_S, Server


def ours(server, name="x", **options):
    return server.redis.lock(name, lock_class=holdfast.redis.Lock, **options)


def test_each_waits_for_the_other(server):
    theirs = server.redis.lock("x", timeout=1000, blocking_timeout=HANG_S, thread_local=False)
    lock = ours(server, blocking_timeout=HANG_S)
    for first, second in ((theirs, lock), (lock, theirs)):
        got = threading.Event()

        def wait(second=second, got=got):
            with second:
                got.set()

        assert first.acquire()
        assert not second.acquire(blocking=False)
        assert first.locked()
        assert second.locked()
        thread = threading.Thread(target=wait)
        thread.start()
        first.release()
        thread.join(HANG_S)
        assert got.is_set()


def test_errors_are_those_of_both(server):
    with pytest.raises(redis.exceptions.LockError) as caught:
        ours(server).release()
    assert isinstance(caught.value, holdfast.LockNotOwnedError)
    with pytest.raises(redis.exceptions.LockNotOwnedError), ours(server):
        server.redis.set("x", "another's")
    with pytest.raises(redis.exceptions.LockError), ours(server, blocking_timeout=0.05):
        pass
    with pytest.raises(holdfast.WrongTypeError) as caught:
        server.redis.delete("x")
        server.redis.hset("x", "a", 1)
        ours(server).acquire()
    assert isinstance(caught.value, redis.exceptions.LockError)


def test_one_client_for_each_pool(server):
    assert ours(server, "a").client is ours(server, "b").client
    other = redis.Redis(unix_socket_path=server.socket)
    assert other.lock("a", lock_class=holdfast.redis.Lock).client is not ours(server).client


def test_connection_settings_carry_over(new_server):
    server = new_server("--requirepass", "open sesame")
    client = redis.Redis(unix_socket_path=server.socket, password="open sesame", db=3)
    with client.lock("x", lock_class=holdfast.redis.Lock) as lock:
        assert client.get("x") == lock.local.token
    assert lock.local.token is None
    with pytest.raises(NotImplementedError):
        redis.RedisCluster.lock(object(), "x", lock_class=holdfast.redis.Lock)


@pytest.fixture
def new_server(tmp_path):

    made = []

    class WithPassword(Server):
        def _answers(self):
            self.redis = redis.Redis(unix_socket_path=self.socket, password="open sesame")
            return super()._answers()

    def start(*options):
        made.append(WithPassword(tmp_path, *options))
        return made[-1]

    yield start
    for server in made:
        server.stop()


def test_asyncio_twin(server):
    async def scene():
        client = redis.asyncio.Redis(unix_socket_path=server.socket)
        lock = client.lock("x", lock_class=holdfast.redis.AsyncLock, blocking_timeout=HANG_S)
        async with lock:
            assert await client.get("x") == lock.local.token
            theirs = server.redis.lock("x", timeout=1000)
            assert not theirs.acquire(blocking=False)
        assert theirs.acquire(blocking=False)
        waiter = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        theirs.release()
        assert await waiter
        assert await lock.owned()
        await lock.release()
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            await lock.release()
        assert lock.local.token is None
        await lock.client.aclose()
        await client.aclose()

    asyncio.run(asyncio.wait_for(scene(), HANG_S))
