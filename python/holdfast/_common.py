"""What clients for threads and for asyncio have in common."""

from __future__ import annotations

import dataclasses
import enum
import logging
import math
import os
import re
import weakref
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from . import _core
from ._errors import ArgumentError, log_fields, logger, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Name = str | bytes
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


class Options(TypedDict, total=False):
    """Options of a client; those in the URL override them. Times are seconds. docs/python.md lists
    what they mean, docs/guide.md explains them."""

    user: str
    password: str
    name_prefix: str
    command_timeout: float
    connect_timeout: float
    failover_timeout: float
    watchdog: float
    max_hold: float
    ping_interval: float
    fair_wait: float
    restart_guard: float
    report_after: float
    acks: int | Literal["all", "report", "off"]
    ack_disk: bool
    ack_timeout: float
    label: str
    histogram_names: int
    clock_drift_ppm: int
    master: str
    sentinel_user: str
    sentinel_password: str
    sentinel_tls: bool
    sentinel_tls_server_name: str
    sentinel_confirm: bool
    tls_ca_file: str
    tls_ca_dir: str
    tls_cert_file: str
    tls_key_file: str
    tls_server_name: str
    tls_min_version: Literal["1.2", "1.3"]
    tls_insecure: bool
    no_busy_poll: bool
    tracking: bool


_SECONDS = {"command_timeout": "cmd_timeout_ms"} | {
    name: name + "_ms"
    for name in (
        "connect_timeout",
        "failover_timeout",
        "watchdog",
        "max_hold",
        "ping_interval",
        "fair_wait",
        "restart_guard",
        "report_after",
        "ack_timeout",
    )
}
_NO_LEASE = -1
_NO_END = 2**63 - 1  # what the library says is left without a lease
_ACKS = {"all": _core.ACKS_ALL, "report": _core.ACKS_REPORT, "off": _core.ACKS_OFF}
_FLAGS = {"tls_insecure": _core.TLS_INSECURE, "no_busy_poll": _core.NO_BUSY_POLL}


def acks_of(acks: int | str | None) -> int:
    if isinstance(acks, str):
        if acks not in _ACKS:
            raise ArgumentError(f"acks is a number or one of {', '.join(_ACKS)}, not {acks!r}")
        return _ACKS[acks]
    return acks or 0


def _core_options(options: Mapping[str, Any]) -> dict[str, bytes | int]:
    made: dict[str, bytes | int] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name in _FLAGS:
            made["flags"] = int(made.get("flags", 0)) | (_FLAGS[name] if value else 0)
        elif name == "tracking":
            made["flags"] = int(made.get("flags", 0)) | (0 if value else _core.NO_TRACKING)
        elif name in _SECONDS:
            made[_SECONDS[name]] = -1 if value < 0 else int(value * 1000)
        elif name == "acks":
            made[name] = acks_of(value)
        elif name == "tls_min_version":
            if value not in ("1.2", "1.3"):
                raise ArgumentError(f'tls_min_version is "1.2" or "1.3", not {value!r}')
            made[name] = 12 if value == "1.2" else 13
        elif name == "sentinel_tls":
            made[name] = 1 if value else 2
        else:
            made[name] = value.encode() if isinstance(value, str) else int(value)
    return made


_TLS_URL = re.compile(r"(rediss|valkeys|sentinels|clusters|zks)\b")


