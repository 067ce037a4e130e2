"""Which broker takes a bundle that nobody owns: the rule that the cluster's leader goes by. Pure.

:class:`Chooser` is the port. A rule may remember what it gave out; it is asked by one broker at a time, the leader, but
another one may have been asked before, and a cluster without a leader asks the rules of all its brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from geminga.broker.ownership.core.broker_data import RegisteredBroker
from geminga.broker.ownership.core.bundles import Bundle

#: Bundles of which is remembered who got them; the one that was given longest ago is forgotten first.
GIVEN_REMEMBERED_MAX: Final = 100_000


class Chooser(Protocol):
    """See the module."""

    def choose(self, bundle: Bundle, brokers: Sequence[RegisteredBroker]) -> str | None:
        """The id of one of ``brokers``, those that are there now, by id; None: none of them may have it.

        Nobody owns ``bundle`` now; it may have been given out before, and then was let go.
        """


class FewestBundles:
    """Who was given the fewest bundles gets the next one, so that a burst of questions spreads."""

    def __init__(self) -> None:
        self._given: dict[Bundle, str] = {}
        self._counts: Counter[str] = Counter()

    def choose(self, bundle: Bundle, brokers: Sequence[RegisteredBroker]) -> str | None:
        """See :class:`Chooser`."""
        self._forget_gone({broker.broker_id for broker in brokers})
        before = self._given.pop(bundle, None)
        if before is not None:
            self._counts[before] -= 1
        if not brokers:
            return None
        chosen = min((self._counts[broker.broker_id], broker.broker_id) for broker in brokers)[1]
        self._given[bundle] = chosen
        self._counts[chosen] += 1
        if len(self._given) > GIVEN_REMEMBERED_MAX:
            oldest = next(iter(self._given))
            self._counts[self._given.pop(oldest)] -= 1
        return chosen

    def _forget_gone(self, there: set[str]) -> None:
        """Who comes back begins with nothing."""
        gone = self._counts.keys() - there
        if gone:
            self._given = {bundle: broker for bundle, broker in self._given.items() if broker not in gone}
            for broker in gone:
                del self._counts[broker]
