"""holdfast.redis beside redis-py: both share locks on the wire."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import shutil
import ssl
import subprocess
import threading
import types

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

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


def asked(lock):
    """Everything that a lock asks the server."""
    return [lock.locked, lock.ttl, lock.inspect, lock.server_info, lock.break_lock, lock.acquire]


def test_errors_of_every_call_are_those_of_both(server):
    """Also of what redis-py's lock has not."""
    lock = ours(server)
    lock.client.close()
    for call in asked(lock):
        with pytest.raises(redis.exceptions.ConnectionError) as caught:
            call()
        assert isinstance(caught.value, holdfast.ClosedError)
    with pytest.raises(redis.exceptions.DataError) as caught:
        ours(server, timeout=-1)
    assert isinstance(caught.value, holdfast.ArgumentError)


def test_every_error_of_asyncio_is_one_of_both(server):
    async def scene():
        client = redis.asyncio.Redis(unix_socket_path=server.socket)
        lock = client.lock("x", lock_class=holdfast.redis.AsyncLock)
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            lock.ensure_held()
        await lock.acquire()
        await lock.client.aclose()
        for call in (*asked(lock), lock.owned, lock.release):
            with pytest.raises(redis.exceptions.ConnectionError) as caught:
                await call()
            assert isinstance(caught.value, holdfast.ClosedError)
        await client.aclose()

    asyncio.run(asyncio.wait_for(scene(), HANG_S))


def test_every_error_has_one_of_redis_py():
    for name in holdfast.__all__:
        if name.endswith("Error"):
            error = holdfast.redis._translate(getattr(holdfast, name)("why", code="E", lock_name="x"))
            assert name == "HoldfastError" or isinstance(error, redis.exceptions.RedisError), name
            assert isinstance(error, getattr(holdfast, name))
            assert (error.text, error.code, error.lock_name) == ("why", "E", "x")
    assert isinstance(holdfast.redis._translate(holdfast.UnknownOutcomeError()), redis.exceptions.TimeoutError)


def test_one_client_for_each_pool(server):
    assert ours(server, "a").client is ours(server, "b").client
    other = redis.Redis(unix_socket_path=server.socket)
    assert other.lock("a", lock_class=holdfast.redis.Lock).client is not ours(server).client


def test_connection_settings_carry_over(new_server):
    server = new_server("--requirepass", "open sesame")
    client = redis.Redis(unix_socket_path=server.socket, password="wrong")
    with pytest.raises(redis.exceptions.AuthenticationError):
        client.lock("x", lock_class=holdfast.redis.Lock).client.ping()
    client = redis.Redis(unix_socket_path=server.socket, password="open sesame", db=3)
    with client.lock("x", lock_class=holdfast.redis.Lock) as lock:
        assert client.get("x") == lock.local.token
    assert lock.local.token is None
    with pytest.raises(NotImplementedError):
        redis.RedisCluster.lock(object(), "x", lock_class=holdfast.redis.Lock)


def test_pools_that_name_no_host_are_refused():
    """Not taken for one of localhost."""
    primary = redis.sentinel.Sentinel([("127.0.0.1", 1)]).master_for("m", db=2)
    with pytest.raises(NotImplementedError, match="redis-sentinel://"):
        primary.lock("x", lock_class=holdfast.redis.Lock)
    primary = redis.asyncio.sentinel.Sentinel([("127.0.0.1", 1)]).master_for("m")
    with pytest.raises(NotImplementedError, match="redis-sentinel://"):
        primary.lock("x", lock_class=holdfast.redis.AsyncLock)

    class Elsewhere(redis.Connection):
        pass

    with pytest.raises(NotImplementedError, match="Elsewhere"):
        holdfast.redis._url_of(redis.ConnectionPool(connection_class=Elsewhere))
    named = redis.ConnectionPool(connection_class=Elsewhere, host="there")
    assert holdfast.redis._url_of(named) == "redis://there:6379/0"
    assert holdfast.redis._url_of(redis.ConnectionPool()) == "redis://localhost:6379/0"


# ---- TLS ----


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Those of 127.0.0.1 and of another host, each its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    place = tmp_path_factory.mktemp("tls")
    for name, host in (("right", "IP:127.0.0.1"), ("wrong", "DNS:elsewhere")):
        files = ["-keyout", place / f"{name}.key", "-out", place / f"{name}.pem"]
        request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj /CN=x -addext"
        subprocess.run([*request.split(), f"subjectAltName={host}", *files], check=True, capture_output=True)
    return place


@pytest.fixture
def tls(certificates, tmp_path):
    """Starts a server with one of them, and returns its port."""
    made = []

    def start(name="right", *options):
        files = ["--tls-cert-file", certificates / f"{name}.pem", "--tls-key-file", certificates / f"{name}.key"]
        more = ["--tls-ca-cert-file", certificates / f"{name}.pem", "--tls-auth-clients", "no", *options]
        (tmp_path / name).mkdir(exist_ok=True)
        made.append(Server(tmp_path / name, *map(str, files + more)))
        return made[-1].listen("tls-port")

    yield start
    for server in made:
        server.stop()


