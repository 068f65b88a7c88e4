"""Processes as people run them: forks, spawned workers, celery, gunicorn, gevent, daemon threads at the end, and
sub-interpreters. Each scene is a program of its own, run by the same interpreter."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

import holdfast
from conftest import HANG_S, SOAK, WATCHDOG, wait_until


def run(directory, program, *args, quiet=True, **environment):
    """Runs it as a file, and returns what it printed; it must end well, and silently."""
    path = directory / "program.py"
    path.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", str(path), *args],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if not quiet:
        return done.stdout
    noise = [line for line in done.stderr.splitlines() if "multi-threaded" not in line and "os.fork" not in line]
    assert "Exception" not in done.stderr, done.stderr
    assert "Fatal" not in done.stderr, noise
    return done.stdout


needs = {name: pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
         for name in ("celery", "gunicorn", "gevent")}


# ---- fork ----


def test_child_has_a_client_of_its_own(server, tmp_path):
    out = run(tmp_path, """
        import os, sys
        import holdfast
        client = holdfast.Client(sys.argv[1])
        held, lock, semaphore = client.lock("held"), client.lock("x"), client.semaphore("s")
        held.acquire()
        parent = client.id
        if (pid := os.fork()) == 0:
            assert client.id != parent
            assert not held.owned() and held.locked()
            try:
                held.release()
                os._exit(1)
            except holdfast.LockNotOwnedError:
                pass
            with lock:
                pass
            semaphore.release()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert client.id == parent and held.owned() and semaphore.available() == 1
        held.release()
        client.close()
        print("well")
    """, server.url)
    assert out == "well\n"


def test_fork_while_a_thread_waits(server, tmp_path):
    out = run(tmp_path, """
        import os, sys, threading
        import holdfast
        client = holdfast.Client(sys.argv[1])
        held = client.lock("x")
        held.acquire()
        def wait():
            with client.lock("x"):
                threading.Event().wait()
        threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        for t in threads: t.start()
        while client.stats()["waits"] < 3: pass
        for _ in range(20):
            if (pid := os.fork()) == 0:
                with client.lock("y"):
                    os._exit(1 if client.lock("x").acquire(blocking=False) else 0)
            assert os.waitpid(pid, 0)[1] == 0
            client.lock("y").break_lock()
        client.lock("x").break_lock()
        while client.stats()["waits"] > 2: pass
        print("well", flush=True)
        os._exit(0)
    """, server.url)
    assert out == "well\n"


def test_fork_under_load(server, tmp_path):
    """Threads that lock all the time, also inside their logging, while others fork."""
    out = run(tmp_path, """
        import os, sys, threading
        import holdfast
        client = holdfast.Client(sys.argv[1])
        end = threading.Event()
        def work(name):
            while not end.is_set():
                with client.lock(name): pass
        threads = [threading.Thread(target=work, args=(f"n{n}",)) for n in range(4)]
        for t in threads: t.start()
        for _ in range(int(sys.argv[2])):
            if (pid := os.fork()) == 0:
                with client.lock("child"): pass
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        end.set()
        for t in threads: t.join()
        print("well")
    """, server.url, "500" if SOAK else "30")
    assert out == "well\n"


def test_asyncio_in_a_child(server, tmp_path):
    out = run(tmp_path, """
        import asyncio, os, sys
        import holdfast.asyncio
        client = holdfast.asyncio.Client(sys.argv[1])
        async def work():
            async with client.lock("x"):
                return client.id
        first = asyncio.run(work())
        if (pid := os.fork()) == 0:
            second = asyncio.run(work())
            os._exit(0 if second != first else 1)
        assert os.waitpid(pid, 0)[1] == 0
        async def end():
            async with client.lock("x"): pass
            await client.aclose()
        asyncio.run(end())
        print("well")
    """, server.url)
    assert out == "well\n"


def test_fork_while_tasks_wait(server, tmp_path):
    """In a running loop: the child's loop is its own, and the parent's waits go on."""
    out = run(tmp_path, """
        import asyncio, os, sys
        import holdfast.asyncio
        client = holdfast.asyncio.Client(sys.argv[1])
        async def child():
            assert client.stats()["waits"] == 0
            async with client.lock("y"):
                return await client.lock("x").acquire(blocking=False)
        async def wait():
            async with client.lock("x"): pass
        async def main():
            held = client.lock("x")
            await held.acquire()
            waiters = [asyncio.create_task(wait()) for _ in range(3)]
            while client.stats()["waits"] < 3: await asyncio.sleep(0)
            for _ in range(5):
                if (pid := os.fork()) == 0:
                    os._exit(1 if asyncio.run(child()) else 0)
                assert os.waitpid(pid, 0)[1] == 0
            assert client.stats()["waits"] == 3 and await held.owned()
            await held.release()
            await asyncio.gather(*waiters)
            await client.aclose()
        asyncio.run(main())
        print("well")
    """, server.url)
    assert out == "well\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(server, tmp_path, method):
    """An exact counter, which only the lock protects."""
    out = run(tmp_path, """
        import multiprocessing, os, pathlib, sys
        import holdfast
        client = holdfast.Client(os.environ["SERVER"])
        def add(path):
            for _ in range(25):
                with client.lock("counter"):
                    number = int(pathlib.Path(path).read_text())
                    with open(path, "w") as file: file.write(str(number + 1))
        if __name__ == "__main__":
            path = sys.argv[2]
            with open(path, "w") as file: file.write("0")
            context = multiprocessing.get_context(sys.argv[1])
            workers = [context.Process(target=add, args=(path,)) for _ in range(4)]
            for w in workers: w.start()
            for w in workers: w.join()
            print([w.exitcode for w in workers], pathlib.Path(path).read_text())
    """, method, str(tmp_path / "counter"), SERVER=server.url)
    assert out == "[0, 0, 0, 0] 100\n"


# ---- Frameworks ----


@needs["celery"]
@needs["gevent"]
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_celery(server, tmp_path, pool):
    """A client made at import, 4 workers, 100 tasks that add one under the lock."""
    (tmp_path / "tasks.py").write_text(textwrap.dedent("""
        import os, pathlib, time
        from celery import Celery
        import holdfast
        url = "redis+socket://" + os.environ["SOCKET"]
        app = Celery("tasks", broker=url, backend=url)
        client = holdfast.Client("unix://" + os.environ["SOCKET"])
        client.ping()

        @app.task
        @client.lock("counter")
        def add(path):
            assert client._manual == (os.environ["POOL"] == "gevent")
            number = int(pathlib.Path(path).read_text())
            time.sleep(0.001)  # Others get their turn.
            with open(path, "w") as file:
                file.write(str(number + 1))
    """))
    counter = tmp_path / "counter"
    counter.write_text("0")
    environment = os.environ | {
        "SOCKET": server.socket, "POOL": pool, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-c", "4", "-P", pool, "-l", "warning"],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        send = f"import tasks\nfor _ in range(100): tasks.add.delay({str(counter)!r})"
        subprocess.run([sys.executable, "-c", send], cwd=tmp_path, env=environment, check=True, timeout=HANG_S)
        wait_until(lambda: counter.read_text() == "100", "the last task")
    finally:
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(HANG_S)
        finally:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
    assert worker.returncode == 0


def get_of(path):
    """What an HTTP server answers at a Unix socket, as words; None: it does not listen yet."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(HANG_S)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with connection.makefile("rb") as file:
            return file.read().partition(b"\r\n\r\n")[2].split()


