"""The topic that a visitor names, with or without its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.admin.errors import NotFoundError
from geminga.app.console.reading.browsing import partitions_of
from geminga.app.console.tables import Refusal
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError

if TYPE_CHECKING:
    from geminga.admin import AdminClient


#: Partitions that a page has links to: those around the one that it shows.
PARTITIONS_SHOWN_MAX: Final = 50


class ChosenTopic(NamedTuple):
    """What was named, and what of it is shown."""

    #: Without its partition.
    whole: str
    #: A partition, or the topic where it has none.
    shown: str
    #: Those around it, :data:`PARTITIONS_SHOWN_MAX` at most; empty: it has none.
    partitions: list[str]
    #: Of all partitions.
    partition_count: int


def topic_named(text: str) -> TopicName:
    """Raises Refusal for what is no name of a topic.

    Blanks at its end are its own: a topic may have some, and is not the one without that looks like it.
    """
    try:
        return TopicName.parse(text.lstrip())
    except InvalidTopicNameError as error:
        raise Refusal(f"“{text[:200]}” is no name of a topic: {str(error).rstrip('.')}.") from error


async def chosen_topic(admin: AdminClient, text: str) -> ChosenTopic:
    """Of one with partitions the first is shown, unless another is named. Raises Refusal, AdminError.

    Blanks that were typed behind a name are none of it, unless there is such a topic.
    """
    name = topic_named(text)
    whole = str(name.partitioned_topic)
    try:
        count = await partitions_of(admin, whole)
    except NotFoundError:
        if text == text.rstrip():
            raise
        return await chosen_topic(admin, text.rstrip())
    here = name.partition if name.is_partition else 0
    first = max(0, min(here - PARTITIONS_SHOWN_MAX // 2, count - PARTITIONS_SHOWN_MAX))
    numbers = range(first, min(first + PARTITIONS_SHOWN_MAX, count))
    shown = f"{whole}-partition-0" if count and not name.is_partition else str(name)
    return ChosenTopic(whole, shown, [f"{whole}-partition-{number}" for number in numbers], count)
