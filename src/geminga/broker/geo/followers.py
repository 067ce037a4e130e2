"""The subscriptions of one topic that are replicated: the snapshots each has ahead, and moving where others are."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from geminga.broker.geo.core.snapshots import SnapshotCache
from geminga.broker.subscription.seek import follow, is_replicated
from geminga.broker.topic.parts import PartTopic
from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model.errors import GemingaError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import again, get_logger, spawn
from geminga.wire.pulsar.metadata import split_entry
from geminga.wire.pulsar.subscription_markers import MARKER_TYPES, SNAPSHOT, Snapshot, decode_marker

if TYPE_CHECKING:
    from geminga.broker.subscription.subscription import Subscription
    from geminga.managed_ledger import Entry

_log = get_logger(__name__)

#: Of one look past markers.
READ_ENTRIES: Final = 100
READ_BYTES: Final = 1 << 20
#: Subscriptions that were deleted, whose updates may still be on their way.
DELETED_MAX: Final = 1000
#: Subscriptions that could not be made yet.
UNMADE_MAX: Final = 1000
#: Those that wait to be made: whoever may publish can write updates of any number of them. One that has no room is made
#: by its next update.
WAITING_MAX: Final = 10_000


class Ahead:
    """Of one replicated subscription: :class:`geminga.broker.subscription.ports.ReadsSnapshots`."""

    __slots__ = ("_acked", "_cache", "_moves", "_on_deleted", "_subscription", "_woken")

    def __init__(
        self, subscription: Subscription, size_max: int, woken: Callable[[], None], on_deleted: Callable[[str], None]
    ) -> None:
        self._subscription = subscription
        self._cache = SnapshotCache(size_max)
        self._moves = subscription.moves
        #: What was acknowledged here and is told of by snapshots that nobody consumed.
        self._acked = self._acked_here()
        self._woken = woken
        self._on_deleted = on_deleted

    def __len__(self) -> int:
        """Snapshots that are remembered."""
        return len(self._cache)

    def passed_over(self, entries: Sequence[Entry], positions: Sequence[Position]) -> None:
        """As of the port."""
        for snapshot in _snapshots_in(entries, frozenset(positions)):
            self._add(snapshot)

    def left_behind(self, markers: Sequence[Entry]) -> None:
        """As of the port. A subscription that only follows others tells them nothing."""
        acked = self._acked_here()
        if acked == self._acked:
            return
        for snapshot in _snapshots_in(markers, frozenset(marker.position for marker in markers)):
            self._add(snapshot)
            if snapshot.local >= self._subscription.cursor.mark_delete_position:
                self._acked = acked  # another one would say the same

    def led(self) -> None:
        """Another cluster is further than what was acknowledged here: that need not be told."""
        self._acked = self._acked_here()

    def _add(self, snapshot: Snapshot) -> None:
        self._check_moved()
        self._cache.add(snapshot)
        self._woken()

    def deleted(self) -> None:
        """As of the port."""
        self._on_deleted(self._subscription.name)

    def acknowledged(self) -> Snapshot | None:
        """The last snapshot up to which all is acknowledged; it is told once."""
        self._check_moved()
        return self._cache.acknowledged(self._subscription.cursor.mark_delete_position)

    def _acked_here(self) -> int:
        """Grows with what consumers of this cluster acknowledge."""
        subscription = self._subscription
        acked = subscription.messages_acked_closed + sum(each.messages_acked for each in subscription.consumers)
        in_transactions = subscription.transactions.used
        return acked if in_transactions is None else acked + in_transactions.ended[0]

    def _check_moved(self) -> None:
        # Somebody may have moved it back: it reads again what is behind.
        if self._subscription.moves != self._moves:
            self._moves = self._subscription.moves
            self._cache.clear()


class Followers:
    """See the module."""

    __slots__ = ("_attached", "_blocked", "_deleted", "_is_full", "_making", "_topic", "_tried", "_unmade", "_woken")

    def __init__(self, topic: PartTopic, woken: Callable[[], None]) -> None:
        """``woken`` is called when one has a snapshot more."""
        self._topic = topic
        self._woken = woken
        self._attached: dict[str, tuple[Subscription, Ahead]] = {}
        #: When it was deleted here, ms since the epoch.
        self._deleted: dict[str, int] = {}
        #: To be made, one after the other, how far they are to go then, and when that was said.
        self._making: dict[str, tuple[Position, int]] = {}
        #: One had no room among them since they were all made; the log was told.
        self._is_full = False
        #: The same of those that could not be made: nobody says it again where nothing new comes.
        self._unmade: dict[str, tuple[Position, int]] = {}
        #: Those of them that are tried once more, each second: the log was told.
        self._tried: frozenset[str] = frozenset()
        #: Subscriptions whose next entry is no marker, and where they were then.
        self._blocked: dict[str, Position] = {}

    @property
    def is_needed(self) -> bool:
        """Whether there is a replicated subscription."""
        return bool(self._attached)

    def keeps(self, name: str) -> bool:
        """Whether the subscription of this name is replicated."""
        return name in self._attached

    @property
    def is_waiting(self) -> bool:
        """Whether a subscription has snapshots ahead that it may acknowledge at any time, or one is to be made."""
        return bool(self._unmade) or any(len(ahead) for _, ahead in self._attached.values())

    def attach(self) -> bool:
        """See which are replicated by now; whether any is."""
        size_max = self._topic.services.config.replicated_subscriptions_cached_max
        for name, (subscription, ahead) in [*self._attached.items()]:
            if self._topic.subscriptions.get(name) is not subscription or not is_replicated(subscription):
                if subscription.snapshots is ahead:
                    subscription.snapshots = None
                del self._attached[name]
        for name, subscription in self._topic.subscriptions.items():
            if is_replicated(subscription) and name not in self._attached:
                ahead = Ahead(subscription, size_max, self._woken, self._note_deleted)
                self._attached[name] = subscription, ahead
                subscription.snapshots = ahead
        return bool(self._attached)

    def detach(self) -> None:
        """None is looked after any more."""
        for subscription, _ in self._attached.values():
            subscription.snapshots = None

    def acknowledged(self) -> Iterator[tuple[str, Snapshot]]:
        """Subscriptions that have acknowledged everything up to a snapshot, the last such one each."""
        for name, (_, ahead) in self._attached.items():
            snapshot = ahead.acknowledged()
            if snapshot is not None:
                yield name, snapshot

    def stats(self) -> dict[str, object]:
        """Of each: snapshots that it remembers."""
        return {name: {"snapshots": len(ahead)} for name, (_, ahead) in self._attached.items()}

    # ---- following other clusters

    def follow(self, name: str, position: Position, sent_ms: int) -> None:
        """Somewhere else everything up to what is ``position`` here was acknowledged, which was said at ``sent_ms``.

        What was on its way when the subscription was deleted here does not make it again.
        """
        subscription = self._topic.subscriptions.get(name)
        if subscription is not None:
            if subscription.is_durable:
                if name in self._attached and position > subscription.cursor.mark_delete_position:
                    self._attached[name][1].led()
                follow(subscription, position)
            return
        if sent_ms <= self._deleted.get(name, -1) or self._topic.is_closing:
            return
        is_begun = bool(self._making)
        if name not in self._making and len(self._making) >= WAITING_MAX:
            if not self._is_full:
                self._is_full = True
                told = "%s: %d replicated subscriptions wait to be made: others are made by their next updates"
                _log.warning(told, self._topic.name, WAITING_MAX)
            return
        self._making[name] = max((position, sent_ms), self._making.get(name, (position, sent_ms)))
        if not is_begun:
            spawn(self._make_all(), name=f"make subscriptions of {self._topic.name}", part=self._topic)

    def follow_again(self) -> None:
        """Try once more what storage did not let be made."""
        unmade, self._unmade = self._unmade, {}
        self._tried = frozenset(unmade)
        for name, (position, sent_ms) in unmade.items():
            self.follow(name, position, sent_ms)

    async def _make_all(self) -> None:
        try:
            while self._making and not self._topic.is_closing:
                await self._make(next(iter(self._making)))
        finally:
            self._making.clear()
            self._is_full = False

    async def _make(self, name: str) -> None:
        error: GemingaError | None = None
        try:
            subscription = await self._topic.create_subscription(name, EARLIEST, is_replicated=True)
            follow(subscription, self._making[name][0])
        except GemingaError as raised:
            error = again(raised)
        finally:
            told = self._making.pop(name)
        if error is None:
            return
        tell = _log.info if name in self._tried else _log.warning
        tell("%s: the replicated subscription %s was not made: %s", self._topic.name, name, error)
        if isinstance(error, StorageError) and len(self._unmade) < UNMADE_MAX:
            self._unmade[name] = told
            self._woken()

    def _note_deleted(self, name: str) -> None:
        self._deleted.pop(name, None)
        self._deleted[name] = self._topic.services.runtime.clock.wall_ms()
        if len(self._deleted) > DELETED_MAX:
            del self._deleted[next(iter(self._deleted))]

    # ---- markers are nobody's backlog

    async def pass_markers(self) -> None:
        """Subscriptions without consumers go past markers that they would read next. One whose next entries can not be
        read stays where it is, and keeps up no other."""
        blocked, self._blocked = self._blocked, {}
        for name, subscription in [*self._topic.subscriptions.items()]:
            cursor = subscription.cursor
            if not cursor.backlog_count or subscription.consumers or subscription.is_moving:
                continue
            before = cursor.mark_delete_position
            if blocked.get(name) == before:
                self._blocked[name] = before
                continue
            try:
                markers = await self._markers_behind(before)
            except StorageError as error:
                if is_lost(error):
                    self._blocked[name] = before
                continue
            if not markers:
                self._blocked[name] = before
            elif cursor.mark_delete_position == before and not subscription.consumers:
                if subscription.snapshots is not None:
                    subscription.snapshots.left_behind(markers)
                cursor.acknowledge_cumulative(markers[-1].position)
                self._woken()

    async def _markers_behind(self, position: Position) -> list[Entry]:
        """The markers that come next, as far as one read goes."""
        ledger = self._topic.ledger
        first = ledger.ledgers.next_position(position)
        entries = await ledger.reader.read_range(first, READ_ENTRIES, READ_BYTES)
        return list(takewhile(_is_marker, entries))


def _snapshots_in(entries: Sequence[Entry], positions: Container[Position]) -> Iterator[Snapshot]:
    for entry in entries:
        snapshot = snapshot_in(entry) if entry.position in positions else None
        if snapshot is not None:
            yield snapshot


def snapshot_in(entry: Entry) -> Snapshot | None:
    """The snapshot that an entry has; None: it has none, or one of what can not have been when it was written.

    Whoever may publish can write one: behind one of the far future no other would count.
    """
    metadata, offset = split_entry(entry.data)
    if metadata is None or metadata.marker_type != SNAPSHOT:
        return None
    found = decode_marker(SNAPSHOT, entry.data[offset:])
    return found if isinstance(found, Snapshot) and found.local < entry.position else None


def _is_marker(entry: Entry) -> bool:
    metadata, _ = split_entry(entry.data)
    return metadata is not None and metadata.marker_type in MARKER_TYPES
