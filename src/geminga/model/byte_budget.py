"""A bound on bytes that many hold at the same time: who asks first is granted first. Pure.

Whoever is about to hold bytes claims as many as it may become; the claim is granted at once while there is room and
nobody waits, else when those before it let go. A claim larger than the whole budget is granted alone, so that one
always goes on. No claim overtakes another, so that none starves; as nobody may wait for a second claim while it holds
one, those who hold always come to an end.
"""

from __future__ import annotations

from collections.abc import Callable

from geminga.model.errors import invariant


class Claim:
    """Bytes of a budget, waited for or held. Made by :meth:`ByteBudget.claim`."""

    __slots__ = ("_budget", "_granted", "is_held", "size_bytes")

    def __init__(self, budget: ByteBudget, size_bytes: int, granted: Callable[[Claim], None]) -> None:
        self._budget = budget
        #: None once it was called, or will not be: it may hold whoever holds the claim.
        self._granted: Callable[[Claim], None] | None = granted
        self.size_bytes = size_bytes
        #: Granted and not let go.
        self.is_held = False

    def grant(self) -> None:
        """For the budget: it is this one's turn."""
        self.is_held = True
        granted, self._granted = self._granted, None
        if granted is not None:
            granted(self)

    def resize(self, size_bytes: int) -> None:
        """So many bytes are held in truth; more than claimed are counted, too."""
        self._budget.resize(self, size_bytes)

    def release(self) -> None:
        """Let go, or wait no more. Doing it twice is fine."""
        self._granted = None
        self._budget.release(self)


class ByteBudget:
    """See the module."""

    __slots__ = ("_is_granting", "_waiting", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        """``limit_bytes``: 0 for no limit."""
        self.limit_bytes = limit_bytes
        #: Granted and not let go.
        self.held_bytes = 0
        #: In the order of their coming. A dict, to take one out of the middle.
        self._waiting: dict[Claim, None] = {}
        self._is_granting = False

    @property
    def waiting_count(self) -> int:
        """Claims that wait."""
        return len(self._waiting)

    def claim(self, size_bytes: int, granted: Callable[[Claim], None]) -> Claim:
        """Ask for bytes; ``granted`` is called with the claim once it has them, possibly within the call.

        Never after a release.
        """
        claim = Claim(self, size_bytes, granted)
        self._waiting[claim] = None
        self._grant()
        return claim

    def resize(self, claim: Claim, size_bytes: int) -> None:
        """See :meth:`Claim.resize`."""
        invariant(claim.is_held, "a claim that is not held changes its size")
        self.held_bytes += size_bytes - claim.size_bytes
        claim.size_bytes = size_bytes
        self._grant()

    def release(self, claim: Claim) -> None:
        """See :meth:`Claim.release`."""
        if claim.is_held:
            claim.is_held = False
            self.held_bytes -= claim.size_bytes
            invariant(self.held_bytes >= 0, f"{self.held_bytes} bytes held")
        elif self._waiting.pop(claim, claim) is claim:
            return  # let go already
        self._grant()

    def _grant(self) -> None:
        if self._is_granting:
            return  # the loop below goes on
        self._is_granting = True
        try:
            while self._waiting:
                claim = next(iter(self._waiting))
                if self.limit_bytes and self.held_bytes and self.held_bytes + claim.size_bytes > self.limit_bytes:
                    break
                del self._waiting[claim]
                self.held_bytes += claim.size_bytes
                claim.grant()
        finally:
            self._is_granting = False
