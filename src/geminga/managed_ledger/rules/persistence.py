"""How a managed ledger is stored: quorums and bookies of its new ledgers, and how often a cursor is written. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from geminga.wire.bookkeeper.isolation import IsolationGroups

#: Seconds from a write of a cursor that failed to the next, at least.
RETRY_S_MIN: Final = 0.5


@dataclass(frozen=True, slots=True)
class Persistence:
    """Pulsar's ``PersistencePolicies``, and a namespace's bookies.

    Raises ValueError unless E >= Qw >= Qa >= 1 and the rate is a number >= 0.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    #: Writes of a cursor that nobody waits for, a second; 0: no limit.
    mark_delete_rate: float
    #: Of which groups the bookies are; None: of those that are configured for all.
    groups: IsolationGroups | None = None

    def __post_init__(self) -> None:
        """Refuse what no ledger can be made with."""
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            quorums = (self.ensemble_size, self.write_quorum, self.ack_quorum)
            raise ValueError(f"E >= Qw >= Qa >= 1 is wanted of {quorums}")
        if not (isfinite(self.mark_delete_rate) and self.mark_delete_rate >= 0):
            raise ValueError(f"mark-deletes a second must be 0 or more: {self.mark_delete_rate}")

    def within(self, groups: IsolationGroups | None) -> Persistence:
        """The same on bookies of these groups."""
        return self if groups == self.groups else replace(self, groups=groups)

    def flush_interval_s(self, longest_s: float) -> float:
        """Seconds from one write of a cursor that nobody waits for to the next, ``longest_s`` at most."""
        return 0.0 if not self.mark_delete_rate else min(1.0 / self.mark_delete_rate, longest_s)


class StoredAs:
    """How a managed ledger is stored from now on; one with others that go with it, such as logs of its transactions."""

    __slots__ = ("_usual", "now")

    def __init__(self, usual: Persistence) -> None:
        self._usual = self.now = usual

    def set(self, persistence: Persistence | None, *, groups: IsolationGroups | None = None) -> None:
        """Ledgers made from now on, also of cursors, have these quorums (None: the usual), on bookies of ``groups``.

        An open ledger keeps its own until it is full. If there are fewer bookies than E, no new one can be made:
        appends fail with NotEnoughBookiesError, and go on once there are enough or the policy is another.
        """
        self.now = (persistence or self._usual).within(groups)


def flush_due_s(now_s: float, flushed_s: float, interval_s: float, *, is_retry: bool) -> float:
    """When cursors are next persisted that nobody waits for; they were last at ``flushed_s``.

    At once if that is an interval ago: a process that is killed again and again within that time still gets on,
    instead of delivering the same messages for ever. ``is_retry``: a write failed, so a full time passes.
    """
    return now_s + max(interval_s, RETRY_S_MIN) if is_retry else max(now_s, flushed_s + interval_s)
