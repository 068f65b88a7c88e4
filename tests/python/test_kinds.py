"""Every kind of lock and counter, with threads: what the C library's own tests show is not shown again, only
that Python reaches all of it."""

from __future__ import annotations

import threading

import pytest

import holdfast
from conftest import HANG_S, WATCHDOG, wait_until

KINDS = ["plain", "fair", "spin", "fenced", "string", "cohort", "fair+cohort", "string+spin", "string+cohort"]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_one_client_gets_in(client, other, kind):
    ours, theirs = client.lock("x", kind=kind), other.lock("x", kind=kind)
    with ours:
        assert ours.owned()
        assert theirs.locked()
        assert not theirs.owned()
        assert not theirs.acquire(blocking=False)
        assert not theirs.acquire(blocking_timeout=0.05)
    assert not ours.owned()
    with theirs:
        assert not ours.acquire(blocking=False)


def test_each_acquire_is_an_owner(client, kind):
    first, second = client.lock("x", kind=kind), client.lock("x", kind=kind)
    with first:
        assert not second.acquire(blocking=False)
        assert not first.acquire(blocking=False)


def test_waiter_gets_it_after_the_release(client, other, kind):
    got = threading.Event()

    def wait():
        with other.lock("x", kind=kind):
            got.set()

    with client.lock("x", kind=kind):
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: other.stats()["waits"] == 1)
        assert not got.is_set()
    thread.join(HANG_S)
    assert got.is_set()


