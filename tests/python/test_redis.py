"""holdfast.redis beside redis-py: both share locks on the wire; and redis-py's own tests of its lock are the judge."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tarfile
import textwrap
import threading
from importlib.metadata import version
from pathlib import Path

import pytest
import redis
import redis.asyncio

import holdfast
import holdfast.redis
from conftest import Server

SOURCE = "8.1.0"  # The version whose tests are the judge.


def ours(server, name="x", **options):
    return server.redis.lock(name, lock_class=holdfast.redis.Lock, **options)


def test_each_waits_for_the_other(server):
    theirs = server.redis.lock("x", timeout=30, blocking_timeout=60, thread_local=False)
    lock = ours(server, blocking_timeout=60)
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
        thread.join(60)
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
        lock = client.lock("x", lock_class=holdfast.redis.AsyncLock, blocking_timeout=60)
        async with lock:
            assert await client.get("x") == lock.local.token
            theirs = server.redis.lock("x", timeout=30)
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

    asyncio.run(asyncio.wait_for(scene(), 60))


# ---- redis-py's own tests ----

# They look at the clock that redis-py's lock sleeps by; or want `timeout=None` to be a lock without an end.
CLOCK = {
    "test_lock.py::TestLock::test_blocking_timeout",
    "test_lock.py::TestLock::test_context_manager_blocking_timeout",
    "test_asyncio/test_lock.py::TestLock::test_blocking_timeout",
}
NO_EXPIRY = {
    f"{file}::TestLock::{name}"
    for file in ("test_lock.py", "test_asyncio/test_lock.py")
    for name in ("test_lock", "test_lock_token", "test_lock_token_thread_local_false")
}
PLUGIN = """
    import holdfast.redis

    def pytest_collection_modifyitems(items):
        for item in items:
            if item.module.__name__.endswith("test_asyncio.test_lock"):
                item.module.Lock = holdfast.redis.AsyncLock
            elif item.module.__name__.endswith("test_lock"):
                item.module.Lock = holdfast.redis.Lock
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """redis-py's source package, from the registry; kept beside the build."""
    place = Path(os.environ.get("HF_BUILD_DIR", tmp_path_factory.mktemp("r"))) / "python-redis"
    place.mkdir(parents=True, exist_ok=True)
    archive = place / f"redis-{SOURCE}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", "redis", "--no-deps"]
        got = subprocess.run([*command, "-d", place, f"redis=={SOURCE}"], capture_output=True, text=True)
        if got.returncode != 0:
            pytest.skip(f"redis-py's sources cannot be fetched: {got.stderr.strip().splitlines()[-1]}")
    if not (place / f"redis-{SOURCE}").exists():
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
    return place / f"redis-{SOURCE}"


@pytest.mark.timeout(240)
def test_redis_pys_own_tests(server, sources, tmp_path):
    """Of 32 and 30: all but those of CLOCK and NO_EXPIRY."""
    if version("redis") != SOURCE:
        pytest.skip(f"redis-py {SOURCE} is not installed")
    (tmp_path / "holdfast_plugin.py").write_text(textwrap.dedent(PLUGIN))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "holdfast_plugin", "-p", "no:cacheprovider", "-rA"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server.redis.config_set("port", port)  # Over a Unix socket its fixtures wait for other servers.
    command += [f"--redis-url=redis://127.0.0.1:{port}/9", "tests/test_lock.py", "tests/test_asyncio/test_lock.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True)
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) tests/([^\s\[]+)", done.stdout, re.MULTILINE)
    names = {name for _, name in outcomes}
    assert len([n for n in names if n.startswith("test_lock")]) == 32, done.stdout + done.stderr
    assert len([n for n in names if n.startswith("test_asyncio")]) == 30
    assert {name for outcome, name in outcomes if outcome != "PASSED"} == CLOCK | NO_EXPIRY
