"""Deduplication of one topic: the shell around :mod:`.core.dedup`.

Sequence ids are kept by a cursor of the broker's own (``pulsar.dedup``, as in Pulsar): its properties are a
snapshot of the highest stored id of each producer, its mark-delete position says up to where. Recovery takes the
snapshot and replays the entries behind it. The cursor also keeps what is not in a snapshot from being trimmed.

Entries that a replay can not read leave the topic loaded. A producer that may have sent any of them is kept out with
an error, for the last sequence id that it would be told is a promise; and no snapshot is taken, so that the next load
reads them if they can be read by then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from geminga.broker.core.dedup import UNKNOWN_TEXT, Deduplication, Verdict
from geminga.broker.core.dedup_source import (
    FORGOTTEN_PROPERTY,
    as_properties,
    forgotten_in,
    forgotten_text,
    is_forgotten,
    is_replicator,
    of_properties,
    shown,
    source_cluster,
    source_name,
    source_of,
    sources_in,
    with_forgotten,
)
from geminga.broker.core.dedup_source import judge as judge_sources
from geminga.broker.core.dedup_source import remember as remember_sources
from geminga.broker.policies.config import PolicyConfig
from geminga.broker.publishing.stamps import message_count
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.broker.topic.ports import TRANSACTIONS_PROPERTY
from geminga.broker.topic.producer import Producer, is_terminal
from geminga.broker.topic.publish import DUPLICATE, PublishBatch, Refusal
from geminga.managed_ledger import AppendResult, Entry, ManagedCursor
from geminga.managed_ledger.replaying import replay
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    LedgerFencedError,
    NotAllowedError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import DEDUP_CURSOR
from geminga.model.txn_id import TxnId
from geminga.runtime import Contained, get_logger, next_turn, spawn
from geminga.wire.pulsar.markers import COMMIT, is_end, transaction_of
from geminga.wire.pulsar.metadata import peek_metadata, text_of
from geminga.wire.pulsar.numbers import as_long

_log = get_logger(__name__)

#: Its text property: JSON, of each producer the sequence ids of aborted transactions below its highest stored one, as
#: pairs of the first and the last.
FREE_PROPERTY: Final = "geminga.aborted-sequence-ids"
#: One read of a replay.
REPLAY_ENTRIES: Final = 500
REPLAY_BYTES: Final = 4 << 20
#: Seconds a producer that comes back waits until what it sent before is stored or known to be lost.
KNOWN_WAIT_S: Final = 10.0
#: Producers whose sequence ids are shown.
PRODUCERS_SHOWN_MAX: Final = 100
#: Seconds between two tries to find out what a failed write left behind.
SETTLE_RETRY_S: Final = 1.0


class TopicDeduplication(TopicPart):
    """Judges messages, follows what is stored, takes snapshots."""

    name: ClassVar[str] = "deduplication"

    __slots__ = (
        "_cluster",
        "_cursor",
        "_dirty_since_ms",
        "_is_closed",
        "_is_saving",
        "_is_settling",
        "_last_stored",
        "_stored_since_snapshot",
        "_topic",
        "_tried_at",
        "_turn",
        "_waiting",
        "forgotten",
        "state",
    )

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        #: This one's name.
        self._cluster = topic.services.config.cluster_name
        self.state = Deduplication()
        #: Producers that wait for their last sequence id to be known.
        self._waiting: list[asyncio.Future[None]] = []
        self._cursor: ManagedCursor | None = None
        #: Everything up to here is in ``state``.
        self._last_stored = EARLIEST
        self._stored_since_snapshot = 0
        #: When the first entry after the last snapshot was stored, milliseconds; None: the snapshot is up to date.
        self._dirty_since_ms: int | None = None
        self._is_saving = False
        #: How many of them there were when the last snapshot failed; 0: it did not.
        self._tried_at = 0
        #: Snapshots are taken one at a time; None until the first.
        self._turn: asyncio.Lock | None = None
        self._is_settling = False
        self._is_closed = False
        #: By cluster, the last entry that does not say how far it is (:func:`forget_source`).
        self.forgotten: dict[str, Position] = {}

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """As broker, namespace and topic say."""
        return topic.rules.deduplication

    @classmethod
    async def prepare(cls, topic: PartTopic, *, is_wanted: bool) -> None:
        """The cursor that is left of an earlier one would keep everything from being trimmed."""
        if is_wanted or DEDUP_CURSOR not in topic.ledger.cursors:
            return
        # It may have been switched on a moment ago, by who had the topic.
        if await topic.services.holds(topic.name, topic.rules) and not topic.is_closing:
            await topic.ledger.delete_cursor(DEDUP_CURSOR)

    # ---- publishing

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """Judge each entry; neighbours with the same verdict stay together."""
        name = batch.producer.name
        if batch.producer.copies_from is not None:
            found, batch.sources = judge_sources(self.state, batch.entries, self._cluster)
            if found.count((Verdict.ACCEPTED, True)) == batch.count:
                return (batch,)
            return self._runs(batch, found)
        judge = self.state.published
        txn_id = None if batch.transaction is None else TxnId(*batch.transaction)
        sequence_ids = batch.sequence_ids
        accepted = 0
        if not batch.chunks:
            verdicts = []
            for sequence_id, highest in sequence_ids:
                verdict = judge(name, sequence_id, highest, txn_id)
                verdicts.append((verdict, True))
                accepted += verdict is Verdict.ACCEPTED
        else:
            verdicts = [
                (Verdict.ACCEPTED, False)
                if _is_chunk_before_last(entry)
                else (judge(name, sequence_id, highest, txn_id), True)
                for entry, (sequence_id, highest) in zip(batch.entries, sequence_ids, strict=True)
            ]
        if accepted == batch.count:
            return (batch,)
        return self._runs(batch, verdicts)

    def _runs(self, batch: PublishBatch, verdicts: list[tuple[Verdict, bool]]) -> Iterator[PublishBatch]:
        start = 0
        for end in range(1, len(verdicts) + 1):
            if end < len(verdicts) and verdicts[end] == verdicts[start]:
                continue
            verdict, is_recorded = verdicts[start]
            if verdict is Verdict.ACCEPTED:
                run = batch.cut(start, end, sum(map(message_count, batch.entries[start:end])))
                run.is_recorded = is_recorded
            else:
                run = batch.cut(start, end, 0)
                run.refusal = self._refusal(run, verdict)
            yield run
            start = end

    def _refusal(self, run: PublishBatch, verdict: Verdict) -> Refusal:
        if verdict is Verdict.DUPLICATE:
            return DUPLICATE
        if verdict is Verdict.UNKNOWN:
            return Refusal(UnavailableError(UNKNOWN_TEXT), disconnects=True)
        first, last = run.sequence_ids[0][0], run.sequence_ids[-1][1]
        if verdict is Verdict.HELD:
            return Refusal(
                NotAllowedError(
                    f"sequence ids from {first} to {last} were published in another transaction, which is open: "
                    "whether they count is known when it ends"
                )
            )
        return Refusal(
            NotAllowedError(
                f"the batch begins with sequence id {first}, which is stored already, and ends with new ones up to "
                f"{last}: end a batch at {self.state.last_sequence_id(run.producer.name)}"
            )
        )

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """The next entries of a batch are on stable storage."""
        if batch.is_recorded:
            end = batch.answered_count
            name = batch.producer.name
            pairs = batch.sequence_ids[end - result.count : end]
            if batch.producer.copies_from is not None:
                if batch.sources is None:  # taken up before topics of this kind were deduplicated
                    batch.sources = sources_in(self.state, batch.entries, self._cluster)
                remember_sources(self.state, batch.sources[end - result.count : end])
            elif batch.transaction is not None or name in self.state.runs:
                txn_id = None if batch.transaction is None else TxnId(*batch.transaction)
                for first, last in pairs:
                    self.state.stored_in(name, first, last, txn_id)
            else:
                self.state.stored(name, max([pair[1] for pair in pairs]))
        if self._waiting:
            self._changed()
        self._last_stored = Position(result.ledger_id, result.first_entry_id + result.count - 1)
        if not self._stored_since_snapshot:
            self._dirty_since_ms = self._now_ms()
        self._stored_since_snapshot += result.count
        if self._stored_since_snapshot - self._tried_at >= self._topic.services.config.deduplication_snapshot_entries:
            self._save_soon()

    def is_stored(self, batch: PublishBatch) -> bool:
        """Whether all of it is there already, so that it needs no more than its receipts."""
        if batch.producer.copies_from is not None:
            return False
        txn_id = None if batch.transaction is None else TxnId(*batch.transaction)
        return not self.state.is_settling and all(
            self.state.judged(batch.producer.name, first, last, txn_id) is Verdict.DUPLICATE
            for first, last in batch.sequence_ids
        )

    def transaction_ended(self, txn_id: TxnId, *, is_committed: bool) -> None:
        """Its sequence ids are stored for good, or free again."""
        self.state.transaction_ended(txn_id, is_committed=is_committed)
        if self._waiting:
            self._changed()
        if self._dirty_since_ms is None:
            self._dirty_since_ms = self._now_ms()

    async def admit_producer(self, producer: Producer) -> None:
        """Raises UnavailableError if what it sent before may be in entries that can not be read."""
        if producer.copies_from is not None:
            return  # each of its entries is judged by where it comes from
        if producer.is_name_new:
            self.state.made_name(producer.name)
        elif self.state.is_in_doubt(producer.name):
            ledgers = ", ".join(map(str, sorted(self._topic.ledger.stored.gaps)))
            raise UnavailableError(
                f"What producer {producer.name} sent to {self._topic.name} last is not known: messages that it may "
                f"have sent, in ledgers {ledgers}, can not be read. It may go on when they can be, or when they are "
                "given up (geminga lake skip-hole)"
            )

    async def producer_joined(self, producer: Producer) -> None:
        """It is told its last sequence id: that must be known."""
        await self.until_known(producer.name)
        if not self._is_closed and self._topic.producers.get(producer.name) is producer:
            self.state.connected(producer.name)

    def producer_left(self, producer: Producer) -> None:
        """Its sequence ids are kept for a while."""
        if not is_replicator(producer.name):
            self.state.gone(producer.name, self._now_ms())

    async def until_known(self, producer_name: str) -> None:
        """Until the producer's last sequence id is the truth, so that it begins behind what it sent before.

        Gives up after a time: what is still under way then is judged message by message.
        """
        try:
            async with asyncio.timeout(KNOWN_WAIT_S):
                while not self.state.is_known(producer_name) and not self._is_closed:
                    change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(change)
                    await change
        except TimeoutError:
            _log.warning("%s: what producer %s sent before is still not stored", self._topic.name, producer_name)

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)

    def stats(self) -> Stats:
        """What is known, and what a restart would have to replay."""
        cursor = self._cursor
        persisted = self.state.persisted
        newest = list(persisted.items())[-PRODUCERS_SHOWN_MAX:]
        return {
            "producers": len(persisted),
            "lastStoredPosition": str(self._last_stored),
            "snapshotPosition": str(cursor.mark_delete_position) if cursor is not None else None,
            "entriesSinceSnapshot": self._stored_since_snapshot,
            "isSettling": self.state.is_settling,
            "unreadableLedgers": sorted(self._topic.ledger.stored.gaps) if self.state.has_holes else [],
            "highestSequenceIds": {name: shown(name, number) for name, number in newest},
        }

    # ---- after a failed write

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """Nobody knows what of the writes under way is stored: judge nothing until the tail was read again."""
        del batch
        if not is_terminal(error):
            self.state.begin_settling()

    def settled(self) -> None:
        """No write is under way: what a failed one left behind can be found out."""
        if self.state.is_settling and not self._is_settling and not self._is_closed:
            self._is_settling = True
            spawn(self._settle(), name=f"settle deduplication of {self._topic.name}", part=self._topic)

    async def _settle(self) -> None:
        try:
            # First the end of the ledger that failed is fixed: recovery may find there what nobody was told of.
            await self._topic.ledger.roll(only_failed=True)
            await self._replay()
        except LedgerFencedError:
            # Another broker owns the topic now: what is stored is its to say.
            if not self._topic.is_closing:
                services, name = self._topic.services, self._topic.name
                spawn(services.unload_fenced(name), name=f"unload fenced {name}", part=services.whole)
            return
        except StorageError as error:
            _log.warning("%s: can not read the tail after a failed write: %s", self._topic.name, error)
            asyncio.get_running_loop().call_later(SETTLE_RETRY_S, self._settle_again)
            return
        self._is_settling = False
        if not self._topic.publishing.pending_batches:
            self.state.settled()
            self._changed()

    def _settle_again(self) -> None:
        with Contained(self._topic, "settling deduplication"):
            self._is_settling = False
            self.settled()

    # ---- recovery and snapshots

    async def load(self) -> None:
        """Take the snapshot and replay what is behind it; raises StorageError."""
        ledger = self._topic.ledger
        self._cursor = await ledger.open_cursor(DEDUP_CURSOR, initial=EARLIEST)
        self.forgotten = forgotten_in(ledger.stored.properties)
        for name, number in of_properties(self._cursor.properties):
            if not is_replicator(name) or (
                not is_forgotten(self.forgotten, source_cluster(name), self._cursor.mark_delete_position)
                and self.state.takes_source(name)
            ):
                self.state.stored(name, number)
        self.state.runs.restored(free_ids(self._cursor.cursor_properties.get(FREE_PROPERTY, "")))
        self._last_stored = self._cursor.mark_delete_position
        await self._load_entries()
        now_ms = self._now_ms()
        for name in self.state.persisted:
            # Where a replicator is, is never forgotten: it may be away for long, and goes on there.
            if name not in self._topic.producers and not is_replicator(name):
                self.state.gone(name, now_ms)

    async def _load_entries(self) -> None:
        """Replay what is behind the snapshot, past what can not be read."""
        ledger = self._topic.ledger
        has_transactions = TRANSACTIONS_PROPERTY in ledger.stored.properties
        await replay(
            ledger,
            ledger.ledgers.next_position(self._last_stored),
            self._take,
            lambda _: self.state.holed(has_transactions=has_transactions),
            entries_max=REPLAY_ENTRIES,
            bytes_max=REPLAY_BYTES,
        )
        self._last_stored = max(self._last_stored, ledger.extent.last_confirmed_position)

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        """As often as configured."""
        return config.deduplication_check_s

    def upkeep(self) -> None:
        """Forget producers that left long ago; take a snapshot if the last one is old."""
        config, now_ms = self._topic.services.config, self._now_ms()
        self.state.forget_inactive(now_ms - config.deduplication_inactivity_minutes * 60_000)
        interval_ms = self._topic.rules.dedup_snapshot_ms
        if interval_ms and self._dirty_since_ms is not None and now_ms - self._dirty_since_ms >= interval_ms:
            self._save_soon()

    async def _replay(self) -> None:
        ledger = self._topic.ledger
        while self._last_stored < ledger.extent.last_confirmed_position:
            start = ledger.ledgers.next_position(self._last_stored)
            entries = await ledger.reader.read_range(start, REPLAY_ENTRIES, REPLAY_BYTES, is_limited=False)
            if not entries:
                break
            await next_turn()  # what is in memory is read within the call
            self._take(entries)

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._replayed(entry)
        self._last_stored = max(self._last_stored, entries[-1].position)
        self._stored_since_snapshot += len(entries)
        self._dirty_since_ms = self._now_ms()

    def _replayed(self, entry: Entry) -> None:
        metadata = peek_metadata(entry.data)
        if metadata is None or not isinstance(metadata.producer_name, str):
            return
        if metadata.replicated_from:
            source = source_of(metadata, self._cluster)
            if (
                source is not None
                and not is_forgotten(self.forgotten, text_of(metadata.replicated_from), entry.position)
                and self.state.takes_source(source[0])
            ):
                self.state.stored_in(*source, source[1], None)
            return
        txn_id = transaction_of(metadata)
        if metadata.marker_type:
            if txn_id is not None and is_end(metadata):
                self.state.transaction_ended(txn_id, is_committed=metadata.marker_type == COMMIT)
            return
        if metadata.HasField("chunk_id") and metadata.chunk_id < metadata.num_chunks_from_msg - 1:
            return
        first, last = as_long(metadata.sequence_id), as_long(metadata.highest_sequence_id)
        self.state.stored_in(metadata.producer_name, first, last, txn_id)

    async def close(self) -> None:
        """Save a snapshot, so that the next load replays little."""
        self._is_closed = True
        self._changed()
        if self._stored_since_snapshot and not self._is_saving:
            await self._save()

    def drop(self) -> None:
        """Deduplication was switched off, or the topic broke: nothing is saved any more."""
        self._is_closed = True
        self._changed()

    async def delete(self) -> None:
        """The cursor goes with the ledger."""
        self.drop()

    def _now_ms(self) -> int:
        return self._topic.services.runtime.clock.wall_ms()

    def _save_soon(self) -> None:
        if not self._is_saving and not self._is_closed and not self.state.has_holes:
            self._is_saving = True
            spawn(self._save(), name=f"save sequence ids of {self._topic.name}", part=self._topic)

    async def _save(self) -> None:
        try:
            await self.snapshot()
        except GemingaError as error:
            _log.warning("%s: sequence ids could not be saved: %s", self._topic.name, error)
        finally:
            self._is_saving = False

    async def snapshot(self) -> None:
        """Save what is stored by now: the entries that told it may go. Raises GemingaError."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        # One after the other: an older snapshot must not come behind a newer one.
        async with self._turn:
            await self._take_snapshot()

    async def save(self) -> None:
        """As :meth:`snapshot`, so that a restart replays nothing of what is stored by now. Raises StorageError."""
        if self.state.has_holes:
            raise StorageError("sequence ids are not saved while ledgers that may have newer ones can not be read")
        if self._stored_since_snapshot:
            await self.snapshot()
        if self._cursor is not None:
            await self._cursor.flush()

    async def _take_snapshot(self) -> None:
        if self.state.has_holes:
            # Behind it the next load would not look for what is not known.
            return
        position = self._last_stored
        snapshot = self.state.snapshot(self._topic.services.config.deduplication_producers_max)
        free = free_text(self.state.runs.free())
        stored, self._stored_since_snapshot, self._dirty_since_ms = self._stored_since_snapshot, 0, None
        self._tried_at, cursor, is_saved = 0, self._cursor, False
        try:
            if cursor is not None:
                # The snapshot first: replaying entries it covers is harmless, missing some is not. (What of it open
                # transactions published is replayed: the cursor stays behind the read limit.)
                if free != cursor.cursor_properties.get(FREE_PROPERTY, ""):
                    await cursor.set_cursor_properties({FREE_PROPERTY: free} if free else {})
                await cursor.set_properties(as_properties(snapshot))
                cursor.acknowledge_cumulative(position)
            is_saved = True
        finally:
            if not is_saved:
                # As much later as after one that was saved: neither at each message, nor never.
                self._stored_since_snapshot += stored
                self._tried_at, self._dirty_since_ms = self._stored_since_snapshot, self._now_ms()