@pytest.mark.parametrize("kind", ["plain", "fair", "string"])
def test_reentrant_lock_belongs_to_the_thread(client, kind):
    lock, same = client.rlock("x", kind=kind), client.rlock("x", kind=kind)
    got = []
    with lock:
        with same:
            assert same.owned()
        thread = threading.Thread(target=lambda: got.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        assert lock.locked()
    assert got == [False]
    assert not lock.locked()


def test_readers_share_and_a_writer_may_read(client, other):
    ours, theirs = client.rwlock("x"), other.rwlock("x")
    with ours.read(), theirs.read():
        with pytest.raises(holdfast.DeadlockError):
            ours.write().acquire()
    with ours.read():
        assert not theirs.write().acquire(blocking=False)
    with ours.write():
        with ours.read():
            assert not theirs.read().acquire(blocking=False)


def test_fence_tokens_grow(client, other):
    tokens = []
    for turn in (client, other, client):
        with turn.lock("x", kind="fenced") as lock:
            tokens.append(lock.fence_token)
    assert tokens == sorted(set(tokens))
    with client.lock("y") as lock, pytest.raises(holdfast.NotSupportedError):
        _ = lock.fence_token


def test_string_lock_has_the_token_of_the_caller(client, server):
    lock = client.lock("x", kind="string")
    assert lock.acquire(token="mine")
    assert server.redis.get("x") == b"mine"
    lock.release()
    assert server.redis.get("x") is None


def test_group_takes_all_values_or_none(client, other):
    with client.group("users", ["anna", b"\xffbytes"]):
        assert not other.group("users", ["anna", "carl"]).acquire(blocking=False)
        with other.group("users", ["carl"]):
            pass
    with pytest.raises(holdfast.ArgumentError):
        client.group("users", [])


def test_all_of_takes_all_locks_or_none(client, other):
    a, b = client.lock("a"), client.lock("b", kind="fair")
    with other.lock("b"):
        assert not holdfast.all_of(a, b).acquire(blocking=False)
        assert not a.locked()
    with holdfast.all_of(a, b) as both:
        assert a.locked()
        assert b.locked()
        assert both.remaining > 0
    assert not a.locked()


def test_semaphore(client, other):
    semaphore, theirs = client.semaphore("s"), other.semaphore("s")
    assert semaphore.try_set(3)
    assert not theirs.try_set(5)
    with semaphore, theirs.taken(2):
        assert semaphore.available() == 0
        assert not theirs.acquire(blocking=False)
        assert not theirs.acquire(timeout=0.01)
        with pytest.raises(holdfast.LockNotAcquiredError), theirs.taken(1, timeout=0.01):
            pass
    assert semaphore.available() == 3
    semaphore.add(2)
    assert semaphore.drain() == 5
    semaphore.release(4)
    assert semaphore.release_if_exists(1)
    assert semaphore.available() == 5
    assert semaphore.delete()
    assert not semaphore.release_if_exists(1)


def test_permits(client, other):
    permits, theirs = client.permits("p"), other.permits("p")
    assert permits.try_set(3)
    with permits.taken(2) as ids:
        assert len(ids) == 2
        assert permits.remaining(ids[0]) > 0
        assert theirs.acquire(2, blocking=False) is None
        with pytest.raises(holdfast.LockNotAcquiredError), theirs.taken(2, blocking_timeout=0.01):
            pass
    (one,) = theirs.acquire(timeout=1000)
    assert permits.count_taken() == 1
    assert 0 < permits.lease(one) <= 1000
    permits.extend(one, None)
    assert permits.lease(one) is None
    permits.release(one)
    with pytest.raises(holdfast.LockNotOwnedError):
        permits.release(one)
    with pytest.raises(ValueError, match="32 hexadecimal"):
        permits.release("no id")
    permits.set(7)
    permits.add(1)
    assert permits.total() == permits.available() == 8
    (endless,) = permits.acquire(no_expiry=True)
    assert permits.lease(endless) is None
    assert permits.expire(100)
    assert permits.delete()


def test_latch(client, other):
    latch = client.latch("l")
    assert latch.wait(0)
    assert latch.try_set(2)
    assert not latch.wait(0.01)
    opened = []
    thread = threading.Thread(target=lambda: opened.append(other.latch("l").wait()))
    thread.start()
    latch.count_down()
    assert latch.count() == 1
    latch.count_down()
    thread.join(HANG_S)
    assert opened == [True]
    latch.try_set(1)
    assert latch.delete()


def test_quorum(new_server):
    servers = [new_server() for _ in range(3)]
    url = " ".join(s.url for s in servers)
    with holdfast.Client(url, restart_guard=0) as ours, holdfast.Client(url, restart_guard=0) as theirs:
        servers[0].stop()
        with ours.lock("x") as lock:
            assert not theirs.lock("x").acquire(blocking=False)
            assert lock.remaining > 0
        with ours.lock("y", timeout=1000) as lock:
            lock.reacquire()
            with pytest.raises(holdfast.NotSupportedError):
                lock.extend(1000)
        servers[1].stop()
        with pytest.raises(holdfast.ConnectionError) as caught:
            theirs.lock("x").acquire(blocking=False)
        assert caught.value.code in ("ENOQUORUM", "EUNREACH")


def test_zookeeper(zookeeper):
    patient = {"connect_timeout": HANG_S, "command_timeout": HANG_S}
    with holdfast.Client(zookeeper, **patient) as ours, holdfast.Client(zookeeper, **patient) as theirs:
        with ours.lock("x") as lock:
            assert lock.owned()
            assert not theirs.lock("x").acquire(blocking=False)
        with ours.rlock("y") as outer, outer:
            assert not theirs.rwlock("z").read().locked()
        with ours.rwlock("z").read(), theirs.rwlock("z").read():
            pass
        semaphore = ours.semaphore("s")
        assert semaphore.try_set(2)
        with semaphore:
            assert theirs.semaphore("s").available() == 1
        with pytest.raises(holdfast.NotSupportedError):
            ours.lock("w", kind="string").acquire()


# ---- While it is held ----


def test_extend_adds_and_replaces(client, server):
    lock = client.lock("x", timeout=1000)
    with lock:
        assert 900 < lock.ttl() <= 1000.1
        lock.extend(2000)
        assert 2900 < lock.ttl() <= 3000.1
        lock.extend(500, replace_ttl=True)
        assert 400 < lock.ttl() <= 500.1
        assert lock.remaining <= 500.1
        lock.reacquire()
        assert 900 < lock.ttl() <= 1000.1
    with client.lock("y") as watched, pytest.raises(holdfast.LockError, match="watchdog"):
        watched.extend(10)


@pytest.mark.parametrize("kind", ["plain", "fair", "spin", "fenced", "string", "cohort", "read", "group", "all_of"])
def test_which_locks_extend(client, kind):
    if kind == "read":
        lock = client.rwlock("x").read(timeout=1000)
    elif kind == "group":
        lock = client.group("x", ["v"], timeout=1000)
    elif kind == "all_of":
        lock = holdfast.all_of(client.lock("x"), client.lock("y"), timeout=1000)
    else:
        lock = client.lock("x", kind=kind, timeout=1000)
    with lock:
        lock.reacquire()
        if kind in ("plain", "fair", "spin", "fenced", "string"):
            lock.extend(1000)
            assert lock.ttl() > 1500
        else:
            with pytest.raises(holdfast.NotSupportedError):
                lock.extend(1000)


def test_adopting_a_hold_of_another_client(client, other):
    ours = client.lock("x")
    ours.acquire()
    theirs = other.adopt("x", ours.handle)
    assert theirs.owned()
    theirs.release()
    assert not ours.locked()
    with pytest.raises(holdfast.LockNotOwnedError):
        ours.release()


def test_a_thread_may_release_what_another_acquired(client):
    shared, own = client.lock("x", thread_local=False), client.lock("y")
    threads = [threading.Thread(target=lock.acquire) for lock in (shared, own)]
    for thread in threads:
        thread.start()
        thread.join()
    shared.release()
    with pytest.raises(holdfast.LockNotOwnedError):
        own.release()


def test_decorator(client):
    lock = client.lock("x")

    @lock
    def doubled(x):
        """Twice."""
        assert lock.owned()
        return 2 * x

    assert doubled(3) == 6
    assert doubled.__doc__ == "Twice."
    assert not lock.locked()
    with pytest.raises(TypeError, match=r"holdfast\.asyncio"):

        @lock
        async def never():
            pass


# ---- What goes wrong ----


def test_release_of_what_is_not_held(client):
    lock = client.lock("x")
    with pytest.raises(holdfast.LockNotOwnedError) as caught:
        lock.release()
    assert caught.value.lock_name == "x"
    assert caught.value.code == "ENOTOWNER"
    for ask in (lambda: lock.extend(1), lambda: lock.handle, lambda: lock.fence_token, lock.ensure_held):
        with pytest.raises(holdfast.LockNotOwnedError):
            ask()


def test_with_that_cannot_get_it(client, other):
    with other.lock("x"), pytest.raises(holdfast.LockNotAcquiredError) as caught:
        with client.lock("x", blocking_timeout=0.01):
            pass
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, ValueError)


