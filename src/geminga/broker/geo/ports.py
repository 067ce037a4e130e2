"""What a replicator asks of the other clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from geminga.broker.geo.core.copying import Copy
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.wire.pulsar.schema_info import SchemaInfo

#: Told in a later turn of the loop, and in order: how many entries more are stored over there, and None; or 0, and why
#: the next one, and all behind it, is not.
CopyDone = Callable[[int, GemingaError | None], None]


class AwayError(UnavailableError):
    """What can be over at any moment: nobody answers, or who does is not ready."""

    def __init__(self, text: str, back: asyncio.Future[None]) -> None:
        """``back`` is done when it is worth another try, however long the pause that is due."""
        super().__init__(text)
        self.back = back


class RemoteTopic(Protocol):
    """A topic of another cluster, to which one of this cluster is copied."""

    @property
    def is_connected(self) -> bool:
        """Whether it is reached now; where not, it is tried again, and answers come late."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether as much is on its way as may be."""
        ...

    async def room(self) -> None:
        """Until something more may be sent, or nothing any more."""
        ...

    async def version_of(self, schema: SchemaInfo) -> bytes:
        """The version over there of a schema, which is added where it is missing. Raises GemingaError."""
        ...

    def send(self, copy: Copy, position: Position, done: CopyDone) -> None:
        """Send an entry behind all before. ``position``: in this cluster; ``done``: the same for all. Raises
        GemingaError, and then nothing is sent."""
        ...

    async def close(self) -> None:
        """Send nothing more; what is on its way may be stored and has no answer."""
        ...


class Links(Protocol):
    """Ways to other clusters."""

    async def open(self, cluster: str, topic: TopicName) -> RemoteTopic:
        """The topic over there, which is made where it is missing. Raises GemingaError that says why not."""
        ...
