"""Distributed locks over the Redis, Valkey or ZooKeeper you already run.

with holdfast.Client("redis://localhost") as client:
    with client.lock("nightly-report"):
        ...  # only one process gets here

For asyncio see holdfast.asyncio; for redis-py's `lock_class`, holdfast.redis.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import queue
import select
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Literal, TypeVar

try:
    from . import _core
except ImportError as _error:
    if "subinterpreters" not in str(_error):
        raise
    raise ImportError(
        "holdfast: an interpreter with a GIL of its own needs Python 3.13: in 3.12 its end can hang"
    ) from _error
from . import _gevent
from ._common import (
    BaseClient,
    LossEvent,
    Name,
    Notification,
    NotificationKind,
    Options,
    _clients,
    acks_of,
    endless,
    kind_of,
    lease_ms,
    ms,
    restart_mode,
    seconds_left,
    values_of,
)
from ._errors import (
    ArgumentError,
    ClosedError,
    ConnectionError,
    DeadlockError,
    ForkedError,
    HoldfastError,
    LockError,
    LockLostError,
    LockNotAcquiredError,
    LockNotOwnedError,
    NotSupportedError,
    PermissionError,
    UnknownOutcomeError,
    WrongTypeError,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self, Unpack

__all__ = [
    "ArgumentError",
    "Client",
    "ClosedError",
    "ConnectionError",
    "DeadlockError",
    "ForkedError",
    "HoldfastError",
    "Latch",
    "Listener",
    "Lock",
    "LockError",
    "LockLostError",
    "LockNotAcquiredError",
    "LockNotOwnedError",
    "LossEvent",
    "Lost",
    "NotSupportedError",
    "Notification",
    "NotificationKind",
    "Options",
    "PermissionError",
    "Permits",
    "RLock",
    "RWLock",
    "Semaphore",
    "UnknownOutcomeError",
    "WrongTypeError",
    "__version__",
    "all_of",
]
__version__ = _core.version()

_F = TypeVar("_F", bound="Callable[..., Any]")
_FOREVER = -1
# Of the main thread's waits for Python's own locks: a signal that comes just before one is seen at its end only.
_SLICE = 0.05


def _handles_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


_is_ending = False


def _end() -> None:
    """Before an interpreter that is not the main one joins its threads."""
    global _is_ending
    _is_ending = True
    for client in list(_clients):
        client._core.wake()


# Only the main one ends well with daemon threads. This is how concurrent.futures ends its own.
_is_main = _core.is_main_interpreter()
if not _is_main:
    threading._register_atexit(_end)  # type: ignore[attr-defined]


def _wait_readable(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll()


def _read_notes(
    client: weakref.ref[Client], core: _core.Client, generation: int, wait_readable: Callable[[int], None]
) -> None:
    """The body of a client's thread: it ends with the client."""
    fd = core.notes_fd()
    while True:
        wait_readable(fd)
        alive = client()
        if alive is None or alive.closed or core.generation != generation or _is_ending:
            return
        alive._take_notes()
        del alive


def _close(core: _core.Client, pump: _gevent.Pump | None) -> None:
    if pump is not None:
        pump.close()
    else:
        core.close()
    core.wake()


def _close_forgotten(core: _core.Client, pump: _gevent.Pump | None) -> None:
    with contextlib.suppress(DeadlockError):  # It was collected in a handler, in a wait: its own end closes it.
        if not core.closed:
            _close(core, pump)


