"""``Replicator``: copies one topic to one other cluster, from a cursor of its own on.

::

    WAITING --back-off--> CONNECTING --the topic over there is open--> COPYING
       ^                      |                                           |
       +---- why not ---------+-------- refused, lost, no answer ---------+

Whatever ends the copying ends it for all that is on its way: nothing overtakes what was refused
(apache/pulsar#26113). Then it begins again at the first entry that was not answered for, after a pause that grows with
each failure. The reason is kept for statistics and told once a minute in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Final

from geminga.broker.geo.core.copying import Copy, Hides, copy_of
from geminga.broker.geo.core.sent import Sent
from geminga.broker.geo.ports import AwayError, CopyDone, Links, RemoteTopic
from geminga.broker.geo.rate import CopyRate
from geminga.broker.geo.subscriptions import ReplicatedSubscriptions
from geminga.broker.geo.turns import ClusterTurns, Turn
from geminga.broker.system_topics.events import is_for_all
from geminga.broker.topic.parts import PartTopic
from geminga.managed_ledger import Entry, ManagedCursor
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import CHANGE_EVENTS, TopicName
from geminga.runtime import Bell, Contained, again, get_logger, spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import text_of
from geminga.wire.pulsar.schema_info import decode_version

_log = get_logger(__name__)

#: Of one read.
READ_ENTRIES: Final = 100
READ_BYTES: Final = 1 << 20
#: Between two tries: doubled from the first to the last, as Pulsar's.
BACKOFF_FIRST_MS: Final = 100
BACKOFF_MAX_MS: Final = 60_000
#: The same reason is told again after so many seconds.
REASON_REPEAT_S: Final = 60.0
#: Versions of schemas whose versions over there are known.
VERSIONS_MAX: Final = 100


class State(Enum):
    """What a replicator does."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    COPYING = "copying"
    STOPPED = "stopped"