def test_name_in_use_for_something_else(client, server):
    server.redis.set("x", "a string")
    with pytest.raises(holdfast.WrongTypeError):
        client.lock("x").acquire()


def test_no_server(tmp_path):
    client = holdfast.Client(f"unix://{tmp_path}/none", connect_timeout=0.05)
    with pytest.raises(holdfast.ConnectionError) as caught, client.lock("x"):
        pass
    assert isinstance(caught.value, ConnectionError)
    client.close()


def test_wrong_password(new_server):
    server = new_server()
    server.redis.config_set("requirepass", "open sesame")
    with holdfast.Client(server.url, password="wrong") as client, pytest.raises(PermissionError):
        client.ping()
    with holdfast.Client(server.url, password="open sesame") as client:
        client.ping()


@pytest.mark.parametrize(
    "make",
    [
        lambda: holdfast.Client("nonsense://"),
        lambda: holdfast.Client("redis://localhost", watchdog=0.0001),
        lambda: holdfast.Client("redis://localhost", acks="some"),
        lambda: holdfast.Client("redis://localhost", tls_min_version="3"),
    ],
)
def test_options_that_make_no_sense(make):
    with pytest.raises(ValueError):
        make()


def test_options_that_are_not_there():
    with pytest.raises(TypeError, match="colour"):
        holdfast.Client("redis://localhost", colour="blue")