@needs["gunicorn"]
def test_gunicorn_preload(server, tmp_path):
    """A client made before the workers are forked: each has its own, and one at a time holds the lock."""
    (tmp_path / "site_app.py").write_text(textwrap.dedent("""
        import os
        import holdfast
        client = holdfast.Client(os.environ["SERVER"])
        client.ping()
        def app(environ, start_response):
            client.semaphore("arrived").release()
            with client.lock("x") as lock:
                body = f"{os.getpid()} {client.id} {lock.owned()}".encode()
            start_response("200 OK", [("Content-Length", str(len(body)))])
            return [body]
    """))
    path = tmp_path / "http.sock"
    environment = os.environ | {
        "SERVER": server.url, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])
    }
    options = ["--preload", "--timeout", "600", "-w", "3", "-b", f"unix:{path}"]
    master = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "site_app:app"],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: get_of(path), "an answer")
        # A worker has one request at a time: three at once are with all of them.
        seen = []
        with holdfast.Client(server.url) as client:
            arrived = client.semaphore("arrived")
            arrived.drain()
            threads = [threading.Thread(target=lambda: seen.append(get_of(path))) for _ in range(3)]
            with client.lock("x"):
                for thread in threads:
                    thread.start()
                wait_until(lambda: arrived.available() == 3, "three requests")
            for thread in threads:
                thread.join(HANG_S)
        pids, ids, owned = zip(*seen, strict=True)
        assert len(set(pids)) == len(set(ids)) == 3
        assert owned == (b"True",) * 3
    finally:
        master.send_signal(signal.SIGTERM)
        master.wait(HANG_S)