class Client(BaseClient):
    """Connections to one server, or to several that act as one. Thread-safe; one per process is enough.
    It may be made before a fork: each child uses it with connections and an id of its own.

    Without a URL: HOLDFAST_URL, or if that is unset REDIS_URL, from the environment.
    """

    def __init__(self, url: str | None = None, **options: Unpack[Options]) -> None:
        self._manual = _gevent.is_patched()
        super().__init__(url, options)
        self._pump = _gevent.Pump(self._core) if self._manual else None
        if self._pump is not None:
            self._core.set_hook(self._pump.wait)
        self._reader: threading.Thread | _gevent.Reader | None = None
        self._finalizer = weakref.finalize(self, _close_forgotten, self._core, self._pump)
        self._finalizer.atexit = False

    # ---- Making locks and others ----

    def lock(self, name: Name, timeout: float | None = None, **options: Any) -> Lock:
        """A lock that is not re-entrant: each acquire is an owner of its own. For the options see Lock."""
        return Lock(self, name, timeout, **options)

    def rlock(self, name: Name, timeout: float | None = None, **options: Any) -> RLock:
        """A re-entrant lock: who holds is the thread."""
        return RLock(self, name, timeout, **options)

    def rwlock(self, name: Name) -> RWLock:
        """Many readers, or one writer."""
        return RWLock(self, name)

    def group(self, name: Name, values: Iterable[Name], timeout: float | None = None, **options: Any) -> Lock:
        """Some values of a group as one lock: all or none, in one step. Other values stay free."""
        return Lock(self, name, timeout, _values=values_of(values), **options)

    def semaphore(self, name: Name) -> Semaphore:
        return Semaphore(self, name)

    def permits(self, name: Name) -> Permits:
        return Permits(self, name)

    def latch(self, name: Name) -> Latch:
        return Latch(self, name)

    def adopt(self, name: Name, handle: str, timeout: float | None = None, **options: Any) -> Lock:
        """Makes a hold that another client acquired this client's own: `handle` is its Lock.handle."""
        lock = Lock(self, name, timeout, **options)
        lock._take(lock._raw.adopt(handle, lease_ms(timeout)))
        return lock

    def listen(self, name: Name, callback: Callable[[Notification], None] | None = None) -> Listener:
        """Receives the messages that wake waiters of a name. Iterate over it, or give a callback."""
        return Listener(self, name, callback)

    def listen_breaks(self, callback: Callable[[Notification], None] | None = None) -> Listener:
        """The same for breaks, and losses that clients announce, of all names."""
        return Listener(self, None, callback)

    # ---- About the server and the fleet ----

    def ping(self) -> None:
        """Raises if the server is not there, refuses us, or is too old."""
        self._core.ping()

    def survey(self, pattern: Name | None = None, limit: float = 10.0, *, times: bool = False) -> dict[str, Any]:
        """Who holds what, who waits, and who is stuck: what `holdfast ls --json` prints."""
        return _survey(self._core.survey(*_survey_args(pattern, limit, times)))

    # ---- Its end ----

    def close(self) -> None:
        """Waiting calls raise ClosedError. Holds are not released: they end with their leases."""
        _close(self._core, self._pump)
        self._end_waits()
        reader = self._reader
        if not _is_main and isinstance(reader, threading.Thread) and reader is not threading.current_thread():
            reader.join()  # Until 3.12 nobody can end an interpreter in which a thread runs.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- Its thread ----

    def _read(self) -> None:
        """Starts the thread that logs, and runs callbacks, unless it runs."""
        if self._reader is not None and self._reader.is_alive():
            return
        args = (weakref.ref(self), self._core, self._core.generation)
        if self._manual and _gevent.is_patched("threading"):
            self._reader = _gevent.Reader(_read_notes, (*args, _gevent.wait_readable))
            return
        try:
            self._reader = thread = threading.Thread(
                target=_read_notes, args=(*args, _wait_readable), name="holdfast", daemon=_is_main
            )
            thread.start()
        except RuntimeError:  # The interpreter ends.
            self._reader = None
            self._take_notes()

    def _listen(self, receiver: Lock | Permits | Listener) -> None:
        """It gets what is reported from now on."""
        self._watched[receiver._raw.serial] = receiver
        self._read()
        if self._pump is not None:
            self._pump.listen()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._reader = None
        if self._watched:
            self._read()


def _survey_args(pattern: Name | None, limit: float, times: bool) -> tuple[str | None, int, int]:
    glob = pattern.decode() if isinstance(pattern, bytes) else pattern
    return glob, max(1, int(limit * 1000)), 0xF if times else 0x7


