"""The events of a namespace whose topic of events another broker owns: the port through which they are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from geminga.model.topic_name import TopicName


class PolicyEvent(NamedTuple):
    """A message of ``__change_events``."""

    #: The topic that it is about.
    key: str
    #: The topic has no policies any more.
    is_null: bool
    #: As it was sent, decompressed; see docs/formats/topic-policies.md.
    data: bytes
    #: Of the schema that it was written with, as in message metadata.
    schema_version: bytes
    #: Where it is, for the log.
    place: str


class EventReader(Protocol):
    """Reads at the owner of the topic, whichever broker that is."""

    async def follow(self, name: TopicName, heard: Callable[[PolicyEvent], Awaitable[None]]) -> Callable[[], None]:
        """Have ``heard`` called with every event in order: with those stored before the call until it returns.

        Returns what ends it; after that nothing is heard. Raises UnavailableError, and what ``heard`` raises.
        """
        ...
