"""The parts of a topic: what a feature does beside the log, and the set of those that a topic has now.

A part is made when the topic's rules want it and ends when they no longer do. It says what it looks at by overriding a
method of :class:`TopicPart`; those of the hot path become tuples of bound methods (:class:`Parts`), empty where no part
has any, so that a topic pays for what it uses. Parts are asked in the order in which they are registered.

What unexpectedly comes out of a part is its topic's failure, as everything else of a topic is
(``runtime.containment``): the topic is closed and loaded anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

from geminga.broker.core.read_limit import read_limit
from geminga.broker.policies.rules import TopicRules
from geminga.broker.topic.publish import PublishBatch
from geminga.managed_ledger import AppendResult, ManagedCursor, ManagedLedger
from geminga.managed_ledger.shared.entry import AppendDone
from geminga.model.errors import GemingaError
from geminga.model.position import LATEST, Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.compacted.reads import CompactedMessages, LatestOfLake
    from geminga.broker.core.new_subscription import Properties
    from geminga.broker.policies.config import PolicyConfig
    from geminga.broker.publishing.producers import TopicProducers
    from geminga.broker.publishing.rates import HeldRates
    from geminga.broker.subscription.subscription import Subscription
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.producer import Producer
    from geminga.broker.topic.services import TopicServices

Stats = Mapping[str, object]
AdmitHook = Callable[[PublishBatch], Iterable[PublishBatch]]
StoredHook = Callable[[PublishBatch, AppendResult], None]
FailedHook = Callable[[PublishBatch, GemingaError], None]
HidesHook = Callable[[Position, pb.MessageMetadata], bool]


class LogAppends(Protocol):
    """What a topic is storing."""

    #: Batches that are being stored.
    pending_batches: int

    def totals(self) -> tuple[int, int]:
        """Messages and bytes that were published since the topic was loaded."""

    def append_own(self, entries: list[bytes], done: AppendDone) -> None:
        """Store entries of the broker's own, behind all that was published before; ``done`` as of the ledger."""


