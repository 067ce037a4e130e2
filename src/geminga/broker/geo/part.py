"""The part of a topic that is copied to other clusters: a replicator, and a cursor of its own, for each of them.

The cursor is made before the topic's new rules are answered, where the topic is then or at its beginning
(``replicationStartAt``), and found again by its name, which is Pulsar's. An operator may have made it beforehand, where
copying is to begin. It goes when the rules of all levels, which were read, leave its cluster out; never because
something could not be read.

Markers of replicated subscriptions are written by brokers, and come from others by their replicators. What a client
sends as one is refused: it would move, or make, subscriptions in other clusters that nobody let it use. So is what can
not be parsed, and what has numbers that a SEND may not have and that are not looked for in short metadata: a copy is
encoded anew and longer, and would be refused over there; and what is too large for a link. Nothing behind it would be
copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

from geminga.broker.policies.core.record_rows import REPLICATION
from geminga.broker.subscription.rates import Rates
from geminga.broker.topic.message_size import ADDED_BYTES_MAX, TOO_LARGE
from geminga.broker.topic.parts import CopiedTopic, PartTopic, RemoteClusters, Stats, TakesLeave
from geminga.broker.topic.publish import PublishBatch, Refusal, runs_without
from geminga.model.errors import NotAllowedError
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.model.position import EARLIEST, LATEST
from geminga.model.topic_name import REPLICATOR_PREFIX
from geminga.wire.pulsar.metadata import peek_metadata, split_entry
from geminga.wire.pulsar.numbers import BATCH_MESSAGES_MAX, LONG_MAX, metadata_refusal
from geminga.wire.pulsar.subscription_markers import MARKER_TYPES

#: Of the name of a replicator's cursor; the cluster's follows.
CURSOR_PREFIX: Final = REPLICATOR_PREFIX


#: Of a cursor that an operator made before its cluster was named (``cursor_properties``): it stays until it is, or is
#: deleted by name, and then goes as any other.
MADE_BEFORE: Final = {"geminga.made-before-replication": "true"}
#: Of what a client sends as if it were a broker.
MARKER_REFUSED: Final = Refusal(
    NotAllowedError(
        f"marker_type is one of {', '.join(map(str, sorted(MARKER_TYPES)))}: only brokers and their replicators write "
        "markers of replicated subscriptions"
    )
)
#: Of a frame, what a copy takes beside the message as it came: the command, and what is added to its metadata.
COPY_ROOM_BYTES: Final = 256 + ADDED_BYTES_MAX
#: Of what no replicator could copy, nor pass over without a word: nothing behind it would be copied.
DAMAGED_REFUSED: Final = Refusal(
    NotAllowedError("the message's metadata can not be parsed, and the topic is copied to other clusters")
)


class GeoReplication(TakesLeave):
    """See the module."""

    __slots__ = ("_clusters", "_topic", "rates", "replicators")

    name: ClassVar[str] = "geoReplication"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self._clusters = _clusters_around(topic)
        #: By cluster.
        self.replicators: dict[str, CopiedTopic] = {}
        #: The same, of what is copied there and what comes from there; kept by the statistics.
        self.rates: dict[str, Rates] = {}

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where its rules name another cluster. Those of topics of the broker's own do not: they stay here."""
        return bool(_clusters_of(topic))

    @classmethod
    async def prepare(cls, topic: PartTopic, *, is_wanted: bool) -> None:
        """Have a cursor for each cluster that is named; that of another would keep everything from being trimmed.

        Where others are named and this one is not, all stay: they say what the others have not, and it may come back.
        """
        del is_wanted
        clusters, wanted = _clusters_around(topic), _clusters_of(topic)
        part = topic.parts.find(cls)
        if part is not None:
            await part.stop_others(wanted)
        named: tuple[str, ...] = topic.rules[REPLICATION]
        if named and clusters.local not in named:
            return
        for name, cursor in [*topic.ledger.cursors.items()]:
            if topic.is_closing:
                return  # by now they may be the next owner's, and its rules others
            is_made_before = cursor.cursor_properties == MADE_BEFORE
            if name.startswith(CURSOR_PREFIX) and name.removeprefix(CURSOR_PREFIX) not in wanted:
                # It may have been named a moment ago, by who had the topic.
                if not is_made_before and await topic.services.holds(topic.name, topic.rules) and not topic.is_closing:
                    await topic.ledger.delete_cursor(name)
            elif is_made_before:
                await cursor.set_cursor_properties({})
        initial = EARLIEST if clusters.starts_at_earliest else LATEST
        for cluster in sorted(wanted):
            await topic.ledger.open_cursor(CURSOR_PREFIX + cluster, initial=initial)

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """Refuse what can not be parsed, or would be refused where it is copied to, and markers that are no
        replicator's, and nothing else of the batch."""
        # Each replicator parses them as well: what that takes is a small part of a copy.
        is_copier = batch.producer.copies_from is not None
        if is_copier:
            return (batch,) if all(map(_is_whole, batch.entries)) else _taken_apart(batch, _damage_of)
        bytes_max = self._topic.services.config.message_bytes_max
        if max(map(len, batch.entries)) <= bytes_max and all(map(_is_plain, batch.entries)):
            return (batch,)
        return _taken_apart(batch, partial(_refusal_of, bytes_max=bytes_max))

    async def stop_others(self, wanted: frozenset[str]) -> None:
        """Copy no more to clusters but these, and return when their links are closed."""
        gone = [self.replicators.pop(cluster) for cluster in [*self.replicators] if cluster not in wanted]
        await _ended([replicator.stop() for replicator in gone])

    async def expire(self, ttl_ms: int) -> None:
        """Pass over what is older than the time to live, towards each cluster. Raises StorageError."""
        from geminga.broker.geo import backlog  # with the first that is not copied in time

        topic = self._topic
        for copied in [*self.replicators.values()]:
            if copied.backlog:
                now_ms = topic.services.runtime.clock.wall_ms
                is_wanted = partial(self._is_still, copied, ttl_ms)
                await backlog.expire(topic.ledger, copied, ttl_ms, now_ms, is_wanted=is_wanted)

    def _is_still(self, copied: CopiedTopic, ttl_ms: int) -> bool:
        return self._topic.rules.ttl_ms == ttl_ms and self.replicators.get(copied.cluster) is copied

    def policies_changed(self) -> None:
        """Have a replicator for each cluster that is named."""
        for cluster in sorted(_clusters_of(self._topic) - self.replicators.keys()):
            cursor = self._topic.ledger.cursors.get(CURSOR_PREFIX + cluster)
            # Rules may have come since this change was prepared: who brought them waits to prepare theirs.
            if cursor is not None:
                self.replicators[cluster] = self._clusters.copy(self._topic, cluster, cursor)

    async def leave(self) -> None:
        """Nothing is copied any more when that is answered."""
        await self.stop_others(frozenset())

    async def close(self) -> None:
        """Another broker may copy from here on."""
        await _ended(self._stop())

    def drop(self) -> None:
        """Nothing more is copied."""
        self._stop()

    async def delete(self) -> None:
        """The cursors go with the ledger."""
        await self.close()

    def stats(self) -> Stats:
        """Of each cluster: what its replicator does, why nothing is copied, what is left, what it gave up."""
        return {
            cluster: {
                "state": replicator.state,
                "reason": replicator.reason,
                "backlog": replicator.backlog,
                "expired": replicator.expired,
                "restarts": replicator.restarts,
                "markDeletePosition": f"{replicator.cursor.mark_delete_position}",
            }
            for cluster, replicator in self.replicators.items()
        }

    def _stop(self) -> list[asyncio.Task[None] | None]:
        return [replicator.stop() for replicator in self.replicators.values()]


