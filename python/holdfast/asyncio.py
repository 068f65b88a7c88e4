"""The same for asyncio: one client for each event loop; nothing blocks, nothing polls.

async with holdfast.asyncio.Client("redis://localhost") as client:
    async with client.lock("nightly-report"):
        ...  # cancelled if the lock is lost, which `async with` turns into LockLostError
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from . import _core, _survey, _survey_args
from ._common import (
    BaseClient,
    LossEvent,
    Name,
    Notification,
    Options,
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
    HoldfastError,
    LockError,
    LockLostError,
    LockNotAcquiredError,
    LockNotOwnedError,
    NotSupportedError,
    log_release,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from types import TracebackType
    from typing import Self, Unpack

__all__ = ["Client", "Latch", "Listener", "Lock", "Permits", "RLock", "RWLock", "Semaphore", "all_of"]

_F = TypeVar("_F", bound="Callable[..., Awaitable[Any]]")
_FOREVER = -1


class Client(BaseClient):
    """As holdfast.Client, for the event loop in which it is first used. When that loop has ended, it may
    be used in another one."""

    _manual = True

    def __init__(self, url: str | None = None, **options: Unpack[Options]) -> None:
        super().__init__(url, options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generation = -1
        self._fds: list[int] = []
        self._gone: asyncio.Future[None] | None = None
        self._waiting = 0  # operations that are awaited

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.closed:
            core.close()

    # ---- Making locks and others ----

    def lock(self, name: Name, timeout: float | None = None, **options: Any) -> Lock:
        """A lock that is not re-entrant: each acquire is an owner of its own. For the options see Lock."""
        return Lock(self, name, timeout, **options)

    def rlock(self, name: Name, timeout: float | None = None, **options: Any) -> RLock:
        """A re-entrant lock: who holds is the task."""
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

    async def adopt(self, name: Name, handle: str, timeout: float | None = None, **options: Any) -> Lock:
        """Makes a hold that another client acquired this client's own: `handle` is its Lock.handle."""
        lock = Lock(self, name, timeout, **options)
        owner = await self._ask(lock._raw.adopt, handle, lease_ms(timeout))
        lock._holds[lock._key()] = _Hold(lock._raw, owner)
        return lock

    def listen(self, name: Name, callback: Callable[[Notification], None] | None = None) -> Listener:
        """Receives the messages that wake waiters of a name: `async for notification in client.listen(name)`, or a
        callback, in the loop."""
        return Listener(self, name, callback)

    def listen_breaks(self, callback: Callable[[Notification], None] | None = None) -> Listener:
        """The same for breaks, and losses that clients announce, of all names."""
        return Listener(self, None, callback)

    # ---- About the server and the fleet ----

    async def ping(self) -> None:
        """Raises if the server is not there, refuses us, or is too old."""
        await self._ask(self._core.ping)

    async def survey(
        self, pattern: Name | None = None, limit: float = 10.0, *, times: bool = False
    ) -> dict[str, Any]:
        """Who holds what, who waits, and who is stuck: what `holdfast ls --json` prints."""
        return _survey(await self._ask(self._core.survey, *_survey_args(pattern, limit, times)))

    # ---- The loop ----

    def _attach(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._generation == self._core.generation:
            return loop
        if self._core.closed:
            raise ClosedError("the client is closed", code="ECLOSED")
        if self._loop is not None and self._generation == self._core.generation and not self._loop.is_closed():
            raise RuntimeError("this client belongs to another event loop, which has not ended: make one for each")
        self._loop, self._generation = loop, self._core.generation
        self._fds = [self._core.dispatch_fd(), self._core.notes_fd()]
        loop.add_reader(self._fds[0], self._dispatch)
        loop.add_reader(self._fds[1], self._take_notes)
        return loop

    def _detach(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            for fd in self._fds:
                self._loop.remove_reader(fd)
        self._fds = []

    def _dispatch(self) -> None:
        for op in self._core.dispatch():
            future: asyncio.Future[None] | None = op.tag
            if future is None or future.get_loop().is_closed():
                op.abandon()
            elif not future.done():
                future.set_result(None)
        if self._gone is not None and not self._core.closing and not self._gone.done():
            self._gone.set_result(None)

    async def _ask(self, verb: Callable[..., Any], *args: Any) -> Any:
        self._attach()
        return await self._run(verb(*args))

    async def _run(self, op: Any) -> Any:
        """Waits for an operation. Cancelled, one that waits leaves nothing behind; others go on."""
        op.tag = future = self._attach().create_future()
        alone = self._waiting == 0
        self._waiting += 1
        try:
            if alone:  # its command goes out at once; those of many are gathered in the loop's next turn
                self._dispatch()
                if future.done():  # other tasks have their turn all the same
                    await asyncio.sleep(0)
            await future
        except BaseException:
            op.abandon()
            raise
        finally:
            self._waiting -= 1
        return op.result()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._fds = []
        self._waiting = 0

    # ---- Its end ----

    async def aclose(self) -> None:
        """Waiting calls raise ClosedError. Holds are not released: they end with their leases."""
        if self._core.closed:
            return
        loop = self._attach()
        self._gone = loop.create_future()
        self._core.close_start()
        self._end_waits()
        try:
            await asyncio.shield(self._gone)
        finally:
            if self._gone.done():
                self._detach()
            else:
                self._gone.add_done_callback(lambda _: self._detach())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class _Hold:
    """What a task has acquired; forgotten when the task ends, or the lock is collected."""

    __slots__ = ("cancelled", "cancelling", "count", "owner", "raw", "task")

    def __init__(self, raw: _core.Lock, owner: int) -> None:
        self.raw = raw
        self.owner = owner
        self.count = 1
        self.task: asyncio.Task[Any] | None = None
        self.cancelling = 0  # how many cancellations of the task were under way when the body began
        self.cancelled = False

    def __del__(self) -> None:
        if self.count > 0 and not self.raw.client.closed and self.raw.remaining_ms(self.owner) > 0:
            self.raw.forget(self.owner)
            warnings.warn("a held lock was forgotten: it ends with its lease", ResourceWarning, stacklevel=2)


_owners: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()


class Lock:
    """A lock. Each acquire is an owner of its own: acquiring it again waits for itself.

    thread_local    True: a hold is its task's own; False: any task may release it
    cancel_on_loss  whether `async with` cancels its body when the lock is lost. It raises LockLostError
                    then; a cancellation from elsewhere stays one
    on_lost         called with a LossEvent, in the loop

    The others are as for holdfast.Lock.
    """

    _reentrant = False

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
        cancel_on_loss: bool = True,
        spin: tuple[float, float, float] | None = None,
        cohort: tuple[int, float] | None = None,
        _values: list[Name] | None = None,
        _members: list[_core.Lock] | None = None,
    ) -> None:
        base, flags = kind_of(kind)
        self._raw = _core.Lock(
            client._core,
            name,
            base,
            flags,
            _values,
            _members,
            None if spin is None else (ms(spin[0], 0), int(spin[1]), ms(spin[2], 0)),
            None if cohort is None else (cohort[0], ms(cohort[1], 0)),
        )
        self._lease_ms = endless(timeout, no_expiry, self._lease_of(timeout))
        self._acks = acks_of(acks)
        self._holds: weakref.WeakKeyDictionary[Any, _Hold] = weakref.WeakKeyDictionary()
        self._shared = not thread_local
        self._generation = client._core.generation
        self.client = client
        self.name = name
        self.timeout = timeout
        self.kind = kind
        self.no_expiry = no_expiry
        self._restart = restart_mode(kind, _values is not None or _members is not None)
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.raise_on_release_error = raise_on_release_error
        self.cancel_on_loss = cancel_on_loss
        self.lost = asyncio.Event()
        self.reason = ""
        self._on_lost = on_lost
        self._is_watched = False

    def __repr__(self) -> str:
        state = "held" if self._holds else "not held"
        return f"<{type(self).__module__}.{type(self).__qualname__} {text_of(self.name)!r} ({state})>"

    # ---- Holds ----

    def _key(self) -> Any:
        if self._generation != self.client._core.generation:  # holds are the parent's
            self._generation = self.client._core.generation
            for hold in self._holds.values():
                hold.count = 0
            self._holds.clear()
        task = asyncio.current_task()
        return self if self._shared or task is None else task

    def _held(self, what: str) -> _Hold:
        hold = self._holds.get(self._key())
        if hold is None:
            text = f"cannot {what} a lock that is not held here"
            raise self._error(LockNotOwnedError(text, code="ENOTOWNER", lock_name=text_of(self.name)))
        return hold

    def _leased(self, what: str) -> int:
        owner = self._held(what).owner
        if self.timeout is None:
            why = "it has no end" if self.no_expiry else "the watchdog renews it"
            text = f"cannot {what} a lock without a timeout: {why}"
            raise self._error(LockError(text, lock_name=text_of(self.name)))
        return owner

    def _error(self, error: HoldfastError) -> Exception:
        """For holdfast.redis, whose errors are also redis-py's."""
        return error

    def _lease_of(self, timeout: float | None) -> int:
        return lease_ms(timeout)

    def _new_owner(self) -> int:
        return 0  # drawn by the library

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Returns whether it is held now. Cancelled, it leaves nothing behind."""
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        wait = ms(blocking_timeout, _FOREVER) if blocking else 0
        value = token.encode() if isinstance(token, str) else token
        owner = await self.client._ask(
            self._raw.acquire, self._new_owner(), wait, self._lease_ms, self._acks, value
        )
        if owner is None:
            return False
        key = self._key()
        hold = self._holds.get(key)
        if hold is not None and hold.owner == owner:
            hold.count += 1
        else:
            self._holds[key] = _Hold(self._raw, owner)
            self.lost.clear()
        if self._on_lost is not None:
            self._watch()
        return True

    async def release(self) -> None:
        """Begins at once: cancelled, it still happens."""
        hold = self._held("release")
        hold.count -= 1
        if hold.count == 0:
            del self._holds[self._key()]
        await self.client._ask(self._raw.release, hold.owner)

    # ---- While it is held ----

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds to what is left of the timeout; or, with `replace_ttl`, sets it."""
        mode = _core.EXTEND_SET if replace_ttl else _core.EXTEND_ADD
        lease = self._lease_of(additional_time) if replace_ttl else ms(additional_time, 0)
        await self.client._ask(self._raw.extend, self._leased("extend"), lease, mode)
        return True

    async def reacquire(self) -> Literal[True]:
        """Starts the timeout anew."""
        owner = self._leased("reacquire")
        try:
            await self.client._ask(self._raw.extend, owner, self._lease_ms, self._restart)
        except NotSupportedError:  # on a quorum, and by ZooKeeper
            self._restart = _core.EXTEND_RAISE
            await self.client._ask(self._raw.extend, owner, self._lease_ms, self._restart)
        return True

    @property
    def remaining(self) -> float:
        """For how many seconds the hold can be trusted, from memory; 0: not held, or lost."""
        hold = self._holds.get(self._key())
        return 0.0 if hold is None else seconds_left(self._raw.remaining_ms(hold.owner))

    def ensure_held(self, at_least: float = 0.0) -> None:
        """Raises LockLostError unless the hold can be trusted for longer than `at_least` seconds."""
        self._held("rely on")
        if self.remaining <= at_least:
            raise self._loss(self.reason or "the hold has ended, or ends too soon")

    def _loss(self, text: str) -> Exception:
        return self._error(LockLostError(text, code="ELOST", lock_name=text_of(self.name)))

    @property
    def fence_token(self) -> int:
        """Of a fenced lock: larger than every token before it."""
        return self._raw.token(self._held("ask for the token of").owner)

    @property
    def handle(self) -> str:
        """The hold's name, for Client.adopt() of another client."""
        return self._raw.handle(self._held("ask for the handle of").owner)

    # ---- Whoever holds it ----

    async def owned(self) -> bool:
        """Whether the server says that this task holds it."""
        hold = self._holds.get(self._key())
        return hold is not None and bool(await self.client._ask(self._raw.is_mine, hold.owner))

    async def locked(self) -> bool:
        """Whether the server says that anybody holds it."""
        return bool(await self.client._ask(self._raw.is_locked))

    async def ttl(self) -> float | None:
        """Seconds until it frees itself; None: it is free, or has no end."""
        left = await self.client._ask(self._raw.ttl_ms)
        return None if left < 0 else left / 1000

    async def break_lock(self) -> bool:
        """Ends every hold, whoever has it. Returns whether there was one."""
        return bool(await self.client._ask(self._raw.break_))

    async def inspect(self) -> dict[str, Any]:
        """Holders and waiters, as the server sees them."""
        made: dict[str, Any] = json.loads(await self.client._ask(self._raw.inspect))
        return made

    async def server_info(self) -> dict[str, str | None]:
        """What the server of this name says about itself, as for `holdfast doctor`. Use an unused name."""
        return {name: value for name, value, why in await self.client._ask(self._raw.server_info)}

    # ---- Loss ----

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self.client._watched[self._raw.serial] = self
            self._raw.watch()

    def _loss_event(self, owner: int, event: LossEvent) -> None:
        if event.kind == "lost":
            for hold in list(self._holds.values()):
                if hold.owner == owner:
                    self._lose(hold, event.reason)
        if self._on_lost is not None:
            self._on_lost(event)

    def _client_closed(self) -> None:
        pass

    def _lose(self, hold: _Hold, reason: str) -> None:
        self.reason = reason
        self.lost.set()
        if hold.task is not None and not hold.cancelled:
            hold.cancelled = True
            hold.task.cancel()

    # ---- As a context, and as a decorator ----

    async def __aenter__(self) -> Self:
        if not await self.acquire():
            text = "the lock was not free within the time given"
            raise self._error(LockNotAcquiredError(text, code="ETIMEDOUT", lock_name=text_of(self.name)))
        hold = self._holds[self._key()]
        if self.cancel_on_loss and hold.count == 1:
            hold.task = task = asyncio.current_task()
            hold.cancelling = task.cancelling() if task is not None else 0
            self._watch()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        hold = self._holds.get(self._key())
        if hold is not None and hold.count == 1:
            task, hold.task = hold.task, None
            if hold.cancelled and task is not None:
                del self._holds[self._key()]
                hold.count = 0
                # As asyncio.timeout(): our cancellation becomes an error, another's goes on.
                ours = exc is None or isinstance(exc, asyncio.CancelledError)
                if task.uncancel() <= hold.cancelling and ours:
                    raise self._loss(self.reason) from exc
                return
        try:
            await self.release()
        except LockError as error:
            if self.raise_on_release_error and exc is None:
                raise
            self._log_release(error)
        except Exception as error:
            if exc is None:
                raise
            self._log_release(error)

    def _log_release(self, error: Exception) -> None:
        log_release(self.name if isinstance(self.name, bytes) else self.name.encode(), error)

    def __call__(self, function: _F) -> _F:
        """Holds the lock while the coroutine runs."""
        if not inspect.iscoroutinefunction(function):
            raise TypeError("a function that is not async needs a lock of holdfast.Client")

        @functools.wraps(function)
        async def locked(*args: Any, **kw: Any) -> Any:
            async with self:
                return await function(*args, **kw)

        return locked  # type: ignore[return-value]


class RLock(Lock):
    """A re-entrant lock: who holds is the task. (Not its context: child tasks inherit that.)"""

    _reentrant = True

    def _new_owner(self) -> int:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a re-entrant lock needs a task, which is its owner")
        if task not in _owners:
            _owners[task] = _core.owner_new()
        return _owners[task]


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

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} {text_of(self.name)!r}>"


