"""How a transaction stands to a topic or subscription, asked of the broker that has its coordinator.

``GET /admin/v3/transactions/standing/MOST/LEAST?topic=...&subscription=...`` answers ``{"standing": "over"}`` or
another name of :class:`geminga.model.txn_id.Standing`. Whoever is asked for a coordinator that nobody has takes it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from geminga.broker.core.coercion import Json
from geminga.broker.peers.topics import PeerTopics, require_good
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.errors import UnavailableError
from geminga.model.txn_id import Standing, TxnId, TxnSubscription

PATH: Final = "/admin/v3/transactions/standing"


def standing_of(document: Json) -> Standing | None:
    """What was answered; None: nothing that is one."""
    text = document.get("standing") if isinstance(document, dict) else None
    return next((each for each in Standing if each.value == text), None)


class PeerStandings:
    """See the module; :class:`geminga.transaction.ports.StandingsElsewhere`."""

    __slots__ = ("_peers",)

    def __init__(self, peers: PeerTopics) -> None:
        self._peers = peers

    async def ask(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing | None:
        """As the port says."""
        coordinator = COORDINATORS_TOPIC.with_partition(txn_id.coordinator)
        if await self._peers.is_at_another_make(coordinator):
            return None
        named = {"topic": participant} if isinstance(participant, str) else participant._asdict()
        path = f"{PATH}/{txn_id.coordinator}/{txn_id.number}"
        answer = await self._peers.ask_owner(coordinator, "GET", path, query=urlencode(named))
        require_good(answer)
        standing = standing_of(answer.json())
        if standing is None:
            raise UnavailableError(f"the broker at {answer.url} did not say how {txn_id} stands")
        return standing
