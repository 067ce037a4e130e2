"""Between the owner of a source and the owner of a shadow, who may be one broker: the port ``ShadowLinks``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlencode

from geminga.model.errors import RemoteError, UnavailableError

if TYPE_CHECKING:
    from geminga.broker.core.coercion import Json
    from geminga.broker.core.source_word import SourceWord
    from geminga.broker.peers.topics import PeerTopics
    from geminga.broker.topic.base import Topic
    from geminga.model.position import Position
    from geminga.model.topic_name import TopicName

#: Behind the path of a topic: what two owners say to each other.
STATE: Final = "/shadowState"
#: Questions and tellings under way to other brokers: fewer than all that brokers ask each other, which so is not held
#: up by one that hangs.
REQUESTS_AT_ONCE: Final = 8
#: Seconds that one may take.
REQUEST_S_MAX: Final = 10.0


class OwnTopics(Protocol):
    """The topics of this broker."""

    loaded: Mapping[str, Topic]

    async def get(self, name: TopicName, *, create: bool, is_for_client: bool = True) -> Topic:
        """The topic, loaded if need be. Raises TopicNotFoundError, TopicNotServedError, UnavailableError."""
        ...


class PeerShadows:
    """See the module."""

    __slots__ = ("_elsewhere", "_topics", "_turns")

    def __init__(self, topics: OwnTopics, elsewhere: PeerTopics | None) -> None:
        """``elsewhere``: who asks other brokers; None: there are none."""
        self._topics = topics
        self._elsewhere = elsewhere
        self._turns = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def ask(self, source: TopicName, shadow: TopicName, known: Position) -> SourceWord:
        """As of the port."""
        if self._elsewhere is None or await self._elsewhere.is_here(source):
            return await self.answer(source, shadow, known)
        from geminga.broker.core.source_word import word_of

        query = urlencode({"shadow": str(shadow), "ledgerId": known.ledger_id, "entryId": known.entry_id})
        found = await self._request(source, "GET", query=query)
        try:
            return word_of(found)
        except RemoteError as error:
            raise UnavailableError(f"the broker of {source} says of it what can not be understood: {error}") from error

    async def tell(self, shadow: TopicName, word: SourceWord) -> bool:
        """As of the port."""
        if self._elsewhere is None or await self._elsewhere.is_here(shadow):
            self.heard(shadow, word)
            return True
        from geminga.broker.core.source_word import word_json

        await self._request(shadow, "PUT", body=json.dumps(word_json(word)).encode())
        return False

    # ---- on this side

    async def answer(self, source: TopicName, shadow: TopicName, known: Position) -> SourceWord:
        """As of the port."""
        from geminga.broker.core.source_word import UNLISTED
        from geminga.broker.shadow.source import ShownTopic
        from geminga.broker.topic.persistent import PersistentTopic

        topic = await self._topics.get(source, create=False, is_for_client=False)
        part = topic.parts.find(ShownTopic) if isinstance(topic, PersistentTopic) else None
        return UNLISTED if part is None else part.word_for(shadow, known)

    def heard(self, shadow: TopicName, word: SourceWord) -> None:
        """As of the port."""
        from geminga.broker.shadow.topic import ShadowTopic

        topic = self._topics.loaded.get(str(shadow))
        if isinstance(topic, ShadowTopic) and topic.following is not None:
            topic.following.told(word)

    async def _request(self, name: TopicName, method: str, *, query: str = "", body: bytes = b"") -> Json:
        """Raises UnavailableError, or the owner's refusal."""
        from geminga.broker.peers.topics import require_good

        assert self._elsewhere is not None
        if await self._elsewhere.is_at_another_make(name):
            raise UnavailableError(f"{name} is served by a broker that is not Geminga's, which does not tell")
        try:
            async with asyncio.timeout(REQUEST_S_MAX), self._turns:
                answer = await self._elsewhere.ask(name, method, STATE, query=query, body=body)
        except TimeoutError as error:
            raise UnavailableError(f"the broker of {name} does not answer within {REQUEST_S_MAX:g} s") from error
        require_good(answer)
        return answer.json()
