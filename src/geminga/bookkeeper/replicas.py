"""How reads reach replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.model.bookie_port import Availability

if TYPE_CHECKING:
    from geminga.model.bookie_port import BookiePool


class Replicas:
    """How a client's reads reach replicas: the bookies, and what all its reads share."""

    __slots__ = ("is_sticky", "pool", "speculative_calls", "speculative_s")

    def __init__(self, pool: BookiePool, *, speculative_s: float = 0.0, is_sticky: bool = True) -> None:
        """``speculative_s``: after so long another replica is asked as well; 0: never."""
        self.pool = pool
        self.speculative_s = speculative_s
        self.is_sticky = is_sticky
        #: Without an answer now.
        self.speculative_calls = 0

    def is_reachable(self, bookie_id: str) -> bool:
        """As far as was seen."""
        return self.pool.get(bookie_id).availability is not Availability.DOWN
