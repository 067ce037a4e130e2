"""Publishing to a log: deduplication and other parts, broker entry metadata -> one append a turn -> receipts;
and who reads hears of it.

After a failed write the producer is disconnected, so that what it sent behind the failed entry can not overtake
it: the client connects again and sends everything unanswered again, in order. With deduplication the topic's
tail is read again first, because a failed write may have been stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.dedup_source import is_replicator
from geminga.broker.publishing.life import TopicLife
from geminga.broker.publishing.stamps import EntryStamps
from geminga.broker.topic.deduplication import TopicDeduplication
from geminga.broker.topic.parts import AdmitHook, Parts
from geminga.broker.topic.producer import is_terminal
from geminga.broker.topic.publish import PublishBatch, Publishing, TurnAppend
from geminga.managed_ledger import AppendResult, ManagedLedger
from geminga.managed_ledger.shared.entry import AppendDone
from geminga.model.errors import GemingaError, LedgerFencedError
from geminga.model.topic_name import TopicName
from geminga.runtime import Contained, Part, get_logger, spawn

if TYPE_CHECKING:
    from geminga.broker.topic.services import TopicServices

_log = get_logger(__name__)

#: The same failure of a producer is told again after so many seconds.
FAILURE_REPEAT_S: Final = 10.0


class Reading(Protocol):
    """A subscription."""

    def wake(self) -> None:
        """There is more to read."""


class LogPublishing(Publishing):
    """See the module."""

    __slots__ = (
        "_failure_told",
        "_ledger",
        "_life",
        "_name",
        "_part",
        "_parts",
        "_readers",
        "_services",
        "_stamps",
        "_turn",
        "pending_batches",
    )

    def __init__(
        self,
        name: TopicName,
        services: TopicServices,
        ledger: ManagedLedger,
        parts: Parts,
        life: TopicLife,
        readers: Mapping[str, Reading],
        part: Part,
    ) -> None:
        """``parts``: who has a word in what is stored, and hears of it. ``readers``: who is to read it, by name.
        ``part``: whose failure an append is.
        """
        super().__init__(services.runtime.clock)
        self._name = name
        self._services = services
        self._ledger = ledger
        self._parts = parts
        self._life = life
        self._readers = readers
        self._part = part
        config = services.config
        #: None: entries are stored as they came.
        self._stamps: EntryStamps | None = None
        if config.appends_broker_timestamp or config.appends_index:
            self._stamps = EntryStamps(has_time=config.appends_broker_timestamp, has_index=config.appends_index)
        #: What the present turn of the loop brought; None: nothing yet.
        self._turn: TurnAppend | None = None
        #: What was told of a publishing that failed, and when: clients come again at once.
        self._failure_told = ("", 0.0)
        #: Batches handed to the ledger and not answered in full.
        self.pending_batches = 0

    async def load(self) -> None:
        """Find out what the log has. Raises StorageError."""
        if self._stamps is not None:
            await self._stamps.follow(self._ledger)

    def publish(self, batch: PublishBatch) -> None:
        """Store the entries in order and answer each; never raises."""
        admit = self._parts.admit
        if not admit:
            self._store(batch)
            return
        batches: Iterable[PublishBatch] = (batch,)
        for hook in admit:
            batches = _admitted(hook, batches)
        for one in batches:
            if one.refusal is None:
                self._store(one)
            else:
                one.producer.refuse(one, one.refusal)
                if one.producer.is_refusing:
                    break

    def _store(self, batch: PublishBatch) -> None:
        entries = batch.entries
        size_bytes = 0
        for entry in entries:
            size_bytes += len(entry)
        batch.producer.begin(batch, size_bytes)
        if self._stamps is not None:
            entries = self._stamps.stamped(entries, self._clock.wall_ms())
        self.pending_batches += 1
        turn = self._turn
        if turn is None:
            # Batches that other connections bring in this turn of the loop join it: one append for all of them.
            self._turn = TurnAppend(batch, entries, self._part)
            asyncio.get_running_loop().call_soon(self.flush)
        else:
            turn.add(batch, entries)

    def flush(self) -> None:
        """Hand to the ledger what this turn of the loop brought."""
        turn, self._turn = self._turn, None
        if turn is not None:
            with Contained(self._part, "an append", is_last=True):
                if turn.error is None:
                    self._ledger.append(turn.entries, turn.appended)
                else:
                    turn.appended(AppendResult(-1, -1, 0, len(turn.entries), turn.error))

    def append_own(self, entries: list[bytes], done: AppendDone) -> None:
        """Store entries of the broker's own, behind all that was published before; ``done`` as of the ledger."""
        self.flush()
        if self._stamps is not None:
            entries = self._stamps.stamped(entries, self._clock.wall_ms())
        self._ledger.append(entries, done)

    def published(self, batch: PublishBatch, result: AppendResult) -> None:
        """Entries are on stable storage and answered."""
        for hook in self._parts.stored:
            hook(batch, result)
        if batch.is_answered:
            if not batch.has_failed:
                messages, size_bytes = batch.messages, batch.size_bytes
                producer = batch.producer
                self.messages_in += messages
                self.bytes_in += size_bytes
                now_s = self.last_published_s = self._clock.monotonic()
                self._services.publish_latency.add((now_s - batch.since_s) * 1000, batch.count)
                producer.messages_in += messages
                producer.bytes_in += size_bytes
            self._batch_done()

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """Entries could not be stored, or nobody knows; their producer was told."""
        producer = batch.producer
        if not is_terminal(error) and not producer.is_closed:
            self._tell_failure(f"publishing of {producer.name} failed: {error}")
        for hook in self._parts.failed:
            hook(batch, error)
        if not is_terminal(error):
            producer.disconnect()
            if self._turn is not None:
                # Clients send again what failed and all that came after it.
                self._turn.error = error
            if isinstance(error, LedgerFencedError):
                self.fenced()
        if batch.is_answered:
            self._batch_done()

    def readable(self) -> None:
        """There are entries that could not be read before: the ledger says so."""
        for reader in self._readers.values():
            reader.wake()

    def fenced(self) -> None:
        """Another broker owns the topic now, or did: whoever loads it next reads what that one stored."""
        services, name = self._services, self._name
        if not self._life.is_closing:
            spawn(services.unload_fenced(name), name=f"unload fenced {name}", part=services.whole)

    def _tell_failure(self, story: str) -> None:
        told, at_s = self._failure_told
        now_s = self._clock.monotonic()
        if story != told or now_s - at_s >= FAILURE_REPEAT_S:
            self._failure_told = story, now_s
            _log.warning("%s: %s", self._name, story)

    def _batch_done(self) -> None:
        self.pending_batches -= 1
        if not self.pending_batches:
            for hook in self._parts.settled:
                hook()

    # ---- what deduplication knows

    def is_stored(self, batch: PublishBatch) -> bool:
        """As :meth:`Publishing.is_stored`."""
        dedup = self._parts.find(TopicDeduplication)
        return dedup is not None and dedup.is_stored(batch)

    def last_sequence_id(self, producer_name: str) -> int:
        """As :meth:`Publishing.last_sequence_id`."""
        dedup = self._parts.find(TopicDeduplication)
        if dedup is None or is_replicator(producer_name):
            return -1
        return dedup.state.last_sequence_id(producer_name)


def _admitted(hook: AdmitHook, batches: Iterable[PublishBatch]) -> Iterator[PublishBatch]:
    for batch in batches:
        if batch.refusal is None:
            yield from hook(batch)
        else:
            yield batch
