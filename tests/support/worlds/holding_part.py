"""A part of a topic that holds back reads by hand: how a feature is built into a topic, and the judge of read limits.

Files that such a feature touches: its own module, and its line in ``broker/topic/registered_parts.py`` (here
:func:`with_parts`). What it stores, it stores where it likes; this one uses a property of the topic's ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from geminga.broker.composition.service import Broker
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.position import LATEST, Position

#: Where the limit is stored.
PROPERTY: Final = "test.holding"


class HoldingPart(TopicPart):
    """Readers stop where they are told to."""

    __slots__ = ("_topic", "limit")

    name: ClassVar[str] = "holding"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self.limit = LATEST

    async def load(self) -> None:
        """The limit as it was stored."""
        text = self._topic.ledger.stored.properties.get(PROPERTY)
        if text is not None:
            ledger_id, _, entry_id = text.partition(":")
            self.limit = Position(int(ledger_id), int(entry_id))

    def read_limit(self) -> Position:
        """As told."""
        return self.limit

    def stats(self) -> Mapping[str, object]:
        """The limit, if there is one."""
        return {} if self.limit == LATEST else {"readLimit": str(self.limit)}

    async def hold_at(self, position: Position) -> None:
        """Nothing behind ``position`` is read until this is called again; LATEST lets go. Durable on return."""
        properties = {key: value for key, value in self._topic.ledger.stored.properties.items() if key != PROPERTY}
        if position != LATEST:
            properties[PROPERTY] = f"{position.ledger_id}:{position.entry_id}"
        self.limit = min(self.limit, position)  # held at once, let go when that is stored
        self._topic.parts.limit_moved()
        await self._topic.ledger.stored.set_properties(properties)
        self.limit = position
        self._topic.parts.limit_moved()


def with_parts(broker: Broker, *kinds: type[TopicPart]) -> None:
    """Topics that are loaded from now on have these parts before all others."""
    broker.topic_services = replace(broker.topic_services, parts=(*kinds, *broker.topic_services.parts))


def holder_of(topic: PersistentTopic) -> HoldingPart:
    """The part that holds its reads."""
    part = topic.parts.find(HoldingPart)
    assert part is not None
    return part
