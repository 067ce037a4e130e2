"""Topics that another broker is to have, and their clients, which are told of it when it is there. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from geminga.model.topic_name import TopicName

#: The command that sends a client away, given the new owner's URLs without and with TLS; empty: they are not told.
Farewell = Callable[[str, str], bytes]


class LeavingOutput(Protocol):
    """What is written to a client."""

    def write_soon(self, data: bytes) -> None:
        """Send with everything else of this turn of the loop."""


class Leaving(Protocol):
    """A client's connection."""

    #: The advertised listener through which it came; empty: the default one.
    listener: str

    @property
    def output(self) -> LeavingOutput:
        """What is written to it."""


class DepartingClient(NamedTuple):
    """A producer or a consumer that is not told yet."""

    topic: TopicName
    connection: Leaving
    farewell: Farewell
    #: Called when it is told.
    told: Callable[[], None] | None


class Departure:
    """See the module."""

    __slots__ = ("clients", "topics")

    def __init__(self, topics: Callable[[TopicName], bool]) -> None:
        #: Whether a topic is one of them.
        self.topics = topics
        #: As many as were connected.
        self.clients: list[DepartingClient] = []

    def add(
        self, topic: TopicName, connection: Leaving, farewell: Farewell, told: Callable[[], None] | None = None
    ) -> None:
        """A client that is to be told."""
        self.clients.append(DepartingClient(topic, connection, farewell, told))