def test_every_option_arrives(server):
    with holdfast.Client(
        server.url,
        name_prefix="app:",
        command_timeout=20,
        connect_timeout=50,
        failover_timeout=50,
        watchdog=200,
        max_hold=1000,
        ping_interval=5,
        fair_wait=100,
        restart_guard=-1,
        report_after=-1,
        acks="off",
        ack_disk=False,
        ack_timeout=0.5,
        label="a test",
        histogram_names=3,
        clock_drift_ppm=5000,
        tls_insecure=False,
        no_busy_poll=True,
        tracking=True,
    ) as client:
        with client.lock("x") as lock:
            assert 150 < lock.ttl() <= 200.1
            assert server.redis.exists("app:x")
            names = [c["name"] for c in server.redis.client_list()]
            assert "a_test" in " ".join(names)


def test_server_reports_changes_unless_tracking_is_off(server):
    with holdfast.Client(server.url, tracking=False) as without, holdfast.Client(server.url, tracking=True) as client:
        with without.lock("x"), client.lock("y"):
            wait_until(lambda: client.stats()["tracked"] == 1, "the request for reports")
            assert without.stats()["tracked"] == 0


def test_kinds_that_are_not_there(client):
    with pytest.raises(holdfast.ArgumentError, match="purple"):
        client.lock("x", kind="purple")
    with pytest.raises(holdfast.NotSupportedError):
        client.lock("x", kind="fair+fenced")
    with pytest.raises(TypeError):
        client.lock(7)
    with pytest.raises(holdfast.ArgumentError):
        client.lock("")
    with pytest.raises(holdfast.ArgumentError):
        client.lock("x", timeout=0)


def test_calls_after_close(server):
    client = holdfast.Client(server.url)
    lock, semaphore = client.lock("x"), client.semaphore("s")
    lock.acquire()
    client.close()
    client.close()
    for call in (lock.acquire, lock.release, lock.locked, semaphore.available, client.ping, client.stats):
        with pytest.raises(holdfast.ClosedError):
            call()


def test_close_ends_the_waits_of_busy_threads(server):
    for _ in range(5):
        client = holdfast.Client(server.url)
        ended, turns = [], []

        def work(client=client, ended=ended, turns=turns):
            try:
                while True:
                    with client.lock("x"):
                        turns.append(1)
            except holdfast.ClosedError:
                ended.append(1)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        wait_until(lambda turns=turns: len(turns) > 10)
        client.close()
        for thread in threads:
            thread.join(HANG_S)
        assert len(ended) == 6
        server.redis.delete("x")


# ---- What others see ----


def test_listening(client, other):
    with client.listen("x") as listener:
        assert listener.get(HANG_S).kind is holdfast.NotificationKind.SUBSCRIBED
        with other.lock("x"):
            pass
        notification = listener.get(HANG_S)
        assert (notification.kind, notification.name) == (holdfast.NotificationKind.RELEASED, b"x")
    assert [n for n in listener if n is not None] == []


def in_threads(*calls):
    """Calls that wait, each in a thread of its own; what they return or raise is appended to the second list."""
    begun, ended = [], []

    def run(call):
        begun.append(1)
        try:
            ended.append(call())
        except holdfast.HoldfastError as error:
            ended.append(type(error))

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) == len(calls))
    return threads, ended


