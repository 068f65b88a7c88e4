"""A client's numbers for prometheus_client.

prometheus_client.REGISTRY.register(holdfast.prometheus.Collector(client))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._common import BaseClient

__all__ = ["Collector"]


class Collector:
    """Collects what Client.metrics() has, of a client for threads or for asyncio. After its close: nothing."""

    def __init__(self, client: BaseClient) -> None:
        self._client = client

    def collect(self) -> Iterable[Any]:
        return [] if self._client.closed else text_string_to_metric_families(self._client.metrics())  # type: ignore[no-untyped-call,unused-ignore]