@needs["gevent"]
def test_gevent(server, tmp_path):
    """A wait lets other greenlets run; a killed one leaves nothing; owners are greenlets."""
    out = run(tmp_path, """
        from gevent import monkey
        monkey.patch_all()
        import sys, time
        import gevent
        import holdfast
        client = holdfast.Client(sys.argv[1], watchdog=1000)  # What is left behind stays.
        held = client.lock("x", thread_local=False)
        held.acquire()
        assert not client.lock("x").acquire(blocking_timeout=0.01)
        ticks = []
        def tick():
            while len(ticks) < 10:
                ticks.extend([1] * client.stats()["waits"])
                gevent.sleep(0.01)
            held.release()
        gevent.spawn(tick)
        with client.lock("x"): pass
        assert len(ticks) == 10
        held.acquire()
        waiter = gevent.spawn(client.lock("x").acquire)
        while client.stats()["waits"] == 0: gevent.sleep(0.001)
        waiter.kill()
        held.release()
        while client.stats()["waits"] or client.stats()["holds"]: gevent.sleep(0.001)
        while held.locked(): gevent.sleep(0.001)
        def briefly():
            with client.lock("y"): pass
        for _ in range(100):
            g = gevent.spawn(briefly)
            gevent.sleep(0)
            g.kill()
        while client.stats()["waits"] or client.stats()["holds"]: gevent.sleep(0.001)
        while client.lock("y").locked(): gevent.sleep(0.001)  # Grants on their way are given back.
        reentrant, got = client.rlock("z"), []
        with reentrant, reentrant:
            gevent.spawn(lambda: got.append(reentrant.acquire(blocking=False))).join()
        assert got == [False]
        semaphore = client.semaphore("s")
        semaphore.try_set(1)
        with semaphore: pass
        events = []
        lock = client.lock("w", on_lost=events.append)
        lock.acquire()
        assert client.lock("w").break_lock()
        while not events: gevent.sleep(0.01)
        client.close()
        print("well")
    """, server.url)
    assert out == "well\n"