class PartTopic(Protocol):
    """The topic, as its parts use it."""

    #: What was compacted of it, for whoever reads that; None: it never was.
    compacted: CompactedMessages | None
    #: What is served in its place, from the lake; None: nothing.
    lake_latest: LatestOfLake | None

    @property
    def name(self) -> TopicName:
        """Its name."""

    @property
    def services(self) -> TopicServices:
        """What it has of the broker."""

    @property
    def ledger(self) -> ManagedLedger:
        """Its log."""

    @property
    def rules(self) -> TopicRules:
        """What broker, namespace and topic want now."""

    @property
    def producers(self) -> Mapping[str, Producer]:
        """By name."""

    @property
    def attendance(self) -> TopicProducers[Producer]:
        """All producers, those that wait for exclusive access included."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """By name, those of Readers included."""

    @property
    def is_closing(self) -> bool:
        """Whether it is being unloaded or deleted."""

    @property
    def parts(self) -> Parts:
        """All of them: who says something else of how far may be read, or of what is hidden, tells the others."""

    @property
    def publishing(self) -> LogAppends:
        """What is being stored."""

    @property
    def throttles(self) -> HeldRates:
        """The rates that hold it."""

    async def create_subscription(
        self, name: str, position: Position, properties: Properties | None = None, *, is_replicated: bool = False
    ) -> Subscription:
        """A durable subscription that starts at ``position``. Raises GemingaError, ConflictError if it is there."""

    async def save_sequence_ids(self) -> None:
        """Where deduplication is on, a restart replays nothing of what is stored by now. Raises StorageError."""

    def broke(self, what: str, error: BaseException) -> None:
        """It can not be trusted any more."""


class TopicPart:
    """One feature of one topic. Nothing here does anything: a part overrides what it is about.

    Made with its topic as the only argument, when :meth:`is_wanted`.
    """

    __slots__ = ()

    #: In statistics and logs.
    name: ClassVar[str]

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Whether the topic's rules, or what is stored of it, want this part."""
        del topic
        return True

    @classmethod
    async def prepare(cls, topic: PartTopic, *, is_wanted: bool) -> None:
        """The rules may be others: do what takes time before they are followed. It is not wanted: remove what an
        earlier one left that would cost something. May raise StorageError; then a later call goes on."""

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do now: its hooks of the hot path are not asked.

        Whoever changes it calls ``topic.parts.idleness_changed()`` at once.
        """
        return False

    @property
    def is_hiding(self) -> bool:
        """Whether it hides anything: only then is :meth:`hides` asked, for each entry. Changed as :attr:`is_idle`."""
        return True

    # ---- life

    async def load(self) -> None:
        """Bring back what is stored, before any other method is called; StorageError leaves the topic not loaded, or
        without this part.

        Publishing goes on meanwhile if the topic is loaded already: on return it knows all that is stored then.
        """

    def policies_changed(self) -> None:
        """The topic's rules are others than before; also called once after :meth:`load`."""

    @classmethod
    def upkeep_s(cls, config: PolicyConfig) -> float | None:
        """Seconds between two calls of :meth:`upkeep` of each of its kind, with one timer for all topics; None: none.

        Only of kinds that are registered from the beginning (``registered_parts``).
        """
        del config
        return None

    def upkeep(self) -> None:
        """Called every :meth:`upkeep_s`."""

    async def close(self) -> None:
        """The topic is unloaded: save what a quick load needs."""

    def drop(self) -> None:
        """It is not wanted any more, or not to be trusted: stop, and save nothing."""

    async def delete(self) -> None:
        """The topic is deleted: remove what is stored outside its ledger."""

    # ---- publishing

    async def admit_producer(self, producer: Producer) -> None:
        """Before a producer is let in: raise GemingaError to keep it out."""

    async def producer_joined(self, producer: Producer) -> None:
        """It was let in, and is told so when this returns."""

    def producer_left(self, producer: Producer) -> None:
        """It is gone, and no other of its name is there."""

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """May it be stored? The batch itself, or what it is cut into, in order; those with a ``refusal`` are not.

        Whoever remembers what it admitted is registered behind all that refuse: it hears of each batch it admitted
        again, by :meth:`stored` or :meth:`failed`.
        """
        return (batch,)

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """The next ``result.count`` entries are on stable storage, and have their receipts."""

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """Entries of it could not be stored, or nobody knows: they may be there."""

    def settled(self) -> None:
        """Nothing is being stored now."""

    def transaction_ended(self, txn_id: TxnId, *, is_committed: bool) -> None:
        """Its marker is stored."""

    # ---- reading

    def read_limit(self) -> Position:
        """Readers see nothing behind this; LATEST: as far as they are concerned, everything.

        A part that changes its mind calls ``topic.parts.limit_moved()``. What was readable once stays so until the
        topic is unloaded, and should afterwards: the limit is to be stored, or found again in the log.
        Nothing behind the least limit of all parts is delivered, trimmed, expired, skipped or acknowledged.
        To hold back what is just coming, set the limit in :meth:`admit`: in :meth:`stored` it may have been read.
        """
        return LATEST

    def hides(self, position: Position, metadata: pb.MessageMetadata) -> bool:
        """Whether no reader is to see an entry that may be read now; what is hidden is acknowledged for all.

        Settled for good when the read limit passes the entry.
        """
        del position, metadata
        return False

    def stats(self) -> Stats:
        """For the internal statistics."""
        return {}


class WatchesSubscriptions(TopicPart):
    """One that has to do with replicated subscriptions."""

    __slots__ = ()

    def subscriptions_changed(self) -> None:
        """One is replicated now, or no longer."""


class TakesLeave(TopicPart):
    """A part of which something is to be over when it is answered that the topic's rules do not want it any more."""

    __slots__ = ()

    async def leave(self) -> None:
        """End that. It is dropped then, unless the topic closed meanwhile. Raises nothing."""


class AdmitsSubscriptions(TopicPart):
    """A part that may keep subscriptions out."""

    __slots__ = ("made_now",)

    def __init__(self) -> None:
        #: Subscriptions that were let in, and are being made.
        self.made_now = 0

    async def admit_subscription(self) -> None:
        """Before a subscription is made that is durable, or wants what is published from now on: raise GemingaError to
        keep it out."""


class CopiedTopic(Protocol):
    """The copying of one topic to one other cluster: a replicator."""

    @property
    def state(self) -> str:
        """What it does, in a word."""
        ...

    @property
    def reason(self) -> str:
        """Why nothing is copied; empty: it is."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether it copies now."""
        ...

    @property
    def cursor(self) -> ManagedCursor:
        """What is acknowledged by it is over there, or not meant for that cluster."""
        ...

    cluster: str
    #: How often it began anew since the topic was loaded because it stood still.
    restarts: int
    #: Entries that were passed over since the topic was loaded: they were too old.
    expired: int

    @property
    def backlog(self) -> int:
        """Entries that are not copied, or passed over, yet."""
        ...

    @property
    def delay_s(self) -> float:
        """How long ago the first was published that is on its way, or waits for the other cluster; 0: none does."""
        ...

    def totals(self) -> tuple[int, int]:
        """Messages and bytes that were copied since the topic was loaded."""
        ...

    def stop(self) -> asyncio.Task[None] | None:
        """Copy nothing more; a task that ends when the link is closed, None: there was none."""
        ...


