"""Where a dead letter goes back to: the topic that its properties name, where that is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.client.consumer_rules.dead_letter_names import (
    DELAY_TIME,
    ORIGIN_MESSAGE_ID,
    ORIGIN_MESSAGE_ID_OLD,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUME_TIMES,
)
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError

#: What a letter has beside its message's own properties.
_ADDED: Final = frozenset(
    {REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID_OLD, RECONSUME_TIMES, DELAY_TIME}
)


class Way(NamedTuple):
    """Where a letter goes, and with which properties."""

    topic: str
    properties: Mapping[str, str]
    is_refused: bool


def way_back(properties: Mapping[str, str], letters: TopicName, allowed: str) -> Way:
    """To its origin; to ``LETTERS-refused``, as it is, where it names none that is allowed.

    Who may write dead letters chooses their properties: nothing goes beyond ``allowed``, a beginning of full names
    (``persistent://tenant/namespace/``), to the letters themselves, or to a topic of the broker's own.
    """
    refused = f"{letters.partitioned_topic}-refused"
    try:
        origin = TopicName.parse(properties.get(REAL_TOPIC, "")).partitioned_topic
    except InvalidTopicNameError:
        return Way(refused, properties, True)
    is_own = origin.local_name.startswith("__")
    if is_own or not str(origin).startswith(allowed) or str(origin) in (str(letters.partitioned_topic), refused):
        return Way(refused, properties, True)
    return Way(str(origin), {name: each for name, each in properties.items() if name not in _ADDED}, False)


def held_told(count: int, why: str) -> str:
    """Of letters whose topics do not take them; empty: there are none."""
    return f"; {count} {'stays' if count == 1 else 'stay'}: {why}" if count else ""


def encrypted_told(count: int) -> str:
    """Of letters that can not be sent back; empty: there are none."""
    if not count:
        return ""
    return f"; {count} {'stays' if count == 1 else 'stay'}: encrypted, and only who has the keys can send them back"