@needs["gevent"]
@pytest.mark.parametrize("patch", ["all", "select"])
def test_gevent_hubs(server, tmp_path, patch):
    """Several threads have one each; close() ends the waits; one is idle when nobody waits; and after a fork."""
    out = run(tmp_path, """
        from gevent import monkey
        import sys
        getattr(monkey, "patch_" + sys.argv[2])()
        import os
        import gevent, gevent.threadpool
        import holdfast
        client = holdfast.Client(sys.argv[1], watchdog=1000)
        held = client.lock("x", thread_local=False)
        held.acquire()
        gevent.wait()  # Nothing of ours keeps a hub running.
        threads = gevent.threadpool.ThreadPool(3)
        def pairs(name):
            greenlets = [gevent.spawn(one, name) for _ in range(3)]
            return len(gevent.joinall(greenlets, raise_error=True))
        def one(name):
            for _ in range(20):
                with client.lock(name): pass
        jobs = [threads.spawn(pairs, f"n{n % 2}") for n in range(3)] + [gevent.spawn(pairs, "n0")]
        assert [j.get() for j in jobs] == [3] * 4
        def wait():
            with client.lock("x"): pass
        waiters = [gevent.spawn(wait) for _ in range(3)] + [threads.spawn(wait)]
        while client.stats()["waits"] < 4: gevent.sleep(0.001)
        for _ in range(3):
            pid = gevent.os.fork() if sys.argv[2] == "select" else os.fork()
            if pid == 0:
                with client.lock("child"): pass
                os._exit(1 if client.lock("x").acquire(blocking_timeout=0.01) else 0)
            assert os.waitpid(pid, 0)[1] == 0
        held.release()
        for waiter in waiters: waiter.get()
        held.acquire()
        waiters = [gevent.spawn(wait) for _ in range(3)] + [threads.spawn(wait)]
        while client.stats()["waits"] < 4: gevent.sleep(0.001)
        client.close()
        for waiter in waiters:
            try:
                waiter.get()
                sys.exit("not closed")
            except holdfast.ClosedError:
                pass
        threads.kill()
        print("well", flush=True)
        os._exit(0)
    """, server.url, patch)
    assert "well\n" in out


@needs["gevent"]
@pytest.mark.parametrize("patch", ["all", "select"])
def test_gevent_waits_for_messages(server, tmp_path, patch):
    """Of the main greenlet alone: they come all the same, and close() ends the waits."""
    out = run(tmp_path, """
        from gevent import monkey
        import sys
        getattr(monkey, "patch_" + sys.argv[2])()
        import subprocess, textwrap
        import gevent
        import holdfast
        client = holdfast.Client(sys.argv[1], watchdog=float(sys.argv[3]))
        listener = client.listen("x")
        assert listener.get().kind is holdfast.NotificationKind.SUBSCRIBED
        lock = client.lock("x")
        program = "import holdfast, sys; holdfast.Client(sys.argv[1]).lock('x').break_lock()"
        lock.acquire()
        popen = gevent.subprocess.Popen if sys.argv[2] == "all" else subprocess.Popen
        breaker = popen([sys.executable, "-c", program, sys.argv[1]])
        assert lock.lost.wait()
        while listener.get().kind is not holdfast.NotificationKind.BROKEN: pass
        breaker.wait()
        gevent.wait()
        held = client.lock("y", thread_local=False)
        held.acquire()
        def ends(wait):
            try:
                while True: wait()
            except holdfast.ClosedError:
                return "closed"
        waits = (listener.get, lambda: list(listener), held.lost.wait, client.listen("z").get)
        waiters = [gevent.spawn(ends, wait) for wait in waits]
        gevent.sleep(0.01)
        client.close()
        ended = [waiter.get() for waiter in waiters]
        gevent.wait()
        listener.close()
        assert listener.get() is None
        print(*ended)
    """, server.url, patch, str(WATCHDOG))
    assert out == "closed closed closed closed\n"


@needs["gevent"]
def test_gevent_client_that_a_handler_could_not_close(server, tmp_path):
    """In the wait of a client made before gevent patched: the other one's hub still watches it."""
    out = run(tmp_path, """
        import sys, threading
        import holdfast
        plain = holdfast.Client(sys.argv[1])
        from gevent import monkey
        monkey.patch_select()
        import os, signal, time
        import gevent
        other, client = holdfast.Client(sys.argv[1]), holdfast.Client(sys.argv[1])
        theirs = [other.lock(name, thread_local=False) for name in "xy"]
        for lock in theirs: lock.acquire()
        def wait():
            with client.lock("y"): pass
        waiter = gevent.spawn(wait)
        while client.stats()["waits"] == 0: gevent.sleep(0.001)
        errors = []
        def close(*_):
            try: client.close()
            except holdfast.DeadlockError as error: errors.append(error)
        signal.signal(signal.SIGUSR1, close)
        def disturb():
            while plain.stats()["waits"] == 0: time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGUSR1)
            while not errors: time.sleep(0.001)
            theirs[0].release()
        thread = threading.Thread(target=disturb)
        thread.start()
        with plain.lock("x"): pass
        thread.join()
        theirs[1].release()
        waiter.get()
        client.close()
        assert client.closed
        gevent.wait()
        other.close()
        plain.close()
        print("well")
    """, server.url)
    assert out == "well\n"