def _survey(text: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(text)
    return made


class Lost:
    """Set when the hold of the calling thread was lost; like threading.Event, but read-only."""

    def __init__(self, lock: Lock) -> None:
        self._lock = weakref.ref(lock)
        self._changed: Any = _gevent.Condition() if lock.client._manual else threading.Condition()
        self._reasons: dict[int, str] = {}

    def is_set(self) -> bool:
        lock = self._lock()
        owner = None if lock is None else lock._owner
        if lock is None or owner is None:
            return False
        return owner in self._reasons or lock._raw.remaining_ms(owner) == 0

    __bool__ = is_set

    @property
    def reason(self) -> str:
        """Why, once it is set; else ""."""
        lock = self._lock()
        owner = None if lock is None else lock._owner
        return self._reasons.get(owner, "") if owner is not None else ""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the hold is lost."""
        lock = self._lock()
        if lock is None:
            return False
        lock._watch()
        end = None if timeout is None else time.monotonic() + timeout
        longest = _SLICE if _handles_signals() else 3600.0
        with self._changed:
            while not self.is_set():
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                # Without a message a hold can still reach its deadline.
                deadline = min(max(lock.remaining, 0.01), longest)
                self._changed.wait(deadline if left is None else min(left, deadline))
        return True

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _set(self, owner: int, reason: str) -> None:
        with self._changed:
            if len(self._reasons) > 100:
                self._reasons.clear()
            self._reasons[owner] = reason
            self._changed.notify_all()


class Lock(_core.Guard):
    """A lock. Each acquire is an owner of its own: acquiring it again waits for itself.

    timeout           the lease in seconds; None: renewed by a watchdog for as long as it is held
    blocking          whether acquire() waits
    blocking_timeout  for how long; None: for ever
    thread_local      False: a thread may release what another has acquired
    raise_on_release_error
                      False: `with` does not raise LockError at its end, but logs it
    kind              "plain", "fair", "spin", "fenced", "string", "cohort", or some of them joined by "+"
    no_expiry         True, of kind "string": without a timeout it has no end, as in redis-py, and no watchdog. It
                      stays locked if its process dies
    acks              how many replicas must confirm: a number, "all", "report" or "off"
    on_lost           called with a LossEvent, on a thread of the client
    spin, cohort      (first, factor, maximum) in seconds; (passes, seconds)
    """

    _reentrant = False
    _sleep_first = False

    def __init__(
        self,
        client: Client,
        name: Name,
        timeout: float | None = None,
        *,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        kind: str = "plain",
        acks: int | str | None = None,
        no_expiry: bool = False,
        on_lost: Callable[[LossEvent], None] | None = None,
        spin: tuple[float, float, float] | None = None,
        cohort: tuple[int, float] | None = None,
        _values: list[Name] | None = None,
        _members: list[_core.Lock] | None = None,
    ) -> None:
        base, flags = kind_of(kind)
        raw = _core.Lock(
            client._core,
            name,
            base,
            flags,
            _values,
            _members,
            None if spin is None else (ms(spin[0], 0), int(spin[1]), ms(spin[2], 0)),
            None if cohort is None else (cohort[0], ms(cohort[1], 0)),
        )
        super().__init__(
            raw,
            endless(timeout, no_expiry, self._lease_of(timeout)),
            ms(blocking_timeout, _FOREVER),
            blocking,
            self._reentrant,
            thread_local,
            raise_on_release_error,
            acks_of(acks),
            None,
            self._sleep_first,
        )
        self.client = client
        self.name = name
        self.timeout = timeout
        self.kind = kind
        self.no_expiry = no_expiry
        self._restart = restart_mode(kind, _values is not None or _members is not None)
        self.lost = Lost(self)
        self._on_lost = on_lost
        client._read()
        if on_lost is not None:
            self._watch()

    def __repr__(self) -> str:
        state = "held" if self._owner is not None else "not held"
        return f"<{type(self).__module__}.{type(self).__qualname__} {text_of(self.name)!r} ({state})>"

    def _lease_of(self, timeout: float | None) -> int:
        return lease_ms(timeout)

    # ---- While it is held ----

    def _held(self, what: str) -> int:
        owner = self._owner
        if owner is None:
            raise self._not_owned(f"cannot {what} a lock that is not held here")
        return owner

    def _not_owned(self, text: str) -> Exception:
        return self._error(LockNotOwnedError(text, code="ENOTOWNER", lock_name=text_of(self.name)))

    def _error(self, error: HoldfastError) -> Exception:
        """For holdfast.redis, whose errors are also redis-py's."""
        return error

    def _leased(self, what: str) -> int:
        owner = self._held(what)
        if self.timeout is None:
            why = "it has no end" if self.no_expiry else "the watchdog renews it"
            text = f"cannot {what} a lock without a timeout: {why}"
            raise self._error(LockError(text, lock_name=text_of(self.name)))
        return owner

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds to what is left of the timeout; or, with `replace_ttl`, sets it."""
        mode = _core.EXTEND_SET if replace_ttl else _core.EXTEND_ADD
        lease = self._lease_of(additional_time) if replace_ttl else ms(additional_time, 0)
        self._raw.extend(self._leased("extend"), lease, mode)
        return True

    def reacquire(self) -> Literal[True]:
        """Starts the timeout anew."""
        owner = self._leased("reacquire")
        try:
            self._raw.extend(owner, self._lease_ms, self._restart)
        except NotSupportedError:  # on a quorum, and by ZooKeeper
            self._restart = _core.EXTEND_RAISE
            self._raw.extend(owner, self._lease_ms, self._restart)
        return True

    @property
    def remaining(self) -> float:
        """For how many seconds the hold can be trusted, from memory; 0: not held, or lost."""
        owner = self._owner
        return 0.0 if owner is None else seconds_left(self._raw.remaining_ms(owner))

    def ensure_held(self, at_least: float = 0.0) -> None:
        """Raises LockLostError unless the hold can be trusted for longer than `at_least` seconds."""
        self._held("rely on")
        if self.remaining <= at_least:
            text = self.lost.reason or "the hold has ended, or ends too soon"
            raise self._error(LockLostError(text, code="ELOST", lock_name=text_of(self.name)))

    @property
    def fence_token(self) -> int:
        """Of a fenced lock: larger than every token before it."""
        return self._raw.token(self._held("ask for the token of"))

    @property
    def handle(self) -> str:
        """The hold's name, for Client.adopt() of another client."""
        return self._raw.handle(self._held("ask for the handle of"))

    # ---- Whoever holds it ----

    def owned(self) -> bool:
        """Whether the server says that this thread holds it."""
        owner = self._owner
        return owner is not None and bool(self._raw.is_mine(owner))

    def locked(self) -> bool:
        """Whether the server says that anybody holds it."""
        return bool(self._raw.is_locked())

    def ttl(self) -> float | None:
        """Seconds until it frees itself; None: it is free, or has no end."""
        left = self._raw.ttl_ms()
        return None if left < 0 else left / 1000

    def break_lock(self) -> bool:
        """Ends every hold, whoever has it. Returns whether there was one."""
        return bool(self._raw.break_())

    def inspect(self) -> dict[str, Any]:
        """Holders and waiters, as the server sees them."""
        made: dict[str, Any] = json.loads(self._raw.inspect())
        return made

    def server_info(self) -> dict[str, str | None]:
        """What the server of this name says about itself, as for `holdfast doctor`. Use an unused name."""
        return {name: value for name, value, why in self._raw.server_info()}

    # ---- Loss ----

    def _watch(self) -> None:
        self.client._listen(self)
        self._raw.watch()

    def _loss_event(self, owner: int, event: LossEvent) -> None:
        if event.kind == "lost":
            self.lost._set(owner, event.reason)
        if self._on_lost is not None:
            self._on_lost(event)

    def _client_closed(self) -> None:
        self.lost._wake()

    # ---- As a decorator ----

    def __call__(self, function: _F) -> _F:
        """Holds the lock while the function runs."""
        if inspect.iscoroutinefunction(function):
            raise TypeError("an async function needs a lock of holdfast.asyncio")

        @functools.wraps(function)
        def locked(*args: Any, **kw: Any) -> Any:
            with self:
                return function(*args, **kw)

        return locked  # type: ignore[return-value]


class RLock(Lock):
    """A re-entrant lock: who holds is the thread, with gevent the greenlet. It is free after as many
    releases as acquires."""

    _reentrant = True


class RWLock:
    """A read/write lock. Its sides are re-entrant: a writer may also read."""

    def __init__(self, client: Client, name: Name) -> None:
        self.client = client
        self.name = name

    def read(self, timeout: float | None = None, **options: Any) -> RLock:
        return RLock(self.client, self.name, timeout, kind="read", **options)

    def write(self, timeout: float | None = None, **options: Any) -> RLock:
        return RLock(self.client, self.name, timeout, kind="write", **options)


def all_of(*locks: Lock, timeout: float | None = None, **options: Any) -> Lock:
    """Many locks as one: all or none, in any order, without a deadlock."""
    if not locks:
        raise ArgumentError("all_of() needs at least one lock")
    name = b" ".join(x.name.encode() if isinstance(x.name, str) else x.name for x in locks)
    return Lock(locks[0].client, name, timeout, _members=[x._raw for x in locks], **options)


class _Counter:
    def __init__(self, client: Client, name: Name) -> None:
        self.client = client
        self.name = name
        client._read()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} {text_of(self.name)!r}>"


