"""Where gevent has patched the standard library, a wait lets other greenlets run.

The client is one of manual dispatch then, as for asyncio. One greenlet waits for its descriptor, and
wakes those whose operations have completed.
"""

from __future__ import annotations

import sys
from typing import Any

from . import _core


def is_patched() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("select"))


class Pump:
    def __init__(self, core: _core.Client) -> None:
        self._core = core
        self._fd = -1
        self._greenlet: Any = None

    def _run(self, fd: int) -> None:
        from gevent.socket import wait_read  # type: ignore[import-untyped,unused-ignore]

        while self._core.dispatch_fd() == fd:
            wait_read(fd)
            for op in self._core.dispatch():
                if op.tag is not None:
                    op.tag.set()

    def wait(self, op: _core.Op) -> None:
        import gevent  # type: ignore[import-untyped,unused-ignore]
        from gevent.event import Event  # type: ignore[import-untyped,unused-ignore]

        op.tag = event = Event()
        fd = self._core.dispatch_fd()
        if self._greenlet is None or self._greenlet.dead or fd != self._fd:
            self._fd = fd
            self._greenlet = gevent.spawn(self._run, fd)
        event.wait()
