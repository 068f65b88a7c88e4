"""What can go wrong. A name that redis-py has, too, means here what it means there."""

from __future__ import annotations

import builtins
import logging
import threading
from typing import Any

logger = logging.getLogger("holdfast")


class HoldfastError(Exception):
    """Everything that holdfast raises.

    code       "EBUSY" and the like, as in the C header
    node       the server that it is about, or ""
    text       the server's words, or ours
    lock_name  the name that it is about, or None
    sys_errno  the operating system's number, or 0
    """

    def __init__(
        self,
        text: str = "",
        *,
        code: str = "",
        node: str = "",
        lock_name: str | None = None,
        sys_errno: int = 0,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.node = node
        self.text = text
        self.lock_name = lock_name
        self.sys_errno = sys_errno


class LockError(HoldfastError, ValueError):
    """About one lock."""


class LockNotAcquiredError(LockError, builtins.TimeoutError):
    """`with` could not get it in time. (acquire() returns False instead.)"""


class LockNotOwnedError(LockError):
    """It is not held here."""


class LockLostError(LockNotOwnedError):
    """It was held here, and the hold ended without a release."""


class DeadlockError(LockError, RuntimeError):
    """The call would wait for itself."""


class WrongTypeError(LockError):
    """The name is in use for something else."""


class ConnectionError(HoldfastError, builtins.ConnectionError):
    """No server, too few of them, or none that takes commands."""


class PermissionError(HoldfastError, builtins.PermissionError):
    """The server denied access."""


class UnknownOutcomeError(HoldfastError):
    """The server did not answer: the command may or may not have run."""


class NotSupportedError(HoldfastError):
    """Not on this server, or not with this kind of lock."""


class ForkedError(HoldfastError, RuntimeError):
    """It belongs to the parent process."""


class ClosedError(HoldfastError, RuntimeError):
    """The client is closed."""


class ArgumentError(HoldfastError, ValueError):
    """An argument, an option, or a part of the URL makes no sense."""


_BY_CODE: dict[int, tuple[str, type[HoldfastError]]] = {
    -1: ("EBUSY", LockNotAcquiredError),
    -2: ("ETIMEDOUT", LockNotAcquiredError),
    -3: ("ENOTOWNER", LockNotOwnedError),
    -4: ("ELOST", LockLostError),
    -5: ("EINDOUBT", UnknownOutcomeError),
    -6: ("ECANCELED", LockNotAcquiredError),
    -7: ("ECLOSED", ClosedError),
    -8: ("EFORKED", ForkedError),
    -9: ("EDEADLK", DeadlockError),
    -10: ("EWRONGTYPE", WrongTypeError),
    -11: ("EPERM", PermissionError),
    -12: ("EUNREACH", ConnectionError),
    -13: ("ENOQUORUM", ConnectionError),
    -14: ("ENOREPLICA", ConnectionError),
    -16: ("EPROTO", ConnectionError),
    -17: ("EINVAL", ArgumentError),
    -18: ("ENOTSUP", NotSupportedError),
    -19: ("EUNAVAILABLE", ConnectionError),
    -20: ("EOOM", ConnectionError),
    -22: ("ETLS", ConnectionError),
}


# Python has exceptions of its own for these, and a log line only names them.
_OTHERS = {-15: "ENOMEM", -21: "ESYS", -23: "EPENDING"}


def text_of(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


def log_fields(code: int, name: bytes, server: bytes) -> dict[str, str | None]:
    """What a log line is about: the code is that of the exceptions."""
    word = _OTHERS.get(code) or _BY_CODE.get(code, (str(code),))[0]
    return {
        "code": word if code else None,
        "lock": text_of(name) if name else None,
        "server": text_of(server) if server else None,
    }


def error_of(code: int, sys_errno: int, node: str, text: str, name: bytes | None) -> Exception:
    if code == -15:
        return MemoryError()
    if code == -21:
        return OSError(sys_errno, text)
    word, cls = _BY_CODE.get(code, (str(code), HoldfastError))
    lock_name = None if name is None else text_of(name)
    return cls(text, code=word, node=node, lock_name=lock_name, sys_errno=sys_errno)


def raise_for(code: int, sys_errno: int, node: str, text: str, name: bytes | None) -> None:
    raise error_of(code, sys_errno, node, text, name)


# ---- For the C code ----


def log_release(name: bytes, error: BaseException) -> None:
    """The body of a `with` has raised, which is more important; or nobody wants to know."""
    logger.warning("lock %r was not held to the end: %s", text_of(name), error)


def new_local() -> Any:
    return threading.local()


def main_thread() -> int | None:
    return threading.main_thread().ident