class Semaphore(_core.Scope, _Counter):
    """Permits without owners: those of a dead process are gone for good. If that matters, use Permits.
    `with` takes one, and puts it back."""

    def __init__(self, client: Client, name: Name) -> None:
        _Counter.__init__(self, client, name)
        self._raw = _core.Semaphore(client._core, name)
        super().__init__(self._raw, 1, _FOREVER, 0)

    def try_set(self, permits: int, ttl: float | None = None) -> bool:
        """Sets the number, if there is no such semaphore yet; for `ttl` seconds, or for ever."""
        return bool(self._raw.try_set(permits, ms(ttl, 0)))

    def acquire(self, permits: int = 1, blocking: bool = True, timeout: float | None = None) -> bool:
        return bool(self._raw.acquire(permits, ms(timeout, _FOREVER) if blocking else 0))

    def release(self, permits: int = 1) -> None:
        self._raw.release(permits)

    def release_if_exists(self, permits: int = 1) -> bool:
        return bool(self._raw.release_if_exists(permits))

    def add(self, delta: int) -> None:
        """Changes the number of permits; it may become negative."""
        self._raw.add(delta)

    def drain(self) -> int:
        """Takes all that are free, and returns how many."""
        return int(self._raw.drain())

    def available(self) -> int:
        return int(self._raw.available())

    def delete(self) -> bool:
        return bool(self._raw.delete())

    def taken(self, permits: int = 1, timeout: float | None = None) -> _core.Scope:
        """For `with`: takes some, and puts them back."""
        return _core.Scope(self._raw, permits, ms(timeout, _FOREVER), 0)


