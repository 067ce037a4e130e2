"""Named points at which the simulator may act: crash the node, or make the rare branch the common one.

In production both are no-ops of some 40 ns (no hook installed). Under simulation ``geminga.sim`` installs one
:class:`PointHook` for the run; labels are ``package.thing.moment`` (``journal.group.before_sync``).
"""

from __future__ import annotations

from typing import Protocol


class PointHook(Protocol):
    """What the simulator does at a point."""

    def crash_point(self, label: str) -> None:
        """Count the hit; the calling node may be crashed now: its code gets no further than its next await."""
        ...

    def sometimes(self, label: str, percent: float) -> bool:
        """Count the call; True with a chance of ``percent``."""
        ...

    def is_halted(self) -> bool:
        """Whether the calling node has lost power: what it still does on its way to the next await is void."""
        ...


_hook: PointHook | None = None


def set_point_hook(hook: PointHook | None) -> None:
    """Install the simulator's hook, or remove it (None)."""
    global _hook
    _hook = hook


def crash_point(label: str) -> None:
    """A moment worth a crash. No-op in production; under simulation counted, and the node may lose power here."""
    if _hook is not None:
        _hook.crash_point(label)


def sometimes(label: str, percent: float) -> bool:
    """False in production; under simulation True in a seeded ``percent`` of the calls."""
    return _hook is not None and _hook.sometimes(label, percent)


def is_halted() -> bool:
    """False in production; under simulation True once the calling node lost power (between a crash point and
    the next await). In-memory stand-ins for outside services must ignore the call then."""
    return _hook is not None and _hook.is_halted()
