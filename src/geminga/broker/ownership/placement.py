"""Who takes a bundle that nobody owns: decided once, by the leader; without one by whoever is asked.

Who does not lead sends clients to the leader. The leader chooses, and sends them with authority to whom it chose; that
broker makes the bundle's node, or finds that another one has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.core.choosing import Chooser
from geminga.broker.ownership.leader_election import LeaderElection
from geminga.broker.ownership.live_brokers import LiveBrokers
from geminga.broker.ownership.owner_nodes import endpoints_in
from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, Unknown
from geminga.runtime import Clock

#: A choice holds so long: all who ask before the bundle has its owner are sent to the same broker.
CHOICE_MS: Final = 2_000
#: ... and one that an administrator made, until the bundle is let go by its owner and asked for.
DESTINATION_MS: Final = 60_000
#: Choices kept; the oldest is forgotten first.
CHOICES_MAX: Final = 10_000

_NOBODY: Final = Unknown("no broker is registered that could take it")


class _Choice(NamedTuple):
    broker_id: str
    #: Monotonic, milliseconds.
    until_ms: float


class LeaderPlacement:
    """See the module; a ``bundle_ownership.Placement``."""

    def __init__(
        self, own_id: str, brokers: LiveBrokers, election: LeaderElection, chooser: Chooser, clock: Clock
    ) -> None:
        self._own_id = own_id
        self._brokers = brokers
        self._election = election
        self._chooser = chooser
        self._clock = clock
        self._choices: dict[Bundle, _Choice] = {}

    async def __call__(self, bundle: Bundle) -> Owner:
        """Who is to take it."""
        leader = self._election.leader
        if leader is not None and leader.broker_id != self._own_id and not self._election.is_leader:
            there = self._brokers.find(leader.broker_id)
            if there is not None:
                return Elsewhere(endpoints_in(there.owner), is_owner=False, is_chosen=False)
        broker_id = self._choose(bundle)
        if broker_id is None:
            return _NOBODY
        if broker_id == self._own_id:
            return HERE
        chosen = self._brokers.find(broker_id)
        return _NOBODY if chosen is None else Elsewhere(endpoints_in(chosen.owner), is_owner=False)

    def send(self, bundle: Bundle, broker_id: str) -> None:
        """An administrator's wish: that broker takes it when it is next asked for, if it is there."""
        self._keep(bundle, broker_id, DESTINATION_MS)

    def _choose(self, bundle: Bundle) -> str | None:
        kept = self._choices.get(bundle)
        if kept is not None:
            if self._clock.monotonic() * 1000 < kept.until_ms and self._brokers.find(kept.broker_id) is not None:
                return kept.broker_id
            del self._choices[bundle]
        chosen = self._chooser.choose(bundle, self._brokers.all)
        if chosen is not None:
            self._keep(bundle, chosen, CHOICE_MS)
        return chosen

    def _keep(self, bundle: Bundle, broker_id: str, how_long_ms: int) -> None:
        self._choices.pop(bundle, None)
        self._choices[bundle] = _Choice(broker_id, self._clock.monotonic() * 1000 + how_long_ms)
        if len(self._choices) > CHOICES_MAX:
            del self._choices[next(iter(self._choices))]