class RemoteClusters(Protocol):
    """The other clusters, and how topics are copied to them."""

    @property
    def local(self) -> str:
        """The name of this one."""
        ...

    @property
    def starts_at_earliest(self) -> bool:
        """Whether a topic is copied from its beginning, or from where it was when that was asked for."""
        ...

    def copy(self, topic: PartTopic, cluster: str, cursor: ManagedCursor) -> CopiedTopic:
        """Begin to copy ``topic`` to ``cluster``, from where ``cursor`` is; loads the code for it."""
        ...

    def lead_away(self, topic: Topic, place: OtherPlace) -> LedAway:
        """Begin to send the clients of a topic that stores nothing to the cluster that it moves to."""
        ...

    def moving_turn(self) -> AbstractAsyncContextManager[object]:
        """Held while a topic that clients still use prepares: so many at a time, as that cluster answers within the
        time of a request. Who publishes nothing any more asks without."""
        ...

    async def prepare(self, topic: PartTopic | Topic, place: OtherPlace) -> None:
        """Make in the cluster that ``topic`` moves to what has to be there before its clients. Raises GemingaError."""
        ...


class LedAway(Protocol):
    """A topic that stores nothing and moves to another cluster."""

    @property
    def place(self) -> OtherPlace:
        """Where to."""
        ...

    def check(self) -> None:
        """Before somebody is let in: raise TopicMovedError once the topic can be used there."""
        ...

    def end(self) -> None:
        """It stays, or somebody else goes on."""
        ...


class OtherPlace(Protocol):
    """A cluster that topics move to: where its clients and its administration come; empty: there is no such address."""

    @property
    def service_url(self) -> str:
        """Of the administration, without TLS."""
        ...

    @property
    def service_url_tls(self) -> str:
        """The same with TLS."""
        ...

    @property
    def broker_url(self) -> str:
        """Of the brokers, without TLS."""
        ...

    @property
    def broker_url_tls(self) -> str:
        """The same with TLS."""
        ...


P = TypeVar("P", bound=TopicPart)
#: Methods of the hot path.
_HOOKS: Final = ("admit", "stored", "failed", "settled", "hides", "read_limit")
#: Of each kind of part, those that it has; looked up once for all topics.
_OVERRIDDEN: Final[dict[type[TopicPart], tuple[str, ...]]] = {}