class Replicator:
    """See the module."""

    __slots__ = (
        "_done",
        "_failure",
        "_is_held",
        "_links",
        "_local",
        "_more",
        "_rate",
        "_reason",
        "_remote",
        "_remove_listener",
        "_sent",
        "_state",
        "_task",
        "_told",
        "_topic",
        "_totals",
        "_turns",
        "_versions",
        "_waiting_ms",
        "cluster",
        "cursor",
        "expired",
        "restarts",
    )

    def __init__(
        self,
        topic: PartTopic,
        cluster: str,
        cursor: ManagedCursor,
        links: Links,
        *,
        local: str,
        turns: ClusterTurns,
    ) -> None:
        """``cursor``: what is acknowledged by it is stored in ``cluster``, or not meant for it. ``local``: the name of
        this cluster. ``turns``: held while it reads and sends."""
        self._topic = topic
        self._links = links
        self._local = local
        self._turns = turns
        self.cluster = cluster
        self.cursor = cursor
        self._state = State.WAITING
        #: Why nothing is copied; empty: it is, or see :attr:`reason`.
        self._reason = ""
        #: While it copies.
        self._remote: RemoteTopic | None = None
        #: When the first was published that is not copied, while it copies nothing; None: that is not known.
        self._waiting_ms: int | None = None
        #: How often it began anew because it stood still (:mod:`geminga.broker.geo.watch`).
        self.restarts = 0
        self.expired = 0
        #: Messages and bytes since it began.
        self._totals = (0, 0)
        self._told = ("", 0.0)
        self._rate = CopyRate(topic)
        #: Its rate lets nothing pass now.
        self._is_held = False
        self._sent = Sent()
        #: What hears the answers to it.
        self._done: CopyDone = partial(self._answered, self._sent)
        self._failure: GemingaError | None = None
        #: There is something to do.
        self._more = Bell()
        #: Over there, of versions here.
        self._versions: dict[int, bytes] = {}
        self._remove_listener = topic.ledger.tail.add_listener(self._more.ring)
        self._task: asyncio.Task[None] | None = self._spawned()

    # ---- what others see

    @property
    def state(self) -> str:
        """What it does."""
        return self._state.value

    @property
    def is_connected(self) -> bool:
        """Whether it copies now, and reaches the other cluster."""
        return self._remote is not None and self._remote.is_connected

    @property
    def reason(self) -> str:
        """Why nothing is copied; empty: it is."""
        if self._remote is None or self._remote.is_connected:
            return self._reason
        return f"the connection to cluster {self.cluster} is lost: it is made again"

    @property
    def is_stopped(self) -> bool:
        """Whether it copies nothing any more."""
        return self._state is State.STOPPED

    @property
    def should_move(self) -> bool:
        """Whether its cursor has to move now: it is connected, its rate allows it, and there is something to copy."""
        return self._state is State.COPYING and not self._is_held and self.cursor.backlog_count > 0

    @property
    def topic_name(self) -> TopicName:
        """What it copies."""
        return self._topic.name

    @property
    def backlog(self) -> int:
        """Entries that are not copied, or passed over, yet."""
        return self.cursor.backlog_count

    @property
    def delay_s(self) -> float:
        """How long ago the first was published that is on its way, or waits for the other cluster; 0: none does."""
        oldest_ms = self._sent.oldest_ms
        if oldest_ms is None and self.backlog:
            oldest_ms = self._waiting_ms
        return 0.0 if oldest_ms is None else max(0, self._topic.services.runtime.clock.wall_ms() - oldest_ms) / 1000

    def totals(self) -> tuple[int, int]:
        """Messages and bytes that were copied since it began."""
        return self._totals

    def stop(self) -> asyncio.Task[None] | None:
        """Copy nothing more; a task that ends when the link is closed, None: there was none."""
        self._state = State.STOPPED
        self._remove_listener()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    def restart(self) -> None:
        """Begin anew, with another link, when the present one is closed."""
        task = self._task
        if task is None:
            return
        self.restarts += 1
        task.cancel()
        self._task = self._spawned(task)

    # ---- life

    def _spawned(self, before: asyncio.Task[None] | None = None) -> asyncio.Task[None]:
        name = f"copy {self._topic.name} to {self.cluster}"
        return spawn(self._run(before), name=name, part=self._topic)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        delay_ms = BACKOFF_FIRST_MS
        while True:
            done_before = self.cursor.mark_delete_position
            back: asyncio.Future[None] | None = None
            try:
                await self._connect_and_copy()
            except GemingaError as error:
                back = error.back if isinstance(error, AwayError) else None
                self._waits(error)
                await self._pass_over()
            if self.cursor.mark_delete_position != done_before:
                delay_ms = BACKOFF_FIRST_MS
            if back is None:
                await wait_ms(delay_ms)
            else:
                await asyncio.wait([back], timeout=delay_ms / 1000)
            delay_ms = min(2 * delay_ms, BACKOFF_MAX_MS)

    async def _pass_over(self) -> None:
        """What is not meant for a cluster that is away is no backlog: all that came from elsewhere, say."""
        ledger = self._topic.ledger
        position = ledger.ledgers.next_position(self.cursor.mark_delete_position)
        while True:
            try:
                async with self._turns.taken():
                    entries = await ledger.reader.read_range(position, READ_ENTRIES, READ_BYTES)
                for entry in entries:
                    copy = self._copy_of(entry)
                    if copy is not None:
                        self._waiting_ms = copy.published_ms
                        return
                    self.cursor.acknowledge_cumulative(entry.position)
            except GemingaError:
                return  # why nothing is copied is known already
            if not entries:
                return
            position = ledger.ledgers.next_position(entries[-1].position)

    def _copy_of(self, entry: Entry) -> Copy | None:
        return copy_of(entry.data, entry.position, self._local, self.cluster, self._hides(), self._hear)

    def _hides(self) -> Sequence[Hides]:
        """Of policies, those for all clusters travel; of the others older brokers did not say that they stay."""
        hides = self._topic.parts.hides
        return hides if self.topic_name.local_name != CHANGE_EVENTS else (*hides, _is_of_this_cluster)

    def _hear(self, position: Position, metadata: pb.MessageMetadata, payload: bytes) -> None:
        """Who keeps subscriptions alike hears of markers."""
        part = self._topic.parts.find(ReplicatedSubscriptions)
        if part is not None:
            part.heard(self.cluster, position, metadata, payload)

    def _waits(self, error: GemingaError) -> None:
        self._state, self._reason = State.WAITING, f"{error}"
        told, at_s = self._told
        now_s = self._topic.services.runtime.clock.monotonic()
        if self._reason != told or now_s - at_s >= REASON_REPEAT_S:
            self._told = self._reason, now_s
            left = self._turns.lines_left(now_s)
            if left > 0:
                _log.warning("%s is not copied to cluster %s now: %s", self._topic.name, self.cluster, self._reason)
            elif left == 0:
                _log.warning("more topics are not copied to cluster %s: the statistics of each say why", self.cluster)

    async def _connect_and_copy(self) -> None:
        self._state = State.CONNECTING
        self._failure, self._sent, self._is_held = None, Sent(), False
        self._done = partial(self._answered, self._sent)
        self._versions.clear()
        remote = await self._links.open(self.cluster, self._topic.name)
        try:
            self._state, self._reason, self._remote, self._waiting_ms = State.COPYING, "", remote, None
            await self._copy(remote)
        except GemingaError:
            await self._answers()
            raise
        finally:
            # Answers that come now are for nothing that counts.
            self._sent, self._remote = Sent(), None
            await remote.close()

    async def _answers(self) -> None:
        """Of all that is on its way, unless it failed: it would be sent again with each try."""
        while self._sent.entries and self._failure is None:
            self._more.silence()
            await self._more.wait()

    async def _copy(self, remote: RemoteTopic) -> None:
        ledger = self._topic.ledger
        position = ledger.ledgers.next_position(self.cursor.mark_delete_position)
        while True:
            await remote.room()
            count_max, bytes_max = await self._allowed(READ_ENTRIES, READ_BYTES)
            self._more.silence()
            async with self._turns.taken() as turn:
                self._check()
                # It may be further: what is too old, or was skipped by an operator, is not copied.
                position = max(position, ledger.ledgers.next_position(self.cursor.mark_delete_position))
                entries = await ledger.reader.read_range(position, count_max, bytes_max)
                for entry in entries:
                    await self._take(remote, entry, turn)
            if entries:
                position = ledger.ledgers.next_position(entries[-1].position)
            else:
                await self._more.wait()
                self._check()

    async def _allowed(self, entries: int, size_bytes: int) -> tuple[int, int]:
        """Entries and bytes that may be read, at most those, when any may."""
        while True:
            self._check()
            allowed = self._rate.room(entries, size_bytes)
            self._is_held = not allowed[0]
            if allowed[0]:
                return allowed
            await wait_ms(self._rate.wait_ms())

    def _check(self) -> None:
        if self._failure is not None:
            raise again(self._failure)

    async def _take(self, remote: RemoteTopic, entry: Entry, turn: Turn) -> None:
        self._check()
        position = entry.position
        copy = self._copy_of(entry)
        if copy is None:
            done = self._sent.passed_over(position)
            if done is not None:
                self.cursor.acknowledge_cumulative(done)
            return
        if copy.schema_version:
            copy = copy.with_schema_version(await self._version_of(remote, copy.schema_version, position, turn))
            self._check()
        size_bytes = len(entry.data)
        remote.send(copy, position, self._done)
        # Not before: for what could not be sent no answer comes, and :meth:`_answers` would wait for it.
        self._sent.add(position, size_bytes, copy.published_ms, copy.messages)
        self._rate.sent(size_bytes)

    async def _version_of(self, remote: RemoteTopic, version: bytes, position: Position, turn: Turn) -> bytes:
        number = number_of(version)
        known = self._versions.get(number)
        if known is None:
            find = self._topic.services.find_schema
            stored = await find(self._topic.name, number) if find is not None and number >= 0 else None
            if stored is None or stored.is_deleted:
                # Made up, or deleted for good: it goes on as it is, as with Pulsar. Not remembered: it may come yet.
                return version
            try:
                async with turn.aside():
                    known = await remote.version_of(stored.info)
            except GemingaError as error:
                raise UnavailableError(
                    f"cluster {self.cluster} does not take the schema of the message at {position}: {error}"
                ) from error
            if len(self._versions) >= VERSIONS_MAX:
                del self._versions[next(iter(self._versions))]
            self._versions[number] = known
        return known

    def _answered(self, sent: Sent, count: int, error: GemingaError | None) -> None:
        if sent is not self._sent:
            return
        if self._failure is not None:
            return
        with Contained(self._topic, "an answer of another cluster"):
            if error is not None:
                self._failure = error
                self._more.ring()
                return
            done = sent.answered(count)
            before = self._totals
            self._totals = before[0] + done.messages, before[1] + done.size_bytes
            self.cursor.acknowledge_cumulative(done.position)
            if not sent.entries:
                self._more.ring()


def _is_of_this_cluster(_position: Position, metadata: pb.MessageMetadata) -> bool:
    return not is_for_all(text_of(metadata.partition_key))


def number_of(version: bytes) -> int:
    """Of a schema, as the registry counts; -1: it is no number."""
    try:
        return decode_version(version)
    except ValueError:
        return -1