def is_locked_over(port, **options):
    client = redis.Redis(host="127.0.0.1", port=port, ssl=True, **options)
    with client.lock("x", lock_class=holdfast.redis.Lock) as lock:
        return client.get("x") == lock.local.token


def test_authorities_carry_over(tls, certificates):
    port = tls()
    assert is_locked_over(port, ssl_ca_certs=str(certificates / "right.pem"))
    with pytest.raises(redis.exceptions.ConnectionError, match="certificate"):
        is_locked_over(port, ssl_ca_certs=str(certificates / "wrong.pem"))
    for none in ("none", ssl.CERT_NONE, None):
        assert is_locked_over(port, ssl_cert_reqs=none)


def test_name_of_the_host_is_compared(tls, certificates):
    port, authority = tls("wrong"), str(certificates / "wrong.pem")
    with pytest.raises(redis.exceptions.ConnectionError, match="certificate"):
        is_locked_over(port, ssl_ca_certs=authority)
    with pytest.raises(NotImplementedError, match="ssl_check_hostname"):
        is_locked_over(port, ssl_ca_certs=authority, ssl_check_hostname=False)
    assert is_locked_over(port, ssl_cert_reqs="none", ssl_check_hostname=False)


def test_least_version_of_tls_carries_over(tls, certificates):
    port, authority = tls("right", "--tls-protocols", "TLSv1.2"), str(certificates / "right.pem")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.MINIMUM_SUPPORTED):
        assert is_locked_over(port, ssl_ca_certs=authority, ssl_min_version=version)
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.MAXIMUM_SUPPORTED):
        client = redis.Redis(host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=authority, ssl_min_version=version)
        with pytest.raises(redis.exceptions.ConnectionError):
            client.lock("x", lock_class=holdfast.redis.Lock).acquire()


@pytest.mark.parametrize("name", sorted(holdfast.redis._REFUSED))
def test_other_settings_of_tls_are_refused(name):
    client = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=redis.SSLConnection, **{name: "x"}))
    with pytest.raises(NotImplementedError, match=name):
        client.lock("x", lock_class=holdfast.redis.Lock)


def test_no_setting_of_tls_is_ignored():
    """Those of this redis-py."""
    settings = {name for name in inspect.signature(redis.SSLConnection).parameters if name.startswith("ssl_")}
    known = {"ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version"}
    assert settings == known | set(holdfast.redis._TLS) | set(holdfast.redis._REFUSED)


def test_authorities_of_this_machine_are_python_s(tls, certificates, monkeypatch):
    """The OpenSSL of a wheel does not know where they are."""
    url, none = f"rediss://127.0.0.1:{tls()}", types.SimpleNamespace(cafile=None, capath=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: none)
    with holdfast.Client(url) as client, pytest.raises(holdfast.ConnectionError, match="certificate"):
        client.ping()
    right = types.SimpleNamespace(cafile=str(certificates / "right.pem"), capath=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: right)
    with holdfast.Client(url) as client:
        client.ping()
    wrong = str(certificates / "wrong.pem")
    with holdfast.Client(url, tls_ca_file=wrong) as client, pytest.raises(holdfast.ConnectionError):
        client.ping()
    with holdfast.Client(f"{url}?tls_ca_file={wrong}") as client, pytest.raises(holdfast.ConnectionError):
        client.ping()


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


@pytest.mark.parametrize("timeout", [None, 1000])
def test_no_expiry_is_what_no_timeout_means_to_redis_py(server, timeout):
    """With a timeout it changes nothing."""
    endless = functools.partial(holdfast.redis.Lock, no_expiry=True)
    lock = server.redis.lock("x", timeout=timeout, lock_class=endless)
    assert lock.acquire()
    assert (server.redis.ttl("x") == -1) == (timeout is None)
    assert (lock.remaining == math.inf) == (timeout is None)
    assert not server.redis.lock("x").acquire(blocking=False)
    if timeout is None:
        with pytest.raises(redis.exceptions.LockError):
            lock.extend(10)
        with pytest.raises(redis.exceptions.LockError):
            lock.reacquire()
        assert not lock.lost.wait(0.1)
    lock.release()
    assert not server.redis.exists("x")


def test_no_expiry_in_asyncio(server):
    async def main():
        theirs = redis.asyncio.Redis(unix_socket_path=server.socket)
        lock = holdfast.redis.AsyncLock(theirs, "x", no_expiry=True)
        async with lock:
            assert await theirs.ttl("x") == -1
            assert lock.remaining == math.inf
        assert not await theirs.exists("x")
        await lock.client.aclose()
        await theirs.aclose()

    asyncio.run(main())


def test_no_expiry_is_for_strings(server):
    with holdfast.Client(server.url) as client:
        with pytest.raises(holdfast.ArgumentError):
            client.lock("x", no_expiry=True).acquire()
        lock = client.lock("x", kind="string", no_expiry=True)
        assert lock.acquire()
        assert server.redis.ttl("x") == -1
        server.redis.delete("x")
        assert lock.lost.wait(HANG_S)
