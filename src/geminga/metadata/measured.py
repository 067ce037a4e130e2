"""A metadata store whose gets, puts and deletes are timed: Pulsar's ``pulsar_metadata_store_*``.

Like Pulsar it times neither lists of children nor syncs. An error of any kind is a failure, a node that is not there is
none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from geminga.metadata.ports import MetadataStore, Node, Notification, PutOptions, PutResult, SessionEvent, Unsubscribe
from geminga.model.histogram import Histogram

if TYPE_CHECKING:
    from geminga.model.exposition import Labels, Source
    from geminga.runtime.ports import Clock

#: Milliseconds; Pulsar's.
BUCKETS_MS: Final = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
#: As Pulsar names the store of its own cluster.
STORE_NAME: Final = "metadata-store"
#: And one that clusters share.
SHARED_STORE_NAME: Final = "configuration-metadata-store"
_LATENCY: Final = "pulsar_metadata_store_ops_latency_ms"
_OPERATIONS: Final = ("get", "del", "put")
_STATUSES: Final = ("success", "fail")

T = TypeVar("T")


class MeasuredMetadataStore:
    """Implements ``metadata.ports.MetadataStore`` by another one."""

    __slots__ = ("_clock", "_latencies", "_name", "_put_bytes", "_store")

    def __init__(self, store: MetadataStore, clock: Clock, name: str = STORE_NAME) -> None:
        """``name``: of ``store`` in its metrics."""
        self._name = name
        self._store = store
        self._clock = clock
        self._latencies = {
            (operation, status): Histogram(BUCKETS_MS) for operation in _OPERATIONS for status in _STATUSES
        }
        self._put_bytes = 0

    # ---- what is timed

    async def get(self, path: str) -> Node | None:
        """See ``MetadataStore.get``."""
        return await self._timed("get", self._store.get(path))

    async def put(self, path: str, value: bytes, **options: Unpack[PutOptions]) -> PutResult:
        """See ``MetadataStore.put``."""
        result = await self._timed("put", self._store.put(path, value, **options))
        self._put_bytes += len(value)
        return result

    async def take_sequences(self, path: str, count: int) -> Sequence[int]:
        """See ``MetadataStore.take_sequences``; a put, as each of them is where they are taken one by one."""
        return await self._timed("put", self._store.take_sequences(path, count))

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """See ``MetadataStore.delete``."""
        await self._timed("del", self._store.delete(path, expected_version=expected_version))

    async def _timed(self, operation: str, call: Awaitable[T]) -> T:
        began_s = self._clock.monotonic()
        status = "fail"
        try:
            result = await call
            status = "success"
            return result
        finally:
            self._latencies[operation, status].add((self._clock.monotonic() - began_s) * 1000)

    # ---- what is handed on

    async def exists(self, path: str) -> bool:
        """See ``MetadataStore.exists``."""
        return await self._store.exists(path)

    async def children(self, path: str) -> list[str]:
        """See ``MetadataStore.children``."""
        return await self._store.children(path)

    async def next_sequence(self, path: str) -> int:
        """See ``MetadataStore.next_sequence``."""
        return await self._store.next_sequence(path)

    async def sync(self, path: str = "/") -> None:
        """See ``MetadataStore.sync``."""
        await self._store.sync(path)

    def watch_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_node``."""
        return self._store.watch_node(path, callback)

    def watch_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_children``."""
        return self._store.watch_children(path, callback)

    def on_session_event(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        """See ``MetadataStore.on_session_event``."""
        return self._store.on_session_event(callback)

    async def close(self) -> None:
        """See ``MetadataStore.close``."""
        await self._store.close()

    # ---- metrics

    def sources(self) -> Iterator[tuple[Labels, Source]]:
        """Of each operation and outcome; buckets first, as a page wants them."""
        for key, latencies in self._latencies.items():
            labels = self._labels(*key)
            for number, bound in enumerate((*map(float, BUCKETS_MS), "+Inf")):
                yield (*labels, ("le", str(bound))), partial(_bucket, latencies, number)
        for key, latencies in self._latencies.items():
            yield self._labels(*key), partial(_sum_and_count, latencies)
        yield (("name", self._name),), lambda: {"pulsar_metadata_store_put_bytes_total": self._put_bytes}

    def _labels(self, operation: str, status: str) -> Labels:
        return ("name", self._name), ("type", operation), ("status", status)


def _bucket(latencies: Histogram, number: int) -> dict[str, float]:
    return {f"{_LATENCY}_bucket": latencies.up_to(number)}


def _sum_and_count(latencies: Histogram) -> dict[str, float]:
    return {f"{_LATENCY}_sum": latencies.total, f"{_LATENCY}_count": latencies.count}
