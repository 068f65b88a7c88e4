"""Where gevent has patched the standard library, a wait lets other greenlets run.

The client is one of manual dispatch then, as for asyncio. Each thread's hub that has waited watches the client's
descriptor. Its callback wakes the greenlets whose operations have completed, of other threads, too.
"""

from __future__ import annotations

import collections
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_READ = 1


def is_patched(module: str = "select") -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched(module))


def wait_readable(fd: int) -> None:
    """Does not keep the hub running."""
    import gevent  # type: ignore[import-untyped,unused-ignore]

    hub = gevent.get_hub()
    watcher = hub.loop.io(fd, _READ, ref=False)
    try:
        hub.wait(watcher)
    finally:
        watcher.close()


class Reader:
    """A greenlet in place of a thread: one that `threading` knows would not end well in a child process."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        import gevent  # type: ignore[import-untyped,unused-ignore]

        self._greenlet = gevent.spawn(target, *args)

    def is_alive(self) -> bool:
        return not self._greenlet.dead


class _Watch:
    """What one hub watches. It keeps the hub running only while greenlets wait."""

    def __init__(self, hub: Any, core: _core.Client) -> None:
        self.hub = hub
        self.generation = core.generation
        self.waiting: set[_core.Op] = set()
        self._stopped = False
        self._core = core
        self._watcher = hub.loop.io(core.dispatch_fd(), _READ, ref=False)

    def begin(self, op: _core.Op) -> None:
        """Until the operation is no longer waited for; _core_op.c ends it."""
        op.watch = (self.waiting, self._watcher)
        self.waiting.add(op)
        self.start()
        if not self._stopped:
            self._watcher.ref = True

    def start(self) -> None:
        if not self._stopped and not self._watcher.active:  # After close() the descriptor may be another's.
            # A function of C: a handler of a signal cannot raise in it, which would end the watch.
            self._watcher.start(self._core.pump)

    def stop(self) -> None:
        self._stopped = True
        self._watcher.stop()
        self._watcher.close()


class Pump:
    def __init__(self, core: _core.Client) -> None:
        self._core = core
        self._watches: dict[int, _Watch] = {}
        self._changing = threading.Lock()

    def _watch(self) -> _Watch:
        import gevent  # type: ignore[import-untyped,unused-ignore]

        hub = gevent.get_hub()
        watch = self._watches.get(id(hub))
        if watch is not None and watch.generation != self._core.generation:
            watch.stop()  # It was the parent's descriptor.
            watch = None
        if watch is None:
            watch = _Watch(hub, self._core)
            with self._changing:
                live = {i: w for i, w in self._watches.items() if w.hub.loop is not None}
                self._watches = live | {id(hub): watch}
        return watch

    def listen(self) -> None:
        """This hub is to pass on messages, also while no operation is waited for."""
        self._watch().start()

    def wait(self, op: _core.Op) -> None:
        from gevent.event import Event  # type: ignore[import-untyped,unused-ignore]

        watch = self._watch()
        op.tag = event = Event()
        watch.begin(op)
        if not op.finished:  # Another thread may have dispatched it before it had a tag.
            event.wait()

    def close(self) -> None:
        """Closes the client, which ends the waits. Only then may a hub stop its watch: that of another thread has
        perhaps nothing else that keeps it running, and a close that is refused needs all of them."""
        import gevent  # type: ignore[import-untyped,unused-ignore]

        hub = gevent.get_hub()
        self._core.close()
        with self._changing:
            watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            if watch.hub is hub:
                watch.stop()
            elif watch.hub.loop is not None:
                watch.hub.loop.run_callback_threadsafe(watch.stop)


_LONG = 3600.0


class Condition:
    """As threading.Condition, for greenlets also where `threading` is not patched: it may be notified by a thread, and
    by the handler of a signal."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: set[Any] = set()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """May end early. Its timer keeps the hub running, which otherwise has perhaps nothing to wait for."""
        from gevent.event import Event  # type: ignore[import-untyped,unused-ignore]

        event = Event()
        self._waiting.add(event)
        self._lock.release()
        try:
            return bool(event.wait(_LONG if timeout is None else timeout))
        finally:
            self._lock.acquire()
            self._waiting.discard(event)

    def notify_all(self) -> None:
        for event in self._waiting:
            event.set()


class Queue:
    """As queue.SimpleQueue."""

    def __init__(self) -> None:
        self._items: collections.deque[Any] = collections.deque()
        self._changed = Condition()

    def put(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> Any:
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._items:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise queue.Empty
                self._changed.wait(left)
            return self._items.popleft()