class Semaphore(_Counter):
    """Permits without owners: those of a dead process are gone for good. If that matters, use Permits."""

    def __init__(self, client: Client, name: Name) -> None:
        super().__init__(client, name)
        self._raw = _core.Semaphore(client._core, name)

    async def try_set(self, permits: int, ttl: float | None = None) -> bool:
        """Sets the number, if there is no such semaphore yet; for `ttl` seconds, or for ever."""
        return bool(await self.client._ask(self._raw.try_set, permits, ms(ttl, 0)))

    async def acquire(self, permits: int = 1, blocking: bool = True, timeout: float | None = None) -> bool:
        wait = ms(timeout, _FOREVER) if blocking else 0
        return bool(await self.client._ask(self._raw.acquire, permits, wait))

    async def release(self, permits: int = 1) -> None:
        await self.client._ask(self._raw.release, permits)

    async def release_if_exists(self, permits: int = 1) -> bool:
        return bool(await self.client._ask(self._raw.release_if_exists, permits))

    async def add(self, delta: int) -> None:
        """Changes the number of permits; it may become negative."""
        await self.client._ask(self._raw.add, delta)

    async def drain(self) -> int:
        """Takes all that are free, and returns how many."""
        return int(await self.client._ask(self._raw.drain))

    async def available(self) -> int:
        return int(await self.client._ask(self._raw.available))

    async def delete(self) -> bool:
        return bool(await self.client._ask(self._raw.delete))

    def taken(self, permits: int = 1, timeout: float | None = None) -> _Some:
        """For `async with`: takes some, and puts them back."""
        return _Some(self, permits, timeout)

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await _give_back(self, self.release(), exc[1])