@needs["gevent"]
def test_gevent_signal_anywhere_lets_the_hub_end(server, tmp_path):
    """One that raises in each line of a wait's own code."""
    out = run(tmp_path, """
        from gevent import monkey
        monkey.patch_all()
        import sys
        import gevent
        import holdfast
        client = holdfast.Client(sys.argv[1], watchdog=1000)
        semaphore = client.semaphore("s")
        semaphore.try_set(1)
        class Bang(Exception): pass
        lines = 0
        def trace(frame, event, _):
            global lines
            if not frame.f_code.co_filename.endswith("_gevent.py"): return None
            lines += 1
            if lines == number: raise Bang
            return trace
        hits, number = 0, 0
        while hits == number:
            number, lines = number + 1, 0
            sys.settrace(trace)
            try:
                semaphore.available()
            except Bang:
                hits += 1
            sys.settrace(None)
            for watch in client._pump._watches.values():
                assert not watch._watcher.ref and not watch.waiting, number
        assert hits > 5
        client.close()
        print("well")
    """, server.url, quiet=False)
    assert out == "well\n"


@needs["gevent"]
def test_gevent_signal_in_the_hub(server, tmp_path):
    """One that raises while completions are reported: no waiter is forgotten."""
    out = run(tmp_path, """
        from gevent import monkey
        monkey.patch_all()
        import random, signal, sys
        import gevent
        import holdfast
        client = holdfast.Client(sys.argv[1], watchdog=1000)
        random.seed(1)
        def pairs(name):
            while True:
                with client.lock(name): done[0] += 1
        def stop(*_): raise KeyboardInterrupt
        def finish(greenlet):
            while True:
                try:
                    return greenlet.join()
                except KeyboardInterrupt:
                    pass
        signal.signal(signal.SIGALRM, stop)
        done = [0]
        workers = [gevent.spawn(pairs, f"n{n % 4}") for n in range(12)]
        hits = 0
        while hits < int(sys.argv[2]):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.random() * 0.003 + 1e-6)
                while True: gevent.sleep(0.01)
            except KeyboardInterrupt:
                hits += 1
        # It may have ended a greenlet. The others still get their locks.
        before = done[0]
        for w in [w for w in workers if w.dead]: workers.remove(w)
        workers += [gevent.spawn(pairs, f"n{n % 4}") for n in range(4)]
        while done[0] < before + 50: gevent.sleep(0.01)
        gevent.killall(workers)
        while client.stats()["waits"] or client.stats()["holds"]: gevent.sleep(0.001)
        for n in range(4):
            while client.lock(f"n{n}").locked(): gevent.sleep(0.001)
        client.close()
        print("well")
    """, server.url, "5000" if SOAK else "50", quiet=False)
    assert out == "well\n"


# ---- The end of a process ----