def _clusters_around(topic: PartTopic) -> RemoteClusters:
    """Registered where there are other clusters only."""
    clusters = topic.services.remote_clusters
    assert clusters is not None
    return clusters


def _clusters_of(topic: PartTopic) -> frozenset[str]:
    """None where this one is not named: what is said there is of a cluster that had another name."""
    named: tuple[str, ...] = topic.rules[REPLICATION]
    local = _clusters_around(topic).local
    return frozenset(named) - {local} if local in named else frozenset()


def _is_whole(entry: bytes) -> bool:
    return peek_metadata(entry) is not None


def _is_plain(entry: bytes) -> bool:
    """Whether it can be parsed, is no marker, and has no number that is refused where metadata are looked at."""
    found = peek_metadata(entry)
    return (
        found is not None
        and not found.marker_type
        and 0 <= found.num_messages_in_batch <= BATCH_MESSAGES_MAX
        and found.sequence_id <= LONG_MAX
        and found.highest_sequence_id <= LONG_MAX
        and found.publish_time <= LONG_MAX
        and min(found.num_chunks_from_msg, found.chunk_id, found.total_chunk_msg_size) >= 0
    )


def _taken_apart(batch: PublishBatch, refusal_of: Callable[[bytes], Refusal | None]) -> Iterator[PublishBatch]:
    for run in runs_without(batch, lambda entry: refusal_of(entry) is not None, DAMAGED_REFUSED):
        if run.refusal is None:
            yield run
            continue
        for index in range(run.count):
            one = run.cut(index, index + 1, 0)
            one.refusal = refusal_of(one.entries[0])
            yield one


def _damage_of(entry: bytes) -> Refusal | None:
    return None if _is_whole(entry) else DAMAGED_REFUSED


def _refusal_of(entry: bytes, *, bytes_max: int) -> Refusal | None:
    found, offset = split_entry(entry)
    if found is None:
        return DAMAGED_REFUSED
    if len(entry) - offset > bytes_max or len(entry) > bytes_max + FRAME_PADDING_BYTES - COPY_ROOM_BYTES:
        return TOO_LARGE
    if found.marker_type in MARKER_TYPES:
        return MARKER_REFUSED
    # What the command says of a transaction was looked at before.
    text = metadata_refusal(entry, True)
    return Refusal(NotAllowedError(text)) if text else None


async def _ended(stopped: Sequence[asyncio.Task[None] | None]) -> None:
    tasks = [task for task in stopped if task is not None]
    if tasks:
        await asyncio.wait(tasks)
