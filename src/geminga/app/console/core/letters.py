"""Topics of dead letters and of messages to be tried again: which they are, and where each letter came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from geminga.app.handles.core.letters import way_back
from geminga.client.consumer_rules.dead_letter_names import (
    DEAD_LETTER_SUFFIX,
    ORIGIN_MESSAGE_ID,
    ORIGIN_MESSAGE_ID_OLD,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUME_TIMES,
    RETRY_SUFFIX,
)
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError

_OTHERS: Final = frozenset({REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID_OLD, RECONSUME_TIMES})


class LetterOrigin(NamedTuple):
    """What a letter says of the message that it was."""

    topic: str
    subscription: str
    message_id: str
    #: Times that it was tried; empty: not told.
    tries: str
    #: Other properties, a reason that whoever gave up wrote among them.
    properties: Mapping[str, str]
    #: Where it is sent back to; empty: it names no origin that is allowed, so that it goes to ``LETTERS-refused``.
    target: str


def letters_topics(names: Iterable[str]) -> list[str]:
    """Those of a list of topics that hold letters, partitions counted as their topic, by name."""
    found = set()
    for name in names:
        try:
            topic = TopicName.parse(name).partitioned_topic
        except InvalidTopicNameError:
            continue
        if topic.local_name.endswith((DEAD_LETTER_SUFFIX, RETRY_SUFFIX)):
            found.add(str(topic))
    return sorted(found)


def is_dead_letters(topic: str) -> bool:
    """Whether letters lie there until somebody sends them back; else consumers of the topic take them by themselves."""
    return not TopicName.parse(topic).partitioned_topic.local_name.endswith(RETRY_SUFFIX)


def origin_of(letters: str, properties: Mapping[str, str], allowed: str = "") -> LetterOrigin:
    """``letters``: the topic it lies in; ``allowed``: as :func:`redrive` takes it. Raises InvalidTopicNameError."""
    name = TopicName.parse(letters)
    way = way_back(properties, name, allowed or f"{name.domain}://{name.namespace}/")
    return LetterOrigin(
        properties.get(REAL_TOPIC, ""),
        properties.get(REAL_SUBSCRIPTION, ""),
        properties.get(ORIGIN_MESSAGE_ID) or properties.get(ORIGIN_MESSAGE_ID_OLD, ""),
        properties.get(RECONSUME_TIMES, ""),
        {key: value for key, value in properties.items() if key not in _OTHERS},
        "" if way.is_refused else way.topic,
    )


def waiting_letters(stats: Mapping[str, Any], entries: int, subscription: str) -> int:
    """How many entries are not sent back yet: of ``entries`` that are stored, by the statistics of the topic.

    ``subscription``: that which sends them back.
    """
    mine = (stats.get("subscriptions") or {}).get(subscription)
    return entries if mine is None else int(mine.get("msgBacklog", 0))