def sources_of(dedup: TopicDeduplication) -> dict[str, str]:
    """By cluster: up to where its messages count as repeated, ``ledger:entry`` over there."""
    return {
        source_cluster(name): f"{shown(name, number)}"
        for name, number in dedup.state.persisted.items()
        if is_replicator(name)
    }


async def forget_source(dedup: TopicDeduplication, cluster: str) -> str:
    """Take away up to where a cluster's messages count as repeated, and answer what it was; durable on return.

    Nothing stored by now says it any more, in a replay neither. Raises NotFoundError where nothing is known of the
    cluster, ConflictError while a hole may have something newer, UnavailableError while entries of it are being
    written, PreconditionFailedError for too many, and StorageError, MetadataError: then nothing was taken away.
    """
    topic, state = dedup._topic, dedup.state
    name = source_name(cluster, dedup._cluster)
    if name not in state.persisted:
        known = ", ".join(sources_of(dedup)) or "no cluster"
        raise NotFoundError(f"{topic.name} has source positions of {known}, not of {cluster}")
    if state.has_holes:
        raise ConflictError("ledgers that may have newer source positions can not be read: see the topic's holes")
    # Who writes now connects again, and is judged by what is known then.
    for producer in [*topic.producers.values()]:
        if producer.copies_from == cluster:
            producer.disconnect()
    if dedup._turn is None:
        dedup._turn = asyncio.Lock()
    async with dedup._turn:
        await dedup.until_known(name)
        if dedup._is_closed or not state.is_known(name) or name not in state.persisted:
            raise UnavailableError(f"entries of {cluster} are being written to {topic.name}: try it again")
        infos = topic.ledger.ledgers.infos
        first_id = infos[0].ledger_id if infos else 0
        before, forgotten = dedup.forgotten, with_forgotten(dedup.forgotten, cluster, dedup._last_stored, first_id)
        # Before it is noted: what comes meanwhile is behind it, and counts.
        number, is_noted = state.forget_source(name), False
        dedup.forgotten = forgotten
        try:
            await topic.ledger.stored.add_properties({FORGOTTEN_PROPERTY: forgotten_text(forgotten)})
            is_noted = True
        finally:
            if not is_noted:
                dedup.forgotten = before
                if state.takes_source(name):
                    state.stored(name, number)
    # For brokers that do not know the property.
    dedup._is_saving = True
    await dedup._save()
    return f"{shown(name, number)}"


def free_text(free: Mapping[str, list[tuple[int, int]]]) -> str:
    """As it is stored (:data:`FREE_PROPERTY`); nothing if there is nothing."""
    return json.dumps(free, separators=(",", ":")) if free else ""


def free_ids(text: str) -> dict[str, list[tuple[int, int]]]:
    """The reverse of :func:`free_text`."""
    return {name: [(first, last) for first, last in pairs] for name, pairs in json.loads(text or "{}").items()}


def _is_chunk_before_last(entry: bytes) -> bool:
    metadata = peek_metadata(entry)
    return (
        metadata is not None and metadata.HasField("chunk_id") and metadata.chunk_id < metadata.num_chunks_from_msg - 1
    )
