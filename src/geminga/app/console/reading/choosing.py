"""The topic that a visitor names, with or without its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from geminga.app.console.reading.browsing import partitions_of
from geminga.app.console.tables import Refusal
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError

if TYPE_CHECKING:
    from geminga.admin import AdminClient


class ChosenTopic(NamedTuple):
    """What was named, and what of it is shown."""

    #: Without its partition.
    whole: str
    #: A partition, or the topic where it has none.
    shown: str
    #: All of them; empty: it has none.
    partitions: list[str]


def topic_named(text: str) -> TopicName:
    """Raises Refusal for what is no name of a topic."""
    try:
        return TopicName.parse(text.strip())
    except InvalidTopicNameError as error:
        raise Refusal(f"“{text[:200]}” is no name of a topic: {str(error).rstrip('.')}.") from error


async def chosen_topic(admin: AdminClient, text: str) -> ChosenTopic:
    """Of one with partitions the first is shown, unless another is named. Raises Refusal, AdminError."""
    name = topic_named(text)
    whole = str(name.partitioned_topic)
    count = await partitions_of(admin, whole)
    partitions = [f"{whole}-partition-{number}" for number in range(count)]
    shown = partitions[0] if partitions and not name.is_partition else str(name)
    return ChosenTopic(whole, shown, partitions)