class Permits(_Counter):
    """Permits with an id and a lease each: those of a dead process come back."""

    def __init__(
        self, client: Client, name: Name, on_lost: Callable[[LossEvent], None] | None = None
    ) -> None:
        super().__init__(client, name)
        self._raw = _core.Permits(client._core, name)
        self._on_lost = on_lost
        if on_lost is not None:
            client._listen(self)
            self._raw.watch()

    def try_set(self, number: int) -> bool:
        """Sets the number, taken ones included, if there are no such permits yet."""
        return bool(self._raw.try_set(number))

    def set(self, number: int) -> None:
        self._raw.set(number)

    def add(self, delta: int) -> None:
        self._raw.add(delta)

    def acquire(
        self,
        count: int = 1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        timeout: float | None = None,
        *,
        no_expiry: bool = False,
    ) -> list[str] | None:
        """Takes some, all or none, and returns their ids; None if the wait was over."""
        lease = _FOREVER if no_expiry else lease_ms(timeout)
        ids: list[str] | None = self._raw.acquire(count, ms(blocking_timeout, _FOREVER) if blocking else 0, lease)
        return ids

    def taken(self, count: int = 1, blocking_timeout: float | None = None, timeout: float | None = None) -> _core.Scope:
        """For `with`: takes some, gives their ids, and puts them back. Safe with signals that raise."""
        return _core.Scope(self._raw, count, ms(blocking_timeout, _FOREVER), lease_ms(timeout))

    def release(self, *ids: str) -> None:
        """Gives some back, all or none."""
        self._raw.release(*ids)

    def extend(self, permit_id: str, timeout: float | None) -> None:
        """Gives it a new lease from now; None: one without an end."""
        self._raw.extend(permit_id, ms(timeout, _FOREVER))

    def lease(self, permit_id: str) -> float | None:
        """What the server says is left of its lease; None: no end."""
        left = self._raw.lease_ms(permit_id)
        return None if left < 0 else left / 1000

    def remaining(self, permit_id: str) -> float:
        """For how long it can be trusted, from memory."""
        return self._raw.remaining_ms(permit_id) / 1000

    def available(self) -> int:
        return int(self._raw.available())

    def total(self) -> int:
        return int(self._raw.total())

    def count_taken(self) -> int:
        return int(self._raw.taken())

    def expire(self, ttl: float) -> bool:
        """Lets all of it expire. Returns whether it existed."""
        return bool(self._raw.expire(ms(ttl, 0)))

    def delete(self) -> bool:
        return bool(self._raw.delete())

    def _loss_event(self, owner: int, event: LossEvent) -> None:
        if self._on_lost is not None:
            self._on_lost(event)

    def _client_closed(self) -> None:
        pass


