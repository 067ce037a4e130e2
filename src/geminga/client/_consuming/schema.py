"""Holds entries back until what decodes them is there: a schema version may have to be asked for first.

Entries leave in the order they came, so one that waits holds those behind it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from geminga.client._entry_batch import EntryBatch
from geminga.client._errors import PulsarException
from geminga.client.core.backoff import Backoff
from geminga.client.schema._protocol import MessageDecoder
from geminga.runtime import Raised, attempt_await, get_logger, spawn, wait_ms

if TYPE_CHECKING:
    from geminga.client._consuming.topic_consumer import TopicConsumer

_log = get_logger(__name__)


class SchemaGate:
    """The entries of one consumer of one topic that wait for their schema; at most what was prefetched."""

    __slots__ = ("_consumer", "_decoder", "_held", "_task")

    def __init__(self, consumer: TopicConsumer, decoder: MessageDecoder[object]) -> None:
        self._consumer = consumer
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
            self._task = spawn(self._prepare(), name=f"schema of {self._consumer.topic}")
        return True

    @property
    def is_holding(self) -> bool:
        """Whether entries are held back now."""
        return bool(self._held)

    def clear(self) -> None:
        """Everything comes again."""
        self._held.clear()

    def close(self) -> None:
        """Nothing is handed out any more."""
        self._held.clear()
        if self._task is not None:
            self._task.cancel()

    async def _prepare(self) -> None:
        consumer = self._consumer
        client = consumer.client
        backoff = Backoff(client.options.initial_backoff_ms, client.options.maximum_backoff_ms)
        try:
            while self._held:
                entry = self._held[0]
                version = entry.metadata.schema_version
                if not self._decoder.is_ready(version):
                    outcome = await attempt_await(self._decoder.prepare(version))
                    if isinstance(outcome, Raised):
                        if isinstance(outcome.error, PulsarException):
                            _log.warning("schema of %s: %s", consumer.topic, outcome.error)
                            now_ms = client.runtime.clock.monotonic() * 1000
                            await wait_ms(backoff.next_ms(now_ms, client.runtime.rng.random()))
                            continue
                        # Asking again would not help: the message is handed out, and its value() says what is wrong.
                        _log.error("schema of %s: %s", consumer.topic, outcome, exc_info=outcome.error)
                if self._held and self._held[0] is entry:
                    del self._held[0]
                    consumer.owner.on_entries([entry])
        finally:
            self._task = None
