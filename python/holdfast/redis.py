"""Locks for redis-py's own hook, on the string kind: both libraries share locks on the wire.

redis.Redis().lock("x", lock_class=holdfast.redis.Lock)
redis.asyncio.Redis().lock("x", lock_class=holdfast.redis.AsyncLock)

`timeout=None` is the watchdog: the lock lives as long as its process.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import redis.exceptions as _redis

from . import Client, _errors
from . import Lock as _Lock
from . import asyncio as _asyncio
from ._common import Options, lease_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

__all__ = ["AsyncLock", "Lock"]


class LockError(_errors.LockError, _redis.LockError):
    """As redis-py's, and as ours."""


class LockNotAcquiredError(_errors.LockNotAcquiredError, LockError):
    pass


class LockNotOwnedError(_errors.LockNotOwnedError, LockError, _redis.LockNotOwnedError):
    pass


class LockLostError(_errors.LockLostError, LockNotOwnedError):
    pass


class WrongTypeError(_errors.WrongTypeError, LockError):
    pass


class ConnectionError(_errors.ConnectionError, _redis.ConnectionError):
    pass


_SAME: dict[type[_errors.HoldfastError], type[_errors.HoldfastError]] = {
    _errors.LockError: LockError,
    _errors.LockNotAcquiredError: LockNotAcquiredError,
    _errors.LockNotOwnedError: LockNotOwnedError,
    _errors.LockLostError: LockLostError,
    _errors.WrongTypeError: WrongTypeError,
    _errors.ConnectionError: ConnectionError,
}


def _translate(error: Exception) -> Exception:
    """Ours as one that redis-py's callers catch."""
    if isinstance(error, _errors.HoldfastError) and type(error) in _SAME:
        return _SAME[type(error)](
            error.text, code=error.code, node=error.node, lock_name=error.lock_name, sys_errno=error.sys_errno
        )
    return error


def _raise_for(code: int, sys_errno: int, node: str, text: str, name: bytes | None) -> None:
    raise _translate(_errors.error_of(code, sys_errno, node, text, name))


# ---- A client beside redis-py's ----


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def _url_of(keywords: dict[str, Any], tls: bool) -> str:
    db = keywords.get("db") or 0
    if keywords.get("path"):
        return f"unix://{quote(keywords['path'])}?db={db}"
    host = keywords.get("host", "localhost")
    host = f"[{host}]" if ":" in host else host
    return f"redis{'s' if tls else ''}://{host}:{keywords.get('port', 6379)}/{db}"


_TLS = {"ssl_ca_certs": "tls_ca_file", "ssl_ca_path": "tls_ca_dir", "ssl_certfile": "tls_cert_file"} | {
    "ssl_keyfile": "tls_key_file"
}


def _options_of(keywords: dict[str, Any], tls: bool) -> Options:
    made: dict[str, Any] = {}
    if keywords.get("credential_provider") is not None:
        raise NotImplementedError("a credential_provider: make a holdfast.Client with the password instead")
    for theirs, ours in {"username": "user", "password": "password"}.items():
        if keywords.get(theirs):
            made[ours] = _text(keywords[theirs])
    if tls:
        for theirs, ours in _TLS.items():
            if keywords.get(theirs):
                made[ours] = _text(keywords[theirs])
        if keywords.get("ssl_cert_reqs") in ("none", 0):
            made["tls_insecure"] = True
    return cast("Options", made)


_clients: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _client_of(theirs: Any, cls: Any) -> Any:
    """One client for each of redis-py's connection pools."""
    if not hasattr(theirs, "connection_pool"):
        raise NotImplementedError("redis-py's cluster client: make a holdfast.Client with redis-cluster://")
    pool = theirs.connection_pool
    made = _clients.get(pool)
    if made is None or made.closed:
        keywords = pool.connection_kwargs
        tls = "SSL" in pool.connection_class.__name__
        made = _clients[pool] = cls(_url_of(keywords, tls), **_options_of(keywords, tls))
    return made


def _lease_of(timeout: float | None) -> int:
    """redis-py's `timeout` is the most that the key lives. Ours is the least, by a clock that was read over the
    network: so it is a hundredth shorter, which holders do not trust anyway."""
    lease = lease_ms(timeout)
    return lease - lease // 100


class _Local:
    """redis-py's `lock.local`: what it has is the token."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    @property
    def token(self) -> bytes | None:
        return self._lock._token()  # type: ignore[no-any-return]


class Lock(_Lock):
    """For redis.Redis().lock(..., lock_class=holdfast.redis.Lock). `sleep` is not needed: waiters of this
    library are woken, and look for a lock of redis-py every 50 to 250 ms."""

    _sleep_first = True

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        **options: Any,
    ) -> None:
        self.redis = redis
        self.sleep = sleep
        super().__init__(
            _client_of(redis, Client),
            name,
            timeout,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=thread_local,
            raise_on_release_error=raise_on_release_error,
            kind="string",
            **options,
        )
        self.local = _Local(self)

    def _token(self) -> bytes | None:
        owner = self._owner
        return None if owner is None else self._raw.handle(owner).encode("utf-8", "surrogateescape")

    def _lease_of(self, timeout: float | None) -> int:
        return _lease_of(timeout)

    def _raises(self) -> Callable[..., None]:
        return _raise_for

    def _error(self, error: _errors.HoldfastError) -> Exception:
        return _translate(error)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Any:
        try:
            return super().extend(additional_time, replace_ttl)
        except _errors.HoldfastError as error:
            raise _translate(error) from None

    def reacquire(self) -> Any:
        try:
            return super().reacquire()
        except _errors.HoldfastError as error:
            raise _translate(error) from None


class AsyncLock(_asyncio.Lock):
    """For redis.asyncio.Redis().lock(..., lock_class=holdfast.redis.AsyncLock). A lost lock does not
    cancel the body unless `cancel_on_loss` is true."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        **options: Any,
    ) -> None:
        self.redis = redis
        self.sleep = sleep
        options.setdefault("cancel_on_loss", False)
        super().__init__(
            _client_of(redis, _asyncio.Client),
            name,
            timeout,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=False,
            raise_on_release_error=raise_on_release_error,
            kind="string",
            **options,
        )
        self.local = _Local(self)

    def _lease_of(self, timeout: float | None) -> int:
        return _lease_of(timeout)

    def _token(self) -> bytes | None:
        hold = self._holds.get(self)
        return None if hold is None else self._raw.handle(hold.owner).encode("utf-8", "surrogateescape")

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        try:
            return await super().acquire(blocking, blocking_timeout, token)
        except _errors.HoldfastError as error:
            raise _translate(error) from None

    async def release(self) -> None:
        try:
            await super().release()
        except _errors.HoldfastError as error:
            raise _translate(error) from None

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Any:
        try:
            return await super().extend(additional_time, replace_ttl)
        except _errors.HoldfastError as error:
            raise _translate(error) from None

    async def reacquire(self) -> Any:
        try:
            return await super().reacquire()
        except _errors.HoldfastError as error:
            raise _translate(error) from None

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except _errors.HoldfastError as error:
            raise _translate(error) from None

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc, tb)
        except _errors.HoldfastError as error:
            raise _translate(error) from None