ENDS = {
    "a held lock": "lock.acquire()",
    "a daemon thread that waits": """
lock.acquire()
threading.Thread(target=client.lock("x").acquire, daemon=True).start()
while client.stats()["waits"] == 0: time.sleep(0.001)  # A count has no event.
""",
    "daemon threads that lock": """
def work():
    while True:
        with client.lock("y"): pass
for _ in range(3): threading.Thread(target=work, daemon=True).start()
while client.stats()["acquired"] < 20: time.sleep(0.001)  # A count has no event.
""",
    "a cycle": "lock.acquire(); client.itself = lock; lock.itself = client; del lock, client",
    "sys.exit inside with": "with lock: sys.exit(0)",
    "a callback and a listener": """
l = client.lock("x", on_lost=print); l.acquire(); heard = client.listen("x"); heard.get()
""",
    "asyncio without aclose": """
import asyncio, holdfast.asyncio
async def main():
    c = holdfast.asyncio.Client(sys.argv[1])
    await c.lock("z").acquire()
    asyncio.ensure_future(c.lock("z").acquire())
    await asyncio.sleep(0.01)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.timeout(3600)
def test_end_of_a_process(server, tmp_path, end):
    """Held locks end with their leases; nothing crashes, hangs or complains."""
    program = "import sys, threading, time, warnings\nimport holdfast\n"
    program += "warnings.simplefilter('ignore', ResourceWarning)\n"
    program += "client = holdfast.Client(sys.argv[1])\nlock = client.lock('x')\n" + textwrap.dedent(ENDS[end])
    for _ in range(100 if SOAK else 2):
        server.redis.flushall()
        run(tmp_path, program, server.url)


# ---- Interpreters ----


INTERPRETERS = """
    import pathlib, sys, threading
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    own, code = sys.argv[1] == "own", pathlib.Path(sys.argv[2]).read_text()
    def create():
        if sys.version_info >= (3, 13):
            return interpreters.create("isolated" if own else "legacy")
        return interpreters.create(isolated=own)
    def work():
        made = create()
        try:
            if (error := interpreters.run_string(made, code)) is not None: print(error)
        except Exception as error:
            print(error)
        if sys.argv[3] == "here":
            interpreters.destroy(made)
        else:
            ids.append(made)
    ids = []
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    for i in ids: interpreters.destroy(i)
    print("ended")
"""


@pytest.mark.skipif(sys.version_info[:2] != (3, 12), reason="Python 3.12 has a GIL for each that does not end well")
def test_interpreters_with_a_gil_of_their_own_are_refused(tmp_path):
    """Their end hangs there, also without holdfast: threading waits for a lock that nobody has any more."""
    (tmp_path / "inside").write_text(f"import sys; sys.path[:] = {sys.path!r}\nimport holdfast")
    out = run(tmp_path, INTERPRETERS, "own", str(tmp_path / "inside"), "here")
    assert out.count("an interpreter with a GIL of its own needs Python 3.13") == 3
    assert out.endswith("ended\n")


@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("gil", ["shared", "own"])
def test_interpreters(server, tmp_path, gil, where):
    """An exact counter of three of them, as under mod_wsgi. They hear of losses, and from 3.13 end with an open client;
    in the thread that ran them, or in another one."""
    if gil == "own" and sys.version_info < (3, 13):
        pytest.skip("a GIL of its own needs Python 3.13")
    if where == "elsewhere" and sys.version_info < (3, 13):
        pytest.skip("until Python 3.12 another thread cannot end an interpreter that has had one, with any package")
    inside = """
        import pathlib, sys, time
        sys.path[:] = {path!r}
        import holdfast
        counter = pathlib.Path({counter!r})
        with holdfast.Client({url!r}) as client:
            for _ in range(20):
                with client.lock("x"):
                    counter.write_text(str(int(counter.read_text()) + 1))
        client, events = holdfast.Client({url!r}), []
        with client.lock("y"):
            lost = client.lock("lost", on_lost=events.append)
            lost.acquire()
            assert client.lock("lost").break_lock()
            while not [e for e in events if e.kind == "lost"]: time.sleep(0.001)  # The callback only appends.
        if sys.version_info < (3, 13):
            client.close()  # Or its thread keeps the interpreter from being ended.
    """
    counter = tmp_path / "counter"
    counter.write_text("0")
    (tmp_path / "inside").write_text(
        textwrap.dedent(inside).format(path=sys.path, counter=str(counter), url=server.url)
    )
    out = run(tmp_path, INTERPRETERS, gil, str(tmp_path / "inside"), where)
    assert out == "ended\n"
    assert counter.read_text() == "60"
