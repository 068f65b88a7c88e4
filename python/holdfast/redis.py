"""Locks for redis-py's own hook, on the string kind: both libraries share locks on the wire.

redis.Redis().lock("x", lock_class=holdfast.redis.Lock)
redis.asyncio.Redis().lock("x", lock_class=holdfast.redis.AsyncLock)

`timeout=None` is the watchdog: the lock lives as long as its process. With `no_expiry=True` it has no end, as in
redis-py: if its process dies, it stays locked.
"""

from __future__ import annotations

import contextlib
import ssl
import weakref
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import redis.asyncio.connection as _async_connection
import redis.connection as _sync_connection
import redis.exceptions as _redis

from . import Client, _errors
from . import Lock as _Lock
from . import asyncio as _asyncio
from ._common import Options, lease_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class DeadlockError(_errors.DeadlockError, LockError):
    pass


class ConnectionError(_errors.ConnectionError, _redis.ConnectionError):
    pass


class PermissionError(_errors.PermissionError, _redis.AuthenticationError, _redis.NoPermissionError):
    pass


class UnknownOutcomeError(_errors.UnknownOutcomeError, _redis.TimeoutError):
    pass


class ClosedError(_errors.ClosedError, _redis.ConnectionError):
    pass


class ForkedError(_errors.ForkedError, _redis.ConnectionError):
    pass


class NotSupportedError(_errors.NotSupportedError, _redis.RedisError):
    pass


class ArgumentError(_errors.ArgumentError, _redis.DataError):
    pass


_SAME: dict[type[_errors.HoldfastError], type[_errors.HoldfastError]] = {
    made.__mro__[1]: made
    for made in (
        LockError,
        LockNotAcquiredError,
        LockNotOwnedError,
        LockLostError,
        WrongTypeError,
        DeadlockError,
        ConnectionError,
        PermissionError,
        UnknownOutcomeError,
        ClosedError,
        ForkedError,
        NotSupportedError,
        ArgumentError,
    )
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


@contextlib.contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except _errors.HoldfastError as error:
        raise _translate(error) from None


# ---- A client beside redis-py's ----


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def _url_of(pool: Any) -> str:
    """Where the pool connects. A pool that asks others for the address has neither a host nor a path."""
    keywords = pool.connection_kwargs
    if hasattr(pool, "sentinel_manager"):
        raise NotImplementedError("redis-py's Sentinel pool: make a holdfast.Client with redis-sentinel://")
    db = keywords.get("db") or 0
    if keywords.get("path"):
        return f"unix://{quote(keywords['path'])}?db={db}"
    if not keywords.get("host") and pool.connection_class not in _WITH_A_HOST:
        name = pool.connection_class.__name__
        raise NotImplementedError(f"connections of {name} name no host: make a holdfast.Client with a URL")
    host = keywords.get("host") or "localhost"
    host = f"[{host}]" if ":" in host else host
    return f"redis{'s' if _is_tls(pool) else ''}://{host}:{keywords.get('port') or 6379}/{db}"


_WITH_A_HOST = {
    _sync_connection.Connection,
    _sync_connection.SSLConnection,
    _async_connection.Connection,
    _async_connection.SSLConnection,
}


def _is_tls(pool: Any) -> bool:
    return issubclass(pool.connection_class, (_sync_connection.SSLConnection, _async_connection.SSLConnection))


_TLS = {"ssl_ca_certs": "tls_ca_file", "ssl_ca_path": "tls_ca_dir", "ssl_certfile": "tls_cert_file"} | {
    "ssl_keyfile": "tls_key_file"
}
# What would make redis-py refuse a server, or accept it, and the C library has nothing like.
_REFUSED = {
    "ssl_ca_data": "write the certificates to a file, for ssl_ca_certs",
    "ssl_password": "decrypt the key",
    "ssl_ciphers": "set them at the server",
    "ssl_include_verify_flags": "leave them out",
    "ssl_exclude_verify_flags": "leave them out",
    "ssl_validate_ocsp": "leave it out",
    "ssl_validate_ocsp_stapled": "leave it out",
    "ssl_ocsp_context": "leave it out",
    "ssl_ocsp_expected_cert": "leave it out",
}


def _tls_options_of(keywords: dict[str, Any]) -> dict[str, Any]:
    for name, advice in _REFUSED.items():
        if keywords.get(name):
            raise NotImplementedError(f"{name}: holdfast's TLS has no such setting; {advice}")
    made: dict[str, Any] = {ours: _text(keywords[theirs]) for theirs, ours in _TLS.items() if keywords.get(theirs)}
    if keywords.get("ssl_cert_reqs", "required") in ("none", 0, None):
        made["tls_insecure"] = True
    elif not keywords.get("ssl_check_hostname", True):
        raise NotImplementedError(
            "ssl_check_hostname=False: holdfast's TLS compares the host with the certificate; pass True, or make a "
            "holdfast.Client with tls_server_name"
        )
    least = keywords.get("ssl_min_version")
    if least is not None:
        above = least == ssl.TLSVersion.MAXIMUM_SUPPORTED or least > ssl.TLSVersion.TLSv1_2
        made["tls_min_version"] = "1.3" if above else "1.2"
    return made


def _options_of(pool: Any) -> Options:
    keywords = pool.connection_kwargs
    made: dict[str, Any] = {}
    if keywords.get("credential_provider") is not None:
        raise NotImplementedError("a credential_provider: make a holdfast.Client with the password instead")
    for theirs, ours in {"username": "user", "password": "password"}.items():
        if keywords.get(theirs):
            made[ours] = _text(keywords[theirs])
    if _is_tls(pool):
        made |= _tls_options_of(keywords)
    return cast("Options", made)


_clients: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _client_of(theirs: Any, cls: Any) -> Any:
    """One client for each of redis-py's connection pools."""
    if not hasattr(theirs, "connection_pool"):
        raise NotImplementedError("redis-py's cluster client: make a holdfast.Client with redis-cluster://")
    pool = theirs.connection_pool
    made = _clients.get(pool)
    if made is None or made.closed:
        with _translating():
            made = _clients[pool] = cls(_url_of(pool), **_options_of(pool))
        made._core.set_raise_for(_raise_for)
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
    """For redis.Redis().lock(..., lock_class=holdfast.redis.Lock). `sleep` is not needed: a release wakes the
    waiters of this library, and the server reports that of a lock of redis-py."""

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
        with _translating():
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

    def _error(self, error: _errors.HoldfastError) -> Exception:
        return _translate(error)


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
        with _translating():
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

    def _error(self, error: _errors.HoldfastError) -> Exception:
        return _translate(error)
