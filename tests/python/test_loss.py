"""A lock that is lost: as an event, a callback, an exception; and what the log says."""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
import textwrap
import threading

import pytest

import holdfast
from conftest import HANG_S, WATCHDOG, losses, wait_until
from holdfast import _core, _errors


def delete(server, client, name):
    server.redis.delete(name)


def break_it(server, client, name):
    assert client.lock(name).break_lock()


def flush(server, client, name):
    server.redis.flushall()


@pytest.mark.parametrize("end", [delete, break_it, flush])
def test_loss_is_an_event_and_an_exception(server, end):
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client, holdfast.Client(server.url) as other:
        with pytest.raises(holdfast.LockLostError) as caught, client.lock("x") as lock:
            assert not lock.lost
            assert not lock.lost.wait(0.01)
            end(server, other, "x")
            assert lock.lost.wait(HANG_S)
            assert lock.lost.is_set()
            assert lock.remaining == 0
            with pytest.raises(holdfast.LockLostError):
                lock.ensure_held()
        assert caught.value.code == "ELOST"
        assert client.stats()["losses"] == 1
        with lock:
            assert not lock.lost


def test_loss_is_a_callback(server):
    events = []
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client:
        lock = client.lock("x", on_lost=events.append)
        lock.acquire()
        server.redis.delete("x")
        (loss,) = wait_until(lambda: losses(events), "the callback")
        assert loss.lock is lock
        assert loss.reason
        with pytest.raises(holdfast.LockLostError):
            lock.release()
        with pytest.raises(holdfast.LockNotOwnedError):
            lock.release()


def test_warning_before_the_loss(new_server):
    server = new_server()
    events = []
    with holdfast.Client(server.url, watchdog=6.0) as client:
        lock = client.lock("x", on_lost=events.append)
        lock.acquire()
        server.stop()
        wait_until(lambda: [e.kind for e in events][-1:] == ["lost"], "the loss")
        assert events[0].kind == "warning"
        assert 0 < events[0].remaining <= 6
        assert lock.lost.wait(0)


def test_exception_of_the_body_is_more_important(server, caplog):
    with holdfast.Client(server.url) as client, caplog.at_level(logging.WARNING, "holdfast"):
        with pytest.raises(KeyError), client.lock("x"):
            server.redis.delete("x")
            raise KeyError
        assert "'x' was not held to the end" in caplog.text


def test_log_records_say_what_they_are_about(server, caplog):
    with holdfast.Client(server.url) as client, caplog.at_level(logging.WARNING, "holdfast"):
        lock = client.lock("x", on_lost=lambda event: None)
        lock.acquire()
        server.redis.delete("x")
        wait_until(lambda: [r for r in caplog.records if getattr(r, "code", None)], "the loss is logged")
    record = next(r for r in caplog.records if getattr(r, "code", None))
    assert (record.code, record.lock, record.server) == ("ELOST", "x", None)


def test_log_records_name_every_code():
    codes = {name: getattr(_core, name) for name in dir(_core) if name[0] == "E" and not name.startswith("EXTEND")}
    assert len(codes) == 23
    assert {name: _errors.log_fields(code, b"", b"")["code"] for name, code in codes.items()} == {n: n for n in codes}


def test_quiet_release(server, caplog):
    with holdfast.Client(server.url) as client, caplog.at_level(logging.WARNING, "holdfast"):
        with client.lock("x", raise_on_release_error=False):
            server.redis.delete("x")
        assert "'x' was not held to the end" in caplog.text


def test_fixed_lease_ends(client):
    lock = client.lock("x", timeout=1.0)
    lock.acquire()
    assert lock.lost.wait(HANG_S)
    wait_until(lambda: not lock.locked(), "the end of the lease at the server, which is a little later")


def test_lost_permits_call_back(server):
    events = []
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client:
        permits = holdfast.Permits(client, "p", on_lost=events.append)
        permits.try_set(1)
        (one,) = permits.acquire()
        server.redis.flushall()
        (loss,) = wait_until(lambda: losses(events), "the callback")
        assert (loss.permit_id, loss.lock) == (one, permits)


def test_callback_that_raises_is_logged(server, caplog):
    events = []

    def clumsy(event):
        events.append(event)
        raise RuntimeError("clumsy")

    with holdfast.Client(server.url, watchdog=WATCHDOG) as client:
        lock, second = client.lock("x", on_lost=clumsy), client.lock("y", on_lost=clumsy)
        for name in (lock, second):
            name.acquire()
            server.redis.flushall()
            count = len(events)
            wait_until(lambda count=count: len(events) > count, "the callback")
        wait_until(lambda: "clumsy" in caplog.text, "the log")


def test_renewals_do_not_need_the_gil(server):
    """Nor do the log and notification: a call that keeps the GIL for two leases loses nothing."""
    program = """
        import sys, time, redis
        r = redis.Redis(unix_socket_path=sys.argv[1])
        while not sys.stdin.read(1): pass
        r.publish("redisson_lock__channel:{x}", 0)
        time.sleep(0.5)  # The GIL is kept by then, mostly.
        r.client_kill_filter(skipme=True)  # Which is worth a line of the log.
        while r.exists("going"):
            r.publish("redisson_lock__channel:{x}", 0)
            time.sleep(0.1)  # The rate of messages while the GIL is kept.
    """
    server.redis.set("going", 1)
    publisher = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), server.socket], stdin=subprocess.PIPE, text=True
    )
    events = []
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client, client.listen("x") as listener:
        assert listener.get(HANG_S).kind is holdfast.NotificationKind.SUBSCRIBED
        with client.lock("y", on_lost=events.append) as lock:
            publisher.stdin.write("go")
            publisher.stdin.flush()
            assert listener.get(HANG_S)
            ctypes.PyDLL(None).sleep(int(2 * WATCHDOG) + 1)
            assert lock.owned()
            assert lock.remaining > 0
        assert losses(events) == []
        assert client.stats()["renewals"] > 0
    server.redis.delete("going")
    assert publisher.wait(HANG_S) == 0


def test_log_goes_to_logging(new_server, caplog):
    server = new_server()
    with holdfast.Client(server.url, watchdog=WATCHDOG) as client, caplog.at_level(logging.DEBUG, "holdfast"):
        client.lock("x").acquire()
        server.stop()
        wait_until(lambda: [r for r in caplog.records if r.name == "holdfast"], "a line of the log")


def test_client_and_its_thread_end_together(server):
    def threads():
        return {t for t in threading.enumerate() if t.name == "holdfast"}

    def client_and_thread():
        before = threads()  # Those of clients that have just been closed may end meanwhile.
        client = holdfast.Client(server.url)
        client.lock("x")
        (thread,) = threads() - before
        return client, thread

    client, thread = client_and_thread()
    client.close()
    wait_until(lambda: not thread.is_alive(), "the end of the thread")
    client, thread = client_and_thread()
    del client
    wait_until(lambda: not thread.is_alive(), "the end of the thread")
