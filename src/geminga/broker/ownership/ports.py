"""Who serves a topic: the port that lookup, REST and the registry ask, and what is told of it.

An owner is what this broker knows at this moment. It may be wrong by the time it is used, so it decides where clients
are sent and whether a topic is opened, never what is stored: that is what the fencing of the topic's ledger is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.core.departure import Departure


@dataclass(frozen=True, slots=True)
class Here:
    """This broker serves it, and nobody else may."""


class Elsewhere(NamedTuple):
    """Another broker serves it, or is to."""

    #: The listeners of that broker.
    endpoints: Endpoints
    #: It has the topic. False: nobody has, and that broker takes it when it is asked with authority.
    is_owner: bool = True
    #: False: it is not to take the topic, but to say who is (it leads the cluster), and is asked without authority.
    is_chosen: bool = True


class Unknown(NamedTuple):
    """Nobody can tell now: the topic is on its way, or those who know do not answer."""

    why: str = "nobody serves it now"
    #: This broker lets go of it, which waits for what is being loaded here: that must not wait for it in turn.
    is_ending_here: bool = False


Owner = Here | Elsewhere | Unknown

HERE = Here()


async def is_served_here(ownership: Ownership, name: TopicName) -> bool:
    """Whether a topic that others are loaded from is read in this process, or asked for at its owner.

    Raises UnavailableError while this broker lets go of it: it would wait for a load that waits for it. Raises
    StorageError.
    """
    owner = await ownership.owner_of(name)
    if isinstance(owner, Unknown) and owner.is_ending_here:
        raise UnavailableError(f"{name} can not be read now: {owner.why}")
    return isinstance(owner, Here)


#: A set of topics: whether one is in it. Constant while it is used.
Topics = Callable[[TopicName], bool]


class OwnershipListener(Protocol):
    """Who is told of topics that come and go."""

    def given(self, topics: Topics) -> None:
        """This broker serves these from now on; ``owner_of`` says so already."""

    async def taken(self, topics: Topics) -> None:
        """It serves these no more; ``owner_of`` says so already. On return nothing of them is open.

        Whoever gives topics away in good order lets the next owner begin when this returned. Raises nothing.
        """


class Ownership(Protocol):
    """See the module."""

    async def owner_of(self, name: TopicName, *, is_authoritative: bool = False) -> Owner:
        """Who serves the topic. ``is_authoritative``: whoever asks was sent here to be served.

        A partition has an owner of its own. Raises StorageError.
        """

    def doubt(self, name: TopicName) -> None:
        """Somebody else opened what is stored of the topic: ``owner_of`` answers again when that was looked into."""

    async def bundles_elsewhere(self, namespace: str) -> list[tuple[str, Elsewhere]]:
        """The bundles of ``tenant/namespace`` that other brokers own now: range and owner. Raises StorageError."""

    def departure_of(self, name: TopicName) -> Departure | None:
        """Where the clients of a topic wait that is being given away now; None: it goes nowhere."""

    def listen(self, listener: OwnershipListener) -> None:
        """Tell ``listener`` of what comes and goes, until the end; the one that came last is told first."""


class OtherPlaces(Protocol):
    """Clusters that serve what does not live in this one."""

    async def endpoint_for(self, namespace: str) -> Endpoint | None:
        """Where a cluster is that the namespace lives in, and that clients are sent to; None: there is none.

        Raises UnavailableError where that one has no address, MetadataError.
        """
        ...

    async def partitions(self, name: TopicName) -> int:
        """Stored of a topic, wherever its namespace lives; 0: none. Nothing is made. Raises MetadataError."""
        ...
