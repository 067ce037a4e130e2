"""Who publishes to a topic: producers come, wait for exclusive access, are fenced and go.

The rules of access are in :mod:`geminga.broker.core.producer_access`. Here is who is there by name, what is asked of
the log before somebody is let in, and what those are told that have to go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from geminga.broker.core.dedup_source import is_replicator
from geminga.broker.core.producer_access import AccessMode, Granted, ProducerAccess, Queued
from geminga.broker.publishing.life import TopicLife
from geminga.broker.subscription.limits import HostCounts, is_reached
from geminga.model.errors import (
    GemingaError,
    ProducerBusyError,
    ProducerFencedError,
    TopicTerminatedError,
    invariant,
)
from geminga.model.topic_name import TopicName
from geminga.runtime import Contained, Part, Turns, spawn

#: What clients are told, in Pulsar's words.
TERMINATED_TEXT: Final = "Topic was already terminated"
#: Producers that are told to go in one turn of the loop, at most.
TOLD_A_TURN: Final = 500


class LivingConnection(Protocol):
    """The connection of a producer."""

    @property
    def peer(self) -> str:
        """Address of the client, ``/127.0.0.1:1234``."""

    def check_liveness(self) -> Awaitable[bool]:
        """Whether the client answers; its connection is closed if not."""


class Attending(Protocol):
    """A producer."""

    name: str
    is_closed: bool
    #: Of its exclusive access, as the client brought it, then as it was granted.
    topic_epoch: int | None

    @property
    def producer_id(self) -> int:
        """The client's id, unique on its connection."""

    @property
    def epoch(self) -> int:
        """Grows each time the client connects it again."""

    @property
    def access_mode(self) -> AccessMode:
        """Which access it wants."""

    @property
    def connection(self) -> LivingConnection:
        """Its client's."""

    def __hash__(self) -> int:
        """By identity."""

    def stop(self) -> None:
        """It is about to be sent away: nothing of what it sends is taken any more."""

    def disconnect(self) -> None:
        """Tell the client to look the topic up again."""

    def fence(self, error: GemingaError) -> None:
        """It lost, or can not get, exclusive access."""

    def granted(self) -> None:
        """It waited for exclusive access and has it now."""


P = TypeVar("P", bound=Attending)
P_contra = TypeVar("P_contra", bound=Attending, contravariant=True)


class KeptOfProducers(Protocol):
    """What the topic's log keeps for its producers."""

    @property
    def is_terminated(self) -> bool:
        """Whether nothing can be published any more."""

    @property
    def epoch(self) -> int | None:
        """Of exclusive access, as stored; None: there never was one."""

    async def store_epoch(self, epoch: int) -> None:
        """Make it durable. Raises StorageError."""


class ProducerWatch(Protocol[P_contra]):
    """Who hears of producers, and may keep one out."""

    async def admit_producer(self, producer: P_contra, /) -> None:
        """Before one is let in: raise GemingaError to keep it out."""

    async def producer_joined(self, producer: P_contra, /) -> None:
        """It was let in, and is told so when this returns."""

    def producer_left(self, producer: P_contra, /) -> None:
        """It is gone, and no other of its name is there."""


class NothingKept:
    """Of a topic without a log."""

    __slots__ = ()
    is_terminated: Final = False
    epoch: Final = None

    async def store_epoch(self, epoch: int) -> None:
        """It lasts as long as the topic is loaded."""


NOTHING_KEPT: Final = NothingKept()