def _with_authorities(url: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """A wheel brings an OpenSSL that seeks the authorities where the machine that built it had them. Python knows
    where this machine, or SSL_CERT_FILE, has them."""
    chosen = {"tls_ca_file", "tls_ca_dir"} & {name for name, value in options.items() if value is not None}
    text = url or os.environ.get("HOLDFAST_URL") or os.environ.get("REDIS_URL") or ""
    if chosen or not (_TLS_URL.search(text) or options.get("sentinel_tls")):
        return options
    try:
        import ssl
    except ImportError:
        return options
    paths = ssl.get_default_verify_paths()
    return options | {"tls_ca_file": paths.cafile, "tls_ca_dir": paths.capath}


# ---- Kinds ----

_KINDS = {
    "plain": (_core.PLAIN, 0),
    "fair": (_core.FAIR, 0),
    "string": (_core.STRING, 0),
    "read": (_core.READ, 0),
    "write": (_core.WRITE, 0),
    "spin": (0, _core.SPIN),
    "fenced": (0, _core.FENCED),
    "cohort": (0, _core.COHORT),
}


def kind_of(kind: str) -> tuple[int, int]:
    """ "fair" or "fair+cohort": the library's kind, and its flags."""
    base = flags = 0
    for word in kind.split("+"):
        if word not in _KINDS:
            raise ArgumentError(
                f"there is no kind of lock called {word!r}: choose from {', '.join(_KINDS)}, "
                'or join some, as in "fair+cohort"'
            )
        base |= _KINDS[word][0]
        flags |= _KINDS[word][1]
    return base, flags


def restart_mode(kind: str, made_of_others: bool) -> int:
    """How a lease starts anew. Where the library cannot set it, it can raise it."""
    can_set = not made_of_others and not {"read", "write", "cohort"} & set(kind.split("+"))
    return _core.EXTEND_SET if can_set else _core.EXTEND_RAISE


def ms(seconds: float | None, none: int) -> int:
    """Seconds as milliseconds. A positive time is never rounded to 0, which means something else."""
    if seconds is None or seconds == float("inf"):
        return none
    return max(1, int(seconds * 1000)) if seconds > 0 else 0


def lease_ms(timeout: float | None) -> int:
    """None is the watchdog."""
    if timeout is not None and timeout <= 0:
        raise ArgumentError(f"a timeout is more than 0 seconds, or None, not {timeout!r}")
    return ms(timeout, 0)


def endless(timeout: float | None, no_expiry: bool, lease: int) -> int:
    """`no_expiry`: without a timeout the lock has no end, in place of the watchdog."""
    return _NO_LEASE if no_expiry and timeout is None else lease


def seconds_left(remaining_ms: int) -> float:
    return math.inf if remaining_ms == _NO_END else remaining_ms / 1000


# ---- What the library reports ----


@dataclasses.dataclass(frozen=True)
class LossEvent:
    """A hold is at risk, or lost.

    kind       "warning": it is not being renewed, stop within `remaining` seconds;
               "lost": it ended without a release; "orphaned": its thread has ended
    lock       the Lock, or Permits
    permit_id  of permits, which one; else None
    """

    kind: str
    lock: Any
    remaining: float
    reason: str
    permit_id: str | None = None


class NotificationKind(enum.Enum):
    """As hf_notification_kind."""

    SUBSCRIBED = 1
    INTERRUPTED = 2
    MISSED = 3
    RELEASED = 4
    READ_RELEASED = 5
    WRITE_RELEASED = 6
    AVAILABLE = 7
    OPENED = 8
    CLOSED = 9
    CHANGED = 10
    BROKEN = 11
    LOST = 12


@dataclasses.dataclass(frozen=True)
class Notification:
    """A message about a name: a hint, never proof. `name` as it was given."""

    kind: NotificationKind
    name: bytes
    number: int
    age: float
    code: int
    server: int
    servers: int


_EVENT_KINDS = ("warning", "lost", "orphaned")
_LOG, _EVENT, _NEWS = range(3)

_clients: weakref.WeakSet[BaseClient] = weakref.WeakSet()


class BaseClient:
    """Not to be used by itself."""

    _manual = False

    def __init__(self, url: str | None, options: Options) -> None:
        self._options: dict[str, Any] = dict(options)
        given = _core_options(_with_authorities(url, self._options))
        self._core = _core.Client(None if url is None else url.encode(), given, self._manual)
        self._dropped = 0
        self._watched: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        _clients.add(self)

    @property
    def id(self) -> str:
        """The client's uuid, with which its owners' names begin."""
        return self._core.id

    @property
    def closed(self) -> bool:
        return self._core.closed

    def stats(self) -> dict[str, Any]:
        """What this client has counted since it was opened: the fields of hf_stats."""
        return self._core.stats()

    def metrics(self) -> str:
        """The same as OpenMetrics text."""
        return self._core.metrics()

    def _end_waits(self) -> None:
        """After its end: those for notifications and losses, which the library knows nothing of."""
        for reference in self._watched.valuerefs():
            receiver = reference()
            if receiver is not None:
                receiver._client_closed()

    def _after_fork(self) -> None:
        self._core.forked()

    def _take_notes(self) -> None:
        """Log lines, losses and notifications, wherever this is called: callbacks run here."""
        dropped = self._core.dropped
        if dropped != self._dropped:
            unread = dropped - self._dropped
            logger.warning("%d log lines and notifications were dropped: nobody read them in time", unread)
            self._dropped = dropped
        for what, kind, code, serial, owner, number, age, server, servers, text, name, about in self._core.notes():
            if what == _LOG:
                logger.log(_LEVELS[kind], "%s", text, extra=log_fields(code, name, about))
                continue
            receiver = self._watched.get(serial)
            if receiver is None:
                continue
            try:
                if what == _EVENT:
                    permit = text_of(name) if name else None
                    event = LossEvent(_EVENT_KINDS[kind], receiver, number / 1000, text, permit)
                    receiver._loss_event(owner, event)
                else:
                    what_is_new = NotificationKind(kind)
                    receiver._notification(Notification(what_is_new, name, number, age / 1000, code, server, servers))
            except Exception:
                logger.exception("a callback has raised")


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def values_of(values: Iterable[Name]) -> list[Name]:
    made = list(values)
    if not made:
        raise ArgumentError("a group lock needs at least one value")
    return made
