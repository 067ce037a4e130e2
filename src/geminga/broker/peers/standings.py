"""How transactions stand to topics and subscriptions, asked of the broker that has their coordinator.

``POST /admin/v3/transactions/standings/COORDINATOR`` with ``[{"number": 7, "topic": "...", "subscription": "..."}]``
answers ``{"standings": ["over"]}``: names of :class:`geminga.model.txn_id.Standing`. Whoever is asked for a coordinator
that nobody has takes it. Each coordinator is asked one request at a time; what is asked meanwhile goes together with
the next: many transactions begin at once.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Json
from geminga.broker.peers.topics import PeerTopics, require_good
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.txn_id import Standing, TxnId, TxnSubscription
from geminga.runtime import spawn

PATH: Final = "/admin/v3/transactions/standings"
#: Questions of one request.
QUESTIONS_MAX: Final = 1_000


class StandingQuestion(NamedTuple):
    """A question, and who waits for its answer."""

    number: int
    participant: str | TxnSubscription
    answer: asyncio.Future[Standing]

    def document(self) -> Json:
        """As it travels."""
        whose = self.participant
        named: dict[str, Json] = {"topic": whose} if isinstance(whose, str) else {**whose._asdict()}
        return {"number": self.number, **named}


def standings_of(document: Json, count: int) -> list[Standing | None]:
    """What was answered to so many questions; None: nothing that is one."""
    told = document.get("standings") if isinstance(document, dict) else None
    names = told if isinstance(told, list) and len(told) == count else [None] * count
    known = {each.value: each for each in Standing}
    return [known.get(name) if isinstance(name, str) else None for name in names]


class PeerStandings:
    """See the module; :class:`geminga.transaction.ports.StandingsElsewhere`."""

    __slots__ = ("_peers", "_waiting")

    def __init__(self, peers: PeerTopics) -> None:
        self._peers = peers
        #: Coordinators that are being asked -> what is to be asked of them next.
        self._waiting: dict[int, list[StandingQuestion]] = {}

    async def ask(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing | None:
        """As the port says."""
        if await self._peers.is_at_another_make(COORDINATORS_TOPIC.with_partition(txn_id.coordinator)):
            return None
        answer: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(txn_id.coordinator)
        if waiting is None:
            waiting = self._waiting[txn_id.coordinator] = []
            spawn(self._ask_all(txn_id.coordinator), name=f"standings of coordinator {txn_id.coordinator}")
        waiting.append(StandingQuestion(txn_id.number, participant, answer))
        return await answer

    async def _ask_all(self, coordinator: int) -> None:
        """Until nobody waits."""
        while waiting := [each for each in self._waiting[coordinator] if not each.answer.done()]:
            asked, self._waiting[coordinator] = waiting[:QUESTIONS_MAX], waiting[QUESTIONS_MAX:]
            try:
                found = await self._ask(coordinator, asked)
            except GemingaError as error:
                for each in asked:
                    _fail(each.answer, error)
                continue
            for each, standing in zip(asked, found, strict=True):
                if standing is None:
                    about = f"{TxnId(coordinator, each.number)} stands to {each.participant}"
                    _fail(each.answer, UnavailableError(f"the broker of its coordinator did not say how {about}"))
                elif not each.answer.done():
                    each.answer.set_result(standing)
        del self._waiting[coordinator]

    async def _ask(self, coordinator: int, asked: list[StandingQuestion]) -> list[Standing | None]:
        topic = COORDINATORS_TOPIC.with_partition(coordinator)
        body = json.dumps([each.document() for each in asked]).encode()
        answer = await self._peers.ask_owner(topic, "POST", f"{PATH}/{coordinator}", body=body)
        require_good(answer)
        return standings_of(answer.json(), len(asked))


def _fail(answer: asyncio.Future[Standing], error: GemingaError) -> None:
    if not answer.done():
        answer.set_exception(error)