class TopicProducers(Generic[P]):
    """See the module."""

    __slots__ = (
        "_access",
        "_hosts",
        "_kept",
        "_life",
        "_name",
        "_part",
        "_replicators",
        "_watch",
        "by_name",
        "most",
        "most_from_one",
        "waiting",
    )

    def __init__(
        self,
        name: TopicName,
        life: TopicLife,
        part: Part,
        *,
        kept: KeptOfProducers = NOTHING_KEPT,
        watch: ProducerWatch[P] | None = None,
    ) -> None:
        """``name``: the topic's. ``part``: whose failure it is if access can not be granted."""
        self._name = name
        self._life = life
        self._part = part
        self._kept = kept
        self._watch = watch
        #: Those that have access, or are just being given it.
        self.by_name: dict[str, P] = {}
        #: Those that wait for it, in the order they came; several may have the name of the one that has it.
        self.waiting: dict[P, None] = {}
        #: How many there may be beside replicators, as in Pulsar; 0: any number.
        self.most = 0
        #: The same of those from one address.
        self.most_from_one = 0
        #: Of those that are there: where from, and how many are replicators.
        self._hosts = HostCounts()
        self._replicators = 0
        #: Made when the first one comes; None: there is nothing to remember.
        self._access: ProducerAccess[P] | None = None

    async def add(self, producer: P) -> bool:
        """Let a producer in; False if it waits for exclusive access (it hears through ``producer.granted()``).

        Raises TopicClosingError, TopicTerminatedError, ProducerBusyError, ProducerFencedError, StorageError, and what
        else it is kept out with.
        """
        if self._watch is not None:
            await self._watch.admit_producer(producer)
        self._check_open()
        await self._make_room_for(producer)
        self._check_open()
        is_one_of_most = not is_replicator(producer.name)
        if is_one_of_most and is_reached(self.most, len(self.by_name) + len(self.waiting) - self._replicators):
            raise ProducerBusyError("Topic reached max producers limit")
        from_one = self.most_from_one if is_one_of_most else 0
        if from_one and is_reached(from_one, self._hosts.count(producer.connection.peer, self.all)):
            raise ProducerBusyError("Topic reached max same address producers limit")
        if self._access is None:
            self._access = ProducerAccess(self._kept.epoch)
        outcome = self._access.requested(producer, producer.name, producer.access_mode, producer.topic_epoch)
        self._life.touch()
        if isinstance(outcome, Queued):
            self.waiting[producer] = None
            self._came(producer)
            return False
        # Of one whom this one fences it has the place by now, if they have one name.
        replaced = self.by_name.get(producer.name)
        if replaced is not None:
            self._went(replaced)
        self.by_name[producer.name] = producer
        self._came(producer)
        await self._grant(outcome)
        if self._watch is not None and self._is_there(producer):
            await self._watch.producer_joined(producer)
        return True

    def remove(self, producer: P) -> None:
        """It is gone, connected or waiting; the next in the queue for exclusive access gets its turn."""
        if producer in self.waiting:
            del self.waiting[producer]
            self._went(producer)
        was_there = self.by_name.get(producer.name) is producer
        if was_there:
            self._went(producer)
            del self.by_name[producer.name]
            self._life.touch()
        if self._access is not None:
            self._free(self._access, producer)
        if self._watch is not None and was_there:
            self._watch.producer_left(producer)

    def _came(self, producer: P) -> None:
        self._replicators += is_replicator(producer.name)
        self._hosts.came(producer)

    def _went(self, producer: P) -> None:
        self._replicators -= is_replicator(producer.name)
        self._hosts.went(producer)

    def _free(self, access: ProducerAccess[P], producer: P) -> None:
        granted = access.left(producer)
        if granted is not None:
            following = granted.token
            del self.waiting[following]
            self.by_name[following.name] = following
            spawn(self._grant_waiting(granted), name=f"grant access to {self._name}", part=self._part)
        elif not self.by_name and not self.waiting and access.epoch == self._kept.epoch:
            # An idle topic holds nothing that can be made again.
            self._access = None

    async def _make_room_for(self, producer: P) -> None:
        existing = self.by_name.get(producer.name)
        if existing is None:
            return
        if not _is_successor(producer, existing) and producer.access_mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            return  # who has it is fenced, whatever its name
        if not _is_successor(producer, existing) and existing.connection is not producer.connection:
            # The old connection may be dead without our knowing; its end removes the old producer.
            await existing.connection.check_liveness()
            existing = self.by_name.get(producer.name)
            if existing is None:
                return
        if not _is_successor(producer, existing):
            if producer.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE:
                return  # it waits for the other to go
            raise ProducerBusyError(f"Producer with name '{producer.name}' is already connected to topic {self._name}")
        existing.is_closed = True
        self.remove(existing)

    async def _grant(self, granted: Granted[P]) -> None:
        producer = granted.token
        if granted.fenced:
            error = ProducerFencedError(f"Fenced out by producer {producer.name}")
            await self._part_from(granted.fenced, error, successor=producer.name)
            if not self._is_there(producer):
                return  # fenced itself meanwhile, or sent away: the epoch is of another
        if producer.access_mode and granted.epoch is not None and granted.epoch != self._kept.epoch:
            try:
                await self._kept.store_epoch(granted.epoch)
            except GemingaError:
                self.remove(producer)
                raise
        producer.topic_epoch = granted.epoch

    async def _grant_waiting(self, granted: Granted[P]) -> None:
        producer = granted.token
        try:
            await self._grant(granted)
        except GemingaError as error:
            producer.fence(error)
            return
        if self._watch is not None and self._is_there(producer):
            await self._watch.producer_joined(producer)
        if self._is_there(producer):
            producer.granted()

    def _check_open(self) -> None:
        self._life.check_open()
        if self._kept.is_terminated:
            raise TopicTerminatedError(TERMINATED_TEXT)

    def all(self) -> list[P]:
        """Those that wait for access, and those that have it.

        In this order all of them are sent away: else each who waits would be given access on the way, under another
        epoch, and who had it be fenced when it comes back.
        """
        return [*self.waiting, *self.by_name.values()]

    def _is_there(self, producer: P) -> bool:
        return self.by_name.get(producer.name) is producer or producer in self.waiting

    async def disconnect(self) -> None:
        """Send all of them away, and let nobody in who waits. The topic takes no others by now."""
        await self._part_from(self._all_at_the_end(), None)

    async def _part_from(self, those: Sequence[P], error: GemingaError | None, *, successor: str = "") -> None:
        """Send them away, with an error or to look the topic up again: some in each turn of the loop, for there may be
        ten thousand. Of none anything is taken from now on, so that who is let in in their place has no company; what
        they have sent is answered until they are told. ``successor``: the name of one who is where one of them was."""
        for producer in those:
            producer.stop()

        def tell(producer: P) -> None:
            if not self._is_there(producer) and producer.name != successor:
                return  # its client has closed it meanwhile, and may wait for the last answers
            if error is None:
                producer.disconnect()
            else:
                producer.fence(error)

        await Turns(self._life.clock, steps_max=TOLD_A_TURN).with_each(tell, those)

    def _all_at_the_end(self) -> list[P]:
        if self._access is not None:
            self._access.end()
        return self.all()

    def cut_off(self, part: Part) -> None:
        """Send all of them away, whatever state they are in; what fails with one is the failure of ``part``."""
        for producer in self._all_at_the_end():
            with Contained(part, "cutting a producer off", is_last=True):
                producer.disconnect()

    async def terminated(self) -> None:
        """The topic was: nobody publishes any more."""
        await self._part_from(self._all_at_the_end(), TopicTerminatedError(TERMINATED_TEXT))

    def check_invariants(self) -> None:
        """Raise InvariantError where producers and their access disagree."""
        for name, producer in self.by_name.items():
            invariant(producer.name == name, f"{self._name}: producer {producer.name} is under the name {name}")
        replicators = sum(is_replicator(producer.name) for producer in self.all())
        invariant(replicators == self._replicators, f"{self._name}: {replicators} replicators, not {self._replicators}")
        self._hosts.check_invariants(self.all())
        waiting = 0
        if self._access is not None:
            self._access.check_invariants()
            waiting = self._access.waiting_count
        invariant(waiting == len(self.waiting), f"{self._name}: {len(self.waiting)} wait for access, {waiting} in line")


def _is_successor(producer: Attending, existing: Attending) -> bool:
    """Whether the client connects the same producer again on the same connection."""
    return (
        producer.producer_id == existing.producer_id
        and producer.connection is existing.connection
        and existing.epoch < producer.epoch
    )