class Parts:
    """The parts that a topic has now."""

    __slots__ = ("_active", "_busy", "_followers", "_has_begun", "_is_closed", "_kinds", "_topic", *_HOOKS)

    def __init__(self, topic: PartTopic, kinds: Sequence[type[TopicPart]]) -> None:
        """``kinds`` in their order; none is made before :meth:`follow`."""
        self._topic = topic
        self._kinds = kinds
        #: In their order. A topic has few of them, and there are many topics.
        self._active: tuple[TopicPart, ...] = ()
        #: One change at a time, and how many there are now; None while there is none.
        self._busy: asyncio.Lock | None = None
        self._followers = 0
        #: Readers have been let in: limits do not go back any more.
        self._has_begun = False
        self._is_closed = False
        self.admit: tuple[AdmitHook, ...] = ()
        self.stored: tuple[StoredHook, ...] = ()
        self.failed: tuple[FailedHook, ...] = ()
        self.settled: tuple[Callable[[], None], ...] = ()
        self.hides: tuple[HidesHook, ...] = ()
        self.read_limit: tuple[Callable[[], Position], ...] = ()

    def find(self, kind: type[P]) -> P | None:
        """The part of that kind; None: the topic has none now."""
        for part in self._active:
            if type(part) is kind:
                return part
        return None

    def register(self, kind: type[TopicPart]) -> None:
        """One more, behind all others; it is made with the next :meth:`follow`."""
        self._kinds = (*self._kinds, kind)

    async def follow(self) -> None:
        """Have the parts that the topic's rules want. Raises StorageError; then a later call goes on."""
        if self._busy is None:
            self._busy = asyncio.Lock()
        self._followers += 1
        try:
            async with self._busy:
                await self._follow()
        finally:
            self._followers -= 1
            if not self._followers:
                # An idle topic holds nothing that can be made again.
                self._busy = None

    async def _follow(self) -> None:
        for kind in self._kinds:
            if self._is_closed:
                return
            is_wanted = kind.is_wanted(self._topic)
            if not is_wanted:
                await self._remove(kind)
                if self._is_closed:
                    return
            await kind.prepare(self._topic, is_wanted=is_wanted)
            if is_wanted and self.find(kind) is None:
                await self._add(kind)
        if not self._is_closed:
            self.limit_moved()
            self._has_begun = True
            for part in self._active:
                part.policies_changed()

    async def _add(self, kind: type[TopicPart]) -> None:
        part = kind(self._topic)  # type: ignore[call-arg]
        await part.load()
        if self._is_closed:
            part.drop()
        else:
            self._set((*self._active, part))

    async def _remove(self, kind: type[TopicPart]) -> None:
        part = self.find(kind)
        if part is not None:
            if isinstance(part, TakesLeave):
                await part.leave()
                if self._is_closed:
                    return
            self._set([each for each in self._active if each is not part])
            part.drop()
            self.limit_moved()

    def _set(self, active: Sequence[TopicPart]) -> None:
        self._active = tuple(sorted(active, key=lambda part: self._kinds.index(type(part))))
        hooks: dict[str, list[object]] = {hook: [] for hook in _HOOKS}
        for part in self._active:
            if not part.is_idle:
                for hook in _overridden(type(part)):
                    if hook != "hides" or part.is_hiding:
                        hooks[hook].append(getattr(part, hook))
        for hook, called in hooks.items():
            setattr(self, hook, tuple(called))

    def idleness_changed(self) -> None:
        """A part has something to do now, or nothing any more."""
        self._set(self._active)

    def limit_moved(self) -> None:
        """Let readers go as far as all parts let them."""
        ledger = self._topic.ledger
        limits = [limit() for limit in self.read_limit]
        if limits or ledger.extent.is_limited or not self._has_begun:
            ledger.set_read_limit(read_limit(limits, ledger.extent.readable_position if self._has_begun else None))

    # ---- what is not on the hot path

    async def admit_producer(self, producer: Producer) -> None:
        """As :meth:`TopicPart.admit_producer`; raises GemingaError."""
        for part in self._active:
            await part.admit_producer(producer)

    @asynccontextmanager
    async def new_subscription(self) -> AsyncIterator[None]:
        """Around the making of one that is durable, or wants what is published from now on.

        Raises GemingaError: it is not let in.
        """
        asked = [part for part in self._active if isinstance(part, AdmitsSubscriptions)]
        for part in asked:
            await part.admit_subscription()
        for part in asked:
            part.made_now += 1
        try:
            yield
        finally:
            for part in asked:
                part.made_now -= 1

    async def producer_joined(self, producer: Producer) -> None:
        """As :meth:`TopicPart.producer_joined`."""
        for part in self._active:
            await part.producer_joined(producer)

    def producer_left(self, producer: Producer) -> None:
        """As :meth:`TopicPart.producer_left`."""
        for part in self._active:
            part.producer_left(producer)

    def subscriptions_changed(self) -> None:
        """As :meth:`WatchesSubscriptions.subscriptions_changed`."""
        for part in self._active:
            if isinstance(part, WatchesSubscriptions):
                part.subscriptions_changed()

    def transaction_ended(self, txn_id: TxnId, *, is_committed: bool) -> None:
        """As :meth:`TopicPart.transaction_ended`."""
        for part in self._active:
            part.transaction_ended(txn_id, is_committed=is_committed)

    def stats(self) -> dict[str, Stats]:
        """Of each part, by name."""
        return {part.name: part.stats() for part in self._active}

    async def close(self) -> None:
        """As :meth:`TopicPart.close`."""
        self._is_closed = True
        for part in self._active:
            await part.close()

    def drop(self) -> None:
        """As :meth:`TopicPart.drop`."""
        self._is_closed = True
        for part in self._active:
            part.drop()

    async def delete(self) -> None:
        """As :meth:`TopicPart.delete`. Raises StorageError; what is left can be deleted again."""
        self._is_closed = True
        for part in self._active:
            await part.delete()


def _overridden(kind: type[TopicPart]) -> tuple[str, ...]:
    found = _OVERRIDDEN.get(kind)
    if found is None:
        found = tuple(hook for hook in _HOOKS if getattr(kind, hook) is not getattr(TopicPart, hook))
        _OVERRIDDEN[kind] = found
    return found
