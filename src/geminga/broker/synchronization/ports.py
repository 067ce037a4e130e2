"""What the synchronizer asks of the topic of events, and of the broker that it runs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from geminga.broker.synchronization.core.deciding import Objections
from geminga.broker.synchronization.core.events import SyncEvent
from geminga.model.topic_name import TopicName


class Received(NamedTuple):
    """A message of the topic."""

    #: As :func:`geminga.broker.synchronization.core.events.event_of` reads them.
    fields: Mapping[str, object]
    properties: Mapping[str, str]
    #: Why there are no fields; empty: there are.
    problem: str
    #: For who acknowledges it.
    handle: object


class EventTopic(Protocol):
    """The topic by which events come and go; all raise UnavailableError, and may be called again after it."""

    async def listen(self) -> None:
        """On return all that comes to the topic is kept until it is received and acknowledged."""
        ...

    async def publish(self, event: SyncEvent, clusters: Sequence[str] = ()) -> None:
        """On return it is stored. ``clusters``: it goes to these alone; none: to all.

        Raises PreconditionFailedError for one that is too large for the topic.
        """
        ...

    async def receive(self) -> Received:
        """The next one that is not acknowledged, in the order of the topic."""
        ...

    async def acknowledge(self, received: Received) -> None:
        """On return it does not come again."""
        ...

    async def close(self) -> None:
        """What was received and not acknowledged comes again, to whoever listens then. Raises nothing."""
        ...


class TopicClusters(Protocol):
    """Which clusters the topic is copied to, and which there are."""

    async def others(self) -> Sequence[str]:
        """The clusters that the topic is copied to. Raises MetadataError."""
        ...

    async def knows(self, cluster: str) -> bool:
        """Whether there is such a cluster. Raises MetadataError."""
        ...


class Guard(TopicClusters, Protocol):
    """What this cluster stores that another one's change must not take away."""

    @property
    def topic(self) -> TopicName:
        """Of the events."""
        ...

    async def keeps(self, path: str) -> str:
        """Why a path is kept though it is deleted elsewhere; empty: it need not be. Raises MetadataError."""
        ...

    async def objections(self, path: str, stored: bytes | None, value: bytes | None) -> Objections:
        """To a change of a path from ``stored`` to ``value``; None: nothing is there. Raises MetadataError."""
        ...

    async def prepare(self, path: str, stored: bytes | None, value: bytes | None) -> None:
        """Make what is to be there before such a change. Raises GemingaError."""
        ...

    async def removed(self, path: str) -> None:
        """A path is gone: what this cluster has to itself of it goes, too. Raises MetadataError."""
        ...

    async def doubts(self) -> str:
        """Why the topic may not do what it is for, in a sentence; empty: it does. Raises StorageError."""
        ...
