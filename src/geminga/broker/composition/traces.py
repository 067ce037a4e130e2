"""What spans take the place of in a broker, where they are asked for; where they are not, it is all as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from geminga.broker.connection.connection import Connection
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.topic.parts import TopicPart


class Traces(Protocol):
    """What puts spans around a broker's work; made only where they are asked for."""

    @property
    def parts(self) -> Sequence[type[TopicPart]]:
        """Of each topic, in front of all others."""
        ...

    @property
    def acknowledge(self) -> Callable[[Connection, bytes], None]:
        """What handles ACK, with a span."""
        ...

    @property
    def consumer_kind(self) -> Callable[..., Consumer]:
        """Makes consumers with spans of what they are sent, of what a plain one is made of."""
        ...
