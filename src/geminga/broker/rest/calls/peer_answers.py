"""Questions to the owners of several topics, some at a time: what a request needs that is not known here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.core.coercion import Json
from geminga.broker.peers.topics import require_good
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.peers.topics import PeerTopics

#: Asked at the same time: half of what a broker's client for others does at once.
AT_ONCE: Final = 16


class Question(NamedTuple):
    """A GET to the owner of a topic."""

    name: TopicName
    path: str
    query: str = ""


async def ask_owners(peers: PeerTopics | None, questions: Sequence[Question]) -> list[Json]:
    """What they answer, in the order of the questions; None: there is no such thing there, or nothing is said of it.

    Raises UnavailableError where an owner does not answer, or there is none, and what owners say against it.
    """
    if not questions:
        return []
    if peers is None:
        raise UnavailableError(f"{questions[0].name} is not served here, and other brokers can not be asked")
    found: list[Json] = []
    for start in range(0, len(questions), AT_ONCE):
        some = questions[start : start + AT_ONCE]
        answers = await asyncio.gather(
            *(peers.ask_owner(each.name, "GET", each.path, query=each.query) for each in some)
        )
        for answer in answers:
            if answer.status != 404:
                require_good(answer)
            found.append(None if answer.status == 404 else answer.json())
    return found