async def _give_back(counter: _Counter, release: Awaitable[None], of_body: object) -> None:
    """An exception of the body is more important than that the release failed."""
    try:
        await release
    except Exception as error:
        if of_body is None:
            raise
        log_release(counter.name if isinstance(counter.name, bytes) else counter.name.encode(), error)


class _Some:
    def __init__(self, semaphore: Semaphore, count: int, wait: float | None) -> None:
        self._semaphore = semaphore
        self._count = count
        self._wait = wait

    async def __aenter__(self) -> Self:
        if not await self._semaphore.acquire(self._count, True, self._wait):
            name = text_of(self._semaphore.name)
            raise LockNotAcquiredError("too few permits were free in time", code="ETIMEDOUT", lock_name=name)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await _give_back(self._semaphore, self._semaphore.release(self._count), exc[1])


class _Taken:
    def __init__(self, permits: Permits, count: int, wait: float | None, lease: float | None) -> None:
        self._args = (count, True, wait, lease)
        self._permits = permits
        self._ids: list[str] | None = None

    async def __aenter__(self) -> list[str]:
        self._ids = await self._permits.acquire(*self._args)
        if self._ids is None:
            name = text_of(self._permits.name)
            raise LockNotAcquiredError("too few permits were free in time", code="ETIMEDOUT", lock_name=name)
        return self._ids

    async def __aexit__(self, *exc: object) -> None:
        if self._ids is not None:
            ids, self._ids = self._ids, None
            await _give_back(self._permits, self._permits.release(*ids), exc[1])