def test_closed_listener_returns_none(client):
    listener = client.listen("x")
    assert listener.get(HANG_S)
    threads, ended = in_threads(*[listener.get] * 3, lambda: list(listener))
    assert listener.get(0.01) is None
    listener.close()
    for thread in threads:
        thread.join(HANG_S)
    assert sorted(ended, key=str) == [None] * 3 + [[]]
    assert listener.get() is None
    assert listener.get() is None
    assert list(listener) == []


def test_close_ends_listening(server):
    client = holdfast.Client(server.url)
    listener, other = client.listen("x"), client.listen("y")
    assert listener.get(HANG_S)
    assert other.get(HANG_S)
    threads, ended = in_threads(*[listener.get] * 2, lambda: list(other), lambda: other.get(HANG_S))
    closer = threading.Timer(0.1, client.close)
    closer.start()
    with pytest.raises(holdfast.ClosedError):
        listener.get()
    for thread in [closer, *threads]:
        thread.join(HANG_S)
    assert ended == [holdfast.ClosedError] * 4
    with pytest.raises(holdfast.ClosedError):
        listener.get()
    listener.close()
    assert listener.get() is None


def test_close_ends_the_wait_for_a_loss(server):
    client = holdfast.Client(server.url, watchdog=1000)
    lock = client.lock("x", thread_local=False)
    lock.acquire()
    threads, ended = in_threads(*[lock.lost.wait] * 2)
    client.close()
    for thread in threads:
        thread.join(HANG_S)
    assert ended == [holdfast.ClosedError] * 2
    server.redis.delete("x")


def test_listening_with_a_callback_and_to_breaks(client, server):
    heard = []

    def names(kind):
        return [n.name for n in heard if n.kind is kind]

    with client.listen_breaks(heard.append), holdfast.Client(server.url, watchdog=WATCHDOG) as other:
        wait_until(lambda: heard, "listening")
        other.lock("x").acquire()
        assert client.lock("x").break_lock()
        assert not client.lock("x").break_lock()
        wait_until(lambda: names(holdfast.NotificationKind.BROKEN) == [b"x"], "the notification of the break")
        wait_until(lambda: names(holdfast.NotificationKind.LOST), "the announcement of the loss")


def test_survey_and_inspection(client, other):
    with other.lock("x") as lock:
        found = client.survey("x*", 30)
        assert found["locks"][0]["name"] == "x"
        info = client.lock("x").inspect()
        assert lock.handle in str(info)
    assert "info.redis_version" in client.lock("unused").server_info()


def test_dropped_news_are_reported(client, server, monkeypatch, caplog):
    monkeypatch.setattr(holdfast.Client, "_read", lambda self: None)  # Nobody takes them.
    with client.listen("x") as listener:
        wait_until(lambda: server.redis.publish("redisson_lock__channel:{x}", 0), "listening")
        def more_than_are_kept():
            pipe = server.redis.pipeline()
            for _ in range(100):
                pipe.publish("redisson_lock__channel:{x}", 0)
            pipe.execute()
            return client._core.dropped

        wait_until(more_than_are_kept, "more than are kept")
        client._take_notes()
        assert listener.get(HANG_S)
        assert "were dropped" in caplog.text


def test_prometheus_collects_the_numbers(client):
    prometheus_client = pytest.importorskip("prometheus_client")
    from holdfast.prometheus import Collector

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(client))
    with client.lock("x"):
        pass
    found = {f.name: f for f in registry.collect()}
    (sample,) = found["holdfast_client_acquired"].samples
    assert sample.value == 1
    assert b"holdfast_client_acquired_total" in prometheus_client.generate_latest(registry)
    client.close()
    assert list(registry.collect()) == []


def test_numbers(client):
    with client.lock("x"):
        stats = client.stats()
    assert stats["acquired"] == 1
    assert stats["holds"] == 1
    assert len(stats["wait"]["buckets"]) == 32
    assert "holdfast_client_acquired_total 1" in client.metrics()
    assert client.id in client.lock("x").client.id
    client.ping()
