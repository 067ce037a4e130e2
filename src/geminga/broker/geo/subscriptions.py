"""The part of a topic that keeps its replicated subscriptions alike in all its clusters.

::

    new messages --> request marker --> answers of all others (twice, where they are several) --> snapshot marker
    a subscription reads the snapshot marker, later acknowledges up to it --> update marker --> the others follow

Markers of other clusters come to it by their replicators here, in the order of the log. Nothing is written to a topic
that has nothing new, and no snapshot is begun while another cluster can not be reached: it would not be complete.
A position only moves forward; a subscription that is missing is made at the beginning of the topic first.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import ClassVar, Final

from geminga.broker.geo.core.snapshots import AfterAnswer, SnapshotBuilder
from geminga.broker.geo.followers import Followers, snapshot_in
from geminga.broker.geo.part import GeoReplication
from geminga.broker.geo.updates import Updates, append_marker
from geminga.broker.topic.parts import PartTopic, Stats, WatchesSubscriptions
from geminga.managed_ledger import AppendResult
from geminga.model.errors import GemingaError, StorageError
from geminga.model.position import Position
from geminga.runtime import Bell, Contained, get_logger, spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.subscription_markers import (
    MARKER_TYPES,
    InCluster,
    Request,
    Response,
    Snapshot,
    Update,
    decode_marker,
    encode_local_snapshot,
    encode_request,
    encode_response,
)

_log = get_logger(__name__)

#: Snapshots that are being made at the same time, where links are slower than they are frequent.
PENDING_MAX: Final = 30
#: Entries that may all be markers: of more than that one is taken for a message.
MARKERS_MAX: Final = 32
READ_BYTES: Final = 1 << 20


class SnapshotCounts:
    """What the metrics of a broker say of all its topics."""

    __slots__ = ("completed", "completed_ms", "held", "pending", "timed_out")

    def __init__(self) -> None:
        self.pending = 0
        self.timed_out = 0
        #: How many were completed, and how long all of them took together.
        self.completed = 0
        self.completed_ms = 0
        #: Topics that can make none now.
        self.held = 0


#: Of this process, as Pulsar's metrics are.
COUNTS: Final = SnapshotCounts()


class ReplicatedSubscriptions(WatchesSubscriptions):
    """See the module."""

    __slots__ = (
        "_covered",
        "_followers",
        "_has_news",
        "_heard",
        "_is_answered",
        "_is_stopped",
        "_local",
        "_more",
        "_pending",
        "_reason",
        "_remove_listener",
        "_task",
        "_topic",
        "_updates",
        "completed_ms",
        "last_id",
        "timed_out",
    )

    name: ClassVar[str] = "replicatedSubscriptions"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        clusters = topic.services.remote_clusters
        assert clusters is not None
        self._local = clusters.local
        #: By id, in the order in which they were begun.
        self._pending: dict[str, SnapshotBuilder] = {}
        #: Of each other cluster, its last marker that was looked at.
        self._heard: dict[str, Position] = {}
        #: Where the newest snapshot was asked for: what is behind that is new, for the answer may have been given
        #: before it came there. None: not known.
        self._covered: Position | None = None
        #: Something is behind it, and no snapshot was begun since that was found.
        self._has_news = False
        #: The last one that ended did so by all answers.
        self._is_answered = False
        self._more = Bell()
        self._followers = Followers(topic, self._more.ring)
        self._updates = Updates(topic, self._followers, self._more.ring)
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None
        self._remove_listener = topic.ledger.tail.add_listener(self._more.ring)
        #: The newest snapshot, and when it was complete, ms since the epoch; empty and 0: none by this process.
        self.last_id = ""
        self.completed_ms = 0
        self._reason = ""
        #: Snapshots that were given up since the topic was loaded.
        self.timed_out = 0

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where a topic is in other clusters, too, and the broker has not been told to leave subscriptions alone."""
        return topic.services.config.replicated_subscriptions_enabled and GeoReplication.is_wanted(topic)

    async def load(self) -> None:
        """Find the newest snapshot, if it is near the end of the topic: one that nothing new follows needs no other."""
        ledger = self._topic.ledger
        first = ledger.extent.last_confirmed_position
        for _ in range(MARKERS_MAX - 1):
            first = ledger.ledgers.previous_position(first)
        try:
            entries = await ledger.reader.read_range(max(first, ledger.ledgers.first_position), MARKERS_MAX, READ_BYTES)
        except GemingaError as error:
            _log.info("%s: its newest snapshot of subscriptions can not be read: %s", self._topic.name, error)
            return
        for entry in entries:
            found = snapshot_in(entry)
            if found is not None:
                self._covered = found.local

    def policies_changed(self) -> None:
        """Look after what is replicated by now."""
        self.subscriptions_changed()

    def subscriptions_changed(self) -> None:
        """As of the part: one may be replicated now."""
        if self._followers.attach():
            self._begin()
            self._more.ring()

    async def close(self) -> None:
        """The next owner begins anew; what was acknowledged by now is told."""
        task = self._stop()
        self._updates.tell()
        if task is not None:
            await asyncio.wait([task])

    def drop(self) -> None:
        """Nothing more is written."""
        self._stop()

    async def delete(self) -> None:
        """The topic goes."""
        self._stop()

    def stats(self) -> Stats:
        """What was made last, and why nothing can be made."""
        return {
            "lastCompletedSnapshotId": self.last_id,
            "lastCompletedSnapshotTimestamp": self.completed_ms,
            "pendingSnapshots": len(self._pending),
            "timedOutSnapshots": self.timed_out,
            "reason": self.reason,
            "subscriptions": self._followers.stats(),
        }

    @property
    def reason(self) -> str:
        """Why no snapshot can be made now; empty: it can."""
        return self._reason

    def _say(self, reason: str) -> None:
        COUNTS.held += bool(reason) - bool(self._reason)
        self._reason = reason

    # ---- what others tell

    def heard(self, cluster: str, position: Position, metadata: pb.MessageMetadata, payload: bytes) -> None:
        """The replicator to ``cluster`` read a marker at ``position``, some more than once."""
        if self._is_stopped or metadata.marker_type not in MARKER_TYPES:
            return
        with Contained(self._topic, "a marker of another cluster"):
            # It is no message of anybody's: subscriptions without consumers are moved past it.
            self._begin()
            self._more.ring()
            before = self._heard.get(cluster)
            if metadata.replicated_from != cluster or (before is not None and position <= before):
                return
            self._heard[cluster] = position
            marker = decode_marker(metadata.marker_type, payload)
            if isinstance(marker, Request):
                if marker.source == cluster:
                    self._answer(marker)
            elif isinstance(marker, Response):
                self._answered(marker, cluster, position)
            elif isinstance(marker, Update):
                for found in marker.positions:
                    if found.cluster == self._local:
                        self._followers.follow(marker.subscription, found.position, metadata.publish_time)
            elif marker is None:
                _log.warning("%s: the marker at %s can not be parsed", self._topic.name, position)

    def _answer(self, request: Request) -> None:
        last = self._topic.ledger.extent.last_confirmed_position
        response = Response(request.snapshot_id, InCluster(self._local, last))
        self._write(encode_response(response, request.source, _wall_ms(self._topic)))

    def _answered(self, response: Response, cluster: str, position: Position) -> None:
        builder = self._pending.get(response.snapshot_id)
        if builder is None or response.at.cluster != cluster:
            return  # given up, or an older owner's
        step = builder.answered(response.at, position)
        if step is AfterAnswer.ASK_AGAIN:
            self._ask(builder)
        elif step is AfterAnswer.COMPLETE:
            self._drop(builder)
            self._is_answered = True
            snapshot = builder.snapshot()
            entry = encode_local_snapshot(snapshot, self._local, _wall_ms(self._topic))
            append_marker(self._topic, entry, partial(self._completed, snapshot, builder))

    def _completed(self, snapshot: Snapshot, builder: SnapshotBuilder, result: AppendResult) -> None:
        """It is one when it is stored, and not before: nobody would find it, nor make another (apache/pulsar#26119)."""
        if self._is_stopped:
            return
        self._more.ring()
        if result.error is not None:
            self._has_news = True
            self._say(f"the marker of a snapshot was not stored: {result.error}")
            return
        asked = snapshot.local if builder.asked is None else builder.asked
        self._covered = asked if self._covered is None else max(self._covered, asked)
        self._say("")
        COUNTS.completed += 1
        COUNTS.completed_ms += _monotonic_ms(self._topic) - builder.started_ms
        self.last_id, self.completed_ms = snapshot.snapshot_id, _wall_ms(self._topic)

    # ---- what is done from time to time

    def _begin(self) -> None:
        if self._task is None and not self._is_stopped:
            self._task = spawn(self._run(), name=f"snapshots of {self._topic.name}", part=self._topic)

    async def _run(self) -> None:
        config = self._topic.services.config
        while True:
            # A topic in which nothing happens costs nothing.
            if not (self._pending or self._has_news or self._updates.are_waiting or self._followers.is_waiting):
                await self._more.wait()
            self._more.silence()
            await wait_ms(config.replicated_subscriptions_snapshot_ms)
            self._give_up(config.replicated_subscriptions_timeout_s * 1000)
            self._followers.attach()
            self._followers.follow_again()
            self._updates.tell()
            await self._followers.pass_markers()
            self._has_news = self._followers.is_needed and (self._has_news or await self._find_news())
            if self._has_news and self._may_ask():
                self._start()

    def _give_up(self, after_ms: int) -> None:
        now_ms = _monotonic_ms(self._topic)
        for builder in [*self._pending.values()]:
            if now_ms - builder.started_ms >= after_ms:
                self._drop(builder)
                self._is_answered = False
                self.timed_out += 1
                COUNTS.timed_out += 1
                self._say(f"no answer of cluster {', '.join(sorted(builder.missing))} within {after_ms} ms")

    async def _find_news(self) -> bool:
        """Whether a message, or the end of a transaction, is behind the newest snapshot."""
        ledger = self._topic.ledger
        last = ledger.extent.readable_position
        first = ledger.ledgers.first_position
        if self._covered is not None:
            first = max(first, ledger.ledgers.next_position(self._covered))
        if first > last or ledger.stored.terminated_position is not None:
            return False
        if first.ledger_id == last.ledger_id and last.entry_id - first.entry_id >= MARKERS_MAX:
            return True
        try:
            entries = await ledger.reader.read_range(first, MARKERS_MAX, READ_BYTES)
        except StorageError:
            # What can not be read is taken for messages: the next snapshot is behind it.
            return True
        if any(not is_subscription_marker(entry.data) for entry in entries):
            return True
        return bool(entries) and entries[-1].position < last

    def _may_ask(self) -> bool:
        part = self._topic.parts.find(GeoReplication)
        if part is None or not part.replicators:
            return False
        away = sorted(cluster for cluster, replicator in part.replicators.items() if not replicator.is_connected)
        if away:
            self._say(f"cluster {', '.join(away)} can not be reached")
            return False
        if self._is_answered:
            self._say("")
        # Who does not answer, for it is not told to keep subscriptions, is asked again when the last was given up.
        return len(self._pending) < (PENDING_MAX if self._is_answered else 1)

    def _start(self) -> None:
        part = self._topic.parts.find(GeoReplication)
        assert part is not None
        snapshot_id = self._topic.services.runtime.rng.token(16)
        builder = SnapshotBuilder(snapshot_id, part.replicators.keys(), _monotonic_ms(self._topic))
        self._pending[snapshot_id] = builder
        self._has_news = False
        COUNTS.pending += 1
        self._ask(builder)

    def _ask(self, builder: SnapshotBuilder) -> None:
        def asked(result: AppendResult) -> None:
            if result.error is None and builder.asked is None:
                builder.asked = Position(result.ledger_id, result.first_entry_id)

        entry = encode_request(Request(builder.snapshot_id, self._local), _wall_ms(self._topic))
        append_marker(self._topic, entry, asked)

    def _drop(self, builder: SnapshotBuilder) -> None:
        if self._pending.pop(builder.snapshot_id, None) is not None:
            COUNTS.pending -= 1

    def _write(self, entry: bytes) -> None:
        append_marker(self._topic, entry)

    def _stop(self) -> asyncio.Task[None] | None:
        self._is_stopped = True
        self._say("")
        self._remove_listener()
        self._followers.detach()
        for builder in [*self._pending.values()]:
            self._drop(builder)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task


def is_subscription_marker(entry: bytes) -> bool:
    """Whether an entry is one of these, which count for nothing; the end of a transaction shows what it committed."""
    metadata = peek_metadata(entry)
    return metadata is not None and metadata.marker_type in MARKER_TYPES


def _wall_ms(topic: PartTopic) -> int:
    return topic.services.runtime.clock.wall_ms()


def _monotonic_ms(topic: PartTopic) -> int:
    return int(topic.services.runtime.clock.monotonic() * 1000)
