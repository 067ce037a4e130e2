"""Crash points and ``sometimes`` under simulation: counted by label, armed by tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from geminga.sim.boot import CURRENT_BOOT, Boot
from geminga.sim.errors import SimError
from geminga.sim.rng import Stream


class SimPoints:
    """The ``PointHook`` of one run. ``crash`` powers the boot off at once."""

    __slots__ = ("_armed", "_crash", "_rng", "crash_percent", "crashes", "fired", "hits", "sometimes_factor")

    def __init__(self, rng: Stream, crash: Callable[[Boot, str], None]) -> None:
        self._rng = rng
        self._crash = crash
        #: (label, remaining hits, node name or None for any).
        self._armed: list[tuple[str, int, str | None]] = []
        #: Chance that any crash point crashes its node; 0: only armed ones do.
        self.crash_percent = 0.0
        #: Scales the chances of ``sometimes``; 0: never.
        self.sometimes_factor = 1.0
        #: Crash points passed (or crashed at), by label.
        self.hits: Counter[str] = Counter()
        #: Crashes at crash points, by label.
        self.crashes: Counter[str] = Counter()
        #: ``sometimes`` that said yes, by label; labels asked for are in it, with 0 at least.
        self.fired: Counter[str] = Counter()

    def arm(self, label: str, nth: int, node: str | None) -> None:
        """Crash at the ``nth`` hit of ``label`` from now (on ``node`` only, if given)."""
        self._armed.append((label, nth, node))

    def is_armed(self, label: str) -> bool:
        """Whether a crash at ``label`` is still to come."""
        return any(wanted == label for wanted, _, _ in self._armed)

    def disarm(self, label: str) -> None:
        """No crash at ``label`` any more."""
        self._armed = [armed for armed in self._armed if armed[0] != label]

    def crash_point(self, label: str) -> None:
        """Count; crash the running node if armed for this hit."""
        boot = CURRENT_BOOT.get()
        if boot is not None and not boot.alive:
            return
        self.hits[label] += 1
        if (self._armed and self._is_due(label, boot)) or (
            boot is not None and self.crash_percent and self._rng.random() * 100 < self.crash_percent
        ):
            if boot is None:
                raise SimError(f"armed crash point {label} hit outside a node: run the code with node.run()")
            self.crashes[label] += 1
            self._crash(boot, f"crash point {label}")

    def sometimes(self, label: str, percent: float) -> bool:
        """A seeded yes in ``percent`` of the calls."""
        yes = self._rng.random() * 100 < percent * self.sometimes_factor
        self.fired[label] += yes
        return yes

    def is_halted(self) -> bool:
        """Whether the running code belongs to a node that lost power."""
        boot = CURRENT_BOOT.get()
        return boot is not None and not boot.alive

    def _is_due(self, label: str, boot: Boot | None) -> bool:
        due = False
        remaining = []
        for wanted, count, node in self._armed:
            if wanted == label and (node is None or (boot is not None and boot.node.name == node)):
                count -= 1
                due = due or count == 0
            if count > 0:
                remaining.append((wanted, count, node))
        self._armed = remaining
        return due