class Permits(_Counter):
    """Permits with an id and a lease each: those of a dead process come back."""

    def __init__(
        self, client: Client, name: Name, on_lost: Callable[[LossEvent], None] | None = None
    ) -> None:
        super().__init__(client, name)
        self._raw = _core.Permits(client._core, name)
        self._on_lost = on_lost
        if on_lost is not None:
            client._watched[self._raw.serial] = self
            self._raw.watch()

    async def try_set(self, number: int) -> bool:
        """Sets the number, taken ones included, if there are no such permits yet."""
        return bool(await self.client._ask(self._raw.try_set, number))

    async def set(self, number: int) -> None:
        await self.client._ask(self._raw.set, number)

    async def add(self, delta: int) -> None:
        await self.client._ask(self._raw.add, delta)

    async def acquire(
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
        wait = ms(blocking_timeout, _FOREVER) if blocking else 0
        ids: list[str] | None = await self.client._ask(self._raw.acquire, count, wait, lease)
        return ids

    def taken(self, count: int = 1, blocking_timeout: float | None = None, timeout: float | None = None) -> _Taken:
        """For `async with`: takes some, gives their ids, and puts them back."""
        return _Taken(self, count, blocking_timeout, timeout)

    async def release(self, *ids: str) -> None:
        """Gives some back, all or none."""
        await self.client._ask(self._raw.release, *ids)

    async def extend(self, permit_id: str, timeout: float | None) -> None:
        """Gives it a new lease from now; None: one without an end."""
        await self.client._ask(self._raw.extend, permit_id, ms(timeout, _FOREVER))

    async def lease(self, permit_id: str) -> float | None:
        """What the server says is left of its lease; None: no end."""
        left = await self.client._ask(self._raw.lease_ms, permit_id)
        return None if left < 0 else left / 1000

    def remaining(self, permit_id: str) -> float:
        """For how long it can be trusted, from memory."""
        return self._raw.remaining_ms(permit_id) / 1000

    async def available(self) -> int:
        return int(await self.client._ask(self._raw.available))

    async def total(self) -> int:
        return int(await self.client._ask(self._raw.total))

    async def count_taken(self) -> int:
        return int(await self.client._ask(self._raw.taken))

    async def expire(self, ttl: float) -> bool:
        """Lets all of it expire. Returns whether it existed."""
        return bool(await self.client._ask(self._raw.expire, ms(ttl, 0)))

    async def delete(self) -> bool:
        return bool(await self.client._ask(self._raw.delete))

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

    async def try_set(self, count: int) -> bool:
        """Closes an open latch. Returns whether it was open."""
        return bool(await self.client._ask(self._raw.try_set, count))

    async def count_down(self) -> None:
        await self.client._ask(self._raw.count_down)

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is open. Returns whether it is."""
        return bool(await self.client._ask(self._raw.wait, ms(timeout, _FOREVER)))

    async def count(self) -> int:
        return int(await self.client._ask(self._raw.count))

    async def delete(self) -> bool:
        """Ends all waits."""
        return bool(await self.client._ask(self._raw.delete))


class Listener:
    """Notification of a name: an asynchronous iterator, unless they go to a callback. `with` closes it."""

    def __init__(
        self, client: Client, name: Name | None, callback: Callable[[Notification], None] | None = None
    ) -> None:
        self.client = client
        self.name = name
        self._callback = callback
        self._is_closed = False
        client._attach()
        self._queue: asyncio.Queue[Notification | None] = asyncio.Queue()
        self._raw = _core.Listener(client._core, name)
        client._watched[self._raw.serial] = self

    def _notification(self, notification: Notification) -> None:
        if self._callback is not None:
            self._callback(notification)
        else:
            self._queue.put_nowait(notification)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # A task of a loop that has ended waited.
            self._queue.put_nowait(None)

    _client_closed = _wake

    async def get(self) -> Notification | None:
        """The next; None: the listener is closed."""
        while not self._is_closed:
            if self.client.closed:
                raise ClosedError("the client is closed", code="ECLOSED")
            notification = await self._queue.get()
            if notification is not None:
                return notification
            self._wake()  # The next task that waits.
        return None

    async def __aiter__(self) -> AsyncIterator[Notification]:
        while (notification := await self.get()) is not None:
            yield notification

    def close(self) -> None:
        self._is_closed = True
        self._raw.close()
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
