"""Holds entries back until what decodes them is there: a schema version may have to be asked for first.

Entries leave in the order they came, so one that waits holds those behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.client._api.errors import PulsarException
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.link import MENDED_BY_TIME
from geminga.client.rules.backoff import Backoff
from geminga.client.schema._protocol import MessageDecoder
from geminga.runtime import Raised, attempt_await, get_logger, spawn, wait_ms

_log = get_logger(__name__)


class SchemaGate:
    """The entries of one consumer of one topic that wait for their schema; at most what was prefetched."""

    __slots__ = ("_cluster", "_decoder", "_hand_out", "_held", "_task", "_topic")

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        decoder: MessageDecoder[object],
        hand_out: Callable[[list[EntryBatch]], None],
    ) -> None:
        """``hand_out`` gets what was held, in order."""
        self._cluster = cluster
        self._topic = topic
        self._hand_out = hand_out
        self._decoder = decoder
        self._held: list[EntryBatch] = []
        self._task: asyncio.Task[None] | None = None

    def holds(self, entries: list[EntryBatch]) -> bool:
        """Whether ``entries`` were held back; False: hand them out."""
        is_ready = self._decoder.is_ready
        if not self._held and all(is_ready(entry.metadata.schema_version) for entry in entries):
            return False
        self._held.extend(entries)
        if self._task is None:
            self._task = spawn(self._prepare(), name=f"schema of {self._topic}")
        return True

    @property
    def is_holding(self) -> bool:
        """Whether entries are held back now."""
        return bool(self._held)

    def clear(self) -> int:
        """Everything comes again; how many messages were held back."""
        count = sum(len(entry.order) for entry in self._held)
        self._held.clear()
        return count

    def close(self) -> None:
        """Nothing is handed out any more."""
        self._held.clear()
        if self._task is not None:
            self._task.cancel()

    async def _prepare(self) -> None:
        options, runtime = self._cluster.options, self._cluster.runtime
        backoff = Backoff(options.initial_backoff_ms, options.maximum_backoff_ms)
        try:
            while self._held:
                entry = self._held[0]
                version = entry.metadata.schema_version
                if not self._decoder.is_ready(version):
                    outcome = await attempt_await(self._decoder.prepare(version))
                    if isinstance(outcome, Raised):
                        error = outcome.error
                        if isinstance(error, PulsarException) and (
                            error.retriable or isinstance(error, MENDED_BY_TIME)
                        ):
                            _log.warning("schema of %s: %s", self._topic, error)
                            now_ms = runtime.clock.monotonic() * 1000
                            await wait_ms(backoff.next_ms(now_ms, runtime.rng.random()))
                            continue
                        # Asking again would not help: the message is handed out, and its value() says what is wrong.
                        if isinstance(error, PulsarException):
                            _log.warning("schema of %s: %s: %s", self._topic, type(error).__name__, error)
                        else:
                            _log.error("schema of %s: %s", self._topic, outcome, exc_info=error)
                if self._held and self._held[0] is entry:
                    del self._held[0]
                    self._hand_out([entry])
        finally:
            self._task = None