class Latch(_Counter):
    """A number that opens the latch at zero. A latch that does not exist is open."""

    def __init__(self, client: Client, name: Name) -> None:
        super().__init__(client, name)
        self._raw = _core.Latch(client._core, name)

    def try_set(self, count: int) -> bool:
        """Closes an open latch. Returns whether it was open."""
        return bool(self._raw.try_set(count))

    def count_down(self) -> None:
        self._raw.count_down()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is open. Returns whether it is."""
        return bool(self._raw.wait(ms(timeout, _FOREVER)))

    def count(self) -> int:
        return int(self._raw.count())

    def delete(self) -> bool:
        """Ends all waits."""
        return bool(self._raw.delete())


class Listener:
    """Notification of a name: an iterator, unless they go to a callback (on a thread of the client)."""

    def __init__(self, client: Client, name: Name | None, callback: Callable[[Notification], None] | None) -> None:
        self.client = client
        self.name = name
        self._callback = callback
        self._is_closed = False
        self._queue: Any = _gevent.Queue() if client._manual else queue.SimpleQueue()
        self._raw = _core.Listener(client._core, name)
        client._listen(self)

    def _notification(self, notification: Notification) -> None:
        if self._callback is not None:
            self._callback(notification)
        else:
            self._queue.put(notification)

    def _wake(self) -> None:
        self._queue.put(None)

    _client_closed = _wake

    def get(self, timeout: float | None = None) -> Notification | None:
        """The next; None if there was none in time, or the listener is closed."""
        end = None if timeout is None else time.monotonic() + timeout
        slice_ = _SLICE if _handles_signals() and not self.client._manual else math.inf
        while not self._is_closed:
            if self.client.closed:
                raise ClosedError("the client is closed", code="ECLOSED")
            self.client._listen(self)  # Of gevent's hubs, also this thread's.
            left = math.inf if end is None else max(0.0, end - time.monotonic())
            wait = min(left, slice_)
            try:
                notification: Notification | None = self._queue.get(timeout=None if wait == math.inf else wait)
            except queue.Empty:
                if wait == left:
                    return None
                continue
            if notification is not None:
                return notification
            self._wake()  # The next thread that waits.
        return None

    def __iter__(self) -> Iterator[Notification]:
        while (notification := self.get()) is not None:
            yield notification

    def close(self) -> None:
        self._is_closed = True
        self._raw.close()
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


